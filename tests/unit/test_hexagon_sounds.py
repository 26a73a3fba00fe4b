"""Convolutions in one dimension on a Hexagon DSP: of one row, between Reshapes as importers make them."""

import dataclasses

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from sdk.graph import Quantization
from sdk.importers.onnx import graph_of
from sdk.integer_islands import integer_islands
from sdk.passes import optimize
from sdk.segments import split
from sdk.targets import get_target
from tests.contract.targets import assert_identical
from tests.graph_builder import GraphBuilder

TARGET = get_target("hexagon-v65")


def network(layers, channels=3, length=70, zero_point=131, transposed=None):
    """QDQ convolutions one behind the other; then, if there is one, a transposed one."""
    random = np.random.default_rng(len(layers))
    nodes, constants = [], {}

    def constant(name, value):
        constants[name] = value
        return name

    def quantised(x, scale, point):
        names = [constant(f"{x}/s", np.float32(scale)), constant(f"{x}/z", np.uint8(point))]
        nodes.append(helper.make_node("QuantizeLinear", [x, *names], [f"{x}/q"], name=f"{x}/quantize"))
        nodes.append(helper.make_node("DequantizeLinear", [f"{x}/q", *names], [f"{x}/d"], name=f"{x}/d"))
        return f"{x}/d"

    def weight(name, shape, axis):
        data = constant(f"{name}/w", random.integers(-127, 127, shape, np.int8, endpoint=True))
        scale = constant(f"{name}/ws", random.uniform(0.001, 0.004, shape[axis]).astype(np.float32))
        zero = constant(f"{name}/wz", np.zeros(shape[axis], np.int8))
        nodes.append(helper.make_node("DequantizeLinear", [data, scale, zero], [f"{name}/wd"], axis=axis))
        return f"{name}/wd"

    x = quantised("x", 0.02, zero_point)
    found = channels
    for index, (outputs, kernel, options) in enumerate(layers):
        name = f"conv{index}"
        w = weight(name, (outputs, found // options.get("group", 1), kernel), 0)
        nodes.append(helper.make_node("Conv", [x, w], [name], name=name, **options))
        x, found = quantised(name, 0.05, 120), outputs
    if transposed:
        outputs, kernel, options = transposed
        w = weight("up", (found, outputs, kernel), 1)
        nodes.append(helper.make_node("ConvTranspose", [x, w], ["up"], name="up", **options))
        x = quantised("up", 0.05, 0)
    nodes[-1].output[0] = "y"
    graph = helper.make_graph(
        nodes,
        "sound",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, channels, length))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    return split(integer_islands(optimize(graph_of(model)))).body


@pytest.mark.slow
@pytest.mark.parametrize(("outputs", "batch", "stride"), [(32, 1, 16), (12, 3, 5), (6, 1, 2), (8, 1, 1)])
def test_windows_over_one_channel(outputs, batch, stride):
    """Rows of a matrix, but for six outputs, which do not fill planes."""
    for zero_point in (0, 255):
        b = GraphBuilder((batch, 1, 1, 333), zero_point=zero_point)
        y = b.conv("x", outputs, (1, 21), strides=(1, stride), relu=True)
        b.conv(y, 5, (1, 3), pads=(0, 1, 0, 1))
        assert_identical(TARGET, b.graph(), guard=256)


def test_windows_over_one_channel_by_weights_of_nine_bits():
    b = GraphBuilder((1, 1, 1, 100))
    b.conv("x", 8, (1, 21), strides=(1, 3), weight_zero_point=100)
    graph = b.graph()
    weight = graph.tensor("conv0.w")
    points = np.arange(0, 256, 32, np.int32)
    quantization = Quantization(np.full(8, 0.01, np.float32), points, 0)
    graph.tensors["conv0.w"] = dataclasses.replace(weight, quantization=quantization)
    assert_identical(TARGET, graph)


@pytest.mark.slow
@pytest.mark.parametrize(
    "layers",
    [
        [(32, 80, {"strides": [16]})],
        [(9, 3, {"pads": [1, 1]}), (9, 5, {"group": 9, "strides": [2], "pads": [2, 2]}), (4, 1, {})],
        [(8, 3, {"dilations": [4], "pads": [8, 0]}), (8, 3, {"group": 4, "dilations": [2]})],
        [(13, 4, {"strides": [3], "pads": [0, 5]}), (13, 3, {"group": 13, "dilations": [3]})],
    ],
)
def test_convolutions_of_sounds(layers):
    length = 500 if layers[0][1] == 80 else 70
    for zero_point in (0, 255):
        assert_identical(TARGET, network(layers, length=length, zero_point=zero_point), guard=256)


@pytest.mark.slow
def test_a_transposed_convolution_of_a_sound():
    layers = [(6, 3, {"pads": [1, 1]})]
    graph = network(layers, length=21, transposed=(5, 4, {"strides": [2], "pads": [1, 1]}))
    assert [node.op for node in graph.nodes if node.op != "Reshape"] == ["Conv", "ConvTranspose"]
    assert_identical(TARGET, graph)
