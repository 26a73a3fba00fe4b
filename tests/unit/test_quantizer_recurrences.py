"""A GRU as the operators of its steps: the same numbers, and what is refused."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from sdk.errors import Unsupported
from sdk.ort import session
from sdk.quantizer.recurrences import unroll

STEPS, BATCH, CHANNELS, HIDDEN = 4, 2, 3, 5


def gru(*, bias=True, initial=False, constants=True, op="GRU", outputs=("y", "last"), **attributes):
    random = np.random.default_rng(1)
    gates = {"GRU": 3, "LSTM": 4, "RNN": 1}[op]
    arrays = {
        "w": random.normal(size=(1, gates * HIDDEN, CHANNELS)),
        "r": random.normal(size=(1, gates * HIDDEN, HIDDEN)),
        "b": random.normal(size=(1, 2 * gates * HIDDEN)),
    }
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (STEPS, BATCH, CHANNELS))]
    names = ["x", "w", "r", "b" if bias else "", "", "h" if initial else ""]
    if initial:
        inputs.append(helper.make_tensor_value_info("h", TensorProto.FLOAT, (1, BATCH, HIDDEN)))
    node = helper.make_node(op, names, list(outputs), name="gru", hidden_size=HIDDEN, **attributes)
    shapes = {"y": (STEPS, 1, BATCH, HIDDEN), "last": (1, BATCH, HIDDEN)}
    made = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shapes[n]) for n in outputs if n]
    initializers = [numpy_helper.from_array(np.float32(array), name) for name, array in arrays.items()]
    if not constants:
        inputs.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, arrays["w"].shape))
        initializers = initializers[1:]
    graph = helper.make_graph([node], "net", inputs, made, initializers)
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def outputs_of(model):
    random = np.random.default_rng(2)
    feeds = {
        value.name: np.float32(
            random.normal(size=[dim.dim_value for dim in value.type.tensor_type.shape.dim])
        )
        for value in model.graph.input
    }
    return session(model).run(None, feeds)


@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("initial", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_the_steps_compute_the_same(after, initial, bias):
    model = gru(bias=bias, initial=initial, linear_before_reset=after)
    steps = unroll(model, "net")
    onnx.checker.check_model(steps, full_check=True)
    assert "GRU" not in {node.op_type for node in steps.graph.node}
    for found, expected in zip(outputs_of(steps), outputs_of(model), strict=True):
        np.testing.assert_allclose(found, expected, atol=2e-6)


def test_what_nothing_reads_is_not_made():
    steps = unroll(gru(outputs=("", "last")), "net")
    assert "Concat" not in {node.op_type for node in steps.graph.node}


@pytest.mark.parametrize(
    "options",
    [
        {"op": "LSTM"},
        {"op": "RNN"},
        {"direction": "reverse"},
        {"clip": 1.0},
        {"constants": False},
        {"activations": ["Sigmoid", "Relu"]},
    ],
)
def test_other_recurrences_are_refused(options):
    with pytest.raises(Unsupported) as caught:
        unroll(gru(**options), "net.onnx")
    assert caught.value.where == "net.onnx: node gru"
