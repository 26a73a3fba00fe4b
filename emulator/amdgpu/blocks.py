"""The blocks of a card, made and connected: what lives from one reset to the next."""

from __future__ import annotations

from collections.abc import Callable

from emulator.amdgpu.compute import ComputeEngine
from emulator.amdgpu.context import Context
from emulator.amdgpu.cost import Cost
from emulator.amdgpu.doorbells import Doorbells
from emulator.amdgpu.hdp import Hdp
from emulator.amdgpu.hub import Hub
from emulator.amdgpu.hub_memory import HubMemory
from emulator.amdgpu.ih import InterruptHandler
from emulator.amdgpu.nbio import Nbio
from emulator.amdgpu.power import Power
from emulator.amdgpu.psp import Psp
from emulator.amdgpu.rlc import Rlc
from emulator.amdgpu.scoreboard import Record
from emulator.amdgpu.sdma import SdmaEngine
from emulator.amdgpu.seams import Shaders
from emulator.amdgpu.smu import Smu
from usbgpu.amd.facts.doorbells import SIZE


class Blocks:
    """All blocks, as after power-on.

    Args:
        context: of the card.
        shaders: what runs waves.
        dispatched: called with a record of each dispatch at its end.
        mode1_reset: called when the driver requests one from a processor.
        power: of the board.
        hdp_drains: as for `Hdp`.
    """

    def __init__(
        self,
        context: Context,
        shaders: Shaders,
        dispatched: Callable[[Record], None],
        mode1_reset: Callable[[], None],
        power: Power,
        *,
        hdp_drains: bool = True,
    ) -> None:
        self.hdp = Hdp(context, drains=hdp_drains)
        self.nbio = Nbio(context, self.hdp)
        self.doorbells = Doorbells(context, self.nbio.doorbells_enabled, self.nbio.route)
        self.gc_hub = Hub(context, "GC")
        self.mm_hub = Hub(context, "MMHUB")
        self.ih = InterruptHandler(context, HubMemory(self.mm_hub, 0, "OSSSYS"))
        self.gc_hub.faults.interrupts = self.ih
        self.mm_hub.faults.interrupts = self.ih
        self.doorbells.subscribe(0, SIZE - 8, "ih", self.ih.rung)
        self.rlc = Rlc(context)
        self.psp = Psp(context, HubMemory(self.mm_hub, 0, "MP0"), self.rlc.autoload, mode1_reset)
        self.smu = Smu(
            context,
            HubMemory(self.mm_hub, 0, "MP1"),
            power,
            self.ih,
            lambda: self.psp.loaded("SMU"),
            mode1_reset,
        )
        self.cost = Cost(context.chip, self.smu.clock_mhz, context.link.transfer_clocks)
        self.compute = ComputeEngine(
            context,
            lambda vmid, client: HubMemory(self.gc_hub, vmid, client),
            self.ih,
            self.doorbells,
            shaders,
            self.cost,
            power,
            self.rlc.require,
            dispatched,
        )
        self.sdma = SdmaEngine(
            context,
            lambda vmid: HubMemory(self.gc_hub, vmid, "SDMA0"),
            self.ih,
            self.doorbells,
            self.rlc.require,
            self.cost,
            power,
        )
        part = context.chip.register("GC", "GRBM_SOFT_RESET").field("SOFT_RESET_SDMA0")

        def soft_reset(value: int) -> None:
            if part.get(value):
                self.sdma.soft_reset()

        self.compute.grbm.resets.append(soft_reset)
