"""Assembly made from the chip's facts for our images: nothing here is typed twice.

Registers and fields become symbols, the PHY set-up tables; C has its own form of the same, in
`firmware/asm2464pd/include`.
"""

from __future__ import annotations

from collections.abc import Iterator

from firmware.asm2464pd.describe import Space
from firmware.asm2464pd.phy import PCIE_SETUP, USB_LANE_SETUP, USB_LANES
from firmware.asm2464pd.registers import ASM2464PD
from sdk.facts.registers import macro

_NOTICE = "Generated from the chip's facts."


def generated() -> dict[str, str]:
    """The generated sources, by file name."""
    return {
        "lane_table.inc": _lane_table(),
        "phy_table.inc": _phy_table(),
        "registers.inc": "\n".join(_symbols()),
    }


def _lane_table() -> str:
    """Rows of three bytes: offset, bits that stay, bits that are set."""
    rows = "".join(f"\t.db {row.offset:#04x}, {row.keep:#04x}, {row.put:#04x}\n" for row in USB_LANE_SETUP)
    return (
        f"; {_NOTICE} Include once, in a CODE area.\n"
        f"USB_LANE_FIRST = {USB_LANES[0]:#06x}\n"
        f"USB_LANE_SECOND = {USB_LANES[1]:#06x}\n"
        f"LANE_UPDATES = {len(USB_LANE_SETUP)}\n"
        f"lane_updates:\n{rows}"
    )


def _phy_table() -> str:
    """Rows of three bytes: address, most significant byte first, and value."""
    rows = "".join(
        f"\t.db {row.address >> 8:#04x}, {row.address & 0xFF:#04x}, {row.value:#04x}\n" for row in PCIE_SETUP
    )
    return f"; {_NOTICE} Include once, in a CODE area.\nPHY_WRITES = {len(PCIE_SETUP)}\nphy_writes:\n{rows}"


def _symbols() -> Iterator[str]:
    """NAME = address; for registers of one byte also NAME_FIELD = mask, NAME_FIELD_VALUE in place."""
    yield f"; {_NOTICE}"
    for register in ASM2464PD:
        if register.space is Space.SFR:
            continue  # the assembler knows those of the 8051; the chip's two are named where they are used
        yield f"{register.name} = {register.address:#06x}"
        if register.size == 1:
            for field in register.fields:
                yield f"{register.name}_{field.name} = {field.mask:#04x}"
                for value, name in field.values.items():
                    yield f"{register.name}_{field.name}_{macro(name)} = {value << field.bit:#04x}"
    for memory in ASM2464PD.memories:
        yield f"{memory.name} = {memory.address:#06x}"
    yield ""
