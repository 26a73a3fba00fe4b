"""The I2C master: transactions with what is on the board's bus, and the pins that the bus is on.

What a transaction is, and what its end reads, is the published use of it on silicon
(`firmware.asm2464pd.registers.i2c`). How long it takes is a guess: the clock's registers are not understood.
Uses whose outcome is not known are reported: once with their cause, or refused under `--strict`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from emulator.asm2464pd import timing
from emulator.asm2464pd.undefined import Reporter
from emulator.core.bus import Bus
from emulator.core.clock import Event
from firmware.asm2464pd.describe import Space
from firmware.asm2464pd.registers import i2c as regs
from firmware.asm2464pd.registers.flash import FLASH_BUFFER
from firmware.asm2464pd.registers.memory import XRAM_E800

WORD = 2
"""Bytes from the buffer that a write goes on with."""

_STORAGE = (
    regs.I2C_TARGET,
    regs.I2C_DATA,
    regs.I2C_WRITES,
    regs.I2C_LENGTH,
    regs.I2C_CLOCK_LOW,
    regs.I2C_CLOCK_HIGH,
    regs.I2C_SOURCE,
    regs.I2C_MODE,
    regs.I2C_DESTINATION,
    regs.PIN_FAULT,
    regs.PIN_SCL,
    regs.PIN_SDA,
)
_ALIKE = ((regs.I2C_MODE, 0xC4), (regs.I2C_CLOCK_LOW, 0x18), (regs.I2C_CLOCK_HIGH, 0x4A))
"""Registers, and their value in every known transaction."""
_OUTCOME = {name: code for code, name in regs.I2C_CSR.field("OUTCOME").values.items()}


class Target(Protocol):
    """A device on the bus. It acknowledges its address while it is there."""

    def write(self, data: bytes) -> None:
        """The bytes of a write behind the address; none if only that was sent."""

    def read(self, count: int) -> bytes:
        """That many bytes for a read."""


class I2cMaster:
    """The I2C master.

    Args:
        bus: registers, and the buffer at 0xE800.
        targets: what acknowledges now, by address.
        supply_good: the level of the pin that reports the supply's state.
    """

    def __init__(
        self, bus: Bus, targets: Callable[[], Mapping[int, Target]], supply_good: Callable[[], bool]
    ) -> None:
        self._bus = bus
        self._targets = targets
        self._supply_good = supply_good
        self._undefined = Reporter(bus)
        self._hangs = False
        self._running: Event | None = None
        for register in _STORAGE:
            bus.map(register, "i2c")
        bus.map(regs.I2C_CSR, "i2c", write=self._csr_written)
        bus.map(regs.I2C_HANG, "i2c", write=self._hang_written)
        bus.map(regs.PIN_LEVELS, "i2c", read=self._levels)

    def lose_power(self) -> None:
        """The supply fails: a transaction ends nowhere."""
        self._bus.clock.cancel(self._running)
        self._hangs = False

    # -- inside -----------------------------------------------------------------------------------------

    def _levels(self) -> int:
        levels = self._bus.value(regs.PIN_LEVELS)
        return levels if self._supply_good() else levels & ~regs.PIN_LEVELS["SUPPLY_GOOD"]

    def _hang_written(self, value: int) -> None:
        if value & regs.I2C_HANG["HANG"]:
            self._hangs = True
            self._undefined.report(
                "I2C_HANG.HANG was written as 1",
                hint="on silicon the bus hangs then; in the model no transaction ends any more",
            )

    def _csr_written(self, value: int) -> None:
        bus, done, start = self._bus, regs.I2C_CSR["DONE"], regs.I2C_CSR["START"]
        status = bus.value(regs.I2C_CSR)
        if value & done and not status & start:
            bus.set(regs.I2C_CSR, 0)
            return
        if not value & start:
            return
        if status & start:
            self._undefined.report(
                "an I2C transaction was started while another one runs",
                hint="wait for I2C_CSR.DONE; the model ignores the start",
            )
            return
        if status:
            self._undefined.report(
                "an I2C transaction was started before the end of the last one was cleared",
                detail=f"I2C_CSR is {status:#04x}",
                hint="write 0xFF to I2C_CSR, then 0x01",
            )
        bus.set(regs.I2C_CSR, start)
        if not self._hangs:
            self._begin()

    def _begin(self) -> None:
        """Send what the registers say; the outcome is there when its bits have passed the bus."""
        bus = self._bus
        self._check()
        where = bus.value(regs.I2C_TARGET)
        address = regs.I2C_TARGET.field("ADDRESS").get(where)
        target = self._targets().get(address) if self._on_the_bus() else None
        if where & regs.I2C_TARGET["READ"]:
            count = bus.value(regs.I2C_LENGTH)
            self._check_read(count)
            length, finish = count, lambda: self._read(target, count)
        else:
            data = self._data()
            length, finish = len(data), lambda: self._write(target, data)
        # A byte has 9 bits with its acknowledge; start and stop are one each. An absent target ends it early.
        bits = 2 + 9 * (1 + (length if target is not None else 0))
        self._running = bus.clock.after(bits * timing.I2C_BIT.clocks, finish)

    def _data(self) -> bytes:
        """What a write sends behind the address."""
        bus = self._bus
        first = bytes((bus.value(regs.I2C_DATA),))
        if bus.value(regs.I2C_WRITES):
            place = XRAM_E800.address + bus.value(regs.I2C_SOURCE) % XRAM_E800.size
            return first + bus.load(Space.XDATA, place, WORD)
        return first if bus.value(regs.I2C_LENGTH) else b""

    def _write(self, target: Target | None, data: bytes) -> None:
        if target is None:
            self._end("WRITE_NAK")
            return
        target.write(data)
        self._end("WRITTEN" if len(data) > 1 else "POINTED")

    def _read(self, target: Target | None, count: int) -> None:
        if target is None:
            self._end("READ_NAK")
            return
        data = target.read(count)
        if self._bus.value(FLASH_BUFFER) & FLASH_BUFFER["I2C_RECEIVE"]:
            self._bus.store(Space.XDATA, XRAM_E800.address, data)
        self._end("READ")

    def _end(self, outcome: str) -> None:
        field = regs.I2C_CSR.field("OUTCOME")
        self._bus.set(regs.I2C_CSR, regs.I2C_CSR["DONE"] | field.put(_OUTCOME[outcome]))

    # -- what no known transaction does -----------------------------------------------------------------

    def _on_the_bus(self) -> bool:
        """Whether the pins are the I2C master's; reports those that are not."""
        bus = self._bus
        wrong = [
            pin.name
            for pin in (regs.PIN_SCL, regs.PIN_SDA)
            if pin.field("FUNCTION").values.get(pin.field("FUNCTION").get(bus.value(pin))) != "I2C"
        ]
        if wrong:
            self._undefined.report(
                "an I2C transaction was started before the pins were given to the I2C master",
                detail=f"not set: {', '.join(wrong)}",
                hint="write 0x13 to PIN_SCL and 0x14 to PIN_SDA first; in the model nothing answers",
            )
        return not wrong

    def _check(self) -> None:
        bus = self._bus
        unusual = [
            f"{register.name} is {bus.value(register):#04x}, not {usual:#04x}"
            for register, usual in _ALIKE
            if bus.value(register) != usual
        ]
        unusual += [
            f"{register.name} is {bus.value(register):#06x}, not 0"
            for register in (regs.I2C_SOURCE, regs.I2C_DESTINATION)
            if bus.value(register)
        ]
        if unusual:
            self._undefined.report(
                "an I2C transaction was started with settings that no known one has",
                detail="; ".join(unusual),
                hint="set them as published firmware does; the model takes them as they are",
            )

    def _check_read(self, count: int) -> None:
        if not self._bus.value(FLASH_BUFFER) & FLASH_BUFFER["I2C_RECEIVE"]:
            self._undefined.report(
                "an I2C read was started without FLASH_BUFFER.I2C_RECEIVE",
                hint="set bit 4 of 0xC805 before the start; in the model the bytes are lost",
            )
        if not count:
            self._undefined.report(
                "an I2C read of no bytes was started",
                hint="write how many to I2C_LENGTH; the model reads none",
            )
