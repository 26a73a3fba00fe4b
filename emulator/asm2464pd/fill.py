"""The fill engine: a DMA that sets a stretch of XDATA memory to one byte.

The chip maker's firmware clears the queue memories with it, and polls its busy bit without a time-out
[trace]. Each memory is filled twice, once for either value of a bank bit; that these are two banks, of which
the CPU sees the one with the bit clear, is inferred: a fill of the other bank leaves what the CPU sees. How
long a fill takes is a guess. The engine moves no data to registers: a fill outside memory is reported.
"""

from __future__ import annotations

from emulator.asm2464pd import timing
from emulator.asm2464pd.undefined import Reporter
from emulator.core.bus import Bus
from firmware.asm2464pd.describe import ByteRegister, Space
from firmware.asm2464pd.registers import dma as regs
from firmware.asm2464pd.registers.memory import NVME_ADMIN, NVME_CQ, NVME_SQ

_STORAGE = (
    regs.DMA_FILL_ADDRESS,
    regs.DMA_FILL_LAST,
    regs.DMA_FILL_CHANNEL,
    regs.DMA_FILL_BYTE,
    regs.DMA_FILL_BANK_CQ,
    regs.DMA_FILL_BANK_SQ,
)
_BANKS = {NVME_SQ: regs.DMA_FILL_BANK_SQ, NVME_ADMIN: regs.DMA_FILL_BANK_SQ, NVME_CQ: regs.DMA_FILL_BANK_CQ}
"""The register with the bank bit of each memory that has banks."""


class FillEngine:
    """The fill engine.

    Args:
        bus: registers and memory.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._undefined = Reporter(bus)
        for register in _STORAGE:
            bus.map(register, "dma")
        bus.map(regs.DMA_FILL_TRIGGER, "dma", write=self._triggered)

    def _triggered(self, value: int) -> None:
        bus, start = self._bus, regs.DMA_FILL_TRIGGER["START"]
        if not value & start or bus.value(regs.DMA_FILL_TRIGGER) & start:
            return
        first = bus.value(regs.DMA_FILL_ADDRESS)
        data = bytes((bus.value(regs.DMA_FILL_BYTE),)) * (bus.value(regs.DMA_FILL_LAST) + 1)
        bank = self._bank(first, len(data))

        def finish() -> None:
            if bank is None or not bus.value(bank) & bank["OTHER"]:
                bus.store(Space.XDATA, first, data)
            bus.clear_bits(regs.DMA_FILL_TRIGGER, start)

        bus.raise_bits(regs.DMA_FILL_TRIGGER, start)
        done = finish if self._is_memory(first, len(data)) else self._refused
        bus.clock.after(len(data) * timing.FILL_BYTE.clocks, done)

    def _refused(self) -> None:
        self._bus.clear_bits(regs.DMA_FILL_TRIGGER, regs.DMA_FILL_TRIGGER["START"])

    def _is_memory(self, first: int, size: int) -> bool:
        """Whether every byte is of a memory; reports a fill that is not."""
        place, facts = first, self._bus.facts
        while place < first + size:
            memory = facts.memory_at(Space.XDATA, place)
            if memory is None:
                self._undefined.report(
                    "a fill leaves the memories of XDATA",
                    detail=f"{size} bytes from {first:#06x}, {place:#06x} is in no memory",
                    hint="fill one memory at a time; the model fills nothing",
                )
                return False
            place = memory.address + memory.size
        return True

    def _bank(self, first: int, size: int) -> ByteRegister | None:
        for memory, register in _BANKS.items():
            if first in memory.addresses and first + size - 1 in memory.addresses:
                return register
        return None
