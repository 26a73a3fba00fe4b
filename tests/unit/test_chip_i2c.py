"""The I2C master, as the published road to the dock's supply uses it."""

from __future__ import annotations

import pytest

from emulator.asm2464pd.i2c import I2cMaster
from emulator.asm2464pd.undefined import Undefined
from emulator.core.bus import Bus
from emulator.core.clock import Scheduler, clocks
from firmware.asm2464pd.describe import Space
from firmware.asm2464pd.registers import ASM2464PD
from firmware.asm2464pd.registers.flash import FLASH_BUFFER

ADDRESS = 0x45


class Memory:
    """A target that keeps what is written, and is read from where the last write pointed."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def read(self, count: int) -> bytes:
        return bytes(range(0x10, 0x10 + count))


class Firmware:
    """What firmware does; the numbers are those of the published road."""

    def __init__(self, *, strict: bool = True, pins: bool = True, settings: bool = True) -> None:
        self.clock = Scheduler()
        self.bus = Bus(ASM2464PD, self.clock, strict=strict)
        self.bus.map(FLASH_BUFFER, "flash")
        self.target = Memory()
        self.good = True
        self.master = I2cMaster(self.bus, lambda: {ADDRESS: self.target}, lambda: self.good)
        if pins:
            self.write(0xC629, 0x13)
            self.write(0xC62A, 0x14)
        if settings:
            for address, value in ((0xC87B, 0xC4), (0xC876, 0x18), (0xC877, 0x4A)):
                self.write(address, value)

    def write(self, address: int, value: int) -> None:
        if self.bus.planes[Space.XDATA].flags[address] & 2:
            self.bus.cpu_write(Space.XDATA, address, value)
        else:
            self.bus.store(Space.XDATA, address, bytes([value]))

    def read(self, address: int) -> int:
        return self.bus.cpu_read(Space.XDATA, address)

    def run(self, target: int, data: int, length: int, writes: int = 0) -> int:
        for address, value in (
            (0xC870, target), (0xC871, data), (0xC873, writes), (0xC874, length),
            (0xC878, 0), (0xC879, 0), (0xC87C, 0), (0xC87D, 0), (0xC875, 0xFF), (0xC875, 0x01),
        ):  # fmt: skip
            self.write(address, value)
        return self.wait()

    def wait(self) -> int:
        while not self.read(0xC875) & 0x40:
            assert self.clock.next is not None, "it never ends"
            self.clock.now = self.clock.next
            self.clock.run_due()
        found = self.read(0xC875)
        self.write(0xC875, 0x40)
        return found


def test_a_register_is_pointed_to_and_read() -> None:
    firmware = Firmware()
    assert firmware.run(ADDRESS << 1, 0x02, 1) == 0x42
    assert firmware.target.writes == [b"\x02"]
    firmware.write(0xC805, 0x12)
    assert firmware.run(ADDRESS << 1 | 1, 0, 2) == 0x48
    assert firmware.bus.load(Space.XDATA, 0xE800, 2) == b"\x10\x11"
    assert firmware.read(0xC875) == 0


def test_a_register_is_written_and_a_target_is_only_addressed() -> None:
    firmware = Firmware()
    firmware.bus.store(Space.XDATA, 0xE800, b"\x41\x27")
    assert firmware.run(ADDRESS << 1, 0x00, 0, writes=1) == 0x44
    assert firmware.run(ADDRESS << 1, 0x33, 0) == 0x42
    assert firmware.target.writes == [b"\x00\x41\x27", b""]


@pytest.mark.parametrize(("target", "outcome"), [(0x44 << 1, 0x60), (0x44 << 1 | 1, 0x58)])
def test_an_absent_target_does_not_acknowledge(target: int, outcome: int) -> None:
    firmware = Firmware()
    firmware.write(0xC805, 0x10)
    before = firmware.bus.load(Space.XDATA, 0xE800, 2)
    assert firmware.run(target, 1, 2) == outcome
    assert firmware.target.writes == []
    assert firmware.bus.load(Space.XDATA, 0xE800, 2) == before


def test_a_transaction_takes_its_time_and_reads_as_running() -> None:
    firmware = Firmware()
    firmware.write(0xC870, ADDRESS << 1)
    firmware.write(0xC874, 1)
    firmware.write(0xC875, 0x01)
    assert firmware.read(0xC875) == 0x01
    firmware.wait()
    assert clocks(20e-6) < firmware.clock.now < clocks(500e-6)


def test_a_read_longer_than_the_sensor_has() -> None:
    firmware = Firmware()
    firmware.write(0xC805, 0x10)
    assert firmware.run(ADDRESS << 1 | 1, 0, 5) == 0x48
    assert firmware.bus.load(Space.XDATA, 0xE800, 5) == bytes(range(0x10, 0x15))


def test_the_level_of_the_pin_that_reports_a_fault() -> None:
    firmware = Firmware()
    assert firmware.read(0xC650) == 0xFF
    firmware.good = False
    assert firmware.read(0xC650) == 0xFD


def start(firmware: Firmware) -> None:
    firmware.run(ADDRESS << 1, 0x02, 1)


def unread(firmware: Firmware) -> None:
    firmware.run(ADDRESS << 1 | 1, 0, 2)


def nothing(firmware: Firmware) -> None:
    firmware.write(0xC805, 0x10)
    firmware.run(ADDRESS << 1 | 1, 0, 0)


def twice(firmware: Firmware) -> None:
    firmware.write(0xC875, 0x01)
    firmware.write(0xC875, 0x01)


def uncleared(firmware: Firmware) -> None:
    firmware.write(0xC870, ADDRESS << 1)
    firmware.write(0xC875, 0x01)
    while firmware.clock.next is not None:
        firmware.clock.now = firmware.clock.next
        firmware.clock.run_due()
    firmware.write(0xC875, 0x01)


def elsewhere(firmware: Firmware) -> None:
    firmware.write(0xC87D, 0x10)
    firmware.write(0xC875, 0x01)


def hang(firmware: Firmware) -> None:
    firmware.write(0xC87A, 0x08)


@pytest.mark.parametrize(
    ("wrong", "settings", "said"),
    [
        (start, {"pins": False}, "PIN_SCL, PIN_SDA"),
        (start, {"settings": False}, "I2C_CLOCK_LOW is 0x00, not 0x18"),
        (unread, {}, "I2C_RECEIVE"),
        (nothing, {}, "no bytes"),
        (twice, {}, "another one runs"),
        (uncleared, {}, "I2C_CSR is 0x42"),
        (elsewhere, {}, "I2C_DESTINATION is 0x0010"),
        (hang, {}, "I2C_HANG"),
    ],
)
def test_what_no_known_transaction_does_is_reported(wrong, settings, said, caplog) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(Undefined, match=said):
        wrong(Firmware(**settings))
    wrong(Firmware(strict=False, **settings))
    assert said in caplog.text


def test_nothing_answers_while_the_pins_are_others() -> None:
    firmware = Firmware(strict=False, pins=False)
    assert firmware.run(ADDRESS << 1, 0x02, 1) == 0x60


def test_a_bus_that_hangs_ends_no_transaction() -> None:
    firmware = Firmware(strict=False)
    firmware.write(0xC87A, 0x08)
    firmware.write(0xC875, 0x01)
    assert (firmware.clock.next, firmware.read(0xC875)) == (None, 0x01)
    firmware.master.lose_power()
    firmware.bus.set(ASM2464PD["I2C_CSR"], 0)
    assert firmware.run(ADDRESS << 1, 0x02, 1) == 0x42
