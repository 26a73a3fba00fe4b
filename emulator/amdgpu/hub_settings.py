"""What the registers of a VM hub say: power-on values, and their meaning.

Power-on values are those of `gc_11_0_0_default.h` (Linux 6.12, MIT); for the MM hub and gfx12 inferred from
it, where `mmhub_v3_0.c` and `mmhub_v4_1_0.c` do not name them; but for where VRAM is, which the card's own
firmware has written by then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from emulator.amdgpu.context import Context
from emulator.amdgpu.page_tables import PAGE, Root
from usbgpu.amd.facts import pages

FB_BASE = 0x80_0000_0000
"""MC address of VRAM (grade: hardware: published kernel logs of RX 7900 XTX and RX 9070 XT put their 24560
and 16304 MiB there)."""
CONTEXTS = 16
PREFIXES: Mapping[str, tuple[str, str]] = {"GC": ("GCVM_", "GCMC_VM_"), "MMHUB": ("MMVM_", "MMMC_VM_")}
"""Of the hubs' register names, by block."""

PHYSICAL_ONLY, USE_TABLES, TABLES_INSIDE, TABLES_OUTSIDE = range(4)
"""SYSTEM_ACCESS_MODE: which addresses of VMID 0 go through tables, as they lie to the system aperture (grade:
inferred from older headers, which call the values PA_ONLY, USE_SYS_MAP, IN_SYS and NOT_IN_SYS)."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the registers say, decoded.

    Attributes:
        mode: SYSTEM_ACCESS_MODE; PHYSICAL_ONLY while L1 is off.
        aperture: the system aperture: its first MC address and the one after its last.
        vram: MC addresses of VRAM likewise.
        agp: those that go to PCIe.
        agp_base: where to.
        offset: physical address of VRAM.
        aperture_default: offset in VRAM of the page for what is in the aperture but nowhere; None: a fault.
        identity: virtual addresses of VMIDs other than 0 that are physical ones.
        identity_offset: how far off.
        roots: contexts that are enabled, by VMID.
        caching: whether L2 is on.
        tables_at_host: whether the walker asks the host for tables.
    """

    mode: int
    aperture: tuple[int, int]
    vram: tuple[int, int]
    agp: tuple[int, int]
    agp_base: int
    offset: int
    aperture_default: int | None
    identity: tuple[int, int]
    identity_offset: int
    roots: dict[int, Root]
    caching: bool
    tables_at_host: bool


def power_on(context: Context, block: str, name: str) -> int:
    """What a register holds after power-on."""
    vm, mc = PREFIXES[block]
    if "_CONTEXT" in name and name.endswith("_CNTL"):
        return {11: 0x1FF_FE00, 12: 0x1FF_FC00}[context.chip.generation]  # all fault enables
    return {
        f"{mc}FB_LOCATION_BASE": FB_BASE >> 24,
        f"{mc}FB_LOCATION_TOP": FB_BASE + context.vram.size - 1 >> 24,
        f"{mc}MX_L1_TLB_CNTL": 0x501,
        f"{vm}L2_CNTL": 0x8_0602,
        f"{vm}L2_CNTL3": 0x8012_0007 if block == "GC" else 0x8010_0007,
        f"{vm}L2_CNTL4": 0xC1,
        f"{vm}L2_CNTL5": 0x3FE0,
        f"{vm}L2_PROTECTION_FAULT_CNTL": 0x3FFF_FFFC,
        f"{vm}L2_PROTECTION_FAULT_CNTL2": 0xA_0000,
    }.get(name, 0)


def pair(context: Context, block: str, name: str, low: str = "LO32", high: str = "HI32") -> int:
    """Two registers with the halves of a number."""
    value = context.registers.value
    return value(block, f"{name}_{low}") | value(block, f"{name}_{high}") << 32


def load(context: Context, block: str) -> Settings:
    """What the registers say now."""
    registers, (vm, mc) = context.registers, PREFIXES[block]

    def field(name: str, part: str) -> int:
        return registers.get(block, name, part)

    def scaled(name: str, shift: int, more: int = 0) -> int:
        return registers.value(block, mc + name) + more << shift

    def identity(name: str) -> int:
        return pair(context, block, f"{vm}L2_CONTEXT{name}") * PAGE

    tlb, l2, l2_cntl4 = f"{mc}MX_L1_TLB_CNTL", f"{vm}L2_CNTL", f"{vm}L2_CNTL4"
    on = field(tlb, "ENABLE_L1_TLB") and field(tlb, "ENABLE_ADVANCED_DRIVER_MODEL")
    base = scaled("FB_LOCATION_BASE", 24)
    default = pair(context, block, f"{mc}SYSTEM_APERTURE_DEFAULT_ADDR", "LSB", "MSB") * PAGE
    roots = {vmid: _root(context, block, vmid) for vmid in range(CONTEXTS)}
    return Settings(
        mode=field(tlb, "SYSTEM_ACCESS_MODE") if on else PHYSICAL_ONLY,
        aperture=(scaled("SYSTEM_APERTURE_LOW_ADDR", 18), scaled("SYSTEM_APERTURE_HIGH_ADDR", 18, 1)),
        vram=(base, min(scaled("FB_LOCATION_TOP", 24, 1), base + context.vram.size)),
        agp=(scaled("AGP_BOT", 24), scaled("AGP_TOP", 24, 1)),
        agp_base=scaled("AGP_BASE", 24),
        offset=scaled("FB_OFFSET", 24),
        aperture_default=default % context.vram.size
        if field(tlb, "SYSTEM_APERTURE_UNMAPPED_ACCESS")
        else None,
        identity=(identity("1_IDENTITY_APERTURE_LOW_ADDR"), identity("1_IDENTITY_APERTURE_HIGH_ADDR") + PAGE)
        if field(l2, "CONTEXT1_IDENTITY_ACCESS_MODE")
        else (0, 0),
        identity_offset=identity("_IDENTITY_PHYSICAL_OFFSET"),
        roots={vmid: root for vmid, root in roots.items() if root is not None},
        caching=bool(field(l2, "ENABLE_L2_CACHE")),
        tables_at_host=bool(
            field(l2_cntl4, "VMC_TAP_PDE_REQUEST_PHYSICAL") or field(l2_cntl4, "VMC_TAP_PTE_REQUEST_PHYSICAL")
        ),
    )


def _root(context: Context, block: str, vmid: int) -> Root | None:
    registers, vm = context.registers, PREFIXES[block][0]
    name = f"{vm}CONTEXT{vmid}"
    disabled = registers.value(block, f"{vm}CONTEXTS_DISABLE") >> vmid & 1
    if disabled or not registers.get(block, f"{name}_CNTL", "ENABLE_CONTEXT"):
        return None
    return Root(
        pair(context, block, f"{name}_PAGE_TABLE_START_ADDR") * PAGE,
        (pair(context, block, f"{name}_PAGE_TABLE_END_ADDR") + 1) * PAGE,
        pair(context, block, f"{name}_PAGE_TABLE_BASE_ADDR"),
        registers.get(block, f"{name}_CNTL", "PAGE_TABLE_DEPTH"),
        pages.LEVEL_SHIFT + registers.get(block, f"{name}_CNTL", "PAGE_TABLE_BLOCK_SIZE"),
    )
