"""How a stream is cut into parts: which bytes go through which slots of the bridge's SRAM to where.

A part ends with its number, which is the last of its bytes to arrive. Blocks of it may begin with the number
too, so that the engine that copies them can check afterwards that they had not been overwritten meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from firmware.asm2464pd.registers.memory import SLOT_SIZE
from firmware.protocol.commands import PACKETS
from firmware.protocol.operations import DWORD, Data

PACKET = max(PACKETS)
"""Bytes of the largest packet: transfers to the SRAM are of full ones."""
FIRST = 0x4000_0000
"""Number of the first part; the one before says that SDMA is ready. Fences are compared modulo 2^32: with
their highest bytes cleared, whatever they held is behind."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes for the card.

    Attributes:
        address: of the GPU.
        data: must not change until the stream is over.
        value: what the stream's fence becomes when they are there; None to leave it as it is.
    """

    address: int
    data: Data
    value: int | None = None


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy from an offset in the part to an address."""

    source: int
    target: int
    size: int


@dataclass(frozen=True, slots=True)
class Value:
    """Set the fence of the stream to this."""

    value: int


@dataclass(frozen=True, slots=True)
class Check:
    """Check that the dword at an offset of the part is still its number."""

    offset: int


@dataclass
class Part:
    """A part of a stream while it is filled.

    Attributes:
        slot: its first; `slots`: how many it has.
        number: of the part.
        blocks: offsets at which blocks begin that are checked; a dword behind the first one stays 0 then.
        buffers: what it consists of, in order.
        steps: for SDMA.
        size: bytes so far.
        block: offset of the block that is open; None without one.
        value: of the stream's fence when that block has been checked; None to leave it as it is.
        unused: bytes at the end of its last slot that it does not have.
    """

    slot: int
    slots: int
    number: int
    blocks: Sequence[int]
    buffers: list[Data] = field(default_factory=list)
    steps: list[Copy | Value | Check] = field(default_factory=list)
    size: int = 0
    block: int | None = None
    value: int | None = None
    unused: int = 0

    @property
    def end(self) -> int:
        """Offset in the SRAM behind its last byte."""
        return (self.slot + self.slots) * SLOT_SIZE - self.unused

    @property
    def tail(self) -> int:
        """Offset in the SRAM of its last dword."""
        return self.end - DWORD

    def take(self, address: int, data: memoryview) -> int:
        """Put data into it; how many bytes there was room for."""
        while True:
            if self.size in self.blocks and self.block != self.size:
                self.block = self.size
                head = self.number.to_bytes(DWORD, "little")
                self._put(head if self.size else head + bytes(DWORD))
            limit = min(
                (block for block in self.blocks if block > self.size), default=self.slots * SLOT_SIZE - DWORD
            )
            padding = (address - self.size) % DWORD
            size = min(limit - self.size - padding, len(data))
            if size > 0:
                break
            if limit not in self.blocks:
                return 0
            self._put(bytes(limit - self.size))
            self._close_block()
        self._put(bytes(padding))
        self.steps.append(Copy(self.size, address, size))
        self._put(data[:size])
        if self.size in self.blocks:
            self._close_block()
        return size

    def report(self, value: int) -> None:
        """Set the stream's fence once what it has so far is in memory, and checked if that is done."""
        if self.block is None:
            self.steps.append(Value(value))
        else:
            self.value = value

    def shorten(self) -> int:
        """Use as few slots as possible; returns how many it gave up."""
        spare = self.slots - -(-(self.size + DWORD) // SLOT_SIZE)
        self.slots -= spare
        return spare

    def trim(self) -> None:
        """Use as few bytes as possible: whole packets."""
        self.shorten()
        self.unused = self.slots * SLOT_SIZE - -(-(self.size + DWORD) // PACKET) * PACKET

    def close(self) -> None:
        """End the part."""
        self._close_block()
        self._put(bytes(self.slots * SLOT_SIZE - self.unused - DWORD - self.size))
        self._put(self.number.to_bytes(DWORD, "little"))

    def _close_block(self) -> None:
        if self.block is not None:
            self.steps.append(Check(self.block))
            self.block = None
            if self.value is not None:
                self.steps.append(Value(self.value))
                self.value = None

    def _put(self, data: Data) -> None:
        if data:
            self.buffers.append(data)
            self.size += len(data)


def fill(
    pieces: Sequence[Piece],
    windows: Sequence[tuple[int, int]],
    blocks: Sequence[int] = (),
    first: int = FIRST,
    *,
    trim: bool = False,
) -> list[Part]:
    """Parts with pieces one behind the other, in windows of slots in turn.

    Args:
        pieces: at least one byte.
        windows: first slot and slots of each.
        blocks: as `Part.blocks`.
        first: number of the first part.
        trim: the last part ends as early as possible; else its last dword is that of its window.
    """
    parts: list[Part] = []

    def new() -> Part:
        slot, slots = windows[len(parts) % len(windows)]
        parts.append(Part(slot, slots, first + len(parts), blocks))
        return parts[-1]

    part = new()
    for piece in pieces:
        view, address = memoryview(piece.data).cast("B"), piece.address
        while view:
            taken = part.take(address, view)
            if not taken:
                part.close()
                part = new()
            view, address = view[taken:], address + taken
        if piece.value is not None:
            part.report(piece.value)
    if trim:
        part.trim()
    elif not blocks:
        part.slot += part.shorten()  # its last dword stays where it is
    elif len(parts) == 1:
        part.shorten()  # of several, each has to overwrite the one before from its first byte on
    part.close()
    return parts


def windows_of(size: int, windows: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """First slot and bytes of each transfer towards the host."""
    number = 0
    while size > 0:
        slot, slots = windows[number % len(windows)]
        part = min(size, slots * SLOT_SIZE)
        yield slot, part
        size -= part
        number += 1


def cut(pieces: Sequence[Piece], size: int, count: int) -> Iterator[list[Piece]]:
    """Streams of at most `size` bytes and `count` pieces."""
    some: list[Piece] = []
    room = size
    for piece in pieces:
        view, address = memoryview(piece.data).cast("B"), piece.address
        while True:
            if len(some) == count or not room:
                yield some
                some, room = [], size
            taken = min(room, len(view))
            whole = taken == len(view)
            some.append(Piece(address, view[:taken], piece.value if whole else None))
            room -= taken
            if whole:
                break
            view, address = view[taken:], address + taken
    if some:
        yield some
