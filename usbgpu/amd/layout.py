"""Where things are in VRAM, and at which GPU addresses.

All of VRAM is mapped once, when the card is booted, at one distance: `VA + offset`; so buffers need no page
tables of their own, and a card that is up can be opened again without touching them. Page tables and what
belongs to the security processor are not mapped, and nothing below VA is: a stray access of a kernel there
faults.

The boot region is never allocated, so that what is in it outlives the process.
"""

from __future__ import annotations

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

VA = 0x2000_0000_0000
"""GPU address of VRAM offset 0."""
SRAM_VA = VA + (1 << 41)
"""Of the bridge's SRAM: 512 KiB, system memory to the GPU. Other views of it, at multiples of 1 MiB behind
this one, are the boot's own."""
COMPLETION_VA = SRAM_VA + GIB
"""Of the page in which a device completes the bridge's slot transfers towards the host."""

BOOT_REGION = 32 * MIB

TABLES, TABLES_SIZE = 0, MIB
PSP, PSP_SIZE = MIB, 512 * KIB
SMU_TABLE, SMU_TABLE_SIZE = MIB + 512 * KIB, 64 * KIB
SPARE, SPARE_SIZE = MIB + 576 * KIB, 64 * KIB
"""The target of unmapped accesses: default pages of the hubs."""
RECORD, RECORD_SIZE = MIB + 640 * KIB, 4 * KIB
"""The boot record, for the next program that opens the card."""
INTERRUPTS, INTERRUPTS_SIZE = 2 * MIB, MIB
QUEUES, QUEUES_SIZE = 3 * MIB, 5 * MIB
"""MQDs, EOP buffers, rings, pointers, signals."""
STREAMS, STREAMS_SIZE = 8 * MIB, MIB
"""Programs of the copy engine that travel with the data."""
TMR, TMR_SIZE = 12 * MIB, 20 * MIB
"""The security processor's own memory; at most 0x130_0000 bytes."""

RESERVED_AT_TOP = 64 * MIB
"""VRAM that the firmware keeps: the discovery table among it."""


def address(offset: int) -> int:
    """The GPU address of a byte of VRAM."""
    return VA + offset
