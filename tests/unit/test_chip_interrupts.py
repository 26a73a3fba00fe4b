"""The interrupt summary: level semantics from the event registers to INT0."""

from __future__ import annotations

import itertools

import pytest

from firmware.asm2464pd.registers import interrupts, usb
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
