"""The physical layer: tuning registers that hold what is written.

Blocks that depend on the tuning read the storage: the USB link waits for its lanes' values before it trains.
What the bits do is not known (`firmware.asm2464pd.registers.phy`).
"""

from __future__ import annotations

from emulator.core.bus import Bus
from firmware.asm2464pd.registers import phy


class Phy:
    """Takes over the tuning registers of the USB and PCIe lanes.

    Args:
        bus: of the chip.
    """

    def __init__(self, bus: Bus) -> None:
        for register in phy.REGISTERS:
            bus.map(register, "phy")
