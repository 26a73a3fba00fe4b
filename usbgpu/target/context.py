"""What the lowerings of all nodes share: where tensors are, the launches so far, and words for kernels.

Activations are NHWC with a pitch (`Picture`); where the network wants C order (its inputs and outputs, a
Reshape of a picture) a launch converts, unless both are the same bytes, as for one pixel. Offsets stay
symbolic until the arena is planned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sdk.errors import InternalError, Unsupported
from sdk.graph import Add, Clamp, Graph, Lookup, Node, Tensor
from sdk.opencl.calls import At, Call, KernelSource, Weights, Words
from sdk.opencl.context import TENSOR_LIMIT, PlainContext
from sdk.opencl.views import View, channels_last_steps, dense_steps
from sdk.scales import input_scale
from usbgpu.amd.facts.chips import Chip
from usbgpu.target.calls import Picture
from usbgpu.target.packing import round_up
from usbgpu.target.tiling import Tiling

if TYPE_CHECKING:
    from sdk.opencl.product import Product

NARROW = 4
"""Inputs of at most this many channels have a pitch of 4: a dword a pixel, for kernels/direct.cl."""

WINDOW_LIMIT = 1 << 15
"""Of padding, strides and dilations: positions in kernels have 32 bits."""

Cut = Callable[[str, "Product"], Tiling | None]
Places = dict[str, tuple[str, int]]
"""Tensors that lie within another, by name: its name, and how many bytes of each pixel come before."""


def by_the_model(name: str, product: Product) -> Tiling | None:
    """No product is cut otherwise than the cost model says."""
    return None


def extent(tensor: Tensor) -> tuple[int, int, int]:
    """(height, width, channels) of a tensor as a picture: a matrix has its rows in a row, and what is neither
    is one pixel.
    """
    if len(tensor.shape) == 4:
        return tensor.shape[2], tensor.shape[3], tensor.shape[1]
    if len(tensor.shape) == 2:
        return 1, *tensor.shape
    return 1, 1, tensor.size


class Context(PlainContext):
    """A network on its way into launches on a card.

    Attributes:
        cut: how a product of floats is cut, given its node's name; None for as the cost model says.
        dense, pictures: the forms in which tensors are there, by name.
        within: quantised tensors that are made as parts of others.
    """

    def __init__(self, graph: Graph, chip: Chip, within: Places, cut: Cut = by_the_model) -> None:
        super().__init__(graph)
        self.chip = chip
        self.cut = cut
        self.within = within
        self.dense: dict[str, At] = {}
        self.pictures: dict[str, Picture] = {}

    def _for(self, body: Graph) -> Context:
        return Context(body, self.chip, {}, self.cut)

    # -- where tensors are ------------------------------------------------------------------------------

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
        words += [1, picture.channels] if len(self.graph.tensor(name).shape) == 2 else [picture.pixels, 1]
        kernel = KernelSource("layout", symbol, 64)
        self.append(Call(f"{name} ({symbol})", "Layout", kernel, groups, [x, y], words))

    # -- plain tensors ----------------------------------------------------------------------------------

    def _quantised_view(self, tensor: Tensor) -> View:
        if tensor.name in self.pictures:
            return self._picture_view(tensor.name)
        return View(self.dense[tensor.name], tensor.shape, dense_steps(tensor.shape), tensor.dtype)

    def _new_quantised_view(self, tensor: Tensor) -> View:
        if len(tensor.shape) == 4 and tensor.shape[0] == 1:
            self.new_picture(tensor)
            return self._picture_view(tensor.name)
        return View(self.new_dense(tensor), tensor.shape, dense_steps(tensor.shape), tensor.dtype)

    def _picture_view(self, name: str) -> View:
        tensor, picture = self.graph.tensor(name), self.pictures[name]
        steps = dense_steps(tensor.shape)
        if len(tensor.shape) == 4:
            steps = channels_last_steps(tensor.shape, picture.pitch)
        elif len(tensor.shape) == 2:
            steps = picture.pitch, 1
        return View(picture.at, tensor.shape, steps, tensor.dtype)

    # -- constants and words ----------------------------------------------------------------------------

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


def no_residual(zero_point: int = 0, pitch: int = 0) -> Words:
    """`struct residual` where there is no Add; of a Mul, the second operand's."""
    return [0.0, 0.0, float(zero_point), pitch, 0.0, 0.0, 0]


def variant(source: str, threads: int, features: Sequence[str]) -> KernelSource:
    """SOURCE.cl with these macros, its kernel named after them."""
    symbol = "_".join([source, *(feature.replace("=", "").lower() for feature in features)])
    return KernelSource(source, symbol, threads, (f"NAME={symbol}", *features))
