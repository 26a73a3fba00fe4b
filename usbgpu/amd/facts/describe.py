"""How a register is written down, a block of them, and a part of a packet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DWORD = 0xFFFF_FFFF


class FactError(Exception):
    """A declaration, or a use of one, that contradicts itself: a mistake in this code."""


@dataclass(frozen=True, slots=True)
class Field:
    """Bits of a register.

    Attributes:
        shift: of the lowest bit.
        width: bits.
    """

    name: str
    shift: int
    width: int

    @property
    def mask(self) -> int:
        return ((1 << self.width) - 1) << self.shift

    def of(self, value: int) -> int:
        """The field's value in a register's."""
        return (value & self.mask) >> self.shift


@dataclass(frozen=True, slots=True)
class Register:
    """A dword register of an IP block.

    Attributes:
        name: as in the kernel's headers, without `reg`.
        offset: in dwords, from the base of a segment.
        segment: index of that base among the block's (`BASE_IDX` in the headers).
        fields: by name; none where the headers have none.
    """

    name: str
    offset: int
    segment: int
    fields: Mapping[str, Field] = field(default_factory=dict, compare=False)

    def pack(self, value: int = 0, /, **fields: int) -> int:
        """`value` with fields replaced.

        Raises:
            FactError: there is no such field, or the number does not fit.
        """
        for name, number in fields.items():
            part = self._field(name)
            if not 0 <= number < 1 << part.width:
                raise FactError(f"{self.name}.{name}: {number:#x} does not fit {part.width} bits")
            value = value & ~part.mask | number << part.shift
        return value & DWORD

    def get(self, value: int, name: str) -> int:
        """A field of `value`. Raises FactError if there is none of that name."""
        return self._field(name).of(value)

    def unpack(self, value: int) -> dict[str, int]:
        """All fields of `value`."""
        return {name: part.of(value) for name, part in self.fields.items()}

    def _field(self, name: str) -> Field:
        if name not in self.fields:
            raise FactError(f"{self.name} has no field {name}")
        return self.fields[name]


@dataclass(frozen=True, slots=True)
class Block:
    """The registers of one version of an IP block, as far as anything here uses them.

    Attributes:
        name: GC, MMHUB, NBIO, MP, SMU, HDP or OSSSYS: the same for all versions.
        version: of the headers that they come from, such as `gc_11_0_0`.
        source: of the facts.
    """

    name: str
    version: str
    source: str
    registers: Mapping[str, Register]

    def __getitem__(self, name: str) -> Register:
        """A register by name. Raises FactError if there is none."""
        if name not in self.registers:
            raise FactError(f"{self.version} has no register {name}")
        return self.registers[name]


@dataclass(frozen=True, slots=True)
class Part:
    """Bits of a packet.

    Attributes:
        dword: where they begin.
        shift: of the lowest bit.
        width: bits; 64 for what takes two dwords, the low one first.
    """

    name: str
    dword: int
    shift: int
    width: int

    @property
    def mask(self) -> int:
        return (1 << self.width) - 1


def block(name: str, version: str, source: str, text: str) -> Block:
    """A block from the generated form: a line a register, `NAME SEGMENT OFFSET FIELD:SHIFT:WIDTH...`."""
    registers = {}
    for line in text.split("\n"):
        if not line:
            continue
        register, segment, offset, *rest = line.split()
        fields = {}
        for part in rest:
            field_name, shift, width = part.split(":")
            fields[field_name] = Field(field_name, int(shift), int(width))
        registers[register] = Register(register, int(offset, 16), int(segment), fields)
    return Block(name, version, source, registers)
