"""The servers of usbredir and USB/IP beyond the contract of the fronts: detaching, wrong input, time."""

from __future__ import annotations

import contextlib
import itertools
import re
import signal
import socket
import struct
import subprocess
import sys
import time

import pytest

from emulator.usb import server, standard
from emulator.usb.server import ProtocolSession, Server
from emulator.usb.usbip import UsbIp
from emulator.usb.usbredir import UsbRedir
from emulator.usb.wire import Outcome, Setup, Speed
from sdk.errors import EnvironmentMissing
from tests.contract.loopback_function import BULK, ECHO, IN, LOOPBACK, OUT, SINK
from tests.usb_bench import HELLO, IMPORT, attached, bench, until
from tests.usb_remote import Remote, UsbIpClient, UsbRedirClient
from towline.cli import main


def test_usbredir_announces_the_endpoints_before_the_device_and_at_each_configuration():
    with bench(UsbRedir) as found, attached(UsbRedirClient(found.server.port, found.host.clock)) as client:
        assert client.seen[:3] == [5, 4, 1]  # ep_info, interface_info, device_connect
        assert client.endpoints == {0: (0, 512), 16: (0, 512), 2: (2, 1024), 17: (2, 1024)}
        assert client.interfaces == [(0, 0xFF, 0xFF, 0xFF)]
        client.control(standard.set_configuration(1))
        assert client.seen[3:] == [5, 4, 8]
        client.control(standard.set_interface(0, 0))
        assert client.seen[6:] == [5, 4, 11]


def test_a_link_that_drops_and_returns_over_usbredir():
    with bench(UsbRedir) as found, attached(UsbRedirClient(found.server.port, found.host.clock)) as client:
        client.control(Setup(0x40, BULK, LOOPBACK, 0, 0))
        pending = client.submit(IN, 64)
        found.host.unplug()
        client.wait(pending)
        assert pending.outcome is Outcome.GONE
        until(lambda: client.speed is None)
        found.host.plug()
        until(lambda: client.speed is Speed.SUPER)
        assert client.attachments == 2
        assert client.seen.count(2) == 1


def test_another_device_between_two_checks_is_another_device():
    with bench(UsbRedir) as found, attached(UsbRedirClient(found.server.port, found.host.clock)) as client:

        def exchange() -> None:
            found.host.detached()
            found.host.attached(Speed.SUPER)

        found.host.pump.post(exchange)
        until(lambda: client.attachments == 2)
        assert client.seen == [5, 4, 1, 2, 5, 4, 1]


def test_a_reset_gives_the_device_its_address_again():
    with bench(UsbRedir) as found, attached(UsbRedirClient(found.server.port, found.host.clock)) as client:
        found.function.seen.clear()
        client.control(Setup(0x40, BULK, LOOPBACK, 0, 0))
        pending = client.submit(IN, 64)
        client.reset()
        client.wait(pending)
        assert pending.outcome in (Outcome.CANCELLED, Outcome.GONE)
        client.control(standard.set_configuration(1))
        assert [setup.request for setup in found.function.seen] == [BULK, 5, 9]
        assert found.host.address


def test_a_second_guest_waits_until_the_first_has_gone():
    with bench(UsbRedir) as found, attached(UsbRedirClient(found.server.port, found.host.clock)) as first:
        second = UsbRedirClient(found.server.port, found.host.clock)
        assert not second.wait_attached(0.05)
        first.control(Setup(0x40, ECHO, 0, 0, 2), b"ok")
        first.close()
        with attached(second):
            assert second.control(Setup(0xC0, ECHO, 0, 0, 2)) == b"ok"


def echoes(client):
    client.control(Setup(0x40, ECHO, 0, 0, 2), b"ok")
    return client.control(Setup(0xC0, ECHO, 0, 0, 2)) == b"ok"


def test_idle_connections_do_not_keep_others_out():
    with bench(UsbIp) as found:
        idle = [found.connect() for _ in range(3 * server.MOST_PEERS)]
        with attached(UsbIpClient(found.server.port, found.host.clock)) as client:
            assert echoes(client)
            idle += [found.connect() for _ in range(server.MOST_PEERS)]
            assert echoes(client), "it has spoken, and stays"
        assert len(found.server.peers) <= server.MOST_PEERS
        for peer in idle:
            peer.close()


def test_transfers_under_way_are_bounded(monkeypatch):
    monkeypatch.setattr(server, "MOST_UNDER_WAY", 64 << 10)
    with bench(UsbIp) as found:
        peer = found.connect()
        peer.sendall(IMPORT)
        assert len(peer.recv(320, socket.MSG_WAITALL)) == 320
        with contextlib.suppress(ConnectionError):
            for key in range(1, 100):  # to an endpoint that takes nothing
                peer.sendall(struct.pack(">5I5I8x", 1, key, 0x10002, 0, 2, 0, 4096, 0, 0, 0) + bytes(4096))
        until(lambda: any("under way" in line for line in found.said))
        peer.close()
        with attached(UsbIpClient(found.server.port, found.host.clock)) as client:
            assert echoes(client)


def test_usbip_lists_and_refuses():
    with bench(UsbIp) as found:
        until(lambda: found.host.speed is not None)
        for busid, status in (("9-9", 1), ("1-1", 0)):
            peer = found.connect()
            peer.sendall(struct.pack(">HHI32s", 0x0111, 0x8003, 0, busid.encode()))
            assert struct.unpack(">HHI", peer.recv(8, socket.MSG_WAITALL)) == (0x0111, 3, status)
            if status:
                assert peer.recv(1) == b""
        late = found.connect()
        late.sendall(struct.pack(">HHI32s", 0x0111, 0x8003, 0, b"1-1"))
        assert late.recv(8, socket.MSG_WAITALL)[-1] == 1, "it is taken"
        listing = found.connect()
        listing.sendall(struct.pack(">HHI", 0x0111, 0x8005, 0))
        reply = listing.recv(12 + 312 + 4, socket.MSG_WAITALL)
        assert struct.unpack_from(">HHII", reply) == (0x0111, 5, 0, 1)
        assert struct.unpack_from(">IIIHHH6B4B", reply, 12 + 288) == (
            1, 2, 5, 0xADD1, 1, 1, 0, 0, 0, 1, 1, 1, 0xFF, 0xFF, 0xFF, 0
        )  # fmt: skip
        assert any("another client" in line for line in found.said)


def test_usbip_flags_of_urbs():
    with bench(UsbIp) as found, attached(UsbIpClient(found.server.port, found.host.clock)) as client:
        client.control(Setup(0x40, BULK, SINK, 0, 0))
        whole = client.submit_flagged(OUT, bytes(2048), 0x0040)
        client.wait(whole)
        assert (whole.outcome, whole.actual) == (Outcome.DONE, 2048)
        client.control(Setup(0x40, BULK, LOOPBACK, 0, 0))
        whole = client.submit_flagged(OUT, bytes(1024), 0x0040)
        assert len(client_read(client, 4096)) == 1024, "the empty packet ends it"
        client.wait(whole)
        short = client.submit_flagged(IN, 64, 0x0001)
        client.wait(client.submit(OUT, b"abc"))
        client.wait(short)
        assert (short.scratch["status"], bytes(short.data)) == (-121, b"abc")
        client.wait(client.submit(OUT, b"abc"))
        full = client.submit_flagged(IN, 3, 0x0001)
        client.wait(full)
        assert (full.scratch["status"], bytes(full.data)) == (0, b"abc")
        halted = client.submit_flagged(OUT, bytes(1024), 0x0040)  # its empty packet waits for room
        client.control(Setup(0x02, 3, 0, OUT, 0))
        client.wait(halted)
        assert (halted.outcome, halted.actual) == (Outcome.STALL, 1024)


def client_read(client: Remote, length: int) -> bytes:
    transfer = client.submit(IN, length)
    client.wait(transfer)
    return bytes(transfer.data)


def redirected(kind: int, body: bytes, length: int | None = None) -> bytes:
    return HELLO + struct.pack("<IIQ", kind, len(body) if length is None else length, 7) + body


def urb(command: int, endpoint: int = 0, length: int = 0, packets: int = 0xFFFFFFFF) -> bytes:
    return IMPORT + struct.pack(">5I5I8s", command, 7, 0, 1, endpoint, 0, length, 0, packets, 0, bytes(8))


@pytest.mark.parametrize(
    ("front", "sent", "message"),
    [
        (UsbRedir, b"GET / HTTP/1.1\r\n\r\n", "not a hello"),
        (UsbRedir, redirected(99, b""), "type 99"),
        (UsbRedir, redirected(6, b""), "type 6 with 0 bytes"),
        (UsbRedir, redirected(12, b""), "type 12 with 0 bytes"),
        (UsbRedir, redirected(100, b"\0" * 5), "type 100 with 5 bytes"),
        (UsbRedir, redirected(101, b"", 0xFFFFFFFF), "4,294,967,295 bytes"),
        (UsbIp, b"GET / HTTP/1.1\r\n\r\n", "not a request of USB/IP"),
        (UsbIp, urb(9), "command 9"),
        (UsbIp, urb(1, endpoint=16), "no endpoint 16"),
        (UsbIp, urb(1, endpoint=1, packets=0xFFFFFFF0), "bytes"),
    ],
    ids=itertools.count(),
)
def test_a_peer_that_breaks_the_protocol_is_disconnected(
    front: type[ProtocolSession], sent: bytes, message: str
):
    with bench(front) as found:
        until(lambda: found.host.speed is not None)
        with found.connect() as peer:
            peer.sendall(sent)
            while peer.recv(65536):
                pass
        until(lambda: any("has gone" in line for line in found.said))
        assert any(message in line and "disconnected" in line for line in found.said)
        client = {UsbRedir: UsbRedirClient, UsbIp: UsbIpClient}[front]
        with attached(client(found.server.port, found.host.clock)) as another:
            assert another.control(Setup(0x80, 6, 0x0100, 0, 18))[8:10] == b"\xd1\xad"


@pytest.mark.parametrize(
    ("kind", "answer", "message"),
    [
        (1, struct.pack("<BBH14x", 18, 1, 0x0200), "no configuration"),
        (2, bytes((9, 2, 11, 0, 1, 1, 0, 0, 0, 1, 0)), "impossible length"),
    ],
)
@pytest.mark.parametrize("front", [UsbRedir, UsbIp])
def test_wrong_descriptors_are_reported(front: type[ProtocolSession], kind: int, answer: bytes, message: str):
    with bench(front) as found:
        truth = found.function._descriptor
        found.function._descriptor = lambda of, index: answer if of == kind else truth(of, index)
        with found.connect() as peer:
            peer.sendall(HELLO if front is UsbRedir else IMPORT)
            until(lambda: any(message in line for line in found.said))


def test_wrong_transfers_are_answered():
    with bench(UsbRedir) as found, attached(UsbRedirClient(found.server.port, found.host.clock)) as client:
        client._packet(100, 901, struct.pack("<BBBBHHH", 0, ECHO, 0x40, 0, 0, 0, 9) + b"short")
        client._packet(101, 902, struct.pack("<BBHIH", 0, 0, 1, 0, 0) + b"x")
        client._packet(21, 903, b"")  # cancels nothing
        assert client.control(Setup(0xC0, ECHO, 0, 0, 2)) == b""
        assert client.invalid == [901, 902]


def test_idle_virtual_time_keeps_to_wall_time():
    with bench(UsbRedir) as found:
        until(lambda: found.host.speed is not None)
        wall, virtual = time.monotonic(), found.host.clock.now()
        time.sleep(0.1)
        assert 0 < found.host.clock.now() - virtual <= time.monotonic() - wall + 0.05


def test_a_port_that_is_taken():
    with bench(UsbRedir) as found, pytest.raises(EnvironmentMissing, match="not available"):
        Server(found.host, found.server.port, UsbRedir, found.said.append)


@pytest.mark.slow
def test_a_device_without_transfers_slows_down(monkeypatch):
    monkeypatch.setattr(server, "GRACE", 0.0)
    with bench(UsbRedir) as found:
        until(lambda: found.host.speed is not None)
        wall, virtual = time.monotonic(), found.host.clock.now()
        time.sleep(0.3)
        assert 0 < found.host.clock.now() - virtual < (time.monotonic() - wall) / 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--usbredir", "four"], "'four' is not a TCP port"),
        (["--usbip", "70000"], "'70000' is not a TCP port"),
        (["--usbredir", "0", "--usbip", "0"], "choose one"),
        (["--usbip", "0", "--no-host"], "--no-host cannot be combined"),
        (["--usbredir", "0", "--for", "5s"], "leave out --for"),
        (["--usbredir", "0", "--host", "x.py"], "--host cannot be combined"),
        (["--usbip", "0", "--replay", "x"], "--replay cannot be combined"),
        (["--usbredir", ""], "'' is not a TCP port"),
        (["--usbredir", "0", "--qmp", "localhost:99999"], "'99999' is not a TCP port"),
        (["--usbredir", "0", "--qmp", "localhost:"], "'' is not a TCP port"),
        (["--usbredir", "0", "--control", "C0:E4:9100:0:1"], "--control cannot be combined"),
        (["--qmp", "socket"], "give --usbredir or --usbip too"),
        (["--usbredir", "0", "--qmp", ""], "not empty"),
    ],
)
def test_options_that_do_not_go_together(capsys, words: list[str], message: str):
    assert main(["emulate", "vendor", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_port_that_is_taken_on_the_command_line(capsys):
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert main(["emulate", "vendor", "--usbredir", str(other.getsockname()[1])]) == 3
        assert "is not available" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("client", [UsbRedirClient, UsbIpClient])
def test_the_command_serves_until_ctrl_c(client: type[Remote]):
    option = "--usbredir" if client is UsbRedirClient else "--usbip"
    command = [sys.executable, "-m", "towline", "emulate", "vendor", option, "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            found = re.search(r"127\.0\.0\.1:(\d+) until Ctrl-C", process.stderr.readline())
            assert found is not None
            with attached(client(int(found[1]), None)) as device:
                assert device.control(Setup(0xC0, 0xE4, 0x9100, 0, 1)) == b"\3"
            err = ""
            while "has gone" not in err:
                err += process.stderr.readline()
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=20)
            assert process.returncode == 0, err
            assert "pcie: link up" in out
        finally:
            process.kill()
