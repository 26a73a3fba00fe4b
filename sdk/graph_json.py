"""Graphs as JSON: structure readable, bulk data by offset into one blob.

Tensor data and per-channel scales and zero-points go to the blob, little-endian, each distinct run of
bytes once, at multiples of 64 bytes; per-tensor scales are JSON numbers (a double holds a float32).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from sdk.codec import Rule, from_json, length, reported, require, shown, to_json, within
from sdk.errors import InvalidModel
from sdk.graph import (
    DTYPES,
    LARGEST_TENSOR,
    OPERATORS,
    Array,
    Graph,
    Node,
    Quantization,
    Tensor,
    node_to_json,
)

ALIGNMENT = 64
LARGEST_ATTRIBUTE = 2**16

Offset = Annotated[int, within(0, 1 << 63)]
Extent = Annotated[int, within(1, LARGEST_TENSOR + 1)]
Scale = Annotated[float, Rule("a positive float32", lambda scale: 0 < scale < 3.4e38)]
Dtype = Annotated[str, Rule(f"one of {', '.join(DTYPES)}", lambda dtype: dtype in DTYPES)]


@dataclass(frozen=True)
class QuantizationJson:
    """Per tensor: the numbers. Per channel: where they are in the blob, float32 and int32."""

    scale: Scale | Offset
    zero_point: int
    axis: Annotated[int, within(0, 32)] | None

    def __post_init__(self) -> None:
        per_tensor = self.axis is None
        require(isinstance(self.scale, float) == per_tensor, "with an axis it is an offset", "scale")
        sound = -128 <= self.zero_point <= 255 if per_tensor else self.zero_point >= 0
        require(sound, f"{self.zero_point} is out of range", "zero_point")


@dataclass(frozen=True)
class TensorJson:
    """A tensor; `data` is where its elements are in the blob."""

    name: str
    shape: Annotated[Sequence[Extent], length(0, 32)]
    dtype: Dtype
    quantization: QuantizationJson | None
    data: Offset | None

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


class Constants:
    """The blob being written: distinct runs of bytes, in order of first appearance."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._offsets: dict[bytes, int] = {}

    def add(self, array: Array) -> int:
        """Offset of the array's bytes."""
        raw = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False).tobytes()
        if raw not in self._offsets:
            self._data.extend(bytes(-len(self._data) % ALIGNMENT))
            self._offsets[raw] = len(self._data)
            self._data.extend(raw)
        return self._offsets[raw]

    def data(self) -> bytes:
        return bytes(self._data)


def graph_to_json(graph: Graph, constants: Constants) -> dict[str, Any]:
    """The graph as plain JSON values; its bulk data is added to `constants`."""
    nodes = [node_to_json(node) for node in graph.nodes]
    with reported(graph.name, InvalidModel):
        tensors = [_tensor_to_json(tensor, constants) for tensor in graph.tensors.values()]
        made = GraphJson(graph.name, graph.inputs, graph.outputs, tensors, nodes, graph.metadata)
    document: dict[str, Any] = to_json(made)
    return document


def graph_from_json(document: Any, constants: bytes) -> Graph:
    """Rebuild a graph; `sdk.passes.verify` still has to check it.

    Raises:
        InvalidModel: a field is missing, surplus or ill-typed, or data lies outside the blob.
    """
    found = from_json(GraphJson, document, "graph", InvalidModel)
    return Graph(
        name=found.name,
        inputs=tuple(found.inputs),
        outputs=tuple(found.outputs),
        tensors={
            tensor.name: _tensor(tensor, constants, f"graph.tensors[{number}]")
            for number, tensor in enumerate(found.tensors)
        },
        nodes=tuple(_node(node, f"graph.nodes[{number}]") for number, node in enumerate(found.nodes)),
        metadata=dict(found.metadata),
    )


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


def _tensor(found: TensorJson, constants: bytes, where: str) -> Tensor:
    shape = tuple(found.shape)
    quantization = None
    if (q := found.quantization) is not None:
        if q.axis is None:
            quantization = Quantization.per_tensor(q.scale, q.zero_point)
        else:
            channels, parts = (shape[q.axis],), f"{where}.quantization"
            scale = _take(constants, int(q.scale), channels, "float32", f"{parts}.scale")
            zero_point = _take(constants, q.zero_point, channels, "int32", f"{parts}.zero_point")
            quantization = Quantization(scale, zero_point, q.axis)
    data = None
    if found.data is not None:
        data = _take(constants, found.data, shape, found.dtype, f"{where}.data")
    return Tensor(found.name, shape, found.dtype, quantization, data)


def _take(constants: bytes, offset: int, shape: tuple[int, ...], dtype: str, where: str) -> Array:
    count = math.prod(shape)
    little = DTYPES[dtype].newbyteorder("<")
    if offset + count * little.itemsize > len(constants):
        raise InvalidModel("it lies outside of constants.bin", where=where)
    array = np.frombuffer(constants, little, count, offset).reshape(shape)
    return array.astype(DTYPES[dtype], copy=False)


def _node(document: Any, where: str) -> Node:
    operator = document.get("op") if isinstance(document, dict) else document
    if not isinstance(operator, str) or (cls := OPERATORS.get(operator)) is None:
        raise InvalidModel(f"{shown(operator)} is not an operator", where=where)
    fields = {name: value for name, value in document.items() if name != "op"}
    node = from_json(cls, fields, where, InvalidModel)
    for name, value in vars(node).items():
        numbers = value if isinstance(value, tuple) else (value,)
        if any(isinstance(number, int) and abs(number) > LARGEST_ATTRIBUTE for number in numbers):
            raise InvalidModel(f"a number exceeds {LARGEST_ATTRIBUTE}", where=f"{where}.{name}")
    return node
