"""What TFLite's convolutions and pools share: windows, SAME padding, the range of a fused activation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sdk.graph import Clamp, Quantization
from sdk.importers.tflite.file import Shape, TfliteOperator, TfliteTensor
from sdk.verification import INTEGER_RANGE

Pads = tuple[int, int, int, int]
REAL_BOUNDS = {0: (-math.inf, math.inf), 1: (0.0, math.inf), 2: (-1.0, 1.0), 3: (0.0, 6.0)}
"""The schema's ActivationFunctionType: NONE, RELU, RELU_N1_TO_1, RELU6."""
SAME, VALID = 0, 1
LARGEST_WINDOW = 1 << 20
"""Of a window's extents, strides and dilations."""
LARGEST_RESIZED = 1 << 14
"""Rows or columns of a nearest neighbour, which are listed one by one."""


@dataclass(frozen=True)
class Windows:
    """Two-dimensional windows; `pads` is (top, left, bottom, right)."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: Pads
    dilations: tuple[int, int]


def clamp(node: TfliteOperator, activation: int, out: TfliteTensor, quantization: Quantization) -> Clamp:
    """A fused activation as bounds of the output's integers (TFLite's CalculateActivationRangeQuantized)."""
    if activation not in REAL_BOUNDS:
        raise node.unsupported(
            f"its fused activation {activation}; NONE, RELU, RELU6 and RELU_N1_TO_1 are supported"
        )
    first, last = INTEGER_RANGE[out.dtype]
    low, high = (
        bound
        if math.isinf(bound)
        else int(quantization.zero_point) + _round(bound / float(quantization.scale))
        for bound in REAL_BOUNDS[activation]
    )
    return int(min(max(first, low), last)), int(max(min(last, high), first))


def _round(value: float) -> int:
    """Half away from zero."""
    return int(math.copysign(math.floor(min(abs(value), 2.0**31) + 0.5), value))


def windows(node: TfliteOperator, table: str, shape: Shape, kernel: tuple[int, int] | None = None) -> Windows:
    """Windows over an NCHW input of `shape`; `kernel` is the weight's, a pool has its own.

    Raises:
        InvalidModel: strides, dilations or sizes that are not positive, or exceed LARGEST_WINDOW.
    """
    strides = (node.option(table, "StrideH"), node.option(table, "StrideW"))
    dilations = (1, 1)
    if kernel is None:
        kernel = (node.option(table, "FilterHeight"), node.option(table, "FilterWidth"))
    else:
        dilations = (node.option(table, "DilationHFactor"), node.option(table, "DilationWFactor"))
    numbers = (*kernel, *strides, *dilations)
    if not all(1 <= number <= LARGEST_WINDOW for number in numbers):
        raise node.invalid(f"kernel {list(kernel)}, strides {list(strides)}, dilations {list(dilations)}")
    padding = node.option(table, "Padding")
    if padding not in (SAME, VALID):
        raise node.invalid(f"padding {padding} is neither SAME nor VALID")
    pads = same_pads(shape, kernel, strides, dilations) if padding == SAME else (0, 0, 0, 0)
    return Windows(kernel, strides, pads, dilations)


def same_pads(
    shape: Shape, kernel: tuple[int, int], strides: tuple[int, int], dilations: tuple[int, int]
) -> Pads:
    """TFLite's SAME: as many windows as strides fit, the odd element of padding below and to the right."""
    totals = []
    for i in (0, 1):
        reach = dilations[i] * (kernel[i] - 1) + 1
        count = -(-shape[2 + i] // strides[i])
        totals.append(max((count - 1) * strides[i] + reach - shape[2 + i], 0))
    (top, left), (height, width) = (total // 2 for total in totals), totals
    return top, left, height - top, width - left


def nearest(
    node: TfliteOperator, extent: int, size: int, align_corners: bool, half_pixel_centers: bool
) -> tuple[int, ...]:
    """Where each of `size` rows comes from, in TFLite's float32.

    Raises:
        Unsupported: there are too many.
    """
    if not 1 <= size <= LARGEST_RESIZED:
        raise node.unsupported(f"a size of {size}: only 1 to {LARGEST_RESIZED} are supported")
    aligned = align_corners and size > 1
    scale = (
        np.float32(extent - 1) / np.float32(size - 1) if aligned else np.float32(extent) / np.float32(size)
    )
    place = (np.arange(size, dtype=np.float32) + np.float32(0.5 if half_pixel_centers else 0)) * scale
    whole = np.floor(place + np.float32(0.5)) if align_corners else np.floor(place)
    return tuple(int(row) for row in np.clip(whole, 0, extent - 1))
