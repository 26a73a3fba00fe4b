"""A float32 graph as a float16 one: dtypes of tensors, constants rounded, casts at the borders.

A node computes in float32 if its result, or something that it reads, stays float32; its other operands are
cast for it. A Map takes operands of any dtype, and needs no cast. Tensors inside one operator of the model
("Y/squares" within what gives Y) stay float32 where arithmetic alone reads them, as in a file of float16.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable

import numpy as np

from sdk import dtypes
from sdk.expression import trace
from sdk.float16.masks import LARGEST, Masks, clipped, may_mask, saturated
from sdk.graph import (
    Array,
    Fill,
    Graph,
    Interpolate,
    Map,
    Node,
    Normalize,
    Recurrent,
    Reduce,
    Region,
    Softmax,
    Tensor,
    TopK,
)

_ARITHMETIC = Map | Reduce | Softmax | Normalize | TopK
_WIDTHS = ("float16", "bfloat16", "float32")


def flat(graph: Graph) -> Graph:
    """The graph with the nodes of regions in their place, which are defined by them."""
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes.extend(node.nodes if isinstance(node, Region) else (node,))
    return dataclasses.replace(graph, nodes=tuple(nodes))


def inside_operators(graph: Graph) -> set[str]:
    """Tensors within one operator of the model that arithmetic alone makes and reads."""
    readers: dict[str, list[Node]] = {}
    for node in graph.nodes:
        for name in node.inputs:
            readers.setdefault(name, []).append(node)
    return {
        node.output
        for node in graph.nodes
        if isinstance(node, _ARITHMETIC)
        and node.output.rpartition("/")[0] in graph.tensors
        and node.output not in graph.outputs
        and all(isinstance(reader, _ARITHMETIC) for reader in readers.get(node.output, ()))
    }


def typed_operands(node: Node) -> Iterable[int]:
    """Which inputs have a float dtype that goes with the node's; an Interpolate's weights are float32."""
    return (0,) if isinstance(node, Interpolate) else range(len(node.inputs))


def retyped(
    graph: Graph, wide: Collection[str], masks: Masks, states: Collection[str], *, narrow: bool = True
) -> Graph:
    """The float16 graph of a float32 one.

    Args:
        graph: flat, of plain tensors.
        wide: tensors that are float32; a constant among them is one that its readers take in float32.
        masks: of the graph.
        states: inputs and outputs that become one another: they are float16 unless they are wide. Other
            inputs and outputs keep their dtype.
        narrow: whether float32 tensors become float16; else only those that are wide change.
    """
    inside = inside_operators(graph) if narrow else set()
    return _Conversion(graph, {*wide, *inside}, masks, states, narrow).run()


class _Conversion:
    def __init__(
        self,
        graph: Graph,
        wide: Collection[str],
        masks: Masks,
        states: Collection[str],
        narrow: bool,
    ) -> None:
        self.graph = graph
        self.masks = masks
        self.wide = set(wide)
        self.narrow = narrow
        self.border = {*graph.inputs, *graph.outputs} - {*states}
        self.tensors: dict[str, Tensor] = {}
        self.nodes: list[Node] = []
        self.names = {*graph.tensors}
        self.node_names = {node.name for node in graph.nodes}
        self.forms: dict[tuple[str, str], str] = {}
        """(tensor, dtype): the tensor that holds it so."""
        self.readers = {name for node in graph.nodes for name in node.inputs}

    def run(self) -> Graph:
        graph = self.graph
        for name in graph.inputs:
            self._file(self._stored(graph.tensor(name), name in self.border))
        for node in graph.nodes:
            self._convert(node)
        made = dataclasses.replace(graph, tensors=self.tensors, nodes=tuple(self.nodes))
        for name in graph.outputs:
            if name not in self.tensors:  # a constant
                self.tensors[name] = graph.tensor(name)
        return made

    def _stored(self, tensor: Tensor, border: bool = False) -> Tensor:
        """An activation in its dtype of the float16 graph."""
        if border:
            return tensor
        return dataclasses.replace(tensor, dtype=self._dtype(tensor.dtype, tensor.name in self.wide))

    def _file(self, tensor: Tensor) -> str:
        self.tensors[tensor.name] = tensor
        self.forms[tensor.name, tensor.dtype] = tensor.name
        return tensor.name

    def _convert(self, node: Node) -> None:
        out = self.graph.tensor(node.output)
        if isinstance(node, Map):
            self._map(node, out)
            return
        reads = [node.inputs[index] for index in typed_operands(node)]
        wide = any(name in self.wide for name in (*reads, node.output)) or all(
            self.graph.tensor(name).data is not None for name in node.inputs
        )
        typed = {*typed_operands(node)}
        inputs = tuple(
            self._operand(name, wide) if index in typed else self._same(name)
            for index, name in enumerate(node.inputs)
        )
        dtype = self._dtype(out.dtype, wide)
        if isinstance(node, Recurrent):
            node = dataclasses.replace(node, body=self._body(node.body, wide))
        if isinstance(node, Fill) and dtype == "float16" and may_mask(float(node.value)):
            node = dataclasses.replace(node, value=float(np.copysign(LARGEST, float(node.value))))
        self._emit(dataclasses.replace(node, inputs=inputs), out, dtype)

    def _map(self, node: Map, out: Tensor) -> None:
        inputs = tuple(self._any(name) for name in node.inputs)
        stored = self._stored(out, node.output in self.border)
        if node.output in self.border and node.output in self.readers:
            stored = self._stored(out)  # its readers need a float16
        if stored.dtype == "float16" and out.dtype == "float32" and node.name in self.masks.saturating:
            node = clipped(node)
        self._emit(dataclasses.replace(node, inputs=inputs), out, stored.dtype)

    def _emit(self, node: Node, out: Tensor, dtype: str) -> None:
        """The node with a result of that dtype, and a cast if the tensor has another."""
        kept = self._stored(out, out.name in self.border)
        if kept.dtype == dtype:
            self.nodes.append(dataclasses.replace(node, output=self._file(kept)))
            return
        name = self._fresh(f"{out.name}/{dtype}")
        self._file(dataclasses.replace(out, name=name, dtype=dtype))
        self.forms[out.name, dtype] = name
        self.nodes.append(dataclasses.replace(node, output=name))
        self._cast(name, kept)

    def _cast(self, source: str, to: Tensor) -> str:
        """`to` from `source`, as a model's Cast."""
        name = f"{to.name}/to_{to.dtype}"
        while name in self.node_names:
            name += "_"
        self.node_names.add(name)
        self._file(to)
        self.nodes.append(Map(name, (source,), to.name, trace(lambda x: x, "real")))
        return to.name

    def _fresh(self, name: str) -> str:
        while name in self.names:
            name += "_"
        self.names.add(name)
        return name

    # -- what a node reads ----------------------------------------------------------------------------------

    def _dtype(self, dtype: str, wide: bool) -> str:
        """What a float of that dtype is in a node that computes in float32, or does not."""
        if wide and dtype in _WIDTHS:
            return "float32"
        return "float16" if dtype == "float32" and self.narrow and not wide else dtype

    def _operand(self, name: str, wide: bool) -> str:
        """A tensor in the dtype that its reader computes in."""
        tensor = self.graph.tensor(name)
        dtype = self._dtype(tensor.dtype, wide)
        if (name, dtype) in self.forms:
            return self.forms[name, dtype]
        if tensor.data is not None:
            return self._constant(tensor, dtype)
        to = dataclasses.replace(tensor, name=self._fresh(f"{name}/{dtype}"), dtype=dtype)
        made = self._cast(name, to)
        self.forms[name, dtype] = made
        return made

    def _constant(self, tensor: Tensor, dtype: str) -> str:
        """A constant in that dtype, under its own name unless that is taken."""
        if (tensor.name, dtype) in self.forms:
            return self.forms[tensor.name, dtype]
        name = tensor.name if tensor.name not in self.tensors else self._fresh(f"{tensor.name}/{dtype}")
        made = dataclasses.replace(tensor, name=name, dtype=dtype, data=_as(tensor, dtype))
        self.forms[tensor.name, dtype] = self._file(made)
        return made.name

    def _any(self, name: str) -> str:
        """What a Map reads: a tensor as it is stored; a constant rounded, unless that loses it."""
        tensor = self.graph.tensor(name)
        if tensor.data is None:
            return self._same(name)
        lost = name in self.wide or (name not in self.masks.constants and loses(tensor))
        return self._constant(tensor, self._dtype(tensor.dtype, lost))

    def _same(self, name: str) -> str:
        tensor = self.graph.tensor(name)
        if tensor.data is not None:
            return self._constant(tensor, tensor.dtype)
        return name

    def _body(self, body: Graph, wide: bool) -> Graph:
        """A step of a recurrence: all of it in float16, or in float32."""
        tensors = {}
        for name, tensor in body.tensors.items():
            dtype = self._dtype(tensor.dtype, wide)
            data = None if tensor.data is None else _as(tensor, dtype)
            tensors[name] = dataclasses.replace(tensor, dtype=dtype, data=data)
        nodes = tuple(
            dataclasses.replace(node, body=self._body(node.body, wide))
            if isinstance(node, Recurrent)
            else node
            for node in body.nodes
        )
        return dataclasses.replace(body, tensors=tensors, nodes=nodes)


TINY = 0.1
"""A constant of which this share of the elements that are not zero becomes zero is not rounded."""
SMALLEST = 2.0**-25
"""Half the smallest float16 above zero, 2^-24: what is not larger is rounded to zero."""


def beyond(tensor: Tensor) -> float:
    """The largest finite magnitude of a float32 constant, if a float16 has no room for it; else 0."""
    if tensor.data is None or tensor.dtype != "float32":
        return 0.0
    largest = float(np.abs(tensor.data[np.isfinite(tensor.data)]).max(initial=0))
    return largest if largest > LARGEST else 0.0


def vanishing(tensor: Tensor) -> float:
    """The share of a float32 constant's elements other than zero that are zero as float16, if it is large."""
    if tensor.data is None or tensor.dtype != "float32":
        return 0.0
    count = int(np.count_nonzero(tensor.data))
    lost = count - int(np.count_nonzero(np.abs(tensor.data) > SMALLEST))
    return lost / count if count and lost / count > TINY else 0.0


def loses(tensor: Tensor) -> bool:
    """Whether a constant is to stay float32."""
    return bool(beyond(tensor) or vanishing(tensor))


def _as(tensor: Tensor, dtype: str) -> Array:
    """A constant's elements in another dtype."""
    assert tensor.data is not None
    if tensor.dtype == dtype:
        return tensor.data
    data = saturated(tensor.data) if dtype == "float16" and tensor.dtype == "float32" else tensor.data
    return np.asarray(dtypes.encode(dtypes.decode(data, tensor.dtype), dtype), order="C")
