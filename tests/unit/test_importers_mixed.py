"""Float models and mixed ones as a whole: inputs, what is declared, folding, external data, refusals."""

import contextlib
import logging
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from sdk import reference
from sdk.compiler import compile
from sdk.errors import InvalidModel, TowlineError, Unsupported
from sdk.importers import load_onnx, survey
from sdk.segments import boundary
from sdk.session import Session
from tests.onnx_models import (
    OnnxBuilder,
    imported,
    integers,
    oracle,
    saved,
    small_float_model,
    small_qdq_model,
)
from tests.unit.test_importers_plain import agree, normal, one, operators

# --- models that are quantised in part ------------------------------------------------------------------


def quantised_agree(builder, outputs, tolerance=1e-4):
    """The graph of a model of x [1,3,8,8], at most one unit from onnxruntime in quantised outputs."""
    model = builder.model(outputs)
    graph, x = imported(model), normal(1, 3, 8, 8)
    values = reference.run(graph, {"x": x})
    for name, wanted in oracle(model, {"x": x}).items():
        found = values[name]
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        if wanted.dtype == np.float32:
            np.testing.assert_allclose(found, wanted, atol=tolerance)
        else:
            assert np.abs(found.astype(int) - wanted).max() <= 1
    return graph


def test_a_convolution_that_nothing_quantises_is_computed_in_floats():
    graph = quantised_agree(small_qdq_model(), ["y"])
    assert operators(graph) == ["Quantize", "Dequantize", "Conv"]
    assert graph.tensor("w/real").dtype == "float32"


def test_a_result_may_be_quantised_for_one_reader_and_float_for_another():
    builder = small_qdq_model()
    builder.quantize("y", "q", 0.05, np.uint8(128))
    builder.node("Sin", ["y"], "s")
    graph = quantised_agree(builder, {"q": "uint8", "s": "float32"})
    assert sorted(operators(graph)) == ["Conv", "Conv", "Dequantize", "Map", "Quantize"]


def test_a_constant_per_channel_and_a_slice_are_of_integers():
    builder = small_qdq_model()
    h = builder.qdq("y", 0.05, np.uint8(128))
    per_channel = builder.constant("per_channel", normal(4, 1, 1))
    h = builder.qdq(builder.node("Mul", [h, per_channel], "scaled", name="mul"), 0.05, np.uint8(128))
    bounds = [builder.constant(name, [v], np.int64) for name, v in (("from", 1), ("to", 3), ("axis", 2))]
    h = builder.node("Slice", [h, *bounds], "cut")
    builder.quantize(h, "z", 0.05, np.uint8(128))
    builder.quantize(builder.node("Slice", ["cut", *bounds], "again"), "other", 0.08, np.uint8(99))
    graph = quantised_agree(builder, {"z": "uint8", "other": "uint8"})
    assert [node.op for node in graph.nodes][2:] == ["Map", "Slice", "Reshape", "Slice", "Requantize"]


def test_nodes_that_joining_makes_have_names_of_their_own():
    builder = small_qdq_model()
    h = builder.qdq("y", 0.05, np.uint8(128))
    bounds = [builder.constant(name, [v], np.int64) for name, v in (("from", 1), ("to", 3), ("axis", 2))]
    h = builder.node("Slice", [h, *bounds], "cut", name="cut")
    builder.node("Sin", [h], "sine", name="cut/dequantize")
    graph = quantised_agree(builder, ["sine"])
    names = [node.name for node in graph.nodes]
    assert "cut/dequantize" in names
    assert len(set(names)) == len(names)


def test_maps_behind_one_another_are_joined_unless_another_node_reads_between():
    builder = small_qdq_model()
    h = builder.qdq("y", 0.05, np.uint8(128))
    scaled = builder.node("Mul", [h, builder.constant("m", normal(4, 1, 1))], "scaled", name="mul")
    shifted = builder.node("Add", [scaled, builder.constant("a", normal(1, 4, 1, 1))], "shifted", name="add")
    builder.quantize(shifted, "z", 0.05, np.uint8(128))
    graph = quantised_agree(builder, {"z": "uint8"})
    assert operators(graph)[2:] == ["Map"]
    assert graph.nodes[-1].name == "add"
    graph = quantised_agree(builder, {"z": "uint8", "scaled": "float32"})
    assert operators(graph)[2:] == ["Dequantize", "Map", "Map", "Quantize"]


def test_what_has_no_quantised_form_is_computed_between_dequantize_and_quantize():
    builder = small_qdq_model()
    h = builder.qdq("y", 0.05, np.uint8(128))
    total = builder.node("ReduceSum", [h, builder.constant("axes", [1], np.int64)], "total", name="sum")
    builder.quantize(builder.node("Sin", [total], "sine"), "z", 1 / 127, np.uint8(128))
    graph = quantised_agree(builder, {"z": "uint8"})
    assert [node.op for node in graph.nodes][2:] == ["Dequantize", "Reduce", "Map", "Quantize"]


def test_moves_and_bounds_of_a_float_input_are_computed_once():
    builder = OnnxBuilder()
    h = builder.node("Relu", [builder.node("Transpose", ["x"], "t", perm=[0, 1, 3, 2])], "r")
    builder.input("x", [1, 3, 8, 8])
    builder.quantize(h, "q", 0.05, np.uint8(0))
    builder.node("Sin", [h], "s")
    builder.node("Cos", [h], "c")
    graph = quantised_agree(builder, {"q": "uint8", "s": "float32", "c": "float32"})
    assert sorted(operators(graph)) == ["Map", "Map", "Map", "Quantize", "Transpose", "Transpose"]


def test_softmax_in_the_middle_and_its_quantisation():
    builder = small_qdq_model()
    h = builder.node("Softmax", [builder.qdq("y", 0.05, np.uint8(128))], "s", axis=1)
    h = builder.node("Mul", [builder.qdq(h, 1 / 256, np.uint8(0)), h], "product")
    builder.quantize(builder.node("GlobalAveragePool", [h], "pooled"), "z", 1 / 256, np.uint8(0))
    quantised_agree(builder, {"z": "uint8"})


def test_quantised_weights_of_a_float_network():
    builder = OnnxBuilder(21)
    x = builder.input("x", [2, 8])
    packed = integers(np.random.default_rng(0), "int8", (8, 6))
    w = builder.weight("w", packed, np.linspace(0.01, 0.02, 6), np.zeros(6, np.int8), axis=1)
    builder.initializers.append(helper.make_tensor("v", TensorProto.INT4, [6, 4], [-8, 7] * 12))
    v = builder.node(
        "DequantizeLinear",
        ["v", builder.constant("v_scale", np.full((3, 4), 0.1), np.float32)],
        "v_real",
        axis=0,
        block_size=2,
    )
    builder.node("MatMul", [builder.node("MatMul", [x, w], "h"), v], "y")
    graph = agree(builder.model(["y"]), {"x": normal(2, 8)}, atol=1e-4)
    assert operators(graph) == ["MatMul", "MatMul"]


@pytest.mark.parametrize("dtype", ["int16", "uint16"])
def test_other_widths_are_numbers_between_maps(dtype):
    builder = OnnxBuilder(21)
    zero_point = np.dtype(dtype).type(3)
    builder.qdq(builder.input("x", [4, 5]), 0.001, zero_point)
    builder.node("Relu", ["x_q_real"], "y")
    graph = agree(builder.model(["y"]), {"x": normal(4, 5)})
    assert graph.tensor("x_q").dtype == dtype
    assert operators(graph) == ["Map", "Map", "Map"]


def test_scales_computed_at_run_time():
    builder = OnnxBuilder()
    builder.input("x", [4, 5])
    builder.nodes.append(helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], name="dynamic"))
    builder.node("DequantizeLinear", ["q", "s", "z"], "y")
    agree(builder.model({"q": "uint8", "y": "float32"}), {"x": normal(4, 5)})


# --- inputs and declarations ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "int8", "uint8", "int16", "uint16", "int32", "int64", "bool"])
def test_inputs_of_any_type(dtype):
    builder = OnnxBuilder()
    builder.input("x", [2, 3], dtype)
    builder.node("Cast", ["x"], "y", to=TensorProto.FLOAT)
    x = np.array([[0, 1, 2], [3, 4, 5]]).astype(dtype)
    graph = agree(builder.model(["y"]), {"x": x})
    assert graph.tensor("x").dtype == dtype


def test_a_batch_that_is_open_is_one(caplog):
    builder = OnnxBuilder()
    builder.input("x", ["batch", 3, 4])
    builder.node("Relu", ["x"], "y")
    with caplog.at_level(logging.WARNING, "towline"):
        assert imported(builder.model(["y"])).tensor("y").shape == (1, 3, 4)
    assert "batch" in caplog.text
    assert imported(builder.model(["y"]), input_shapes={"x": (5, 3, 4)}).tensor("y").shape == (5, 3, 4)


def declared(op, inputs, dtype, shape, **attributes):
    model, _ = one(op, inputs, **attributes)
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info("y0", dtype, shape))
    return model


@pytest.mark.parametrize(
    "model",
    [
        declared("Cast", [normal(2, 3)], TensorProto.FLOAT16, [2, 3], to=TensorProto.FLOAT),
        declared("Relu", [normal(2, 3)], TensorProto.INT32, [2, 3]),
        one("Add", [normal(2, 3), normal(2, 3).astype(np.float16)])[0],
        one("Conv", [normal(1, 2, 4, 4), normal(3, 2, 1, 1).astype(np.float16)], constants=[1])[0],
        one("Sin", [np.arange(3)])[0],
        one("Add", [normal(2, 3), normal(2, 4)])[0],
    ],
)
def test_models_that_contradict_themselves(model):
    with pytest.raises(InvalidModel, match="node node"):
        imported(model)


def test_a_declared_extent_may_be_open():
    model = declared("Relu", [normal(2, 3)], TensorProto.FLOAT, ["batch", None])
    assert imported(model).tensor("y0").shape == (2, 3)


# --- folding --------------------------------------------------------------------------------------------


def test_shapes_are_folded_whatever_computes_them():
    builder = OnnxBuilder(18)
    h = builder.node("Sin", [builder.input("x", [2, 3, 4])], "sin")
    shape = builder.node("Shape", [h], "shape")
    parts = builder.node("Gather", [shape, builder.constant("last", [2], np.int64)], "part")
    joined = builder.node("Concat", [parts, builder.constant("rest", [-1], np.int64)], "joined", axis=0)
    builder.node("Reshape", [h, joined], "y")
    graph = agree(builder.model(["y"]), {"x": normal(2, 3, 4)})
    assert operators(graph) == ["Map", "Reshape"]
    assert graph.tensor("y").shape == (4, 6)


@pytest.mark.parametrize("op", ["ConstantOfShape", "Expand", "Tile", "Range", "Mul"])
def test_constants_that_would_grow_without_bound_are_refused_before_they_are_computed(op):
    builder = OnnxBuilder(18)
    big = builder.constant("big", [1 << 20, 1 << 20], np.int64)
    row = builder.constant("row", np.ones((1, 1 << 14)), np.float32)
    column = builder.constant("column", np.ones((1 << 14, 1)), np.float32)
    ends = [builder.constant(f"end{v}", v, np.int64) for v in (0, 1 << 40, 1)]
    inputs = {
        "ConstantOfShape": [big],
        "Expand": [builder.constant("one", np.ones((1, 1)), np.float32), big],
        "Tile": [builder.constant("one", np.ones((1, 1)), np.float32), big],
        "Range": ends,
        "Mul": [row, column],
    }
    h = builder.node(op, inputs[op], "huge", name="grows")
    x = builder.input("x", [1, 1], "int64" if op == "Range" else "float32")
    builder.node("Add", [x, h], "y")
    with pytest.raises(Unsupported, match=r"node grows.*folding"):
        imported(builder.model({"y": "int64" if op == "Range" else "float32"}))


def test_an_if_of_a_constant_is_its_branch():
    def branch(name, op):
        made = [
            helper.make_node(op, ["x"], [f"{name}_h"]),
            helper.make_node("Add", [f"{name}_h", f"{name}_one"], [f"{name}_y"], name="sum"),
        ]
        output = [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, [2, 3])]
        one = helper.make_tensor(f"{name}_one", TensorProto.FLOAT, [], [1.0])
        return helper.make_graph(made, name, [], output, [one])

    for condition, op in ((True, "Sin"), (False, "Cos")):
        builder = OnnxBuilder(18)
        x, known = builder.input("x", [2, 3]), builder.constant("known", condition)
        y = builder.node("If", [known], "y", then_branch=branch("a", "Sin"), else_branch=branch("b", "Cos"))
        builder.node("Neg", [y], "z")
        graph = agree(builder.model(["z"]), {x: normal(2, 3)})
        assert graph.nodes[0].name == f"y_node/0_{op}"


def test_functions_of_the_model_and_of_onnx():
    twice = helper.make_function(
        "mine",
        "Twice",
        ["a"],
        ["b"],
        [helper.make_node("Add", ["a", "a"], ["b"])],
        [helper.make_opsetid("", 18)],
    )
    builder = OnnxBuilder(18)
    builder.node("Twice", [builder.input("x", [2, 3])], "t", domain="mine")
    builder.node("MeanVarianceNormalization", ["t"], "y", axes=[1], name="mvn")
    model = builder.model(["y"])
    model.opset_import.append(helper.make_opsetid("mine", 1))
    model.functions.append(twice)
    graph = agree(model, {"x": normal(2, 3)}, atol=1e-4)
    assert graph.nodes[-1].name == "mvn"
    assert all(node.name.startswith("mvn") for node in graph.nodes[1:])


# --- weights outside the file ---------------------------------------------------------------------------


def external(tmp_path):
    builder = small_float_model()
    path = tmp_path / "e.onnx"
    model = builder.model(["y"])
    onnx.save(model, path, save_as_external_data=True, location="e.bin", size_threshold=0)
    return path


def test_external_weights_are_views_of_the_file(tmp_path):
    path = external(tmp_path)
    weight = load_onnx(path).tensor("w").data
    owner = weight
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    assert isinstance(owner, np.memmap)
    x = {"x": normal(1, 3, 8, 8)}
    inside = imported(small_float_model().model(["y"]))
    assert np.array_equal(reference.run(load_onnx(path), x)["y"], reference.run(inside, x)["y"])


@pytest.mark.parametrize("damage", ["short", "missing", "outside", "length", "offset"])
def test_damaged_external_data_is_refused_by_tensor(tmp_path, damage):
    path = external(tmp_path)
    data = tmp_path / "e.bin"
    model = onnx.load(path, load_external_data=False)
    entries = {entry.key: entry for entry in model.graph.initializer[0].external_data}
    if damage == "short":
        data.write_bytes(data.read_bytes()[:100])
    elif damage == "missing":
        data.unlink()
    elif damage == "outside":
        (tmp_path.parent / "e.bin").write_bytes(data.read_bytes())
        entries["location"].value = "../e.bin"
    elif damage == "length":
        entries["length"].value = "12"
    else:
        entries["offset"].value = "-4"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(InvalidModel, match="initializer w"):
        load_onnx(path)


LARGE = """
import sys
from sdk.importers import load_onnx

def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024

before = resident()
graph = load_onnx(sys.argv[1])
assert sum(t.nbytes for t in graph.tensors.values() if t.data is not None) == 3 << 30
print(resident() - before)
"""


@pytest.mark.slow
def test_a_model_of_three_gigabytes_takes_little_memory(tmp_path):
    rows, columns, count = 1 << 13, 1 << 14, 6  # of 512 MiB each
    builder = OnnxBuilder(18)
    h = builder.input("x", [1, rows])
    for index in range(count):
        shape = (rows, columns) if index % 2 == 0 else (columns, rows)
        tensor = TensorProto(name=f"w{index}", data_type=TensorProto.FLOAT, dims=shape)
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", "w.bin"), ("offset", index << 29), ("length", 1 << 29)):
            tensor.external_data.add(key=key, value=str(value))
        builder.initializers.append(tensor)
        h = builder.node("MatMul", [h, f"w{index}"], f"h{index}")
    with (tmp_path / "w.bin").open("wb") as file:
        file.truncate(3 << 30)  # all of it is a hole
    path = saved(builder.model([h]), tmp_path)
    command = [sys.executable, "-c", LARGE, str(path)]
    grown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert float(grown) < 256  # MiB: onnx itself, and no weights


# --- refusals -------------------------------------------------------------------------------------------


def refused_model():
    builder = OnnxBuilder(18)
    x = builder.input("x", [2, 2])
    d = builder.node("Det", [x], "d", name="first")
    builder.node("Sin", [builder.node("Custom", [d], "c", domain="mine", name="second")], "s", name="skipped")
    h = builder.node("Relu", [builder.node("Det", [x], "d2", name="third")], "r")
    builder.node("NonZero", [h], "z", name="fourth")
    model = builder.model(["s", "r", "z"])
    model.opset_import.append(helper.make_opsetid("mine", 1))
    return model


def test_every_refusal_is_found():
    found = survey(refused_model())
    assert [(r.name, r.op) for r in found] == [
        ("first", "Det"),
        ("second", "Custom"),
        ("third", "Det"),
        ("fourth", "NonZero"),
    ]
    assert "skipped" not in {r.name for r in found}
    assert all(r.reason and r.hint for r in found)
    with pytest.raises(Unsupported, match=r"node first.*second.*third") as caught:
        imported(refused_model())
    assert list(caught.value.refusals) == found


def test_a_model_without_refusals_has_none():
    assert survey(small_float_model().model(["y"])) == []
    assert survey(small_qdq_model().model(["y"])) == []


def test_a_constant_output_is_a_copy_that_the_host_makes():
    builder = small_float_model()
    builder.node("Identity", ["w"], "c")
    graph = imported(builder.model(["y", "c"]))
    assert boundary(graph) == {"c_copy"}
    with Session(compile(graph, "c")) as session:
        inputs = {name: np.ones(tensor.shape, tensor.dtype) for name, tensor in session.inputs.items()}
        assert np.array_equal(session.run(inputs)["c"], graph.tensor("w").data)


def test_a_constant_output_without_elements_is_refused():
    builder = small_float_model()
    builder.constant("none", np.zeros((0, 3)))
    with pytest.raises(Unsupported, match="output none"):
        imported(builder.model(["y", "none"]))


# --- damage ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_damaged_bytes_give_an_answer_or_a_model(tmp_path, seed):
    content = np.frombuffer(external(tmp_path).read_bytes(), np.uint8)
    random = np.random.default_rng(seed)
    for _ in range(100):
        damaged = content.copy()
        damaged[random.integers(0, content.size, 2)] = random.integers(0, 256, 2)
        (tmp_path / "damaged.onnx").write_bytes(damaged.tobytes())
        with contextlib.suppress(TowlineError):
            load_onnx(tmp_path / "damaged.onnx")


@pytest.mark.parametrize(
    ("op", "inputs", "attributes"),
    [
        ("Split", [normal(4)], {"num_outputs": 3, "outputs": 2}),
        ("LpPool", [normal(1, 1, 4, 4)], {"kernel_shape": [2, 2], "p": 0}),
        ("Transpose", [normal(2, 3)], {"perm": [0, 0]}),
        ("DepthToSpace", [normal(1, 5, 2, 2)], {"blocksize": 2}),
        ("GroupNormalization", [normal(1, 6, 2), normal(6), normal(6)], {"num_groups": 4, "opset": 21}),
        ("ArgMax", [normal(2, 3)], {"axis": 5}),
        ("LSTM", [normal(2, 1, 3), normal(1, 20, 4), normal(1, 20, 5)], {"hidden_size": 5}),
    ],
)
def test_attributes_that_fit_nothing(op, inputs, attributes):
    with pytest.raises(InvalidModel, match="node node"):
        imported(one(op, inputs, **attributes)[0])
