"""Breakpoints, watchpoints and steps on a board; what GDB's stub and the monitor have in common.

The debugger is inside the machine: at a stop it asks its front, and no virtual time passes until that has
answered how to go on. What drives the machine (a host that enumerates, a program) waits meanwhile and is not
affected. A step is a generator: it yields where the CPU has to stop next, is resumed there, and returns when
the step is complete (`emulator.debug.stepping`).
"""

from __future__ import annotations

import contextlib
import itertools
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from types import FrameType
from typing import Protocol

from emulator.board import Board
from emulator.debug.memory import Memory
from emulator.mcs51.core import CODE_SIZE, COMMON, WATCH_READ, WATCH_SFR, WATCH_WRITE, Stop, mark
from firmware.asm2464pd.describe import Space
from sdk.errors import TowlineError, UsageError

Place = tuple[int, int]
"""CODE bank and address."""
Plan = Generator[bytearray, None, None]
"""A step: yields tables for `Mcs51.stop_at`."""
WATCHABLE = ("iram", "sfr", "xdata", "phy")
"""Spaces of `emulator.debug.memory` that watchpoints are for."""
_PLANES = ("xdata", "phy")
"""Those of them that are on the bus."""


class Ended(TowlineError):
    """The user ended the session; the run up to then is reported."""

    code = "ended"
    exit_code = 0


class Cause(Enum):
    """Why the CPU is stopped."""

    START = "start"
    BREAKPOINT = "breakpoint"
    WATCHPOINT = "watchpoint"
    STEP = "step"
    INTERRUPT = "interrupt"
    TIME = "time"


class Access(Enum):
    """What a watchpoint watches for."""

    WRITE = "write"
    READ = "read"
    ACCESS = "access"

    @property
    def flags(self) -> int:
        """The same for the core."""
        return {"write": WATCH_WRITE, "read": WATCH_READ}.get(self.value, WATCH_WRITE | WATCH_READ)


@dataclass
class Breakpoint:
    """A place to stop before.

    Attributes:
        number: its name for the user.
        places: (bank, address), of the common half with bank 0.
        what: its description.
        temporary: it is deleted when it is reached.
        hits: how often it was reached.
    """

    number: int
    places: frozenset[Place]
    what: str
    temporary: bool = False
    hits: int = 0


@dataclass
class Watchpoint:
    """Bytes; an access to them stops the CPU after it.

    Attributes:
        number: its name for the user.
        space: of `emulator.debug.memory`: iram, sfr, xdata or phy.
        address: of the first.
        size: in bytes.
        access: what counts.
        what: its description.
        changed: a write counts only if it changes the value.
        value: what they held at the last check.
        hits: how often it stopped.
    """

    number: int
    space: str
    address: int
    size: int
    access: Access
    what: str
    changed: bool
    value: bytes
    hits: int = 0

    def counts(self, space: str, address: int, done: int) -> bool:
        """Whether it watches for that (of `Mcs51.watch`) done to that byte."""
        inside = self.address <= address < self.address + self.size
        return inside and space == self.space and bool(done & self.access.flags)

    def before_and_after(self, before: bytes) -> str:
        """What it held and holds, as bytes in the order of addresses; "" if that is the same."""
        return "" if before == self.value else f"{before.hex(' ')} -> {self.value.hex(' ')}"


@dataclass(frozen=True)
class Stopped:
    """A stop.

    Attributes:
        cause: why.
        breakpoint: the breakpoint reached.
        watchpoint: the watchpoint hit.
        before: what its bytes held earlier.
    """

    cause: Cause
    breakpoint: Breakpoint | None = None
    watchpoint: Watchpoint | None = None
    before: bytes = b""


class Front(Protocol):
    """The side that talks to the user."""

    def stopped(self, stop: Stopped) -> Plan | None:
        """The CPU is stopped. Returns when it is to go on: with a plan for a step, None to run.

        Raises:
            Ended: it is not to go on at all.
        """


@contextlib.contextmanager
def ctrl_c(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Have Ctrl-C call this meanwhile, if this is the main thread; only that one gets signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


class Debugger:
    """A debugger on a board, stopped before the first instruction.

    Args:
        board: not yet running.
        front: asked at every stop.

    Attributes:
        board: as given.
        memory: of the chip.
        breakpoints: by number.
        watchpoints: by number.
        ended: what ended the session, None while it goes on.
    """

    def __init__(self, board: Board, front: Front) -> None:
        self.board = board
        self.memory = Memory(board)
        self.breakpoints: dict[int, Breakpoint] = {}
        self.watchpoints: dict[int, Watchpoint] = {}
        self._front = front
        self._numbers = itertools.count(1)
        self._cpu = board.machine.cpu
        self._plan: Plan | None = None
        self._pauses = deque((Cause.START,))  # requested; several threads append
        self._touched: list[Watchpoint] = []  # since the last check
        self.ended: TowlineError | None = None
        board.machine.debugger = self
        self._patience = board.usb.pump.patience
        board.usb.pump.patience = float("inf")  # the user may take any time

    # -- for the front ----------------------------------------------------------------------------------

    def interrupt(self, cause: Cause = Cause.INTERRUPT) -> None:
        """Stop at the machine's next check; may be called from any thread, and by a signal."""
        if cause not in self._pauses:
            self._pauses.append(cause)

    @property
    def interrupted(self) -> bool:
        """Whether the machine has not checked since the last `interrupt`."""
        return bool(self._pauses)

    def stop_after(self, clocks: int) -> Callable[[], None]:
        """Stop when this much time has passed; returns a function that cancels it."""
        clock = self.board.machine.clock
        event = clock.after(clocks, lambda: self.interrupt(Cause.TIME))
        return lambda: clock.cancel(event)

    def add_breakpoint(self, places: Iterable[Place], what: str, *, temporary: bool = False) -> Breakpoint:
        """Stop before these places from now on."""
        normal = frozenset((bank if address >= COMMON else 0, address) for bank, address in places)
        found = Breakpoint(next(self._numbers), normal, what, temporary)
        self.breakpoints[found.number] = found
        return found

    def add_watchpoint(
        self, space: str, address: int, size: int, access: Access, what: str, *, changed: bool = False
    ) -> Watchpoint:
        """Stop after an access of these bytes from now on.

        Raises:
            UsageError: there are no such bytes, or their space cannot be watched.
        """
        if space not in WATCHABLE:
            raise UsageError(f"{space} cannot be watched", hint=f"{', '.join(WATCHABLE)} can")
        value = self.memory.read(space, address, size)
        found = Watchpoint(next(self._numbers), space, address, size, access, what, changed, value)
        if space in _PLANES:
            bus = self.board.machine.bus
            if self not in bus.observers:
                bus.observers.append(self)
            for place in range(address, address + size):
                bus.watch(Space(space), place)
        self.watchpoints[found.number] = found
        self._set_watches()
        return found

    def delete(self, number: int) -> None:
        """Delete a breakpoint or watchpoint; KeyError if there is none of that number."""
        if self.breakpoints.pop(number, None) is None:
            del self.watchpoints[number]
            self._set_watches()

    def resume(self, plan: Plan | None) -> None:
        """Follow this plan when the machine is run again; for a front that was not asked at a stop."""
        self._end_plan()
        self._start(plan)

    def end(self, reason: TowlineError) -> None:
        """End the session: the machine does not go on, and any attempt to run it raises this."""
        self.ended = reason

    def detach(self) -> None:
        """Let everything run as without a debugger."""
        self.breakpoints.clear()
        self.watchpoints.clear()
        self._plan = None
        self._pauses.clear()
        self._touched.clear()
        self._cpu.stop_at(None)
        self._cpu.watch({})
        if self in self.board.machine.bus.observers:
            self.board.machine.bus.observers.remove(self)
        self.board.machine.debugger = None
        self.board.usb.pump.patience = self._patience

    # -- machine.Debugger -------------------------------------------------------------------------------

    def before(self) -> None:
        """The machine is about to go on: between two instructions."""
        if self.ended is not None:
            raise self.ended
        touched, self._touched = self._touched, []
        if self._hit(touched):
            return
        while self._pauses:
            self._ask(Stopped(self._pauses.popleft()))

    def stopped(self, stop: Stop) -> None:
        """The core has reached a mark, or accessed a watched byte."""
        if stop is Stop.WATCHED:
            hits = [
                (*(("sfr", place - WATCH_SFR) if place >= WATCH_SFR else ("iram", place)), kinds)
                for place, kinds in self._cpu.take_hits().items()
            ]
            self._hit(
                [
                    watchpoint
                    for watchpoint in self.watchpoints.values()
                    if any(watchpoint.counts(space, address, kinds) for space, address, kinds in hits)
                ]
            )
            return
        for breakpoint in list(self.breakpoints.values()):
            if self.here in breakpoint.places:
                breakpoint.hits += 1
                if breakpoint.temporary:
                    self.delete(breakpoint.number)
                self._ask(Stopped(Cause.BREAKPOINT, breakpoint))
                return
        self._go_on()

    # -- bus.Observer -----------------------------------------------------------------------------------

    def accessed(self, kind: str, space: Space, address: int, value: int) -> None:
        """The CPU has accessed a byte that notifies observers."""
        done = WATCH_READ if kind == "R" else WATCH_WRITE
        self._touched += [
            entry for entry in self.watchpoints.values() if entry.counts(space.value, address, done)
        ]

    def changed(self, space: Space, address: int, data: bytes) -> None:
        """A block has changed storage, perhaps that of a window: bytes that differ count as written."""
        self._touched += [
            entry
            for entry in self.watchpoints.values()
            if entry.access is not Access.READ
            and entry.space in _PLANES
            and self._value(entry) != entry.value
        ]

    def line(self, number: int, level: bool) -> None:
        """Ignored: interrupt lines are not watched."""

    # -- inside -----------------------------------------------------------------------------------------

    @property
    def here(self) -> Place:
        """Where the CPU is; the common half counts as bank 0."""
        return (self._cpu.bank if self._cpu.pc >= COMMON else 0), self._cpu.pc

    def _value(self, watchpoint: Watchpoint) -> bytes:
        return self.memory.read(watchpoint.space, watchpoint.address, watchpoint.size)

    def _hit(self, touched: Iterable[Watchpoint]) -> bool:
        """Stop for the first of some watchpoints for which it counts; returns whether there is one."""
        for watchpoint in touched:
            before, watchpoint.value = watchpoint.value, self._value(watchpoint)
            if not watchpoint.changed or watchpoint.value != before:
                watchpoint.hits += 1
                self._ask(Stopped(Cause.WATCHPOINT, watchpoint=watchpoint, before=before))
                return True
        return False

    def _ask(self, stop: Stopped) -> None:
        self._end_plan()
        plan = self._front.stopped(stop)
        if self.board.machine.debugger is self:  # still attached
            self._start(plan)

    def _start(self, plan: Plan | None) -> None:
        self._touched.clear()  # accesses by the user
        for watchpoint in self.watchpoints.values():
            watchpoint.value = self._value(watchpoint)
        self._plan = plan
        if plan is not None:
            self._go_on()
        else:
            self._set_marks(None)
        self._cpu.pass_mark()

    def _go_on(self) -> None:
        """Have the step report where to stop next; it may be complete."""
        if self._plan is None:
            return
        try:
            marks = next(self._plan)
        except StopIteration:
            self._plan = None
            self._ask(Stopped(Cause.STEP))
        else:
            self._set_marks(marks)

    def _end_plan(self) -> None:
        plan, self._plan = self._plan, None
        if plan is not None:
            plan.close()

    def _set_marks(self, marks: bytearray | None) -> None:
        places = [place for breakpoint in self.breakpoints.values() for place in breakpoint.places]
        if marks is None and not places:
            self._cpu.stop_at(None)
            return
        table = marks if marks is not None else bytearray(2 * CODE_SIZE)
        for bank, address in places:
            table[mark(bank, address)] = 1
        self._cpu.stop_at(table)

    def _set_watches(self) -> None:
        places: dict[int, int] = {}
        for watchpoint in self.watchpoints.values():
            if watchpoint.space not in _PLANES:
                base = WATCH_SFR if watchpoint.space == "sfr" else 0
                for address in range(watchpoint.address, watchpoint.address + watchpoint.size):
                    places[base + address] = places.get(base + address, 0) | watchpoint.access.flags
        self._cpu.watch(places)
