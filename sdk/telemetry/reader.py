"""The other side: what publishes, and its lines."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from sdk.errors import DeviceFailed, TowlineError
from sdk.report import SCHEMA
from sdk.telemetry import places

PATIENCE = 2.0
"""Seconds that a publisher may take to accept and to send its first line; its thread does nothing else."""
LONGEST = 64 << 10
"""Bytes of a line at most."""


@dataclass(frozen=True)
class Published:
    """A publisher that answered.

    Attributes:
        path: of its socket.
        about: what its lines say of it: `name`, `pid`, `device`, `place`, `serial`, `chip` and others.
    """

    path: Path
    about: Mapping[str, Any]

    def is_called(self, text: str) -> bool:
        """Whether a user may mean it by this name, device string, place or serial number."""
        about = self.about
        known = [about.get(key) for key in ("name", "device", "place", "serial")]
        known += [f"usb:{about[key]}" for key in ("place", "serial") if about.get(key)]
        return text in [one for one in known if one] or text == str(about.get("pid"))

    def is_kind(self, text: str) -> bool:
        """Whether it has a device of this kind: "usb"."""
        return text == str(self.about.get("device")).partition("?")[0].partition(":")[0]


def published() -> list[Published]:
    """What publishes now. A socket that does not answer is left out.

    Raises:
        Untrusted: as `places.directory`.
    """
    found = []
    for path in places.live():
        try:
            with Reader(path) as reader:
                found.append(Published(path, reader.about))
        except TowlineError:  # it ended meanwhile
            continue
    return found


def _is_about(about: object) -> bool:
    """Whether this may be `Published.about`."""
    return (
        isinstance(about, dict)
        and all(isinstance(about.get(key), str) for key in ("name", "device"))
        and all(one is None or isinstance(one, str | int) for one in about.values())
    )


class Reader:
    """Lines of a publisher. A context manager.

    Args:
        path: of its socket.

    Attributes:
        about: see `Published`.
        ended: why there are no more lines; None while there are.

    Raises:
        Untrusted, DeviceFailed: as `places.connect`; or what it sends is not understood.
    """

    def __init__(self, path: Path) -> None:
        self.ended: str | None = None
        self._path = path
        self._buffer = bytearray()
        self._link = places.connect(path, PATIENCE)
        self._first: Mapping[str, Any] | None = None
        try:
            first = self.line(PATIENCE)
            if first is None:
                raise self._failed(self.ended or "it does not answer")
            self._first = first
            self.about: Mapping[str, Any] = first["publisher"]
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close it. Idempotent."""
        self._link.close()

    def line(self, seconds: float) -> Mapping[str, Any] | None:
        """The next line; None if there is none within these seconds, or no more. The last one sets `ended`.

        Raises:
            DeviceFailed: it is not a line of this schema.
        """
        if self._first is not None:
            first, self._first = self._first, None
            return first
        end = time.monotonic() + seconds
        while self.ended is None:
            if (at := self._buffer.find(b"\n")) >= 0:
                text = bytes(self._buffer[:at])
                del self._buffer[: at + 1]
                return self._parsed(text)
            if len(self._buffer) > LONGEST:
                raise self._failed(f"it sends a line of more than {LONGEST} bytes")
            self._link.settimeout(max(0.0, end - time.monotonic()))
            try:
                data = self._link.recv(1 << 16)
            except (TimeoutError, BlockingIOError):
                return None
            except OSError as problem:
                self.ended = f"the connection broke: {os.strerror(problem.errno or 0)}"
                return None
            if not data:
                self.ended = "the process that published it has ended"
            self._buffer += data
        return None

    def _parsed(self, text: bytes) -> Mapping[str, Any] | None:
        try:
            found = json.loads(text)
            schema, about = found["schema"], found["publisher"]
        except (ValueError, TypeError, KeyError, RecursionError):
            schema, about, found = None, None, None
        if schema != SCHEMA or not _is_about(about):
            raise self._failed("what it sends has an unknown form")
        if "end" in found:
            self.ended = str(found["end"])
        return found if "metrics" in found else None

    def _failed(self, what: str) -> DeviceFailed:
        return DeviceFailed(
            what, where=str(self._path), hint="use the same version of Towline for publisher and reader"
        )
