"""The PHY set-up as C tables for sdcc, which firmware applies at start."""

from __future__ import annotations

from firmware.asm2464pd.phy import PCIE_LANES, PCIE_PASSES, USB_LANE_SETUP, USB_LANES
from firmware.generate.header import REGENERATE

_OPENING = f"/* Generated, do not edit: {REGENERATE}. Include once. */\n"


def lane_table() -> str:
    """The updates of the USB lanes."""
    bases = "".join(f"#define USB_LANE_{index} {base:#06x}u\n" for index, base in enumerate(USB_LANES))
    rows = "".join(f"    {row.offset:#04x}, {row.keep:#04x}, {row.put:#04x},\n" for row in USB_LANE_SETUP)
    return (
        f"{_OPENING}"
        f"{bases}"
        f"#define LANE_UPDATES {len(USB_LANE_SETUP)}\n"
        "/* Offset in the lane, bits that are kept, bits that are set. */\n"
        f"static const __code unsigned char lane_updates[] = {{\n{rows}}};\n"
    )


def phy_table() -> str:
    """The passes over the PCIe lanes; the write that enables routing is not among them."""
    pages = ", ".join(f"{lane[block] >> 8:#04x}" for block in (0, 1) for lane in PCIE_LANES)
    passes = ""
    for each in PCIE_PASSES:
        passes += f"    /* a pass */ {len(each.steps)}, {each.lanes.start}, {each.lanes.stop},\n"
        passes += "".join(
            f"    {step.block * len(PCIE_LANES)}, {step.offset:#04x}, {step.value:#04x},\n"
            for step in each.steps
        )
    return (
        f"{_OPENING}"
        f"/* High address bytes of block A of each lane, then of block B. */\n"
        f"static const __code unsigned char phy_pages[] = {{{pages}}};\n"
        "/* Passes, up to a 0: number of steps, first lane, lane after the last; then the steps, applied to\n"
        " * one lane after another: where the block's pages begin, offset, value. */\n"
        f"static const __code unsigned char phy_passes[] = {{\n{passes}    0,\n}};\n"
    )
