"""An address of XDATA about which nothing is known, for tests; which one, changes as more is learnt."""

from firmware.asm2464pd.describe import Space
from firmware.asm2464pd.registers import ASM2464PD

UNKNOWN = next(
    address
    for address in range(0xC600, 0xD000)
    if all(
        ASM2464PD.at(Space.XDATA, near) is None and ASM2464PD.memory_at(Space.XDATA, near) is None
        for near in range(address, address + 16)
    )
)
"""As are the 15 addresses behind it."""
