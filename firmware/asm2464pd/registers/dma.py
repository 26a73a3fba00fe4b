"""Registers of the DMA engines between the USB endpoints and the SRAM.

The slot DMA moves whole slots of the SRAM to and from the bulk endpoints without the CPU. Its write order is
that of the open firmware, which streams with it on silicon; the names of its bits are ours. A second engine
shares some of the registers, and the vendor's mass-storage firmware uses a third. Of these two, only the
registers that are known to exist are listed. The fill engine sets memory to one byte.
"""

from __future__ import annotations

from firmware.asm2464pd.describe import ByteRegister, Space
from sdk.facts.registers import Access, Evidence, Field

_OPEN = "open firmware, main.c"
_EXPLORE = "open firmware's repository, dma_explore.py"
_HEADER = "open firmware's repository, registers.h"

DMA_CONTROL = ByteRegister(
    "DMA_CONTROL",
    Space.XDATA,
    0xC412,
    Evidence.TRACE,
    "Direction of the slot DMA, and whether a write of DMA_ARM starts it. Keeps its value over transfers: "
    "another transfer can be armed without writing it.",
    fields=(
        Field("TO_SRAM", 0, doc="bulk OUT to SRAM; else SRAM to bulk IN"),
        Field("START", 1, doc="set in every known transfer"),
    ),
    source=_OPEN,
)
DMA_SLOT_FIRST = ByteRegister(
    "DMA_SLOT_FIRST",
    Space.XDATA,
    0xC414,
    Evidence.TRACE,
    "First slot of the transfer.",
    fields=(
        Field("SLOT", 0, 6, "number of the slot, 0 to 31; a slot is 16 KiB of SRAM"),
        Field("VALID", 7, doc="set in every known transfer", evidence=Evidence.INFERRED),
    ),
    source=_OPEN,
)
DMA_SLOT_END = ByteRegister(
    "DMA_SLOT_END",
    Space.XDATA,
    0xC415,
    Evidence.TRACE,
    "The slot after the last one of the transfer.",
    fields=(Field("SLOT", 0, 6, "number of the slot, 1 to 32"),),
    source=_OPEN,
)
DMA_SECTOR_SIZE = ByteRegister(
    "DMA_SECTOR_SIZE",
    Space.XDATA,
    0xC422,
    Evidence.TRACE,
    "Bytes of a sector; 512 is the only value known to work.",
    size=2,
    source=_OPEN,
)
DMA_SECTORS = ByteRegister(
    "DMA_SECTORS", Space.XDATA, 0xC426, Evidence.TRACE, "Sectors to transfer.", size=2, source=_OPEN
)
DMA_ARM = ByteRegister(
    "DMA_ARM",
    Space.XDATA,
    0xC429,
    Evidence.INFERRED,
    "The first slot again. Writing it, last, arms the transfer. Written while a transfer to the SRAM runs, "
    "it arms one that begins when this has ended: a published driver's copy-in does it all the time on "
    "silicon (trace; that the engine is what waits is inferred). An older note takes any write to these "
    "registers meanwhile for undefined. No register is known that says whether the engine runs.",
    source=f"{_OPEN}; a script that arms again without writing DMA_CONTROL; a published driver's copy-in",
)
DMA_RELEASE = ByteRegister(
    "DMA_RELEASE",
    Space.XDATA,
    0xC42A,
    Evidence.TRACE,
    "Written 0 before a slot transfer; 1 releases the bulk OUT buffer after a copy by the second engine.",
    fields=(Field("RELEASE", 0, doc="the bulk OUT buffer reads as itself again"),),
    source=f"{_OPEN}; {_EXPLORE}",
)

# The second engine: copies the bulk OUT buffer to the SRAM window. It shares DMA_SECTOR_SIZE to DMA_RELEASE.


def _second(name: str, address: int, doc: str) -> ByteRegister:
    return ByteRegister(name, Space.XDATA, address, Evidence.GUESS, doc, source=_EXPLORE)


DMA_COPY_ENABLE = _second("DMA_COPY_ENABLE", 0xC400, "Second engine: written 1 to copy.")
DMA_COPY_MODE = _second("DMA_COPY_MODE", 0xC401, "Second engine: written 1 to copy; 2 and 3 use a length.")
DMA_COPY_C402 = _second("DMA_COPY_C402", 0xC402, "Second engine: written 1 to copy.")
DMA_COPY_C404 = _second("DMA_COPY_C404", 0xC404, "Second engine: written 1 to copy.")
DMA_COPY_TRIGGER = _second("DMA_COPY_TRIGGER", 0xC406, "Second engine: written 1, last, to copy.")
DMA_COPY_C420 = _second("DMA_COPY_C420", 0xC420, "Second engine, descriptor: written 0.")
DMA_COPY_C421 = _second("DMA_COPY_C421", 0xC421, "Second engine, descriptor: written 1.")
DMA_COPY_C424 = _second("DMA_COPY_C424", 0xC424, "Second engine, descriptor: written 0.")
DMA_COPY_C425 = _second("DMA_COPY_C425", 0xC425, "Second engine, descriptor: written 0.")
DMA_COPY_C428 = _second("DMA_COPY_C428", 0xC428, "Second engine, descriptor: written 0x30.")
DMA_COPY_C42B = _second("DMA_COPY_C42B", 0xC42B, "Second engine, descriptor: written 0.")

# The engine of the vendor's mass-storage firmware.

DMA_SCSI_CONTROL = ByteRegister(
    "DMA_SCSI_CONTROL", Space.XDATA, 0xCE00, Evidence.GUESS, "SCSI data phase: control.", source=_HEADER
)
DMA_SCSI_ADDRESS = ByteRegister(
    "DMA_SCSI_ADDRESS",
    Space.XDATA,
    0xCE76,
    Evidence.GUESS,
    "SCSI data phase: address in the buffer.",
    size=4,
    little=True,
    source=_HEADER,
)

# The fill engine: sets a stretch of memory to one byte.

_FILLS = "the chip maker's firmware: clears the queue memories at start and at every state reset of USB"


def _fill(
    name: str, address: int, evidence: Evidence, doc: str, fields: tuple[Field, ...] = (), size: int = 1
) -> ByteRegister:
    return ByteRegister(name, Space.XDATA, address, evidence, doc, fields=fields, size=size, source=_FILLS)


DMA_FILL_ADDRESS = _fill("DMA_FILL_ADDRESS", 0xC8B2, Evidence.TRACE, "First XDATA address.", size=2)
DMA_FILL_LAST = _fill("DMA_FILL_LAST", 0xC8B4, Evidence.TRACE, "Bytes to fill, less one.", size=2)
DMA_FILL_CHANNEL = _fill(
    "DMA_FILL_CHANNEL",
    0xC8B6,
    Evidence.TRACE,
    "Channel: bits 2 and 7 are set and bits 0 and 1 clear while it runs. The open firmware's flash script "
    "writes 0 around a read, and polls bit 7.",
    (Field("MODE", 0, 2), Field("FILL", 2), Field("ACTIVE", 7)),
)
DMA_FILL_BYTE = _fill(
    "DMA_FILL_BYTE", 0xC8B7, Evidence.TRACE, "What each byte is set to; 0 in every known use."
)
DMA_FILL_TRIGGER = ByteRegister(
    "DMA_FILL_TRIGGER",
    Space.XDATA,
    0xC8B8,
    Evidence.TRACE,
    "Starts the fill; busy until it is over. The open firmware's flash script writes 0 around a read.",
    access=Access.SELF_CLEARING,
    fields=(Field("START", 0, doc="write 1 to start; reads 1 while the fill runs"),),
    source=_FILLS,
)
_BANK = (
    "set for the first of two like fills of these memories, clear for the second: by this probably the "
    "choice between two banks of them, of which the CPU sees the second."
)
DMA_FILL_BANK_CQ = _fill(
    "DMA_FILL_BANK_CQ",
    0xC8D6,
    Evidence.INFERRED,
    f"Fills of 0xB800 to 0xBFFF: bit 1 is {_BANK}",
    (Field("OTHER", 1, doc="the bank that the CPU does not see"),),
)
DMA_FILL_BANK_SQ = _fill(
    "DMA_FILL_BANK_SQ",
    0xC8D8,
    Evidence.INFERRED,
    f"Fills of 0xA000 to 0xB1FF: bit 1 is {_BANK}",
    (Field("OTHER", 1, doc="the bank that the CPU does not see"),),
)
