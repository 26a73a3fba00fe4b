"""Watchpoints of the core: which instruction touches which byte, and nothing else does."""

import pytest

from emulator.mcs51.core import WATCH_READ, WATCH_SFR, WATCH_WRITE, Stop
from tests.unit.mcs51_bench import ACC, DPL, IE, PSW, SP, Bench

LONG = 1 << 40
READ, WRITE, BOTH = WATCH_READ, WATCH_WRITE, WATCH_READ | WATCH_WRITE
NOP_A5 = "00 A5"


def sfr(address):
    return WATCH_SFR + address


CASES = {
    "MOV direct,#": ("753042", 0x30, WRITE),
    "MOV direct,direct, the destination": ("853031", 0x31, WRITE),
    "MOV direct,direct, the source": ("853031", 0x30, READ),
    "MOV A,direct": ("E530", 0x30, READ),
    "INC direct": ("0530", 0x30, BOTH),
    "CJNE A,direct": ("B53000", 0x30, READ),
    "MOV Rn,#": ("7F01", 7, WRITE),
    "MOV A,Rn": ("EF", 7, READ),
    "MOV @R0,#": ("7605", 0, WRITE),
    "DJNZ Rn": ("DF00", 7, BOTH),
    "SETB bit": ("D200", 0x20, BOTH),
    "JB bit": ("207F00", 0x2F, READ),
    "PUSH": ("C0E0", 8, WRITE),
    "PUSH, what is pushed": ("C0E0", sfr(ACC), READ),
    "POP": ("D0E0", 7, READ),
    "POP, where to": ("D0E0", sfr(ACC), WRITE),
    "LCALL": ("120003", 9, WRITE),
    "MOV SFR,#": ("75A801", sfr(IE), WRITE),
    "SETB bit of an SFR": ("D2AF", sfr(IE), BOTH),
    "XCH A,direct": ("C530", 0x30, BOTH),
    "INC DPTR changes DPL": ("A3", sfr(DPL), WRITE),
    "INC A": ("04", sfr(ACC), WRITE),
    "SETB C": ("D3", sfr(PSW), WRITE),
    "PUSH changes SP": ("C000", sfr(SP), WRITE),
}


@pytest.mark.parametrize(("code", "place", "kinds"), CASES.values(), ids=CASES)
def test_an_access_stops_behind_the_instruction(code, place, kinds):
    for watched in (READ, WRITE):
        bench = Bench(code + NOP_A5)
        bench.cpu.watch({place: watched})
        stop = bench.cpu.run(LONG)
        if watched & kinds:
            assert stop is Stop.WATCHED
            assert bench.cpu.take_hits() == {place: watched}
            assert bench.cpu.pc == len(bytes.fromhex(code))
            assert bench.cpu.run(LONG) is Stop.ILLEGAL
        else:
            assert stop is Stop.ILLEGAL


def test_the_next_byte_and_nothing_watched_stop_nothing():
    bench = Bench("753042 E530" + NOP_A5)
    bench.cpu.watch({0x2F: BOTH, 0x31: BOTH})
    assert bench.cpu.run(LONG) is Stop.ILLEGAL
    bench = Bench("753042" + NOP_A5)
    bench.cpu.watch({0x30: BOTH})
    bench.cpu.watch({})
    assert bench.cpu.run(LONG) is Stop.ILLEGAL


def test_everything_an_instruction_touches_is_reported_once():
    bench = Bench("853031 C531" + NOP_A5)  # MOV 31,30; XCH A,31
    bench.cpu.watch({0x30: BOTH, 0x31: BOTH, sfr(ACC): READ})
    assert bench.cpu.run(LONG) is Stop.WATCHED
    assert bench.cpu.take_hits() == {0x30: READ, 0x31: WRITE}
    assert bench.cpu.run(LONG) is Stop.WATCHED
    assert bench.cpu.take_hits() == {0x31: BOTH}
    assert bench.cpu.run(LONG) is Stop.ILLEGAL


def test_a_reset_keeps_what_was_touched():
    bench = Bench("753042" + NOP_A5)
    bench.cpu.watch({0x30: WRITE})
    assert bench.cpu.run(LONG) is Stop.WATCHED
    bench.cpu.reset()
    assert bench.cpu.run(LONG) is Stop.WATCHED
    assert bench.cpu.take_hits() == {0x30: WRITE}


def test_an_interrupt_touches_the_stack():
    bench = Bench({0: "75A882 758920 D28C D28D 80FE", 0x0B: "80FE"})  # timer 0 counts
    bench.cpu.watch({8: WRITE})
    assert bench.cpu.run(LONG) is Stop.WATCHED
    assert bench.cpu.pc == 0x0B


def test_a_spin_loop_that_reads_the_byte_is_not_skipped():
    bench = Bench("7800 E530 60FC" + NOP_A5, skip=True)
    bench.cpu.run(50_000)
    bench.cpu.watch({0x30: READ})
    assert bench.cpu.run(LONG) is Stop.WATCHED


def test_watching_changes_no_clock():
    code = "7F20 0530 C0E0 D0E0 DFF8 A5"
    plain, watched = Bench(code), Bench(code)
    plain.cpu.run(LONG)
    watched.cpu.watch({0x30: BOTH})
    while watched.cpu.run(LONG) is Stop.WATCHED:
        watched.cpu.take_hits()
    assert watched.cpu.state() == plain.cpu.state()
