"""A card as its driver addresses it: registers by name, VRAM through BAR 0, doorbells through BAR 2.

Everything that is done to a card goes through a `Batch`: operations are collected and go out in as few
command lists as they fit into, so that bring-up takes tens of transfers. What they read is known once the
batch has run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from usbgpu.amd.facts.chips import Chip
from usbgpu.bridge.seam import Bridge

VRAM_BAR, DOORBELL_BAR, REGISTER_BAR = 0, 2, 5


@dataclass(frozen=True)
class Card:
    """A card whose discovery table has been read.

    Attributes:
        bridge: where it is plugged in.
        chip: which it is.
        bars: PCIe addresses of BARs 0 (VRAM), 2 (doorbells) and 5 (registers).
        window: bytes of VRAM that BAR 0 reaches.
        vram: bytes of VRAM, by the memory size register.
        hdp_flush: byte offset in BAR 5 at which a write of 0 flushes the host data path, as
            `BIF_BX0_REMAP_HDP_MEM_FLUSH_CNTL` says (hardware: published drivers).
        bases: of the segments of each block's registers, in dwords, by the names of `Chip.blocks`.
        compute_units: by the discovery table; 0 if it has no entry.
    """

    bridge: Bridge
    chip: Chip
    bars: Mapping[int, int]
    window: int
    vram: int
    hdp_flush: int
    bases: Mapping[str, tuple[int, ...]]
    compute_units: int = 0

    def index(self, block: str, name: str) -> int:
        """Where a register is, in dwords. Raises FactError if it is unknown."""
        register = self.chip.register(block, name)
        return self.bases[block][register.segment] + register.offset
