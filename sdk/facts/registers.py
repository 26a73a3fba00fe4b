"""Registers and their fields, and how well a fact is known.

What belongs to one way of addressing registers is added where those registers are declared.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

MACRO = re.compile(r"[A-Z][A-Z0-9_]*")
"""The form of register and field names: a C macro's."""


def macro(text: str) -> str:
    """Words as part of a C name."""
    return re.sub(r"[^A-Z0-9]+", "_", text.upper()).strip("_")


class Evidence(Enum):
    """How well a fact is known, best first."""

    HARDWARE = "hardware"
    """Reported of silicon by people who had it in hand."""
    TRACE = "trace"
    """What software known to work on silicon does and depends on."""
    INFERRED = "inferred"
    """Follows from several sources, and none contradicts it."""
    GUESS = "guess"
    """Sources disagree or are silent; an access is an error under `--strict`."""


class Access(Enum):
    """What software can do with a register or field, and what its write means."""

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


class FactError(ValueError):
    """A declaration, or a use of one, that contradicts itself or another one: a mistake in the code."""


@dataclass(frozen=True, slots=True)
class Field:
    """Some bits of an integer.

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
        if not MACRO.fullmatch(part.name) or part.name in names:
            raise FactError(f"{owner}.{part.name}: not a C identifier, or used twice")
        if part.width < 1 or part.bit < 0 or part.bit + part.width > bits:
            raise FactError(f"{owner}.{part.name}: bits outside the register")
        if taken & part.mask:
            raise FactError(f"{owner}.{part.name}: overlaps another field")
        if any(not 0 <= value < 1 << part.width for value in part.values):
            raise FactError(f"{owner}.{part.name}: a named value does not fit")
        taken |= part.mask
        names.add(part.name)


class Fielded:
    """What has named bits: a register, a member of a structure.

    Attributes:
        name: its own.
        fields: the bits.
    """

    name: str
    fields: tuple[Field, ...]

    @cached_property
    def _by_name(self) -> Mapping[str, Field]:
        return {part.name: part for part in self.fields}

    def field(self, name: str) -> Field:
        """The field of that name. Raises FactError if there is none."""
        try:
            return self._by_name[name]
        except KeyError:
            raise FactError(f"{self.name} has no field {name}") from None


@dataclass(frozen=True)
class Register(Fielded):
    """What every register is, whichever way it is addressed.

    Attributes:
        name: unique among the registers that are declared together.
        size: in bytes.
        fields: named bits.
    """

    name: str
    size: int = field(default=1, kw_only=True)
    fields: tuple[Field, ...] = field(default=(), kw_only=True, compare=False)

    def __getitem__(self, name: str) -> int:
        """The mask of a field: `USB_STATUS["EP0"]`. Raises FactError if there is none of that name."""
        return self.field(name).mask

    def __contains__(self, name: object) -> bool:
        """Whether a field has that name."""
        return name in self._by_name

    def get(self, value: int, name: str) -> int:
        """A field of `value`. Raises FactError if there is none of that name."""
        return self.field(name).get(value)

    def pack(self, value: int = 0, /, **fields: int) -> int:
        """`value` with fields replaced.

        Raises:
            FactError: there is no such field, or the number does not fit.
        """
        for name, number in fields.items():
            part = self.field(name)
            try:
                value = value & ~part.mask | part.put(number)
            except FactError as problem:
                raise FactError(f"{self.name}.{problem}") from None
        return value & (1 << 8 * self.size) - 1

    def unpack(self, value: int) -> dict[str, int]:
        """All fields of `value`."""
        return {part.name: part.get(value) for part in self.fields}
