"""Clients of usbredir and USB/IP, written from the protocols' descriptions, that look like a `usb.host.Host`.

What a guest's kernel and controller do is here: SET_ADDRESS goes nowhere, over usbredir SET_CONFIGURATION and
SET_INTERFACE have packets of their own, over USB/IP a bus reset is not sent. With `pyusb_backend.Backend`
on top a program sees pyusb. Time-outs are by the clock of the device, which the tests have at hand.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from emulator.usb import standard
from emulator.usb.wire import Outcome, Setup, Speed, Stall, Transfer

REDIRECTED = {0: Outcome.DONE, 1: Outcome.CANCELLED, 3: Outcome.GONE, 4: Outcome.STALL, 6: Outcome.OVERFLOW}
URBS = {
    0: Outcome.DONE,
    -32: Outcome.STALL,
    -104: Outcome.CANCELLED,
    -108: Outcome.GONE,
    -75: Outcome.OVERFLOW,
}
"""Outcomes by status: usb_redir's, and Linux's errno."""
URBS[-121] = Outcome.DONE  # as far as it came: SHORT_NOT_OK
POLL = 0.002
PATIENCE = 30.0
"""Wall seconds after which an answer counts as missing."""


class Remote(ABC):
    """A device behind a TCP port.

    Args:
        port: on loopback.
        clock: the device's virtual time.
    """

    def __init__(self, port: int, clock: Any) -> None:
        self.port = port
        self.clock = clock
        self.attachments = 0
        self.configuration = 0
        self._speed: Speed | None = None
        self._socket: socket.socket | None = None
        self._pending: dict[int, Transfer] = {}
        self._number = 0
        self._lock = threading.Condition()
        self._reader: threading.Thread | None = None

    # -- what pyusb_backend needs of a port ---------------------------------------------------------------

    @property
    def speed(self) -> Speed | None:
        return self._speed

    def submit(
        self,
        endpoint: int,
        data_or_length: Any,
        stream: int = 0,
        on_done: Callable[[Transfer], None] | None = None,
    ) -> Transfer:
        is_in = isinstance(data_or_length, int)
        data = bytearray() if is_in else bytearray(data_or_length)
        length = data_or_length if is_in else len(data)
        return self._begin(Transfer(endpoint, length, data, stream=stream, on_done=on_done))

    def submit_control(
        self, setup: Setup, data: bytes = b"", on_done: Callable[[Transfer], None] | None = None
    ) -> Transfer:
        transfer = Transfer(0, setup.length, bytearray(data), setup=setup, on_done=on_done)
        if (setup.request_type, setup.request) == (0, standard.RequestCode.SET_ADDRESS):
            transfer.outcome = Outcome.DONE
            return transfer
        return self._begin(transfer)

    def wait(self, transfer: Transfer, *, timeout: float | None = None) -> None:
        end = None if timeout is None else self.clock.now() + timeout
        overdue = time.monotonic() + PATIENCE
        with self._lock:
            while transfer.outcome is None:
                if end is not None and self.clock.now() >= end:
                    self._cancel(transfer)
                    while transfer.outcome is None:
                        assert self._lock.wait(PATIENCE), "no answer to a cancel"
                    if transfer.outcome is Outcome.CANCELLED:
                        raise TimeoutError
                    return
                assert time.monotonic() < overdue, f"no answer to {transfer}"
                self._lock.wait(POLL)

    def control(self, setup: Setup, data: bytes = b"", *, timeout: float | None = None) -> bytes:
        transfer = self.submit_control(setup, data)
        self.wait(transfer, timeout=timeout)
        if transfer.outcome is Outcome.STALL:
            raise Stall
        if transfer.outcome is not Outcome.DONE:
            raise ConnectionError(transfer.outcome)
        return bytes(transfer.data) if setup.is_in else b""

    def cancel(self, transfer: Transfer) -> None:
        with self._lock:
            self._cancel(transfer)

    def enumerate(self, address: int, configuration: int | None = None) -> standard.Descriptors:
        return standard.enumerate_device(self, address, configuration)

    @abstractmethod
    def wait_attached(self, seconds: float) -> bool: ...

    def why(self, endpoint: int | None) -> str:
        """What the device waits for is not known at this end of a socket."""
        return ""

    @abstractmethod
    def reset(self) -> None: ...

    def close(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            if self._reader is not None:
                self._reader.join(PATIENCE)  # it would wait for a descriptor that is another's by then
            self._socket.close()

    # -- the connection -----------------------------------------------------------------------------------

    def _connect(self) -> None:
        self._socket = connection = socket.create_connection(("127.0.0.1", self.port), PATIENCE)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _listen(self) -> None:
        self._reader = threading.Thread(target=self._read_on, args=(self._socket,), daemon=True)
        self._reader.start()

    def _read_on(self, connection: socket.socket) -> None:
        try:
            while self._socket is connection:
                self._read_packet()
        except OSError:
            if self._socket is connection:
                self._gone()

    def _gone(self) -> None:
        with self._lock:
            self._speed = None
            pending, self._pending = list(self._pending), self._pending
            for number in pending:
                self._end(number, Outcome.GONE)

    def _receive(self, size: int) -> bytes:
        assert self._socket is not None
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise ConnectionError
            data += part
        return bytes(data)

    def _begin(self, transfer: Transfer) -> Transfer:
        with self._lock:
            if self._speed is None:
                transfer.outcome = Outcome.GONE
                return transfer
            self._number += 1
            self._pending[self._number] = transfer
            self._send(self._number, transfer)
        return transfer

    def _cancel(self, transfer: Transfer) -> None:
        for number, pending in self._pending.items():
            if pending is transfer:
                self._send_cancel(number)

    def _end(self, number: int, outcome: Outcome, actual: int = 0, data: bytes = b"") -> None:
        with self._lock:
            transfer = self._pending.pop(number)
            setup = transfer.setup
            if transfer.endpoint & 0x80 or (setup is not None and setup.is_in):
                transfer.data[:] = data
            if (
                outcome is Outcome.DONE
                and setup is not None
                and (setup.request_type, setup.request) == (0, 9)
            ):
                self.configuration = setup.value
            transfer.actual = actual
            transfer.outcome = outcome
            self._lock.notify_all()
        if transfer.on_done is not None:
            transfer.on_done(transfer)

    @abstractmethod
    def _read_packet(self) -> None: ...

    @abstractmethod
    def _send(self, number: int, transfer: Transfer) -> None: ...

    @abstractmethod
    def _send_cancel(self, number: int) -> None: ...


class UsbRedirClient(Remote):
    """The guest's end of usbredir: version 0.7, 64-bit ids, 32-bit lengths."""

    CAPABILITIES = 0b1111010

    def __init__(self, port: int, clock: Any) -> None:
        super().__init__(port, clock)
        self.endpoints: dict[int, tuple[int, int]] = {}
        self.interfaces: list[tuple[int, int, int, int]] = []
        self.seen: list[int] = []
        self.invalid: list[int] = []  # ids of transfers that were not ours, refused

    def wait_attached(self, seconds: float) -> bool:
        if self._socket is None:
            self._connect()
            self._packet(0, 0, b"tests".ljust(64, b"\0") + struct.pack("<I", self.CAPABILITIES), wide=False)
            kind, length, _ = struct.unpack("<III", self._receive(12))
            hello = self._receive(length)
            assert kind == 0
            assert int.from_bytes(hello[64:68], "little") & self.CAPABILITIES == self.CAPABILITIES
            self._listen()
        end = time.monotonic() + min(seconds, PATIENCE)
        with self._lock:
            while self._speed is None and time.monotonic() < end:
                self._lock.wait(POLL)
        return self._speed is not None

    def reset(self) -> None:
        if self._speed is None:
            raise ConnectionError
        self._packet(3, 0, b"")

    def _packet(self, kind: int, number: int, body: bytes, *, wide: bool = True) -> None:
        assert self._socket is not None
        try:
            self._socket.sendall(struct.pack("<IIQ" if wide else "<III", kind, len(body), number) + body)
        except OSError as problem:
            raise ConnectionError from problem

    def _send(self, number: int, transfer: Transfer) -> None:
        setup, data = transfer.setup, bytes(transfer.data)
        if setup is None:
            low, high = transfer.length & 0xFFFF, transfer.length >> 16
            head = struct.pack("<BBHIH", transfer.endpoint, 0, low, transfer.stream, high)
            self._packet(101, number, head + data)
        elif (setup.request_type, setup.request) == (0, 9):
            self._packet(6, number, bytes((setup.value,)))
        elif (setup.request_type, setup.request) == (1, 11):
            self._packet(9, number, bytes((setup.index, setup.value)))
        else:
            endpoint = setup.request_type & 0x80
            head = (endpoint, setup.request, setup.request_type, 0, setup.value, setup.index, setup.length)
            self._packet(100, number, struct.pack("<BBBBHHH", *head) + data)

    def _send_cancel(self, number: int) -> None:
        self._packet(21, number, b"")

    def _read_packet(self) -> None:
        kind, length, number = struct.unpack("<IIQ", self._receive(16))
        body = self._receive(length)
        self.seen.append(kind)
        if kind == 1:
            with self._lock:
                assert 4 in self.seen, "interface_info comes first"
                assert 5 in self.seen, "ep_info comes first"
                self._speed = {2: Speed.HIGH, 3: Speed.SUPER}[body[0]]
                self.attachments += 1
                self.configuration = 1  # a host has configured it
                self._lock.notify_all()
        elif kind == 2:
            self._packet(24, 0, b"")
            self._gone()
        elif kind == 4:
            count = int.from_bytes(body[:4], "little")
            self.interfaces = [tuple(body[4 + 32 * field + i] for field in range(4)) for i in range(count)]  # type: ignore[misc]
        elif kind == 5:
            sizes = struct.unpack_from("<32H", body, 96)
            self.endpoints = {i: (body[i], sizes[i]) for i in range(32) if body[i] != 255}
        elif kind in (8, 11):
            self._end(number, REDIRECTED[body[0]])
        elif kind in (100, 101) and number not in self._pending:
            if body[3 if kind == 100 else 1] == 2:  # usb_redir_inval
                self.invalid.append(number)
        elif kind == 100:
            status, actual = body[3], int.from_bytes(body[8:10], "little")
            self._end(number, REDIRECTED[status], actual, body[10:])
        elif kind == 101:
            status, actual = body[1], int.from_bytes(body[2:4] + body[8:10], "little")
            self._end(number, REDIRECTED[status], actual, body[10:])
        else:
            raise AssertionError(f"packet {kind}")


class UsbIpClient(Remote):
    """The client's end of USB/IP 1.1.1."""

    def __init__(self, port: int, clock: Any) -> None:
        super().__init__(port, clock)
        self._unlinking: dict[int, int] = {}

    def wait_attached(self, seconds: float) -> bool:
        if self._speed is not None:
            return True
        end = time.monotonic() + min(seconds, PATIENCE)
        while time.monotonic() < end:
            self._connect()
            assert self._socket is not None
            self._socket.sendall(struct.pack(">HHI32s", 0x0111, 0x8003, 0, b"1-1"))
            version, code, status = struct.unpack(">HHI", self._receive(8))
            assert (version, code) == (0x0111, 0x0003)
            if not status:
                device = self._receive(312)
                assert device[256:288].rstrip(b"\0") == b"1-1"
                self._speed = {3: Speed.HIGH, 5: Speed.SUPER}[int.from_bytes(device[296:300], "big")]
                self.configuration = device[309]
                self.attachments += 1
                self._listen()
                return True
            self._socket.close()
            time.sleep(0.01)
        return False

    def reset(self) -> None:
        if self._speed is None:
            raise ConnectionError

    def submit_flagged(self, endpoint: int, data_or_length: bytes | int, flags: int) -> Transfer:
        """A transfer whose URB has these transfer_flags; its status is in `scratch`."""
        data = bytearray() if isinstance(data_or_length, int) else bytearray(data_or_length)
        length = data_or_length if isinstance(data_or_length, int) else len(data)
        return self._begin(Transfer(endpoint, length, data, scratch={"flags": flags}))

    def _send(self, number: int, transfer: Transfer) -> None:
        setup, flags = transfer.setup, transfer.scratch.get("flags", 0)
        is_in = setup.is_in if setup is not None else bool(transfer.endpoint & 0x80)
        command = struct.pack(
            ">5I5I8s", 1, number, 1 << 16 | 2, is_in, transfer.endpoint & 0x0F,
            flags, transfer.length, 0, 0xFFFFFFFF, 0, setup.pack() if setup is not None else b"",
        )  # fmt: skip
        self._write(command + bytes(transfer.data))

    def _send_cancel(self, number: int) -> None:
        self._number += 1
        self._unlinking[self._number] = number
        self._write(struct.pack(">5II24x", 2, self._number, 1 << 16 | 2, 0, 0, number))

    def _write(self, data: bytes) -> None:
        assert self._socket is not None
        try:
            self._socket.sendall(data)
        except OSError:
            self._gone()

    def _read_packet(self) -> None:
        command, number, _, _, _, status, actual = struct.unpack(">5IiI20x", self._receive(48))
        if command == 4:
            victim = self._unlinking.pop(number)
            assert (status == -104) is (victim in self._pending), "an unlinked URB returns once"
            if victim in self._pending:
                self._end(victim, Outcome.CANCELLED)
            return
        assert command == 3
        transfer = self._pending[number]
        setup = transfer.setup
        is_in = setup.is_in if setup is not None else bool(transfer.endpoint & 0x80)
        data = self._receive(actual) if is_in else b""
        transfer.scratch["status"] = status
        self._end(number, URBS[status], actual, data)
