"""usbredir and USB/IP byte for byte, and what a peer may do that our own clients do not."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from emulator.usb import server, standard
from emulator.usb.server import ProtocolSession
from emulator.usb.usbip import UsbIp
from emulator.usb.usbredir import UsbRedir
from emulator.usb.wire import Outcome, Setup, Transfer
from sdk.errors import DeviceFailed
from tests.contract.loopback_function import BABBLE, BULK, ECHO, IN, LOOPBACK, OUT, SINK, SOURCE
from tests.usb_bench import HELLO, IMPORT, Bench, attached, bench, until
from tests.usb_remote import Remote, UsbIpClient, UsbRedirClient

CLIENTS = {UsbRedir: UsbRedirClient, UsbIp: UsbIpClient}
FRONTS = pytest.mark.parametrize("front", CLIENTS)


@contextmanager
def client_of(front: type[ProtocolSession]) -> Iterator[tuple[Bench, Remote]]:
    with bench(front) as found, attached(CLIENTS[front](found.server.port, found.host.clock)) as client:
        yield found, client


def received(peer: socket.socket, size: int) -> bytes:
    data = peer.recv(size, socket.MSG_WAITALL) if size else b""
    assert len(data) == size
    return data


class OldGuest:
    """A guest of usbredir with hardly more than the first version."""

    def __init__(self, found: Bench, capabilities: bytes = b"") -> None:
        self.peer = found.connect()
        self.send(0, 0, b"old".ljust(64, b"\0") + capabilities)

    def send(self, kind: int, key: int, body: bytes) -> None:
        self.peer.sendall(struct.pack("<III", kind, len(body), key) + body)

    def packet(self) -> tuple[int, int, bytes]:
        kind, length, key = struct.unpack("<III", received(self.peer, 12))
        return kind, key, received(self.peer, length)


def test_an_old_guest_gets_packets_of_its_size():
    with bench(UsbRedir) as found:
        guest = OldGuest(found)
        with guest.peer:
            kind, key, hello = guest.packet()
            assert (kind, key, len(hello)) == (0, 0, 68)
            assert hello.startswith(b"towline ")
            kinds = [guest.packet() for _ in range(3)]
            assert [(kind, key, len(body)) for kind, key, body in kinds] == [
                (5, 0, 96),
                (4, 0, 132),
                (1, 0, 8),
            ]
            assert kinds[0][2][:32] == bytes((0, 255, 2, *(255,) * 13, 0, 2, *(255,) * 14))
            assert kinds[2][2] == struct.pack("<BBBBHH", 3, 0, 0, 0, 0xADD1, 1)
            guest.send(100, 7, struct.pack("<BBBBHHH", 0, BULK, 0x40, 0, LOOPBACK, 0, 0))
            assert guest.packet() == (100, 7, struct.pack("<BBBBHHH", 0, BULK, 0x40, 0, LOOPBACK, 0, 0))
            guest.send(101, 8, struct.pack("<BBHI", OUT, 0, 3, 0) + b"abc")
            assert guest.packet() == (101, 8, struct.pack("<BBHI", OUT, 0, 3, 0))
            guest.send(101, 9, struct.pack("<BBHI", IN, 0, 0xFFFF, 0))
            assert guest.packet() == (101, 9, struct.pack("<BBHI", IN, 0, 3, 0) + b"abc")
            found.host.unplug()
            assert guest.packet() == (2, 0, b"")
            found.host.plug()  # it acknowledges nothing
            assert [guest.packet()[0] for _ in range(3)] == [5, 4, 1]


def test_the_next_device_waits_until_the_guest_knows_that_the_last_has_gone():
    with bench(UsbRedir) as found:
        guest = OldGuest(found, struct.pack("<II", 1 << 3, 0))
        with guest.peer:
            assert [guest.packet()[0] for _ in range(4)] == [0, 5, 4, 1]
            found.host.unplug()
            assert guest.packet() == (2, 0, b"")
            found.host.plug()
            until(lambda: found.host.speed is not None)
            guest.peer.settimeout(0.05)
            with pytest.raises(TimeoutError):
                guest.packet()
            guest.peer.settimeout(10)
            guest.send(24, 0, b"")
            assert [guest.packet()[0] for _ in range(3)] == [5, 4, 1]


def test_the_state_of_a_device_over_usbredir(monkeypatch):
    monkeypatch.setattr(standard, "PATIENCE", 0.2)
    with bench(UsbRedir) as found:
        guest = OldGuest(found)
        with guest.peer:
            for _ in range(4):
                guest.packet()
            for kind, body, answer in (
                (7, b"", (8, b"\0\1")),
                (10, b"\0", (11, b"\0\0\0")),
                (12, b"\x81\0\0", (14, b"\2\x81")),
                (15, b"\x81", (17, b"\2\x81")),
                (18, struct.pack("<II", 1 << 17, 4), (20, struct.pack("<IIB", 1 << 17, 4, 0))),
                (19, struct.pack("<I", 1 << 17), (20, struct.pack("<IIB", 1 << 17, 0, 0))),
            ):
                guest.send(kind, 5, body)
                assert guest.packet() == (answer[0], 5, answer[1])
            found.function.silent.add(9)
            guest.send(6, 6, b"\1")
            assert guest.packet() == (8, 6, b"\5\1"), "timed out, and as it was"
            found.function.silent.clear()
            guest.send(6, 6, b"\0")
            assert [guest.packet()[0] for _ in range(2)] == [5, 4]
            assert guest.packet() == (8, 6, b"\0\0")


def test_a_device_that_a_reset_leaves_silent_goes_and_returns(monkeypatch):
    monkeypatch.setattr(standard, "PATIENCE", 0.2)
    with bench(UsbRedir) as found:
        guest = OldGuest(found)
        with guest.peer:
            for _ in range(4):
                guest.packet()
            found.function.silent.add(standard.RequestCode.SET_ADDRESS)
            guest.send(3, 0, b"")
            assert guest.packet() == (2, 0, b"")
            assert "the device does not answer after a reset" in found.said
            guest.send(101, 8, struct.pack("<BBHI", IN, 0, 64, 0))  # meant for the one that has gone
            found.function.silent.clear()
            found.host.unplug()
            found.host.plug()
            assert [guest.packet()[0] for _ in range(3)] == [5, 4, 1]


def test_wrong_transfers_over_usbredir_are_answered():
    with client_of(UsbRedir) as (_, client):
        client.control(Setup(0x40, BULK, SOURCE, 0, 0))
        wrong = [
            (100, struct.pack("<BBBBHHH", 0, ECHO, 0x40, 0, 0, 0, 9) + b"short"),
            (100, struct.pack("<BBBBHHH", 0x80, ECHO, 0x40, 0, 0, 0, 0)),  # two directions
            (100, struct.pack("<BBBBHHH", 1, ECHO, 0x40, 0, 0, 0, 0)),  # not a control endpoint
            (101, struct.pack("<BBHIH", 0, 0, 1, 0, 0) + b"x"),
            (101, struct.pack("<BBHIH", IN, 0, 64, 0, 0) + bytes(64)),
            (101, struct.pack("<BBHIH", 0x91, 0, 64, 0, 0)),
            (101, struct.pack("<BBHIH", IN, 0, 0, 0, 0xFFFF)),  # 4 GiB, more than the limit
        ]
        for number, (kind, body) in enumerate(wrong, 901):
            client._packet(kind, number, body)
        client._packet(21, 999, b"")  # cancels nothing
        assert client.control(Setup(0xC0, ECHO, 0, 0, 2)) == b""
        assert client.invalid == [901, 902, 903, 904, 905, 906, 907]


@FRONTS
def test_transfers_of_an_endpoint_end_in_order(front: type[ProtocolSession]):
    with client_of(front) as (_, client):
        client.control(Setup(0x40, BULK, LOOPBACK, 0, 0))
        ended: list[Transfer] = []
        reads = [client.submit(IN, 2048, on_done=ended.append) for _ in range(8)]
        writes = [client.submit(OUT, bytes((i,)) * (i + 1), on_done=ended.append) for i in range(8)]
        for transfer in reads + writes:
            client.wait(transfer)
        assert [bytes(read.data) for read in reads] == [bytes((i,)) * (i + 1) for i in range(8)]
        assert [transfer for transfer in ended if transfer in reads] == reads
        assert [transfer for transfer in ended if transfer in writes] == writes


@FRONTS
def test_one_of_several_is_cancelled(front: type[ProtocolSession]):
    with client_of(front) as (_, client):
        client.control(Setup(0x40, BULK, LOOPBACK, 0, 0))
        reads = [client.submit(IN, 64) for _ in range(3)]
        client.cancel(reads[1])
        client.wait(reads[1])
        for data in (b"first", b"second"):
            client.wait(client.submit(OUT, data))
        for read in reads:
            client.wait(read)
        client.cancel(reads[0])  # has ended
        assert [read.outcome for read in reads] == [Outcome.DONE, Outcome.CANCELLED, Outcome.DONE]
        assert [bytes(read.data) for read in reads] == [b"first", b"", b"second"]


@FRONTS
def test_more_than_was_asked_for(front: type[ProtocolSession]):
    with client_of(front) as (_, client):
        transfer = client.submit_control(Setup(0xC0, BABBLE, 0, 0, 4))
        client.wait(transfer)
        assert (transfer.outcome, bytes(transfer.data)) == (Outcome.OVERFLOW, bytes(4))
        client.control(Setup(0x40, BULK, SOURCE, 0, 0))
        read = client.submit(IN, 100)
        client.wait(read)
        assert (read.outcome, bytes(read.data)) == (Outcome.OVERFLOW, bytes(range(100)))
        whole = client.submit(IN, 70 * 1024)  # more than 16 bits of length
        client.wait(whole)
        assert (whole.outcome, len(whole.data)) == (Outcome.DONE, 70 * 1024)


@FRONTS
def test_a_peer_that_leaves_in_the_middle_leaves_nothing_behind(front: type[ProtocolSession]):
    with client_of(front) as (found, client):
        client.control(Setup(0x40, BULK, LOOPBACK, 0, 0))
        client.submit(IN, 64)
        client.submit(OUT, bytes(65536))
        until(lambda: found.server.work is not None)
        client._socket.sendall(b"half a packet")
        client.close()
        until(lambda: not found.server.peers)
        until(lambda: found.server.work is None)
        with attached(CLIENTS[front](found.server.port, found.host.clock)) as another:
            another.control(Setup(0x40, BULK, SINK, 0, 0))
            write = another.submit(OUT, bytes(100))
            another.wait(write)
            assert write.outcome is Outcome.DONE


@FRONTS
def test_a_packet_that_comes_byte_by_byte(front: type[ProtocolSession]):
    with bench(front) as found, found.connect() as peer:
        for byte in HELLO if front is UsbRedir else IMPORT:
            peer.sendall(bytes((byte,)))
        if front is UsbRedir:
            received(peer, 80)
            assert struct.unpack("<IIQ", received(peer, 16))[0] == 5
        else:
            assert received(peer, 8) == struct.pack(">HHI", 0x0111, 3, 0)


def test_a_peer_that_takes_no_answers_is_not_read_from(monkeypatch):
    monkeypatch.setattr(server, "MAX_DATA", 1024)
    size, packets = 1 << 19, 1 << 9
    with bench(UsbIp) as found, found.connect() as peer:
        carried_out = 0

        def packet(endpoint: int) -> bytes:
            nonlocal carried_out
            carried_out += 1
            return bytes(1024)

        def read(key: int) -> None:
            peer.sendall(struct.pack(">5I5I8x", 1, key, 0x10002, 1, 1, 0, size, 0, 0, 0))

        found.function.bulk_in = packet
        peer.sendall(IMPORT)
        asked = carried_out_before = 0
        while carried_out == asked * packets:  # the sockets have room, and may make more of it
            asked += 1
            assert asked < 200
            read(asked)
            still = time.monotonic()
            while carried_out < asked * packets and time.monotonic() < still + 0.3:
                if carried_out != carried_out_before:
                    carried_out_before, still = carried_out, time.monotonic()
                time.sleep(0.005)
        assert carried_out == (asked - 1) * packets
        taken = 0
        while taken < asked * size:
            taken += len(peer.recv(1 << 20))


def test_an_answer_of_usbip_has_the_packets_of_its_request():
    with bench(UsbIp) as found, found.connect() as peer:
        peer.sendall(IMPORT)
        received(peer, 320)
        for packets, length, status, answered in (
            (0, 2, 0, 0),
            (0xFFFFFFFF, 2, 0, 0xFFFFFFFF),
            (2, 0, -22, 0),  # isochronous
            (0, 0x7FFFFFFF, -22, 0),
        ):
            setup = Setup(0xC0, 0xA3, 0, 0, 2).pack()
            endpoint = 0 if length == 2 else 1
            command = struct.pack(">5I5I8s", 1, 9, 0x10002, 1, endpoint, 0, length, 0, packets, 0, setup)
            peer.sendall(command + (bytes(16 * packets) if packets == 2 else b""))
            data = bytes(2) if not status else b""
            expected = struct.pack(">5Ii4I8x", 3, 9, 0, 0, 0, status, len(data), 0, answered, 0)
            assert received(peer, len(expected) + len(data)) == expected + data


def test_an_unlinked_urb_returns_once():
    with bench(UsbIp) as found, found.connect() as peer:
        peer.sendall(IMPORT)
        received(peer, 320)
        setup = Setup(0x40, BULK, LOOPBACK, 0, 0).pack()
        peer.sendall(struct.pack(">5I5I8s", 1, 1, 0x10002, 0, 0, 0, 0, 0, 0, 0, setup))
        received(peer, 48)
        read = struct.pack(">5I5I8x", 1, 2, 0x10002, 1, 1, 0, 64, 0, 0, 0)
        flagged = struct.pack(">5I5I8x", 1, 3, 0x10002, 0, 2, 0x40, 1024, 0, 0, 0) + bytes(1024)
        unlink = ">5II24x"
        peer.sendall(flagged)  # its first packet goes, the empty one waits for room
        until(lambda: found.function.taken == 1024)
        peer.sendall(flagged)  # under the same number
        assert received(peer, 48) == struct.pack(">5Ii24x", 3, 3, 0, 0, 0, -22)
        peer.sendall(struct.pack(unlink, 2, 4, 0x10002, 0, 0, 3))
        assert received(peer, 48) == struct.pack(">5Ii24x", 4, 4, 0, 0, 0, -104)
        peer.sendall(read)
        head = received(peer, 48)
        assert struct.unpack_from(">5IiI", head) == (3, 2, 0, 0, 0, -75, 64), "1024 bytes for 64"
        received(peer, 64)
        peer.sendall(struct.pack(unlink, 2, 5, 0x10002, 0, 0, 2))
        assert received(peer, 48) == struct.pack(">5Ii24x", 4, 5, 0, 0, 0, 0)
        peer.sendall(struct.pack(unlink, 2, 6, 0x10002, 0, 0, 77))
        assert received(peer, 48) == struct.pack(">5Ii24x", 4, 6, 0, 0, 0, 0)


def test_a_device_that_leaves_a_client_of_usbip():
    with bench(UsbIp) as found, found.connect() as peer:
        peer.sendall(IMPORT)
        received(peer, 320)
        peer.sendall(struct.pack(">5I5I8x", 1, 2, 0x10002, 1, 1, 0, 64, 0, 0, 0))
        until(lambda: found.server.work is not None)
        found.host.unplug()
        assert received(peer, 48) == struct.pack(">5Ii24x", 3, 2, 0, 0, 0, -108)
        assert peer.recv(1) == b"", "the protocol has no other message for it"


@FRONTS
def test_firmware_that_crashes_in_the_enumeration_ends_the_run(front: type[ProtocolSession]):
    with bench(front) as found:
        truth = found.function.setup

        def crash(packet: bytes) -> None:
            if packet[3] == standard.DescriptorType.BOS:  # which a device may refuse
                raise DeviceFailed("a guard of the CPU")
            truth(packet)

        until(lambda: found.host.speed is not None)
        found.function.setup = crash
        with found.connect() as peer:
            peer.sendall(HELLO if front is UsbRedir else IMPORT)
            until(lambda: bool(found.errors))
        assert str(found.errors.pop()) == "a guard of the CPU"


def test_closing_leaves_the_device_without_a_client():
    with bench(UsbRedir) as found:
        first = UsbRedirClient(found.server.port, found.host.clock)
        assert first.wait_attached(10.0)
        second = OldGuest(found)
        until(lambda: len(found.server.peers) == 2)
        found.function.seen.clear()
    first.close()
    second.peer.close()
    assert found.function.seen == []
