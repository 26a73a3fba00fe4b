"""Shapes of the operators: what ONNX's specification says an output's shape is, and what a window covers.

Importers derive shapes with it, the verifier checks graphs with it, the reference takes the divisors of
average pools from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from sdk.errors import InvalidModel
from sdk.graph import (
    Add,
    AveragePool,
    Concat,
    Conv,
    Gemm,
    GlobalAveragePool,
    MaxPool,
    Mul,
    Node,
    Pad,
    Reshape,
    Resize,
    Tensor,
    Transpose,
)

Shape = tuple[int, ...]
Fail = Callable[[str], InvalidModel]


def window_positions(
    size: Shape, kernel: Shape, strides: Shape, pads: Shape, dilations: Shape = (1, 1)
) -> tuple[int, int]:
    """Output (rows, columns) of a window sliding over (H, W); `pads` is (top, left, bottom, right)."""
    rows, columns = (
        (size[i] + pads[i] + pads[i + 2] - (dilations[i] * (kernel[i] - 1) + 1)) // strides[i] + 1
        for i in (0, 1)
    )
    return rows, columns


def window_counts(
    size: Shape, kernel: Shape, strides: Shape, pads: Shape, dilations: Shape = (1, 1)
) -> NDArray[np.int32]:
    """How many elements outside the padding each window covers: int32 of the output's (rows, columns)."""
    output = window_positions(size, kernel, strides, pads, dilations)
    counts: list[NDArray[np.int32]] = []
    for i in (0, 1):
        starts = np.arange(output[i]) * strides[i] - pads[i]
        first = np.maximum(-(starts // dilations[i]), 0)
        last = np.minimum((size[i] - 1 - starts) // dilations[i], kernel[i] - 1)
        counts.append(np.maximum(last - first + 1, 0).astype(np.int32))
    return np.outer(*counts)


def output_shape(node: Node, tensors: Mapping[str, Tensor]) -> Shape | None:
    """The shape that `node` gives its output, or None for Reshape, whose output tensor says it.

    Args:
        node: any operator of the set.
        tensors: at least the node's inputs.

    Raises:
        InvalidModel: the inputs' ranks or sizes do not fit the operator.
    """

    def fail(message: str) -> InvalidModel:
        return InvalidModel(message, where=f"node {node.name}")

    x = tensors[node.inputs[0]].shape
    match node:
        case Reshape():
            return None
        case Conv():
            weight = tensors[node.inputs[1]].shape
            if len(x) != 4 or len(weight) != 4:
                raise fail(f"Conv takes [N,C,H,W] and [O,C/group,kh,kw], not {list(x)} and {list(weight)}")
            if node.group < 1 or x[1] != weight[1] * node.group or weight[0] % node.group:
                raise fail(f"weight {list(weight)} in {node.group} groups does not fit an input {list(x)}")
            spatial = _windows(x, weight[2:], node.strides, node.pads, node.dilations, fail)
            return (x[0], weight[0], *spatial)
        case Gemm():
            weight = tensors[node.inputs[1]].shape
            if len(x) != 2 or len(weight) != 2 or x[1] != weight[1]:
                raise fail(f"a matrix [out,in] {list(weight)} does not fit an input {list(x)}")
            return (x[0], weight[0])
        case Add():
            other = tensors[node.inputs[1]].shape
            if x != other:
                raise fail(f"Add takes two tensors of equal shape, not {list(x)} and {list(other)}")
            return x
        case Mul():
            other = tensors[node.inputs[1]].shape
            if len(x) != len(other) or any(b not in (a, 1) for a, b in zip(x, other, strict=True)):
                raise fail(f"Mul of {list(x)} by {list(other)}: along each axis the second is equal, or 1")
            return x
        case Concat():
            others = [tensors[name].shape for name in node.inputs]
            if not 0 <= node.axis < len(x):
                raise fail(f"Concat along axis {node.axis} of tensors of rank {len(x)}")
            rest = {shape[: node.axis] + shape[node.axis + 1 :] for shape in others if len(shape) == len(x)}
            if len(rest) != 1 or any(len(shape) != len(x) for shape in others):
                raise fail(f"Concat of {', '.join(str(list(shape)) for shape in others)}")
            return (*x[: node.axis], sum(shape[node.axis] for shape in others), *x[node.axis + 1 :])
        case Transpose():
            if sorted(node.perm) != list(range(len(x))):
                raise fail(f"perm {list(node.perm)} of a tensor of rank {len(x)}")
            return tuple(x[axis] for axis in node.perm)
        case Resize() | Pad():
            if len(x) != 4:
                raise fail(f"{node.op} takes [N,C,H,W], not {list(x)}")
            if isinstance(node, Resize):
                _check_sources(node, x, fail)
                return (x[0], x[1], len(node.rows), len(node.columns))
            top, left, bottom, right = node.pads
            if min(node.pads) < 0:
                raise fail(f"pads {list(node.pads)}: none may be negative")
            return (x[0], x[1], top + x[2] + bottom, left + x[3] + right)
        case AveragePool() | MaxPool():
            if len(x) != 4:
                raise fail(f"{node.op} takes [N,C,H,W], not {list(x)}")
            dilations = node.dilations if isinstance(node, MaxPool) else (1, 1)
            spatial = _windows(x, node.kernel, node.strides, node.pads, dilations, fail)
            if window_counts(x[2:], node.kernel, node.strides, node.pads, dilations).min() == 0:
                raise fail("a pooling window lies wholly in the padding")
            return (x[0], x[1], *spatial)
        case GlobalAveragePool():
            if len(x) != 4:
                raise fail(f"GlobalAveragePool takes [N,C,H,W], not {list(x)}")
            return (x[0], x[1], 1, 1)
        case _:
            return x


def _check_sources(node: Resize, x: Shape, fail: Fail) -> None:
    for sources, extent in ((node.rows, x[2]), (node.columns, x[3])):
        if not sources or not all(0 <= source < extent for source in sources):
            raise fail(f"Resize reads {list(sources)} of {extent} rows or columns")


def _windows(x: Shape, kernel: Shape, strides: Shape, pads: Shape, dilations: Shape, fail: Fail) -> Shape:
    if min(kernel + strides + dilations) < 1 or min(pads) < 0:
        raise fail("kernel, strides and dilations must be positive, pads not negative")
    spatial = window_positions(x[2:], kernel, strides, pads, dilations)
    if math.prod(spatial) >= 2**31:
        raise fail(f"an output of {spatial[0]} x {spatial[1]} exceeds 2^31 - 1 positions")
    if min(spatial) < 1:
        raise fail(f"a window of {list(kernel)} does not fit into an input {list(x)}")
    return spatial
