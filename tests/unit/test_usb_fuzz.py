"""Both protocols against peers that send random packets, and leave at random; see tests/campaigns, too."""

from __future__ import annotations

import contextlib
import socket
from random import Random

import pytest

from emulator.usb.server import ProtocolSession
from emulator.usb.usbip import UsbIp
from emulator.usb.usbredir import UsbRedir
from emulator.usb.wire import Setup
from tests.campaigns.usb import client, guest
from tests.usb_bench import attached, bench, until
from tests.usb_remote import UsbIpClient, UsbRedirClient

CASES = 30


@pytest.mark.parametrize("front", [UsbRedir, UsbIp])
def test_random_packets(front: type[ProtocolSession]):
    with bench(front) as found:
        for seed in range(CASES):
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
        assert sum("disconnected" in line for line in found.said) > CASES / 20
        sane = (UsbRedirClient if front is UsbRedir else UsbIpClient)(found.server.port, found.host.clock)
        with attached(sane):
            assert sane.control(Setup(0x80, 6, 0x0100, 0, 18))[8:10] == b"\xd1\xad"
