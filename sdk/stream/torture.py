"""Random faults while a stream runs, and what it made of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sdk.session import Session
from sdk.stream.records import Recovered

EVERY = 100
"""Frames to a fault."""


@dataclass(frozen=True)
class Fault:
    """One that was planned.

    Attributes:
        time: on the stream's clock.
        frame: the one that was taken next.
        text: as `sdk.target.Injects.inject` takes it.
    """

    time: float
    frame: int
    text: str


@dataclass(frozen=True)
class Outcome:
    """What came of all faults of one kind.

    Attributes:
        fault: as it is planned.
        planned: how often.
        recoveries: of the failures that came before the next fault was planned.
    """

    fault: str
    planned: int
    recoveries: Sequence[Recovered]


class Torture:
    """Plans a random one of a device's faults in every hundred frames, at a random one of them.

    Args:
        session: on a device with `Session.injects`.
        total: frames that there are.
        seed: of the choice.

    Attributes:
        live: as of the frames.
        planned: so far.
    """

    def __init__(self, session: Session, frames: Iterable[Any], total: int, seed: int) -> None:
        self.live = bool(getattr(frames, "live", False))
        self.planned: list[Fault] = []
        self._session = session
        self._frames = frames
        self._total = total
        self._random = np.random.default_rng(seed)

    def __iter__(self) -> Iterator[Any]:
        at = 0
        for number, frame in enumerate(self._frames):
            if number % EVERY == 0:
                at = number + int(self._random.integers(max(1, min(EVERY, self._total - number))))
            device = self._session.injects
            if number == at and device is not None and device.torments:
                fault = str(self._random.choice(list(device.torments)))
                device.inject(fault)
                self.planned.append(Fault(self._session.clock.now(), number, fault))
            yield frame

    def outcomes(self, recoveries: Sequence[Recovered]) -> list[Outcome]:
        """What came of each kind of fault, in the order in which kinds were planned first."""
        found: dict[str, list[Recovered]] = {fault.text: [] for fault in self.planned}
        for one in recoveries:
            before = [fault for fault in self.planned if fault.time < one.time]
            if before:
                found[before[-1].text].append(one)
        counts = {text: sum(fault.text == text for fault in self.planned) for text in found}
        return [Outcome(text, counts[text], tuple(met)) for text, met in found.items()]
