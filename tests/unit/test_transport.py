"""The transport: what it adds to pyusb, over the simplest emulated device, and over one treated as real."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from pathlib import Path

import pytest
import usb.core

from emulator.usb.host import Host
from emulator.usb.pyusb_backend import Backend
from emulator.usb.wire import Speed as Port
from sdk.errors import DeviceFailed, DeviceMissing, UsageError
from tests.contract.loopback_function import BABBLE, BULK, ECHO, LOOPBACK, REFUSED, SINK, LoopbackFunction
from tests.contract.usb_fixture import QuietWorld
from usbgpu import transport
from usbgpu.transport import (
    AccessDenied,
    Call,
    CallKind,
    DeviceBusy,
    DeviceString,
    Disconnected,
    NotSent,
    Overrun,
    Running,
    Speed,
    Stalled,
    TimedOut,
    bus,
    sysfs,
)
from usbgpu.transport.identity import KNOWN_IDS, classify
from usbgpu.transport.plugged import PluggedTransport

ROOT = Path(__file__).parents[2]
OUT, IN = 0x40, 0xC0


class Rig:
    """Ports with loopback devices, a backend over them, and a transport to the first."""

    def __init__(self, ports: int = 1, best: Port = Port.SUPER_PLUS, **kind) -> None:
        self.functions, self.hosts = [], []
        for _ in range(ports):
            world = QuietWorld()
            self.functions.append(LoopbackFunction(world.clock, **kind))
            self.hosts.append(Host(self.functions[-1], world, best=best))
            self.hosts[-1].plug()
        self.backend = Backend(self.hosts)

    def attach(self) -> transport.Transport:
        return transport.attach(self.backend, "rig")


@pytest.fixture
def rig() -> Rig:
    return Rig()


# -- device strings -------------------------------------------------------------------------------------


def test_device_strings(monkeypatch):
    monkeypatch.delenv("TOWLINE_DEVICE", raising=False)
    assert DeviceString.parse() == DeviceString("emulated", "emulated", "")
    assert DeviceString.parse("emulated:a.ihx?speed=high").rest == "a.ihx"
    monkeypatch.setenv("TOWLINE_DEVICE", "usb:00c0ffee")
    found = DeviceString.parse()
    assert found == DeviceString("usb:00c0ffee", "usb", "00c0ffee")
    assert found.is_real
    assert DeviceString.parse("usb:fd=7").descriptor == "7"
    assert found.descriptor is None
    assert DeviceString.parse("replay:a:b?c.jsonl").rest == "a:b?c.jsonl"
    for wrong in ("", "usbx", "usb:", "emulated:", ":", "replay", "replay:"):
        with pytest.raises(UsageError, match=f"{wrong!r} is not a"):
            DeviceString.parse(wrong)


# -- transfers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("best", "speed", "packet"), [(Port.SUPER_PLUS, Speed.SUPER_PLUS, 1024), (Port.HIGH, Speed.HIGH, 512)]
)
def test_what_a_device_is(best, speed, packet):
    with Rig(best=best).attach() as device:
        assert (device.speed, device.packet_size) == (speed, packet)
        assert (device.out_endpoint, device.in_endpoint, device.interface_class) == (0x02, 0x81, 0xFF)
        assert (device.name, device.place, device.is_emulated) == ("rig", "usb-1-1", True)
        assert device.string(2) == "loopback"
        assert device.string(0) is None
        assert device.string(9) is None, "a stall"
        identity = device.identify()
        assert identity.running is Running.UNKNOWN
        assert str(identity) == f"unknown, add1:0001 'loopback', serial test-1, {speed.value}"


def test_transfers_and_their_errors(rig):
    seen: list[tuple[str, str, int]] = []
    with rig.attach() as device:
        device.observers.append(
            lambda call, outcome: seen.append((str(call), outcome.code, len(outcome.data)))
        )
        device.control_out(OUT, ECHO, data=b"there")
        assert device.control_in(IN, ECHO, length=64) == b"there"
        with pytest.raises(Stalled) as stalled:
            device.control_in(IN, REFUSED, 0x1234, 5, 4)
        assert stalled.value.where == "control C0:A1:1234:5:4"
        with pytest.raises(Overrun):
            device.control_in(IN, BABBLE, length=4)
        with pytest.raises(NotSent):
            device.control_in(0x81, 0, index=0x47, length=2)
        device.control_out(0x02, 3, 0, 0x81)
        with pytest.raises(Stalled):
            device.bulk_in(64)
        device.clear_halt(0x81)
        device.control_out(OUT, BULK, LOOPBACK)
        device.bulk_out(b"once")
        assert device.bulk_in(1024) == b"once"
        with pytest.raises(UsageError):
            device.bulk_in(0)
        with pytest.raises(UsageError):
            device.bulk_in(4, timeout=0)
    assert seen[:3] == [
        ("control 40:A0:0:0:5", "ok", 0),
        ("control C0:A0:0:0:40", "ok", 5),
        ("control C0:A1:1234:5:4", "stalled", 0),
    ]
    assert ("clear halt of EP 0x81", "ok", 0) in seen
    assert seen[-2:] == [("EP 0x02, 4 bytes", "ok", 0), ("EP 0x81, 1024 bytes", "ok", 4)]


def test_time_outs_are_virtual_and_keep_what_came(rig):
    with rig.attach() as device:
        rig.functions[0].silent.add(ECHO)
        began = device.clock.now()
        with pytest.raises(TimedOut, match=r"2\.5 s"):
            device.control_in(IN, ECHO, length=4, timeout=2.5)
        assert device.clock.now() - began == pytest.approx(2.5, abs=0.01)
        device.control_out(OUT, BULK, LOOPBACK)
        with pytest.raises(TimedOut) as late:
            device.bulk_out(bytes(2 * 1024), timeout=0.5)
        assert late.value.transferred == 1024, "it holds one packet"
        with pytest.raises(TimedOut) as late:
            device.bulk_in(4096, timeout=0.5)
        assert (late.value.transferred, late.value.data) == (1024, bytes(1024))
        device.control_out(OUT, BULK, LOOPBACK)
        device.bulk_out(b"short")
        assert device.bulk_in(4096, timeout=0.5) == b"short"
        began = device.clock.now()
        device.clock.sleep(3.0)
        assert device.clock.now() - began == pytest.approx(3.0)


def test_a_call_is_data(rig):
    with rig.attach() as device:
        calls: list[Call] = []
        device.observers.append(lambda call, outcome: calls.append(call))
        device.control_out(OUT, ECHO, data=b"again")
        device.control_out(OUT, BULK, SINK)
        device.bulk_out(b"12345")
        device.reset()
        device.observers.clear()
        for call in calls:
            device.perform(call)
        assert [call.kind for call in calls[-2:]] == [CallKind.BULK_OUT, CallKind.RESET]
        assert device.control_in(IN, ECHO, length=8) == b"again"


# -- coming and going -----------------------------------------------------------------------------------


def test_a_device_that_leaves_and_comes_back(rig):
    device = rig.attach()
    rig.hosts[0].unplug()
    with pytest.raises(Disconnected):
        device.control_in(IN, ECHO, length=4)
    rig.hosts[0].plug()
    device.reopen()
    device.control_out(OUT, ECHO, data=b"back")
    assert device.control_in(IN, ECHO, length=4) == b"back"
    began = device.clock.now()
    with pytest.raises(Disconnected, match="within 1 s"):
        device.reopen(1.0)
    assert device.clock.now() - began < 1.5, "it never left"


def test_another_device_after_a_reset(rig):
    device = rig.attach()
    rig.hosts[0].best = Port.HIGH
    rig.functions[0].speed = Port.HIGH  # other descriptors
    with pytest.raises(Disconnected, match="came back as another"):
        device.reset()


def test_no_device_is_attached():
    rig = Rig()
    rig.hosts[0].unplug()
    with pytest.raises(DeviceMissing):
        rig.attach()


# -- devices that are treated as real -------------------------------------------------------------------


@pytest.fixture
def plugged(monkeypatch, tmp_path):
    """Has pyusb find these devices where it looks by itself."""
    find = usb.core.find
    backends = []
    monkeypatch.setenv("TOWLINE_LOCKS", str(tmp_path))
    monkeypatch.setattr(sysfs, "DEVICES", tmp_path)
    monkeypatch.setattr(
        usb.core, "find", lambda backend=None, **how: find(backend=backend or backends[0], **how)
    )

    def plug(rig: Rig) -> Rig:
        backends[:] = [rig.backend]
        return rig

    return plug


def test_the_only_device(plugged, rig):
    plugged(rig)
    with transport.open("usb") as device:
        assert not device.is_emulated
        device.control_out(OUT, ECHO, data=b"real")
        with pytest.raises(DeviceBusy, match="this process"):
            transport.open("usb")
        rig.hosts[0].unplug()
        rig.hosts[0].plug()
        device.reopen()
        assert device.place == "usb-1-1"
    transport.open("usb:test-1").close()
    with pytest.raises(DeviceMissing) as missing:
        transport.open("usb:test-2")
    assert (missing.value.hint or "").endswith(": usb:port=1-1 (serial test-1)")
    rig.hosts[0].unplug()
    with pytest.raises(DeviceMissing):
        transport.open("usb")


@pytest.mark.slow
def test_addresses_are_given_again(rig):
    """A bus has 126 of them."""
    with rig.attach() as device:
        for number in range(130):
            rig.hosts[0].unplug()
            rig.hosts[0].plug()
            device.reopen(0.5)
            if number % 40 == 0:
                device.control_out(OUT, ECHO, data=b"again")


def test_a_search_for_an_emulated_device_takes_no_longer_than_allowed(rig):
    with rig.attach() as device:
        rig.hosts[0].unplug()
        before = device.clock.now()
        with pytest.raises(Disconnected):
            device.reopen(0.5)
        assert device.clock.now() - before < 0.7


def test_a_neighbour_is_not_taken_for_the_device_that_left(plugged):
    rig = plugged(Rig(2))
    device = PluggedTransport(bus.devices(None)[0], "usb:test-1", None, None)
    rig.hosts[0].unplug()
    with pytest.raises(Disconnected):
        device.reopen(0.05)
    rig.hosts[0].plug()
    device.reopen(0.05)
    assert device.place == "usb-1-1"
    device.close()


@pytest.mark.slow
def test_a_device_that_came_back_may_be_out_of_reach_for_a_moment(plugged, rig, monkeypatch):
    """Until udev has set its permissions, or a driver that probed it has released it."""
    plugged(rig)
    claim = rig.backend.claim_interface
    refusals = [errno.EACCES, errno.EBUSY]

    def refuse(*args):
        if refusals:
            raise usb.core.USBError("not yet", -3, refusals.pop())
        claim(*args)

    with transport.open("usb") as device:
        for _ in range(2):  # the second time with nothing left of the first
            refusals[:] = [errno.EACCES, errno.EBUSY]
            rig.hosts[0].unplug()
            rig.hosts[0].plug()
            monkeypatch.setattr(rig.backend, "claim_interface", refuse)
            device.reopen(5.0)
            assert refusals == []
        refusals[:] = [errno.EACCES] * 99
        rig.hosts[0].unplug()
        rig.hosts[0].plug()
        with pytest.raises(AccessDenied):
            device.reopen(0.05)


def test_a_device_that_cannot_be_claimed_is_left_as_it_was(plugged, rig, monkeypatch):
    plugged(rig)
    done = []
    monkeypatch.setattr(rig.backend, "is_kernel_driver_active", lambda handle, interface: True)
    monkeypatch.setattr(rig.backend, "detach_kernel_driver", lambda handle, n: done.append("detach"))
    monkeypatch.setattr(rig.backend, "attach_kernel_driver", lambda handle, n: done.append("attach"))

    def refuse(*args):
        raise usb.core.USBError("Resource busy", -6, errno.EBUSY)

    with monkeypatch.context() as busy:
        busy.setattr(rig.backend, "claim_interface", refuse)
        with pytest.raises(DeviceBusy):
            transport.open("usb")
    assert done == ["detach", "attach"]
    transport.open("usb").close()


def test_a_mounted_disk_is_not_taken_away(plugged, rig, monkeypatch):
    plugged(rig)
    monkeypatch.setattr(rig.backend, "is_kernel_driver_active", lambda handle, interface: True)
    monkeypatch.setattr(rig.backend, "detach_kernel_driver", lambda *args: pytest.fail("it was"))
    monkeypatch.setattr(sysfs, "mounted", lambda name: [f"/media/{name}"])
    with pytest.raises(DeviceBusy, match="/media/1-1"):
        transport.open("usb")


def test_several_devices_need_a_name(plugged):
    plugged(Rig(2))
    with pytest.raises(UsageError) as several:
        transport.open("usb")
    assert "usb:port=1-1 (serial test-1), usb:port=1-2 (serial test-1)" in (several.value.hint or "")


def test_a_device_that_may_not_be_opened(plugged, rig, monkeypatch):
    plugged(rig)

    def refuse(device):
        raise usb.core.USBError("Access denied (insufficient permissions)", -3, errno.EACCES)

    monkeypatch.setattr(rig.backend, "open_device", refuse)
    for name in ("usb", "usb:test-1"):
        with pytest.raises(AccessDenied) as denied:
            transport.open(name)
        assert "towline doctor" in denied.value.hint
    monkeypatch.undo()


def test_the_kernels_driver_is_detached_and_attached_again(plugged, rig, monkeypatch):
    plugged(rig)
    done = []
    monkeypatch.setattr(rig.backend, "is_kernel_driver_active", lambda handle, interface: True)
    monkeypatch.setattr(rig.backend, "detach_kernel_driver", lambda handle, n: done.append(("detach", n)))
    monkeypatch.setattr(rig.backend, "attach_kernel_driver", lambda handle, n: done.append(("attach", n)))
    transport.open("usb").close()
    assert done == [("detach", 0), ("attach", 0)]


def test_a_device_is_kept_awake_while_it_is_open(plugged, rig, tmp_path):
    control = tmp_path / "1-1" / "power" / "control"
    control.parent.mkdir(parents=True)
    plugged(rig)
    control.write_text("auto\n")
    with transport.open("usb") as device:
        assert control.read_text() == "on"
        rig.hosts[0].unplug()
        control.write_text("auto\n")  # the kernel creates the attribute again
        rig.hosts[0].plug()
        device.reopen()
        assert control.read_text() == "on"
    assert control.read_text() == "auto"
    control.write_text("on\n")
    transport.open("usb").close()
    assert control.read_text() == "on\n", "restored"


def test_a_device_that_cannot_be_kept_awake(tmp_path):
    """As without permission to write; root may write anything but a directory."""
    (tmp_path / "1-1" / "power" / "control").mkdir(parents=True)
    for name in ("1-1", "gone"):
        kept = sysfs.KeptAwake(name, tmp_path)
        kept.release()
        kept.release()


def test_emulated_devices_leave_the_system_alone(rig, monkeypatch):
    monkeypatch.setattr(sysfs, "KeptAwake", lambda *args: pytest.fail("it reads sysfs"))
    rig.attach().close()


# -- who is who -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "descriptors"),
    [
        (Running.OURS, (0xADD1, 1, "towline", "custom towline", "00c0ffee", 0xFF)),
        (Running.COMPATIBLE, (0xADD1, 1, "tiny", "custom v0.1", "00c0ffee", 0xFF)),
        (Running.COMPATIBLE, (0x3801, 1, "tiny", "custom v0.1", "00c0ffee", 0xFF)),
        (Running.UNKNOWN, (0x3801, 2, "tiny", "custom v0.1", "00c0ffee", 0xFF)),
        (Running.UNKNOWN, (0xADD1, 1, "tiny", "something", "00c0ffee", 0xFF)),
        (Running.UNKNOWN, (0x1234, 1, "tiny", "custom v0.1", "00c0ffee", 0xFF)),
        (Running.LOADER, (0x174C, 0x2463, "ASMedia", "AS2462", "0" * 20, 8)),
        (Running.LOADER, (0xADD1, 1, "ASMedia", "AS2462", "0" * 20, 8)),
        (Running.MAKERS, (0x174C, 0x2464, "ASMT", "2464PD", "123456789012", 8)),
        (Running.MAKERS, (0xADD1, 1, "", "AS2462PD", "123456789012", 8)),
        (Running.UNKNOWN, (0x0951, 0x1666, "Kingston", "DataTraveler", "123456789012", 8)),
    ],
)
def test_classes_of_firmware(expected, descriptors):
    assert classify(*descriptors) is expected


# -- the system -----------------------------------------------------------------------------------------


def test_bridges_in_sysfs(tmp_path):
    def device(name, **attributes):
        for attribute, text in attributes.items():
            path = tmp_path / "sys" / name / attribute.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")

    device("2-1.4", idVendor="add1", idProduct="0001", busnum=2, devnum=7, power__control="auto")
    device("2-1.4:1.0", bInterfaceClass="ff")
    device("3-2", idVendor="174c", idProduct="2463", busnum=3, devnum=11, power__control="on")
    device("1-1", idVendor="046d", idProduct="c31c", busnum=1, devnum=2, power__control="auto")
    node = tmp_path / "dev" / "002" / "007"
    node.parent.mkdir(parents=True)
    node.touch()
    found = list(sysfs.bridges(tmp_path / "sys", tmp_path / "dev"))
    assert [(each.name, each.usable, each.suspends) for each in found] == [
        ("2-1.4", True, True),
        ("3-2", False, False),
    ]
    assert list(sysfs.bridges(tmp_path / "nowhere")) == []


def test_mounted_disks_in_sysfs(tmp_path):
    disk = tmp_path / "pci" / "2-1.4" / "2-1.4:1.0" / "host3" / "block" / "sda"
    (disk / "sda1").mkdir(parents=True)
    (disk / "dev").write_text("8:0\n")
    (disk / "sda1" / "dev").write_text("8:1\n")
    (tmp_path / "sys").mkdir()
    (tmp_path / "sys" / "2-1.4").symlink_to(tmp_path / "pci" / "2-1.4")
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "21 1 259:2 / / rw shared:1 - ext4 /dev/nvme0n1p2 rw\n"
        "40 21 8:1 / /media/one rw shared:9 - ext4 /dev/disk/by-label/one rw\n"
        "41 21 0:57 / /media/two rw shared:9 master:2 - btrfs /dev/sda rw\n"
    )
    assert sysfs.mounted("2-1.4", tmp_path / "sys", mounts) == ["/media/one", "/media/two"]
    assert sysfs.mounted("2-1", tmp_path / "sys", mounts) == []
    assert sysfs.mounted("2-1.4", tmp_path / "sys", tmp_path / "none") == []


def test_the_udev_rule_has_every_bridge():
    text = (ROOT / "firmware" / "60-towline.rules").read_text()
    for vendor, product in KNOWN_IDS:
        match = f'ATTR{{idVendor}}=="{vendor:04x}", ATTR{{idProduct}}=="{product:04x}", TAG+="uaccess"'
        assert match in text
    assert text.count("uaccess") == len(KNOWN_IDS)


@pytest.mark.slow
def test_a_real_device_needs_numpy_and_pyusb_alone():
    script = """
        import importlib.abc, json, sys
        OURS = {"sdk", "usbgpu", "firmware", "numpy", "usb"}
        class Guard(importlib.abc.MetaPathFinder):
            def find_spec(self, name, path=None, target=None):
                top = name.partition(".")[0]
                if top not in OURS and top not in sys.stdlib_module_names:
                    raise ModuleNotFoundError(name)
        sys.meta_path.insert(0, Guard())
        from sdk.errors import TowlineError
        from usbgpu import transport
        try:
            transport.open("usb")
        except TowlineError as error:
            print(json.dumps([error.code, error.hint]))
    """
    script = "\n".join(line[8:] for line in script.splitlines())
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    code, hint = json.loads(done.stdout)
    assert code in ("device-missing", "environment"), hint


@pytest.mark.parametrize(
    ("number", "words", "code"),
    [(errno.EIO, "Input/Output Error", "wire-failed"), (errno.EINVAL, "Invalid parameter", "device-failed")],
)
def test_errors_of_pyusb_with_their_words(rig, monkeypatch, number, words, code):
    def fail(*args):
        raise usb.core.USBError(words, -1, number)

    with rig.attach() as device:
        monkeypatch.setattr(rig.backend, "ctrl_transfer", fail)
        with pytest.raises(DeviceFailed, match=words) as failed:
            device.control_in(IN, ECHO, length=4)
        assert failed.value.code == code
