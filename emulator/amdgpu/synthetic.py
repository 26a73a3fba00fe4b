"""Firmware files that are well formed and do nothing: for tests, and for the default device.

They have the names, headers and parts of the published ones, and are the same at every run. Their blobs carry
a digest where those have a signature, so that the model notices a single bit that changed on the way.
"""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

from emulator.amdgpu import firmware_files
from sdk import cache
from sdk.files import scratch_directory, write
from usbgpu.amd.facts import firmware
from usbgpu.amd.facts.chips import Chip
from usbgpu.amd.facts.firmware import SIGNED_EXTRA, SIGNED_HEADER, File

PAYLOAD = 0x100
"""Where blobs start in a file."""
SMALL = 0x600
"""Bytes of a blob in small files; the TOC always has its true size."""
CACHE = "gpu-firmware"
"""The cache's directory of them."""
VERSION = 0x0010_0000
"""`ucode_version` of everything."""


def blob(chip: Chip, name: str, size: int, body: bytes = b"") -> bytes:
    """A blob of `size` bytes that `firmware_files.check` takes for `name`; starts with `body`, the rest is
    pseudo-random.
    """
    noise = hashlib.shake_128(f"{chip.name} {name}".encode()).digest(size - SIGNED_EXTRA - len(body))
    header = SIGNED_HEADER.pack(
        magic=firmware.MAGIC,
        signed_bytes=size - SIGNED_EXTRA,
        signed=1,
        key=firmware_files.key(chip),
        kind=firmware_files.kind(chip, name) | 0x8000_0000,
        version=VERSION,
        file_bytes=size,
    )
    signed = header + body + noise
    return signed + firmware_files.digest(signed)


def contents(chip: Chip) -> bytes:
    """A table of contents in the chip's format: its firmware, one after the other, and where the TMR ends."""
    form = firmware.TOC_FORMATS[chip.generation]
    sizes = {name: size for file in firmware.FILES[chip.name] for name, size in file.sizes.items()}
    table, offset = b"", 0
    for number, name in firmware.TOC_IDS.items():
        if name in sizes:
            room = -(-sizes[name] // 0x1000) * 0x1000
            table += _entry(form, number, offset, room)
            offset += room
    return table + _entry(form, 42, firmware.toc_end(chip), 0) + bytes(4 * form.dwords)


def _entry(form: firmware.TocFormat, number: int, offset: int, size: int) -> bytes:
    first = number << 25 | offset // form.offset_unit
    return struct.pack("<II", first, size // 4 << 14).ljust(4 * form.dwords, b"\0")


def directory(chip: Chip, *, full_size: bool = False) -> dict[str, bytes]:
    """The files of a chip, by name as in `/lib/firmware/amdgpu`.

    Args:
        chip: whose.
        full_size: blobs are as large as the published ones (1.3 and 2.4 MB together) instead of 1.5 KiB.
    """
    return {f"{file.name}.bin": _file(chip, file, full_size) for file in firmware.FILES[chip.name]}


def folder(chip: Chip) -> Path:
    """The files of a chip, full size, in the user's cache, for a driver that looks for them there.

    Raises:
        OutputFailed: the cache cannot be written.
    """
    files = directory(chip, full_size=True)
    home = cache.directory(CACHE) / f"{chip.name}-{cache.digest((*files, *files.values()))}"
    if not cache.has_files(home, files):
        with scratch_directory() as scratch:
            for name, data in files.items():
                write(scratch / name, data)
            cache.keep_files(home, {name: scratch / name for name in files})
    return home


def _file(chip: Chip, file: File, full_size: bool) -> bytes:
    parts = {}
    for name, size in file.sizes.items():
        body = contents(chip) if name == "TOC" else b""
        parts[name] = blob(chip, name, size if full_size or body else min(size, SMALL), body)
    places, end = {}, PAYLOAD
    for name, data in parts.items():
        places[name] = end, len(data)
        end += len(data)
    family, major, minor = file.header
    header = firmware.HEADERS[file.header]
    values: dict[str, int] = {
        "size_bytes": end,
        "header_size_bytes": header.size,
        "header_version_major": major,
        "header_version_minor": minor,
        "ip_version_major": int(file.name.split("_")[1]),
        "ip_version_minor": int(file.name.split("_")[2]),
        "ucode_version": VERSION,
        "ucode_size_bytes": end - PAYLOAD if family != "rlc" else places["RLC_G"][1],
        "ucode_array_offset_bytes": PAYLOAD,
    }
    table = b""
    if family == "psp":
        values["psp_fw_bin_count"] = len(parts)
        types = {name: number for number, name in firmware.PSP_BINS.items()}
        for name, (offset, size) in places.items():
            entry = {
                "fw_type": types[name],
                "fw_version": VERSION,
                "offset_bytes": offset - PAYLOAD,
                "size_bytes": size,
            }
            table += firmware.PSP_BIN.pack(**entry)
    else:
        for part in firmware.PARTS[file.header]:
            offset, size = places.get(part.name.format(file.unit), (0, 0))
            values[part.size] = size
            if part.offset:
                values[part.offset] = offset - PAYLOAD * part.relative
    if family == "gfx":
        values["ucode_start_addr_lo"] = firmware.RS64_START & 0xFFFF_FFFF
        values["ucode_start_addr_hi"] = firmware.RS64_START >> 32
    return (header.pack(**values) + table).ljust(PAYLOAD, b"\0") + b"".join(parts.values())
