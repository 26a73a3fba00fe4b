"""Functions of a user that stand in for bytes of the chip: `towline emulate --behaviour FILE.py`.

The file is Python and sets BEHAVIOUR, from a register's name or an address to a function:

    def phy_ready(access):
        if access.kind == "R" and access.seconds > 0.1:
            return access.value | 0x30

    BEHAVIOUR = {"xdata:c6b3": phy_ready}

A function is called with an `Access` for each access of the CPU, byte by byte. It returns the value that the
CPU reads, or that is written, or None for what the model does. A trace shows both values.
"""

from __future__ import annotations

import functools
import runpy
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from emulator import poke
from emulator.core.bus import Bus, Override
from emulator.core.clock import clocks, seconds
from firmware.asm2464pd.describe import Space
from sdk.errors import DeviceFailed, InvalidInput, TowlineError, UsageError

TABLE = "BEHAVIOUR"
"""The name that the file has to set."""
_LOOKS = f'it sets, for example, {TABLE} = {{"xdata:c6b3": function}}; docs/emulator.md has one'
T = TypeVar("T")


class BehaviourFailed(DeviceFailed):
    """A function of the file raised an exception, or returned something else than a byte."""

    code = "behaviour"


@dataclass(frozen=True, slots=True)
class Access:
    """An access of the CPU to a byte, and what a function may do about it.

    Attributes:
        kind: "R" or "W".
        space: "xdata" or "phy".
        address: of the byte.
        value: what the model reads, or what the CPU writes.
        seconds: of virtual time since power-on.
        pc: address of the instruction.
    """

    kind: str
    space: str
    address: int
    value: int
    seconds: float
    pc: int
    _owner: Behaviour

    def get(self, place: str) -> int:
        """The byte of an address, or the value of a register by its name, as the model has it."""
        return self._owner.get(place)

    def set(self, place: str, value: int) -> None:
        """Change a byte, or a register by its name, as a block of the chip does."""
        self._owner.set(place, value)

    def write(self, place: str, value: int) -> None:
        """Write a byte as the CPU does, with all that this starts."""
        self._owner.write(place, value)

    def later(self, delay: float, action: Callable[[], Any]) -> None:
        """Call `action` after so many seconds of virtual time."""
        self._owner.later(delay, action)


Function = Callable[[Access], Any]


class Behaviour:
    """The functions of a file, in place on a bus.

    Args:
        path: of the file.
        bus: of the chip.

    Raises:
        UsageError: there is no such file.
        InvalidInput: it cannot be run, or does not set BEHAVIOUR as it must.
    """

    def __init__(self, path: Path, bus: Bus) -> None:
        self._path = path
        self._bus = bus
        self._busy = False
        for name, function in _table(path).items():
            try:
                if not isinstance(name, str) or not callable(function):
                    raise UsageError(f"{name!r}: {function!r} is not a name with a function")
                space, address, size = poke.place(name, bus.facts)
            except UsageError as problem:
                raise InvalidInput(
                    problem.message, where=f"{path}, {TABLE}", hint=problem.hint or _LOOKS
                ) from None
            for byte in range(address, address + (size or 1)):
                read, write = (functools.partial(self._called, function, kind, space, byte) for kind in "RW")
                bus.override(space, byte, Override(read, write))

    def get(self, place: str) -> int:
        space, address, size = poke.place(place, self._bus.facts)
        if size is None:
            return self._bus.load(space, address, 1)[0]
        return self._bus.value(self._bus.facts[place.upper()])

    def set(self, place: str, value: int) -> None:
        change = poke.parse(f"{place}={value:x}", self._bus.facts)
        self._bus.poke(change.space, change.address, change.data)

    def write(self, place: str, value: int) -> None:
        space, address, _ = poke.place(place, self._bus.facts)
        self._bus.cpu_write(space, address, _byte(value))

    def later(self, delay: float, action: Callable[[], Any]) -> None:
        self._bus.clock.after(clocks(delay), functools.partial(self._guarded, action))

    def _called(self, function: Function, kind: str, space: Space, address: int, value: int) -> int:
        if self._busy:  # what the function itself writes is not passed to it
            return value
        bus = self._bus
        now, pc = seconds(bus.clock.now), bus.program_counter()
        access = Access(kind, space.value, address, value, now, pc, self)
        return self._guarded(lambda: _result(function(access), value))

    def _guarded(self, action: Callable[[], T]) -> T:
        """What a function returns.

        Raises:
            BehaviourFailed: it raised an exception.
        """
        self._busy = True
        try:
            return action()
        except BehaviourFailed:
            raise
        except (Exception, SystemExit) as problem:
            raise BehaviourFailed(_said(problem), where=_where(problem, self._path)) from problem
        finally:
            self._busy = False


def _table(path: Path) -> dict[Any, Any]:
    """BEHAVIOUR of a file."""
    if not path.is_file():
        raise UsageError("no such file", where=str(path))
    try:
        found = runpy.run_path(str(path)).get(TABLE)
    except (Exception, SystemExit) as problem:
        raise InvalidInput(_said(problem), where=_where(problem, path)) from problem
    if not isinstance(found, dict) or not found:
        raise InvalidInput(f"sets no {TABLE}", where=str(path), hint=_LOOKS)
    return found


def _result(returned: Any, value: int) -> int:
    return value if returned is None else _byte(returned)


def _byte(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 0xFF:
        raise ValueError(f"{value!r} is not a byte: give 0 to 255, or None for what the model does")
    return value


def _said(problem: BaseException) -> str:
    if isinstance(problem, TowlineError):
        return problem.message
    message = problem.msg if isinstance(problem, SyntaxError) else problem
    return f"{type(problem).__name__}: {message}"


def _where(problem: BaseException, path: Path) -> str:
    """The file, and the line of it that an exception came through, if it did."""
    if isinstance(problem, SyntaxError) and problem.filename == str(path):
        return f"{path}:{problem.lineno}"
    frames = traceback.walk_tb(problem.__traceback__)
    lines = [number for frame, number in frames if frame.f_code.co_filename == str(path)]
    return f"{path}:{lines[-1]}" if lines else str(path)
