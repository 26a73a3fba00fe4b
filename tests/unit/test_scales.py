"""The scales of nodes against the table of `sdk.reference`, written out."""

import dataclasses

import numpy as np
import pytest

from sdk.arithmetic import SCALE_LIMIT, require_scales
from sdk.errors import Unsupported
from sdk.graph import Quantization
from sdk.scales import counts_differ, input_scale, mean_counts, node_scales, scale_table
from tests.graph_builder import GraphBuilder


def made(build, scale=0.037):
    """A graph of one node whose output has this scale, with float32 scales of its tensors by name."""
    builder = GraphBuilder((1, 6, 5, 7))
    y = build(builder)
    graph = builder.graph()
    quantization = Quantization.per_tensor(scale, 3)
    graph.tensors[y] = dataclasses.replace(graph.tensor(y), quantization=quantization)
    node = graph.nodes[-1]
    return graph, node, [np.float32(graph.tensor(n).quantization.scale) for n in (*node.inputs, y)]


@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("gemm", [True, False])
def test_products_have_a_scale_for_each_channel(gemm, per_channel):
    builder = GraphBuilder((1, 6) if gemm else (1, 6, 5, 7))
    y = (
        builder.gemm("x", 8, per_channel=per_channel)
        if gemm
        else builder.conv("x", 8, per_channel=per_channel)
    )
    graph = builder.graph()
    node = graph.nodes[-1]
    x, weight, y = (np.float32(graph.tensor(n).quantization.scale) for n in (*node.inputs[:2], y))
    found = node_scales(graph, node)
    assert found.dtype == np.float32
    assert found.tolist() == np.broadcast_to(x * weight / y, 8).tolist()


def test_sums_and_products_of_two():
    graph, node, (a, b, y) = made(lambda g: g.add("x", g.requantize("x")))
    assert node_scales(graph, node).tolist() == [a / y, b / y]
    assert [input_scale(graph, node, name) for name in node.inputs] == [a / y, b / y]
    graph, node, (a, b, y) = made(lambda g: g.mul("x", g.requantize("x")))
    assert node_scales(graph, node).tolist() == a * b / y
    graph, node, (x, y) = made(lambda g: g.requantize("x"))
    assert scale_table(graph, node).tolist() == node_scales(graph, node).tolist() == x / y


def test_means_divide_by_what_they_cover():
    graph, node, (x, y) = made(lambda g: g.global_average_pool("x"))
    assert scale_table(graph, node).tolist() == node_scales(graph, node).tolist() == x / (y * np.float32(35))
    for options in ({"count_include_pad": True, "pads": 1}, {}):
        graph, node, (x, y) = made(lambda g, options=options: g.average_pool("x", 3, **options))
        assert not counts_differ(node)
        assert scale_table(graph, node).tolist() == node_scales(graph, node).tolist()
        assert node_scales(graph, node).tolist() == x / (y * np.float32(9))
    graph, node, (x, y) = made(lambda g: g.average_pool("x", 3, pads=1))
    assert counts_differ(node)
    by_count = [x / (y * np.float32(count)) for count in range(1, 10)]
    assert scale_table(graph, node).tolist() == by_count
    counts = mean_counts(graph, node)
    assert (counts.shape, counts[0, 0], counts[0, 1], counts[1, 1]) == ((5, 7), 4, 6, 9)
    assert node_scales(graph, node).tolist() == [[by_count[n - 1] for n in row] for row in counts]


def test_other_operators_have_none():
    graph, node, _ = made(lambda g: g.max_pool("x", 2))
    assert node_scales(graph, node).shape == (0,)
    require_scales(node_scales(graph, node))


@pytest.mark.parametrize("scale", [1e-30, 1e-44])
def test_an_infinite_scale_is_refused_where_it_is_required(scale):
    graph, node, _ = made(lambda g: g.average_pool("x", 3, pads=1), scale)
    with pytest.raises(Unsupported):
        require_scales(node_scales(graph, node))


def test_scales_are_below_the_limit():
    below = np.nextafter(np.float32(SCALE_LIMIT), np.float32(0))
    assert require_scales(np.array([0.5, below])).tolist() == [0.5, below]
    for wrong in (SCALE_LIMIT, np.inf, np.nan):
        with pytest.raises(Unsupported):
            require_scales(np.array([0.5, wrong, 0.25], np.float32))
