"""Launches as an AMD card takes them, and where quantised tensors are."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from sdk.opencl.calls import At, Call, Weights
from usbgpu.target.plan import Space

WRITTEN = '#include "plain/written.h"\n'
"""Where the text of a kernel begins that was written for a network."""

Relocation = tuple[int, Space, int]
"""(offset in the argument segment, what it is an address in, offset in that)."""


def kernarg(call: Call) -> tuple[bytes, list[Relocation]]:
    """The argument segment with 0 for addresses, and where which address belongs."""
    relocations: list[Relocation] = []
    for number, pointer in enumerate(call.pointers):
        if isinstance(pointer, At):
            relocations.append((number * 8, "arena", pointer.offset))
        elif isinstance(pointer, Weights):
            relocations.append((number * 8, "weights", pointer.offset))
    data = b"".join(
        struct.pack("<f", word) if isinstance(word, float) else struct.pack("<I", word & 0xFFFFFFFF)
        for word in call.words
    )
    return bytes(8 * len(call.pointers)) + data, relocations


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
