"""What is done to a graph between importer and target.

Every pass takes a verified graph and returns a new verified one that computes the same bits in both
arithmetics of `sdk.reference`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sdk.graph import (
    Array,
    AveragePool,
    Clamp,
    Conv,
    Graph,
    Lookup,
    Map,
    MaxPool,
    Node,
    Pad,
    Requantize,
    Reshape,
    Tensor,
    Transpose,
)
from sdk.shapes import window_counts
from sdk.verification import INTEGER_RANGE, Clamped, same_quantization, verify


def eliminate_dead(graph: Graph) -> Graph:
    """Drop nodes that no output depends on, and tensors that nothing mentions. Graph inputs stay."""
    needed = set(graph.outputs)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if node.output in needed:
            kept.append(node)
            needed.update(node.inputs)
    needed.update(graph.inputs)
    tensors = {name: tensor for name, tensor in graph.tensors.items() if name in needed}
    return dataclasses.replace(graph, tensors=tensors, nodes=tuple(reversed(kept)))


def fuse_requantize(graph: Graph) -> Graph:
    """Make a Requantize that only narrows the range (a Relu or Clip) the clamp of its producer.

    The producer must have no other consumer, and both outputs the same quantisation: then the requantisation
    scale is exactly 1, and clamping twice is clamping once.
    """
    uses = use_counts(graph)
    nodes: dict[str, Node] = {}  # by output; insertion order is execution order
    for node in graph.nodes:
        producer = nodes.get(node.inputs[0])
        if (
            isinstance(node, Requantize)
            and isinstance(producer, Clamped)
            and uses[producer.output] == 1
            and same_quantization(graph.tensor(producer.output), graph.tensor(node.output))
        ):
            del nodes[producer.output]
            clamp = _narrow(producer.clamp, node.clamp)
            nodes[node.output] = dataclasses.replace(producer, output=node.output, clamp=clamp)
        else:
            nodes[node.output] = node
    # A fused producer moved down to its Requantize's place, which is still before all its consumers.
    return eliminate_dead(dataclasses.replace(graph, nodes=tuple(nodes.values())))


def compose_lookups(graph: Graph) -> Graph:
    """Make one table of a Lookup and the Lookup, Relu or Clip (with the same quantisation) beside it.

    The first of the two stays where others read it as well.
    """
    tensors = dict(graph.tensors)
    nodes: dict[str, Node] = {}  # by output
    for node in graph.nodes:
        first = nodes.get(node.inputs[0])
        if first is not None and (isinstance(node, Lookup) or isinstance(first, Lookup)):
            inner, outer = _table(first, tensors), _table(node, tensors)
            if inner is not None and outer is not None:
                middle, out = tensors[first.output], tensors[node.output]
                data = outer[inner.astype(np.int32) - INTEGER_RANGE[middle.dtype][0]]
                name = f"{node.output}_table"
                while name in tensors:
                    name += "_"
                tensors[name] = Tensor(name, data.shape, out.dtype, out.quantization, data)
                node = Lookup(node.name, (first.inputs[0], name), node.output)
        nodes[node.output] = node
    return eliminate_dead(dataclasses.replace(graph, tensors=tensors, nodes=tuple(nodes.values())))


def _table(node: Node, tensors: Mapping[str, Tensor]) -> NDArray[Any] | None:
    """The values of a Lookup, or of a Requantize that only clamps; else None."""
    if isinstance(node, Lookup):
        return tensors[node.inputs[1]].data
    out = tensors[node.output]
    if not isinstance(node, Requantize) or not same_quantization(tensors[node.inputs[0]], out):
        return None
    low, high = INTEGER_RANGE[out.dtype]
    return np.arange(low, high + 1).clip(*node.clamp).astype(out.dtype)


def fold_pads(graph: Graph) -> Graph:
    """Make a Pad the padding of the window behind it, where that has the same meaning.

    A Conv pads with real zeros as Pad does, and so does an AveragePool that counts its padding; a MaxPool
    pads with the same effect where no value is below zero.
    """
    nodes: dict[str, Node] = {}  # by output
    for node in graph.nodes:
        first = nodes.get(node.inputs[0])
        if isinstance(first, Pad):
            node = _padded(node, first, graph.tensor(first.inputs[0])) or node
        nodes[node.output] = node
    return eliminate_dead(dataclasses.replace(graph, nodes=tuple(nodes.values())))


def _padded(node: Node, pad: Pad, x: Tensor) -> Node | None:
    """`node` over `x`, doing `pad` itself; None where it cannot."""
    if not isinstance(node, Conv | AveragePool | MaxPool | Pad):
        return None
    top, left, bottom, right = (a + b for a, b in zip(node.pads, pad.pads, strict=True))
    pads = (top, left, bottom, right)
    inputs = (x.name, *node.inputs[1:])
    if isinstance(node, Conv | Pad):
        return dataclasses.replace(node, inputs=inputs, pads=pads)
    dilations = node.dilations if isinstance(node, MaxPool) else (1, 1)
    if window_counts(x.shape[2:], node.kernel, node.strides, pads, dilations).min() == 0:
        return None
    if isinstance(node, MaxPool):
        lowest = x.zero_point == INTEGER_RANGE[x.dtype][0]
        return dataclasses.replace(node, inputs=inputs, pads=pads) if lowest else None
    if any(node.pads) and not node.count_include_pad:
        return None
    return dataclasses.replace(node, inputs=inputs, pads=pads, count_include_pad=True)


def simplify_transposes(graph: Graph) -> Graph:
    """Compose adjacent Transposes and drop what changes nothing; moving extents of 1 alone is a Reshape."""
    same: dict[str, str] = {}  # what equals an earlier tensor: which
    nodes: dict[str, Node] = {}  # by output
    for node in graph.nodes:
        node = dataclasses.replace(node, inputs=tuple(same.get(name, name) for name in node.inputs))
        if isinstance(node, Transpose):
            first = nodes.get(node.inputs[0])
            if isinstance(first, Transpose):
                perm = tuple(first.perm[axis] for axis in node.perm)
                node = dataclasses.replace(node, inputs=first.inputs, perm=perm)
            shape = graph.tensor(node.inputs[0]).shape
            moved = [axis for axis in node.perm if shape[axis] > 1]
            if node.perm == tuple(range(len(shape))) and node.output not in graph.outputs:
                same[node.output] = node.inputs[0]
                continue
            if moved == sorted(moved):
                node = Reshape(node.name, node.inputs, node.output)
        nodes[node.output] = node
    return eliminate_dead(dataclasses.replace(graph, nodes=tuple(nodes.values())))


def maps_before_reshapes(graph: Graph) -> Graph:
    """Compute a Map of reshaped tensors of one shape before the Reshape: what makes them can then take it in.

    A one-dimensional convolution is a Conv between Reshapes, and its activation is behind them.
    """
    uses = use_counts(graph)
    tensors = dict(graph.tensors)
    nodes: dict[str, Node] = {}  # by output
    for node in graph.nodes:
        moved = _before(node, nodes, tensors, uses) if isinstance(node, Map) else None
        if moved is not None:
            reshape, inputs = moved
            out, name = tensors[node.output], f"{node.output}_before"
            while name in tensors:
                name += "_"
            tensors[name] = dataclasses.replace(out, name=name, shape=tensors[reshape.inputs[0]].shape)
            nodes[name] = dataclasses.replace(node, inputs=inputs, output=name)
            node = dataclasses.replace(reshape, inputs=(name,), output=node.output)
            uses[name] = 1
        nodes[node.output] = node
    return eliminate_dead(dataclasses.replace(graph, tensors=tensors, nodes=tuple(nodes.values())))


def _before(
    node: Map, nodes: Mapping[str, Node], tensors: Mapping[str, Tensor], uses: Mapping[str, int]
) -> tuple[Reshape, tuple[str, ...]] | None:
    """A Reshape that can follow a Map instead, and what the Map then reads; None if there is none.

    Beside reshaped tensors, of one shape before and of the Map's behind, it may read single elements.
    """
    out = tensors[node.output]
    found = [first for name in node.inputs if isinstance(first := nodes.get(name), Reshape)]
    if not found or out.size == 1 or out.quantization is not None:
        return None
    shape = tensors[found[0].inputs[0]].shape
    inputs = []
    for name in node.inputs:
        tensor, first = tensors[name], nodes.get(name)
        if tensor.size == 1 and len(tensor.shape) <= len(shape):
            inputs.append(name)
            continue
        if not isinstance(first, Reshape) or uses[name] != node.inputs.count(name):
            return None
        before = tensors[first.inputs[0]]
        if tensor.shape != out.shape or before.shape != shape or before.quantization is not None:
            return None
        inputs.append(before.name)
    return found[0], tuple(inputs)


def use_counts(graph: Graph) -> dict[str, int]:
    """How often each tensor is read, being an output counted too."""
    counts = dict.fromkeys(graph.tensors, 0)
    for name in [*graph.outputs, *(name for node in graph.nodes for name in node.inputs)]:
        counts[name] += 1
    return counts


def _narrow(first: Clamp, second: Clamp) -> Clamp:
    """The one clamp that equals `first`, then `second`."""
    low, high = (min(max(bound, second[0]), second[1]) for bound in first)
    return low, high


PASSES: tuple[Callable[[Graph], Graph], ...] = (
    eliminate_dead,
    fuse_requantize,
    compose_lookups,
    fold_pads,
    simplify_transposes,
    maps_before_reshapes,
)


def optimize(graph: Graph, *, check: bool = False) -> Graph:
    """Run all passes in order; with `check` the verifier after each (its errors are then Towline's)."""
    for transform in PASSES:
        graph = transform(graph)
        if check:
            verify(graph)
    return graph


def unsigned_activations(graph: Graph) -> Graph:
    """Rewrite a graph: every quantised int8 activation is uint8, zero-point and clamps raised by 128.

    Each activation then holds exactly the old value plus 128, inputs and outputs included: at the boundary
    the caller flips the top bit (`to_unsigned`, `from_unsigned`). So do the values of tables; their order
    stays what it was. Weights keep their dtype.
    """
    tensors = dict(graph.tensors)
    quantized = (tensor for tensor in graph.activations() if tensor.quantization is not None)
    raised = {tensor.name for tensor in quantized if tensor.dtype == "int8"}
    tables = {node.inputs[1] for node in graph.nodes if isinstance(node, Lookup) and node.output in raised}
    for name in raised | tables:
        tensor = tensors[name]
        quantization, data = tensor.quantization, tensor.data
        assert quantization is not None  # verified
        moved = dataclasses.replace(quantization, zero_point=quantization.zero_point + np.int32(128))
        if data is not None:
            data = flip_sign(data.view(np.uint8), tensor)
        tensors[name] = dataclasses.replace(tensor, dtype="uint8", quantization=moved, data=data)
    nodes = tuple(
        dataclasses.replace(node, clamp=(node.clamp[0] + 128, node.clamp[1] + 128))
        if isinstance(node, Clamped) and node.output in raised
        else node
        for node in graph.nodes
    )
    return dataclasses.replace(graph, tensors=tensors, nodes=nodes)


def flip_sign(data: NDArray[np.uint8], tensor: Tensor) -> NDArray[np.uint8]:
    """The bytes of a tensor as they become, or were before, `unsigned_activations`: its own inverse."""
    return data ^ np.uint8(0x80) if tensor.dtype == "int8" else data


def to_unsigned(array: Array, tensor: Tensor) -> bytes:
    """The elements of `tensor` as they cross to a target that has `unsigned_activations`, in NCHW."""
    return flip_sign(np.ascontiguousarray(array).view(np.uint8), tensor).tobytes()


def from_unsigned(data: bytes, tensor: Tensor) -> Array:
    """The way back: the array of such a target's elements."""
    return flip_sign(np.frombuffer(data, np.uint8), tensor).view(tensor.dtype).reshape(tensor.shape)
