"""The operator table: what each ONNX operator becomes, and why it is refused where it is.

Facts are from ONNX's Operators.md (all opsets from 7 on) and onnxruntime's ContribOperators.md. A handler
reads its inputs from the `Walk`, checks the attributes, and defines the value of the node's output. The
operators on quantised values (QLinearConv, ...) are the float ones between checks of their scales.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NoReturn

import numpy as np

from sdk.graph import Conv, Gemm, GlobalAveragePool, Reshape, Softmax, Tensor
from sdk.importers.elementwise import (
    add,
    arithmetic,
    clip,
    function,
    mul,
    qlinear_add,
    qlinear_function,
    qlinear_mul,
    relu,
)
from sdk.importers.functions import ARITHMETIC, FUNCTIONS
from sdk.importers.layout import (
    axes_of,
    concat,
    flatten,
    in_range,
    pad,
    permuted,
    qlinear_concat,
    reshape,
    resize,
    shape_of,
    squeeze,
    transpose,
    unsqueeze,
)
from sdk.importers.onnx_file import OnnxNode, to_array
from sdk.importers.quantization import (
    activation_bias,
    activation_quantization,
    dequantize_linear,
    quantize_linear,
    read_activation,
    read_weight,
    stored_weight,
)
from sdk.importers.values import UNSET, Constant, QuantizedConstant, Real
from sdk.importers.walk import Walk
from sdk.importers.windows import average_pool, convolution_windows, max_pool

CONTRIB = "com.microsoft"
Handler = Callable[[Walk, OnnxNode], None]

HINTS: Mapping[str, str] = {
    "ConvInteger": "dynamic quantisation computes scales at run time: quantise statically instead",
    "MatMulInteger": "dynamic quantisation computes scales at run time: quantise statically instead",
    "ConvTranspose": "use Resize nearest and a Conv",
    "LayerNormalization": "use BatchNormalization, which folds into a Conv",
    "Slice": "export the model without it: pad and stride in the Conv instead",
    "Split": "use two Convs in place of one that is split",
    "Cast": "export the model in float32 throughout",
}


def refuse(node: OnnxNode) -> NoReturn:
    """Raise Unsupported for an operator that has no handler."""
    shown = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    hint = "write it with operators that are (docs/operators.md lists them), or end the model before it"
    hint = HINTS.get(node.op_type, hint)
    raise node.unsupported(f"operator {shown} is not supported", hint)


# --- convolutions and matrices ------------------------------------------------------------------------


def _conv(walk: Walk, node: OnnxNode) -> None:
    """A convolution in two dimensions: Conv."""
    x, weight = walk.activation(node, 0), read_weight(walk, node, 1)
    walk.define(node, _convolution(walk, node, x, weight, bias=2))


def _qlinear_conv(walk: Walk, node: OnnxNode) -> None:
    """A convolution in two dimensions: Conv."""
    x, weight = read_activation(walk, node, 0), stored_weight(walk, node, 3, axis=0)
    dtype, quantization = activation_quantization(walk, node, 6)
    walk.quantize(node, _convolution(walk, node, x, weight, bias=8), dtype, quantization)


def _convolution(walk: Walk, node: OnnxNode, x: str, weight: QuantizedConstant, *, bias: int) -> Real:
    size = walk.builder.tensors[x].shape
    if len(size) != 4 or weight.array.ndim != 4:
        raise node.unsupported(
            f"input {list(size)}, weight {list(weight.array.shape)}: only two dimensions are supported"
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
    """A matrix with bias: Gemm. Its alpha, beta and transA must have their default values."""
    x, weight = walk.activation(node, 0), read_weight(walk, node, 1)
    walk.define(node, _matrix(walk, node, x, weight, bias=2, transposed=_gemm_transposed(node, bias=2)))


def _qgemm(walk: Walk, node: OnnxNode) -> None:
    """A matrix with bias: Gemm. Its alpha and transA must have their default values."""
    transposed = _gemm_transposed(node, bias=6)
    x, weight = read_activation(walk, node, 0), stored_weight(walk, node, 3, axis=0 if transposed else 1)
    if walk.optional(node, 7) is None:
        raise node.unsupported("its result is float: it has no output scale", "quantise the output too")
    dtype, quantization = activation_quantization(walk, node, 7)
    real = _matrix(walk, node, x, weight, bias=6, transposed=transposed)
    walk.quantize(node, real, dtype, quantization)


def _gemm_transposed(node: OnnxNode, *, bias: int) -> bool:
    """Whether the weight is [out, in] already; refuses what bias and weight cannot absorb."""
    has_bias = len(node.inputs) > bias and bool(node.inputs[bias])
    for name, applies in (("alpha", True), ("beta", has_bias)):
        value = node.number(name, 1.0)
        if applies and value != 1.0:
            raise node.unsupported(f"{name} = {value:g}", f"multiply {name} into the weights")
    if node.integer("transA", 0):
        raise node.unsupported("transA = 1", "export the model with the activation not transposed")
    return bool(node.integer("transB", 0))


def _matmul(walk: Walk, node: OnnxNode) -> None:
    """By a constant matrix on the right: Gemm."""
    if isinstance(walk.value(node, 0), Constant | QuantizedConstant):
        raise node.unsupported("its left side is a constant; only a constant right side is supported")
    x, weight = walk.activation(node, 0), read_weight(walk, node, 1)
    walk.define(node, _matrix(walk, node, x, weight, bias=None, transposed=False))


def _qlinear_matmul(walk: Walk, node: OnnxNode) -> None:
    """By a constant matrix on the right: Gemm."""
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
            f"{node.op_type} of {list(size)} by {list(weight.array.shape)}: only matrices are supported",
            "flatten the input first",
        )
    _check_axis(node, weight, 0 if transposed else 1)
    if not transposed:
        weight = permuted(weight, (1, 0))
    inputs = [x, walk.builder.constant(weight.name, weight.array, weight.quantization)]
    if bias is not None:
        inputs += activation_bias(walk, node, bias, x, weight)
    return walk.define_operation(node, Gemm(node.name, tuple(inputs), "", clamp=UNSET))


def _only_way(walk: Walk, real: Real) -> bool:
    """Whether only one chain of readers uses the operator of a recipe."""
    names = [
        name for name, value in walk.values.items() if isinstance(value, Real) and value.source is real.source
    ]
    read = [name for node in walk.nodes for name in node.inputs]
    return all(name not in walk.outputs and read.count(name) == 1 for name in names)


def _identity(walk: Walk, node: OnnxNode) -> None:
    """Nothing."""
    walk.alias(node)


def _dropout(walk: Walk, node: OnnxNode) -> None:
    """Nothing; not in training mode."""
    if walk.optional(node, 2) is not None and bool(walk.constant(node, 2).any()):
        raise node.unsupported("Dropout in training mode", "export the model for inference")
    walk.alias(node)


def _batch_normalization(walk: Walk, node: OnnxNode) -> None:
    """Directly behind a Conv of a float model, where quantisation's preparation folds it into that."""
    value = walk.value(node, 0)
    folds = isinstance(value, Real) and isinstance(value.source, Conv) and not value.moves
    if not walk.float_model or not isinstance(value, Real) or not folds or value.changed_by:
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
    """AveragePool in two dimensions; without dilations, and without windows that stick out."""
    x = walk.activation(node, 0)
    walk.define(node, walk.define_operation(node, average_pool(node, x, walk.builder.tensors[x].shape)))


def _qlinear_average_pool(walk: Walk, node: OnnxNode) -> None:
    """AveragePool in two dimensions; without dilations, and without windows that stick out."""
    _channels_first(node)
    x = read_activation(walk, node, 0)
    dtype, quantization = activation_quantization(walk, node, 3)
    real = walk.define_operation(node, average_pool(node, x, walk.builder.tensors[x].shape))
    walk.quantize(node, real, dtype, quantization)


def _global_average_pool(walk: Walk, node: OnnxNode) -> None:
    """GlobalAveragePool of [N,C,H,W]."""
    walk.define(node, _global_mean(walk, node, walk.activation(node, 0)))


def _qlinear_global_average_pool(walk: Walk, node: OnnxNode) -> None:
    """GlobalAveragePool of [N,C,H,W]."""
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
        raise node.unsupported(f"{node.op_type} of {list(size)}: only [N,C,H,W] is supported")
    return walk.define_operation(node, GlobalAveragePool(node.name, (x,), "", clamp=UNSET))


def _reduce_mean(walk: Walk, node: OnnxNode) -> None:
    """Over H and W: GlobalAveragePool."""
    x = walk.activation(node, 0)
    axes = axes_of(walk, node, since=18) or ()
    rank = len(walk.builder.tensors[x].shape)
    if rank != 4 or sorted(in_range(node, axes, rank)) != [2, 3]:
        raise node.unsupported(
            f"ReduceMean over axes {list(axes)} of rank {rank}: only H and W are supported"
        )
    real = _global_mean(walk, node, x)
    if not node.integer("keepdims", 1):
        shape = real.shape[:2]
        moves = ((Reshape(node.name, (), ""), shape),)
        real = Real(real.name, real.owner, shape, real.source, real.source_shape, moves)
    walk.define(node, real)


def _max_pool(walk: Walk, node: OnnxNode) -> None:
    """MaxPool in two dimensions; without indices, and without windows that stick out."""
    if len(node.outputs) > 1 and node.outputs[1]:
        raise node.unsupported("MaxPool with indices")
    walk.move(node, 0, max_pool(node, shape_of(walk, node)))


# --- softmax, constants --------------------------------------------------------------------------------


def _qlinear_softmax(walk: Walk, node: OnnxNode) -> None:
    """Softmax of floats, between Dequantize and Quantize."""
    x = read_activation(walk, node, 0)
    dtype, quantization = activation_quantization(walk, node, 3)
    real = walk.builder.dequantize(x, walk.builder.fresh(f"{node.output}_input"), f"{node.name}_dequantize")
    shape, opset = walk.builder.tensors[real].shape, node.integer("opset", 13)
    axis = node.integer("axis", -1 if opset >= 13 else 1)
    if not -len(shape) <= axis < len(shape):
        raise node.invalid(f"axis {axis} of an input of rank {len(shape)}")
    axis %= len(shape)
    if opset < 13 and math.prod(shape[axis + 1 :]) != 1:
        raise node.unsupported(f"Softmax of opset {opset} over all axes from {axis}", "convert to opset 13")
    output = Tensor(walk.builder.fresh(f"{node.output}_float"), shape, "float32")
    walk.quantize_plain(
        node, walk.builder.emit(Softmax(node.name, (real,), "", axis), output), dtype, quantization
    )


def _constant(walk: Walk, node: OnnxNode) -> None:
    """A constant."""
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
    array = to_array(node.attributes["value"], node.where, walk.folder)
    walk.define(node, Constant(node.output, array))


OPERATORS: Mapping[tuple[str, str], Handler] = {
    **{("", name): function for name in FUNCTIONS},
    **{("", name): arithmetic for name in ARITHMETIC},
    ("", "Add"): add,
    ("", "AveragePool"): _average_pool,
    ("", "BatchNormalization"): _batch_normalization,
    ("", "Clip"): clip,
    ("", "Concat"): concat,
    ("", "Constant"): _constant,
    ("", "Conv"): _conv,
    ("", "DequantizeLinear"): dequantize_linear,
    ("", "Dropout"): _dropout,
    ("", "Flatten"): flatten,
    ("", "Gemm"): _gemm,
    ("", "GlobalAveragePool"): _global_average_pool,
    ("", "Identity"): _identity,
    ("", "MatMul"): _matmul,
    ("", "MaxPool"): _max_pool,
    ("", "Mul"): mul,
    ("", "Pad"): pad,
    ("", "QLinearConv"): _qlinear_conv,
    ("", "QLinearMatMul"): _qlinear_matmul,
    ("", "QuantizeLinear"): quantize_linear,
    ("", "ReduceMean"): _reduce_mean,
    ("", "Relu"): relu,
    ("", "Reshape"): reshape,
    ("", "Resize"): resize,
    ("", "Squeeze"): squeeze,
    ("", "Transpose"): transpose,
    ("", "Unsqueeze"): unsqueeze,
    ("", "Upsample"): resize,
    (CONTRIB, "DequantizeLinear"): dequantize_linear,
    (CONTRIB, "QGemm"): _qgemm,
    (CONTRIB, "QLinearAdd"): qlinear_add,
    (CONTRIB, "QLinearAveragePool"): _qlinear_average_pool,
    (CONTRIB, "QLinearConcat"): qlinear_concat,
    (CONTRIB, "QLinearGlobalAveragePool"): _qlinear_global_average_pool,
    (CONTRIB, "QLinearLeakyRelu"): qlinear_function,
    (CONTRIB, "QLinearMul"): qlinear_mul,
    (CONTRIB, "QLinearSigmoid"): qlinear_function,
    (CONTRIB, "QLinearSoftmax"): _qlinear_softmax,
    (CONTRIB, "QuantizeLinear"): quantize_linear,
}


def operator_table() -> list[tuple[str, str]]:
    """ONNX operators that do the same, joined, and what they become; for the documentation."""
    rows: dict[str, list[str]] = {}
    for (domain, name), handler in OPERATORS.items():
        meaning = (handler.__doc__ or "").strip().splitlines()[0]
        rows.setdefault(meaning, []).append(f"{domain}.{name}" if domain else name)
    return sorted((", ".join(sorted(names)), meaning) for meaning, names in rows.items())
