"""Readings in a stream's gaps: no frame waits for one; supply, callbacks, what is published of a stream."""

import dataclasses
import math
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from sdk import compiler
from sdk.errors import DeviceFailed, UsageError
from sdk.session import Session
from sdk.stream import Stream
from sdk.stream.telemetry import INTERVAL, RISEN, SPARE, SupplyWatch
from sdk.stream.timeline import Timeline
from sdk.target import Measures
from sdk.telemetry.metrics import LOW_VOLTS as LOW
from sdk.telemetry.metrics import Identity, Metrics, Supply, Traffic
from sdk.telemetry.places import NameTaken
from sdk.telemetry.reader import Reader, published
from tests.chrome_reader import read
from tests.plain_graphs import PlainBuilder
from tests.stream_device import NAME, Script, StreamDevice, register
from tests.unit.test_states import renamed

COST = 0.004
"""Seconds of a reading."""


@pytest.fixture(scope="module", autouse=True)
def registered(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TOWLINE_DEVICE", raising=False)
        register(patch, tmp_path_factory.mktemp("site"))
        yield


@pytest.fixture(autouse=True)
def runtime(monkeypatch):
    found = Path(tempfile.mkdtemp(prefix="tl-"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(found))
    yield found
    shutil.rmtree(found)


@pytest.fixture(scope="module")
def plain(registered):
    """y = 2 x + 1, [1, 4]."""
    b = PlainBuilder(3)
    x = b.input((1, 4))
    y = b.map(lambda v: v * 2.0 + 1.0, x)
    return compiler.compile(renamed(b.graph(y), {x: "x", y: "y"}), NAME)


class MeasuredDevice(StreamDevice):
    """It `Measures`, too: a reading takes COST, and fails where the device is away.

    Attributes:
        readings: when each began, and the frames in flight then.
        supplies: of the readings, in order; the last one goes on.
    """

    def __init__(self, script=None):
        super().__init__(script)
        self.readings = []
        self.supplies = [None]
        self.cost = COST
        self.last_reading = None
        self.traffic = Traffic(1, 10, 100, 0)

    def reading(self):
        self.readings.append((self.clock.now(), len(self.session.flying)))
        if self.away() is not None:
            self.clock.sleep(1e-6)
            raise DeviceFailed("no reading: the cable was pulled")
        self.clock.sleep(self.cost)
        supply = self.supplies.pop(0) if len(self.supplies) > 1 else self.supplies[0]
        number = len(self.readings)
        self.last_reading = Metrics(time=self.clock.now(), watts=10 + number, supply=supply)
        return self.last_reading

    def identity(self):
        return Identity("usb-3-2", "S1", "gfx0")


def opened(artifact, **script):
    device = MeasuredDevice(Script(**script))
    session = Session(artifact, opened=device)
    device.traffic = Traffic(8, 70, 600, 5)
    return session, device


def frames(count):
    return [{"x": np.full((1, 4), (number + 1) / 64, np.float32)} for number in range(count)]


def times(results):
    start = results[0].times.due
    return [
        tuple(None if at is None else round(at - start, 12) for at in dataclasses.astuple(one.times))
        for one in results
    ]


class Camera:
    """Frames that come at 20 a second, each for as long as the camera takes."""

    live = True

    def __init__(self, clock, count):
        self.clock, self.count, self.waits = clock, count, []

    def __iter__(self):
        start = self.clock.now()
        for number, frame in enumerate(frames(self.count)):
            self.waits.append(self.clock.now())
            self.clock.sleep(max(0.0, start + number / 20 - self.clock.now()))
            yield frame


# -- gaps ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("rate", [1, 3, 20, 40])
@pytest.mark.parametrize("compute", [0.0004, 0.01, 0.016])
def test_latencies_are_the_same_with_and_without_readings(plain, rate, compute):
    found = []
    for telemetry in (None, 0.03, INTERVAL):
        session, device = opened(plain, compute=compute)
        stream = Stream(session, rate=rate, deadline=0.045, telemetry=telemetry)
        found.append(times(list(stream.run(frames(60)))))
        assert all(flying == 0 for _, flying in device.readings)
        if telemetry is not None:
            assert stream.summary().readings == len(device.readings) - 1 >= 59 / rate / (telemetry + 1 / rate)
            assert stream.summary().longest_reading == pytest.approx(COST)
    assert found[0] == found[1] == found[2]


def test_readings_come_at_their_interval(plain):
    session, device = opened(plain)
    list(Stream(session, rate=1, telemetry=0.25).run(frames(5)))
    begun = [moment for moment, _ in device.readings]
    assert np.diff(begun[1:]) == pytest.approx([0.25] * (len(begun) - 2), abs=0.02)


def test_a_gap_that_is_too_short_is_left_alone(plain):
    """Of 25 ms a frame takes 18: less than twice a reading is left."""
    assert SPARE * COST > 0.025 - 0.018
    session, device = opened(plain, compute=0.018)
    results = list(Stream(session, rate=40, telemetry=0.1).run(frames(60)))
    assert len(device.readings) == 2  # before the first frame
    assert {round(result.latency, 9) for result in results} == {0.018}


def test_a_reading_that_took_longer_needs_a_longer_gap(plain):
    session, device = opened(plain)

    def source():
        for number, one in enumerate(frames(60)):
            device.cost = 0.021 if number == 20 else COST
            yield one

    list(Stream(session, rate=20, telemetry=0.04).run(source()))
    after = [moment for moment, _ in device.readings if moment > 1.1]
    assert 15 < len(device.readings) - len(after) < 30
    assert after == []  # 40 ms of 50 are not more than twice 21


def test_without_a_rate_there_is_no_gap(plain):
    session, device = opened(plain)
    list(Stream(session, telemetry=0.01).run(frames(50)))
    assert len(device.readings) == 2


def test_a_camera_is_waited_for_behind_a_reading(plain):
    session, device = opened(plain)
    camera = Camera(device.clock, 40)
    results = list(Stream(session, telemetry=0.2).run(camera))
    assert {result.status for result in results} == {"ok"}
    assert all(flying == 0 for _, flying in device.readings)
    assert len(device.readings) == pytest.approx(2 + 2 / 0.2, abs=2)
    behind = [moment + COST for moment, _ in device.readings[2:]]
    assert all(min(abs(moment - wait) for wait in camera.waits) < 1e-9 for moment in behind)


def test_a_reading_that_fails_is_a_failure_of_the_device(plain):
    """It is noticed between frames, and is over before the next one is due."""
    session, device = opened(plain, away=[(0.54, 0.555)], warm=0.005)
    stream = Stream(session, rate=20, deadline=0.045, telemetry=0.005)
    results = list(stream.run(frames(20)))
    assert {result.status for result in results} == {"ok"}
    assert [event.kind for event in stream.events] == ["running", "recovering", "running"]
    assert "no reading" in stream.recoveries[0].cause
    assert len(device.readings) > 30


@pytest.mark.parametrize("telemetry", [0, -1.0, math.inf])
def test_an_interval_that_is_none(plain, telemetry):
    with pytest.raises(UsageError):
        Stream(opened(plain)[0], telemetry=telemetry)


# -- who gets them ------------------------------------------------------------------------------------------


def test_a_governor_gets_every_reading(plain):
    session, device = opened(plain)
    taken = []
    stream = Stream(session, rate=20, telemetry=0.1, readings=taken.append)
    assert stream.reading is None
    list(stream.run(frames(20)))
    assert [one.watts for one in taken] == [10 + number for number in range(2, len(device.readings) + 1)]
    assert stream.reading is taken[-1]
    assert taken[-1].frames in (19, 20)
    assert taken[-1].traffic == Traffic(7, 60, 500, 5)


def test_what_the_device_measures_by_itself_is_taken_too(plain):
    """As a card does before it takes work, where there is no gap."""
    session, device = opened(plain)
    taken = []

    def source():
        for number, one in enumerate(frames(30)):
            if number % 10 == 5:
                device.last_reading = Metrics(time=device.clock.now(), watts=100 + number)
            yield one

    list(Stream(session, depth=1, telemetry=None, readings=taken.append).run(source()))
    assert [one.watts for one in taken] == [105, 115, 125]


def test_figures_of_a_session(plain):
    session, device = opened(plain)
    assert isinstance(device, Measures)
    assert session.last_metrics.watts is None
    assert session.last_metrics.traffic == Traffic(7, 60, 500, 5)
    for one in frames(3):
        session.run(one)
    found = session.metrics()
    assert (found.watts, found.frames, found.frames_per_second) == (11, 3, pytest.approx(100))
    assert session.last_metrics.watts == 11
    assert session.identify().serial == "S1"
    session.close()
    with pytest.raises(UsageError):
        session.metrics()


def test_submitted_inferences_count_once(plain):
    for artifact_opened in (opened(plain)[0], Session(plain, device="emulated")):
        tickets = [artifact_opened.submit(one) for one in frames(4)]
        assert artifact_opened.last_metrics.frames == 0
        for ticket in tickets:
            artifact_opened.collect(ticket)
        artifact_opened.observe(frames(1)[0])
        assert artifact_opened.last_metrics.frames == 4


def slowly(source):
    for frame in source:
        time.sleep(0.005)
        yield frame


def test_a_device_without_figures_has_frames():
    b = PlainBuilder(3)
    x = b.input((1, 4))
    y = b.map(lambda v: v * 2.0 + 1.0, x)
    with Session(compiler.compile(renamed(b.graph(y), {x: "x", y: "y"}), "c")) as session:
        session.run(frames(1)[0])
        session.run(frames(1)[0])
        found = session.metrics()
        assert (found.frames, found.watts, found.link, found.traffic, found.time) == (
            2,
            None,
            None,
            None,
            None,
        )
        assert found.frames_per_second > 0
        assert session.identify() is None
        stream = Stream(session, telemetry=0.01)
        assert {result.status for result in stream.run(slowly(frames(10)))} == {"ok"}
        assert stream.summary().readings == 0


# -- supply -------------------------------------------------------------------------------------------------


def test_supply_is_judged_with_hysteresis():
    watch = SupplyWatch()
    volts = [12.0, LOW + 0.01, LOW - 0.01, LOW + 0.01, RISEN - 0.01, 9.0, RISEN, 12.0]
    found = [watch.judge(Supply(each, 5.0)) for each in volts]
    assert [len(each) for each in found] == [0, 0, 1, 0, 0, 0, 1, 0]
    assert watch.judge(None) == []
    assert [len(watch.judge(Supply(12.0, 5.0, fault))) for fault in (False, True, True, False, False)] == [
        0,
        1,
        0,
        1,
        0,
    ]
    assert len(watch.judge(Supply(9.0, 5.0, True))) == 2


def test_a_stream_reports_its_supply(plain, tmp_path):
    session, device = opened(plain)
    well = Supply(12.0, 4.0)
    device.supplies = [well, well, well, Supply(10.5, 9.0), Supply(10.4, 9.0), Supply(11.9, 4.0, True), well]
    seen = []
    stream = Stream(session, rate=20, telemetry=0.1, watch=seen.append)
    timeline = Timeline("test")
    for result in stream.run(frames(30)):
        timeline.add(result)
    for event in stream.events:
        timeline.changed(event)
    assert seen == stream.events
    assert [event.kind for event in seen] == ["running", "supply", "supply", "supply", "supply"]
    assert stream.state == "running"
    sag, fault, rise, over = seen[1:]
    assert "10.50 V" in sag.cause
    assert ("fault" in fault.cause, "11.90 V" in rise.cause, "fault" in over.cause) == (True, True, True)
    assert 0 < sag.time < fault.time == rise.time < over.time
    assert stream.summary().to_json()["events"][1]["kind"] == "supply"
    timeline.write(tmp_path / "stream.json")
    row = read(tmp_path / "stream.json")["test"]["state"]
    assert [name for _, name in row.instants] == ["supply"] * 4
    assert [one.name for one in row.slices] == ["running"]


# -- publishing ---------------------------------------------------------------------------------------------


def test_a_stream_publishes_while_it_runs(plain):
    session, _ = opened(plain)
    stream = Stream(session, rate=20, telemetry=0.1, publish=True)
    assert published() == []
    running = stream.run(frames(30))
    next(running)
    (seen,) = published()
    assert seen.about["chip"] == "gfx0"
    assert seen.about["target"] == NAME
    with Reader(seen.path) as reader:
        left = len(list(running))
        lines = []
        while reader.ended is None:
            lines.append(reader.line(5))
    assert left == 29
    last = lines[-1]
    assert last["stream"]["frames"] == {"ok": 30, "late": 0, "fallback": 0, "dropped": 0}
    assert last["stream"]["state"] == "running"
    assert last["stream"]["rate"] == 20
    assert last["metrics"]["frames"] == 30
    assert last["metrics"]["watts"] > 10
    assert last["metrics"]["traffic"]["errors"] == 5
    assert published() == []


def test_a_change_of_state_is_published_at_once(plain, monkeypatch):
    monkeypatch.setattr("sdk.telemetry.publication.INTERVAL", 1e6)
    session, device = opened(plain)
    stream = Stream(session, rate=20, telemetry=0.1, publish="mine")
    running = stream.run(frames(40))
    next(running)
    (seen,) = published()
    assert seen.about["name"] == "mine"
    with Reader(seen.path) as reader:
        assert reader.line(5)["stream"]["event"]["cause"] == "the first result"
        device.script.away.append((device.clock.now(), device.clock.now() + 0.2))
        while len(stream.events) < 3:
            next(running)
        while (line := reader.line(5))["stream"]["event"]["recovered_ms"] is None:
            assert line["stream"]["state"] == "recovering"
        stream.close()


def test_a_stream_that_is_closed_or_fails_publishes_no_longer(plain):
    session, device = opened(plain)
    stream = Stream(session, rate=20, publish=True)
    running = stream.run(frames(40))
    next(running)
    assert len(published()) == 1
    stream.close()
    assert published() == []
    device.script.away.append((device.clock.now(), 1e9))
    stream = Stream(session, rate=20, publish=True, patience=0.1)
    with pytest.raises(DeviceFailed):
        list(stream.run(frames(40)))
    assert published() == []


def test_a_name_that_is_taken_is_refused_and_frees_the_stream(plain):
    session, _ = opened(plain)
    other = Stream(opened(plain)[0], rate=20, publish="mine")
    running = other.run(frames(4))
    next(running)
    stream = Stream(session, rate=20, publish="mine")
    refused = stream.run(frames(4))
    with pytest.raises(NameTaken):
        next(refused)
    other.close()
    assert len(list(stream.run(frames(4)))) == 4


def test_latencies_are_the_same_while_published_and_read(plain):
    found = []
    for publish in (False, True):
        session, _ = opened(plain)
        stream = Stream(session, rate=20, telemetry=0.05, publish=publish)
        running = stream.run(frames(60))
        results = [next(running)]
        readers = [Reader(one.path) for one in published() for _ in range(3)]
        assert len(readers) == (3 if publish else 0)
        results += running
        found.append(times(results))
        for reader in readers:
            reader.close()
    assert found[0] == found[1]


def test_a_session_publishes(plain):
    device = MeasuredDevice(Script())
    with Session(plain, opened=device, publish="alone") as session:
        (seen,) = published()
        with Reader(seen.path) as reader:
            reader.line(5)
            session.metrics()
            session.run(frames(1)[0])
            line = reader.line(5)
            assert (line["metrics"]["watts"], line["metrics"]["frames"], line["stream"]) == (11, 1, None)
            session.close()
            while reader.ended is None:
                reader.line(5)
    assert published() == []
    assert len(device.readings) == 1  # the one that was asked for


def test_a_session_that_cannot_publish_is_closed(plain, runtime):
    (runtime / "towline").mkdir(mode=0o700)
    (runtime / "towline" / "alone.sock").touch()
    device = MeasuredDevice(Script())
    closed = []
    device.load = lambda program: closed.append(session := StreamDevice.load(device, program)) or session
    with pytest.raises(Exception, match="socket"):
        Session(plain, opened=device, publish="alone")
