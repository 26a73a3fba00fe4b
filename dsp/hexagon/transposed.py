"""ConvTranspose by its phases.

With strides (s, t), the output's pixels (i, j) of one remainder modulo them are a convolution of stride one
with some of the kernel's taps: those of that remainder. Each of the s * t phases is computed on a common grid
of cells from one padded copy of the input; then their pixels are put side by side.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from dsp.hexagon.calls import range_fields, variant, walk
from dsp.hexagon.context import Context
from dsp.hexagon.layout import PIXEL, Planes, Window, plain_planes, stretches
from dsp.hexagon.packing import factors, fold_zero_point
from dsp.hexagon.products import tap_calls
from dsp.hexagon.windows import phases
from sdk.errors import Unsupported
from sdk.graph import Array, ConvTranspose, Tensor
from sdk.scales import node_scales

LIMITS = (0, 255)


@dataclass(frozen=True)
class _Axis:
    """One axis of the output, of `extent` pixels.

    Position u = pixel + before of the whole sum is cell u // stride of phase u % stride; tap k adds the
    input's element at that cell less k * dilation // stride to phase k * dilation % stride.
    """

    stride: int
    dilation: int
    taps: int
    before: int
    extent: int

    @property
    def first(self) -> int:
        """The cell of the first pixel, which becomes cell 0."""
        return self.before // self.stride

    @property
    def cells(self) -> int:
        return (self.before + self.extent - 1) // self.stride - self.first + 1

    @property
    def reach(self) -> int:
        """How many elements of the input a phase's sum covers at most."""
        return (self.taps - 1) * self.dilation // self.stride + 1

    @property
    def padding(self) -> int:
        """Elements before the input's first in the padded copy."""
        return self.reach - 1 - self.first

    def of_phase(self, phase: int) -> list[tuple[int, int]]:
        """Of a phase's taps: (tap, element of the padded copy for cell 0)."""
        taps = [tap for tap in range(self.taps) if tap * self.dilation % self.stride == phase]
        return [(tap, self.reach - 1 - tap * self.dilation // self.stride) for tap in taps]


def conv_transpose(context: Context, node: ConvTranspose) -> None:
    x, y = context.ends(node)
    weight = _weights(context, node)
    bias = context.graph.tensor(node.inputs[2]).data if len(node.inputs) > 2 else None
    scales = node_scales(context.graph, node)
    reach = 255 * np.abs(weight).reshape(len(weight), -1).sum(axis=1, dtype=np.int64)
    by = factors(context, scales, reach if bias is None else reach + np.abs(bias.astype(np.int64)))
    axes = [
        _Axis(node.strides[i], node.dilations[i], weight.shape[2 + i], node.pads[i], y.shape[2 + i])
        for i in (0, 1)
    ]
    if min(axis.padding for axis in axes) < 0:
        raise Unsupported("its pads cut off whole elements of the input", hint="slice the input instead")
    rows, columns = axes
    grid = dataclasses.replace(y, shape=(*y.shape[:2], rows.cells, columns.cells))
    source = _source(context, x, rows, columns, grid)
    layout = plain_planes(f"{y.name} phases", grid, source.pitch, 0, 0, context.now)
    buffer = context.buffer(layout.buffer.name, rows.stride * columns.stride * layout.nbytes)
    spent = np.zeros(2, np.int64)
    for number, (a, b) in enumerate(np.ndindex(rows.stride, columns.stride)):
        target = dataclasses.replace(layout, buffer=buffer, base=number * layout.nbytes)
        taps = [(i, j) for i in rows.of_phase(a) for j in columns.of_phase(b)]
        chosen = np.zeros((*weight.shape[:2], max(len(taps), 1)), weight.dtype)
        for index, ((i, _), (j, _)) in enumerate(taps):
            chosen[:, :, index] = weight[:, :, i, j]
        steps = [source.tap(row, column) for (_, row), (_, column) in taps] or [0]
        context.furthest = max(context.furthest, *steps)
        biases = fold_zero_point(chosen, bias, x.zero_point)
        limits = range_fields(y, LIMITS)
        spent += tap_calls(context, source, steps, target, chosen, biases, by, node.group, limits)
    context.layer.multiplies(*map(int, spent))
    _spread(context, y, rows, columns, dataclasses.replace(layout, buffer=buffer))


def _weights(context: Context, node: ConvTranspose) -> Array:
    """Less their zero-points, in the order of a convolution's: [O, C / groups, kh, kw]."""
    tensor = context.graph.tensor(node.inputs[1])
    inputs, outputs = tensor.shape[0] // node.group, tensor.shape[1]
    grouped = _centred(tensor).reshape(node.group, inputs, outputs, *tensor.shape[2:])
    return grouped.swapaxes(1, 2).reshape(node.group * outputs, inputs, *tensor.shape[2:])


def _centred(weight: Tensor) -> Array:
    """The weights less their zero-points, which lie along axis 1."""
    assert weight.data is not None  # verified
    assert weight.quantization is not None
    points = weight.quantization.zero_point
    if points.ndim:
        points = points.reshape(1, -1, 1, 1)
    return np.asarray(weight.data.astype(np.int16) - points.astype(np.int16))


def _source(context: Context, x: Tensor, rows: _Axis, columns: _Axis, grid: Tensor) -> Planes:
    """The input with zero-points around it, at the pitch of the phases; itself if it needs none."""
    planes = context.as_planes(x)
    if rows.reach == columns.reach == 1 and grid.shape[2:] == x.shape[2:] and planes.stride == (1, 1):
        return planes
    window = Window((rows.reach, columns.reach), pads=(rows.padding, columns.padding, 0, 0))
    return phases(context, x, window, grid, columns.cells + columns.reach - 1, x.zero_point)


def _spread(context: Context, y: Tensor, rows: _Axis, columns: _Axis, first: Planes) -> None:
    """The phases' pixels side by side; `first` is phase (0, 0), the others follow it."""
    target = context.new_planes(y)
    row, column = (
        np.arange(extent) + axis.before for axis, extent in ((rows, rows.extent), (columns, columns.stride))
    )
    row_table = row % rows.stride * columns.stride * first.nbytes
    row_table += (row // rows.stride - rows.first) * first.pitch * PIXEL
    column_table = column % columns.stride * first.nbytes + (column // columns.stride - columns.first) * PIXEL
    fields = {
        "y_row": target.pitch * PIXEL,
        "rows": rows.extent,
        "columns": columns.extent,
        "row_table": context.blob.add(row_table.astype("<i4")),
        "column_table": context.blob.add(column_table.astype("<i4")),
    }
    kernel = variant("spread", {"STRIDE": columns.stride}, {})
    for given, made in stretches(first, target):
        context.call(kernel, fields | walk(made, x=given), "spread")
    context.pad(y, target)
    context.finish_planes(y, target)
