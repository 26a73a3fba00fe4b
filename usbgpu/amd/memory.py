"""VRAM for buffers: an allocator over everything outside the boot region and what the card reserves.

Offsets count bytes of VRAM; `layout.address` makes GPU addresses of them. Allocations are not recorded in the
card: they end with the process.
"""

from __future__ import annotations

from bisect import bisect
from dataclasses import dataclass

from sdk.errors import InternalError, Unsupported, UsageError
from sdk.report import size as human
from usbgpu.amd import layout

GRAIN = 256
"""Bytes that allocations are multiples of: a burst of VRAM, and what code and scratch memory begin at."""


class Buffer:
    """A piece of VRAM, or a view of one.

    Attributes:
        offset: in VRAM, bytes.
        size: bytes.
    """

    def __init__(self, memory: Memory, offset: int, size: int, whole: Buffer | None = None) -> None:
        self.offset = offset
        self.size = size
        self._memory = memory
        self._whole = whole
        self._freed = False

    @property
    def freed(self) -> bool:
        """Whether it, or what it is a view of, has been freed."""
        return self._freed or (self._whole is not None and self._whole.freed)

    @property
    def address(self) -> int:
        """GPU address. Raises UsageError if the buffer has been freed."""
        return layout.address(self.place(0, self.size))

    def place(self, offset: int, size: int) -> int:
        """Where bytes of it are in VRAM.

        Raises:
            UsageError: the buffer has been freed, or has no such bytes.
        """
        if self.freed:
            raise UsageError(f"{self} is used after it was freed")
        if offset < 0 or size < 0 or offset + size > self.size:
            raise UsageError(f"{size} bytes at {offset} are not within {self}")
        return self.offset + offset

    def view(self, offset: int, size: int) -> Buffer:
        """A part of it; freeing that has no effect. Raises UsageError as `place` does."""
        return Buffer(self._memory, self.place(offset, size), size, self)

    def free(self) -> None:
        """Free it. Idempotent."""
        if self._whole is None and not self._freed:
            self._freed = True
            self._memory.release(self)

    def __str__(self) -> str:
        return f"the buffer of {self.size} bytes at {self.offset:#x} of VRAM"


@dataclass(frozen=True, slots=True)
class _Gap:
    start: int
    end: int


class Memory:
    """Allocates a stretch of VRAM: the first gap that is large enough is taken.

    Args:
        start: first byte, a multiple of GRAIN.
        end: after the last one.

    Attributes:
        size: bytes in all.
        used: bytes that are allocated.
    """

    def __init__(self, start: int, end: int) -> None:
        if start % GRAIN or end < start:
            raise InternalError(f"VRAM from {start:#x} to {end:#x} cannot be allocated")
        self.size = end // GRAIN * GRAIN - start
        self.used = 0
        self._gaps = [_Gap(start, start + self.size)] if self.size else []

    @classmethod
    def of(cls, vram: int, window: int) -> Memory:
        """The VRAM of a card that buffers may use.

        Args:
            vram: bytes of the card.
            window: bytes of it that BAR 0 reaches.
        """
        return cls(layout.BOOT_REGION, max(layout.BOOT_REGION, min(vram - layout.RESERVED_AT_TOP, window)))

    @property
    def free(self) -> int:
        """Bytes that are not allocated."""
        return self.size - self.used

    @property
    def largest(self) -> int:
        """Bytes of the largest gap."""
        return max((gap.end - gap.start for gap in self._gaps), default=0)

    def allocate(self, size: int, alignment: int = GRAIN) -> Buffer:
        """A piece of VRAM with any content.

        Args:
            size: bytes, 1 at least.
            alignment: of its offset and of its address; a power of two.

        Raises:
            Unsupported: there is not enough; with the sizes.
            UsageError: a size below 1, or an alignment that is not a power of two.
        """
        if size < 1 or alignment < 1 or alignment & alignment - 1:
            raise UsageError(
                f"{size} bytes of VRAM, aligned to {alignment}: must be 1 or more, a power of two"
            )
        taken = self._take(size, alignment)
        if taken is None:
            raise Unsupported(
                f"{human(size)} of VRAM requested, {human(self.free)} of {human(self.size)} "
                f"free, the largest piece {human(self.largest)}",
                hint="free buffers, or use a card with more memory",
            )
        return Buffer(self, taken, size)

    def release(self, buffer: Buffer) -> None:
        """Free a buffer: see `Buffer.free`."""
        start, end = buffer.offset, buffer.offset + _rounded(buffer.size)
        self.used -= end - start
        at = bisect(self._gaps, start, key=lambda gap: gap.start)
        if at < len(self._gaps) and self._gaps[at].start == end:
            end = self._gaps.pop(at).end
        if at and self._gaps[at - 1].end == start:
            at -= 1
            start = self._gaps.pop(at).start
        self._gaps.insert(at, _Gap(start, end))

    def _take(self, size: int, alignment: int) -> int | None:
        size = _rounded(size)
        for at, gap in enumerate(self._gaps):
            start = -(-gap.start // alignment) * alignment
            if start + size <= gap.end:
                pieces = (_Gap(gap.start, start), _Gap(start + size, gap.end))
                self._gaps[at : at + 1] = [piece for piece in pieces if piece.start < piece.end]
                self.used += size
                return start
        return None


def _rounded(size: int) -> int:
    return -(-size // GRAIN) * GRAIN
