"""The card behind the fabric: BARs, indirect windows, doorbells, bus mastering, resets, and what it costs."""

from __future__ import annotations

import struct
import sys
import time

import pytest

from emulator.amdgpu.card import MODE1_CLOCKS, MODE1_DELAY, AmdCard
from emulator.amdgpu.doorbells import Doorbells
from emulator.amdgpu.hdp import Hdp
from emulator.amdgpu.nbio import Nbio
from emulator.amdgpu.trace import Trace
from emulator.core.clock import Scheduler
from emulator.pcie.fabric import Fabric, Node
from emulator.pcie.function import Reset, Status, UnsupportedRequest
from sdk.errors import UsageError
from tests.unit.amdgpu_bench import context as bare_context
from tests.unit.amdgpu_bench import run, write
from tests.unit.pcie import Requester, RootRam
from tests.unit.test_amdgpu_discovery import Reader
from usbgpu.amd.facts.chips import CHIPS

VRAM, DOORBELLS, REGISTERS = 0x8_0000_0000, 0x10_0000_0000, 0x4000_0000
SRAM = 0x200000
MIB = 1 << 20

MEMSIZE = 0xDE3
"""RCC_CONFIG_MEMSIZE, the register that drivers know without the discovery table."""


class Host:
    """A driver of the card alone on bus 0."""

    def __init__(self, chip: str = "gfx1100", vram: int | None = 512 * MIB, **model: bool) -> None:
        self.card = AmdCard(chip, vram, **model)
        self.clock = Scheduler()
        self.memory = RootRam()
        self.fabric = Fabric(Node(self.card), self.memory, self.clock, bytes_per_second=10**9)
        self.place()

    def config(self, offset: int, value: int | None = None) -> int:
        if value is not None:
            self.fabric.config_write(offset, value.to_bytes(4, "little"), 0xF, type1=False)
        return int.from_bytes(self.fabric.config_read(offset, 0xF, type1=False).data, "little")

    def place(self) -> None:
        for offset, base in ((0x10, VRAM), (0x18, DOORBELLS)):
            self.config(offset, base & 0xFFFFFFFF)
            self.config(offset + 4, base >> 32)
        self.config(0x24, REGISTERS)
        self.config(0x04, 0x0006)

    def resize(self) -> int:
        """Make BAR 0 as large as it can be, as drivers do; its size."""
        self.config(0x04, 0)
        offset = 0x100
        while (header := self.config(offset)) & 0xFFFF != 0x15:
            offset = header >> 20
        sizes, control = self.config(offset + 4) >> 4, self.config(offset + 8)
        largest = sizes.bit_length() - 1
        self.config(offset + 8, control & ~0x1F00 | largest << 8)
        self.place()
        return MIB << largest

    def read(self, address: int) -> int:
        answer = self.fabric.memory_read(address, 0xF)
        assert answer.status is Status.SC
        return int.from_bytes(answer.data, "little")

    def write(self, address: int, value: int) -> None:
        self.fabric.memory_write(address, value.to_bytes(4, "little"), 0xF)

    def get(self, index: int) -> int:
        return self.read(REGISTERS + 4 * index)

    def set(self, index: int, value: int) -> None:
        self.write(REGISTERS + 4 * index, value)

    def at(self, block: str, name: str) -> int:
        return self.card.chip.address(block, name)

    def nbio(self, name: str, value: int | None = None) -> int:
        index = self.at("NBIO", name)
        if value is not None:
            self.set(index, value)
        return self.get(index)

    def far(self, index: int, value: int | None = None) -> int:
        """A register beyond the window."""
        self.nbio("BIF_BX_PF0_RSMU_INDEX", 4 * index)
        return self.nbio("BIF_BX_PF0_RSMU_DATA", value)

    def run(self, clocks: int) -> None:
        run(self.clock, clocks)


@pytest.fixture(params=CHIPS, name="host")
def _host(request):
    return Host(request.param)


@pytest.fixture(name="one")
def _one():
    return Host()


# -- identity and BARs ----------------------------------------------------------------------------------


def test_it_is_an_amd_display_controller(host):
    assert (
        host.config(0x00)
        == {
            "gfx1100": 0x744C1002,
            "gfx1102": 0x74801002,
            "gfx1200": 0x75901002,
            "gfx1201": 0x75501002,
        }[host.card.chip.name]
    )
    assert host.config(0x08) >> 8 == 0x030000


def test_bar0_shows_256_mib_and_can_show_all(one):
    one.card.vram.write(256 * MIB, b"\x11\x22\x33\x44")
    assert one.fabric.memory_read(VRAM + 256 * MIB, 0xF).status is Status.UR
    assert one.resize() == 512 * MIB
    assert one.read(VRAM + 256 * MIB) == 0x44332211


def test_bar0_of_a_24_gib_card_ends_where_vram_does():
    host = Host("gfx1100", 24 << 30)
    assert host.resize() == 32 << 30
    host.write(VRAM + (24 << 30) - 4, 0x11223344)
    assert host.read(VRAM + (24 << 30) - 4) == 0x11223344
    assert host.fabric.memory_read(VRAM + (24 << 30), 0xF).status is Status.UR


@pytest.mark.parametrize(
    ("offset", "size"), [(0, 1), (0, 2), (2, 4), (0, 8), (MIB - 2, 4), (MIB, 4), (-4, 4)]
)
def test_registers_are_dwords(one, offset, size):
    with pytest.raises(UnsupportedRequest):
        one.card.read(5, offset, size)
    with pytest.raises(UnsupportedRequest):
        one.card.write(5, offset, bytes(size))


@pytest.mark.parametrize("bar", [1, 3, 4, 6])
def test_other_bars_are_refused(one, bar):
    with pytest.raises(UnsupportedRequest):
        one.card.read(bar, 0, 4)
    with pytest.raises(UnsupportedRequest):
        one.card.write(bar, 0, bytes(4))


@pytest.mark.parametrize(("offset", "size"), [(0, 1), (0, 2), (2, 4), (4, 8), (0, 16)])
def test_doorbells_are_dwords_or_pairs(one, offset, size):
    with pytest.raises(UnsupportedRequest):
        one.card.write(2, offset, bytes(size))


def test_vram_takes_bytes(one):
    one.fabric.memory_write(VRAM + 0x1000, bytes(4), 0xF)
    one.fabric.memory_write(VRAM + 0x1000, b"abcd", 0x5)
    assert one.fabric.memory_read(VRAM + 0x1000, 0xF).data == b"a\0c\0"


@pytest.mark.parametrize(
    ("name", "memory", "top"),
    [
        ("gfx1100", 24560, 0x85FE),
        ("gfx1102", 8176, 0x81FE),
        ("gfx1200", 16304, 0x83FA),
        ("gfx1201", 16304, 0x83FA),
    ],
)
def test_a_card_without_a_size_has_its_own(name, memory, top):
    """As in kernel logs of such cards: not a power of two, and BAR 0 is the next one."""
    host = Host(name, None)
    assert host.get(MEMSIZE) == memory
    assert (
        host.resize()
        == {"gfx1100": 32 << 30, "gfx1102": 8 << 30, "gfx1200": 16 << 30, "gfx1201": 16 << 30}[name]
    )
    assert host.card.registers.value("GC", "GCMC_VM_FB_LOCATION_TOP") == top


@pytest.mark.parametrize(
    ("chip", "size"), [("gfx900", None), ("gfx1100", 0), ("gfx1100", 100 * MIB), ("gfx1100", 256 * MIB + 1)]
)
def test_impossible_cards_are_refused(chip, size):
    with pytest.raises(UsageError):
        AmdCard(chip, size)


def test_more_than_the_host_has_is_refused():
    with pytest.raises(UsageError, match="address space"):
        AmdCard("gfx1100", 1 << 60)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="unknown elsewhere")
def test_memory_takes_what_has_been_written():
    vram = AmdCard("gfx1100", 256 * MIB).vram
    before = vram.resident()
    vram.write(40 * MIB, bytes(5 * MIB))
    assert 5 * MIB <= vram.resident() - before < 8 * MIB
    vram.clear()
    assert vram.resident() == 0


@pytest.mark.skipif(sys.platform != "linux", reason="zeros elsewhere")
def test_memory_holds_the_same_garbage_after_every_power_on():
    """So that a driver that forgets to clear its page tables and rings fails each time."""
    cards = AmdCard("gfx1100", 256 * MIB), AmdCard("gfx1201", 512 * MIB)
    for place in (0, 0x1000, 17 * MIB, 255 * MIB):
        before = cards[0].vram.read(place, 4096)
        assert before == cards[1].vram.read(place, 4096)
        assert len(set(before)) > 100
        cards[0].vram.write(place, bytes(4096))
        cards[0].reset(Reset.HOT)
        assert cards[0].vram.read(place, 4096) == before


# -- discovery and the indirect windows -----------------------------------------------------------------


def test_discovery_through_the_whole_bar(host):
    """What a driver does first, with nothing set up: memory size, table, a register by the table's bases."""
    size = host.get(MEMSIZE) * MIB
    assert size == 512 * MIB == host.resize()
    place = VRAM + size - (64 << 10)
    data = b"".join(host.read(place + at).to_bytes(4, "little") for at in range(0, 10 << 10, 4))
    reader = Reader(data)
    assert sum(data[10 : reader.size]) & 0xFFFF == reader.checksum
    release, bases = reader.blocks()[108, 0]
    assert release == host.card.chip.versions["NBIO"]
    assert host.get(bases[2] + 0xC3) == size // MIB
    assert host.card.diagnosis.findings == []


def test_discovery_through_mm_index(host):
    """The same where BAR 0 shows too little: three register operations a dword."""
    host.card.vram.write(0, b"low!")
    place = host.get(MEMSIZE) * MIB - (64 << 10)
    words = []
    for at in range(place, place + 64, 4):
        host.nbio("BIF_BX_PF0_MM_INDEX", at & 0x7FFFFFFF | 0x80000000)
        host.nbio("BIF_BX_PF0_MM_INDEX_HI", at >> 31)
        words.append(host.nbio("BIF_BX_PF0_MM_DATA"))
    assert struct.pack("<16I", *words) == host.card.vram.read(place, 64)
    assert words[0] == 0x28211407


def test_mm_index_reaches_beyond_2_gib():
    host = Host("gfx1100", 8 << 30)
    host.nbio("BIF_BX_PF0_MM_INDEX", 0x80001000)
    host.nbio("BIF_BX_PF0_MM_INDEX_HI", 3)
    assert host.nbio("BIF_BX_PF0_MM_DATA", 0x12345678) == 0x12345678
    host.card.blocks.hdp.drain()
    assert host.card.vram.read((3 << 31) + 0x1000, 4) == b"\x78\x56\x34\x12"
    host.nbio("BIF_BX_PF0_MM_INDEX_HI", 4)
    assert host.nbio("BIF_BX_PF0_MM_DATA") == 0xFFFFFFFF
    assert "no such VRAM" in host.card.diagnosis.findings[-1].symptom


def test_mm_index_reaches_registers_too(one):
    one.nbio("BIF_BX_PF0_MM_INDEX", 4 * MEMSIZE)
    assert one.nbio("BIF_BX_PF0_MM_DATA") == 512


def test_registers_beyond_the_window(one):
    strap = one.at("NBIO", "RCC_DEV0_EPF2_STRAP2")
    assert 4 * strap == 0x10134408
    assert one.far(strap) == 0
    assert one.far(strap, 0x80) == 0x80
    assert one.card.registers.value("NBIO", "RCC_DEV0_EPF2_STRAP2") == 0x80


def test_an_indirect_window_onto_itself_ends(one):
    for name in ("RSMU", "MM"):
        one.nbio("BIF_BX_PF0_RSMU_INDEX", 4 * one.at("NBIO", f"BIF_BX_PF0_{name}_DATA"))
        one.nbio("BIF_BX_PF0_MM_INDEX", 4 * one.at("NBIO", "BIF_BX_PF0_RSMU_DATA"))
        assert one.nbio("BIF_BX_PF0_RSMU_DATA", 1) == 0
        assert one.nbio("BIF_BX_PF0_MM_DATA", 1) == 0
    assert "indirect" in one.card.diagnosis.findings[0].symptom


def test_an_unknown_register_is_named(one):
    assert one.get(0x3FFFF) == 0
    assert "0x3ffff" in one.card.diagnosis.findings[-1].symptom


# -- flushes of the HDP ---------------------------------------------------------------------------------


def test_a_flush_through_the_remapped_register(host):
    """The register is not the one of power-on, so that only REMAP leads to it."""
    index = host.nbio("BIF_BX0_REMAP_HDP_MEM_FLUSH_CNTL") // 4
    assert index == host.at("NBIO", "BIF_BX_PF0_HDP_MEM_COHERENCY_FLUSH_CNTL")
    for place in (index, 0x1FC00):
        host.nbio("BIF_BX0_REMAP_HDP_MEM_FLUSH_CNTL", 4 * place)
        host.write(VRAM, place)
        assert host.card.vram.memory[:4] != place.to_bytes(4, "little")
        host.set(place, 0)
        assert host.card.vram.memory[:4] == place.to_bytes(4, "little")
    assert host.card.diagnosis.findings == []


def test_a_flush_by_an_engine(host):
    host.write(VRAM, 0x55)
    registers, chip = host.card.registers, host.card.chip
    registers.write(chip.address("NBIO", "BIF_BX_PF0_GPU_HDP_FLUSH_REQ"), 0xFFFFFFFF)
    assert registers.read(chip.address("NBIO", "BIF_BX_PF0_GPU_HDP_FLUSH_DONE")) == 0xFFFFFFFF
    assert host.card.vram.read(0, 1) == b"\x55"


def test_register_writes_overtake_what_waits(one):
    one.write(VRAM, 0x55)
    one.nbio("RCC_DEV0_EPF0_RCC_DOORBELL_APER_EN", 1)
    assert one.card.blocks.hdp.waiting == 4
    one.write(DOORBELLS, 0)
    assert one.card.blocks.hdp.waiting == 0


# -- doorbells ------------------------------------------------------------------------------------------

ROUTES = {11: "S2A_DOORBELL_ENTRY_{}_CTRL", 12: "GDC_S2A0_S2A_DOORBELL_ENTRY_{}_CTRL"}
CP, CP_SECOND, SDMA = (0, 0x30000007), (3, 0x3000000D), (2, 0x3009001D)
"""Numbers and values of the entries, as the published boot traces write them."""
ALL = 0x1FFFF8
"""Offset of the last doorbell."""


class Front:
    """NBIO and doorbells without engines."""

    def __init__(self, chip: str = "gfx1100") -> None:
        self.context, _ = bare_context(chip)
        nbio = Nbio(self.context, Hdp(self.context))
        self.doorbells = Doorbells(self.context, nbio.doorbells_enabled, nbio.route)

    def listen(self, first: int, last: int, kind: str) -> list[tuple[int, int]]:
        """What rings from now on."""
        rung: list[tuple[int, int]] = []
        self.doorbells.subscribe(first, last, kind, lambda *ring: rung.append(ring))
        return rung

    def enable(self, *entries: tuple[int, int]) -> None:
        """Open the aperture, and set routes."""
        write(self.context, "NBIO", "RCC_DEV0_EPF0_RCC_DOORBELL_APER_EN", 1)
        for number, value in entries:
            write(self.context, "NBIO", ROUTES[self.context.chip.generation].format(number), value)

    @property
    def missed(self) -> set[str]:
        return self.context.diagnosis.steps


@pytest.mark.parametrize("chip", CHIPS)
def test_doorbells_go_where_the_routes_say(chip):
    front = Front(chip)
    compute, copies = front.listen(0, ALL, "cp"), front.listen(0x800, 0x800, "sdma")
    front.enable(CP, CP_SECOND, SDMA)
    for offset, value in ((0x18, 7), (0x800, 0x40), (0x810, 9)):
        front.doorbells.write(offset, value)
    assert compute == [(0x18, 7), (0x810, 9)]
    assert copies == [(0x800, 0x40)]
    assert front.context.diagnosis.findings == []


def test_doorbells_vanish_before_the_aperture_is_enabled():
    front = Front()
    compute = front.listen(0, ALL, "cp")
    front.enable(CP)
    write(front.context, "NBIO", "RCC_DEV0_EPF0_RCC_DOORBELL_APER_EN", 0)
    front.doorbells.write(0x18, 7)
    assert compute == []
    assert front.missed == {"nbio-doorbell-aperture"}


def test_doorbells_without_a_route_are_lost():
    front = Front()
    compute = front.listen(0, ALL, "cp")
    front.enable()
    front.doorbells.write(0x18, 7)
    assert compute == []
    assert front.missed == {"nbio-doorbell-route-cp"}


@pytest.mark.parametrize("entries", [(), (CP,)])
def test_a_doorbell_of_sdma_without_its_route_misses_it(entries):
    front = Front()
    front.listen(0, ALL, "cp")
    copies = front.listen(0x800, 0x800, "sdma")
    front.enable(*entries)
    front.doorbells.write(0x800, 0x40)
    assert copies == []
    assert front.missed == {"nbio-doorbell-route-sdma"}


@pytest.mark.parametrize("chip", CHIPS)
def test_the_interrupt_handler_has_a_doorbell(chip):
    """As the kernel routes it: port 1, AWID 0, two dwords."""
    host = Host(chip)
    host.nbio("RCC_DEV0_EPF0_RCC_DOORBELL_APER_EN", 1)
    for number, value in (CP, (1, 1 | 0x2F0 << 7 | 2 << 17)):
        host.far(host.at("NBIO", ROUTES[CHIPS[chip].generation].format(number)), value)
    host.set(host.at("OSSSYS", "IH_DOORBELL_RPTR"), 1 << 28 | 0x2F0)
    host.write(DOORBELLS + 4 * 0x2F0, 64)
    assert host.get(host.at("OSSSYS", "IH_RB_RPTR")) == 64
    assert host.card.diagnosis.findings == []


def test_a_route_elsewhere_is_named():
    front = Front()
    front.enable((0, 0x1 | 9 << 1))
    front.doorbells.write(0x18, 7)
    assert "goes to AWID 0x9, where no queue expects it" in front.context.diagnosis.findings[0].symptom


def test_both_dwords_of_a_doorbell():
    front = Front()
    compute = front.listen(0, ALL, "cp")
    front.enable(CP)
    for offset, value in ((0x18, 5), (0x1C, 0), (0x1C, 1), (0x18, 6)):
        front.doorbells.write(offset, value)
    assert compute == [(0x18, 5), (0x18, 1 << 32 | 5), (0x18, 1 << 32 | 6)]


def test_a_pair_in_one_request(one):
    rung = []
    one.card.blocks.doorbells.subscribe(0x18, 0x18, "cp", lambda *ring: rung.append(ring))
    one.nbio("RCC_DEV0_EPF0_RCC_DOORBELL_APER_EN", 1)
    one.far(one.at("NBIO", ROUTES[11].format(CP[0])), CP[1])
    one.card.write(2, 0x18, (1 << 32 | 7).to_bytes(8, "little"))
    assert rung[-1] == (0x18, 1 << 32 | 7)


# -- bus mastering and resets ---------------------------------------------------------------------------


def test_dma_needs_bus_mastering_and_a_target(one):
    link = one.card.context.link
    link.dma_write(SRAM, b"data")
    assert link.dma_read(SRAM, 4) == b"data"
    with pytest.raises(UnsupportedRequest):
        link.dma_read(0x1000, 4)
    assert one.card.diagnosis.steps == set()
    one.config(0x04, 0x0002)
    with pytest.raises(UnsupportedRequest):
        link.dma_write(SRAM, b"lost")
    assert one.card.diagnosis.steps == {"pcie-bus-master"}
    assert one.memory.data[:4] == b"data"


@pytest.mark.parametrize("kind", Reset)
def test_a_reset_is_power_on(one, kind):
    happened = []
    one.card.context.link.schedule(100, lambda: happened.append(1))
    one.card.vram.write(0x1000, b"gone")
    one.write(VRAM, 0x55)
    one.nbio("RCC_DEV0_EPF0_RCC_DOORBELL_APER_EN", 1)
    one.resize()
    one.fabric.reset(kind)
    assert one.card.bars[0].size == 256 * MIB
    one.place()
    one.run(10_000)
    assert happened == []
    assert one.card.vram.read(0x1000, 4) != b"gone"
    assert one.read(VRAM) != 0x55
    assert one.nbio("RCC_DEV0_EPF0_RCC_DOORBELL_APER_EN") == 0
    assert one.get(MEMSIZE) == 512
    assert one.card.vram.read(512 * MIB - (64 << 10), 4) == b"\x07\x14\x21\x28"


def test_mode1_reset_takes_its_time(one):
    happened = []
    one.resize()
    one.nbio("RCC_DEV0_EPF0_RCC_DOORBELL_APER_EN", 1)
    one.card.mode1_reset()
    one.run(MODE1_DELAY - 1)
    assert one.get(MEMSIZE) == 512
    one.card.context.link.schedule(100, lambda: happened.append(1))
    one.run(1)
    one.write(VRAM, 0x55)
    one.write(DOORBELLS, 0x55)
    for address in (VRAM, DOORBELLS, REGISTERS + 4 * MEMSIZE):
        assert one.read(address) == 0xFFFFFFFF
    assert one.config(0x00) == 0x744C1002
    one.run(MODE1_CLOCKS - 1)
    assert one.get(MEMSIZE) == 0xFFFFFFFF
    one.run(1)
    assert one.get(MEMSIZE) == 512
    assert one.read(VRAM) != 0x55
    assert one.nbio("RCC_DEV0_EPF0_RCC_DOORBELL_APER_EN") == 0
    assert one.card.bars[0].size == 512 * MIB
    assert happened == []


@pytest.mark.parametrize("keeps", [True, False])
def test_vram_over_a_mode1_reset(keeps):
    one = Host(keeps_vram=keeps)
    one.card.vram.write(0x1000, b"kept?")
    one.write(VRAM, 0x55)  # waits in the HDP
    before = one.card.vram.memory[:4]
    one.card.mode1_reset()
    one.run(MODE1_DELAY + MODE1_CLOCKS)
    assert (one.card.vram.read(0x1000, 5) == b"kept?") is keeps
    assert one.card.vram.read(0, 4) == (b"\x55\0\0\0" if keeps else before), "it drained before the reset"
    assert one.card.vram.read(512 * MIB - (64 << 10), 4) == b"\x07\x14\x21\x28"
    one.card.vram.write(0x1000, b"kept?")
    one.card.reset(Reset.PERST)
    assert one.card.vram.read(0x1000, 5) != b"kept?"


@pytest.mark.parametrize("drains", [True, False])
def test_a_mode1_reset_loses_what_waits_in_the_hdp(drains):
    one = Host(hdp_drains=drains)
    one.card.vram.write(0, b"old!")
    one.card.mode1_reset()
    one.run(MODE1_DELAY - 1)
    one.write(VRAM, 0x55)
    one.run(1 + MODE1_CLOCKS)
    assert one.card.vram.read(0, 4) == b"old!"
    assert one.read(VRAM) == int.from_bytes(b"old!", "little")
    assert one.card.diagnosis.findings == []


@pytest.mark.slow
def test_the_doorbell_interrupt_control_is_storage(host):
    assert host.at("NBIO", "BIF_BX0_BIF_DOORBELL_INT_CNTL") == 0xE1E
    assert host.get(0xE1E) == 0
    host.set(0xE1E, 0x0507_0000)
    assert host.get(0xE1E) == 0x0507_0000
    assert host.card.diagnosis.findings == []


def test_another_reset_cuts_a_mode1_reset_short(one):
    one.card.mode1_reset()
    one.run(MODE1_DELAY)
    one.card.reset(Reset.FUNCTION)
    one.card.vram.write(0x1000, b"kept")
    one.run(2 * MODE1_CLOCKS)
    assert one.card.vram.read(0x1000, 4) == b"kept"


def test_a_mode1_reset_that_was_cut_short_does_not_end_the_next(one):
    one.card.mode1_reset()
    one.run(MODE1_DELAY)
    one.card.reset(Reset.FUNCTION)
    one.card.mode1_reset()
    one.run(MODE1_CLOCKS)
    assert one.card.read(5, 4 * MEMSIZE, 4) == b"\xff" * 4
    one.run(MODE1_DELAY)
    assert one.card.read(5, 4 * MEMSIZE, 4) != b"\xff" * 4


def test_behind_the_bridge_a_lost_link_resets_it():
    board = Requester(AmdCard("gfx1100", 512 * MIB))
    board.power_on()
    board.enumerate()
    board.launch(0x60, 0x8_0000_1000, 0x55)
    assert board.request(0x20, 0x8_0000_1000) == 0x55
    board.clock.after(10, lambda: board.link.drop(None))
    board.run(20)
    assert board.endpoint.vram.read(0x1000, 1) != b"\x55"
    assert board.endpoint.config.value(0x04, 2) == 0


# -- the trace ------------------------------------------------------------------------------------------


def test_the_trace_names_registers_events_and_findings(one, caplog):
    lines = []
    trace = Trace(one.card, lines.append)
    one.write(VRAM, 0x55)
    one.nbio("RCC_DEV0_EPF0_RCC_DOORBELL_APER_EN", 1)
    for _ in range(6):
        one.get(MEMSIZE)
    one.set(one.card.blocks.nbio.flush_index, 0)
    one.write(DOORBELLS + 0x18, 7)
    trace.close()
    one.get(MEMSIZE)
    text = [line.partition("gpu  ")[2] for line in lines]
    name = "NBIO:RCC_DEV0_EPF0_RCC_DOORBELL_APER_EN"
    assert text[:2] == [f"{kind} {name} = 0x1  BIF_DOORBELL_APER_EN" for kind in "WR"]
    assert text[2:6] == ["R NBIO:RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE = 0x200"] * 3 + ["... 3 more times"]
    assert text[6:8] == [". hdp flush by host, 4 bytes", ". doorbells 0x18 = 0x7 to no engine"]
    assert text[8] == "! the doorbell 0x18 goes to no engine: boot step nbio-doorbell-route-cp is missing"
    assert text[9].startswith("  nbio-doorbell-route-cp: S2A_DOORBELL_ENTRY_0_CTRL")
    assert len(text) == 10
    assert caplog.messages == [], "a finding is reported once"


def test_the_trace_survives_a_reset(one):
    lines = []
    Trace(one.card, lines.append)
    one.card.reset(Reset.FUNCTION)
    one.card.read(5, 4 * MEMSIZE, 4)
    assert [line.partition("gpu  ")[2] for line in lines] == [
        ". card function level reset",
        "R NBIO:RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE = 0x200",
    ]


# -- what it costs --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_streamed_dwords_are_quick(one):
    """A megabyte of dwords through BAR 0: the bound is some twenty times what it takes."""
    began = time.process_time()
    for offset in range(0, MIB, 4):
        one.card.write(0, offset, b"\x12\x34\x56\x78")
    assert time.process_time() - began < (MIB // 4) * 10e-6
    one.card.blocks.hdp.drain()
    assert one.card.vram.read(0, MIB) == b"\x12\x34\x56\x78" * (MIB // 4)
