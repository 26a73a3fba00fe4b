"""Record and replay of everything outside the CPU.

What the CPU sees of the world is changes of storage, interrupt lines, the values of reads that a block
answered, and restarts; what the world sees of the CPU is its writes that a block acts on. A recording holds
them all in order, each with its clock; accesses of plain storage are not in it, traced or not. A replay runs
the same code with every block cut off, feeds it the recorded world, and holds each write against the recorded
one: the first difference is named. Nothing of it takes wall time into account, so a replay is identical to
the clock, or reports where it is not.

The file is text, one JSON array a line: the header, then `["C", clock, space, address, hex]` (storage
changed), `["L", clock, line, level]`, `["R" or "W", clock, pc, space, address, value]`, `["X", clock]` (the
CPU was restarted), and last `["E", clock, instructions, digest]`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from emulator.core.bus import Bus
from emulator.core.clock import clocks
from emulator.machine import FAULTS, PLANES, Machine
from emulator.mcs51.core import Mcs51, Stop
from firmware.asm2464pd.describe import Space
from sdk.errors import CheckFailed, InvalidInput

SCHEMA = 1
SLICE = clocks(10e-3)
"""Clocks that a replay runs at a time: Ctrl-C is looked at between."""
_ACCESSES = {Stop.READ: "R", Stop.WRITE: "W"}


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
        if self._machine.bus.concerns(kind, space, address):
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
        with self._machine.lock:
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
        CheckFailed: the CPU did something other than recorded; says what, when and where.
        CpuFault: a guard stopped the CPU that was not on then.
    """
    events = _read(path, code)
    player = _Player(machine)
    count = 0
    for count, event in enumerate(events, 1):
        where = f"{path}:{count + 1}"
        try:
            player.play(event)
        except _Difference as difference:
            raise CheckFailed(
                str(difference),
                where=where,
                hint="the firmware or the emulator is not what it was when this was recorded",
            ) from None
        except (ValueError, TypeError, LookupError, OverflowError, BufferError) as problem:
            raise InvalidInput(f"not an event of a recording: {problem}", where=where) from problem
    return Replayed(count, machine.clock.now, machine.cpu.instructions)


def _read(path: Path, code: str) -> list[Any]:
    try:
        text = path.read_text(encoding="ascii")
    except OSError as problem:
        raise InvalidInput(f"cannot be read: {problem.strerror}", where=str(path)) from problem
    except UnicodeDecodeError as problem:
        raise InvalidInput("is not a recording", where=str(path), hint=_MAKE_ONE) from problem
    try:
        header, *events = (json.loads(line) for line in text.splitlines())
    except (ValueError, RecursionError) as problem:
        raise InvalidInput("is not a recording, or is damaged", where=str(path), hint=_MAKE_ONE) from problem
    if not (isinstance(header, list) and header[:1] == ["towline-recording"]) or len(header) != 3:
        raise InvalidInput("is not a recording", where=str(path), hint=_MAKE_ONE)
    if header[1] != SCHEMA:
        raise InvalidInput(f"recording schema {header[1]}; this version reads {SCHEMA}", where=str(path))
    if header[2] != code:
        raise InvalidInput(
            "the recording is of another firmware",
            where=str(path),
            hint="replay it with the image it was made with",
        )
    if not events or not isinstance(events[-1], list) or events[-1][:1] != ["E"]:
        raise InvalidInput("the recording has no end: it was cut off", where=str(path), hint=_MAKE_ONE)
    return events


_MAKE_ONE = "make one with `towline emulate IMAGE --record FILE`"


class _Difference(Exception):
    """The CPU did something other than recorded."""


class _Player:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._cpu: Mcs51 = machine.cpu
        self._bus: Bus = machine.bus
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
                number, level = rest
                if number not in (0, 1):
                    raise ValueError(f"there is no interrupt line {number}")
                self._bus.interrupt(number, bool(level))
            case "X":
                self._advance(clock)
                self._cpu.reset()
            case "E":
                self._end(clock, *rest)
            case _:
                raise ValueError(f"unknown kind {kind!r}")

    def _advance(self, clock: int) -> None:
        """To exactly `clock`, with no access that concerns a block on the way."""
        if self._cpu.clock <= clock and (stop := self._run(clock)) is not Stop.UNTIL:
            raise self._unexpected(stop)
        if self._cpu.clock != clock:
            raise _Difference(f"the CPU is at clock {self._cpu.clock}, the recording at {clock}")

    def _access(self, kind: str, clock: int, pc: int, space: str, address: int, value: int) -> None:
        stop = self._run(clock)
        found = (_ACCESSES.get(stop), self._cpu.clock, self._cpu.stop_pc)
        place = (PLANES[self._cpu.plane].value, self._cpu.address)
        if found != (kind, clock, pc) or place != (space, address):
            raise self._otherwise(stop, kind, clock, pc, space, address, value)
        if kind == "R":
            self._expected_read = value
            read = self._bus.cpu_read(Space(space), address)
            self._cpu.finish_read(value)
            if read != value:
                raise _Difference(
                    f"the storage at {address:#06x} holds {read:#04x}; recorded was {value:#04x}"
                )
            return
        if self._cpu.value != value:
            raise self._otherwise(stop, kind, clock, pc, space, address, value)
        self._bus.cpu_write(Space(space), address, value)

    def _end(self, clock: int, instructions: int, state: str) -> None:
        """The recording ended here, and so must this run: before an access, if it was refused, or after."""
        stop = self._run(clock, carry_out_last=False)
        if self._cpu.clock != clock:
            raise self._unexpected(stop)
        recorded = (instructions, state)
        if recorded != (self._cpu.instructions, digest(self._machine)) and stop in _ACCESSES:
            self._carry_out(stop)
        if recorded != (self._cpu.instructions, digest(self._machine)):
            raise _Difference(f"the end is at clock {clock} as it was, but with other registers or memory")

    def _run(self, until: int, *, carry_out_last: bool = True) -> Stop:
        """Run to a clock, or to an access that concerns a block.

        Accesses of storage on the way, that are watched or questioned, are carried out; without
        `carry_out_last`, not one that ends at just that clock.
        """
        cpu = self._cpu
        while True:
            stop = cpu.run(min(until, cpu.clock + SLICE))
            self._machine.clock.now = cpu.clock
            if stop is Stop.SERIAL:
                self._machine.serial(cpu.value)
            elif stop in FAULTS and cpu.clock != until:
                raise self._machine.fault(stop)
            elif stop in _ACCESSES and not self._concerns(stop) and (carry_out_last or cpu.clock != until):
                self._carry_out(stop)
            elif stop is not Stop.UNTIL or cpu.clock >= until:
                return stop

    def _concerns(self, stop: Stop) -> bool:
        return self._bus.concerns(_ACCESSES[stop], PLANES[self._cpu.plane], self._cpu.address)

    def _carry_out(self, stop: Stop) -> None:
        space = PLANES[self._cpu.plane]
        if stop is Stop.READ:
            self._cpu.finish_read(self._bus.cpu_read(space, self._cpu.address))
        else:
            self._bus.cpu_write(space, self._cpu.address, self._cpu.value)

    def _unexpected(self, stop: Stop) -> _Difference:
        return _Difference(f"the CPU {self._did(stop)}, which is not in the recording")

    def _otherwise(
        self, stop: Stop, kind: str, clock: int, pc: int, space: str, address: int, value: int
    ) -> _Difference:
        where = f"clock {clock}, PC {self._machine.name_of(pc)}"
        recorded = f"{kind} {space} {address:#06x} = {value:#04x} at {where}"
        return _Difference(f"the CPU {self._did(stop)}; recorded was {recorded}")

    def _did(self, stop: Stop) -> str:
        cpu = self._cpu
        where = f"clock {cpu.clock}, PC {self._machine.name_of(cpu.stop_pc)}"
        if access := _ACCESSES.get(stop):
            value = f" = {cpu.value:#04x}" if stop is Stop.WRITE else ""
            return f"did {access} {PLANES[cpu.plane].value} {cpu.address:#06x}{value} at {where}"
        if stop is Stop.UNTIL:
            return f"ran on to clock {cpu.clock}"
        return f"stopped ({FAULTS.get(stop, stop.name)}) at {where}"
