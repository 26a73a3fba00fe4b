"""The addresses that blocks read and write, from the registers that they begin with.

Within a block, addresses are sums of registers and constants. Each register is followed as such a sum; one
that is loaded from what is constant (descriptors, tables, a call's context) is read there; with any other
value it is known by what the next block begins with, if it lasts until then. Conditional accesses are taken
as made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from dsp.hexagon.cycles.execution import REGISTERS, Execution, Indices
from dsp.hexagon.disassembly import Packet

Flags = npt.NDArray[np.bool_]

LINE = 128
"""Bytes of a line of the L2, and of a vector (Hexagon V65 HVX Programmer's Reference Manual)."""
VECTOR = 128
CONTEXT = REGISTERS.index("r1")
"""The register of a function's second argument."""

_NUMBER = r"##?(-?(?:0x[0-9a-f]+|\d+))"
_ACCESS = re.compile(
    r"\b(v?mem)(u?b|u?h|w|d|u|[ubh]+_fifo|u?bh)?(?:_phys|_locked)?\(([^()]+(?:\([^()]*\))?)\)"
)
_REGISTER = re.compile(r"\br(\d+)(?::(\d+))?\b")
_LOADED = re.compile(r"r\d+ = memw\(([^()]+)\)$")
_PRODUCT = re.compile(rf"r(\d+) (\+?)= mpyi\(r(\d+),(r\d+|{_NUMBER})\)$")
_WRITES = re.compile(r"^r(\d+)(?::(\d+))? ([-+*&|^]|)=")
_RULES = tuple(
    (re.compile(rule + "$"), parts)
    for rule, parts in (
        (rf"r(\d+) = add\(r(\d+),{_NUMBER}\)", "a#"),
        (r"r(\d+) = add\(r(\d+),r(\d+)\)", "ab"),
        (r"r(\d+) = r(\d+)", "a"),
        (rf"r(\d+) = {_NUMBER}", "#"),
        (rf"r(\d+) = addasl\(r(\d+),r(\d+),{_NUMBER}\)", "as#"),
        (rf"r(\d+) = asl\(r(\d+),{_NUMBER}\)", "s#"),
        (r"r(\d+) = sub\(r(\d+),r(\d+)\)", "a-"),
        (rf"r(\d+) \+= {_NUMBER}", "d#"),
    )
)
"""What a register becomes: "d" of itself, "a" and "b" of registers, "-" less one, "s" one that is shifted."""


@dataclass(frozen=True)
class Sum:
    """A constant and multiples of what registers hold at a block's beginning, or of unknown values.

    Attributes:
        terms: index of `REGISTERS` -> factor; unknown values are numbered from -1 downwards.
    """

    terms: Mapping[int, int] = field(default_factory=dict)
    constant: int = 0

    def plus(self, other: Sum, factor: int = 1) -> Sum:
        terms = dict(self.terms)
        for name, count in other.terms.items():
            terms[name] = terms.get(name, 0) + factor * count
        kept = {name: count for name, count in terms.items() if count}
        return Sum(kept, self.constant + factor * other.constant)


@dataclass(frozen=True)
class Access:
    """One instruction's.

    Attributes:
        at: the address.
        nbytes: how many.
        writes: a store, else a load.
        aligned: the last bits of the address are ignored.
    """

    at: Sum
    nbytes: int
    writes: bool
    aligned: bool


@dataclass(frozen=True)
class Traffic:
    """The lines that an inference touches, in order.

    Attributes:
        lines: address / `LINE`.
        writes: whether it is a store.
        vectors: whether it is a vector's.
        when: index into `Execution.order`.
        ahead: whether it comes because it was asked for, and nothing waits for it.
        unknown: accesses whose address was not found.
    """

    lines: Indices
    writes: Flags
    vectors: Flags
    when: Indices
    ahead: Flags
    unknown: int


class Memory:
    """What loads of words find where nothing is stored.

    Args:
        constants: address and bytes.
        context: words of every kernel's second argument, struct context of kernels/kernels.h.
    """

    def __init__(self, constants: Sequence[tuple[int, bytes]] = (), context: Sequence[int] = ()) -> None:
        self._constants: list[tuple[Indices | int, npt.NDArray[Any]]] = [
            (start, np.frombuffer(data[: len(data) & ~3], "<u4"))
            for start, data in constants
            if len(data) > 3
        ]
        self._context = np.array(context, np.int64)

    def words(self, addresses: Indices, contexts: Indices) -> Indices | None:
        """Words at addresses, in calls whose contexts are at `contexts`; None if some are unknown."""
        if (addresses & 3).any():
            return None
        found = np.full(len(addresses), -1, np.int64)
        for start, words in (*self._constants, (contexts, self._context)):
            place = (addresses - start) >> 2
            inside = (place >= 0) & (place < len(words))
            found[inside] = words[place[inside]]
        return None if (found < 0).any() else found


class _Block:
    """Follows the registers through a block."""

    def __init__(self, packets: Sequence[Packet]) -> None:
        self.accesses: list[Access] = []
        self._unknown = 0
        self.loads: dict[int, Sum] = {}
        self.products: dict[int, tuple[Sum, Sum]] = {}
        self._now = [Sum({number: 1}) for number in range(len(REGISTERS))]
        for packet in packets:
            self._packet(packet)
        self.end = self._now

    def _packet(self, packet: Packet) -> None:
        after = list(self._now)
        for line in packet.lines:
            self._instruction(line, after)
        self._now = after

    def _instruction(self, line: str, after: list[Sum]) -> None:
        conditional = line.startswith(("if (p", "if (!p"))
        bare = line.partition(") ")[2] if conditional else line
        for found in _ACCESS.finditer(bare):
            at, base, moved = self._mode(found[3], VECTOR if found[1] == "vmem" else 1)
            stored = bare[found.end() :].lstrip(": nt").startswith(("=", "+=", "-=", "|=", "&="))
            nbytes = VECTOR if found[1] == "vmem" else _width(found[2] or "")
            self.accesses.append(Access(at, nbytes, stored, found[1] == "vmem" and found[2] != "u"))
            if base is not None:
                after[base] = self._new() if moved is None else moved
        if bare.startswith("allocframe") or "deallocframe" in bare or "dealloc_return" in bare:
            for number in (29, 30, 31):
                after[number] = self._new()
        written = _WRITES.match(bare)
        if written is None:
            return
        numbers = range(int(written[2] or written[1]), int(written[1]) + 1)
        for number in numbers:
            after[number] = self._new()
        if conditional or len(numbers) > 1:
            return
        if (value := self._value(bare)) is not None:
            after[numbers[0]] = value
        elif loaded := _LOADED.match(bare):
            term = self._unknown
            self.loads[term] = self._mode(loaded[1], 1)[0]
        elif product := _PRODUCT.match(bare):
            after[numbers[0]] = self._new()
            self.products[self._unknown] = self._now[int(product[3])], self._operand(product[4])
            if product[2]:
                after[numbers[0]] = self._now[numbers[0]].plus(after[numbers[0]])

    def _value(self, line: str) -> Sum | None:
        for rule, parts in _RULES:
            if found := rule.match(line):
                value = self._now[int(found[1])] if parts.startswith("d") else Sum()
                groups = list(found.groups())[1:]
                if parts == "s#":
                    return Sum().plus(self._of(groups[0]), 1 << int(groups[1], 0))
                if parts == "as#":
                    return self._of(groups[0]).plus(self._of(groups[1]), 1 << int(groups[2], 0))
                for part, group in zip(parts.lstrip("d"), groups, strict=True):
                    if part == "#":
                        value = value.plus(Sum({}, int(group, 0)))
                    else:
                        value = value.plus(self._of(group), -1 if part == "-" else 1)
                return value
        return None

    def _mode(self, text: str, unit: int) -> tuple[Sum, int | None, Sum | None]:
        """Address, the register that is changed, and its value then, None for one that is unknown."""
        if found := re.fullmatch(rf"r(\d+)(?:\+{_NUMBER})?", text):
            return self._of(found[1]).plus(Sum({}, unit * int(found[2] or "0", 0))), None, None
        if found := re.fullmatch(rf"r(\d+)\+\+{_NUMBER}", text):
            base = int(found[1])
            return self._now[base], base, self._now[base].plus(Sum({}, unit * int(found[2], 0)))
        if found := re.fullmatch(r"r(\d+)\+\+(m[01])", text):
            base = int(found[1])
            step = Sum({REGISTERS.index(found[2]): 1})
            return self._now[base], base, self._now[base].plus(step)
        if found := re.fullmatch(rf"r(\d+)\+r(\d+)<<{_NUMBER}", text):
            return self._of(found[1]).plus(self._of(found[2]), 1 << int(found[3], 0)), None, None
        if found := re.fullmatch(rf"r(\d+)<<{_NUMBER}\+{_NUMBER}", text):
            address = Sum({}, int(found[3], 0)).plus(self._of(found[1]), 1 << int(found[2], 0))
            return address, None, None
        if found := re.fullmatch(rf"r(\d+)={_NUMBER}", text):
            address = Sum({}, int(found[2], 0))
            return address, int(found[1]), address
        if found := re.fullmatch(rf"gp\+{_NUMBER}", text):
            return Sum({REGISTERS.index("gp"): 1}, int(found[1], 0)), None, None
        if found := re.fullmatch(_NUMBER, text):
            return Sum({}, int(found[1], 0)), None, None
        changed = re.match(r"r(\d+)\+\+", text)  # circular and bit-reversed ones
        return self._new(), int(changed[1]) if changed else None, None

    def _operand(self, text: str) -> Sum:
        return self._of(text[1:]) if text.startswith("r") else Sum({}, int(text.lstrip("#"), 0))

    def _of(self, number: str) -> Sum:
        return self._now[int(number)]

    def _new(self) -> Sum:
        self._unknown -= 1
        return Sum({self._unknown: 1})


def _width(suffix: str) -> int:
    return {"w": 4, "d": 8}.get(suffix, 2 if "h" in suffix and "bh" not in suffix else 1)


def traffic(execution: Execution, spans: Sequence[range], end: int, memory: Memory) -> Traffic:
    """What an inference reads and writes below the address `end`, within spans of `Execution.order`.

    The stack, which is above, is a few lines that stay in the caches; where it is depends on the environment.
    """
    contexts = np.full(len(execution.order), -1, np.int64)
    for span in spans:
        contexts[span.start : span.stop] = execution.registers[span.start, CONTEXT]
    wanted = np.flatnonzero(contexts >= 0)
    sorted_ = wanted[np.argsort(execution.order[wanted], kind="stable")]
    numbers, starts = np.unique(execution.order[sorted_], return_index=True)
    columns = [np.empty((0, 5), np.int64)]
    unknown = 0
    for number, when in zip(numbers, np.split(sorted_, starts[1:]), strict=True):
        block = _Block(execution.block(number))
        values = _Values(execution, when, block, memory, contexts[when])
        for place, access in enumerate(block.accesses):
            addresses = values.of(access.at)
            if addresses is None:
                unknown += len(when)
            else:
                columns += _lines(addresses, access, when, place)
    table = np.concatenate(columns)
    table = table[np.lexsort((table[:, 4], table[:, 3]))]
    table = table[table[:, 0] < -(-end // LINE)]
    ahead = np.zeros(len(table), np.bool_)
    return Traffic(table[:, 0], table[:, 1] > 0, table[:, 2] > 0, table[:, 3], ahead, unknown)


class _Values:
    """What sums are in all executions of one block."""

    def __init__(
        self, execution: Execution, when: Indices, block: _Block, memory: Memory, contexts: Indices
    ) -> None:
        self._block, self._memory, self._contexts = block, memory, contexts
        self._unknown: dict[int, Indices | None] = {}
        self._count = len(when)
        self._before = execution.registers[when]
        self._after = execution.registers[np.minimum(when + 1, len(execution.order) - 1)]
        self._kept: dict[int, tuple[int, Sum]] = {}
        for register, value in enumerate(block.end):
            unknown = [term for term in value.terms if term < 0]
            if len(unknown) == 1 and value.terms[unknown[0]] == 1:
                self._kept.setdefault(unknown[0], (register, value.plus(Sum({unknown[0]: -1}))))

    def of(self, value: Sum) -> Indices | None:
        total = np.full(self._count, value.constant, np.int64)
        for term, factor in value.terms.items():
            if term >= 0:
                total += factor * self._before[:, term].astype(np.int64)
                continue
            if term not in self._unknown:
                self._unknown[term] = None  # no value depends on itself
                self._unknown[term] = self._found(term)
            known = self._unknown[term]
            if known is None:
                return None
            total += factor * known
        return total & 0xFFFFFFFF

    def _found(self, term: int) -> Indices | None:
        """An unknown value: what was loaded or multiplied, or what is left of it at the end."""
        if term in self._block.loads:
            addresses = self.of(self._block.loads[term])
            loaded = None if addresses is None else self._memory.words(addresses, self._contexts)
            if loaded is not None:
                return loaded
        if term in self._block.products:
            one, other = map(self.of, self._block.products[term])
            if one is not None and other is not None:
                return one * other & 0xFFFFFFFF
        if term not in self._kept:
            return None
        register, rest = self._kept[term]
        known = self.of(rest)
        return None if known is None else self._after[:, register].astype(np.int64) - known


def _lines(addresses: Indices, access: Access, when: Indices, place: int) -> Iterator[Indices]:
    """Rows of line, writes, vector, when, place: one for each line that an instruction touches."""
    first = addresses // LINE
    last = first if access.aligned else (addresses + access.nbytes - 1) // LINE
    vector = access.nbytes == VECTOR

    def rows(lines: Indices, at: Indices) -> Indices:
        constants = np.broadcast_to([access.writes, vector], (len(lines), 2))
        return np.column_stack([lines, constants, at, np.full(len(lines), place)]).astype(np.int64)

    yield rows(first, when)
    if (two := last > first).any():
        yield rows(last[two], when[two])
