"""The metadata note of a code object: kernels and their arguments, in MessagePack.

Source: LLVM's User Guide for the AMDGPU Backend, code object metadata V4 and V5; msgpack.org. A reader of a
page is smaller than a dependency of the part that runs on a phone.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, SupportsIndex

from sdk.errors import InvalidInput, UsageError
from usbgpu.amd.memory import Buffer

DEPTH_LIMIT = 16
BUFFER, VALUE, HIDDEN = "global_buffer", "by_value", "hidden_"
DIMENSIONS = ("hidden_block_count_", "hidden_group_size_", "hidden_remainder_", "hidden_global_offset_")
"""Arguments of the compiler's own that depend on the launch, each for x, y and z."""
LEAST: Mapping[str, int] = {"hidden_block_count_": 4, "hidden_group_size_": 2, "hidden_grid_dims": 1}
"""Smallest size in bytes of a launch's description."""
FLOATS: Mapping[str, tuple[int, str]] = {"half": (2, "<e"), "float": (4, "<f"), "double": (8, "<d")}
"""Sizes and formats of the types that -cl-kernel-arg-info names."""
FORMATS = dict(FLOATS.values())
INTEGERS = frozenset(
    [sign + name for sign in ("", "u") for name in ("char", "short", "int", "long")] + ["bool", "size_t"]
)


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a kernel.

    Attributes:
        name: as in the source; "" if the compiler left it out.
        offset: in the argument segment, bytes.
        size: bytes.
        kind: `.value_kind`: global_buffer, by_value, hidden_...
        type: as in the source; "" if the compiler left it out.
    """

    name: str
    offset: int
    size: int
    kind: str
    type: str

    @property
    def hidden(self) -> bool:
        """Whether the compiler added it."""
        return self.kind.startswith(HIDDEN)

    @property
    def label(self) -> str:
        """For messages."""
        return self.name or f"at {self.offset}"

    def pack(self, value: int | float | bytes | Buffer) -> bytes:
        """Its bytes in the segment.

        Args:
            value: a buffer or a GPU address for a pointer; else an integer, a float, or a structure's bytes.

        Raises:
            UsageError: it is of another kind, or does not fit.
        """
        if isinstance(value, Buffer):
            if self.kind != BUFFER:
                raise UsageError("a buffer was given for a value")
            return value.address.to_bytes(8, "little")
        if isinstance(value, bytes):
            if self.kind == BUFFER or len(value) != self.size:
                raise UsageError(f"{len(value)} bytes were given for {self._what}")
            return value
        if not isinstance(value, SupportsIndex):
            return self._float(value)
        number = operator.index(value)
        if self.type in FLOATS:
            return self._float(float(number))
        try:
            return number.to_bytes(self.size, "little", signed=number < 0 and self.kind != BUFFER)
        except OverflowError:
            raise UsageError(f"{number} does not fit {self._what}") from None

    def dimension(self, groups: tuple[int, int, int], threads: tuple[int, int, int]) -> bytes:
        """The bytes of an argument of the compiler's own, for a launch."""
        value = 0
        if self.kind == "hidden_grid_dims":
            value = 3
        elif self.kind[-2:] in ("_x", "_y", "_z"):
            axis = "xyz".index(self.kind[-1])
            value = {"hidden_block_count_": groups, "hidden_group_size_": threads}.get(
                self.kind[:-1], (0, 0, 0)
            )[axis]
        return value.to_bytes(self.size, "little")

    @property
    def _what(self) -> str:
        if self.kind == BUFFER:
            return "a pointer"
        return f"{self.type or 'a value'} of {self.size} bytes"

    def _float(self, value: float) -> bytes:
        if self.kind == BUFFER or self.type in INTEGERS or self.size not in FORMATS:
            raise UsageError(f"{value!r} was given for {self._what}")
        try:
            return struct.pack(FORMATS[self.size], value)
        except (OverflowError, TypeError, struct.error):
            raise UsageError(f"{value!r} does not fit {self._what}") from None


@dataclass(frozen=True, slots=True)
class Described:
    """The metadata of a kernel.

    Attributes:
        name: as in the source.
        kernarg_size: bytes of its arguments.
        threads: work-items of a workgroup, if the source fixes them.
        most_threads: work-items of a workgroup at most.
        dynamic_stack: whether the scratch memory that it takes is unknown.
        arguments: in order.
    """

    name: str
    kernarg_size: int
    threads: tuple[int, int, int] | None
    most_threads: int
    dynamic_stack: bool
    arguments: tuple[Argument, ...]


def parse(data: bytes) -> dict[str, Described]:
    """Kernels by the names of their descriptors. Raises InvalidInput if it is damaged."""
    try:
        kernels = [_described(one) for one in _Reader(data).value()["amdhsa.kernels"]]
    except (AttributeError, KeyError, IndexError, OverflowError, TypeError, ValueError, RecursionError):
        raise InvalidInput("the code object's metadata is damaged") from None
    return dict(kernels)


def _described(one: Mapping[str, Any]) -> tuple[str, Described]:
    name = str(one[".name"])
    arguments = tuple(_argument(each, name) for each in one.get(".args", ()))
    fixed = one.get(".reqd_workgroup_size")
    threads = None if fixed is None else (int(fixed[0]), int(fixed[1]), int(fixed[2]))
    return str(one[".symbol"]), Described(
        name,
        int(one[".kernarg_segment_size"]),
        threads,
        int(one[".max_flat_workgroup_size"]),
        bool(one.get(".uses_dynamic_stack", False)),
        arguments,
    )


def _argument(one: Mapping[str, Any], kernel: str) -> Argument:
    made = Argument(
        str(one.get(".name", "")),
        int(one[".offset"]),
        int(one[".size"]),
        str(one[".value_kind"]),
        str(one.get(".type_name", "")),
    )
    known = (BUFFER, VALUE, "hidden_none", "hidden_grid_dims")
    if made.kind not in known and not made.kind.startswith(DIMENSIONS):
        raise InvalidInput(f"the kernel needs an argument of kind {made.kind}: not supported", where=kernel)
    if made.offset < 0 or made.size < 0 or (made.kind == BUFFER and made.size != 8):
        raise ValueError(made)
    if made.size < next((size for kind, size in LEAST.items() if made.kind.startswith(kind)), 0):
        raise ValueError(made)
    return made


class _Reader:
    """Reads MessagePack, without its extension types."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 0

    def value(self, depth: int = 0) -> Any:
        """The next value. Raises ValueError if there is none."""
        if depth > DEPTH_LIMIT:
            raise ValueError("nested too deeply")
        head = self._take(1)[0]
        if head < 0x80:
            return head
        if head < 0x90:
            return self._map(head & 0xF, depth)
        if head < 0xA0:
            return self._array(head & 0xF, depth)
        if head < 0xC0:
            return self._text(head & 0x1F)
        if head >= 0xE0:
            return head - 0x100
        match head:
            case 0xC0 | 0xC2 | 0xC3:
                return {0xC0: None, 0xC2: False, 0xC3: True}[head]
            case 0xC4 | 0xC5 | 0xC6:
                return self._take(self._number(1 << head - 0xC4))
            case 0xCA | 0xCB:
                form = ">f" if head == 0xCA else ">d"
                return struct.unpack(form, self._take(struct.calcsize(form)))[0]
            case 0xCC | 0xCD | 0xCE | 0xCF:
                return self._number(1 << head - 0xCC)
            case 0xD0 | 0xD1 | 0xD2 | 0xD3:
                return int.from_bytes(self._take(1 << head - 0xD0), "big", signed=True)
            case 0xD9 | 0xDA | 0xDB:
                return self._text(self._number(1 << head - 0xD9))
            case 0xDC | 0xDD:
                return self._array(self._number(2 << head - 0xDC), depth)
            case 0xDE | 0xDF:
                return self._map(self._number(2 << head - 0xDE), depth)
        raise ValueError(f"a value of type {head:#x}")

    def _take(self, size: int) -> bytes:
        data = self._data[self._place : self._place + size]
        if len(data) < size:
            raise ValueError("it ends too early")
        self._place += size
        return data

    def _number(self, size: int) -> int:
        return int.from_bytes(self._take(size), "big")

    def _text(self, size: int) -> str:
        return self._take(size).decode(errors="replace")

    def _array(self, count: int, depth: int) -> list[Any]:
        return [self.value(depth + 1) for _ in range(count)]

    def _map(self, count: int, depth: int) -> dict[str, Any]:
        return {str(self.value(depth + 1)): self.value(depth + 1) for _ in range(count)}
