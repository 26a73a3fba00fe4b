"""What a stream does for its device: it lowers the rate with heat, and puts an idle device to rest."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from sdk.errors import DeviceFailed, UsageError
from sdk.loaded import AWAY
from sdk.session import Session
from sdk.stream.background import Background
from sdk.stream.pace import Limits, Pace
from sdk.stream.records import Notice
from sdk.telemetry.metrics import Metrics

log = logging.getLogger("towline")
T = TypeVar("T")

INTERVAL = 1.0
"""Seconds of the device's time until a device that is too hot is looked at again."""
PAUSE = 0.005
"""Seconds without a frame that are enough to put it to rest, so that it delays none."""
OFF = "its power was switched off because it was idle"


class Care:
    """Looks after the device of a stream.

    Args:
        session: on the device.
        limits: of its temperatures.
        idle: seconds without work after which it rests; None for never.
        off: whether it is switched off then, instead of lowering its clocks.
        notice: gets what happens: what it is, why, and seconds that it took if that matters.

    Attributes:
        pace: what its temperatures allow.
        idle: as given.

    Raises:
        UsageError: the device cannot rest.
    """

    def __init__(
        self,
        session: Session,
        limits: Limits,
        idle: float | None,
        off: bool,
        notice: Callable[[Notice, str, float | None], None],
    ) -> None:
        if idle is not None and session.rests is None:
            raise UsageError(
                f"the device of {session.artifact.target} cannot rest", hint="leave idle out; it is for amd-*"
            )
        if off and idle is None:
            raise UsageError("idle_off is what happens after idle seconds", hint="give idle, too")
        self.pace = Pace(limits)
        self.idle = idle
        self._off = off
        self._session = session
        self._notice = notice
        self._worked = session.clock.now()
        self._not_before = float("-inf")  # when the next frame may be submitted, of a lowered pace
        self._paused: float | None = None  # since when it waits for the device to cool down

    def worked(self, submitted: float | None = None) -> None:
        """The device has work, or has just answered what was submitted then."""
        now = self._worked = self._session.clock.now()
        if submitted is not None and 0 < self.pace.share < 1:
            began = max(submitted, self._not_before)
            self._not_before = now + (now - began) * (1 / self.pace.share - 1)

    def holds(self) -> float | None:
        """Until when the next frame has to wait, if it is not dropped instead; None if it need not."""
        now = self._session.clock.now()
        if not self.pace.share:
            self._paused = now if self._paused is None else self._paused
            return now + INTERVAL
        self._paused = None
        return self._not_before if now < self._not_before else None

    def too_long(self, patience: float, frame: int) -> DeviceFailed | None:
        """The error of a device that frames have waited for longer than that."""
        if self._paused is None or self._session.clock.now() - self._paused < patience:
            return None
        return DeviceFailed(
            f"the device has been too hot for {patience:g} s: {self.pace.cause}",
            where=f"frame {frame}",
            hint="let it cool down, and check its fans and its airflow",
        )

    def beside(self, work: Callable[[], T]) -> T | None:
        """Do what may take long, such as waiting for a camera, and look after the device meanwhile.

        A device that fails meanwhile is left to the next frame.
        """
        if self.idle is None:
            return work()
        taking = Background(work)
        well = True
        while not taking.ended:
            left = self.moment - self._session.clock.now() if well else INTERVAL
            taking.wait(min(max(left, 0.0), INTERVAL))
            if well and not taking.ended and self._session.clock.now() >= self.moment:
                try:
                    self.act()
                except AWAY as problem:
                    log.warning("the device failed while nothing ran: %s", problem)
                    well = False
        return taking.wait(0)

    @property
    def moment(self) -> float:
        """When the device rests, if no frame comes; infinity for never."""
        if self.idle is None or self._session.rests != "awake":
            return float("inf")
        return self._worked + self.idle

    def act(self) -> None:
        """Put the device to rest, if it is time; nothing is in flight. Raises DeviceFailed, DeviceMissing."""
        if self._session.clock.now() >= self.moment:
            self._session.rest(off=self._off)
            how = "the power of its slot is off" if self._off else "its clocks are low"
            self._notice("idle", f"nothing to do for {self.idle:g} s: {how}", None)

    def take(self, reading: Metrics) -> None:
        """Take a reading."""
        before = self.pace.share
        if self.pace.take(reading):
            share = self.pace.share
            how = f"{share:.0%} of the rate" if share else "paused"
            self._notice("hot" if share < before else "cool", f"{how}: {self.pace.cause}", None)

    def wake(self) -> None:
        """Make a device ready for work.

        Raises:
            DeviceFailed: its power is off: it is to be recovered; DeviceFailed, DeviceMissing: that failed.
        """
        rests = self._session.rests
        if rests == "off":
            raise DeviceFailed(OFF)
        if rests == "idle":
            begun = self._session.clock.now()
            self._session.wake()
            took = self._session.clock.now() - begun
            self._notice("awake", f"its clocks are up again, in {1000 * took:.3f} ms", took)
        self.worked()
