"""What a session publishes of itself, and how often."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Protocol

from sdk.errors import DeviceFailed, DeviceMissing, OutputFailed
from sdk.telemetry.metrics import Identity, Metrics

INTERVAL = 0.5
"""Seconds of the wall's time between two lines."""


class Network(Protocol):
    """What is published of an artefact."""

    @property
    def target(self) -> str: ...


class Reported(Protocol):
    """What publishes: a session.

    Attributes:
        device: the device string.
        artifact: the network.
        last_metrics: what it knows without measuring.
    """

    device: str

    @property
    def artifact(self) -> Network: ...

    @property
    def last_metrics(self) -> Metrics: ...

    def identify(self) -> Identity | None:
        """Which device it is. Raises DeviceFailed, DeviceMissing."""


class Publication:
    """Publishes a session's figures. A reading is never made for it: it takes those that were made.

    Args:
        session: whose.
        name: of the socket; None for one made of the device.

    Raises:
        NameTaken, OutputFailed, UsageError, Untrusted: as `publisher.Publisher`.
    """

    def __init__(self, session: Reported, name: str | None = None) -> None:
        try:
            from sdk.telemetry.publisher import Publisher
        except ImportError as problem:  # only Unix has what it needs
            raise OutputFailed(f"this system has no sockets to publish on: {problem}") from problem
        try:
            identity = session.identify()
        except (DeviceFailed, DeviceMissing):  # it is away; what publishes goes on
            identity = None
        self._session = session
        self._publisher = Publisher(session.device, identity, name, target=session.artifact.target)
        self.name = self._publisher.name
        self._last = float("-inf")

    def look(self, stream: Mapping[str, Any] | None = None, *, now: bool = False) -> None:
        """Publish, if it is time for that or `now` is given.

        Args:
            stream: what else is known of a stream; must not change afterwards.
            now: do not wait for the interval.
        """
        moment = time.monotonic()
        if now or moment - self._last >= INTERVAL:
            self._last = moment
            self._publisher.publish({"metrics": self._session.last_metrics.to_json(), "stream": stream})

    @property
    def wanted(self) -> bool:
        """Whether the interval is over."""
        return time.monotonic() - self._last >= INTERVAL

    def close(self, cause: str, stream: Mapping[str, Any] | None = None) -> None:
        """Publish a last line, with the reason. Idempotent; `stream` as in `look`."""
        self.look(stream, now=True)
        self._publisher.close(cause)
