"""The copy engine: its set-up register by register, every packet, and mistakes."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.amdgpu import sdma as block
from emulator.amdgpu.cost import Cost
from emulator.amdgpu.power import Power
from emulator.amdgpu.sdma_packets import atomic
from emulator.amdgpu.seams import Extent, PageFault
from emulator.core.clock import clocks
from emulator.pcie.function import UnsupportedRequest
from sdk.facts.registers import FactError
from tests.unit.amdgpu_bench import SRAM, context, read, run, write
from usbgpu.amd.facts import sdma
from usbgpu.amd.facts.sdma import PACKETS

RING, RING_DWORDS, RPTR, WPTR = 0x1_0000, 1 << 10, 0x8000, 0x8008
DOORBELL = 0x800
DATA, OTHER, IB = 0x10_0000, 0x20_0000, 0x4_0000
SYSTEM = 1 << 40  # virtual addresses from here on are the bridge's SRAM
SOME_TIME = clocks(20e-3)


class Memory:
    """Virtual addresses as VRAM has them, in extents of 64 KiB; below 0x1000 nothing, at SYSTEM the SRAM."""

    def __init__(self, context, link):
        self.vram, self.link = context.vram, link

    def translate(self, address, *, write=False):
        if SYSTEM <= address < SYSTEM + (1 << 20):
            return Extent(SYSTEM, SYSTEM + (1 << 20), SRAM, True, True, False)
        if address < 0x1000 or address >= self.vram.size:
            raise PageFault(address, write=write, reason="not mapped")
        start = address & ~0xFFFF
        return Extent(start, start + 0x10000, start, False, True, False)

    def read(self, address, size):
        if self.translate(address).system:
            return self.link.dma_read(SRAM + address - SYSTEM, size)
        return self.vram.read(address, size)

    def write(self, address, data):
        if self.translate(address, write=True).system:
            self.link.dma_write(SRAM + address - SYSTEM, data)
            return
        self.vram.write(address, data)


class Doorbells:
    def __init__(self):
        self.subscribers = []

    def subscribe(self, first, last, kind, ring):
        self.subscribers.append((first, last, ring))

    def ring(self, offset, value):
        for first, last, ring in self.subscribers:
            if first <= offset <= last:
                ring(offset, value)


class Bench:
    """An engine, and a driver that sets up queue 0 as the kernel does."""

    def __init__(self, chip="gfx1100", skip=()):
        self.context, self.link = context(chip)
        self.memory, self.doorbells, self.interrupts = Memory(self.context, self.link), Doorbells(), []
        self.firmware = True
        self.cost = Cost(self.context.chip, lambda clock: 2000, self.link.transfer_clocks)
        self.engine = block.SdmaEngine(
            self.context,
            lambda vmid: self.memory,
            self,
            self.doorbells,
            self.require,
            self.cost,
            Power(self.context),
        )
        self.put = 0
        eleven = chip == "gfx1100"
        self.control = "SDMA0_F32_CNTL" if eleven else "SDMA0_MCU_CNTL"
        self.polling = "F32_WPTR_POLL_ENABLE" if eleven else "MCU_WPTR_POLL_ENABLE"
        steps = {
            "sdma-watchdog": lambda: self.set("SDMA0_WATCHDOG_CNTL", QUEUE_HANG_COUNT=100),
            "sdma-utcl1": lambda: self.set("SDMA0_UTCL1_CNTL", RESP_MODE=3, REDO_DELAY=9),
            "sdma-unhalt": lambda: self.set(self.control, HALT=0),
            "sdma-trap-enable": lambda: self.set("SDMA0_CNTL", TRAP_ENABLE=1),
            "queue": lambda: self.queue(0, skip),
        }
        for name, step in steps.items():
            if name not in skip:
                step()

    def queue(self, number, skip=(), ring=RING, doorbell=DOORBELL):
        name = f"SDMA0_QUEUE{number}_"
        write(self.context, "GC", name + "MINOR_PTR_UPDATE", 1)
        for register in ("RB_RPTR", "RB_RPTR_HI", "RB_WPTR", "RB_WPTR_HI"):
            write(self.context, "GC", name + register, 0)
        if "sdma-ring-base" not in skip:
            write(self.context, "GC", name + "RB_BASE", ring >> 8)
        if "sdma-rptr-address" not in skip:
            write(self.context, "GC", name + "RB_RPTR_ADDR_LO", RPTR + 0x100 * number)
        if "sdma-wptr-address" not in skip:
            write(self.context, "GC", name + "RB_WPTR_POLL_ADDR_LO", WPTR + 0x100 * number)
        if "sdma-doorbell-offset" not in skip:
            self.set(name + "DOORBELL_OFFSET", OFFSET=doorbell // 4)
        if "sdma-doorbell-enable" not in skip:
            self.set(name + "DOORBELL", ENABLE=1)
        write(self.context, "GC", name + "MINOR_PTR_UPDATE", 0)
        control = {"RB_ENABLE": 1, "RB_SIZE": 10, "RB_PRIV": 1, "RPTR_WRITEBACK_ENABLE": 1, self.polling: 1}
        if "sdma-ring-enable" not in skip:
            self.set(name + "RB_CNTL", **control)
        if "sdma-ib-enable" not in skip:
            self.set(name + "IB_CNTL", IB_ENABLE=1)

    # what the engine needs

    def require(self, engine, symptom):
        if not self.firmware:
            self.context.diagnosis.missing("psp-fw-sdma-ucode-th0", symptom)
        return self.firmware

    def post(self, client, source, *, ring=0, vmid=0, data=(0, 0, 0, 0)):
        self.interrupts.append((client, source, ring, data[0]))

    # what the driver does

    def set(self, name, **fields):
        write(self.context, "GC", name, self.context.chip.register("GC", name).pack(**fields))

    def submit(self, *words, ring=RING, doorbell=DOORBELL, wptr=WPTR):
        for word in words:
            self.memory.write(ring + self.put % (4 * RING_DWORDS), struct.pack("<I", word))
            self.put += 4
        self.memory.write(wptr, struct.pack("<Q", self.put))
        self.doorbells.ring(doorbell, self.put)

    def run(self, *words, time=SOME_TIME):
        self.submit(*words)
        run(self.link.clock, time)
        return self

    def u32(self, address):
        return int.from_bytes(self.memory.read(address, 4), "little")

    def u64(self, address):
        return int.from_bytes(self.memory.read(address, 8), "little")

    @property
    def findings(self):
        return [finding.symptom for finding in self.context.diagnosis.findings]


@pytest.fixture(params=["gfx1100", "gfx1201"])
def bench(request):
    return Bench(request.param)


FENCE = PACKETS["FENCE"].pack(mtype=3, addr=DATA, data=0xCAFE)


def poll(**fields):
    return PACKETS["POLL_REGMEM"].pack(**{"mem_poll": 1, "mask": 0xFFFF_FFFF, "retry_count": 0xFFF} | fields)


# -- set-up -----------------------------------------------------------------------------------------------


def test_a_queue_that_is_set_up_runs_and_reports_its_read_pointer(bench):
    bench.run(*FENCE)
    assert bench.u32(DATA) == 0xCAFE
    assert bench.u64(RPTR) == 16 == read(bench.context, "GC", "SDMA0_QUEUE0_RB_RPTR")
    assert read(bench.context, "GC", "SDMA0_QUEUE0_RB_WPTR") == 16
    assert not bench.findings
    assert not bench.interrupts


INDIRECT = [0, 0, *PACKETS["INDIRECT"].pack(ib_base=IB, ib_size=8)]
TRAP = PACKETS["TRAP"].pack(int_context=5)
PROVOKED_BY = {
    "sdma-ib-enable": INDIRECT,
    "sdma-trap-enable": TRAP,
    "sdma-watchdog": poll(addr=OTHER, func=3, value=1),
    "sdma-utcl1": PACKETS["FENCE"].pack(addr=0),
}


@pytest.mark.slow
@pytest.mark.parametrize("chip", ["gfx1100", "gfx1201"])
@pytest.mark.parametrize("step", [step.key for step in block.STEPS])
def test_a_step_that_is_left_out_is_noticed(step, chip):
    bench = Bench(chip, {step})
    bench.run(*PROVOKED_BY.get(step, FENCE), *FENCE, time=clocks(2.1))
    assert step in bench.context.diagnosis.steps
    complete = Bench(chip)
    complete.run(*PROVOKED_BY.get(step, FENCE), *FENCE, time=clocks(2.1))
    assert not complete.context.diagnosis.steps


def test_nothing_runs_before_the_firmware(bench):
    bench.firmware = False
    bench.run(*FENCE)
    assert bench.u32(DATA) == 0
    assert bench.context.diagnosis.steps == {"psp-fw-sdma-ucode-th0"}
    bench.firmware = True
    bench.run(*FENCE)
    assert bench.u32(DATA) == 0xCAFE


def test_a_halted_engine_continues_where_it_was_when_it_is_released(bench):
    bench.submit(*poll(addr=OTHER, func=3, value=1), *FENCE)
    run(bench.link.clock, SOME_TIME)
    bench.set(bench.control, HALT=1)
    bench.memory.write(OTHER, b"\1")
    run(bench.link.clock, SOME_TIME)
    assert bench.u32(DATA) == 0
    bench.set(bench.control, HALT=0)
    run(bench.link.clock, SOME_TIME)
    assert bench.u32(DATA) == 0xCAFE


def test_freezing(bench):
    field = "FREEZE" if bench.control == "SDMA0_F32_CNTL" else "MCU_FREEZE"
    bench.set("SDMA0_FREEZE", **{field: 1})
    assert bench.context.registers.get("GC", "SDMA0_FREEZE", "FROZEN") == 1
    bench.run(*FENCE)
    assert bench.u32(DATA) == 0
    bench.set("SDMA0_FREEZE", **{field: 0})
    run(bench.link.clock, SOME_TIME)
    assert bench.u32(DATA) == 0xCAFE


def test_the_ring_wraps_in_the_middle_of_packets(bench):
    for number in range(RING_DWORDS // 3):
        bench.run(*PACKETS["FENCE"].pack(addr=DATA, data=number), time=clocks(5e-6))
    assert bench.u32(DATA) == RING_DWORDS // 3 - 1
    assert bench.u64(RPTR) == bench.put > 4 * RING_DWORDS
    assert not bench.findings


def test_a_partial_packet_waits_for_the_rest(bench):
    bench.run(*FENCE[:2])
    assert bench.u32(DATA) == 0
    bench.run(*FENCE[2:])
    assert bench.u32(DATA) == 0xCAFE
    assert not bench.findings


def test_the_write_pointer_register_works_like_the_doorbell(bench):
    bench.set("SDMA0_QUEUE0_DOORBELL", ENABLE=0)
    bench.memory.write(RING, struct.pack("<4I", *FENCE))
    bench.memory.write(WPTR, b"\x10")
    write(bench.context, "GC", "SDMA0_QUEUE0_RB_WPTR", 16)
    run(bench.link.clock, SOME_TIME)
    assert bench.u32(DATA) == 0xCAFE
    write(bench.context, "GC", "SDMA0_QUEUE0_RB_WPTR", 8)
    assert "without MINOR_PTR_UPDATE" in bench.findings[-1]


def test_pointers_never_go_back_and_memory_agrees_with_the_doorbell(bench):
    bench.run(*FENCE)
    bench.doorbells.ring(DOORBELL, 4)
    assert "must not go back" in bench.findings[-1]
    bench.doorbells.ring(DOORBELL, 32)
    run(bench.link.clock, SOME_TIME)
    assert "the write pointer in memory is 0x10" in bench.findings[-1]


def test_memory_may_be_ahead_of_the_doorbell(bench):
    """As when a driver has stored its next write pointer, and its doorbell is on the way."""
    bench.memory.write(RING, struct.pack("<4I", *FENCE))
    bench.memory.write(WPTR, (32).to_bytes(8, "little"))
    bench.doorbells.ring(DOORBELL, 16)
    run(bench.link.clock, SOME_TIME)
    assert bench.u32(DATA) == 0xCAFE
    assert bench.findings == []


def test_a_ring_that_has_been_overrun_is_noticed(bench):
    bench.doorbells.ring(DOORBELL, 4 * RING_DWORDS + 4)
    assert any("have been overwritten" in symptom for symptom in bench.findings)


def test_two_queues_make_progress_side_by_side(bench):
    bench.queue(1, ring=0x2_0000, doorbell=0x810)
    bench.submit(*poll(addr=OTHER, func=3, value=1), *FENCE)
    bench.put = 0
    bench.submit(*PACKETS["FENCE"].pack(addr=OTHER, data=1), ring=0x2_0000, doorbell=0x810, wptr=WPTR + 0x100)
    run(bench.link.clock, SOME_TIME)
    assert bench.u32(DATA) == 0xCAFE
    assert bench.u64(RPTR + 0x100) == 16
    assert not bench.findings


def test_a_ring_that_is_disabled_and_set_up_again_starts_at_its_pointers(bench):
    bench.run(*poll(addr=OTHER, func=3, value=1))
    bench.set("SDMA0_QUEUE0_RB_CNTL", RB_ENABLE=0)
    bench.memory.write(OTHER, b"\1")
    run(bench.link.clock, SOME_TIME)
    assert bench.u64(RPTR) == 0
    bench.put = 0
    bench.queue(0)
    bench.run(*FENCE)
    assert bench.u32(DATA) == 0xCAFE


def test_a_soft_reset_clears_the_set_up(bench):
    bench.run(0xFF)
    assert "unknown packet" in bench.findings[-1]
    bench.engine.soft_reset()
    assert read(bench.context, "GC", "SDMA0_QUEUE0_RB_CNTL") == 0
    bench.set(bench.control, HALT=0)
    bench.put = 0
    bench.queue(0)
    bench.run(*FENCE)
    assert bench.u32(DATA) == 0xCAFE


def test_status_says_whether_it_is_busy(bench):
    def idle():
        status = bench.context.chip.register("GC", "SDMA0_STATUS_REG")
        return status.get(read(bench.context, "GC", "SDMA0_STATUS_REG"), "IDLE")

    assert idle() == 1
    bench.run(*poll(addr=OTHER, func=3, value=1))
    assert idle() == 0


# -- packets ----------------------------------------------------------------------------------------------


def test_copies_in_vram_and_over_pcie(bench):
    pattern = bytes(range(256)) * 1024
    bench.memory.write(DATA + 1, pattern)
    copy = PACKETS["COPY_LINEAR"]
    size = len(pattern) - 1
    bench.run(
        *copy.pack(count=size, src_addr=DATA + 1, dst_addr=SYSTEM),
        *copy.pack(count=size, src_addr=SYSTEM, dst_addr=OTHER + 3),
    )
    assert bytes(bench.link.data[: len(pattern)]) == pattern
    assert bench.memory.read(OTHER + 3, len(pattern)) == pattern
    assert bench.memory.read(OTHER + 3 + len(pattern), 4) == bytes(4)
    assert not bench.findings


def test_a_copy_is_visible_when_the_link_has_moved_it_and_not_before(bench):
    size = 64 << 10
    bench.link.data[:size] = b"\xaa" * size
    bench.submit(*PACKETS["COPY_LINEAR"].pack(count=size - 1, src_addr=SYSTEM, dst_addr=DATA))
    run(bench.link.clock, bench.link.transfer_clocks(size))
    assert bench.u32(DATA) == 0
    run(bench.link.clock, clocks(2e-6))
    assert bench.memory.read(DATA, size) == b"\xaa" * size


def test_transfers_of_two_queues_share_the_engine(bench):
    size = 64 << 10
    copy = PACKETS["COPY_LINEAR"].pack(count=size - 1, src_addr=SYSTEM, dst_addr=DATA)
    bench.queue(1, ring=0x2_0000, doorbell=0x810)
    bench.submit(*copy)
    bench.put = 0
    bench.submit(*copy, ring=0x2_0000, doorbell=0x810, wptr=WPTR + 0x100)
    run(bench.link.clock, bench.link.transfer_clocks(size) + clocks(2e-6))
    assert (bench.u64(RPTR), bench.u64(RPTR + 0x100)) == (28, 0)
    run(bench.link.clock, bench.link.transfer_clocks(size))
    assert bench.u64(RPTR + 0x100) == 28


def test_sdma7_has_an_eighth_dword_in_copies_with_cpv():
    copy = PACKETS["COPY_LINEAR"].pack(cpv=1, count=3, src_addr=DATA, dst_addr=OTHER)
    for chip, words in (("gfx1100", copy), ("gfx1201", [*copy, 0xFFFF_FFFF])):
        bench = Bench(chip)
        bench.memory.write(DATA, b"abcd")
        bench.run(*words, *PACKETS["FENCE"].pack(addr=DATA + 8, data=7))
        assert bench.memory.read(OTHER, 4) == b"abcd"
        assert bench.u32(DATA + 8) == 7
        assert not bench.findings


@pytest.mark.parametrize(
    ("fillsize", "expected"), [(0, b"\x44" * 8), (1, b"\x44\x33" * 4), (2, b"\x44\x33\x22\x11" * 2)]
)
def test_fills(bench, fillsize, expected):
    bench.run(*PACKETS["CONSTANT_FILL"].pack(fillsize=fillsize, dst_addr=DATA, src_data=0x11223344, count=7))
    assert bench.memory.read(DATA, 12) == expected + bytes(4)


def test_write_and_nop_carry_dwords_that_are_not_packets(bench):
    header = PACKETS["WRITE_UNTILED"].pack(dst_addr=DATA + 16, count=2)
    nop = PACKETS["NOP"].pack(count=3)
    bench.run(*nop, 0xFF, 0xFF, 0xFF, *header, 1, 2, 0xFF, *FENCE)
    assert struct.unpack("<4I", bench.memory.read(DATA + 16, 16)) == (1, 2, 0xFF, 0)
    assert bench.u32(DATA) == 0xCAFE
    assert not bench.findings


FUNCTIONS = {1: (4, 5), 2: (5, 6), 3: (5, 4), 4: (6, 5), 5: (5, 4), 6: (6, 5)}


@pytest.mark.slow
@pytest.mark.parametrize("func", FUNCTIONS)
def test_polls_compare_and_wait(bench, func):
    true, false = FUNCTIONS[func]
    bench.memory.write(OTHER, struct.pack("<I", 0xF0 | false))
    bench.run(*poll(func=func, addr=OTHER, value=5, mask=0xF, interval=4), *FENCE)
    assert bench.u32(DATA) == 0
    bench.memory.write(OTHER, struct.pack("<I", 0xF0 | true))
    run(bench.link.clock, clocks(300e-6))
    assert bench.u32(DATA) == 0xCAFE


def test_a_poll_with_function_always_does_not_wait(bench):
    assert bench.run(*poll(func=0, addr=OTHER), *FENCE).u32(DATA) == 0xCAFE


def test_a_poll_gives_up_after_its_retries(bench):
    bench.run(*poll(func=3, addr=OTHER, value=1, interval=100, retry_count=10), *FENCE)
    assert bench.u32(DATA) == 0
    assert [entry[1] for entry in bench.interrupts] == [57]
    assert "11 polls" in bench.findings[-1]


@pytest.mark.slow
def test_waiting_costs_the_host_little(bench):
    bench.submit(*poll(func=3, addr=OTHER, value=1, interval=4))
    events, clock = 0, bench.link.clock
    end = clock.now + clocks(1.0)
    while (due := clock.next) is not None and due <= end:
        clock.now = due
        clock.run_due()
        events += 1
    assert events < 6_000
    assert len(bench.interrupts) == 0


def test_the_watchdog_reports_a_poll_once(bench):
    bench.set("SDMA0_WATCHDOG_CNTL", QUEUE_HANG_COUNT=1)
    bench.run(*poll(func=3, addr=OTHER, value=1), time=clocks(0.3))
    assert [entry[1] for entry in bench.interrupts] == [55]
    assert "SDMA queue hangs" in bench.findings[-1]


def test_polling_a_register_and_flushing_the_hdp(bench):
    chip, registers = bench.context.chip, bench.context.registers
    asked = []

    def flush(value):
        asked.append(value)
        bench.link.schedule(
            clocks(1e-3), lambda: registers.set("NBIO", "BIF_BX_PF0_GPU_HDP_FLUSH_DONE", value)
        )

    registers.on_write("NBIO", "BIF_BX_PF0_GPU_HDP_FLUSH_REQ", flush)
    registers.store("NBIO", "BIF_BX_PF0_GPU_HDP_FLUSH_DONE")
    done = chip.address("NBIO", "BIF_BX_PF0_GPU_HDP_FLUSH_DONE") << 2
    request = chip.address("NBIO", "BIF_BX_PF0_GPU_HDP_FLUSH_REQ") << 2
    words = poll(mem_poll=0, hdp_flush=1, func=3, addr=done | request << 32, value=0x400, mask=0x400)
    bench.run(*words, *FENCE, time=clocks(0.5e-3))
    assert (asked, bench.u32(DATA)) == ([0x400], 0)
    run(bench.link.clock, clocks(1e-3))
    assert bench.u32(DATA) == 0xCAFE


def test_register_writes_by_generation_and_privilege(bench):
    registers, chip = bench.context.registers, bench.context.chip
    registers.store("GC", "SCRATCH_REG1")
    index = chip.address("GC", "SCRATCH_REG1")
    packet = PACKETS["SRBM_WRITE"]
    if chip.generation == 11:
        words = packet.pack(byte_en=0b0101, addr=index, data=0xAABBCCDD)
        expected = 0x11BB11DD
    else:
        words = packet.pack(byte_addr=index << 2, data=0xAABBCCDD)
        expected = 0xAABBCCDD
    registers.set("GC", "SCRATCH_REG1", 0x11111111)
    bench.run(*words)
    assert registers.value("GC", "SCRATCH_REG1") == expected
    buffer = [*words, *[0] * 5]
    bench.memory.write(IB, struct.pack("<8I", *buffer))
    registers.set("GC", "SCRATCH_REG1", 0)
    bench.run(*[0] * 7, *PACKETS["INDIRECT"].pack(ib_base=IB, ib_size=8))  # no priv: a user's buffer
    assert registers.value("GC", "SCRATCH_REG1") == 0
    assert [entry[1] for entry in bench.interrupts] == [50]
    assert "without RB_PRIV" in bench.findings[-1]


def test_timestamps_count_at_100_mhz(bench):
    bench.run(*PACKETS["TIMESTAMP_SET"].pack(init_data=1000))
    before = bench.link.now() * 7 // 8
    bench.run(
        *PACKETS["TIMESTAMP_GET"].pack(write_addr=DATA),
        *PACKETS["TIMESTAMP_GET_GLOBAL"].pack(write_addr=DATA + 8),
    )
    elapsed = clocks(20e-3) * 7 // 8
    assert 1000 + elapsed - 100 < bench.u64(DATA) < 1000 + elapsed + 1000
    assert before <= bench.u64(DATA + 8) < before + 200


def test_traps_interrupt(bench):
    bench.run(*TRAP)
    assert bench.interrupts == [(0x0A, 49, 0, 5)]


def test_indirect_buffers_conditions_and_padding(bench):
    condition = PACKETS["COND_EXE"].pack(addr=OTHER, reference=1, exec_count=4)
    buffer = [*condition, *FENCE, *PACKETS["FENCE"].pack(addr=DATA + 4, data=9), *[0] * 3]
    bench.memory.write(IB, struct.pack(f"<{len(buffer)}I", *buffer))
    call = [0, 0, *PACKETS["INDIRECT"].pack(ib_base=IB, ib_size=len(buffer))]
    bench.run(*call)
    assert (bench.u32(DATA), bench.u32(DATA + 4)) == (0, 9)
    bench.memory.write(OTHER, b"\1")
    bench.run(*call)
    assert bench.u32(DATA) == 0xCAFE
    assert not bench.findings


@given(
    st.sampled_from(sorted(sdma.ATOMICS.items())),
    st.sampled_from([4, 8]),
    st.integers(0, (1 << 64) - 1),
    st.integers(0, (1 << 64) - 1),
    st.booleans(),
)
def test_atomics(operation, size, old, source, equal):
    mask = (1 << 8 * size) - 1
    old, source = old & mask, source & mask
    compare = old if equal else old ^ 1

    def signed(value):
        return value - (mask + 1) if value > mask >> 1 else value

    expected = {
        "swap": source,
        "cmpswap": source if equal else old,
        "add": (old + source) % (mask + 1),
        "sub": (old - source) % (mask + 1),
        "smin": old if signed(old) < signed(source) else source,
        "umin": old if old < source else source,
        "smax": old if signed(old) > signed(source) else source,
        "umax": old if old > source else source,
        "and": old & source,
        "or": old | source,
        "xor": old ^ source,
        "inc": old + 1 if old < source else 0,
        "dec": old - 1 if 0 < old <= source else source,
    }[operation[1]]
    assert atomic(operation[1], old, source, compare, size) == expected


@pytest.mark.parametrize(
    ("wide", "expected"), [(0, 0x1_0000_0000 + 0xFFFF_FFFF - 1), (0x20, 0x2_0000_0000 - 2 + 0)]
)
def test_an_atomic_packet_has_a_width(bench, wide, expected):
    """Adding -1 to 0x1_ffff_ffff: 32 bits leave the upper half alone; 64 bits borrow nothing here."""
    bench.memory.write(DATA, struct.pack("<Q", 0x1_FFFF_FFFF))
    bench.run(*PACKETS["ATOMIC"].pack(atomic_op=0x0F | wide, addr=DATA, src_data=(1 << 64) - 1))
    assert bench.u64(DATA) == expected


def test_an_atomic_that_loops_takes_a_lock_when_it_is_free(bench):
    bench.memory.write(OTHER, b"\1")
    words = PACKETS["ATOMIC"].pack(
        loop=1, atomic_op=0x08, addr=OTHER, src_data=7, cmp_data=0, loop_interval=10
    )
    bench.run(*words, *FENCE)
    assert (bench.u32(OTHER), bench.u32(DATA)) == (1, 0)
    bench.memory.write(OTHER, b"\0")
    run(bench.link.clock, SOME_TIME)
    assert (bench.u32(OTHER), bench.u32(DATA)) == (7, 0xCAFE)


# -- mistakes of a driver ---------------------------------------------------------------------------------

WRONG = {
    "unknown packet": [0x1234_00FF],
    "SEM is not modelled": [7, 0, 0],
    "no such sub-opcode": [0x0000_0501, 0],
    "backwards": PACKETS["COPY_LINEAR"].pack(backwards=1, src_addr=DATA, dst_addr=DATA),
    "not a multiple of 4 bytes": PACKETS["FENCE"].pack(addr=DATA + 2),
    "no such size": PACKETS["CONSTANT_FILL"].pack(fillsize=3, dst_addr=DATA, count=3),
    "no such comparison": poll(func=7, addr=DATA),
    "no such operation": PACKETS["ATOMIC"].pack(atomic_op=0x01, addr=DATA),
    "only cmpswap": PACKETS["ATOMIC"].pack(atomic_op=0x0F, loop=1, addr=DATA),
    "pad with NOP": PACKETS["INDIRECT"].pack(ib_base=IB, ib_size=8),
    "not a multiple of 32 bytes": [0, 0, *PACKETS["INDIRECT"].pack(ib_base=IB + 4, ib_size=8)],
}


@pytest.mark.parametrize("why", WRONG)
def test_what_cannot_be_executed_stops_the_engine(bench, why):
    bench.run(*WRONG[why], *FENCE)
    bench.run(*FENCE)
    assert bench.u32(DATA) != 0xCAFE
    assert [entry[1] for entry in bench.interrupts] == [55]
    expected = "unknown packet" if why == "no such sub-opcode" else why
    assert expected in bench.findings[-1]
    status = bench.context.chip.register("GC", "SDMA0_QUEUE0_CONTEXT_STATUS")
    assert status.get(read(bench.context, "GC", "SDMA0_QUEUE0_CONTEXT_STATUS"), "EXCEPTION")


@pytest.mark.parametrize("buffer", [FENCE[:2] * 4, [*INDIRECT], [*[0] * 7, 2]])
def test_buffers_that_end_in_a_packet_or_nest_stop_the_engine(bench, buffer):
    bench.memory.write(IB, struct.pack(f"<{len(buffer)}I", *buffer))
    bench.run(*INDIRECT, *FENCE)
    assert bench.u32(DATA) != 0xCAFE
    assert len(bench.findings) == 1


@pytest.mark.parametrize("address", [0, 0x800, 0xFFFF_FFFF_FFFF_FFFC])
def test_a_page_fault_stops_the_queue_and_is_reported(bench, address):
    bench.run(*PACKETS["FENCE"].pack(addr=address), *FENCE)
    assert bench.u32(DATA) == 0
    assert [entry[1] for entry in bench.interrupts] == [60]
    assert "stops at 0x0 of its ring" in bench.findings[-1]


def test_an_unsupported_request_is_like_a_page_fault(bench):
    with pytest.raises(UnsupportedRequest):
        bench.memory.read(SYSTEM + (1 << 19), 4)
    bench.run(*PACKETS["COPY_LINEAR"].pack(count=3, src_addr=SYSTEM + (1 << 19), dst_addr=DATA))
    assert [entry[1] for entry in bench.interrupts] == [60]


@pytest.mark.slow
@given(
    st.lists(st.integers(0, 0xFFFF_FFFF), min_size=1, max_size=32), st.sampled_from(["gfx1100", "gfx1201"])
)
def test_no_words_break_the_model(words, chip):
    bench = BENCHES.setdefault(chip, Bench(chip))
    bench.engine.soft_reset()
    bench.put = 0
    for step in ("SDMA0_UTCL1_CNTL",):
        bench.set(step, RESP_MODE=3)
    bench.set(bench.control, HALT=0)
    bench.queue(0)
    bench.run(*(word & 0x3FFF_FF1F if n == 0 else word for n, word in enumerate(words)), time=clocks(1e-3))


BENCHES = {}


# -- facts ------------------------------------------------------------------------------------------------


@given(st.sampled_from(sorted(PACKETS)), st.data())
def test_packets_are_packed_and_unpacked(name, data):
    kind = PACKETS[name]
    aliases = {"addr", "apertureid"} if name == "SRBM_WRITE" else set()
    values = {
        part: data.draw(st.integers(0, kind.parts[part].mask)) for part in kind.parts if part not in aliases
    }
    words = kind.pack(**values)
    assert sdma.packet(words[0]) is kind
    found = kind.unpack(words)
    assert {part: found[part] for part in values} == values


def test_facts_refuse_what_does_not_exist():
    with pytest.raises(FactError, match="has no part"):
        PACKETS["FENCE"].pack(nothing=1)
    with pytest.raises(FactError, match="does not fit"):
        PACKETS["FENCE"].pack(data=1 << 32)
    with pytest.raises(FactError, match="not within"):
        PACKETS["FENCE"].get([5], "data")
