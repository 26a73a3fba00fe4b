"""The trace of register accesses: which lines, and what they say."""

from __future__ import annotations

import pytest

from emulator.core.bus import Bus
from emulator.core.clock import Scheduler
from emulator.trace import Trace, traceable
from firmware.asm2464pd.describe import Space
from firmware.asm2464pd.registers import ASM2464PD, BLOCKS
from firmware.asm2464pd.registers import tlp as tlp_regs
from firmware.asm2464pd.registers import usb as usb_regs
from sdk.errors import UsageError
from towline.cli import emulate


class Traced:
    """A bus without blocks, and the lines of its trace without their times."""

    def __init__(self, *chosen: str) -> None:
        self.bus = Bus(ASM2464PD, Scheduler())
        self.bus.program_counter = lambda: 0x1A2B
        self.written: list[str] = []
        for register in (usb_regs.EP0_COMMAND, usb_regs.EP0_IN_LENGTH, tlp_regs.TLP_DATA):
            self.bus.map(register, "test")
        self.trace = Trace(self.bus, BLOCKS, chosen, self.written.append)

    @property
    def lines(self) -> list[str]:
        return [line[13:] for line in self.written]


def test_a_register_of_several_bytes_shows_what_the_whole_of_it_becomes() -> None:
    traced = Traced("usb")
    high, low = usb_regs.EP0_IN_LENGTH.addresses
    traced.bus.cpu_write(Space.XDATA, high, 0x01)
    traced.bus.cpu_write(Space.XDATA, low, 0x40)
    assert traced.lines == [
        f"1a2b  W EP0_IN_LENGTH+0          {high:04x} = 01  0x0100",
        f"1a2b  W EP0_IN_LENGTH+1          {low:04x} = 40  0x0140",
    ]


def test_a_change_of_the_hardware_is_one_line_and_none_if_it_changes_nothing() -> None:
    traced = Traced("tlp")
    for _ in range(2):
        traced.bus.set(tlp_regs.TLP_DATA, 0x12345678)
    address = tlp_regs.TLP_DATA.address
    assert traced.lines == [f"      . TLP_DATA                 {address:04x} = 12345678"]


def test_repeats_are_counted_and_a_closed_trace_is_silent() -> None:
    traced = Traced("usb")
    for _ in range(4):
        traced.bus.cpu_read(Space.XDATA, usb_regs.EP0_COMMAND.address)
    traced.trace.close()
    assert len(traced.written) == 4
    assert traced.written[-1].endswith("... 1 more time")
    traced.bus.cpu_read(Space.XDATA, usb_regs.EP0_COMMAND.address)
    assert len(traced.written) == 4


@pytest.mark.parametrize(("chosen", "shown"), [((), True), (("interrupts",), True), (("usb",), False)])
def test_interrupt_lines_belong_to_the_block_interrupts(chosen: tuple[str, ...], shown: bool) -> None:
    traced = Traced(*chosen)
    traced.bus.interrupt(0, True)
    assert traced.lines == (["      . INT0 asserted"] if shown else [])


def test_blocks_that_a_user_may_name_are_those_of_the_help() -> None:
    assert traceable(BLOCKS) == emulate.BLOCKS
    with pytest.raises(UsageError, match="no block cpu"):
        Traced("cpu")
