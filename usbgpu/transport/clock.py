"""The time of a device, as its user sees it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds since some moment; all waits and time-outs of a device's user are measured in it."""

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
