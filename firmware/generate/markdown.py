"""Facts as pieces of Markdown, for the register reference and the protocol page."""

from __future__ import annotations

from collections.abc import Iterable

from firmware.asm2464pd.describe import ByteRegister
from firmware.protocol.requests import VendorRequest
from sdk.facts.registers import Field
from sdk.facts.structures import Member, Struct


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table that ends with a newline; vertical bars in cells are written as entities."""
    heads = tuple(heads)
    lines = [heads, ("---",) * len(heads), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |\n" for line in lines)


def bits(field: Field, owner: ByteRegister | None = None) -> str:
    """A field on one line: bits, name, meaning, values, and where it differs from its register."""
    place = f"{field.bit + field.width - 1}:{field.bit}" if field.width > 1 else str(field.bit)
    notes = []
    if field.access is not None:
        notes.append(field.access.value)
    if field.evidence is not None and (owner is None or field.evidence is not owner.evidence):
        notes.append(field.evidence.value)
    text = f"[{place}] `{field.name}`"
    if field.doc:
        text += f": {field.doc}"
    if field.values:
        text += "; " + labels(field.values.items())
    return text + (f" ({', '.join(notes)})" if notes else "")


def labels(values: Iterable[tuple[int, str]]) -> str:
    """Values and their meanings."""
    return ", ".join(f"{value:#x} {label}" for value, label in values)


def fields(parts: Iterable[Field]) -> str:
    """The fields of a word of the SETUP packet, for a cell; 0 if it has none."""
    return "<br>".join(map(bits, parts)) or "0"


def data_stage(request: VendorRequest) -> str:
    """The content of a request's data stage, for a cell."""
    if request.data is not None:
        return f"`{request.data.name}`"
    lengths = request.lengths
    return "none" if lengths == range(1) else f"{lengths[0]} to {lengths[-1]} bytes"


def members(struct: Struct) -> str:
    """A structure's members as a table."""
    rows = (
        (
            f"{struct.offset(member.name)}",
            f"{member.size}{' BE' if member.big and member.size > 1 else ''}",
            f"`{member.name}`",
            _member(member),
        )
        for member in struct.members
    )
    return table(("offset", "bytes", "member", "what"), rows)


def _member(member: Member) -> str:
    fixed = "" if member.fixed is None else f"always {member.fixed:#x}"
    said = "; ".join(part for part in (member.doc, fixed, labels(member.values.items())) if part)
    return "<br>".join((*((said,) if said else ()), *map(bits, member.fields)))
