"""Operators that move elements and change none: Concat, Pad, Resize, Slice, Take, Transpose, Reshape.

Planes stay planes where the rows and columns keep their order; a Transpose gives dense bytes, which is what
the Reshape behind it in a detector's head wants.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

import numpy as np

from dsp.hexagon.calls import At, KernelSource, walk
from dsp.hexagon.context import Context
from dsp.hexagon.layout import PIXEL, Planes, chosen, is_planar, is_run, keeps_pixels, stretches
from dsp.hexagon.networks import gathered
from dsp.hexagon.walks import interleave, merged, moved_axes, own_steps, permuted
from sdk.arena import align
from sdk.graph import Concat, Reshape, Resize, Slice, Take, Tensor, Transpose

NHWC = (0, 2, 3, 1)


# -- Concat -----------------------------------------------------------------------------------------------


def concat(context: Context, node: Concat) -> None:
    parts = [context.graph.tensor(name) for name in node.inputs]
    y = context.graph.tensor(node.output)
    if not is_planar(y):
        _concat_dense(context, node.axis, parts, y)
        return
    target = context.whole(y)
    done = 0  # along the axis
    for x in parts:
        source = context.as_planes(x)
        match node.axis:
            case 0:
                copy_pixels(context, source, target.some(done, source.samples))
            case 1:
                if not _lies(source, target, done):
                    _join(context, source, target, done)
            case axis:
                copy_pixels(context, source, target, done * target.pitch if axis == 2 else done)
        done += x.shape[node.axis]
    context.pad(y, target)
    context.finish_planes(y, target)


def _lies(source: Planes, target: Planes, channel: int) -> bool:
    """Whether a part is in place already."""
    place = target.base + channel // 4 * target.plane
    return source.buffer is target.buffer and (source.base, channel % 4) == (place, 0)


def _join(context: Context, source: Planes, target: Planes, channel: int) -> None:
    """The channels of `source` from this one on of `target`."""
    shift = channel % 4
    fields = {
        "x_planes": source.planes,
        "y_planes": -(-(shift + source.channels) // 4),
        "shift": shift,
        "vectors": source.vectors,
    }
    part = target.part(channel, source.channels)
    for sample in range(source.samples):
        places = walk(part.some(sample), x=source.some(sample))
        del places["planes"]
        context.call(KernelSource("moving.c", "join"), places | fields)


def _concat_dense(context: Context, axis: int, parts: Sequence[Tensor], y: Tensor) -> None:
    at = At(context.buffer(y.name, align(y.nbytes)))
    row, done = math.prod(y.shape[axis:]), 0
    for x in parts:
        nbytes = math.prod(x.shape[axis:])
        fields = {
            "x": context.as_dense(x),
            "x_row": nbytes,
            "y": At(at.buffer, done),
            "y_row": row,
            "blocks": 1,
            "rows": math.prod(y.shape[:axis]),
            "bytes": nbytes,
        }
        context.call(KernelSource("moving.c", "copy"), fields)
        done += nbytes
    context.finish_dense(y, at)


def repeated(context: Context, x: Tensor, at: At, times: int) -> At:
    """A dense row of x repeated this many times, each time from a multiple of four bytes."""
    nbytes = x.nbytes // x.shape[0]
    row = align(nbytes, 4)
    copies = At(context.buffer(f"{x.name} repeated", align(times * row)))
    fields = {"x": at, "x_row": 0, "y": copies, "y_row": row, "blocks": 1, "rows": times, "bytes": nbytes}
    context.call(KernelSource("moving.c", "copy"), fields)
    return copies


# -- Resize -----------------------------------------------------------------------------------------------


def copy_pixels(context: Context, source: Planes, target: Planes, cell: int = 0) -> None:
    """All pixels of `source` to this cell of `target` and those around it."""
    for given, made in stretches(source, target):
        fields = {
            "x": At(given.buffer, given.base),
            "x_block": given.plane,
            "x_row": given.pitch * PIXEL,
            "y": At(made.buffer, made.base + cell * PIXEL),
            "y_block": made.plane,
            "y_row": made.pitch * PIXEL,
            "blocks": given.planes,
            "rows": given.height,
            "bytes": given.width * PIXEL,
        }
        context.call(KernelSource("moving.c", "copy"), fields)


def resize(context: Context, node: Resize) -> None:
    x, y = context.ends(node)
    source, target = context.as_planes(x), context.new_planes(y)
    pick_pixels(context, source, target, node.rows, node.columns)
    context.pad(y, target)
    context.finish_planes(y, target)


def pick_pixels(
    context: Context, source: Planes, target: Planes, rows: Sequence[int], columns: Sequence[int]
) -> None:
    """Of `source` these rows, and of each of them these columns."""
    if is_run(rows) and is_run(columns):
        first = (rows[0] * source.pitch + columns[0]) * PIXEL
        part = dataclasses.replace(source, base=source.base + first, height=len(rows), width=len(columns))
        copy_pixels(context, part, target)
        return
    fields = {
        "y_row": target.pitch * PIXEL,
        "rows": len(rows),
        "columns": len(columns),
        "row_table": context.blob.add((np.array(rows) * source.pitch * PIXEL).astype("<i4")),
    }
    symbol = "resize"
    if any(column != k // 2 for k, column in enumerate(columns)):
        symbol = "pick"
        starts, networks = gathered(columns)
        fields |= {
            "pieces": starts.shape[1],
            "starts": context.blob.add((starts * PIXEL).astype("<u4")),
            "networks": context.blob.add(networks.astype("<u4")),
        }
    for given, made in stretches(source, target):
        context.call(KernelSource("moving.c", symbol), fields | walk(made, x=given))


# -- Slice, Take ------------------------------------------------------------------------------------------


def take(context: Context, node: Slice | Take) -> None:
    """Pixels of planes, channels of planes, or dense bytes."""
    x, y = context.ends(node)
    lists = chosen(context.graph, node)
    if not (is_planar(x) and is_planar(y) and is_run(lists[1])):
        context.finish_dense(y, _take_dense(context, x, y, lists))
        return
    samples, channels, rows, columns = lists
    whole = keeps_pixels(context.graph, node)
    if channels[0] % 4 and not whole:
        context.finish_dense(y, _take_dense(context, x, y, lists))
        return
    source, target = context.as_planes(x).part(channels[0], len(channels)), context.new_planes(y)
    groups = [(source.some(samples[0], len(samples)), target)]
    if not is_run(samples):
        groups = [(source.some(sample), target.some(k)) for k, sample in enumerate(samples)]
    for given, made in groups:
        if channels[0] % 4:
            _take_channels(context, given, made, channels[0] % 4, x.shape[1] - channels[0])
        else:
            pick_pixels(context, given, made, rows, columns)
    context.pad(y, target)
    context.finish_planes(y, target)


def _take_channels(context: Context, source: Planes, target: Planes, shift: int, left: int) -> None:
    """The channels behind the first `shift` of plane 0 of `source`, of which `left` are there."""
    fields = {
        "x_planes": -(-(shift + left) // 4),
        "y_planes": target.planes,
        "shift": shift,
        "vectors": target.vectors,
    }
    for sample in range(target.samples):
        places = walk(target.some(sample), x=source.some(sample))
        del places["planes"]
        context.call(KernelSource("moving.c", "split"), places | fields, "join")


def _take_dense(context: Context, x: Tensor, y: Tensor, lists: Sequence[Sequence[int]]) -> At:
    """First the axes whose elements are at equal distances, at once; then each of the others by a table."""
    even = [_step(own) for own in lists]
    own = own_steps(x.shape)
    shape = [len(k) if step is not None else n for k, step, n in zip(lists, even, x.shape, strict=True)]
    first = sum(k[0] * n for k, step, n in zip(lists, even, own, strict=True) if step is not None)
    steps = [n if step is None else step * n for step, n in zip(even, own, strict=True)]
    at = context.as_dense(x)
    if first or tuple(shape) != x.shape or steps != own:
        at = permuted(context, y.name, At(at.buffer, at.delta + first), *merged(shape, steps))
    for axis, indices in enumerate(lists):
        if even[axis] is None:
            inner = math.prod(shape[axis + 1 :])
            blocks, each = math.prod(shape[:axis]), shape[axis]
            shape[axis] = len(indices)
            made = At(context.buffer(y.name, align(math.prod(shape))))
            fields = {
                "x": at,
                "x_block": each * inner,
                "table": context.blob.add((np.array(indices) * inner).astype("<i4")),
                "y": made,
                "blocks": blocks,
                "rows": len(indices),
                "bytes": inner,
            }
            context.call(KernelSource("moving.c", "take"), fields)
            at = made
    return at


def _step(indices: Sequence[int]) -> int | None:
    """The distance of each element from the one before, if it is always the same."""
    steps = {b - a for a, b in itertools.pairwise(indices)} or {1}
    return steps.pop() if len(steps) == 1 else None


# -- Transpose, Reshape -----------------------------------------------------------------------------------


def transpose(context: Context, node: Transpose) -> None:
    x, y = context.ends(node)
    if len(moved_axes(x.shape, node.perm)[0]) < 2:  # only axes of one element change places
        rename(context, node)
        return
    context.begin(node.name, node.op, y.name)
    context.finish_dense(y, moved(context, x, y, node.perm))


def moved(context: Context, x: Tensor, y: Tensor, perm: Sequence[int]) -> At:
    """The dense y, which is x with its axes in another order."""
    extents, steps = moved_axes(x.shape, perm)
    if tuple(perm) == NHWC and is_planar(x):
        at = At(context.buffer(y.name, align(y.nbytes)))
        source = context.as_planes(x)
        samples, channels, height, width = x.shape
        row = width * channels
        outer = [(samples, source.sample, height * row), (height, source.pitch * PIXEL, row)]
        start, streams = At(source.buffer, source.base), (source.planes, source.plane)
        interleave(context, PIXEL, start, at, streams, (width, channels), outer, channels)
        return at
    return permuted(context, y.name, context.as_dense(x), extents, steps)


def rename(context: Context, node: Reshape | Transpose) -> None:
    """Another name for the dense bytes; only planes have to be written out first."""
    x, y = context.ends(node)
    if x.name not in context.dense:
        context.begin(node.name, node.op, y.name)
        context.finish_dense(y, context.as_dense(x))
    context.dense[y.name] = context.dense[x.name]
