"""CONV_2D, DEPTHWISE_CONV_2D and FULLY_CONNECTED: weights turned to ONNX's order, biases checked."""

from __future__ import annotations

import numpy as np

from sdk.graph import Array, Conv, Gemm, Pad, Quantization, Reshape, Tensor, Transpose
from sdk.importers.tflite.file import TfliteOperator, TfliteTensor
from sdk.importers.tflite.walk import CONVERT, NCHW, Walk
from sdk.importers.tflite.windows import clamp, windows
from sdk.verification import check_quantization

BIAS_TOLERANCE = 0.02
"""TFLite's own: how far, in output steps, a bias's scale may be off the product of input and weight scale."""
DEFAULT_FORMAT = 0


def conv_2d(walk: Walk, node: TfliteOperator) -> None:
    """Conv."""
    tensor, array = _weight(walk, node, rank=4)
    weight = _constant(walk, tensor, array.transpose(0, 3, 1, 2), channel_axis=0)
    _convolution(walk, node, "Conv2DOptions", weight)


def depthwise_conv_2d(walk: Walk, node: TfliteOperator) -> None:
    """Conv."""
    tensor, array = _weight(walk, node, rank=4)
    if array.shape[0] != 1:
        raise node.invalid(f"its weight is {list(array.shape)}, not [1,H,W,C]")
    weight = _constant(walk, tensor, array.transpose(3, 0, 1, 2), channel_axis=3)
    _convolution(walk, node, "DepthwiseConv2DOptions", weight)


def _convolution(walk: Walk, node: TfliteOperator, table: str, weight: str) -> None:
    x = walk.picture(node, 0)
    size, shape = walk.builder.tensors[x].shape, walk.builder.tensors[weight].shape
    if size[1] % shape[1]:
        raise node.invalid(f"a weight of {shape[1]} channels does not divide the input's {size[1]}")
    found = windows(node, table, size, (shape[2], shape[3]))
    pads, padding = found.pads, walk.producer(x)
    if isinstance(padding, Pad):  # both borders are zeros
        x = padding.inputs[0]
        top, left, bottom, right = (a + b for a, b in zip(pads, padding.pads, strict=True))
        pads = (top, left, bottom, right)
    inputs = (x, weight, *_bias(walk, node, x, weight))
    out, quantization = walk.result(node)
    bounds = clamp(node, node.option(table, "FusedActivationFunction"), out, quantization)
    group = size[1] // shape[1]
    template = Conv(node.name, inputs, "", found.strides, pads, found.dilations, group, bounds)
    walk.define(node, template, NCHW)


def fully_connected(walk: Walk, node: TfliteOperator) -> None:
    """Gemm."""
    table = "FullyConnectedOptions"
    tensor, array = _weight(walk, node, rank=2)
    if (found := node.option(table, "WeightsFormat")) != DEFAULT_FORMAT:
        raise node.unsupported(f"weights format {found}; only DEFAULT is supported")
    view = walk.activation(node, 0)
    outputs, depth = array.shape
    source = walk.builder.tensors[walk.plain(view)]
    if source.size % depth:
        raise node.invalid(f"a weight {list(array.shape)} does not fit an input {list(walk.dims(view))}")
    rows = source.size // depth
    name, array = _unmoved(walk, source.name, array, rows)
    if walk.builder.tensors[name].shape != (rows, depth):
        flat = walk.builder.tensors[name]
        template = Reshape(f"{node.name}_input", (name,), "")
        name = walk.emit(template, Tensor("", (rows, depth), flat.dtype, flat.quantization))
    weight = _constant(walk, tensor, array, channel_axis=0)
    inputs = (name, weight, *_bias(walk, node, name, weight))
    out, quantization = walk.result(node)
    gemm = Gemm(
        node.name, inputs, "", clamp(node, node.option(table, "FusedActivationFunction"), out, quantization)
    )
    shape = (rows, outputs)
    if node.option(table, "KeepNumDims"):
        shape = (*walk.dims(view)[:-1], outputs)
    if shape == (rows, outputs):
        walk.define(node, gemm, (0, 1))
        return
    made = walk.emit(gemm, Tensor("", (rows, outputs), out.dtype, quantization))
    walk.define(node, Reshape(f"{node.name}_output", (made,), ""), range(len(shape)), shape=shape)


def _unmoved(walk: Walk, name: str, weight: Array, rows: int) -> tuple[str, Array]:
    """The input before it was brought to NHWC and flattened, and the weight's columns in that order."""
    flattening = walk.producer(name)
    moving = walk.producer(flattening.inputs[0] if isinstance(flattening, Reshape) else name)
    if not isinstance(moving, Transpose) or moving.perm != (0, 2, 3, 1):
        return name, weight
    before = walk.builder.tensors[moving.inputs[0]]
    batch, channels, height, width = before.shape
    if batch != rows:
        return name, weight
    columns = weight.reshape(-1, height, width, channels).transpose(0, 3, 1, 2).reshape(weight.shape)
    return before.name, columns


def _weight(walk: Walk, node: TfliteOperator, rank: int) -> tuple[TfliteTensor, Array]:
    tensor = walk.operand(node, 1)
    array = walk.constant(node, 1)
    if tensor.dtype not in ("int8", "uint8"):
        hint = CONVERT if "float" in tensor.dtype else "only 8-bit weights are supported"
        raise node.unsupported(f"its weight {tensor.name!r} is {tensor.dtype}, not int8 or uint8", hint)
    if array.ndim != rank or array.size == 0:
        raise node.invalid(f"its weight {tensor.name!r} has shape {list(array.shape)}, not rank {rank}")
    return tensor, array


def _constant(walk: Walk, tensor: TfliteTensor, array: Array, channel_axis: int) -> str:
    """File a weight, its output channels now in front; returns its name."""
    axis = None if tensor.scale.size == 1 else 0
    if axis is not None and tensor.axis != channel_axis:
        axis = tensor.axis  # the check below would not see it
    bounded = np.clip(tensor.zero_point, -(2**31), 2**31 - 1).astype(np.int32)
    shape = () if axis is None else (-1,)
    quantization = Quantization(tensor.scale.astype(np.float32).reshape(shape), bounded.reshape(shape), axis)
    check_quantization(quantization, tensor.dtype, array.shape, tensor.where)
    return walk.builder.constant(tensor.name, array, quantization)


def _bias(walk: Walk, node: TfliteOperator, x: str, weight: str) -> tuple[str, ...]:
    """The bias's name in the graph, its scale made the product of the other two; none without a bias."""
    tensor = walk.optional(node, 2)
    if tensor is None:
        return ()
    array = walk.constant(node, 2)
    channels = walk.builder.tensors[weight].shape[0]
    if tensor.dtype != "int32":
        raise node.unsupported(f"its bias {tensor.name!r} is {tensor.dtype}, not int32")
    if array.shape != (channels,):
        raise node.invalid(f"its bias {tensor.name!r} is {list(array.shape)} for {channels} channels")
    known = walk.builder.tensors[weight].quantization
    assert known is not None  # filed with one
    scale = np.asarray(known.scale * np.float32(walk.builder.tensors[x].scale), np.float32)
    if tensor.scale.size:
        step = float(walk.result(node)[1].scale)
        fits = tensor.scale.size in (1, channels)
        if not fits or not (np.abs(tensor.scale.astype(np.float64) - scale) <= BIAS_TOLERANCE * step).all():
            raise node.invalid(f"the scale of its bias {tensor.name!r} is not that of input times weight")
    quantization = Quantization(scale, np.zeros(scale.shape, np.int32), known.axis)
    return (walk.builder.constant(tensor.name, array, quantization),)
