"""The interrupt summary: from the event registers of the USB controller to the 8051's INT0 line, and INT1.

Each event register (write 1 to clear) drives one bit of USB_EVENTS (0x9101), or two; that register bit 0 of
INT_USB (0xC802), and INT_USB the line; INT_CONTROL.GLOBAL lets it through. Nothing is latched on the way: the
line falls when firmware has acknowledged the last event at its own register. Sources: the open firmware's
interrupt handler [trace], and its remark that no interrupt comes without INT_CONTROL [hardware]. Whether mask
registers keep link events out is disputed.

INT1 is the same with the causes that the maker's firmware looks for in its handler [inferred]: INT_SYSTEM,
INT_PCIE, SYS_CPU_STATUS.INTERRUPT. Of these the model only ever sets INT_SYSTEM.TIMER, by timer 3.
"""

from __future__ import annotations

from collections.abc import Callable

from emulator.core.bus import Bus
from emulator.model import DEFAULT, Model
from firmware.asm2464pd import disputes
from firmware.asm2464pd.describe import ByteRegister
from firmware.asm2464pd.registers import interrupts as regs
from firmware.asm2464pd.registers import system, usb, usb_phy

INT0, INT1 = 0, 1
MASKS = {
    usb.USB_LINK_STATUS.name: usb.USB_LINK_STATUS_MASK,
    usb_phy.USB_LINK_FURTHER.name: usb_phy.USB_LINK_FURTHER_MASK,
    usb.USB_LINK_ALTERNATE.name: usb_phy.USB_LINK_ALTERNATE_MASK,
}
"""The mask register of each event register that may have one."""
TIMER_EVENTS = (regs.INT_EVENT_CC81, regs.INT_EVENT_CC91, regs.INT_EVENT_CCD9)
_SYSTEM = regs.INT_SYSTEM["EVENT"] | regs.INT_SYSTEM["TIMER"]
_PCIE = regs.INT_PCIE["COMPLETION"] | regs.INT_PCIE["LINK"] | regs.INT_PCIE["QUEUE"]
_CPU = system.SYS_CPU_STATUS["INTERRUPT"]
_GLOBAL, _USB = regs.INT_CONTROL["GLOBAL"], regs.INT_USB["USB"]


class Interrupts:
    """USB_EVENTS, INT_USB and the lines INT0 and INT1, kept consistent with the event registers.

    Args:
        bus: registers and lines.
        model: whether the mask registers count.
    """

    def __init__(self, bus: Bus, model: Model = DEFAULT) -> None:
        self._bus = bus
        self._masked = model.follows(disputes.LINK_MASKS, "applied")
        self._members: dict[int, list[tuple[ByteRegister, int]]] = {}  # by bit of USB_EVENTS
        self._causes: dict[str, int] = {}  # bits of USB_EVENTS by event register
        self._levels = {INT0: False, INT1: False}
        for register in (
            regs.USB_EVENTS,
            regs.INT_USB,
            regs.INT_ENABLE,
            regs.INT_SYSTEM,
            regs.INT_PCIE,
            regs.INT_QUEUE_CEF2,
            regs.INT_QUEUE_CEF3,
        ):
            bus.map(register, "interrupts")
        for register in TIMER_EVENTS:
            bus.map(register, "interrupts", write=lambda value: self.timers_changed())
        for name, mask in MASKS.items():
            bus.map(mask, "usb", write=lambda value, name=name: self._mask_written(name))  # type: ignore[misc]
        bus.map(regs.INT_CONTROL, "interrupts", write=lambda value: self._drive())

    def source(
        self,
        register: ByteRegister,
        cause: str,
        acknowledged: Callable[[], None] | None = None,
        *,
        bits: int = 0xFF,
    ) -> None:
        """Take over an event register of one byte, write 1 to clear.

        Args:
            register: the event register.
            cause: the field of USB_EVENTS that is set while the register is not 0.
            acknowledged: called after every write by the CPU.
            bits: those of the register that count for this cause.
        """
        event = regs.USB_EVENTS[cause]
        self._members.setdefault(event, []).append((register, bits))
        self._causes[register.name] = self._causes.get(register.name, 0) | event

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

    def clear_bits(self, register: ByteRegister, bits: int) -> None:
        """The hardware clears some events of a register."""
        self._bus.clear_bits(register, bits)
        self._summarise(register)

    def timers_changed(self) -> None:
        """A cause of INT_SYSTEM.TIMER has come or gone."""
        bus = self._bus
        pending = bus.value(system.TIMER3_CSR) & system.TIMER3_CSR["EXPIRED"] or any(
            bus.value(register) & register["EVENT"] for register in TIMER_EVENTS
        )
        before, timer = bus.value(regs.INT_SYSTEM), regs.INT_SYSTEM["TIMER"]
        after = before | timer if pending else before & ~timer
        if after != before:
            bus.set(regs.INT_SYSTEM, after)
            self._drive()

    def forget(self) -> None:
        """All registers are as after power-on: so are the lines."""
        self._drive()

    # -- inside -----------------------------------------------------------------------------------------

    def _pending(self, register: ByteRegister) -> int:
        value = self._bus.value(register)
        if self._masked and value and (mask := MASKS.get(register.name)) is not None:
            value &= ~self._bus.value(mask)
        return value

    def _mask_written(self, name: str) -> None:
        for members in tuple(self._members.values()):
            for register, _ in members:
                if register.name == name:
                    self._summarise(register)

    def _summarise(self, register: ByteRegister) -> None:
        bus, causes = self._bus, self._causes[register.name]
        before = after = bus.value(regs.USB_EVENTS)
        for event, members in self._members.items():
            if event & causes:
                after &= ~event
                for member, bits in members:
                    if self._pending(member) & bits:
                        after |= event
                        break
        if after != before:
            bus.set(regs.USB_EVENTS, after)
            bus.set(regs.INT_USB, _USB if after else 0)
            self._drive()

    def _drive(self) -> None:
        bus = self._bus
        through = bus.value(regs.INT_CONTROL) & _GLOBAL
        other = (
            bus.value(regs.INT_SYSTEM) & _SYSTEM
            or bus.value(regs.INT_PCIE) & _PCIE
            or bus.value(system.SYS_CPU_STATUS) & _CPU
        )
        for line, pending in ((INT0, bus.value(regs.INT_USB)), (INT1, other)):
            level = bool(through and pending)
            if level != self._levels[line]:
                self._levels[line] = level
                bus.interrupt(line, level)
