"""Every vector instruction against its semantics in numpy, on both chips: edge values, partial EXEC,
modifiers, scalar and constant sources, rounding and denormal modes.
"""

from __future__ import annotations

import numpy as np
import pytest

from emulator.amdgpu.isa.emit import Mode
from emulator.amdgpu.isa.operands import EXEC, VCC
from tests.amount import amount
from tests.unit.amdgpu_lanes import (
    GENERATION,
    MODES,
    TABLE,
    TARGET,
    Bench,
    Case,
    available,
    case,
    decode,
    values,
)

CHIPS = ("gfx1100", "gfx1201")


def check(chip: str, cases: list[Case], rounds: int, seed: int) -> None:
    """Run them all, and compare all registers."""
    instructions = decode(chip, [each.text for each in cases])
    bench = Bench(chip, [([i], each.mode) for i, each in zip(instructions, cases, strict=True)])
    wrong = []
    for number, each in enumerate(cases):
        rng = np.random.default_rng((seed, number))
        for _ in range(rounds):
            vgprs, sgprs = each.initial(rng)
            before = vgprs.copy(), sgprs.copy()
            wanted = each.expected(vgprs, sgprs, GENERATION[chip])
            bench.run(number, vgprs, sgprs)
            others = np.delete(vgprs, (TARGET, TARGET + 1), 0), np.delete(wanted[0], (TARGET, TARGET + 1), 0)
            fits = np.array_equal(*others) and np.array_equal(sgprs, wanted[1])
            if not (fits and each.same(vgprs[TARGET : TARGET + 2], wanted[0][TARGET : TARGET + 2])):
                wrong.append(describe(each, before, (vgprs, sgprs), wanted))
                break
    assert not wrong, f"{len(wrong)} of {len(cases)}:\n" + "\n".join(wrong[:40])


def describe(each: Case, before, got, wanted) -> str:
    """The first lane that differs."""
    sources = [source.read(*before) if source.kind != "acc" else before[0][TARGET] for source in each.sources]
    for lane in range(32):
        if any((got[0][TARGET + n, lane] != wanted[0][TARGET + n, lane]) for n in (0, 1)):
            values = ", ".join(str(source[lane]) for source in sources)
            words = [
                f"{state[0][TARGET + 1, lane]:08x}{state[0][TARGET, lane]:08x}" for state in (got, wanted)
            ]
            return f"{each.text} ({each.mode}) lane {lane}: {values} -> {words[0]}, not {words[1]}"
    scalars = [(n, hex(got[1][n]), hex(wanted[1][n])) for n in range(128) if got[1][n] != wanted[1][n]]
    return f"{each.text} ({each.mode}): scalars {scalars}"


@pytest.mark.slow
@pytest.mark.parametrize("chip", CHIPS)
def test_every_instruction(chip: str) -> None:
    """What both chips have, on them in turns; of the many comparisons every second one."""
    rng = np.random.default_rng(5)
    both = sorted(set(available(CHIPS[0])) & set(available(CHIPS[1])))
    names = sorted(set(available(chip)) - set(both))
    for compares in (False, True):
        part = [name for name in both if name.startswith("v_cmp") == compares]
        names += part[CHIPS.index(chip) :: 4 if compares else 2]
    check(chip, [case(rng, name, TABLE[name], True, (Mode(),)) for name in names], 1, 11)


@pytest.mark.slow
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("seed", range(amount(3, 8)))
def test_every_instruction_with_modifiers(chip: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    check(chip, [case(rng, name, TABLE[name], False, MODES) for name in available(chip)], 4, seed)


DIVISION = {
    "f32": """
        v_div_scale_f32 v20, null, v8, v8, v4
        v_rcp_f32 v21, v20
        v_div_scale_f32 v22, vcc_lo, v4, v8, v4
        v_fma_f32 v23, -v20, v21, 1.0
        v_fmac_f32 v21, v23, v21
        v_mul_f32 v24, v22, v21
        v_fma_f32 v25, -v20, v24, v22
        v_fmac_f32 v24, v25, v21
        v_fma_f32 v25, -v20, v24, v22
        v_div_fmas_f32 v25, v25, v21, v24
        v_div_fixup_f32 v40, v25, v8, v4""",
    "f64": """
        v_div_scale_f64 v[20:21], null, v[8:9], v[8:9], v[4:5]
        v_rcp_f64 v[22:23], v[20:21]
        v_fma_f64 v[24:25], -v[20:21], v[22:23], 1.0
        v_fma_f64 v[22:23], v[22:23], v[24:25], v[22:23]
        v_fma_f64 v[24:25], -v[20:21], v[22:23], 1.0
        v_fma_f64 v[22:23], v[22:23], v[24:25], v[22:23]
        v_div_scale_f64 v[24:25], vcc_lo, v[4:5], v[8:9], v[4:5]
        v_mul_f64 v[26:27], v[24:25], v[22:23]
        v_fma_f64 v[20:21], -v[20:21], v[26:27], v[24:25]
        v_div_fmas_f64 v[20:21], v[20:21], v[22:23], v[26:27]
        v_div_fixup_f64 v[40:41], v[20:21], v[8:9], v[4:5]""",
}
"""The sequences that LLVM makes of a division."""


@pytest.mark.slow
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_division_is_correctly_rounded(chip: str, kind: str) -> None:
    lines = [line.strip() for line in DIVISION[kind].strip().splitlines()]
    bench = Bench(chip, [(decode(chip, lines), Mode())])
    rng = np.random.default_rng(3)
    width = int(kind[1:])
    for _ in range(20):
        vgprs, sgprs = np.zeros((96, 32), np.uint32), np.zeros(128, np.uint32)
        sgprs[EXEC] = 0xFFFFFFFF
        operands = []
        for register in (4, 8):
            whole = values(rng, kind)
            vgprs[register], vgprs[register + 1] = whole & np.uint64(0xFFFFFFFF), whole >> np.uint64(32)
            operands.append(whole.astype(f"uint{width}").view(f"float{width}"))
        bench.run(0, vgprs, sgprs)
        got = vgprs[40].astype(np.uint64) | vgprs[41].astype(np.uint64) << np.uint64(32)
        got = got.astype(f"uint{width}").view(f"float{width}")
        with np.errstate(all="ignore"):
            wanted = operands[0] / operands[1]
        same = (got == wanted) & (np.signbit(got) == np.signbit(wanted)) | np.isnan(got) & np.isnan(wanted)
        assert same.all(), [
            (a, b, g, w) for a, b, g, w, s in zip(*operands, got, wanted, same, strict=True) if not s
        ]


def test_scalar_transcendentals() -> None:
    lines = ["v_s_exp_f32 s4, s8", "v_s_sqrt_f32 s5, -s8", "v_s_rcp_f16 s6, s9", "v_s_log_f32 s7, |s8| clamp"]
    bench = Bench("gfx1201", [(decode("gfx1201", lines), Mode())])
    sgprs = np.zeros(128, np.uint32)
    sgprs[8], sgprs[9] = np.float32(-2).view(np.uint32), np.float16(4).view(np.uint16)
    bench.run(0, np.zeros((96, 32), np.uint32), sgprs)
    assert list(sgprs[4:6].view(np.float32)) == [0.25, np.sqrt(np.float32(2))]
    assert (sgprs[6], sgprs[7].view(np.float32)) == (0x3400, 1.0)


@pytest.mark.parametrize("chip", CHIPS)
def test_vcc_of_division_scaling(chip: str) -> None:
    """Pairs whose flag is known from hardware: the smallest normal number / 1, and 1 / a flushed denormal."""
    text = ["v_div_scale_f32 v40, vcc_lo, v4, v8, v4"]
    instructions = decode(chip, text)
    bench = Bench(chip, [(instructions, Mode()), (instructions, Mode(denorm=0))])
    for number, (top, bottom, wanted) in enumerate(
        [(0x00800000, 0x3F800000, 1), (0x3F800000, 0x00000001, 1), (0x3F800000, 0x40000000, 0)]
    ):
        vgprs, sgprs = np.zeros((96, 32), np.uint32), np.zeros(128, np.uint32)
        vgprs[4], vgprs[8], sgprs[EXEC] = top, bottom, 0xFFFFFFFF
        bench.run(number % 2, vgprs, sgprs)
        assert sgprs[VCC] == wanted * 0xFFFFFFFF
