"""Bulk data: bytes in pieces, so that networks of several gigabytes are never copied as a whole.

A piece is an array of the graph, in memory or in a mapped file, or a part of the `.tow` it was read from.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from sdk.files import Mapped
from sdk.graph import Array

PART = 2**24
AROUND = 2**21
"""Linux maps up to a huge page around a byte that is read, and so what was released before, too."""


@dataclass(frozen=True, eq=False, repr=False)
class Weights:
    """Bytes, of which those that are not in a piece are zero.

    Attributes:
        nbytes: of all.
        pieces: (offset, bytes), in order; they do not overlap.
        file: where they lie as they are: a file, and the offset in it; None if only memory has them.
    """

    nbytes: int
    pieces: tuple[tuple[int, memoryview], ...]
    file: tuple[Mapped, int] | None = None

    @classmethod
    def of(cls, data: bytes | bytearray | memoryview) -> Weights:
        """Bytes that lie in memory, or in a mapped file, in one piece."""
        view = memoryview(data)
        return cls(view.nbytes, ((0, view),))

    @classmethod
    def part(cls, file: Mapped, offset: int, nbytes: int) -> Weights:
        """A part of a file."""
        return cls(nbytes, ((0, file.view[offset : offset + nbytes]),), (file, offset))

    def __repr__(self) -> str:
        return f"<Weights of {self.nbytes:,} bytes>"

    def __bytes__(self) -> bytes:
        return bytes(self.buffer())

    def buffer(self) -> memoryview:
        """All of them one behind the other: a copy only where there are several pieces."""
        if len(self.pieces) == 1 and self.pieces[0][1].nbytes == self.nbytes:
            return self.pieces[0][1]
        return memoryview(b"".join(self))

    def spans(self) -> Iterator[tuple[int, memoryview]]:
        """All of them in order, by offset: the pieces, and zeros (at most PART bytes) where there is none."""
        at = 0
        for offset, piece in (*self.pieces, (self.nbytes, memoryview(b""))):
            for start in range(at, offset, PART):
                yield start, memoryview(bytes(min(PART, offset - start)))
            if piece:
                yield offset, piece
            at = offset + piece.nbytes

    def __iter__(self) -> Iterator[memoryview]:
        """The bytes in order, in parts of at most PART bytes."""
        for _, span in self.spans():
            yield from parts(span)


def raw(array: Array) -> memoryview:
    """The bytes of an array, little-endian and in C order; a copy only if it has them otherwise."""
    little = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False))
    return little.reshape(-1).view(np.uint8).data


def parts(piece: memoryview) -> Iterator[memoryview]:
    """Bytes in parts; what is mapped does not stay in memory for having been read."""
    for start in range(0, piece.nbytes, PART):
        part = piece[start : start + PART]
        yield part
        release(part)


def digest(piece: memoryview, padding: int = 0) -> bytes:
    """The SHA-256 of bytes, and of so many zeros behind them."""
    found = hashlib.sha256()
    for part in parts(piece):
        found.update(part)
    found.update(bytes(padding))
    return found.digest()


def address(piece: memoryview) -> int:
    """Where the bytes lie in this process."""
    return int(np.frombuffer(piece, np.uint8).__array_interface__["data"][0])


def release(piece: memoryview) -> None:
    """Give the memory of bytes that a read-only file is mapped to back to the system, which reads them again
    when they are needed; other bytes stay.
    """
    owner: Any = piece
    while isinstance(owner, memoryview | np.ndarray):
        owner = owner.obj if isinstance(owner, memoryview) else owner.base
    if isinstance(owner, mmap.mmap) and memoryview(owner).readonly and hasattr(owner, "madvise"):
        begin, start = address(memoryview(owner)), address(piece)
        first = max(begin, start // AROUND * AROUND)
        owner.madvise(mmap.MADV_DONTNEED, first - begin, start + piece.nbytes - first)
