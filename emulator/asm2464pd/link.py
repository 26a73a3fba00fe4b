"""Power, reset and link of the PCIe port.

The link trains once the slot has its supplies, the port is switched on and PERST# is released; it reaches L0
a while later. Removing any of these brings it down and resets what is behind it. TLPs pass when the link is
up and routing is enabled. The order of all this is the open firmware's; the training time is a guess, and so
is what the LTSSM shows on the way. Whether the link trains while PERST# is asserted is disputed; a device in
reset answers nothing in either case.
"""

from __future__ import annotations

from emulator.asm2464pd import timing, waits
from emulator.asm2464pd.tlp import TlpEngine
from emulator.core.bus import Bus
from emulator.core.clock import Event
from emulator.model import DEFAULT, Model
from emulator.pcie.fabric import Fabric
from emulator.pcie.function import Reset
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


class PcieLink:
    """The port's power sequence and link state.

    Args:
        bus: of the chip.
        fabric: what is behind the link; reset with it.
        engine: gets the state of link and routing.
        generation: PCIe generation that the link trains to.
        lanes: its width.
        model: whether the link trains while PERST# is asserted.
    """

    def __init__(
        self,
        bus: Bus,
        fabric: Fabric,
        engine: TlpEngine,
        *,
        generation: int = 4,
        lanes: int = 4,
        model: Model = DEFAULT,
    ) -> None:
        self._bus = bus
        self._fabric = fabric
        self._engine = engine
        self._rate = lanes << facts.PCIE_LINK_RATE.field("LANES").bit | generation
        self._in_reset = model.follows(disputes.PERST_L0, "asserted")
        self._perst_stuck = False
        self._held = True
        self._released = False
        self._training: Event | None = None
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
    def supplied(self) -> bool:
        """Whether the slot's 12 V are switched on."""
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

    def _train(self) -> None:
        if not self._broken:
            self._show(_STATES["POLLING"])
            self._bus.clock.cancel(self._training)
            self._training = self._bus.clock.after(timing.PCIE_TRAINING.clocks, self._trained)

    def _mend(self) -> None:
        self._broken = False
        if self._released and not self.up:
            self._train()

    def _trained(self) -> None:
        self._training = None
        self.up = True
        self._show(_STATES["L0"])
        self._connect()

    def _down(self, kind: Reset) -> None:
        self._bus.clock.cancel(self._training)
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
        self._bus.set(facts.PCIE_LINK_RATE, self._rate if self.up else 0)

    def _all(self, register: ByteRegister, field: str) -> bool:
        """Whether every bit of a field is set."""
        return self._bus.value(register) & register[field] == register[field]
