"""Traces of the transport: every call and what came of it, as JSON lines, and how they are done again.

    {"trace": 1, "device": "...", "speed": "..."}        first of all
    {"check": "..."}                                     what the calls below belong to
    {"call": {...}, "outcome": "ok", "data": "..."}      a call, with the bytes that came in hexadecimal
    {"sleep": 0.1}                                       time that was let pass

A call says its kind and what differs from `Call`'s defaults. A replay performs the calls in order and
compares outcome and data; where the device may answer differently at another time ("restless": true) it does
not. The format is documented in docs/conformance.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import IO, Any

from firmware.conform.check import Bench
from sdk.errors import DeviceFailed, InvalidInput, UsageError
from usbgpu.transport import Call, CallKind, Outcome, TimedOut, Transport

SCHEMA = 1
_DEFAULTS = Call(CallKind.CONTROL)


class Recorder:
    """Writes what a bench does.

    Args:
        bench: whose calls.
        stream: for text.
    """

    def __init__(self, bench: Bench, stream: IO[str]) -> None:
        self._bench = bench
        self._stream = stream
        device = bench.device
        self._write({"trace": SCHEMA, "device": str(bench.identity), "speed": device.speed.value})
        device.observers.append(self._called)
        bench.on_sleep.append(self._slept)

    def check(self, name: str) -> None:
        """The calls from now on belong to this check."""
        self._write({"check": name})

    def close(self) -> None:
        """Watch no more."""
        self._bench.device.observers.remove(self._called)
        self._bench.on_sleep.remove(self._slept)

    def _called(self, call: Call, outcome: Outcome) -> None:
        line: dict[str, Any] = {"call": _packed(call), "outcome": outcome.code}
        if outcome.data:
            line["data"] = outcome.data.hex()
        if self._bench.restless_depth:
            line["restless"] = True
        self._write(line)

    def _slept(self, seconds: float) -> None:
        self._write({"sleep": seconds})

    def _write(self, line: dict[str, Any]) -> None:
        self._stream.write(json.dumps(line, separators=(",", ":")) + "\n")


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a replay left the trace.

    Attributes:
        line: of the trace, from 1.
        check: that the call belongs to.
        call: in words.
        recorded: outcome and data of the trace, in words.
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
    """What came of a replay.

    Attributes:
        calls: that were performed.
        compared: of these, those whose outcome was compared.
        difference: the first, at which the replay ended; None if there is none.
    """

    calls: int
    compared: int
    difference: Difference | None


def replay(lines: Iterable[str], device: Transport, name: str = "trace") -> Replayed:
    """Do again what a trace says, up to the first difference.

    Args:
        lines: of the trace.
        device: to do it with.
        name: of the trace, for errors.

    Raises:
        InvalidInput: it is no trace.
    """
    calls = compared = 0
    check = ""
    for number, text in enumerate(lines, 1):
        try:
            line = json.loads(text)
            if number == 1 and line.get("trace") != SCHEMA:
                raise InvalidInput(f"is no trace of version {SCHEMA}", where=name)
            call = _unpacked(line["call"]) if "call" in line else None
            recorded = (line["outcome"], bytes.fromhex(line.get("data", ""))) if call is not None else None
            pause = float(line.get("sleep", 0))
        except (ValueError, TypeError, KeyError, AttributeError) as problem:
            raise InvalidInput(f"line {number} is no line of a trace: {problem}", where=name) from problem
        check = line.get("check", check)
        if pause > 0:
            device.clock.sleep(pause)
        if call is None or recorded is None:
            continue
        found = _perform(device, call, name, number)
        calls += 1
        if line.get("restless"):
            continue
        compared += 1
        if found != recorded:
            one, other = _shown(*recorded, found[1]), _shown(*found, recorded[1])
            return Replayed(calls, compared, Difference(number, check, str(call), one, other))
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


def _packed(call: Call) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": call.kind.value}
    for each in fields(call)[1:]:
        value = getattr(call, each.name)
        if value != getattr(_DEFAULTS, each.name):
            found[each.name] = value.hex() if isinstance(value, bytes) else value
    return found


def _unpacked(found: dict[str, Any]) -> Call:
    values = {name: value for name, value in found.items() if name != "kind"}
    values["data"] = bytes.fromhex(values.get("data", ""))
    numbers = [value for name, value in values.items() if name != "data"]
    if not all(isinstance(value, int | float) for value in numbers):
        raise ValueError("a member of the call is no number")
    return Call(CallKind(found["kind"]), **values)


def _shown(code: str, data: bytes, other: bytes) -> str:
    """An outcome for people: of long data the neighbourhood of the first byte that differs."""
    if not data:
        return code
    place = next(
        (i for i, (a, b) in enumerate(zip(data, other, strict=False)) if a != b), min(len(data), len(other))
    )
    start = max(0, place - 4)
    part = data[start : start + 16].hex(" ")
    return f"{code}, {len(data)} bytes, from {start:#x}: {part}"
