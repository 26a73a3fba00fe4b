"""What a stream reports: results, events, recoveries, and every inference that was made.

Times are seconds of the stream's clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from sdk.graph import Array

Status = Literal["ok", "late", "fallback", "dropped"]
"""How a frame ended: answered in time, behind its deadline, or by the fallback; or not answered."""
STATUSES: tuple[Status, ...] = get_args(Status)

State = Literal["starting", "running", "degraded", "recovering", "gone"]
"""Of a stream. Degraded: the device is away or late, and the fallback answers. Gone: the device stayed away
for longer than the stream's patience."""
Notice = Literal["hot", "cool", "idle", "awake", "supply"]
"""What happens beside the changes of state. Hot: heat lowers the rate, or stops it; cool: it is raised again.
Idle: the device rests; awake: its clocks are up again. Supply: it sags, has a fault, or is well again."""
NOTICES: tuple[Notice, ...] = get_args(Notice)

Answerer = Literal["device", "fallback"]


@dataclass(frozen=True)
class Times:
    """Of one frame.

    Attributes:
        due: when it is there to be computed; its latency is counted from then.
        submitted: to the device, the last time if there were several; None if it never was.
        done: when its result arrived, or it was dropped.
    """

    due: float
    submitted: float | None
    done: float


@dataclass(frozen=True)
class Result:
    """How a frame ended.

    Attributes:
        frame: its number, from 0.
        name: of the frame, for messages; "" if its source gives none.
        status: see `Status`.
        outputs: by name, without the next states; None if it was dropped.
        epoch: how often the states of what answered had been reset before; 0 without states.
        descends_from: the frame whose step left the states behind that this one began with; None for reset
            ones, and without states.
        times: of this frame.
        cause: why it is not "ok"; "" if it is.
    """

    frame: int
    name: str
    status: Status
    outputs: Mapping[str, Array] | None
    epoch: int
    descends_from: int | None
    times: Times
    cause: str = ""

    @property
    def latency(self) -> float | None:
        """Seconds from when it was due until it was answered; None if it was dropped."""
        return None if self.outputs is None else self.times.done - self.times.due

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values, without the outputs."""
        latency = self.latency
        return {
            "frame": self.frame,
            "name": self.name,
            "status": self.status,
            "epoch": self.epoch,
            "descends_from": self.descends_from,
            "due": _rounded(self.times.due),
            "submitted": _rounded(self.times.submitted),
            "done": _rounded(self.times.done),
            "latency_ms": None if latency is None else _rounded(1000 * latency),
            "cause": self.cause,
        }


@dataclass(frozen=True)
class Event:
    """A change of a stream's state, or something that happens to its device.

    Attributes:
        time: of the change.
        frame: that it came with, or the first that had not ended then.
        kind: the state from then on, or what happens.
        cause: of it, in words.
        recovered: seconds from the failure until the first result behind it, if the event ends a recovery; or
            that it took to wake the device.
    """

    time: float
    frame: int
    kind: State | Notice
    cause: str
    recovered: float | None = None

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        recovered = None if self.recovered is None else _rounded(1000 * self.recovered)
        return {
            "time": _rounded(self.time),
            "frame": self.frame,
            "kind": self.kind,
            "cause": self.cause,
            "recovered_ms": recovered,
        }


@dataclass(frozen=True)
class Recovered:
    """A recovery that succeeded.

    Attributes:
        time: of the failure.
        frame: the first that had no result when the device failed.
        cause: the error's text.
        kind: "warm" if the device went on with what it had, else "cold".
        states: whether it kept the states; True without any.
        attempts: recoveries that it took.
        back: seconds from the failure until the device was usable again.
        first: seconds from the failure until the first result behind it.
    """

    time: float
    frame: int
    cause: str
    kind: Literal["warm", "cold"]
    states: bool
    attempts: int
    back: float
    first: float

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "time": _rounded(self.time),
            "frame": self.frame,
            "cause": self.cause,
            "kind": self.kind,
            "states": self.states,
            "attempts": self.attempts,
            "back_ms": _rounded(1000 * self.back),
            "first_ms": _rounded(1000 * self.first),
        }


@dataclass(frozen=True)
class Inference:
    """One inference that returned its results, whether they were delivered or not.

    Attributes:
        by: what made it.
        frame: whose it is.
        inputs: without the states.
        epoch, descends_from: as of `Result`.
        outputs: without the next states.
    """

    by: Answerer
    frame: int
    inputs: Mapping[str, Array]
    epoch: int
    descends_from: int | None
    outputs: Mapping[str, Array]


def _rounded(seconds: float | None) -> float | None:
    """To a nanosecond, so that a file of them is readable."""
    return None if seconds is None else round(seconds, 9)
