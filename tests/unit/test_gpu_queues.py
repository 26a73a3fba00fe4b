"""Queues on the emulated card: set-up, timelines, rings that wrap and fill."""

import pytest

from sdk.errors import InternalError
from tests.gpu_bench import opened
from usbgpu.amd import layout, pm4
from usbgpu.amd.batch import Batch, GpuFailed
from usbgpu.amd.facts import mqd
from usbgpu.amd.queues import DWORDS, MQD, ComputeQueue, SdmaQueue
from usbgpu.amd.sdma import Program

TARGET = layout.BOOT_REGION
PUBLISHED = {
    "header": 0xC031_0800,
    "cp_hqd_persistent_state": 0x5501,
    "cp_hqd_pipe_priority": 2,
    "cp_hqd_queue_priority": 15,
    "cp_hqd_quantum": 0x111,
    "cp_hqd_pq_doorbell_control": 0x4000_0018,
    "cp_hqd_pq_control": 0x50D,  # 0x50A and 8 KiB there, 64 KiB here
    "cp_hqd_ib_control": 0x30_0000,
    "cp_hqd_hq_status0": 0x2000_4000,
    "cp_mqd_control": 0x100,
    "cp_hqd_eop_control": 9,
    "cp_hqd_vmid": 0,
}


class Rig:
    """A booted card, and fresh queues on it."""

    def __init__(self, chip: str) -> None:
        self.gpu, self.bridge = opened(chip)
        self.card = self.gpu.card
        self.emulated = self.bridge.host.card
        self.compute, self.sdma = ComputeQueue(self.card), SdmaQueue(self.card)
        batch = Batch(self.card, "stop")
        self.gpu.compute.queue.stop(batch)
        batch.run()
        self.restart()

    def restart(self) -> None:
        batch = Batch(self.card, "set up")
        self.compute.init(batch)
        batch.run()

    def words(self, count: int) -> list[int]:
        data = self.emulated.vram.read(TARGET, 4 * count)
        return [int.from_bytes(data[at : at + 4], "little") for at in range(0, 4 * count, 4)]


@pytest.fixture(scope="module", params=["gfx1100", pytest.param("gfx1201", marks=pytest.mark.slow)])
def rig(request) -> Rig:
    made = Rig(request.param)
    yield made
    assert made.emulated.diagnosis.findings == []


def test_the_queue_is_described_as_in_the_published_traces(rig):
    described = mqd.MQDS[rig.card.chip.generation]
    data = rig.emulated.vram.read(MQD, mqd.SIZE)
    assert {name: described.get(data, name) for name in PUBLISHED} == PUBLISHED
    assert all(described.get(data, f"compute_static_thread_mgmt_se{n}") == 0xFFFF_FFFF for n in range(8))


def test_submissions_are_executed_in_order_and_counted(rig):
    rig.restart()
    batch = Batch(rig.card, "three")
    for number in (5, 6, 7):
        rig.compute.submit(batch, pm4.write(layout.address(TARGET), number, number))
        later = batch.load(TARGET, 8)
        rig.compute.wait(batch, 0.1)
        seen = batch.load(TARGET, 8)
    before = rig.bridge.runs
    batch.run()
    assert rig.bridge.runs == before + 1, "all of it is one list"
    assert seen.value == bytes([7, 0, 0, 0] * 2)
    assert later.value in (bytes([6, 0, 0, 0] * 2), seen.value)
    assert rig.compute.value == 3


@pytest.mark.parametrize("size", [1, 3, 500, 2800])
def test_rings_wrap_wherever_a_submission_ends(rig, size):
    rig.restart()
    rounds = 3 * DWORDS // (size + 20) if size > 100 else 40
    target = layout.address(TARGET)
    for number in range(1, rounds + 1):
        batch = Batch(rig.card, "wrap")
        rig.compute.submit(batch, pm4.write(target, *[number] * size))
        if number % 7 == 0:
            rig.compute.wait(batch, 0.1)
        batch.run()
    batch = Batch(rig.card, "end")
    rig.compute.wait(batch, 0.1)
    batch.run()
    assert rig.words(size) == [rounds] * size


def test_a_full_ring_is_waited_for(rig):
    rig.restart()
    batch = Batch(rig.card, "full")
    body = [number & 0xFF for number in range(3000)]
    target = layout.address(TARGET)
    room = []
    for number in range(12):  # 36,000 dwords for a ring of 16,384
        room.append(rig.compute.fits(3004))
        rig.compute.submit(batch, pm4.write(target, number, *body[1:]))
    assert room[:6] == [True] * 5 + [False]
    assert False in room[6:]
    rig.compute.wait(batch, 0.1)
    assert rig.compute.fits(3000)
    batch.run()
    assert rig.words(3000) == [11, *body[1:]]


def test_what_must_stay_contiguous(rig):
    rig.restart()
    for size in (4000, 5000, 4100, 7000):
        batch = Batch(rig.card, "data")
        place = rig.compute.reserve(batch, size)
        ring = layout.address(rig.compute.place.ring)
        assert ring <= place <= ring + 4 * (DWORDS - size)
        packets = [*pm4.nop(size - 5), *[0xABC] * (size - 6), *pm4.write(layout.address(TARGET), size)]
        rig.compute.submit(batch, packets)
        rig.compute.wait(batch, 0.1)
        batch.run()
        offset = place - layout.VA + 4
        assert rig.emulated.vram.read(offset, 8) == b"\xbc\x0a\0\0" * 2
        assert rig.words(1) == [size]


def test_more_than_a_ring_takes_is_an_internal_error(rig):
    with pytest.raises(InternalError, match="dwords for"):
        rig.compute.submit(Batch(rig.card, "too much"), [0] * (rig.compute.room + 1))


def test_waits_are_bounded(rig):
    rig.restart()
    batch = Batch(rig.card, "never")
    rig.compute.submit(batch, pm4.wait_memory(layout.address(TARGET), 0xFFFF_FFFF))
    rig.compute.wait(batch, 0.01)
    start = rig.bridge.clock.now()
    with pytest.raises(GpuFailed, match="submission 1"):
        batch.run()
    assert 0.01 <= rig.bridge.clock.now() - start < 0.02
    batch = Batch(rig.card, "stop")
    rig.compute.stop(batch)
    batch.run()
    rig.restart()
    batch = Batch(rig.card, "again")
    rig.compute.submit(batch, pm4.write(layout.address(TARGET), 77))
    rig.compute.wait(batch, 0.1)
    batch.run()
    assert rig.words(1) == [77]


def test_sdma_wraps_too_and_others_wait_for_its_timeline(rig):
    rig.restart()
    sdma = rig.gpu.streams.queue
    source, target = layout.address(TARGET + 4096), layout.address(TARGET)
    rounds = 60  # of 450 dwords, in a ring of 16,384
    for number in range(rounds):
        batch = Batch(rig.card, "sdma")
        program = Program()
        program.write(source, number.to_bytes(4, "little") * 440)
        program.copy(source, target, 4)
        value = sdma.submit(batch, program.dwords)
        rig.compute.submit(
            batch,
            [*pm4.wait_memory(sdma.signal, value), *pm4.write(target + 8, number)],
        )
        rig.compute.wait(batch, 0.1)
        batch.run()
        assert rig.words(3)[::2] == [number, number]


def test_a_ring_is_never_full_to_the_last_dword(rig):
    rig.restart()
    room, end = rig.compute.room, DWORDS // 2 - rig.compute.room
    batch = Batch(rig.card, "half")
    rig.compute.submit(batch, pm4.write(layout.address(TARGET), *[1] * (room - 4)))
    assert rig.compute._put == DWORDS // 2
    assert not rig.compute.fits(DWORDS // 2 - end)
    assert rig.compute.fits(DWORDS // 2 - end - 1)
    rig.compute.wait(batch, 0.1)
    batch.run()


def test_packets_are_in_memory_before_the_doorbell(rig, monkeypatch):
    """The host data path may hold them back: it is flushed between the two, and behind all stores."""
    rig.restart()
    written = []
    run = rig.bridge.run
    monkeypatch.setattr(
        rig.bridge, "run", lambda commands: written.extend(commands.operations) or run(commands)
    )
    for queue, packets in ((rig.compute, pm4.nop(1)), (rig.gpu.streams.queue, [0])):
        written.clear()
        batch = Batch(rig.card, "order")
        queue.submit(batch, packets)
        batch.run()
        bars, flush = rig.card.bars, rig.card.bars[5] + rig.card.hdp_flush
        kinds = [
            "flush" if each.address == flush else next(bar for bar in (2, 0) if each.address >= bars[bar])
            for each in written
        ]
        stores = kinds.index("flush")
        assert stores >= 2
        assert kinds == [0] * stores + ["flush", 2, 2]
