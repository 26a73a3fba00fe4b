"""Where code goes that returns to an address it has pushed, or jumps to one it has loaded.

A linker with banked code (Keil's BL51, as in the vendor's firmware) reaches another bank through a common
switch: the caller loads DPTR with the function's address, and the switch pushes DPTR, selects a bank and
returns. Some push the address of a routine that selects the old bank again in front of it. Here such code is
carried out as far as its values are constants, from a place on, until it branches, calls, or arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from emulator.mcs51.disassembler import Instruction
from emulator.mcs51.opcodes import Flow, Operand

DPL, DPH, ACC, CODE_BANK = 0x82, 0x83, 0xE0, 0x96
LIMIT = 64
"""Instructions that are carried out at most."""
_CHANGES: dict[str, Callable[[int, int], int]] = {
    "ANL": lambda one, other: one & other,
    "ORL": lambda one, other: one | other,
    "XRL": lambda one, other: one ^ other,
}
_HARMLESS = {"CJNE", "JB", "JNB", "JZ", "JNZ", "JC", "JNC", "NOP", "MOVX"}


@dataclass(slots=True)
class State:
    """What is known of the CPU.

    Attributes:
        bytes: of internal RAM and the special function registers, by direct address; the others are unknown.
            R0 to R7 are those of bank 0.
        stack: what has been pushed, None for an unknown byte.
        banked: the CODE bank has been selected.
    """

    bytes: dict[int, int] = field(default_factory=dict)
    stack: list[int | None] = field(default_factory=list)
    banked: bool = False

    @property
    def dptr(self) -> int | None:
        low, high = self.bytes.get(DPL), self.bytes.get(DPH)
        return None if low is None or high is None else high << 8 | low

    def pop_address(self) -> int | None:
        """What RET goes to; None if it is unknown."""
        high = self.stack.pop() if self.stack else None
        low = self.stack.pop() if self.stack else None
        return None if low is None or high is None else high << 8 | low

    def carry_out(self, instruction: Instruction) -> None:
        """Execute an instruction that runs into the next one."""
        mnemonic = instruction.opcode.mnemonic
        operands = list(instruction.operands)
        if instruction.opcode.flow is Flow.CALL:
            self.bytes.clear()
        elif mnemonic == "PUSH":
            self.stack.append(self.bytes.get(operands[0][1] or 0))
        elif mnemonic == "POP":
            self._put(operands[0], self.stack.pop() if self.stack else None)
        elif mnemonic == "MOV" and operands[0][0] is Operand.DPTR:
            self.bytes[DPH], self.bytes[DPL] = divmod(operands[1][1] or 0, 0x100)
        elif mnemonic == "MOV":
            self._put(operands[0], self._value(operands[1]))
        elif mnemonic == "CLR" and operands[0][0] is Operand.A:
            self.bytes[ACC] = 0
        elif mnemonic in _CHANGES and operands[0][0] is not Operand.C:
            self._put(operands[0], self._changed(mnemonic, operands[0], operands[1]))
        elif mnemonic not in _HARMLESS:
            for operand in operands[: 2 if mnemonic == "XCH" else 1]:
                self._put(operand, None)
        elif mnemonic == "MOVX":
            self._put(operands[0], None)

    def _changed(
        self, mnemonic: str, target: tuple[Operand, int | None], by: tuple[Operand, int | None]
    ) -> int | None:
        """What ANL, ORL or XRL makes of its first operand. Of CODE_BANK only bit 0 counts."""
        one, other = self._value(target), self._value(by)
        if one is not None and other is not None:
            return _CHANGES[mnemonic](one, other)
        if target == (Operand.DIRECT, CODE_BANK) and other is not None and mnemonic != "XRL":
            bit = other & 1
            return bit if bit == (mnemonic == "ORL") else None
        return None

    def _value(self, operand: tuple[Operand, int | None]) -> int | None:
        kind, value = operand
        if kind is Operand.IMMEDIATE:
            return value
        place = _place(operand)
        return None if place is None else self.bytes.get(place)

    def _put(self, operand: tuple[Operand, int | None], value: int | None) -> None:
        if operand[0] is Operand.DPTR:
            self.bytes.pop(DPL, None)
            self.bytes.pop(DPH, None)
            return
        place = _place(operand)
        if place is None:
            return
        self.banked |= place == CODE_BANK
        if value is None:
            self.bytes.pop(place, None)
        else:
            self.bytes[place] = value


def after(instructions: Iterable[Instruction]) -> State:
    """What is known after straight code."""
    state = State()
    for instruction in instructions:
        state.carry_out(instruction)
    return state


def arrivals(
    state: State, address: int, decoded: Callable[[int, int | None], Instruction | None]
) -> list[tuple[int, int | None]]:
    """Where code at an address goes by RET or JMP @A+DPTR: (address, bank), with None for the caller's bank.

    Args:
        state: on the way in; it is changed.
        address: of the first instruction.
        decoded: the instruction at an address in a bank (None: the caller's); None if nothing is there.

    Returns:
        the places in order: a switch that is reached by RET too, then what that goes to, and last the routine
        to which that returns, if its address has been pushed.
    """
    found: list[tuple[int, int | None]] = []
    for _ in range(LIMIT):
        bank = state.bytes.get(CODE_BANK) if state.banked else None
        instruction = decoded(address, bank)
        if instruction is None:
            break
        flow = instruction.opcode.flow
        if flow in (Flow.NEXT, Flow.JUMP):
            state.carry_out(instruction)
            address = instruction.following if flow is Flow.NEXT else instruction.target or 0
            continue
        goes_to = _destination(state, instruction)
        if goes_to is None:
            break
        address = goes_to
        found.append((address, state.bytes.get(CODE_BANK) if state.banked else None))
        if None in state.stack[-2:] or len(state.stack) < 2:
            break
    return found


def _destination(state: State, instruction: Instruction) -> int | None:
    """Where an instruction that leaves its block goes, if a constant says so."""
    if instruction.opcode.mnemonic == "RET":
        return state.pop_address()
    if instruction.opcode.flow is Flow.INDIRECT:
        offset, base = state.bytes.get(ACC), state.dptr
        return None if offset is None or base is None else base + offset & 0xFFFF
    return None


def _place(operand: tuple[Operand, int | None]) -> int | None:
    """The direct address of an operand of one byte; None if it has none."""
    kind, value = operand
    if kind is Operand.A:
        return ACC
    if kind is Operand.BIT:
        number = value or 0
        return 0x20 + number // 8 if number < 0x80 else number & 0xF8
    return value if kind in (Operand.DIRECT, Operand.RN) else None
