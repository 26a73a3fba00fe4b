"""Several inferences at a time where a device runs one: each in a session of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from sdk.errors import DeviceFailed
from sdk.graph import Array
from sdk.target import DeviceSession


class Crew:
    """Sessions of one program, made when they are needed.

    Args:
        make: opens one more.
        most: at a time.
    """

    def __init__(self, make: Callable[[], DeviceSession], most: int) -> None:
        self._make = make
        self._pool = ThreadPoolExecutor(most, "inference")
        self._lock = threading.Lock()
        self._all: list[DeviceSession] = []
        self._idle: list[DeviceSession] = []
        self._closed = False

    def submit(self, inputs: Mapping[str, Array]) -> Callable[[], dict[str, Array]]:
        """Begin an inference; what is returned waits for its outputs. Raises DeviceFailed: it is closed."""
        with self._lock:
            if self._closed:
                raise DeviceFailed("the session is closed")
            return self._pool.submit(self._run, inputs).result

    def close(self) -> None:
        """Close all sessions; inferences that still run fail. Idempotent."""
        with self._lock:
            self._closed = True
            for session in self._all:
                session.close()
        self._pool.shutdown(cancel_futures=True)

    def _run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        session = self._take()
        try:
            return session.run(inputs)
        finally:
            self._idle.append(session)

    def _take(self) -> DeviceSession:
        with self._lock:
            if self._closed:
                raise DeviceFailed("the session is closed")
            if not self._idle:
                self._all.append(self._make())
                return self._all[-1]
            return self._idle.pop()
