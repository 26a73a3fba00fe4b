"""The chip without its CPU: every block on one bus, wired to the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from emulator.asm2464pd import timing
from emulator.asm2464pd.dma import SlotDma
from emulator.asm2464pd.fill import FillEngine
from emulator.asm2464pd.flash import FlashController
from emulator.asm2464pd.flash_chip import FlashChip
from emulator.asm2464pd.i2c import I2cMaster, Target
from emulator.asm2464pd.interrupts import Interrupts
from emulator.asm2464pd.link import PcieLink
from emulator.asm2464pd.phy import Phy
from emulator.asm2464pd.system import SystemControl
from emulator.asm2464pd.timers import Timers
from emulator.asm2464pd.tlp import TlpEngine
from emulator.asm2464pd.uart import Uart
from emulator.asm2464pd.unnamed import Unnamed
from emulator.asm2464pd.upstream import UpstreamMemory
from emulator.asm2464pd.usb import UsbController
from emulator.core.bus import Bus
from emulator.model import DEFAULT, Model
from emulator.pcie.fabric import Fabric, chain
from emulator.pcie.function import PcieFunction
from emulator.pcie.ports import USUAL, Slot, bridges, ends
from firmware.asm2464pd import disputes
from firmware.asm2464pd.registers.memory import BULK_OUT_BUFFER


@dataclass(frozen=True, slots=True)
class Pins:
    """What the chip is wired to.

    Attributes:
        uart: takes what the UART sends.
        restart_cpu: starts the CPU again at address 0.
        i2c: what is on the I2C bus now, by address.
        supply_good: the level of the pin on which the supply reports a fault.
    """

    uart: Callable[[bytes], None]
    restart_cpu: Callable[[], None]
    i2c: Callable[[], Mapping[int, Target]] = dict
    supply_good: Callable[[], bool] = lambda: True


class Chip:
    """The peripherals of an ASM2464PD, and what is soldered and plugged to it.

    Args:
        bus: registers and memory.
        flash: on the SPI pins.
        function: on bus 4, behind the chip's and the card's ports.
        pins: where the outputs go.
        model: which of contradicting facts it follows.
        slot: what the card can do on its link.
    """

    def __init__(
        self,
        bus: Bus,
        flash: FlashChip,
        function: PcieFunction,
        pins: Pins,
        model: Model = DEFAULT,
        slot: Slot = USUAL,
    ) -> None:
        self.bus = bus
        self.flash = flash
        if model.follows(disputes.BULK_OUT_WRITES, "ignored"):
            bus.protect(BULK_OUT_BUFFER)
        self.interrupts = Interrupts(bus, model)
        self.usb = UsbController(bus, self.interrupts, model)
        self.upstream = UpstreamMemory(bus)
        self.dma = SlotDma(bus, self.upstream, self.usb.wake, lambda: self.usb.packet_size, model)
        self.usb.engine = self.dma
        ports = bridges(slot)
        self.fabric = Fabric(
            chain(*ports, function),
            self.upstream,
            bus.clock,
            bytes_per_second=timing.pcie_bytes_per_second(1, 1),  # until the link has trained
        )
        self.tlp = TlpEngine(bus, self.fabric)
        self.link = PcieLink(bus, self.fabric, self.tlp, ends(ports), slot, model)
        self.phy = Phy(bus)
        self.unnamed = Unnamed(bus)
        self.fill = FillEngine(bus)
        self.flash_controller = FlashController(bus, flash, model)
        self.i2c = I2cMaster(bus, pins.i2c, pins.supply_good)
        self.timers = Timers(bus, self.interrupts.timers_changed)
        self.uart = Uart(bus, pins.uart)
        self._restart_cpu = pins.restart_cpu
        self.system = SystemControl(bus, self.restart, self.usb.reconnect)

    def restart(self) -> None:
        """The CPU starts again and USB enumerates again; memory and the other registers stay."""
        self.usb.reconnect()
        self._restart_cpu()

    def lose_power(self) -> None:
        """The supply fails: card and bridge leave their links, and forget."""
        self.usb.reconnect()
        self.link.lose_power()
        self.i2c.lose_power()
        self.bus.forget()
        self.interrupts.forget()
        self.flash.cut_power()
