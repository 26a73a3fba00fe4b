"""Instructions that look across lanes, halves of registers, pairs; and dot products."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest

from emulator.amdgpu.isa.emit import Mode
from emulator.amdgpu.isa.operands import EXEC, M0, VCC
from emulator.amdgpu.isa.vector import dot
from tests.unit.amdgpu_lanes import Bench, decode, values
from tests.unit.amdgpu_semantics import extreme, fma, strict_extreme

CHIPS = ("gfx1100", "gfx1201")
LANES = np.arange(32)
ROW = LANES // 16 * 16
State = tuple[np.ndarray, np.ndarray]


def active(sgprs: np.ndarray) -> np.ndarray:
    return sgprs[EXEC] >> LANES.astype(np.uint32) & 1 == 1


def halves(word: np.ndarray, kind: str = "u") -> list[np.ndarray]:
    parts = [(word >> np.uint32(16 * n) & np.uint32(0xFFFF)).astype(np.uint16) for n in (0, 1)]
    return [part.view({"u": np.uint16, "i": np.int16, "f": np.float16}[kind]) for part in parts]


def joined(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    low, high = (np.ascontiguousarray(part).view(np.uint16).astype(np.uint32) for part in (low, high))
    return low | high << np.uint32(16)


def put(v: np.ndarray, s: np.ndarray, index: int, value: np.ndarray, lanes: np.ndarray | None = None) -> None:
    lanes = active(s) if lanes is None else active(s) & lanes
    v[index] = np.where(lanes, value, v[index])


CASES: dict[str, Callable[[np.ndarray, np.ndarray], None]] = {}
"""What an instruction does to VGPRs and SGPRs."""
ONLY: dict[str, str] = {}
"""Chips of those that not both have."""


def case(text: str, chip: str = ""):
    def keep(function):
        CASES[text] = function
        if chip:
            ONLY[text] = chip
        return function

    return keep


# DPP: v4 += of another lane


def dpp(control: str, source: Callable[[int], int], *, zero: bool = True, inactive: bool = False,
        rows: int = 15, banks: int = 15) -> None:  # fmt: skip
    words = f"{control} row_mask:{rows:#x} bank_mask:{banks:#x}" if "dpp8" not in control else control
    words += " bound_ctrl:1" if zero and "dpp8" not in control else ""
    words += " fi:1" if inactive else ""

    @case(f"v_add_nc_u32_dpp v40, v4, v8 {words}")
    def _(v, s):
        places = np.array([source(lane) for lane in range(32)])
        valid = (places >= 0) & (active(s)[places] | inactive)
        chosen = np.where(valid, v[4][places], 0)
        enabled = (rows >> LANES // 16 & banks >> LANES % 16 // 4 & 1) == 1
        put(v, s, 40, chosen + v[8], enabled if zero else enabled & valid)


def shifted(amount: int) -> Callable[[int], int]:
    return lambda lane: lane + amount if (lane + amount) // 16 == lane // 16 and lane + amount >= 0 else -1


for zero in (False, True):
    for inactive in (False, True):
        dpp("row_shl:1", shifted(1), zero=zero, inactive=inactive)
        dpp("row_shr:15", shifted(-15), zero=zero, inactive=inactive)
        dpp(
            "quad_perm:[3,0,0,2]",
            lambda lane: lane // 4 * 4 + (3, 0, 0, 2)[lane % 4],
            zero=zero,
            inactive=inactive,
        )
dpp("row_ror:5", lambda lane: lane // 16 * 16 + (lane - 5) % 16)
dpp("row_mirror", lambda lane: lane // 16 * 16 + 15 - lane % 16, zero=False)
dpp("row_half_mirror", lambda lane: lane // 8 * 8 + 7 - lane % 8)
dpp("row_share:3", lambda lane: lane // 16 * 16 + 3, inactive=True)
dpp("row_xmask:6", lambda lane: lane ^ 6)
dpp("row_shr:4", shifted(-4), rows=1, banks=0xE)
dpp("row_shr:8", shifted(-8), rows=2, banks=0xC, zero=False)
for inactive in (False, True):
    dpp(
        "dpp8:[7,0,5,2,2,1,4,3]",
        lambda lane: lane // 8 * 8 + (7, 0, 5, 2, 2, 1, 4, 3)[lane % 8],
        inactive=inactive,
    )


@case("v_cmp_lt_u32_e64_dpp s20, v4, v8 row_mirror row_mask:0xf bank_mask:0xf")
def _(v, s):
    places = ROW + 15 - LANES % 16
    lanes = active(s) & active(s)[places] & (v[4][places] < v[8])
    s[20] = sum(1 << int(lane) for lane in LANES[lanes])


@case("v_add_co_ci_u32_e64_dpp v40, s20, v4, v8, s16 row_ror:3 row_mask:0xf bank_mask:0xf fi:1")
def _(v, s):
    carry = (s[16] >> LANES.astype(np.uint32)) & 1
    total = v[4][ROW + (LANES - 3) % 16].astype(np.uint64) + v[8] + carry
    put(v, s, 40, total & 0xFFFFFFFF)
    s[20] = sum(1 << int(lane) for lane in LANES[active(s) & (total >> np.uint64(32) == 1)])


@case("v_fmac_f32_dpp v40, v4, v8 row_half_mirror row_mask:0xf bank_mask:0xf fi:1")
def _(v, s):
    a, b, c = (v[n].view(np.float32) for n in (4, 8, 40))
    put(v, s, 40, (a[LANES // 8 * 8 + 7 - LANES % 8] * b + c).view(np.uint32))


# Permutations with selectors in registers


def permlane(text: str, other: bool, each: bool, fetch: bool, zero: bool, chip: str = "") -> None:
    @case(text, chip)
    def _(v, s):
        whole = int(s[8]) | int(s[9]) << 32
        select = v[8] & 15 if each else np.array([whole >> 4 * (lane % 16) & 15 for lane in range(32)])
        places = (ROW ^ 16 if other else ROW) + select
        valid = active(s)[places] | fetch
        put(v, s, 40, np.where(valid, v[4][places], 0), None if zero else valid)


for fetch in (False, True):
    for zero in (False, True):
        chosen = f" op_sel:[{int(fetch)},{int(zero)}]" if fetch or zero else ""
        permlane(f"v_permlane16_b32 v40, v4, s8, s9{chosen}", False, False, fetch, zero)
        permlane(f"v_permlanex16_b32 v40, v4, s8, s9{chosen}", True, False, fetch, zero)
        permlane(f"v_permlane16_var_b32 v40, v4, v8{chosen}", False, True, fetch, zero, "gfx1201")
        permlane(f"v_permlanex16_var_b32 v40, v4, v8{chosen}", True, True, fetch, zero, "gfx1201")


@case("v_permlane64_b32 v40, v4")
def _(v, s):
    """Nothing in wave32."""


# Lanes and scalars


@case("v_readfirstlane_b32 s20, v4")
def _(v, s):
    lanes = LANES[active(s)]
    s[20] = v[4][lanes[0] if len(lanes) else 0]


@case("v_readlane_b32 s20, v4, s8")
def _(v, s):
    s[20] = v[4][s[8] % 32]


@case("v_writelane_b32 v40, s9, s8")
def _(v, s):
    v[40][s[8] % 32] = s[9]


@case("v_writelane_b32 v40, 17, 3")
def _(v, s):
    v[40][3] = 17


@case("v_swap_b32 v40, v4")
def _(v, s):
    first, second = v[40].copy(), v[4].copy()
    put(v, s, 40, second)
    put(v, s, 4, first)


@case("v_movrels_b32 v40, v4")
def _(v, s):
    put(v, s, 40, v[4 + s[M0]])


@case("v_movreld_b32 v40, v4")
def _(v, s):
    put(v, s, 40 + s[M0], v[4])


@case("v_movrelsd_b32 v40, v4")
def _(v, s):
    put(v, s, 40 + s[M0], v[4 + s[M0]])


@case("v_perm_b32 v40, v4, v8, 0x5010702")
def _(v, s):
    octet = [v[8] >> np.uint32(8 * n) & np.uint32(255) for n in range(4)]
    octet += [v[4] >> np.uint32(8 * n) & np.uint32(255) for n in range(4)]
    put(v, s, 40, octet[2] | octet[7] << np.uint32(8) | octet[1] << np.uint32(16) | octet[5] << np.uint32(24))


# VOPD: both halves read before either writes


@case("v_dual_mov_b32 v40, v41 :: v_dual_add_nc_u32 v41, v4, v40")
def _(v, s):
    total, old = v[4] + v[40], v[41].copy()
    put(v, s, 41, total)
    put(v, s, 40, old)


@case("v_dual_cndmask_b32 v40, v4, v9 :: v_dual_lshlrev_b32 v41, 3, v8")
def _(v, s):
    put(v, s, 40, np.where(s[VCC] >> LANES.astype(np.uint32) & 1 == 1, v[9], v[4]))
    put(v, s, 41, v[8] << np.uint32(3))


# Packed


def packed(name: str, kind: str, function: Callable, sources: int = 2, chip: str = "") -> None:
    registers = (4, 8, 12)[:sources]
    names = ", ".join(f"v{n}" for n in registers)
    for lows, highs in (((0, 0, 0), (1, 1, 1)), ((1, 0, 1), (0, 1, 1)), ((0, 1, 1), (0, 1, 0))):
        for signs in (((0, 0, 0), (0, 0, 0)), ((1, 0, 1), (0, 1, 1))):
            if kind != "f" and any(signs[0]):
                continue
            text = f"{name} v40, {names}"
            for word, bits, usual in (
                ("op_sel", lows, 0),
                ("op_sel_hi", highs, 1),
                ("neg_lo", signs[0], 0),
                ("neg_hi", signs[1], 0),
            ):
                if any(bit != usual for bit in bits[:sources]):
                    text += f" {word}:[{','.join(map(str, bits[:sources]))}]"

            @case(text, chip)
            def _(v, s, lows=lows, highs=highs, signs=signs):
                results = []
                for chosen, negative in ((lows, signs[0]), (highs, signs[1])):
                    args = [halves(v[n], kind)[chosen[at]] for at, n in enumerate(registers)]
                    args = [-arg if negative[at] else arg for at, arg in enumerate(args)]
                    with np.errstate(all="ignore"):
                        results.append(function(*args))
                put(v, s, 40, joined(*results))


def fma16(a, b, c):
    return fma("f16")(a, b, c, Mode())


packed("v_pk_add_u16", "u", lambda a, b: a + b)
packed("v_pk_sub_i16", "i", lambda a, b: a - b)
packed("v_pk_mul_lo_u16", "u", lambda a, b: a * b)
packed("v_pk_mad_i16", "i", lambda a, b, c: a * b + c, 3)
packed("v_pk_max_i16", "i", np.maximum)
packed("v_pk_min_u16", "u", np.minimum)
packed("v_pk_lshlrev_b16", "u", lambda a, b: b << (a & 15))
packed("v_pk_lshrrev_b16", "u", lambda a, b: b >> (a & 15))
packed("v_pk_ashrrev_i16", "i", lambda a, b: b >> (a & 15))
packed("v_pk_add_f16", "f", lambda a, b: a + b)
packed("v_pk_mul_f16", "f", lambda a, b: a * b)
packed("v_pk_fma_f16", "f", fma16, 3)
for word, greater in (("min", False), ("max", True)):
    for name, chip in ((f"v_pk_{word}_f16", "gfx1100"), (f"v_pk_{word}_num_f16", "gfx1201")):
        generation = 11 if chip == "gfx1100" else 12
        packed(name, "f", functools.partial(extreme(greater), mode=Mode(), generation=generation), chip=chip)
    packed(
        f"v_pk_{word}imum_f16", "f", functools.partial(strict_extreme(greater), mode=Mode()), chip="gfx1201"
    )


@case("v_pk_fmac_f16 v40, v4, v8")
def _(v, s):
    with np.errstate(all="ignore"):
        columns = zip(*(halves(v[n], "f") for n in (4, 8, 40)), strict=True)
        put(v, s, 40, joined(*(fma16(*each) for each in columns)))


@case("v_pk_add_u16 v40, v4, v8 clamp")
def _(v, s):
    put(v, s, 40, joined(*(np.minimum(a.astype(int) + b, 65535).astype(np.uint16)
                           for a, b in zip(halves(v[4]), halves(v[8]), strict=True))))  # fmt: skip


@case("v_pk_sub_i16 v40, v4, v8 clamp")
def _(v, s):
    put(v, s, 40, joined(*(np.clip(a.astype(int) - b, -32768, 32767).astype(np.int16)
                           for a, b in zip(halves(v[4], "i"), halves(v[8], "i"), strict=True))))  # fmt: skip


@case("v_pk_add_u16 v40, v4, -3")
def _(v, s):
    """An integer constant has 32 bits."""
    low, high = halves(v[4])
    put(v, s, 40, joined(low - np.uint16(3), high - np.uint16(1)))


@case("v_pk_add_u16 v40, v4, -3 op_sel_hi:[1,0]")
def _(v, s):
    put(v, s, 40, joined(*(part - np.uint16(3) for part in halves(v[4]))))


@case("v_pk_mul_f16 v40, v4, 2.0 op_sel_hi:[1,0]")
def _(v, s):
    with np.errstate(all="ignore"):
        put(v, s, 40, joined(*(part * np.float16(2) for part in halves(v[4], "f"))))


@case("v_fma_mix_f32 v40, v4, -|v8|, v12 op_sel:[1,0,0] op_sel_hi:[1,1,0]")
def _(v, s):
    with np.errstate(all="ignore"):
        a, b = halves(v[4], "f")[1].astype(np.longdouble), -np.abs(halves(v[8], "f")[0].astype(np.longdouble))
        put(v, s, 40, (a * b + v[12].view(np.float32)).astype(np.float32).view(np.uint32))


@case("v_fma_mixhi_f16 v40, v4, v8, v12 op_sel_hi:[1,1,1]")
@case("v_fma_mixlo_f16 v40, v4, v8, v12 op_sel_hi:[1,1,1]")
def _(v, s, high=False):
    with np.errstate(all="ignore"):
        a, b, c = (halves(v[n], "f")[0].astype(np.longdouble) for n in (4, 8, 12))
        result = (a * b + c).astype(np.float32).astype(np.float16)
    old = halves(v[40])
    put(v, s, 40, joined(old[0], result) if high else joined(result, old[1]))


CASES["v_fma_mixhi_f16 v40, v4, v8, v12 op_sel_hi:[1,1,1]"] = functools.partial(
    CASES["v_fma_mixlo_f16 v40, v4, v8, v12 op_sel_hi:[1,1,1]"], high=True
)

# Dot products


def octets(word: np.ndarray, signed: int, bits: int = 8) -> np.ndarray:
    parts = np.array(
        [word >> np.uint32(bits * n) & np.uint32((1 << bits) - 1) for n in range(32 // bits)], np.int64
    )
    return np.where(parts >> (bits - 1) & 1, parts - (1 << bits), parts) if signed else parts


def dots(name: str, bits: int, a_signed: int, b_signed: int, clamp: bool) -> None:
    mixed = "_iu" in name
    signs = f" neg_lo:[{a_signed},{b_signed},0]" if mixed and (a_signed or b_signed) else ""

    @case(f"{name} v40, v4, v8, v12{signs}{' clamp' if clamp else ''}")
    def _(v, s):
        total = (octets(v[4], a_signed, bits) * octets(v[8], b_signed, bits)).sum(0)
        total = total + (v[12].view(np.int32) if mixed else v[12]).astype(np.int64)
        if clamp:
            total = np.clip(total, *((-(2**31), 2**31 - 1) if mixed else (0, 2**32 - 1)))
        put(v, s, 40, (total & 0xFFFFFFFF).astype(np.uint32))


for clamp in (False, True):
    for a_signed in (0, 1):
        for b_signed in (0, 1):
            dots("v_dot4_i32_iu8", 8, a_signed, b_signed, clamp)
            dots("v_dot8_i32_iu4", 4, a_signed, b_signed, clamp)
    dots("v_dot4_u32_u8", 8, 0, 0, clamp)
    dots("v_dot8_u32_u4", 4, 0, 0, clamp)


def dot2(kind: str) -> None:
    @case(f"v_dot2_f32_{kind} v40, v4, v8, v12")
    def _(v, s):
        with np.errstate(all="ignore"):
            total = v[12].view(np.float32)
            for n in (0, 1):
                if kind == "f16":
                    a, b = (halves(v[r], "f")[n].astype(np.longdouble) for r in (4, 8))
                else:
                    words = (halves(v[r])[n].astype(np.uint32) << np.uint32(16) for r in (4, 8))
                    a, b = (word.view(np.float32).astype(np.longdouble) for word in words)
                total = (a * b + total).astype(np.float32)
            put(v, s, 40, total.view(np.uint32))


dot2("f16")
dot2("bf16")


def state(rng: np.random.Generator, text: str) -> State:
    v = rng.integers(0, 1 << 32, (96, 32), dtype=np.uint32)
    s = rng.integers(0, 1 << 32, 128, dtype=np.uint32)
    s[M0] = rng.integers(0, 30)
    if rng.random() < 0.25:
        s[EXEC] = 0xFFFFFFFF
    if "f16" in text or "mix" in text:
        for n in (4, 8, 12):
            v[n] = joined(*(values(rng, "f16").astype(np.uint16) for _ in (0, 1)))
    if "v_dot2" in text or "v12 op_sel:[1,0,0] op_sel_hi:[1,1,0]" in text:
        v[12] = rng.normal(0, 4, 32).astype(np.float32).view(np.uint32)
    if "clamp" in text:
        v[12] = np.where(rng.random(32) < 0.5, rng.choice([0x7FFFFFF0, 0x80000010, 0xFFFFFFF0], 32), v[12])
    if "v_fmac" in text:
        for n in (4, 8, 40):
            v[n] = (v[n] % 64).astype(np.float32).view(np.uint32)
    return v, s


def same(text: str, got: np.ndarray, wanted: np.ndarray) -> bool:
    """NaNs are alike."""
    if "mixlo" in text or "mixhi" in text or ("v_pk" in text and "f16" in text):
        pairs = zip(halves(got, "f"), halves(wanted, "f"), strict=True)
        return all(
            np.all((a.view(np.uint16) == b.view(np.uint16)) | (np.isnan(a) & np.isnan(b))) for a, b in pairs
        )
    if "f32" in text:
        a, b = got.view(np.float32), wanted.view(np.float32)
        return bool(np.all((got == wanted) | (np.isnan(a) & np.isnan(b))))
    return np.array_equal(got, wanted)


def check(chip: str, texts: list[str], rounds: int) -> None:
    instructions = decode(chip, texts)
    bench = Bench(chip, [([i], Mode()) for i in instructions])
    wrong = []
    for number, text in enumerate(texts):
        rng = np.random.default_rng(number)
        for _ in range(rounds):
            v, s = state(rng, text)
            wanted = v.copy(), s.copy()
            CASES[text](*wanted)
            bench.run(number, v, s)
            bad = [n for n in range(96) if not same(text, v[n], wanted[0][n])]
            if bad or not np.array_equal(s, wanted[1]):
                lanes = [(n, int(lane), hex(v[n, lane]), hex(wanted[0][n, lane])) for n in bad
                         for lane in LANES[v[n] != wanted[0][n]][:2]]  # fmt: skip
                scalars = [(n, hex(s[n]), hex(wanted[1][n])) for n in range(128) if s[n] != wanted[1][n]]
                wrong.append(f"{text}: {lanes} {scalars}")
                break
    assert not wrong, f"{len(wrong)} of {len(texts)}:\n" + "\n".join(wrong)


def chosen(chip: str) -> list[str]:
    return [text for text in CASES if ONLY.get(text, chip) == chip]


@pytest.mark.slow
@pytest.mark.parametrize("chip", CHIPS)
def test_across_lanes_and_halves(chip: str) -> None:
    """Half of what both chips have, a third of the packed ones, and all that the chip alone has."""
    packed = [text for text in chosen(chip) if text.startswith("v_pk")]
    both = [text for text in chosen(chip) if text not in ONLY and text not in packed]
    own = [text for text in chosen(chip) if text in ONLY and text not in packed]
    check(chip, own + both[CHIPS.index(chip) :: 2] + packed[CHIPS.index(chip) :: 3], 2)


@pytest.mark.slow
@pytest.mark.parametrize("chip", CHIPS)
def test_across_lanes_and_halves_at_length(chip: str) -> None:
    check(chip, chosen(chip), 12)


def test_dot_products_without_the_hosts_instruction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dot, "has_dot_products", lambda: False)
    check("gfx1100", [text for text in CASES if text.startswith(("v_dot4", "v_dot8"))][::3], 2)
