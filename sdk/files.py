"""Results on disk: whole or not at all.

A result is written to a temporary file in its own directory and renamed over the old one at the end, so
that a reader, a crash, Ctrl-C or a full disk never leaves half a file under the name asked for.
"""

from __future__ import annotations

import contextlib
import io
import mmap
import os
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TextIO

from sdk.errors import InvalidModel, OutputFailed, UsageError

_UMASK = os.umask(0)
os.umask(_UMASK)


@contextlib.contextmanager
def scratch_directory() -> Iterator[Path]:
    """A directory for intermediate files, removed when the block ends.

    Raises:
        OutputFailed: it cannot be created.
    """
    try:
        directory = tempfile.TemporaryDirectory(prefix="towline-", ignore_cleanup_errors=True)
    except OSError as problem:
        raise no_room(problem) from problem
    with directory as name:
        yield Path(name)


def no_room(problem: OSError) -> OutputFailed:
    """The error for an intermediate file that could not be written."""
    return OutputFailed(
        f"intermediate files cannot be written: {problem.strerror or problem}",
        where=tempfile.tempdir,  # None if there is no directory for them at all
        hint="free some space there, or set TMPDIR to another directory",
    )


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A binary file, open for writing, that becomes `path` when the block ends without an exception.

    Raises:
        OutputFailed: the directory is missing or not writable, or the disk is full.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise OutputFailed("is not a regular file", where=str(path), hint="name a file to write")
    temporary: str | None = None
    try:
        try:
            handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".towline-")
            with os.fdopen(handle, "wb") as file:
                yield file
            os.chmod(temporary, 0o666 & ~_UMASK)
            os.replace(temporary, target)
            temporary = None
        except OSError as error:
            raise OutputFailed(
                f"cannot be written: {error.strerror or error}",
                where=str(target),
                hint="check the directory, its permissions and the space left on the disk",
            ) from None
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


@contextlib.contextmanager
def replacing_text(path: str | os.PathLike[str]) -> Iterator[TextIO]:
    """As `replacing`, of an ASCII text file; each line reaches the system as soon as it is written.

    Raises:
        OutputFailed: as `replacing`.
    """
    with replacing(path) as binary:
        stream = io.TextIOWrapper(binary, encoding="ascii", write_through=True)
        try:
            yield stream
        finally:
            stream.flush()
            stream.detach()


def write(path: str | os.PathLike[str], data: bytes) -> None:
    """Write `data` to `path`, whole or not at all.

    Raises:
        OutputFailed: as `replacing`.
    """
    with replacing(path) as file:
        file.write(data)


class Mapped:
    """A file, mapped for reading; it is closed when nothing refers to it or to a view of it.

    Args:
        path: of a regular file.

    Attributes:
        view: all its bytes.
        number: a file descriptor of it.

    Raises:
        OSError: it cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self.number)
        nbytes = os.fstat(self.number).st_size
        # An empty file cannot be mapped.
        self.view = memoryview(mmap.mmap(self.number, nbytes, access=mmap.ACCESS_READ) if nbytes else b"")

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Fill a buffer from an offset on, without the mapping: none of it becomes resident.

        Returns:
            The bytes that were there.
        """
        done = 0
        while done < buffer.nbytes and (count := os.preadv(self.number, [buffer[done:]], offset + done)):
            done += count
        return done


def read_model(path: str | os.PathLike[str]) -> bytes:
    """The content of a model's file.

    Raises:
        UsageError: there is no such file, or it is a directory, a pipe or unreadable.
        InvalidModel: it is empty.
    """
    where, file = os.fspath(path), Path(path)
    try:
        if not file.exists():
            raise UsageError("no such file", where=where)
        if not file.is_file():  # reading a pipe may never end
            what = "is a directory, not a model" if file.is_dir() else "is not a regular file"
            raise UsageError(what, where=where)
        content = file.read_bytes()
    except OSError as problem:
        raise UsageError(f"cannot be read: {problem.strerror}", where=where) from problem
    if not content:
        raise InvalidModel("the file is empty", where=where)
    return content
