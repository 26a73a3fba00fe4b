"""What a pointer to a function may hold when it is called: all that code ever stores in it.

sdcc calls a pointer by a call of a routine that goes on at DPTR. Where DPTR comes from a variable in internal
RAM, and every store to that variable is of a constant, of another such variable, or of an argument in DPTR
that is one of these at every call, the call is to these functions alone. Nothing else is followed: of any
other pointer nothing is known. Two things are taken for granted, as sdcc has them: register bank 0, and no
store through a register hits such a variable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from emulator.mcs51.disassembler import Instruction
from emulator.mcs51.flow import VECTORS, Block, Graph, Place, Routine
from emulator.mcs51.opcodes import Flow, Operand

DPL, DPH, B, ACC = 0x82, 0x83, 0xF0, 0xE0
VARIABLES = range(0x08, 0x80)
"""Internal RAM by direct addresses, without R0 to R7, which are 0x00 to 0x07."""
BITS = 0x20
"""The first byte with bits that have addresses."""

_NO_STORE = frozenset(("PUSH", "CJNE", "JB", "JNB", "JZ", "JNZ"))
_CALLS = {
    bytes((0xE4, 0x73)): 0,  # CLR A; JMP @A+DPTR
    bytes((0xC0, DPL, 0xC0, DPH, 0x22)): 2,  # PUSH DPL; PUSH DPH; RET
}
"""Functions that do nothing but go on at DPTR (sdcc: `_sdcc_call_dptr`), with the bytes that they push."""
_PAIRS = {Operand.DPTR: (DPL, DPH), Operand.AB: (ACC, B), Operand.A: (ACC,)}


class _Kind(Enum):
    CONSTANT = "constant"
    VARIABLE = "variable"
    START = "what a place had when the block began"


@dataclass(frozen=True, slots=True)
class _Source:
    """Where a byte comes from; `number` is the constant or the direct address."""

    kind: _Kind
    number: int


class Pointers:
    """The pointers of a program.

    Args:
        graph: of the program, with all of its functions.
        taken: the functions whose address the program holds.
    """

    def __init__(self, graph: Graph, taken: Iterable[Place]) -> None:
        self._blocks = {block.place: block for one in graph.routines.values() for block in one.blocks}
        self._entries = frozenset(graph.routines)
        self._taken = frozenset(taken)
        self._found: dict[int, frozenset[Place] | None] = {}

    def held(self, block: Block, end: int) -> frozenset[Place] | None:
        """The functions that DPTR may hold before an instruction of a block, by its index; None: any."""
        return self._pair(block, end, DPL, DPH)

    def _pair(self, block: Block, end: int, low: int, high: int) -> frozenset[Place] | None:
        """The functions that two bytes may hold."""
        one, other = _source(block, end, low), _source(block, end, high)
        if one is None or other is None or one.kind is not other.kind:
            return None
        if one.kind is _Kind.CONSTANT:
            address = one.number | other.number << 8
            return (
                frozenset((Place(0, address),)) if address else frozenset()
            )  # a null pointer is never called
        if one.kind is _Kind.VARIABLE:
            return self._variable(one.number) if other.number == one.number + 1 else None
        is_argument = (one.number, other.number) == (DPL, DPH) and block.place in self._entries
        return self._argument(block.place) if is_argument else None

    def _variable(self, address: int) -> frozenset[Place] | None:
        """The functions that a variable may hold."""
        if address not in self._found:
            self._found[address] = frozenset()  # what it holds already adds nothing
            self._found[address] = _union(self._stored(address))
        return self._found[address]

    def _stored(self, address: int) -> Iterator[frozenset[Place] | None]:
        for block in self._blocks.values():
            lows, highs = (_stores(block, place) for place in (address, address + 1))
            if len(lows) != len(highs):
                yield None
                return
            for low, high in zip(lows, highs, strict=True):
                yield self._pair(block, max(low, high) + 1, address, address + 1)

    def _argument(self, entry: Place) -> frozenset[Place] | None:
        """The functions that DPTR may hold when a function is entered."""
        is_unknown = entry in self._taken or (entry.bank == 0 and entry.address in VECTORS)
        return None if is_unknown else _union(self._given(entry))

    def _given(self, entry: Place) -> Iterator[frozenset[Place] | None]:
        for block in self._blocks.values():
            for index, instruction in enumerate(block.instructions):
                if instruction.opcode.flow is Flow.CALL and instruction.target == entry.address:
                    yield self.held(block, index)
            if entry in block.successors:
                yield self.held(block, len(block.instructions))


def pushed_to_call(routine: Routine) -> int | None:
    """Bytes that a function pushes to go on at DPTR; None if it does anything else."""
    return _CALLS.get(b"".join(one.data for block in routine.blocks for one in block.instructions))


def _source(block: Block, end: int, place: int) -> _Source | None:
    """Where what a place holds before the instruction with that index comes from; None: unknown."""
    for instruction in reversed(block.instructions[:end]):
        if instruction.opcode.flow is Flow.CALL:
            return None
        if place not in _written(instruction):
            continue
        operands = list(instruction.operands)
        if instruction.opcode.mnemonic == "CLR":
            return _Source(_Kind.CONSTANT, 0)
        if instruction.opcode.mnemonic != "MOV":
            return None
        kind, value = operands[1]
        if kind is Operand.IMMEDIATE16:
            return _Source(_Kind.CONSTANT, (value or 0) >> (8 if place == DPH else 0) & 0xFF)
        if kind is Operand.IMMEDIATE:
            return _Source(_Kind.CONSTANT, value or 0)
        places = _places(kind, value)
        if len(places) != 1:
            return None
        [place] = places
        if place in VARIABLES:
            return _Source(_Kind.VARIABLE, place)
    return _Source(_Kind.START, place)


def _stores(block: Block, place: int) -> list[int]:
    """Indices of the instructions that write to a place."""
    return [index for index, one in enumerate(block.instructions) if place in _written(one)]


def _written(instruction: Instruction) -> tuple[int, ...]:
    """The direct addresses that an instruction writes to, but not those of a call."""
    operands = list(instruction.operands)
    mnemonic = instruction.opcode.mnemonic
    if not operands or mnemonic in _NO_STORE:
        return ()
    written = _places(*operands[0])
    return written + _places(*operands[1]) if mnemonic == "XCH" else written


def _places(kind: Operand, value: int | None) -> tuple[int, ...]:
    """The direct addresses of an operand; none if it has no fixed one."""
    number = value or 0
    if kind in (Operand.DIRECT, Operand.RN):
        return (number,)
    if kind is Operand.BIT:
        return (BITS + number // 8 if number < 0x80 else number & 0xF8,)
    return _PAIRS.get(kind, ())


def _union(sets: Iterable[frozenset[Place] | None]) -> frozenset[Place] | None:
    """All that is in any of them; None if one is unknown."""
    found: frozenset[Place] = frozenset()
    for one in sets:
        if one is None:
            return None
        found |= one
    return found
