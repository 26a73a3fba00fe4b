"""Weights and constants in the order the kernels read them; one blob, in plan order.

The orders are those that the kernels' first lines state. Zero-points are folded into the bias: with padding
that holds the input's zero-point, sum((x - zx) (w - zw)) + b = sum(x v) + (b - zx sum(v)), v = w - zw.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sdk.arithmetic import scale_ratio
from sdk.errors import InternalError
from sdk.graph import Array, Graph, Node, Tensor

TILE = 16
"""Channels and bytes of k of a matrix instruction, and what a pixel's pitch is a multiple of."""


def round_up(count: int, to: int = TILE) -> int:
    return -(-count // to) * to


def centred_weights(tensor: Tensor) -> Array:
    """int16 weights less their zero-points."""
    if tensor.data is None or tensor.quantization is None:
        raise InternalError(f"weight {tensor.name} is not constant")
    zero_point = tensor.quantization.zero_point.reshape((-1,) + (1,) * (tensor.data.ndim - 1))
    return np.asarray(tensor.data.astype(np.int16) - zero_point.astype(np.int16))


def fits_signed_bytes(weights: Array) -> bool:
    return bool(weights.min() >= -128 and weights.max() <= 127)


def channel_scales(graph: Graph, node: Node) -> Array:
    """Requantisation scale of each output channel of a Conv or Gemm: float32 [O]."""
    x, weight, y = (graph.tensor(name) for name in (node.inputs[0], node.inputs[1], node.output))
    if weight.quantization is None:
        raise InternalError(f"weight {weight.name} has no quantisation")
    scales = np.broadcast_to(weight.quantization.scale, weight.shape[:1])
    return np.array([scale_ratio(x.scale, float(s), over=y.scale) for s in scales], "<f4")


def folded_bias(graph: Graph, node: Node, weights: Array) -> Array:
    """Bias [O] with the input's zero-point folded in; `weights` are centred, [O, ...]."""
    sums = weights.reshape(len(weights), -1).astype(np.int64).sum(axis=1)
    bias = graph.tensor(node.inputs[2]).data if len(node.inputs) > 2 else None
    start = np.zeros(len(sums), np.int64) if bias is None else bias.astype(np.int64)
    # Modulo 2^32, like the sum that it starts; the sum as a whole fits (`sdk.passes.verify`).
    return np.asarray((start - graph.tensor(node.inputs[0]).zero_point * sums).astype(np.int32))


def tiled_constants(bias: Array, scales: Array) -> Array:
    """[tile][bias, scale][16]; channels that do not exist get 0."""
    size = round_up(len(bias))
    words = np.zeros((2, size), "<u4")
    words[0, : len(bias)] = bias.astype("<i4").view("<u4")
    words[1, : len(scales)] = scales.astype("<f4").view("<u4")
    return words.reshape(2, -1, TILE).swapaxes(0, 1)


def flat_constants(bias: Array, scales: Array) -> Array:
    """[bias, scale][pitch]."""
    return tiled_constants(bias, scales).swapaxes(0, 1)


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


def dense_groups(weights: Array, groups: int) -> Array:
    """Grouped weights [O, I/groups, kh, kw] as the equal ungrouped ones [O, I, kh, kw], zeros elsewhere."""
    outputs, inputs = weights.shape[:2]
    dense = np.zeros((outputs, inputs * groups, *weights.shape[2:]), weights.dtype)
    for output in range(outputs):
        first = output // (outputs // groups) * inputs
        dense[output, first : first + inputs] = weights[output]
    return dense
