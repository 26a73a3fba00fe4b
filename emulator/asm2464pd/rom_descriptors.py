"""The USB descriptors of the mask ROM's bootloader.

Values are those of a published `lsusb -v` of an ASM2464PD whose ROM was running (cyrozap/usb-to-pcie-re,
USB-descriptor-ASM2464-ROM.txt), taken at SuperSpeed; the High Speed set is the same device with the packet
sizes that USB 2.0 prescribes (inferred). Formats are chapter 9 of USB 3.2 and USB 2.0.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from emulator.asm2464pd.rom_bot import IN_ENDPOINT, OUT_ENDPOINT

MANUFACTURER, PRODUCT, SERIAL = "ASMedia", "AS2462", "0" * 20
SERIAL_INDEX, MANUFACTURER_INDEX, PRODUCT_INDEX = 1, 2, 3
BULK_PACKET_SUPER, BULK_PACKET_HIGH = 1024, 512
CONTROL_PACKET_SUPER, CONTROL_PACKET_HIGH = 512, 64
MASS_STORAGE, SCSI_TRANSPARENT, BULK_ONLY = 0x08, 0x06, 0x50
SELF_POWERED = 0xC0
LANGUAGE_ENGLISH_US = 0x0409


class Descriptor(IntEnum):
    """Descriptor types (USB 3.2, table 9-6)."""

    DEVICE = 1
    CONFIGURATION = 2
    STRING = 3
    INTERFACE = 4
    ENDPOINT = 5
    DEVICE_QUALIFIER = 6
    OTHER_SPEED_CONFIGURATION = 7
    BOS = 15
    DEVICE_CAPABILITY = 16
    ENDPOINT_COMPANION = 48


@dataclass(frozen=True, slots=True)
class Identity:
    """What a device calls itself; the ROM's own unless the flash's configuration block says otherwise."""

    vendor: int = 0x174C
    product: int = 0x2463
    release: int = 0x0001


def find(kind: int, index: int, identity: Identity, *, super_speed: bool) -> bytes | None:
    """The descriptor that GET_DESCRIPTOR asks for, None if the device does not have it.

    Args:
        kind: descriptor type.
        index: descriptor index.
        identity: vendor, product and release.
        super_speed: whether the link runs at SuperSpeed or above.
    """
    match kind:
        case Descriptor.DEVICE:
            return _device(identity, super_speed=super_speed)
        case Descriptor.CONFIGURATION if index == 0:
            return _configuration(Descriptor.CONFIGURATION, super_speed=super_speed)
        case Descriptor.STRING:
            return _string(index)
        case Descriptor.BOS:
            return _BOS
        case Descriptor.DEVICE_QUALIFIER if not super_speed:
            return struct.pack("<BBHBBBBBB", 10, kind, 0x0210, 0, 0, 0, CONTROL_PACKET_HIGH, 1, 0)
        case Descriptor.OTHER_SPEED_CONFIGURATION if not super_speed and index == 0:
            return _configuration(Descriptor.OTHER_SPEED_CONFIGURATION, super_speed=False)
    return None


def _device(identity: Identity, *, super_speed: bool) -> bytes:
    # bMaxPacketSize0 is a power of two at SuperSpeed, a number of bytes at High Speed.
    version, packet = (0x0320, 9) if super_speed else (0x0210, CONTROL_PACKET_HIGH)
    return struct.pack(
        "<BBHBBBBHHHBBBB",
        18,
        Descriptor.DEVICE,
        version,
        0,
        0,
        0,
        packet,
        identity.vendor,
        identity.product,
        identity.release,
        MANUFACTURER_INDEX,
        PRODUCT_INDEX,
        SERIAL_INDEX,
        1,
    )


def _configuration(kind: Descriptor, *, super_speed: bool) -> bytes:
    interface = struct.pack(
        "<BBBBBBBBB",
        9,
        Descriptor.INTERFACE,
        0,
        0,
        2,
        MASS_STORAGE,
        SCSI_TRANSPARENT,
        BULK_ONLY,
        0,
    )
    packet = BULK_PACKET_SUPER if super_speed else BULK_PACKET_HIGH
    companion = struct.pack("<BBBBH", 6, Descriptor.ENDPOINT_COMPANION, 15, 0, 0) if super_speed else b""
    endpoints = b"".join(
        struct.pack("<BBBBHB", 7, Descriptor.ENDPOINT, address, 2, packet, 0) + companion
        for address in (IN_ENDPOINT, OUT_ENDPOINT)
    )
    body = interface + endpoints
    return struct.pack("<BBHBBBBB", 9, kind, 9 + len(body), 1, 1, 0, SELF_POWERED, 0) + body


def _string(index: int) -> bytes | None:
    if index == 0:
        return struct.pack("<BBH", 4, Descriptor.STRING, LANGUAGE_ENGLISH_US)
    strings = {SERIAL_INDEX: SERIAL, MANUFACTURER_INDEX: MANUFACTURER, PRODUCT_INDEX: PRODUCT}
    text = strings.get(index)
    if text is None:
        return None
    encoded = text.encode("utf-16-le")
    return bytes((2 + len(encoded), Descriptor.STRING)) + encoded


def _capability(kind: int, body: bytes) -> bytes:
    return bytes((3 + len(body), Descriptor.DEVICE_CAPABILITY, kind)) + body


_CAPABILITIES = (
    _capability(2, struct.pack("<I", 0xF41E)),  # USB 2.0 extension: link power management
    _capability(3, struct.pack("<BHBBH", 0, 0x000E, 1, 10, 2047)),  # SuperSpeed: speeds, exit latencies
    _capability(10, struct.pack("<BIHHII", 0, 1, 0x1100, 0, 0x000A4030, 0x000A40B0)),  # 10 Gb/s, both ways
)
_BOS = struct.pack(
    "<BBHB", 5, Descriptor.BOS, 5 + sum(map(len, _CAPABILITIES)), len(_CAPABILITIES)
) + b"".join(_CAPABILITIES)
