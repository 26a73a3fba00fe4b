"""Files of arrays, .npy and .npz (numpy.lib.format), read only as far as they are needed.

Names, shapes and dtypes are known before any data is read: an .npz of some kilobytes may hold gigabytes of
zeros, and a file may state any shape.
"""

from __future__ import annotations

import io
import math
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from sdk import archive
from sdk.errors import InvalidInput
from sdk.graph import Array

MOST_HEADER = 10_000
"""Characters of a header, as `numpy.load` takes them without `allow_pickle`."""
MOST_AT_ONCE = 1 << 30
"""Bytes of an array in Fortran order, which cannot be read in parts."""
MAGIC = b"\x93NUMPY"
MOST_MEMBERS = 4096
"""Arrays of an .npz: members of some bytes may share the data of one."""
DAMAGE = (
    *(OSError, ValueError, EOFError, KeyError, RuntimeError, MemoryError, struct.error),
    *(zipfile.BadZipFile, zlib.error, tokenize.TokenError),
)
"""What numpy and zipfile raise for damaged files; numpy makes a ValueError of SyntaxError alone."""


@dataclass(frozen=True)
class StoredArray:
    """An array of a file.

    Attributes:
        path: of the file.
        member: its name in an .npz; None in an .npy.
        shape, dtype: as its header states them.
        fortran: whether its first index runs fastest.
    """

    path: str
    member: str | None
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool

    @property
    def empty(self) -> Array:
        """An array of this shape and dtype that takes no memory, for checks of both; its values are zero."""
        return np.broadcast_to(np.zeros((), self.dtype), self.shape)

    def parts(self, count: int) -> Iterator[Array]:
        """The array in order, `count` indices of the first axis at a time; the last may have fewer.

        Raises:
            InvalidInput: the file is cut short, or damaged.
        """
        if self.fortran:
            whole = self.whole()
            yield from (whole[at : at + count] for at in range(0, self.shape[0], count))
            return
        with self._data() as file:
            for at in range(0, self.shape[0], count):
                shape = (min(count, self.shape[0] - at), *self.shape[1:])
                yield self._read(file, shape)

    def take(self, rows: Sequence[int], inner: int | None = None) -> Array:
        """Some indices of the first axis, in rising order, and of the second all or the first `inner`.

        Raises:
            InvalidInput: the file is cut short or damaged; or it is in Fortran order and very large.
        """
        if self.fortran:
            whole = self.whole()[list(rows)]
            return whole if inner is None else whole[:, :inner]
        shape = self.shape[1:] if inner is None else (inner, *self.shape[2:])
        nbytes = math.prod(self.shape[1:]) * self.dtype.itemsize
        with self._data() as file:
            found = np.empty((len(rows), *shape), self.dtype)
            start = file.tell()
            for place, row in enumerate(rows):
                file.seek(start + row * nbytes)
                _fill(file, found[place : place + 1])
            return found

    def whole(self) -> Array:
        """All of it.

        Raises:
            InvalidInput: the file is cut short or damaged; or it is in Fortran order and very large.
        """
        if self.fortran and math.prod(self.shape) * self.dtype.itemsize > MOST_AT_ONCE:
            raise InvalidInput(
                f"an array in Fortran order has more than {MOST_AT_ONCE} bytes",
                where=self.path,
                hint="numpy.ascontiguousarray puts it into C order",
            )
        with self._data() as file:
            shape = self.shape[::-1] if self.fortran else self.shape
            found = self._read(file, shape)
            return found.T if self.fortran else found

    @contextmanager
    def _data(self) -> Iterator[IO[bytes]]:
        """The file, behind the array's header."""
        with reading(self.path), _opened(self.path, self.member) as file:
            _header(file)
            yield file

    def _read(self, file: IO[bytes], shape: tuple[int, ...]) -> Array:
        found = np.empty(shape, self.dtype)
        _fill(file, found)
        return found


def _fill(file: IO[bytes], array: Array) -> None:
    """Read the bytes of an array in C order."""
    left: memoryview = array.reshape(-1).view(np.uint8).data if array.size else memoryview(b"")
    while left:
        data = file.read(min(len(left), 1 << 20))
        if not data:
            raise EOFError(f"the array ends {len(left)} bytes early")
        left[: len(data)] = data
        left = left[len(data) :]


def open_arrays(path: str | os.PathLike[str]) -> dict[str, StoredArray]:
    """The arrays of an .npy (one, named "") or .npz, by name.

    Raises:
        InvalidInput: it cannot be read, or holds something other than numbers.
    """
    where = os.fspath(path)
    with reading(where):
        with open(where, "rb") as file:
            if file.read(len(MAGIC)) == MAGIC:
                file.seek(0)
                return {"": StoredArray(where, None, *_header(file))}
        found = {}
        with open(where, "rb", buffering=0) as raw, archive.opened(raw) as members:
            if len(members.namelist()) > MOST_MEMBERS:
                raise ValueError(f"it holds more than {MOST_MEMBERS}")
            for member in members.namelist():
                with members.open(member) as inner:
                    found[member.removesuffix(".npy")] = StoredArray(where, member, *_header(inner))
        return found


@contextmanager
def reading(where: str) -> Iterator[None]:
    """Whatever reading such a file raises, as InvalidInput."""
    try:
        yield
    except DAMAGE as problem:
        reason = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        raise InvalidInput(f"its arrays cannot be read: {reason}", where=where) from problem


@contextmanager
def _opened(path: str, member: str | None) -> Iterator[IO[bytes]]:
    if member is None:
        with open(path, "rb") as file:
            yield file
    else:
        with (
            open(path, "rb", buffering=0) as raw,
            archive.opened(raw) as members,
            members.open(member) as inner,
        ):
            yield inner


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any], bool]:
    """(shape, dtype, whether in Fortran order); the file is behind it then."""
    head = io.BytesIO(file.read(MOST_HEADER + 12))  # numpy would read 4 GB of it, if it says so
    version = np.lib.format.read_magic(head)
    if version == (1, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(head, MOST_HEADER)
    elif version == (2, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_2_0(head, MOST_HEADER)
    else:
        raise ValueError(f"version {version[0]}.{version[1]} of the format is for names that are not Latin-1")
    if dtype.kind not in "biuf" or min(shape, default=0) < 0:
        raise ValueError(f"an array of {dtype} {list(shape)} is not one of numbers")
    file.seek(head.tell())
    return shape, dtype, fortran and len(shape) > 1
