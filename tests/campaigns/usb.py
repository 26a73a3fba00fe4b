"""The servers of USB/IP and usbredir, with the emulated board behind them, against hostile hosts."""

from __future__ import annotations

import contextlib
import functools
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from random import Random

from emulator.board import Board
from emulator.usb.server import LOOPBACK, ProtocolSession, Server
from emulator.usb.usbip import UsbIp
from emulator.usb.usbredir import UsbRedir
from emulator.usb.wire import Setup
from firmware.protocol import requests
from tests.campaigns.campaign import Case, Surface
from tests.campaigns.hostile import Flat, attack, until
from tests.usb_bench import HELLO, IMPORT
from tests.usb_remote import UsbIpClient, UsbRedirClient

IN, OUT = 0x81, 0x02
REQUESTS = (*range(0xA0, 0xA5), 0xE4, 0xC0, 0xF9, 1, 3, 5, 6, 9, 11)
"""Of loopback functions, of our firmware as far as they change no register, and standard ones."""
VALUES = (0, 1, 2, 3, 0x0100, 0x0200, 0x0F00)
PACKETS = (3, 6, 7, 8, 9, 10, 12, 15, 18, 19, 21, 22, 23, 24, *[100, 101] * 8)
DESCRIPTOR = Setup(0x80, 6, 0x0100, 0, 18)
INFO = Setup(requests.VENDOR_IN, requests.INFO.code, 0, 0, 4)


def setup(dice: Random, length: int) -> Setup:
    """A request; the emulated devices survive each of them."""
    kind = dice.choice((0x40, 0xC0, 0x80, 0x00, 0x01, 0x02))
    return Setup(kind, dice.choice(REQUESTS), dice.choice(VALUES), dice.choice((0, IN, OUT)), length)


def guest(dice: Random) -> bytes:
    """What a guest of usbredir sends, or might."""
    sent = HELLO if dice.random() < 0.95 else dice.randbytes(80)
    for _ in range(dice.randrange(1, 30)):
        kind = dice.choice((*PACKETS, dice.randrange(256)))
        body = dice.randbytes(dice.choice((0, 1, 2, 4, 8)))
        if kind == 100:
            ask = setup(dice, dice.choice((0, 1, 64, 600)))
            where = ask.request_type & 0x80
            body = struct.pack(
                "<BBBBHHH", where, ask.request, ask.request_type, 0, ask.value, ask.index, ask.length
            )
            body += b"" if ask.is_in else dice.randbytes(ask.length)
        elif kind == 101:
            endpoint, length = dice.choice((IN, OUT, 0x82, 1, 0, 0xFF)), dice.choice((0, 1, 1024, 70000))
            body = struct.pack("<BBHIH", endpoint, 0, length & 0xFFFF, dice.choice((0, 0, 9)), length >> 16)
            body += b"" if endpoint & 0x80 else dice.randbytes(length)
        if dice.random() < 0.03:
            body = body[: dice.randrange(len(body) + 1)]
        length = len(body) if dice.random() < 0.99 else dice.getrandbits(32)
        sent += struct.pack("<IIQ", kind, length, dice.randrange(6)) + body
    return sent


def client(dice: Random) -> bytes:
    """The same of a client of USB/IP."""
    code = dice.choice((0x8005, 0x8003))
    sent = IMPORT if dice.random() < 0.95 else struct.pack(">HHI", 0x0111, code, 0) + dice.randbytes(40)
    number = 0
    for _ in range(dice.randrange(1, 30)):
        number += dice.choice((0, 1, 1, 1))
        if dice.random() < 0.2:
            sent += struct.pack(">5II24x", 2, number + 1000, 0x10002, 0, 0, dice.randrange(number + 2))
            continue
        endpoint = dice.choice((0, 0, 1, 2, 2, 15)) if dice.random() < 0.98 else dice.getrandbits(32)
        length = dice.choice((0, 1, 1024, 2048) if endpoint else (0, 1, 64, 600))
        if dice.random() < 0.01:
            length = dice.getrandbits(32)
        ask = setup(dice, length & 0xFFFF)
        is_in = dice.randrange(2) if endpoint else int(ask.is_in)
        sent += struct.pack(
            ">5I5I8s", 1 if dice.random() < 0.98 else dice.getrandbits(4), number, 0x10002, is_in, endpoint,
            dice.choice((0, 1, 0x40, 0x200)), length, 0, dice.choice((0, 0, 0xFFFFFFFF, 3)), 0, ask.pack(),
        )  # fmt: skip
        sent += b"" if is_in else dice.randbytes(min(length, 2048))
    return sent


@contextlib.contextmanager
def opened(front: type[ProtocolSession], scratch: Path) -> Iterator[Case]:
    """A server with our firmware's board, in a thread."""
    board = Board.of("firmware")
    said: deque[str] = deque(maxlen=100)
    server, errors = Server(board.usb, 0, front, said.append), list[BaseException]()

    def serve() -> None:
        try:
            server.serve()
        except BaseException as problem:
            errors.append(problem)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    sent, honest = (guest, UsbRedirClient) if front is UsbRedir else (client, UsbIpClient)

    def answers() -> tuple[bytes, bytes] | str:
        remote = honest(server.port, board.usb.clock)
        try:
            if not remote.wait_attached(10.0):
                return "an honest client gets no device"
            return remote.control(DESCRIPTOR), remote.control(INFO)
        except (AssertionError, OSError) as problem:
            return f"an honest client fails: {problem!r}"
        finally:
            remote.close()

    expected = answers()
    assert not isinstance(expected, str), expected
    assert until(lambda: not server.peers)
    flat = Flat()

    def connect() -> socket.socket:
        return socket.create_connection((LOOPBACK, server.port), 10.0)

    def case(rng: Random) -> str | None:
        with attack(rng, connect, lambda: sent(rng)):
            found = answers()
        if found != expected:
            return f"{found} and not {expected}; {[*said][-10:]}"
        if not until(lambda: not server.peers and server.work is None):
            return f"{len(server.peers)} clients have gone and are kept"
        if errors:
            raise errors[0]
        return flat.grown()

    yield case
    server.stop()
    thread.join(10)
    server.close()
    board.close()


USBIP = Surface(
    "usbip", "packets of USB/IP to the emulated board", functools.partial(opened, UsbIp), slice=60
)
USBREDIR = Surface(
    "usbredir", "packets of usbredir to the emulated board", functools.partial(opened, UsbRedir), slice=60
)
