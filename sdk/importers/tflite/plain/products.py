"""Convolutions, matrices, pools, resized pictures: weights in ONNX's order, explicit paddings."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np

from sdk.graph import Fill
from sdk.importers.tflite.file import Shape
from sdk.importers.tflite.plain.conversion import Conversion
from sdk.importers.tflite.walk import NCHW
from sdk.importers.tflite.windows import LARGEST_WINDOW, SAME, VALID, nearest, same_pads, windows

CUSTOM_TRANSPOSE = struct.Struct("<iii")
"""Options of Convolution2DTransposeBias: padding (1 is SAME, 2 VALID), stride of columns, stride of rows."""


def conv_2d(c: Conversion) -> None:
    """Conv."""
    weight = _weight(c, 1, 4)
    _convolution(c, "Conv2DOptions", c.transpose(weight, (0, 3, 1, 2)))


def depthwise_conv_2d(c: Conversion) -> None:
    """Conv."""
    weight = _weight(c, 1, 4)
    if c.shape(weight)[0] != 1:
        raise c.node.invalid(f"its weight is {list(c.shape(weight))}, not [1,H,W,C]")
    _convolution(c, "DepthwiseConv2DOptions", c.transpose(weight, (3, 0, 1, 2)))


def _weight(c: Conversion, index: int, rank: int) -> str:
    weight = c.x(index)
    if c.rank(weight) != rank or 0 in c.shape(weight):
        raise c.node.invalid(f"its weight has shape {list(c.shape(weight))}, not rank {rank}")
    return weight


def _convolution(c: Conversion, table: str, weight: str) -> None:
    x = c.picture(0)
    size, (outputs, inputs, *kernel) = c.shape(x), c.shape(weight)
    if size[1] % inputs or outputs % (size[1] // inputs):
        raise c.node.invalid(f"a weight of {inputs} channels does not fit the input's {size[1]}")
    found = windows(c.node, table, size, (kernel[0], kernel[1]))
    x, pads = _with_border(c, x, found.pads)
    result = c.make(
        "Conv",
        x,
        weight,
        *_bias(c, 2, outputs),
        strides=found.strides,
        pads=pads,
        dilations=found.dilations,
        group=size[1] // inputs,
    )
    c.define(c.activated(result, c.option(table, "FusedActivationFunction")), NCHW)


def _with_border(c: Conversion, x: str, pads: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    """The value before a PAD of zeros, and the pads of both."""
    made = c.walk.producer(x)
    if not isinstance(made, Fill) or made.value != 0 or any(made.befores[:2] + made.afters[:2]):
        return x, pads
    before = c.lifted(made.inputs[0])
    return before, tuple(a + b for a, b in zip(pads, made.befores[2:] + made.afters[2:], strict=True))


def _bias(c: Conversion, index: int, channels: int) -> list[str]:
    if not c.has(index):
        return []
    bias = c.x(index)
    if c.shape(bias) != (channels,):
        raise c.node.invalid(f"its bias is {list(c.shape(bias))} for {channels} channels")
    return [bias]


def transpose_conv(c: Conversion) -> None:
    """ConvTranspose."""
    table = "TransposeConvOptions"
    weight, x = _weight(c, 1, 4), c.picture(2)
    strides = (c.option(table, "StrideH"), c.option(table, "StrideW"))
    wanted = c.integers(0)
    if len(wanted) != 4 or wanted[3] != c.shape(weight)[0]:
        raise c.node.invalid(f"its result {list(wanted)} does not fit its weight {list(c.shape(weight))}")
    result = _transposed(c, x, weight, 3, strides, c.option(table, "Padding"), wanted)
    c.define(c.activated(result, c.option(table, "FusedActivationFunction", 0)), NCHW)


def convolution_2d_transpose_bias(c: Conversion) -> None:
    """ConvTranspose."""
    if len(c.node.custom) < CUSTOM_TRANSPOSE.size:
        raise c.node.invalid(f"its {len(c.node.custom)} bytes of options are not {CUSTOM_TRANSPOSE.size}")
    padding, columns, rows = CUSTOM_TRANSPOSE.unpack_from(c.node.custom)
    x, weight = c.picture(0), _weight(c, 1, 4)
    (n, _, *size), (outputs, *kernel, _), strides = c.shape(x), c.shape(weight), (rows, columns)
    _check_strides(c, strides)
    extents = [
        extent * stride if padding == 1 else (extent - 1) * stride + reach
        for extent, stride, reach in zip(size, strides, kernel, strict=True)
    ]
    result = _transposed(c, x, weight, 2, strides, padding - 1, (n, *extents, outputs))
    c.define(result, NCHW)


def _check_strides(c: Conversion, strides: tuple[int, int]) -> None:
    if not all(1 <= stride <= LARGEST_WINDOW for stride in strides):
        raise c.node.invalid(f"strides {list(strides)}")


def _transposed(
    c: Conversion, x: str, weight: str, bias: int, strides: tuple[int, int], padding: int, wanted: Shape
) -> str:
    """A transposed convolution whose result is [N,H,W,C] `wanted`: what a convolution of that would read."""
    _check_strides(c, strides)
    outputs, *kernel, inputs = c.shape(weight)
    n, channels, *size = c.shape(x)
    if channels != inputs or wanted[0] != n or padding not in (SAME, VALID):
        raise c.node.invalid(f"{list(c.shape(x))} with a weight {list(c.shape(weight))}, padding {padding}")
    pads, extra = [0] * 4, [0, 0]
    if padding == SAME:
        pads = list(same_pads((n, outputs, *wanted[1:3]), (kernel[0], kernel[1]), strides, (1, 1)))
    for i in (0, 1):
        whole = (size[i] - 1) * strides[i] + kernel[i]
        rest = whole - pads[i] - wanted[1 + i]
        pads[2 + i], extra[i] = max(rest, 0), max(-rest, 0)
        if extra[i] > strides[i] + kernel[i]:
            raise c.node.invalid(f"its result {list(wanted)} does not fit its input {list(c.shape(x))}")
    turned = c.transpose(weight, (3, 0, 1, 2))
    return c.make(
        "ConvTranspose",
        x,
        turned,
        *_bias(c, bias, outputs),
        strides=strides,
        pads=pads,
        output_padding=extra,
    )


def fully_connected(c: Conversion) -> None:
    """Gemm."""
    table = "FullyConnectedOptions"
    if (found := c.option(table, "WeightsFormat", 0)) != 0:
        raise c.node.unsupported(f"weights format {found}; only DEFAULT is supported")
    x, weight = c.x(0), _weight(c, 1, 2)
    shape, (outputs, depth) = c.shape(x), c.shape(weight)
    size = int(np.prod(shape))
    if size % depth:
        raise c.node.invalid(f"a weight {[outputs, depth]} does not fit an input {list(shape)}")
    result = c.make("Gemm", c.reshape(x, (size // depth, depth)), weight, *_bias(c, 2, outputs), transB=1)
    if c.option(table, "KeepNumDims", False):
        result = c.reshape(result, (*shape[:-1], outputs))
    c.define(c.activated(result, c.option(table, "FusedActivationFunction")))


def batch_matmul(c: Conversion) -> None:
    """MatMul."""
    sides = []
    for index, name in enumerate(("AdjX", "AdjY")):
        x = c.x(index)
        rank = c.rank(x)
        if rank < 2:
            raise c.node.invalid(f"BATCH_MATMUL of {list(c.shape(x))}")
        if c.option("BatchMatMulOptions", name, False):
            x = c.transpose(x, (*range(rank - 2), rank - 1, rank - 2))
        sides.append(x)
    c.define(c.make("MatMul", *sides))


# --- pools ----------------------------------------------------------------------------------------------


def pool(op_type: str) -> Callable[[Conversion], None]:
    def handler(c: Conversion) -> None:
        x = c.picture(0)
        found = windows(c.node, "Pool2DOptions", c.shape(x))
        fields = {"kernel_shape": found.kernel, "strides": found.strides, "pads": found.pads}
        if op_type == "L2":
            result = c.make("Sqrt", c.make("AveragePool", c.make("Mul", x, x), **fields))
        else:
            result = c.make(op_type, x, **fields)
        c.define(c.activated(result, c.option("Pool2DOptions", "FusedActivationFunction")), NCHW)

    handler.__doc__ = "Mul, AveragePool, Sqrt." if op_type == "L2" else f"{op_type}."
    return handler


# --- resized --------------------------------------------------------------------------------------------


def _size(c: Conversion) -> tuple[int, int]:
    size = c.integers(1)
    if len(size) != 2 or min(size) < 1:
        raise c.node.invalid(f"a size of {list(size)}")
    return size[0], size[1]


def resize_bilinear(c: Conversion) -> None:
    """Resize."""
    table = "ResizeBilinearOptions"
    x, size = c.picture(0), _size(c)
    half, align = c.option(table, "HalfPixelCenters", False), c.option(table, "AlignCorners", False)
    mode = "align_corners" if align else "half_pixel" if half else "asymmetric"
    sizes = c.constant((*c.shape(x)[:2], *size), part="sizes")
    fields = {"mode": "linear", "coordinate_transformation_mode": mode}
    c.define(c.make("Resize", x, "", "", sizes, **fields), NCHW)


def resize_nearest_neighbor(c: Conversion) -> None:
    """Gather."""
    table = "ResizeNearestNeighborOptions"
    x, size = c.picture(0), _size(c)
    align, half = (bool(c.option(table, name, False)) for name in ("AlignCorners", "HalfPixelCenters"))
    for axis, to in zip((2, 3), size, strict=True):
        chosen = nearest(c.node, c.shape(x)[axis], to, align, half)
        x = c.make("Gather", x, c.constant(chosen, part="places"), axis=axis)
    c.define(x, NCHW)
