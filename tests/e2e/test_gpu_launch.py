"""Kernels on a GPU that the runtime has booted: correct ones, many of them, and faulty ones."""

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest

from emulator.amdgpu.dispatch import NO_ACQUIRE, NO_WAIT
from emulator.amdgpu.kernels.build import code_object
from emulator.amdgpu.kernels.cases import case
from emulator.core.clock import seconds
from sdk.errors import DeviceFailed, InvalidInput, Unsupported, UsageError
from tests.chips import EVERY
from tests.gpu_bench import Placed, opened
from tests.gpu_host import VRAM
from usbgpu.amd import compute, layout, pm4, queues
from usbgpu.amd import gpu as gpus
from usbgpu.amd.batch import Batch
from usbgpu.amd.compute import KernelFailed
from usbgpu.amd.facts import pages
from usbgpu.amd.facts import pm4 as facts
from usbgpu.amd.monitor import Monitor, TooHot
from usbgpu.seam import Read, Write

QUICK = ("add", "scan", "sort")  # plain, with LDS, with scratch memory
SLOW = ("gemm_dot4", "gemm_wmma", "histogram", "pointwise", "depthwise", "average_pool", "softmax")
NOWHERE = 0x1234_5678_9000


pytestmark = pytest.mark.usefixtures("quiet_card")


@pytest.fixture(scope="module", params=EVERY)
def shared(request):
    """A GPU and its emulated card; nothing that runs on it may cause a finding."""
    gpu, bridge = opened(request.param)
    yield gpu, bridge
    assert [one.symptom for one in bridge.host.card.diagnosis.findings] == []
    gpu.close()


@pytest.fixture(scope="module", params=["gfx1100", pytest.param("gfx1201", marks=pytest.mark.slow)])
def one(request):
    """The same, for what takes longer and does not depend on the chip."""
    gpu, bridge = opened(request.param)
    yield gpu, bridge
    assert [one.symptom for one in bridge.host.card.diagnosis.findings] == []
    gpu.close()


@pytest.fixture(params=["gfx1100", pytest.param("gfx1201", marks=pytest.mark.slow)])
def fresh(request):
    """A GPU for faults."""
    gpu, bridge = opened(request.param)
    yield gpu, bridge
    gpu.close()


def load(gpu, source):
    return gpu.load(code_object(source, gpu.chip))


def dwords(gpu, buffer, count) -> list[int]:
    return np.frombuffer(gpu.download(buffer, 4 * count), np.uint32).tolist()


@pytest.mark.slow
@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_kernels_compute(name, shared):
    gpu, bridge = shared
    used = gpu.memory.used
    wanted = case(name)
    module = load(gpu, wanted.source)
    placed = Placed(gpu, module, wanted)
    lists = bridge.runs
    gpu.run([placed.launch])
    assert bridge.runs == lists + 1, "launch and wait are one list"
    assert placed.mismatches() == 0
    placed.free()
    module.free()
    assert gpu.memory.used - used in (0, *(one.size for one in gpu.compute._scratch))


@pytest.mark.slow
def test_launches_see_what_those_before_wrote(shared):
    gpu, _ = shared
    module = load(gpu, "integer")
    values = np.arange(64, dtype=np.uint32)
    buffer = gpu.allocate(values.nbytes)
    wanted = alu(values, 40)
    gpu.upload(buffer, values.tobytes())
    for number in range(40):
        gpu.launch(module["alu"], 1, buffer, 1, wait=number % 13 == 12)
    assert dwords(gpu, buffer, 64) == wanted
    gpu.upload(buffer, values.tobytes())
    gpu.run([module["alu"].launch(1, buffer, 1)] * 40)
    assert dwords(gpu, buffer, 64) == wanted
    module.free()
    buffer.free()


def alu(values, rounds) -> list[int]:
    for _ in range(rounds):
        a, b = values, ~values
        a = a * np.uint32(1664525) + np.uint32(1013904223)
        b = (b << np.uint32(5)) + (b ^ a >> np.uint32(7))
        a = a ^ a << np.uint32(13)
        values = a ^ (b + (a & np.uint32(0x0F0F0F0F)))
    return values.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["EVENT_WRITE", "ACQUIRE_MEM"])
def test_a_fence_that_is_missing_between_launches_is_found(fresh, monkeypatch, missing):
    gpu, bridge = fresh
    barrier = pm4.barrier()
    size = facts.body_size(barrier[0]) + 1
    kept = barrier[size:] if missing == "EVENT_WRITE" else barrier[:size]
    module, buffer = load(gpu, "integer"), gpu.allocate(5 * 1024)
    places = [buffer.view(1024 * number, 1024) for number in range(5)]
    launches = [module["scan"].launch(1, *pair) for pair in itertools.pairwise(places)]
    start = bytes([1, 2, 3, 4] * 256).ljust(buffer.size, b"\0")
    gpu.upload(buffer, start)
    gpu.run(launches)
    right = gpu.download(buffer, buffer.size)
    assert bridge.host.card.diagnosis.findings == []
    gpu.upload(buffer, start)
    monkeypatch.setattr(pm4, "barrier", lambda: kept)
    gpu.run(launches)
    said = {finding.symptom.rpartition(": ")[2] for finding in bridge.host.card.diagnosis.findings}
    assert said == {{"EVENT_WRITE": NO_WAIT, "ACQUIRE_MEM": NO_ACQUIRE}[missing]}
    assert (gpu.download(buffer, buffer.size) == right) == (missing == "ACQUIRE_MEM")


@pytest.mark.slow
def test_more_launches_than_the_ring_has_room_for(one):
    gpu, _ = one
    module = load(gpu, "integer")
    values = np.arange(64, dtype=np.uint32)
    buffer = gpu.allocate(values.nbytes)
    gpu.upload(buffer, values.tobytes())
    used = gpu.memory.used
    gpu.run([module["alu"].launch(1, buffer, 1)] * 180)
    assert dwords(gpu, buffer, 64) == alu(values, 180)
    assert gpu.memory.used == used
    for _ in range(4):
        gpu.run([module["alu"].launch(1, buffer, 1)] * 100, wait=False)
    assert dwords(gpu, buffer, 64) == alu(values, 580)


def test_prepared_launches_are_one_list_however_often_they_run(one):
    gpu, bridge = one
    module = load(gpu, "misuse")
    buffer, other = gpu.allocate(4096), gpu.allocate(128)
    prepared = gpu.prepare([module["store"].launch(1, buffer.view(128 * n, 128), n + 5) for n in range(20)])
    for _ in range(3):
        gpu.upload(buffer, bytes(4096))
        lists = bridge.runs
        given = random.Random(1).randbytes(4000)
        results = prepared.run([Write(buffer, 0, given)], [Read(buffer, 128 * 19, 4), Read(buffer, 2559, 3)])
        assert bridge.runs == lists + 1
        assert results == [b"\x18\0\0\0", b"\0" + given[2560:2562]]
        assert dwords(gpu, buffer, 640)[::32] == list(range(5, 25))
    results = prepared.run([Write(other, 8, b"abcd")], [Read(other, 8, 4), Read(buffer, 0, 4096)])
    assert results[0] == b"abcd"
    assert results[1][:4] == b"\5\0\0\0"
    assert prepared.run() == []
    prepared.free()
    prepared.free()
    with pytest.raises(UsageError, match="freed"):
        prepared.run()


@pytest.mark.slow
def test_launches_of_a_stream_start_when_their_bytes_are_there(shared):
    gpu, bridge = shared
    code = code_object("integer", gpu.chip)
    parsed = gpus.kernels.parse(code)
    image = gpu.allocate(len(parsed.image), 4096)
    rounds, size = 6, 700_000
    rng = np.random.default_rng(3)
    inputs = [rng.integers(0, 1 << 32, size // 4 // 256 * 256, np.uint32) for _ in range(rounds)]
    buffers = [gpu.allocate(one.nbytes) for one in inputs]
    outputs = [gpu.allocate(one.nbytes) for one in inputs]
    load = [Write(image, 0, parsed.image)]
    launches, there = [], len(parsed.image)
    for given, source, target in zip(inputs, buffers, outputs, strict=True):
        half = given.nbytes // 2
        load += [Write(source, 0, given.tobytes()[:half]), Write(source, half, given.tobytes()[half:])]
        there += given.nbytes
        launch = parsed.kernels["scan"].launch(image.address, (given.size // 256,), None, [source, target])
        launches.append((launch, there))
    emulated = bridge.host.card
    emulated.scoreboard.clear()
    got = gpu.stream(load, launches, [Read(one, 0, one.size) for one in outputs])
    for given, data in zip(inputs, got, strict=True):
        wanted = np.add.accumulate(given.reshape(-1, 256), axis=1, dtype=np.uint32)
        assert (np.frombuffer(data, np.uint32).reshape(-1, 256) == wanted).all()
    starts = [record.start for record in emulated.scoreboard.records]
    assert len(starts) == rounds
    assert starts == sorted(starts)
    image.free()
    with pytest.raises(UsageError, match="not decrease"):
        gpu.stream(load[1:], [(launches[0][0], 200), (launches[1][0], 100)], [])
    with pytest.raises(UsageError, match="fewer"):
        gpu.stream(load[1:2], [(launches[0][0], 1 << 30)], [])


def test_profiles_give_the_time_of_each(shared):
    gpu, bridge = shared
    module = load(gpu, "integer")
    buffer = gpu.allocate(1 << 16)
    gpu.upload(buffer, bytes(1 << 16))
    sizes = ((1, 1), (2, 2000), (4, 10))
    launches = [module["alu"].launch(groups, buffer, rounds) for groups, rounds in sizes]
    bridge.host.card.scoreboard.clear()
    profiles = gpu.profile(launches)
    records = bridge.host.card.scoreboard.records
    assert [one["waves"] for one in profiles] == [2, 4, 8]
    for one, record in zip(profiles, records, strict=True):
        emulated = (record.end - record.start) / 114.2857
        assert emulated <= one["virtual_us"] <= emulated + 2
    assert gpu.profile([]) == []


def test_uploads_and_downloads_of_any_size_and_place(one):
    gpu, _ = one
    rng = random.Random(5)
    buffer = gpu.allocate(200_000)
    image = bytearray(rng.randbytes(200_000))
    gpu.upload(buffer, bytes(image))
    for size in (0, 1, 2, 3, 4, 5, 17, 255, 257, 4079, 4080, 4081, 5000, 70_001):
        place = rng.randrange(200_000 - size)
        data = rng.randbytes(size)
        gpu.upload(buffer, memoryview(data), place)
        image[place : place + size] = data
        assert gpu.download(buffer, size, place) == data
    assert gpu.download(buffer, 200_000) == image
    with pytest.raises(UsageError, match="not within"):
        gpu.upload(buffer, b"12345678", 200_000 - 7)
    with pytest.raises(UsageError, match="not within"):
        gpu.download(buffer, 8, 200_000 - 7)
    buffer.free()


@pytest.mark.slow
def test_two_hundred_rounds_leave_nothing_behind(one):
    gpu, _ = one
    module = load(gpu, "misuse")
    used = gpu.memory.used, gpu.memory.largest
    for number in range(200):
        buffer = gpu.allocate(128 + number)
        gpu.launch(module["store"], 1, buffer, number)
        assert dwords(gpu, buffer, 2) == [number, number]
        buffer.free()
    assert (gpu.memory.used, gpu.memory.largest) == used
    module.free()


def test_what_is_refused_before_anything_is_sent(one):
    gpu, bridge = one
    module = load(gpu, "misuse")
    other = "gfx1201" if gpu.chip == "gfx1100" else "gfx1100"
    buffer = gpu.allocate(128)
    freed = gpu.allocate(128)
    freed.free()
    lists = bridge.runs
    for error, wrong in (
        (UsageError, lambda: gpu.launch(module["store"], 1, buffer)),
        (UsageError, lambda: gpu.launch(module["store"], 1, freed, 1)),
        (UsageError, lambda: gpu.launch(module["store"], 0, buffer, 1)),
        (UsageError, lambda: gpu.launch(module["store"], 1, buffer, 1, threads=(64,))),
        (Unsupported, lambda: gpu.allocate(VRAM)),
        (InvalidInput, lambda: gpu.load(code_object("misuse", other))),
        (InvalidInput, lambda: gpu.load(code_object("misuse", gpu.chip)[:5000])),
        (InvalidInput, lambda: gpu.load(b"")),
        (UsageError, lambda: gpu.prepare([]).run([Write(object(), 0, b"1")])),
    ):
        with pytest.raises(error):
            wrong()
    assert bridge.runs <= lists + 1, "a program without launches may be there"


def test_code_that_is_larger_than_memory(one):
    gpu, _ = one
    rest = gpu.memory.allocate(gpu.memory.largest)
    try:
        with pytest.raises(Unsupported, match="VRAM"):
            load(gpu, "integer")
    finally:
        rest.free()


# -- faults ------------------------------------------------------------------------------------------------


def works(gpu) -> bool:
    """Whether everything works."""
    module, buffer = load(gpu, "misuse"), gpu.allocate(8192)
    gpu.launch(module["store"], 1, buffer, 77)
    gpu.download(buffer, 8192)
    return dwords(gpu, buffer, 32) == [77] * 32


@pytest.mark.slow
def test_a_kernel_that_never_ends_is_named_and_the_next_one_runs(fresh):
    gpu, bridge = fresh
    module = load(gpu, "misuse")
    flag = gpu.allocate(4096)
    gpu.upload(flag, bytes(4096))
    start = bridge.clock.now()
    with pytest.raises(KernelFailed, match=r"spin .* 0\.3 s") as caught:
        gpu.launch(module["spin"], 1, flag, timeout=0.3)
    assert caught.value.kernel == "spin"
    assert 0.3 <= bridge.clock.now() - start < 0.5
    assert works(gpu)
    store, spin = (module["store"].launch(1, flag.view(1024, 128), 9), module["spin"].launch(1, flag))
    prepared = gpu.prepare([store, spin, store])
    for outputs in ([], [Read(flag, 1024, 1000)]):
        with pytest.raises(KernelFailed, match="spin"):
            prepared.run([], outputs, timeout=0.1)
        assert not gpu.compute.busy
    gpu.run([store], wait=False)
    gpu.run([spin], wait=False)
    gpu.run([store], wait=False)
    with pytest.raises(KernelFailed, match="spin"):
        gpu.wait(timeout=0.1)
    gpu.wait()
    assert works(gpu)


@pytest.mark.slow
def test_the_timeline_wraps(fresh):
    """It is a dword in memory; the host's count goes beyond."""
    gpu, _ = fresh
    module, buffer = load(gpu, "misuse"), gpu.allocate(4096)
    gpu.upload(buffer, bytes(4096))
    prepared = gpu.prepare([module["store"].launch(1, buffer, 6)])
    gpu.compute.queue.value = (1 << 32) - 3
    for _ in range(4):
        (result,) = prepared.run([Write(buffer, 0, bytes(1000))], [Read(buffer, 0, 200)])
        assert result == b"\6\0\0\0" * 32 + bytes(72)
    gpu.compute.queue.value = (1 << 32) - 2
    for _ in range(3):
        gpu.launch(module["store"], 1, buffer, 1, wait=False)
    gpu.launch(module["spin"], 1, buffer.view(2048, 4), wait=False)
    with pytest.raises(KernelFailed, match="spin"):
        gpu.wait(timeout=0.05)
    assert works(gpu)


@pytest.mark.slow
@pytest.mark.parametrize("place", [0, pytest.param(3, marks=pytest.mark.slow), 7])
def test_a_page_fault_is_reported_with_address_access_and_kernel(fresh, place):
    gpu, _ = fresh
    module, integer = load(gpu, "misuse"), load(gpu, "integer")
    buffer = gpu.allocate(4096)
    gpu.upload(buffer, bytes(4096))
    launches = [integer["alu"].launch(1, buffer, 1)] * 8
    launches[place] = module["store"].launch(1, NOWHERE, 1)
    with pytest.raises(
        KernelFailed, match=r"store: page fault: write of the page at 0x123456789000"
    ) as caught:
        gpu.run(launches)
    assert caught.value.kernel == "store"
    assert works(gpu), "and no old fault is reported again"
    with pytest.raises(KernelFailed, match=r"scan: page fault: read of the page at 0x123456789000"):
        gpu.launch(integer["scan"], 1, NOWHERE, buffer)
    assert works(gpu)


def test_an_illegal_instruction_is_reported_long_before_the_time_out(fresh):
    gpu, bridge = fresh
    module, buffer = load(gpu, "misuse"), gpu.allocate(4096)
    start = bridge.clock.now()
    with pytest.raises(KernelFailed, match=r"unknown_instruction: .*illegal instruction"):
        gpu.launch(module["unknown_instruction"], 1, buffer, timeout=60)
    assert bridge.clock.now() - start < 1
    assert works(gpu)


def test_a_kernel_may_take_long(fresh, monkeypatch):
    """What takes longer than one list waits for is waited for by the next ones."""
    gpu, bridge = fresh
    monkeypatch.setattr(compute, "PATIENCE", 1e-6)
    monkeypatch.setattr(compute, "GLANCE", 1e-6)
    module, buffer = load(gpu, "integer"), gpu.allocate(256)
    gpu.upload(buffer, bytes(256))
    lists = bridge.runs
    gpu.launch(module["alu"], 1, buffer, 5000)
    assert bridge.runs > lists + 4
    assert works(gpu)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(1000,), (512, 4, 129), (300_000, 64), (8, 4), (1,) * 1500])
def test_outputs_of_launches_that_take_long(one, monkeypatch, sizes):
    gpu, _ = one
    monkeypatch.setattr(compute, "PATIENCE", 1e-6)
    monkeypatch.setattr(compute, "GLANCE", 1e-6)
    module, buffer = load(gpu, "integer"), gpu.allocate(1 << 20)
    gpu.upload(buffer, bytes(1 << 20))
    values = np.arange(64, dtype=np.uint32)
    prepared = gpu.prepare([module["alu"].launch(1, buffer, 1)] * 40)
    reads = [Read(buffer, 33 * number, size) for number, size in enumerate(sizes)]
    for size in (256, 20_000):
        given = values.tobytes() + bytes(size - 256)
        results = prepared.run([Write(buffer, 0, given)], reads)
        whole = np.array(alu(values, 40), np.uint32).tobytes().ljust(1 << 20, b"\0")
        assert results == [whole[read.offset : read.offset + read.size] for read in reads]
    assert works(gpu)


def test_sdma_does_not_wait_for_launches_that_may_take_longer_than_its_watchdog(one):
    gpu, _ = one
    assert gpu._fetch([(64 << 20, 1000)], 1, 10.0) is not None
    assert gpu._fetch([(64 << 20, 1000)], 1, 10.1) is None


def test_caches_are_invalidated_when_what_a_launch_waits_for_has_come(one):
    """Code, arguments and data may have been where others were."""
    gpu, _ = one
    launch = load(gpu, "misuse")["store"].launch(1, 0, 0)
    program = gpu.compute.program([compute.DispatchStep(launch, after=(layout.address(gpus.FENCE), 5))], 0)
    packets = [*pm4.wait_memory(layout.address(gpus.FENCE), 5), *pm4.acquire()]
    assert np.array(packets, np.uint32).tobytes() in program


def test_arguments_in_the_ring_are_aligned(one, monkeypatch):
    gpu, _ = one
    module, buffer = load(gpu, "misuse"), gpu.allocate(128)
    program, places = gpu.compute.program, []
    monkeypatch.setattr(
        gpu.compute, "program", lambda steps, address: places.append(address) or program(steps, address)
    )
    for _ in range(6):
        gpu.run([module["store"].launch(1, buffer, 1)])
        gpu.compute.queue.submit(batch := Batch(gpu.card, "a dword more"), pm4.nop(1))
        batch.run()
    assert [place % 16 for place in places] == [0] * len(places)
    assert len({place % 64 for place in places if place}) > 1


def test_scratch_memory_grows_with_what_launches_need(one):
    gpu, _ = one
    launch = load(gpu, "integer")["sort"].launch(1, 0, 0)
    engines = gpu.card.chip.shader_engines
    for size in (launch.scratch, 100 * launch.scratch, 3 * launch.scratch):
        given = gpu.compute._scratch_for([replace(launch, scratch=size)])
        assert given.size >= 32 * engines * 32 * size
    assert gpu.compute._scratch_for([replace(launch, scratch=0)]) is None


def test_nothing_is_written_under_what_still_runs(one):
    """Uploads, inputs and streams into memory that launches use wait for their end; also if it was freed."""
    gpu, bridge = one
    module = load(gpu, "integer")
    buffer = gpu.allocate(4096)
    prepared = gpu.prepare([module["alu"].launch(1, buffer.view(1024, 256), 1)])
    loads = np.array([1] * 64, np.uint32).tobytes().ljust(4096, b"\1")
    for action in (
        lambda: gpu.upload(buffer, loads),
        lambda: prepared.run([Write(buffer, 0, loads)]),
        lambda: gpu.stream([Write(buffer, 0, loads)], [], []),
    ):
        gpu.upload(buffer, loads)
        gpu.run([module["alu"].launch(1, buffer, 20_000)], wait=False)
        before = bridge.clock.now()
        action()
        assert bridge.clock.now() - before > 1e-4  # the launch takes longer than what was written
        assert dwords(gpu, buffer, 64) == [1] * 64
    gpu.upload(buffer, loads)
    gpu.run([module["alu"].launch(1, buffer, 20_000)], wait=False)
    buffer.free()
    again = gpu.allocate(4096)
    assert again.offset == buffer.offset
    gpu.upload(again, bytes(4096))
    assert gpu.download(again, 4096) == bytes(4096)


def test_only_what_the_host_shares_with_engines_is_uncached(shared):
    gpu, bridge = shared
    vram, form = bridge.host.card.vram, pages.FORMATS[gpu.card.chip.generation]

    def caching(address) -> int:
        table, offset = layout.TABLES, (address - layout.VA) >> pages.PAGE_SHIFT
        for level in (3, 2, 1, 0):
            index = offset >> level * pages.LEVEL_SHIFT & 511
            entry = int.from_bytes(vram.read(table + 8 * index, 8), "little")
            assert entry & pages.VALID
            if not level or entry & form.leaf:
                return entry >> form.mtype_shift & (1 << form.mtype_width) - 1
            table = entry & pages.ADDRESS
        raise AssertionError

    for place in (queues.COMPUTE.ring, queues.SDMA.signal, compute.MARKS, gpus.FENCE, layout.STREAMS):
        assert caching(layout.address(place)) == pages.MTYPES["UC"]
    assert caching(layout.SRAM_VA) == pages.MTYPES["UC"]
    assert caching(gpu.allocate(4096).address) == pages.MTYPES["NC"]


def test_an_upload_that_stops_in_the_middle_of_a_stream(fresh, monkeypatch):
    """Launches that wait for it are abandoned, and the GPU works afterwards."""
    gpu, bridge = fresh
    module = load(gpu, "misuse")
    buffer = gpu.allocate(1 << 20)

    def interrupted(commands):
        if any(operation.opcode.name == "SLOT_OUT" for operation in commands.operations):
            raise KeyboardInterrupt
        return run(commands)

    launches = [(module["store"].launch(1, buffer, 1), 1 << 20)]
    run = bridge.run
    with monkeypatch.context() as patch:
        patch.setattr(bridge, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            gpu.stream([Write(buffer, 0, bytes(1 << 20))], launches, [])
    assert works(gpu)
    assert [one.symptom for one in bridge.host.card.diagnosis.findings] == []


def test_a_card_that_is_too_hot_gets_no_work(fresh):
    gpu, bridge = fresh
    module, buffer = load(gpu, "misuse"), gpu.allocate(128)
    store = module["store"].launch(1, buffer, 1)
    prepared = gpu.prepare([store])
    gpu.monitor = Monitor(gpu.card, {"EDGE": 0})
    prepared.run()
    bridge.clock.sleep(1.5)
    for work in (lambda: gpu.run([store]), prepared.run, lambda: gpu.stream([], [(store, 0)], [])):
        with pytest.raises(TooHot, match="edge"):
            work()
    gpu.monitor = Monitor(gpu.card)
    assert works(gpu)


def test_a_stream_that_fails_is_followed_by_one_that_does_not(fresh, monkeypatch):
    gpu, bridge = fresh
    module, buffer = load(gpu, "misuse"), gpu.allocate(1 << 20)
    launches = [(module["store"].launch(1, buffer, 5), 1 << 20)]
    run = bridge.run

    def failing(commands):
        if any(operation.opcode.name == "SLOT_OUT" for operation in commands.operations):
            raise DeviceFailed("pulled")
        return run(commands)

    with monkeypatch.context() as patch:
        patch.setattr(bridge, "run", failing)
        with pytest.raises(DeviceFailed, match="pulled"):
            gpu.stream([Write(buffer, 0, bytes(1 << 20))], launches, [])
        with pytest.raises(DeviceFailed, match="pulled"):
            gpu.upload(buffer, bytes(1 << 20))
    assert gpu.stream([Write(buffer, 0, b"\1" * (1 << 20))], launches, [Read(buffer, 124, 8)]) == [
        b"\5\0\0\0\1\1\1\1"
    ]


def test_a_closed_gpu_says_so(fresh):
    gpu, _ = fresh
    buffer = gpu.allocate(16)
    gpu.close()
    gpu.close()
    for use in (lambda: gpu.upload(buffer, b"1"), lambda: gpu.download(buffer, 1), lambda: gpu.run([])):
        with pytest.raises(UsageError, match="closed"):
            use()


def test_buffers_are_where_the_boot_is_not(shared):
    gpu, _ = shared
    assert gpu.allocate(1).address >= layout.VA + layout.BOOT_REGION


# -- behind the bridge -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_launches_overlap_with_the_upload_behind_the_bridge():
    """Four kernels whose inputs are quarters of 4 MB: three run before the last byte has arrived."""
    with gpus.open("emulated:firmware?gpu=gfx1100&vram=512M") as gpu:
        card = gpu.card.bridge.transport.emulation.endpoint
        module = load(gpu, "integer")
        buffer, output = gpu.allocate(4 << 20), gpu.allocate(4 << 20)
        launches = [
            (
                module["scan"].launch(1024, buffer.view(n << 20, 1 << 20), output.view(n << 20, 1 << 20)),
                n + 1 << 20,
            )
            for n in range(4)
        ]
        start = gpu.card.bridge.clock.now()
        (got,) = gpu.stream(
            [Write(buffer, 0, b"\1\0\0\0" * (1 << 20))], launches, [Read(output, (4 << 20) - 4, 4)]
        )
        taken = gpu.card.bridge.clock.now() - start
        assert got == (256).to_bytes(4, "little")
        begins = [seconds(record.start) - start for record in card.scoreboard.records]
        upload = (4 << 20) / 700e6
        assert all(begin < 1.1 * part * upload / 4 + 1e-3 for part, begin in enumerate(begins, 1))
        assert begins[2] < upload
        assert taken < 1.25 * upload


@pytest.mark.slow
@pytest.mark.parametrize("chip", EVERY)
def test_transfers_behind_the_bridge(chip):
    with gpus.open(f"emulated:firmware?gpu={chip}&vram=512M") as gpu:
        transfers = []
        gpu.card.bridge.transport.observers.append(lambda call, outcome: transfers.append(call.kind))
        module = load(gpu, "integer")
        placed = Placed(gpu, module, case("scan"))

        def counted(action) -> int:
            transfers.clear()
            action()
            return len(transfers)

        assert counted(lambda: gpu.run([placed.launch])) == 2
        assert placed.mismatches() == 0
        prepared = gpu.prepare([placed.launch] * 5)
        assert counted(prepared.run) <= 4  # which reads the launches back
        assert counted(prepared.run) == 2
        buffer = gpu.allocate(150_528)
        assert counted(lambda: prepared.run([Write(buffer, 0, bytes(150_528))], [Read(buffer, 0, 1000)])) <= 5
        with pytest.raises(KernelFailed, match="page fault"):
            gpu.launch(module["scan"], 1, NOWHERE, buffer)
        assert counted(lambda: gpu.run([placed.launch])) == 2
