"""Products of matrices on a Hexagon DSP: of two activations, and of several rows by constants."""

import numpy as np
import pytest

from sdk.graph import Quantization, Tensor
from sdk.targets import get_target
from tests.contract.targets import assert_identical
from tests.graph_builder import GraphBuilder

TARGET = get_target("hexagon-v65")


def product(
    a, b, *, transposed=False, dtype="uint8", points=(None, None), bias=False, constant=False, seed=0
):
    """x by another input or a constant, its result scaled to its range."""
    g = GraphBuilder(a, seed=seed, dtype=dtype, zero_point=points[0])
    if constant:
        columns = b[-2 if transposed else -1]
        scale = g.random.uniform(0.005, 0.02, columns).astype(np.float32)
        axis = len(b) - (2 if transposed else 1)
        data = g.random.integers(-127, 127, b, np.int8, endpoint=True)
        g.tensors["w"] = Tensor("w", b, "int8", Quantization(scale, np.zeros(columns, np.int32), axis), data)
        names = ("x", "w")
    else:
        names = ("x", g.input("w", b))
        if points[1] is not None:
            g.tensors["w"] = Tensor("w", b, dtype, Quantization.per_tensor(0.02, points[1]))
    if bias:
        columns = b[-2 if transposed else -1]
        data = g.random.integers(-9999, 9999, columns, np.int32)
        g.tensors["bias"] = Tensor("bias", (columns,), "int32", Quantization.per_tensor(1, 0), data)
        names = (*names, "bias")
    return g.matmul(*names, transposed=transposed), g


SHAPES = [
    ((5, 7), (7, 3), False),
    ((1, 4), (4, 1), False),
    ((37, 130), (130, 97), False),
    ((37, 130), (97, 130), True),
    ((2, 3, 9, 33), (2, 3, 33, 160), False),
    ((2, 3, 9, 33), (2, 3, 129, 33), True),
    ((3, 4, 65), (65, 40), False),
    ((3, 1, 4, 6), (1, 2, 6, 5), False),
    ((2, 8, 16), (1, 10, 16), True),
    ((3, 19, 40), (3, 40, 64), False),
    ((37, 9), (32, 9), True),
    ((6, 8), (8, 128), False),
    ((2, 6, 8), (2, 8, 215), False),
    ((4, 8, 200), (3, 1, 1, 200, 33), False),
]


@pytest.mark.slow
@pytest.mark.parametrize(("a", "b", "transposed"), SHAPES)
def test_two_activations(a, b, transposed):
    assert_identical(TARGET, product(a, b, transposed=transposed, points=(0, 255), seed=1)[1].graph())
    assert_identical(
        TARGET, product(a, b, transposed=transposed, dtype="int8", bias=True)[1].graph(), guard=256
    )


@pytest.mark.slow
@pytest.mark.parametrize(("a", "b", "transposed"), SHAPES)
def test_a_constant_right_side(a, b, transposed):
    graph = product(a, b, transposed=transposed, points=(255, None), bias=True, constant=True, seed=2)[
        1
    ].graph()
    assert_identical(TARGET, graph, guard=256)


@pytest.mark.parametrize("options", [{}, {"relu": True}, {"weight_zero_point": 200}])
def test_a_gemm_of_several_rows(options):
    b = GraphBuilder((19, 45), zero_point=255)
    b.gemm(b.gemm("x", 70, **options), 11, per_channel=False)
    assert_identical(TARGET, b.graph(), guard=256)
