"""The chip's memories as a debugger sees them: by space and address, and as one range for GDB.

A read has no side effect: it shows storage, so that a FIFO keeps its bytes. A write to memory changes
storage; one to a register of a block acts as the CPU's write, with all effects; one to a special function
register changes only its storage.

GDB has one range of addresses. Each space is a window of it (`WINDOWS`); CODE is where sdcc's linker places
it, bank 1 from 0x18000 on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from emulator.board import Board
from emulator.image_file import BANK_START, HEX_BANK1
from firmware.asm2464pd.describe import Space
from sdk.errors import UsageError


@dataclass(frozen=True, slots=True)
class Window:
    """Where a space is in GDB's range.

    Attributes:
        space: its name.
        start: GDB's address of its first byte.
        low: the space's own address of that byte.
        size: in bytes.
    """

    space: str
    start: int
    low: int
    size: int


WINDOWS = (
    Window("code", 0x000000, 0x0000, 0x20000),
    Window("iram", 0x800000, 0x00, 0x100),
    Window("sfr", 0x810080, 0x80, 0x80),
    Window("xdata", 0x820000, 0x0000, 0x10000),
    Window("phy", 0x830000, 0x0000, 0x10000),
    Window("sram", 0x900000, 0x00000, 0x80000),
)
SPACES = {window.space: window for window in WINDOWS}
"""The windows by the name of their space."""
_BUS = {"xdata": Space.XDATA, "phy": Space.PHY, "sram": Space.SRAM}


def located(address: int, size: int = 1) -> tuple[str, int]:
    """The space and address there that GDB's address means.

    Raises:
        UsageError: no window holds all those bytes.
    """
    for window in WINDOWS:
        if window.start <= address and address + size <= window.start + window.size:
            return window.space, address - window.start + window.low
    raise UsageError(f"no memory is at {address:#x}", hint="docs/debugging-firmware.md has the windows")


def address_of(space: str, address: int) -> int:
    """GDB's address of a byte."""
    window = SPACES[space]
    return window.start + address - window.low


def linked(bank: int, address: int) -> int:
    """A code address as the linker numbers it, as do this module and GDB."""
    return address + (bank * HEX_BANK1 if address >= BANK_START else 0)


def split(place: int) -> tuple[int, int]:
    """(bank, CODE address) of a linked address."""
    return (1, place - HEX_BANK1) if place >= HEX_BANK1 else (0, place)


class Memory:
    """Reads and writes by space and address.

    Args:
        board: whose memory it is.
    """

    def __init__(self, board: Board) -> None:
        self._bus = board.machine.bus
        self._cpu = board.machine.cpu

    def read(self, space: str, address: int, size: int) -> bytes:
        """Bytes of storage.

        Raises:
            UsageError: not all of them exist.
        """
        _check(space, address, size)
        if space == "code":
            return bytes(self._code(address, size))
        if space == "iram":
            return bytes(self._cpu.iram[address : address + size])
        if space == "sfr":
            return bytes(self._cpu.sfr(place) for place in range(address, address + size))
        return self._bus.load(_BUS[space], address, size)

    def write(self, space: str, address: int, data: bytes) -> None:
        """Change bytes.

        Raises:
            UsageError: not all of them exist, or they are code.
            Unmodelled: under strict, as for the CPU.
        """
        _check(space, address, len(data))
        if space == "code":
            raise UsageError("code cannot be changed", hint="build the firmware again")
        if space == "iram":
            self._cpu.iram[address : address + len(data)] = data
        elif space == "sfr":
            for place, value in enumerate(data, address):
                self._cpu.set_sfr(place, value)
        elif space == "sram":
            self._bus.store(Space.SRAM, address, data)
        else:
            for place, value in enumerate(data, address):
                if self._bus.facts.at(_BUS[space], place) is not None:
                    self._bus.cpu_write(_BUS[space], place, value)
                else:
                    self._bus.store(_BUS[space], place, bytes((value,)))

    def _code(self, place: int, size: int) -> Iterator[int]:
        for linked_address in range(place, place + size):
            bank, address = split(linked_address)
            yield self._cpu.code(bank)[address]


def _check(space: str, address: int, size: int) -> None:
    window = SPACES.get(space)
    if window is None:
        raise UsageError(f"there is no space {space}", hint=f"spaces: {', '.join(SPACES)}")
    if address < window.low or address + size > window.low + window.size:
        last = window.low + window.size - 1
        raise UsageError(
            f"{space} {address:#x} does not exist", hint=f"{space} is {window.low:#x} to {last:#x}"
        )
