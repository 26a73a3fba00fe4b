"""Record and replay of everything outside the CPU.

What the CPU sees of the world is changes of storage, interrupt lines, the values of reads that a block
answered, and restarts; what the world sees of the CPU is its writes. A recording holds them all in order,
each with its clock. A replay runs the same code with every block cut off, feeds it the recorded world, and
holds each write against the recorded one: the first difference is named. Nothing of it takes wall time into
account, so a replay is identical to the clock, or it says where it is not.

The file is text, one JSON array a line: the header, then `["C", clock, space, address, hex]` (storage
changed), `["L", clock, line, level]`, `["R" or "W", clock, pc, space, address, value]`, `["X", clock]` (the
CPU was restarted), and last `["E", clock, instructions, digest]`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from emulator.core.bus import Bus
from emulator.machine import PLANES, Machine
from emulator.mcs51.core import Mcs51, Stop
from firmware.asm2464pd.describe import Space
from sdk.errors import CheckFailed, InvalidInput

SCHEMA = 1


def digest(machine: Machine) -> str:
    """SHA-256 of the CPU's registers and of every plane's storage."""
    state = hashlib.sha256(machine.cpu.state())
    for plane in machine.bus.planes.values():
        state.update(plane.storage)
    state.update(machine.bus.sram)
    return state.hexdigest()


class Recorder:
    """Writes a recording of a machine from now on.

    Args:
        machine: not yet run.
        code: SHA-256 of the firmware.
        stream: text, written as the machine runs; the caller closes it after `finish`.
    """

    def __init__(self, machine: Machine, code: str, stream: IO[str]) -> None:
        self._machine = machine
        self._stream = stream
        self._finished = False
        self._write("towline-recording", SCHEMA, code)
        machine.bus.observers.append(self)

    def accessed(self, kind: str, space: Space, address: int, value: int) -> None:
        self._event(kind, self._machine.cpu.stop_pc, space.value, address, value)

    def changed(self, space: Space, address: int, data: bytes) -> None:
        self._event("C", space.value, address, bytes(data).hex())

    def line(self, number: int, level: bool) -> None:
        self._event("L", number, int(level))

    def restarted(self) -> None:
        """The CPU was restarted."""
        self._event("X")

    def finish(self) -> None:
        """Write the end; nothing is recorded after it."""
        if not self._finished:
            self._event("E", self._machine.cpu.instructions, digest(self._machine))
            self._finished = True

    def _event(self, kind: str, *rest: int | str) -> None:
        self._write(kind, self._machine.clock.now, *rest)

    def _write(self, *values: int | str) -> None:
        if not self._finished:
            self._stream.write(json.dumps(values, separators=(",", ":")) + "\n")


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay found.

    Attributes:
        events: recorded events that were fed or compared.
        clock: where it ended.
        instructions: executed until there.
    """

    events: int
    clock: int
    instructions: int


def replay(path: Path, machine: Machine, code: str) -> Replayed:
    """Run a machine against a recording, to its end.

    Raises:
        InvalidInput: the file is not a recording, is cut short, or is of another firmware.
        CheckFailed: the CPU did something else than it did then; says what, when and where.
    """
    events = _read(path, code)
    player = _Player(machine, path)
    count = 0
    for count, event in enumerate(events, 1):
        try:
            player.play(event)
        except (ValueError, TypeError, IndexError, KeyError) as problem:
            raise InvalidInput(
                f"line {count + 1} is no event of a recording: {problem}", where=str(path)
            ) from problem
    return Replayed(count, machine.clock.now, machine.cpu.instructions)


def _read(path: Path, code: str) -> Iterator[list[Any]]:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as problem:
        raise InvalidInput(f"cannot be read: {problem}", where=str(path)) from problem
    try:
        header, *events = (json.loads(line) for line in text.splitlines())
    except ValueError as problem:
        raise InvalidInput("this is no recording, or a damaged one", where=str(path)) from problem
    if not (isinstance(header, list) and header[:1] == ["towline-recording"]) or len(header) != 3:
        raise InvalidInput("this is no recording", where=str(path), hint="make one with `--record FILE`")
    if header[1] != SCHEMA:
        raise InvalidInput(f"recording schema {header[1]}; this version reads {SCHEMA}", where=str(path))
    if header[2] != code:
        raise InvalidInput(
            "the recording is of another firmware",
            where=str(path),
            hint="replay it with the image it was made with",
        )
    if not events or events[-1][:1] != ["E"]:
        raise InvalidInput("the recording has no end: the run was cut off", where=str(path))
    return iter(events)


class _Player:
    def __init__(self, machine: Machine, path: Path) -> None:
        self._machine = machine
        self._cpu: Mcs51 = machine.cpu
        self._bus: Bus = machine.bus
        self._path = path
        self._bus.disconnect(lambda space, address: self._expected_read)
        self._cpu.attach_device(None)
        self._expected_read = 0

    def play(self, event: list[Any]) -> None:
        kind, clock, *rest = event
        match kind:
            case "R" | "W":
                self._access(kind, clock, *rest)
            case "C":
                self._advance(clock)
                space, address, data = rest
                self._bus.store(Space(space), address, bytes.fromhex(data))
            case "L":
                self._advance(clock)
                self._bus.interrupt(rest[0], bool(rest[1]))
            case "X":
                self._advance(clock)
                self._cpu.reset()
            case "E":
                self._advance(clock)
                found = [self._cpu.instructions, digest(self._machine)]
                if found != rest:
                    raise self._difference(f"after {found[0]} instructions the state is another one")
            case _:
                raise ValueError(f"unknown kind {kind!r}")

    def _advance(self, clock: int) -> None:
        """To exactly `clock`, with no access on the way."""
        if self._cpu.clock > clock:
            raise self._difference(f"the CPU is at clock {self._cpu.clock}, the recording at {clock}")
        if self._cpu.clock < clock and (stop := self._cpu.run(clock)) is not Stop.UNTIL:
            raise self._difference(f"the CPU stopped ({self._stopped(stop)}) where the recording has nothing")
        self._arrive(clock)

    def _access(self, kind: str, clock: int, pc: int, space: str, address: int, value: int) -> None:
        stop = self._cpu.run(clock)
        self._machine.clock.now = self._cpu.clock
        wanted = Stop.READ if kind == "R" else Stop.WRITE
        found = (stop, self._cpu.clock, self._cpu.stop_pc)
        place = (PLANES[self._cpu.plane].value, self._cpu.address)
        recorded = f"{kind} {space} {address:#06x} = {value:#04x} at clock {clock}, PC {pc:#06x}"
        if found != (wanted, clock, pc) or place != (space, address):
            raise self._difference(f"the CPU {self._stopped(stop)}; recorded was {recorded}")
        if kind == "R":
            self._expected_read = value
            read = self._bus.cpu_read(Space(space), address)
            self._cpu.finish_read(value)
            if read != value:
                raise self._difference(f"the storage holds {read:#04x}; recorded was {recorded}")
            return
        if self._cpu.value != value:
            raise self._difference(f"the CPU {self._stopped(stop)}; recorded was {recorded}")
        self._bus.cpu_write(Space(space), address, value)

    def _arrive(self, clock: int) -> None:
        self._machine.clock.now = self._cpu.clock
        if self._cpu.clock != clock:
            raise self._difference(f"the CPU is at clock {self._cpu.clock}, the recording at {clock}")

    def _stopped(self, stop: Stop) -> str:
        cpu = self._cpu
        text = f"{stop.name.lower()} at clock {cpu.clock}, PC {cpu.stop_pc:#06x}"
        if stop in (Stop.READ, Stop.WRITE):
            return f"{text}, {PLANES[cpu.plane].value} {cpu.address:#06x}, value {cpu.value:#04x}"
        return text

    def _difference(self, what: str) -> CheckFailed:
        return CheckFailed(
            what, where=f"{self._path}", hint="the firmware or the emulator differs from when it was recorded"
        )
