"""The VM hubs: apertures, page tables, what they remember, and faults."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.amdgpu import hub as hub_module
from emulator.amdgpu.hub_memory import HubMemory
from emulator.amdgpu.seams import PageFault
from emulator.amdgpu.tlb import TRANSLATIONS
from sdk.facts.registers import FactError
from tests.unit.amdgpu_bench import SRAM
from tests.unit.amdgpu_hub_bench import DUMMY, EXECUTE, FB_BASE, READ, ROOT, RWX, SCRATCH, START, WRITE, Bench
from usbgpu.amd.facts import pages

CHIPS = ("gfx1100", "gfx1201")
BLOCKS = ("GC", "MMHUB")
PAGE = 4096


@pytest.fixture(name="bench", params=[(chip, block) for chip in CHIPS for block in BLOCKS], ids="-".join)
def _bench(request):
    return Bench(*request.param)


# -- apertures ---------------------------------------------------------------------------------------------


def test_power_on_shows_where_vram_is(bench):
    fresh = Bench(skip=("",))
    assert fresh.read("GCMC_VM_FB_LOCATION_BASE") << 24 == FB_BASE
    assert (fresh.read("GCMC_VM_FB_LOCATION_TOP") + 1 << 24) - FB_BASE == fresh.context.vram.size
    memory = fresh.memory()
    memory.write(FB_BASE + 0x5000, b"before any set-up")
    assert fresh.context.vram.read(0x5000, 17) == b"before any set-up"
    assert not fresh.steps


def test_virtual_addresses_mean_nothing_before_set_up():
    fresh = Bench(skip=("",))
    fresh.map(START, 0x40_0000)
    with pytest.raises(PageFault):
        fresh.memory().read(START, 4)
    assert fresh.steps == {"gc-l1-tlb"}


def test_addresses_in_the_system_aperture_are_the_memory_controllers(bench):
    memory = bench.memory()
    memory.write(FB_BASE + 0x1234, b"hello")
    assert bench.context.vram.read(0x1234, 5) == b"hello"
    assert memory.translate(FB_BASE).target == 0
    bench.no_dummy()
    with pytest.raises(PageFault):
        memory.read(FB_BASE + bench.context.vram.size, 4)


def test_the_aperture_is_for_vmid_0_alone(bench):
    bench.no_dummy()
    with pytest.raises(PageFault, match="VMID 3 is not enabled"):
        bench.memory(3).read(FB_BASE, 4)


def test_the_default_page_of_the_system_aperture(bench):
    bench.write(bench.mc + "SYSTEM_APERTURE_HIGH_ADDR", FB_BASE + (1 << 32) >> 18)
    bench.write(bench.mc + "MX_L1_TLB_CNTL", 0x1859 | 1 << 5)
    bench.memory().write(FB_BASE + (1 << 31) + 8, b"lost")
    assert bench.context.vram.read(SCRATCH + 8, 4) == b"lost"


def test_agp_goes_to_pcie(bench):
    bench.write(bench.mc + "AGP_BOT", 0x9000)
    bench.write(bench.mc + "AGP_TOP", 0x9000)
    bench.write(bench.mc + "SYSTEM_APERTURE_HIGH_ADDR", 0x9001 << 6)
    bench.memory().write((0x9000 << 24) + SRAM, b"bus")
    assert bench.link.dma_read(SRAM, 3) == b"bus"


def test_the_identity_aperture_is_for_other_vmids(bench):
    bench.write(bench.vm + "L2_CONTEXT1_IDENTITY_APERTURE_LOW_ADDR_LO32", 0)
    bench.write(bench.vm + "L2_CONTEXT1_IDENTITY_APERTURE_LOW_ADDR_HI32", 0)
    bench.write(bench.vm + "L2_CONTEXT_IDENTITY_PHYSICAL_OFFSET_LO32", 3)
    bench.memory(5).write(0x10, b"same")
    assert bench.context.vram.read(0x3010, 4) == b"same"


@pytest.mark.parametrize(("mode", "inside", "outside"), [(0, 0, None), (1, 4, 4), (2, 4, None), (3, 0, 4)])
def test_system_access_modes(mode, inside, outside):
    """Which addresses of VMID 0 go through tables: here to 4 MiB; as VRAM's, they are at 0 or nowhere."""
    bench = Bench()
    bench.no_dummy()
    bench.write("GCVM_CONTEXT0_PAGE_TABLE_START_ADDR_HI32", 0)  # all is within the context
    bench.write("GCMC_VM_MX_L1_TLB_CNTL", 0x1841 | mode << 3)
    for address in (FB_BASE, START):
        bench.map(START + address, 0x40_0000)
    memory = bench.memory()
    assert memory.translate(FB_BASE).target >> 20 == inside
    if outside is None:
        with pytest.raises(PageFault):
            memory.translate(START)
    else:
        assert memory.translate(START).target >> 20 == outside


# -- walks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", range(4))
def test_a_page_of_each_level(level):
    for chip in CHIPS:
        bench = Bench(chip)
        size = PAGE << 9 * level
        system = level > 1  # larger than VRAM
        bench.map(START + 5 * size, 0 if system else 2 * size, level=level, system=system)
        extent = bench.memory().translate(START + 5 * size + 0x123)
        assert (extent.start, extent.end) == (START + 5 * size, START + 6 * size)
        assert (extent.target, extent.system) == (0 if system else 2 * size, system)
        assert not bench.steps


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("block_size", [0, 3])
def test_depth_and_block_size(chip, block_size):
    bench = Bench(chip)
    field = bench.context.chip.register("GC", "GCVM_CONTEXT0_CNTL")
    bench.write(
        "GCVM_CONTEXT0_CNTL", field.pack(bench.cntl, PAGE_TABLE_DEPTH=1, PAGE_TABLE_BLOCK_SIZE=block_size)
    )
    span = PAGE << 9 + block_size
    bench.put(ROOT + 1000 * 8, 0x30_0001)  # beyond 512: the root has no limit
    bench.put(0x30_0000 + 511 * 8, bench.entry(0x77_7000))
    assert bench.memory().translate(START + 1000 * span + 511 * PAGE).target == 0x77_7000
    flat = Bench(chip)
    flat.write("GCVM_CONTEXT0_CNTL", field.pack(flat.cntl, PAGE_TABLE_DEPTH=0))
    flat.put(ROOT + 70000 * 8, flat.entry(0x66_6000))
    assert flat.memory().translate(START + 70000 * PAGE).target == 0x66_6000


def test_contexts_of_other_vmids(bench):
    name = bench.vm + "CONTEXT7_"
    bench.write(name + "PAGE_TABLE_BASE_ADDR_LO32", ROOT | 1)
    bench.write(name + "PAGE_TABLE_END_ADDR_LO32", 0xFFFF_FFFF)
    bench.write(name + "PAGE_TABLE_END_ADDR_HI32", 0xF)
    bench.write(name + "CNTL", bench.cntl)
    bench.map(START + 0x7000, 0x55_0000)
    memory = bench.memory(7)
    assert memory.translate(0x7000).target == 0x55_0000
    bench.write(bench.vm + "CONTEXTS_DISABLE", 1 << 7)
    bench.no_dummy()
    bench.invalidate(0xF8_0080)
    with pytest.raises(PageFault):
        memory.read(0x7000, 1)


def test_reads_and_writes_cross_pages_and_kinds_of_memory(bench):
    bench.map(START, 0x40_0000)
    bench.map(START + PAGE, SRAM, system=True)
    bench.map(START + 2 * PAGE, 0x30_0000)
    data = bytes(range(256)) * 40
    memory = bench.memory()
    memory.write(START + 3000, data[:9000])
    assert memory.read(START + 3000, 9000) == data[:9000]
    assert bench.link.dma_read(SRAM, PAGE) == data[1096 : 1096 + PAGE]
    assert bench.context.vram.read(0x40_0000 + 3000, 1096) == data[:1096]
    assert bench.context.vram.read(0x30_0000, 100) == data[1096 + PAGE : 1096 + PAGE + 100]
    assert memory.read(START, 0) == b""


def test_unsupported_requests_read_as_ones(bench):
    bench.map(START, 0x9000_0000, system=True)
    memory = bench.memory()
    assert memory.read(START, 4) == b"\xff" * 4
    memory.write(START, b"gone")
    assert sum("unsupported request" in text for text in bench.texts) == 2


def test_tables_in_host_memory(bench):
    bench.put(ROOT, SRAM | 3)
    bench.link.dma_write(SRAM, bench.entry(1 << 30, level=2, system=True).to_bytes(8, "little"))
    extent = bench.memory().translate(START)
    assert (extent.target, extent.end - extent.start) == (1 << 30, 1 << 30)
    bench.put(ROOT, 0x9000_0003)
    bench.write(bench.vm + "L2_CNTL2", 3)
    bench.no_dummy()
    with pytest.raises(PageFault, match="unsupported request"):
        bench.memory().translate(START)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(
    ("bits", "words"),
    [
        ({11: 1 << 60, 12: 1 << 60}, "reserved"),
        ({11: 1 << 57, 12: 1 << 48}, "reserved"),
        ({11: 8, 12: 8}, "TMZ"),
        ({11: 1 << 51, 12: 1 << 56}, "PRT"),
        ({11: 1 << 56, 12: 1 << 58}, "not modelled"),
    ],
)
def test_entries_with_forbidden_bits(chip, bits, words):
    bench = Bench(chip)
    bench.no_dummy()
    place = bench.map(START, 0x40_0000)
    bench.put(place, bench.entry(0x40_0000) | bits[bench.generation])
    with pytest.raises(PageFault, match=words):
        bench.memory().read(START, 4)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "not valid"),
        (0x30_0041, "not aligned"),
        (0x30_0009, "reserved"),
        (1 << 59 | 0x30_0001, "fragment size"),
        (0x4000_0000_0001, "not in VRAM"),
    ],
)
def test_bad_pointers_to_tables(chip, value, words):
    bench = Bench(chip)
    bench.no_dummy()
    bench.put(ROOT, value)
    with pytest.raises(PageFault, match=words):
        bench.memory().read(START, 4)


def test_misaligned_and_missing_pages():
    for level, target, words in ((1, 0x1000, "not aligned"), (0, 0x2000_0000, "not in VRAM")):
        bench = Bench()
        bench.no_dummy()
        bench.put(bench.entry_at(START, level), bench.entry(target, level=level))
        with pytest.raises(PageFault, match=words):
            bench.memory().read(START, 4)
    bench = Bench("gfx1201")
    bench.no_dummy()
    bench.put(bench.map(START, 0), 0x71)  # as on gfx11, without the bit that marks a page
    with pytest.raises(PageFault, match="marks a page"):
        bench.memory().read(START, 4)


@pytest.mark.parametrize("flags", range(8))
def test_permissions(flags):
    bench = Bench()
    bench.no_dummy()
    wanted = {"r": READ, "w": WRITE, "x": EXECUTE}
    chosen = sum(bit for index, bit in enumerate(wanted.values()) if flags >> index & 1)
    bench.map(START, 0x40_0000, flags=chosen)
    for how, bit in wanted.items():
        if chosen & bit:
            assert bench.memory().translate(START, write=how == "w", execute=how == "x").target == 0x40_0000
        else:
            with pytest.raises(PageFault) as raised:
                bench.memory().translate(START, write=how == "w", execute=how == "x")
            assert raised.value.write == (how == "w")
            status = bench.context.chip.register("GC", "GCVM_" + bench.status)
            status = status.unpack(bench.read("GCVM_" + bench.status))
            assert status["PERMISSION_FAULTS"] == {"r": 2, "w": 4, "x": 8}[how]
            assert (status["WALKER_ERROR"], status["MAPPING_ERROR"]) == (0, 0)
            bench.write("GCVM_L2_PROTECTION_FAULT_CNTL", 0x3FFF_E001)


def test_a_client_that_could_read_may_still_not_write():
    bench = Bench()
    bench.no_dummy()
    bench.map(START, 0x40_0000, flags=READ)
    memory = bench.memory()
    memory.read(START, 4)
    with pytest.raises(PageFault):
        memory.write(START, b"x")


# -- properties --------------------------------------------------------------------------------------------

KINDS = (  # level, log2 of the pages of the fragment
    (0, 0),
    (0, 4),
    (1, 9),
    (1, 10),
)


@pytest.mark.slow
@pytest.mark.parametrize("chip", CHIPS)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_random_mappings_against_a_model(chip, data):
    bench = Bench(chip, vram=64 << 20)
    bench.no_dummy()
    block = 4 << 20
    model = []  # first address, bytes, target, whether that is the host's
    for slot in range(data.draw(st.integers(1, 4))):
        level, fragment = data.draw(st.sampled_from(KINDS))
        size, piece = PAGE << 9 * level, PAGE << fragment
        inner = data.draw(st.integers(0, block // piece - 1)) * piece
        start = START + (data.draw(st.integers(0, 191)) << 39) + (data.draw(st.integers(0, 511)) << 30)
        start += 2 * slot * block + inner
        target, system = data.draw(st.integers(8, 14)) * block + inner, data.draw(st.booleans())
        for offset in range(0, piece, size):
            bench.map(start + offset, target + offset, level=level, fragment=fragment, system=system)
        model.append((start, piece, target, system))
    memory = bench.memory()
    for index in data.draw(st.lists(st.sampled_from(range(len(model))), min_size=1, max_size=8)):
        start, size, target, system = model[index]
        offset = data.draw(st.integers(0, size - 1))
        extent = memory.translate(start + offset)
        assert extent.start <= start + offset < extent.end
        assert (extent.target + start - extent.start, extent.system) == (target, system)
        assert (extent.start, extent.end) == (start, start + size)
        for outside in (start - 1, start + size):
            with pytest.raises(PageFault):
                memory.translate(outside)
    assert not bench.steps


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(entries=st.lists(st.integers(0, (1 << 64) - 1), min_size=4, max_size=4), chip=st.sampled_from(CHIPS))
def test_no_table_crashes_the_walker(entries, chip):
    bench = Bench(chip)
    bench.no_dummy()
    table = ROOT
    for entry in entries:
        entry = entry & ~0xFFFF_FF00_0000 | 1  # mostly within VRAM
        bench.put(table, entry)
        table = entry & 0xFF_F000
    try:
        extent = bench.memory().translate(START)
    except PageFault:
        return
    assert extent.start <= START < extent.end
    assert extent.system or 0 <= extent.target <= bench.context.vram.size - (extent.end - extent.start)


# -- fragments ---------------------------------------------------------------------------------------------


def test_a_fragment_is_one_translation(bench):
    for page in range(16):
        bench.map(START + page * PAGE, 0x40_3000 + page * PAGE, fragment=4)  # aligned in virtual memory alone
    extent = bench.memory().translate(START + 0x5678)
    assert (extent.start, extent.end, extent.target) == (START, START + 0x1_0000, 0x40_3000)
    assert not bench.texts


def test_a_fragment_that_the_tables_contradict_is_used(bench):
    for page in range(16):
        bench.map(START + page * PAGE, (0x40_0000 if page < 15 else 0x80_0000) + page * PAGE, fragment=4)
    assert bench.memory().translate(START + 15 * PAGE).target != 0x40_0000 + 15 * PAGE
    assert any("L1 relies on it" in text for text in bench.texts)


# -- what is remembered ------------------------------------------------------------------------------------


def test_an_old_mapping_is_used_until_it_is_invalidated(bench):
    bench.context.vram.write(0x40_0000, b"old")
    bench.context.vram.write(0x50_0000, b"new")
    bench.map(START, 0x40_0000)
    memory = bench.memory()
    assert memory.read(START, 3) == b"old"
    bench.map(START, 0x50_0000)
    assert memory.read(START, 3) == b"old"
    assert bench.memory().read(START, 3) == b"old"
    assert bench.steps == {f"{bench.block.lower()}-invalidate"}
    assert any("the page table has changed since" in text for text in bench.texts)
    assert bench.invalidate()
    assert memory.read(START, 3) == b"new"


def test_the_invalidation_takes_a_moment(bench):
    bench.map(START, 0x40_0000)
    bench.memory().read(START, 1)
    name = f"{bench.vm}INVALIDATE_ENG3_"
    bench.read(name + "SEM")
    bench.write(name + "REQ", 0xF8_0001)
    assert bench.read(name + "ACK") == 0
    bench.link.run(1000)
    assert bench.read(name + "ACK") == 1


@pytest.mark.parametrize("request_", [0x78_0001, 0x80_0001, 0xF8_0002, 0xE8_0001])
def test_what_a_request_leaves_out_stays(request_):
    """L1 kept; L2 kept; another VMID; PDB0 kept, of which the table has moved."""
    bench = Bench()
    bench.map(START, 0x40_0000)
    bench.memory().translate(START)
    if request_ == 0xE8_0001:
        bench.put(bench.entry_at(START, 1), 0x70_0001)
        bench.put(0x70_0000, bench.entry(0x50_0000))
    else:
        bench.map(START, 0x50_0000)
    assert bench.invalidate(request_)
    assert bench.memory().translate(START).target == 0x40_0000
    assert bench.steps == {"gc-invalidate"}
    assert bench.invalidate()
    assert bench.memory().translate(START).target == 0x50_0000


def test_a_range_of_addresses():
    bench = Bench()
    for page in range(8):
        bench.map(START + page * PAGE, 0x40_0000 + page * PAGE)
        bench.memory().translate(START + page * PAGE)
        bench.map(START + page * PAGE, 0x50_0000 + page * PAGE)
    number = START >> 12 | 4 | 1  # four pages from the fourth one
    bench.write("GCVM_INVALIDATE_ENG2_ADDR_RANGE_LO32", (number << 1 | 1) & 0xFFFF_FFFF)
    bench.write("GCVM_INVALIDATE_ENG2_ADDR_RANGE_HI32", number >> 31)
    assert bench.invalidate(engine=2)
    targets = [bench.memory().translate(START + page * PAGE).target >> 20 for page in range(8)]
    assert targets == [4] * 4 + [5] * 4


def test_an_engine_without_a_range_invalidates_nothing():
    bench = Bench(skip=("ADDR_RANGE",))
    bench.map(START, 0x40_0000)
    bench.memory().translate(START)
    bench.map(START, 0x50_0000)
    assert bench.invalidate()
    assert bench.memory().translate(START).target == 0x40_0000
    assert "gc-invalidate-range" in bench.steps


def test_an_invalidation_before_set_up_is_harmless(bench):
    fresh = Bench(skip=("",), block=bench.block)
    assert fresh.invalidate()
    assert not fresh.texts


def test_the_mm_hub_needs_its_semaphore():
    bench = Bench(block="MMHUB")
    assert not bench.invalidate(semaphore=False)
    assert bench.steps == {"mmhub-semaphore"}
    assert bench.read("MMVM_INVALIDATE_ENG5_SEM") == 1
    assert bench.read("MMVM_INVALIDATE_ENG5_SEM") == 0
    bench.write("MMVM_INVALIDATE_ENG5_SEM", 0)
    assert bench.read("MMVM_INVALIDATE_ENG5_SEM") == 1


def test_the_mm_hub_has_a_private_cache():
    bench = Bench(block="MMHUB")
    bench.map(START, 0x40_0000)
    bench.memory().translate(START)
    bench.map(START, 0x50_0000)
    assert bench.invalidate(private=False)
    assert bench.memory().translate(START).target == 0x40_0000
    assert "mmhub-private-invalidate" in bench.steps
    assert bench.invalidate()
    assert bench.memory().translate(START).target == 0x50_0000


def test_what_was_not_mapped_is_not_remembered(bench):
    bench.no_dummy()
    memory = bench.memory()
    with pytest.raises(PageFault):
        memory.read(START, 1)
    bench.map(START, 0x40_0000)
    memory.read(START, 1)
    assert not bench.steps


def test_room_is_limited():
    bench = Bench()
    for page in range(TRANSLATIONS + 1):
        bench.map(START + 2 * page * PAGE, page * PAGE)
    for page in range(TRANSLATIONS + 1):
        bench.memory().translate(START + 2 * page * PAGE)
    assert len(bench.hub._tlb) == TRANSLATIONS


def test_changed_contexts_need_an_invalidation(bench):
    bench.map(START, 0x40_0000)
    bench.memory().translate(START)
    bench.write(bench.vm + "CONTEXT0_PAGE_TABLE_BASE_ADDR_LO32", 0x20_0001)
    assert bench.memory().translate(START).target == 0x40_0000
    assert f"{bench.block.lower()}-invalidate" in bench.steps


def test_the_walker_does_not_see_what_waits_in_the_hdp(bench):
    seen = []
    bench.map(START, 0x40_0000)
    bench.context.vram.on_read = lambda address, size: seen.append((address, size))
    bench.memory().translate(START)
    assert len(seen) == 4
    assert {size for _, size in seen} == {8}


# -- faults ------------------------------------------------------------------------------------------------


def test_a_fault_is_reported_and_continues_with_the_dummy_page(bench):
    bench.context.vram.write(DUMMY, b"dummy")
    memory = bench.memory()
    address = START + 0x1234_5000
    assert memory.read(address, 5) == b"dummy"
    status = bench.context.chip.register(bench.block, bench.vm + bench.status)
    fields = status.unpack(bench.read(bench.vm + bench.status))
    assert fields["RW"] == fields["VMID"] == fields["MORE_FAULTS"] == 0
    assert fields["CID"] == (8 if bench.block == "GC" else 6)
    assert fields["PERMISSION_FAULTS"] == 3
    assert (fields["WALKER_ERROR"], fields["MAPPING_ERROR"]) == (4, 1)
    page = bench.read(bench.vm + "L2_PROTECTION_FAULT_ADDR_LO32")
    page |= bench.read(bench.vm + "L2_PROTECTION_FAULT_ADDR_HI32") << 32
    assert page == address >> 12
    client = 0x0A if bench.block == "GC" else 0x12
    assert bench.interrupts.posted == [(client, 0, 0, (page & 0xFFFF_FFFF, page >> 32, 0, 0))]
    assert any("and the dummy page at 0x2000 instead" in text for text in bench.texts)


def test_known_logs():
    """Status values of published kernel logs: reads and writes of what is not mapped, and out of range."""
    bench = Bench()
    bench.entry_at(START, 0)
    bench.memory().read(START, 1)
    assert bench.read("GCVM_L2_PROTECTION_FAULT_STATUS") == 0x1030
    bench.write("GCVM_L2_PROTECTION_FAULT_CNTL", 0x3FFF_FFFD)
    bench.memory().write(START, b"x")
    assert bench.read("GCVM_L2_PROTECTION_FAULT_STATUS") == 0x0004_1050
    bench.write("GCVM_L2_PROTECTION_FAULT_CNTL", 0x3FFF_FFFD)
    bench.memory(client="CPC").write(0, b"x")
    assert bench.read("GCVM_L2_PROTECTION_FAULT_STATUS") == 0x0004_0B52
    assert bench.interrupts.posted[-1][3][:2] == (0, 0x20)


def test_the_first_fault_stays(bench):
    memory = bench.memory()
    memory.read(START, 1)
    memory.write(START + 0x5000, b"x")
    assert bench.read(bench.vm + "L2_PROTECTION_FAULT_ADDR_LO32") == START >> 12 & 0xFFFF_FFFF
    assert bench.read(bench.vm + bench.status) & 1
    assert len(bench.interrupts.posted) == 2
    bench.write(bench.vm + "L2_PROTECTION_FAULT_CNTL", 0x3FFF_FFFD)
    assert bench.read(bench.vm + bench.status) == 0
    memory.write(START + 0x5000, b"x")
    assert bench.read(bench.vm + "L2_PROTECTION_FAULT_ADDR_LO32") == (START >> 12) + 5 & 0xFFFF_FFFF
    bench.invalidate(0x1F8_0001)
    assert bench.read(bench.vm + bench.status) == 0


def test_the_dummy_page_may_be_the_hosts(bench):
    bench.write(bench.vm + "L2_CNTL", 0x8_0801)
    bench.write(bench.vm + "L2_PROTECTION_FAULT_DEFAULT_ADDR_LO32", SRAM >> 12)
    bench.memory().write(START, b"dummy")
    assert bench.link.dma_read(SRAM, 5) == b"dummy"


@pytest.mark.parametrize("register", ["CONTEXT0_CNTL", "L2_PROTECTION_FAULT_CNTL"])
def test_interrupt_and_dummy_page_need_two_enables(register):
    bench = Bench()
    value = {"CONTEXT0_CNTL": 7, "L2_PROTECTION_FAULT_CNTL": 0}[register]
    bench.write("GCVM_" + register, value)
    with pytest.raises(PageFault):
        bench.memory().read(START, 1)
    assert not bench.interrupts.posted
    assert bench.read("GCVM_" + bench.status)


def test_retries_are_not_modelled(bench):
    field = bench.context.chip.register(bench.block, bench.vm + "CONTEXT0_CNTL")
    value = field.pack(bench.cntl, RETRY_PERMISSION_OR_INVALID_PAGE_FAULT=1)
    bench.write(bench.vm + "CONTEXT0_CNTL", value)
    with pytest.raises(PageFault):
        bench.memory().write(START, b"x")
    assert bench.interrupts.posted[0][3][1] == START >> 44 | 0xA0
    assert any("asks for retries" in text for text in bench.texts)


# -- steps -------------------------------------------------------------------------------------------------

SKIPPED = {
    "agp": "AGP_",
    "system-aperture": "SYSTEM_APERTURE_LOW_ADDR SYSTEM_APERTURE_HIGH_ADDR",
    "aperture-default": "SYSTEM_APERTURE_DEFAULT",
    "fault-default": "FAULT_DEFAULT_ADDR",
    "l1-tlb": "MX_L1_TLB_CNTL",
    "l2-cache": "L2_CNTL#",
    "l2-invalidate": "L2_CNTL2",
    "l2-tables": "L2_CNTL4",
    "context0": "CONTEXT0",
    "identity": "IDENTITY",
    "invalidate-range": "ADDR_RANGE",
    "invalidate": "",
    "semaphore": "",
    "private-invalidate": "",
}


@pytest.mark.parametrize("step", hub_module.STEPS, ids=lambda step: step.key)
def test_each_step_that_is_left_out_is_noticed(step):
    block, _, key = step.key.partition("-")
    names = tuple(SKIPPED[key].split())
    bench = Bench(block=block.upper(), skip=() if key == "l2-cache" else names)
    if key == "l2-cache":
        bench.write(bench.vm + "L2_CNTL", 0x8_0000)
    bench.no_dummy()
    bench.map(START, 0x40_0000)
    memory = bench.memory()
    try:
        memory.read(FB_BASE, 4)
        memory.read(START, 4)
        if key in ("invalidate", "private-invalidate"):
            bench.map(START, 0x50_0000)
        if key != "invalidate":
            bench.invalidate(private=key != "private-invalidate", semaphore=key != "semaphore")
        memory.read(START, 4)
    except PageFault:
        assert key in ("system-aperture", "l1-tlb", "l2-tables", "context0")
    expected = {step.key}
    if key == "private-invalidate":
        expected.add("mmhub-invalidate")
    assert bench.steps == expected


def test_a_correct_driver_causes_no_finding(bench):
    bench.map(START, 0x40_0000)
    memory = bench.memory()
    memory.write(START, b"data")
    memory.read(FB_BASE, 4)
    bench.map(START, 0x50_0000)
    assert bench.invalidate()
    memory.read(START, 4)
    assert not bench.texts


@pytest.mark.parametrize("chip", ["gfx1100", "gfx1201"])
@pytest.mark.parametrize("block", ["GC", "MMHUB"])
def test_the_kernels_way_is_right_too(chip, block):
    """VMID 0 has a flat table of single pages (GART), AGP is a window on the host, page 0 is spare."""
    bench = Bench(chip, block, vram=512 << 20)
    for name, value in {
        bench.mc + "AGP_BOT": 0x8800,
        bench.mc + "AGP_TOP": 0xFF_FFFF,
        bench.mc + "SYSTEM_APERTURE_HIGH_ADDR": 0x3FFF_FFFF,
        bench.mc + "SYSTEM_APERTURE_DEFAULT_ADDR_LSB": 0,
        bench.vm + "L2_PROTECTION_FAULT_DEFAULT_ADDR_LO32": 0,
        bench.vm + "CONTEXT0_PAGE_TABLE_START_ADDR_LO32": 0,
        bench.vm + "CONTEXT0_PAGE_TABLE_START_ADDR_HI32": 0,
        bench.vm + "CONTEXT0_PAGE_TABLE_END_ADDR_LO32": 0x1_FFFF,
        bench.vm + "CONTEXT0_PAGE_TABLE_END_ADDR_HI32": 0,
        bench.vm + "CONTEXT0_CNTL": bench.cntl & ~6,
    }.items():
        bench.write(name, value)
    bench.put(ROOT + 8 * 0x123, bench.entry(SRAM, system=True))
    memory = bench.memory()
    memory.write(0x12_3010, b"in GART")
    assert bench.link.data[0x10:0x17] == b"in GART"
    memory.write(FB_BASE + 0x5000, b"in VRAM")
    assert bench.context.vram.read(0x5000, 7) == b"in VRAM"
    assert memory.read(0x88_0000_0000 + SRAM + 0x10, 7) == b"in GART"
    assert bench.texts == []


def test_clients_have_names(bench):
    with pytest.raises(FactError, match="no client"):
        HubMemory(bench.hub, 0, "CPU")


def test_facts_agree_with_the_formats():
    for form in pages.FORMATS.values():
        used = pages.ADDRESS | 0x77 | form.mtype("UC") | form.leaf | form.no_allocate
        assert not used & form.page_reserved
        assert not form.table_reserved & (pages.ADDRESS | form.leaf | 7)
        assert not any(bit & form.page_reserved for bit in form.unmodelled.values())
    assert RWX == pages.EXECUTABLE | pages.READABLE | pages.WRITABLE
