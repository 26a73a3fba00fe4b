"""A network's programs, loaded on a device, and loaded again when that failed."""

from __future__ import annotations

import dataclasses
import logging

from sdk.artifact import Artifact
from sdk.clock import ContinuingClock, WallClock
from sdk.errors import DeviceFailed, DeviceMissing, TowlineError
from sdk.target import ChecksPrograms, Device, DeviceSession, Measures, OpenOptions, Recovers, Recovery, Timed
from sdk.targets import get_target, open_device
from sdk.telemetry.metrics import Metrics, Traffic

AWAY = (DeviceFailed, DeviceMissing)
"""What a device raises that may be recovered."""
PAUSE = 0.1
"""Seconds between two attempts to open a device."""

log = logging.getLogger("towline")


class Loaded:
    """The programs of an artefact on a device.

    Args:
        artifact: whose programs they are.
        device: the device string.
        options: what else is chosen when the device is opened.
        opened: that device, if it is open already.

    Attributes:
        sessions: one for each program, in order; none while the device is away.
        clock: the device's if it has one, else the wall's; it goes on when the device is opened again.
        measures: the device, if it can report how it is.
        before: what went over the cable before the network was loaded.

    Raises:
        InvalidArtifact: a program's plan is damaged; no device has been opened then.
        UsageError, DeviceMissing, ToolMissing, DeviceFailed: as `sdk.targets.open_device` and `Device.load`.
    """

    def __init__(
        self, artifact: Artifact, device: str, options: OpenOptions, opened: Device | None = None
    ) -> None:
        self._artifact = artifact
        self._name = device
        self._options = options
        self._given = opened is not None
        self.sessions: list[DeviceSession] = []
        self.clock = ContinuingClock()
        self.before = Traffic()
        target = get_target(artifact.target)
        if isinstance(target, ChecksPrograms):  # a card takes seconds to boot
            for program in artifact.programs:
                target.check(program)
        self.measures: Measures | None = None
        self.device = self._opened() if opened is None else opened
        self._load()

    @property
    def timed(self) -> bool:
        """Whether the device has a clock of its own."""
        return isinstance(self.device, Timed)

    @property
    def last_reading(self) -> Metrics:
        """The device's last one; all is unknown if it made none, or cannot."""
        return self._since_load(None if self.measures is None else self.measures.last_reading)

    def reading(self) -> Metrics:
        """What the device measures now; likewise. Raises as `Measures.reading`."""
        return self._since_load(None if self.measures is None else self.measures.reading())

    def _since_load(self, found: Metrics | None) -> Metrics:
        """A reading in terms of this session: its clock goes on over recoveries, its traffic begins here."""
        if self.measures is None:
            return Metrics()
        traffic = self.measures.traffic.since(self.before)
        if found is None or found.time is None:
            return dataclasses.replace(found or Metrics(), traffic=traffic)
        return dataclasses.replace(found, time=self.clock.of(found.time), traffic=traffic)

    def recover(self, seconds: float) -> Recovery:
        """Make the device usable again: by its own means, or else by opening it again.

        Args:
            seconds: to wait at most for a device that is away.

        Returns:
            What it took; `states` of what the device itself keeps.

        Raises:
            DeviceFailed, DeviceMissing: that is not possible now; it may be tried again.
        """
        if isinstance(self.device, Recovers):
            return self.device.recover(seconds)
        if self._given:
            raise DeviceFailed(
                "a device that was opened elsewhere cannot be opened again here",
                hint="open the session by a device string",
            )
        self._abandon()
        end = self.clock.now() + seconds
        while True:
            try:
                self.device = self._opened()
                self._load()
                return Recovery("cold", states=False)
            except AWAY:
                left = end - self.clock.now()
                if left <= 0:
                    raise
                self.clock.sleep(min(left, PAUSE))

    def close(self) -> None:
        """Release the device."""
        while self.sessions:
            self.sessions.pop().close()

    def _abandon(self) -> None:
        """Release a device that failed; its own clock stands still from now on."""
        if self.timed:
            self.clock.follow(None)
        while self.sessions:
            try:
                self.sessions.pop().close()
            except TowlineError as problem:
                log.warning("the device was not closed properly: %s", problem)

    def _opened(self) -> Device:
        return open_device(self._artifact.target, self._name, self._options)

    def _load(self) -> None:
        self.measures = self.device if isinstance(self.device, Measures) else None
        self.before = Traffic() if self.measures is None else self.measures.traffic
        try:
            for program in self._artifact.programs:
                self.sessions.append(self.device.load(program))
        except BaseException:
            self._abandon()
            raise
        self.clock.follow(self.device.clock if isinstance(self.device, Timed) else WallClock())
