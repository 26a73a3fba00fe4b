"""A job: from the first read of a board to its start with new firmware.

    prepared = prepare(device, home, image=image)     # reads; changes nothing
    path = secure(prepared, home)                     # backup and journal are on the disk
    written = write(prepared)                         # the flash is changed, and read back
    identity = start(prepared, power_cycle)           # the board runs it

`prepare` decides where the configuration comes from, the critical decision: from the flash, unless the flash
is what an interrupted job left behind; then from the backup made before that job; or from a file that the
user names.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from firmware.asm2464pd import flash_layout
from firmware.asm2464pd import image as images
from firmware.asm2464pd.flash_layout import IMAGE, OTP_SERIAL
from sdk import signatures
from sdk.errors import CheckFailed, DeviceFailed, DeviceMissing, InvalidInput, TowlineError, UsageError
from usbgpu.flash import plan, programmer, state
from usbgpu.flash.plan import Contents
from usbgpu.flash.programmer import Programmer, Progress, Survey, VerifyFailed, Written
from usbgpu.flash.state import Backup, Job
from usbgpu.transport import Identity, Running, Transport
from usbgpu.transport.identity import OPEN_FIRMWARE

START_SECONDS = 15.0
"""Longest time from a restart until the device is on the bus: firmware may train its PCIe link first."""
USER_ABORT = 130
_IDS = b"|".join(re.escape(struct.pack("<HH", *ids)) for ids in sorted(OPEN_FIRMWARE))
_DEVICE_DESCRIPTOR = re.compile(rb"\x12\x01.{6}(?:" + _IDS + rb")(..)", re.DOTALL)

PowerCycle = Callable[[Transport], Transport | None]
"""Switches all power of the board off and on; the device that comes back, None if that was not done."""


class FlashInterrupted(DeviceFailed):
    """The write was interrupted: the flash may hold neither image, and the backup is needed."""

    code = "flash-interrupted"


class FlashAborted(FlashInterrupted):
    """The user stopped it."""

    code = "interrupted"
    exit_code = USER_ABORT


class NotStarted(CheckFailed):
    """The flash is correct, but what was written does not run."""

    code = "not-started"

    def __init__(self, message: str, *, where: str, hint: str) -> None:
        super().__init__(f"the flash is written, but {message}", where=where, hint=hint)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A job that can begin.

    Attributes:
        device: where.
        identity: what runs there.
        programmer: the way to its flash.
        serial: its serial number: its own, else that in the backup; None if neither has one.
        contents: what its flash must hold.
        wanted: the backup that the configuration comes from.
        wanted_path: its file; None if it has none yet, because it is what was read just now.
        present: what was read just now; None if an interrupted job left it.
        resumes: the interrupted jobs that this one ends; one may be listed twice.
        there: the flash holds it already, every byte.
        warnings: what the user should know before it begins.
    """

    device: Transport
    identity: Identity
    programmer: Programmer
    serial: str | None
    contents: Contents
    wanted: Backup
    wanted_path: Path | None
    present: Backup | None
    resumes: tuple[Job, ...]
    there: bool
    warnings: tuple[str, ...] = field(default=())

    @property
    def operations(self) -> tuple[int, int]:
        """How many erases and programs that is; mass-storage mode may take more of them."""
        work = [] if self.there else plan.stages(self.contents)
        programs = sum(stage.operations - 1 for stage in work)
        return len(work), programs + bool(work)


def read_image(path: Path, keys: str | None = None) -> bytes:
    """A wrapped image from a file.

    Args:
        path: of the file.
        keys: a file of trusted keys, one of which must have signed it (`towline sign`), or None.

    Raises:
        SignatureRefused: none has; nothing of it was examined then.
        UsageError: it cannot be read.
        InvalidInput: it is damaged, or not wrapped; with every field that is wrong.
    """
    try:
        data = signatures.read(path, keys)
    except OSError as problem:
        raise UsageError(f"cannot be read: {problem.strerror}", where=str(path)) from None
    if len(data) > images.MAX_IMAGE:
        raise InvalidInput(
            f"has {len(data)} bytes; an image has at most {images.MAX_IMAGE}",
            where=str(path),
            hint="name an image as `towline firmware build` makes it, not a dump of the flash",
        )
    findings = [str(finding) for finding in images.examine(data)]
    if not findings and images.size(data) != len(data):
        findings = [f"{len(data) - images.size(data)} bytes follow the image"]
    if findings:
        raise InvalidInput(
            f"is not a wrapped image: {'; '.join(findings)}",
            where=str(path),
            hint="`towline firmware build` makes one",
        )
    return data


def releases(image: bytes) -> set[int]:
    """Every bcdDevice in an image's device descriptors of open firmware; empty for other images."""
    return {int.from_bytes(found, "little") for found in _DEVICE_DESCRIPTOR.findall(image)}


def prepare(
    device: Transport,
    home: Path,
    *,
    image: bytes | None,
    restore: Path | None = None,
    keys: str | None = None,
    kind: str,
    progress: Progress = lambda stage, done, total: None,
) -> Prepared:
    """Read a board, and decide what its flash must hold. Changes nothing.

    Args:
        device: the board.
        home: the state directory.
        image: the wrapped image to write; None for that of the backup.
        restore: a backup to take the configuration from, instead of the flash.
        keys: a file of trusted keys, one of which must have signed the backup if its image is written.
        kind: the kind of device string.
        progress: is called with the progress.

    Raises:
        Unsupported: the device cannot be flashed.
        UsageError: several interrupted jobs could be this board's.
        InvalidInput: a backup or journal is damaged, of another board, or holds no image.
        SignatureRefused: no trusted key has signed the backup.
        DeviceFailed: the device does not answer, or does not return its configuration.
    """
    identity = device.identify()
    way = programmer.choose(device, identity)
    survey = way.survey(progress)
    serial = _serial(survey)
    present = _present(identity, survey, serial)
    jobs = state.jobs(home, kind)
    resumes = [job for job in jobs if serial is not None and job.serial == serial]
    path: Path | None
    if restore is not None:
        wanted, path = Backup.read(restore, keys if image is None else None), restore
        resumes += [job for job in jobs if job.backup.resolve() == restore.resolve()]
        warnings = _doubts_of_restore(survey, serial, wanted, restore)
    elif interrupted := _interrupted(jobs, serial, survey):
        path = interrupted[-1].backup
        wanted, present = Backup.read(path), None
        resumes += interrupted
        warnings = _doubts_of_resumption(interrupted[-1], serial)
    elif present is None:
        raise _no_configuration(device, identity)
    else:
        wanted, path = present, None
        warnings = _doubts(present)
    body = image if image is not None else plan.image_in(wanted.memory)
    if body is None:
        raise InvalidInput("holds no complete image", where=str(path), hint="name an image to write as well")
    contents = Contents(wanted.config, body, plan.tail_in(wanted.memory))
    return Prepared(
        device=device,
        identity=identity,
        programmer=way,
        serial=serial or wanted.serial,
        contents=contents,
        wanted=wanted,
        wanted_path=path,
        present=present,
        resumes=tuple(resumes),
        there=_holds(survey, contents),
        warnings=tuple(warnings),
    )


def back_up(device: Transport, progress: Progress = lambda stage, done, total: None) -> Backup:
    """Read all that a backup holds. Raises as `prepare`."""
    identity = device.identify()
    survey = programmer.choose(device, identity).survey(progress)
    backup = _present(identity, survey, _serial(survey))
    if backup is None:
        raise _no_configuration(device, identity)
    return backup


def secure(prepared: Prepared, home: Path, kind: str) -> tuple[Path, Job]:
    """Write to disk all that is needed to restore the board; the backup's path, and the journal.

    Raises:
        OutputFailed: it cannot be written. Nothing has been changed.
    """
    path = state.keep(prepared.present, home) if prepared.present is not None else None
    if prepared.wanted_path is not None:
        path = prepared.wanted_path
        if path.resolve().parent != (home / "backups").resolve():
            path = state.keep(prepared.wanted, home)
    assert path is not None
    return path, state.begin(home, path, kind, prepared.serial, prepared.contents.image)


def write(
    prepared: Prepared, job: Job, progress: Progress = lambda stage, done, total: None
) -> Written | None:
    """Change the flash, read it back, and delete the journal; None if nothing had to be written.

    Raises:
        FlashInterrupted: it stopped in the middle; the journal stays.
        VerifyFailed: the flash does not keep what is written; the journal stays.
    """
    way = prepared.programmer
    advice = (
        "run the same command again on this computer, and leave the power on if the board still has it; if "
        "it does not appear, power it on with the boot loader's strap set: "
        f"the configuration is safe in {job.backup}"
    )
    try:
        written = None if prepared.there else way.write(prepared.contents, progress)
        way.finish(prepared.wanted.status)
    except KeyboardInterrupt:
        raise FlashAborted("interrupted while writing", where=prepared.device.name, hint=advice) from None
    except VerifyFailed as problem:
        hint = f"{problem.hint}; the configuration is safe in {job.backup}"
        raise VerifyFailed(problem.message, where=problem.where, hint=hint) from None
    except TowlineError as problem:
        raise FlashInterrupted(
            f"the write stopped: {problem}", where=prepared.device.name, hint=advice
        ) from problem
    job.end()
    for old in prepared.resumes:
        old.end()
    return written


def start(prepared: Prepared, power_cycle: PowerCycle) -> Identity | None:
    """Start the new firmware, and check that it runs; what runs now, None if the board was not restarted.

    Raises:
        NotStarted: something else runs than what was written, or nothing.
    """
    device: Transport | None = prepared.device
    try:
        if prepared.programmer.start():
            prepared.device.reopen(START_SECONDS)
        else:
            device = power_cycle(prepared.device)
        if device is None:
            return None
        identity = device.identify()
    except (DeviceFailed, DeviceMissing) as problem:
        raise NotStarted(
            f"the new firmware does not answer: {problem.message}",
            where=prepared.device.name,
            hint="switch all power of the board off and on, without the strap",
        ) from problem
    expected = releases(prepared.contents.image)
    if identity.running is Running.LOADER:
        raise NotStarted(
            "the boot loader runs",
            where=device.name,
            hint="remove the strap, then switch all power of the board off and on",
        )
    if expected and identity.release not in expected:
        levels = " or ".join(f"{level:#06x}" for level in sorted(expected))
        raise NotStarted(
            f"release {identity.release:#06x} runs, and the image is {levels}",
            where=device.name,
            hint="switch all power of the board off and on, then run `towline devices`",
        )
    build = identity.build
    if expected and build is not None and build.to_bytes(4, "little") not in prepared.contents.image:
        raise NotStarted(
            f"build {build:08x} still runs, which is not the image's",
            where=device.name,
            hint="switch all power of the board, USB and supply, off and on",
        )
    return identity


def describe(config: tuple[bytes, bytes]) -> list[str]:
    """For each configuration block: valid, erased, or what is wrong with it."""
    words = []
    for index, block in enumerate(config):
        findings = flash_layout.examine(index, block)
        if programmer.erased(block):
            words.append("erased")
        else:
            words.append("; ".join(map(str, findings)) if findings else "valid")
    return words


# -- inside -----------------------------------------------------------------------------------------------


def _serial(survey: Survey) -> str | None:
    """The serial number in the OTP page; None if that was not read, or its check byte is wrong."""
    if survey.otp is None:
        return None
    page = survey.otp[: OTP_SERIAL.size]
    return flash_layout.serial_number(page) if page == flash_layout.otp(page[:4]) and any(page) else None


def _present(identity: Identity, survey: Survey, serial: str | None) -> Backup | None:
    """What was read, as a backup; None if the configuration was not."""
    if survey.config is None:
        return None
    return Backup(
        state.now(),
        str(identity),
        serial,
        survey.config,
        survey.memory or b"",
        survey.otp,
        survey.chip,
        survey.status,
    )


def _no_configuration(device: Transport, identity: Identity) -> DeviceFailed:
    return DeviceFailed(
        f"does not return its configuration blocks, so they cannot be saved: {identity}",
        where=device.name,
        hint="power the board with the boot loader's strap set, or name a backup with --restore",
    )


def _interrupted(jobs: list[Job], serial: str | None, survey: Survey) -> list[Job]:
    """The interrupted jobs with one and the same backup that left the flash as it is.

    A valid configuration block that is not the backup's was written by another program. Serial numbers decide
    the rest where both are known; the boot loader has none. Without them, a whole image that is neither the
    job's nor its backup's was written by another program too; and a flash that is complete needs no backup
    and may be another board's, so the journal is kept, longer than needed if it was this board after all.
    Jobs of boards with the same configuration cannot be distinguished, and need not be: one is taken, and the
    others are kept for their boards.

    Raises:
        UsageError: jobs of boards with different configurations match.
        InvalidInput: a backup is damaged.
    """
    image = plan.image_in(survey.memory or b"")
    fitting: list[tuple[Job, Backup]] = []
    for job in jobs:
        known = serial is not None and job.serial is not None
        if known and serial != job.serial:
            continue
        backup = Backup.read(job.backup)
        old = plan.image_in(backup.memory)
        strange = image is not None and old not in (None, image) and job.image != state.digest(image)
        whole = image is not None and survey.config == backup.config
        if not _foreign(survey, backup) and (known or not (strange or whole)):
            fitting.append((job, backup))
    if len({backup.config for _, backup in fitting}) > 1:
        choices = ", ".join(f"{job.backup} (of {job.began})" for job, _ in fitting)
        raise UsageError(
            "several writes were interrupted, and this board could be any of theirs",
            hint=f"name the right backup with --restore: {choices}",
        )
    return [job for job, _ in fitting if job.backup == fitting[-1][0].backup]


def _foreign(survey: Survey, backup: Backup) -> bool:
    """Whether the flash has a valid configuration block that is not the backup's."""
    pairs = zip(survey.config or (), backup.config, strict=bool(survey.config))
    return any(
        found != kept and not flash_layout.examine(index, found) for index, (found, kept) in enumerate(pairs)
    )


def _doubts(present: Backup) -> list[str]:
    """What may be wrong with a flash that is used as it is."""
    doubts = [
        f"configuration block {index} is not valid ({words}); it will be kept as it is"
        for index, words in enumerate(describe(present.config))
        if words not in ("valid", "erased")
    ]
    if not present.memory:
        doubts.append("the device does not return its image: it cannot be saved")
    elif plan.image_in(present.memory) is None:
        doubts.append(
            "the flash holds no complete image: if a write was interrupted on another computer, run this "
            "there, or name the backup that was made there with --restore"
        )
    return doubts


def _doubts_of_resumption(job: Job, serial: str | None) -> list[str]:
    doubts = [f"a write that began {job.began} was interrupted: its backup {job.backup} is used"]
    if serial is None:
        doubts.append(
            "whether this is the board of that write is unknown: it does not return its serial number; "
            "if it is another, change nothing, and use --backup FILE, then --restore FILE"
        )
    return doubts


def _doubts_of_restore(survey: Survey, serial: str | None, wanted: Backup, path: Path) -> list[str]:
    """What may be wrong with a backup that the user names; an error if it is another board's."""
    if serial and wanted.serial:
        if serial != wanted.serial:
            raise InvalidInput(
                f"is a backup of board {wanted.serial}, this is board {serial}",
                where=str(path),
                hint="name a backup of this board: its serial number is in the names of its backups",
            )
    elif _foreign(survey, wanted):
        return [
            "the flash holds another valid configuration, which will be replaced; whether the backup is of "
            "this board is unknown: one of them has no serial number"
        ]
    return []


def _holds(survey: Survey, contents: Contents) -> bool:
    """Whether everything is in the flash already."""
    if survey.config != contents.config or survey.memory is None:
        return False
    # A device may return no more than the largest image's area.
    wanted = contents.memory[: max(len(survey.memory), IMAGE.address + len(contents.image))]
    return survey.memory[: len(wanted)] == wanted
