"""ConvTranspose on a Hexagon DSP, by its phases."""

import pytest

from dsp.hexagon.lowering import lower
from sdk.errors import Unsupported
from sdk.targets import get_target
from tests.contract.targets import assert_identical
from tests.graph_builder import GraphBuilder

TARGET = get_target("hexagon-v65")

CASES = [
    ((1, 8, 5, 7), 12, 2, {"strides": 2}),
    ((1, 5, 6, 9), 7, 3, {"strides": 2, "pads": 1, "extra": 1}),
    ((2, 8, 4, 35), 8, 4, {"strides": 2, "pads": 1, "group": 2}),
    ((1, 6, 5, 5), 6, (3, 5), {"strides": (1, 3), "pads": (0, 1, 2, 3), "group": 6}),
    ((1, 3, 3, 4), 4, (2, 3), {"strides": (3, 4), "extra": (2, 1), "bias": False}),
    ((1, 4, 1, 20), 9, (1, 5), {"strides": (1, 4), "pads": (0, 2, 0, 1)}),
    ((1, 4, 6, 6), 4, 3, {"strides": 2, "dilations": (2, 3), "pads": (1, 3, 0, 2)}),
    ((1, 17, 1, 1), 5, 4, {}),
    ((1, 6, 2, 2), 3, 3, {"pads": (2, 2, 1, 1), "dilations": 1}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "outputs", "kernel", "options"), CASES)
def test_a_transposed_convolution(shape, outputs, kernel, options):
    b = GraphBuilder(shape, dtype="int8" if outputs % 2 else "uint8", zero_point=0 if outputs % 2 else 255)
    y = b.conv_transpose("x", outputs, kernel, **options)
    after = b.conv(y, 6, 3, pads=1) if min(b.tensors[y].shape[2:]) > 1 else y
    graph = b.graph(*dict.fromkeys((y, after)))
    assert_identical(TARGET, graph, guard=256)
    assert_identical(TARGET, graph)


def test_pads_beyond_the_window_are_refused():
    b = GraphBuilder((1, 4, 6, 6))
    b.conv_transpose("x", 4, 2, pads=(0, 2, 0, 0))
    with pytest.raises(Unsupported):
        lower(b.graph())
