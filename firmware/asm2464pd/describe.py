"""How the chip's registers and memories are declared and addressed.

A wrong declaration fails at import, with the name of the register: fields that overlap or do not fit,
a reset value wider than the register, two registers at one address.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from types import MappingProxyType

from sdk.facts.registers import MACRO, Access, Evidence, FactError, Register, check_fields


class Space(Enum):
    """An address space."""

    __hash__ = object.__hash__  # quicker than Enum's, which calls Python: spaces are keys on hot paths

    SFR = "sfr"
    """The 8051's special function registers, 0x80 to 0xFF."""
    XDATA = "xdata"
    """MOVX with DPX = 0, 64 KiB."""
    PHY = "phy"
    """MOVX with DPX = 1: PHY and PCIe switch registers, 64 KiB."""
    SRAM = "sram"
    """The 512 KiB data buffer, offsets from its first byte."""


SPACE_SIZE: Mapping[Space, int] = MappingProxyType(
    {Space.SFR: 0x100, Space.XDATA: 0x10000, Space.PHY: 0x10000, Space.SRAM: 0x80000}
)


@dataclass(frozen=True)
class ByteRegister(Register):
    """A register that the 8051 accesses byte by byte.

    Attributes:
        name: a C identifier in capitals, unique in the chip.
        space: address space.
        address: of its first byte.
        evidence: how well its address and behaviour are known.
        doc: what it does, in a sentence or two.
        access: as the CPU sees it.
        reset: value after a cold reset.
        size: in bytes. A register of several bytes has the most significant byte first, unless `little`.
        little: least significant byte first.
        fields: named bits.
        source: where the fact comes from, so that a reader can look it up.
    """

    space: Space
    address: int
    evidence: Evidence
    doc: str
    access: Access = Access.RW
    reset: int = 0
    little: bool = False
    source: str = ""

    def __post_init__(self) -> None:
        if not MACRO.fullmatch(self.name):
            raise FactError(f"{self.name}: a register must be named like a C macro")
        if self.size < 1 or not 0 <= self.address <= SPACE_SIZE[self.space] - self.size:
            raise FactError(f"{self.name}: {self.address:#x}+{self.size} is outside {self.space.value}")
        bits = 8 * self.size
        if not 0 <= self.reset < 1 << bits:
            raise FactError(f"{self.name}: reset value {self.reset:#x} does not fit {bits} bits")
        check_fields(self.name, self.fields, bits)

    @property
    def addresses(self) -> range:
        """Every byte address of the register."""
        return range(self.address, self.address + self.size)

    def shift(self, address: int) -> int:
        """The lowest bit, in the register's value, of the byte at `address`."""
        index = address - self.address
        return 8 * (index if self.little else self.size - 1 - index)


@dataclass(frozen=True, slots=True)
class Memory:
    """A range of memory that the CPU sees, or only the PCIe side.

    Attributes:
        name: a C identifier in capitals.
        space: where it starts.
        address: first byte in that space.
        size: in bytes.
        evidence: how well it is known.
        doc: what it is for.
        pcie: address at which a device behind the PCIe root reaches it, if it can.
        sram: offset into the SRAM, if this is a window on it.
        mirror: address in the same space that this repeats, if it is a mirror.
        writable: whether a CPU write has an effect.
        landing: whether data from outside arrives here: firmware may read it without having written it.
    """

    name: str
    space: Space
    address: int
    size: int
    evidence: Evidence
    doc: str
    pcie: int | None = None
    sram: int | None = None
    mirror: int | None = None
    writable: bool = True
    landing: bool = False
    source: str = ""

    def __post_init__(self) -> None:
        if not MACRO.fullmatch(self.name):
            raise FactError(f"{self.name}: a memory must be named like a C macro")
        if self.size < 1 or not 0 <= self.address <= SPACE_SIZE[self.space] - self.size:
            raise FactError(f"{self.name}: {self.address:#x}+{self.size:#x} is outside {self.space.value}")

    @property
    def addresses(self) -> range:
        return range(self.address, self.address + self.size)


class Map:
    """All registers and memories of the chip, by name and by address.

    Raises:
        FactError: two entries have the same name or address.
    """

    def __init__(self, registers: Iterable[ByteRegister], memories: Iterable[Memory]) -> None:
        self.registers = tuple(registers)
        self.memories = tuple(memories)
        self._names: dict[str, ByteRegister | Memory] = {}
        self._bytes: dict[tuple[Space, int], ByteRegister] = {}
        entries: tuple[ByteRegister | Memory, ...] = (*self.registers, *self.memories)
        for entry in entries:
            if entry.name in self._names:
                raise FactError(f"{entry.name}: declared twice")
            self._names[entry.name] = entry
        # By ranges: byte by byte, the megabyte of memory would cost each run a third of a second.
        for one, other in pairwise(sorted(entries, key=lambda entry: (entry.space.value, entry.address))):
            if one.space is other.space and other.address in one.addresses:
                first, second = sorted((one, other), key=entries.index)
                place = f"{other.space.value} {other.address:#06x}"
                raise FactError(f"{second.name}: {place} is {first.name} already")
        for register in self.registers:
            for address in register.addresses:
                self._bytes[register.space, address] = register

    def __iter__(self) -> Iterator[ByteRegister]:
        return iter(self.registers)

    def __getitem__(self, name: str) -> ByteRegister:
        """The register of that name; KeyError if there is none."""
        entry = self._names[name]
        if not isinstance(entry, ByteRegister):
            raise KeyError(f"{name} is memory, not a register")
        return entry

    def memory(self, name: str) -> Memory:
        """The memory of that name; KeyError if there is none."""
        entry = self._names[name]
        if not isinstance(entry, Memory):
            raise KeyError(f"{name} is a register, not memory")
        return entry

    def at(self, space: Space, address: int) -> ByteRegister | None:
        """The register that holds this byte, if any."""
        return self._bytes.get((space, address))

    def memory_at(self, space: Space, address: int) -> Memory | None:
        """The memory this byte lies in, if any."""
        for memory in self.memories:
            if memory.space is space and address in memory.addresses:
                return memory
        return None

    def nearest(self, space: Space, address: int) -> ByteRegister | None:
        """The declared register closest to an address, for messages."""
        candidates = [register for register in self.registers if register.space is space]
        return min(candidates, key=lambda register: abs(register.address - address), default=None)
