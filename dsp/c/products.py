"""Conv, ConvTranspose and MatMul of floats, summed in float."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dsp.c.context import Context
from dsp.c.elements import element
from dsp.c.walks import broadcast_steps, limited, merged, steps
from sdk.errors import Unsupported
from sdk.graph import Array, Conv, ConvTranspose, MatMul, Node, Tensor

COLUMNS, TERMS, CHUNK = 64, 128, 256
"""Of kernels/plain/products.h."""

DEPTHWISE_OUTPUTS = 4
"""Outputs of a channel up to which each channel is summed by itself."""

DEPTHWISE_TAPS = 512
"""Elements of a kernel up to which they are summed in one go."""


def conv(context: Context, node: Conv) -> None:
    (x, weight, *_), y = context.tensors(node)
    outputs = weight.shape[0] // node.group
    taps = math.prod(weight.shape[2:])
    if weight.shape[1] == 1 and outputs <= DEPTHWISE_OUTPUTS and taps <= DEPTHWISE_TAPS:
        _depthwise(context, node, x, weight, y)
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
    data = context.data(node, 1)
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
    """A call of the kernel.

    Args:
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
    fields |= _elements(x, weight, biases, y)
    places = [context.at(y.name), context.at(x.name), weights, _bias(context, biases)]
    context.call("plain/convolve", fields, *places, _panel(context, outputs))


def _depthwise(context: Context, node: Conv, x: Tensor, weight: Tensor, y: Tensor) -> None:
    fields = window_fields(node, x, y, weight.shape[2:], node.dilations)
    fields |= {"images": x.shape[0], "channels": x.shape[1], "outputs": weight.shape[0] // node.group}
    biases = context.tensors(node)[0][2:]
    fields |= _elements(x, weight, biases, y)
    places = [context.at(name) for name in (y.name, x.name, weight.name)]
    scratch = context.scratch(4 * (fields["lines"] * fields["line"] + fields["columns"]))
    context.call("plain/depthwise", fields, *places, _bias(context, biases), f"(void *)({scratch})")


def window_fields(
    node: Any, x: Tensor, y: Tensor, kernel: Sequence[int], dilations: Sequence[int]
) -> dict[str, Any]:
    """Of a kernel that reads planes with their padding; this covers all that any window reads, and all of x."""
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
    (a, b, *biases), y = context.tensors(node)
    rows, columns = y.shape[-2:]
    terms = a.shape[-1]
    batch = y.shape[:-2]
    walks = [
        [step * matrix * tensor.nbytes // tensor.size for step in broadcast_steps(tensor.shape[:-2], batch)]
        for tensor, matrix in ((y, rows * columns), (a, rows * terms), (b, terms * columns))
    ]
    loops = merged(batch, *walks)
    fields = _elements(a, b, biases, y)
    fields["a_type"], fields["a_size"] = fields.pop("x_type"), fields.pop("x_size")
    fields["b_type"], size = fields.pop("weight_type"), fields.pop("weight_size")
    if len(loops) == 1 and loops[0][1][1:] == (rows * terms * fields["a_size"], 0):
        rows, loops = rows * loops[0][0], []  # the same b for all
    b_steps = (size, terms * size) if node.transposed else (columns * size, size)
    fields |= {"rows": rows, "terms": terms, "columns": columns}
    fields |= dict(zip(("b_term", "b_column"), b_steps, strict=True))
    fields |= {"loops": len(loops), "batch": declare_loops(context, loops)}
    places = [context.at(name) for name in (y.name, a.name, b.name)]
    context.call("plain/matmul", fields, *places, _bias(context, biases), _panel(context, rows))


def declare_loops(context: Context, loops: Sequence[tuple[int, Sequence[int]]]) -> str:
    """Loops for kernels/plain/loops.h; NULL for none."""
    if not loops:
        return "NULL"
    return context.declare("loop", "[]", [[extent, list(step)] for extent, step in limited(loops)])


def _elements(x: Tensor, weight: Tensor, biases: Sequence[Tensor], y: Tensor) -> dict[str, Any]:
    bias = biases[0] if biases else None
    named = {"x": x, "weight": weight, "bias": bias, "y": y}
    return {
        name: value for prefix, tensor in named.items() for name, value in element(prefix, tensor).items()
    }


def _bias(context: Context, biases: Sequence[Tensor]) -> str:
    return context.at(biases[0].name) if biases else "NULL"


def _panel(context: Context, rows: int) -> str:
    """Scratch for a panel and totals, as `float *`."""
    return f"(void *)({context.scratch(4 * COLUMNS * (TERMS + min(rows, CHUNK)))})"
