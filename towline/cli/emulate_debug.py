"""`towline emulate --debug` and `--gdb`: a debugger on the emulated bridge."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sdk.errors import TowlineError, UsageError
from sdk.report import Console, write_stdout

Finish = Callable[[TowlineError | None], TowlineError | None]
"""Takes the error that ended the run, None for its time; returns what the command reports."""

INCOMPATIBLE = ("replay", "record")
"""Options whose runs must be repeatable."""
GDB_SLICE = 0.1
"""Seconds of virtual time that a run continues at a time while GDB is connected."""


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    group = parser.add_argument_group("debugging the firmware (docs/debugging-firmware.md)")
    group.add_argument(
        "--debug",
        action="store_true",
        help="stop before the first instruction and read commands: breakpoints and steps by line of C, "
        "variables, registers by field; `help` lists them",
    )
    group.add_argument(
        "--gdb",
        metavar="PORT",
        help="wait for GDB on this port of 127.0.0.1 (0: any), and run under its control",
    )


def check(args: argparse.Namespace) -> None:
    """Refuse options that cannot be combined.

    Raises:
        UsageError: two of them were given.
    """
    if not args.debug and args.gdb is None:
        return
    if args.debug and args.gdb is not None:
        raise UsageError(
            "--debug and --gdb are two debuggers: choose one", hint="in GDB, `monitor COMMAND` runs them too"
        )
    if args.debug and args.json:
        raise UsageError("--debug uses stdout: leave out --json")
    if args.debug and sys.stdin is None:
        raise UsageError("--debug reads commands from stdin, which is closed")
    if used := [option for option in INCOMPATIBLE if getattr(args, option)]:
        raise UsageError(f"--{used[0]} needs a run without a debugger: leave out --debug and --gdb")
    if args.gdb is not None:
        _port(args.gdb)


def start(
    args: argparse.Namespace,
    board: Any,
    length: int,
    console: Console,
    flush: Callable[[], None],
    stack: contextlib.ExitStack,
) -> Finish:
    """Attach what the options ask for, before the board runs; returns what to do when the run has ended.

    Raises:
        EnvironmentMissing: the port is taken.
    """
    if not args.debug and args.gdb is None:
        return lambda problem: problem
    from emulator import image_file, images
    from emulator.debug import cdb
    from emulator.debug.commands import directories
    from emulator.debug.source import Sources

    image = Path(image_file.locate(args.image))
    sources = Sources(directories(image, images.source_directories(args.image, image)))
    variables = cdb.beside(image)
    if not board.symbols.lines:
        console.note(f"no lines of C are known: {image.with_suffix('.cdb')} (of sdcc --debug) does not exist")
    if args.gdb is not None:
        return _gdb(_port(args.gdb), board, console, stack, variables, sources)
    return _monitor(board, length, flush, stack, variables, sources)


def _monitor(
    board: Any,
    length: int,
    flush: Callable[[], None],
    stack: contextlib.ExitStack,
    variables: Any,
    sources: Any,
) -> Finish:
    from emulator.debug.debugger import Ended
    from emulator.debug.monitor import Monitor

    sent = bytearray()  # by the UART, since the monitor spoke
    board.on_uart(sent.append)

    def write(text: str) -> None:
        flush()
        if sent and not sent.endswith(b"\n"):
            write_stdout("\n")
        sent.clear()
        write_stdout(text)

    monitor = Monitor(board, variables, sources, write)
    stack.enter_context(monitor.keyboard())

    def finish(problem: TowlineError | None) -> TowlineError | None:
        if monitor.debugger.ended is None:
            try:
                monitor.over(problem, length)
            except Ended:
                return problem or monitor.failure
            except TowlineError as failure:
                return failure
        return monitor.failure if isinstance(monitor.debugger.ended, Ended) else monitor.debugger.ended

    return finish


def _gdb(
    port: int, board: Any, console: Console, stack: contextlib.ExitStack, variables: Any, sources: Any
) -> Finish:
    from emulator.debug.gdb import LOOPBACK, Gdb

    stub = Gdb(board, port, variables, sources)
    stack.callback(stub.close)
    console.note(
        f"waiting for GDB on {LOOPBACK}:{stub.port}: gdb-multiarch -ex 'target remote {LOOPBACK}:{stub.port}'"
    )
    stub.wait()

    def finish(problem: TowlineError | None) -> TowlineError | None:
        from emulator.debug.debugger import Ended

        try:
            while problem is None and stub.attached:
                board.usb.clock.sleep(GDB_SLICE)
        except TowlineError as later:
            problem = later
        stub.over(problem)
        return None if isinstance(problem, Ended) else problem

    return finish


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > 5 or int(text) > 0xFFFF:
        raise UsageError(f"{text!r} is not a TCP port", hint="for example --gdb 3333, or 0 for any free port")
    return int(text)
