"""Places: what is cut where, what is refused, and that a network cut by the host gives the same answers."""

import numpy as np
import pytest

from sdk import compiler, targets
from sdk.check import check
from sdk.errors import Unsupported
from sdk.expression.trace import apply
from sdk.graph import Gather, MatMul, Reshape
from sdk.segments import RoundTrips, check_host, cut, place, round_trips
from sdk.session import Session
from sdk.target import SUPPORTED, Verdict
from sdk.verification import verify
from tests.plain_graphs import PlainBuilder


def chain():
    """Two products with a map and a lookup between them."""
    b = PlainBuilder(3)
    x = b.input((2, 8))
    y = b.node(MatMul, (x, b.constant((8, 300))), transposed=False)
    z = b.map(lambda v: apply("erf", v), y)
    index = b.constant((5,), "int64", [3, 1, 2, 0, -1])
    w = b.node(Gather, (z, index), axis=1)
    last = b.node(MatMul, (w, b.constant((5, 4))), transposed=False)
    out = b.map(lambda a, c: a * c + 1.0, last, b.input((2, 4)))
    graph = b.graph(out)
    verify(graph)
    return graph, b.inputs


class Refusing:
    """A target that takes all but some operators."""

    name = "refusing"

    def __init__(self, *ops):
        self.ops = ops

    def supports(self, graph, node):
        return Verdict(False, "too odd", "leave it out") if node.op in self.ops else SUPPORTED


def test_segments_are_few_and_each_knows_what_crosses():
    graph, _ = chain()
    segments = cut(graph, {node.name for node in graph.nodes if node.op == "Gather"})
    assert [segment.place for segment in segments] == ["device", "host", "device"]
    first, middle, last = (segment.graph for segment in segments)
    assert middle.inputs == first.outputs
    assert last.inputs[-1] == middle.outputs[0]
    assert set(last.inputs) == {"input1", *middle.outputs}
    for part in (first, middle, last):
        verify(part)
    crossing = (*middle.inputs, *middle.outputs)
    assert round_trips(segments) == RoundTrips(1, sum(graph.tensor(name).nbytes for name in crossing))
    assert round_trips(segments[:2]) == round_trips(segments[1:]) == RoundTrips(0, 0)


def test_independent_branches_do_not_make_more_segments():
    b = PlainBuilder()
    x = b.input((4,))
    left = b.map(lambda v: v + 1.0, b.map(lambda v: apply("erf", v), x))
    right = b.map(lambda v: v * 2.0, b.map(lambda v: apply("sin", v), x))
    graph = b.graph(left, right)
    hosted = {graph.nodes[0].name, graph.nodes[2].name}
    assert [segment.place for segment in cut(graph, hosted)] == ["host", "device"]


def test_nothing_for_the_device_is_refused():
    graph, _ = chain()
    with pytest.raises(Unsupported):
        cut(graph, {node.name for node in graph.nodes})


@pytest.mark.parametrize(
    ("ops", "policy", "allowed"),
    [
        (("Gather",), "default", True),
        (("Gather",), "none", False),
        (("MatMul",), "default", False),
        (("MatMul",), "any", True),
        ((), "none", True),
    ],
)
def test_what_the_host_may_do(ops, policy, allowed):
    graph, _ = chain()
    placements = place(graph, Refusing(*ops), policy)
    assert [p.place for p in placements] == ["host" if p.node.op in ops else "device" for p in placements]
    if allowed:
        check_host(graph, placements, "refusing", policy)
        return
    with pytest.raises(Unsupported, match="too odd") as caught:
        check_host(graph, placements, "refusing", policy)
    refused = [p.node.name for p in placements if not p.verdict.supported]
    assert caught.value.where == f"node {refused[0]}"
    assert "leave it out" in caught.value.hint


@pytest.fixture
def c_without(monkeypatch):
    """The target c, which takes all but the operators given."""

    def without(*ops):
        found = targets.get_target("c")
        takes, compiles = found.supports, found.compile

        class Partial(type(found)):
            def supports(self, graph, node):
                return Verdict(False, "refused here") if node.op in ops else takes(graph, node)

            def compile(self, graph, options):
                for node in graph.nodes:
                    if node.op in ops:
                        raise Unsupported("refused here", where=f"node {node.name}")
                return compiles(graph, options)

        monkeypatch.setattr(compiler, "get_target", lambda name: Partial())

    return without


def test_a_network_cut_in_three_gives_the_same_answers(c_without, tmp_path):
    graph, inputs = chain()
    whole = compiler.compile(graph, "c", host="none")
    c_without("Gather")
    parts = compiler.compile(graph, "c", host="default")
    assert [segment.place for segment in parts.segments] == ["device", "host", "device"]
    with pytest.raises(Unsupported, match="2 parts"):
        _ = parts.program
    with Session(whole) as one, Session(parts) as three:
        expected, found = one.run(inputs), three.run(inputs)
        for name, array in expected.items():
            assert np.array_equal(array, found[name])
        verdict = check(parts, three, inputs)
        assert verdict.passed
        assert verdict.float_elements == check(whole, one, inputs).float_elements - 10
    with pytest.raises(Unsupported, match="refused here"):
        compiler.compile(graph, "c", host="none")


def test_a_product_goes_to_the_host_only_when_it_is_allowed(c_without):
    graph, inputs = chain()
    with Session(compiler.compile(graph, "c")) as session:
        expected = session.run(inputs)
    c_without("MatMul")
    with pytest.raises(Unsupported) as caught:
        compiler.compile(graph, "c")
    assert "--host" in (caught.value.hint or "")
    with Session(compiler.compile(graph, "c", host="any")) as session:
        found = session.run(inputs)
    for name, array in expected.items():
        assert np.allclose(array, found[name], rtol=1e-5)


def test_a_reshape_alone_may_be_all_that_the_device_has():
    b = PlainBuilder()
    x = b.input((2, 3))
    graph = b.graph(b.node(Reshape, (x,), shape=(3, 2)))
    with Session(compiler.compile(graph, "c")) as session:
        assert np.array_equal(session.run(b.inputs)["reshape1"], b.inputs["input0"].reshape(3, 2))


def test_the_host_is_not_advised_for_all_of_a_network():
    graph, _ = chain()
    everything = Refusing(*{node.op for node in graph.nodes})
    with pytest.raises(Unsupported) as caught:
        check_host(graph, place(graph, everything), "refusing", "default")
    assert "--host" not in caught.value.hint
    some = Refusing("MatMul")
    with pytest.raises(Unsupported) as caught:
        check_host(graph, place(graph, some), "refusing", "default")
    assert "--host" in caught.value.hint
