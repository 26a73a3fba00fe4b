"""Convolutions except depthwise ones, and fully connected layers: sums of products over channels."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from dsp.hexagon.calls import At, Fields, KernelSource, range_fields, variant, walk
from dsp.hexagon.context import Context
from dsp.hexagon.elementwise import addition
from dsp.hexagon.lanes import lanes, suits
from dsp.hexagon.layout import VECTOR_CHANNELS, Planes, phase_planes, stretches
from dsp.hexagon.moves import repeated
from dsp.hexagon.packing import (
    Factors,
    Int,
    conv_weights,
    fold_zero_point,
    gemm_weights,
    in_bytes,
    pixel_bounds,
    product_constants,
    requantization,
)
from dsp.hexagon.taps import reads_taps, tap_planes
from dsp.hexagon.windows import phases, window_input
from sdk.arena import ALIGNMENT, align
from sdk.errors import Unsupported
from sdk.graph import Add, Array, Conv, Gemm, Node
from sdk.lowering import dense_groups

UNROLLED_STEPS = 24
"""The most steps of a convolution's inner loop that are unrolled: 3 KB of code."""

PIPELINED_STEPS = 1023
"""A convolution's steps that a hardware loop counts."""


def conv(context: Context, node: Conv, add: Add | None = None) -> None:
    """Any convolution of planes except depthwise; with `add`, the layer makes the Add's output."""
    _, out = context.ends(node)
    consumer = context.pitches.pushed.get(node.name)
    if consumer is not None:
        _pushed_conv(context, node, consumer)
        return
    y = out if add is None else context.graph.tensor(add.output)
    source, pitch, taps = conv_input(context, node)
    target = context.new_planes(y, pitch)
    bounded = context.padded(y) and add is None
    conv_calls(context, node, source, taps, target, y.zero_point if bounded else None)
    if add is not None:
        _add_in_place(context, node, add, target)
    context.pad(y, target, bounded)
    context.finish_planes(y, target)


def conv_input(context: Context, node: Conv) -> tuple[Planes, int, list[int]]:
    """(planes to read, pitch of the output, bytes from the output's pixel to each tap)."""
    x, y = context.ends(node)
    if reads_taps(context, node):
        return *tap_planes(context, node), [0]
    return window_input(context, node, y, x.zero_point)


def _pushed_conv(context: Context, node: Conv, consumer: Node) -> None:
    """A pointwise convolution on the phases its consumer reads: its input split, its output bounded."""
    x, y = context.ends(node)
    window, final = context.window(consumer), context.graph.tensor(consumer.output)
    pitch = context.pitches.pitch(final.name, window)
    source = phases(context, x, window, final, pitch, None)
    target = phase_planes(y.name, y, window, final, pitch, context.now)
    context.keep(target.buffer)
    conv_calls(context, node, source, [0], target, y.zero_point)
    context.finish_planes(y, target)


def conv_calls(
    context: Context,
    node: Conv,
    source: Planes,
    taps: list[int],
    target: Planes,
    padding: int | None,
    channels: slice = slice(None),
) -> None:
    """The kernel calls of a convolution; with `padding`, cells that are not pixels get that byte.

    `target` is of these `channels`, all of them if there are groups.
    """
    weight, bias, by = product_constants(context, node)
    x, out = context.ends(node)
    biases = fold_zero_point(weight, bias, x.zero_point)
    weight = weight.reshape(len(weight), source.channels // node.group, -1)  # of taps, all are channels
    weight, biases, by = weight[channels], biases[channels], by.some(channels)
    limits = range_fields(out, node.clamp)
    pointwise = node.group == 1 and taps == [0]
    if pointwise and suits(source, target, weight[..., 0], by, node.clamp, out.zero_point, context.q15):
        costs = lanes(context, source, target, weight[..., 0], biases, by, limits)
    else:
        bounds = None if padding is None else pixel_bounds(target, node.clamp, padding)
        costs = tap_calls(context, source, taps, target, weight, biases, by, node.group, limits, bounds)
    context.layer.multiplies(*costs)


def tap_calls(
    context: Context,
    source: Planes,
    taps: list[int],
    target: Planes,
    weight: Array,
    biases: Int,
    by: Factors,
    groups: int,
    limits: Fields,
    bounds: Array | None = None,
) -> tuple[int, int]:
    """The kernel calls that sum products over channels and taps.

    Args:
        context: of the layer.
        source: what is read.
        taps: bytes from a pixel of the output to what it is a sum of.
        target: where the sums go.
        weight: int16 [O, channels of a group, taps].
        biases: [O], with the zero-point of the input folded in.
        by: [O].
        groups: of channels.
        limits: zero-point and clamp.
        bounds: a clamp for each cell instead.

    Returns:
        vrmpy and vectors of accumulators that it takes.
    """
    inputs, outputs = source.channels, target.channels
    if groups > 1 and (inputs // groups % 4 or outputs // groups % 4):
        weight, groups = dense_groups(weight, groups), 1
    weight = in_bytes(weight)
    taps = taps * (weight.shape[2] // len(taps))
    in_planes, out_planes = -(-inputs // 4) // groups, target.planes // groups
    accumulators = target.vectors * target.planes * 4 * target.samples
    for group in range(groups):
        channels = slice(group * outputs // groups, (group + 1) * outputs // groups)
        steps = [plane * source.plane + tap for tap in taps for plane in range(in_planes)]
        # [O, I, taps] -> [O, taps, planes, 4]: the order of the steps.
        w = weight[channels]
        w = np.pad(w, ((0, 0), (0, in_planes * 4 - w.shape[1]), (0, 0)))
        w = w.transpose(0, 2, 1).reshape(len(w), len(steps), 4)
        padded_channels = align(out_planes, 2) * 4
        words = requantization(context.blob, biases[channels], by.some(channels), padded_channels)
        first = group * in_planes * source.plane
        strides = {b - a for a, b in itertools.pairwise(steps)}
        aligned = not ((source.base + first) % ALIGNMENT or steps[0] % ALIGNMENT)
        table = not (aligned and len(strides) <= 1 and not any(s % ALIGNMENT for s in strides))
        pipelined = not table and words.shift is None and 2 <= len(steps) <= PIPELINED_STEPS
        features = {
            "TABLE": table,
            "BOUNDED": bounds is not None,
            "SHIFTED": words.shift is not None,
            "PIPELINED": pipelined,
            "Q15": context.q15,
        }
        if pipelined and context.q15:
            from_zero = limits["zero_point"] == limits["low"] == 0
            features["FROM_ZERO"] = from_zero
            features["UNCLAMPED"] = (
                not from_zero and bounds is None and limits["low"] == 0 and limits["high"] == 255
            )
        kernel = variant("conv", {"STEPS": len(steps)}, features, UNROLL_STEPS=_unrolled(len(steps)))
        tile = 4 if pipelined else 8
        tiles = -(-out_planes * 4 // tile)
        fields: dict[str, Any] = {
            "x_plane": strides.pop() if strides and not table else 0,
            "table": context.blob.add(np.array(steps, "<i4")) if table else 0,
            "y_plane": target.plane,
            "vectors": target.vectors,
            "planes": out_planes,
            "split_tiles": int(_longer_half(tiles, target.vectors)),
            "weights": context.blob.add(conv_weights(w, tile)),
            **words.fields(),
            **limits,
        }
        if bounds is not None:
            fields["bounds"] = context.blob.add(bounds)
        for sample in range(target.samples):
            x_at = source.base + sample * source.sample + first + (0 if table else steps[0])
            y_at = target.base + sample * target.sample + group * out_planes * target.plane
            places = {"x": At(source.buffer, x_at), "y": At(target.buffer, y_at)}
            context.call(kernel, fields | places, "conv")
    return accumulators * in_planes * len(taps), accumulators


def _add_in_place(context: Context, node: Conv, add: Add, target: Planes) -> None:
    """Add the other operand to what `node` has left in the planes of the Add's output."""
    other = add.inputs[0] if add.inputs[1] == node.output else add.inputs[1]
    planes = context.as_planes(context.graph.tensor(other))
    fields = {"addition": addition(context, add, node.output, other)}
    for made, added in stretches(target, planes):
        own = walk(made, a=made, b=added) | {"vectors": made.vectors}
        if added.plane == made.plane:  # one line, with the gaps between
            own |= {"planes": 1, "vectors": (made.planes - 1) * made.plane // ALIGNMENT + made.vectors}
        context.call(KernelSource("elementwise.c", "elementwise_add"), fields | own)


def gemm(context: Context, node: Conv | Gemm) -> None:
    """A Gemm, or a Conv from one pixel to one pixel: only the tap on the pixel counts, as a matrix."""
    x, y = context.ends(node)
    weight, bias, by = product_constants(context, node)
    if isinstance(node, Conv):
        top, left = (pad // step for pad, step in zip(node.pads[:2], node.dilations, strict=True))
        inside = top < weight.shape[2] and left < weight.shape[3]
        if not inside or (top * node.dilations[0], left * node.dilations[1]) != node.pads[:2]:
            raise Unsupported("no tap of its window lies on the only pixel of its input")
        if node.group > 1:
            weight = dense_groups(weight, node.group)
        weight = weight[:, :, top, left]
    source, row = context.as_rows(x, 4)
    biases = fold_zero_point(weight, bias, x.zero_point)
    weight = np.pad(weight, ((0, 0), (0, -weight.shape[1] % 4)))
    parts = in_bytes(weight)
    blocks, steps = -(-weight.shape[0] // VECTOR_CHANNELS), -(-parts.shape[1] // 4)
    words = requantization(context.blob, biases, by, blocks * VECTOR_CHANNELS)
    fields = {
        "steps": steps,
        "blocks": blocks,
        "weights": context.blob.add(gemm_weights(parts)),
        **words.fields(),
        **range_fields(y, node.clamp),
    }
    samples = x.shape[0]
    context.layer.multiplies(2 * samples * blocks * steps, samples * blocks)  # one vrmpy a packet
    kernel = variant("gemm", {}, {"SHIFTED": words.shift is not None, "Q15": context.q15})
    rows = context.rows(y, samples, blocks * VECTOR_CHANNELS)
    for sample in range(samples):
        given = At(source.buffer, source.delta + sample * row)
        if parts.shape != weight.shape:  # repeat the input for each part of the weights
            given = repeated(context, x, given, parts.shape[1] // weight.shape[1])
        context.call(kernel, {"x": given, "y": rows.at(sample), **fields}, "gemm")
    context.finish_rows(y, rows)


def _unrolled(steps: int) -> int:
    """How many steps of a convolution's loop to unroll: all if they are few, else an exact divisor."""
    return next((n for n in range(UNROLLED_STEPS, 7, -1) if steps % n == 0), min(steps, 8))


def _longer_half(tiles: int, vectors: int) -> bool:
    """Whether two contexts are faster sharing the tiles than the vectors; pairs of vectors stay together."""
    by_tiles = -(-tiles // 2) / tiles
    by_vectors = -(-vectors // 2) / vectors
    return by_tiles <= by_vectors
