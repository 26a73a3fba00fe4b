"""Which parts of an image have run and which have not: by file, function and line."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from emulator.coverage.data import Coverage
from emulator.coverage.program import Program, Side, Where
from sdk.report import Cell, table

REST = "(not in C)"
"""The name for start-up code, the compiler's library, and modules in assembly."""
_WIDTH = 100
"""Columns of lists in text."""


@dataclass(frozen=True, slots=True)
class LineCoverage:
    """A line that has code.

    Attributes:
        times: how often its busiest instruction was executed; 0: no test reaches it.
        sides: of the branches in it.
        missed: those that were not reached.
    """

    times: int
    sides: int
    missed: tuple[Side, ...]


@dataclass(frozen=True, slots=True)
class FunctionCoverage:
    """A function in C.

    Attributes:
        where: the line that it begins at.
        times: how often it was entered.
    """

    name: str
    where: Where
    times: int


@dataclass(frozen=True, slots=True)
class FileCoverage:
    """A source file.

    Attributes:
        name: without directory.
        lines: those with code, by number from 1.
        source: its text; None if it was not found.
    """

    name: str
    lines: Mapping[int, LineCoverage]
    source: tuple[str, ...] | None

    @property
    def reached(self) -> int:
        """Lines that were executed."""
        return sum(line.times > 0 for line in self.lines.values())

    @property
    def sides(self) -> int:
        """Sides of its branches."""
        return sum(line.sides for line in self.lines.values())

    @property
    def reached_sides(self) -> int:
        """Those that were reached."""
        return self.sides - sum(len(line.missed) for line in self.lines.values())

    @property
    def missed_lines(self) -> tuple[int, ...]:
        """Numbers of the lines that were not executed."""
        return tuple(number for number, line in self.lines.items() if not line.times)


@dataclass(frozen=True, slots=True)
class Unreached:
    """What was not reached of a function in C.

    Attributes:
        name: of the function; "" if it is in none.
        where: the line that it begins at.
        entered: whether it was called at all.
        lines: numbers of lines that were not executed.
        half: numbers of lines that were, with a branch that went one way only.
    """

    name: str
    where: Where
    entered: bool
    lines: tuple[int, ...]
    half: tuple[int, ...]


class Report:
    """What a coverage shows of a program.

    Args:
        program: the image.
        coverage: of the same build.

    Raises:
        InvalidInput: it is of another build.
    """

    def __init__(self, program: Program, coverage: Coverage) -> None:
        self.program = program
        self.coverage = Coverage(program.build, program.name)
        self.coverage.add(coverage)

    @cached_property
    def _by_line(self) -> dict[Where | None, LineCoverage]:
        """Every line that has code; under None, what is not in C, if there is any."""
        places: dict[Where | None, list[int]] = {}
        for place in sorted({*self.program.instructions, *map(int, np.flatnonzero(self.coverage.sides))}):
            places.setdefault(self.program.where(place), []).append(place)
        shared = {
            where: LineCoverage(self._times(starts), 0, ()) for where, starts in self.program.shared.items()
        }
        return shared | {where: self._line(inside) for where, inside in places.items()}

    def _line(self, places: Sequence[int]) -> LineCoverage:
        branches = list(filter(self.program.is_branch, places))
        missed = self.program.missed(self.coverage.sides, branches)
        return LineCoverage(self._times(places), 2 * len(branches), tuple(missed))

    def _times(self, places: Sequence[int]) -> int:
        return max(int(self.coverage.times[place]) for place in places)

    @cached_property
    def files(self) -> tuple[FileCoverage, ...]:
        """The files of C, by name."""
        lines: dict[str, dict[int, LineCoverage]] = {}
        for where in sorted(where for where in self._by_line if where is not None):
            lines.setdefault(where[0], {})[where[1]] = self._by_line[where]
        return tuple(
            FileCoverage(file, found, self.program.source(file)) for file, found in sorted(lines.items())
        )

    @property
    def rest(self) -> LineCoverage:
        """What is not in C."""
        return self._by_line.get(None, LineCoverage(0, 0, ()))

    @cached_property
    def functions(self) -> tuple[FunctionCoverage, ...]:
        """Those that can be reached, in order of address."""
        found = []
        for function in self.program.functions:
            place = function.bank * 0x10000 + function.start
            where = self.program.where(place)
            if where is not None and place in self.program.instructions:
                found.append(FunctionCoverage(function.name, where, int(self.coverage.times[place])))
        return tuple(found)

    @cached_property
    def unreached(self) -> tuple[Unreached, ...]:
        """The functions that were not reached completely, by file and line."""
        begins = {(function.where[0], function.name): function for function in self.functions}
        owners = dict(self._owners)
        found = []
        for file in self.files:
            by_owner: dict[str, tuple[list[int], list[int]]] = {}
            for number, line in file.lines.items():
                if not line.times or line.missed:
                    owner = owners.get((file.name, number), "")
                    lines, half = by_owner.setdefault(owner, ([], []))
                    (half if line.times else lines).append(number)
            for name, (lines, half) in by_owner.items():
                start = begins.get(
                    (file.name, name), FunctionCoverage(name, (file.name, min(lines + half)), 1)
                )
                found.append(Unreached(name, start.where, start.times > 0, tuple(lines), tuple(half)))
        return tuple(found)

    @property
    def _owners(self) -> Iterator[tuple[Where, str]]:
        """Each line that has code, or shares another line's, and the name of its function."""
        shared = ((where, places[0]) for where, places in self.program.shared.items())
        own = ((self.program.where(place), place) for place in self.program.instructions)
        for where, place in itertools.chain(shared, own):
            function = self.program.function_at(place)
            if where is not None and function is not None:
                yield where, function.name

    # -- sums -------------------------------------------------------------------------------------------

    @property
    def lines(self) -> tuple[int, int]:
        """Lines executed, and all lines."""
        return sum(file.reached for file in self.files), sum(len(file.lines) for file in self.files)

    @property
    def sides(self) -> tuple[int, int]:
        """Sides of branches reached in C, and all sides."""
        return sum(file.reached_sides for file in self.files), sum(file.sides for file in self.files)

    def summary(self) -> str:
        """Both on one line."""
        return (
            f"{_share(self.lines, 'lines')}, {_share(self.sides, 'sides of branches')} "
            f"in {self.coverage.runs} run{'' if self.coverage.runs == 1 else 's'}"
        )

    # -- as text and for programs -----------------------------------------------------------------------

    def text(self, *, every_side: bool = False) -> str:
        """A table of the files, and what was not reached.

        Args:
            every_side: name each side of a branch that was not reached, rather than the lines.
        """
        rows: list[Sequence[Cell]] = [
            (
                file.name,
                *_cells(file.reached, len(file.lines)),
                *_cells(file.reached_sides, file.sides),
            )
            for file in self.files
        ]
        rows.append(("all C", *_cells(*self.lines), *_cells(*self.sides)))
        rest = self.rest
        if rest.sides:
            rows.append((REST, None, None, None, *_cells(rest.sides - len(rest.missed), rest.sides)))
        parts = [table(("file", "lines", "of", "%", "sides", "of", "%"), rows)]
        if unused := [entry.name for entry in self.functions if not entry.times]:
            parts.append("functions never entered:\n" + _wrapped(", ".join(unused)))
        if missed := list(self._missed_lines()):
            parts.append("lines never executed:\n" + "\n".join(missed))
        half = list(self._sides() if every_side else self._half_lines())
        if half:
            parts.append("branches that went one way only:\n" + "\n".join(half))
        return "\n\n".join(parts)

    def _missed_lines(self) -> Iterator[str]:
        for file in self.files:
            if file.missed_lines:
                parts = (
                    str(first) if first == last else f"{first}-{last}"
                    for first, last in stretches(file.missed_lines, file.lines)
                )
                yield _wrapped(f"{file.name}: {', '.join(parts)}")

    def _half_lines(self) -> Iterator[str]:
        for file in self.files:
            if numbers := [str(number) for number, line in file.lines.items() if line.times and line.missed]:
                yield _wrapped(f"{file.name}: {', '.join(numbers)}")

    def _sides(self) -> Iterator[str]:
        for file in self.files:
            for line in file.lines.values():
                if line.times:
                    yield from (f"  {side.located} never {what}" for side, what in never(line.missed))

    def document(self) -> dict[str, Any]:
        """All of it, for JSON."""
        lines, sides, rest = self.lines, self.sides, self.rest
        return {
            "image": self.program.name,
            "build": self.program.build,
            "runs": self.coverage.runs,
            "lines": {"reached": lines[0], "all": lines[1]},
            "sides": {"reached": sides[0], "all": sides[1]},
            "files": [_file(file) for file in self.files],
            "functions": [
                {"name": entry.name, "file": entry.where[0], "line": entry.where[1], "times": entry.times}
                for entry in self.functions
            ],
            "not_in_c": {
                "sides": {"reached": rest.sides - len(rest.missed), "all": rest.sides},
                "missed": [_side(side) for side in rest.missed],
            },
        }


def _file(file: FileCoverage) -> dict[str, Any]:
    return {
        "name": file.name,
        "lines": {"reached": file.reached, "all": len(file.lines)},
        "sides": {"reached": file.reached_sides, "all": file.sides},
        "times": {str(number): line.times for number, line in file.lines.items()},
        "missed": [_side(side) for line in file.lines.values() for side in line.missed],
    }


def never(missed: Iterable[Side]) -> Iterator[tuple[Side, str]]:
    """Each branch of these by one of its sides, and what it never did."""
    for _, sides in itertools.groupby(missed, key=lambda side: (side.bank, side.address)):
        first, *other = sides
        yield first, "executed" if other else first.side


def _side(side: Side) -> dict[str, Any]:
    return {
        "bank": side.bank,
        "address": side.address,
        "instruction": side.instruction,
        "side": side.side,
        "function": side.function,
        "line": side.where[1] if side.where is not None else None,
    }


def percent(reached: int, every: int) -> float:
    """A share in per cent; 100 if there is nothing to reach."""
    return 100 * reached / every if every else 100.0


def _share(count: tuple[int, int], what: str) -> str:
    return f"{count[0]:,} of {count[1]:,} {what} ({percent(*count):.1f} %)"


def _cells(reached: int, every: int) -> tuple[Cell, Cell, Cell]:
    return reached, every, round(percent(reached, every), 1)


def _wrapped(text: str) -> str:
    return textwrap.fill(text, _WIDTH, initial_indent="  ", subsequent_indent="    ")


def stretches(numbers: Sequence[int], lines: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Line numbers as (first, last): every line with code between those two is one of them."""
    missed, start, last = set(numbers), 0, 0
    for number in (*lines, 0):
        if number in missed:
            start, last = start or number, number
        elif start:
            yield start, last
            start = 0
