"""The fill engine, as the chip maker's firmware clears the queue memories with it."""

from __future__ import annotations

import pytest

from emulator.asm2464pd.fill import FillEngine
from emulator.asm2464pd.undefined import Undefined
from emulator.core.bus import Bus
from emulator.core.clock import Scheduler
from firmware.asm2464pd.describe import Space
from firmware.asm2464pd.registers import ASM2464PD

BANKS = {0xA000: 0xC8D8, 0xB000: 0xC8D8, 0xB800: 0xC8D6, 0xBC00: 0xC8D6}
FILLS = [(0xA000, 0x1000), (0xB000, 0x200), (0xB800, 0x400), (0xBC00, 0x80)]


class Firmware:
    def __init__(self, *, strict: bool = True) -> None:
        self.clock = Scheduler()
        self.bus = Bus(ASM2464PD, self.clock, strict=strict)
        FillEngine(self.bus)

    def write(self, address: int, *values: int) -> None:
        for value in values:
            self.bus.cpu_write(Space.XDATA, address, value)

    def read(self, address: int) -> int:
        return self.bus.cpu_read(Space.XDATA, address)

    def start(self, first: int, size: int, value: int = 0) -> None:
        self.write(0xC8B2, first >> 8)
        self.write(0xC8B3, first & 0xFF)
        self.write(0xC8B4, size - 1 >> 8)
        self.write(0xC8B5, size - 1 & 0xFF)
        self.write(0xC8B7, value)
        for put, kept in ((0x04, 0xFF), (0, 0xFE), (0, 0xFD), (0x80, 0xFF)):
            self.write(0xC8B6, self.read(0xC8B6) & kept | put)
        self.write(0xC8B8, 0x01)

    def wait(self) -> None:
        while self.read(0xC8B8) & 1:
            assert self.clock.next is not None, "busy without end"
            self.clock.now = self.clock.next
            self.clock.run_due()

    def memory(self, first: int, size: int) -> bytes:
        return self.bus.load(Space.XDATA, first, size)


@pytest.mark.parametrize(("first", "size"), FILLS)
def test_the_fills_of_a_boot(first: int, size: int) -> None:
    firmware = Firmware()
    firmware.bus.store(Space.XDATA, first, b"\xaa" * (size + 1))
    firmware.start(first, size, 0x5A)
    assert firmware.read(0xC8B8) == 1
    assert firmware.memory(first, size) == b"\xaa" * size, "it takes its time"
    firmware.wait()
    assert firmware.memory(first, size) == b"\x5a" * size
    if first + size in ASM2464PD.memory_at(Space.XDATA, first).addresses:
        assert firmware.memory(first + size, 1) == b"\xaa"
    assert firmware.read(0xC8B6) == 0x84, "the channel keeps its bits"
    assert firmware.read(0xC8B8) == 0


@pytest.mark.parametrize(("first", "size"), FILLS)
def test_a_fill_of_the_other_bank_leaves_what_the_cpu_sees(first: int, size: int) -> None:
    firmware = Firmware()
    firmware.bus.store(Space.XDATA, first, b"\xaa" * size)
    for bank, value in ((0x02, 0xAA), (0x00, 0)):
        firmware.write(BANKS[first], bank)
        firmware.start(first, size)
        firmware.wait()
        assert firmware.memory(first, size) == bytes([value]) * size


def test_other_memories_have_one_bank() -> None:
    firmware = Firmware()
    for bank in set(BANKS.values()):
        firmware.write(bank, 0x02)
    firmware.start(0x4000, 3, 0x77)
    firmware.wait()
    assert firmware.memory(0x4000, 4) == b"\x77\x77\x77\x00"


def test_registers_and_addresses_that_wrap_are_refused() -> None:
    for first, size in ((0x9000, 1), (0xB100, 0x200), (0xFFFF, 2)):
        with pytest.raises(Undefined, match="leaves the memories"):
            Firmware().start(first, size)
        tolerant = Firmware(strict=False)
        tolerant.start(first, size, 0x55)
        tolerant.wait()
        assert tolerant.memory(first, 1) == b"\0"


def test_a_start_while_busy_and_other_bits_change_nothing() -> None:
    firmware = Firmware()
    firmware.write(0xC8B8, 0xFE)
    assert firmware.read(0xC8B8) == 0
    firmware.start(0xA000, 2, 0x11)
    firmware.write(0xC8B7, 0x22)
    firmware.write(0xC8B8, 0x01)
    firmware.wait()
    assert firmware.memory(0xA000, 2) == b"\x11\x11"
    assert firmware.clock.next is None
