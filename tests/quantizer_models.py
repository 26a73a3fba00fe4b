"""Small float networks for tests of the quantiser, and inputs for them."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def weights(*shape, seed=0, scale=0.3):
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def samples(count=8, shape=(3, 8, 8), seed=1):
    return weights(count, *shape, seed=seed, scale=1)


def save(path, nodes, constants, inputs, outputs, kind=TensorProto.FLOAT):
    """A network of these nodes; inputs are name -> shape, or name -> (shape, type)."""
    graph = helper.make_graph(
        nodes,
        "small",
        [
            helper.make_tensor_value_info(
                name, *((what[1], what[0]) if isinstance(what[0], tuple) else (kind, what))
            )
            for name, what in inputs.items()
        ],
        [helper.make_tensor_value_info(name, kind, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 13)])
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return path


def node(op, inputs, output, **attributes):
    return helper.make_node(op, inputs, [output], name=f"/{output}", **attributes)


def rare_outliers(path):
    """x [1, 3, 8, 8] -> logits [1, 5]: rare large values, which a Sigmoid behind them levels."""
    nodes = [
        node("Conv", ["x", "w1", "b1"], "a", pads=[1, 1, 1, 1]),
        node("Conv", ["x", "w2", "b2"], "b", pads=[1, 1, 1, 1]),
        node("Mul", ["a", "b"], "p"),
        node("Mul", ["p", "p"], "s"),
        node("Conv", ["s", "w3", "b3"], "c"),
        node("Sigmoid", ["c"], "g"),
        node("GlobalAveragePool", ["g"], "m"),
        node("Flatten", ["m"], "f"),
        node("Gemm", ["f", "w4", "b4"], "logits"),
    ]
    constants = {
        "w1": weights(6, 3, 3, 3, seed=1),
        "b1": weights(6, seed=2),
        "w2": weights(6, 3, 3, 3, seed=3),
        "b2": weights(6, seed=4),
        "w3": weights(12, 6, 1, 1, seed=5),
        "b3": weights(12, seed=6),
        "w4": weights(12, 5, seed=7, scale=2),
        "b4": weights(5, seed=8),
    }
    return save(path, nodes, constants, {"x": (1, 3, 8, 8)}, ["logits"])


def recurrent(path):
    """x [1, 4] and h [1, 6] -> y [1, 3], next_h [1, 6]: a state that grows over its first steps."""
    nodes = [
        node("Gemm", ["x", "wx", "bx"], "u"),
        node("Gemm", ["h", "wh", "bh"], "v"),
        node("Add", ["u", "v"], "next_h"),
        node("Gemm", ["next_h", "wy", "by"], "y"),
    ]
    constants = {
        "wx": weights(4, 6, seed=1),
        "bx": np.full(6, 0.5, np.float32),
        "wh": np.eye(6, dtype=np.float32) * np.float32(0.9),
        "bh": np.zeros(6, np.float32),
        "wy": weights(6, 3, seed=4),
        "by": weights(3, seed=5),
    }
    return save(path, nodes, constants, {"x": (1, 4), "h": (1, 6)}, ["y", "next_h"])
