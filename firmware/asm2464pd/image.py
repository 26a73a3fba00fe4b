"""The firmware image: how it is wrapped in flash, and where its bytes go in CODE space.

The layout is that of the vendor's images (cyrozap/usb-to-pcie-re's description, checked on two of them):
a length, the body, a magic byte, a sum and a CRC. The body is cut into a common half of CODE space and two
banks of the other half. SFR 0x96 selects the bank.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from sdk.facts.registers import Evidence, FactError
from sdk.facts.structures import Finding, Malformed, Member, Struct

CODE_SIZE = 0x10000
"""Bytes of CODE space as the CPU sees it with one bank selected."""
ERASED = 0xFF
"""The value of a CODE byte that no image filled. Inferred: erased flash."""

_SOURCE = "cyrozap/usb-to-pcie-re description of the image, checked on vendor images"

HEADER = Struct(
    "IMAGE_HEADER",
    4,
    (Member("body_length", 4, "bytes of the body"),),
    "Precedes the body.",
    Evidence.HARDWARE,
    _SOURCE,
)
TRAILER = Struct(
    "IMAGE_TRAILER",
    6,
    (
        Member("magic", 1, fixed=0xA5),
        Member("checksum", 1, "sum of the body's bytes, modulo 256"),
        Member("crc", 4, "CRC-32 of the body (zlib's, that of IEEE 802.3)"),
    ),
    "Follows the body.",
    Evidence.HARDWARE,
    _SOURCE,
)
OVERHEAD = HEADER.size + TRAILER.size
"""Bytes that wrapping adds."""


@dataclass(frozen=True, slots=True)
class CodeArea:
    """A part of the body and its place in CODE space.

    Attributes:
        name: a C identifier in capitals.
        banks: CODE banks (SFR 0x96) in which it is visible.
        address: its first CODE address.
        body: its offsets in the body.
    """

    name: str
    banks: tuple[int, ...]
    address: int
    body: range

    def __post_init__(self) -> None:
        if self.address + len(self.body) > CODE_SIZE:
            raise FactError(f"{self.name}: reaches beyond CODE space")


CODE_AREAS: tuple[CodeArea, ...] = (
    CodeArea("CODE_COMMON", (0, 1), 0x0000, range(0x8000)),
    CodeArea("CODE_BANK0", (0,), 0x8000, range(0x8000, 0xFF6B)),
    CodeArea("CODE_BANK1", (1,), 0x8000, range(0xFF6B, 0x17ED6)),
)
"""How the body is cut. Inferred: open firmware, split.py, checked on a vendor image; 0x95 bytes at the end of
each bank stay empty."""
MAX_BODY = CODE_AREAS[-1].body.stop
"""Bytes of the largest body; the vendor's are all of this size."""
MAX_IMAGE = MAX_BODY + OVERHEAD


def wrap(body: bytes) -> bytes:
    """The image as it is in flash.

    Raises:
        Malformed: the body is empty or too large.
    """
    if not 0 < len(body) <= MAX_BODY:
        raise Malformed(
            "image", [Finding("body", HEADER.size, f"1 to {MAX_BODY} bytes", f"{len(body)} bytes")]
        )
    trailer = TRAILER.pack(magic=0xA5, checksum=sum(body) & 0xFF, crc=zlib.crc32(body))
    return HEADER.pack(body_length=len(body)) + body + trailer


def examine(image: bytes) -> list[Finding]:
    """What is wrong with a wrapped image, field by field; bytes after the image are ignored."""
    if len(image) < OVERHEAD + 1:
        return [Finding("length", 0, f"{OVERHEAD + 1} bytes or more", f"{len(image)} bytes")]
    length = HEADER.unpack(image[: HEADER.size])["body_length"]
    if not 0 < length <= MAX_BODY:
        return [Finding("body_length", 0, f"1 to {MAX_BODY}", str(length))]
    end = HEADER.size + length
    if len(image) < end + TRAILER.size:
        room = len(image) - OVERHEAD
        return [Finding("body_length", 0, f"at most {room}, the bytes that the file has for it", str(length))]
    body, trailer = image[HEADER.size : end], image[end : end + TRAILER.size]
    expected = {"magic": 0xA5, "checksum": sum(body) & 0xFF, "crc": zlib.crc32(body)}
    return [
        Finding(member.name, end + TRAILER.offset(member.name), f"{value:#x}", f"{found:#x}")
        for member in TRAILER.members
        if (found := member.decode(TRAILER.part(trailer, member.name))) != (value := expected[member.name])
    ]


def unwrap(image: bytes) -> bytes:
    """The body of a wrapped image; bytes after the image are ignored.

    Raises:
        Malformed: with every field that is wrong.
    """
    if findings := examine(image):
        raise Malformed("image", findings)
    length = HEADER.unpack(image[: HEADER.size])["body_length"]
    return bytes(image[HEADER.size : HEADER.size + length])


def size(image: bytes) -> int:
    """Bytes that the image at the start of `image` claims to have."""
    return int(HEADER.unpack(image[: HEADER.size])["body_length"]) + OVERHEAD


def code(body: bytes, bank: int) -> tuple[bytes, range | None]:
    """CODE space with a bank selected, filled from a body.

    Returns:
        64 KiB, and the addresses in 0x8000 to 0xFFFF that come from the body (None if there are none).
    """
    space = bytearray([ERASED]) * CODE_SIZE
    high = None
    for area in CODE_AREAS:
        part = body[area.body.start : area.body.stop]
        if bank in area.banks and part:
            space[area.address : area.address + len(part)] = part
            if len(area.banks) == 1:
                high = range(area.address, area.address + len(part))
    return bytes(space), high


def body(banks: tuple[bytes, bytes], loaded: tuple[bytes, bytes]) -> bytes:
    """The body that fills CODE space in this way; the inverse of `code`.

    Args:
        banks: CODE space with bank 0 and with bank 1 selected.
        loaded: for each, 64 KiB that are nonzero where there is code.

    Raises:
        Malformed: there is code at an address that a body cannot fill.
    """
    result = bytearray([ERASED]) * MAX_BODY
    end = 0
    for bank in (0, 1):
        outside = bytearray(loaded[bank])
        for area in CODE_AREAS:
            outside[area.address : area.address + len(area.body)] = bytes(len(area.body))
            if bank not in area.banks:
                continue
            part = slice(area.address, area.address + len(area.body))
            last = loaded[bank][part].rfind(1)
            if bank and area.banks == (1,) and banks[0][part] == banks[1][part]:
                continue  # an image without banks is the same in both
            if last >= 0:
                result[area.body.start : area.body.stop] = banks[bank][part]
                end = max(end, area.body.start + last + 1)
        if any(outside):
            found = f"code at {len(outside) - len(outside.lstrip(bytes(1))):#x} in bank {bank}"
            raise Malformed("image", [Finding("body", 0, "code below 0xff6b in either bank", found)])
    return bytes(result[:end])
