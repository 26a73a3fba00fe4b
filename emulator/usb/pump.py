"""What lets virtual time pass: one thread at a time, for as long as any waits.

Any number of threads submit transfers to an emulated device. The first that waits takes the role of the
driver and advances the world until what it waits for has happened; the others sleep on an event of their
own. What threads want done to the emulated side (begin a transfer, cancel one) goes through an inbox that
the driver empties between steps; with no driver about, the thread that posts does the work itself. A driver
that has what it wanted hands the role to one that still waits. So the emulated side runs in one thread of
execution at a time, and with one submitting thread a run is the same to the clock, however fast it ran.

Wall time plays a part in three places, none of which changes the clocks of a single thread: a watchdog over
transfers that nothing would ever end; Ctrl-C, which is held back until the step under way has ended, so that
no event of the scheduler gets lost; and a limit on how fast idle time passes while another thread that uses
the device is busy elsewhere, and would otherwise find its time-outs over before it had begun.
"""

from __future__ import annotations

import contextlib
import functools
import math
import signal
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import FrameType
from typing import Protocol

from emulator.core.clock import HZ, Scheduler, clocks, seconds
from sdk.errors import DeviceFailed, InternalError, UsageError

SLICE = clocks(1e-3)
"""The longest step: the driver looks at its inbox and at Ctrl-C at least once per virtual millisecond."""
PATIENCE = 60.0
"""Wall seconds without any progress after which the watchdog ends a wait."""
HASTE = 10
"""How much faster than wall time virtual time may pass while no transfer moves and other users may act."""
NAP = 1e-3
"""Wall seconds that the driver waits at a time, to keep to that."""
INTERRUPT_POLL = 0.1
"""Wall seconds after which a main thread that is not the driver looks for Ctrl-C."""

SECONDS_PER_CLOCK = float(1 / HZ)

Action = Callable[[], None]


@functools.lru_cache(maxsize=256)
def ticks(duration: float) -> int:
    """`clocks`, remembered: callers use the same few time-outs over and over.

    Raises:
        UsageError: the duration is negative, infinite or not a number.
    """
    if not 0 <= duration < math.inf:
        raise UsageError(f"a wait of {duration:g} s is not possible: give a finite time of 0 or more")
    return clocks(duration)


class World(Protocol):
    """What can let virtual time pass: a machine."""

    @property
    def clock(self) -> Scheduler:
        """Virtual time."""

    @property
    def lock(self) -> AbstractContextManager[object]:
        """Held around each step and each action; re-entrant."""

    def step(self, until: int) -> None:
        """Advance to clock `until` at most, and return as soon as an event has happened.

        The pump checks between steps whether a wait is over; a step that ran on would let time pass
        that no thread waits for.
        """


class Waiter:
    """A thread for which time passes until `wake` is called.

    Args:
        bounded: an event of the scheduler will call `wake` at the latest, so that passing time is progress.
        shared: what it waits for may depend on what other threads of the program do.
    """

    __slots__ = ("bounded", "done", "error", "event", "leads", "left", "shared", "thread")

    def __init__(self, *, bounded: bool, shared: bool = False) -> None:
        self.bounded = bounded
        self.shared = shared
        self.done = False
        self.error: Exception | None = None
        self.event = threading.Event()
        self.leads = False
        self.left = threading.Event()
        self.thread = threading.get_ident()

    def wake(self, error: Exception | None = None) -> None:
        """End the wait; with an error, which the waiting thread then raises."""
        self.error = error
        self.done = True
        self.event.set()


class Pump:
    """Virtual time for several threads; a `wire.Clock`.

    Args:
        world: what it advances.
        patience: wall seconds without progress after which a wait fails.

    Attributes:
        scheduler: the world's, for use in the driver's thread only.
        progress: counts what transfers achieve; a moved packet increments it.
        patience: as given.
    """

    def __init__(self, world: World, patience: float = PATIENCE) -> None:
        self.scheduler = world.clock
        self.progress = 0
        self._world = world
        self.patience = patience
        self._mutex = threading.Lock()  # over what follows
        self._inbox: deque[Action] = deque()
        self._waiting: list[Waiter] = []
        self._users: weakref.WeakSet[threading.Thread] = weakref.WeakSet()  # have posted an action
        self._driver: int | None = None  # the thread that has the role
        self._stands_until = 0

    def now(self) -> float:
        """Seconds of virtual time since power-on."""
        return seconds(self.scheduler.now)

    def sleep(self, duration: float) -> None:
        """Let `duration` seconds of virtual time pass.

        Raises:
            UsageError: the duration is negative, infinite or not a number.
        """
        delay = ticks(duration)
        waiter = Waiter(bounded=True)
        self.run(lambda: self._wake_later(waiter, delay), waiter)

    def stand_still(self, clock: int) -> None:
        """No wait ends before that clock, as if the program had been stopped; in the world's thread."""
        self._stands_until = max(self._stands_until, clock)

    def post(self, action: Action) -> None:
        """Run an action in the world's thread of execution, at the present clock.

        Without a driver it has run on return, and what it raises is raised here.
        """
        with _interrupts_held():
            with self._mutex:
                self._inbox.append(action)
                self._users.add(threading.current_thread())
                if self._driver is not None:
                    return
                self._driver = threading.get_ident()
            try:
                self._empty_inbox()
            finally:
                self._leave()

    def run(self, begin: Action, waiter: Waiter) -> None:
        """Do `begin` in the world's thread of execution, then let time pass until the waiter is woken.

        Raises:
            DeviceFailed: the watchdog's.
            KeyboardInterrupt: Ctrl-C; this wait ends, others go on.
            Exception: what the world raised, in this thread or in the driver's.
        """
        if self._driver == waiter.thread:
            raise InternalError("a callback of the emulated device waits for the device")
        with _interrupts_held() as interrupt:
            with self._mutex:
                self._inbox.append(begin)
                self._waiting.append(waiter)
                self._users.add(threading.current_thread())
                if self._driver is None:
                    self._driver = waiter.thread
                    waiter.leads = True
            try:
                self._wait(waiter, interrupt)
            finally:
                with self._mutex:
                    self._waiting.remove(waiter)
                waiter.left.set()
                if waiter.leads:
                    self._leave()
        if waiter.error is not None:
            raise waiter.error

    def _wake_later(self, waiter: Waiter, delay: int) -> None:
        self.scheduler.after(delay, waiter.wake)

    def _wait(self, waiter: Waiter, interrupt: Action | None) -> None:
        while not self._ended(waiter):
            if waiter.leads:
                self._drive(waiter, interrupt)
            elif waiter.done:
                time.sleep(NAP)  # another thread lets the time pass for which this one stands still
            elif interrupt is None:
                waiter.event.wait()
            else:
                waiter.event.wait(INTERRUPT_POLL)
                interrupt()

    def _ended(self, waiter: Waiter) -> bool:
        return waiter.done and (waiter.error is not None or self.scheduler.now >= self._stands_until)

    def _drive(self, waiter: Waiter, interrupt: Action | None) -> None:
        """Advance the world until the waiter is woken."""
        clock, step, lock, inbox = self.scheduler, self._world.step, self._world.lock, self._inbox
        mark, since = -1, 0.0  # the progress that the watchdog saw last, and when
        moved, quiet, began = -1, 0, 0.0  # transfers' progress, and the clock and time of the last of it
        try:
            while True:
                if inbox:
                    self._empty_inbox()
                if self._ended(waiter):
                    return
                if interrupt is not None:
                    interrupt()
                now = time.monotonic()
                if self.progress != moved:
                    moved, quiet, began = self.progress, clock.now, now
                progress = clock.now if waiter.bounded else moved
                if progress != mark:
                    mark, since = progress, now
                elif now - since > self.patience:
                    raise self._stuck(waiter)
                due = began + (clock.now - quiet) * (SECONDS_PER_CLOCK / HASTE)
                if due > now and self._others_may_act():
                    time.sleep(min(due - now, NAP))
                    continue
                with lock:
                    step(clock.now + SLICE)
                if len(self._waiting) > 1:
                    self._let_leave(waiter)
        except Exception as error:
            with self._mutex:
                for other in self._waiting:
                    if other is not waiter and not other.done:
                        other.wake(error)
            raise

    def _others_may_act(self) -> bool:
        """Whether a wait may depend on a thread that uses this pump and does not wait at the moment."""
        with self._mutex:
            if not any(waiter.shared for waiter in self._waiting):
                return False
            return sum(thread.is_alive() for thread in self._users) > len(self._waiting)

    def _empty_inbox(self) -> None:
        """For the driver only."""
        with self._world.lock:
            while self._inbox:
                self._inbox.popleft()()

    def _let_leave(self, driver: Waiter) -> None:
        """Let threads go whose wait is over, before time goes on.

        Each has the interpreter to itself then, and mostly submits its next transfer before this thread runs
        again: no virtual time passes between the two just because the machine has few cores.
        """
        for other in tuple(self._waiting):
            if other is not driver and self._ended(other):
                other.left.wait()

    def _leave(self) -> None:
        """Give the role to a thread that waits, if there is one; never with something left in the inbox."""
        failure: Exception | None = None
        while not self._handed_over():
            try:
                self._empty_inbox()
            except Exception as error:  # the rest of the inbox still has to be done
                failure = failure or error
        if failure is not None:
            raise failure

    def _handed_over(self) -> bool:
        with self._mutex:
            for other in self._waiting:
                if not self._ended(other):
                    self._driver = other.thread
                    other.leads = True
                    other.event.set()
                    return True
            if self._inbox:
                return False
            self._driver = None
            return True

    def _stuck(self, waiter: Waiter) -> DeviceFailed:
        where = f"{seconds(self.scheduler.now):.6f} s after power-on"
        if waiter.bounded:
            return DeviceFailed(
                f"virtual time has stood still for {self.patience:g} s",
                where=where,
                hint="a block of the chip schedules events without end at one clock: please report it",
            )
        return DeviceFailed(
            f"no USB transfer has moved for {self.patience:g} s, and the one waited for has no time-out",
            where=where,
            hint="give the transfer a time-out, or see with --trace what the firmware waits for",
        )


@contextlib.contextmanager
def _interrupts_held() -> Iterator[Action | None]:
    """Hold Ctrl-C back; yields a function that lets it through, None outside the main thread.

    What is still held back at the end is let through there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield None
        return
    previous = signal.getsignal(signal.SIGINT)
    if not callable(previous):  # ignored, or the process simply ends
        yield None
        return
    held: list[tuple[int, FrameType | None]] = []

    def let_through() -> None:
        if held:
            previous(*held.pop())

    signal.signal(signal.SIGINT, lambda number, frame: held.append((number, frame)))
    try:
        yield let_through
    finally:
        signal.signal(signal.SIGINT, previous)
        let_through()
