"""The chain of callers, as far as the stack shows.

An 8051 keeps no frames: return addresses lie among pushed registers. A word on the stack counts as one if a
call instruction precedes its address, and that call leads to the running function; if there is no such word,
the nearest one after any call (a jump instead of a call and a return, which sdcc generates for a last call,
hides the caller; the frame is marked as a guess). An interrupt handler has no caller: the interrupted address
is below what it has pushed.
"""

from __future__ import annotations

from dataclasses import dataclass

from emulator.board import Board
from emulator.image_file import BANK_START
from emulator.mcs51.disassembler import decode
from emulator.mcs51.opcodes import Flow
from emulator.symbols import Function

_VECTORS = range(0x03, 0x30, 8)
_LJMP, _PUSH, _POP = 0x02, 0xC0, 0xD0
MAX_FRAMES = 32


@dataclass(frozen=True, slots=True)
class Frame:
    """A function that runs, or waits for another to return.

    Attributes:
        pc: where it goes on.
        bank: CODE bank of that.
        function: that contains it, None if it has no name.
        sp: the stack pointer once the function it called has returned; of the innermost, the current one.
        interrupted: it did not call the next inner function: an interrupt did.
        sure: whether the evidence is more than a word that looks like a return address.
    """

    pc: int
    bank: int
    function: Function | None
    sp: int
    interrupted: bool = False
    sure: bool = True


def backtrace(board: Board) -> list[Frame]:
    """The frames, innermost first."""
    cpu, symbols = board.machine.cpu, board.symbols
    frames = [Frame(cpu.pc, cpu.bank, symbols.function_at(cpu.bank, cpu.pc), cpu.sp)]
    handlers = _handlers(cpu.code(0))
    while len(frames) < MAX_FRAMES:
        inner = frames[-1]
        if inner.function is not None and inner.function.name == "main":
            return frames  # what lies below is not the stack
        entry = inner.function.start if inner.function is not None else None
        found = None
        if inner.pc in _VECTORS:
            found = _word(board, inner.sp, interrupted=True)
        elif entry in handlers:
            found = _interrupted(board, inner)
        else:
            found = _caller(board, inner, entry)
        if found is None:
            return frames
        frames.append(found)
    return frames


def _handlers(code: bytes) -> frozenset[int]:
    """Where the interrupt vectors lead."""
    return frozenset(
        int.from_bytes(code[vector + 1 : vector + 3], "big") for vector in _VECTORS if code[vector] == _LJMP
    )


def _word(board: Board, top: int, *, interrupted: bool = False, sure: bool = True) -> Frame | None:
    """The frame of the return address that ends at IRAM address `top`."""
    if top < 1:
        return None
    cpu = board.machine.cpu
    address = cpu.iram[top] << 8 | cpu.iram[top - 1]
    return Frame(address, cpu.bank, board.symbols.function_at(cpu.bank, address), top - 2, interrupted, sure)


def _called(board: Board, address: int) -> int | None:
    """Where the call instruction before a return address leads; None if there is none."""
    code = board.machine.cpu.code(board.machine.cpu.bank)
    for length in (3, 2):
        if address >= length:
            call = decode(code, address - length)
            if call.opcode.flow is Flow.CALL and len(call.data) == length:
                return call.target
    return None


def _caller(board: Board, inner: Frame, entry: int | None) -> Frame | None:
    guess = None
    for top in range(inner.sp, 0, -1):
        frame = _word(board, top)
        target = _called(board, frame.pc) if frame is not None else None
        if target is None:
            continue
        if target == entry or (entry is None and guess is None):
            return _word(board, top, sure=target == entry)
        if guess is None:
            guess = _word(board, top, sure=False)
    return guess


def _interrupted(board: Board, inner: Frame) -> Frame | None:
    """What a handler interrupted: below the bytes it has pushed and not popped up to where it is.

    The path is assumed to be straight: sdcc pops after a call what it pushed before it, on any branch.
    """
    if inner.function is None:
        return None
    code = board.machine.cpu.code(inner.bank if inner.function.start >= BANK_START else 0)
    place, pushed = inner.function.start, 0
    while place < inner.pc:
        instruction = decode(code, place)
        pushed += (instruction.data[0] == _PUSH) - (instruction.data[0] == _POP)
        place = instruction.following
    frame = _word(board, inner.sp - pushed, interrupted=True)
    return frame if frame is not None and frame.function is not None else None
