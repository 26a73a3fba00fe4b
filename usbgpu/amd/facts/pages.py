"""Page tables of gfx11 and gfx12, and how the VM hubs report faults.

A table has 8-byte entries. Entries of the last level, PTB, map pages of 4 KiB. Those of the levels above,
PDB0 to PDB2, point to the next table, or map all that it would ("huge page") if their leaf bit is set.
Addresses in entries and in the base register are physical: an offset in VRAM plus VM_FB_OFFSET, or a PCIe
address if the system bit is set. A table is indexed from the START address of its context on, so that the
first entry of the root is for START.

Sources: Linux 6.12, `amdgpu_vm.h`, and the formats as comments in `gmc_v11_0.c` and `gmc_v12_0.c` (MIT); that
indices count from START: the kernel's GART, and a published driver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ENTRY = 8
"""Bytes of an entry."""
PAGE_SHIFT = 12
"""log2 of the smallest page's bytes."""
LEVEL_SHIFT = 9
"""log2 of the entries of a table, but for the root, which may have more, and PTB, see the block size."""
VA_BITS = 48
"""Width of a virtual address."""
LEVELS: Sequence[str] = ("PTB", "PDB0", "PDB1", "PDB2")
"""Tables by level; a context of depth n starts at level n."""

VALID = 1 << 0
SYSTEM = 1 << 1
"""The address is one of PCIe, not of VRAM."""
SNOOPED = 1 << 2
ENCRYPTED = 1 << 3
"""TMZ."""
EXECUTABLE = 1 << 4
READABLE = 1 << 5
WRITABLE = 1 << 6
FRAGMENT_SHIFT, FRAGMENT_MASK = 7, 0x1F
"""log2 of the pages around this one that are mapped in one piece, with the same flags."""
ADDRESS = 0x0000_FFFF_FFFF_F000
"""Of a page; of a table too, although 47:6 are its bits: tables are aligned to their size."""
TABLE_MISALIGNED = 0xFC0
"""Bits of a table's address that are 0 then."""

MTYPES: Mapping[str, int] = {"NC": 0, "WC": 1, "CC": 2, "UC": 3}
"""Caching of a page's data (`soc21_enum.h`, `soc24_enum.h`). gfx12 has NC and UC."""


@dataclass(frozen=True, slots=True)
class PageFormat:
    """What differs between generations.

    Attributes:
        leaf: bit of an entry that maps pages although a table could be there.
        leaf_in_ptb: whether entries of PTB need that bit, too.
        mtype_shift: lowest bit of the MTYPE of a page.
        mtype_width: its bits.
        no_allocate: bit that keeps a page's data out of the last-level cache; 0 if there is none.
        page_reserved: bits of a page's entry that must be 0.
        table_reserved: bits of a table's entry that must be 0.
        unmodelled: bits of a page's entry that have a meaning and are not used here, by name.
        table_fragment: bits of a table's entry with the block fragment size, which is not used here either.
    """

    leaf: int
    leaf_in_ptb: bool
    mtype_shift: int
    mtype_width: int
    no_allocate: int
    page_reserved: int
    table_reserved: int
    unmodelled: Mapping[str, int]
    table_fragment: int

    def mtype(self, name: str) -> int:
        """The bits of a MTYPE."""
        return MTYPES[name] << self.mtype_shift


def bits(high: int, low: int) -> int:
    """A mask of bits `high` to `low`, as the formats are written."""
    return (2 << high) - (1 << low)


FORMATS: Mapping[int, PageFormat] = {
    11: PageFormat(
        leaf=1 << 54,
        leaf_in_ptb=False,
        mtype_shift=48,
        mtype_width=3,
        no_allocate=1 << 58,
        page_reserved=bits(63, 59) | bits(57, 57),
        table_reserved=bits(58, 55) | bits(53, 48) | bits(5, 3),
        unmodelled={"TMZ": ENCRYPTED, "PRT": 1 << 51, "LOG": 1 << 55, "TF": 1 << 56},
        table_fragment=bits(63, 59),
    ),
    12: PageFormat(
        leaf=1 << 63,
        leaf_in_ptb=True,
        mtype_shift=54,
        mtype_width=2,
        no_allocate=0,
        page_reserved=bits(62, 59) | bits(51, 48),
        table_reserved=bits(57, 57) | bits(53, 48) | bits(5, 3),
        unmodelled={"TMZ": ENCRYPTED, "PRT": 1 << 56, "G": 1 << 57, "DCC": 1 << 58},
        table_fragment=bits(62, 58),
    ),
}
"""By generation. That gfx12 refuses an entry of PTB without the leaf bit is inferred: the kernel sets it."""

# -- faults ------------------------------------------------------------------------------------------------

WALKER_ERRORS: Mapping[str, int] = {
    "RANGE": 1,
    "PDE0": 2,
    "PDE1": 3,
    "PDE2": 4,
    "TRANSLATE_FURTHER": 5,
    "NACK": 6,
    "DUMMY_PAGE": 7,
}
"""WALKER_ERROR of the fault status, by the fault's name in VM_L2_PROTECTION_FAULT_CNTL; 0 for all others.
RANGE and 0 are in kernel logs that users published; the rest is a guess from the order of that register's
fields."""
PERMISSIONS: Mapping[str, int] = {"VALID": 1, "READ": 2, "WRITE": 4, "EXECUTE": 8}
"""PERMISSION_FAULTS of the fault status: no page, and the kind of access. The logs show 3 for a read and 5
for a write of an unmapped page (grade: hardware; EXECUTE: guess)."""

GC_CLIENTS: Mapping[int, Mapping[str, int]] = {
    11: {
        "CB/DB": 0,
        "GE1": 2,
        "GE2": 3,
        "CPF": 4,
        "CPC": 5,
        "CPG": 6,
        "RLC": 7,
        "TCP": 8,
        "SQC (inst)": 9,
        "SQC (data)": 10,
        "SQG": 11,
        "SDMA0": 13,
        "SDMA1": 14,
        "GCR": 15,
        "SDMA2": 16,
        "SDMA3": 17,
    },
    12: {
        "CB": 0,
        "DB": 1,
        "GE1": 2,
        "GE2": 3,
        "CPF": 4,
        "CPC": 5,
        "CPG": 6,
        "RLC": 7,
        "TCP": 8,
        "SQC (inst)": 9,
        "SQC (data)": 10,
        "SQG/PC/SC": 11,
        "SDMA0": 13,
        "SDMA1": 14,
        "GCR": 15,
        "WGS": 18,
        "DSM": 19,
        "PA": 20,
    },
}
"""Clients of the GC hub by generation, as in the fault status (`gfxhub_v3_0.c`, `gfxhub_v12_0.c`)."""
MM_CLIENTS: Mapping[int, Mapping[str, int]] = {
    11: {"VMC": 0, "MP0": 6, "MP1": 7, "MPIO": 8, "OSSSYS": 15, "HDP": 16, "LSDMA": 17},
    12: {"VMC": 0, "MP0": 6, "MP1": 7, "MPIO": 8, "OSSSYS": 15, "LSDMA": 16, "HDP": 23},
}
"""Those of the MM hub, but for display and video (`mmhub_v3_0.c`, `mmhub_v4_1_0.c`)."""
