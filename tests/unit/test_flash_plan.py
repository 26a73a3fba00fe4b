"""The order in which the flash is written: tested on bytes in memory."""

from __future__ import annotations

import struct

import pytest

from firmware.asm2464pd import image
from firmware.asm2464pd.flash_layout import IMAGE, PAGE_SIZE, SECTOR_SIZE
from tests.flash_bench import CONFIG, filler
from usbgpu.flash import plan
from usbgpu.flash.plan import Contents, Program, stages

TAIL = bytes(range(256)) * (0x8020 // 256) + bytes(0x20)
LARGEST = image.wrap(bytes(index * 31 >> 3 & 0xFF for index in range(image.MAX_BODY)))


def program(memory: bytearray, step: Program, count: int | None = None) -> None:
    """What NOR flash does: bits are only cleared; of a program that is interrupted, `count` bytes."""
    for place, value in enumerate(step.data[:count]):
        memory[step.address + place] &= value


def moments(memory: bytearray, contents: Contents):
    """Yield after everything that happens to `memory`, and in the middle of it."""
    yield
    for count in range(1, plan.LENGTH_FIELD + 1):
        program(memory, plan.INVALIDATE, count)
        yield
    for stage in stages(contents):
        for part in (SECTOR_SIZE // 3, SECTOR_SIZE):
            memory[stage.address : stage.address + part] = b"\xff" * part
            yield
        for step in stage.programs:
            program(memory, step, len(step.data) // 2)
            yield
            program(memory, step)
            yield
        assert memory[stage.address : stage.address + SECTOR_SIZE] == stage.expected
        for count in range(1, plan.LENGTH_FIELD + 1) if stage.commit else ():
            program(memory, stage.commit, count)
            yield


@pytest.mark.slow
@pytest.mark.parametrize("new", [filler(300), filler(0xFF00 - 10), filler(0xFF00, every=9), LARGEST])
@pytest.mark.parametrize("old", [filler(5000), filler(0x12345, every=5), b"\xff" * 100])
def test_at_every_moment_the_old_image_is_whole_or_the_new_one_or_the_length_is_invalid(old, new) -> None:
    memory = bytearray(b"".join(CONFIG) + old).ljust(plan.AREA, b"\xff")
    lengths = {bytes(old[:4]), bytes(new[:4])}
    seen = []
    for _ in moments(memory, Contents(CONFIG, new)):
        # The fast test first: mostly the length field alone rules an image out.
        length = struct.unpack_from("<I", memory, IMAGE.address)[0]
        if 0 < length <= image.MAX_BODY and (found := plan.image_in(bytes(memory))) is not None:
            assert found in (old, new)
            assert memory[: IMAGE.address] == b"".join(CONFIG)
            seen.append(found)
            assert bytes(memory[IMAGE.address : IMAGE.address + 4]) in lengths
    assert seen[-1] == new
    assert len(seen) == (1 if old[0] == 0xFF else 2), "whole before the first operation and after the last"
    assert memory[: len(Contents(CONFIG, new).memory)] == Contents(CONFIG, new).memory


def test_programs_stay_in_a_page_and_in_the_buffer_and_skip_what_is_erased() -> None:
    contents = Contents(CONFIG, LARGEST, TAIL)
    for stage in stages(contents):
        for step in (*stage.programs, *([stage.commit] if stage.commit else [])):
            assert 0 < len(step.data) <= plan.CHUNK
            assert step.address // PAGE_SIZE == (step.end - 1) // PAGE_SIZE
            assert step.data[0] != 0xFF
            assert step.data[-1] != 0xFF
    assert sum(stage.operations for stage in stages(Contents(CONFIG, filler(0x100)))) == 1 + 2 + 3 + 1


def test_the_configuration_is_the_first_thing_in_an_erased_block() -> None:
    first = stages(Contents(CONFIG, LARGEST))[-1].programs[:2]
    assert [step.address & ~0x7F for step in first] == [0x00, 0x80]


def test_what_follows_the_largest_image_is_kept() -> None:
    memory = Contents(CONFIG, LARGEST, TAIL).memory
    assert len(memory) == 0x18000
    assert memory[plan.TAIL :] == TAIL[: 0x18000 - plan.TAIL]
    assert plan.config_in(memory) == CONFIG
    assert plan.image_in(memory) == LARGEST
    assert plan.tail_in(memory.ljust(plan.AREA, b"\xff")).startswith(TAIL[: 0x18000 - plan.TAIL])
    for size, sectors in ((0xF00 - 10, 1), (0xF00 - 9, 2)):
        assert len(Contents(CONFIG, filler(size), TAIL).memory) == sectors * SECTOR_SIZE


def test_contents_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="configuration"):
        Contents((CONFIG[0], CONFIG[1][1:]), filler(10))
    with pytest.raises(ValueError, match="does not fit"):
        Contents(CONFIG, bytes(IMAGE.size + 1))
    with pytest.raises(ValueError, match="does not fit"):
        Contents(CONFIG, filler(10), b"short")
