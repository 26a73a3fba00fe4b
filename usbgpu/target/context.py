"""What the lowerings of all nodes share: where tensors are, the launches so far, and words for kernels.

Activations are NHWC with a pitch (`Picture`); where the network wants C order (its inputs and outputs, a
Reshape of a picture) a launch converts, unless both are the same bytes, as for one pixel. Offsets stay
symbolic until the arena is planned.
"""

from __future__ import annotations

from collections.abc import Sequence

from sdk import arena
from sdk.arena import Blob, Buffer
from sdk.errors import InternalError, Unsupported
from sdk.graph import Add, Array, Clamp, Graph, Lookup, Node, Tensor
from sdk.scales import input_scale
from usbgpu.amd.facts.chips import Chip
from usbgpu.target.calls import At, Call, KernelSource, Picture, Pointer, Weights
from usbgpu.target.packing import round_up

NARROW = 4
"""Inputs of at most this many channels have a pitch of 4: a dword a pixel, for kernels/direct.cl."""

TENSOR_LIMIT = 1 << 30
"""Bytes of a tensor as it lies in memory: offsets in kernels have 32 bits."""

WINDOW_LIMIT = 1 << 15
"""Of padding, strides and dilations: positions in kernels have 32 bits."""

Words = list[int | float]
Places = dict[str, tuple[str, int]]
"""Tensors that lie within another, by name: its name, and how many bytes of each pixel come before."""


def extent(tensor: Tensor) -> tuple[int, int, int]:
    """(height, width, channels) of a tensor as a picture; one that is not a picture is one pixel."""
    if len(tensor.shape) == 4:
        return tensor.shape[2], tensor.shape[3], tensor.shape[1]
    return 1, 1, tensor.size


class Context:
    """A network on its way into launches.

    Attributes:
        blob: constants so far, in the order in which launches read them.
        dense, pictures: the forms in which tensors are there, by name.
        made: how each tensor lies that a launch completes.
        within: tensors that are made as parts of others.
    """

    def __init__(self, graph: Graph, chip: Chip, within: Places) -> None:
        self.graph = graph
        self.chip = chip
        self.within = within
        self.blob = Blob()
        self.calls: list[Call] = []
        self.buffers: list[Buffer] = []
        self.dense: dict[str, At] = {}
        self.pictures: dict[str, Picture] = {}
        self.made: dict[str, Picture] = {}

    # -- where tensors are ------------------------------------------------------------------------------

    def buffer(self, name: str, nbytes: int) -> At:
        now = len(self.calls)
        buffer = Buffer(name, arena.align(nbytes), now, now)
        self.buffers.append(buffer)
        return At(buffer)

    def new_dense(self, tensor: Tensor) -> At:
        self.dense[tensor.name] = at = self.buffer(f"{tensor.name} in C order", tensor.nbytes)
        return at

    def new_picture(self, tensor: Tensor, pitch: int | None = None) -> Picture:
        """Room for a tensor in NHWC. Kernels may write whole tiles of channels where no pitch is given."""
        height, width, channels = extent(tensor)
        if tensor.name in self.within:
            outer, first = self.within[tensor.name]
            whole = self.pictures.get(outer) or self.new_picture(self.graph.tensor(outer))
            at, pitch = whole.channel(first), whole.pitch
        else:
            pitch = pitch or round_up(channels)
            at = self.buffer(tensor.name, height * width * pitch)
        self.pictures[tensor.name] = picture = Picture(at, height, width, channels, pitch)
        return picture

    def picture(self, name: str) -> Picture:
        """A tensor in NHWC, for the next launch to read; converted if need be."""
        tensor = self.graph.tensor(name)
        height, width, channels = extent(tensor)
        if name not in self.pictures:
            source = self.dense[name]
            if height * width == 1:
                self.pictures[name] = Picture(source, 1, 1, channels, round_up(channels))
            else:
                picture = self.new_picture(tensor, NARROW if channels <= NARROW else None)
                groups = -(-picture.pixels // 64), -(-channels // 4)
                self._layout("to_nhwc", name, groups, source, picture.at, picture)
        return self.pictures[name]

    def as_dense(self, name: str) -> At:
        """A tensor in C order, converted if need be."""
        if name not in self.dense:
            picture = self.pictures[name]
            if picture.pixels == 1:
                self.dense[name] = picture.at
            else:
                groups = -(-picture.pixels // 64), picture.channels
                at = self.new_dense(self.graph.tensor(name))
                self._layout("to_dense", name, groups, picture.at, at, picture)
        return self.dense[name]

    def _layout(
        self, symbol: str, name: str, groups: tuple[int, int], x: At, y: At, picture: Picture
    ) -> None:
        words: Words = [picture.pixels, picture.channels, picture.pitch]
        kernel = KernelSource("layout", symbol, 64)
        self.append(Call(f"{name} ({symbol})", "Layout", kernel, groups, [x, y], words))

    # -- launches ---------------------------------------------------------------------------------------

    def append(self, call: Call) -> None:
        for pointer in call.pointers:
            if isinstance(pointer, At):
                pointer.buffer.last = max(pointer.buffer.last, len(self.calls))
        self.calls.append(call)

    def emit(
        self,
        node: Node,
        op: str,
        kernel: KernelSource,
        groups: tuple[int, int],
        pointers: Sequence[Pointer],
        words: Words,
        work: int = 0,
        complete: bool = True,
    ) -> None:
        """Append a launch of the node whose output it makes."""
        tensor = node.output if complete else None
        reads = self.blob.nbytes if any(isinstance(pointer, Weights) for pointer in pointers) else 0
        self.append(Call(node.name, op, kernel, groups, pointers, words, work, tensor, reads))
        if complete:
            self.made[node.output] = self._form(node.output)

    def _form(self, name: str) -> Picture:
        if name in self.pictures:
            return self.pictures[name]
        size = self.graph.tensor(name).size
        return Picture(self.dense[name], 1, 1, size, size)

    # -- constants and words ----------------------------------------------------------------------------

    def constant(self, array: Array) -> Weights:
        return Weights(self.blob.add(array))

    def table(self, lookup: Lookup) -> Weights:
        """Its 256 values."""
        data = self.graph.tensor(lookup.inputs[1]).data
        if data is None:
            raise InternalError("its table is not a constant", where=f"node {lookup.name}")
        return self.constant(data)

    def range(self, name: str, clamp: Clamp) -> Words:
        """`struct range` of what a node makes."""
        zero_point = self.zero_point(name)
        return [float(clamp[0] - zero_point), float(clamp[1] - zero_point), zero_point]

    def residual(self, add: Add, own: str, other: str, pitch: int) -> Words:
        """`struct residual` of an Add that gets one operand from the kernel, the other from memory."""
        ratios = [float(input_scale(self.graph, add, name)) for name in (own, other)]
        return [*ratios, float(self.zero_point(other)), pitch, *self.range(add.output, add.clamp)]

    def zero_point(self, name: str) -> int:
        return self.graph.tensor(name).zero_point

    def splat(self, name: str) -> int:
        """Four bytes of the tensor's zero-point."""
        return self.zero_point(name) * 0x01010101


def require_room(graph: Graph, node: Node) -> None:
    """Refuse a node whose offsets and positions do not fit the kernels' integers.

    Raises:
        Unsupported: its input, output or window is too large.
    """
    for tensor in (graph.tensor(name) for name in (*node.inputs[:1], node.output)):
        height, width, channels = extent(tensor)
        if max(tensor.nbytes, height * width * round_up(channels)) >= TENSOR_LIMIT:
            raise Unsupported(
                f"{tensor.name} of {list(tensor.shape)} is too large (limit: {TENSOR_LIMIT} bytes)"
            )
    names = ("pads", "strides", "dilations")
    if max(value for name in names for value in getattr(node, name, (0,))) >= WINDOW_LIMIT:
        values = ", ".join(f"{name} {list(getattr(node, name))}" for name in names if hasattr(node, name))
        raise Unsupported(f"padding, strides and dilations must be below {WINDOW_LIMIT}: {values}")


def divisor(by: int) -> Words:
    """`struct divisor` (kernels/kernel.h)."""
    shift = (by - 1).bit_length()
    return [-(-(1 << 31 + shift) // by), shift]


def no_residual(zero_point: int = 0, pitch: int = 0) -> Words:
    """`struct residual` where there is no Add; of a Mul, the second operand's."""
    return [0.0, 0.0, float(zero_point), pitch, 0.0, 0.0, 0]


def variant(source: str, threads: int, features: Sequence[str]) -> KernelSource:
    """SOURCE.cl with these macros, its kernel named after them."""
    symbol = "_".join([source, *(feature.replace("=", "").lower() for feature in features)])
    return KernelSource(source, symbol, threads, (f"NAME={symbol}", *features))
