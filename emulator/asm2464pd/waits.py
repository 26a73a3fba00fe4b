"""What a block waits for, in words: register, bit and value, for messages about what does not happen."""

from __future__ import annotations

from collections.abc import Sequence

from emulator.core.bus import Bus
from firmware.asm2464pd.describe import ByteRegister


def bit(register: ByteRegister, field: str, value: int) -> str:
    """A field with the value that it has to have: `PCIE_PERST.ASSERT (xdata 0xb480 bit 0) = 0`."""
    part = register.field(field)
    bits = f"bit {part.bit}" if part.width == 1 else f"bits {part.bit + part.width - 1}:{part.bit}"
    return f"{register.name}.{field} ({register.space.value} {register.address:#06x} {bits}) = {value}"


def missing(bus: Bus, needed: Sequence[tuple[ByteRegister, str, bool]]) -> list[str]:
    """Those of some fields that do not have the value needed: all bits set, or all clear."""
    found = []
    for register, field, wanted in needed:
        mask = register[field]
        if bus.value(register) & mask != (mask if wanted else 0):
            width = register.field(field).width
            found.append(bit(register, field, (1 << width) - 1 if wanted else 0))
    return found


def acknowledged(register: ByteRegister, field: str) -> str:
    """An event that firmware has to clear."""
    return f"{bit(register, field, 0)}, which the firmware clears by writing 1"
