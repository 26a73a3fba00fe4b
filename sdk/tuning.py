"""Which variant of a kernel costs least, as measured: choices that a target looks up when it compiles.

A file belongs to one target and says, for layers of one signature, which choice to take. It never decides
what is computed, only how: quantised results are the same bits in any case, and floats stay within their
definition. An entry counts for exactly the kernels and the compiler it was measured with; with any other, a
target takes what it would without the file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sdk import cache
from sdk.errors import InvalidInput, UsageError

SCHEMA = 1
LIMIT = 2**24
"""Bytes; no tuning file is larger."""


@dataclass(frozen=True)
class Entry:
    """What measuring found for one signature.

    Attributes:
        kernels: hash of the kernels' sources, the compiler and its flags.
        choice: the best one's name.
        count: what it costs, in the target's counter.
        untuned: what the target's own choice costs.
    """

    kernels: str
    choice: str
    count: int
    untuned: int


@dataclass(frozen=True)
class Tuning:
    """The contents of a tuning file.

    Attributes:
        target: the registry name of the target it is for.
        counter: what was counted, "packets".
        entries: by signature; only where another choice than the target's own is better.
    """

    target: str
    counter: str
    entries: Mapping[str, Entry] = field(default_factory=dict)

    def choice(self, signature: str, kernels: str) -> str | None:
        """The choice measured best with these kernels; None if there is no such measurement."""
        entry = self.entries.get(signature)
        return entry.choice if entry is not None and entry.kernels == kernels else None

    def to_bytes(self) -> bytes:
        """The file: the same contents always give the same bytes."""
        document = {
            "schema": SCHEMA,
            "target": self.target,
            "counter": self.counter,
            "entries": {signature: asdict(entry) for signature, entry in self.entries.items()},
        }
        return (json.dumps(document, indent=1, sort_keys=True) + "\n").encode("ascii")


def user_file(target: str) -> Path:
    """Where `towline tune` keeps the user's own measurements; it need not exist."""
    return cache.directory("tuning") / f"{target}.json"


def read(path: str | os.PathLike[str], target: str) -> Tuning:
    """Read a tuning file.

    Raises:
        UsageError: there is no such file, it is not a regular one, or it cannot be read.
        InvalidInput: it is not a tuning file, or one of another target or schema.
    """
    where = os.fspath(path)
    try:
        if not Path(path).exists():
            raise UsageError("no such tuning file", where=where, hint="make one with towline tune")
        if not Path(path).is_file():
            raise UsageError("is not a regular file", where=where, hint="name a tuning file")
        with Path(path).open("rb") as stream:
            data = stream.read(LIMIT + 1)
    except OSError as problem:
        raise UsageError(f"cannot be read: {problem.strerror}", where=where) from None
    try:
        if len(data) > LIMIT:
            raise ValueError("it is too large")
        tuning = _parse(json.loads(data.decode()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise InvalidInput(
            f"is not a tuning file: {type(problem).__name__}: {problem}",
            where=where,
            hint="delete it; towline tune makes another",
        ) from problem
    if tuning.target != target:
        raise InvalidInput(f"holds measurements of {tuning.target}, not of {target}", where=where)
    return tuning


def existing(path: str | os.PathLike[str], target: str) -> Tuning | None:
    """As `read`, but None if there is no such file."""
    return read(path, target) if os.path.exists(path) else None


def of_user(target: str) -> Tuning | None:
    """As `read` of the user's own measurements; None if there are none."""
    return existing(user_file(target), target)


def _parse(document: Any) -> Tuning:
    if document["schema"] != SCHEMA:
        raise ValueError(f"its schema is {document['schema']}, this Towline reads {SCHEMA}")
    entries = {signature: Entry(**entry) for signature, entry in document["entries"].items()}
    for signature, entry in entries.items():
        texts, counts = (entry.kernels, entry.choice), (entry.count, entry.untuned)
        if not all(type(text) is str for text in texts) or not all(type(n) is int and n >= 0 for n in counts):
            raise ValueError(f"the entry {signature!r} has a field of the wrong type, or a negative count")
    target, counter = document["target"], document["counter"]
    if type(target) is not str or type(counter) is not str:
        raise ValueError("target or counter is not text")
    return Tuning(target, counter, entries)
