"""Frames as they come: each with its number, and the time at which it is due."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sdk.clock import Clock
from sdk.errors import InvalidInput, TowlineError
from sdk.graph import Array
from sdk.samples import Sample
from sdk.stream.records import Result, Times


@dataclass(eq=False)
class Frame:
    """A frame between its source and its result.

    Attributes:
        number, name, due: as of `Result` and `Times`.
        inputs: by name, without the states.
        submitted: when it was submitted last.
        away: whether the device was away in its time: what happens to it is no fault of the rate.
        stand_in: the fallback's answer, if there is one.
        result: how it ended, once it has.
    """

    number: int
    name: str
    due: float
    inputs: Mapping[str, Array]
    submitted: float | None = None
    away: bool = False
    stand_in: Result | None = None
    result: Result | None = None

    def dropped(self, now: float, cause: str) -> Result:
        """Its result, if nothing answers it."""
        times = Times(self.due, self.submitted, now)
        return Result(self.number, self.name, "dropped", None, 0, None, times, cause)

    def refused(self, problem: InvalidInput) -> InvalidInput:
        """The error of its inputs, with its name."""
        known = f"frame {self.number}" + (f" ({self.name})" if self.name else "")
        return InvalidInput(str(problem), where=known, hint=problem.hint)


class Feed:
    """Takes frames from their source when they are due.

    Args:
        frames: arrays by input, single arrays of a network with one input, or `Sample`s; with an attribute
            `live` that is true, it waits for each frame by itself, as a camera does.
        inputs: names of the inputs without the states.
        first: number of the first frame.
        rate: frames a second; None for as fast as they are answered.

    Attributes:
        live: whether a frame is due when its source gives it.
        rate: None of live ones.
        ended: whether there are no more.
        error: what the source failed with, if it did.
    """

    def __init__(self, frames: Iterable[Any], inputs: Sequence[str], first: int, rate: float | None) -> None:
        self.live = bool(getattr(frames, "live", False))
        self.rate = None if self.live else rate
        self.ended = False
        self.error: Exception | None = None
        self._frames: Iterator[Any] = iter(frames)
        self._inputs = inputs
        self._first = self._next = first
        self._start = 0.0

    def start(self, now: float) -> None:
        """The first frame is due now."""
        self._start = now

    @property
    def due(self) -> float:
        """When the next frame is due, if there is a rate."""
        return self._start + (self._next - self._first) / (self.rate or np.inf)

    def take(self, clock: Clock) -> Frame | None:
        """The next frame; None if there are no more."""
        due = self.due
        try:
            given = next(self._frames, None)
        except Exception as problem:  # the source's own; it is raised behind the results of earlier frames
            given, self.error = None, problem
        if given is None:
            self.ended = True
            return None
        if self.rate is None:
            due = clock.now()
        number = self._next
        self._next += 1
        name, arrays = (given.name, given.feeds) if isinstance(given, Sample) else ("", given)
        if not isinstance(arrays, Mapping):
            # More inputs than one are refused by the session, which knows their names.
            arrays = {self._inputs[0] if self._inputs else "": arrays}
        return Frame(number, name, due, arrays)


def as_towline_error(problem: Exception) -> Exception:
    """What a source failed with; an error of the system becomes one that says so."""
    if isinstance(problem, OSError) and not isinstance(problem, TowlineError):
        return InvalidInput(f"the source of frames failed: {problem}")
    return problem
