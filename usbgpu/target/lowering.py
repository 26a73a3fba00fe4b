"""From the integer body of a network to launches of kernels.

A node becomes a launch, and one that needs none (a Reshape, a Concat whose operands are in their places)
another name for bytes that are there. An Add goes into the Conv or Gemm that feeds it; so does a Lookup.
"""

from __future__ import annotations

from sdk import arena
from sdk.arithmetic import require_scales
from sdk.errors import Unsupported
from sdk.graph import (
    Add,
    AveragePool,
    Concat,
    Conv,
    Gemm,
    GlobalAveragePool,
    Graph,
    Lookup,
    MaxPool,
    Mul,
    Node,
    Pad,
    Requantize,
    Reshape,
    Resize,
    Transpose,
)
from sdk.lowering import joined, require_quantized_samples
from sdk.scales import node_scales
from usbgpu.amd.facts.chips import Chip
from usbgpu.target.calls import Lowered
from usbgpu.target.context import Context, require_room
from usbgpu.target.elementwise import elementwise
from usbgpu.target.moves import concat, pick, places, transpose
from usbgpu.target.products import product
from usbgpu.target.windows import average_pool, is_global, max_pool, mean


def lower(graph: Graph, chip: Chip, guard: int = 0) -> Lowered:
    """Lower an integer body whose activations are all uint8.

    Raises:
        Unsupported: a node that has no kernel, or is beyond a limit.
    """
    require_quantized_samples(graph)
    for node in graph.nodes:
        require_room(graph, node)
        require_scales(node_scales(graph, node))
    context = Context(graph, chip, places(graph))
    inputs = [(graph.tensor(name), context.new_dense(graph.tensor(name))) for name in graph.inputs]
    for node, producer in joined(graph):
        if producer is None:
            _node(context, node)
        else:
            product(context, producer, node)
    outputs = [(graph.tensor(name), context.as_dense(name)) for name in graph.outputs]
    for _, at in outputs:
        at.buffer.last = len(context.calls)
    return Lowered(
        calls=context.calls,
        weights=context.blob.weights(),
        arena=arena.align(arena.plan(context.buffers, guard)),
        live_peak=_live_peak(context),
        inputs=inputs,
        outputs=outputs,
        buffers=context.buffers,
        tensors=context.made,
    )


def _node(context: Context, node: Node) -> None:
    match node:
        case Conv() | Gemm():
            product(context, node, node)
        case Add() | Mul() | Lookup() | Requantize():
            elementwise(context, node)
        case AveragePool() | GlobalAveragePool() if is_global(context.graph, node):
            mean(context, node)
        case AveragePool():
            average_pool(context, node)
        case MaxPool():
            max_pool(context, node)
        case Concat():
            concat(context, node)
        case Transpose():
            transpose(context, node)
        case Resize() | Pad():
            pick(context, node)
        case Reshape():
            context.dense[node.output] = context.as_dense(node.inputs[0])
        case _:
            raise Unsupported("the operator has no kernel")


def _live_peak(context: Context) -> int:
    """The largest sum of the sizes of the graph's tensors that one launch needs or leaves behind.

    What lies within another tensor counts as that.
    """
    graph = context.graph
    wholes = {outer for outer, _ in context.within.values()}
    spans = []
    for name in {*context.made, *graph.inputs, *wholes} - set(context.within):
        ats = [context.dense.get(name), context.pictures[name].at if name in context.pictures else None]
        buffers = [at.buffer for at in ats if at is not None]
        span = min(b.first for b in buffers), max(b.last for b in buffers)
        spans.append((*span, graph.tensor(name).nbytes))
    return arena.live_peak(spans)
