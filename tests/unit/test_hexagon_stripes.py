"""Layers that take turns, some channels at a time: when, what they make, and what a trace and a plan say."""

import copy
import dataclasses
import functools

import numpy as np
import pytest

from dsp.hexagon.context import Context
from dsp.hexagon.fastrpc.session import FastrpcDevice
from dsp.hexagon.lowering import lower
from dsp.hexagon.plan import HexagonPlan
from dsp.hexagon.sharing import meetings
from dsp.hexagon.stripes import find
from sdk import compiler, reference
from sdk.errors import InvalidArtifact, UsageError
from sdk.target import L2, Options
from sdk.targets import get_target
from tests.contract.targets import assert_identical, random_input
from tests.graph_builder import GraphBuilder, mobilenet_v2
from tests.unit.test_fastrpc import kernel

__all__ = ["kernel"]  # a fixture

NOTHING_FITS = 1


def network(samples=1):
    """A first convolution, an expansion beside a residual, a strided one; 5, 7 and 6 planes."""
    b = GraphBuilder((samples, 3, 15, 21), seed=3)
    x = b.depthwise(b.conv("x", 20, 3, strides=2, pads=1), pads=1)
    x = b.conv(x, 8)
    x = b.add(b.conv(b.depthwise(b.conv(x, 27, relu=True), pads=1), 8), x)
    x = b.depthwise(b.conv(x, 24, relu=True), strides=2, pads=1)
    return b.graph(b.conv(x, 8))


def stripes_of(graph, l2=NOTHING_FITS):
    return {name: found.planes for name, found in find(Context(graph, l2=l2)).items()}


@functools.cache
def compiled():
    return get_target("hexagon-v65").compile(network(), Options(l2=NOTHING_FITS))


# -- where ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_only_what_exceeds_the_cache_is_striped():
    """MobileNetV2 1.0 112 in a quarter of the memory of one of 224: the first three blocks."""
    graph = mobilenet_v2(112, 1.0, 10)
    assert stripes_of(graph, L2 // 4) == {"conv0": 4, "conv3": 4, "conv6": 18}
    assert stripes_of(graph, L2) == {}
    assert list(stripes_of(graph, L2 // 8)) == ["conv0", "conv3", "conv6", "conv10"]
    assert lower(graph, l2=L2 // 4).arena < L2 // 4 < lower(graph).arena


def test_stripes_fit_beside_what_is_read_and_made():
    graph = large()  # 4 planes of 16 KB, 24, and 24
    kilobytes = {l2: stripes_of(graph, l2 << 10).get("conv0") for l2 in (192, 384, 512, 768, 1024, 1200)}
    assert kilobytes == {192: 2, 384: 6, 512: 8, 768: 8, 1024: 12, 1200: None}


def large():
    b = GraphBuilder((1, 16, 64, 64))
    return b.graph(b.depthwise(b.conv("x", 96), pads=1))


def unlike(change):
    b = GraphBuilder((1, 8, 9, 11))
    x = b.conv("x", 24)
    return change(b, x)


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(lambda b, x: b.graph(b.depthwise(x, pads=1), x), id="an output"),
        pytest.param(lambda b, x: b.graph(b.add(b.depthwise(x, pads=1), x)), id="two readers"),
        pytest.param(lambda b, x: b.graph(b.conv(x, 8, 3, pads=1)), id="no depthwise one"),
        pytest.param(lambda b, x: b.graph(b.max_pool(x, 3, pads=1)), id="a pool"),
        pytest.param(
            lambda b, x: b.graph(b.depthwise(b.conv(x, 8), strides=2, pads=1)), id="a gather between"
        ),
    ],
)
def test_what_is_not_striped(graph):
    assert stripes_of(unlike(graph)) == {}


# -- what -----------------------------------------------------------------------------------------------


def test_the_layers_take_turns():
    layers = [layer for layer in lower(network(), l2=NOTHING_FITS).layers if layer.channels]
    assert [(layer.name, layer.channels) for layer in layers[:4]] == [
        ("conv0", (0, 16)),
        ("conv1", (0, 16)),
        ("conv0", (16, 4)),
        ("conv1", (16, 4)),
    ]
    whole = lower(network()).layers
    for name in ("conv0", "conv1"):
        assert sum(x.macs for x in layers if x.name == name) == sum(x.macs for x in whole if x.name == name)


def test_two_contexts_do_not_meet_between_full_stripes():
    b = GraphBuilder((1, 8, 9, 11))
    lowered = lower(b.graph(b.depthwise(b.conv("x", 32), pads=1)), l2=NOTHING_FITS)
    met = [calls for layer, calls in zip(lowered.layers, meetings(lowered), strict=True) if layer.channels]
    assert len(met) == 8
    assert sum(map(len, met[2:])) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("samples", "guard", "l2"), [(1, 128, NOTHING_FITS), (2, 0, NOTHING_FITS), (1, 0, 6000)]
)
def test_every_layer_is_the_reference(samples, guard, l2):
    """Whole, in halves, and by two contexts in three orders, under two poisons; nothing else is written."""
    assert len(stripes_of(network(samples), l2)) >= 2
    assert_identical(get_target("hexagon-v65"), network(samples), guard, l2)


@pytest.mark.slow
def test_every_meeting_of_striped_layers_is_needed():
    program, inputs = compiled(), random_input(network())
    (expected,) = (reference.run(program.graph, inputs, "q31")[name] for name in program.graph.outputs)

    def wrong(layers):
        plan = program.plan | {"layers": layers}
        with get_target("hexagon-v65").open(None).load(dataclasses.replace(program, plan=plan)) as session:
            found = 0
            for order, poison in ((1, 0x5A), (2, 0xA5)):
                session.order(order)
                session.poison(poison)
                (value,) = session.run(inputs).values()
                found += int((value != expected).sum())
            return found

    layers = program.plan["layers"]
    assert wrong(layers) == 0
    striped = [(i, call) for i, one in enumerate(layers) if one["channels"] for call in one["meetings"]]
    assert striped
    for number, call in striped:
        less = copy.deepcopy(layers)
        less[number]["meetings"].remove(call)
        assert wrong(less), f"layer {number}, call {call}"


def test_a_layer_without_calls_has_all_counts():
    b = GraphBuilder((1, 8, 6, 6))
    y = b.conv("x", 8)
    b.concat(y, b.alike(b.conv("x", 8), y))
    target = get_target("hexagon-v65")
    with target.open(None).load(target.compile(b.graph(), Options())) as session:
        joined = next(layer for layer in session.profile().layers if layer.op == "Concat")
    assert joined.counters["packets_longer_half"] <= joined.counters["packets"] < 10


@pytest.mark.slow
def test_a_profile_has_a_row_a_node():
    with get_target("hexagon-v65").open("emulated?contexts=1").load(compiled()) as session:
        profile = session.profile()
    assert len(profile.layers) < len(compiled().plan["layers"])
    macs = {layer.name: layer.macs for layer in lower(network()).layers}
    assert {layer.name: layer.macs for layer in profile.layers} == macs
    inside = sum(layer.counters["packets"] for layer in profile.layers)
    assert 0.9 * profile.total["packets"] < inside <= profile.total["packets"]


@pytest.mark.slow
def test_the_object_for_a_dsp_traces_and_times_them(kernel):
    inputs = random_input(network())
    expected = reference.run(compiled().graph, inputs, "q31")
    with FastrpcDevice("fastrpc", kernel).load(compiled()) as session:
        traced = session.trace(inputs)
        for name, value in traced.items():
            np.testing.assert_array_equal(value, expected[name], err_msg=name)
        profile = session.profile()
    assert set(traced) == {node.output for node in network().nodes if node.op != "Add"} - {"conv5"} | {"add6"}
    names = [layer.name for layer in profile.layers]
    assert len(names) == len(set(names)) < len(compiled().plan["layers"])


@pytest.mark.slow
def test_only_stripes_are_joined():
    """Not what has a name twice, as variants of a kernel that are counted."""
    plan = HexagonPlan.of(compiled())
    assert [numbers for _, numbers in plan.by_node(range(len(plan.layers)))][:3] == [[0, 2], [1, 3], [4]]
    whole = [layer for layer in plan.layers if layer.channels is None]
    twice = dataclasses.replace(plan, layers=[*whole, *whole])
    assert [numbers for _, numbers in twice.by_node(range(2 * len(whole)))] == [
        [i] for i in range(2 * len(whole))
    ]


# -- what a plan cannot say -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "change"),
    [
        ("plan.layers[0]", lambda layers: layers[0].pop("channels")),  # of an older version
        ("plan.layers[0].channels", lambda layers: layers[0].update(channels=[4, 12])),
        ("plan.layers[2].channels", lambda layers: layers[2].update(channels=[16, 8])),
        ("plan.layers[2].channels", lambda layers: layers[2].update(channels=[16, 3])),
        ("plan.layers[2].channels", lambda layers: layers[2].update(channels=[16, 0])),
        ("plan.layers[0].channels", lambda layers: layers[0].update(geometry=None)),
        ("plan.layers[2].channels", lambda layers: layers[2].update(channels=[16, 1 << 40])),
    ],
)
def test_channels_that_cannot_be(where, change):
    plan = copy.deepcopy(compiled().plan)
    change(plan["layers"])
    with pytest.raises(InvalidArtifact) as caught:
        HexagonPlan.of(dataclasses.replace(compiled(), plan=plan))
    assert caught.value.where == where


@pytest.mark.parametrize(("target", "l2"), [("c", L2), ("hexagon-v65", 1000), ("hexagon-v65", 0)])
def test_caches_that_no_target_has(target, l2):
    with pytest.raises(UsageError, match="L2"):
        compiler.compile(network(), target, l2=l2)


@pytest.mark.slow
def test_the_size_of_the_cache_reaches_the_layers():
    for l2, striped in ((None, True), (2 * L2, False)):
        plan = compiler.compile(large(), "hexagon-v65", l2=l2).program.plan
        assert any(layer["channels"] for layer in plan["layers"]) == striped
