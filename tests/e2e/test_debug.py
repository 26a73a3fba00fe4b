"""`towline debug` on the digits model: sound, with a damaged weight, and with files missing or wrong."""

import dataclasses
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest

from sdk import artifact
from sdk.target import Options
from sdk.targets import get_target
from sdk.zoo import digits
from tests.reference_target import NAME, register, small_network
from towline.cli import main

BROKEN = "block8/depthwise"
TARGET, DSP = "c", "hexagon-v65"
"""One that is compiled in no time, and one that fuses layers and rounds differently from onnxruntime."""


@dataclass(frozen=True)
class Network:
    directory: Path
    float_model: Path
    quantized: Path
    pictures: list[Path]

    def compiled(self, target):
        path = self.directory / f"{target}.tow"
        if not path.exists():
            assert main(["compile", str(self.quantized), "--target", target, "-o", str(path)]) == 0
        return path


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    directory = tmp_path_factory.mktemp("debug")
    pictures = directory / "pictures"
    pictures.mkdir()
    made = digits().write_pictures(pictures, 4)
    quantized = directory / "q.onnx"
    arguments = ["quantize", str(digits().model), "--calibrate", str(pictures), "-o", str(quantized)]
    arguments += ["--method", "minmax"]  # takes least time
    assert main(arguments) == 0
    return Network(directory, digits().model, quantized, made)


def call(capsys, *argv):
    """(exit code, JSON document, stderr) of `towline debug`."""
    capsys.readouterr()  # what compiling said
    code = main(["debug", *map(str, argv), "--json"])
    captured = capsys.readouterr()
    return code, json.loads(captured.out), captured.err


def damaged(path):
    """The same `.tow`, but for one bit of one weight of a layer, as its target lays weights out.

    The byte is where the network, compiled with that weight changed, differs.
    """
    network = artifact.load(path)
    program, graph = network.program, network.program.graph
    node = next(node for node in graph.nodes if node.name == BROKEN)
    weight = graph.tensor(node.inputs[1])
    data = weight.data.copy()
    data[3] ^= 0x40
    other = dataclasses.replace(
        graph, tensors=graph.tensors | {weight.name: dataclasses.replace(weight, data=data)}
    )
    made = get_target(program.target).compile(other, Options())
    assert made.weights.nbytes == program.weights.nbytes
    assert bytes(made.weights) != bytes(program.weights)
    sums = {name: made.plan[name] for name in ("sums",) if name in made.plan}  # of an AMD card's weights
    program = dataclasses.replace(program, weights=made.weights, plan={**program.plan, **sums})
    result = path.with_suffix(".damaged.tow")
    artifact.save(dataclasses.replace(network, programs=(program,)), result)
    return result


@pytest.mark.slow
@pytest.mark.parametrize("target", [TARGET, DSP])
def test_a_sound_network(network, capsys, tmp_path, target):
    page = tmp_path / "report.html"
    models = ["--model", network.quantized, "--float", network.float_model]
    code, document, err = call(
        capsys, network.compiled(target), "--input", *network.pictures[:2], *models, "--html", page
    )
    result = document["result"]
    assert (code, document["ok"]) == (0, True)
    assert "warning" not in err
    assert (result["mismatches"], result["first_diverging"], result["broken_layers"]) == (0, None, [])
    assert result["not_compared"] == []
    for answer, picture in zip(result["answers"], network.pictures, strict=False):
        assert set(answer) == {"float", "onnxruntime", "reference", "target"}
        assert set(answer.values()) == {int(picture.stem[-1])}
    layers = result["layers"]
    assert (layers[0]["op"], layers[-1]["op"]) == ("Quantize", "Gemm")
    assert all(layer["float"]["sqnr_db"] > 10 for layer in layers)
    assert all(layer["float"]["own_sqnr_db"] > 20 for layer in layers)
    assert all(layer["onnxruntime"]["own_max_abs_diff"] <= 1 for layer in layers)
    assert all(layer["target"] or layer["target_in"] for layer in layers[1:])
    assert result["html"] == str(page)
    assert "bit-identical" in page.read_text()
    sensitivity = result["sensitivity"]
    assert sensitivity["samples"] == 2
    assert sensitivity["tried"] == sensitivity["units"] == len(sensitivity["gains"]) > 50
    assert sum(layer["gain_db"] is not None for layer in layers) > 50
    assert result["quantization"]["samples"] == 4


@pytest.mark.slow
def test_a_damaged_weight_is_found(network, capsys, tmp_path):
    path, page = damaged(network.compiled(TARGET)), tmp_path / "report.html"
    code, document, _ = call(capsys, path, "--input", network.pictures[0], "--html", page)
    result = document["result"]
    assert (code, document["ok"], document["error"]["code"]) == (1, False, "check-failed")
    assert BROKEN in document["error"]["message"]
    assert "channel 3 of 144" in document["error"]["hint"]
    assert result["first_diverging_layer"] == BROKEN
    assert result["broken_layers"] == [BROKEN]
    layer = result["layers"][result["first_diverging"]]
    assert layer["target"]["first"]["index"][:2] == [0, 3]
    assert layer["target"]["own_mismatches"] == layer["target"]["mismatches"] > 0
    assert f"Where {BROKEN} differs" in page.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("target", [DSP, "amd-gfx1100", "amd-gfx1201"])
def test_a_damaged_weight_is_found_on_an_accelerator(network, capsys, target):
    path = network.compiled(target)
    code, document, _ = call(capsys, path, "--input", network.pictures[0])
    assert (code, document["result"]["mismatches"]) == (0, 0)
    code, document, _ = call(capsys, damaged(path), "--input", network.pictures[0])
    assert (code, document["result"]["first_diverging_layer"]) == (1, BROKEN)
    assert document["result"]["broken_layers"] == [BROKEN]


@pytest.mark.slow
def test_the_text_names_layers_and_what_is_missing(network, capsys):
    path = network.compiled(DSP)
    assert main(["debug", str(path), "--input", str(network.pictures[0])]) == 0
    text = capsys.readouterr().out
    assert "not compared: onnxruntime: give the quantised model with --model" in text
    assert "not compared: float: give the float model with --float" in text
    assert "equals its reference in every layer" in text
    row = next(line for line in text.splitlines() if " block3/project " in line)
    assert "in block3/add" in row


@pytest.mark.slow
def test_without_onnxruntime_the_target_is_still_compared(network, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    path = network.compiled(TARGET)
    code, document, err = call(
        capsys,
        path,
        "--input",
        network.pictures[0],
        "--model",
        network.quantized,
        "--float",
        network.float_model,
    )
    assert code == 0
    assert "warning: " in err
    assert "onnxruntime" in document["result"]["not_compared"][0]
    assert document["result"]["layers"][1]["float"] is None
    assert document["result"]["elements"] > 100_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "float"], "is a float model"),
        (["--float", "quantized"], "is a quantised model"),
        (["--model", "picture"], "is not an ONNX model"),
        (["--html", "report.txt"], "must end in .html"),
        (["--model", "net.tflite"], "onnxruntime does not run TFLite"),
    ],
)
def test_wrong_files_are_refused(network, capsys, arguments, message):
    files = {"float": network.float_model, "quantized": network.quantized, "picture": network.pictures[0]}
    arguments = [files.get(argument, argument) for argument in arguments]
    path = network.compiled(TARGET)
    code, document, _ = call(capsys, path, "--input", network.pictures[0], *arguments)
    assert (code, document["error"]["code"]) == (2, "usage")
    assert message in document["error"]["message"]


@pytest.mark.slow
def test_layers_are_not_tried_in_floats_if_that_is_not_wanted(network, capsys):
    models = ["--model", network.quantized, "--float", network.float_model, "--sensitivity", "0"]
    code, document, _ = call(capsys, network.compiled(TARGET), "--input", network.pictures[0], *models)
    assert (code, document["result"]["sensitivity"], document["result"]["not_compared"]) == (0, None, [])


@pytest.mark.slow
def test_a_layer_imported_wrong_is_named(network, capsys, tmp_path):
    """A model with another weight than the network looks as an importer that misread it would."""
    model = onnx.load(network.quantized)
    weight = next(tensor for tensor in model.graph.initializer if tensor.name == f"{BROKEN}.weight_quantized")
    data = onnx.numpy_helper.to_array(weight).copy()
    data[3] ^= 0x40
    weight.CopyFrom(onnx.numpy_helper.from_array(data, weight.name))
    other = tmp_path / "other.onnx"
    onnx.save(model, other)
    path = network.compiled(TARGET)
    code, document, err = call(capsys, path, "--input", network.pictures[0], "--model", other)
    assert code == 0  # the target equals its reference
    assert "not the file that the network was compiled from" in err
    found = [line for line in document["result"]["advice"] if "look at how it was imported" in line]
    assert [line.split()[0] for line in found] == [BROKEN]


def test_arrays_and_a_device_that_is_wrong(capsys, monkeypatch, tmp_path):
    from sdk.compiler import compile

    register(monkeypatch, tmp_path / "site")
    compile(small_network(), NAME, tmp_path / "small.tow")
    arrays = tmp_path / "x.npy"
    np.save(arrays, np.random.default_rng(0).normal(0, 0.5, (3, 1, 4, 4)).astype(np.float32))
    code, document, _ = call(capsys, tmp_path / "small.tow", "--input", arrays)
    assert code == 0
    assert document["result"]["inputs"] == [f"{arrays}[{index}]" for index in range(3)]
    code, document, _ = call(capsys, tmp_path / "small.tow", "--input", arrays, "--device", "wrong")
    assert (code, document["result"]["first_diverging_layer"]) == (1, "conv")


@pytest.mark.slow
def test_a_browser_draws_the_page(network, capsys, tmp_path):
    browser = shutil.which("chromium") or pytest.skip("chromium is not installed")
    path, page = damaged(network.compiled(TARGET)), tmp_path / "report.html"
    assert call(capsys, path, "--input", network.pictures[0], "--html", page)[0] == 1
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", page.as_uri()]
    drawn = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    assert f">first: {BROKEN}</text>" in drawn
    assert drawn.count("<canvas") == 2
    assert f'<h2 id="layer-name">26 · {BROKEN}</h2>' in drawn
