"""The MCS-51's instructions as data: mnemonic, operands, encoding, length, clocks, effect on the flow.

The one place for lengths and clocks: the disassembler reads this table, and the C core gets it as a
generated header (`c_header`). The instruction set is that of Intel's MCS-51 manual. The clocks are those of
a 1T core, one clock a machine cycle, where the manual's have twelve [guess: the numbers are the STC15
family's; with MOVX = 5 their sums fit two published rates of open firmware on silicon].
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum


class Operand(Enum):
    """How an operand is addressed; the value is the manual's notation."""

    A = "A"
    AB = "AB"
    C = "C"
    DPTR = "DPTR"
    RN = "Rn"
    """R0 to R7 of the selected bank: bits 2:0 of the opcode."""
    AT_RI = "@Ri"
    """IRAM, or external memory for MOVX, by R0 or R1: bit 0 of the opcode."""
    DIRECT = "direct"
    IMMEDIATE = "#data"
    IMMEDIATE16 = "#data16"
    """Most significant byte first."""
    BIT = "bit"
    NOT_BIT = "/bit"
    REL = "rel"
    """Signed, from the address of the next instruction."""
    ADDR11 = "addr11"
    """Bits 10:8 are bits 7:5 of the opcode, bits 15:11 those of the next instruction's address."""
    ADDR16 = "addr16"
    """Most significant byte first."""
    AT_DPTR = "@DPTR"
    AT_A_DPTR = "@A+DPTR"
    AT_A_PC = "@A+PC"
    """From the address of the next instruction."""

    @property
    def size(self) -> int:
        """Bytes that the operand takes after the opcode."""
        return _SIZE.get(self, 0)


_SIZE = {
    Operand.DIRECT: 1,
    Operand.IMMEDIATE: 1,
    Operand.IMMEDIATE16: 2,
    Operand.BIT: 1,
    Operand.NOT_BIT: 1,
    Operand.REL: 1,
    Operand.ADDR11: 1,
    Operand.ADDR16: 2,
}


class Flow(Enum):
    """Where execution goes after an instruction."""

    NEXT = "next"
    BRANCH = "branch"
    """To the relative target or to the next instruction."""
    JUMP = "jump"
    """Always to the target."""
    INDIRECT = "indirect"
    """To an address computed at run time (JMP @A+DPTR)."""
    CALL = "call"
    RETURN = "return"
    ILLEGAL = "illegal"
    """The reserved opcode A5."""


@dataclass(frozen=True, slots=True)
class Opcode:
    """One of the 256 opcodes.

    Attributes:
        code: its first byte.
        mnemonic: as the manual has it; the reserved opcode is ".DB".
        operands: in the order of assembly.
        encoding: indices into `operands` in the order of the bytes after the opcode.
        length: bytes in all.
        clocks: chip clocks, the same whether a branch is taken or not.
        flow: where execution goes next.
    """

    code: int
    mnemonic: str
    operands: tuple[Operand, ...]
    encoding: tuple[int, ...]
    length: int
    clocks: int
    flow: Flow


_ROWS: tuple[tuple[int, str, int], ...] = (
    (0x00, "NOP", 1),
    (0x01, "AJMP addr11", 3),
    (0x02, "LJMP addr16", 4),
    (0x03, "RR A", 1),
    (0x04, "INC A", 1),
    (0x05, "INC direct", 3),
    (0x06, "INC @Ri", 3),
    (0x08, "INC Rn", 2),
    (0x10, "JBC bit,rel", 5),
    (0x11, "ACALL addr11", 4),
    (0x12, "LCALL addr16", 4),
    (0x13, "RRC A", 1),
    (0x14, "DEC A", 1),
    (0x15, "DEC direct", 3),
    (0x16, "DEC @Ri", 3),
    (0x18, "DEC Rn", 2),
    (0x20, "JB bit,rel", 5),
    (0x22, "RET", 4),
    (0x23, "RL A", 1),
    (0x24, "ADD A,#data", 2),
    (0x25, "ADD A,direct", 2),
    (0x26, "ADD A,@Ri", 2),
    (0x28, "ADD A,Rn", 1),
    (0x30, "JNB bit,rel", 5),
    (0x32, "RETI", 4),
    (0x33, "RLC A", 1),
    (0x34, "ADDC A,#data", 2),
    (0x35, "ADDC A,direct", 2),
    (0x36, "ADDC A,@Ri", 2),
    (0x38, "ADDC A,Rn", 1),
    (0x40, "JC rel", 3),
    (0x42, "ORL direct,A", 2),
    (0x43, "ORL direct,#data", 3),
    (0x44, "ORL A,#data", 2),
    (0x45, "ORL A,direct", 2),
    (0x46, "ORL A,@Ri", 2),
    (0x48, "ORL A,Rn", 1),
    (0x50, "JNC rel", 3),
    (0x52, "ANL direct,A", 2),
    (0x53, "ANL direct,#data", 3),
    (0x54, "ANL A,#data", 2),
    (0x55, "ANL A,direct", 2),
    (0x56, "ANL A,@Ri", 2),
    (0x58, "ANL A,Rn", 1),
    (0x60, "JZ rel", 4),
    (0x62, "XRL direct,A", 2),
    (0x63, "XRL direct,#data", 3),
    (0x64, "XRL A,#data", 2),
    (0x65, "XRL A,direct", 2),
    (0x66, "XRL A,@Ri", 2),
    (0x68, "XRL A,Rn", 1),
    (0x70, "JNZ rel", 4),
    (0x72, "ORL C,bit", 2),
    (0x73, "JMP @A+DPTR", 5),
    (0x74, "MOV A,#data", 2),
    (0x75, "MOV direct,#data", 3),
    (0x76, "MOV @Ri,#data", 2),
    (0x78, "MOV Rn,#data", 2),
    (0x80, "SJMP rel", 3),
    (0x82, "ANL C,bit", 2),
    (0x83, "MOVC A,@A+PC", 4),
    (0x84, "DIV AB", 6),
    (0x85, "MOV direct,direct", 3),
    (0x86, "MOV direct,@Ri", 3),
    (0x88, "MOV direct,Rn", 2),
    (0x90, "MOV DPTR,#data16", 3),
    (0x92, "MOV bit,C", 3),
    (0x93, "MOVC A,@A+DPTR", 5),
    (0x94, "SUBB A,#data", 2),
    (0x95, "SUBB A,direct", 2),
    (0x96, "SUBB A,@Ri", 2),
    (0x98, "SUBB A,Rn", 1),
    (0xA0, "ORL C,/bit", 2),
    (0xA2, "MOV C,bit", 2),
    (0xA3, "INC DPTR", 1),
    (0xA4, "MUL AB", 2),
    (0xA5, ".DB", 1),
    (0xA6, "MOV @Ri,direct", 3),
    (0xA8, "MOV Rn,direct", 3),
    (0xB0, "ANL C,/bit", 2),
    (0xB2, "CPL bit", 3),
    (0xB3, "CPL C", 1),
    (0xB4, "CJNE A,#data,rel", 4),
    (0xB5, "CJNE A,direct,rel", 5),
    (0xB6, "CJNE @Ri,#data,rel", 5),
    (0xB8, "CJNE Rn,#data,rel", 4),
    (0xC0, "PUSH direct", 3),
    (0xC2, "CLR bit", 3),
    (0xC3, "CLR C", 1),
    (0xC4, "SWAP A", 1),
    (0xC5, "XCH A,direct", 3),
    (0xC6, "XCH A,@Ri", 3),
    (0xC8, "XCH A,Rn", 2),
    (0xD0, "POP direct", 2),
    (0xD2, "SETB bit", 3),
    (0xD3, "SETB C", 1),
    (0xD4, "DA A", 3),
    (0xD5, "DJNZ direct,rel", 5),
    (0xD6, "XCHD A,@Ri", 3),
    (0xD8, "DJNZ Rn,rel", 4),
    (0xE0, "MOVX A,@DPTR", 5),
    (0xE2, "MOVX A,@Ri", 5),
    (0xE4, "CLR A", 1),
    (0xE5, "MOV A,direct", 2),
    (0xE6, "MOV A,@Ri", 2),
    (0xE8, "MOV A,Rn", 1),
    (0xF0, "MOVX @DPTR,A", 5),
    (0xF2, "MOVX @Ri,A", 5),
    (0xF4, "CPL A", 1),
    (0xF5, "MOV direct,A", 2),
    (0xF6, "MOV @Ri,A", 2),
    (0xF8, "MOV Rn,A", 1),
)
"""First opcode, assembly, clocks. Rn takes 8 opcodes in a row, @Ri 2, addr11 8 that are 0x20 apart."""

_FLOWS = {
    "LJMP": Flow.JUMP,
    "AJMP": Flow.JUMP,
    "SJMP": Flow.JUMP,
    "JMP": Flow.INDIRECT,
    "LCALL": Flow.CALL,
    "ACALL": Flow.CALL,
    "RET": Flow.RETURN,
    "RETI": Flow.RETURN,
    ".DB": Flow.ILLEGAL,
}

INTERRUPT_CLOCKS = 4
"""From the end of an instruction to the first one of the handler: a hardware LCALL [guess]."""

_SOURCE_FIRST = 0x85
"""MOV direct,direct is the one instruction encoded in another order than it is written."""


def _codes(first: int, operands: tuple[Operand, ...]) -> range:
    """The opcodes of a row."""
    if Operand.ADDR11 in operands:
        return range(first, 0x100, 0x20)
    return range(first, first + (8 if Operand.RN in operands else 2 if Operand.AT_RI in operands else 1))


def _opcodes(rows: Iterable[tuple[int, str, int]]) -> Iterator[Opcode]:
    for first, text, clocks in rows:
        mnemonic, _, rest = text.partition(" ")
        operands = tuple(Operand(name) for name in rest.split(",") if name)
        length = 1 + sum(operand.size for operand in operands)
        branch = Flow.BRANCH if Operand.REL in operands else Flow.NEXT
        for code in _codes(first, operands):
            encoding = tuple(index for index, operand in enumerate(operands) if operand.size)
            if code == _SOURCE_FIRST:
                encoding = encoding[::-1]
            flow = _FLOWS.get(mnemonic, branch)
            yield Opcode(code, mnemonic, operands, encoding, length, clocks, flow)


OPCODES: tuple[Opcode, ...] = tuple(sorted(_opcodes(_ROWS), key=lambda opcode: opcode.code))
"""All 256, by code."""


_WRITES, _READS = 1, 2
_WRITTEN = {"MOV", "POP"}
_CHANGED = {"INC", "DEC", "ANL", "ORL", "XRL", "XCH", "XCHD", "DJNZ", "JBC", "CPL", "CLR", "SETB"}
"""What an instruction does to its first operand, and exchanges with its second; every other one reads."""


def _touched(opcode: Opcode) -> int:
    """For watchpoints: a byte for each operand in memory: how it is addressed (watch.c), and what is done."""
    code, place = 0, 0
    for index, operand in enumerate(opcode.operands):
        if operand is Operand.DIRECT:
            how = 1 + opcode.encoding.index(index)
        else:
            how = {Operand.BIT: 3, Operand.NOT_BIT: 3, Operand.AT_RI: 4, Operand.RN: 5}.get(operand, 0)
        if how == 0 or opcode.mnemonic == "MOVX":
            continue
        first = index == 0
        if first and opcode.mnemonic in _WRITTEN:
            done = _WRITES | (_READS if operand is Operand.BIT else 0)
        elif opcode.mnemonic in ("XCH", "XCHD") or (first and opcode.mnemonic in _CHANGED):
            done = _WRITES | _READS
        else:
            done = _READS
        code |= (done << 4 | how) << place
        place += 8
    return code


def c_header() -> str:
    """The table for the C core: CLOCKS_xx and LENGTH_xx by opcode, and arrays by opcode."""
    lines = ["/* Generated from emulator/mcs51/opcodes.py. */", ""]
    for opcode in OPCODES:
        lines.append(f"#define CLOCKS_{opcode.code:02X} {opcode.clocks}")
        lines.append(f"#define LENGTH_{opcode.code:02X} {opcode.length}")
    lengths = ", ".join(str(opcode.length) for opcode in OPCODES)
    branches = ", ".join(str(int(opcode.flow is Flow.BRANCH)) for opcode in OPCODES)
    lines += [
        "",
        f"#define INTERRUPT_CLOCKS {INTERRUPT_CLOCKS}",
        f"#define LENGTHS {lengths}",
        f"#define BRANCHES {branches}",
        f"#define TOUCHED {', '.join(str(_touched(opcode)) for opcode in OPCODES)}",
        "",
    ]
    return "\n".join(lines)
