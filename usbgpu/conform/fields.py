"""The fields of USB descriptors, each with its rule from the specification, as data.

Sections of the USB 3.2 specification are named without a prefix; those of USB 2.0 say so. A rule gets the
field's value and its `Place`. Rules that take more than one descriptor are in `descriptors`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

DEVICE, CONFIGURATION, STRING, INTERFACE, ENDPOINT = 1, 2, 3, 4, 5
QUALIFIER, OTHER_SPEED, BOS, CAPABILITY, COMPANION = 6, 7, 15, 16, 48
USB2_EXTENSION, SUPERSPEED, CONTAINER_ID, SUPERSPEED_PLUS = 2, 3, 4, 10
BULK = 2
"""Transfer type in bmAttributes of an endpoint."""


@dataclass(frozen=True, slots=True)
class Place:
    """The descriptor that a field is in.

    Attributes:
        raw: the whole descriptor.
        high: the link runs at High Speed.
    """

    raw: bytes
    high: bool


Rule = Callable[[int, Place], bool]


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a descriptor.

    Attributes:
        name: as in the specification.
        offset: of its first byte.
        size: in bytes.
        says: the rule, as text.
        holds: the rule.
    """

    name: str
    offset: int
    size: int
    says: str
    holds: Rule

    def value(self, raw: bytes) -> int:
        """The field's value; missing bytes count as zeros."""
        return int.from_bytes(raw[self.offset : self.offset + self.size], "little")


@dataclass(frozen=True, slots=True)
class Layout:
    """A kind of descriptor.

    Attributes:
        name: as text.
        source: section of the specification.
        size: its fixed part in bytes.
        fields: in order.
    """

    name: str
    source: str
    size: int
    fields: tuple[Field, ...]


def _is(expected: int) -> Rule:
    return lambda value, place: value == expected


def _at_most(limit: int) -> Rule:
    return lambda value, place: value <= limit


def _by_speed(high: int, super_speed: int) -> Rule:
    return lambda value, place: value == (high if place.high else super_speed)


def _any(value: int, place: Place) -> bool:
    return True


def _bcd(value: int, place: Place) -> bool:
    return all(value >> shift & 0xF <= 9 for shift in (0, 4, 8, 12))


def _length(size: int) -> Field:
    return Field("bLength", 0, 1, f"{size}", _is(size))


def _type(kind: int) -> Field:
    return Field("bDescriptorType", 1, 1, f"{kind}", _is(kind))


def _no_class(value: int, place: Place) -> bool:
    return place.raw[4] != 0 or value == 0


_DEVICE = Layout(
    "device",
    "9.6.1",
    18,
    (
        _length(18),
        _type(DEVICE),
        Field(
            "bcdUSB",
            2,
            2,
            "3.00, 3.10 or 3.20 at SuperSpeed; 2.10 of such a device at High Speed",
            lambda value, place: value in ((0x0210,) if place.high else (0x0300, 0x0310, 0x0320)),
        ),
        Field("bDeviceClass", 4, 1, "any", _any),
        Field("bDeviceSubClass", 5, 1, "0 if the class is 0", _no_class),
        Field("bDeviceProtocol", 6, 1, "0 if the class is 0", _no_class),
        Field("bMaxPacketSize0", 7, 1, "9, for 2^9, at SuperSpeed; 64 at High Speed", _by_speed(64, 9)),
        Field("idVendor", 8, 2, "not 0", lambda value, place: value != 0),
        Field("idProduct", 10, 2, "any", _any),
        Field("bcdDevice", 12, 2, "binary-coded decimal", _bcd),
        Field("bNumConfigurations", 17, 1, "at least 1", lambda value, place: value >= 1),
    ),
)

_QUALIFIER = Layout(
    "device qualifier",
    "USB 2.0, 9.6.2",
    10,
    (
        _length(10),
        _type(QUALIFIER),
        Field("bcdUSB", 2, 2, "at least 2.00", lambda value, place: 0x0200 <= value <= 0x0210),
        Field("bDeviceClass", 4, 1, "any", _any),
        Field("bDeviceSubClass", 5, 1, "0 if the class is 0", _no_class),
        Field("bDeviceProtocol", 6, 1, "0 if the class is 0", _no_class),
        Field("bMaxPacketSize0", 7, 1, "8, 16, 32 or 64", lambda value, place: value in (8, 16, 32, 64)),
        Field("bReserved", 9, 1, "0", _is(0)),
    ),
)

_CONFIGURATION = Layout(
    "configuration",
    "9.6.3",
    9,
    (
        _length(9),
        _type(CONFIGURATION),
        Field("bNumInterfaces", 4, 1, "at least 1", lambda value, place: value >= 1),
        Field(
            "bConfigurationValue", 5, 1, "not 0, which means unconfigured", lambda value, place: value != 0
        ),
        Field("bmAttributes", 7, 1, "bit 7 set, bits 4:0 clear", lambda value, place: value & 0x9F == 0x80),
        Field(
            "bMaxPower",
            8,
            1,
            "at most 900 mA in units of 8 mA at SuperSpeed, 500 mA in units of 2 mA at High Speed",
            lambda value, place: value <= (250 if place.high else 112),
        ),
    ),
)

_INTERFACE = Layout(
    "interface",
    "9.6.5",
    9,
    (
        _length(9),
        _type(INTERFACE),
        Field("bInterfaceClass", 5, 1, "not 0, which is reserved", lambda value, place: value != 0),
    ),
)


def _packet_size(value: int, place: Place) -> bool:
    return place.raw[3] & 3 != BULK or value == (512 if place.high else 1024)


_ENDPOINT = Layout(
    "endpoint",
    "9.6.6",
    7,
    (
        _length(7),
        _type(ENDPOINT),
        Field(
            "bEndpointAddress",
            2,
            1,
            "number not 0, bits 6:4 clear",
            lambda value, place: value & 0x0F != 0 and value & 0x70 == 0,
        ),
        Field(
            "bmAttributes",
            3,
            1,
            "bits 7:6 clear; of a bulk endpoint bits 5:2 too",
            lambda value, place: value & 0xC0 == 0 and (value & 3 != BULK or value == BULK),
        ),
        Field(
            "wMaxPacketSize", 4, 2, "1024 of bulk endpoints at SuperSpeed, 512 at High Speed", _packet_size
        ),
        Field(
            "bInterval",
            6,
            1,
            "0 of bulk endpoints at SuperSpeed, where it is reserved",
            lambda value, place: place.high or place.raw[3] & 3 != BULK or value == 0,
        ),
    ),
)

_COMPANION = Layout(
    "endpoint companion",
    "9.6.7",
    6,
    (
        _length(6),
        _type(COMPANION),
        Field("bMaxBurst", 2, 1, "at most 15", _at_most(15)),
        Field(
            "bmAttributes",
            3,
            1,
            "of a bulk endpoint: at most 2^16 streams, bits 7:5 clear",
            lambda value, place: value <= 16,
        ),
        Field("wBytesPerInterval", 4, 2, "0 of bulk endpoints", _is(0)),
    ),
)

_BOS = Layout(
    "BOS",
    "9.6.2",
    5,
    (
        _length(5),
        _type(BOS),
        Field("bNumDeviceCaps", 4, 1, "at least 2", lambda value, place: value >= 2),
    ),
)

_USB2_EXTENSION = Layout(
    "USB 2.0 extension",
    "9.6.2.1",
    7,
    (
        _length(7),
        _type(CAPABILITY),
        Field("bDevCapabilityType", 2, 1, "2", _is(USB2_EXTENSION)),
        Field(
            "bmAttributes",
            3,
            4,
            "bit 1 (LPM) set, bits 0 and 31:16 clear",
            lambda value, place: value & 0xFFFF0003 == 0x2,
        ),
    ),
)


def _lowest_speed(value: int, place: Place) -> bool:
    """BFunctionalitySupport names a speed of wSpeedsSupported."""
    return value <= 3 and bool(int.from_bytes(place.raw[4:6], "little") >> value & 1)


_SUPERSPEED = Layout(
    "SuperSpeed capability",
    "9.6.2.2",
    10,
    (
        _length(10),
        _type(CAPABILITY),
        Field("bDevCapabilityType", 2, 1, "3", _is(SUPERSPEED)),
        Field("bmAttributes", 3, 1, "bits 7:2 and 0 clear", lambda value, place: value & 0xFD == 0),
        Field(
            "wSpeedsSupported",
            4,
            2,
            "5 Gb/s and High Speed among them, bits 15:4 clear",
            lambda value, place: value & ~0xF == 0 and value & 0xC == 0xC,
        ),
        Field("bFunctionalitySupport", 6, 1, "a speed that is supported", _lowest_speed),
        Field("bU1DevExitLat", 7, 1, "at most 10 us", _at_most(10)),
        Field("wU2DevExitLat", 8, 2, "at most 2047 us", _at_most(2047)),
    ),
)


def _plus_length(value: int, place: Place) -> bool:
    """12 bytes, and four for each sublink attribute."""
    return len(place.raw) >= 5 and value == 12 + 4 * ((place.raw[4] & 0x1F) + 1)


_SUPERSPEED_PLUS = Layout(
    "SuperSpeedPlus capability",
    "9.6.2.5",
    12,
    (
        Field("bLength", 0, 1, "12, and 4 for each sublink attribute", _plus_length),
        _type(CAPABILITY),
        Field("bDevCapabilityType", 2, 1, "10", _is(SUPERSPEED_PLUS)),
        Field("bReserved", 3, 1, "0", _is(0)),
        Field("bmAttributes", 4, 4, "bits 31:9 clear", lambda value, place: value >> 9 == 0),
        Field(
            "wFunctionalitySupport",
            8,
            2,
            "bits 7:4 clear, at least one lane each way",
            lambda value, place: value & 0xF0 == 0 and value & 0x0F00 != 0 and value & 0xF000 != 0,
        ),
        Field("wReserved", 10, 2, "0", _is(0)),
    ),
)

_CONTAINER_ID = Layout(
    "container id",
    "9.6.2.3",
    20,
    (
        _length(20),
        _type(CAPABILITY),
        Field("bDevCapabilityType", 2, 1, "4", _is(CONTAINER_ID)),
        Field("bReserved", 3, 1, "0", _is(0)),
    ),
)

LAYOUTS = {
    DEVICE: _DEVICE,
    CONFIGURATION: _CONFIGURATION,
    INTERFACE: _INTERFACE,
    ENDPOINT: _ENDPOINT,
    QUALIFIER: _QUALIFIER,
    BOS: _BOS,
    COMPANION: _COMPANION,
}
"""By descriptor type."""

CAPABILITIES = {
    USB2_EXTENSION: _USB2_EXTENSION,
    SUPERSPEED: _SUPERSPEED,
    CONTAINER_ID: _CONTAINER_ID,
    SUPERSPEED_PLUS: _SUPERSPEED_PLUS,
}
"""By device capability type."""


def exercised(layout: Layout) -> tuple[Field, ...]:
    """The fields that have a rule."""
    return tuple(field for field in layout.fields if field.holds is not _any)
