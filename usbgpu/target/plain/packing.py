"""Weights in the order that kernels/plain/product.cl and fma.cl read them, and biases."""

from __future__ import annotations

import numpy as np

from sdk.graph import Array
from usbgpu.target.packing import TILE, round_up, tile_rows

MATRIX_TYPES = ("float16", "bfloat16")
"""What WMMA multiplies."""


def product_weights(weights: Array, dtype: str, generation: int) -> Array:
    """[sets, O, taps, k] -> [sets][O / 16][tap][k / 16][row][16 of k].

    Args:
        weights: as tensors of that dtype store them (bfloat16 as uint16).
        dtype: of WMMA, whose rows are those of the generation's A operand; or float32, in order.
        generation: 11 or 12.
    """
    sets, outputs, taps, k = weights.shape
    steps = round_up(k) // TILE
    full = np.zeros((sets, round_up(outputs), taps, steps * TILE), weights.dtype)
    full[:, :outputs, :, :k] = weights
    tiles = full.reshape(sets, -1, TILE, taps, steps, TILE)
    if dtype in MATRIX_TYPES:
        tiles = tiles[:, :, list(tile_rows(generation))]
    return np.ascontiguousarray(tiles.transpose(0, 1, 3, 4, 2, 5))


def product_bias(bias: Array) -> Array:
    """[sets, O] -> [sets][O, whole tiles], float32."""
    full = np.zeros((len(bias), round_up(bias.shape[1])), np.float32)
    full[:, : bias.shape[1]] = bias
    return full


def depthwise_weights(weights: Array) -> Array:
    """[C, kh, kw] -> [tap][C, whole eights]."""
    channels = len(weights)
    full = np.zeros((weights.shape[1] * weights.shape[2], round_up(channels, 8)), weights.dtype)
    full[:, :channels] = weights.reshape(channels, -1).T
    return full
