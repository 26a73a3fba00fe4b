"""Virtual time: one discrete-event scheduler, counting chip clocks.

The chip runs at 800/7 MHz (114.2857), so that a clock is exactly 8.75 ns; all times inside the emulator
are integers of clocks, and a run is reproducible to the clock. Wall time plays no part.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from sdk.facts.registers import Evidence

HZ = Fraction(800_000_000, 7)
"""Chip clocks per second. Grade: guess, from the family's notes; two published rates agree with it."""


def clocks(seconds: float) -> int:
    """The clocks that a time takes, rounded up: a wait never ends early."""
    return math.ceil(Fraction(seconds).limit_denominator(10**12) * HZ)


def seconds(count: int) -> float:
    """The time that clocks take, in seconds."""
    return float(count / HZ)


def at_rate(size: int, bytes_per_second: int) -> int:
    """Clocks that `size` bytes take at a rate."""
    return clocks(size / bytes_per_second)


@dataclass(frozen=True, slots=True)
class Timing:
    """One constant of the model of time.

    Attributes:
        clocks: chip clocks, rounded up.
        evidence: its grade.
        doc: what it is, in words and in its natural unit.
    """

    clocks: int
    evidence: Evidence
    doc: str


TIDY = 256
"""Cancelled events that may stay in the heap before they are removed, unless they are the minority."""


@dataclass(slots=True)
class Event:
    """Something that will happen at a clock, unless `Scheduler.cancel` cancels it."""

    clock: int
    action: Callable[[], None] | None


class Scheduler:
    """Events in order of time, first come first served within a clock.

    Attributes:
        now: clocks since power-on.
    """

    def __init__(self) -> None:
        self.now = 0
        self._events: list[tuple[int, int, Event]] = []  # a heap: clock, order of arrival
        self._count = 0
        self._cancelled = 0

    def at(self, clock: int, action: Callable[[], None]) -> Event:
        """Call `action` when time reaches `clock`, or next if that has passed."""
        self._count += 1
        event = Event(max(clock, self.now), action)
        heapq.heappush(self._events, (event.clock, self._count, event))
        return event

    def after(self, delay: int, action: Callable[[], None]) -> Event:
        """Call `action` in `delay` clocks."""
        return self.at(self.now + delay, action)

    def cancel(self, event: Event | None) -> None:
        """Cancel an event; harmless if it has happened, or is None."""
        if event is None or event.action is None:
            return
        event.action = None
        self._cancelled += 1  # time-outs far ahead would pile up
        if self._cancelled > max(TIDY, len(self._events) // 2):
            self._events = [entry for entry in self._events if entry[2].action is not None]
            heapq.heapify(self._events)
            self._cancelled = 0

    @property
    def next(self) -> int | None:
        """The clock of the next event, None if none is pending."""
        events = self._events
        while events and events[0][2].action is None:
            heapq.heappop(events)
            self._cancelled -= 1
        return events[0][0] if events else None

    def run_due(self) -> None:
        """Call what is due at `now`, and what that makes due."""
        while (due := self.next) is not None and due <= self.now:
            event = heapq.heappop(self._events)[2]
            action, event.action = event.action, None
            if action is not None:
                action()
