"""Calls that the core records, and the slices that are made of them."""

import pytest

from emulator.mcs51 import calls
from emulator.mcs51.calls import CallSlices, loops
from emulator.mcs51.core import CODE_SIZE, Call, mark
from tests.unit.mcs51_bench import ACC, IE, PSW, SP, TCON, B, Bench


class Slices:
    """Takes slices; `text` is them as (depth, name), in order of their beginnings."""

    def __init__(self):
        self.text, self.depth, self.clock = [], 0, 0

    def begin(self, clock, name, category):
        self.text.append((self.depth, name))
        self.depth += 1
        self._pass(clock)

    def end(self, clock):
        self.depth -= 1
        self._pass(clock)

    def _pass(self, clock):
        assert clock >= self.clock
        self.clock = clock


def traced(bench, names, clocks):
    slices = Slices()
    taker = CallSlices(slices, lambda place: names.get(place, hex(place)), bench.cpu.pc, bench.cpu.clock)
    bench.cpu.on_calls([divmod(place, CODE_SIZE) for place in names], taker.take, [SP])  # for another caller
    bench.cpu.run(clocks)
    bench.cpu.no_calls(taker.take)
    taker.close(bench.cpu.clock)
    assert slices.depth == 0
    return slices.text


NAMES = {0: "start", 0x10: "f", 0x20: "g"}


def test_calls_nest_and_return():
    bench = Bench({0: "120010 120020 80FE", 0x10: "120020 22", 0x20: "22"})
    assert traced(bench, NAMES, 200) == [(0, "start"), (1, "f"), (2, "g"), (1, "g")]


def test_a_jump_to_a_function_takes_the_place_of_its_caller():
    bench = Bench({0: "120010 80FE", 0x10: "020020", 0x20: "22"})
    assert traced(bench, NAMES, 100) == [(0, "start"), (1, "f"), (1, "g")]


def test_code_that_runs_on_into_a_function_is_in_it():
    bench = Bench({0: "120010 80FE", 0x10: "00", 0x11: "120020 22", 0x20: "22"})
    names = {0: "start", 0x10: "f", 0x11: "behind_f", 0x20: "g"}
    assert traced(bench, names, 100) == [(0, "start"), (1, "f"), (1, "behind_f"), (2, "g")]


def test_a_loop_to_its_own_beginning_is_not_another_function():
    bench = Bench({0: "120010 80FE", 0x10: "DFFE 22"})
    bench.cpu.iram[7] = 5
    assert traced(bench, NAMES, 100) == [(0, "start"), (1, "f")]


def test_a_return_to_a_pushed_address_is_a_jump():
    # PUSH 20h, PUSH 00h (from R0, R1), RET: to g in the same frame, which returns to start.
    bench = Bench({0: "7820 7900 120010 80FE", 0x10: "C000 C001 22", 0x20: "22"})
    assert traced(bench, NAMES, 100) == [(0, "start"), (1, "f"), (1, "g")]


def test_the_bank_distinguishes_functions_of_the_same_address():
    code = {0: "128000 759601 128000 759600 80FE", 0x8000: "22"}
    bench = Bench(code, bank1={0x8000: "00 22"})
    names = {0: "start", mark(0, 0x8000): "low", mark(1, 0x8000): "high"}
    assert traced(bench, names, 100) == [(0, "start"), (1, "low"), (1, "high")]


def test_an_interrupt_is_a_slice_with_its_handler_in_it():
    bench = Bench({0: "80FE", 0x03: "020010", 0x10: "32"})
    bench.cpu.set_sfr(IE, 0x81)
    bench.cpu.set_sfr(TCON, 0x01)
    bench.cpu.run(20)
    bench.cpu.line(0, True)
    assert traced(bench, {0x10: "handler"}, 60)[1:] == [(1, "int0"), (2, "handler")]


def test_a_reset_begins_again():
    bench = Bench({0: "120010", 0x10: "120020", 0x20: "80FE"})
    slices = Slices()
    taker = CallSlices(slices, lambda place: NAMES[place], 0, 0)
    bench.cpu.on_calls([], taker.take)
    bench.cpu.run(50)
    bench.cpu.reset()
    bench.cpu.run(100)
    bench.cpu.no_calls(taker.take)
    assert slices.text == [(0, "start"), (1, "f"), (2, "g")] * 2


WAIT = {0: "00 120010 120020 DFF8 80FE", 0x10: "120020 22", 0x20: "22"}
"""Calls f, which calls g, and g, R7 times."""


def test_what_repeats_is_one_slice():
    bench = Bench(WAIT)
    bench.cpu.iram[7] = 200
    text = traced(bench, NAMES, 1 << 14)
    assert (1, "200 x f, g") in text
    assert len(text) < 10


def test_more_calls_than_the_core_can_hold_are_handed_on_meanwhile():
    bench = Bench({0: "120010 80FB", 0x10: "22"})
    seen = []
    bench.cpu.on_calls([], lambda records: seen.append(records.copy()))
    bench.cpu.run(1_000_000)
    assert len(seen) > 1
    bench.cpu.hand_on_calls()
    kinds = [kind for part in seen for kind in part["kind"].tolist()]
    assert kinds[:4] == [Call.CALL, Call.RETURN] * 2
    clocks = [clock for part in seen for clock in part["clock"].tolist()]
    assert len(clocks) > 65536
    assert clocks == sorted(clocks)


def registers(bench, addresses, clocks, then=lambda: None):
    """Changes of special function registers as (clock, address, value)."""
    seen = []
    bench.cpu.on_calls([], lambda records: seen.extend(records.tolist()), addresses)
    bench.cpu.run(clocks)
    then()
    bench.cpu.hand_on_calls()
    return [(clock, at, value) for clock, at, kind, value, _ in seen if kind == Call.REGISTER]


def test_registers_are_recorded_as_they_change():
    # MOV A,#1; MOV A,#1; MOV A,#3; MOV B,A; LCALL f: the parity of A is in PSW.
    bench = Bench({0: "7401 7401 7403 F5F0 120010 80FE", 0x10: "22"})
    found = registers(bench, [PSW, ACC, B, SP], 100)
    assert [(at, value) for _, at, value in found] == [
        (PSW, 1), (ACC, 1), (PSW, 0), (ACC, 3), (B, 3), (SP, 9), (SP, 7)
    ]  # fmt: skip
    clocks = [clock for clock, _, _ in found]
    assert clocks == sorted(clocks)
    assert clocks[0] < clocks[2] < clocks[4] < clocks[5] < clocks[6]


def test_an_interrupt_and_a_reset_change_registers():
    bench = Bench({0: "80FE", 0x03: "32"})
    bench.cpu.set_sfr(IE, 0x81)
    bench.cpu.set_sfr(TCON, 0x01)
    bench.cpu.run(20)
    bench.cpu.line(0, True)
    found = registers(bench, [SP, TCON, IE], 40, then=bench.cpu.reset)
    assert [(at, value) for _, at, value in found] == [(SP, 9), (TCON, 1), (SP, 7), (TCON, 2), (IE, 0)]


@pytest.mark.parametrize("skip", [False, True])
def test_recording_changes_nothing(skip):
    states = []
    for recorded in (False, True):
        bench = Bench(WAIT, skip=skip)
        if recorded:
            bench.cpu.on_calls([(0, 0)], lambda records: None, [ACC, PSW, SP])
        for clock in (1_000, 50_000, 200_000):
            bench.cpu.run(clock)
            states.append(bench.cpu.state())
    assert states[:3] == states[3:]


def test_a_skipped_spin_loop_is_shown():
    bench = Bench({0: "120010 80FE", 0x10: "22"}, skip=True)
    assert traced(bench, NAMES, 200_000) == [(0, "start"), (1, "f"), (1, "spin loop")]


def test_loops_do_not_overlap_and_begin_with_a_call():
    bench = Bench(WAIT)
    bench.cpu.iram[7] = 50
    seen = []
    bench.cpu.on_calls([], lambda records: seen.append(records.copy()))
    bench.cpu.run(1 << 13)
    bench.cpu.hand_on_calls()
    [records] = seen
    [(first, period, rounds)] = list(loops(records))
    assert (first % 6, period, rounds) == (0, 6, 50)
    assert records["kind"][first] == Call.CALL
    assert not list(loops(records[: period * (calls.REPEATS - 1)]))
