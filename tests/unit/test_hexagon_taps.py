"""The first convolution of a network, whose window becomes planes of taps."""

import numpy as np
import pytest

from dsp.hexagon import taps
from dsp.hexagon.lowering import lower
from sdk import reference
from sdk.target import Options
from sdk.targets import get_target
from tests.contract.targets import assert_identical, random_input
from tests.graph_builder import GraphBuilder

TARGET = get_target("hexagon-v65")


def first_conv(shape, kernel, strides, pads, outputs=12):
    b = GraphBuilder(shape, seed=shape[3])
    x = b.conv("x", outputs, kernel, strides=strides, pads=pads, relu=True)
    b.depthwise(x, pads=1)
    return b.graph()


def structs(graph):
    return [call.struct for layer in lower(graph).layers for call in layer.calls]


@pytest.fixture
def always(monkeypatch):
    """Taps where they are possible, however small the picture is."""
    monkeypatch.setattr(taps, "PACKETS_OF_TAP", 0)


@pytest.mark.parametrize(
    ("shape", "kernel", "strides", "pads", "used"),
    [
        pytest.param((1, 3, 96, 96), 3, 2, 1, True, id="27 taps: 7 steps, not 9"),
        pytest.param((1, 1, 64, 64), 3, 1, 1, True, id="9 taps: 3 steps, not 9"),
        pytest.param((1, 3, 12, 10), 3, 2, 1, False, id="few pixels: rows cost more than is saved"),
        pytest.param((1, 4, 96, 96), 3, 2, 1, False, id="four channels: nothing to save"),
        pytest.param((1, 3, 96, 96), 1, 1, 0, False, id="one tap a channel"),
        pytest.param((1, 3, 96, 96), 9, 1, 4, False, id="too wide a window"),
        pytest.param((1, 3, 96, 96), 3, 3, 1, False, id="a stride of three"),
        pytest.param((2, 3, 96, 96), 3, 2, 1, False, id="two samples"),
        pytest.param((1, 3, 96, 96), 3, 2, (1, 127, 1, 1), True, id="a vector of padding, but for one"),
        pytest.param((1, 3, 96, 96), 3, 2, (1, 128, 1, 1), False, id="more than a vector of padding"),
        pytest.param((1, 3, 96, 96), 3, 2, (1, 1, 1, 130), False, id="the same on the right"),
    ],
)
def test_it_is_used_where_packets_are_saved(shape, kernel, strides, pads, used):
    assert ("taps" in structs(first_conv(shape, kernel, strides, pads, 32))) == used


@pytest.mark.usefixtures("always")
def test_a_picture_that_others_read_too_is_made_planes_once():
    b = GraphBuilder((1, 3, 12, 10))
    y = b.conv("x", 8, 3, pads=1)
    graph = b.graph(y, b.conv("x", 8, 3, strides=2, pads=1))
    assert "taps" not in structs(graph)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(
    ("shape", "kernel", "strides", "pads"),
    [
        ((1, 3, 11, 13), 3, 2, 1),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ((1, 3, 9, 70), 3, 2, (0, 0, 1, 1)),  # right and below, as TensorFlow pads
                ((1, 3, 21, 40), 7, 2, 3),
                ((1, 1, 8, 33), (5, 3), 1, (2, 1, 2, 1)),
                ((1, 2, 6, 300), (3, 8), (1, 2), (1, 5, 1, 6)),  # two blocks of columns
                ((1, 3, 5, 130), 3, 1, 1),  # the second block has two pixels
                ((1, 3, 4, 5), 3, 2, (2, 3, 2, 3)),  # a column that is never in the picture
                ((1, 3, 5, 40), 3, 1, (1, 127, 1, 127)),  # the widest padding
            )
        ),
    ],
)
def test_every_layer_is_the_reference_s(shape, kernel, strides, pads):
    graph = first_conv(shape, kernel, strides, pads)
    assert "taps" in structs(graph)
    assert_identical(TARGET, graph, guard=256)
    inputs = random_input(graph)
    expected = reference.run(graph, inputs, TARGET.arithmetic)
    with TARGET.open(None).load(TARGET.compile(graph, Options())) as session:
        for name, value in session.trace_halves(inputs).items():
            np.testing.assert_array_equal(value, expected[name], err_msg=name)
        for order in (1, 2):
            session.order(order)
            for name, value in session.run(inputs).items():
                np.testing.assert_array_equal(value, expected[name], err_msg=f"{name}, order {order}")
