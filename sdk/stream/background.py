"""Work on a device in a thread of its own, so that the fallback answers in the meantime."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Background(Generic[T]):
    """Begins at once.

    Args:
        work: what it does; nothing else uses the device until it has ended.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._found: T | None = None
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="towline-stream", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait for its end, however that is."""
        self._thread.join()

    @property
    def ended(self) -> bool:
        """Whether it has."""
        return not self._thread.is_alive()

    def wait(self, seconds: float) -> T | None:
        """Its result, if it has ended by then.

        Raises:
            BaseException: what the work raised.
        """
        self._thread.join(seconds)
        if not self.ended:
            return None
        if self._problem is not None:
            raise self._problem
        return self._found

    def _run(self) -> None:
        try:
            self._found = self._work()
        except BaseException as problem:  # raised where it is waited for
            self._problem = problem
