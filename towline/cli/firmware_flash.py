"""`towline firmware flash`: write a firmware image into a bridge, or an old one back.

The work is done by `usbgpu.flash`; the messages and questions are here.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from sdk import files, settings
from sdk.errors import TowlineError, UsageError
from sdk.extras import require
from sdk.report import Console, Result, table
from towline.cli.flash_boards import EmulatedBoard, RealBoard
from towline.cli.options import add_required_keys, require_directory, required_keys
from towline.cli.runtime import emulator_warnings

if TYPE_CHECKING:
    from usbgpu.flash import job
    from usbgpu.flash.programmer import Written
    from usbgpu.transport import Identity, Transport

SUMMARY = "write a firmware image into a bridge, which survives a power cut at any time"
EXAMPLE = """towline firmware flash bridge.bin --device usb
towline firmware flash --restore backup.json --device usb
towline firmware flash bridge.bin --device emulated --flash board.flash --inject power-cut@1s --yes"""

EMULATED = "emulated"
WAIT_SECONDS = 120.0
"""How long a user at a terminal has to switch the board's power off and on."""


class Declined(TowlineError):
    """The user declined; nothing was changed."""

    code: ClassVar[str] = "declined"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("image", metavar="IMAGE", type=Path, nargs="?", help="wrapped image to write")
    parser.add_argument(
        "--device",
        metavar="DEVICE",
        help="usb, usb:SERIAL, usb:port=2-1.4, emulated, emulated?strap "
        f"(default: {settings.DEVICE.name}, else emulated)",
    )
    parser.add_argument("--yes", action="store_true", help="do not ask before the flash is changed")
    parser.add_argument("--dry-run", action="store_true", help="read and check everything, change nothing")
    parser.add_argument(
        "--backup",
        metavar="FILE",
        help="write the backup to FILE as well; without IMAGE, do only that",
    )
    parser.add_argument(
        "--restore",
        metavar="FILE",
        type=Path,
        help="take the configuration from this backup; without IMAGE, the image too",
    )
    parser.add_argument(
        "--wait",
        metavar="SECONDS",
        type=float,
        help=f"wait for the board's power to go off and on (default: {WAIT_SECONDS:g} at a terminal, else 0)",
    )
    add_required_keys(parser)
    board = parser.add_argument_group("the emulated board")
    board.add_argument("--flash", metavar="FILE", type=Path, help="keep its flash in FILE")
    board.add_argument(
        "--inject", metavar="FAULT", action="append", default=[], help="a fault: power-cut@1s (see docs)"
    )


def run(args: argparse.Namespace, console: Console) -> Result:
    from usbgpu.flash import job, state
    from usbgpu.transport import DeviceString

    named = DeviceString.parse(args.device)
    emulated = named.kind == EMULATED
    _refuse_contradictions(args, emulated=emulated)
    keys = required_keys(args)
    image = job.read_image(args.image, keys) if args.image is not None else None
    if args.restore is not None:  # an invalid backup is reported before any question
        state.Backup.read(args.restore, keys if image is None else None)
    _require_answer(args)
    home = state.directory()
    with _bench(args, named.text, console, emulated=emulated) as bench, bench.open() as device:
        if image is None and args.restore is None:
            return _only_backup(args, device, console)
        prepared = job.prepare(
            device,
            home,
            image=image,
            restore=args.restore,
            keys=keys,
            kind=named.kind,
            progress=console.progress,
        )
        document, text = _summary(args, prepared)
        for warning in prepared.warnings:
            console.warn(warning)
        if args.dry_run:
            return Result(document | {"dry_run": True}, f"{text}\n\nnothing was changed (--dry-run)")
        _ask(args, text)
        if args.backup:
            state.export(prepared.present or prepared.wanted, Path(args.backup))
        path, journal = job.secure(prepared, home, named.kind)
        console.note(f"backup: {path}")
        written = job.write(prepared, journal, console.progress)
        console.end_progress()
        identity = job.start(prepared, lambda old: bench.power_cycle(old, console))
        return _result(document, path, written, prepared, identity)


@contextlib.contextmanager
def _bench(
    args: argparse.Namespace, device: str, console: Console, *, emulated: bool
) -> Iterator[RealBoard | EmulatedBoard]:
    """The board that the command line names."""
    with contextlib.ExitStack() as stack:
        if not emulated:
            yield RealBoard(device, args.wait if args.wait is not None else WAIT_SECONDS * _at_terminal())
            return
        require("cffi", extra="emulator")
        stack.enter_context(emulator_warnings(console.warn))
        flash = args.flash or stack.enter_context(files.scratch_directory()) / "board.flash"
        board = EmulatedBoard(device, flash, args.inject)
        stack.callback(board.close)
        yield board


# -- the user ---------------------------------------------------------------------------------------------


def _refuse_contradictions(args: argparse.Namespace, *, emulated: bool) -> None:
    if args.image is None and args.restore is None and not args.backup:
        raise UsageError("nothing to do", hint="name an IMAGE, or --restore FILE, or --backup FILE")
    if (args.flash or args.inject) and not emulated:
        raise UsageError("--flash and --inject are for --device emulated")
    if args.wait is not None and not 0 <= args.wait < math.inf:
        raise UsageError("--wait must be a number of seconds, 0 or more")
    if args.backup and Path(args.backup).is_file():
        raise UsageError("exists, and a backup replaces nothing", where=args.backup, hint="name another file")
    if args.restore is not None and not args.restore.is_file():
        what = "is a directory, not a file" if args.restore.is_dir() else "no such file"
        raise UsageError(what, where=str(args.restore), hint="name a backup of this board")
    for output in (args.backup, args.flash):
        if output:
            require_directory(str(output))


def _require_answer(args: argparse.Namespace) -> None:
    """Refuse to change a flash if the user has not agreed and cannot be asked."""
    changes = not args.dry_run and (args.image is not None or args.restore is not None)
    if changes and not args.yes and not _at_terminal():
        raise UsageError(
            "no confirmation is possible: standard input is not a terminal", hint="give --yes or --dry-run"
        )


def _at_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def _ask(args: argparse.Namespace, text: str) -> None:
    """Show the user what will be done, and ask for a yes, unless --yes was given.

    Raises:
        Declined: the answer was not yes.
    """
    if args.yes:
        print(text, file=sys.stderr, flush=True)
        return
    print(f"{text}\nWrite this? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Declined("nothing was changed")


def _summary(args: argparse.Namespace, prepared: job.Prepared) -> tuple[dict[str, Any], str]:
    from usbgpu.flash import job

    contents, identity = prepared.contents, prepared.identity
    erases, programs = prepared.operations
    levels = sorted(job.releases(contents.image))
    config = job.describe(contents.config)
    origin = str(prepared.wanted_path) if prepared.wanted_path is not None else "the flash"
    document = {
        "device": prepared.device.name,
        "running": identity.running.value,
        "speed": identity.speed.value,
        "serial": prepared.serial,
        "programmer": prepared.programmer.name,
        "image": str(args.image) if args.image is not None else origin,
        "image_bytes": len(contents.image),
        "releases": levels,
        "config": config,
        "config_from": origin,
        "erases": erases,
        "programs": programs,
        "caution": prepared.programmer.caution,
        "warnings": list(prepared.warnings),
    }
    rows = [
        ("device", f"{prepared.device.name}: {identity}"),
        ("by", prepared.programmer.name),
        ("image", f"{document['image']}, {len(contents.image):,} bytes{_levels(levels)}"),
        ("configuration", f"blocks: {', '.join(config)}; from {origin}"),
        ("to do", f"erases: {erases}, programs: {programs}" if erases else "nothing, the flash holds it"),
        ("caution", prepared.programmer.caution),
    ]
    return document, "\n".join(f"{name:<14} {value}" for name, value in rows)


def _levels(levels: list[int]) -> str:
    return f", API {' or '.join(f'{level >> 8}.{level & 0xFF}' for level in levels)}" if levels else ""


def _result(
    document: dict[str, Any],
    path: Path,
    written: Written | None,
    prepared: job.Prepared,
    identity: Identity | None,
) -> Result:
    verified = written.verified if written is not None else len(prepared.contents.memory)
    rest = "" if verified > len(prepared.contents.image) else "; the device does not show the rest"
    runs = str(identity) if identity is not None else "what ran before, until the board loses all power"
    document |= {
        "backup": str(path),
        "written": written is not None,
        "verified_bytes": verified,
        "repeats": written.repeats if written is not None else 0,
        "started": identity is not None,
        "runs": identity.running.value if identity is not None else None,
        "release": identity.release if identity is not None else None,
    }
    rows = [
        ("written", "nothing, the flash held it" if written is None else document["image"]),
        ("verified", f"{verified:,} bytes{rest}"),
        ("backup", str(path)),
        ("runs", runs),
    ]
    return Result(document, table(("", ""), rows).strip())


def _only_backup(args: argparse.Namespace, device: Transport, console: Console) -> Result:
    from usbgpu.flash import job, state

    backup = job.back_up(device, console.progress)
    if args.dry_run:
        return Result({"dry_run": True, "device": backup.device}, "nothing was written (--dry-run)")
    state.export(backup, Path(args.backup))
    config = job.describe(backup.config)
    document = {
        "backup": args.backup,
        "device": backup.device,
        "serial": backup.serial,
        "config": config,
        "memory_bytes": len(backup.memory),
    }
    return Result(document, f"{args.backup}: configuration {', '.join(config)}; {len(backup.memory):,} bytes")
