"""The HDP: what the host writes waits, and who sees it when."""

from __future__ import annotations

import functools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.amdgpu.hdp import DRAIN_CLOCKS, OUTSTANDING, Hdp
from tests.unit.amdgpu_bench import context


class Bench:
    def __init__(self, **how):
        self.context, self.link = context()
        self.vram = self.context.vram
        self.hdp = Hdp(self.context, **how)

    @property
    def findings(self):
        return self.context.diagnosis.steps


@pytest.fixture(name="bench")
def _bench():
    return Bench()


def test_writes_wait_and_the_host_sees_them(bench):
    bench.vram.write(0x1000, b"oldoldold")
    bench.hdp.write(0x1003, b"new")
    assert bench.hdp.read(0x1000, 9) == b"oldnewold"
    assert bench.vram.read(0x1000, 9) == b"oldoldold"
    assert bench.findings == {"hdp-flush"}
    bench.hdp.flush("host")
    assert bench.vram.read(0x1000, 9) == b"oldnewold"


def test_reads_beside_what_waits_are_not_a_mistake(bench):
    bench.hdp.write(0x1000, b"new!")
    bench.vram.read(0x0FF0, 16)
    bench.vram.read(0x1004, 16)
    assert not bench.findings
    bench.vram.read(0x0FF0, 17)
    assert bench.findings == {"hdp-flush"}


def test_old_bytes_that_are_the_new_ones_are_not_a_mistake(bench):
    bench.vram.write(0x1000, b"same")
    bench.hdp.write(0x1000, b"same")
    assert bench.vram.read(0x1000, 4) == b"same"
    assert not bench.findings


def test_writes_drain_by_themselves(bench):
    bench.hdp.write(0x1000, b"first")
    bench.link.run(DRAIN_CLOCKS - 1)
    assert bench.vram.memory[0x1000:0x1005] == bytes(5)
    bench.link.run(1)
    assert bench.vram.read(0x1000, 5) == b"first"
    assert not bench.findings


def test_writes_that_do_not_drain_wait_for_a_flush():
    bench = Bench(drains=False)
    bench.hdp.write(0x1000, b"first")
    bench.link.run(1000 * DRAIN_CLOCKS)
    assert bench.vram.read(0x1000, 5) == bytes(5)
    assert bench.findings == {"hdp-flush"}
    bench.hdp.flush("host")
    assert bench.vram.read(0x1000, 5) == b"first"


def test_the_timer_is_of_the_oldest_that_waits(bench):
    bench.hdp.write(0x1000, b"a")
    bench.link.run(DRAIN_CLOCKS - 10)
    bench.hdp.flush("host")
    bench.hdp.write(0x2000, b"b")
    bench.link.run(20)
    assert bench.hdp.waiting == 1
    bench.link.run(DRAIN_CLOCKS - 20)
    assert bench.hdp.waiting == 0


def test_a_full_buffer_drains(bench):
    for number in range(OUTSTANDING - 1):
        bench.hdp.write(8 * number, b"\x55")
    assert bench.hdp.waiting == OUTSTANDING - 1
    bench.hdp.write(8 * OUTSTANDING, b"\x55")
    assert bench.hdp.waiting == 0
    assert bench.vram.read(0, 1) == b"\x55"


def test_engines_writes_lie_under_what_waits(bench):
    bench.hdp.write(0x1000, b"host")
    bench.vram.write(0x1000, b"engine")
    assert bench.hdp.read(0x1000, 6) == b"hostne"
    bench.hdp.drain()
    assert bench.vram.read(0x1000, 6) == b"hostne"


@pytest.mark.slow
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("write"), st.integers(0, 40), st.binary(min_size=1, max_size=16)),
            st.tuples(st.just("engine"), st.integers(0, 40), st.binary(min_size=1, max_size=16)),
            st.tuples(st.just("flush"), st.just(0), st.just(b"")),
        ),
        max_size=30,
    )
)
def test_two_views_against_a_model(steps):
    bench = _shared()
    bench.hdp.drain()
    bench.vram.memory[:64] = bytes(64)
    waiting, seen = [], bytearray(64)
    for kind, place, data in steps:
        if kind == "write":
            bench.hdp.write(place, data)
            waiting.append((place, data))
        elif kind == "engine":
            bench.vram.write(place, data)
            seen[place : place + len(data)] = data
        else:
            bench.hdp.flush("host")
            for start, run in waiting:
                seen[start : start + len(run)] = run
            waiting.clear()
        newest = bytearray(seen)
        for start, run in waiting:
            newest[start : start + len(run)] = run
        assert bench.hdp.read(0, 64) == newest
        assert bench.vram.memory[:64] == seen


@functools.cache
def _shared() -> Bench:
    """One for all examples: making VRAM takes longer than they do."""
    return Bench()
