"""The 8051's registers as GDB gets them: numbers, sizes, and the target description.

GDB has no 8051, and accepts a description only for an architecture that it has. The one chosen here is
AArch64: it steps by asking the target (RISC-V's computes the next address from the code), masks no address,
needs no memory for its frames, and allows more registers. So there is a feature with its registers, and one
with the 8051's by their own names, in capitals. Of the first, `pc` is the PC, `sp` the address in IRAM's
window of the byte at SP, and `x30` where the running function returns to as far as the stack shows; the
others read 0. Code addresses are those of `emulator.debug.memory`.
"""

from __future__ import annotations

from dataclasses import dataclass
from xml.sax.saxutils import quoteattr

from emulator.board import Board
from emulator.debug.frames import backtrace
from emulator.debug.memory import address_of, linked, located, split
from sdk.errors import UsageError

ARCHITECTURE = "aarch64"
_CARRIER = "org.gnu.gdb.aarch64.core"
_CODE_BANK, _SP, _DPL, _DPH = 0x96, 0x81, 0x82, 0x83


@dataclass(frozen=True, slots=True)
class CpuRegister:
    """A register.

    Attributes:
        name: in the target description.
        size: in bytes, least significant first on the wire.
        sfr: the address of a special function register, 0 for others.
        kind: GDB's type.
    """

    name: str
    size: int = 1
    sfr: int = 0
    kind: str = "uint8"


_SFRS = {
    "A": 0xE0, "B": 0xF0, "PSW": 0xD0, "SP": _SP, "DPL": _DPL, "DPH": _DPH, "DPX": 0x93, "CODE_BANK": 0x96,
    "IE": 0xA8, "IP": 0xB8, "TCON": 0x88, "TMOD": 0x89, "TL0": 0x8A, "TH0": 0x8C, "TL1": 0x8B, "TH1": 0x8D,
    "SCON": 0x98, "SBUF": 0x99, "P2": 0xA0, "PCON": 0x87,
}  # fmt: skip
CARRIED = (
    *(CpuRegister(f"x{number}", 8, kind="uint64") for number in range(31)),
    CpuRegister("sp", 8, kind="data_ptr"),
    CpuRegister("pc", 8, kind="code_ptr"),
    CpuRegister("cpsr", 4, kind="uint32"),
)
"""Registers of GDB's architecture, by GDB's number."""
OWN = (
    *(CpuRegister(f"R{number}") for number in range(8)),
    *(CpuRegister(name, sfr=address) for name, address in _SFRS.items()),
    CpuRegister("DPTR", 2, kind="uint16"),
)
"""The 8051's, with the numbers that follow, in this order."""
REGISTERS = (*CARRIED, *OWN)
_RA, _STACK, PC = 30, 31, 32


def description() -> str:
    """The target description (GDB manual, "Target Descriptions")."""

    def feature(name: str, registers: tuple[CpuRegister, ...], first: int) -> str:
        rows = "".join(
            f'<reg name={quoteattr(register.name)} bitsize="{8 * register.size}" type="{register.kind}" '
            f'regnum="{number}"/>\n'
            for number, register in enumerate(registers, first)
        )
        return f'<feature name="{name}">\n{rows}</feature>\n'

    return (
        '<?xml version="1.0"?>\n<!DOCTYPE target SYSTEM "gdb-target.dtd">\n<target version="1.0">\n'
        f"<architecture>{ARCHITECTURE}</architecture>\n"
        f"{feature(_CARRIER, CARRIED, 0)}{feature('org.towline.mcs51', OWN, len(CARRIED))}</target>\n"
    )


class Registers:
    """Reads and writes them.

    Args:
        board: whose CPU's.
    """

    def __init__(self, board: Board) -> None:
        self._board = board
        self._cpu = board.machine.cpu

    def read(self, number: int) -> bytes:
        """A register's bytes.

        Raises:
            UsageError: there is no register of that number.
        """
        register = _register(number)
        return self._value(number, register).to_bytes(register.size, "little")

    def write(self, number: int, data: bytes) -> None:
        """Change a register; writes to those that only GDB's architecture has are ignored.

        Raises:
            UsageError: there is no register of that number, it has another size, or the value is invalid.
        """
        register = _register(number)
        if len(data) != register.size:
            raise UsageError(f"{register.name} has {register.size} bytes")
        value = int.from_bytes(data, "little")
        if number == PC:
            self._set_pc(value)
        elif number == _STACK:
            space, place = located(value)
            if space != "iram":
                raise UsageError("the stack is in IRAM")
            self._cpu.set_sfr(_SP, place)
        elif register.name == "DPTR":
            self._cpu.set_sfr(_DPL, value & 0xFF)
            self._cpu.set_sfr(_DPH, value >> 8)
        elif register.sfr:
            self._cpu.set_sfr(register.sfr, value)
        elif register in OWN:
            self._cpu.iram[self._in_bank(number)] = value

    def _value(self, number: int, register: CpuRegister) -> int:
        if number == PC:
            return linked(self._cpu.bank, self._cpu.pc)
        if number == _STACK:
            return address_of("iram", self._cpu.sp)
        if number == _RA:
            frames = backtrace(self._board)
            return linked(frames[1].bank, frames[1].pc) if len(frames) > 1 else 0
        if register.name == "DPTR":
            return self._cpu.dptr
        if register.sfr:
            return self._cpu.sfr(register.sfr)
        return self._cpu.iram[self._in_bank(number)] if register in OWN else 0

    def _in_bank(self, number: int) -> int:
        """Where R0 to R7 are in IRAM."""
        return (self._cpu.psw & 0x18) + number - len(CARRIED)

    def _set_pc(self, value: int) -> None:
        space, place = located(value)
        bank, address = split(place)
        if space != "code" or (bank and address < 0x8000):
            raise UsageError(f"no code is at {value:#x}")
        self._cpu.pc = address
        if address >= 0x8000:
            self._cpu.set_sfr(_CODE_BANK, bank)


def _register(number: int) -> CpuRegister:
    if number >= len(REGISTERS):
        raise UsageError(f"there is no register {number}")
    return REGISTERS[number]
