"""From the integer body of a network to layers of kernel calls.

A node becomes one layer: the calls that compute it, those that bring its input into the form they read, and
those that put the padding around its output. An Add joins the layer of the convolution that feeds it, and is
computed in that one's output. Offsets stay symbolic (`At`) until the arena is planned.
"""

from __future__ import annotations

from dsp.hexagon import matrices, stripes
from dsp.hexagon.borders import fill, pad
from dsp.hexagon.calls import At, Lowered
from dsp.hexagon.context import Context
from dsp.hexagon.elementwise import add, lookup, mul, requantize
from dsp.hexagon.interpolation import interpolate
from dsp.hexagon.layout import is_planar
from dsp.hexagon.maps import map_elements
from dsp.hexagon.moves import concat, rename, resize, take, transpose
from dsp.hexagon.normalizations import normalize
from dsp.hexagon.prefetch import ask_ahead
from dsp.hexagon.products import conv, gemm
from dsp.hexagon.reductions import reduce, softmax
from dsp.hexagon.rows import in_rows
from dsp.hexagon.transposed import conv_transpose
from dsp.hexagon.windows import average_pool, depthwise_conv, global_pool, is_depthwise, max_pool
from sdk import graph as ops
from sdk.arena import ALIGNMENT, align, live_peak, plan
from sdk.errors import Unsupported
from sdk.graph import Graph, Node, macs
from sdk.lowering import joined, require_quantized
from sdk.target import L2, Arithmetic


def lower(graph: Graph, guard: int = 0, l2: int = L2, arithmetic: Arithmetic = "q31") -> Lowered:
    """Lower an integer body whose activations are all uint8.

    Args:
        graph: the body.
        guard: bytes between the buffers, as `plan` takes them.
        l2: bytes of the L2 that the layers are to work in.
        arithmetic: q31 or q15.

    Raises:
        Unsupported: a node that has no kernel, or is beyond a limit.
    """
    require_quantized(graph)
    graph = in_rows(graph)
    context = Context(graph, arithmetic, l2)
    inputs = []
    for name in graph.inputs:
        tensor = graph.tensor(name)
        context.dense[name] = at = At(context.buffer(f"input {name}", align(tensor.nbytes)))
        inputs.append((tensor, at))
    striped = stripes.find(context)
    done = {found.reader.name for found in striped.values()}
    for node, product in joined(graph, lambda product, node: _takes(graph, product, node)):
        if isinstance(node, ops.Conv) and node.name in striped:
            stripes.take_turns(context, node, striped[node.name])
        elif node.name not in done:
            _node(context, node, product)
    outputs = []
    for name in graph.outputs:
        tensor = graph.tensor(name)
        if name not in context.dense:
            context.begin(f"{name} (output)", "Output", name)
            context.finish_dense(tensor, context.as_dense(tensor))
        outputs.append((tensor, context.dense[name]))
    for _, at in outputs:
        at.buffer.last = len(context.layers)
    arena = plan(context.buffers, guard)
    ask_ahead(context.layers, context.blob.nbytes, l2)
    return Lowered(
        layers=context.layers,
        weights=bytes(context.blob.weights()),
        arena=arena,
        live_peak=_live_peak(context),
        laid_out_peak=live_peak((buffer.first, buffer.last, buffer.nbytes) for buffer in context.buffers),
        margin=align(context.furthest + 4 * ALIGNMENT),
        inputs=inputs,
        outputs=outputs,
        buffers=context.buffers,
    )


def _node(context: Context, node: Node, product: ops.Conv | ops.Gemm | None) -> None:
    """The layer of a node, and of the convolution that it joins if there is one."""
    if node.output in context.pitches.views:
        return
    if not isinstance(node, ops.Reshape | ops.Transpose):  # which may need no layer
        context.begin(node.name, node.op, node.output, macs(context.graph, node))
    match node:
        case ops.Conv() if not _has_planes(context.graph, node):
            gemm(context, node)
        case ops.Conv() if matrices.is_of_frames(context.graph, node):
            matrices.frames(context, node)
        case ops.Conv() if is_depthwise(context.graph, node):
            depthwise_conv(context, node)
        case ops.Conv():
            conv(context, node)
        case ops.Gemm() if context.graph.tensor(node.output).shape[0] > 1:
            matrices.rows(context, node)
        case ops.Gemm():
            gemm(context, node)
        case ops.ConvTranspose():
            conv_transpose(context, node)
        case ops.MatMul():
            matrices.matmul(context, node)
        case ops.Add() if isinstance(product, ops.Conv):
            context.layer.op, context.layer.macs = "Conv+Add", macs(context.graph, product)
            conv(context, product, node)
        case ops.Add():
            add(context, node)
        case ops.Mul():
            mul(context, node)
        case ops.Requantize():
            requantize(context, node)
        case ops.Map():
            map_elements(context, node)
        case ops.Lookup():
            lookup(context, node)
        case ops.GlobalAveragePool():
            global_pool(context, node)
        case ops.AveragePool() if _is_global(context.graph, node):
            global_pool(context, node)
        case ops.AveragePool():
            average_pool(context, node)
        case ops.MaxPool():
            max_pool(context, node)
        case ops.Reduce():
            reduce(context, node)
        case ops.Softmax():
            softmax(context, node)
        case ops.Normalize():
            normalize(context, node)
        case ops.Concat():
            concat(context, node)
        case ops.Pad():
            pad(context, node)
        case ops.Fill():
            fill(context, node)
        case ops.Resize():
            resize(context, node)
        case ops.Interpolate():
            interpolate(context, node)
        case ops.Slice() | ops.Take():
            take(context, node)
        case ops.Transpose():
            transpose(context, node)
        case ops.Reshape():
            rename(context, node)
        case _:
            raise Unsupported("the operator has no kernel")


def _takes(graph: Graph, product: ops.Conv | ops.Gemm, node: Node) -> bool:
    """Whether the layer of a product can add to what it leaves in the planes of its output."""
    if not isinstance(node, ops.Add) or not isinstance(product, ops.Conv):
        return False
    return is_planar(graph.tensor(product.output)) and not is_depthwise(graph, product)


def _has_planes(graph: Graph, node: ops.Conv) -> bool:
    """Whether a convolution is from planes or to planes; else it is from one pixel to one pixel."""
    return any(is_planar(graph.tensor(name)) for name in (node.inputs[0], node.output))


def _is_global(graph: Graph, node: ops.AveragePool) -> bool:
    """Whether a pool covers the whole picture at once."""
    return node.kernel == graph.tensor(node.inputs[0]).shape[2:] and not any(node.pads)


def _live_peak(context: Context) -> int:
    """The largest sum of dense bytes of the graph's tensors that one layer needs or leaves behind."""
    graph, end = context.graph, len(context.layers)
    begun = {layer.tensor: i for i, layer in reversed(list(enumerate(context.layers)))}
    made = {layer.tensor: i for i, layer in enumerate(context.layers)}
    when: dict[str, int] = {}  # node -> the last layer that reads its inputs, its own or another's
    last: dict[str, int] = dict.fromkeys(graph.inputs, 0) | dict.fromkeys(graph.outputs, end)
    for node in reversed(graph.nodes):
        readers = [when[reader.name] for reader in graph.consumers(node.output)]
        when[node.name] = made.get(node.output, max(readers, default=end))
        for name in node.inputs:
            last[name] = max(last.get(name, 0), when[node.name])
    spans = [
        (
            0 if name in graph.inputs else begun[name],
            last.get(name, 0),
            context.held.get(name, graph.tensor(name).nbytes),
        )
        for name in {*graph.inputs, *(node.output for node in graph.nodes)}
        if name in graph.inputs or name in made
    ]
    return live_peak((first, max(first, last), nbytes) for first, last, nbytes in spans)
