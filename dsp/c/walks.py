"""How nested loops step through tensors, and the fewest loops that do it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sdk.errors import Unsupported

LOOPS = 8
"""Loops of kernels/plain/loops.h and of a move."""

Loop = tuple[int, tuple[int, ...]]
"""Extent, and the step in each of the tensors that are walked together."""


def steps(shape: Sequence[int]) -> list[int]:
    """Of each axis of a contiguous tensor, in elements."""
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def broadcast_steps(shape: Sequence[int], to: Sequence[int]) -> list[int]:
    """Of each axis of `to`, in elements of a tensor of `shape` that broadcasts to it."""
    own = [0 if extent == 1 else step for extent, step in zip(shape, steps(shape), strict=True)]
    return [0] * (len(to) - len(shape)) + own


def merged(extents: Sequence[int], *walks: Sequence[int]) -> list[Loop]:
    """The fewest loops that visit the same elements in the same order; none for a single element."""
    loops: list[Loop] = []
    for extent, *step in zip(extents, *walks, strict=True):
        if extent == 1:
            continue
        if loops and loops[-1][1] == tuple(one * extent for one in step):
            extent *= loops.pop()[0]
        loops.append((extent, tuple(step)))
    return loops


def limited(loops: Sequence[Loop]) -> Sequence[Loop]:
    """The loops, refused where a kernel has not so many."""
    if len(loops) > LOOPS:
        raise Unsupported(f"it moves along {len(loops)} axes; the limit is {LOOPS}")
    return loops
