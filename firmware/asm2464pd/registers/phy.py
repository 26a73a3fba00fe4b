"""The physical layer: tuning registers of the USB and PCIe lanes, which are modelled as plain storage.

It is known which registers the set-up writes, and with what values (`firmware.asm2464pd.phy`); what their
bits do is not known. They are named by lane and offset. The two USB lanes are in XDATA, 0x80 apart. Each of
the four PCIe lanes has two blocks in the second MOVX plane, 0x400 and 0x100 apart; which of them is analogue
and which logical is not known, so they are called A and B. The source is the open firmware (usb.h,
pcie_tuning.h), whose values come from traces of the vendor's firmware.
"""

from __future__ import annotations

from firmware.asm2464pd import phy
from firmware.asm2464pd.describe import ByteRegister, Space
from firmware.asm2464pd.registers import link


def _usb(lane: int, offset: int) -> ByteRegister:
    return ByteRegister(
        f"PHY_USB{lane}_{offset:02X}",
        Space.XDATA,
        phy.USB_LANES[lane] + offset,
        phy.EVIDENCE,
        f"USB lane {lane}, tuning register {offset:#04x}. Without the tuning no USB event arrives.",
        source="open firmware, usb.h",
    )


def _pcie(lane: int, block: int, offset: int) -> ByteRegister:
    return ByteRegister(
        f"PHY_PCIE{lane}_{'AB'[block]}{offset:02X}",
        Space.PHY,
        phy.PCIE_LANES[lane][block] + offset,
        phy.EVIDENCE,
        f"PCIe lane {lane}, block {'AB'[block]}, tuning register {offset:#04x}.",
        source="open firmware, pcie_tuning.h",
    )


USB_LANES = tuple(
    _usb(lane, update.offset) for lane in range(len(phy.USB_LANES)) for update in phy.USB_LANE_SETUP
)
PCIE_LANES = tuple(
    _pcie(lane, block, address - base)
    for lane, bases in enumerate(phy.PCIE_LANES)
    for block, base in enumerate(bases)
    for address in sorted(phy.PCIE_FINAL)
    if address in range(base, base + 0x100) and address != link.PCIE_ROUTING.address
)

REGISTERS = USB_LANES + PCIE_LANES
"""Both tables, for the collection of all registers."""
