"""The debugger on small programs, without a user: a list holds what to do at each stop."""

import random
from collections.abc import Callable

import pytest

from emulator.board import Board
from emulator.debug import stepping
from emulator.debug.debugger import Access, Cause, Debugger, Stopped
from emulator.debug.frames import backtrace
from emulator.options import Options
from emulator.symbols import Function, Line, Symbols
from emulator.trace import Trace
from emulator.usb.wire import Setup
from firmware.asm2464pd.describe import Space
from firmware.asm2464pd.registers import BLOCKS
from sdk.errors import UsageError
from tests.unit.mcs51_bench import image

FOREVER = "80FE"


class Script:
    """Executes a list: a plan that an entry returns, or None, resumes the CPU, and so does the list's end."""

    def __init__(self, code, bank1=None, symbols=None):
        self.board = Board(None, Options(port=None, fallback=False))
        cpu, machine = self.board.machine.cpu, self.board.machine
        cpu.load(image(code), image({**code, **(bank1 or {})}))
        cpu.reset()
        machine.running = True
        self.board.symbols = symbols or Symbols()
        self.stops: list[tuple[Cause, int, int]] = []  # cause, number of the point, PC
        self.steps: list[Callable[[], object]] = []
        self.debugger = Debugger(self.board, self)

    def stopped(self, stop: Stopped):
        point = stop.breakpoint or stop.watchpoint
        self.stops.append((stop.cause, point.number if point else 0, self.board.machine.cpu.pc))
        return self.steps.pop(0)() if self.steps else None

    def run(self, *steps, clocks=2000):
        """Run it; returns what stopped it, except the start."""
        self.steps = list(steps)
        machine = self.board.machine
        machine.run(machine.clock.now + clocks)
        self.board.close()
        return self.stops[1:]


def stop_at(script, *places):
    return lambda: script.debugger.add_breakpoint(places, "here") and None


def test_banks_have_breakpoints_of_their_own():
    code = {0: "75 96 00 12 90 00 75 96 01 12 90 00" + FOREVER, 0x9000: "00 22"}
    script = Script(code, bank1={0x9000: "00 00 22"})
    found = script.run(stop_at(script, (1, 0x9000)))
    assert found == [(Cause.BREAKPOINT, 1, 0x9000)]
    assert script.board.machine.cpu.bank == 1
    script = Script(code, bank1={0x9000: "00 00 22"})
    assert script.run(stop_at(script, (0, 0x9000), (1, 3))) == [
        (Cause.BREAKPOINT, 1, 3),
        (Cause.BREAKPOINT, 1, 0x9000),
    ], "the common half is the same in both"
    assert script.debugger.breakpoints[1].hits == 2


@pytest.mark.parametrize("first", [Access.READ, Access.WRITE])
@pytest.mark.parametrize(
    ("space", "address", "write", "read"),
    [("iram", 0x30, "75 30 05", "E5 30"), ("xdata", 0x10, "90 00 10 74 05 F0", "90 00 10 E0")],
)
def test_points_on_one_byte_do_not_hide_each_other(first, space, address, write, read):
    """A write that changes nothing does not count for `changed`, but it does for accesses."""
    script = Script({0: f"{write} {write} {read} {FOREVER}"})
    second = {Access.READ: Access.WRITE, Access.WRITE: Access.READ}[first]

    def begin():
        for number, access in ((1, first), (2, second)):
            changed = access is Access.WRITE
            entry = script.debugger.add_watchpoint(space, address, 1, access, "it", changed=changed)
            assert entry.number == number

    found = script.run(begin)
    written, was_read = (2, 1) if first is Access.READ else (1, 2)
    each, last = len(bytes.fromhex(write)), len(bytes.fromhex(read))
    assert found == [(Cause.WATCHPOINT, written, each), (Cause.WATCHPOINT, was_read, 2 * each + last)]


def test_hardware_that_changes_a_window_s_memory_is_seen_and_the_user_is_not():
    script = Script({0: FOREVER})
    bus, clock = script.board.machine.bus, script.board.machine.clock
    memory = next(
        entry for entry in bus.facts.memories if entry.space is Space.XDATA and entry.sram is not None
    )

    def begin():
        script.debugger.add_watchpoint("xdata", memory.address, 2, Access.ACCESS, "it")
        script.debugger.memory.write("xdata", memory.address, b"\7")
        clock.after(50, lambda: None)
        clock.after(100, lambda: bus.store(Space.SRAM, memory.sram + 1, b"\7"))
        clock.after(200, lambda: bus.store(Space.SRAM, memory.sram + 1, b"\7"))
        clock.after(300, lambda: bus.store(Space.SRAM, memory.sram + 2, b"\7"))

    assert script.run(begin) == [(Cause.WATCHPOINT, 1, 0)]
    assert script.debugger.watchpoints[1].value == b"\7\7"


def test_spaces_that_cannot_be_watched_are_refused():
    script = Script({0: FOREVER})
    for space in ("code", "sram", "nowhere"):
        with pytest.raises(UsageError):
            script.debugger.add_watchpoint(space, 0, 1, Access.WRITE, "it")
    with pytest.raises(UsageError):
        script.debugger.add_watchpoint("iram", 0xFF, 2, Access.WRITE, "it")
    script.board.close()


def test_an_interrupt_before_the_start_does_not_hide_it_and_detaching_ends_all():
    script = Script({0: FOREVER})
    script.debugger.interrupt()
    script.debugger.interrupt()
    assert script.debugger.interrupted
    assert script.run() == [(Cause.INTERRUPT, 0, 0)]
    assert script.stops[0] == (Cause.START, 0, 0)

    script = Script({0: FOREVER})
    patience = script.board.usb.pump.patience
    begin = stop_at(script, (0, 0))
    assert script.run(begin, lambda: script.debugger.detach()) == [(Cause.BREAKPOINT, 1, 0)]
    assert script.board.usb.pump.patience < patience == float("inf")


# -- steps: main calls `f`, which calls itself once, while a timer interrupts -----------------------------

RECURSIVE = {
    0: "02 0040",
    0x0B: "0F 75 8A F0 32",  # the handler: INC R7, reload, RETI
    0x40: "75 89 02 75 8C F0 75 8A F0 75 A8 82 D2 8C",  # main, line 1: timer 0 interrupts often
    0x4E: "7A 03 12 0060",  # line 2: f(3)
    0x53: "80 F9",  # line 3
    0x60: "DA 02 80 08",  # f, line 10: the last call returns
    0x64: "12 0060",  # line 11: f itself
    0x67: "7B 60 DB FE",  # line 12: long enough to be interrupted
    0x6B: "22",
    0x6C: "22",
}
NAMES = Symbols(
    functions=(
        Function("tick", 0, 0x0B, 0x10),
        Function("main", 0, 0x40, 0x55),
        Function("f", 0, 0x60, 0x6D),
    ),
    lines=tuple(
        Line(0, address, "it.c", line)
        for address, line in (
            (0x0B, 20),
            (0x40, 1),
            (0x4E, 2),
            (0x53, 3),
            (0x60, 9),
            (0x60, 10),
            (0x64, 11),
            (0x67, 12),
            (0x6C, 13),
        )
    ),
)


def stepper(script, kind):
    if kind == "finish":
        return lambda: stepping.finish(script.debugger)
    if kind in ("next", "step"):
        return lambda: stepping.line(script.debugger, over=kind == "next")
    return lambda: {"stepi": stepping.instruction, "nexti": stepping.next_instruction}[kind](script.debugger)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "steps", "places"),
    [
        (0x4E, ["next", "next"], [0x53, 0x4E]),
        (0x4E, ["step"] * 6, [0x60, 0x64, 0x60, 0x64, 0x60, 0x6C]),
        (0x64, ["next", "finish"], [0x67, 0x53]),
        (0x64, ["step", "finish"], [0x60, 0x67]),
        (0x64, ["nexti"], [0x67]),
        (0x64, ["stepi", "stepi"], [0x60, 0x64]),
        (0x67, ["next"], [0x53]),
        (0x67, ["step"], [0x53]),
    ],
)
def test_steps_pass_over_interrupts_and_stay_in_their_call(start, steps, places):
    script = Script(RECURSIVE, symbols=NAMES)
    once = lambda: script.debugger.add_breakpoint([(0, start)], "here", temporary=True) and None  # noqa: E731
    found = script.run(once, *(stepper(script, kind) for kind in steps), clocks=4000)
    assert [pc for _, _, pc in found[: len(places) + 1]] == [start, *places]
    assert {cause for cause, _, _ in found[1:]} == {Cause.STEP}
    assert script.board.machine.cpu.iram[7] > 0, "interrupts came"


def test_frames_of_a_recursion_in_an_interrupt():
    script = Script(RECURSIVE, symbols=NAMES)
    seen = set()

    def look():
        tick, interrupted, *callers = backtrace(script.board)
        cpu = script.board.machine.cpu
        assert tick.pc == 0x0B
        assert interrupted.pc == cpu.iram[cpu.sp] << 8 | cpu.iram[cpu.sp - 1]
        assert interrupted.interrupted
        assert not any(frame.interrupted or not frame.sure for frame in callers)
        seen.add(tuple(frame.pc for frame in callers))

    script.run(stop_at(script, (0, 0x0B)), *[look] * 90, clocks=4000)
    assert seen == {(0x53,), (0x67, 0x53)}


def test_a_call_of_the_function_is_preferred_to_what_was_pushed():
    """f pushes the address after a call of g."""
    code = {0x40: "12 0060 12 0070", 0x60: "75 30 46 C0 30 75 30 00 C0 30 00", 0: "02 0040"}
    functions = (Function("main", 0, 0x40, 0x46), Function("f", 0, 0x60, 0x70), Function("g", 0, 0x70, 0x71))
    script = Script(code, symbols=Symbols(functions))
    frames = []
    script.run(stop_at(script, (0, 0x6A)), lambda: frames.extend(backtrace(script.board)), clocks=100)
    assert [(frame.pc, frame.sure) for frame in frames] == [(0x6A, True), (0x43, True)]


# -- virtual time ----------------------------------------------------------------------------------------


def outcome(debugged):
    """Everything in a run of our firmware that a debugger might disturb."""
    board, lines = Board.of("firmware"), list[str]()
    stops = list[Cause]()
    if debugged:
        Disturber(board, stops)
    trace = Trace(board.machine.bus, BLOCKS, ("usb",), lines.append)
    board.usb.wait_attached(1)
    board.usb.enumerate()
    data = board.usb.control(Setup(0xC0, 0xE4, 0x9300, 0, 1), b"", timeout=5.0)
    trace.close()
    state = board.machine.cpu.state(), board.machine.clock.now, lines, data, bytes(board.machine.bus.sram)
    board.close()
    return state, set(stops)


class Disturber:
    """Stops wherever it can for a while, and steps at random."""

    def __init__(self, board, stops):
        self.random = random.Random(9)
        self.stops = stops
        self.debugger = Debugger(board, self)
        handler = board.symbols.named("usb_interrupt")
        self.debugger.add_breakpoint([(handler.bank, handler.start)], "usb_interrupt")

    def stopped(self, stop):
        self.stops.append(stop.cause)
        if len(self.stops) == 2:
            self.debugger.add_watchpoint("xdata", 0x9101, 1, Access.ACCESS, "USB_EVENTS")
            self.debugger.add_watchpoint("sfr", 0x93, 1, Access.ACCESS, "DPX")
        if len(self.stops) > 100:
            self.debugger.breakpoints.clear()
            for number in list(self.debugger.watchpoints):
                self.debugger.delete(number)
            return None
        plans = (
            ()
            if stop.cause is Cause.START
            else (
                lambda: stepping.line(self.debugger, over=True),
                lambda: stepping.line(self.debugger, over=False),
                lambda: stepping.next_instruction(self.debugger),
                lambda: stepping.finish(self.debugger),
                lambda: None,
            )
        )
        try:
            return self.random.choice(plans)() if plans else None
        except UsageError:  # no line, or no caller
            return None


def test_a_run_under_the_debugger_is_the_same_to_the_last_clock():
    plain, _ = outcome(debugged=False)
    debugged, stops = outcome(debugged=True)
    assert stops == {Cause.START, Cause.BREAKPOINT, Cause.WATCHPOINT, Cause.STEP}
    assert debugged == plain
