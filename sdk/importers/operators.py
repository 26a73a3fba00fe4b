"""The operator table: what each ONNX operator becomes, and why it is refused where it is.

Facts are from ONNX's Operators.md (all opsets from 7 on) and onnxruntime's ContribOperators.md. A handler
reads its inputs from the `Walk`, checks the attributes, and defines the value of the node's output. The
operators on quantised values (QLinearConv, ...) are the float ones between checks of their scales.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import NoReturn

import numpy as np

from sdk.graph import Conv, Gemm, GlobalAveragePool
from sdk.importers.elementwise import (
    add,
    arithmetic,
    clip,
    function,
    mul,
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
    reshape,
    resize,
    shape_of,
    squeeze,
    transpose,
    unsqueeze,
)
from sdk.importers.onnx_file import OnnxNode, element_name, to_array
from sdk.importers.qlinear import DYNAMIC, QLINEAR
from sdk.importers.quantization import activation_bias, dequantize_linear, quantize_linear, read_weight
from sdk.importers.refusals import unknown_operator
from sdk.importers.values import UNSET, Constant, Quantized, QuantizedConstant, Real
from sdk.importers.walk import Walk
from sdk.importers.windows import average_pool, convolution_windows, in_two_dimensions, max_pool

Handler = Callable[[Walk, OnnxNode], None]

HINTS: Mapping[str, str] = {
    **dict.fromkeys(("DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "MatMulIntegerToFloat"), DYNAMIC),
    **dict.fromkeys(
        ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
        "random numbers differ at each run: make them an input of the model",
    ),
    **dict.fromkeys(
        ("Bernoulli", "Multinomial"), "random numbers differ at each run: end the model at the probabilities"
    ),
    "ImageDecoder": "prepare the input outside, and start the model behind it",
}
"""What to do about operators that are not taken."""


def refuse(node: OnnxNode) -> NoReturn:
    """Raise Unsupported for an operator that has no handler."""
    raise unknown_operator(node, HINTS.get(node.op_type))


# --- convolutions and matrices ------------------------------------------------------------------------


def _conv(walk: Walk, node: OnnxNode) -> None:
    """A convolution in one or two dimensions: Conv."""
    x, weight = walk.activation(node, 0), read_weight(walk, node, 1)
    walk.define(node, _convolution(walk, node, x, weight, bias=2))


def _convolution(walk: Walk, node: OnnxNode, x: str, weight: QuantizedConstant, *, bias: int) -> Real:
    size = walk.builder.tensors[x].shape
    if len(size) not in (3, 4) or weight.array.ndim != len(size):
        raise node.unsupported(
            f"input {list(size)}, weight {list(weight.array.shape)}: only windows in one and two dimensions "
            "are supported"
        )
    _check_axis(node, weight, 0)
    one = in_two_dimensions(node, len(size) - 2)
    if len(size) == 3:
        x = walk.builder.reshaped(x, (*size[:2], 1, size[2]), f"{node.name}/rows")
        weight = dataclasses.replace(weight, array=weight.array[:, :, None])
    windows = convolution_windows(one, walk.builder.tensors[x].shape, weight.array.shape)
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
    real = walk.define_operation(node, template)
    if len(size) == 4:
        return real
    return real.reshaped(f"{node.name}/reshape", (*real.shape[:2], real.shape[3]))


def _check_axis(node: OnnxNode, weight: QuantizedConstant, outputs: int) -> None:
    axis = weight.quantization.axis
    if axis not in (None, outputs):
        hint = f"quantise it per tensor or along axis {outputs}"
        raise node.unsupported(f"its weight is quantised along axis {axis}, which is not its outputs", hint)


def _gemm(walk: Walk, node: OnnxNode) -> None:
    """A matrix with bias: Gemm. Its alpha, beta and transA must have their default values."""
    x, weight = walk.activation(node, 0), read_weight(walk, node, 1)
    walk.define(node, _matrix(walk, node, x, weight, bias=2, transposed=_gemm_transposed(node, bias=2)))


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


def _matrix(
    walk: Walk, node: OnnxNode, x: str, weight: QuantizedConstant, *, bias: int | None, transposed: bool
) -> Real:
    size = walk.builder.tensors[x].shape
    whole = len(size) == 2 or (len(size) > 2 and node.op_type == "MatMul")  # leading axes are rows too
    if not whole or weight.array.ndim != 2:
        raise node.unsupported(
            f"{node.op_type} of {list(size)} by {list(weight.array.shape)}: only a matrix of constants",
            "write it as products of an activation and one matrix",
        )
    _check_axis(node, weight, 0 if transposed else 1)
    if not transposed:
        weight = permuted(weight, (1, 0))
    if len(size) > 2:
        x = walk.builder.reshaped(x, (math.prod(size[:-1]), size[-1]), f"{node.name}/rows")
    inputs = [x, walk.builder.constant(weight.name, weight.array, weight.quantization)]
    if bias is not None:
        inputs += activation_bias(walk, node, bias, x, weight)
    real = walk.define_operation(node, Gemm(node.name, tuple(inputs), "", clamp=UNSET))
    if len(size) == 2:
        return real
    return real.reshaped(f"{node.name}/reshape", (*size[:-1], real.shape[1]))


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


def _cast(walk: Walk, node: OnnxNode) -> None:
    """Nothing, to the type that it has already; else on plain tensors."""
    value, wanted = walk.value(node, 0), element_name(node.integer("to", 0))
    match value:
        case Quantized(tensor):
            found = walk.builder.tensors[tensor].dtype
        case Real() | QuantizedConstant():
            found = "float32"
        case _:
            found = ""
    if found != wanted:
        raise node.unsupported(
            f"Cast of {node.inputs[0]!r} to {wanted}, which is {found or 'plain'}",
            "read integers through DequantizeLinear, and export the model in float32 throughout",
        )
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


def _global_average_pool(walk: Walk, node: OnnxNode) -> None:
    """GlobalAveragePool of [N,C,H,W]."""
    walk.define(node, _global_mean(walk, node, walk.activation(node, 0)))


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
        real = real.reshaped(node.name, shape)
    walk.define(node, real)


def _max_pool(walk: Walk, node: OnnxNode) -> None:
    """MaxPool in two dimensions; without indices, and without windows that stick out."""
    if len(node.outputs) > 1 and node.outputs[1]:
        raise node.unsupported("MaxPool with indices")
    walk.move(node, 0, max_pool(node, shape_of(walk, node)))


# --- softmax, constants --------------------------------------------------------------------------------


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
    ("", "Cast"): _cast,
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
    ("", "QuantizeLinear"): quantize_linear,
    ("", "ReduceMean"): _reduce_mean,
    ("", "Relu"): relu,
    ("", "Reshape"): reshape,
    ("", "Resize"): resize,
    ("", "Squeeze"): squeeze,
    ("", "Transpose"): transpose,
    ("", "Unsqueeze"): unsqueeze,
    ("", "Upsample"): resize,
    **QLINEAR,
}


def operator_table() -> list[tuple[str, str]]:
    """ONNX operators that do the same, joined, and what they become; for the documentation."""
    rows: dict[str, list[str]] = {}
    for (domain, name), handler in OPERATORS.items():
        meaning = (handler.__doc__ or "").strip().splitlines()[0]
        rows.setdefault(meaning, []).append(f"{domain}.{name}" if domain else name)
    return sorted((", ".join(sorted(names)), meaning) for meaning, names in rows.items())
