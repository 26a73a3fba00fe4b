"""Operators that treat all elements alike: Add, Mul, and those that are a table of 256 values.

They run on whole vectors of either form, planes or dense bytes, including the undefined bytes between pixels;
where a layer reads the padding it is restored afterwards.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from dsp.hexagon.calls import At, Fields, KernelSource, range_fields, splat, variant
from dsp.hexagon.context import Context
from dsp.hexagon.layout import is_planar
from dsp.hexagon.moves import permuted, require_axes
from dsp.hexagon.packing import q31_within
from sdk.arena import ALIGNMENT, align
from sdk.arithmetic import q31_add
from sdk.errors import InternalError
from sdk.graph import Add, Array, Lookup, Mul, Requantize, Tensor
from sdk.scales import input_scale, node_scales


def add(context: Context, node: Add) -> None:
    a, b = (context.graph.tensor(name) for name in node.inputs)
    y = context.graph.tensor(node.output)
    fields = _operands(context, y, a=a, b=b) | {"addition": addition(context, node, a.name, b.name)}
    _call(context, KernelSource("elementwise.c", "elementwise_add"), y, fields)


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
    require_axes(len(y.shape))
    constants = q31_within(node_scales(context.graph, node), 255 * 255)
    per_channel = is_planar(y) and b.shape == (*y.shape[:2], 1, 1)
    if per_channel:
        fields = _operands(context, y, a=a) | {"b": context.as_dense(b), "b_plane": 4}
    else:
        fields = _operands(context, y, a=a, b=_broadcast(context, b, y))
    fields |= {
        "a_zero": splat(a.zero_point),
        "b_zero": splat(b.zero_point),
        "multiplier": constants.multiplier,
        "shift": constants.shift,
        **range_fields(y, node.clamp),
    }
    kernel = variant("mul", {}, {"PER_CHANNEL": per_channel, "SHIFTED": constants.shift > 0})
    _call(context, kernel, y, fields, "mul")


def _broadcast(context: Context, x: Tensor, y: Tensor) -> Tensor:
    """x, or a copy of it with the shape of y, which lies in step with y."""
    if x.shape == y.shape:
        return x
    strides = [int(np.prod(x.shape[axis + 1 :])) for axis in range(len(x.shape))]
    steps = [0 if extent == 1 else step for extent, step in zip(x.shape, strides, strict=True)]
    name = f"{x.name} for {y.name}"
    while name in context.graph.tensors:
        name += "'"
    wide = dataclasses.replace(x, name=name, shape=y.shape)
    context.dense[wide.name] = permuted(context, wide, context.as_dense(x), y.shape, steps)
    context.pitches.follow(wide.name, y.name)
    return wide


def requantize(context: Context, node: Requantize) -> None:
    x, y = context.ends(node)
    constants = q31_within(node_scales(context.graph, node), 255)
    acc = (np.arange(256) - x.zero_point) << constants.shift
    values = ((acc * constants.multiplier + (1 << 30)) >> 31) + y.zero_point
    _table(context, x, y, np.clip(values, *node.clamp).astype(np.uint8))


def lookup(context: Context, node: Lookup) -> None:
    table = context.graph.tensor(node.inputs[1]).data
    if table is None:
        raise InternalError("a table that is not constant", where=f"node {node.name}")
    _table(context, *context.ends(node), table)


def _table(context: Context, x: Tensor, y: Tensor, table: Array) -> None:
    """A table of 256 bytes; x is uint8."""
    fields = _operands(context, y, x=x) | {"table": context.blob.add(table)}
    _call(context, KernelSource("elementwise.c", "lookup"), y, fields)


def _operands(context: Context, y: Tensor, **operands: Tensor) -> dict[str, Any]:
    """Descriptor fields of a node's operands, by the names given, and of its output."""
    fields: dict[str, Any] = {}
    planar = is_planar(y)
    for name, x in operands.items():
        if planar:
            planes = context.as_planes(x)
            fields[name], fields[f"{name}_plane"] = At(planes.buffer, planes.base), planes.plane
        else:
            fields[name], fields[f"{name}_plane"] = context.as_dense(x), 0
    if planar:
        target = context.new_planes(y)
        context.finish_planes(y, target)
        out = {"y": At(target.buffer, target.base), "y_plane": target.plane}
        return fields | out | {"vectors": target.vectors, "planes": target.planes}
    at = At(context.buffer(y.name, align(y.nbytes)))
    context.finish_dense(y, at)
    return fields | {"y": at, "y_plane": 0, "vectors": align(y.nbytes) // ALIGNMENT, "planes": 1}


def _call(context: Context, kernel: KernelSource, y: Tensor, fields: Fields, struct: str = "") -> None:
    context.call(kernel, fields, struct)
    if context.layer.planes is not None:
        context.pad(y, context.layer.planes)
