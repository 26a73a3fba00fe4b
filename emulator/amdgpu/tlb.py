"""What a VM hub remembers: translations (L1), and entries of page tables (L2).

Both keep their entries until these are invalidated, or the room is needed, even if the tables in memory have
changed since. Only valid entries are kept: the kernel does not flush after it has mapped
what was unmapped (inferred from that). How much there is room for is the model's; silicon's sizes are not
published.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from emulator.amdgpu.page_tables import Root, Where
from emulator.amdgpu.seams import Extent

TRANSLATIONS = 512
"""Translations that a hub keeps (grade: guess)."""
ENTRIES = 4096
"""Entries of tables that it keeps (grade: guess)."""


Access = Literal["READ", "WRITE", "EXECUTE"]


@dataclass(slots=True)
class Translation:
    """A stretch of memory as L1 has it.

    Attributes:
        extent: where it is.
        readable: whether it may be read.
        root: the context that it is of; None if no tables were read.
        clock: when they were read, in chip clocks.
        sources: their entries, as far as they are in VRAM: offset and bytes. Empty once it is known, and
            reported, that they have changed.
        dummy: whether it replaces a page that faulted; never kept.
    """

    extent: Extent
    readable: bool = True
    root: Root | None = None
    clock: int = 0
    sources: tuple[tuple[int, bytes], ...] = ()
    dummy: bool = False

    def allows(self, access: Access) -> bool:
        """Whether that may be done to it."""
        if access == "READ":
            return self.readable
        return self.extent.writable if access == "WRITE" else self.extent.executable


Matches = Callable[[int, int, int], bool]
"""Whether something of a VMID, from a first virtual address to after a last one, is to be forgotten."""


class Tlb:
    """Translations, found by VMID and address; the oldest goes first."""

    def __init__(self, capacity: int = TRANSLATIONS) -> None:
        self._capacity = capacity
        self._entries: dict[tuple[int, int, int], Translation] = {}
        self._sizes: dict[int, int] = {}  # how many translations there are of each size

    def find(self, vmid: int, address: int) -> Translation | None:
        """The translation of an address."""
        for size in self._sizes:
            found = self._entries.get((vmid, size, address // size))
            if found is not None and found.extent.start <= address < found.extent.end:
                return found
        return None

    def add(self, vmid: int, size: int, translation: Translation) -> None:
        """Keep a translation of a block of `size` bytes, a power of two, aligned to its size."""
        if len(self._entries) >= self._capacity:
            self._drop(next(iter(self._entries)))
        key = (vmid, size, translation.extent.start // size)
        if key in self._entries:
            self._drop(key)
        self._entries[key] = translation
        self._sizes[size] = self._sizes.get(size, 0) + 1

    def forget(self, matches: Matches) -> None:
        """Drop translations."""
        for key, found in list(self._entries.items()):
            if matches(key[0], found.extent.start, found.extent.end):
                self._drop(key)

    def _drop(self, key: tuple[int, int, int]) -> None:
        del self._entries[key]
        self._sizes[key[1]] -= 1
        if not self._sizes[key[1]]:
            del self._sizes[key[1]]

    def __len__(self) -> int:
        return len(self._entries)


class EntryCache:
    """Entries of page tables, found by VMID and place; the oldest goes first."""

    def __init__(self, capacity: int = ENTRIES) -> None:
        self._capacity = capacity
        self._entries: dict[tuple[int, int, bool, int], tuple[int, Where]] = {}

    def find(self, vmid: int, where: Where) -> int | None:
        """An entry's value."""
        found = self._entries.get((vmid, where.level, where.system, where.address))
        return None if found is None else found[0]

    def add(self, vmid: int, where: Where, value: int) -> None:
        """Keep an entry."""
        if len(self._entries) >= self._capacity:
            del self._entries[next(iter(self._entries))]
        self._entries[vmid, where.level, where.system, where.address] = value, where

    def __len__(self) -> int:
        return len(self._entries)

    def forget(self, levels: frozenset[int], matches: Matches) -> None:
        """Drop entries of tables of these levels."""
        self._entries = {
            key: (value, where)
            for key, (value, where) in self._entries.items()
            if key[1] not in levels or not matches(key[0], where.start, where.end)
        }
