"""Scales, zero-points and what they belong to: QuantizeLinear, DequantizeLinear, weights, biases.

A quantised operator of ONNX names the scale and zero-point of each tensor as the two inputs that follow it;
so does every helper here. Types other than int8 and uint8 (int32 for a bias) are refused.
"""

from __future__ import annotations

import numpy as np

from sdk.errors import InvalidModel, Unsupported
from sdk.extras import require
from sdk.graph import Array, Quantization
from sdk.importers.onnx_file import OnnxNode
from sdk.importers.values import Constant, Plain, Quantized, QuantizedConstant, Real, Shape
from sdk.importers.walk import Walk
from sdk.verification import INTEGER_RANGE, check_quantization

BIAS_TOLERANCE = 1e-5
"""Relative difference below which a bias's own scale is taken for input scale * weight scale."""

MOVES = (
    *("MaxPool", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Resize", "Upsample", "Pad"),
    *("Identity", "Dropout"),
)
NARROW = {"int4": "int8", "uint4": "uint8", "int2": "int8", "uint2": "uint8"}
"""Types of constants that are kept in a wider one: their integers are the same."""

MADE_UP_WEIGHT = Quantization.per_tensor(1 / 16, 0)
"""The quantisation that float weights take while a float model is checked."""


def read_quantization(
    walk: Walk, node: OnnxNode, index: int, *, name: str, shape: Shape, dtype: str | None, axis: int | None
) -> tuple[str, Quantization]:
    """Scale at input `index` and zero-point at the next, for the tensor `name`.

    Args:
        walk: holds the constants.
        node: the reader.
        index: the scale's.
        name: the tensor's, for messages.
        shape: the tensor's.
        dtype: the tensor's where it is known: the zero-point must have it; else it is the zero-point's. One
            of NARROW is read as the type that it is kept in.
        axis: of the channels, should the scale be per channel; None for an activation, where it may not.

    Returns:
        The dtype and the quantisation, checked.

    Raises:
        InvalidModel: a scale or zero-point out of range or of the wrong shape, naming the tensor.
        Unsupported: another dtype than int8, uint8 or int32; an activation quantised per channel.
    """
    where = f"tensor {name} ({node.where})"
    scale = walk.constant(node, index)
    zero_point = walk.constant(node, index + 1) if walk.optional(node, index + 1) is not None else None
    found = dtype or (str(zero_point.dtype) if zero_point is not None else "uint8")
    kept = found if dtype is None else NARROW.get(found, found)
    if kept not in INTEGER_RANGE:
        raise Unsupported(
            f"it is quantised to {found}",
            where=where,
            hint="quantise to int8 or uint8 (weights: int8 per channel)",
        )
    if zero_point is None:
        zero_point = np.zeros(scale.shape, kept)
    elif str(zero_point.dtype) != found:
        raise InvalidModel(f"it is {found}, but its zero-point is {zero_point.dtype}", where=where)
    if scale.dtype != np.float32:
        raise Unsupported(f"its scale is {scale.dtype}, not float32", where=where)
    if scale.size != 1 and axis is None:
        hint = "quantise activations per tensor; only weights may be per channel"
        raise Unsupported(f"an activation with a scale of shape {list(scale.shape)}", where=where, hint=hint)
    if scale.size == 1:
        scale, channels = scale.reshape(()), None
    else:
        # QLinearMatMul may say [1, N] for the columns of its right side.
        scale, channels = scale.reshape(-1) if scale.ndim == 2 and scale.shape[0] == 1 else scale, axis
    if zero_point.size == 1:
        zero_point = np.full(scale.shape, zero_point.reshape(()))
    else:
        zero_point = zero_point.reshape(-1)
    if channels is not None and channels < 0:
        channels += len(shape)
    quantization = Quantization(scale.copy(), zero_point.astype(np.int32), channels)
    check_quantization(quantization, kept, shape, where)
    return kept, quantization


def read_activation(walk: Walk, node: OnnxNode, index: int) -> str:
    """The integer tensor at input `index`, whose scale and zero-point must be those that the node names."""
    name = walk.activation(node, index)
    tensor = walk.builder.tensors[name]
    _, said = read_quantization(
        walk, node, index + 1, name=name, shape=tensor.shape, dtype=tensor.dtype, axis=None
    )
    known = tensor.quantization
    if known is not None and not known.equals(said):
        raise node.invalid(
            f"it reads {name!r} with scale {said.scale} and zero-point {said.zero_point}, "
            f"but that has scale {known.scale} and zero-point {known.zero_point}"
        )
    return name


def input_quantization(walk: Walk, name: str, dtype: str, shape: Shape) -> Quantization | None:
    """Quantisation of the integer graph input `name`, taken from its first reader with a scale, if any.

    None too where that is none of an activation, per channel say: then the integers are plain numbers.
    """
    names = {name}
    for node in walk.nodes:
        if node.op_type in MOVES and node.inputs and node.inputs[0] in names:
            names.update(node.outputs[:1])
            continue
        for index, read in enumerate(node.inputs[:-1]):
            if read in names and (node.op_type.startswith(("QLinear", "QGemm", "DequantizeLinear"))):
                try:
                    return read_quantization(
                        walk, node, index + 1, name=name, shape=shape, dtype=dtype, axis=None
                    )[1]
                except Unsupported:
                    return None
    return None


# --- QuantizeLinear and DequantizeLinear ----------------------------------------------------------------


def quantize_linear(walk: Walk, node: OnnxNode) -> None:
    """The scale and zero-point of a tensor, per tensor for an activation; Quantize of a float input."""
    _no_blocks(node)
    value = walk.value(node, 0)
    if not isinstance(value, Constant | Plain | Real):
        raise node.unsupported(f"its input {node.inputs[0]!r} is quantised already")
    shape = value.array.shape if isinstance(value, Constant) else (1,)
    axis = node.integer("axis", 1) if isinstance(value, Constant) else None
    said = _output_dtype(node) if walk.optional(node, 2) is None else None
    dtype, quantization = read_quantization(
        walk, node, 1, name=node.output, shape=shape, dtype=said, axis=axis
    )
    if isinstance(value, Constant):
        array = _finite(node, value, 0)
        walk.define(node, Constant(node.output, _quantized(array, dtype, quantization)))
    elif dtype == "int32":
        raise node.unsupported(f"the activation {node.output!r} is quantised to int32")
    elif isinstance(value, Plain) and walk.builder.tensors[value.tensor].dtype != "float32":
        raise node.unsupported(f"its input {node.inputs[0]!r} is not float32")
    elif isinstance(value, Plain):
        walk.quantize_plain(node, value.tensor, dtype, quantization)
    else:
        walk.quantize(node, value, dtype, quantization)


def _output_dtype(node: OnnxNode) -> str | None:
    element = node.integer("output_dtype", 0)
    return str(require("onnx.helper").tensor_dtype_to_np_dtype(element)) if element else None


def _quantized(array: Array, dtype: str, quantization: Quantization) -> Array:
    axis = quantization.axis
    shape = () if axis is None else tuple(-1 if i == axis else 1 for i in range(array.ndim))
    scale, zero_point = quantization.scale.reshape(shape), quantization.zero_point.reshape(shape)
    low, high = INTEGER_RANGE[dtype]
    return np.clip(np.rint(array / scale) + zero_point, low, high).astype(dtype)


def dequantize_linear(walk: Walk, node: OnnxNode) -> None:
    """The scale and zero-point of a tensor; Dequantize of an output."""
    value = walk.value(node, 0)
    if isinstance(value, Constant):
        walk.define(node, _constant_meaning(walk, node, value))
        return
    _no_blocks(node)
    if not isinstance(value, Quantized):
        raise node.unsupported(f"its input {node.inputs[0]!r} is not quantised")
    tensor = read_activation(walk, node, 0)
    shape = walk.builder.tensors[tensor].shape
    walk.define(node, Real(node.output, node.name, shape, tensor, shape))


def _no_blocks(node: OnnxNode) -> None:
    if node.integer("block_size", 0):
        raise node.unsupported("blocked quantisation", "quantise per tensor or per channel")


def _constant_meaning(walk: Walk, node: OnnxNode, value: Constant) -> Constant | QuantizedConstant:
    """A constant behind DequantizeLinear: integers with their scales where those are per tensor or channel.

    What is quantised otherwise (by blocks, to 16 bits or 8-bit floats, with scales of other types than
    float32) becomes the floats that it stands for.
    """
    array, dtype = value.array, str(value.array.dtype)
    kept = NARROW.get(dtype, dtype)
    scale = walk.constant(node, 1)
    float32 = scale.dtype == np.float32 and node.integer("output_dtype", 1) == 1
    if kept not in INTEGER_RANGE or not float32 or node.integer("block_size", 0):
        zero_point = walk.constant(node, 2) if walk.optional(node, 2) is not None else None
        return Constant(node.output, _floats(node, array, scale, zero_point))
    axis = node.integer("axis", 1)
    _, quantization = read_quantization(
        walk, node, 1, name=value.name, shape=array.shape, dtype=dtype, axis=axis
    )
    return QuantizedConstant(value.name, array.astype(kept, copy=False), quantization)


def _floats(node: OnnxNode, array: Array, scale: Array, zero_point: Array | None) -> Array:
    """What DequantizeLinear makes of a constant: computed in float32, of the scale's type or output_dtype."""
    where = f"tensor {node.inputs[0]} ({node.where})"
    check_scales(scale, where, of_constants=True)
    if zero_point is not None and zero_point.dtype != array.dtype:
        message = f"it is {array.dtype}, but its zero-point is {zero_point.dtype}"
        raise InvalidModel(message, where=where)
    if zero_point is not None and zero_point.size != scale.size:
        raise InvalidModel(f"{scale.size} scales, but {zero_point.size} zero-points", where=where)
    real = array.astype(np.float32)
    if zero_point is not None:
        real -= spread(node, zero_point.astype(np.float32), array.shape)
    real *= spread(node, scale.astype(np.float32), array.shape)
    chosen = node.integer("output_dtype", 0)
    dtype = require("onnx.helper").tensor_dtype_to_np_dtype(chosen) if chosen else scale.dtype
    return real.astype(dtype, copy=False)


def check_scales(scale: Array, where: str, *, of_constants: bool = False) -> None:
    """Raise InvalidModel unless all scales are finite and positive.

    Those by which constants are only multiplied may have any sign: onnxruntime's symmetric blocks have.
    """
    values = scale.astype(np.float32).reshape(-1)
    wrong = ~np.isfinite(values) if of_constants else ~(np.isfinite(values) & (values > 0))
    if wrong.any():
        rule = "finite" if of_constants else "finite and positive"
        raise InvalidModel(f"its scale is {values[wrong][0]}; scales are {rule}", where=where)


def spread(node: OnnxNode, values: Array, shape: Shape) -> Array:
    """Scales or zero-points of QuantizeLinear or DequantizeLinear, so shaped that they broadcast to `shape`.

    Args:
        node: has the axis and the block size.
        values: one for all, one for each element of the axis, or one for each block along it.
        shape: of what is quantised.

    Raises:
        InvalidModel: another number of them.
    """
    if values.size == 1:
        return values.reshape(())
    rank, block = len(shape), node.integer("block_size", 0)
    axis = node.integer("axis", 1)
    if not -rank <= axis < rank:
        raise node.invalid(f"axis {axis} of a tensor of rank {rank}")
    axis %= rank
    if not block:
        if values.size != shape[axis]:
            raise node.invalid(f"{list(values.shape)} scales or zero-points for axis {axis} of {list(shape)}")
        return values.reshape([-1 if i == axis else 1 for i in range(rank)])
    blocks = [-(-extent // block) if i == axis else extent for i, extent in enumerate(shape)]
    if block < 0 or list(values.shape) != blocks:
        raise node.invalid(
            f"scales or zero-points of shape {list(values.shape)} for {list(shape)} in blocks of {block} "
            f"along axis {axis}, which need {blocks}"
        )
    return values.repeat(block, axis).take(range(shape[axis]), axis)


# --- weights and biases ---------------------------------------------------------------------------------


def read_weight(walk: Walk, node: OnnxNode, index: int) -> QuantizedConstant:
    """The weight at input `index` of a float operator: behind DequantizeLinear, or of a float model."""
    value = walk.value(node, index)
    if isinstance(value, QuantizedConstant):
        return _eight_bits(node, value)
    if not isinstance(value, Constant):
        raise node.unsupported(f"its weight {node.inputs[index]!r} is not a constant")
    array = _finite(node, value, index)
    if not walk.float_model:
        raise node.unsupported(
            f"its weight {value.name!r} is float in a quantised model",
            "quantise the whole model, weights too",
        )
    return QuantizedConstant(value.name, np.zeros(array.shape, np.int8), MADE_UP_WEIGHT)


def _eight_bits(node: OnnxNode, weight: QuantizedConstant) -> QuantizedConstant:
    if str(weight.array.dtype) not in ("uint8", "int8"):
        raise node.unsupported(f"its weight {weight.name!r} is {weight.array.dtype}, not int8 or uint8")
    return weight


def _finite(node: OnnxNode, value: Constant, index: int) -> Array:
    if value.array.dtype != np.float32:
        raise node.unsupported(
            f"its input {node.inputs[index]!r} is {value.array.dtype}, not float32",
            "export the model in float32",
        )
    if not np.isfinite(value.array).all():
        raise InvalidModel(
            f"it holds NaN or infinity, and {node.where} reads it", where=f"initializer {value.name}"
        )
    return value.array


def activation_bias(
    walk: Walk, node: OnnxNode, index: int, x: str, weight: QuantizedConstant
) -> tuple[str, ...]:
    """The int32 bias at input `index`, as no or one tensor name.

    It is added to the accumulator, so that its scale is that of `x` times that of `weight`. A float bias is
    rounded to it, and so is a quantised one that comes with another scale (beyond BIAS_TOLERANCE).
    """
    value = walk.optional(node, index)
    if value is None:
        return ()
    channels = weight.array.shape[0]
    scale = np.float32(walk.builder.tensors[x].scale) * weight.quantization.scale
    if not isinstance(value, Constant | QuantizedConstant):
        raise node.unsupported(f"its bias {node.inputs[index]!r} is not a constant")
    shape = value.array.shape
    if value.array.size not in (1, channels) or value.array.size not in (1, *shape[-1:]):
        raise node.invalid(f"its bias has shape {list(shape)} for {channels} channels")
    if isinstance(value, Constant):
        exact = _finite(node, value, index).astype(np.float64).reshape(-1) / scale
    else:
        exact = value.array.astype(np.float64).reshape(-1) - value.quantization.zero_point
        ratio = value.quantization.scale.astype(np.float64) / scale
        if (np.abs(ratio - 1) > BIAS_TOLERANCE).any():
            exact = exact * ratio
    rounded = np.rint(np.broadcast_to(exact.reshape(-1), (channels,)))
    if np.abs(rounded).max() >= 2**31:
        raise node.unsupported(f"its bias {value.name!r} does not fit int32 at the accumulator's scale")
    axis = None if scale.ndim == 0 else 0
    quantization = Quantization(scale.astype(np.float32), np.zeros(scale.shape, np.int32), axis)
    return (walk.builder.constant(value.name, rounded.astype(np.int32), quantization),)
