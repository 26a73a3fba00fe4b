"""Reads a firmware image into CODE space, from any of its four forms.

Intel HEX (sdcc's .ihx), a plain binary that starts at CODE address 0, a wrapped image as it is in flash, and
a dump of the whole flash. The contents of a file determine its form, not its name. The layouts are facts of
`firmware.asm2464pd.image` and `flash_layout`; in Intel HEX, addresses from 0x18000 on are CODE bank 1, which
is how sdcc's linker places banked code (`-b BANK1=0x18000`).

A plain binary has neither magic nor checksum. A file counts as one if it begins with a jump to a later
address in it, as every program with interrupts does: their vectors follow the first instruction. (Of 5,280
binary files of a Linux system that are not firmware, 24 begin like this, 22 of them object libraries, which
have a magic string of their own.) Code without such a jump can be given as Intel HEX.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from emulator import images
from emulator.mcs51.disassembler import decode
from emulator.mcs51.opcodes import Flow
from firmware.asm2464pd import flash_layout
from firmware.asm2464pd.image import (
    CODE_SIZE,
    ERASED,
    HEADER,
    MAX_BODY,
    OVERHEAD,
    TRAILER,
    code,
    examine,
    size,
    unwrap,
)
from sdk.errors import InvalidInput, UsageError
from sdk.extras import require
from sdk.facts.structures import Finding

BANK_START = 0x8000
"""The first CODE address that depends on the bank."""
HEX_BANK1 = 0x10000
"""Added to the CODE addresses of bank 1 in Intel HEX."""

_LJMP = 0x02
_LONGEST = 3
"""Bytes of an instruction."""
_MAX_FLASH = 0x100_0000
"""Bytes that three address bytes reach."""
_MAX_FILE = 2 * _MAX_FLASH
"""The most bytes of an image file; a device or pipe without end is read no further."""
_GIVE = "give a firmware image: Intel HEX, plain binary, wrapped image or flash dump"
_FOREIGN = {
    b"\xff\xd8\xff": "a JPEG picture",
    b"\x89PNG\r\n": "a PNG picture",
    b"GIF8": "a GIF picture",
    b"%PDF": "a PDF document",
    b"\x7fELF": "an ELF file",
    b"MZ": "a program for Windows",
    b"PK\3\4": "a ZIP archive, as a .tow is",
    b"\x1f\x8b": "a gzip file",
    b"\xfd7zXZ": "an xz file",
    b"!<arch>\n": "an object library",
}
"""How other files begin, for the error message."""
_TEXT = 16
"""A file of at least this many bytes, all printable, counts as text; code has other bytes."""
_END_OF_HEX = re.compile(rb":00[0-9A-Fa-f]{4}01[0-9A-Fa-f]{2}")
"""The record that ends a file of Intel HEX."""


class Kind(Enum):
    """The form of an image file; the value is its name as text."""

    HEX = "Intel HEX"
    BINARY = "plain binary"
    WRAPPED = "wrapped image"
    FLASH = "flash dump"


@dataclass(frozen=True, slots=True)
class CodeImage:
    """CODE space as an image fills it.

    Attributes:
        banks: 64 KiB as seen with CODE bank 0 and with bank 1.
        loaded: for each, 64 KiB of 1 where the image has a byte and 0 elsewhere.
        kind: what the file was.
        path: of the file.
    """

    banks: tuple[bytes, bytes]
    loaded: tuple[bytes, bytes]
    kind: Kind
    path: Path


def locate(name: str | Path) -> Path:
    """The file of an image: that of a named image, built if necessary, or the file itself.

    Raises:
        UsageError: neither exists, or it is a directory.
        BuildFailed: the named image could not be compiled.
        ToolMissing: sdcc is missing.
    """
    if str(name) in images.IMAGES:
        return images.build(str(name)).ihx
    if not Path(name).exists():
        raise UsageError(
            "no such file, and no image of that name",
            where=str(name),
            hint=f"images: {', '.join(images.IMAGES)}",
        )
    if Path(name).is_dir():
        raise UsageError("is a directory, not a file", where=str(name))
    return Path(name)


def load(path: str | Path) -> CodeImage:
    """Read an image.

    Raises:
        InvalidInput: there is no such file, or it is damaged; the message names the wrong field.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE + 1)
    except OSError as problem:
        raise InvalidInput(f"cannot be read: {problem.strerror}", where=str(path)) from None
    if not data:
        raise InvalidInput("is empty", where=str(path), hint=_GIVE)
    if len(data) > _MAX_FILE:
        raise InvalidInput(f"has more than {_MAX_FILE} bytes", where=str(path), hint=_GIVE)
    kind = recognise(data)
    if kind is Kind.BINARY and len(data) >= _TEXT and _is_text(data):
        raise InvalidInput("is text, but not Intel HEX", where=str(path), hint=_GIVE)
    if kind is Kind.HEX:
        return _from_hex(data, path)
    if kind is Kind.BINARY:
        _require_code(data, path)
        return _from_body(data, kind, path)
    start = flash_layout.IMAGE.address if kind is Kind.FLASH else 0
    image = data[start:]
    if findings := examine(image):
        raise _damaged(path, kind, start, findings)
    return _from_body(unwrap(image), kind, path)


def recognise(data: bytes) -> Kind:
    """The form of some bytes; damage does not change it as long as there is enough evidence for it."""
    if data.startswith(b":") and (data[1:9].isalnum() or _is_text(data)):
        return Kind.HEX
    if _is_flash(data):
        return Kind.FLASH
    if _is_wrapped(data):
        return Kind.WRAPPED
    return Kind.BINARY


def _require_code(data: bytes, path: Path) -> None:
    """Refuse a file without a recognised form if it does not look like code either.

    Raises:
        InvalidInput: it does not begin with a jump to a later address in it.
    """
    for start, name in _FOREIGN.items():
        if data.startswith(start):
            raise InvalidInput(f"is {name}, not a firmware image", where=str(path), hint=_GIVE)
    first = decode(data[:_LONGEST].ljust(_LONGEST, b"\0"), 0)
    if first.opcode.flow is Flow.JUMP and len(first.data) <= (first.target or 0) < len(data):
        return
    raise InvalidInput(
        "is not a firmware image: it is neither Intel HEX, a wrapped image nor a flash dump; and a plain "
        "binary begins with a jump (LJMP, AJMP or SJMP) to a later address in it",
        where=str(path),
        hint="convert code that begins otherwise to Intel HEX: objcopy -I binary -O ihex code.bin code.ihx",
    )


def _is_text(data: bytes) -> bool:
    """UTF-8 without control characters: a source, a map, a log."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return False
    return all(character.isprintable() or character in "\t\n\r\f\v" for character in text)


def _is_wrapped(data: bytes) -> bool:
    """A length that fits the file or leads to the magic byte, or a trailer that fits all but the length.

    A plain binary begins with a jump, and its first four bytes read as a length are larger than any body,
    unless the jump is followed by zeros.
    """
    if len(data) <= OVERHEAD:
        return False
    claimed = size(data)
    if claimed == len(data):
        return True
    if OVERHEAD < claimed < len(data):
        marked = data[claimed - TRAILER.size] == TRAILER.member("magic").fixed
        return marked and (data[0] != _LJMP or not examine(data))
    if claimed <= MAX_BODY + OVERHEAD:
        return data[0] != _LJMP  # cut short
    trailer = TRAILER.pack(
        magic=0xA5,
        checksum=sum(data[HEADER.size : -TRAILER.size]) & 0xFF,
        crc=zlib.crc32(data[HEADER.size : -TRAILER.size]),
    )
    return data.endswith(trailer)


def _is_flash(data: bytes) -> bool:
    """An intact configuration block at the start, or an image where one has to be."""
    if len(data) <= flash_layout.IMAGE.address + OVERHEAD:
        return False
    image = data[flash_layout.IMAGE.address :]
    if not examine(image):
        return True  # without configuration, or from the emulator, whose files hold more than the cells
    blocks = (flash_layout.CONFIG_0, flash_layout.CONFIG_1)
    return any(
        not flash_layout.examine(index, data[region.address : region.address + region.size])
        for index, region in enumerate(blocks)
    ) or (_is_whole_flash(data) and _is_wrapped(image))


def _is_whole_flash(data: bytes) -> bool:
    """Whether it has the size of a flash: a power of two of at least one erase block."""
    return flash_layout.BLOCK_SIZE <= len(data) <= _MAX_FLASH and len(data).bit_count() == 1


def _from_body(body: bytes, kind: Kind, path: Path) -> CodeImage:
    if len(body) > MAX_BODY:
        raise InvalidInput(
            f"has {len(body)} bytes of code; CODE space and its banks hold {MAX_BODY}",
            where=str(path),
            hint=_GIVE,
        )
    low = range(min(len(body), BANK_START))
    banks, loaded = [], []
    for bank in (0, 1):
        space, high = code(body, bank)
        banks.append(space)
        loaded.append(_marks((low, high or range(0))))
    return CodeImage((banks[0], banks[1]), (loaded[0], loaded[1]), kind, path)


def _marks(ranges: Iterable[range]) -> bytes:
    marks = bytearray(CODE_SIZE)
    for part in ranges:
        marks[part.start : part.stop] = b"\x01" * len(part)
    return bytes(marks)


def _from_hex(data: bytes, path: Path) -> CodeImage:
    intelhex = require("intelhex", extra="emulator")
    reader = intelhex.IntelHex()
    try:
        reader.loadhex(io.StringIO(data.decode("ascii")))
    except (UnicodeDecodeError, intelhex.IntelHexError) as problem:
        raise InvalidInput(
            f"is damaged Intel HEX: {problem}", where=str(path), hint="build the image again"
        ) from None
    records = data.split()
    ends = [number for number, record in enumerate(records) if _END_OF_HEX.fullmatch(record)]
    if ends != [len(records) - 1]:
        raise InvalidInput(
            f"is damaged Intel HEX: {'records follow the' if ends else 'there is no'} end-of-file record",
            where=str(path),
            hint="the file was cut short, or is several in one; build or copy the image again",
        )
    segments = reader.segments()
    if not segments:
        raise InvalidInput("holds no data records", where=str(path), hint="build the image again")
    banks = (bytearray([ERASED]) * CODE_SIZE, bytearray([ERASED]) * CODE_SIZE)
    areas: tuple[list[range], list[range]] = ([], [])
    for start, stop in segments:
        content = reader.tobinstr(start=start, size=stop - start)
        for bank, address, part in _places(start, content, path):
            banks[bank][address : address + len(part)] = part
            areas[bank].append(range(address, address + len(part)))
    return CodeImage((bytes(banks[0]), bytes(banks[1])), (_marks(areas[0]), _marks(areas[1])), Kind.HEX, path)


def _places(start: int, content: bytes, path: Path) -> list[tuple[int, int, bytes]]:
    """Where a segment of Intel HEX goes: (bank, CODE address, bytes); the common half goes to both banks."""
    stop = start + len(content)
    areas = (
        (range(BANK_START), (0, 1), 0),
        (range(BANK_START, CODE_SIZE), (0,), 0),
        (range(HEX_BANK1 + BANK_START, HEX_BANK1 + CODE_SIZE), (1,), HEX_BANK1),
    )
    places = []
    placed = 0
    for area, banks, offset in areas:
        first, last = max(start, area.start), min(stop, area.stop)
        if first < last:
            placed += last - first
            part = content[first - start : last - start]
            places += [(bank, first - offset, part) for bank in banks]
    if placed != len(content):
        raise InvalidInput(
            f"has data at {start:#x} to {stop - 1:#x}, which is not CODE",
            where=str(path),
            hint="CODE is 0x0000 to 0xFFFF, and 0x18000 to 0x1FFFF for bank 1",
        )
    return places


def _damaged(path: Path, kind: Kind, start: int, findings: Iterable[Finding]) -> InvalidInput:
    moved = (
        Finding(finding.what, finding.offset + start, finding.expected, finding.found) for finding in findings
    )
    return InvalidInput(
        f"is a damaged {kind.value}: {'; '.join(map(str, moved))}",
        where=str(path),
        hint="build or download the image again",
    )
