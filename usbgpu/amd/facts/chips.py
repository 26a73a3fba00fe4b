"""The cards that are known: versions of their IP blocks, and where the blocks' registers are.

A driver learns the bases from the discovery table of the card; the model makes that table from these. Bases
are those that the kernel's headers give for RDNA2 and 3 (`yellow_carp_offset.h`,
`sienna_cichlid_ip_offset.h`). The register addresses in the published boot sequences of gfx1100 and gfx1201
agree with them where they show them (GC segment 0; NBIO segments 2, 3 and 5); for the rest of these two chips
they are inferred.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from sdk.facts.registers import FactError
from usbgpu.amd.facts.describe import Block, DwordRegister
from usbgpu.amd.facts.registers.gc_11_0_0 import GC_11_0_0
from usbgpu.amd.facts.registers.gc_12_0_0 import GC_12_0_0
from usbgpu.amd.facts.registers.hdp_6_0_0 import HDP_6_0_0
from usbgpu.amd.facts.registers.hdp_7_0_0 import HDP_7_0_0
from usbgpu.amd.facts.registers.mmhub_3_0_0 import MMHUB_3_0_0
from usbgpu.amd.facts.registers.mmhub_4_1_0 import MMHUB_4_1_0
from usbgpu.amd.facts.registers.mp_11_0 import MP_11_0
from usbgpu.amd.facts.registers.mp_13_0_0 import MP_13_0_0
from usbgpu.amd.facts.registers.mp_14_0_2 import MP_14_0_2
from usbgpu.amd.facts.registers.nbif_6_3_1 import NBIF_6_3_1
from usbgpu.amd.facts.registers.nbio_4_3_0 import NBIO_4_3_0
from usbgpu.amd.facts.registers.osssys_6_0_0 import OSSSYS_6_0_0
from usbgpu.amd.facts.registers.osssys_7_0_0 import OSSSYS_7_0_0

VENDOR = 0x1002
"""PCI vendor id of AMD."""

BASES: Mapping[str, tuple[int, ...]] = {
    "GC": (0x1260, 0xA000, 0x0240_2C00),
    "MMHUB": (0x1_3200, 0x1_A000, 0x0240_8800),
    "NBIO": (0x0, 0x14, 0xD20, 0x1_0400, 0x0241_B000, 0x0404_0000),
    "MP": (0x1_6000, 0x0243_FC00, 0x00DC_0000, 0x00E0_0000, 0x00E4_0000),
    "SMU": (0x1_6000, 0x0243_FC00, 0x00DC_0000, 0x00E0_0000, 0x00E4_0000),
    "HDP": (0xF20, 0x0240_A400),
    "OSSSYS": (0x10A0, 0x0240_A000),
}
"""Bases of a block's segments, in dwords."""

HARDWARE_IDS: Mapping[str, int] = {
    "MP": 255,
    "SMU": 1,
    "GC": 11,
    "MMHUB": 34,
    "OSSSYS": 40,
    "HDP": 41,
    "SDMA0": 42,
    "NBIO": 108,
}
"""`hw_id` of a block in the discovery table (`soc15_hw_ip.h`). SDMA has no registers of its own: GC's."""


@dataclass(frozen=True)
class Chip:
    """A card's GPU.

    Attributes:
        name: of its instruction set, as LLVM calls it.
        device: PCI device id.
        versions: of the IP blocks, by the names of HARDWARE_IDS.
        blocks: their registers, by the names of BASES.
        shader_engines: of the whole card.
        arrays: shader arrays of an engine.
        workgroup_processors: of an array; each has two compute units.
        vram: bytes, by the memory size register: less than what is soldered on (grade: hardware, published
            kernel logs of both cards).
    """

    name: str
    device: int
    versions: Mapping[str, tuple[int, int, int]]
    blocks: Mapping[str, Block]
    shader_engines: int
    arrays: int
    workgroup_processors: int
    vram: int

    @property
    def generation(self) -> int:
        """11 or 12: which selects the formats."""
        return self.versions["GC"][0]

    @property
    def compute_units(self) -> int:
        return 2 * self.shader_engines * self.arrays * self.workgroup_processors

    def register(self, block: str, name: str) -> DwordRegister:
        """A register. Raises FactError if there is none."""
        if block not in self.blocks:
            raise FactError(f"{self.name} has no block {block}")
        return self.blocks[block][name]

    def address(self, block: str, name: str) -> int:
        """Where a register is, as an index of dwords. Raises FactError."""
        register = self.register(block, name)
        return BASES[block][register.segment] + register.offset

    @cached_property
    def by_address(self) -> Mapping[int, tuple[str, DwordRegister]]:
        """Block and register by index of dwords."""
        return {
            BASES[block][register.segment] + register.offset: (block, register)
            for block, registers in self.blocks.items()
            for register in registers.registers.values()
        }


GFX1100 = Chip(
    "gfx1100",
    device=0x744C,
    versions={
        "GC": (11, 0, 0),
        "SDMA0": (6, 0, 0),
        "MMHUB": (3, 0, 0),
        "NBIO": (4, 3, 0),
        "MP": (13, 0, 0),
        "SMU": (13, 0, 0),
        "HDP": (6, 0, 0),
        "OSSSYS": (6, 0, 0),
    },
    blocks={
        "GC": GC_11_0_0,
        "MMHUB": MMHUB_3_0_0,
        "NBIO": NBIO_4_3_0,
        "MP": MP_13_0_0,
        "SMU": MP_11_0,
        "HDP": HDP_6_0_0,
        "OSSSYS": OSSSYS_6_0_0,
    },
    shader_engines=6,
    arrays=2,
    workgroup_processors=4,
    vram=24560 << 20,
)
"""RX 7900 XTX: Navi 31."""
GFX1201 = Chip(
    "gfx1201",
    device=0x7550,
    versions={
        "GC": (12, 0, 1),
        "SDMA0": (7, 0, 1),
        "MMHUB": (4, 1, 0),
        "NBIO": (6, 3, 1),
        "MP": (14, 0, 3),
        "SMU": (14, 0, 3),
        "HDP": (7, 0, 0),
        "OSSSYS": (7, 0, 0),
    },
    blocks={
        "GC": GC_12_0_0,
        "MMHUB": MMHUB_4_1_0,
        "NBIO": NBIF_6_3_1,
        "MP": MP_14_0_2,
        "SMU": MP_11_0,
        "HDP": HDP_7_0_0,
        "OSSSYS": OSSSYS_7_0_0,
    },
    shader_engines=4,
    arrays=2,
    workgroup_processors=4,
    vram=16304 << 20,
)
"""RX 9070 XT: Navi 48."""
CHIPS: Mapping[str, Chip] = {chip.name: chip for chip in (GFX1100, GFX1201)}
"""By name."""

GFX1102 = replace(
    GFX1100,
    name="gfx1102",
    device=0x7480,
    versions={**GFX1100.versions, "GC": (11, 0, 2), "SDMA0": (6, 0, 2), "MP": (13, 0, 7), "SMU": (13, 0, 7)},
    shader_engines=2,
    vram=8176 << 20,
)
"""RX 7600: Navi 33. Untested: registers are taken to be those of Navi 31 (inferred: the kernel uses one set
of headers for both), VRAM to be less by the same 16 MiB (guess)."""
GFX1200 = replace(
    GFX1201,
    name="gfx1200",
    device=0x7590,
    versions={**GFX1201.versions, "GC": (12, 0, 0), "SDMA0": (7, 0, 0), "MP": (14, 0, 2), "SMU": (14, 0, 2)},
    shader_engines=2,
    vram=16304 << 20,
)
"""RX 9060 XT: Navi 44. Untested, as GFX1102; some have half of that VRAM."""
UNTESTED: Mapping[str, Chip] = {chip.name: chip for chip in (GFX1102, GFX1200)}
"""Chips that a driver may try, by name: nothing here was compared with their silicon or a model of it."""
