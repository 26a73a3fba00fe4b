"""The page tables that the card keeps as long as it is up: `layout` says what is mapped where.

VRAM at one distance, in the largest pages that fit; the bridge's SRAM, and the page in which slot transfers
towards the host are completed. What is not mapped: the first 2 MiB of VRAM (these tables, the security
processor's buffers, the boot record), the processor's own memory, and what the firmware keeps at the top.
Their users have addresses of the memory controller. Formats: `usbgpu.amd.facts.pages`.

The boot region is not cached: the host and the engines exchange rings, pointers and signals there through
VRAM, and the GPU's L2 neither sees what the host writes nor writes through what an engine writes (grade:
inferred; Linux has its own VRAM uncached, by the MTYPE of the system aperture).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from firmware.asm2464pd.registers.memory import NVME_CQ
from sdk.errors import InternalError
from usbgpu.amd import layout
from usbgpu.amd.batch import Batch
from usbgpu.amd.facts import pages
from usbgpu.amd.layout import GIB, KIB, MIB
from usbgpu.bridge.seam import SRAM_ADDRESS, SRAM_SIZE

PAGE, LARGE = 4 * KIB, 2 * MIB
ENTRIES = PAGE // pages.ENTRY
ROOT = layout.TABLES
TOP = len(pages.LEVELS) - 1
"""Level of the root."""
VIEW = MIB
"""Distance of the views of the SRAM: the bootloader takes addresses in MiB."""


@dataclass(frozen=True, slots=True)
class View:
    """A second address for a stretch of the SRAM.

    Attributes:
        number: from 1 on; its address is `view_address(number)`.
        offset: in the SRAM, a multiple of 4 KiB.
        size: bytes.
    """

    number: int
    offset: int
    size: int


def view_address(number: int) -> int:
    """GPU address of a view; number 0 is the SRAM itself."""
    return layout.SRAM_VA + number * VIEW


@dataclass
class _Tables:
    """Tables under construction.

    Attributes:
        form: of the entries.
        content: of each table, entries by index; by place in VRAM, which rises.
    """

    form: pages.PageFormat
    content: dict[int, dict[int, int]] = field(default_factory=lambda: {ROOT: {}})

    def map(self, address: int, target: int, level: int, flags: int) -> None:
        """Enter a page of a level (0: 4 KiB, 1: 2 MiB, 2: 1 GiB), and the tables above it."""
        offset = (address - layout.VA) >> pages.PAGE_SHIFT
        table = ROOT
        for above in range(TOP, level, -1):
            index = offset >> above * pages.LEVEL_SHIFT & ENTRIES - 1
            if index not in self.content[table]:
                place = layout.TABLES + len(self.content) * PAGE
                if place >= layout.TABLES + layout.TABLES_SIZE:
                    raise InternalError("the page tables exceed their region of VRAM")
                self.content[table][index] = place | pages.VALID
                self.content[place] = {}
            table = self.content[table][index] & pages.ADDRESS
        leaf = self.form.leaf if level or self.form.leaf_in_ptb else 0
        index = offset >> level * pages.LEVEL_SHIFT & ENTRIES - 1
        fragment = level * pages.LEVEL_SHIFT << pages.FRAGMENT_SHIFT
        self.content[table][index] = target | pages.VALID | flags | leaf | fragment


def write(batch: Batch, views: Sequence[View]) -> None:
    """Write all tables. The HDP must be flushed afterwards.

    Args:
        batch: takes the operations.
        views: of the SRAM.
    """
    card = batch.card
    tables = _Tables(pages.FORMATS[card.chip.generation])
    ordinary = pages.READABLE | pages.WRITABLE | pages.EXECUTABLE
    for offset, level in _vram(card.vram):
        caching = tables.form.mtype("UC" if offset < layout.BOOT_REGION else "NC")
        tables.map(layout.address(offset), offset, level, ordinary | caching)
    system = pages.SYSTEM | pages.SNOOPED | pages.READABLE | pages.WRITABLE | tables.form.mtype("UC")
    for view in (View(0, 0, SRAM_SIZE), *views):
        for at in range(0, view.size, PAGE):
            target = SRAM_ADDRESS + view.offset + at
            tables.map(view_address(view.number) + at, target, 0, system)
    tables.map(layout.COMPLETION_VA, NVME_CQ.pcie or 0, 0, system)
    batch.store(ROOT, b"".join(_bytes(entries) for entries in tables.content.values()))


def _bytes(entries: Mapping[int, int]) -> bytes:
    """A table, whole: VRAM holds garbage before, which must not be read as entries."""
    return struct.pack(f"<{ENTRIES}Q", *(entries.get(index, 0) for index in range(ENTRIES)))


def _vram(size: int) -> Iterator[tuple[int, int]]:
    """The pages of VRAM: offset and level."""
    end = (size - layout.RESERVED_AT_TOP) // LARGE * LARGE
    offset = 0
    while offset < end:
        if offset and offset % GIB == 0 and offset + GIB <= end:
            yield offset, 2
            offset += GIB
            continue
        if not (offset < LARGE or layout.TMR <= offset < layout.TMR + layout.TMR_SIZE):
            yield offset, 1
        offset += LARGE
