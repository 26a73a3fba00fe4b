"""Operators that move elements and change none: Concat, Pad, Resize, Transpose, Reshape.

Planes stay planes where the rows and columns keep their order; a Transpose gives dense bytes, which is what
the Reshape behind it in a detector's head wants.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dsp.hexagon.calls import At, KernelSource, splat, variant
from dsp.hexagon.context import Context
from dsp.hexagon.layout import PIXEL, Planes, is_planar
from sdk.arena import ALIGNMENT, align
from sdk.errors import Unsupported
from sdk.graph import Concat, Pad, Reshape, Resize, Tensor, Transpose

PERMUTE_RANK = 6
"""Axes that the permuting kernel has room for, once those that stay neighbours are one."""

STREAMS = {1: 32, PIXEL: 16}
"""The most streams that the interleaving kernel takes at once, by bytes of a unit: as many vectors."""

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
        if node.axis == 1:
            if context.pitches.joined.get(x.name) != (y.name, done):  # else it is in place already
                _join(context, source, target, done)
        else:
            cell = done * target.pitch if node.axis == 2 else done
            _copy_pixels(context, source, target, cell)
        done += x.shape[node.axis]
    context.pad(y, target)
    context.finish_planes(y, target)


def _join(context: Context, source: Planes, target: Planes, channel: int) -> None:
    """The channels of `source` from this one on of `target`."""
    shift = channel % 4
    fields = {
        "x": At(source.buffer, source.base),
        "x_plane": source.plane,
        "x_planes": source.planes,
        "y": At(target.buffer, target.base + channel // 4 * target.plane),
        "y_plane": target.plane,
        "y_planes": -(-(shift + source.channels) // 4),
        "shift": shift,
        "vectors": source.vectors,
    }
    context.call(KernelSource("moving.c", "join"), fields)


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
    """The dense x repeated this many times, each time from a multiple of four bytes."""
    row = align(x.nbytes, 4)
    copies = At(context.buffer(f"{x.name} repeated", align(times * row)))
    fields = {"x": at, "x_row": 0, "y": copies, "y_row": row, "blocks": 1, "rows": times, "bytes": x.nbytes}
    context.call(KernelSource("moving.c", "copy"), fields)
    return copies


# -- Pad, Resize ------------------------------------------------------------------------------------------


def _copy_pixels(context: Context, source: Planes, target: Planes, cell: int) -> None:
    """All pixels of `source` to this cell of `target` and those around it."""
    fields = {
        "x": At(source.buffer, source.base),
        "x_block": source.plane,
        "x_row": source.pitch * PIXEL,
        "y": At(target.buffer, target.base + cell * PIXEL),
        "y_block": target.plane,
        "y_row": target.pitch * PIXEL,
        "blocks": source.planes,
        "rows": source.height,
        "bytes": source.width * PIXEL,
    }
    context.call(KernelSource("moving.c", "copy"), fields)


def pad(context: Context, node: Pad) -> None:
    """Fill the planes with the zero-point, and copy the picture into them."""
    x, y = context.ends(node)
    top, left, _, _ = node.pads
    source = context.as_planes(x)
    target = context.new_planes(y)
    fields = {
        "y": At(target.buffer, target.base),  # before it there may be other parts of a Concat
        "vectors": target.planes * target.plane // ALIGNMENT,
        "value": splat(y.zero_point),
    }
    context.call(KernelSource("moving.c", "flood"), fields)
    _copy_pixels(context, source, target, top * target.pitch + left)
    context.pad(y, target)
    context.finish_planes(y, target)


def resize(context: Context, node: Resize) -> None:
    x, y = context.ends(node)
    source = context.as_planes(x)
    target = context.new_planes(y)
    rows, columns = (np.array(sources) for sources in (node.rows, node.columns))
    doubled = bool((columns == np.arange(len(columns)) // 2).all())
    fields = {
        "x": At(source.buffer, source.base),
        "x_plane": source.plane,
        "y": At(target.buffer, target.base),
        "y_plane": target.plane,
        "y_row": target.pitch * PIXEL,
        "planes": target.planes,
        "rows": len(rows),
        "columns": len(columns),
        "row_table": context.blob.add((rows * source.pitch * PIXEL).astype("<i4")),
        "column_table": 0 if doubled else context.blob.add((columns * PIXEL).astype("<i4")),
        "doubled": int(doubled),
    }
    context.call(KernelSource("moving.c", "resize"), fields)
    context.pad(y, target)
    context.finish_planes(y, target)


# -- Transpose, Reshape -----------------------------------------------------------------------------------


def transpose(context: Context, node: Transpose) -> None:
    x, y = context.ends(node)
    extents, steps = moved_axes(x.shape, node.perm)
    if len(extents) < 2:  # only axes of one element change places
        rename(context, node)
        return
    context.begin(node.name, node.op, y.name)
    if node.perm == NHWC and is_planar(x):
        at = At(context.buffer(y.name, align(y.nbytes)))
        source = context.as_planes(x)
        _interleave(
            context,
            PIXEL,
            x=At(source.buffer, source.base),
            x_block=source.pitch * PIXEL,
            x_stream=source.plane,
            streams=source.planes,
            y=at,
            y_block=source.width * source.channels,
            bytes=source.channels,
            blocks=source.height,
            elements=source.width,
        )
    elif len(extents) <= 3 and steps[-2:] == [1, extents[-2]]:  # matrices, one or several
        at, start = At(context.buffer(y.name, align(y.nbytes))), context.as_dense(x)
        elements, streams = extents[-2:]
        _interleave(
            context,
            1,
            x=start,
            x_block=steps[0] if len(extents) == 3 else 0,
            x_stream=elements,
            streams=streams,
            y=at,
            y_block=elements * streams,
            bytes=streams,
            blocks=extents[0] if len(extents) == 3 else 1,
            elements=elements,
        )
    else:
        require_axes(len(extents))
        at = permuted(context, y, context.as_dense(x), extents, steps)
    context.finish_dense(y, at)


def _interleave(context: Context, unit: int, streams: int, **fields: At | int) -> None:
    at_once = min(1 << (streams - 1).bit_length(), STREAMS[unit])
    kernel = variant("interleave", {"UNIT": unit, "STREAMS": at_once}, {})
    context.call(kernel, {"streams": streams, **fields}, "interleave")


def permuted(context: Context, tensor: Tensor, x: At, extents: Sequence[int], steps: Sequence[int]) -> At:
    """A dense `tensor` of x's bytes: its axes, of these extents, go through x by these steps."""
    at = At(context.buffer(tensor.name, align(tensor.nbytes)))
    missing = PERMUTE_RANK - len(extents)  # axes of one element go behind the first, which contexts share
    fields = {
        "x": x,
        "y": at,
        "extent": [extents[0], *[1] * missing, *extents[1:]],
        "step": [steps[0], *[0] * missing, *steps[1:]],
    }
    context.call(KernelSource("moving.c", "permute"), fields)
    return at


def rename(context: Context, node: Reshape | Transpose) -> None:
    """Another name for the dense bytes; only planes have to be written out first."""
    x, y = context.ends(node)
    if x.name not in context.dense:
        context.begin(node.name, node.op, y.name)
        context.finish_dense(y, context.as_dense(x))
    context.dense[y.name] = context.dense[x.name]


def require_axes(count: int) -> None:
    """Refuse what the permuting kernel has no room for."""
    if count > PERMUTE_RANK:
        raise Unsupported(f"it moves more than {PERMUTE_RANK} axes")


def moved_axes(shape: Sequence[int], perm: Sequence[int]) -> tuple[list[int], list[int]]:
    """Extents of a transposed tensor and the steps its axes make in the original, the fewest that do.

    Axes of one element are left out, and neighbours that stay neighbours are one.
    """
    extents: list[int] = []
    steps: list[int] = []
    for axis in perm:
        extent, step = shape[axis], math.prod(shape[axis + 1 :])
        if extent == 1:
            continue
        if steps and steps[-1] == step * extent:
            extents[-1] *= extent
            steps[-1] = step
        else:
            extents.append(extent)
            steps.append(step)
    return extents, steps
