"""Streams and the heat and power of their devices: the pace, the rest, and that no frame is lost over it."""

import json
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdk import compiler
from sdk.errors import DeviceFailed, UsageError
from sdk.session import Session
from sdk.stream import Limits, Stream
from sdk.stream.pace import CAR, HYSTERESIS, MARGIN, Pace
from sdk.stream.timeline import Timeline
from sdk.telemetry.metrics import Identity, Metrics, Traffic
from tests.plain_graphs import PlainBuilder
from tests.stream_device import NAME, Script, StreamDevice, register
from tests.unit.test_states import recurrent_network, renamed

# -- the pace -----------------------------------------------------------------------------------------------


def heat(gpu, memory):
    return Metrics(hotspot_celsius=gpu, memory_celsius=memory)


def shares(temperatures, memory=None):
    pace = Pace()
    found = []
    for celsius in temperatures:
        before = pace.share
        changed = pace.take(heat(celsius, memory))
        assert changed == (pace.share != before)
        found.append(pace.share)
    return found


def test_the_rate_is_lowered_before_it_stops_and_comes_back_five_degrees_below():
    assert shares([60, 94, 95, 99, 100, 120]) == [1, 1, 0.5, 0.5, 0, 0]
    assert shares([100, 99, 96, 95, 94, 91, 90, 60]) == [0, 0, 0, 0.5, 0.5, 0.5, 1, 1]
    assert shares([95, 91, 94, 90, 94]) == [0.5, 0.5, 0.5, 1, 1]
    assert shares([100, 50]) == [0, 1]


def test_the_sensor_that_is_closest_to_its_limit_decides():
    pace = Pace()
    for reading, share in (
        (heat(94, 90), 0.5),
        (heat(94, 95), 0),
        (heat(94, None), 0.5),
        (heat(None, None), 0.5),
        (Metrics(), 0.5),
        (heat(None, 60), 1),
    ):
        pace.take(reading)
        assert pace.share == share, reading
    pace.take(heat(94, 90))
    assert "memory 90" in pace.cause


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(20, 130), min_size=1, max_size=40))
def test_no_reading_at_a_limit_is_answered_with_work(temperatures):
    for celsius, before, share in zip(
        temperatures, [1.0, *shares(temperatures)], shares(temperatures), strict=False
    ):
        if celsius >= CAR.gpu:
            assert share == 0
        elif celsius >= CAR.gpu - MARGIN:
            assert share <= 0.5
        elif celsius < CAR.gpu - MARGIN - HYSTERESIS:
            assert share == 1
        assert share <= before or celsius <= CAR.gpu - HYSTERESIS


def test_half_of_the_rate_is_every_other_frame():
    pace = Pace()
    assert [pace.admits() for _ in range(3)] == [True] * 3
    pace.take(heat(97, None))
    assert sum(pace.admits() for _ in range(100)) in (49, 50, 51)
    pace.take(heat(101, None))
    assert not any(pace.admits() for _ in range(10))


# -- streams ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def registered(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TOWLINE_DEVICE", raising=False)
        register(patch, tmp_path_factory.mktemp("site"))
        yield


@pytest.fixture(scope="module")
def plain(registered):
    """y = 2 x + 1, [1, 4]."""
    b = PlainBuilder(3)
    x = b.input((1, 4))
    y = b.map(lambda v: v * 2.0 + 1.0, x)
    return compiler.compile(renamed(b.graph(y), {x: "x", y: "y"}), NAME)


@pytest.fixture(scope="module")
def stateful(registered):
    return compiler.compile(recurrent_network(), NAME)


class Warm(StreamDevice):
    """It has sensors, and can rest.

    Attributes:
        heat: degrees Celsius, by the time from which on; the first is there from the beginning.
        looks: times of readings.
        work: the time of every inference.
        rested: times at which it began to rest.
    """

    WAKE = 0.002

    def __init__(self, script=None, clock=None, heat=((0.0, 50.0),)):
        super().__init__(script, clock)
        self.heat = list(heat)
        self.looks, self.rested, self.state = [], [], "awake"
        self.broken = False

    last_reading = None
    traffic = Traffic()

    def identity(self):
        return Identity("", "", "")

    def reading(self):
        now = self.clock.now()
        assert not self.session.flying, "something is in flight"
        self.looks.append(now)
        self.clock.sleep(0.0003)
        if self.broken:
            self.broken = False
            raise DeviceFailed("the transfer of the sensors failed")
        celsius = [celsius for begins, celsius in self.heat if begins <= now][-1]
        self.last_reading = Metrics(self.clock.now(), 10.0, hotspot_celsius=celsius)
        return self.last_reading

    @property
    def rests(self):
        return self.state

    def rest(self, *, off=False):
        assert not self.session.flying
        self.rested.append(self.clock.now())
        self.state = "off" if off else "idle"

    def wake(self):
        if self.state == "off":
            raise DeviceFailed("it is off")
        if self.state == "idle":
            self.clock.sleep(self.WAKE)
        self.state = "awake"

    def recover(self, seconds):
        found = super().recover(seconds)
        self.state = "awake"
        return found


def opened(artifact, heat=((0.0, 50.0),), **script):
    device = Warm(Script(**script), heat=heat)
    return Session(artifact, opened=device), device


def frames(count):
    return [{"x": np.full((1, 4), (number + 1) / 64, np.float32)} for number in range(count)]


def ran(stream, given):
    results = list(stream.run(given))
    assert [one.frame for one in results] == list(range(len(results)))
    for one in results:
        wanted = np.full((1, 4), (one.frame + 1) / 32 + 1)
        assert one.outputs is None or np.array_equal(one.outputs["y"], wanted)
    assert stream.summary().lost == 0
    assert sum(stream.summary().frames.values()) == len(results)
    return results


def kinds(stream):
    return [event.kind for event in stream.events]


HEAT = ((0.0, 50.0), (2.0, 97.0), (4.0, 101.0), (6.0, 93.0), (8.0, 60.0))


def test_a_hot_device_gets_half_of_the_frames_then_none_then_all_again(plain):
    session, _ = opened(plain, HEAT)
    stream = Stream(session, rate=20)
    results = ran(stream, frames(200))
    counted = [sum(one.status == "ok" for one in results[at : at + 20]) for at in range(10, 200, 40)]
    assert counted == [20, 10, 0, 10, 20]
    assert kinds(stream) == ["running", "hot", "hot", "cool", "cool"]
    causes = [event.cause for event in stream.events[1:]]
    assert causes[0] == "50% of the rate: GPU 97 degrees Celsius, the limit is 100"
    assert causes[1].startswith("paused: GPU 101")
    assert causes[3].startswith("100% of the rate")
    dropped = [one for one in results if one.status == "dropped"]
    assert all(one.cause.startswith("the device is hot: GPU ") for one in dropped)
    assert stream.recoveries == []


def test_readings_between_frames_delay_none(plain):
    """The latency of every frame is that of a device without sensors, to the nanosecond."""
    session, device = opened(plain)
    with_readings = [one.latency for one in ran(Stream(session, rate=20), frames(100))]
    assert len(device.looks) in (10, 11, 12)
    assert min(np.diff(device.looks[1:])) >= 0.499
    silent = StreamDevice(Script())
    without = [one.latency for one in ran(Stream(Session(plain, opened=silent), rate=20), frames(100))]
    assert with_readings == pytest.approx(without, abs=1e-9)


def test_a_device_without_pauses_is_looked_at_every_other_second(plain):
    """Between frames are 0.15 ms, in which a reading has no room."""
    session, device = opened(plain)
    results = ran(Stream(session, rate=1 / 0.01015), frames(450))
    assert {one.status for one in results} == {"ok"}
    assert np.diff(device.looks[1:]) == pytest.approx([2, 2], abs=0.05)


def test_the_fallback_answers_what_heat_does_not_allow(plain):
    session, device = opened(plain, HEAT)
    spare = Session(plain, opened=StreamDevice(Script(), device.clock))
    results = ran(Stream(session, rate=20, deadline=0.045, fallback=spare), frames(200))
    assert {one.status for one in results} == {"ok", "fallback"}
    assert sum(one.status == "fallback" for one in results) == pytest.approx(80, abs=2)
    assert all(one.cause for one in results if one.status == "fallback")


@pytest.mark.slow
def test_without_a_rate_frames_wait_and_the_device_has_pauses(plain):
    session, _ = opened(plain, ((0.0, 50.0), (1.0, 97.0), (3.0, 101.0), (5.0, 60.0)))
    results = ran(Stream(session, depth=1), frames(600))
    assert {one.status for one in results} == {"ok"}
    done = [one.times.done for one in results]
    within = [sum(start + 0.05 <= at < start + 0.95 for at in done) for start in (2.0, 4.0, 7.0)]
    assert 0.4 < within[0] / within[2] < 0.6
    assert within[1] == 0


def test_a_device_that_stays_hot_ends_a_stream_without_a_rate(plain):
    session, device = opened(plain, ((0.0, 50.0), (1.0, 101.0)))
    stream = Stream(session, patience=5)
    with pytest.raises(DeviceFailed, match="too hot for 5 s: GPU 101") as caught:
        ran(stream, frames(1000))
    assert "frame" in caught.value.where
    assert stream.summary().lost == 0
    assert 5 < device.clock.now() < 10


def test_other_limits(plain):
    session, _ = opened(plain, ((0.0, 70.0),))
    stream = Stream(session, rate=20, limits=Limits(gpu=70.0))
    assert {one.status for one in ran(stream, frames(60))[40:]} == {"dropped"}


def test_sensors_that_fail_are_a_failure_like_others(plain):
    session, device = opened(plain)
    device.broken = True
    stream = Stream(session, rate=20)
    assert {one.status for one in ran(stream, frames(60))} == {"ok"}
    assert len(stream.recoveries) == 1


# -- rest ---------------------------------------------------------------------------------------------------


def test_an_idle_device_rests_and_the_next_frame_wakes_it(plain):
    session, device = opened(plain)
    stream = Stream(session, rate=0.2, idle=2.0)
    results = ran(stream, frames(3))
    assert kinds(stream) == ["running", "idle", "awake", "idle", "awake", "idle"]
    assert [one.status for one in results] == ["ok"] * 3
    awake = [event for event in stream.events if event.kind == "awake"]
    assert [event.recovered for event in awake] == [pytest.approx(Warm.WAKE)] * 2
    assert awake[0].to_json()["recovered_ms"] == pytest.approx(2.0)
    assert results[1].latency == pytest.approx(results[0].latency + Warm.WAKE)
    assert device.rested[0] == pytest.approx(2.02, abs=0.02)


def test_what_happens_to_the_device_is_in_the_timeline(plain, tmp_path):
    session, _ = opened(plain, HEAT)
    timeline = Timeline("test")
    stream = Stream(session, rate=20, watch=timeline.changed)
    for result in stream.run(frames(200)):
        timeline.add(result)
    timeline.write(tmp_path / "t.json")
    written = json.loads((tmp_path / "t.json").read_text())
    events = written if isinstance(written, list) else written["traceEvents"]
    assert [one["name"] for one in events if one.get("cat") == "device"] == ["hot", "hot", "cool", "cool"]
    assert [one["name"] for one in events if one.get("cat") == "state"] == ["running"]


def test_a_frame_that_wakes_the_device_may_be_late_but_is_answered(plain):
    session, device = opened(plain)
    device.WAKE = 0.1
    results = ran(Stream(session, rate=0.2, idle=2.0, deadline=0.05), frames(3))
    assert [one.status for one in results] == ["ok", "late", "late"]


def test_a_device_without_power_comes_back_with_the_next_frame(plain):
    session, device = opened(plain, warm=0.3)
    device.cold = True
    stream = Stream(session, rate=0.2, idle=2.0, idle_off=True)
    results = ran(stream, frames(3))
    assert [one.status for one in results] == ["ok"] * 3
    assert kinds(stream) == ["running", *["idle", "recovering", "running"] * 2, "idle"]
    assert "the power of its slot is off" in stream.events[1].cause
    assert [one.cause for one in stream.recoveries] == ["its power was switched off because it was idle"] * 2
    assert results[1].latency > 0.3


class Wall:
    """The wall's time; a stream of such a device does not wait for it."""

    def now(self):
        return time.monotonic()

    def sleep(self, seconds):
        time.sleep(seconds)


def on_the_wall(artifact, **script):
    device = Warm(Script(compute=0.001, **script), Wall())
    return Session(artifact, opened=device)


@pytest.mark.slow
def test_the_fallback_answers_while_a_device_without_power_comes_back(plain):
    session = on_the_wall(plain, warm=1.0)
    spare = Session(plain, opened=StreamDevice(Script(compute=0.001), Wall()))
    stream = Stream(session, rate=4, idle=0.05, idle_off=True, deadline=0.2, fallback=spare)
    stream._virtual = False
    assert ran(stream, frames(2))[1].status == "fallback"


@pytest.mark.slow
def test_a_device_rests_while_a_camera_is_silent(plain):
    """A live source is waited for in a thread, on a device whose time is the wall's."""

    class Camera:
        live = True

        def __iter__(self):
            for number, frame in enumerate(frames(3)):
                if number == 1:
                    time.sleep(0.4)
                yield frame

    stream = Stream(on_the_wall(plain), idle=0.1)
    stream._virtual = False
    results = ran(stream, Camera())
    assert [one.status for one in results] == ["ok"] * 3
    assert kinds(stream)[:3] == ["running", "idle", "awake"]


def test_a_device_that_cannot_rest_is_not_asked_to(plain):
    session = Session(plain, opened=StreamDevice(Script()))
    with pytest.raises(UsageError, match="cannot rest"):
        Stream(session, idle=1.0)
    with pytest.raises(UsageError, match="cannot rest"):
        session.rest()
    assert session.rests is None
    assert session.wake() == 0
    assert session.metrics() == Metrics(frames=0)


@pytest.mark.parametrize("wrong", [{"idle": 0.0}, {"idle": -1.0}, {"idle_off": True}])
def test_bad_arguments(plain, wrong):
    session, _ = opened(plain)
    with pytest.raises(UsageError):
        Stream(session, **wrong)


def test_states_survive_a_device_that_was_off(stateful):
    """The session's part: an inference on a device without power brings it back first."""
    session, device = opened(stateful)
    names = [name for name in session.inputs if name not in {given for _, given in stateful.states}]
    inputs = {name: np.zeros(session.inputs[name].shape, np.float32) for name in names}
    session.step(inputs)
    before = session.states()
    session.rest(off=True)
    session.step(inputs)
    assert device.recoveries == 1
    assert session.rests == "awake"
    assert any((before[name] != after).any() for name, after in session.states().items())
