"""From the integer body of a network to layers of kernel calls.

A node becomes one layer: the calls that compute it, those that bring its input into the form they read, and
those that put the padding around its output. Nothing elementwise stands alone where it can be fused: an Add
goes into the convolution that feeds it. Offsets stay symbolic (`At`) until the arena is planned.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from dsp.hexagon.calls import At, Call, Fields, Kernel, Layer, Lowered, range_fields, variant
from dsp.hexagon.forms import Forms, pixel_bounds, pixel_mask
from dsp.hexagon.layout import VECTOR_PIXELS, Planes, Window, is_planar, phase_planes, window_of
from dsp.hexagon.packing import (
    Requantization,
    conv_weights,
    depthwise_weights,
    fold_zero_point,
    gemm_weights,
    padded,
    requantization,
    round_up,
)
from sdk.arena import ALIGNMENT, Blob, align, plan
from sdk.arithmetic import q31, q31_add, scale_ratio
from sdk.errors import InternalError
from sdk.graph import (
    Add,
    Array,
    AveragePool,
    Clamp,
    Conv,
    Gemm,
    GlobalAveragePool,
    Graph,
    MaxPool,
    Node,
    Requantize,
    Reshape,
    Tensor,
    macs,
)
from sdk.shapes import window_counts

UNROLLED_STEPS = 24
"""Steps of a convolution's inner loop that are unrolled at most: 3 KB of code."""

UNROLLED_TAPS = 64
"""Windows up to this many taps get a depthwise kernel of their own; above, compiling it takes too long."""

UNROLLED_VECTORS = 8
"""Planes up to this many vectors get a depthwise kernel of their own, without a loop over them."""


def pool_is_global(graph: Graph, node: Node) -> bool:
    """Whether an AveragePool covers the whole picture at once."""
    if not isinstance(node, AveragePool):
        return False
    return node.kernel == graph.tensor(node.inputs[0]).shape[2:] and not any(node.pads)


def is_depthwise(graph: Graph, node: Conv) -> bool:
    channels = graph.tensor(node.inputs[0]).shape[1]
    return node.group == channels > 1 and graph.tensor(node.output).shape[1] == channels


def signed_weights(tensor: Tensor) -> Array:
    """int8 weights with zero-point 0; uint8 ones around 128 are the same numbers moved."""
    if tensor.data is None:
        raise InternalError(f"weight {tensor.name} is not constant")
    if tensor.dtype == "uint8":
        return (tensor.data.astype(np.int16) - 128).astype(np.int8)
    return tensor.data


def channel_scales(graph: Graph, node: Node) -> list[float]:
    """Requantisation scale of each output channel of a Conv or Gemm."""
    x, weight, y = (graph.tensor(name) for name in (node.inputs[0], node.inputs[1], node.output))
    if weight.quantization is None:
        raise InternalError(f"weight {weight.name} has no quantisation")
    scales = np.broadcast_to(weight.quantization.scale, weight.shape[:1])
    return [float(scale_ratio(x.scale, float(s), over=y.scale)) for s in scales]


def lower(graph: Graph, guard: int = 0) -> Lowered:
    """Lower an integer body whose activations are all uint8 and whose nodes the target supports."""
    return _Lowering(graph, guard).run()


class _Lowering(Forms):
    def __init__(self, graph: Graph, guard: int) -> None:
        super().__init__(graph)
        self.guard = guard
        self.blob = Blob()

    # -- the walk ---------------------------------------------------------------------------------------

    def run(self) -> Lowered:
        graph = self.graph
        fused = self._fusable_adds()
        absorbed = {conv.name for conv in fused.values()}
        inputs = []
        for name in graph.inputs:
            tensor = graph.tensor(name)
            at = At(self._buffer(f"input {name}", align(tensor.size)))
            self.dense_form[name] = at
            inputs.append((tensor, at))
        for node in graph.nodes:
            if node.name not in absorbed:
                self._node(node, fused)
        outputs = []
        for name in graph.outputs:
            tensor = graph.tensor(name)
            if name not in self.dense_form:
                layer = self._begin(f"{name} (output)", "Output", tensor)
                self._finish_dense(layer, tensor, self._dense(layer, tensor))
            outputs.append((tensor, self.dense_form[name]))
        for _, at in outputs:
            at.buffer.last = len(self.layers)
        arena = plan(self.buffers, self.guard)
        margin = align(self.furthest + 4 * ALIGNMENT)
        laid_out = max(
            sum(buffer.size for buffer in self.buffers if buffer.first <= now <= buffer.last)
            for now in range(len(self.layers) + 1)
        )
        return Lowered(
            layers=self.layers,
            weights=bytes(self.blob),
            arena=arena,
            live_peak=self._live_peak(),
            laid_out_peak=laid_out,
            margin=margin,
            inputs=inputs,
            outputs=outputs,
            buffers=self.buffers,
        )

    def _node(self, node: Node, fused: Mapping[str, Conv]) -> None:
        y = self.graph.tensor(node.output)
        if isinstance(node, Reshape):
            self._reshape(node, y)
            return
        layer = self._begin(node.name, node.op, y, macs(self.graph, node))
        match node:
            case Conv() if not self._planar_io(node):
                self._pixel_conv(layer, node, y)
            case Conv() if is_depthwise(self.graph, node):
                self._depthwise_conv(layer, node, y)
            case Conv():
                self._conv(layer, node, y, None)
            case Gemm():
                weight = signed_weights(self.graph.tensor(node.inputs[1]))
                self._gemm(layer, node, y, weight, node.clamp)
            case Add() if node.name in fused:
                conv = fused[node.name]
                layer.macs = macs(self.graph, conv)
                layer.op = "Conv+Add"
                self._conv(layer, conv, y, node)
            case Add():
                self._add(layer, node, y)
            case Requantize():
                self._requantize(layer, node, y)
            case GlobalAveragePool():
                self._global_pool(layer, node, y, node.clamp)
            case AveragePool() if pool_is_global(self.graph, node):
                self._global_pool(layer, node, y, node.clamp)
            case AveragePool():
                self._average_pool(layer, node, y)
            case MaxPool():
                self._max_pool(layer, node, y)
            case _:
                raise InternalError(f"no lowering for {node.op}", where=f"node {node.name}")

    def _fusable_adds(self) -> dict[str, Conv]:
        """Add node name -> the convolution that takes it in: its later operand, used by nothing else."""
        fused: dict[str, Conv] = {}
        order = {node.name: i for i, node in enumerate(self.graph.nodes)}
        for add in self.graph.nodes:
            if not isinstance(add, Add) or add.inputs[0] == add.inputs[1]:
                continue
            candidates = [
                producer
                for name in add.inputs
                if isinstance(producer := self.graph.producer(name), Conv)
                and self._planar_io(producer)
                and is_planar(self.graph.tensor(name))
                and not is_depthwise(self.graph, producer)
                and len(self.graph.consumers(name)) == 1
                and name not in self.graph.outputs
            ]
            if candidates:
                fused[add.name] = max(candidates, key=lambda conv: order[conv.name])
        return fused

    def _planar_io(self, node: Conv) -> bool:
        tensors = (self.graph.tensor(node.inputs[0]), self.graph.tensor(node.output))
        return any(is_planar(tensor) for tensor in tensors)

    # -- operators --------------------------------------------------------------------------------------

    def _weights(self, node: Node) -> tuple[Array, Array | None]:
        bias = self.graph.tensor(node.inputs[2]).data if len(node.inputs) > 2 else None
        return signed_weights(self.graph.tensor(node.inputs[1])), bias

    def _conv(self, layer: Layer, node: Conv, y: Tensor, add: Add | None) -> None:
        """Any convolution but depthwise; with `add`, y is the Add's output."""
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
        bounded = self._padded(y)
        self._conv_calls(layer, node, source, taps, target, add, y.zero_point if bounded else None)
        self._pad(layer, y, target, bounded)
        self._finish_planes(layer, y, target)

    def _pushed_conv(self, layer: Layer, node: Conv, y: Tensor, consumer: Node) -> None:
        """A pointwise convolution on the phases its consumer wants: its input split, its output bounded."""
        window = window_of(self.graph, consumer)
        if window is None:
            raise InternalError("a strided consumer without a window", where=f"node {consumer.name}")
        final = self.graph.tensor(consumer.output)
        pitch = self.pitches.pitch(final.name, window)
        x = self.graph.tensor(node.inputs[0])
        source = self._phases(layer, x, window, final, pitch, None)
        target = phase_planes(y.name, y, window, final, pitch, self._now)
        self._keep(target.buffer)
        self._conv_calls(layer, node, source, [0], target, None, y.zero_point)
        self._finish_planes(layer, y, target)

    def _conv_calls(
        self,
        layer: Layer,
        node: Conv,
        source: Planes,
        taps: list[int],
        target: Planes,
        add: Add | None,
        padding: int | None,
    ) -> None:
        """The kernel calls of a convolution; with `padding`, cells that are no pixels get that byte."""
        weight, bias = self._weights(node)
        x, out = self.graph.tensor(node.inputs[0]), self.graph.tensor(node.output)
        scales = channel_scales(self.graph, node)
        biases = fold_zero_point(weight, bias, x.zero_point)
        groups = node.group
        if groups > 1 and (x.shape[1] // groups % 4 or out.shape[1] // groups % 4 or add is not None):
            weight, groups = dense_groups(weight, groups, x.shape[1]), 1
        in_planes, out_planes = -(-x.shape[1] // 4) // groups, target.planes // groups
        accumulators = target.vectors * target.planes * 4
        layer.multiplies(accumulators * in_planes * len(taps), accumulators)
        for group in range(groups):
            channels = slice(group * out.shape[1] // groups, (group + 1) * out.shape[1] // groups)
            steps = [plane * source.plane + tap for tap in taps for plane in range(in_planes)]
            # [O, I, taps] -> [O, taps, planes, 4]: the order of the steps.
            w = weight[channels].reshape(-1, weight.shape[1], len(taps))
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
            features = {
                "TABLE": table,
                "RESIDUAL": add is not None,
                "BOUNDED": padding is not None,
                "SHIFTED": words.shift is not None,
            }
            kernel = variant("conv", {"STEPS": len(steps)}, features, UNROLL_STEPS=unrolled(len(steps)))
            y_at = At(target.buffer, target.base + group * out_planes * target.plane)
            tiles = -(-out_planes // 2)
            fields: dict[str, Any] = {
                "x": At(source.buffer, x_at.delta - steps[0]) if table else x_at,
                "x_plane": strides.pop() if strides and not table else 0,
                "table": self.blob.add(np.array(steps, "<i4")) if table else 0,
                "y": y_at,
                "y_plane": target.plane,
                "vectors": target.vectors,
                "planes": out_planes,
                "split_tiles": int(longer_half(tiles, target.vectors)),
                "weights": self.blob.add(conv_weights(w)),
                **words.fields(),
                **range_fields(out, node.clamp),
            }
            if padding is not None:
                clamp = node.clamp if add is None else add.clamp
                fields["bounds"] = self.blob.add(pixel_bounds(target, clamp, padding))
            if add is not None:
                fields |= self._residual(layer, node, add)
            layer.calls.append(Call(kernel, "conv", fields))

    def _residual(self, layer: Layer, node: Conv, add: Add) -> Fields:
        other = add.inputs[0] if add.inputs[1] == node.output else add.inputs[1]
        planes = self._planes(layer, self.graph.tensor(other))
        return {
            "residual": At(planes.buffer, planes.base),
            "residual_plane": planes.plane,
            "addition": self._addition(add, node.output, other),
        }

    def _addition(self, add: Add, a_name: str, b_name: str) -> Fields:
        a, b, y = (self.graph.tensor(name) for name in (a_name, b_name, add.output))
        k = q31_add(float(scale_ratio(a.scale, over=y.scale)), float(scale_ratio(b.scale, over=y.scale)))
        offset = (1 << (k.shift - 1)) - a.zero_point * k.a_multiplier - b.zero_point * k.b_multiplier
        return {
            "a_high": (k.a_multiplier >> 8) * 0x10001,
            "a_low": (k.a_multiplier & 255) * 0x10001,
            "b_high": (k.b_multiplier >> 8) * 0x10001,
            "b_low": (k.b_multiplier & 255) * 0x10001,
            "offset": offset,
            "shift": k.shift,
            **range_fields(y, add.clamp),
        }

    def _pixel_conv(self, layer: Layer, node: Conv, y: Tensor) -> None:
        """A convolution from one pixel to one pixel: only the tap on the pixel counts, as a matrix."""
        weight, _ = self._weights(node)
        if node.group > 1:
            weight = dense_groups(weight, node.group, self.graph.tensor(node.inputs[0]).shape[1])
        top, left = node.pads[0] // node.dilations[0], node.pads[1] // node.dilations[1]
        self._gemm(layer, node, y, weight[:, :, top, left], node.clamp)

    def _gemm(self, layer: Layer, node: Node, y: Tensor, weight: Array, clamp: Clamp) -> None:
        x = self.graph.tensor(node.inputs[0])
        source = self._dense(layer, x)
        _, bias = self._weights(node)
        blocks = -(-weight.shape[0] // 32)
        words = requantization(
            self.blob,
            fold_zero_point(weight, bias, x.zero_point),
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

    def _depthwise_conv(self, layer: Layer, node: Conv, y: Tensor) -> None:
        weight, bias = self._weights(node)
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
            scale = float(scale_ratio(x.scale, over=y.scale * area))
            words = requantization(self.blob, bias, [scale] * channels, round_up(channels, 4))
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
        target = self._new_planes(y, pitch)
        single = len(taps) % 4 == 1 and len(taps) <= UNROLLED_TAPS
        quads = -(-(len(taps) - single) // 4)
        table = np.array(taps[: len(taps) - single], "<i4")
        table = np.pad(table, (0, quads * 4 - len(table)), mode="edge" if len(table) else "constant")
        table = np.concatenate([table, np.array(taps[-1:] if single else [], "<i4")])
        rolled = len(taps) > UNROLLED_TAPS
        features = {"ROLLED": rolled, "POSITIONAL": positional, "SHIFTED": words.shift is not None}
        shape = {} if rolled else {"QUADS": quads, "SINGLE": int(single)}
        if not rolled and target.vectors <= UNROLLED_VECTORS:
            shape["VECTORS"] = target.vectors
        kernel = variant("depthwise", shape, features)
        fields = {
            "x": At(source.buffer, source.base),
            "x_plane": source.plane,
            "y": At(target.buffer, target.base),
            "y_plane": target.plane,
            "table": self.blob.add(table.astype("<i4")),
            "quads": quads,
            "vectors": target.vectors,
            "planes": target.planes,
            "weights": self.blob.add(depthwise_weights(weight, quads, single)),
            **words.fields(),
            **range_fields(y, clamp),
        }
        accumulators = target.vectors * target.planes * 4
        layer.multiplies(accumulators * (quads + single), accumulators)
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
        layer.calls.append(Call(Kernel("pool.c", "maxpool"), "maxpool", fields))
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
        layer.calls.append(Call(Kernel("pool.c", "global_pool"), "global_pool", fields))
        self._finish_dense(layer, y, at)

    def _elementwise(self, layer: Layer, node: Node, y: Tensor) -> tuple[list[tuple[At, int]], int, int]:
        """(offset, plane bytes) of every operand and of the output; vectors; planes.

        For nodes that treat all elements alike, whatever their form.
        """
        operands = [self.graph.tensor(name) for name in node.inputs]
        if is_planar(y):
            sources = [self._planes(layer, x) for x in operands]
            target = self._new_planes(y)
            self._finish_planes(layer, y, target)
            forms = [(At(p.buffer, p.base), p.plane) for p in (*sources, target)]
            return forms, target.vectors, target.planes
        starts = [self._dense(layer, x) for x in operands]
        at = At(self._buffer(y.name, align(y.size)))
        self._finish_dense(layer, y, at)
        return [(start, 0) for start in (*starts, at)], align(y.size) // ALIGNMENT, 1

    def _add(self, layer: Layer, node: Add, y: Tensor) -> None:
        ((a, a_plane), (b, b_plane), (out, y_plane)), vectors, planes = self._elementwise(layer, node, y)
        fields = {
            "a": a,
            "a_plane": a_plane,
            "b": b,
            "b_plane": b_plane,
            "y": out,
            "y_plane": y_plane,
            "vectors": vectors,
            "planes": planes,
            "addition": self._addition(node, node.inputs[0], node.inputs[1]),
        }
        layer.calls.append(Call(Kernel("elementwise.c", "elementwise_add"), "elementwise_add", fields))
        if layer.planes is not None:
            self._pad(layer, y, layer.planes)

    def _requantize(self, layer: Layer, node: Requantize, y: Tensor) -> None:
        ((x, x_plane), (out, y_plane)), vectors, planes = self._elementwise(layer, node, y)
        source = self.graph.tensor(node.inputs[0])
        constants = q31(float(scale_ratio(source.scale, over=y.scale)))
        acc = (np.arange(256) - source.zero_point) << constants.shift
        values = ((acc * constants.multiplier + (1 << 30)) >> 31) + y.zero_point
        fields = {
            "x": x,
            "x_plane": x_plane,
            "y": out,
            "y_plane": y_plane,
            "vectors": vectors,
            "planes": planes,
            "table": self.blob.add(np.clip(values, *node.clamp).astype(np.uint8)),
        }
        layer.calls.append(Call(Kernel("elementwise.c", "lookup"), "lookup", fields))
        if layer.planes is not None:
            self._pad(layer, y, layer.planes)

    def _reshape(self, node: Reshape, y: Tensor) -> None:
        """Another name for the dense bytes; only planes have to be written out first."""
        x = self.graph.tensor(node.inputs[0])
        if x.name not in self.dense_form:
            layer = self._begin(node.name, node.op, y)
            self._finish_dense(layer, y, self._dense(layer, x))
        self.dense_form[y.name] = self.dense_form[x.name]

    def _live_peak(self) -> int:
        """The largest sum of dense bytes of the graph's tensors that one layer needs or leaves behind."""
        graph, end = self.graph, len(self.layers)
        made = {layer.tensor: i for i, layer in enumerate(self.layers)}
        when: dict[str, int] = {}  # node -> the layer that reads its inputs: its own, or one that took it in
        last: dict[str, int] = dict.fromkeys(graph.inputs, 0) | dict.fromkeys(graph.outputs, end)
        for node in reversed(graph.nodes):
            readers = [when[reader.name] for reader in graph.consumers(node.output)]
            when[node.name] = made.get(node.output, max(readers, default=end))
            for name in node.inputs:
                last[name] = max(last.get(name, 0), when[node.name])
        spans = [
            (0 if name in graph.inputs else made[name], last.get(name, 0), graph.tensor(name).size)
            for name in {*graph.inputs, *(node.output for node in graph.nodes)}
            if name in graph.inputs or name in made
        ]
        return max(
            sum(size for birth, death, size in spans if birth <= now <= max(birth, death))
            for now in range(end + 1)
        )


def unrolled(steps: int) -> int:
    """How many steps of a convolution's loop to unroll: all of a few, else a divisor that leaves no rest."""
    return next((n for n in range(UNROLLED_STEPS, 7, -1) if steps % n == 0), min(steps, 8))


def dense_groups(weight: Array, groups: int, inputs: int) -> Array:
    """Grouped weights [O, I/groups, kh, kw] as the equal ungrouped ones [O, I, kh, kw], zeros elsewhere."""
    outputs, per_group = weight.shape[:2]
    dense = np.zeros((outputs, inputs, *weight.shape[2:]), np.int8)
    for output in range(outputs):
        first = output // (outputs // groups) * per_group
        dense[output, first : first + per_group] = weight[output]
    return dense


def longer_half(tiles: int, vectors: int) -> bool:
    """Whether two contexts fare better sharing the tiles than the vectors; pairs of vectors stay together."""
    by_tiles = -(-tiles // 2) / tiles
    by_vectors = -(-vectors // 2) / vectors
    return by_tiles <= by_vectors
