"""Instrumentation: profile, coverage, breakpoints, and the guards against a firmware's mistakes."""

import pytest

from emulator.core.bus import UNINITIALISED
from emulator.mcs51.core import CODE_SIZE, Stop
from sdk.errors import UsageError
from tests.unit.mcs51_bench import Bench

LONG = 1 << 40


def test_profile_counts_clocks_by_instruction():
    bench = Bench("7F03 DFFE A5")
    profile = bench.cpu.profile()
    assert bench.cpu.run(LONG) is Stop.ILLEGAL
    assert (profile[0], profile[2], sum(profile)) == (2, 3 * 4, bench.cpu.clock)


def test_profile_distinguishes_the_code_banks():
    bench = Bench({0: "759601 028000", 0x8000: "A5"}, bank1={0x8000: "84 A5"})
    profile = bench.cpu.profile()
    assert bench.cpu.run(LONG) is Stop.ILLEGAL
    assert (profile[0x8000], profile[CODE_SIZE + 0x8000], profile[0], profile[3]) == (0, 6, 3, 4)


def test_coverage_of_instructions_and_branches():
    bench = Bench("6002 4000 7000 7F02 DFFE A5")
    covered = bench.cpu.coverage()
    assert bench.cpu.run(LONG) is Stop.ILLEGAL
    assert covered[0] == 1 | 2  # JZ: taken
    assert covered[2] == 0
    assert covered[4] == 1 | 4  # JNZ: not taken
    assert covered[6] == 1
    assert covered[8] == 1 | 2 | 4  # DJNZ: both
    assert covered[10] == 0


def test_a_breakpoint_stops_before_the_instruction_and_once():
    bench = Bench("04 04 80FC")
    bench.cpu.breakpoints({(0, 1)})
    for rounds in range(1, 4):
        assert bench.cpu.run(LONG) is Stop.BREAKPOINT
        assert (bench.cpu.stop_pc, bench.cpu.pc, bench.cpu.acc) == (1, 1, 2 * rounds - 1)
    bench.cpu.breakpoints(())
    assert bench.cpu.run(bench.cpu.clock + 100) is Stop.UNTIL


def test_breakpoints_know_banks():
    bench = Bench({0: "759601 028000", 0x8000: "A5"}, bank1={0x8000: "84 A5"})
    bench.cpu.breakpoints({(0, 0x8000)})
    assert bench.cpu.run(LONG) is Stop.ILLEGAL
    bench.cpu.reset()
    bench.cpu.breakpoints({(1, 0x8000), (1, 0x0003)})
    assert bench.cpu.run(LONG) is Stop.BREAKPOINT
    assert bench.cpu.stop_pc == 0x0003  # common code, whatever the bank
    assert bench.cpu.run(LONG) is Stop.BREAKPOINT
    assert bench.cpu.stop_pc == 0x8000


@pytest.mark.parametrize(
    ("code", "where"),
    [
        ({0: "7581FF C0E0"}, 3),
        ({0: "7581FE 120100", 0x100: "00"}, 3),
        ({0: "7581FF 1110", 0x10: "00"}, 3),
        ({0: "758140 C0E0 D0E0 D0E0"}, 7),
        ({0: "758140 22"}, 3),
        ({0: "D0E0"}, 0),
    ],
    ids=[
        "push wraps",
        "call wraps",
        "short call wraps",
        "pop too many",
        "return too many",
        "pop after reset",
    ],
)
def test_guard_of_the_stack(code, where):
    bench = Bench({**code, 0x200: "00"})
    bench.cpu.guard("stack")
    assert bench.cpu.run(LONG) is Stop.STACK
    assert bench.cpu.stop_pc == where


def test_guard_of_the_stack_passes_correct_code():
    bench = Bench({0: "758172 120010 C0E0 D0E0 80FE", 0x10: "C0D0 E581 2404 F581 E581 24FC F581 D0D0 22"})
    bench.cpu.guard("stack")
    assert bench.cpu.run(1000) is Stop.UNTIL


def test_guard_of_the_stack_sees_an_interrupt_wrap():
    bench = Bench({0: "020040", 0x40: "7581FE 75A881 80FE"})
    bench.cpu.guard("stack")
    bench.cpu.line(0, True)
    assert bench.cpu.run(LONG) is Stop.STACK


def test_guard_of_erased_code():
    bench = Bench()
    bench.cpu.load(bytes.fromhex("00 00 8005"))
    bench.cpu.guard("erased")
    assert bench.cpu.run(LONG) is Stop.ERASED
    assert bench.cpu.stop_pc == 9
    bench.cpu.load(bytes.fromhex("00 00 8005"), loaded=b"\1" * 2 * CODE_SIZE)
    bench.cpu.reset()
    assert bench.cpu.run(bench.cpu.clock + 100) is Stop.UNTIL


@pytest.mark.parametrize(
    ("handler", "clobbered"),
    [("04", "ACC"), ("75F001", "B"), ("D3", "PSW"), ("A3", "DPL"), ("758301", "DPH"), ("759301", "DPX"),
     ("0F", "R7"), ("75D008 7F01 75D000", None), ("C0E0 C0D0 04 D3 D0D0 D0E0", None), ("758130", "SP")],
)  # fmt: skip
def test_guard_of_interrupted_registers(handler, clobbered):
    bench = Bench({0: "020040", 0x03: "020060", 0x60: handler + "C288 D288 32", 0x40: "75A881 80FE"})
    bench.cpu.guard("interrupt")
    bench.cpu.line(0, True)
    stop = bench.cpu.run(500)
    if clobbered is None:
        assert stop is Stop.UNTIL
    else:
        assert stop is Stop.CLOBBERED
        assert bench.cpu.clobbered == clobbered


def test_guard_of_reads_of_unwritten_memory():
    bench = Bench("900100 7411 F0 E0 900200 E0 80FE")
    bench.xdata.flags[0x0100] = bench.xdata.flags[0x0200] = UNINITIALISED
    bench.xdata[0x0200] = 0x77
    assert bench.cpu.run(200) is Stop.UNTIL  # the guard is off
    bench.cpu.guard("uninit")
    bench.cpu.reset()
    assert bench.cpu.run(LONG) is Stop.UNINIT
    assert (bench.cpu.address, bench.cpu.stop_pc, bench.cpu.acc) == (0x0200, 10, 0x77)


def test_an_unknown_guard_is_refused():
    with pytest.raises(UsageError, match="uninitialised"):
        Bench().cpu.guard("uninitialised")


def test_backtrace_names_return_addresses():
    bench = Bench({0: "120100", 0x100: "C0E0 3111", 0x111: "C0D0 80FE"})
    bench.cpu.run(200)
    assert bench.cpu.backtrace() == [0x0104, 0x0003]


def test_instrumentation_changes_nothing():
    code = {0: "020040", 0x03: "C0E0 0530 D0E0 32", 0x40: "75A881 758921 D28C D28E 0541 E541 900100 F0 80F7"}
    plain, watched = Bench(code), Bench(code)
    watched.cpu.profile()
    watched.cpu.coverage()
    watched.cpu.guard("stack", "erased", "interrupt", "uninit")
    for until in range(1000, 20_000, 1000):
        for bench in (plain, watched):
            assert bench.cpu.run(until) is Stop.UNTIL
            bench.cpu.line(0, until % 3000 == 0)
        assert plain.cpu.state() == watched.cpu.state()
