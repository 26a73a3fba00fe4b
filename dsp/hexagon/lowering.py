"""From the integer body of a network to layers of kernel calls.

A node becomes one layer: the calls that compute it, those that bring its input into the form they read, and
those that put the padding around its output. An Add joins the layer of the convolution that feeds it, and is
computed in that one's output. Offsets stay symbolic (`At`) until the arena is planned.
"""

from __future__ import annotations

from collections.abc import Mapping

from dsp.hexagon.calls import At, Lowered
from dsp.hexagon.layout import is_planar
from dsp.hexagon.packing import weights_and_bias
from dsp.hexagon.products import Products
from dsp.hexagon.windows import Windows
from sdk.arena import ALIGNMENT, align, plan
from sdk.errors import InternalError
from sdk.graph import (
    Add,
    AveragePool,
    Concat,
    Conv,
    Gemm,
    GlobalAveragePool,
    Graph,
    Lookup,
    MaxPool,
    Mul,
    Node,
    Pad,
    Requantize,
    Reshape,
    Resize,
    Transpose,
    macs,
)


def pool_is_global(graph: Graph, node: Node) -> bool:
    """Whether an AveragePool covers the whole picture at once."""
    if not isinstance(node, AveragePool):
        return False
    return node.kernel == graph.tensor(node.inputs[0]).shape[2:] and not any(node.pads)


def is_depthwise(graph: Graph, node: Conv) -> bool:
    channels = graph.tensor(node.inputs[0]).shape[1]
    return node.group == channels > 1 and graph.tensor(node.output).shape[1] == channels


def lower(graph: Graph, guard: int = 0) -> Lowered:
    """Lower an integer body whose activations are all uint8 and whose nodes the target supports."""
    return _Lowering(graph, guard).run()


class _Lowering(Products, Windows):
    def __init__(self, graph: Graph, guard: int) -> None:
        super().__init__(graph)
        self.guard = guard

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
            self._rename(node, y)
            return
        if isinstance(node, Transpose):
            self._transpose(node, y)
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
                weight, _ = weights_and_bias(self.graph, node)
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
            case Mul():
                self._mul(layer, node, y)
            case Lookup():
                self._lookup(layer, node, y)
            case Concat():
                self._concat(layer, node, y)
            case Resize():
                self._resize(layer, node, y)
            case Pad():
                self._pad_pixels(layer, node, y)
            case _:
                raise InternalError(f"no lowering for {node.op}", where=f"node {node.name}")

    def _fusable_adds(self) -> dict[str, Conv]:
        """Add node name -> the convolution it is fused into: its later operand, used by nothing else."""
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

    def _live_peak(self) -> int:
        """The largest sum of dense bytes of the graph's tensors that one layer needs or leaves behind."""
        graph, end = self.graph, len(self.layers)
        made = {layer.tensor: i for i, layer in enumerate(self.layers)}
        when: dict[
            str, int
        ] = {}  # node -> the layer that reads its inputs: its own, or that it is fused into
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
