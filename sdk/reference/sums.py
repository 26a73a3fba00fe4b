"""Sums of products, and averages, with the error that a target may make of them.

For a sum of K products in a precision of unit roundoff u it is

    2 sqrt(K) u sum|x||w|  +  K u / 4 |y|

The first term holds for errors that are independent of each other, with a margin; the second for constant
data, where they add up (measured: random data needs 0.6 of the first, a box filter of 50,176 terms 55 times
the first alone).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sdk import dtypes
from sdk import graph as ops
from sdk.errors import InternalError
from sdk.graph import Array, Graph
from sdk.reference.spread import Spread
from sdk.reference.windows import padded, taps
from sdk.shapes import window_counts

PRECISION = "float32"
"""What targets compute in, unless they say otherwise."""

HALF_SUMS = "half sums"
"""The precision of a target that adds products in half arithmetic, at most RUN of them, and these sums in
float32, where both operands and the result are float16; it computes anything else in float32."""
RUN = 16


def unit_of(precision: str) -> tuple[float, float]:
    """The unit roundoff, and the smallest normal number: smaller ones may be flushed to zero."""
    precision = PRECISION if precision == HALF_SUMS else precision
    form = dtypes.dtype(precision).format
    if form is None:
        raise InternalError(f"{precision} is not a float type")
    return form.unit, 2.0**form.lowest


def summed(
    value: Array, magnitude: Array, terms: Array | int, precision: str, carried: Array | float
) -> Spread:
    """A sum of `terms` products whose magnitudes sum to `magnitude`, with the error of its inputs."""
    unit, smallest = unit_of(precision)
    terms = np.asarray(terms, np.float64)
    lasting = terms * (unit / 4) * np.abs(value)
    reach = 2 * np.sqrt(terms) * unit * magnitude + lasting + np.sqrt(terms) * smallest + carried
    modelled = unit * magnitude + lasting / 2 + smallest + np.asarray(carried) / 4
    return Spread.around(value, reach, np.broadcast_to(modelled, value.shape))


def half_summed(exact: Spread, squares: Array, terms: Array | int) -> Spread:
    """A float32 sum, with the error of adding at most RUN of its products at a time in half arithmetic.

    Sums of different products err independently: what they reach is the root of the sum of its squares, which
    RUN times the products' own squares are never below. As in a sum of RUN products, errors of constant data
    add up.

    Args:
        exact: with the error of float32 sums.
        squares: sum of the products' squares.
        terms: how many products.
    """
    unit, smallest = unit_of("float16")
    apart = np.sqrt(RUN * squares)
    lasting = RUN * (unit / 4) * np.abs(exact.value)
    flushed = np.sqrt(np.asarray(terms, np.float64)) * smallest * unit  # half keeps subnormals
    reach = 2 * np.sqrt(RUN) * unit * apart + lasting + flushed + exact.reach
    modelled = unit * apart + lasting / 2 + flushed
    if exact.modelled is not None:
        modelled = modelled + exact.modelled
    return Spread.around(exact.value, reach, np.broadcast_to(modelled, exact.value.shape))


def product(
    graph: Graph,
    node: ops.Conv | ops.ConvTranspose | ops.MatMul,
    inputs: Sequence[Spread],
    precision: str | None,
) -> Spread:
    """Conv, ConvTranspose or MatMul, with its bias."""
    x, w = inputs[0], inputs[1]
    bias = inputs[2] if len(inputs) > 2 else None
    value = _bilinear(node, x.value, w.value)
    shape = (-1,) if isinstance(node, ops.MatMul) else (-1, 1, 1)
    if bias is not None:
        value = value + bias.value.reshape(shape)
    if precision is None or value.dtype.kind != "f":
        return Spread(value)
    x_size, w_size = np.abs(x.value), np.abs(w.value)
    magnitude = _bilinear(node, x_size.astype(np.float32), w_size.astype(np.float32)).astype(np.float64)
    carried: Array | float = 0.0
    if not x.is_exact:
        carried = carried + _bilinear(node, np.asarray(x.reach), w_size)
    if not w.is_exact:
        carried = carried + _bilinear(node, x_size + x.reach, np.asarray(w.reach))
    if bias is not None:
        magnitude = magnitude + np.abs(bias.value).reshape(shape)
        if not bias.is_exact:
            carried = carried + np.asarray(bias.reach).reshape(shape)
    weight = w.value.shape
    if isinstance(node, ops.MatMul):
        terms = x.value.shape[-1]
    elif isinstance(node, ops.ConvTranspose):  # at most: the strides leave out some
        terms = weight[0] // node.group * math.prod(weight[2:])
    else:
        terms = math.prod(weight[1:])
    found = summed(value, magnitude, terms + 1, precision, carried)
    stored = {graph.tensor(name).dtype for name in (*node.inputs[:2], node.output)}
    if precision == HALF_SUMS and stored == {"float16"}:
        return half_summed(found, _bilinear(node, x_size**2, w_size**2), terms)
    return found


def _bilinear(node: ops.Conv | ops.ConvTranspose | ops.MatMul, x: Array, w: Array) -> Array:
    match node:
        case ops.MatMul():
            return np.asarray(np.matmul(x, np.swapaxes(w, -1, -2) if node.transposed else w))
        case ops.Conv():
            return convolve(x, w, node)
        case ops.ConvTranspose():
            return spread_out(x, w, node)


def convolve(x: Array, weight: Array, node: ops.Conv) -> Array:
    """[N,C,H,W] by [O,C/group,kh,kw], in the dtype of the arrays."""
    batch, channels = x.shape[:2]
    outputs, per_group, kh, kw = weight.shape
    views = taps(padded(x, node.pads), (kh, kw), node.strides, node.dilations)
    size = views[0].shape[2:]
    if per_group == 1 and node.group == channels:
        repeat = outputs // channels
        total = np.zeros((batch, outputs, *size), x.dtype)
        for view, element in zip(views, weight.reshape(outputs, -1).T, strict=True):
            total += (np.repeat(view, repeat, axis=1) if repeat > 1 else view) * element[:, None, None]
        return total
    matrix = weight.reshape(node.group, outputs // node.group, -1)
    results = []
    for sample in range(batch):  # one at a time: the columns are kh * kw times the input
        columns = np.stack([view[sample] for view in views], axis=1)  # [C, taps, rows, columns]
        columns = columns.reshape(node.group, per_group * kh * kw, -1)
        results.append((matrix @ columns).reshape(outputs, *size))
    return np.stack(results)


def spread_out(x: Array, weight: Array, node: ops.ConvTranspose) -> Array:
    """Every element adds its multiples of the kernel to a larger sum, whose border is cut off."""
    batch, channels, height, width = x.shape
    per_group, kh, kw = weight.shape[1:]
    (sh, sw), (dh, dw) = node.strides, node.dilations
    grouped = x.reshape(batch, node.group, channels // node.group, -1)
    matrix = weight.reshape(node.group, channels // node.group, -1).transpose(0, 2, 1)
    parts = (matrix @ grouped).reshape(batch, node.group, per_group, kh, kw, height, width)
    rows = (height - 1) * sh + dh * (kh - 1) + 1 + node.output_padding[0]
    columns = (width - 1) * sw + dw * (kw - 1) + 1 + node.output_padding[1]
    total = np.zeros((batch, node.group, per_group, rows, columns), x.dtype)
    for i in range(kh):
        for j in range(kw):
            to = np.s_[
                ..., i * dh : i * dh + (height - 1) * sh + 1 : sh, j * dw : j * dw + (width - 1) * sw + 1 : sw
            ]
            total[to] += parts[:, :, :, i, j]
    total = total.reshape(batch, -1, rows, columns)
    top, left, bottom, right = node.pads
    return total[:, :, top : rows - bottom, left : columns - right]


def average(node: ops.AveragePool | ops.GlobalAveragePool, x: Spread, precision: str | None) -> Spread:
    """The mean of each window."""

    def total(array: Array) -> Array:
        if isinstance(node, ops.GlobalAveragePool):
            return np.asarray(array.sum(axis=(2, 3), keepdims=True))
        return np.asarray(sum(taps(padded(array, node.pads), node.kernel, node.strides, (1, 1))))

    if isinstance(node, ops.GlobalAveragePool):
        counts: Array = np.asarray(math.prod(x.value.shape[2:]))
    elif node.count_include_pad:
        counts = np.asarray(math.prod(node.kernel))
    else:
        counts = window_counts(x.value.shape[2:], node.kernel, node.strides, node.pads)
    value = total(x.value) / counts
    if precision is None:
        return Spread(value)
    carried = 0.0 if x.is_exact else total(np.asarray(x.reach)) / counts
    return summed(value, total(np.abs(x.value)) / counts, counts + 4, precision, carried)
