"""A GDB stub: the target's side of the remote serial protocol (GDB manual, "Remote Protocol").

It answers while the CPU is stopped, in the thread that runs the board. Addresses are those of
`emulator.debug.memory`, registers those of `emulator.debug.registers`; `monitor` in GDB reaches the commands
of `emulator.debug.commands`, which know variables, registers by field, and source.
"""

from __future__ import annotations

import contextlib
import re
import signal
import socket

from emulator.board import Board
from emulator.debug import stepping
from emulator.debug.cdb import Variables
from emulator.debug.commands import Commands
from emulator.debug.debugger import Access, Cause, Debugger, Ended, Plan, Stopped, ctrl_c
from emulator.debug.memory import address_of, located, split
from emulator.debug.packets import MAX_PACKET, Connection
from emulator.debug.registers import PC, REGISTERS, Registers, description
from emulator.debug.source import Sources
from emulator.machine import FAULTS, CpuFault
from emulator.mcs51.core import Stop
from sdk.errors import EnvironmentMissing, TowlineError, UsageError

LOOPBACK = "127.0.0.1"
POLL = 0.2
"""Seconds between checks for Ctrl-C while waiting for GDB."""
SIGINT, SIGILL, SIGTRAP, SIGSEGV = 2, 4, 5, 11
"""GDB's numbers of signals."""
_WATCH = {2: Access.WRITE, 3: Access.READ, 4: Access.ACCESS}
"""Watchpoints by their type in Z packets."""
_WORD = {Access.WRITE: "watch", Access.READ: "rwatch", Access.ACCESS: "awatch"}
WRONG = (TowlineError, ValueError)
"""Errors that are answered with E01."""
_RESUME = re.compile(r"([cs]|[CS][0-9a-fA-F]{2};?)([0-9a-fA-F]{0,16})")
_POINT = re.compile(r"([Zz])([0-4]),([0-9a-fA-F]{1,16}),([0-9a-fA-F]{1,16})")


class Gdb:
    """A stub on a board, waiting for one GDB.

    Args:
        board: not yet running.
        port: TCP port on loopback; 0 for any.
        variables: of the image, for `monitor`.
        sources: its C files, for `monitor`.

    Attributes:
        port: that it listens on.

    Raises:
        EnvironmentMissing: the port is taken.
    """

    def __init__(self, board: Board, port: int, variables: Variables, sources: Sources) -> None:
        self._board = board
        self.debugger = Debugger(board, self)
        self._registers = Registers(board)
        self._points: dict[tuple[int, int, int], int] = {}
        self._output: list[str] = []
        self._commands = Commands(self.debugger, variables, sources, self._output.append)
        self._connection: Connection | None = None
        self._reason = b"S05"
        self._options: frozenset[str] = frozenset()
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._listener.bind((LOOPBACK, port))
        except OSError as problem:
            self._listener.close()
            raise EnvironmentMissing(
                f"cannot listen on port {port} of {LOOPBACK}: {problem.strerror}",
                hint="use another port, or 0 for any free port",
            ) from None
        self._listener.listen(1)
        self.port: int = self._listener.getsockname()[1]

    @property
    def attached(self) -> bool:
        """Whether GDB is connected."""
        return self._connection is not None

    def wait(self) -> None:
        """Wait for GDB to connect, before anything runs."""
        self._listener.settimeout(POLL)
        while True:
            with contextlib.suppress(TimeoutError):
                peer, _ = self._listener.accept()
                break
        self._listener.close()  # a second GDB is refused, and not left waiting
        peer.settimeout(None)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = Connection(peer, self.debugger.interrupt)

    def over(self, problem: TowlineError | None) -> None:
        """The run has ended: GDB may inspect it once more, and learns of the end when it resumes."""
        if self._connection is None or self.debugger.ended is not None:
            return
        if problem is not None:
            number = SIGSEGV if isinstance(problem, CpuFault) else SIGTRAP
            if problem.message == FAULTS[Stop.ILLEGAL]:
                number = SIGILL
            self._connection.send(b"O" + f"{problem}\n".encode().hex().encode())
            self._connection.send(b"S%02x" % number)
            self._reason = b"S%02x" % number
            with contextlib.suppress(Ended):
                self._serve(self._connection)
        if self._connection is not None:
            self._connection.send(b"X09" if problem is not None else b"W00")

    def close(self) -> None:
        """Close the connection, and stop listening."""
        self._listener.close()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # -- debugger.Front ---------------------------------------------------------------------------------

    def stopped(self, stop: Stopped) -> Plan | None:
        """Report to GDB why the CPU is stopped, and do what it requests."""
        connection = self._connection
        if connection is None:
            self.debugger.detach()
            return None
        self._reason = self._stop_reply(stop)
        if stop.cause is not Cause.START:
            connection.send(self._reason)
        return self._serve(connection)

    def _stop_reply(self, stop: Stopped) -> bytes:
        number = SIGINT if stop.cause is Cause.INTERRUPT else SIGTRAP
        more = ""
        if stop.watchpoint is not None:
            point = stop.watchpoint
            more = f"{_WORD[point.access]}:{address_of(point.space, point.address):x};"
        elif stop.breakpoint is not None:
            more = self._kind(stop.breakpoint.number)
        pc = self._registers.read(PC).hex()
        return f"T{number:02x}{PC:x}:{pc};{more}".encode()

    def _kind(self, number: int) -> str:
        """The stop reason of a breakpoint that GDB set; one of `monitor break` is a plain SIGTRAP to it."""
        for (kind, _, _), known in self._points.items():
            word = "hwbreak" if kind else "swbreak"
            if known == number and f"{word}+" in self._options:
                return f"{word}:;"
        return ""

    # -- packets ----------------------------------------------------------------------------------------

    def _serve(self, connection: Connection) -> Plan | None:
        """Answer until GDB resumes the CPU."""
        with ctrl_c(signal.default_int_handler):  # ends the run; what drives the machine would block it
            while True:
                try:
                    packet = connection.receive(POLL)
                except TimeoutError:
                    continue
                if packet is None:
                    self._leave()
                    return None
                going, plan = self._handle(connection, packet.decode("latin-1"))
                if going:
                    if connection.lost:  # and sent more than this: nothing else would stop the CPU for it
                        self.debugger.interrupt()
                    return plan

    def _handle(self, connection: Connection, packet: str) -> tuple[bool, Plan | None]:
        """Answer one packet; returns whether the CPU is to go on, and how."""
        if packet.startswith("D"):
            connection.send(b"OK")
            self._leave()
            return True, None
        if packet.startswith(("k", "vKill")):
            if packet.startswith("vKill"):
                connection.send(b"OK")
            ended = Ended("GDB ended the run")
            self.debugger.end(ended)
            raise ended
        action = packet.removeprefix("vCont;")
        if action != packet:
            action = re.split("[:;]", action)[0]  # there is one thread: the first action is about it
        match = _RESUME.fullmatch(action)
        try:
            if match is not None:
                return True, self._resume(*match.groups())
            reply = self._answer(packet)
        except WRONG:
            reply = b"E01"
        if packet == "QStartNoAckMode":
            connection.stop_acknowledging()
        connection.send(reply)
        return False, None

    def _resume(self, how: str, address: str) -> Plan | None:
        """How the CPU is to go on, and from where if an address is given."""
        if address:
            self._registers.write(PC, _number(address).to_bytes(REGISTERS[PC].size, "little"))
        return stepping.instruction(self.debugger) if how[0] in "sS" else None

    def _leave(self) -> None:
        """GDB has disconnected: the board runs on as without a debugger."""
        self.debugger.detach()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _answer(self, packet: str) -> bytes:
        """The answer to a packet that does not resume the CPU; empty if the packet is unknown."""
        kind, rest = packet[:1], packet[1:]
        match kind:
            case "?":
                return self._reason
            case "g":
                every = range(len(REGISTERS))
                return b"".join(self._registers.read(number).hex().encode() for number in every)
            case "G":
                return self._write_all(bytes.fromhex(rest))
            case "p":
                return self._registers.read(_number(rest)).hex().encode()
            case "P":
                number, _, value = rest.partition("=")
                self._registers.write(_number(number), bytes.fromhex(value))
                return b"OK"
            case "m":
                space, address, size = self._range(rest)
                return self.debugger.memory.read(space, address, size).hex().encode()
            case "M" | "X":
                where, _, content = rest.partition(":")
                data = bytes.fromhex(content) if kind == "M" else content.encode("latin-1")
                return self._write_memory(where, data)
            case "Z" | "z":
                return self._point(packet)
            case "H" | "T":
                return b"OK"
            case "q" | "Q" | "v":
                return self._general(packet)
        return b""

    def _general(self, packet: str) -> bytes:
        name, _, rest = packet.partition(":")
        if name == "qSupported":
            self._options = frozenset(rest.split(";"))
            return (
                f"PacketSize={MAX_PACKET:x};QStartNoAckMode+;qXfer:features:read+;vContSupported+;"
                "swbreak+;hwbreak+"
            ).encode()
        if packet.startswith("qXfer:features:read:target.xml:"):
            return _piece(description().encode(), packet.rpartition(":")[2])
        if packet.startswith("qRcmd,"):
            return self._command(bytes.fromhex(packet[6:]).decode("utf-8", "replace"))
        fixed = {
            "QStartNoAckMode": b"OK",
            "vCont?": b"vCont;c;C;s;S",
            "qC": b"QC1",
            "qAttached": b"1",
            "qfThreadInfo": b"m1",
            "qsThreadInfo": b"l",
            "qSymbol": b"OK",
        }
        return fixed.get(packet, fixed.get(name, b"") if name == "qSymbol" else b"")

    def _command(self, line: str) -> bytes:
        """Run a command of the monitor; returns its text, encoded for GDB."""
        self._output.clear()
        try:
            self._commands.execute(line)
        except TowlineError as problem:
            self._output.append(f"{problem.message}" + (f" ({problem.hint})" if problem.hint else "") + "\n")
        text = "".join(self._output)
        return text.encode().hex().encode() or b"OK"

    def _write_all(self, data: bytes) -> bytes:
        sizes = [register.size for register in REGISTERS]
        if len(data) != sum(sizes):
            raise UsageError("the registers have another size")
        for number in sorted(range(len(sizes)), key=lambda number: REGISTERS[number].name[0] == "R"):
            start = sum(sizes[:number])  # R0 to R7 come last: PSW has selected their bank by then
            self._registers.write(number, data[start : start + sizes[number]])
        return b"OK"

    def _write_memory(self, where: str, data: bytes) -> bytes:
        space, address, size = self._range(where)
        if len(data) != size:
            raise UsageError("the data has another length")
        self.debugger.memory.write(space, address, data)
        return b"OK"

    def _range(self, text: str) -> tuple[str, int, int]:
        address, _, size = text.partition(",")
        length = _number(size)
        if length > MAX_PACKET // 2:
            raise UsageError(f"a packet holds at most {MAX_PACKET // 2} bytes")
        return *located(_number(address), max(length, 1)), length

    def _point(self, packet: str) -> bytes:
        """Set or delete a breakpoint or a watchpoint."""
        match = _POINT.fullmatch(packet.partition(";")[0])
        if match is None:
            return b""
        kind, address, size = int(match[2]), int(match[3], 16), int(match[4], 16)
        key = (kind, address, size if kind >= 2 else 0)
        if match[1] == "z":
            number = self._points.pop(key, None)
            if number is not None:
                with contextlib.suppress(KeyError):
                    self.debugger.delete(number)
            return b"OK"
        if key in self._points:
            return b"OK"
        space, place = located(address, size if kind >= 2 else 1)
        if kind < 2:
            if space != "code":
                raise UsageError("breakpoints are for code")
            what = f"*{place:#06x}, GDB's"
            self._points[key] = self.debugger.add_breakpoint([split(place)], what).number
        else:
            entry = self.debugger.add_watchpoint(space, place, max(size, 1), _WATCH[kind], f"{address:#x}")
            self._points[key] = entry.number
        return b"OK"


def _piece(document: bytes, where: str) -> bytes:
    """A part of a document for qXfer: `offset,length`, hexadecimal."""
    offset, _, length = where.partition(",")
    start, size = _number(offset), _number(length)
    part = document[start : start + size]
    return (b"l" if start + size >= len(document) else b"m") + part


def _number(text: str) -> int:
    """A number of a packet; `int` would accept more forms."""
    if not re.fullmatch(r"[0-9a-fA-F]{1,16}", text):
        raise UsageError(f"{text!r} is not a number")
    return int(text, 16)
