"""SWMMAC against numpy, and WMMA of 8-bit floats, through RDNA4's register layouts."""

from __future__ import annotations

import numpy as np
import pytest

from emulator.amdgpu.isa.emit import Mode
from emulator.amdgpu.isa.operands import EXEC
from tests.unit.amdgpu_lanes import Bench, decode
from tests.unit.amdgpu_semantics_integer import eighths
from tests.unit.test_amdgpu_matrix import (
    A,
    B,
    C,
    D,
    halves,
    names,
    place,
    place_half_sums,
    place_sums,
    run,
    signed,
    to_bf16,
)

CHIP = "gfx1201"
Words = np.ndarray


def indices(rng: np.random.Generator, stored: int) -> np.ndarray:
    """Two different places of every four, in order, for 16 rows of `stored` elements."""
    pairs = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    chosen = rng.integers(0, 6, (16, stored // 2))
    return np.array([[place for number in row for place in pairs[number]] for row in chosen])


def spread(a: np.ndarray, where: np.ndarray) -> np.ndarray:
    """A with its zeros: 16 x 2 stored."""
    result = np.zeros((16, 2 * a.shape[1]), a.dtype)
    for row in range(16):
        for at in range(a.shape[1]):
            result[row, at // 2 * 4 + where[row, at]] = a[row, at]
    return result


def place_index(where: np.ndarray, key: int) -> Words:
    """A lane's index: two bits for each of the elements that it holds; 16 of them fill a register."""
    half = where.shape[1] // 2
    words = np.full((1, 32), 0xDEAD0000 if key == 0 and half == 8 else 0, np.uint32)
    for lane in range(32):
        bits = sum(
            int(where[lane % 16, half * (lane // 16) + at]) << 2 * at for at in range(half)
        )  # of its row
        if half == 8:
            words[0, lane] = bits << 16 | 0x1234 if key else words[0, lane] | bits
        else:
            words[0, lane] = bits
    return words


def sparse(name: str, a: Words, b: Words, c: Words, index: Words, modifiers: str = "") -> np.ndarray:
    """D of D += A B: C is placed where D is."""

    def span(first: int, count: int) -> str:
        return f"v[{first}:{first + count - 1}]" if count > 1 else f"v{first}"

    text = f"v_swmmac_{name} {span(C, len(c))}, {span(A, len(a))}, {span(B, len(b))}, v{D}{modifiers}"
    vgprs = np.random.default_rng(1).integers(0, 1 << 32, (96, 32), dtype=np.uint32)
    sgprs = np.zeros(128, np.uint32)
    sgprs[EXEC] = 0xFFFF00FF
    for start, words in ((A, a), (B, b), (C, c), (D, index)):
        vgprs[start : start + len(words)] = words
    before = vgprs.copy()
    Bench(CHIP, [(decode(CHIP, [text]), Mode())]).run(0, vgprs, sgprs)
    assert {n for n in range(96) if not np.array_equal(vgprs[n], before[n])} <= set(range(C, C + len(c)))
    return vgprs[C : C + len(c)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "bits", "stored", "key"),
    [
        ("16x16x32_iu8", 8, 16, 1),
        ("16x16x32_iu8", 8, 16, 0),
        ("16x16x32_iu4", 4, 16, 1),
        ("16x16x64_iu4", 4, 32, 0),
    ],
)
@pytest.mark.parametrize("clamp", [False, True])
def test_integers(shape: str, bits: int, stored: int, key: int, clamp: bool) -> None:
    rng = np.random.default_rng((bits, stored, key))
    a, b = rng.integers(0, 1 << bits, (16, stored)), rng.integers(0, 1 << bits, (16, 2 * stored))
    where = indices(rng, stored)
    c = rng.choice([0, 9, -7, 0x7FFFFFF0, -0x7FFFFFF0], (16, 16)).astype(np.int64)
    a_signed, b_signed = (1, 0) if clamp else (0, 1)
    wanted = spread(signed(a, bits, a_signed), where) @ signed(b, bits, b_signed).T + c
    if clamp:
        wanted = np.clip(wanted, -(2**31), 2**31 - 1)
    modifiers = (" index_key:1" if key else "") + f" neg_lo:[{a_signed},{b_signed},0]" + " clamp" * clamp
    got = sparse(
        f"i32_{shape}", place(a, bits, 12), place(b, bits, 12), place_sums(c & 0xFFFFFFFF, 12),
        place_index(where, key), modifiers,
    )  # fmt: skip
    assert np.array_equal(got, place_sums(wanted & 0xFFFFFFFF, 12))


def product(a: np.ndarray, b: np.ndarray, c: np.ndarray, where: np.ndarray | None) -> np.ndarray:
    """C + A B in order of A's elements, sums rounded to f32; products are exact."""
    total = c.astype(np.float32)
    rows = np.arange(16)[:, None]
    for at in range(a.shape[1]):
        places = np.full(16, at) if where is None else at // 2 * 4 + where[:, at]
        other = b[np.arange(16)[None], places[:, None]]
        exact = a[rows, at].astype(np.longdouble) * other
        total = (exact + total).astype(np.float32)
    return total


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("f16", 1),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in (("f16", 0), ("bf16", 0), ("bf16", 1))),
    ],
)
def test_halves(kind: str, key: int) -> None:
    rng = np.random.default_rng(9)
    a_bits, a = halves(rng, kind)
    parts = [halves(rng, kind) for _ in (0, 1)]
    b_bits, b = (np.concatenate([part[n] for part in parts], 1) for n in (0, 1))
    where, c = indices(rng, 16), rng.normal(0, 3, (16, 16)).astype(np.float32)
    modifiers = (" index_key:1" if key else "") + " neg_lo:[0,1,0] neg_hi:[0,1,0]" * key
    b = -b if key else b
    held, other, index = place(a_bits, 16, 12), place(b_bits, 16, 12), place_index(where, key)
    got = sparse(f"f32_16x16x32_{kind}", held, other, place_sums(c.view(np.uint32), 12), index, modifiers)
    assert np.array_equal(got, place_sums(product(a, b, c, where).view(np.uint32), 12))

    c_bits, c = halves(rng, kind)
    result = product(a, b, c, where)
    wanted = result.astype(np.float16).view(np.uint16) if kind == "f16" else to_bf16(result)
    words = place_half_sums(c_bits, 12, np.zeros((4, 32), np.uint32), False)
    got = sparse(f"{kind}_16x16x32_{kind}", held, other, words, index, modifiers)
    assert np.array_equal(got, place_half_sums(wanted, 12, np.zeros((4, 32), np.uint32), False))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("fp8", "bf8"),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in (("fp8", "fp8"), ("bf8", "fp8"), ("bf8", "bf8"))
        ),
    ],
)
def test_eighths(first: str, second: str) -> None:
    """Dense and sparse."""
    rng = np.random.default_rng(11)
    a, b = (rng.integers(0, 0x58, (16, n)) | rng.integers(0, 2, (16, n)) << 7 for n in (16, 32))
    where, c = indices(rng, 16), rng.normal(0, 3, (16, 16)).astype(np.float32)
    left, right = eighths(first)[a], eighths(second)[b]
    held, sums = place(a, 8, 12), place_sums(c.view(np.uint32), 12)
    got = sparse(f"f32_16x16x32_{first}_{second}", held, place(b, 8, 12), sums, place_index(where, 0))
    assert np.array_equal(got, place_sums(product(left, right, c, where).view(np.uint32), 12))

    text = f"v_wmma_f32_16x16x16_{first}_{second} {names(2, 8)}"
    got = run(CHIP, text, held, place(b[:, :16], 8, 12), sums, 0xFFFFFFFF)
    assert np.array_equal(got, place_sums(product(left, right[:, :16], c, None).view(np.uint32), 12))
