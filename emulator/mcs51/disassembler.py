"""Machine code to instructions, and instructions to text in the syntax of sdas8051.

Encodings, lengths and clocks come from `emulator.mcs51.opcodes`, names from the chip's facts. Without names
the text assembles to the same bytes; with names it is for readers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from emulator.mcs51.opcodes import OPCODES, Flow, Opcode, Operand
from firmware.asm2464pd.describe import ByteRegister, Map, Space

CODE_MASK = 0xFFFF

_TARGETS = {Operand.REL, Operand.ADDR11, Operand.ADDR16}
"""Operands that are CODE addresses."""
_WORDS = {
    Operand.A: "a",
    Operand.AB: "ab",
    Operand.C: "c",
    Operand.DPTR: "dptr",
    Operand.AT_DPTR: "@dptr",
    Operand.AT_A_DPTR: "@a+dptr",
    Operand.AT_A_PC: "@a+pc",
}
"""Operands without a number."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    Attributes:
        address: CODE address of its first byte.
        data: its bytes.
        opcode: its row of the table.
        values: of its operands, in the order of assembly: register number, byte, bit address, 16-bit constant
            or CODE address; None where the operand has no number.
    """

    address: int
    data: bytes
    opcode: Opcode
    values: tuple[int | None, ...]

    @property
    def following(self) -> int:
        """Address of the next instruction in memory."""
        return self.address + len(self.data) & CODE_MASK

    @property
    def target(self) -> int | None:
        """Where it jumps, branches or calls to, if it says so."""
        return next((value for kind, value in self.operands if kind in _TARGETS), None)

    @property
    def operands(self) -> Iterator[tuple[Operand, int | None]]:
        """Each operand with its value."""
        return zip(self.opcode.operands, self.values, strict=True)

    @property
    def is_dptr_load(self) -> bool:
        """Whether it is MOV DPTR,#data16."""
        return Operand.IMMEDIATE16 in self.opcode.operands

    @property
    def ends_block(self) -> bool:
        """Whether execution may go elsewhere and not come back."""
        return self.opcode.flow not in (Flow.NEXT, Flow.CALL)


def decode(code: bytes, address: int) -> Instruction:
    """The instruction at an address of 64 KiB of CODE; it may wrap around at the end."""
    opcode = OPCODES[code[address]]
    data = bytes(code[address + offset & CODE_MASK] for offset in range(opcode.length))
    following = address + opcode.length & CODE_MASK
    values: list[int | None] = [None] * len(opcode.operands)
    position = 1
    for index in opcode.encoding:
        kind = opcode.operands[index]
        raw = int.from_bytes(data[position : position + kind.size], "big")
        position += kind.size
        if kind is Operand.REL:
            raw = following + (raw ^ 0x80) - 0x80 & CODE_MASK
        elif kind is Operand.ADDR11:
            raw |= following & 0xF800 | (opcode.code & 0xE0) << 3
        values[index] = raw
    for index, kind in enumerate(opcode.operands):
        if kind is Operand.RN:
            values[index] = opcode.code & 7
        elif kind is Operand.AT_RI:
            values[index] = opcode.code & 1
    return Instruction(address, data, opcode, tuple(values))


class Names(Protocol):
    """What addresses are called."""

    def direct(self, address: int) -> str:
        """An IRAM byte or SFR."""

    def bit(self, address: int) -> str:
        """A bit."""

    def code(self, address: int) -> str:
        """A target."""


class Numbers:
    """No names: numbers that an assembler takes."""

    def direct(self, address: int) -> str:
        return f"0x{address:02X}"

    def bit(self, address: int) -> str:
        return f"0x{address:02X}"

    def code(self, address: int) -> str:
        return f"0x{address:04X}"


class ChipNames(Numbers):
    """SFRs and their bits from the facts, targets from a table.

    Args:
        facts: of the chip.
        labels: of CODE addresses.
    """

    def __init__(self, facts: Map, labels: Mapping[int, str] | None = None) -> None:
        self._labels = labels or {}
        self._sfrs = {register.address: register for register in facts if register.space is Space.SFR}

    def direct(self, address: int) -> str:
        register = self._sfrs.get(address)
        return super().direct(address) if register is None else _short(register)

    def bit(self, address: int) -> str:
        """`PSW.CY`; bits 0x00 to 0x7F are those of IRAM 0x20 to 0x2F."""
        if address < 0x80:
            return f"0x{0x20 + address // 8:02X}.{address % 8}"
        register = self._sfrs.get(address & 0xF8)
        if register is None:
            return f"0x{address & 0xF8:02X}.{address % 8}"
        for field in register.fields:
            if field.bit == address % 8 and field.width == 1:
                return f"{_short(register)}.{field.name}"
        return f"{_short(register)}.{address % 8}"

    def code(self, address: int) -> str:
        return self._labels.get(address) or super().code(address)


def _short(register: ByteRegister) -> str:
    """The manual's name of an SFR; the facts have the block in front."""
    return register.name.removeprefix("CPU_")


NUMBERS = Numbers()


def text(instruction: Instruction, names: Names = NUMBERS) -> str:
    """The instruction in assembly."""
    mnemonic = instruction.opcode.mnemonic.lower()
    if instruction.opcode.flow is Flow.ILLEGAL:
        return f".db 0x{instruction.opcode.code:02X}"
    operands = ",".join(_operand(kind, value, names) for kind, value in instruction.operands)
    return f"{mnemonic} {operands}" if operands else mnemonic


def _operand(kind: Operand, value: int | None, names: Names) -> str:
    if value is None:
        return _WORDS[kind]
    if kind in _TARGETS:
        return names.code(value)
    match kind:
        case Operand.RN:
            return f"r{value}"
        case Operand.AT_RI:
            return f"@r{value}"
        case Operand.DIRECT:
            return names.direct(value)
        case Operand.BIT:
            return names.bit(value)
        case Operand.NOT_BIT:
            return f"/{names.bit(value)}"
        case Operand.IMMEDIATE:
            return f"#0x{value:02X}"
        case _:
            return f"#0x{value:04X}"
