"""Skipping of spin loops: with it and without it a run is the same, to the clock and to the bit."""

import random

import pytest

from emulator import native
from emulator.core.bus import NATIVE, READ_CALLS, WRITE_CLEARS
from emulator.mcs51.core import Stop
from emulator.mcs51.opcodes import OPCODES, Flow
from firmware.asm2464pd.registers import tlp
from tests.unit.mcs51_bench import SP, Bench

SHARE = 0.9
"""Of the clocks that a pure spin must skip."""

LOOPS = {
    "SJMP $": "80FE",
    "poll a bit of IRAM": "3000FD",
    "poll MOVX": "90CC11 E0 30E1FC 80FE",
    "poll MOVX with a call": "120020 60FB 80FE",
    "poll MOVX and store what is there already": "90CC11 E0 A3 F0 900000 F0 80F4",
    "poll TCON": "308DFD",
}
COMMON = {0x20: "90CC11 E0 5402 22"}


def pair(code, **options):
    return Bench(code, skip=True, **options), Bench(code, skip=False, **options)


def compare(one, other, until):
    """Run both to a clock, through all stops, and compare."""
    for bench in (one, other):
        while bench.cpu.clock < until:
            stop = bench.cpu.run(until)
            if stop is Stop.READ:
                bench.cpu.finish_read(0)
            else:
                assert stop is Stop.UNTIL
    assert one.cpu.state() == other.cpu.state()
    assert one.xdata.storage == other.xdata.storage
    assert other.cpu.skipped == 0


@pytest.mark.parametrize("name", LOOPS)
def test_a_proven_loop_is_skipped_exactly(name):
    one, other = pair({0: LOOPS[name], **COMMON})
    for until in (50_000, 50_001, 50_007, 123_456, 400_000):
        compare(one, other, until)
    assert one.cpu.skipped > SHARE * one.cpu.clock - 20_000


NOT_FIXED = {
    "a counter in IRAM": "0530 80FC",
    "a counter in XDATA": "900100 E0 04 F0 80FB",
    "a delay loop": "7A00 7B00 DBFE DAFC 0530 80F6",
    "a FIFO that is read": "90C000 E0 80FD",
    "write 1 to clear": "90B296 7407 F0 80FD",
    "the timer is read": "D28C E58A 80FC",
    "the interrupt enable is written": "75A800 80FB",
    "the DPTR runs": "A3 80FD",
}


@pytest.mark.parametrize("name", NOT_FIXED)
def test_a_loop_that_does_something_is_not_skipped(name):
    one, other = pair(NOT_FIXED[name])
    for bench in (one, other):
        bench.xdata.flags[0xC000] = READ_CALLS
        bench.xdata.flags[0xB296] = WRITE_CLEARS
    compare(one, other, 60_000)
    assert one.cpu.skipped == 0


def test_an_event_ends_the_loop_at_the_same_clock():
    """What is polled changes between two runs, as a block changes a register."""
    one, other = pair("90CC11 E0 30E1FC E4 F0 0530 80F6")
    for round_ in range(1, 6):
        for bench in (one, other):
            bench.xdata[0xCC11] = 2
        compare(one, other, 10_000 * round_)
    assert one.cpu.iram[0x30] == 5
    assert one.cpu.skipped > one.cpu.clock // 2


def test_a_timer_interrupt_ends_the_loop_at_the_same_clock():
    one, other = pair({0: "020040", 0x0B: "0530 32", 0x40: "758901 D28C 75A882 80FE"})
    compare(one, other, 12 * 0x10000 * 5 + 500)
    assert one.cpu.iram[0x30] == 5
    assert one.cpu.skipped > SHARE * one.cpu.clock


def test_a_line_ends_the_loop_at_the_same_clock():
    one, other = pair({0: "020040", 0x03: "0530 32", 0x40: "75A881 80FE"})
    for until, level in ((30_001, True), (30_050, False), (90_000, True), (90_020, False)):
        compare(one, other, until)
        for bench in (one, other):
            bench.cpu.line(0, level)
    compare(one, other, 120_000)
    assert one.cpu.iram[0x30] > 2
    assert one.cpu.skipped > SHARE * one.cpu.clock - 30_000


def test_the_native_device_ends_the_loop_at_the_same_clock():
    """A PCIe read that takes 30,000 clocks is launched, and its completion polled for."""
    ffi, library = native.library()
    one, other = pair("90B254 740F F0 90B296 E0 30E1FC 0530 80FE")
    engines = []
    for bench in (one, other):
        engine, memory = ffi.new("struct tlp *"), ffi.new("uint8_t[]", 16)
        page = ffi.from_buffer("uint8_t[]", bench.xdata.storage, require_writable=True) + 0xB200
        library.tlp_init(engine, page, 30_000)
        engine.ranges[0].size, engine.ranges[0].memory = len(memory), memory
        engine.range_count = engine.up = 1
        bench.xdata[tlp.TLP_LENGTH.address] = 1
        bench.xdata.flags[tlp.TLP_LAUNCH.address] = NATIVE
        bench.cpu.attach_device(ffi.addressof(engine, "device"))
        engines.append((engine, memory))
    for until in (29_000, 30_000, 30_010, 30_020, 30_030, 30_040, 60_000):
        compare(one, other, until)
    assert [engine.served for engine, _ in engines] == [1, 1]
    assert one.cpu.iram[0x30] == 1
    assert one.cpu.skipped > SHARE * one.cpu.clock - 5_000


def test_the_profile_counts_skipped_clocks():
    one, other = pair("90CC11 E0 30E1FC 80FE")
    profiles = [bench.cpu.profile() for bench in (one, other)]
    compare(one, other, 100_000)
    assert one.cpu.skipped > 0
    assert profiles[0] == profiles[1]
    assert sum(profiles[0]) == one.cpu.clock


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_random_code_runs_alike(seed):
    """Random code ends in all kinds of loops; lines and registers change under it."""
    rng = random.Random(seed)
    legal = [opcode for opcode in OPCODES if opcode.flow is not Flow.ILLEGAL]
    code = bytearray()
    while len(code) < 0x10000:
        opcode = rng.choice(legal)
        code += bytes([opcode.code]) + rng.randbytes(opcode.length - 1)
    code = bytes(value if value != 0xA5 else 0 for value in code[:0x10000])
    one, other = pair({0: code.hex()})
    for until in range(20_000, 200_001, 20_000):
        for bench in (one, other):
            while bench.cpu.clock < until:
                bench.cpu.run(until)
            bench.cpu.line(until // 20_000 % 2, until % 3 == 0)
        assert one.cpu.state() == other.cpu.state()
    assert one.xdata.storage == other.xdata.storage


def test_a_loop_that_the_stack_guard_will_refuse_is_not_skipped():
    """The first round sets where the stack begins; the second one pops below it."""
    one, other = pair("D0E0 758130 80F9")
    for bench in (one, other):
        bench.cpu.guard("stack")
        bench.cpu.clock = 2000  # a spin loop is looked for at once
        bench.cpu.set_sfr(SP, 0x30)
        assert bench.cpu.run(100_000) is Stop.STACK
    assert one.cpu.state() == other.cpu.state()
