"""The discovery table as the driver reads it: known and unknown cards, and damaged tables."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emulator.amdgpu import discovery as model
from sdk.errors import DeviceFailed, TowlineError, Unsupported
from sdk.facts.registers import FactError
from tests.direct_bridge import BARS
from tests.gpu_host import Bench
from usbgpu.amd import discovery
from usbgpu.amd.card import Card
from usbgpu.amd.discovery import identify
from usbgpu.amd.facts import discovery as facts
from usbgpu.amd.facts.chips import BASES, CHIPS, GFX1100, GFX1102, GFX1201, HARDWARE_IDS, Chip

END = facts.OFFSET_FROM_END
COMPUTE_UNITS = {"gfx1100": 96, "gfx1102": 32, "gfx1200": 32, "gfx1201": 64}
BOTH = pytest.mark.parametrize("chip", CHIPS)


def found(bench: Bench) -> Card:
    return identify(bench, BARS, bench.bars[0].size)


def with_table(binary: bytes, chip: str = "gfx1100") -> Bench:
    bench = Bench(chip)
    place = bench.card.vram.size - END
    bench.card.vram.memory[place : place + len(binary)] = binary
    return bench


def sealed(binary: bytes) -> bytes:
    """The same with checksums that are right."""
    data = bytearray(binary)
    for number in range(len(facts.TABLES)):
        at = facts.BINARY_HEADER.size + number * facts.TABLE_INFO.size
        offset, _, size, _ = struct.unpack_from("<4H", data, at)
        struct.pack_into("<H", data, at + 2, sum(data[offset : offset + size]) & 0xFFFF)
    struct.pack_into("<H", data, 8, sum(data[10:]) & 0xFFFF)
    return bytes(data)


@BOTH
def test_cards_are_identified(chip):
    bench = Bench(chip)
    card = found(bench)
    facts_ = CHIPS[chip]
    assert card.chip is facts_
    assert card.vram == bench.card.vram.size == card.window
    assert card.compute_units == facts_.compute_units == COMPUTE_UNITS[chip]
    assert card.bases == {name: BASES[name] for name in facts_.blocks}
    assert card.hdp_flush == facts_.address("NBIO", "BIF_BX_PF0_HDP_MEM_COHERENCY_FLUSH_CNTL") * 4
    assert bench.runs == 2
    assert bench.findings == []


def test_devices_and_versions_are_distinguished():
    assert len({chip.device for chip in CHIPS.values()}) == len(CHIPS) == 4
    assert len({chip.versions["GC"] for chip in CHIPS.values()}) == 4


def test_registers_are_those_of_the_version_that_the_card_has():
    """The MM hub of 3.0.2 has its registers elsewhere; a block of a known version is taken."""
    other = GFX1102.with_versions({**GFX1102.versions, "MMHUB": (3, 0, 0), "NBIO": (4, 3, 1)})
    card = found(with_table(model.binary(other), "gfx1102"))
    assert (card.chip.name, card.chip.versions) == ("gfx1102", other.versions)
    name = "MMMC_VM_FB_LOCATION_BASE"
    assert card.index("MMHUB", name) == GFX1100.address("MMHUB", name)
    assert card.index("MMHUB", name) == GFX1102.address("MMHUB", name) + 0x80
    with pytest.raises(FactError):
        _ = GFX1102.with_versions({**GFX1102.versions, "MMHUB": (3, 9, 9)}).blocks


@pytest.mark.parametrize("version", [(3, 9, 9), (4, 1, 0)])
def test_a_block_with_unknown_registers_is_refused(version):
    other = replace(GFX1102, versions={**GFX1102.versions, "MMHUB": version})
    with pytest.raises(Unsupported, match=r"gfx1102 .*MMHUB " + r"\.".join(map(str, version))):
        found(with_table(model.binary(other), "gfx1102"))


def test_an_unknown_card_is_named():
    other = replace(GFX1100, versions={**GFX1100.versions, "GC": (11, 5, 1)})
    with pytest.raises(Unsupported, match=r"unknown GPU: .*GC 11\.5\.1") as caught:
        found(with_table(model.binary(other)))
    assert "gfx1102" in (caught.value.hint or "")


def test_a_known_card_with_another_block_is_named():
    other = replace(GFX1201, versions={**GFX1201.versions, "MP": (14, 0, 9), "HDP": (8, 1, 2)})
    with pytest.raises(Unsupported, match=r"gfx1201 .*MP 14\.0\.9, HDP 8\.1\.2") as caught:
        found(with_table(model.binary(other), "gfx1201"))
    assert caught.value.hint == "expected: MP 14.0.3, HDP 7.0.0"


def test_a_card_without_a_block_is_named():
    binary = bytearray(model.binary(GFX1100))
    place = binary.index(struct.pack("<HBB", HARDWARE_IDS["OSSSYS"], 0, 2))
    struct.pack_into("<H", binary, place, 0x999)
    with pytest.raises(Unsupported, match="OSSSYS missing"):
        found(with_table(sealed(binary)))


@pytest.mark.parametrize(("block", "refused"), [("GC", True), ("SDMA0", True), ("UVD", False)])
def test_what_is_harvested_is_respected(block, refused):
    binary = bytearray(model.binary(GFX1100))
    place = binary.index(struct.pack("<I", facts.HARVEST_SIGNATURE)) + 8
    number = {**HARDWARE_IDS, "UVD": 12}[block]
    binary[place : place + 8] = struct.pack("<HBBHBB", number, 0, 0, HARDWARE_IDS["GC"], 1, 0)
    bench = with_table(sealed(binary))
    if refused:
        with pytest.raises(Unsupported, match=f"{block} of this gfx1100"):
            found(bench)
    else:
        assert found(bench).chip is GFX1100  # GC's second instance is not used here


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, b"\0\0\0\0", "0x00000000"),
        (8, b"\x12\x34", "checksum of the whole"),
        (10, b"\xff\xff", "65535 bytes"),
        (60, b"XXXX", "checksum"),
        (300, b"\x55", "checksum"),
    ],
)
def test_a_damaged_table_is_refused(place, value, message):
    binary = bytearray(model.binary(GFX1100))
    binary[place : place + len(value)] = value
    with pytest.raises(DeviceFailed, match=f"damaged: .*{message}"):
        found(with_table(bytes(binary)))


def test_tables_with_right_checksums_and_wrong_content_are_refused():
    for signature in (facts.IP_SIGNATURE, facts.HARVEST_SIGNATURE, facts.GC_TABLE_ID):
        binary = model.binary(GFX1100).replace(struct.pack("<I", signature), b"NOPE", 1)
        with pytest.raises(DeviceFailed, match="damaged"):
            found(with_table(sealed(binary)))


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_no_table_is_followed_blindly(data):
    """Random bytes in a table whose checksums are right give a card or an error of the tree."""
    binary = bytearray(model.binary(data.draw(st.sampled_from([GFX1100, GFX1201]))))
    for place, value in data.draw(
        st.lists(st.tuples(st.integers(12, len(binary) - 1), st.integers(0, 255)), min_size=1, max_size=6)
    ):
        binary[place] = value
    start = SHARED.card.vram.size - END
    SHARED.card.vram.memory[start : start + len(binary)] = sealed(binary)
    try:
        card = found(SHARED)
    except TowlineError:
        return
    assert isinstance(card.chip, Chip)


SHARED = Bench("gfx1100")


def test_a_long_table_is_read_whole():
    binary = model.binary(GFX1100)
    long = bytearray(binary + bytes(6000))
    struct.pack_into("<H", long, 10, len(long))
    long[-1] = 7
    bench = with_table(sealed(bytes(long)))
    assert found(bench).chip is GFX1100
    assert bench.runs == 3


def test_a_card_that_does_not_answer_is_waited_for_and_then_reported():
    bench = Bench("gfx1100")
    card = found(bench)
    bench.card.mode1_reset()
    bench.host.sleep(2_000_000)
    assert found(bench) == card  # it answers again within 0.2 s
    bench.card._dark = True
    with pytest.raises(DeviceFailed, match="0xffffffff"):
        found(bench)


def test_the_size_of_a_table_is_in_its_own_header():
    """As in Linux, which ignores the sizes in the list of tables."""
    binary = bytearray(model.binary(GFX1100))
    for number in range(len(facts.TABLES)):
        struct.pack_into("<H", binary, 12 + 8 * number + 4, 0)
    struct.pack_into("<H", binary, 8, sum(binary[10:]) & 0xFFFF)
    card = found(with_table(bytes(binary)))
    assert (card.chip, card.compute_units) == (GFX1100, 96)


@pytest.mark.parametrize("value", [0, 0xFFFF_FFFF, 0x10_0000])
def test_a_flush_register_that_cannot_be_reached_is_refused(value):
    bench = Bench("gfx1100")
    bench.card.registers.write(discovery.REMAP_FLUSH, value)
    with pytest.raises(DeviceFailed, match=f"HDP flush {value:#x}"):
        found(bench)


def test_a_card_whose_own_firmware_does_not_start_is_reported():
    bench = Bench("gfx1100")
    bench.card.registers.write(discovery.PSP_STATUS, 0)
    with pytest.raises(DeviceFailed, match=r"firmware .* within 2 s") as caught:
        found(bench)
    assert "power" in (caught.value.hint or "")
    assert bench.clock.now() < 3


def test_a_card_that_is_not_at_its_address_is_waited_for():
    bench = Bench("gfx1100")
    bench.host.config_write(4, 0)
    with pytest.raises(DeviceFailed, match=r"does not answer: .*unsupported request"):
        found(bench)
    assert discovery.DARK <= bench.clock.now() < discovery.DARK + 0.5
