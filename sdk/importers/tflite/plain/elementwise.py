"""Elementwise operators: each is a line, a function of the names of its operands.

Definitions are those of TFLite's kernels (tensorflow/lite/kernels, read 2024), where they differ from ONNX's.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sdk.importers.tflite.plain.conversion import Conversion

Function = Callable[..., str]


@dataclass(frozen=True)
class Elementwise:
    """An operator on tensors that broadcast.

    Attributes:
        function: of the conversion and the names of all inputs; gives the result's.
        meaning: of which ONNX operators it consists.
        table: of its options, where they have a fused activation.
    """

    function: Function
    meaning: str
    table: str = ""

    def __call__(self, c: Conversion) -> None:
        operands = list(inspect.signature(self.function).parameters.values())[1:]
        given, any_number = len(c.node.inputs), operands[-1].kind is inspect.Parameter.VAR_POSITIONAL
        if not given or (given != len(operands) and not any_number):
            raise c.node.invalid(f"{c.node.op} with {given} inputs")
        names, axes = c.aligned(range(len(c.node.inputs)))
        result = self.function(c, *names)
        if self.table:
            result = c.activated(result, c.option(self.table, "FusedActivationFunction", 0))
        c.define(result, axes)


SAME_MEANING = "ONNX's operator of the same meaning"


def one(op_type: str) -> Elementwise:
    """One ONNX operator of one operand."""
    return Elementwise(lambda c, x: c.make(op_type, x), SAME_MEANING)


def two(op_type: str, table: str = "") -> Elementwise:
    """One ONNX operator of two operands."""
    return Elementwise(lambda c, a, b: c.make(op_type, a, b), SAME_MEANING, table)


def _leaky_relu(c: Conversion, x: str) -> str:
    return c.make("LeakyRelu", x, alpha=float(c.option("LeakyReluOptions", "Alpha", 0.0)))


def _gelu(c: Conversion, x: str) -> str:
    approximate = c.option("GeluOptions", "Approximate", False)
    return c.make("Gelu", x, approximate="tanh" if approximate else "none")


def _squared_difference(c: Conversion, a: str, b: str) -> str:
    difference = c.make("Sub", a, b)
    return c.make("Mul", difference, difference)


def _floor_div(c: Conversion, a: str, b: str) -> str:
    """Rounded down; what ONNX's Div does to integers of unlike signs is open."""
    if c.dtype(a).startswith("float"):
        return c.make("Floor", c.make("Div", a, b))
    return c.make("Div", c.make("Sub", a, c.make("Mod", a, b)), b)


def _floor_mod(c: Conversion, a: str, b: str) -> str:
    """Of the sign of b."""
    if not c.dtype(a).startswith("float"):
        return c.make("Mod", a, b)
    return c.make("Sub", a, c.make("Mul", c.make("Floor", c.make("Div", a, b)), b))


def _cast(c: Conversion, x: str) -> str:
    """To the type that the file says of the result."""
    if c.out.dtype not in CASTS:
        raise c.node.unsupported(f"a CAST to {c.out.dtype}")
    return c.cast(x, c.out.dtype)


CASTS = ("bool", "int8", "uint8", "int16", "uint16", "int32", "int64", "float16", "float32")


def _fake_quant(c: Conversion, x: str) -> str:
    """Rounded to one of 2^bits steps between bounds, so moved that 0 is one (TFLite's FakeQuantOp)."""
    table = "FakeQuantOptions"
    low, high = float(c.option(table, "Min")), float(c.option(table, "Max"))
    bits, narrow = c.option(table, "NumBits"), bool(c.option(table, "NarrowRange"))
    if not low <= 0 <= high or low == high or not 2 <= bits <= 16:
        raise c.node.invalid(f"a range from {low:g} to {high:g} in {bits} bits")
    first, last = int(narrow), 2**bits - 1
    scale = (high - low) / (last - first)
    zero = min(max(round(first - low / scale), first), last)
    low, high = (first - zero) * scale, (last - zero) * scale
    steps = c.make(
        "Div", c.make("Sub", c.clip(x, low, high), c.constant(low, "float32")), c.constant(scale, "float32")
    )
    rounded = c.make("Floor", c.make("Add", steps, c.constant(0.5, "float32")))
    return c.make("Add", c.make("Mul", rounded, c.constant(scale, "float32")), c.constant(low, "float32"))


def _same(c: Conversion, x: str) -> str:
    return x


def _dequantize(c: Conversion, x: str) -> str:
    return c.cast(x, c.out.dtype) if c.out.dtype.startswith("float") else x


OPERATORS: Mapping[str, Elementwise] = {
    # of one number
    "ABS": one("Abs"),
    "CAST": Elementwise(_cast, SAME_MEANING),
    "CEIL": one("Ceil"),
    "COS": one("Cos"),
    "DENSIFY": Elementwise(_same, "Nothing: sparse constants are read as dense ones"),
    "DEQUANTIZE": Elementwise(_dequantize, "Cast of float16; a constant of constants"),
    "ELU": one("Elu"),
    "EXP": one("Exp"),
    "FAKE_QUANT": Elementwise(_fake_quant, "Clip, Sub, Div, Floor, Mul, Add"),
    "FLOOR": one("Floor"),
    "GELU": Elementwise(_gelu, SAME_MEANING),
    "HARD_SWISH": one("HardSwish"),
    "LEAKY_RELU": Elementwise(_leaky_relu, SAME_MEANING),
    "LOG": one("Log"),
    "LOGICAL_NOT": one("Not"),
    "LOGISTIC": one("Sigmoid"),
    "NEG": one("Neg"),
    "QUANTIZE": Elementwise(_same, "Rounding to the result's type"),
    "RELU": one("Relu"),
    "RELU6": Elementwise(lambda c, x: c.clip(x, 0.0, 6.0), "Clip"),
    "RELU_0_TO_1": Elementwise(lambda c, x: c.clip(x, 0.0, 1.0), "Clip"),
    "RELU_N1_TO_1": Elementwise(lambda c, x: c.clip(x, -1.0, 1.0), "Clip"),
    "ROUND": one("Round"),
    "RSQRT": Elementwise(lambda c, x: c.make("Reciprocal", c.make("Sqrt", x)), "Sqrt, Reciprocal"),
    "SIGN": one("Sign"),
    "SIN": one("Sin"),
    "SQRT": one("Sqrt"),
    "SQUARE": Elementwise(lambda c, x: c.make("Mul", x, x), "Mul"),
    "TANH": one("Tanh"),
    # of two
    "ADD": two("Add", "AddOptions"),
    "DIV": two("Div", "DivOptions"),
    "EQUAL": two("Equal"),
    "FLOOR_DIV": Elementwise(_floor_div, "Div, Floor; of integers Mod, Sub, Div"),
    "FLOOR_MOD": Elementwise(_floor_mod, "Mod; of floats Div, Floor, Mul, Sub"),
    "GREATER": two("Greater"),
    "GREATER_EQUAL": two("GreaterOrEqual"),
    "LESS": two("Less"),
    "LESS_EQUAL": two("LessOrEqual"),
    "LOGICAL_AND": two("And"),
    "LOGICAL_OR": two("Or"),
    "MAXIMUM": two("Max"),
    "MINIMUM": two("Min"),
    "MUL": two("Mul", "MulOptions"),
    "NOT_EQUAL": Elementwise(lambda c, a, b: c.make("Not", c.make("Equal", a, b)), "Equal, Not"),
    "POW": two("Pow"),
    "PRELU": two("PRelu"),
    "SQUARED_DIFFERENCE": Elementwise(_squared_difference, "Sub, Mul"),
    "SUB": two("Sub", "SubOptions"),
    # of more
    "ADD_N": Elementwise(lambda c, *names: c.make("Sum", *names), SAME_MEANING),
    "SELECT_V2": Elementwise(lambda c, chosen, a, b: c.make("Where", chosen, a, b), SAME_MEANING),
}
