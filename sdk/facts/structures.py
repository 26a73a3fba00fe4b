"""Structures of bytes on a wire, in memory or in flash: packed and unpacked from the declaration alone.

A declaration that does not add up fails at import; bytes that do not fit a declaration are `Malformed`, with
every finding: which member, where, what was expected and what was found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from sdk.facts.registers import Evidence, FactError, Field, Fielded, check_fields

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_DECLARATION = re.compile(r"u(8|16|32|64) ([A-Za-z_]\w*)(?:\[(\d+)\])?", re.ASCII)

Value = int | bytes | bytearray | Sequence[int]
"""What a member may be given: an integer, bytes if it is raw, integers if it is an array."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing wrong with some bytes.

    Attributes:
        what: the member or property.
        offset: of its first byte, from the start of the bytes examined.
        expected: in words, or a number as text.
        found: likewise.
    """

    what: str
    offset: int
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.what} at offset {self.offset:#x} is {self.found}, expected {self.expected}"


class Malformed(ValueError):
    """Bytes that do not fit their declaration.

    Attributes:
        findings: what is wrong, in order of offset.
    """

    def __init__(self, what: str, findings: Iterable[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__(f"{what}: {'; '.join(map(str, self.findings))}")


@dataclass(frozen=True)
class Member(Fielded):
    """Some bytes of a structure: an unsigned integer, several of one size, or raw bytes.

    Attributes:
        name: a C identifier.
        size: in bytes, of all its integers.
        doc: one line.
        big: most significant byte first.
        raw: bytes rather than an integer.
        fixed: the only value it may have.
        fields: named bits of an integer.
        values: named values of an integer.
        count: of the integers of an array; 0 for a single integer.
    """

    name: str
    size: int
    doc: str = ""
    big: bool = False
    raw: bool = False
    fixed: int | None = None
    fields: tuple[Field, ...] = ()
    values: Mapping[int, str] = field(default_factory=dict)
    count: int = 0

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise FactError(f"{self.name}: the name of a member must be a C identifier")
        if self.size < 1:
            raise FactError(f"{self.name}: a member has at least one byte")
        if self.raw and (self.fixed is not None or self.fields or self.values or self.big or self.count):
            raise FactError(f"{self.name}: raw bytes have no value, fields, order or elements")
        if self.count and (self.fixed is not None or self.size % self.count):
            raise FactError(f"{self.name}: {self.count} elements have no fixed value, and all the same size")
        limit = 1 << 8 * self.element
        if self.fixed is not None and not 0 <= self.fixed < limit:
            raise FactError(f"{self.name}: {self.fixed:#x} does not fit {self.size} bytes")
        if any(not 0 <= value < limit for value in self.values):
            raise FactError(f"{self.name}: a named value does not fit")
        check_fields(self.name, self.fields, 8 * self.element)

    @property
    def element(self) -> int:
        """Bytes of one integer."""
        return self.size // (self.count or 1)

    def decode(self, data: bytes) -> int:
        """The integer that an element's bytes encode."""
        return int.from_bytes(data, "big" if self.big else "little")

    def encode(self, value: Value) -> bytes:
        """The member's bytes; an array may be given short. OverflowError if the value does not fit."""
        order: Literal["big", "little"] = "big" if self.big else "little"
        if isinstance(value, int) and (value == 0 or not self.raw):
            return value.to_bytes(self.element, order).ljust(self.size, b"\0")
        if self.raw and isinstance(value, bytes | bytearray) and len(value) == self.size:
            return bytes(value)
        if not isinstance(value, int) and len(value) <= self.count:
            return b"".join(number.to_bytes(self.element, order) for number in value).ljust(self.size, b"\0")
        raise OverflowError


@dataclass(frozen=True)
class Struct:
    """Members one after the other.

    Attributes:
        name: a C identifier.
        size: in bytes; the members must add up to it.
        members: in order, without gaps (a reserved stretch is a member).
        doc: what it is.
        evidence: how well it is known.
        source: where the fact comes from.
        offsets: where each member starts, by its name.
    """

    name: str
    size: int
    members: tuple[Member, ...]
    doc: str
    evidence: Evidence
    source: str
    offsets: Mapping[str, int] = field(init=False, repr=False, compare=False)
    _members: Mapping[str, Member] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise FactError(f"{self.name}: the name of a structure must be a C identifier")
        offsets: dict[str, int] = {}
        end = 0
        for member in self.members:
            if member.name in offsets:
                raise FactError(f"{self.name}.{member.name}: declared twice")
            offsets[member.name] = end
            end += member.size
        if end != self.size:
            raise FactError(f"{self.name}: its members have {end} bytes, not {self.size}")
        object.__setattr__(self, "offsets", MappingProxyType(offsets))
        object.__setattr__(self, "_members", {member.name: member for member in self.members})

    def member(self, name: str) -> Member:
        """The member of that name. Raises FactError if there is none."""
        try:
            return self._members[name]
        except KeyError:
            raise FactError(f"{self.name} has no member {name}") from None

    def offset(self, name: str) -> int:
        """Where a member starts. Raises FactError if there is none of that name."""
        self.member(name)
        return self.offsets[name]

    def part(self, data: bytes, name: str) -> bytes:
        """The bytes of one member."""
        start = self.offset(name)
        return bytes(data[start : start + self.member(name).size])

    def pack(self, /, **values: Value) -> bytes:
        """The structure's bytes. A member not named is its fixed value, or zero; an array may be given short.

        Raises:
            FactError: no member has that name.
            Malformed: a value does not fit its member.
        """
        for name in values:
            self.member(name)
        packed = bytearray()
        for member in self.members:
            value = values.get(member.name, member.fixed or 0)
            try:
                packed += member.encode(value)
            except OverflowError:
                found = f"{value:#x}" if isinstance(value, int) else f"{len(value)} elements"
                if isinstance(value, bytes | bytearray):
                    found = f"{len(value)} bytes"
                expected = f"{member.size} bytes"
                raise Malformed(self.name, [Finding(member.name, len(packed), expected, found)]) from None
        return bytes(packed)

    def examine(self, data: bytes) -> list[Finding]:
        """Why these bytes are not this structure; empty if they are."""
        if len(data) != self.size:
            return [Finding("length", 0, f"{self.size} bytes", f"{len(data)} bytes")]
        return [
            Finding(member.name, self.offsets[member.name], f"{member.fixed:#x}", f"{found:#x}")
            for member in self.members
            if member.fixed is not None
            and (found := member.decode(self.part(data, member.name))) != member.fixed
        ]

    def unpack(self, data: bytes) -> dict[str, int]:
        """The integer members by name; for raw ones see `part`, for arrays `get`.

        Raises:
            Malformed: the length or a fixed member is wrong.
        """
        if findings := self.examine(data):
            raise Malformed(self.name, findings)
        return {
            member.name: member.decode(self.part(data, member.name))
            for member in self.members
            if not member.raw and not member.count
        }

    def unpack_from(self, data: bytes, offset: int = 0) -> dict[str, int]:
        """`unpack`, of the structure at an offset in longer bytes."""
        return self.unpack(data[offset : offset + self.size])

    def get(self, data: bytes, name: str, index: int = 0) -> int:
        """An integer member of the structure at the start of `data`, or one element of an array.

        Raises:
            FactError: there is no such member, or no such element in it.
            Malformed: the data ends before it.
        """
        member = self.member(name)
        if member.raw or not 0 <= index < (member.count or 1):
            raise FactError(f"{self.name}.{name} has no element {index}")
        start = self.offsets[name] + index * member.element
        end = start + member.element
        if end > len(data):
            raise Malformed(self.name, [Finding("length", 0, f"{end} bytes or more", f"{len(data)} bytes")])
        return member.decode(data[start:end])


def c_struct(
    name: str, members: str, evidence: Evidence, source: str, doc: str = "", *, packed: bool = False
) -> Struct:
    """A structure as C lays it out: little-endian members, each at a multiple of its integers' size.

    What the compiler leaves free becomes raw members, named `gap_` and their offset.

    Args:
        name: as in the C header.
        members: a member each: `TYPE NAME` or `TYPE NAME[COUNT]`, with u8, u16, u32 or u64 for the type;
            separated by commas.
        evidence: how well it is known.
        source: where the fact comes from.
        doc: what it is.
        packed: one member right behind the other, as by the compilers' attribute.

    Raises:
        FactError: a member cannot be read, or two have one name.
    """
    made: list[Member] = []
    end = widest = 0

    def align(to: int) -> None:
        nonlocal end
        if gap := 0 if packed else -end % to:
            made.append(Member(f"gap_{end:x}", gap, raw=True))
            end += gap

    for declaration in members.split(","):
        found = _DECLARATION.fullmatch(declaration.strip())
        if found is None:
            raise FactError(f"{name}: {declaration.strip()!r} is not a member declaration")
        element, count = int(found[1]) // 8, int(found[3] or 0)
        align(element)
        widest = max(widest, element)
        made.append(Member(found[2], element * (count or 1), count=count))
        end += made[-1].size
    align(widest)
    return Struct(name, end, tuple(made), doc, evidence, source)
