"""Pointwise convolution of small pictures: a lane is an output channel, not a pixel.

A plane's last vector has lanes without a pixel; of 7 x 7 pixels at a pitch of 8 it is 15 of 64. Here a
vector is 32 channels of one pixel, so that no lane is without one, and the weights stream from memory instead
of the pixels. The kernel is made by lane_packets.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dsp.hexagon.calls import At, Fields, KernelSource
from dsp.hexagon.context import Context
from dsp.hexagon.lane_packets import MOST_PIXELS, MOST_STEPS, kernel, needs
from dsp.hexagon.layout import GROUP_CELLS, PIXEL, VECTOR_CHANNELS, Planes, in_groups
from dsp.hexagon.packing import Factors, Int, in_bytes
from sdk.arena import ALIGNMENT
from sdk.graph import Array, Clamp

SHARE = 4
"""The weights of a call, which are read for every group, take at most 1 / SHARE of the L2."""
UNSIGNED = 128
"""What is added to the weights: a vector of vrmpy with bytes as scalars has no sign."""


def group_pixels(planes: Planes) -> list[list[int]]:
    """Which of its cells are pixels, for each group of the planes; empty if they are in no such groups.

    A group is a row at a pitch of 16, or two at a pitch of 8.
    """
    shape = planes.samples, planes.channels, planes.height, planes.width
    if planes.stride != (1, 1) or not in_groups(shape, planes.pitch):
        return []
    rows = GROUP_CELLS // planes.pitch
    return [
        [r * planes.pitch + x for r in range(min(rows, planes.height - first)) for x in range(planes.width)]
        for first in range(0, planes.height, rows)
    ]


def suits(
    source: Planes,
    target: Planes,
    weight: Array,
    by: Factors,
    clamp: Clamp,
    between: int,
    q15: bool = False,
) -> bool:
    """Whether a convolution can be computed this way, and takes fewer packets so.

    Args:
        source: the planes that are read.
        target: those that are written.
        weight: [O, I], minus its zero-point.
        by: [O].
        clamp: of the result.
        between: the byte between the rows.
        q15: the arithmetic.
    """
    steps, outputs = source.planes, target.channels
    groups = group_pixels(target)
    pixels = sum(map(len, groups))
    if not groups or len(groups[0]) > MOST_PIXELS or steps > MOST_STEPS:
        return False
    if source.pitch != target.pitch or (source.base | source.plane | target.base | target.plane) % ALIGNMENT:
        return False
    if source.stride != (1, 1) or source.channels % 8 or outputs % VECTOR_CHANNELS or target.samples > 1:
        return False
    first, last = needs(groups[0], q15), needs(groups[-1], q15)
    if first is None or last is None or steps < max(first.steps, last.steps):
        return False
    if in_bytes(weight).shape != weight.shape or by.shifts.any() or not clamp[0] <= between <= clamp[1]:
        return False
    multiplying = sum(steps * -(-len(group) // 2) for group in groups)
    requantising = (len(groups) - 1) * first.requantisation + last.requantisation
    sums = source.vectors * steps + 2 * pixels
    requantised = 1 if q15 else 2  # packets of an accumulator at least
    by_planes = target.planes * (target.vectors * (2 * steps + 4 * requantised) + 10)
    return outputs // VECTOR_CHANNELS * (multiplying + requantising) + sums < by_planes


def lanes(
    context: Context,
    source: Planes,
    target: Planes,
    weight: Array,
    biases: Int,
    by: Factors,
    limits: Fields,
) -> tuple[int, int]:
    """The calls of such a convolution; see `suits`. What is not a pixel in its rows becomes the zero-point.

    Args:
        context: of the layer.
        source: what is read.
        target: where the sums go.
        weight: int16 [O, I], minus its zero-point, within eight bits.
        biases: [O], with the zero-point of the input folded in.
        by: [O].
        limits: zero-point and clamp.

    Returns:
        vrmpy and vectors of accumulators that it takes.
    """
    groups = group_pixels(target)
    pixels, most = sum(map(len, groups)), len(groups[0])
    whole = sum(len(group) == most for group in groups)
    sums = At(context.buffer("sums", pixels * ALIGNMENT))
    x = {"x_plane": source.plane, "x": At(source.buffer, source.base)}
    shapes = {"pixels": most, "cells": _bits(groups[0]), "last": _bits(groups[-1])}
    summed = {"planes": source.planes, "y": sums, "groups": len(groups)}
    context.call(KernelSource("lane_sums.c", "lane_sums"), x | summed | shapes)
    stream = _stream(weight, biases, by.multipliers)
    blocks = max(context.l2 // SHARE // stream.shape[1], 1)
    for block in range(0, len(stream), blocks):
        some = stream[block : block + blocks]
        weights = context.blob.add(some)
        for first, count in ((0, whole), (whole, len(groups) - whole)):
            if not count:
                continue
            to = target.base + block * VECTOR_CHANNELS // PIXEL * target.plane + first * GROUP_CELLS * PIXEL
            fields = {
                "x": At(source.buffer, source.base + first * GROUP_CELLS * PIXEL),
                "x_plane": source.plane,
                "sums": At(sums.buffer, first * most * ALIGNMENT),
                "y": At(target.buffer, to),
                "y_plane": target.plane,
                "groups": count,
                "blocks": len(some),
                "weights": weights,
            }
            code = kernel(groups[first], source.planes, context.q15)
            context.call(code, fields | dict(limits), "lanes")
    context.furthest = max(context.furthest, most * ALIGNMENT)  # the sums behind the last group's
    accumulators = pixels * target.channels // VECTOR_CHANNELS
    return accumulators * source.planes, accumulators


def _bits(cells: Sequence[int]) -> int:
    return sum(1 << cell for cell in cells)


def _stream(weight: Array, biases: Int, multipliers: Int) -> Array:
    """Per block of 32 channels: bias and multiplier words, then bytes [step][32][4]: uint8 [block, bytes]."""
    blocks = len(weight) // VECTOR_CHANNELS
    steps = (weight.reshape(blocks, VECTOR_CHANNELS, -1, 4).transpose(0, 2, 1, 3) + UNSIGNED).astype(np.uint8)
    words = np.stack([one.reshape(blocks, VECTOR_CHANNELS) for one in (biases, multipliers)], axis=1).astype(
        "<i4"
    )
    parts = [part.reshape(blocks, -1).view(np.uint8) for part in (words, steps)]
    return np.ascontiguousarray(np.concatenate(parts, axis=1))
