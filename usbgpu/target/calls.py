"""What lowering produces: launches of kernels whose addresses are still symbolic."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from sdk.arena import Buffer
from sdk.errors import InternalError
from sdk.graph import Tensor
from sdk.weights import Weights as Bulk
from usbgpu.target.plan import Space


@dataclass(frozen=True)
class KernelSource:
    """A kernel of kernels/SOURCE.cl; with `defines` it is one of that file's variants.

    Attributes:
        symbol: its name in the code object.
        threads: work-items of a workgroup.
    """

    source: str
    symbol: str
    threads: int
    defines: tuple[str, ...] = ()


@dataclass(frozen=True)
class At:
    """A place in the arena: bytes from a buffer's start."""

    buffer: Buffer
    delta: int = 0

    @property
    def offset(self) -> int:
        if self.buffer.offset < 0:
            raise InternalError(f"buffer {self.buffer.name} was never placed")
        return self.buffer.offset + self.delta


@dataclass(frozen=True)
class Weights:
    """A place in the weights."""

    offset: int


Pointer = At | Weights | None
"""An argument that is an address; None is one that this variant of the kernel does not read."""
Relocation = tuple[int, Space, int]
"""(offset in the argument segment, what it is an address in, offset in that)."""


@dataclass
class Call:
    """A launch.

    Attributes:
        name, op: of the node whose output it makes (a part of), or of what it is made for.
        groups: workgroups in x and y.
        pointers: the first arguments of the kernel.
        words: the struct that follows them, 32 bits a word.
        macs: multiply-accumulates of the network that it does.
        tensor: the activation that is complete after it.
        weights: end of the weights that it reads; 0 if it reads none.
    """

    name: str
    op: str
    kernel: KernelSource
    groups: tuple[int, int]
    pointers: Sequence[Pointer]
    words: Sequence[int | float]
    macs: int = 0
    tensor: str | None = None
    weights: int = 0

    def kernarg(self) -> tuple[bytes, list[Relocation]]:
        """The argument segment with 0 for addresses, and where which address belongs."""
        relocations: list[Relocation] = []
        for number, pointer in enumerate(self.pointers):
            if isinstance(pointer, At):
                relocations.append((number * 8, "arena", pointer.offset))
            elif isinstance(pointer, Weights):
                relocations.append((number * 8, "weights", pointer.offset))
        data = b"".join(
            struct.pack("<f", word) if isinstance(word, float) else struct.pack("<I", word & 0xFFFFFFFF)
            for word in self.words
        )
        return bytes(8 * len(self.pointers)) + data, relocations


@dataclass(frozen=True)
class Picture:
    """A tensor as kernels have it: `pixels` times `pitch` bytes, of which the first `channels` count.

    Attributes:
        at: its first byte.
        height, width: 1 for what is not a picture.
        pitch: bytes a pixel.
    """

    at: At
    height: int
    width: int
    channels: int
    pitch: int

    @property
    def pixels(self) -> int:
        return self.height * self.width

    def channel(self, first: int) -> At:
        """Where the pixels are for code that uses channels from `first` on only."""
        return At(self.at.buffer, self.at.delta + first)


@dataclass(frozen=True)
class Lowered:
    """All that code generation and the plan need.

    Attributes:
        arena: bytes.
        live_peak: the largest sum of dense tensor bytes alive at one launch.
        tensors: how each activation lies in the arena when it is complete, by name.
    """

    calls: list[Call]
    weights: Bulk
    arena: int
    live_peak: int
    inputs: list[tuple[Tensor, At]]
    outputs: list[tuple[Tensor, At]]
    buffers: list[Buffer]
    tensors: dict[str, Picture]
