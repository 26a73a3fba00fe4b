"""The scales by which a node requantises, by the table of `sdk.reference`: float32, each step rounded.

The reference and every target take them from here. They may be out of range, or infinite:
`sdk.arithmetic.require_scales` refuses those.
"""

from __future__ import annotations

import math
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from sdk.arithmetic import IntegerTaps, Q31Normalize, integer_taps, q31_normalize, scale_ratio
from sdk.errors import InternalError
from sdk.graph import (
    Add,
    AveragePool,
    Conv,
    ConvTranspose,
    Fill,
    Gemm,
    GlobalAveragePool,
    Graph,
    Interpolate,
    MatMul,
    Mul,
    Node,
    Normalize,
    Quantization,
    Reduce,
    Requantize,
    Tensor,
)
from sdk.shapes import window_counts

Float32 = NDArray[np.float32]
Mean = AveragePool | GlobalAveragePool


def weight_quantization(weight: Tensor) -> Quantization:
    """The quantisation of a weight; a verified graph has one."""
    if weight.quantization is None:
        raise InternalError(f"weight {weight.name} has no quantisation")
    return weight.quantization


def node_scales(graph: Graph, node: Node) -> Float32:
    """All scales of a node of a verified graph.

    Returns:
        float32: [O] of Conv, Gemm and quantised ConvTranspose and MatMul, for each output channel or
        column; [2] of Add, for each input; of AveragePool [rows, columns] where `counts_differ`; [] of Mul,
        Requantize, Fill, quantised Reduce and the other means; and [0] of an operator that does not
        requantise.
    """
    y = graph.tensor(node.output)
    match node:
        case Conv() | Gemm():
            x, weight = (graph.tensor(name) for name in node.inputs[:2])
            channels = np.broadcast_to(weight_quantization(weight).scale, weight.shape[:1])
            return scale_ratio(x.scale, channels, over=y.scale)
        case MatMul():
            a, b = (graph.tensor(name) for name in node.inputs[:2])
            return scale_ratio(
                a.scale, np.broadcast_to(weight_quantization(b).scale, y.shape[-1:]), over=y.scale
            )
        case ConvTranspose():
            x, weight = (graph.tensor(name) for name in node.inputs[:2])
            channels = np.broadcast_to(weight_quantization(weight).scale, weight.shape[1:2])
            return scale_ratio(x.scale, np.tile(channels, node.group), over=y.scale)
        case Add():
            return np.array([input_scale(graph, node, name) for name in node.inputs])
        case Mul():
            a, b = (graph.tensor(name) for name in node.inputs)
            return scale_ratio(a.scale, b.scale, over=y.scale)
        case Requantize() | Fill():
            return input_scale(graph, node, node.inputs[0])
        case Reduce():
            x = graph.tensor(node.inputs[0])
            count = math.prod(x.shape[axis] for axis in node.axes) if node.kind == "mean" else 1
            return _over_count(x, y, np.asarray(count, np.int32))
        case AveragePool() | GlobalAveragePool():
            return _mean_scales(graph, node, mean_counts(graph, node))
        case _:
            return np.zeros(0, np.float32)


def input_scale(graph: Graph, node: Add | Requantize | Fill, name: str) -> Float32:
    """The scale of this input of an Add, or of a Requantize or Fill: float32 []."""
    return scale_ratio(graph.tensor(name).scale, over=graph.tensor(node.output).scale)


def counts_differ(node: Node) -> TypeGuard[AveragePool]:
    """Whether the node is a mean that divides by what each window covers, and windows may cover padding."""
    return isinstance(node, AveragePool) and not node.count_include_pad and any(node.pads)


def mean_counts(graph: Graph, node: Mean) -> NDArray[np.int32]:
    """What a mean divides by: int32 [rows, columns] where `counts_differ`, else []."""
    extents = graph.tensor(node.inputs[0]).shape[2:]
    if counts_differ(node):
        return window_counts(extents, node.kernel, node.strides, node.pads)
    return np.asarray(math.prod(node.kernel if isinstance(node, AveragePool) else extents), np.int32)


def scale_table(graph: Graph, node: Node) -> Float32:
    """`node_scales`, but where `counts_differ` those for 1 element, 2, up to a whole window: [area]."""
    if counts_differ(node):
        return _mean_scales(graph, node, np.arange(1, math.prod(node.kernel) + 1, dtype=np.int32))
    return node_scales(graph, node)


def interpolation_taps(graph: Graph, node: Interpolate) -> IntegerTaps:
    """The integer weights of an Interpolate of quantised tensors.

    Raises:
        Unsupported: the ratio of its scales is out of range.
    """
    rows, columns = (graph.tensor(node.inputs[index]).data for index in (2, 4))
    if rows is None or columns is None:
        raise InternalError("weights that are not constant", where=f"node {node.name}")
    x, y = graph.tensor(node.inputs[0]), graph.tensor(node.output)
    return integer_taps(rows, columns, scale_ratio(x.scale, over=y.scale))


def normalization(graph: Graph, node: Normalize) -> Q31Normalize:
    """The q31 constants of a Normalize of quantised tensors; its factors and offsets are constants.

    Raises:
        Unsupported: q31 does not define it.
    """
    x, y = graph.tensor(node.inputs[0]), graph.tensor(node.output)
    real = [np.ones((), np.float64), np.zeros((), np.float64)]
    for index, name in enumerate(node.inputs[1:]):
        data = graph.tensor(name).data
        if data is None:
            raise InternalError("a factor that is not constant", where=f"node {node.name}")
        real[index] = data.astype(np.float64)
    count = math.prod(x.shape[axis] for axis in node.axes)
    return q31_normalize(x.scale, y.scale, count, node.epsilon, *real)


def border(node: Fill, y: Tensor) -> int:
    """The element of a quantised tensor that a Fill has around its input: its value, rounded half to even."""
    info = np.iinfo(y.dtype)
    return int(
        np.clip(np.rint(np.float32(node.value) / np.float32(y.scale)) + y.zero_point, info.min, info.max)
    )


def _mean_scales(graph: Graph, node: Mean, counts: NDArray[np.int32]) -> Float32:
    """The scales of a mean that divides by these counts: float32 of their shape."""
    return _over_count(graph.tensor(node.inputs[0]), graph.tensor(node.output), counts)


def _over_count(x: Tensor, y: Tensor, counts: NDArray[np.int32]) -> Float32:
    with np.errstate(over="ignore"):
        divisors = np.float32(y.scale) * counts.astype(np.float32)
    return scale_ratio(x.scale, over=divisors)
