"""The vocabulary of the facts: what a register, a field and a piece of memory are, and what is checked.

A wrong declaration fails at import, with the name of the register: fields that overlap or do not fit,
a reset value wider than the register, two registers on one address.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from types import MappingProxyType


class Evidence(Enum):
    """How well a fact is known, best first."""

    HARDWARE = "hardware"
    """Said of silicon by people who had it in hand."""
    TRACE = "trace"
    """What software known to work on silicon does and depends on."""
    INFERRED = "inferred"
    """Follows from several sources, and none contradicts it."""
    GUESS = "guess"
    """Sources disagree or are silent; an access is an error under `--strict`."""


class Access(Enum):
    """What the CPU can do with a register or field, and what its write means."""

    RO = "read-only"
    """Writes are ignored; the hardware changes it."""
    RW = "read-write"
    """Reads back what was written."""
    WO = "write-only"
    """Reads give the reset value."""
    W1C = "write 1 to clear"
    """The hardware sets bits; writing 1 clears them, writing 0 leaves them."""
    SELF_CLEARING = "command"
    """A write starts something; reads give the reset value once it is done."""
    FIFO = "fifo"
    """Each read takes an item, each write adds one: never read it twice by accident."""


class Space(Enum):
    """Where an address is meant."""

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

_NAME = re.compile(r"[A-Z][A-Z0-9_]*")


class FactError(ValueError):
    """A declaration that contradicts itself or another one."""


@dataclass(frozen=True, slots=True)
class Field:
    """Some bits of a register.

    Attributes:
        name: a C identifier in capitals, unique in its register.
        bit: the lowest bit, 0 is the least significant of the whole register.
        width: in bits.
        doc: one line.
        access: where it differs from the register's.
        evidence: where it differs from the register's.
        values: named values.
    """

    name: str
    bit: int
    width: int = 1
    doc: str = ""
    access: Access | None = None
    evidence: Evidence | None = None
    values: Mapping[int, str] = field(default_factory=dict)

    @property
    def mask(self) -> int:
        """The field's bits within the register."""
        return ((1 << self.width) - 1) << self.bit

    def get(self, value: int) -> int:
        """The field out of a register's value."""
        return (value & self.mask) >> self.bit

    def put(self, value: int) -> int:
        """The field's value at its place in the register; FactError if it does not fit."""
        if not 0 <= value < 1 << self.width:
            raise FactError(f"{self.name}: {value:#x} does not fit {self.width} bits")
        return value << self.bit


def check_fields(owner: str, fields: Iterable[Field], bits: int) -> None:
    """Fields are C identifiers used once, inside `bits` bits, without overlap, and so are their values.

    Raises:
        FactError: they are not.
    """
    taken = 0
    names = set()
    for part in fields:
        if not _NAME.fullmatch(part.name) or part.name in names:
            raise FactError(f"{owner}.{part.name}: not a C identifier, or used twice")
        if part.width < 1 or part.bit < 0 or part.bit + part.width > bits:
            raise FactError(f"{owner}.{part.name}: bits outside the register")
        if taken & part.mask:
            raise FactError(f"{owner}.{part.name}: overlaps another field")
        if any(not 0 <= value < 1 << part.width for value in part.values):
            raise FactError(f"{owner}.{part.name}: a named value does not fit")
        taken |= part.mask
        names.add(part.name)


@dataclass(frozen=True, slots=True)
class Register:
    """One register.

    Attributes:
        name: a C identifier in capitals, unique in the chip.
        space: address space.
        address: of its first byte.
        evidence: how well it is known that it is there and does this.
        doc: what it does, in a sentence or two.
        access: as the CPU sees it.
        reset: value after a cold reset.
        size: in bytes. A register of several bytes stands most significant byte first, unless `little`.
        little: least significant byte first.
        fields: named bits.
        source: where the fact comes from, in words a reader can follow.
    """

    name: str
    space: Space
    address: int
    evidence: Evidence
    doc: str
    access: Access = Access.RW
    reset: int = 0
    size: int = 1
    little: bool = False
    fields: tuple[Field, ...] = ()
    source: str = ""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise FactError(f"{self.name}: a register is named like a C macro")
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
        """How far the byte at `address` is shifted in the register's value."""
        index = address - self.address
        return 8 * (index if self.little else self.size - 1 - index)

    def field(self, name: str) -> Field:
        """The field of that name; KeyError if there is none."""
        for part in self.fields:
            if part.name == name:
                return part
        raise KeyError(f"{self.name} has no field {name}")

    def __getitem__(self, name: str) -> int:
        """The mask of a field: `USB_STATUS["EP0"]`."""
        return self.field(name).mask


@dataclass(frozen=True, slots=True)
class Memory:
    """A stretch of memory as the CPU sees it, or that only the PCIe side sees.

    Attributes:
        name: a C identifier in capitals.
        space: where it starts.
        address: first byte in that space.
        size: in bytes.
        evidence: how well it is known.
        doc: what it is for.
        pcie: address under which a device behind the PCIe root reaches it, if it can.
        sram: offset into the SRAM this is a window on, if it is one.
        mirror: address in the same space this repeats, if it is a mirror.
        writable: whether a CPU write has an effect.
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
    source: str = ""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise FactError(f"{self.name}: a memory is named like a C macro")
        if self.size < 1 or not 0 <= self.address <= SPACE_SIZE[self.space] - self.size:
            raise FactError(f"{self.name}: {self.address:#x}+{self.size:#x} is outside {self.space.value}")

    @property
    def addresses(self) -> range:
        return range(self.address, self.address + self.size)


class Map:
    """All registers and memories of the chip, by name and by address.

    Raises:
        FactError: two entries claim one name or one address.
    """

    def __init__(self, registers: Iterable[Register], memories: Iterable[Memory]) -> None:
        self.registers = tuple(registers)
        self.memories = tuple(memories)
        self._names: dict[str, Register | Memory] = {}
        self._bytes: dict[tuple[Space, int], Register] = {}
        entries: tuple[Register | Memory, ...] = (*self.registers, *self.memories)
        for entry in entries:
            if entry.name in self._names:
                raise FactError(f"{entry.name}: declared twice")
            self._names[entry.name] = entry
        # By ranges: byte by byte, the megabyte of memory would cost every command a third of a second.
        for one, other in pairwise(sorted(entries, key=lambda entry: (entry.space.value, entry.address))):
            if one.space is other.space and other.address in one.addresses:
                first, second = sorted((one, other), key=entries.index)
                place = f"{other.space.value} {other.address:#06x}"
                raise FactError(f"{second.name}: {place} is {first.name} already")
        for register in self.registers:
            for address in register.addresses:
                self._bytes[register.space, address] = register

    def __iter__(self) -> Iterator[Register]:
        return iter(self.registers)

    def __getitem__(self, name: str) -> Register:
        """The register of that name; KeyError if there is none."""
        entry = self._names[name]
        if not isinstance(entry, Register):
            raise KeyError(f"{name} is memory, not a register")
        return entry

    def memory(self, name: str) -> Memory:
        """The memory of that name; KeyError if there is none."""
        entry = self._names[name]
        if not isinstance(entry, Memory):
            raise KeyError(f"{name} is a register, not memory")
        return entry

    def at(self, space: Space, address: int) -> Register | None:
        """The register that holds this byte, if any."""
        return self._bytes.get((space, address))

    def memory_at(self, space: Space, address: int) -> Memory | None:
        """The memory this byte lies in, if any."""
        for memory in self.memories:
            if memory.space is space and address in memory.addresses:
                return memory
        return None

    def nearest(self, space: Space, address: int) -> Register | None:
        """The declared register closest to an address, for messages."""
        candidates = [register for register in self.registers if register.space is space]
        return min(candidates, key=lambda register: abs(register.address - address), default=None)
