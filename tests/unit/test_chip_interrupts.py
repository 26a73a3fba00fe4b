"""The interrupt summary: level semantics from the event registers to INT0."""

from __future__ import annotations

import itertools

import pytest

from emulator.asm2464pd.interrupts import Interrupts
from emulator.asm2464pd.timers import Timers
from emulator.core.bus import Bus
from emulator.core.clock import Scheduler
from emulator.model import Model
from firmware.asm2464pd.registers import ASM2464PD, interrupts, usb, usb_phy
from tests.unit.usb_bench import Bench

SOURCES = {
    "LINK_TRAINING": usb.USB_LINK_EVENTS,
    "CONTROL": usb.EP0_PHASE,
    "BULK": usb.BULK_EVENTS,
    "LINK_ALTERNATE": usb.USB_LINK_ALTERNATE,
    "LINK": usb.USB_LINK_STATUS,
    "EP_COMPLETE": usb.EP_COMPLETE,
    "COMMAND": usb.MSC_EVENT,
}


@pytest.fixture(scope="module")
def bench():
    bench = Bench()
    bench.write(interrupts.INT_CONTROL, 1)
    return bench


@pytest.mark.parametrize("cause", SOURCES)
def test_a_cause_follows_its_register(bench, cause):
    register = SOURCES[cause]
    assert (bench.events, bench.read(interrupts.INT_USB), bench.line) == (0, 0, False)
    bench.interrupts.raise_bits(register, 0x03)
    assert bench.events == interrupts.USB_EVENTS[cause]
    assert (bench.read(interrupts.INT_USB), bench.line) == (1, True)
    bench.write(register, 0x01)
    assert bench.events == interrupts.USB_EVENTS[cause], "one event is left"
    bench.write(register, 0x03)
    assert (bench.events, bench.read(interrupts.INT_USB), bench.line) == (0, 0, False)


def test_the_line_falls_with_the_last_of_several_causes(bench):
    for first, second in itertools.permutations(SOURCES.values(), 2):
        bench.interrupts.raise_bits(first, 0x04)
        bench.interrupts.raise_bits(second, 0x04)
        bench.write(first, 0xFF)
        assert bench.line
        bench.write(second, 0xFF)
        assert not bench.line


def test_summaries_cannot_be_written(bench):
    bench.interrupts.raise_bits(usb.EP0_PHASE, 1)
    bench.write(interrupts.USB_EVENTS, 0xFF)
    bench.write(interrupts.INT_USB, 0xFF)
    assert bench.events == interrupts.USB_EVENTS["CONTROL"]
    assert bench.line
    bench.interrupts.clear(usb.EP0_PHASE)
    assert not bench.line


def test_nothing_reaches_the_cpu_before_it_is_let_through():
    bench = Bench()
    bench.interrupts.raise_bits(usb.BULK_EVENTS, 0x02)
    assert bench.read(interrupts.INT_USB) == 1
    assert not bench.line
    bench.write(interrupts.INT_CONTROL, 1)
    assert bench.line
    bench.write(interrupts.INT_CONTROL, 0)
    assert not bench.line


def test_other_summaries_read_0(bench):
    assert bench.read(interrupts.INT_SYSTEM) == bench.read(interrupts.INT_PCIE) == 0
    bench.write(interrupts.INT_ENABLE, 0x17)
    assert bench.read(interrupts.INT_ENABLE) == 0x17


@pytest.mark.parametrize("bit", [*range(6), 7])
def test_further_link_events_have_one_cause_or_the_other(bench, bit):
    cause = "LINK_ALTERNATE" if bit == 7 else "LINK"
    bench.interrupts.raise_bits(usb_phy.USB_LINK_FURTHER, 1 << bit)
    assert bench.events == interrupts.USB_EVENTS[cause]
    bench.interrupts.raise_bits(usb.USB_LINK_STATUS, 0x08)
    bench.write(usb_phy.USB_LINK_FURTHER, 1 << bit)
    assert bench.events == interrupts.USB_EVENTS["LINK"], "the other register of the cause counts on"
    bench.write(usb.USB_LINK_STATUS, 0x08)
    assert not bench.line


EVENTS_AND_MASKS = [
    (usb.USB_LINK_STATUS, usb.USB_LINK_STATUS_MASK, 0x33),
    (usb.USB_LINK_ALTERNATE, usb_phy.USB_LINK_ALTERNATE_MASK, 0x3F),
    (usb_phy.USB_LINK_FURTHER, usb_phy.USB_LINK_FURTHER_MASK, 0x40),
]


@pytest.mark.parametrize(("register", "mask", "value"), EVENTS_AND_MASKS)
@pytest.mark.parametrize("applied", [False, True])
def test_masks_of_link_events_are_disputed(register, mask, value, applied):
    bench = Bench(model=Model.of(["link-masks=applied"] if applied else []))
    bench.write(interrupts.INT_CONTROL, 1)
    bench.write(mask, value)
    assert bench.read(mask) == value
    for bit in range(8):
        bench.interrupts.raise_bits(register, 1 << bit)
        masked = applied and value >> bit & 1
        counts = register is not usb_phy.USB_LINK_FURTHER or bit != 6
        if counts:
            assert bench.line is not bool(masked)
        if masked and counts:
            bench.write(mask, 0)
            assert bench.line, "the event was there all the time"
            bench.write(mask, value)
            assert not bench.line
        bench.write(register, 1 << bit)
        assert not bench.line


class Chip:
    """Interrupts and timers, with both lines of the CPU."""

    def __init__(self):
        self.clock = Scheduler()
        self.bus = Bus(ASM2464PD, self.clock, strict=True)
        self.lines = {0: False, 1: False}
        self.bus.drive = self.lines.__setitem__
        self.interrupts = Interrupts(self.bus)
        Timers(self.bus, self.interrupts.timers_changed)

    def write(self, register, value):
        for address in register.addresses:
            self.bus.cpu_write(register.space, address, value >> register.shift(address) & 0xFF)

    def expire(self, number):
        mode, csr, threshold = (ASM2464PD[f"TIMER{number}_{part}"] for part in ("MODE", "CSR", "THRESHOLD"))
        self.write(mode, 4)
        self.write(threshold, 1)
        self.write(csr, 1)
        self.clock.now = self.clock.next
        self.clock.run_due()
        assert self.bus.value(csr) & 2
        return csr


def test_timer_3_is_a_cause_of_int1():
    chip = Chip()
    chip.expire(0)
    csr = chip.expire(3)
    assert chip.bus.value(interrupts.INT_SYSTEM) == interrupts.INT_SYSTEM["TIMER"]
    assert chip.lines == {0: False, 1: False}, "INT_CONTROL.GLOBAL lets it through"
    chip.write(interrupts.INT_CONTROL, 1)
    assert chip.lines == {0: False, 1: True}
    chip.write(csr, 2)
    assert chip.bus.value(interrupts.INT_SYSTEM) == 0
    assert chip.lines == {0: False, 1: False}


def test_the_other_causes_of_int1_are_cleared_with_2():
    chip = Chip()
    chip.write(interrupts.INT_CONTROL, 1)
    for register in (interrupts.INT_EVENT_CC81, interrupts.INT_EVENT_CC91, interrupts.INT_EVENT_CCD9):
        chip.bus.set(register, 2)
        chip.interrupts.timers_changed()
        assert chip.lines[1]
        chip.write(register, 2)
        assert not chip.lines[1]
        assert chip.bus.value(register) == 0
