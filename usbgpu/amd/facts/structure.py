"""How a structure in memory is written down: little-endian members at their natural alignment, as in C."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import cached_property

from usbgpu.amd.facts.describe import FactError

_CODES = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q"}


class Structure:
    """A structure.

    Args:
        name: as in the kernel's headers.
        members: a member each: `TYPE NAME` or `TYPE NAME[COUNT]`, with u8, u16, u32 or u64 for the type;
            separated by commas.

    Attributes:
        name: as in the kernel's headers.
        size: bytes, the last member's padding included.
        offsets: of the members, in bytes.

    Raises:
        FactError: a member cannot be read, or has a name twice.
    """

    def __init__(self, name: str, members: str) -> None:
        self.name = name
        self.offsets: dict[str, int] = {}
        self._members: dict[str, tuple[str, int]] = {}
        end = widest = 0
        for member in members.split(","):
            kind, _, rest = member.strip().partition(" ")
            label, _, count = rest.rstrip("]").partition("[")
            if kind not in _CODES or not label.isidentifier() or label in self.offsets:
                raise FactError(f"{name}: {member.strip()!r} is no member")
            width = struct.calcsize(_CODES[kind])
            widest = max(widest, width)
            end = -(-end // width) * width
            self.offsets[label] = end
            self._members[label] = (_CODES[kind], int(count) if count else 0)
            end += width * (int(count) if count else 1)
        self.size = -(-end // widest) * widest

    @cached_property
    def members(self) -> Sequence[str]:
        """Names, in order."""
        return tuple(self.offsets)

    def pack(self, values: Mapping[str, int | Sequence[int]]) -> bytes:
        """A structure's bytes; members without a value are 0, arrays may be given short.

        Raises:
            FactError: there is no such member, or a number does not fit.
        """
        data = bytearray(self.size)
        for name, value in values.items():
            if name not in self.offsets:
                raise FactError(f"{self.name} has no member {name}")
            code, count = self._members[name]
            numbers = [value] if isinstance(value, int) else list(value)
            if len(numbers) > max(count, 1):
                raise FactError(f"{self.name}.{name} has {count} elements, not {len(numbers)}")
            try:
                struct.pack_into(f"<{len(numbers)}{code}", data, self.offsets[name], *numbers)
            except struct.error as error:
                raise FactError(f"{self.name}.{name}: {error}") from None
        return bytes(data)

    def unpack(self, data: bytes) -> dict[str, int]:
        """The members that are no arrays. Raises FactError if there are too few bytes."""
        return {name: self.get(data, name) for name, (_, count) in self._members.items() if not count}

    def get(self, data: bytes, name: str, index: int = 0) -> int:
        """A member of a structure at the start of `data`, or one of its elements. Raises FactError."""
        if name not in self.offsets:
            raise FactError(f"{self.name} has no member {name}")
        code, count = self._members[name]
        offset = self.offsets[name] + index * struct.calcsize(code)
        if not 0 <= index < max(count, 1) or offset + struct.calcsize(code) > len(data):
            raise FactError(f"{self.name}.{name}: not within {len(data)} bytes")
        return int(struct.unpack_from("<" + code, data, offset)[0])
