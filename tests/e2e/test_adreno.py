"""The digits model, and ImageNet's MobileNetV2, on the Adreno target; its device is OpenCL on this CPU."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from sdk import artifact
from sdk.errors import EnvironmentMissing
from sdk.zoo import digits
from tests.amount import thorough_only
from tests.e2e.test_cli import call
from tests.external_data import DATA
from tests.opencl_substitute import require_opencl
from towline.cli import demo, demo_gpus, main

require_opencl()

TARGET = "adreno-a6xx"


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """The digits model for Adreno, and twelve pictures."""
    directory = tmp_path_factory.mktemp("adreno")
    pictures = directory / "pictures"
    pictures.mkdir()
    made = digits().write_pictures(pictures, 12)
    quantized, tow = directory / "q.onnx", directory / "net.tow"
    assert main(["quantize", str(digits().model), "--calibrate", str(pictures), "-o", str(quantized)]) == 0
    assert main(["compile", str(quantized), "--target", TARGET, "-o", str(tow)]) == 0
    return tow, made


@pytest.mark.slow
def test_pictures_are_recognised_and_every_layer_is_right(network, capsys):
    tow, pictures = network
    code, document, err = call(capsys, "run", tow, "--input", *pictures[:3], "--check")
    assert code == 0
    result = document["result"]
    for picture, output in zip(pictures, result["outputs"], strict=False):
        assert f"label_{output['top'][0]['index']}" in picture.name
    assert result["check"]["mismatches"] == 0
    assert result["check"]["elements"] > 300_000
    assert "run only a .tow that you trust" in err


@pytest.mark.slow
def test_a_bench_counts_and_claims_no_time(network, capsys, tmp_path):
    tow, _ = network
    code, document, _ = call(
        capsys, "bench", tow, "--update-baseline", "--baseline", tmp_path / "baseline.json"
    )
    assert code == 0
    result = document["result"]
    assert result["total"]["work_items"] > 0
    assert {"weights", "arena", "live_peak"} <= result["memory"].keys()
    assert not any("_us" in name for layer in (*result["layers"], result["total"]) for name in layer)
    code, document, _ = call(capsys, "bench", tow, "--baseline", tmp_path / "baseline.json")
    assert code == 0
    code, document, _ = call(capsys, "inspect", tow)
    assert (code, document["result"]["target"]) == (0, TARGET)


@pytest.mark.slow
def test_a_missing_device_exits_with_3(network, capsys, monkeypatch):
    tow, pictures = network
    code, document, _ = call(capsys, "run", tow, "--input", pictures[0], "--device", "opencl:99")
    assert (code, document["error"]["code"]) == (3, "device-missing")
    code, document, _ = call(capsys, "run", tow, "--input", pictures[0], "--device", "usb")
    assert (code, document["error"]["code"]) == (2, "usage")
    monkeypatch.setenv("TOWLINE_DEVICE", "opencl:98")
    code, document, _ = call(capsys, "run", tow, "--input", pictures[0])
    assert (code, "98" in document["error"]["message"]) == (3, True)


@pytest.mark.slow
def test_a_tow_with_changed_source_shows_the_compiler_s_log_once(network, tmp_path, capsys):
    """Its hashes are adapted, so that the device's compiler refuses it."""
    tow, pictures = network
    loaded = artifact.load(tow)
    loaded.program.code["network.cl"] += b"\n#error altered\n"
    altered = tmp_path / "altered.tow"
    artifact.save(loaded, altered)
    code, document, err = call(capsys, "run", altered, "--input", pictures[0])
    assert (code, document["error"]["code"]) == (1, "build-failed")
    assert document["error"]["message"].count("altered") == 1
    assert "Traceback" not in err


@pytest.mark.slow
def test_without_a_platform_the_hint_says_how_to_install_one(network):
    tow, pictures = network
    done = subprocess.run(
        [sys.executable, "-m", "towline", "run", tow, "--input", pictures[0]],
        env=os.environ | {"OCL_ICD_VENDORS": "/nowhere"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "there is no OpenCL platform" in done.stderr
    assert "hint: sudo apt-get install pocl-opencl-icd" in done.stderr


@pytest.mark.slow
@thorough_only("some of them: test_pictures_are_recognised_and_every_layer_is_right")
def test_all_held_out_digits_are_as_the_reference_has_them(capsys):
    code, document, _ = call(capsys, "demo", "--target", TARGET)
    assert code == 0
    result = document["result"]
    assert result["pictures"] == 450
    assert result["accuracy"]["device"] == result["accuracy"]["reference"] >= 0.99
    assert result["outputs"]["mismatches"] == result["check"]["mismatches"] == 0


def test_a_demo_leaves_out_what_has_no_platform_and_says_how_to_get_one(monkeypatch, capsys, tmp_path):
    def missing(*_):
        raise EnvironmentMissing("there is no OpenCL platform", hint="install one")

    np.save(tmp_path / "pictures.npy", np.zeros((1, 1)))
    monkeypatch.setattr(demo_gpus, "compile", missing)
    assert demo_gpus.main(["q.onnx", TARGET, str(tmp_path / "pictures.npy"), "outputs.npy"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert demo._gpu_row({"target": TARGET, **found}) == (
        f"{TARGET}: left out",
        "there is no OpenCL platform; install one",
    )


@pytest.mark.slow
@thorough_only("tests/e2e/test_baselines.py, the network; tests/e2e/test_imagenet.py, the cat")
@pytest.mark.skipif(not (DATA / "mobilenet_v2_imagenet.onnx").is_file(), reason="no ImageNet model")
def test_the_imagenet_network_recognises_a_cat(tmp_path, capsys):
    shutil.copy(DATA / "cat.jpg", tmp_path)
    quantized, tow = tmp_path / "q.onnx", tmp_path / "net.tow"
    model = DATA / "mobilenet_v2_imagenet.onnx"
    assert main(["quantize", str(model), "--calibrate", str(tmp_path), "-o", str(quantized)]) == 0
    assert main(["compile", str(quantized), "--target", TARGET, "-o", str(tow)]) == 0
    capsys.readouterr()
    code, document, _ = call(capsys, "run", tow, "--input", tmp_path / "cat.jpg", "--check")
    assert code == 0
    result = document["result"]
    assert result["outputs"][0]["top"][0]["index"] == 281
    assert result["check"]["mismatches"] == 0
    assert result["check"]["elements"] > 6_000_000
