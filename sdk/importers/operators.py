"""The operator table: what each ONNX operator becomes, and why it is refused where it is.

Facts are from ONNX's Operators.md (all opsets from 7 on) and onnxruntime's ContribOperators.md. A handler
reads its inputs from the `Walk`, checks the attributes, and defines the value of the node's output. The
operators on quantised values (QLinearConv, ...) are the float ones between checks of their scales.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from sdk.extras import require
from sdk.graph import Add, Array, Conv, Gemm, GlobalAveragePool, Quantization, Reshape, Softmax, Tensor
from sdk.importers.onnx_file import OnnxNode
from sdk.importers.quantization import (
    activation_bias,
    activation_quantization,
    dequantize_linear,
    quantize_linear,
    read_activation,
    read_weight,
    stored_weight,
)
from sdk.importers.values import UNSET, Constant, Hosted, QuantizedConstant, Real
from sdk.importers.windows import average_pool, convolution_windows, max_pool

if TYPE_CHECKING:
    from sdk.importers.walk import Walk

CONTRIB = "com.microsoft"
Handler = Callable[["Walk", OnnxNode], None]

HINTS: Mapping[str, str] = {
    "DynamicQuantizeLinear": "dynamic quantisation computes scales at run time: quantise statically instead",
    "ConvInteger": "dynamic quantisation computes scales at run time: quantise statically instead",
    "MatMulInteger": "dynamic quantisation computes scales at run time: quantise statically instead",
    "Pad": "fold the padding into the pads of the Conv or pool behind it",
    "Sigmoid": "replace it by Relu or Relu6 before training",
    "HardSwish": "replace it by Relu or Relu6 before training",
    "HardSigmoid": "replace it by Relu or Relu6 before training",
    "LeakyRelu": "replace it by Relu or Relu6 before training",
    "PRelu": "replace it by Relu or Relu6 before training",
    "Shape": "export the model with static shapes, or run onnx-simplifier on it",
    "Cast": "export the model in float32 throughout",
}


def refuse(node: OnnxNode) -> NoReturn:
    """Raise Unsupported for an operator that the table lacks."""
    shown = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    known = ", ".join(sorted(name for domain, name in OPERATORS if not domain))
    hint = HINTS.get(node.op_type, f"the operators known are: {known}")
    raise node.unsupported(f"operator {shown} is not supported", hint)


# --- convolutions and matrices ------------------------------------------------------------------------


def _conv(walk: Walk, node: OnnxNode) -> None:
    x, weight = walk.activation(node, 0), read_weight(walk, node, 1)
    walk.define(node, _convolution(walk, node, x, weight, bias=2))


def _qlinear_conv(walk: Walk, node: OnnxNode) -> None:
    x, weight = read_activation(walk, node, 0), stored_weight(walk, node, 3, axis=0)
    dtype, quantization = activation_quantization(walk, node, 6)
    walk.quantize(node, _convolution(walk, node, x, weight, bias=8), dtype, quantization)


def _convolution(walk: Walk, node: OnnxNode, x: str, weight: QuantizedConstant, *, bias: int) -> Real:
    size = walk.builder.tensors[x].shape
    if len(size) != 4 or weight.array.ndim != 4:
        raise node.unsupported(
            f"input {list(size)}, weight {list(weight.array.shape)}: only two-dimensional convolution is done"
        )
    _check_axis(node, weight, 0)
    windows = convolution_windows(node, size, weight.array.shape)
    inputs = [x, walk.builder.constant(weight.name, weight.array, weight.quantization)]
    inputs += activation_bias(walk, node, bias, x, weight)
    template = Conv(
        node.name,
        tuple(inputs),
        "",
        strides=windows.strides,
        pads=windows.pads,
        dilations=windows.dilations,
        group=node.integer("group", 1),
        clamp=UNSET,
    )
    return walk.define_operation(node, template)


def _check_axis(node: OnnxNode, weight: QuantizedConstant, outputs: int) -> None:
    axis = weight.quantization.axis
    if axis not in (None, outputs):
        hint = f"quantise it per tensor or along axis {outputs}"
        raise node.unsupported(f"its weight is quantised along axis {axis}, which is not its outputs", hint)


def _gemm(walk: Walk, node: OnnxNode) -> None:
    x, weight = walk.activation(node, 0), read_weight(walk, node, 1)
    walk.define(node, _matrix(walk, node, x, weight, bias=2, transposed=_gemm_transposed(node, bias=2)))


def _qgemm(walk: Walk, node: OnnxNode) -> None:
    transposed = _gemm_transposed(node, bias=6)
    x, weight = read_activation(walk, node, 0), stored_weight(walk, node, 3, axis=0 if transposed else 1)
    if walk.optional(node, 7) is None:
        raise node.unsupported("its result is float: it has no output scale", "quantise the output too")
    dtype, quantization = activation_quantization(walk, node, 7)
    real = _matrix(walk, node, x, weight, bias=6, transposed=transposed)
    walk.quantize(node, real, dtype, quantization)


def _gemm_transposed(node: OnnxNode, *, bias: int) -> bool:
    """Whether the weight is [out, in] already; refuses what no bias or weight could absorb."""
    has_bias = len(node.inputs) > bias and bool(node.inputs[bias])
    for name, applies in (("alpha", True), ("beta", has_bias)):
        value = node.number(name, 1.0)
        if applies and value != 1.0:
            raise node.unsupported(f"{name} = {value:g}", f"multiply {name} into the weights")
    if node.integer("transA", 0):
        raise node.unsupported("transA = 1", "export the model with the activation not transposed")
    return bool(node.integer("transB", 0))


def _matmul(walk: Walk, node: OnnxNode) -> None:
    if isinstance(walk.value(node, 0), Constant | QuantizedConstant):
        raise node.unsupported("its left side is a constant; only a constant right side is done")
    x, weight = walk.activation(node, 0), read_weight(walk, node, 1)
    walk.define(node, _matrix(walk, node, x, weight, bias=None, transposed=False))


def _qlinear_matmul(walk: Walk, node: OnnxNode) -> None:
    x, weight = read_activation(walk, node, 0), stored_weight(walk, node, 3, axis=1)
    dtype, quantization = activation_quantization(walk, node, 6)
    real = _matrix(walk, node, x, weight, bias=None, transposed=False)
    walk.quantize(node, real, dtype, quantization)


def _matrix(
    walk: Walk, node: OnnxNode, x: str, weight: QuantizedConstant, *, bias: int | None, transposed: bool
) -> Real:
    size = walk.builder.tensors[x].shape
    if len(size) != 2 or weight.array.ndim != 2:
        raise node.unsupported(
            f"{node.op_type} of {list(size)} by {list(weight.array.shape)}: only matrices are done",
            "flatten the input first",
        )
    _check_axis(node, weight, 0 if transposed else 1)
    if not transposed:
        weight = transpose(weight, (1, 0))
    inputs = [x, walk.builder.constant(weight.name, weight.array, weight.quantization)]
    if bias is not None:
        inputs += activation_bias(walk, node, bias, x, weight)
    return walk.define_operation(node, Gemm(node.name, tuple(inputs), "", clamp=UNSET))


def transpose(constant: QuantizedConstant, order: tuple[int, ...]) -> QuantizedConstant:
    """The constant with its axes in another order, its channel axis following."""
    old = constant.quantization
    axis = None if old.axis is None else order.index(old.axis)
    quantization = Quantization(old.scale, old.zero_point, axis)
    return QuantizedConstant(constant.name, constant.array.transpose(order), quantization)


def _transpose(walk: Walk, node: OnnxNode) -> None:
    value = walk.value(node, 0)
    if not isinstance(value, QuantizedConstant):
        raise node.unsupported("Transpose of an activation", "export the model in NCHW layout throughout")
    order = node.integers("perm") or tuple(reversed(range(value.array.ndim)))
    if sorted(order) != list(range(value.array.ndim)):
        raise node.invalid(f"perm {list(order)} of a constant of rank {value.array.ndim}")
    walk.define(node, transpose(value, order))


# --- elementwise ----------------------------------------------------------------------------------------


def _add(walk: Walk, node: OnnxNode) -> None:
    for index in (0, 1):
        value, other = walk.value(node, index), walk.value(node, 1 - index)
        if isinstance(value, Real) and isinstance(other, Constant | QuantizedConstant):
            walk.define(node, _matmul_bias(walk, node, value, 1 - index))
            return
    walk.define(node, _sum(walk, node, walk.activation(node, 0), walk.activation(node, 1)))


def _qlinear_add(walk: Walk, node: OnnxNode) -> None:
    a, b = read_activation(walk, node, 0), read_activation(walk, node, 3)
    dtype, quantization = activation_quantization(walk, node, 6)
    walk.quantize(node, _sum(walk, node, a, b), dtype, quantization)


def _sum(walk: Walk, node: OnnxNode, a: str, b: str) -> Real:
    shapes = [list(walk.builder.tensors[name].shape) for name in (a, b)]
    if shapes[0] != shapes[1]:
        raise node.unsupported(f"Add of {shapes[0]} and {shapes[1]}: broadcasting is not done")
    return walk.define_operation(node, Add(node.name, (a, b), "", clamp=UNSET))


def _matmul_bias(walk: Walk, node: OnnxNode, real: Real, index: int) -> Real:
    """Add of a constant: the bias of the MatMul before it, or refused."""
    source, constant = real.source, walk.value(node, index)
    assert isinstance(constant, Constant | QuantizedConstant)
    if not isinstance(source, Gemm) or len(source.inputs) > 2 or real.moves or real.bounded_by:
        raise node.unsupported(
            f"it adds the constant {node.inputs[index]!r}",
            "only the bias of a Conv, Gemm or MatMul may be constant",
        )
    if constant.array.ndim > 2:
        raise node.unsupported(
            f"the constant {node.inputs[index]!r} has rank {constant.array.ndim}, and so would the result",
            "give it the shape [N] of a bias",
        )
    tensor = walk.builder.tensors[source.inputs[1]]
    assert tensor.data is not None
    assert tensor.quantization is not None
    weight = QuantizedConstant(tensor.name, tensor.data, tensor.quantization)
    inputs = (*source.inputs, *activation_bias(walk, node, index, source.inputs[0], weight))
    return walk.define_operation(node, Gemm(source.name, inputs, "", clamp=UNSET))


def _only_way(walk: Walk, real: Real) -> bool:
    """Whether the operator of a recipe is seen by nothing but one chain of readers."""
    names = [
        name for name, value in walk.values.items() if isinstance(value, Real) and value.source is real.source
    ]
    read = [name for node in walk.nodes for name in node.inputs]
    return all(name not in walk.outputs and read.count(name) == 1 for name in names)


def _relu(walk: Walk, node: OnnxNode) -> None:
    _bound(walk, node, 0.0, math.inf)


def _clip(walk: Walk, node: OnnxNode) -> None:
    if node.opset < 11:
        low, high = node.number("min", -math.inf), node.number("max", math.inf)
    else:
        low, high = _limit(walk, node, 1, -math.inf), _limit(walk, node, 2, math.inf)
    if math.isnan(low) or math.isnan(high) or low > high:
        raise node.invalid(f"Clip to [{low}, {high}]")
    _bound(walk, node, low, high)


def _limit(walk: Walk, node: OnnxNode, index: int, default: float) -> float:
    value = walk.optional(node, index)
    if value is None:
        return default
    if isinstance(value, QuantizedConstant):
        limit = (value.array.astype(np.float32) - value.quantization.zero_point) * value.quantization.scale
    else:
        limit = walk.constant(node, index)
    if limit.size != 1:
        raise node.invalid(f"its bound {node.inputs[index]!r} is not a scalar")
    return float(limit.reshape(()))


def _bound(walk: Walk, node: OnnxNode, low: float, high: float) -> None:
    value = walk.value(node, 0)
    if not isinstance(value, Real):
        kind = "float after Softmax" if isinstance(value, Hosted) else "integers or a constant"
        raise node.unsupported(
            f"{node.op_type} of {kind}", "put it between DequantizeLinear and QuantizeLinear"
        )
    walk.define(
        node,
        Real(
            node.output,
            node.name,
            value.shape,
            value.source,
            value.source_shape,
            value.moves,
            low=min(max(value.low, low), high),
            high=min(max(value.high, low), high),
            bounded_by=node.name,
        ),
    )


def _identity(walk: Walk, node: OnnxNode) -> None:
    walk.alias(node)


def _dropout(walk: Walk, node: OnnxNode) -> None:
    if walk.optional(node, 2) is not None and bool(walk.constant(node, 2).any()):
        raise node.unsupported("Dropout in training mode", "export the model for inference")
    walk.alias(node)


def _batch_normalization(walk: Walk, node: OnnxNode) -> None:
    """In a float model only, where quantisation's preparation folds it into the Conv before it."""
    value = walk.value(node, 0)
    folds = isinstance(value, Real) and isinstance(value.source, Conv) and not value.moves
    if not walk.float_model or not isinstance(value, Real) or not folds or value.bounded_by:
        raise node.unsupported(
            "BatchNormalization that does not directly follow a Conv of a float model",
            "fold it into the convolution before quantising",
        )
    if not _only_way(walk, value):
        raise node.unsupported(
            "BatchNormalization of a Conv whose result is read elsewhere too",
            "give that reader a Conv of its own",
        )
    for index in range(1, 5):
        walk.constant(node, index)
    walk.alias(node)


# --- pools and shapes -----------------------------------------------------------------------------------


def _average_pool(walk: Walk, node: OnnxNode) -> None:
    x = walk.activation(node, 0)
    walk.define(node, walk.define_operation(node, average_pool(node, x, walk.builder.tensors[x].shape)))


def _qlinear_average_pool(walk: Walk, node: OnnxNode) -> None:
    _channels_first(node)
    x = read_activation(walk, node, 0)
    dtype, quantization = activation_quantization(walk, node, 3)
    real = walk.define_operation(node, average_pool(node, x, walk.builder.tensors[x].shape))
    walk.quantize(node, real, dtype, quantization)


def _global_average_pool(walk: Walk, node: OnnxNode) -> None:
    walk.define(node, _global_mean(walk, node, walk.activation(node, 0)))


def _qlinear_global_average_pool(walk: Walk, node: OnnxNode) -> None:
    _channels_first(node)
    x = read_activation(walk, node, 0)
    dtype, quantization = activation_quantization(walk, node, 3)
    walk.quantize(node, _global_mean(walk, node, x), dtype, quantization)


def _channels_first(node: OnnxNode) -> None:
    if node.integer("channels_last", 0):
        raise node.unsupported("channels_last = 1", "export the model in NCHW layout throughout")


def _global_mean(walk: Walk, node: OnnxNode, x: str) -> Real:
    size = walk.builder.tensors[x].shape
    if len(size) != 4:
        raise node.unsupported(f"{node.op_type} of {list(size)}: only [N,C,H,W] is done")
    return walk.define_operation(node, GlobalAveragePool(node.name, (x,), "", clamp=UNSET))


def _reduce_mean(walk: Walk, node: OnnxNode) -> None:
    x = walk.activation(node, 0)
    axes = _axes(walk, node, since=18) or ()
    rank = len(walk.builder.tensors[x].shape)
    if rank != 4 or sorted(_in_range(node, axes, rank)) != [2, 3]:
        raise node.unsupported(f"ReduceMean over axes {list(axes)} of rank {rank}: only over H and W is done")
    real = _global_mean(walk, node, x)
    if not node.integer("keepdims", 1):
        shape = real.shape[:2]
        moves = ((Reshape(node.name, (), ""), shape),)
        real = Real(real.name, real.owner, shape, real.source, real.source_shape, moves)
    walk.define(node, real)


def _axes(walk: Walk, node: OnnxNode, *, since: int) -> tuple[int, ...] | None:
    """The axes: an attribute before opset `since`, then an input."""
    if node.opset < since:
        return node.integers("axes")
    return None if walk.optional(node, 1) is None else tuple(walk.constant(node, 1).reshape(-1).tolist())


def _in_range(node: OnnxNode, axes: tuple[int, ...], rank: int) -> list[int]:
    """The axes of a value of that rank, counted from the front."""
    if not all(-rank <= axis < rank for axis in axes):
        raise node.invalid(f"{node.op_type} of axes {list(axes)} of rank {rank}")
    return [axis % rank for axis in axes]


def _max_pool(walk: Walk, node: OnnxNode) -> None:
    if len(node.outputs) > 1 and node.outputs[1]:
        raise node.unsupported("MaxPool with indices")
    walk.move(node, 0, max_pool(node, _shape(walk, node)))


def _shape(walk: Walk, node: OnnxNode) -> tuple[int, ...]:
    value = walk.value(node, 0)
    if isinstance(value, Hosted):
        return walk.builder.tensors[value.tensor].shape
    return walk.real(node, 0).shape


def _flatten(walk: Walk, node: OnnxNode) -> None:
    shape = _shape(walk, node)
    axis = node.integer("axis", 1)
    if not -len(shape) <= axis <= len(shape):
        raise node.invalid(f"axis {axis} of an input of rank {len(shape)}")
    axis = axis + len(shape) if axis < 0 else axis
    _reshape_to(walk, node, (math.prod(shape[:axis]), math.prod(shape[axis:])))


def _reshape(walk: Walk, node: OnnxNode) -> None:
    shape = _shape(walk, node)
    wanted = walk.constant(node, 1).reshape(-1).tolist()
    if not node.integer("allowzero", 0):
        wanted = [shape[i] if extent == 0 and i < len(shape) else extent for i, extent in enumerate(wanted)]
    if wanted.count(-1) == 1:
        rest = -math.prod(wanted)
        wanted[wanted.index(-1)] = math.prod(shape) // rest if rest > 0 else 0
    _reshape_to(walk, node, tuple(wanted))


def _squeeze(walk: Walk, node: OnnxNode) -> None:
    shape = _shape(walk, node)
    axes = _axes(walk, node, since=13)
    if axes is None:
        axes = tuple(i for i, extent in enumerate(shape) if extent == 1)
    dropped = _in_range(node, axes, len(shape))
    if any(shape[axis] != 1 for axis in dropped):
        raise node.invalid(f"Squeeze of axes {list(axes)} of {list(shape)}")
    _reshape_to(walk, node, tuple(extent for i, extent in enumerate(shape) if i not in dropped))


def _unsqueeze(walk: Walk, node: OnnxNode) -> None:
    shape = _shape(walk, node)
    axes = _axes(walk, node, since=13) or ()
    rank = len(shape) + len(axes)
    added, rest = set(_in_range(node, axes, rank)), iter(shape)
    if len(added) != len(axes):
        raise node.invalid(f"Unsqueeze of axes {list(axes)}")
    _reshape_to(walk, node, tuple(1 if i in added else next(rest) for i in range(rank)))


def _reshape_to(walk: Walk, node: OnnxNode, shape: tuple[int, ...]) -> None:
    before = _shape(walk, node)
    if min(shape, default=1) < 1 or math.prod(shape) != math.prod(before):
        raise node.invalid(f"{node.op_type} of {list(before)} to {list(shape)}")
    walk.move(node, 0, Reshape(node.name, (), ""), shape)


# --- the tail, constants --------------------------------------------------------------------------------


def _softmax(walk: Walk, node: OnnxNode) -> None:
    walk.define(node, Hosted(_host_softmax(walk, node, walk.hosted(node, 0), node.opset, node.output)))


def _host_softmax(walk: Walk, node: OnnxNode, x: str, opset: int, output: str) -> str:
    shape = walk.builder.tensors[x].shape
    axis = node.integer("axis", -1 if opset >= 13 else 1)
    if not -len(shape) <= axis < len(shape):
        raise node.invalid(f"axis {axis} of an input of rank {len(shape)}")
    axis %= len(shape)
    if opset < 13 and math.prod(shape[axis + 1 :]) != 1:
        raise node.unsupported(f"Softmax of opset {opset} over all axes from {axis}", "convert to opset 13")
    return walk.builder.emit(Softmax(node.name, (x,), "", axis), Tensor(output, shape, "float32"))


def _qlinear_softmax(walk: Walk, node: OnnxNode) -> None:
    x = read_activation(walk, node, 0)
    dtype, quantization = activation_quantization(walk, node, 3)
    real = walk.builder.dequantize(x, walk.builder.fresh(f"{node.output}_input"), f"{node.name}_dequantize")
    fresh = walk.builder.fresh(f"{node.output}_float")
    result = _host_softmax(walk, node, real, node.integer("opset", 13), fresh)
    walk.host_quantize(node, result, dtype, quantization)


def _constant(walk: Walk, node: OnnxNode) -> None:
    for name, dtype in (
        ("value_float", np.float32),
        ("value_floats", np.float32),
        ("value_int", np.int64),
        ("value_ints", np.int64),
    ):
        if name in node.attributes:
            walk.define(node, Constant(node.output, np.asarray(node.attributes[name], dtype)))
            return
    if "value" not in node.attributes:
        raise node.unsupported("a Constant that is neither numbers nor a dense tensor")
    walk.define(node, Constant(node.output, _tensor_value(node)))


def _tensor_value(node: OnnxNode) -> Array:
    try:
        array: Array = require("onnx.numpy_helper").to_array(node.attributes["value"])
    except (ValueError, TypeError, AttributeError) as problem:
        raise node.invalid(f"its value cannot be read: {problem}") from problem
    return array


OPERATORS: Mapping[tuple[str, str], Handler] = {
    ("", "Add"): _add,
    ("", "AveragePool"): _average_pool,
    ("", "BatchNormalization"): _batch_normalization,
    ("", "Clip"): _clip,
    ("", "Constant"): _constant,
    ("", "Conv"): _conv,
    ("", "DequantizeLinear"): dequantize_linear,
    ("", "Dropout"): _dropout,
    ("", "Flatten"): _flatten,
    ("", "Gemm"): _gemm,
    ("", "GlobalAveragePool"): _global_average_pool,
    ("", "Identity"): _identity,
    ("", "MatMul"): _matmul,
    ("", "MaxPool"): _max_pool,
    ("", "QLinearConv"): _qlinear_conv,
    ("", "QLinearMatMul"): _qlinear_matmul,
    ("", "QuantizeLinear"): quantize_linear,
    ("", "ReduceMean"): _reduce_mean,
    ("", "Relu"): _relu,
    ("", "Reshape"): _reshape,
    ("", "Softmax"): _softmax,
    ("", "Squeeze"): _squeeze,
    ("", "Transpose"): _transpose,
    ("", "Unsqueeze"): _unsqueeze,
    (CONTRIB, "DequantizeLinear"): dequantize_linear,
    (CONTRIB, "QGemm"): _qgemm,
    (CONTRIB, "QLinearAdd"): _qlinear_add,
    (CONTRIB, "QLinearAveragePool"): _qlinear_average_pool,
    (CONTRIB, "QLinearGlobalAveragePool"): _qlinear_global_average_pool,
    (CONTRIB, "QLinearSoftmax"): _qlinear_softmax,
    (CONTRIB, "QuantizeLinear"): quantize_linear,
}
