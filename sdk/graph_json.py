"""Graphs as JSON: structure readable, bulk data by its place, the member of the artefact and an offset in it.

Bulk data is tensor data, and per-channel scales and zero-points, little-endian. What a program's weights hold
as it is stands there alone; the rest is in `constants.bin`, each distinct run of bytes once, at multiples of
64 bytes. Per-tensor scales are JSON numbers (a double holds a float32).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from bisect import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, get_type_hints

import numpy as np

from sdk.arena import Blob
from sdk.codec import Rule, from_json, length, reported, require, shown, to_json, within
from sdk.dtypes import DTYPES, storage
from sdk.errors import InvalidModel
from sdk.graph import (
    LARGEST_TENSOR,
    OPERATORS,
    Array,
    Fill,
    Graph,
    Node,
    Quantization,
    Recurrent,
    Region,
    Resize,
    Slice,
    Take,
    Tensor,
)
from sdk.weights import Weights, address, digest, raw

CONSTANTS = "constants.bin"
ALIGNMENT = 64

LARGEST_ATTRIBUTE = 2**16
"""Of the numbers of a node: time and memory of windows grow with them. Those of EXTENTS count elements."""

NESTING = 8
"""Bodies of recurrences, and regions, in one another."""

Place = tuple[str, Annotated[int, within(0, 1 << 63)]]
"""A member and an offset in it."""

Extent = Annotated[int, within(1, LARGEST_TENSOR + 1)]
Scale = Annotated[float, Rule("a positive float32", lambda scale: 0 < scale < 3.4e38)]
Dtype = Annotated[str, Rule(f"one of {', '.join(DTYPES)}", lambda dtype: dtype in DTYPES)]


@dataclass(frozen=True)
class QuantizationJson:
    """Per tensor: the numbers. Per channel: where they are, float32 and int32."""

    scale: Scale | Place
    zero_point: int | Place
    axis: Annotated[int, within(0, 32)] | None

    def __post_init__(self) -> None:
        per_tensor = self.axis is None
        for value, name in ((self.scale, "scale"), (self.zero_point, "zero_point")):
            require(
                isinstance(value, tuple) != per_tensor, "with an axis, and only then, it is a place", name
            )
        if isinstance(self.zero_point, int):
            require(-128 <= self.zero_point <= 255, f"{self.zero_point} is out of range", "zero_point")


@dataclass(frozen=True)
class TensorJson:
    """A tensor; `data` is where its elements are."""

    name: str
    shape: Annotated[Sequence[Extent], length(0, 32)]
    dtype: Dtype
    quantization: QuantizationJson | None
    data: Place | None

    def __post_init__(self) -> None:
        require(math.prod(self.shape) <= LARGEST_TENSOR, f"over {LARGEST_TENSOR} elements", "shape")
        if (q := self.quantization) is not None and q.axis is not None:
            require(q.axis < len(self.shape), f"there is no axis {q.axis}", "quantization", "axis")


@dataclass(frozen=True)
class GraphJson:
    """A graph; nodes are read by their operator."""

    name: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    tensors: Sequence[TensorJson]
    nodes: Sequence[Any]
    metadata: Mapping[str, str]

    def __post_init__(self) -> None:
        names = {tensor.name for tensor in self.tensors}
        require(len(names) == len(self.tensors), "two of them share a name", "tensors")


# -- writing --------------------------------------------------------------------------------------------


class Constants:
    """Where the bulk data of graphs goes: what programs' weights hold stays there, the rest makes a member.

    Args:
        weights: of the programs, by member.
    """

    def __init__(self, weights: Mapping[str, Weights]) -> None:
        self._blob = Blob(ALIGNMENT)
        self._pieces = sorted(
            (address(piece), member, offset, piece)
            for member, one in weights.items()
            for offset, piece in one.pieces
            if piece.nbytes
        )
        self._digests: dict[int, dict[bytes, Place]] = {}

    def add(self, array: Array) -> Place:
        """Where an array's bytes are to be read."""
        found = raw(array)
        here = address(found)
        index = bisect(self._pieces, here, key=lambda entry: entry[0]) - 1
        if index >= 0:  # the very memory of a piece, or a part of it
            start, member, offset, piece = self._pieces[index]
            if here - start + found.nbytes <= piece.nbytes:
                return member, offset + here - start
        if (known := self._alike(found.nbytes)) and (place := known.get(digest(found))):
            return place
        return CONSTANTS, self._blob.add(array)

    def _alike(self, nbytes: int) -> dict[bytes, Place]:
        """The pieces of a length by their digests, which take reading them all."""
        if nbytes not in self._digests:
            pieces = sorted(one[1:] for one in self._pieces if one[3].nbytes == nbytes)
            self._digests[nbytes] = {digest(piece): (member, offset) for member, offset, piece in pieces}
        return self._digests[nbytes]

    def weights(self) -> Weights:
        """What the member is to hold."""
        return self._blob.weights()


def graph_to_json(graph: Graph, constants: Constants) -> dict[str, Any]:
    """The graph as plain JSON values; its bulk data is added to `constants`."""
    nodes = [_node_to_json(node, constants) for node in graph.nodes]
    with reported(graph.name, InvalidModel):
        tensors = [_tensor_to_json(tensor, constants) for tensor in graph.tensors.values()]
        made = GraphJson(graph.name, graph.inputs, graph.outputs, tensors, nodes, graph.metadata)
    document: dict[str, Any] = to_json(made)
    return document


def _tensor_to_json(tensor: Tensor, constants: Constants) -> TensorJson:
    quantization = None
    if (q := tensor.quantization) is not None:
        quantization = QuantizationJson(
            float(q.scale) if q.axis is None else constants.add(q.scale),
            int(q.zero_point) if q.axis is None else constants.add(q.zero_point),
            q.axis,
        )
    data = None if tensor.data is None else constants.add(tensor.data)
    return TensorJson(tensor.name, tensor.shape, tensor.dtype, quantization, data)


def _node_to_json(node: Node, constants: Constants) -> dict[str, Any]:
    document = node_to_json(node)
    if isinstance(node, Recurrent):
        document["body"] = graph_to_json(node.body, constants)
    if isinstance(node, Region):
        document["nodes"] = [_node_to_json(inner, constants) for inner in node.nodes]
    return document


def node_to_json(node: Node) -> dict[str, Any]:
    """A node as plain JSON values, `op` included; of the body of a recurrence its nodes."""
    fields = dict(vars(node))
    if isinstance(node, Recurrent):
        fields["body"] = [node_to_json(inner) for inner in node.body.nodes]
    if isinstance(node, Region):
        fields["nodes"] = [node_to_json(inner) for inner in node.nodes]
    return {"op": node.op, **to_json(fields)}


# -- reading --------------------------------------------------------------------------------------------


@dataclass
class Members:
    """What graphs read their bulk data from.

    Attributes:
        views: the bytes of each member.
        readers: what was read: member, first byte, the one behind the last, and the tensor's name.
    """

    views: Mapping[str, memoryview]
    readers: list[tuple[str, int, int, str]] = field(default_factory=list)

    def read(self, place: Any, shape: tuple[int, ...], dtype: str, tensor: str, where: str) -> Array:
        """An array, as a view of the member."""
        member, offset = place
        count = math.prod(shape)
        little = storage(dtype).newbyteorder("<")
        end = offset + count * little.itemsize
        if member not in self.views or end > self.views[member].nbytes:
            raise InvalidModel(f"it is outside of {shown(member)}", where=where)
        self.readers.append((member, offset, end, tensor))
        array = np.frombuffer(self.views[member], little, count, offset).reshape(shape)
        return array.astype(storage(dtype), copy=False)

    def within(self, member: str, first: int, end: int) -> list[str]:
        """The tensors that read bytes of a member, from the first up to the end."""
        found = {
            tensor: None
            for one, start, stop, tensor in self.readers
            if one == member and start < end and first < stop
        }
        return list(found)


def graph_from_json(document: Any, members: Members, where: str = "graph") -> Graph:
    """Rebuild a graph; `sdk.verification.verify` still has to check it.

    Args:
        document: as `graph_to_json` made it.
        members: what it reads its bulk data from, of which nothing is touched yet.
        where: what it is, for errors.

    Raises:
        InvalidModel: a field is missing, surplus or ill-typed, or data lies outside its member.
    """
    return _graph(from_json(GraphJson, document, where, InvalidModel), members, where, NESTING)


def _graph(found: GraphJson, members: Members, where: str, nesting: int) -> Graph:
    return Graph(
        name=found.name,
        inputs=tuple(found.inputs),
        outputs=tuple(found.outputs),
        tensors={
            tensor.name: _tensor(tensor, members, f"{where}.tensors[{number}]")
            for number, tensor in enumerate(found.tensors)
        },
        nodes=_nodes(found.nodes, members, where, nesting),
        metadata=dict(found.metadata),
    )


def _tensor(found: TensorJson, members: Members, where: str) -> Tensor:
    shape, name = tuple(found.shape), found.name
    quantization = None
    if (q := found.quantization) is not None:
        if q.axis is None:
            quantization = Quantization(np.asarray(q.scale, np.float32), np.asarray(q.zero_point, np.int32))
        else:
            channels, parts = (shape[q.axis],), f"{where}.quantization"
            scale = members.read(q.scale, channels, "float32", name, f"{parts}.scale")
            zero_point = members.read(q.zero_point, channels, "int32", name, f"{parts}.zero_point")
            quantization = Quantization(scale, zero_point, q.axis)
    data = None
    if found.data is not None:
        data = members.read(found.data, shape, found.dtype, name, f"{where}.data")
    return Tensor(name, shape, found.dtype, quantization, data)


def _nodes(documents: Sequence[Any], members: Members, where: str, nesting: int) -> tuple[Node, ...]:
    return tuple(
        _node(document, members, f"{where}.nodes[{number}]", nesting)
        for number, document in enumerate(documents)
    )


def _node(document: Any, members: Members, where: str, nesting: int) -> Node:
    if not isinstance(document, dict):
        raise InvalidModel(f"{shown(document)} is not a node", where=where)
    operator = document.get("op")
    if not isinstance(operator, str) or (cls := OPERATORS.get(operator)) is None:
        raise InvalidModel(f"{shown(operator)} is not an operator", where=where)
    found = from_json(_form(operator), {k: v for k, v in document.items() if k != "op"}, where, InvalidModel)
    fields = dict(vars(found))
    limit = LARGEST_TENSOR if cls in EXTENTS else LARGEST_ATTRIBUTE
    for name, value in fields.items():
        numbers = value if isinstance(value, tuple) else (value,)
        if any(isinstance(number, int) and abs(number) > limit for number in numbers):
            raise InvalidModel(f"a number exceeds {limit}", where=f"{where}.{name}")
    if cls in (Recurrent, Region) and not nesting:
        raise InvalidModel(f"they are nested more than {NESTING} deep", where=where)
    if cls is Recurrent:
        fields["body"] = _graph(fields["body"], members, f"{where}.body", nesting - 1)
    if cls is Region:
        fields["nodes"] = _nodes(fields["nodes"], members, where, nesting - 1)
    return cls(**fields)


EXTENTS = (Fill, Recurrent, Resize, Slice, Take)


@functools.cache
def _form(operator: str) -> Any:
    """A node's fields, with what a graph and nodes are in JSON in place of them."""
    inner = {"body": GraphJson, "nodes": Sequence[Any]}
    cls = OPERATORS[operator]
    hints = get_type_hints(cls, include_extras=True)
    fields = [(one.name, inner.get(one.name, hints[one.name])) for one in dataclasses.fields(cls)]
    return dataclasses.make_dataclass(cls.__name__, fields, frozen=True)
