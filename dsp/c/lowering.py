"""From a graph to C: each node becomes calls of kernels, its tensors offsets into one arena.

Quantised activations are all unsigned here (`sdk.passes.unsigned_activations`), and plain ones are as the
graph stores them, little-endian; all are laid out as in ONNX, and a Reshape is the same bytes under another
name. Constants go into one blob.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dsp.c import moves, products, quantized, recurrent, reductions, windows
from dsp.c.context import GRANULE, Common, Context, NodeCode, amalgamate
from dsp.c.maps import map_elements
from dsp.c.memory import allot
from sdk import graph as ops
from sdk.arena import Blob, Buffer, align
from sdk.errors import Unsupported
from sdk.graph import Graph, Node
from sdk.weights import Weights

ALIGNMENT = 4
"""Alignment of constants where all is quantised. Kernels read them byte by byte; it serves machines whose
memcpy prefers words."""

WINDOW_LIMIT = 1 << 15
"""Padding, strides and dilations are below this: positions in kernels have 32 bits."""

QUANTIZED_LIMIT = 1 << 31
"""Bytes of memory of a quantised network, whose kernels count in 32 bits."""


@dataclass
class Lowered:
    """A whole network.

    Attributes:
        buffers: of the arena, by the names of their tensors.
        places: offset of every activation in the arena.
        live_peak: the largest sum of tensor bytes alive at once.
    """

    nodes: list[NodeCode]
    buffers: list[Buffer]
    places: dict[str, int]
    arena: int
    live_peak: int
    weights: Weights
    source: str


def lower(graph: Graph, guard: int) -> Lowered:
    """Lower a graph of unsigned quantised activations, without regions (`flattened`).

    Raises:
        Unsupported: a node that has no kernel, or is beyond a limit; or a quantised network that needs more
            memory than 32 bits address.
    """
    plain = is_plain(graph)
    memory = allot(graph, graph.inputs, GRANULE if plain else 1, guard)
    places = {name: memory.places[owner] for name, owner in memory.owners.items()}
    scratch_at = align(memory.nbytes, GRANULE)
    common = Common(Blob(GRANULE if plain else ALIGNMENT))
    context = Context(graph, {name: f"arena + {at}" for name, at in places.items()}, scratch_at, common)
    nodes = [lower_node(context, node) for node in graph.nodes]
    arena, buffers = memory.nbytes, memory.buffers
    if context.scratch_bytes:
        moments = len(graph.nodes)
        buffers = [*buffers, Buffer("scratch", context.scratch_bytes, 0, moments, scratch_at)]
        arena = scratch_at + context.scratch_bytes + (align(guard) if guard else 0)
    for what, size in (("activations", arena), ("constants", common.blob.nbytes)):
        if size >= QUANTIZED_LIMIT and not plain:
            raise Unsupported(f"its {what} take {size:,} bytes; the limit is 2 GiB", where=graph.name)
    scratch = f"#define SCRATCH_BYTES {max(context.scratch_bytes, 1)}\n"
    source = scratch + amalgamate(["base.h", *sorted(common.kernels)]) + _network(nodes)
    return Lowered(nodes, buffers, places, arena, memory.live_peak, common.blob.weights(), source)


def is_plain(graph: Graph) -> bool:
    """Whether it has plain tensors or kernels of theirs, which need a little-endian machine and libm."""
    plain = any(tensor.quantization is None for tensor in graph.activations())
    return plain or any(isinstance(node, ops.Map | ops.Slice | ops.Take) for node in graph.nodes)


def may_fail(graph: Graph) -> bool:
    """Whether a run can end at an index that is out of range."""
    return any(
        isinstance(node, ops.Gather | ops.GatherND | ops.Scatter)
        or (isinstance(node, ops.Recurrent) and may_fail(node.body))
        for node in graph.nodes
    )


def flattened(graph: Graph) -> Graph:
    """The graph with the nodes of its regions in place of them: they run one after the other."""

    def nodes(of: Sequence[Node]) -> tuple[Node, ...]:
        return tuple(
            one for node in of for one in (nodes(node.nodes) if isinstance(node, ops.Region) else (node,))
        )

    return dataclasses.replace(graph, nodes=nodes(graph.nodes))


def lower_node(context: Context, node: Node) -> NodeCode:
    """The code of a node, in its context."""
    code = context.begin(node)
    most = max(max(getattr(node, name, (0,))) for name in ("pads", "strides", "dilations"))
    if most >= WINDOW_LIMIT:
        raise Unsupported(
            f"its window has a pad, stride or dilation of {most}; it must be below {WINDOW_LIMIT}"
        )
    inputs, y = context.tensors(node)
    if isinstance(node, ops.Map):
        map_elements(context, node)
    elif y.quantization is not None and inputs[0].quantization is not None:
        quantized.lower(context, node)
    elif isinstance(node, ops.Recurrent):
        recurrent.lower(context, node, lower_node)
    elif type(node) in FAMILIES:
        FAMILIES[type(node)](context, node)
    else:
        raise Unsupported("the operator has no kernel for plain tensors")
    return code


FAMILIES: Mapping[type[Node], Callable[[Context, Any], None]] = {
    ops.Conv: products.conv,
    ops.ConvTranspose: products.conv_transpose,
    ops.MatMul: products.matmul,
    ops.Reduce: reductions.reduce,
    ops.TopK: reductions.top_k,
    ops.Softmax: reductions.softmax,
    ops.Normalize: reductions.normalize,
    ops.GlobalAveragePool: reductions.global_average_pool,
    ops.AveragePool: windows.pool,
    ops.MaxPool: windows.pool,
    ops.Interpolate: windows.interpolate,
    ops.GridSample: windows.grid_sample,
    ops.Reshape: moves.reshape,
    ops.Transpose: moves.transpose,
    ops.Concat: moves.concat,
    ops.Slice: moves.take_slice,
    ops.Take: moves.take,
    ops.Resize: moves.resize,
    ops.Fill: moves.fill,
    ops.Pad: moves.pad,
    ops.Gather: moves.gather,
    ops.GatherND: moves.gather_nd,
    ops.Scatter: moves.scatter,
    ops.Quantize: quantized.quantize,
    ops.Dequantize: quantized.dequantize,
}
"""Of plain tensors, and of what joins them to quantised ones."""


def traffic(graph: Graph, node: Node) -> int:
    """Bytes that a node reads and writes: activations and constants. A Reshape moves none."""
    names = {*node.inputs, node.output}
    return sum(graph.tensor(name).nbytes for name in names if not isinstance(node, ops.Reshape))


def _network(nodes: Sequence[NodeCode]) -> str:
    """The function `step`. No text of the model goes into it: a node's name could be anything, even C."""
    lines = ["", "/* -- the network ---------- */", ""]
    lines += [line for code in nodes for line in code.declarations]
    lines += [
        "",
        "static void step(int32_t index, uint8_t *arena, const uint8_t *weights) {",
        "  (void)weights;",
        "  switch (index) {",
    ]
    for index, one in enumerate(nodes):
        lines += [f"    case {index}: /* {one.node.op} */", *(f"      {call}" for call in one.calls)]
        lines.append("      break;")
    return "\n".join([*lines, "    default:", "      break;", "  }", "}", ""])
