"""How the card's registers are addressed, a block of them, and a part of a packet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from sdk.facts.registers import FactError, Field, Register

DWORD = 0xFFFF_FFFF


@dataclass(frozen=True)
class DwordRegister(Register):
    """A register of an IP block, 4 bytes.

    Attributes:
        name: as in the kernel's headers, without `reg`.
        offset: in dwords, from the base of a segment.
        segment: index of that base among the block's (`BASE_IDX` in the headers).
        fields: none where the headers have none.
    """

    offset: int
    segment: int
    size: int = field(default=4, kw_only=True)


@dataclass(frozen=True)
class Block:
    """The registers of one version of an IP block, as far as anything here uses them.

    Attributes:
        name: GC, MMHUB, NBIO, MP, SMU, HDP or OSSSYS: the same for all versions.
        version: of the headers that they come from, such as `gc_11_0_0`.
        source: of the facts.
        text: a line a register, `NAME SEGMENT OFFSET FIELD:BIT:WIDTH...`.
    """

    name: str
    version: str
    source: str
    text: str = field(repr=False)

    @cached_property
    def registers(self) -> Mapping[str, DwordRegister]:
        """By name. They are read when they are first asked for: a program uses one chip's of several."""
        return {register.name: register for register in map(_register, self.text.strip().split("\n"))}

    def __getitem__(self, name: str) -> DwordRegister:
        """A register by name. Raises FactError if there is none."""
        if name not in self.registers:
            raise FactError(f"{self.version} has no register {name}")
        return self.registers[name]


def _register(line: str) -> DwordRegister:
    name, segment, offset, *rest = line.split()
    fields = []
    for part in rest:
        label, bit, width = part.split(":")
        fields.append(Field(label, int(bit), int(width)))
    return DwordRegister(name, int(offset, 16), int(segment), fields=tuple(fields))


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
