"""The PCIe TLP engine: one request header, one dword of data, one completion.

The CPU writes the fields of a transaction layer packet's header (PCIe base specification, 2.2), launches it,
and for a non-posted request reads the completion's header and data here. The sources are the open firmware
(pcie_pio.h, registers.h), which drives silicon this way, and cyrozap/usb-to-pcie-re, whose tool writes whole
header dwords: B210 to B213 and B214 to B217 are the first two dwords of the packet on the link.
"""

from __future__ import annotations

from firmware.asm2464pd.describe import ByteRegister, Space
from sdk.facts.registers import Access, Evidence, Field

_PIO = "open firmware, pcie_pio.h"
_REGISTERS = "open firmware, registers.h"
_TOOL = "cyrozap/usb-to-pcie-re tool"

FMT_TYPES = {
    0x00: "MRD32",
    0x20: "MRD64",
    0x40: "MWR32",
    0x60: "MWR64",
    0x04: "CFGRD0",
    0x44: "CFGWR0",
    0x05: "CFGRD1",
    0x45: "CFGWR1",
}
"""Requests that are known to work, by fmt/type byte."""

TLP_FMT_TYPE = ByteRegister(
    "TLP_FMT_TYPE",
    Space.XDATA,
    0xB210,
    Evidence.TRACE,
    "Format and type of the request to launch: the first byte of its header.",
    fields=(Field("KIND", 0, 8, "Format (bits 7:5) and type (4:0).", values=FMT_TYPES),),
    source=_REGISTERS,
)
TLP_TRAFFIC_CLASS = ByteRegister(
    "TLP_TRAFFIC_CLASS",
    Space.XDATA,
    0xB211,
    Evidence.INFERRED,
    "Second byte of the request's header, traffic class; 0.",
    source=_TOOL,
)
TLP_ATTRIBUTES = ByteRegister(
    "TLP_ATTRIBUTES",
    Space.XDATA,
    0xB212,
    Evidence.INFERRED,
    "Third byte of the request's header: digest, poison, attributes, length 9:8; 0.",
    source=_TOOL,
)
TLP_LENGTH = ByteRegister(
    "TLP_LENGTH",
    Space.XDATA,
    0xB213,
    Evidence.TRACE,
    "Fourth byte of the request's header: its length in dwords. Only 1 is known to work.",
    source=f"open firmware, main.c; {_TOOL}",
)
TLP_REQUESTER = ByteRegister(
    "TLP_REQUESTER",
    Space.XDATA,
    0xB214,
    Evidence.INFERRED,
    "Requester id of the request's header; 0.",
    size=2,
    source=_TOOL,
)
TLP_TAG = ByteRegister(
    "TLP_TAG",
    Space.XDATA,
    0xB216,
    Evidence.TRACE,
    "Tag of the request's header. The open firmware writes 0x20 at boot (and calls it a length), the tool "
    "writes 0; both work.",
    source=f"open firmware, main.c; {_TOOL}",
)
TLP_BYTE_ENABLES = ByteRegister(
    "TLP_BYTE_ENABLES",
    Space.XDATA,
    0xB217,
    Evidence.TRACE,
    "Byte enables of the request.",
    fields=(
        Field("FIRST", 0, 4, "First dword; bit 0 is the byte at the lowest address."),
        Field("LAST", 4, 4, "Last dword; 0 for a request of one dword.", evidence=Evidence.INFERRED),
    ),
    source=_REGISTERS,
)
TLP_ADDRESS = ByteRegister(
    "TLP_ADDRESS",
    Space.XDATA,
    0xB218,
    Evidence.TRACE,
    "Address bits 31:0 of a memory request; bus << 24 | device << 19 | function << 16 | register of a "
    "configuration request. Never incremented by hardware; reads back.",
    size=4,
    source=_PIO,
)
TLP_ADDRESS_HIGH = ByteRegister(
    "TLP_ADDRESS_HIGH",
    Space.XDATA,
    0xB21C,
    Evidence.TRACE,
    "Address bits 63:32 of a 64-bit memory request; most significant byte first, like the low word.",
    size=4,
    source="open firmware, main.c and the carry chain of pcie_pio.h",
)
TLP_DATA = ByteRegister(
    "TLP_DATA",
    Space.XDATA,
    0xB220,
    Evidence.TRACE,
    "The dword to write, or the data of a completion; the byte at the lowest address is 0xB223.",
    size=4,
    source=_PIO,
)
TLP_COMPLETION = ByteRegister(
    "TLP_COMPLETION",
    Space.XDATA,
    0xB224,
    Evidence.INFERRED,
    "First dword of the last completion's header.",
    access=Access.RO,
    size=4,
    fields=(
        Field("FMT_TYPE", 24, 8, "Kind of completion.", values={0x0A: "CPL", 0x4A: "CPLD"}),
        Field("LENGTH", 0, 10, "Dwords of data."),
    ),
    source=f"{_REGISTERS}; {_TOOL}",
)
TLP_COMPLETER = ByteRegister(
    "TLP_COMPLETER",
    Space.XDATA,
    0xB228,
    Evidence.INFERRED,
    "Completer ID: bus << 8 | device << 3 | function.",
    access=Access.RO,
    size=2,
    source=_TOOL,
)
TLP_COMPLETION_STATUS = ByteRegister(
    "TLP_COMPLETION_STATUS",
    Space.XDATA,
    0xB22A,
    Evidence.TRACE,
    "Outcome of the last completed request.",
    access=Access.RO,
    size=2,
    fields=(
        Field(
            "STATUS",
            13,
            3,
            "Completion status.",
            values={0: "SC", 1: "UR", 2: "CRS", 4: "CA"},
        ),
        Field("BYTE_COUNT", 0, 12, "Bytes requested: 4 for configuration, the enabled ones for memory."),
    ),
    source=f"{_REGISTERS}; host scripts check it",
)
TLP_COMPLETION_TAIL = ByteRegister(
    "TLP_COMPLETION_TAIL",
    Space.XDATA,
    0xB22C,
    Evidence.INFERRED,
    "Third dword of the last completion's header.",
    access=Access.RO,
    size=4,
    fields=(
        Field("REQUESTER", 16, 16, "Requester id of the request."),
        Field("TAG", 8, 8, "Tag of the request."),
        Field("LOWER_ADDRESS", 0, 7, "Address bits 6:0 of the first byte; 0 for configuration."),
    ),
    source=_TOOL,
)
TLP_DOORBELL = ByteRegister(
    "TLP_DOORBELL",
    Space.XDATA,
    0xB251,
    Evidence.INFERRED,
    "Value of the NVMe doorbell write that launch codes 0x03 and 0x13 send.",
    source="host NVMe script of the open firmware",
)
TLP_LAUNCH = ByteRegister(
    "TLP_LAUNCH",
    Space.XDATA,
    0xB254,
    Evidence.TRACE,
    "Sends the request. Posted requests may follow each other at once; a launch while a non-posted one is "
    "outstanding gives that one up.",
    access=Access.SELF_CLEARING,
    fields=(
        Field(
            "CODE",
            0,
            8,
            "What to send.",
            values={0x0F: "REQUEST", 0x03: "NVME_SQ1_DOORBELL", 0x13: "NVME_CQ1_DOORBELL"},
        ),
    ),
    source=f"{_PIO}; host NVMe script",
)
TLP_COMPLETION_KIND = ByteRegister(
    "TLP_COMPLETION_KIND",
    Space.XDATA,
    0xB284,
    Evidence.TRACE,
    "Whether the last completion carried data.",
    access=Access.RO,
    fields=(Field("HAS_DATA", 0, 1, "1 for reads, 0 for configuration writes."),),
    source=f"{_REGISTERS}; {_TOOL}",
)
TLP_STATUS = ByteRegister(
    "TLP_STATUS",
    Space.XDATA,
    0xB296,
    Evidence.INFERRED,
    "State of the request. The open firmware and the tool clear and poll it in different orders; this "
    "meaning of the bits fits both.",
    access=Access.W1C,
    fields=(
        Field("ERROR", 0, 1, "No completion came: time-out, or no link."),
        Field("COMPLETE", 1, 1, "The completion has arrived; its data and header are in their registers."),
        Field("SENT", 2, 1, "The request has been sent; the next may be launched."),
    ),
    source=f"{_PIO}; {_TOOL}",
)
