"""Maps of quantised tensors as expressions of integers: what `sdk.reference` defines and targets print.

The expression of such a Map is one of real values; its exact form begins with the integers of its operands
and ends with that of its result. What depends on one tensor alone is a table of 256 entries, so that nothing
depends on a library's `exp`. What depends on several is computed in one of two arithmetics:

* `f32`: an operand is ``float32(q - z) * scale``, or an entry of a table of float32; each operation is one of
  IEEE 754, in the order in which it is written. A division is a multiplication by a reciprocal that was
  rounded once. The result is ``clip(rint(y * (1 / so))) + zo``.
* `q31`: numbers are fixed-point, in units of the result's scale with `bits` bits behind the point: as many as
  `sdk.arithmetic.ADD_BITS`, fewer where values reach far. An operand is ``(q - z) * m``, or an entry of a
  table; constant factors, and the products of two operands, are multiplied as a requantisation multiplies,
  with one rounding, half up. The result is ``clip((y + 2^(bits-1)) >> bits) + zo``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sdk.arithmetic import ADD_BITS, q31_factors
from sdk.errors import Unsupported
from sdk.expression import Expression, Kind, Step, Symbol, apply, clip, constant, evaluate, kinds, trace
from sdk.expression.operations import OPERATIONS, STORAGE
from sdk.graph import Array, Graph, Map, Tensor
from sdk.target import Arithmetic

REACH = 29
"""Bits of the largest value of q31, so that the shifted factor of a product has 32 with its sign."""

LEAST_BITS = 8
"""Bits behind the point that q31 has at least: they hold the errors of a few roundings."""

_BOTH = frozenset(
    ("add", "sub", "mul", "neg", "abs", "min", "max", "select", "eq", "lt", "le", "and", "or", "xor", "not")
)
DEFINED: Mapping[Arithmetic, frozenset[str]] = {"f32": _BOTH | {"floor", "ceil", "rint"}, "q31": _BOTH}
"""Operations on what depends on several tensors; beside these a division by what depends on one or none."""

Role = Literal["value", "factor", "reciprocal"]


@dataclass(frozen=True, eq=False)
class Operand:
    """Of an exact expression.

    Attributes:
        tensor: the activation whose integers it has; None of a constant.
        table: [256], what it has in their place: for the smallest value of the dtype, the next, and so on.
        data: of a constant; it broadcasts like the tensors.
    """

    tensor: str | None
    table: Array | None = None
    data: Array | None = None

    @property
    def kind(self) -> Kind:
        """Of its elements in the expression: reals are float32, integers int32 or those of the tensor."""
        array = self.table if self.data is None else self.data
        return "int" if array is None or array.dtype.kind == "i" else "real"


@dataclass(frozen=True, eq=False)
class ExactMap:
    """The exact form of a Map. Each real in `expression` is a float32; its result is the integer to store.

    Attributes:
        rounded: the value that has the result before its clip and without its zero-point, numbered as in
            `Step.args`.
    """

    operands: tuple[Operand, ...]
    expression: Expression
    rounded: int


def exact_map(graph: Graph, node: Map, arithmetic: Arithmetic) -> ExactMap:
    """The exact form of a Map whose activations and result are quantised per tensor.

    Raises:
        Unsupported: the arithmetic does not define it.
    """
    values = _Values(graph, node)
    form = (_Float if arithmetic == "f32" else _Fixed)(values)
    operands = [form.operand(use) for use in values.uses]
    for operand in operands:
        for array in (operand.table, operand.data):
            if array is not None and not np.isfinite(array).all():
                raise values.refusal("a value that it computes of one tensor is not finite")

    def build(*symbols: Symbol) -> Symbol:
        form.begin(symbols)
        return form.result()

    expression = trace(build, *(operand.kind for operand in operands))
    return ExactMap(tuple(operands), expression, form.rounded)


def evaluate_exact(form: ExactMap, values: Mapping[str, Array]) -> Array:
    """The integers of the result, int64, from those of the activations."""
    arrays = []
    for operand in form.operands:
        array = operand.data
        if operand.tensor is not None:
            array = values[operand.tensor]
            if operand.table is not None:
                array = operand.table[array.astype(np.int32) - np.iinfo(array.dtype).min]
        arrays.append(np.asarray(array, STORAGE[operand.kind]))
    return evaluate(form.expression, arrays, "float32")


@dataclass(frozen=True)
class _Use:
    """How the part of an expression that depends on several tensors reads an input or step.

    Attributes:
        index: as in `Step.args`.
        role: "factor" of a constant tensor by which something is multiplied.
    """

    index: int
    role: Role = "value"


class _Values:
    """What is known of each value of an expression that depends on one tensor or none, and who reads it.

    Attributes:
        known: by index as in `Step.args`, of STORAGE's dtypes: [256] of what depends on an activation, of the
            constants' shape of what depends on those, [] of a number.
        tensor: of what depends on an activation: which.
        rest: what depends on several tensors, in order.
        uses: what the rest reads and is no number, once each.
    """

    def __init__(self, graph: Graph, node: Map) -> None:
        self.graph = graph
        self.node = node
        self.output = graph.tensor(node.output)
        self.kinds = kinds(node.expression)
        self.last = len(self.kinds) - 1
        self.known: dict[int, Array] = {}
        self.tensor: dict[int, str] = {}
        for index, name in enumerate(node.inputs):
            self._add_input(index, graph.tensor(name))
        for number, step in enumerate(node.expression.steps, len(node.inputs)):
            self._add_step(number, step)
        self.rest = self._rest()
        self.uses = tuple(self._uses())

    def refusal(self, message: str) -> Unsupported:
        hint = "quantise what it reads by itself, or leave it float"
        return Unsupported(message, where=f"node {self.node.name}", hint=hint)

    def step(self, index: int) -> Step:
        return self.node.expression.steps[index - len(self.node.inputs)]

    def source(self, index: int) -> Tensor | None:
        """The activation whose elements the value is; None where it is a function of them."""
        if index >= len(self.node.inputs) or index not in self.tensor:
            return None
        return self.graph.tensor(self.tensor[index])

    def is_constant(self, index: int) -> bool:
        return index in self.known and index not in self.tensor

    def is_number(self, index: int) -> bool:
        return self.is_constant(index) and self.known[index].ndim == 0

    def array(self, use: _Use) -> Array:
        """What is known of a use."""
        with np.errstate(all="ignore"):
            return 1 / self.known[use.index] if use.role == "reciprocal" else self.known[use.index]

    def _add_input(self, index: int, tensor: Tensor) -> None:
        if tensor.data is not None:
            array = tensor.data if tensor.size > 1 else tensor.data.reshape(())
            self.known[index] = array.astype(STORAGE[self.kinds[index]])
            return
        low, high = np.iinfo(tensor.dtype).min, np.iinfo(tensor.dtype).max
        centred = np.arange(low, high + 1, dtype=np.int32) - np.int32(tensor.zero_point)
        self.known[index] = (centred.astype(np.float32) * np.float32(tensor.scale)).astype(np.float64)
        self.tensor[index] = tensor.name

    def _add_step(self, number: int, step: Step) -> None:
        tensors = {self.tensor[arg] for arg in step.args if arg in self.tensor}
        constants = any(self.is_constant(arg) and not self.is_number(arg) for arg in step.args)
        if len(tensors) + constants > 1 or any(arg not in self.known for arg in step.args):
            return
        alone = Step(step.op, tuple(range(len(step.args))), step.value, step.dtype)
        given = tuple(self.kinds[arg] for arg in step.args)
        self.known[number] = evaluate(Expression(given, (alone,)), [self.known[arg] for arg in step.args])
        if tensors:
            self.tensor[number] = tensors.pop()

    def _rest(self) -> tuple[int, ...]:
        rest = {self.last} - self.known.keys()
        for number in range(self.last, len(self.node.inputs) - 1, -1):
            if number in rest:
                rest.update(arg for arg in self.step(number).args if arg not in self.known)
        return tuple(sorted(rest))

    def _uses(self) -> dict[_Use, None]:
        uses = {} if self.rest else {_Use(self.last): None}
        for number in self.rest:
            step = self.step(number)
            for position, arg in enumerate(step.args):
                if arg not in self.known or self.is_number(arg):
                    continue
                if self.kinds[arg] == "int":
                    raise self.refusal("integers of several quantised tensors are not defined")
                role: Role = "factor" if step.op == "mul" and self.is_constant(arg) else "value"
                uses[_Use(arg, "reciprocal" if step.op == "div" and position else role)] = None
        return uses


class _Float:
    """The form in `f32`."""

    arithmetic: Arithmetic = "f32"

    def __init__(self, values: _Values) -> None:
        self.values = values
        self._symbols: dict[_Use, Symbol] = {}
        self._made: dict[int, Symbol] = {}
        self.rounded = -1
        for number in values.rest:
            step = values.step(number)
            divides = step.op == "div" and step.args[1] in values.known
            if step.op not in DEFINED[self.arithmetic] and not divides:
                message = f"{step.op} of several quantised tensors is not defined in {self.arithmetic}"
                raise values.refusal(message)

    def begin(self, symbols: tuple[Symbol, ...]) -> None:
        """Take the symbols of the operands, in their order."""
        self._symbols = dict(zip(self.values.uses, symbols, strict=True))
        self._made = {}

    def operand(self, use: _Use) -> Operand:
        tensor = self.values.tensor.get(use.index)
        if use.role != "reciprocal" and self.values.source(use.index):
            return Operand(tensor)
        with np.errstate(over="ignore"):
            array = self.array(use)
        return Operand(None, data=array) if tensor is None else Operand(tensor, table=array)

    def result(self) -> Symbol:
        output = self.values.output
        y = apply("rint", self.at(self.values.last) * float(1 / np.float32(output.scale)))
        self.rounded = y.index
        return self.stored(apply("trunc", self.bounded(y)))

    def bounded(self, y: Symbol) -> Symbol:
        """The result less its zero-point, within the output's dtype."""
        output = self.values.output
        info = np.iinfo(output.dtype)
        return clip(y, int(info.min) - output.zero_point, int(info.max) - output.zero_point)

    def stored(self, y: Symbol) -> Symbol:
        return y + self.values.output.zero_point

    def at(self, index: int) -> Symbol:
        """A value of the expression, as this form has it."""
        if index not in self._made:
            if self.values.is_number(index):
                made = self.number(index)
            elif index in self.values.known:
                made = self.read(_Use(index))
            else:
                made = self.perform(self.values.step(index))
            self._made[index] = made
        return self._made[index]

    def perform(self, step: Step) -> Symbol:
        if step.op in ("mul", "div"):
            return self.product(*step.args, reciprocal=step.op == "div")
        return apply(step.op, *(self.at(arg) for arg in step.args))

    def symbol(self, use: _Use) -> Symbol:
        """The operand of a use."""
        return self._symbols[use]

    def literal(self, value: float, kind: Kind) -> Symbol:
        return constant(next(iter(self._symbols.values())).trace, value, kind)

    def read(self, use: _Use) -> Symbol:
        """The value of an operand."""
        source, symbol = self.values.source(use.index), self.symbol(use)
        if source is not None and use.role != "reciprocal":
            return self.dequantized(source, symbol - source.zero_point)
        return apply("bool", symbol) if self.values.kinds[use.index] == "bool" else symbol

    # -- what f32 does in its own way -------------------------------------------------------------------

    def array(self, use: _Use) -> Array:
        return self.values.array(use).astype(np.float32)

    def number(self, index: int) -> Symbol:
        kind, value = self.values.kinds[index], self.values.known[index]
        return self.literal(float(np.float32(value)) if kind == "real" else value.item(), kind)

    def dequantized(self, source: Tensor, centred: Symbol) -> Symbol:
        return apply("real", centred) * source.scale

    def product(self, a: int, b: int, *, reciprocal: bool) -> Symbol:
        values = self.values
        if not reciprocal:
            first = self.read(_Use(a, "factor")) if self._is_factor(a) else self.at(a)
            return first * (self.read(_Use(b, "factor")) if self._is_factor(b) else self.at(b))
        if values.is_number(b):
            return self.at(a) * float(np.float32(values.array(_Use(b, "reciprocal"))))
        return self.at(a) * self.read(_Use(b, "reciprocal"))

    def _is_factor(self, index: int) -> bool:
        return self.values.is_constant(index) and not self.values.is_number(index)


class _Fixed(_Float):
    """The form in `q31`."""

    arithmetic: Arithmetic = "q31"

    def __init__(self, values: _Values) -> None:
        super().__init__(values)
        self._unit = float(values.output.scale)
        reach = max(float(np.abs(bounds).max()) for bounds in self._bounds().values()) / self._unit
        self.bits = min(ADD_BITS, REACH - int(np.frexp(reach)[1])) if np.isfinite(reach) else 0
        if self.bits < LEAST_BITS:
            raise values.refusal(f"its values reach {reach:.3g} units of its result; the limit is 2^21")

    def _bounds(self) -> dict[int, Array]:
        """Of each real number: (low, high)."""
        values = self.values
        bounds: dict[int, Array] = {}
        for index in (*values.known, *values.rest):
            if index in values.known:
                bounds[index] = np.array([values.known[index].min(), values.known[index].max()])
                continue
            step = values.step(index)
            ends = [end for arg in step.args for end in bounds[arg]]
            if step.op == "div":
                over = values.array(_Use(step.args[1], "reciprocal"))
                ends[2:], step = [over.min(), over.max()], Step("mul")
            bounds[index] = np.array(OPERATIONS[step.op].image(*map(np.asarray, ends)))
        relevant = {*values.rest, *(use.index for use in values.uses if use.role == "value")}
        return {index: bounds[index] for index in relevant if values.kinds[index] == "real"}

    def result(self) -> Symbol:
        y = self._shifted(self.at(self.values.last), self.bits)
        self.rounded = y.index
        return self.stored(self.bounded(y))

    def array(self, use: _Use) -> Array:
        array = self.values.array(use)
        if self.values.is_constant(use.index) and use.role != "value":
            return q31_factors(array)[0].astype(np.int32)
        if array.dtype == bool:
            return array.astype(np.int32)
        return np.rint(array / self._unit * 2.0**self.bits).clip(-(2**31), 2**31 - 1).astype(np.int32)

    def number(self, index: int) -> Symbol:
        kind, value = self.values.kinds[index], self.values.known[index]
        if kind != "real":
            return self.literal(value.item(), kind)
        return self.literal(int(np.rint(value / self._unit * 2.0**self.bits)), "int")

    def dequantized(self, source: Tensor, centred: Symbol) -> Symbol:
        return centred * int(np.rint(source.scale / self._unit * 2.0**self.bits))

    def product(self, a: int, b: int, *, reciprocal: bool) -> Symbol:
        values = self.values
        if values.is_constant(a) and not reciprocal:
            a, b = b, a
        if values.is_constant(b):
            use = _Use(b, "reciprocal" if reciprocal else "factor")
            factors, shift = q31_factors(values.array(use))
            factor = self.literal(int(factors), "int") if values.is_number(b) else self.symbol(use)
            return self._multiplied(self.at(a), factor, shift)
        first, second = values.source(a), values.source(b)
        if first is None or second is None or reciprocal:
            raise values.refusal("a product of functions of several quantised tensors is not defined in q31")
        centred = (self.symbol(_Use(a)) - first.zero_point) * (self.symbol(_Use(b)) - second.zero_point)
        scale = first.scale * second.scale / self._unit * 2.0**self.bits
        factors, shift = q31_factors(np.asarray(scale))
        return self._multiplied(centred, self.literal(int(factors), "int"), shift)

    def _multiplied(self, x: Symbol, factor: Symbol, shift: int) -> Symbol:
        return self._shifted(x * (1 << shift) * factor, 31)

    @staticmethod
    def _shifted(x: Symbol, bits: int) -> Symbol:
        """Divided by a power of two, rounded half up."""
        return apply("shift_right", x + (1 << bits >> 1), bits)
