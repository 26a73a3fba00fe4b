"""A network on an emulated card that gets hot, has a power cap, or rests: its answers stay the same."""

from __future__ import annotations

import json

import numpy as np
import pytest

from sdk import compiler
from sdk.errors import DeviceFailed, UsageError
from sdk.session import Session
from sdk.stream import Stream
from sdk.target import OpenOptions
from sdk.targets import open_device
from tests.e2e.test_gpu_recovery import frame, network, same
from towline.cli import main
from usbgpu.target.device import EmulatedCardDevice

pytestmark = [pytest.mark.usefixtures("quiet_card"), pytest.mark.slow]
DEVICE = "emulated?gpu=gfx1100&vram=256M"
STEPS = 6


@pytest.fixture(scope="module")
def artifact():
    return compiler.compile(network(), "amd-gfx1100")


@pytest.fixture(scope="module")
def expected(artifact):
    with Session(artifact, DEVICE) as session:
        return [session.step(frame(number)) for number in range(STEPS)], session.states()


class Opened:
    """A session on a card of its own; and the card."""

    def __init__(self, artifact, options=OpenOptions(), device=DEVICE):
        opened = open_device(artifact.target, device, options)
        assert isinstance(opened, EmulatedCardDevice)
        self.device = opened
        self.session = Session(artifact, opened=opened)

    @property
    def card(self):
        return self.device._emulation.card

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.session.close()


def checked(results, expected):
    """All frames in order, with the answers that the steps before them make."""
    assert [one.frame for one in results] == list(range(len(results)))
    for one in results:
        if one.outputs is not None:
            same(one.outputs, expected[0][one.frame])


@pytest.mark.parametrize("off", [False, True])
def test_states_survive_any_rest_of_the_card(artifact, expected, off):
    with Opened(artifact) as run:
        for number in range(STEPS):
            same(run.session.step(frame(number)), expected[0][number])
            run.session.rest(off=off)
            assert run.session.rests == ("off" if off else "idle")
            run.device.clock.sleep(0.05)
            assert run.card.watts() == pytest.approx(0.0 if off else 14.0, abs=0.1)
            if number == 2:
                run.session.rest(off=True)  # one that is idle
        took = run.session.wake()
        assert (0.1 < took < 1.0) if off else (0.0001 < took < 0.001)
        assert run.session.wake() == 0
        same(run.session.states(), expected[1])


@pytest.mark.parametrize("fault", ["bulk-error@1", "link-drop@1us+20ms", "card-reset@1us"])
def test_a_card_that_fails_while_it_rests_is_awake_when_it_works_again(artifact, expected, fault):
    with Opened(artifact) as run:
        same(run.session.step(frame(0)), expected[0][0])
        run.session.rest()
        run.device.inject(fault)
        run.device.clock.sleep(0.001)
        with pytest.raises(DeviceFailed):
            run.session.step(frame(1))
        kept = run.session.recover().states
        assert kept == (fault != "card-reset@1us")
        assert run.session.rests == "awake"
        assert run.card.blocks.smu.clock_mhz("GFXCLK") == 2498
        if kept:
            same(run.session.step(frame(1)), expected[0][1])


@pytest.mark.parametrize("off", [False, True])
def test_a_stream_whose_card_rests_between_frames_keeps_its_states(artifact, expected, off):
    with Opened(artifact) as run:
        stream = Stream(run.session, rate=0.5, idle=0.5, idle_off=off)
        results = list(stream.run([frame(number) for number in range(STEPS)]))
        checked(results, expected)
        assert {one.status for one in results} == {"ok"}
        assert {one.epoch for one in results} == {0}
        assert stream.summary().lost == 0
        assert [event.kind for event in stream.events].count("idle") == STEPS
        woken = [event.recovered for event in stream.events[1:] if event.recovered is not None]
        assert len(woken) == STEPS - 1
        assert all((0.2 < took < 0.5) if off else (took < 0.001) for took in woken)


def test_a_stream_slows_down_with_heat_and_comes_back(artifact):
    with Opened(artifact) as run:
        run.device.inject("heat@1s+8s=62,heat@1s+5s=5,heat@4s+2s=8")
        stream = Stream(run.session, rate=20)
        results = list(stream.run([frame(0)] * 240))
        assert stream.summary().lost == 0
        assert stream.recoveries == []
        assert [event.kind for event in stream.events] == ["running", "hot", "hot", "cool", "cool"]
        answered = [sum(one.outputs is not None for one in results[at : at + 20]) for at in range(0, 240, 20)]
        assert answered[0] == 20
        assert answered[2:4] == [10, 10]
        assert answered[5] == 0
        assert answered[-1] == 20
        assert "memory" in stream.events[1].cause


def test_a_card_that_is_too_hot_at_once_is_not_an_error_of_the_stream(artifact):
    """Before, its next frame would have failed with `TooHot`."""
    with Opened(artifact) as run:
        run.device.inject("heat@1500ms+3s")
        stream = Stream(run.session, rate=20)
        results = list(stream.run([frame(0)] * 140))
        assert stream.recoveries == []
        assert {one.status for one in results} == {"ok", "dropped"}
        assert sum(one.status == "dropped" for one in results) == pytest.approx(60, abs=25)


def test_a_cap_stays_over_every_recovery_and_ends_with_the_session(artifact, expected):
    with Opened(artifact, OpenOptions(power_cap=100)) as run:
        for number, fault in enumerate((None, "bulk-error@2", "card-reset@1us", "supply-sag@1us+50ms", None)):
            if fault is not None:
                run.device.inject(fault)
                run.device.clock.sleep(0.01)
            if number == 4:
                run.session.rest(off=True)
            run.session.run({**frame(0), **zeros(run.session)}, retries=3)
            assert run.card.power.limit == 100, fault
        card = run.card
    assert card.power.limit == 355


def zeros(session):
    return {
        name: np.zeros(session.inputs[name].shape, session.inputs[name].dtype)
        for _, name in session.artifact.states
    }


def test_a_cap_that_the_card_does_not_take_reaches_the_user(artifact):
    with pytest.raises(UsageError, match="89 W to 355 W"):
        Session(artifact, DEVICE, OpenOptions(power_cap=20))


def test_the_power_curve(capsys):
    """`towline bench power`: idle < ready < work; a cap holds, and costs time."""
    assert main(["bench", "power", "--target", "amd-gfx1200", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["result"]["cards"]
    assert found["off_watts"] == 0 < found["idle_watts"] < found["ready_watts"]
    assert found["closed_watts"] == found["idle_watts"]
    assert found["wake_ms"]["idle"] < 1 < 100 < found["wake_ms"]["off"] < 1000
    caps = found["caps"]
    assert [one["cap_watts"] for one in caps] == [160, 120, 100, 80, 40]
    assert all(found["ready_watts"] < one["watts"] <= one["cap_watts"] for one in caps)
    times = [one["kernel_us"] for one in caps]
    assert times == sorted(times)
    assert times[-1] > 1.5 * times[0]
