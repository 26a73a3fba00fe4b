"""What has been executed of one build: a count for every instruction, and the sides of every branch.

The file is JSON, so that it can be read without Towline:

    {"schema": 1, "coverage": "8051", "build": SHA-256 of the code, "image": "firmware", "runs": 2,
     "executed": [[place, times, sides], ...]}

A place is the CODE address, plus 0x10000 in bank 1; sides is 1, plus 2 if the branch there was taken, plus 4
if it was not.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from emulator.image_file import CodeImage
from firmware.asm2464pd import image
from sdk import files
from sdk.errors import InvalidInput, OutputFailed

PLACES = 2 * 0x10000
"""CODE addresses in either bank; those of the common half count in bank 0."""
EXECUTED, TAKEN, NOT_TAKEN = 1, 2, 4
"""Bits as in `Mcs51.coverage`."""

_SCHEMA = 1
_KIND = "8051"
_DELETE = "delete it, or name another file"


def build_of(code: CodeImage) -> str:
    """The identity of a build: the SHA-256 of its code, in hexadecimal."""
    return digest(image.body(code.banks, code.loaded))


def digest(body: bytes) -> str:
    """As `build_of`, of the body of an image as it is in flash."""
    return hashlib.sha256(body).hexdigest()


@dataclass
class Coverage:
    """What has been executed of a build.

    Attributes:
        build: from `build_of`.
        image: the name that it was begun with.
        runs: the number of power-ons counted in it.
        times: by place, how often the instruction there was executed.
        sides: by place, bits.
    """

    build: str
    image: str = ""
    runs: int = 0
    times: npt.NDArray[np.uint64] = field(default_factory=lambda: np.zeros(PLACES, np.uint64))
    sides: npt.NDArray[np.uint8] = field(default_factory=lambda: np.zeros(PLACES, np.uint8))

    def add(self, other: Coverage, name: str = "") -> None:
        """Add what another run executed.

        Args:
            other: of the same build.
            name: of `other`, for messages.

        Raises:
            InvalidInput: it is of another build.
        """
        if other.build != self.build:
            raise InvalidInput(
                f"is of another build: {_short(other)}, not {_short(self)}",
                where=name or other.image,
                hint="addresses mean something else there; " + _DELETE,
            )
        self.image = self.image or other.image
        self.runs += other.runs
        self.times += other.times
        self.sides |= other.sides

    def add_to(self, path: Path) -> None:
        """Add this to a file, or create it; several processes may do so at once.

        Raises:
            InvalidInput: the file is not a coverage file, or is of another build.
            OutputFailed: it cannot be written.
        """
        with _only_one(path):
            merged = Coverage(self.build, self.image)
            if path.exists():
                merged.add(Coverage.read(path), str(path))
            merged.add(self)
            merged.write(path)

    def write(self, path: Path) -> None:
        """Write a file, whole or not at all. Raises OutputFailed."""
        found = np.flatnonzero(self.sides)
        executed = np.stack((found, self.times[found].astype(np.int64), self.sides[found]), axis=1).tolist()
        head = {"schema": _SCHEMA, "coverage": _KIND, "build": self.build, "image": self.image}
        document = head | {"runs": self.runs, "executed": executed}
        files.write(path, json.dumps(document, separators=(",", ":")).encode() + b"\n")

    @classmethod
    def read(cls, path: Path) -> Coverage:
        """The contents of a file.

        Raises:
            InvalidInput: it cannot be read, or is not a coverage file.
        """
        if path.exists() and not path.is_file():
            raise InvalidInput("is not a regular file", where=str(path), hint="name another one")
        try:
            document = json.loads(path.read_bytes())
        except OSError as problem:
            raise InvalidInput(f"cannot be read: {problem.strerror}", where=str(path)) from None
        except (ValueError, RecursionError):
            document = None
        try:
            return cls._from(document)
        except (KeyError, TypeError, ValueError, OverflowError):
            raise InvalidInput(
                "is not a coverage file of firmware, or is damaged", where=str(path), hint=_DELETE
            ) from None

    @classmethod
    def _from(cls, document: Any) -> Coverage:
        if (document["schema"], document["coverage"]) != (_SCHEMA, _KIND):
            raise ValueError("of another kind")
        build, name, runs = document["build"], document["image"], document["runs"]
        if not (isinstance(build, str) and len(bytes.fromhex(build)) == hashlib.sha256().digest_size):
            raise ValueError("no build")
        if not isinstance(name, str) or type(runs) is not int or runs < 0:
            raise ValueError("no image or runs")
        if not isinstance(document["executed"], list):
            raise TypeError("no list")
        result = cls(build, name, runs)
        if document["executed"]:
            # Only whole numbers: a list of anything else has another dtype, or does not fit this one.
            rows = np.array(document["executed"])
            if rows.dtype != np.int64 or rows.ndim != 2 or rows.shape[1] != 3 or rows.min() < 0:
                raise ValueError("no rows of three counts")
            places, times, sides = rows.T
            if places.max() >= PLACES or not np.all(sides & EXECUTED) or sides.max() > 7 or times.min() < 1:
                raise ValueError("no places")
            result.times[places] = times
            result.sides[places] = sides
        return result


def _short(coverage: Coverage) -> str:
    return f"{coverage.image or 'code'} {coverage.build[:8]}"


@contextlib.contextmanager
def _only_one(path: Path) -> Iterator[None]:
    """One process at a time. The directory is locked: the file is replaced, and a lock file would stay."""
    try:
        directory = os.open(Path(os.path.realpath(path)).parent, os.O_RDONLY)
    except OSError as problem:
        raise OutputFailed(
            f"cannot be written: {problem.strerror}", where=str(path), hint="make the directory"
        ) from None
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)
