"""Nodes with plain tensors: one function a family, and what joins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from sdk import dtypes
from sdk import graph as ops
from sdk.errors import Unsupported
from sdk.graph import Graph, Map, Node, Region
from sdk.opencl import conversions, indices, moves, reductions, windows
from sdk.opencl.context import TENSOR_LIMIT, PlainContext
from sdk.opencl.maps import OPERANDS, composed, maps
from sdk.opencl.moves import concat_places
from sdk.passes import use_counts

Group = tuple[Node, ...]
"""What one launch computes: a node; Maps; a product and Maps behind it; or what else a target gathers."""

Joins = Callable[[Graph, Node, Sequence[Map]], bool]
"""Whether Maps can be computed of a product's sums, in its launch."""
Gathers = Callable[[Graph, Node, Mapping[str, Sequence[Node]], Mapping[str, int]], Sequence[str]]
"""The outputs of the groups that become one launch with a node: given the graph, the node, the groups before
it by their outputs, and how often each tensor is read."""

FAMILIES: Mapping[type[Node], Callable[[PlainContext, Any], None]] = {
    ops.Reduce: reductions.reduce,
    ops.GlobalAveragePool: reductions.reduce,
    ops.TopK: reductions.top_k,
    ops.Softmax: reductions.softmax,
    ops.Normalize: reductions.normalize,
    ops.AveragePool: windows.pool,
    ops.MaxPool: windows.pool,
    ops.Interpolate: windows.interpolate,
    ops.GridSample: windows.grid_sample,
    ops.Reshape: moves.move,
    ops.Transpose: moves.move,
    ops.Slice: moves.move,
    ops.Take: moves.move,
    ops.Resize: moves.move,
    ops.Concat: moves.concat,
    ops.Fill: moves.fill,
    ops.Pad: moves.fill,
    ops.Gather: indices.gather,
    ops.GatherND: indices.gather,
    ops.Scatter: indices.scatter,
    ops.Quantize: conversions.quantize,
    ops.Dequantize: conversions.dequantize,
}
ALIASES = ops.Reshape | ops.Transpose | ops.Slice | ops.Take | ops.Resize | ops.Concat
"""What may be another view of its input."""
SPATIAL = (
    ops.Conv
    | ops.ConvTranspose
    | ops.AveragePool
    | ops.MaxPool
    | ops.Interpolate
    | ops.GridSample
    | ops.Pad
    | ops.GlobalAveragePool
    | ops.Resize
)

COMPUTED = (
    ops.Conv
    | ops.ConvTranspose
    | ops.MatMul
    | ops.Reduce
    | ops.GlobalAveragePool
    | ops.AveragePool
    | ops.TopK
    | ops.Softmax
    | ops.Normalize
    | ops.Interpolate
    | ops.GridSample
    | ops.Scatter
    | ops.Concat
    | ops.Fill
    | ops.Pad
)
"""What takes the integers of a quantised tensor for numbers here."""


def each(nodes: Iterable[Node]) -> Iterator[Node]:
    """Nodes, and those of regions: what one launch computes is decided here."""
    for node in nodes:
        yield from each(node.nodes) if isinstance(node, Region) else (node,)


def begin(context: PlainContext) -> None:
    """Decide where plain tensors lie, before anything is lowered."""
    graph = context.graph
    context.channels_last = channels_last(graph)
    made = {
        node.output
        for node in graph.nodes
        if not isinstance(node, ALIASES | ops.Recurrent) and graph.tensor(node.output).quantization is None
    }
    context.placed = concat_places(graph, made)


def groups(
    graph: Graph,
    joins: Joins,
    nodes: Sequence[Node] | None = None,
    gathers: Gathers = lambda graph, node, found, uses: (),
) -> list[Group]:
    """The nodes in order, with those joined that one launch computes.

    A Map takes in what only it reads, and what only it and what it has taken in read: Maps, and one product.

    Args:
        graph: that holds the nodes.
        joins: what a product's launch can compute behind it.
        nodes: of these only.
        gathers: what else a target computes in one launch.
    """
    uses = use_counts(graph)
    found: dict[str, Group] = {}  # by output
    for node in graph.nodes if nodes is None else nodes:
        group: Group = (node,)
        if _is_plain_map(graph, node):
            group = _grown(graph, group, found, uses, joins)
        else:
            taken = gathers(graph, node, found, uses)
            group = (*(one for name in reversed(taken) for one in found.pop(name)), node)
        found[node.output] = group
    return list(found.values())


def _grown(
    graph: Graph, group: Group, found: dict[str, Group], uses: Mapping[str, int], joins: Joins
) -> Group:
    """The group with all that it can take in, which is taken out of `found`."""
    refused: set[str] = set()
    while True:
        reads = Counter(name for node in group for name in node.inputs)
        names = [name for name in reversed(reads) if name in found and name not in refused]
        once = [name for name in names if reads[name] == uses[name]]
        if not once:
            return group
        before = found[once[0]]
        if _is_one(graph, (*before, *group), joins):
            del found[once[0]]
            group = (*before, *group)
        else:
            refused.add(once[0])


def _is_one(graph: Graph, group: Group, joins: Joins) -> bool:
    """Whether one launch can compute all of a group."""
    shape = graph.tensor(group[-1].output).shape
    if any(graph.tensor(node.output).shape != shape for node in group):
        return False
    within = [graph.tensor(node.output).dtype for node in group[:-1]]
    if not all(dtypes.is_float(dtype) or dtype in ("bool", "int64") for dtype in within):
        return False
    chain = [node for node in group if isinstance(node, Map)]
    if len(chain) == len(group) and _is_plain_map(graph, group[0]):
        return len(composed(graph, chain)[1]) <= OPERANDS
    return len(chain) == len(group) - 1 and joins(graph, group[0], chain)


def _is_plain_map(graph: Graph, node: Node) -> bool:
    return isinstance(node, Map) and all(
        graph.tensor(name).quantization is None for name in (*node.inputs, node.output)
    )


def channels_last(graph: Graph) -> set[str]:
    """Plain tensors [N,C,H,W] that convolutions make or read, and what Maps make of these."""
    found: set[str] = set()

    def add(name: str) -> bool:
        tensor = graph.tensor(name)
        if len(tensor.shape) != 4 or tensor.quantization is not None or tensor.data is not None:
            return False
        new = name not in found
        found.add(name)
        return new

    for node in reversed(graph.nodes):
        if isinstance(node, SPATIAL):
            add(node.inputs[0])
        elif isinstance(node, Map | ops.Concat | ops.Slice | ops.Fill) and node.output in found:
            for name in node.inputs:
                if len(graph.tensor(name).shape) == 4:
                    add(name)
    for node in graph.nodes:
        if isinstance(node, SPATIAL):
            add(node.output)
        elif isinstance(node, Map | ops.Concat | ops.Slice | ops.Fill):
            out = graph.tensor(node.output)
            like = [name for name in node.inputs if graph.tensor(name).size * 2 > out.size]
            if like and all(name in found for name in like):
                add(node.output)
    return found - set(graph.inputs)


def require_plain(graph: Graph, group: Group) -> None:
    """Refuse a group whose tensors are too large, or whose integers are not numbers.

    Raises:
        Unsupported: with the tensor.
    """
    for name in dict.fromkeys(name for one in group for name in (*one.inputs, one.output)):
        tensor = graph.tensor(name)
        if tensor.nbytes >= TENSOR_LIMIT:
            raise Unsupported(
                f"{tensor.name} of {list(tensor.shape)} is too large (limit: {TENSOR_LIMIT} bytes)"
            )
    for one in group:
        for name in (*one.inputs, one.output) if isinstance(one, COMPUTED) else ():
            if graph.tensor(name).quantization is not None:
                raise Unsupported(
                    f"{graph.tensor(name)} is quantised, and the operator has no integer kernel"
                )


def lower_family(context: PlainContext, node: Node) -> None:
    """The launches of a node that is neither a product nor a recurrence.

    Raises:
        Unsupported: it has none.
    """
    if isinstance(node, Map):
        maps(context, (node,))
    elif type(node) in FAMILIES:
        FAMILIES[type(node)](context, node)
    else:
        raise Unsupported("the operator has no kernel for plain tensors")
