"""The native 8051 core (mcs51.h) as the machine sees it: memory attached, run, stops, instrumentation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from emulator import native
from emulator.core.bus import Plane
from sdk.errors import InternalError, UsageError

CODE_SIZE = 0x10000
COMMON = 0x8000
"""Code below this address is the same in both banks."""

WATCH_WRITE, WATCH_READ = 0x01, 0x02
"""What `Mcs51.watch` watches a byte for; enum mcs51_watch."""
WATCH_SFR = 0x100
"""Added to the address of a special function register there."""
_WATCH_DONE = 4

GUARDS = ("stack", "erased", "interrupt", "uninit")
"""Mistakes of a firmware that `Mcs51.guard` has the core stop at."""

_SAVED = ("ACC", "B", "PSW", "DPL", "DPH", "DPX", *(f"R{number}" for number in range(8)), "SP")
"""Registers of struct mcs51_saved, in its order."""

_LCALL, _ACALL, _ACALL_MASK = 0x12, 0x11, 0x1F


class Stop(IntEnum):
    """Why the core returned; enum mcs51_stop."""

    UNTIL = 0
    READ = 1
    WRITE = 2
    NATIVE_STOP = 3
    SERIAL = 4
    ILLEGAL = 5
    BREAKPOINT = 6
    STACK = 7
    ERASED = 8
    CLOBBERED = 9
    UNINIT = 10
    SFR = 11
    """Never returned: `Mcs51.run` asks about the register, and runs on."""
    WATCHED = 12
    CALLED = 13
    """Never returned: `Mcs51.run` hands on what was recorded, and runs on."""
    SPINNING = 14
    """Once for a spin loop that has run for `Mcs51.spin_limit` clocks; `Mcs51.spin` has it."""


class Call(IntEnum):
    """How control left a function, or that a register changed; enum mcs51_call_kind."""

    CALL = 0
    JUMP = 1
    RETURN = 2
    RETI = 3
    INTERRUPT = 4
    RESET = 5
    SKIP = 6
    """A proven spin loop is skipped from here ..."""
    SKIPPED = 7
    """... to here."""
    REGISTER = 8
    """A special function register has changed: `at` is its address, `sp` its value."""


@dataclass(frozen=True, slots=True)
class Spin:
    """A spin loop: proven to change nothing from round to round but the clock.

    Attributes:
        since: clock at which it was proven first.
        seen: clock up to which it has been proven.
        at: (bank, address) of its lowest instruction.
        trail: the same of each of its instructions, in the order of a round.
        in_handler: an interrupt handler has it.
        reads: the MOVX bytes that it reads, as (plane, address); None if they are more than are kept.
    """

    since: int
    seen: int
    at: tuple[int, int]
    trail: tuple[tuple[int, int], ...]
    in_handler: bool
    reads: tuple[tuple[int, int], ...] | None


CALL_RECORD = np.dtype([("clock", "u8"), ("at", "u4"), ("kind", "u1"), ("sp", "u1"), ("reserved", "u2")])
"""struct mcs51_call; `at` is an index as of `mark`."""
Calls = npt.NDArray[np.void]
"""Of CALL_RECORD, in order of time."""

_STOPS = tuple(Stop)
_ASK, _CALLED = int(Stop.SFR), int(Stop.CALLED)


def mark(bank: int, address: int) -> int:
    """Index of a code address in tables by bank and address; the common half counts as bank 0."""
    return address if address < COMMON else bank * CODE_SIZE + address


class Mcs51:
    """An 8051 with banked code and two MOVX planes, after power-on reset.

    Args:
        planes: the MOVX planes in the order of DPX: XDATA, PHY. Their storage and flags are used in place.
        skip: skip spin loops that are proven to be fixed points; makes no difference but in time.

    Attributes:
        iram: the 256 bytes of internal RAM, live.
    """

    def __init__(self, planes: Sequence[Plane], *, skip: bool = True) -> None:
        self._ffi, self._library = native.library()
        self._cpu: Any = self._ffi.new("struct mcs51 *")
        self._mcs51_run = self._library.mcs51_run
        self._owned: dict[str, Any] = {}  # what the structure points to
        self._code = [b"", b""]
        self._ask: Callable[[int], None] = lambda address: None
        self._on_calls: list[Callable[[Calls], None]] = []
        for number, plane in enumerate(planes):
            flags = self._ffi.from_buffer("uint8_t[]", plane.flags, require_writable=True)
            self._cpu.flags[number] = self._own(f"flags {number}", flags)
            for page, (buffer, offset) in enumerate(plane.pages):
                storage = self._ffi.from_buffer("uint8_t[]", buffer, require_writable=True)
                self._cpu.page[number][page] = self._own(f"page {number} {page}", storage) + offset
        iram = self._ffi.offsetof("struct mcs51", "iram")
        self.iram = memoryview(self._ffi.buffer(self._cpu))[iram : iram + 0x100]
        self._cpu.skip = skip
        self.load(b"")
        self.reset()

    def _own(self, name: str, pointer: Any) -> Any:
        self._owned[name] = pointer
        return pointer

    def load(self, bank0: bytes, bank1: bytes | None = None, loaded: bytes | None = None) -> None:
        """Replace the code.

        Args:
            bank0: up to 64 KiB of code as seen from address 0 with CODE bank 0; the rest reads FF.
            bank1: as seen with CODE bank 1; the same as `bank0` if there is none.
            loaded: for the guard "erased", 2 x 64 KiB, nonzero where code was loaded; by default up to
                the length of the banks.
        """
        views = (bank0, bank0 if bank1 is None else bank1)
        if any(len(view) > CODE_SIZE for view in views):
            raise UsageError("code of more than 64 KiB in a bank")
        if loaded is None:
            loaded = b"".join((b"\1" * len(view)).ljust(CODE_SIZE, b"\0") for view in views)
        elif len(loaded) != 2 * CODE_SIZE:
            raise InternalError("the map of loaded code has 2 x 64 KiB")
        for number, view in enumerate(views):
            image = view.ljust(CODE_SIZE, b"\xff")
            self._code[number] = image
            code = self._ffi.new("uint8_t[]", image + image[:2])
            self._cpu.code[number] = self._own(f"code {number}", code)
        guarded = self._cpu.loaded != self._ffi.NULL
        self._own("loaded", self._ffi.new("uint8_t[]", loaded))
        if guarded:
            self._cpu.loaded = self._owned["loaded"]

    def attach_device(self, device: Any) -> None:
        """Put a native device (`struct mcs51_device *`) behind NATIVE bytes; None removes it."""
        self._cpu.device = self._own("device", self._ffi.NULL if device is None else device)

    # -- running ----------------------------------------------------------------------------------------

    def run(self, until: int) -> Stop:
        """Run to clock `until`, or a few clocks past it by the last instruction, or until something stops.

        Raises:
            Exception: what the function given to `question` raises; the access it is about has happened.
        """
        stop: int = self._mcs51_run(self._cpu, until)
        while stop in (_ASK, _CALLED):
            if stop == _CALLED:
                self.hand_on_calls()
            else:
                address = int(self._cpu.asked)
                self._ask(address)
                self._cpu.questioned[address - 0x80] = 0
            stop = self._mcs51_run(self._cpu, until)
        return _STOPS[stop]

    def question(self, registers: Collection[int], ask: Callable[[int], None]) -> None:
        """Have `ask` called with the address of each of these at the first access, replacing earlier ones.

        It is asked once for each, or, if it raises, every time. A register that the core gives a meaning to
        is never asked about, except P2: it is more than storage in MOVX by R0 or R1, which counts as access.
        """
        for address in range(0x80, 0x100):
            self._cpu.questioned[address - 0x80] = address in registers
        self._ask = ask

    def finish_read(self, value: int) -> None:
        """After `Stop.READ`: the value that the MOVX instruction reads."""
        self._cpu.sfr[0xE0 - 0x80] = value

    def reset(self) -> None:
        """Registers, timers and interrupts as after power-on; memory, IRAM and the clock stay."""
        self._library.mcs51_reset(self._cpu)

    def line(self, number: int, level: bool) -> None:
        """Drive INT0 or INT1; True is asserted."""
        self._library.mcs51_line(self._cpu, number, level)

    def receive(self, value: int) -> None:
        """A byte arrives at the serial port; lost unless REN is set and RI clear."""
        self._library.mcs51_receive(self._cpu, value)

    # -- state ------------------------------------------------------------------------------------------

    @property
    def clock(self) -> int:
        """Chip clocks since power-on."""
        return int(self._cpu.clock)

    @clock.setter
    def clock(self, value: int) -> None:
        self._cpu.clock = value

    @property
    def instructions(self) -> int:
        """Instructions executed, those of skipped spin loops included."""
        return int(self._cpu.instructions)

    @property
    def skipped(self) -> int:
        """Clocks spent in spin loops that were skipped."""
        return int(self._cpu.skipped)

    @property
    def pc(self) -> int:
        return int(self._cpu.pc)

    @pc.setter
    def pc(self, value: int) -> None:
        self._cpu.pc = value

    @property
    def sp(self) -> int:
        return int(self._cpu.sfr[0x81 - 0x80])

    @property
    def acc(self) -> int:
        return int(self._cpu.sfr[0xE0 - 0x80])

    @property
    def psw(self) -> int:
        return self.sfr(0xD0)

    @property
    def bank(self) -> int:
        """The CODE bank that is selected, 0 or 1."""
        return int(self._cpu.sfr[0x96 - 0x80] & 1)

    @property
    def in_service(self) -> int:
        """Interrupt handlers that run: bit 0 one of low priority, bit 1 one of high priority."""
        return int(self._cpu.in_service)

    def code(self, bank: int) -> bytes:
        """The 64 KiB of code as seen with a bank."""
        return self._code[bank]

    @property
    def dptr(self) -> int:
        return int(self._cpu.sfr[0x83 - 0x80] << 8 | self._cpu.sfr[0x82 - 0x80])

    def sfr(self, address: int) -> int:
        """A special function register, 0x80 to 0xFF."""
        self._library.mcs51_settle(self._cpu)
        return int(self._cpu.sfr[address - 0x80])

    def set_sfr(self, address: int, value: int) -> None:
        """Change the storage of a special function register, with none of the effects of a write."""
        self._cpu.sfr[address - 0x80] = value

    def state(self) -> bytes:
        """Everything that determines how the core goes on, for comparing two runs; memory is not in it."""
        cpu = self._cpu
        self._library.mcs51_settle(cpu)
        numbers = (cpu.clock, cpu.instructions, cpu.pc, cpu.in_service, cpu.hold, cpu.line[0], cpu.line[1])
        return b"".join(
            (
                bytes(self._ffi.buffer(cpu.iram)),
                bytes(self._ffi.buffer(cpu.sfr)),
                *(int(number).to_bytes(8, "little") for number in numbers),
            )
        )

    def backtrace(self) -> list[int]:
        """Return addresses on the stack, innermost first: words there that follow a call instruction."""
        code = self._code[self._cpu.sfr[0x96 - 0x80] & 1]
        found = []
        top = self.sp
        while top > 0:
            address = self.iram[top] << 8 | self.iram[top - 1]
            called = code[address - 3] == _LCALL or code[address - 2] & _ACALL_MASK == _ACALL
            if called:
                found.append(address)
            top -= 2 if called else 1
        return found

    @property
    def spin_limit(self) -> int:
        """Clocks after which `run` stops for a spin loop that reads MOVX bytes; 0 for never."""
        return int(self._cpu.spin.limit)

    @spin_limit.setter
    def spin_limit(self, clocks: int) -> None:
        self._cpu.spin.limit = clocks

    @property
    def spin(self) -> Spin | None:
        """The spin loop that was proven last, which may be over; None if none has been since reset."""
        spin = self._cpu.spin
        if not spin.length:
            return None
        reads = tuple(divmod(int(spin.reads[i]), CODE_SIZE) for i in range(spin.read_count))
        return Spin(
            since=int(spin.since),
            seen=int(spin.seen),
            at=divmod(int(spin.at), CODE_SIZE),
            trail=tuple(divmod(int(at), CODE_SIZE) for at in spin.trail[0 : spin.length]),
            in_handler=bool(spin.in_service),
            reads=None if spin.too_many else reads,
        )

    # -- the last stop ----------------------------------------------------------------------------------

    @property
    def stop_pc(self) -> int:
        """Address of the instruction that stopped the core."""
        return int(self._cpu.stop_pc)

    @property
    def address(self) -> int:
        """Address of the MOVX access."""
        return int(self._cpu.address)

    @property
    def plane(self) -> int:
        """Plane of the MOVX access: 0 XDATA, 1 PHY."""
        return int(self._cpu.plane)

    @property
    def value(self) -> int:
        """What was written, or has left the serial port."""
        return int(self._cpu.value)

    @property
    def device_reason(self) -> int:
        """What the native device returned."""
        return int(self._cpu.device_reason)

    @property
    def clobbered(self) -> str:
        """After `Stop.CLOBBERED`: the first register that differs from interrupt entry."""
        return _SAVED[self.value]

    # -- instrumentation --------------------------------------------------------------------------------

    def profile(self) -> memoryview:
        """Count clocks by instruction from now on: 2 x 65536 numbers, live, by bank and address.

        Code below 0x8000 counts as bank 0, here as in `coverage` and `breakpoints`. A second call of
        these returns the same table.
        """
        if self._cpu.profile == self._ffi.NULL:
            self._cpu.profile = self._own("profile", self._ffi.new("uint64_t[]", 2 * CODE_SIZE))
        return memoryview(self._ffi.buffer(self._owned["profile"])).cast("B").cast("Q")

    def coverage(self) -> memoryview:
        """Record from now on what is executed: 2 x 65536 bytes, live.

        Bit 0: executed; bit 1: branch taken; bit 2: branch not taken.
        """
        if self._cpu.covered == self._ffi.NULL:
            self._cpu.covered = self._own("covered", self._ffi.new("uint8_t[]", 2 * CODE_SIZE))
        return memoryview(self._ffi.buffer(self._owned["covered"]))

    def on_calls(
        self,
        entries: Collection[tuple[int, int]],
        take: Callable[[Calls], None],
        registers: Collection[int] = (),
    ) -> None:
        """Record calls, returns and interrupts from now on, and hand them on many at a time.

        Args:
            entries: (bank, address) where functions begin: coming there by no call is recorded too. The last
                caller's choice holds for all.
            take: must keep none of the array.
            registers: special function registers whose changes are recorded too; the choice of the last
                caller that names any holds for all. Not counters of timers: they are updated only on access.
        """
        marks = bytearray(2 * CODE_SIZE)
        for bank, address in entries:
            marks[mark(bank, address)] = 1
        self.hand_on_calls()
        self._cpu.entries = self._own("entries", self._ffi.new("uint8_t[]", bytes(marks)))
        if self._cpu.calls == self._ffi.NULL:
            self._cpu.calls = self._own(
                "calls", self._ffi.new("struct mcs51_call[]", self._library.MCS51_CALLS)
            )
        if registers:
            self._cpu.shown_count = len(registers)
            self._cpu.shown[0 : len(registers)] = list(registers)
            self._cpu.known[0 : len(registers)] = [self.sfr(address) for address in registers]
        self._on_calls.append(take)

    def hand_on_calls(self) -> None:
        """Hand on what has been recorded so far."""
        if count := int(self._cpu.call_count):
            self._cpu.call_count = 0  # first: Ctrl-C may end what follows
            records = np.frombuffer(self._ffi.buffer(self._owned["calls"]), CALL_RECORD, count)
            for take in self._on_calls:
                take(records)

    def no_calls(self, take: Callable[[Calls], None]) -> None:
        """Hand on the last of them, and then nothing more to `take`."""
        self.hand_on_calls()
        self._on_calls.remove(take)
        if not self._on_calls:
            self._cpu.calls = self._ffi.NULL
            self._cpu.shown_count = 0

    def breakpoints(self, places: Collection[tuple[int, int]]) -> None:
        """Stop before executing any of these (bank, address); replaces the earlier ones.

        Running on from a breakpoint executes the instruction there.
        """
        marks = bytearray(2 * CODE_SIZE)
        for bank, address in places:
            marks[mark(bank, address)] = 1
        self.stop_at(marks if places else None)

    def stop_at(self, marks: bytes | bytearray | None) -> None:
        """The same of a whole table, used in place: 2 x 65536 bytes, nonzero at the index `mark`."""
        table = self._ffi.NULL if marks is None else self._ffi.from_buffer("uint8_t[]", marks)
        self._cpu.marks = self._own("marks", table)

    def pass_mark(self) -> None:
        """Execute the next instruction even if it is marked, as after a breakpoint there."""
        self._cpu.resume = 1

    def watch(self, places: Mapping[int, int]) -> None:
        """Stop after an instruction that touches any of these bytes (watch.c); replaces the earlier ones.

        Args:
            places: `WATCH_WRITE`, `WATCH_READ` or both by place: an IRAM address, or `WATCH_SFR` plus the
                address of a special function register.
        """
        table = bytearray(2 * WATCH_SFR)
        for place, kinds in places.items():
            table[place] = kinds
        self._cpu.watches = self._own("watches", self._copy(table)) if places else self._ffi.NULL
        self._cpu.watch_hit = 0

    def take_hits(self) -> dict[int, int]:
        """After `Stop.WATCHED`: what was done that is watched for, by place; the core runs on from there."""
        table = memoryview(self._ffi.buffer(self._owned["watches"]))
        hits = {place: kinds >> _WATCH_DONE for place, kinds in enumerate(table) if kinds >> _WATCH_DONE}
        for place in hits:
            table[place] &= (1 << _WATCH_DONE) - 1
        self._cpu.watch_hit = 0
        return hits

    def _copy(self, table: bytes | bytearray) -> Any:
        return self._ffi.new("uint8_t[]", bytes(table))

    def guard(self, *names: str) -> None:
        """Stop at mistakes of the firmware from now on: names of `GUARDS`."""
        if unknown := set(names) - set(GUARDS):
            raise UsageError(
                f"there is no guard {', '.join(sorted(unknown))}", hint=f"guards: {', '.join(GUARDS)}"
            )
        self._cpu.guard_stack = "stack" in names
        self._cpu.loaded = self._owned["loaded"] if "erased" in names else self._ffi.NULL
        self._cpu.guard_interrupts = "interrupt" in names
        self._cpu.guard_uninit = "uninit" in names
