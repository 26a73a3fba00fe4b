"""`towline tune` on the emulated AMD card: booted once, it counts the same each time."""

import json
import shutil

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from sdk import cache, tuning
from sdk.importers import load_model
from sdk.passes import optimize
from tests.shader_gpu import target
from towline.cli import main
from usbgpu.target import target as of_cards

NAME = "amd-gfx1100"

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quiet_card")]


@pytest.fixture
def model(tmp_path):
    """Products of float16 of two kinds."""
    random = np.random.default_rng(1)
    weights = {name: random.normal(size=(64, 64)).astype(np.float16) for name in ("u", "v")}
    value = lambda name, extent: helper.make_tensor_value_info(name, TensorProto.FLOAT16, [32, extent])  # noqa: E731
    nodes = [
        helper.make_node("MatMul", ["x", "u"], ["a"]),
        helper.make_node("MatMul", ["a", "v"], ["b"]),
        helper.make_node("Transpose", ["b"], ["t"]),
        helper.make_node("MatMul", ["b", "t"], ["y"]),
    ]
    held = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "products", [value("x", 64)], [value("y", 32)], held)
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def test_the_card_counts_the_same_each_time_and_the_executor_nearly(model, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TOWLINE_CACHE", str(tmp_path / "cache"))
    opened = []
    connect = of_cards.connect
    monkeypatch.setattr(of_cards, "connect", lambda *args: opened.append(args) or connect(*args))
    output = tmp_path / "tuning.json"
    command = ["tune", str(model), "--target", NAME, "-o", str(output), "--json"]
    of_cards._close_all()  # a test before this one may have left its card open

    def tuned():
        assert main(command) == 0
        return json.loads(capsys.readouterr().out)["result"]

    try:
        first = tuned()
        assert first["counter"] == "nanoseconds"
        assert first["measured"] == first["candidates"] > 8
        assert tuned()["measured"] == 0
        shutil.rmtree(cache.directory("measurements"))
        again = tuned()
    finally:
        of_cards._close_all()
    assert again == first
    assert len(opened) == 1
    entries = tuning.read(output, NAME).entries
    assert all(entry.count < entry.untuned for entry in entries.values())

    executor = target("gfx1100")  # at its highest clock, which the card's is near
    expected = {}
    for one in executor.candidates(optimize(load_model(model))):
        expected.setdefault(one.signature, {})[one.choice] = executor.measure(one)
    for layer in first["layers"]:
        counts = expected[layer["signature"]]
        assert layer["untuned"] == pytest.approx(counts[""], rel=0.05)
        assert layer["count"] == pytest.approx(counts[layer["choice"]], rel=0.05)
