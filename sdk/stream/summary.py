"""What a stream did, in figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sdk.stream.records import STATUSES, Event, Recovered, Result, Status

PERCENTILES = {"p50": 50, "p95": 95, "p99": 99, "max": 100}


class Tally:
    """Counts what a stream does.

    Attributes:
        taken: frames so far.
        last: when the last answer came.
    """

    def __init__(self) -> None:
        self.taken = 0
        self.last = float("-inf")
        self._counts: dict[Status, int] = dict.fromkeys(STATUSES, 0)
        self._missed = 0
        self._latencies: list[float] = []
        self._answers, self._busy = 0, 0.0
        self._begun: float | None = None

    def take(self, due: float) -> None:
        """A frame was taken."""
        self.taken += 1
        if self._begun is None:
            self._begun = due

    def answer(self, submitted: float, now: float) -> None:
        """The device answered."""
        self._busy += now - max(self.last, submitted)
        self._answers += 1
        self.last = now

    def end(self, result: Result, excused: bool) -> None:
        """A frame ended; excused is one in whose time the device was away."""
        self._counts[result.status] += 1
        self._missed += result.status != "ok" and not excused
        if result.latency is not None:
            self._latencies.append(result.latency)
            self.last = max(self.last, result.times.done)

    @property
    def counts(self) -> dict[Status, int]:
        """Frames that ended, by how."""
        return dict(self._counts)

    def figures(self, pending: int, asked: float | None) -> dict[str, Any]:
        """The fields of `Summary` that are counted here."""
        elapsed = None if self._begun is None else self.last - self._begun
        if elapsed is not None and asked is not None:  # the last frame has an interval, too
            elapsed = max(elapsed, self.taken / asked)
        return {
            "frames": dict(self._counts),
            "pending": pending,
            "lost": self.taken - pending - sum(self._counts.values()),
            "missed": self._missed,
            "rate": len(self._latencies) / elapsed if elapsed and elapsed > 0 else None,
            "capacity": self._answers / self._busy if self._busy > 0 else None,
            "latency": percentiles(self._latencies),
        }


@dataclass(frozen=True)
class Summary:
    """A stream so far. Times are seconds of its clock.

    Attributes:
        frames: how many ended as what.
        pending: frames that have not ended yet; 0 behind the end.
        lost: frames that were taken and are neither; a bug if not 0.
        missed: frames that were not "ok" though the device was not away in their time.
        asked: frames a second that were asked for, None for as many as possible.
        rate: frames a second that were answered.
        capacity: frames a second that the device can answer; None if it answered none.
        latency: of the answered frames, milliseconds by name of a percentile; None if there are none.
        virtual: whether the clock is an emulated device's.
        host_work: seconds by which each frame's work on the host advances that clock.
        depth: frames in flight at most.
        overlaps: whether the device takes the next frame before it has ended the last one.
        events, recoveries: in order.
        readings: of the device that were made in gaps.
        longest_reading: seconds that one took at most.
    """

    frames: Mapping[Status, int]
    pending: int
    lost: int
    missed: int
    asked: float | None
    rate: float | None
    capacity: float | None
    latency: Mapping[str, float] | None
    virtual: bool
    host_work: float
    depth: int
    overlaps: bool
    events: Sequence[Event]
    recoveries: Sequence[Recovered]
    readings: int = 0
    longest_reading: float = 0.0

    @property
    def advice(self) -> str | None:
        """What to do about a rate that the device cannot hold; None if it does."""
        if not self.missed or self.asked is None or self.capacity is None or self.capacity >= self.asked:
            return None
        return (
            f"the device does not hold {self.asked:g} frames a second: it can answer {self.capacity:.3g}; "
            "lower the rate, or use a smaller network"
        )

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "frames": {**self.frames, "lost": self.lost},
            "missed": self.missed,
            "rate": self.rate,
            "capacity": self.capacity,
            "latency_ms": dict(self.latency) if self.latency is not None else None,
            "clock": "virtual" if self.virtual else "wall",
            "host_work": self.host_work,
            "depth": self.depth,
            "overlaps": self.overlaps,
            "advice": self.advice,
            "events": [event.to_json() for event in self.events],
            "recoveries": [one.to_json() for one in self.recoveries],
            "readings": {"count": self.readings, "longest_ms": round(1000 * self.longest_reading, 6)},
        }


def percentiles(seconds: Sequence[float]) -> dict[str, float] | None:
    """Milliseconds by name: each one that was measured, of several the least above the share."""
    if not seconds:
        return None
    found = np.percentile(np.asarray(seconds), list(PERCENTILES.values()), method="higher")
    return {name: round(1000 * float(value), 6) for name, value in zip(PERCENTILES, found, strict=True)}
