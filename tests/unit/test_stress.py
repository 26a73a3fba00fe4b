"""The stress test's parts: patterns, what is counted, the verdict, and the host controller's link errors."""

from __future__ import annotations

import numpy as np
import pytest

from usbgpu.stress import patterns
from usbgpu.stress.record import Incident, Record, Recovery, difference
from usbgpu.stress.verdict import UNSTABLE, LinkErrors, Verdict, judge
from usbgpu.transport import Call, CallKind, Outcome, Speed, WireFailed, sysfs

OUT = Call(CallKind.BULK_OUT, endpoint=0x02, data=b"data", timeout=1.0)
IN = Call(CallKind.BULK_IN, endpoint=0x81, length=4, timeout=1.0)


def outcome(code):
    return Outcome(code, b"", 0.0, 1.0)


def judged(*incidents, recoveries=(), **circumstances):
    record = Record(incidents=list(incidents), recoveries=list(recoveries))
    usual = {
        "of_card": True,
        "loaded": True,
        "speed": Speed.SUPER_PLUS,
        "link_errors": None,
        "gone": False,
    }
    return judge(record, **usual | circumstances)[0]


def error(kind, at=0.0, place=""):
    return Incident(kind, place, at, "", "out")


def recovery(at=0.0, *, left_bus=False, restarted=False, link_lost=False, state_lost=False):
    return Recovery("", at, 0.1, left_bus, restarted, link_lost, state_lost)


def test_each_pattern_is_repeatable_and_moves_with_its_seed():
    for name in patterns.PATTERNS:
        data = patterns.made(name, 4096, 7)
        assert len(data) == 4096
        assert data == patterns.made(name, 4096, 7)
        assert (data != patterns.made(name, 4096, 8)) == (name not in ("ones", "zeros"))
    numbers = np.frombuffer(patterns.made("walking", 4 * patterns.WALK, 0), "<u4")
    assert sorted({int(number).bit_count() for number in numbers}) == [1, 31]
    assert len(set(numbers.tolist())) == patterns.WALK
    assert np.frombuffer(patterns.made("counting", 12, 0xFFFF_FFFF), "<u4").tolist() == [0xFFFF_FFFF, 0, 1]


def test_wrong_bytes_are_reported_with_address_and_bits():
    expected = bytes(range(64))
    found = bytearray(expected)
    found[13] ^= 0x08
    found[40] ^= 0xFF
    wrong = difference(0x1000, expected, bytes(found), "counting")
    assert (wrong.address, wrong.count, wrong.bits) == (0x100D, 2, 0x0800)
    assert (wrong.expected, wrong.found) == (0x0F0E0D0C, 0x0F0E050C)
    assert difference(0x1000, expected, expected, "counting") is None


def test_the_first_transfer_that_failed_is_the_error_and_the_rest_its_consequences():
    record = Record()
    for call, code in [(OUT, "ok"), (IN, "abandoned"), (OUT, "wire-failed"), (IN, "timed-out")]:
        record.saw(call, outcome(code))
    found = record.failed(WireFailed("of the list"), 0.5, "out")
    assert (found.kind, found.place, record.transfers) == ("wire-failed", "bulk OUT", 4)
    record.saw(IN, outcome("timed-out"))  # meanwhile it is recovered
    record.forget()
    assert not record.repeated(0.6, "in")
    record.saw(IN, outcome("stalled"))  # and a layer below repeats it
    assert record.repeated(0.7, "in")
    assert record.kinds == {("wire-failed", "bulk OUT"): 1, ("stalled", "bulk IN"): 1}


@pytest.mark.parametrize(
    ("incident", "after", "verdict"),
    [
        (error("wire-failed"), recovery(), Verdict.CABLE),
        (error("bad-payload"), recovery(), Verdict.CABLE),
        (error("wrong-bytes", place="bulk IN"), recovery(), Verdict.CABLE),
        (error("wrong-result"), recovery(), Verdict.CARD),
        (error("gpu-lost"), recovery(state_lost=True), Verdict.CARD),
        (error("disconnected"), recovery(left_bus=True), Verdict.PORT),
        (error("wire-failed"), recovery(left_bus=True), Verdict.PORT),
        (error("disconnected"), recovery(left_bus=True, restarted=True, state_lost=True), Verdict.SUPPLY),
        (error("link-down"), recovery(link_lost=True, state_lost=True), Verdict.SUPPLY),
        (error("stalled"), recovery(), Verdict.BRIDGE),
        (error("disconnected"), recovery(left_bus=True, restarted=None, state_lost=True), Verdict.SUPPLY),
        (error("disconnected"), recovery(left_bus=True, restarted=None), Verdict.PORT),
    ],
)
def test_the_verdict_on_one_error(incident, after, verdict):
    assert judged(incident, recoveries=[after]) is verdict


def test_the_part_with_the_most_errors_is_to_blame():
    wires = [error("wire-failed", float(at)) for at in range(3)]
    assert judged(*wires, error("disconnected", 9.0)) is Verdict.CABLE
    assert judged(*wires, error("disconnected", 9.0), error("wrong-result", 8.0)) is Verdict.CABLE


def test_a_link_lost_without_load_is_the_cards():
    lost = recovery(link_lost=True)
    assert judged(error("link-down"), recoveries=[lost], loaded=False) is Verdict.CARD


def test_a_memory_that_has_wrong_bytes_is_the_cards_or_the_bridges():
    wrong = error("wrong-bytes", place="memory")
    assert judged(wrong) is Verdict.CARD
    assert judged(wrong, of_card=False, loaded=False) is Verdict.BRIDGE


def test_without_errors_the_link_decides():
    assert judged() is Verdict.GOOD
    assert judged(speed=Speed.HIGH) is Verdict.CABLE
    assert judged(link_errors=LinkErrors(0, int(10 * UNSTABLE), 10.0)) is Verdict.GOOD
    assert judged(link_errors=LinkErrors(0, int(10 * UNSTABLE) + 1, 10.0)) is Verdict.UNSTABLE_LINK
    assert LinkErrors(100, 20, 10.0).per_second == 2.0, "it was connected again meanwhile"


@pytest.fixture
def tree(tmp_path):
    """A device in sysfs: a hub's port, a root hub, and the host controller above them."""
    controller = tmp_path / "platform" / "a800000.ssusb" / "xhci-hcd.0.auto"
    device = controller / "usb2" / "2-1" / "2-1.4"
    device.mkdir(parents=True)
    (tmp_path / "devices").mkdir()
    (tmp_path / "devices" / "2-1.4").symlink_to(device)
    return tmp_path / "devices", controller


def test_link_errors_are_those_of_the_devices_host_controller(tree):
    devices, controller = tree
    assert sysfs.link_errors("usb-2-1.4", devices) is None
    (controller / "portli").write_text("0x00110023\n")
    assert sysfs.link_errors("usb-2-1.4", devices) == 0x23, "the lanes' counts above are left out"
    (controller / "portli").write_text("17 of something\n")
    assert sysfs.link_errors("usb-2-1.4", devices) == 17
    (controller / "portli").write_text("unknown\n")
    assert sysfs.link_errors("usb-2-1.4", devices) is None
    assert sysfs.link_errors("usb-9-9", devices) is None
