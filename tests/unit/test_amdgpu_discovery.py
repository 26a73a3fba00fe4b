"""The discovery binary, read by the layouts of the kernel's header as a driver does, without our own code."""

from __future__ import annotations

import struct

import pytest

from emulator.amdgpu import discovery
from usbgpu.amd.facts.chips import CHIPS, HARDWARE_IDS

TABLES = {"ip": 0, "gc": 1, "harvest": 2}


class Reader:
    """A parser written from the layouts in the reference alone."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.signature, _, _, self.checksum, self.size = struct.unpack_from("<IHHHH", data)

    def table(self, name: str) -> tuple[int, int, int]:
        return struct.unpack_from("<HHH", self.data, 12 + 8 * TABLES[name])

    def blocks(self) -> dict[tuple[int, int], tuple[tuple[int, int, int], tuple[int, ...]]]:
        start, _, _ = self.table("ip")
        signature, version = struct.unpack_from("<IH", self.data, start)
        assert signature == 0x53445049
        (dies,) = struct.unpack_from("<H", self.data, start + 12)
        wide = version >= 4 and self.data[start + 78] & 1
        found = {}
        for die in range(dies):
            identity, place = struct.unpack_from("<HH", self.data, start + 14 + 4 * die)
            assert struct.unpack_from("<H", self.data, place) == (identity,)
            (count,) = struct.unpack_from("<H", self.data, place + 2)
            place += 4
            for _ in range(count):
                hw_id, instance, bases, *release = struct.unpack_from("<HBBBBB", self.data, place)
                values = struct.unpack_from(f"<{bases}{'Q' if wide else 'I'}", self.data, place + 8)
                found[hw_id, instance] = (tuple(release), values)
                place += 8 + bases * (8 if wide else 4)
        return found


@pytest.fixture(params=CHIPS, name="chip")
def _chip(request):
    return CHIPS[request.param]


@pytest.fixture(name="reader")
def _reader(chip):
    return Reader(discovery.binary(chip))


def test_checksums_are_those_that_the_kernel_checks(reader):
    assert reader.signature == 0x28211407
    assert reader.size == len(reader.data) <= 10 << 10
    assert sum(reader.data[10 : reader.size]) & 0xFFFF == reader.checksum
    for name in TABLES:
        offset, checksum, size = reader.table(name)
        assert sum(reader.data[offset : offset + size]) & 0xFFFF == checksum
        assert checksum != 0


def test_any_changed_byte_shows(reader):
    for place in range(10, reader.size):
        changed = bytearray(reader.data)
        changed[place] ^= 0x40
        assert sum(changed[10 : reader.size]) & 0xFFFF != reader.checksum


def test_blocks_have_their_versions_and_bases(chip, reader):
    found = reader.blocks()
    assert len(found) == len(HARDWARE_IDS)
    assert found[11, 0][0] == chip.versions["GC"]
    assert found[42, 0] == (chip.versions["SDMA0"], found[11, 0][1])
    assert found[255, 0][0] == chip.versions["MP"]
    nbio = found[108, 0][1]
    assert nbio[2] + 0xC3 == 0xDE3, "the memory size register, which needs no table"
    assert nbio[5] + 0xD102 == 0x10134408 >> 2, "STRAP2, as in the published boot traces"


def test_the_ip_tables_version_follows_the_generation(chip, reader):
    start, _, size = reader.table("ip")
    version, stated = struct.unpack_from("<HH", reader.data, start + 4)
    assert version == {11: 3, 12: 4}[chip.generation]
    assert stated == size


def test_gc_table_counts_compute_units(chip, reader):
    start, _, size = reader.table("gc")
    identity, major, _, stated = struct.unpack_from("<IHHI", reader.data, start)
    assert (identity, major, stated) == (0x4347, 1, size)
    engines, first, second = struct.unpack_from("<III", reader.data, start + 12)
    arrays = struct.unpack_from("<I", reader.data, start + 12 + 4 * 16)[0]
    assert (
        2 * engines * arrays * (first + second)
        == {"gfx1100": 96, "gfx1102": 32, "gfx1200": 32, "gfx1201": 64}[chip.name]
    )
    waves, scratch, lds = struct.unpack_from("<III", reader.data, start + 12 + 4 * 12)
    assert (waves, scratch, lds) == (16, 32, 64)


def test_nothing_is_harvested(reader):
    start, _, size = reader.table("harvest")
    assert struct.unpack_from("<I", reader.data, start) == (0x56524148,)
    assert reader.data[start + 8 : start + size] == bytes(32 * 4)
