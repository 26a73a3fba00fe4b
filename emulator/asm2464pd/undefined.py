"""Uses of the chip whose outcome is unknown: reported once, or refused under `--strict`."""

from __future__ import annotations

import logging

from emulator.core.bus import Bus
from sdk.errors import DeviceFailed

log = logging.getLogger(__name__)


class Undefined(DeviceFailed):
    """Under `--strict`: something happened whose effect on the real chip is unknown."""

    code = "undefined"


class Reporter:
    """Reports undefined uses of one block.

    Args:
        bus: whose `strict` decides, and whose `place` says where the CPU was.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._said: set[str] = set()

    def report(self, what: str, *, hint: str, detail: str = "") -> None:
        """Log `what` the first time that it happens; `detail` may differ each time.

        Raises:
            Undefined: the bus is strict.
        """
        where = self._bus.place()
        message = f"{what} ({detail})" if detail else what
        if self._bus.strict:
            raise Undefined(message, where=where, hint=hint)
        if what not in self._said:
            self._said.add(what)
            log.warning("%s: %s; %s", where, message, hint)
