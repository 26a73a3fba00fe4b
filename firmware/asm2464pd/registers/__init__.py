"""Every register and memory of the chip, one file a block."""

from __future__ import annotations

from firmware.asm2464pd.describe import ByteRegister, Map
from firmware.asm2464pd.registers import (
    cpu,
    dma,
    flash,
    i2c,
    interrupts,
    link,
    memory,
    phy,
    system,
    tlp,
    unnamed,
    usb,
)

BLOCKS: dict[str, tuple[ByteRegister, ...]] = {
    module.__name__.rpartition(".")[2]: (
        *(value for value in vars(module).values() if isinstance(value, ByteRegister)),
        *getattr(module, "REGISTERS", ()),  # a systematic block is a table
    )
    for module in (cpu, interrupts, usb, tlp, link, phy, dma, flash, i2c, system, unnamed)
}
"""The registers of each block, in the order of declaration."""

ASM2464PD = Map((register for block in BLOCKS.values() for register in block), memory.MEMORIES)
"""The chip."""
