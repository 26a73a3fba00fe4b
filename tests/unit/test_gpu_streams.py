"""Streams: how they are cut, and what arrives on the emulated card without a bridge."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firmware.asm2464pd.registers.memory import SLOT_SIZE
from sdk.errors import DeviceFailed, UsageError
from tests.gpu_bench import opened
from tests.list_host import noise
from usbgpu.amd import layout
from usbgpu.amd import streams as module
from usbgpu.amd.batch import Batch, GpuFailed
from usbgpu.amd.sdma import Program
from usbgpu.amd.stream_parts import FIRST, Check, Copy, Piece, Value, cut, fill, windows_of
from usbgpu.amd.streams import BLOCKS, IN_HALVES, OUT_HALVES, WHOLE

SRAM = 32 * SLOT_SIZE


def played(parts, size, blocks):
    """What a device copies out of parts; the values of the fence, with the bytes copied so far."""
    target, values, copied = bytearray(size), [], 0
    for number, part in enumerate(parts):
        image = b"".join(part.buffers)
        assert len(image) == part.slots * SLOT_SIZE
        assert part.slot >= 0
        assert part.slot + part.slots <= 32
        own = (FIRST + number).to_bytes(4, "little")
        assert part.number == FIRST + number
        assert image[-4:] == own
        since = None
        for step in part.steps:
            match step:
                case Copy(source, place, length):
                    assert source % 4 == place % 4
                    since = source if since is None else since
                    target[place : place + length] = image[source : source + length]
                    copied += length
                case Check(offset):
                    assert offset in blocks
                    assert image[offset : offset + 4] == own
                    assert since is not None
                    assert offset < since
                    since = None
                case Value(value):
                    assert not blocks or since is None, "reported and not checked"
                    values.append((value, copied))
        if blocks:
            assert since is None, "copied and not checked"
            assert image[4:8] == bytes(4)
    return target, values


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 300_000), min_size=1, max_size=6),
    gaps=st.lists(st.integers(0, 9), min_size=6, max_size=6),
    whole=st.booleans(),
)
def test_parts_bring_every_byte_to_its_place(sizes, gaps, whole):
    pieces, place, wanted = [], 0, bytearray()
    for number, size in enumerate(sizes):
        place += gaps[number]
        wanted = wanted.ljust(place, b"\0")
        data = noise(size, number)
        pieces.append(Piece(place, memoryview(data), 100 + number))
        wanted += data
        place += size
    windows, blocks = (WHOLE, BLOCKS) if whole else (OUT_HALVES, ())
    parts = fill(pieces, windows, blocks)
    got, values = played(parts, place, blocks)
    assert got == wanted
    ends = [(100 + number, sum(sizes[: number + 1])) for number in range(len(sizes))]
    if blocks:  # of those in one block the last is reported, when that has been checked
        assert all(copied >= dict(ends)[value] for value, copied in values)
        assert values == sorted(values)
        assert values[-1] == ends[-1]
    else:
        assert values == ends
    for number, part in enumerate(parts):
        slot, slots = windows[number % len(windows)]
        if part is not parts[-1]:
            assert (part.slot, part.slots) == (slot, slots)
        elif blocks:  # it overwrites from the first byte on
            assert part.slot == 0
        else:  # its number is where those of others are
            assert part.slot + part.slots == slot + slots


@given(st.integers(1, 5 << 20))
def test_windows_hold_all_of_it(size):
    for windows in (IN_HALVES, WHOLE):
        found = list(windows_of(size, windows))
        assert sum(part for _, part in found) == size
        assert all(0 < part <= (32 - slot) * SLOT_SIZE for slot, part in found)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=12), st.integers(1, 50), st.integers(1, 4))
def test_streams_are_cut_where_they_are_too_long(sizes, most, count):
    pieces = [Piece(1000 * number, bytes([number]) * size, number) for number, size in enumerate(sizes)]
    found = list(cut(pieces, most, count))
    assert all(len(some) <= count and sum(len(one.data) for one in some) <= most for some in found)
    flat = [one for some in found for one in some]
    assert [one.value for one in flat if one.value is not None] == list(range(len(sizes)))
    for number, piece in enumerate(pieces):
        parts = [one for one in flat if one.address // 1000 == number]
        assert b"".join(bytes(one.data) for one in parts) == piece.data
        assert parts[-1].value == number
        assert [one.address for one in parts] == [
            piece.address + sum(len(before.data) for before in parts[:place]) for place in range(len(parts))
        ]


@pytest.fixture(scope="module", params=["gfx1100", "gfx1201"])
def shared(request):
    gpu, bridge = opened(request.param)
    yield gpu, bridge
    assert [one.symptom for one in bridge.host.card.diagnosis.findings] == []
    gpu.close()


def vram(bridge):
    return bridge.host.card.vram


@pytest.mark.slow
def test_random_pieces_arrive_and_come_back_and_nothing_else_changes(shared):
    gpu, bridge = shared
    chance = random.Random(7)
    room = 900_000
    buffer = gpu.allocate(room)
    model = bytearray(noise(room, 1))
    vram(bridge).write(buffer.offset, bytes(model))
    for _ in range(12):
        pieces, at = [], chance.randrange(64)
        while at < room and len(pieces) < 8:
            size = min(chance.choice((1, 3, 4, 100, 4096, 70_001, 250_000)), room - at)
            data = chance.randbytes(size)
            pieces.append(Piece(buffer.address + at, data))
            model[at : at + size] = data
            at += size + chance.randrange(1000)
        gpu.streams.upload(pieces)
        assert vram(bridge).read(buffer.offset, room) == model
        at, size = chance.randrange(room), chance.choice((1, 511, 513, 16_384, 262_145, 600_000))
        size = min(size, room - at)
        assert gpu.streams.download(buffer.address + at, size) == model[at : at + size]
    buffer.free()


@pytest.mark.slow
@pytest.mark.parametrize(
    "offset",
    [
        (256 << 10) - 4,
        *(pytest.param(kib << 10, marks=pytest.mark.slow) for kib in (0, 8, 240)),
        pytest.param((496 << 10) - 4, marks=pytest.mark.slow),
    ],
)
def test_bytes_that_look_like_a_parts_number_are_not_taken_for_it(shared, offset, monkeypatch):
    """The SRAM is full of every number that a wait for a part may compare with, and parts are slow."""
    gpu, bridge = shared
    bring = module.Streams._bring

    def slowly(self, commands, parts, step=0):
        commands.delay(400)  # SDMA has finished the part before
        bring(self, commands, parts, step)

    monkeypatch.setattr(module.Streams, "_bring", slowly)
    for number in range(FIRST - 2, FIRST + 6):
        bridge.host.sram[:] = number.to_bytes(4, "little") * (SRAM // 4)
        buffer = gpu.allocate(600_000)
        data = noise(600_000 - offset, number)
        gpu.streams.upload([Piece(buffer.address, data)])
        assert vram(bridge).read(buffer.offset, len(data)) == data
        assert gpu.streams.download(buffer.address, len(data)) == data
        buffer.free()


def test_a_fetch_at_once_leaves_the_fences_of_the_upload_alone(shared, monkeypatch):
    gpu, _ = shared
    bring = module.Streams._bring

    def and_dawdle(self, commands, parts, step=0):
        bring(self, commands, parts, step)
        commands.delay(400)

    monkeypatch.setattr(module.Streams, "_bring", and_dawdle)
    buffer, data = gpu.allocate(8192), noise(4) + bytes(8188)  # zeros where the fences are in slot 0
    plan = gpu.streams.fetch([(buffer.address, 8192)], (buffer.address, int.from_bytes(data[:4], "little")))
    batch = Batch(gpu.card, "both")
    gpu.streams.add_upload(batch, [Piece(buffer.address, data)], fetch=plan)
    gpu.streams.take(batch, plan)
    batch.run()
    assert plan.values == [data]
    gpu.streams.queue.idle()
    buffer.free()


@pytest.mark.slow
@pytest.mark.parametrize("behind", [False, True])
def test_what_is_fetched_waits_for_its_dword_and_for_the_host(shared, behind):
    gpu, _ = shared
    streams = gpu.streams
    buffer, flag = gpu.allocate(300_000), gpu.allocate(4)
    for number in range(2):
        old, new = noise(20_000, 10 * number), noise(20_000, 10 * number + 1)
        streams.upload([Piece(buffer.address, old), Piece(flag.address, bytes(4))])
        reads = [(buffer.address + 3, 700), (buffer.address + 10_001, 5), (buffer.address, 128)]
        plan = streams.fetch(reads, (flag.address, 7))
        batch = Batch(gpu.card, "fetch")
        if behind:
            streams.add_upload(batch, [Piece(buffer.address + 20_000, old)], fetch=plan)
        else:
            streams.add_fetch(batch, plan)
        batch.pause(1e-3)
        batch.store(buffer.offset, new)
        batch.store(flag.offset, b"\7\0\0\0")
        batch.flush_hdp()
        batch.pause(1e-3)
        streams.take(batch, plan)
        batch.run()
        assert plan.values == [new[3:703], new[10_001:10_006], new[:128]]
        streams.queue.idle()
    for each in (buffer, flag):
        each.free()


def test_the_fence_rises_as_pieces_arrive(shared):
    gpu, bridge = shared
    buffer, fence = gpu.allocate(1_000_000), gpu.allocate(4)
    seen = []
    memory = vram(bridge)
    write = memory.write

    def watch(offset, data):
        write(offset, data)
        if offset == fence.offset:
            seen.append(int.from_bytes(data, "little"))
            end = 100_000 * seen[-1]
            assert memory.read(buffer.offset, end) == data_all[:end]

    data_all = noise(1_000_000, 3)
    pieces = [
        Piece(buffer.address + 100_000 * place, data_all[100_000 * place :][:100_000], place + 1)
        for place in range(10)
    ]
    memory.write = watch
    try:
        gpu.streams.upload(pieces, fence.address)
    finally:
        memory.write = write
    assert seen == list(range(1, 11))
    for each in (buffer, fence):
        each.free()


def test_what_is_not_vram_is_refused_before_anything_is_sent(shared):
    gpu, bridge = shared
    runs = bridge.runs
    end = layout.address(gpu.card.vram)
    with pytest.raises(UsageError, match="1000 bytes at 0x1000 are not in VRAM"):
        gpu.streams.upload([Piece(0x1000, bytes(1000))])
    with pytest.raises(UsageError, match="not in VRAM"):
        gpu.streams.upload([Piece(end - 1000, bytes(1000)), Piece(end - 999, bytes(1000))])
    with pytest.raises(UsageError, match="4 bytes at 0x0 are not in VRAM"):
        gpu.streams.upload([Piece(end - 1000, bytes(1000), 1)])
    with pytest.raises(UsageError, match="not in VRAM"):
        gpu.streams.download(end - 1, 2)
    assert bridge.runs == runs


@pytest.mark.slow
@pytest.mark.parametrize("size", [1000, 700_000])
def test_a_stream_that_stands_still_is_an_error_and_the_next_one_works(size):
    gpu, _ = opened("gfx1100")
    buffer = gpu.allocate(size)
    data = noise(size)
    for stream in (
        lambda: gpu.streams.upload([Piece(buffer.address, data)]),
        lambda: gpu.streams.download(buffer.address, size),
    ):
        stuck = Program()
        stuck.poll(buffer.address, 1)
        gpu.streams.upload([Piece(buffer.address, bytes(size))])
        batch = Batch(gpu.card, "stuck")
        gpu.streams.queue.submit(batch, stuck.dwords)
        batch.run()
        with pytest.raises(DeviceFailed, match=rf"load of {size} bytes|program for SDMA"):
            stream()
        gpu.streams.upload([Piece(buffer.address, data)])
        assert gpu.streams.download(buffer.address, size) == data
    gpu.close()


def test_a_hang_without_a_way_to_recover_is_reported(shared):
    gpu, _ = shared
    alone = module.Streams(gpu.card, gpu.streams.queue)
    alone._hangs = True
    with pytest.raises(GpuFailed, match="hangs in a stream"):
        alone.upload([Piece(0, bytes(1000))])
