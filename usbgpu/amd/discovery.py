"""Which card it is: the discovery table that its security processor leaves at the end of VRAM.

The table names every IP block with its version and the bases of its registers. Before it is known, four
registers can be read whose places all these cards share (fixed numbers in Linux' `amdgpu_discovery.c`, or
beside such ones): that suffices to find it. Layouts: `usbgpu.amd.facts.discovery`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from firmware.protocol.command_list import CommandList
from firmware.protocol.operations import DWORD
from sdk.errors import DeviceFailed, InternalError, Unsupported
from sdk.facts.structures import Malformed, Struct
from usbgpu.amd import layout
from usbgpu.amd.batch import REGISTER_WINDOW, RESULT_ROOM
from usbgpu.amd.card import DOORBELL_BAR, REGISTER_BAR, VRAM_BAR, Card
from usbgpu.amd.facts import discovery as facts
from usbgpu.amd.facts.chips import CHIPS, HARDWARE_IDS, Chip
from usbgpu.amd.facts.describe import DWORD as ONES
from usbgpu.bridge.base import CAUSE
from usbgpu.bridge.seam import Bridge, ListFailed

MEMORY_SIZE = 0xDE3
"""RCC_CONFIG_MEMSIZE, as an index of dwords: MiB of VRAM."""
PSP_STATUS = 0x1_6061
"""C2PMSG_33 of MP0."""
PSP_READY = 1 << 31
REMAP_FLUSH = 0xE4D
"""BIF_BX0_REMAP_HDP_MEM_FLUSH_CNTL, in the same segment as MEMORY_SIZE."""
MM_INDEX, MM_INDEX_HI, MM_DATA = 0, 6, 1
IN_VRAM = 1 << 31
"""Bit of MM_INDEX: VRAM, not registers."""

AWAKE = 2.0
"""Seconds until the card's own firmware has started after a reset (`amdgpu_discovery.c`)."""
DARK = 1.5
"""Seconds that a card may not answer for, while it resets itself."""
DARK_INTERVAL = 0.1
POWER_HINT = "switch the card's power off for ten seconds, and open it again"
RECORD_SIZE = 0xC00
"""Bytes of the boot record that are read with the first read."""


@dataclass(frozen=True, slots=True)
class FirstLook:
    """What is known of a card before its table has been read.

    Attributes:
        vram: bytes.
        hdp_flush: as in `Card`.
        record: the bytes at `layout.RECORD`.
    """

    vram: int
    hdp_flush: int
    record: bytes


def identify(bridge: Bridge, bars: Mapping[int, int], window: int) -> Card:
    """The card behind three BARs. Two lists, or three if its table is long.

    Args:
        bridge: where it is plugged in.
        bars: PCIe addresses of BARs 0, 2 and 5; memory decoding is on.
        window: bytes of VRAM that BAR 0 reaches.

    Raises:
        Unsupported: its chip is unknown, or something that is needed has been harvested.
        DeviceFailed: it does not answer, or its table is damaged.
    """
    return read_table(bridge, bars, window, first_look(bridge, bars))


def first_look(bridge: Bridge, bars: Mapping[int, int]) -> FirstLook:
    """What can be read without knowing the card: one list. Waits for a card that resets itself, up to DARK.

    Raises:
        DeviceFailed: it does not answer.
    """
    registers = bars[REGISTER_BAR]
    commands = CommandList()
    commands.poll(registers + PSP_STATUS * DWORD, PSP_READY, PSP_READY, microseconds=round(AWAKE * 1e6))
    commands.read(registers + MEMORY_SIZE * DWORD)
    commands.read(registers + REMAP_FLUSH * DWORD)
    commands.block_read(bars[VRAM_BAR] + layout.RECORD, RECORD_SIZE // DWORD)
    end = bridge.clock.now() + DARK
    while True:
        try:
            _, size, flush, record = bridge.run(commands).values
        except ListFailed as failed:
            problem = str(failed.failure)
            if failed.failure.cause == CAUSE["condition timeout"]:
                problem = f"its own firmware has not started within {AWAKE:g} s"
        else:
            if not (isinstance(size, int) and isinstance(flush, int) and isinstance(record, bytes)):
                raise InternalError("the bridge returned other values than requested")
            if size not in (0, ONES) and 0 < flush & ~3 < REGISTER_WINDOW * DWORD:
                return FirstLook(size << 20, flush & ~3, record)
            problem = f"its memory size register reads {size:#x}, that of the HDP flush {flush:#x}"
        if bridge.clock.now() >= end:
            raise DeviceFailed(f"the card does not answer: {problem}", where=bridge.name, hint=POWER_HINT)
        bridge.clock.sleep(DARK_INTERVAL)


def read_table(bridge: Bridge, bars: Mapping[int, int], window: int, look: FirstLook) -> Card:
    """The card, by its table. Raises as `identify`."""
    start = look.vram - facts.OFFSET_FROM_END
    if start < layout.BOOT_REGION or window < layout.BOOT_REGION:
        raise DeviceFailed(
            f"the card has {look.vram >> 20} MiB of VRAM, of which {window >> 20} can be reached",
            where=bridge.name,
        )
    reach = look.vram <= window
    most = RESULT_ROOM if reach else RESULT_ROOM // 2
    binary = _read(bridge, bars, start, most, reach)
    size = _unpack(facts.BINARY_HEADER, binary, 0)["size"]
    if most < size <= facts.BINARY_SIZE_LIMIT:
        for at in range(most, size, most):
            binary += _read(bridge, bars, start + at, min(most, -(-(size - at) // DWORD) * DWORD), reach)
    try:
        return _card(bridge, bars, window, look, binary)
    except _Damaged as problem:
        raise DeviceFailed(
            f"the card's discovery table is damaged: {problem}",
            where=bridge.name,
            hint=POWER_HINT,
        ) from None


def _read(bridge: Bridge, bars: Mapping[int, int], start: int, size: int, reach: bool) -> bytes:
    """A piece of VRAM: through BAR 0, or dword by dword through MM_INDEX and MM_DATA."""
    commands = CommandList()
    if reach:
        commands.block_read(bars[VRAM_BAR] + start, size // DWORD)
        return _bytes(bridge.run(commands).values[0])
    registers, data = bars[REGISTER_BAR], b""
    for first in range(start, start + size, 256 * DWORD):
        commands = CommandList()
        for place in range(first, min(first + 256 * DWORD, start + size), DWORD):
            commands.write(registers + MM_INDEX_HI * DWORD, place >> 31)
            commands.write(registers + MM_INDEX * DWORD, place & ~IN_VRAM & ONES | IN_VRAM)
            commands.read(registers + MM_DATA * DWORD)
        data += b"".join(int(value).to_bytes(DWORD, "little") for value in bridge.run(commands).values)
    return data


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise InternalError("the bridge returned other values than requested")
    return value


# -- the table ------------------------------------------------------------------------------------------


class _Damaged(Exception):
    """The table contradicts itself; the text says where."""


@dataclass(frozen=True, slots=True)
class _Ip:
    """An IP block of the table."""

    version: tuple[int, int, int]
    bases: tuple[int, ...]


def _card(bridge: Bridge, bars: Mapping[int, int], window: int, look: FirstLook, binary: bytes) -> Card:
    tables = _tables(binary)
    ips = _ips(binary, tables)
    harvested = _harvested(tables)
    found = {name: ips.get(number) for name, number in HARDWARE_IDS.items()}
    chip = _chip(bridge, {name: ip.version for name, ip in found.items() if ip})
    for name, number in HARDWARE_IDS.items():
        if number in harvested:
            raise Unsupported(
                f"{name} of this {chip.name} has been harvested: it cannot compute", where=bridge.name
            )
    bases = {}
    for name in chip.blocks:
        ip = found[name]
        needed = 1 + max(register.segment for register in chip.blocks[name].registers.values())
        if ip is None or len(ip.bases) < needed:
            raise _Damaged(f"{name} has {len(ip.bases) if ip else 0} register segments, not {needed}")
        bases[name] = ip.bases
    card = Card(
        bridge=bridge,
        chip=chip,
        bars={bar: bars[bar] for bar in (VRAM_BAR, DOORBELL_BAR, REGISTER_BAR)},
        window=min(window, look.vram),
        vram=look.vram,
        hdp_flush=look.hdp_flush,
        bases=bases,
        compute_units=_compute_units(tables),
    )
    for name, place in (
        ("RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE", MEMORY_SIZE),
        ("BIF_BX0_REMAP_HDP_MEM_FLUSH_CNTL", REMAP_FLUSH),
    ):
        if card.index("NBIO", name) != place:
            raise _Damaged(f"{name} is at {card.index('NBIO', name):#x}, not at {place:#x}")
    return card


def _chip(bridge: Bridge, versions: Mapping[str, tuple[int, int, int]]) -> Chip:
    """The chip whose blocks have these versions, with these versions. Raises Unsupported."""

    def text(name: str) -> str:
        return f"{name} " + (".".join(map(str, versions[name])) if name in versions else "missing")

    chip = next((chip for chip in CHIPS.values() if chip.versions["GC"] == versions.get("GC")), None)
    if chip is None:
        raise Unsupported(
            f"unknown GPU: {', '.join(map(text, HARDWARE_IDS))}",
            where=bridge.name,
            hint=f"known: {', '.join(CHIPS)}",
        )
    other = [name for name in chip.versions if not chip.takes(name, versions.get(name))]
    if other:
        raise Unsupported(
            f"this is a {chip.name} with unknown IP blocks: {', '.join(map(text, other))}",
            where=bridge.name,
            hint="expected: "
            + ", ".join(f"{name} {'.'.join(map(str, chip.versions[name]))}" for name in other),
        )
    return chip.with_versions(versions)


_SIZED: Mapping[str, Struct] = {"IP_DISCOVERY": facts.IP_HEADER, "GC": facts.GC_HEADER}
"""Headers of the tables that have a size."""


def _tables(binary: bytes) -> Mapping[str, bytes]:
    """The tables that the binary has, checked."""
    header = _unpack(facts.BINARY_HEADER, binary, 0)
    if header["signature"] != facts.BINARY_SIGNATURE:
        raise _Damaged(f"it begins with {header['signature']:#010x}")
    size = header["size"]
    if size > len(binary):
        raise _Damaged(f"it is {size} bytes long")
    checked = facts.BINARY_HEADER.offset("size")  # what follows the checksum's field
    _check("the whole", binary[checked:size], header["checksum"])
    found = {}
    for number, name in enumerate(facts.TABLES):
        place = facts.BINARY_HEADER.size + number * facts.TABLE_INFO.size
        info = _unpack(facts.TABLE_INFO, binary, place)
        if not info["offset"]:
            continue
        data = binary[info["offset"] : size]
        if name in _SIZED:  # by its own header, as in `amdgpu_discovery.c`
            data = data[: _unpack(_SIZED[name], data, 0)["size"]]
            _check(name, data, info["checksum"])
        found[name] = data
    return found


def _check(name: str, data: bytes, checksum: int) -> None:
    if not data or sum(data) & 0xFFFF != checksum:
        raise _Damaged(f"checksum of {name}")


def _ips(binary: bytes, tables: Mapping[str, bytes]) -> Mapping[int, _Ip]:
    """First instance of each IP block by `hw_id`."""
    table = tables.get("IP_DISCOVERY", b"")
    header = _unpack(facts.IP_HEADER, table, 0)
    if header["signature"] != facts.IP_SIGNATURE:
        raise _Damaged(f"the list of IP blocks begins with {header['signature']:#010x}")
    infos = facts.IP_HEADER.size
    flags = _unpack(facts.IP_FLAGS, table, infos + facts.MAX_DIES * facts.DIE_INFO.size)["flags"]
    wide = header["version"] >= 4 and bool(flags & facts.BASE_ADDRESS_64_BIT)
    found: dict[int, _Ip] = {}
    for number in range(min(header["num_dies"], facts.MAX_DIES)):
        info = _unpack(facts.DIE_INFO, table, infos + number * facts.DIE_INFO.size)
        place = info["die_offset"]
        die = _unpack(facts.DIE_HEADER, binary, place)
        place += facts.DIE_HEADER.size
        for _ in range(die["num_ips"]):
            ip = _unpack(facts.IP, binary, place)
            place += facts.IP.size
            form = f"<{ip['num_base_address']}{'Q' if wide else 'I'}"
            try:
                bases = struct.unpack_from(form, binary, place)
            except struct.error:
                raise _Damaged("the list of IP blocks has no end") from None
            place += struct.calcsize(form)
            if ip["instance"] == 0:
                version = (ip["major"], ip["minor"], ip["revision"])
                found.setdefault(ip["hw_id"], _Ip(version, bases))
    return found


def _harvested(tables: Mapping[str, bytes]) -> frozenset[int]:
    """`hw_id` of the blocks that are fused off, first instances only."""
    table = tables.get("HARVEST_INFO")
    if not table:
        return frozenset()
    signature = _unpack(facts.HARVEST_HEADER, table, 0)["signature"]
    if signature != facts.HARVEST_SIGNATURE:
        raise _Damaged(f"the list of what is harvested begins with {signature:#010x}")
    found = set()
    for number in range(facts.HARVEST_ENTRIES):
        place = facts.HARVEST_HEADER.size + number * facts.HARVEST_INFO.size
        entry = _unpack(facts.HARVEST_INFO, table, place)
        if not entry["hw_id"]:
            break
        if entry["instance"] == 0:
            found.add(entry["hw_id"])
    return frozenset(found)


def _compute_units(tables: Mapping[str, bytes]) -> int:
    """By the GC table; 0 if there is none, or if its version is unknown."""
    table = tables.get("GC", b"")
    if not table:
        return 0
    header = _unpack(facts.GC_HEADER, table, 0)
    if header["table_id"] != facts.GC_TABLE_ID:
        raise _Damaged(f"the GC table begins with {header['table_id']:#x}")
    info = facts.GC_INFOS.get((header["version_major"], header["version_minor"]))
    if info is None:
        return 0
    gc = _unpack(info, table, facts.GC_HEADER.size)
    processors = gc["gc_num_wgp0_per_sa"] + gc["gc_num_wgp1_per_sa"]
    return 2 * gc["gc_num_se"] * gc["gc_num_sa_per_se"] * processors


def _unpack(layout_: Struct, data: bytes, place: int) -> dict[str, int]:
    try:
        return layout_.unpack_from(data, place)
    except Malformed:
        raise _Damaged(f"it ends within {layout_.name}") from None
