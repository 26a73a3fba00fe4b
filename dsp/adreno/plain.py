"""Nodes with plain tensors on an OpenCL device."""

from __future__ import annotations

import functools

from dsp.adreno.context import Context
from dsp.adreno.plain_launches import FloatKernels
from sdk import graph as ops
from sdk.graph import Graph, Map
from sdk.opencl import lowering as shared
from sdk.opencl.lowering import Group, begin, lower_family, require_plain
from sdk.opencl.maps import maps
from sdk.opencl.product_nodes import joins, product
from sdk.opencl.recurrent import unrolled

KERNELS = FloatKernels()


def groups(graph: Graph) -> list[Group]:
    """The nodes in order, with those joined that one launch computes."""
    return shared.groups(graph, functools.partial(joins, KERNELS.types))


def lower_group(context: Context, group: Group) -> None:
    """The launches of a group."""
    node = group[-1]
    require_plain(context.graph, group)
    if isinstance(group[0], ops.Conv | ops.ConvTranspose | ops.MatMul):
        product(KERNELS, context, group)
    elif isinstance(node, Map):
        maps(context, group)  # type: ignore[arg-type]
    elif isinstance(node, ops.Recurrent):
        unrolled(context, node, lower_body)
    else:
        lower_family(context, node)


def lower_body(context: Context) -> None:
    """All of a graph of plain tensors within another, whose inputs have their views."""
    begin(context)
    for group in groups(context.graph):
        lower_group(context, group)
