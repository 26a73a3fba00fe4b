"""Streams: every frame ends once, in order, with its own answer; failures are survived, states followed."""

import threading
import time

import numpy as np
import pytest

from sdk import compiler, reference
from sdk.errors import DeviceFailed, DeviceMissing, InvalidInput, UsageError
from sdk.graph import MatMul
from sdk.samples import Sample
from sdk.session import Session
from sdk.stream import Stream
from sdk.target import Recovery
from tests.plain_graphs import PlainBuilder
from tests.stream_device import NAME, ManualClock, Script, StreamDevice, register
from tests.unit.test_states import recurrent_network, renamed


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
    """`recurrent_network`: x, and the states h and n, the number of steps."""
    return compiler.compile(recurrent_network(), NAME)


def opened(artifact, **script):
    device = StreamDevice(Script(**script))
    return Session(artifact, opened=device), device


def frames(count, first=0):
    return [{"x": np.full((1, 4), (number + 1) / 64, np.float32)} for number in range(first, count)]


def answers_are_their_own(results):
    return all(
        result.outputs is None
        or np.array_equal(result.outputs["y"], np.full((1, 4), (result.frame + 1) / 32 + 1))
        for result in results
    )


def statuses(results):
    return [result.status for result in results]


def kinds(stream):
    return [event.kind for event in stream.events]


class Replay:
    """Computes every inference again by the reference, from the states that it says it descends from."""

    def __init__(self, artifact):
        self.artifact = artifact
        self.zeros = {name: np.zeros_like(array) for name, array in Session(artifact).states().items()}
        self.after = {}
        self.wrong = []
        self.last = {}

    def __call__(self, made):
        states = self.zeros if made.descends_from is None else self.after[made.by, made.descends_from]
        values = reference.run(self.artifact.graph, {**made.inputs, **states})
        if any(not np.array_equal(values[name], array) for name, array in made.outputs.items()):
            self.wrong.append(made.frame)
        self.after[made.by, made.frame] = {name: values[output] for output, name in self.artifact.states}


# -- without failures ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_results_come_in_order_and_are_their_own(plain, depth):
    session, device = opened(plain)
    stream = Stream(session, depth=depth)
    results = list(stream.run(frames(20)))
    assert [result.frame for result in results] == list(range(20))
    assert set(statuses(results)) == {"ok"}
    assert answers_are_their_own(results)
    assert kinds(stream) == ["running"]
    summary = stream.summary()
    assert summary.frames == {"ok": 20, "late": 0, "fallback": 0, "dropped": 0}
    assert (summary.lost, summary.missed, summary.pending) == (0, 0, 0)
    assert summary.rate == pytest.approx(100)
    assert device.clock.now() == pytest.approx(0.21)  # one to load it, then 20


def test_a_frame_is_due_at_its_time_and_answered_before_the_next(plain):
    session, _ = opened(plain)
    stream = Stream(session, rate=20, deadline=0.045)
    results = list(stream.run(frames(10)))
    due = [result.times.due - results[0].times.due for result in results]
    assert due == pytest.approx([number / 20 for number in range(10)])
    assert [result.latency for result in results] == pytest.approx([0.01] * 10)
    assert stream.summary().rate == pytest.approx(20)


def test_single_arrays_and_named_samples(plain):
    session, _ = opened(plain)
    given = [one["x"] for one in frames(2)] + [Sample("third", frames(3)[2])]
    results = list(Stream(session).run(given))
    assert answers_are_their_own(results)
    assert [result.name for result in results] == ["", "", "third"]


def test_a_rate_that_the_device_cannot_hold(plain):
    session, _ = opened(plain, compute=0.08)
    stream = Stream(session, rate=20, depth=2)
    results = list(stream.run(frames(100)))
    assert [result.frame for result in results] == list(range(100))
    assert answers_are_their_own(results)
    summary = stream.summary()
    assert summary.frames["dropped"] == pytest.approx(100 - 100 * 50 / 80, abs=3)
    assert summary.lost == 0
    assert summary.capacity == pytest.approx(12.5)
    assert "12.5" in summary.advice
    assert max(result.latency for result in results if result.outputs) <= 4 * 0.08
    assert Stream(session, rate=10).summary().advice is None


@pytest.mark.parametrize(("late", "status"), [("deliver", "late"), ("drop", "dropped")])
def test_late_answers(plain, late, status):
    session, device = opened(plain)
    stream = Stream(session, rate=20, deadline=0.045, late=late)

    def slow_at_five():
        for number, one in enumerate(frames(10)):
            device.script.compute = 0.048 if number == 5 else 0.01
            yield one

    results = list(stream.run(slow_at_five()))
    assert statuses(results) == ["ok"] * 5 + [status] + ["ok"] * 4
    assert (results[5].outputs is None) == (late == "drop")
    assert stream.summary().missed == 1


def test_a_dropped_late_step_has_advanced_the_states(stateful):
    session, device = opened(stateful)
    replay = Replay(stateful)

    def slow_at_two():
        for number, one in enumerate(frames(6)):
            device.script.compute = 0.048 if number == 2 else 0.01
            yield one

    stream = Stream(session, rate=20, deadline=0.045, late="drop", observe=replay)
    results = list(stream.run(slow_at_two()))
    assert [result.descends_from for result in results if result.outputs] == [None, 0, 2, 3, 4]
    assert replay.wrong == []
    assert session.states()["n"].tolist() == [6]


def test_a_host_that_slept_goes_on_from_now(plain):
    session, device = opened(plain)
    stream = Stream(session, rate=20, deadline=0.045)
    results = []
    for result in stream.run(frames(60)):
        results.append(result)
        if result.frame == 10:
            device.clock.sleep(2.01)  # SIGSTOP
    assert [result.frame for result in results] == list(range(60))
    assert answers_are_their_own(results)
    assert statuses(results[:11]) == ["ok"] * 11
    assert statuses(results[11:49]) == ["dropped"] * 38
    assert statuses(results[53:]) == ["ok"] * 7
    assert stream.summary().lost == 0


def test_a_live_source_is_not_waited_for_while_a_result_is_outstanding(plain):
    session, device = opened(plain)

    class Camera:
        live = True

        def __iter__(self):
            for one in frames(5):
                asked.append(len(device.session.flying))
                device.clock.sleep(0.033)
                yield one

    asked = []
    stream = Stream(session, rate=20, depth=4)
    results = list(stream.run(Camera()))
    assert asked == [0] * 5
    assert [result.latency for result in results] == pytest.approx([0.01] * 5)


def test_host_work_advances_the_clock(plain):
    session, _ = opened(plain)
    stream = Stream(session, rate=20, host_work=0.003)
    assert [result.latency for result in stream.run(frames(3))] == pytest.approx([0.013] * 3)
    assert stream.summary().to_json()["host_work"] == 0.003
    assert stream.summary().to_json()["clock"] == "virtual"


# -- failures -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["submit", "collect"])
@pytest.mark.parametrize("depth", [1, 3])
def test_a_failure_loses_nothing_and_advances_no_state_twice(stateful, where, depth):
    session, _ = opened(stateful, failures={7: where})
    replay = Replay(stateful)
    stream = Stream(session, depth=depth, observe=replay)
    results = list(stream.run(frames(20)))
    assert [result.frame for result in results] == list(range(20))
    assert set(statuses(results)) == {"ok"}
    assert session.states()["n"].tolist() == [20]
    assert replay.wrong == []
    assert {result.epoch for result in results} == {0}
    assert [result.descends_from for result in results] == [None, *range(19)]
    assert kinds(stream) == ["running", "recovering", "running"]
    (found,) = stream.recoveries
    assert (found.kind, found.states, found.attempts) == ("warm", True, 1)
    assert found.back == pytest.approx(0.04)
    assert found.first == pytest.approx(0.05)
    assert stream.events[-1].recovered == found.first


def test_lost_states_begin_again_from_zero(stateful):
    session, _ = opened(stateful, failures={7: "collect"}, keeps=False)
    replay = Replay(stateful)
    results = list(Stream(session, observe=replay).run(frames(12)))
    assert [result.epoch for result in results] == [0] * 7 + [1] * 5
    assert [result.descends_from for result in results] == [None, *range(6), None, *range(7, 11)]
    assert replay.wrong == []
    assert session.states()["n"].tolist() == [5]


def test_lost_states_begin_again_from_the_last_that_were_saved(stateful):
    session, _ = opened(stateful, failures={7: "collect", 9: "submit"}, keeps=False)
    replay = Replay(stateful)
    stream = Stream(session, depth=3, checkpoint_states=3, observe=replay)
    results = list(stream.run(frames(12)))
    # Saved behind frames 2 and 5. Frame 7 fails twice: by then no step has been made from what was restored.
    assert [result.epoch for result in results] == [0] * 7 + [1] * 5
    assert results[7].descends_from == 5
    assert replay.wrong == []
    assert stream.summary().lost == 0


def test_a_failure_while_the_network_is_loaded(plain):
    session, _ = opened(plain, away=[(0.0, 0.2)])
    stream = Stream(session, rate=20)
    results = list(stream.run(frames(5)))
    assert set(statuses(results)) == {"ok"}
    assert kinds(stream)[0] == "recovering"


@pytest.mark.parametrize("keeps", [True, False])
def test_a_cable_that_is_away_for_two_seconds(stateful, keeps):
    session, _ = opened(stateful, away=[(1.0, 3.0)], keeps=keeps)
    replay = Replay(stateful)
    stream = Stream(session, rate=20, deadline=0.045, observe=replay)
    results = list(stream.run(frames(100)))
    assert [result.frame for result in results] == list(range(100))
    assert replay.wrong == []
    summary = stream.summary()
    assert summary.lost == 0
    assert summary.missed == 0
    assert 35 <= summary.frames["dropped"] <= 41
    assert summary.frames["ok"] >= 57
    (found,) = stream.recoveries
    assert found.attempts > 1
    assert 2.0 <= found.first < 2.4
    assert found.states == keeps


def test_a_device_that_stays_away_ends_the_stream_behind_the_results(plain):
    session, _ = opened(plain, away=[(1.0, 1e9)])
    stream = Stream(session, rate=20, patience=2.0)
    results = []
    with pytest.raises(DeviceFailed) as caught:
        results.extend(stream.run(frames(1000)))  # keeps what came before the error
    assert caught.value.where == f"frame {statuses(results).index('dropped')}"
    assert stream.state == "gone"
    summary = stream.summary()
    assert summary.lost == summary.pending == 0
    assert [result.frame for result in results] == list(range(len(results)))


def test_a_device_that_fails_whenever_it_is_back_ends_the_stream(plain):
    class Always(dict):
        def pop(self, number, other):
            return "collect" if number > 2 else other

    session, device = opened(plain, failures=Always())
    results, stream = [], Stream(session, rate=20, patience=2.0)
    with pytest.raises(DeviceFailed):
        results.extend(stream.run(frames(1000)))
    assert statuses(results)[:4] == ["ok", "ok", "ok", "dropped"]
    assert device.clock.now() < 2.5
    assert stream.summary().lost == 0


def test_a_patient_stream_waits(plain):
    session, _ = opened(plain, away=[(1.0, 6.0)])
    stream = Stream(session, rate=20, patience=2.0, wait=True)
    results = list(stream.run(frames(200)))
    assert [result.frame for result in results] == list(range(200))
    assert kinds(stream) == ["running", "recovering", "gone", "running"]
    assert results[-1].status == "ok"
    assert stream.summary().lost == 0


def test_an_error_of_the_source_comes_behind_the_results(plain):
    session, _ = opened(plain)

    def camera():
        yield from frames(3)
        raise DeviceMissing("the camera was unplugged", where="/dev/video0")

    results, stream = [], Stream(session, depth=2)
    with pytest.raises(DeviceMissing) as caught:
        results.extend(stream.run(camera()))
    assert caught.value.where == "/dev/video0"
    assert statuses(results) == ["ok"] * 3


@pytest.mark.parametrize("depth", [1, 3])
def test_a_frame_that_does_not_fit_ends_the_stream_behind_the_results(plain, depth):
    session, _ = opened(plain)
    given = [*frames(4), Sample("clip[4]", {"x": np.zeros((1, 5), np.float32)}), *frames(3)]
    results, stream = [], Stream(session, depth=depth)
    with pytest.raises(InvalidInput) as caught:
        results.extend(stream.run(given))
    assert caught.value.where == "frame 4 (clip[4])"
    assert "input x" in caught.value.message
    assert statuses(results) == ["ok"] * 4 + ["dropped"]
    assert answers_are_their_own(results)
    assert stream.summary().lost == 0


def test_an_index_that_the_device_refuses_ends_it_likewise(plain):
    session, _ = opened(plain, failures={5: "index"})
    results, stream = [], Stream(session, depth=3)
    with pytest.raises(InvalidInput) as caught:
        results.extend(stream.run(frames(20)))
    assert caught.value.where == "frame 5"
    assert statuses(results)[:6] == ["ok"] * 5 + ["dropped"]
    assert stream.recoveries == []
    assert stream.summary().lost == 0


def test_a_loop_that_is_left_can_be_begun_again(plain):
    session, _ = opened(plain)
    stream = Stream(session, depth=3)
    for result in stream.run(frames(10)):
        if result.frame == 4:
            break
    assert stream.summary().lost == stream.summary().pending == 0
    again = list(stream.run(frames(3)))
    assert statuses(again) == ["ok"] * 3
    assert session.run(frames(1)[0])["y"].tolist() == [[1.03125] * 4]
    with stream:
        running = stream.run(frames(3))
        next(running)
        with pytest.raises(UsageError):
            stream.run(frames(3))
    assert list(running) == []


# -- the fallback -------------------------------------------------------------------------------------------


def test_the_fallback_answers_while_the_device_is_away(plain):
    session, _ = opened(plain, away=[(1.0, 3.0)])
    fallback, _ = opened(plain)
    stream = Stream(session, rate=20, deadline=0.045, fallback=fallback)
    results = list(stream.run(frames(100)))
    assert [result.frame for result in results] == list(range(100))
    assert answers_are_their_own(results)
    assert set(statuses(results)) <= {"ok", "fallback", "late"}
    assert 38 <= statuses(results).count("fallback") <= 41
    assert kinds(stream) == ["running", "recovering", "degraded", "running"]
    assert results[-1].status == "ok"
    assert max(result.latency for result in results) < 0.1


def test_a_device_that_is_gone_leaves_the_rest_to_the_fallback(plain):
    session, device = opened(plain, away=[(1.0, 1e9)])
    fallback, _ = opened(plain)
    stream = Stream(session, rate=20, fallback=fallback, patience=1.0)
    results = list(stream.run(frames(100)))
    assert statuses(results).count("fallback") == pytest.approx(80, abs=2)
    assert answers_are_their_own(results)
    assert stream.state == "gone"
    assert device.recoveries < 30


@pytest.mark.parametrize("rate", [None, 20])
def test_a_device_that_is_away_from_the_start(plain, rate):
    session, _ = opened(plain, away=[(0.0, 0.7)])
    fallback, _ = opened(plain)
    stream = Stream(session, rate=rate, fallback=fallback)
    results = list(stream.run(frames(30)))
    assert statuses(results)[0] == "fallback"
    assert statuses(results)[-1] == "ok"
    assert answers_are_their_own(results)


@pytest.mark.parametrize("shadow", [True, False])
def test_the_fallback_answers_while_the_device_is_late(plain, shadow):
    session, device = opened(plain)
    fallback, _ = opened(plain)
    stream = Stream(session, rate=20, deadline=0.045, fallback=fallback, shadow=shadow)

    def slow_from_five():
        for number, one in enumerate(frames(12)):
            device.script.compute = 0.048 if 5 <= number < 8 else 0.01
            yield one

    results = list(stream.run(slow_from_five()))
    first = "fallback" if shadow else "late"
    assert statuses(results) == ["ok"] * 5 + [first, "fallback", "fallback"] + ["ok"] * 4
    assert answers_are_their_own(results)
    assert kinds(stream) == ["running", "degraded", "running"]


@pytest.mark.parametrize("shadow", [True, False])
def test_states_of_the_fallback(stateful, shadow):
    session, _ = opened(stateful, away=[(1.0, 1.5), (2.0, 2.5)])
    fallback, _ = opened(stateful)
    replay = Replay(stateful)
    stream = Stream(session, rate=20, fallback=fallback, shadow=shadow, observe=replay)
    results = list(stream.run(frames(60)))
    assert replay.wrong == []
    stood_in = [result for result in results if result.status == "fallback"]
    assert len(stood_in) > 12
    if shadow:
        assert {result.epoch for result in stood_in} == {0}
        assert all(result.descends_from == result.frame - 1 for result in stood_in)
    else:
        assert {result.epoch for result in stood_in} == {0, 1}
        assert [result.descends_from for result in stood_in].count(None) == 2


def test_a_fallback_that_fails_too_drops_frames_and_comes_back(plain):
    session, _ = opened(plain, away=[(1.0, 3.0)])
    fallback, spare = opened(plain, failures={3: "collect"})
    stream = Stream(session, rate=20, fallback=fallback)
    results = list(stream.run(frames(100)))
    assert statuses(results).count("dropped") == 1
    assert statuses(results).count("fallback") > 30
    assert spare.recoveries == 1
    assert answers_are_their_own(results)


def test_a_fallback_of_another_network_is_refused(plain, stateful):
    session, _ = opened(plain)
    b = PlainBuilder(1)
    x = b.input((1, 4))
    y = b.node(MatMul, (x, b.constant((4, 5))), transposed=False)
    wider = compiler.compile(renamed(b.graph(y), {x: "x", y: "y"}), NAME)
    with pytest.raises(UsageError) as caught:
        Stream(session, fallback=opened(wider)[0])
    assert caught.value.where == "output y"
    # States aside, the two take and give the same.
    Stream(session, fallback=opened(stateful)[0])


@pytest.mark.parametrize(
    "wrong",
    [
        {"rate": 0},
        {"rate": float("nan")},
        {"deadline": -1},
        {"depth": 0},
        {"late": "never"},
        {"checkpoint_states": 0},
        {"patience": 0},
        {"host_work": -1},
        {"shadow": True},
    ],
)
def test_arguments_out_of_range(plain, wrong):
    with pytest.raises(UsageError):
        Stream(opened(plain)[0], **wrong)


def test_host_work_is_for_clocks_that_stand_still(plain):
    artifact = compiler.compile(plain.graph, "c")
    with Session(artifact) as session, pytest.raises(UsageError):
        Stream(session, host_work=0.001)


def test_the_fallback_is_in_time_beside_a_device_that_does_not_overlap(plain):
    class Slow(RealDevice):
        def run(self, inputs):
            time.sleep(0.3)
            return super().run(inputs)

    session = Session(plain, opened=Slow())
    stream = Stream(session, rate=5, deadline=0.2, fallback=Session(plain, opened=RealDevice()))
    seen = []
    for result in stream.run(frames(100)):
        seen.append(result.status)
        if result.status == "fallback":
            break
    assert "late" in seen
    assert seen[-1] == "fallback"


class RealDevice:
    """It has no clock of its own. It dies once, and comes back at once, or when it is told to."""

    def __init__(self, dies_at=0, back=None):
        self.inferences = 0
        self.dies_at = dies_at
        self.back = back

    def load(self, program):
        self.graph = program.graph
        return self

    def run(self, inputs):
        self.inferences += 1
        if self.inferences == self.dies_at:
            raise DeviceFailed("the cable was pulled")
        found = reference.run(self.graph, inputs)
        return {name: found[name] for name in self.graph.outputs}

    trace = profile = None

    def recover(self, seconds):
        if self.back is not None:
            assert self.back.wait(20)
        return Recovery("cold", states=True)

    def close(self):
        pass


class Spare(RealDevice):
    """A fallback that says when it has answered so many frames."""

    def __init__(self, enough):
        super().__init__()
        self.enough = enough
        self.answered = threading.Event()

    def run(self, inputs):
        found = super().run(inputs)
        if self.inferences > self.enough:  # the first one is its trial
            self.answered.set()
        return found


def until_it_is_back(stream, spare):
    """Results of a stream to the first one that is not the fallback's, after enough of those."""
    results = []
    for result in stream.run(frames(5000)):
        results.append(result)
        if result.status != "fallback" and spare.answered.is_set() and stream.state == "running":
            break
    stream.close()
    return results


def test_a_real_device_is_recovered_while_the_fallback_answers(plain):
    spare = Spare(15)
    session = Session(plain, opened=RealDevice(5, spare.answered))
    stream = Stream(session, rate=100, fallback=Session(plain, opened=spare))
    results = until_it_is_back(stream, spare)
    assert statuses(results).count("fallback") >= 15
    assert answers_are_their_own(results)
    assert [one.kind for one in stream.recoveries] == ["cold"]
    assert stream.summary().to_json()["clock"] == "wall"


class QueuedDevice(RealDevice):
    """It does not answer its fifth inference before it is told to."""

    def submit(self, inputs, *, step=False):
        found = self.run(inputs)
        number = self.inferences

        def collect():
            if number == 5:
                assert self.back.wait(20)
            return found

        return collect


def test_the_fallback_answers_while_a_real_device_does_not(plain):
    spare = Spare(8)
    session = Session(plain, opened=QueuedDevice(back=spare.answered))
    stream = Stream(session, rate=50, deadline=0.05, fallback=Session(plain, opened=spare))
    results = until_it_is_back(stream, spare)
    assert [result.frame for result in results] == list(range(len(results)))
    assert statuses(results).count("fallback") >= 8
    assert answers_are_their_own(results)
    assert stream.recoveries == []
    assert "degraded" in kinds(stream)


def test_a_recovery_in_progress_ends_before_the_stream_does(plain):
    back = threading.Event()
    session = Session(plain, opened=RealDevice(5, back))
    stream = Stream(session, rate=100, fallback=Session(plain, opened=RealDevice()))
    for result in stream.run(frames(5000)):
        if result.status == "fallback":
            threading.Timer(0.2, back.set).start()
            break
    stream.close()
    assert back.is_set()
    assert [thread.name for thread in threading.enumerate() if thread.name == "towline-stream"] == []


# -- a device of the test's own bugs: what the checks see ---------------------------------------------------


@pytest.mark.parametrize("bug", ["order", "double"])
def test_planted_bugs_are_seen(stateful, bug):
    session, _ = opened(stateful, bugs=(bug,), failures={7: "collect"})
    replay = Replay(stateful)
    list(Stream(session, depth=3, observe=replay).run(frames(20)))
    assert replay.wrong


@pytest.mark.slow
def test_random_faults(stateful):
    """Whatever fails, and whenever: nothing is lost, wrong or out of order."""
    for seed in range(12):
        random = np.random.default_rng(seed)
        session, device = opened(stateful)
        replay = Replay(stateful)
        fallback = opened(stateful)[0] if seed % 3 == 0 else None

        def tortured(device=device, random=random):
            for one in frames(60):
                if random.random() < 0.08:
                    device.inject(str(random.choice(device.torments)))
                yield one

        stream = Stream(
            session,
            rate=(None, 20, 150)[seed % 3],
            deadline=(None, 0.045)[seed % 2],
            depth=1 + seed % 4,
            fallback=fallback,
            shadow=fallback is not None and seed % 2 == 0,
            late=("deliver", "drop")[seed % 5 == 0],
            checkpoint_states=(None, 4)[seed % 2],
            observe=replay,
        )
        results = list(stream.run(tortured()))
        assert [result.frame for result in results] == list(range(60)), seed
        assert replay.wrong == [], seed
        summary = stream.summary()
        assert (summary.lost, summary.pending) == (0, 0)
        assert sum(summary.frames.values()) == 60


def test_the_clock_goes_on_when_a_device_is_opened_again():
    from sdk.clock import ContinuingClock

    clock, first = ContinuingClock(), ManualClock(5.0)
    clock.follow(first)
    clock.sleep(1.0)
    assert clock.now() == 1.0
    clock.follow(None)
    clock.sleep(0.5)
    clock.follow(ManualClock(0.0))
    assert clock.now() == 1.5
