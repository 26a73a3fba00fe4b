"""What the importer refuses: every refusal names the node, tensor, input or file, and has a hint."""

import os

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from sdk.errors import InvalidModel, TowlineError, Unsupported, UsageError
from sdk.importers import check_float, load_model, read_onnx
from tests.onnx_models import (
    CONTRIB,
    OnnxBuilder,
    imported,
    integers,
    saved,
    small_float_model,
    small_qdq_model,
)


def refused(call, error, *fragments):
    with pytest.raises(TowlineError) as caught:
        call()
    assert type(caught.value) is error, caught.value
    for fragment in fragments:
        assert fragment in str(caught.value), caught.value
    return caught.value


# --- files ----------------------------------------------------------------------------------------------


def test_files_that_are_not_models(tmp_path):
    good = saved(small_qdq_model().model(["y"]), tmp_path).read_bytes()
    for name, content in {
        "cut": good[: len(good) // 2],
        "empty": b"",
        "text": b"hello, this is not a network\n" * 20,
        "png": b"\x89PNG\r\n\x1a\n" + bytes(100),
        "zeros": bytes(1000),
        "blank": onnx.ModelProto(ir_version=8).SerializeToString(),
    }.items():
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(content)
        refused(lambda path=path: load_model(path), InvalidModel, str(path))
    refused(lambda: read_onnx(tmp_path / "nowhere.onnx"), UsageError, "nowhere.onnx", "no such file")
    refused(lambda: read_onnx(tmp_path), UsageError, "directory")
    refused(lambda: read_onnx("nul\0.onnx"), UsageError, "no such file")


def test_a_pipe_is_refused_rather_than_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.onnx")
    refused(lambda: read_onnx(tmp_path / "pipe.onnx"), UsageError, "pipe.onnx", "regular file")


@pytest.mark.parametrize("step", range(1, 40))
def test_a_file_cut_anywhere_is_refused(tmp_path, step):
    builder = small_qdq_model()
    good = builder.model([builder.qdq("y", 0.05, np.uint8(0))]).SerializeToString()
    path = tmp_path / "cut.onnx"
    path.write_bytes(good[: len(good) * step // 40])
    with pytest.raises(TowlineError):
        load_model(path)


def test_missing_and_escaping_external_data(tmp_path):
    builder = small_qdq_model()
    model = builder.model([builder.qdq("y", 0.05, np.uint8(0))])
    path = tmp_path / "e.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    (tmp_path / "weights.bin").write_bytes(b"")
    refused(lambda: load_model(path), InvalidModel)
    (tmp_path / "weights.bin").unlink()
    error = refused(lambda: load_model(path), InvalidModel, "weights.bin", "external data")
    assert "beside" in error.hint
    stored = onnx.load(path, load_external_data=False)
    for tensor in stored.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = "../../etc/passwd"
    path.write_bytes(stored.SerializeToString())
    refused(lambda: load_model(path), InvalidModel, "etc/passwd")
    stored.graph.initializer[0].external_data[0].value = "nul\0"
    path.write_bytes(stored.SerializeToString())
    refused(lambda: load_model(path), InvalidModel)


def test_a_text_anywhere_that_is_none(tmp_path):
    model = small_qdq_model().model(["y"])
    model.producer_version = "version"
    path = tmp_path / "t.onnx"
    path.write_bytes(model.SerializeToString().replace(b"version", b"\xff" * 7))
    refused(lambda: read_onnx(path), InvalidModel, str(path))


@pytest.mark.parametrize("version", [-1, 1 << 31, (1 << 63) - 1])
def test_opsets_that_are_no_numbers_of_onnx(tmp_path, version):
    model = small_qdq_model().model(["y"])
    model.opset_import.add(domain="com.microsoft", version=version)
    path = saved(model, tmp_path)
    refused(lambda: read_onnx(path), InvalidModel, str(path))


def test_functions_that_call_themselves():
    model = small_qdq_model().model(["y"])
    function = model.functions.add(name="f", domain="local")
    function.node.append(helper.make_node("f", [], ["y"], domain="local"))
    function.opset_import.append(helper.make_opsetid("local", 1))
    model.opset_import.append(helper.make_opsetid("local", 1))
    refused(lambda: imported(model), InvalidModel)


@pytest.mark.parametrize(
    ("op", "shapes", "attributes"),
    [
        ("GatherElements", [(1, 1 << 27), (1, 1 << 27)], {"axis": 1}),
        ("OneHot", [(4,), (), (2,)], {}),
        ("CumSum", [(1 << 15,), ()], {}),
    ],
)
def test_shapes_of_which_the_importer_would_make_gigabytes(op, shapes, attributes):
    builder = OnnxBuilder(18)
    names = [builder.input(f"x{i}", shape) for i, shape in enumerate(shapes) if shape]
    if op == "GatherElements":
        builder.inputs[1].type.tensor_type.elem_type = TensorProto.INT64
    if op == "OneHot":
        names.insert(1, builder.constant("depth", np.int64(1 << 28)))
    if op == "CumSum":
        names.append(builder.constant("axis", np.int64(0)))
    builder.node(op, names, "y", **attributes)
    model = builder.model(["y"])
    refused(lambda: imported(model), Unsupported)


def test_old_opsets_and_sparse_initializers():
    builder = small_qdq_model()
    model = builder.model([builder.qdq("y", 0.05, np.uint8(0))])
    model.graph.sparse_initializer.add()
    refused(lambda: imported(model), Unsupported, "sparse")
    del model.graph.sparse_initializer[:]
    model.opset_import[0].version = 5
    assert refused(lambda: imported(model), Unsupported, "opset 5").hint


# --- inputs ---------------------------------------------------------------------------------------------


def dynamic(*shape, dtype="float32"):
    builder = OnnxBuilder()
    builder.input("x", shape, dtype)
    builder.dequantize(builder.quantize("x", "q", 0.1, np.uint8(0)), 0.1, np.uint8(0))
    return builder.model(["q_real"])


def test_dynamic_shapes_say_what_to_pass():
    error = refused(lambda: imported(dynamic("N", 3, "H", "W")), Unsupported, "input x", "[N, 3, H, W]")
    assert error.hint == "pass --input-shape x=1x3x224x224"
    assert "x=1x1" in refused(lambda: imported(dynamic(1, "N")), Unsupported, "input x").hint
    float_model = small_float_model().model(["y"])
    float_model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    error = refused(lambda: check_float(float_model), Unsupported, "input x", "batch")
    assert error.hint == "pass --input-shape x=1x3x8x8"
    float_model.graph.input[0].type.tensor_type.ClearField("shape")
    refused(lambda: check_float(float_model), Unsupported, "input x", "not given")


@pytest.mark.parametrize(
    ("shapes", "fragment"),
    [
        ({"z": (1,)}, "'z'"),
        ({"x": (1, 3)}, "input x"),
        ({"x": (1, 4, 8, 8)}, "input x"),
        ({"x": (1, 3, 0, 8)}, "input x"),
        ({"x": (-1, 3, 8, 8)}, "input x"),
        ({"x": "1x3x8x8"}, "tuple of whole numbers"),
        ({"x": 3}, "tuple of whole numbers"),
        ({"x": (1, 3, 8.0, 8)}, "tuple of whole numbers"),
    ],
)
def test_wrong_input_shapes(shapes, fragment):
    refused(lambda: imported(dynamic("N", 3, "H", "W"), input_shapes=shapes), UsageError, fragment)


def test_input_types():
    for dtype in (TensorProto.STRING, TensorProto.COMPLEX64, TensorProto.INT4, TensorProto.UINT64):
        model = dynamic(1, 3)
        model.graph.input[0].type.tensor_type.elem_type = dtype
        refused(lambda model=model: imported(model), Unsupported, "input x", "its type is")
    refused(lambda: imported(dynamic(1, 3, dtype="float16")), InvalidModel, "q_node", "float16")


# --- operators of a float model -------------------------------------------------------------------------


FLOAT = {
    "custom": ({"op": "Foo", "inputs": ["y"], "domain": "my.ops"}, Unsupported, "my.ops"),
    "nonsense": ({"op": "Foo", "inputs": ["y"]}, Unsupported, "Foo"),
    "transpose": ({"op": "Transpose", "inputs": ["y"], "perm": [0, 2]}, InvalidModel, "perm [0, 2]"),
    "add constant": ({"op": "Add", "inputs": ["y", "matrix"]}, InvalidModel, "do not broadcast"),
    "dynamic weight": ({"op": "Conv", "inputs": ["y", "y"]}, Unsupported, "weight 'y' is not a constant"),
    "conv rank": ({"op": "Conv", "inputs": ["rows2", "matrix"]}, Unsupported, "two dimensions"),
    "negative pads": (
        {"op": "Conv", "inputs": ["y", "kernel"], "pads": [-1, 0, 0, 0]},
        Unsupported,
        "negative pads",
    ),
    "kernel shape": (
        {"op": "Conv", "inputs": ["y", "kernel"], "kernel_shape": [3, 3]},
        InvalidModel,
        "kernel_shape",
    ),
    "strides": ({"op": "Conv", "inputs": ["y", "kernel"], "strides": [0, 1]}, InvalidModel, "strides"),
    "group": ({"op": "Conv", "inputs": ["y", "kernel"], "group": 2}, InvalidModel, "2 groups"),
    "no group": ({"op": "Conv", "inputs": ["y", "kernel"], "group": 0}, InvalidModel, "0 groups"),
    "huge kernel": ({"op": "Conv", "inputs": ["y", "big"]}, InvalidModel, "does not fit"),
    "bias length": ({"op": "Conv", "inputs": ["y", "kernel", "three"]}, InvalidModel, "bias"),
    "nan": ({"op": "Conv", "inputs": ["y", "nan"]}, InvalidModel, "initializer nan"),
    "float16": ({"op": "Conv", "inputs": ["y", "half"]}, Unsupported, "float16"),
    "gemm rank": ({"op": "MatMul", "inputs": ["y", "matrix"]}, InvalidModel, "does not fit"),
    "matmul left": ({"op": "MatMul", "inputs": ["matrix", "rows2"]}, InvalidModel, "does not fit"),
    "matmul of two": ({"op": "MatMul", "inputs": ["rows2", "rows2"]}, InvalidModel, "does not fit"),
    "gemm sizes": ({"op": "Gemm", "inputs": ["rows2", "matrix"]}, InvalidModel, "does not fit"),
    "alpha": ({"op": "Gemm", "inputs": ["rows2", "wide"], "alpha": 0.5}, Unsupported, "alpha = 0.5"),
    "beta": ({"op": "Gemm", "inputs": ["rows2", "wide", "three"], "beta": 2.0}, Unsupported, "beta = 2"),
    "transA": ({"op": "Gemm", "inputs": ["rows2", "wide"], "transA": 1}, Unsupported, "transA"),
    "bias per row": (
        {"op": "Gemm", "inputs": ["rows2", "wide", "column"]},
        InvalidModel,
        "bias has shape [3, 1]",
    ),
    "pool in padding": (
        {"op": "MaxPool", "inputs": ["y"], "kernel_shape": [2, 2], "pads": [2, 2, 2, 2]},
        InvalidModel,
        "in the padding",
    ),
    "pool rank": ({"op": "MaxPool", "inputs": ["rows2"], "kernel_shape": [2]}, Unsupported, "[N,C,H,W]"),
    "pads length": (
        {"op": "MaxPool", "inputs": ["y"], "kernel_shape": [2, 2], "pads": [1, 1]},
        InvalidModel,
        "pads",
    ),
    "storage order": (
        {"op": "MaxPool", "inputs": ["y"], "kernel_shape": [2, 2], "storage_order": 1},
        Unsupported,
        "storage_order",
    ),
    "mean axes out of range": (
        {"op": "ReduceMean", "inputs": ["y"], "axes": [6, 3]},
        InvalidModel,
        "axes [6, 3] of rank 4",
    ),
    "squeeze axis out of range": ({"op": "Squeeze", "inputs": ["pooled", "axes6"]}, InvalidModel, "axes [6]"),
    "unsqueeze axis out of range": (
        {"op": "Unsqueeze", "inputs": ["pooled", "axes6"]},
        InvalidModel,
        "axes [6] of rank 5",
    ),
    "int32 bias": ({"op": "Conv", "inputs": ["y", "kernel", "whole"]}, Unsupported, "'whole' is int32"),
    "random weights": ({"op": "RandomNormalLike", "inputs": ["kernel"]}, Unsupported, "RandomNormalLike"),
    "training on constants": ({"op": "Dropout", "inputs": ["kernel", "", "yes"]}, Unsupported, "training"),
    "training": ({"op": "Dropout", "inputs": ["y", "", "yes"]}, Unsupported, "training"),
    "late norm": (
        {"op": "BatchNormalization", "inputs": ["pooled"] + ["four"] * 4},
        Unsupported,
        "follow a Conv",
    ),
    "clip order": ({"op": "Clip", "inputs": ["y", "two", "one"]}, InvalidModel, "Clip to [2.0, 1.0]"),
    "clip vector": ({"op": "Clip", "inputs": ["y", "three"]}, InvalidModel, "not a scalar"),
    "reshape": ({"op": "Reshape", "inputs": ["y", "shape"]}, InvalidModel, "to [3, 5]"),
    "clip dynamic": ({"op": "Clip", "inputs": ["y", "y"]}, InvalidModel, "not a scalar"),
    "reshape dynamic": ({"op": "Reshape", "inputs": ["y", "y"]}, InvalidModel, "float32"),
    "flatten": ({"op": "Flatten", "inputs": ["y"], "axis": 9}, InvalidModel, "axis 9"),
    "squeeze": ({"op": "Squeeze", "inputs": ["y", "axes1"]}, InvalidModel, "Squeeze"),
    "softmax axis": ({"op": "Softmax", "inputs": ["y"], "axis": 7}, InvalidModel, "axis 7"),
    "undefined": ({"op": "Relu", "inputs": ["ghost"]}, InvalidModel, "ghost"),
    "no input": ({"op": "Relu", "inputs": []}, InvalidModel, "bad"),
    "no scale": ({"op": "BatchNormalization", "inputs": ["y"]}, InvalidModel, "bad"),
}


def float_model(op, inputs, opset=13, domain="", **attributes):
    builder = small_float_model()
    builder.opset = opset
    constants = {
        "kernel": np.ones((2, 4, 1, 1)),
        "big": np.ones((2, 4, 9, 9)),
        "matrix": np.ones((4, 2)),
        "wide": np.ones((256, 3)),
        "three": np.ones(3),
        "four": np.ones(4),
        "column": np.ones((3, 1)),
        "cube": np.ones((1, 1, 3)),
        "one": 1.0,
        "two": 2.0,
    }
    for name, array in constants.items():
        builder.constant(name, array, np.float32)
    builder.constant("half", np.ones((2, 4, 1, 1)), np.float16)
    builder.constant("nan", np.full((2, 4, 1, 1), np.nan), np.float32)
    builder.constant("shape", [3, 5], np.int64)
    builder.constant("flat", [1, 256], np.int64)
    builder.constant("flat3", [1, 4, 64], np.int64)
    builder.constant("axes1", [1], np.int64)
    builder.constant("axes6", [6], np.int64)
    builder.constant("whole", [1, 2], np.int32)
    builder.constant("yes", True)
    if op == "Gemm" and "column" in inputs:
        builder.input("x3", [3, 256])
        builder.node("Relu", ["x3"], "rows2")
    else:
        builder.node("Reshape", ["y", "flat"], "rows2")
    builder.node("Reshape", ["y", "flat3"], "rows")
    builder.node("GlobalAveragePool", ["y"], "pooled")
    if "product" in inputs:
        builder.node("MatMul", ["rows2", "wide"], "product")
    builder.node(op, inputs, "z", name="bad", domain=domain, **attributes)
    used = {"x", "w", "b", *inputs, "flat", "flat3", "wide"}
    builder.initializers = [t for t in builder.initializers if t.name in used]
    model = builder.model(["z"])
    if domain not in ("", CONTRIB):
        model.opset_import.append(helper.make_opsetid(domain, 1))
    return model


@pytest.mark.slow
@pytest.mark.parametrize("case", FLOAT)
def test_float_models_are_refused_by_node_name(case):
    arguments, error, fragment = FLOAT[case]
    model = float_model(**arguments)
    caught = refused(lambda: check_float(model), error, fragment)
    if not fragment.startswith("initializer"):
        assert "bad" in str(caught)
    if "not supported" in fragment:
        assert caught.hint


STAYS_FLOAT = {
    "unknown": {"op": "Sin", "inputs": ["y"]},
    "split": {"op": "Split", "inputs": ["y"]},
    "broadcast": {"op": "Add", "inputs": ["y", "pooled"]},
    "ceil": {"op": "MaxPool", "inputs": ["y"], "kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
    "dilated mean": {
        "op": "AveragePool",
        "inputs": ["y"],
        "kernel_shape": [3, 3],
        "dilations": [2, 2],
        "opset": 19,
    },
    "global rank": {"op": "GlobalAveragePool", "inputs": ["rows"]},
    "mean axes": {"op": "ReduceMean", "inputs": ["y"], "axes": [1]},
    "constant of higher rank": {"op": "Add", "inputs": ["product", "cube"]},
}
"""Without a quantised form, and with a plain one."""


@pytest.mark.parametrize("case", STAYS_FLOAT)
def test_what_has_no_quantised_form_stays_float(case):
    (stays,) = check_float(float_model(**STAYS_FLOAT[case]))
    assert (stays.name, stays.op) == ("bad", STAYS_FLOAT[case]["op"])
    assert stays.reason


@pytest.mark.parametrize("output", [False, True])
@pytest.mark.parametrize("alias", [False, True])
def test_a_convolution_read_beside_its_normalisation_cannot_be_folded(alias, output):
    builder = small_float_model()
    four = builder.constant("four", np.ones(4), np.float32)
    y = builder.node("Identity", ["y"], "same") if alias else "y"
    n = builder.node("BatchNormalization", [y, *[four] * 4], "n", name="bad")
    check_float(builder.model([n]))
    if not output:
        n = builder.node("Add", ["y", n], "sum")
    model = builder.model([n, "y"] if output else [n])
    refused(lambda: check_float(model), Unsupported, "node bad", "read elsewhere")


def test_softmax_in_the_middle():
    builder = small_float_model()
    builder.node("MaxPool", [builder.node("Softmax", ["y"], "s")], "z", name="pool", kernel_shape=[1, 1])
    assert [stays.op for stays in check_float(builder.model(["z"]))] == ["Softmax"]


def test_a_float_output_that_no_node_computes():
    model = small_float_model().model(["y", "z"])
    refused(lambda: check_float(model), InvalidModel, "z")
    refused(lambda: check_float(small_qdq_model().model(["y"])), Unsupported, "already quantised")


def test_maxpool_indices():
    builder = small_float_model()
    builder.node("MaxPool", ["y"], "z", name="pool", kernel_shape=[1, 1])
    builder.nodes[-1].output.append("where")
    refused(lambda: check_float(builder.model(["z"])), Unsupported, "node pool", "indices")


def test_initializers_whose_data_is_short():
    model = small_float_model().model(["y"])
    model.graph.initializer[0].raw_data = model.graph.initializer[0].raw_data[:-4]
    refused(lambda: check_float(model), InvalidModel, "w")


# --- quantised models -----------------------------------------------------------------------------------


def test_operators_of_quantised_models():
    builder = small_qdq_model()
    builder.qdq(builder.node("Det", ["y"], "s", name="bad"), 0.1, np.uint8(0))
    assert refused(lambda: imported(builder.model(["s_q_real"])), Unsupported, "node bad", "Det").hint


def test_outputs_that_are_not_results():
    builder = small_qdq_model()
    builder.qdq("y", 0.1, np.uint8(0))
    refused(lambda: imported(builder.model(["y_q_real", "x"])), Unsupported, "output x")


SCALES = {
    "zero": (0.0, np.uint8(0), InvalidModel, "scale is 0"),
    "nan": (np.nan, np.uint8(0), InvalidModel, "scale is nan"),
    "infinite": (np.inf, np.uint8(0), InvalidModel, "scale is inf"),
    "negative": (-0.5, np.uint8(0), InvalidModel, "scale is -0.5"),
    "two scales": ([0.1, 0.2], np.zeros(2, np.uint8), InvalidModel, "[2] scales"),
    "int32": (0.1, np.int32(0), InvalidModel, "int32"),
}


@pytest.mark.parametrize("case", SCALES)
def test_quantisation_of_activations(case):
    scale, zero_point, error, fragment = SCALES[case]
    builder = small_qdq_model()
    builder.opset = 21
    builder.quantize("y", "bad_tensor", scale, zero_point)
    builder.dequantize("bad_tensor", scale, zero_point)
    refused(lambda: imported(builder.model(["bad_tensor_real"])), error, "bad_tensor", fragment)


@pytest.mark.parametrize("element", [TensorProto.INT4, TensorProto.UINT4])
def test_other_quantised_types(element):
    builder = small_qdq_model()
    builder.opset = 21
    builder.initializers.append(helper.make_tensor("zp", element, [], [0]))
    builder.constant("s", 0.1, np.float32)
    builder.node("QuantizeLinear", ["y", "s", "zp"], "bad_tensor")
    builder.node("DequantizeLinear", ["bad_tensor", "s", "zp"], "z")
    refused(lambda: imported(builder.model(["z"])), Unsupported, "bad_tensor", "quantised to")


def test_readers_that_disagree_with_the_writer():
    builder = small_qdq_model()
    q = builder.quantize("y", "q", 0.1, np.uint8(0))
    scale, zero_point = builder.scale("other", 0.2, np.uint8(0))
    builder.node("DequantizeLinear", [q, scale, zero_point], "z", name="bad")
    refused(lambda: imported(builder.model(["z"])), InvalidModel, "node bad", "'q'")

    builder.nodes.pop()
    builder.node("DequantizeLinear", [q, scale, builder.constant("zp", 0, np.int8)], "z", name="bad")
    refused(lambda: imported(builder.model(["z"])), InvalidModel, "node bad", "zero-point is int8")


def qdq_weight(array, scale, zero_point, **attributes):
    builder = OnnxBuilder(21)
    x = builder.qdq(builder.input("x", [1, 4, 5, 5]), 0.1, np.uint8(100))
    builder.constant("weight", array)
    w = builder.dequantize("weight", scale, zero_point, **attributes)
    builder.qdq(builder.node("Conv", [x, w], "y", name="conv"), 0.1, np.uint8(0))
    return builder.model(["y_q_real"])


def test_quantisation_of_weights():
    weight = integers(np.random.default_rng(0), "int8", (3, 4, 1, 1))
    cases = [
        ((weight, [0.1, 0, 0.1], np.zeros(3, np.int8)), {"axis": 0}, InvalidModel, "weight", "scale is 0"),
        (
            (weight, [0.1, 0.1], np.zeros(2, np.int8)),
            {"axis": 0},
            InvalidModel,
            "weight",
            "scale of shape [2]",
        ),
        (
            (weight, [0.1] * 3, np.zeros(2, np.int8)),
            {"axis": 0},
            InvalidModel,
            "weight",
            "zero-point of shape [2]",
        ),
        ((weight, [0.1] * 3, np.zeros(3, np.int8)), {"axis": 9}, InvalidModel, "weight", "axis 9"),
        ((weight, 0.1, np.uint8(0)), {}, InvalidModel, "weight", "zero-point is uint8"),
        ((weight, 0.1, np.int32(300)), {}, InvalidModel, "weight", "zero-point is int32"),
    ]
    for arguments, attributes, error, *fragments in cases:
        model = qdq_weight(*arguments, **attributes)
        refused(lambda model=model: imported(model), error, *fragments)


def test_float_constants_that_are_not_numbers():
    builder = OnnxBuilder()
    x = builder.qdq(builder.input("x", [1, 2]), 0.1, np.uint8(100))
    w = builder.qdq(builder.constant("weight", [[np.nan, 1], [1, 1]], np.float32), 0.1, np.int8(0))
    builder.qdq(builder.node("MatMul", [x, w], "y"), 0.1, np.uint8(0))
    refused(lambda: imported(builder.model(["y_q_real"])), InvalidModel, "initializer weight", "NaN")


def test_biases():
    for bias, error, fragment in (
        (np.array([np.inf, 0], np.float32), InvalidModel, "initializer bias"),
        (np.zeros(2, np.float16), InvalidModel, "float16"),
        (np.zeros(3, np.float32), InvalidModel, "bias has shape [3]"),
    ):
        builder = OnnxBuilder()
        x = builder.qdq(builder.input("x", [1, 2]), 0.1, np.uint8(100))
        w = builder.weight("w", np.ones((2, 2), np.int8), 0.1, np.int8(0))
        b = builder.constant("bias", bias)
        builder.qdq(builder.node("Gemm", [x, w, b], "y", name="fc"), 0.1, np.uint8(0))
        model = builder.model(["y_q_real"])
        refused(lambda model=model: imported(model), error, "fc", fragment)


def test_a_bias_of_another_length_and_scale():
    builder = OnnxBuilder()
    x = builder.qdq(builder.input("x", [1, 2]), 0.1, np.uint8(100))
    w = builder.weight("w", np.ones((2, 3), np.int8), [0.1] * 3, np.zeros(3, np.int8), axis=1)
    b = builder.weight("bias", np.ones(2, np.int32), [0.5] * 2, np.zeros(2, np.int32))
    builder.qdq(builder.node("Gemm", [x, w, b], "y", name="fc"), 0.1, np.uint8(0))
    refused(lambda: imported(builder.model(["y_q_real"])), InvalidModel, "fc", "bias has shape [2]")


def test_accumulators_beyond_int32():
    builder = OnnxBuilder()
    x = builder.qdq(builder.input("x", [1, 70000]), 0.1, np.uint8(0))
    w = builder.weight("w", np.full((70000, 1), -128, np.int8), 0.1, np.int8(0))
    builder.qdq(builder.node("MatMul", [x, w], "y", name="fc"), 0.1, np.uint8(0))
    refused(lambda: imported(builder.model(["y_q_real"])), Unsupported, "node fc", "beyond int32")


def test_quantised_operators_with_gaps():
    builder = OnnxBuilder()
    q = builder.quantize(builder.input("x", [1, 4]), "q", 0.1, np.uint8(0))
    gemm = [q, *builder.scale("q", 0.1, np.uint8(0)), builder.constant("w", np.ones((4, 4), np.int8))]
    gemm += [*builder.scale("w", 0.1, np.int8(0))]
    builder.node("QGemm", gemm[:4], "y", domain=CONTRIB, name="fc")
    refused(lambda: imported(builder.model(["y"])), InvalidModel, "node fc")

    builder.nodes.pop()
    builder.node("QLinearAdd", [q, *builder.scale("q", 0.1, np.uint8(0))], "y", domain=CONTRIB, name="add")
    refused(lambda: imported(builder.model({"y": "uint8"})), InvalidModel, "node add")
