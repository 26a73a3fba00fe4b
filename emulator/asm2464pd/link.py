"""Power, reset and link of the PCIe port.

The link trains once the slot has its supplies, the port is switched on and PERST# is released; it reaches L0
a while later. Removing any of these brings it down and resets what is behind it. TLPs pass when the link is
up and routing is enabled. The order of all this is the open firmware's; the training time is a guess, and so
is what the LTSSM shows on the way. Whether the link trains while PERST# is asserted is disputed; a device in
reset answers nothing in either case.

Its width is that of the card, as far as firmware leaves the bridge's lanes in: all four with
PCIE_TUNNEL_LINK_STATUS at its reset value, two with 0x0C or with the lane commits, one with 0x0E, as the
maker's firmware has it (hardware: public reports). Its rate is the card's, but at most that of Gen3: Gen4 is
tried, and falls back (hardware, likewise); and at most what software wants of the bridge's port. What a bus
master's data gets of it follows.
"""

from __future__ import annotations

from emulator.asm2464pd import timing, waits
from emulator.asm2464pd.tlp import TlpEngine
from emulator.core.bus import Bus
from emulator.core.clock import Event
from emulator.model import DEFAULT, Model
from emulator.pcie.fabric import Fabric
from emulator.pcie.function import Reset
from emulator.pcie.ports import USUAL, Ends, Slot
from firmware.asm2464pd import disputes
from firmware.asm2464pd.describe import ByteRegister
from firmware.asm2464pd.registers import link as facts

NEEDED = (
    (facts.PCIE_SLOT_3V3, "ENABLE", True),
    (facts.PCIE_SLOT_12V, "ENABLE", True),
    (facts.PCIE_PORT_POWER, "ENABLE", True),
    (facts.PCIE_PERST, "ASSERT", False),
)
"""What the link needs in order to train: fields with all bits set, or clear; PERST# is the last."""
_STATES = {name: value for value, name in facts.LTSSM.items()}
WIDTHS = (4, 2, 1)
"""That the bridge can have."""
HOLDS = 3
"""The best generation that the bridge holds."""
_OFF = facts.PCIE_TUNNEL_LINK_STATUS.field("LANES_OFF")


class PcieLink:
    """The port's power sequence and link state.

    Args:
        bus: of the chip.
        fabric: what is behind the link; reset with it.
        engine: gets the state of link and routing.
        ends: the ports of the link, whose link status follows it.
        slot: what the card can do.
        model: whether the link trains while PERST# is asserted.

    Attributes:
        most_lanes: fault: with more lanes than that, training stays in Configuration.
        best_generation: fault: at a higher rate than this generation's the link does not hold.
    """

    def __init__(
        self,
        bus: Bus,
        fabric: Fabric,
        engine: TlpEngine,
        ends: Ends,
        slot: Slot = USUAL,
        model: Model = DEFAULT,
    ) -> None:
        self._bus = bus
        self._fabric = fabric
        self._engine = engine
        self._ends = ends
        self._slot = slot
        self._lanes = self._generation = 0
        self.most_lanes = max(WIDTHS)
        self.best_generation = HOLDS
        ends[0].on_retrain = self._retrain
        self._in_reset = model.follows(disputes.PERST_L0, "asserted")
        self._perst_stuck = False
        self._held = True
        self._released = False
        self._training: Event | None = None
        self._trainings = 0
        self._unstable: Event | None = None
        self._broken = False
        self.up = False
        """Whether the link is in L0."""
        for register in (
            facts.PCIE_TUNNEL_CONFIG,
            facts.PCIE_TUNNEL_CONTROL,
            facts.PCIE_TUNNEL_LINK_STATE,
            facts.PCIE_TUNNEL_LINK_STATUS,
            facts.PCIE_LTSSM,
            facts.PCIE_LINK_STATUS,
            facts.PCIE_LINK_RATE,
            *facts.PCIE_LANE_COMMITS,
        ):
            bus.map(register, "link")
        for register in (
            facts.PCIE_PERST,
            facts.PCIE_SLOT_3V3,
            facts.PCIE_SLOT_12V,
            facts.PCIE_PORT_POWER,
            facts.PCIE_ROUTING,
        ):
            bus.map(register, "link", write=self._written)

    @property
    def perst_stuck(self) -> bool:
        """Fault: the slot's PERST# stays asserted, even if the register releases it."""
        return self._perst_stuck

    @perst_stuck.setter
    def perst_stuck(self, value: bool) -> None:
        self._perst_stuck = value
        self._update()

    def drop(self, retrain_after: int | None) -> None:
        """Fault: the link goes down, and trains again after that many clocks; None: after PERST# or a power
        cycle. Until then it does not train either.
        """
        self._broken = retrain_after is not None
        if retrain_after is not None:
            self._bus.clock.after(retrain_after, self._mend)
        self._down(Reset.HOT)

    def change_width(self, lanes: int, length: int | None) -> None:
        """Fault: some lanes fail, and return after that many clocks; None: when the link trains again.

        The link stays up: it goes on with the others after a moment in Recovery, which is not modelled.
        """
        if not self.up:
            return
        self._set_rate(self._generation, min(lanes, self._lanes))
        if length is not None:
            training = self._trainings
            self._bus.clock.after(length, lambda: self._lanes_return(training))

    def _lanes_return(self, training: int) -> None:
        if self.up and self._trainings == training:
            self._set_rate(self._generation, self._width)

    def lose_power(self) -> None:
        """Chip and card lose their supply: the registers of the slot are as after power-on."""
        for register, _, _ in NEEDED:
            self._bus.set(register, register.reset)
        self._update()
        self._down(Reset.PERST)

    def waits_for(self) -> str:
        """Why no TLP passes, as a sentence; empty if they do, or will without the firmware."""
        if self.up:
            wanted = waits.missing(self._bus, ((facts.PCIE_ROUTING, "ENABLE", True), NEEDED[-1]))
            if not wanted:
                return ""
            return f"PCIe is in L0, but TLPs wait for {' and '.join(wanted)}, which the firmware writes"
        wanted = waits.missing(self._bus, NEEDED[: -1 if self._in_reset else None])
        if wanted:
            what = f"it waits for {' and '.join(wanted)}, which the firmware writes"
        elif not self._width:
            what = (
                f"{facts.PCIE_TUNNEL_LINK_STATUS.name} and the lane commits, which the firmware writes, "
                "leave no lane that the card has"
            )
        elif self._stays:
            return (
                f"PCIe stays in Configuration: an injected fault lets it train with {self.most_lanes} lanes "
                f"at most, and the firmware has {self._width} in"
            )
        elif self._perst_stuck:
            what = "an injected fault holds PERST#"
        elif self._broken:
            what = "an injected fault keeps the link down"
        elif self._training is None:
            what = "a fault has taken the link down; it trains again after PERST# or a power cycle"
        else:
            return ""
        return f"PCIe stays in Detect: {what}"

    @property
    def powered(self) -> bool:
        """Whether the slot has its 12 V supply."""
        return self._all(facts.PCIE_SLOT_12V, "ENABLE")

    @property
    def begun(self) -> bool:
        """Whether the firmware has begun to bring the port up."""
        return any(self._bus.value(register) != register.reset for register, _, _ in NEEDED)

    # -- inside -----------------------------------------------------------------------------------------

    def _written(self, value: int) -> None:
        self._update()

    def _update(self) -> None:
        """Follow the registers."""
        on = self._all(facts.PCIE_PORT_POWER, "ENABLE")
        released, self._held = not self._held, self._all(facts.PCIE_PERST, "ASSERT") or self._perst_stuck
        ready = (
            self._all(facts.PCIE_SLOT_3V3, "ENABLE")
            and self._all(facts.PCIE_SLOT_12V, "ENABLE")
            and (self._in_reset or not self._held)
        )
        if self._in_reset and released and self._held:
            self._fabric.reset(Reset.PERST)
        before, self._released = self._released, ready and on
        if self._released and not before:
            self._train()
        elif before and not self._released:
            self._down(Reset.HOT if ready else Reset.PERST)
        self._connect()

    @property
    def _width(self) -> int:
        """How many lanes are in at both ends, from the first on."""
        bus = self._bus
        off = _OFF.get(bus.value(facts.PCIE_TUNNEL_LINK_STATUS))
        for lane, commit in enumerate(facts.PCIE_LANE_COMMITS):
            off |= bool(bus.value(commit) & commit["OUT"]) << lane
        return next((w for w in WIDTHS if w <= self._slot.lanes and not off & (1 << w) - 1), 0)

    @property
    def _stays(self) -> bool:
        """Whether training does not come to its end."""
        return self._width > self.most_lanes

    def _train(self) -> None:
        if self._broken or not self._width:
            return
        self._show(_STATES["POLLING"])
        self._bus.clock.cancel(self._training)
        self._training = self._bus.clock.after(timing.PCIE_TRAINING.clocks, self._trained)

    def _retrain(self) -> None:
        """Software has the link of the bridge's port train again: it stays up, at the rate wanted."""
        if self.up:
            self._set_rate(self._wanted, self._lanes)

    @property
    def _wanted(self) -> int:
        """The generation that both ends can have and software wants."""
        return max(1, min(HOLDS, self._slot.generation, self._ends[0].target_generation))

    def _set_rate(self, generation: int, lanes: int) -> None:
        self._generation, self._lanes = generation, lanes
        for port in self._ends:
            port.trained(generation, lanes)
        self._fabric.bytes_per_second = timing.pcie_bytes_per_second(generation, lanes)
        self._show(_STATES["L0"])
        if generation > self.best_generation:
            self._unstable = self._bus.clock.after(timing.PCIE_UNSTABLE.clocks, self._lose_hold)
        else:
            self._bus.clock.cancel(self._unstable)

    def _lose_hold(self) -> None:
        """The link cannot hold its rate: it trains again from the start."""
        self._down(Reset.HOT)
        self._train()

    def _mend(self) -> None:
        self._broken = False
        if self._released and not self.up:
            self._train()

    def _trained(self) -> None:
        self._training = None
        if self._stays:
            self._show(_STATES["CONFIGURATION"])
            return
        self.up = True
        self._trainings += 1
        self._set_rate(self._wanted, self._width)
        self._connect()

    def _down(self, kind: Reset) -> None:
        self._bus.clock.cancel(self._training)
        self._bus.clock.cancel(self._unstable)
        self._training = None
        self.up = False
        self._show(_STATES["DETECT_QUIET"])
        self._connect()
        self._fabric.reset(kind)

    def _connect(self) -> None:
        reachable = self.up and not self._held
        self._engine.connect(link=reachable, routing=self._all(facts.PCIE_ROUTING, "ENABLE"))

    def _show(self, ltssm: int) -> None:
        self._bus.set(facts.PCIE_LTSSM, ltssm)
        self._bus.set(facts.PCIE_LINK_STATUS, facts.PCIE_LINK_STATUS["UP"] if self.up else 0)
        rate = self._lanes << facts.PCIE_LINK_RATE.field("LANES").bit | self._generation
        self._bus.set(facts.PCIE_LINK_RATE, rate if self.up else 0)

    def _all(self, register: ByteRegister, field: str) -> bool:
        """Whether every bit of a field is set."""
        return self._bus.value(register) & register[field] == register[field]
