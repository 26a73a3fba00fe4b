"""The whole journey with an ImageNet MobileNetV2, where its files are at hand; the project has none of them.

TOWLINE_TEST_DATA names their directory: mobilenet_v2_imagenet.onnx, cat.jpg (class 281), tench.png (0) and
fly_on_daisy.jpg (308 or 309).
"""

import json
import shutil

import pytest

from tests.amount import amount
from tests.external_data import DATA
from towline.cli import main

CLASSES = {"cat.jpg": (281,), "tench.png": (0,), "fly_on_daisy.jpg": (308, 309)}
PICTURES = tuple(CLASSES)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not all((DATA / name).is_file() for name in ("mobilenet_v2_imagenet.onnx", *PICTURES)),
        reason="no ImageNet model: set TOWLINE_TEST_DATA to a directory that has one",
    ),
]


def test_real_pictures_are_recognised_and_every_layer_is_right(tmp_path, capsys):
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    names = amount(PICTURES[:1], PICTURES)
    for name in names:
        shutil.copy(DATA / name, pictures)
    quantized, network = tmp_path / "q.onnx", tmp_path / "net.tow"
    model = DATA / "mobilenet_v2_imagenet.onnx"
    assert main(["quantize", str(model), "--calibrate", str(pictures), "-o", str(quantized)]) == 0
    assert main(["compile", str(quantized), "--target", "hexagon-v65", "-o", str(network)]) == 0
    capsys.readouterr()
    given = [str(pictures / name) for name in names]
    assert main(["run", str(network), "--input", *given, "--check", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    for name, output in zip(names, result["outputs"], strict=True):
        assert output["top"][0]["index"] in CLASSES[name]
    assert result["check"]["mismatches"] == 0
    assert result["check"]["elements"] > len(names) * 6_000_000
    assert main(["bench", str(network), "--json"]) == 0
    total = json.loads(capsys.readouterr().out)["result"]["total"]
    assert total["packets"] <= 2_600_000
