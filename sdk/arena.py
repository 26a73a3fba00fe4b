"""The static memory of a network: one arena for all its activations, one blob of its constants.

Targets lower to steps (layers, launches) and plan their buffers with it, from when each lives. Offsets come
from greedy first fit in a few orders, of which the best is kept. All of it is deterministic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np

from sdk.graph import Array

ALIGNMENT = 128  # bytes of an HVX vector, and of a cache line of RDNA


def align(value: int, to: int = ALIGNMENT) -> int:
    return -(-value // to) * to


class Blob:
    """An append-only byte string; every piece starts at a multiple of `alignment`.

    Attributes:
        nbytes: so far.
    """

    def __init__(self, alignment: int = ALIGNMENT) -> None:
        self._alignment = alignment
        self._pieces: dict[bytes, int] = {}
        self.nbytes = 0

    def add(self, array: Array) -> int:
        """Append an array's bytes (little-endian), once; the offset at which they start."""
        data = np.ascontiguousarray(array).tobytes()
        data += bytes(-len(data) % self._alignment)
        if data not in self._pieces:
            self._pieces[data] = self.nbytes
            self.nbytes += len(data)
        return self._pieces[data]

    def __bytes__(self) -> bytes:
        return b"".join(self._pieces)


@dataclass(eq=False)
class Buffer:
    """A range of the arena that is live from layer `first` to layer `last`, both included.

    Attributes:
        nbytes: a multiple of what the target aligns its buffers to.
        offset: bytes from the arena's start, once planned.
    """

    name: str
    nbytes: int
    first: int
    last: int
    offset: int = field(default=-1)

    def overlaps_in_time(self, other: Buffer) -> bool:
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class BufferPlan:
    """A buffer as a plan keeps it: live from step (layer, launch) `first` to step `last`."""

    name: str
    offset: int
    nbytes: int
    first: int
    last: int

    @classmethod
    def of(cls, buffer: Buffer) -> BufferPlan:
        return cls(buffer.name, buffer.offset, buffer.nbytes, buffer.first, buffer.last)

    def to_json(self) -> dict[str, int | str]:
        """As plans in files have it: bytes are called `size` there."""
        document = vars(self).copy()
        return document | {"size": document.pop("nbytes")}


def live_peak(spans: Iterable[tuple[int, int, int]]) -> int:
    """The largest sum of bytes alive at once, of spans (first, last, bytes); both moments are included."""
    changes: Counter[int] = Counter()
    for first, last, nbytes in spans:
        changes[first] += nbytes
        changes[last + 1] -= nbytes
    return max(accumulate(changes[moment] for moment in sorted(changes)), default=0)


def plan(buffers: Sequence[Buffer], guard: int = 0) -> int:
    """Give every buffer its offset; the arena's size in bytes.

    With a `guard`, buffers share nothing and keep `guard` bytes (rounded up to vectors) between them, so
    that a test can see any write outside a buffer.
    """
    if guard:
        at = align(guard)
        for buffer in buffers:
            buffer.offset = at
            at += buffer.nbytes + align(guard)
        return at
    orders = (
        sorted(buffers, key=lambda b: (-b.nbytes, b.first, b.name)),
        sorted(buffers, key=lambda b: (-b.nbytes * (b.last - b.first + 1), b.first, b.name)),
        sorted(buffers, key=lambda b: (b.first, -b.nbytes, b.name)),
    )
    best = min((_place(order) for order in orders), key=lambda placed: placed[0])
    nbytes, offsets = best
    for buffer in buffers:
        buffer.offset = offsets[id(buffer)]
    return nbytes


def _place(order: Sequence[Buffer]) -> tuple[int, dict[int, int]]:
    placed: list[Buffer] = []
    offsets: dict[int, int] = {}
    for buffer in order:
        at = 0
        rivals = (other for other in placed if other.overlaps_in_time(buffer))
        for other in sorted(rivals, key=lambda other: offsets[id(other)]):
            if at + buffer.nbytes <= offsets[id(other)]:
                break
            at = max(at, offsets[id(other)] + other.nbytes)
        offsets[id(buffer)] = at
        placed.append(buffer)
    return max((offsets[id(b)] + b.nbytes for b in placed), default=0), offsets
