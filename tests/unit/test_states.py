"""States: pairs found by name or given, fed back from step to step, kept when a step fails."""

import dataclasses

import numpy as np
import pytest

from sdk import artifact, compiler
from sdk.errors import DeviceFailed, InvalidInput, UsageError
from sdk.expression.trace import apply
from sdk.graph import Graph, MatMul
from sdk.segments import cut, states_within
from sdk.session import Session
from sdk.states import check_states, find_states
from sdk.verification import verify
from tests.plain_graphs import PlainBuilder


def renamed(graph, names):
    """The graph with other names of tensors."""

    def new(name):
        return names.get(name, name)

    tensors = {
        new(name): dataclasses.replace(tensor, name=new(name)) for name, tensor in graph.tensors.items()
    }
    nodes = tuple(
        dataclasses.replace(node, inputs=tuple(map(new, node.inputs)), output=new(node.output))
        for node in graph.nodes
    )
    return Graph(graph.name, tuple(map(new, graph.inputs)), tuple(map(new, graph.outputs)), tensors, nodes)


def recurrent_network():
    """h' = tanh(W h + x), y = 2 h'; a counter as well."""
    b = PlainBuilder(9)
    x, h, n = b.input((1, 4)), b.input((1, 4)), b.input((1,), "int64")
    w = b.node(MatMul, (h, b.constant((4, 4))), transposed=False)
    state = b.map(lambda a, c: apply("tanh", a * 0.5 + c), w, x)
    y = b.map(lambda v: v * 2.0, state)
    count = b.map(lambda v: v + 1, n)
    graph = b.graph(y, state, count)
    return renamed(graph, {x: "x", h: "h", n: "n", y: "y", state: "next_h", count: "next_n"})


@pytest.fixture(scope="module")
def compiled():
    graph = recurrent_network()
    verify(graph)
    return compiler.compile(graph, "c")


def test_pairs_are_found_by_name(compiled):
    assert compiled.states == (("next_h", "h"), ("next_n", "n"))
    assert find_states(renamed(recurrent_network(), {"next_h": "later_h"})) == (("next_n", "n"),)


def test_unlike_tensors_are_no_pair():
    b = PlainBuilder()
    x, h = b.input((1, 4)), b.input((1, 1))
    y = b.map(lambda a, c: a + c, x, h)
    graph = renamed(b.graph(y), {h: "h", y: "next_h"})
    assert find_states(graph) == ()
    with pytest.raises(UsageError, match="alike") as caught:
        check_states(graph, (("next_h", "h"),))
    assert caught.value.where == "state next_h:h"


@pytest.mark.parametrize(
    "pairs",
    [(("y2", "h"),), (("next_h", "z"),), (("next_h", "h"), ("y", "h")), (("y", "h"), ("y", "x"))],
)
def test_what_is_no_pair_is_refused(pairs):
    with pytest.raises(UsageError):
        compiler.compile(recurrent_network(), "c", states=pairs)


def test_a_hundred_steps_equal_a_hundred_runs_with_states_by_hand(compiled, tmp_path):
    artifact.save(compiled, tmp_path / "net.tow")
    random = np.random.default_rng(0)
    h, n = np.zeros((1, 4), np.float32), np.zeros((1,), np.int64)
    with Session(tmp_path / "net.tow") as session:
        for _ in range(100):
            x = random.standard_normal((1, 4)).astype(np.float32)
            by_hand = session.run({"x": x, "h": h, "n": n})
            h, n = by_hand["next_h"], by_hand["next_n"]
            result = session.step({"x": x})
            assert result.keys() == {"y"}
            assert np.array_equal(result["y"], by_hand["y"])
            assert np.array_equal(session.states()["h"], h)
        assert session.states()["n"].tolist() == [100]
        session.reset({"n": np.array([7])})
        assert session.states()["n"].tolist() == [7]
        assert not session.states()["h"].any()


def test_a_step_that_fails_leaves_the_states(compiled):
    x = np.ones((1, 4), np.float32)
    with Session(compiled) as session, Session(compiled) as other:
        session.step({"x": x}), other.step({"x": x})
        before = session.states()
        for wrong in ({}, {"x": x[:, :2]}, {"x": x, "h": x}, {"x": x, "q": x}):
            with pytest.raises(InvalidInput):
                session.step(wrong)
        assert all(np.array_equal(before[name], array) for name, array in session.states().items())
        assert np.array_equal(session.step({"x": x})["y"], other.step({"x": x})["y"])


def test_a_device_that_dies_in_a_step_leaves_the_states(compiled, monkeypatch):
    x = np.ones((1, 4), np.float32)
    with Session(compiled) as session:
        session.step({"x": x})
        before = session.states()

        def dies(inputs):
            raise DeviceFailed("the cable was pulled")

        monkeypatch.setattr(session.on_device, "run", dies)
        with pytest.raises(DeviceFailed):
            session.step({"x": x})
        monkeypatch.undo()
        assert all(np.array_equal(before[name], array) for name, array in session.states().items())
        session.step({"x": x})
        assert session.states()["n"].tolist() == [2]


def test_states_given_are_a_copy(compiled):
    with Session(compiled) as session:
        states = session.states()
        states["n"][:] = 5
        assert session.states()["n"].tolist() == [0]


@pytest.mark.parametrize("states", [{"y": np.zeros((1, 4))}, {"h": np.zeros((4, 1))}, {"n": np.zeros(1)}])
def test_wrong_states_are_refused(compiled, states):
    with Session(compiled) as session:
        with pytest.raises(InvalidInput):
            session.reset(states)
        assert session.states()["n"].tolist() == [0]


def test_submissions_are_collected_in_any_order_and_once(compiled):
    random = np.random.default_rng(1)
    inputs = [
        {"x": random.standard_normal((1, 4)), "h": random.standard_normal((1, 4)), "n": np.array([i])}
        for i in range(3)
    ]
    with Session(compiled) as session, Session(compiled) as other:
        tickets = [session.submit(one) for one in inputs]
        for index in (2, 0, 1):
            found, expected = session.collect(tickets[index]), session.run(inputs[index])
            assert all(np.array_equal(found[name], expected[name]) for name in expected)
        for ticket in (tickets[0], other.submit(inputs[0])):
            with pytest.raises(UsageError):
                session.collect(ticket)


@pytest.mark.parametrize("place", ["x", "h", "next_h", "y"])
def test_states_are_within_a_device_s_only_part_or_not(compiled, place):
    """Hosted is what reads a tensor or makes it; y is made of next_h."""
    graph = compiled.graph
    hosted = {node.name for node in graph.nodes if place in (*node.inputs, node.output)}
    expected = () if hosted else compiled.states
    assert states_within(cut(graph, hosted), compiled.states) == expected
    assert states_within(cut(graph, ()), compiled.states) == compiled.states
    assert states_within(cut(graph, ()), ()) == ()


def test_an_end_that_has_no_state_may_be_the_host_s(compiled):
    b = PlainBuilder(1)
    x, h = b.input((1, 4)), b.input((1, 4))
    seen = b.map(lambda v: v * 3.0, x)
    state = b.map(lambda p, q: p + q, seen, h)
    graph = renamed(b.graph(state), {x: "x", h: "h", state: "next_h"})
    states = find_states(graph)
    first, second = graph.nodes
    assert states_within(cut(graph, {first.name}), states) == states
    assert states_within(cut(graph, {second.name}), states) == ()
