"""Data by which a fault of a memory, a bus or a link shows itself, after the usual tests of memories.

Counting numbers show what has gone to a wrong place, walking bits a line that is stuck or shorted, all ones
and all zeros the load that data lines switch together, and random numbers the rest.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

WALK = 64
"""Numbers after which the walking bits begin again: a one through zeros, then a zero through ones."""

Numbers = NDArray[np.uint32]


def _counting(count: int, seed: int) -> Numbers:
    return np.arange(seed, seed + count, dtype=np.uint64).astype(np.uint32)


def _random(count: int, seed: int) -> Numbers:
    return np.random.default_rng(seed).integers(0, 1 << 32, count, np.uint32)


def _walking(count: int, seed: int) -> Numbers:
    bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
    return np.roll(np.resize(np.concatenate([bits, ~bits]), count), seed % WALK)


def _ones(count: int, seed: int) -> Numbers:
    return np.full(count, 0xFFFF_FFFF, np.uint32)


def _zeros(count: int, seed: int) -> Numbers:
    return np.zeros(count, np.uint32)


PATTERNS: dict[str, Callable[[int, int], Numbers]] = {
    "counting": _counting,
    "random": _random,
    "walking": _walking,
    "ones": _ones,
    "zeros": _zeros,
}
"""By name: numbers of 32 bits, as many as asked for; a seed gives another piece of the same kind."""


def made(name: str, size: int, seed: int) -> bytes:
    """Bytes of a pattern.

    Args:
        name: of PATTERNS.
        size: in bytes, a multiple of 4.
        seed: the same gives the same bytes.
    """
    return PATTERNS[name](size // 4, seed).astype("<u4").tobytes()
