"""Nodes with plain tensors on a card; what is not here is the same on any machine."""

from __future__ import annotations

import functools

from sdk import graph as ops
from sdk.graph import Graph, Map
from sdk.opencl import lowering as shared
from sdk.opencl.lowering import Group, begin, lower_family, require_plain
from sdk.opencl.maps import maps
from sdk.opencl.product_nodes import joins, product
from usbgpu.target.context import Context
from usbgpu.target.plain import attention
from usbgpu.target.plain.product_nodes import CardKernels
from usbgpu.target.plain.recurrent import recurrent

KERNELS = CardKernels()
JOINS = functools.partial(joins, KERNELS.types)


def groups(graph: Graph) -> list[Group]:
    """The nodes in order, with those joined that one launch computes.

    The second product of an attention takes in all of it.
    """
    return shared.groups(graph, JOINS, gathers=attention.gathered)


def lower_group(context: Context, group: Group) -> None:
    """The launches of a group."""
    node = group[-1]
    graph = context.graph
    require_plain(graph, group)
    region = attention.parsed(graph, group)
    if region is not None:
        if not attention.attention(context, region):
            for part in shared.groups(graph, JOINS, group):
                lower_group(context, part)
    elif isinstance(group[0], ops.Conv | ops.ConvTranspose | ops.MatMul):
        product(KERNELS, context, group)
    elif isinstance(node, Map):
        maps(context, group)  # type: ignore[arg-type]
    elif isinstance(node, ops.Recurrent):
        recurrent(context, node, lower_body)
    else:
        lower_family(context, node)


def lower_body(context: Context) -> None:
    """All of a graph of plain tensors within another, whose inputs have their views."""
    begin(context)
    for group in groups(context.graph):
        lower_group(context, group)
