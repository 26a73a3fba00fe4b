"""The cards that are known: versions of their IP blocks, their registers, their sizes and speeds.

A driver learns the bases of registers from the discovery table of the card; the model makes that table from
these. Bases are those that the kernel's headers give for RDNA2 and 3 (`yellow_carp_offset.h`,
`sienna_cichlid_ip_offset.h`). The register addresses in the published boot sequences of gfx1100 and gfx1201
agree with them where they show them (GC segment 0; NBIO segments 2, 3 and 5); all else is inferred.

A new chip is an entry of CHIPS here and one of `firmware.FILES`: docs/gpu.md, "A fifth chip".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from sdk.facts.registers import Evidence, FactError
from usbgpu.amd.facts.describe import Block, DwordRegister
from usbgpu.amd.facts.families import FAMILIES, Family
from usbgpu.amd.facts.registers.gc_11_0_0 import GC_11_0_0
from usbgpu.amd.facts.registers.gc_12_0_0 import GC_12_0_0
from usbgpu.amd.facts.registers.hdp_6_0_0 import HDP_6_0_0
from usbgpu.amd.facts.registers.hdp_7_0_0 import HDP_7_0_0
from usbgpu.amd.facts.registers.mmhub_3_0_0 import MMHUB_3_0_0
from usbgpu.amd.facts.registers.mmhub_3_0_2 import MMHUB_3_0_2
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


Version = tuple[int, int, int]
"""Of an IP block: major, minor, revision."""

REGISTERS: Mapping[str, Mapping[Version, Block]] = {
    "GC": {
        (11, 0, 0): GC_11_0_0,
        (11, 0, 2): GC_11_0_0,
        (12, 0, 0): GC_12_0_0,
        (12, 0, 1): GC_12_0_0,
    },
    "MMHUB": {(3, 0, 0): MMHUB_3_0_0, (3, 0, 2): MMHUB_3_0_2, (4, 1, 0): MMHUB_4_1_0},
    "NBIO": {(4, 3, 0): NBIO_4_3_0, (4, 3, 1): NBIO_4_3_0, (6, 3, 1): NBIF_6_3_1},
    "MP": {
        (13, 0, 0): MP_13_0_0,
        (13, 0, 7): MP_13_0_0,
        (14, 0, 2): MP_14_0_2,
        (14, 0, 3): MP_14_0_2,
    },
    "SMU": dict.fromkeys(((13, 0, 0), (13, 0, 7), (14, 0, 2), (14, 0, 3)), MP_11_0),
    "HDP": {(6, 0, 0): HDP_6_0_0, (6, 0, 1): HDP_6_0_0, (7, 0, 0): HDP_7_0_0},
    "OSSSYS": {
        (6, 0, 0): OSSSYS_6_0_0,
        (6, 0, 1): OSSSYS_6_0_0,
        (6, 0, 2): OSSSYS_6_0_0,
        (7, 0, 0): OSSSYS_7_0_0,
    },
}
"""The registers of each version of a block: those of the headers that Linux' functions for that version use
(`amdgpu_discovery.c`, `gmc_v11_0.c`; grade: hardware)."""
IDENTIFYING = ("GC", "SDMA0", "MP", "SMU")
"""Blocks that make a chip: each version takes firmware of its own."""
LEAST_CAP = 0.25
"""Share of the board's power below which no power limit is set (grade: guess)."""


@dataclass(frozen=True)
class Chip:
    """A card's GPU.

    Attributes:
        name: of its instruction set, as LLVM calls it.
        product: the card whose sizes and speeds these are.
        evidence: for the versions of its blocks together: trace if a published boot of it was compared.
        device: PCI device id.
        versions: of the IP blocks, by the names of HARDWARE_IDS.
        shader_engines: of the whole card.
        arrays: shader arrays of an engine.
        workgroup_processors: of an array; each has two compute units.
        vgprs: vector registers of a SIMD for each of 32 lanes; a wave gets multiples of 1/64 of them (LLVM's
            target; grade: inferred).
        l2: bytes of the second-level cache (as published).
        vram: bytes, by the memory size register: less than what is soldered on (grade: hardware, published
            kernel logs).
        vram_bandwidth: bytes a second at the highest UCLK (as published: bus width and rate of the memory).
        clocks: levels of the clocks that the power management scales, in MHz, rising (grade: the highest
            GFXCLK and UCLK inferred from published ones, the others guess).
        idle_power: watts when nothing runs and clocks are low (grade: guess, from reviews' measurements).
        ready_power: watts when nothing runs and clocks are at their highest (grade: guess).
        board_power: watts at most (as published), and the power limit that the firmware begins with.
    """

    name: str
    product: str
    evidence: Evidence
    device: int
    versions: Mapping[str, Version]
    shader_engines: int
    arrays: int
    workgroup_processors: int
    vgprs: int
    l2: int
    vram: int
    vram_bandwidth: float
    clocks: Mapping[str, tuple[int, ...]]
    idle_power: float
    ready_power: float
    board_power: int

    @property
    def generation(self) -> int:
        """11 or 12: which selects the formats."""
        return self.versions["GC"][0]

    @property
    def family(self) -> Family:
        """What it has in common with the others of its generation."""
        return FAMILIES[self.generation]

    @property
    def power_caps(self) -> tuple[int, int]:
        """Lowest and highest power limit that a driver may set, in watts.

        The highest is the one that the card begins with: more is overclocking. What its firmware takes at
        least is not published (grade: guess, LEAST_CAP). Linux stops at the minimum of the overdrive table,
        about nine tenths; before 6.7 it did not, and users ran an RX 7900 XTX at 200 W (grade: hardware).
        """
        return math.ceil(LEAST_CAP * self.board_power), self.board_power

    @property
    def compute_units(self) -> int:
        return 2 * self.shader_engines * self.arrays * self.workgroup_processors

    @cached_property
    def blocks(self) -> Mapping[str, Block]:
        """The registers of its blocks, by the names of BASES. Raises FactError for an unknown version."""
        found = {}
        for name, versions in REGISTERS.items():
            if self.versions[name] not in versions:
                raise FactError(f"{self.name}: the registers of {name} {self.versions[name]} are unknown")
            found[name] = versions[self.versions[name]]
        return found

    def takes(self, block: str, version: Version | None) -> bool:
        """Whether a card of this chip may have a block of that version: the chip's own, or one without
        firmware of its own, of the same major version, whose registers are known.
        """
        own = self.versions[block]
        if version is None or block in IDENTIFYING:
            return version == own
        return version[0] == own[0] and version in REGISTERS[block]

    def with_versions(self, versions: Mapping[str, Version]) -> Chip:
        """The chip as a card has it: with the versions of its discovery table."""
        return self if versions == self.versions else replace(self, versions=versions)

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
    product="Radeon RX 7900 XTX (Navi 31)",
    evidence=Evidence.TRACE,
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
    shader_engines=6,
    arrays=2,
    workgroup_processors=4,
    vgprs=1536,
    l2=6 << 20,
    vram=24560 << 20,
    vram_bandwidth=960e9,
    clocks={
        "GFXCLK": (500, 1200, 1900, 2498),
        "SOCCLK": (500, 750, 1000, 1200),
        "UCLK": (96, 456, 772, 1249),
        "FCLK": (600, 1200, 1600, 2000),
    },
    idle_power=14.0,
    ready_power=50.0,
    board_power=355,
)
GFX1102 = Chip(
    "gfx1102",
    product="Radeon RX 7600 (Navi 33)",
    evidence=Evidence.INFERRED,
    device=0x7480,
    versions={
        "GC": (11, 0, 2),
        "SDMA0": (6, 0, 2),
        "MMHUB": (3, 0, 2),
        "NBIO": (4, 3, 0),
        "MP": (13, 0, 7),
        "SMU": (13, 0, 7),
        "HDP": (6, 0, 0),
        "OSSSYS": (6, 0, 0),
    },
    shader_engines=2,
    arrays=2,
    workgroup_processors=4,
    vgprs=1024,
    l2=2 << 20,
    vram=8176 << 20,
    vram_bandwidth=288e9,
    clocks={
        "GFXCLK": (500, 1250, 1950, 2655),
        "SOCCLK": (500, 750, 1000, 1200),
        "UCLK": (96, 456, 772, 1124),
        "FCLK": (600, 1200, 1600, 2000),
    },
    idle_power=6.0,
    ready_power=22.0,
    board_power=165,
)
"""GC, SDMA0, MP and SMU are in the names of its firmware, which Linux loads by the version in the table
(hardware). MMHUB is inferred: Linux has 3.0.0, 3.0.1 for an APU, and 3.0.2, whose registers lie elsewhere;
NBIO, HDP and OSSSYS are those of Navi 31 (inferred), and the driver takes their other versions too. Shader
engines, arrays, compute units and VRAM: kernel logs of users (hardware). The highest UCLK is that of a
published log of other GDDR6 at 18 Gbit/s (inferred)."""
GFX1200 = Chip(
    "gfx1200",
    product="Radeon RX 9060 XT (Navi 44)",
    evidence=Evidence.INFERRED,
    device=0x7590,
    versions={
        "GC": (12, 0, 0),
        "SDMA0": (7, 0, 0),
        "MMHUB": (4, 1, 0),
        "NBIO": (6, 3, 1),
        "MP": (14, 0, 2),
        "SMU": (14, 0, 2),
        "HDP": (7, 0, 0),
        "OSSSYS": (7, 0, 0),
    },
    shader_engines=2,
    arrays=2,
    workgroup_processors=4,
    vgprs=1536,
    l2=4 << 20,
    vram=16304 << 20,
    vram_bandwidth=320e9,
    clocks={
        "GFXCLK": (500, 1450, 2300, 3130),
        "SOCCLK": (500, 670, 830, 1000),
        "UCLK": (97, 457, 773, 1259),
        "FCLK": (307, 1200, 1900, 2600),
    },
    idle_power=6.0,
    ready_power=22.0,
    board_power=160,
)
"""GC, SDMA0 and MMHUB are in a core dump that a user published (hardware); MP and SMU in the names of its
firmware; the others are the only ones of its generation (inferred). VRAM is that of the card with 16 GB;
one with 8 GB has 8,144 MiB (both hardware, kernel logs of users): `vram=8144M`."""
GFX1201 = Chip(
    "gfx1201",
    product="Radeon RX 9070 XT (Navi 48)",
    evidence=Evidence.TRACE,
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
    shader_engines=4,
    arrays=2,
    workgroup_processors=4,
    vgprs=1536,
    l2=8 << 20,
    vram=16304 << 20,
    vram_bandwidth=640e9,
    clocks={
        "GFXCLK": (500, 1400, 2200, 2970),
        "SOCCLK": (500, 670, 830, 1000),
        "UCLK": (97, 457, 773, 1259),
        "FCLK": (307, 1200, 1900, 2600),
    },
    idle_power=12.0,
    ready_power=35.0,
    board_power=304,
)
CHIPS: Mapping[str, Chip] = {chip.name: chip for chip in (GFX1100, GFX1102, GFX1200, GFX1201)}
"""By name. None of these products has units that are fused off: 96, 32, 32 and 64 compute units are all that
their dies have (as published)."""
