"""The nodes of a float model that multiply by constant weights, with their weights as rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sdk.extras import require


@dataclass(frozen=True)
class Product:
    """A Conv, Gemm or MatMul with a constant right side of two or more dimensions.

    Attributes:
        node: of the model (onnx.NodeProto).
        axis: of the weights, that of the output channels.
    """

    node: Any
    axis: int

    @property
    def weight(self) -> str:
        """Name of the weights."""
        return str(self.node.input[1])

    @property
    def bias(self) -> str:
        """Name of the bias; "" without."""
        return str(self.node.input[2]) if len(self.node.input) > 2 else ""

    @property
    def channel_axis(self) -> int:
        """Of the result, that of the output channels."""
        return 1 if self.node.op_type == "Conv" else -1

    def rows(self, array: NDArray[Any]) -> NDArray[Any]:
        """Weights as [output channels, rest]."""
        moved = np.moveaxis(array, self.axis, 0)
        return moved.reshape(len(moved), -1)

    def from_rows(self, rows: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        """The inverse of `rows`."""
        moved = (shape[self.axis], *(size for axis, size in enumerate(shape) if axis != self.axis))
        return np.ascontiguousarray(np.moveaxis(rows.reshape(moved), 0, self.axis))

    def attribute(self, name: str, default: Any) -> Any:
        """An attribute of the node."""
        helper = require("onnx.helper")
        found = [entry for entry in self.node.attribute if entry.name == name]
        return helper.get_attribute_value(found[0]) if found else default


def products(model: Any) -> list[Product]:
    """Of a prepared model, in graph order."""
    ranks = {tensor.name: len(tensor.dims) for tensor in model.graph.initializer}
    found = []
    for node in model.graph.node:
        if node.op_type not in ("Conv", "Gemm", "MatMul") or ranks.get(node.input[1], 0) < 2:
            continue
        product = Product(node, 0)
        if node.op_type == "Gemm" and not product.attribute("transB", 0):
            product = Product(node, 1)
        elif node.op_type == "MatMul":
            product = Product(node, ranks[node.input[1]] - 1)
        found.append(product)
    return found


def constants(model: Any) -> dict[str, NDArray[Any]]:
    """Initialisers of a model by name."""
    to_array = require("onnx.numpy_helper").to_array
    return {tensor.name: to_array(tensor) for tensor in model.graph.initializer}


def replaced(model: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    """A copy of a model with some of its initialisers replaced."""
    onnx = require("onnx")
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for tensor in result.graph.initializer:
        if tensor.name in arrays:
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.float32(arrays[tensor.name]), tensor.name))
    return result
