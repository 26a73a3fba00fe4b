"""Weights, biases and multipliers in the order the kernels read them; one blob, in plan order.

The orders are those of kernels/kernels.h. Zero-points are folded into the bias: with padding that holds the
input's zero-point, sum((x - zx) * w) + b = sum(x * w) + (b - zx * sum(w)).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sdk.arena import Blob
from sdk.arithmetic import q31
from sdk.graph import Array

Int = NDArray[np.int64]


@dataclass(frozen=True)
class Requantization:
    """Offsets in the blob of per-channel words; `shift` is None where no channel needs one."""

    bias: int
    multiplier: int
    shift: int | None

    def fields(self) -> dict[str, int]:
        return {"bias": self.bias, "multiplier": self.multiplier, "shift": self.shift or 0}


def round_up(count: int, to: int) -> int:
    return -(-count // to) * to


def padded(values: Int, length: int) -> Int:
    return np.pad(values, (0, length - len(values)))


def fold_zero_point(weight: Array, bias: Array | None, zero_point: int) -> Int:
    """Bias [O] with the input's zero-point folded in; `weight` is [O, ...]."""
    sums = weight.reshape(weight.shape[0], -1).astype(np.int64).sum(axis=1)
    start = np.zeros(len(sums), np.int64) if bias is None else bias.astype(np.int64)
    folded: Int = start - zero_point * sums
    return folded


def requantization(blob: Blob, bias: Int, scales: Sequence[float], channels: int) -> Requantization:
    """Append bias, multipliers and, where any is needed, shifts, padded with zeros to `channels`."""
    constants = [q31(float(scale)) for scale in scales]
    multiplier = np.array([c.multiplier for c in constants], np.int64)
    shift = np.array([c.shift for c in constants], np.int64)
    bias_at, multiplier_at = (
        blob.add(padded(values, channels).astype("<i4")) for values in (bias, multiplier)
    )
    return Requantization(
        bias_at, multiplier_at, blob.add(padded(shift, channels).astype("<i4")) if shift.any() else None
    )


def conv_weights(weight: Array) -> Array:
    """[O, steps, 4] -> tiles of eight output channels: [tile][step][8][4]; an odd last four [step][4][4].

    O is padded to a multiple of 4 with zeros.
    """
    outputs = weight.shape[0]
    weight = np.pad(weight, ((0, round_up(outputs, 4) - outputs), (0, 0), (0, 0)))
    tiles = [
        weight[first : first + 8].transpose(1, 0, 2).reshape(-1) for first in range(0, weight.shape[0], 8)
    ]
    return np.concatenate(tiles).astype(np.int8)


def depthwise_weights(weight: Array, quads: int, single: bool) -> Array:
    """[C, taps] -> per plane: [quad][channel][4 taps], then for a single last tap a word per channel.

    C is padded to a multiple of 4, the taps of the quads with zeros.
    """
    channels, taps = weight.shape
    planes = round_up(channels, 4) // 4
    in_quads = taps - single
    grouped = np.zeros((planes, 4, quads * 4), np.int8)
    padded_weight = np.pad(weight, ((0, planes * 4 - channels), (0, 0))).reshape(planes, 4, taps)
    grouped[:, :, :in_quads] = padded_weight[:, :, :in_quads]
    words = grouped.reshape(planes, 4, quads, 4).transpose(0, 2, 1, 3)
    if not single:
        return words
    last = np.zeros((planes, 1, 4, 4), np.int8)
    for channel in range(4):
        last[:, 0, channel, channel] = padded_weight[:, channel, -1]
    return np.concatenate([words, last], axis=1)


def gemm_weights(weight: Array) -> Array:
    """[N, K] -> [block of 32][step][32][4], N padded to 32 and K to 4 with zeros."""
    outputs, inputs = weight.shape
    full = np.pad(weight, ((0, round_up(outputs, 32) - outputs), (0, round_up(inputs, 4) - inputs)))
    return full.reshape(-1, 32, full.shape[1] // 4, 4).transpose(0, 2, 1, 3).astype(np.int8)
