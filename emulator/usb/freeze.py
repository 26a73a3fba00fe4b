"""Stops a QEMU guest while the device that it waits for is emulated more slowly than its clock runs.

A guest measures the time-outs of its transfers by its own clock, which QEMU stops with the guest (QMP: `stop`
and `cont`). So a guest that has run `LAG` longer than the device, since it began to wait for it, stands still
until the device has caught up or has answered.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable

from qemu.qmp import QMPClient, QMPError

from emulator.core.clock import seconds
from emulator.usb.server import Server, Work

LAG = 0.1
"""Seconds that the guest may be ahead of the device."""
POLL = 0.01
PATIENCE = 5.0
"""Seconds that QEMU may take to answer."""
RETRY = 1.0
"""Seconds until a QMP socket that was not there is tried again."""


class Freezer:
    """Keeps a guest from running away, until `close`.

    Args:
        server: its device's.
        address: QEMU's QMP socket: a path, or host and port. It is opened when a guest connects.
        say: takes messages, a line at a time.
    """

    def __init__(self, server: Server, address: str | tuple[str, int], say: Callable[[str], None]) -> None:
        self._server = server
        self._address = address
        self._say = say
        self._frozen = 0.0  # seconds, of the present stretch of work
        self._stopped: float | None = None  # since when the guest stands still
        self._closing = threading.Event()
        logging.getLogger("qemu.qmp").setLevel(logging.CRITICAL)  # its errors are raised as well
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Let the guest run, and close the connection."""
        self._closing.set()
        self._thread.join()

    async def _run(self) -> None:
        reached = True
        while not self._closing.wait(POLL):
            if not self._server.peers:
                continue
            try:
                qmp = QMPClient("towline")
                await asyncio.wait_for(qmp.connect(self._address), PATIENCE)
                reached = True
                self._say("the guest's clock stands still while the emulation catches up")
                try:
                    await self._watch(qmp)
                finally:
                    await qmp.disconnect()
            except (QMPError, OSError, EOFError) as problem:
                if reached:
                    address = self._address
                    place = address if isinstance(address, str) else "{}:{}".format(*address)
                    reason = str(problem) or "no answer"
                    self._say(f"no QMP at {place}: {reason}: time-outs of the guest may come early")
                reached = False
                self._closing.wait(RETRY)

    async def _watch(self, qmp: QMPClient) -> None:
        work: Work | None = None
        self._stopped = None
        try:
            while not self._closing.is_set() and self._server.peers:
                if self._server.work is not work:
                    work, self._frozen = self._server.work, 0.0
                    if self._stopped is not None:
                        self._stopped = time.monotonic()
                lag = self._lag(work)
                self._frozen += min(lag, 0.0)  # time that the device is ahead is not saved up
                if self._stopped is None and lag > LAG:
                    self._stopped = time.monotonic()
                    await asyncio.wait_for(qmp.execute("stop"), PATIENCE)
                elif self._stopped is not None and lag <= 0:
                    await self._go_on(qmp)
                await asyncio.sleep(POLL)
        finally:
            if self._stopped is not None:
                await self._go_on(qmp)

    async def _go_on(self, qmp: QMPClient) -> None:
        if self._stopped is not None:
            self._frozen += time.monotonic() - self._stopped
        self._stopped = None
        await asyncio.wait_for(qmp.execute("cont"), PATIENCE)

    def _lag(self, work: Work | None) -> float:
        """Seconds that the guest has run longer than the device since the work began."""
        if work is None:
            return 0.0
        now = time.monotonic()
        frozen = self._frozen + (now - self._stopped if self._stopped is not None else 0.0)
        return now - work.wall - frozen - seconds(self._server.host.pump.scheduler.now - work.clock)
