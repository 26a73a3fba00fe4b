"""What unit tests of the emulated card's blocks share: a link with time and memory, and a context."""

from __future__ import annotations

from collections.abc import Callable

from emulator.amdgpu.context import Context
from emulator.amdgpu.diagnosis import Diagnosis
from emulator.amdgpu.registers import RegisterFile
from emulator.amdgpu.seams import Extent, PageFault
from emulator.amdgpu.vram import Vram
from emulator.core.clock import Scheduler
from emulator.pcie.function import UnsupportedRequest
from usbgpu.amd.facts.chips import CHIPS

SRAM = 0x200000


class Noticed:
    """What a bench has with a context: what was found wrong, and the boot steps that were missing."""

    context: Context

    @property
    def findings(self) -> str:
        return " | ".join(finding.symptom for finding in self.context.diagnosis.findings)

    @property
    def steps(self) -> set[str]:
        return self.context.diagnosis.steps


class Link:
    """Time, and 512 KiB of upstream memory at SRAM; implements `context.Link`."""

    def __init__(self) -> None:
        self.clock = Scheduler()
        self.data = bytearray(512 << 10)

    def dma_read(self, address: int, size: int) -> bytes:
        offset = self._offset(address, size)
        return bytes(self.data[offset : offset + size])

    def dma_write(self, address: int, data: bytes) -> None:
        offset = self._offset(address, len(data))
        self.data[offset : offset + len(data)] = data

    def transfer_clocks(self, size: int) -> int:
        return size // 8

    def now(self) -> int:
        return self.clock.now

    def schedule(self, clocks: int, action: Callable[[], None]) -> None:
        self.clock.after(clocks, action)

    def run(self, clocks: int) -> None:
        """Let time pass."""
        run(self.clock, clocks)

    def _offset(self, address: int, size: int) -> int:
        if not SRAM <= address <= SRAM + len(self.data) - size:
            raise UnsupportedRequest
        return address - SRAM


class FlatMemory:
    """VRAM at address 0 and nothing else; implements `seams.AddressSpace`."""

    def __init__(self, vram: Vram) -> None:
        self._vram = vram

    def translate(self, address: int, *, write: bool = False) -> Extent:
        if not 0 <= address < self._vram.size:
            raise PageFault(address, write=write, reason="not mapped")
        return Extent(0, self._vram.size, 0, system=False, writable=True, executable=True)

    def read(self, address: int, size: int) -> bytes:
        self._check(address, size, write=False)
        return self._vram.read(address, size)

    def write(self, address: int, data: bytes) -> None:
        self._check(address, len(data), write=True)
        self._vram.write(address, data)

    def _check(self, address: int, size: int, *, write: bool) -> None:
        for end in (address, address + size - 1):
            self.translate(end, write=write)


def run(clock: Scheduler, clocks: int) -> None:
    """Let time pass on a scheduler, event by event."""
    end = clock.now + clocks
    while (due := clock.next) is not None and due <= end:
        clock.now = due
        clock.run_due()
    clock.now = end


def context(chip: str = "gfx1100", *, vram: int = 256 << 20) -> tuple[Context, Link]:
    """A context with nothing in it, and its link."""
    link = Link()
    diagnosis = Diagnosis(link.now)
    facts = CHIPS[chip]
    return Context(facts, Vram(vram), RegisterFile(facts, diagnosis), link, diagnosis), link


def write(context: Context, block: str, name: str, value: int) -> None:
    """A register write of the driver."""
    context.registers.write(context.chip.address(block, name), value)


def read(context: Context, block: str, name: str) -> int:
    """A register read of the driver."""
    return context.registers.read(context.chip.address(block, name))
