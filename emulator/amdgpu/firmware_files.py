"""How the model's security processor reads firmware: files, the blobs in them, the table of contents.

A real processor checks a signature. No model can, so this one checks the rest: lengths, the blob's
own header, its declared kind, and that it is not garbage. Blobs of `synthetic` carry a digest in place
of the signature, and are checked to the last byte.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sdk.facts.structures import Malformed
from usbgpu.amd.facts import firmware
from usbgpu.amd.facts.chips import Chip
from usbgpu.amd.facts.firmware import SIGNATURE, SIGNED_EXTRA, SIGNED_HEADER


class FirmwareError(Exception):
    """Firmware that is not as expected, and why."""


# -- files ----------------------------------------------------------------------------------------------


def parse(file: firmware.File, data: bytes) -> dict[str, bytes]:
    """The blobs of a file, by name (`facts.firmware.KINDS`). Raises FirmwareError."""
    family, major, minor = file.header
    header = firmware.HEADERS[file.header]
    try:
        common = firmware.COMMON.unpack_from(data)
        if common["size_bytes"] != len(data):
            raise FirmwareError(f"{file.name}: {len(data)} bytes, its header says {common['size_bytes']}")
        if (common["header_version_major"], common["header_version_minor"]) != (major, minor):
            version = f"{common['header_version_major']}.{common['header_version_minor']}"
            raise FirmwareError(f"{file.name}: header version {version}, expected {major}.{minor}")
        payload = common["ucode_array_offset_bytes"]
        if family == "psp":
            places = _bins(file, data, header.size, header.get(data, "psp_fw_bin_count"))
        else:
            places = {
                part.name.format(file.unit): (
                    payload * (part.relative or part.offset is None)
                    + (header.get(data, part.offset) if part.offset else 0),
                    header.get(data, part.size),
                )
                for part in firmware.PARTS[file.header]
            }
    except Malformed as error:
        raise FirmwareError(f"{file.name}: cut short: {error}") from None
    for name, (offset, size) in places.items():
        if offset + size > len(data):
            raise FirmwareError(
                f"{file.name}: {name} at {offset:#x}, {size:#x} bytes, is beyond the file's end"
            )
    return {name: data[offset : offset + size] for name, (offset, size) in places.items() if size}


def _bins(file: firmware.File, data: bytes, start: int, count: int) -> dict[str, tuple[int, int]]:
    payload = firmware.COMMON.get(data, "ucode_array_offset_bytes")
    if count > len(firmware.PSP_BINS):
        raise FirmwareError(f"{file.name}: {count} parts, at most {len(firmware.PSP_BINS)} are known")
    places = {}
    for index in range(count):
        entry = firmware.PSP_BIN.unpack_from(data, start + index * firmware.PSP_BIN.size)
        if entry["fw_type"] not in firmware.PSP_BINS:
            raise FirmwareError(f"{file.name}: part of unknown type {entry['fw_type']}")
        places[firmware.PSP_BINS[entry["fw_type"]]] = payload + entry["offset_bytes"], entry["size_bytes"]
    return places


def blobs(chip: Chip, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """All blobs of a chip's files, which are given by their names with `.bin`. Raises FirmwareError."""
    found: dict[str, bytes] = {}
    for file in firmware.FILES[chip.name]:
        if f"{file.name}.bin" not in files:
            raise FirmwareError(f"{chip.name} needs the firmware file {file.name}.bin")
        found |= parse(file, files[f"{file.name}.bin"])
    return found


def installed(chip: Chip, folder: Path) -> dict[str, bytes] | None:
    """A chip's files in a folder such as `/lib/firmware/amdgpu`, None unless all are there."""
    paths = [folder / f"{file.name}.bin" for file in firmware.FILES[chip.name]]
    if not all(path.is_file() for path in paths):
        return None
    return {path.name: path.read_bytes() for path in paths}


# -- blobs ----------------------------------------------------------------------------------------------


LOADABLE = frozenset({"SDMA_UCODE_TH0", *firmware.KINDS} - set(firmware.PSP_BINS.values()))
"""Blobs that LOAD_IP_FW takes."""


def kind(chip: Chip, name: str) -> int:
    """What the header of a blob says that it is."""
    return firmware.SDMA_KINDS[chip.generation] if name == "SDMA_UCODE_TH0" else firmware.KINDS[name]


def key(chip: Chip) -> bytes:
    """The `key` of synthetic blobs."""
    return b"TOWLINE " + chip.name.encode().ljust(8)


def digest(signed: bytes) -> bytes:
    """What stands for the signature in synthetic blobs, of all before it."""
    return hashlib.sha512(signed).digest().ljust(SIGNATURE, b"\xa5")


def length(header: bytes) -> int:
    """Bytes of a blob, by its header: for the bootloader, which gets no length. Raises FirmwareError."""
    size = SIGNED_HEADER.get(header, "signed_bytes")
    if not 0 < size < 1 << 24 or SIGNED_HEADER.get(header, "signed") != 1:
        raise FirmwareError("it is not signed firmware: no valid size and signed flag in its header")
    return size + SIGNED_EXTRA


def check(chip: Chip, name: str, blob: bytes) -> None:
    """Check a blob that is to be loaded as `name`. Raises FirmwareError."""
    if len(blob) < SIGNED_EXTRA:
        raise FirmwareError(f"{len(blob)} bytes are too few for signed firmware")
    if (size := length(blob)) > len(blob):
        raise FirmwareError(f"it is cut short: its header says {size} bytes, {len(blob)} were given")
    found = SIGNED_HEADER.get(blob, "kind") & 0xFFFF
    allowed = {kind(chip, name)}
    if name == "SPL" and chip.versions["MP"] < (14,):
        allowed.add(firmware.KINDS["KDB"])  # a published driver sends it, and it is accepted
    if found not in allowed:
        known = [other for other in firmware.KINDS if kind(chip, other) == found]
        raise FirmwareError(f"it is {known[0] if known else f'of unknown kind {found:#x}'}, not {name}")
    magic = blob[SIGNED_HEADER.offset("magic") :][:4]
    if magic != firmware.MAGIC and not (found == firmware.KINDS["KDB"] and magic == bytes(4)):
        raise FirmwareError(f"its header has {magic!r} instead of {firmware.MAGIC!r}")
    signature = blob[size - SIGNATURE : size]
    if _is_blank(signature) or _is_blank(blob[256 : size - SIGNATURE]):
        raise FirmwareError("it is blank: nothing but its header has arrived")
    owner = blob[SIGNED_HEADER.offset("key") :][:16]
    if owner.startswith(key(chip)[:8]):
        if owner != key(chip):
            raise FirmwareError(f"it is for {owner[8:].decode('latin-1').strip()}, not for {chip.name}")
        if digest(blob[: size - SIGNATURE]) != signature:
            raise FirmwareError("its signature is wrong: it was changed on the way")


def _is_blank(data: bytes) -> bool:
    """Whether it is one byte again and again."""
    return not data.strip(data[:1])


# -- table of contents ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entry:
    """A place in the TMR for a firmware.

    Attributes:
        id: as in `facts.firmware.TOC_IDS`.
        offset: bytes from the TMR's start.
        size: bytes.
    """

    id: int
    offset: int
    size: int


def contents(chip: Chip, toc: bytes) -> Iterator[Entry]:
    """The entries of a TOC blob."""
    form = firmware.TOC_FORMATS[chip.generation]
    end = length(toc) - SIGNATURE
    for at in range(256, end - 4 * form.dwords + 1, 4 * form.dwords):
        first, second = (int.from_bytes(toc[at + 4 * index :][:4], "little") for index in (0, 1))
        if not first >> 25:
            return
        many = 1024 if form.dwords == 2 and second >> 12 & 1 else 1
        yield Entry(first >> 25, (first & 0x1FF_FFFF) * form.offset_unit, (second >> 14) * 4 * many)
