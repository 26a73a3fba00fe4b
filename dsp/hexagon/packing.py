"""Weights, biases, multipliers and masks in the order the kernels read them; one blob, in plan order.

The orders are those of kernels/kernels.h. Zero-points are folded into the bias: with padding that holds the
input's zero-point, sum((x - zx) * w) + b = sum(x * w) + (b - zx * sum(w)).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dsp.hexagon.calls import splat
from dsp.hexagon.context import Context
from dsp.hexagon.layout import PIXEL, VECTOR_PIXELS, Planes, element_index
from sdk.arena import Blob, align
from sdk.arithmetic import Q31, q15, q31, q31_arrays
from sdk.errors import Unsupported
from sdk.graph import Array, Clamp, Node
from sdk.lowering import centred_weights
from sdk.scales import node_scales

Int = NDArray[np.int64]

Q15_ROOM = 2**31 - 2**15
"""Of q15's accumulators, whatever their narrowing shift."""


@dataclass(frozen=True)
class Requantization:
    """Offsets in the blob of per-channel words; `shift` is None where no channel needs one."""

    bias: int
    multiplier: int
    shift: int | None

    def fields(self) -> dict[str, int]:
        return {"bias": self.bias, "multiplier": self.multiplier, "shift": self.shift or 0}


def padded(values: Int, length: int) -> Int:
    return np.pad(values, (0, length - len(values)))


@dataclass(frozen=True)
class Factors:
    """What accumulators are multiplied by, as kernels read it: int64 arrays of the scales' shape.

    Attributes:
        multipliers: of q31; or those of q15, with how far their products are narrowed in the upper halfword.
        shifts: of the accumulators to the left, before.
    """

    multipliers: Int
    shifts: Int

    def some(self, channels: slice) -> Factors:
        return Factors(self.multipliers[channels], self.shifts[channels])


def factors(context: Context, scales: NDArray[np.float32], bounds: Int | int) -> Factors:
    """The constants of a node's scales, for accumulators of at most these magnitudes.

    Raises:
        Unsupported: a scale is out of range, or takes an accumulator out of 32 bits.
    """
    if not context.q15:
        require_room(scales, np.asarray(bounds))
        return Factors(*q31_arrays(scales))
    constants = q15(scales)
    # The narrowing shift adds its half to a word of a product.
    _require_room(scales, np.asarray(bounds), constants.left, Q15_ROOM)
    return Factors(constants.multipliers | constants.right - 16 << 16, constants.left)


def product_constants(context: Context, node: Node) -> tuple[Array, Array | None, Factors]:
    """Of a Conv or Gemm: weights less their zero-points, the bias if it has one, and the channels' factors.

    Raises:
        Unsupported: a scale is out of range, or takes the accumulator out of 32 bits.
    """
    graph = context.graph
    weight, scales = centred_weights(graph.tensor(node.inputs[1])), node_scales(graph, node)
    bias = graph.tensor(node.inputs[2]).data if len(node.inputs) > 2 else None
    reach = 255 * np.abs(weight).reshape(len(weight), -1).sum(axis=1, dtype=np.int64)
    if bias is not None:
        reach += np.abs(bias.astype(np.int64))
    return weight, bias, factors(context, scales, reach)


def q31_within(scale: NDArray[np.float32], bound: int) -> Q31:
    """The q31 constants of a scale [] for accumulators of at most this magnitude.

    Raises:
        Unsupported: the scale is out of range, or takes the accumulator out of 32 bits.
    """
    require_room(scale, np.array(bound))
    return q31(float(scale))


def require_room(scales: NDArray[np.float32], bounds: Int) -> None:
    """Refuse a scale whose shift in q31 takes an accumulator of at most its bound out of 32 bits.

    Raises:
        Unsupported: such a scale, or one out of range.
    """
    _require_room(scales, bounds, q31_arrays(scales)[1], 2**31)


def _require_room(scales: NDArray[np.float32], bounds: Int, shifts: Int, room: int) -> None:
    if (over := bounds << shifts >= room).any():
        raise Unsupported(f"its accumulator, scaled by {scales[over].max():g}, does not fit 32 bits")


def fold_zero_point(weight: Array, bias: Array | None, zero_point: int) -> Int:
    """Bias [O] with the input's zero-point folded in; `weight` is [O, ...]."""
    sums = weight.reshape(weight.shape[0], -1).astype(np.int64).sum(axis=1)
    start = np.zeros(len(sums), np.int64) if bias is None else bias.astype(np.int64)
    folded: Int = start - zero_point * sums
    return folded


def requantization(blob: Blob, bias: Int, by: Factors, channels: int) -> Requantization:
    """Append bias, multipliers and, where any is needed, shifts, padded with zeros to `channels`."""
    bias_at, multiplier_at = (
        blob.add(padded(values, channels).astype("<i4")) for values in (bias, by.multipliers)
    )
    shift = blob.add(padded(by.shifts, channels).astype("<i4")) if by.shifts.any() else None
    return Requantization(bias_at, multiplier_at, shift)


def in_bytes(weight: Array) -> Array:
    """Weights [..., n] as int8 [..., n * k], k groups of n whose sum they are.

    uint8 weights less their zero-point may need nine bits, and vrmpy takes eight: they are split into parts,
    with the same inputs for each. k is 1 unless a weight needs more.
    """
    parts: list[Array] = []
    rest = weight.astype(np.int16)
    while rest.any() or not parts:
        parts.append(np.clip(rest, -128, 127).astype(np.int8))
        rest = rest - parts[-1]
    return np.concatenate(parts, axis=-1)


def conv_weights(weight: Array, tile: int) -> Array:
    """[O, steps, 4] -> tiles of `tile` output channels: [tile][step][channel][4]; the last may have four.

    O is padded to a multiple of 4 with zeros.
    """
    outputs = weight.shape[0]
    weight = np.pad(weight, ((0, align(outputs, 4) - outputs), (0, 0), (0, 0)))
    tiles = [
        weight[first : first + tile].transpose(1, 0, 2).reshape(-1)
        for first in range(0, weight.shape[0], tile)
    ]
    return np.concatenate(tiles).astype(np.int8)


def depthwise_weights(weight: Array, quads: int, single: bool) -> Array:
    """[C, taps] -> per plane: [quad][channel][4 taps], then for a single last tap a word per channel.

    C is padded to a multiple of 4, the taps of the quads with zeros.
    """
    channels, taps = weight.shape
    planes = align(channels, 4) // 4
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


def three_by_three_weights(weight: Array, order: Sequence[int]) -> Array:
    """[C, 9] -> per plane: [channels 0 and 2, channels 1 and 3][column][channel of the two][4 bytes].

    The bytes are the rows of a column, as the kernel's transposition leaves them: a gap after the third, or,
    for odd channels, before it. The columns come in `order`; C is padded to a multiple of 4 with zeros.
    """
    channels = weight.shape[0]
    planes = align(channels, 4) // 4
    full = np.pad(weight, ((0, planes * 4 - channels), (0, 0))).reshape(planes, 4, 3, 3)
    columns = full[..., list(order)].swapaxes(2, 3)
    words = np.zeros((planes, 2, 3, 2, 4), np.int8)
    words[:, 0, ..., [0, 1, 2]] = columns[:, 0::2].transpose(3, 0, 2, 1)
    words[:, 1, ..., [0, 1, 3]] = columns[:, 1::2].transpose(3, 0, 2, 1)
    return words


def gemm_weights(weight: Array) -> Array:
    """[N, K] -> [block of 32][step][32][4], N padded to 32 and K to 4 with zeros."""
    outputs, inputs = weight.shape
    full = np.pad(weight, ((0, align(outputs, 32) - outputs), (0, align(inputs, 4) - inputs)))
    return full.reshape(-1, 32, full.shape[1] // 4, 4).transpose(0, 2, 1, 3).astype(np.int8)


def pixel_mask(planes: Planes) -> Array:
    """uint32 per cell of a plane, whole vectors: all ones at pixels."""
    mask = np.zeros(planes.vectors * VECTOR_PIXELS, "<u4")
    mask[element_index((1, 1, planes.height, planes.width), planes.geometry).ravel() // PIXEL] = 0xFFFFFFFF
    return mask


def pixel_bounds(planes: Planes, clamp: Clamp, padding: int) -> Array:
    """uint32 [vectors, 2, 32]: the clamp at pixels, the padding's byte as both bounds elsewhere."""
    mask = pixel_mask(planes).reshape(-1, 1, VECTOR_PIXELS)
    low, high = (np.where(mask, np.uint32(splat(bound)), np.uint32(splat(padding))) for bound in clamp)
    return np.concatenate([low, high], axis=1).astype("<u4")
