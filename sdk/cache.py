"""What is built once and kept: compiled kernels, the emulator's library, firmware images.

Everything is kept under a name made of all that determines it, so that nothing in the cache is ever stale,
and each file is written whole or not at all, so that any number of processes may fill it at once.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sdk import files, settings
from sdk.errors import OutputFailed

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
    override = _override or settings.CACHE.value()
    user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return (Path(override) if override else Path(user, "towline")) / kind


def digest(facts: Iterable[str | bytes]) -> str:
    """A name for what these facts determine: 24 hexadecimal digits."""
    whole = hashlib.sha256()
    for fact in facts:
        data = fact.encode() if isinstance(fact, str) else fact
        whole.update(len(data).to_bytes(8, "little") + data)
    return whole.hexdigest()[:24]


def keep(path: Path, data: bytes) -> None:
    """Write a file of the cache, making its directory.

    Raises:
        OutputFailed: the directory cannot be made, or the file not written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path, data)
    except (OSError, OutputFailed) as problem:
        reason = problem.message if isinstance(problem, OutputFailed) else problem.strerror
        raise OutputFailed(
            f"the cache cannot be written: {reason}",
            where=str(path.parent),
            hint=f"set {settings.CACHE.name} to a directory that can be written",
        ) from problem
