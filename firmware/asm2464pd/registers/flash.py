"""Registers of the SPI flash controller.

A transaction is a command byte, none to three bytes of address and up to 4 KiB of data out of, or into, one
of the bulk buffers. The layout is that of the open firmware and its flash scripts, and agrees with cyrozap's
tool for the ASM236x; the divider's formula is that of ASMedia's USB host controllers.
"""

from __future__ import annotations

from firmware.asm2464pd.describe import ByteRegister, Space
from sdk.facts.registers import Access, Evidence, Field

_OPEN = "open firmware, flash.h"
_TOOL = "cyrozap/usb-to-pcie-re, asm2x6x_tool.py"
_SCRIPT = "open firmware, e4_flash.py"
_MAKER = "the chip maker's firmware"

FLASH_BUFFER = ByteRegister(
    "FLASH_BUFFER",
    Space.XDATA,
    0xC805,
    Evidence.TRACE,
    "Which buffer holds the data. The maker's firmware reads the flash into the bulk IN buffer and sends it "
    "from there. Another bit is the I2C master's.",
    fields=(
        Field("PLACE", 1, 2, "2 and 3 are not known", values={0: "BULK_IN", 1: "BULK_OUT"}),
        Field(
            "I2C_RECEIVE", 4, 1, "bytes that the I2C master reads go to 0xE800", evidence=Evidence.HARDWARE
        ),
    ),
    source=f"{_OPEN}; {_MAKER}; open firmware, i2c.h",
)

FLASH_CONTROL = ByteRegister(
    "FLASH_CONTROL", Space.XDATA, 0xC89F, Evidence.TRACE, "Written 0 before a transaction.", source=_OPEN
)
FLASH_ADDRESS_LOW = ByteRegister(
    "FLASH_ADDRESS_LOW", Space.XDATA, 0xC8A1, Evidence.TRACE, "Address, bits 7 to 0.", source=_OPEN
)
FLASH_ADDRESS_MIDDLE = ByteRegister(
    "FLASH_ADDRESS_MIDDLE", Space.XDATA, 0xC8A2, Evidence.TRACE, "Address, bits 15 to 8.", source=_OPEN
)
FLASH_LENGTH = ByteRegister(
    "FLASH_LENGTH", Space.XDATA, 0xC8A3, Evidence.TRACE, "Bytes of data.", size=2, source=f"{_OPEN}; {_TOOL}"
)
FLASH_DIVIDER = ByteRegister(
    "FLASH_DIVIDER",
    Space.XDATA,
    0xC8A6,
    Evidence.TRACE,
    "Divider of the SPI clock; the model takes a bit to last value + 1 chip clocks, as in ASMedia's USB host "
    "controllers.",
    source=f"{_OPEN}; cyrozap/asmedia-xhc-re, regs-asm1142.yaml",
)
FLASH_CSR = ByteRegister(
    "FLASH_CSR",
    Space.XDATA,
    0xC8A9,
    Evidence.TRACE,
    "Starts a transaction; busy until it is over.",
    access=Access.SELF_CLEARING,
    fields=(Field("BUSY", 0, doc="write 1 to start; reads 1 while the transaction runs"),),
    source=f"{_OPEN}; {_TOOL}",
)
FLASH_COMMAND = ByteRegister(
    "FLASH_COMMAND", Space.XDATA, 0xC8AA, Evidence.TRACE, "The command byte.", source=_OPEN
)
FLASH_ADDRESS_HIGH = ByteRegister(
    "FLASH_ADDRESS_HIGH", Space.XDATA, 0xC8AB, Evidence.TRACE, "Address, bits 23 to 16.", source=_OPEN
)
FLASH_ADDRESS_LENGTH = ByteRegister(
    "FLASH_ADDRESS_LENGTH",
    Space.XDATA,
    0xC8AC,
    Evidence.TRACE,
    "What is sent of the address.",
    fields=(
        Field("BYTES", 0, 2, "bytes of address, most significant first; 0 for a command without one"),
        Field("MODE", 2, 6, "kept by the firmware; 1 in the open firmware's writes, else 0"),
    ),
    source=f"{_OPEN}; {_TOOL}; {_MAKER}",
)
FLASH_MODE = ByteRegister(
    "FLASH_MODE",
    Space.XDATA,
    0xC8AD,
    Evidence.TRACE,
    "Direction of the data, and the width of the bus.",
    fields=(
        Field("WRITE", 0, doc="the buffer is sent to the flash; else it is filled from the flash"),
        Field("WIDTH", 4, 4, "cleared bit by bit after a transaction: 0 is one data line"),
    ),
    source=f"{_OPEN}; {_SCRIPT}",
)
FLASH_BUFFER_OFFSET = ByteRegister(
    "FLASH_BUFFER_OFFSET",
    Space.XDATA,
    0xC8AE,
    Evidence.TRACE,
    "Offset of the data in the buffer; 0 in every known transaction.",
    size=2,
    source=_OPEN,
)
FLASH_GATE = ByteRegister(
    "FLASH_GATE",
    Space.XDATA,
    0xCA81,
    Evidence.TRACE,
    "Clock or reset gate of the flash controller.",
    fields=(
        Field(
            "FLASH",
            0,
            doc="whether a flash transaction needs it is disputed (flash-gate); later revisions of the open "
            "firmware do not set it, because it kept a graphics card from enumerating",
            evidence=Evidence.GUESS,
        ),
    ),
    source=f"{_SCRIPT}; {_OPEN}",
)
