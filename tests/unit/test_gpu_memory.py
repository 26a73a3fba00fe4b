"""The allocator of VRAM."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdk.errors import InternalError, Unsupported, UsageError
from usbgpu.amd import layout
from usbgpu.amd.memory import GRAIN, Memory

START, SIZE = 1 << 20, 64 * GRAIN


def test_the_vram_of_a_card_for_buffers_lies_between_the_boot_region_and_what_is_reserved():
    memory = Memory.of(vram=256 << 20, window=1 << 40)
    assert memory.size == (256 << 20) - layout.BOOT_REGION - layout.RESERVED_AT_TOP
    first = memory.allocate(1)
    assert first.offset == layout.BOOT_REGION
    assert first.address == layout.VA + layout.BOOT_REGION
    assert Memory.of(vram=1 << 30, window=256 << 20).size == (256 << 20) - layout.BOOT_REGION
    assert Memory.of(vram=64 << 20, window=64 << 20).size == 0


def test_too_much_is_refused_with_the_sizes():
    memory = Memory(START, START + SIZE)
    kept = [memory.allocate(GRAIN) for _ in range(64)]
    for buffer in kept[::2]:
        buffer.free()
    with pytest.raises(Unsupported) as refused:
        memory.allocate(2 * GRAIN)
    for size in ("512 bytes", "8.2 kB of 16.4 kB free", "largest piece 256 bytes"):
        assert size in str(refused.value)
    assert memory.used == 32 * GRAIN
    kept[1].free()
    assert memory.allocate(3 * GRAIN).offset == kept[0].offset, "gaps beside each other are one"


@pytest.mark.parametrize(("size", "alignment"), [(0, 256), (-1, 256), (1, 0), (1, 3), (1, -4)])
def test_invalid_sizes_are_refused(size, alignment):
    with pytest.raises(UsageError):
        Memory(START, START + SIZE).allocate(size, alignment)


def test_an_odd_start_is_an_internal_error():
    with pytest.raises(InternalError):
        Memory(START + 1, START + SIZE)


def test_views_are_within_their_buffer_and_go_with_it():
    memory = Memory(START, START + SIZE)
    buffer = memory.allocate(1000)
    view = buffer.view(100, 200)
    inner = view.view(50, 150)
    assert (inner.offset, inner.size) == (buffer.offset + 150, 150)
    for offset, size in ((0, 201), (-1, 10), (201, 0), (0, -1)):
        with pytest.raises(UsageError, match="not within"):
            view.view(offset, size)
    inner.free()
    assert memory.used == 1024, "freeing a view has no effect"
    buffer.free()
    buffer.free()
    assert memory.used == 0
    for use in (lambda: buffer.address, lambda: inner.address, lambda: view.place(0, 1)):
        with pytest.raises(UsageError, match="freed"):
            use()


STEP = st.tuples(st.integers(1, 12 * GRAIN), st.sampled_from([1, 64, 256, 4096]), st.integers(0, 50))


@given(st.lists(STEP, max_size=60))
def test_pieces_never_overlap_and_none_is_lost(steps):
    memory = Memory(START, START + SIZE)
    live = []
    for size, alignment, victim in steps:
        try:
            buffer = memory.allocate(size, alignment)
        except Unsupported:
            rounded = -(-size // GRAIN) * GRAIN
            assert rounded + max(alignment - GRAIN, 0) > memory.largest, "there was room"
        else:
            assert buffer.offset % alignment == 0
            assert buffer.offset >= START
            assert buffer.offset + size <= START + SIZE
            live.append(buffer)
        if live and victim < 25:
            live.pop(victim % len(live)).free()
        ends = sorted((one.offset, one.offset + one.size) for one in live)
        assert all(before[1] <= after[0] for before, after in pairwise(ends))
        assert memory.used == sum(-(-one.size // GRAIN) * GRAIN for one in live)
        assert memory.largest <= memory.free
    for buffer in live:
        buffer.free()
    assert (memory.used, memory.largest) == (0, SIZE)
