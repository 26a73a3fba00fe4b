"""Forms that assemblers or other drivers' kernels use and LLVM's decoder or clang's output does not show:
buffers by descriptor, unused fields that are set, VOPD with dot products, exchanges of two places in LDS.
"""

from __future__ import annotations

import numpy as np
import pytest

from emulator.amdgpu.isa.decode import Undecodable, decoder
from emulator.amdgpu.isa.emit import Mode, Refused
from emulator.amdgpu.isa.operands import EXEC
from emulator.amdgpu.seams import Outcome
from tests.unit.amdgpu_lanes import VGPRS, decode
from tests.unit.amdgpu_lanes import Bench as Lanes
from tests.unit.amdgpu_shader_bench import Bench, build
from tests.unit.test_amdgpu_shaders import ASSEMBLY

CHIPS = ("gfx1100", "gfx1201")
LANES = np.arange(32)
both = pytest.mark.parametrize("chip", CHIPS)


def kernel(bench: Bench, body: str, lds: int = 0) -> Outcome:
    body = body.replace(";", "\n")
    return bench.run(
        build(bench.chip.name, ASSEMBLY.format(body=body), "s"), "k", (1, 1, 1), (32, 1, 1), [], lds=lds
    )


def descriptor(address: int, records: int, stride: int = 0, select: int = 3, flags: int = 0) -> str:
    """s[8:11]."""
    words = (address & 0xFFFFFFFF, address >> 32 | stride << 16 | flags << 30, records, select << 28)
    return "".join(f"s_mov_b32 s{8 + n}, {word:#x};" for n, word in enumerate(words))


def pointer(address: int) -> str:
    """s[4:5]."""
    return f"s_mov_b32 s4, {address & 0xFFFFFFFF:#x}; s_mov_b32 s5, {address >> 32:#x}"


def null(chip: str) -> str:
    """No SOFFSET."""
    return "0" if chip == "gfx1100" else "null"


@both
def test_raw_buffers_read_0_and_write_nothing_out_of_range(chip: str) -> None:
    bench = Bench(chip)
    source, target = np.arange(100, 164, dtype=np.uint32), np.full(64, 7, np.uint32)
    at, to = bench.put(source), bench.put(target)
    # 20 dwords from byte 8 of s3 are in range of the first buffer, 24 of the second.
    body = descriptor(at, 8 + 4 * 20)
    body += "s_mov_b32 s3, 8; v_lshlrev_b32 v1, 2, v0; buffer_load_b32 v2, v1, s[8:11], s3 offen;"
    body += descriptor(to, 4 * 24 + 16) + f"buffer_store_b32 v2, v1, s[8:11], {null(chip)} offen offset:16;"
    assert kernel(bench, body).fault is None
    got = bench.get(to, target)
    wanted = np.full(64, 7, np.uint32)
    wanted[4:28] = np.where(LANES < 20, source[2:34], 0)[:24]
    assert np.array_equal(got, wanted)


@pytest.mark.slow
@both
@pytest.mark.parametrize("select", [0, 1])
def test_structured_buffers(chip: str, select: int) -> None:
    """Index and offset into structures of 12 bytes: with 0 the offset counts too."""
    bench = Bench(chip)
    source, target = np.arange(200, 400, dtype=np.uint32), np.zeros(32, np.uint32)
    at, to = bench.put(source), bench.put(target)
    body = descriptor(at, 30, stride=12, select=select)
    body += "v_mov_b32 v4, v0; v_and_b32 v5, 3, v0; v_lshlrev_b32 v5, 2, v5;"
    body += f"buffer_load_b32 v2, v[4:5], s[8:11], {null(chip)} idxen offen;"
    body += (
        descriptor(to, 128)
        + f"v_lshlrev_b32 v1, 2, v0; buffer_store_b32 v2, v1, s[8:11], {null(chip)} offen;"
    )
    assert kernel(bench, body).fault is None
    offset = LANES & 3
    good = (LANES < 30) & ((offset < 3) | (select == 1))
    assert np.array_equal(bench.get(to, target), np.where(good, source[3 * LANES + offset], 0))


@pytest.mark.slow
@both
def test_halves_of_registers_in_memory(chip: str) -> None:
    """d16 and d16_hi loads and stores of buffers, global memory and LDS."""
    bench = Bench(chip)
    source, target = np.arange(1000, 1096, dtype=np.uint16), np.zeros(160, np.uint16)
    at, to = bench.put(source), bench.put(target)
    body = (
        descriptor(at, 192)
        + f"""v_lshlrev_b32 v1, 1, v0; v_mov_b32 v2, -1; v_mov_b32 v3, -1; v_mov_b32 v4, -1
        buffer_load_d16_b16 v2, v1, s[8:11], {null(chip)} offen
        buffer_load_d16_hi_b16 v2, v1, s[8:11], {null(chip)} offen offset:64
        {pointer(at)}
        global_load_d16_b16 v3, v1, s[4:5] offset:128; global_load_d16_hi_b16 v3, v1, s[4:5]
        ds_store_b16_d16_hi v1, v2; ds_store_b16 v1, v3 offset:64
        ds_load_u16_d16 v4, v1; ds_load_u16_d16_hi v4, v1 offset:64;"""
    )
    body += (
        descriptor(to, 320)
        + f"""buffer_store_b16 v2, v1, s[8:11], {null(chip)} offen
        buffer_store_d16_hi_b16 v2, v1, s[8:11], {null(chip)} offen offset:64
        {pointer(to)}
        global_store_d16_hi_b16 v1, v3, s[4:5] offset:128; global_store_b16 v1, v4, s[4:5] offset:192
        global_store_d16_hi_b16 v1, v4, s[4:5] offset:256"""
    )
    assert kernel(bench, body, lds=128).fault is None
    first, second, third = source[:32], source[32:64], source[64:]
    assert np.array_equal(bench.get(to, target), np.concatenate([first, second, first, second, third]))


@both
def test_buffer_atomics_return_where_they_are_asked_to(chip: str) -> None:
    bench = Bench(chip)
    target = np.zeros(64, np.uint32)
    to = bench.put(target)
    returned = "glc" if chip == "gfx1100" else "th:TH_ATOMIC_RETURN"
    body = (
        descriptor(to, 256)
        + f"""v_mov_b32 v1, 0; v_mov_b32 v2, 3; v_mov_b32 v3, 3; v_lshlrev_b32 v4, 2, v0
        buffer_atomic_add_u32 v2, v1, s[8:11], {null(chip)} offen
        buffer_atomic_add_u32 v3, v1, s[8:11], {null(chip)} offen {returned}
        buffer_store_b32 v3, v4, s[8:11], {null(chip)} offen offset:128
        v_mov_b32 v5, 9; buffer_atomic_add_u32 v5, v4, s[8:11], {null(chip)} offen offset:252 {returned}
        v_add_nc_u32 v2, v2, v5; v_cmp_eq_u32 vcc_lo, 5, v0
        s_and_b32 exec_lo, exec_lo, vcc_lo; buffer_store_b32 v2, v4, s[8:11], {null(chip)} offen"""
    )
    assert kernel(bench, body).fault is None
    got = bench.get(to, target)
    assert got[0] == 192
    assert sorted(got[32:63]) == [96 + 3 * n for n in range(31)]
    assert got[63] == 96 + 3 * 31 + 9  # the one lane in range
    assert got[5] == 3  # and 0 from out of range


@both
def test_a_swizzled_buffer_ends_the_dispatch(chip: str) -> None:
    bench = Bench(chip)
    at = bench.put(np.zeros(64, np.uint32))
    body = descriptor(at, 256, flags=1) + f"buffer_load_b32 v2, v0, s[8:11], {null(chip)} offen"
    fault = kernel(bench, body).fault
    assert fault.kind == "instruction"
    assert "buffer_load_b32" in fault.text


@both
def test_exchanges_of_two_places(chip: str) -> None:
    bench = Bench(chip)
    target = np.zeros(128, np.uint32)
    to = bench.put(target)
    body = f"""{pointer(to)}; v_lshlrev_b32 v1, 2, v0
        v_add_nc_u32 v2, 0x100, v0; v_add_nc_u32 v3, 0x200, v0
        ds_store_b32 v1, v2; ds_store_b32 v1, v3 offset:256
        v_add_nc_u32 v2, 0x300, v0; v_add_nc_u32 v3, 0x400, v0
        ds_storexchg_2addr_stride64_rtn_b32 v[4:5], v1, v2, v3 offset0:0 offset1:1
        ds_load_b32 v6, v1; ds_load_b32 v7, v1 offset:256
        global_store_b32 v1, v4, s[4:5]; global_store_b32 v1, v5, s[4:5] offset:128
        global_store_b32 v1, v6, s[4:5] offset:256; global_store_b32 v1, v7, s[4:5] offset:384"""
    assert kernel(bench, body, lds=512).fault is None
    assert np.array_equal(bench.get(to, target), np.concatenate([n * 256 + LANES for n in (1, 2, 3, 4)]))


# Words that are not as LLVM's encoder writes them


def word(chip: str, value: int) -> bytes:
    return value.to_bytes(20, "little")


def run(chip: str, data: bytes, vgprs: np.ndarray, mode: Mode | None = None) -> np.ndarray:
    sgprs = np.zeros(128, np.uint32)
    sgprs[EXEC] = 0xFFFFFFFF
    Lanes(chip, [([decoder(chip).decode(data, 0)], mode or Mode())]).run(0, vgprs, sgprs)
    return vgprs


@both
def test_a_destination_that_a_store_does_not_have_is_ignored(chip: str) -> None:
    plain = 0x36 << 26 | 0xD << 18 | (1 | 2 << 8) << 32  # ds_store_b32 v1, v2
    found = decoder(chip).decode(word(chip, plain | 7 << 56), 0)
    assert found.text == decoder(chip).decode(word(chip, plain), 0).text


@both
def test_a_register_that_an_instruction_has_is_not_taken_for_an_unused_one(chip: str) -> None:
    store = 0x36 << 26 | 0x4D << 18 | (1 | 255 << 8) << 32  # ds_store_b64 v1, v[255:256]
    with pytest.raises(Undecodable):
        decoder(chip).decode(word(chip, store), 0)


@both
def test_pairs_with_fields_that_a_move_does_not_have(chip: str) -> None:
    """v_dual_mov_b32 v41, literal :: v_dual_mov_b32 v42, v4, both with a second source."""
    value = 0x32 << 26 | 8 << 22 | 8 << 17 | 255 | 9 << 9 | (256 + 4) << 32 | 11 << 41 | 21 << 49 | 41 << 56
    vgprs = np.arange(VGPRS * 32, dtype=np.uint32).reshape(VGPRS, 32)
    got = run(chip, word(chip, value | 0x12345678 << 64), vgprs.copy())
    assert np.all(got[41] == 0x12345678)
    assert np.array_equal(got[42], vgprs[4])


@both
def test_pairs_with_dot_products(chip: str) -> None:
    """v_dual_dot2acc_f32_f16 v41, v4, v5 :: v_dual_mov_b32 v42, v6."""
    value = 0x32 << 26 | 12 << 22 | 8 << 17 | (256 + 4) | 5 << 9 | (256 + 6) << 32 | 21 << 49 | 41 << 56
    rng = np.random.default_rng(1)
    vgprs = np.zeros((VGPRS, 32), np.uint32)
    pairs = rng.integers(-8, 8, (2, 32, 2)).astype(np.float16)
    for register, each in zip((4, 5), pairs, strict=True):
        vgprs[register] = each.view(np.uint32)[:, 0]
    vgprs[41] = np.float32(2.5).view(np.uint32)
    got = run(chip, word(chip, value), vgprs.copy())
    wanted = 2.5 + (pairs[0].astype(np.float64) * pairs[1]).sum(1)
    assert np.array_equal(got[41].view(np.float32), wanted)


def test_scalar_floats_obey_the_mode() -> None:
    """A denormal factor is 0 where MODE flushes it, a product in the middle is rounded as MODE says."""
    lines = [
        "s_fmamk_f32 s4, s8, 0x40000000, s9",
        "s_add_f32 s5, s10, s11",
        "s_cvt_pk_rtz_f16_f32 s6, s10, s11",
    ]
    instructions = decode("gfx1201", lines)
    bench = Lanes("gfx1201", [(instructions, Mode()), (instructions, Mode(denorm=0, round=1))])
    sums = []
    for number in (0, 1):
        sgprs = np.zeros(128, np.uint32)
        sgprs[8], sgprs[9] = 0x00400000, 0
        sgprs[10:12] = np.array([1, 2**-25], np.float32).view(np.uint32)
        bench.run(number, np.zeros((VGPRS, 32), np.uint32), sgprs)
        sums.append((int(sgprs[4]), float(sgprs[5:6].view(np.float32)[0])))
        assert sgprs[6] == 0x00003C00
    assert sums == [(0x00800000, 1.0), (0, 1 + 2.0**-23)]


# Words of 16 bits


@both
@pytest.mark.parametrize("dpp", [False, True])
def test_high_halves_in_short_encodings(chip: str, dpp: bool) -> None:
    """v_add_f16 v40.h, v4.h, v5.l, plain and by DPP's row_mirror: the text names the halves."""
    value = 50 << 25 | (128 + 40) << 17 | 5 << 9 | (0xFA if dpp else 256 + 128 + 4)
    if dpp:
        value |= (128 + 4 | 0x140 << 8 | 0xF << 28 | 0xF << 24) << 32
    found = decoder(chip).decode(word(chip, value), 0)
    assert [each.half for each in found.operands] == ["h", "h", ""]
    assert "v40.h, v4.h, v5" in found.text
    vgprs = np.random.default_rng(3).integers(0, 0x7000_0000, (VGPRS, 32), dtype=np.uint32)
    got = run(chip, word(chip, value), vgprs.copy())
    places = LANES // 16 * 16 + 15 - LANES % 16 if dpp else LANES
    with np.errstate(all="ignore"):
        high = (vgprs[4][places] >> 16).astype(np.uint16).view(np.float16)
        total = high + (vgprs[5] & 0xFFFF).astype(np.uint16).view(np.float16)
    same = (got[40] >> 16 == total.view(np.uint16)) | np.isnan(total)
    assert same.all()
    assert np.array_equal(got[40] & 0xFFFF, vgprs[40] & 0xFFFF)


@both
@pytest.mark.parametrize(
    ("value", "registers"),
    [
        (0x7E000000 | 200 << 17 | 11 << 9 | 256 + 134, [(200, ""), (6, "h")]),  # v_cvt_f32_f16
        (0x7E000000 | 133 << 17 | 10 << 9 | 256 + 200, [(5, "h"), (200, "")]),  # v_cvt_f16_f32
        (0x7C000000 | 2 << 17 | 130 << 9 | 256 + 6, [(6, ""), (2, "h")]),  # v_cmp_eq_f16
        (47 << 25 | 133 << 17 | 130 << 9 | 256 + 255, [(133, ""), (255, ""), (130, "")]),  # v_cvt_pk_rtz
        (59 << 25 | 133 << 17 | 130 << 9 | 256 + 255, [(5, "h"), (127, "h"), (2, "h")]),  # v_ldexp_f16
    ],
)
def test_numbers_above_127_are_halves_of_16_bit_operands_alone(
    chip: str, value: int, registers: list
) -> None:
    found = decoder(chip).decode(word(chip, value), 0)
    assert [(each.index, each.half) for each in found.operands if each.kind == "v"] == registers


@both
def test_op_sel_of_dpp_in_64_bits(chip: str) -> None:
    """v_add_f16_e64_dpp v40, |v4|, -v5 row_mirror, halves high, low, and high of the destination."""
    value = 0xD532_0000 | 40 | 1 << 8 | 1 << 11 | 1 << 14 | (0xFA | (256 + 5) << 9 | 1 << 30) << 32
    value |= (4 | 0x140 << 8 | 0xFF << 24) << 64
    vgprs = np.random.default_rng(3).integers(0, 1 << 32, (VGPRS, 32), dtype=np.uint32)
    got = run(chip, word(chip, value), vgprs.copy())[40]
    a = np.abs((vgprs[4][LANES // 16 * 16 + 15 - LANES % 16] >> 16).astype(np.uint16).view(np.float16))
    with np.errstate(all="ignore"):
        total = a - (vgprs[5] & 0xFFFF).astype(np.uint16).view(np.float16)
    assert np.all((got >> 16 == total.view(np.uint16)) | np.isnan(total))
    assert np.array_equal(got & 0xFFFF, vgprs[40] & 0xFFFF)


@both
@pytest.mark.parametrize(("opcode", "text"), [(0x37, "v4.h, 0x4000, v5.h"), (0x38, "v4.h, v5.h, 0x4000")])
def test_high_halves_around_a_literal(chip: str, opcode: int, text: str) -> None:
    """v_fmamk_f16 and v_fmaak_f16."""
    value = opcode << 25 | 40 << 17 | (128 + 5) << 9 | 256 + 128 + 4 | 0x4000 << 32
    found = decoder(chip).decode(word(chip, value), 0)
    assert text in found.text
    vgprs = np.random.default_rng(6).integers(0, 1 << 32, (VGPRS, 32), dtype=np.uint32)
    numbers = np.random.default_rng(7).integers(-9, 9, (2, 32)).astype(np.float16)
    for register, number in zip((4, 5), numbers, strict=True):
        vgprs[register] = number.view(np.uint16).astype(np.uint32) << 16 | 0x7E00
    got = run(chip, word(chip, value), vgprs.copy())[40]
    two, (a, c) = np.float16(2), numbers
    wanted = a * two + c if opcode == 0x37 else a * c + two
    assert np.array_equal((got & 0xFFFF).astype(np.uint16).view(np.float16), wanted)


@both
def test_an_operand_that_llvm_remarks_on_is_named(chip: str) -> None:
    """Not "no instruction": v_readfirstlane_b32 s7, s55."""
    with pytest.raises(Undecodable, match="v_readfirstlane_b32"):
        decoder(chip).decode(bytes.fromhex("37040e7e").ljust(20, b"\0"), 0)


@pytest.mark.slow
@both
@pytest.mark.parametrize(
    ("value", "what"),
    [
        (0xD5030004 | (256 + 6 | (256 + 2) << 9) << 32 | 1 << 11, "op_sel"),  # v_add_f32
        (0xD7030004 | (256 + 6 | (256 + 2) << 9) << 32 | 1 << 61, "neg"),  # v_add_nc_u16
    ],
)
def test_fields_without_a_meaning_are_refused_by_name(chip: str, value: int, what: str) -> None:
    bench = Bench(chip)
    low, high = value & 0xFFFFFFFF, value >> 32
    fault = kernel(bench, f".long {low:#x}, {high:#x}").fault
    assert fault.kind == "instruction"
    assert what in fault.text


HALVES = """
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
kernel void halves(global half *a, global half *b, global half *c) {
    int x = __builtin_amdgcn_workitem_id_x();
    half p = a[x], q = b[x], s = p + q, m = p * q, d = __builtin_fmaf16(p, q, s);
    half low = __builtin_fminf16(s, m), high = __builtin_fmaxf16(d, q);
    c[x] = p < q ? low : high;
    c[x + 32] = __builtin_floorf16(s) - d;
    c[x + 64] = (half)(short)p + m;
    c[x + 96] = __builtin_ceilf16(high) * low;
}"""


@pytest.mark.slow
@both
@pytest.mark.parametrize("feature", ["", "+real-true16"])
def test_a_compiled_kernel_of_halves(chip: str, feature: str) -> None:
    """With the feature, clang puts two values into the halves of one register.

    In its encodings of 64 bits, LLVM 19 forgets the halves: the kernel has none of them.
    """
    bench = Bench(chip)
    rng = np.random.default_rng(8)
    p, q = (rng.normal(0, 4, 32).astype(np.float16) for _ in "pq")
    target = np.zeros(128, np.float16)
    places = [bench.put(each) for each in (p, q, target)]
    code = build(chip, HALVES, feature=feature)
    assert bench.run(code, "halves", (1, 1, 1), (32, 1, 1), places).fault is None
    total, product = p + q, p * q
    fused = (p.astype(np.float64) * q + total).astype(np.float16)
    low, high = np.minimum(total, product), np.maximum(fused, q)
    wanted = [
        np.where(p < q, low, high),
        np.floor(total) - fused,
        p.astype(np.int16).astype(np.float16) + product,
    ]
    wanted.append(np.ceil(high) * low)
    assert np.array_equal(bench.get(places[2], target), np.concatenate(wanted))


# Dot products of two halves


@pytest.mark.slow
@both
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_dot_products_with_a_half_of_a_register(chip: str, kind: str) -> None:
    """v_dot2_f16_f16: op_sel takes halves of the last source and of the destination."""
    rng = np.random.default_rng(5)
    for third in (0, 1):
        for target in (0, 1):
            numbers = rng.integers(-8, 8, (3, 32, 2)).astype(np.float32)
            codes = numbers.astype(np.float16).view(np.uint16)
            if kind == "bf16":
                codes = (numbers.view(np.uint32) >> 16).astype(np.uint16)
            vgprs = rng.integers(0, 1 << 32, (VGPRS, 32), dtype=np.uint32)
            vgprs[4:7] = codes[..., 0].astype(np.uint32) | codes[..., 1].astype(np.uint32) << 16
            opcode = 0x266 if kind == "f16" else 0x267
            value = 0xD4000000 | opcode << 16 | 40 | third << 13 | target << 14
            value |= (256 + 4) << 32 | (256 + 5) << 41 | (256 + 6) << 50 | 1 << 61
            got = run(chip, word(chip, value), vgprs.copy())[40]
            total = (-numbers[0] * numbers[1]).sum(1) + numbers[2, :, third]
            code = total.astype(np.float16).view(np.uint16)
            if kind == "bf16":
                code = (total.view(np.uint32) >> 16).astype(np.uint16)
            kept = 0xFFFF0000 if not target else 0xFFFF
            assert np.array_equal(got & kept, vgprs[40] & kept)
            assert np.array_equal(got >> np.uint32(16 * target) & 0xFFFF, code)


@both
def test_the_upper_end_of_the_reduction_of_angles(chip: str) -> None:
    """From exponent 1,968 the result is 2^128 times as large, as the next exponent's bits are one further."""
    bench = Lanes(chip, [(decode(chip, ["v_trig_preop_f64 v[40:41], v[4:5], 2"]), Mode())])
    vgprs, sgprs = np.zeros((VGPRS, 32), np.uint32), np.zeros(128, np.uint32)
    sgprs[EXEC] = 0xFFFFFFFF
    exponents = np.arange(1952, 1984, dtype=np.uint32)
    vgprs[5] = exponents << 20
    bench.run(0, vgprs, sgprs)
    whole = vgprs[40].astype(np.uint64) | vgprs[41].astype(np.uint64) << np.uint64(32)
    sizes = np.frexp(whole.view(np.float64))[1]
    shift = 106 + exponents.astype(int) - 1077
    scaled = sizes + shift - np.where(exponents >= 1968, 128, 0)
    assert np.all((scaled <= 0) & (scaled > -53))


@pytest.mark.slow
@both
@pytest.mark.parametrize("name", ["v_qsad_pk_u16_u8", "v_mqsad_pk_u16_u8", "v_mqsad_u32_u8"])
def test_sums_of_differences_in_a_window(chip: str, name: str) -> None:
    wide = name.endswith("32_u8")
    third = "v[12:15]" if wide else "v[12:13]"
    target = "v[40:43]" if wide else "v[40:41]"
    rng = np.random.default_rng(12)
    vgprs, sgprs = rng.integers(0, 1 << 32, (VGPRS, 32), dtype=np.uint32), np.zeros(128, np.uint32)
    vgprs[8, ::3] &= 0xFF00FF
    sgprs[EXEC] = 0xFFFFFFFF
    before = vgprs.copy()
    Lanes(chip, [(decode(chip, [f"{name} {target}, v[4:5], v8, {third}"]), Mode())]).run(0, vgprs, sgprs)
    for lane in range(32):
        window = before[4:6, lane].tobytes()
        against = before[8, lane].tobytes()
        kind = np.uint32 if wide else np.uint16
        sums = before[12 : 16 if wide else 14, lane].copy().view(kind)
        for at in range(4):
            pairs = zip(window[at : at + 4], against, strict=True)
            more = sum(abs(x - y) for x, y in pairs if y or "mqsad" not in name)
            sums[at] = (int(sums[at]) + more) % (1 << 8 * kind().itemsize)
        assert np.array_equal(vgprs[40 : 44 if wide else 42, lane].copy().view(kind), sums)


@both
def test_a_matrix_that_is_in_no_vgprs_is_refused(chip: str) -> None:
    """v_wmma_f32_16x16x16_f16 with null for B, which LLVM decodes."""
    value = 0xCC404008 | (256 + 16 | 124 << 9 | (256 + 8) << 18 | 3 << 27) << 32
    with pytest.raises(Refused, match="null is not a matrix"):
        run(chip, word(chip, value), np.zeros((VGPRS, 32), np.uint32))
