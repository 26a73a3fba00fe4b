"""The definition of every operator, in numpy, in all arithmetics. Targets are compared with it bit for bit.

An accumulator is an exact int32: the sum of products of zero-point-free integers, plus the int32 bias.
What follows is a requantisation by a positive real scale, in one of three arithmetics:

* `f32`, onnxruntime's own: ``clip(rint(float32(acc) * scale) + zero_point, clamp)``; the conversion, the
  product and the float32 scale are each rounded once, half to even, and so is `rint`.
* `q31`: ``clip((((acc << shift) * multiplier + 2^30) >> 31) + zero_point, clamp)`` in exact integers with
  the constants of `sdk.arithmetic.q31`: one rounding, half up.
* `q15`: ``clip((((acc << left) * multiplier + 2^(right-1)) >> right) + zero_point, clamp)`` in exact integers
  with the constants of `sdk.arithmetic.q15`, for Conv, ConvTranspose, Gemm, MatMul and the average pools;
  everything else is that of q31.

The scale is float32 in all, computed by `sdk.scales` in this order (sx, sw, so: of input, weight, output):

==================== ======================= ==========================================================
operator             accumulator             scale
==================== ======================= ==========================================================
Conv, Gemm           sum (x-zx)(w-zw) + bias (sx * sw) / so, per output channel where sw is
Mul                  (a-za) (b-zb)           (sa * sb) / so
Requantize           x - zx                  sx / so
GlobalAveragePool    sum (x-zx)              sx / (so * count)
AveragePool          sum (x-zx)              sx / (so * count), count per position without padding
==================== ======================= ==========================================================

Add in `f32` is ``rint((a-za) * (sa/so) + (b-zb) * (sb/so))`` in float32, each operation rounded
(onnxruntime folds the zero-points into one constant, so about 1 element in 10^5 differs by one); else
it is `sdk.arithmetic.q31_add`, which fits int32. AveragePool is a sum of integers here and of dequantised
floats in onnxruntime: where sx / (so * count) makes exact ties common (equal scales), its noise decides
them. Lookup reads its table; MaxPool and the moves are exact. Maps
of quantised tensors are what `sdk.exact_maps` says. Quantize divides
in float32 and rounds half to even; Dequantize and Softmax are float32.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sdk.arithmetic import q31_add
from sdk.errors import InternalError, Unsupported
from sdk.exact_maps import ExactMap, evaluate_exact, exact_map
from sdk.graph import (
    Add,
    Array,
    AveragePool,
    Clamp,
    Conv,
    Dequantize,
    Gemm,
    GlobalAveragePool,
    Graph,
    Lookup,
    Map,
    MaxPool,
    Mul,
    Node,
    Pad,
    Quantize,
    Requantize,
    Softmax,
    Tensor,
)
from sdk.reference import integer_islands
from sdk.reference.moves import move
from sdk.reference.requantization import Float32, Int32, centred, dtype_range, requantize, saturate
from sdk.reference.windows import padded, taps
from sdk.scales import node_scales
from sdk.target import Arithmetic


def evaluate(graph: Graph, node: Node, values: Mapping[str, Array], arithmetic: Arithmetic) -> Array:
    """One operator of a verified graph.

    Args:
        graph: holds the node's tensors; constants are read from it.
        node: any operator of the set.
        values: at least the node's input activations, by tensor name.
        arithmetic: how accumulators are requantised.

    Returns:
        The output, of its tensor's shape and dtype.
    """
    x, out = graph.tensor(node.inputs[0]), graph.tensor(node.output)

    def at(index: int) -> Array:
        data = graph.tensor(node.inputs[index]).data
        return values[node.inputs[index]] if data is None else data

    value = at(0)
    single: Arithmetic = "f32" if arithmetic == "f32" else "q31"  # of what is no sum
    match node:
        case Quantize():
            with np.errstate(over="ignore"):  # infinity saturates like any large value
                quotient = value / np.float32(out.scale)
            return saturate(np.rint(quotient), out, dtype_range(out.dtype))
        case Dequantize():
            return centred(x, value).astype(np.float32) * np.float32(x.scale)
        case Softmax() if out.quantization is None:
            exponential = np.exp(value - value.max(axis=node.axis, keepdims=True))
            return np.asarray(exponential / exponential.sum(axis=node.axis, keepdims=True), np.float32)
        case MaxPool():
            return _max_pool(node, value)
        case Conv():
            weight = graph.tensor(node.inputs[1])
            acc = _convolve(centred(x, value), _weights(weight), node)
            acc = _add_bias(graph, node, acc, (-1, 1, 1))
            scales = node_scales(graph, node).reshape(-1, 1, 1)
            return requantize(acc, scales, out, node.clamp, arithmetic)
        case Gemm():
            weight = graph.tensor(node.inputs[1])
            product = centred(x, value).astype(np.float64) @ _weights(weight).astype(np.float64).T
            acc = _add_bias(graph, node, product.astype(np.int32), (-1,))
            return requantize(acc, node_scales(graph, node), out, node.clamp, arithmetic)
        case Add():
            other = graph.tensor(node.inputs[1])
            a, b = centred(x, value), centred(other, at(1))
            return _add(a, b, node_scales(graph, node), out, node.clamp, arithmetic)
        case Mul():
            other = graph.tensor(node.inputs[1])
            acc = centred(x, value) * centred(other, at(1))
            return requantize(acc, node_scales(graph, node), out, node.clamp, single)
        case Map():
            return evaluate_exact(_exact(graph, node, arithmetic), values).astype(out.dtype)
        case Lookup():
            return at(1)[value.astype(np.int32) - dtype_range(x.dtype)[0]]
        case Pad():
            return padded(value, node.pads, x.zero_point)
        case Requantize():
            return requantize(centred(x, value), node_scales(graph, node), out, node.clamp, single)
        case GlobalAveragePool():
            acc = centred(x, value).sum(axis=(2, 3), keepdims=True, dtype=np.int32)
            return requantize(acc, node_scales(graph, node), out, node.clamp, arithmetic)
        case AveragePool():
            acc = _sum_pool(node, centred(x, value))
            return requantize(acc, node_scales(graph, node), out, node.clamp, arithmetic)
        case _ if isinstance(node, integer_islands.DEFINED):
            given = [at(index) for index in range(len(node.inputs))]
            return integer_islands.evaluate(graph, node, given, "q15" if arithmetic == "q15" else "q31")
        case _:
            moved = move(node, [at(index) for index in range(len(node.inputs))], out.shape, None)
            if moved is None:
                raise InternalError(f"{node.op} has no definition", where=f"node {node.name}")
            return moved


def _exact(graph: Graph, node: Map, arithmetic: Arithmetic) -> ExactMap:
    """Its form; what `q31` does not define runs on the host, in `f32`."""
    try:
        return exact_map(graph, node, arithmetic)
    except Unsupported:
        return exact_map(graph, node, "f32")


def _add(a: Int32, b: Int32, scales: Float32, out: Tensor, clamp: Clamp, arithmetic: Arithmetic) -> Array:
    """The sum of centred integers with a scale each, as the output's dtype."""
    scale_a, scale_b = scales
    if arithmetic == "f32":
        return saturate(np.rint(a.astype(np.float32) * scale_a + b.astype(np.float32) * scale_b), out, clamp)
    c = q31_add(float(scale_a), float(scale_b))
    total = a * np.int32(c.a_multiplier) + b * np.int32(c.b_multiplier) + (1 << c.shift >> 1)
    return saturate(total >> c.shift, out, clamp)


def _weights(weight: Tensor) -> Int32:
    assert weight.data is not None  # verified
    assert weight.quantization is not None
    zero_point = weight.quantization.zero_point
    # The channel axis of Conv and Gemm weights is the first.
    return weight.data.astype(np.int32) - zero_point.reshape((-1,) + (1,) * (weight.data.ndim - 1))


def _add_bias(graph: Graph, node: Node, acc: Int32, shape: tuple[int, ...]) -> Int32:
    bias = graph.tensor(node.inputs[2]).data if len(node.inputs) > 2 else None
    return acc if bias is None else acc + bias.reshape(shape)


def _convolve(x: Int32, weight: Int32, node: Conv) -> Int32:
    """Exact int32 accumulators [N,O,rows,columns] of centred inputs and weights."""
    batch, channels = x.shape[:2]
    outputs, per_group, kh, kw = weight.shape
    found = taps(padded(x, node.pads), (kh, kw), node.strides, node.dilations)
    if per_group == 1 and node.group == channels:
        repeat = outputs // channels
        acc = np.zeros((batch, outputs, *found[0].shape[2:]), np.int32)
        for tap, element in zip(found, weight.reshape(outputs, -1).T, strict=True):
            acc += (np.repeat(tap, repeat, axis=1) if repeat > 1 else tap) * element[:, None, None]
        return acc
    # float64 matrix products are exact below 2^53 and use the BLAS, which integer ones do not.
    columns = np.stack(found, axis=2).astype(np.float64)  # [N, C, kh*kw, rows, columns]
    columns = columns.reshape(batch, node.group, per_group * kh * kw, -1)
    matrix = weight.reshape(node.group, outputs // node.group, -1).astype(np.float64)
    return (matrix @ columns).astype(np.int32).reshape(batch, outputs, *found[0].shape[2:])


def _sum_pool(node: AveragePool, x: Int32) -> Int32:
    found = taps(padded(x, node.pads), node.kernel, node.strides, (1, 1))
    acc = np.zeros(found[0].shape, np.int32)
    for tap in found:
        acc += tap
    return acc


def _max_pool(node: MaxPool, x: Array) -> Array:
    around = padded(x, node.pads, dtype_range(str(x.dtype))[0])  # the smallest value never wins
    found = taps(around, node.kernel, node.strides, node.dilations)
    return np.asarray(np.maximum.reduce(found))
