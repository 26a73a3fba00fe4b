"""The zoo's networks as TFLite: against the same network from ONNX, the file's own interpreter, and targets.

The interpreter is ai-edge-litert or tflite-runtime from PyPI, whichever is installed; without one its tests
skip.
"""

import importlib
import json
import shutil

import numpy as np
import onnx
import pytest

from sdk import reference
from sdk.compiler import compile
from sdk.importers import load_model
from sdk.quantizer import quantize
from sdk.session import Session
from sdk.targets import target_names
from sdk.zoo import NETWORKS, digits
from tests import reference_target
from tests.amount import amount
from tests.contract.targets import SIBLINGS
from tests.tflite_writer import from_graph
from towline.cli import main

SIZE = 64
EXACT = ("mobilenet_v1", "mobilenet_v2", "efficientnet_lite0", "resnet18", "detector")
"""Networks that have every operator in both formats: mobilenet_v3_small's hard sigmoid is three in TFLite."""

AGREEMENT = {"mobilenet_v1": 1.0, "mobilenet_v2": 0.25, "efficientnet_lite0": 0.25, "mobilenet_v3_small": 0.5}
"""The share of equal logits, at least: one element that is one step off early on changes them all."""
LARGEST = 12
"""Quantised steps between any two logits."""


def both(directory, source, samples):
    """The integer graph from ONNX, and the path of the same network as TFLite."""
    quantize(source, samples, directory / "q.onnx")
    graph = load_model(directory / "q.onnx")
    path = directory / "net.tflite"
    path.write_bytes(from_graph(graph))
    return graph, path


@pytest.fixture(scope="module")
def digit_files(tmp_path_factory):
    return both(tmp_path_factory.mktemp("digits"), digits().model, digits().calibration()[:8])


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    made = {}

    def make(name):
        if name not in made:
            directory = tmp_path_factory.mktemp(name)
            onnx.save(NETWORKS[name](0.25, SIZE), directory / "float.onnx")
            noise = np.random.default_rng(0).normal(size=(4, 3, SIZE, SIZE)).astype(np.float32)
            made[name] = both(directory, directory / "float.onnx", noise)
        return made[name]

    return make


def quantized(tensor, real):
    """NCHW real values as the int8 NHWC input of the TFLite."""
    steps = np.rint(real / np.float32(tensor.scale)) + tensor.zero_point
    return np.clip(steps, -128, 127).astype(np.int8).transpose(0, 2, 3, 1)


def same_bits(from_onnx, path, real):
    """Whether both importers' graphs compute the same outputs, in both arithmetics."""
    graph = load_model(path)
    tensor = graph.tensor(graph.inputs[0])
    assert tensor.dtype == "int8"
    assert tensor.shape == (1, *real.shape[2:], real.shape[1])
    for arithmetic in ("f32", "q31"):
        ours = reference.run(graph, {tensor.name: quantized(tensor, real)}, arithmetic)
        theirs = reference.run(from_onnx, {from_onnx.inputs[0]: real}, arithmetic)
        assert graph.outputs == from_onnx.outputs
        for name in graph.outputs:
            assert np.ptp(ours[name]) > 0
            np.testing.assert_array_equal(ours[name], theirs[name])
    return graph


@pytest.mark.slow
def test_digits_are_the_same_from_onnx_and_tflite(digit_files):
    from_onnx, path = digit_files
    images, _ = digits().test()
    same_bits(from_onnx, path, digits().inputs(images[:1]))


@pytest.mark.slow
def test_the_command_line(digit_files, tmp_path, monkeypatch, capsys):
    """inspect, compile and run with pictures; the pixel is the input."""
    _, path = digit_files
    reference_target.register(monkeypatch, tmp_path)
    network = tmp_path / "net.tow"
    pictures = digits().write_pictures(tmp_path, 2)
    assert main(["inspect", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)["result"]
    assert document["kind"] == "tflite"
    assert document["tflite_operators"]["DEPTHWISE_CONV_2D"] == 17
    assert document["inputs"][0]["shape"] == [1, 32, 32, 1]
    assert main(["compile", str(path), "--target", reference_target.NAME, "-o", str(network), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["result"]["preprocessing"]["layout"] == "NHWC"
    arguments = ["run", str(network), "--check", "--json", "--input", *map(str, pictures)]
    assert main(arguments) == 0
    document = json.loads(capsys.readouterr().out)["result"]
    assert document["check"]["mismatches"] == 0
    expected = [int(picture.stem.split("_")[-1]) for picture in pictures]
    assert [output["top"][0]["index"] for output in document["outputs"]] == expected
    assert main(["debug", str(network), "--json", "--input", str(pictures[0])]) == 0
    document = json.loads(capsys.readouterr().out)["result"]
    assert document["not_compared"][0] == "onnxruntime: it runs no .tflite, as this was"
    assert main(["bench", str(path)]) == 2
    assert "needs a target" in capsys.readouterr().err


def test_the_command_line_refuses_by_operator(tmp_path, capsys):
    from tests.unit.test_tflite_refusals import Small

    path = tmp_path / "net.tflite"
    path.write_bytes(Small().finish("REVERSE_SEQUENCE"))
    assert main(["compile", str(path), "--target", "hexagon-v65", "-o", str(tmp_path / "n.tow")]) != 0
    assert "operator 1 (REVERSE_SEQUENCE)" in capsys.readouterr().err
    assert main(["inspect", str(path)]) == 0
    assert "refused" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("name", EXACT)
def test_the_zoo_is_the_same_from_onnx_and_tflite(zoo, name):
    from_onnx, path = zoo(name)
    same_bits(from_onnx, path, np.random.default_rng(1).normal(size=(1, 3, SIZE, SIZE)).astype(np.float32))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "target"),
    [
        (name, target)
        for target in target_names()
        for name in ("mobilenet_v2", "mobilenet_v3_small", "detector")
        if target not in SIBLINGS
        # Adreno's kernels take long to compile here.
        if name == "detector" or target == "c" or amount(False, not target.startswith("adreno"))
    ],
)
def test_targets_take_them(zoo, name, target):
    if target.startswith("hexagon") and shutil.which("qemu-hexagon") is None:
        pytest.skip("qemu-hexagon is not installed")
    _, path = zoo(name)
    artifact = compile(path, target)
    graph = artifact.graph
    tensor = graph.tensor(graph.inputs[0])
    x = np.random.default_rng(2).integers(-128, 127, tensor.shape, np.int8, endpoint=True)
    with Session(artifact) as session:
        results = session.run({tensor.name: x})
    expected = reference.run(graph, {tensor.name: x}, artifact.arithmetic)
    for output in graph.outputs:
        np.testing.assert_array_equal(results[output], expected[output])


# --- the file's own interpreter -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def interpreter():
    """Opens a file in TFLite's interpreter with its default kernels, or with its reference kernels."""
    for module in ("ai_edge_litert.interpreter", "tflite_runtime.interpreter"):
        try:
            found = importlib.import_module(module)
        except ImportError:
            continue
        break
    else:
        pytest.skip("neither ai-edge-litert nor tflite-runtime is installed")

    def opened(path, *, plain=False):
        kind = found.OpResolverType.BUILTIN_REF if plain else found.OpResolverType.AUTO
        result = found.Interpreter(model_path=str(path), num_threads=1, experimental_op_resolver_type=kind)
        result.allocate_tensors()
        return result

    return opened


def answers(interpreter, x):
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])


@pytest.mark.slow
@pytest.mark.parametrize("plain", [False, True], ids=["default kernels", "reference kernels"])
def test_digits_agree_with_the_interpreter(digit_files, interpreter, plain):
    """The default kernels (XNNPACK) requantise in float32, as `f32` does; the plain ones in integers.

    XNNPACK's additions are in integers too: an element of one, in one picture in ten, is one step off.
    """
    _, path = digit_files
    graph = load_model(path)
    tensor = graph.tensor(graph.inputs[0])
    images, _ = digits().test()
    opened = interpreter(path, plain=plain)
    step = graph.tensor(graph.nodes[-1].inputs[0]).scale  # of what the last Dequantize reads
    steps = []
    for real in digits().inputs(images[:20]):
        x = quantized(tensor, real[None])
        theirs, ours = answers(opened, x), reference.run(graph, {tensor.name: x})["logits"]
        assert theirs.argmax() == ours.argmax()
        steps.append(np.rint(np.abs(theirs - ours) / step))
    if plain:
        assert np.mean(steps) < 1.5
    else:
        assert np.max(steps) <= 1
        assert np.mean(steps) < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("name", AGREEMENT)
def test_the_zoo_agrees_with_the_interpreter(zoo, interpreter, name):
    _, path = zoo(name)
    graph = load_model(path)
    tensor = graph.tensor(graph.inputs[0])
    step = graph.tensor(graph.nodes[-1].inputs[0]).scale
    random = np.random.default_rng(3)
    opened = interpreter(path)
    for _ in range(5):
        x = random.integers(-128, 127, tensor.shape, np.int8, endpoint=True)
        theirs, ours = answers(opened, x), reference.run(graph, {tensor.name: x})["logits"]
        assert theirs.argmax() == ours.argmax()
        assert np.isclose(theirs, ours).mean() >= AGREEMENT[name]
        assert np.abs(theirs - ours).max() < LARGEST * step
