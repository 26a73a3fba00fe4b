"""Operators between quantised tensors that most targets compute in floats, for targets that have no floats.

Importers leave an operator without an integer definition as a float island: Dequantize, the operator on plain
tensors, Quantize. For a target whose arithmetic is of integers (`q31`, `q15`), an island of one operator
becomes that operator on the quantised tensors themselves, as `sdk.reference.integer_islands` defines it.
Other targets never see such nodes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from sdk.errors import Unsupported
from sdk.expression import trace
from sdk.graph import (
    Array,
    Concat,
    ConvTranspose,
    Dequantize,
    Fill,
    Graph,
    Interpolate,
    Map,
    MatMul,
    Node,
    Normalize,
    Quantization,
    Quantize,
    Reduce,
    Reshape,
    Slice,
    Softmax,
    Take,
    Tensor,
    Transpose,
)
from sdk.lowering import alone
from sdk.passes import eliminate_dead, use_counts
from sdk.target import Arithmetic
from sdk.verification import verify

MOVES = Reshape | Transpose | Slice | Take
"""What may stand between an operator and its Quantize: it moves integers as well."""


def for_arithmetic(graph: Graph, arithmetic: Arithmetic) -> Graph:
    """A verified network as targets of this arithmetic take it."""
    return graph if arithmetic == "f32" else integer_islands(graph)


def integer_islands(graph: Graph) -> Graph:
    """The network with its islands of one operator on integers; names of nodes and quantised tensors stay.

    What integers do not define, and islands of several operators, stay as they are.
    """
    made = _Islands(graph)
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes += (made.replaced(node) if isinstance(node, Quantize) else None) or [node]
    return eliminate_dead(dataclasses.replace(graph, tensors=made.tensors, nodes=tuple(nodes)))


class _Islands:
    """What rules read and write: the quantised tensors behind an operator's operands.

    Attributes:
        tensors: of the network, and those that were made for the nodes that replace islands.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.tensors = dict(graph.tensors)
        self._uses = use_counts(graph)
        self._producers: Mapping[str, Node] = {node.output: node for node in graph.nodes}

    # -- islands ------------------------------------------------------------------------------------------

    def replaced(self, quantize: Quantize) -> list[Node] | None:
        """The nodes that compute a Quantize's output from quantised tensors; None if it ends no island."""
        chain = self._chain(quantize)
        if not chain:
            return None
        inputs: tuple[str, ...] | None = ()
        if not isinstance(chain[0], Concat):
            inputs = OPERATORS[type(chain[0])](self, chain[0])
        if inputs is None:
            return None
        nodes: list[Node] = []
        for node in chain:
            output = quantize.output
            if node is not chain[-1]:
                tensor = dataclasses.replace(self.tensors[output], shape=self.tensors[node.output].shape)
                output = self._file(tensor, f"{node.output}_quantized")
            if isinstance(node, Concat):
                nodes = self._with_constants(node, output)
                if not nodes:
                    return None
            else:
                nodes.append(dataclasses.replace(node, inputs=inputs, output=output))
            inputs = (output,)
        try:
            verify(alone(dataclasses.replace(self._graph, tensors=self.tensors), nodes[0]))
        except Unsupported:  # an accumulator could leave int32
            return None
        return nodes

    def _chain(self, quantize: Quantize) -> Sequence[Node]:
        """The operator and the moves behind it up to a Quantize, where nothing else reads their results."""
        chain: list[Node] = []
        name = quantize.inputs[0]
        while self._uses[name] == 1 and (node := self._producers.get(name)) is not None:
            chain.insert(0, node)
            if type(node) in OPERATORS or isinstance(node, Concat):
                return chain
            if not isinstance(node, MOVES):
                break
            name = node.inputs[0]
        return ()

    def _with_constants(self, node: Concat, output: str) -> list[Node]:
        """A Concat of one activation and constants: zeros around the one, and then the others added.

        Nothing if it is of others.
        """
        parts = [self.tensors[name] for name in node.inputs]
        found = [index for index, part in enumerate(parts) if part.data is None]
        x = self.activation(parts[found[0]].name) if len(found) == 1 else None
        out = self.tensors[output]
        if x is None or any(part.dtype != "float32" for part in parts):
            return []
        (place,) = found
        extents = [part.shape[node.axis] for part in parts]
        befores, afters = [0] * len(out.shape), [0] * len(out.shape)
        befores[node.axis], afters[node.axis] = sum(extents[:place]), sum(extents[place + 1 :])
        zeros = np.zeros(x.shape, np.float32)
        data = np.concatenate([zeros if part.data is None else part.data for part in parts], node.axis)
        constants = self._file(Tensor("", out.shape, "float32", None, data), f"{node.output}_constants")
        filled = self._file(out, f"{node.output}_filled")
        name = f"{node.name}_constants"
        while any(other.name == name for other in self._graph.nodes):
            name += "_"
        fill = Fill(node.name, (x.name,), filled, tuple(befores), tuple(afters), 0.0)
        return [fill, Map(name, (filled, constants), output, trace(lambda a, b: a + b, "real", "real"))]

    # -- operands -----------------------------------------------------------------------------------------

    def activation(self, name: str) -> Tensor | None:
        """The quantised tensor whose real values a plain one is, if it is that of a Dequantize."""
        producer = self._producers.get(name)
        return self.tensors[producer.inputs[0]] if isinstance(producer, Dequantize) else None

    def weight(self, name: str, axis: int | None) -> Tensor | None:
        """A float constant as the int8 or uint8 one that it was made from, per channel along `axis`.

        The scales are found again, so that it means the same bit for bit; None if there are none.
        """
        data = self.tensors[name].data
        found = None if data is None or data.dtype != np.float32 else quantized_again(data, axis)
        if found is None:
            return None
        integers, quantization = found
        tensor = Tensor(name, integers.shape, str(integers.dtype), quantization, integers)
        return self.tensors[self._file(tensor, f"{name}_quantized")]

    def bias(self, name: str, scale: Array) -> str | None:
        """A float constant [channels] in int32 at the accumulator's scale; None if it does not fit."""
        data = self.tensors[name].data
        if data is None:
            return None
        rounded = np.rint(data.astype(np.float64) / scale)
        if not np.abs(rounded).max() < 2**31:
            return None
        scale = np.asarray(scale, np.float32)
        quantization = Quantization(scale, np.zeros(scale.shape, np.int32), 0 if scale.ndim else None)
        integers = rounded.astype(np.int32)
        return self._file(Tensor(name, data.shape, "int32", quantization, integers), f"{name}_quantized")

    def _file(self, tensor: Tensor, name: str) -> str:
        while name in self.tensors:
            name += "_"
        self.tensors[name] = dataclasses.replace(tensor, name=name)
        return name


# -- operators --------------------------------------------------------------------------------------------

Rule = Callable[[_Islands, Node], tuple[str, ...] | None]
"""From an operator on plain tensors to the inputs that it has on quantised ones; None if it has none."""


def _matmul(islands: _Islands, node: Node) -> tuple[str, ...] | None:
    """Of two activations, or of one and a constant right side with scales per column; a constant bias."""
    assert isinstance(node, MatMul)
    rank = len(islands.tensors[node.inputs[1]].shape)
    a = islands.activation(node.inputs[0])
    b = islands.activation(node.inputs[1])
    if b is None:
        b = islands.weight(node.inputs[1], rank - 2 if node.transposed else rank - 1)
    if a is None or b is None:
        return None
    return _with_bias(islands, node, a, b)


def _conv_transpose(islands: _Islands, node: Node) -> tuple[str, ...] | None:
    """Of an activation by constants, which may have a scale for each output channel of a group."""
    assert isinstance(node, ConvTranspose)
    x, weight = islands.activation(node.inputs[0]), islands.weight(node.inputs[1], 1)
    return None if x is None or weight is None else _with_bias(islands, node, x, weight, node.group)


def _with_bias(
    islands: _Islands, node: Node, x: Tensor, weight: Tensor, groups: int = 1
) -> tuple[str, ...] | None:
    """The inputs of a product: its two sides, and its bias if it has one."""
    assert weight.quantization is not None
    names: tuple[str, ...] = (x.name, weight.name)
    scale = weight.quantization.scale
    for name in node.inputs[2:]:
        bias = islands.bias(name, np.float32(x.scale) * (np.tile(scale, groups) if scale.ndim else scale))
        if bias is None:
            return None
        names = (*names, bias)
    return names


def _one_activation(islands: _Islands, node: Node) -> tuple[str, ...] | None:
    """Of one activation; further inputs are constants that stay as they are."""
    x = islands.activation(node.inputs[0])
    return None if x is None else (x.name, *node.inputs[1:])


def _fill(islands: _Islands, node: Node) -> tuple[str, ...] | None:
    """Around an activation a value that can be quantised."""
    assert isinstance(node, Fill)
    return _one_activation(islands, node) if math.isfinite(node.value) else None


def _reduce(islands: _Islands, node: Node) -> tuple[str, ...] | None:
    """A sum, mean or extreme of an activation."""
    assert isinstance(node, Reduce)
    return _one_activation(islands, node) if node.kind in ("sum", "mean", "max", "min") else None


def _normalize(islands: _Islands, node: Node) -> tuple[str, ...] | None:
    """An activation, by constant factors and offsets, which stay real."""
    x = islands.activation(node.inputs[0])
    constant = all(islands.tensors[name].data is not None for name in node.inputs[1:])
    return (x.name, *node.inputs[1:]) if x is not None and constant else None


OPERATORS: Mapping[type[Node], Rule] = {
    ConvTranspose: _conv_transpose,
    Fill: _fill,
    Interpolate: _one_activation,
    MatMul: _matmul,
    Normalize: _normalize,
    Reduce: _reduce,
    Softmax: _one_activation,
}
"""What has a definition on integers, with what its inputs become."""


# -- constants --------------------------------------------------------------------------------------------

LEVELS = 255
"""The largest magnitude of an 8-bit weight less its zero-point."""


def quantized_again(data: Array, axis: int | None) -> tuple[Array, Quantization] | None:
    """The integers and scales that DequantizeLinear makes exactly these float32 values of, if there are any.

    Args:
        data: values; those of int8 or uint8 weights are few multiples of one number.
        axis: of the channels, each with its own scale; None for one scale.

    Returns:
        int8 with zero-points of 0 where that has room, else uint8; and scales per channel.
    """
    rows = data.reshape(1, -1) if axis is None else np.moveaxis(data, axis, 0).reshape(data.shape[axis], -1)
    scales = np.ones(len(rows), np.float32)
    integers = np.zeros(rows.shape, np.int32)
    largest = np.abs(rows).max(axis=1)
    if not np.isfinite(largest).all():
        return None
    open_rows = np.flatnonzero(largest)
    for level in (127, 128, *range(126, 0, -1), *range(129, LEVELS + 1)):
        for step in (0, -1, 1):  # the division was rounded
            if not len(open_rows):
                break
            guess = largest[open_rows] / np.float32(level)
            if step:
                guess = np.nextafter(guess, np.float32(step * np.inf))
            with np.errstate(all="ignore"):
                found = np.rint(rows[open_rows] / guess[:, None])
            fits = (found.astype(np.float32) * guess[:, None] == rows[open_rows]).all(axis=1)
            fits &= found.max(axis=1) - found.min(axis=1) <= LEVELS
            scales[open_rows[fits]], integers[open_rows[fits]] = guess[fits], found[fits]
            open_rows = open_rows[~fits]
    if len(open_rows):
        return None
    signed = integers.min() >= -128 and integers.max() <= 127
    zero_points = np.zeros(len(rows), np.int32) if signed else -np.minimum(integers.min(axis=1), 0)
    integers = (integers + zero_points[:, None]).astype(np.int8 if signed else np.uint8)
    if axis is None:
        return integers.reshape(data.shape), Quantization(scales.reshape(()), zero_points.reshape(()))
    moved = integers.reshape(data.shape[axis], *np.delete(data.shape, axis))
    return np.ascontiguousarray(np.moveaxis(moved, 0, axis)), Quantization(scales, zero_points, axis)
