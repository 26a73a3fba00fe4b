"""Every scalar ALU instruction, assembled, against what the ISA manual says about it, in plain Python."""

import random

import numpy as np
import pytest

from tests.unit.amdgpu_shader_bench import Bench, build

M32, M64 = (1 << 32) - 1, (1 << 64) - 1
CHIPS = ("gfx1100", "gfx1201")


def s32(value):
    value &= M32
    return value - (1 << 32) if value >> 31 else value


def s64(value):
    value &= M64
    return value - (1 << 64) if value >> 63 else value


def leading(value, bits):
    return -1 if value == 0 else bits - value.bit_length()


def trailing(value, bits):
    return -1 if value == 0 else (value & -value).bit_length() - 1


def sign_run(value, bits):
    text = f"{value:0{bits}b}"
    run = len(text) - len(text.lstrip(text[0]))
    return -1 if run == bits else run


def field(value, control, bits, signed):
    offset, width = control & (bits - 1), control >> 16 & 0x7F
    text = f"{value:0{bits}b}"[::-1][offset : offset + width]  # lowest first
    number = sum(1 << at for at, bit in enumerate(text) if bit == "1")
    return number - (1 << len(text)) if signed and text and text[-1] == "1" else number


def quads(value, bits):
    return [bool(value >> at & 15) for at in range(0, bits, 4)]


def logic(function):
    return lambda a, b, d, c: (function(a, b), function(a, b) & M64 != 0)


def logic32(function):
    return lambda a, b, d, c: (function(a & M32, b & M32) & M32, function(a & M32, b & M32) & M32 != 0)


def nonzero32(function):
    def semantics(a, b, d, c):
        result = function(a & M32, b & M32) & M32
        return result, result != 0

    return semantics


def nonzero64(function):
    def semantics(a, b, d, c):
        result = function(a, b) & M64
        return result, result != 0

    return semantics


def plain32(function):
    return lambda a, b, d, c: (function(a & M32, b & M32) & M32, c)


def plain64(function):
    return lambda a, b, d, c: (function(a, b) & M64, c)


def signed_sum(function):
    def semantics(a, b, d, c):
        exact = function(s32(a), s32(b))
        return exact & M32, not -(1 << 31) <= exact < 1 << 31

    return semantics


def chosen(function):
    def semantics(a, b, d, c):
        result = function(a, b)
        return result & M32, result == a

    return semantics


def shifted(count):
    def semantics(a, b, d, c):
        total = ((a & M32) << count) + (b & M32)
        return total & M32, total > M32

    return semantics


D, A, B = "s24", "s16", "s18"
DD, AA, BB = "s[24:25]", "s[16:17]", "s[18:19]"

TABLE = {
    # (mnemonics of gfx11 and gfx12, operands, width of the result): result and SCC from a, b, old, SCC
    ("s_add_u32 s_add_co_u32", f"{D}, {A}, {B}", 32): lambda a, b, d, c: (
        (a + b) & M32, (a & M32) + (b & M32) > M32),
    ("s_sub_u32 s_sub_co_u32", f"{D}, {A}, {B}", 32): lambda a, b, d, c: (
        (a - b) & M32, (a & M32) < (b & M32)),
    ("s_addc_u32 s_add_co_ci_u32", f"{D}, {A}, {B}", 32): lambda a, b, d, c: (
        (a + b + c) & M32, (a & M32) + (b & M32) + c > M32),
    ("s_subb_u32 s_sub_co_ci_u32", f"{D}, {A}, {B}", 32): lambda a, b, d, c: (
        (a - b - c) & M32, (a & M32) < (b & M32) + c),
    ("s_add_i32 s_add_co_i32", f"{D}, {A}, {B}", 32): signed_sum(lambda a, b: a + b),
    ("s_sub_i32 s_sub_co_i32", f"{D}, {A}, {B}", 32): signed_sum(lambda a, b: a - b),
    ("s_addk_i32 s_addk_co_i32", f"{D}, 0x8001", 32): lambda a, b, d, c: (
        (d - 32767) & M32, s32(d) - 32767 < -(1 << 31)),
    ("s_mulk_i32", f"{D}, 0xfff0", 32): lambda a, b, d, c: (d * -16 & M32, c),
    ("s_mul_i32", f"{D}, {A}, {B}", 32): plain32(lambda a, b: a * b),
    ("s_mul_hi_u32", f"{D}, {A}, {B}", 32): plain32(lambda a, b: a * b >> 32),
    ("s_mul_hi_i32", f"{D}, {A}, {B}", 32): plain32(lambda a, b: s32(a) * s32(b) >> 32),
    ("s_lshl1_add_u32", f"{D}, {A}, {B}", 32): shifted(1),
    ("s_lshl2_add_u32", f"{D}, {A}, {B}", 32): shifted(2),
    ("s_lshl3_add_u32", f"{D}, {A}, {B}", 32): shifted(3),
    ("s_lshl4_add_u32", f"{D}, {A}, {B}", 32): shifted(4),
    ("s_min_i32", f"{D}, {A}, {B}", 32): lambda a, b, d, c: (min(s32(a), s32(b)) & M32, s32(a) < s32(b)),
    ("s_min_u32", f"{D}, {A}, {B}", 32): lambda a, b, d, c: (min(a & M32, b & M32), a & M32 < b & M32),
    ("s_max_i32", f"{D}, {A}, {B}", 32): lambda a, b, d, c: (max(s32(a), s32(b)) & M32, s32(a) >= s32(b)),
    ("s_max_u32", f"{D}, {A}, {B}", 32): lambda a, b, d, c: (max(a & M32, b & M32), a & M32 >= b & M32),
    ("s_absdiff_i32", f"{D}, {A}, {B}", 32): nonzero32(lambda a, b: abs(s32(a - b))),
    ("s_abs_i32", f"{D}, {A}", 32): nonzero32(lambda a, b: abs(s32(a))),
    ("s_and_b32", f"{D}, {A}, {B}", 32): logic32(lambda a, b: a & b),
    ("s_or_b32", f"{D}, {A}, {B}", 32): logic32(lambda a, b: a | b),
    ("s_xor_b32", f"{D}, {A}, {B}", 32): logic32(lambda a, b: a ^ b),
    ("s_nand_b32", f"{D}, {A}, {B}", 32): logic32(lambda a, b: ~(a & b)),
    ("s_nor_b32", f"{D}, {A}, {B}", 32): logic32(lambda a, b: ~(a | b)),
    ("s_xnor_b32", f"{D}, {A}, {B}", 32): logic32(lambda a, b: ~(a ^ b)),
    ("s_and_not1_b32", f"{D}, {A}, {B}", 32): logic32(lambda a, b: a & ~b),
    ("s_or_not1_b32", f"{D}, {A}, {B}", 32): logic32(lambda a, b: a | ~b),
    ("s_and_b64", f"{DD}, {AA}, {BB}", 64): nonzero64(lambda a, b: a & b),
    ("s_or_b64", f"{DD}, {AA}, {BB}", 64): nonzero64(lambda a, b: a | b),
    ("s_xor_b64", f"{DD}, {AA}, {BB}", 64): nonzero64(lambda a, b: a ^ b),
    ("s_nand_b64", f"{DD}, {AA}, {BB}", 64): nonzero64(lambda a, b: ~(a & b)),
    ("s_nor_b64", f"{DD}, {AA}, {BB}", 64): nonzero64(lambda a, b: ~(a | b)),
    ("s_xnor_b64", f"{DD}, {AA}, {BB}", 64): nonzero64(lambda a, b: ~(a ^ b)),
    ("s_and_not1_b64", f"{DD}, {AA}, {BB}", 64): nonzero64(lambda a, b: a & ~b),
    ("s_or_not1_b64", f"{DD}, {AA}, {BB}", 64): nonzero64(lambda a, b: a | ~b),
    ("s_lshl_b32", f"{D}, {A}, {B}", 32): nonzero32(lambda a, b: a << (b & 31)),
    ("s_lshr_b32", f"{D}, {A}, {B}", 32): nonzero32(lambda a, b: a >> (b & 31)),
    ("s_ashr_i32", f"{D}, {A}, {B}", 32): nonzero32(lambda a, b: s32(a) >> (b & 31)),
    ("s_lshl_b64", f"{DD}, {AA}, {B}", 64): nonzero64(lambda a, b: a << (b & 63)),
    ("s_lshr_b64", f"{DD}, {AA}, {B}", 64): nonzero64(lambda a, b: a >> (b & 63)),
    ("s_ashr_i64", f"{DD}, {AA}, {B}", 64): nonzero64(lambda a, b: s64(a) >> (b & 63)),
    ("s_bfe_u32", f"{D}, {A}, {B}", 32): nonzero32(lambda a, b: field(a, b, 32, False)),
    ("s_bfe_i32", f"{D}, {A}, {B}", 32): nonzero32(lambda a, b: field(a, b, 32, True)),
    ("s_bfe_u64", f"{DD}, {AA}, {B}", 64): nonzero64(lambda a, b: field(a, b, 64, False)),
    ("s_bfe_i64", f"{DD}, {AA}, {B}", 64): nonzero64(lambda a, b: field(a, b, 64, True)),
    ("s_bfm_b32", f"{D}, {A}, {B}", 32): plain32(lambda a, b: ((1 << (a & 31)) - 1) << (b & 31)),
    ("s_bfm_b64", f"{DD}, {A}, {B}", 64): plain64(lambda a, b: ((1 << (a & 63)) - 1) << (b & 63)),
    ("s_pack_ll_b32_b16", f"{D}, {A}, {B}", 32): plain32(lambda a, b: a & 0xFFFF | b << 16),
    ("s_pack_lh_b32_b16", f"{D}, {A}, {B}", 32): plain32(lambda a, b: a & 0xFFFF | b >> 16 << 16),
    ("s_pack_hh_b32_b16", f"{D}, {A}, {B}", 32): plain32(lambda a, b: a >> 16 | b >> 16 << 16),
    ("s_pack_hl_b32_b16", f"{D}, {A}, {B}", 32): plain32(lambda a, b: a >> 16 | b << 16),
    ("s_mov_b32", f"{D}, {A}", 32): plain32(lambda a, b: a),
    ("s_mov_b64", f"{DD}, {AA}", 64): plain64(lambda a, b: a),
    ("s_not_b32", f"{D}, {A}", 32): nonzero32(lambda a, b: ~a),
    ("s_not_b64", f"{DD}, {AA}", 64): nonzero64(lambda a, b: ~a),
    ("s_brev_b32", f"{D}, {A}", 32): plain32(lambda a, b: int(f"{a:032b}"[::-1], 2)),
    ("s_brev_b64", f"{DD}, {AA}", 64): plain64(lambda a, b: int(f"{a:064b}"[::-1], 2)),
    ("s_ctz_i32_b32", f"{D}, {A}", 32): plain32(lambda a, b: trailing(a, 32)),
    ("s_ctz_i32_b64", f"{D}, {AA}", 32): lambda a, b, d, c: (trailing(a, 64) & M32, c),
    ("s_clz_i32_u32", f"{D}, {A}", 32): plain32(lambda a, b: leading(a, 32)),
    ("s_clz_i32_u64", f"{D}, {AA}", 32): lambda a, b, d, c: (leading(a, 64) & M32, c),
    ("s_cls_i32", f"{D}, {A}", 32): plain32(lambda a, b: sign_run(a, 32)),
    ("s_cls_i32_i64", f"{D}, {AA}", 32): lambda a, b, d, c: (sign_run(a, 64) & M32, c),
    ("s_bcnt0_i32_b32", f"{D}, {A}", 32): nonzero32(lambda a, b: 32 - a.bit_count()),
    ("s_bcnt1_i32_b32", f"{D}, {A}", 32): nonzero32(lambda a, b: a.bit_count()),
    ("s_bcnt0_i32_b64", f"{D}, {AA}", 32): nonzero64(lambda a, b: 64 - a.bit_count()),
    ("s_bcnt1_i32_b64", f"{D}, {AA}", 32): nonzero64(lambda a, b: a.bit_count()),
    ("s_wqm_b32", f"{D}, {A}", 32): nonzero32(
        lambda a, b: sum(15 << 4 * at for at, any_set in enumerate(quads(a, 32)) if any_set)),
    ("s_wqm_b64", f"{DD}, {AA}", 64): nonzero64(
        lambda a, b: sum(15 << 4 * at for at, any_set in enumerate(quads(a, 64)) if any_set)),
    ("s_quadmask_b32", f"{D}, {A}", 32): nonzero32(
        lambda a, b: sum(1 << at for at, any_set in enumerate(quads(a, 32)) if any_set)),
    ("s_quadmask_b64", f"{DD}, {AA}", 64): nonzero64(
        lambda a, b: sum(1 << at for at, any_set in enumerate(quads(a, 64)) if any_set)),
    ("s_sext_i32_i8", f"{D}, {A}", 32): plain32(lambda a, b: (a & 0xFF ^ 0x80) - 0x80),
    ("s_sext_i32_i16", f"{D}, {A}", 32): plain32(lambda a, b: (a & 0xFFFF ^ 0x8000) - 0x8000),
    ("s_bitreplicate_b64_b32", f"{DD}, {A}", 64): plain64(
        lambda a, b: sum(3 << 2 * at for at in range(32) if a >> at & 1)),
    ("s_bitset0_b32", f"{D}, {A}", 32): lambda a, b, d, c: (d & M32 & ~(1 << (a & 31)), c),
    ("s_bitset1_b32", f"{D}, {A}", 32): lambda a, b, d, c: ((d | 1 << (a & 31)) & M32, c),
    ("s_bitset0_b64", f"{DD}, {A}", 64): lambda a, b, d, c: (d & ~(1 << (a & 63)), c),
    ("s_bitset1_b64", f"{DD}, {A}", 64): lambda a, b, d, c: (d | 1 << (a & 63), c),
    ("s_bitcmp0_b32", f"{A}, {B}", 0): lambda a, b, d, c: (0, not a >> (b & 31) & 1),
    ("s_bitcmp1_b32", f"{A}, {B}", 0): lambda a, b, d, c: (0, bool(a >> (b & 31) & 1)),
    ("s_bitcmp0_b64", f"{AA}, {B}", 0): lambda a, b, d, c: (0, not a >> (b & 63) & 1),
    ("s_bitcmp1_b64", f"{AA}, {B}", 0): lambda a, b, d, c: (0, bool(a >> (b & 63) & 1)),
    ("s_cselect_b32", f"{D}, {A}, {B}", 32): lambda a, b, d, c: ((a if c else b) & M32, c),
    ("s_cselect_b64", f"{DD}, {AA}, {BB}", 64): lambda a, b, d, c: (a if c else b, c),
    ("s_cmov_b32", f"{D}, {A}", 32): lambda a, b, d, c: ((a if c else d) & M32, c),
    ("s_cmov_b64", f"{DD}, {AA}", 64): lambda a, b, d, c: (a if c else d, c),
    ("s_movk_i32", f"{D}, 0x8123", 32): lambda a, b, d, c: (0xFFFF8123, c),
    ("s_cmovk_i32", f"{D}, 0x8123", 32): lambda a, b, d, c: (0xFFFF8123 if c else d & M32, c),
    ("s_cmp_eq_u64", f"{AA}, {BB}", 0): lambda a, b, d, c: (0, a == b),
    ("s_cmp_lg_u64", f"{AA}, {BB}", 0): lambda a, b, d, c: (0, a != b),
    # clang makes u64 constants of literals: they are zero-extended, but for signed types
    ("s_mov_b64", f"{DD}, 0xfffffffa", 64): plain64(lambda a, b: 0xFFFF_FFFA),
    ("s_or_b64", f"{DD}, {AA}, 0x80000001", 64): nonzero64(lambda a, b: a | 0x8000_0001),
    ("s_lshr_b64", f"{DD}, 0xffff0000, {B}", 64): nonzero64(lambda a, b: 0xFFFF_0000 >> (b & 63)),
    ("s_ashr_i64", f"{DD}, 0xffff0000, {B}", 64): nonzero64(lambda a, b: -0x1_0000 >> (b & 63)),
    ("s_cmp_eq_u64", f"{AA}, 0x80000000", 0): lambda a, b, d, c: (0, a == 0x8000_0000),
    ("- s_add_nc_u64", f"{DD}, {AA}, {BB}", 64): plain64(lambda a, b: a + b),
    ("- s_sub_nc_u64", f"{DD}, {AA}, {BB}", 64): plain64(lambda a, b: a - b),
    ("- s_mul_u64", f"{DD}, {AA}, {BB}", 64): plain64(lambda a, b: a * b),
}  # fmt: skip

ORDER = {
    "eq": lambda a, b: a == b,
    "lg": lambda a, b: a != b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
}
for _name, _order in ORDER.items():
    TABLE[(f"s_cmp_{_name}_i32", f"{A}, {B}", 0)] = lambda a, b, d, c, order=_order: (
        0,
        order(s32(a), s32(b)),
    )
    TABLE[(f"s_cmp_{_name}_u32", f"{A}, {B}", 0)] = lambda a, b, d, c, order=_order: (
        0,
        order(a & M32, b & M32),
    )
    TABLE[(f"s_cmpk_{_name}_i32 -", f"{A}, 0x8000", 0)] = lambda a, b, d, c, order=_order: (
        0,
        order(s32(a), -32768),
    )
    TABLE[(f"s_cmpk_{_name}_u32 -", f"{A}, 0x8000", 0)] = lambda a, b, d, c, order=_order: (
        0,
        order(a & M32, 32768),
    )

EXEC_TABLE = {
    "and": lambda s, e: s & e,
    "or": lambda s, e: s | e,
    "xor": lambda s, e: s ^ e,
    "nand": lambda s, e: ~(s & e),
    "nor": lambda s, e: ~(s | e),
    "xnor": lambda s, e: ~(s ^ e),
    "and_not0": lambda s, e: ~s & e,
    "or_not0": lambda s, e: ~s | e,
    "and_not1": lambda s, e: s & ~e,
    "or_not1": lambda s, e: s | ~e,
}

EDGES = (0, 1, 31, 32, 63, 0x7FFF_FFFF, 0x8000_0000, M32, 1 << 63, M64, 0x0008_0004, 0x0020_0000, 0x0040_0000)

KERNEL = """
.text
.globl k
.p2align 8
.type k,@function
k:
  s_load_b128 s[8:11], s[0:1], 0x0
  s_mov_b32 s3, {group}
  s_mul_i32 s4, s3, 32
  {add} s12, s8, s4
  {addc} s13, s9, 0
  s_load_b256 s[16:23], s[12:13], 0x0
  s_mul_i32 s4, s3, {stride}
  {add} s14, s10, s4
  {addc} s15, s11, 0
  v_mov_b32 v0, 0
{body}
  s_endpgm
.rodata
.p2align 6
.amdhsa_kernel k
  .amdhsa_next_free_vgpr 8
  .amdhsa_next_free_sgpr 32
  .amdhsa_wavefront_size32 1
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_user_sgpr_count 2
  .amdhsa_system_sgpr_workgroup_id_x 1
  .amdhsa_float_denorm_mode_32 3
.end_amdhsa_kernel
"""

STEP = """
  s_mov_b64 s[24:25], s[20:21]
  s_mov_b32 exec_lo, s23
  s_cmp_lg_u32 s22, 0
  {instruction}
  s_cselect_b32 s26, 1, 0
  s_mov_b32 s27, exec_lo
  s_mov_b32 exec_lo, 1
  v_mov_b32 v1, s24
  v_mov_b32 v2, s25
  v_mov_b32 v3, s26
  v_mov_b32 v4, s27
  global_store_b128 v0, v[1:4], s[14:15] offset:{offset}
"""


def kernel(chip, instructions):
    new = chip.startswith("gfx12")
    body = "".join(STEP.format(instruction=text, offset=16 * at) for at, text in enumerate(instructions))
    return KERNEL.format(
        group="ttmp9" if new else "s2",
        add="s_add_co_u32" if new else "s_add_u32",
        addc="s_add_co_ci_u32" if new else "s_addc_u32",
        stride=16 * len(instructions),
        body=body,
    )


def rows(count):
    """Operands: a, b, old destination, SCC, EXEC."""
    draw = random.Random(5)
    some = [
        (a, b, 0x1234_5678_9ABC_DEF0, at & 1, 0xF0F0)
        for at, (a, b) in enumerate(zip(EDGES, EDGES[::-1], strict=True))
    ]
    some += [(a, a, M64, 1, M32) for a in EDGES]
    while len(some) < count:
        a, b, d = (draw.getrandbits(draw.choice((6, 32, 64))) for _ in range(3))
        some.append((a, b, d, draw.getrandbits(1), draw.getrandbits(32)))
    return some


def executed(chip, instructions, values):
    """Per row and instruction: destination (64 bits), SCC, EXEC."""
    bench = Bench(chip)
    packed = b"".join(
        a.to_bytes(8, "little") + b.to_bytes(8, "little") + d.to_bytes(8, "little")
        + c.to_bytes(4, "little") + e.to_bytes(4, "little")
        for a, b, d, c, e in values
    )  # fmt: skip
    data = bench.put(np.frombuffer(packed, np.uint8))
    out = np.zeros((len(values), len(instructions), 4), np.uint32)
    result = bench.put(out)
    code = build(chip, kernel(chip, instructions), "s")
    outcome = bench.run(code, "k", (len(values), 1, 1), (32, 1, 1), [data, result])
    assert outcome.fault is None
    return bench.get(result, out)


@pytest.mark.slow
@pytest.mark.parametrize("chip", CHIPS)
def test_alu(chip):
    cases = []
    for (names, operands, width), semantics in TABLE.items():
        both = names.split()
        name = both[-1] if chip.startswith("gfx12") else both[0]
        if name != "-":
            cases.append((f"{name} {operands}", width, semantics))
    assert len(cases) > 90
    values = rows(80)
    out = executed(chip, [text for text, _, _ in cases], values)
    for row, (a, b, d, c, _) in enumerate(values):
        for column, (text, width, semantics) in enumerate(cases):
            low, high, scc, _ = map(int, out[row, column])
            expected, flag = semantics(a, b, d, c)
            mask = (1 << width) - 1
            whole = expected & mask | d & M64 & ~mask
            found = low | high << 32
            assert (found, scc) == (whole, int(flag)), (
                text,
                hex(a),
                hex(b),
                hex(d),
                c,
                hex(found),
                hex(whole),
            )


@pytest.mark.parametrize("chip", CHIPS)
def test_exec(chip):
    cases = [(f"s_{name}_saveexec_b32 s24, s16", name, False) for name in EXEC_TABLE]
    cases += [(f"s_{name}_wrexec_b32 s24, s16", name, True) for name in ("and_not0", "and_not1")]
    values = rows(48)
    out = executed(chip, [text for text, _, _ in cases], values)
    for row, (a, _, d, _, old) in enumerate(values):
        for column, (text, name, result_is_new) in enumerate(cases):
            low, high, scc, after = map(int, out[row, column])
            new = EXEC_TABLE[name](a & M32, old) & M32
            expected = (new if result_is_new else old, d >> 32, int(new != 0), new)
            assert (low, high, scc, after) == expected, text


def test_scalar_loads_of_bytes_and_shorts():
    data = np.array([0x80, 0x7F, 0xFF, 0x01, 0xFE, 0xCA, 0x34, 0x92], np.uint8)
    names = ("s_load_u8", "s_load_i8", "s_load_u16", "s_load_i16")
    forms = [(name, at) for name in names for at in ((0, 1, 3) if name.endswith("8") else (0, 2, 6))]
    out = executed("gfx1201", [f"{name} s24, s[12:13], {at:#x}" for name, at in forms], [
        (int.from_bytes(data.tobytes(), "little"), 0, 0, 0, 1)
    ])  # fmt: skip
    for column, (name, at) in enumerate(forms):
        kind = {"u8": np.uint8, "i8": np.int8, "u16": "<u2", "i16": "<i2"}[name.removeprefix("s_load_")]
        expected = int(np.frombuffer(data.tobytes(), kind, 1, at)[0]) & M32
        assert int(out[0, column, 0]) == expected, (name, at)


@pytest.mark.parametrize("chip", CHIPS)
def test_buffer_loads_end_with_the_buffer(chip):
    base = "s_mov_b64 s[28:29], s[12:13]\n  s_mov_b32 s30, 12\n  s_mov_b32 s31, 0\n  "
    load = base + "s_buffer_load_b64 s[24:25], s[28:31]"
    out = executed(chip, [f"{load}, {at:#x}" for at in (0, 4, 8, 0x100)], [
        (0x1111_2222_3333_4444, 0x5555_6666_7777_8888, M64, 0, 1)
    ])  # fmt: skip
    found = [int(low) | int(high) << 32 for low, high, _, _ in out[0]]
    assert found == [0x1111_2222_3333_4444, 0x7777_8888_1111_2222, 0, 0]


FLOATS = np.array(
    [
        0.0,
        -0.0,
        1.0,
        -1.5,
        2.5,
        3.5,
        65504.0,
        1e-5,
        1e-40,
        -3e38,
        2147483648.0,
        -7.0,
        np.inf,
        -np.inf,
        np.nan,
    ],
    np.float32,
)


def least(a, b, sign):
    """Minimum (sign 1) or maximum (-1): a number wins over NaN, and -0 is below +0."""
    if np.isnan(a) or np.isnan(b):
        return b if np.isnan(a) else a
    key = lambda value: (float(value) * sign, -sign if np.signbit(value) else sign)  # noqa: E731
    return min(a, b, key=key)


def saturated(value, low, high):
    return 0 if np.isnan(value) else int(np.trunc(min(max(float(value), low), high)))


FLOAT_TABLE = {
    "s_add_f32 s24, s16, s18": lambda a, b: a + b,
    "s_sub_f32 s24, s16, s18": lambda a, b: a - b,
    "s_mul_f32 s24, s16, s18": lambda a, b: a * b,
    "s_min_num_f32 s24, s16, s18": lambda a, b: least(a, b, 1),
    "s_max_num_f32 s24, s16, s18": lambda a, b: least(a, b, -1),
    "s_minimum_f32 s24, s16, s18": lambda a, b: np.float32(np.nan) if a != a or b != b else least(a, b, 1),
    "s_maximum_f32 s24, s16, s18": lambda a, b: np.float32(np.nan) if a != a or b != b else least(a, b, -1),
    "s_ceil_f32 s24, s16": lambda a, b: np.ceil(a),
    "s_floor_f32 s24, s16": lambda a, b: np.floor(a),
    "s_trunc_f32 s24, s16": lambda a, b: np.trunc(a),
    "s_rndne_f32 s24, s16": lambda a, b: np.rint(a),
    "s_fmaak_f32 s24, s16, s18, 0x3f800000": lambda a, b: np.float32(np.float64(a) * np.float64(b) + 1.0),
    "s_cvt_i32_f32 s24, s16": lambda a, b: np.int32(saturated(a, -(1 << 31), M32 >> 1)),
    "s_cvt_u32_f32 s24, s16": lambda a, b: np.uint32(saturated(a, 0, M32)),
    "s_cvt_f16_f32 s24, s16": lambda a, b: a.astype(np.float16),
}


def test_floats():
    pairs = [(a, b) for a in FLOATS for b in FLOATS]
    raw = [(int(a.view(np.uint32)), int(b.view(np.uint32)), M64, 0, 1) for a, b in pairs]
    out = executed("gfx1201", list(FLOAT_TABLE), raw)
    with np.errstate(all="ignore"):
        for row, (a, b) in enumerate(pairs):
            for column, (text, semantics) in enumerate(FLOAT_TABLE.items()):
                expected = np.asarray(semantics(a, b))
                found = out[row, column, :1].view(expected.dtype)[0]
                same = found.tobytes() == expected.tobytes() or (expected != expected and found != found)
                assert same, (text, a, b, found, expected)


def test_float_conditions():
    names = {
        "lt": lambda a, b: a < b, "eq": lambda a, b: a == b, "le": lambda a, b: a <= b,
        "gt": lambda a, b: a > b, "lg": lambda a, b: a < b or a > b, "ge": lambda a, b: a >= b,
        "o": lambda a, b: a == a and b == b, "u": lambda a, b: a != a or b != b,
    }  # fmt: skip
    opposite = {"nlt": "lt", "neq": "eq", "nle": "le", "ngt": "gt", "nlg": "lg", "nge": "ge"}
    table = names | {name: lambda a, b, of=names[of]: not of(a, b) for name, of in opposite.items()}
    pairs = [(a, b) for a in FLOATS for b in FLOATS]
    raw = [(int(a.view(np.uint32)), int(b.view(np.uint32)), M64, 0, 1) for a, b in pairs]
    out = executed("gfx1201", [f"s_cmp_{name}_f32 s16, s18" for name in table], raw)
    for row, (a, b) in enumerate(pairs):
        assert out[row, :, 2].tolist() == [int(condition(a, b)) for condition in table.values()]
