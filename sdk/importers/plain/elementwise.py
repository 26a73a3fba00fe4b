"""Elementwise operators: each is a line, a function on the symbols of an expression.

Definitions and defaults of attributes are those of ONNX's Operators.md.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sdk import dtypes
from sdk.expression.trace import Operand, Symbol, apply, clip, round_to, select, sigmoid, softplus
from sdk.graph import Tensor
from sdk.importers.functions import SELU_ALPHA, SELU_GAMMA
from sdk.importers.onnx_file import OnnxNode
from sdk.importers.plain.conversion import Conversion, to_kind
from sdk.importers.quantization import check_scales
from sdk.importers.values import model_array

Function = Callable[..., Symbol]


@dataclass(frozen=True)
class Elementwise:
    """One Map.

    Attributes:
        function: of the node, for its attributes, and a symbol for each input.
        dtype: of the result; None for the first input's.
        folds: whether it takes any number of inputs: `function` of two, then of the result and the next.
    """

    function: Function
    dtype: str | None = None
    folds: bool = False

    def __call__(self, c: Conversion) -> None:
        inputs = c.all()
        if not self.folds:
            c.map(functools.partial(self.function, c.node), inputs, dtype=self.dtype)
        elif len(inputs) == 1:
            c.same(inputs[0])
        else:
            c.map(
                lambda *symbols: functools.reduce(functools.partial(self.function, c.node), symbols),
                inputs,
                dtype=self.dtype,
            )


def op(name: str) -> Function:
    """An operation of expressions as it is."""
    return lambda _, *symbols: apply(name, *symbols)


def hard_sigmoid(x: Symbol, alpha: float = 1 / 6, beta: float = 0.5) -> Symbol:
    """``max(0, min(1, alpha * x + beta))``."""
    return clip(x * alpha + beta, 0, 1)


def elu(x: Symbol, alpha: float) -> Symbol:
    """``x < 0 ? alpha * (exp(x) - 1) : x``; the exponent never overflows."""
    return select(x < 0, apply("expm1", apply("min", x, 0)) * alpha, x)


def gelu(node: OnnxNode, x: Symbol) -> Symbol:
    if node.text("approximate", "none") == "tanh":
        return x * 0.5 * (apply("tanh", (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)) + 1)
    return x * 0.5 * (apply("erf", x * math.sqrt(0.5)) + 1)


def is_infinite(node: OnnxNode, x: Symbol) -> Symbol:
    positive, negative = node.integer("detect_positive", 1), node.integer("detect_negative", 1)
    if positive and negative:
        return apply("eq", apply("abs", x), math.inf)
    if not positive and not negative:
        return apply("abs", x) < 0  # never
    return apply("eq", x, math.inf if positive else -math.inf)


def shrink(node: OnnxNode, x: Symbol) -> Symbol:
    bias, bound = node.number("bias", 0.0), node.number("lambd", 0.5)
    return select(x < -bound, x + bias, select(x > bound, x - bias, 0))


def remainder(node: OnnxNode, a: Symbol, b: Symbol) -> Symbol:
    """With fmod the sign is a's, else b's."""
    if a.kind != "real" and not node.integer("fmod", 0):
        return apply("mod", a, b)
    rest = apply("fmod", a, b)
    if node.integer("fmod", 0):
        return rest
    return select(apply("xor", rest < 0, b < 0), select(apply("eq", rest, 0), rest, rest + b), rest)


def bit_shift(node: OnnxNode, x: Symbol, by: Symbol) -> Symbol:
    """Shifts by less than 0, or by the type's width and more, leave the sign alone, or nothing."""
    if node.text("direction", "") == "RIGHT":
        return apply("shift_right", x, select(by < 0, 63, apply("min", by, 63)))
    if node.text("direction", "") != "LEFT":
        raise node.invalid("its direction is neither LEFT nor RIGHT")
    wrong = apply("or", by < 0, by > 63)
    return select(wrong, 0, apply("shift_left", x, select(wrong, 0, by)))


def leaky(x: Symbol, slope: Operand) -> Symbol:
    return select(x < 0, x * slope, x)


OPERATORS: Mapping[str, Elementwise] = {
    # of one number
    "Abs": Elementwise(op("abs")),
    "Acos": Elementwise(op("acos")),
    "Acosh": Elementwise(op("acosh")),
    "Asin": Elementwise(op("asin")),
    "Asinh": Elementwise(op("asinh")),
    "Atan": Elementwise(op("atan")),
    "Atanh": Elementwise(op("atanh")),
    "Ceil": Elementwise(op("ceil")),
    "Celu": Elementwise(lambda n, x: elu(x / n.number("alpha", 1.0), 1.0) * n.number("alpha", 1.0)),
    "Cos": Elementwise(op("cos")),
    "Cosh": Elementwise(op("cosh")),
    "Elu": Elementwise(lambda n, x: elu(x, n.number("alpha", 1.0))),
    "Erf": Elementwise(op("erf")),
    "Exp": Elementwise(op("exp")),
    "Floor": Elementwise(op("floor")),
    "Gelu": Elementwise(gelu),
    "HardSigmoid": Elementwise(lambda n, x: hard_sigmoid(x, n.number("alpha", 0.2), n.number("beta", 0.5))),
    "HardSwish": Elementwise(lambda _, x: x * hard_sigmoid(x)),
    "IsInf": Elementwise(is_infinite, "bool"),
    "IsNaN": Elementwise(op("isnan"), "bool"),
    "LeakyRelu": Elementwise(lambda n, x: leaky(x, n.number("alpha", 0.01))),
    "Log": Elementwise(op("log")),
    "Mish": Elementwise(lambda _, x: x * apply("tanh", softplus(x))),
    "Neg": Elementwise(op("neg")),
    "Not": Elementwise(op("not")),
    "Reciprocal": Elementwise(lambda _, x: 1 / x),
    "Relu": Elementwise(lambda _, x: apply("max", x, 0)),
    "Round": Elementwise(op("rint")),
    "Selu": Elementwise(lambda n, x: elu(x, n.number("alpha", SELU_ALPHA)) * n.number("gamma", SELU_GAMMA)),
    "Shrink": Elementwise(shrink),
    "Sigmoid": Elementwise(lambda _, x: sigmoid(x)),
    "Sign": Elementwise(op("sign")),
    "Sin": Elementwise(op("sin")),
    "Sinh": Elementwise(op("sinh")),
    "Softplus": Elementwise(lambda _, x: softplus(x)),
    "Softsign": Elementwise(lambda _, x: x / (apply("abs", x) + 1)),
    "Sqrt": Elementwise(op("sqrt")),
    "Swish": Elementwise(lambda n, x: x * sigmoid(x * n.number("alpha", 1.0))),
    "Tan": Elementwise(op("tan")),
    "Tanh": Elementwise(op("tanh")),
    "ThresholdedRelu": Elementwise(lambda n, x: select(x > n.number("alpha", 1.0), x, 0)),
    # of two
    "Add": Elementwise(op("add")),
    "And": Elementwise(op("and"), "bool"),
    "Div": Elementwise(op("div")),
    "Equal": Elementwise(op("eq"), "bool"),
    "Greater": Elementwise(lambda _, a, b: a > b, "bool"),
    "GreaterOrEqual": Elementwise(lambda _, a, b: a >= b, "bool"),
    "Less": Elementwise(lambda _, a, b: a < b, "bool"),
    "LessOrEqual": Elementwise(lambda _, a, b: a <= b, "bool"),
    "Mod": Elementwise(remainder),
    "Mul": Elementwise(op("mul")),
    "Or": Elementwise(op("or"), "bool"),
    "PRelu": Elementwise(lambda _, x, slope: leaky(x, slope)),
    "Sub": Elementwise(op("sub")),
    "Xor": Elementwise(op("xor"), "bool"),
    "BitwiseAnd": Elementwise(op("bit_and")),
    "BitwiseOr": Elementwise(lambda _, a, b: a + (b - apply("bit_and", a, b))),
    "BitwiseXor": Elementwise(lambda _, a, b: (a - apply("bit_and", a, b)) + (b - apply("bit_and", a, b))),
    # of any number
    "Max": Elementwise(op("max"), folds=True),
    "Min": Elementwise(op("min"), folds=True),
    "Sum": Elementwise(op("add"), folds=True),
}


def bits(c: Conversion) -> None:
    """One Map."""
    inputs = c.all()
    found = dtypes.dtype(inputs[0].dtype)
    if found.format is not None or found.kind == "bool":
        raise c.node.invalid(f"{c.node.op_type} of {found.name}")
    low, high = found.range
    if c.node.op_type == "BitwiseNot":
        c.map(lambda x: low + high - x, inputs)
        return

    def function(x: Symbol, by: Symbol) -> Symbol:
        shifted = bit_shift(c.node, x, by)
        if found.nbytes == 8:
            return shifted
        return apply("bit_and", shifted - low, high - low) + low  # what exceeds the type's bits is lost

    c.map(function, inputs)


def mean(c: Conversion) -> None:
    """One Map."""
    inputs = c.all()
    if len(inputs) == 1:
        c.same(inputs[0])
    else:
        c.map(lambda *symbols: functools.reduce(Symbol.__add__, symbols) / len(symbols), inputs)


def where(c: Conversion) -> None:
    """One Map."""
    condition, a, b = c.all()
    c.map(select, [condition, a, b], dtype=a.dtype)


def power(c: Conversion) -> None:
    """One Map; small whole exponents are products."""
    x, exponent = c.x(0), c.x(1)
    if exponent.data is not None and exponent.size == 1 and len(exponent.shape) <= len(x.shape):
        value = float(dtypes.decode(exponent.data, exponent.dtype).reshape(()))
        if value in (1, 2, 3, 4):
            c.map(lambda s: functools.reduce(Symbol.__mul__, [s] * int(value)), [x])
            return

    def function(base: Symbol, to: Symbol) -> Symbol:
        result = apply("pow", to_kind(base, "real"), to_kind(to, "real"))
        return to_kind(result, base.kind)

    c.map(function, [x, exponent], dtype=x.dtype)


def clip_to(c: Conversion) -> None:
    """One Map."""
    x = c.x(0)
    if c.node.opset < 11:
        low, high = c.node.number("min", -math.inf), c.node.number("max", math.inf)
        c.map(lambda s: clip(s, low, high), [x])
        return
    given = [(name, c.x(index)) for index, name in ((1, "max"), (2, "min")) if c.has(index)]
    for _, bound in given:
        if bound.size != 1:
            raise c.node.invalid(f"its bound {bound.name!r} is not a scalar")

    def function(s: Symbol, *limits: Symbol) -> Symbol:
        for (name, _), limit in zip(given, limits, strict=True):
            s = apply(name, s, limit)
        return s

    flat = [c.reshape(bound, (), f"bound{index}") for index, (_, bound) in enumerate(given)]
    c.map(function, [x, *flat])


def cast(c: Conversion) -> None:
    """One Map."""
    x = c.x(0)
    dtype = c.dtype_of(c.node.integer("to", 0)) if c.node.op_type == "Cast" else c.x(1).dtype
    form, saturates = dtypes.dtype(dtype).format, bool(c.node.integer("saturate", 1))
    if form is None or not dtype.startswith("float8") or saturates != form.has_infinity:
        c.cast(x, dtype)  # what exceeds the range becomes what the format makes of it
        return
    largest = form.largest
    halfway = largest + 2.0 ** math.floor(math.log2(largest)) * form.unit
    """The largest value that is still rounded to `largest`."""

    def function(s: Symbol) -> Symbol:
        real = to_kind(s, "real")
        if saturates:
            return clip(real, -largest, largest)
        return select(apply("abs", real) <= halfway, real, math.nan)

    c.map(function, [x], dtype=dtype)


def quantize(c: Conversion) -> None:
    """Quantize; a Map by axis, by blocks, by scales computed at run time, or to other types than 8 bits."""
    chosen = c.node.integer("output_dtype", 0)
    dtype = c.x(2).dtype if c.has(2) else c.dtype_of(chosen) if chosen else "uint8"
    found = dtypes.dtype(dtype)

    def function(s: Symbol, by: Symbol, zero: Symbol | None = None) -> Symbol:
        quotient = round_to(to_kind(s, "real") / to_kind(by, "real"), "float32")  # as onnxruntime has it
        if found.format is not None:
            return clip(quotient, -found.format.largest, found.format.largest)
        quotient = apply("rint", quotient)
        if zero is not None:
            quotient = quotient + to_kind(zero, "real")
        return apply("trunc", clip(quotient, *map(float, found.range)))

    _by_scales(c, function, dtype, zero_point=found.format is None)


def dequantize(c: Conversion) -> None:
    """Dequantize; a Map of numbers that are no quantised tensor."""
    chosen = c.node.integer("output_dtype", 0)

    def function(s: Symbol, by: Symbol, zero: Symbol | None = None) -> Symbol:
        centred = to_kind(s, "real") if zero is None else to_kind(s - zero, "real")
        return centred * by

    _by_scales(c, function, c.dtype_of(chosen) if chosen else c.x(1).dtype, zero_point=True)


def _by_scales(c: Conversion, function: Function, dtype: str, *, zero_point: bool) -> None:
    """A Map of the first input by scales and zero-points: one for all, along an axis, or by blocks."""
    x, scale = c.x(0), c.x(1)
    if scale.data is not None:
        check_scales(model_array(scale), f"tensor {scale.name} ({c.node.where})")
    block = c.node.integer("block_size", 0) if scale.size > 1 else 0
    if not block:
        given = [_along(c, index) for index in (1, 2) if c.has(index) and (index == 1 or zero_point)]
        c.map(function, [x, *given], dtype=dtype)
        return
    axis = c.axis(c.node.integer("axis", 1), len(x.shape))
    if block < 0 or x.shape[axis] % block:
        raise c.node.unsupported(
            f"blocks of {block} along axis {axis} of {list(x.shape)}: they do not divide it",
            "quantise in blocks that divide the axis, per tensor or per channel",
        )
    blocks = (*x.shape[:axis], x.shape[axis] // block, *x.shape[axis + 1 :])
    given = []
    for index in (1, 2):
        if c.has(index) and (index == 1 or zero_point):
            values = c.x(index)
            if values.shape != blocks:
                raise c.node.invalid(f"{values} for {list(x.shape)} in blocks of {block} along axis {axis}")
            given.append(c.reshape(values, (*blocks[: axis + 1], 1, *blocks[axis + 1 :]), f"blocks{index}"))
    inside = c.reshape(x, (*blocks[: axis + 1], block, *blocks[axis + 1 :]), "blocks0")
    c.reshape(c.map(function, [inside, *given], "blocks", dtype=dtype), x.shape)


def _along(c: Conversion, index: int) -> Tensor:
    """Scales or zero-points, so shaped that they lie along the node's axis of its first input."""
    x, values = c.x(0), c.x(index)
    if values.size == 1:
        return c.reshape(values, (), f"scalar{index}")
    axis = c.axis(c.node.integer("axis", 1), len(x.shape))
    if values.shape != (x.shape[axis],):
        raise c.node.invalid(f"{list(values.shape)} scales or zero-points for axis {axis} of {list(x.shape)}")
    return c.reshape(
        values, [extent if i == axis else 1 for i, extent in enumerate(x.shape)], f"along{index}"
    )
