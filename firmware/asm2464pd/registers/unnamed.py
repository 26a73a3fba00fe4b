"""Registers that the chip maker's firmware writes or reads at start, and whose meaning is not known.

That firmware was run on the emulator with these as plain storage, and goes on: that much is a trace. They are
named by their address. The emulator counts what firmware touches of them in one line of its report.
"""

from __future__ import annotations

from collections.abc import Iterator

from firmware.asm2464pd.describe import ByteRegister, Space
from sdk.facts.registers import Evidence

XDATA = """
9201 920C 9241 92C1 92C5 92C6 92C7 9310-9323
B402 B404 B432 B434 B436
C202 C208 C20B C20C C21B C21D C21F C22F C233 C2A8 C2CD C328 C34D
C620 C62D C655 C65A C65B C6A8 C8FF CA06 CA2E CA60 CA70
CC2A CC2C CC2D CC32 CC35 CC37 CC38 CC39 CC3A CC3B CC3E CC3F CC43 CD30-CD33
E324 E710 E712 E716 E717 E741 E742 E76C E774 E77C E780 E795 E7E3
"""
PHY = """
0000 1262 1507 2805 281C 281D 2849 286A-286D 28CE 28ED 7041
7827 7927 7A27 7B27
"""


def _registers(space: Space, prefix: str, places: str) -> Iterator[ByteRegister]:
    for place in places.split():
        first, _, last = place.partition("-")
        address = int(first, 16)
        yield ByteRegister(
            f"{prefix}_{first}",
            space,
            address,
            Evidence.TRACE,
            "Meaning not known; storage.",
            size=int(last or first, 16) - address + 1,
            source="the chip maker's firmware",
        )


REGISTERS = (*_registers(Space.XDATA, "UNNAMED", XDATA), *_registers(Space.PHY, "UNNAMED_PHY", PHY))
"""All of them, by address."""
