"""The layout of the SPI flash, and of its one-time programmable page.

Two configuration blocks of 128 bytes, then the wrapped image. A block ends with a magic byte and a checksum,
which does not cover its first four bytes. The layout was checked on the blocks that the open firmware's flash
tool writes; the meaning of most settings is not known.
"""

from __future__ import annotations

import functools
import itertools
import operator
from dataclasses import dataclass

from sdk.facts.registers import Evidence, FactError
from sdk.facts.structures import Finding, Malformed, Member, Struct

_SOURCE = "open firmware, flash.py and e4_flash.py; cyrozap/usb-to-pcie-re tool"

PAGE_SIZE = 0x100
"""Bytes that one page program can reach."""
SECTOR_SIZE = 0x1000
"""Bytes that command 20 erases."""
BLOCK_SIZE = 0x10000
"""Bytes that command D8 erases."""


@dataclass(frozen=True, slots=True)
class Region:
    """A region of the flash.

    Attributes:
        name: a C identifier in capitals.
        address: its first byte.
        size: in bytes.
        doc: what it holds.
    """

    name: str
    address: int
    size: int
    doc: str


CONFIG_BLOCKS = (
    Struct(
        "CONFIG_BLOCK_0",
        0x80,
        (
            Member("unchecked", 4, "not covered by the checksum; 0xFF", raw=True),
            Member("settings", 0x70, "serial number and strings among them", raw=True),
            Member("vendor_id", 2, "idVendor"),
            Member("product_id", 2, "idProduct"),
            Member("bcd_device", 2, "bcdDevice"),
            Member("options", 4, "not known", raw=True),
            Member("magic", 1, fixed=0x5A),
            Member("checksum", 1, "sum of bytes 0x04 to 0x7E, modulo 256"),
        ),
        "Configuration block 0: identity of the USB device.",
        Evidence.INFERRED,
        _SOURCE,
    ),
    Struct(
        "CONFIG_BLOCK_1",
        0x80,
        (
            Member("unchecked", 4, "not covered by the checksum; 0xFF", raw=True),
            Member("settings", 0x7A, "not known", raw=True),
            Member("magic", 1, fixed=0xA5),
            Member("checksum", 1, "sum of bytes 0x04 to 0x7E, modulo 256"),
        ),
        "Configuration block 1: identity of the USB4 device.",
        Evidence.INFERRED,
        _SOURCE,
    ),
)
"""The configuration blocks by index."""

CONFIG_0 = Region("FLASH_CONFIG_0", 0x000, 0x80, "configuration block 0")
CONFIG_1 = Region("FLASH_CONFIG_1", 0x080, 0x80, "configuration block 1")
IMAGE = Region("FLASH_IMAGE", 0x100, 0x17EE0, "the wrapped image; this is its largest size")
REGIONS: tuple[Region, ...] = (CONFIG_0, CONFIG_1, IMAGE)

OTP_SERIAL = Struct(
    "OTP_SERIAL",
    5,
    (
        Member("serial", 4, "printed as eight hexadecimal digits, first byte first", raw=True),
        Member("check", 1, "exclusive or of the four bytes"),
    ),
    "Start of the one-time programmable page. With a wrong check byte the serial number is ffffffff.",
    Evidence.TRACE,
    "open firmware, flash.h",
)

STRUCTS: tuple[Struct, ...] = (*CONFIG_BLOCKS, OTP_SERIAL)

_CHECKED = slice(4, 0x7F)


def seal(index: int, block: bytes) -> bytes:
    """A configuration block with its magic byte and checksum set.

    Raises:
        Malformed: it does not have 128 bytes.
    """
    layout = CONFIG_BLOCKS[index]
    if len(block) != layout.size:
        raise Malformed(layout.name, layout.examine(block))
    sealed = bytearray(block)
    sealed[layout.offset("magic")] = layout.member("magic").fixed or 0
    sealed[layout.offset("checksum")] = sum(sealed[_CHECKED]) & 0xFF
    return bytes(sealed)


def examine(index: int, block: bytes) -> list[Finding]:
    """What is wrong with a configuration block, field by field."""
    layout = CONFIG_BLOCKS[index]
    findings = layout.examine(block)
    if len(block) == layout.size:
        expected, found = sum(block[_CHECKED]) & 0xFF, block[layout.offset("checksum")]
        if expected != found:
            findings.append(Finding("checksum", layout.offset("checksum"), f"{expected:#x}", f"{found:#x}"))
    return findings


def otp(serial: bytes) -> bytes:
    """The start of an OTP page with that serial number of four bytes."""
    return OTP_SERIAL.pack(serial=serial, check=functools.reduce(operator.xor, serial, 0))


def serial_number(page: bytes) -> str:
    """The serial number that firmware reads from an OTP page: eight hexadecimal digits."""
    serial = OTP_SERIAL.part(page, "serial")
    return serial.hex() if page[: OTP_SERIAL.size] == otp(serial) else "ffffffff"


for _index, _region in enumerate(REGIONS[:2]):
    if CONFIG_BLOCKS[_index].size != _region.size:
        raise FactError(f"{_region.name}: its structure has another size")
if any(first.address + first.size > second.address for first, second in itertools.pairwise(REGIONS)):
    raise FactError("REGIONS: two regions of the flash overlap")
