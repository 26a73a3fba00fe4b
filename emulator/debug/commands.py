"""The monitor's commands that inspect and change, while the CPU is stopped; GDB's `monitor` has them too.

A command is a method `do_NAME`; its docstring is its help, the first line its usage. Names may be shortened
as long as they are unambiguous, and some as in GDB.
"""

from __future__ import annotations

import cmd
import os
import re
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from emulator.core.clock import seconds
from emulator.debug.cdb import Variables
from emulator.debug.debugger import Access, Breakpoint, Debugger, Plan, Watchpoint
from emulator.debug.expression import Evaluator
from emulator.debug.frames import Frame, backtrace
from emulator.debug.memory import SPACES
from emulator.debug.source import Sources, places
from emulator.mcs51.disassembler import ChipNames, decode, text
from emulator.trace import Trace
from firmware.asm2464pd.registers import ASM2464PD, BLOCKS
from sdk.errors import TowlineError, UsageError

ALIASES = {
    "b": "break", "bt": "backtrace", "c": "continue", "d": "delete", "fin": "finish", "h": "help",
    "i": "info", "l": "list", "n": "next", "ni": "nexti", "p": "print", "q": "quit", "s": "step",
    "si": "stepi", "tb": "tbreak", "w": "watch", "where": "backtrace", "x": "dump",
}  # fmt: skip
"""Short names as in GDB."""
LISTED = 10
"""Lines of source, or instructions, shown at a time."""
MAX_LINE = 1000
"""The most characters of a command."""
KEPT = 1000
"""Lines of the trace that are kept."""
SHOWN = 12
"""How many of them are shown by default."""
MAX_DUMP = 0x1000
"""The most bytes of a dump."""
_DUMP = re.compile(r"(?P<space>[a-z]+)[\s\[:]+(?P<address>\w+)\]?(?:\s+(?P<size>\w+))?")


class Resume:
    """What a command returns that resumes the CPU.

    Args:
        plan: the step that ends it; None to run.
        clocks: after which it ends; None for no limit.
    """

    def __init__(self, plan: Plan | None = None, clocks: int | None = None) -> None:
        self.plan = plan
        self.clocks = clocks


class Commands(cmd.Cmd):
    """Inspecting and changing.

    Args:
        debugger: of the board.
        variables: of the image.
        sources: the C files.
        write: shows text to the user.
    """

    def __init__(
        self, debugger: Debugger, variables: Variables, sources: Sources, write: Callable[[str], None]
    ) -> None:
        super().__init__()
        self.debugger = debugger
        self.variables = variables
        self.sources = sources
        self._out = write
        self._board = debugger.board
        self._cpu = debugger.board.machine.cpu
        self._symbols = debugger.board.symbols
        self._evaluator = Evaluator(debugger, variables)
        self._listed: tuple[str, int] | None = None  # file and the line after the last one shown
        self._trace: Trace | None = None
        self._traced: deque[str] = deque(maxlen=KEPT)
        self._unshown = 0  # how many of them, the newest, no stop has shown

    def say(self, line: str = "") -> None:
        """Write a line."""
        self._out(line + "\n")

    def execute(self, line: str) -> Resume | None:
        """Do one command.

        Raises:
            UsageError: there is no such command, or its arguments are wrong.
        """
        line = line.split("#", 1)[0].strip()
        if not line:
            return None
        if len(line) > MAX_LINE:
            raise UsageError(f"a command has at most {MAX_LINE} characters")
        match = re.match(r"([a-zA-Z]+)\s*(.*)", line)
        if match is None:
            raise UsageError(f"{line!r} is not a command", hint="help lists them")
        command: Callable[[str], Resume | None] = getattr(self, "do_" + self._command(match[1]))
        return command(match[2])

    def commands(self) -> list[str]:
        """The names of all commands."""
        return sorted(name[3:] for name in dir(self) if name.startswith("do_") and name != "do_EOF")

    def _command(self, word: str) -> str:
        names = self.commands()
        if word in names:
            return word
        if word in ALIASES and ALIASES[word] in names:
            return ALIASES[word]
        fitting = [name for name in names if name.startswith(word)]
        if len(fitting) != 1:
            hint = f"it may be {', '.join(fitting)}" if fitting else "help lists them"
            raise UsageError(f"there is no command {word!r}", hint=hint)
        return fitting[0]

    def completenames(self, text: str, *ignored: object) -> list[str]:
        """Commands that begin with this; for readline."""
        return [name for name in self.commands() if name.startswith(text)]

    def completedefault(self, *ignored: object) -> list[str]:
        """Names of functions, variables and registers that begin with this; for readline."""
        begun = str(ignored[0])
        names = {function.name for function in self._symbols.functions} | set(self.variables.names)
        names |= {register.name for register in ASM2464PD}
        return sorted(name for name in names if name.startswith(begun))

    # -- breakpoints ------------------------------------------------------------------------------------

    def do_break(self, argument: str) -> None:
        """`break [FUNCTION | MODULE.FUNCTION | FILE:LINE | LINE | *0x1234 | *1:0x9000]`

        Stop there. Without a place: here. A line without code means the next line that has code.
        """
        self._break(argument, temporary=False)

    def do_tbreak(self, argument: str) -> None:
        """`tbreak PLACE`

        Stop there once.
        """
        self._break(argument, temporary=True)

    def _break(self, argument: str, *, temporary: bool) -> None:
        where = argument or f"*{self.debugger.here[0]}:{self.debugger.here[1]:#06x}"
        found, what = places(self._board, where, self._file())
        entry = self.debugger.add_breakpoint(found, what, temporary=temporary)
        addresses = ", ".join(f"{address:#06x}" for _, address in found)
        self.say(f"breakpoint {entry.number} at {addresses}: {what}")

    def do_watch(self, argument: str) -> None:
        """`watch EXPRESSION`

        Stop when the CPU or the hardware changes it: a variable, a register, xdata[0x9101].
        """
        self._watch(argument, Access.WRITE)

    def do_rwatch(self, argument: str) -> None:
        """`rwatch EXPRESSION`

        Stop when the CPU reads it.
        """
        self._watch(argument, Access.READ)

    def do_awatch(self, argument: str) -> None:
        """`awatch EXPRESSION`

        Stop when the CPU reads or writes it.
        """
        self._watch(argument, Access.ACCESS)

    def _watch(self, argument: str, access: Access) -> None:
        value = self._evaluator.value(argument)
        if value.space not in SPACES:
            raise UsageError(
                f"{value.what} has no address to watch", hint="watch a static variable or a register"
            )
        entry = self.debugger.add_watchpoint(
            value.space, value.address, len(value.data), access, argument, changed=access is Access.WRITE
        )
        self.say(f"watchpoint {entry.number}: {argument} ({value.space} {value.address:#06x})")

    def do_delete(self, argument: str) -> None:
        """`delete [NUMBER...]`

        Delete breakpoints and watchpoints; without a number, all.
        """
        known = [*self.debugger.breakpoints, *self.debugger.watchpoints]
        for word in argument.split() or map(str, known):
            if not word.isdecimal() or int(word) not in known:
                raise UsageError(f"there is no breakpoint {word}", hint="info breakpoints lists them")
            self.debugger.delete(int(word))

    # -- values -----------------------------------------------------------------------------------------

    def do_print(self, argument: str) -> None:
        """`print EXPRESSION`

        Show a value: `setup.request`, `*from`, `table[3]`, `USB_EVENTS` with its fields, `USB_EVENTS.BULK`,
        `xdata[0x9101]`, `PC`, `R7`. A variable in registers shows what these hold now.
        """
        self.say(self._evaluator.text(self._evaluator.value(argument)))

    def do_set(self, argument: str) -> None:
        """`set EXPRESSION = VALUE`

        Change it. A register of a block is written as the CPU writes it, with all effects.
        """
        left, equals, right = argument.partition("=")
        if not equals:
            raise UsageError("the value is missing", hint="set EXPRESSION = VALUE")
        value = self._evaluator.value(left)
        if value.put is None:
            raise UsageError(f"{value.what} cannot be set", hint="integers and pointers can")
        value.put(self._evaluator.value(right).number)

    def do_dump(self, argument: str) -> None:
        """`dump SPACE ADDRESS [LENGTH]`

        Bytes of code, iram, sfr, xdata, phy or sram, 16 a line: dump xdata 0x9000 64.
        """
        match = _DUMP.fullmatch(argument)
        if match is None:
            raise UsageError("dump takes a space and an address", hint="for example dump xdata 0x9000 64")
        address = self._evaluator.value(match["address"]).number
        size = self._evaluator.value(match["size"] or "16").number
        if not 0 < size <= MAX_DUMP:
            raise UsageError(f"a dump cannot have a length of {size}", hint=f"1 to {MAX_DUMP} bytes")
        data = self.debugger.memory.read(match["space"], address, size)
        for offset in range(0, size, 16):
            row = data[offset : offset + 16]
            shown = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
            self.say(f"{match['space']} {address + offset:04x}  {row.hex(' '):<47}  {shown}")

    # -- code -------------------------------------------------------------------------------------------

    def do_backtrace(self, argument: str) -> None:
        """`backtrace`

        The callers, innermost first, as far as the stack shows: an 8051 keeps no frames. An entry with a
        question mark only looks like a return address.
        """
        for number, frame in enumerate(backtrace(self._board)):
            how = " (interrupted here)" if frame.interrupted else "" if frame.sure else " ?"
            self.say(f"#{number}  {self.place(frame)}{how}")

    def do_list(self, argument: str) -> None:
        """`list [PLACE]`

        Source around a place; without one, the lines after those listed last, or those around the CPU.
        """
        if argument:
            found, _ = places(self._board, argument, self._file())
            line = self._symbols.line_at(*found[0])
        elif self._listed is not None:
            self._show(*self._listed)
            return
        else:
            line = self._symbols.line_at(self._cpu.bank, self._cpu.pc)
        if line is None:
            raise UsageError("there is no known line of C", hint="disassemble shows the code")
        self._show(line.file, max(1, line.line - LISTED // 2))

    def _show(self, file: str, first: int) -> None:
        lines = self.sources.lines(file)
        if lines is None:
            raise UsageError(f"{file} is not found", hint="directory DIR says where it is")
        if first > len(lines):
            raise UsageError(f"{file} has {len(lines)} lines")
        here = self._symbols.line_at(self._cpu.bank, self._cpu.pc)
        for number in range(first, min(first + LISTED, len(lines) + 1)):
            sign = ">" if here is not None and (here.file, here.line) == (file, number) else " "
            self.say(f"{sign}{number:4}  {lines[number - 1]}".rstrip())
        self._listed = file, first + LISTED

    def do_disassemble(self, argument: str) -> None:
        """`disassemble [PLACE]`

        The instructions of the function at a place, or of the one the CPU is in.
        """
        bank, address = self.debugger.here
        if argument:
            found, _ = places(self._board, argument, self._file())
            bank, address = found[0]
        function = self._symbols.function_at(bank, address)
        start, end = address, address + 2 * LISTED
        if function is not None:
            start, end = function.start, function.end
        names = {entry.start: entry.name for entry in self._symbols.functions if entry.bank in (0, bank)}
        code = self._cpu.code(bank)
        if function is not None:
            self.say(f"{function.name}:")
        while start < min(end, len(code)):
            instruction = decode(code, start)
            sign = ">" if (bank, start) == self.debugger.here else " "
            bytes_ = instruction.data.hex(" ")
            self.say(f"{sign} {start:04x}  {bytes_:<8}  {text(instruction, ChipNames(ASM2464PD, names))}")
            start += len(instruction.data)

    def do_directory(self, argument: str) -> None:
        """`directory DIR`

        Look for C files there too.
        """
        if not os.path.isdir(argument):  # a name that no file system has is none either
            raise UsageError(f"{argument or 'the empty name'} is not a directory")
        self.sources.directories.append(Path(argument))

    # -- the trace --------------------------------------------------------------------------------------

    def do_trace(self, argument: str) -> None:
        """`trace on [BLOCK,...] | off | [COUNT]`

        Keep accesses to the registers of some blocks, or all; every stop shows those since the last one.
        `trace 40` shows the last 40. Tracing makes polling loops slow.
        """
        word, _, blocks = argument.partition(" ")
        if word == "on":
            chosen = [name for name in re.split(r"[,\s]+", blocks) if name]
            trace = Trace(self._board.machine.bus, BLOCKS, chosen, self._keep)
            self._stop_trace()
            self._board.chip.tlp.notify = True
            self._trace = trace
        elif word == "off":
            self._stop_trace()
        elif word and not word.isdecimal():
            raise UsageError(f"trace takes on, off or a number, not {word!r}")
        elif not self._traced:
            self.say("nothing is traced" + ("" if self._trace is not None else ": trace on starts it"))
        else:
            for line in list(self._traced)[-int(word or SHOWN) :]:
                self.say(line)

    def _keep(self, line: str) -> None:
        self._traced.append(line)
        self._unshown += 1

    def _stop_trace(self) -> None:
        if self._trace is not None:
            self._trace.close()
        self._trace = None

    # -- info and help ----------------------------------------------------------------------------------

    def do_info(self, argument: str) -> None:
        """`info breakpoints | registers [BLOCK] | locals | variables | functions | line`

        List them. `info registers` shows the CPU's; with a block (usb, tlp, link...), the chip's.
        """
        word, _, rest = argument.partition(" ")
        asked = [name[6:] for name in dir(self) if name.startswith("_info_") and name[6:].startswith(word)]
        if len(asked) != 1 or not word:
            raise UsageError(f"info has no topic {argument!r}", hint=_doc(self, "info")[0])
        getattr(self, f"_info_{asked[0]}")(rest.strip())

    def _info_breakpoints(self, rest: str) -> None:
        entries: list[Breakpoint | Watchpoint] = [
            *self.debugger.breakpoints.values(),
            *self.debugger.watchpoints.values(),
        ]
        for entry in sorted(entries, key=lambda entry: entry.number):
            kind = f"{entry.access.value} of" if isinstance(entry, Watchpoint) else "at"
            self.say(f"{entry.number}  {kind} {entry.what}  (reached {entry.hits} times)")
        if not entries:
            self.say("there are none")

    def _info_registers(self, rest: str) -> None:
        if rest:
            if rest not in BLOCKS:
                raise UsageError(f"there is no block {rest}", hint=f"blocks: {', '.join(BLOCKS)}")
            for register in BLOCKS[rest]:
                self.say(self._evaluator.text(self._evaluator.of_register(register)).splitlines()[0])
            return
        core = "  ".join(f"{name} {self._number(name):02x}" for name in ("A", "B", "DPX", "SP"))
        self.say(f"PC {self._cpu.pc:04x}  {core}  DPTR {self._cpu.dptr:04x}  bank {self._cpu.bank}")
        self.say("  ".join(f"R{number} {self._number(f'R{number}'):02x}" for number in range(8)))
        for name in ("CPU_PSW", "CPU_IE"):
            self.say(self._evaluator.text(self._evaluator.value(name)).splitlines()[0])

    def _number(self, name: str) -> int:
        return self._evaluator.value(name).number

    def _info_locals(self, rest: str) -> None:
        found = self.variables.locals(*self._evaluator.scope)
        for variable in found:
            try:
                self.say(self._evaluator.text(self._evaluator.of_variable(variable)))
            except TowlineError as problem:
                self.say(f"{variable.name}: {problem.message}")
        if not found:
            self.say("there are none")

    def _info_variables(self, rest: str) -> None:
        for name in self.variables.names:
            for variable in self.variables.anywhere(name):
                module = f"{variable.module}: " if variable.module else ""
                place = f"{variable.space} {variable.address:#06x}" if variable.space else "no known place"
                self.say(f"{module}{name}  {place}, {variable.type.size} bytes")

    def _info_functions(self, rest: str) -> None:
        for function in self._symbols.functions:
            line = self._symbols.line_at(function.bank, function.start)
            self.say(f"{function.start:#06x}  {function.name}" + (f"  {line}" if line is not None else ""))

    def _info_line(self, rest: str) -> None:
        self.say(self.place(backtrace(self._board)[0]))

    def do_help(self, argument: str) -> None:
        """`help [COMMAND]`

        List the commands, or explain one.
        """
        if argument:
            lines = _doc(self, self._command(argument))
            self.say("\n".join((lines[0], *lines[2:])).rstrip())
            return
        for name in self.commands():
            self.say(_doc(self, name)[0])
        self.say("help COMMAND explains one. Names may be shortened: b, s, n, c, p, bt, l...")

    # -- as text ----------------------------------------------------------------------------------------

    def place(self, frame: Frame) -> str:
        """Where a frame is, as text."""
        line = self._symbols.line_at(frame.bank, frame.pc)
        name = f"{frame.function.name} ()" if frame.function is not None else "??"
        return f"{frame.pc:#06x} in {name}" + (f" at {line}" if line is not None else "")

    def time(self) -> str:
        """Virtual time, as text."""
        return f"{seconds(self._board.machine.clock.now):.9f} s"

    def _file(self) -> str:
        """The file that a line number alone refers to."""
        line = self._symbols.line_at(self._cpu.bank, self._cpu.pc)
        if line is not None:
            return line.file
        main = self._symbols.named("main")
        line = self._symbols.line_at(main.bank, main.start) if main is not None else None
        return line.file if line is not None else ""


def _doc(owner: Commands, name: str) -> list[str]:
    """The lines of a command's help; the first is its usage."""
    text = getattr(owner, f"do_{name}").__doc__ or name
    first, *rest = (line.strip() for line in text.splitlines())
    return [first.strip("`"), *rest]


def directories(image: Path, more: Sequence[Path]) -> list[Path]:
    """Where the sources of an image may be: beside it, above it or in `src` there, here, and elsewhere."""
    above = image.parent.absolute().parent
    return [image.parent, above, above / "src", Path(), *more]
