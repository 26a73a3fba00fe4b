"""Several boards on one host: which one a device string means, which process has it, which one has come back.

The boards are emulated; pyusb finds them where it looks for real ones, so that locks and wall-clock time are
those of real devices.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import usb.core

from emulator.board import Board
from emulator.options import Options, described
from emulator.usb.pyusb_backend import Backend
from sdk.errors import DeviceMissing, UsageError
from towline.cli import main
from usbgpu import transport
from usbgpu.transport import AccessDenied, DeviceBusy, DeviceString, Running, bus, lock, sysfs

ROOT = Path(__file__).parents[2]
FIRST, SECOND = "0000000a", "0000000b"


class Docks:
    """Boards in the ports of one host."""

    def __init__(self, *numbers):
        self.boards = [Board.of("firmware", Options(serial=bytes.fromhex(number))) for number in numbers]
        self.backend = Backend([board.usb for board in self.boards])
        self.backend.patience = 0.3


@pytest.fixture
def docks(monkeypatch, tmp_path):
    """Has pyusb find boards with these serial numbers where it looks by itself."""
    find = usb.core.find
    monkeypatch.setenv("TOWLINE_LOCKS", str(tmp_path))
    monkeypatch.setattr(sysfs, "DEVICES", tmp_path)

    def plug(*numbers):
        found = Docks(*numbers)
        monkeypatch.setattr(
            usb.core, "find", lambda backend=None, **how: find(backend=backend or found.backend, **how)
        )
        return found

    return plug


def test_device_strings_by_serial_number_and_by_port():
    for text, serial, port in [
        ("usb", None, None),
        ("usb:00c0ffee", "00c0ffee", None),
        ("usb:serial=00c0ffee", "00c0ffee", None),
        ("usb:port=2-1.4", None, "2-1.4"),
        ("usb:fd=7", None, None),
        ("emulated:port=1-1", None, None),
    ]:
        found = DeviceString.parse(text)
        assert (found.serial, found.port) == (serial, port), text
    for wrong in ("usb:port=", "usb:port=4", "usb:port=1-2.", "usb:port=usb-1-2", "usb:serial="):
        with pytest.raises(UsageError) as refused:
            DeviceString.parse(wrong)
        assert refused.value.where == wrong


@pytest.mark.slow
def test_a_board_is_opened_by_its_serial_number_or_its_port(docks):
    docks(FIRST, SECOND)
    for name, number in [
        (f"usb:{SECOND}", SECOND),
        (f"usb:serial={FIRST}", FIRST),
        ("usb:port=1-1", FIRST),
        ("usb:port=1-2", SECOND),
    ]:
        with transport.open(name) as device:
            assert device.identify().serial == number
            assert not device.is_emulated
    with pytest.raises(DeviceMissing) as missing:
        transport.open("usb:port=1-3")
    assert FIRST in missing.value.hint
    assert SECOND in missing.value.hint


@pytest.mark.slow
def test_a_choice_that_is_not_clear_lists_the_boards_and_who_has_them(docks):
    docks(FIRST, SECOND)
    with transport.open("usb:port=1-2"), pytest.raises(UsageError) as unclear:
        transport.open("usb")
    assert unclear.value.hint.endswith(
        f"usb:port=1-1 (serial {FIRST}), usb:port=1-2 (serial {SECOND}, in use by process {os.getpid()})"
    )
    docks(FIRST, FIRST)
    with pytest.raises(UsageError) as same:
        transport.open(f"usb:{FIRST}")
    assert "usb:port=1-2" in same.value.hint


def test_each_board_has_its_own_lock(docks):
    docks(FIRST, SECOND)
    with transport.open("usb:port=1-1") as first, transport.open("usb:port=1-2") as second:
        assert (first.identify().serial, second.identify().serial) == (FIRST, SECOND)
        with pytest.raises(DeviceBusy):
            transport.open(f"usb:{FIRST}")


def test_a_board_that_may_not_be_opened_does_not_hide_the_others(docks, monkeypatch):
    docks(FIRST, SECOND)
    serial = bus.serial

    def denied(device):
        if device.port_number == 1:
            raise AccessDenied("no permission", where="usb-1-1")
        return serial(device)

    monkeypatch.setattr(bus, "serial", denied)
    assert bus.the_one(DeviceString.parse(f"usb:{SECOND}")).port_number == 2
    with pytest.raises(AccessDenied):
        bus.the_one(DeviceString.parse(f"usb:{FIRST}"))


@pytest.mark.slow
def test_a_board_is_not_mistaken_for_another_that_comes_back_first(docks):
    found = docks(FIRST, SECOND)
    with transport.open("usb:port=1-1") as device:
        for board in found.boards:
            board.usb.unplug()
        found.boards[1].usb.plug()
        with pytest.raises(transport.Disconnected):
            device.reopen(0.2)
        found.boards[0].usb.plug()
        device.reopen(2.0)
        assert device.identify().serial == FIRST


def test_a_board_may_come_back_with_another_serial_number_if_one_of_them_is_none(docks):
    found = docks("ffffffff", SECOND)
    (device, _) = bus.devices(None)
    present = {(device.bus, device.address)}
    again = bus.again(found.backend, present, "usb-9-9", "0" * 20)
    assert again.port_number == 2, "a boot loader became firmware, in another port"
    assert bus.again(found.backend, present, "usb-9-9", FIRST) is None
    (_, other) = bus.devices(None)
    present = {(other.bus, other.address)}
    assert bus.again(found.backend, present, "usb-9-9", FIRST).port_number == 1, "firmware, a boot loader"


HOLDER = """
import sys
from usbgpu.transport.lock import DeviceLock
lock = DeviceLock("usb-2-1.4")
print("held", flush=True)
sys.stdin.read()
"""


def test_the_holder_of_a_lock_is_known_without_disturbing_it(monkeypatch, tmp_path):
    monkeypatch.setenv("TOWLINE_LOCKS", str(tmp_path))
    assert lock.holder("usb-2-1.4") is None
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "held\n"
        assert lock.holder("usb-2-1.4") == holder.pid
    finally:
        holder.kill()
        holder.communicate()
    assert lock.holder("usb-2-1.4") is None
    monkeypatch.setattr(lock, "LOCKS", tmp_path / "none")
    assert lock.holder("usb-2-1.4") is None


@pytest.fixture
def tree(monkeypatch, tmp_path):
    """Two boards in a sysfs of files, and their nodes."""
    monkeypatch.setenv("TOWLINE_LOCKS", str(tmp_path))
    boards = {
        "2-1.4": {
            "idVendor": "3801", "idProduct": "0001", "busnum": 2, "devnum": 7, "power/control": "on",
            "bcdDevice": "0100", "serial": FIRST, "manufacturer": "towline", "product": "custom towline",
            "speed": "10000",
        },
        "3-2": {
            "idVendor": "174c", "idProduct": "2464", "busnum": 3, "devnum": 11, "power/control": "auto",
            "serial": "0" * 20, "product": "AS2462",
        },
        "2-1.4:1.0": {"bInterfaceClass": "ff"},
        "3-2:1.0": {"bInterfaceClass": "08"},
    }  # fmt: skip
    for name, attributes in boards.items():
        for attribute, text in attributes.items():
            path = tmp_path / "sys" / name / attribute
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")
    for node in ("002/007", "003/011"):
        path = tmp_path / "dev" / node
        path.parent.mkdir(parents=True)
        path.touch()
    found = list(sysfs.bridges(tmp_path / "sys", tmp_path / "dev"))
    monkeypatch.setattr(sysfs, "bridges", lambda: iter(found))
    return found


def test_bridges_in_sysfs_are_known_by_their_descriptors(tree):
    ours, loader = tree
    assert (ours.serial, ours.running, ours.release, ours.speed) == (FIRST, Running.OURS, 0x0100, "10000")
    assert (loader.serial, loader.running, loader.speed) == ("0" * 20, Running.LOADER, "")


def test_the_command_lists_the_boards_and_who_has_them(tree, capsys):
    held = lock.DeviceLock("usb-2-1.4")
    with tree[1].node.open():
        assert main(["devices", "--json"]) == 0
        document = json.loads(capsys.readouterr().out)["result"]
        assert main(["devices"]) == 0
        text = capsys.readouterr().out
    held.release()
    first, second = document["bridges"]
    assert (first["device"], first["serial"], first["running"]) == (
        "usb:port=2-1.4",
        FIRST,
        "towline firmware",
    )
    assert (first["locked_by"], second["locked_by"]) == (os.getpid(), None)
    assert [user["process"] for user in first["in_use_by"]] == [os.getpid()]
    assert [user["process"] for user in second["in_use_by"]] == [os.getpid()], "it has the file open"
    cards = {each["device"] for each in document["devices"] if each["target"] == "amd-gfx1100"}
    assert cards == {"emulated", "usb:port=2-1.4", "usb:port=3-2"}
    assert max(map(len, text.split("\n\n")[1].splitlines())) <= 80
    assert main(["devices", "--target", "c", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["result"]["bridges"] == []


def test_an_emulated_board_has_the_serial_number_of_its_device_string():
    assert described("emulated?serial=a1")[1].serial == bytes.fromhex("000000a1")
    for wrong in ("emulated?serial=", "emulated?serial=xyz", "emulated?serial=123456789"):
        with pytest.raises(UsageError):
            described(wrong)
    with transport.open(f"emulated?serial={SECOND}") as device:
        assert device.identify().serial == SECOND
