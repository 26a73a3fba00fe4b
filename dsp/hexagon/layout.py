"""How a tensor lies in the arena: dense, or as planes of pixels; and which pitch its rows have.

Planes are what the kernels work on (kernels/hvx.h): four channels a plane, a word a pixel, rows at a pitch
that leaves room for the padding columns, so that a kernel sees a plane as one line of pixels and a tap of a
window as a constant distance along it. One padding column between rows serves the row before and the row
after. A strided window reads its input split into phases, for which the same holds.

Tensors that a kernel walks in step (input and output of a convolution of stride 1, the operands of Add)
must share one pitch; `Pitches` finds those classes once per graph.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sdk.arena import Buffer, align
from sdk.errors import Unsupported
from sdk.graph import (
    Add,
    AveragePool,
    Concat,
    Conv,
    Graph,
    Lookup,
    Map,
    MaxPool,
    Mul,
    Node,
    Reduce,
    Requantize,
    Slice,
    Take,
    Tensor,
)

MAX_STRIDE = 16
"""Phases along one axis that a gather descriptor has room for."""

VECTOR_PIXELS = 32
VECTOR_CHANNELS = 32
"""Channels of which gemm.c, lanes.h and pool.c make a block: a word of a vector for each."""
GROUP_CELLS = 16
"""Cells of a group of lanes.h and lane_sums.c."""
PIXEL = 4  # bytes: one per channel of the plane


@dataclass(frozen=True)
class Window:
    """A sliding window: kernel, stride, padding and dilation, each (vertical, horizontal)."""

    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilations: tuple[int, int] = (1, 1)

    @property
    def extent(self) -> tuple[int, int]:
        """Rows and columns from the first tap to the last, both included."""
        return (
            (self.kernel[0] - 1) * self.dilations[0] + 1,
            (self.kernel[1] - 1) * self.dilations[1] + 1,
        )

    def taps(self) -> Iterator[tuple[int, int]]:
        """(row, column) of each tap in the padded input, in kernel order."""
        for ky in range(self.kernel[0]):
            for kx in range(self.kernel[1]):
                yield ky * self.dilations[0], kx * self.dilations[1]

    @property
    def strided(self) -> bool:
        return self.strides != (1, 1)


def window_of(graph: Graph, node: Node) -> Window | None:
    """The window of a Conv or a pool; None for other operators.

    Raises:
        Unsupported: its stride exceeds the limit.
    """
    match node:
        case Conv():
            shape = graph.tensor(node.inputs[1]).shape
            window = Window((shape[2], shape[3]), node.strides, node.pads, node.dilations)
        case MaxPool():
            window = Window(node.kernel, node.strides, node.pads, node.dilations)
        case AveragePool():
            window = Window(node.kernel, node.strides, node.pads)
        case _:
            return None
    if max(window.strides) > MAX_STRIDE:
        reason = f"a stride of {max(window.strides)} exceeds {MAX_STRIDE}"
        raise Unsupported(reason, hint="use a smaller stride, or pool")
    return window


def is_planar(tensor: Tensor) -> bool:
    """Whether the tensor has pixels at all; everything else is dense."""
    return len(tensor.shape) == 4 and tensor.shape[2] * tensor.shape[3] > 1


def is_pointwise(graph: Graph, node: Node) -> bool:
    window = window_of(graph, node)
    return isinstance(node, Conv) and node.group == 1 and window == Window((1, 1), dilations=node.dilations)


def reads_in_place(graph: Graph, node: Node) -> bool:
    """Whether a windowed node reads its input's own planes, rather than a gathered copy.

    Pools gather whenever they pad: their padding is not the zero-point a convolution wants there.
    """
    window = window_of(graph, node)
    if window is None or window.strided or not is_planar(graph.tensor(node.inputs[0])):
        return False
    return isinstance(node, Conv) or not any(window.pads)


def chosen(graph: Graph, node: Slice | Take) -> list[Sequence[int]]:
    """Of each axis of the input, which elements are the output's, in its order."""
    shapes = graph.tensor(node.inputs[0]).shape, graph.tensor(node.output).shape
    if isinstance(node, Take):
        return [tuple(own) or range(extent) for own, extent in zip(node.indices, shapes[0], strict=True)]
    spans = zip(node.starts, node.steps, shapes[1], strict=True)
    return [range(start, start + step * count, step) for start, step, count in spans]


def is_run(indices: Sequence[int]) -> bool:
    """Whether each element is the one after the one before."""
    return all(b - a == 1 for a, b in itertools.pairwise(indices))


def is_view(graph: Graph, node: Slice | Take) -> bool:
    """Whether the output lies in the input's planes: whole pictures, from the first channel of a plane."""
    x, y = graph.tensor(node.inputs[0]), graph.tensor(node.output)
    if not (is_planar(x) and is_planar(y)):
        return False
    samples, channels, *_ = chosen(graph, node)
    return keeps_pixels(graph, node) and is_run(samples) and is_run(channels) and channels[0] % 4 == 0


def keeps_pixels(graph: Graph, node: Slice | Take) -> bool:
    """Whether it takes all rows and columns of a picture, in their order."""
    extents = graph.tensor(node.inputs[0]).shape[2:]
    return all(is_run(own) and len(own) == n for own, n in zip(chosen(graph, node)[2:], extents, strict=True))


@dataclass(frozen=True)
class Geometry:
    """Where a tensor's elements lie among its planes, in bytes and cells; see `Planes`."""

    sample: int
    plane: int
    phase: int
    pitch: int
    stride: tuple[int, int]
    top: int
    left: int


@dataclass(frozen=True)
class Planes:
    """Where a tensor's pixels are. Without phases: stride (1, 1), no top or left.

    Attributes:
        base: bytes from the buffer's start to cell 0 of plane 0.
        plane: bytes from a plane to the next.
        phase: bytes from a phase to the next.
        rows, pitch: cells of a phase.
        stride, top, left: pixel (y, x) is padded pixel (y + top, x + left); its cell is that divided by the
            stride, its phase the remainder.
        samples, sample: how many pictures there are, and the bytes from one's plane 0 to the next one's.
    """

    buffer: Buffer
    base: int
    plane: int
    phase: int
    rows: int
    pitch: int
    channels: int
    height: int
    width: int
    stride: tuple[int, int] = (1, 1)
    top: int = 0
    left: int = 0
    samples: int = 1
    sample: int = 0

    @property
    def planes(self) -> int:
        """Of one sample."""
        return -(-self.channels // 4)

    @property
    def nbytes(self) -> int:
        """From plane 0 of the first sample to the end of the last one's last plane."""
        return (self.samples - 1) * self.sample + self.planes * self.plane

    @property
    def cells(self) -> int:
        """Cells of a plane from the first used one to the last used one."""
        if self.stride == (1, 1):
            return (self.height - 1) * self.pitch + self.width
        phases = self.stride[0] * self.stride[1]
        return (phases - 1) * self.phase // PIXEL + self.rows * self.pitch

    @property
    def vectors(self) -> int:
        return -(-self.cells // VECTOR_PIXELS)

    def part(self, channel: int, channels: int) -> Planes:
        """Some of the channels, from one that begins a plane."""
        return dataclasses.replace(self, base=self.base + channel // 4 * self.plane, channels=channels)

    def some(self, sample: int, samples: int = 1) -> Planes:
        """Some of the samples."""
        return dataclasses.replace(self, base=self.base + sample * self.sample, samples=samples)

    def tap(self, row: int, column: int) -> int:
        """Bytes from the output pixel's own cell to a tap at this place of the padded input."""
        a, b = row % self.stride[0], column % self.stride[1]
        cell = (row // self.stride[0]) * self.pitch + column // self.stride[1]
        return (a * self.stride[1] + b) * self.phase + cell * PIXEL

    @property
    def geometry(self) -> Geometry:
        return Geometry(self.sample, self.plane, self.phase, self.pitch, self.stride, self.top, self.left)


def stretches(*forms: Planes) -> list[tuple[Planes, ...]]:
    """What a kernel that treats all planes alike walks through: all samples at once, or one after the other.

    It is at once where in each of the tensors the samples follow each other as the planes do.
    """
    samples = forms[0].samples
    if samples > 1 and all(planes.sample == planes.planes * planes.plane for planes in forms):
        return [tuple(dataclasses.replace(p, samples=1, channels=samples * p.planes * 4) for p in forms)]
    return [tuple(planes.some(sample) for planes in forms) for sample in range(samples)]


def element_index(shape: Sequence[int], at: Geometry) -> NDArray[np.int64]:
    """Byte offsets from cell 0 of plane 0 of every element of a [N, C, H, W] tensor: int64 of its shape."""
    n, c, y, x = np.ogrid[tuple(slice(extent) for extent in shape)]
    y, x = y + at.top, x + at.left
    phase = (y % at.stride[0]) * at.stride[1] + x % at.stride[1]
    cell = (y // at.stride[0]) * at.pitch + x // at.stride[1]
    channel = n * at.sample + c // 4 * at.plane + c % 4
    result: NDArray[np.int64] = channel + phase * at.phase + cell * PIXEL
    return result


def rows_bytes(rows: int, pitch: int) -> int:
    """Bytes that `rows` rows may touch when each is written by whole vectors."""
    return (rows - 1) * pitch * PIXEL + align(pitch * PIXEL)


class Pitches:
    """Row pitch and padding of every planar tensor.

    Attributes:
        joined: names of tensors that are written where a Concat wants them -> (its output, first channel).
        views: names of tensors that are some samples and channels of another's planes -> (that tensor, first
            sample, first channel).
        pushed: names of pointwise nodes that write their output in the phases that its only consumer, a
            strided convolution, reads; it is cheaper to split their narrow input than their wide output.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._parent: dict[str, str] = {}
        self.joined: dict[str, tuple[str, int]] = {}
        self.views: dict[str, tuple[str, int, int]] = {}
        self.pushed: dict[str, Node] = {}
        planar = {t.name for t in graph.activations() if is_planar(t)}
        for node in graph.nodes:
            window = window_of(graph, node)
            if window is None or not window.strided or not isinstance(node, Conv):
                continue
            producer = graph.producer(node.inputs[0])
            if (
                producer is not None
                and is_pointwise(graph, producer)
                and producer.inputs[0] in planar
                and graph.tensor(producer.inputs[0]).shape[1] < graph.tensor(producer.output).shape[1]
                and len(graph.consumers(producer.output)) == 1
                and producer.output not in graph.outputs
                and _phases_hold(graph.tensor(producer.output), window, graph.tensor(node.output))
            ):
                self.pushed[producer.name] = node
        for node in graph.nodes:
            if isinstance(node, Slice | Take) and is_view(graph, node):
                samples, channels, *_ = chosen(graph, node)
                self.views[node.output] = node.inputs[0], samples[0], channels[0]
        for node in graph.nodes:
            if isinstance(node, Concat) and node.axis == 1 and node.output in planar:
                self._join(node)
        for node in graph.nodes:
            if node.name in self.pushed:
                continue
            if node.output in planar:
                for name in self._in_step(node):
                    if name in planar:
                        self.follow(name, node.output)
        self._pitch: dict[str, int] = {}
        for name in sorted(planar):
            self._require(name, graph.tensor(name).shape[3])
        for node in graph.nodes:
            window = window_of(graph, node)
            if window is None:
                continue
            if reads_in_place(graph, node):
                _, left, _, right = window.pads
                x = graph.tensor(node.inputs[0])
                if x.name in planar:
                    self._require(x.name, x.shape[3] + max(left, right))
            elif node.output in planar:
                y = graph.tensor(node.output)
                self._require(y.name, y.shape[3] + (window.extent[1] - 1) // window.strides[1])
        self._group_rows(planar)

    def _group_rows(self, planar: set[str]) -> None:
        """Round pitches up so that a row or two are `GROUP_CELLS`, where that takes no more vectors.

        Phases may have a tenth more. That is for pointwise convolutions between whole blocks of channels
        (lanes.py).
        """
        roots = set()
        for node in self._graph.nodes:
            if node.output in planar and node.name not in self.pushed and is_pointwise(self._graph, node):
                inputs, outputs = (
                    self._graph.tensor(name).shape[1] for name in (node.inputs[0], node.output)
                )
                if not (inputs % (2 * PIXEL) or outputs % VECTOR_PIXELS):
                    roots.add(self._root(node.output))
        for root in roots:
            pitch = self._pitch[root]
            grouped = next((cells for cells in (GROUP_CELLS // 2, GROUP_CELLS) if cells >= pitch), pitch)
            names = [name for name in planar if self._root(name) == root]
            shapes = [self._graph.tensor(name).shape for name in names]
            if (
                all(in_groups(shape, grouped) for shape in shapes)
                and all(_vectors(shape, grouped) == _vectors(shape, pitch) for shape in shapes)
                and all(10 * wider <= 11 * before for before, wider in self._phases(names, pitch, grouped))
            ):
                self._pitch[root] = grouped

    def _phases(self, names: Sequence[str], *pitches: int) -> Iterator[list[int]]:
        """How many vectors the phases have of which each of these tensors is made, at these pitches."""
        for name in names:
            node = self._graph.producer(name)
            window = None if node is None else window_of(self._graph, node)
            if window is not None and window.strided:
                rows = self._graph.tensor(name).shape[2] + (window.extent[0] - 1) // window.strides[0]
                cells = rows * math.prod(window.strides)
                yield [-(-cells * pitch // VECTOR_PIXELS) for pitch in pitches]

    def _join(self, node: Concat) -> None:
        """Parts that begin at a plane can be written in place, if they are no part of anything else.

        So can what views are made of, if all of it is there.
        """
        shapes = [self._graph.tensor(name).shape for name in node.inputs]
        places = [0, *itertools.accumulate(shape[1] for shape in shapes)]
        for name, channel in zip(node.inputs, places[:-1], strict=True):
            if name in self.views:
                name, _, first = self.views[name]
                channel -= first
                if not self._covers(node, places, name, channel):
                    continue
            elif node.inputs.count(name) > 1:
                continue
            if channel % 4 == 0 and name not in self.joined and name not in self.views:
                self.joined[name] = node.output, channel

    def _covers(self, node: Concat, places: Sequence[int], whole: str, channel: int) -> bool:
        """Whether the views in a Concat are all channels of `whole`, as they lie there, from this one on."""
        covered: list[int] = []
        for name, place in zip(node.inputs, places, strict=False):
            if self.views.get(name) == (whole, 0, place - channel):
                covered += range(place, place + self._graph.tensor(name).shape[1])
        shape = self._graph.tensor(whole).shape
        batch = shape[0] == self._graph.tensor(node.output).shape[0]
        return batch and covered == list(range(channel, channel + shape[1]))

    def _whole(self, name: str) -> str:
        """The tensor in whose planes this one lies."""
        while name in self.joined or name in self.views:
            name = (self.joined.get(name) or self.views[name])[0]
        return name

    def _in_step(self, node: Node) -> list[str]:
        """The inputs that a node walks in step with its output."""
        match node:
            case Mul() | Map():
                shape = self._graph.tensor(node.output).shape
                return [name for name in node.inputs if self._graph.tensor(name).shape == shape]
            case Concat(axis=1) | Add():
                return list(node.inputs)
            case Requantize() | Lookup():
                return [node.inputs[0]]
            case Slice() | Take():
                return [node.inputs[0]] if keeps_pixels(self._graph, node) else []
            case Reduce(axes=(1,)):
                return [node.inputs[0]]
            case _:
                return [node.inputs[0]] if reads_in_place(self._graph, node) else []

    def follow(self, name: str, leader: str) -> None:
        """Give two tensors one pitch."""
        self._parent[self._root(name)] = self._root(leader)

    def _root(self, name: str) -> str:
        while (parent := self._parent.get(name, name)) != name:
            name = parent
        return name

    def _require(self, name: str, cells: int) -> None:
        root = self._root(name)
        self._pitch[root] = max(self._pitch.get(root, 1), cells)

    def pitch(self, name: str, window: Window | None = None) -> int:
        """Pitch of a planar tensor; of a single-pixel one, the least that `window`'s phases need."""
        root = self._root(name)
        if root in self._pitch:
            return self._pitch[root]
        return 1 if window is None else 1 + (window.extent[1] - 1) // window.strides[1]

    def padding(self, tensor: Tensor) -> tuple[int, int, bool]:
        """(cells before plane 0, cells behind each plane, whether padding is read) of a tensor's planes.

        All tensors that lie in the same planes have what any of them needs.
        """
        before = behind = 0
        pitch = self.pitch(tensor.name)
        whole = self._whole(tensor.name)
        names = [name for name in (*self.joined, *self.views, whole) if self._whole(name) == whole]
        for node in (node for name in names for node in self._graph.consumers(name)):
            window = window_of(self._graph, node)
            if window is None or not reads_in_place(self._graph, node):
                continue
            top, left, bottom, right = window.pads
            before = max(before, top * pitch + left)
            behind = max(behind, bottom * pitch + right)
        return before, max(before, behind), bool(before or behind)


def in_groups(shape: Sequence[int], pitch: int) -> bool:
    """Whether a plane's rows at this pitch, most of them pixels, are groups that end with its last vector."""
    if GROUP_CELLS % pitch or pitch < GROUP_CELLS // 2 or 2 * shape[3] <= pitch:
        return False
    groups = -(-shape[2] * pitch // GROUP_CELLS)
    return groups * GROUP_CELLS == _vectors(shape, pitch) * VECTOR_PIXELS


def _vectors(shape: Sequence[int], pitch: int) -> int:
    """Of a plane."""
    return -(-((shape[2] - 1) * pitch + shape[3]) // VECTOR_PIXELS)


def plain_planes(name: str, tensor: Tensor, pitch: int, before: int, behind: int, layer: int) -> Planes:
    """Lay a tensor out without phases; its buffer is born at `layer`."""
    samples, channels, height, width = tensor.shape
    plane = align(max((height * pitch + behind) * PIXEL, rows_bytes(height, pitch)))
    base = align(before * PIXEL)
    sample = -(-channels // 4) * plane
    buffer = Buffer(name, base + samples * sample, layer, layer)
    cells = (height, pitch, channels, height, width)
    return Planes(buffer, base, plane, plane, *cells, samples=samples, sample=sample)


def _phases_hold(tensor: Tensor, window: Window, output: Tensor) -> bool:
    """Whether every pixel has a cell, read or not: a stride may skip the last ones."""
    return all(
        (output.shape[2 + axis] + (window.extent[axis] - 1) // window.strides[axis]) * window.strides[axis]
        >= window.pads[axis] + tensor.shape[2 + axis]
        for axis in (0, 1)
    )


def phase_planes(name: str, tensor: Tensor, window: Window, output: Tensor, pitch: int, layer: int) -> Planes:
    """Lay out what a window reads of a tensor, as phases with the padding in place."""
    samples, channels, height, width = tensor.shape
    rows = output.shape[2] + (window.extent[0] - 1) // window.strides[0]
    phase = rows * pitch * PIXEL
    phases = window.strides[0] * window.strides[1]
    plane = align((phases - 1) * phase + rows_bytes(rows, pitch))
    sample = -(-channels // 4) * plane
    buffer = Buffer(name, samples * sample, layer, layer)
    cells = (rows, pitch, channels, height, width)
    return Planes(buffer, 0, plane, phase, *cells, window.strides, *window.pads[:2], samples, sample)
