"""The vocabulary of bytes on a wire or in flash: structures of members, packed and unpacked from the
declaration alone.

A declaration that does not add up fails at import; bytes that do not fit a declaration are `Malformed`, with
every finding: which member, where, what was expected and what stood there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from firmware.asm2464pd.describe import Evidence, FactError, Field, check_fields

_MEMBER = re.compile(r"[a-z][a-z0-9_]*")
_STRUCT = re.compile(r"[A-Z][A-Z0-9_]*")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing wrong with some bytes.

    Attributes:
        what: the member or property.
        offset: of its first byte, from the start of the bytes examined.
        expected: in words or as a number in words.
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


@dataclass(frozen=True, slots=True)
class Member:
    """Some bytes of a structure: an unsigned integer, or raw bytes.

    Attributes:
        name: a C identifier in small letters.
        size: in bytes.
        doc: one line.
        big: most significant byte first.
        raw: bytes rather than an integer.
        fixed: the only value it may have.
        fields: named bits of an integer.
        values: named values of an integer.
    """

    name: str
    size: int
    doc: str = ""
    big: bool = False
    raw: bool = False
    fixed: int | None = None
    fields: tuple[Field, ...] = ()
    values: Mapping[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not _MEMBER.fullmatch(self.name):
            raise FactError(f"{self.name}: a member is named like a C variable")
        if self.size < 1:
            raise FactError(f"{self.name}: a member has at least one byte")
        if self.raw and (self.fixed is not None or self.fields or self.values or self.big):
            raise FactError(f"{self.name}: raw bytes have no value, fields or order")
        limit = 1 << 8 * self.size
        if self.fixed is not None and not 0 <= self.fixed < limit:
            raise FactError(f"{self.name}: {self.fixed:#x} does not fit {self.size} bytes")
        if any(not 0 <= value < limit for value in self.values):
            raise FactError(f"{self.name}: a named value does not fit")
        check_fields(self.name, self.fields, 8 * self.size)

    def decode(self, data: bytes) -> int:
        """The integer that the member's bytes stand for."""
        return int.from_bytes(data, "big" if self.big else "little")

    def encode(self, value: int) -> bytes:
        """The member's bytes; OverflowError if the value does not fit."""
        return value.to_bytes(self.size, "big" if self.big else "little")

    def bits(self, name: str) -> Field:
        """The field of that name; KeyError if there is none."""
        for part in self.fields:
            if part.name == name:
                return part
        raise KeyError(f"{self.name} has no field {name}")


@dataclass(frozen=True)
class Struct:
    """Members one after the other.

    Attributes:
        name: a C identifier in capitals.
        size: in bytes; the members must add up to it.
        members: in order, without gaps (a reserved stretch is a member).
        doc: what it is.
        evidence: how well it is known.
        source: where the fact comes from.
    """

    name: str
    size: int
    members: tuple[Member, ...]
    doc: str
    evidence: Evidence
    source: str
    _offsets: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not _STRUCT.fullmatch(self.name):
            raise FactError(f"{self.name}: a structure is named like a C macro")
        offsets: dict[str, int] = {}
        end = 0
        for member in self.members:
            if member.name in offsets:
                raise FactError(f"{self.name}.{member.name}: declared twice")
            offsets[member.name] = end
            end += member.size
        if end != self.size:
            raise FactError(f"{self.name}: its members have {end} bytes, not {self.size}")
        object.__setattr__(self, "_offsets", MappingProxyType(offsets))

    def member(self, name: str) -> Member:
        """The member of that name; KeyError if there is none."""
        for member in self.members:
            if member.name == name:
                return member
        raise KeyError(f"{self.name} has no member {name}")

    def offset(self, name: str) -> int:
        """Where a member starts; KeyError if there is none of that name."""
        return self._offsets[name]

    def part(self, data: bytes, name: str) -> bytes:
        """The bytes of one member."""
        start = self.offset(name)
        return bytes(data[start : start + self.member(name).size])

    def pack(self, **values: int | bytes) -> bytes:
        """The structure's bytes. A member not named is its fixed value, or zero.

        Raises:
            KeyError: no member has that name.
            Malformed: a value does not fit its member.
        """
        if unknown := values.keys() - self._offsets.keys():
            raise KeyError(f"{self.name} has no member {', '.join(sorted(unknown))}")
        packed = bytearray()
        for member in self.members:
            value = values.get(member.name, member.fixed or 0)
            if isinstance(value, int) and not member.raw:
                try:
                    packed += member.encode(value)
                except OverflowError:
                    raise self._misfit(member, f"{value:#x}") from None
            elif value == 0:
                packed += bytes(member.size)
            elif isinstance(value, bytes | bytearray) and len(value) == member.size:
                packed += value
            else:
                raise self._misfit(member, f"{len(value)} bytes" if isinstance(value, bytes) else repr(value))
        return bytes(packed)

    def examine(self, data: bytes) -> list[Finding]:
        """What keeps these bytes from being this structure; empty if nothing does."""
        if len(data) != self.size:
            return [Finding("length", 0, f"{self.size} bytes", f"{len(data)} bytes")]
        return [
            Finding(member.name, self.offset(member.name), f"{member.fixed:#x}", f"{found:#x}")
            for member in self.members
            if member.fixed is not None
            and (found := member.decode(self.part(data, member.name))) != member.fixed
        ]

    def unpack(self, data: bytes) -> dict[str, int]:
        """The integer members by name; for raw ones see `part`.

        Raises:
            Malformed: the length or a fixed member is wrong.
        """
        if findings := self.examine(data):
            raise Malformed(self.name, findings)
        return {
            member.name: member.decode(self.part(data, member.name))
            for member in self.members
            if not member.raw
        }

    def _misfit(self, member: Member, found: str) -> Malformed:
        return Malformed(
            self.name, [Finding(member.name, self.offset(member.name), f"{member.size} bytes", found)]
        )
