"""The operations of expressions: what each means, how exact it has to be, and how it is written."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Kind = Literal["real", "int", "bool"]
"""Of a value: a number, 64 bits of integer, or a truth value."""

STORAGE: Mapping[Kind, str] = {"real": "float64", "int": "int64", "bool": "bool"}
"""What each kind is computed in."""

Image = Callable[..., tuple[Array, Array]]


@dataclass(frozen=True)
class Operation:
    """What an operation is.

    Attributes:
        result: its kind; None: that of its first operand ("select": of its second).
        takes: the kinds its operands may have; None for any, and the same for all.
        value: in numpy, of float64, int64 or bool arrays.
        image: (low, high) of the results, from the operands' lows and highs in turn.
        ulps: how far, in units of the last place, a result may be from the rounded one's real value; 0.5 is
            correctly rounded. From the table of OpenCL C's full profile (3.0, 7.4), which C libraries keep.
        jumps: whether it is discontinuous.
        c, opencl: how it is written; None for opencl: as in C.
        c_int: how it is written for integers, where that differs.
    """

    value: Callable[..., Array]
    image: Image
    c: str
    result: Kind | None = None
    takes: tuple[Kind, ...] | None = None
    ulps: float = 0.5
    jumps: bool = False
    opencl: str | None = None
    c_int: str | None = None

    @property
    def arity(self) -> int:
        """Number of operands."""
        return next(count for count in (3, 2, 1) if f"{{{count - 1}}}" in self.c)


def _increasing(function: Callable[..., Array], low: float = -math.inf, high: float = math.inf) -> Image:
    """Of a function of one number that never decreases, defined from `low` to `high`."""
    return lambda a, b: (function(np.clip(a, low, high)), function(np.clip(b, low, high)))


def _decreasing(function: Callable[..., Array], low: float = -math.inf, high: float = math.inf) -> Image:
    return lambda a, b: (function(np.clip(b, low, high)), function(np.clip(a, low, high)))


def _lipschitz(function: Callable[..., Array], slope: float, least: float, most: float) -> Image:
    """Of a function whose slope is at most `slope` and whose values lie within [least, most]."""

    def image(a: Array, b: Array) -> tuple[Array, Array]:
        middle, half = function((a + b) / 2), slope * (b - a) / 2
        return np.maximum(middle - half, least), np.minimum(middle + half, most)

    return image


def _corners(function: Callable[..., Array]) -> Image:
    """Of a function of two numbers that is monotonic in each of them alone."""

    def image(a: Array, b: Array, c: Array, d: Array) -> tuple[Array, Array]:
        results = [function(x, y) for x in (a, b) for y in (c, d)]
        return _least(results), _most(results)

    return image


def _least(results: Sequence[Array]) -> Array:
    least = results[0]
    for other in results[1:]:
        least = np.fmin(least, other)
    return least


def _most(results: Sequence[Array]) -> Array:
    most = results[0]
    for other in results[1:]:
        most = np.fmax(most, other)
    return most


def _divide(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.asarray(a / b)
    quotient = np.abs(a) // np.where(b == 0, 1, np.abs(b))  # ONNX: towards zero
    return np.asarray(np.where((a < 0) != (b < 0), -quotient, quotient))


def _divide_image(a: Array, b: Array, c: Array, d: Array) -> tuple[Array, Array]:
    low, high = _corners(_divide)(a, b, c, d)
    if a.dtype.kind == "f":
        through_zero = (c <= 0) & (d >= 0) & (c != d)
        low, high = np.where(through_zero, -np.inf, low), np.where(through_zero, np.inf, high)
    return low, high


def _power_image(a: Array, b: Array, c: Array, d: Array) -> tuple[Array, Array]:
    low, high = _corners(np.power)(a, b, c, d)
    if a.dtype.kind != "f":
        return low, high
    through_zero = (a < 0) & (b > 0)
    zero = np.where(c > 0, 0.0, np.inf)
    return (
        np.where(through_zero, np.fmin(low, zero), low),
        np.where(through_zero, np.fmax(high, zero), high),
    )


def _absolute_image(a: Array, b: Array) -> tuple[Array, Array]:
    return (
        np.where((a <= 0) & (b >= 0), np.zeros_like(a), np.minimum(np.abs(a), np.abs(b))),
        np.maximum(np.abs(a), np.abs(b)),
    )


def _tangent_image(a: Array, b: Array) -> tuple[Array, Array]:
    pole = np.floor(a / np.pi + 0.5) != np.floor(b / np.pi + 0.5)
    return np.where(pole, -np.inf, np.tan(a)), np.where(pole, np.inf, np.tan(b))


def _cosh_image(a: Array, b: Array) -> tuple[Array, Array]:
    low, high = _absolute_image(a, b)
    return np.cosh(low), np.cosh(high)


def _remainder_image(function: Callable[..., Array]) -> Image:
    """Of a remainder: exact operands give one result, any others all that there can be."""

    def image(a: Array, b: Array, c: Array, d: Array) -> tuple[Array, Array]:
        exact = (a == b) & (c == d)
        result = function(a, c)
        reach = np.maximum(np.abs(c), np.abs(d))
        return np.where(exact, result, -reach), np.where(exact, result, reach)

    return image


def _bits_image(function: Callable[..., Array]) -> Image:
    """Of an operation on bits: exact operands give one result, any others whatever there can be."""

    def image(a: Array, b: Array, c: Array, d: Array) -> tuple[Array, Array]:
        exact = (a == b) & (c == d)
        result, bounds = function(a, c), np.iinfo(np.int64)
        return np.where(exact, result, bounds.min), np.where(exact, result, bounds.max)

    return image


def _remainder(a: Array, b: Array) -> Array:
    """With the sign of the divisor (ONNX Mod of integers); 0 of a division by 0."""
    return np.asarray(np.mod(a, np.where(b == 0, 1, b)))


def _select_image(a: Array, b: Array, c: Array, d: Array, e: Array, f: Array) -> tuple[Array, Array]:
    """`a`, `b`: of the condition; then of what is selected by true, and by false."""
    certain = a == b
    return (
        np.where(certain, np.where(a, c, e), np.fmin(c, e)),
        np.where(certain, np.where(a, d, f), np.fmax(d, f)),
    )


def _compare(must: Callable[..., Array], may: Callable[..., Array]) -> Image:
    """Of a comparison of two intervals: whether all pairs of the two give true, and whether any does."""
    return lambda a, b, c, d: (must(a, b, c, d), may(a, b, c, d))


def _erf(values: Array) -> Array:
    flat = np.array([math.erf(value) for value in values.ravel()], np.float64)
    return flat.reshape(values.shape)


def _whole(values: Array) -> Array:
    """Towards zero, within int64; NaN is 0."""
    bounded = np.clip(np.nan_to_num(values, nan=0.0), -(2.0**63), 2.0**63 - 1024)
    return np.asarray(np.trunc(bounded), np.int64)


def _logic(function: Callable[..., Array], spelt: str) -> Operation:
    """AND and OR: neither becomes false where an operand becomes true."""

    def image(a: Array, b: Array, c: Array, d: Array) -> tuple[Array, Array]:
        return function(a, c), function(b, d)

    return Operation(function, image, f"({{0}} {spelt} {{1}})", "bool", ("bool",), 0)


def _unlike_image(a: Array, b: Array, c: Array, d: Array) -> tuple[Array, Array]:
    certain = (a == b) & (c == d)
    return certain & (a != c), ~certain | (a != c)


_REAL: tuple[Kind, ...] = ("real",)
_NUMBER: tuple[Kind, ...] = ("real", "int")


def _function(name: str, value: Callable[..., Array], image: Image, ulps: float) -> Operation:
    """A function of C's library."""
    return Operation(value, image, f"{name}f({{0}})", None, _REAL, ulps, opencl=f"{name}({{0}})")


def _rounding(name: str, value: Callable[..., Array]) -> Operation:
    image = _increasing(value)
    return Operation(value, image, f"{name}f({{0}})", None, _REAL, 0, jumps=True, opencl=f"{name}({{0}})")


OPERATIONS: Mapping[str, Operation] = {
    # arithmetic
    "add": Operation(np.add, lambda a, b, c, d: (a + c, b + d), "({0} + {1})", None, _NUMBER),
    "sub": Operation(np.subtract, lambda a, b, c, d: (a - d, b - c), "({0} - {1})", None, _NUMBER),
    "mul": Operation(np.multiply, _corners(np.multiply), "({0} * {1})", None, _NUMBER),
    "div": Operation(_divide, _divide_image, "({0} / {1})", None, _NUMBER, 2.5, c_int="divide({0}, {1})"),
    "neg": Operation(np.negative, lambda a, b: (-b, -a), "(-{0})", None, _NUMBER, 0),
    "abs": Operation(
        np.abs, _absolute_image, "fabsf({0})", None, _NUMBER, 0, opencl="fabs({0})", c_int="absolute({0})"
    ),
    "min": Operation(
        np.minimum,
        lambda a, b, c, d: (np.minimum(a, c), np.minimum(b, d)),
        "least({0}, {1})",
        None,
        _NUMBER,
        0,
        c_int="({0} < {1} ? {0} : {1})",
    ),
    "max": Operation(
        np.maximum,
        lambda a, b, c, d: (np.maximum(a, c), np.maximum(b, d)),
        "most({0}, {1})",
        None,
        _NUMBER,
        0,
        c_int="({0} > {1} ? {0} : {1})",
    ),
    "pow": Operation(np.power, _power_image, "powf({0}, {1})", None, _REAL, 16, opencl="pow({0}, {1})"),
    "fmod": Operation(
        np.fmod,
        _remainder_image(np.fmod),
        "fmodf({0}, {1})",
        None,
        _NUMBER,
        0,
        jumps=True,
        opencl="fmod({0}, {1})",
        c_int="({1} ? {0} % {1} : 0)",
    ),
    "mod": Operation(
        _remainder,
        _remainder_image(_remainder),
        "remainder_of({0}, {1})",
        None,
        ("int",),
        0,
        jumps=True,
    ),
    "shift_right": Operation(
        np.right_shift, _corners(np.right_shift), "({0} >> {1})", None, ("int",), 0, jumps=True
    ),
    "shift_left": Operation(
        np.left_shift,
        _bits_image(np.left_shift),
        "((int64_t)((uint64_t){0} << {1}))",
        None,
        ("int",),
        0,
        jumps=True,
        opencl="((long)((ulong){0} << {1}))",
    ),
    "bit_and": Operation(
        np.bitwise_and, _bits_image(np.bitwise_and), "({0} & {1})", None, ("int",), 0, jumps=True
    ),
    # elementary functions
    "sqrt": _function("sqrt", np.sqrt, _increasing(np.sqrt, low=0.0), 3),
    "exp": _function("exp", np.exp, _increasing(np.exp), 3),
    "expm1": _function("expm1", np.expm1, _increasing(np.expm1), 3),
    "log": _function("log", np.log, _increasing(np.log, low=0.0), 3),
    "log1p": _function("log1p", np.log1p, _increasing(np.log1p, low=-1.0), 2),
    "erf": _function("erf", _erf, _increasing(_erf), 16),
    "tanh": _function("tanh", np.tanh, _increasing(np.tanh), 5),
    "sinh": _function("sinh", np.sinh, _increasing(np.sinh), 4),
    "cosh": _function("cosh", np.cosh, _cosh_image, 4),
    "sin": _function("sin", np.sin, _lipschitz(np.sin, 1.0, -1.0, 1.0), 4),
    "cos": _function("cos", np.cos, _lipschitz(np.cos, 1.0, -1.0, 1.0), 4),
    "tan": _function("tan", np.tan, _tangent_image, 5),
    "asin": _function("asin", np.arcsin, _increasing(np.arcsin, -1.0, 1.0), 4),
    "acos": _function("acos", np.arccos, _decreasing(np.arccos, -1.0, 1.0), 4),
    "atan": _function("atan", np.arctan, _increasing(np.arctan), 5),
    "asinh": _function("asinh", np.arcsinh, _increasing(np.arcsinh), 4),
    "acosh": _function("acosh", np.arccosh, _increasing(np.arccosh, low=1.0), 4),
    "atanh": _function("atanh", np.arctanh, _increasing(np.arctanh, -1.0, 1.0), 5),
    # rounding to whole numbers
    "floor": _rounding("floor", np.floor),
    "ceil": _rounding("ceil", np.ceil),
    "rint": _rounding("rint", np.rint),
    "sign": Operation(
        np.sign,
        _increasing(np.sign),
        "sign_of({0})",
        None,
        _NUMBER,
        0,
        jumps=True,
        opencl="sign({0})",
        c_int="(({0} > 0) - ({0} < 0))",
    ),
    # comparisons and logic
    "eq": Operation(
        np.equal,
        _compare(lambda a, b, c, d: (a == b) & (c == d) & (a == c), lambda a, b, c, d: (a <= d) & (c <= b)),
        "({0} == {1})",
        "bool",
        None,
        0,
        jumps=True,
    ),
    "lt": Operation(
        np.less,
        _compare(lambda a, b, c, d: b < c, lambda a, b, c, d: a < d),
        "({0} < {1})",
        "bool",
        _NUMBER,
        0,
        jumps=True,
    ),
    "le": Operation(
        np.less_equal,
        _compare(lambda a, b, c, d: b <= c, lambda a, b, c, d: a <= d),
        "({0} <= {1})",
        "bool",
        _NUMBER,
        0,
        jumps=True,
    ),
    "isnan": Operation(np.isnan, lambda a, b: (np.isnan(a), np.isnan(a)), "({0} != {0})", "bool", _REAL, 0),
    "and": _logic(np.logical_and, "&&"),
    "or": _logic(np.logical_or, "||"),
    "xor": Operation(np.logical_xor, _unlike_image, "({0} != {1})", "bool", ("bool",), 0),
    "not": Operation(np.logical_not, lambda a, b: (~b, ~a), "(!{0})", "bool", ("bool",), 0),
    "select": Operation(
        lambda condition, a, b: np.asarray(np.where(condition, a, b)),
        _select_image,
        "({0} ? {1} : {2})",
        None,
        None,
        0,
    ),
    # from kind to kind
    "real": Operation(
        lambda a: a.astype(np.float64),
        lambda a, b: (a.astype(np.float64), b.astype(np.float64)),
        "((float){0})",
        "real",
        ("int", "bool"),
    ),
    "int": Operation(
        lambda a: a.astype(np.int64),
        lambda a, b: (a.astype(np.int64), b.astype(np.int64)),
        "((int64_t){0})",
        "int",
        ("bool",),
        0,
        opencl="((long){0})",
    ),
    "trunc": Operation(_whole, _increasing(_whole), "whole({0})", "int", _REAL, 0, jumps=True),
    "bool": Operation(
        lambda a: a != 0,
        lambda a, b: ((a > 0) | (b < 0), (a != 0) | (b != 0)),
        "({0} != 0)",
        "bool",
        _NUMBER,
        0,
        jumps=True,
    ),
}
