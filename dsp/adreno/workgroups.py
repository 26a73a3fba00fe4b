"""How work-items are grouped: shapes that suit a6xx.

An a6xx runs work-items in waves of 128 fibres, or of 64 where a kernel wants many registers (grade: Mesa's
ir3, threadsize_base 64 and IR3_DOUBLE_THREADSIZE): a work-group is one wave or two. Work-items that are next
to each other in x and y read neighbouring texels, and those next to each other in z the same ones, which the
texture cache serves: extents are alike (grade: inferred). If this is wrong, a layer is slower, never wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

WAVES = (64, 128)
"""Fibres of a work-group: one wave; 128 are two waves in a kernel that needs many registers."""

Size = tuple[int, int, int]


def choose(items: Size) -> tuple[Size, str]:
    """The local size for so many work-items, and why: the fewest idle, then the largest."""
    size = min(_shapes(items), key=lambda shape: (_padded(items, shape), -math.prod(shape), _spread(shape)))
    total, fibres = _padded(items, size), math.prod(size)
    idle = total - math.prod(items)
    whole = "whole waves" if fibres in WAVES else "the whole launch"
    return size, f"{fibres} fibres, {whole}; {idle} of {total} idle, the fewest of such shapes"


def _shapes(items: Size) -> Iterator[Size]:
    """Powers of two that make a wave, or the whole launch."""
    limits = [1 << (n - 1).bit_length() for n in items]
    for fibres in sorted({min(wave, math.prod(limits)) for wave in WAVES}):
        for x in _powers(min(fibres, limits[0])):
            for y in _powers(min(fibres // x, limits[1])):
                if (z := fibres // (x * y)) <= limits[2]:
                    yield x, y, z


def _powers(most: int) -> list[int]:
    return [1 << n for n in range(most.bit_length())]


def _padded(items: Size, shape: Size) -> int:
    return math.prod(-(-n // size) * size for n, size in zip(items, shape, strict=True))


def _spread(shape: Size) -> int:
    return max(shape) // min(shape)
