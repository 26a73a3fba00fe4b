"""The monitor: a debugger for firmware in C, on a terminal or from a file (`towline emulate IMAGE --debug`).

It stops the machine between two instructions: while it reads commands no virtual time passes. Ctrl-C stops
the run and not the monitor. From a file or a pipe it shows each command as it reads it; a wrong one is
answered with an error, the session continues with the next, and counts as failed.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import TextIO

from emulator.board import Board
from emulator.core.clock import seconds
from emulator.debug import stepping
from emulator.debug.cdb import Variables
from emulator.debug.commands import LISTED, SHOWN, Commands, Resume
from emulator.debug.debugger import Cause, Debugger, Ended, Plan, Stopped, ctrl_c
from emulator.debug.frames import backtrace
from emulator.debug.source import Sources
from emulator.faults import duration
from sdk.errors import TowlineError, UsageError

PROMPT = "(towline) "
MAX_COUNT = 100_000
"""The most steps of one command."""
REPEATED = ("step", "next", "stepi", "nexti", "list")
"""Commands that an empty line repeats."""


class CommandsFailed(TowlineError):
    """Commands of a session from a file were wrong; the others were done."""

    code = "commands-failed"


class Monitor(Commands):
    """A session.

    Args:
        board: not yet running.
        variables: of its image.
        sources: its C files.
        write: shows text to the user.
        source: where commands come from; a terminal, or a file.
    """

    def __init__(
        self,
        board: Board,
        variables: Variables,
        sources: Sources,
        write: Callable[[str], None],
        source: TextIO | None = None,
    ) -> None:
        super().__init__(Debugger(board, self), variables, sources, write)
        self._source = source if source is not None else sys.stdin
        self._terminal = self._source.isatty()
        self._read_lines = 0  # of a file
        self._wrong: list[CommandsFailed] = []  # of a file
        self._last = ""
        self._cancel: Callable[[], None] = lambda: None
        self._function = ""
        self._problem: TowlineError | None = None  # that ended the run
        if self._terminal and self._source is sys.stdin:
            self._set_up_readline()

    # -- debugger.Front ---------------------------------------------------------------------------------

    def stopped(self, stop: Stopped) -> Plan | None:
        """Report why the CPU is stopped, and do the user's commands."""
        self._cancel()
        self._describe(stop)
        resume = self._converse()
        if resume.clocks is not None:
            self._cancel = self.debugger.stop_after(resume.clocks)
        return resume.plan

    # -- for the code that runs the board ---------------------------------------------------------------

    @property
    def failure(self) -> CommandsFailed | None:
        """The failure of a session from a file, if any of its commands was wrong."""
        if not self._wrong:
            return None
        first, *more = self._wrong
        rest = f"; {len(self._wrong)} commands were wrong" if more else ""
        return CommandsFailed(first.message + rest, where=first.where, hint=first.hint)

    def keyboard(self) -> contextlib.AbstractContextManager[None]:
        """Ctrl-C stops the run meanwhile, so that the user can inspect it."""
        return ctrl_c(self._pressed)

    def _pressed(self, number: int, frame: FrameType | None) -> None:
        """The second Ctrl-C reaches a host program that does not return to the machine."""
        if self.debugger.interrupted:
            raise KeyboardInterrupt
        self.debugger.interrupt()

    def over(self, problem: TowlineError | None, length: int) -> None:
        """The run has ended: let the user inspect it, and continue it if possible and requested.

        Args:
            problem: what ended it, None for its time limit.
            length: clocks by which `continue` extends it.

        Raises:
            Ended: the user quits.
        """
        self._problem = problem
        while True:
            self._cancel()
            if problem is not None:
                self.say(f"the run has ended: {problem}")
                if problem.hint:
                    self.say(problem.hint)
            else:
                self.say(f"the run is over, at {self.time()}")
            self._listing(always=True)
            resume = self._converse()
            self.debugger.resume(resume.plan)
            self._board.usb.clock.sleep(seconds(resume.clocks if resume.clocks is not None else length))

    # -- commands that resume the CPU -------------------------------------------------------------------

    def do_continue(self, argument: str) -> Resume:
        """`continue [TIME]`

        Go on: until a breakpoint, a watchpoint, Ctrl-C, the end of the run, or for a time such as 5ms.
        """
        return Resume(clocks=duration(argument) if argument else None)

    def do_step(self, argument: str) -> Resume:
        """`step [COUNT]`

        To another line of C, into functions that have lines. Interrupts are skipped.
        """
        return self._steps(argument, lambda: stepping.line(self.debugger, over=False))

    def do_next(self, argument: str) -> Resume:
        """`next [COUNT]`

        To another line of C, over the functions that are called.
        """
        return self._steps(argument, lambda: stepping.line(self.debugger, over=True))

    def do_stepi(self, argument: str) -> Resume:
        """`stepi [COUNT]`

        One instruction, or into an interrupt.
        """
        return self._steps(argument, lambda: stepping.instruction(self.debugger))

    def do_nexti(self, argument: str) -> Resume:
        """`nexti [COUNT]`

        One instruction, over a call.
        """
        return self._steps(argument, lambda: stepping.next_instruction(self.debugger))

    def do_finish(self, argument: str) -> Resume:
        """`finish`

        Until the function returns, as far as the stack shows to where.
        """
        return Resume(stepping.finish(self.debugger))

    def do_quit(self, argument: str) -> None:
        """`quit`

        End the session and the run; the run up to here is reported.
        """
        if argument:  # a word that only begins like it
            raise UsageError("quit takes no arguments")
        raise self._end()

    def _steps(self, argument: str, plan: Callable[[], Plan]) -> Resume:
        count = int(argument) if argument.isdecimal() and len(argument) < 9 else 0 if argument else 1
        if not 0 < count <= MAX_COUNT:
            raise UsageError(f"{argument!r} is not a number of steps", hint=f"1 to {MAX_COUNT}")
        first = plan()  # raises now if it cannot be done

        def repeated() -> Plan:
            yield from first
            for _ in range(count - 1):
                try:
                    following = plan()
                except UsageError:
                    return  # the code here has no lines
                yield from following

        return Resume(repeated())

    def _end(self) -> Ended:
        ended = Ended(f"the session ended at {self.time()}")
        self.debugger.end(ended)
        return ended

    # -- the dialogue -----------------------------------------------------------------------------------

    def _converse(self) -> Resume:
        """Commands until one resumes the CPU."""
        # Ctrl-C discards a half-written line; what drives the machine would block it.
        with ctrl_c(signal.default_int_handler):
            while True:
                try:
                    line = self._read()
                    if line is None:
                        raise self._end()
                    resume = self.execute(line)
                except KeyboardInterrupt:
                    self.say()
                    continue
                except Ended:
                    raise
                except TowlineError as problem:
                    self._refuse(problem)
                    continue
                if resume is None:
                    continue
                if self._problem is None:
                    return resume
                self._refuse(UsageError("the run has ended: it cannot go on", hint="quit, and run it again"))

    def _read(self) -> str | None:
        """The next command; None at the end."""
        if self._source is sys.stdin and self._terminal:
            try:
                line = input(PROMPT)
            except EOFError:
                self.say()
                return None
        else:
            read = self._source.readline()
            if not read:
                return None
            line = read.rstrip("\n")
            self._read_lines += 1
            self.say(PROMPT + line)
        if not line.strip() and self._terminal:
            return self._last
        word = line.strip().partition(" ")[0]
        self._last = ""
        with contextlib.suppress(UsageError):
            self._last = line if word and self._command(word) in REPEATED else ""
        return line

    def _refuse(self, problem: TowlineError) -> None:
        """Report what is wrong; a session from a file has failed, and goes on."""
        said = problem.message + (f" ({problem.hint})" if problem.hint else "")
        if not self._terminal:
            where = f"line {self._read_lines} of the session"
            self._wrong.append(CommandsFailed(problem.message, where=where, hint=problem.hint))
            said = f"error: {said}"
        self.say(said)

    def _set_up_readline(self) -> None:
        try:
            import readline
        except ImportError:  # a Python without it: only line editing is missing
            return
        readline.set_completer(self.complete)  # type: ignore[arg-type]
        readline.parse_and_bind("tab: complete")

    # -- the report at a stop ---------------------------------------------------------------------------

    def _describe(self, stop: Stopped) -> None:
        reason = {Cause.INTERRUPT: "interrupted", Cause.TIME: "the time has elapsed"}.get(stop.cause, "")
        if stop.cause is Cause.START:
            self.say(f"{self._board.boot.reason}; help lists the commands")
        if stop.breakpoint is not None:
            reason = f"breakpoint {stop.breakpoint.number}"
        if stop.watchpoint is not None:
            watchpoint = stop.watchpoint
            reason = f"watchpoint {watchpoint.number}, {watchpoint.what}"
            change = f"{watchpoint.before_and_after(stop.before)}"
            reason += f": {change}" if change else ""
        if unshown := min(self._unshown, SHOWN):
            for line in list(self._traced)[-unshown:]:
                self.say(line)
            self._traced.append(f"{seconds(self._board.machine.clock.now):12.9f} ---- stopped ----")
        self._unshown = 0
        if reason:
            self.say(f"{reason}, at {self.time()}")
        self._listing(always=stop.cause is not Cause.STEP)

    def _listing(self, *, always: bool) -> None:
        """Where the CPU is: the function, if it has changed, and the line or the instruction."""
        frame = backtrace(self._board)[0]
        line = self._symbols.line_at(frame.bank, frame.pc)
        name = frame.function.name if frame.function is not None else ""
        if always or name != self._function or line is None:
            self.say(self.place(frame))
        self._function, self._listed = name, None
        if line is None:
            return
        source = self.sources.line(line.file, line.line)
        self._listed = line.file, max(1, line.line - LISTED // 2)
        self.say(f"{line.line:<5} {source}" if source is not None else f"{line}")
