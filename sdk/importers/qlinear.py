"""Operators on integers as operators on what they mean: DequantizeLinear, the operator, QuantizeLinear.

onnxruntime's QLinear operators (QOperator format; its ContribOperators.md, and ONNX's Operators.md) name the
scale and zero-point of each operand and of the result; those that move or compare integers keep one scale.
Each is converted as the nodes that it stands for, so that there is one way to convert an operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sdk.extras import require
from sdk.graph import Array, Quantization
from sdk.importers.folding import shape_of
from sdk.importers.onnx_file import OnnxNode, decode_node
from sdk.importers.values import Constant, Quantized, QuantizedConstant, dequantized
from sdk.importers.walk import Walk

Handler = Callable[[Walk, OnnxNode], None]

FLOAT, INT32 = 1, 6
"""Types, as TensorProto.DataType numbers them."""

PER_CHANNEL_SINCE = 13
"""The opset from which QuantizeLinear and DequantizeLinear have an axis."""


class _Expansion:
    """The nodes that one node stands for, converted one by one.

    Args:
        walk: holds the values.
        node: the node.
        opset: of the operators it stands for; at least PER_CHANNEL_SINCE.
    """

    def __init__(self, walk: Walk, node: OnnxNode, opset: int = 0) -> None:
        self.walk, self.node = walk, node
        self.opset = opset or max(walk.opsets.get("", 0), PER_CHANNEL_SINCE)

    def name(self, part: str) -> str:
        return f"{self.node.output}/{part}"

    def constant(self, part: str, array: Array) -> str:
        self.walk.values[self.name(part)] = Constant(self.name(part), array)
        return self.name(part)

    def emit(self, op: str, inputs: Sequence[str], output: str, part: str = "", **attributes: Any) -> str:
        """Convert one of the nodes; without a `part` it is the one that has the node's name."""
        name = f"{self.node.name}/{part}" if part else self.node.name
        proto = require("onnx.helper").make_node(op, list(inputs), [output], name=name, **attributes)
        self.walk.convert(decode_node(proto, {**self.walk.opsets, "": self.opset}))
        return output

    def real(self, index: int, *, axis: int | None = None) -> str:
        """What the integers of input `index` mean, by the scale and zero-point that follow it."""
        if len(self.node.inputs) <= index + 1:
            raise self.node.invalid(f"{self.node.op_type} with {len(self.node.inputs)} inputs")
        names = [*self.node.inputs[index : index + 3], ""]
        attributes = {} if axis is None else {"axis": axis}
        output = self.name(f"real{index}")
        return self.emit("DequantizeLinear", names[:3], output, f"dequantize{index}", **attributes)

    def bias(self, index: int, *of: int) -> list[str]:
        """The int32 bias at input `index`, if any, in units of the product of the scales at inputs `of`."""
        value = self.walk.optional(self.node, index)
        if value is None:
            return []
        if not isinstance(value, Constant) or value.array.dtype != np.int32:
            raise self.node.unsupported(f"its bias {self.node.inputs[index]!r} is not an int32 constant")
        scales = [self.walk.constant(self.node, at).reshape(-1) for at in of]
        scale = np.prod(np.broadcast_arrays(*scales), axis=0, dtype=np.float32)
        inputs = [self.node.inputs[index], self.constant("bias_scale", scale if scale.size > 1 else scale[0])]
        return [self.emit("DequantizeLinear", inputs, self.name("bias"), "bias", axis=0)]

    def quantized(self, real: str, index: int) -> None:
        """The node's output: `real` by the scale and zero-point at inputs `index` and `index` + 1."""
        if len(self.node.inputs) <= index:
            raise self.node.invalid(f"{self.node.op_type} lacks the scale of its output")
        scale = self.node.inputs[index : index + 2]
        self.emit("QuantizeLinear", [real, *scale], self.node.output, "quantize")

    def attributes(self, *without: str) -> dict[str, Any]:
        return {name: value for name, value in self.node.attributes.items() if name not in without}

    def channels(self, real: str, *, last: bool, part: str) -> str:
        """A picture with its channels moved behind the others, or back, where the node has them last."""
        if not self.node.integer("channels_last", 0):
            return real
        rank = len(shape_of(self.walk, self.walk.values.get(real)) or ())
        order = [0, *range(2, rank), 1] if last else [0, rank - 1, *range(1, rank - 1)]
        return self.emit("Transpose", [real], self.name(part), part, perm=order)


# --- QLinear operators ----------------------------------------------------------------------------------


def _of(operator: str, operands: int = 1) -> Handler:
    """Operands and their scales, then the scale of the result."""

    def convert(walk: Walk, node: OnnxNode) -> None:
        """The operator of that name between DequantizeLinear and QuantizeLinear."""
        at = _Expansion(walk, node, node.integer("opset", 0))
        reals = [at.real(3 * index) for index in range(operands)]
        reals = [at.channels(real, last=False, part=f"first{i}") for i, real in enumerate(reals)]
        result = at.emit(operator, reals, at.name("result"), **at.attributes("opset", "channels_last"))
        at.quantized(at.channels(result, last=True, part="last"), 3 * operands)

    return convert


def _conv(walk: Walk, node: OnnxNode) -> None:
    """The operator of that name between DequantizeLinear and QuantizeLinear."""
    at = _Expansion(walk, node)
    x = at.channels(at.real(0), last=False, part="first")
    inputs = [x, at.real(3, axis=0), *at.bias(8, 1, 4)]
    result = at.emit("Conv", inputs, at.name("result"), **at.attributes("channels_last"))
    at.quantized(at.channels(result, last=True, part="last"), 6)


def _matmul(walk: Walk, node: OnnxNode) -> None:
    """The operator of that name between DequantizeLinear and QuantizeLinear."""
    at = _Expansion(walk, node)
    at.quantized(at.emit("MatMul", [at.real(0), at.real(3, axis=-1)], at.name("result")), 6)


def _gemm(walk: Walk, node: OnnxNode) -> None:
    """Gemm between DequantizeLinear and QuantizeLinear; without a scale of its result that stays float."""
    at = _Expansion(walk, node)
    weight = at.real(3, axis=0 if node.integer("transB", 0) else 1)
    inputs = [at.real(0), weight, *at.bias(6, 1, 4)]
    # The bias is in units of the accumulator: alpha is a factor of it too.
    attributes = at.attributes() | {"beta": node.number("alpha", 1.0)}
    float_result = walk.optional(node, 7) is None
    result = at.emit("Gemm", inputs, node.output if float_result else at.name("result"), **attributes)
    if not float_result:
        at.quantized(result, 7)


def _concat(walk: Walk, node: OnnxNode) -> None:
    """Concat; inputs of another scale than the result get a Requantize."""
    if len(node.inputs) < 5 or len(node.inputs) % 3 != 2:
        raise node.invalid(f"QLinearConcat with {len(node.inputs)} inputs")
    at = _Expansion(walk, node)
    reals = [at.real(index) for index in range(2, len(node.inputs), 3)]
    at.quantized(at.emit("Concat", reals, at.name("result"), **at.attributes()), 0)


def _where(walk: Walk, node: OnnxNode) -> None:
    """The operator of that name between DequantizeLinear and QuantizeLinear."""
    at = _Expansion(walk, node)
    at.quantized(at.emit("Where", [node.inputs[0], at.real(1), at.real(4)], at.name("result")), 7)


def _reduce_mean(walk: Walk, node: OnnxNode) -> None:
    """The operator of that name between DequantizeLinear and QuantizeLinear."""
    at = _Expansion(walk, node, PER_CHANNEL_SINCE)  # its axes are an attribute
    at.quantized(at.emit("ReduceMean", [at.real(0)], at.name("result"), **at.attributes()), 3)


# --- products of integers -------------------------------------------------------------------------------

DYNAMIC = (
    "dynamic quantisation computes scales at run time: run `towline quantize` on the float model that this "
    "was made of, which fixes them by example inputs, or compile that model as it is for the target c"
)
"""What to do about a model that was quantised dynamically."""

EXACT = 1 << 24
"""Below this, sums of integers are exact in float32."""


def _of_numbers(walk: Walk, node: OnnxNode) -> None:
    """The product of integers as floats, exact below 2^24; not where zero-points are computed at run time."""
    at, zero_points = _Expansion(walk, node), []
    for index in (2, 3):
        value = walk.optional(node, index)
        if value is not None and not isinstance(value, Constant):
            name = node.inputs[index]
            raise node.unsupported(
                f"the model is quantised dynamically: zero-point {name!r} is computed at run time", DYNAMIC
            )
        zero_points.append(None if value is None else value.array)
    reals, reach = [], []
    for index, zero_point in enumerate(zero_points):
        value = walk.value(node, index)
        if isinstance(value, Quantized):
            raise node.unsupported(
                f"it reads the integers of the quantised tensor {value.tensor!r}",
                f"write it as {node.op_type.removesuffix('Integer')} after DequantizeLinear",
            )
        real = at.emit("Cast", [node.inputs[index]], at.name(f"real{index}"), f"cast{index}", to=FLOAT)
        if zero_point is not None:
            if zero_point.size > 1 and node.op_type == "ConvInteger":
                zero_point = zero_point.reshape(-1, *[1] * (len(shape_of(walk, value) or ()) - 1))
            elif zero_point.ndim == 1 and zero_point.size > 1 and index == 0:
                zero_point = zero_point.reshape(-1, 1)  # one a row
            name = at.constant(f"zero_point{index}", zero_point.astype(np.float32))
            real = at.emit("Sub", [real, name], at.name(f"centred{index}"), f"centre{index}")
        reals.append(real)
        found = walk.values[real]
        reach.append(np.abs(found.array).max() if isinstance(found, Constant) else 255)
    weight = shape_of(walk, walk.value(node, 1)) or (1,)
    terms = int(np.prod(weight[1:])) if node.op_type == "ConvInteger" else weight[-2:][0]
    if terms * reach[0] * reach[1] >= EXACT:
        raise node.unsupported(
            f"sums of {terms} products of integers may exceed 2^24, beyond which float32 is not exact",
            DYNAMIC,
        )
    product = at.emit(node.op_type.removesuffix("Integer"), reals, at.name("product"), **at.attributes())
    rounded = at.emit("Round", [product], at.name("rounded"), "round")
    at.emit("Cast", [rounded], node.output, "cast", to=INT32)


QLINEAR: Mapping[tuple[str, str], Handler] = {
    ("", "ConvInteger"): _of_numbers,
    ("", "MatMulInteger"): _of_numbers,
    ("", "QLinearConv"): _conv,
    ("", "QLinearMatMul"): _matmul,
    ("com.microsoft", "QGemm"): _gemm,
    ("com.microsoft", "QLinearAdd"): _of("Add", 2),
    ("com.microsoft", "QLinearAveragePool"): _of("AveragePool"),
    ("com.microsoft", "QLinearConcat"): _concat,
    ("com.microsoft", "QLinearConv"): _conv,
    ("com.microsoft", "QLinearGlobalAveragePool"): _of("GlobalAveragePool"),
    ("com.microsoft", "QLinearLeakyRelu"): _of("LeakyRelu"),
    ("com.microsoft", "QLinearMul"): _of("Mul", 2),
    ("com.microsoft", "QLinearReduceMean"): _reduce_mean,
    ("com.microsoft", "QLinearSigmoid"): _of("Sigmoid"),
    ("com.microsoft", "QLinearSoftmax"): _of("Softmax"),
    ("com.microsoft", "QLinearWhere"): _where,
}


# --- operators that keep the scale of integers ----------------------------------------------------------

KEEP_SCALE = (
    *("Clip", "Concat", "DepthToSpace", "Expand", "Gather", "GatherElements", "GatherND", "Max", "MaxPool"),
    *("Min", "Pad", "ReduceMax", "ReduceMin", "Resize", "ScatterND", "Slice", "SpaceToDepth", "Split"),
    *("Tile", "Where"),
)
"""Operators that move, compare or interpolate elements, and keep the scale of what they read."""

INDICES = ("ArgMax", "ArgMin")
"""Operators that compare elements, and whose results are indices."""


def of_integers(walk: Walk, node: OnnxNode) -> None:
    """Convert an operator of KEEP_SCALE or INDICES that reads integers of a quantised tensor.

    Raises:
        InvalidModel: it reads integers of different scales.
    """
    values = [walk.optional(node, index) for index in range(len(node.inputs))]
    read = [walk.builder.tensors[value.tensor] for value in values if isinstance(value, Quantized)]
    kinds = [(tensor.dtype, tensor.quantization) for tensor in read]
    dtype, quantization = kinds[0]
    assert quantization is not None
    for other, (name, found) in zip(read, kinds, strict=True):
        if name != dtype or found is None or not found.equals(quantization):
            raise node.invalid(f"it joins integers of different scales: {read[0].name!r} and {other.name!r}")
    at = _Expansion(walk, node, max(node.opset, PER_CHANNEL_SINCE))
    scale = _scale(at, dtype, quantization)
    inputs = list(node.inputs)
    for index, value in enumerate(values):
        if isinstance(value, Quantized):
            real = at.name(f"real{index}")
            inputs[index] = at.emit("DequantizeLinear", [inputs[index], *scale], real, f"dequantize{index}")
        elif isinstance(value, Constant) and str(value.array.dtype) == dtype:
            meaning = dequantized(QuantizedConstant(value.name, value.array, quantization))
            inputs[index] = at.constant(f"real{index}", meaning)
    results = [name if node.op_type in INDICES or not name else f"{name}/real" for name in node.outputs]
    proto = require("onnx.helper").make_node(node.op_type, inputs, results, name=node.name)
    proto.attribute.extend(node.proto.attribute)
    walk.convert(decode_node(proto, {**walk.opsets, "": node.opset}))
    if node.op_type in INDICES:
        return
    for index, (result, output) in enumerate(zip(results, node.outputs, strict=True)):
        if output:
            at.emit("QuantizeLinear", [result, *scale], output, f"quantize{index}")


def _scale(at: _Expansion, dtype: str, quantization: Quantization) -> tuple[str, str]:
    """Scale and zero-point of a quantised tensor, as constants."""
    zero_point = quantization.zero_point.astype(dtype)
    return at.constant("scale", quantization.scale), at.constant("zero_point", zero_point)
