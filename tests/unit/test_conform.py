"""The conformance suite itself: its rules find faults, and traces replay unchanged."""

from __future__ import annotations

import io
import json

import pytest

from emulator.usb.host import Host
from emulator.usb.pyusb_backend import Backend
from emulator.usb.wire import Speed as Port
from sdk.errors import InvalidInput, UsageError
from tests.contract.loopback_function import LoopbackFunction
from tests.contract.usb_fixture import QuietWorld
from usbgpu import conform, transport
from usbgpu.conform import Verdict
from usbgpu.conform.bench import Bench
from usbgpu.conform.check import lacking
from usbgpu.conform.suite import select
from usbgpu.transport import Identity, Running, Speed, Stalled, TimedOut

DEVICE = "12 01 20 03 00 00 00 09 d1 ad 01 00 00 01 01 02 03 01"
CONFIGURATION = "09 02 2c 00 01 01 00 c0 00"
INTERFACE = "09 04 00 00 02 ff ff ff 00"
COMPANION = "06 30 00 00 00 00"
CAPABILITIES = (
    "07 10 02 02 00 00 00",
    "0a 10 03 00 0c 00 02 0a ff 07",
    "14 10 0a 00 01 00 00 00 00 11 00 00 30 40 0a 00 b0 40 0a 00",
)
SUPER = {
    (1, 0): bytes.fromhex(DEVICE),
    (2, 0): bytes.fromhex(
        f"{CONFIGURATION} {INTERFACE} 07 05 81 02 00 04 00 {COMPANION} 07 05 02 02 00 04 00 {COMPANION}"
    ),
    (3, 0): bytes.fromhex("04 03 09 04"),
    (15, 0): bytes.fromhex("05 0f 2a 00 03" + "".join(CAPABILITIES)),
    **{(3, number): bytes((8, 3)) + "abc".encode("utf-16-le") for number in (1, 2, 3)},
}
HIGH = SUPER | {
    (1, 0): bytes.fromhex(DEVICE.replace("20 03 00 00 00 09", "10 02 00 00 00 40")),
    (2, 0): bytes.fromhex(
        f"{CONFIGURATION.replace('2c', '20')} {INTERFACE} 07 05 81 02 00 02 00 07 05 02 02 00 02 00"
    ),
    (6, 0): bytes.fromhex("0a 06 00 02 00 00 00 40 00 00"),
}
QUALIFIER_OF_ONE = bytes.fromhex("0a060002000000400100")
"""Of a device with one configuration at the other speed."""


class Described:
    """The part of a transport that descriptors need."""

    def __init__(self, descriptors: dict[tuple[int, int], bytes], speed: Speed) -> None:
        self.descriptors = dict(descriptors)
        self.speed = speed
        self.is_emulated = True

    def control_in(self, request_type, request, value=0, index=0, length=0, *, timeout=1.0):
        found = self.descriptors.get(divmod(value, 256))
        if (request_type, request) != (0x80, 6) or found is None:
            raise Stalled("the device stalled the request")
        return found[:length]

    def descriptor(self, kind, index, length, language=0):
        return self.control_in(0x80, 6, kind << 8 | index, language, length)


def failures(descriptors, speed) -> dict[str, str]:
    """Checks of descriptors that fail, with their findings."""
    identity = Identity(Running.OURS, 0xADD1, 1, 0x100, "abc", "custom", "abc", 0xFF, speed)
    bench = Bench(Described(descriptors, speed), identity)
    sections = ("descriptor fields", "descriptor sets", "strings", "reading descriptors")
    found = {}
    for check in select(sections):
        if lacking(bench, check.needs) is None:
            try:
                check.function(bench)
            except Exception as problem:  # any exception is a failure
                found[check.name] = str(problem)
    return found


@pytest.mark.parametrize(("good", "speed"), [(SUPER, Speed.SUPER_PLUS), (HIGH, Speed.HIGH)])
def test_good_descriptors_pass(good, speed):
    assert failures(good, speed) == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("which", "place", "value", "broken"),
    [
        ((1, 0), 0, 17, "device: bLength"),
        ((1, 0), 1, 2, "device: bDescriptorType"),
        ((1, 0), 3, 2, "device: bcdUSB"),
        ((1, 0), 5, 1, "device: bDeviceSubClass"),
        ((1, 0), 6, 1, "device: bDeviceProtocol"),
        ((1, 0), 7, 64, "device: bMaxPacketSize0"),
        ((1, 0), 12, 0x0A, "device: bcdDevice"),
        ((1, 0), 16, 9, "named strings"),
        ((2, 0), 0, 8, "configuration: bLength"),
        ((2, 0), 2, 45, "wTotalLength"),
        ((2, 0), 4, 2, "bNumInterfaces"),
        ((2, 0), 5, 0, "configuration: bConfigurationValue"),
        ((2, 0), 7, 0x40, "configuration: bmAttributes"),
        ((2, 0), 8, 113, "configuration: bMaxPower"),
        ((2, 0), 12, 1, "bAlternateSetting"),
        ((2, 0), 13, 3, "bNumEndpoints"),
        ((2, 0), 14, 0, "interface: bInterfaceClass"),
        ((2, 0), 20, 0x91, "endpoint: bEndpointAddress"),
        ((2, 0), 20, 0x02, "endpoint addresses"),
        ((2, 0), 20, 0x82, "endpoints in use"),
        ((2, 0), 21, 0x06, "endpoint: bmAttributes"),
        ((2, 0), 23, 2, "endpoint: wMaxPacketSize"),
        ((2, 0), 24, 1, "endpoint: bInterval"),
        ((2, 0), 26, 49, "companions"),
        ((2, 0), 27, 16, "endpoint companion: bMaxBurst"),
        ((2, 0), 28, 17, "endpoint companion: bmAttributes"),
        ((2, 0), 29, 1, "endpoint companion: wBytesPerInterval"),
        ((3, 0), 2, 7, "languages"),
        ((3, 1), 3, 0xD8, "named strings"),
        ((3, 2), 0, 7, "named strings"),
        ((15, 0), 2, 41, "wTotalLength"),
        ((15, 0), 4, 2, "bNumDeviceCaps"),
        ((15, 0), 7, 5, "capabilities"),
        ((15, 0), 8, 0, "USB 2.0 extension: bmAttributes"),
        ((15, 0), 15, 1, "SuperSpeed capability: bmAttributes"),
        ((15, 0), 16, 4, "SuperSpeed capability: wSpeedsSupported"),
        ((15, 0), 18, 1, "SuperSpeed capability: bFunctionalitySupport"),
        ((15, 0), 19, 11, "SuperSpeed capability: bU1DevExitLat"),
        ((15, 0), 21, 8, "SuperSpeed capability: wU2DevExitLat"),
        ((15, 0), 22, 19, "SuperSpeedPlus capability: bLength"),
        ((15, 0), 27, 2, "SuperSpeedPlus capability: bmAttributes"),
        ((15, 0), 31, 0x01, "SuperSpeedPlus capability: wFunctionalitySupport"),
        ((15, 0), 34, 0x31, "sublink attributes"),
        ((15, 0), 35, 0x00, "sublink attributes"),
        ((15, 0), 35, 0x41, "sublink attributes"),
        ((15, 0), 36, 0x05, "sublink attributes"),
    ],
)
def test_a_wrong_byte_is_found(which, place, value, broken):
    changed = bytearray(SUPER[which])
    assert changed[place] != value
    changed[place] = value
    assert broken in failures(SUPER | {which: bytes(changed)}, Speed.SUPER_PLUS)


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        ({(6, 0): None}, "qualifier"),
        ({(6, 0): bytes.fromhex("0a060002000000090000")}, "device qualifier: bMaxPacketSize0"),
        ({(6, 0): QUALIFIER_OF_ONE}, "other speed"),
        ({(6, 0): bytes.fromhex("0a060002000000400001")}, "device qualifier: bReserved"),
        ({(7, 0): HIGH[2, 0]}, "other speed"),
        ({(7, 0): b"\x09\x07" + HIGH[2, 0][2:], (6, 0): QUALIFIER_OF_ONE}, "other speed"),
        ({(2, 0): SUPER[2, 0]}, "no companions"),
        ({(15, 0): None}, "capabilities"),
        ({(3, 4): SUPER[3, 1]}, "other indices"),
        ({(5, 0): HIGH[2, 0][18:25]}, "other descriptors"),
    ],
)
def test_what_is_wrong_at_high_speed(change, broken):
    changed = {key: raw for key, raw in (HIGH | change).items() if raw is not None}
    assert broken in failures(changed, Speed.HIGH)


# -- the suite ------------------------------------------------------------------------------------------


def test_the_suite_is_a_list_of_rules():
    names = [check.name for check in conform.CHECKS]
    assert len(names) == len(set(names)), "a trace names only the check"
    assert all(": " in check.says for check in conform.CHECKS), "each names its source"
    with pytest.raises(UsageError, match="'nonsense'"):
        select(["nonsense"])
    assert conform.device_of("usb") == "usb"
    assert conform.device_of("bridge.bin?speed=high") == "emulated:bridge.bin?speed=high"
    with pytest.raises(UsageError):
        conform.device_of("emulated:")


def loopback(best: Port = Port.SUPER_PLUS) -> transport.Transport:
    world = QuietWorld()
    host = Host(LoopbackFunction(world.clock), world, best=best)
    host.plug()
    return transport.attach(Backend([host]), "loopback")


def test_a_device_that_supports_half_of_it():
    """The loopback device of the USB tests has no GET_STATUS, accepts any SET_CONFIGURATION, and so on."""
    with loopback() as device:
        report = conform.examine(device, "loopback", sections=["descriptor fields", "standard requests"])
    assert not report.conforms
    rows = {row.name: row for row in report.rows}
    assert rows["device: bcdUSB"].verdict is Verdict.PASSED
    assert rows["GET_STATUS of the device"].detail.endswith("the device stalled the request")
    assert rows["device qualifier: bLength"].detail == "needs a High Speed link"
    assert rows["wrong directions"].verdict is Verdict.PASSED
    document = report.document()
    assert sum(document[key] for key in ("passed", "failed", "skipped", "unreached")) == len(
        document["checks"]
    )
    assert json.dumps(document)


def test_truncated_descriptors_are_failures_not_crashes():
    """Descriptors that end where checks expect more."""
    short = SUPER | {(2, 0): SUPER[2, 0][:8] + b"\x70\x02\x05", (15, 0): SUPER[15, 0][:9]}
    device = Described(short, Speed.SUPER_PLUS)
    device.identify = lambda: Identity(Running.OURS, 0xADD1, 1, 1, "", "", "", 0xFF, Speed.SUPER_PLUS)
    device.reset = device.reopen = lambda: None
    sections = ("descriptor fields", "descriptor sets", "strings", "reading descriptors")
    report = conform.examine(device, "short", sections=sections)
    assert report.counts[Verdict.FAILED] > 5
    assert any("too short" in row.detail for row in report.rows)


class Silent(Described):
    """Leaves GET_DESCRIPTOR of one type unanswered, for the first so many times."""

    def __init__(self, kind: int, times: int) -> None:
        super().__init__(HIGH, Speed.HIGH)
        self.kind, self.times, self.asked = kind, times, 0
        self.reset = self.reopen = lambda: None

    def identify(self):
        return Identity(Running.OURS, 0xADD1, 1, 1, "abc", "custom", "abc", 0xFF, self.speed)

    def control_in(self, request_type, request, value=0, index=0, length=0, *, timeout=1.0):
        if value >> 8 == self.kind and length == 0x400:
            self.asked += 1
            if self.asked <= self.times:
                raise TimedOut("the device did not answer within 5 s")
        return super().control_in(request_type, request, value, index, length, timeout=timeout)


SECTIONS = ("descriptor fields", "descriptor sets", "strings", "reading descriptors")


@pytest.mark.parametrize(("kind", "least"), [(1, 30), (2, 25), (15, 20), (6, 8)])
def test_one_unanswered_request_fails_one_check(kind, least):
    device = Silent(kind, 10**6)
    report = conform.examine(device, "silent", sections=SECTIONS)
    failed = [row.name for row in report.rows if row.verdict is Verdict.FAILED]
    unreached = [row for row in report.rows if row.verdict is Verdict.UNREACHED]
    assert len(failed) == 1
    assert len(unreached) >= least
    assert all(f"{failed[0]!r}" in row.detail for row in unreached)
    assert device.asked == 2, "the second check tries again, and no other"
    document = report.document()
    assert document["unreached"] == len(unreached)
    assert {check["verdict"] for check in document["checks"]} >= {"fail", "unreached"}
    assert not report.conforms
    whole = conform.examine(Silent(kind, 0), "good", sections=SECTIONS)
    assert whole.counts[Verdict.UNREACHED] == whole.counts[Verdict.FAILED] == 0


def test_a_request_that_was_lost_once_keeps_no_other_check_from_running():
    report = conform.examine(Silent(15, 1), "hesitant", sections=SECTIONS)
    assert report.counts[Verdict.FAILED] == 1
    assert report.counts[Verdict.UNREACHED] == 0


# -- traces ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trace() -> list[str]:
    stream = io.StringIO()
    with loopback() as device:
        conform.examine(device, "loopback", sections=["descriptor sets", "standard requests"], trace=stream)
        assert device.observers == []
    return stream.getvalue().splitlines(keepends=True)


def test_a_trace_replays(trace):
    with loopback() as device:
        replayed = conform.replay(trace, device)
    assert replayed.difference is None
    assert replayed.calls == replayed.compared == sum('"call"' in line for line in trace)


def test_the_first_difference_is_named(trace):
    with loopback(Port.HIGH) as device:
        found = conform.replay(trace, device).difference
    assert found is not None
    assert (found.line, found.check) == (3, "wTotalLength")
    assert found.call == "control 80:06:100:0:400"
    assert found.recorded == "ok, 18 bytes, from 0x0: 12 01 20 03 00 00 00 09 d1 ad 01 00 01 00 01 02"
    assert found.found == "ok, 18 bytes, from 0x0: 12 01 00 02 00 00 00 40 d1 ad 01 00 01 00 01 02"
    changed = list(trace)
    place = next(i for i, line in enumerate(changed) if '"stalled"' in line)
    changed[place] = changed[place].replace('"stalled"', '"ok"')
    with loopback() as device:
        found = conform.replay(changed, device).difference
    assert (found.line, found.recorded, found.found) == (place + 1, "ok", "stalled")


def test_what_may_differ_is_not_compared(trace):
    place = next(i for i, line in enumerate(trace) if '"stalled"' in line)
    line = json.loads(trace[place]) | {"outcome": "ok", "restless": True}
    with loopback() as device:
        replayed = conform.replay([*trace[:place], json.dumps(line), '{"sleep":0.5}'], device)
    assert replayed.difference is None
    assert replayed.compared == replayed.calls - 1


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["nonsense"],
        ["[]"],
        ['{"trace":2}'],
        ['{"trace":1}'],
        ['{"trace":1}', '{"call":{"kind":"dance"},"outcome":"ok"}'],
        ['{"trace":1}', '{"call":{"kind":"control","steps":3},"outcome":"ok"}'],
        ['{"trace":1}', '{"call":{"kind":"control","timeout":"soon"},"outcome":"ok"}'],
        ['{"trace":1}', '{"call":{"kind":"control"},"outcome":"ok"}'],
        ['{"trace":1}', '{"call":{"kind":"control","data":"xy"},"outcome":"ok"}'],
        ['{"trace":1}', '{"sleep":[]}'],
    ],
)
def test_files_that_are_not_traces(lines):
    with loopback() as device, pytest.raises(InvalidInput, match="trace"):
        conform.replay(lines, device)
