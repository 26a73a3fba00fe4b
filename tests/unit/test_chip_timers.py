"""The chip's timers, driven as the open firmware sleeps with them."""

from __future__ import annotations

import pytest

from emulator.asm2464pd.timers import Timers
from emulator.asm2464pd.undefined import Undefined
from emulator.core.bus import Bus
from emulator.core.clock import Scheduler, clocks
from firmware.asm2464pd.describe import Space
from firmware.asm2464pd.registers import ASM2464PD

BANKS = [0xCC10, 0xCC16, 0xCC1C, 0xCC22, 0xCC5C]


class Timer:
    def __init__(self, base: int = 0xCC10, *, strict: bool = True) -> None:
        self.base = base
        self.clock = Scheduler()
        self.bus = Bus(ASM2464PD, self.clock, strict=strict)
        self.lines: list[tuple[int, bool]] = []
        self.bus.drive = lambda line, level: self.lines.append((line, level))
        Timers(self.bus)

    def write(self, offset: int, value: int) -> None:
        self.bus.cpu_write(Space.XDATA, self.base + offset, value)

    @property
    def csr(self) -> int:
        return self.bus.cpu_read(Space.XDATA, self.base + 1)

    def start(self, milliseconds: int, mode: int = 4) -> None:
        threshold = 2 * milliseconds
        self.write(1, 0x04)
        self.write(1, 0x02)
        self.write(0, self.bus.cpu_read(Space.XDATA, self.base) & 0xF8 | mode)
        self.write(2, threshold >> 8)
        self.write(3, threshold & 0xFF)
        self.write(1, 0x01)

    def run(self, until: int) -> None:
        while (due := self.clock.next) is not None and due <= until:
            self.clock.now = due
            self.clock.run_due()
        self.clock.now = until


@pytest.mark.parametrize("base", BANKS)
@pytest.mark.parametrize("milliseconds", [1, 100, 20_000])
def test_a_sleep_takes_its_time(base: int, milliseconds: int) -> None:
    timer = Timer(base)
    timer.start(milliseconds)
    assert timer.csr == 0x01
    end = clocks(milliseconds / 1000)
    timer.run(end - 1)
    assert timer.csr == 0x01
    timer.run(end)
    assert timer.csr == 0x02, "expired, and no longer counting"
    timer.write(1, 0x02)
    assert timer.csr == 0
    assert timer.lines == [], "no interrupt in any case"


def test_expiry_is_one_event_and_no_polling() -> None:
    timer = Timer()
    timer.start(500)
    assert timer.clock.next == pytest.approx(clocks(0.5), abs=1000)
    timer.clock.now = timer.clock.next or 0
    timer.clock.run_due()
    assert timer.clock.next is None


def test_clear_stops_and_a_new_start_begins_at_zero() -> None:
    timer = Timer()
    timer.start(10)
    timer.run(clocks(0.009))
    timer.write(1, 0x04)
    assert timer.csr == 0
    timer.run(clocks(0.1))
    assert timer.csr == 0
    timer.start(10)
    timer.run(timer.clock.now + clocks(0.009))
    assert timer.csr == 0x01
    timer.run(timer.clock.now + clocks(0.002))
    assert timer.csr == 0x02


def test_a_second_start_without_clear_begins_at_zero_too() -> None:
    timer = Timer()
    timer.start(10)
    timer.run(clocks(0.005))
    timer.write(1, 0x01)
    timer.run(clocks(0.0149))
    assert timer.csr == 0x01
    timer.run(clocks(0.0151))
    assert timer.csr == 0x02
    assert timer.clock.next is None


def test_acknowledging_does_not_stop_a_running_timer() -> None:
    timer = Timer()
    timer.start(1)
    timer.write(1, 0x02)
    assert timer.csr == 0x01


def test_the_mode_register_keeps_its_upper_bits() -> None:
    timer = Timer()
    timer.write(0, 0xA8)
    timer.start(1)
    assert timer.bus.cpu_read(Space.XDATA, 0xCC10) == 0xAC


@pytest.mark.parametrize("mode", [2, 3, 4, 5, 6])
def test_each_mode_that_firmware_uses_doubles_the_tick(mode: int) -> None:
    """By the maker's firmware: 199 ticks of mode 2, four times over, are 99.5 ms."""
    timer = Timer()
    tick = 0.125e-3 * 2 ** (mode - 2)
    timer.start(100, mode=mode)  # twice as many ticks
    timer.run(clocks(199 * tick))
    assert timer.csr == 0x01
    timer.run(clocks(200 * tick) + 1)
    assert timer.csr == 0x02


@pytest.mark.parametrize("mode", [0, 1, 7])
def test_a_mode_that_is_only_guessed_is_reported(mode: int, caplog: pytest.LogCaptureFixture) -> None:
    timer = Timer(strict=False)
    for _ in range(2):
        timer.start(8, mode=mode)
        timer.run(timer.clock.now + clocks(0.008 * 2.0 ** (mode - 4)) + 1)
        assert timer.csr == 0x02
    assert len(caplog.messages) == 1
    assert f"TIMER0_MODE is {mode}" in caplog.messages[0]
    with pytest.raises(Undefined, match=f"TIMER0_MODE is {mode}"):
        Timer().start(8, mode=mode)
