"""States on an AMD card, on the shader executor alone: steps equal those whose states the host feeds back,
neither a state nor its next value crosses the link, and a step that fails has not happened.
"""

import copy
import dataclasses

import numpy as np
import pytest

from sdk import artifact, compiler
from sdk.errors import DeviceFailed, InvalidArtifact, InvalidInput, UsageError
from sdk.expression.trace import apply
from sdk.graph import Concat, Gather, MatMul, Slice
from sdk.session import Session
from sdk.target import Options
from tests import shader_gpu
from tests.plain_graphs import PlainBuilder
from tests.shader_gpu import ShaderGpu
from tests.unit.test_states import renamed
from usbgpu.target.plan import CardPlan

CHIP = "amd-gfx1100"
STATES = {"h": (1, 4), "history": (1, 6, 4), "last": (1, 4), "a": (1, 33), "b": (1, 33), "n": (1,)}


def network():
    """h' = tanh(W h + x) is read elsewhere and an output as well; a shift register; the last input; two
    states that change places; a counter that indexes a table of eight.
    """
    b = PlainBuilder(9)
    x, step = b.input((1, 4)), b.input((1,), "int64")
    h, history, last, a, c, n = (
        b.input(shape, "int64" if name == "n" else "float32") for name, shape in STATES.items()
    )
    w = b.node(MatMul, (h, b.constant((4, 4))), transposed=False)
    state = b.map(lambda p, q: apply("tanh", p * 0.5 + q), w, x)
    also = b.reshape(state, (4,))
    whole = b.node(Concat, (history, b.reshape(state, (1, 1, 4))), axis=1)
    shifted = b.node(Slice, (whole,), starts=(0, 1, 0), steps=(1, 1, 1), shape=(1, 6, 4))
    kept = b.reshape(x, (1, 4))
    first, second = b.map(lambda v: v + 1, c), b.map(lambda v: v * 1, a)
    count = b.map(lambda p, q: p + q, n, step)
    looked = b.node(Gather, (b.constant((8, 3)), count), axis=0)
    y = b.map(lambda p, q: p + q * 2, state, last)
    graph = b.graph(y, also, looked, state, shifted, kept, first, second, count)
    names = dict(zip((x, step, h, history, last, a, c, n), ("x", "step", *STATES), strict=True))
    made = (y, also, looked, state, shifted, kept, first, second, count)
    outputs = ("y", "also", "looked", *(f"next_{name}" for name in STATES))
    return renamed(graph, names | dict(zip(made, outputs, strict=True)))


@pytest.fixture
def cards(monkeypatch, tmp_path):
    shader_gpu.register(monkeypatch, tmp_path / "targets")


@pytest.fixture
def compiled(cards):
    return compiler.compile(network(), CHIP)


def by_host(compiled):
    """The same artefact, whose states the host feeds back."""
    (program,) = compiled.programs
    plan = {**program.plan, "states": []}
    return dataclasses.replace(compiled, programs=(dataclasses.replace(program, plan=plan),))


def inputs(number, step=1):
    x = np.random.default_rng(number).standard_normal((1, 4)).astype(np.float32)
    return {"x": x, "step": np.array([step])}


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array, err_msg=name)


@pytest.fixture
def link(monkeypatch):
    """Bytes that cross the link: [to the card, to the host]."""
    moved = [0, 0]
    upload, download = ShaderGpu.upload, ShaderGpu.download

    def counted_upload(self, buffer, data, offset=0):
        moved[0] += 0 if buffer is self.kernarg else len(data)
        upload(self, buffer, data, offset)

    def counted_download(self, buffer, size, offset=0):
        moved[1] += size
        return download(self, buffer, size, offset)

    monkeypatch.setattr(ShaderGpu, "upload", counted_upload)
    monkeypatch.setattr(ShaderGpu, "download", counted_download)
    return moved


@pytest.mark.slow
def test_steps_equal_those_whose_states_the_host_feeds_back(compiled, tmp_path):
    assert {given for _, given in compiled.program.plan["states"]} == STATES.keys()
    artifact.save(compiled, tmp_path / "net.tow")
    with Session(tmp_path / "net.tow") as session, Session(by_host(compiled)) as other:
        assert session._states.keeper is not None
        assert other._states.keeper is None
        for number in range(5):
            assert_same(session.step(inputs(number)), other.step(inputs(number)))
            if number != 1:  # looking changes nothing
                assert_same(session.states(), other.states())
        assert session.states()["n"].tolist() == [5]
        assert session.states()["history"].any()


def test_no_state_crosses_the_link(compiled, link):
    with Session(compiled) as session:
        for number in range(3):  # two orders of states, each brings its launches once
            session.step(inputs(number))
        link[:] = 0, 0
        session.step(inputs(3))
        # x, step and the status in one piece, the outputs in another; each begins at a multiple of 128.
        assert link[0] == 128 + 128 + 8
        assert link[1] <= 4 * 128
        link[:] = 0, 0
        states = session.states()
        assert link == [0, sum(array.nbytes for array in states.values())]


@pytest.mark.slow
def test_given_states_replace_those_on_the_card(compiled):
    with Session(compiled) as session, Session(by_host(compiled)) as other:
        for each in (session, other):
            each.step(inputs(0))
            each.reset({"h": np.full((1, 4), 0.25), "n": np.array([2])})
        assert_same(session.states(), other.states())
        for number in range(3):
            assert_same(session.step(inputs(number)), other.step(inputs(number)))
        for each in (session, other):
            each.reset()
        assert not any(array.any() for array in session.states().values())
        with pytest.raises(InvalidInput):
            session.reset({"h": np.zeros((4, 4))})
        assert_same(session.step(inputs(7)), other.step(inputs(7)))


@pytest.mark.slow
def test_an_inference_with_all_inputs_leaves_no_trace_in_the_states(compiled):
    """Nor does a trace, or a profile; between any two steps."""
    with Session(compiled) as session, Session(by_host(compiled)) as other:
        random = np.random.default_rng(3)
        given = {name: random.standard_normal(shape) for name, shape in STATES.items() if name != "n"}
        given |= inputs(9) | {"n": np.array([3])}
        for number, disturb in enumerate(("run", "trace", "profile", "states", "run")):
            assert_same(session.step(inputs(number)), other.step(inputs(number)))
            if disturb in ("run", "trace"):
                assert_same(getattr(session, disturb)(given), getattr(other, disturb)(given))
            else:
                getattr(session, disturb)()
        assert_same(session.states(), other.states())


@pytest.mark.slow
def test_a_step_that_fails_has_not_happened(compiled):
    """The kernels have run, next states are on the card; and the step that is tried again is the first."""
    with Session(compiled) as session, Session(by_host(compiled)) as other:
        for number in range(4):
            for _ in range(2):
                with pytest.raises(InvalidInput):
                    session.step(inputs(number, step=100))
            for wrong in ({}, inputs(number) | {"h": np.zeros((1, 4))}, {"x": inputs(number)["x"]}):
                with pytest.raises(InvalidInput):
                    session.step(wrong)
            if number % 2:
                assert_same(session.states(), other.states())
            assert_same(session.step(inputs(number)), other.step(inputs(number)))
        assert session.states()["n"].tolist() == [4]


def test_results_that_do_not_arrive_are_no_step(compiled, monkeypatch):
    """The launches ran to their end. The states before the first step are still here; later ones are lost."""
    stream = ShaderGpu.stream

    def broken(original):
        def method(*args):
            original(*args)
            raise DeviceFailed("the cable was pulled")

        return method

    with Session(compiled) as session:
        before = session.states()
        monkeypatch.setattr(ShaderGpu, "stream", broken(stream))
        with pytest.raises(DeviceFailed):
            session.step(inputs(0))
        assert_same(session.states(), before)
    monkeypatch.undo()


def test_a_closed_session_has_no_states(compiled):
    with Session(compiled) as session:
        session.step(inputs(0))
    for use in (session.states, session.reset, lambda: session.step(inputs(1))):
        with pytest.raises(UsageError):
            use()


def test_states_that_a_part_of_the_host_has_stay_there(cards):
    """Of a network of the c target nothing is on the card."""
    with Session(compiler.compile(network(), "c")) as session:
        assert session._states.keeper is None


@pytest.mark.parametrize(
    "damage",
    [
        [["next_h", "x"]],
        [["y", "nothing"]],
        [["next_h", "history"]],
        [["next_h", "h"], ["next_h", "last"]],
    ],
)
def test_states_of_a_damaged_plan_are_refused(damage):
    program = shader_gpu.target("gfx1100").compile(network(), Options())
    assert CardPlan.of(program).states == ()
    plan = copy.deepcopy(program.plan) | {"states": damage}
    if damage[0] == ["next_h", "x"]:  # alike, but they overlap
        plan["outputs"]["next_h"] = plan["inputs"]["x"]
    with pytest.raises(InvalidArtifact) as caught:
        CardPlan.of(dataclasses.replace(program, plan=plan))
    assert "states" in (caught.value.where or "")
