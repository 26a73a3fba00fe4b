"""The UART through its registers."""

from __future__ import annotations

from emulator.asm2464pd.uart import Uart
from emulator.core.bus import Bus
from emulator.core.clock import Scheduler, seconds
from firmware.asm2464pd.describe import Space
from firmware.asm2464pd.registers import ASM2464PD

THR, RBR, RX_COUNT, TX_FREE, LCR, LSR = 0xC001, 0xC000, 0xC005, 0xC006, 0xC007, 0xC009


class Chip:
    def __init__(self) -> None:
        self.clock = Scheduler()
        self.bus = Bus(ASM2464PD, self.clock, strict=True)
        self.sent = b""
        self.uart = Uart(self.bus, self._heard)

    def _heard(self, data: bytes) -> None:
        self.sent += data

    def read(self, address: int) -> int:
        return self.bus.cpu_read(Space.XDATA, address)

    def write(self, address: int, value: int) -> None:
        self.bus.cpu_write(Space.XDATA, address, value)

    def run(self, clocks: int) -> None:
        end = self.clock.now + clocks
        while (due := self.clock.next) is not None and due <= end:
            self.clock.now = due
            self.clock.run_due()
        self.clock.now = end


def test_nothing_is_dropped_however_fast_it_comes() -> None:
    chip = Chip()
    text = bytes(range(256)) * 4
    for value in text:
        chip.write(THR, value)
    assert chip.sent == text


def test_status_follows_the_line() -> None:
    chip = Chip()
    assert (chip.read(TX_FREE), chip.read(LSR)) == (16, 0x20)
    for _ in range(20):
        chip.write(THR, 0x55)
    assert (chip.read(TX_FREE), chip.read(LSR)) == (0, 0)
    character = chip.uart.character_clocks
    chip.run(5 * character)
    assert (chip.read(TX_FREE), chip.read(LSR)) == (1, 0)
    chip.run(15 * character - 1)
    assert chip.read(LSR) == 0
    chip.run(1)
    assert (chip.read(TX_FREE), chip.read(LSR)) == (16, 0x20)
    assert chip.clock.next is None


def bits(chip: Chip) -> float:
    return round(seconds(chip.uart.character_clocks) * 921_600, 1)


def test_a_character_takes_what_its_bits_take() -> None:
    chip = Chip()
    assert chip.read(LCR) == 0x0B, "8 data bits, odd parity, 1 stop bit after reset"
    assert bits(chip) == 11
    chip.write(LCR, chip.read(LCR) & ~0x38)  # as firmware that wants no parity does
    assert chip.read(LCR) == 0x03
    assert bits(chip) == 10
    chip.write(LCR, 0x04)
    assert bits(chip) == 8


def test_receiving() -> None:
    chip = Chip()
    chip.uart.receive(b"ab")
    chip.uart.receive(b"c")
    assert chip.read(RX_COUNT) == 0
    chip.run(chip.uart.character_clocks)
    assert chip.read(RX_COUNT) == 1
    chip.run(2 * chip.uart.character_clocks)
    assert chip.read(RX_COUNT) == 3
    assert bytes(chip.read(RBR) for _ in range(3)) == b"abc"
    assert chip.read(RX_COUNT) == 0
    assert chip.read(RBR) == 0
    chip.uart.receive(b"d")
    chip.run(chip.uart.character_clocks)
    assert chip.read(RBR) == ord("d")


def test_status_registers_ignore_writes() -> None:
    chip = Chip()
    for address, value in ((LSR, 0x20), (TX_FREE, 16), (RX_COUNT, 0)):
        chip.write(address, 0xFF)
        assert chip.read(address) == value
