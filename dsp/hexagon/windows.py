"""Windows over each channel by itself: depthwise convolutions and pools; and what any window reads."""

from __future__ import annotations

import math

import numpy as np

from dsp.hexagon.calls import At, Fields, KernelSource, range_fields, splat, variant, walk
from dsp.hexagon.context import Context
from dsp.hexagon.layout import (
    PIXEL,
    VECTOR_CHANNELS,
    VECTOR_PIXELS,
    Planes,
    Window,
    phase_planes,
    reads_in_place,
    stretches,
)
from dsp.hexagon.packing import (
    Factors,
    Int,
    Requantization,
    depthwise_weights,
    factors,
    fold_zero_point,
    in_bytes,
    padded,
    pixel_mask,
    product_constants,
    requantization,
    three_by_three_weights,
)
from sdk.arena import align
from sdk.graph import Array, AveragePool, Clamp, Conv, GlobalAveragePool, Graph, MaxPool, Node, Tensor
from sdk.scales import mean_counts, node_scales

UNROLLED_TAPS = 64
"""Windows up to this many taps get a depthwise kernel of their own; above, compiling it takes too long."""

UNROLLED_VECTORS = 8
"""Planes up to this many vectors get a depthwise kernel of their own, without a loop over them."""


# -- what a window reads ----------------------------------------------------------------------------------


def window_input(context: Context, node: Node, y: Tensor, fill: int) -> tuple[Planes, int, list[int]]:
    """(planes to read, pitch of the output, bytes from the output's pixel to each tap)."""
    x, window = context.graph.tensor(node.inputs[0]), context.window(node)
    if reads_in_place(context.graph, node):
        planes = context.as_planes(x)
        top, left, _, _ = window.pads
        taps = [planes.tap(row - top, column - left) for row, column in window.taps()]
        pitch = planes.pitch
    elif x.name in context.planes and context.planes[x.name].stride != (1, 1):
        planes = context.planes[x.name]
        context.use(planes.buffer)
        taps = [planes.tap(row, column) for row, column in window.taps()]
        pitch = planes.pitch
    else:
        pitch = context.pitches.pitch(y.name, window)
        planes = phases(context, x, window, y, pitch, fill)
        taps = [planes.tap(row, column) for row, column in window.taps()]
    context.furthest = max(context.furthest, *(abs(tap) for tap in taps))
    return planes, pitch, taps


def phases(context: Context, x: Tensor, window: Window, y: Tensor, pitch: int, padding: int | None) -> Planes:
    """A copy of what `window` reads of x; without `padding`, cells outside the picture are undefined."""
    source = context.as_planes(x)
    copy = phase_planes(f"{x.name} phases", x, window, y, pitch, context.now)
    context.keep(copy.buffer)
    fields = {
        "x_pitch": source.pitch,
        "top": copy.top,
        "left": copy.left,
        "stride_y": copy.stride[0],
        "stride_x": copy.stride[1],
        "rows": copy.rows,
        "pitch": copy.pitch,
        "padded": int(padding is not None),
        "value": splat(padding or 0),
        "row": _picture_cells(copy.top, copy.height, copy.stride[0], copy.rows),
        "column": _picture_cells(copy.left, copy.width, copy.stride[1], copy.pitch),
    }
    for given, made in stretches(source, copy):
        context.call(KernelSource("layout.c", "gather"), fields | walk(made, x=given))
    context.furthest = max(context.furthest, (copy.left + 2 * copy.pitch * window.strides[1]) * PIXEL)
    return copy


def _picture_cells(before: int, size: int, stride: int, cells: int) -> list[Fields]:
    """Of each phase along one axis, the cells [begin, end) whose padded position lies within the picture."""
    result: list[Fields] = []
    for phase in range(stride):
        begin = min(max(-(-(before - phase) // stride), 0), cells)
        end = min(max(-(-(before + size - phase) // stride), begin), cells)
        result.append({"begin": begin, "end": end})
    return result


# -- operators --------------------------------------------------------------------------------------------


def is_depthwise(graph: Graph, node: Conv) -> bool:
    """Whether each channel of a convolution's output is made of the same one of its input."""
    channels = graph.tensor(node.inputs[0]).shape[1]
    return node.group == channels > 1 and graph.tensor(node.output).shape[1] == channels


def depthwise_conv(context: Context, node: Conv) -> None:
    x, y = context.ends(node)
    source, pitch, taps = window_input(context, node, y, x.zero_point)
    target = context.new_planes(y, pitch)
    depthwise_calls(context, node, source, taps, target)
    context.pad(y, target)
    context.finish_planes(y, target)


def depthwise_calls(
    context: Context,
    node: Conv,
    source: Planes,
    taps: list[int],
    target: Planes,
    channels: slice = slice(None),
) -> None:
    """The kernel calls of a depthwise convolution of these channels, which `source` and `target` are of."""
    weight, bias, by = product_constants(context, node)
    x, y = context.ends(node)
    bias = fold_zero_point(weight, bias, x.zero_point)[channels]
    weight = weight.reshape(len(weight), -1)[channels]
    words = requantization(context.blob, bias, by.some(channels), align(len(weight), 4))
    _sum_of_taps(context, source, taps, target, weight, words, range_fields(y, node.clamp))


def average_pool(context: Context, node: AveragePool) -> None:
    """The mean as a depthwise convolution with weights of one; border windows may count fewer pixels."""
    x, y = context.ends(node)
    channels, area = x.shape[1], math.prod(node.kernel)
    weight = np.ones((channels, area), np.int8)
    bias = fold_zero_point(weight, None, x.zero_point)
    scales = node_scales(context.graph, node)
    by = factors(context, scales, 255 * area)
    source, pitch, taps = window_input(context, node, y, x.zero_point)
    target = context.new_planes(y, pitch)
    positional = bool((mean_counts(context.graph, node) != area).any())
    if positional:
        words = _factors_by_place(context, by, bias, pitch)
    else:
        same = Factors(*(np.full(channels, values.flat[0]) for values in (by.multipliers, by.shifts)))
        words = requantization(context.blob, bias, same, align(channels, 4))
    _sum_of_taps(context, source, taps, target, weight, words, range_fields(y, node.clamp), positional)
    context.pad(y, target)
    context.finish_planes(y, target)


def _factors_by_place(context: Context, by: Factors, bias: Int, pitch: int) -> Requantization:
    """What requantises an output whose factors [H, W] depend on the pixel, and not on the channel."""
    height, channels = len(by.multipliers), len(bias)
    line = np.zeros((2, align(height * pitch, VECTOR_PIXELS)), "<i4")
    rows, columns = np.indices(by.multipliers.shape)
    line[:, rows * pitch + columns] = by.multipliers, by.shifts
    table = line.reshape(2, -1, VECTOR_PIXELS).swapaxes(0, 1)
    bias_at = context.blob.add(padded(bias, align(channels, 4)).astype("<i4"))
    return Requantization(bias_at, context.blob.add(table), None)


def _sum_of_taps(
    context: Context,
    source: Planes,
    taps: list[int],
    target: Planes,
    weight: Array,
    words: Requantization,
    limits: Fields,
    positional: bool = False,
) -> None:
    """The calls of the depthwise kernel; `weight` is [C, taps], `limits` zero-point and clamp."""
    weight = in_bytes(weight)
    reach = min(taps), max(taps) + target.cells * PIXEL
    taps = taps * (weight.shape[1] // len(taps))
    table, shape = taps, {}
    features = {"POSITIONAL": positional, "SHIFTED": words.shift is not None}
    columns = _neighbouring_columns(taps)
    if columns and target.vectors > 1 and not any(features.values()):
        shape["STRIDE"] = 1 if columns == [0, 1, 2] else 2
        features["THREE_BY_THREE"] = True
        table = taps[columns[0] :: 3] + taps[columns[2] :: 3]
        packed, products = three_by_three_weights(weight, columns), 3
    else:
        single = len(taps) % 4 == 1 and len(taps) <= UNROLLED_TAPS
        quads = -(-(len(taps) - single) // 4)
        left_over = [taps.pop()] if single else []
        table = taps + [taps[-1] if taps else 0] * (quads * 4 - len(taps)) + left_over
        features["ROLLED"] = len(table) > UNROLLED_TAPS
        if not features["ROLLED"]:
            shape = {"QUADS": quads, "SINGLE": int(single)}
            if target.vectors <= UNROLLED_VECTORS:
                shape["VECTORS"] = target.vectors
        packed, products = depthwise_weights(weight, quads, single), quads + single
    features["Q15"] = context.q15
    fields = {
        "table": context.blob.add(np.array(table, "<i4")),
        "quads": len(table) // 4,
        "vectors": target.vectors,
        "weights": context.blob.add(packed),
        **words.fields(),
        **limits,
    }
    accumulators = target.vectors * target.planes * target.samples * 4
    context.layer.multiplies(accumulators * products, accumulators)
    kernel = variant("depthwise", shape, features)
    for sample in range(target.samples):
        places = walk(target.some(sample), x=source.some(sample))
        context.call(kernel, fields | places, "depthwise", reach)


def max_pool(context: Context, node: MaxPool) -> None:
    y = context.graph.tensor(node.output)
    source, pitch, taps = window_input(context, node, y, 0)
    target = context.new_planes(y, pitch)
    fields = {
        "table": context.blob.add(np.array(taps, "<i4")),
        "taps": len(taps),
        "vectors": target.vectors,
    }
    for given, made in stretches(source, target):
        context.call(KernelSource("pool.c", "maxpool"), fields | walk(made, x=given))
    context.pad(y, target)
    context.finish_planes(y, target)


def global_pool(context: Context, node: AveragePool | GlobalAveragePool) -> None:
    """A pool that covers the whole picture."""
    x, y = context.ends(node)
    area = x.shape[2] * x.shape[3]
    by = factors(context, node_scales(context.graph, node), 255 * area)
    kernel = KernelSource("pool.c", "global_pool")
    if context.q15:  # its functions beside those of the kernel without
        names = tuple(f"{name}={name}_q15" for name in ("maxpool", "global_pool"))
        kernel = KernelSource("pool.c", "global_pool_q15", ("Q15", *names))
    picture_sums(context, x, y, kernel, by, node.clamp)


def picture_sums(
    context: Context, x: Tensor, y: Tensor, kernel: KernelSource, by: Factors, clamp: Clamp
) -> None:
    """Of each channel of planes the sum of its elements, requantised; `by` is []."""
    source = context.as_planes(x)
    area = source.width * source.height
    fields = {
        "vectors": source.vectors,
        "mask": context.blob.add(pixel_mask(source)),
        "bias": -x.zero_point * area,
        "multiplier": int(by.multipliers),
        "shift": int(by.shifts),
        **range_fields(y, clamp),
    }
    rows = context.rows(y, source.samples, VECTOR_CHANNELS)
    for sample in range(source.samples):
        part = source.some(sample)
        own = {"x": At(part.buffer, part.base), "x_plane": part.plane, "planes": part.planes}
        context.call(kernel, fields | own | {"y": rows.at(sample)}, "global_pool")
    context.finish_rows(y, rows)


def _neighbouring_columns(taps: list[int]) -> list[int]:
    """Of three rows by three columns, the columns such that the second lies one pixel behind the first.

    At a stride of one the third lies behind the second; at a stride of two the middle column is elsewhere, in
    another phase, and comes last. Empty for all other windows.
    """
    if len(taps) != 9:
        return []
    rows = [taps[first : first + 3] for first in (0, 3, 6)]
    if all(row[1] - row[0] == row[2] - row[1] == PIXEL for row in rows):
        return [0, 1, 2]
    return [0, 2, 1] if all(row[2] - row[0] == PIXEL for row in rows) else []
