"""Zip files of stored members, written so that they can be mapped, and read as if they were hostile.

With zip's 64-bit extensions where they are needed (APPNOTE.TXT 6.3.10). Equal members give equal bytes.
"""

from __future__ import annotations

import io
import os
import stat
import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import BinaryIO

from sdk.errors import InvalidArtifact
from sdk.files import Mapped
from sdk.weights import Weights

JSON_LIMIT = 32 * 2**20
MEMBER_LIMIT = 1024

DIRECTORY_LIMIT = 2**21
"""Bytes of a zip file's directory: zipfile makes ten times as much of it, before anything can be checked."""

CHUNK = 2**22
"""Bytes of a member that have a hash of their own; damage is located to one."""

ALIGNMENT = 4096
"""Members named .bin begin at multiples of it in the file."""

EPOCH = (1980, 1, 1, 0, 0, 0)  # the zip format's first moment
ALIGNMENT_FIELD = 0xD935  # extra field of Android's zipalign; readers skip it
LOCAL_HEADER = struct.Struct("<4s22xHH")  # before a member's name (APPNOTE.TXT 4.3.7)
ZIP64 = 2**30
"""From this size on a member has the 64-bit extension, ZIP64_FIELD bytes of its local header (4.5.3)."""
ZIP64_FIELD = 20


def write(stream: BinaryIO, members: Mapping[str, Weights]) -> None:
    """Write members, in this order, to a new file."""
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name, EPOCH)
            info.create_system = 3  # Unix, wherever we run
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            info.file_size = data.nbytes
            large = data.nbytes >= ZIP64
            if name.endswith(".bin"):
                before = stream.tell() + LOCAL_HEADER.size + len(name) + (ZIP64_FIELD if large else 0)
                info.extra = _alignment_field(before)
            with archive.open(info, "w", force_zip64=large) as member:
                for part in data:
                    member.write(part)


def _alignment_field(offset: int) -> bytes:
    """An extra field that makes what would begin at `offset` begin aligned."""
    length = -(offset + 4) % ALIGNMENT
    return struct.pack("<HH", ALIGNMENT_FIELD, length) + bytes(length)


def read(mapped: Mapped, first: str) -> tuple[bytes | None, dict[str, Weights]]:
    """One member, checked by zip's own checksum, or None; and the others as parts of the file, not read yet.

    Raises:
        InvalidArtifact: it is cut short or damaged, or its members are not plain, stored ones.
    """
    try:
        with (
            os.fdopen(os.dup(mapped.number), "rb", buffering=0) as stream,
            opened(stream) as archive,
        ):
            members = _members(archive, mapped.view.nbytes)
            info = members.pop(first, None)
            data = None if info is None else archive.read(info)
    except zipfile.BadZipFile as error:
        raise InvalidArtifact(
            f"is not a whole zip file: {error}",
            hint="the file is cut short or damaged: compile or copy it again",
        ) from error
    except (
        NotImplementedError,
        RuntimeError,
        ValueError,
        EOFError,
        OSError,
        struct.error,
        LookupError,
    ) as error:
        # zipfile lets these through on damaged headers
        raise InvalidArtifact(f"is damaged: {error}", hint="compile or copy it again") from error
    return data, {name: _part(mapped, info) for name, info in members.items()}


class _Bounded(io.BufferedReader):
    """Refuses to read more than `most` bytes at once: zipfile reads the directory so."""

    most: int | None = DIRECTORY_LIMIT

    def read(self, size: int | None = -1, /) -> bytes:
        if self.most is not None and size is not None and size > self.most:
            raise zipfile.BadZipFile(f"its directory has {size:,} bytes; the limit is {self.most:,}")
        return super().read(size)


def opened(file: io.RawIOBase) -> zipfile.ZipFile:
    """A zip file for reading, if its directory has at most DIRECTORY_LIMIT bytes.

    Raises:
        zipfile.BadZipFile: it has more, or is damaged; zipfile raises others, too.
    """
    stream = _Bounded(file)
    archive = zipfile.ZipFile(stream)
    stream.most = None
    return archive


def _members(archive: zipfile.ZipFile, nbytes: int) -> dict[str, zipfile.ZipInfo]:
    """The archive's directory, its names, kinds and sizes checked."""
    members: dict[str, zipfile.ZipInfo] = {}
    infos = archive.infolist()
    if len(infos) > MEMBER_LIMIT:
        raise InvalidArtifact(
            f"holds {len(infos)} members; the limit is {MEMBER_LIMIT}", hint="do not trust this file"
        )
    for info in infos:
        name = info.orig_filename  # zipfile has sanitised `filename` already
        if name.startswith("/") or "\\" in name or ".." in name.split("/") or ":" in name or "\0" in name:
            raise InvalidArtifact(
                f"the member {name!r} points outside the file", hint="do not trust this file"
            )
        if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG):
            raise InvalidArtifact(f"the member {name!r} is not a plain file", hint="do not trust this file")
        if name in members:
            raise InvalidArtifact(f"holds {name!r} twice", hint="do not trust this file")
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise InvalidArtifact(
                f"the member {name!r} is compressed or misstates its size",
                hint="do not pack a .tow again: use the file as the compiler wrote it",
            )
        if name.endswith(".json") and info.file_size > JSON_LIMIT:
            raise InvalidArtifact(
                f"the member {name!r} has {info.file_size} bytes; the limit is {JSON_LIMIT}",
                hint="do not trust this file",
            )
        members[name] = info
    # Stored members cannot overlap without adding up to more than the file.
    if sum(info.compress_size for info in infos) > nbytes:
        raise InvalidArtifact("its members are larger than the file", hint="do not trust this file")
    return members


def _part(mapped: Mapped, info: zipfile.ZipInfo) -> Weights:
    """Where a stored member lies in the file."""
    at = info.header_offset
    header = mapped.view[at : at + LOCAL_HEADER.size] if at >= 0 else b""
    if len(header) == LOCAL_HEADER.size:
        magic, name, extra = LOCAL_HEADER.unpack(header)
        at += LOCAL_HEADER.size + name + extra
        if magic == b"PK\3\4" and at + info.file_size <= mapped.view.nbytes:
            return Weights.part(mapped, at, info.file_size)
    raise InvalidArtifact(f"is damaged: {info.filename!r} is not where it should be", hint="copy it again")


# -- hashes ---------------------------------------------------------------------------------------------


def digests(data: Weights) -> list[str]:
    """The SHA-256 of each CHUNK."""
    found = []
    current, room = sha256(), CHUNK
    for part in data:
        while part.nbytes >= room:
            current.update(part[:room])
            found.append(current.hexdigest())
            part, current, room = part[room:], sha256(), CHUNK
        current.update(part)
        room -= part.nbytes
    if room < CHUNK:
        found.append(current.hexdigest())
    return found


def damaged(members: Mapping[str, Weights], listed: Mapping[str, Sequence[str]]) -> list[tuple[str, int]]:
    """The chunks, by member and number, of parts of a file that do not match their hashes.

    They are read one by one, by two threads, into a buffer each: nothing of the mapping becomes resident.
    """
    chunks = [(name, index, digest) for name in members for index, digest in enumerate(listed[name])]
    halves = chunks[::2], chunks[1::2]
    if len(chunks) <= len(members):  # small ones
        return sorted(_wrong(members, chunks))
    with ThreadPoolExecutor(2) as pool:
        return sorted(
            found for half in pool.map(lambda half: [*_wrong(members, half)], halves) for found in half
        )


def _wrong(
    members: Mapping[str, Weights], chunks: Sequence[tuple[str, int, str]]
) -> Iterator[tuple[str, int]]:
    """Those of the chunks that do not match."""
    longest = max((members[name].nbytes for name, _, _ in chunks), default=0)
    buffer = memoryview(bytearray(min(longest, CHUNK)))
    for name, index, digest in chunks:
        part = members[name]
        if part.file is None:
            raise TypeError(f"{name} is not in a file")
        (mapped, start), first = part.file, CHUNK * index
        room = buffer[: min(CHUNK, part.nbytes - first)]
        if mapped.read_into(room, start + first) != room.nbytes or sha256(room).hexdigest() != digest:
            yield name, index
