"""Vendor requests on EP0: those of existing hosts, as the open firmware answers them, and our own.

A firmware implements them, not the chip. They are declared here because the host's driver, our firmware, the
trace decoder and the documentation must agree on every bit. LIST and INFO are ours. A host sends them only to
firmware that identifies itself as ours: others need not stall them.
"""

from __future__ import annotations

from dataclasses import dataclass

from firmware.protocol import commands
from sdk.facts.registers import Evidence, FactError, Field, check_fields
from sdk.facts.structures import Member, Struct

VENDOR_IN = 0xC0
"""bmRequestType: vendor, device, towards the host."""
VENDOR_OUT = 0x40
"""bmRequestType: vendor, device, towards the device."""


@dataclass(frozen=True, slots=True)
class VendorRequest:
    """One request.

    Attributes:
        name: a C identifier in capitals.
        request_type: bmRequestType.
        code: bRequest.
        doc: what it does.
        evidence: how well it is known.
        source: where the fact comes from.
        value: fields of wValue.
        index: fields of wIndex.
        data: its data stage, if that has a structure.
        lengths: valid values of wLength, at High Speed and at SuperSpeed; (0,) without data stage.
    """

    name: str
    request_type: int
    code: int
    doc: str
    evidence: Evidence
    source: str
    value: tuple[Field, ...] = ()
    index: tuple[Field, ...] = ()
    data: Struct | None = None
    lengths: range = range(1)

    def __post_init__(self) -> None:
        if self.request_type not in (VENDOR_IN, VENDOR_OUT) or not 0 <= self.code <= 0xFF:
            raise FactError(f"{self.name}: not a vendor request to the device")
        check_fields(f"{self.name}.wValue", self.value, 16)
        check_fields(f"{self.name}.wIndex", self.index, 16)
        if self.data is not None and self.data.size not in self.lengths:
            raise FactError(f"{self.name}: its data stage has {self.data.size} bytes")

    @property
    def is_in(self) -> bool:
        """Whether the data stage goes to the host."""
        return self.request_type == VENDOR_IN


TLP_REQUEST = Struct(
    "TLP_REQUEST",
    12,
    (
        Member("address_low", 4, "address[31:0], or bus<<24 | device<<19 | function<<16 | register"),
        Member("address_high", 4, "address[63:32]"),
        Member("value", 4, "the dword to write (single), or how many dwords follow (streams)"),
    ),
    "Data stage of the TLP request towards the device.",
    Evidence.TRACE,
    "open firmware, main.c; open host driver, usb.py",
)

TLP_RESULT = Struct(
    "TLP_RESULT",
    8,
    (
        Member("data", 4, "the dword read"),
        Member(
            "completion",
            2,
            "bytes 6 and 7 of the completion header",
            big=True,
            fields=(
                Field("BYTE_COUNT", 0, 12, doc="4 for configuration; the size asked for with memory"),
                Field("STATUS", 13, 3, values={0: "SC", 1: "UR", 2: "CRS", 4: "CA"}),
            ),
        ),
        Member("has_data", 1, "the completion carried data", fields=(Field("HAS_DATA", 0),)),
        Member(
            "status",
            1,
            "how the launch ended",
            values={
                0x00: "completed",
                0x01: "the error bit came up",
                0xFF: "no completion within 500000 polls",
            },
        ),
    ),
    "Data stage of the TLP request towards the host: the outcome of the last single TLP.",
    Evidence.TRACE,
    "open firmware, main.c; open host driver, usb.py",
)

SUPPLY_STATUS = Struct(
    "SUPPLY_STATUS",
    5,
    (
        Member("millivolts", 2, "of the supply; 0 if no sensor answers"),
        Member("milliamperes", 2, "from the supply, in two's complement; 0 if no sensor answers"),
        Member(
            "fault",
            1,
            "0, or what is wrong; hosts of the published firmware look whether it is 0",
            fields=(
                Field("SUPPLY", 0, doc="the supply reports a fault"),
                Field("SENSOR", 7, doc="no sensor answers (defined here: the published firmware has 0)"),
            ),
        ),
    ),
    "Data stage of the request SUPPLY. The order of the bytes and that the last one is a truth value are "
    "what the dock's published tools unpack.",
    Evidence.TRACE,
    "the dock's published tools, monitoring.py; open firmware, main.c and i2c.h",
)

STRUCTS: tuple[Struct, ...] = (TLP_REQUEST, TLP_RESULT, SUPPLY_STATUS)

_BANK = Field("BANK", 8, 8, "DPX: 0 for XDATA, 1 for the PHY plane", values={0: "XDATA", 1: "PHY"})
_SOURCE = "open firmware, main.c; open host driver, usb.py"

XDATA_READ = VendorRequest(
    "XDATA_READ",
    VENDOR_IN,
    0xE4,
    "Reads wLength bytes from successive addresses. Reads have the side effects of CPU reads. The open "
    "firmware answers at most 512 bytes at SuperSpeed and 64 at High Speed.",
    Evidence.TRACE,
    _SOURCE,
    value=(Field("ADDRESS", 0, 16, "first address"),),
    index=(_BANK,),
    lengths=range(1, 513),
)
XDATA_WRITE = VendorRequest(
    "XDATA_WRITE",
    VENDOR_OUT,
    0xE5,
    "Writes one byte.",
    Evidence.TRACE,
    _SOURCE,
    value=(Field("ADDRESS", 0, 16),),
    index=(Field("VALUE", 0, 8), _BANK),
)
TLP_START = VendorRequest(
    "TLP_START",
    VENDOR_OUT,
    0xF0,
    "Sends a PCIe TLP, or opens a stream: the dwords then travel on EP 0x02 or EP 0x81.",
    Evidence.TRACE,
    _SOURCE,
    value=(
        Field("FORMAT_TYPE", 0, 8, "as TLP_FORMAT_TYPE"),
        Field("BYTE_ENABLES", 8, 8, "of the first dword, bit 0 is byte 0"),
    ),
    index=(Field("MODE", 0, 2, values={0: "single", 1: "stream write", 2: "stream read"}),),
    data=TLP_REQUEST,
    lengths=range(12, 13),
)
TLP_STATUS = VendorRequest(
    "TLP_STATUS",
    VENDOR_IN,
    0xF0,
    "Returns the outcome of the last single TLP.",
    Evidence.TRACE,
    _SOURCE,
    data=TLP_RESULT,
    lengths=range(8, 9),
)
SRAM_DMA = VendorRequest(
    "SRAM_DMA",
    VENDOR_OUT,
    0xF2,
    "Arms the slot DMA: the next bulk data goes between the host and SRAM slots, bypassing the CPU.",
    Evidence.TRACE,
    _SOURCE,
    value=(
        Field("SECTORS", 0, 15, "of 512 bytes"),
        Field("TO_HOST", 15, values={0: "host to SRAM", 1: "SRAM to host"}),
    ),
    index=(Field("SLOT", 0, 8, "first slot of 16 KiB"), Field("SLOTS", 8, 8, "how many; 0 means 1")),
)
PCIE_POWER = VendorRequest(
    "PCIE_POWER",
    VENDOR_OUT,
    0xF3,
    "Powers the PCIe slot and trains the link, or powers it off. On takes 0.3 to 2 s before its status "
    "stage; hosts wait 10 s.",
    Evidence.TRACE,
    _SOURCE,
    value=(Field("ON", 0),),
)
SUPPLY = VendorRequest(
    "SUPPLY",
    VENDOR_IN,
    0xC0,
    "Reads the dock's supply: voltage, current, fault. Published firmware from August 2026 on has it, and "
    "the firmware of this project from level 1.1 on. Hosts wait 100 ms.",
    Evidence.TRACE,
    "the dock's published tools, monitoring.py; open firmware, main.c",
    data=SUPPLY_STATUS,
    lengths=range(1, 513),
)
LIST = VendorRequest(
    "LIST",
    VENDOR_OUT,
    0xF8,
    "Opens or closes list mode (commands.py). Either ends the current use of the bulk endpoints, a running "
    "list included, and empties both. Any of TLP_START, TLP_STATUS, SRAM_DMA and PCIE_POWER closes it too.",
    Evidence.HARDWARE,
    commands.OURS,
    value=(Field("OPEN", 0, values={0: "close", 1: "open"}),),
    index=(Field("SEQUENCE", 0, 16, "sequence number of the first list"),),
)
INFO = VendorRequest(
    "INFO",
    VENDOR_IN,
    0xF9,
    "Returns the identity of the firmware, the state of the PCIe link, and the last failure. Later levels of "
    "the API may add members at the end; a host that asks for less gets the beginning.",
    Evidence.HARDWARE,
    commands.OURS,
    data=commands.INFO,
    lengths=range(1, 513),
)

REQUESTS: tuple[VendorRequest, ...] = (
    XDATA_READ,
    XDATA_WRITE,
    TLP_START,
    TLP_STATUS,
    SRAM_DMA,
    PCIE_POWER,
    SUPPLY,
    LIST,
    INFO,
)

if len({(request.request_type, request.code) for request in REQUESTS}) != len(REQUESTS):
    raise FactError("REQUESTS: two requests have one code and direction")
