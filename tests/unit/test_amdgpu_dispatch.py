"""Dispatches: how registers describe them, which hang, and what the caches may hold."""

from __future__ import annotations

import pytest

from emulator.amdgpu.dispatch import NO_ACQUIRE, NO_WAIT
from emulator.amdgpu.seams import Outcome
from tests.unit.amdgpu_queues import (
    ARGUMENTS,
    BUFFER,
    CODE,
    DATA,
    PACKETS,
    PARTIAL_FLUSH,
    acquire,
    bench,
    fence,
    launch,
    sh,
)

SCALAR = Outcome(1, {"smem": 1}, 8, 0)


@pytest.fixture(name="queue")
def _queue():
    return bench()


HANGS = {
    "wave64": ({"initiator": 5}, "wave64"),
    "no threads": ({"threads": (0, 1, 1)}, "workgroups of 0 x 1 x 1"),
    "too many threads": ({"threads": (1024, 2, 1)}, "workgroups of 1024 x 2 x 1"),
    "no code": ({"code": 0}, "COMPUTE_PGM_LO and _HI are 0"),
    "too many user SGPRs": ({"users": 17}, "17 user SGPRs"),
    "partial groups": ({"initiator": 0x8007}, "PARTIAL_TG_EN"),
    "partial groups by work-items": ({"initiator": 0x8025}, "leave a workgroup partial"),
}


@pytest.mark.parametrize("what", HANGS)
def test_a_dispatch_hangs_with(queue, what):
    changes, words = HANGS[what]
    queue.submit(acquire(), *launch(queue.chip, **changes), fence())
    assert len(queue.findings) == 1
    assert words in queue.findings[0]
    assert queue.memory.word(DATA) == 0
    assert queue.dispatches == []


def test_no_groups_end_at_once(queue):
    queue.submit(*launch(queue.chip, groups=(4, 0, 1)), PARTIAL_FLUSH, fence())
    assert queue.memory.word(DATA) == 1
    assert queue.dispatches == []


def test_dimensions_in_work_items(queue):
    queue.submit(*launch(queue.chip, groups=(256, 2, 1), initiator=0x8025))
    assert queue.dispatches[0].groups == (4, 2, 1)


def test_a_dispatch_that_is_not_enabled_does_nothing(queue):
    queue.submit(*launch(queue.chip, initiator=0x8004), fence())
    assert "without COMPUTE_SHADER_EN" in queue.findings[0]
    assert queue.memory.word(DATA) == 1


def test_a_resumed_dispatch_is_refused(queue):
    packets = launch(queue.chip)
    packets[-1:-1] = [sh("COMPUTE_RESTART_X", 1, chip=queue.chip)]
    queue.submit(*packets)
    assert "COMPUTE_RESTART is not 0" in queue.findings[0]


def test_scratch_memory(queue):
    packets = launch(queue.chip)
    packets[1] = sh("COMPUTE_PGM_RSRC1", 0, 2 << 1 | 1, chip=queue.chip)
    queue.submit(*packets)
    assert queue.steps == {"dispatch-scratch"}
    base = sh("COMPUTE_DISPATCH_SCRATCH_BASE_LO", BUFFER >> 8 & 0xFFFF_FFFF, BUFFER >> 40, chip=queue.chip)
    size = sh("COMPUTE_TMPRING_SIZE", 3 << 12 | 64, chip=queue.chip)
    queue.submit(base, size, *packets)
    assert (queue.dispatches[1].scratch, queue.dispatches[1].scratch_wave) == (BUFFER, 3 * 256)


def test_dispatches_have_the_vmid_of_their_queue():
    made = bench(cp_hqd_vmid=6)
    made.select(vmid=6)
    made.write("SH_MEM_BASES", 0x7_0009)
    made.submit(*launch(made.chip))
    assert (made.dispatches[0].shared_aperture, made.dispatches[0].private_aperture) == (0x7_0000, 0x9_0000)


@pytest.mark.parametrize(("place", "step"), [(CODE, "acquire-code"), (ARGUMENTS, "acquire-scalar")])
def test_caches_are_invalidated_when_memory_has_changed(queue, place, step):
    queue.outcomes += [SCALAR] * 4
    queue.submit(acquire(), *launch(queue.chip), *launch(queue.chip))
    assert queue.steps == set()
    queue.memory.put(place + 8, 0x1234)
    queue.submit(acquire(), *launch(queue.chip))
    assert queue.steps == set()
    queue.memory.put(place + 8, 0x5678)
    queue.submit(*launch(queue.chip))
    assert queue.steps == {step}


def test_arguments_that_are_not_loaded_are_not_checked(queue):
    queue.submit(acquire(), *launch(queue.chip))
    queue.memory.put(ARGUMENTS, 1)
    queue.submit(*launch(queue.chip))
    assert queue.findings == []


FLUSHED, VECTOR = PARTIAL_FLUSH, acquire(0x3F0)
WAITED = PACKETS["WAIT_REG_MEM"].pack(FUNCTION=3, MEM_SPACE=1, ADDR=DATA, REFERENCE=1, MASK=0xFF)
BETWEEN = {
    "flush and acquire": ([FLUSHED, VECTOR], None),
    "a fence that is waited for": ([fence(), WAITED], None),
    "nothing": ([], NO_WAIT),
    "no flush": ([VECTOR], NO_WAIT),
    "no acquire": ([FLUSHED], NO_ACQUIRE),
    "the acquire too early": ([VECTOR, FLUSHED], NO_ACQUIRE),
    "not all caches": ([FLUSHED, acquire(0x1F0)], NO_ACQUIRE),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", BETWEEN)
@pytest.mark.parametrize("place", [BUFFER, BUFFER + 0x400])
def test_a_dispatch_sees_what_has_ended_and_was_acquired(queue, what, place):
    """The second copies a word, which the first one writes or does not."""

    def run(dispatch, memory):
        first = dispatch.code == CODE
        write = (BUFFER, bytes([7] * 4)) if first else (BUFFER + 0x100, memory.read(place, 4))
        return Outcome(1, {"valu": 1}, 4, 4, [write])

    queue.run = run
    between, missing = BETWEEN[what]
    first, second = launch(queue.chip), launch(queue.chip, code=CODE + 256)
    queue.submit(acquire(), *first, *between, *second)
    found = [finding.rpartition(": ")[2] for finding in queue.findings]
    assert found == ([missing] if missing and place == BUFFER else [])
    early = missing == NO_WAIT or place != BUFFER
    assert queue.memory.word(BUFFER + 0x100) == (0 if early else 0x0707_0707)
    assert queue.memory.word(BUFFER) == 0x0707_0707, "as if it had not been looked at"
