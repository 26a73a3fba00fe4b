"""Checks of the standard requests: all that a Linux host sends, and what must be refused.

USB 3.2, 9.4, unless USB 2.0 is named. SET_ADDRESS belongs to the host controller: that the device could be
enumerated, and can be after each bus reset, is its check. An operating system keeps its own record of the
device's configuration, so requests that change it are only sent to an emulated device.
"""

from __future__ import annotations

import struct

from usbgpu.conform.bench import Bench, equal, require
from usbgpu.conform.check import Need, Section
from usbgpu.conform.descriptors import configuration, parts, read
from usbgpu.conform.fields import INTERFACE
from usbgpu.transport import Speed

GET_STATUS, CLEAR_FEATURE, SET_FEATURE = 0, 1, 3
SET_DESCRIPTOR, GET_CONFIGURATION, SET_CONFIGURATION = 7, 8, 9
GET_INTERFACE, SET_INTERFACE, SYNCH_FRAME, SET_SEL, SET_ISOCH_DELAY = 10, 11, 12, 48, 49
TO_DEVICE, TO_INTERFACE, TO_ENDPOINT = 0, 1, 2
ENDPOINT_HALT, FUNCTION_SUSPEND, U1_ENABLE, U2_ENABLE = 0, 0, 48, 49
U1_STATUS, U2_STATUS = 0x04, 0x08
NO_INTERFACE, NO_ENDPOINT, NO_FEATURE = 0x47, 0x8E, 0x77
"""Numbers that no device here uses."""

STANDARD = Section("standard requests")


@STANDARD("reset", "9.1.1: after a bus reset the device can be addressed and configured again")
def _reset(bench: Bench) -> None:
    before = read(bench)
    bench.device.reset()
    equal("the descriptors after the reset", read(bench), before)


@STANDARD("GET_STATUS of the device", "9.4.5: self-powered as its configuration says, reserved bits clear")
def _device_status(bench: Bench) -> None:
    status = _status(bench, TO_DEVICE)
    powered = configuration(bench)[7] >> 6 & 1
    equal("self-powered", status & 1, powered)
    reserved = 0xFFFC if bench.high else 0xFFE2  # remote wake-up is the function's at SuperSpeed
    equal("reserved bits", status & reserved, 0)


@STANDARD("GET_STATUS of an interface", "9.4.5: 0 for an interface without remote wake-up")
def _interface_status(bench: Bench) -> None:
    equal("the status", _status(bench, TO_INTERFACE, 0), 0)
    bench.refuses(0x81, GET_STATUS, 0, NO_INTERFACE, 2)


@STANDARD("GET_STATUS of endpoints", "9.4.5: 0 if it is not halted; without an endpoint a request error")
def _endpoint_status(bench: Bench) -> None:
    for endpoint in (0x00, *_bulk(bench)):
        equal(f"status of EP {endpoint:#04x}", _status(bench, TO_ENDPOINT, endpoint), 0)
    bench.refuses(0x82, GET_STATUS, 0, NO_ENDPOINT, 2)


@STANDARD("GET_CONFIGURATION", "9.4.2: the value of the configuration that was set")
def _configuration(bench: Bench) -> None:
    answer = bench.standard_in(TO_DEVICE, GET_CONFIGURATION, length=1)
    equal("the configuration", answer, configuration(bench)[5:6])


@STANDARD("GET_INTERFACE", "9.4.4: the alternate setting; without an interface a request error")
def _interface(bench: Bench) -> None:
    equal("the setting", bench.standard_in(TO_INTERFACE, GET_INTERFACE, length=1), b"\0")
    bench.refuses(0x81, GET_INTERFACE, 0, NO_INTERFACE, 1)


@STANDARD(
    "SET_INTERFACE", "9.4.10: every existing setting can be chosen; others are request errors", Need.SANDBOX
)
def _set_interface(bench: Bench) -> None:
    settings = [piece[3] for piece in parts(configuration(bench)) if piece[1] == INTERFACE and not piece[2]]
    for setting in (*settings, 0):
        bench.standard_out(TO_INTERFACE, SET_INTERFACE, setting, 0)
        equal("the setting", bench.standard_in(TO_INTERFACE, GET_INTERFACE, length=1), bytes([setting]))
    bench.refuses(0x01, SET_INTERFACE, max(settings) + 1, 0, b"")
    bench.refuses(0x01, SET_INTERFACE, 0, NO_INTERFACE, b"")


@STANDARD("SET_CONFIGURATION", "9.4.7: 0 unconfigures, a value sets, others are request errors", Need.SANDBOX)
def _set_configuration(bench: Bench) -> None:
    value = configuration(bench)[5]
    for chosen in (0, value, value):
        bench.standard_out(TO_DEVICE, SET_CONFIGURATION, chosen)
        equal("the configuration", bench.standard_in(TO_DEVICE, GET_CONFIGURATION, length=1), bytes([chosen]))
    bench.refuses(0x00, SET_CONFIGURATION, value + 1, 0, b"")
    equal("the configuration", bench.standard_in(TO_DEVICE, GET_CONFIGURATION, length=1), bytes([value]))


@STANDARD(
    "unconfigured",
    "9.4.1 to 9.4.10: without a configuration there are only EP0 and the device, and no U1",
    Need.SANDBOX,
)
def _address_state(bench: Bench) -> None:
    value = configuration(bench)[5]
    bench.standard_out(TO_DEVICE, SET_CONFIGURATION, 0)
    try:
        bench.refuses(0x81, GET_INTERFACE, 0, 0, 1)
        bench.refuses(0x01, SET_INTERFACE, 0, 0, b"")
        bench.refuses(0x81, GET_STATUS, 0, 0, 2)
        for endpoint in _bulk(bench):
            bench.refuses(0x82, GET_STATUS, 0, endpoint, 2)
            bench.refuses(0x02, SET_FEATURE, ENDPOINT_HALT, endpoint, b"")
            bench.refuses(0x02, CLEAR_FEATURE, ENDPOINT_HALT, endpoint, b"")
        bench.refuses(0x00, SET_FEATURE, U1_ENABLE, 0, b"")
        equal("status of EP0", _status(bench, TO_ENDPOINT, 0), 0)
    finally:
        bench.standard_out(TO_DEVICE, SET_CONFIGURATION, value)


@STANDARD("ENDPOINT_HALT", "9.4.9, 9.4.1: a bulk endpoint can be halted, reports that, and can be cleared")
def _halt(bench: Bench) -> None:
    for endpoint in _bulk(bench):
        bench.standard_out(TO_ENDPOINT, SET_FEATURE, ENDPOINT_HALT, endpoint)
        status = _status(bench, TO_ENDPOINT, endpoint)
        bench.device.clear_halt(endpoint)
        equal(f"status of EP {endpoint:#04x} while halted", status, 1)
        equal(f"status of EP {endpoint:#04x} afterwards", _status(bench, TO_ENDPOINT, endpoint), 0)


@STANDARD(
    "end of halts",
    "9.4.7, 9.4.10, 9.1.1: SET_CONFIGURATION, SET_INTERFACE and a bus reset end halts",
    Need.SANDBOX,
)
def _halts_end(bench: Bench) -> None:
    value = configuration(bench)[5]
    ends = {
        "SET_CONFIGURATION": lambda: bench.standard_out(TO_DEVICE, SET_CONFIGURATION, value),
        "SET_INTERFACE": lambda: bench.standard_out(TO_INTERFACE, SET_INTERFACE, 0, 0),
        "a bus reset": bench.device.reset,
    }
    for name, end in ends.items():
        for endpoint in _bulk(bench):
            bench.standard_out(TO_ENDPOINT, SET_FEATURE, ENDPOINT_HALT, endpoint)
        end()
        for endpoint in _bulk(bench):
            equal(f"status of EP {endpoint:#04x} after {name}", _status(bench, TO_ENDPOINT, endpoint), 0)


@STANDARD("clearing no halt", "9.4.1: an endpoint that is not halted can be cleared too; hosts do so first")
def _clear(bench: Bench) -> None:
    for endpoint in _bulk(bench):
        bench.device.clear_halt(endpoint)
        bench.device.clear_halt(endpoint)
        equal(f"status of EP {endpoint:#04x}", _status(bench, TO_ENDPOINT, endpoint), 0)


@STANDARD("U1 and U2", "9.4.9: can be enabled and disabled, as GET_STATUS then reports", Need.SUPER)
def _link_states(bench: Bench) -> None:
    before = _status(bench, TO_DEVICE)  # the system may have enabled them
    for feature, bit in ((U1_ENABLE, U1_STATUS), (U2_ENABLE, U2_STATUS)):
        for request, expected in (
            (SET_FEATURE, before | bit),
            (CLEAR_FEATURE, before & ~bit),
            (SET_FEATURE if before & bit else CLEAR_FEATURE, before),
        ):
            bench.standard_out(TO_DEVICE, request, feature)
            equal(f"status after request {request}, feature {feature}", _status(bench, TO_DEVICE), expected)


@STANDARD("U1 and U2 after a reset", "9.1.1: a bus reset disables them", Need.SUPER, Need.SANDBOX)
def _link_states_reset(bench: Bench) -> None:
    for feature in (U1_ENABLE, U2_ENABLE):
        bench.standard_out(TO_DEVICE, SET_FEATURE, feature)
    bench.device.reset()
    equal("the status", _status(bench, TO_DEVICE) & (U1_STATUS | U2_STATUS), 0)


@STANDARD("FUNCTION_SUSPEND", "9.4.9: the first interface of a function accepts it", Need.SUPER)
def _suspend(bench: Bench) -> None:
    bench.standard_out(TO_INTERFACE, SET_FEATURE, FUNCTION_SUSPEND, 0)


@STANDARD("SET_SEL, SET_ISOCH_DELAY", "9.4.12, 9.4.11: a Linux host sends both", Need.SUPER)
def _latencies(bench: Bench) -> None:
    bench.standard_out(TO_DEVICE, SET_SEL, data=struct.pack("<BBHH", 1, 1, 50, 50))
    bench.standard_out(TO_DEVICE, SET_ISOCH_DELAY, value=40)


@STANDARD("SuperSpeed requests at High Speed", "USB 2.0, 9.4: they are request errors", Need.HIGH)
def _high_speed_features(bench: Bench) -> None:
    bench.refuses(0x00, SET_FEATURE, U1_ENABLE, 0, b"")
    bench.refuses(0x00, SET_FEATURE, U2_ENABLE, 0, b"")
    bench.refuses(0x01, SET_FEATURE, FUNCTION_SUSPEND, 0, b"")
    bench.refuses(0x00, SET_SEL, 0, 0, bytes(6))
    bench.refuses(0x00, SET_ISOCH_DELAY, 40, 0, b"")


@STANDARD("unknown features", "9.4.9: are request errors, set or cleared, for any recipient")
def _unknown_features(bench: Bench) -> None:
    endpoint = bench.device.in_endpoint
    for request in (SET_FEATURE, CLEAR_FEATURE):
        bench.refuses(0x00, request, NO_FEATURE, 0, b"")
        bench.refuses(0x01, request, NO_FEATURE, 0, b"")
        bench.refuses(0x00, request, U1_ENABLE | 0x100, 0, b"")
        bench.refuses(0x02, request, NO_FEATURE, endpoint, b"")
        bench.refuses(0x02, request, ENDPOINT_HALT | 0x100, endpoint, b"")
        bench.refuses(0x02, request, ENDPOINT_HALT, NO_ENDPOINT, b"")


@STANDARD("unknown requests", "9.2.7: standard requests that do not exist are request errors")
def _unknown_requests(bench: Bench) -> None:
    for request_type in (0x80, 0x81, 0x82):
        bench.refuses(request_type, 0x5C, 0, 0, 16)
    for request_type in (0x00, 0x01, 0x02):
        bench.refuses(request_type, 0x5C, 0, 0, b"")
    bench.refuses(0x00, 0x5C, 0, 0, bytes(16))


@STANDARD(
    "optional requests", "9.4.8, 9.4.13: SET_DESCRIPTOR, and SYNCH_FRAME of a bulk endpoint, are refused"
)
def _optional(bench: Bench) -> None:
    bench.refuses(0x00, SET_DESCRIPTOR, 1 << 8, 0, bytes(18))
    bench.refuses(0x82, SYNCH_FRAME, 0, bench.device.in_endpoint, 2)


@STANDARD("wrong recipients", "9.2.7: a request to a recipient that does not support it is a request error")
def _recipients(bench: Bench) -> None:
    bench.refuses(0x82, GET_INTERFACE, 0, bench.device.in_endpoint, 1)
    bench.refuses(0x81, GET_CONFIGURATION, 0, 0, 1)
    bench.refuses(0x82, 6, 1 << 8, bench.device.in_endpoint, 18)


@STANDARD("wrong directions", "9.2.7: requests the wrong way round are request errors")
def _directions(bench: Bench) -> None:
    bench.refuses(0x00, GET_CONFIGURATION, 0, 0, bytes(1))
    bench.refuses(0x00, GET_STATUS, 0, 0, bytes(2))
    bench.refuses(0x80, SET_CONFIGURATION, 1, 0, 1)


@STANDARD("reserved types", "9.3.1: requests of the reserved type, or to reserved recipients, are refused")
def _reserved(bench: Bench) -> None:
    bench.refuses(0xE0, 0x00, 0, 0, 2)
    bench.refuses(0x60, 0x00, 0, 0, b"")
    bench.refuses(0x9F, GET_STATUS, 0, 0, 2)


@STANDARD("speed", "9.4.3: the packet sizes in the descriptors agree with the link")
def _speed(bench: Bench) -> None:
    require(
        bench.device.speed in (Speed.HIGH, Speed.SUPER, Speed.SUPER_PLUS), f"the link is {bench.device.speed}"
    )
    equal("the largest bulk packet", bench.device.packet_size, 512 if bench.high else 1024)


SECTIONS = (STANDARD,)


def _status(bench: Bench, recipient: int, index: int = 0) -> int:
    answer = bench.standard_in(recipient, GET_STATUS, 0, index, 2)
    equal("length of the status", len(answer), 2)
    return int.from_bytes(answer, "little")


def _bulk(bench: Bench) -> tuple[int, int]:
    return bench.device.out_endpoint, bench.device.in_endpoint
