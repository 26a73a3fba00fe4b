"""Quantised files as other tools write them: each node as onnxruntime has it, and as few floats as can be.

Every node is evaluated on the values that onnxruntime has for its inputs; a result may be one step away,
where the definition orders its float operations differently. docs/quantised-files.md has a table of them.
"""

import numpy as np
import pytest
from onnx import TensorProto, helper

from sdk import reference
from sdk.errors import InvalidModel, Unsupported
from sdk.ort import session, with_outputs
from tests.onnx_models import CONTRIB, OnnxBuilder, imported, integers
from tests.unit.test_importers_plain import normal, operators

RANDOM = np.random.default_rng(5)


def steps(model, inputs, *, limit=1):
    """The graph, whose quantised tensors are at most `limit` steps from onnxruntime's, node by node."""
    graph = imported(model)
    made = {name for node in model.graph.node for name in node.output}
    named = [node.output for node in graph.nodes if node.output in made]
    known = session(with_outputs(model, named), optimize=False).run(named, dict(inputs))
    known = dict(zip(named, known, strict=True))
    values = dict(inputs)
    for node in graph.nodes:
        found = reference.evaluate(graph, node, values, "f32")
        wanted = known.get(node.output)
        if wanted is not None:
            assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), node.output
            if np.issubdtype(found.dtype, np.integer):
                assert np.abs(found.astype(np.int64) - wanted).max() <= limit, node.output
            else:
                np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4, err_msg=node.output)
        values[node.output] = found if wanted is None else wanted
    return graph


def picture(opset=13, shape=(1, 4, 6, 6), dtype="uint8"):
    """A model whose x is quantised: the builder, and the name of what its integers mean."""
    builder = OnnxBuilder(opset)
    zero_point = np.dtype(dtype).type(120 if dtype == "uint8" else -3)
    return builder, builder.qdq(builder.input("x", shape), 0.02, zero_point)


def weight(builder, shape, *, dtype="int8", axis=None, zero_point=0, name="w"):
    """A quantised weight, per tensor or per channel of `axis`."""
    channels = () if axis is None else shape[axis]
    scale = np.asarray(np.random.default_rng(1).uniform(0.005, 0.02, channels), np.float32)
    kind = np.dtype(dtype).type
    zero_points = np.full(scale.shape, zero_point, dtype) if scale.shape else kind(zero_point)
    return builder.weight(
        name, integers(np.random.default_rng(2), dtype, shape), scale, zero_points, axis or 0
    )


def counted(graph, *names):
    return [operators(graph).count(name) for name in names]


# --- PyTorch ------------------------------------------------------------------------------------------------


def test_casts_of_integers_to_their_own_type():
    builder, _ = picture()
    builder.node("Cast", ["x_q"], "cast", to=TensorProto.UINT8)
    x = builder.dequantize("cast", 0.02, np.uint8(120))
    builder.quantize(builder.node("Conv", [x, weight(builder, (4, 4, 3, 3))], "c"), "y", 0.05, np.uint8(99))
    graph = steps(builder.model({"y": "uint8"}), {"x": normal(1, 4, 6, 6)})
    assert operators(graph) == ["Quantize", "Conv"]


def test_a_cast_of_integers_to_floats_is_refused_with_its_remedy():
    builder, _ = picture()
    builder.node("Cast", ["x_q"], "y", to=TensorProto.FLOAT, name="cast")
    with pytest.raises(Unsupported) as caught:
        imported(builder.model(["y"]))
    assert caught.value.where == "node cast"
    assert "DequantizeLinear" in caught.value.hint


def test_integers_clipped_to_seven_bits():
    builder, _ = picture()
    limits = [builder.constant("low", np.uint8(0)), builder.constant("high", np.uint8(127))]
    x = builder.dequantize(builder.node("Clip", ["x_q", *limits], "clipped"), 0.02, np.uint8(120))
    builder.quantize(builder.node("Conv", [x, weight(builder, (4, 4, 1, 1))], "c"), "y", 0.05, np.uint8(99))
    graph = steps(builder.model({"y": "uint8"}), {"x": normal(1, 4, 6, 6)})
    assert operators(graph) == ["Quantize", "Requantize", "Conv"]


def test_weights_quantised_in_the_graph_and_float_biases():
    builder, x = picture()
    builder.constant("w", normal(4, 4, 3, 3))
    scale, zero_point = np.linspace(0.01, 0.02, 4), np.zeros(4, np.int8)
    quantized = builder.quantize("w", "w_q", scale, zero_point, axis=0)
    w = builder.dequantize(quantized, scale, zero_point, axis=0)
    builder.node("Conv", [x, w, builder.constant("b", normal(4))], "c")
    builder.quantize("c", "y", 0.1, np.uint8(99))
    graph = steps(builder.model({"y": "uint8"}), {"x": normal(1, 4, 6, 6)})
    assert operators(graph) == ["Quantize", "Conv"]


@pytest.mark.parametrize("shape", [(2, 5, 8), (2, 2, 3, 8)])
def test_linear_layers_of_more_axes_are_products_of_integers(shape):
    builder, x = picture(shape=shape)
    turned = builder.node("Transpose", [weight(builder, (6, 8), axis=0)], "turned", perm=[1, 0])
    product = builder.node("MatMul", [x, turned], "product", name="linear")
    total = builder.node("Add", [builder.constant("b", normal(6)), product], "total")
    builder.quantize(builder.node("Relu", [total], "r"), "y", 0.05, np.uint8(0))
    graph = steps(builder.model({"y": "uint8"}), {"x": normal(*shape)})
    assert operators(graph) == ["Quantize", "Reshape", "Gemm", "Reshape"]
    assert [node.name for node in graph.nodes if node.op == "Gemm"] == ["linear"]


def test_convolutions_in_one_dimension():
    builder, x = picture(shape=(1, 4, 20))
    h = builder.node(
        "Conv",
        [x, weight(builder, (6, 2, 5), axis=0), builder.constant("b", normal(6))],
        "c",
        pads=[2, 1],
        strides=[2],
        group=2,
    )
    builder.quantize(builder.node("Relu", [h], "r"), "y", 0.05, np.uint8(0))
    graph = steps(builder.model({"y": "uint8"}), {"x": normal(1, 4, 20)})
    assert operators(graph) == ["Quantize", "Reshape", "Conv", "Reshape"]


@pytest.mark.parametrize(
    ("op", "shape", "axis", "attributes"),
    [
        ("ConvTranspose", (4, 3, 2, 2), 1, {"strides": [2, 2]}),
        ("Conv", (4, 4, 3, 3), 1, {}),
        ("Conv", (4, 4, 3, 3), 3, {}),
    ],
)
def test_weights_per_channel_of_another_axis_are_multiplied_as_floats(op, shape, axis, attributes):
    builder, x = picture()
    result = builder.node(op, [x, weight(builder, shape, axis=axis)], "c", **attributes)
    builder.quantize(result, "y", 0.05, np.uint8(99))
    graph = steps(builder.model({"y": "uint8"}), {"x": normal(1, 4, 6, 6)})
    assert operators(graph) == ["Quantize", "Dequantize", op, "Quantize"]


@pytest.mark.parametrize(
    ("transposed", "axis", "exact"), [(0, 1, True), (0, 0, False), (1, 0, True), (1, 1, False)]
)
def test_matrices_per_channel(transposed, axis, exact):
    builder, x = picture(shape=(3, 8))
    shape = (6, 8) if transposed else (8, 6)
    result = builder.node("Gemm", [x, weight(builder, shape, axis=axis)], "c", transB=transposed)
    builder.quantize(result, "y", 0.05, np.uint8(99))
    graph = steps(builder.model({"y": "uint8"}), {"x": normal(3, 8)})
    assert counted(graph, "Gemm", "MatMul") == ([1, 0] if exact else [0, 1])


def test_one_dequantised_value_with_several_readers_and_pairs_behind_pairs():
    builder, x = picture()
    again = builder.dequantize(builder.quantize(x, "again", 0.02, np.uint8(120)), 0.02, np.uint8(120))
    other = builder.dequantize(builder.quantize(again, "other", 0.03, np.uint8(110)), 0.03, np.uint8(110))
    builder.quantize(builder.node("Add", [x, other], "sum"), "y", 0.05, np.uint8(99))
    builder.quantize(builder.node("GlobalAveragePool", [x], "mean"), "z", 0.01, np.uint8(128))
    graph = steps(builder.model({"y": "uint8", "z": "uint8"}), {"x": normal(1, 4, 6, 6)})
    assert operators(graph) == ["Quantize", "Requantize", "Add", "GlobalAveragePool"]


def test_operators_between_a_clip_and_a_quantisation_stay_one():
    builder, x = picture()
    h = builder.node("Conv", [x, weight(builder, (4, 4, 1, 1))], "c")
    limits = [builder.constant("low", np.float32(0)), builder.constant("high", np.float32(6))]
    builder.quantize(builder.node("Clip", [h, *limits], "clipped"), "y", 6 / 255, np.uint8(0))
    graph = steps(builder.model({"y": "uint8"}), {"x": normal(1, 4, 6, 6)})
    assert operators(graph) == ["Quantize", "Conv"]


# --- TensorFlow ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_channels_last_between_transposes(dtype):
    builder, x = picture(shape=(1, 6, 6, 4), dtype=dtype)
    h = builder.node("Transpose", [x], "first", perm=[0, 3, 1, 2])
    w = weight(builder, (4, 4, 3, 3), dtype="uint8", zero_point=117)
    h = builder.node("Transpose", [builder.node("Conv", [h, w], "c")], "last", perm=[0, 2, 3, 1])
    builder.quantize(h, "y", 0.05, np.dtype(dtype).type(7))
    graph = steps(builder.model({"y": dtype}), {"x": normal(1, 6, 6, 4)})
    assert operators(graph) == ["Quantize", "Transpose", "Conv", "Transpose"]


@pytest.mark.parametrize("bias", [np.int32, np.int8])
def test_biases_of_odd_scales(bias):
    builder, x = picture()
    values = RANDOM.integers(-100, 100, 4).astype(bias)
    b = builder.weight("b", values, 0.0123, bias(0))
    builder.quantize(builder.node("Conv", [x, weight(builder, (4, 4, 1, 1)), b], "c"), "y", 0.05, np.uint8(9))
    graph = steps(builder.model({"y": "uint8"}), {"x": normal(1, 4, 6, 6)})
    assert operators(graph) == ["Quantize", "Conv"]


def test_a_bias_beyond_int32_makes_the_product_one_of_floats():
    builder, x = picture(shape=(3, 8))
    b = builder.constant("b", np.full(6, 1e9, np.float32))
    builder.quantize(builder.node("Gemm", [x, weight(builder, (8, 6)), b], "c"), "y", 1e8, np.uint8(9))
    graph = steps(builder.model({"y": "uint8"}), {"x": normal(3, 8)})
    assert counted(graph, "Gemm", "MatMul") == [0, 1]


def test_zero_points_may_be_left_out():
    builder = OnnxBuilder(21)
    builder.input("x", [3, 8])
    scale = builder.constant("scale", np.float32(0.02))
    builder.node("QuantizeLinear", ["x", scale], "q", output_dtype=TensorProto.INT8)
    x = builder.node("DequantizeLinear", ["q", scale], "real")
    builder.constant("stored", integers(RANDOM, "int8", (8, 6)))
    w = builder.node("DequantizeLinear", ["stored", scale], "w")
    builder.quantize(builder.node("MatMul", [x, w], "product"), "y", 0.05, np.int8(0))
    graph = steps(builder.model({"y": "int8"}), {"x": normal(3, 8)})
    assert operators(graph) == ["Quantize", "Gemm"]


# --- onnxruntime's QLinear operators ------------------------------------------------------------------------


def qlinear(
    op, inputs, *, domain=CONTRIB, shape=(1, 4, 6, 6), dtype="uint8", output=(0.05, 99), **attributes
):
    """A model of one QLinear operator; `inputs` are arrays of constants, or None for the quantised x."""
    builder = OnnxBuilder()
    kind = np.dtype(dtype).type
    q = builder.quantize(builder.input("x", shape), "q", 0.02, kind(12))
    names = []
    for index, array in enumerate(inputs):
        if array is None:
            names += [q, *builder.scale("q", 0.02, kind(12))]
        else:
            names += [
                builder.constant(f"c{index}", array),
                *builder.scale(f"c{index}", 0.03, array.dtype.type(3)),
            ]
    names += builder.scale("y", output[0], kind(output[1]))
    if op == "QLinearConcat":
        names = [*names[-2:], *names[:-2]]
    builder.node(op, names, "y", domain=domain, name="node", **attributes)
    return builder.model({"y": dtype}), {"x": normal(*shape)}


QLINEAR = {
    "add a constant": (("QLinearAdd", [None, integers(RANDOM, "uint8", (4, 1, 1))]), {}, "Map"),
    "multiply by a constant": (("QLinearMul", [None, integers(RANDOM, "uint8", ())]), {}, "Lookup"),
    "pool channels last": (
        ("QLinearAveragePool", [None]),
        {"channels_last": 1, "kernel_shape": [2, 2], "shape": (1, 6, 6, 4)},
        "AveragePool",
    ),
    "mean channels last": (
        ("QLinearGlobalAveragePool", [None]),
        {"channels_last": 1, "shape": (1, 6, 6, 4)},
        "GlobalAveragePool",
    ),
    "softmax": (("QLinearSoftmax", [None]), {"axis": -1, "opset": 13, "output": (1 / 256, 0)}, "Softmax"),
    "matrices": (
        ("QLinearMatMul", [None, integers(RANDOM, "uint8", (8, 5))]),
        {"domain": "", "shape": (2, 3, 8)},
        "Gemm",
    ),
    "two activations": (("QLinearMatMul", [None, None]), {"domain": "", "shape": (2, 5, 5)}, "MatMul"),
    "sigmoid": (("QLinearSigmoid", [None]), {"output": (1 / 256, 0)}, "Lookup"),
    "concat": (("QLinearConcat", [None, integers(RANDOM, "uint8", (1, 2, 6, 6))]), {"axis": 1}, "Concat"),
}


@pytest.mark.parametrize("case", QLINEAR)
def test_qlinear_operators(case):
    arguments, options, operator = QLINEAR[case]
    model, inputs = qlinear(*arguments, **options)
    graph = steps(model, inputs)
    assert operator in operators(graph)


def test_a_convolution_of_channels_last():
    builder = OnnxBuilder()
    q = builder.quantize(builder.input("x", [1, 6, 6, 4]), "q", 0.02, np.uint8(12))
    inputs = [q, *builder.scale("q", 0.02, np.uint8(12))]
    inputs += [builder.constant("w", integers(RANDOM, "int8", (5, 4, 3, 3)))]
    inputs += [*builder.scale("w", np.linspace(0.01, 0.02, 5), np.zeros(5, np.int8))]
    inputs += [
        *builder.scale("y", 0.05, np.uint8(99)),
        builder.constant("b", np.arange(-2, 3, dtype=np.int32)),
    ]
    builder.node("QLinearConv", inputs, "y", domain=CONTRIB, channels_last=1, pads=[1, 1, 1, 1])
    graph = steps(builder.model({"y": "uint8"}), {"x": normal(1, 6, 6, 4)})
    assert operators(graph) == ["Quantize", "Transpose", "Conv", "Transpose"]


def test_a_choice_of_quantised_values():
    builder = OnnxBuilder()
    condition = builder.input("condition", [2, 3], "bool")
    q = builder.quantize(builder.input("x", [2, 3]), "q", 0.02, np.uint8(12))
    inputs = [condition, q, *builder.scale("q", 0.02, np.uint8(12))]
    inputs += [
        builder.constant("k", integers(RANDOM, "uint8", (2, 3))),
        *builder.scale("k", 0.05, np.uint8(1)),
    ]
    builder.node("QLinearWhere", [*inputs, *builder.scale("y", 0.03, np.uint8(7))], "y", domain=CONTRIB)
    chosen = np.array([[1, 0, 1], [0, 1, 0]], bool)
    steps(builder.model({"y": "uint8"}), {"x": normal(2, 3), "condition": chosen})


def test_scales_of_half_precision():
    builder = OnnxBuilder(21)
    builder.input("x", [3, 8], "float16")
    scale, zero = builder.constant("s", np.float16(0.02)), builder.constant("z", np.int8(3))
    builder.node("QuantizeLinear", ["x", scale, zero], "q")
    builder.constant("stored", integers(RANDOM, "int8", (8, 6)))
    scales = builder.constant("ws", np.linspace(0.01, 0.02, 6), np.float16)
    w = builder.node(
        "DequantizeLinear", ["stored", scales, builder.constant("wz", np.zeros(6, np.int8))], "w"
    )
    builder.node("MatMul", [builder.node("DequantizeLinear", ["q", scale, zero], "real"), w], "y")
    graph = imported(builder.model({"y": "float16"}))
    assert operators(graph) == ["Map", "Map", "MatMul"]
    assert graph.tensor("q").dtype == "int8"


def test_a_product_whose_result_is_not_quantised():
    builder = OnnxBuilder()
    q = builder.quantize(builder.input("x", [3, 8]), "q", 0.02, np.uint8(12))
    inputs = [
        q,
        *builder.scale("q", 0.02, np.uint8(12)),
        builder.constant("w", integers(RANDOM, "int8", (6, 8))),
    ]
    inputs += [*builder.scale("w", np.full(6, 0.01), np.zeros(6, np.int8))]
    inputs += [builder.constant("b", RANDOM.integers(-999, 999, 6, np.int32))]
    builder.node("QGemm", inputs, "y", domain=CONTRIB, transB=1, alpha=0.5)
    steps(builder.model(["y"]), {"x": normal(3, 8)})


@pytest.mark.parametrize(
    ("op", "constants", "outputs"),
    [
        ("Split", {"split": [1, 3]}, 2),
        ("Slice", {"starts": [1], "ends": [3], "axes": [1]}, 1),
        ("Gather", {"indices": [2, 0]}, 1),
        ("Expand", {"shape": [2, 4, 6, 6]}, 1),
        ("MaxPool", {}, 1),
        ("Pad", {"pads": [0, 1, 0, 1, 0, 0, 0, 2]}, 1),
    ],
)
def test_integers_that_are_moved_keep_their_scale(op, constants, outputs):
    builder, _ = picture()
    attributes = (
        {"axis": 1} if op in ("Split", "Gather") else {"kernel_shape": [1, 3]} if op == "MaxPool" else {}
    )
    names = [builder.constant(name, values, np.int64) for name, values in constants.items()]
    if op == "Pad":
        names.append(builder.constant("value", np.uint8(120)))
    results = ["y", "z"][:outputs]
    builder.nodes.append(helper.make_node(op, ["x_q", *names], results, name="node", **attributes))
    graph = steps(builder.model(dict.fromkeys(results, "uint8")), {"x": normal(1, 4, 6, 6)}, limit=0)
    assert all(graph.tensor(name).quantization.zero_point == 120 for name in results)


def test_integers_of_two_scales_are_not_compared():
    builder, _ = picture()
    builder.quantize("x", "other", 0.03, np.uint8(7))
    builder.node("Max", ["x_q", "other"], "y", name="max")
    with pytest.raises(InvalidModel) as caught:
        imported(builder.model({"y": "uint8"}))
    assert caught.value.where == "node max"


# --- other widths -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int16", "uint16"])
@pytest.mark.parametrize("domain", ["", CONTRIB])
def test_activations_of_16_bits(dtype, domain):
    builder = OnnxBuilder(21 if not domain else 17)
    builder.input("x", [3, 8])
    scale, zero_point = builder.scale("x", 1e-4, np.dtype(dtype).type(3000 if dtype == "int16" else 33000))
    q = builder.node("QuantizeLinear", ["x", scale, zero_point], "q", domain=domain)
    x = builder.node("DequantizeLinear", [q, scale, zero_point], "real", domain=domain)
    builder.constant("stored", integers(RANDOM, "int8", (8, 6)))
    w = builder.node(
        "DequantizeLinear", ["stored", *builder.scale("w", 0.01, np.int8(0))], "w", domain=domain
    )
    product = builder.node("MatMul", [x, w], "product")
    builder.node("QuantizeLinear", [product, scale, zero_point], "y", domain=domain)
    graph = steps(builder.model({"y": dtype}), {"x": normal(3, 8)})
    assert graph.tensor("y").dtype == dtype
    assert counted(graph, "Quantize", "MatMul") == [0, 1]


@pytest.mark.parametrize("name", ["int4", "uint4"])
@pytest.mark.parametrize("domain", ["", CONTRIB])
def test_weights_of_4_bits_are_weights_of_8(name, domain):
    builder = OnnxBuilder(21 if not domain else 17)
    x = builder.qdq(builder.input("x", [3, 8]), 0.02, np.uint8(120))
    element = getattr(TensorProto, name.upper())
    low, high = (-8, 8) if name == "int4" else (0, 16)
    values = RANDOM.integers(low, high, 40)
    builder.initializers.append(helper.make_tensor("stored", element, [8, 5], values.tolist()))
    builder.initializers.append(helper.make_tensor("zero_point", element, [5], [1, 2, 3, 4, 5]))
    scale = builder.constant("scale", np.linspace(0.05, 0.1, 5), np.float32)
    w = builder.node("DequantizeLinear", ["stored", scale, "zero_point"], "w", axis=1, domain=domain)
    builder.quantize(builder.node("MatMul", [x, w], "product"), "y", 0.05, np.uint8(99))
    graph = steps(builder.model({"y": "uint8"}), {"x": normal(3, 8)})
    assert operators(graph) == ["Quantize", "Gemm"]


def blocked(shape, block, axis, *, name="int8", scales=None, zero_points=False):
    builder = OnnxBuilder(21)
    builder.input("x", [3, shape[0]])
    element = getattr(TensorProto, name.upper())
    count = int(np.prod(shape))
    values = np.random.default_rng(0).integers(0, 8, count).tolist()
    builder.initializers.append(helper.make_tensor("stored", element, shape, values))
    blocks = [-(-extent // block) if i == axis else extent for i, extent in enumerate(shape)]
    scale = np.random.default_rng(1).normal(0, 0.1, blocks if scales is None else scales)
    names = ["stored", builder.constant("scale", scale, np.float32)]
    if zero_points:
        shape = list(scale.shape)
        builder.initializers.append(helper.make_tensor("zero", element, shape, [3] * scale.size))
        names.append("zero")
    w = builder.node("DequantizeLinear", names, "w", axis=axis, block_size=block, name="blocks")
    builder.node("MatMul", ["x", w], "y")
    return builder.model(["y"])


@pytest.mark.parametrize(
    ("shape", "block", "axis", "name"),
    [((8, 6), 4, 0, "int8"), ((8, 6), 2, 1, "int4"), ((8, 5), 4, 0, "uint4"), ((9, 6), 4, 0, "int16")],
)
def test_weights_by_blocks_of_any_sign(shape, block, axis, name):
    model = blocked(shape, block, axis, name=name, zero_points=name != "int8")
    graph = steps(model, {"x": normal(3, shape[0])})
    assert operators(graph) == ["MatMul"]


def nbits(bits=4, block=16, *, inner=40, outputs=6, zero_points="", bias=False, **changed):
    """A model of MatMulNBits; `changed` replaces constants."""
    random, builder = np.random.default_rng(0), OnnxBuilder()
    builder.input("x", [2, 3, inner])
    blocks = -(-inner // block)
    constants = {
        "w": random.integers(0, 256, (outputs, blocks, block * bits // 8)).astype(np.uint8),
        "scales": random.normal(0, 0.1, outputs * blocks).astype(np.float32),
    }
    if zero_points == "packed":
        size = outputs * -(-blocks * bits // 8)
        constants["zero_points"] = random.integers(0, 256, size).astype(np.uint8)
    if zero_points == "float":
        constants["zero_points"] = random.normal(8, 1, outputs * blocks).astype(np.float32)
    if bias:
        constants["bias"] = random.normal(0, 1, outputs).astype(np.float32)
    constants |= changed
    names = ["x"]
    for name in ("w", "scales", "zero_points", "g_idx", "bias"):
        names.append(builder.constant(name, constants[name]) if name in constants else "")
    while not names[-1]:
        names.pop()
    attributes = {"K": inner, "N": outputs, "bits": bits, "block_size": block}
    builder.node("MatMulNBits", names, "y", domain=CONTRIB, name="packed", **attributes)
    return builder.model(["y"]), {"x": normal(2, 3, inner)}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bits": 8, "block": 32},
        {"zero_points": "packed"},
        {"zero_points": "float", "bias": True},
        {"block": 32, "inner": 64, "g_idx": np.arange(64, dtype=np.int32) % 2},
    ],
)
def test_packed_products(options):
    model, inputs = nbits(**options)
    graph = steps(model, inputs)
    assert operators(graph) == ["MatMul"]


def test_packed_tables():
    builder = OnnxBuilder()
    builder.input("x", [2, 3], "int64")
    random = np.random.default_rng(0)
    builder.constant("table", random.integers(0, 256, (9, 16)).astype(np.uint8))
    builder.constant("scales", random.uniform(0.1, 1, (9, 2)), np.float32)
    builder.node("GatherBlockQuantized", ["table", "x", "scales"], "y", domain=CONTRIB, block_size=16, bits=4)
    graph = steps(builder.model(["y"]), {"x": random.integers(0, 9, (2, 3))})
    assert operators(graph) == ["Gather"]


def test_eight_bit_floats_are_numbers():
    builder = OnnxBuilder(21)
    builder.input("x", [3, 8])
    zero = helper.make_tensor("zero", TensorProto.FLOAT8E4M3FN, [], [0.0])
    builder.initializers.append(zero)
    scale = builder.constant("scale", np.float32(0.5))
    builder.node("QuantizeLinear", ["x", scale, "zero"], "q")
    builder.node("DequantizeLinear", ["q", scale, "zero"], "y")
    graph = imported(builder.model(["y"]))
    assert graph.tensor("q").dtype == "float8e4m3fn"
    x = normal(3, 8)
    np.testing.assert_allclose(reference.run(graph, {"x": x})["y"], x, rtol=1 / 16, atol=0.01)


# --- dynamic quantisation -----------------------------------------------------------------------------------


def dynamic():
    """What onnxruntime's quantize_dynamic makes of a MatMul."""
    builder = OnnxBuilder()
    builder.input("x", [3, 8])
    builder.nodes.append(helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], name="dynamic"))
    inputs = ["q", builder.constant("w", integers(RANDOM, "int8", (8, 6))), "z"]
    inputs.append(builder.constant("w_zero", np.int8(0)))
    builder.node("MatMulInteger", inputs, "sums", name="product")
    builder.node("Cast", ["sums"], "real", to=TensorProto.FLOAT)
    builder.node("Mul", ["real", "s"], "y")
    return builder


def test_dynamic_quantisation_is_refused_with_the_remedy():
    with pytest.raises(Unsupported) as caught:
        imported(dynamic().model(["y"]))
    assert [refusal.name for refusal in caught.value.refusals] == ["product"]
    assert "towline quantize" in caught.value.hint


def test_products_of_integers_by_fixed_zero_points():
    builder = OnnxBuilder()
    builder.input("x", [3, 8], "uint8")
    inputs = [
        "x",
        # Of seven bits: onnxruntime's pairs of products saturate where the processor has no VNNI.
        builder.constant("w", integers(RANDOM, "int8", (8, 6)) // 2),
        builder.constant("z", np.uint8(7)),
    ]
    builder.node("MatMulInteger", inputs, "y", name="product")
    steps(builder.model({"y": "int32"}), {"x": integers(RANDOM, "uint8", (3, 8))}, limit=0)
    builder.initializers.clear()
    builder.constant("z", np.uint8(7))
    builder.constant("w", np.full((8, 6), 127, np.int8))
    builder.inputs.clear()
    builder.input("x", [3, 800], "uint8")
    builder.initializers.pop()
    builder.constant("w", np.full((800, 6), 127, np.int8))
    with pytest.raises(Unsupported) as caught:
        imported(builder.model({"y": "int32"}))
    assert caught.value.where == "node product"
