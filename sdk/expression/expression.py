"""What an expression is, and what it computes: in real arithmetic, and as the set of correct results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from sdk import dtypes
from sdk.codec import NonFinite
from sdk.errors import InvalidModel
from sdk.expression.operations import OPERATIONS, STORAGE, Array, Kind

LARGEST = 4096
"""Steps of one expression. Those that exporters write have tens."""


@dataclass(frozen=True)
class Step:
    """One operation.

    Attributes:
        op: a name of OPERATIONS, "constant", or "round".
        args: operands: i is input i, and len(inputs) + j the result of step j, which comes before.
        value: of a constant; its type says its kind.
        dtype: of "round": the float type that the operand is rounded to.
    """

    op: str
    args: tuple[int, ...] = ()
    value: bool | int | float | NonFinite | None = None
    dtype: str | None = None


@dataclass(frozen=True)
class Expression:
    """A function of one element of each of n tensors.

    Attributes:
        inputs: kinds of the inputs.
        steps: in order of execution; the last is the result, and without any the last input is.
    """

    inputs: tuple[Kind, ...]
    steps: tuple[Step, ...]

    @property
    def kind(self) -> Kind:
        """Of the result."""
        return kinds(self)[-1]


class Interval(NamedTuple):
    """What an array may be, element by element.

    Attributes:
        value: in real arithmetic, float64; or exact integers, or truth values.
        low, high: bounds of what correct implementations compute.
        jump: where a discontinuity widened the interval: bool of the same shape; None for nowhere.
    """

    value: Array
    low: Array
    high: Array
    jump: Array | None = None


@cache
def kinds(expression: Expression) -> tuple[Kind, ...]:
    """Kinds of the inputs, then of every step's result.

    Raises:
        InvalidModel: an unknown operation, operands that do not exist or are of the wrong kind or number, or
            more steps than LARGEST.
    """
    if len(expression.steps) > LARGEST:
        raise InvalidModel(f"an expression of {len(expression.steps):,} steps; the limit is {LARGEST:,}")
    found: list[Kind] = list(expression.inputs)
    for step in expression.steps:
        if not all(0 <= arg < len(found) for arg in step.args):
            raise InvalidModel(f"{step.op} of an operand that is not computed before it")
        found.append(_kind(step, [found[arg] for arg in step.args]))
    if not found:
        raise InvalidModel("an expression without inputs and steps")
    return tuple(found)


def _kind(step: Step, args: Sequence[Kind]) -> Kind:
    if step.op == "constant":
        if type(step.value) not in _CONSTANTS or args:
            raise InvalidModel(f"a constant of {step.value!r}")
        return _CONSTANTS[type(step.value)]
    if step.op == "round":
        if list(args) != ["real"] or not dtypes.is_float(step.dtype or ""):
            raise InvalidModel(f"rounding of {', '.join(args)} to {step.dtype}")
        return "real"
    operation = OPERATIONS.get(step.op)
    if operation is None:
        raise InvalidModel(f"unknown operation {step.op!r}")
    condition, operands = (args[:1], args[1:]) if step.op == "select" else ((), args)
    fits = len(args) == operation.arity and len(set(operands)) == 1 and all(c == "bool" for c in condition)
    if not fits or (operation.takes is not None and operands[0] not in operation.takes):
        raise InvalidModel(f"{step.op} of {', '.join(args) or 'nothing'}")
    return operation.result or operands[0]


_CONSTANTS: dict[type, Kind] = {bool: "bool", int: "int", float: "real"}


def evaluate(expression: Expression, arrays: Sequence[Array], precision: str | None = None) -> Array:
    """The result in real arithmetic, computed in float64 (integers and truth values exactly).

    Args:
        expression: verified (`kinds`).
        arrays: one for each input, of the dtype that STORAGE has for its kind; they broadcast.
        precision: the float type to which the result of each step is rounded; None for none. In float32 that
            is IEEE 754's own result of arithmetic: float64 has more than twice its digits.
    """
    values = list(arrays)
    with np.errstate(all="ignore"):
        for step in expression.steps:
            value = _apply(step, [values[arg] for arg in step.args])
            if precision is not None and value.dtype.kind == "f":
                value = dtypes.round_to(value, precision)
            values.append(value)
    return values[-1]


def _apply(step: Step, args: Sequence[Array]) -> Array:
    if step.op == "constant":
        return np.asarray(step.value, STORAGE[_CONSTANTS[type(step.value)]])
    if step.op == "round":
        return dtypes.round_to(args[0], str(step.dtype))
    return np.asarray(OPERATIONS[step.op].value(*args))


def intervals(expression: Expression, inputs: Sequence[Interval], precision: str = "float32") -> Interval:
    """What correct implementations compute, of inputs that are uncertain themselves.

    Args:
        expression: as for `evaluate`.
        inputs: values as for `evaluate`; an exact one is its own bounds.
        precision: the float type that the result of each step is rounded to.
    """
    values = list(inputs)
    with np.errstate(all="ignore"):
        for step in expression.steps:
            values.append(_interval(step, [values[arg] for arg in step.args], precision))
    return values[-1]


def _interval(step: Step, args: Sequence[Interval], precision: str) -> Interval:
    value = _apply(step, [arg.value for arg in args])
    jump = _union([arg.jump for arg in args])
    if step.op == "constant":
        stored = dtypes.round_to(value, precision) if value.dtype.kind == "f" else value
        return Interval(value, np.fmin(value, stored), np.fmax(value, stored))
    if step.op == "round":
        low, high = (dtypes.round_to(end, str(step.dtype)) for end in args[0][1:3])
        return Interval(value, np.fmin(low, value), np.fmax(high, value), jump)
    operation = OPERATIONS[step.op]
    low, high = operation.image(*(end for arg in args for end in arg[1:3]))
    if value.dtype.kind == "f":
        low, high = widened(value, low, high, operation.ulps, precision)
    if operation.jumps and (unsure := ~((low == high) | np.isnan(value))).any():
        jump = _union([jump, unsure])
    return Interval(value, low, high, jump)


def widened(value: Array, low: Array, high: Array, ulps: float, precision: str) -> tuple[Array, Array]:
    """An interval with what an implementation may be off when it rounds a result to `precision`.

    A unit in the last place is at most twice the unit roundoff of the magnitude; below the smallest normal
    number a result may be flushed to zero, and beyond the largest number it is an infinity.
    """
    form = dtypes.DTYPES[precision].format
    if form is None:
        raise TypeError(f"{precision} is not a float type")
    if ulps:
        slack, normal = 2 * ulps * form.unit, 2.0**form.lowest
        low = low - np.where(np.isfinite(low), slack * np.abs(low) + normal, 0)
        high = high + np.where(np.isfinite(high), slack * np.abs(high) + normal, 0)
    low, high = np.fmin(low, value), np.fmax(high, value)
    low = np.where(low < -form.largest, -np.inf, low)
    high = np.where(high > form.largest, np.inf, high)
    undefined = np.isnan(value)
    return np.where(undefined, np.nan, low), np.where(undefined, np.nan, high)


def _union(masks: Sequence[Array | None]) -> Array | None:
    union: Array | None = None
    for mask in masks:
        if mask is not None:
            union = mask if union is None else union | mask
    return union
