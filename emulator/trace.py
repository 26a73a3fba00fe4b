"""A trace of register accesses, by name and field: `towline emulate --trace`.

    0.012345678 1a2b  W BULK_COMMAND       9094 = 10  ARM_OUT
    0.012345721 1a30  W BULK_IN_LENGTH+1   9076 = 40  0x0140
    0.012345810       . USB_EVENTS         9101 = 04  BULK

R and W are the CPU's, with the address of the instruction; a dot marks a change that the hardware made. The
CPU accesses a register of several bytes byte by byte; after each is what the whole register then holds.
What a user's poke or behaviour does is shown whatever is traced, with an arrow from what it would have been:

    0.100000000       P xdata                    c6b3 = 00 -> 30
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from emulator.core.bus import Bus
from emulator.core.clock import seconds
from firmware.asm2464pd.describe import ByteRegister, Space
from sdk.errors import UsageError
from sdk.facts.registers import Access

_UNKNOWN = -1
"""Instead of a byte: what a write has made of it."""
REPEATS = 3
"""Identical accesses in a row that are printed; the rest of a polling loop is counted."""


class Trace:
    """Writes a line for every access to the registers of some blocks.

    Args:
        bus: what to watch.
        blocks: the chip's registers by block; those of the CPU itself do not come over the bus.
        chosen: names of blocks; empty means all.
        write: takes each line, without its end.

    Raises:
        UsageError: a chosen block does not exist.
    """

    def __init__(
        self,
        bus: Bus,
        blocks: Mapping[str, Collection[ByteRegister]],
        chosen: Collection[str],
        write: Callable[[str], None],
    ) -> None:
        offered = traceable(blocks)
        if unknown := sorted(set(chosen) - set(offered)):
            raise UsageError(
                f"there is no block {', '.join(unknown)} to trace", hint=f"blocks: {', '.join(offered)}"
            )
        self._bus = bus
        self._write = write
        self._last = ""
        self._times = 0
        self._lines = not chosen or "interrupts" in chosen
        self._held: dict[tuple[Space, int], int] = {}  # the watched bytes, as far as they are known
        for name in chosen or offered:
            for register in blocks[name]:
                if register.space not in bus.planes:
                    continue
                for address in register.addresses:
                    bus.watch(register.space, address)
                    self._held[register.space, address] = bus.planes[register.space][address]
        bus.observers.append(self)
        bus.experiments.append(self._experiment)

    def accessed(self, kind: str, space: Space, address: int, value: int) -> None:
        register = self._bus.facts.at(space, address)
        if register is None or (space, address) not in self._held or self._bus.overridden(space, address):
            return
        stored = kind == "R" or register.access is Access.RW
        self._held[space, address] = value if stored else _UNKNOWN
        head = f"{self._bus.program_counter():04x}  {kind}"
        if register.size == 1:
            self._line(head, register, register.name, address, f"{value:02x}", describe(register, value))
            return
        shift = register.shift(address)
        whole = self._bus.value(register) & ~(0xFF << shift) | value << shift
        name = f"{register.name}+{address - register.address}"
        meaning = f"{whole:#0{2 + 2 * register.size}x}  {describe(register, whole)}"
        self._line(head, register, name, address, f"{value:02x}", meaning)

    def changed(self, space: Space, address: int, data: bytes) -> None:
        if space not in self._bus.planes:
            return
        place, end = address, address + len(data)
        while place < end:
            register = self._bus.facts.at(space, place) if (space, place) in self._held else None
            if register is None:
                place += 1
                continue
            following = min(end, register.address + register.size)
            if self._differs(space, place, data[place - address : following - address]):
                value = self._bus.value(register)
                digits = f"{value:0{2 * register.size}x}"
                words = describe(register, value)
                self._line("      .", register, register.name, register.address, digits, words)
            place = following

    def line(self, number: int, level: bool) -> None:
        if self._lines:
            self._print(f"      . INT{number} {'asserted' if level else 'released'}")

    def close(self) -> None:
        """Trace nothing more."""
        self._bus.observers.remove(self)
        self._bus.experiments.remove(self._experiment)
        self._end_repeats()

    def _experiment(self, kind: str, space: Space, address: int, before: int, after: int) -> None:
        register = self._bus.facts.at(space, address)
        head = f"{'' if kind == 'P' else f'{self._bus.program_counter():04x}':4}  {kind}"
        name = space.value if register is None else register.name
        digits = f"{before:02x} -> {after:02x}" if before != after else f"{after:02x}"
        self._print(f"{head} {name:<24} {address:04x} = {digits}")

    def _end_repeats(self) -> None:
        """Say how often the last line was repeated, if it was."""
        if (more := self._times - REPEATS) > 0:
            self._write(f"{'':12}      ... {more} more time{'s' if more > 1 else ''}")
        self._last, self._times = "", 0

    def _differs(self, space: Space, address: int, data: bytes) -> bool:
        """Whether these bytes differ from what the trace has shown; updates what it has shown."""
        differs = False
        for place, value in enumerate(data, address):
            differs = differs or self._held.get((space, place)) != value
            self._held[space, place] = value
        return differs

    def _line(
        self, head: str, register: ByteRegister, name: str, address: int, digits: str, meaning: str
    ) -> None:
        plane = "" if register.space is Space.XDATA else f"{register.space.value}:"
        self._print(f"{head} {name:<24} {plane}{address:04x} = {digits}  {meaning}".rstrip())

    def _print(self, text: str) -> None:
        if text == self._last:
            self._times += 1
            if self._times > REPEATS:
                return
        else:
            self._end_repeats()
            self._last, self._times = text, 1
        self._write(f"{seconds(self._bus.clock.now):12.9f} {text}")


def traceable(blocks: Mapping[str, Collection[ByteRegister]]) -> tuple[str, ...]:
    """The names of the blocks with registers on the bus."""
    return tuple(
        name
        for name, registers in blocks.items()
        if any(register.space in (Space.XDATA, Space.PHY) for register in registers)
    )


def describe(register: ByteRegister, value: int) -> str:
    """The fields of a value that are not zero: `ARM_OUT MODE=3`, or `STATE=L0` where a value has a name."""
    words = []
    for part in register.fields:
        content = part.get(value)
        if content in part.values:
            words.append(f"{part.name}={part.values[content]}")
        elif content:
            words.append(part.name if part.width == 1 else f"{part.name}={content:#x}")
    return " ".join(words)
