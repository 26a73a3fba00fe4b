"""The interrupt summary: from the event registers of the USB controller to the 8051's INT0 line.

Each event register (write 1 to clear) drives one bit of USB_EVENTS (0x9101), that register bit 0 of INT_USB
(0xC802), and INT_USB the line; INT_CONTROL.GLOBAL lets it through. Nothing is latched on
the way: the line falls when firmware has acknowledged the last event at its own register. Sources: the open
firmware's interrupt handler [trace], and its remark that no interrupt comes without INT_CONTROL [hardware].
The INT1 causes (0xC806, 0xC80A) are registers that read 0.
"""

from __future__ import annotations

from collections.abc import Callable

from emulator.core.bus import Bus
from firmware.asm2464pd.describe import ByteRegister
from firmware.asm2464pd.registers import interrupts as regs

INT0 = 0


class Interrupts:
    """USB_EVENTS, INT_USB and the INT0 line, kept consistent with the event registers."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._masks: dict[str, int] = {}
        self._level = False
        for register in (regs.USB_EVENTS, regs.INT_USB, regs.INT_ENABLE, regs.INT_SYSTEM, regs.INT_PCIE):
            bus.map(register, "interrupts")
        bus.map(regs.INT_CONTROL, "interrupts", write=lambda value: self._drive())

    def source(
        self, register: ByteRegister, cause: str, acknowledged: Callable[[], None] | None = None
    ) -> None:
        """Take over an event register of one byte, write 1 to clear.

        Args:
            register: the event register.
            cause: the field of USB_EVENTS that is set while the register is not 0.
            acknowledged: called after every write by the CPU.
        """
        self._masks[register.name] = regs.USB_EVENTS[cause]

        def write(value: int) -> None:
            self._summarise(register)
            if acknowledged is not None:
                acknowledged()

        self._bus.map(register, "usb", write=write)

    def raise_bits(self, register: ByteRegister, bits: int) -> None:
        """Set bits of an event register."""
        self._bus.raise_bits(register, bits)
        self._summarise(register)

    def clear(self, register: ByteRegister) -> None:
        """The hardware clears every event of a register."""
        self._bus.set(register, 0)
        self._summarise(register)

    def _summarise(self, register: ByteRegister) -> None:
        bus, mask = self._bus, self._masks[register.name]
        before = bus.value(regs.USB_EVENTS)
        after = before | mask if bus.value(register) else before & ~mask
        if after != before:
            bus.set(regs.USB_EVENTS, after)
            bus.set(regs.INT_USB, regs.INT_USB["USB"] if after else 0)
            self._drive()

    def _drive(self) -> None:
        through = self._bus.value(regs.INT_CONTROL) & regs.INT_CONTROL["GLOBAL"]
        level = bool(through and self._bus.value(regs.INT_USB))
        if level != self._level:
            self._level = level
            self._bus.interrupt(INT0, level)
