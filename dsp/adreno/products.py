"""Conv and Gemm, with the Add or the Lookup that they feed: pointwise.cl, conv.cl and depthwise.cl."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dsp.adreno.context import (
    Context,
    Fields,
    Operand,
    Value,
    fold,
    items,
    layout,
    range_fields,
    range_operands,
    scale_operand,
)
from dsp.adreno.packing import (
    channel_constants,
    depthwise_weights,
    narrow,
    product_weights,
    stays_within_int32,
)
from dsp.adreno.plan import TEXEL, Layout
from sdk.arithmetic import require_scales
from sdk.errors import InternalError, Unsupported
from sdk.graph import Add, Array, Conv, Gemm, Graph, Lookup, Node
from sdk.lowering import centred_weights, dense_groups, folded_bias
from sdk.scales import input_scale, node_scales

MOST_PIXELS = 8
"""The most pixels of a row that a work-item computes; also in kernels/products.cl."""

PIXELS = 4
"""Pixels of a work-item of kernels/conv.cl."""

WAVE = 64
"""The fewest work-items of a launch, if the layer has as many: with fewer, fibres of its wave idle."""

WIDEST = 8
"""The most columns of a window that kernels/depthwise.cl unrolls."""

WEIGHTS_LIMIT = 1 << 28
"""A layer's weights have fewer elements than this once its groups are padded with zeros."""


@dataclass
class _Product:
    """A Conv or Gemm that is being lowered.

    Attributes:
        nodes: it, and the node fused into it.
        weights: centred, [O, I / groups, kh, kw].
        bias: folded, [O].
        operands: of the kernel, except x, the weights and y.
        output: the fields of `struct output`.
        arguments: names of the arguments that all functions of products take.
    """

    nodes: list[Node]
    node: Conv | Gemm
    x: Value
    weights: Array
    bias: Array
    operands: list[Operand]
    output: Fields
    arguments: list[str]


def product(context: Context, node: Conv | Gemm, final: Node) -> None:
    """A Conv or Gemm, and the Add or Lookup after it if that is `final`."""
    graph = context.graph
    x = context.read(node.inputs[0])
    weights = centred_weights(graph.tensor(node.inputs[1]))
    weights = weights.reshape(*weights.shape, *(1, 1)[: 4 - weights.ndim])
    bias = folded_bias(graph, node)
    constants = channel_constants(bias, require_scales(node_scales(graph, node)))
    zero_point = graph.tensor(node.output).zero_point
    operands = [Operand("at", "int", context.table(constants)), *range_operands("", zero_point, node.clamp)]
    output: Fields = {"at": "at", "own": range_fields("")}
    nodes: list[Node] = [node]
    if final is not node:
        nodes.append(final)
        more, fields = _fused(context, node, final)
        operands += more
        output |= fields
    other = "other" if any(operand.name == "other" for operand in operands) else "x"
    made = _Product(nodes, node, x, weights, bias, operands, output, ["x", "weights", "tables", other, "y"])
    if isinstance(node, Gemm) or _is_pointwise(node, weights):
        _pointwise(context, made)
    elif _is_depthwise(graph, node):
        _depthwise(context, made)
    else:
        _conv(context, made)


def _fused(context: Context, node: Node, final: Node) -> tuple[list[Operand], Fields]:
    """What follows the requantisation: the operands it needs, and its fields of `struct output`."""
    graph = context.graph
    if isinstance(final, Lookup):
        fields: Fields = {"fused": "WITH_LOOKUP", "table": "table"}
        return [Operand("table", "int", context.lookup_table(final))], fields
    if not isinstance(final, Add):
        raise InternalError(f"a {final.op} in a {node.op}", where=f"node {final.name}")
    name = final.inputs[0] if final.inputs[1] == node.output else final.inputs[1]
    other, y = graph.tensor(name), graph.tensor(final.output)
    operands = [
        Operand("other", "source", context.read(name)),
        scale_operand("ratio", input_scale(graph, final, node.output)),
        scale_operand("other_ratio", input_scale(graph, final, name)),
        Operand("other_zero_point", "float", float(other.zero_point)),
        *range_operands("sum_", y.zero_point, final.clamp),
    ]
    names = ("ratio", "other_ratio", "other_zero_point")
    fields = {"fused": "WITH_ADD", "sum": range_fields("sum_")} | {name: name for name in names}
    return operands, fields


def _is_pointwise(node: Conv, weights: Array) -> bool:
    return weights.shape[2:] == (1, 1) and node.strides == (1, 1) and not any(node.pads) and node.group == 1


def _is_depthwise(graph: Graph, node: Conv) -> bool:
    channels = graph.tensor(node.inputs[0]).shape[1]
    return node.group == channels and graph.tensor(node.output).shape[1] == channels


def _launch(
    context: Context, p: _Product, function: str, texels: Array, fields: Fields, pixels: int, trips: int
) -> None:
    y = context.make(p.nodes[-1].output)
    operands = [
        Operand("x", "source", p.x),
        Operand("weights", "weights", context.add_weights(texels)),
        Operand("tables", "tables"),
        Operand("y", "target", y),
        *p.operands,
    ]
    struct = "depthwise" if function == "depthwise_any" else function
    shapes: Fields = {"pixels": pixels, **fields, "from": p.x.layout, "to": y.layout}
    structs = [(struct, shapes), ("output", p.output)]
    grid = items(y.layout, pixels)
    context.step(p.nodes, function, operands, structs, grid, arguments=p.arguments, trips=trips)


def _tiles(context: Context, p: _Product, weights: Array) -> tuple[Array, Fields]:
    """Weights [O, I, kh, kw] for `load_tile` of kernels/products.cl, and the fields that go with them."""
    outputs, inputs = -(-len(weights) // TEXEL), -(-weights.shape[1] // TEXEL)
    side = fold(outputs, TEXEL, context.limit)
    texels = narrow(product_weights(weights, side))
    columns = weights.shape[2] * weights.shape[3] * inputs
    dots = texels.dtype == np.int8 and stays_within_int32(weights, p.bias)
    return texels, {"dots": int(dots), "weights": Layout(TEXEL * outputs, TEXEL, columns, side)}


def _pointwise(context: Context, p: _Product) -> None:
    source, outputs = p.x.layout, -(-len(p.weights) // TEXEL)
    texels, fields = _tiles(context, p, p.weights)
    pixels = _pixels(source, outputs, lambda n: source.blocks * (18 * n + 20))
    _launch(context, p, "pointwise", texels, fields, pixels, source.blocks)


def _pixels(to: Layout, outputs: int, slots: Callable[[int], int]) -> int:
    """Pixels of a work-item: of the counts that leave a whole wave, the one with the fewest issue slots.

    Args:
        to: the rows of the output.
        outputs: its blocks.
        slots: in the loop, of a work-item of so many pixels. These numbers and those for the rest, here, are
            fitted to what `dsp.adreno.ir3` counts (grade: ir3's code for Adreno 630).
    """
    counts = range(1, min(MOST_PIXELS, to.width) + 1)
    enough = [n for n in counts if -(-to.width // n) * to.height * outputs >= WAVE]
    return min(enough or [1], key=lambda n: -(-to.width // n) * (70 + 34 * n + slots(n)))


def _conv(context: Context, p: _Product) -> None:
    node = _as_conv(p.node)
    groups, weights = node.group, p.weights
    outputs, inputs = len(weights) // groups, weights.shape[1]
    if groups > 1 and (outputs % TEXEL or inputs % TEXEL):
        if weights.size * groups >= WEIGHTS_LIMIT:
            raise Unsupported(
                f"its {groups} groups are not multiples of four channels, and padded with zeros its weights "
                f"have {weights.size * groups:,} elements; the limit is {WEIGHTS_LIMIT:,}"
            )
        weights, groups = dense_groups(weights, groups), 1
        outputs, inputs = weights.shape[:2]
    texels, fields = _tiles(context, p, weights)
    rows, columns = _outside(context, p)
    fields |= {
        "inputs": -(-inputs // TEXEL),
        "outputs": -(-outputs // TEXEL),
        "padded": int(rows or columns),
        "zero_point": context.graph.tensor(node.inputs[0]).zero_point,
        "window": window_fields(node, weights.shape[2:]),
    }
    pixels = min(PIXELS, context.graph.tensor(node.output).shape[3])
    trips = weights.shape[2] * weights.shape[3] * -(-inputs // TEXEL)
    _launch(context, p, "conv", texels, fields, pixels, trips)


def _depthwise(context: Context, p: _Product) -> None:
    node = _as_conv(p.node)
    rows, columns = map(int, p.weights.shape[2:])
    fields: Fields = {
        "outside": int(_outside(context, p)[0]),
        "zero_point": context.graph.tensor(node.inputs[0]).zero_point,
        "window": window_fields(node, (rows, columns)),
    }
    texels = narrow(depthwise_weights(p.weights))
    if columns > WIDEST or node.dilations[1] > 1:
        _launch(context, p, "depthwise_any", texels, fields, 1, rows * columns)
        return
    to = layout(context.graph.tensor(node.output), context.limit)

    def slots(n: int) -> int:
        loads: int = (n - 1) * node.strides[1] + columns
        return rows * (45 + 5 * loads + 4 * n * columns)

    pixels = _pixels(to, to.blocks, slots)
    _launch(context, p, "depthwise", texels, fields, pixels, rows)


def _as_conv(node: Conv | Gemm) -> Conv:
    if not isinstance(node, Conv):
        raise InternalError("it has no window", where=f"node {node.name}")
    return node


def _outside(context: Context, p: _Product) -> tuple[bool, bool]:
    """Whether some window reaches beyond rows, or columns, of the picture."""
    node = _as_conv(p.node)
    x, y = (context.graph.tensor(name).shape for name in (node.inputs[0], node.output))
    outside = []
    for axis in (0, 1):
        reach = (y[2 + axis] - 1) * node.strides[axis] + (p.weights.shape[2 + axis] - 1) * node.dilations[
            axis
        ]
        outside.append(node.pads[axis] > 0 or reach - node.pads[axis] >= x[2 + axis])
    return outside[0], outside[1]


def window_fields(node: Node, kernel: tuple[int, ...]) -> dict[str, int]:
    """`struct window` of kernels/conv.cl."""
    strides, steps = getattr(node, "strides", (1, 1)), getattr(node, "dilations", (1, 1))
    top, left = getattr(node, "pads", (0, 0))[:2]
    return {
        "rows": kernel[0],
        "columns": kernel[1],
        "stride_y": strides[0],
        "stride_x": strides[1],
        "step_y": steps[0],
        "step_x": steps[1],
        "top": top,
        "left": left,
    }
