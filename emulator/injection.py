"""What faults do to a board, and when they did: `emulator.faults` has how they are written."""

from __future__ import annotations

import functools
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from emulator.amdgpu.disturbance import Disturbance
from emulator.asm2464pd.chip import Chip
from emulator.asm2464pd.flash_chip import FlashChip
from emulator.core.clock import seconds
from emulator.faults import FORMS, Fault
from emulator.machine import Machine
from emulator.supply import LEAST_VOLTS, NOMINAL_VOLTS, Supply
from emulator.usb.host import Host
from emulator.usb.wire import Outcome, Spoilt
from sdk.errors import InternalError, UsageError

log = logging.getLogger(__name__)

HEAT = 100
"""Degrees Celsius of the fault `heat` if it does not say: beyond every limit."""
SPOILT = {
    "bulk-error": Outcome.ERROR,
    "bulk-stall": Outcome.STALL,
    "bulk-timeout": Outcome.CANCELLED,
    "bit-flip": Outcome.DONE,
}
LUCK = 1
"""Seed of what happens by chance."""


class Struck(Protocol):
    """What faults befall: a board."""

    machine: Machine
    chip: Chip
    flash: FlashChip
    usb: Host
    supply: Supply

    @property
    def disturbance(self) -> Disturbance | None:
        """Of the card; None without one."""

    def reset_card(self) -> None:
        """The card resets itself."""

    def pull_cable(self, length: int | None) -> None:
        """The cable is out for so many clocks, or from now on."""

    def lose_power(self, length: int) -> None:
        """Bridge and card are without power for so many clocks."""

    def cut_power(self) -> None:
        """All power fails, and the run ends. Raises PowerCut."""


@dataclass
class Planned:
    """A fault of a board.

    Attributes:
        fault: which.
        fired: clock at which it happened, or from which on it was there; None if it has not.
    """

    fault: Fault
    fired: int | None = None


class Injector:
    """Plans faults of a board, and keeps what became of them.

    Args:
        board: whose parts are all there.

    Attributes:
        planned: in the order in which they were planned.
    """

    def __init__(self, board: Struck) -> None:
        self.planned: list[Planned] = []
        self._board = board
        self._clock = board.machine.clock
        self._faulty = 0

    def plan(self, fault: Fault, origin: int = 0) -> None:
        """Plan a fault, in the machine's thread of execution.

        Args:
            fault: which; its number counts from now on.
            origin: clock from which its times count.

        Raises:
            UsageError: it takes a GPU, and there is none.
        """
        check(fault, gpu=self._board.disturbance is not None)
        planned = Planned(fault)
        if fault.kind in SPOILT:
            spoilt = Spoilt(SPOILT[fault.kind], functools.partial(self._fired, planned))
            if fault.byte is not None:
                spoilt.byte, spoilt.bit = fault.byte, fault.bit
            self._board.usb.spoil(fault.number, spoilt)
        elif fault.chance:
            self._board.usb.luck = functools.partial(self._by_chance, planned, random.Random(LUCK))
        elif fault.kind == "kernel-hang" and fault.number:
            self._hang(planned, fault.number)
        else:
            self._schedule(planned, origin)
        self.planned.append(planned)

    def _by_chance(self, planned: Planned, luck: random.Random) -> Spoilt | None:
        """What befalls the next bulk transfer, if anything."""
        if luck.random() >= planned.fault.chance:
            return None
        return Spoilt(Outcome.ERROR, functools.partial(self._fired, planned))

    def _schedule(self, planned: Planned, origin: int) -> None:
        fault = planned.fault
        action = self._action(planned, fault)

        def happen() -> None:
            if fault.kind != "kernel-hang":  # that begins with a dispatch
                self._fired(planned)
            action()

        if "at" in FORMS[fault.kind].pattern:
            self._clock.at(origin + fault.at, happen)
        else:
            happen()

    def _action(self, planned: Planned, fault: Fault) -> Callable[[], None]:
        """What happens."""
        board, length = self._board, fault.length
        chip, clock = board.chip, self._clock
        addresses = range(fault.low, fault.high + 1)
        match fault.kind:
            case "link-drop":
                return lambda: chip.usb.drop_link(length)
            case "unplug":
                return lambda: board.pull_cable(length)
            case "nak-storm":
                return lambda: chip.usb.nak_until(clock.now + (length or 0))
            case "host-stop":
                return lambda: board.usb.pump.stand_still(clock.now + (length or 0))
            case "bridge-reset":
                return chip.restart
            case "supply-sag":
                return lambda: self._sag(fault.volts or 0.0, length or 0)
            case "supply-fault":
                return lambda: self._supply_fault(length)
            case "no-sensor":
                return lambda: setattr(board.supply, "sensor", False)
            case "perst-stuck":
                return lambda: setattr(chip.link, "perst_stuck", True)
            case "pcie-drop":
                return lambda: chip.link.drop(length)
            case "pcie-lanes":
                return lambda: setattr(chip.link, "most_lanes", fault.count)
            case "pcie-rate":
                return lambda: setattr(chip.link, "best_generation", fault.count)
            case "link-width":
                return lambda: chip.link.change_width(fault.count, length)
            case "pcie-dead":
                return lambda: chip.tlp.dead(addresses)
            case "pcie-late" | "pcie-stale":
                return lambda: chip.tlp.late(addresses, length or 0, stale=fault.kind == "pcie-stale")
            case "card-reset":
                return board.reset_card
            case "kernel-hang":
                return lambda: self._hang(planned, 1)
            case "heat":
                return lambda: self._heat(fault.amount or HEAT, length or 0)
            case "flash-flip":
                return lambda: board.flash.flip(fault.low, fault.bit)
            case "power-cut":
                return board.cut_power
        raise UsageError(f"there is no fault {fault.kind}", hint=f"faults: {', '.join(FORMS)}")

    @property
    def _disturbance(self) -> Disturbance:
        found = self._board.disturbance
        if found is None:
            raise InternalError("a fault of a card that is not there")
        return found

    def _hang(self, planned: Planned, number: int) -> None:
        disturbance = self._disturbance
        disturbance.hangs[disturbance.dispatches + number] = functools.partial(self._fired, planned)

    def _heat(self, amount: int, length: int) -> None:
        self._warm(amount)
        self._clock.after(length, lambda: self._warm(-amount))

    def _warm(self, degrees: int) -> None:
        self._disturbance.heat += degrees

    def _sag(self, volts: float, length: int) -> None:
        """The source gives less; where what is left does not suffice, bridge and card lose power."""
        supply = self._board.supply
        supply.open_volts = min(volts, NOMINAL_VOLTS)
        if supply.volts < LEAST_VOLTS:
            self._board.lose_power(length)
        self._clock.after(length, lambda: setattr(supply, "open_volts", NOMINAL_VOLTS))

    def _supply_fault(self, length: int | None) -> None:
        self._faulty += 1
        self._board.supply.fault = True
        if length is not None:
            self._clock.after(length, self._supply_good)

    def _supply_good(self) -> None:
        self._faulty -= 1
        self._board.supply.fault = self._faulty > 0

    def _fired(self, planned: Planned) -> None:
        if planned.fired is not None:  # and reported
            return
        planned.fired = self._clock.now
        log.warning("injected fault %s, %.6f s after power-on", planned.fault.text, seconds(planned.fired))


def check(fault: Fault, *, gpu: bool) -> None:
    """Refuse a fault of a card that is not there. Raises UsageError."""
    if FORMS[fault.kind].card and not gpu:
        raise UsageError(
            f"{fault.kind} is a fault of the GPU, and there is none",
            hint="add one: gpu=gfx1100 to the device string, --gpu gfx1100 to `towline emulate`",
        )


def torments(*, gpu: bool) -> Sequence[str]:
    """One fault of each kind that passes, as `Injector.plan` takes it from now on."""
    return [form.torment for form in FORMS.values() if form.torment and (gpu or not form.card)]
