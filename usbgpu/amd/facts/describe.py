"""How the card's registers are addressed, a block of them, and a part of a packet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
        fields: empty where the headers have none.
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
        """By name. They are parsed on first use: a program uses those of one chip."""
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


@dataclass(frozen=True, slots=True)
class Packet:
    """A kind of packet.

    Attributes:
        name: as in the kernel's headers.
        size: dwords that `parts` lie in, without what may follow.
        parts: by name.
    """

    name: str
    size: int
    parts: Mapping[str, Part]

    def part(self, name: str) -> Part:
        """A part. Raises FactError if there is none of that name."""
        if name not in self.parts:
            raise FactError(f"{self.name} has no part {name}")
        return self.parts[name]

    def get(self, words: Sequence[int], name: str) -> int:
        """A part of a packet. Raises FactError if there is none of that name, or the packet is too short."""
        part = self.part(name)
        wide = part.shift + part.width > 32
        if part.dword + wide >= len(words):
            raise FactError(f"{self.name}.{name}: not within {len(words)} dwords")
        value = words[part.dword] | (words[part.dword + 1] << 32 if wide else 0)
        return value >> part.shift & part.mask

    def unpack(self, words: Sequence[int]) -> dict[str, int]:
        """All parts of a packet. Raises FactError if it is too short."""
        return {name: self.get(words, name) for name in self.parts}

    def filled(self, values: Mapping[str, int]) -> list[int]:
        """`size` dwords with these parts. Raises FactError: no such part, or a number that does not fit."""
        words = [0] * self.size
        for name, value in values.items():
            part = self.part(name)
            if not 0 <= value <= part.mask:
                raise FactError(f"{self.name}.{name}: {value:#x} does not fit {part.width} bits")
            words[part.dword] |= value << part.shift & DWORD
            if part.shift + part.width > 32:
                words[part.dword + 1] |= value << part.shift >> 32
        return words


def parts(words: Iterable[str]) -> dict[str, Part]:
    """Parts from `NAME:DWORD:SHIFT:WIDTH` each."""
    split = (word.split(":") for word in words)
    return {name: Part(name, int(dword), int(shift), int(width)) for name, dword, shift, width in split}
