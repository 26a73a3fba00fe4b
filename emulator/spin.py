"""A CPU that waits for what cannot come: a spin loop on a register that nothing in the model ever changes.

The core proves that a loop changes nothing from round to round but the clock (mcs51.c). Such a loop ends when
one of the bytes changes that it reads, or not at all. It is reported after LIMIT if it reads a byte that is
*dead*: unknown, declared but not modelled, only a guess, or plain storage that no block writes. Firmware that
idles in its main loop looks the same, so outside of interrupt handlers a loop is left alone if it also reads
something that may end it: memory, a register that a block drives (but for the timers, by which waits are
bounded), or, with interrupts enabled, a variable in internal RAM.

A loop whose instructions go through bytes that are traced, poked or given a behaviour is not proven.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from emulator.core.bus import Bus, Dead
from emulator.core.clock import clocks, seconds
from emulator.machine import PLANES, Machine
from emulator.mcs51.core import Mcs51, Spin
from emulator.mcs51.disassembler import decode
from emulator.mcs51.opcodes import Operand
from firmware.asm2464pd.describe import Space
from firmware.asm2464pd.registers.cpu import CPU_IE
from sdk.errors import DeviceFailed

log = logging.getLogger(__name__)

LIMIT = clocks(0.25)
"""Clocks after which a loop is reported: more than the longest limit that firmware is known to set itself in
a wait for one register (200 ms, for the USB PHY), and far less than the 5 s that a host waits."""
RECENT = clocks(5e-3)
"""A loop that was proven this long ago still runs: the core looks for it at least once per millisecond."""
REGISTERS = 0x08
"""The first byte of internal RAM that is not R0 to R7 of bank 0."""
_OTHERS = ("PUSH", "POP", "MOVX")
"""Instructions whose operands in internal RAM decide nothing."""


class Spinning(DeviceFailed):
    """Under `--strict`: the CPU spins on a register that cannot change."""

    code = "spinning"


class Watch:
    """Reports spin loops of a machine that nothing ends, each once.

    Args:
        machine: whose CPU is watched.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._said: set[tuple[tuple[int, int], tuple[tuple[int, int], ...]]] = set()
        machine.cpu.spin_limit = LIMIT
        machine.spinning = self._stopped

    def sentence(self) -> str:
        """The loop that the CPU is in and that nothing ends, as a sentence; empty if it is in none."""
        machine = self._machine
        spin = machine.cpu.spin
        if spin is None or spin.seen - spin.since < LIMIT or machine.clock.now - spin.seen > RECENT:
            return ""
        return describe(spin, machine)

    def _stopped(self) -> None:
        spin = self._machine.cpu.spin
        if spin is None or spin.reads is None:
            return
        text = describe(spin, self._machine)
        if not text or (spin.at, spin.reads) in self._said:
            return
        self._said.add((spin.at, spin.reads))
        hint = "try another value with --poke, or what you think the register does with --behaviour"
        if self._machine.bus.strict:
            raise Spinning(text, hint=hint)
        log.warning("%s", text)


def describe(spin: Spin, machine: Machine) -> str:
    """A spin loop that nothing ends, as a sentence; empty if something may end it."""
    bus = machine.bus
    reads = [(PLANES[plane], address) for plane, address in spin.reads or ()]
    dead = [(place, why) for place in reads if (why := bus.dead(*place)) is not None]
    if not dead or (not spin.in_handler and _may_end(spin, machine.cpu, bus, reads)):
        return ""
    bank, address = spin.at
    milliseconds = seconds(spin.seen - spin.since) * 1000
    name = machine.function_of(bank, address)
    where = f"{address:#06x} (bank {bank}{f', {name}' if name else ''})"
    handler = " in an interrupt handler" if spin.in_handler else ""
    on = " and ".join(_named(bus, place, why) for place, why in dead)
    return f"the CPU has been spinning for {milliseconds:.0f} ms at {where}{handler} on {on}"


def _named(bus: Bus, place: tuple[Space, int], why: Dead) -> str:
    """A dead byte in words."""
    space, address = place
    register = bus.facts.at(space, address)
    named = f" ({register.name})" if register is not None else ""
    return f"{space.value} {address:#06x}{named} = {bus.load(space, address, 1)[0]:#04x}, {why.value}"


def _may_end(spin: Spin, cpu: Mcs51, bus: Bus, reads: list[tuple[Space, int]]) -> bool:
    """Whether a loop outside of interrupt handlers reads anything that may change."""
    if any(bus.dead(*place) is None and bus.owner(*place) != "timers" for place in reads):
        return True
    interrupts = cpu.sfr(CPU_IE.address)
    return bool(interrupts & 0x80 and interrupts & 0x3F) and any(_variables(spin, cpu))


def _variables(spin: Spin, cpu: Mcs51) -> Iterator[bool]:
    """For each instruction of a loop, whether it decides by a variable in internal RAM."""
    for bank, address in spin.trail:
        instruction = decode(cpu.code(bank), address)
        yield instruction.opcode.mnemonic not in _OTHERS and any(
            (kind is Operand.DIRECT and REGISTERS <= (value or 0) < 0x80)
            or (kind in (Operand.BIT, Operand.NOT_BIT) and (value or 0) < 0x80)
            or kind is Operand.AT_RI
            for kind, value in instruction.operands
        )
