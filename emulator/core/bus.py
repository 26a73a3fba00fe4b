"""The bus between the CPU and the chip's blocks: storage, what a write means, and who observes it.

Every byte of an address space has storage and flags. The storage holds what a read returns, so that most
reads, and writes that mean nothing more, need no code at all: a native CPU core reads and writes the
storage itself, and comes here only for bytes whose flags say so. A block keeps the storage of its
registers true: `set` when the hardware changes them, a function for writes that start something.

A block sees this interface and no CPU: it maps its registers, raises interrupt lines, and asks the time.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from emulator.core.clock import Scheduler
from firmware.asm2464pd.describe import ByteRegister, Map, Memory, Space
from sdk.errors import DeviceFailed, InternalError
from sdk.facts.registers import Access, Evidence

log = logging.getLogger(__name__)

# Flags of a byte. The native core has the same values (mcs51.h).
READ_CALLS = 0x01
"""A CPU read goes through `cpu_read`."""
WRITE_CALLS = 0x02
"""A CPU write goes through `cpu_write`."""
WRITE_IGNORED = 0x04
"""A CPU write does nothing."""
WRITE_CLEARS = 0x08
"""A CPU write clears the bits that it has set."""
UNINITIALISED = 0x10
"""RAM that has not been written yet; a guard reports its first read."""
NATIVE = 0x20
"""A CPU write goes to the native device of that plane (the PCIe TLP launch)."""

SHOWN_UNKNOWN = 8
"""Unknown addresses that are logged one by one; the others are in the summary."""
SHOWN_RANGES = 120
"""Ranges of each space that the summary lists."""

MARKED = bytes(flags | UNINITIALISED for flags in range(0x100))
"""Flags by what they were, once their byte counts as not written."""

Read = Callable[[], int]
Write = Callable[[int], None]


class Unmodelled(DeviceFailed):
    """Under `--strict`: firmware touched something that is not modelled, or only guessed."""

    code = "unmodelled"


class Dead(Enum):
    """Why no block ever changes what a byte reads; the value completes "..., " in a message."""

    UNKNOWN = "about which nothing is known"
    UNNAMED = "whose meaning is not known"
    UNMODELLED = "which is declared but not modelled"
    GUESS = "which is only a guess"
    STORAGE = "which nothing but the CPU changes"


class Observer(Protocol):
    """Watches the bus: a trace, a recorder."""

    def accessed(self, kind: str, space: Space, address: int, value: int) -> None:
        """The CPU read ("R", value returned) or wrote ("W", value written) a byte that calls."""

    def changed(self, space: Space, address: int, data: bytes) -> None:
        """A block changed storage."""

    def line(self, number: int, level: bool) -> None:
        """A block drove an interrupt line of the CPU."""


@dataclass(slots=True)
class _Port:
    """One mapped byte."""

    register: ByteRegister
    access: Access
    owner: str
    read: Read | None = None
    write: Write | None = None
    native: bool = False
    counted: bool = False


@dataclass(frozen=True, slots=True)
class Override:
    """What a user has a byte do instead of what the model does.

    Attributes:
        read: from what the model reads to what the CPU reads.
        write: from what the CPU writes to what is written.
    """

    read: Callable[[int], int]
    write: Callable[[int], int]


Experiment = Callable[[str, Space, int, int, int], None]
"""Takes what a user's experiment did to a byte: "R", "W" (the CPU's), or "P" for a poke; space and address;
what there would have been without it, and what there is."""


class Plane:
    """One MOVX address space: storage by 256-byte page, and flags by byte.

    Attributes:
        storage: the plane's own 64 KiB.
        flags: 64 KiB of flags.
        pages: per page, the buffer that holds it and the offset of the page in it; windows and mirrors
            point into another place.
    """

    def __init__(self) -> None:
        self.storage = bytearray(0x10000)
        self.flags = bytearray(0x10000)
        self.pages: list[tuple[bytearray, int]] = [(self.storage, page << 8) for page in range(0x100)]

    def __getitem__(self, address: int) -> int:
        buffer, offset = self.pages[address >> 8]
        return buffer[offset + (address & 0xFF)]

    def __setitem__(self, address: int, value: int) -> None:
        buffer, offset = self.pages[address >> 8]
        buffer[offset + (address & 0xFF)] = value


class Bus:
    """Storage and dispatch for the chip's XDATA and PHY planes, and the SRAM.

    Args:
        facts: registers and memories of the chip.
        clock: virtual time.
        strict: an access to an unmodelled or guessed byte raises `Unmodelled` instead of being logged.

    Attributes:
        planes: the two MOVX planes.
        sram: the data buffer.
        program_counter: the address of the instruction that accesses the bus; the CPU's owner sets it.
        place: the same in words, for messages.
        drive: called with (interrupt line, level) when a block drives a line of the CPU; the CPU's owner
            sets it.
        experiments: called after each use of an override, and after each poke.
    """

    def __init__(self, facts: Map, clock: Scheduler, *, strict: bool = False) -> None:
        self.facts = facts
        self.clock = clock
        self.strict = strict
        self.planes: Mapping[Space, Plane] = {Space.XDATA: Plane(), Space.PHY: Plane()}
        self.sram = bytearray(0x80000)
        self.program_counter: Callable[[], int] = lambda: 0
        self.place: Callable[[], str] = lambda: f"PC {self.program_counter():#06x}"
        self.drive: Callable[[int, bool], None] = lambda line, level: None
        self.observers: list[Observer] = []
        self.experiments: list[Experiment] = []
        self._ports: dict[tuple[Space, int], _Port] = {}
        self._reported: set[tuple[Space, int]] = set()
        self._unknown: list[tuple[Space, int]] = []
        self._counted: set[tuple[Space, int]] = set()
        self._protected: set[str] = set()
        self._watched: set[tuple[Space, int]] = set()
        self._overrides: dict[tuple[Space, int], Override] = {}
        self._guarded = False
        for plane in self.planes.values():
            plane.flags[:] = bytes([READ_CALLS | WRITE_CALLS]) * len(plane.flags)
        for memory in facts.memories:
            self._lay_out(memory)
        for register in facts.registers:
            if register.space in self.planes:
                self._reset(register)

    # -- for blocks -------------------------------------------------------------------------------------

    def map(
        self,
        register: ByteRegister,
        owner: str,
        *,
        write: Write | None = None,
        read: Read | None = None,
        at: int | None = None,
        native: bool = False,
        counted: bool = False,
    ) -> None:
        """Take a register over.

        Its access kind says what a CPU write does to the storage; then `write` is called with the byte
        written. `read`, for a FIFO, supplies the byte of a CPU read. A register of several bytes is
        mapped whole; functions then need `at`, the byte's offset from its first address, and the others
        are mapped by calls of their own. Without functions a register is storage. A register whose meaning
        is not known is `counted`: the first access puts it into the `summary`.
        """
        if register.size > 1 and at is None and (write or read or native):
            raise InternalError(f"{register.name} has several bytes: say which one calls")
        addresses = register.addresses if at is None else (register.address + at,)
        for address in addresses:
            access = register.access
            if len(register.fields) > 0:
                shift = register.shift(address)
                kinds = {
                    part.access or register.access for part in register.fields if part.mask >> shift & 0xFF
                }
                if len(kinds) == 1:
                    access = kinds.pop()
            self._ports[register.space, address] = _Port(
                register, access, owner, read, write, native, counted
            )
            self.planes[register.space].flags[address] = self._flags(register.space, address)

    def protect(self, memory: Memory) -> None:
        """CPU writes to a memory are ignored from now on."""
        self._protected.add(memory.name)
        self._lay_out(memory)

    def value(self, register: ByteRegister) -> int:
        """What the storage of a register holds."""
        plane = self.planes[register.space]
        if register.size == 1:
            buffer, offset = plane.pages[register.address >> 8]
            return buffer[offset + (register.address & 0xFF)]
        return sum(plane[address] << register.shift(address) for address in register.addresses)

    def set(self, register: ByteRegister, value: int) -> None:
        """The hardware changes a register."""
        order = "little" if register.little else "big"
        self.store(register.space, register.address, value.to_bytes(register.size, order))  # type: ignore[arg-type]

    def raise_bits(self, register: ByteRegister, bits: int) -> None:
        """Set bits of a register, leaving the others."""
        self.set(register, self.value(register) | bits)

    def clear_bits(self, register: ByteRegister, bits: int) -> None:
        """Clear bits of a register, leaving the others."""
        self.set(register, self.value(register) & ~bits)

    def load(self, space: Space, address: int, size: int) -> bytes:
        """Bytes of storage, without side effects."""
        if space is Space.SRAM:
            return bytes(self.sram[address : address + size])
        if size == 1:
            return bytes((self.planes[space][address],))
        return b"".join(
            buffer[offset : offset + length] for buffer, offset, length in self._pieces(space, address, size)
        )

    def store(self, space: Space, address: int, data: bytes) -> None:
        """A block (a DMA engine, the USB controller) writes storage."""
        if space is Space.SRAM:
            self.sram[address : address + len(data)] = data
        elif len(data) == 1 and not self._guarded:
            self.planes[space][address] = data[0]
        else:
            done = 0
            for buffer, offset, length in self._pieces(space, address, len(data)):
                buffer[offset : offset + length] = data[done : done + length]
                done += length
            if self._guarded:
                flags = self.planes[space].flags
                for place in range(address, address + len(data)):
                    flags[place] &= ~UNINITIALISED
        for observer in self.observers:
            observer.changed(space, address, data)

    def forget(self) -> None:
        """The power fails: registers are as after reset, memories hold zeros."""
        self.sram[:] = bytes(len(self.sram))
        for memory in self.facts.memories:
            if memory.space in self.planes:
                for buffer, offset, length in self._pieces(memory.space, memory.address, memory.size):
                    buffer[offset : offset + length] = bytes(length)
        for register in self.facts.registers:
            if register.space in self.planes:
                self._reset(register)

    def interrupt(self, line: int, level: bool) -> None:
        """Drive external interrupt line 0 or 1 of the CPU."""
        self.drive(line, level)
        for observer in self.observers:
            observer.line(line, level)

    # -- for the CPU's owner ----------------------------------------------------------------------------

    def cpu_read(self, space: Space, address: int) -> int:
        """A CPU read of a byte that is flagged READ_CALLS.

        Raises:
            Unmodelled: strict, and this byte is not modelled.
        """
        port = self._ports.get((space, address))
        override = self._overrides.get((space, address))
        if override is None and (port is None or port.counted or port.register.evidence is Evidence.GUESS):
            self._question(space, address, port)
        value = port.read() if port is not None and port.read is not None else self.planes[space][address]
        if override is not None:
            value = self._changed("R", space, address, value, override.read)
        for observer in self.observers:
            observer.accessed("R", space, address, value)
        return value

    def cpu_write(self, space: Space, address: int, value: int) -> None:
        """A CPU write of a byte that is flagged WRITE_CALLS.

        Raises:
            Unmodelled: strict, and this byte is not modelled.
        """
        port = self._ports.get((space, address))
        override = self._overrides.get((space, address))
        if override is not None:
            value = self._changed("W", space, address, value, override.write)
        elif port is None or port.counted or port.register.evidence is Evidence.GUESS:
            self._question(space, address, port)
        for observer in self.observers:
            observer.accessed("W", space, address, value)
        plane = self.planes[space]
        if port is None:
            memory = self.facts.memory_at(space, address)
            if memory is None or self._writable(memory):
                plane[address] = value
            return
        match port.access:
            case Access.RW:
                plane[address] = value
            case Access.W1C:
                plane[address] &= ~value
            case Access.RO:
                return
            case Access.WO | Access.SELF_CLEARING | Access.FIFO:
                pass
        if port.write is not None:
            port.write(value)

    @property
    def questionable_sfrs(self) -> frozenset[int]:
        """Special function registers that are unknown or guessed; their accesses go to `question_sfr`."""
        declared = {address: self.facts.at(Space.SFR, address) for address in range(0x80, 0x100)}
        return frozenset(
            address
            for address, register in declared.items()
            if register is None or register.evidence is Evidence.GUESS
        )

    def question_sfr(self, address: int) -> None:
        """Log an access to one of `questionable_sfrs`, once.

        Raises:
            Unmodelled: strict.
        """
        if self.strict or (Space.SFR, address) not in self._reported:
            self._report(Space.SFR, address, modelled=True)

    def concerns(self, kind: str, space: Space, address: int) -> bool:
        """Whether a CPU access ("R" or "W") means more to the chip than its storage does, watched or not."""
        port = self._ports.get((space, address))
        if port is None:
            return False
        return port.read is not None if kind == "R" else port.write is not None or port.native

    def dead(self, space: Space, address: int) -> Dead | None:
        """Why no block ever changes what a byte reads; None if one may, and for memory."""
        if (space, address) in self._overrides:
            return None
        port = self._ports.get((space, address))
        if port is None:
            if self.facts.memory_at(space, address) is not None:
                return None
            return Dead.UNKNOWN if self.facts.at(space, address) is None else Dead.UNMODELLED
        if port.read is not None or port.write is not None or port.native:
            return None
        if port.counted:
            return Dead.UNNAMED
        if port.register.evidence is Evidence.GUESS:
            return Dead.GUESS
        return Dead.STORAGE if port.access is Access.RW else None

    def owner(self, space: Space, address: int) -> str:
        """The block that has mapped a byte, "" if none has."""
        port = self._ports.get((space, address))
        return "" if port is None else port.owner

    def watch(self, space: Space, address: int) -> None:
        """Have every CPU access of a byte come here, so that observers get it."""
        self._watched.add((space, address))
        self.planes[space].flags[address] = READ_CALLS | WRITE_CALLS

    def override(self, space: Space, address: int, override: Override) -> None:
        """Have a byte behave as a user wants, for the CPU; replaces an earlier override."""
        self._overrides[space, address] = override
        self.watch(space, address)

    def overridden(self, space: Space, address: int) -> bool:
        """Whether a byte has an override."""
        return (space, address) in self._overrides

    def poke(self, space: Space, address: int, data: bytes) -> None:
        """Change storage for a user, as if a block had."""
        before = self.load(space, address, len(data))
        self.store(space, address, data)
        for place, (old, new) in enumerate(zip(before, data, strict=True), address):
            self._experiment("P", space, place, old, new)

    def guard_uninitialised(self) -> None:
        """Mark all plain RAM as never written; the SRAM's windows and landing buffers are not plain."""
        self._guarded = True
        for memory in self.facts.memories:
            plain = self._writable(memory) and memory.sram is None and not memory.landing
            if memory.space in self.planes and plain:
                flags = self.planes[memory.space].flags
                part = slice(memory.address, memory.address + memory.size)
                flags[part] = flags[part].translate(MARKED)

    def disconnect(self, read: Callable[[Space, int], int]) -> None:
        """Disconnect every block: their reads come from `read`, writes only store. For replay."""
        for (space, address), port in self._ports.items():
            if port.read is not None:
                port.read = functools.partial(read, space, address)
            if port.write is not None:
                port.write = _ignore

    def summary(self) -> str:
        """The addresses without known meaning that the CPU accessed, in one line; "" if there are none."""
        parts = []
        if self._counted:
            parts.append(f"{_listed(self._counted)} are registers whose meaning is not known")
        if self._unknown:
            parts.append(f"of {_listed(self._unknown)} nothing is known")
        return f"{'; '.join(parts)}: here they are storage" if parts else ""

    # -- inside -----------------------------------------------------------------------------------------

    def _changed(
        self, kind: str, space: Space, address: int, value: int, change: Callable[[int], int]
    ) -> int:
        """What an override makes of a value."""
        changed = change(value)
        self._experiment(kind, space, address, value, changed)
        return changed

    def _experiment(self, kind: str, space: Space, address: int, before: int, after: int) -> None:
        for listener in self.experiments:
            listener(kind, space, address, before, after)

    def _writable(self, memory: Memory) -> bool:
        return memory.writable and memory.name not in self._protected

    def _pieces(self, space: Space, address: int, size: int) -> Iterator[tuple[bytearray, int, int]]:
        """Where a stretch of a plane is stored: (buffer, offset, length), page by page."""
        pages = self.planes[space].pages
        while size > 0:
            buffer, offset = pages[address >> 8]
            length = min(size, 0x100 - (address & 0xFF))
            yield buffer, offset + (address & 0xFF), length
            address += length
            size -= length

    def _lay_out(self, memory: Memory) -> None:
        if memory.space not in self.planes:
            return
        plane = self.planes[memory.space]
        for address in range(memory.address, memory.address + memory.size, 0x100):
            page = address >> 8
            if memory.sram is not None:
                plane.pages[page] = (self.sram, memory.sram + address - memory.address)
            elif memory.mirror is not None:
                plane.pages[page] = plane.pages[memory.mirror + address - memory.address >> 8]
        flags = 0 if self._writable(memory) else WRITE_IGNORED
        plane.flags[memory.address : memory.address + memory.size] = bytes([flags]) * memory.size

    def _reset(self, register: ByteRegister) -> None:
        plane = self.planes[register.space]
        for address in register.addresses:
            plane[address] = register.reset >> register.shift(address) & 0xFF

    def _flags(self, space: Space, address: int) -> int:
        """What a mapped byte needs beyond its storage."""
        port = self._ports[space, address]
        questioned = (space, address) in self._reported and not self.strict
        if (space, address) in self._watched or (port.register.evidence is Evidence.GUESS and not questioned):
            return READ_CALLS | WRITE_CALLS
        if port.counted and (space, address) not in self._counted:
            return READ_CALLS | WRITE_CALLS
        flags = READ_CALLS if port.read is not None else 0
        if port.native:
            return flags | NATIVE
        if port.write is not None:
            return flags | WRITE_CALLS
        if port.access is Access.RW:
            return flags
        return flags | (WRITE_CLEARS if port.access is Access.W1C else WRITE_IGNORED)

    def _question(self, space: Space, address: int, port: _Port | None) -> None:
        """Log an access to a byte that is not mapped, or a guess, once; or refuse it, under `strict`."""
        if port is not None:
            if port.counted and (space, address) not in self._counted:
                self._counted.add((space, address))
                if (space, address) not in self._watched:
                    self.planes[space].flags[address] = self._flags(space, address)
            if port.register.evidence is not Evidence.GUESS:
                return
        elif self.facts.memory_at(space, address) is not None:
            return
        if not self.strict and (space, address) in self._reported:
            return
        self._report(space, address, modelled=port is not None)
        if (space, address) not in self._watched:  # reported once; from now on as fast as the rest
            flags = self._flags(space, address) if port is not None else 0
            self.planes[space].flags[address] = flags

    def _report(self, space: Space, address: int, *, modelled: bool) -> None:
        self._reported.add((space, address))
        declared = self.facts.at(space, address)
        nearest = self.facts.nearest(space, address)
        if declared is not None:
            what = f"{declared.name} is {'only a guess' if modelled else 'declared but not modelled'}"
        elif nearest is not None:
            what = f"unknown address (nearest: {nearest.name} at {nearest.address:#06x})"
        else:
            what = "unknown address"
        where = f"{space.value} {address:#06x}, accessed at {self.place()}"
        if self.strict:
            raise Unmodelled(what, where=where, hint="without --strict this is logged and treated as storage")
        if declared is None:
            self._unknown.append((space, address))
            if len(self._unknown) > SHOWN_UNKNOWN:
                return  # the summary has them all
        log.warning("%s: %s", where, what)


def _listed(places: Iterable[tuple[Space, int]]) -> str:
    """Byte addresses by space, neighbours as ranges."""
    by_space: dict[str, list[int]] = {}
    count = 0
    for space, address in sorted(places, key=lambda place: (place[0].value, place[1])):
        by_space.setdefault(space.value, []).append(address)
        count += 1
    texts = []
    for name, addresses in by_space.items():
        ranges: list[tuple[int, int]] = []
        for address in addresses:
            if ranges and ranges[-1][1] == address - 1:
                ranges[-1] = (ranges[-1][0], address)
            else:
                ranges.append((address, address))
        shown = [f"{low:04x}" if low == high else f"{low:04x}-{high:04x}" for low, high in ranges]
        rest = len(shown) - SHOWN_RANGES
        texts.append(
            f"{name} {' '.join(shown[:SHOWN_RANGES])}{f' and {rest} more ranges' if rest > 0 else ''}"
        )
    return f"{count} accessed addresses ({', '.join(texts)})"


def _ignore(value: int) -> None:
    """A write without effect."""
