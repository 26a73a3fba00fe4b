"""Which card it is, and how it is connected, for display."""

from __future__ import annotations

from dataclasses import dataclass

from sdk.facts.registers import Evidence
from usbgpu import pcie
from usbgpu.amd.card import Card
from usbgpu.pcie import Function


@dataclass(frozen=True, slots=True)
class Information:
    """A card that is up.

    Attributes:
        chip: as LLVM calls it, such as gfx1100.
        untested: no published boot of it was compared with ours: facts are inferred from its siblings.
        compute_units: by its discovery table; 0 if that has none.
        vram: bytes of VRAM.
        vram_reached: bytes of it that PCIe BAR 0 reaches.
        links: the narrowest PCIe link between the bridge and the card, as trained, and what they could do.
        bdf: bus, device and function of the card on the bridge's PCIe bus.
        bars: bytes of each PCIe BAR, by index.
    """

    chip: str
    untested: bool
    compute_units: int
    vram: int
    vram_reached: int
    links: pcie.Links
    bdf: str
    bars: dict[int, int]

    @property
    def link(self) -> pcie.Link:
        """The narrowest, as trained."""
        return self.links.narrowest


def describe(card: Card, function: Function) -> Information:
    """The facts of a card that is up. Reads the PCIe ports' link registers.

    Raises:
        DeviceFailed, DeviceMissing: the bridge's errors.
    """
    return Information(
        chip=card.chip.name,
        untested=card.chip.evidence is not Evidence.TRACE,
        compute_units=card.compute_units,
        vram=card.vram,
        vram_reached=card.window,
        links=pcie.links(card.bridge, function),
        bdf=function.bdf,
        bars={index: bar.size for index, bar in sorted(function.bars.items())},
    )
