"""A chip's PCIe side for tests: bus, fabric with the board's bridges, TLP engine and link, and no CPU.

`Requester` does what firmware does: registers through the bus, time by the scheduler.
"""

from __future__ import annotations

from emulator.asm2464pd import timing
from emulator.asm2464pd.link import PcieLink
from emulator.asm2464pd.tlp import TlpEngine
from emulator.core.bus import Bus
from emulator.core.clock import Scheduler
from emulator.model import DEFAULT, Model
from emulator.pcie.endpoint import TestEndpoint
from emulator.pcie.fabric import Fabric, chain
from emulator.pcie.function import PcieFunction, UnsupportedRequest
from emulator.pcie.ports import Slot, bridges, ends
from firmware.asm2464pd.describe import ByteRegister, Space
from firmware.asm2464pd.registers import ASM2464PD, link, tlp

WINDOW = 0x10000000
PREFETCHABLE = 0x8_0000_0000
COMMAND_ON = 0x0006


class RootRam:
    """Upstream memory: 64 KiB at 0x200000."""

    def __init__(self) -> None:
        self.data = bytearray(0x10000)

    def _offset(self, address: int, size: int) -> int:
        if not 0x200000 <= address <= 0x210000 - size:
            raise UnsupportedRequest
        return address - 0x200000

    def read(self, address: int, size: int) -> bytes:
        offset = self._offset(address, size)
        return bytes(self.data[offset : offset + size])

    def write(self, address: int, data: bytes) -> None:
        offset = self._offset(address, len(data))
        self.data[offset : offset + len(data)] = data


class Requester:
    """Chip, board and a driver for them."""

    def __init__(
        self,
        function: PcieFunction | None = None,
        *,
        strict: bool = False,
        model: Model = DEFAULT,
        slot: Slot | None = None,
    ) -> None:
        self.clock = Scheduler()
        self.bus = Bus(ASM2464PD, self.clock, strict=strict)
        self.memory = RootRam()
        self.endpoint = function if function is not None else TestEndpoint(1 << 20)
        slot = slot or Slot()
        self.ports = bridges(slot)
        self.fabric = Fabric(chain(*self.ports, self.endpoint), self.memory, self.clock, bytes_per_second=1)
        self.engine = TlpEngine(self.bus, self.fabric)
        self.link = PcieLink(self.bus, self.fabric, self.engine, ends(self.ports), slot, model)

    # -- registers and time -----------------------------------------------------------------------------

    def write(self, register: ByteRegister, value: int) -> None:
        for place, byte in enumerate(value.to_bytes(register.size, "big"), register.address):
            self.bus.cpu_write(register.space, place, byte)

    def value(self, register: ByteRegister) -> int:
        return self.bus.value(register)

    def run(self, clocks: int) -> None:
        """Let time pass, for the scheduler and the engine alike."""
        end = self.clock.now + clocks
        while True:
            times = [time for time in (self.clock.next, self.engine.due) if time is not None and time <= end]
            self.clock.now = min(times, default=end)
            self.engine.tick(self.clock.now)
            self.clock.run_due()
            if not times:
                return

    # -- what firmware does -----------------------------------------------------------------------------

    def power_on(self) -> None:
        """The power sequence, up to the link in L0."""
        self.write(link.PCIE_PERST, 1)
        self.write(link.PCIE_SLOT_3V3, link.PCIE_SLOT_3V3["ENABLE"])
        self.write(link.PCIE_SLOT_12V, link.PCIE_SLOT_12V["ENABLE"])
        self.write(link.PCIE_PORT_POWER, link.PORT_ON)
        self.write(link.PCIE_ROUTING, 0x80)
        self.write(link.PCIE_PERST, 0)
        self.run(timing.PCIE_TRAINING.clocks)
        self.write(tlp.TLP_LENGTH, 1)

    def launch(self, fmt_type: int, address: int, value: int = 0, enables: int = 0xF) -> None:
        self.write(tlp.TLP_FMT_TYPE, fmt_type)
        self.write(tlp.TLP_BYTE_ENABLES, enables)
        self.write(tlp.TLP_ADDRESS, address & 0xFFFFFFFF)
        self.write(tlp.TLP_ADDRESS_HIGH, address >> 32)
        self.write(tlp.TLP_DATA, value)
        self.write(tlp.TLP_STATUS, 0x07)
        self.write(tlp.TLP_LAUNCH, 0x0F)

    def finish(self) -> int:
        """Wait as long as the hardware does; the status bits."""
        self.run(timing.PCIE_TIMEOUT.clocks)
        return self.value(tlp.TLP_STATUS)

    def completion(self) -> tuple[int, int]:
        """Status and byte count of the completion."""
        value = self.value(tlp.TLP_COMPLETION_STATUS)
        status = tlp.TLP_COMPLETION_STATUS
        return status.field("STATUS").get(value), status.field("BYTE_COUNT").get(value)

    def request(self, fmt_type: int, address: int, value: int = 0, enables: int = 0xF) -> int:
        """A non-posted request that must succeed; the data it brings."""
        self.launch(fmt_type, address, value, enables)
        self.run(timing.PCIE_READ.clocks)
        assert self.value(tlp.TLP_STATUS) == 0x06
        assert self.completion()[0] == 0
        return self.value(tlp.TLP_DATA)

    def config_read(self, bus: int, register: int, enables: int = 0xF) -> int:
        return self.request(0x05 if bus else 0x04, bus << 24 | register, enables=enables)

    def config_write(self, bus: int, register: int, value: int, enables: int = 0xF) -> None:
        self.request(0x45 if bus else 0x44, bus << 24 | register, value, enables)

    def enumerate(self) -> None:
        """Program the bridges as the host does, and BAR 0 and 2 of the endpoint."""
        for bus in range(4):
            self.config_write(bus, 0x18, 4 << 16 | bus + 1 << 8)
            self.config_write(bus, 0x20, 0xFFFF << 16 | WINDOW >> 16)
            self.config_write(bus, 0x24, 0xFFFF << 16 | PREFETCHABLE >> 16 & 0xFFFF)
            self.config_write(bus, 0x28, PREFETCHABLE >> 32)
            self.config_write(bus, 0x2C, 0xFFFFFFFF)
            self.config_write(bus, 0x04, COMMAND_ON)
        self.config_write(4, 0x10, PREFETCHABLE & 0xFFFFFFFF)
        self.config_write(4, 0x14, PREFETCHABLE >> 32)
        self.config_write(4, 0x18, WINDOW)
        self.config_write(4, 0x04, COMMAND_ON)

    def storage(self, space: Space, address: int, size: int) -> bytes:
        return self.bus.load(space, address, size)
