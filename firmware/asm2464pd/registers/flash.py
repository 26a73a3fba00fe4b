"""Registers of the SPI flash controller.

A transaction is a command byte, none to three bytes of address and up to 4 KiB of data out of, or into, the
bulk OUT buffer at 0x7000. The layout is that of the open firmware and its flash scripts, and agrees with
cyrozap's tool for the ASM236x; the divider's formula is that of ASMedia's USB host controllers.
"""

from __future__ import annotations

from firmware.asm2464pd.describe import ByteRegister, Space
from sdk.facts.registers import Access, Evidence, Field

_OPEN = "open firmware, flash.h"
_TOOL = "cyrozap/usb-to-pcie-re, asm2x6x_tool.py"
_SCRIPT = "open firmware, e4_flash.py"

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
        Field("BYTES", 0, 2, "bytes of address, most significant first"),
        Field("MODE", 2, 6, "kept by the firmware; 1 in every known write but the vendor tool's"),
    ),
    source=f"{_OPEN}; {_TOOL}",
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
    "Offset of the data in the bulk OUT buffer; 0 in every known transaction.",
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
            doc="according to the script no flash transaction runs without it; later revisions of the open "
            "firmware read the flash and do not set it, because it kept a graphics card from enumerating",
            evidence=Evidence.GUESS,
        ),
    ),
    source=f"{_SCRIPT}; {_OPEN}",
)


def _buffer_dma(name: str, address: int, doc: str, fields: tuple[Field, ...] = ()) -> ByteRegister:
    return ByteRegister(name, Space.XDATA, address, Evidence.TRACE, doc, fields=fields, source=_SCRIPT)


FLASH_DMA_CHANNEL = _buffer_dma(
    "FLASH_DMA_CHANNEL",
    0xC8B6,
    "DMA of the buffer: written 0 around a read, then polled.",
    (Field("ACTIVE", 7, doc="the buffer is being filled"),),
)
FLASH_DMA_TRIGGER = _buffer_dma(
    "FLASH_DMA_TRIGGER",
    0xC8B8,
    "DMA of the buffer: written 0 around a read, then polled.",
    (Field("START", 0, doc="a transfer is pending"),),
)
FLASH_DMA_STATUS = _buffer_dma("FLASH_DMA_STATUS", 0xC8D6, "DMA of the buffer: written 0 around a read.")
FLASH_DMA_STATUS2 = _buffer_dma("FLASH_DMA_STATUS2", 0xC8D8, "DMA of the buffer: written 0 around a read.")
