"""Building expressions: a Python function, called on symbols, becomes the steps that it performs.

trace(lambda x: x * tanh(softplus(x)), "real")  # Mish
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sdk.expression.expression import Expression, Step, kinds
from sdk.expression.operations import Kind


class _Trace:
    """The steps so far; one that was performed before is not performed twice."""

    def __init__(self, inputs: tuple[Kind, ...]) -> None:
        self.kinds: list[Kind] = list(inputs)
        self.inputs = inputs
        self.steps: list[Step] = []
        self._known: dict[tuple[object, ...], int] = {}

    def add(self, step: Step, kind: Kind) -> Symbol:
        # 0.0 and -0.0 are equal, and so are 1, 1.0 and True; their texts differ.
        key = (step.op, step.args, repr(step.value), step.dtype)
        if key not in self._known:
            self.steps.append(step)
            self.kinds.append(kind)
            self._known[key] = len(self.kinds) - 1
        return Symbol(self, self._known[key])


@dataclass(frozen=True, eq=False)
class Symbol:
    """A value of an expression that is being built. Python's operators and numbers work on it."""

    trace: _Trace
    index: int

    @property
    def kind(self) -> Kind:
        return self.trace.kinds[self.index]

    def __add__(self, other: Operand) -> Symbol:
        return apply("add", self, other)

    def __radd__(self, other: Operand) -> Symbol:
        return apply("add", other, self)

    def __sub__(self, other: Operand) -> Symbol:
        return apply("sub", self, other)

    def __rsub__(self, other: Operand) -> Symbol:
        return apply("sub", other, self)

    def __mul__(self, other: Operand) -> Symbol:
        return apply("mul", self, other)

    def __rmul__(self, other: Operand) -> Symbol:
        return apply("mul", other, self)

    def __truediv__(self, other: Operand) -> Symbol:
        return apply("div", self, other)

    def __rtruediv__(self, other: Operand) -> Symbol:
        return apply("div", other, self)

    def __neg__(self) -> Symbol:
        return apply("neg", self)

    def __lt__(self, other: Operand) -> Symbol:
        return apply("lt", self, other)

    def __le__(self, other: Operand) -> Symbol:
        return apply("le", self, other)

    def __gt__(self, other: Operand) -> Symbol:
        return apply("lt", other, self)

    def __ge__(self, other: Operand) -> Symbol:
        return apply("le", other, self)


Operand = Symbol | float


def trace(function: Callable[..., Symbol], *inputs: Kind) -> Expression:
    """The expression that `function` computes of symbols of these kinds.

    Raises:
        InvalidModel: it applies an operation to operands of the wrong kind, or takes too many steps.
    """
    building = _Trace(inputs)
    result = function(*(Symbol(building, index) for index in range(len(inputs))))
    last = len(building.kinds) - 1
    if result.index != last:  # an earlier value: everything behind it is unused
        unused = max(0, result.index + 1 - len(inputs))
        building.steps = building.steps[:unused]
        if result.index < len(inputs) - 1:
            raise TypeError("an expression of several inputs must compute something")
    expression = Expression(inputs, tuple(building.steps))
    kinds(expression)
    return expression


def replay(expression: Expression, *operands: Symbol) -> Symbol:
    """The steps of an expression on other operands."""
    values = list(operands)
    known = kinds(expression)[len(operands) :]
    for step, kind in zip(expression.steps, known, strict=True):
        args = tuple(values[arg].index for arg in step.args)
        values.append(operands[0].trace.add(Step(step.op, args, step.value, step.dtype), kind))
    return values[-1]


def apply(op: str, *operands: Operand) -> Symbol:
    """An operation of the table on symbols and numbers; a number takes the kind of the symbols beside it."""
    symbols = [operand for operand in operands if isinstance(operand, Symbol)]
    building = symbols[0].trace
    beside = symbols[-1].kind
    args = []
    for operand in operands:
        symbol = operand if isinstance(operand, Symbol) else constant(building, operand, beside)
        args.append(symbol.index)
    step = Step(op, tuple(args))
    found = kinds(
        Expression(tuple(building.kinds[arg] for arg in args), (Step(op, tuple(range(len(args)))),))
    )
    return building.add(step, found[-1])


def constant(building: _Trace, value: float, kind: Kind) -> Symbol:
    converted = bool(value) if kind == "bool" else int(value) if kind == "int" else float(value)
    return building.add(Step("constant", (), converted), kind)


def round_to(x: Symbol, dtype: str) -> Symbol:
    """Rounded to a float type, as storing it would."""
    return x.trace.add(Step("round", (x.index,), dtype=dtype), "real")


def sigmoid(x: Symbol) -> Symbol:
    """``1 / (1 + exp(-x))``."""
    return 1 / (apply("exp", -x) + 1)


def softplus(x: Symbol) -> Symbol:
    """``log(1 + exp(x))``, in a form that does not overflow."""
    return apply("max", x, 0) + apply("log1p", apply("exp", -apply("abs", x)))


def clip(x: Symbol, low: Operand, high: Operand) -> Symbol:
    """``min(max(x, low), high)``, ONNX's order."""
    return apply("min", apply("max", x, low), high)


def select(condition: Symbol, a: Operand, b: Operand) -> Symbol:
    return apply("select", condition, a, b)
