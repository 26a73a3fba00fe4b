"""Traces of the suite, and their replay on another device.

A trace is `usbgpu.transport.trace`'s, with the names of the checks and the pauses between the calls. A replay
performs the calls in order and compares outcome and data; where the device may answer differently at another
time ("restless": true) it does not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import IO

from sdk.errors import DeviceFailed, InvalidInput, UsageError
from usbgpu.conform.bench import Bench
from usbgpu.transport import Call, TimedOut, Transport, trace


class Recorder(trace.Recorder):
    """Writes what a bench does.

    Args:
        bench: whose calls.
        stream: for text.
    """

    def __init__(self, bench: Bench, stream: IO[str]) -> None:
        self._bench = bench
        super().__init__(
            bench.device,
            stream,
            description=str(bench.identity),
            whole=True,
            marks=lambda: {"restless": True} if bench.restless_depth else {},
        )
        bench.on_sleep.append(self._slept)

    def check(self, name: str) -> None:
        """The calls from now on belong to this check."""
        self.note(check=name)

    def close(self) -> None:
        """Stop recording."""
        super().close()
        self._bench.on_sleep.remove(self._slept)

    def _slept(self, seconds: float) -> None:
        self.note(sleep=seconds)


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a replay differed from the trace.

    Attributes:
        line: of the trace, from 1.
        check: that the call belongs to.
        call: as text.
        recorded: outcome and data of the trace, as text.
        found: of the replay.
    """

    line: int
    check: str
    call: str
    recorded: str
    found: str

    def __str__(self) -> str:
        return (
            f"line {self.line}, in {self.check!r}: {self.call} gave {self.found}; recorded is {self.recorded}"
        )


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay.

    Attributes:
        calls: that were performed.
        compared: of these, those whose outcome was compared.
        difference: the first, at which the replay ended; None if there is none.
    """

    calls: int
    compared: int
    difference: Difference | None


def replay(lines: Iterable[str], device: Transport, name: str = "trace") -> Replayed:
    """Repeat the calls of a trace, up to the first difference.

    Args:
        lines: of the trace.
        device: to call.
        name: of the trace, for errors.

    Raises:
        InvalidInput: it is not a trace.
    """
    calls = compared = 0
    check = ""
    for entry in trace.entries(lines, name):
        check = entry.members.get("check", check)
        pause = entry.members.get("sleep", 0)
        if not isinstance(pause, int | float):
            raise InvalidInput(f"line {entry.line} is not a valid line: {pause!r} is not a time", where=name)
        if pause > 0:
            device.clock.sleep(pause)
        if entry.call is None:
            continue
        if isinstance(entry.sent, trace.Digest):
            raise InvalidInput(
                f"line {entry.line} is a call without its {entry.sent.size} bytes",
                where=name,
                hint="record with `towline firmware conform --record`",
            )
        call, recorded = entry.call, (entry.outcome.code, bytes(entry.outcome.data))
        found = _perform(device, call, name, entry.line)
        calls += 1
        if entry.members.get("restless"):
            continue
        compared += 1
        if found != recorded:
            one, other = _shown(*recorded, found[1]), _shown(*found, recorded[1])
            return Replayed(calls, compared, Difference(entry.line, check, str(call), one, other))
    if not calls:
        raise InvalidInput("holds no call", where=name)
    return Replayed(calls, compared, None)


def _perform(device: Transport, call: Call, name: str, number: int) -> tuple[str, bytes]:
    try:
        return "ok", device.perform(call)
    except DeviceFailed as problem:
        return problem.code, problem.data if isinstance(problem, TimedOut) else b""
    except UsageError as problem:
        raise InvalidInput(f"line {number}: {problem}", where=name) from problem


def _shown(code: str, data: bytes, other: bytes) -> str:
    """An outcome as text: of long data the neighbourhood of the first byte that differs."""
    if not data:
        return code
    place = next(
        (i for i, (a, b) in enumerate(zip(data, other, strict=False)) if a != b), min(len(data), len(other))
    )
    start = max(0, place - 4)
    part = data[start : start + 16].hex(" ")
    return f"{code}, {len(data)} bytes, from {start:#x}: {part}"
