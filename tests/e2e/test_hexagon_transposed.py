"""A float network that widens pictures by ConvTranspose: quantised, and whole on hexagon-v65."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from sdk.check import check
from sdk.compiler import compile
from sdk.quantizer import quantize
from sdk.session import Session


def network():
    random = np.random.default_rng(0)
    shapes = {"w1": (8, 3, 3, 3), "b1": (8,), "w2": (8, 6, 3, 3), "b2": (6,), "w3": (6, 4, 2, 2)}
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c"], name="c", pads=[1] * 4, strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["r"], name="r"),
        helper.make_node(
            "ConvTranspose",
            ["r", "w2", "b2"],
            ["t"],
            name="t",
            strides=[2, 2],
            pads=[1] * 4,
            output_padding=[1, 1],
        ),
        helper.make_node("Relu", ["t"], ["s"], name="s"),
        helper.make_node("ConvTranspose", ["s", "w3"], ["y"], name="y", strides=[2, 2]),
    ]
    ends = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)]
        for name, shape in (("x", (1, 3, 16, 16)), ("y", (1, 4, 32, 32)))
    ]
    constants = [
        numpy_helper.from_array(np.float32(random.normal(0, 0.2, shape)), name)
        for name, shape in shapes.items()
    ]
    graph = helper.make_graph(nodes, "net", *ends, constants)
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


@pytest.mark.slow
def test_it_is_whole_on_the_dsp(tmp_path):
    onnx.save(network(), tmp_path / "float.onnx")
    pictures = np.random.default_rng(1).normal(0, 1, (9, 3, 16, 16)).astype(np.float32)
    report = quantize(tmp_path / "float.onnx", pictures[:8], tmp_path / "q.onnx", method="minmax")
    assert report.outputs[0].sqnr_db > 25
    compiled = compile(tmp_path / "q.onnx", "hexagon-v65")
    assert compiled.hosted == ("x_QuantizeLinear", "y_DequantizeLinear")
    with Session(compiled) as session:
        found = check(compiled, session, {"x": pictures[8:]})
    assert (found.mismatches, found.elements) == (0, 8 * 64 + 6 * 256 + 4 * 1024)
