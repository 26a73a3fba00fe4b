"""Reduce, TopK and the Scatters that reduce, with the error that a target may make of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from sdk import graph as ops
from sdk.errors import InvalidInput
from sdk.expression import Interval
from sdk.graph import Array
from sdk.reference import moves
from sdk.reference.spread import Spread
from sdk.reference.sums import summed, unit_of


def reduce(node: ops.Reduce, x: Spread, shape: tuple[int, ...], precision: str | None) -> Spread:
    """Of any kind; of indices the smallest and largest that inputs within their error give."""
    axes = node.axes
    if node.kind in ("argmax", "argmin"):
        return _arg(node, x, shape)
    functions: dict[str, Callable[..., Array]] = {
        "sum": np.sum,
        "mean": np.sum,
        "max": np.max,
        "min": np.min,
        "prod": np.prod,
    }
    function: Callable[..., Array] = functions[node.kind]

    def reduced(array: Array) -> Array:
        return np.asarray(function(array, axis=axes)).reshape(shape)

    value = reduced(x.value)
    count = math.prod(x.value.shape[axis] for axis in axes)
    if node.kind == "mean":
        value = value / count if value.dtype.kind == "f" else value // count
    if precision is None or value.dtype.kind != "f":
        return Spread(value)
    if node.kind in ("max", "min"):
        return (
            Spread.of(Interval(value, reduced(x.low), reduced(x.high), None))
            if not x.is_exact
            else Spread(value)
        )
    unit, smallest = unit_of(precision)
    if node.kind == "prod":
        share = np.abs(x.reach / np.where(x.value == 0, 1, x.value))
        relative = np.exp(np.sum(np.log1p(share), axis=axes)).reshape(shape) - 1 + 2 * count * unit
        return Spread.around(value, np.abs(value) * relative + smallest)
    divisor = count if node.kind == "mean" else 1
    magnitude = np.sum(np.abs(x.value), axis=axes).reshape(shape) / divisor
    carried: Array | float = 0.0
    if not x.is_exact:
        carried = np.sum(np.asarray(x.reach), axis=axes).reshape(shape) / divisor
    return summed(value, magnitude, count + 4, precision, carried)


def _arg(node: ops.Reduce, x: Spread, shape: tuple[int, ...]) -> Spread:
    """Of exact inputs exact: the first of equals, a NaN before everything."""
    (axis,) = node.axes
    find = np.argmax if node.kind == "argmax" else np.argmin
    value = find(x.value, axis=axis).astype(np.int64).reshape(shape)
    if x.is_exact:
        return Spread(value)
    sign = 1 if node.kind == "argmax" else -1
    best = np.max(np.minimum(sign * x.low, sign * x.high), axis=axis, keepdims=True)
    rival = np.maximum(sign * x.low, sign * x.high) >= best
    index = np.arange(x.value.shape[axis]).reshape([-1 if i == axis else 1 for i in range(x.value.ndim)])
    low = np.min(np.where(rival, index, x.value.shape[axis]), axis=axis).reshape(shape)
    high = np.max(np.where(rival, index, -1), axis=axis).reshape(shape)
    return Spread(value, value - low, high - value, low != high)


def top_k(node: ops.TopK, x: Spread) -> Spread:
    """Of exact inputs exact; any index of others."""
    values = np.moveaxis(x.value, node.axis, -1)
    if node.largest:  # the last of the increasing order of the reversed axis is the first of equals
        order = values.shape[-1] - 1 - np.argsort(values[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    else:
        order = np.argsort(values, axis=-1, kind="stable")
        numbers = np.take_along_axis(values, order, -1) == np.take_along_axis(values, order, -1)
        order = np.take_along_axis(order, np.argsort(numbers, axis=-1, kind="stable"), -1)
    value = np.moveaxis(order[..., : node.k], -1, node.axis).astype(np.int64)
    if x.is_exact:
        return Spread(value)
    return Spread(value, value, values.shape[-1] - 1 - value, np.ones(value.shape, bool))


def combined(node: ops.Scatter, inputs: Sequence[Spread], precision: str | None) -> Spread:
    """A Scatter with a reduction: sums and products of as many terms as indices name an element."""
    data, indices, updates = inputs
    functions = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
    where = _places(node, indices.value, data.value.shape)

    def scattered(into: Array, parts: Array, kind: str = node.reduction) -> Array:
        result = into.copy()
        functions[kind].at(result, where, parts)
        return result

    value = scattered(data.value, updates.value)
    if precision is None or value.dtype.kind != "f":
        return Spread(value)
    if node.reduction in ("max", "min"):
        if data.is_exact and updates.is_exact:
            return Spread(value)
        low, high = scattered(data.low, updates.low), scattered(data.high, updates.high)
        return Spread.of(Interval(value, low, high, None))
    sizes = np.abs(data.value), np.abs(updates.value)
    counts = scattered(np.ones(value.shape), np.ones(updates.value.shape), "add")
    reaches = [np.zeros(spread.value.shape) + spread.reach for spread in (data, updates)]
    if node.reduction == "add":
        return summed(value, scattered(*sizes), counts, precision, scattered(reaches[0], reaches[1]))
    unit, smallest = unit_of(precision)
    largest = scattered(sizes[0] + reaches[0], sizes[1] + reaches[1])
    return Spread.around(value, largest - np.abs(value) + 2 * counts * unit * largest + smallest)


def _places(node: ops.Scatter, indices: Array, shape: tuple[int, ...]) -> tuple[Array, ...]:
    try:
        return moves.coordinates(indices, shape)
    except IndexError as problem:
        raise InvalidInput(str(problem), where=f"node {node.name}") from None
