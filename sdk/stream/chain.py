"""A session in a stream: what is in flight there, and which frame its states descend from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from sdk.errors import InternalError
from sdk.graph import Array
from sdk.inputs import zero_point_inputs
from sdk.session import Session, Ticket
from sdk.stream.records import Answerer, Inference
from sdk.target import Recovery


@dataclass(frozen=True)
class Flight:
    """An inference that was submitted, and not collected.

    Attributes:
        ticket: the session's.
        frame, inputs, epoch, descends_from: as of `Inference`.
    """

    ticket: Ticket
    frame: int
    inputs: Mapping[str, Array]
    epoch: int
    descends_from: int | None


class Chain:
    """Submits to a session and collects from it in order, and knows the way of its states.

    Args:
        by: what it is in the stream.
        session: an open one.
        checkpoint: the number of steps after which the states are downloaded; None for never.
        observe: gets every inference that returned.

    Attributes:
        session: the one given.
        has_states: whether inferences are steps.
        epoch: how often the states were reset since `start`.
        flying: what is in flight, in order.
    """

    def __init__(
        self,
        by: Answerer,
        session: Session,
        checkpoint: int | None = None,
        observe: Callable[[Inference], None] | None = None,
    ) -> None:
        self.session = session
        self.has_states = bool(session.artifact.states)
        self.epoch = 0
        self.flying: list[Flight] = []
        self._by = by
        self._every = checkpoint if self.has_states else None
        self._observe = observe
        self._saved: tuple[int, dict[str, Array]] | None = None
        self._steps = 0  # since the states were saved
        self._left_by: int | None = None  # the frame whose step left the states that the next one begins with
        self._returned: int | None = None  # the same for the last one that returned
        self._lost = False  # whether states have to be put in place before the next step

    @property
    def fresh(self) -> bool:
        """Whether it begins with reset states."""
        return self._left_by is None

    def start(self) -> None:
        """Load the network, by an inference on zeros whose results are ignored, and reset the states.

        Raises:
            DeviceFailed, DeviceMissing: the device failed.
        """
        self.session.run(zero_point_inputs(self.session.artifact.graph))
        if self.has_states:
            self.session.reset()

    def submit(self, frame: int, inputs: Mapping[str, Array]) -> None:
        """Begin a frame's inference.

        Raises:
            InvalidInput, DeviceFailed, DeviceMissing: as `Session.submit`.
        """
        ticket = self.session.submit(inputs, step=self.has_states)
        self.flying.append(Flight(ticket, frame, inputs, self.epoch, self._left_by))
        if self.has_states:
            self._left_by = frame

    def collect(self) -> tuple[Flight, Mapping[str, Array]]:
        """The first in flight, and its outputs.

        Raises:
            InvalidInput, DeviceFailed, DeviceMissing: as `Session.collect`; it stays in flight.
        """
        if not self.flying:
            raise InternalError("nothing is in flight")
        flight = self.flying[0]
        outputs = self.session.collect(flight.ticket)
        self.flying.pop(0)
        if self.has_states:
            self._returned = flight.frame
            self._steps += 1
        if self._observe is not None:
            self._observe(
                Inference(self._by, flight.frame, flight.inputs, flight.epoch, flight.descends_from, outputs)
            )
        return flight, outputs

    @property
    def wants_saving(self) -> bool:
        """Whether nothing more is to be submitted until `save`, for which nothing may be in flight."""
        return self._every is not None and self._steps + len(self.flying) >= self._every

    def save(self) -> None:
        """Download the states, for the time when the device has lost them.

        Raises:
            DeviceFailed, DeviceMissing: as `Session.states`.
        """
        if self._returned is None:
            return
        states = {name: np.array(array) for name, array in self.session.states().items()}
        self._saved = self._returned, states
        self._steps = 0

    def recover(self, seconds: float) -> Recovery:
        """Make the session usable again; nothing is in flight then.

        States that the device has lost are those that were saved last, or else reset.

        Returns:
            As `Session.recover`.

        Raises:
            DeviceFailed, DeviceMissing: as `Session.recover`.
        """
        self.flying.clear()
        found = self.session.recover(seconds)
        if self.has_states and not found.states:
            self._lost = True
        if self._lost:
            self._restore()
            return Recovery(found.kind, states=False)
        self._left_by = self._returned
        return found

    def reset(self) -> None:
        """Begin again from reset states.

        Raises:
            DeviceFailed, DeviceMissing: as `Session.reset`.
        """
        if self.has_states and not self.fresh:
            self._saved = None
            self._restore()

    def _restore(self) -> None:
        frame, states = self._saved or (None, None)
        self.session.reset(states)
        self._lost = False
        self._left_by = self._returned = frame
        self._steps = 0
        self.epoch += 1
