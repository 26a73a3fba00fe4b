"""Graphs as JSON: structure readable, bulk data by offset into one blob.

Tensor data and per-channel scales and zero-points go to the blob, little-endian, each distinct run of
bytes once, at multiples of 64 bytes; per-tensor scales are JSON numbers (a double holds a float32).
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Mapping
from typing import Any, get_args, get_origin

import numpy as np

from sdk.dtypes import DTYPES, storage
from sdk.errors import InvalidModel
from sdk.graph import (
    LARGEST_TENSOR,
    OPERATORS,
    Array,
    Graph,
    Node,
    Quantization,
    Tensor,
    node_from_json,
    node_to_json,
)

ALIGNMENT = 64
LARGEST_ATTRIBUTE = 2**16


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
    return {
        "name": graph.name,
        "inputs": list(graph.inputs),
        "outputs": list(graph.outputs),
        "tensors": [_tensor_to_json(tensor, constants) for tensor in graph.tensors.values()],
        "nodes": [node_to_json(node) for node in graph.nodes],
        "metadata": dict(graph.metadata),
    }


def graph_from_json(document: Any, constants: bytes) -> Graph:
    """Rebuild a graph; `sdk.passes.verify` still has to check it.

    Raises:
        InvalidModel: a field is missing, surplus or ill-typed, or data lies outside the blob.
    """
    fields = _fields(document, {"name", "inputs", "outputs", "tensors", "nodes", "metadata"}, "graph")
    metadata = fields["metadata"]
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise InvalidModel("metadata is not strings by name")
    tensors = [_tensor_from_json(tensor, constants) for tensor in _list(fields["tensors"], "tensors")]
    if len({tensor.name for tensor in tensors}) != len(tensors):
        raise InvalidModel("two tensors share a name")
    return Graph(
        name=_string(fields["name"], "name"),
        inputs=tuple(_string(name, "inputs") for name in _list(fields["inputs"], "inputs")),
        outputs=tuple(_string(name, "outputs") for name in _list(fields["outputs"], "outputs")),
        tensors={tensor.name: tensor for tensor in tensors},
        nodes=tuple(_node_from_json(node) for node in _list(fields["nodes"], "nodes")),
        metadata=metadata,
    )


def _tensor_to_json(tensor: Tensor, constants: Constants) -> dict[str, Any]:
    quantization = None
    if (q := tensor.quantization) is not None:
        per_tensor = q.axis is None
        quantization = {
            "scale": float(q.scale) if per_tensor else constants.add(q.scale),
            "zero_point": int(q.zero_point) if per_tensor else constants.add(q.zero_point),
            "axis": q.axis,
        }
    return {
        "name": tensor.name,
        "shape": list(tensor.shape),
        "dtype": tensor.dtype,
        "quantization": quantization,
        "data": None if tensor.data is None else constants.add(tensor.data),
    }


def _tensor_from_json(document: Any, constants: bytes) -> Tensor:
    fields = _fields(document, {"name", "shape", "dtype", "quantization", "data"}, "tensor")
    name = _string(fields["name"], "tensor name")
    shape = tuple(_list(fields["shape"], name))
    whole = len(shape) <= 32 and all(_is_int(extent) and extent > 0 for extent in shape)
    if not whole or math.prod(shape) > LARGEST_TENSOR:
        raise InvalidModel(f"its shape is {list(shape[:32])}", where=f"tensor {name}")
    dtype = _string(fields["dtype"], name)
    if dtype not in DTYPES:
        raise InvalidModel(f"its dtype is {dtype!r}", where=f"tensor {name}")
    quantization = None
    if fields["quantization"] is not None:
        quantization = _quantization_from_json(fields["quantization"], shape, constants, name)
    data = None
    if fields["data"] is not None:
        data = _take(constants, fields["data"], shape, dtype, name)
    return Tensor(name, shape, dtype, quantization, data)


def _quantization_from_json(
    document: Any, shape: tuple[int, ...], constants: bytes, name: str
) -> Quantization:
    fields = _fields(document, {"scale", "zero_point", "axis"}, f"quantisation of {name}")
    scale, zero_point, axis = fields["scale"], fields["zero_point"], fields["axis"]
    if axis is None:
        if not isinstance(scale, float | int) or isinstance(scale, bool) or not 0 < scale < 3.4e38:
            raise InvalidModel(f"its scale is {scale!r}", where=f"tensor {name}")
        if not _is_int(zero_point) or not -128 <= zero_point <= 255:
            raise InvalidModel(f"its zero-point is {zero_point!r}", where=f"tensor {name}")
        return Quantization.per_tensor(float(scale), zero_point)
    if not _is_int(axis) or not 0 <= axis < len(shape):
        raise InvalidModel(f"its quantisation axis is {axis!r}", where=f"tensor {name}")
    channels = (shape[axis],)
    return Quantization(
        _take(constants, scale, channels, "float32", name),
        _take(constants, zero_point, channels, "int32", name),
        axis,
    )


def _take(constants: bytes, offset: Any, shape: tuple[int, ...], dtype: str, name: str) -> Array:
    count = math.prod(shape)
    little = storage(dtype).newbyteorder("<")
    if not _is_int(offset) or offset < 0 or offset + count * little.itemsize > len(constants):
        raise InvalidModel("its data lies outside constants.bin", where=f"tensor {name}")
    array = np.frombuffer(constants, little, count, offset).reshape(shape)
    return array.astype(storage(dtype), copy=False)


def _node_from_json(document: Any) -> Node:
    """`node_from_json`, once every field has the type that the operator declares."""
    if not isinstance(document, dict):
        raise InvalidModel("a node is not a JSON object")
    node = node_from_json(document)
    hints = typing.get_type_hints(OPERATORS[node.op])
    for item in dataclasses.fields(node):
        if not _matches(getattr(node, item.name), hints[item.name]):
            raise InvalidModel(f"{item.name} is ill-typed", where=f"node {document.get('name')}")
    return node


def _matches(value: Any, hint: Any) -> bool:
    if get_origin(hint) is tuple:
        items = get_args(hint)
        if not isinstance(value, tuple):
            return False
        if items[-1] is Ellipsis:
            return all(_matches(item, items[0]) for item in value)
        return len(value) == len(items) and all(map(_matches, value, items))
    if hint is int:
        return _is_int(value) and abs(value) <= LARGEST_ATTRIBUTE
    return isinstance(value, hint)


def _fields(document: Any, names: set[str], what: str) -> Mapping[str, Any]:
    if not isinstance(document, dict) or document.keys() != names:
        raise InvalidModel(f"a {what} must have the fields {', '.join(sorted(names))}")
    return document


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidModel(f"{what} is not a list")
    return value


def _string(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise InvalidModel(f"{what} is not a string")
    return value


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
