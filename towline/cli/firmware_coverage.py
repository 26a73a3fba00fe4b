"""`towline firmware coverage`: the C of a firmware that the conformance suite reaches, and the rest."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from sdk import files, settings
from sdk.errors import CheckFailed, OutputFailed, UsageError
from sdk.extras import require
from sdk.report import Console, Result
from towline.cli.options import require_directory

if TYPE_CHECKING:
    from emulator.coverage import Coverage

SUMMARY = "lines and branches of a firmware's C that the conformance suite reaches, and those it does not"
EXAMPLE = """towline firmware coverage --html coverage.html
towline firmware coverage --save suite.cov
towline firmware coverage bridge.bin --no-suite --merge suite.cov mine.cov"""

SPEEDS = ("super-plus", "super", "high")
CHOSEN = ("super-plus", "high")
"""Together they reach all code that depends on the speed."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "image",
        metavar="IMAGE",
        nargs="?",
        default="firmware",
        help="an image by name, or a file with the .map, .cdb and .rst of sdcc --debug beside it "
        "(default: firmware)",
    )
    parser.add_argument(
        "--merge",
        metavar="FILE",
        nargs="+",
        action="extend",
        default=[],
        help="add what other runs have reached: files of --save, of `towline emulate --coverage`, or of "
        f"{settings.COVERAGE.name}",
    )
    parser.add_argument("--no-suite", action="store_true", help="run nothing: only what is merged")
    parser.add_argument(
        "--speed",
        choices=SPEEDS,
        action="append",
        help=f"speed of the port that the suite uses; may be repeated (default: {' and '.join(CHOSEN)})",
    )
    parser.add_argument(
        "--source",
        metavar="DIR",
        action="append",
        default=[],
        help="where the C of IMAGE is, if not beside it; may be repeated",
    )
    parser.add_argument(
        "--html", metavar="FILE", help="write a page: what was not reached, and the sources, marked"
    )
    parser.add_argument("--save", metavar="FILE", help="write what was reached, for --merge")


def run(args: argparse.Namespace, console: Console) -> Result:
    _refuse(args)
    require("cffi", extra="emulator")
    require("usb", extra="emulator")
    from emulator.coverage import Coverage, Program, Report, page

    program = Program.of(args.image, [Path(name) for name in args.source])
    total = Coverage(program.build, program.name)
    for name in args.merge:
        total.add(Coverage.read(Path(name)), name)
    failed = 0
    for speed in () if args.no_suite else dict.fromkeys(args.speed or CHOSEN):
        reached, failures = _suite(args.image, program.build, speed, console)
        failed += failures
        if reached is not None:
            total.add(reached)
    report = Report(program, total)
    if args.html:
        files.write(args.html, page(report).encode())
    if args.save:
        total.write(Path(args.save))
    console.note(f"{args.image}: {report.summary()}")
    failure = CheckFailed(
        f"{failed} checks of the suite failed",
        where=args.image,
        hint=f"towline firmware conform {args.image} shows which",
    )
    text = report.text(every_side=bool(console.verbose))
    return Result(report.document(), text, failure if failed else None)


def _refuse(args: argparse.Namespace) -> None:
    if args.no_suite and not args.merge:
        raise UsageError("--no-suite runs nothing: name files with --merge")
    if args.no_suite and args.speed:
        raise UsageError("--speed is the suite's: leave out --no-suite")
    for name in args.source:
        if not Path(name).is_dir():
            raise UsageError("is not a directory", where=name or "--source")
    roles = {Path(name).resolve(): "read" for name in (args.image, *args.merge)}
    for option in ("html", "save"):
        name = getattr(args, option)
        if name is None:
            continue
        if not name:
            raise UsageError(f"--{option} needs a name that is not empty")
        require_directory(name)
        if Path(name).exists() and not Path(name).is_file():
            raise OutputFailed("is not a regular file", where=name, hint="name a file to write")
        if (role := roles.setdefault(Path(name).resolve(), option)) != option:
            raise UsageError(f"--{option} would overwrite what is {role}", where=name)


def _suite(image: str, build: str, speed: str, console: Console) -> tuple[Coverage | None, int]:
    """What the conformance suite reaches at a speed, and how many of its checks failed."""
    from emulator.board import Board
    from emulator.coverage import Recording
    from emulator.options import Options
    from emulator.usb.wire import Speed
    from usbgpu import conform, transport

    board = Board.of(image, Options(port=Speed[speed.upper().replace("-", "_")]))
    recording = Recording(board, build, image)
    with transport.attach(board.backend(), image) as device:
        report = conform.examine(
            device,
            image,
            progress=lambda section, done, of: console.progress(f"{speed}: {section}", done, of),
        )
    console.detail(f"{speed}: {report.identity}")
    failed = sum(row.verdict is conform.Verdict.FAILED for row in report.rows)
    return recording.taken(), failed
