"""Interrupt registers: what raises the 8051's INT0 and INT1 lines, and why.

The summaries are status, not latched events: each bit follows the register that it represents, and clears
when firmware acknowledges there. INT0 has to be level-triggered (TCON.IT0 = 0): the open firmware serves one
cause each time its handler is entered, and relies on being entered again.
"""

from __future__ import annotations

from firmware.asm2464pd.describe import ByteRegister, Space
from sdk.facts.registers import Access, Evidence, Field

OPEN = "open firmware, main.c"
HEADER = "open firmware, registers.h"
MAKER = "the chip maker's firmware, disassembled"

USB_EVENTS = ByteRegister(
    "USB_EVENTS",
    Space.XDATA,
    0x9101,
    Evidence.TRACE,
    "Pending events of the USB controller; each bit is set while the register it names is not 0.",
    access=Access.RO,
    fields=(
        Field("LINK_TRAINING", 0, doc="USB_LINK_EVENTS (0x91D1): SuperSpeed link events and bus reset"),
        Field("CONTROL", 1, doc="EP0_PHASE (0x9091)"),
        Field("BULK", 2, doc="BULK_EVENTS (0x9093)"),
        Field("LINK_ALTERNATE", 3, doc="USB_LINK_ALTERNATE (0x9301), bit 7 of USB_LINK_FURTHER (0x9302)"),
        Field("LINK", 4, doc="USB_LINK_STATUS (0x9300), the other bits of USB_LINK_FURTHER (0x9302)"),
        Field("EP_COMPLETE", 5, doc="EP_COMPLETE (0x9096)", evidence=Evidence.INFERRED),
        Field("COMMAND", 6, doc="MSC_EVENT (0x90E2): a command wrapper", evidence=Evidence.INFERRED),
    ),
    source=f"{OPEN}; {HEADER}: status, not write-1-to-clear",
)

INT_CONTROL = ByteRegister(
    "INT_CONTROL",
    Space.XDATA,
    0xC800,
    Evidence.HARDWARE,
    "Enables interrupts to the CPU.",
    fields=(Field("GLOBAL", 0, doc="without it the CPU gets no interrupt"), Field("PCIE", 2)),
    source=f"{OPEN}, on silicon; {HEADER}",
)

INT_ENABLE = ByteRegister(
    "INT_ENABLE",
    Space.XDATA,
    0xC801,
    Evidence.INFERRED,
    "Interrupt enables that the open firmware leaves alone; no effect is modelled.",
    fields=(Field("GLOBAL", 0), Field("USB", 1), Field("PCIE", 2), Field("SYSTEM", 4)),
    source=HEADER,
)

INT_USB = ByteRegister(
    "INT_USB",
    Space.XDATA,
    0xC802,
    Evidence.TRACE,
    "Summary of the INT0 causes: the line is asserted while this is not 0.",
    access=Access.RO,
    fields=(
        Field("USB", 0, doc="USB_EVENTS is not 0"),
        Field("MSC", 2, doc="mass-storage engine; never set here", evidence=Evidence.INFERRED),
    ),
    source=f"{OPEN}; {HEADER}",
)

INT_SYSTEM = ByteRegister(
    "INT_SYSTEM",
    Space.XDATA,
    0xC806,
    Evidence.INFERRED,
    "System causes of INT1.",
    access=Access.RO,
    fields=(
        Field("EVENT", 0, doc="never set here"),
        Field("TIMER", 4, doc="TIMER3_CSR.EXPIRED or one of INT_EVENT_CC81 and the like"),
        Field("LINK", 5, doc="served with INT0: INT_QUEUE_CEF3, INT_QUEUE_CEF2; never set here"),
    ),
    source=f"{HEADER}; {MAKER}",
)

INT_PCIE = ByteRegister(
    "INT_PCIE",
    Space.XDATA,
    0xC80A,
    Evidence.INFERRED,
    "PCIe and NVMe causes of INT1; never set here.",
    access=Access.RO,
    fields=(Field("COMPLETION", 4), Field("LINK", 5), Field("QUEUE", 6)),
    source=f"{HEADER}; {MAKER}",
)


def _event(address: int) -> ByteRegister:
    return ByteRegister(
        f"INT_EVENT_{address:04X}",
        Space.XDATA,
        address,
        Evidence.INFERRED,
        "A cause of INT_SYSTEM.TIMER, of unknown meaning; never set here.",
        access=Access.W1C,
        fields=(Field("EVENT", 1, doc="write 1 to clear"),),
        source=MAKER,
    )


INT_EVENT_CC81 = _event(0xCC81)
INT_EVENT_CC91 = _event(0xCC91)
INT_EVENT_CCD9 = _event(0xCCD9)

INT_QUEUE_CEF2 = ByteRegister(
    "INT_QUEUE_CEF2",
    Space.XDATA,
    0xCEF2,
    Evidence.INFERRED,
    "Looked at with INT_SYSTEM.LINK; storage here.",
    fields=(Field("EVENT", 7),),
    source=MAKER,
)
INT_QUEUE_CEF3 = ByteRegister(
    "INT_QUEUE_CEF3",
    Space.XDATA,
    0xCEF3,
    Evidence.INFERRED,
    "Looked at with INT_SYSTEM.LINK; storage here.",
    fields=(Field("EVENT", 3),),
    source=MAKER,
)
