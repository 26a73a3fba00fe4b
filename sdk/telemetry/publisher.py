"""The owner's side: lines of JSON for the user's processes that connect.

A thread has the sockets, and the owner's work only hands it the latest document: nothing that a reader does,
or fails to do, reaches that work. A reader gets the latest line when it connects, and later ones as they
come. One that does not read loses lines, and is dropped after LOSSES of them; what a reader sends is ignored,
and too much of it ends the connection.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any

from sdk.report import SCHEMA, dumps
from sdk.telemetry import places
from sdk.telemetry.metrics import Identity
from sdk.telemetry.names import is_name
from sdk.telemetry.places import NameTaken, Untrusted

READERS = 16
"""Connections at a time; those beyond get a line that says so, and are closed."""
ACCEPT_PAUSE = 0.05
"""Seconds between two looks at connections that wait: a flood of them is served READERS at a time."""
LOSSES = 20
"""Lines one after the other that a reader may lose."""
SEND_BUFFER = 16 << 10
"""Bytes that the kernel keeps for a reader: some 20 lines (Linux doubles it)."""
IGNORED = 64 << 10
"""Bytes that a reader may send, all of which are ignored."""
CLOSING = 0.2
"""Seconds for the last line to leave."""
SAME = 9
"""Publishers of one process with names made for them."""


class Publisher:
    """Publishes documents until it is closed. A context manager.

    Args:
        device: the device string.
        identity: of the device, if that is known.
        name: of the socket; None for the place of a real device, else the device's kind with the process id.
        about: what else each line says of its publisher.

    Attributes:
        name: of the socket.

    Raises:
        NameTaken: a live process publishes under this name.
        OutputFailed, UsageError, Untrusted: as `places.listen`.
    """

    def __init__(
        self, device: str, identity: Identity | None = None, name: str | None = None, **about: Any
    ) -> None:
        self._listener, self._path = _listening(device, identity, name)
        self.name = self._path.name.removesuffix(places.SUFFIX)
        self._about = {
            "name": self.name,
            "pid": os.getpid(),
            "device": device,
            "place": None if identity is None else identity.place,
            "serial": None if identity is None else identity.serial,
            "chip": None if identity is None else identity.chip,
            **about,
        }
        self._latest: Mapping[str, Any] = {"wall": time.time(), "metrics": None, "stream": None}
        self._fresh = self._closing = False
        self._readers: dict[socket.socket, _Reader] = {}
        self._selector = selectors.DefaultSelector()
        self._alarm, self._wake = socket.socketpair()
        for end in (self._alarm, self._wake):
            end.setblocking(False)
        self._thread = threading.Thread(target=self._serve, name="towline-publisher", daemon=True)
        self._thread.start()

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def publish(self, document: Mapping[str, Any]) -> None:
        """Publish a document in place of the one before; it must not change afterwards. Never waits."""
        self._latest = {"wall": time.time(), **document}
        self._fresh = True
        self._ring()

    def close(self, cause: str = "it has ended") -> None:
        """Send the latest document again with the cause of the end, and remove the socket. Idempotent."""
        if self._closing:
            return
        self._latest, self._closing = {**self._latest, "wall": time.time(), "end": cause}, True
        self._ring()
        self._thread.join(10 * CLOSING)
        self._wake.close()

    def _ring(self) -> None:
        with contextlib.suppress(OSError):  # it rings already, or is closed
            self._wake.send(b"!")

    # -- the thread -------------------------------------------------------------------------------------

    def _serve(self) -> None:
        selector, accepts = self._selector, True
        selector.register(self._alarm, selectors.EVENT_READ)
        selector.register(self._listener, selectors.EVENT_READ)
        resume = 0.0
        while not self._closing:
            for key, events in selector.select(None if accepts else max(0.0, resume - time.monotonic())):
                if key.fileobj is self._alarm:
                    _drained(self._alarm)
                elif key.fileobj is self._listener:
                    self._accept()
                    selector.unregister(self._listener)
                    accepts, resume = False, time.monotonic() + ACCEPT_PAUSE
                elif isinstance(key.data, _Reader) and not key.data.serve(events):
                    self._drop(key.data)
            if not accepts and time.monotonic() >= resume:
                selector.register(self._listener, selectors.EVENT_READ)
                accepts = True
            if self._fresh and not self._closing:
                self._fresh = False
                self._send_all()
        self._end()

    def _line(self, document: Mapping[str, Any]) -> bytes:
        line = dumps({"schema": SCHEMA, "publisher": self._about, **document}, line=True)
        return line.encode("ascii") + b"\n"

    def _accept(self) -> None:
        for _ in range(READERS):
            try:
                link, _ = self._listener.accept()
            except OSError:  # there are no more, or this process has no descriptor left
                break
            try:
                link.setblocking(False)
                link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
                places.require_own_peer(link, self.name)
                if len(self._readers) >= READERS:
                    link.send(self._line({"end": f"it has {READERS} readers, and takes no more"}))
                    link.close()
                    continue
            except (OSError, Untrusted):
                link.close()
                continue
            self._readers[link] = _Reader(link, self._selector)
        self._send_all()

    def _send_all(self) -> None:
        """Send the latest document to those to whom it was not sent."""
        document = self._latest
        line = self._line(document)
        for reader in [one for one in self._readers.values() if one.document is not document]:
            reader.document = document
            if not reader.send(line):
                self._drop(reader)

    def _drop(self, reader: _Reader) -> None:
        self._readers.pop(reader.link, None)
        reader.close()

    def _end(self) -> None:
        self._send_all()
        limit = time.monotonic() + CLOSING
        while any(one.pending for one in self._readers.values()) and time.monotonic() < limit:
            for key, events in self._selector.select(max(0.0, limit - time.monotonic())):
                if isinstance(key.data, _Reader) and not key.data.serve(events):
                    self._drop(key.data)
        places.remove(self._path)  # before the socket is closed: a name that nothing listens on is free
        for reader in list(self._readers.values()):
            self._drop(reader)
        self._listener.close()
        self._selector.close()
        self._alarm.close()


class _Reader:
    """A connection.

    Attributes:
        link: its socket.
        document: the last one that was sent, or lost.
        pending: what is left of a line that has begun to leave.
    """

    def __init__(self, link: socket.socket, selector: selectors.BaseSelector) -> None:
        self.link = link
        self.document: Mapping[str, Any] | None = None
        self.pending = b""
        self._selector = selector
        self._lost = 0
        self._ignored = 0
        self._events = selectors.EVENT_READ
        selector.register(link, self._events, self)

    def send(self, line: bytes) -> bool:
        """Send a line if it reads; False if it is to be dropped."""
        if self.pending:
            self._lost += 1
            return self._lost < LOSSES
        self._lost = 0
        self.pending = line
        return self._flush()

    def serve(self, events: int) -> bool:
        """Something can be read or written; False if it is to be dropped."""
        if events & selectors.EVENT_READ and not self._read():
            return False
        return not events & selectors.EVENT_WRITE or self._flush()

    def close(self) -> None:
        """Close it."""
        if self._events:
            self._selector.unregister(self.link)
            self._events = 0
        self.link.close()

    def _read(self) -> bool:
        try:
            data = self.link.recv(4096)
            if not data:
                self._watch(self._events & ~selectors.EVENT_READ)
                self.link.send(b"")  # fails if it is gone; it may have closed its own half only
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._ignored += len(data)
        return self._ignored <= IGNORED

    def _flush(self) -> bool:
        try:
            sent = self.link.send(self.pending) if self.pending else 0
        except BlockingIOError:
            sent = 0
        except OSError:
            return False
        self.pending = self.pending[sent:]
        more = selectors.EVENT_WRITE if self.pending else 0
        self._watch(self._events & ~selectors.EVENT_WRITE | more)
        return True

    def _watch(self, events: int) -> None:
        if events == self._events:
            return
        if not events:
            self._selector.unregister(self.link)
        elif not self._events:
            self._selector.register(self.link, events, self)
        else:
            self._selector.modify(self.link, events, self)
        self._events = events


def _listening(device: str, identity: Identity | None, name: str | None) -> tuple[socket.socket, Any]:
    """A socket with the name asked for, or with one made of the device."""
    if name is not None:
        return places.listen(name)
    kind = device.partition("?")[0].partition(":")[0]
    real = identity is not None and kind == "usb"
    made = identity.place if identity is not None and real else f"{kind}-{os.getpid()}"
    if not is_name(made):
        made = f"device-{os.getpid()}"
    for number in range(1, SAME + 1):
        try:
            return places.listen(made if number == 1 else f"{made}-{number}")
        except NameTaken:
            if real or number == SAME:
                raise
    raise AssertionError("the last attempt returns or raises")


def _drained(alarm: socket.socket) -> None:
    with contextlib.suppress(BlockingIOError):
        while alarm.recv(4096):
            pass
