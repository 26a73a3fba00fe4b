"""Networks compiled for AMD GPUs, on the whole emulated card: every layer equals the reference."""

import json
import shutil

import numpy as np
import pytest

from sdk import reference
from sdk.importers import load_model
from sdk.passes import optimize
from sdk.quantizer import quantize
from sdk.segments import split
from sdk.target import Options
from sdk.zoo.digits import digits
from tests.amount import thorough_only
from tests.card_gpu import CardGpu
from tests.chips import EVERY, GENERATIONS, SAMPLE
from tests.contract.targets import random_input
from tests.external_data import DATA
from tests.graph_builder import GraphBuilder, mobilenet_v2
from tests.shader_gpu import ShaderGpu, register, target
from towline.cli import main

pytestmark = pytest.mark.usefixtures("quiet_card")


def assert_network(chip, graph, inputs, gpu):
    """Run twice, trace, profile; returns the profile."""
    maker = target(chip, gpu)
    program = maker.compile(graph, Options())
    expected = reference.run(graph, inputs, maker.arithmetic)
    with maker.open(None).load(program) as session:
        for _ in range(3):  # streamed, then prepared, then again
            for name, value in session.run(inputs).items():
                np.testing.assert_array_equal(value, expected[name], err_msg=name)
        traced = session.trace(inputs)
        for name, value in traced.items():
            np.testing.assert_array_equal(value, expected[name], err_msg=name)
        assert set(graph.outputs) <= traced.keys()
        return session.profile()


@pytest.mark.parametrize("chip", EVERY)
def test_a_small_network_on_the_card(chip):
    b = GraphBuilder((1, 3, 20, 20), seed=4)
    x = b.conv("x", 16, 3, strides=2, pads=1, relu=True)
    y = b.conv(b.depthwise(b.conv(x, 48, relu=True), pads=1, relu=True), 16)
    x = b.reshape(b.global_average_pool(b.add(y, x)))
    b.gemm(x, 10)
    graph = b.graph()
    profile = assert_network(chip, graph, random_input(graph), CardGpu)
    assert profile.total["wave_instructions"] > 0
    assert profile.total["virtual_us"] > 0
    assert [layer.op for layer in profile.layers if layer.op.startswith("Conv")] == ["Conv"] * 3 + [
        "Conv+Add"
    ]


@pytest.mark.slow
@thorough_only("tests/e2e/test_bench_usb.py has it on the card, tests/e2e/test_baselines.py its counts")
@pytest.mark.parametrize("chip", GENERATIONS)
def test_mobilenet_v2_on_the_card(chip):
    graph = mobilenet_v2(224, zero_point=114)
    profile = assert_network(chip, graph, random_input(graph), CardGpu)
    assert profile.total["virtual_us"] < 200
    assert profile.total["wave_instructions"] < 10_000_000
    assert profile.total["macs"] == 300_774_272


@pytest.mark.slow
@thorough_only("tests/e2e/test_cli.py::test_demo runs it on the cards")
def test_the_digits_network(tmp_path):
    model = digits()
    path = tmp_path / "q.onnx"
    quantize(model.model, model.calibration()[:32], path)
    body = split(optimize(load_model(path))).body
    for chip in SAMPLE:
        assert_network(chip, body, random_input(body), ShaderGpu)


@pytest.mark.slow
@thorough_only("tests/e2e/test_bench_usb.py, the network; tests/e2e/test_imagenet.py, the cat")
@pytest.mark.skipif(not (DATA / "mobilenet_v2_imagenet.onnx").is_file(), reason="no ImageNet model")
def test_the_imagenet_network_recognises_a_cat(tmp_path, monkeypatch, capsys):
    register(monkeypatch, tmp_path / "targets")
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    shutil.copy(DATA / "cat.jpg", pictures)
    quantized, network = str(tmp_path / "q.onnx"), str(tmp_path / "net.tow")
    model = str(DATA / "mobilenet_v2_imagenet.onnx")
    assert main(["quantize", model, "--calibrate", str(pictures), "-o", quantized]) == 0
    for chip in GENERATIONS:
        assert main(["compile", quantized, "--target", f"amd-{chip}", "-o", network]) == 0
        capsys.readouterr()
        assert main(["run", network, "--input", str(pictures / "cat.jpg"), "--check", "--json"]) == 0
        result = json.loads(capsys.readouterr().out)["result"]
        assert result["outputs"][0]["top"][0]["index"] == 281
        assert result["check"]["mismatches"] == 0
        assert result["check"]["elements"] > 6_000_000
