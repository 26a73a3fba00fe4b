"""The protocol page: the prose of `firmware/protocol/protocol.md`, with tables and numbers from the code.

A line or word `@name@` of the template is replaced by a piece made here, so numbers, layouts and codes are in
one place. A template that names an unknown piece, or leaves one out, is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from firmware.asm2464pd import bot, flash_layout, image, wire
from firmware.asm2464pd.describe import Memory
from firmware.asm2464pd.registers.memory import NVME_CQ, SLOT_SIZE, SRAM, SRAM_WINDOW
from firmware.asm2464pd.registers.tlp import FMT_TYPES
from firmware.generate.header import REGENERATE
from firmware.generate.markdown import data_stage, fields, members, table
from firmware.protocol import commands
from firmware.protocol.command_list import CommandList
from firmware.protocol.commands import Opcode
from firmware.protocol.operations import CAUSES, SECTOR
from firmware.protocol.payload import SYNC_PACKET, payload_packets
from firmware.protocol.requests import REQUESTS, SUPPLY_STATUS, TLP_REQUEST, TLP_RESULT, VendorRequest
from sdk.facts.registers import Evidence, FactError
from sdk.facts.structures import Struct

TEMPLATE = Path(__file__).parents[1] / "protocol" / "protocol.md"

LIMITS = (
    ("API_LEVEL", commands.API_LEVEL, "the protocol's level: bcdDevice, and in INFO"),
    ("LIST_BYTES", commands.LIST_BYTES, "bytes of the longest list, header and trailer included"),
    ("RESULT_BYTES", commands.RESULT_BYTES, "bytes of results that wait for a host that does not read"),
    ("MICROSECONDS", commands.MICROSECONDS, "times are shorter than this"),
    ("SECTOR", SECTOR, "bytes of a sector of the slot DMA"),
    ("SLOT_SIZE", SLOT_SIZE, "bytes of a slot"),
    ("SLOTS", SRAM.size // SLOT_SIZE, "slots in the SRAM"),
    ("PART_SIZE", bot.PART_SIZE, "bytes of the first part that the boot loader writes"),
    ("CONFIG_SIZE", bot.CONFIG_SIZE, "bytes of a configuration block"),
)
"""Name, value, meaning."""

MEANINGS: Mapping[str, str] = {
    "done": "every operation has run",
    "unsupported request": "PCIe completion status UR: no device is at that address, or its BAR is off",
    "completer abort": "PCIe completion status CA, or one that is reserved",
    "configuration retry": "PCIe completion status CRS: the device is not ready yet; repeat the request",
    "completion timeout": "the TLP engine's own time-out, with the link up",
    "no completion": "neither completion nor time-out came within the firmware's own bound, or the list was "
    "abandoned",
    "condition timeout": "POLL or FENCE: the time is up",
    "link down": "the PCIe link is not up",
    "bad opcode": "the operation does not exist, or the list ends within it",
    "bad operand": "address, enables, count, value or time that the operation does not allow; LOOP without "
    "END, END without LOOP, a LOOP in a LOOP",
    "bad header": "refused: wrong magic or length, or a packet of the list that is not full",
    "bad sequence": "refused: not the number that was expected",
    "bad checksum": "refused: the sums are not 0",
    "bad payload": "a packet of payload has a wrong number (it was not written) or checksum (it was)",
}
"""Meanings of the causes, by their names in RESULT_TRAILER."""

_PIECE = re.compile(r"@(\w+)@")


def markdown() -> str:
    """The page's text.

    Raises:
        FactError: template, causes and pieces do not match.
    """
    return filled(TEMPLATE.read_text(encoding="utf-8"), _pieces())


def filled(template: str, pieces: Mapping[str, str]) -> str:
    """A template with its pieces inserted.

    Raises:
        FactError: it names an unknown piece, or does not use one.
    """
    wanted = set(_PIECE.findall(template))
    if wanted != pieces.keys():
        unknown, unused = sorted(wanted - pieces.keys()), sorted(pieces.keys() - wanted)
        raise FactError(f"{TEMPLATE.name}: unknown pieces: {unknown}; pieces not used: {unused}")
    return _PIECE.sub(lambda match: pieces[match[1]].rstrip("\n"), template)


def grade(evidence: Evidence, source: str) -> str:
    """The grade of a fact, and its source; what this project defines needs no evidence."""
    return "defined here" if source == commands.OURS else f"{evidence.value}; {source}"


def _pieces() -> dict[str, str]:
    ours = [request for request in REQUESTS if request.source == commands.OURS]
    theirs = [request for request in REQUESTS if request.source != commands.OURS]
    structs = (
        TLP_REQUEST,
        TLP_RESULT,
        SUPPLY_STATUS,
        *commands.STRUCTS,
        image.HEADER,
        image.TRAILER,
        *flash_layout.CONFIG_BLOCKS,
        flash_layout.OTP_SERIAL,
        wire.CBW,
        wire.CSW,
    )
    return {
        "regenerate": REGENERATE,
        "bcd_device": commands.API_LEVEL.to_bytes(2, "little").hex(" "),
        "api_level": f"{commands.API_LEVEL >> 8}.{commands.API_LEVEL & 0xFF}",
        "limits": table(("name", "value", "what"), ((f"`{n}`", f"{v:#x}", what) for n, v, what in LIMITS)),
        "formats": table(
            ("FORMAT_TYPE", "TLP"),
            ((f"0x{code:02X}", f"`{name}`") for code, name in sorted(FMT_TYPES.items())),
        ),
        "windows": _windows((SRAM, SRAM_WINDOW, NVME_CQ)),
        "compatible_requests": _requests(theirs),
        "own_requests": _requests(ours),
        "operations": _operations(commands.OPCODES),
        "causes": _causes(),
        "example_list": _example_list(),
        "example_payload": _dump(
            (("4", "PAYLOAD_HEADER"), ("8", "two dwords")), payload_packets(_WORDS, 1024)
        ),
        "sync_packet": f"`{SYNC_PACKET.hex(' ')}`",
        "boot_commands": _boot_commands(),
        "flash": _flash(),
        **{struct.name: _struct(struct) for struct in structs},
    }


_WORDS = bytes.fromhex("78563412efbeadde")


def _requests(requests: Iterable[VendorRequest]) -> str:
    return table(
        ("bRequest", "bmRequestType", "name", "wValue", "wIndex", "data stage", "what", "known by"),
        (
            (
                f"0x{request.code:02X}",
                f"0x{request.request_type:02X}",
                f"`{request.name}`",
                fields(request.value),
                fields(request.index),
                data_stage(request),
                request.doc,
                grade(request.evidence, request.source),
            )
            for request in requests
        ),
    )


def _struct(struct: Struct) -> str:
    heading = (
        f"**{struct.name}**, {struct.size} bytes. {struct.doc} ({grade(struct.evidence, struct.source)})"
    )
    return f"{heading}\n\n{members(struct)}"


def _windows(memories: Iterable[Memory]) -> str:
    return table(
        ("name", "XDATA", "PCIe", "bytes", "what", "known by"),
        (
            (
                f"`{memory.name}`",
                "" if memory is SRAM else f"0x{memory.address:04X}",
                f"0x{memory.pcie or 0:08X}",
                f"{memory.size:#x}",
                memory.doc,
                grade(memory.evidence, memory.source),
            )
            for memory in memories
        ),
    )


def _operations(opcodes: Iterable[Opcode]) -> str:
    return table(
        ("opcode", "name", "bytes", "result bytes", "payload", "what"),
        (
            (
                f"0x{opcode.code:02X}",
                f"`{opcode.name}`",
                str(commands.OPERATION.size + opcode.extended * commands.EXTENSION.size),
                _given(opcode),
                "yes" if opcode.payload else "",
                opcode.doc,
            )
            for opcode in opcodes
        ),
    )


def _given(opcode: Opcode) -> str:
    if not opcode.result:
        return ""
    if opcode.single:
        return str(opcode.result)
    return "`count`, rounded up to a multiple of 4" if opcode.result == 1 else f"{opcode.result} * `count`"


def _causes() -> str:
    if MEANINGS.keys() != set(CAUSES.values()):
        raise FactError(f"causes and their meanings differ: {MEANINGS.keys() ^ set(CAUSES.values())}")
    return table(
        ("cause", "name", "means"), ((f"0x{code:02X}", name, MEANINGS[name]) for code, name in CAUSES.items())
    )


def _example_list() -> str:
    """A list in bytes, as the codec packs it."""
    built = CommandList()
    built.config_read(0)
    built.xdata_read(0xB450, 1)
    built.poll(0x1000_0000, 1, mask=1, microseconds=1000)
    parts = (
        ("8", "LIST_HEADER: sequence 7"),
        ("16", "CONFIG_READ of bus 0, register 0"),
        ("16", "XDATA_READ of one byte at 0xB450"),
        ("16", "POLL of 0x10000000 for the value 1"),
        ("8", "its EXTENSION: mask 1, 1000 us"),
        ("8", "LIST_TRAILER: the check bytes"),
    )
    return _dump(parts, built.head(7, 1024))


def _dump(parts: Iterable[tuple[str, str]], data: bytes) -> str:
    rows, place = [], 0
    for size, what in parts:
        rows.append((f"`{data[place : place + int(size)].hex(' ')}`", what))
        place += int(size)
    if place != len(data):
        raise FactError(f"an example of {len(data)} bytes, of which {place} are explained")
    return table(("bytes", "what"), rows)


def _boot_commands() -> str:
    rows = (
        (
            f"0x{command.opcode:02X}",
            f"`{command.cdb.name}`",
            "<br>".join(_cdb_bytes(command.cdb)) or "none",
            f"{'to' if command.to_host else 'from'} the host: {command.data}" if command.data else "none",
            command.cdb.doc,
            grade(command.cdb.evidence, command.cdb.source),
        )
        for command in bot.COMMANDS
    )
    return table(("CDB byte 0", "name", "further bytes", "data stage", "what", "known by"), rows)


def _cdb_bytes(cdb: Struct) -> Iterable[str]:
    """The members of a CDB, except the opcode and padding."""
    for member in cdb.members[1:]:
        if member.name == "padding":
            continue
        start = cdb.offset(member.name)
        place = f"{start}" if member.size == 1 else f"{start} to {start + member.size - 1} (BE)"
        values = [f"{value:#x} {label}" for value, label in member.values.items()]
        fixed = [] if member.fixed is None else [f"{member.fixed:#x}"]
        said = ", ".join((*fixed, *values)) or member.doc
        yield f"{place}: {member.name}: {said}"


def _flash() -> str:
    return table(
        ("flash address", "bytes", "name", "what"),
        (
            (f"0x{region.address:05X}", f"{region.size:#x}", f"`{region.name}`", region.doc)
            for region in flash_layout.REGIONS
        ),
    )
