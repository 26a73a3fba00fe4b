"""Exact expressions of integers (`sdk.exact_maps`, q31) as C over HVX vectors of 32-bit words.

Sums, differences and products by numbers are kept as one linear form until something else reads them: a
form of n terms is n multiply-accumulates, modulo 2^32, which changes nothing because its value fits 32 bits.
A product by a 31-bit factor with its rounding is `requantize` of kernels/hvx.h; nothing else is ever wider.
Numbers are read from memory: Maps that differ in scales alone share one kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from sdk.errors import InternalError, Unsupported
from sdk.expression import Expression, Step, kinds
from sdk.expression.operations import OPERATIONS, STORAGE

Range = tuple[int, int]

_WORD = (-(2**31), 2**31 - 1)
_HALF = (-(2**15), 2**15 - 1)
_UNSIGNED_HALF = (0, 2**16 - 1)

_PREDICATES = {"and": "Q6_Q_and_QQ", "or": "Q6_Q_or_QQ", "xor": "Q6_Q_xor_QQ"}
_EXTREMES = {"min": "Q6_Vw_vmin_VwVw", "max": "Q6_Vw_vmax_VwVw"}


@dataclass(frozen=True)
class Printed:
    """A kernel's text for one element.

    Attributes:
        lines: declarations, to be executed for each vector of words.
        result: the C expression of the result, a vector of words.
        numbers: what `numberI` of the texts stands for: words that are the same for all elements.
        used: the operands that the texts read.
    """

    lines: tuple[str, ...]
    result: str
    numbers: tuple[int, ...]
    used: frozenset[int]


@dataclass(frozen=True)
class _Linear:
    """A constant and multiples of vectors, whose sum is a number of 32 bits."""

    constant: int
    terms: Mapping[str, int] = field(default_factory=dict)


def print_expression(
    expression: Expression, index: int, operands: Sequence[str | int], ranges: Sequence[Range]
) -> Printed:
    """A value of an exact expression.

    Args:
        expression: of integers and truth values.
        index: which value, numbered as in `Step.args`.
        operands: C expressions of the operands' vectors of words, or the number that all elements have.
        ranges: the smallest and largest value of each operand.

    Raises:
        Unsupported: a value does not fit 32 bits.
    """
    printer = _Printer(expression, operands, ranges)
    text = printer.value(index)
    return Printed(tuple(printer.lines), text, tuple(printer.numbers), frozenset(printer.used))


class _Printer:
    def __init__(
        self, expression: Expression, operands: Sequence[str | int], ranges: Sequence[Range]
    ) -> None:
        self._steps = expression.steps
        self._operands = operands
        self._kinds = kinds(expression)
        self._ranges = _ranges(expression, ranges)
        self._bounds: dict[str, Range] = {}  # of the vectors that linear forms are made of
        self._linear: dict[int, _Linear] = {}
        self._predicates: dict[int, str] = {}
        self._texts: dict[str, str] = {}
        self.lines: list[str] = []
        self.numbers: dict[int, None] = {}
        self.used: set[int] = set()

    # -- what a text is made of -------------------------------------------------------------------------

    def number(self, value: int) -> str:
        """A word that is the same for all elements, as a scalar."""
        value = (value + 2**31) % 2**32 - 2**31
        self.numbers.setdefault(value)
        return f"number{list(self.numbers).index(value)}"

    def splat(self, value: int) -> str:
        return f"Q6_V_vsplat_R({self.number(value)})" if value else "Q6_V_vzero()"

    def declare(self, kind: str, text: str) -> str:
        """A variable of this text, once."""
        if text not in self._texts:
            self._texts[text] = f"t{len(self._texts)}"
            self.lines.append(f"{kind} {self._texts[text]} = {text};")
        return self._texts[text]

    def atom(self, text: str, bounds: Range) -> _Linear:
        name = self.declare("Vector", text)
        self._bounds[name] = bounds
        return _Linear(0, {name: 1})

    def value(self, index: int) -> str:
        """An integer as a vector, by index as in `Step.args`."""
        return self.vector(self.linear(index), self._ranges[index])

    def vector(self, form: _Linear, bounds: Range = _WORD) -> str:
        """The sum of a form."""
        terms = dict(form.terms)
        single = [name for name, factor in terms.items() if factor == 1]
        if form.constant or not single:
            text = self.splat(form.constant)
        else:
            text = single[0]
            del terms[text]
        for name, factor in terms.items():
            text = self._accumulated(text, name, factor)
        if text in self._bounds:
            return text
        name = self.declare("Vector", text)
        self._bounds[name] = bounds
        return name

    def _accumulated(self, text: str, name: str, factor: int) -> str:
        if abs(factor) == 1:
            return f"Q6_Vw_v{'add' if factor > 0 else 'sub'}_VwVw({text}, {name})"
        if factor > 0 and factor & (factor - 1) == 0:
            return f"Q6_Vw_vaslacc_VwVwR({text}, {name}, {self.number(factor.bit_length() - 1)})"
        bounds = self._bounds[name]
        for form, limits in (("Vuh", _UNSIGNED_HALF), ("Vh", _HALF)):
            if _within(bounds, limits):
                return f"Q6_Vw_vmpyieacc_VwVw{form}({text}, {self.splat(factor)}, {name})"
        return f"Q6_Vw_vadd_VwVw({text}, {name} * {self.splat(factor)})"

    # -- values -----------------------------------------------------------------------------------------

    def step(self, index: int) -> Step | None:
        return self._steps[index - len(self._operands)] if index >= len(self._operands) else None

    def linear(self, index: int) -> _Linear:
        """An integer, by index as in `Step.args`."""
        if index not in self._linear:
            made = self._make(index)
            if not _within(self._ranges[index], _WORD):
                low, high = self._ranges[index]
                raise Unsupported(f"a value of it reaches {max(-low, high):,}; the limit is {_WORD[1]:,}")
            self._linear[index] = made
        return self._linear[index]

    def _make(self, index: int) -> _Linear:
        step, bounds = self.step(index), self._ranges[index]
        if step is None:
            operand = self._operands[index]
            if isinstance(operand, int):
                return _Linear(operand)
            self.used.add(index)
            self._bounds[operand] = bounds
            return _Linear(0, {operand: 1})
        args = step.args
        match step.op:
            case "constant":
                return _Linear(int(step.value or 0))
            case "add" | "sub":
                return _sum(self.linear(args[0]), self.linear(args[1]), 1 if step.op == "add" else -1)
            case "neg":
                return _scaled(self.linear(args[0]), -1)
            case "mul":
                return self._product(args[0], args[1], bounds)
            case "shift_right":
                return self._shifted(step, bounds)
            case "min" | "max":
                a, b = map(self.value, args)
                return self.atom(f"{_EXTREMES[step.op]}({a}, {b})", bounds)
            case "abs":
                return self.atom(f"Q6_Vw_vabs_Vw({self.value(args[0])})", bounds)
            case "select":
                condition = self.predicate(args[0])
                a, b = map(self.value, args[1:])
                return self.atom(f"Q6_V_vmux_QVV({condition}, {a}, {b})", bounds)
            case "int":
                one = self.splat(1)
                return self.atom(f"Q6_V_vmux_QVV({self.predicate(args[0])}, {one}, Q6_V_vzero())", bounds)
        raise InternalError(f"{step.op} is not an operation of q31's integers")

    def _product(self, a: int, b: int, bounds: Range) -> _Linear:
        forms = self.linear(a), self.linear(b)
        for form, other in (forms, forms[::-1]):
            if not form.terms:
                return _scaled(other, form.constant)
        first, second = self.value(a), self.value(b)
        if not _within(self._bounds[second], _HALF):
            first, second = second, first
        if _within(self._bounds[second], _HALF):
            return self.atom(f"Q6_Vw_vmpyieacc_VwVwVh(Q6_V_vzero(), {first}, {second})", bounds)
        return self.atom(f"{first} * {second}", bounds)

    def _shifted(self, step: Step, bounds: Range) -> _Linear:
        bits = self.linear(step.args[1]).constant
        if bits == 31 and (factors := self._rounded_product(step.args[0])):
            x, factor = map(self.value, factors)
            return self.atom(f"requantize({x}, {factor})", bounds)
        amount = self.number(bits)
        return self.atom(f"Q6_Vw_vasr_VwR({self.value(step.args[0])}, {amount})", bounds)

    def _rounded_product(self, index: int) -> tuple[int, int] | None:
        """The factors of ``x * factor + 2^30``, which has 64 bits."""
        total = self.step(index)
        if total is None or total.op != "add":
            return None
        product, half = (self.step(arg) for arg in total.args)
        if product is None or half is None or product.op != "mul" or half.value != 1 << 30:
            return None
        first, second = product.args
        return first, second

    def predicate(self, index: int) -> str:
        """A truth value, by index as in `Step.args`."""
        if index not in self._predicates:
            self._predicates[index] = self.declare("HVX_VectorPred", self._predicate(index))
        return self._predicates[index]

    def _predicate(self, index: int) -> str:
        step = self.step(index)
        if step is None:
            raise InternalError("a truth value that is an operand")
        args = step.args
        if step.op in _PREDICATES:
            return f"{_PREDICATES[step.op]}({self.predicate(args[0])}, {self.predicate(args[1])})"
        if step.op == "not":
            return f"Q6_Q_not_Q({self.predicate(args[0])})"
        if step.op == "select":
            condition, a, b = map(self.predicate, args)
            return f"Q6_Q_or_QQ(Q6_Q_and_QQ({a}, {condition}), Q6_Q_and_QQn({b}, {condition}))"
        if step.op == "constant":
            return f"Q6_Q_vcmp_eq_VwVw({self.splat(int(not step.value))}, Q6_V_vzero())"
        if step.op == "bool":
            x = self.value(args[0])
            return f"Q6_Q_not_Q(Q6_Q_vcmp_eq_VwVw({x}, Q6_V_vzero()))"
        if step.op == "eq" and self._kinds[args[0]] == "bool":
            return f"Q6_Q_not_Q(Q6_Q_xor_QQ({self.predicate(args[0])}, {self.predicate(args[1])}))"
        a, b = map(self.value, args)
        match step.op:
            case "eq":
                return f"Q6_Q_vcmp_eq_VwVw({a}, {b})"
            case "lt":
                return f"Q6_Q_vcmp_gt_VwVw({b}, {a})"
            case "le":
                return f"Q6_Q_not_Q(Q6_Q_vcmp_gt_VwVw({a}, {b}))"
        raise InternalError(f"{step.op} is not a comparison")


def _within(bounds: Range, limits: Range) -> bool:
    return limits[0] <= bounds[0] and bounds[1] <= limits[1]


def _sum(a: _Linear, b: _Linear, sign: int) -> _Linear:
    names = [*a.terms, *(name for name in b.terms if name not in a.terms)]
    terms = {name: a.terms.get(name, 0) + sign * b.terms.get(name, 0) for name in names}
    kept = {name: factor for name, factor in terms.items() if factor}
    return _Linear(a.constant + sign * b.constant, kept)


def _scaled(form: _Linear, by: int) -> _Linear:
    terms = {name: factor * by for name, factor in form.terms.items() if factor * by}
    return _Linear(form.constant * by, terms)


def _ranges(expression: Expression, operands: Sequence[Range]) -> list[Range]:
    """Of each operand and step: its smallest and largest value."""
    found, known = list(operands), kinds(expression)
    for step in expression.steps:
        if step.op == "constant":
            found.append((int(step.value or 0), int(step.value or 0)))
            continue
        ends = [np.asarray(end, STORAGE[known[arg]]) for arg in step.args for end in found[arg]]
        low, high = OPERATIONS[step.op].image(*ends)
        found.append((int(low), int(high)))
    return found
