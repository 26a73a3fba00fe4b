"""The capture of USB traffic, byte by byte and as tshark decodes it."""

from __future__ import annotations

import shutil
import struct
import subprocess

import pytest

from emulator.usb import pcap
from emulator.usb.host import Host
from emulator.usb.pcap import Capture
from emulator.usb.wire import Setup, Speed, Stall
from sdk.errors import OutputFailed
from tests.contract.loopback_function import BULK, LOOPBACK, REFUSED, LoopbackFunction
from tests.contract.usb_fixture import QuietWorld

OUT, IN = 0x02, 0x81
MASS_STORAGE = (8, 6, 0x50)
CBW = struct.pack("<4sIIBBB16s", b"USBC", 0x1234, 0, 0, 0, 6, bytes(16))  # TEST UNIT READY
CSW = struct.pack("<4sIIB", b"USBS", 0x1234, 0, 0)


@pytest.fixture
def host():
    world = QuietWorld()
    host = Host(LoopbackFunction(world.clock, kind=MASS_STORAGE), world, best=Speed.SUPER)
    host.plug()
    return host


def traffic(host: Host) -> None:
    """Enumeration, a stall, a command and a status, and a read that is cancelled."""
    host.enumerate(address=5)
    with pytest.raises(Stall):
        host.control(Setup(0xC0, REFUSED, 0, 0, 4))
    host.control(Setup(0x40, BULK, LOOPBACK, 0, 0))
    for data in (CBW, CSW):
        host.wait(host.submit(OUT, data))
        host.wait(host.submit(IN, 1024))
    with pytest.raises(TimeoutError):
        host.wait(host.submit(IN, 64), timeout=0.5)


def records(data: bytes):
    """(header fields, data) of each whole record, and how many bytes are left over."""
    found = []
    place = pcap.FILE_HEADER.size
    while place + pcap.RECORD_HEADER.size <= len(data):
        size = pcap.RECORD_HEADER.unpack_from(data, place)[2]
        start = place + pcap.RECORD_HEADER.size
        if start + size > len(data):
            break
        body = data[start + pcap.URB_HEADER.size : start + size]
        found.append((pcap.URB_HEADER.unpack_from(data, start), body))
        place = start + size
    return found, len(data) - place


def test_two_records_per_transfer(host, tmp_path):
    path = tmp_path / "usb.pcap"
    with Capture(path) as capture:
        host.observers.append(capture)
        traffic(host)
    found, rest = records(path.read_bytes())
    assert rest == 0
    begun = {fields[0] for fields, _ in found if fields[1] == ord("S")}
    ended = [fields[0] for fields, _ in found if fields[1] == ord("C")]
    assert begun == set(ended)
    assert len(begun) == len(ended)
    times = [(fields[8], fields[9]) for fields, _ in found]
    assert times == sorted(times)
    last, _ = found[-1]
    assert last[10] == -2  # ENOENT: cancelled
    assert found[0][0][4] == 0  # nothing has an address before SET_ADDRESS
    assert last[4] == 5


def test_a_file_cut_short_is_readable_to_its_last_whole_record(host, tmp_path):
    path = tmp_path / "usb.pcap"
    with Capture(path) as capture:
        host.observers.append(capture)
        traffic(host)
    whole, _ = records(path.read_bytes())
    fewer, rest = records(path.read_bytes()[:-7])
    assert fewer == whole[:-1]
    assert rest > 0


def test_long_data_is_cut_and_marked(host, tmp_path):
    path = tmp_path / "usb.pcap"
    host.enumerate()
    host.control(Setup(0x40, BULK, 3, 0, 0))
    with Capture(path) as capture:
        host.observers.append(capture)
        host.wait(host.submit(OUT, bytes(pcap.LONGEST)))
    (submitted, data), (completed, nothing) = records(path.read_bytes())[0]
    assert submitted[11] == completed[11] == pcap.LONGEST
    assert submitted[12] == len(data) == pcap.LONGEST - pcap.URB_HEADER.size
    assert nothing == b""


def test_a_file_that_cannot_be_created(tmp_path):
    with pytest.raises(OutputFailed, match="cannot be written"):
        Capture(tmp_path / "missing" / "usb.pcap")


def test_a_full_disk_is_reported_at_the_end_and_stops_nothing(host):
    capture = Capture("/dev/full")
    host.observers.append(capture)
    traffic(host)
    with pytest.raises(OutputFailed, match="No space left"):
        capture.close()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
def test_tshark_decodes_it(host, tmp_path):
    path = tmp_path / "usb.pcap"
    with Capture(path) as capture:
        host.observers.append(capture)
        traffic(host)
    fields = (
        "usb.setup.bRequest", "usb.idVendor", "usb.bInterfaceClass", "usb.urb_status", "usbms.dCBWTag",
        "usbms.dCSWStatus", "usb.device_address", "_ws.malformed",
    )  # fmt: skip
    command = ["tshark", "-r", str(path), "-T", "fields", "-E", "separator=;", "-E", "occurrence=f"]
    for field in fields:
        command += ["-e", field]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    rows = [dict(zip(fields, line.split(";"), strict=True)) for line in done.stdout.splitlines()]
    assert len(rows) == len(records(path.read_bytes())[0])

    def values(field: str) -> list[str]:
        return [row[field] for row in rows if row[field]]

    assert "6" in values("usb.setup.bRequest")
    assert {int(value, 16) for value in values("usb.idVendor")} == {0xADD1}
    commands = [row["usb.bInterfaceClass"] for row in rows if row["usbms.dCBWTag"]]
    assert {int(value, 16) for value in commands} == {8}
    assert "-32" in values("usb.urb_status")
    assert {int(value, 16) for value in values("usbms.dCBWTag")} == {0x1234}
    assert "0x00" in values("usbms.dCSWStatus")
    assert values("usb.device_address")[-1] == "5"
    assert not values("_ws.malformed")
