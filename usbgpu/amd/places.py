"""Places in buffers: what is read of them, and pieces of what is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sdk.errors import UsageError
from usbgpu.amd import layout
from usbgpu.amd.batch import Batch, Later
from usbgpu.amd.memory import Buffer
from usbgpu.amd.streams import Piece
from usbgpu.seam import Write


@dataclass(frozen=True, slots=True)
class Asked:
    """Bytes within what a batch reads."""

    whole: Later[bytes]
    start: int
    size: int

    @property
    def value(self) -> bytes:
        return self.whole.value[self.start : self.start + self.size]


def load(batch: Batch, place: int, size: int) -> Asked:
    """Read the dwords that bytes are in."""
    first, end = place // 4 * 4, max(-(-(place + size) // 4) * 4, place // 4 * 4 + 4)
    return Asked(batch.load(first, end - first), place - first, size)


def place_of(buffer: object, offset: int, size: int) -> tuple[int, int]:
    """Where bytes of a buffer are in VRAM, and how many."""
    return own(buffer).place(offset, size), size


def cut(load: Sequence[Write], needs: Sequence[int]) -> list[Piece]:
    """Pieces of a stream that end wherever a launch waits: the first of these places gets the value 2."""
    pieces = []
    start, left = 0, list(needs)
    for write in load:
        data, address = (
            memoryview(write.data).cast("B"),
            place_of(write.buffer, write.offset, len(write.data))[0],
        )
        end = start + len(data)
        while left and left[0] <= end:
            size = left.pop(0) - start
            value = 1 + len(needs) - len(left)
            pieces.append(Piece(layout.address(address), data[:size], value))
            data, address, start = data[size:], address + size, start + size
        if data:
            pieces.append(Piece(layout.address(address), data))
        start = end
    return pieces


def own(buffer: object) -> Buffer:
    if not isinstance(buffer, Buffer):
        raise UsageError(f"{buffer!r} is not a buffer of this GPU")
    return buffer


def between(data: bytes, place: int) -> int:
    begin, end = (int.from_bytes(data[at : at + 8], "little") for at in (place, place + 8))
    return end - begin


def product(values: Sequence[int]) -> int:
    x, y, z = values
    return x * y * z
