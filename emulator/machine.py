"""The CPU and the chip in step: virtual time advances here and nowhere else.

The CPU runs natively up to the next event, and comes back earlier where a register access concerns a block.
After every return time is the CPU's clock; then the access is carried out and due events happen. An
instruction may run a few clocks past an event, so an event can be that much late, in every run alike.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from emulator.core.bus import Bus
from emulator.core.clock import Scheduler
from emulator.mcs51.core import Mcs51, Stop
from firmware.asm2464pd.describe import Space
from sdk.errors import DeviceFailed

SHOWN_CALLS = 8
"""Return addresses that a message lists."""

PLANES = (Space.XDATA, Space.PHY)
"""The MOVX planes in the order of DPX."""

FAULTS = {
    Stop.BREAKPOINT: "a breakpoint was reached",
    Stop.ILLEGAL: "the reserved opcode A5 was executed",
    Stop.STACK: "the stack overflowed, or was popped below where it began",
    Stop.ERASED: "code memory was executed that holds no loaded code",
    Stop.CLOBBERED: "an interrupt handler returned with changed registers",
    Stop.UNINIT: "XDATA was read that has not been written",
}
"""What a stop of the CPU means to the author of the firmware."""

DEBUGGED = (Stop.BREAKPOINT, Stop.WATCHED)
"""Stops that a debugger has asked for."""


class CpuFault(DeviceFailed):
    """The firmware did something that a switched-on guard, or the 8051 itself, refuses."""

    code = "cpu-fault"


class Debugger(Protocol):
    """May hold the CPU: no time passes until its function returns."""

    def before(self) -> None:
        """Time is about to pass; the CPU is between two instructions."""

    def stopped(self, stop: Stop) -> None:
        """The CPU stopped for one of DEBUGGED."""


class Machine:
    """A running chip.

    Args:
        bus: with the chip's blocks on it.
        cpu: with code loaded.
        native: what a stop of the native device asks for; called with its reason.

    Attributes:
        lock: held while the machine advances.
        running: whether the CPU executes; with the mask ROM in charge it does not.
        name_of: turns a code address into words for messages.
        data_name_of: the same of an XDATA address.
        serial: takes bytes that leave the 8051's own serial port.
        function_of: the name of the function at a code address of a bank, "" if it has none.
        spinning: called once for a spin loop that has run for `Mcs51.spin_limit`.
        debugger: which set breakpoints and watchpoints.
    """

    def __init__(self, bus: Bus, cpu: Mcs51, native: Callable[[int], None]) -> None:
        self.bus = bus
        self.cpu = cpu
        self.clock: Scheduler = bus.clock
        self.lock = threading.RLock()
        self.running = True
        self.name_of: Callable[[int], str] = lambda address: f"{address:#06x}"
        self.data_name_of: Callable[[int], str] = lambda address: f"{address:#06x}"
        self.function_of: Callable[[int, int], str] = lambda bank, address: ""
        self.spinning: Callable[[], None] = lambda: None
        self.serial: Callable[[int], None] = lambda value: None
        self.debugger: Debugger | None = None
        self._native = native
        bus.program_counter = lambda: cpu.stop_pc
        bus.place = lambda: f"PC {self.name_of(cpu.stop_pc)}"
        bus.drive = cpu.line
        cpu.question(bus.questionable_sfrs, bus.question_sfr)

    def restart(self) -> None:
        """The CPU starts again at address 0; memory and registers of the chip stay."""
        self.cpu.reset()

    def step(self, until: int) -> None:
        """Advance to at most clock `until`: to the next event, or to one access that concerns a block.

        Raises:
            CpuFault: the CPU stopped at a guard.
            Unmodelled: under strict, see `emulator.core.bus`.
            TowlineError: what `spinning` raises.
        """
        if self.debugger is not None:
            self.debugger.before()
        due = self.clock.next
        target = until if due is None else min(until, due)
        if target > self.clock.now:
            if self.running:
                self._execute(target)
            else:
                self.clock.now = target
                self.cpu.clock = target
        self.clock.run_due()

    def run(self, until: int) -> None:
        """Advance to clock `until`."""
        while self.clock.now < until:
            self.step(until)

    def _execute(self, target: int) -> None:
        cpu = self.cpu
        stop = cpu.run(target)
        self.clock.now = max(self.clock.now, cpu.clock)
        if stop is Stop.UNTIL:
            return
        if stop is Stop.READ:
            cpu.finish_read(self.bus.cpu_read(PLANES[cpu.plane], cpu.address))
        elif stop is Stop.WRITE:
            self.bus.cpu_write(PLANES[cpu.plane], cpu.address, cpu.value)
        elif stop is Stop.NATIVE_STOP:
            self._native(cpu.device_reason)
        elif stop is Stop.SERIAL:
            self.serial(cpu.value)
        elif stop is Stop.SPINNING:
            self.spinning()
        elif self.debugger is not None and stop in DEBUGGED:
            self.debugger.stopped(stop)
        else:
            raise self.fault(stop)

    def fault(self, stop: Stop) -> CpuFault:
        """The error for a stop that is one of FAULTS, with the evidence that the CPU holds."""
        return CpuFault(FAULTS[stop], where=f"PC {self.name_of(self.cpu.stop_pc)}", hint=self._evidence(stop))

    def _evidence(self, stop: Stop) -> str:
        cpu = self.cpu
        if stop is Stop.UNINIT:
            name = self.data_name_of(cpu.address)
            return f"it was {name}; write it first, or run without the guard uninit"
        if stop is Stop.CLOBBERED:
            return f"{cpu.clobbered} has changed since the interrupt was taken"
        calls = cpu.backtrace()
        shown = [self.name_of(address) for address in calls[:SHOWN_CALLS]]
        if len(calls) > SHOWN_CALLS:
            shown.append(f"and {len(calls) - SHOWN_CALLS} more")
        called = f"; called from, innermost first: {', '.join(shown)}" if shown else ""
        return f"SP is {cpu.sp:#04x}{called}"
