"""`towline firmware conform`: run the conformance suite on firmware."""

from __future__ import annotations

import argparse
import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from sdk import files
from sdk.errors import CheckFailed, UsageError
from sdk.extras import require
from sdk.report import Console, Result, table
from towline.cli.options import require_directory
from towline.cli.runtime import emulator_warnings

if TYPE_CHECKING:
    from usbgpu.conform import Report, Row

SUMMARY = "run the conformance suite on firmware, on the emulator or on a device"
EXAMPLE = """towline firmware conform emulated
towline firmware conform bridge.bin --speed high --record bridge.jsonl
towline firmware conform emulated --replay bridge.jsonl
towline firmware conform --list"""

WARNINGS = 5
"""Warnings of the emulated bridge that are shown."""
SPEEDS = ("super-plus", "super", "high")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target",
        metavar="TARGET",
        nargs="?",
        help="a device (emulated, usb, usb:SERIAL, usb:port=2-1.4), or an image for the emulated bridge: a "
        "file, or a test image by name",
    )
    parser.add_argument("--list", action="store_true", help="print the checks and their rules; run nothing")
    parser.add_argument(
        "--section",
        metavar="NAME",
        action="append",
        default=[],
        help="run this section only; may be repeated (names: --list)",
    )
    parser.add_argument("--speed", choices=SPEEDS, help="highest speed of the emulated port")
    parser.add_argument("--record", metavar="FILE", help="write a trace of every transfer (JSON lines)")
    parser.add_argument(
        "--replay",
        metavar="FILE",
        help="instead of the suite, repeat a trace, and show the first difference",
    )


def run(args: argparse.Namespace, console: Console) -> Result:
    require("usb", extra="emulator")
    from usbgpu import conform

    if args.list:
        if args.target or args.record or args.replay:
            raise UsageError("--list runs nothing: leave out TARGET, --record and --replay")
        return _list(args.section)
    if args.target is None:
        raise UsageError("name a TARGET", hint="for example: towline firmware conform emulated")
    if args.replay and (args.record or args.section):
        raise UsageError("--replay repeats a trace: leave out --record and --section")
    target = _with_speed(conform.device_of(args.target), args.speed)
    if args.replay:
        return _replay(args.replay, target, console)
    with contextlib.ExitStack() as stack:
        trace = None
        if args.record:
            require_directory(args.record)
            trace = stack.enter_context(files.replacing_text(args.record))
        stack.enter_context(_few_warnings(console))
        report = conform.run(target, sections=args.section, trace=trace, progress=console.progress)
    console.note(str(report.identity))
    return _result(report, args.target, everything=bool(console.verbose))


@contextlib.contextmanager
def _few_warnings(console: Console) -> Iterator[None]:
    """While the block runs, show the first warnings of an emulated bridge, and the number of the others.

    Checks reach far into foreign firmware: what it touches is `towline emulate`'s business.
    """
    count = 0

    def show(message: str) -> None:
        nonlocal count
        count += 1
        if count <= WARNINGS or console.verbose:
            console.warn(message)

    try:
        with emulator_warnings(show):
            yield
    finally:
        if count > WARNINGS and not console.verbose:
            console.warn(f"{count - WARNINGS:,} more warnings of the emulated bridge: -v shows them")


def _result(report: Report, target: str, *, everything: bool) -> Result:
    """The outcome of each check, why some were skipped, and the rules that were broken."""
    from usbgpu.conform import Verdict

    document = report.document()
    apart = {Verdict.SKIPPED: "skipped", Verdict.UNREACHED: "not reached"}
    rows = [row for row in report.rows if everything or row.verdict not in apart]
    text = "\n".join(_lines(rows))
    text += "\n\n{passed} passed, {failed} failed, {skipped} skipped".format(**document)
    if document["unreached"]:
        text += f", {document['unreached']} not reached"
    for verdict, name in apart.items() if not everything else ():
        reasons = [row.detail for row in report.rows if row.verdict is verdict]
        text += "".join(f"\n  {name} {reasons.count(each)}: {each}" for each in dict.fromkeys(reasons))
    failed = [row for row in report.rows if row.verdict is Verdict.FAILED]
    text += "".join(f"\n\n{row.section}, {row.name}\n  {row.says}\n  but: {row.detail}" for row in failed)
    if report.conforms:
        return Result(document, text)
    count = "1 check" if len(failed) == 1 else f"{len(failed)} checks"
    message = f"{count} failed" if failed else "no check could be run"
    return Result(document, text, CheckFailed(message, where=target))


def _lines(rows: list[Row]) -> Iterator[str]:
    """The checks under their sections, with remarks; the reasons of failures follow below."""
    width = max((len(row.name) for row in rows), default=0)
    verdicts = max((len(row.verdict.value) for row in rows), default=0)
    for section, inside in itertools.groupby(rows, key=lambda row: row.section):
        yield section
        for row in inside:
            remark = "" if row.verdict.value == "FAIL" else row.detail
            yield f"  {row.verdict.value:{verdicts}}  {row.name:{width}}  {remark}".rstrip()


def _list(sections: list[str]) -> Result:
    from usbgpu.conform.suite import select

    checks = select(sections)
    rows = [{"section": check.section, "name": check.name, "says": check.says} for check in checks]
    text = table(("section", "check", "rule"), ((check.section, check.name, check.says) for check in checks))
    return Result({"checks": rows}, text)


def _replay(path: str, target: str, console: Console) -> Result:
    from usbgpu import conform, transport

    if not Path(path).is_file():
        raise UsageError("no such file", where=path)
    with transport.open(target) as device, open(path, encoding="ascii", errors="replace") as lines:
        console.note(str(device.identify()))
        replayed = conform.replay(lines, device, path)
    difference = replayed.difference
    document = {
        "trace": path,
        "target": target,
        "calls": replayed.calls,
        "compared": replayed.compared,
        "difference": None
        if difference is None
        else {
            "line": difference.line,
            "check": difference.check,
            "call": difference.call,
            "recorded": difference.recorded,
            "found": difference.found,
        },
    }
    if difference is None:
        return Result(document, f"{replayed.calls:,} calls, no difference in {replayed.compared:,} compared")
    return Result(document, f"call {replayed.calls:,} differs", CheckFailed(str(difference), where=path))


def _with_speed(target: str, speed: str | None) -> str:
    """A device string with the speed of its port."""
    if speed is None:
        return target
    if not target.startswith("emulated"):
        raise UsageError("--speed is for an emulated port", hint="a real device has the speed of its cable")
    return f"{target}{'&' if '?' in target else '?'}speed={speed}"
