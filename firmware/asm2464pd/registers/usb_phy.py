"""Registers of the USB PHY and of the link's state that the chip maker's firmware uses, but the open one not.

That firmware was run on the emulator, and read. "Trace" is what it waits for or decides by; "inferred" is
what its code does with a register that has no effect on what it goes on to do.
"""

from __future__ import annotations

from firmware.asm2464pd.describe import ByteRegister, Space
from sdk.facts.registers import Access, Evidence, Field

_RUN = "the chip maker's firmware: it goes on with this and not without it"
_CODE = "the chip maker's firmware, disassembled"

USB_PHY_READY = ByteRegister(
    "USB_PHY_READY",
    Space.XDATA,
    0xC6B3,
    Evidence.TRACE,
    "The PHY is ready: polled at start, without a time-out, until one of the bits is set.",
    access=Access.RO,
    reset=0x30,
    fields=(Field("READY", 4, 2),),
    source=_RUN,
)
USB_PHY_DONE = ByteRegister(
    "USB_PHY_DONE",
    Space.XDATA,
    0xE318,
    Evidence.INFERRED,
    "Polled for at most 0.2 s after the pulse of USB_PHY_CONTROL.START.",
    fields=(Field("DONE", 4, doc="the PHY has started"),),
    source=f"{_CODE}; without the bit the firmware only waits longer",
)
USB_LINK_STATE = ByteRegister(
    "USB_LINK_STATE",
    Space.XDATA,
    0x92FB,
    Evidence.TRACE,
    "State of the SuperSpeed link, one bit at a time. Polled without a time-out at "
    "USB_LINK_EVENTS.TRAINING, if USB_PHY_CONTROL.SS_UP is not set: 0x01, 0x08, 0x20 and 0x40 are success, "
    "0x02 and 0x80 failure; at 0x04 the firmware looks at USB_LINK_ALTERNATE.EVENT6 and "
    "USB_LINK_EVENTS.POWER.",
    access=Access.RO,
    fields=(
        Field(
            "STATE",
            0,
            8,
            doc="that the link shows FAILED when it is lost is a guess",
            values={0x01: "UP", 0x02: "FAILED", 0x04: "UNDECIDED"},
        ),
    ),
    source=f"{_RUN} (0x01); the others: {_CODE}",
)
USB_LINK_FURTHER = ByteRegister(
    "USB_LINK_FURTHER",
    Space.XDATA,
    0x9302,
    Evidence.INFERRED,
    "Further link events, of unknown meaning; never set here. Bits 5 to 0 are served as USB_EVENTS.LINK, "
    "bit 7 as USB_EVENTS.LINK_ALTERNATE.",
    access=Access.W1C,
    fields=(
        Field("EVENT0", 0),
        Field("EVENT1", 1),
        Field("EVENT2", 2),
        Field("EVENT3", 3),
        Field("EVENT4", 4),
        Field("EVENT5", 5),
        Field("EVENT7", 7),
    ),
    source=_CODE,
)
USB_LINK_ALTERNATE_MASK = ByteRegister(
    "USB_LINK_ALTERNATE_MASK",
    Space.XDATA,
    0x9304,
    Evidence.INFERRED,
    "Written 0x3F: by its value the mask of USB_LINK_ALTERNATE, 1 for masked; disputed (link-masks).",
    source=_CODE,
)
USB_LINK_FURTHER_MASK = ByteRegister(
    "USB_LINK_FURTHER_MASK",
    Space.XDATA,
    0x9305,
    Evidence.INFERRED,
    "Written 0x40: by its value the mask of USB_LINK_FURTHER, 1 for masked; disputed (link-masks).",
    source=_CODE,
)


def _stored(name: str, address: int, doc: str, *fields: Field) -> ByteRegister:
    return ByteRegister(
        name, Space.XDATA, address, Evidence.INFERRED, f"{doc} Storage here.", fields=fields, source=_CODE
    )


USB_POWER_92E0 = _stored("USB_POWER_92E0", 0x92E0, "Bit 1 is set at USB_LINK_ALTERNATE.EVENT7.")
USB_POWER_92E1 = _stored(
    "USB_POWER_92E1",
    0x92E1,
    "Written 0x10 whenever USB_POWER_STATUS.USB_PATH is set; bit 6 is set when that is cleared.",
)
USB_POWER_STATE = _stored(
    "USB_POWER_STATE",
    0x92F7,
    "A power state; the main loop waits for two of its values.",
    Field("STATE", 4, 4, values={0xA: "AWAITED_A", 0xB: "AWAITED_B"}),
)
USB_TRANSPORT = _stored(
    "USB_TRANSPORT",
    0x9000,
    "Which transport of the mass-storage class the endpoints carry.",
    Field("UAS", 0, doc="USB Attached SCSI; else Bulk-Only Transport"),
)
UAS_EVENTS = _stored(
    "UAS_EVENTS", 0x9118, "With USB_TRANSPORT.UAS: which of the registers from EP_COMPLETE on is not 0."
)

REGISTERS = (
    USB_PHY_READY,
    USB_PHY_DONE,
    USB_LINK_STATE,
    USB_LINK_FURTHER,
    USB_LINK_ALTERNATE_MASK,
    USB_LINK_FURTHER_MASK,
    USB_POWER_92E0,
    USB_POWER_92E1,
    USB_POWER_STATE,
    USB_TRANSPORT,
    UAS_EVENTS,
)
"""All of them, for the collection of all registers."""
