"""Quantize and Dequantize within a network: from floats to integers that stand for them, and back."""

from __future__ import annotations

import numpy as np

from sdk.errors import InternalError
from sdk.expression import apply, trace
from sdk.graph import Array, Dequantize, Quantize, Tensor
from sdk.opencl import text
from sdk.opencl.context import PlainContext
from sdk.opencl.maps import Operand, launch
from sdk.opencl.views import View
from sdk.opencl.windows import each_element
from sdk.verification import INTEGER_RANGE

_REAL = trace(lambda q, zero, scale: apply("real", q - zero) * scale, "int", "int", "real")


def dequantize(context: PlainContext, node: Dequantize) -> None:
    """``float32(q - zero_point) * scale``."""
    x, tensor = context.view(node.inputs[0]), context.graph.tensor(node.inputs[0])
    scale, zero_point = _numbers(context, tensor)
    operands = [Operand(x), Operand(zero_point), Operand(scale)]
    launch(context, node, node.op, _REAL, operands, context.new_view(context.graph.tensor(node.output)))


def quantize(context: PlainContext, node: Quantize) -> None:
    """``saturate(rint(x / scale) + zero_point)``; the division is IEEE's."""
    tensor = context.graph.tensor(node.output)
    x, y = context.view(node.inputs[0]), context.new_view(tensor)
    scale, zero_point = (view.broadcast(y.shape) for view in _numbers(context, tensor))
    names = [f"a{axis}" for axis in range(len(y.shape))]
    low, high = INTEGER_RANGE[tensor.dtype]

    def load(view: View, name: str) -> str:
        return text.load(view, name, text.place(names, view.steps))

    body = [
        f"  float real = rint(quotient({load(x, 'x')}, {load(scale, 'w0')}));",
        f"  long value = {load(zero_point, 'w1')};",
        "  value += real != real ? 0 : (long)(real < -1e6f ? -1e6f : real > 1e6f ? 1e6f : real);",
        f"  value = value < {low} ? {low} : value > {high} ? {high} : value;",
        f"  store_{y.dtype}(y + to * {y.itemsize}, value);",
    ]
    each_element(context, node, y, body, [x, scale, zero_point], names)


def _numbers(context: PlainContext, tensor: Tensor) -> tuple[View, View]:
    """Scale (float32) and zero-point (int32), which broadcast to the tensor."""
    quantization = tensor.quantization
    if quantization is None:
        raise InternalError(f"{tensor.name} is not quantised")
    shape = [1] * len(tensor.shape)
    if quantization.axis is not None:
        shape[quantization.axis] = -1

    def view(array: Array) -> View:
        return context.constant_view(np.ascontiguousarray(array).reshape(shape))

    return view(quantization.scale.astype(np.float32)), view(quantization.zero_point.astype(np.int32))
