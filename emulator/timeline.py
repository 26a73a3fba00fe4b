"""What a board did when, as a Chrome trace: `towline emulate --trace-out`, `towline run --trace-out`.

Everything is on one axis of virtual time. A process of the trace is a place (the bridge, the host's port, the
card), its threads are what can be busy there: the 8051 with its functions and interrupt handlers, the TLP
engine, the slot DMA, an endpoint, a queue of the card.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from emulator.core.clock import HZ
from emulator.mcs51.calls import CallSlices
from emulator.mcs51.core import CODE_SIZE, mark
from emulator.mcs51.flow import VECTORS
from emulator.usb.wire import Outcome, Transfer
from firmware.asm2464pd.describe import Space
from firmware.asm2464pd.registers import tlp as tlp_facts
from sdk import chrome_trace
from sdk.chrome_trace import ChromeTrace, Lanes, Track

if TYPE_CHECKING:
    from emulator.amdgpu.card import AmdCard
    from emulator.amdgpu.context import Event, Span
    from emulator.amdgpu.scoreboard import Record
    from emulator.board import Board

BRIDGE, PORT = "bridge ASM2464PD", "USB port of the host"

_NANOSECONDS = 10**9 / HZ
"""A clock is 8.75 ns."""
_SPANNED = {"sdma", "dispatch"}
"""Sources of the card's events that are slices too."""

KernelName = Callable[["Record"], str]
"""Returns the name of a dispatch; "" to show its address."""


def nanoseconds(clock: int) -> int:
    """A time of the trace, rounded down, so that the order of clocks is kept."""
    return clock * _NANOSECONDS.numerator // _NANOSECONDS.denominator


class Timeline:
    """Observes a board until `close`.

    Args:
        board: the board; its CPU runs several times slower meanwhile.
        trace: where the events go; the caller closes it.
        kernel_name: names dispatches.
    """

    def __init__(
        self, board: Board, trace: ChromeTrace, kernel_name: KernelName = lambda record: record.name
    ) -> None:
        self._board = board
        parts: list[_Cpu | _Tlps | _SlotDma | _Transfers | _Card] = []
        parts.append(_Cpu(board, trace.track(BRIDGE, "8051")))
        parts.append(_Tlps(board, trace.track(BRIDGE, "TLPs")))
        parts.append(_SlotDma(board, trace.track(BRIDGE, "slot DMA")))
        parts.append(_Transfers(board, trace))
        if board.card is not None:
            parts.append(_Card(board.card, trace, kernel_name))
        self._parts = parts

    def close(self) -> None:
        """End open slices; nothing more is written."""
        with self._board.machine.lock:
            for part in self._parts:
                part.close()


class _Clocked:
    """A track whose times are clocks."""

    def __init__(self, track: Track) -> None:
        self._track = track

    def begin(self, clock: int, name: str, category: str) -> None:
        self._track.begin(nanoseconds(clock), name, category)

    def end(self, clock: int) -> None:
        self._track.end(nanoseconds(clock))


class _Cpu:
    """The 8051: functions as they are called, interrupt handlers, spin loops."""

    def __init__(self, board: Board, track: Track) -> None:
        self._board = board
        self._cpu = cpu = board.machine.cpu
        self._names: dict[int, str] = {}
        self._slices = CallSlices(_Clocked(track), self._name, mark(cpu.bank, cpu.pc), cpu.clock)
        entries = [(function.bank, function.start) for function in board.symbols.functions]
        cpu.on_calls(entries, self._slices.take)

    def close(self) -> None:
        self._cpu.no_calls(self._slices.take)
        self._slices.close(self._cpu.clock)

    def _name(self, place: int) -> str:
        name = self._names.get(place)
        if name is None:
            bank, address = divmod(place, CODE_SIZE)
            function = self._board.symbols.function_at(bank, address)
            fallback = f"{'1:' if bank else ''}{address:#06x}" if place else VECTORS[0]
            name = function.name if function is not None else fallback
            self._names[place] = name
        return name


class _Tlps:
    """Requests of the TLP engine: an instant if posted, else a slice until the completion or the time-out."""

    def __init__(self, board: Board, track: Track) -> None:
        self._engine = board.chip.tlp
        self._bus = board.machine.bus
        self._track = track
        launch = tlp_facts.TLP_LAUNCH
        self._bus.watch(launch.space, launch.address)
        self._notified = self._engine.notify
        self._engine.notify = True
        self._bus.observers.append(self)

    def close(self) -> None:
        self._bus.observers.remove(self)
        self._engine.notify = self._notified
        self._end()

    def accessed(self, kind: str, space: Space, address: int, value: int) -> None:
        launch = tlp_facts.TLP_LAUNCH
        if kind != "W" or address != launch.address or space is not launch.space:
            return
        self._end()  # a launch abandons an outstanding request
        fmt_type, low, high, data = (
            self._bus.value(register)
            for register in (
                tlp_facts.TLP_FMT_TYPE,
                tlp_facts.TLP_ADDRESS,
                tlp_facts.TLP_ADDRESS_HIGH,
                tlp_facts.TLP_DATA,
            )
        )
        kind = tlp_facts.FMT_TYPES.get(fmt_type, f"{fmt_type:#04x}")
        target = low | (high << 32 if kind.endswith("64") else 0)
        args = {"address": hex(target)}
        if "WR" in kind:
            args["data"] = f"{data:#010x}"
        now = nanoseconds(self._bus.clock.now)
        if kind.startswith("MWR"):
            self._track.instant(now, f"{kind} {target:#x}", "tlp", args)
        else:
            self._track.begin(now, f"{kind} {target:#x}", "tlp", args)

    def changed(self, space: Space, address: int, data: bytes) -> None:
        status = tlp_facts.TLP_STATUS
        if (
            self._track.depth
            and address == status.address
            and space is status.space
            and not self._engine.waits
        ):
            self._end()

    def line(self, number: int, level: bool) -> None:
        pass

    def _end(self) -> None:
        self._track.end_all(nanoseconds(self._bus.clock.now))


class _SlotDma:
    """The slot DMA, from the moment it is armed until it has moved everything."""

    def __init__(self, board: Board, track: Track) -> None:
        self._dma = board.chip.dma
        self._clock = board.machine.clock
        self._track = track
        self._left = 0
        self._before, self._dma.on_change = self._dma.on_change, self._changed

    def close(self) -> None:
        self._dma.on_change = self._before
        self._track.end_all(nanoseconds(self._clock.now))

    def _changed(self) -> None:
        now, dma = nanoseconds(self._clock.now), self._dma
        if dma.remaining and dma.triggered:
            self._track.instant(now, "triggered by a device", "dma")
            return
        self._track.end_all(now)
        if dma.remaining:
            towards = "the SRAM" if dma.to_sram else "the host"
            self._track.begin(now, f"{dma.remaining:,} bytes to {towards}", "dma")


class _Transfers:
    """USB transfers, from submission to completion, by endpoint."""

    def __init__(self, board: Board, trace: ChromeTrace) -> None:
        self._host = board.usb
        self._trace = trace
        self._lanes: dict[int, Lanes] = {}
        self._host.observers.append(self)

    def close(self) -> None:
        self._host.observers.remove(self)

    def submitted(self, transfer: Transfer, address: int) -> None:
        """Ignored: a transfer is written when it ends."""

    def ended(self, transfer: Transfer, address: int) -> None:
        endpoint, setup = transfer.endpoint, transfer.setup
        is_in = setup.is_in if setup is not None else bool(endpoint & 0x80)
        if endpoint not in self._lanes:
            name = "EP0" if setup is not None else f"EP {endpoint:#04x} {'IN' if is_in else 'OUT'}"
            self._lanes[endpoint] = self._trace.lanes(PORT, name)
        args = {"outcome": transfer.outcome.name if transfer.outcome else "", "actual": transfer.actual}
        name = f"{transfer.actual:,} bytes"
        if setup is not None:
            name = f"{setup.request_type:02X} {setup.request:02X} {setup.value:04X} {setup.index:04X}, {name}"
        if transfer.outcome not in (None, Outcome.DONE):
            name += f", {args['outcome']}"
        start, end = nanoseconds(transfer.submitted), nanoseconds(transfer.completed)
        self._lanes[endpoint].slice(start, end, name, "usb", args)


class _Card:
    """The card: kernels and packets by queue, other events of its blocks as instants."""

    def __init__(self, card: AmdCard, trace: ChromeTrace, kernel_name: KernelName) -> None:
        self._card = card
        self._trace = trace
        self._kernel_name = kernel_name
        self._process = f"card {card.chip.name}"
        self._lanes: dict[str, Lanes] = {}
        card.scoreboard.observers.append(self._dispatched)
        card.span_observers.append(self._passed)
        card.event_observers.append(self._happened)

    def close(self) -> None:
        self._card.scoreboard.observers.remove(self._dispatched)
        self._card.span_observers.remove(self._passed)
        self._card.event_observers.remove(self._happened)

    def _slice(
        self, name: str, start: int, end: int, text: str, category: str, args: dict[str, object]
    ) -> None:
        if name not in self._lanes:
            self._lanes[name] = self._trace.lanes(self._process, name)
        self._lanes[name].slice(nanoseconds(start), nanoseconds(end), text, category, args)

    def _dispatched(self, record: Record) -> None:
        dispatch, outcome = record.dispatch, record.outcome
        name = self._kernel_name(record) or record.name
        name = name or self._card.scoreboard.names.get(dispatch.code) or f"kernel {dispatch.code:#x}"
        args: dict[str, object] = {
            "code": hex(dispatch.code),
            "groups": " x ".join(map(str, dispatch.groups)),
            "threads": " x ".join(map(str, dispatch.threads)),
            "waves": outcome.waves,
            **{f"{kind} instructions": count for kind, count in outcome.instructions.items() if count},
            "bytes read": outcome.read,
            "bytes written": outcome.written,
        }
        if outcome.fault is not None:
            args["fault"] = outcome.fault.kind
        self._slice(f"compute {record.queue}", record.start, record.end, name, "kernel", args)

    def _passed(self, span: Span) -> None:
        name, _, rest = span.text.partition(" ")
        self._slice(span.source, span.start, span.end, name, "packet", {"fields": rest})

    def _happened(self, event: Event) -> None:
        if event.source not in _SPANNED:
            now = nanoseconds(self._card.upstream.now())
            self._trace.track(self._process, f"events: {event.source}").instant(now, event.text, event.source)


@contextlib.contextmanager
def recorded(
    board: Board, path: str | os.PathLike[str], kernel_name: KernelName = lambda record: record.name
) -> Iterator[None]:
    """Write what a board does meanwhile to a file, completely or not at all.

    Raises:
        OutputFailed: as `sdk.files.replacing`.
    """
    about = {"time": "virtual, from power-on of the emulated bridge"}
    with chrome_trace.writing(path, about) as trace:
        timeline = Timeline(board, trace, kernel_name)
        try:
            yield
        finally:
            timeline.close()
