"""What is built once and kept: compiled kernels, the emulator's library, firmware images.

Everything is kept under a name made of all that determines it, so that nothing in the cache is ever stale,
and each file is written whole or not at all, so that any number of processes may fill it at once.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from sdk import files
from sdk.errors import OutputFailed

VARIABLE = "TOWLINE_CACHE"
"""Environment variable that names another directory than the user's cache directory."""


def directory(kind: str) -> Path:
    """Where one kind of thing is kept; it need not exist yet.

    Without VARIABLE it is where the XDG Base Directory Specification has it.
    """
    override = os.environ.get(VARIABLE)
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
            hint=f"set {VARIABLE} to a directory that can be written",
        ) from problem
