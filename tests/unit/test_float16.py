"""`--float16`: what becomes float16, what stays float32 and why, masks, states; on c, and by command."""

import json
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import towline
from sdk import reference
from sdk.check import check
from sdk.errors import InvalidInput, Unsupported, UsageError
from sdk.float16 import to_float16
from sdk.graph import MatMul
from sdk.session import Session
from sdk.states import find_states
from tests.onnx_models import OnnxBuilder, imported
from tests.plain_graphs import PlainBuilder
from tests.shared_networks import by_onnxruntime
from tests.zoo_networks import difference
from towline.cli import main

HALF = 2.0**-11
RANDOM = np.random.default_rng(16)


@pytest.fixture(autouse=True)
def random(monkeypatch):
    """The numbers of a test depend on no other test."""
    monkeypatch.setattr(sys.modules[__name__], "RANDOM", np.random.default_rng(16))


def normal(*shape, scale=1.0):
    return (RANDOM.standard_normal(shape) * scale).astype(np.float32)


def builder():
    return OnnxBuilder(opset=18)


def converted(model, **options):
    graph = imported(model)
    return to_float16(graph, states=find_states(graph), **options)


def dtypes_of(graph):
    return {node.output: graph.tensor(node.output).dtype for node in graph.nodes}


def layers(result):
    return {one.node for one in result.kept}


def answer(result, inputs, output="y"):
    return reference.run(result.graph, inputs)[output]


def two_layers(scale=1.0):
    b = builder()
    x = b.input("x", (2, 8))
    h = b.node("MatMul", [x, b.constant("w", normal(8, 8, scale=scale))], "h", name="block/first")
    r = b.node("Relu", [h], "r", name="block/relu")
    b.node("MatMul", [r, b.constant("v", normal(8, 4, scale=1 / scale))], "y", name="last")
    return b.model(["y"])


# -- what becomes float16 ---------------------------------------------------------------------------------


def test_tensors_become_float16_and_inputs_and_outputs_stay():
    model = two_layers()
    result = converted(model)
    graph = result.graph
    assert not result.kept
    assert not result.already
    assert [graph.tensor(name).dtype for name in ("x", "y")] == ["float32", "float32"]
    assert {graph.tensor(name).dtype for name in ("h", "r", "w", "v")} == {"float16"}
    products = [node for node in graph.nodes if isinstance(node, MatMul)]
    assert [node.name for node in products] == ["block/first", "last"]
    x = normal(2, 8)
    exact = reference.run(imported(model), {"x": x})["y"]
    found = answer(result, {"x": x})
    assert found.dtype == np.float32
    assert 0 < difference(found, exact) < 4 * HALF


def test_other_types_are_kept():
    b = PlainBuilder()
    x, narrow = b.input((2, 4)), b.input((2, 4), "bfloat16")
    whole = b.input((2, 4), "int32")
    b.map(lambda a, c: a * c, x, narrow)
    b.map(lambda a: a + 1, narrow)
    b.map(lambda a: a + 1, whole)
    b.map(lambda a: a < 0, x, dtype="bool")
    b.node(MatMul, (x, b.constant((4, 3))), transposed=False)
    graph = b.graph(b.nodes[-1].output)
    before = dtypes_of(graph)
    after = dtypes_of(to_float16(graph).graph)
    assert set(before.values()) == {"float32", "bfloat16", "int32", "bool"}
    for name, dtype in before.items():
        expected = dtype if dtype != "float32" or name in graph.outputs else "float16"
        assert after[name] == expected


def test_a_float16_network_is_kept_with_its_islands():
    b = builder()
    x = b.input("x", (2, 8), "float16")
    h = b.node("MatMul", [x, b.constant("w", normal(8, 8).astype(np.float16))], "h")
    wide = b.node("Cast", [h], "wide", to=TensorProto.FLOAT)
    squares = b.node("Mul", [wide, wide], "squares")
    b.node("Cast", [squares], "y", to=TensorProto.FLOAT16)
    model = b.model({"y": "float16"})
    graph = imported(model)
    result = to_float16(graph)
    assert result.already
    assert result.graph is graph
    named = to_float16(graph, keep=["h"])
    assert named.graph.tensor("h").dtype == "float32"
    assert named.graph.tensor("w").dtype == "float32"
    assert [named.graph.tensor(name).dtype for name in ("x", "squares", "y")] == [
        "float16",
        "float32",
        "float16",
    ]
    inputs = {"x": normal(2, 8, scale=200).astype(np.float16)}
    exact = reference.run(graph, inputs)["h"].astype(np.float64)
    np.testing.assert_allclose(reference.run(named.graph, inputs)["h"], exact, rtol=2 * HALF)


def test_a_quantised_network_is_refused(tmp_path):
    b = builder()
    x = b.quantize(b.input("x", (1, 4)), "xq", 0.1, np.uint8(3))
    b.node("DequantizeLinear", [x, *b.scale("xq", 0.1, np.uint8(3))], "y")
    onnx.save(b.model(["y"]), tmp_path / "q.onnx")
    with pytest.raises(Unsupported):
        towline.compile(tmp_path / "q.onnx", "c", float16=True)


def test_options_without_float16_are_refused(tmp_path):
    onnx.save(two_layers(), tmp_path / "net.onnx")
    for options in ({"keep_float32": ["last"]}, {"calibrate": {"x": normal(2, 8)}}):
        with pytest.raises(UsageError):
            towline.compile(tmp_path / "net.onnx", "c", **options)


# -- what stays float32 -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "wide"),
    [
        ("block/first", {"h"}),
        ("h", {"h"}),
        ("block", {"h", "r"}),
        ("block/*", {"h", "r"}),
        ("w", set()),
    ],
)
def test_what_is_named_stays_float32(name, wide):
    result = converted(two_layers(), keep=[name])
    graph = result.graph
    assert {output for output in ("h", "r") if graph.tensor(output).dtype == "float32"} == wide
    assert graph.tensor("w").dtype == "float32"
    assert graph.tensor("v").dtype == ("float32" if "r" in wide else "float16")
    assert {one.tensor for one in result.kept} == (wide or {"w"})


def test_a_name_that_is_not_there_is_refused():
    with pytest.raises(UsageError):
        converted(two_layers(), keep=["blok"])


def test_a_layer_that_overflows_stays_float32():
    """Energies of a loud signal: their squares exceed 65504, their logarithms do not."""
    b = builder()
    x = b.input("x", (1, 64))
    loud = b.node("Mul", [x, b.constant("gain", normal(64) + 400)], "loud")
    squares = b.node("Mul", [loud, loud], "squares")
    total = b.node("ReduceSum", [squares, b.constant("axes", np.array([1]))], "total", keepdims=1)
    b.node("Div", [b.node("Log", [total], "log"), b.constant("ten", np.float32(10))], "y")
    model = b.model(["y"])
    result = converted(model)
    assert layers(result) == {"squares_node", "total_node"}
    assert all(one.reaches > 1e5 for one in result.kept)
    types = dtypes_of(result.graph)
    assert (types["loud"], types["squares"], types["total"], types["log"]) == (
        "float16", "float32", "float32", "float16",
    )  # fmt: skip
    x = normal(1, 64)
    assert difference(answer(result, {"x": x}), reference.run(imported(model), {"x": x})["y"]) < 4 * HALF


def test_typical_inputs_show_what_random_ones_do_not():
    b = builder()
    x = b.input("x", (1, 8))
    b.node("MatMul", [b.node("Mul", [x, x], "squares"), b.constant("w", normal(8, 8, scale=1e-3))], "y")
    model = b.model(["y"])
    assert not converted(model).kept
    loud = [{"x": np.full((1, 8), 300, np.float32)}]
    result = converted(model, samples=loud)
    assert layers(result) == {"squares_node"}
    assert np.isfinite(answer(result, loud[0])).all()
    with pytest.raises(InvalidInput):
        converted(model, samples=[{"x": np.zeros((1, 9), np.float32)}])


@pytest.mark.parametrize(
    ("scale", "kept"),
    [(1e6, {"h", "r", "w"}), (1e-9, {"h", "r", "w", "v"}), (1e-6, {"h", "r", "v"}), (1, set())],
)
def test_weights_and_layers_that_a_float16_cannot_hold_stay_float32(scale, kept):
    model = two_layers(scale)
    result = converted(model)
    assert {one.tensor for one in result.kept} == kept
    x = normal(2, 8)
    assert difference(answer(result, {"x": x}), reference.run(imported(model), {"x": x})["y"]) < 8 * HALF


def test_what_is_divided_by_after_it_became_zero_stays_float32():
    b = builder()
    x = b.input("x", (1, 8))
    uneven = b.constant("uneven", np.where(np.arange(8) < 4, 1, 1e-9).astype(np.float32))
    above = b.node("Mul", [b.node("Exp", [x], "e"), uneven], "above")
    below = b.node("Mul", [b.node("Sigmoid", [x], "s"), uneven], "below")
    b.node("MatMul", [b.node("Div", [above, below], "share"), b.constant("w", normal(8, 3))], "y")
    model = b.model(["y"])
    result = converted(model)
    assert {one.tensor for one in result.kept} == {"above", "below", "share"}
    x = normal(1, 8)
    assert difference(answer(result, {"x": x}), reference.run(imported(model), {"x": x})["y"]) < 8 * HALF


def test_a_step_of_a_recurrence_is_looked_into():
    """The states are small, and what leads to them is not."""
    b = builder()
    x = b.input("x", (5, 1, 4))
    weights = [b.constant("w", normal(1, 3, 4)), b.constant("r", np.full((1, 3, 3), 2e4, np.float32))]
    b.node("RNN", [x, *weights], "y", hidden_size=3)
    result = converted(b.model(["y"]))
    assert any("y_node" in one.node for one in result.kept)
    assert not converted(_small_recurrence()).kept


def _small_recurrence():
    b = builder()
    x = b.input("x", (5, 1, 4))
    b.node("GRU", [x, b.constant("w", normal(1, 9, 4)), b.constant("r", normal(1, 9, 3))], "y", hidden_size=3)
    return b.model(["y"])


def test_a_recurrence_in_float16():
    model = _small_recurrence()
    x = normal(5, 1, 4)
    result = converted(model)
    assert set(dtypes_of(result.graph).values()) <= {"float16", "float32"}
    assert 0 < difference(answer(result, {"x": x}), reference.run(imported(model), {"x": x})["y"]) < 8 * HALF


# -- masks ------------------------------------------------------------------------------------------------

EVERYWHERE = np.array([[0, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]], bool)
"""What is masked; the second row wholly."""


def _added(value):
    b = builder()
    x = b.input("x", (3, 4))
    scores = b.node("MatMul", [x, b.constant("w", 30 * np.eye(4, dtype=np.float32))], "scores")
    mask = b.constant("mask", np.where(EVERYWHERE, np.float32(value), np.float32(0)))
    b.node("Softmax", [b.node("Add", [scores, mask], "masked")], "y", axis=-1)
    return b.model(["y"])


def _selected(value):
    b = builder()
    x = b.input("x", (3, 4))
    scores = b.node("MatMul", [x, b.constant("w", 30 * np.eye(4, dtype=np.float32))], "scores")
    where = [b.constant("hidden", EVERYWHERE), b.constant("lowest", np.float32(value)), scores]
    b.node("Softmax", [b.node("Where", where, "masked")], "y", axis=-1)
    return b.model(["y"])


def _from_an_input(value):
    """As BERT has it: (1 - mask) * value, added to the scores."""
    b = builder()
    x, mask = b.input("x", (3, 4)), b.input("mask", (3, 4), "int64")
    scores = b.node("MatMul", [x, b.constant("w", 30 * np.eye(4, dtype=np.float32))], "scores")
    seen = b.node("Cast", [mask], "seen", to=TensorProto.FLOAT)
    hidden = b.node("Sub", [b.constant("one", np.float32(1)), seen], "hidden")
    added = b.node("Mul", [hidden, b.constant("lowest", np.float32(value))], "added")
    b.node("Softmax", [b.node("Add", [scores, added], "masked")], "y", axis=-1)
    return b.model(["y"])


@pytest.mark.parametrize("value", [-1e9, float(np.finfo(np.float32).min)])
@pytest.mark.parametrize("made", [_added, _selected, _from_an_input])
def test_masks_saturate_and_cost_nothing(made, value):
    model = made(value)
    graph = imported(model)
    inputs = {"x": normal(3, 4)}
    if "mask" in graph.inputs:
        inputs["mask"] = (~EVERYWHERE).astype(np.int64)
    result = converted(model)
    assert not result.kept
    values = reference.run(result.graph, inputs)
    assert values["masked"].dtype == np.float16
    assert values["masked"].min() == -65504
    assert np.isfinite(values["masked"]).all()
    assert not values["y"][0, 1:3].any()
    assert np.isfinite(values["y"]).all()
    np.testing.assert_allclose(values["y"].sum(axis=1), 1, atol=4 * HALF)
    unmasked = ~EVERYWHERE.all(axis=1)
    exact = reference.run(graph, inputs)["y"]
    # scores of a hundred are stored to 1/32
    np.testing.assert_allclose(values["y"][unmasked], exact[unmasked], atol=0.05)


def test_an_infinite_mask_stays_infinite():
    b = builder()
    x = b.input("x", (2, 4))
    mask = b.constant("mask", np.where(EVERYWHERE[:1], np.float32(-np.inf), np.float32(0)))
    masked = b.node("Add", [b.node("Relu", [x], "scores"), mask], "masked")
    b.node("Softmax", [masked], "y", axis=-1)
    result = converted(b.model(["y"]))
    assert not result.kept
    values = reference.run(result.graph, {"x": normal(2, 4)})
    assert np.isneginf(values["masked"][:, 1:3]).all()
    assert np.isfinite(values["y"]).all()


def test_a_large_offset_is_no_mask():
    """A constant without zeros that is added moves values: they stay float32."""
    b = builder()
    x = b.input("x", (2, 4))
    far = b.node("Add", [x, b.constant("offset", np.full((2, 4), -1e5, np.float32))], "far")
    b.node("Sub", [far, b.constant("back", np.full((2, 4), -1e5, np.float32))], "y")
    result = converted(b.model(["y"]))
    assert layers(result) == {"far_node"}
    x = normal(2, 4)
    np.testing.assert_allclose(answer(result, {"x": x}), x, atol=0.02)


def test_a_large_number_that_is_selected_is_no_mask():
    """What stands for "far away" is a number that users see."""
    b = builder()
    x = b.input("x", (2, 4))
    far = b.constant("far", np.float32(1e5))
    seen = b.node("Where", [b.node("Less", [x, b.constant("zero", np.float32(0))], "hidden"), far, x], "seen")
    b.node("Transpose", [seen], "y", perm=[1, 0])
    result = converted(b.model(["y"]))
    assert layers(result) == {"seen_node", "y_node"}
    assert answer(result, {"x": normal(2, 4)}).max() == 1e5


def test_a_table_of_masks_is_gathered():
    b = builder()
    x, position = b.input("x", (1, 4)), b.input("position", (1,), "int64")
    table = b.constant("table", np.triu(np.full((4, 4), -1e9, np.float32), 1))
    row = b.node("Gather", [table, position], "row")
    scores = b.node("Mul", [x, b.constant("hundred", np.float32(100))], "scores")
    b.node("Softmax", [b.node("Add", [scores, row], "masked")], "y", axis=-1)
    result = converted(b.model(["y"]))
    assert not result.kept
    values = reference.run(result.graph, {"x": -np.ones((1, 4), np.float32), "position": np.array([1])})
    assert result.graph.tensor("table").data.min() == -65504
    assert (values["masked"][0] == -65504).tolist() == [False, False, True, True]


def test_what_is_inside_an_operator_stays_float32():
    """The squares within a norm, which no sample showed to be large."""
    b = builder()
    x = b.input("x", (1, 8))
    h = b.node("MatMul", [x, b.constant("w", np.eye(8, dtype=np.float32))], "h")
    norm = b.node("ReduceL2", [h], "norm", keepdims=1)
    b.node("MatMul", [norm, b.constant("v", normal(1, 3))], "y")
    model = b.model(["y"])
    result = converted(model)
    assert not result.kept
    assert {result.graph.tensor(name).dtype for name in ("h", "norm")} == {"float16"}
    x = np.full((1, 8), 300, np.float32)
    assert difference(answer(result, {"x": x}), reference.run(imported(model), {"x": x})["y"]) < 4 * HALF


# -- states -----------------------------------------------------------------------------------------------


def _leaky(scale=1.0):
    b = builder()
    x, state = b.input("x", (1, 4)), b.input("s", (1, 4))
    mixed = b.node("MatMul", [state, b.constant("w", 0.5 * np.eye(4, dtype=np.float32))], "mixed")
    after = b.node("Add", [mixed, b.node("Mul", [x, b.constant("gain", np.float32(scale))], "in")], "next_s")
    b.node("Tanh", [after], "y")
    return b.model(["y", "next_s"])


@pytest.mark.parametrize(("scale", "dtype"), [(1.0, "float16"), (1e5, "float32")])
def test_states_are_of_one_dtype_and_are_fed_back(tmp_path, scale, dtype):
    model = _leaky(scale)
    onnx.save(model, tmp_path / "net.onnx")
    network = towline.compile(tmp_path / "net.onnx", "c", host="none", float16=True)
    assert network.states == (("next_s", "s"),)
    assert {network.graph.tensor(name).dtype for name in ("s", "next_s")} == {dtype}
    assert network.source.name == "net.onnx"
    state = np.zeros((1, 4), np.float32)
    with Session(network) as session:
        for _ in range(4):
            x = normal(1, 4)
            wanted = by_onnxruntime(tmp_path / "net.onnx", {"x": x, "s": state})
            found = session.step({"x": x})
            assert found["y"].dtype == np.float32
            if dtype == "float16":
                np.testing.assert_allclose(found["y"], wanted["y"], atol=8 * HALF)
            state = session.states()["s"].astype(np.float32)
            np.testing.assert_allclose(state, wanted["next_s"], atol=8 * HALF * scale)


def test_of_a_state_both_sides_stay_float32():
    graph = converted(_leaky(), keep=["s"]).graph
    assert {graph.tensor(name).dtype for name in ("s", "next_s")} == {"float32"}


# -- on c, and the command --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("float16")
    onnx.save(_loud(), path / "loud.onnx")
    np.savez(path / "loud.npz", x=np.full((2, 8), 300, np.float32))
    return path


def _loud():
    b = builder()
    x = b.input("x", (2, 8))
    squares = b.node("Mul", [x, x], "squares")
    b.node("MatMul", [squares, b.constant("w", np.abs(normal(8, 4, scale=1e-3)))], "y")
    return b.model(["y"])


def _json(capsys, *argv):
    code = main([*map(str, argv), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_the_command_says_what_was_kept(capsys, folder):
    compile_ = ("compile", folder / "loud.onnx", "--target", "c", "-o", folder / "kept.tow", "--float16")
    code, document = _json(capsys, *compile_, "--calibrate", folder / "loud.npz")
    assert code == 0
    (kept,) = document["result"]["float16"]["kept"]
    assert (kept["node"], kept["tensor"], kept["reaches"]) == ("squares_node", "squares", 90000)
    code, document = _json(capsys, *compile_, "--keep-float32", "w")
    assert [one["tensor"] for one in document["result"]["float16"]["kept"]] == ["w"]
    assert main([*map(str, compile_), "--keep-float32", "squares_nod"]) == 2
    assert "squares_node" in capsys.readouterr().err


def test_a_run_names_what_overflows_and_what_to_keep(capsys, folder):
    """Random inputs did not show it; the check of a run does, and what it says to do helps."""
    network = folder / "half.tow"
    compile_ = ("compile", folder / "loud.onnx", "--target", "c", "-o", network, "--float16")
    assert _json(capsys, *compile_)[1]["result"]["float16"]["kept"] == []
    code = main([*map(str, ("run", network, folder / "loud.npz", "--check"))])
    err = capsys.readouterr().err
    assert "--keep-float32 squares_node" in err
    assert code == 0
    _, document = _json(capsys, "run", network, folder / "loud.npz", "--check")
    overflow = document["result"]["check"]["overflow"]
    assert overflow == {"node": "squares_node", "tensor": "squares", "elements": 16, "reaches": 90000}
    _json(capsys, *compile_, "--keep-float32", "squares_node")
    code, document = _json(capsys, "run", network, folder / "loud.npz", "--check")
    assert code == 0
    assert "overflow" not in document["result"]["check"]


def test_options_of_float16_need_it(capsys, folder):
    argv = ["compile", str(folder / "loud.onnx"), "--target", "c", "-o", str(folder / "no.tow")]
    assert main([*argv, "--keep-float32", "squares"]) == 2
    assert main([*argv, "--calibrate", str(folder / "loud.npz")]) == 2
    assert "--float16" in capsys.readouterr().err


def test_a_mask_that_is_infinite_by_intent_is_no_overflow(tmp_path):
    b = builder()
    x = b.input("x", (2, 4))
    mask = b.constant("mask", np.where(EVERYWHERE[:1], np.float32(-np.inf), np.float32(0)))
    b.node("Softmax", [b.node("Add", [b.node("Relu", [x], "scores"), mask], "masked")], "y", axis=-1)
    onnx.save(b.model(["y"]), tmp_path / "net.onnx")
    network = towline.compile(tmp_path / "net.onnx", "c", float16=True)
    with Session(network) as session:
        found = check(network, session, {"x": normal(2, 4)})
    assert found.passed
    assert found.first_overflow is None
