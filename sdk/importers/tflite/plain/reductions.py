"""Reductions, normalisations, softmax."""

from __future__ import annotations

from collections.abc import Callable

from sdk.importers.tflite.plain.conversion import Conversion
from sdk.importers.tflite.walk import NCHW

Handler = Callable[[Conversion], None]

LONGEST_CUMSUM = 1 << 12
"""Elements of the axis of a CUMSUM, which is a product with a square matrix."""

L2_LEAST = 1e-6
"""TFLite's own: the least length by which L2_NORMALIZATION divides."""


def reduction(op_type: str, *, of_bool: bool = False) -> Handler:
    def handler(c: Conversion) -> None:
        name, order = c.native(0)
        if c.node.op == "MEAN" and not c.dtype(name).startswith("float"):
            raise c.node.unsupported(f"MEAN of {c.dtype(name)}")
        axes = sorted({c.axis(axis, len(order)) for axis in c.integers(1)}) or list(range(len(order)))
        keep = bool(c.option("ReducerOptions", "KeepDims", False))
        rest = [axis for i, axis in enumerate(order) if i not in axes]
        if not keep and rest != sorted(rest):
            name, order = c.x(0), tuple(range(len(order)))
        if of_bool:
            name = c.cast(name, "int32")
        chosen = c.constant([order[axis] for axis in axes], part="axes")
        result = c.make(op_type, name, chosen, keepdims=int(keep)) if order else name
        c.define(c.cast(result, "bool") if of_bool else result, order if keep else None)

    handler.__doc__ = f"Cast, {op_type}, Cast." if of_bool else f"{op_type}."
    return handler


def arg(op_type: str) -> Handler:
    def handler(c: Conversion) -> None:
        x = c.x(0)
        axis = c.axis(c.integer(1), c.rank(x))
        dtype = c.out.dtype
        if dtype not in ("int32", "int64"):
            raise c.node.unsupported(f"its result is {dtype}, not int32 or int64")
        c.define(c.cast(c.make(op_type, x, axis=axis, keepdims=0), dtype))

    handler.__doc__ = f"{op_type}."
    return handler


def softmax(c: Conversion) -> None:
    """Softmax; a beta other than 1 is a Mul before it."""
    name, axes = _last(c)
    if (beta := c.option("SoftmaxOptions", "Beta")) != 1:
        name = c.make("Mul", name, c.constant(beta, "float32", "beta"))
    c.define(c.make("Softmax", name, axis=axes[-1]), axes)


def log_softmax(c: Conversion) -> None:
    """LogSoftmax."""
    name, axes = _last(c)
    c.define(c.make("LogSoftmax", name, axis=axes[-1]), axes)


def _last(c: Conversion) -> tuple[str, tuple[int, ...]]:
    """The input, where its last axis is."""
    name, axes = c.native(0)
    if not axes:
        raise c.node.invalid(f"{c.node.op} of a scalar")
    return name, axes


def l2_normalization(c: Conversion) -> None:
    """ReduceL2, Max, Div."""
    name, axes = _last(c)
    length = c.make("ReduceL2", name, c.constant([axes[-1]], part="axes"), keepdims=1)
    least = c.constant(L2_LEAST, "float32", "least")
    result = c.make("Div", name, c.make("Max", length, least))
    c.define(c.activated(result, c.option("L2NormOptions", "FusedActivationFunction", 0)), axes)


def local_response_normalization(c: Conversion) -> None:
    """LRN."""
    table = "LocalResponseNormalizationOptions"
    radius = c.option(table, "Radius")
    if not 0 <= radius < 1 << 16:
        raise c.node.invalid(f"a radius of {radius}")
    size = 2 * radius + 1
    bias, alpha, beta = (float(c.option(table, name)) for name in ("Bias", "Alpha", "Beta"))
    result = c.make("LRN", c.picture(0), size=size, bias=bias, alpha=alpha * size, beta=beta)
    c.define(result, NCHW)


def cumsum(c: Conversion) -> None:
    """CumSum."""
    x = c.x(0)
    place = c.axis(c.integer(1), c.rank(x))
    if c.shape(x)[place] > LONGEST_CUMSUM:
        raise c.node.unsupported(f"{c.shape(x)[place]} elements, more than {LONGEST_CUMSUM}")
    axis = c.constant(place, part="axis")
    exclusive, backward = (bool(c.option("CumsumOptions", name, False)) for name in ("Exclusive", "Reverse"))
    c.define(c.make("CumSum", x, axis, exclusive=int(exclusive), reverse=int(backward)))
