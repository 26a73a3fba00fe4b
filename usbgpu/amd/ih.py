"""The interrupt handler: two rings in VRAM. The host gets no interrupts; the rings are read when something
hangs.

Formats: `usbgpu.amd.facts.interrupts`; what is written in which order: Linux' `ih_v6_0.c`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from usbgpu.amd import layout
from usbgpu.amd.batch import RESULT_ROOM, Batch, Later
from usbgpu.amd.card import Card
from usbgpu.amd.facts import interrupts as facts

RING_SIZE = 256 << 10
"""Bytes of each ring: as many as the pointers count."""
RINGS = {"": layout.INTERRUPTS, "_RING1": layout.INTERRUPTS + RING_SIZE}
"""Where they are in VRAM, by the suffix of their registers."""
WRITE_POINTER = layout.INTERRUPTS + 2 * RING_SIZE
"""Where a copy of the write pointer is kept."""
ERRORS = frozenset(
    facts.SOURCES[name]
    for name in (
        "SDMA_SRBMWRITE", "SDMA_DOORBELL_INVALID", "SDMA_QUEUE_HANG", "SDMA_POLL_TIMEOUT", "SDMA_PAGE_FAULT",
        "CP_PM4_PKT_RSVD_BIT_ERROR", "CP_BAD_OPCODE_ERROR", "CP_PRIV_REG_FAULT", "CP_PRIV_INSTR_FAULT",
    )
)  # fmt: skip
"""Sources of interrupts that report an error."""
SQ_ERROR = 2
"""Bits 7:6 of the second context dword of SQ_INTERRUPT_ID (Linux, `navi10_enum.h`)."""
SQ_TYPES = {1: "an illegal instruction", 2: "a memory violation"}
"""Bits 24:21 of the first one (Linux, `kfd_int_process_v11.c`)."""
NEWEST = RESULT_ROOM // facts.ENTRY * facts.ENTRY
"""Largest number of bytes of entries that are read: one result."""


@dataclass(frozen=True, slots=True)
class Interrupt:
    """An entry of the ring.

    Attributes:
        client: by its number, and so is `source`.
        ring: id of the client's ring.
        vmid: of whose work.
        data: four context dwords.
    """

    client: int
    source: int
    ring: int
    vmid: int
    data: tuple[int, int, int, int]

    @property
    def name(self) -> str:
        """Of client and source, as the kernel has them."""
        return f"{_name(facts.CLIENTS, self.client)} {_name(facts.SOURCES, self.source)}"

    @property
    def reports_heat(self) -> bool:
        """Whether the power management reports that heat makes it lower clocks."""
        mine = self.client == facts.CLIENTS["MP1"] and self.source == facts.SOURCES["SMU_TO_DRIVER"]
        return mine and self.data[0] == facts.THERMAL_THROTTLING

    @property
    def error(self) -> str | None:
        """What went wrong, as text, if it reports an error."""
        if self.source == facts.SOURCES["SQ_INTERRUPT_ID"]:
            if self.data[1] >> 6 & 3 != SQ_ERROR:
                return None
            return SQ_TYPES.get(self.data[0] >> 21 & 0xF, self.name)
        return self.name if self.source in ERRORS else None


def init(batch: Batch, vram: int) -> None:
    """Route interrupts to both rings.

    Args:
        batch: takes the operations.
        vram: address of VRAM for the memory controller.
    """
    chip = batch.card.chip
    common = {"RB_SIZE": (RING_SIZE // 4).bit_length() - 1, "MC_SPACE": facts.MC_SPACE_VIRTUAL, "MC_SNOOP": 1}
    controls = {
        "": {**common, "WPTR_OVERFLOW_ENABLE": 1, "RPTR_REARM": 1, "WPTR_OVERFLOW_CLEAR": 1},
        "_RING1": {**common, "RB_FULL_DRAIN_ENABLE": 1, "WPTR_OVERFLOW_CLEAR": 1},
    }
    for suffix, place in RINGS.items():
        address = vram + place
        batch.write("OSSSYS", f"IH_RB_BASE{suffix}", address >> 8)
        batch.write("OSSSYS", f"IH_RB_BASE_HI{suffix}", address >> 40)
        control = chip.register("OSSSYS", f"IH_RB_CNTL{suffix}")
        batch.write("OSSSYS", control.name, control.pack(**controls[suffix]))
        if not suffix:
            batch.pair("OSSSYS", "IH_RB_WPTR_ADDR_LO", "IH_RB_WPTR_ADDR_HI", vram + WRITE_POINTER)
        for name in ("IH_RB_WPTR", "IH_RB_RPTR", "IH_DOORBELL_RPTR"):
            batch.write("OSSSYS", name + suffix, 0)
    batch.set("OSSSYS", "IH_STORM_CLIENT_LIST_CNTL", CLIENT18_IS_STORM_CLIENT=1)
    batch.set("OSSSYS", "IH_INT_FLOOD_CNTL", FLOOD_CNTL_ENABLE=1)
    batch.set("OSSSYS", "IH_MSI_STORM_CTRL", DELAY=3)
    batch.set("OSSSYS", "IH_RB_CNTL", RB_ENABLE=1, ENABLE_INTR=1)
    batch.set("OSSSYS", "IH_RB_CNTL_RING1", RB_ENABLE=1)


Pointers = tuple[Later[int], Later[int]]
"""Of ring 0: up to where it has been read, and written."""


def ask(batch: Batch) -> Pointers:
    """Read the pointers of ring 0."""
    return batch.read("OSSSYS", "IH_RB_RPTR"), batch.read("OSSSYS", "IH_RB_WPTR")


def drain(card: Card) -> list[Interrupt]:
    """The newest entries of ring 0 that have not been read, oldest first; afterwards all have been.

    Two lists, three if the ring wraps between them.

    Raises:
        GpuFailed, DeviceFailed, DeviceMissing: as `Batch.run`.
    """
    batch = Batch(card, "interrupts")
    pointers = ask(batch)
    batch.run()
    parts, end = _newest(batch, pointers)
    batch.write("OSSSYS", "IH_RB_RPTR", end)
    batch.run()
    return _entries(parts)


def throttlings(card: Card, pointers: Pointers) -> int:
    """How often the power management has reported heat in what has not been read; that has been read then.

    If there is something else, all is left for `drain`, and 0 is returned. No list if there is nothing, else
    two or three.

    Args:
        card: whose.
        pointers: of ring 0, which have been read.

    Raises:
        GpuFailed, DeviceFailed, DeviceMissing: as `Batch.run`.
    """
    if pointers[0].value == pointers[1].value:
        return 0
    batch = Batch(card, "interrupts")
    parts, end = _newest(batch, pointers)
    batch.run()
    found = _entries(parts)
    if not all(each.reports_heat for each in found):
        return 0
    batch = Batch(card, "interrupts")
    batch.write("OSSSYS", "IH_RB_RPTR", end)
    batch.run()
    return len(found)


def _newest(batch: Batch, pointers: Pointers) -> tuple[list[Later[bytes]], int]:
    """Read the newest entries, as far as they fit into one result; and where they end."""
    start, end = (pointer.value & RING_SIZE - facts.ENTRY for pointer in pointers)
    count = min((end - start) % RING_SIZE, NEWEST)
    start = (end - count) % RING_SIZE
    first = min(count, RING_SIZE - start)
    pieces = [(start, first), (0, count - first)]
    return [batch.load(layout.INTERRUPTS + place, size) for place, size in pieces if size], end


def _entries(parts: Sequence[Later[bytes]]) -> list[Interrupt]:
    data = b"".join(part.value for part in parts)
    return [_entry(data[at : at + facts.ENTRY]) for at in range(0, len(data), facts.ENTRY)]


def _name(known: Mapping[str, int], number: int) -> str:
    return next((name for name, other in known.items() if other == number), str(number))


def _entry(data: bytes) -> Interrupt:
    dwords = struct.unpack("<8I", data)
    first = dwords[0]
    return Interrupt(first & 0xFF, first >> 8 & 0xFF, first >> 16 & 0xFF, first >> 24 & 0xF, dwords[4:])
