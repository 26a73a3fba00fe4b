"""A USB device of the plainest kind, for what the host's side does without any chip.

It has the requests of the emulator's vendor test image (`emulator/images/vendor/selftest.h`): A0 keeps and
returns data, A1 is stalled, A2 says what the bulk endpoints do, A3 counts. It halts endpoints for real, and
leaves EP0 unanswered for a while so that every transfer meets NAK.
"""

from __future__ import annotations

import struct
from collections import deque

from emulator.core.clock import Scheduler, clocks
from emulator.usb.wire import Handshake, Partner, Setup, Speed

ECHO, REFUSED, BULK, COUNT, BABBLE = 0xA0, 0xA1, 0xA2, 0xA3, 0xA4
IDLE, LOOPBACK, SOURCE, SINK = range(4)
OUT, IN = 0x02, 0x81

BOS = bytes((5, 15, 22, 0, 2, 7, 16, 2, 2, 0, 0, 0, 10, 16, 3, 0, 12, 0, 2, 10, 0xFF, 7))
STRINGS = ("towline", "loopback", "test-1")


def _device(speed: Speed) -> bytes:
    usb, ep0 = (0x0320, 9) if speed.is_super else (0x0200, 64)
    return struct.pack("<BBHBBBBHHHBBBB", 18, 1, usb, 0, 0, 0, ep0, 0xADD1, 0x0001, 0x0001, 1, 2, 3, 1)


def _configuration(speed: Speed, kind: tuple[int, int, int]) -> bytes:
    body = bytes((9, 4, 0, 0, 2, *kind, 0))
    for endpoint in (IN, OUT):
        body += struct.pack("<BBBBHB", 7, 5, endpoint, 2, 1024 if speed.is_super else 512, 0)
        if speed.is_super:
            body += bytes((6, 48, 0, 0, 0, 0))
    return struct.pack("<BBHBBBBB", 9, 2, 9 + len(body), 1, 1, 0, 0xC0, 0) + body


class LoopbackFunction:
    """See the module.

    Args:
        clock: virtual time.
        delay: seconds for which each phase of EP0 answers NAK first.
        kind: class, subclass and protocol of the interface.
    """

    def __init__(
        self, clock: Scheduler, *, delay: float = 3e-6, kind: tuple[int, int, int] = (0xFF, 0xFF, 0xFF)
    ) -> None:
        self.clock = clock
        self.delay = clocks(delay)
        self.kind = kind
        self.partner: Partner | None = None
        self.speed = Speed.HIGH
        self.seen: list[Setup] = []
        self.silent: set[int] = set()  # requests that are never answered
        self.mode = IDLE
        self.stored = bytearray()
        self.taken = 0
        self._setup = Setup(0, 0, 0, 0, 0)
        self._packets: deque[bytes] = deque()
        self._halted: set[int] = set()
        self._answer: bytes | None = b""  # None: refused
        self._sent = 0
        self._received = bytearray()
        self._open = False

    # -- wire.Function ----------------------------------------------------------------------------------

    def connect(self, partner: Partner | None) -> None:
        self.partner = partner
        self.bus_reset()
        if partner is not None:
            self.speed = partner.best
            self.clock.after(clocks(1e-3), self._attach)

    def bus_reset(self) -> None:
        self._halted.clear()
        self._use_bulk(IDLE)

    def setup(self, packet: bytes) -> None:
        self._setup = setup = Setup.unpack(packet)
        self.seen.append(setup)
        self._sent = 0
        self._received.clear()
        self._answer = self._standard(setup) if setup.request_type & 0x60 == 0 else self._vendor(setup)
        self._pause()

    def control_out(self, data: bytes) -> Handshake:
        if self._answer is None:
            return Handshake.STALL
        if not self._open:
            return Handshake.NAK
        self._received += data
        self._pause()
        return Handshake.ACK

    def control_in(self) -> bytes | Handshake:
        if self._answer is None:
            return Handshake.STALL
        if not self._open:
            return Handshake.NAK
        size = 512 if self.speed.is_super else 64
        limit = len(self._answer) if self._setup.request == BABBLE else self._setup.length
        packet = self._answer[self._sent : min(limit, self._sent + size)]
        self._sent += len(packet)
        self._pause()
        return packet

    def status(self) -> Handshake:
        if self._answer is None:
            return Handshake.STALL
        if not self._open:
            return Handshake.NAK
        if self._setup.request == ECHO and not self._setup.is_in:
            self.stored[:] = self._received
        return Handshake.ACK

    def bulk_out(self, endpoint: int, data: bytes) -> Handshake:
        if endpoint in self._halted:
            return Handshake.STALL
        if endpoint != OUT or self.mode not in (LOOPBACK, SINK) or len(self._packets) >= 1:
            return Handshake.NAK
        self.taken += len(data)
        if self.mode == LOOPBACK:
            self._packets.append(data)
            self._ready(IN)
        return Handshake.ACK

    def bulk_in(self, endpoint: int) -> bytes | Handshake:
        if endpoint in self._halted:
            return Handshake.STALL
        if endpoint == IN and self.mode == SOURCE:
            return bytes(i & 0xFF for i in range(1024 if self.speed.is_super else 512))
        if endpoint != IN or not self._packets:
            return Handshake.NAK
        packet = self._packets.popleft()
        self._ready(OUT)
        return packet

    def packet_clocks(self, endpoint: int, size: int) -> int:
        return 100 + size // 8

    # -- inside -----------------------------------------------------------------------------------------

    def _attach(self) -> None:
        if self.partner is not None:
            self.partner.attached(self.speed)

    def _ready(self, endpoint: int) -> None:
        if self.partner is not None:
            self.partner.ready(endpoint)

    def _pause(self) -> None:
        """EP0 answers NAK for a while, and says when that is over."""
        self._open = False
        if self._setup.request not in self.silent:
            self.clock.after(self.delay, self._resume)

    def _resume(self) -> None:
        self._open = True
        self._ready(0)

    def _use_bulk(self, mode: int) -> None:
        self.mode = mode
        self.taken = 0
        self._packets.clear()
        self._ready(OUT)
        self._ready(IN)

    def _vendor(self, setup: Setup) -> bytes | None:
        match setup.request, setup.is_in:
            case (0xA0, True):
                return bytes(self.stored)
            case (0xA0, False):
                return b""
            case (0xA2, False):
                self._use_bulk(setup.value)
                return b""
            case (0xA3, True):
                return self.taken.to_bytes(4, "little")
            case (0xA4, True):
                return bytes(setup.length + 1)
        return None

    def _standard(self, setup: Setup) -> bytes | None:
        match setup.request_type, setup.request:
            case 0x80, 6:
                return self._descriptor(setup.value >> 8, setup.value & 0xFF)
            case (0x00, 5 | 9) | (0x01, 11):
                return b""
            case (0x02, 1) if setup.value == 0:
                self._halted.discard(setup.index)
                return b""
            case (0x02, 3) if setup.value == 0:
                self._halted.add(setup.index)
                self._ready(setup.index)
                return b""
        return None

    def _descriptor(self, kind: int, index: int) -> bytes | None:
        if kind == 1:
            return _device(self.speed)
        if kind == 2:
            return _configuration(self.speed, self.kind)
        if kind == 3 and index == 0:
            return bytes((4, 3, 9, 4))
        if kind == 3 and index <= len(STRINGS):
            text = STRINGS[index - 1].encode("utf-16-le")
            return bytes((2 + len(text), 3)) + text
        return BOS if kind == 15 and self.speed.is_super else None
