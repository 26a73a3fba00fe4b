"""Shapes of the operators: what ONNX's specification says an output's shape is, and what a window covers.

Importers derive shapes with it, the verifier checks graphs with it, the reference takes the divisors of
average pools from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from sdk.errors import InvalidModel
from sdk.graph import (
    Add,
    AveragePool,
    Concat,
    Conv,
    ConvTranspose,
    Fill,
    Gather,
    GatherND,
    Gemm,
    GlobalAveragePool,
    GridSample,
    Interpolate,
    Map,
    MatMul,
    MaxPool,
    Mul,
    Node,
    Pad,
    Recurrent,
    Reduce,
    Region,
    Reshape,
    Resize,
    Scatter,
    Slice,
    Take,
    Tensor,
    TopK,
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
        case ConvTranspose():
            return _transposed(node, x, tensors[node.inputs[1]].shape, fail)
        case MatMul():
            return _matrices(node, x, tensors[node.inputs[1]].shape, fail)
        case Slice() | Take() | Fill():
            return _moved(node, x, tensors[node.output].shape, fail)
        case Gather():
            if not 0 <= node.axis < len(x):
                raise fail(f"Gather along axis {node.axis} of a tensor of rank {len(x)}")
            return (*x[: node.axis], *tensors[node.inputs[1]].shape, *x[node.axis + 1 :])
        case GatherND():
            return _gathered(node, x, tensors[node.inputs[1]].shape, fail)
        case Scatter():
            indices, updates = (tensors[name].shape for name in node.inputs[1:])
            if not indices or indices[-1] > len(x) or updates != (*indices[:-1], *x[indices[-1] :]):
                raise fail(f"Scatter of {list(updates)} at {list(indices)} into {list(x)}")
            return x
        case GridSample():
            grid = tensors[node.inputs[1]].shape
            if len(x) != 4 or len(grid) != 4 or grid[0] != x[0] or grid[3] != 2:
                raise fail(f"GridSample takes [N,C,H,W] and [N,H',W',2], not {list(x)} and {list(grid)}")
            return (*x[:2], *grid[1:3])
        case Interpolate():
            if len(x) != 4:
                raise fail(f"Interpolate takes [N,C,H,W], not {list(x)}")
            return (*x[:2], tensors[node.inputs[1]].shape[0], tensors[node.inputs[3]].shape[0])
        case Map():
            return broadcast([tensors[name].shape for name in node.inputs], fail)
        case Reduce():
            return _reduced(node, x, tensors[node.output].shape, fail)
        case TopK():
            if not 0 <= node.axis < len(x) or not 1 <= node.k <= x[node.axis]:
                raise fail(f"the first {node.k} along axis {node.axis} of {list(x)}")
            return (*x[: node.axis], node.k, *x[node.axis + 1 :])
        case Recurrent():
            return _recurrence(node, tensors, fail)
        case Region():
            return None
        case _:
            return x


def broadcast(shapes: Sequence[Shape], fail: Fail) -> Shape:
    """What shapes broadcast to, numpy's rule.

    Raises:
        InvalidModel: as `fail` makes it, if they do not.
    """
    try:
        return tuple(np.broadcast_shapes(*shapes))
    except ValueError:
        raise fail(f"shapes {', '.join(str(list(shape)) for shape in shapes)} do not broadcast") from None


def _transposed(node: ConvTranspose, x: Shape, weight: Shape, fail: Fail) -> Shape:
    if len(x) != 4 or len(weight) != 4:
        raise fail(f"ConvTranspose takes [N,C,H,W] and [C,O/group,kh,kw], not {list(x)} and {list(weight)}")
    if node.group < 1 or x[1] != weight[0] or x[1] % node.group:
        raise fail(f"weight {list(weight)} in {node.group} groups does not fit an input {list(x)}")
    if min(node.strides + node.dilations) < 1 or min(node.pads + node.output_padding) < 0:
        raise fail("strides and dilations must be positive, pads and output_padding not negative")
    rows, columns = (
        (x[2 + i] - 1) * node.strides[i]
        + node.dilations[i] * (weight[2 + i] - 1)
        + 1
        + node.output_padding[i]
        - node.pads[i]
        - node.pads[i + 2]
        for i in (0, 1)
    )
    if min(rows, columns) < 1:
        raise fail(f"an output of {rows} x {columns} is empty")
    return (x[0], weight[1] * node.group, rows, columns)


def _matrices(node: MatMul, a: Shape, b: Shape, fail: Fail) -> Shape:
    if len(a) < 2 or len(b) < 2 or a[-1] != (b[-1] if node.transposed else b[-2]):
        turned = " transposed" if node.transposed else ""
        raise fail(f"a matrix {list(b)}{turned} does not fit {list(a)}")
    columns = b[-2] if node.transposed else b[-1]
    return (*broadcast([a[:-2], b[:-2]], fail), a[-2], columns)


def _moved(node: Slice | Take | Fill, x: Shape, output: Shape, fail: Fail) -> Shape:
    """The output's shape; of a Slice its own, if all of it lies within x."""
    lists = (
        (node.starts, node.steps)
        if isinstance(node, Slice)
        else (node.befores, node.afters)
        if isinstance(node, Fill)
        else (node.indices,)
    )
    if any(len(values) != len(x) for values in lists):
        raise fail(f"{node.op} of {len(lists[0])} axes of a tensor of rank {len(x)}")
    match node:
        case Fill():
            if min((*node.befores, *node.afters), default=0) < 0:
                raise fail(f"a border of {list(node.befores)} and {list(node.afters)} elements")
            return tuple(sum(extents) for extents in zip(node.befores, x, node.afters, strict=True))
        case Take():
            for chosen, extent in zip(node.indices, x, strict=True):
                if not all(0 <= index < extent for index in chosen):
                    raise fail(f"it takes element {max(chosen)} of {extent}")
            return tuple(len(chosen) or extent for chosen, extent in zip(node.indices, x, strict=True))
        case Slice():
            if len(output) != len(x):
                raise fail(f"a Slice of {list(x)} is {list(output)}")
            for start, step, count, extent in zip(node.starts, node.steps, output, x, strict=True):
                if not (0 <= start < extent and 0 <= start + (count - 1) * step < extent):
                    raise fail(f"it takes {count} elements from {start} on in steps of {step}, of {extent}")
            return output


def _gathered(node: GatherND, x: Shape, indices: Shape, fail: Fail) -> Shape:
    batch = node.batch_dims
    fits = 0 <= batch < min(len(x), len(indices)) and indices[:batch] == x[:batch]
    if not fits or batch + indices[-1] > len(x):
        raise fail(f"GatherND of {list(x)} by {list(indices)} with {batch} batch axes")
    return (*indices[:-1], *x[batch + indices[-1] :])


def _reduced(node: Reduce, x: Shape, output: Shape, fail: Fail) -> Shape:
    axes = node.axes
    if len(set(axes)) != len(axes) or not all(0 <= axis < len(x) for axis in axes):
        raise fail(f"Reduce over axes {list(axes)} of a tensor of rank {len(x)}")
    if node.kind.startswith("arg") and len(axes) != 1:
        raise fail(f"{node.kind} over axes {list(axes)}: it takes one")
    kept = tuple(1 if axis in axes else extent for axis, extent in enumerate(x))
    dropped = tuple(extent for axis, extent in enumerate(x) if axis not in axes)
    return dropped if output == dropped else kept


def _recurrence(node: Recurrent, tensors: Mapping[str, Tensor], fail: Fail) -> Shape:
    body = node.body
    if node.steps < 1 or len(node.inputs) != len(body.inputs):
        raise fail(f"{node.steps} steps of a body of {len(body.inputs)} inputs, given {len(node.inputs)}")
    states = len(body.outputs)
    if states < 1 or node.sequences + states > len(node.inputs):
        raise fail(f"{node.sequences} sequences and {states} states of {len(node.inputs)} inputs")
    for index, (name, inner) in enumerate(zip(node.inputs, body.inputs, strict=True)):
        given, taken = tensors[name], body.tensor(inner)
        expected = (node.steps, *taken.shape) if index < node.sequences else taken.shape
        if given.shape != expected or given.dtype != taken.dtype:
            raise fail(f"its input {name} is {given.dtype} {list(given.shape)}, not {taken}")
    shapes = {body.tensor(name).shape for name in body.outputs}
    shapes |= {body.tensor(name).shape for name in body.inputs[node.sequences : node.sequences + states]}
    if len(shapes) != 1:
        raise fail("its states are of different shapes")
    return (node.steps, states, *shapes.pop())


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
