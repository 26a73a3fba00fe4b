"""Registers of the USB device controller: link, EP0, bulk endpoints and the mass-storage engine.

Their buffers (EP0 at 0x9E00, bulk OUT at 0x7000, bulk IN at 0x8000, mass storage at 0xD800) are in memory.py,
the summary of events in interrupts.py, the SerDes lanes in phy.py.
"""

from __future__ import annotations

from firmware.asm2464pd.describe import ByteRegister, Space
from firmware.asm2464pd.registers import usb_phy
from sdk.facts.registers import Access, Evidence, Field

OPEN = "open firmware, usb.h and main.c"
HEADER = "open firmware, registers.h"
MAKER = "the chip maker's firmware"
"""What is graded trace because of it: on the emulator it goes on with this behaviour, and not without."""

# -- set-up and link --------------------------------------------------------------------------------------

USB_CONFIG = ByteRegister(
    "USB_CONFIG",
    Space.XDATA,
    0x9002,
    Evidence.HARDWARE,
    "Written 0xE0 at set-up, without which silicon has no USB interrupts; reads back 0x20.",
    access=Access.WO,
    reset=0x20,
    fields=(
        Field(
            "STATUS_ANSWERED",
            1,
            doc="a flag of firmware that reads back: set with EP0_COMMAND.ACCEPT_STATUS, cleared at SETUP",
            evidence=Evidence.INFERRED,
        ),
    ),
    source=f"{OPEN}; {HEADER}; the flag: {MAKER}, disassembled",
)

USB_BULK_EVENT_ENABLE = ByteRegister(
    "USB_BULK_EVENT_ENABLE",
    Space.XDATA,
    0x9005,
    Evidence.TRACE,
    "Written 0xF0 at set-up: enables bulk events.",
    source=OPEN,
)

USB_EP_EVENT_ENABLE = ByteRegister(
    "USB_EP_EVENT_ENABLE",
    Space.XDATA,
    0x9010,
    Evidence.TRACE,
    "Written 0x00 at set-up: enables EP_COMPLETE events.",
    source=OPEN,
)

USB_EP_MANAGEMENT = ByteRegister(
    "USB_EP_MANAGEMENT", Space.XDATA, 0x905E, Evidence.TRACE, "Written 0x00 at set-up.", source=OPEN
)

USB_ADDRESS = ByteRegister(
    "USB_ADDRESS",
    Space.XDATA,
    0x9090,
    Evidence.TRACE,
    "Device address, written while SET_ADDRESS is handled; a bus reset clears the address.",
    fields=(
        Field("ADDRESS", 0, 7, doc="device address"),
        Field(
            "ENABLE", 7, doc="bulk endpoints work; set together with the address", evidence=Evidence.INFERRED
        ),
    ),
    source=OPEN,
)

USB_ADDRESS_COMMIT = ByteRegister(
    "USB_ADDRESS_COMMIT",
    Space.XDATA,
    0x91D0,
    Evidence.TRACE,
    "Written 0x02 right after USB_ADDRESS.",
    source=OPEN,
)

USB_LINK_SPEED = ByteRegister(
    "USB_LINK_SPEED",
    Space.XDATA,
    0x9100,
    Evidence.TRACE,
    "Speed of the link that came up; what it reads at 10 Gb/s is disputed (super-plus-code).",
    access=Access.RO,
    fields=(
        Field(
            "SPEED",
            0,
            2,
            values={0: "FULL", 1: "HIGH", 2: "SUPER", 3: "SUPER_PLUS"},
        ),
    ),
    source=f"{OPEN}; {HEADER}",
)

USB_PHY_CONTROL = ByteRegister(
    "USB_PHY_CONTROL",
    Space.XDATA,
    0x91C0,
    Evidence.TRACE,
    "USB PHY control and link state.",
    fields=(
        Field(
            "START",
            0,
            doc="set and cleared again at the end of the set-up: starts the SuperSpeed PHY, and the link "
            "looks for a partner",
        ),
        Field(
            "SS_UP",
            1,
            doc="the SuperSpeed link is up; who sets it is disputed (ss-up)",
            evidence=Evidence.HARDWARE,
        ),
        Field("HIGH_SPEED", 4, doc="connect at High Speed; written with USB_MODE = 0"),
    ),
    source=f"{OPEN}; {HEADER}; START: {MAKER}",
)

USB_LINK_EVENTS = ByteRegister(
    "USB_LINK_EVENTS",
    Space.XDATA,
    0x91D1,
    Evidence.TRACE,
    "Link events; firmware writes back the value it reads.",
    access=Access.W1C,
    fields=(
        Field("TRAINING", 0, doc="link training or recovery, link loss"),
        Field("FLAG", 1),
        Field("RESET", 2, doc="bus reset"),
        Field("POWER", 3, doc="power management (U1, U2)"),
    ),
    source=f"{OPEN}; {HEADER}",
)

USB_POWER_ENABLE = ByteRegister(
    "USB_POWER_ENABLE",
    Space.XDATA,
    0x92C0,
    Evidence.INFERRED,
    "Power domains of the controller.",
    reset=0x80,
    fields=(Field("ENABLE", 0), Field("MAIN", 7, doc="main power; set after reset")),
    source="open firmware, test.py reads bit 7 as 1 though nothing writes it",
)

USB_POWER_STATUS = ByteRegister(
    "USB_POWER_STATUS",
    Space.XDATA,
    0x92C2,
    Evidence.TRACE,
    "Power of the USB path.",
    reset=0x40,
    fields=(
        Field("READY", 1),
        Field(
            "USB_PATH", 6, doc="cleared at set-up; before, the link comes up only by USB_PHY_CONTROL.START"
        ),
    ),
    source=f"{OPEN}; {MAKER}; reset value inferred from the clearing",
)

USB_LINK_STATUS = ByteRegister(
    "USB_LINK_STATUS",
    Space.XDATA,
    0x9300,
    Evidence.TRACE,
    "How the SuperSpeed link attempt ended.",
    access=Access.W1C,
    fields=(
        Field("SS_OK", 1, doc="SuperSpeed link established"),
        Field("SS_FAIL", 2, doc="no SuperSpeed: firmware sets USB_MODE = 0 and USB_PHY_CONTROL.HIGH_SPEED"),
        Field("SS_EVENT", 3, doc="another SuperSpeed event"),
    ),
    source=f"{OPEN}; {HEADER}: bit 1 verified on silicon",
)

USB_LINK_ALTERNATE = ByteRegister(
    "USB_LINK_ALTERNATE",
    Space.XDATA,
    0x9301,
    Evidence.TRACE,
    "Further link events, of unknown meaning; never set here.",
    access=Access.W1C,
    fields=(Field("EVENT6", 6), Field("EVENT7", 7)),
    source=OPEN,
)

USB_LINK_STATUS_MASK = ByteRegister(
    "USB_LINK_STATUS_MASK",
    Space.XDATA,
    0x9303,
    Evidence.INFERRED,
    "Written 0x33 at set-up; keeps it. By its value probably the mask of USB_LINK_STATUS, 1 for masked: "
    "disputed (link-masks).",
    source=f"{OPEN}; {MAKER} writes the complements of its masks to the event registers",
)

USB_MODE = ByteRegister(
    "USB_MODE",
    Space.XDATA,
    0xCC30,
    Evidence.TRACE,
    "Which speeds the controller tries.",
    reset=0x01,
    fields=(Field("SUPER_SPEED", 0, doc="1: SuperSpeed; 0: USB 2 only"),),
    source=f"{OPEN}; {HEADER}",
)

# -- EP0 --------------------------------------------------------------------------------------------------

EP0_PHASE = ByteRegister(
    "EP0_PHASE",
    Space.XDATA,
    0x9091,
    Evidence.TRACE,
    "Phase of the control transfer on EP0; firmware acknowledges each bit.",
    access=Access.W1C,
    fields=(
        Field("SETUP", 0, doc="a SETUP packet is in EP0_REQUEST_TYPE to EP0_REQUEST_LENGTH"),
        Field("STATUS_OUT", 1, doc="the host has begun the status stage of an IN transfer"),
        Field("DATA_OUT", 2, doc="data of an OUT transfer is at 0x9E00"),
        Field(
            "IN_WANTED",
            3,
            doc="the host asks for IN data that EP0 does not have; at High Speed this includes the empty "
            "packet of a status stage, OUT or no data",
        ),
        Field("STATUS_IN_SS", 4, doc="SuperSpeed: the host has begun the status stage, OUT or no data"),
    ),
    source=f"{OPEN}; IN_WANTED at SuperSpeed: {MAKER} sends only then",
)

EP0_COMMAND = ByteRegister(
    "EP0_COMMAND",
    Space.XDATA,
    0x9092,
    Evidence.TRACE,
    "Starts the next step of a control transfer; reads 0 once accepted.",
    access=Access.SELF_CLEARING,
    fields=(
        Field("STALL", 0, doc="STALL the transfer"),
        Field("ACCEPT_STATUS", 1, doc="complete the status stage of an IN transfer"),
        Field("SEND", 2, doc="send EP0_IN_LENGTH bytes from 0x9E00, 0: an empty packet"),
        Field("FINISH_STATUS", 3, doc="SuperSpeed: complete the status stage of an OUT or no-data transfer"),
    ),
    source=f"{OPEN}; {HEADER}",
)

EP0_IN_LENGTH = ByteRegister(
    "EP0_IN_LENGTH",
    Space.XDATA,
    0x9003,
    Evidence.TRACE,
    "Bytes that EP0_COMMAND.SEND sends, at most 512.",
    size=2,
    source=OPEN,
)

EP0_REQUEST_TYPE = ByteRegister(
    "EP0_REQUEST_TYPE",
    Space.XDATA,
    0x9104,
    Evidence.TRACE,
    "bmRequestType of the last SETUP packet.",
    access=Access.RO,
    fields=(
        Field("RECIPIENT", 0, 5, values={0: "DEVICE", 1: "INTERFACE", 2: "ENDPOINT"}),
        Field("TYPE", 5, 2, values={0: "STANDARD", 1: "CLASS", 2: "VENDOR"}),
        Field("IN", 7, doc="device to host"),
    ),
    source=OPEN,
)

EP0_REQUEST = ByteRegister(
    "EP0_REQUEST",
    Space.XDATA,
    0x9105,
    Evidence.TRACE,
    "bRequest of the last SETUP packet.",
    access=Access.RO,
    source=OPEN,
)

EP0_REQUEST_VALUE = ByteRegister(
    "EP0_REQUEST_VALUE",
    Space.XDATA,
    0x9106,
    Evidence.TRACE,
    "wValue of the last SETUP packet.",
    access=Access.RO,
    size=2,
    little=True,
    source=OPEN,
)

EP0_REQUEST_INDEX = ByteRegister(
    "EP0_REQUEST_INDEX",
    Space.XDATA,
    0x9108,
    Evidence.TRACE,
    "wIndex of the last SETUP packet.",
    access=Access.RO,
    size=2,
    little=True,
    source=OPEN,
)

EP0_REQUEST_LENGTH = ByteRegister(
    "EP0_REQUEST_LENGTH",
    Space.XDATA,
    0x910A,
    Evidence.TRACE,
    "wLength of the last SETUP packet.",
    access=Access.RO,
    size=2,
    little=True,
    source=OPEN,
)

EP_COMPLETE = ByteRegister(
    "EP_COMPLETE",
    Space.XDATA,
    0x9096,
    Evidence.INFERRED,
    "Packets of the mass-storage engine that the host has read; firmware writes back the value it reads.",
    access=Access.W1C,
    fields=(Field("IN", 0, doc="the host has read the engine's IN packet"),),
    source=f"{OPEN}; {HEADER}",
)

# -- bulk endpoints 0x02 (OUT) and 0x81 (IN) --------------------------------------------------------------

BULK_EVENTS = ByteRegister(
    "BULK_EVENTS",
    Space.XDATA,
    0x9093,
    Evidence.TRACE,
    "Completions of the bulk endpoints.",
    access=Access.W1C,
    fields=(
        Field(
            "OUT_WANTED",
            0,
            doc="never set here: the open firmware would not clear it",
            evidence=Evidence.INFERRED,
        ),
        Field("OUT_DONE", 1, doc="a packet has arrived at 0x7000"),
        Field(
            "IN_WANTED",
            2,
            doc="never set here: the open firmware would not clear it",
            evidence=Evidence.INFERRED,
        ),
        Field("IN_DONE", 3, doc="the host has read the packet"),
    ),
    source=OPEN,
)

BULK_COMMAND = ByteRegister(
    "BULK_COMMAND",
    Space.XDATA,
    0x9094,
    Evidence.TRACE,
    "Arms or clears a bulk endpoint.",
    access=Access.SELF_CLEARING,
    fields=(
        Field("CLEAR_IN", 0, doc="EP 0x81: disarm, clear halt and data toggle"),
        Field("ARM_IN", 1, doc="EP 0x81: send BULK_IN_LENGTH bytes from 0x8000, one packet"),
        Field("CLEAR_OUT", 3, doc="EP 0x02: disarm, clear halt and data toggle"),
        Field("ARM_OUT", 4, doc="EP 0x02: receive one packet at 0x7000"),
    ),
    source=OPEN,
)

BULK_IN_LENGTH = ByteRegister(
    "BULK_IN_LENGTH",
    Space.XDATA,
    0x9007,
    Evidence.TRACE,
    "Bytes of the next IN packet: at most 1024 at SuperSpeed, 512 at High Speed.",
    size=2,
    source=OPEN,
)

BULK_HALT = ByteRegister(
    "BULK_HALT",
    Space.XDATA,
    0x9006,
    Evidence.TRACE,
    "Halts of the bulk endpoints: firmware sets them to answer STALL, and clears them for CLEAR_FEATURE "
    "together with BULK_COMMAND.",
    fields=(
        Field("IN", 0, doc="EP 0x81 answers STALL"),
        Field("OUT", 7, doc="EP 0x02 answers STALL"),
    ),
    source=f"{MAKER}: also what it answers to GET_STATUS",
)


def _halt(name: str, address: int, endpoint: int) -> ByteRegister:
    return ByteRegister(
        name,
        Space.XDATA,
        address,
        Evidence.INFERRED,
        f"Halt of a further bulk endpoint; that it is EP {endpoint:#04x}, and not the other one, is a guess.",
        fields=(Field("HALT", 0, doc="the endpoint answers STALL"),),
        source=f"{MAKER}, disassembled",
    )


BULK_HALT_STATUS = _halt("BULK_HALT_STATUS", 0x905F, 0x83)
BULK_HALT_COMMAND = _halt("BULK_HALT_COMMAND", 0x905D, 0x04)

BULK_OUT_COUNT = ByteRegister(
    "BULK_OUT_COUNT",
    Space.XDATA,
    0x910D,
    Evidence.TRACE,
    "Bytes of the last OUT packet.",
    access=Access.RO,
    size=2,
    source=OPEN,
)

BULK_OUT_COUNT_MIRROR = ByteRegister(
    "BULK_OUT_COUNT_MIRROR",
    Space.XDATA,
    0x9114,
    Evidence.TRACE,
    "The same as BULK_OUT_COUNT.",
    access=Access.RO,
    size=2,
    source=OPEN,
)

# -- mass-storage engine ----------------------------------------------------------------------------------

MSC_CONFIG = ByteRegister(
    "MSC_CONFIG",
    Space.XDATA,
    0x900B,
    Evidence.TRACE,
    "Paths of the mass-storage engine. Writing 0 disconnects it from the bulk endpoints until MSC_CONTROL "
    "arms it again; whether that works while this is 0 is disputed (msc-arming).",
    fields=(
        Field("ENABLE", 0),
        Field("BULK_PATH", 1),
        Field("DMA_PATH", 2),
    ),
    source=f"{OPEN}; {HEADER}",
)

MSC_LENGTH = ByteRegister(
    "MSC_LENGTH",
    Space.XDATA,
    0x901A,
    Evidence.TRACE,
    "Bytes that MSC_CONTROL and MSC_STATUS_SEND send from 0xD800: 13, a status wrapper.",
    reset=0x0D,
    source=HEADER,
)

MSC_EVENT = ByteRegister(
    "MSC_EVENT",
    Space.XDATA,
    0x90E2,
    Evidence.INFERRED,
    "The mass-storage engine has received a command wrapper.",
    access=Access.W1C,
    fields=(Field("COMMAND", 0, doc="a command wrapper is in the MSC_CBW registers"),),
    source=f"{OPEN}; {HEADER}: written 0x01 before a command is handled",
)

MSC_EP_STATUS = ByteRegister(
    "MSC_EP_STATUS",
    Space.XDATA,
    0x90E3,
    Evidence.TRACE,
    "Written 0x02 when an endpoint completion is handled; no effect is modelled.",
    access=Access.WO,
    source=HEADER,
)

MSC_CONTROL = ByteRegister(
    "MSC_CONTROL",
    Space.XDATA,
    0xC42C,
    Evidence.TRACE,
    "Write 0x01: wait for a command, or end the one that is outstanding with the status wrapper at 0xD800. "
    "Once armed, the engine waits for one command after another, over bus resets too.",
    access=Access.SELF_CLEARING,
    fields=(Field("START", 0),),
    source=f"{HEADER}; over bus resets: {MAKER} arms once, when the link trains",
)

MSC_STATUS = ByteRegister(
    "MSC_STATUS",
    Space.XDATA,
    0xC42D,
    Evidence.TRACE,
    "Bit 0 is cleared after each use of MSC_CONTROL; no effect is modelled.",
    fields=(Field("PENDING", 0),),
    source=HEADER,
)

MSC_STATUS_SEND = ByteRegister(
    "MSC_STATUS_SEND",
    Space.XDATA,
    0x90A1,
    Evidence.TRACE,
    "Write 0x01: end the outstanding command with the status wrapper at 0xD800, as MSC_CONTROL does.",
    access=Access.SELF_CLEARING,
    fields=(Field("START", 0),),
    source=f"{MAKER}: its only way to send one",
)

MSC_ERROR = ByteRegister(
    "MSC_ERROR",
    Space.XDATA,
    0xCE86,
    Evidence.HARDWARE,
    "State of what EP 0x02 has received; 0x08 when idle.",
    access=Access.RO,
    reset=0x08,
    fields=(Field("ERROR", 4, doc="never set here", evidence=Evidence.INFERRED),),
    source=f"{HEADER}: observed; the bit: {MAKER}, disassembled",
)

MSC_STREAM = ByteRegister(
    "MSC_STREAM",
    Space.XDATA,
    0xCE88,
    Evidence.TRACE,
    "Stream of which MSC_RECEIVED is wanted; written 0 at every command wrapper of Bulk-Only Transport.",
    source=f"{HEADER}; {MAKER}",
)

MSC_RECEIVED = ByteRegister(
    "MSC_RECEIVED",
    Space.XDATA,
    0xCE89,
    Evidence.HARDWARE,
    "What EP 0x02 has received last. Seen: 0x03 when idle, 0x07 after the first command wrapper, later 0x05.",
    access=Access.RO,
    reset=0x03,
    fields=(
        Field("READY", 0, doc="the other bits are valid; polled after a write of MSC_STREAM"),
        Field("WRAPPER", 1, doc="1: a command wrapper, 0: data"),
        Field("USED", 2, doc="set from the first command wrapper on", evidence=Evidence.INFERRED),
    ),
    source=f"{HEADER}: observed; READY and WRAPPER: {MAKER}",
)

MSC_CBW_COUNT = ByteRegister(
    "MSC_CBW_COUNT",
    Space.XDATA,
    0x9119,
    Evidence.HARDWARE,
    "Bytes of the last command wrapper: 0x001F.",
    access=Access.RO,
    size=2,
    source=f"{HEADER}: 0x00, 0x1F seen; {MAKER} refuses a command with any other",
)

MSC_CBW_SIGNATURE = ByteRegister(
    "MSC_CBW_SIGNATURE",
    Space.XDATA,
    0x911B,
    Evidence.HARDWARE,
    'dCBWSignature of the last command, "USBC".',
    access=Access.RO,
    size=4,
    little=True,
    source=f"{HEADER}: layout verified by firmware on silicon",
)

MSC_CBW_TAG = ByteRegister(
    "MSC_CBW_TAG",
    Space.XDATA,
    0x911F,
    Evidence.HARDWARE,
    "dCBWTag, to be repeated in the status wrapper.",
    access=Access.RO,
    size=4,
    little=True,
    source=HEADER,
)

MSC_CBW_LENGTH = ByteRegister(
    "MSC_CBW_LENGTH",
    Space.XDATA,
    0x9123,
    Evidence.HARDWARE,
    "dCBWDataTransferLength: bytes the host expects to transfer.",
    access=Access.RO,
    size=4,
    little=True,
    source=HEADER,
)

MSC_CBW_FLAGS = ByteRegister(
    "MSC_CBW_FLAGS",
    Space.XDATA,
    0x9127,
    Evidence.HARDWARE,
    "bmCBWFlags.",
    access=Access.RO,
    fields=(Field("IN", 7, doc="data goes to the host"),),
    source=HEADER,
)

MSC_CBW_LUN = ByteRegister(
    "MSC_CBW_LUN",
    Space.XDATA,
    0x9128,
    Evidence.HARDWARE,
    "bCBWLUN.",
    access=Access.RO,
    fields=(Field("LUN", 0, 4),),
    source=HEADER,
)

MSC_CBW_CB_LENGTH = ByteRegister(
    "MSC_CBW_CB_LENGTH",
    Space.XDATA,
    0x9129,
    Evidence.HARDWARE,
    "bCBWCBLength: valid bytes of the command block.",
    access=Access.RO,
    source=HEADER,
)

MSC_CBW_CB = ByteRegister(
    "MSC_CBW_CB",
    Space.XDATA,
    0x912A,
    Evidence.HARDWARE,
    "CBWCB: the command block, operation code first.",
    access=Access.RO,
    size=16,
    source=f"{HEADER}; the last two bytes inferred",
)

REGISTERS = usb_phy.REGISTERS
"""Further registers of this block."""
