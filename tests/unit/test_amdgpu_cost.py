"""The cost model and the scoreboard: what must follow from more work, and sums that must be right."""

import json
from dataclasses import replace

import pytest

from emulator.amdgpu.cost import CONSTANTS, Cost
from emulator.amdgpu.scoreboard import LATEST, Record, Scoreboard
from emulator.amdgpu.seams import Dispatch, Outcome, WaveFault
from emulator.core.clock import clocks, seconds
from usbgpu.amd.facts.chips import CHIPS, GFX1100, GFX1201

CLOCKS = {"GFXCLK": 2000, "UCLK": 1249}
DISPATCH = Dispatch(0x1000, (1, 1, 1), (32, 1, 1), (), rsrc1=0, rsrc2=0, rsrc3=0)


def outcome(waves, read=0, written=0, products=None, **instructions):
    return Outcome(waves, instructions, read, written, products=products or {})


@pytest.fixture
def cost():
    return Cost(GFX1100, CLOCKS.__getitem__, lambda size: size // 8)


def time(cost, work, dispatch=DISPATCH):
    """Seconds beyond the launch itself."""
    return seconds(cost.dispatch(work, dispatch)) - CONSTANTS["launch"].value[0]


def test_a_card_full_of_arithmetic_runs_at_its_peak(cost):
    waves = GFX1100.compute_units * 2 * 16
    work = outcome(waves, valu=waves * 100_000)
    peak = GFX1100.compute_units * 2 * 2000e6
    assert time(cost, work) == pytest.approx(work.total / peak, rel=0.01)


def test_a_wave_alone_waits_for_itself(cost):
    assert time(cost, outcome(1, valu=100_000)) == pytest.approx(100_000 * 5 / 2000e6, rel=0.01)
    assert time(cost, outcome(1, vmem=100_000)) > 10 * time(cost, outcome(1, valu=100_000))


def test_memory_bound_work_runs_at_the_bandwidth(cost):
    work = outcome(6144, written=960_000_000, valu=1)
    assert time(cost, work) == pytest.approx(1e-3, rel=0.01)


@pytest.mark.parametrize(
    ("chip", "bandwidth"), [("gfx1100", 960e9), ("gfx1102", 288e9), ("gfx1200", 320e9), ("gfx1201", 640e9)]
)
def test_bandwidth_is_the_chip_s_at_its_highest_memory_clock(chip, bandwidth):
    facts = CHIPS[chip]
    levels = {name: clock[-1] for name, clock in facts.clocks.items()}
    work = outcome(4096, written=int(bandwidth), valu=1)
    cost = Cost(facts, levels.__getitem__, lambda size: size)
    assert time(cost, work) == pytest.approx(1.0, rel=0.01)
    levels["UCLK"] //= 2
    assert time(cost, work) == pytest.approx(2.0, rel=0.01)


def test_a_smaller_register_file_holds_fewer_waves():
    """The two chips of a generation: 1024 registers of a SIMD, in steps of 16, and 1536 in steps of 24."""
    kernel = replace(DISPATCH, rsrc1=112 // 8 - 1)
    large, small = (
        Cost(CHIPS[chip], CLOCKS.__getitem__, lambda size: size) for chip in ("gfx1100", "gfx1102")
    )
    assert (large.waves_per_simd(kernel), small.waves_per_simd(kernel)) == (12, 9)  # as clang states


@pytest.mark.parametrize("kind", ["valu", "salu", "smem", "vmem", "lds", "wmma", "branch", "other"])
@pytest.mark.parametrize("waves", [1, 50, 5000])
def test_more_instructions_take_longer(cost, kind, waves):
    few, many = (cost.dispatch(outcome(waves, **{kind: waves * count}), DISPATCH) for count in (100, 5000))
    assert few < many


def test_clocks_matter():
    work = outcome(5000, valu=50_000_000)
    slow, fast = (
        Cost(GFX1100, lambda clock, mhz=mhz: mhz, lambda size: size).dispatch(work, DISPATCH)
        for mhz in (500, 2500)
    )
    assert slow > 4 * fast


@pytest.mark.parametrize(
    ("chip", "bits", "operations"),
    [
        *((GFX1100, 16, 512), (GFX1100, 8, 512), (GFX1100, 4, 1024)),
        *((GFX1201, 16, 1024), (GFX1201, 8, 2048), (GFX1201, 4, 4096)),
    ],
)
def test_matrix_products_run_at_the_published_rate(chip, bits, operations):
    """Operations a cycle of a compute unit, a multiply-add being two."""
    waves, count = chip.compute_units * 2 * 16, 100_000
    work = outcome(waves, products={bits: waves * count}, wmma=waves * count)
    found = time(Cost(chip, CLOCKS.__getitem__, lambda size: size), work)
    rate = 2 * 16**3 * waves * count / (found * 2000e6 * chip.compute_units)
    assert rate == pytest.approx(operations, rel=0.01)


@pytest.mark.parametrize(
    ("vgprs", "lds", "expected"),
    [(8, 0, 16), (96, 0, 16), (128, 0, 10), (256, 0, 5), (8, 16384, 2), (8, 65536, 1)],
)
def test_registers_and_lds_limit_the_waves_of_a_simd(cost, vgprs, lds, expected):
    dispatch = replace(DISPATCH, rsrc1=vgprs // 8 - 1, rsrc2=lds // 512 << 15)
    assert cost.waves_per_simd(dispatch) == expected


def test_copies_take_the_link_or_vram(cost):
    assert cost.copy(1 << 20, system=True) == 1 << 17
    assert cost.copy(100_000_000, system=False) == pytest.approx(clocks(1e-3), abs=1)
    assert cost.read(system=True) > cost.read(system=False) > 0
    assert cost.packet() > 0


def test_every_constant_is_described(cost):
    described = cost.describe()
    assert [entry["name"] for entry in described] == list(CONSTANTS)
    assert {entry["grade"] for entry in described} <= {"inferred", "guess"}
    assert json.dumps(described)


# -- scoreboard -------------------------------------------------------------------------------------------


def test_the_scoreboard_adds_up_by_kernel():
    board = Scoreboard()
    board.names[0x2000] = "gemm"
    other = replace(DISPATCH, code=0x2000)
    fault = WaveFault("page fault", 0x2004, "global_load_b32: not mapped")
    done = outcome(4, valu=10, salu=2, read=64, written=32)
    board.dispatched(Record(DISPATCH, done, 0, 80))
    board.dispatched(Record(other, done, 80, 1080, "pipe 0 queue 0"))
    board.dispatched(Record(other, replace(outcome(1, valu=1), fault=fault), 1080, 1160))
    first, second = board.scores()
    assert (first.name, first.launches, first.waves, first.clocks, first.faults) == ("gemm", 2, 5, 1080, 1)
    assert (second.name, second.total, second.read, second.written) == ("0x1000", 12, 64, 32)
    assert board.instructions() == {"valu": 21, "salu": 4}
    document = json.loads(json.dumps(board.document()))
    assert document["total"]["wave_instructions"] == 25
    assert document["kernels"][0]["virtual_us"] == pytest.approx(1080 * 8.75e-3)
    headers, rows = board.rows()
    assert headers[:3] == ("kernel", "launches", "waves")
    assert rows[-1][:5] == ("total", 3, 9, 21, 4)
    board.clear()
    assert board.document()["kernels"] == []
    assert board.rows()[1] == []


def test_kernels_at_the_same_place_differ_by_their_code():
    board = Scoreboard()
    for code in (b"one", b"two", b"one"):
        board.dispatched(Record(DISPATCH, outcome(1), 0, 1, code=code))
    assert sorted(score.launches for score in board.scores()) == [1, 2]


def test_what_a_dispatch_wrote_is_not_kept():
    board = Scoreboard()
    board.dispatched(Record(DISPATCH, replace(outcome(1), writes=[(0, b"x" * 100)]), 0, 1))
    assert board.records[0].outcome.writes == ()


def test_a_card_that_runs_for_days_keeps_sums_and_the_latest_dispatches():
    board = Scoreboard()
    for number in range(LATEST + 10):
        board.dispatched(Record(DISPATCH, outcome(1), number, number + 1))
    assert board.scores()[0].launches == LATEST + 10
    assert [record.start for record in board.records] == list(range(10, LATEST + 10))
