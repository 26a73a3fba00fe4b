"""LSTM, GRU and RNN: a product over the whole sequence, then a Recurrent for each direction.

Definitions are those of ONNX's Operators.md. The body's gates are products of the state alone; what depends
on the sequence alone is one MatMul before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sdk import dtypes
from sdk.expression.trace import Symbol, apply, clip, select, sigmoid, softplus
from sdk.graph import Concat, Graph, MatMul, Recurrent, Tensor
from sdk.importers.plain.conversion import Conversion
from sdk.importers.plain.elementwise import elu, hard_sigmoid, leaky
from sdk.importers.plain.moves import cut

Function = Callable[[Symbol], Symbol]

ACTIVATIONS: dict[str, tuple[Callable[[Symbol, float, float], Symbol], float, float]] = {
    "affine": (lambda x, a, b: x * a + b, 1.0, 0.0),
    "elu": (lambda x, a, _: elu(x, a), 1.0, 0.0),
    "hardsigmoid": (hard_sigmoid, 0.2, 0.5),
    "leakyrelu": (lambda x, a, _: leaky(x, a), 0.01, 0.0),
    "relu": (lambda x, *_: apply("max", x, 0), 0.0, 0.0),
    "scaledtanh": (lambda x, a, b: apply("tanh", x * b) * a, 1.0, 1.0),
    "sigmoid": (lambda x, *_: sigmoid(x), 0.0, 0.0),
    "softplus": (lambda x, *_: softplus(x), 0.0, 0.0),
    "softsign": (lambda x, *_: x / (apply("abs", x) + 1), 0.0, 0.0),
    "tanh": (lambda x, *_: apply("tanh", x), 0.0, 0.0),
    "thresholdedrelu": (lambda x, a, _: select(x > a, x, 0), 1.0, 0.0),
}
"""Functions of a number and of an alpha and a beta, with the defaults of those."""

DEFAULTS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


@dataclass(frozen=True)
class Direction:
    """One direction of a recurrent operator.

    Attributes:
        index: along the axis of directions of its operands.
        part: of names: "forward" or "backward".
        functions: its activation functions, the operator's order.
    """

    index: int
    part: str
    functions: tuple[Function, ...]


def recurrence(c: Conversion) -> None:
    """MatMul and Recurrent, one a direction."""
    node, kind = c.node, c.node.op_type
    x = c.x(0)
    hidden = c.x(2).shape[-1]
    if len(x.shape) != 3 or c.x(1).shape[1:] != (GATES[kind] * hidden, x.shape[2]):
        raise node.invalid(f"{kind} of {list(x.shape)} with weights {list(c.x(1).shape)}")
    if node.integer("layout", 0):
        x = c.transpose(x, (1, 0, 2), "steps_first")
    _check_lengths(c, x.shape[0])
    runs = [(direction, _run(c, direction, x, hidden)) for direction in _directions(c)]
    for output in (0, 1, 2):
        if output < len(node.outputs) and node.outputs[output]:
            _output(c, runs, output)


def _check_lengths(c: Conversion, steps: int) -> None:
    """Sequences that end before the others are refused."""
    if c.has(4) and any(length != steps for length in c.integers(4) or []):
        raise c.node.unsupported(
            f"sequences of other lengths than {steps}: {c.integers(4)}", "give all sequences the same length"
        )


def _directions(c: Conversion) -> list[Direction]:
    way = c.node.text("direction", "forward")
    parts = {"forward": ["forward"], "reverse": ["backward"], "bidirectional": ["forward", "backward"]}.get(
        way
    )
    if parts is None:
        raise c.node.invalid(f"direction {way!r}")
    if c.node.number("clip", 0.0):  # onnxruntime clips fewer of the functions' inputs than ONNX says
        raise c.node.unsupported(f"{c.node.op_type} with clip", "export the model without it")
    defaults = DEFAULTS[c.node.op_type]
    names = [
        name.decode() if isinstance(name, bytes) else str(name)
        for name in c.node.attributes.get("activations") or defaults * len(parts)
    ]
    if len(names) != len(defaults) * len(parts):
        raise c.node.invalid(f"{len(names)} activations for {len(parts)} directions")
    alphas, betas = (list(c.node.attributes.get(f"activation_{which}") or ()) for which in ("alpha", "beta"))
    functions = []
    for name in names:
        if name.lower() not in ACTIVATIONS:
            raise c.node.unsupported(f"the activation {name!r}", f"one of {', '.join(sorted(ACTIVATIONS))}")
        function, alpha, beta = ACTIVATIONS[name.lower()]
        # ONNX lists alphas for those functions that have one.
        alpha = float(alphas.pop(0)) if alphas and name.lower() in WITH_ALPHA else alpha
        beta = float(betas.pop(0)) if betas and name.lower() in WITH_BETA else beta
        functions.append(_bound(function, alpha, beta))
    each = len(defaults)
    return [Direction(i, part, tuple(functions[i * each : (i + 1) * each])) for i, part in enumerate(parts)]


CELL_CLIP = "cell_clip"
"""A bound of an LSTM's cell, 0 for none: TFLite has it, ONNX has no such attribute."""
WITH_ALPHA = ("affine", "elu", "hardsigmoid", "leakyrelu", "scaledtanh", "thresholdedrelu")
WITH_BETA = ("affine", "hardsigmoid", "scaledtanh")


def _bound(function: Callable[[Symbol, float, float], Symbol], alpha: float, beta: float) -> Function:
    """An activation of these parameters."""
    return lambda x: function(x, alpha, beta)


def _operand(c: Conversion, index: int, direction: Direction, part: str) -> Tensor | None:
    """The part of operand `index` that belongs to a direction."""
    return _picked(c, c.x(index), direction, part) if c.has(index) else None


def _picked(c: Conversion, whole: Tensor, direction: Direction, part: str) -> Tensor:
    """A direction's element of the first axis, without that axis; of a constant a view."""
    name = f"{direction.part}/{part}"
    if direction.index >= whole.shape[0]:
        raise c.node.invalid(f"an operand of {whole.shape[0]} directions: {list(whole.shape)}")
    if whole.data is not None:
        return c.file(whole.data[direction.index], name, whole.dtype)
    starts = [direction.index, *[0] * (len(whole.shape) - 1)]
    picked = cut(c, whole, starts, (1, *whole.shape[1:]), f"{name}/of")
    return c.reshape(picked, whole.shape[1:], name)


def _rows(c: Conversion, x: Tensor, start: int, stop: int, part: str) -> Tensor:
    """Rows of an operand; of a constant a view."""
    if (start, stop) == (0, x.shape[0]):
        return x
    if x.data is not None:
        return c.file(x.data[start:stop], part, x.dtype)
    return cut(c, x, [start, *[0] * (len(x.shape) - 1)], (stop - start, *x.shape[1:]), part)


def _sum(c: Conversion, a: Tensor, b: Tensor, part: str) -> Tensor:
    """Of two vectors."""
    if a.data is None or b.data is None:
        return c.map(Symbol.__add__, [a, b], part)
    total = dtypes.decode(a.data, a.dtype) + dtypes.decode(b.data, b.dtype)
    return c.file(dtypes.encode(total, a.dtype), part, a.dtype)


def _initial(c: Conversion, index: int, direction: Direction, shape: tuple[int, int], dtype: str) -> Tensor:
    """The initial state at input `index`: [batch, hidden], zeros where it is left out."""
    name = f"initial{index}"
    if not c.has(index):
        return c.file(np.zeros(shape, dtypes.storage(dtype)), f"{direction.part}/{name}", dtype)
    if c.node.integer("layout", 0):
        whole = c.transpose(c.x(index), (1, 0, 2), f"{direction.part}/{name}/directions_first")
        state = _picked(c, whole, direction, name)
    else:
        state = _picked(c, c.x(index), direction, name)
    if state.shape != shape:
        raise c.node.invalid(f"an initial state {list(state.shape)}, not {list(shape)}")
    return state


def _run(c: Conversion, direction: Direction, x: Tensor, hidden: int) -> Tensor:
    """All states of one direction: [steps, states, batch, hidden]."""
    kind, part = c.node.op_type, direction.part
    weight, recurrent = _operand(c, 1, direction, "weight"), _operand(c, 2, direction, "recurrent")
    assert weight is not None  # `recurrence` has read both
    assert recurrent is not None
    late = kind == "GRU" and bool(c.node.integer("linear_before_reset", 0))
    outer, inner = _biases(c, direction, GATES[kind] * hidden, late)
    gates = _product(c, x, weight, outer, f"{part}/input")
    shape = (x.shape[1], hidden)
    states = [_initial(c, index, direction, shape, x.dtype) for index in ((5, 6) if kind == "LSTM" else (5,))]
    peepholes = _operand(c, 7, direction, "peepholes") if kind == "LSTM" else None
    step = Step(c, direction, hidden, gates, states, recurrent, inner, peepholes)
    return c.make(
        Recurrent,
        step.operands,
        f"{part}/states",
        dtype=x.dtype,
        body=step.body(),
        steps=x.shape[0],
        sequences=1,
        backward=part == "backward",
    )


def _biases(
    c: Conversion, direction: Direction, rows: int, late: bool
) -> tuple[Tensor | None, Tensor | None]:
    """The bias of the product with the sequence, and the one inside a step where `late`."""
    bias = _operand(c, 3, direction, "bias")
    if bias is None:
        return None, None
    if bias.shape != (2 * rows,):
        raise c.node.invalid(f"a bias {list(bias.shape)}, not {2 * rows} elements")
    first = _rows(c, bias, 0, rows, f"{direction.part}/bias_of_input")
    second = _rows(c, bias, rows, 2 * rows, f"{direction.part}/bias_of_state")
    return (first, second) if late else (_sum(c, first, second, f"{direction.part}/bias_sum"), None)


def _product(c: Conversion, x: Tensor, weight: Tensor, bias: Tensor | None, part: str) -> Tensor:
    """X times the transposed weight, plus a bias."""
    if bias is None:
        return c.make(MatMul, [x, weight], part, transposed=True)
    if bias.data is not None:
        return c.make(MatMul, [x, weight, bias], part, transposed=True)
    product = c.make(MatMul, [x, weight], f"{part}/product", transposed=True)
    return c.map(Symbol.__add__, [product, bias], part)


def _output(c: Conversion, runs: Sequence[tuple[Direction, Tensor]], output: int) -> None:
    """Y, Y_h or Y_c from all states of all steps."""
    batch_first, single = bool(c.node.integer("layout", 0)), len(runs) == 1
    name = ("y", "y_h", "y_c")[output]
    joined = "" if not batch_first else f"{name}/directions_first"
    parts = []
    for direction, states in runs:
        own = joined if single else f"{direction.part}/{name}"
        steps, _, batch, hidden = states.shape
        if output == 0:
            parts.append(cut(c, states, (0, 0, 0, 0), (steps, 1, batch, hidden), own))
            continue
        last = 0 if direction.part == "backward" else steps - 1
        one = cut(c, states, (last, output - 1, 0, 0), (1, 1, batch, hidden), f"{direction.part}/{name}/of")
        parts.append(c.reshape(one, (1, batch, hidden), own, output=output))
    result = parts[0]
    if not single:
        result = c.make(Concat, parts, joined, axis=1 if output == 0 else 0, output=output)
    if batch_first:
        c.transpose(result, (2, 0, 1, 3) if output == 0 else (1, 0, 2), output=output)


class Step:
    """The graph of one step, and the operands of the Recurrent that evaluates it.

    Its inputs are the gates' share of the sequence, [batch, gates * hidden], the states, and the recurrent
    weights, then the bias and the peepholes where there are some.
    """

    def __init__(
        self,
        c: Conversion,
        direction: Direction,
        hidden: int,
        gates: Tensor,
        states: Sequence[Tensor],
        recurrent: Tensor,
        bias: Tensor | None,
        peepholes: Tensor | None,
    ) -> None:
        self.functions = direction.functions
        self.hidden = hidden
        self.kind = c.node.op_type
        self.inside = c.inside(f"{c.node.name}/{direction.part}")
        self.late = bool(c.node.integer("linear_before_reset", 0))
        self.coupled = bool(c.node.integer("input_forget", 0))
        self.cell_clip = c.node.number(CELL_CLIP, 0.0)
        given = {
            "gates": gates,
            **{f"state{i}": state for i, state in enumerate(states)},
            "recurrent": recurrent,
            "bias": bias,
            "peepholes": peepholes,
        }
        self.operands = [tensor for tensor in given.values() if tensor is not None]
        self.inputs = {
            name: Tensor(name, tensor.shape[1:] if name == "gates" else tensor.shape, tensor.dtype)
            for name, tensor in given.items()
            if tensor is not None
        }

    def body(self) -> Graph:
        builder = self.inside.walk.builder
        builder.tensors.update((tensor.name, tensor) for tensor in self.inputs.values())
        make = {"LSTM": self._lstm, "GRU": self._gru, "RNN": self._rnn}[self.kind]
        outputs = [tensor.name for tensor in make()]
        return builder.graph("step", self.inputs, outputs, {})

    def _gate(self, x: Tensor, index: int, name: str) -> Tensor:
        """Columns of gate `index`."""
        start, shape = (0, index * self.hidden), (x.shape[0], self.hidden)
        return cut(self.inside, x, start, shape, name)

    def _rnn(self) -> list[Tensor]:
        (activation,) = self.functions
        share = _product(self.inside, self.inputs["state0"], self.inputs["recurrent"], None, "share")
        return [self.inside.map(lambda a, b: activation(a + b), [self.inputs["gates"], share], "next")]

    def _lstm(self) -> list[Tensor]:
        inside, (f, g, h) = self.inside, self.functions
        share = _product(inside, self.inputs["state0"], self.inputs["recurrent"], None, "share")
        sums = inside.map(Symbol.__add__, [self.inputs["gates"], share], "gates")
        gates = [self._gate(sums, i, name) for i, name in enumerate(("input", "output", "forget", "cell"))]
        entry, exit_, forget, cell = gates
        old = self.inputs["state1"]
        peeping: list[Tensor] = []
        if "peepholes" in self.inputs:
            starts = [((i * self.hidden,), (self.hidden,)) for i in range(3)]
            names = ("peephole_input", "peephole_output", "peephole_forget")
            peeping = [
                cut(inside, self.inputs["peepholes"], start, shape, name)
                for (start, shape), name in zip(starts, names, strict=True)
            ]

        def next_cell(i: Symbol, o: Symbol, k: Symbol, c: Symbol, *p: Symbol) -> Symbol:
            let_in = f(i + p[0] * c if p else i)
            keep = 1 - let_in if self.coupled else f(o + p[1] * c if p else o)
            cell = keep * c + let_in * g(k)
            return clip(cell, -self.cell_clip, self.cell_clip) if self.cell_clip else cell

        def next_state(o: Symbol, c: Symbol, *p: Symbol) -> Symbol:
            return f(o + p[0] * c if p else o) * h(c)

        new = inside.map(next_cell, [entry, forget, cell, old, *peeping[::2]], "next_cell")
        return [inside.map(next_state, [exit_, new, *peeping[1:2]], "next"), new]

    def _gru(self) -> list[Tensor]:
        inside, (f, g), old = self.inside, self.functions, self.inputs["state0"]
        recurrent, hidden = self.inputs["recurrent"], self.hidden
        own = [self._gate(self.inputs["gates"], i, f"{name}/input") for i, name in enumerate("zrh")]
        if self.late:
            share = _product(inside, old, recurrent, None, "share")
            if "bias" in self.inputs:
                share = inside.map(Symbol.__add__, [share, self.inputs["bias"]], "share/sum")
            z, r, k = (self._gate(share, i, name) for i, name in enumerate("zrh"))

            def late(
                old: Symbol, zx: Symbol, rx: Symbol, kx: Symbol, z: Symbol, r: Symbol, k: Symbol
            ) -> Symbol:
                update = f(zx + z)
                return (1 - update) * g(kx + f(rx + r) * k) + update * old

            return [inside.map(late, [old, *own, z, r, k], "next")]
        first = cut(inside, recurrent, (0, 0), (2 * hidden, hidden), "recurrent_zr")
        second = cut(inside, recurrent, (2 * hidden, 0), (hidden, hidden), "recurrent_h")
        share = _product(inside, old, first, None, "share")
        z, r = (self._gate(share, i, name) for i, name in enumerate("zr"))
        reset = inside.map(lambda a, b, h: f(a + b) * h, [own[1], r, old], "reset")
        k = _product(inside, reset, second, None, "h")

        def early(old: Symbol, zx: Symbol, kx: Symbol, z: Symbol, k: Symbol) -> Symbol:
            update = f(zx + z)
            return (1 - update) * g(kx + k) + update * old

        return [inside.map(early, [old, own[0], own[2], z, k], "next")]
