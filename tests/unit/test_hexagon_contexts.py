"""Two HVX contexts at one network: where they meet, and that they meet often enough, whatever their order."""

import copy
import dataclasses
import functools

import numpy as np
import pytest

from dsp.hexagon.calls import At, Call, KernelSource, Layer
from dsp.hexagon.lowering import lower
from dsp.hexagon.plan import HexagonPlan
from dsp.hexagon.sharing import meetings, touched
from sdk import reference
from sdk.arena import Buffer
from sdk.errors import InvalidArtifact, UsageError
from sdk.target import Options
from sdk.targets import get_target
from tests.amount import amount
from tests.graph_builder import GraphBuilder

ORDERS = (1, 2)
"""One context always goes first, then the other: see `EmulatedSession.order`."""


def network():
    """Every kind of meeting: a picture packed by rows, phases by planes, channels, vectors, a block."""
    b = GraphBuilder((1, 3, 13, 21), seed=2)
    x = b.conv("x", 12, 3, strides=2, pads=1, relu=True)
    narrow = b.depthwise(b.depthwise(x, pads=1), pads=1)  # whose halves share but the padding between planes
    y = b.add(b.conv(narrow, 12), x)
    row = b.reshape(b.global_average_pool(y))
    return b.graph(y, row, b.gemm(row, 10))


@functools.cache
def compiled():
    return get_target("hexagon-v65").compile(network(), Options())


def with_meetings(change):
    plan = copy.deepcopy(compiled().plan)
    change(plan["layers"])
    return dataclasses.replace(compiled(), plan=plan)


def load(program, device="emulated"):
    return get_target(program.target).open(device).load(program)


def inputs_of(graph, seed=1):
    return {"x": np.random.default_rng(seed).integers(0, 256, graph.tensor("x").shape, np.uint8)}


def mismatches(session, expected, inputs):
    return sum(int((value != expected[name]).sum()) for name, value in session.run(inputs).items())


def expected_of(program, inputs):
    return reference.run(program.graph, inputs, "q31")


# -- which calls need one ---------------------------------------------------------------------------------


ARENA = {name: Buffer(name, 512, 0, 9, offset=512 * i) for i, name in enumerate("abcd")}


def lookup(x, y, vectors):
    """From the start of one buffer to that of another; half 1 begins at vector (vectors + 1) // 2."""
    places = {"x": At(ARENA[x]), "x_plane": 0, "y": At(ARENA[y]), "y_plane": 0, "planes": 1}
    return Call(KernelSource("elementwise.c", "lookup"), "lookup", {**places, "vectors": vectors, "table": 0})


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        pytest.param([("a", "b", 4), ("b", "c", 4), ("c", "b", 4)], [], id="the same vectors"),
        pytest.param([("a", "b", 4), ("b", "c", 2)], [1], id="reads what the other half wrote"),
        pytest.param([("a", "b", 4), ("c", "a", 2)], [1], id="overwrites what the other half reads"),
        pytest.param([("a", "b", 4), ("c", "b", 2)], [1], id="overwrites what the other half wrote"),
        pytest.param([("a", "b", 4), ("a", "c", 2)], [], id="both read"),
        pytest.param([("a", "b", 4), ("c", "d", 4), ("b", "a", 2)], [2], id="two calls before"),
        pytest.param([("a", "b", 4), ("b", "c", 2), ("b", "d", 2)], [1], id="they have met since"),
        pytest.param([("a", "b", 1), ("b", "c", 1)], [], id="one half does everything"),
    ],
)
@pytest.mark.parametrize("layers", [1, 3])
def test_where_contexts_meet(calls, expected, layers):
    """However the calls are divided into layers."""
    calls = [lookup(*call) for call in calls]
    parts = [calls[:1], calls[1:2], calls[2:]] if layers == 3 else [calls]
    lowered = lower(network())
    lowered = dataclasses.replace(lowered, layers=[Layer("", "", "", calls=part) for part in parts])
    starts = [0, 1, 2] if layers == 3 else [0]
    found = [start + call for start, met in zip(starts, meetings(lowered), strict=True) for call in met]
    assert found == expected


@pytest.mark.parametrize("part", [0, 1])
def test_kernels_that_are_not_known_in_detail_touch_whole_buffers(part):
    fields = {"x": [At(ARENA["a"], 128), 0], "terms": {"y": At(ARENA["c"], 64)}, "y": At(ARENA["d"])}
    found = touched(Call(KernelSource("new.c", "new"), "new", fields), part)
    assert found.reads == [(0, 512), (1024, 2048)]
    assert found.writes == [(1024, 2048)]


@pytest.mark.slow
def test_every_meeting_is_needed_and_none_is_missing():
    """A dropped one gives wrong results in at least one of the orders; with all of them none does."""
    program, inputs = compiled(), inputs_of(compiled().graph)
    expected = expected_of(program, inputs)

    def wrong(program):
        with load(program) as session:
            assert session.contexts == 2
            found = 0
            for order, poison in zip(ORDERS, (0x5A, 0xA5), strict=True):
                session.order(order)
                session.poison(poison)
                found += mismatches(session, expected, inputs)
            return found

    assert wrong(program) == 0
    places = [
        (number, call) for number, layer in enumerate(program.plan["layers"]) for call in layer["meetings"]
    ]
    assert len(places) >= 6
    for layer, call in places:

        def drop(layers, layer=layer, call=call):
            layers[layer]["meetings"].remove(call)

        assert wrong(with_meetings(drop)), f"layer {layer}, call {call}"


@pytest.mark.slow
def test_many_inferences_in_any_order():
    """With --thorough a thousand."""
    program = compiled()
    with load(program) as session:
        for n in range(amount(60, 1000)):
            if n % 20 == 0:
                inputs = inputs_of(program.graph, n)
                expected = expected_of(program, inputs)
            session.order(n % 5 and n)
            if n % 7 == 0:
                session.poison(n % 256)
            assert mismatches(session, expected, inputs) == 0, n


@pytest.mark.slow
def test_a_trace_by_two_contexts_and_by_one():
    program, inputs = compiled(), inputs_of(compiled().graph)
    expected = expected_of(program, inputs)
    for device, contexts in (("emulated", 2), ("emulated?contexts=2", 2), ("emulated?contexts=1", 1)):
        with load(program, device) as session:
            assert session.contexts == contexts
            for name, value in session.trace(inputs).items():
                np.testing.assert_array_equal(value, expected[name], err_msg=name)
            assert mismatches(session, expected, inputs) == 0
            profiles = session.profile()
            assert profiles.total["packets"] > profiles.total["packets_longer_half"]


# -- what does not fit ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_program_for_one_context():
    """As one whose plan says nothing: it runs, but not on two."""

    def forget(layers):
        for layer in layers:
            layer["meetings"] = None

    program, inputs = with_meetings(forget), inputs_of(compiled().graph)
    for device in ("emulated", "emulated?contexts=1"):
        with load(program, device) as session:
            assert session.contexts == 1
            assert mismatches(session, expected_of(program, inputs), inputs) == 0
    with pytest.raises(InvalidArtifact) as caught:
        load(program, "emulated?contexts=2")
    assert caught.value.where == "plan.layers"
    assert "contexts=1" in caught.value.hint


@pytest.mark.slow
def test_a_plan_with_other_calls_than_the_code():
    with pytest.raises(InvalidArtifact) as caught:
        load(with_meetings(lambda layers: layers[0].update(calls=9, fetches=[[0, 0]] * 9)))
    assert caught.value.where == "plan.layers"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "change"),
    [
        ("plan.layers[0]", lambda layers: layers[0].pop("meetings")),  # of an older version
        ("plan.layers[1].meetings", lambda layers: layers[1].update(meetings=None)),
        ("plan.layers[0].meetings", lambda layers: layers[0].update(meetings=[2, 1])),
        ("plan.layers[0].meetings", lambda layers: layers[0].update(meetings=[1, 1])),
        ("plan.layers[0].meetings", lambda layers: layers[0].update(meetings=[layers[0]["calls"]])),
        ("plan.layers[0].calls", lambda layers: layers[0].update(calls=1 << 40)),
    ],
)
def test_meetings_that_cannot_be(where, change):
    with pytest.raises(InvalidArtifact) as caught:
        HexagonPlan.of(with_meetings(change))
    assert caught.value.where == where
    assert "compile" in caught.value.hint


@pytest.mark.parametrize("option", ["contexts=3", "contexts=0", "contexts", "", "x=1", "contexts=2&contexts"])
def test_unknown_options(option):
    with pytest.raises(UsageError, match=r"contexts=1|unknown option"):
        get_target("hexagon-v65").open(f"emulated?{option}")


@pytest.mark.slow
def test_both_threads_end_with_the_host():
    """Also while one of them waits: the process has no thread left that keeps it."""
    session = load(compiled())
    process = session._child.process
    process.stdin.close()
    assert process.wait(timeout=10) == 0
    session.close()
