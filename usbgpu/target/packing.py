"""Weights and constants in the order the kernels read them; one blob, in plan order.

The orders are those that the first lines of kernels state; zero-points are in the biases (`sdk.lowering`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sdk.graph import Array

TILE = 16
"""Channels and bytes of k of a matrix instruction, and what a pixel's pitch is a multiple of."""


def round_up(count: int, to: int = TILE) -> int:
    return -(-count // to) * to


def signed_weights(weights: Array) -> tuple[Array, Array]:
    """Centred weights [O, ...], of 9 bits at most, as signed bytes plus an offset [O] of each channel.

    The offsets are 0 where the weights fit as they are; the weights of a channel span at most 255.
    """
    flat = weights.reshape(len(weights), -1).astype(np.int32)
    above, below = np.maximum(flat.max(axis=1) - 127, 0), np.minimum(flat.min(axis=1) + 128, 0)
    offsets = above + below  # one of them is 0
    return weights - offsets.reshape(-1, *(1,) * (weights.ndim - 1)), offsets


def tiled_constants(*rows: Array) -> Array:
    """Rows of 32-bit words a channel as [tile][row][16]; channels that do not exist get 0."""
    words = np.zeros((len(rows), round_up(len(rows[0]))), "<u4")
    for number, row in enumerate(rows):
        words[number, : len(row)] = row.astype(f"<{row.dtype.kind}4").view("<u4")
    return words.reshape(len(rows), -1, TILE).swapaxes(0, 1)


def flat_constants(*rows: Array) -> Array:
    """[row][pitch]."""
    return tiled_constants(*rows).swapaxes(0, 1)


def tile_rows(generation: int) -> Sequence[int]:
    """Which channel of a tile is in each row of the matrix instruction's A operand (kernels/matrix.cl)."""
    if generation >= 12:
        return range(TILE)
    return [8 * (row % 2) + row // 2 for row in range(TILE)]


def matrix_weights(weights: Array, pitch: int, generation: int) -> Array:
    """Centred [O, I, kh, kw] -> [O / 16][tap][pitch / 16][row][16 bytes of k]."""
    outputs, inputs = weights.shape[:2]
    taps = weights.shape[2] * weights.shape[3]
    full = np.zeros((round_up(outputs), taps, pitch), np.int8)
    full[:outputs, :, :inputs] = weights.reshape(outputs, inputs, taps).swapaxes(1, 2)
    tiles = full.reshape(-1, TILE, taps, pitch // TILE, TILE)[:, tile_rows(generation)]
    return tiles.transpose(0, 2, 3, 1, 4)


def direct_weights(weights: Array) -> Array:
    """Centred [O, I <= 4, kh, kw] -> [O / 16][tap][16][4]."""
    outputs, inputs = weights.shape[:2]
    taps = weights.shape[2] * weights.shape[3]
    full = np.zeros((round_up(outputs), taps, 4), np.int8)
    full[:outputs, :, :inputs] = weights.reshape(outputs, inputs, taps).swapaxes(1, 2)
    return full.reshape(-1, TILE, taps, 4).swapaxes(1, 2)


def depthwise_weights(weights: Array) -> Array:
    """Centred [C, 1, kh, kw] -> [tap][pitch]."""
    full = np.zeros((weights.shape[2] * weights.shape[3], round_up(len(weights))), np.int8)
    full[:, : len(weights)] = weights.reshape(len(weights), -1).T
    return full
