"""Firmware of a card: found, checked, split into the blobs that its security processor takes.

Distributions ship the files (Debian: firmware-amd-graphics); nothing here downloads them. What is checked is
what a file and each signed blob state about themselves: the signature is the card's to check. Layouts:
`usbgpu.amd.facts.firmware`.
"""

from __future__ import annotations

import importlib
import lzma
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sdk import settings
from sdk.errors import EnvironmentMissing, TowlineError
from sdk.facts.structures import Malformed
from usbgpu.amd.facts import firmware as facts
from usbgpu.amd.facts.chips import Chip

DIRECTORY = Path(settings.FIRMWARE.default)
"""Where distributions put them."""
SUFFIXES = ("", ".xz", ".zst")
"""They may be compressed."""
PACKAGE = "sudo apt install firmware-amd-graphics (component non-free-firmware)"
LARGEST = 16 << 20
"""Bytes of a file, uncompressed: several times the size of the largest."""


class FirmwareMissing(EnvironmentMissing):
    """A firmware file is not there; the hint names the package."""

    code = "firmware-missing"


class InvalidFirmware(TowlineError):
    """A firmware file is cut short, altered, of another chip, or not a firmware file."""

    code = "invalid-firmware"


@dataclass(frozen=True)
class Firmware:
    """A chip's firmware.

    Attributes:
        blobs: what the security processor takes, by name (`facts.firmware.KINDS`).
        starts: addresses at which the command processors PFP, ME and MEC start, by name.
        directory: where its files are.
    """

    blobs: Mapping[str, bytes]
    starts: Mapping[str, int]
    directory: Path


def missing(chip: Chip, directory: Path | None = None) -> list[str]:
    """Names of the chip's files that are not in a directory, in any form."""
    where = DIRECTORY if directory is None else directory
    return [
        f"{file.name}.bin"
        for file in files(chip)
        if not any(os.path.isfile(where / f"{file.name}.bin{suffix}") for suffix in SUFFIXES)
    ]


def files(chip: Chip) -> tuple[facts.File, ...]:
    """The files that the driver needs of a chip."""
    return facts.FILES[chip.name]


def load(chip: Chip, directory: Path | None = None) -> Firmware:
    """A chip's firmware.

    Args:
        chip: whose.
        directory: with the files; None for `DIRECTORY`.

    Raises:
        FirmwareMissing: files are not there, or cannot be unpacked here.
        InvalidFirmware: a file is damaged, or not the expected one.
    """
    where = DIRECTORY if directory is None else directory
    absent = missing(chip, where)
    if absent:
        raise FirmwareMissing(
            f"{chip.name} needs {', '.join(absent)}",
            where=str(where),
            hint=f"Debian: {PACKAGE}; or name another directory with --firmware DIR or "
            f"{settings.FIRMWARE.name}",
        )
    blobs: dict[str, bytes] = {}
    starts: dict[str, int] = {}
    for file in files(chip):
        data, path = _contents(where, file.name)
        try:
            parts, start = _parse(chip, file, data)
            for name, blob in parts.items():
                _check(chip, name, blob)
        except (_Bad, Malformed) as problem:
            raise InvalidFirmware(
                str(problem),
                where=str(path),
                hint=f"put the file of the distribution back: {PACKAGE.replace('install', 'reinstall')}",
            ) from None
        blobs |= parts
        if start is not None:
            starts[file.unit] = start
    return Firmware(blobs, starts, where)


# -- files ----------------------------------------------------------------------------------------------


class _Bad(Exception):
    """What is wrong with a file."""


def _contents(directory: Path, name: str) -> tuple[bytes, Path]:
    """A file, unpacked, and which it was. Raises FirmwareMissing, InvalidFirmware."""
    for suffix in SUFFIXES:
        path = directory / f"{name}.bin{suffix}"
        if not os.path.isfile(path):  # which raises nothing
            continue
        try:
            if path.stat().st_size > LARGEST:
                raise _Bad(f"it has {path.stat().st_size} bytes")
            data = path.read_bytes()
            if suffix:
                data = _unpack_xz(data) if suffix == ".xz" else _unpack_zstd(data, path)
        except OSError as problem:
            raise FirmwareMissing(
                f"cannot be read: {problem.strerror or problem}",
                where=str(path),
                hint="check its permissions",
            ) from None
        except (_Bad, lzma.LZMAError, EOFError) as problem:
            raise InvalidFirmware(
                f"cannot be unpacked: {problem}" if suffix else f"is not firmware: {problem}",
                where=str(path),
                hint=f"install it again: {PACKAGE}",
            ) from None
        return data, path
    raise FirmwareMissing(f"{name}.bin is gone", where=str(directory))


def _unpack_xz(data: bytes) -> bytes:
    unpacker = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=128 << 20)
    content = unpacker.decompress(data, LARGEST + 1)
    if len(content) > LARGEST:
        raise _Bad(f"it has more than {LARGEST} bytes")
    if not unpacker.eof:
        raise _Bad("it is cut short")
    return content


def _unpack_zstd(data: bytes, path: Path) -> bytes:
    """Python has it from 3.14 on; before, a package. Raises FirmwareMissing."""
    for name in ("compression.zstd", "backports.zstd", "zstandard"):
        try:
            module: Any = importlib.import_module(name)
        except ImportError:
            continue
        try:
            if name == "zstandard":
                with module.ZstdDecompressor().stream_reader(data) as stream:
                    content = bytes(stream.read(LARGEST + 1))
            else:
                content = bytes(module.ZstdDecompressor().decompress(data, LARGEST + 1))
        except Exception as problem:  # each has an error class of its own
            raise _Bad(str(problem)) from None
        if len(content) > LARGEST:
            raise _Bad(f"it has more than {LARGEST} bytes")
        return content
    raise FirmwareMissing(
        "is compressed with zstd, which this Python cannot unpack",
        where=str(path),
        hint=f"pip install zstandard; or `zstd -d -o DIR/{path.name.removesuffix('.zst')} {path}`, with the "
        "other files, and --firmware DIR",
    )


def _parse(chip: Chip, file: facts.File, data: bytes) -> tuple[dict[str, bytes], int | None]:
    """The blobs of a file, and where its processor starts, if it is of one."""
    if len(data) < facts.COMMON.size:
        raise _Bad(f"{len(data)} bytes are not firmware")
    common = facts.COMMON.unpack_from(data)
    if common["size_bytes"] != len(data):
        raise _Bad(f"it has {len(data)} bytes, {common['size_bytes']} by its header: cut short, or altered")
    version = (file.header[0], common["header_version_major"], common["header_version_minor"])
    if version not in facts.HEADERS or (version[0] != "psp" and version not in facts.PARTS):
        raise _Bad(f"its header has version {version[1]}.{version[2]}, which is unknown")
    header = facts.HEADERS[version]
    if version[0] == "psp":
        if version[1] < 2:
            raise _Bad(f"its header has version {version[1]}.{version[2]}: it is for an older chip")
        places = dict(_bins(data, header.size, header.get(data, "psp_fw_bin_count"), common))
    else:
        payload = common["ucode_array_offset_bytes"]
        places = {
            part.name.format(file.unit): (
                payload * (part.relative or part.offset is None)
                + (header.get(data, part.offset) if part.offset else 0),
                header.get(data, part.size),
            )
            for part in facts.PARTS[version]
        }
    for name, (offset, size) in places.items():
        if offset + size > len(data):
            raise _Bad(f"{name} is beyond its end")
    start = None
    if "ucode_start_addr_hi" in header.offsets:
        start = header.get(data, "ucode_start_addr_hi") << 32 | header.get(data, "ucode_start_addr_lo")
    return {name: data[offset : offset + size] for name, (offset, size) in places.items() if size}, start


def _bins(
    data: bytes, start: int, count: int, common: Mapping[str, int]
) -> Iterator[tuple[str, tuple[int, int]]]:
    """The parts that a psp file lists; those of an unknown kind are left out."""
    if count > 64:
        raise _Bad(f"it lists {count} parts")
    for index in range(count):
        entry = facts.PSP_BIN.unpack_from(data, start + index * facts.PSP_BIN.size)
        place = common["ucode_array_offset_bytes"] + entry["offset_bytes"], entry["size_bytes"]
        if entry["fw_type"] in facts.PSP_BINS:
            yield facts.PSP_BINS[entry["fw_type"]], place


# -- blobs ----------------------------------------------------------------------------------------------


def _check(chip: Chip, name: str, blob: bytes) -> None:
    """Check that a blob is what its place in the file says. Raises _Bad."""
    if len(blob) < facts.SIGNED_EXTRA:
        raise _Bad(f"{name} has {len(blob)} bytes: no room for a signature")
    header = facts.SIGNED_HEADER.unpack_from(blob)
    if header["signed_bytes"] + facts.SIGNED_EXTRA > len(blob):
        raise _Bad(f"{name} is cut short: it has {len(blob)} bytes")
    kind = facts.SDMA_KINDS[chip.generation] if name == "SDMA_UCODE_TH0" else facts.KINDS.get(name)
    if kind is not None and header["kind"] & 0xFFFF != kind:
        known = [other for other, number in facts.KINDS.items() if number == header["kind"] & 0xFFFF]
        raise _Bad(
            f"{name} is {known[0] if known else 'of kind ' + hex(header['kind'] & 0xFFFF)}: "
            "the file is for another chip"
        )


def needed(chip: Chip) -> tuple[str, ...]:
    """Blobs of LOAD_IP_FW, in the order of the published drivers; the SMU's comes first, and alone."""
    family = chip.family
    return (
        "SMU",
        *family.sdma_firmware,
        *(name for unit in (*family.front, "MEC") for name in (f"RS64_{unit}", f"RS64_{unit}_STACK")),
        "IMU_I",
        "IMU_D",
        "RLC_IRAM",
        "RLC_DRAM_BOOT",
        *family.rlc_helpers,
        "RLC_G",
    )
