"""Standard requests and descriptors (USB 3.2 and 2.0, chapter 9), and what they say of a device.

`enumerate_device` asks a device for them in the order in which a Linux host does: at High Speed the device
descriptor at address 0 and a second reset, then SET_ADDRESS, the descriptors, and SET_CONFIGURATION of the
first configuration. Strings are left to callers.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import IntEnum

from emulator.core.clock import seconds
from emulator.usb import timing
from emulator.usb.wire import Setup, Speed, Stall, UsbDevice
from sdk.errors import DeviceFailed

PATIENCE = 5.0
"""Virtual seconds that a standard request may take (USB 2.0, 9.2.6.4; Linux waits as long)."""
ATTACH_PATIENCE = 10.0
"""Virtual seconds from a reset until the link must be up again."""


class EnumerationFailed(DeviceFailed):
    """The device does not attach, or does not answer a standard request as it must."""


class RequestCode(IntEnum):
    """bRequest of the standard requests (USB 3.2, table 9-5)."""

    GET_STATUS = 0
    CLEAR_FEATURE = 1
    SET_FEATURE = 3
    SET_ADDRESS = 5
    GET_DESCRIPTOR = 6
    SET_DESCRIPTOR = 7
    GET_CONFIGURATION = 8
    SET_CONFIGURATION = 9
    GET_INTERFACE = 10
    SET_INTERFACE = 11


class DescriptorType(IntEnum):
    """bDescriptorType (USB 3.2, table 9-6)."""

    DEVICE = 1
    CONFIGURATION = 2
    STRING = 3
    INTERFACE = 4
    ENDPOINT = 5
    DEVICE_QUALIFIER = 6
    BOS = 15


ENDPOINT_HALT = 0
"""Feature selector of an endpoint."""
DEVICE_LENGTH = 18
BOS_HEADER_LENGTH = 5
CONFIGURATION_LENGTH = 9
INTERFACE_LENGTH = 9
ENDPOINT_LENGTH = 7


def get_descriptor(kind: DescriptorType, index: int, length: int) -> Setup:
    """GET_DESCRIPTOR."""
    return Setup(0x80, RequestCode.GET_DESCRIPTOR, kind << 8 | index, 0, length)


def set_address(address: int) -> Setup:
    """SET_ADDRESS."""
    return Setup(0x00, RequestCode.SET_ADDRESS, address, 0, 0)


def set_configuration(value: int) -> Setup:
    """SET_CONFIGURATION; 0 leaves the device unconfigured."""
    return Setup(0x00, RequestCode.SET_CONFIGURATION, value, 0, 0)


def set_interface(interface: int, alternate: int) -> Setup:
    """SET_INTERFACE."""
    return Setup(0x01, RequestCode.SET_INTERFACE, alternate, interface, 0)


def clear_halt(endpoint: int) -> Setup:
    """CLEAR_FEATURE(ENDPOINT_HALT)."""
    return Setup(0x02, RequestCode.CLEAR_FEATURE, ENDPOINT_HALT, endpoint, 0)


@dataclass(frozen=True, slots=True)
class Descriptors:
    """What a device says of itself, as it sent it.

    Attributes:
        device: the device descriptor.
        configurations: each configuration descriptor with all that belongs to it.
        bos: the binary object store with its capabilities, None if the device has none.
    """

    device: bytes
    configurations: tuple[bytes, ...]
    bos: bytes | None


@dataclass(slots=True)
class EndpointDescriptor:
    """An endpoint descriptor, and the class-specific and companion descriptors after it."""

    raw: bytes
    extra: bytes = b""


@dataclass(slots=True)
class InterfaceDescriptor:
    """One alternate setting of an interface, and what belongs to it."""

    raw: bytes
    extra: bytes = b""
    endpoints: list[EndpointDescriptor] = field(default_factory=list)

    @property
    def number(self) -> int:
        """Its bInterfaceNumber."""
        return self.raw[2]

    @property
    def alternate(self) -> int:
        """Its bAlternateSetting."""
        return self.raw[3]


@dataclass(slots=True)
class ConfigurationDescriptor:
    """A configuration; `interfaces[i]` are the alternate settings of the i-th interface."""

    raw: bytes
    extra: bytes = b""
    interfaces: list[list[InterfaceDescriptor]] = field(default_factory=list)

    @property
    def value(self) -> int:
        """Its bConfigurationValue."""
        return self.raw[5]


def parse_configuration(data: bytes) -> ConfigurationDescriptor:
    """Take a configuration descriptor and all that follows it apart.

    Raises:
        EnumerationFailed: a descriptor is cut short, too short for its type, or out of order.
    """
    if len(data) < CONFIGURATION_LENGTH or data[0] < CONFIGURATION_LENGTH:
        raise _malformed(data, 0, "is not a configuration descriptor")
    found = ConfigurationDescriptor(data[:CONFIGURATION_LENGTH])
    by_number: dict[int, list[InterfaceDescriptor]] = {}
    current: ConfigurationDescriptor | InterfaceDescriptor | EndpointDescriptor = found
    interface: InterfaceDescriptor | None = None
    place = data[0]
    while place < len(data):
        length = data[place]
        if length < 2 or place + length > len(data):
            raise _malformed(data, place, f"has an impossible length of {length}")
        raw = data[place : place + length]
        if raw[1] == DescriptorType.INTERFACE:
            if length < INTERFACE_LENGTH:
                raise _malformed(data, place, "is too short for an interface")
            current = interface = InterfaceDescriptor(raw)
            by_number.setdefault(interface.number, []).append(interface)
        elif raw[1] == DescriptorType.ENDPOINT:
            if length < ENDPOINT_LENGTH:
                raise _malformed(data, place, "is too short for an endpoint")
            if interface is None:
                raise _malformed(data, place, "is an endpoint outside an interface")
            current = EndpointDescriptor(raw)
            interface.endpoints.append(current)
        else:
            current.extra += raw
        place += length
    found.interfaces = list(by_number.values())
    return found


def enumerate_device(device: UsbDevice, address: int, configuration: int | None = None) -> Descriptors:
    """Reset a device and bring it to the configured state.

    Args:
        device: the device, attached or about to be.
        address: for SET_ADDRESS.
        configuration: value to configure; None for that of the first configuration.

    Raises:
        EnumerationFailed: it does not attach, or does not answer a request as it must.
        DeviceFailed: the firmware has crashed.
        ConnectionError: it went away during that.
    """
    _attach(device)
    if device.speed is Speed.HIGH:
        _ask(device, get_descriptor(DescriptorType.DEVICE, 0, 64), 8)
        _attach(device)
    _ask(device, set_address(address))
    device.clock.sleep(seconds(timing.ADDRESS_RECOVERY.clocks))
    _ask(device, get_descriptor(DescriptorType.DEVICE, 0, 8), 8)
    found = _ask(device, get_descriptor(DescriptorType.DEVICE, 0, DEVICE_LENGTH), DEVICE_LENGTH)
    bos = _bos(device) if struct.unpack_from("<H", found, 2)[0] >= 0x0201 else None
    configurations = tuple(
        _whole(device, DescriptorType.CONFIGURATION, index, CONFIGURATION_LENGTH)
        for index in range(found[17])
    )
    if configuration is None and configurations:
        configuration = configurations[0][5]
    if configuration:
        _ask(device, set_configuration(configuration))
    return Descriptors(found, configurations, bos)


def _attach(device: UsbDevice) -> None:
    """Reset, and wait until the link is up."""
    up = device.wait_attached(ATTACH_PATIENCE)
    if up:
        device.reset()
        up = device.wait_attached(ATTACH_PATIENCE)
    if not up:
        raise EnumerationFailed(
            f"no link came up within {ATTACH_PATIENCE:g} s of virtual time",
            where="USB port",
            hint=device.why(None)
            or "the firmware may have stopped before it set the USB lanes up: see with --trace usb",
        )


def _bos(device: UsbDevice) -> bytes | None:
    """The BOS descriptor; a device that refuses it is a device without capabilities."""
    try:
        return _whole(device, DescriptorType.BOS, 0, BOS_HEADER_LENGTH)
    except EnumerationFailed:
        return None


def _whole(device: UsbDevice, kind: DescriptorType, index: int, header: int) -> bytes:
    """A descriptor with a total length in bytes 2 and 3: its header first, then all of it."""
    start = _ask(device, get_descriptor(kind, index, header), header)
    total: int = struct.unpack_from("<H", start, 2)[0]
    if total < header:
        raise EnumerationFailed(
            f"it states a total length of {total}", where=_name(get_descriptor(kind, index, header))
        )
    return _ask(device, get_descriptor(kind, index, total), total)


def _ask(device: UsbDevice, setup: Setup, least: int = 0) -> bytes:
    """A standard request of which at least so many bytes must come back."""
    hint = "the firmware's handling of standard requests is at fault: see with --trace usb"
    try:
        answer = device.control(setup, timeout=PATIENCE)
    except Stall:
        raise EnumerationFailed("the device stalled it", where=_name(setup), hint=hint) from None
    except TimeoutError:
        raise EnumerationFailed(
            f"the device did not answer within {PATIENCE:g} s of virtual time",
            where=_name(setup),
            hint=device.why(0) or hint,
        ) from None
    kind = setup.value >> 8
    if setup.is_in and (len(answer) < least or answer[1] != kind):
        raise EnumerationFailed(
            f"it answered {answer.hex(' ') or 'nothing'}, which is not a descriptor of type {kind} "
            f"with at least {least} bytes",
            where=_name(setup),
            hint=hint,
        )
    return answer


def _name(setup: Setup) -> str:
    request = RequestCode(setup.request)
    if request is RequestCode.GET_DESCRIPTOR:
        kind = DescriptorType(setup.value >> 8).name
        return f"GET_DESCRIPTOR({kind} {setup.value & 0xFF}, {setup.length} bytes)"
    return f"{request.name}({setup.value})"


def _malformed(data: bytes, place: int, what: str) -> EnumerationFailed:
    return EnumerationFailed(
        f"the descriptor at byte {place} {what} ({data[place : place + 9].hex(' ')})",
        where="configuration descriptor",
    )
