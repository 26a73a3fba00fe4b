"""The chip's five timers: count to a threshold, set a flag, stop.

The open firmware sleeps with timers 0 and 1, in mode 4 only, where a tick is half a millisecond: that much is
certain. The other timers have the same registers. That counting stops at the threshold is how the timer of
ASMedia's USB host controllers works, and what a dump of the vendor's running firmware shows (EXPIRED without
ENABLE). In the other modes each doubles the tick, as a comment of the vendor-firmware reconstruction has it.
The maker's firmware uses modes 2 to 6, and its times come out round by this rule [inferred]; the use of 0, 1
and 7 is reported [guess].

None of them raises an interrupt of the 8051's own timers: a working firmware enables the 8051's timer 0
interrupt, has no code at its vector, and runs. Timer 3 is a cause of INT1, as the maker's firmware looks for
it there [inferred].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from emulator.asm2464pd.undefined import Reporter
from emulator.core.bus import Bus
from emulator.core.clock import HZ, Event
from firmware.asm2464pd.describe import ByteRegister
from firmware.asm2464pd.registers import system as regs

KNOWN_MODE = 4
USED_MODES = range(2, 7)
"""Modes that firmware known to work uses."""
KNOWN_TICK = HZ / 2000
"""Clocks of a tick in mode 4, half a millisecond."""


@dataclass(frozen=True, slots=True)
class Bank:
    """The registers of one timer."""

    mode: ByteRegister
    csr: ByteRegister
    threshold: ByteRegister


BANKS = (
    Bank(regs.TIMER0_MODE, regs.TIMER0_CSR, regs.TIMER0_THRESHOLD),
    Bank(regs.TIMER1_MODE, regs.TIMER1_CSR, regs.TIMER1_THRESHOLD),
    Bank(regs.TIMER2_MODE, regs.TIMER2_CSR, regs.TIMER2_THRESHOLD),
    Bank(regs.TIMER3_MODE, regs.TIMER3_CSR, regs.TIMER3_THRESHOLD),
    Bank(regs.TIMER4_MODE, regs.TIMER4_CSR, regs.TIMER4_THRESHOLD),
)


class Timers:
    """All timers of the chip.

    Args:
        bus: registers and time.
        changed: called when EXPIRED of a timer may have changed.
    """

    def __init__(self, bus: Bus, changed: Callable[[], None] = lambda: None) -> None:
        undefined = Reporter(bus)
        for bank in BANKS:
            _Timer(bus, bank, undefined, changed)


class _Timer:
    """One timer; the bus keeps it alive."""

    def __init__(self, bus: Bus, bank: Bank, undefined: Reporter, changed: Callable[[], None]) -> None:
        self._bus = bus
        self._changed = changed
        self._bank = bank
        self._undefined = undefined
        self._expiry: Event | None = None
        bus.map(bank.mode, "timers")
        bus.map(bank.threshold, "timers")
        bus.map(bank.csr, "timers", write=self._csr_written)

    def _csr_written(self, value: int) -> None:
        csr = self._bank.csr
        if value & csr["CLEAR"]:
            self._bus.clock.cancel(self._expiry)
            self._bus.clear_bits(csr, csr["ENABLE"])
        if value & csr["EXPIRED"]:
            self._bus.clear_bits(csr, csr["EXPIRED"])
            self._changed()
        if value & csr["ENABLE"]:
            self._start()

    def _start(self) -> None:
        bus, bank = self._bus, self._bank
        mode = bank.mode.field("PRESCALER").get(bus.value(bank.mode))
        if mode not in USED_MODES:
            self._undefined.report(
                f"{bank.mode.name} is {mode}, whose tick is only a guess",
                hint=f"mode {KNOWN_MODE} is 0.5 ms; from {USED_MODES[0]} to {USED_MODES[-1]} each doubles it",
            )
        tick = KNOWN_TICK * 2**mode / 2**KNOWN_MODE
        bus.clock.cancel(self._expiry)
        bus.raise_bits(bank.csr, bank.csr["ENABLE"])
        self._expiry = bus.clock.after(math.ceil(bus.value(bank.threshold) * tick), self._expired)

    def _expired(self) -> None:
        csr = self._bank.csr
        self._bus.set(csr, self._bus.value(csr) & ~csr["ENABLE"] | csr["EXPIRED"])
        self._changed()
