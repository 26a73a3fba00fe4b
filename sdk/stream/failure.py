"""A device that failed, until it answers again."""

from __future__ import annotations

from dataclasses import dataclass

from sdk.stream.records import Recovered
from sdk.target import Recovery


@dataclass
class Failure:
    """A device that failed, until the first result behind it.

    Attributes:
        time, frame, cause: as of `Event` and `Recovered`.
        attempts: to recover it.
        recovery: the one that succeeded last; None while the device is away.
        states: whether all of them kept the states.
        back: when that was.
    """

    time: float
    frame: int
    cause: str
    attempts: int = 0
    recovery: Recovery | None = None
    states: bool = True
    back: float = 0.0

    def recovered(self, found: Recovery, now: float) -> None:
        """The device is usable again."""
        self.recovery = found
        self.states = self.states and found.states
        self.back = now

    def ended(self, found: Recovery, now: float) -> Recovered:
        """What it took until the first result, which is here now."""
        back, first = self.back - self.time, now - self.time
        return Recovered(
            self.time, self.frame, self.cause, found.kind, self.states, self.attempts, back, first
        )
