"""The definitions of what `sdk.integer_islands` puts on quantised tensors: exact integers, in `q31` alone.

Sums of products (ConvTranspose, MatMul) have a definition in `q15` too.

==================== ======================= ==========================================================
operator             accumulator             scale
==================== ======================= ==========================================================
ConvTranspose        sum (x-zx)(w-zw) + bias (sx * sw) / so, per output channel where sw is
MatMul               sum (a-za)(b-zb) + bias (sa * sb) / so, per column where sb is
Fill                 x - zx                  sx / so
Interpolate          `integer_taps`          within the weights, as sx / so
Reduce, sum          sum (x-zx)              sx / so
Reduce, mean         sum (x-zx)              sx / (so * count)
Reduce, max and min  max (x-zx), min (x-zx)  sx / so
==================== ======================= ==========================================================

An accumulator is an exact int32, requantised with one rounding, half up, as `sdk.reference.quantized` says.
The border of a Fill is its value quantised: ``saturate(rint(value / so) + zo)``, half to even.

Softmax is ``(e * multiplier + 2^30) >> 31``, with ``e = rint(2^22 exp(-d sx))``, d an element's distance from
the maximum, and the multiplier ``rint(2^31 / so) // sum(e)`` (`sdk.arithmetic.q31_softmax`; with more than
511 elements both sides of the division lose their last bits). At most one element in a thousand differs
from the rounded real result, by 1.

Normalize over n integers q: what is normalised is ``t = n q - sum(q)``, and ``n sum(q^2) - sum(q)^2 + e`` its
square, with ``e = epsilon n^2 / sx^2``. Without centre t is ``n (q - zx)``, and its square n times the sum of
the squares of q - zx, and e. The square is D, an integer of units of 2^-14, 1 at least. It is shifted right
by 2a bits to d, of 31 or 32 bits; ``m = min(2^54 // isqrt(d 2^16), 2^31 - 1)`` is its root's reciprocal,
``((t << 14 - a) m + 2^30) >> 31`` the normalised value with 22 bits behind the point (where a is 15, m is
shifted right instead). Factors and offsets come from `sdk.arithmetic.q31_normalize`, each multiplication with
one rounding, half up. The result is within 0.51 steps of the real one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sdk.arithmetic import SPREAD_BITS, q31_softmax
from sdk.errors import InternalError
from sdk.graph import (
    Array,
    ConvTranspose,
    Fill,
    Graph,
    Interpolate,
    MatMul,
    Node,
    Normalize,
    Reduce,
    Softmax,
    Tensor,
)
from sdk.reference.requantization import Int32, centred, dtype_range, requantize, saturate
from sdk.reference.sums import spread_out
from sdk.scales import border, interpolation_taps, node_scales, normalization
from sdk.target import Arithmetic

DEFINED = (ConvTranspose, Fill, Interpolate, MatMul, Normalize, Reduce, Softmax)
"""Families that have a definition here; their first input and output are quantised."""


def evaluate(graph: Graph, node: Node, given: Sequence[Array], products: Arithmetic) -> Array:
    """One such operator of a verified graph.

    Args:
        graph: holds the node's tensors.
        node: of `DEFINED`.
        given: all inputs of the node as they are stored, constants too.
        products: in which sums of products are requantised, q31 or q15.

    Returns:
        The output, of its tensor's shape and dtype.
    """
    match node:
        case MatMul():
            return _matmul(graph, node, given, products)
        case ConvTranspose():
            return _conv_transpose(graph, node, given, products)
        case Interpolate():
            return _interpolate(graph, node, given)
        case Fill():
            return _fill(graph, node, given[0])
        case Reduce():
            return _reduce(graph, node, given[0])
        case Softmax():
            return _softmax(graph, node, given[0])
        case Normalize():
            return _normalize(graph, node, given[0])
        case _:
            raise InternalError(f"{node.op} has no definition on integers", where=f"node {node.name}")


def _matmul(graph: Graph, node: MatMul, given: Sequence[Array], products: Arithmetic) -> Array:
    left, right = (graph.tensor(name) for name in node.inputs[:2])
    a, b = centred(left, given[0]), _centred_weight(right, given[1])
    if node.transposed:
        b = b.swapaxes(-1, -2)
    # float64 matrix products are exact below 2^53 and use the BLAS, which integer ones do not.
    acc = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int32)
    if len(given) > 2:
        acc += given[2]
    out = graph.tensor(node.output)
    return requantize(acc, node_scales(graph, node), out, dtype_range(out.dtype), products)


def _conv_transpose(graph: Graph, node: ConvTranspose, given: Sequence[Array], products: Arithmetic) -> Array:
    x, weight, out = (graph.tensor(name) for name in (*node.inputs[:2], node.output))
    value, matrix = centred(x, given[0]), _centred_weight(weight, given[1])
    acc = spread_out(value.astype(np.float64), matrix.astype(np.float64), node).astype(np.int32)
    if len(given) > 2:
        acc += given[2].reshape(-1, 1, 1)
    scales = node_scales(graph, node).reshape(-1, 1, 1)
    return requantize(acc, scales, out, dtype_range(out.dtype), products)


def _interpolate(graph: Graph, node: Interpolate, given: Sequence[Array]) -> Array:
    value, rows, _, columns, _ = given
    x, out = graph.tensor(node.inputs[0]), graph.tensor(node.output)
    taps = interpolation_taps(graph, node)
    picked = centred(x, value)[:, :, rows]  # [N, C, H', taps, W]
    down = (picked * taps.rows[..., None]).sum(axis=3)
    acc = (down[..., columns] * taps.columns).sum(axis=-1)
    return saturate((acc + (1 << taps.shift >> 1)) >> taps.shift, out, dtype_range(out.dtype))


def _fill(graph: Graph, node: Fill, value: Array) -> Array:
    x, out = graph.tensor(node.inputs[0]), graph.tensor(node.output)
    inside = requantize(centred(x, value), node_scales(graph, node), out, dtype_range(out.dtype), "q31")
    spans = tuple(zip(node.befores, node.afters, strict=True))
    return np.pad(inside, spans, constant_values=border(node, out))


def _centred_weight(weight: Tensor, value: Array) -> Int32:
    """Integers less their zero-points, which may be one for each channel."""
    if weight.quantization is None or weight.quantization.axis is None:
        return centred(weight, value)
    shape = [-1 if axis == weight.quantization.axis else 1 for axis in range(value.ndim)]
    return value.astype(np.int32) - weight.quantization.zero_point.reshape(shape)


def _reduce(graph: Graph, node: Reduce, given: Array) -> Array:
    x, out = graph.tensor(node.inputs[0]), graph.tensor(node.output)
    value = centred(x, given)
    match node.kind:
        case "max" | "min":
            acc = (np.max if node.kind == "max" else np.min)(value, axis=node.axes)
        case _:
            acc = value.sum(axis=node.axes, dtype=np.int32)
    return requantize(acc.reshape(out.shape), node_scales(graph, node), out, dtype_range(out.dtype), "q31")


def _softmax(graph: Graph, node: Softmax, given: Array) -> Array:
    x, out = graph.tensor(node.inputs[0]), graph.tensor(node.output)
    constants = q31_softmax(x.scale, out.scale, x.shape[node.axis])
    value = given.astype(np.int32)
    exponentials = constants.exponentials[value.max(axis=node.axis, keepdims=True) - value]
    total = exponentials.sum(axis=node.axis, keepdims=True) >> constants.shift
    multiplier = constants.dividend // total
    return saturate((exponentials * multiplier + 2**30) >> 31, out, dtype_range(out.dtype))


def _normalize(graph: Graph, node: Normalize, value: Array) -> Array:
    x, out = graph.tensor(node.inputs[0]), graph.tensor(node.output)
    constants = normalization(graph, node)
    count = math.prod(x.shape[axis] for axis in node.axes)
    if node.centre:
        q = value.astype(np.int64)
        total = q.sum(axis=node.axes, keepdims=True)
        distance, below = count * q - total, total**2
    else:
        q = centred(x, value).astype(np.int64)
        distance, below = count * q, 0
    spread = count * (q**2).sum(axis=node.axes, keepdims=True) - below
    spread = np.maximum((spread << SPREAD_BITS) + constants.epsilon, 1)
    length = np.frexp(spread)[1]
    length -= spread >> (length - 1) == 0  # as a float it was rounded up to a power of two
    half = (length - 31) >> 1
    spread = np.where(half < 0, spread << np.maximum(-2 * half, 0), spread >> np.maximum(2 * half, 0))
    root = np.floor(np.sqrt((spread << 16).astype(np.float64))).astype(np.int64)  # exact below 2^52
    reciprocal = np.minimum(2**54 // root, 2**31 - 1) >> np.maximum(half - 14, 0)
    unit = ((distance << np.maximum(14 - half, 0)) * reciprocal + 2**30) >> 31
    scaled = (((unit << constants.shift) * constants.factors + 2**30) >> 31) + constants.offsets
    rounded = (scaled + (1 << constants.bits >> 1)) >> constants.bits
    return saturate(rounded, out, dtype_range(out.dtype))
