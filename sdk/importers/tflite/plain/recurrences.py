"""Recurrent operators, whose states TFLite keeps in variable tensors, and variables with handles.

The order of inputs is that of TFLite's kernels (unidirectional_sequence_lstm.cc and their like, read 2024).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sdk.importers.plain.recurrences import CELL_CLIP
from sdk.importers.tflite.plain.conversion import ACTIVATIONS, NONE, RELU, TANH, Conversion
from sdk.importers.tflite.values import View, plainly
from sdk.importers.values import Constant

GATES = (0, 3, 1, 2)
"""ONNX's order of gates (input, output, forget, cell) in TFLite's (input, forget, cell, output)."""

LSTM_STATES, NORMALISATION = 18, (20, 21, 22, 23)
PROJECTION = 15
"""Place of the projection among the operands of one direction, behind weights, peepholes and biases."""

NAMES = {NONE: "Affine", RELU: "Relu", TANH: "Tanh"}
"""ONNX's names of fused activations; the Affine is the identity."""


def _fail_without(c: Conversion, index: int) -> None:
    c.walk.operand(c.node, index)


def _sequence(c: Conversion, table: str) -> tuple[str, bool]:
    """The input with the steps first, and whether the file has it so."""
    x, first = c.x(0), bool(c.option(table, "TimeMajor"))
    if c.rank(x) != 3:
        raise c.node.invalid(f"a sequence {list(c.shape(x))}, not of rank 3")
    return (x if first else c.transpose(x, (1, 0, 2))), first


def _state(c: Conversion, index: int, shape: tuple[int, int]) -> str:
    """A variable tensor's elements from the last inference, [1, batch, hidden]."""
    tensor = c.walk.operand(c.node, index)
    if not tensor.variable:
        raise c.node.unsupported(f"its state {tensor.name!r} is not a variable tensor")
    state = c.x(index)
    if c.shape(state) != shape:
        raise c.node.invalid(f"its state {tensor.name!r} is {list(c.shape(state))}, not {list(shape)}")
    return c.reshape(state, (1, *shape))


def _leave(c: Conversion, index: int, name: str, shape: tuple[int, ...]) -> None:
    """Keep a value in a variable tensor."""
    made = c.walk.onnx.plains[c.reshape(name, shape)]
    view = plainly(made, len(shape))
    tensor = c.walk.operand(c.node, index)
    c.walk.states.leave(tensor, view)
    c.walk.views[tensor.index] = view


def _stacked(c: Conversion, indices: Sequence[int], shape: tuple[int, ...]) -> str:
    """Constant operands of the gates, one below the other, [1, rows, ...]."""
    parts = [c.known(index).astype(np.float32) for index in indices]
    for index, part in zip(indices, parts, strict=True):
        if part.shape != shape:
            name = c.walk.operand(c.node, index).name
            raise c.node.invalid(f"its input {name!r} is {list(part.shape)}, not {list(shape)}")
    return c.constant(np.concatenate(parts)[None], "float32", "gates")


def _lstm(c: Conversion, x: str, table: str, first: int, states: tuple[int, int], *, backward: bool) -> str:
    """All outputs of one direction, [steps, batch, hidden].

    Args:
        c: the operator.
        x: the sequence, its steps first.
        table: of its options.
        first: which input is the first weight of the direction.
        states: which inputs are its variable tensors: output and cell.
        backward: whether the last step comes first.
    """
    node = c.node
    _, batch, depth = c.shape(x)
    weights, recurrent, peepholes = (range(first + i, first + i + 4) for i in (0, 4, 7))
    biases = range(first + 11, first + 15)
    if c.has(first + PROJECTION):
        raise node.unsupported("an LSTM with a projection", "train it without one (num_proj)")
    if not c.has(first):
        raise node.unsupported("an LSTM whose input gate is coupled to its forget gate")
    _fail_without(c, first + 4)
    hidden = c.known(first + 4).shape[-1] if c.known(first + 4).ndim else 0
    zeros = np.zeros((1, 4 * hidden), np.float32)
    bias = _stacked(c, [biases[i] for i in GATES], (hidden,))
    inputs = [
        x,
        _stacked(c, [weights[i] for i in GATES], (hidden, depth)),
        _stacked(c, [recurrent[i] for i in GATES], (hidden, hidden)),
        c.constant(np.concatenate([c.array(bias), zeros], axis=1), "float32", "bias"),
        "",
        *(_state(c, index, (batch, hidden)) for index in states),
    ]
    if any(c.has(index) for index in peepholes[1:]):
        inputs.append(_stacked(c, [peepholes[i] for i in (1, 3, 2)], (hidden,)))
    bound = float(c.option(table, "CellClip"))
    y, last, cell = c.make_all(
        "LSTM",
        inputs,
        3,
        hidden_size=hidden,
        direction="reverse" if backward else "forward",
        **({CELL_CLIP: bound} if 0 < bound < math.inf else {}),
    )
    for index, state in zip(states, (last, cell), strict=True):
        _leave(c, index, state, (batch, hidden))
    return c.reshape(y, (c.shape(x)[0], batch, hidden))


def _check_lstm(c: Conversion, table: str) -> None:
    node = c.node
    bound = c.option(table, "CellClip")
    if not bound >= 0:
        raise node.invalid(f"its cell is clipped to {bound}")
    if c.option(table, "FusedActivationFunction") != TANH:
        raise node.unsupported("an LSTM whose activation is not TANH")


def unidirectional_lstm(c: Conversion) -> None:
    """LSTM; its variable tensors are states."""
    table = "UnidirectionalSequenceLSTMOptions"
    _check_lstm(c, table)
    if any(c.has(index) for index in NORMALISATION):
        raise c.node.unsupported("an LSTM with layer normalisation")
    if c.option(table, "DiagonalRecurrentTensors", False):
        raise c.node.unsupported("an LSTM with diagonal recurrent weights")
    x, steps_first = _sequence(c, table)
    y = _lstm(c, x, table, 1, (LSTM_STATES, LSTM_STATES + 1), backward=False)
    c.define(y if steps_first else c.transpose(y, (1, 0, 2)))


def bidirectional_lstm(c: Conversion) -> None:
    """LSTM of each direction, Concat; its variable tensors are states."""
    table = "BidirectionalSequenceLSTMOptions"
    _check_lstm(c, table)
    if any(c.has(index) for index in range(39, 48)):
        raise c.node.unsupported("an LSTM with an auxiliary input")
    x, steps_first = _sequence(c, table)
    ways = [
        _lstm(c, x, table, first, states, backward=backward)
        for first, states, backward in ((1, (35, 36), False), (18, (37, 38), True))
    ]
    if c.option(table, "MergeOutputs"):
        ways = [c.make("Concat", *ways, axis=2)]
    for output, y in enumerate(ways[: len(c.node.outputs)]):
        c.define(y if steps_first else c.transpose(y, (1, 0, 2)), output=output)


def unidirectional_rnn(c: Conversion) -> None:
    """RNN; its variable tensor is a state."""
    table = "SequenceRNNOptions"
    x, steps_first = _sequence(c, table)
    steps, batch, depth = c.shape(x)
    _fail_without(c, 4)
    hidden = c.known(2).shape[-1] if c.known(2).ndim else 0
    activation = c.option(table, "FusedActivationFunction")
    if activation not in NAMES:
        raise c.node.unsupported(f"an RNN with the activation {activation}")
    bias = np.concatenate([c.array(_stacked(c, [3], (hidden,))), np.zeros((1, hidden), np.float32)], axis=1)
    inputs = [
        x,
        _stacked(c, [1], (hidden, depth)),
        _stacked(c, [2], (hidden, hidden)),
        c.constant(bias, "float32", "bias"),
        "",
        _state(c, 4, (batch, hidden)),
    ]
    fields = {"activation_alpha": [1.0], "activation_beta": [0.0]} if activation == NONE else {}
    y, last = c.make_all("RNN", inputs, 2, hidden_size=hidden, activations=[NAMES[activation]], **fields)
    _leave(c, 4, last, (batch, hidden))
    y = c.reshape(y, (steps, batch, hidden))
    c.define(y if steps_first else c.transpose(y, (1, 0, 2)))


def svdf(c: Conversion) -> None:
    """MatMul, Concat, Mul, ReduceSum, Add; its variable tensor is a state."""
    x, table = c.x(0), "SVDFOptions"
    features, times = c.known(1), c.known(2)
    rank, activation = c.option(table, "Rank"), c.option(table, "FusedActivationFunction")
    shape = c.shape(x)
    fits = len(shape) == features.ndim == times.ndim == 2 and features.shape[1] == shape[-1]
    if not fits or features.shape[0] != times.shape[0] or rank < 1 or features.shape[0] % rank:
        raise c.node.invalid(
            f"SVDF of rank {rank}: {list(shape)} by {list(features.shape)}, times {list(times.shape)}"
        )
    if activation not in ACTIVATIONS:
        raise c.node.unsupported(f"its fused activation {activation}")
    batch, (filters, memory) = shape[0], times.shape
    old = c.reshape(_state(c, 4, (batch, filters * memory)), (batch, filters, memory))
    new = c.make("MatMul", x, c.constant(features.T, "float32", "features"))
    kept = c.slice(old, [(0, batch, 1), (0, filters, 1), (1, memory, 1)]) if memory > 1 else None
    parts = [kept, c.reshape(new, (batch, filters, 1))]
    state = c.make("Concat", *(part for part in parts if part is not None), axis=2)
    _leave(c, 4, state, (batch, filters * memory))
    weighted = c.make("Mul", state, c.constant(times[None], "float32", "times"))
    weighted = c.reshape(weighted, (batch, filters // rank, rank * memory))
    result = c.make("ReduceSum", weighted, c.constant([2], part="axes"), keepdims=0)
    if c.has(3):
        result = c.make("Add", result, c.x(3))
    c.define(c.activated(result, activation))


# --- variables ------------------------------------------------------------------------------------------


def read_variable(c: Conversion) -> None:
    """A state; a constant where nothing assigns it."""
    states = c.walk.states
    resource = states.handle(c.node, c.walk.number, c.walk.operand(c.node, 0))
    if (array := states.constant(resource)) is not None:
        c.define(c.constant(array, str(array.dtype), "variable"))
        return
    view = c.walk.dequantized(states.read(c.node, resource, c.out))
    c.define(c.lifted(view.tensor), view.axes)


def assign_variable(c: Conversion) -> None:
    """A state."""
    value = c.walk.onnx.values[c.x(1)]
    if isinstance(value, Constant):
        raise c.node.unsupported("it assigns a constant at each inference")
    name, states = c.x(1), c.walk.states
    resource = states.handle(c.node, c.walk.number, c.walk.operand(c.node, 0))
    states.assigned[resource] = View(name, tuple(range(c.rank(name))))
