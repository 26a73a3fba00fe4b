"""What ran on the card, kernel by kernel: launches, waves, instructions by class, bytes, virtual time."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from emulator.amdgpu.seams import Dispatch, Outcome
from emulator.core.clock import seconds

CLASSES = ("valu", "salu", "smem", "vmem", "lds", "wmma", "branch", "other")
"""Classes of instructions, in the order of the table."""


@dataclass(frozen=True, slots=True)
class Record:
    """A dispatch that has ended or faulted.

    Attributes:
        dispatch: what was asked for.
        outcome: what it did.
        start: chip clocks since power-on when it began.
        end: when its results were in memory.
        queue: whose it was, such as `pipe 0 queue 0`.
        name: of the kernel, if known.
        code: its first bytes, which distinguish it from others at the same address.
    """

    dispatch: Dispatch
    outcome: Outcome
    start: int
    end: int
    queue: str = ""
    name: str = ""
    code: bytes = b""


@dataclass(slots=True)
class Score:
    """The sum over the launches of a kernel.

    Attributes:
        code: virtual address of its first instruction.
        name: if it has one.
        launches: dispatches.
        waves: that ran.
        instructions: wave-instructions by class.
        read: bytes that lanes read from memory.
        written: bytes that lanes wrote.
        clocks: of virtual time that its launches took; they may overlap.
        faults: launches that ended in one.
    """

    code: int
    name: str
    launches: int = 0
    waves: int = 0
    instructions: dict[str, int] = field(default_factory=dict)
    read: int = 0
    written: int = 0
    clocks: int = 0
    faults: int = 0

    @property
    def total(self) -> int:
        """Wave-instructions of all classes."""
        return sum(self.instructions.values())


LATEST = 4096
"""Dispatches that are kept one by one: enough for inferences, and a long run does not fill memory."""


class Scoreboard:
    """Adds up dispatches by the address and the hash of their code.

    Attributes:
        names: of kernels by the address of their code; loaders of code may fill it.
        records: the latest dispatches, in the order in which they ended.
        observers: get every record as it comes in.
    """

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.records: deque[Record] = deque(maxlen=LATEST)
        self.observers: list[Callable[[Record], None]] = []
        self._scores: dict[tuple[int, str, int | None], Score] = {}

    def dispatched(self, record: Record) -> None:
        """Take a dispatch in. What it wrote is not kept."""
        outcome = replace(record.outcome, instructions=dict(record.outcome.instructions), writes=())
        record = replace(record, outcome=outcome)
        self.records.append(record)
        for observer in self.observers:
            observer(record)
        code = record.dispatch.code
        which = zlib.crc32(record.code) if record.code and not record.name else None
        score = self._scores.setdefault((code, record.name, which), Score(code, record.name))
        score.launches += 1
        score.waves += outcome.waves
        for kind, count in outcome.instructions.items():
            score.instructions[kind] = score.instructions.get(kind, 0) + count
        score.read += outcome.read
        score.written += outcome.written
        score.clocks += record.end - record.start
        score.faults += outcome.fault is not None

    def clear(self) -> None:
        """Forget the dispatches."""
        self.records.clear()
        self._scores.clear()

    def scores(self) -> list[Score]:
        """A score a kernel, the one that took most time first."""
        found = []
        for (code, name, which), score in self._scores.items():
            shown = name or self.names.get(code) or f"{code:#x}"
            shown += "" if which is None else f"#{which:08x}"
            found.append(replace(score, name=shown, instructions=dict(score.instructions)))
        return sorted(found, key=lambda score: (-score.clocks, score.code))

    def instructions(self) -> dict[str, int]:
        """Wave-instructions of all kernels, by class."""
        return _add(score.instructions for score in self.scores())

    def document(self) -> dict[str, Any]:
        """All of it as plain values: `kernels[]` and `total`, times in microseconds of virtual time."""
        scores = self.scores()
        kernels = [
            {
                "name": score.name,
                "code": score.code,
                "launches": score.launches,
                "waves": score.waves,
                "instructions": dict(score.instructions),
                "wave_instructions": score.total,
                "read": score.read,
                "written": score.written,
                "virtual_us": seconds(score.clocks) * 1e6,
                "faults": score.faults,
            }
            for score in scores
        ]
        total = {
            "launches": sum(score.launches for score in scores),
            "waves": sum(score.waves for score in scores),
            "wave_instructions": sum(score.total for score in scores),
            "instructions": self.instructions(),
            "read": sum(score.read for score in scores),
            "written": sum(score.written for score in scores),
            "virtual_us": seconds(sum(score.clocks for score in scores)) * 1e6,
        }
        return {"kernels": kernels, "total": total}

    def rows(self) -> tuple[tuple[str, ...], list[tuple[str | int | float | None, ...]]]:
        """Headers and rows of a text table, with a row of sums."""
        scores = self.scores()
        kinds = [kind for kind in CLASSES if any(score.instructions.get(kind) for score in scores)]
        headers = ("kernel", "launches", "waves", *kinds, "read", "written", "virtual us")
        rows: list[tuple[str | int | float | None, ...]] = [
            (
                score.name + (f" ({score.faults} faulted)" if score.faults else ""),
                score.launches,
                score.waves,
                *(score.instructions.get(kind, 0) for kind in kinds),
                score.read,
                score.written,
                round(seconds(score.clocks) * 1e6, 2),
            )
            for score in scores
        ]
        columns = zip(*(row[1:] for row in rows), strict=True)
        sums = [sum(number for number in column if not isinstance(number, str | None)) for column in columns]
        return headers, [*rows, ("total", *sums)] if rows else []


def _add(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for one in counts:
        for kind, number in one.items():
            total[kind] = total.get(kind, 0) + number
    return total
