"""Registers of unknown meaning that working firmware touches: storage, and one line of the bus's summary."""

from __future__ import annotations

from emulator.core.bus import Bus
from firmware.asm2464pd.registers import unnamed


class Unnamed:
    """Takes these registers over.

    Args:
        bus: of the chip.
    """

    def __init__(self, bus: Bus) -> None:
        for register in unnamed.REGISTERS:
            bus.map(register, "unnamed", counted=True)
