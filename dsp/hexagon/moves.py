"""Operators that move elements and change none: Concat, Pad, Resize, Transpose, Reshape.

Planes stay planes where the rows and columns keep their order; a Transpose gives dense bytes, which is what
the Reshape behind it in a detector's head wants.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dsp.hexagon.calls import At, Call, KernelSource, Layer, splat, variant
from dsp.hexagon.forms import Forms
from dsp.hexagon.layout import PIXEL, Planes, is_planar
from sdk.arena import ALIGNMENT, align
from sdk.graph import Concat, Node, Pad, Resize, Tensor, Transpose

PERMUTE_RANK = 6
"""Axes that the permuting kernel has room for, once those that stay neighbours are one."""

STREAMS = {1: 32, PIXEL: 16}
"""The most streams that the interleaving kernel takes at once, by bytes of a unit: as many vectors."""

NHWC = (0, 2, 3, 1)


class Moves(Forms):
    """The lowering of these operators."""

    # -- Concat -----------------------------------------------------------------------------------------

    def _concat(self, layer: Layer, node: Concat, y: Tensor) -> None:
        parts = [self.graph.tensor(name) for name in node.inputs]
        if not is_planar(y):
            self._concat_dense(layer, node.axis, parts, y)
            return
        target = self._whole(y)
        done = 0  # along the axis
        for x in parts:
            source = self._planes(layer, x)
            if node.axis == 1:
                if self.pitches.joined.get(x.name) != (y.name, done):  # else it is in place already
                    self._join(layer, source, target, done)
            else:
                cell = done * target.pitch if node.axis == 2 else done
                self._copy_pixels(layer, source, target, cell)
            done += x.shape[node.axis]
        self._pad(layer, y, target)
        self._finish_planes(layer, y, target)

    def _join(self, layer: Layer, source: Planes, target: Planes, channel: int) -> None:
        """The channels of `source` from this one on of `target`."""
        shift = channel % 4
        fields = {
            "x": At(source.buffer, source.base),
            "x_plane": source.plane,
            "x_planes": source.planes,
            "y": At(target.buffer, target.base + channel // 4 * target.plane),
            "y_plane": target.plane,
            "y_planes": -(-(shift + source.channels) // 4),
            "shift": shift,
            "vectors": source.vectors,
        }
        layer.calls.append(Call(KernelSource("moving.c", "join"), "join", fields))

    def _concat_dense(self, layer: Layer, axis: int, parts: Sequence[Tensor], y: Tensor) -> None:
        at = At(self._buffer(y.name, align(y.size)))
        row, done = math.prod(y.shape[axis:]), 0
        for x in parts:
            size = math.prod(x.shape[axis:])
            fields = {
                "x": self._dense(layer, x),
                "x_row": size,
                "y": At(at.buffer, done),
                "y_row": row,
                "blocks": 1,
                "rows": math.prod(y.shape[:axis]),
                "bytes": size,
            }
            layer.calls.append(Call(KernelSource("moving.c", "copy"), "copy", fields))
            done += size
        self._finish_dense(layer, y, at)

    def _repeated(self, layer: Layer, x: Tensor, at: At, times: int) -> At:
        """The dense x repeated this many times, each time from a multiple of four bytes."""
        row = align(x.size, 4)
        copies = At(self._buffer(f"{x.name} repeated", align(times * row)))
        fields = {"x": at, "x_row": 0, "y": copies, "y_row": row, "blocks": 1, "rows": times, "bytes": x.size}
        layer.calls.append(Call(KernelSource("moving.c", "copy"), "copy", fields))
        return copies

    # -- Pad, Resize ------------------------------------------------------------------------------------

    def _copy_pixels(self, layer: Layer, source: Planes, target: Planes, cell: int) -> None:
        """All pixels of `source` to this cell of `target` and those around it."""
        fields = {
            "x": At(source.buffer, source.base),
            "x_block": source.plane,
            "x_row": source.pitch * PIXEL,
            "y": At(target.buffer, target.base + cell * PIXEL),
            "y_block": target.plane,
            "y_row": target.pitch * PIXEL,
            "blocks": source.planes,
            "rows": source.height,
            "bytes": source.width * PIXEL,
        }
        layer.calls.append(Call(KernelSource("moving.c", "copy"), "copy", fields))

    def _pad_pixels(self, layer: Layer, node: Pad, y: Tensor) -> None:
        """Fill the planes with the zero-point, and copy the picture into them."""
        top, left, _, _ = node.pads
        source = self._planes(layer, self.graph.tensor(node.inputs[0]))
        target = self._new_planes(y)
        fields = {
            "y": At(target.buffer, target.base),  # before it there may be other parts of a Concat
            "vectors": target.planes * target.plane // ALIGNMENT,
            "value": splat(y.zero_point),
        }
        layer.calls.append(Call(KernelSource("moving.c", "flood"), "flood", fields))
        self._copy_pixels(layer, source, target, top * target.pitch + left)
        self._pad(layer, y, target)
        self._finish_planes(layer, y, target)

    def _resize(self, layer: Layer, node: Resize, y: Tensor) -> None:
        source = self._planes(layer, self.graph.tensor(node.inputs[0]))
        target = self._new_planes(y)
        rows, columns = (np.array(sources) for sources in (node.rows, node.columns))
        doubled = bool((columns == np.arange(len(columns)) // 2).all())
        fields = {
            "x": At(source.buffer, source.base),
            "x_plane": source.plane,
            "y": At(target.buffer, target.base),
            "y_plane": target.plane,
            "y_row": target.pitch * PIXEL,
            "planes": target.planes,
            "rows": len(rows),
            "columns": len(columns),
            "row_table": self.blob.add((rows * source.pitch * PIXEL).astype("<i4")),
            "column_table": 0 if doubled else self.blob.add((columns * PIXEL).astype("<i4")),
            "doubled": int(doubled),
        }
        layer.calls.append(Call(KernelSource("moving.c", "resize"), "resize", fields))
        self._pad(layer, y, target)
        self._finish_planes(layer, y, target)

    # -- Transpose, Reshape -----------------------------------------------------------------------------

    def _transpose(self, node: Transpose, y: Tensor) -> None:
        x = self.graph.tensor(node.inputs[0])
        extents, steps = moved_axes(x.shape, node.perm)
        if len(extents) < 2:  # only axes of one element change places
            self._rename(node, y)
            return
        layer = self._begin(node.name, node.op, y)
        if node.perm == NHWC and is_planar(x):
            at = At(self._buffer(y.name, align(y.size)))
            source = self._planes(layer, x)
            self._interleave(
                layer,
                PIXEL,
                x=At(source.buffer, source.base),
                x_block=source.pitch * PIXEL,
                x_stream=source.plane,
                streams=source.planes,
                y=at,
                y_block=source.width * source.channels,
                bytes=source.channels,
                blocks=source.height,
                elements=source.width,
            )
        elif len(extents) <= 3 and steps[-2:] == [1, extents[-2]]:  # matrices, one or several
            at, start = At(self._buffer(y.name, align(y.size))), self._dense(layer, x)
            elements, streams = extents[-2:]
            self._interleave(
                layer,
                1,
                x=start,
                x_block=steps[0] if len(extents) == 3 else 0,
                x_stream=elements,
                streams=streams,
                y=at,
                y_block=elements * streams,
                bytes=streams,
                blocks=extents[0] if len(extents) == 3 else 1,
                elements=elements,
            )
        else:
            at = self._permuted(layer, y, self._dense(layer, x), extents, steps)
        self._finish_dense(layer, y, at)

    def _interleave(self, layer: Layer, unit: int, streams: int, **fields: At | int) -> None:
        at_once = min(1 << (streams - 1).bit_length(), STREAMS[unit])
        kernel = variant("interleave", {"UNIT": unit, "STREAMS": at_once}, {})
        layer.calls.append(Call(kernel, "interleave", {"streams": streams, **fields}))

    def _permuted(
        self, layer: Layer, tensor: Tensor, x: At, extents: Sequence[int], steps: Sequence[int]
    ) -> At:
        """A dense `tensor` of x's bytes: its axes, of these extents, go through x by these steps."""
        at = At(self._buffer(tensor.name, align(tensor.size)))
        missing = PERMUTE_RANK - len(extents)  # axes of one element go behind the first, which contexts share
        fields = {
            "x": x,
            "y": at,
            "extent": [extents[0], *[1] * missing, *extents[1:]],
            "step": [steps[0], *[0] * missing, *steps[1:]],
        }
        layer.calls.append(Call(KernelSource("moving.c", "permute"), "permute", fields))
        return at

    def _rename(self, node: Node, y: Tensor) -> None:
        """Another name for the dense bytes; only planes have to be written out first."""
        x = self.graph.tensor(node.inputs[0])
        if x.name not in self.dense_form:
            layer = self._begin(node.name, node.op, y)
            self._finish_dense(layer, y, self._dense(layer, x))
        self.dense_form[y.name] = self.dense_form[x.name]


def moved_axes(shape: Sequence[int], perm: Sequence[int]) -> tuple[list[int], list[int]]:
    """Extents of a transposed tensor and the steps its axes make in the original, the fewest that do.

    Axes of one element are left out, and neighbours that stay neighbours are one.
    """
    extents: list[int] = []
    steps: list[int] = []
    for axis in perm:
        extent, step = shape[axis], math.prod(shape[axis + 1 :])
        if extent == 1:
            continue
        if steps and steps[-1] == step * extent:
            extents[-1] *= extent
            steps[-1] = step
        else:
            extents.append(extent)
            steps.append(step)
    return extents, steps
