"""Interrupts, timers and the serial port, by the MCS-51 manual."""

import pytest

from emulator.core.bus import READ_CALLS
from emulator.mcs51.core import Stop
from tests.unit.mcs51_bench import (
    IE,
    RCAP2H,
    SCON,
    T2CON,
    TCON,
    TH0,
    TH1,
    TH2,
    TL0,
    TL1,
    TL2,
    TMOD,
    Bench,
)

LONG = 1 << 40
SPIN = "80FE"

VECTORS = {0x03: "0530 32", 0x0B: "0531 32", 0x13: "0532 32", 0x1B: "0533 32", 0x23: "0534 C298 C299 32",
           0x2B: "0535 C2CF 32"}  # fmt: skip
"""Each handler counts in its own byte of IRAM."""


def counts(bench):
    return list(bench.cpu.iram[0x30:0x36])


def test_a_level_interrupt_comes_again_until_the_line_falls():
    bench = Bench({0: "020040", 0x40: "75A881" + SPIN, **VECTORS})
    bench.cpu.line(0, True)
    bench.cpu.run(1000)
    first = counts(bench)[0]
    assert first > 10
    bench.cpu.line(0, False)
    bench.cpu.run(2000)
    assert first <= counts(bench)[0] <= first + 1
    assert bench.cpu.sfr(TCON) & 0x02 == 0


def test_an_edge_interrupt_comes_once():
    bench = Bench({0: "020040", 0x40: "D28A 75A884" + SPIN, **VECTORS})  # IT1
    bench.steps(5)
    bench.cpu.line(1, True)
    bench.cpu.run(1000)
    assert counts(bench) == [0, 0, 1, 0, 0, 0]
    bench.cpu.line(1, False)
    bench.cpu.line(1, True)
    bench.cpu.line(1, False)  # IE1 has latched it
    bench.cpu.run(2000)
    assert counts(bench) == [0, 0, 2, 0, 0, 0]


def test_nothing_comes_while_disabled():
    bench = Bench({0: "020040", 0x40: "75A801" + SPIN, **VECTORS})  # EX0 without EA
    bench.cpu.line(0, True)
    bench.cpu.run(1000)
    assert counts(bench) == [0] * 6


def test_priorities():
    """INT1 high: it interrupts INT0's handler, not the other way round, and goes first when both wait."""
    bench = Bench(
        {0: "020040", 0x03: "7401 7401 7401 7401 0530 32", 0x13: "E530 F540 0532 7402 7402 32",
         0x40: "75B804 D288 D28A 75A885" + SPIN}
    )  # fmt: skip
    bench.steps(6)
    bench.cpu.line(0, True)
    bench.steps(2)  # inside INT0's handler
    assert bench.cpu.pc in range(0x03, 0x0B)
    bench.cpu.line(1, True)
    bench.steps(1)
    assert bench.cpu.pc in range(0x13, 0x20)
    bench.cpu.run(bench.cpu.clock + 200)
    assert (counts(bench)[0], counts(bench)[2], bench.cpu.iram[0x40]) == (1, 1, 0)
    bench.cpu.line(0, False)
    bench.cpu.line(1, False)
    bench.cpu.iram[0x40] = 0xFF
    bench.cpu.line(0, True)
    bench.cpu.line(1, True)
    bench.cpu.run(bench.cpu.clock + 200)
    assert (counts(bench)[0], counts(bench)[2]) == (2, 2)
    assert bench.cpu.iram[0x40] == 1  # INT1 went first, before INT0's second


def test_an_equal_priority_waits_for_reti():
    bench = Bench(
        {0: "020040", 0x03: "7401 7401 0530 32", 0x13: "E530 F540 0532 32", 0x40: "D288 D28A 75A885" + SPIN}
    )
    bench.steps(5)
    bench.cpu.line(0, True)
    bench.steps(1)
    bench.cpu.line(1, True)
    bench.cpu.run(bench.cpu.clock + 200)
    assert bench.cpu.iram[0x40] == 1


def test_one_instruction_passes_between_reti_and_the_next_interrupt():
    bench = Bench({0: "020040", 0x03: "0530 32", 0x40: "75A881 0541 80FC"})
    bench.cpu.line(0, True)
    bench.cpu.run(1000)
    handled, between = counts(bench)[0], bench.cpu.iram[0x41]
    assert handled > 50  # 4 clocks entry, 3 + 4 in the handler, 3 in the loop
    assert between in (handled // 2, handled // 2 + 1)  # INC and SJMP take turns


def test_one_instruction_passes_after_a_write_to_ie():
    bench = Bench({0: "020040", 0x03: "E541 F542 C2AF 32", 0x40: "75A881 754155" + SPIN})
    bench.cpu.line(0, True)
    bench.cpu.run(100)
    assert bench.cpu.iram[0x42] == 0x55


def test_interrupt_entry_takes_a_long_calls_clocks():
    bench = Bench({0: "020040", 0x03: "00", 0x40: "75A881 00 00"})
    bench.cpu.line(0, True)
    bench.steps(3)
    assert bench.cpu.clock == 4 + 3 + 1
    bench.steps(1)
    assert (bench.cpu.clock, bench.cpu.pc) == (8 + 4 + 1, 4)
    assert bench.cpu.iram[8:10].tolist() == [0x44, 0]


@pytest.mark.parametrize(
    ("mode", "low", "high", "first", "period"),
    [(0, 0x1F, 0xFF, 1, 8192), (1, 0xF0, 0xFF, 16, 65536), (2, 0xF0, 0xE0, 16, 32), (3, 0xF0, 0x00, 16, 256)],
)
def test_modes_of_timer_0(mode, low, high, first, period):
    """Overflows after `first` counts of 12 clocks, and then every `period`."""
    bench = Bench({0: f"7589{mode:02x} 758A{low:02x} 758C{high:02x} D28C" + SPIN})
    bench.steps(4)
    started = bench.cpu.clock // 12
    for overflow in (started + first, started + first + period):
        bench.cpu.run(overflow * 12 - 6)
        assert bench.cpu.sfr(TCON) & 0x20 == 0
        bench.cpu.run(overflow * 12 + 6)
        assert bench.cpu.sfr(TCON) & 0x20
        bench.cpu.set_sfr(TCON, bench.cpu.sfr(TCON) & ~0x20)


def test_timer_0_in_mode_3_is_two_and_leaves_timer_1_running():
    bench = Bench({0: "758923 758AF0 758CF8 758D00 758B00 D28C D28E" + SPIN})
    bench.steps(7)
    bench.cpu.run(12 * 200)
    tcon = bench.cpu.sfr(TCON)
    assert tcon & 0xA0 == 0xA0
    assert bench.cpu.sfr(TL1) > 150  # mode 2, no flag of its own
    assert bench.cpu.sfr(TL0) == (bench.cpu.sfr(TL1) + 0xF0) % 256  # started in the same count


def test_a_timer_interrupt_clears_its_flag_and_counts_exactly():
    """Timer 1 in mode 2 overflows every 100 counts."""
    bench = Bench({0: "020040", 0x40: "758920 758D9C 758B9C D28E 75A888" + SPIN, **VECTORS})
    bench.cpu.run(12 * 100 * 50 + 600)
    assert counts(bench) == [0, 0, 0, 50, 0, 0]
    assert bench.cpu.sfr(TH1) == 0x9C


def test_timer_2_reloads_and_its_flag_is_software_s():
    bench = Bench({0: "020040", 0x40: "75CAF0 75CBFF 75CCF0 75CDFF D2CA 75A8A0" + SPIN, **VECTORS})
    bench.cpu.run(12 * 16 * 40 + 100)
    assert counts(bench)[5] == 40
    assert bench.cpu.sfr(T2CON) & 0x80 == 0
    assert bench.cpu.sfr(RCAP2H) == 0xFF
    assert bench.cpu.sfr(TH2) == 0xFF


def test_timer_2_without_reload_counts_through_zero():
    bench = Bench({0: "75CAF0 75CBFF 75CCF0 75CDFF 75C805" + SPIN})
    bench.cpu.run(12 * 30)
    assert bench.cpu.sfr(T2CON) & 0x80
    assert (bench.cpu.sfr(TH2), bench.cpu.sfr(TL2)) == (0, 30 - 16 - 1)


def test_gate_stops_a_timer_while_the_line_is_asserted():
    bench = Bench({0: "758909 D28C" + SPIN})
    bench.cpu.run(120)
    bench.cpu.line(0, True)
    held = bench.cpu.sfr(TL0)
    bench.cpu.run(2400)
    assert bench.cpu.sfr(TL0) == held
    bench.cpu.line(0, False)
    bench.cpu.run(3600)
    assert bench.cpu.sfr(TL0) in (held + 100, held + 101)


def test_a_timer_that_counts_a_pin_stands_still():
    bench = Bench({0: "758905 D28C" + SPIN})
    bench.cpu.run(1200)
    assert (bench.cpu.sfr(TL0), bench.cpu.sfr(TH0), bench.cpu.sfr(TMOD)) == (0, 0, 5)


def test_firmware_reads_the_timer_as_of_now():
    bench = Bench({0: "758901 D28C 00 00 00 00 00 00 00 00 00 00 00 00 E58A"})
    bench.steps(15)
    assert bench.cpu.acc == bench.cpu.clock // 12


def test_serial_port_sends_at_once_and_interrupts():
    bench = Bench({0: "020040", 0x40: "75A890 759955" + SPIN, **VECTORS})
    assert bench.cpu.run(LONG) is Stop.SERIAL
    assert (bench.cpu.value, bench.cpu.stop_pc) == (0x55, 0x43)
    assert bench.cpu.sfr(SCON) == 0x02
    bench.cpu.run(bench.cpu.clock + 100)
    assert counts(bench)[4] == 1


def test_serial_port_receives_while_enabled_and_empty():
    bench = Bench({0: "759850 3098FD E599 C298" + SPIN})
    bench.cpu.receive(0x11)  # REN is clear: lost
    bench.steps(5)
    assert bench.cpu.acc == 0
    bench.cpu.receive(0x22)
    bench.cpu.receive(0x33)  # RI is set: lost
    bench.steps(3)
    assert bench.cpu.acc == 0x22
    assert bench.cpu.sfr(IE) == 0


@pytest.mark.parametrize("pad", range(8, 13))
def test_setting_a_bit_beside_it_loses_no_overflow(pad):
    """SETB TR1 reads, changes and writes TCON while timer 0 overflows."""
    bench = Bench({0: "758901 758AFF 758CFF D28C" + pad * "00" + "D28E" + SPIN})
    bench.cpu.run(200)
    assert bench.cpu.sfr(TCON) & 0x20


def test_timer_2s_overflow_is_not_lost_either():
    for pad in range(8, 13):
        bench = Bench({0: "75CAF0 75CCFF 75CDFF D2CA" + pad * "00" + "D2C8" + SPIN})
        bench.cpu.run(200)
        assert bench.cpu.sfr(T2CON) & 0x80


def test_a_breakpoint_does_not_let_an_interrupt_in_early():
    """The instruction after RETI is executed before the next interrupt, stopped at or not."""
    runs = []
    for places in ((), {(0, 0x46)}):
        bench = Bench({0: "020040", 0x03: "0530 32", 0x40: "75A881 754055 0541 0541 0541" + SPIN})
        bench.cpu.breakpoints(places)
        bench.cpu.line(0, True)
        while bench.cpu.clock < 200:
            bench.cpu.run(200)
        runs.append(bench.cpu.state())
    assert runs[0] == runs[1]


def test_lines_that_change_while_an_access_is_served():
    """The owner drives a line between a MOVX's stop and its value: the handler comes after the whole MOVX."""
    bench = Bench({0: "020040", 0x03: "C0E0 E4 0530 D0E0 32", 0x40: "75A881 907000 E0 F8 E0 F9" + SPIN})
    bench.xdata.flags[0x7000] = READ_CALLS
    assert bench.cpu.run(LONG) is Stop.READ
    bench.cpu.line(0, True)
    bench.cpu.finish_read(0x5C)
    bench.steps(1)
    assert bench.cpu.pc == 0x05  # in the handler
    bench.cpu.line(0, False)
    assert bench.cpu.run(LONG) is Stop.READ
    bench.cpu.line(0, True)  # and gone again before the CPU could see it
    bench.cpu.line(0, False)
    bench.cpu.finish_read(0x5D)
    bench.cpu.run(bench.cpu.clock + 100)
    assert (counts(bench)[0], *bench.cpu.iram[:2]) == (1, 0x5C, 0x5D)
