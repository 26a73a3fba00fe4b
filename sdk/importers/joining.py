"""What lies between Dequantize and Quantize as operators on the quantised tensors themselves."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Mapping

import numpy as np

from sdk.errors import Unsupported
from sdk.exact_maps import exact_map
from sdk.expression import Kind, Symbol, evaluate, replay, trace
from sdk.graph import (
    Dequantize,
    Graph,
    Lookup,
    Map,
    Node,
    Quantize,
    Requantize,
    Reshape,
    Slice,
    Take,
    Tensor,
    Transpose,
)
from sdk.importers.values import quantized_table, real_values
from sdk.passes import eliminate_dead, use_counts
from sdk.verification import INTEGER_RANGE, kind_of, same_quantization


def join(graph: Graph) -> Graph:
    """The graph with integers moved where what they mean would be, and Maps of quantised tensors."""
    return join_maps(move_integers(graph))


def move_integers(graph: Graph) -> Graph:
    """Let a Move behind a Dequantize come before it, and drop a Quantize that changes nothing."""
    tensors = dict(graph.tensors)
    integers: dict[str, str] = {}  # of a dequantised tensor: the quantised one
    same: dict[str, str] = {}  # what equals another tensor: which
    nodes: list[Node] = []
    names = {node.name for node in graph.nodes}
    for node in graph.nodes:
        node = dataclasses.replace(node, inputs=tuple(same.get(name, name) for name in node.inputs))
        source = integers.get(node.inputs[0])
        match node:
            case Dequantize():
                integers[node.output] = node.inputs[0]
            case Slice() | Take() | Transpose() | Reshape() if source is not None:
                name = unused(f"{node.output}_quantized", tensors)
                tensors[name] = dataclasses.replace(
                    tensors[source], name=name, shape=tensors[node.output].shape
                )
                nodes.append(dataclasses.replace(node, inputs=(source,), output=name))
                node = Dequantize(unused(f"{node.name}/dequantize", names), (name,), node.output)
                names.add(node.name)
                integers[node.output] = name
            case Quantize() if source is not None:
                out = tensors[node.output]
                if same_quantization(tensors[source], out):
                    if out.name not in graph.outputs:
                        same[out.name] = source
                        continue
                    node = Reshape(node.name, (source,), out.name)
                else:
                    node = Requantize(node.name, (source,), out.name, INTEGER_RANGE[out.dtype])
        nodes.append(node)
    return eliminate_dead(dataclasses.replace(graph, tensors=tensors, nodes=tuple(nodes)))


def join_maps(graph: Graph) -> Graph:
    """Join each Quantize with the Maps before it, as far as nothing else reads them, and their Dequantizes.

    What depends on one quantised tensor alone becomes a Lookup. Where `f32` does not define the whole, or it
    reads plain activations, all stays as it is.
    """
    joining = _Joining(graph)
    nodes = tuple(joining.join(node) if isinstance(node, Quantize) else node for node in graph.nodes)
    return eliminate_dead(dataclasses.replace(graph, tensors=joining.tensors, nodes=nodes))


def unused(name: str, taken: Container[str]) -> str:
    """The name, made longer until none of those that are taken is the same."""
    while name in taken:
        name += "_"
    return name


class _Joining:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.tensors = dict(graph.tensors)
        self._uses = use_counts(graph)
        self._producers: Mapping[str, Node] = {node.output: node for node in graph.nodes}

    def join(self, quantize: Quantize) -> Node:
        """The node that has the same output, of the quantised tensors that Maps before it began with."""
        last = self._producers.get(quantize.inputs[0])
        if not isinstance(last, Map) or not self._joins(last.output):
            return quantize
        leaves = dict.fromkeys(self._leaves(last))
        tensors = [self.graph.tensor(leaf) for leaf in leaves]
        if any(tensor.data is None and tensor.quantization is None for tensor in tensors):
            return quantize
        kinds: list[Kind] = ["real" if t.quantization else kind_of(t.dtype) for t in tensors]

        def build(*symbols: Symbol) -> Symbol:
            return self._replayed(last, dict(zip(leaves, symbols, strict=True)))

        expression = trace(build, *kinds)
        activations = [tensor for tensor in tensors if tensor.data is None]
        joined = Map(last.name, tuple(leaves), quantize.output, expression)
        graph = dataclasses.replace(self.graph, nodes=(joined,))
        if not activations:
            return quantize
        if len(tensors) == 1 and tensors[0].shape == self.graph.tensor(quantize.output).shape:
            return self._lookup(joined, tensors[0])
        try:
            exact_map(graph, joined, "f32")
        except Unsupported:
            return quantize
        return joined

    def _joins(self, name: str) -> bool:
        return self._uses[name] == 1 and name not in self.graph.outputs

    def _leaves(self, node: Map) -> list[str]:
        """What the Maps up to this one read: quantised tensors, constants, and other plain tensors."""
        leaves = []
        for name in node.inputs:
            producer = self._producers.get(name)
            if isinstance(producer, Dequantize):
                leaves.append(producer.inputs[0])
            elif isinstance(producer, Map) and self._joins(name):
                leaves += self._leaves(producer)
            else:
                leaves.append(name)
        return leaves

    def _replayed(self, node: Map, symbols: Mapping[str, Symbol]) -> Symbol:
        operands = []
        for name in node.inputs:
            producer = self._producers.get(name)
            if isinstance(producer, Dequantize):
                operands.append(symbols[producer.inputs[0]])
            elif isinstance(producer, Map) and self._joins(name):
                operands.append(self._replayed(producer, symbols))
            else:
                operands.append(symbols[name])
        return replay(node.expression, *operands)

    def _lookup(self, node: Map, x: Tensor) -> Lookup:
        out = self.graph.tensor(node.output)
        assert out.quantization is not None
        values = evaluate(node.expression, [real_values(x).astype(np.float64)]).astype(np.float32)
        data = quantized_table(values, out.dtype, out.quantization, f"node {node.name}")
        name = unused(f"{node.output}_table", self.tensors)
        self.tensors[name] = Tensor(name, data.shape, out.dtype, out.quantization, data)
        return Lookup(node.name, (x.name, name), node.output)
