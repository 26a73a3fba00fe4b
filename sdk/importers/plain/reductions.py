"""Reductions and normalisations: Reduce*, ArgMax, Softmax, LayerNormalization and their like.

What lies between the parts of one operator is kept in float32, even where its tensors are float16.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from sdk import dtypes
from sdk.expression.trace import Symbol, apply, select
from sdk.graph import (
    NO_CLAMP,
    AveragePool,
    GlobalAveragePool,
    Normalize,
    Reduce,
    Softmax,
    Tensor,
)
from sdk.importers.plain.conversion import Conversion, Expr, to_kind, wide

Before = Callable[[Symbol], Symbol]


def reduction(
    kind: str, before: Expr | None = None, after: Expr | None = None
) -> Callable[[Conversion], None]:
    """The handler of a Reduce of `kind`, behind a Map of each element and before one of each result."""

    def handler(c: Conversion) -> None:
        x, (axes, shape) = c.x(0), _reduced(c)
        inner = "uint8" if x.dtype == "bool" else wide(x.dtype)
        if x.dtype == "bool":
            x = c.cast(x, inner, "elements")
        elif before is not None:
            last = not axes and after is None
            x = c.map(before, [x], "" if last else "elements", dtype=x.dtype if last else inner)
        elif after is not None:
            x = c.cast(x, inner, "elements")
        if axes:
            part = "" if after is None and x.dtype == c.x(0).dtype else kind
            x = c.make(Reduce, [x], part, shape=shape, kind=kind, axes=axes)
            if not part:
                return
        elif before is None and after is None:
            c.same(x)
            return
        if after is not None:
            c.map(after, [x], dtype=c.x(0).dtype)
        elif axes:
            c.cast(x, c.x(0).dtype)

    handler.__doc__ = "Reduce; a Map of the elements before it, of the results behind it."
    return handler


def _reduced(c: Conversion) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Axes and result's shape of a Reduce operator."""
    x, node = c.x(0), c.node
    since = 13 if node.op_type == "ReduceSum" else 18
    given: Sequence[int] | None = node.integers("axes") if node.opset < since else c.integers(1)
    rank = len(x.shape)
    if not given and not (node.integer("noop_with_empty_axes", 0) and node.opset >= since):
        given = range(rank)
    axes = c.axes(given or (), rank)
    if node.integer("keepdims", 1):
        return axes, tuple(1 if i in axes else extent for i, extent in enumerate(x.shape))
    return axes, tuple(extent for i, extent in enumerate(x.shape) if i not in axes)


def reduce_log_sum_exp(c: Conversion) -> None:
    """Reduce, less the largest element, so that nothing overflows."""
    x, (axes, shape) = c.x(0), _reduced(c)
    if not axes:
        c.same(x)
        return
    kept = tuple(1 if i in axes else extent for i, extent in enumerate(x.shape))
    inner = wide(x.dtype)
    largest = c.make(Reduce, [x], "max", shape=kept, kind="max", axes=axes)
    powers = c.map(lambda s, m: apply("exp", s - m), [x, largest], "exp", dtype=inner)
    total = c.make(Reduce, [powers], "sum", shape=kept, kind="sum", axes=axes)
    last = "" if kept == shape else "log"
    result = c.map(lambda s, m: apply("log", s) + m, [total, largest], last, dtype=x.dtype)
    if last:
        c.reshape(result, shape)


def arg(kind: str) -> Callable[[Conversion], None]:
    """The handler of ArgMax and ArgMin."""

    def handler(c: Conversion) -> None:
        x = c.x(0)
        axis = c.axis(c.node.integer("axis", 0), len(x.shape))
        extent = x.shape[axis]
        shape = [1 if i == axis else n for i, n in enumerate(x.shape)]
        if not c.node.integer("keepdims", 1):
            del shape[axis]
        backward = bool(c.node.integer("select_last_index", 0)) and extent > 1
        if backward:
            order = [range(extent - 1, -1, -1) if i == axis else range(n) for i, n in enumerate(x.shape)]
            x = c.take(x, order, "backward")
        found = c.make(
            Reduce,
            [x],
            "index" if backward else "",
            shape=tuple(shape),
            dtype="int64",
            kind=kind,
            axes=(axis,),
        )
        if backward:
            c.map(lambda i: extent - 1 - i, [found])

    handler.__doc__ = "Reduce."
    return handler


# --- softmax and its kin --------------------------------------------------------------------------------


def over_axis(function: Callable[[Conversion, Tensor, int, str], Tensor]) -> Callable[[Conversion], None]:
    """The handler of an operator over `axis`; before opset 13 over all axes from that one on."""

    def handler(c: Conversion) -> None:
        x, modern = c.x(0), c.node.opset >= 13
        axis = c.axis(c.node.integer("axis", -1 if modern else 1), len(x.shape))
        if modern or math.prod(x.shape[axis + 1 :]) == 1:
            function(c, x, axis, "")
            return
        flat = c.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])), "flat")
        same = flat.shape == x.shape
        result = function(c, flat, 1, "" if same else "rows")
        if not same:
            c.reshape(result, x.shape)

    handler.__doc__ = function.__doc__
    return handler


def softmax(c: Conversion, x: Tensor, axis: int, part: str) -> Tensor:
    """Softmax."""
    return c.make(Softmax, [x], part, axis=axis)


def log_softmax(c: Conversion, x: Tensor, axis: int, part: str) -> Tensor:
    """Reduce, Map, Reduce, Map."""
    kept = tuple(1 if i == axis else extent for i, extent in enumerate(x.shape))
    largest = c.make(Reduce, [x], "max", shape=kept, kind="max", axes=(axis,))
    powers = c.map(lambda s, m: apply("exp", s - m), [x, largest], "exp", dtype=wide(x.dtype))
    total = c.make(Reduce, [powers], "sum", shape=kept, kind="sum", axes=(axis,))

    def function(s: Symbol, m: Symbol, t: Symbol) -> Symbol:
        return s - m - apply("log", t)

    return c.map(function, [x, largest, total], part, dtype=x.dtype)


def hardmax(c: Conversion, x: Tensor, axis: int, part: str) -> Tensor:
    """Reduce, Map."""
    kept = tuple(1 if i == axis else extent for i, extent in enumerate(x.shape))
    index = c.make(Reduce, [x], "index", shape=kept, dtype="int64", kind="argmax", axes=(axis,))
    c.node.require_room(8 * x.shape[axis])
    places = c.file(
        np.arange(x.shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(kept))]), "places"
    )

    def function(i: Symbol, place: Symbol) -> Symbol:
        return to_kind(apply("eq", i, place), "real")

    return c.map(function, [index, places], part, dtype=x.dtype)


# --- normalisations -------------------------------------------------------------------------------------


def layer_normalization(c: Conversion) -> None:
    """Normalize."""
    x, scale, bias = c.x(0), c.x(1), c.optional(2)
    rank = len(x.shape)
    first = c.axis(c.node.integer("axis", -1), rank)
    axes = tuple(range(first, rank))
    epsilon = c.node.number("epsilon", 1e-5)
    centre = c.node.op_type == "LayerNormalization"
    inputs = [x, scale, *([bias] if bias is not None else [])]
    c.make(Normalize, inputs, axes=axes, epsilon=epsilon, centre=centre)
    if not any(c.node.outputs[1:]):
        return
    kept = tuple(1 if i in axes else extent for i, extent in enumerate(x.shape))
    real = c.cast(x, wide(x.dtype), "real")
    average = c.make(Reduce, [real], "mean", shape=kept, kind="mean", axes=axes)
    if len(c.node.outputs) > 1 and c.node.outputs[1]:
        c.define(average, 1)
    if len(c.node.outputs) > 2 and c.node.outputs[2]:
        squares = c.map(lambda s, m: (s - m) * (s - m), [real, average], "squares")
        variance = c.make(Reduce, [squares], "variance", shape=kept, kind="mean", axes=axes)
        c.define(c.map(lambda v: 1 / apply("sqrt", v + epsilon), [variance], "inverse"), 2)


def instance_normalization(c: Conversion) -> None:
    """Normalize."""
    x = c.x(0)
    shape = (x.shape[1], *[1] * (len(x.shape) - 2))
    scale, bias = c.reshape(c.x(1), shape, "scale"), c.reshape(c.x(2), shape, "bias")
    axes, epsilon = tuple(range(2, len(x.shape))), c.node.number("epsilon", 1e-5)
    c.make(Normalize, [x, scale, bias], axes=axes, epsilon=epsilon, centre=True)


def group_normalization(c: Conversion) -> None:
    """Normalize, between two Reshapes."""
    x, scale, bias = c.x(0), c.x(1), c.x(2)
    groups, channels = c.node.integer("num_groups", 0), x.shape[1]
    if groups < 1 or channels % groups:
        raise c.node.invalid(f"{groups} groups of {channels} channels")
    shape = (x.shape[0], groups, channels // groups, math.prod(x.shape[2:]))
    if scale.size not in (groups, channels) or bias.size != scale.size:
        raise c.node.invalid(f"{scale.size} scales and {bias.size} biases of {channels} channels")
    each = (groups, scale.size // groups, 1)
    scale, bias = c.reshape(scale, each, "scale"), c.reshape(bias, each, "bias")
    grouped, epsilon = c.reshape(x, shape, "groups"), c.node.number("epsilon", 1e-5)
    same = grouped.shape == x.shape
    result = c.make(
        Normalize,
        [grouped, scale, bias],
        "" if same else "normalized",
        axes=(2, 3),
        epsilon=epsilon,
        centre=True,
    )
    if not same:
        c.reshape(result, x.shape)


def batch_normalization(c: Conversion) -> None:
    """A Map, its scale and shift computed in float64 and rounded once to float32."""
    if c.node.integer("training_mode", 0) or any(c.node.outputs[1:]):
        raise c.node.unsupported("BatchNormalization in training mode", "export the model for inference")
    x, statistics = c.x(0), [c.x(index) for index in range(1, 5)]
    epsilon = c.node.number("epsilon", 1e-5)
    channels = x.shape[1] if len(x.shape) > 1 else 1
    along = (channels, *[1] * (len(x.shape) - 2)) if len(x.shape) > 1 else (1,)
    if any(tensor.shape != (channels,) for tensor in statistics):
        raise c.node.invalid(f"its statistics are not those of {channels} channels")
    known = [dtypes.decode(t.data, t.dtype) for t in statistics if t.data is not None]
    if len(known) == 4:
        scale, shift, average, variance = known
        factor = scale / np.sqrt(variance + epsilon)
        terms = [factor, shift - average * factor]
        constants = [
            c.file(term.astype(np.float32).reshape(along), part)
            for term, part in zip(terms, ("scale", "shift"), strict=True)
        ]
        c.map(lambda s, a, b: s * a + b, [x, *constants])
        return

    def function(s: Symbol, scale: Symbol, shift: Symbol, average: Symbol, variance: Symbol) -> Symbol:
        return (s - average) / apply("sqrt", variance + epsilon) * scale + shift

    shaped = [c.reshape(tensor, along, f"statistic{i}") for i, tensor in enumerate(statistics)]
    c.map(function, [x, *shaped])


def lp_normalization(c: Conversion) -> None:
    """Map, Reduce, Map."""
    x, p = c.x(0), c.node.integer("p", 2)
    if p not in (1, 2):
        raise c.node.invalid(f"p = {p}: it is 1 or 2")
    axis = c.axis(c.node.integer("axis", -1), len(x.shape))
    kept = tuple(1 if i == axis else extent for i, extent in enumerate(x.shape))
    terms = c.map(lambda s: apply("abs", s) if p == 1 else s * s, [x], "terms", dtype=wide(x.dtype))
    total = c.make(Reduce, [terms], "sum", shape=kept, kind="sum", axes=(axis,))

    def function(s: Symbol, t: Symbol) -> Symbol:
        return select(apply("eq", t, 0), 0, s / (t if p == 1 else apply("sqrt", t)))

    c.map(function, [x, total], dtype=x.dtype)


def local_response_normalization(c: Conversion) -> None:
    """Map, AveragePool over channels, Map."""
    x, size = c.x(0), c.node.integer("size", 1)
    alpha, beta = c.node.number("alpha", 1e-4), c.node.number("beta", 0.75)
    bias = c.node.number("bias", 1.0)
    if len(x.shape) < 3 or size < 1:
        raise c.node.invalid(f"LRN of {size} channels of {list(x.shape)}")
    squares = c.map(lambda s: s * s, [x], "squares", dtype=wide(x.dtype))
    rows = c.reshape(squares, (x.shape[0], 1, x.shape[1], math.prod(x.shape[2:])), "rows")
    means = c.make(
        AveragePool,
        [rows],
        "mean",
        kernel=(size, 1),
        strides=(1, 1),
        pads=((size - 1) // 2, 0, size // 2, 0),
        count_include_pad=True,
        clamp=NO_CLAMP,
    )

    def function(s: Symbol, m: Symbol) -> Symbol:
        return s / apply("pow", m * alpha + bias, beta)

    c.map(function, [x, c.reshape(means, x.shape, "means")], dtype=x.dtype)


def global_average_pool(c: Conversion) -> None:
    """GlobalAveragePool; of other ranks than 4 Reduce."""
    x = c.x(0)
    if len(x.shape) == 4:
        c.make(GlobalAveragePool, [x], clamp=NO_CLAMP)
    else:
        _global(c, x, "mean")


def global_max_pool(c: Conversion) -> None:
    """Reduce."""
    _global(c, c.x(0), "max")


def _global(c: Conversion, x: Tensor, kind: str) -> None:
    axes = tuple(range(2, len(x.shape)))
    shape = (*x.shape[:2], *[1] * len(axes))
    c.make(Reduce, [x], shape=shape, kind=kind, axes=axes)
