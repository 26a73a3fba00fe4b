"""Recurrences as the operators of their steps, each of which is then quantised with ranges of its own.

A GRU stays float otherwise: its gates have no ranges, and its states would share one. Unrolled, it runs
on a device that has no floats. It grows with the number of steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sdk.errors import Unsupported
from sdk.extras import require

STEPS = 512
"""The most that are unrolled: each is fifteen operators."""


def unroll(model: Any, where: str) -> Any:
    """The model (onnx.ModelProto) with every GRU unrolled.

    Raises:
        Unsupported: a recurrence of another kind, naming the node and what it is about it.
    """
    onnx = require("onnx")
    result = onnx.ModelProto()
    result.CopyFrom(model)
    inferred = onnx.shape_inference.infer_shapes(model).graph
    shapes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*inferred.value_info, *inferred.input, *inferred.output)
    }
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    nodes = list(model.graph.node)
    del result.graph.node[:]
    for node in nodes:
        if node.op_type in ("GRU", "LSTM", "RNN"):
            _Unrolling(result.graph, node, constants, where).run(shapes.get(node.input[0], []))
        else:
            result.graph.node.append(node)
    return result


class _Unrolling:
    """One GRU, as nodes and constants that are appended to a graph."""

    def __init__(self, graph: Any, node: Any, constants: Mapping[str, NDArray[Any]], where: str) -> None:
        self._graph, self._node = graph, node
        self._onnx = require("onnx")
        self._where = f"{where}: node {node.name or node.output[0]}"
        self._prefix = node.name or node.output[0]
        self._number = 0
        self._attributes = {one.name: self._onnx.helper.get_attribute_value(one) for one in node.attribute}
        self._inputs = [*node.input, *[""] * (6 - len(node.input))]
        self._constants = constants

    def run(self, shape: Sequence[int]) -> None:
        """Append the steps; `shape` is that of the sequence."""
        self._check(shape)
        steps, batch, channels = shape
        hidden = int(self._attributes["hidden_size"])
        weights, recurrence = (self._constants[name][0].astype(np.float32) for name in self._inputs[1:3])
        name = self._inputs[3]
        biases = self._constants[name][0].astype(np.float32) if name else np.zeros(6 * hidden, np.float32)
        of_input, of_state = biases[: 3 * hidden], biases[3 * hidden :]
        gates = slice(0, 2 * hidden)
        last = slice(2 * hidden, 3 * hidden)
        after = bool(self._attributes.get("linear_before_reset", 0))
        beside = 0 if after else of_state[last]
        rows = self._reshape(self._inputs[0], (steps * batch, channels))
        given = [
            self._product(rows, weights[gates], of_input[gates] + of_state[gates]),
            self._product(rows, weights[last], of_input[last] + beside),
        ]
        state = self._reshape(self._inputs[5], (batch, hidden)) if self._inputs[5] else ""
        states = []
        for step in range(steps):
            span = (step * batch, (step + 1) * batch)
            both, new = (self._slice(one, 0, *span) for one in given)
            if state:
                both = self._add("Add", both, self._product(state, recurrence[gates]))
            update, reset = (self._slice(both, 1, i * hidden, (i + 1) * hidden) for i in (0, 1))
            kept, reset = self._add("Sigmoid", update), self._add("Sigmoid", reset)
            bias = of_state[last]
            if after and state:
                part = self._add("Mul", reset, self._product(state, recurrence[last], bias))
                new = self._add("Add", new, part)
            elif after and bias.any():  # the state is zero
                new = self._add("Add", new, self._product(reset, np.diag(bias)))
            elif not after and state:
                new = self._add("Add", new, self._product(self._add("Mul", reset, state), recurrence[last]))
            new = self._add("Tanh", new)
            if state:  # new + kept * (state - new)
                state = self._add("Add", new, self._add("Mul", kept, self._add("Sub", state, new)))
            else:
                state = self._add("Sub", new, self._add("Mul", kept, new))
            states.append(state)
        outputs = [*self._node.output, "", ""]
        if outputs[0]:
            parts = [self._reshape(one, (1, 1, batch, hidden)) for one in states]
            self._append("Concat", parts, outputs[0], axis=0)
        if outputs[1]:
            self._reshape(state, (1, batch, hidden), outputs[1])

    def _check(self, shape: Sequence[int]) -> None:
        attributes, inputs = self._attributes, self._inputs
        activations = [bytes(one).decode() for one in attributes.get("activations", [])]
        reasons = {
            f"{self._node.op_type} is not unrolled, only GRU is": self._node.op_type != "GRU",
            "it runs backwards": attributes.get("direction", b"forward") != b"forward",
            "its batch comes first": bool(attributes.get("layout", 0)),
            "its sums are clipped": "clip" in attributes,
            "its sequences have lengths of their own": bool(inputs[4]),
            f"its activations are {', '.join(activations)}": activations not in ([], ["Sigmoid", "Tanh"]),
            "its weights are not constants": any(name not in self._constants for name in inputs[1:4] if name),
            f"its sequence is {list(shape)}": len(shape) != 3 or min(shape, default=0) < 1,
            f"{shape[0] if shape else 0} steps exceed {STEPS}": bool(shape) and shape[0] > STEPS,
        }
        for reason, holds in reasons.items():
            if holds:
                raise Unsupported(
                    reason, where=self._where, hint="quantise without unrolling: it stays float"
                )

    # -- nodes ----------------------------------------------------------------------------------------------

    def _append(self, op: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        self._number += 1
        name = f"{self._prefix}/{op.lower()}{self._number}"
        output = output or name
        made = self._onnx.helper.make_node(op, list(inputs), [output], name=name, **attributes)
        self._graph.node.append(made)
        return output

    def _add(self, op: str, *inputs: str) -> str:
        return self._append(op, inputs)

    def _constant(self, array: NDArray[Any]) -> str:
        self._number += 1
        name = f"{self._prefix}/constant{self._number}"
        self._graph.initializer.append(self._onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def _product(self, x: str, weight: NDArray[Any], bias: NDArray[Any] | None = None) -> str:
        """Of x [rows, inputs] by a weight [outputs, inputs], and a bias."""
        inputs = [x, self._constant(weight.astype(np.float32))]
        if bias is not None:
            inputs.append(self._constant(bias.astype(np.float32)))
        return self._append("Gemm", inputs, transB=1)

    def _reshape(self, x: str, shape: Sequence[int], output: str = "") -> str:
        return self._append("Reshape", [x, self._constant(np.array(shape, np.int64))], output)

    def _slice(self, x: str, axis: int, start: int, end: int) -> str:
        names = [self._constant(np.array([value], np.int64)) for value in (start, end, axis)]
        return self._append("Slice", [x, *names])
