"""What docs/protocol.md says, read from its tables; nothing of ours is imported.

A host that is written with this depends on the page alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "protocol.md"
TABLE = re.compile(r"(?:^\|.*\n)+", re.M)
HEX = re.compile(r"`((?:[0-9a-f]{2} ?)+)`")


@dataclass(frozen=True)
class Layout:
    """A structure of the page: where its members are.

    Attributes:
        size: in bytes.
        places: (offset, bytes) of each member.
        fixed: what a member always is.
    """

    size: int
    places: dict[str, tuple[int, int]]
    fixed: dict[str, int] = field(default_factory=dict)

    def pack(self, **values: int) -> bytes:
        """Its bytes, little-endian; zeros by default."""
        data = bytearray(self.size)
        for name, value in (self.fixed | values).items():
            offset, size = self.places[name]
            data[offset : offset + size] = value.to_bytes(size, "little")
        return bytes(data)

    def unpack(self, data: bytes) -> dict[str, int]:
        """Its members as numbers; the fixed ones must be right."""
        assert len(data) == self.size, f"{len(data)} bytes instead of {self.size}"
        values = {
            name: int.from_bytes(data[offset : offset + size], "little")
            for name, (offset, size) in self.places.items()
        }
        assert values | self.fixed == values
        return values


@dataclass(frozen=True)
class Operation:
    """A row of the table of operations."""

    code: int
    size: int
    payload: bool


class Page:
    """The page.

    Attributes:
        text: of the file.
    """

    def __init__(self, path: Path = PAGE) -> None:
        self.text = path.read_text(encoding="utf-8")

    def rows(self, head: str) -> list[list[str]]:
        """The cells of all tables whose first line begins so, line by line, without the heads."""
        found = []
        for match in TABLE.finditer(self.text):
            lines = match[0].splitlines()
            if lines[0].startswith(head):
                found += [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
        assert found, head
        return found

    def bytes_after(self, words: str) -> bytes:
        """The bytes of the table that follows some words."""
        place = self.text.index(words)
        table = TABLE.search(self.text, place)
        assert table is not None
        return b"".join(bytes.fromhex(found) for found in HEX.findall(table[0]))

    @cached_property
    def requests(self) -> dict[str, tuple[int, int]]:
        """bmRequestType and bRequest of the vendor requests."""
        return {
            row[2].strip("`"): (int(row[1], 16), int(row[0], 16))
            for row in self.rows("| bRequest | bmRequestType | name |")
        }

    @cached_property
    def formats(self) -> dict[str, int]:
        """TLPs."""
        return {row[1].strip("`"): int(row[0], 16) for row in self.rows("| FORMAT_TYPE |")}

    @cached_property
    def limits(self) -> dict[str, int]:
        """Limits."""
        return {row[0].strip("`"): int(row[1], 16) for row in self.rows("| name | value |")}

    @cached_property
    def windows(self) -> dict[str, int]:
        """PCIe addresses of the chip's memories."""
        return {row[0].strip("`"): int(row[2], 16) for row in self.rows("| name | XDATA |")}

    @cached_property
    def causes(self) -> dict[int, str]:
        """Why lists end."""
        return {int(row[0], 16): row[1] for row in self.rows("| cause |")}

    @cached_property
    def operations(self) -> dict[str, Operation]:
        """Operations of lists."""
        return {
            row[1].strip("`"): Operation(int(row[0], 16), int(row[2]), row[4] == "yes")
            for row in self.rows("| opcode |")
        }

    def layout(self, name: str) -> Layout:
        """A structure."""
        heading = re.search(rf"^\*\*{name}\*\*, (\d+) bytes", self.text, re.M)
        assert heading is not None, name
        table = TABLE.search(self.text, heading.end())
        assert table is not None
        places, fixed = {}, {}
        for line in table[0].splitlines()[2:]:
            offset, size, member, what = (cell.strip() for cell in line.strip("|").split("|"))
            places[member.strip("`")] = (int(offset), int(size.split()[0]))
            if always := re.search(r"always 0x([0-9a-f]+)", what):
                fixed[member.strip("`")] = int(always[1], 16)
        return Layout(int(heading[1]), places, fixed)


def sealed(data: bytes, place: int) -> bytes:
    """Check bytes put at `place`, by the rule in the page's words."""
    first, second = sums(data)
    weight = len(data) - place
    one = ((weight - 1) * first - second) % 256
    return data[:place] + bytes((one, (-first - one) % 256)) + data[place + 2 :]


def sums(data: bytes) -> tuple[int, int]:
    """Fletcher's, modulo 256."""
    first = second = 0
    for byte in data:
        first = (first + byte) % 256
        second = (second + first) % 256
    return first, second
