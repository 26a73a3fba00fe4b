"""The memory map: RAM, buffers and windows as MOVX sees them with DPX = 0, and where PCIe sees them.

One 512 KiB SRAM is reached in three ways: the window at 0xF000 (its first 4 KiB), the slot DMA, and PCIe from
0x00200000 on. Registers lie between these ranges, in the other files of this folder. Addresses that belong to
neither are not modelled.
"""

from __future__ import annotations

from firmware.asm2464pd.describe import Memory, Space
from sdk.facts.registers import Evidence

_NOTES = "cyrozap/usb-to-pcie-re notes on the ASM2x6x"
_OPEN = "open firmware, main.c"

SLOT_SIZE = 0x4000
"""Bytes of one SRAM slot; slot s starts at offset s * SLOT_SIZE. Hardware: the open firmware's SRAM test."""

XRAM = Memory("XRAM", Space.XDATA, 0x0000, 0x6000, Evidence.HARDWARE, "General RAM, 24 KiB.", source=_NOTES)
UNUSED_6000 = Memory(
    "UNUSED_6000",
    Space.XDATA,
    0x6000,
    0x1000,
    Evidence.HARDWARE,
    "Nothing: reads 0, writes are ignored.",
    writable=False,
    source=_NOTES,
)
BULK_OUT_BUFFER = Memory(
    "BULK_OUT_BUFFER",
    Space.XDATA,
    0x7000,
    0x1000,
    Evidence.HARDWARE,
    "Receives bulk OUT packets; also the data buffer of the SPI flash controller, in both directions. The "
    "two share it without arbitration, and race with CPU writes; whether these work is disputed "
    "(bulk-out-writes).",
    landing=True,
    source=f"{_NOTES}; open firmware, flash.h",
)
BULK_IN_BUFFER = Memory(
    "BULK_IN_BUFFER",
    Space.XDATA,
    0x8000,
    0x1000,
    Evidence.TRACE,
    "Bulk IN packets are sent from here. It is not another view of the SRAM window; its PCIe address, if it "
    "has one, is not known.",
    source=_OPEN,
)
EP0_BUFFER = Memory(
    "EP0_BUFFER",
    Space.XDATA,
    0x9E00,
    0x200,
    Evidence.TRACE,
    "Data of control transfers, in both directions. OUT data stays until the status stage is over.",
    source=f"{_OPEN}; {_NOTES}",
)
NVME_SQ = Memory(
    "NVME_SQ",
    Space.XDATA,
    0xA000,
    0x1000,
    Evidence.HARDWARE,
    "NVMe I/O submission queue, which a device reads over PCIe.",
    pcie=0x0082_0000,
    source=f"{_NOTES}; open host driver",
)
NVME_ADMIN = Memory(
    "NVME_ADMIN",
    Space.XDATA,
    0xB000,
    0x200,
    Evidence.HARDWARE,
    "NVMe admin queues.",
    pcie=0x0080_0000,
    source=_NOTES,
)
NVME_CQ = Memory(
    "NVME_CQ",
    Space.XDATA,
    0xB800,
    0x800,
    Evidence.HARDWARE,
    "NVMe completion queue, which a device writes over PCIe; an entry starts an armed slot DMA towards the "
    "host. Hosts assume 4 KiB; 2 KiB exist.",
    pcie=0x0082_2000,
    source=f"{_NOTES}; open firmware, SRAM test",
)
XRAM_D000 = Memory("XRAM_D000", Space.XDATA, 0xD000, 0x400, Evidence.HARDWARE, "RAM, 1 KiB.", source=_NOTES)
XRAM_D000_MIRROR = Memory(
    "XRAM_D000_MIRROR",
    Space.XDATA,
    0xD400,
    0x400,
    Evidence.HARDWARE,
    "XRAM_D000 again.",
    mirror=0xD000,
    source=_NOTES,
)
XRAM_D800 = Memory(
    "XRAM_D800",
    Space.XDATA,
    0xD800,
    0x800,
    Evidence.HARDWARE,
    "RAM, 2 KiB; the mass-storage engine keeps its endpoint buffers here.",
    source=_NOTES,
)
XRAM_D800_MIRROR = Memory(
    "XRAM_D800_MIRROR",
    Space.XDATA,
    0xE000,
    0x300,
    Evidence.HARDWARE,
    "The first 768 bytes of XRAM_D800 again.",
    mirror=0xD800,
    source=_NOTES,
)
XRAM_E800 = Memory(
    "XRAM_E800", Space.XDATA, 0xE800, 0x200, Evidence.HARDWARE, "RAM, 512 bytes.", source=_NOTES
)
XRAM_E800_MIRRORS = tuple(
    Memory(
        f"XRAM_E800_MIRROR_{number}",
        Space.XDATA,
        0xE800 + 0x200 * number,
        0x200,
        Evidence.HARDWARE,
        "XRAM_E800 again.",
        mirror=0xE800,
        source=_NOTES,
    )
    for number in (1, 2, 3)
)
SRAM_WINDOW = Memory(
    "SRAM_WINDOW",
    Space.XDATA,
    0xF000,
    0x1000,
    Evidence.HARDWARE,
    "The first 4 KiB of the SRAM.",
    pcie=0x0020_0000,
    sram=0,
    source=f"{_NOTES}; open firmware, SRAM test",
)
SRAM = Memory(
    "SRAM",
    Space.SRAM,
    0x00000,
    0x80000,
    Evidence.HARDWARE,
    "The data buffer: 32 slots of 16 KiB. 512 KiB are verified; several MiB are claimed but not verified.",
    pcie=0x0020_0000,
    source="open firmware, SRAM test",
)

MEMORIES: tuple[Memory, ...] = (
    XRAM,
    UNUSED_6000,
    BULK_OUT_BUFFER,
    BULK_IN_BUFFER,
    EP0_BUFFER,
    NVME_SQ,
    NVME_ADMIN,
    NVME_CQ,
    XRAM_D000,
    XRAM_D000_MIRROR,
    XRAM_D800,
    XRAM_D800_MIRROR,
    XRAM_E800,
    *XRAM_E800_MIRRORS,
    SRAM_WINDOW,
    SRAM,
)
"""Every range of memory, by address."""
