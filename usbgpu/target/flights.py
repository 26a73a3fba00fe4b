"""Inferences that were submitted: as many as wait are computed together, transfers beside compute.

Several frames need two arenas, so that one is filled while the other is computed with. States stay in the
first, in the two places that they always have: a step reads them in one and leaves the next ones in the
other.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from sdk.errors import DeviceFailed, InvalidInput, TowlineError, Unsupported
from sdk.graph import Array
from usbgpu.seam import Gpu, Overlap, Way, Write

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Frame:
    """An inference that was submitted.

    Attributes:
        arrays: its inputs.
        outputs: names.
        step: it begins with the kept states.
        number: in the order of submission.
        answer: its outputs by name, or why there are none; None before that is known.
    """

    arrays: dict[str, Array]
    outputs: tuple[str, ...]
    step: bool
    number: int = 0
    answer: dict[str, Array] | TowlineError | None = None


class Ground(Protocol):
    """What a session does for the frames that are in flight."""

    def exchange(self) -> AbstractContextManager[None]:
        """For work on the card: what a failure there means for the session."""

    def kind(self, frame: Frame) -> Hashable:
        """Frames of one kind may be computed together, and have the same `ways`; None if they may not."""

    def alone(self, frame: Frame) -> dict[str, Array]:
        """Compute one frame."""

    def encode(self, frame: Frame) -> list[Write]:
        """The pieces of its input, in the first arena."""

    def ways(self, frame: Frame) -> tuple[Way, Way]:
        """The ways by which frames like this one are computed. Raises Unsupported: there is no room."""

    def torn(self) -> None:
        """Several steps were computed, of which not all answers are here: later ones have taken the place of
        the states that the next one would begin with.
        """

    def flown(self, frame: Frame, found: Sequence[bytes]) -> dict[str, Array]:
        """Outputs of a frame; if it is a step, its next states are the kept ones from now on."""


class Flights:
    """The frames of a session that were submitted and have no answer yet.

    Args:
        gpu: that computes them.
        ground: their session.
    """

    def __init__(self, gpu: Gpu, ground: Ground) -> None:
        self._gpu = gpu
        self._ground = ground
        self._waiting: deque[Frame] = deque()
        self._flying: Iterator[None] | None = None
        self._ways: dict[Hashable, tuple[tuple[Way, Way], int]] = {}  # with how many frames they may have
        self._overlaps: dict[tuple[Hashable, int], Overlap] = {}
        self._numbers = itertools.count(1)
        self._answered = self._returned = 0  # steps: the number of the last one

    @property
    def ahead(self) -> bool:
        """Whether the states are those of a step whose outputs have not been asked for yet."""
        return self._answered > self._returned

    def caught_up(self) -> None:
        """The states are those that the caller knows of."""
        self._returned = self._answered

    def submit(self, frame: Frame) -> Callable[[], dict[str, Array]]:
        """Begin a frame; what is returned waits for its outputs."""
        frame.number = next(self._numbers)
        self._waiting.append(frame)

        def result() -> dict[str, Array]:
            while frame.answer is None:
                self._advance()
            if isinstance(frame.answer, TowlineError):
                raise frame.answer
            if frame.step:
                self._returned = max(self._returned, frame.number)
            return frame.answer

        return result

    def land(self) -> None:
        """Compute everything that was submitted; errors are those of their frames."""
        while self._waiting or self._flying is not None:
            self._advance()

    def drop(self, problem: TowlineError) -> None:
        """What has not begun will have no answer; what has is waited for."""
        for frame in self._waiting:
            frame.answer = problem
        self._waiting.clear()
        self.land()

    def free(self) -> None:
        """Free what it holds on the GPU."""
        for overlap in self._overlaps.values():
            overlap.free()
        self._overlaps.clear()
        self._ways.clear()

    # -- inside -----------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """One frame more has an answer afterwards."""
        if self._flying is None:
            self._flying = self._fly()
        try:
            next(self._flying)
        except StopIteration:
            self._flying = None
        except TowlineError as problem:  # which the frames have
            log.debug("frames that were submitted fail: %s", problem)
            self._flying = None

    def _fly(self) -> Iterator[None]:
        """Compute some of the waiting frames; each time it yields, one has its answer."""
        group = self._group()
        try:
            if len(group) == 1:
                (frame,) = group
                self._answered_with(frame, self._ground.alone(frame))
                return
            with self._ground.exchange():
                pieces = [[bytes(write.data) for write in self._ground.encode(frame)] for frame in group]
                answers = self._overlap(self._ground.kind(group[0]), len(group)).run(pieces)
                for frame in group[:-1]:
                    self._answer(frame, next(answers))
                    yield
                (found,) = answers  # to the end of the list
                self._answer(group[-1], found)
        except BaseException as problem:
            reason = problem if isinstance(problem, TowlineError) else DeviceFailed("it was interrupted")
            if sum(frame.step and frame.answer is None for frame in group) > 1:
                self._ground.torn()
            for frame in group:
                frame.answer = frame.answer or reason
            raise

    def _answer(self, frame: Frame, found: Sequence[bytes]) -> None:
        try:
            self._answered_with(frame, self._ground.flown(frame, found))
        except InvalidInput as problem:
            frame.answer = problem

    def _answered_with(self, frame: Frame, outputs: dict[str, Array]) -> None:
        frame.answer = outputs
        if frame.step:
            self._answered = frame.number

    def _group(self) -> list[Frame]:
        """The next frames that are computed together: a power of two, so that there are few programs."""
        kind = self._ground.kind(self._waiting[0])
        most = self._most(kind, self._waiting[0]) if len(self._waiting) > 1 and kind is not None else 1
        alike = 1
        for frame in itertools.islice(self._waiting, 1, most):
            if self._ground.kind(frame) != kind:
                break
            alike += 1
        return [self._waiting.popleft() for _ in range(1 << alike.bit_length() - 1)]

    def _most(self, kind: Hashable, frame: Frame) -> int:
        """How many frames of a kind may be computed together."""
        if kind not in self._ways:
            try:
                ways = self._ground.ways(frame)
            except Unsupported as problem:
                log.info("frames do not overlap: %s", problem)
                return 1
            self._ways[kind] = ways, self._gpu.most_frames(ways[0])
        return self._ways[kind][1]

    def _overlap(self, kind: Hashable, frames: int) -> Overlap:
        if (kind, frames) not in self._overlaps:
            self._overlaps[kind, frames] = self._gpu.overlap(self._ways[kind][0], frames)
        return self._overlaps[kind, frames]
