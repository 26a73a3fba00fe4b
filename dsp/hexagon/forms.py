"""Which form each tensor has in the arena, and the calls that bring it into another.

A tensor is dense (C-order bytes), planes, or the phases of a strided window; see layout.py. Conversions are
made when a kernel first asks for a form, as calls of the layer that asks.
"""

from __future__ import annotations

import numpy as np

from dsp.hexagon.calls import At, Call, Fields, KernelSource, Layer, splat
from dsp.hexagon.layout import (
    PIXEL,
    VECTOR_PIXELS,
    Pitches,
    Planes,
    Window,
    element_index,
    is_planar,
    phase_planes,
    plain_planes,
    reads_in_place,
)
from sdk.arena import ALIGNMENT, Blob, Buffer, align
from sdk.graph import Array, Clamp, Graph, Node, Tensor


class Forms:
    """The layers so far, the buffers they use, and the forms their tensors have."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.pitches = Pitches(graph)
        self.blob = Blob()
        self.layers: list[Layer] = []
        self.buffers: list[Buffer] = []
        self.dense_form: dict[str, At] = {}
        self.planes_form: dict[str, Planes] = {}
        self.wholes: dict[str, Planes] = {}  # of Concats, from their first part on
        self.furthest = 0  # bytes beyond a tensor's planes that any kernel reads

    def _begin(self, name: str, op: str, tensor: Tensor, macs: int = 0) -> Layer:
        layer = Layer(name, op, tensor.name, macs)
        self.layers.append(layer)
        return layer

    @property
    def _now(self) -> int:
        return len(self.layers) - 1

    def _buffer(self, name: str, size: int) -> Buffer:
        now = max(self._now, 0)
        return self._keep(Buffer(name, size, now, now))

    def _keep(self, buffer: Buffer) -> Buffer:
        self.buffers.append(buffer)
        return buffer

    def _use(self, buffer: Buffer) -> None:
        buffer.last = max(buffer.last, self._now)

    def _dense(self, layer: Layer, tensor: Tensor) -> At:
        """The tensor's bytes in C order, converting it inside `layer` if need be."""
        at = self.dense_form.get(tensor.name)
        if at is None:
            planes = self.planes_form[tensor.name]
            self._use(planes.buffer)
            at = At(self._buffer(f"{tensor.name} dense", align(tensor.size)))
            one_row = planes.pitch == planes.width
            fields = {
                "x": At(planes.buffer, planes.base),
                "x_plane": planes.plane,
                "channels": planes.channels,
                "width": planes.width * planes.height if one_row else planes.width,
                "height": 1 if one_row else planes.height,
                "pitch": planes.pitch,
                "y": at,
            }
            layer.calls.append(Call(KernelSource("moving.c", "unpack_output"), "unpack_output", fields))
            self.dense_form[tensor.name] = at
        self._use(at.buffer)
        return at

    def _planes(self, layer: Layer, tensor: Tensor) -> Planes:
        """The tensor as planes, converting it inside `layer` if need be."""
        planes = self.planes_form.get(tensor.name)
        if planes is None:
            at = self.dense_form[tensor.name]
            self._use(at.buffer)
            planes = self._new_planes(tensor)
            fields = {
                "x": at,
                "channels": planes.channels,
                "width": planes.width,
                "height": planes.height,
                "y": At(planes.buffer, planes.base),
                "y_plane": planes.plane,
                "pitch": planes.pitch,
            }
            layer.calls.append(Call(KernelSource("layout.c", "pack_input"), "pack_input", fields))
            self._pad(layer, tensor, planes)
            self.planes_form[tensor.name] = planes
        self._use(planes.buffer)
        return planes

    def _new_planes(self, tensor: Tensor, pitch: int | None = None) -> Planes:
        joined = self.pitches.joined.get(tensor.name)
        if joined is not None:
            whole, channel = joined
            planes = self._whole(self.graph.tensor(whole))
            self._use(planes.buffer)
            return planes.part(channel, tensor.shape[1])
        before, behind, _ = self.pitches.padding(tensor)
        pitch = pitch or self.pitches.pitch(tensor.name)
        planes = plain_planes(tensor.name, tensor, pitch, before, behind, self._now)
        self._keep(planes.buffer)
        return planes

    def _whole(self, tensor: Tensor) -> Planes:
        """The planes of a Concat's output, some of whose parts may be written already."""
        if tensor.name not in self.wholes:
            self.wholes[tensor.name] = self._new_planes(tensor)
        return self.wholes[tensor.name]

    def _padded(self, tensor: Tensor) -> bool:
        """Whether a layer reads around the tensor's pixels."""
        return self.pitches.padding(tensor)[2]

    def _pad(self, layer: Layer, tensor: Tensor, planes: Planes, bounded: bool = False) -> None:
        """Put the zero-point around the pixels, if a layer reads it; with `bounded`, most of it is there."""
        if not self._padded(tensor):
            return
        inner = planes.base > align(self.pitches.padding(tensor)[0] * PIXEL)
        end = planes.vectors * ALIGNMENT if bounded else planes.height * planes.pitch * PIXEL
        if bounded and end == planes.plane and not planes.base:
            return
        fields = {
            "y": At(planes.buffer, planes.base),
            "y_plane": planes.plane,
            "planes": planes.planes,
            "width": planes.pitch if bounded else planes.width,
            "height": planes.height,
            "pitch": planes.pitch,
            "end": end,
            "before": 0 if inner else planes.base,
            "value": splat(tensor.zero_point),
        }
        layer.calls.append(Call(KernelSource("layout.c", "fill"), "fill", fields))
        if inner:  # of a Concat: the cells before these planes are the end of another part's last
            other = {
                "y": At(planes.buffer, planes.base - planes.plane),
                "planes": 1,
                "width": planes.pitch,
                "end": planes.height * planes.pitch * PIXEL,
            }
            layer.calls.append(Call(KernelSource("layout.c", "fill"), "fill", fields | other))

    def _finish_planes(self, layer: Layer, tensor: Tensor, planes: Planes) -> None:
        self.planes_form[tensor.name] = planes
        layer.planes = planes
        layer.start = At(planes.buffer, planes.base)
        if not is_planar(tensor):
            layer.start, layer.planes = self._dense(layer, tensor), None

    def _finish_dense(self, layer: Layer, tensor: Tensor, at: At) -> None:
        self.dense_form[tensor.name] = at
        layer.start = at

    def _phases(
        self, layer: Layer, x: Tensor, window: Window, y: Tensor, pitch: int, padding: int | None
    ) -> Planes:
        """A copy of what `window` reads of x; without `padding`, cells outside the picture are undefined."""
        source = self._planes(layer, x)
        copy = phase_planes(f"{x.name} phases", x, window, y, pitch, self._now)
        self._keep(copy.buffer)
        fields = {
            "x": At(source.buffer, source.base),
            "x_plane": source.plane,
            "x_pitch": source.pitch,
            "top": copy.top,
            "left": copy.left,
            "y": At(copy.buffer, copy.base),
            "y_plane": copy.plane,
            "planes": copy.planes,
            "stride_y": copy.stride[0],
            "stride_x": copy.stride[1],
            "rows": copy.rows,
            "pitch": copy.pitch,
            "padded": int(padding is not None),
            "value": splat(padding or 0),
            "row": picture_cells(copy.top, copy.height, copy.stride[0], copy.rows),
            "column": picture_cells(copy.left, copy.width, copy.stride[1], copy.pitch),
        }
        layer.calls.append(Call(KernelSource("layout.c", "gather"), "gather", fields))
        self.furthest = max(self.furthest, (copy.left + 2 * copy.pitch * window.strides[1]) * PIXEL)
        return copy

    def _window_input(
        self, layer: Layer, node: Node, window: Window, y: Tensor, fill: int
    ) -> tuple[Planes, int, list[int]]:
        """(planes to read, pitch of the output, bytes from the output's pixel to each tap)."""
        x = self.graph.tensor(node.inputs[0])
        if reads_in_place(self.graph, node):
            planes = self._planes(layer, x)
            top, left, _, _ = window.pads
            taps = [planes.tap(row - top, column - left) for row, column in window.taps()]
            pitch = planes.pitch
        elif x.name in self.planes_form and self.planes_form[x.name].stride != (1, 1):
            planes = self.planes_form[x.name]
            self._use(planes.buffer)
            taps = [planes.tap(row, column) for row, column in window.taps()]
            pitch = planes.pitch
        else:
            pitch = self.pitches.pitch(y.name, window)
            planes = self._phases(layer, x, window, y, pitch, fill)
            taps = [planes.tap(row, column) for row, column in window.taps()]
        self.furthest = max(self.furthest, *(abs(tap) for tap in taps))
        return planes, pitch, taps


def picture_cells(before: int, size: int, stride: int, cells: int) -> list[Fields]:
    """Of each phase along one axis, the cells [begin, end) whose padded position lies within the picture."""
    result: list[Fields] = []
    for phase in range(stride):
        begin = min(max(-(-(before - phase) // stride), 0), cells)
        end = min(max(-(-(before + size - phase) // stride), begin), cells)
        result.append({"begin": begin, "end": end})
    return result


def pixel_mask(planes: Planes) -> Array:
    """uint32 per cell of a plane, whole vectors: all ones at pixels."""
    mask = np.zeros(planes.vectors * VECTOR_PIXELS, "<u4")
    mask[element_index((1, 1, planes.height, planes.width), planes.geometry).ravel() // PIXEL] = 0xFFFFFFFF
    return mask


def pixel_bounds(planes: Planes, clamp: Clamp, padding: int) -> Array:
    """uint32 [vectors, 2, 32]: the clamp at pixels, the padding's byte as both bounds elsewhere."""
    mask = pixel_mask(planes).reshape(-1, 1, VECTOR_PIXELS)
    low, high = (np.where(mask, np.uint32(splat(bound)), np.uint32(splat(padding))) for bound in clamp)
    return np.concatenate([low, high], axis=1).astype("<u4")
