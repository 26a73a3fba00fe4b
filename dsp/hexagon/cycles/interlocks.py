"""Which packets wait for the one before, by LLVM's itineraries.

An itinerary says in which cycle an instruction writes each result and reads each operand, and which
paths forward one to the other. Clocks between two packets follow as LLVM's scheduler computes them
(HexagonSubtarget::updateLatency): a thread issues every second clock, so that half of them count. No
dependence then takes more than two issues: a packet waits once at most, for the packet just before it.
`itineraries.json` is generated from LLVM by `python -m dsp.hexagon.cycles`.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from dsp.hexagon.disassembly import Packet

ITINERARIES = Path(__file__).parent / "itineraries.json"

REGISTER = re.compile(r"\b(?:[vrp]\d+(?::\d+)+|[vrpqm]\d+)\b(\.(?:new|cur|tmp)\b)?")
_SUFFIXED = re.compile(r"\b([vrpqm])(\d+(?::\d+)*)\b")
_NUMBER = re.compile(r"##?-?(?:0x[0-9a-f]+|\d+)|\b0x[0-9a-f]+")
_ROLE = re.compile(r"([du])(-?\d+)\.([0-9a-f]+)")


class Role(NamedTuple):
    """What an instruction does with a register.

    Attributes:
        defines: writes it; else reads it.
        cycle: when.
        paths: a set of bits; results are forwarded where both have one.
    """

    defines: bool
    cycle: int
    paths: int


class Pair(NamedTuple):
    """Two instructions, of which the second waits for the first, as `pattern` writes them."""

    first: str
    second: str


def pattern(line: str) -> str:
    """An instruction without the numbers of its registers and its constants."""
    kinds = _SUFFIXED.sub(lambda found: found[1] + ("" if ":" not in found[2] else "x"), line)
    return _NUMBER.sub("#", kinds)


def operands(line: str) -> list[str]:
    """The registers of an instruction, in order of its text."""
    return [found[0].removesuffix(found[1] or "") for found in REGISTER.finditer(line)]


def latency(written: Role, read: Role) -> int:
    """Issues from the packet that writes to the first that can read."""
    clocks = written.cycle - read.cycle + 1
    if clocks > 0 and written.paths & read.paths:
        clocks -= 1
    return max(1, (clocks + 1) >> 1)


class Interlocks:
    """The itineraries of one version of the DSP, such as v65."""

    def __init__(self, version: str) -> None:
        data = json.loads(ITINERARIES.read_text(encoding="utf-8"))
        self.llvm = str(data["llvm"])
        self._roles: dict[str, str] = {}
        for name, table in data["versions"].items():  # each adds to those before it
            self._roles |= {one: roles for roles, patterns in table.items() for one in patterns}
            if name == version:
                break
        self.unknown: set[str] = set()
        """Instructions without an itinerary that `waits` has met: nothing waits for them."""

    def waits(self, before: Packet, packet: Packet) -> Pair | None:
        """What a packet waits for once, if the other was executed just before it."""
        results: dict[str, tuple[str, Role]] = {}
        for line in before.lines:
            for register, roles in self._uses(line).items():
                for role in roles:
                    if role.defines:
                        results[register] = line, role
        inside = {
            register
            for line in packet.lines
            for found in REGISTER.finditer(line)
            if found[1]
            for register in _parts(found[0].removesuffix(found[1]))
        }
        for line in packet.lines:
            for register, roles in self._uses(line).items():
                if register in results and register not in inside:
                    first, written = results[register]
                    if any(not role.defines and latency(written, role) > 1 for role in roles):
                        return Pair(pattern(first), pattern(line))
        return None

    def _uses(self, line: str) -> Mapping[str, Sequence[Role]]:
        found = self._known(line)
        if not found and operands(line):
            self.unknown.add(pattern(line))
        return found

    @functools.cache  # noqa: B019 -- as long as the model
    def _known(self, line: str) -> dict[str, list[Role]]:
        one = pattern(line)
        roles = self._roles.get(one) or self._roles.get(one.replace(".new", ""))
        found: dict[str, list[Role]] = {}
        if roles is None:
            return found
        for register, text in zip(operands(line), roles.split(" "), strict=True):
            what = [
                Role(kind == "d", int(cycle), int(paths, 16)) for kind, cycle, paths in _ROLE.findall(text)
            ]
            for part in _parts(register):
                found.setdefault(part, []).extend(what)
        return found


def _parts(register: str) -> Iterator[str]:
    """r5:4 is r5 and r4; p3:0 is p3, p2, p1 and p0."""
    kind, numbers = register[0], [int(number) for number in register[1:].split(":")]
    yield from (f"{kind}{number}" for number in range(numbers[-1], numbers[0] + 1))
