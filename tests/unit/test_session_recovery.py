"""`Session.recover` and `retries`: a device that failed is used again, and no state is advanced twice."""

import numpy as np
import pytest

from sdk import compiler
from sdk.errors import DeviceFailed, UsageError
from sdk.session import Session
from sdk.target import KeepsStates, Recovery
from tests.reference_target import NAME as PLAIN
from tests.reference_target import ReferenceDevice, small_network
from tests.reference_target import register as register_plain
from tests.stream_device import NAME, FragileDevice, Script, StreamDevice, StreamTarget, register
from tests.unit.test_states import recurrent_network

X = np.ones((1, 4), np.float32) / 4


@pytest.fixture(autouse=True)
def registered(monkeypatch, tmp_path):
    monkeypatch.delenv("TOWLINE_DEVICE", raising=False)
    register(monkeypatch, tmp_path / "site")
    register_plain(monkeypatch, tmp_path / "plain")


@pytest.fixture
def compiled():
    return compiler.compile(recurrent_network(), NAME)


def steps_by_hand(compiled, count):
    with Session(compiled) as session:
        return [session.step({"x": X})["y"] for _ in range(count)]


@pytest.mark.parametrize("where", ["submit", "collect"])
def test_a_step_that_is_tried_again_advances_the_states_once(compiled, where):
    expected = steps_by_hand(compiled, 3)
    with Session(compiled, opened=StreamDevice(Script(failures={1: where}))) as session:
        assert isinstance(session.on_device, KeepsStates)
        found = [session.step({"x": X}, retries=1)["y"] for _ in range(3)]
        assert np.array_equal(found, expected)
        assert session.states()["n"].tolist() == [3]


def test_without_a_retry_the_error_is_the_device_s(compiled):
    with Session(compiled, opened=StreamDevice(Script(failures={1: "collect"}))) as session:
        session.step({"x": X})
        with pytest.raises(DeviceFailed):
            session.step({"x": X})
        assert session.recover(1.0) == Recovery("warm", states=True)
        session.step({"x": X})
        assert session.states()["n"].tolist() == [2]


def test_lost_states_are_not_stepped_from(compiled):
    with Session(compiled, opened=StreamDevice(Script(failures={1: "collect"}, keeps=False))) as session:
        session.step({"x": X})
        with pytest.raises(DeviceFailed) as caught:
            session.step({"x": X}, retries=3)
        assert "reset" in caught.value.hint
        for use in (session.states, lambda: session.submit({"x": X}, step=True)):
            with pytest.raises(DeviceFailed):
                use()
        session.run({"x": X, "h": X, "n": np.zeros(1, np.int64)})  # takes its states along
        session.reset()
        assert np.array_equal(session.step({"x": X})["y"], steps_by_hand(compiled, 1)[0])


def test_states_that_no_step_has_changed_are_not_lost(compiled):
    with Session(compiled, opened=StreamDevice(Script(failures={0: "collect"}, keeps=False))) as session:
        session.reset({"n": np.array([5])})
        session.step({"x": X}, retries=1)
        assert session.states()["n"].tolist() == [6]


def test_what_was_submitted_is_dropped_by_a_recovery(compiled):
    with Session(compiled, opened=StreamDevice()) as session:
        ticket = session.submit({"x": X}, step=True)
        session.recover(1.0)
        with pytest.raises(UsageError):
            session.collect(ticket)
        assert session.states()["n"].tolist() == [0]


def test_the_clock_is_the_device_s(compiled):
    with Session(compiled, opened=StreamDevice(Script(compute=0.25))) as session:
        session.step({"x": X})
        assert session.clock.now() == 0.25
        assert session.timed
        assert session.injects is not None
    with Session(compiler.compile(small_network(), PLAIN)) as session:
        assert not session.timed
        assert session.injects is None


def test_a_device_that_cannot_recover_is_opened_again(monkeypatch):
    """The host has the states of such a target: nothing is lost."""
    opened = []

    class Fragile(ReferenceDevice):
        def run(self, inputs):
            if len(opened) == 1:
                raise DeviceFailed("it died")
            return super().run(inputs)

        def close(self):
            opened.append(self)

    monkeypatch.setattr("tests.reference_target.ReferenceDevice", Fragile)
    picture = {"picture": np.zeros((1, 1, 4, 4), np.float32)}
    artifact = compiler.compile(small_network(), PLAIN)
    with Session(artifact) as session:
        expected = session.run(picture)
        opened.append("from now on")
        with pytest.raises(DeviceFailed):
            session.run(picture)
        found = session.run(picture, retries=1)
        assert len(opened) == 2
        assert np.array_equal(found["probabilities"], expected["probabilities"])
        assert session.recover(1.0) == Recovery("cold", states=True)
    with pytest.raises(UsageError):
        session.recover(1.0)


def test_states_of_a_device_that_is_opened_again_are_lost(compiled):
    StreamTarget.opened = ()
    with Session(compiled, "fragile") as session:
        session.step({"x": X})
        before = session.clock.now()
        assert session.recover(1.0) == Recovery("cold", states=False)
        assert session.clock.now() >= before
        assert len(StreamTarget.opened) == 2
        session.reset()
        session.step({"x": X})
        assert session.states()["n"].tolist() == [1]


def test_a_device_that_is_away_is_waited_for(compiled, monkeypatch):
    loads = []

    def load(device, program):
        loads.append(program)
        if 1 < len(loads) < 5:
            raise DeviceFailed("not yet")
        return load_(device, program)

    load_ = FragileDevice.load
    monkeypatch.setattr(FragileDevice, "load", load)
    with Session(compiled, "fragile") as session:
        with pytest.raises(DeviceFailed):
            session.recover(0.0)
        with pytest.raises(DeviceFailed) as caught:
            session.step({"x": X})
        assert "recover" in caught.value.hint
        session.recover(10.0)
        assert len(loads) == 5


def test_one_that_was_opened_elsewhere_is_not_opened_again(compiled):
    with Session(compiled, opened=FragileDevice()) as session, pytest.raises(DeviceFailed):
        session.recover(1.0)
