"""IH, the interrupt handler: it puts an entry for each interrupt into one of two rings in memory.

Everything goes to ring 0 but for what IH_RING1_CLIENT_CFG diverts to ring 1. Behind the bridge there is no
MSI, so nothing wakes the host: it polls IH_RB_WPTR. Formats: `usbgpu.amd.facts.interrupts`; what the kernel
writes in which order: `ih_v6_0.c`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from emulator.amdgpu.context import Context
from emulator.amdgpu.diagnosis import BootStep
from emulator.amdgpu.seams import AddressSpace, PageFault
from emulator.core.clock import HZ
from emulator.pcie.function import UnsupportedRequest
from usbgpu.amd.facts import interrupts as facts

BLOCK = "OSSSYS"
DIVERSIONS = 8
"""Entries of the table behind IH_RING1_CLIENT_CFG_INDEX, a field of 3 bits."""
LARGEST = 256 << 10
"""Bytes of a ring that the fields of its pointers allow."""

STEPS: tuple[BootStep, ...] = (
    BootStep(
        "ih-ring",
        "IH_RB_BASE, IH_RB_BASE_HI; IH_RB_CNTL: RB_SIZE, MC_SPACE 4",
        "interrupts",
        "entries go where IH_RB_BASE points, or nowhere",
        "inferred",
    ),
    BootStep(
        "ih-overflow",
        "IH_RB_CNTL: WPTR_OVERFLOW_ENABLE",
        "noticing that the ring is full",
        "new entries are dropped, and nothing says so",
        "inferred",
    ),
    BootStep(
        "ih-enable",
        "IH_RB_CNTL: RB_ENABLE, after everything else",
        "interrupts",
        "interrupts are lost",
        "inferred",
    ),
    BootStep(
        "ih-ring1",
        "the same for ring 1: IH_RB_BASE_RING1, IH_RB_BASE_HI_RING1, IH_RB_CNTL_RING1",
        "interrupts that IH_RING1_CLIENT_CFG diverts",
        "these are lost",
        "inferred",
    ),
)


@dataclass(slots=True)
class _Ring:
    """The suffix of a ring's registers, and IH's own pointers, in bytes."""

    suffix: str
    write: int = 0
    read: int = 0
    overflowed: bool = False

    def pointer(self) -> int:
        """IH_RB_WPTR."""
        return self.write | self.overflowed


class InterruptHandler:
    """The IH block; implements `seams.Interrupts`.

    Args:
        context: of the card.
        memory: VMID 0 of the MM hub, as OSSSYS.
    """

    def __init__(self, context: Context, memory: AddressSpace) -> None:
        self._context = context
        self._memory = memory
        self._rings = (_Ring(""), _Ring("_RING1"))
        self._busy = False
        registers = context.registers
        registers.store(BLOCK, "IH_RB_WPTR_ADDR_LO", "IH_RB_WPTR_ADDR_HI", "IH_CNTL")
        registers.store(BLOCK, "IH_STORM_CLIENT_LIST_CNTL", "IH_INT_FLOOD_CNTL", "IH_MSI_STORM_CTRL")
        registers.store(BLOCK, "IH_RING1_CLIENT_CFG_INDEX")
        registers.store(BLOCK, "IH_RING1_CLIENT_CFG_DATA", selector=self._diversion)
        registers.on_read(BLOCK, "IH_STATUS", self._status)
        for ring in self._rings:
            suffix = ring.suffix
            registers.store(
                BLOCK, f"IH_RB_BASE{suffix}", f"IH_RB_BASE_HI{suffix}", f"IH_DOORBELL_RPTR{suffix}"
            )
            registers.on_write(BLOCK, f"IH_RB_CNTL{suffix}", partial(self._control, ring))
            registers.on_write(BLOCK, f"IH_RB_RPTR{suffix}", partial(self._set_read, ring))
            registers.on_write(BLOCK, f"IH_RB_WPTR{suffix}", partial(self._set_write, ring))
            registers.on_read(BLOCK, f"IH_RB_RPTR{suffix}", partial(getattr, ring, "read"))
            registers.on_read(BLOCK, f"IH_RB_WPTR{suffix}", ring.pointer)

    def post(
        self, client: int, source: int, *, ring: int = 0, vmid: int = 0, data: Sequence[int] = (0, 0, 0, 0)
    ) -> None:
        """Put an entry into a ring, if it is enabled.

        Args:
            client: one of the facts' CLIENTS.
            source: one of the facts' SOURCES.
            ring: id of the client's ring: part of the entry.
            vmid: of whose work.
            data: four context dwords.
        """
        index = self._ring_of(client, source)
        target = self._rings[index]
        text = f"the interrupt of client {client:#x}, source {source}"
        if not self._field(target, "RB_ENABLE"):
            self._context.diagnosis.missing("ih-ring1" if index else "ih-enable", f"{text} is lost")
            return
        if self._busy:
            self._context.diagnosis.wrong(f"{text} is lost: it comes from writing an entry to the ring")
            return
        if not self._room(target, text):
            return
        dwords = facts.entry(
            client,
            source,
            ring,
            vmid,
            tuple(data),
            timestamp=int(self._context.link.now() * facts.TIMESTAMP_HZ / HZ),
            mm_hub=client == facts.CLIENTS["VMC"],
        )
        self._busy = True
        try:
            self._write(self._base(target) + target.write, target, struct.pack("<8I", *dwords))
            target.write = (target.write + facts.ENTRY) % self._size(target)
            self._report_pointer(target)
        except (PageFault, UnsupportedRequest) as error:
            step = "ih-ring1" if index else "ih-ring"
            self._context.diagnosis.missing(step, f"{text} is lost, its ring cannot be written ({error})")
        finally:
            self._busy = False
        self._context.event("ih", lambda: f"{text}, VMID {vmid}: {' '.join(f'{dword:#x}' for dword in data)}")

    def rung(self, offset: int, value: int) -> None:
        """A doorbell that is routed to IH: a read pointer, in bytes, of the ring that expects it there."""
        for ring in self._rings:
            if self._by_doorbell(ring) and self._doorbell(ring, "OFFSET") << 2 == offset:
                ring.read = value & 0x3_FFFC
                return
        self._context.diagnosis.wrong(f"IH expects no doorbell at {offset:#x} (IH_DOORBELL_RPTR)")

    # -- rings ----------------------------------------------------------------------------------------------

    def _room(self, ring: _Ring, text: str) -> bool:
        """Whether an entry fits, or may overwrite the oldest one."""
        size = self._size(ring)
        if size < 2 * facts.ENTRY:
            step = "ih-ring1" if ring.suffix else "ih-ring"
            self._context.diagnosis.missing(step, f"{text} is lost, a ring of RB_SIZE 0 has no room")
            return False
        if (ring.write + facts.ENTRY) % size != ring.read:
            return True
        if self._field(ring, "WPTR_OVERFLOW_ENABLE"):
            ring.overflowed = True
            self._context.diagnosis.wrong(
                "an interrupt ring is full: the oldest entries are overwritten; advance its read pointer"
            )
            return True
        if ring.suffix:
            self._context.diagnosis.wrong(
                "interrupt ring 1 is full: new entries are dropped; advance IH_RB_RPTR_RING1"
            )
        else:
            self._context.diagnosis.missing("ih-overflow", "the interrupt ring is full: entries are dropped")
        return False

    def _write(self, address: int, ring: _Ring, data: bytes) -> None:
        if self._field(ring, "MC_SPACE") == facts.MC_SPACE_VIRTUAL:
            self._memory.write(address, data)
        else:
            self._context.link.dma_write(address, data)

    def _report_pointer(self, ring: _Ring) -> None:
        """The write pointer's copy in memory; ring 1 has none."""
        if ring.suffix or not self._field(ring, "WPTR_WRITEBACK_ENABLE"):
            return
        registers = self._context.registers
        low, high = registers.value(BLOCK, "IH_RB_WPTR_ADDR_LO"), registers.value(BLOCK, "IH_RB_WPTR_ADDR_HI")
        self._write(high << 32 | low, ring, struct.pack("<I", ring.pointer()))

    def _base(self, ring: _Ring) -> int:
        registers = self._context.registers
        high = registers.get(BLOCK, f"IH_RB_BASE_HI{ring.suffix}", "ADDR")
        return registers.value(BLOCK, f"IH_RB_BASE{ring.suffix}") << 8 | high << 40

    def _size(self, ring: _Ring) -> int:
        return min(4 << self._field(ring, "RB_SIZE"), LARGEST)

    def _field(self, ring: _Ring, part: str) -> int:
        return self._context.registers.get(BLOCK, f"IH_RB_CNTL{ring.suffix}", part)

    # -- registers ------------------------------------------------------------------------------------------

    def _control(self, ring: _Ring, value: int) -> None:
        register = self._context.chip.register(BLOCK, f"IH_RB_CNTL{ring.suffix}")
        if register.get(value, "WPTR_OVERFLOW_CLEAR") and not self._field(ring, "WPTR_OVERFLOW_CLEAR"):
            ring.overflowed = False  # by the change from 0 to 1

    def _set_read(self, ring: _Ring, value: int) -> None:
        """Ignored if IH is set to expect a doorbell instead (grade: guess)."""
        if not self._by_doorbell(ring):
            ring.read = value & 0x3_FFFC

    def _by_doorbell(self, ring: _Ring) -> bool:
        return bool(self._doorbell(ring, "ENABLE"))

    def _doorbell(self, ring: _Ring, part: str) -> int:
        return self._context.registers.get(BLOCK, f"IH_DOORBELL_RPTR{ring.suffix}", part)

    def _set_write(self, ring: _Ring, value: int) -> None:
        ring.write, ring.overflowed = value & 0x3_FFFC, bool(value & 1)

    def _status(self) -> int:
        register = self._context.chip.register(BLOCK, "IH_STATUS")
        first, second = (ring.overflowed for ring in self._rings)
        idle = register.pack(IDLE=1, INPUT_IDLE=1, BUFFER_IDLE=1, MC_WR_IDLE=1)
        return register.pack(idle, RB_OVERFLOW=int(first), RB1_OVERFLOW=int(second))

    def _diversion(self) -> int:
        return self._context.registers.get(BLOCK, "IH_RING1_CLIENT_CFG_INDEX", "INDEX")

    def _ring_of(self, client: int, source: int) -> int:
        """1 if the table of diversions has such an entry, otherwise 0; entries of 0 divert nothing."""
        register = self._context.chip.register(BLOCK, "IH_RING1_CLIENT_CFG_DATA")
        for index in range(DIVERSIONS):
            value = self._context.registers.value(BLOCK, register.name, index)
            matches = register.get(value, "CLIENT_ID") == client
            if register.get(value, "SOURCE_ID_MATCH_ENABLE"):
                matches = matches and register.get(value, "SOURCE_ID") == source
            if value and matches:
                return 1
        return 0
