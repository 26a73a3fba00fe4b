"""PM4: packets as they are written down, and what each does in a queue."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.amdgpu.pm4 import EOP_CLOCKS
from sdk.facts.registers import FactError
from tests.unit import amdgpu_bench
from tests.unit.amdgpu_queues import (
    BUFFER,
    DATA,
    DISPATCH_CLOCKS,
    LONG,
    PACKET_CLOCKS,
    PACKETS,
    PARTIAL_FLUSH,
    Bench,
    acquire,
    bench,
    fence,
    launch,
    sh,
)
from usbgpu.amd.facts import interrupts as ih
from usbgpu.amd.facts import pm4

BAD_OPCODE = (ih.CLIENTS["GRBM_CP"], ih.SOURCES["CP_BAD_OPCODE_ERROR"])


@pytest.fixture(name="queue")
def _queue():
    return bench()


# -- packets as they are written down --------------------------------------------------------------------


@pytest.mark.slow
@given(st.data())
def test_packets_survive_being_packed(data):
    packet = data.draw(st.sampled_from(list(PACKETS.values())))
    taken: set[tuple[int, int]] = set()
    values = {}
    for name, part in packet.parts.items():
        bits = {(part.dword + bit // 32, bit % 32) for bit in range(part.shift, part.shift + part.width)}
        if not bits & taken:  # some parts are two views of the same bits
            taken |= bits
            values[name] = data.draw(st.integers(0, part.mask), label=name)
    extra = data.draw(st.lists(st.integers(0, 0xFFFF_FFFF), min_size=1, max_size=4)) if packet.data else []
    words = packet.pack(*extra, **values)
    assert pm4.kind(words[0]) == pm4.TYPE_3
    assert pm4.opcode(words[0]) == packet.opcode
    assert pm4.body_size(words[0]) == len(words) - 1 == packet.size + len(extra)
    assert {name: packet.unpack(words[1:])[name] for name in values} == values
    assert words[1 + packet.size :] == extra


def test_packets_are_those_of_a_published_driver():
    """The dwords that the boot traces' driver puts into its ring."""
    wait = PACKETS["WAIT_REG_MEM"]
    flags = wait.pack(
        FUNCTION=5, MEM_SPACE=1, ADDR=0x1234_5678_9ABC, REFERENCE=6, MASK=0xFFFF_FFFF, POLL_INTERVAL=4
    )
    assert flags == [0xC005_3C00, 0x15, 0x5678_9ABC, 0x1234, 6, 0xFFFF_FFFF, 4]
    flush = wait.pack(FUNCTION=5, OPERATION=1, REG1=0xE26, REG2=0xE27)
    assert flush[1:4] == [0x45, 0xE26, 0xE27]
    assert PACKETS["DISPATCH_DIRECT"].pack(DIM_X=3, INITIATOR=0x8005) == [0xC003_1500, 3, 0, 0, 0x8005]
    assert PARTIAL_FLUSH == [0xC000_4600, 0x407]
    release = PACKETS["RELEASE_MEM"]
    event = release.unpack([0x0070_F514, 0x2000_0000, 0, 0, 0, 0, 0])
    assert (event["EVENT_TYPE"], event["EVENT_INDEX"], event["DATA_SEL"]) == (0x14, 5, 1)
    assert [event[name] for name in ("GLM_WB", "GLM_INV", "GLV_INV", "GL1_INV", "GL2_INV", "GL2_WB")] == [
        1
    ] * 6
    caches = PACKETS["ACQUIRE_MEM"].unpack(acquire(0xC3F1)[1:])
    assert (caches["GLI_INV"], caches["GLK_INV"], caches["GL2_INV"], caches["GL2_WB"]) == (1, 1, 1, 1)
    assert acquire(0xC3F1)[-1] == 0xC3F1


def test_packets_refuse_what_does_not_fit():
    with pytest.raises(FactError, match="DISPATCH_DIRECT has no part DIM_W"):
        PACKETS["DISPATCH_DIRECT"].pack(DIM_W=1)
    with pytest.raises(FactError, match="does not fit 20 bits"):
        PACKETS["INDIRECT_BUFFER"].pack(IB_SIZE=1 << 20)
    with pytest.raises(FactError, match="needs data"):
        PACKETS["SET_SH_REG"].pack(REG_OFFSET=0)
    with pytest.raises(FactError, match="takes no data"):
        PACKETS["EVENT_WRITE"].pack(1)


# -- memory and fences -----------------------------------------------------------------------------------


def test_padding_does_nothing_and_fences_are_written_in_order(queue):
    queue.submit(
        [pm4.ONE_DWORD_NOP], [0x8000_0000], PACKETS["NOP"].pack(1, 0xC000_FF00), [pm4.ONE_DWORD_NOP],
        fence(value=0x1_2345_6789, select=2), fence(DATA + 8, 0x1_2345_6789, select=1),
    )  # fmt: skip
    assert queue.memory.read(DATA, 12).hex() == "8967452301000000" + "89674523"
    assert queue.findings == []


def test_fences_with_time_and_interrupts(queue):
    queue.submit(fence(select=3), run=0)
    start = queue.link.now()
    queue.link.run(LONG)
    stamp = int.from_bytes(queue.memory.read(DATA, 8), "little")
    assert stamp == (start + EOP_CLOCKS) * 7 // 8  # 100 MHz of clocks of 8.75 ns
    interrupting = (
        fence(interrupt=2, context=0x77), fence(select=0, interrupt=1, context=0x78), fence(interrupt=3)
    )  # fmt: skip
    queue.submit(*interrupting)
    assert queue.posts == [], "they are masked"
    queue.unmask()
    queue.submit(*interrupting)
    eop = (ih.CLIENTS["GRBM_CP"], ih.SOURCES["CP_EOP_INTERRUPT"], 4, 0)
    assert queue.posts == [(*eop, (0x77, 0, 0, 0)), (*eop, (0x78, 0, 0, 0))]


@pytest.mark.slow
@pytest.mark.parametrize("wait", ["WAIT_REG_MEM", "WAIT_REG_MEM64"])
@pytest.mark.parametrize(
    ("function", "value", "passes"),
    [
        (0, 0, True), (1, 4, True), (1, 5, False), (2, 5, True), (2, 6, False), (3, 5, True), (3, 4, False),
        (4, 4, True), (4, 5, False), (5, 5, True), (5, 4, False), (6, 6, True), (6, 5, False),
    ],
)  # fmt: skip
def test_waits_compare(queue, wait, function, value, passes):
    queue.memory.put(DATA + 16, 0xAB00 | value)
    packet = PACKETS[wait].pack(FUNCTION=function, MEM_SPACE=1, ADDR=DATA + 16, REFERENCE=5, MASK=0xFF)
    queue.submit(packet, fence(value=1))
    assert queue.memory.word(DATA) == passes


def test_waits_of_64_bits_see_all_of_them(queue):
    queue.memory.put(DATA + 16, 5, 1)
    packet = PACKETS["WAIT_REG_MEM64"].pack(
        FUNCTION=3, MEM_SPACE=1, ADDR=DATA + 16, REFERENCE=2 << 32 | 5, MASK=(1 << 64) - 1
    )
    queue.submit(packet, fence())
    assert queue.memory.word(DATA) == 0
    queue.memory.put(DATA + 20, 2)
    queue.link.run(LONG)
    assert queue.memory.word(DATA) == 1


def test_a_long_wait_costs_the_host_little_and_ends_soon_after(queue):
    looks = []
    read = queue.memory.read
    queue.memory.read = lambda address, size: (looks.append(address == DATA + 16), read(address, size))[1]
    packet = PACKETS["WAIT_REG_MEM"].pack(
        FUNCTION=5, MEM_SPACE=1, ADDR=DATA + 16, REFERENCE=9, MASK=0xFFFF_FFFF
    )
    queue.submit(packet, fence(), run=10_000 * LONG)
    assert 1000 < sum(looks) < 12_000
    queue.memory.put(DATA + 16, 9)
    queue.link.run(2 * LONG)
    assert queue.memory.word(DATA) == 1


def test_a_wait_ends_with_the_fence_of_another_queue(queue):
    queue.queue(pipe=1, doorbell=0x20, ring=BUFFER)
    wait = PACKETS["WAIT_REG_MEM"].pack(FUNCTION=3, MEM_SPACE=1, ADDR=DATA + 16, REFERENCE=3, MASK=0xFF)
    queue.submit(wait, fence(value=1), run=100 * LONG)
    assert queue.memory.word(DATA) == 0
    queue.submit(fence(DATA + 16, 3), doorbell=0x20, run=2 * EOP_CLOCKS + 100)
    assert queue.memory.word(DATA) == 1  # at once, not at the next poll


@pytest.mark.parametrize("chip", ["gfx1100", "gfx1201"])
def test_a_queue_flushes_the_hdp(chip):
    queue = bench(chip)
    registers = queue.context.registers
    asked = []
    registers.store("NBIO", "BIF_BX_PF0_GPU_HDP_FLUSH_DONE")

    def flush(value):
        asked.append(value)
        registers.set("NBIO", "BIF_BX_PF0_GPU_HDP_FLUSH_DONE", value)
        return 0

    registers.on_write("NBIO", "BIF_BX_PF0_GPU_HDP_FLUSH_REQ", flush)
    where = [queue.chip.address("NBIO", f"BIF_BX_PF0_GPU_HDP_FLUSH_{part}") for part in ("REQ", "DONE")]
    packet = PACKETS["WAIT_REG_MEM"].pack(
        FUNCTION=5, OPERATION=1, REG1=where[0], REG2=where[1], REFERENCE=0xFFFF_FFFF, MASK=0xFFFF_FFFF
    )
    queue.submit(packet, fence())
    assert asked == [0xFFFF_FFFF]
    assert queue.memory.word(DATA) == 1


def test_data_is_written_and_copied(queue):
    write, copy = PACKETS["WRITE_DATA"], PACKETS["COPY_DATA"]
    scratch = queue.chip.address("GC", "SCRATCH_REG2")
    queue.memory.put(DATA + 0x80, 0x11, 0x22)
    queue.submit(
        write.pack(1, 2, 3, DST_SEL=5, DST_ADDR=DATA),
        write.pack(4, 5, DST_SEL=5, ONE_ADDR=1, DST_ADDR=DATA + 0x10),
        write.pack(7, 8, DST_SEL=0, DST_ADDR=scratch),
        write.pack(3, 4, DST_SEL=0, ONE_ADDR=1, DST_ADDR=scratch + 2),
        copy.pack(SRC_SEL=0, DST_SEL=5, COUNT_SEL=1, SRC_ADDR=scratch, DST_ADDR=DATA + 0x20),
        copy.pack(SRC_SEL=5, DST_SEL=5, IMM_DATA=0x99, DST_ADDR=DATA + 0x28),
        copy.pack(SRC_SEL=1, DST_SEL=2, COUNT_SEL=1, SRC_ADDR=DATA + 0x80, DST_ADDR=DATA + 0x30),
        copy.pack(SRC_SEL=1, DST_SEL=0, SRC_ADDR=DATA + 0x84, DST_ADDR=scratch),
        copy.pack(SRC_SEL=9, DST_SEL=5, COUNT_SEL=1, DST_ADDR=DATA + 0x38),
    )
    assert queue.findings == []
    words = [queue.memory.word(DATA + place) for place in range(0, 0x38, 4)]
    assert words == [1, 2, 3, 0, 5, 0, 0, 0, 7, 8, 0x99, 0, 0x11, 0x22]
    assert [queue.read(f"SCRATCH_REG{index}") for index in (2, 3, 4, 5)] == [0x22, 8, 4, 0]
    assert 0 < queue.memory.word(DATA + 0x38) < queue.link.now()


def test_dma_copies_and_fills_in_its_time(queue):
    dma = PACKETS["DMA_DATA"]
    queue.memory.write(DATA, bytes(range(200)))
    queue.submit(
        dma.pack(SRC_ADDR=DATA, DST_ADDR=DATA + 0x1000, BYTE_COUNT=200, CP_SYNC=1),
        dma.pack(SRC_SEL=2, DATA=0x0403_0201, DST_ADDR=DATA + 0x2000, BYTE_COUNT=7, CP_SYNC=1),
        run=150,
    )
    assert queue.memory.word(DATA + 0x1000 + 196) == 0
    queue.link.run(LONG)
    assert queue.memory.read(DATA + 0x1000, 200) == bytes(range(200))
    assert queue.memory.read(DATA + 0x2000, 8) == bytes((1, 2, 3, 4, 1, 2, 3, 0))


# -- indirect buffers ------------------------------------------------------------------------------------


def ib(address, size, **parts):
    return PACKETS["INDIRECT_BUFFER"].pack(IB_BASE=address, IB_SIZE=size, VALID=1, **parts)


def test_indirect_buffers_return_and_chain(queue):
    first = [
        *PACKETS["WRITE_DATA"].pack(1, DST_SEL=5, DST_ADDR=DATA),
        *ib(BUFFER + 0x400, 5, CHAIN=1),
        *PACKETS["WRITE_DATA"].pack(4, DST_SEL=5, DST_ADDR=DATA),  # never reached
    ]
    queue.memory.put(BUFFER, *first)
    queue.memory.put(BUFFER + 0x400, *PACKETS["WRITE_DATA"].pack(2, DST_SEL=5, DST_ADDR=DATA + 4))
    queue.submit(ib(BUFFER, len(first)), fence(DATA + 8, 3))
    assert [queue.memory.word(DATA + place) for place in (0, 4, 8)] == [1, 2, 3]
    assert queue.findings == []


def test_an_indirect_buffer_longer_than_a_fetch_crosses_it(queue):
    words = [*([pm4.ONE_DWORD_NOP] * 61), *PACKETS["WRITE_DATA"].pack(*range(90), DST_SEL=5, DST_ADDR=DATA)]
    queue.memory.put(BUFFER, *words)
    queue.submit(ib(BUFFER, len(words)))
    assert [queue.memory.word(DATA + 4 * place) for place in range(90)] == list(range(90))


def test_indirect_buffers_have_their_vmid(queue):
    queue.unmask()
    queue.memory.put(BUFFER, *fence(interrupt=2))
    queue.submit(ib(BUFFER, 8, VMID=5), fence(interrupt=2))
    assert [post[3] for post in queue.posts] == [5, 0]


# -- refusals --------------------------------------------------------------------------------------------

REFUSED = {
    "a type-0 packet": ([0], "not a packet header"),
    "an unknown opcode": ([pm4.header(0xFE, 1), 0], "there is no such packet"),
    "an opcode that is not modelled": ([pm4.header(0x23, 1), 0], "PRED_EXEC"),
    "a long body": ([pm4.header(0x15, 5), 1, 1, 1, 5, 0], "a body of 5 dwords"),
    "a short body": ([pm4.header(0x76, 1), 0], "SET_SH_REG has a body of 1 dwords"),
    "an unknown register": (PACKETS["SET_SH_REG"].pack(1, REG_OFFSET=0x3FF), "register 0x2fff"),
    "registers beyond the range": (PACKETS["SET_UCONFIG_REG"].pack(1, REG_OFFSET=0x400), "0xc400"),
    "an unknown comparison": (PACKETS["WAIT_REG_MEM"].pack(FUNCTION=7, MEM_SPACE=1), "FUNCTION 7"),
    "an unknown source": (PACKETS["COPY_DATA"].pack(SRC_SEL=3), "COPY_DATA.SRC_SEL = 3"),
    "an unknown target": (PACKETS["WRITE_DATA"].pack(1, DST_SEL=3), "WRITE_DATA.DST_SEL = 3"),
    "an unknown event": (PACKETS["EVENT_WRITE"].pack(EVENT_TYPE=0x3E), "event 0x3e"),
    "a fence of no event": (PACKETS["RELEASE_MEM"].pack(EVENT_TYPE=7, EVENT_INDEX=4), "event 0x7"),
    "a fence of no data": (
        PACKETS["RELEASE_MEM"].pack(EVENT_TYPE=0x14, EVENT_INDEX=5, DATA_SEL=7), "DATA_SEL 7",
    ),
    "a chain from the ring": (ib(BUFFER, 4, CHAIN=1), "the ring chains"),
    "an empty buffer": (ib(BUFFER, 0), "INDIRECT_BUFFER of no dwords"),
    "a buffer not valid": (PACKETS["INDIRECT_BUFFER"].pack(IB_BASE=BUFFER, IB_SIZE=4), "without VALID"),
    "a buffer that ends within a packet": (ib(BUFFER, 1), "ends within a packet"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_the_queue_stops_at(queue, what):
    packet, words = REFUSED[what]
    queue.memory.put(BUFFER, pm4.header(0x15, 4))
    queue.submit(fence(value=1), packet, fence(value=2))
    assert len(queue.findings) == 1
    assert words in queue.findings[0]
    assert queue.posts == [(*BAD_OPCODE, 4, 0, (0, 0, 0, 0))]
    assert queue.memory.word(DATA) == 1
    assert queue.read("CP_STAT") == 0


def test_a_nested_buffer_is_refused(queue):
    queue.memory.put(BUFFER, *ib(BUFFER + 0x100, 4))
    queue.submit(ib(BUFFER, 4))
    assert "can only chain" in queue.findings[0]


def test_registers_are_privileged():
    queue = bench(cp_hqd_vmid=3)
    scratch = queue.chip.address("GC", "SCRATCH_REG0")
    queue.submit(PACKETS["WRITE_DATA"].pack(5, DST_SEL=0, DST_ADDR=scratch))
    assert queue.read("SCRATCH_REG0") == 5  # in the user configuration space
    queue.submit(PACKETS["WRITE_DATA"].pack(5, DST_SEL=0, DST_ADDR=queue.chip.address("GC", "TCP_CNTL")))
    assert "GC:TCP_CNTL is not for VMID 3" in queue.findings[0]
    assert queue.posts[0][:4] == (ih.CLIENTS["GRBM_CP"], ih.SOURCES["CP_PRIV_REG_FAULT"], 4, 3)


@pytest.mark.parametrize(
    ("packet", "error"),
    [
        (fence(0x1000), "TC_UTCL1_ERROR"),
        (PACKETS["WRITE_DATA"].pack(1, DST_SEL=5, DST_ADDR=0x1000), "TC_UTCL1_ERROR"),
        (PACKETS["WAIT_REG_MEM"].pack(FUNCTION=3, MEM_SPACE=1, ADDR=0x1000), "TC_UTCL1_ERROR"),
        (PACKETS["DMA_DATA"].pack(SRC_ADDR=0x1000, DST_ADDR=DATA, BYTE_COUNT=4), "TC_UTCL1_ERROR"),
        (PACKETS["DISPATCH_INDIRECT"].pack(ADDR=0x1000, INITIATOR=0x8005), "TC_UTCL1_ERROR"),
        (ib(0x1000, 4), "IB_UTCL1_ERROR"),
    ],
)
def test_page_faults_stop_the_queue(queue, packet, error):
    queue.submit(packet, run=LONG)
    queue.submit(fence())
    assert queue.memory.word(DATA) == 0
    assert "0x1000: nothing is mapped" in queue.findings[0]
    queue.select(me=1)
    assert queue.chip.register("GC", "CP_HQD_ERROR").get(queue.read("CP_HQD_ERROR"), error)


def test_a_packet_in_two_parts_waits_for_the_second(queue):
    words = fence(value=5)
    queue.submit(words[:3])
    assert "waits for the rest" in queue.findings[0]
    queue.submit(words[3:])
    assert queue.memory.word(DATA) == 5


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 0xFFFF_FFFF), min_size=1, max_size=40), st.booleans())
def test_no_words_break_the_processor(words, typed):
    if typed:  # get past the header more often
        words = [word & 0xFFFF | 0xC003_0000 for word in words]
    made = _RANDOM
    made.queue(doorbell=0x28)
    made.submit(words, doorbell=0x28, run=10 * PACKET_CLOCKS)
    made.select(me=1)
    made.write("CP_HQD_ACTIVE", 0)
    made.select()


_RANDOM = Bench()
_RANDOM.start()


# -- dispatches, as far as packets order them ------------------------------------------------------------


def test_registers_of_a_packet_are_the_queues_own(queue):
    queue.queue(queue=1, doorbell=0x20, ring=BUFFER)
    queue.submit(sh("COMPUTE_USER_DATA_3", 7, chip=queue.chip))
    queue.submit(sh("COMPUTE_USER_DATA_3", 8, chip=queue.chip), doorbell=0x20)
    for number, value in ((0, 7), (1, 8)):
        queue.select(me=1, queue=number)
        assert queue.read("COMPUTE_USER_DATA_3") == value


def test_fences_come_after_dispatches_and_the_queue_goes_on(queue):
    write = PACKETS["WRITE_DATA"].pack(1, DST_SEL=5, DST_ADDR=DATA + 16)
    queue.submit(*launch(queue.chip), fence(), write, run=30 * PACKET_CLOCKS)
    assert [queue.memory.word(DATA + place) for place in (0, 16)] == [0, 1]
    queue.link.run(DISPATCH_CLOCKS + EOP_CLOCKS)
    assert queue.memory.word(DATA) == 1


def test_a_partial_flush_holds_the_queue(queue):
    write = PACKETS["WRITE_DATA"].pack(1, DST_SEL=5, DST_ADDR=DATA + 16)
    queue.submit(*launch(queue.chip), PARTIAL_FLUSH, write, run=DISPATCH_CLOCKS)
    assert queue.memory.word(DATA + 16) == 0
    queue.link.run(30 * PACKET_CLOCKS)
    assert queue.memory.word(DATA + 16) == 1


def test_an_indirect_dispatch_reads_its_size(queue):
    queue.memory.put(DATA, 3, 5, 7)
    indirect = PACKETS["DISPATCH_INDIRECT"].pack(ADDR=DATA, INITIATOR=0x8005)
    queue.submit(*launch(queue.chip)[:-1], indirect)
    assert queue.dispatches[0].groups == (3, 5, 7)


def test_packets_are_traced_by_name(queue):
    queue.submit(sh("COMPUTE_PGM_LO", 0x12, 0x34, chip=queue.chip), PARTIAL_FLUSH)
    assert "pipe 0 queue 0 SET_SH_REG COMPUTE_PGM_LO=0x12 COMPUTE_PGM_HI=0x34" in queue.events
    assert "pipe 0 queue 0 EVENT_WRITE EVENT_TYPE=0x7 EVENT_INDEX=0x4" in queue.events


def test_the_driver_reads_what_packets_set(queue):
    queue.submit(PACKETS["SET_UCONFIG_REG"].pack(0x55, REG_OFFSET=0x40))
    assert amdgpu_bench.read(queue.context, "GC", "SCRATCH_REG0") == 0x55
