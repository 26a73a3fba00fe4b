"""The link: from the cable to an attached device, and back.

With a port at the other end the receiver looks for a partner every LINK_DETECT. It finds none before firmware
has started the PHY, in one of two ways:

* both SerDes lanes set up as the open firmware does, and the power of the USB path on: without that no event
  reaches the CPU [hardware: remark in the open firmware];
* a pulse of USB_PHY_CONTROL.START. The chip maker's firmware sets the lanes up otherwise, and switches that
  power on only when the link is up [trace].

Then the link trains, USB_LINK_EVENTS.TRAINING says so, and after
LINK_TRAINING USB_LINK_STATUS shows how it ended:

* SS_OK: the port is SuperSpeed; USB_LINK_SPEED is 2 or 3, and the host sees the device.
* SS_FAIL: it is not. Firmware sets USB_MODE to 0 and USB_PHY_CONTROL.HIGH_SPEED, and after another
  LINK_TRAINING the device is attached at High Speed. Firmware that has set these before training ends is
  attached at High Speed without SS_FAIL. A PHY that was started by the pulse goes to High Speed without
  USB_PHY_CONTROL.HIGH_SPEED: the maker's firmware does not write it at SS_FAIL [inferred].

USB_LINK_STATE shows UP from the beginning of training on [trace at SuperSpeed; at High Speed inferred, as the
maker's firmware would wait without end], FAILED when the link is lost [guess].

A bus reset clears the device address and sets USB_LINK_EVENTS.RESET, at both speeds [inferred for High
Speed]; a link that is lost clears USB_PHY_CONTROL.SS_UP and sets TRAINING [inferred: that is where vendor
firmware looks at SS_UP]. Whether the link sets and clears SS_UP at all is disputed. The sequence itself is
what the open firmware expects [trace]; the times are guesses.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from emulator.asm2464pd import timing, waits
from emulator.asm2464pd.interrupts import Interrupts
from emulator.core.bus import Bus
from emulator.core.clock import Event
from emulator.model import DEFAULT, Model
from emulator.usb.wire import Partner, Speed
from firmware.asm2464pd import disputes, phy
from firmware.asm2464pd.describe import Space
from firmware.asm2464pd.registers import usb as regs
from firmware.asm2464pd.registers import usb_phy

log = logging.getLogger(__name__)

SPEED_CODE = {Speed.HIGH: 1, Speed.SUPER: 2, Speed.SUPER_PLUS: 3}
"""USB_LINK_SPEED.SPEED."""
EVENTS, STATUS, PHY = regs.USB_LINK_EVENTS, regs.USB_LINK_STATUS, regs.USB_PHY_CONTROL
STATE = usb_phy.USB_LINK_STATE
UP, FAILED = (
    next(value for value, name in STATE.field("STATE").values.items() if name == wanted)
    for wanted in ("UP", "FAILED")
)
STORAGE = (
    regs.USB_BULK_EVENT_ENABLE,
    regs.USB_EP_EVENT_ENABLE,
    regs.USB_EP_MANAGEMENT,
    regs.USB_ADDRESS,
    regs.USB_ADDRESS_COMMIT,
    regs.USB_LINK_SPEED,
    regs.USB_POWER_ENABLE,
    regs.USB_POWER_STATUS,
    STATE,
    usb_phy.USB_PHY_READY,
    usb_phy.USB_PHY_DONE,
    usb_phy.USB_POWER_92E0,
    usb_phy.USB_POWER_92E1,
    usb_phy.USB_POWER_STATE,
    usb_phy.USB_TRANSPORT,
    usb_phy.UAS_EVENTS,
)
"""Registers that hold what was written, or the state of the link."""


class Link:
    """The link of the USB device controller.

    Args:
        bus: registers, lanes and time.
        interrupts: for the link events.
        changed: called with the new speed before the partner is notified, with None when the link is lost.
        model: what USB_LINK_SPEED reads, and who sets SS_UP.

    Attributes:
        partner: the port at the other end of the cable.
        speed: of the link, None while it is down.
    """

    def __init__(
        self,
        bus: Bus,
        interrupts: Interrupts,
        changed: Callable[[Speed | None], None],
        model: Model = DEFAULT,
    ) -> None:
        self._bus = bus
        self._codes = dict(SPEED_CODE)
        if model.follows(disputes.SUPER_PLUS_CODE, "2"):
            self._codes[Speed.SUPER_PLUS] = SPEED_CODE[Speed.SUPER]
        self._shows_up = model.follows(disputes.SS_UP, "hardware")
        self._pulsed = False  # the last write had START
        self._started = False  # by a pulse of START
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
        further = usb_phy.USB_LINK_FURTHER
        interrupts.source(further, "LINK_ALTERNATE", bits=further["EVENT7"])
        interrupts.source(further, "LINK", bits=~further["EVENT7"])
        bus.map(regs.USB_CONFIG, "usb", write=self._configured)
        bus.map(regs.USB_MODE, "usb", write=lambda value: self._mode_written())
        bus.map(PHY, "usb", write=self._phy_written)
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
        self._pulsed = self._started = False
        for register in (EVENTS, STATUS, regs.USB_LINK_ALTERNATE, usb_phy.USB_LINK_FURTHER):
            self._interrupts.clear(register)
        for register in (regs.USB_ADDRESS, regs.USB_MODE, PHY, STATE, usb_phy.USB_PHY_DONE):
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
        lane = None if self._started else self.untuned
        pulse = f", or for a pulse of {waits.bit(PHY, 'START', 1)}"
        if not self._started and not self.powered:
            what = waits.bit(regs.USB_POWER_STATUS, "USB_PATH", 0) + pulse
        elif lane is not None:
            what = f"the set-up of the SerDes lanes: xdata {lane:#06x} = {self._tuned(lane):#04x}{pulse}"
        elif self._failed and self._next is not None and self._next.action is None:
            needed = ((regs.USB_MODE, "SUPER_SPEED", False), (PHY, "HIGH_SPEED", True))
            wanted = " and ".join(waits.missing(self._bus, needed[: 1 if self._started else 2]))
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
        if not self._started and (not self.powered or untuned is not None):
            if self.powered and untuned is not None:
                self._report_untuned(untuned)
            self._schedule(timing.LINK_DETECT.clocks, self._detect)
        elif self._tries_super_speed():
            self._bus.set(STATE, UP)
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
        self._bus.set(regs.USB_LINK_SPEED, self._codes[speed])
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
            self._bus.set(STATE, FAILED)
            self._interrupts.raise_bits(EVENTS, EVENTS["TRAINING"])
        if self.partner is not None:
            self.partner.detached()

    # -- what firmware sets -----------------------------------------------------------------------------

    def _tries_super_speed(self) -> bool:
        return bool(self._bus.value(regs.USB_MODE) & regs.USB_MODE["SUPER_SPEED"])

    def _try_high_speed(self) -> None:
        """Attach at High Speed, if SuperSpeed has failed and firmware wants it."""
        wanted = self._started or self._bus.value(PHY) & PHY["HIGH_SPEED"]
        if self._failed and wanted and not self._tries_super_speed():
            self._schedule(timing.LINK_TRAINING.clocks, lambda: self._attach(Speed.HIGH))

    def _mode_written(self) -> None:
        if self._failed and self._tries_super_speed():
            self._look()
        self._try_high_speed()

    def _phy_written(self, value: int) -> None:
        ended = self._pulsed and not value & PHY["START"]
        self._pulsed = bool(value & PHY["START"])
        if ended:
            self._start()
        self._try_high_speed()

    def _start(self) -> None:
        """The pulse of START is over; an attached link is not disturbed [guess]."""
        done = usb_phy.USB_PHY_DONE
        self._started = True
        self._bus.clock.after(
            timing.PHY_START.clocks, lambda: self._bus.raise_bits(done, done["DONE"] if self._started else 0)
        )
        if self.speed is None:
            self._look()

    def _configured(self, value: int) -> None:
        """USB_CONFIG reads back the firmware's flag, and else the same whatever was written."""
        flag = regs.USB_CONFIG["STATUS_ANSWERED"]
        self._bus.set(regs.USB_CONFIG, regs.USB_CONFIG.reset & ~flag | value & flag)

    def _show_link(self) -> None:
        """The link has come up or gone: USB_PHY_CONTROL.SS_UP follows, if it does so."""
        if self._shows_up:
            up = self.speed is not None and self.speed.is_super
            rest = self._bus.value(PHY) & ~PHY["SS_UP"]
            self._bus.set(PHY, rest | (PHY["SS_UP"] if up else 0))
