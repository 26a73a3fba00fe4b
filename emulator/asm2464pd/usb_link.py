"""The link: from the cable to an attached device, and back.

With a port at the other end the receiver looks for a partner every LINK_DETECT. It finds none before both
SerDes lanes have been set up and the power of the USB path is on: without that no event reaches the CPU
[hardware: remark in the open firmware]. Then the link trains, USB_LINK_EVENTS.TRAINING says so, and after
LINK_TRAINING USB_LINK_STATUS shows how it ended:

* SS_OK: the port is SuperSpeed; USB_LINK_SPEED is 2 or 3, and the host sees the device.
* SS_FAIL: it is not. Firmware sets USB_MODE to 0 and USB_PHY_CONTROL.HIGH_SPEED, and after another
  LINK_TRAINING the device is attached at High Speed. Firmware that has set these before training ends is
  attached at High Speed without SS_FAIL.

A bus reset clears the device address and sets USB_LINK_EVENTS.RESET, at both speeds [inferred for High
Speed]; a link that is lost clears USB_PHY_CONTROL.SS_UP and sets TRAINING [inferred: that is where vendor
firmware looks at SS_UP]. The sequence itself is what the open firmware expects [trace]; the times are
guesses.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from emulator.asm2464pd import timing, waits
from emulator.asm2464pd.interrupts import Interrupts
from emulator.core.bus import Bus
from emulator.core.clock import Event
from emulator.usb.wire import Partner, Speed
from firmware.asm2464pd import phy
from firmware.asm2464pd.describe import Space
from firmware.asm2464pd.registers import usb as regs

log = logging.getLogger(__name__)

SPEED_CODE = {Speed.HIGH: 1, Speed.SUPER: 2, Speed.SUPER_PLUS: 3}
"""USB_LINK_SPEED.SPEED."""
EVENTS, STATUS, PHY = regs.USB_LINK_EVENTS, regs.USB_LINK_STATUS, regs.USB_PHY_CONTROL
STORAGE = (
    regs.USB_CONFIG,
    regs.USB_BULK_EVENT_ENABLE,
    regs.USB_EP_EVENT_ENABLE,
    regs.USB_EP_MANAGEMENT,
    regs.USB_ADDRESS,
    regs.USB_ADDRESS_COMMIT,
    regs.USB_LINK_SPEED,
    regs.USB_POWER_ENABLE,
    regs.USB_POWER_STATUS,
    regs.USB_LINK_CONFIG,
)
"""Registers that hold what was written, or the state of the link."""


class Link:
    """The link of the USB device controller.

    Args:
        bus: registers, lanes and time.
        interrupts: for the link events.
        changed: called with the new speed before the partner is notified, with None when the link is lost.

    Attributes:
        partner: the port at the other end of the cable.
        speed: of the link, None while it is down.
    """

    def __init__(self, bus: Bus, interrupts: Interrupts, changed: Callable[[Speed | None], None]) -> None:
        self._bus = bus
        self._interrupts = interrupts
        self._changed = changed
        self._next: Event | None = None
        self._failed = False
        self._lacking: str | None = None
        self.partner: Partner | None = None
        self.speed: Speed | None = None
        interrupts.source(EVENTS, "LINK_TRAINING")
        interrupts.source(STATUS, "LINK")
        interrupts.source(regs.USB_LINK_ALTERNATE, "LINK_ALTERNATE")
        bus.map(regs.USB_MODE, "usb", write=lambda value: self._mode_written())
        bus.map(PHY, "usb", write=lambda value: self._phy_written())
        for register in STORAGE:
            bus.map(register, "usb")

    # -- what happens to it -----------------------------------------------------------------------------

    def connect(self, partner: Partner | None) -> None:
        """The cable goes into a port, or (None) comes out."""
        self._lose()
        self.partner = partner
        self._look()

    def reconnect(self) -> None:
        """The controller is powered off and on: events, address and speed mode are as after reset."""
        self._lose()
        for register in (EVENTS, STATUS, regs.USB_LINK_ALTERNATE):
            self._interrupts.clear(register)
        for register in (regs.USB_ADDRESS, regs.USB_MODE, PHY):
            self._bus.set(register, register.reset)
        self._look()

    def drop(self, retrain_after: int | None) -> None:
        """A fault: the link goes down, and looks for its partner again after that many clocks, or never."""
        self._lose()
        if retrain_after is not None and self.partner is not None:
            self._schedule(retrain_after, self._detect)

    def bus_reset(self) -> None:
        """The host resets the device."""
        self._bus.clear_bits(regs.USB_ADDRESS, regs.USB_ADDRESS["ADDRESS"])
        self._interrupts.raise_bits(EVENTS, EVENTS["RESET"])

    @property
    def powered(self) -> bool:
        """Whether the USB path has power."""
        return not self._bus.value(regs.USB_POWER_STATUS) & regs.USB_POWER_STATUS["USB_PATH"]

    @property
    def untuned(self) -> int | None:
        """The first lane register that does not hold what the set-up determines; None if all do."""
        for lane in phy.USB_LANES:
            held = self._bus.load(Space.XDATA, lane, phy.USB_LANE_SIZE)
            for update in phy.USB_LANE_SETUP:
                if update.apply(held[update.offset]) != held[update.offset]:
                    return lane + update.offset
        return None

    def waits_for(self) -> str:
        """Why no device is attached, as a sentence; empty if one is, or will be without the firmware."""
        if self.speed is not None or self.partner is None:
            return ""
        lane = self.untuned
        if not self.powered:
            what = waits.bit(regs.USB_POWER_STATUS, "USB_PATH", 0)
        elif lane is not None:
            what = f"the set-up of the SerDes lanes: xdata {lane:#06x} = {self._tuned(lane):#04x}"
        elif self._failed and self._next is not None and self._next.action is None:
            needed = ((regs.USB_MODE, "SUPER_SPEED", False), (PHY, "HIGH_SPEED", True))
            wanted = " and ".join(waits.missing(self._bus, needed))
            what = f"{wanted}, as SuperSpeed has failed (USB_LINK_STATUS.SS_FAIL)"
        elif self._next is None or self._next.action is None:
            return "the USB link is down: a fault has taken it down, and nothing brings it up again"
        else:
            return ""
        return f"the USB link does not train: it waits for {what}, which the firmware writes"

    def _tuned(self, address: int) -> int:
        """What the set-up makes of a lane register."""
        lane = max(lane for lane in phy.USB_LANES if lane <= address)
        value = self._bus.load(Space.XDATA, address, 1)[0]
        for update in phy.USB_LANE_SETUP:
            if update.offset == address - lane:
                value = update.apply(value)
        return value

    # -- from detection to attached ---------------------------------------------------------------------

    def _schedule(self, delay: int, action: Callable[[], None]) -> None:
        self._bus.clock.cancel(self._next)
        self._next = self._bus.clock.after(delay, action)

    def _look(self) -> None:
        self._failed = False
        if self.partner is not None:
            self._schedule(timing.LINK_DETECT.clocks, self._detect)

    def _detect(self) -> None:
        untuned = self.untuned
        if not self.powered or untuned is not None:
            if self.powered and untuned is not None:
                self._report_untuned(untuned)
            self._schedule(timing.LINK_DETECT.clocks, self._detect)
        elif self._tries_super_speed():
            self._interrupts.raise_bits(EVENTS, EVENTS["TRAINING"])
            self._schedule(timing.LINK_TRAINING.clocks, self._trained)
        else:
            self._failed = True
            self._try_high_speed()

    def _report_untuned(self, address: int) -> None:
        """Log why no host sees the device, as nothing else shows it; once for each first register."""
        reason = f"xdata {address:#06x} of the SerDes lanes' set-up"
        if reason != self._lacking:
            self._lacking = reason
            log.warning("the USB link does not train: %s is missing", reason)

    def _trained(self) -> None:
        if not self._tries_super_speed():  # firmware has cleared it meanwhile
            self._failed = True
            self._try_high_speed()
            return
        if self.partner is not None and self.partner.best.is_super:
            self._attach(self.partner.best)
            return
        self._failed = True
        self._interrupts.raise_bits(STATUS, STATUS["SS_FAIL"])

    def _attach(self, speed: Speed) -> None:
        self.speed = speed
        self._failed = False
        self._bus.set(regs.USB_LINK_SPEED, SPEED_CODE[speed])
        self._show_link()
        self._changed(speed)
        if speed.is_super:
            self._interrupts.raise_bits(STATUS, STATUS["SS_OK"])
        if self.partner is not None:
            self.partner.attached(speed)

    def _lose(self) -> None:
        """Whatever the link was doing is over."""
        self._bus.clock.cancel(self._next)
        self._failed = False
        speed, self.speed = self.speed, None
        if speed is None:
            return
        self._bus.set(regs.USB_LINK_SPEED, 0)
        self._show_link()
        self._changed(None)
        if speed.is_super:
            self._interrupts.raise_bits(EVENTS, EVENTS["TRAINING"])
        if self.partner is not None:
            self.partner.detached()

    # -- what firmware sets -----------------------------------------------------------------------------

    def _tries_super_speed(self) -> bool:
        return bool(self._bus.value(regs.USB_MODE) & regs.USB_MODE["SUPER_SPEED"])

    def _try_high_speed(self) -> None:
        """Attach at High Speed, if SuperSpeed has failed and firmware wants it."""
        wanted = self._bus.value(PHY) & PHY["HIGH_SPEED"]
        if self._failed and wanted and not self._tries_super_speed():
            self._schedule(timing.LINK_TRAINING.clocks, lambda: self._attach(Speed.HIGH))

    def _mode_written(self) -> None:
        if self._failed and self._tries_super_speed():
            self._look()
        self._try_high_speed()

    def _phy_written(self) -> None:
        self._show_link()
        self._try_high_speed()

    def _show_link(self) -> None:
        """Keep USB_PHY_CONTROL.SS_UP, which the CPU cannot write, true."""
        up = self.speed is not None and self.speed.is_super
        rest = self._bus.value(PHY) & ~PHY["SS_UP"]
        self._bus.set(PHY, rest | (PHY["SS_UP"] if up else 0))
