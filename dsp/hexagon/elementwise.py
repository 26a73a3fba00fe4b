"""Operators that treat all elements alike: Add, Mul, and those that are a table of 256 values.

They run on whole vectors of either form, planes or dense bytes, including the undefined bytes between pixels;
where a layer reads the padding it is restored afterwards.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from dsp.hexagon.calls import At, Fields, KernelSource, range_fields, splat, variant, walk
from dsp.hexagon.context import Context
from dsp.hexagon.layout import PIXEL, is_planar, stretches
from dsp.hexagon.packing import q31_within
from dsp.hexagon.walks import merged, permuted
from sdk.arena import ALIGNMENT, align
from sdk.arithmetic import q31_add
from sdk.errors import InternalError
from sdk.graph import Add, Array, Clamp, Fill, Lookup, Mul, Requantize, Tensor
from sdk.scales import input_scale, node_scales

VLUT_ORDER = np.arange(256).reshape(2, 2, 64).swapaxes(1, 2).reshape(-1)
"""The entries of a table of 256 bytes in the order in which vlut32 reads them: the odd bytes of a vector are
the upper half of its entries."""


def add(context: Context, node: Add) -> None:
    a, b = (context.graph.tensor(name) for name in node.inputs)
    y = context.graph.tensor(node.output)
    fields = {"addition": addition(context, node, a.name, b.name)}
    _call(context, KernelSource("elementwise.c", "elementwise_add"), y, fields, a=a, b=b)


def addition(context: Context, node: Add, a_name: str, b_name: str) -> Fields:
    """The constants of an Add with its operands in this order."""
    a, b, y = (context.graph.tensor(name) for name in (a_name, b_name, node.output))
    k = q31_add(*(float(input_scale(context.graph, node, name)) for name in (a_name, b_name)))
    offset = (1 << (k.shift - 1)) - a.zero_point * k.a_multiplier - b.zero_point * k.b_multiplier
    a_low, b_low = (((multiplier + 128) & 255) - 128 for multiplier in (k.a_multiplier, k.b_multiplier))
    return {
        "a_high": ((k.a_multiplier - a_low) >> 8) * 0x10001,
        "b_high": ((k.b_multiplier - b_low) >> 8) * 0x10001,
        "low_bytes": (a_low & 255) | (b_low & 255) << 8,
        "offset": offset,
        "shift": k.shift,
        **range_fields(y, node.clamp),
    }


def mul(context: Context, node: Mul) -> None:
    """By a tensor of equal shape, or by one byte per channel of planes; other operands are made equal."""
    a, b = (context.graph.tensor(name) for name in node.inputs)
    y = context.graph.tensor(node.output)
    constants = q31_within(node_scales(context.graph, node), 255 * 255)
    per_channel = is_planar(y) and b.shape == (*y.shape[:2], 1, 1)
    fields = {
        "a_zero": splat(a.zero_point),
        "b_zero": splat(b.zero_point),
        "multiplier": constants.multiplier,
        "shift": constants.shift,
        **range_fields(y, node.clamp),
    }
    kernel = variant("mul", {}, {"PER_CHANNEL": per_channel, "SHIFTED": constants.shift > 0})
    if not per_channel:
        _call(context, kernel, y, fields, "mul", a=a, b=in_step(context, b, y))
        return
    source, (factors, row), target = context.as_planes(a), context.as_rows(b, PIXEL), context.new_planes(y)
    for sample in range(target.samples):
        own = {"b": At(factors.buffer, factors.delta + sample * row), "b_plane": PIXEL}
        places = walk(target.some(sample), a=source.some(sample)) | own
        context.call(kernel, places | {"vectors": target.vectors} | fields, "mul")
    context.finish_planes(y, target)
    context.pad(y, target)


def in_step(context: Context, x: Tensor, y: Tensor) -> Tensor:
    """x, or a copy of it that was broadcast to the shape of y, which lies in step with y."""
    if x.shape == y.shape:
        return x
    shape = (1,) * (len(y.shape) - len(x.shape)) + x.shape
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    steps = [0 if extent == 1 else step for extent, step in zip(shape, strides, strict=True)]
    wide = context.named(dataclasses.replace(x, name=f"{x.name} for {y.name}", shape=y.shape))
    context.dense[wide.name] = permuted(context, wide.name, context.as_dense(x), *merged(y.shape, steps))
    context.pitches.follow(wide.name, y.name)
    return wide


def requantize(context: Context, node: Requantize) -> None:
    x, y = context.ends(node)
    _table(context, x, y, _requantized_bytes(context, node, x, y, node.clamp))


def requantized(context: Context, node: Fill, x: Tensor, y: Tensor) -> Tensor:
    """A copy of x with the quantisation of y, made in the layer of a node that does not keep the scale."""
    same = context.named(dataclasses.replace(x, name=f"{x.name} for {y.name}", quantization=y.quantization))
    context.pitches.follow(same.name, x.name)
    _table(context, x, same, _requantized_bytes(context, node, x, y, (0, 255)))
    return same


def _requantized_bytes(
    context: Context, node: Requantize | Fill, x: Tensor, y: Tensor, clamp: Clamp
) -> NDArray[np.uint8]:
    """What each byte becomes."""
    constants = q31_within(node_scales(context.graph, node), 255)
    acc = (np.arange(256) - x.zero_point) << constants.shift
    values = ((acc * constants.multiplier + (1 << 30)) >> 31) + y.zero_point
    table: NDArray[np.uint8] = np.clip(values, *clamp).astype(np.uint8)
    return table


def lookup(context: Context, node: Lookup) -> None:
    table = context.graph.tensor(node.inputs[1]).data
    if table is None:
        raise InternalError("a table that is not constant", where=f"node {node.name}")
    _table(context, *context.ends(node), table)


def _table(context: Context, x: Tensor, y: Tensor, table: Array) -> None:
    """A table of 256 bytes; x is uint8."""
    fields = {"table": context.blob.add(table)}
    _call(context, KernelSource("elementwise.c", "lookup"), y, fields, x=x)


def _call(
    context: Context, kernel: KernelSource, y: Tensor, fields: Fields, struct: str = "", **operands: Tensor
) -> None:
    """The calls of a kernel that walks through its operands, by their names, and its output in step."""
    if not is_planar(y):
        dense = {name: context.as_dense(x) for name, x in operands.items()}
        at = At(context.buffer(y.name, align(y.nbytes)))
        places = {**dense, **{f"{name}_plane": 0 for name in operands}, "y": at, "y_plane": 0, "planes": 1}
        context.finish_dense(y, at)
        context.call(kernel, {**places, "vectors": align(y.nbytes) // ALIGNMENT, **fields}, struct)
        return
    given = [context.as_planes(x) for x in operands.values()]
    target = context.new_planes(y)
    for made, *parts in stretches(target, *given):
        places = walk(made, **dict(zip(operands, parts, strict=True)))
        context.call(kernel, {**places, "vectors": made.vectors, **fields}, struct)
    context.finish_planes(y, target)
    context.pad(y, target)
