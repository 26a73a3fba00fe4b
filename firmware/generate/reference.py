"""The chip's facts as a Markdown reference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from firmware.asm2464pd import bot, flash_layout, image, phy
from firmware.asm2464pd.describe import ByteRegister, Space
from firmware.asm2464pd.registers import ASM2464PD, BLOCKS
from firmware.generate.header import REGENERATE, STRUCTS
from firmware.generate.markdown import bits, data_stage, fields, members, table
from firmware.protocol import commands
from firmware.protocol.requests import REQUESTS, VendorRequest
from sdk.facts.registers import Evidence
from sdk.facts.structures import Struct

_OPENING = f"""\
# ASM2464PD register reference

Generated from `firmware/asm2464pd` and `firmware/protocol`, do not edit: `{REGENERATE}`

What is known of the chip from public sources, each fact with its evidence:

| evidence | meaning |
|---|---|
| hardware | said of silicon by people who had it in hand |
| trace | what software known to work on silicon does and depends on |
| inferred | follows from several sources, and none contradicts it |
| guess | sources disagree or are silent; an access is an error under `--strict` |

Registers of several bytes stand most significant byte first unless marked LE. The PHY plane is what MOVX
reaches with SFR 0x93 (DPX) at 1.
"""

_TITLES = {
    "cpu": "CPU: special function registers",
    "interrupts": "Interrupts",
    "usb": "USB device controller",
    "tlp": "PCIe TLP engine",
    "link": "PCIe link and power",
    "phy": "PHY",
    "dma": "DMA",
    "flash": "SPI flash controller",
    "system": "UART, timers, system",
}


def markdown() -> str:
    """The reference's text."""
    sections = [
        _memory_map(),
        *(_block(_TITLES.get(block, block), registers) for block, registers in BLOCKS.items()),
        _setup(),
        _requests(),
        _lists(),
        _commands(),
        _structures(),
        _image(),
    ]
    return "\n".join((_OPENING, *sections))


def _memory_map() -> str:
    rows = (
        (
            f"0x{memory.address:04X}-0x{memory.addresses[-1]:04X}",
            memory.space.value,
            f"`{memory.name}`",
            "" if memory.pcie is None else f"0x{memory.pcie:08X}",
            memory.evidence.value,
            memory.doc,
            memory.source,
        )
        for memory in ASM2464PD.memories
    )
    return "## Memory map\n\n" + table(
        ("range", "space", "name", "PCIe address", "evidence", "what", "source"), rows
    )


def _block(title: str, registers: Iterable[ByteRegister]) -> str:
    rows = table(
        ("address", "name", "access", "reset", "evidence", "what", "source"),
        map(_register, _folded(registers)),
    )
    return f"## {title}\n\n{rows}"


def _folded(registers: Iterable[ByteRegister]) -> Iterator[ByteRegister]:
    """Registers in order of address; the PHY's tuning registers have a section of their own."""
    order = list(Space)
    tuning = {lane + update.offset for lane in phy.USB_LANES for update in phy.USB_LANE_SETUP}
    for register in sorted(registers, key=lambda register: (order.index(register.space), register.address)):
        stored = phy.PCIE_FINAL if register.space is Space.PHY else tuning
        if register.address not in stored or register.fields:
            yield register


def _register(register: ByteRegister) -> tuple[str, ...]:
    width = 2 if register.space is Space.SFR else 4
    address = f"0x{register.address:0{width}X}"
    if register.size > 1:
        address += f", {register.size} bytes{' LE' if register.little else ''}"
    if register.space is Space.PHY:
        address += " (PHY)"
    what = register.doc + "".join(f"<br>{bits(field, register)}" for field in register.fields)
    return (
        address,
        f"`{register.name}`",
        register.access.value,
        f"0x{register.reset:0{2 * min(register.size, 4)}X}",
        register.evidence.value,
        what,
        register.source,
    )


def _setup() -> str:
    final = phy.PCIE_FINAL
    lane = ", ".join(
        f"+{update.offset:02X} &{update.keep:02X} \\|{update.put:02X}" for update in phy.USB_LANE_SETUP
    )
    pages = sorted({address & 0xFF00 for address in final})
    rows = (
        (
            f"0x{page:04X}",
            " ".join(
                f"{address & 0xFF:02X}={value:02X}"
                for address, value in sorted(final.items())
                if address & 0xFF00 == page
            ),
        )
        for page in pages
    )
    lanes = " and ".join(f"0x{base:04X}" for base in phy.USB_LANES)
    return (
        "## PHY set-up\n\n"
        f"{len(phy.USB_LANE_SETUP)} updates of each USB lane, at {lanes} (offset, bits kept, bits set; "
        f"{phy.EVIDENCE.value}, {phy.SOURCE}):\n\n{lane}\n\n"
        f"{len(phy.PCIE_SETUP)} writes to {len(final)} addresses of the PHY plane, in the order of "
        f"`firmware/asm2464pd/phy.py`, leave behind:\n\n" + table(("page", "offset=value"), rows)
    )


def _requests() -> str:
    return "## Vendor requests\n\nA firmware implements these; the chip knows nothing of them.\n\n" + table(
        ("bRequest", "bmRequestType", "name", "wValue", "wIndex", "data", "evidence", "what", "source"),
        map(_request, REQUESTS),
    )


def _request(request: VendorRequest) -> tuple[str, ...]:
    return (
        f"0x{request.code:02X}",
        f"0x{request.request_type:02X}",
        f"`{request.name}`",
        fields(request.value),
        fields(request.index),
        data_stage(request),
        request.evidence.value,
        request.doc,
        request.source,
    )


def _lists() -> str:
    rows = (
        (
            f"0x{opcode.code:02X}",
            f"`{opcode.name}`",
            "yes" if opcode.extended else "",
            "yes" if opcode.payload else "",
            opcode.doc,
        )
        for opcode in commands.OPCODES
    )
    return (
        "## Operations of command lists\n\nThe protocol is that of `firmware/protocol/commands.py`.\n\n"
        + (table(("opcode", "name", "extension", "payload", "what"), rows))
    )


def _commands() -> str:
    rows = (
        (
            f"0x{command.opcode:02X}",
            f"`{command.cdb.name}`",
            f"{'to' if command.to_host else 'from'} the host: {command.data}" if command.data else "none",
            command.cdb.doc,
        )
        for command in bot.COMMANDS
    )
    return "## Mass-storage vendor commands\n\nOf the boot loader and of its maker's firmware.\n\n" + table(
        ("opcode", "name", "data", "what"), rows
    )


def _structures() -> str:
    return "## Structures\n\nIntegers are little-endian unless marked BE.\n\n" + "\n".join(
        map(_struct, STRUCTS)
    )


def _struct(struct: Struct) -> str:
    return (
        f"### {struct.name}\n\n{struct.doc} {struct.size} bytes; {struct.evidence.value}; "
        f"{struct.source}.\n\n{members(struct)}"
    )


def _image() -> str:
    areas = (
        (
            f"0x{area.body.start:05X}-0x{area.body[-1]:05X}",
            f"0x{area.address:04X}-0x{area.address + len(area.body) - 1:04X}",
            " and ".join(map(str, area.banks)),
        )
        for area in image.CODE_AREAS
    )
    regions = (
        (f"0x{region.address:05X}", f"0x{region.size:X}", f"`{region.name}`", region.doc)
        for region in flash_layout.REGIONS
    )
    return (
        "## Image and flash\n\n"
        f"A wrapped image is `IMAGE_HEADER`, the body (at most {image.MAX_BODY} bytes), `IMAGE_TRAILER`. "
        f"The body goes to CODE space as follows ({Evidence.INFERRED.value}):\n\n"
        + table(("body", "CODE", "bank (SFR 0x96)"), areas)
        + "\nFlash:\n\n"
        + table(("address", "size", "name", "what"), regions)
    )
