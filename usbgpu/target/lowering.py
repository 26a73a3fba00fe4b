"""From the integer body of a network to launches of kernels.

Activations are NHWC with a pitch (`Picture`); where the network wants C order (its inputs and outputs, a
Reshape of a picture) a launch converts, unless both are the same bytes, as for one pixel. A node becomes a
launch, a convolution whose groups are computed apart one each. An Add goes into the Conv or Gemm that feeds
it. Offsets stay symbolic until the arena is planned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sdk import arena
from sdk.arena import Blob, Buffer
from sdk.arithmetic import scale_ratio
from sdk.errors import InternalError
from sdk.graph import (
    Add,
    Array,
    AveragePool,
    Clamp,
    Conv,
    Gemm,
    GlobalAveragePool,
    Graph,
    MaxPool,
    Node,
    Requantize,
    Reshape,
    Tensor,
    macs,
)
from sdk.shapes import window_counts
from usbgpu.amd.facts.chips import Chip
from usbgpu.target.calls import At, Call, Kernel, Lowered, Picture, Pointer, Weights
from usbgpu.target.packing import (
    TILE,
    centred_weights,
    channel_scales,
    dense_groups,
    depthwise_weights,
    direct_weights,
    flat_constants,
    folded_bias,
    matrix_weights,
    round_up,
    tiled_constants,
)
from usbgpu.target.tiling import matrix_tiling, strip

UNROLLED_TAPS = 32
"""Windows up to this many taps get a kernel with the loop over them unrolled."""

NARROW = 4
"""Inputs of at most this many channels have a pitch of 4: a dword a pixel, for kernels/direct.cl."""

Words = list[int | float]


@dataclass
class _Product:
    """A Conv or Gemm on its way into a launch.

    Attributes:
        final: the node whose output is made: itself, or the Add that it takes in.
        op: what tables call it.
        weights: centred, [O, I / groups, kh, kw].
        bias: with the input's zero-point folded in.
        residual: where the Add's other operand is.
        words: `struct range` and `struct residual` of the kernels.
        window: `struct window` of the kernels.
    """

    final: Node
    op: str
    node: Conv | Gemm
    x: Picture
    y: Picture
    weights: Array
    bias: Array
    scales: Array
    residual: At | None
    words: Words
    window: Words


def depthwise(graph: Graph, node: Node) -> bool:
    """Whether each channel has its own weights, and one output."""
    if not isinstance(node, Conv):
        return False
    channels = graph.tensor(node.inputs[0]).shape[1]
    return node.group == channels and graph.tensor(node.output).shape[1] == channels


def is_global(graph: Graph, node: Node) -> bool:
    """Whether a pool covers the whole picture at once."""
    if isinstance(node, GlobalAveragePool):
        return True
    x = graph.tensor(node.inputs[0])
    return isinstance(node, AveragePool) and node.kernel == x.shape[2:] and not any(node.pads)


def extent(tensor: Tensor) -> tuple[int, int, int]:
    """(height, width, channels) of a tensor as a picture; what is none is one pixel."""
    if len(tensor.shape) == 4:
        return tensor.shape[2], tensor.shape[3], tensor.shape[1]
    return 1, 1, tensor.size


def lower(graph: Graph, chip: Chip, guard: int = 0) -> Lowered:
    """Lower an integer body whose activations are all uint8 and whose nodes the target supports."""
    return _Lowering(graph, chip).run(guard)


class _Lowering:
    def __init__(self, graph: Graph, chip: Chip) -> None:
        self.graph = graph
        self.chip = chip
        self.blob = Blob()
        self.calls: list[Call] = []
        self.buffers: list[Buffer] = []
        self.dense: dict[str, At] = {}
        self.pictures: dict[str, Picture] = {}
        self.made: dict[str, Picture] = {}

    def run(self, guard: int) -> Lowered:
        graph = self.graph
        fused = self._fusable_adds()
        absorbed = {producer.name for producer in fused.values()}
        inputs = [(graph.tensor(name), self._new_dense(graph.tensor(name))) for name in graph.inputs]
        for node in graph.nodes:
            if node.name not in absorbed:
                self._node(node, fused.get(node.name))
        outputs = [(graph.tensor(name), self._as_dense(graph.tensor(name))) for name in graph.outputs]
        for _, at in outputs:
            at.buffer.last = len(self.calls)
        return Lowered(
            calls=self.calls,
            weights=bytes(self.blob),
            arena=arena.align(arena.plan(self.buffers, guard)),
            live_peak=self._live_peak(),
            inputs=inputs,
            outputs=outputs,
            buffers=self.buffers,
            tensors=self.made,
        )

    def _node(self, node: Node, producer: Conv | Gemm | None) -> None:
        match node:
            case Add() if producer is not None:
                self._product(producer, node)
            case Conv() | Gemm():
                self._product(node, None)
            case Add() | Requantize():
                self._elementwise(node)
            case GlobalAveragePool():
                self._mean(node, node.clamp)
            case AveragePool() if is_global(self.graph, node):
                self._mean(node, node.clamp)
            case AveragePool():
                self._average_pool(node)
            case MaxPool():
                self._max_pool(node)
            case Reshape():
                self._reshape(node)
            case _:
                raise InternalError(f"no lowering for {node.op}", where=f"node {node.name}")

    def _fusable_adds(self) -> dict[str, Conv | Gemm]:
        """Add node name -> the product that takes it in: its later operand, used by nothing else."""
        fused: dict[str, Conv | Gemm] = {}
        order = {node.name: i for i, node in enumerate(self.graph.nodes)}
        for add in self.graph.nodes:
            if not isinstance(add, Add) or add.inputs[0] == add.inputs[1]:
                continue
            candidates = [
                producer
                for name in add.inputs
                if isinstance(producer := self.graph.producer(name), Conv | Gemm)
                and len(self.graph.consumers(name)) == 1
                and name not in self.graph.outputs
            ]
            if candidates:
                fused[add.name] = max(candidates, key=lambda producer: order[producer.name])
        return fused

    # -- where tensors are ------------------------------------------------------------------------------

    def _buffer(self, name: str, size: int) -> Buffer:
        now = len(self.calls)
        buffer = Buffer(name, arena.align(size), now, now)
        self.buffers.append(buffer)
        return buffer

    def _append(self, call: Call) -> None:
        for pointer in call.pointers:
            if isinstance(pointer, At):
                pointer.buffer.last = max(pointer.buffer.last, len(self.calls))
        self.calls.append(call)

    def _new_dense(self, tensor: Tensor) -> At:
        self.dense[tensor.name] = at = At(self._buffer(f"{tensor.name} in C order", tensor.size))
        return at

    def _new_picture(self, tensor: Tensor, pitch: int | None = None) -> Picture:
        height, width, channels = extent(tensor)
        pitch = pitch or round_up(channels)
        at = At(self._buffer(tensor.name, height * width * pitch))
        self.pictures[tensor.name] = picture = Picture(at, height, width, channels, pitch)
        return picture

    def _picture(self, name: str) -> Picture:
        """A tensor in NHWC, for the next launch to read; converted if need be."""
        tensor = self.graph.tensor(name)
        height, width, channels = extent(tensor)
        if name not in self.pictures:
            source = self.dense[name]
            if height * width == 1:
                self.pictures[name] = Picture(source, 1, 1, channels, round_up(channels))
            else:
                picture = self._new_picture(tensor, NARROW if channels <= NARROW else None)
                groups = -(-picture.pixels // 64), -(-channels // 4)
                self._layout("to_nhwc", name, groups, source, picture.at, picture)
        return self.pictures[name]

    def _as_dense(self, tensor: Tensor) -> At:
        """A tensor in C order, converted if need be."""
        if tensor.name not in self.dense:
            picture = self.pictures[tensor.name]
            if picture.pixels == 1:
                self.dense[tensor.name] = picture.at
            else:
                groups = -(-picture.pixels // 64), picture.channels
                self._layout("to_dense", tensor.name, groups, picture.at, self._new_dense(tensor), picture)
        return self.dense[tensor.name]

    def _layout(
        self, symbol: str, name: str, groups: tuple[int, int], x: At, y: At, picture: Picture
    ) -> None:
        words: Words = [picture.pixels, picture.channels, picture.pitch]
        kernel = Kernel("layout", symbol, 64)
        self._append(Call(f"{name} ({symbol})", "Layout", kernel, groups, [x, y], words))

    def _emit(
        self,
        node: Node,
        op: str,
        kernel: Kernel,
        groups: tuple[int, int],
        pointers: Sequence[Pointer],
        words: Words,
        work: int = 0,
        complete: bool = True,
    ) -> None:
        """Append a launch of the node whose output it makes."""
        tensor = node.output if complete else None
        reads = self.blob.size if any(isinstance(pointer, Weights) for pointer in pointers) else 0
        self._append(Call(node.name, op, kernel, groups, pointers, words, work, tensor, reads))
        if complete:
            self.made[node.output] = self.pictures[node.output]

    def _constant(self, array: Array) -> Weights:
        return Weights(self.blob.add(array))

    # -- operators --------------------------------------------------------------------------------------

    def _product(self, node: Conv | Gemm, add: Add | None) -> None:
        """A Conv or Gemm; with `add`, what is made is the Add's output."""
        final: Node = add or node
        x = self._picture(node.inputs[0])
        residual: At | None = None
        residual_words = _no_residual()
        if add is not None:
            name = add.inputs[0] if add.inputs[1] == node.output else add.inputs[1]
            other = self._picture(name)
            residual = other.at
            residual_words = self._residual(add, node.output, name, other.pitch)
        weights = centred_weights(self.graph.tensor(node.inputs[1]))
        weights = weights.reshape(*weights.shape, *(1, 1)[: 4 - weights.ndim])
        y = self._new_picture(self.graph.tensor(final.output))
        product = _Product(
            final=final,
            op=f"{node.op}+Add" if add else node.op,
            node=node,
            x=x,
            y=y,
            weights=weights,
            bias=folded_bias(self.graph, node, weights),
            scales=channel_scales(self.graph, node),
            residual=residual,
            words=[*self._range(node.output, node.clamp), *residual_words],
            window=_window(node, x, y.width, weights.shape[2:]),
        )
        if depthwise(self.graph, node):
            self._depthwise(product)
        elif x.pitch == NARROW:
            self._direct(product)
        else:
            groups = node.group if isinstance(node, Conv) else 1
            if groups > 1 and (x.channels // groups % TILE or y.channels // groups % TILE):
                product.weights, groups = dense_groups(weights, groups), 1
            for group in range(groups):
                self._matrix(product, group, groups)

    def _depthwise(self, product: _Product) -> None:
        p = product
        packed = self._constant(depthwise_weights(p.weights))
        constants = self._constant(flat_constants(p.bias, p.scales))
        pointers: list[Pointer] = [p.x.at, packed, constants, p.y.at, p.residual]
        features = ["RESIDUAL"] * (p.residual is not None)
        filling: Words = [self._splat(p.node.inputs[0]), 0]
        self._window_call(
            p.final, p.op, p.node, p.weights.shape[2:], p.x, p.y, features, pointers, filling, p.words
        )

    def _direct(self, product: _Product) -> None:
        """dot4 where a pixel is a dword: a matrix instruction would have 16 bytes of k for its four."""
        p = product
        groups = p.node.group if isinstance(p.node, Conv) else 1
        weights = direct_weights(dense_groups(p.weights, groups))
        packed, constants = self._constant(weights), self._constant(tiled_constants(p.bias, p.scales))
        rows, columns = p.weights.shape[2:]
        features = [f"ROWS={rows}", f"COLUMNS={columns}", *["RESIDUAL"] * (p.residual is not None)]
        kernel = _variant("direct", 64, features)
        grid = -(-p.y.pixels // 64), p.y.pitch // TILE
        pointers: list[Pointer] = [p.x.at, packed, constants, p.y.at, p.residual]
        fields: Words = [p.y.pixels, p.y.pitch, self._splat(p.node.inputs[0]), *p.words, *p.window]
        self._emit(p.final, p.op, kernel, grid, pointers, fields, macs(self.graph, p.node))

    def _matrix(self, product: _Product, group: int, groups: int) -> None:
        p = product
        outputs = len(p.weights) // groups
        part = slice(group * outputs, (group + 1) * outputs)
        weights = p.weights[part]
        rows, columns = weights.shape[2:]
        k = round_up(weights.shape[1])
        tiles = round_up(outputs) // TILE
        windowed = rows * columns > 1 or _strided(p.node)
        cut = matrix_tiling(self.chip, p.y.pixels, tiles, rows * columns, k // TILE)
        pointers: list[Pointer] = [
            p.x.channel(group * weights.shape[1]),
            self._constant(matrix_weights(weights, k, self.chip.generation)),
            self._constant(tiled_constants(p.bias[part], p.scales[part])),
            self._constant(np.full(k, self._zero_point(p.node.inputs[0]), np.uint8)) if windowed else None,
            p.y.channel(part.start),
            p.residual and At(p.residual.buffer, p.residual.delta + part.start),
        ]
        fields: Words = [p.y.pixels, rows * columns, k // TILE, p.x.pitch, p.y.pitch, *p.words, *p.window]
        features = [f"TILES={cut.tiles}", f"PIXELS={cut.pixels}", f"SPLIT={cut.split}"]
        features += ["WINDOW"] * windowed + ["RESIDUAL"] * (p.residual is not None)
        kernel = _variant("matrix", 32 * cut.split, features)
        grid = -(-p.y.pixels // (TILE * cut.pixels)), tiles // cut.tiles
        work = macs(self.graph, p.node) // groups
        self._emit(p.final, p.op, kernel, grid, pointers, fields, work, complete=group == groups - 1)

    def _window_call(
        self,
        node: Node,
        op: str,
        sliding: Node,
        size: Sequence[int],
        x: Picture,
        y: Picture,
        features: list[str],
        pointers: Sequence[Pointer],
        filling: Words,
        words: Words,
    ) -> None:
        """A launch of kernels/window.cl for the window, of that size, of `sliding`."""
        quads = -(-y.channels // 4)
        pixels = 1
        window = _window(sliding, x, y.width, size)
        if math.prod(size) <= UNROLLED_TAPS:
            pixels = strip(self.chip, y.height, y.width, quads)
            stride_x, step_y, step_x = window[5:8]
            features = [
                *(f"ROWS={size[0]}", f"COLUMNS={size[1]}", f"STRIP={pixels}"),
                *(f"STRIDE_X={stride_x}", f"STEP_Y={step_y}", f"STEP_X={step_x}"),
                *features,
            ]
        items = quads * -(-y.width // pixels)
        fields: Words = [quads, items, y.width, x.pitch, y.pitch, round_up(y.channels), *filling]
        fields += [*words, *divisor(quads), *window]
        kernel = _variant("window", 64, features)
        self._emit(node, op, kernel, (-(-items // 64), y.height), pointers, fields, macs(self.graph, sliding))

    def _average_pool(self, node: AveragePool) -> None:
        x = self._picture(node.inputs[0])
        source, out = self.graph.tensor(node.inputs[0]), self.graph.tensor(node.output)
        y = self._new_picture(out)
        area = node.kernel[0] * node.kernel[1]
        counts = np.full(out.shape[2:], area, np.int32)
        if not node.count_include_pad:
            counts = window_counts(source.shape[2:], node.kernel, node.strides, node.pads)
        scales = {int(n): scale_ratio(source.scale, over=out.scale * int(n)) for n in np.unique(counts)}
        table = np.array([scales[int(n)] for n in counts.ravel()], "<f4")
        words = [*self._range(node.output, node.clamp), *_no_residual()]
        pointers: list[Pointer] = [x.at, None, self._constant(table), y.at, None]
        filling: Words = [self._splat(source.name), -source.zero_point * area]
        self._window_call(node, node.op, node, node.kernel, x, y, ["AVERAGE"], pointers, filling, words)

    def _max_pool(self, node: MaxPool) -> None:
        x = self._picture(node.inputs[0])
        y = self._new_picture(self.graph.tensor(node.output))
        words = [*self._range(node.output, (0, 255)), *_no_residual()]
        pointers: list[Pointer] = [x.at, None, None, y.at, None]
        self._window_call(node, node.op, node, node.kernel, x, y, ["MAXIMUM"], pointers, [0, 0], words)

    def _mean(self, node: Node, clamp: Clamp) -> None:
        x = self._picture(node.inputs[0])
        source, out = self.graph.tensor(node.inputs[0]), self.graph.tensor(node.output)
        y = self._new_picture(out)
        scale = float(scale_ratio(source.scale, over=out.scale * x.pixels))
        quads = -(-x.channels // 4)
        fields: Words = [quads, x.pixels, x.pitch, -source.zero_point * x.pixels, scale]
        fields += self._range(node.output, clamp)
        self._emit(node, node.op, _variant("mean", 256, []), (-(-quads // 32), 1), [x.at, y.at], fields)

    def _elementwise(self, node: Add | Requantize) -> None:
        x = self._picture(node.inputs[0])
        source, out = self.graph.tensor(node.inputs[0]), self.graph.tensor(node.output)
        other: Pointer = None
        residual_words = _no_residual()
        if isinstance(node, Add):
            second = self._picture(node.inputs[1])
            other = second.at
            residual_words = self._residual(node, node.inputs[0], node.inputs[1], second.pitch)
        y = self._new_picture(out)
        quads = -(-x.channels // 4)
        items = x.pixels * quads
        scale = float(scale_ratio(source.scale, over=out.scale))
        fields: Words = [items, quads, x.pitch, y.pitch, float(source.zero_point), scale]
        fields += [*self._range(node.output, node.clamp), *residual_words, *divisor(quads)]
        kernel = _variant("elementwise", 64, ["ADD"] if isinstance(node, Add) else [])
        self._emit(node, node.op, kernel, (-(-items // 64), 1), [x.at, other, y.at], fields)

    def _reshape(self, node: Reshape) -> None:
        """Another name for the bytes in C order."""
        self.dense[node.output] = self._as_dense(self.graph.tensor(node.inputs[0]))

    # -- words ------------------------------------------------------------------------------------------

    def _range(self, name: str, clamp: Clamp) -> Words:
        zero_point = self.graph.tensor(name).zero_point
        return [float(clamp[0] - zero_point), float(clamp[1] - zero_point), zero_point]

    def _residual(self, add: Add, own: str, other: str, pitch: int) -> Words:
        a, b, y = (self.graph.tensor(name) for name in (own, other, add.output))
        ratios = [float(scale_ratio(tensor.scale, over=y.scale)) for tensor in (a, b)]
        return [*ratios, float(b.zero_point), pitch, *self._range(add.output, add.clamp)]

    def _zero_point(self, name: str) -> int:
        return self.graph.tensor(name).zero_point

    def _splat(self, name: str) -> int:
        return self._zero_point(name) * 0x01010101

    def _live_peak(self) -> int:
        """The largest sum of the sizes of the graph's tensors that one launch needs or leaves behind."""
        dense = {name: self.graph.tensor(name).size for name in {*self.made, *self.graph.inputs}}
        spans = []
        for name, size in dense.items():
            ats = [self.dense.get(name), self.pictures[name].at if name in self.pictures else None]
            buffers = [at.buffer for at in ats if at is not None]
            spans.append((min(b.first for b in buffers), max(b.last for b in buffers), size))
        return max(
            sum(size for first, last, size in spans if first <= now <= last)
            for now in range(len(self.calls) + 1)
        )


def divisor(by: int) -> Words:
    """The words of `struct divisor` (kernels/kernel.h)."""
    shift = (by - 1).bit_length()
    return [-(-(1 << 31 + shift) // by), shift]


def _no_residual() -> Words:
    return [0.0, 0.0, 0.0, 0, 0.0, 0.0, 0]


def _strided(node: Conv | Gemm) -> bool:
    return isinstance(node, Conv) and (max(node.strides) > 1 or any(node.pads))


def _window(node: Node, x: Picture, out_width: int, kernel: Sequence[int]) -> Words:
    """The words of `struct window` (kernels/kernel.h)."""
    pads = getattr(node, "pads", (0, 0, 0, 0))
    strides, steps = getattr(node, "strides", (1, 1)), getattr(node, "dilations", (1, 1))
    return [x.height, x.width, *pads[:2], *strides, *steps, *kernel, out_width, *divisor(out_width)]


def _variant(source: str, threads: int, features: Sequence[str]) -> Kernel:
    """SOURCE.cl with these macros, its kernel named after them."""
    symbol = "_".join([source, *(feature.replace("=", "").lower() for feature in features)])
    return Kernel(source, symbol, threads, (f"NAME={symbol}", *features))
