"""Walks through dense bytes: what is written in order, and by which steps it is read.

An axis is an extent and a step, in bytes; axes are given from the outermost on. Where the innermost one is
read byte after byte, runs are copied. Where another one is, the two make matrices, which are transposed by
vectors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dsp.hexagon.calls import At, KernelSource, variant
from dsp.hexagon.context import Context
from dsp.hexagon.layout import PIXEL
from sdk.arena import align

PERMUTE_RANK = 6
"""Axes that a kernel has room for; those before them take a call for each of their elements."""

STREAMS = {1: 32, PIXEL: 16}
"""The most streams that the interleaving kernel takes at once, by bytes of a unit: as many vectors."""

HALVED_ELEMENTS = 8
"""From how many on every other byte is taken by vectors."""


def merged(extents: Sequence[int], steps: Sequence[int]) -> tuple[list[int], list[int]]:
    """The fewest axes that walk as these do: without those of one element, neighbours made one."""
    kept: tuple[list[int], list[int]] = [], []
    for extent, step in zip(extents, steps, strict=True):
        if extent == 1:
            continue
        if kept[0] and kept[1][-1] == step * extent:
            kept[0][-1] *= extent
            kept[1][-1] = step
        else:
            kept[0].append(extent)
            kept[1].append(step)
    return kept


def own_steps(shape: Sequence[int]) -> list[int]:
    """From an element to the next along each axis, in C order."""
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def moved_axes(shape: Sequence[int], perm: Sequence[int]) -> tuple[list[int], list[int]]:
    """Extents of a transposed tensor and the steps its axes make in the original, the fewest that do."""
    own = own_steps(shape)
    return merged([shape[axis] for axis in perm], [own[axis] for axis in perm])


def permuted(context: Context, name: str, x: At, extents: Sequence[int], steps: Sequence[int]) -> At:
    """Dense bytes of x: their merged axes, of these extents, go through x by these steps."""
    at = At(context.buffer(name, align(math.prod(extents))))
    outer = len(extents[:-PERMUTE_RANK])
    inner, inner_steps = extents[outer:], steps[outer:]
    for count, index in enumerate(np.ndindex(*extents[:outer])):
        start = sum(int(k) * step for k, step in zip(index, steps, strict=False))
        places = At(x.buffer, x.delta + start), At(at.buffer, count * math.prod(inner))
        _permute(context, *places, inner, inner_steps)
    return at


def _permute(context: Context, x: At, y: At, extents: Sequence[int], steps: Sequence[int]) -> None:
    row = steps.index(1) if 1 in steps else len(steps) - 1
    if row < len(steps) - 1 and _pays(extents[row], extents[-1]):
        to = own_steps(extents)
        outer = [(extents[axis], steps[axis], to[axis]) for axis in range(len(extents) - 1) if axis != row]
        interleave(context, 1, x, y, (extents[-1], steps[-1]), (extents[row], to[row]), outer)
        return
    if len(extents) < 2:  # in halves, for two contexts
        count, step = math.prod(extents), math.prod(steps)
        parts = 2 if count % 2 == 0 else 1
        extents, steps = (parts, count // parts), (count // parts * step, step)
    missing = PERMUTE_RANK - len(extents)  # axes of one element go behind the first, which contexts share
    fields = {
        "x": x,
        "y": y,
        "extent": [extents[0], *[1] * missing, *extents[1:]],
        "step": [steps[0], *[0] * missing, *steps[1:]],
    }
    halves = steps[-1] == 2 and extents[-1] >= HALVED_ELEMENTS
    symbol = "permute_runs" if steps[-1] == 1 else "permute_halves" if halves else "permute"
    context.call(KernelSource("moving.c", symbol), fields, "permute")


def _pays(elements: int, streams: int) -> bool:
    """Whether vectors transpose a matrix in fewer packets than single bytes: measured."""
    return elements >= 8 or (elements >= 4 and streams <= 16)


def interleave(
    context: Context,
    unit: int,
    x: At,
    y: At,
    streams: tuple[int, int],
    elements: tuple[int, int],
    outer: Sequence[tuple[int, int, int]],
    nbytes: int | None = None,
) -> None:
    """Matrices whose rows, streams of units, become the columns.

    Args:
        context: of the layer.
        unit: bytes of an element of a stream.
        x: the first stream.
        y: the first element.
        streams: their count, and the bytes from one to the next.
        elements: of each stream, and the bytes between them in y.
        outer: (extent, step in x, step in y) of at most four axes around that.
        nbytes: of an element in y, if the last stream's unit is not whole.
    """
    count, stream = streams
    missing = [(1, 0, 0)] * (PERMUTE_RANK - 2 - len(outer))  # behind the first axis, which contexts share
    axes = [*outer[:-1], *missing, *outer[-1:]]
    extents, x_steps, y_steps = zip(*axes, strict=True)
    at_once = min(1 << (count - 1).bit_length(), STREAMS[unit])
    fields = {
        "x": x,
        "x_stream": stream,
        "streams": count,
        "y": y,
        "y_element": elements[1],
        "bytes": nbytes or count * unit,
        "elements": elements[0],
        "extent": list(extents),
        "x_step": list(x_steps),
        "y_step": list(y_steps),
    }
    features = {
        "DENSE": fields["bytes"] == elements[1] == at_once * unit,
        "APART": fields["bytes"] != elements[1],
        "NESTED": any(extent > 1 for extent in extents[:-1]),
    }
    kernel = variant("interleave", {"UNIT": unit, "STREAMS": at_once}, features)
    context.call(kernel, fields, "interleave")
