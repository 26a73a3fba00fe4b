"""Convolutions except depthwise ones, and fully connected layers: sums of products over channels."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from dsp.hexagon.calls import At, Call, KernelSource, Layer, range_fields, variant
from dsp.hexagon.elementwise import Elementwise
from dsp.hexagon.forms import pixel_bounds
from dsp.hexagon.layout import Planes, phase_planes, window_of
from dsp.hexagon.packing import (
    conv_weights,
    dense_groups,
    fold_zero_point,
    gemm_weights,
    in_bytes,
    requantization,
    round_up,
    weights_and_bias,
)
from sdk.arena import ALIGNMENT, align
from sdk.errors import InternalError
from sdk.graph import Add, Array, Clamp, Conv, Node, Tensor
from sdk.lowering import channel_scales

UNROLLED_STEPS = 24
"""The most steps of a convolution's inner loop that are unrolled: 3 KB of code."""

PIPELINED_STEPS = 1023
"""A convolution's steps that a hardware loop counts."""


class Products(Elementwise):
    """The lowering of these operators."""

    def _conv(self, layer: Layer, node: Conv, y: Tensor, add: Add | None) -> None:
        """Any convolution except depthwise; with `add`, y is the Add's output."""
        out = self.graph.tensor(node.output)
        x = self.graph.tensor(node.inputs[0])
        window = window_of(self.graph, node)
        if window is None:
            raise InternalError("a convolution without a window", where=f"node {node.name}")
        strided_consumer = self.pitches.pushed.get(node.name)
        if strided_consumer is not None:
            self._pushed_conv(layer, node, y, strided_consumer)
            return
        source, pitch, taps = self._window_input(layer, node, window, out, x.zero_point)
        target = self._new_planes(y, pitch)
        bounded = self._padded(y) and add is None
        self._conv_calls(layer, node, source, taps, target, y.zero_point if bounded else None)
        if add is not None:
            self._add_in_place(layer, node, add, target)
        self._pad(layer, y, target, bounded)
        self._finish_planes(layer, y, target)

    def _pushed_conv(self, layer: Layer, node: Conv, y: Tensor, consumer: Node) -> None:
        """A pointwise convolution on the phases its consumer reads: its input split, its output bounded."""
        window = window_of(self.graph, consumer)
        if window is None:
            raise InternalError("a strided consumer without a window", where=f"node {consumer.name}")
        final = self.graph.tensor(consumer.output)
        pitch = self.pitches.pitch(final.name, window)
        x = self.graph.tensor(node.inputs[0])
        source = self._phases(layer, x, window, final, pitch, None)
        target = phase_planes(y.name, y, window, final, pitch, self._now)
        self._keep(target.buffer)
        self._conv_calls(layer, node, source, [0], target, y.zero_point)
        self._finish_planes(layer, y, target)

    def _conv_calls(
        self,
        layer: Layer,
        node: Conv,
        source: Planes,
        taps: list[int],
        target: Planes,
        padding: int | None,
    ) -> None:
        """The kernel calls of a convolution; with `padding`, cells that are not pixels get that byte."""
        weight, bias = weights_and_bias(self.graph, node)
        x, out = self.graph.tensor(node.inputs[0]), self.graph.tensor(node.output)
        scales = channel_scales(self.graph, node)
        biases = fold_zero_point(weight, bias, x.zero_point)
        groups = node.group
        if groups > 1 and (x.shape[1] // groups % 4 or out.shape[1] // groups % 4):
            weight, groups = dense_groups(weight, groups, x.shape[1]), 1
        weight = in_bytes(weight.reshape(*weight.shape[:2], len(taps)))
        taps = taps * (weight.shape[2] // len(taps))
        in_planes, out_planes = -(-x.shape[1] // 4) // groups, target.planes // groups
        accumulators = target.vectors * target.planes * 4
        layer.multiplies(accumulators * in_planes * len(taps), accumulators)
        for group in range(groups):
            channels = slice(group * out.shape[1] // groups, (group + 1) * out.shape[1] // groups)
            steps = [plane * source.plane + tap for tap in taps for plane in range(in_planes)]
            # [O, I, taps] -> [O, taps, planes, 4]: the order of the steps.
            w = weight[channels]
            w = np.pad(w, ((0, 0), (0, in_planes * 4 - w.shape[1]), (0, 0)))
            w = w.transpose(0, 2, 1).reshape(len(w), len(steps), 4)
            words = requantization(
                self.blob,
                biases[channels],
                scales[channels.start : channels.stop],
                round_up(out_planes, 2) * 4,
            )
            x_at = At(source.buffer, source.base + group * in_planes * source.plane + steps[0])
            strides = {b - a for a, b in itertools.pairwise(steps)}
            aligned = not (x_at.delta % ALIGNMENT or steps[0] % ALIGNMENT)
            table = not (aligned and len(strides) <= 1 and not any(s % ALIGNMENT for s in strides))
            pipelined = not table and words.shift is None and 2 <= len(steps) <= PIPELINED_STEPS
            features = {
                "TABLE": table,
                "BOUNDED": padding is not None,
                "SHIFTED": words.shift is not None,
                "PIPELINED": pipelined,
            }
            kernel = variant("conv", {"STEPS": len(steps)}, features, UNROLL_STEPS=unrolled(len(steps)))
            tile = 4 if pipelined else 8
            y_at = At(target.buffer, target.base + group * out_planes * target.plane)
            tiles = -(-out_planes * 4 // tile)
            fields: dict[str, Any] = {
                "x": At(source.buffer, x_at.delta - steps[0]) if table else x_at,
                "x_plane": strides.pop() if strides and not table else 0,
                "table": self.blob.add(np.array(steps, "<i4")) if table else 0,
                "y": y_at,
                "y_plane": target.plane,
                "vectors": target.vectors,
                "planes": out_planes,
                "split_tiles": int(longer_half(tiles, target.vectors)),
                "weights": self.blob.add(conv_weights(w, tile)),
                **words.fields(),
                **range_fields(out, node.clamp),
            }
            if padding is not None:
                fields["bounds"] = self.blob.add(pixel_bounds(target, node.clamp, padding))
            layer.calls.append(Call(kernel, "conv", fields))

    def _add_in_place(self, layer: Layer, node: Conv, add: Add, target: Planes) -> None:
        """Add the other operand to what `node` has left in the planes of the Add's output."""
        other = add.inputs[0] if add.inputs[1] == node.output else add.inputs[1]
        planes = self._planes(layer, self.graph.tensor(other))
        count, vectors = target.planes, target.vectors
        if planes.plane == target.plane:  # one line, with the gaps between
            count, vectors = 1, (count - 1) * target.plane // ALIGNMENT + vectors
        fields = {
            "a": At(target.buffer, target.base),
            "a_plane": target.plane,
            "b": At(planes.buffer, planes.base),
            "b_plane": planes.plane,
            "y": At(target.buffer, target.base),
            "y_plane": target.plane,
            "vectors": vectors,
            "planes": count,
            "addition": self._addition(add, node.output, other),
        }
        layer.calls.append(Call(KernelSource("elementwise.c", "elementwise_add"), "elementwise_add", fields))

    def _pixel_conv(self, layer: Layer, node: Conv, y: Tensor) -> None:
        """A convolution from one pixel to one pixel: only the tap on the pixel counts, as a matrix."""
        weight, _ = weights_and_bias(self.graph, node)
        if node.group > 1:
            weight = dense_groups(weight, node.group, self.graph.tensor(node.inputs[0]).shape[1])
        top, left = node.pads[0] // node.dilations[0], node.pads[1] // node.dilations[1]
        self._gemm(layer, node, y, weight[:, :, top, left], node.clamp)

    def _gemm(self, layer: Layer, node: Node, y: Tensor, weight: Array, clamp: Clamp) -> None:
        x = self.graph.tensor(node.inputs[0])
        source = self._dense(layer, x)
        _, bias = weights_and_bias(self.graph, node)
        biases = fold_zero_point(weight, bias, x.zero_point)
        weight = np.pad(weight, ((0, 0), (0, -weight.shape[1] % 4)))
        parts = in_bytes(weight)
        if parts.shape != weight.shape:  # repeat the input for each part of the weights
            source = self._repeated(layer, x, source, parts.shape[1] // weight.shape[1])
        weight = parts
        blocks = -(-weight.shape[0] // 32)
        words = requantization(
            self.blob,
            biases,
            channel_scales(self.graph, node),
            blocks * 32,
        )
        at = At(self._buffer(y.name, align(blocks * 32)))
        fields = {
            "x": source,
            "steps": -(-weight.shape[1] // 4),
            "y": at,
            "blocks": blocks,
            "weights": self.blob.add(gemm_weights(weight)),
            **words.fields(),
            **range_fields(y, clamp),
        }
        layer.multiplies(2 * blocks * -(-weight.shape[1] // 4), blocks)  # vector weights: one vrmpy a packet
        kernel = variant("gemm", {}, {"SHIFTED": words.shift is not None})
        layer.calls.append(Call(kernel, "gemm", fields))
        self._finish_dense(layer, y, at)


def unrolled(steps: int) -> int:
    """How many steps of a convolution's loop to unroll: all if they are few, else an exact divisor."""
    return next((n for n in range(UNROLLED_STEPS, 7, -1) if steps % n == 0), min(steps, 8))


def longer_half(tiles: int, vectors: int) -> bool:
    """Whether two contexts are faster sharing the tiles than the vectors; pairs of vectors stay together."""
    by_tiles = -(-tiles // 2) / tiles
    by_vectors = -(-vectors // 2) / vectors
    return by_tiles <= by_vectors
