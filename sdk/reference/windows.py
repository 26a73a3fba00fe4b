"""Sliding windows in numpy: the padded input, and one view of it for each tap."""

from __future__ import annotations

import numpy as np

from sdk.graph import Array
from sdk.shapes import window_positions


def padded(x: Array, pads: tuple[int, int, int, int], value: float = 0) -> Array:
    """[N,C,H,W] with a border of (top, left, bottom, right) elements of `value`."""
    top, left, bottom, right = pads
    if not any(pads):
        return x
    return np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=value)


def taps(
    x: Array, kernel: tuple[int, int], strides: tuple[int, int], dilations: tuple[int, int]
) -> list[Array]:
    """Views of padded `x`, one per kernel element in row-major order, each of the output's size."""
    rows, columns = window_positions(x.shape[2:], kernel, strides, (0, 0, 0, 0), dilations)
    (sh, sw), (dh, dw) = strides, dilations
    return [
        x[:, :, i * dh : i * dh + (rows - 1) * sh + 1 : sh, j * dw : j * dw + (columns - 1) * sw + 1 : sw]
        for i in range(kernel[0])
        for j in range(kernel[1])
    ]
