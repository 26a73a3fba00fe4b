"""Vendor commands of mass-storage mode: the boot loader in mask ROM, and firmware of the chip's maker.

They use bulk-only transport: a CBW with one of these CDBs on EP 0x02, data, a CSW on EP 0x81. Flash is read
and written in two parts; the first has at most 0xFF00 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from sdk.facts.registers import Evidence, FactError
from sdk.facts.structures import Member, Struct

CDB_SIZE = 16
"""Bytes of a CDB in a CBW."""
PART_SIZE = 0xFF00
"""Bytes of the first part; the second has the rest."""
CONFIG_SIZE = 128
"""Bytes of a configuration block."""
XDATA_BASE = 0x50_0000
"""Set in the address of an XDATA access; the 17 bits below are the address, bit 16 selects the PHY plane."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command.

    Attributes:
        cdb: its CDB; the structure's name is the command's.
        data: what the data stage carries, "" for none.
        to_host: the direction of the data stage.
    """

    cdb: Struct
    data: str = ""
    to_host: bool = False

    def __post_init__(self) -> None:
        first = self.cdb.members[0]
        if self.cdb.size != CDB_SIZE or first.name != "opcode" or first.fixed is None:
            raise FactError(f"{self.cdb.name}: a CDB has {CDB_SIZE} bytes and begins with its opcode")

    @property
    def opcode(self) -> int:
        """The first byte of the CDB."""
        return self.cdb.members[0].fixed or 0


def _cdb(name: str, opcode: int, doc: str, evidence: Evidence, source: str, *members: Member) -> Struct:
    """A CDB: opcode, members, zeros."""
    rest = CDB_SIZE - 1 - sum(member.size for member in members)
    padding = (Member("padding", rest, "zeros", raw=True),) if rest else ()
    return Struct(
        name, CDB_SIZE, (Member("opcode", 1, fixed=opcode), *members, *padding), doc, evidence, source
    )


_NOTES = "cyrozap/usb-to-pcie-re notes"
_TOOL = "cyrozap/usb-to-pcie-re tool"
_FLASHER = "open firmware, flash.py"

_KEY = Member("key", 1, fixed=0x50)
_PART = Member("part", 1, values={0x50: "first", 0xD0: "second"})
_LENGTH = Member("length", 4, "bytes of the data stage", big=True)
_INDEX = Member("index", 1, "configuration block", values={0: "block 0", 1: "block 1"})
_ADDRESS = Member("address", 3, "XDATA address | XDATA_BASE", big=True)

CONFIG_READ = Command(
    _cdb("BOT_CONFIG_READ", 0xE0, "Reads a configuration block.", Evidence.HARDWARE, _NOTES, _INDEX),
    "the configuration block",
    to_host=True,
)
CONFIG_WRITE = Command(
    _cdb("BOT_CONFIG_WRITE", 0xE1, "Writes a configuration block.", Evidence.TRACE, _FLASHER, _KEY, _INDEX),
    "the configuration block",
)
FLASH_READ = Command(
    _cdb(
        "BOT_FLASH_READ",
        0xE2,
        "Reads flash, in the two parts of BOT_FLASH_WRITE: the first from flash address 0x100, the second "
        "from 0x10000. The maker's firmware reads it in pieces of 0x400. The notes, on a sibling chip, have "
        "one part that begins at 0.",
        Evidence.TRACE,
        f"the chip maker's firmware; {_NOTES}; {_TOOL}",
        _PART,
        _LENGTH,
    ),
    "that part of the flash",
    to_host=True,
)
FLASH_WRITE = Command(
    _cdb(
        "BOT_FLASH_WRITE",
        0xE3,
        "Erases and writes a part of the wrapped image: the first at flash address 0x100, the second at "
        "0x10000.",
        Evidence.TRACE,
        _FLASHER,
        _PART,
        _LENGTH,
    ),
    "that part of the wrapped image",
)
XDATA_READ = Command(
    _cdb(
        "BOT_XDATA_READ",
        0xE4,
        "Reads successive XDATA bytes.",
        Evidence.HARDWARE,
        _TOOL,
        Member("count", 1, "bytes, 1 to 255"),
        _ADDRESS,
    ),
    "the bytes read",
    to_host=True,
)
XDATA_WRITE = Command(
    _cdb(
        "BOT_XDATA_WRITE",
        0xE5,
        "Writes one XDATA byte.",
        Evidence.HARDWARE,
        _TOOL,
        Member("value", 1, "the byte"),
        _ADDRESS,
    ),
)
NVME_ADMIN = Command(
    _cdb(
        "BOT_NVME_ADMIN",
        0xE6,
        "Passes an NVMe admin command to the drive: Identify or Get Log Page.",
        Evidence.HARDWARE,
        _NOTES,
        Member("command", 1, "opcode", values={0x02: "Get Log Page", 0x06: "Identify"}),
    ),
    "what the drive returns",
    to_host=True,
)
RESET = Command(
    _cdb(
        "BOT_RESET",
        0xE8,
        "Restarts something.",
        Evidence.TRACE,
        f"{_NOTES}; {_FLASHER}",
        Member(
            "kind", 1, values={0x00: "CPU", 0x01: "soft, PCIe too", 0x51: "start the firmware just written"}
        ),
    ),
)

COMMANDS: tuple[Command, ...] = (
    CONFIG_READ,
    CONFIG_WRITE,
    FLASH_READ,
    FLASH_WRITE,
    XDATA_READ,
    XDATA_WRITE,
    NVME_ADMIN,
    RESET,
)

if len({command.opcode for command in COMMANDS}) != len(COMMANDS):
    raise FactError("COMMANDS: two commands have one opcode")
