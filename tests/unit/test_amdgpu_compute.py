"""Compute queues: the MEC's start, set-up register by register, doorbells, turns, faults, resets."""

from __future__ import annotations

import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.amdgpu import compute, hqd
from emulator.amdgpu.hqd import Pipeline, Stream
from emulator.amdgpu.mec import BOOT_CLOCKS
from emulator.amdgpu.pm4 import EOP_CLOCKS
from emulator.amdgpu.seams import Outcome, WaveFault
from tests.unit.amdgpu_queues import (
    ARGUMENTS,
    BUFFER,
    CODE,
    DATA,
    DISPATCH_CLOCKS,
    DWORDS,
    LONG,
    MQD,
    PACKET_CLOCKS,
    PACKETS,
    PARTIAL_FLUSH,
    RING,
    RPTR,
    Bench,
    Space,
    acquire,
    bench,
    fence,
    launch,
)
from usbgpu.amd.facts import interrupts as ih
from usbgpu.amd.facts import mqd, pm4

CHIPS = ("gfx1100", "gfx1201")


@pytest.fixture(name="queue")
def _queue():
    return bench()


def work(made):
    """A whole launch: caches, dispatch, fence."""
    return [acquire(), *launch(made.chip), PARTIAL_FLUSH, fence()]


# -- the good case ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("chip", CHIPS)
def test_a_launch(chip):
    made = bench(chip)
    made.outcomes.append(
        Outcome(8, {"valu": 80}, 0, 8, writes=[(DATA + 0x40, b"resu"), (DATA + 0x44, b"lts!")])
    )
    made.submit(*work(made), run=LONG)
    assert made.findings == []
    assert made.posts == []
    (dispatch,) = made.dispatches
    assert (dispatch.code, dispatch.groups, dispatch.threads) == (CODE, (4, 2, 1), (64, 1, 1))
    assert dispatch.user_data == (ARGUMENTS & 0xFFFF_FFFF, ARGUMENTS >> 32)
    assert (dispatch.shared_aperture, dispatch.private_aperture) == (0x1_0000, 0x2_0000)
    assert (dispatch.rsrc1, dispatch.rsrc2, dispatch.rsrc3) == (0x60AF_0001, 0x84, 0)
    assert made.memory.read(DATA + 0x40, 8) == b"results!"
    assert made.memory.word(DATA) == 1
    (record,) = made.records
    assert record.end - record.start == DISPATCH_CLOCKS
    assert record.queue == "pipe 0 queue 0"


def test_results_appear_at_the_virtual_end(queue):
    queue.outcomes.append(Outcome(1, {}, 0, 4, writes=[(DATA + 0x40, b"done")]))
    queue.submit(*launch(queue.chip), run=DISPATCH_CLOCKS)
    assert queue.memory.word(DATA + 0x40) == 0
    assert queue.records == []
    status = queue.chip.register("GC", "GRBM_STATUS").get(queue.read("GRBM_STATUS"), "SPI_BUSY")
    assert status == 1
    queue.link.run(30 * PACKET_CLOCKS)
    assert queue.memory.read(DATA + 0x40, 4) == b"done"
    assert queue.read("GRBM_STATUS") == 0


def test_the_ring_wraps_and_reports_its_read_pointer(queue):
    for turn in range(1, 3 * DWORDS // 5):
        queue.submit(PACKETS["WRITE_DATA"].pack(turn, DST_SEL=5, DST_ADDR=DATA), run=5 * PACKET_CLOCKS)
        assert queue.memory.word(DATA) == turn
        assert queue.memory.word(RPTR) == 5 * turn % DWORDS
    assert queue.findings == []
    queue.select(me=1)
    assert queue.read("CP_HQD_PQ_RPTR") == queue.memory.word(RPTR)
    assert queue.read("CP_HQD_PQ_WPTR_LO") == queue.put[0x18][1]


@given(st.integers(0, 1000), st.lists(st.integers(1, 63), min_size=1, max_size=12))
def test_streams_read_rings_in_any_pieces(start, pieces):
    memory = Space()
    memory.put(RING, *range(DWORDS))
    stream = Stream(memory, RING, DWORDS, start, start, "ring")
    for piece in pieces:
        stream.end += piece
        assert stream.left == piece
        assert stream.words(0, piece) == [(stream.position + n) % DWORDS for n in range(piece)]
        assert stream.address == RING + stream.position % DWORDS * 4
        stream.position += piece


@given(st.lists(st.sampled_from(["begin", "end", "after"]), max_size=40), st.randoms())
def test_what_waits_for_the_end_of_the_pipe_keeps_its_order(plan, random):
    pipeline, running, begun, called = Pipeline(), {}, 0, []
    asked = []
    for what in plan:
        if what == "begin":
            running[begun] = pipeline.begin()
            begun += 1
        elif what == "end" and running:
            number = random.choice(list(running))
            pipeline.end(running.pop(number))
        elif what == "after":
            pipeline.after(functools.partial(called.append, len(asked)))
            asked.append(begun)
        oldest = min(running, default=begun)
        assert called == [number for number, before in enumerate(asked) if before <= oldest]
        assert pipeline.busy == bool(running)


# -- set-up left out -------------------------------------------------------------------------------------

SKIPPED_STARTS = ("mec-start-address", "mec-reset", "mec-active", "mec-doorbell-range", "grbm-select")
HARMLESS = ("sh-mem-config", "sh-mem-bases")


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("step", SKIPPED_STARTS)
def test_without_this_the_doorbell_is_lost(chip, step):
    made = Bench(chip)
    made.start(skip=[step])
    made.queue()
    made.submit(*work(made))
    assert made.steps == {step}
    assert made.memory.word(DATA) == 0
    assert made.dispatches == []


@pytest.mark.parametrize("step", ["pfp-start", "me-start"])
def test_gfx12_needs_the_front_end(step):
    made = Bench("gfx1201")
    made.start(skip=[step])
    made.queue()
    made.submit(*work(made))
    assert made.steps == {step}
    assert made.memory.word(DATA) == 0


@pytest.mark.parametrize("step", HARMLESS)
def test_without_this_it_continues_and_is_noticed(step):
    made = Bench()
    made.start(skip=[step])
    made.queue()
    made.submit(*work(made))
    assert made.steps == {step}
    assert made.memory.word(DATA) == 1


@pytest.mark.parametrize(
    ("chip", "engine"), [("gfx1100", "mec"), *(("gfx1201", name) for name in ("mec", "pfp", "me"))]
)
def test_engines_need_firmware(chip, engine):
    made = Bench(chip)
    made.loaded.remove(engine)
    made.start()
    assert made.steps == {f"psp-fw-{engine}"}
    made.queue()
    made.submit(*work(made))
    assert made.steps == {f"psp-fw-{engine}"}
    assert made.memory.word(DATA) == 0


QUEUE_STEPS = {
    "hqd-pq-base": ["cp_hqd_pq_base"],
    "hqd-pq-control": ["cp_hqd_pq_control"],
    "hqd-rptr-report": ["cp_hqd_pq_rptr_report"],
    "hqd-doorbell": ["cp_hqd_pq_doorbell"],
    "hqd-eop": ["cp_hqd_eop_base"],
    "hqd-mqd-base": ["cp_mqd_base"],
    "hqd-persistent-state": ["cp_hqd_persistent"],
    "mqd-thread-mgmt": ["compute_static"],
    "hqd-active": ["active"],
}


@pytest.mark.parametrize("step", QUEUE_STEPS)
def test_queues_need(step):
    made = Bench()
    made.start()
    made.queue(skip=QUEUE_STEPS[step])
    made.submit(*work(made))
    assert made.steps == {step}
    # The fence is under way when the read pointer is reported.
    assert made.memory.word(DATA) == (step == "hqd-rptr-report")


def test_a_queue_of_another_engine_does_nothing():
    made = Bench()
    made.start()
    made.select(me=0)
    made.write("CP_HQD_ACTIVE", 1)
    assert made.steps == {"grbm-select"}


def test_every_step_is_tried():
    tried = {*SKIPPED_STARTS, *HARMLESS, "pfp-start", "me-start", *QUEUE_STEPS, "hqd-quantum", "acquire-code"}
    assert {step.key for step in compute.STEPS} == tried | {"acquire-scalar", "dispatch-scratch"}


def test_a_wrong_start_address_is_reported():
    made = Bench()
    made.select(me=1)
    made.write("CP_MEC_RS64_PRGRM_CNTR_START", 0x100)
    made.start(skip=["mec-start-address"])
    made.queue()
    made.submit(fence())
    assert "pipe 0 was started at 0x400" in made.findings[0]


def test_a_pipe_takes_time_to_come_up():
    made = Bench()
    made.queue()
    made.start()
    made.write("CP_MEC_RS64_CNTL", made.field("CP_MEC_RS64_CNTL", MEC_PIPE0_ACTIVE=1, MEC_HALT=1))
    made.write("CP_MEC_RS64_CNTL", made.field("CP_MEC_RS64_CNTL", MEC_PIPE0_ACTIVE=1))
    made.submit(fence(), run=BOOT_CLOCKS)
    assert "has not come up yet" in made.findings[0]
    made.submit(fence(value=2))
    assert made.memory.word(DATA) == 2


def test_only_pipes_that_are_started_run():
    made = Bench()
    made.start(pipes=1)
    made.queue(pipe=1)
    made.submit(fence())
    assert made.steps == {"mec-reset"}
    assert made.memory.word(DATA) == 0


def test_the_mqd_must_agree_with_the_registers(queue):
    queue.memory.put(MQD + 4 * 0xA7, 7)  # cp_hqd_eop_control
    queue.submit(fence())
    assert "registers differ from the MQD: CP_HQD_EOP_CONTROL" in queue.findings[0]


def test_the_mqd_has_a_header(queue):
    queue.memory.put(MQD, 0xC031_0801)
    queue.submit(fence())
    assert "starts with 0xc0310801" in queue.findings[0]
    assert queue.memory.word(DATA) == 1


def test_the_mqd_has_the_state_of_dispatches():
    made = bench(compute_user_data_0=0x1234, compute_pgm_rsrc3=0x77)
    made.submit(fence())
    made.select(me=1)
    assert (made.read("COMPUTE_USER_DATA_0"), made.read("COMPUTE_PGM_RSRC3")) == (0x1234, 0x77)


@pytest.mark.parametrize("chip", CHIPS)
def test_all_registers_of_the_mqd_may_be_written(chip):
    made = bench(chip)
    assert len(mqd.REGISTERS) == 56
    assert made.findings == []


def test_copies_of_registers_are_selected(queue):
    for pipe in range(4):
        for number in range(8):
            queue.select(me=1, pipe=pipe, queue=number)
            queue.write("CP_HQD_PIPE_PRIORITY", pipe * 8 + number & 3)
    queue.select(me=1, pipe=2, queue=5)
    assert queue.read("CP_HQD_PIPE_PRIORITY") == (2 * 8 + 5) & 3
    queue.select(vmid=3)
    queue.write("SH_MEM_BASES", 0x5_0006)
    queue.select(vmid=4)
    assert queue.read("SH_MEM_BASES") == 0x1_0002


# -- doorbells -------------------------------------------------------------------------------------------


def test_doorbells_outside_the_range_are_lost():
    made = Bench()
    made.start()
    made.queue(doorbell=0x100)
    made.submit(fence(), doorbell=0x100)
    assert made.findings == ["the doorbell 0x100 is lost: CP_MEC_DOORBELL_RANGE is 0x0 to 0xf8"]


def test_doorbells_of_no_queue_are_lost(queue):
    queue.bell(0x40, 8)
    (finding,) = queue.findings
    assert "0x40 is lost" in finding
    assert "CP_HQD_PQ_DOORBELL_CONTROL" in finding


def test_a_write_pointer_too_far_ahead_is_reported(queue):
    queue.bell(0x18, DWORDS + 1)
    assert "257 dwords ahead of the read pointer, the ring has 256" in queue.findings[0]
    queue.memory.put(RING, pm4.ONE_DWORD_NOP, *fence(), *[pm4.ONE_DWORD_NOP] * (DWORDS - 9))
    queue.link.run(LONG)
    assert queue.memory.word(RPTR) == 1  # as far as pointers within the ring show
    assert queue.memory.word(DATA) == 0


def test_a_queue_begins_where_its_registers_say():
    made = Bench()
    made.start()
    made.queue(cp_hqd_pq_rptr=40, cp_hqd_pq_wptr_lo=2 * DWORDS - 16)
    made.memory.put(RING, *[pm4.ONE_DWORD_NOP] * DWORDS)
    made.memory.put(RING + 40 * 4, *fence())
    made.bell(0x18, 2 * DWORDS - 16)
    made.link.run(LONG)
    assert made.findings == []
    assert (made.memory.word(DATA), made.memory.word(RPTR)) == (1, DWORDS - 16)


def test_ringing_again_without_work_is_not_a_mistake(queue):
    queue.submit(fence())
    queue.submit()
    assert queue.findings == []


# -- queues side by side ---------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [{"queue": 3}, {"pipe": 2}])
def test_queues_take_turns(queue, place):
    queue.queue(doorbell=0x20, ring=BUFFER, **place)
    nops = [[pm4.ONE_DWORD_NOP]] * 40
    queue.submit(*nops, fence(DATA), run=0)
    queue.submit(*nops, fence(DATA + 4), doorbell=0x20, run=0)
    start = queue.link.now()
    took = []
    for where in (DATA, DATA + 4):
        while not queue.memory.word(where):
            queue.link.run(1)
        took.append(queue.link.now() - start)
    alone = 40 * PACKET_CLOCKS + EOP_CLOCKS
    assert abs(took[1] - took[0]) <= 2 * PACKET_CLOCKS
    assert abs(took[0] - alone) < 2 * PACKET_CLOCKS if "pipe" in place else took[0] > 1.7 * alone - EOP_CLOCKS


def test_a_waiting_queue_lets_others_run(queue):
    queue.queue(queue=1, doorbell=0x20, ring=BUFFER)
    queue.submit(
        PACKETS["WAIT_REG_MEM"].pack(FUNCTION=3, MEM_SPACE=1, ADDR=DATA + 8, REFERENCE=1, MASK=1), fence()
    )
    queue.submit(fence(DATA + 8), doorbell=0x20)
    assert queue.memory.word(DATA) == 1
    assert queue.findings == []


def test_without_a_quantum_it_does_not():
    made = bench(cp_hqd_quantum=0)
    made.queue(queue=1, doorbell=0x20, ring=BUFFER)
    made.submit(
        PACKETS["WAIT_REG_MEM"].pack(FUNCTION=3, MEM_SPACE=1, ADDR=DATA + 8, REFERENCE=1, MASK=1), fence()
    )
    made.submit(fence(DATA + 8), doorbell=0x20)
    assert made.memory.word(DATA + 8) == 0
    assert made.steps == {"hqd-quantum"}


def two_dispatches(queue, *outcomes, after=0):
    """Of two pipes at a time, or the second one so many clocks later, with these outcomes; their records."""
    queue.outcomes += outcomes
    queue.queue(pipe=1, doorbell=0x20, ring=BUFFER)
    queue.submit(*launch(queue.chip), run=after)
    queue.submit(*launch(queue.chip), doorbell=0x20)
    records = {record.queue: record for record in queue.records}
    return records["pipe 0 queue 0"], records["pipe 1 queue 0"]


def test_small_dispatches_run_side_by_side(queue):
    first, second = two_dispatches(queue, Outcome(4, {}, 0, 0), Outcome(4, {}, 0, 0))
    assert (first.start, first.end) == (second.start, second.end)
    assert first.end - first.start == DISPATCH_CLOCKS


def test_large_dispatches_slow_each_other_down(queue):
    first, second = two_dispatches(queue, Outcome(8, {}, 0, 0), Outcome(8, {}, 0, 0), after=1000)
    ahead = second.start - first.start
    assert ahead == 1000
    assert first.end - first.start == ahead + 2 * (DISPATCH_CLOCKS - ahead)
    assert second.end - first.end == ahead  # alone for what is left of it


def test_dispatches_that_write_the_same_bytes_run_one_after_the_other(queue):
    """As two that count with atomics: the second one has to begin with what the first one leaves."""
    writes = [[(DATA + 0x40, b"sum1")], [(DATA + 0x80, b"aside")], [(DATA + 0x42, b"sum2")]]
    both, aside, again = (Outcome(1, {}, 0, 4, writes=one) for one in writes)
    queue.outcomes += [both, aside, aside]  # once more, to see whether it depends on the first
    first, second = two_dispatches(queue)
    assert first.end == second.end
    queue.records.clear()
    queue.outcomes[:] = [both, again, again]  # it runs again
    queue.submit(acquire(), *launch(queue.chip), run=0)
    queue.submit(*launch(queue.chip), PARTIAL_FLUSH, fence(), doorbell=0x20)
    first, second = queue.records
    assert second.start == first.end
    assert queue.outcomes == []
    assert queue.memory.read(DATA + 0x40, 6) == b"susum2"
    assert queue.memory.word(DATA) == 1


def test_a_dispatch_that_is_killed_frees_the_array(queue):
    large = Outcome(8, {}, 0, 4, writes=[(DATA + 0x40, b"lost")])
    queue.outcomes += [large, large, large]
    queue.queue(pipe=1, doorbell=0x20, ring=BUFFER)
    queue.submit(*launch(queue.chip), run=0)
    queue.submit(*launch(queue.chip), doorbell=0x20, run=1000)  # waits: they write the same bytes
    queue.select(me=1)
    queue.write("CP_HQD_ACTIVE", 0)
    killed = queue.link.now()
    queue.link.run(LONG)
    (record,) = queue.records
    assert (record.start, record.end) == (killed, killed + DISPATCH_CLOCKS)


# -- faults and resets -----------------------------------------------------------------------------------

FAULTS = {
    "instruction": (1, WaveFault("instruction", 0x100, "v_nonsense_b32 is not implemented")),
    "page fault": (2, WaveFault("page fault", 0x100, "global_load_b32 v1, v[2:3], off", 0x5000)),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_of_a_wave_hangs_the_queue(queue, kind):
    number, fault = FAULTS[kind]
    queue.outcomes.append(Outcome(1, {"valu": 1}, 0, 0, fault=fault))
    queue.submit(*work(queue))
    assert queue.memory.word(DATA) == 0
    assert queue.findings == [f"pipe 0 queue 0: {kind} at 0x100: {fault.text}; the queue hangs"]
    ((client, source, ring, vmid, words),) = queue.posts
    assert (client, source, ring, vmid) == (ih.CLIENTS["GRBM_CP"], ih.SOURCES["SQ_INTERRUPT_ID"], 4, 0)
    assert (words[0] >> 21 & 0xF, words[1] >> 6 & 3) == (number, 2)
    assert queue.records[0].outcome.fault is fault


def test_a_watchdog_hangs_without_an_interrupt(queue):
    queue.outcomes.append(Outcome(1, {}, 0, 0, fault=WaveFault("watchdog", 0x100, "s_branch")))
    queue.submit(*work(queue))
    assert queue.posts == []
    assert "watchdog" in queue.findings[0]


def test_results_that_find_no_memory_stop_the_queue(queue):
    queue.outcomes.append(Outcome(1, {}, 0, 4, writes=[(0x1000, b"lost")]))
    queue.submit(*work(queue))
    assert "results of a dispatch: write to 0x1000" in queue.findings[0]
    assert queue.memory.word(DATA) == 0


def dequeue(made, request, *, spi=False):
    made.select(me=1)
    made.write("CP_HQD_DEQUEUE_REQUEST", request)
    if spi:
        made.write("SPI_COMPUTE_QUEUE_RESET", 1)
    made.link.run(LONG)
    active = made.read("CP_HQD_ACTIVE")
    made.select()
    return not active


def hang(made):
    made.outcomes.append(Outcome(1, {}, 0, 0, fault=FAULTS["instruction"][1]))
    made.submit(*work(made))


def test_an_idle_queue_is_dequeued(queue):
    queue.submit(fence())
    assert dequeue(queue, 1)
    assert queue.findings == []
    queue.submit(fence(value=2))
    assert queue.steps == {"hqd-active"}


def test_draining_waits_for_dispatches(queue):
    write = PACKETS["WRITE_DATA"].pack(1, DST_SEL=5, DST_ADDR=DATA)
    queue.submit(*launch(queue.chip), PARTIAL_FLUSH, write, run=20 * PACKET_CLOCKS)
    queue.select(me=1)
    queue.write("CP_HQD_DEQUEUE_REQUEST", 1)
    queue.link.run(DISPATCH_CLOCKS - 20 * PACKET_CLOCKS)
    assert queue.read("CP_HQD_ACTIVE") == 1
    queue.link.run(LONG)
    assert queue.read("CP_HQD_ACTIVE") == 0
    assert len(queue.records) == 1
    assert queue.memory.word(DATA) == 0  # nothing new was begun


def test_a_hung_queue_is_reset_and_set_up_again(queue):
    hang(queue)
    assert not dequeue(queue, 1)
    assert "DEQUEUE_REQ 1 waits for work that never ends" in queue.findings[-1]
    assert not dequeue(queue, 2)
    assert dequeue(queue, 2, spi=True)
    queue.queue()
    queue.submit(*work(queue))
    assert queue.memory.word(DATA) == 1
    assert queue.records[-1].end - queue.records[-1].start == DISPATCH_CLOCKS


def test_a_queue_that_refused_a_packet_needs_no_reset_of_waves(queue):
    queue.submit([0])
    assert dequeue(queue, 2)


def test_what_was_under_way_is_dropped(queue):
    queue.outcomes.append(Outcome(1, {}, 0, 4, writes=[(DATA + 0x40, b"late")]))
    queue.submit(*launch(queue.chip), fence(), run=30 * PACKET_CLOCKS)
    queue.select(me=1)
    queue.write("CP_HQD_ACTIVE", 0)
    queue.link.run(LONG)
    assert "is cleared while it works" in queue.findings[0]
    assert (queue.memory.word(DATA), queue.memory.word(DATA + 0x40)) == (0, 0)


def test_a_soft_reset_takes_queues_and_the_mec(queue):
    hang(queue)
    resets = []
    queue.engine.grbm.resets.append(resets.append)
    bits = queue.field("GRBM_SOFT_RESET", SOFT_RESET_CP=1, SOFT_RESET_CPC=1)
    queue.write("GRBM_SOFT_RESET", bits)
    queue.write("GRBM_SOFT_RESET", 0)
    assert resets == [bits, 0]
    queue.queue()
    queue.submit(fence(value=2))
    assert queue.memory.word(DATA) == 0
    assert "mec-reset" in queue.steps
    queue.start()
    queue.queue()
    queue.submit(fence(value=2))
    assert queue.memory.word(DATA) == 2


def test_resets_of_other_blocks_leave_queues_alone(queue):
    queue.write("GRBM_SOFT_RESET", queue.field("GRBM_SOFT_RESET", SOFT_RESET_SDMA0=1))
    queue.submit(fence())
    assert queue.memory.word(DATA) == 1


def test_a_halted_mec_does_not_continue(queue):
    nops = [[pm4.ONE_DWORD_NOP]] * 20
    queue.submit(*nops, fence(), run=10 * PACKET_CLOCKS)
    active = {f"MEC_PIPE{pipe}_ACTIVE": 1 for pipe in range(4)}
    queue.write("CP_MEC_RS64_CNTL", queue.field("CP_MEC_RS64_CNTL", MEC_HALT=1, **active))
    queue.link.run(LONG)
    assert queue.memory.word(DATA) == 0
    assert not dequeue(queue, 2)
    assert queue.steps == {"mec-active"}
    queue.write("CP_MEC_RS64_CNTL", queue.field("CP_MEC_RS64_CNTL", **active))
    queue.link.run(LONG)
    assert queue.memory.word(DATA) == 1


def test_starting_another_pipe_does_not_disturb():
    made = Bench()
    made.start(pipes=1)
    made.queue()
    nops = [[pm4.ONE_DWORD_NOP]] * 20
    made.submit(*nops, fence(), run=10 * PACKET_CLOCKS)
    made.write("CP_MEC_RS64_CNTL", made.field("CP_MEC_RS64_CNTL", MEC_PIPE0_ACTIVE=1, MEC_PIPE1_RESET=1))
    made.link.run(12 * PACKET_CLOCKS + EOP_CLOCKS)
    assert made.memory.word(DATA) == 1


def test_a_wait_survives_a_halt(queue):
    packet = PACKETS["WAIT_REG_MEM"].pack(FUNCTION=3, MEM_SPACE=1, ADDR=DATA + 8, REFERENCE=1, MASK=1)
    queue.submit(packet, fence())
    active = {f"MEC_PIPE{pipe}_ACTIVE": 1 for pipe in range(4)}
    queue.write("CP_MEC_RS64_CNTL", queue.field("CP_MEC_RS64_CNTL", MEC_HALT=1, **active))
    queue.link.run(LONG)
    queue.memory.put(DATA + 8, 1)
    queue.write("CP_MEC_RS64_CNTL", queue.field("CP_MEC_RS64_CNTL", **active))
    queue.link.run(LONG)
    assert queue.memory.word(DATA) == 1


def test_busy_bits(queue):
    assert queue.read("CP_STAT") == 0
    other = queue.field("CP_STAT", ME_BUSY=1)
    queue.context.registers.set("GC", "CP_STAT", other)  # by another block
    assert queue.read("CP_STAT") == other
    queue.context.registers.set("GC", "CP_STAT", 0)
    queue.submit(*[[pm4.ONE_DWORD_NOP]] * 20, run=5 * PACKET_CLOCKS)
    assert queue.read("CP_STAT") == queue.field("CP_STAT", CP_BUSY=1)
    status = queue.chip.register("GC", "GRBM_STATUS").unpack(queue.read("GRBM_STATUS"))
    assert {name for name, bit in status.items() if bit} == {"CP_BUSY", "ANY_ACTIVE", "GUI_ACTIVE"}
    queue.link.run(LONG)
    assert queue.read("CP_STAT") == queue.read("GRBM_STATUS") == queue.read("CP_CPC_STATUS") == 0


def test_a_packet_may_end_its_own_queue(queue):
    active = queue.chip.address("GC", "CP_HQD_ACTIVE")
    queue.select(me=1)
    queue.submit(PACKETS["WRITE_DATA"].pack(0, DST_SEL=0, DST_ADDR=active), fence())
    assert queue.read("CP_HQD_ACTIVE") == 0
    assert queue.memory.word(DATA) == 0


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_no_registers_break_a_queue(data):
    made = _RANDOM
    made.select(me=1)
    names = [name for name in made.chip.blocks["GC"].registers if name.startswith(("CP_HQD_", "CP_MQD_"))]
    for name in data.draw(st.lists(st.sampled_from(names), max_size=8)):
        if name != "CP_HQD_ACTIVE":
            made.write(name, data.draw(st.integers(0, 0xFFFF_FFFF), label=name))
    made.write("CP_HQD_PQ_DOORBELL_CONTROL", 1 << 30 | 0x28)
    made.write("CP_HQD_ACTIVE", 1)
    for value in data.draw(st.lists(st.integers(0, (1 << 64) - 1), max_size=3)):
        made.bell(0x28, value)
        made.link.run(10 * PACKET_CLOCKS)
    made.write("CP_HQD_ACTIVE", 0)


_RANDOM = Bench()
_RANDOM.start()


def test_interrupts_name_the_queue():
    made = bench()
    made.queue(pipe=3, queue=5, doorbell=0x20, ring=BUFFER)
    made.unmask(pipe=2)
    made.submit(fence(interrupt=2), doorbell=0x20)
    assert made.posts == [], "each pipe has its own mask"
    made.unmask(pipe=3)
    made.submit(fence(interrupt=2), doorbell=0x20)
    assert made.posts[0][2] == 5 << 4 | hqd.ME << 2 | 3
