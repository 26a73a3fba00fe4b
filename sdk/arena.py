"""The static memory of a network: one arena for all its activations, one blob of its constants.

Targets lower to steps (layers, launches) and plan their buffers with it, from when each lives. Offsets come
from greedy first fit in a few orders, of which the best is kept. All of it is deterministic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from sdk.graph import Array
from sdk.weights import Weights, address, digest, raw

ALIGNMENT = 128  # bytes of an HVX vector, and of a cache line of RDNA


def align(value: int, to: int = ALIGNMENT) -> int:
    return -(-value // to) * to


class Blob:
    """Bulk data in the making; every piece starts at a multiple of `alignment`.

    It keeps the arrays themselves, which must not change any more.

    Attributes:
        nbytes: so far.
    """

    def __init__(self, alignment: int = ALIGNMENT) -> None:
        self._alignment = alignment
        self._pieces: list[tuple[int, memoryview]] = []
        self._offsets: dict[bytes, int] = {}  # by the digest of the padded bytes
        self._places: dict[tuple[int, int], int] = {}  # by address and length: spares reading them again
        self.nbytes = 0

    def add(self, array: Array) -> int:
        """Append an array's bytes (little-endian), once; the offset at which they start."""
        piece = raw(array)
        place = address(piece), piece.nbytes
        if place in self._places:
            return self._places[place]
        found = digest(piece, -piece.nbytes % self._alignment)
        offset = self._offsets.setdefault(found, self.nbytes)
        if offset == self.nbytes:
            self._pieces.append((offset, piece))
            self._places[place] = offset
            self.nbytes += align(piece.nbytes, self._alignment)
        return offset

    def weights(self) -> Weights:
        """All of it so far."""
        return Weights(self.nbytes, tuple(self._pieces))


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


def live_peak(spans: Iterable[tuple[int, int, int]]) -> int:
    """The largest sum of bytes alive at once, of spans (first, last, bytes); both moments are included."""
    changes: Counter[int] = Counter()
    for first, last, nbytes in spans:
        changes[first] += nbytes
        changes[last + 1] -= nbytes
    return max(accumulate(changes[moment] for moment in sorted(changes)), default=0)


def plan(buffers: Sequence[Buffer], guard: int = 0, first: Sequence[Buffer] = ()) -> int:
    """Give every buffer its offset; the arena's size in bytes.

    With a `guard`, buffers share nothing and keep `guard` bytes (rounded up to vectors) between them, so
    that a test can see any write outside a buffer.

    Args:
        buffers: all of them.
        guard: bytes.
        first: those of the buffers that begin the arena side by side in this order, so that one transfer may
            have several; when one is not live, others may share its place.
    """
    rest = [buffer for buffer in buffers if not any(buffer is one for one in first)]
    if guard:
        at = align(guard)
        for buffer in (*first, *rest):
            buffer.offset = at
            at += buffer.nbytes + align(guard)
        return at
    orders = (
        sorted(rest, key=lambda b: (-b.nbytes, b.first, b.name)),
        sorted(rest, key=lambda b: (-b.nbytes * (b.last - b.first + 1), b.first, b.name)),
        sorted(rest, key=lambda b: (b.first, -b.nbytes, b.name)),
    )
    best = min((_place(order, first) for order in orders), key=lambda placed: placed[0])
    nbytes, offsets = best
    for buffer in buffers:
        buffer.offset = offsets[id(buffer)]
    return nbytes


def _place(order: Sequence[Buffer], first: Sequence[Buffer]) -> tuple[int, dict[int, int]]:
    placed = [*first]
    ends = accumulate((buffer.nbytes for buffer in first), initial=0)
    offsets = {id(buffer): at for buffer, at in zip(first, ends, strict=False)}
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
