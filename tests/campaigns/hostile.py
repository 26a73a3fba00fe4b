"""Clients that harm a server: how slowly they send, and how they leave; and what must stay flat meanwhile."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

MIB = 1 << 20
PATIENCE = 60.0
"""Seconds within which a server is rid of clients that have gone."""
PIECE = 700
"""Bytes of a piece of a message, at most; and of those that come singly."""
FLOOD, SPEAKERS = 40, 3
"""Connections at a time at most, and those of them that send."""
GROWTH = 48 * MIB
"""Bytes of resident memory by which a server's process may grow after that, over any number of cases."""


def _send(rng: random.Random, link: socket.socket, message: bytes) -> None:
    """A message whole, in pieces, or a byte at a time."""
    pieces = rng.choice((0, 0, 0, PIECE, 1))
    while message:
        size = rng.randint(1, pieces) if pieces else len(message)
        link.sendall(message[:size])
        message = message[size:]
        pieces = 0 if pieces == 1 and rng.random() < 0.05 else pieces


def _leave(rng: random.Random, link: socket.socket) -> None:
    """Read a little and close; close at once, with a FIN or a RST; or close one half and read the rest."""
    match rng.randrange(4):
        case 0:
            link.settimeout(0.01)
            while link.recv(1 << 16):
                pass
        case 1:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        case 2:
            link.shutdown(socket.SHUT_WR)
            link.settimeout(0.01)
            while link.recv(1 << 16):
                pass


@contextlib.contextmanager
def attack(
    rng: random.Random, connect: Callable[[], socket.socket], message: Callable[[], bytes]
) -> Iterator[None]:
    """Hostile clients, which have gone when the block begins; some that only began to speak go after it.

    Args:
        rng: draws what they do.
        connect: to the server.
        message: makes what one of them sends: several packets in a row.
    """
    kind = rng.random()
    count = 1 if kind < 0.7 else 2 if kind < 0.95 else rng.randint(3, FLOOD)
    with contextlib.ExitStack() as idle:
        with contextlib.ExitStack() as gone:
            sent = []
            for number in range(count):
                waits = rng.random() < 0.1
                with contextlib.suppress(OSError):
                    link = (idle if waits else gone).enter_context(connect())
                    link.settimeout(2.0)
                    data = message() if number < SPEAKERS else b""
                    if waits:
                        for byte in data[: rng.randrange(8)]:
                            link.sendall(bytes((byte,)))
                        continue
                    sent.append(link)
                    if rng.random() < 0.3:
                        data = data[: rng.randrange(len(data) + 1)]
                    _send(rng, link, data)
            for link in sent:
                with contextlib.suppress(OSError):
                    _leave(rng, link)
        yield


_trim = getattr(ctypes.CDLL(None), "malloc_trim", lambda pad: 0)
"""Gives free memory back to the system (glibc), so that what is left is in use."""


class Flat:
    """Threads, descriptors and memory of this process: they stay what they were.

    Args:
        checked: cases between two looks.
        settled: cases after which memory counts: until then caches fill.
    """

    def __init__(self, checked: int = 25, settled: int = 75) -> None:
        self._checked, self._settled = checked, settled
        self._cases = 0
        self._first = self._counted()
        self._memory = 0

    def grown(self) -> str | None:
        """To be called after each case, with all clients gone: what has grown, if anything has."""
        self._cases += 1
        if self._cases % self._checked:
            return None
        gc.collect()
        _trim(0)
        end = time.monotonic() + 2.0
        while (now := self._counted()) > self._first and time.monotonic() < end:
            time.sleep(0.01)  # a thread that ends
        if any(one > first for one, first in zip(now, self._first, strict=True)):
            threads = ", ".join(thread.name for thread in threading.enumerate())
            return f"(threads, descriptors): {self._first} at the beginning, now {now}: {threads}"
        memory = resident()
        if self._cases <= self._settled or not self._memory:
            self._memory = memory
        elif memory > self._memory + GROWTH:
            return f"{memory - self._memory:,} more bytes of memory after {self._cases} cases"
        return None

    def _counted(self) -> tuple[int, int]:
        return threading.active_count(), len(os.listdir("/proc/self/fd"))


def resident() -> int:
    """Bytes of resident memory of this process."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def until(condition: Callable[[], bool]) -> bool:
    """Wait for that; whether it came true."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True
