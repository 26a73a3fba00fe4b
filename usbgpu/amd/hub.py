"""The VM hubs: GC's for queues, shaders and SDMA, the MM hub for the processors of the card.

Both get the same page tables, for VMID 0. What is written is what Linux' `gfxhub_v3_0.c`, `gfxhub_v12_0.c`,
`mmhub_v3_0.c` and `mmhub_v4_1_0.c` write, but for the default pages: these lie in VRAM, so that stray
accesses do not end up in the bridge's memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from usbgpu.amd import layout
from usbgpu.amd.batch import Batch, Later
from usbgpu.amd.card import Card
from usbgpu.amd.facts import pages
from usbgpu.amd.tables import ROOT, TOP

PREFIXES: Mapping[str, tuple[str, str]] = {"GC": ("GCVM_", "GCMC_VM_"), "MMHUB": ("MMVM_", "MMMC_VM_")}
"""Of the register names: of the VM, and of the memory controller."""
ENGINES = 18
"""Invalidation engines of a hub; the last one is the driver's."""
ENGINE = 17
FAULTS = ("RANGE", "DUMMY_PAGE", "PDE0", "VALID", "READ", "WRITE", "EXECUTE")
"""Kinds of faults: each continues with the default page, and is reported."""
LAST_PAGE = 0x7_FFFF_FFFF
"""Of the context, as in the published boot traces."""
NOT_IN_APERTURE = 3
"""SYSTEM_ACCESS_MODE: addresses outside of the system aperture go through the page tables."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Where VRAM is for the memory controller: its first address, and its last."""

    first: int
    last: int


def find_memory(batch: Batch) -> tuple[Later[int], Later[int]]:
    """Read where VRAM is; `memory` interprets it."""
    base, top = (batch.read("MMHUB", f"MMMC_VM_FB_LOCATION_{end}") for end in ("BASE", "TOP"))
    return base, top


def memory(base: int, top: int) -> Memory:
    """What FB_LOCATION_BASE and _TOP mean."""
    return Memory((base & 0xFF_FFFF) << 24, (top & 0xFF_FFFF) << 24 | 0xFF_FFFF)


def init(batch: Batch, block: str, vram: Memory) -> None:
    """Make a hub translate, with the tables at ROOT."""
    vm, mc = PREFIXES[block]
    batch.write(block, f"{mc}AGP_BASE", 0)  # an empty window
    batch.write(block, f"{mc}AGP_BOT", 0xFF_FFFF)
    batch.write(block, f"{mc}AGP_TOP", 0)
    batch.write(block, f"{mc}SYSTEM_APERTURE_LOW_ADDR", vram.first >> 18)
    batch.write(block, f"{mc}SYSTEM_APERTURE_HIGH_ADDR", vram.last >> 18)
    default = f"{mc}SYSTEM_APERTURE_DEFAULT_ADDR"
    batch.pair(block, f"{default}_LSB", f"{default}_MSB", layout.SPARE >> pages.PAGE_SHIFT)
    _pair(batch, block, f"{vm}L2_PROTECTION_FAULT_DEFAULT_ADDR", layout.SPARE + 4096 >> pages.PAGE_SHIFT)
    batch.set(block, f"{vm}L2_PROTECTION_FAULT_CNTL2", ACTIVE_PAGE_MIGRATION_PTE_READ_RETRY=1)
    batch.set(
        block, f"{mc}MX_L1_TLB_CNTL",
        ENABLE_L1_TLB=1, SYSTEM_ACCESS_MODE=NOT_IN_APERTURE, SYSTEM_APERTURE_UNMAPPED_ACCESS=0,
        ENABLE_ADVANCED_DRIVER_MODEL=1, MTYPE=pages.MTYPES["UC"],
    )  # fmt: skip
    batch.set(
        block, f"{vm}L2_CNTL",
        ENABLE_L2_CACHE=1, ENABLE_L2_FRAGMENT_PROCESSING=0, ENABLE_DEFAULT_PAGE_OUT_TO_SYSTEM_MEMORY=0,
        L2_PDE0_CACHE_TAG_GENERATION_MODE=0, PDE_FAULT_CLASSIFICATION=0, CONTEXT1_IDENTITY_ACCESS_MODE=1,
        IDENTITY_MODE_FRAGMENT_SIZE=0,
    )  # fmt: skip
    batch.set(block, f"{vm}L2_CNTL2", INVALIDATE_ALL_L1_TLBS=1, INVALIDATE_L2_CACHE=1)
    batch.write(block, f"{vm}L2_CNTL3", 0x8013_0009)
    batch.write(block, f"{vm}L2_CNTL4", 1)  # tables are in VRAM
    batch.write(block, f"{vm}L2_CNTL5", 0x3FE0)
    _pair(batch, block, f"{vm}CONTEXT0_PAGE_TABLE_START_ADDR", layout.VA >> pages.PAGE_SHIFT)
    _pair(batch, block, f"{vm}CONTEXT0_PAGE_TABLE_END_ADDR", LAST_PAGE)
    _pair(batch, block, f"{vm}CONTEXT0_PAGE_TABLE_BASE_ADDR", ROOT | pages.VALID)
    enables = [f"{kind}_PROTECTION_FAULT_ENABLE" for kind in FAULTS]
    reports = {f"{name}_{what}": 1 for name in enables for what in ("INTERRUPT", "DEFAULT")}
    batch.set(block, f"{vm}CONTEXT0_CNTL", ENABLE_CONTEXT=1, PAGE_TABLE_DEPTH=TOP, **reports)
    # Nothing is identity-mapped for other VMIDs: the lowest address is above the highest.
    _pair(batch, block, f"{vm}L2_CONTEXT1_IDENTITY_APERTURE_LOW_ADDR", 0xF_FFFF_FFFF)
    _pair(batch, block, f"{vm}L2_CONTEXT1_IDENTITY_APERTURE_HIGH_ADDR", 0)
    _pair(batch, block, f"{vm}L2_CONTEXT_IDENTITY_PHYSICAL_OFFSET", 0)
    for engine in range(ENGINES):
        _pair(batch, block, f"{vm}INVALIDATE_ENG{engine}_ADDR_RANGE", 0x1F_FFFF_FFFF)


def invalidate(batch: Batch, block: str) -> None:
    """Invalidate a hub's cache of VMID 0's tables, and clear its last fault."""
    vm = PREFIXES[block][0]
    engine = f"{vm}INVALIDATE_ENG{ENGINE}"
    request = batch.card.chip.register(block, f"{engine}_REQ").pack(
        PER_VMID_INVALIDATE_REQ=1, INVALIDATE_L2_PTES=1, INVALIDATE_L2_PDE0=1, INVALIDATE_L2_PDE1=1,
        INVALIDATE_L2_PDE2=1, INVALIDATE_L1_PTES=1,
    )  # fmt: skip
    if block == "MMHUB":
        batch.wait(block, f"{engine}_SEM", 1, 1)
    batch.write(block, f"{engine}_REQ", request)
    batch.wait(block, f"{engine}_ACK", 1, 1)
    if block == "MMHUB":
        batch.write(block, f"{engine}_SEM", 0)
        private = "MMVM_L2_BANK_SELECT_RESERVED_CID2"
        batch.set(block, private, RESERVED_CACHE_PRIVATE_INVALIDATION=1)
        batch.read(block, private)  # the write has arrived


def fault_status(card: Card, block: str) -> str:
    """Name of the register that reports a fault."""
    return PREFIXES[block][0] + card.chip.family.fault_status


def clear_fault(batch: Batch, block: str) -> None:
    """Clear a hub's last fault, so that it reports the next."""
    control = f"{PREFIXES[block][0]}L2_PROTECTION_FAULT_CNTL"
    batch.set(block, control, CLEAR_PROTECTION_FAULT_STATUS_ADDR=1)
    batch.set(block, control, CLEAR_PROTECTION_FAULT_STATUS_ADDR=0)


def _pair(batch: Batch, block: str, name: str, value: int) -> None:
    batch.pair(block, f"{name}_LO32", f"{name}_HI32", value)
