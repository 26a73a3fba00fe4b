"""A stand-in for the open firmware for this chip: its register accesses, in its order, and nothing else.

It is Python and does not run on an 8051; its reads and writes, and their timing, are those of that firmware
on silicon (main.c, usb.h, flash.h and pcie_pio.h of tinygrad/asm2464pd-firmware). Addresses and bits are
literal numbers on purpose: they check the chip's facts instead of repeating them. Each entry of the interrupt
handler serves one source of USB_EVENTS, the first in the firmware's order, so the interrupt has to stay
pending for the others.
"""

from __future__ import annotations

import threading

from emulator.asm2464pd.chip import Chip, Pins
from emulator.asm2464pd.flash_chip import FlashChip
from emulator.asm2464pd.i2c import Target
from emulator.core.bus import Bus
from emulator.core.clock import Scheduler
from emulator.pcie.endpoint import TestEndpoint
from emulator.usb.host import Host
from emulator.usb.wire import Setup, Speed
from firmware.asm2464pd import flash_layout, phy
from firmware.asm2464pd.describe import Space
from firmware.asm2464pd.registers import ASM2464PD

ACCESS = 10
"""Clocks of a MOVX with the instructions around it."""
SERIAL = bytes.fromhex("00c0ffee")
EP0_BUFFER, OUT_BUFFER, IN_BUFFER = 0x9E00, 0x7000, 0x8000

DEVICE = {
    True: bytes.fromhex("1201200300000009d1ad01000100010203 01"),
    False: bytes.fromhex("1201000200000040d1ad01000100010203 01"),
}


def _endpoint(address: int, size: int) -> bytes:
    return bytes((7, 5, address, 2, *size.to_bytes(2, "little"), 0))


def _companion(streams: int, usage: int | None) -> bytes:
    pipe = b"" if usage is None else bytes((4, 0x24, usage, 0))
    return bytes((6, 0x30, 15, streams, 0, 0)) + pipe


def _interface(alternate: int, endpoints: int) -> bytes:
    return bytes((9, 4, 0, alternate, endpoints, 0xFF, 0xFF, 0xFF, 0))


def _configuration(body: bytes) -> bytes:
    return bytes((9, 2, *(9 + len(body)).to_bytes(2, "little"), 1, 1, 0, 0xC0, 0)) + body


_ALL = (0x81, 0x02, 0x83, 0x04)
CONFIGURATION = {
    True: _configuration(
        _interface(0, 2)
        + b"".join(_endpoint(address, 1024) + _companion(0, None) for address in _ALL[:2])
        + _interface(1, 4)
        + b"".join(
            _endpoint(address, 1024) + _companion(5, usage)
            for address, usage in zip(_ALL, (3, 4, 2, 1), strict=True)
        )
    ),
    False: _configuration(_interface(0, 4) + b"".join(_endpoint(address, 512) for address in _ALL)),
}
BOS = bytes.fromhex("050f160002 07100200000000 0a1003000e0003000000")


class Restarted(Exception):
    """The last write restarts the CPU."""


class OpenFirmware:
    """A chip with this firmware, a flash chip and a test endpoint, at the port of a host; a `World`.

    Attributes:
        uart: what the firmware has printed.
        entries: the value of USB_EVENTS at each entry of the interrupt handler.
        boots: how often it has started.
    """

    def __init__(
        self,
        best: Speed = Speed.SUPER_PLUS,
        *,
        strict: bool = True,
        endpoint: TestEndpoint | None = None,
        i2c: dict[int, Target] | None = None,
    ) -> None:
        self.clock = Scheduler()
        self.lock = threading.RLock()
        self.bus = Bus(ASM2464PD, self.clock, strict=strict)
        self.bus.drive = self._drive
        self.uart = bytearray()
        self.entries: list[int] = []
        self.boots = 0
        self._line = self._enabled = self._restarting = self._high_speed = False
        self._dwords = 0
        self.flash = FlashChip(self.clock, otp=flash_layout.otp(SERIAL))
        self.endpoint = endpoint or TestEndpoint(1 << 20)
        pins = Pins(self.uart.extend, self._restart, lambda: i2c or {})
        self.chip = Chip(self.bus, self.flash, self.endpoint, pins)
        self.host = Host(self.chip.usb, self, best=best)
        self.host.plug()
        self._main()

    # -- the CPU ----------------------------------------------------------------------------------------

    def step(self, until: int) -> None:
        """Serve an interrupt, or wait for the next event."""
        try:
            if self._line and self._enabled:
                self._int0()
                return
            due = [time for time in (self.clock.next, self.chip.tlp.due) if time is not None]
            self._pass(min([until, *due]) - self.clock.now)
        except Restarted:
            self._restarting = self._enabled = False
            self._main()

    def read(self, address: int, space: Space = Space.XDATA) -> int:
        self._pass(ACCESS)
        return self.bus.cpu_read(space, address)

    def write(self, address: int, *values: int, space: Space = Space.XDATA) -> None:
        """Write bytes to an address, one after another."""
        for value in values:
            self._pass(ACCESS)
            self.bus.cpu_write(space, address, value)
            if self._restarting:
                raise Restarted

    def _drive(self, line: int, level: bool) -> None:
        assert line == 0, "nothing is known to raise INT1"
        self._line = level

    def _restart(self) -> None:
        self._restarting = True

    def _pass(self, clocks: int) -> None:
        end = self.clock.now + max(clocks, 0)
        while True:
            times = [time for time in (self.clock.next, self.chip.tlp.due) if time is not None]
            due = min((time for time in times if time <= end), default=None)
            if due is None:
                break
            self.clock.now = max(self.clock.now, due)
            self.chip.tlp.tick(self.clock.now)
            self.clock.run_due()
        self.clock.now = max(self.clock.now, end)

    def _sleep(self, milliseconds: int) -> None:
        self.write(0xCC11, 0x04, 0x02)
        self.write(0xCC10, self.read(0xCC10) & 0xF8 | 0x04)
        self.write(0xCC12, 2 * milliseconds >> 8)
        self.write(0xCC13, 2 * milliseconds & 0xFF)
        self.write(0xCC11, 0x01)
        while not self.read(0xCC11) & 0x02:
            self._pass((self.clock.next or self.clock.now) - self.clock.now)

    def _print(self, text: str) -> None:
        self.write(0xC001, *text.encode())

    # -- start ------------------------------------------------------------------------------------------

    def _main(self) -> None:
        self.boots += 1
        self._high_speed, self._dwords = False, 0
        self.write(0xC007, self.read(0xC007) & ~0x38)
        self._print("\n[BOOT]\n")
        self.write(0xCC33, 0x04)
        self.write(0xCA81, self.read(0xCA81) | 0x01)
        self.write(0xC805, 0x02)
        self.write(0xC8A6, 0x04)
        self.write(0xB213, 0x01)
        self.write(0xB216, 0x20)
        self._power_on()
        for base in (0xC280, 0xC300):
            for update in phy.USB_LANE_SETUP:
                self.write(base + update.offset, update.apply(self.read(base + update.offset)))
        self.write(0x92C2, self.read(0x92C2) & ~0x40)
        self.write(0xC800, 0x01)
        self.write(0x9002, 0xE0)
        self.write(0x9005, 0xF0)
        self.write(0x9010, 0x00)
        self.write(0x905E, 0x00)
        self.write(0x9303, 0x33)
        self._enabled = True

    def _power_on(self) -> None:
        for tuning in phy.PCIE_SETUP[:-1]:
            self.write(tuning.address, tuning.value, space=Space.PHY)
        self.write(0xB431, 0x0C)
        self.write(0xB403, 0x01)
        self.write(0xB480, 0x01)
        self.write(0xB430, 0x00)
        self.write(0x6025, 0x80, space=Space.PHY)
        self.write(0xC656, self.read(0xC656) | 0x20)
        self.write(0xC659, self.read(0xC659) | 0x01)
        self.write(0xE764, 0x1C)
        self.write(0xB431, 0x0C)
        self.write(0xB298, 0x10)
        self.write(0xB480, 0x00)
        good = bad = 0
        while good < 3 and bad < 20:
            self._sleep(100)
            up = self.read(0xB450) == 0x78
            good, bad = (good + 1, bad) if up else (0, bad + 1)
        rate = self.read(0x4092, Space.PHY)
        self._print(f"[PCIe {self.read(0xB450):02X} {self.read(0xE765):02X} {rate:02X}]\n")

    def _power_off(self) -> None:
        self.write(0xB480, 0x01)
        self.write(0xE764, 0x00)
        self.write(0xC656, self.read(0xC656) & ~0x20)
        self.write(0xC659, self.read(0xC659) & ~0x01)

    # -- interrupt handler ------------------------------------------------------------------------------

    def _int0(self) -> None:
        summary = self.read(0xC802)
        if summary & 0x01:
            events = self.read(0x9101)
            self.entries.append(events)
            if events & 0x01:
                self._acknowledge(0x91D1)
            elif events & 0x02:
                self._control()
            elif events & 0x08:
                self._acknowledge(0x9301)
            elif events & 0x04:
                self._bulk()
            elif events & 0x20:
                self._acknowledge(0x9096)
            elif events & 0x10:
                self._link()
            elif events & 0x40:
                self._acknowledge(0x90E2)
                self.write(0x90E3, 0x02)
        if summary & 0x04:
            self.write(0xC42C, 0x01)
            self.write(0xC42D, 0x00)
        assert not summary & ~0x05, "[UNHANDLED]"

    def _acknowledge(self, address: int) -> None:
        self.write(address, self.read(address))

    def _link(self) -> None:
        status = self.read(0x9300)
        if status & 0x04:
            self._high_speed = True
            self.write(0xCC30, 0x00)
            self.write(0x91C0, 0x10)
        self.write(0x9300, status)
        self._print(f"[LINK {status:02X} {self.read(0x9100):02X}]\n")

    # -- EP0 --------------------------------------------------------------------------------------------

    def _control(self) -> None:
        phase = self.read(0x9091)
        if phase & 0x01:
            self.write(0x9091, 0x01)
            self._setup()
        elif phase & 0x02:
            self.write(0x9092, 0x02)
            self.write(0x9091, 0x02)
        elif phase & 0x18:
            if phase & 0x10:
                self.write(0x9092, 0x08)
            if self.read(0x9104) == 0x40 and self.read(0x9105) == 0xF0:
                self._launch()
                self._send(0)
            self.write(0x9091, 0x18)
        elif phase & 0x04:
            self.write(0x9091, 0x04)
        else:
            raise AssertionError(f"[UNHANDLED CONTROL {phase:02X}]")

    def _send(self, length: int) -> None:
        self.write(0x9003, length >> 8)
        self.write(0x9004, length & 0xFF)
        self.write(0x9092, 0x04)
        self.write(0x9091, 0x08)

    def _answer(self, data: bytes) -> None:
        for place, value in enumerate(data):
            self.write(EP0_BUFFER + place, value)
        self._send(len(data))

    def _setup(self) -> None:
        setup = Setup.unpack(bytes(self.read(0x9104 + place) for place in range(8)))
        match setup.request_type, setup.request:
            case 0x00, 0x05:
                self.write(0x9090, 0x80 | setup.value & 0x7F)
                self.write(0x91D0, 0x02)
            case 0x80, 0x06:
                self._descriptor(setup)
                return
            case 0x02, 0x01:
                self.write(0x9094, {0x02: 0x08, 0x81: 0x01}[setup.index & 0xFF])
                self._dwords = 0
            case 0x00, 0x09:
                self.write(0x900B, 0x00)
                self.write(0x9094, 0x01, 0x08)
                self._dwords = 0
            case 0x01, 0x0B:
                self.write(0x9094, 0x01, 0x08)
            case 0xC0, 0xE4:
                space = Space.PHY if setup.index >> 8 else Space.XDATA
                size = min(setup.length, 64 if self._high_speed else 512)
                self._answer(bytes(self.read(setup.value + place, space) for place in range(size)))
                return
            case 0x40, 0xE5:
                space = Space.PHY if setup.index >> 8 else Space.XDATA
                self.write(setup.value, setup.index & 0xFF, space=space)
            case 0x40, 0xF0:
                return  # the data come first
            case 0xC0, 0xF0:
                self._answer(self._completion())
                return
            case 0x40, 0xF2:
                self._arm_dma(setup)
            case 0x40, 0xF3:
                if setup.value & 1:
                    self._power_on()
                else:
                    self._power_off()
            case _:
                if setup.length:
                    return
        self._send(0)

    def _descriptor(self, setup: Setup) -> None:
        match setup.value >> 8, setup.value & 0xFF:
            case 1, _:
                found = DEVICE[not self._high_speed]
            case 2, _:
                found = CONFIGURATION[not self._high_speed]
            case 15, _:
                found = BOS
            case 3, 3:
                found = self._serial_number()
            case _:
                return  # neither answered nor stalled
        self._answer(found[: setup.length])

    # -- PCIe -------------------------------------------------------------------------------------------

    def _launch(self) -> None:
        kind, enables, mode = self.read(0x9106), self.read(0x9107), self.read(0x9108) & 3
        data = [self.read(EP0_BUFFER + place) for place in range(12)]
        self._dwords = 0
        self.write(0xB210, kind)
        self.write(0xB217, enables)
        for place in range(4):
            self.write(0xB218 + place, data[3 - place])
        for place in range(4):
            self.write(0xB21C + place, data[7 - place])
        if mode == 0:
            if kind & 0x40:
                for place in range(4):
                    self.write(0xB223 - place, data[8 + place])
            self.write(0xB296, 0x01, 0x02, 0x04)
            self.write(0xB254, 0x0F)
            return
        self._dwords = int.from_bytes(bytes(data[8:]), "little")
        if mode == 1 and self._dwords:
            self.write(0x9094, 0x10)
        elif self._dwords:
            self._stream_in()

    def _completion(self) -> bytes:
        for _ in range(500_000):
            status = self.read(0xB296)
            if status & 0x01:
                self.write(0xB296, 0x01)
                return bytes(7) + b"\x01"
            if status & 0x02:
                places = (0xB223, 0xB222, 0xB221, 0xB220, 0xB22A, 0xB22B, 0xB284)
                return bytes(self.read(place) for place in places) + b"\x00"
        return bytes(7) + b"\xff"

    def _fire(self) -> None:
        self.write(0xB296, 0x07)
        self.write(0xB254, 0x0F)

    def _next_address(self) -> None:
        """Add 4, byte by byte, to the values read from the address registers."""
        for place in (0xB21B, 0xB21A, 0xB219, 0xB218, 0xB21F):
            value = self.read(place) + (4 if place == 0xB21B else 1)
            self.write(place, value & 0xFF)
            if value <= 0xFF:
                return

    def _stream_out(self, count: int) -> None:
        for dword in range(count):
            source = OUT_BUFFER + 4 * dword
            values = [self.read(source + place) for place in range(4)]
            for place in range(4):
                self.write(0xB220 + place, values[3 - place])
            self._fire()
            self._next_address()

    def _stream_in(self) -> None:
        count = min(self._dwords, 128 if self._high_speed else 256)
        self._fire()
        for dword in range(count):
            while not self.read(0xB296) & 0x03:
                pass
            values = [self.read(place) for place in (0xB223, 0xB222, 0xB221, 0xB220)]
            self._next_address()
            if dword + 1 < count:
                self._fire()
            for place, value in enumerate(values):
                self.write(IN_BUFFER + 4 * dword + place, value)
        self.write(0x9007, 4 * count >> 8)
        self.write(0x9008, 4 * count & 0xFF)
        self._dwords -= count
        self.write(0x9094, 0x02)

    def _bulk(self) -> None:
        events = self.read(0x9093)
        if events & 0x02:
            self.write(0x9093, 0x02)
            count = (self.read(0x910D) << 8 | self.read(0x910E)) >> 2
            if self._dwords >= count:
                self._stream_out(count)
                self._dwords -= count
                if self._dwords:
                    self.write(0x9094, 0x10)
        elif events & 0x08:
            self.write(0x9093, 0x08)
            if self._dwords:
                self._stream_in()

    # -- SRAM and flash ---------------------------------------------------------------------------------

    def _arm_dma(self, setup: Setup) -> None:
        sectors, slot, slots = setup.value & 0x7FFF, setup.index & 0xFF, setup.index >> 8 or 1
        self.write(0xC42A, 0x00)
        self.write(0xC422, 0x02)
        self.write(0xC423, 0x00)
        self.write(0xC414, 0x80 | slot)
        self.write(0xC415, slot + slots)
        self.write(0xC426, sectors >> 8)
        self.write(0xC427, sectors & 0xFF)
        self.write(0xC412, 0x02 if setup.value & 0x8000 else 0x03)
        self.write(0xC429, slot)

    def _flash_command(self, command: int, mode: int, length: int) -> None:
        self.write(0xC8AD, 0)
        self.write(0xC8AF, 0)
        self.write(0xC8AE, 0)
        self.write(0xC8AA, command)
        self.write(0xC8AC, mode)
        for place in (0xC8A1, 0xC8A2, 0xC8AB):
            self.write(place, 0)
        self.write(0xC8A3, length >> 8)
        self.write(0xC8A4, length & 0xFF)
        self.write(0xC8A9, 0x01)
        polls = 0
        while self.read(0xC8A9) & 0x01 and polls < 0xFFFF:
            polls += 1
        assert polls < 0xFFFF, "the flash stayed busy"
        self.write(0xC8AD, 0, 0, 0, 0)

    def _serial_number(self) -> bytes:
        self._flash_command(0xB1, 0x04, 0)
        self._flash_command(0x03, 0x07, 5)
        page = [self.read(OUT_BUFFER + place) for place in range(5)]
        self._flash_command(0xC1, 0x04, 0)
        good = page[0] ^ page[1] ^ page[2] ^ page[3] == page[4]
        digits = bytes(page[:4]).hex() if good else "ffffffff"
        return bytes((18, 3)) + digits.encode("utf-16-le")
