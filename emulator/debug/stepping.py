"""Steps, as plans for `emulator.debug.debugger`: by instruction, by line, out of a function.

The CPU always runs at the speed of a core with breakpoints: to leave a line, every place outside of it is
marked. Interrupts meanwhile are skipped, unless the step began in the handler.
"""

from __future__ import annotations

from emulator.board import Board
from emulator.debug.debugger import Debugger, Place, Plan
from emulator.debug.frames import backtrace
from emulator.mcs51.core import CODE_SIZE, mark
from emulator.mcs51.disassembler import decode
from emulator.mcs51.opcodes import Flow
from emulator.symbols import Function, Line, Symbols
from sdk.errors import UsageError


def instruction(debugger: Debugger) -> Plan:
    """One instruction, or the entry into an interrupt."""
    yield bytearray(b"\1" * (2 * CODE_SIZE))


def next_instruction(debugger: Debugger) -> Plan:
    """One instruction; a call until it has returned."""
    cpu = debugger.board.machine.cpu
    current = decode(cpu.code(cpu.bank), cpu.pc)
    if current.opcode.flow is Flow.CALL:
        yield from _run_to(debugger, (cpu.bank, current.following), cpu.sp)
    else:
        yield from instruction(debugger)


def line(debugger: Debugger, *, over: bool) -> Plan:
    """To another line of C: into functions that have lines, or `over` them.

    Raises:
        UsageError: the code here has no line.
    """
    cpu, symbols = debugger.board.machine.cpu, debugger.board.symbols
    current, function = symbols.line_at(cpu.bank, cpu.pc), symbols.function_at(cpu.bank, cpu.pc)
    if current is None or function is None:
        raise UsageError(
            f"there is no known line of C at {cpu.pc:#06x}",
            hint="stepi steps by instruction, finish leaves the function",
        )
    return _line(debugger, function, current, over)


def _line(debugger: Debugger, function: Function, current: Line, over: bool) -> Plan:
    cpu, symbols = debugger.board.machine.cpu, debugger.board.symbols
    service = cpu.in_service
    inside = _places(symbols, function, current)
    marks = _outside(inside)
    while True:
        yield marks
        back = (cpu.bank, cpu.iram[cpu.sp] << 8 | cpu.iram[cpu.sp - 1])
        if cpu.in_service & ~service:
            yield from _run_to(debugger, back, cpu.sp - 2)
        elif _is_called(symbols, back, function, debugger.here):
            callee = symbols.function_at(*debugger.here)
            known = callee is not None and symbols.line_at(*debugger.here) is not None
            if known and not over and callee is not None:
                if (body := beginning(debugger.board, callee)) != debugger.here:
                    yield from _run_to(debugger, body)
                return
            yield from _run_to(debugger, back, cpu.sp - 2)
        if debugger.here in inside:
            continue
        now = symbols.function_at(*debugger.here)
        reached = symbols.line_at(*debugger.here)
        if now is not None and reached is None:  # assembly: until it returns to C
            inside = frozenset((now.bank, address) for address in range(now.start, now.end))
            marks, function = _outside(inside), now
        elif now != function or reached is None or reached.address == cpu.pc:
            return
        else:  # in the middle of another line
            inside = _places(symbols, function, reached)
            marks = _outside(inside)


def finish(debugger: Debugger) -> Plan:
    """Until the function returns, or the interrupt handler.

    Raises:
        UsageError: the stack does not show where to.
    """
    frames = backtrace(debugger.board)
    if len(frames) < 2:
        raise UsageError("the stack shows no caller of this function")
    return _run_to(debugger, (frames[1].bank, frames[1].pc), frames[1].sp)


def beginning(board: Board, function: Function) -> Place:
    """Where to stop for a function: at its first statement, where its arguments are in place.

    In sdcc's records the first line, at the entry, is the function's declaration, and the second the first
    statement. If that is the head of a loop, it is the entry: one stop a call.
    """
    lines = [
        entry
        for entry in board.symbols.lines
        if entry.bank == function.bank and function.start <= entry.address < function.end
    ]
    place = next((entry.address for entry in lines if entry.line != lines[0].line), function.start)
    return function.bank, function.start if place in _targets(board, function) else place


def _targets(board: Board, function: Function) -> frozenset[int]:
    """Where the instructions of a function jump and branch to."""
    code, place, found = board.machine.cpu.code(function.bank), function.start, set()
    while place < function.end:
        instruction = decode(code, place)
        if instruction.target is not None and instruction.opcode.flow is not Flow.CALL:
            found.add(instruction.target)
        place += len(instruction.data)
    return frozenset(found)


def _places(symbols: Symbols, function: Function, current: Line) -> frozenset[Place]:
    """The code of a line within its function."""
    return frozenset(
        (function.bank, address)
        for address in range(function.start, function.end)
        if (found := symbols.line_at(function.bank, address)) is not None
        and (found.file, found.line) == (current.file, current.line)
    )


def _outside(inside: frozenset[Place]) -> bytearray:
    """Marks on all other places."""
    marks = bytearray(b"\1" * (2 * CODE_SIZE))
    for bank, address in inside:
        marks[mark(bank, address)] = 0
    return marks


def _is_called(symbols: Symbols, back: Place, caller: Function, here: Place) -> bool:
    """Whether the CPU is at the entry of a function that was called, and will return into the caller."""
    callee = symbols.function_at(*here)
    if callee == caller and here[1] != caller.start:
        return False
    at_entry = callee is None or callee.start == here[1]
    return at_entry and symbols.function_at(*back) == caller


def _run_to(debugger: Debugger, place: Place, sp: int | None = None) -> Plan:
    """Until the CPU reaches a place, with that stack pointer."""
    cpu = debugger.board.machine.cpu
    marks = bytearray(2 * CODE_SIZE)
    marks[mark(*place)] = 1
    while True:
        yield marks
        if cpu.pc == place[1] and (sp is None or cpu.sp == sp):
            return
