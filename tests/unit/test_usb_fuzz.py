"""Both protocols against peers that send random packets, and leave at random."""

from __future__ import annotations

import contextlib
import socket
import struct
from random import Random

import pytest

from emulator.usb.server import ProtocolSession
from emulator.usb.usbip import UsbIp
from emulator.usb.usbredir import UsbRedir
from emulator.usb.wire import Setup
from tests.contract.loopback_function import IN, OUT
from tests.usb_bench import HELLO, IMPORT, attached, bench, until
from tests.usb_remote import UsbIpClient, UsbRedirClient

REQUESTS = (*range(0xA0, 0xA5), 1, 3, 5, 6, 9, 11)
PACKETS = (3, 6, 7, 8, 9, 10, 12, 15, 18, 19, 21, 22, 23, 24, *[100, 101] * 8)
VALUES = (0, 1, 2, 3, 0x0100, 0x0200, 0x0F00)


def setup(dice: Random, length: int) -> Setup:
    kind = dice.choice((0x40, 0xC0, 0x80, 0x00, 0x01, 0x02))
    return Setup(kind, dice.choice(REQUESTS), dice.choice(VALUES), dice.choice((0, IN, OUT)), length)


def guest(dice: Random) -> bytes:
    """What a guest of usbredir sends, or might."""
    sent = HELLO if dice.random() < 0.95 else dice.randbytes(80)
    for _ in range(dice.randrange(1, 30)):
        kind = dice.choice(
            (3, 6, 7, 8, 9, 10, 12, 15, 18, 19, 21, 22, 23, 24, *[100, 101] * 8, dice.randrange(256))
        )
        body = dice.randbytes(dice.choice((0, 1, 2, 4, 8)))
        if kind == 100:
            length = dice.choice((0, 1, 64, 600))
            ask = setup(dice, length)
            head = (
                ask.request_type & 0x80,
                ask.request,
                ask.request_type,
                0,
                ask.value,
                ask.index,
                ask.length,
            )
            body = struct.pack("<BBBBHHH", *head) + (b"" if ask.is_in else dice.randbytes(ask.length))
        elif kind == 101:
            endpoint, length = dice.choice((IN, OUT, 0x82, 1, 0, 0xFF)), dice.choice((0, 1, 1024, 70000))
            body = struct.pack("<BBHIH", endpoint, 0, length & 0xFFFF, 0, length >> 16)
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
        ask = setup(dice, length)
        is_in = dice.randrange(2) if endpoint else int(ask.is_in)
        sent += struct.pack(
            ">5I5I8s", 1 if dice.random() < 0.98 else dice.getrandbits(4), number, 0x10002, is_in, endpoint,
            dice.choice((0, 1, 0x40, 0x200)), length, 0, dice.choice((0, 0, 0xFFFFFFFF, 3)), 0, ask.pack(),
        )  # fmt: skip
        sent += b"" if is_in else dice.randbytes(length)
    return sent


@pytest.mark.parametrize("front", [UsbRedir, UsbIp])
@pytest.mark.parametrize("seeds", [range(30), pytest.param(range(30, 400), marks=pytest.mark.slow)], ids=str)
def test_random_packets(front: type[ProtocolSession], seeds: range):
    with bench(front) as found:
        for seed in seeds:
            dice = Random(seed)
            sent = (guest if front is UsbRedir else client)(dice)
            if dice.random() < 0.3:
                sent = sent[: dice.randrange(len(sent) + 1)]
            with contextlib.suppress(OSError), found.connect() as peer:  # reset, or timed out
                peer.sendall(sent)
                if dice.random() < 0.5:
                    peer.shutdown(socket.SHUT_WR)
                else:
                    peer.settimeout(0.01)
                while peer.recv(65536):
                    pass
            assert not found.errors, f"seed {seed}"
        until(lambda: not found.server.peers and found.server.work is None)
        assert not any(pipe._queue for pipe in found.host._bulk.values())
        assert sum("disconnected" in line for line in found.said) > len(seeds) / 20
        sane = (UsbRedirClient if front is UsbRedir else UsbIpClient)(found.server.port, found.host.clock)
        with attached(sane):
            assert sane.control(Setup(0x80, 6, 0x0100, 0, 18))[8:10] == b"\xd1\xad"
