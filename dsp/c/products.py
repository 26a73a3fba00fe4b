"""Conv, ConvTranspose and MatMul of floats, summed in float."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dsp.c.context import Context
from dsp.c.elements import element
from dsp.c.walks import Loop, broadcast_steps, limited, merged
from sdk.errors import Unsupported
from sdk.graph import Array, Conv, ConvTranspose, MatMul, Tensor

COLUMNS, TERMS, CHUNK, ROWS = 64, 128, 256, 4
"""Of kernels/plain/products.h."""

FEW = 3
"""Of kernels/plain/matmul.c: rows up to which a matrix is not turned."""

DEPTHWISE_OUTPUTS = 4
"""Outputs of a channel up to which each channel is summed by itself."""

DEPTHWISE_TAPS = 128
"""Elements of a kernel up to which it is (kernels/plain/channelwise.c)."""


def conv(context: Context, node: Conv) -> None:
    (x, weight, *_), y = context.tensors(node)
    outputs = weight.shape[0] // node.group
    taps = math.prod(weight.shape[2:])
    if weight.shape[1] == 1 and outputs <= DEPTHWISE_OUTPUTS and taps <= DEPTHWISE_TAPS:
        _depthwise(context, node, x, weight, y)
        return
    if y.shape[2:] == (1, 1) and weight.shape[1:] == x.shape[1:] and not any(node.pads):
        _multiply(context, node, (x.shape[0], weight.size // weight.shape[0], weight.shape[0]), [], True)
        return
    (dh, dw), (top, left) = node.dilations, node.pads[:2]
    offsets = [(i * dh - top, j * dw - left) for i in range(weight.shape[2]) for j in range(weight.shape[3])]
    sizes = (*x.shape[2:], *y.shape[2:])
    if taps == 1 and node.strides == (1, 1) and not any(node.pads):
        pixels = math.prod(x.shape[2:])  # all rows as one
        sizes = (1, pixels, 1, pixels)
    to = (0, math.prod(sizes[2:]), sizes[3], 1)
    _convolve(context, node, sizes, node.strides, offsets, context.at(weight.name), to)


def conv_transpose(context: Context, node: ConvTranspose) -> None:
    """A convolution for each position of the output modulo the strides, by the taps that reach it."""
    (x, weight, *_), y = context.tensors(node)
    if weight.data is None:
        raise Unsupported("its weights are computed at run time", hint="make them constants")
    data = weight.data
    rows, columns = y.shape[2:]
    for row in range(min(node.strides[0], rows)):
        for column in range(min(node.strides[1], columns)):
            sizes = (
                *x.shape[2:],
                -(-(rows - row) // node.strides[0]),
                -(-(columns - column) // node.strides[1]),
            )
            reached = [
                _reaching(node, axis, at, weight.shape[2 + axis]) for axis, at in enumerate((row, column))
            ]
            offsets = [(i, j) for i, _ in reached[0] for j, _ in reached[1]]
            picked = data[:, :, [tap for _, tap in reached[0]]][:, :, :, [tap for _, tap in reached[1]]]
            to = (row * columns + column, rows * columns, columns * node.strides[0], node.strides[1])
            weights = context.constant(_outputs_first(picked, node.group))
            _convolve(context, node, sizes, (1, 1), offsets, weights, to)


def _reaching(node: ConvTranspose, axis: int, at: int, kernel: int) -> list[tuple[int, int]]:
    """The taps that add to positions `at`, `at` + stride, ...: where the first reads, and which they are."""
    stride, dilation, pad = node.strides[axis], node.dilations[axis], node.pads[axis]
    found = [((at + pad - tap * dilation) / stride, tap) for tap in range(kernel)]
    return [(int(first), tap) for first, tap in found if first == int(first)]


def _outputs_first(weight: Array, groups: int) -> Array:
    """[C, O/groups, kh, kw] as [O, C/groups, kh, kw]."""
    split = weight.reshape(groups, len(weight) // groups, *weight.shape[1:])
    return np.ascontiguousarray(split.transpose(0, 2, 1, 3, 4))


def _convolve(
    context: Context,
    node: Conv | ConvTranspose,
    sizes: Sequence[int],
    strides: Sequence[int],
    offsets: Sequence[tuple[int, int]],
    weights: str,
    to: Sequence[int],
) -> None:
    """A call of the kernel `convolve`.

    Args:
        context: of the lowering.
        node: what is lowered.
        sizes: height, width, rows and columns.
        strides: of the positions in x.
        offsets: where each tap reads, at the first position.
        weights: C, [outputs, channels, taps].
        to: where the first position lies in y, and the steps to the next plane, row and column.
    """
    (x, weight, *biases), y = context.tensors(node)
    outputs = y.shape[1] // node.group
    taps = context.declare("tap", "[]", [list(offset) for offset in offsets or [(0, 0)]])
    fields: dict[str, Any] = {
        "images": x.shape[0],
        "groups": node.group,
        "channels": x.shape[1] // node.group,
    }
    fields |= {"outputs": outputs, "strides": list(strides), "count": len(offsets), "taps": taps}
    fields |= dict(zip(("height", "width", "rows", "columns"), sizes, strict=True))
    fields |= dict(zip(("start", "plane", "row", "column"), to, strict=True))
    fields |= _elements({"x": x, "weight": weight}, biases, y)
    places = [context.at(y.name), context.at(x.name), weights, _bias(context, biases)]
    context.call("plain/convolve", fields, *places, context.floats(_panel_bytes(outputs)))


def _depthwise(context: Context, node: Conv, x: Tensor, weight: Tensor, y: Tensor) -> None:
    fields = window_fields(node, x, y, weight.shape[2:], node.dilations)
    fields |= {"images": x.shape[0], "channels": x.shape[1], "outputs": weight.shape[0] // node.group}
    biases = context.tensors(node)[0][2:]
    fields |= _elements({"x": x, "weight": weight}, biases, y)
    places = [context.at(name) for name in (y.name, x.name, weight.name)]
    scratch = context.floats(4 * (fields["lines"] * fields["line"] + fields["columns"]))
    context.call("plain/channelwise", fields, *places, _bias(context, biases), scratch)


def window_fields(
    node: Any, x: Tensor, y: Tensor, kernel: Sequence[int], dilations: Sequence[int]
) -> dict[str, Any]:
    """Of a kernel that reads planes with their padding: all that any window reads, and all of x."""
    (height, width), (rows, columns) = x.shape[2:], y.shape[2:]
    lines, line = (
        max(
            (y.shape[2 + i] - 1) * node.strides[i] + (kernel[i] - 1) * dilations[i] + 1,
            node.pads[i] + x.shape[2 + i],
        )
        for i in (0, 1)
    )
    window = {"kernel": list(kernel), "strides": list(node.strides), "pads": list(node.pads[:2])}
    sizes = {"height": height, "width": width, "rows": rows, "columns": columns, "lines": lines, "line": line}
    return sizes | window | {"dilations": list(dilations)}


def matmul(context: Context, node: MatMul) -> None:
    (a, b, *_), y = context.tensors(node)
    sizes = y.shape[-2], a.shape[-1], y.shape[-1]
    matrices = ((y, sizes[0] * sizes[2]), (a, sizes[0] * sizes[1]), (b, sizes[1] * sizes[2]))
    walks = [
        [
            step * matrix * tensor.nbytes // tensor.size
            for step in broadcast_steps(tensor.shape[:-2], y.shape[:-2])
        ]
        for tensor, matrix in matrices
    ]
    _multiply(context, node, sizes, merged(y.shape[:-2], *walks), node.transposed)


def _multiply(
    context: Context, node: MatMul | Conv, sizes: tuple[int, int, int], batch: list[Loop], transposed: bool
) -> None:
    """A call of the kernel `matmul`.

    Args:
        context: of the lowering.
        node: what is lowered.
        sizes: rows, terms and columns.
        batch: loops over y, a and b, in bytes.
        transposed: whether b is [columns, terms].
    """
    (a, b, *biases), y = context.tensors(node)
    rows, terms, columns = sizes
    fields = _elements({"a": a, "b": b}, biases, y)
    size = fields.pop("b_size")
    if len(batch) == 1 and batch[0][1][1:] == (rows * terms * fields["a_size"], 0):
        rows, batch = rows * batch[0][0], []  # the same b for all
    b_term, b_column = (size, terms * size) if transposed else (columns * size, size)
    fields |= {"rows": rows, "terms": terms, "columns": columns, "b_term": b_term, "b_column": b_column}
    fields |= {"loops": len(batch), "batch": declare_loops(context, batch)}
    nbytes = max(_panel_bytes(rows), 4 * FEW * terms if rows <= FEW else 0)
    places = [context.at(y.name), context.at(a.name), context.at(b.name), _bias(context, biases)]
    context.call("plain/matmul", fields, *places, context.floats(nbytes))


def declare_loops(context: Context, loops: Sequence[Loop]) -> str:
    """Loops for kernels/plain/loops.h; NULL for none."""
    if not loops:
        return "NULL"
    return context.declare("loop", "[]", [[extent, list(step)] for extent, step in limited(loops)])


def _elements(operands: Mapping[str, Tensor], biases: Sequence[Tensor], y: Tensor) -> dict[str, Any]:
    named = {**operands, "bias": biases[0] if biases else None, "y": y}
    return {
        name: value for prefix, tensor in named.items() for name, value in element(prefix, tensor).items()
    }


def _bias(context: Context, biases: Sequence[Tensor]) -> str:
    return context.at(biases[0].name) if biases else "NULL"


def _panel_bytes(rows: int) -> int:
    """Of a panel, and of what is taken at a time: rows to be multiplied, and totals of rows."""
    return 4 * (COLUMNS * (TERMS + min(rows, CHUNK)) + ROWS * TERMS)
