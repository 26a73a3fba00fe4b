"""Networks on AMD cards with several element types: bfloat16 beside float32, quantised beside float."""

import numpy as np
import pytest

from sdk.check import check
from sdk.compiler import compile as compiled
from sdk.expression.trace import apply
from sdk.graph import Conv, Gather, MatMul, Reduce, Softmax
from sdk.session import Session
from tests.chips import GENERATIONS
from tests.onnx_models import OnnxBuilder, saved
from tests.plain_graphs import PlainBuilder, assert_defined
from tests.shader_gpu import register, target

CONV = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "clamp": None}


def a_bfloat16_network():
    """Products by WMMA and depthwise, a Map of float32 between, attention, a table."""
    b = PlainBuilder(3)
    x = b.input((1, 8, 6, 7), "bfloat16")
    y = b.node(Conv, (x, b.constant((16, 8, 3, 3), "bfloat16")), shape=(1, 16, 6, 7), group=1, **CONV)
    y = b.map(lambda v: v * apply("tanh", v), y)
    y = b.node(Conv, (y, b.constant((16, 1, 3, 3), "bfloat16")), shape=(1, 16, 6, 7), group=16, **CONV)
    wide = b.map(lambda v: apply("tanh", v * 0.01), y, dtype="float32")
    y = b.map(lambda p, q: p * q, y, wide)
    y = b.reshape(y, (16, 42))
    scores = b.node(MatMul, (y, y), shape=(16, 16), transposed=True)
    y = b.node(MatMul, (b.node(Softmax, (scores,), axis=1), y), shape=(16, 42), transposed=False)
    rows = b.node(Gather, (y, b.input((3,), "int64", [0, 15, -2])), axis=0)
    b.node(Reduce, (rows,), shape=(3, 1), kind="mean", axes=(1,))
    return b.graph(), b.inputs


@pytest.mark.slow
@pytest.mark.parametrize("chip", [GENERATIONS[0], pytest.param(GENERATIONS[1], marks=pytest.mark.slow)])
def test_a_bfloat16_network(chip):
    graph, inputs = a_bfloat16_network()
    assert_defined(target(chip), graph, inputs)


def a_mixed_file(tmp_path):
    """Convolutions of uint8 with a float island of three operators between them, and a float head."""
    random = np.random.default_rng(2)
    b = OnnxBuilder(17)
    x = b.qdq(b.input("x", (1, 4, 6, 6)), 0.05, np.uint8(128))

    def weight(name, shape):
        return b.weight(
            name, random.integers(-60, 60, shape).astype(np.int8), np.full(8, 0.01), np.zeros(8, np.int8)
        )

    b.node("Conv", [x, weight("w", (8, 4, 3, 3))], "y", pads=[1, 1, 1, 1])
    y = b.qdq("y", 0.05, np.uint8(128))
    b.node("Softmax", [y], "s", axis=1)
    b.node("Mul", ["s", y], "m")
    b.node("Add", ["m", b.constant("shift", np.float32([0.5]))], "a")
    z = b.qdq("a", 0.02, np.uint8(10))
    b.node("Conv", [z, weight("v", (8, 8, 1, 1))], "z")
    z = b.qdq("z", 0.05, np.uint8(128))
    b.node("Exp", [z], "o")
    return saved(b.model(["o"]), tmp_path)


@pytest.mark.parametrize("chip", [GENERATIONS[0], pytest.param(GENERATIONS[1], marks=pytest.mark.slow)])
def test_quantised_and_float_in_one_network(chip, tmp_path, monkeypatch):
    register(monkeypatch, tmp_path / "targets")
    network = compiled(a_mixed_file(tmp_path), f"amd-{chip}")
    assert [segment.place for segment in network.segments].count("device") == 1
    x = np.random.default_rng(1).normal(size=(1, 4, 6, 6)).astype(np.float32)
    with Session(network) as session:
        found = check(network, session, {"x": x})
    assert found.elements > 500
    assert found.float_elements > 500
    assert (found.mismatches, found.outside) == (0, 0), found.first_mismatch
