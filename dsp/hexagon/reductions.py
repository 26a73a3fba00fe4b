"""Reduce and Softmax of quantised tensors: the definitions are `sdk.reference.integer_islands`.

A dense tensor is seen as [outer, count, inner] around the reduced axes, which are brought together first
where they are not neighbours. Planes are reduced as they are over their channels, and over whole pictures.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from dsp.hexagon.calls import At, Fields, KernelSource, walk
from dsp.hexagon.context import Context
from dsp.hexagon.elementwise import VLUT_ORDER
from dsp.hexagon.layout import is_planar
from dsp.hexagon.moves import moved
from dsp.hexagon.packing import Factors, q31_within
from dsp.hexagon.windows import picture_sums
from sdk.arena import align
from sdk.arithmetic import SOFTMAX_BITS, q31_softmax
from sdk.graph import Reduce, Softmax, Tensor
from sdk.scales import node_scales

KINDS = {"sum": "sum", "mean": "sum", "max": "max", "min": "min"}
"""What a kernel computes for each kind."""

COLUMN_ELEMENTS = 1023
"""Of a Softmax across rows: sums of their exponentials fit a word."""


def reduce(context: Context, node: Reduce) -> None:
    x, y = context.ends(node)
    axes = [axis for axis in node.axes if x.shape[axis] > 1]
    count = math.prod(x.shape[axis] for axis in axes)
    if is_planar(x) and axes == [1]:
        _channels(context, node, x, y)
    elif is_planar(x) and axes == [2, 3] and KINDS[node.kind] == "sum":
        constants = q31_within(node_scales(context.graph, node), 255 * count)
        by = Factors(np.array(constants.multiplier), np.array(constants.shift))
        picture_sums(context, x, y, KernelSource("pool.c", "global_pool"), by, (0, 255))
    elif not axes:
        _columns(context, node, x, y, (1, 1, x.size))
    else:
        first, last = min(axes), max(axes)
        between = math.prod(x.shape[first : last + 1])
        outer, inner = math.prod(x.shape[:first]), math.prod(x.shape[last + 1 :])
        if between != count:  # the reduced axes are no neighbours: they become the last ones
            kept = [axis for axis in range(len(x.shape)) if axis not in axes]
            x, outer, inner = transposed(context, x, [*kept, *axes]), x.size // count, 1
        if inner > 1:
            _columns(context, node, x, y, (outer, count, inner))
        else:
            _rows(context, node, x, y, outer, count)


def transposed(context: Context, x: Tensor, perm: Sequence[int]) -> Tensor:
    """A dense copy of x with its axes in this order."""
    shape = tuple(x.shape[axis] for axis in perm)
    copy = context.named(dataclasses.replace(x, name=f"{x.name} {''.join(map(str, perm))}", shape=shape))
    context.dense[copy.name] = moved(context, x, copy, perm)
    return copy


def _kernel(node: Reduce, what: str) -> KernelSource:
    return KernelSource("reduce.c", f"reduce_{what}_{KINDS[node.kind]}")


def _scale(context: Context, node: Reduce, x: Tensor, y: Tensor, count: int) -> Fields:
    """How sums, or extremes, become the result."""
    summed = count if KINDS[node.kind] == "sum" else 1
    constants = q31_within(node_scales(context.graph, node), 255 * summed)
    return {
        "bias": -x.zero_point * summed,
        "multiplier": constants.multiplier,
        "shift": constants.shift,
        "zero_point": y.zero_point,
    }


def _rows(context: Context, node: Reduce, x: Tensor, y: Tensor, rows: int, count: int) -> None:
    start = context.as_dense(x)
    at = At(context.buffer(y.name, align(y.nbytes)))
    fields = {"x": start, "rows": rows, "elements": count, "y": at}
    kernel = _kernel(node, "rows")
    context.call(kernel, fields | {"scale": _scale(context, node, x, y, count)}, "reduce_rows")
    context.finish_dense(y, at)


def _columns(context: Context, node: Reduce, x: Tensor, y: Tensor, extents: tuple[int, int, int]) -> None:
    blocks, count, inner = extents
    start = context.as_dense(x)
    at = At(context.buffer(y.name, align(y.nbytes)))
    fields = {
        "x": start,
        "x_block": count * inner,
        "x_step": inner,
        "count": count,
        "y": at,
        "y_block": inner,
        "blocks": blocks,
        "bytes": inner,
        "scale": _scale(context, node, x, y, count),
    }
    context.call(_kernel(node, "columns"), fields, "reduce_columns")
    context.finish_dense(y, at)


def _channels(context: Context, node: Reduce, x: Tensor, y: Tensor) -> None:
    """The result has one channel; where it lacks the axis, it is written out at once."""
    picture = y
    shape = (x.shape[0], 1, *x.shape[2:])
    if y.shape != shape:
        picture = context.named(dataclasses.replace(y, name=f"{y.name} picture", shape=shape))
        context.pitches.follow(picture.name, x.name)
    source = context.as_planes(x)
    target = context.new_planes(picture)
    fields = {
        "planes": source.planes,
        "vectors": source.vectors,
        "used": (1 << 8 * (x.shape[1] - 1) % 32 + 8) - 1,
        "scale": _scale(context, node, x, y, x.shape[1]),
    }
    for sample in range(source.samples):
        places = walk(target.some(sample), x=source.some(sample))
        del places["y_plane"]
        context.call(_kernel(node, "channels"), {**places, **fields}, "reduce_channels")
    context.pad(picture, target)
    if picture is y:
        context.finish_planes(y, target)
    else:
        context.planes[picture.name] = target
        context.finish_dense(y, context.as_dense(picture))


# -- Softmax ----------------------------------------------------------------------------------------------


def softmax(context: Context, node: Softmax) -> None:
    """Along rows of bytes, or across them; rows shorter than half their number are moved together first."""
    x, y = context.ends(node)
    elements, inner = x.shape[node.axis], math.prod(x.shape[node.axis + 1 :])
    if inner == 1:
        _softmax(context, x, y, elements, x.size // elements, inner)
    elif elements <= COLUMN_ELEMENTS and 2 * inner >= elements:
        _softmax(context, x, y, elements, x.size // elements // inner, inner)
    else:
        perm = [*(axis for axis in range(len(x.shape)) if axis != node.axis), node.axis]
        given = transposed(context, x, perm)
        rows = context.named(dataclasses.replace(y, name=f"{y.name} rows", shape=given.shape))
        _softmax(context, given, rows, elements, x.size // elements, 1)
        context.finish_dense(y, moved(context, rows, y, np.argsort(perm).tolist()))


def _softmax(context: Context, x: Tensor, y: Tensor, elements: int, rows: int, inner: int) -> None:
    """Of dense [rows, elements, inner]."""
    constants = q31_softmax(x.scale, y.scale, elements)
    words = constants.exponentials.astype("<i4")
    bits = max(0, constants.dividend.bit_length() - (SOFTMAX_BITS - constants.shift))
    start = context.as_dense(x)
    at = At(context.buffer(y.name, align(y.nbytes)))
    fields = {
        "x": start,
        "y": at,
        "elements": elements,
        "rows": rows,
        "bytes": inner,
        "table": context.blob.add(words.view(np.uint8).reshape(256, 4)[VLUT_ORDER, :3].T),
        "words": context.blob.add(words[VLUT_ORDER].reshape(2, -1, 4).swapaxes(1, 2)) if inner == 1 else 0,
        "shift": constants.shift,
        "start": constants.dividend >> bits,
        "bits": bits,
        "dividend": constants.dividend & (1 << bits) - 1,
        "zero_point": y.zero_point * 0x10001,
    }
    kernel = KernelSource("softmax.c", "softmax_rows" if inner == 1 else "softmax_columns")
    context.call(kernel, fields, "softmax")
    context.finish_dense(y, at)
