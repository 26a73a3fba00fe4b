"""What the lowerings of all nodes share: the layers so far, and which form each tensor has in the arena.

A tensor is dense (C-order bytes), planes, or the phases of a strided window; see layout.py. Conversions are
made when a kernel first asks for a form, as calls of the layer that asks, which is the last one.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from dsp.hexagon.calls import At, Call, Fields, KernelSource, Layer, splat
from dsp.hexagon.layout import PIXEL, Pitches, Planes, Window, is_planar, plain_planes, stretches, window_of
from sdk.arena import ALIGNMENT, Blob, Buffer, align
from sdk.errors import InternalError
from sdk.graph import Graph, Node, Tensor
from sdk.target import L2, Arithmetic


@dataclass(frozen=True)
class Rows:
    """Where a kernel writes the samples of a dense tensor: each from a multiple of what it stores at once."""

    start: At
    samples: int
    step: int

    def at(self, sample: int) -> At:
        return At(self.start.buffer, self.start.delta + sample * self.step)


class Context:
    """A network on its way into layers of kernel calls.

    Attributes:
        q15: whether sums of products and of windows are requantised in q15; all else is q31.
        l2: bytes of the L2 that the layers are to work in.
        blob: constants so far, in the order in which calls read them.
        dense, planes: the forms in which tensors are there, by name.
        wholes: the planes of Concats' outputs, from their first part on.
        held: bytes in C order of tensors of which there is never more than a part.
        furthest: bytes beyond a tensor's planes that any kernel reads.
    """

    def __init__(self, graph: Graph, arithmetic: Arithmetic = "q31", l2: int = L2) -> None:
        self.graph, self.l2 = graph, l2
        self.q15 = arithmetic == "q15"
        self.pitches = Pitches(graph)
        self.blob = Blob()
        self.layers: list[Layer] = []
        self.buffers: list[Buffer] = []
        self.dense: dict[str, At] = {}
        self.planes: dict[str, Planes] = {}
        self.wholes: dict[str, Planes] = {}
        self.held: dict[str, int] = {}
        self.furthest = 0

    def ends(self, node: Node) -> tuple[Tensor, Tensor]:
        """The first input of a node, and its output."""
        return self.graph.tensor(node.inputs[0]), self.graph.tensor(node.output)

    def window(self, node: Node) -> Window:
        """The window of a Conv or a pool."""
        window = window_of(self.graph, node)
        if window is None:
            raise InternalError(f"a {node.op} without a window", where=f"node {node.name}")
        return window

    def named(self, tensor: Tensor) -> Tensor:
        """A tensor that is not the network's, with a name like its own that none of those has."""
        name = tensor.name
        while name in self.graph.tensors:
            name += "'"
        return dataclasses.replace(tensor, name=name)

    # -- layers -----------------------------------------------------------------------------------------

    def begin(self, name: str, op: str, tensor: str, macs: int = 0) -> None:
        """Begin the layer that makes `tensor`."""
        self.layers.append(Layer(name, op, tensor, macs, requantised_by=1 if self.q15 else 2))

    @property
    def layer(self) -> Layer:
        """The layer that has begun last."""
        return self.layers[-1]

    @property
    def now(self) -> int:
        return len(self.layers) - 1

    def call(
        self, kernel: KernelSource, fields: Fields, struct: str = "", reach: tuple[int, int] | None = None
    ) -> None:
        """Append a call to the layer; its descriptor is a `struct` of the kernel's name by default."""
        self.layer.calls.append(Call(kernel, struct or kernel.symbol, fields, reach, self.blob.nbytes))

    # -- where tensors are ------------------------------------------------------------------------------

    def buffer(self, name: str, nbytes: int) -> Buffer:
        now = max(self.now, 0)
        return self.keep(Buffer(name, nbytes, now, now))

    def keep(self, buffer: Buffer) -> Buffer:
        self.buffers.append(buffer)
        return buffer

    def use(self, buffer: Buffer) -> None:
        buffer.last = max(buffer.last, self.now)

    def as_dense(self, tensor: Tensor) -> At:
        """The tensor's bytes in C order, converted inside the layer if need be."""
        at = self.dense.get(tensor.name)
        if at is None:
            planes = self.as_planes(tensor)
            at = At(self.buffer(f"{tensor.name} dense", align(tensor.nbytes)))
            one_row = planes.pitch == planes.width
            for part, y in self._samples(planes, at):
                fields = {
                    "x": At(part.buffer, part.base),
                    "x_plane": part.plane,
                    "channels": part.channels,
                    "width": part.width * part.height if one_row else part.width,
                    "height": 1 if one_row else part.height,
                    "pitch": part.pitch,
                    "y": y,
                }
                self.call(KernelSource("moving.c", "unpack_output"), fields)
            self.dense[tensor.name] = at
        self.use(at.buffer)
        return at

    def as_rows(self, tensor: Tensor, unit: int) -> tuple[At, int]:
        """(start, step): the dense tensor with each of its samples from a multiple of `unit` bytes."""
        at, samples = self.as_dense(tensor), tensor.shape[0]
        nbytes = tensor.nbytes // samples
        if nbytes % unit == 0 or samples == 1:
            return at, nbytes
        step = align(nbytes, unit)
        rows = At(self.buffer(f"{tensor.name} rows", align(samples * step)))
        self._copy_rows(samples, nbytes, (at, nbytes), (rows, step))
        return rows, step

    def rows(self, tensor: Tensor, samples: int, unit: int) -> Rows:
        """Room for the samples of a tensor, of which a kernel stores `unit` bytes at once."""
        step = align(tensor.nbytes // samples, unit)
        return Rows(At(self.buffer(tensor.name, align(samples * step))), samples, step)

    def finish_rows(self, tensor: Tensor, rows: Rows) -> None:
        """The layer has made the tensor, sample by sample."""
        at, nbytes = rows.start, tensor.nbytes // rows.samples
        if nbytes != rows.step and rows.samples > 1:
            at = At(self.buffer(tensor.name, align(tensor.nbytes)))
            self._copy_rows(rows.samples, nbytes, (rows.start, rows.step), (at, nbytes))
        self.finish_dense(tensor, at)

    def _copy_rows(self, rows: int, nbytes: int, x: tuple[At, int], y: tuple[At, int]) -> None:
        fields = {"x": x[0], "x_row": x[1], "y": y[0], "y_row": y[1], "blocks": 1, "rows": rows}
        self.call(KernelSource("moving.c", "copy"), fields | {"bytes": nbytes})

    def as_planes(self, tensor: Tensor) -> Planes:
        """The tensor as planes, converted inside the layer if need be."""
        planes = self.planes.get(tensor.name)
        if planes is None and tensor.name in self.pitches.views:
            whole, sample, channel = self.pitches.views[tensor.name]
            planes = self.as_planes(self.graph.tensor(whole)).part(channel, tensor.shape[1])
            planes = self.planes[tensor.name] = planes.some(sample, tensor.shape[0])
        if planes is None:
            at = self.dense[tensor.name]
            self.use(at.buffer)
            planes = self.new_planes(tensor)
            for part, x in self._samples(planes, at):
                fields = {
                    "x": x,
                    "channels": part.channels,
                    "width": part.width,
                    "height": part.height,
                    "y": At(part.buffer, part.base),
                    "y_plane": part.plane,
                    "pitch": part.pitch,
                }
                self.call(KernelSource("layout.c", "pack_input"), fields)
            self.pad(tensor, planes)
            self.planes[tensor.name] = planes
        self.use(planes.buffer)
        return planes

    @staticmethod
    def _samples(planes: Planes, at: At) -> list[tuple[Planes, At]]:
        """The samples of a tensor as planes and as dense bytes; all at once where every plane is full."""
        whole = planes.channels % 4 == 0
        parts = stretches(planes) if whole else [(planes.some(n),) for n in range(planes.samples)]
        nbytes = planes.channels * planes.height * planes.width
        return [(part, At(at.buffer, at.delta + n * nbytes)) for n, (part,) in enumerate(parts)]

    def new_planes(self, tensor: Tensor, pitch: int | None = None) -> Planes:
        joined = self.pitches.joined.get(tensor.name)
        if joined is not None:
            whole, channel = joined
            planes = self.whole(self.graph.tensor(whole))
            self.use(planes.buffer)
            return planes.part(channel, tensor.shape[1])
        before, behind, _ = self.pitches.padding(tensor)
        pitch = pitch or self.pitches.pitch(tensor.name)
        planes = plain_planes(tensor.name, tensor, pitch, before, behind, self.now)
        self.keep(planes.buffer)
        return planes

    def whole(self, tensor: Tensor) -> Planes:
        """The planes of a Concat's output, some of whose parts may be written already."""
        if tensor.name not in self.wholes:
            self.wholes[tensor.name] = self.new_planes(tensor)
        return self.wholes[tensor.name]

    def padded(self, tensor: Tensor) -> bool:
        """Whether a layer reads around the tensor's pixels."""
        return self.pitches.padding(tensor)[2]

    def pad(self, tensor: Tensor, planes: Planes, bounded: bool = False) -> None:
        """Put the zero-point around the pixels, if a layer reads it; with `bounded`, most of it is there."""
        if not self.padded(tensor):
            return
        for (part,) in stretches(planes):
            self._pad(tensor, part, bounded)

    def _pad(self, tensor: Tensor, planes: Planes, bounded: bool) -> None:
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
        self.call(KernelSource("layout.c", "fill"), fields)
        if inner:  # of a Concat: the cells before these planes are the end of another part's last
            other = {
                "y": At(planes.buffer, planes.base - planes.plane),
                "planes": 1,
                "width": planes.pitch,
                "end": planes.height * planes.pitch * PIXEL,
            }
            self.call(KernelSource("layout.c", "fill"), fields | other)

    def finish_planes(self, tensor: Tensor, planes: Planes) -> None:
        """The layer has made the tensor as planes."""
        self.planes[tensor.name] = planes
        if is_planar(tensor):
            self.layer.start, self.layer.planes = At(planes.buffer, planes.base), planes
        else:
            self.layer.start = self.as_dense(tensor)

    def finish_dense(self, tensor: Tensor, at: At) -> None:
        """The layer has made the tensor's bytes in C order."""
        self.dense[tensor.name] = self.layer.start = at
        self.layer.planes = None
