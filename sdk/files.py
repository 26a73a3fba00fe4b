"""Results on disk: whole or not at all.

A result is written to a temporary file in its own directory and renamed over the old one at the end, so
that a reader, a crash, Ctrl-C or a full disk never leaves half a file under the name asked for.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import io
import mmap
import os
import re
import shutil
import stat
import tempfile
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TextIO

from sdk.errors import InvalidModel, OutputFailed, UsageError

_UMASK = os.umask(0)
os.umask(_UMASK)


PREFIX, SUFFIX = ".towline-", ".tmp"
"""Of the names of all temporary files and directories."""
TEMPORARY = re.compile(rf"{re.escape(PREFIX)}[a-z0-9_]{{8}}{re.escape(SUFFIX)}")
"""Such a name, with the eight characters of `tempfile`: a user's own `.towline-keys` is not one."""

LITTER_SECONDS = 3600
"""How old what a killed process left must be before another removes it: in the moment between its making and
its lock it looks the same."""


@contextlib.contextmanager
def scratch_directory(inside: Path | None = None) -> Iterator[Path]:
    """A directory for intermediate files, removed when the block ends; after SIGKILL, by a later process.

    Args:
        inside: where it is made; in the directory for temporary files if None.

    Raises:
        OutputFailed: it cannot be created in the directory for temporary files.
        OSError: it cannot be created inside another.
    """
    try:
        parent = Path(tempfile.gettempdir()) if inside is None else inside
        remove_litter(parent)
        directory = tempfile.TemporaryDirectory(SUFFIX, PREFIX, parent, ignore_cleanup_errors=True)
    except OSError as problem:
        if inside is not None:
            raise
        raise no_room(problem) from problem
    with directory as name, _locked(name):
        yield Path(name)


@contextlib.contextmanager
def _locked(path: str) -> Iterator[None]:
    """While the block runs, a directory is locked, so that nobody takes it for litter."""
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        hold(number)
        yield
    finally:
        os.close(number)


def hold(number: int) -> bool:
    """Lock a file or directory for as long as its descriptor is open; False if another has."""
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as problem:  # a file system without locks has no litter that could be told apart
        return problem.errno not in {errno.EWOULDBLOCK, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}
    return True


@functools.lru_cache(128)
def remove_litter(directory: Path) -> None:
    """Remove what killed processes of this user left in a directory; once for each in a process.

    That is what has the name of a temporary file or directory, is this user's, has not been changed for
    `LITTER_SECONDS`, and is not locked.
    """
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if TEMPORARY.fullmatch(entry.name):
                with contextlib.suppress(OSError):
                    _remove_if_litter(entry)


def _remove_if_litter(entry: os.DirEntry[str]) -> None:
    status = entry.stat(follow_symlinks=False)
    age = time.time() - status.st_mtime
    if entry.is_symlink() or status.st_uid != os.geteuid() or age < LITTER_SECONDS:
        return
    number = os.open(entry.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if not hold(number):
            return
        if stat.S_ISDIR(status.st_mode):
            shutil.rmtree(entry.path, ignore_errors=True)
        elif stat.S_ISREG(status.st_mode):
            os.unlink(entry.path)
    finally:
        os.close(number)


def no_room(problem: OSError) -> OutputFailed:
    """The error for an intermediate file that could not be written."""
    return OutputFailed(
        f"intermediate files cannot be written: {problem.strerror or problem}",
        where=tempfile.tempdir,  # None if there is no directory for them at all
        hint="free some space there, or set TMPDIR to another directory",
    )


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], *, always: bool = False) -> Iterator[BinaryIO]:
    """A binary file, open for writing, that becomes `path` when the block ends without an exception.

    Args:
        path: of the file.
        always: whether it becomes `path` after an exception, too.

    Raises:
        OutputFailed: the directory is missing or not writable, or the disk is full.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise OutputFailed("is not a regular file", where=str(path), hint="name a file to write")
    temporary: str | None = None
    if not TEMPORARY.fullmatch(target.parent.name):  # which goes as a whole
        remove_litter(target.parent)
    try:
        try:
            handle, temporary = tempfile.mkstemp(SUFFIX, PREFIX, target.parent)
            with os.fdopen(handle, "wb") as file:
                hold(handle)
                complete = always
                try:
                    yield file
                    complete = True
                finally:
                    if complete:
                        file.flush()
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
def replacing_text(path: str | os.PathLike[str], *, always: bool = False) -> Iterator[TextIO]:
    """As `replacing`, of an ASCII text file; each line reaches the system as soon as it is written.

    Args:
        path: of the file.
        always: as of `replacing`.

    Raises:
        OutputFailed: as `replacing`.
    """
    with replacing(path, always=always) as binary:
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
        private: whether to map a copy in memory, which cannot be changed.

    Attributes:
        view: all its bytes.
        number: a file descriptor of it.

    Raises:
        OSError: it cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str], *, private: bool = False) -> None:
        self.number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        if private:
            self.number = _sealed_copy(self.number)
        weakref.finalize(self, os.close, self.number)
        nbytes = os.fstat(self.number).st_size
        # An empty file cannot be mapped; one that is sealed can be mapped privately alone.
        self.view = memoryview(
            mmap.mmap(self.number, nbytes, mmap.MAP_PRIVATE, mmap.PROT_READ) if nbytes else b""
        )

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Fill a buffer from an offset on, without the mapping: none of it becomes resident.

        Returns:
            The bytes that were there.
        """
        done = 0
        while done < buffer.nbytes and (count := os.preadv(self.number, [buffer[done:]], offset + done)):
            done += count
        return done


def _sealed_copy(number: int) -> int:
    """A descriptor of a copy of an open file, which is closed; sealed where the system can do that."""
    with os.fdopen(number, "rb") as source, contextlib.ExitStack() as made:
        if hasattr(os, "memfd_create"):
            copy = os.memfd_create("towline", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        else:
            copy = os.dup(made.enter_context(tempfile.TemporaryFile()).fileno())
        made.callback(os.close, copy)
        with os.fdopen(os.dup(copy), "wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        if hasattr(os, "memfd_create"):
            fcntl.fcntl(
                copy,
                fcntl.F_ADD_SEALS,
                fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL,
            )
        made.pop_all()
        return copy


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
