"""`towline inspect`: the figures of a network, what targets would do with it, and why a model is refused."""

import json
import os
import shutil

import numpy as np
import pytest

from sdk.errors import Refusal
from sdk.graph import OPERATORS, Region
from sdk.importers import load_model
from sdk.inspection import figures, outlook, read_model_file, reasons
from sdk.inspection.figures import FAMILIES, Island
from sdk.passes import optimize
from sdk.targets import get_target
from tests.onnx_models import OnnxBuilder, saved, small_float_model, small_qdq_model
from tests.tflite_writer import Writer
from towline.cli import main

FLOAT16 = np.float16


def found(builder, outputs, tmp_path):
    return figures(optimize(load_model(saved(builder.model(outputs), tmp_path))))


def inspect(capsys, *arguments):
    code = main(["inspect", *map(str, arguments), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_every_operator_has_a_family():
    assert {cls for classes in FAMILIES.values() for cls in classes} == {*OPERATORS.values()} - {Region}


# -- precision ------------------------------------------------------------------------------------------


def half_precision(islands: int) -> OnnxBuilder:
    """Products in float16; between them normalisations in float32, cast there and back."""
    b = OnnxBuilder(17)
    x = b.input("x", [1, 8], "float16")
    for number in range(islands + 1):
        w = b.constant(f"w{number}", np.full((8, 8), 0.1), FLOAT16)
        x = b.node("MatMul", [x, w], f"m{number}")
        if number < islands:
            y = b.node("Cast", [x], f"c{number}", to=1)
            y = b.node("Exp", [y], f"e{number}")
            y = b.node("Reshape", [y, b.constant("flat", [8], np.int64)], f"v{number}")
            y = b.node("Sqrt", [y], f"s{number}")
            y = b.node("Reshape", [y, b.constant("row", [1, 8], np.int64)], f"r{number}")
            x = b.node("Cast", [y], f"h{number}", to=10)
    return b


@pytest.mark.parametrize("islands", [0, 1, 3])
def test_float32_islands_of_a_float16_network(tmp_path, islands):
    b = half_precision(islands)
    precision = found(b, {f"m{islands}": "float16"}, tmp_path).precision
    assert precision.activations["float16"] == islands + 1
    assert list(precision.islands) == [Island("float32", 2)] * islands
    assert not precision.quantized


def test_a_quantised_network_with_a_float_island(tmp_path):
    b = small_qdq_model()
    y = b.qdq("y", 0.05, np.uint8(128))
    b.node("Softmax", [y], "s", axis=1)
    b.qdq("s", 0.01, np.uint8(0))
    scale = np.full(4, 0.01)
    w = b.weight("v", np.ones((4, 4, 1, 1), np.int8), scale, np.zeros(4, np.int8))
    b.node("Conv", ["s_q_real", w], "z")
    b.qdq("z", 0.05, np.uint8(128))
    precision = found(b, ["z_q_real"], tmp_path).precision
    assert precision.quantized
    assert next(iter(precision.activations)) == "uint8"
    assert list(precision.islands) == [Island("float32", 1)]
    assert precision.weights == {"int8 per channel": 2}


@pytest.mark.parametrize(
    ("activation", "weight", "words"),
    [
        ("int16", "int8", "int16x8"),
        ("int8", "int8", "quantised int8"),
        ("float32", "int8", "dynamic-range"),
        ("float32", "float16", "float16"),
        ("float32", "float32", "float32"),
    ],
)
def test_precision_of_a_tflite_file(tmp_path, activation, weight, words):
    w, scaled = Writer(), {"scale": 0.1} if activation != "float32" else {}
    x, y = (w.tensor(name, (1, 4), activation, **scaled) for name in "xy")
    data = np.ones((4, 4), weight)
    number = w.constant("w", data, **({"scale": 0.1} if weight == "int8" else {}))
    w.operator("FULLY_CONNECTED", [x, number], y)
    (tmp_path / "net.tflite").write_bytes(w.content([x], [y]))
    file = read_model_file(tmp_path / "net.tflite")
    assert file.precision.startswith(words) or words in file.precision.partition(", ")[2]
    assert file.parameters == 16


# -- figures --------------------------------------------------------------------------------------------


def test_figures_of_a_small_network(tmp_path):
    b = small_float_model(size=8)
    b.node("Relu", ["y"], "z")
    one = found(b, ["z"], tmp_path)
    assert one.macs == 4 * 8 * 8 * 3 * 9
    assert one.parameters == 4 * 3 * 9 + 4
    assert one.constant_bytes == 4 * one.parameters
    assert one.live_peak == 2 * 4 * 4 * 8 * 8  # y and z
    assert [(work.name, work.nodes, work.macs) for work in one.kinds] == [
        ("Conv", 1, one.macs),
        ("Map (relu)", 1, 0),
    ]
    assert sum(work.constant_bytes for work in one.families) == one.constant_bytes


@pytest.mark.parametrize(
    ("op", "dtype", "name"),
    [
        ("Sigmoid", "float32", "sigmoid"),
        ("Sigmoid", "float16", "sigmoid"),
        ("HardSwish", "float32", "hardswish"),
        ("Erf", "float16", "erf"),
    ],
)
def test_functions_have_their_names(tmp_path, op, dtype, name):
    b = OnnxBuilder(17)
    b.node(op, [b.input("x", [1, 4], dtype)], "y")
    (work,) = found(b, {"y": dtype}, tmp_path).kinds
    assert work.name == f"Map ({name})"


def test_states_are_found(tmp_path, capsys):
    b = OnnxBuilder()
    b.input("x", [1, 2])
    b.input("sum", [1, 2])
    b.node("Add", ["x", "sum"], "next_sum")
    code, document = inspect(capsys, saved(b.model(["next_sum"]), tmp_path))
    assert code == 0
    assert document["result"]["states"] == [{"output": "next_sum", "input": "sum"}]


# -- targets --------------------------------------------------------------------------------------------


def test_refusals_are_joined_by_reason(tmp_path):
    b = small_float_model()
    for number in range(40):
        b.node("Relu", ["y"], f"r{number}")
    graph = optimize(load_model(saved(b.model([f"r{n}" for n in range(40)]), tmp_path)))
    hosted = outlook(graph, get_target("hexagon-v65"))
    (reason,) = hosted.reasons
    assert (hosted.on_device, hosted.macs_device, hosted.compiles) == (0, 0, "no")
    assert reason.ops == {"Map (relu)": 40, "Conv": 1}
    assert reason.nodes == [node.name for node in graph.nodes]
    taken = outlook(graph, get_target("c"))
    assert (taken.on_device, taken.macs_device, taken.compiles) == (41, graph.macs, "yes")
    assert not taken.reasons


def test_reasons_that_differ_are_kept_apart():
    refusals = [
        (Refusal("a", "Sin", "t1/out of [1, 2] is odd", "do x"), ["t1/out"]),
        (Refusal("b", "Cos", "t2/out of [3, 4] is odd", "do x"), ["t2/out"]),
        (Refusal("c", "Cos", "t2/out of [3, 4] is even", "do x"), ["t2/out"]),
        (Refusal("d", "Cos", "t2/out of [3, 4] is odd", "do y"), ["t2/out"]),
    ]
    assert [one.nodes for one in reasons(refusals)] == [["a", "b"], ["c"], ["d"]]
    assert reasons(refusals[1:2])[0].text == refusals[1][0].reason  # a single one keeps its own words


def test_json_has_the_targets(tmp_path, capsys):
    path = saved(small_qdq_model().model(["y"]), tmp_path)
    code, document = inspect(capsys, path)
    result = document["result"]
    assert code == 0
    by_name = {one["name"]: one for one in result["targets"]}
    assert by_name["c"]["compiles"] == "yes"
    for one in by_name.values():
        assert sum(one["counts"].values()) == len(result["nodes"])
        assert one["macs_device"] <= result["macs"]
    assert result["parameters"]["bytes"] == result["constant_bytes"]
    assert result["memory"]["estimate"] is True
    code, document = inspect(capsys, path, "--target", "c")
    assert document["result"]["counts"] == by_name["c"]["counts"]
    assert [node["name"] for node in document["result"]["nodes"]] == [
        node["name"] for node in result["nodes"]
    ]


@pytest.mark.slow
def test_text_is_short_without_v(tmp_path, capsys):
    b = small_float_model()
    x = "y"
    for number in range(100):
        x = b.node("Relu", [x], f"r{number}")
    path = saved(b.model([x]), tmp_path)
    assert main(["inspect", str(path)]) == 0
    short = capsys.readouterr().out
    assert main(["inspect", str(path), "-v"]) == 0
    everything = capsys.readouterr().out
    assert len(short.splitlines()) < 60 < 100 < len(everything.splitlines())
    assert "r57" not in short
    assert "r57" in everything


def test_it_fits_a_terminal(tmp_path, capsys, monkeypatch):
    b = small_float_model(name="a/rather/long/name/of/a/node")
    for number in range(9):
        b.node("Relu", ["y"], f"an_output_of_the_network_{number}")
    path = saved(b.model([f"an_output_of_the_network_{n}" for n in range(9)]), tmp_path)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda *_: os.terminal_size((80, 24)))
    assert main(["inspect", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines if str(tmp_path) not in line) <= 80


# -- what is refused ------------------------------------------------------------------------------------


def unknown_operators(count=20):
    b = OnnxBuilder(17)
    x = b.input("x", [1, 4])
    for number in range(count):
        b.node("NonZero", [x], f"y{number}", name=f"n{number}")
    b.node("Unique", [x], "u", name="unique")
    return b.model({f"y{n}": "int64" for n in range(count)} | {"u": "float32"})


def test_a_refused_model_names_all_its_nodes(tmp_path, capsys):
    path = saved(unknown_operators(), tmp_path)
    code, document = inspect(capsys, path)
    result = document["result"]
    assert code == 0
    assert {one["node"] for one in result["refused"]} == {*(f"n{n}" for n in range(20)), "unique"}
    assert [one["count"] for one in result["reasons"]] == [20, 1]
    assert result["targets"] == []
    assert main(["inspect", str(path)]) == 0
    assert len(capsys.readouterr().out.splitlines()) < 60
    code, document = inspect(capsys, path, "--target", "c")
    assert document["result"]["counts"] == {"device": 0, "host": 0, "refused": 21}


def test_a_model_is_cut_before_what_is_refused(tmp_path, capsys):
    b = OnnxBuilder(17)
    b.node("NonZero", [b.node("Relu", [b.input("x", [1, 4])], "boxes")], "y")
    path = saved(b.model({"y": "int64"}), tmp_path)
    assert inspect(capsys, path, "--target", "c")[1]["result"]["counts"]["refused"] > 0
    code, document = inspect(capsys, path, "--target", "c", "--outputs", "boxes")
    assert code == 0
    assert document["result"]["counts"] == {"device": 1, "host": 0, "refused": 0}
    assert inspect(capsys, path, "--outputs", "nothing")[0] == 2


def test_open_shapes_are_named(tmp_path, capsys):
    b = OnnxBuilder()
    b.node("Add", [b.input("a", [1, "n"]), b.input("b", [1, "n"])], "y")
    path = saved(b.model(["y"]), tmp_path)
    code, document = inspect(capsys, path)
    assert code == 0
    assert document["result"]["inputs"][0]["shape"] == [1, "n"]
    assert document["result"]["refused"][0]["node"] == "input a"
    code, document = inspect(capsys, path, "--target", "c")
    assert (code, document["error"]["code"]) == (1, "unsupported")
    code, document = inspect(capsys, path, "--input-shape", "a=1x3", "--input-shape", "b=1x3")
    assert document["result"]["inputs"][0]["shape"] == [1, 3]


def damaged(tmp_path):
    """Files of each kind that are cut short, empty, of another kind, or contradict themselves."""
    model = small_float_model().model(["y"])
    content = model.SerializeToString()
    contradiction = small_float_model()
    contradiction.node("Add", ["y", "absent"], "z")
    w = Writer()
    x = w.tensor("x", (1, 4), "int8", scale=0.1)
    w.operator("RELU", [x], w.tensor("y", (1, 4), "int8", scale=0.1))
    lite = w.content([x], [x + 1])
    saved(model, tmp_path, "whole.onnx")
    network = tmp_path / "whole.tow"
    assert main(["compile", str(tmp_path / "whole.onnx"), "--target", "c", "-o", str(network)]) == 0
    compiled = network.read_bytes()
    return {
        "cut.onnx": content[: len(content) // 2],
        "empty.onnx": b"",
        "contradiction.onnx": contradiction.model(["z"]).SerializeToString(),
        "cut.tflite": lite[: len(lite) // 2],
        "empty.tflite": b"",
        "cut.tow": compiled[: len(compiled) // 2],
        "altered.tow": compiled.replace(b'"target"', b'"tarxet"'),
        "model.tow": content,
        "network.onnx": compiled,
    }


def test_damaged_files(tmp_path, capsys):
    for name, content in damaged(tmp_path).items():
        path = tmp_path / name
        path.write_bytes(content)
        capsys.readouterr()
        for more in ((), ("--html", tmp_path / "page.html")):
            code, document = inspect(capsys, path, *more)
            assert (code, document["ok"]) == (1, False), name
            assert document["error"]["code"] in ("invalid-model", "invalid-artifact"), name
        assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["folder.onnx"], 2),
        (["absent.onnx"], 2),
        (["net.txt"], 2),
        (["net.onnx", "--html", "absent/page.html"], 1),
        (["net.onnx", "--html", "folder.html"], 1),
        (["net.onnx", "--html", "page.txt"], 2),
        (["net.onnx", "--layer", "conv"], 2),
        (["net.onnx", "--target", "absent"], 2),
        (["net.onnx", "--input-shape", "absent=1x2"], 2),
        (["net.tow", "--target", "c"], 2),
        (["net.tow", "--input-shape", "x=1x2"], 2),
        (["net.tow", "--html", "page.html", "--layer", "conv"], 2),
    ],
)
def test_wrong_arguments(tmp_path, capsys, monkeypatch, arguments, code):
    monkeypatch.chdir(tmp_path)
    for folder in ("folder.onnx", "folder.html"):
        (tmp_path / folder).mkdir()
    saved(small_float_model().model(["y"]), tmp_path, "net.onnx")
    (tmp_path / "net.tow").write_bytes(b"")
    (tmp_path / "net.txt").write_bytes(b"")
    assert inspect(capsys, *arguments)[0] == code
    assert sorted(path.name for path in tmp_path.glob("page*")) == []


def test_html_and_json(tmp_path, capsys):
    path, page = saved(small_float_model().model(["y"]), tmp_path), tmp_path / "page.html"
    code, document = inspect(capsys, path, "--html", page)
    assert (code, document["result"]["html"]) == (0, str(page))
    assert page.read_text().startswith("<!doctype html>")


def test_a_truncated_model_never_looks_whole(tmp_path, capsys):
    content = small_float_model().model(["y"]).SerializeToString()
    for length in range(0, len(content) - 40, 93):  # without its last field, an unused opset, it is whole
        path = tmp_path / "cut.onnx"
        path.write_bytes(content[:length])
        assert inspect(capsys, path)[0] == 1
