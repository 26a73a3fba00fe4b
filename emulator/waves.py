"""Registers, interrupts and link events as waveforms: `towline emulate --vcd`, for GTKWave or Surfer.

A value change dump (IEEE 1364, 18) by pyvcd, with times in 10 ps: a chip clock is 875 of them. Names select a
block, which is all of its registers; a register; or a field, such as PCIE_LTSSM.STATE. * and ? match any
characters. The block `interrupts` has the lines of the CPU too, and for each vector whether its handler runs.
Special function registers have their values after each instruction; a spin loop that the core skips, having
proved that it has no effect, shows its first iteration.
"""

from __future__ import annotations

import contextlib
import difflib
import fnmatch
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from emulator.core.clock import HZ
from emulator.mcs51.core import Call, Calls
from emulator.mcs51.flow import VECTORS
from firmware.asm2464pd.describe import ByteRegister, Space
from firmware.asm2464pd.registers import BLOCKS, cpu
from sdk import files
from sdk.errors import UsageError
from sdk.extras import require
from sdk.facts.registers import Field

if TYPE_CHECKING:
    from emulator.board import Board

DEFAULT = ("interrupts", "link", "USB_LINK_*", "USB_PHY_CONTROL.SS_UP")
"""The signals shown by default."""

_UNIT = "10 ps"
_UNITS = int(10**11 / HZ)
_SCOPE = "asm2464pd"
_RECORDS = (Call.INTERRUPT, Call.RETI, Call.RESET, Call.REGISTER)
_TLP = {register.name for register in BLOCKS["tlp"]}
_COUNTERS = (cpu.CPU_TL0, cpu.CPU_TH0, cpu.CPU_TL1, cpu.CPU_TH1, cpu.CPU_TL2, cpu.CPU_TH2)
"""They change with every count, and the core updates them only when they are read."""


@dataclass(frozen=True, slots=True)
class Signal:
    """A register or a field of one.

    Attributes:
        block: the block of the chip.
        part: the field; None for the whole register.
    """

    block: str
    register: ByteRegister
    part: Field | None = None

    @property
    def name(self) -> str:
        return self.register.name if self.part is None else f"{self.register.name}.{self.part.name}"

    @property
    def width(self) -> int:
        """Bits."""
        return 8 * self.register.size if self.part is None else self.part.width

    def of(self, value: int) -> int:
        """Its value, if the register holds `value`."""
        return value if self.part is None else self.part.get(value)


def choose(names: Sequence[str]) -> tuple[list[Signal], bool]:
    """The signals that names match, in order, each once, and whether the CPU's interrupts are among them.

    Raises:
        UsageError: a name matches nothing.
    """
    offered = {signal.name: signal for signal in _signals()}
    chosen: dict[str, Signal] = {}
    for name in names:
        if name in BLOCKS:
            found = [key for key, signal in offered.items() if signal.block == name and signal.part is None]
        else:
            found = [key for key in fnmatch.filter(offered, name) if key.count(".") == name.count(".")]
        if not found:
            blocks = sorted({signal.block for signal in offered.values()})
            near = difflib.get_close_matches(name.upper(), offered, 3) or blocks
            raise UsageError(
                f"there is no register, field or block {name!r} to show",
                hint=f"for example {', '.join(near)}; docs/asm2464pd.md has all",
            )
        chosen |= {key: offered[key] for key in found}
    return list(chosen.values()), "interrupts" in names


def _signals() -> Iterator[Signal]:
    for block, registers in BLOCKS.items():
        for register in registers:
            if register not in _COUNTERS:
                yield Signal(block, register)
                yield from (Signal(block, register, part) for part in register.fields)


class Waves:
    """Observes a board until `close`.

    Args:
        board: the board.
        stream: where the text is written.
        names: as for `choose`.

    Raises:
        UsageError: as `choose`.
        EnvironmentMissing: pyvcd is not installed.
    """

    def __init__(self, board: Board, stream: TextIO, names: Sequence[str] = DEFAULT) -> None:
        vcd = require("vcd", extra="emulator")
        signals, interrupts = choose(names)
        self._cpu = board.machine.cpu
        self._bus = bus = board.machine.bus
        self._tlp = board.chip.tlp
        self._since = self._last = self._now
        self._writer = vcd.VCDWriter(
            stream, timescale=_UNIT, date="", version="towline", init_timestamp=self._now
        )
        self._signals: dict[tuple[Space, int], list[tuple[Signal, Any]]] = {}
        self._dirty: set[tuple[Space, int]] = set()
        self._queue: list[tuple[int, Any, int]] = []  # time, variable, value
        for signal in signals:
            variable = self._register(signal.block, signal.name, signal.width, self._value(signal))
            space = signal.register.space
            for address in signal.register.addresses:
                if space is not Space.SFR:
                    bus.watch(space, address)
                self._signals.setdefault((space, address), []).append((signal, variable))
        self._lines: list[Any] = []
        self._handlers: dict[int, Any] = {}
        self._in_service: list[int] = []
        if interrupts:
            self._lines = [self._register("cpu", name, 1, 0) for name in ("INT0", "INT1")]
            self._handlers = {
                at: self._register("cpu", f"handler_{name}", 1, 0) for at, name in VECTORS.items() if at
            }
        special = [address for space, address in self._signals if space is Space.SFR]
        self._records = interrupts or bool(special)
        if self._records:
            entries = [(function.bank, function.start) for function in board.symbols.functions]
            self._cpu.on_calls(entries, self._recorded, special)
        self._notified = self._tlp.notify
        self._tlp.notify = self._notified or any(signal.register.name in _TLP for signal in signals)
        bus.observers.append(self)

    def close(self) -> None:
        """Write the last changes, and stop observing."""
        self._bus.observers.remove(self)
        self._tlp.notify = self._notified
        if self._records:
            self._cpu.no_calls(self._recorded)
        self._sample()
        self._writer.close(max(self._last, self._now))

    # -- bus.Observer -----------------------------------------------------------------------------------

    def accessed(self, kind: str, space: Space, address: int, value: int) -> None:
        """A write takes effect after this call, and is sampled then."""
        if (space, address) in self._signals and kind == "W":
            self._sample()  # in a replay the clock makes no calls
            self._touch(space, address)
            self._bus.clock.at(self._bus.clock.now, self._sample)

    def changed(self, space: Space, address: int, data: bytes) -> None:
        if space in self._bus.planes:
            if self._since != self._now:
                self._sample()
            for place in range(address, address + len(data)):
                if (space, place) in self._signals:
                    self._touch(space, place)
            self._sample()

    def line(self, number: int, level: bool) -> None:
        if self._lines:
            self._queue.append((self._now, self._lines[number], int(level)))
            self._sample()

    # -- inside -----------------------------------------------------------------------------------------

    @property
    def _now(self) -> int:
        return _UNITS * self._bus.clock.now

    def _register(self, scope: str, name: str, width: int, value: int) -> Any:
        return self._writer.register_var(
            f"{_SCOPE}.{scope}", name.replace(".", "_"), "wire", width, init=value
        )

    def _value(self, signal: Signal) -> int:
        if signal.register.space is Space.SFR:
            return signal.of(self._cpu.sfr(signal.register.address))
        return signal.of(self._bus.value(signal.register))

    def _touch(self, space: Space, address: int) -> None:
        self._dirty.add((space, address))
        self._since = self._now

    def _sample(self) -> None:
        dirty, self._dirty = self._dirty, set()
        for place in sorted(dirty, key=lambda entry: entry[1]):
            self._queue += (
                (self._since, variable, self._value(signal)) for signal, variable in self._signals[place]
            )
        self._write()

    def _write(self) -> None:
        """Write the changes up to now: those of the bus, and those of the CPU in between."""
        if self._records and self._queue:
            self._cpu.hand_on_calls()
        queue, self._queue = self._queue, []
        for time, variable, value in sorted(queue, key=lambda change: change[0]):
            self._last = max(self._last, time)
            self._writer.change(variable, self._last, value)

    def _recorded(self, records: Calls) -> None:
        some = records[np.isin(records["kind"], _RECORDS)]
        columns = (some[name].tolist() for name in ("kind", "clock", "at", "sp"))
        for kind, clock, at, value in zip(*columns, strict=True):
            time = _UNITS * clock
            if kind == Call.REGISTER:
                shown = self._signals.get((Space.SFR, at), ())
                self._queue += ((time, variable, signal.of(value)) for signal, variable in shown)
            elif not self._handlers:
                continue
            elif kind == Call.INTERRUPT:
                self._in_service.append(at)
                self._queue.append((time, self._handlers[at], 1))
            elif kind == Call.RETI and self._in_service:
                self._queue.append((time, self._handlers[self._in_service.pop()], 0))
            elif kind == Call.RESET:
                while self._in_service:
                    self._queue.append((time, self._handlers[self._in_service.pop()], 0))
        self._sample()


@contextlib.contextmanager
def recorded(board: Board, path: str | os.PathLike[str], names: Sequence[str] = DEFAULT) -> Iterator[None]:
    """Write what a board does meanwhile to a file, completely or not at all.

    Raises:
        UsageError, EnvironmentMissing: as Waves.
        OutputFailed: as `sdk.files.replacing`.
    """
    with files.replacing_text(path) as stream:
        waves = Waves(board, stream, names)
        try:
            yield
        finally:
            with board.machine.lock:
                waves.close()
