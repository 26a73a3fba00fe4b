"""WMMA against numpy, through the register layouts of both generations."""

from __future__ import annotations

import numpy as np
import pytest

from emulator.amdgpu.isa.emit import Mode
from emulator.amdgpu.isa.operands import EXEC
from emulator.amdgpu.isa.vector import dot
from tests.unit.amdgpu_lanes import GENERATION, Bench, decode

CHIPS = ("gfx1100", "gfx1201")
A, B, C, D = 8, 32, 48, 64
"""First registers."""
Words = np.ndarray


def place(matrix: np.ndarray, bits: int, generation: int) -> Words:
    """Rows of A, or columns of B, in registers: `matrix` is 16 x K, unsigned elements of `bits`."""
    per = 32 // bits
    halves = 1 if generation == 11 else 2
    count = matrix.shape[1] // per // halves
    words = np.zeros((count, 32), np.uint32)
    for lane in range(32):
        start = matrix.shape[1] // halves * (lane // 16) if halves == 2 else 0
        for n in range(count * per):
            element = int(matrix[lane % 16, start + n])
            words[n // per, lane] |= np.uint32(element << bits * (n % per))
    return words


def row_of(register: int, lane: int, generation: int) -> int:
    return 2 * register + lane // 16 if generation == 11 else register + 8 * (lane // 16)


def place_sums(matrix: np.ndarray, generation: int) -> Words:
    """A 16 x 16 matrix of 32-bit words as C."""
    words = [[matrix[row_of(r, lane, generation), lane % 16] for lane in range(32)] for r in range(8)]
    return np.array(words, np.uint32)


def place_half_sums(matrix: np.ndarray, generation: int, old: Words, high: bool) -> Words:
    """The same of 16-bit words; `old` are the registers that they go to."""
    words = place_sums(matrix.astype(np.uint32), generation)
    if generation == 12:
        return words[0::2] | words[1::2] << np.uint32(16)
    return words << np.uint32(16) | old & 0xFFFF if high else words | old & np.uint32(0xFFFF0000)


def run(chip: str, text: str, a: Words, b: Words, c: Words, executing: int) -> np.ndarray:
    rng = np.random.default_rng(1)
    vgprs = rng.integers(0, 1 << 32, (96, 32), dtype=np.uint32)
    sgprs = np.zeros(128, np.uint32)
    sgprs[EXEC] = executing
    for start, words in ((A, a), (B, b), (C, c)):
        vgprs[start : start + len(words)] = words
    before = vgprs.copy()
    Bench(chip, [(decode(chip, [text]), Mode())]).run(0, vgprs, sgprs)
    changed = [n for n in range(96) if not np.array_equal(vgprs[n], before[n])]
    assert set(changed) <= set(range(D, D + len(c)))
    return vgprs[D : D + len(c)]


def names(words_a: int, words_c: int) -> str:
    def span(first: int, count: int) -> str:
        return f"v[{first}:{first + count - 1}]" if count > 1 else f"v{first}"

    return f"{span(D, words_c)}, {span(A, words_a)}, {span(B, words_a)}, {span(C, words_c)}"


def signed(values: np.ndarray, bits: int, yes: int) -> np.ndarray:
    values = values.astype(np.int64)
    return np.where(values >> (bits - 1) & 1, values - (1 << bits), values) if yes else values


@pytest.mark.slow
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("host", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_integers(chip: str, bits: int, host: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Signs and clamp; by the host's dot products every second form, the other half on the other chip."""
    forms = ((1, 1, 0), (0, 1, 0), (1, 0, 1), (0, 0, 0), (1, 1, 1))
    if host:
        forms = forms[(CHIPS.index(chip) + bits // 8) % 2 :: 2]
    else:
        monkeypatch.setattr("emulator.amdgpu.isa.matrix.has_dot_products", lambda: False)
        monkeypatch.setattr(dot, "has_dot_products", lambda: False)
    rng = np.random.default_rng(bits)
    generation = GENERATION[chip]
    for a_signed, b_signed, clamp in forms:
        a, b = (rng.integers(0, 1 << bits, (16, 16)) for _ in "ab")
        c = rng.choice([0, 5, -7, 0x7FFFFFF0, -0x7FFFFFF0], (16, 16)).astype(np.int64)
        signs = f" neg_lo:[{a_signed},{b_signed},0]" if a_signed or b_signed else ""
        held = place(a, bits, generation)
        text = f"v_wmma_i32_16x16x16_iu{bits} {names(len(held), 8)}{signs}{' clamp' if clamp else ''}"
        wanted = signed(a, bits, a_signed) @ signed(b, bits, b_signed).T + c
        if clamp:
            wanted = np.clip(wanted, -(2**31), 2**31 - 1)
        got = run(chip, text, held, place(b, bits, generation),
                  place_sums(c & 0xFFFFFFFF, generation), 0xFFFF00FF)  # fmt: skip
        assert np.array_equal(got, place_sums(wanted & 0xFFFFFFFF, generation)), text


def test_wide_nibbles() -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.integers(0, 16, (16, 32)) for _ in "ab")
    held = place(a, 4, 12)
    text = f"v_wmma_i32_16x16x32_iu4 {names(len(held), 8)} neg_lo:[1,0,0]"
    zero = np.zeros((8, 32), np.uint32)
    got = run("gfx1201", text, held, place(b, 4, 12), zero, 0xFFFFFFFF)
    assert np.array_equal(got, place_sums((signed(a, 4, 1) @ b.T) & 0xFFFFFFFF, 12))


def halves(rng: np.random.Generator, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """16-bit patterns, and the numbers that they stand for."""
    numbers = rng.normal(0, 2, (16, 16)).astype(np.float32)
    if kind == "f16":
        bits = numbers.astype(np.float16).view(np.uint16)
        return bits, bits.view(np.float16).astype(np.float32)
    bits = (numbers.view(np.uint32) >> 16).astype(np.uint16)
    return bits, (bits.astype(np.uint32) << 16).view(np.float32)


def product(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """C + A B, sums rounded to f32 in order of k; products are exact."""
    total = c.astype(np.float32)
    for k in range(16):
        exact = a[:, k, None].astype(np.float64) * b[None, :, k].astype(np.float64)
        total = (exact.astype(np.longdouble) + total).astype(np.float32)
    return total


def to_bf16(values: np.ndarray) -> np.ndarray:
    bits = values.view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("chip", "kind"),
    [
        ("gfx1100", "f16"),
        ("gfx1201", "f16"),
        ("gfx1201", "bf16"),
        pytest.param("gfx1100", "bf16", marks=pytest.mark.slow),
    ],
)
def test_floats(chip: str, kind: str) -> None:
    rng = np.random.default_rng(7)
    generation = GENERATION[chip]
    (a_bits, a), (b_bits, b) = halves(rng, kind), halves(rng, kind)
    c = rng.normal(0, 3, (16, 16)).astype(np.float32)
    held, other = place(a_bits, 16, generation), place(b_bits, 16, generation)
    text = f"v_wmma_f32_16x16x16_{kind} {names(len(held), 8)}"
    got = run(chip, text, held, other, place_sums(c.view(np.uint32), generation), 0xFFFFFFFF)
    assert np.array_equal(got, place_sums(product(a, b, c).view(np.uint32), generation))

    if kind == "f16":
        negated = f"{text} neg_lo:[1,0,0] neg_hi:[1,0,0]"
        got = run(chip, negated, held, other, place_sums(c.view(np.uint32), generation), 0xFFFFFFFF)
        assert np.array_equal(got, place_sums(product(-a, b, c).view(np.uint32), generation))

    c_bits, c = halves(rng, kind)
    result = product(a, b, c)
    wanted = result.astype(np.float16).view(np.uint16) if kind == "f16" else to_bf16(result)
    for high in (False, True) if generation == 11 else (False,):
        count = 8 if generation == 11 else 4
        old = np.random.default_rng(1).integers(0, 1 << 32, (96, 32), dtype=np.uint32)[D : D + count]
        text = f"v_wmma_{kind}_16x16x16_{kind} {names(len(held), count)}{' op_sel:[0,0,1]' if high else ''}"
        words = place_half_sums(c_bits, generation, np.zeros_like(old), high)
        got = run(chip, text, held, other, words, 0xFFFFFFFF)
        assert np.array_equal(got, place_half_sums(wanted, generation, old, high)), text
