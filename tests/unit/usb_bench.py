"""A bench for the USB controller: a Python stand-in for the CPU on one side, for a host port on the other."""

from __future__ import annotations

from emulator.asm2464pd.interrupts import Interrupts
from emulator.asm2464pd.phy import Phy
from emulator.asm2464pd.usb import UsbController
from emulator.core.bus import Bus
from emulator.core.clock import Scheduler, clocks
from emulator.model import DEFAULT, Model
from emulator.usb.wire import Speed
from firmware.asm2464pd import phy
from firmware.asm2464pd.describe import ByteRegister, Memory, Space
from firmware.asm2464pd.registers import ASM2464PD, interrupts, usb

SPEEDS = (Speed.SUPER_PLUS, Speed.HIGH)


class Port:
    """A host port that records what the device reports."""

    def __init__(self, best: Speed = Speed.SUPER_PLUS) -> None:
        self.best = best
        self.events: list[object] = []
        self.woken: list[int] = []

    def attached(self, speed: Speed) -> None:
        self.events.append(speed)

    def detached(self) -> None:
        self.events.append(None)

    def ready(self, endpoint: int) -> None:
        self.woken.append(endpoint)


class Bench:
    """The chip's USB side on a strict bus: a guessed or unmodelled access fails the test."""

    def __init__(
        self, best: Speed = Speed.SUPER_PLUS, *, strict: bool = True, model: Model = DEFAULT
    ) -> None:
        self.clock = Scheduler()
        self.bus = Bus(ASM2464PD, self.clock, strict=strict)
        self.line = False
        self.bus.drive = self._drive
        self.interrupts = Interrupts(self.bus, model)
        Phy(self.bus)
        self.usb = UsbController(self.bus, self.interrupts, model)
        self.port = Port(best)

    def _drive(self, number: int, level: bool) -> None:
        assert number == 0
        assert level != self.line, "the line is driven only when it changes"
        self.line = level

    # -- the CPU ----------------------------------------------------------------------------------------

    def read(self, register: ByteRegister) -> int:
        return sum(
            self.bus.cpu_read(register.space, address) << register.shift(address)
            for address in register.addresses
        )

    def write(self, register: ByteRegister, value: int) -> None:
        for address in register.addresses:
            self.bus.cpu_write(register.space, address, value >> register.shift(address) & 0xFF)

    def update(self, register: ByteRegister, clear: int = 0, put: int = 0) -> None:
        self.write(register, self.read(register) & ~clear | put)

    def peek(self, memory: Memory, size: int) -> bytes:
        return bytes(self.bus.cpu_read(memory.space, memory.address + offset) for offset in range(size))

    def poke(self, memory: Memory, data: bytes) -> None:
        for offset, value in enumerate(data):
            self.bus.cpu_write(memory.space, memory.address + offset, value)

    # -- time, and the way up ---------------------------------------------------------------------------

    def pass_time(self, seconds: float) -> None:
        self.pass_clocks(clocks(seconds))

    def pass_clocks(self, count: int) -> None:
        end = self.clock.now + count
        while (due := self.clock.next) is not None and due <= end:
            self.clock.now = due
            self.clock.run_due()
        self.clock.now = end

    def set_up_lanes(self, lanes: tuple[int, ...] = phy.USB_LANES) -> None:
        for lane in lanes:
            for update in phy.USB_LANE_SETUP:
                address = lane + update.offset
                value = update.apply(self.bus.cpu_read(Space.XDATA, address))
                self.bus.cpu_write(Space.XDATA, address, value)

    def set_up_controller(self) -> None:
        self.update(usb.USB_POWER_STATUS, clear=usb.USB_POWER_STATUS["USB_PATH"])
        self.write(interrupts.INT_CONTROL, 0x01)
        self.write(usb.USB_CONFIG, 0xE0)
        self.write(usb.USB_BULK_EVENT_ENABLE, 0xF0)
        self.write(usb.USB_EP_EVENT_ENABLE, 0)
        self.write(usb.USB_EP_MANAGEMENT, 0)
        self.write(usb.USB_LINK_STATUS_MASK, 0x33)

    def go_high_speed(self) -> None:
        self.write(usb.USB_MODE, 0)
        self.write(usb.USB_PHY_CONTROL, 0x10)

    def acknowledge(self, *registers: ByteRegister) -> None:
        """Write back what an event register reads."""
        for register in registers:
            self.write(register, self.read(register))

    def attach(self) -> None:
        """Bring the link up at the port's best speed, with every link event acknowledged."""
        self.set_up_lanes()
        self.set_up_controller()
        self.usb.connect(self.port)
        self.pass_time(0.03)
        if self.port.best is Speed.HIGH:
            self.go_high_speed()
            self.pass_time(0.03)
        assert self.usb.speed is self.port.best
        self.acknowledge(usb.USB_LINK_EVENTS, usb.USB_LINK_STATUS)
        assert not self.line

    @property
    def events(self) -> int:
        return self.read(interrupts.USB_EVENTS)


def attached(best: Speed = Speed.SUPER_PLUS, model: Model = DEFAULT) -> Bench:
    """A bench with the link up."""
    bench = Bench(best, model=model)
    bench.attach()
    return bench
