"""The calls that the core records (calls.c) as slices of a timeline: functions, handlers, idle loops.

A frame is known by SP. A return that finds no frame at its SP went to an address that code had pushed: that
is a jump, as in a bank trampoline. A jump to another function is a tail call, and takes the caller's place.

A firmware waits in loops that call functions, hundreds of thousands of times a second. What repeats without a
change is one slice that says how often: the sequence of events with a period of up to LONGEST, REPEATS times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt

from emulator.mcs51.core import Call, Calls
from emulator.mcs51.flow import VECTORS

LONGEST = 64
"""Events of the longest round of a loop that is found."""
REPEATS = 3
"""Rounds that make a loop."""
NAMED = 4
"""Functions that the slice of a loop names."""


class Slices(Protocol):
    """Where they go: `sdk.chrome_trace.Track`, but with times in clocks."""

    def begin(self, clock: int, name: str, category: str, /) -> None:
        """A slice begins, within those that are open."""

    def end(self, clock: int, /) -> None:
        """The innermost slice ends."""


class CallSlices:
    """Turns records into slices.

    Args:
        slices: takes them.
        name_of: what code at a place is called; a place is an index as of `core.mark`.
        at: where the CPU is.
        clock: now.
    """

    def __init__(self, slices: Slices, name_of: Callable[[int], str], at: int, clock: int) -> None:
        self._slices = slices
        self._name_of = name_of
        self._frames: list[tuple[int, str, bool]] = []  # SP once called, name, whether a vector
        self._period = 2  # of the last loop
        self._enter(clock, -1, name_of(at))

    def take(self, records: Calls) -> None:
        """Take records, in order."""
        records = records[records["kind"] != Call.REGISTER]
        done = 0
        for first, period, rounds in loops(records, self._period):
            self._period = period
            self._each(records[done:first])
            done = first + period * rounds
            self._loop(records[first:done], period, rounds)
        self._each(records[done:])

    def close(self, clock: int) -> None:
        """End what is open."""
        while self._frames:
            self._leave(clock)

    # -- inside -----------------------------------------------------------------------------------------

    def _each(self, records: Calls) -> None:
        columns = (records[name].tolist() for name in ("kind", "clock", "at", "sp"))
        for kind, clock, at, sp in zip(*columns, strict=True):
            if kind == Call.CALL:
                self._enter(clock, sp, self._name_of(at))
            elif kind in (Call.RETURN, Call.RETI):
                self._return(clock, sp, at)
            elif kind == Call.JUMP:
                self._jump(clock, at)
            elif kind == Call.INTERRUPT:
                self._enter(clock, sp, VECTORS.get(at, hex(at)), vector=True)
            elif kind == Call.SKIP:
                self._slices.begin(clock, "spin loop", "idle")
            elif kind == Call.SKIPPED:
                self._slices.end(clock)
            else:
                self.close(clock)
                self._enter(clock, -1, self._name_of(at))

    def _enter(self, clock: int, sp: int, name: str, *, vector: bool = False) -> None:
        self._frames.append((sp, name, vector))
        self._slices.begin(clock, name, "interrupt" if vector else "function")

    def _leave(self, clock: int) -> None:
        self._frames.pop()
        self._slices.end(clock)

    def _return(self, clock: int, sp: int, at: int) -> None:
        if self._frames[-1][0] < sp:
            self._jump(clock, at)
            return
        while len(self._frames) > 1 and self._frames[-1][0] >= sp:
            self._leave(clock)

    def _jump(self, clock: int, at: int) -> None:
        sp, caller, vector = self._frames[-1]
        name = self._name_of(at)
        if vector:
            self._enter(clock, sp, name)
        elif name != caller:
            self._leave(clock)
            self._enter(clock, sp, name)

    def _loop(self, records: Calls, period: int, rounds: int) -> None:
        once = records[:period]
        outermost = once["at"][(once["kind"] == Call.CALL) & (once["sp"] == once["sp"][0])]
        names = list(dict.fromkeys(map(self._name_of, outermost.tolist())))
        shown = ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")
        self._slices.begin(int(records["clock"][0]), f"{rounds:,} x {shown}", "loop")
        self._slices.end(int(records["clock"][-1]))


def loops(records: Calls, likely: int = 2) -> Iterator[tuple[int, int, int]]:
    """Where records repeat: (index of the first, period, rounds), in order; they do not overlap.

    A loop begins with a call, and never leaves the function that it begins in.

    Args:
        records: in order.
        likely: a period to look for first.
    """
    kinds, sps = records["kind"], records["sp"].astype(np.int64)
    keys = records["at"].astype(np.int64) | sps << 17 | kinds.astype(np.int64) << 25
    before = sps - np.where((kinds == Call.CALL) | (kinds == Call.INTERRUPT), 2, 0)
    free = np.ones(len(records), bool)
    found = []
    for tried in dict.fromkeys((likely, *range(2, LONGEST + 1))):
        for start, end in _stretches(keys, tried):
            period = _least(keys[start : start + tried])
            first = int(start + np.argmin(before[start : start + period]))
            rounds = int(end - first) // period
            part = slice(first, first + period * rounds)
            if rounds >= REPEATS and kinds[first] == Call.CALL and free[part].all():
                free[part] = False
                found.append((first, period, rounds))
        if np.count_nonzero(free) < LONGEST:
            break
    return iter(sorted(found))


def _stretches(keys: npt.NDArray[np.int64], period: int) -> Iterator[tuple[int, int]]:
    """(first, end) of where keys repeat with a period often enough to be a loop."""
    breaks = np.flatnonzero(keys[period:] != keys[:-period])
    starts = np.concatenate(([0], breaks + 1))
    ends = np.concatenate((breaks, [max(len(keys) - period, 0)])) + period
    long = ends - starts > period * REPEATS
    return zip(starts[long].tolist(), ends[long].tolist(), strict=True)


def _least(keys: npt.NDArray[np.int64]) -> int:
    """The least period of a round."""
    length = len(keys)
    parts = (part for part in range(2, length) if length % part == 0)
    return next((part for part in parts if np.array_equal(keys[part:], keys[:-part])), length)
