"""The record that a boot leaves in VRAM for the next program, which then needs no discovery table.

A record only counts as long as the card has not been reset since: SCRATCH_REG5 has its checksum then, REG7
says that it was booted by this driver, and REG6 that it is not in use. (The two are the published drivers'
too, with another number in REG7: what they boot is theirs.)
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from sdk.errors import InternalError
from sdk.facts.registers import FactError
from usbgpu.amd import layout, smu
from usbgpu.amd.batch import Batch
from usbgpu.amd.card import Card
from usbgpu.amd.discovery import RECORD_SIZE, FirstLook
from usbgpu.amd.facts.chips import CHIPS
from usbgpu.bridge.seam import Bridge

BOOTED, DIRTY, CHECKSUM = "SCRATCH_REG7", "SCRATCH_REG6", "SCRATCH_REG5"
"""Registers that outlive a process, but not a reset."""
VERSION = 1
"""Of what this driver leaves behind: `layout`, the page tables, the state of the blocks. What another version
has left is booted again."""
MAGIC = 0x544F_5700 | VERSION
"""In BOOTED; and what the record begins with. Behind it: length and CRC-32 of the JSON text, and the text."""
_HEAD = struct.Struct("<3I")


@dataclass(frozen=True, slots=True)
class Record:
    """What a boot has found out.

    Attributes:
        mc: address of VRAM for the memory controller.
        starts: addresses at which the command processors start, by name.
        clocks: ranges of the clocks, in MHz.
    """

    mc: int
    starts: Mapping[str, int]
    clocks: smu.Ranges


def store(batch: Batch, record: Record) -> None:
    """Leave a record, and mark the card as booted."""
    data, checksum = _pack(batch.card, record)
    batch.store(layout.RECORD, data)
    batch.flush_hdp()
    batch.write("GC", CHECKSUM, checksum)
    batch.write("GC", BOOTED, MAGIC)


def expect(batch: Batch, record: Record) -> None:
    """End a batch unless the card is as this program has left it: booted with this record, and not closed."""
    for name, value, what in (
        (BOOTED, MAGIC, "booted by this driver"),
        (CHECKSUM, _pack(batch.card, record)[1], "not reset since"),
        (DIRTY, 1, "in use"),
    ):
        batch.wait("GC", name, value, seconds=0, what=what)


def forget(batch: Batch) -> None:
    """Remove the record: what is booted from here on must not be taken for what was booted before."""
    batch.store(layout.RECORD, bytes(_HEAD.size))


def read(
    bridge: Bridge, bars: Mapping[int, int], window: int, look: FirstLook
) -> tuple[Card, Record, int] | None:
    """A card and its record, with the checksum, if there is a valid one."""
    magic, size, checksum = _HEAD.unpack_from(look.record)
    text = look.record[_HEAD.size : _HEAD.size + size]
    if magic != MAGIC or len(text) != size or zlib.crc32(text) != checksum:
        return None
    try:
        known = json.loads(text)
        chip, mc, starts = CHIPS[known["chip"]], known["mc"], known["starts"]
        versions = {
            name: (major, minor, revision) for name, (major, minor, revision) in known["versions"].items()
        }
        chip = chip.with_versions(versions)
        bases = {block: tuple(known["bases"][block]) for block in chip.blocks}
        clocks = {name: (low, high) for name, (low, high) in known["clocks"].items()}
        vram, compute_units = known["vram"], known["compute_units"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, FactError):  # another program's
        return None
    if vram != look.vram:
        return None
    card = Card(
        bridge=bridge,
        chip=chip,
        bars=dict(bars),
        window=min(window, look.vram),
        vram=look.vram,
        hdp_flush=look.hdp_flush,
        bases=bases,
        compute_units=compute_units,
    )
    return card, Record(mc, starts, clocks), checksum


def _pack(card: Card, record: Record) -> tuple[bytes, int]:
    """A record's bytes, and its checksum."""
    known = {
        "chip": card.chip.name,
        "versions": {name: list(version) for name, version in card.chip.versions.items()},
        "vram": card.vram,
        "bases": {block: list(bases) for block, bases in card.bases.items()},
        "compute_units": card.compute_units,
        "mc": record.mc,
        "starts": dict(record.starts),
        "clocks": {name: list(limits) for name, limits in record.clocks.items()},
    }
    text = json.dumps(known, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 4)
    if _HEAD.size + len(text) > RECORD_SIZE:
        raise InternalError("the boot record does not fit")
    checksum = zlib.crc32(text)
    return _HEAD.pack(MAGIC, len(text), checksum) + text, checksum
