"""Checks a firmware image field by field: ours or a vendor's.

A file is a wrapped image, as it is in flash, or a dump of the whole flash with the configuration blocks
before it. The layouts come from `asm2464pd.image` and `asm2464pd.flash_layout`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from firmware.asm2464pd import flash_layout, image
from sdk.facts.structures import Finding, Struct


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a file.

    Attributes:
        name: of the structure and of its member.
        offset: of its first byte in the file.
        expected: the valid value or values.
        found: the value in the file.
        good: whether the value is valid.
    """

    name: str
    offset: int
    expected: str
    found: str
    good: bool


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a check.

    Attributes:
        kind: "wrapped image" or "flash dump".
        fields: every field that was checked.
        body: bytes of the image's body; 0 if that is unknown.
        trailing: bytes after the image, which belong to nothing.
    """

    kind: str
    fields: tuple[Field, ...]
    body: int
    trailing: int

    @property
    def bad(self) -> tuple[Field, ...]:
        """The fields that are wrong."""
        return tuple(field for field in self.fields if not field.good)


def check(data: bytes) -> Report:
    """Check the fields of a file. What is neither image nor dump is reported as a bad image."""
    start = flash_layout.IMAGE.address
    blocks: tuple[Field, ...] = ()
    if _misfit(data) is None or _misfit(data[start:]) is not None:
        start = 0
    else:
        blocks = tuple(_blocks(data))
    wrapped = data[start:]
    fields = tuple(_image(wrapped, start))
    size = image.size(wrapped) if _misfit(wrapped) is None else 0
    return Report(
        "flash dump" if start else "wrapped image",
        blocks + fields,
        max(size - image.OVERHEAD, 0),
        len(wrapped) - size if size else 0,
    )


def _misfit(data: bytes) -> Finding | None:
    """What is wrong with an image's length, without which nothing else can be checked."""
    wrong = (finding for finding in image.examine(data) if finding.what in ("length", "body_length"))
    return next(wrong, None)


def _blocks(data: bytes) -> Iterator[Field]:
    regions = (flash_layout.CONFIG_0, flash_layout.CONFIG_1)
    for index, (region, layout) in enumerate(zip(regions, flash_layout.CONFIG_BLOCKS, strict=True)):
        block = data[region.address : region.address + region.size]
        wrong = {finding.what: finding for finding in flash_layout.examine(index, block)}
        for name in ("magic", "checksum"):
            yield _field(layout, name, region.address, block, wrong.get(name))


def _image(data: bytes, start: int) -> Iterator[Field]:
    """Length, magic, checksum and CRC; only the length if that is wrong."""
    if (misfit := _misfit(data)) is not None:
        yield Field(f"image {misfit.what}", start + misfit.offset, misfit.expected, misfit.found, False)
        return
    length = image.size(data) - image.OVERHEAD
    body = data[image.HEADER.size : image.HEADER.size + length]
    yield Field("image body_length", start, f"1 to {image.MAX_BODY}", str(length), True)
    place = image.HEADER.size + length
    trailer = data[place : place + image.TRAILER.size]
    expected = {"magic": 0xA5, "checksum": sum(body) & 0xFF, "crc": zlib.crc32(body)}
    for member in image.TRAILER.members:
        found = member.decode(image.TRAILER.part(trailer, member.name))
        wanted = expected[member.name]
        yield Field(
            f"image {member.name}",
            start + place + image.TRAILER.offset(member.name),
            f"{wanted:#x}",
            f"{found:#x}",
            found == wanted,
        )


def _field(layout: Struct, name: str, start: int, block: bytes, wrong: Finding | None) -> Field:
    found = layout.member(name).decode(layout.part(block, name))
    offset = start + layout.offset(name)
    title = f"{layout.name} {name}"
    if wrong is None:
        return Field(title, offset, f"{found:#x}", f"{found:#x}", True)
    return Field(title, offset, wrong.expected, wrong.found, False)
