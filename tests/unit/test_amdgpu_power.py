"""The board's power: what work adds, what a limit takes away, what a supply bears."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.amdgpu import power as model
from emulator.amdgpu.cost import Work
from emulator.amdgpu.power import Power
from emulator.amdgpu.shader_array import Running, ShaderArray
from emulator.core.clock import clocks, seconds
from tests.unit import amdgpu_bench as bench
from usbgpu.amd.facts.chips import CHIPS

EVERY = pytest.mark.parametrize("chip", CHIPS)


class Bench:
    """A board whose driver has raised the clocks, and its shader array."""

    def __init__(self, chip: str = "gfx1100") -> None:
        self.context, self.link = bench.context(chip)
        self.chip = self.context.chip
        self.power = Power(self.context)
        self.array = ShaderArray(self.link, self.power)
        high = {name: levels[-1] for name, levels in self.chip.clocks.items()}
        self.power.set_clocks(high, high)
        self.ended: list[int] = []

    def work(self, *, busy: float = 1.0, traffic: float = 0.0, lasts: float = 100e-6) -> Work:
        """Work that lasts so long at the highest clocks."""
        cycles = lasts * self.chip.clocks["GFXCLK"][-1] * 1e6
        return Work(0.0, cycles, traffic * lasts * self.chip.vram_bandwidth, busy * cycles, 1.0)

    def begin(self, work: Work) -> None:
        high = self.chip.clocks["GFXCLK"][-1]
        left = clocks(work.seconds(high, self.chip.vram_bandwidth))
        ended = lambda: self.ended.append(self.link.now())  # noqa: E731
        self.array.begin(Running(left, work, (), lambda: True, ended))

    def now_drawn(self) -> float:
        """Watts, once the capacitors have followed."""
        self.link.run(clocks(30 * model.SMOOTHING))
        return self.power.watts()


def test_power_is_idle_power_then_ready_then_that_of_the_work():
    one = Bench()
    assert one.now_drawn() == pytest.approx(one.chip.ready_power)
    room = one.chip.board_power - one.chip.ready_power
    one.begin(one.work(busy=0.0, lasts=1.0))
    assert one.now_drawn() == pytest.approx(one.chip.ready_power + model.WAVES * room, abs=0.1)
    one.begin(one.work(traffic=1.0, lasts=1.0))
    full = one.now_drawn()  # both together fill no more than the card has
    assert full == pytest.approx(one.chip.ready_power + room * (0.25 + 0.45 / 2 + 0.30 / 2), abs=0.1)
    low = {name: levels[0] for name, levels in one.chip.clocks.items()}
    idle = Bench()
    idle.power.set_clocks(low, low)
    assert idle.now_drawn() == pytest.approx(idle.chip.idle_power)


@EVERY
def test_all_work_together_takes_the_board_s_power_and_its_own_limit_slows_nothing(chip):
    one = Bench(chip)
    one.begin(one.work(traffic=1.0, lasts=20e-3))
    assert one.now_drawn() == pytest.approx(one.chip.board_power, abs=0.1)
    one.link.run(clocks(20e-3))
    assert one.ended == [clocks(20e-3)]  # to the clock


@EVERY
def test_the_least_cap_is_above_what_raised_clocks_take(chip):
    facts = CHIPS[chip]
    least, most = facts.power_caps
    assert facts.idle_power < facts.ready_power < least < most == facts.board_power


@settings(max_examples=20, deadline=None)
@given(
    chip=st.sampled_from(list(CHIPS)),
    cap=st.floats(0, 1),
    works=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=4),
)
def test_no_work_exceeds_a_cap(chip, cap, works):
    one = Bench(chip)
    least, most = one.chip.power_caps
    one.power.set_limit(least + cap * (most - least))
    for busy, traffic, share in works:
        one.begin(replace(one.work(busy=busy, traffic=traffic, lasts=1.0), share=share))
        assert one.now_drawn() <= one.power.limit + 1e-6


def test_a_cap_makes_work_take_longer_and_lifting_it_ends_that():
    ends = []
    for cap in (355.0, 200.0, 100.0):
        one = Bench()
        one.power.set_limit(cap)
        one.begin(one.work())
        one.link.run(clocks(1.0))
        (end,) = one.ended
        ends.append(seconds(end))
    assert ends[0] == pytest.approx(100e-6, rel=1e-3)
    assert ends[0] < ends[1] < ends[2]
    square = (100e-6 / ends[2]) ** 2  # of the share of GFXCLK that is left
    raised = 1 + (square - (500 / 2498) ** 2) / (1 - (500 / 2498) ** 2)
    assert 14 + raised / 2 * 36 + 0.7 * square * 305 == pytest.approx(100, abs=0.5)
    one = Bench()
    one.power.set_limit(100.0)
    one.begin(one.work())
    one.link.run(clocks(50e-6))
    one.power.set_limit(355.0)
    one.link.run(clocks(1.0))
    rate = 100e-6 / ends[2]
    assert seconds(one.ended[0]) == pytest.approx(50e-6 + (100e-6 - 50e-6 * rate), rel=1e-3)


def test_memory_gets_slower_when_shaders_alone_are_not_enough():
    one = Bench()
    one.power.set_limit(89.0)
    work = one.work(busy=0.0, traffic=1.0, lasts=20e-3)
    one.begin(replace(work, cycles=work.cycles / 10))
    assert 88.0 < one.now_drawn() <= 89.0
    before = one.power.sums
    assert before.graphics / before.busy == pytest.approx(one.chip.clocks["GFXCLK"][0])
    assert before.memory / before.busy < one.chip.clocks["UCLK"][-1]
    one.link.run(clocks(1.0))
    assert seconds(one.ended[0]) > 20e-3


def test_copies_take_power_while_they_last():
    one = Bench()
    one.power.copy(int(one.chip.vram_bandwidth * 2e-3), clocks(4e-3))
    assert one.now_drawn() == pytest.approx(50 + 0.5 * 0.30 * 305, abs=0.1)
    one.link.run(clocks(5e-3))
    assert one.power.watts() == pytest.approx(50, abs=0.1)
    assert one.power.sums.traffic == pytest.approx(2e-3, rel=0.01)
    assert one.power.sums.energy == pytest.approx(8e-3 * 50 + 4e-3 * 45.75, rel=0.01)


@pytest.mark.parametrize("cap", [110.0, 111.0])
def test_a_supply_gives_way_above_what_it_bears(cap):
    one = Bench()
    lost: list[int] = []
    one.power.guard(110.0, lambda: lost.append(one.link.now()))
    one.power.set_limit(cap)
    one.begin(one.work(lasts=1e-3))
    one.link.run(clocks(10e-3))
    assert bool(lost) == (cap > 110)
    if lost:
        assert 1e-6 < seconds(lost[0]) < 1e-3  # not at once, and once


def test_a_short_burst_is_no_overload():
    one = Bench()
    lost: list[int] = []
    one.power.guard(200.0, lambda: lost.append(one.link.now()))
    for _ in range(20):
        one.begin(one.work(lasts=5e-6))
        one.link.run(clocks(100e-6))
    assert not lost
    one.begin(one.work(lasts=500e-6))
    one.link.run(clocks(1e-3))
    assert len(lost) == 1


def test_a_die_keeps_its_temperature_over_a_reset():
    one = Bench()
    one.begin(one.work(lasts=1000.0))
    one.link.run(clocks(100.0))
    one.power.look()
    after = Power(one.context, one.power)
    assert after.temperature == one.power.temperature > 50
    one.link.run(clocks(20.0))
    after.look()
    assert 30 < after.temperature < one.power.temperature - 10
