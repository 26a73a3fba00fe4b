"""The debugger's doors: the GDB stub of the emulated board, and the monitor that reads commands."""

from __future__ import annotations

import contextlib
import io
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

from emulator import images
from emulator.board import Board
from emulator.debug import cdb
from emulator.debug.debugger import Ended
from emulator.debug.gdb import Gdb
from emulator.debug.memory import address_of
from emulator.debug.packets import MAX_PACKET, frame
from emulator.debug.registers import PC
from emulator.debug.source import Sources
from sdk.errors import TowlineError
from tests.campaigns.campaign import Case, Surface
from tests.campaigns.hostile import PATIENCE, Flat, attack
from tests.gdb_client import GdbClient
from towline.cli import main

SPACES = ("code", "iram", "sfr", "xdata", "phy", "sram")
NAMES = (
    *(
        "uptime",
        "setup",
        "setup.request",
        "*from",
        "table[3]",
        "USB_EVENTS",
        "USB_EVENTS.BULK",
        "PC",
        "R7",
        "A",
    ),
    *("xdata[0x9101]", "iram[0x40]", "nothing", "main", "main.c:36", "usb_interrupt", "*0x1234", "*1:0x9000"),
)
COMMANDS = (
    *("break", "tbreak", "watch", "rwatch", "awatch", "delete", "print", "set", "dump", "backtrace", "list"),
    *("disassemble", "directory", "trace", "info", "help", "b", "p", "x", "i", "?", "wat", "qu1t", "\x00"),
)
RUNS = (
    "continue 100us",
    "continue 1ms",
    "step",
    "next",
    "stepi 50",
    "nexti",
    "finish",
    "step 3",
    "continue x",
)


def number(rng: Random) -> str:
    """A number as users write it, of any size."""
    value = rng.choice((rng.randrange(256), rng.randrange(1 << 17), rng.getrandbits(64), -1, 10**400))
    return rng.choice((str(value), hex(value)))


def command(rng: Random) -> str:
    """A command of the monitor, with arguments that may fit."""
    words = [rng.choice(COMMANDS)]
    for _ in range(rng.choice((0, 1, 1, 1, 2, 4))):
        pick = rng.randrange(10)
        if pick < 4:
            words.append(rng.choice(NAMES))
        elif pick < 6:
            words.append(number(rng))
        elif pick == 6:
            words.append(
                rng.choice((*SPACES, "on", "off", "breakpoints", "registers", "locals", "variables", "line"))
            )
        elif pick == 7:
            words.append(rng.choice("=+-*/%<>&|^~!()[].,;:#'\"\\@$"))
        elif pick == 8:
            words.append(f"{rng.choice(SPACES)}[{number(rng)}]")
        else:
            words.append("".join(chr(rng.randrange(1, 0x250)) for _ in range(rng.choice((1, 9, 1100)))))
    return rng.choice((" ", " ", "")).join(words).replace("\n", "").replace("\r", "")


def _place(rng: Random) -> str:
    """An address, in most cases of some space."""
    if rng.random() < 0.2:
        return f"{rng.getrandbits(rng.choice((20, 33, 64))):x}"
    space, at = rng.choice(SPACES), rng.randrange(rng.choice((0x80, 0x10000)))
    with contextlib.suppress(TowlineError, KeyError):
        return f"{address_of(space, at):x}"
    return f"{at:x}"


def _packet(rng: Random) -> bytes:
    """The data of a packet."""
    size = rng.choice((0, 1, 2, 4, 64, 0x2000, 0xFFFF))
    data = rng.randbytes(min(size, 64))
    match rng.randrange(16):
        case 0:
            return rng.choice((b"?", b"g", b"qC", b"qAttached", b"vCont?", b"qfThreadInfo", b"qSupported:x+"))
        case 1 | 2:
            return f"m{_place(rng)},{size:x}".encode()
        case 3:
            return f"M{_place(rng)},{size:x}:{data.hex()}".encode()
        case 4:
            return f"X{_place(rng)},{size:x}:".encode() + data
        case 5:
            return f"p{rng.randrange(64):x}".encode()
        case 6:
            return f"P{rng.randrange(64):x}={data.hex()}".encode()
        case 7 | 8:
            return f"{rng.choice('Zz')}{rng.randrange(6)},{_place(rng)},{size:x}".encode()
        case 9 | 10:
            return rng.choice((b"vCont;c", b"vCont;s", b"c", b"s", b"C05", b"vCont;s:1;c", b"vCont;c:p1.-1"))
        case 11:
            return f"{rng.choice('cs')}{_place(rng)}".encode()
        case 12:
            return b"qRcmd," + command(rng).encode("utf-8").hex().encode()
        case 13:
            return f"qXfer:features:read:target.xml:{rng.getrandbits(16):x},{size:x}".encode()
        case 14:
            return rng.choice(
                (b"QStartNoAckMode", b"G" + data.hex().encode(), b"vRun;", b"R00", b"Hg0", b"T1")
            )
    return rng.randbytes(rng.choice((0, 1, 5, 200)))


def packets(rng: Random) -> bytes:
    """What a client sends, waiting for nothing."""
    sent = b""
    for _ in range(rng.randrange(1, 30)):
        pick = rng.random()
        if pick < 0.1:
            sent += b"\x03" * rng.choice((1, 1, 3))
        elif pick < 0.15:
            sent += rng.choice((b"+", b"-", b"-" * 50, b"$", b"#", b"}", b"$#", b"#00"))
        elif pick < 0.18:
            sent += rng.randbytes(40)
        elif pick < 0.19:
            sent += b"$" + b"m" * (5 * MAX_PACKET)
        elif pick < 0.22:
            sent += rng.choice((frame(b"D"), frame(b"k"), frame(b"vKill;1")))
        elif pick < 0.27:
            sent += frame(_packet(rng))[:-2] + b"00"
        else:
            sent += frame(_packet(rng))
    return sent


class Run:
    """A board under a stub, as `towline emulate --gdb` runs it."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.stub = Gdb(board, 0, VARIABLES, Sources(images.source_directories("firmware")))
        self.problem: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        ending: TowlineError | None = None
        try:
            self.stub.wait()
            try:
                self.board.usb.clock.sleep(0.002)
                while self.stub.attached:
                    self.board.usb.clock.sleep(0.001)
            except TowlineError as problem:
                ending = problem
            self.stub.over(None if isinstance(ending, Ended) else ending)
        except BaseException as problem:
            self.problem = problem
        self.ending = ending

    def over(self) -> str | None:
        """With its client gone: what is wrong, if anything."""
        with contextlib.suppress(OSError):  # it still waits for one
            self.connect().close()
        self.thread.join(PATIENCE)
        if self.thread.is_alive():
            return "the run does not go on when GDB has gone"
        self.stub.close()
        if self.problem is not None:
            raise self.problem
        return None

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.stub.port), 10.0)


VARIABLES = cdb.Variables()


def honest(board: Board, code: bytes) -> str | None:
    """A short session of a client that keeps to the protocol."""
    run = Run(board)
    with GdbClient(run.stub.port) as client:
        client.ask("qSupported:swbreak+")
        here = board.machine.cpu
        read = client.ask(f"m{address_of('code', 0):x},8")
        if bytes.fromhex(read) != code:
            return f"code is read as {read} and not {code.hex()}"
        if client.register(PC) & 0xFFFF != here.pc:
            return f"the PC is read as {client.register(PC):#x} and not {here.pc:#x}"
        stop = client.ask("vCont;s")
        if not stop.startswith(("T05", "O", "S")):
            return f"a step is answered by {stop}"
        client.send("D")
    return run.over()


@contextlib.contextmanager
def gdb(scratch: Path) -> Iterator[Case]:
    """Each case has a board, an attack and another client."""
    flat = Flat()
    with contextlib.closing(Board.of("firmware")) as board:
        code = bytes(board.machine.cpu.code(0)[:8])

    def case(rng: Random) -> str | None:
        with contextlib.closing(Board.of("firmware")) as board:
            run = Run(board)
            with attack(rng, run.connect, lambda: packets(rng)):
                pass
            wrong = run.over() or honest(board, code)
        return wrong or flat.grown()

    yield case


@contextlib.contextmanager
def monitor(scratch: Path) -> Iterator[Case]:
    """Sessions of `towline emulate --debug`."""
    flat = Flat()

    def case(rng: Random) -> str | None:
        lines = [
            rng.choice(RUNS) if rng.random() < 0.2 else command(rng) for _ in range(rng.randrange(1, 30))
        ]
        lines += ["delete", "set R7 = 0x12", "print R7", "quit"]
        out, err = io.StringIO(), io.StringIO()
        sys.stdin, stdin = io.StringIO("\n".join(lines) + "\n"), sys.stdin
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                exit_code = main(["emulate", "firmware", "--debug", "--for", "2ms", "-vv"])
        finally:
            sys.stdin = stdin
        assert "bug in Towline" not in err.getvalue(), err.getvalue()
        assert exit_code in (0, 1), err.getvalue()
        if "R7 = 18 (0x12)" not in out.getvalue():
            return f"R7 is not what it was set to: {out.getvalue()[-500:]}"
        return flat.grown()

    yield case


GDB = Surface("gdb", "packets to the stub of `towline emulate --gdb`", gdb, seconds=200.0, slice=20)
MONITOR = Surface("monitor", "commands of `towline emulate --debug`", monitor, seconds=200.0, slice=25)
