"""What the importer makes of sound models: structure, names, numbers against onnxruntime."""

import numpy as np
import onnx
import pytest

from sdk import reference
from sdk.importers import check_float, is_quantized, load_model, read_onnx
from sdk.passes import optimize
from sdk.segments import split
from tests.onnx_models import (
    CONTRIB,
    OnnxBuilder,
    imported,
    integers,
    oracle,
    saved,
    small_float_model,
    small_qdq_model,
)

PICTURE = np.random.default_rng(9).normal(0, 1, (1, 3, 8, 8)).astype(np.float32)


def operators(graph):
    return [node.op for node in graph.nodes]


def agree(model, inputs=None):
    graph = imported(model)
    inputs = inputs or {"x": PICTURE}
    values, expected = reference.run(graph, inputs), oracle(model, inputs)
    for name, array in expected.items():
        assert np.array_equal(values[name], array), name
    return graph


def test_a_qdq_network_end_to_end():
    builder = small_qdq_model()
    builder.node("Relu", ["y"], "relu", name="relu")
    h = builder.qdq("relu", 0.05, np.uint8(0))
    h = builder.node("MaxPool", [h], "pool", name="pool", kernel_shape=[2, 2], strides=[2, 2])
    h = builder.qdq(h, 0.05, np.uint8(0))
    h = builder.node("GlobalAveragePool", [h], "mean", name="mean")
    h = builder.qdq(h, 0.03, np.uint8(3))
    h = builder.node("Flatten", [h], "flat", name="flat")
    h = builder.qdq(h, 0.03, np.uint8(3))
    w = builder.weight("fc", integers(np.random.default_rng(3), "int8", (4, 10)), 0.01, np.int8(0))
    h = builder.node("MatMul", [h, w], "logits", name="fc")
    builder.node("Softmax", [builder.qdq(h, 0.04, np.uint8(128))], "probabilities", name="softmax")
    model = builder.model(["logits_q_real", "probabilities"])
    model.graph.output.pop()
    graph = agree(model)
    assert [(node.op, node.name) for node in graph.nodes] == [
        ("Quantize", "x_q_node"),
        ("Conv", "conv"),
        ("MaxPool", "pool"),
        ("GlobalAveragePool", "mean"),
        ("Reshape", "flat"),
        ("Gemm", "fc"),
        ("Dequantize", "logits_q_real_node"),
    ]
    assert [node.output for node in graph.nodes][:4] == ["x_q", "relu_q", "pool_q", "mean_q"]
    assert graph.tensor("w").quantization.axis == 0
    assert graph.tensor("fc").shape == (10, 4)
    full = imported(builder.model(["probabilities"]))
    assert [node.op for node in split(full).tail] == ["Dequantize", "Softmax"]


def test_a_qoperator_network_end_to_end():
    random = np.random.default_rng(4)
    builder = OnnxBuilder()
    builder.input("x", [1, 3, 8, 8])
    q = builder.quantize("x", "q", 0.02, np.uint8(120))
    conv = [
        q,
        *builder.scale("q", 0.02, np.uint8(120)),
        builder.constant("w", integers(random, "int8", (4, 3, 3, 3))),
    ]
    conv += [*builder.scale("w", [0.01] * 4, np.zeros(4, np.int8)), *builder.scale("c", 0.06, np.uint8(9))]
    c = builder.node("QLinearConv", conv, "c", name="conv", auto_pad="SAME_LOWER", strides=[2, 2])
    same = builder.scale("c", 0.06, np.uint8(9))
    d = builder.node("MaxPool", [c], "d", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    e = builder.node(
        "QLinearAdd", [c, *same, d, *same, *builder.scale("e", 0.1, np.uint8(5))], "e", domain=CONTRIB
    )
    pool = [e, *builder.scale("e", 0.1, np.uint8(5)), *builder.scale("f", 0.07, np.uint8(4))]
    f = builder.node("QLinearAveragePool", pool, "f", domain=CONTRIB, kernel_shape=[2, 2])
    mean = [f, *builder.scale("f", 0.07, np.uint8(4)), *builder.scale("g", 0.05, np.uint8(4))]
    g = builder.node("QLinearGlobalAveragePool", mean, "g", domain=CONTRIB)
    h = builder.node("Reshape", [g, builder.constant("shape", [0, -1], np.int64)], "h")
    gemm = [
        h,
        *builder.scale("g", 0.05, np.uint8(4)),
        builder.constant("m", integers(random, "int8", (5, 4))),
    ]
    gemm += [*builder.scale("m", 0.02, np.int8(0)), "", *builder.scale("i", 0.09, np.uint8(100))]
    i = builder.node("QGemm", gemm, "i", domain=CONTRIB, transB=1, name="fc")
    builder.dequantize(i, 0.09, np.uint8(100))
    graph = agree(builder.model(["i_real"]))
    assert operators(graph) == [
        "Quantize",
        "Conv",
        "MaxPool",
        "Add",
        "AveragePool",
        "GlobalAveragePool",
        "Reshape",
        "Gemm",
        "Dequantize",
    ]
    assert [node.output for node in graph.nodes] == [*"qcdefghi", "i_real"]


def test_integer_inputs_take_the_scale_of_their_reader():
    builder = OnnxBuilder()
    x = builder.input("x", [1, 2, 4, 4], "int8")
    pooled = builder.node("MaxPool", [x], "p", kernel_shape=[2, 2])
    builder.dequantize(pooled, 0.25, np.int8(-3))
    graph = imported(builder.model(["p_real"]))
    assert (graph.tensor("x").scale, graph.tensor("x").zero_point) == (0.25, -3)
    assert operators(graph) == ["MaxPool", "Dequantize"]


def test_weights_stored_as_float_are_folded():
    """Constant -> QuantizeLinear -> DequantizeLinear (-> Transpose), per channel."""
    random = np.random.default_rng(5)
    weight = random.normal(0, 1, (6, 5)).astype(np.float32)
    scale = (np.abs(weight).max(axis=1) / 127).astype(np.float32)
    builder = OnnxBuilder()
    x = builder.qdq(builder.input("x", [2, 5]), 0.02, np.uint8(128))
    builder.node("Constant", [], "w", value=onnx.numpy_helper.from_array(weight))
    q = builder.quantize("w", "w_q", scale, np.zeros(6, np.int8), axis=0)
    w = builder.node("Transpose", [builder.dequantize(q, scale, np.zeros(6, np.int8), axis=0)], "wt")
    builder.qdq(builder.node("MatMul", [x, w], "y"), 0.05, np.uint8(128))
    graph = imported(builder.model(["y_q_real"]))
    assert np.array_equal(graph.tensor("w_q").data, np.rint(weight / scale[:, None]).astype(np.int8))
    assert graph.tensor("w_q").quantization.axis == 0


def test_float_and_rescaled_biases_take_the_accumulators_scale():
    random = np.random.default_rng(6)
    weight = integers(random, "int8", (3, 5))
    bias = random.normal(0, 3, 3).astype(np.float32)
    scale = np.float32(0.02) * np.float32(0.01)
    graphs = []
    for form in ("float", "exact", "rescaled", "added"):
        builder = OnnxBuilder()
        x = builder.qdq(builder.input("x", [2, 5]), 0.02, np.uint8(128))
        w = builder.weight("w", weight if form != "added" else weight.T, 0.01, np.int8(0))
        if form in ("float", "added"):
            b = builder.constant("b", bias)
        else:
            own = scale if form == "exact" else scale / 1024
            b = builder.weight("b", np.rint(bias / own).astype(np.int32), own, np.int32(0))
        if form == "added":
            y = builder.node("Add", [b, builder.node("MatMul", [x, w], "product", name="fc")], "y")
        else:
            y = builder.node("Gemm", [x, w, b], "y", transB=1, name="fc")
        builder.qdq(y, 0.05, np.uint8(128))
        graphs.append(imported(builder.model(["y_q_real"])))
    for graph in graphs:
        assert graph.nodes[1].name == "fc"
        assert np.array_equal(graph.tensor("b").data, np.rint(bias / scale).astype(np.int32))
        assert graph.tensor("b").scale == pytest.approx(float(scale))


def test_a_bias_shared_by_two_scales_is_kept_twice():
    builder = OnnxBuilder()
    x = builder.qdq(builder.input("x", [2, 5]), 0.02, np.uint8(128))
    b = builder.constant("b", [1.0, 2.0], np.float32)
    for name, scale in (("one", 0.01), ("two", 0.02)):
        w = builder.weight(name, np.ones((2, 5), np.int8), scale, np.int8(0))
        builder.qdq(builder.node("Gemm", [x, w, b], f"y{name}", transB=1), 0.05, np.uint8(128))
    graph = imported(builder.model(["yone_q_real", "ytwo_q_real"]))
    assert graph.tensor("b").data.tolist() == [5000, 10000]
    assert graph.tensor("b_1").data.tolist() == [2500, 5000]


@pytest.mark.parametrize("opset", [10, 13])
def test_clips_become_clamps_or_vanish(opset):
    def clip(x, output, low, high):
        if opset < 11:
            return builder.node("Clip", [x], output, name=output, min=low, max=high)
        bounds = [builder.constant(f"{output}{v}", v, np.float32) for v in (low, high)]
        return builder.node("Clip", [x, *bounds], output, name=output)

    builder = OnnxBuilder(opset)
    x = builder.qdq(builder.input("x", [1, 5]), 0.1, np.uint8(100))
    w = builder.weight("w", np.ones((5, 5), np.int8), 0.1, np.int8(0))
    y = builder.node("MatMul", [x, w], "y")
    relu6 = builder.qdq(clip(y, "relu6", 0.0, 6.0), 0.1, np.uint8(10))  # fused
    noop = builder.qdq(clip(relu6, "noop", -1.0, 24.5), 0.1, np.uint8(10))  # the whole range
    own = builder.qdq(clip(noop, "own", 0.5, 3.0), 0.1, np.uint8(10))  # on its own
    scale = builder.qdq(
        builder.node("Relu", [own], "relu", name="relu"), 0.05, np.uint8(0)
    )  # and a new scale
    graph = imported(builder.model([scale]))
    assert [(n.op, n.name, getattr(n, "clamp", None)) for n in graph.nodes[1:-1]] == [
        ("Gemm", "y_node", (10, 70)),
        ("Requantize", "own", (15, 40)),
        ("Requantize", "relu", (0, 255)),
    ]
    fused = optimize(graph, check=True)
    assert [getattr(n, "clamp", None) for n in fused.nodes[1:-1]] == [(15, 40), (0, 255)]


def test_clips_in_a_row_are_one_clamp():
    builder = small_qdq_model()
    h = "y"
    for i, bounds in enumerate([(0.0, 6.0), (0.5, 9.0), (-1.0, 3.0)]):
        limits = [builder.constant(f"{name}{i}", v, np.float32) for name, v in zip("lh", bounds, strict=True)]
        h = builder.node("Clip", [h, *limits], f"clip{i}")
    graph = agree(builder.model([builder.qdq(h, 0.1, np.uint8(10))]))
    assert graph.nodes[1].clamp == (15, 40)


def test_moves_with_another_scale_get_a_requantize():
    builder = OnnxBuilder()
    x = builder.qdq(builder.input("x", [1, 2, 4, 4]), 0.1, np.uint8(100))
    pool = builder.qdq(builder.node("MaxPool", [x], "p", kernel_shape=[2, 2], name="pool"), 0.2, np.uint8(50))
    flat = builder.node("Flatten", [pool], "f", name="flat")
    squeezed = builder.node(
        "Unsqueeze", [flat, builder.constant("axes", [-1], np.int64)], "u", name="unsqueeze"
    )
    model = builder.model(["u"])
    assert squeezed == "u"
    graph = imported(model)
    assert operators(graph) == ["Quantize", "Requantize", "MaxPool", "Reshape", "Reshape", "Dequantize"]
    assert graph.nodes[2].output == "p_q"
    assert graph.tensor("u").shape == (1, 18, 1)
    data = np.random.default_rng(0).normal(0, 9, (1, 2, 4, 4)).astype(np.float32)
    assert np.allclose(reference.run(graph, {"x": data})["u"], oracle(model, {"x": data})["u"], atol=0.2)


def test_dequantised_relu_is_done_on_the_integers():
    """DequantizeLinear -> Relu -> Flatten -> Gemm and no QuantizeLinear: exact, since 0 is a step."""
    builder = OnnxBuilder()
    x = builder.qdq(builder.input("x", [1, 5, 1, 1]), 0.1, np.uint8(100))
    flat = builder.node("Flatten", [builder.node("Relu", [x], "r", name="relu")], "f")
    w = builder.weight("w", np.ones((5, 5), np.int8), 0.1, np.int8(0))
    y = builder.qdq(builder.node("MatMul", [flat, w], "y"), 0.1, np.uint8(10))
    graph = imported(builder.model([y]))
    assert operators(graph) == ["Quantize", "Requantize", "Reshape", "Gemm", "Dequantize"]
    assert graph.nodes[1].clamp == (100, 255)


@pytest.mark.parametrize(("opset", "keepdims"), [(13, 0), (13, 1), (18, 0)])
def test_reduce_mean_is_a_global_average_pool(opset, keepdims):
    builder = OnnxBuilder(opset)
    x = builder.qdq(builder.input("x", [1, 2, 4, 4]), 0.1, np.uint8(100))
    axes = [builder.constant("axes", [-1, -2], np.int64)] if opset >= 18 else []
    options = {} if axes else {"axes": [2, 3]}
    y = builder.node("ReduceMean", [x, *axes], "y", name="mean", keepdims=keepdims, **options)
    graph = imported(builder.model([builder.qdq(y, 0.05, np.uint8(100))]))
    expected = ["Quantize", "GlobalAveragePool", *([] if keepdims else ["Reshape"]), "Dequantize"]
    assert operators(graph) == expected
    assert graph.tensor("y_q").shape == ((1, 2, 1, 1) if keepdims else (1, 2))


def test_quantised_softmax_stays_at_the_tail():
    builder = small_qdq_model()
    h = builder.node("Softmax", [builder.qdq("y", 0.05, np.uint8(100))], "s", axis=1)
    builder.qdq(h, 1 / 256, np.uint8(0))
    graph = imported(builder.model(["s_q_real"]))
    assert [node.op for node in split(graph).tail] == ["Dequantize", "Softmax", "Quantize", "Dequantize"]

    builder = OnnxBuilder()
    q = builder.quantize(builder.input("x", [1, 7]), "q", 0.1, np.uint8(100))
    pooled = builder.node("Reshape", [q, builder.constant("shape", [7, 1], np.int64)], "r")
    inputs = [pooled, *builder.scale("q", 0.1, np.uint8(100)), *builder.scale("s", 1 / 256, np.uint8(0))]
    builder.node("QLinearSoftmax", inputs, "s", domain=CONTRIB, axis=0, opset=13)
    model = builder.model({"s": "uint8"})
    graph = imported(model)
    assert [node.op for node in split(graph).tail] == ["Dequantize", "Softmax", "Quantize"]
    data = {"x": np.random.default_rng(0).normal(0, 1, (1, 7)).astype(np.float32)}
    difference = reference.run(graph, data)["s"].astype(int) - oracle(model, data)["s"]
    assert np.abs(difference).max() <= 1


def test_identity_and_dropout_and_outputs_of_the_same_value():
    builder = small_qdq_model()
    h = builder.node("Dropout", [builder.qdq("y", 0.05, np.uint8(100))], "dropped")
    builder.node("Identity", [h], "copy")
    builder.node("Identity", ["y_q"], "raw")
    model = builder.model({"dropped": "float32", "copy": "float32", "y_q": "uint8", "raw": "uint8"})
    graph = agree(model)
    assert graph.outputs == ("dropped", "copy", "y_q", "raw")


def test_ceil_mode_that_changes_nothing_is_taken():
    builder = OnnxBuilder()
    x = builder.qdq(builder.input("x", [1, 2, 4, 4]), 0.1, np.uint8(100))
    builder.node("MaxPool", [x], "y", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)
    assert imported(builder.model(["y"])).tensor("y").shape == (1, 2, 2, 2)


def test_dynamic_shapes_are_resolved():
    builder = OnnxBuilder()
    builder.input("x", ["batch", 3, "height", "width"])
    builder.dequantize(builder.quantize("x", "q", 0.1, np.uint8(0)), 0.1, np.uint8(0))
    builder.node("MaxPool", ["q_real"], "y", kernel_shape=[2, 2])
    graph = imported(builder.model(["y"]), input_shapes={"x": (1, 3, 9, 7)})
    assert graph.tensor("y").shape == (1, 3, 8, 6)


def test_unnamed_and_equally_named_nodes_get_unique_names():
    builder = small_qdq_model()
    for node in builder.nodes:
        node.name = ""
    h = builder.qdq("y", 0.05, np.uint8(0))
    for i in (1, 2):
        h = builder.qdq(
            builder.node("MaxPool", [h], f"m{i}", kernel_shape=[1, 1], name="same"), 0.05, np.uint8(0)
        )
    graph = imported(builder.model([h]))
    assert [node.name for node in graph.nodes][:4] == ["QuantizeLinear_x_q", "Conv_y", "same", "same_1"]


def test_the_same_file_gives_the_same_graph(tmp_path):
    builder = small_qdq_model()
    path = saved(builder.model([builder.qdq("y", 0.05, np.uint8(0))]), tmp_path)
    first, second = load_model(path), load_model(str(path))
    assert first.nodes == second.nodes
    assert list(first.tensors) == list(second.tensors)
    assert first.name == "tiny"


def test_external_data_is_read(tmp_path):
    builder = small_qdq_model()
    model = builder.model([builder.qdq("y", 0.05, np.uint8(0))])
    inside = load_model(saved(model, tmp_path))
    onnx.save(model, tmp_path / "e.onnx", save_as_external_data=True, location="e.bin", size_threshold=0)
    outside = load_model(tmp_path / "e.onnx")
    assert np.array_equal(inside.tensor("w").data, outside.tensor("w").data)


# --- float models ---------------------------------------------------------------------------------------


def test_a_float_network_passes_the_check():
    """What PyTorch exports: Conv, BatchNormalization, Relu6, mean, and a Reshape computed from Shape."""
    builder = small_float_model()
    for name in ("scale", "bias", "mean", "variance"):
        builder.constant(name, np.ones(4), np.float32)
    h = builder.node("BatchNormalization", ["y", "scale", "bias", "mean", "variance"], "bn", name="bn")
    six = builder.constant("six", 6, np.float32)
    h = builder.node("Clip", [h, builder.constant("zero", 0, np.float32), six], "relu6")
    h = builder.node("Add", [h, builder.node("AveragePool", [h], "p", kernel_shape=[1, 1])], "sum")
    mean = builder.node("GlobalAveragePool", [h], "mean4")
    shape = builder.node("Shape", [h], "shape")
    batch = builder.node("Gather", [shape, builder.constant("index", [0], np.int64)], "batch")
    target = builder.node("Concat", [batch, builder.constant("rest", [-1], np.int64)], "target", axis=0)
    flat = builder.node("Reshape", [mean, target], "flat")
    w = builder.constant("fc", np.ones((4, 2)), np.float32)
    logits = builder.node(
        "Add",
        [builder.node("MatMul", [flat, w], "product"), builder.constant("c", [1, 2], np.float32)],
        "logits",
    )
    builder.node("Softmax", [logits], "out")
    model = builder.model(["out", "logits"])
    assert not is_quantized(model)
    check_float(model)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    check_float(model, input_shapes={"x": (1, 3, 8, 8)})


def test_read_onnx_gives_the_model(tmp_path):
    model = small_qdq_model().model(["y"])
    assert read_onnx(saved(model, tmp_path)) == model
    assert is_quantized(model)
