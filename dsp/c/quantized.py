"""Quantised operators as calls of the integer kernels, and what joins quantised tensors to plain ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dsp.c import moves
from dsp.c.context import Context
from dsp.c.elements import element, float_literal, integer
from dsp.c.walks import broadcast_steps, limited, merged, steps
from sdk import graph as ops
from sdk.arena import align
from sdk.arithmetic import require_scales
from sdk.errors import Unsupported
from sdk.graph import Array, Clamp, Node, Tensor
from sdk.scales import counts_differ, node_scales, scale_table, weight_quantization


def lower(context: Context, node: Node) -> None:
    """An operator on quantised tensors alone."""
    (x, *_), y = context.tensors(node)
    at, out = context.at(x.name), context.at(y.name)
    match node:
        case ops.Reshape():
            pass
        case ops.Conv():
            _conv(context, node, x, y)
        case ops.Gemm():
            fields = {"rows": x.shape[0], "inputs": x.shape[1], "outputs": y.shape[1]}
            constants = map(context.constant, _weighted(context, node))
            context.call("gemm", fields | _numbers(x, y, node.clamp), out, at, *constants)
        case ops.Add() | ops.Mul():
            _binary(context, node, x, y)
        case ops.Requantize():  # a mean of one element each
            _mean(context, node, {"planes": 1, "height": 1, "width": x.size, "rows": 1, "columns": x.size})
        case ops.GlobalAveragePool():
            _mean(context, node, geometry(x, y), x.shape[2:])
        case ops.AveragePool():
            _mean(context, node, geometry(x, y), node.kernel, node.strides, node.pads)
        case ops.MaxPool():
            max_pool(context, node)
        case ops.Lookup():
            context.direct("lookup", str(x.size), out, at, context.constant(context.data(node, 1)))
        case ops.Resize():
            sources = context.constant(np.array([*node.rows, *node.columns], "<i4"))
            context.call("resize", geometry(x, y), out, at, sources)
        case ops.Transpose() | ops.Concat() | ops.Pad():
            _move(context, node, y)
        case ops.Slice():
            moves.take_slice(context, node)
        case ops.Take():
            moves.take(context, node)
        case _:
            raise Unsupported("the operator has no kernel")


def max_pool(context: Context, node: ops.MaxPool) -> None:
    """Of bytes."""
    (x, *_), y = context.tensors(node)
    window = {name: list(getattr(node, name)) for name in ("kernel", "strides", "dilations")}
    fields = geometry(x, y) | window | {"pads": list(node.pads[:2])}
    context.call("max_pool", fields, context.at(y.name), context.at(x.name))


OUTPUTS, PIXELS = 4, 32
"""Of kernels/dots.h."""

TILE = 16
"""Of kernels/tile.h."""

DEPTHWISE_OUTPUTS, DEPTHWISE_TAPS = 4, 128
"""Outputs of a channel, and elements of a kernel, up to which each plane is summed by itself."""


def _conv(context: Context, node: ops.Conv, x: Tensor, y: Tensor) -> None:
    weight = context.graph.tensor(node.inputs[1])
    outputs, taps = weight.shape[0] // node.group, math.prod(weight.shape[2:])
    window: dict[str, Any] = {
        "kernel": list(weight.shape[2:]),
        "strides": list(node.strides),
        "pads": list(node.pads[:2]),
        "dilations": list(node.dilations),
    }
    numbers = _numbers(x, y, node.clamp)
    at, out = context.at(x.name), context.at(y.name)
    weights, channels = _weighted(context, node)
    if weight.shape[1] == 1 and outputs <= DEPTHWISE_OUTPUTS and taps <= DEPTHWISE_TAPS:
        fields = geometry(x, y) | {"channels": x.shape[1], "outputs": outputs} | window
        fields["lines"], fields["line"] = _padded(node, x, y, weight.shape[2:])
        lines = context.shorts(2 * fields["lines"] * fields["line"])
        places = [out, at, context.constant(weights), context.constant(channels), lines]
        context.call("depthwise", fields | numbers, *places)
        return
    extents = (*x.shape[2:], *y.shape[2:])
    if taps == 1 and node.strides == (1, 1) and not any(node.pads):
        pixels = math.prod(x.shape[2:])  # all rows as one
        extents = (1, pixels, 1, pixels)
    fields = {"images": x.shape[0], "groups": node.group, "channels": weight.shape[1], "outputs": outputs}
    fields |= dict(zip(("height", "width", "rows", "columns"), extents, strict=True))
    packed = _packed(weights.reshape(node.group, outputs, -1))
    panel = context.shorts(2 * 2 * packed.shape[2] * PIXELS)
    places = [out, at, context.constant(packed), context.constant(channels), panel]
    context.call("conv", fields | window | numbers | {"offset": int(channels["zero_point"].any())}, *places)


def _padded(node: ops.Conv, x: Tensor, y: Tensor, kernel: Sequence[int]) -> tuple[int, int]:
    """Lines, and elements of a line, of a plane with all that whole tiles of its windows read."""
    extents = (y.shape[2], align(y.shape[3], TILE))
    lines, line = (
        max(
            (extents[i] - 1) * node.strides[i] + (kernel[i] - 1) * node.dilations[i] + 1,
            node.pads[i] + x.shape[2 + i],
        )
        for i in (0, 1)
    )
    return lines, line


def _packed(weights: Array) -> Array:
    """[groups, outputs, terms] as [groups, blocks, pairs, OUTPUTS, 2], with zeros where there is nothing."""
    groups, outputs, terms = weights.shape
    padded = np.zeros((groups, align(outputs, OUTPUTS), align(terms, 2)), np.uint8)
    padded[:, :outputs, :terms] = weights
    blocks = padded.reshape(groups, -1, OUTPUTS, padded.shape[2] // 2, 2)
    return np.ascontiguousarray(blocks.transpose(0, 1, 3, 2, 4))


def _weighted(context: Context, node: ops.Conv | ops.Gemm) -> tuple[Array, Array]:
    """Weights as the bytes of int8, and for each channel bias, zero-point and scale."""
    weight = context.graph.tensor(node.inputs[1])
    data = context.data(node, 1).view(np.uint8)
    shift = 0 if weight.dtype == "int8" else 128
    channels = np.zeros(len(data), [("bias", "<i4"), ("zero_point", "<i4"), ("scale", "<f4")])
    channels["zero_point"] = weight_quantization(weight).zero_point - shift
    channels["scale"] = require_scales(node_scales(context.graph, node))
    if len(node.inputs) > 2:
        channels["bias"] = context.data(node, 2)
    return data ^ np.uint8(shift), channels


def _binary(context: Context, node: ops.Add | ops.Mul, x: Tensor, y: Tensor) -> None:
    other = context.graph.tensor(node.inputs[1])
    fields: dict[str, Any] = {"a_zero_point": x.zero_point, "b_zero_point": other.zero_point}
    fields["out"] = _bounds(y, node.clamp)
    if isinstance(node, ops.Add):
        fields["size"] = y.size
    else:
        walk = broadcast_steps(other.shape, y.shape)
        fields["rank"], fields["axes"] = _axes(context, y.shape, steps(y.shape), walk)
    places = [context.at(name) for name in (y.name, x.name, other.name)]
    constant = context.constant(require_scales(node_scales(context.graph, node)))
    context.call(node.op.lower(), fields, *places, constant)


def _mean(
    context: Context,
    node: ops.Requantize | ops.GlobalAveragePool | ops.AveragePool,
    fields: dict[str, Any],
    kernel: Sequence[int] = (1, 1),
    strides: Sequence[int] = (1, 1),
    pads: Sequence[int] = (0, 0),
) -> None:
    (x, *_), y = context.tensors(node)
    fields |= {"kernel": list(kernel), "strides": list(strides), "pads": list(pads[:2])}
    fields |= {"by_count": int(counts_differ(node))} | _numbers(x, y, node.clamp)
    constant = context.constant(require_scales(scale_table(context.graph, node)))
    context.call("average_pool", fields, context.at(y.name), context.at(x.name), constant)


def _move(context: Context, node: ops.Transpose | ops.Concat | ops.Pad, y: Tensor) -> None:
    inputs, _ = context.tensors(node)
    to, start = steps(y.shape), 0
    if isinstance(node, ops.Pad):
        context.code.calls.append(f"memset({context.at(y.name)}, {y.zero_point}, {y.size});")
        start = node.pads[0] * y.shape[3] + node.pads[1]
    for x in inputs:
        extents, walk = x.shape, steps(x.shape)
        if isinstance(node, ops.Transpose):
            extents, walk = y.shape, [walk[axis] for axis in node.perm]
        rank, axes = _axes(context, extents, to, walk)
        context.direct("copy", str(rank), axes, context.at(y.name, start), context.at(x.name))
        if isinstance(node, ops.Concat):
            start += math.prod(x.shape[node.axis :])


def _axes(context: Context, extents: Sequence[int], *walks: Sequence[int]) -> tuple[int, str]:
    loops = limited(merged(extents, *walks)) or [(1, (1,) * len(walks))]
    return len(loops), context.declare("axis", "[]", [[extent, *step] for extent, step in loops])


def geometry(x: Tensor, y: Tensor) -> dict[str, Any]:
    """Planes, and their sizes before and after."""
    names = ("planes", "height", "width", "rows", "columns")
    return dict(zip(names, (x.shape[0] * x.shape[1], *x.shape[2:], *y.shape[2:]), strict=True))


def _numbers(x: Tensor, y: Tensor, clamp: Clamp) -> dict[str, Any]:
    return {"zero_point": x.zero_point, "out": _bounds(y, clamp)}


def _bounds(y: Tensor, clamp: Clamp) -> list[int]:
    return [y.zero_point, clamp[0] - y.zero_point, clamp[1] - y.zero_point]


# -- between quantised and plain tensors ---------------------------------------------------------------------


def quantize(context: Context, node: ops.Quantize) -> None:
    (x,), y = context.tensors(node)
    if y.dtype != "uint8":  # int8 became this
        raise Unsupported(f"quantising to {y.dtype} has no kernel")
    fields: dict[str, Any] = {"size": x.size, "scale": float_literal(y.scale), "zero_point": y.zero_point}
    fields |= {"low": 0, "high": 255} | element("x", x)
    context.call("plain/quantize", fields, context.at(y.name), context.at(x.name))


def dequantize(context: Context, node: ops.Dequantize) -> None:
    (x,), y = context.tensors(node)
    if x.quantization is None or x.quantization.axis is not None:
        raise Unsupported(f"{x.name} is quantised per channel")
    fields: dict[str, Any] = {"size": x.size, "scale": float_literal(x.scale), "zero_point": x.zero_point}
    context.call(
        "plain/dequantize", fields | integer("x", x) | element("y", y), context.at(y.name), context.at(x.name)
    )
