"""What runs on a bridge is recognised, with what to do next; nothing is sent to an unknown device."""

from __future__ import annotations

import dataclasses
import struct

import pytest

from emulator.board import Board
from emulator.options import Options
from emulator.usb.wire import Speed
from sdk.errors import DeviceFailed, UsageError
from usbgpu import bridge, transport
from usbgpu.bridge import opening
from usbgpu.bridge.compatible import CompatibleBridge
from usbgpu.bridge.lists import ListBridge
from usbgpu.transport import Disconnected, Identity, Running


class Pretender:
    """A transport to a device with given descriptors, that only answers requests for them."""

    def __init__(
        self,
        vendor: int = 0xADD1,
        product_id: int = 0x0001,
        release: int = 0x0100,
        strings: tuple[str, ...] = ("towline", "custom towline", "1"),
        interface_class: int = 0xFF,
        speed: transport.Speed = transport.Speed.SUPER,
    ) -> None:
        self.name = "pretender"
        self.clock = None
        self.interface_class = interface_class
        self.speed = speed
        self.calls: list[str] = []
        self._strings = strings
        self._device = struct.pack("<8xHHHBBBB", vendor, product_id, release, 1, 2, 3, 1)
        self._device = b"\x12\x01" + self._device[2:]

    def descriptor(self, *_: int) -> bytes:
        self.calls.append("descriptor")
        return self._device

    def string(self, index: int) -> str:
        self.calls.append("string")
        return self._strings[index - 1]

    def control_in(self, *_: object, **__: object) -> bytes:
        self.calls.append("control in")
        raise DeviceFailed("no")

    def control_out(self, *_: object, **__: object) -> None:
        self.calls.append("control out")

    def reset(self) -> None:
        self.calls.append("reset")

    def reopen(self) -> None:
        self.calls.append("reopen")

    def identify(self) -> Identity:
        return transport.identity.identify(self)  # type: ignore[arg-type]


def attached(**options: object):
    return bridge.attach(Pretender(**options))  # type: ignore[arg-type]


def test_ours_is_driven_by_lists_and_compatible_firmware_without() -> None:
    assert isinstance(attached(), ListBridge)
    assert isinstance(attached(strings=("tiny", "custom tiny", "1")), CompatibleBridge)
    ours = Pretender()
    assert isinstance(bridge.attach(ours, lists=False), CompatibleBridge)  # type: ignore[arg-type]
    assert ours.calls == ["descriptor", "string", "reset"]


@pytest.mark.parametrize("level", [0x0000, 0x00FF, 0x0200])
def test_another_api_level_is_refused(level: int) -> None:
    with pytest.raises(bridge.FirmwareUnsuitable, match=f"API level {level >> 8}.{level & 0xFF}") as refused:
        attached(release=level)
    assert "towline firmware flash" in refused.value.hint
    pretender = Pretender(release=level)
    assert isinstance(bridge.attach(pretender, lists=False), CompatibleBridge)  # type: ignore[arg-type]


def test_a_later_minor_level_is_accepted() -> None:
    assert isinstance(attached(release=0x0107), ListBridge)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vendor": 0x174C, "product_id": 0x2464, "interface_class": 8}, "maker's firmware"),
        ({"interface_class": 8, "strings": ("", "AS2462", "0" * 20)}, "boot loader"),
        ({"vendor": 0x1234}, "neither our firmware nor"),
        ({"strings": ("x", "y", "z")}, "neither our firmware nor"),
    ],
)
def test_a_device_that_cannot_be_driven_is_only_asked_for_descriptors(options: dict, message: str) -> None:
    pretender = Pretender(**options)
    with pytest.raises(bridge.FirmwareUnsuitable, match=message) as refused:
        bridge.attach(pretender)  # type: ignore[arg-type]
    assert "towline firmware flash" in refused.value.hint
    assert set(pretender.calls) == {"descriptor", "string"}
    report = bridge.describe(pretender)  # type: ignore[arg-type]
    assert message in report.problem
    assert (report.has_lists, report.link_up) == (False, None)
    assert "towline firmware flash" in report.advice
    assert set(pretender.calls) == {"descriptor", "string"}


def test_a_device_that_comes_back_as_another_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pretender = Pretender()

    def gone() -> None:
        pretender.calls.append("reset")
        raise Disconnected("it came back as another")

    monkeypatch.setattr(pretender, "reset", gone)
    assert isinstance(bridge.attach(pretender), ListBridge)  # type: ignore[arg-type]
    assert pretender.calls[2:4] == ["reset", "reopen"]


@pytest.mark.slow
def test_reports_of_emulated_boards() -> None:
    with transport.attach(Board.of("firmware").backend()) as device:
        report = bridge.describe(device)
        assert (report.identity.running, report.has_lists, report.link_up) == (Running.OURS, True, True)
        assert (report.problem, report.advice) == ("", "")
    with transport.attach(Board.of("firmware", Options(port=Speed.HIGH)).backend()) as device:
        report = bridge.describe(device)
        assert report.problem == ""
        assert "USB 3" in report.advice
    with transport.attach(Board.of("firmware", Options(strap=True)).backend()) as device:
        assert bridge.describe(device).identity.running is Running.LOADER
    with transport.attach(Board.of("storage").backend()) as device:
        report = bridge.describe(device)
        assert report.identity.running is Running.MAKERS
        assert report.advice


def test_a_report_changes_nothing() -> None:
    with transport.attach(Board.of("firmware").backend()) as device:
        before = bridge.describe(device)
        calls = []
        device.observers.append(lambda call, _: calls.append(call))
        assert bridge.describe(device) == before
        assert {call.request_type for call in calls} <= {0x80, 0xC0}
        assert dataclasses.asdict(before)


def test_opening_by_device_string_closes_what_it_cannot_use() -> None:
    with bridge.open("emulated") as opened:
        assert opened.has_lists
    with bridge.open("emulated", lists=False) as opened:
        assert not opened.has_lists
    with pytest.raises(bridge.FirmwareUnsuitable):
        bridge.open("emulated?strap")
    with pytest.raises(UsageError):
        bridge.open("emulated?nonsense")
    assert opening.DRIVEN
