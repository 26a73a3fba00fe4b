"""Structures on the wire and in the windows that hosts and devices share with the chip.

CBW and CSW are those of the USB mass storage class, bulk-only transport 1.0, sections 5.1 and 5.2; the
completion header and the completion queue entry those of the PCIe and NVMe base specifications.
"""

from __future__ import annotations

from sdk.facts.registers import Evidence, Field
from sdk.facts.structures import Member, Struct

SETUP_PACKET = Struct(
    "SETUP_PACKET",
    8,
    (
        Member(
            "request_type",
            1,
            "bmRequestType",
            fields=(
                Field("RECIPIENT", 0, 5, values={0: "device", 1: "interface", 2: "endpoint", 3: "other"}),
                Field("TYPE", 5, 2, values={0: "standard", 1: "class", 2: "vendor"}),
                Field("IN", 7, doc="the data stage goes to the host"),
            ),
        ),
        Member("request", 1, "bRequest"),
        Member("value", 2, "wValue"),
        Member("index", 2, "wIndex"),
        Member("length", 2, "wLength"),
    ),
    "The eight bytes of a SETUP transaction, as they are in the EP0 request registers.",
    Evidence.HARDWARE,
    "USB 2.0 specification, 9.3",
)

CBW = Struct(
    "CBW",
    31,
    (
        Member("signature", 4, "dCBWSignature: 'USBC'", fixed=0x4342_5355),
        Member("tag", 4, "dCBWTag: repeated in the CSW"),
        Member("data_transfer_length", 4, "dCBWDataTransferLength: bytes of the data stage"),
        Member("flags", 1, "bmCBWFlags", fields=(Field("IN", 7, doc="the data stage goes to the host"),)),
        Member("lun", 1, "bCBWLUN", fields=(Field("LUN", 0, 4),)),
        Member("cb_length", 1, "bCBWCBLength: bytes of the CDB in use", fields=(Field("LENGTH", 0, 5),)),
        Member("cdb", 16, "CBWCB: the command, padded with zeros", raw=True),
    ),
    "Command block wrapper: the host sends it on EP 0x02 to begin a command.",
    Evidence.HARDWARE,
    "USB mass storage bulk-only transport 1.0, 5.1",
)

CSW = Struct(
    "CSW",
    13,
    (
        Member("signature", 4, "dCSWSignature: 'USBS'", fixed=0x5342_5355),
        Member("tag", 4, "dCSWTag: that of the CBW"),
        Member("data_residue", 4, "dCSWDataResidue: bytes requested but not transferred"),
        Member("status", 1, "bCSWStatus", values={0: "passed", 1: "failed", 2: "phase error"}),
    ),
    "Command status wrapper: the device sends it on EP 0x81 at the end of a command.",
    Evidence.HARDWARE,
    "USB mass storage bulk-only transport 1.0, 5.2",
)

COMPLETION_HEADER = Struct(
    "COMPLETION_HEADER",
    12,
    (
        Member("format_type", 1, "0x0A without data, 0x4A with", big=True),
        Member("traffic_class", 1),
        Member("length", 2, "of the payload, in dwords", big=True, fields=(Field("LENGTH", 0, 10),)),
        Member("completer_id", 2, "bus<<8 | device<<3 | function", big=True),
        Member(
            "status_count",
            2,
            "status and byte count",
            big=True,
            fields=(
                Field("BYTE_COUNT", 0, 12),
                Field("BCM", 12),
                Field("STATUS", 13, 3, values={0: "SC", 1: "UR", 2: "CRS", 4: "CA"}),
            ),
        ),
        Member("requester_id", 2, "bus<<8 | device<<3 | function", big=True),
        Member("tag", 1),
        Member("lower_address", 1, fields=(Field("LOWER_ADDRESS", 0, 7),)),
    ),
    "Header of the last completion, as it is in the TLP registers.",
    Evidence.TRACE,
    "PCIe base specification, 2.2.9; cyrozap/usb-to-pcie-re tool",
)

COMPLETION_QUEUE_ENTRY = Struct(
    "COMPLETION_QUEUE_ENTRY",
    16,
    (
        Member("result", 4, "command specific"),
        Member("reserved", 4),
        Member("sq_head", 2),
        Member("sq_id", 2),
        Member("command_id", 2, "first member of the dword that starts the engine"),
        Member("status", 2, fields=(Field("PHASE", 0), Field("CODE", 1, 15))),
    ),
    "A device writes it into NVME_CQ. If a slot DMA towards the host is armed, any write that touches the "
    "last dword starts it, with any phase bit: known hosts write only that dword, as zero.",
    Evidence.INFERRED,
    "NVMe base specification, 4.6; open host driver, usb.py; open firmware, SRAM test",
)
COMPLETION_TRIGGER = range(12, 16)
"""Offsets in the first entry of NVME_CQ; a write there starts an armed slot DMA towards the host."""
DRAIN_FENCE = range(0x800, 0x810)
"""Offsets in NVME_SQ of the one signal that a device is known to write there while slot DMA runs: a published
driver has the fence of its pipelined copy-in there, on silicon (trace; that it is 16 bytes, as other signals:
inferred). The same driver's notes say that signals in the rest of the page collide with a running transfer
(trace), and that full windows corrupt: taken for transfers that fill the whole SRAM (guess)."""

USB_STRUCTS: tuple[Struct, ...] = (SETUP_PACKET, CBW, CSW)
PCIE_STRUCTS: tuple[Struct, ...] = (COMPLETION_HEADER, COMPLETION_QUEUE_ENTRY)
