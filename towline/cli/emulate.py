"""`towline emulate`: run a firmware image on the emulated bridge.

The chip boots; a host port on the other end of the cable waits for it and enumerates it as Linux would;
then come the control requests and the host script of the command line, and the rest of the time.
"""

from __future__ import annotations

import argparse
import codecs
import contextlib
import os
import runpy
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from sdk import files
from sdk.errors import DeviceFailed, TowlineError, UsageError
from sdk.extras import require
from sdk.report import INTERRUPTED, Console, Result, table, write_stdout
from towline.cli import emulate_coverage, emulate_debug, emulate_serve, emulate_timeline, runtime
from towline.cli.options import IMAGE, require_directory

EXAMPLE = """towline emulate firmware --control C0:E4:9100:0:1
towline emulate image.ihx --trace usb,tlp --pcap usb.pcap --profile
towline emulate image.bin --host drive.py --strict --inject link-drop@5ms+2ms
towline emulate image.bin --poke xdata:c6b3=30@100ms --poke PCIE_LTSSM=78:always --trace link
towline emulate firmware --gpu gfx1100 --host drive.py --trace gpu"""

BLOCKS = ("interrupts", "usb", "tlp", "link", "phy", "dma", "flash", "i2c", "system", "unnamed")
"""What `--trace` takes; a test compares it with the chip's facts, which take time to load."""
FAULTS = (
    "link-drop, unplug, nak-storm, bulk-error, bulk-stall, bulk-timeout, bit-flip, bad-cable, host-stop, "
    "bridge-reset, supply-sag, supply-fault, no-sensor, perst-stuck, pcie-drop, pcie-lanes, pcie-rate, "
    "link-width, pcie-dead, pcie-late, pcie-stale, card-reset, kernel-hang, heat, flash-flip, power-cut"
)
FLUSH_SECONDS = 0.1
"""Wall seconds after which an unfinished line of the UART is shown too."""

SPEEDS = {"super-plus": "SUPER_PLUS", "super": "SUPER", "high": "HIGH"}
GPU = "gpu"
"""What `--trace` calls the emulated card."""
GUARDS = ("stack", "erased", "interrupt", "uninit")
TOP = 20
"""Functions that `--profile` prints."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "image",
        metavar="IMAGE",
        help=IMAGE,
    )
    parser.add_argument(
        "--for",
        dest="length",
        metavar="TIME",
        help="run at least this virtual time, as 5ms; a number alone is clocks of the chip (default: 1s)",
    )
    host = parser.add_argument_group("the host on the other end of the cable")
    host.add_argument("--speed", choices=SPEEDS, default="super-plus", help="highest speed of its port")
    host.add_argument("--no-host", action="store_true", help="nothing is plugged in")
    host.add_argument(
        "--control",
        metavar="T:R:V:I:L",
        action="append",
        default=[],
        help="send a control request once enumerated: bmRequestType, bRequest, wValue, wIndex, and wLength "
        "(IN) or the data (OUT), all hexadecimal; may be repeated",
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
        help=f"stop at mistakes of the firmware: all, or {', '.join(GUARDS)}",
    )
    chip.add_argument("--strap", action="store_true", help="power on with the bootloader strap set")
    chip.add_argument(
        "--no-fallback",
        action="store_true",
        help="without a valid image nothing runs; by default the boot loader runs (inferred)",
    )
    chip.add_argument(
        "--flash", metavar="FILE", help="keep the SPI flash in FILE; IMAGE is programmed into it"
    )
    chip.add_argument(
        "--model",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="follow the other one of two facts that contradict each other, such as super-plus-code=2 "
        "(docs/emulator.md lists them); may be repeated",
    )
    chip.add_argument(
        "--inject",
        metavar="FAULT",
        action="append",
        default=[],
        help=f"a fault, such as link-drop@5ms: {FAULTS} (docs/emulator.md has their forms)",
    )
    chip.add_argument(
        "--poke",
        metavar="PLACE=VALUE",
        action="append",
        default=[],
        help="change a byte, to try an idea: xdata:c6b3=30 from power-on, ...=30@100ms at that time, "
        "...=30:always to have the CPU read 30 whatever is written; PLACE is xdata:ADDRESS, phy:ADDRESS or "
        "the name of a register; may be repeated",
    )
    chip.add_argument(
        "--behaviour",
        metavar="FILE.py",
        help="Python functions that stand in for registers (docs/emulator.md has an example)",
    )
    emulate_serve.configure(parser)
    card = parser.add_argument_group("what is on PCIe bus 4: a plain test endpoint, or")
    card.add_argument("--gpu", metavar="NAME", help="an emulated AMD card, such as gfx1100")
    card.add_argument(
        "--vram", metavar="SIZE", help="its memory, such as 512M or 16G (default: the card's own)"
    )
    card.add_argument(
        "--supply",
        metavar="WATTS",
        help="such as 100W: a card that draws a tenth more is lost (default: any)",
    )
    see = parser.add_argument_group("what to show and record")
    see.add_argument(
        "--trace",
        metavar="BLOCKS",
        nargs="?",
        const="",
        help=f"register accesses on stderr: all, or those of a list of blocks: {', '.join(BLOCKS)}, "
        f"and of the card: {GPU}",
    )
    see.add_argument("--pcap", metavar="FILE", help="write the USB traffic for Wireshark")
    see.add_argument(
        "--profile", action="store_true", help="clocks by function, from the .map or .cdb beside IMAGE"
    )
    emulate_coverage.configure(see)
    emulate_timeline.configure(see)
    see.add_argument("--record", metavar="FILE", help="record everything outside the CPU")
    see.add_argument("--replay", metavar="FILE", help="run against a recording and compare, to the clock")
    emulate_debug.configure(parser)


def run(args: argparse.Namespace, console: Console) -> Result:
    _refuse_contradictions(args)
    require("cffi", extra="emulator")
    require("usb", extra="emulator")
    from emulator import faults, poke
    from emulator.board import Board, PowerCut
    from emulator.model import Model
    from emulator.options import Options, check_model, memory_size, supply_watts
    from emulator.usb.wire import Speed
    from firmware.asm2464pd.registers import ASM2464PD

    length = faults.duration("1s" if args.length is None else args.length)
    options = Options(
        port=None if args.no_host or args.replay else Speed[SPEEDS[args.speed]],
        strict=args.strict,
        strap=args.strap,
        fallback=not args.no_fallback,
        guards=_guards(args.guard),
        faults=tuple(faults.parse(text) for text in args.inject),
        pokes=tuple(poke.parse(text, ASM2464PD) for text in args.poke),
        behaviour=Path(args.behaviour) if args.behaviour else None,
        flash=Path(args.flash) if args.flash else None,
        gpu=args.gpu or "",
        vram=memory_size(args.vram) if args.vram is not None else None,
        supply=supply_watts(args.supply) if args.supply is not None else None,
        model=Model.of(args.model),
    )
    check_model(options)
    requests = [_request(text) for text in args.control]
    with contextlib.ExitStack() as stack:
        stack.enter_context(runtime.emulator_warnings(console.warn))
        board = Board.of(args.image, options)
        console.detail(f"{board.boot.reason}; {len(board.symbols.functions)} functions have names")
        profile = board.machine.cpu.profile() if args.profile else None
        stack.enter_context(emulate_coverage.recorded(args, board, console))
        if args.replay:
            return _replay(args, board, profile, stack)
        uart = _Terminal(console)
        board.on_uart(uart.take)
        answers: list[dict[str, Any]] = []
        stack.callback(board.close)
        stack.callback(uart.flush)
        _observe(args, board, stack)
        finish = emulate_debug.start(args, board, length, console, uart.flush, stack)
        ending = finish(_drive(args, board, requests, answers, length, console, uart))
        speed, spinning, waits = board.usb.speed, board.spinning, board.waits()
    cut = isinstance(ending, PowerCut)
    document = {
        "image": args.image,
        "clocks": board.machine.clock.now,
        "instructions": board.machine.cpu.instructions,
        "speed": speed.value if speed else None,
        "power_cut": cut,
        "uart": bytes(uart.taken).decode("utf-8", "backslashreplace"),
        "control": answers,
        "waits": [spinning, *waits] if spinning else waits,
    }
    console.note(
        f"{document['clocks']:,} clocks, {document['instructions']:,} instructions, "
        f"USB {document['speed'] or 'not attached'}"
    )
    for sentence in waits:  # a spin has been reported when it was found
        if ending is None or sentence not in (ending.hint or ""):
            console.note(sentence)
    if cut and ending is not None:
        console.note(f"{ending}; {ending.hint}")
    text = _add_profile(document, board, profile)
    return Result(document, text, None if cut else ending)


class Stopped(TowlineError):
    """The user pressed Ctrl-C: the run ends there, and the part so far is reported."""

    code = "interrupted"
    exit_code = INTERRUPTED


def _refuse_contradictions(args: argparse.Namespace) -> None:
    emulate_debug.check(args)
    emulate_serve.check(args)
    emulate_timeline.check(args)
    for option in ("host", "behaviour", "flash", "pcap", "coverage", "vcd", "trace_out", "record", "replay"):
        if getattr(args, option) == "":
            raise UsageError(f"--{option.replace('_', '-')} needs a name that is not empty")
    if args.gpu == "":
        raise UsageError("--gpu needs a name that is not empty")
    if args.vram is not None and not args.gpu:
        raise UsageError("--vram is the size of the card's memory: give --gpu too")
    if args.supply is not None and not args.gpu:
        raise UsageError("--supply is the power that the card may draw: give --gpu too")
    if GPU in _chosen(args) and not args.gpu:
        raise UsageError(f"--trace {GPU} shows the card: give --gpu too")
    if args.replay and (
        args.gpu
        or args.model
        or args.record
        or args.host
        or args.control
        or args.pcap
        or args.inject
        or args.flash
        or args.strap
    ):
        raise UsageError(
            "--replay takes host, flash, card and faults from the recording: leave their options out"
        )
    if (args.record or args.replay) and (args.poke or args.behaviour):
        raise UsageError(
            "a recording holds what the chip did: leave out --poke and --behaviour, or --record and --replay"
        )
    if args.no_host and (args.host or args.control or args.pcap):
        raise UsageError("--host, --control and --pcap need a host: leave out --no-host")
    if args.host and not Path(args.host).is_file():
        raise UsageError("no such file", where=args.host)
    inputs = ((args.image, "IMAGE"), (args.host, "--host"), (args.behaviour, "--behaviour"))
    roles = {_same(name): role for name, role in inputs if name}
    for option in ("pcap", "coverage", "vcd", "trace_out", "record", "flash"):
        output = getattr(args, option)
        if not output:
            continue
        require_directory(output)
        if Path(output).exists() and not Path(output).is_file():
            continue  # /dev/null, a pipe
        named = f"--{option.replace('_', '-')}"
        if (role := roles.setdefault(_same(output), named)) != named:
            raise UsageError(f"the same file for {role} and {named}", where=output)


def _same(name: str) -> str:
    """One name for a file, by any path to it."""
    return os.path.realpath(name)


def _guards(text: str | None) -> frozenset[str]:
    if text is None:
        return frozenset()
    if text == "all":
        return frozenset(GUARDS)
    chosen = frozenset(text.split(","))
    if unknown := sorted(chosen - set(GUARDS)):
        raise UsageError(
            f"unknown guard {', '.join(name or repr(name) for name in unknown)}",
            hint=f"guards: all, {', '.join(GUARDS)}",
        )
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
            f"{text!r} is not a control request",
            hint="for example C0:E4:9100:0:4 (IN) or 40:E5:9000:12: (OUT)",
        ) from problem
    return text, setup, data


class _Terminal:
    """Shows what the UART sends, by lines; an unfinished line is shown after some time.

    Attributes:
        taken: all of it.
    """

    def __init__(self, console: Console) -> None:
        self.taken = bytearray()
        self._silent = console.json
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._pending: list[str] = []
        self._flushed = time.monotonic()

    def take(self, value: int) -> None:
        self.taken.append(value)
        if self._silent:
            return
        self._pending.append(self._decoder.decode(bytes((value,))))
        if value == ord("\n") or time.monotonic() - self._flushed > FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        text, self._pending = "".join(self._pending), []
        self._flushed = time.monotonic()
        if text:
            write_stdout(text)


def _observe(args: argparse.Namespace, board: Any, stack: contextlib.ExitStack) -> None:
    """Attach the recorder, the trace, the capture, waveforms and the timeline."""
    if args.record:
        stream = stack.enter_context(files.replacing_text(args.record))
        stack.callback(board.record(stream).finish)
    if args.trace is not None:
        from emulator.trace import Trace
        from firmware.asm2464pd.registers import BLOCKS as REGISTERS

        chosen, write = _chosen(args), _stderr()
        if args.gpu and (not chosen or GPU in chosen):
            from emulator.amdgpu.trace import Trace as CardTrace

            stack.callback(CardTrace(board.endpoint, write).close)
        if chosen != [GPU]:
            board.chip.tlp.notify = True
            blocks = [name for name in chosen if name != GPU]
            stack.callback(Trace(board.machine.bus, REGISTERS, blocks, write).close)
    if args.pcap:
        stack.enter_context(board.capture(Path(args.pcap)))
    emulate_timeline.observe(args, board, stack)


def _chosen(args: argparse.Namespace) -> list[str]:
    """The blocks that `--trace` names."""
    return [name for name in dict.fromkeys((args.trace or "").split(",")) if name]


def _stderr() -> Callable[[str], None]:
    """Writes lines to stderr; once that fails (`2>&1 | head`), writes nothing more, without an error."""
    stream = sys.stderr

    def write(line: str) -> None:
        nonlocal stream
        if stream is not None:
            try:
                stream.write(line + "\n")
            except OSError:
                stream = None

    return write


def _drive(
    args: argparse.Namespace,
    board: Any,
    requests: Sequence[Any],
    answers: list[dict[str, Any]],
    length: int,
    console: Console,
    uart: _Terminal,
) -> TowlineError | None:
    """Be the host. Returns why the run ended early, or None: the rest of the report is still printed."""
    from emulator.core.clock import seconds

    try:
        if emulate_serve.wanted(args):
            emulate_serve.serve(args, board, console)
            return None
        if not args.no_host and board.usb.wait_attached(seconds(length)):
            board.usb.enumerate()
            for request in requests:
                answers.append(_control(board, *request))
                if not console.json:
                    uart.flush()
                    write_stdout(_answer(answers[-1]) + "\n")
            if args.host:
                _host(args.host, board, console, uart)
        elif requests or args.host:
            raise DeviceFailed(
                "the device never attached",
                where=args.image,
                hint=board.usb.why(None)
                or "give it more time with --for; --trace usb shows what the firmware does",
            )
        board.usb.clock.sleep(max(0.0, seconds(length - board.machine.clock.now)))
    except KeyboardInterrupt:
        return Stopped(f"interrupted at clock {board.machine.clock.now:,}; outputs are complete up to there")
    except TowlineError as problem:
        return problem
    except (TimeoutError, ConnectionError) as problem:
        return _failed(problem, args.image)
    return None


def _failed(problem: Exception, where: str) -> DeviceFailed:
    """A transfer that did not end, with what the device waits for if that is known."""
    notes = getattr(problem, "__notes__", ())
    return DeviceFailed(
        str(problem), where=where, hint="; ".join(notes) or "--trace usb shows what the firmware did"
    )


def _control(board: Any, text: str, setup: Any, data: bytes) -> dict[str, Any]:
    """Send a control request; its answer for the document."""
    from emulator.usb.wire import Stall

    try:
        return {"request": text, "data": board.usb.control(setup, data, timeout=5.0).hex()}
    except Stall:
        return {"request": text, "stall": True}
    except (TimeoutError, ConnectionError) as problem:
        raise _failed(problem, f"--control {text}") from problem


def _answer(answer: dict[str, Any]) -> str:
    """The same as text."""
    data = bytes.fromhex(answer.get("data", ""))
    return f"{answer['request']} {'stall' if 'stall' in answer else data.hex(' ') or 'done'}"


def _host(path: str, board: Any, console: Console, uart: _Terminal) -> None:
    """Run a program as Python would run it, with `backend` and `board` as globals."""
    uart.flush()
    argv, search = sys.argv, sys.path[:]
    sys.argv = [path]
    sys.path.insert(0, str(Path(path).resolve().parent))
    # With --json stdout is for one document: what the program prints goes elsewhere.
    output = contextlib.redirect_stdout(sys.stderr) if console.json else contextlib.nullcontext()
    try:
        with output:
            runpy.run_path(path, {"backend": board.backend(), "board": board}, "__main__")
    except TowlineError:
        raise
    except SystemExit as ended:
        if ended.code not in (None, 0):
            raise DeviceFailed(f"the host program exited with {ended.code}", where=path) from ended
    except Exception as problem:
        if console.verbose > 1:
            traceback.print_exception(problem)
        line = problem.lineno if isinstance(problem, SyntaxError) else _line(problem, path)
        message = problem.msg if isinstance(problem, SyntaxError) else problem
        raise DeviceFailed(
            f"{type(problem).__name__}: {message}",
            where=f"{path}:{line}" if line else path,
            hint="; ".join((*getattr(problem, "__notes__", ()), "-vv prints the traceback")),
        ) from problem
    finally:
        sys.argv, sys.path[:] = argv, search


def _line(problem: Exception, path: str) -> int | None:
    """The innermost line of a file that an exception came through."""
    lines = [number for frame, number in traceback.walk_tb(problem.__traceback__) if _is_of(frame, path)]
    return lines[-1] if lines else None


def _is_of(frame: FrameType, path: str) -> bool:
    return frame.f_code.co_filename == path


def _replay(args: argparse.Namespace, board: Any, profile: Any, stack: contextlib.ExitStack) -> Result:
    _observe(args, board, stack)
    replayed = board.replay(Path(args.replay))
    document = {"events": replayed.events, "clocks": replayed.clock, "instructions": replayed.instructions}
    text = (
        f"identical: {replayed.events:,} events, {replayed.clock:,} clocks, "
        f"{replayed.instructions:,} instructions"
    )
    return Result(document, f"{text}\n{_add_profile(document, board, profile)}".rstrip(), None)


def _add_profile(document: dict[str, Any], board: Any, profile: Any) -> str:
    """Put clocks by function, most first, into the document; the first of them as a table."""
    if profile is None:
        return ""
    clocks = board.clocks_by_function(profile)
    total = sum(clocks.values()) or 1
    rows = [
        {"function": name, "clocks": count, "share": 100 * count / total}
        for name, count in sorted(clocks.items(), key=lambda row: -row[1])
    ]
    document["profile"] = rows
    shown = [(row["function"], row["clocks"], row["share"]) for row in rows[:TOP]]
    if rest := rows[TOP:]:
        label = f"{len(rest)} others"
        shown.append((label, sum(row["clocks"] for row in rest), sum(row["share"] for row in rest)))
    return table(("function", "clocks", "share %"), shown)
