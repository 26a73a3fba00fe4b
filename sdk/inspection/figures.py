"""Figures of a graph: its precision in words, parameters, work by family of nodes, memory, states."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

from sdk import dtypes
from sdk.arena import live_peak
from sdk.errors import InvalidModel
from sdk.expression import Expression
from sdk.expression.expression import Step
from sdk.expression.trace import trace
from sdk.graph import (
    Add,
    AveragePool,
    Concat,
    Conv,
    ConvTranspose,
    Dequantize,
    Fill,
    Gather,
    GatherND,
    Gemm,
    GlobalAveragePool,
    Graph,
    GridSample,
    Interpolate,
    Lookup,
    Map,
    MatMul,
    MaxPool,
    Mul,
    Node,
    Normalize,
    Pad,
    Quantize,
    Recurrent,
    Reduce,
    Region,
    Requantize,
    Reshape,
    Resize,
    Scatter,
    Slice,
    Softmax,
    Take,
    Tensor,
    TopK,
    Transpose,
    macs,
)
from sdk.importers.plain.elementwise import OPERATORS
from sdk.segments import boundary
from sdk.states import Pairs, find_states

FAMILIES: Mapping[str, tuple[type[Node], ...]] = {
    "product": (Conv, ConvTranspose, MatMul, Gemm),
    "map": (Map, Add, Mul, Requantize, Lookup, Quantize, Dequantize),
    "reduction": (Reduce, TopK, Softmax, Normalize),
    "window": (MaxPool, AveragePool, GlobalAveragePool, Resize, Interpolate),
    "move": (
        *(Reshape, Transpose, Concat, Slice, Take, Pad, Fill),
        *(Gather, GatherND, Scatter, GridSample),
    ),
    "recurrence": (Recurrent,),
}
"""The families of nodes that `sdk.graph` describes."""

_FAMILY = {cls: name for name, classes in FAMILIES.items() for cls in classes}
_CONVERSIONS = ("round", "real", "int", "bool", "trunc", "constant")
_SHOWN = 3
"""Operations of an expression that its name has."""


def family(node: Node) -> str:
    """Of a region that of its first product, else of its first node."""
    if isinstance(node, Region):
        found = [family(inner) for inner in node.nodes]
        return "product" if "product" in found else found[0]
    return _FAMILY[type(node)]


def kind(graph: Graph, node: Node) -> str:
    """What a node is in a word or two: `Conv (depthwise)`, `Map (mul, sigmoid)`, `Reduce (mean)`."""
    match node:
        case Conv():
            outputs, inputs, *window = graph.tensor(node.inputs[1]).shape
            if node.group > 1 and inputs == 1 and outputs >= node.group:
                return "Conv (depthwise)"
            return "Conv (1x1)" if set(window) == {1} else "Conv"
        case Map():
            return f"Map ({_function(node.expression)})"
        case Reduce():
            return f"Reduce ({node.kind})"
        case Region():
            return f"Region ({', '.join(inner.op for inner in node.nodes)})"
        case _:
            return node.op


def _function(expression: Expression) -> str:
    """The name of an elementwise operator whose expression it is; else the first operations of it."""
    steps = list(expression.steps)
    while steps and steps[-1].op == "round":
        steps.pop()
    if known := _known_functions().get(tuple(steps)):
        return known
    names = list(dict.fromkeys(step.op for step in steps if step.op not in _CONVERSIONS))
    return ", ".join([*names[:_SHOWN], *(["..."] if len(names) > _SHOWN else [])]) or "cast"


class _Defaults:
    """A node all of whose attributes have their default values."""

    def number(self, name: str, default: float) -> float:
        return default

    def integer(self, name: str, default: int) -> int:
        return default

    def text(self, name: str, default: str) -> str:
        return default


@cache
def _known_functions() -> Mapping[tuple[Step, ...], str]:
    """ONNX's elementwise operators of one number, by their steps."""
    found: dict[tuple[Step, ...], str] = {}
    for name, operator in OPERATORS.items():
        try:
            made = trace(partial(operator.function, _Defaults()), "real")
        except (TypeError, InvalidModel):  # of two numbers, or of truth values
            continue
        found.setdefault(made.steps, name.lower())
    return found


@dataclass(frozen=True)
class Island:
    """Connected nodes that compute in another float type than the rest.

    Attributes:
        dtype: the type.
        nodes: how many.
    """

    dtype: str
    nodes: int


@dataclass(frozen=True)
class Precision:
    """In which types a network computes.

    Attributes:
        activations: nodes by the dtype of what they compute, quantised or float; the ends of a quantised
            network (`sdk.segments.boundary`), indices and truth values are left out.
        quantized: whether any activation is.
        weights: of quantised products: "int8 per channel", "uint8 per tensor"; with their numbers.
        islands: what computes in another type than most.
    """

    activations: Mapping[str, int]
    quantized: bool
    weights: Mapping[str, int]
    islands: Sequence[Island]

    @property
    def words(self) -> str:
        """`quantised uint8, weights int8 per channel, 2 float32 islands (9 nodes)`."""
        mostly = [name for name in self.activations if name not in {one.dtype for one in self.islands}]
        text = " and ".join(mostly) or "integers"
        if self.quantized:
            text = f"quantised {text}"
            if self.weights:
                text += f", weights {' and '.join(self.weights)}"
        for dtype in dict.fromkeys(one.dtype for one in self.islands):
            sizes = [one.nodes for one in self.islands if one.dtype == dtype]
            text += f", {_count(len(sizes), f'{dtype} island')} ({_count(sum(sizes), 'node')})"
        return text


@dataclass(frozen=True)
class Work:
    """Of the nodes of one kind, or of one family.

    Attributes:
        name: `kind` of the nodes, or the family's name.
        family: theirs.
        nodes: how many.
        macs: multiply-accumulates.
        constant_bytes: of the constants that only they read; what several kinds read counts for the first.
    """

    name: str
    family: str
    nodes: int
    macs: int
    constant_bytes: int


@dataclass(frozen=True)
class Figures:
    """Of a graph.

    Attributes:
        precision: in which types it computes.
        parameters: elements of its float and quantised constants.
        constant_bytes: of all constants.
        macs: multiply-accumulates of the whole network.
        kinds: work by kind of node, the most work first.
        families: work by family.
        live_peak: bytes, the largest sum of activations alive at once in the order of execution: an estimate
            of the memory that a target needs, whose buffers are aligned and whose order may differ.
        states: pairs (output, input) that are fed back, found by their names.
    """

    precision: Precision
    parameters: int
    constant_bytes: int
    macs: int
    kinds: Sequence[Work]
    families: Sequence[Work]
    live_peak: int
    states: Pairs


def figures(graph: Graph) -> Figures:
    """The figures of a verified graph."""
    constants = [tensor for tensor in graph.tensors.values() if tensor.data is not None]
    kinds, families = _work(graph)
    return Figures(
        precision=precision(graph),
        parameters=sum(one.size for one in constants if one.quantization or dtypes.is_float(one.dtype)),
        constant_bytes=sum(one.nbytes for one in constants),
        macs=graph.macs,
        kinds=kinds,
        families=families,
        live_peak=_live_peak(graph),
        states=find_states(graph),
    )


# -- precision ------------------------------------------------------------------------------------------


def precision(graph: Graph) -> Precision:
    """In which types a graph computes."""
    ends = boundary(graph)
    types = {node.name: _computes_in(graph, node) for node in graph.nodes if node.name not in ends}
    quantized = any(one is not None and one[1] for one in types.values())
    computing = Counter(one for one in types.values() if one is not None)
    if quantized:
        usual = {one for one in computing if one[1]}
    else:
        usual = {_usual(graph, types)} if computing else set()
    found = _islands(graph, {name: one[0] for name, one in types.items() if one and one not in usual})
    apart = {one.dtype for one in found}
    activations = {
        dtype: count for (dtype, _), count in computing.most_common() if (dtype, quantized) in usual
    }
    activations |= {dtype: sum(one.nodes for one in found if one.dtype == dtype) for dtype in sorted(apart)}
    return Precision(activations, quantized, _weights(graph) if quantized else {}, found)


def _computes_in(graph: Graph, node: Node) -> tuple[str, bool] | None:
    """The dtype of a node's result and whether it is quantised; None of what does not compute.

    That are moves, casts, changes between quantised and float, and what makes indices and truth values.
    """
    output = graph.tensor(node.output)
    if isinstance(node, Quantize | Dequantize) or (family(node) == "move" and not output.quantization):
        return None
    if isinstance(node, Map) and kind(graph, node) == "Map (cast)" and not output.quantization:
        return None
    if output.quantization is None and not dtypes.is_float(output.dtype):
        return None
    return output.dtype, output.quantization is not None


def _usual(graph: Graph, types: Mapping[str, tuple[str, bool] | None]) -> tuple[str, bool]:
    """The type of most products, or of most nodes where there are none."""
    products = Counter(types.get(node.name) for node in graph.nodes if family(node) == "product")
    for counted in (products, Counter(types.values())):
        for one, _ in counted.most_common():
            if one is not None:
                return one
    raise AssertionError("a type is known to be there")


def _islands(graph: Graph, types: Mapping[str, str]) -> list[Island]:
    """Connected nodes of the same dtype; moves of that dtype and of no other connect them too."""
    roots: dict[str, str] = {}

    def root(name: str) -> str:
        while roots[name] != name:
            roots[name] = roots[roots[name]]
            name = roots[name]
        return name

    counts: dict[str, int] = {}
    for node in graph.nodes:  # a set of tensors, each named by one of them
        dtype = types.get(node.name)
        tensor = graph.tensor(node.output)
        connects = dtype is not None or (family(node) == "move" and tensor.dtype in types.values())
        if not connects or tensor.quantization is not None:
            continue
        roots[node.output] = node.output
        counts[node.output] = int(dtype is not None)
        for name in node.inputs:
            if name in roots and graph.tensor(name).dtype == tensor.dtype and root(name) != node.output:
                joined = root(name)
                counts[node.output] += counts.pop(joined)
                roots[joined] = node.output
    return [Island(graph.tensor(name).dtype, count) for name, count in counts.items() if count]


def _weights(graph: Graph) -> dict[str, int]:
    found: Counter[str] = Counter()
    for node in graph.nodes:
        for inner in node.nodes if isinstance(node, Region) else (node,):
            if family(inner) == "product" and len(inner.inputs) > 1:
                weight = graph.tensor(inner.inputs[1])
                if weight.data is not None and weight.quantization is not None:
                    one = "per tensor" if weight.quantization.axis is None else "per channel"
                    found[f"{weight.dtype} {one}"] += 1
    return dict(found.most_common())


# -- work and memory ------------------------------------------------------------------------------------


def _work(graph: Graph) -> tuple[list[Work], list[Work]]:
    read: set[str] = set()
    kinds: dict[str, Work] = {}
    families: dict[str, Work] = {}
    for node in graph.nodes:
        new = [name for name in _constants(graph, node) if name not in read]
        read.update(new)
        one = Work(
            kind(graph, node),
            family(node),
            1,
            macs(graph, node),
            sum(graph.tensor(name).nbytes for name in new),
        )
        for name, sums in ((one.name, kinds), (one.family, families)):
            before = sums.get(name, Work(name, one.family, 0, 0, 0))
            sums[name] = Work(
                name,
                one.family,
                before.nodes + 1,
                before.macs + one.macs,
                before.constant_bytes + one.constant_bytes,
            )
    return _most_first(kinds.values()), _most_first(families.values())


def _most_first(works: Iterable[Work]) -> list[Work]:
    return sorted(works, key=lambda work: (-work.macs, -work.nodes, work.name))


def _constants(graph: Graph, node: Node) -> list[str]:
    inner = node.nodes if isinstance(node, Region) else (node,)
    names = dict.fromkeys(name for one in inner for name in one.inputs)
    return [name for name in names if graph.tensor(name).data is not None]


def _live_peak(graph: Graph) -> int:
    """A Reshape shares the memory of its input; inputs live from the start, outputs to the end."""
    owners: dict[str, Tensor] = {name: graph.tensor(name) for name in graph.inputs}
    first = dict.fromkeys(graph.inputs, 0)
    last = dict.fromkeys(graph.inputs, 0)
    for moment, node in enumerate(graph.nodes, 1):
        source = owners.get(node.inputs[0]) if isinstance(node, Reshape) else None
        owner = owners[node.output] = source or graph.tensor(node.output)
        first.setdefault(owner.name, moment)
        for name in (*node.inputs, node.output):
            if name in owners:
                last[owners[name].name] = moment
    for name in graph.outputs:
        if name in owners:
            last[owners[name].name] = len(graph.nodes)
    return live_peak((first[name], last[name], graph.tensor(name).nbytes) for name in first)


# -- words ----------------------------------------------------------------------------------------------


def shape(extents: Sequence[int | str]) -> str:
    """`1x3x224x224`; `scalar`."""
    return "x".join(map(str, extents)) or "scalar"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def share(part: int, whole: int) -> float:
    """In per cent; 0 of nothing."""
    return 100 * part / whole if whole and math.isfinite(whole) else 0.0
