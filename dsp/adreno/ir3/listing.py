"""Counting in a disassembly of ir3: instructions, issue slots and loops.

An instruction takes the slots of its repeats, `(rpt2)`, and of the cycles it waits before the next, `(nop3)`:
1 + 2 + 3. A `(rpt2)nop` is three slots that do nothing. A loop is what lies between a label and a jump back.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sdk.errors import InternalError

LABEL = re.compile(r"\s*(\w+):")
INSTRUCTION = re.compile(r"(?P<flags>(?:\(\w+\))*)\s*(?P<name>[a-z][\w.]*)(?P<rest>.*)")
IMPLICIT = {"swz": 1, "gat": 3, "sct": 3}
"""Repeats of moves of several registers, which no flag shows."""
TARGET = re.compile(r"#(l\d+)\b")


@dataclass(frozen=True)
class Instruction:
    """One machine instruction of 64 bits.

    Attributes:
        name: with its types, for example "mad.s24" or "mov.u32u32".
        slots: issue slots, of them `nops` idle ones.
        target: where it jumps to, as an index into the listing; None if it does not jump.
    """

    name: str
    slots: int
    nops: int
    target: int | None


@dataclass(frozen=True)
class Count:
    """Counts over a piece of code, each of its instructions once.

    Attributes:
        instructions: of 64 bits.
        slots: issue slots, `nops` among them.
        nops: slots in which nothing is issued.
        by_name: instructions by name, without types: "mad", "isaml".
    """

    instructions: int
    slots: int
    nops: int
    by_name: dict[str, int]


def read(text: str) -> list[Instruction]:
    """A listing up to its `end`, without the preamble (up to `shpe`), which not every work-item executes.

    Raises:
        InternalError: a line is not recognised, or there is no `end`.
    """
    labels: dict[str, int] = {}
    lines: list[re.Match[str]] = []
    for line in filter(str.strip, text.splitlines()):
        if label := LABEL.fullmatch(line.rstrip()):
            labels[label[1]] = len(lines)
        elif match := INSTRUCTION.fullmatch(line.strip()):
            lines.append(match)
            if match["name"] == "shpe":
                lines.clear()
            elif match["name"] == "end":
                return [_instruction(one, labels) for one in lines]
        else:
            raise InternalError(f"a line of ir3's disassembly is not understood: {line.strip()}")
    raise InternalError("ir3's disassembly has no end")


def _instruction(match: re.Match[str], labels: dict[str, int]) -> Instruction:
    flags = dict(re.findall(r"\((rpt|nop)(\d)\)", match["flags"]))
    repeats, waits = int(flags.get("rpt", 0)), int(flags.get("nop", 0))
    repeats += IMPLICIT.get(match["name"].partition(".")[0], 0)
    nops = 1 + repeats if match["name"] == "nop" else waits
    label = TARGET.search(match["rest"])
    return Instruction(match["name"], 1 + repeats + waits, nops, labels[label[1]] if label else None)


def by_loop(code: Sequence[Instruction]) -> list[Count]:
    """Counts of the code outside of loops, and of each loop in their order, without the loops inside it.

    Raises:
        InternalError: two loops overlap, neither inside the other.
    """
    loops = _loops(code)
    for one, other in itertools.combinations(loops, 2):
        if other.start < one.stop < other.stop:
            raise InternalError("a kernel has two loops that overlap, neither inside the other")
    innermost = [
        max((place for place, loop in enumerate(loops, 1) if number in loop), default=0)
        for number in range(len(code))
    ]
    return [
        count([one for one, place in zip(code, innermost, strict=True) if place == wanted])
        for wanted in range(len(loops) + 1)
    ]


def _loops(code: Sequence[Instruction]) -> list[range]:
    """By where they begin. Jumps back to the same place, `continue` for example, are one loop."""
    ends: dict[int, int] = {}
    for number, one in enumerate(code):
        if one.target is not None and one.target <= number:
            ends[one.target] = number + 1
    return [range(*loop) for loop in sorted(ends.items())]


def count(code: Sequence[Instruction]) -> Count:
    """The sum over some instructions."""
    return Count(
        len(code),
        sum(one.slots for one in code),
        sum(one.nops for one in code),
        dict(sorted(Counter(one.name.partition(".")[0] for one in code).items())),
    )
