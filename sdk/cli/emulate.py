"""`towline emulate`: run a firmware image on the emulated bridge.

The chip boots, a host port waits for it on the other end of the cable and enumerates it as Linux would;
then come the control requests and the host script of the command line, and the rest of the time.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import runpy
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from sdk import files
from sdk.cli.options import require_directory
from sdk.errors import DeviceFailed, TowlineError, UsageError
from sdk.extras import require
from sdk.report import Console, Result, table, write_stdout

SUMMARY = "run a firmware image on the emulated USB-to-PCIe bridge"
EXAMPLE = """towline emulate vendor --control C0:E4:9100:0:1
towline emulate image.ihx --trace usb,tlp --pcap usb.pcap --profile
towline emulate image.bin --host drive.py --strict --inject link-drop@5ms+2ms"""

IMAGES = ("vendor", "storage")
"""The test images that come with the emulator; any other word is a file."""

SPEEDS = {"super-plus": "SUPER_PLUS", "super": "SUPER", "high": "HIGH"}
GUARDS = ("stack", "erased", "interrupt", "uninit")
TOP = 20
"""Functions that `--profile` prints."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "image",
        metavar="IMAGE",
        help="Intel HEX (.ihx, .hex), binary (.bin), wrapped flash image, or a test image by name: "
        + ", ".join(IMAGES),
    )
    parser.add_argument(
        "--for", dest="length", metavar="TIME", default="1s", help="virtual time to run (default: 1s)"
    )
    host = parser.add_argument_group("the host on the other end of the cable")
    host.add_argument("--speed", choices=SPEEDS, default="super-plus", help="the fastest its port can do")
    host.add_argument("--no-host", action="store_true", help="nothing is plugged in")
    host.add_argument(
        "--control",
        metavar="T:R:V:I:L",
        action="append",
        default=[],
        help="send a control request once enumerated: bmRequestType, bRequest, wValue, wIndex, and wLength "
        "(IN) or the data (OUT), all hexadecimal; may be given again",
    )
    host.add_argument(
        "--host",
        metavar="FILE.py",
        help="run a Python program as the host: it finds the device with usb.core.find(backend=backend)",
    )
    chip = parser.add_argument_group("the chip")
    chip.add_argument("--strict", action="store_true", help="stop at an unmodelled or guessed register")
    chip.add_argument(
        "--guard",
        metavar="LIST",
        default="",
        help=f"stop at mistakes of the firmware: all, or {', '.join(GUARDS)}",
    )
    chip.add_argument("--strap", action="store_true", help="power on with the bootloader strap set")
    chip.add_argument(
        "--flash", metavar="FILE", help="keep the SPI flash in FILE; IMAGE is programmed into it"
    )
    chip.add_argument(
        "--inject",
        metavar="FAULT",
        action="append",
        default=[],
        help="a fault, such as link-drop@5ms (see docs)",
    )
    see = parser.add_argument_group("what to see of it")
    see.add_argument(
        "--trace",
        metavar="BLOCKS",
        nargs="?",
        const="",
        help="register accesses on stderr: all blocks, or a list",
    )
    see.add_argument("--pcap", metavar="FILE", help="write the USB traffic for Wireshark")
    see.add_argument(
        "--profile", action="store_true", help="clocks by function, from the .map or .cdb beside IMAGE"
    )
    see.add_argument("--record", metavar="FILE", help="record everything outside the CPU")
    see.add_argument("--replay", metavar="FILE", help="run against a recording and compare, to the clock")


def run(args: argparse.Namespace, console: Console) -> Result:
    _refuse_contradictions(args)
    require("cffi", extra="emulator")
    require("usb", extra="emulator")
    from emulator import faults
    from emulator.board import Board, Options
    from emulator.usb.wire import Speed

    logging.getLogger("emulator").addHandler(_Warnings(console))
    length = faults.duration(args.length)
    options = Options(
        port=None if args.no_host or args.replay else Speed[SPEEDS[args.speed]],
        strict=args.strict,
        strap=args.strap,
        guards=_guards(args.guard),
        faults=tuple(faults.parse(text) for text in args.inject),
        flash=Path(args.flash) if args.flash else None,
    )
    requests = [_request(text) for text in args.control]
    board = Board.of(args.image, options)
    if args.replay:
        return _replay(board, Path(args.replay))
    console.detail(board.boot.reason)
    uart: list[int] = []
    answers: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        stack.callback(board.close)
        board.on_uart(_terminal(uart, console))
        profile = board.machine.cpu.profile() if args.profile else None
        _observe(args, board, stack)
        failure = _drive(args, board, requests, answers, length, console)
    document = {
        "image": args.image,
        "clocks": board.machine.clock.now,
        "instructions": board.machine.cpu.instructions,
        "speed": board.usb.speed.value if board.usb.speed else None,
        "uart": bytes(uart).decode("ascii", "replace"),
        "control": answers,
    }
    console.note(
        f"{board.machine.clock.now:,} clocks, {document['instructions']:,} instructions, "
        f"USB {document['speed'] or 'not attached'}"
    )
    text = ""
    if profile is not None:
        document["profile"] = _profile(board, profile)
        text = table(
            ("function", "clocks", "share %"),
            ((row["function"], row["clocks"], row["share"]) for row in document["profile"][:TOP]),
        )
    return Result(document, text, failure)


class _Warnings(logging.Handler):
    """What the emulator logs, as the console's warnings."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        self._console.warn(record.getMessage())


def _refuse_contradictions(args: argparse.Namespace) -> None:
    if args.replay and (args.record or args.host or args.control or args.pcap or args.inject or args.flash):
        raise UsageError(
            "--replay takes the world from the recording: leave out what concerns the host and faults"
        )
    if args.no_host and (args.host or args.control or args.pcap):
        raise UsageError("--no-host leaves nobody to run --host, --control or --pcap")
    for output in (args.pcap, args.record, args.flash):
        if output:
            require_directory(output)
    if args.host and not Path(args.host).is_file():
        raise UsageError("no such file", where=args.host)


def _guards(text: str) -> frozenset[str]:
    if text == "all":
        return frozenset(GUARDS)
    chosen = frozenset(filter(None, text.split(",")))
    if unknown := sorted(chosen - set(GUARDS)):
        raise UsageError(f"there is no guard {', '.join(unknown)}", hint=f"guards: all, {', '.join(GUARDS)}")
    return chosen


def _request(text: str) -> tuple[str, Any, bytes]:
    """A control request of the command line: its text, Setup and OUT data."""
    from emulator.usb.wire import Setup

    try:
        *numbers, last = text.split(":")
        kind, request, value, index = (int(number, 16) for number in numbers)
        data = b"" if kind & 0x80 else bytes.fromhex(last)
        setup = Setup(kind, request, value, index, int(last, 16) if kind & 0x80 else len(data))
        setup.pack()
    except Exception as problem:
        raise UsageError(
            f"{text!r} is no control request", hint="for example C0:E4:9100:0:4 (IN) or 40:E5:9000:12: (OUT)"
        ) from problem
    return text, setup, data


def _terminal(uart: list[int], console: Console) -> Callable[[int], None]:
    def take(value: int) -> None:
        uart.append(value)
        if not console.json:
            write_stdout(bytes([value]).decode("ascii", "replace"))

    return take


def _observe(args: argparse.Namespace, board: Any, stack: contextlib.ExitStack) -> None:
    """Hang on the trace, the capture and the recorder."""
    if args.trace is not None:
        from emulator.trace import Trace
        from firmware.asm2464pd.registers import BLOCKS

        chosen = [name for name in args.trace.split(",") if name]
        board.chip.tlp.notify = True
        trace = Trace(board.machine.bus, BLOCKS, chosen, lambda line: print(line, file=sys.stderr))
        stack.callback(trace.close)
    if args.pcap:
        stack.enter_context(board.capture(Path(args.pcap)))
    if args.record:
        stream = stack.enter_context(_text_file(args.record))
        stack.callback(board.record(stream).finish)


@contextlib.contextmanager
def _text_file(path: str) -> Iterator[IO[str]]:
    import io

    with files.replacing(path) as binary:
        stream = io.TextIOWrapper(binary, encoding="ascii", write_through=True)
        try:
            yield stream
        finally:
            stream.flush()
            stream.detach()


def _drive(
    args: argparse.Namespace,
    board: Any,
    requests: Sequence[Any],
    answers: list[dict[str, Any]],
    length: int,
    console: Console,
) -> TowlineError | None:
    """Be the host. What the device did wrong, if it did: the rest of the report is still wanted."""
    from emulator.board import PowerCut
    from emulator.core.clock import seconds
    from emulator.usb.wire import Stall

    try:
        if args.no_host:
            board.machine.run(length)
            return None
        if board.usb.wait_attached(seconds(length)):
            board.usb.enumerate()
            for text, setup, data in requests:
                try:
                    answer = board.usb.control(setup, data, timeout=5.0)
                except Stall:
                    answers.append({"request": text, "stall": True})
                    shown = "stall"
                else:
                    answers.append({"request": text, "data": answer.hex()})
                    shown = answer.hex(" ") or "done"
                if not console.json:
                    write_stdout(f"{text} {shown}\n")
            if args.host:
                _host(args.host, board)
        elif requests or args.host:
            raise DeviceFailed(
                "the device never attached",
                where=args.image,
                hint="give it more time with --for, or see --trace usb",
            )
        board.usb.clock.sleep(max(0.0, seconds(length - board.machine.clock.now)))
    except PowerCut as cut:
        console.note(f"{cut}; {cut.hint}")
    except TowlineError as problem:
        return problem
    except (TimeoutError, ConnectionError) as problem:
        return DeviceFailed(str(problem), where=args.image, hint="--trace usb shows what the firmware did")
    return None


def _host(path: str, board: Any) -> None:
    try:
        runpy.run_path(path, {"backend": board.backend(), "board": board}, "__main__")
    except TowlineError:
        raise
    except SystemExit as ended:
        if ended.code not in (None, 0):
            raise DeviceFailed(f"the host program exited with {ended.code}", where=path) from ended
    except Exception as problem:
        trace = problem.__traceback__
        line = 0
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == path:
                line = trace.tb_lineno
            trace = trace.tb_next
        raise DeviceFailed(
            f"{type(problem).__name__}: {problem}", where=f"{path}:{line}", hint="-vv prints the traceback"
        ) from problem


def _replay(board: Any, path: Path) -> Result:
    replayed = board.replay(path)
    document = {"events": replayed.events, "clocks": replayed.clock, "instructions": replayed.instructions}
    return Result(
        document,
        f"identical: {replayed.events:,} events, {replayed.clock:,} clocks, "
        f"{replayed.instructions:,} instructions",
    )


def _profile(board: Any, profile: Any) -> list[dict[str, Any]]:
    """Clocks by function, most first."""
    rows = board.clocks_by_function(profile)
    total = sum(rows.values()) or 1
    return [
        {"function": name, "clocks": count, "share": 100 * count / total}
        for name, count in sorted(rows.items(), key=lambda row: -row[1])
    ]
