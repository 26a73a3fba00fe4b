"""A trace of register accesses, by name and field: `towline emulate --trace`.

    0.012345678 1a2b  W BULK_COMMAND       9094 = 10  ARM_OUT
    0.012345810       . USB_STATUS         9101 = 04  BULK

R and W are the CPU's, with the address of the instruction; a dot marks a change that the hardware made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from emulator.core.bus import Bus
from emulator.core.clock import seconds
from firmware.asm2464pd.describe import Register, Space
from sdk.errors import UsageError

REPEATS = 3
"""Identical accesses in a row that are printed; the rest of a polling loop is counted."""


class Trace:
    """Writes a line for every access to the registers of some blocks.

    Args:
        bus: what to watch.
        blocks: the chip's registers by block.
        chosen: names of blocks; empty means all.
        write: takes each line, without its end.

    Raises:
        UsageError: a chosen block does not exist.
    """

    def __init__(
        self,
        bus: Bus,
        blocks: Mapping[str, Collection[Register]],
        chosen: Collection[str],
        write: Callable[[str], None],
    ) -> None:
        unknown = sorted(set(chosen) - set(blocks))
        if unknown:
            raise UsageError(
                f"there is no block {', '.join(unknown)} to trace", hint=f"blocks: {', '.join(blocks)}"
            )
        self._bus = bus
        self._write = write
        self._last = ""
        self._times = 0
        self._watched: set[tuple[Space, int]] = set()
        for name in chosen or blocks:
            for register in blocks[name]:
                if register.space not in bus.planes:
                    continue
                for address in register.addresses:
                    bus.watch(register.space, address)
                    self._watched.add((register.space, address))
        bus.observers.append(self)

    def accessed(self, kind: str, space: Space, address: int, value: int) -> None:
        if (space, address) in self._watched:
            self._line(f"{self._bus.program_counter():04x}  {kind}", space, address, value)

    def changed(self, space: Space, address: int, data: bytes) -> None:
        for place, value in enumerate(data, address):
            if (space, place) in self._watched:
                self._line("      .", space, place, value)

    def line(self, number: int, level: bool) -> None:
        self._print(f"      . INT{number} {'asserted' if level else 'released'}")

    def close(self) -> None:
        """Say how often the last line was repeated, if it was."""
        if self._times > REPEATS:
            self._write(f"{'':12}      ... {self._times - REPEATS} more times")
        self._last, self._times = "", 0

    def _line(self, head: str, space: Space, address: int, value: int) -> None:
        register = self._bus.facts.at(space, address)
        if register is None:
            return
        plane = "" if space is Space.XDATA else f"{space.value}:"
        name = register.name if register.size == 1 else f"{register.name}+{address - register.address}"
        text = f"{head} {name:<24} {plane}{address:04x} = {value:02x}"
        if register.size == 1 and register.fields:
            text += "  " + describe(register, value)
        self._print(text.rstrip())

    def _print(self, text: str) -> None:
        if text == self._last:
            self._times += 1
            if self._times > REPEATS:
                return
        else:
            self.close()
            self._last, self._times = text, 1
        self._write(f"{seconds(self._bus.clock.now):12.9f} {text}")


def describe(register: Register, value: int) -> str:
    """The fields of a value that are not zero: `ARM_OUT MODE=3`, or `STATE=L0` where a value has a name."""
    words = []
    for part in register.fields:
        content = part.get(value)
        if content in part.values:
            words.append(f"{part.name}={part.values[content]}")
        elif content:
            words.append(part.name if part.width == 1 else f"{part.name}={content:#x}")
    return " ".join(words)
