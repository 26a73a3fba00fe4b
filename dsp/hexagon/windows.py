"""Windows over each channel by itself: depthwise convolutions and pools."""

from __future__ import annotations

import numpy as np

from dsp.hexagon.calls import At, Call, KernelSource, Layer, range_fields, variant
from dsp.hexagon.forms import Forms, pixel_mask
from dsp.hexagon.layout import PIXEL, VECTOR_PIXELS, Window
from dsp.hexagon.packing import (
    Requantization,
    depthwise_weights,
    fold_zero_point,
    in_bytes,
    padded,
    requantization,
    round_up,
    three_by_three_weights,
    weights_and_bias,
)
from sdk.arena import align
from sdk.arithmetic import q31, scale_ratio
from sdk.graph import Array, AveragePool, Clamp, Conv, MaxPool, Node, Tensor
from sdk.lowering import channel_scales
from sdk.shapes import window_counts

UNROLLED_TAPS = 64
"""Windows up to this many taps get a depthwise kernel of their own; above, compiling it takes too long."""

UNROLLED_VECTORS = 8
"""Planes up to this many vectors get a depthwise kernel of their own, without a loop over them."""


class Windows(Forms):
    """The lowering of these operators."""

    def _depthwise_conv(self, layer: Layer, node: Conv, y: Tensor) -> None:
        weight, bias = weights_and_bias(self.graph, node)
        x = self.graph.tensor(node.inputs[0])
        words = requantization(
            self.blob,
            fold_zero_point(weight, bias, x.zero_point),
            channel_scales(self.graph, node),
            round_up(len(weight), 4),
        )
        window = Window((weight.shape[2], weight.shape[3]), node.strides, node.pads, node.dilations)
        self._sum_of_taps(layer, node, window, weight.reshape(len(weight), -1), words, node.clamp, y)

    def _average_pool(self, layer: Layer, node: AveragePool, y: Tensor) -> None:
        """The mean as a depthwise convolution with weights of one; border windows may count fewer pixels."""
        x = self.graph.tensor(node.inputs[0])
        channels, height, width = x.shape[1:]
        window = Window(node.kernel, node.strides, node.pads)
        area = node.kernel[0] * node.kernel[1]
        weight = np.ones((channels, area), np.int8)
        bias = fold_zero_point(weight, None, x.zero_point)
        counts = np.full(y.shape[2:], area, np.int32)
        if not node.count_include_pad:
            counts = window_counts((height, width), node.kernel, node.strides, node.pads)
        if (counts == area).all():
            scales = np.full(channels, scale_ratio(x.scale, over=y.scale * area))
            words = requantization(self.blob, bias, scales, round_up(channels, 4))
            self._sum_of_taps(layer, node, window, weight, words, node.clamp, y)
            return
        by_count = {
            int(n): q31(float(scale_ratio(x.scale, over=y.scale * int(n)))) for n in np.unique(counts)
        }
        pitch = self.pitches.pitch(y.name, window)
        line = np.zeros((2, round_up(y.shape[2] * pitch, VECTOR_PIXELS)), "<i4")
        for (row, column), count in np.ndenumerate(counts):
            constants = by_count[int(count)]
            line[:, row * pitch + column] = constants.multiplier, constants.shift
        table = line.reshape(2, -1, VECTOR_PIXELS).swapaxes(0, 1)
        words = Requantization(
            self.blob.add(padded(bias, round_up(channels, 4)).astype("<i4")), self.blob.add(table), None
        )
        self._sum_of_taps(layer, node, window, weight, words, node.clamp, y, positional=True)

    def _sum_of_taps(
        self,
        layer: Layer,
        node: Node,
        window: Window,
        weight: Array,
        words: Requantization,
        clamp: Clamp,
        y: Tensor,
        positional: bool = False,
    ) -> None:
        """The depthwise kernel; `weight` is [C, taps]."""
        x = self.graph.tensor(node.inputs[0])
        source, pitch, taps = self._window_input(layer, node, window, y, x.zero_point)
        weight = in_bytes(weight)
        taps = taps * (weight.shape[1] // len(taps))
        target = self._new_planes(y, pitch)
        table, shape = taps, {}
        features = {"POSITIONAL": positional, "SHIFTED": words.shift is not None}
        columns = neighbouring_columns(taps)
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
        kernel = variant("depthwise", shape, features)
        fields = {
            "x": At(source.buffer, source.base),
            "x_plane": source.plane,
            "y": At(target.buffer, target.base),
            "y_plane": target.plane,
            "table": self.blob.add(np.array(table, "<i4")),
            "quads": len(table) // 4,
            "vectors": target.vectors,
            "planes": target.planes,
            "weights": self.blob.add(packed),
            **words.fields(),
            **range_fields(y, clamp),
        }
        accumulators = target.vectors * target.planes * 4
        layer.multiplies(accumulators * products, accumulators)
        layer.calls.append(Call(kernel, "depthwise", fields))
        self._pad(layer, y, target)
        self._finish_planes(layer, y, target)

    def _max_pool(self, layer: Layer, node: MaxPool, y: Tensor) -> None:
        window = Window(node.kernel, node.strides, node.pads, node.dilations)
        source, pitch, taps = self._window_input(layer, node, window, y, 0)
        target = self._new_planes(y, pitch)
        fields = {
            "x": At(source.buffer, source.base),
            "x_plane": source.plane,
            "y": At(target.buffer, target.base),
            "y_plane": target.plane,
            "table": self.blob.add(np.array(taps, "<i4")),
            "taps": len(taps),
            "vectors": target.vectors,
            "planes": target.planes,
        }
        layer.calls.append(Call(KernelSource("pool.c", "maxpool"), "maxpool", fields))
        self._pad(layer, y, target)
        self._finish_planes(layer, y, target)

    def _global_pool(self, layer: Layer, node: Node, y: Tensor, clamp: Clamp) -> None:
        x = self.graph.tensor(node.inputs[0])
        source = self._planes(layer, x)
        area = source.width * source.height
        constants = q31(float(scale_ratio(x.scale, over=y.scale * area)))
        at = At(self._buffer(y.name, align(source.planes * 4)))
        fields = {
            "x": At(source.buffer, source.base),
            "x_plane": source.plane,
            "vectors": source.vectors,
            "planes": source.planes,
            "mask": self.blob.add(pixel_mask(source)),
            "y": at,
            "bias": -x.zero_point * area,
            "multiplier": constants.multiplier,
            "shift": constants.shift,
            **range_fields(y, clamp),
        }
        layer.calls.append(Call(KernelSource("pool.c", "global_pool"), "global_pool", fields))
        self._finish_dense(layer, y, at)


def neighbouring_columns(taps: list[int]) -> list[int]:
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
