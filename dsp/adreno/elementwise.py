"""Pools, and the elementwise operators that are not fused into a product."""

from __future__ import annotations

import math

from dsp.adreno.context import (
    Context,
    Fields,
    Operand,
    Value,
    items,
    range_fields,
    range_operands,
    scale_operand,
)
from dsp.adreno.moves import spread
from dsp.adreno.products import window_fields
from sdk.arithmetic import require_scales
from sdk.errors import Unsupported
from sdk.graph import Add, AveragePool, GlobalAveragePool, Lookup, MaxPool, Mul, Requantize
from sdk.scales import counts_differ, input_scale, node_scales, scale_table

COUNTS_LIMIT = 1 << 20
"""The most elements of a window whose mean divides by the pixels covered: a table has a scale per count."""


def pool(context: Context, node: AveragePool | GlobalAveragePool | MaxPool) -> None:
    graph = context.graph
    x, out = graph.tensor(node.inputs[0]), graph.tensor(node.output)
    source = context.read(x.name)
    kernel = x.shape[2:] if isinstance(node, GlobalAveragePool) else node.kernel
    y = context.make(out.name)
    operands = [Operand("x", "source", source), Operand("y", "target", y)]
    fields: Fields = {"window": window_fields(node, kernel), "from": source.layout, "to": y.layout}
    if isinstance(node, MaxPool):
        context.step([node], "max_pool", operands, [("pool", fields)], items(y.layout))
        return
    by_count = counts_differ(node)
    if by_count and math.prod(kernel) > COUNTS_LIMIT:
        raise Unsupported(f"its window of {list(kernel)} has more than {COUNTS_LIMIT:,} elements")
    scales = require_scales(scale_table(graph, node)).astype("<f4")
    operands[1:1] = [Operand("tables", "tables")]
    operands += [Operand("scales", "int", context.table(scales))]
    arguments = [operand.name for operand in operands]
    operands += range_operands("", out.zero_point, node.clamp)
    fields = {"zero_point": x.zero_point, "by_count": int(by_count)} | fields
    structs: list[tuple[str, Fields]] = [("pool", fields), ("range", range_fields(""))]
    context.step([node], "average_pool", operands, structs, items(y.layout), arguments=arguments)


def elementwise(context: Context, node: Add | Mul | Lookup | Requantize) -> None:
    graph = context.graph
    x, out = graph.tensor(node.inputs[0]), graph.tensor(node.output)
    if isinstance(node, Mul):
        _mul(context, node)
        return
    operands = [Operand("x", "source", context.read(x.name))]
    structs: list[tuple[str, Fields]] = [("range", range_fields(""))]
    match node:
        case Add():
            other = graph.tensor(node.inputs[1])
            operands += [
                Operand("other", "source", context.read(other.name)),
                Operand("y", "target", context.make(out.name)),
                Operand("x_zero_point", "float", float(x.zero_point)),
                scale_operand("ratio", input_scale(graph, node, x.name)),
                Operand("other_zero_point", "float", float(other.zero_point)),
                scale_operand("other_ratio", input_scale(graph, node, other.name)),
            ]
        case Requantize():
            operands += [
                Operand("y", "target", context.make(out.name)),
                Operand("x_zero_point", "int", x.zero_point),
                scale_operand("scale", node_scales(graph, node)),
            ]
        case Lookup():
            operands += [
                Operand("tables", "tables"),
                Operand("y", "target", context.make(out.name)),
                Operand("table", "int", context.lookup_table(node)),
            ]
            structs = []
    made = context.values[out.name].layout
    structs.insert(0, ("texels", {"columns": made.columns, "rows": made.rows}))
    arguments = [operand.name for operand in operands]
    if not isinstance(node, Lookup):
        operands += range_operands("", out.zero_point, node.clamp)
    grid = made.columns, made.rows, 1
    context.step([node], node.op.lower(), operands, structs, grid, arguments=arguments)


def _mul(context: Context, node: Mul) -> None:
    graph = context.graph
    x, other, out = (graph.tensor(name) for name in (*node.inputs, node.output))
    factor = _factor(context, node)
    source = context.read(x.name)
    y = context.make(out.name)
    operands = [
        Operand("x", "source", source),
        Operand("other", "source", factor),
        Operand("y", "target", y),
        Operand("x_zero_point", "int", x.zero_point),
        Operand("other_zero_point", "int", other.zero_point),
        scale_operand("scale", node_scales(graph, node)),
    ]
    arguments = [operand.name for operand in operands]
    operands += range_operands("", out.zero_point, node.clamp)
    fields: Fields = {"one": int(factor.layout.channels == 1), "from": source.layout, "other": factor.layout}
    structs: list[tuple[str, Fields]] = [("mul", fields), ("range", range_fields(""))]
    context.step([node], "mul", operands, structs, items(y.layout), arguments=arguments)


def _factor(context: Context, node: Mul) -> Value:
    """The second operand; repeated first where it is smaller and not a picture."""
    x, other = (context.graph.tensor(name) for name in node.inputs)
    if other.shape != x.shape and other.size > 1 and (len(x.shape) != 4 or x.shape[0] != 1):
        return spread(context, node)
    return context.read(other.name)
