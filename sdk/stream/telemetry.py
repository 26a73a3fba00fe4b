"""Readings of a stream's device, made in its gaps, and what follows from them.

A reading takes the device a fraction of a millisecond, in which it computes nothing. So one is made when no
frame waits, none is in flight, and the next is not due for twice as long as the longest reading took so far.
Where there is no such gap, the figures are those of the device's own checks before work is submitted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sdk.errors import UsageError
from sdk.session import Session
from sdk.telemetry.metrics import LOW_VOLTS, Metrics, Supply
from sdk.telemetry.publication import Publication

INTERVAL = 0.5
"""Seconds of the device's clock between two readings: below the second after which a card is checked before
work is submitted (`usbgpu.amd.monitor.INTERVAL`), so that no frame waits for that."""
SPARE = 2
"""How many times as long as the longest reading a gap has to be."""
STALE = 2.0
"""Seconds after which a stream without gaps reads before its next frame, if the device has not by itself."""
RISEN = 11.28
"""Volts from which on a supply that sagged is well again; the 2 % above LOW_VOLTS are our choice."""


class SupplyWatch:
    """Finds what is wrong with a dock's supply."""

    def __init__(self) -> None:
        self._low = False
        self._fault = False

    def judge(self, supply: Supply | None) -> list[str]:
        """What has changed with this measurement, in words; None is no measurement."""
        if supply is None:
            return []
        found = []
        if supply.fault != self._fault:
            found.append(f"the supply reports {'a fault' if supply.fault else 'no fault any longer'}")
        measured = f"{supply.volts:.2f} V, {supply.amperes:.2f} A"
        if not self._low and supply.volts < LOW_VOLTS:
            self._low = True
            found.append(f"the supply sags: {measured}; cards need {LOW_VOLTS} V")
        elif self._low and supply.volts >= RISEN:
            self._low = False
            found.append(f"the supply is well again: {measured}")
        self._fault = supply.fault
        return found


class Telemetry:
    """Makes readings, hands them on, and publishes.

    Args:
        session: the stream's.
        interval: seconds of its clock between two readings; None for no readings but the device's own.
        taken: gets every reading, also those of the device itself.
        supply: gets what happens to the supply, in words.

    Attributes:
        last: the last reading; None before the first.
        needed: readings are made even if the interval is None.
        count: readings in gaps.
        longest: seconds that one took at most.

    Raises:
        UsageError: the interval is not more than 0.
    """

    def __init__(
        self,
        session: Session,
        interval: float | None,
        taken: Callable[[Metrics], None],
        supply: Callable[[str], None],
    ) -> None:
        if interval is not None and not 0 < interval < float("inf"):
            raise UsageError(f"telemetry is {interval!r}: it has to be more than 0 seconds, or None")
        self.last: Metrics | None = None
        self.needed = False
        self.count = 0
        self.longest = 0.0
        self._session = session
        self._interval = interval
        self._taken = taken
        self._supply = supply
        self._watch = SupplyWatch()
        self._next = float("-inf")
        self._publication: Publication | None = None
        self._about: Callable[[], Mapping[str, Any]] = dict

    # -- readings -------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Before the first frame is due: the first reading, which may take longer than all others; and one
        more, for how long these take. Raises as `use_gap`.
        """
        self._session.frames.restart()  # the inference that loaded the network was none
        if self._reads:
            self._session.metrics()
            self.read()

    def use_gap(self, until: float) -> bool:
        """Nothing is in flight, and nothing waits until then: make a reading if one is due and fits.

        Args:
            until: when the next frame is due; infinity if that is unknown.

        Returns:
            Whether it made one.

        Raises:
            DeviceFailed, DeviceMissing: the device does not answer.
        """
        if not self._reads:
            return False
        clock = self._session.clock
        now = clock.now()
        begin = max(now, self._next)
        if until == float("inf"):
            if begin > now:
                return False
        elif begin + SPARE * self.longest > until:
            return False
        if begin > now:
            clock.sleep(begin - now)
        self.read()
        return True

    @property
    def due(self) -> float:
        """When the next reading is; infinity for never."""
        return self._next if self._reads else float("inf")

    @property
    def overdue(self) -> bool:
        """Whether the next frame has to wait for a reading."""
        known = None if self.last is None else self.last.time
        return self._reads and known is not None and self._session.clock.now() >= known + STALE

    @property
    def _reads(self) -> bool:
        wanted = self._interval is not None or self.needed
        return wanted and self._session.measures and self._session.rests != "off"

    def read(self) -> None:
        """Make a reading now. Raises as `use_gap`."""
        clock = self._session.clock
        begun = clock.now()
        self._next = begun + (self._interval or INTERVAL)
        found = self._session.metrics()
        self.count += 1
        self.longest = max(self.longest, clock.now() - begun)
        self._take(found)

    def look(self) -> None:
        """Take what the device has measured by itself, and publish if it is time."""
        if self._session.measures:
            found = self._session.last_metrics
            if found.time is not None and (self.last is None or found.time != self.last.time):
                self._take(found)
        if self._publication is not None and self._publication.wanted:
            self._publication.look(self._about())

    def _take(self, found: Metrics) -> None:
        self.last = found
        for cause in self._watch.judge(found.supply):
            self._supply(cause)
        self._taken(found)

    # -- publishing -----------------------------------------------------------------------------------------

    def publish(self, how: bool | str | Publication, about: Callable[[], Mapping[str, Any]]) -> None:
        """Publish from now on.

        Args:
            how: True or a name for the socket; one that is open already; or False.
            about: what is known of the stream.

        Raises:
            NameTaken, OutputFailed, UsageError, Untrusted: as `sdk.telemetry.publication.Publication`.
        """
        if how is False:
            return
        self._about = about
        if isinstance(how, Publication):
            self._publication = how
        else:
            self._publication = Publication(self._session, None if how is True else how)

    def changed(self) -> None:
        """The stream's state changed: readers see that at once."""
        if self._publication is not None:
            self._publication.look(self._about(), now=True)

    def end(self, cause: str) -> None:
        """Publish no longer. Idempotent."""
        if self._publication is not None:
            self._publication.close(cause, self._about())
            self._publication = None
