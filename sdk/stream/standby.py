"""The fallback of a stream: a network of the same interface, which answers when the first one does not."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping

from sdk.errors import UsageError
from sdk.graph import Tensor
from sdk.loaded import AWAY
from sdk.session import Session
from sdk.stream.chain import Chain
from sdk.stream.feed import Frame
from sdk.stream.records import Result, Times

log = logging.getLogger("towline")


def require_same_interface(session: Session, fallback: Session) -> None:
    """Refuse a fallback that does not take and give what the network does, states aside.

    Raises:
        UsageError: naming the first input or output that differs.
    """
    for what in ("input", "output"):
        own, other = _interface(session, what), _interface(fallback, what)
        for name in sorted(own.keys() | other.keys()):
            one, two = own.get(name), other.get(name)
            if one is None or two is None or not _alike(one, two):
                raise UsageError(
                    f"the fallback is of another network: its {what} is {two or 'missing'}, where the "
                    f"network has {one or 'none'}",
                    where=f"{what} {name}",
                    hint="compile the same model for another target",
                )


def _interface(session: Session, what: str) -> Mapping[str, Tensor]:
    """Inputs or outputs by name, without the states."""
    tensors, states = (session.inputs, 1) if what == "input" else (session.outputs, 0)
    held = {pair[states] for pair in session.artifact.states}
    return {name: tensor for name, tensor in tensors.items() if name not in held}


def _alike(one: Tensor, two: Tensor) -> bool:
    if one.shape != two.shape or one.dtype != two.dtype:
        return False
    if one.quantization is None or two.quantization is None:
        return one.quantization is two.quantization
    return one.quantization.equals(two.quantization)


class Standby:
    """Answers frames with the fallback.

    Args:
        chain: of its session.
        always: whether it runs every frame; else it begins from reset states whenever it steps in.

    Attributes:
        seconds: what the last answer took, on the clock of the stream.
        session: the fallback's.
        always: as given.
    """

    def __init__(self, chain: Chain, always: bool) -> None:
        self.always = always
        self.session = chain.session
        self.seconds = 0.0
        self._chain = chain
        self._on = False
        self._failed = False

    def start(self) -> None:
        """Load it."""
        try:
            self._chain.start()
        except AWAY as problem:
            log.warning("the fallback failed: %s", problem)
            self._failed = True

    def rest(self) -> None:
        """It is not needed for now."""
        self._on = self.always

    def answer(self, frame: Frame, now: float) -> Result:
        """The result of a frame; its time is the caller's to fill in.

        Raises:
            InvalidInput: the frame does not fit.
            DeviceFailed, DeviceMissing: its device failed; the next call recovers it first.
        """
        try:
            if self._failed:
                self._chain.recover(0)
                self._failed = False
            if not self._on:
                self._chain.reset()
                self._on = True
            self._chain.submit(frame.number, frame.inputs)
            flight, outputs = self._chain.collect()
        except AWAY:
            self._failed = True
            raise
        times = Times(frame.due, frame.submitted, now)
        return Result(
            frame.number, frame.name, "fallback", outputs, flight.epoch, flight.descends_from, times
        )


def timed(result: Result, done: float, cause: str) -> Result:
    """The same result with the time when it was ready, and why it is the fallback's."""
    times = dataclasses.replace(result.times, done=done)
    return dataclasses.replace(result, times=times, cause=cause)
