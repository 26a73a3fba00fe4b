"""Power caps, rest and heat, by the runtime's driver on the emulated card; and supplies that give way."""

from __future__ import annotations

import numpy as np
import pytest

import towline
from emulator.amdgpu import smu as model
from emulator.amdgpu.kernels.build import code_object
from emulator.options import described
from sdk.errors import DeviceFailed, UsageError
from sdk.target import OpenOptions
from sdk.targets import open_device
from sdk.telemetry.metrics import Metrics
from tests.amount import amount
from tests.gpu_host import Bench, User, firmware
from towline.cli import main
from usbgpu.amd import ih, monitor
from usbgpu.amd.batch import Batch
from usbgpu.amd.facts.chips import CHIPS
from usbgpu.amd.gpu import on_bridge
from usbgpu.amd.smu import PowerCap
from usbgpu.amd.start import close

pytestmark = pytest.mark.usefixtures("quiet_card")
BOTH = pytest.mark.parametrize("chip", ["gfx1100", "gfx1201"])


def opened(bench, cap=None):
    return on_bridge(bench, bench, firmware(bench.chip), power_cap=cap)


def full_load(gpu, rounds):
    """Arithmetic on all SIMDs; its results."""
    items = CHIPS[gpu.chip].compute_units * 2 * 8 * 32
    values = gpu.allocate(4 * items)
    gpu.upload(values, np.arange(items, dtype=np.uint32).tobytes())
    gpu.launch(gpu.load(code_object("integer", gpu.chip))["alu"], items // 64, values, rounds)
    found = gpu.download(values, 4 * items)
    values.free()
    return found


def worked(card, gpu, rounds=100):
    """The results of a full load, and how long it ran."""
    card.power.look()
    before = card.power.sums.busy
    found = full_load(gpu, rounds)
    card.power.look()
    return found, card.power.sums.busy - before


# -- caps ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chip", [pytest.param("gfx1100", marks=pytest.mark.slow), "gfx1201"])
def test_a_cap_makes_kernels_slower_and_their_results_stay(chip):
    least, most = CHIPS[chip].power_caps
    found = []
    for cap in (None, most, least):
        bench = Bench(chip)
        with opened(bench, cap) as gpu:
            assert bench.card.power.limit == (cap or most)
            found.append(worked(bench.card, gpu))
        assert bench.findings == []
    (free, free_time), (same, same_time), (capped, capped_time) = found
    assert free == same == capped
    assert free_time == pytest.approx(same_time, rel=1e-9)
    assert capped_time > 1.3 * free_time


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("wrong", [1.0, "below", "above", 120.5])
def test_a_cap_that_the_card_does_not_take_is_refused_before_anything_is_done(chip, warm, wrong):
    bench = Bench(chip)
    if warm:
        opened(bench).close()
    least, most = CHIPS[chip].power_caps
    cap = {"below": least - 1, "above": most + 1}.get(wrong, wrong)
    before = bench.runs
    with pytest.raises(UsageError, match=f"{least} W to {most} W") as caught:
        opened(bench, cap)
    assert caught.value.where == "power cap"
    assert bench.runs - before <= 3  # it has been looked at
    assert bench.card.power.limit == most
    with opened(bench, least):
        assert bench.card.power.limit == least


@pytest.mark.parametrize("target", ["c", "hexagon-v65", "adreno-a6xx"])
def test_other_targets_take_no_cap(target):
    with pytest.raises(UsageError, match="no power cap"):
        open_device(target, None, OpenOptions(power_cap=100))


def test_the_card_s_own_limit_comes_back_when_it_is_closed():
    bench = Bench("gfx1100")
    with opened(bench, 100):
        assert bench.card.power.limit == 100
    assert bench.card.power.limit == 355
    with opened(bench):  # warm
        assert bench.card.power.limit == 355
    with opened(bench, 120):
        assert bench.card.power.limit == 120
    assert bench.card.power.limit == 355


def test_a_card_that_was_not_closed_has_its_own_limit_again():
    bench = Bench("gfx1100")
    cap = PowerCap(100)
    bench.start(cap=cap)
    assert bench.card.power.limit == 100
    started = bench.start()  # a reset
    assert started.cold
    assert bench.card.power.limit == 355
    assert close(started.card, started.record, cap)  # with the limit that the card began with
    assert bench.card.power.limit == 355


# -- rest ---------------------------------------------------------------------------------------------------


@BOTH
def test_a_resting_card_draws_little_and_work_wakes_it(chip):
    bench = Bench(chip)
    facts = CHIPS[chip]
    with opened(bench) as gpu:
        bench.clock.sleep(0.01)
        assert bench.card.watts() == pytest.approx(facts.ready_power, abs=0.1)
        before = bench.runs
        gpu.rest()
        gpu.rest()
        assert bench.runs - before == 1
        bench.clock.sleep(0.01)
        assert (gpu.rests, bench.card.watts()) == ("idle", pytest.approx(facts.idle_power, abs=0.1))
        assert bench.card.blocks.smu.clock_mhz("GFXCLK") == facts.clocks["GFXCLK"][0]
        full_load(gpu, 1)
        assert gpu.rests == "awake"
        assert bench.card.blocks.smu.clock_mhz("GFXCLK") == facts.clocks["GFXCLK"][-1]
        began = bench.clock.now()
        gpu.wake()  # it is
        assert bench.clock.now() == began
        gpu.rest()
    bench.clock.sleep(0.01)
    assert bench.card.watts() == pytest.approx(facts.idle_power, abs=0.1)
    assert bench.findings == []


def test_what_was_launched_ends_before_a_card_rests():
    bench = Bench("gfx1100")
    with opened(bench) as gpu:
        values = gpu.allocate(4096)
        gpu.upload(values, bytes(4096))
        module = gpu.load(code_object("integer", "gfx1100"))
        gpu.launch(module["alu"], 16, values, 1000, wait=False)
        gpu.rest()
        assert not gpu.compute.busy
        assert gpu.download(values, 4) != bytes(4)


# -- heat ---------------------------------------------------------------------------------------------------


@BOTH
def test_the_power_management_reports_heat_once(chip):
    bench = Bench(chip)
    user = User(bench)
    watch = monitor.Monitor(user.card)
    assert watch.look().heat == 0
    bench.card.disturbance.heat = 80.0
    assert bench.card.power.hot
    found = watch.look()
    assert (found.heat, found.throttled, found.temperatures["EDGE"]) == (1, True, 105)
    assert found.document()["heat_interrupts"] == 1
    assert watch.look().heat == 0  # it was read
    for _ in range(3):  # acknowledged: it may come again
        bench.card.disturbance.heat = 0.0
        bench.card.disturbance.heat = 80.0
        assert watch.look().heat == 1
    assert bench.findings == []


def test_interrupts_that_report_errors_are_left_for_the_doctor():
    bench = Bench("gfx1100")
    user = User(bench)
    monitor.measure(user.card)
    bench.card.blocks.ih.post(0x14, 183)  # GRBM_CP CP_BAD_OPCODE_ERROR
    bench.card.disturbance.heat = 80.0
    assert monitor.measure(user.card).heat == 0
    assert [one.error for one in ih.drain(user.card)] == ["GRBM_CP CP_BAD_OPCODE_ERROR", None]


def test_a_driver_that_has_not_asked_for_the_interrupt_gets_none():
    bench = Bench("gfx1100")
    user = User(bench)
    bench.card.disturbance.heat = 80.0
    assert monitor.measure(user.card).heat == 0
    batch = Batch(user.card, "test")
    batch.set("MP", model.INTERRUPT, INT_MASK=1)
    batch.run()
    for heat in (0.0, 80.0):
        bench.card.disturbance.heat = heat
    assert ih.drain(user.card) == []


def test_a_reading_spares_the_next_look():
    bench = Bench("gfx1100")
    with opened(bench) as gpu:
        bench.clock.sleep(5)
        assert isinstance(gpu.reading(), Metrics)
        before = bench.runs
        gpu.monitor.check()
        assert bench.runs == before
        bench.card.disturbance.heat = 80.0
        assert gpu.reading().hotspot_celsius > 105
        with pytest.raises(monitor.TooHot):
            gpu.monitor.check()


# -- supplies -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("cap", amount([110, 111], [80, 100, 109, 110, 111, 120, None]))
def test_a_dock_with_a_small_supply_loses_a_card_without_a_cap(cap):
    """As reported of a dock with 100 W: the route is lost at caps of 111 W and above."""
    board = towline.emulated_board(gpu="gfx1201", vram="256M", supply=100)
    with towline.open_gpu(board, power_cap=cap) as gpu:
        if cap is not None and cap < 111:
            found = full_load(gpu, 20_000)
            assert found == full_load(gpu, 20_000)
            return
        with pytest.raises(DeviceFailed):
            full_load(gpu, 20_000)
        assert not board.chip.link.up
        assert gpu.recover(5.0) is False  # switched off and on
        assert len(full_load(gpu, 1)) > 0
    board.close()


@pytest.mark.slow
def test_a_card_that_is_off_draws_nothing_and_comes_back_by_a_recovery():
    board = towline.emulated_board(gpu="gfx1100", vram="256M")
    with towline.open_gpu(board, power_cap=100) as gpu:
        gpu.rest(off=True)
        assert (gpu.rests, board.card.watts()) == ("off", 0)
        for action in (gpu.wake, gpu.metrics, lambda: full_load(gpu, 1)):
            with pytest.raises(DeviceFailed):
                action()
        assert gpu.recover(5.0) is False
        assert gpu.rests == "awake"
        assert board.card.power.limit == 100  # also after a boot
        full_load(gpu, 1)
        gpu.rest(off=True)
    board.close()


@pytest.mark.parametrize("text", ["100", "W", "0W", "100w", "-5W", "1e3W", "100W "])
def test_a_supply_is_written_with_its_unit(text):
    with pytest.raises(UsageError, match="supply"):
        described(f"emulated?gpu=gfx1100&supply={text}")
    assert described("emulated?gpu=gfx1100&supply=100W")[1].supply == 100


def test_a_supply_is_for_a_card():
    with pytest.raises(UsageError, match="GPU"):
        described("emulated?supply=100W")
    assert main(["emulate", "firmware", "--supply", "100W"]) == 2
    assert main(["emulate", "firmware", "--gpu", "gfx1100", "--supply", "100"]) == 2


@pytest.mark.parametrize(
    "command",
    [
        ["bench", "usb", "--power-cap", "100W"],
        ["bench", "gemm", "--power-cap", "100W"],
        ["bench", "power", "--device", "usb"],
        ["bench", "power", "--target", "c"],
        ["run", "net.tow", "--power-cap", "much"],
        ["run", "net.tow", "--power-cap", "0W"],
    ],
)
def test_wrong_options_are_refused(command, capsys):
    assert main(command) == 2
    assert "hint" in capsys.readouterr().err
