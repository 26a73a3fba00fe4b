"""NBIO, the card's PCIe front: indirect windows, flushes of the HDP, routes of doorbells.

Registers beyond BAR 5 are reached through RSMU_INDEX and RSMU_DATA, by byte address. MM_INDEX and
MM_DATA reach registers likewise, and with bit 31 of MM_INDEX VRAM, of which MM_INDEX_HI has the address bits
from 31 on (`amdgpu_device.c`). Flushes: reference of the kernel's `nbio_v4_3.c`; the power-on values of the
REMAP registers are those of `nbio_2_3_default.h` (grade: inferred for these generations), which make each
name the register that does the same.

BIF_DOORBELL_INT_CNTL (index 0xe1e on both cards) is storage: a published driver accesses it when it sets the
card up and when it looks for errors (trace); the name is that of the kernel's headers. Its interrupts do not
occur in the model, so its status bits stay 0 unless they are written (guess).
"""

from __future__ import annotations

from dataclasses import dataclass

from emulator.amdgpu.context import Context
from emulator.amdgpu.hdp import Hdp
from usbgpu.amd.facts.describe import DWORD
from usbgpu.amd.facts.doorbells import AWIDS

_IN_VRAM = 1 << 31
"""Bit of MM_INDEX."""


@dataclass(frozen=True, slots=True)
class _Port:
    """An enabled S2A_DOORBELL_ENTRY: `size` dwords from `first` on go to `kind`; all, if `size` is 0."""

    kind: str
    first: int
    size: int


class Nbio:
    """The block.

    Args:
        context: of the card.
        hdp: what is flushed, and what VRAM is reached through.

    Attributes:
        flush_index: the register that REMAP_HDP_MEM_FLUSH_CNTL names, as an index of dwords: a write there
            flushes the HDP.
    """

    def __init__(self, context: Context, hdp: Hdp) -> None:
        self._context = context
        self._hdp = hdp
        self._indirect = False
        self._ports: list[_Port] | None = None
        registers, chip = context.registers, context.chip
        registers.store("NBIO", "BIF_BX_PF0_MM_INDEX", "BIF_BX_PF0_MM_INDEX_HI")
        registers.store("NBIO", "BIF_BX_PF0_RSMU_INDEX", "BIF_BX_PF0_RSMU_INDEX_HI", "RCC_DEV0_EPF2_STRAP2")
        registers.on_read("NBIO", "BIF_BX_PF0_MM_DATA", self._mm_read)
        registers.on_write("NBIO", "BIF_BX_PF0_MM_DATA", self._mm_write)
        registers.on_read("NBIO", "BIF_BX_PF0_RSMU_DATA", self._rsmu_read)
        registers.on_write("NBIO", "BIF_BX_PF0_RSMU_DATA", self._rsmu_write)
        registers.on_read("NBIO", "RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE", lambda: context.vram.size >> 20)
        registers.store("NBIO", "RCC_DEV0_EPF0_RCC_DOORBELL_APER_EN", "BIF_BX0_BIF_DOORBELL_INT_CNTL")
        flush = chip.address("NBIO", "BIF_BX_PF0_HDP_MEM_COHERENCY_FLUSH_CNTL")
        self.flush_index = flush
        registers.on_write("NBIO", "BIF_BX0_REMAP_HDP_MEM_FLUSH_CNTL", self._remap, reset=flush << 2)
        registers.on_write("NBIO", "BIF_BX_PF0_HDP_MEM_COHERENCY_FLUSH_CNTL", self._flush)
        other = chip.address("NBIO", "BIF_BX_PF0_HDP_REG_COHERENCY_FLUSH_CNTL")
        registers.store("NBIO", "BIF_BX0_REMAP_HDP_REG_FLUSH_CNTL", reset=other << 2)
        registers.store("NBIO", "BIF_BX_PF0_HDP_REG_COHERENCY_FLUSH_CNTL")
        registers.store("NBIO", "BIF_BX_PF0_GPU_HDP_FLUSH_DONE")
        registers.on_write("NBIO", "BIF_BX_PF0_GPU_HDP_FLUSH_REQ", self._engine_flush)
        self._entries = [name for name in chip.blocks["NBIO"].registers if "S2A_DOORBELL_ENTRY_" in name]
        for name in self._entries:
            registers.on_write("NBIO", name, self._reroute)

    # -- doorbells --------------------------------------------------------------------------------------

    def doorbells_enabled(self) -> bool:
        """Whether writes to BAR 2 are taken."""
        registers = self._context.registers
        return bool(registers.get("NBIO", "RCC_DEV0_EPF0_RCC_DOORBELL_APER_EN", "BIF_DOORBELL_APER_EN"))

    def route(self, offset: int) -> str:
        """The kind of engine that a doorbell goes to, by its offset in BAR 2; "" for none.

        Ports with a range come before those without, and then the lower number (grade: guess).
        """
        if self._ports is None:
            self._ports = self._read_ports()
        place = offset >> 2
        for port in self._ports:
            if not port.size or port.first <= place < port.first + port.size:
                return port.kind
        return ""

    def _reroute(self, value: int) -> None:
        self._ports = None

    def _read_ports(self) -> list[_Port]:
        ports = []
        for number, name in enumerate(self._entries):
            register = self._context.chip.register("NBIO", name)
            value = self._context.registers.value("NBIO", name)
            prefix = f"S2A_DOORBELL_PORT{number}_"
            if register.get(value, prefix + "ENABLE"):
                awid = register.get(value, prefix + "AWID")
                first, size = (register.get(value, prefix + part) for part in ("RANGE_OFFSET", "RANGE_SIZE"))
                ports.append(_Port(AWIDS.get(awid, f"AWID {awid:#x}"), first, size))
        return sorted(ports, key=lambda port: not port.size)

    # -- flushes ----------------------------------------------------------------------------------------

    def _remap(self, value: int) -> None:
        part = self._context.chip.register("NBIO", "BIF_BX0_REMAP_HDP_MEM_FLUSH_CNTL").field("ADDRESS")
        self.flush_index = (value & part.mask) >> 2

    def _flush(self, value: int) -> int:
        self._hdp.flush("host")
        return 0

    def _engine_flush(self, value: int) -> int:
        """Engines request by bits, and wait until DONE has them."""
        self._hdp.flush("engine")
        self._context.registers.set("NBIO", "BIF_BX_PF0_GPU_HDP_FLUSH_DONE", value)
        return 0

    # -- indirect windows -------------------------------------------------------------------------------

    def _rsmu_read(self) -> int:
        return self._reach(self._rsmu_address, None)

    def _rsmu_write(self, value: int) -> int:
        return self._reach(self._rsmu_address, value)

    @property
    def _rsmu_address(self) -> int:
        registers = self._context.registers
        high = registers.value("NBIO", "BIF_BX_PF0_RSMU_INDEX_HI")
        return high << 32 | registers.value("NBIO", "BIF_BX_PF0_RSMU_INDEX")

    def _mm_read(self) -> int:
        index = self._context.registers.value("NBIO", "BIF_BX_PF0_MM_INDEX")
        if not index & _IN_VRAM:
            return self._reach(index, None)
        address = self._vram_address(index)
        return DWORD if address is None else int.from_bytes(self._hdp.read(address, 4), "little")

    def _mm_write(self, value: int) -> int:
        index = self._context.registers.value("NBIO", "BIF_BX_PF0_MM_INDEX")
        if not index & _IN_VRAM:
            return self._reach(index, value)
        address = self._vram_address(index)
        if address is not None:
            self._hdp.write(address, value.to_bytes(4, "little"))
        return 0

    def _vram_address(self, index: int) -> int | None:
        """Where MM_INDEX points to; None if it is not in VRAM."""
        high = self._context.registers.value("NBIO", "BIF_BX_PF0_MM_INDEX_HI")
        address = high << 31 | index & ~_IN_VRAM & ~3
        if address + 4 <= self._context.vram.size:
            return address
        self._context.diagnosis.wrong(f"MM_INDEX {index:#x}, MM_INDEX_HI {high:#x}: there is no such VRAM")
        return None

    def _reach(self, address: int, value: int | None) -> int:
        """Read the register at a byte address, or write it; for writes what the data register then holds."""
        diagnosis = self._context.diagnosis
        if self._indirect:
            diagnosis.wrong("an indirect register window was pointed at an indirect register window")
            return 0
        if address & 3:
            diagnosis.wrong(f"indirect access to {address:#x}: registers are at multiples of 4 bytes")
        self._indirect = True
        try:
            if value is None:
                return self._context.registers.read(address >> 2)
            self._context.registers.write(address >> 2, value)
            return 0
        finally:
            self._indirect = False
