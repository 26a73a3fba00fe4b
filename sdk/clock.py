"""Time, as the user of a device sees it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds since some moment; all waits and time-outs of the device's user are measured in it."""

    def now(self) -> float:
        """Seconds so far."""

    def sleep(self, seconds: float) -> None:
        """Let that many pass."""


class WallClock:
    """The time of a real device."""

    def now(self) -> float:
        """Seconds of a clock that is never set."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


class ContinuingClock:
    """One time across several clocks: whichever is followed, it never goes back."""

    def __init__(self) -> None:
        self._followed: tuple[Clock | None, float] = None, 0.0  # replaced whole: another thread may read it

    def follow(self, clock: Clock | None) -> None:
        """Go on as this clock does; without one, time passes in `sleep` alone, and nothing waits."""
        self._followed = clock, self.now() - (0.0 if clock is None else clock.now())

    def now(self) -> float:
        """Seconds since the first clock was followed."""
        clock, ahead = self._followed
        return ahead if clock is None else ahead + clock.now()

    def of(self, moment: float) -> float:
        """What it says when the followed clock says `moment`."""
        return self._followed[1] + moment

    def sleep(self, seconds: float) -> None:
        """Let that many pass."""
        clock, ahead = self._followed
        if clock is None:
            self._followed = None, ahead + seconds
        else:
            clock.sleep(seconds)
