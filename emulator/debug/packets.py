"""Packets of the GDB remote serial protocol on a socket (GDB manual, "Remote Protocol", "Overview").

`$data#checksum`, acknowledged by `+` or `-` until both sides agree not to. A byte 0x03 between packets asks a
running target to stop. A thread reads, so that this is noticed while the target runs.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from collections.abc import Callable

MAX_PACKET = 0x4000
"""The most bytes of data of a packet; reported to GDB."""
MOST_PACKETS = 256
"""Packets that may wait: GDB sends one, and waits for its answer."""
_ESCAPED = b"#$}*"


def frame(data: bytes) -> bytes:
    """A packet with that data."""
    escaped = bytearray()
    for byte in data:
        escaped += bytes((0x7D, byte ^ 0x20)) if byte in _ESCAPED else bytes((byte,))
    return b"$" + bytes(escaped) + b"#%02x" % (sum(escaped) & 0xFF)


def unescaped(data: bytes) -> bytes:
    """The data of a packet as it was sent."""
    out, place = bytearray(), 0
    while place < len(data):
        escape = data[place] == 0x7D and place + 1 < len(data)
        out.append(data[place + 1] ^ 0x20 if escape else data[place])
        place += 2 if escape else 1
    return bytes(out)


class Connection:
    """A connected GDB.

    Args:
        peer: the socket; closed by `close`.
        interrupted: called in the reading thread when GDB sends 0x03, or disconnects.

    Attributes:
        lost: whether GDB has disconnected; packets from before may still wait.
    """

    def __init__(self, peer: socket.socket, interrupted: Callable[[], None]) -> None:
        self._peer = peer
        self._interrupted = interrupted
        self._packets: queue.Queue[bytes | None] = queue.Queue()
        self._lock = threading.Lock()
        self._acknowledge = True
        self.lost = False
        self._last = b""
        self._reader = threading.Thread(target=self._read, name="gdb", daemon=True)
        self._reader.start()

    def receive(self, timeout: float) -> bytes | None:
        """The data of the next packet; None if GDB has disconnected.

        Raises:
            TimeoutError: none came within `timeout` seconds.
        """
        try:
            packet = self._packets.get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError from None
        if packet is None:
            self._packets.put(None)  # for the next call
        return packet

    def send(self, data: bytes) -> None:
        """Send a packet; it is dropped if GDB has disconnected."""
        self._last = frame(data)
        self._write(self._last)

    def stop_acknowledging(self) -> None:
        """From the next packet on, neither side acknowledges."""
        self._acknowledge = False

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(OSError):
            self._peer.shutdown(socket.SHUT_RDWR)
        self._peer.close()
        self._reader.join(timeout=5)

    def _write(self, data: bytes) -> None:
        with self._lock, contextlib.suppress(OSError):
            self._peer.sendall(data)

    def _read(self) -> None:
        pending = b""
        while True:
            try:
                data = self._peer.recv(0x10000)
            except OSError:
                data = b""
            if not data:
                break
            try:
                pending = self._consume(pending + data)
            except ConnectionError:
                break
            if len(pending) > 4 * MAX_PACKET:
                break  # this is not GDB
        self._packets.put(None)
        self.lost = True
        self._interrupted()

    def _consume(self, data: bytes) -> bytes:
        """Take whole packets from the front of `data`; returns the rest."""
        while True:
            between, start, rest = data.partition(b"$")
            if b"\x03" in between:
                self._interrupted()
            if b"-" in between and self._acknowledge:
                self._write(self._last)
            body, end, checksum = rest.partition(b"#")
            if not end or len(checksum) < 2:
                return start + rest
            self._take(body, checksum[:2])
            data = checksum[2:]

    def _take(self, body: bytes, checksum: bytes) -> None:
        if self._acknowledge:
            if checksum.lower() != b"%02x" % (sum(body) & 0xFF):
                self._write(b"-")
                return
            self._write(b"+")
        if self._packets.qsize() >= MOST_PACKETS:
            raise ConnectionError("it waits for no answer")
        self._packets.put(unescaped(body))
