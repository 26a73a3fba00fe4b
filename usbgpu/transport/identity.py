"""What runs on a bridge: our firmware, a compatible one, the maker's, the mask ROM's loader, or none of them.

The identity comes from descriptors, and of our own firmware from its request INFO. Nothing is sent that could
change a device which turns out to be something else. A firmware that is not ours may leave an unknown request
unanswered rather than stall it, so INFO is only sent to what calls itself ours.

Sources: ids and product strings of the boot loader and of the maker's firmware from cyrozap/usb-to-pcie-re
and the open firmware's flash tool; that a mass-storage device with those ids is the maker's firmware is
inferred. A configuration block in the flash may give the maker's firmware any ids; then it is `UNKNOWN`.
"""

from __future__ import annotations

import contextlib
import struct
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from firmware.protocol import commands, requests
from sdk.errors import DeviceFailed
from sdk.facts.structures import Malformed
from usbgpu.transport.speed import Speed

OPEN_FIRMWARE = frozenset({(0xADD1, 0x0001), (0x3801, 0x0001)})
"""idVendor and idProduct of the open firmware, until and since the summer of 2026 (trace: pull request 76 of
tinygrad/asm2464pd-firmware); ours has the first, and serves the same hosts."""
MAKER = 0x174C
"""idVendor of the chip's maker, as USB devices have it."""
CHIPS = (0x2463, 0x2464)
"""idProduct of the chip with nothing in its configuration blocks, and with the maker's firmware."""
KNOWN_IDS = OPEN_FIRMWARE | {(MAKER, product) for product in CHIPS}
"""What the device string `usb` looks for."""

OUR_MANUFACTURER = "towline"
OUR_PRODUCT = "custom towline"
COMPATIBLE_PREFIX = "custom"
"""How products begin that answer the compatible requests; existing hosts look for it."""
LOADER_PRODUCT = "AS2462"
LOADER_SERIAL = "0" * 20

MASS_STORAGE = 0x08
INFO_PATIENCE = 1.0
"""Seconds that INFO may take; it waits for nothing."""


class Running(Enum):
    """What runs on the device; the value is what a user reads."""

    OURS = "towline firmware"
    COMPATIBLE = "compatible firmware"
    MAKERS = "mass-storage firmware"
    LOADER = "mask ROM boot loader"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Identity:
    """What is known of a device.

    Attributes:
        running: what runs on it.
        vendor: idVendor; so are the next two idProduct and bcdDevice.
        manufacturer: its strings, "" where it has none.
        interface_class: bInterfaceClass of its first interface.
        speed: of the link.
        api_level: of our firmware; else None.
        build: likewise, the digest of its sources.
    """

    running: Running
    vendor: int
    product_id: int
    release: int
    manufacturer: str
    product: str
    serial: str
    interface_class: int
    speed: Speed
    api_level: int | None = None
    build: int | None = None

    def __str__(self) -> str:
        text = f"{self.running.value}, {self.vendor:04x}:{self.product_id:04x} {self.product!r}"
        if self.serial:
            text += f", serial {self.serial}"
        if self.api_level is not None:
            text += f", API {self.api_level >> 8}.{self.api_level & 0xFF}"
        if self.build is not None:
            text += f", build {self.build:08x}"
        return f"{text}, {self.speed.value}"


class Device(Protocol):
    """What identification needs of an open device; `device.Transport` has it."""

    interface_class: int

    @property
    def speed(self) -> Speed:
        """Of the link."""

    def descriptor(self, kind: int, index: int, length: int) -> bytes:
        """A descriptor, from the device itself."""

    def string(self, index: int) -> str | None:
        """A string of the device; None if it has no such string."""

    def control_in(self, request_type: int, request: int, *, length: int, timeout: float) -> bytes:
        """A control transfer towards the host."""


def identify(device: Device) -> Identity:
    """Ask a device what it is.

    Raises:
        DeviceFailed: it does not return its device descriptor.
    """
    raw = device.descriptor(1, 0, 18)
    if len(raw) != 18 or raw[1] != 1:
        raise DeviceFailed(f"the answer {raw.hex(' ')} is not a device descriptor", where=str(device))
    vendor, product_id, release, *strings = struct.unpack_from("<HHHBBB", raw, 8)
    manufacturer, product, serial = (device.string(index) or "" for index in strings)
    running = classify(vendor, product_id, manufacturer, product, serial, device.interface_class)
    level, build = _info(device) if running is Running.OURS else (None, None)
    return Identity(
        running,
        vendor,
        product_id,
        release,
        manufacturer,
        product,
        serial,
        device.interface_class,
        device.speed,
        level,
        build,
    )


def classify(
    vendor: int, product_id: int, manufacturer: str, product: str, serial: str, interface_class: int
) -> Running:
    """What a device with these descriptors is."""
    if interface_class == MASS_STORAGE:
        if product == LOADER_PRODUCT and serial == LOADER_SERIAL:
            return Running.LOADER
        named = product.startswith(LOADER_PRODUCT)
        return Running.MAKERS if named or (vendor, product_id) in KNOWN_IDS else Running.UNKNOWN
    if (vendor, product_id) not in OPEN_FIRMWARE or not product.startswith(COMPATIBLE_PREFIX):
        return Running.UNKNOWN
    ours = (manufacturer, product) == (OUR_MANUFACTURER, OUR_PRODUCT)
    return Running.OURS if ours else Running.COMPATIBLE


def _info(device: Device) -> tuple[int | None, int | None]:
    """API level and build of our firmware; None if it does not answer."""
    request = requests.INFO
    with contextlib.suppress(DeviceFailed, Malformed):
        answer = device.control_in(
            request.request_type, request.code, length=commands.INFO.size, timeout=INFO_PATIENCE
        )
        found = commands.INFO.unpack(answer)
        return found["api_level"], found["build"]
    return None, None
