"""What the host stores about a board: backups of its flash, and a journal of an unfinished job.

Both are JSON files in the user's state directory (TOWLINE_STATE names another), below `flash/`. A backup is
never changed and never deleted here. A journal is written before the first change of the flash and removed
when the last byte has been read back; one that is found names an interrupted job, and the backup that holds
what its board had before. Everything is on the disk (fsync), and has been read back, before it counts.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from firmware.asm2464pd.flash_layout import CONFIG_0, CONFIG_1
from sdk import files, settings, signatures
from sdk.errors import InvalidInput, OutputFailed
from sdk.extras import require

SCHEMA = 1
DIGEST = "sha256"

T = TypeVar("T")


def directory() -> Path:
    """Where backups and journals are; it need not exist yet."""
    override = settings.STATE.value()
    if override:
        return Path(override) / "flash"
    return Path(require("platformdirs", extra="emulator").user_state_path("towline")) / "flash"


@dataclass(frozen=True, slots=True)
class Backup:
    """What a board's flash held.

    Attributes:
        made: when, in UTC, as ISO 8601.
        device: the device's identity, as text.
        serial: serial number of the OTP page; None if it could not be read.
        config: the configuration blocks.
        memory: the flash from address 0 on, as far as it could be read; b"" for nothing.
        otp: the one-time programmable page; None if it could not be read. It is never written.
        chip: identification of the flash chip; None likewise.
        status: its status register; None likewise.
    """

    made: str
    device: str
    serial: str | None
    config: tuple[bytes, bytes]
    memory: bytes
    otp: bytes | None = None
    chip: bytes | None = None
    status: int | None = None

    def document(self) -> dict[str, Any]:
        """As JSON; the digest covers everything else."""
        document: dict[str, Any] = {
            "schema": SCHEMA,
            "made": self.made,
            "device": self.device,
            "serial": self.serial,
            "config": [block.hex() for block in self.config],
            "memory": base64.b64encode(self.memory).decode("ascii"),
            "otp": _hex(self.otp),
            "chip": _hex(self.chip),
            "status": self.status,
        }
        return document | {DIGEST: digest_of(document)}

    @classmethod
    def read(cls, path: Path, keys: str | None = None) -> Backup:
        """Read a backup.

        Args:
            path: of the file.
            keys: a file of trusted keys, one of which must have signed it (`towline sign`), or None.

        Raises:
            InvalidInput: the file cannot be read, is damaged, or is not a backup.
            SignatureRefused: no trusted key has signed it; nothing of it was examined then.
        """
        document = _load(path, "backup", keys)

        def take() -> Backup:
            first, second = (bytes.fromhex(block) for block in document["config"])
            if (len(first), len(second)) != (CONFIG_0.size, CONFIG_1.size):
                raise ValueError("a configuration block has the wrong size")
            return cls(
                str(document["made"]),
                str(document["device"]),
                document["serial"],
                (first, second),
                base64.b64decode(document["memory"], validate=True),
                _bytes(document["otp"]),
                _bytes(document["chip"]),
                document["status"],
            )

        return _checked(path, "backup", take)


@dataclass(frozen=True, slots=True)
class Job:
    """A write that has begun.

    Attributes:
        path: of its journal.
        backup: of the backup made before it; the file's path. The journal has its name alone, so that the
            directory can be moved, to another computer too.
        kind: kind of device string, such as `usb` or `emulated`: their jobs are not mixed up.
        serial: of the board; None if it could not be read.
        image: SHA-256 of the image to be written.
        began: when, in UTC, as ISO 8601.
    """

    path: Path
    backup: Path
    kind: str
    serial: str | None
    image: str
    began: str

    def end(self) -> None:
        """The job is done: delete its journal."""
        self.path.unlink(missing_ok=True)
        _sync_directory(self.path.parent)


def digest(image: bytes) -> str:
    """SHA-256 of an image, as a journal has it."""
    return hashlib.sha256(image).hexdigest()


def now() -> str:
    """The current time, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def keep(backup: Backup, home: Path) -> Path:
    """Write a backup into the state directory; its path.

    Raises:
        OutputFailed: it cannot be written, or does not read back.
    """
    moment = backup.made.partition("+")[0].replace(":", "").replace("-", "")
    # With the process id, so that two processes that flash two boards do not overwrite each other's.
    path = _free(home / "backups", f"{moment}-{backup.serial or 'unknown'}-{os.getpid()}")
    export(backup, path)
    return path


def export(backup: Backup, path: Path) -> None:
    """Write a backup to a file. Raises as `keep`."""
    _write(path, backup.document())
    try:
        intact = Backup.read(path) == backup
    except InvalidInput:
        intact = False
    if not intact:
        raise OutputFailed("does not read back as it was written", where=str(path), hint="check the disk")


def begin(home: Path, backup: Path, kind: str, serial: str | None, image: bytes) -> Job:
    """Write the journal of a job that is about to begin; `backup` is one that `keep` made there.

    Raises:
        OutputFailed: it cannot be written.
    """
    path = _free(home / "jobs", backup.stem)
    job = Job(path, backup, kind, serial, digest(image), now())
    document = {
        "schema": SCHEMA,
        "backup": job.backup.name,
        "kind": job.kind,
        "serial": job.serial,
        "image": job.image,
        "began": job.began,
    }
    _write(path, document | {DIGEST: digest_of(document)})
    return job


def jobs(home: Path, kind: str) -> list[Job]:
    """The unfinished jobs, the latest last.

    Raises:
        InvalidInput: a journal is damaged.
    """
    found = [_job(path) for path in sorted((home / "jobs").glob("*.json"))]
    return sorted((job for job in found if job.kind == kind), key=lambda job: job.began)


# -- files ------------------------------------------------------------------------------------------------

_REMEDIES = {
    "backup": "name a backup of this board with --restore",
    "journal": "move the file away once its board is known to work",
}


def _job(path: Path) -> Job:
    document = _load(path, "journal")

    def take() -> Job:
        return Job(
            path,
            path.parents[1] / "backups" / Path(document["backup"]).name,
            str(document["kind"]),
            document["serial"],
            str(document["image"]),
            str(document["began"]),
        )

    return _checked(path, "journal", take)


def _write(path: Path, document: Mapping[str, Any]) -> None:
    """Write JSON so that it survives a crash of the host."""
    hint = (
        "nothing was changed on the device; free disk space, or name a writable directory "
        f"({settings.STATE.name} for the state directory)"
    )
    missing = [home for home in path.parents if not home.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with files.replacing(path) as file:
            file.write(json.dumps(document, indent=2).encode("ascii") + b"\n")
            file.flush()
            os.fsync(file.fileno())
        for home in (path.parent, *(made.parent for made in missing)):
            _sync_directory(home)
    except OSError as problem:
        raise OutputFailed(
            f"cannot be created: {problem.strerror}", where=str(path.parent), hint=hint
        ) from problem
    except OutputFailed as problem:
        raise OutputFailed(problem.message, where=problem.where, hint=hint) from None


def _sync_directory(path: Path) -> None:
    try:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as problem:
        raise OutputFailed(f"cannot be made durable: {problem.strerror}", where=str(path)) from problem


def _load(path: Path, what: str, keys: str | None = None) -> dict[str, Any]:
    try:
        document = json.loads(signatures.read(path, keys))
    except OSError as problem:
        raise InvalidInput(
            f"cannot be read: {problem.strerror}", where=str(path), hint=_REMEDIES[what]
        ) from None
    except (ValueError, RecursionError):
        raise _damaged(path, what, "it is not JSON") from None
    if not isinstance(document, dict) or DIGEST not in document:
        raise _damaged(path, what, "it has no digest")
    if document.get("schema") != SCHEMA:
        raise InvalidInput(
            f"has schema {document.get('schema')!r}, this is schema {SCHEMA}",
            where=str(path),
            hint="use the version of towline that wrote it",
        )
    claimed = document.pop(DIGEST)
    if claimed != digest_of(document):
        raise _damaged(path, what, "its digest is wrong")
    return document


def _checked(path: Path, what: str, take: Callable[[], T]) -> T:
    try:
        return take()
    except (KeyError, TypeError, ValueError) as problem:
        raise _damaged(path, what, str(problem)) from None


def _damaged(path: Path, what: str, why: str) -> InvalidInput:
    return InvalidInput(f"is damaged, or not a {what}: {why}", where=str(path), hint=_REMEDIES[what])


def digest_of(document: Mapping[str, Any]) -> str:
    """SHA-256 of a document without its digest, as the file has it."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode("ascii")).hexdigest()


def _free(home: Path, stem: str) -> Path:
    """A name that no file has."""
    path, number = home / f"{stem}.json", 1
    while path.exists():
        number += 1
        path = home / f"{stem}-{number}.json"
    return path


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)
