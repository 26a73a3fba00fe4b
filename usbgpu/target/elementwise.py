"""Elementwise operators that did not go into another layer: kernels/elementwise.cl."""

from __future__ import annotations

from sdk.graph import Add, Lookup, Mul, Requantize
from sdk.opencl.calls import Pointer, Words, divisor
from sdk.scales import input_scale, node_scales
from usbgpu.target.calls import Picture
from usbgpu.target.context import Context, no_residual, variant
from usbgpu.target.moves import spread


def elementwise(context: Context, node: Add | Mul | Lookup | Requantize) -> None:
    graph = context.graph
    x = context.picture(node.inputs[0])
    source, out = graph.tensor(node.inputs[0]), graph.tensor(node.output)
    other: Pointer = None
    words, features, scale = no_residual(), [], 0.0
    match node:
        case Add():
            second = context.picture(node.inputs[1])
            other, features = second.at, ["ADD"]
            words = context.residual(node, source.name, node.inputs[1], second.pitch)
            scale = float(input_scale(graph, node, source.name))
        case Mul():
            factor = graph.tensor(node.inputs[1])
            second = _factors(context, node)
            other, features = second.at, ["MULTIPLY"]
            words = no_residual(factor.zero_point, second.pitch if second.pixels > 1 else 0)
            scale = float(node_scales(graph, node))
        case Lookup():
            other, features = context.table(node), ["TABLE"]
        case Requantize():
            scale = float(node_scales(graph, node))
    y = context.new_picture(out)
    quads = -(-x.channels // 4)
    items = x.pixels * quads
    clamp = (0, 255) if isinstance(node, Lookup) else node.clamp
    fields: Words = [items, quads, x.pitch, y.pitch, float(source.zero_point), scale]
    fields += [*context.range(node.output, clamp), *words, *divisor(quads)]
    kernel = variant("elementwise", 64, features)
    context.emit(node, node.op, kernel, (-(-items // 64), 1), [x.at, other, y.at], fields)


def _factors(context: Context, node: Mul) -> Picture:
    """A Mul's second operand: a picture like the first, or one pixel for all of its pixels."""
    x, factor = (context.graph.tensor(name) for name in node.inputs)
    if factor.shape == x.shape or (len(x.shape) == 4 and factor.shape == (1, x.shape[1], 1, 1)):
        return context.picture(factor.name)
    return spread(context, node, context.picture(x.name))
