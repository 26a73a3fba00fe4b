"""What is built once and kept: compiled kernels, the emulator's library, firmware images.

Everything is kept under a name made of all that determines it, so that nothing in the cache is ever stale.
Each file is written whole or not at all, so that any number of processes may fill it at once; and none is
used before its digest has been verified, so that what is damaged is built again. A digest keeps out damage,
not an attacker who can write: that is what the directories' owner and mode are checked for.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from sdk import files, settings
from sdk.errors import EnvironmentMissing, OutputFailed

DIGEST_BYTES = 32
SUMS = "sha256sums"
"""In a folder of `keep_files`: a line for each file, as sha256sum writes it."""

_override: Path | None = None


@contextmanager
def empty() -> Iterator[None]:
    """While the block runs, this process has a cache of its own, with nothing in it: a first compilation's.

    Not for several threads at once. Processes that are started meanwhile keep the user's cache.
    """
    global _override
    before = _override
    with files.scratch_directory() as directory:
        _override = directory
        try:
            yield
        finally:
            _override = before


def directory(kind: str) -> Path:
    """Where one kind of thing is kept; it need not exist yet.

    Without TOWLINE_CACHE it is where the XDG Base Directory Specification has it.
    """
    return _root() / kind


def _root() -> Path:
    override = _override or settings.CACHE.value()
    user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(override) if override else Path(user, "towline")


def digest(facts: Iterable[str | bytes]) -> str:
    """A name for what these facts determine: 24 hexadecimal digits."""
    whole = hashlib.sha256()
    for fact in facts:
        data = fact.encode() if isinstance(fact, str) else fact
        whole.update(len(data).to_bytes(8, "little") + data)
    return whole.hexdigest()[:24]


# -- single files ---------------------------------------------------------------------------------------


def keep(path: Path, data: bytes) -> None:
    """Write a file of the cache, making its directory; behind the data stands their digest.

    ELF files work with it as they are: for `load_path`. For others there is `load`.

    Raises:
        OutputFailed: the directory cannot be made, or the file not written.
        EnvironmentMissing: others may write to the directory.
    """
    with writing(path.parent):
        files.write(path, data + _digest_of(path, data))


def load(path: Path) -> bytes | None:
    """What `keep` wrote; None if it is not there, or damaged.

    Raises:
        EnvironmentMissing: others may write to the directory.
    """
    require_own(path.parent)
    try:
        data = path.read_bytes()
    except OSError:
        return None
    body = data[:-DIGEST_BYTES]
    return body if data[len(body) :] == _digest_of(path, body) else None


def load_path(path: Path) -> Path | None:
    """The path of what `keep` wrote; None if it is not there, or damaged.

    Raises:
        EnvironmentMissing: others may write to the directory.
    """
    return None if load(path) is None else path


def _digest_of(path: Path, data: bytes) -> bytes:
    """With the name, so that one entry in another's place is noticed."""
    return hashlib.sha256(path.name.encode() + b"\0" + data).digest()


# -- folders of files that others read as they are --------------------------------------------------------


def keep_files(folder: Path, made: Mapping[str, Path]) -> None:
    """Move files into a folder of the cache, under the names given; their digests stand beside them.

    Raises:
        OutputFailed: the folder cannot be made, or a file not written.
        EnvironmentMissing: others may write to the folder.
    """
    with writing(folder):
        sums = "".join(f"{_sum(path)}  {name}\n" for name, path in made.items())
        for name, path in made.items():
            try:
                os.replace(path, folder / name)
            except OSError:  # from another file system
                files.write(folder / name, path.read_bytes())
        files.write(folder / SUMS, sums.encode())


def has_files(folder: Path, names: Iterable[str]) -> bool:
    """Whether a folder has these files as `keep_files` wrote them.

    Raises:
        EnvironmentMissing: others may write to the folder.
    """
    require_own(folder)
    try:
        lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
        kept = {name: known for known, _, name in (line.partition("  ") for line in lines)}
        return all(kept.get(name) == _sum(folder / name) for name in names)
    except (OSError, ValueError):
        return False


def _sum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


# -- directories ----------------------------------------------------------------------------------------


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """A folder of the cache, made if need be, to which the block writes.

    Raises:
        OutputFailed: it cannot be made; or the block could not write.
        EnvironmentMissing: others may write to it.
    """
    try:
        for one in _chain(folder):  # each with a mode of its own: a umask of 002 is common
            one.mkdir(mode=0o700, parents=one == _root(), exist_ok=True)
        require_own(folder)
        yield
    except (OSError, OutputFailed) as problem:
        reason = problem.message if isinstance(problem, OutputFailed) else problem.strerror
        raise OutputFailed(
            f"the cache cannot be written: {reason}",
            where=str(folder),
            hint=f"free some space there, or set {settings.CACHE.name} to a directory that can be written",
        ) from problem


def require_own(folder: Path) -> None:
    """Refuse a folder of the cache to which somebody else may write, or one above it in the cache.

    Raises:
        EnvironmentMissing: it is another user's, or the group or everybody may write to it.
    """
    for one in _chain(folder):
        try:
            status = one.stat()
        except OSError:
            return  # it is not there, so nothing in it is used
        if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise EnvironmentMissing(
                "others may write to the cache, which holds programs that are run",
                where=str(one),
                hint=f"if it is yours, chmod go-w {one}; or set {settings.CACHE.name} to another directory",
            )


def _chain(folder: Path) -> list[Path]:
    """The cache's own directory, and those from it to a folder of it."""
    root = _root()
    above = [one for one in folder.parents if one.is_relative_to(root)]
    return [*reversed(above), folder]
