"""What a TFLite model keeps from one inference to the next: states of the graph, pairs (next_NAME, NAME).

TFLite has variable tensors (of LSTM, RNN and SVDF), and resources that READ_VARIABLE and ASSIGN_VARIABLE name
by a handle and a subgraph that CALL_ONCE runs initialises. States of the graph begin as zeros; one with
another initial value holds the difference to that. Quantised ones are states of what they stand for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sdk.expression.trace import trace
from sdk.graph import Array, Map, Tensor
from sdk.importers.tflite.file import Shape, TfliteModel, TfliteOperator, TfliteTensor
from sdk.importers.tflite.values import View, dequantized, plainly
from sdk.importers.values import GraphBuilder

INITIALISERS = ("VAR_HANDLE", "ASSIGN_VARIABLE")
"""Operators of a subgraph that CALL_ONCE may run."""


@dataclass
class State:
    """A state.

    Attributes:
        name: of the graph input.
        initial: added to what is stored; None for zeros.
        current: what an operator that reads it gets.
    """

    name: str
    initial: Array | None
    current: View


class States:
    """The states of a walk; resources by the name that their handles share."""

    def __init__(self, builder: GraphBuilder, model: TfliteModel) -> None:
        self.builder = builder
        self.handles: dict[tuple[int, int], str] = {}
        self.initial: dict[str, Array] = {}
        self.known: dict[str, State] = {}
        self.assigned: dict[str, View] = {}
        self.changing = {resource for graph in running(model) for resource in assigned(graph)}

    def variable(self, tensor: TfliteTensor) -> View:
        """A variable tensor, before an operator has changed it."""
        dtype = "float32" if tensor.scale.size else tensor.dtype
        return self._begin(f"variable {tensor.index}", tensor.name, tensor.shape, dtype, None)

    def leave(self, tensor: TfliteTensor, view: View) -> None:
        """Say what a variable tensor holds after the operator that has it."""
        self.known[f"variable {tensor.index}"].current = view

    def handle(self, node: TfliteOperator, number: int, tensor: TfliteTensor) -> str:
        """The resource that a tensor of subgraph `number` names."""
        if (number, tensor.index) not in self.handles:
            raise node.invalid(f"its input {tensor.name!r} is not a handle of a VAR_HANDLE before it")
        return self.handles[number, tensor.index]

    def constant(self, resource: str) -> Array | None:
        """The elements of a resource that is initialised and never assigned."""
        return None if resource in self.changing else self.initial.get(resource)

    def read(self, node: TfliteOperator, resource: str, tensor: TfliteTensor) -> View:
        """The elements of a resource; those of the last inference where nothing has assigned it yet."""
        if resource in self.assigned:
            return self.assigned[resource]
        if resource not in self.known:
            dtype = "float32" if tensor.scale.size else tensor.dtype
            initial = self.initial.get(resource)
            if initial is not None and initial.shape != tensor.shape:
                raise node.invalid(f"{resource!r} is initialised with {list(initial.shape)}")
            if initial is not None and not initial.any():
                initial = None
            if initial is not None and dtype != "float32":
                raise node.unsupported(f"the variable {resource!r} of {dtype} does not begin as zeros")
            self._begin(resource, resource, tensor.shape, dtype, initial)
        return self.known[resource].current

    def call_once(self, node: TfliteOperator, graph: TfliteModel) -> None:
        """Take the constants that a subgraph assigns to resources as their initial values."""
        handles: dict[int, str] = {}
        for inner in graph.operators:
            if inner.op not in INITIALISERS:
                raise node.unsupported(f"its subgraph {graph.name!r} has {inner.op}")
            if inner.op == "VAR_HANDLE":
                if not inner.outputs:
                    raise node.invalid(f"its subgraph {graph.name!r} has a VAR_HANDLE without a result")
                handles[inner.outputs[0]] = shared_name(inner)
                continue
            if len(inner.inputs) != 2 or inner.inputs[0] not in handles:
                raise node.invalid(f"its subgraph {graph.name!r} assigns what is not a handle")
            tensor = graph.tensors[inner.inputs[1]]
            if tensor.data is None:
                raise node.unsupported(f"its subgraph {graph.name!r} computes {tensor.name!r}")
            self.initial[handles[inner.inputs[0]]] = real(tensor)

    def left(self, key: str) -> View:
        """What a state is after an inference, before its initial value is subtracted."""
        return self.assigned.get(key, self.known[key].current)

    def stored(self, key: str, tensor: str) -> str:
        """The plain tensor that a state keeps, of the one that it is."""
        state = self.known[key]
        return tensor if state.initial is None else self._moved(tensor, -state.initial, f"{state.name}/left")

    def _begin(self, key: str, name: str, shape: Shape, dtype: str, initial: Array | None) -> View:
        builder = self.builder
        if name in builder.tensors:
            name = builder.fresh(f"{name}/state")
        builder.tensors[name] = Tensor(name, shape, dtype)
        current = name if initial is None else self._moved(name, initial, f"{name}/given")
        self.known[key] = State(name, initial, plainly(current, len(shape)))
        return self.known[key].current

    def _moved(self, tensor: str, by: Array, node: str) -> str:
        """A tensor plus a constant."""
        builder, shape = self.builder, self.builder.tensors[tensor].shape
        name = builder.fresh(f"{node}/constant")
        constant = builder.file(Tensor(name, by.shape, "float32", None, np.asarray(by, np.float32)))
        template = Map(node, (tensor, constant), "", trace(lambda a, b: a + b, "real", "real"))
        return builder.emit(template, Tensor(builder.fresh(node), shape, "float32"))


def running(model: TfliteModel) -> list[TfliteModel]:
    """The subgraphs that run at each inference, not only at the first."""
    once = {n.option("CallOnceOptions", "InitSubgraphIndex") for n in model.operators if n.op == "CALL_ONCE"}
    return [model, *(other for number, other in enumerate(model.others, 1) if number not in once)]


def assigned(graph: TfliteModel) -> list[str]:
    """The resources that a subgraph assigns."""
    handles = {n.outputs[0]: shared_name(n) for n in graph.operators if n.op == "VAR_HANDLE" and n.outputs}
    changed = [n.inputs[0] for n in graph.operators if n.op == "ASSIGN_VARIABLE" and n.inputs]
    return [handles[index] for index in changed if index in handles]


def shared_name(node: TfliteOperator) -> str:
    """The name that a VAR_HANDLE shares with all others of its resource."""
    name = node.option("VarHandleOptions", "SharedName") or b""
    container = node.option("VarHandleOptions", "Container") or b""
    return "/".join(part.decode("utf-8", "replace") for part in (container, name) if part) or "variable"


def real(tensor: TfliteTensor) -> Array:
    """What the elements of a constant stand for."""
    assert tensor.data is not None  # the caller has looked
    return dequantized(tensor, tensor.data) if tensor.scale.size else tensor.data
