"""8-bit floats of gfx12: all codes, all places that op_sel names, and the dot products."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from emulator.amdgpu.isa.decode import decoder
from emulator.amdgpu.isa.emit import Mode, Refused
from emulator.amdgpu.isa.operands import EXEC
from tests.unit.amdgpu_lanes import VGPRS, Bench, decode
from tests.unit.amdgpu_semantics_integer import eighths, to_eighth

CHIP = "gfx1201"
KINDS = ("fp8", "bf8")


def loaded(lines: list[str], mode: Mode | None = None) -> Callable[[np.ndarray], np.ndarray]:
    """Changes registers as some instructions do, all lanes active."""
    bench = Bench(CHIP, [(decode(CHIP, lines), mode or Mode())])

    def run(vgprs: np.ndarray) -> np.ndarray:
        sgprs = np.zeros(128, np.uint32)
        sgprs[EXEC] = 0xFFFFFFFF
        bench.run(0, vgprs, sgprs)
        return vgprs

    return run


def fresh(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1 << 32, (VGPRS, 32), dtype=np.uint32)


def same(got: np.ndarray, wanted: np.ndarray) -> bool:
    with np.errstate(invalid="ignore"):  # of signalling NaNs
        return np.array_equal(got.astype(np.float64), wanted, equal_nan=True)


@pytest.mark.parametrize("kind", KINDS)
def test_every_code_from_every_byte(kind: str) -> None:
    values = eighths(kind)
    lines = [f"v_cvt_f32_{kind} v40, v4"]
    lines += [f"v_cvt_f32_{kind} v{40 + n}, v4 byte_sel:{n}" for n in (1, 2, 3)]
    lines += [f"v_cvt_pk_f32_{kind} v[44:45], v4", f"v_cvt_pk_f32_{kind} v[46:47], v4 op_sel:[1,0]"]
    bench = loaded(lines)
    for start in range(0, 64, 32):
        vgprs = fresh(start)
        codes = (start + 64 * np.arange(4)[:, None] + np.arange(32)) % 256
        vgprs[4] = sum(codes[n].astype(np.uint32) << np.uint32(8 * n) for n in range(4))
        got = bench(vgprs)
        for n in range(4):
            assert same(got[40 + n].view(np.float32), values[codes[n]])
            assert same(got[44 + n].view(np.float32), values[codes[n]])


@pytest.mark.parametrize("kind", KINDS)
def test_the_high_half_of_a_register_by_its_number(kind: str) -> None:
    """v_cvt_pk_f32_fp8 in 32 bits: VGPR 128 + 4 is the upper half of v4."""
    vgprs = fresh(1)
    word = 0x7E000000 | 40 << 17 | (0x6E + KINDS.index(kind)) << 9 | 256 + 128 + 4
    instruction = decoder(CHIP).decode(word.to_bytes(20, "little"), 0)
    sgprs = np.zeros(128, np.uint32)
    sgprs[EXEC] = 0xFFFFFFFF
    source = vgprs[4].copy()
    Bench(CHIP, [([instruction], Mode())]).run(0, vgprs, sgprs)
    for n in (0, 1):
        code = source >> np.uint32(16 + 8 * n) & np.uint32(255)
        assert same(vgprs[40 + n].view(np.float32), eighths(kind)[code])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("overflow", [False, True])
def test_rounding_and_saturation(kind: str, overflow: bool) -> None:
    values = eighths(kind)
    numbers = values[np.isfinite(values)]
    middles = (numbers[:-1] + numbers[1:]) / 2
    largest = numbers.max()
    edges = np.array([largest * 1.0625, largest * 1.07, largest * 1.125, largest * 1.2, 1e30, np.inf, np.nan])
    both = np.concatenate([numbers, middles, edges, -edges]).astype(np.float32)
    bench = loaded([f"v_cvt_pk_{kind}_f32 v40, v4, v5 op_sel:[0,0,1]"], Mode(fp16_ovfl=overflow))
    for start in range(0, len(both), 32):
        part = np.resize(both[start : start + 32], 32)
        vgprs = fresh(start)
        vgprs[4], vgprs[5] = part.view(np.uint32), part[::-1].view(np.uint32)
        old = vgprs[40].copy()
        got = bench(vgprs)[40]
        code = 0x7E if kind == "fp8" else 0x7B
        wanted = np.array([to_eighth(kind, float(x)) for x in part])
        if overflow:
            beyond = ~np.isnan(part) & ((wanted & 127) > code)
            wanted = np.where(beyond, wanted & 128 | code, wanted)
        assert np.array_equal(got >> 16 & 255, wanted)
        assert np.array_equal(got >> 24, wanted[::-1])
        assert np.array_equal(got & 0xFFFF, old & 0xFFFF)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_stochastic_rounding(kind: str) -> None:
    """With seed 0 towards zero, with the largest one away from it; the byte that op_sel names is written."""
    values = eighths(kind)[:120]
    rng = np.random.default_rng(2)
    at = rng.integers(0, 110, 32)
    between = (values[at] + rng.uniform(0.1, 0.9, 32) * (values[at + 1] - values[at])).astype(np.float32)
    for number in range(4):
        bench = loaded([f"v_cvt_sr_{kind}_f32 v40, -v4, v5 byte_sel:{number}"])
        for seed, wanted in ((0, at), (0xFFFFFFFF, at + 1)):
            vgprs = fresh(number)
            vgprs[4], vgprs[5] = between.view(np.uint32), seed
            old = vgprs[40].copy()
            got = bench(vgprs)[40]
            mask = np.uint32(0xFF << 8 * number)
            assert np.array_equal(got >> np.uint32(8 * number) & 255, wanted | 128)
            assert np.array_equal(got & ~mask, old & ~mask)


def test_stochastic_rounding_is_as_likely_as_it_is_near() -> None:
    """A value 3/8 of the way goes up for 3/8 of the seeds, of normal and denormal results."""
    bench = loaded(["v_cvt_sr_fp8_f32 v40, v4, v5"])
    for value in (1 + 3 / 8 / 8, 2.0**-9 * (2 + 3 / 8)):
        vgprs = fresh(0)
        vgprs[4], vgprs[5] = np.float32(value).view(np.uint32), np.arange(32, dtype=np.uint32) << 27
        got = bench(vgprs)[40] & 255
        assert np.count_nonzero(got == got.max()) == 12
        assert got.max() - got.min() == 1


@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("second", KINDS)
def test_dot_products(first: str, second: str) -> None:
    rng = np.random.default_rng(4)
    vgprs = fresh(4)
    codes = [rng.integers(0, 0x60, (4, 32)) | rng.integers(0, 2, (4, 32)) << 7 for _ in "ab"]
    for register, each in zip((4, 8), codes, strict=True):
        vgprs[register] = sum(each[n].astype(np.uint32) << np.uint32(8 * n) for n in range(4))
    total = rng.normal(0, 4, 32).astype(np.float32)
    vgprs[12] = total.view(np.uint32)
    total = -np.abs(total)
    text = f"v_dot4_f32_{first}_{second} v40, v4, v8, v12 neg_lo:[0,0,1] neg_hi:[0,0,1]"
    got = loaded([text])(vgprs)[40]
    for n in range(4):
        exact = eighths(first)[codes[0][n]].astype(np.longdouble) * eighths(second)[codes[1][n]]
        total = (exact + total).astype(np.float32)
    assert np.array_equal(got.view(np.float32), total)


def test_f16_is_refused_where_overflow_would_clamp() -> None:
    with pytest.raises(Refused, match="FP16_OVFL"):
        loaded(["v_add_f16 v40, v4, v5"], Mode(fp16_ovfl=True))
