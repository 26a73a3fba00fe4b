"""`towline bench usb`: it measures what it claims, and the figures are reached."""

import json
from pathlib import Path

import numpy as np
import pytest

from sdk import reference
from sdk.errors import CheckFailed
from sdk.target import Options
from tests.amount import amount
from tests.chips import GENERATIONS
from tests.graph_builder import GraphBuilder
from towline.cli import bench_usb, main
from towline.cli.benchmarks import usb as benchmark
from towline.cli.benchmarks.usb import Network, measure
from usbgpu.target.target import AmdTarget

BASELINE = Path(__file__).parents[2] / "bench" / "usb.json"
CHIPS = amount(GENERATIONS[:1], GENERATIONS)
DEVICE = "emulated?gpu=gfx1100&vram=512M"


pytestmark = pytest.mark.usefixtures("quiet_card")


def network() -> Network:
    b = GraphBuilder((1, 3, 20, 20), seed=4)
    x = b.conv("x", 16, 3, strides=2, pads=1, relu=True)
    b.gemm(b.reshape(b.global_average_pool(b.conv(x, 32, relu=True))), 10)
    graph = b.graph()
    program = AmdTarget("gfx1100").compile(graph, Options())
    body = program.graph
    rng = np.random.default_rng(0)
    inputs = {
        name: rng.integers(0, 256, body.tensor(name).shape, np.uint8).view(body.tensor(name).dtype)
        for name in body.inputs
    }
    return Network(program, inputs, reference.run(body, inputs, "f32"))


@pytest.mark.slow
def test_a_small_network_is_measured(monkeypatch):
    monkeypatch.setattr(benchmark, "STREAM", 2 << 20)
    given = network()
    found = measure(DEVICE, given, 1.5)
    assert found["boot"]["transfers"] <= 60
    assert found["boot"]["blob_transfers"] == 4
    assert 10 < found["boot"]["virtual_ms"] < 200
    assert found["warm_open"]["transfers"] <= 12
    assert found["launch"]["transfers"] <= 3
    assert 3 <= found["upload"]["transfers"] <= 5
    assert 0.5 < found["upload"]["share_of_link"] < 1
    assert 0.5 < found["download"]["share_of_link"] < 1
    mobilenet = found["mobilenet"]
    assert mobilenet["mismatches"] == 0
    assert mobilenet["next_transfers"] <= 5
    assert mobilenet["wall_seconds"] == 1.5
    assert mobilenet["host_cpu_us"] > 0
    assert mobilenet["first_over_bound"] > 1


@pytest.mark.slow
def test_wrong_results_and_lost_bytes_are_detected(monkeypatch):
    monkeypatch.setattr(benchmark, "STREAM", 64 << 10)
    given = network()
    (name,) = given.program.graph.outputs
    given.expected[name].flat[0] ^= 1
    # The first inference, those behind it, those in flight twice, and the one whose layers are read.
    inferences = 1 + benchmark.FOLLOWING + 1 + 2 * benchmark.FRAMES + 1
    assert measure(DEVICE, given, 1.5)["mobilenet"]["mismatches"] == inferences
    monkeypatch.setattr(benchmark, "KERNEL", benchmark.KERNEL.replace("+= step", "+= step + 1"))
    with pytest.raises(CheckFailed, match="launches of a kernel"):
        measure(DEVICE, given, 1.5)


@pytest.mark.slow
def test_the_figures_are_reached_and_no_worse_than_the_baseline(capsys, monkeypatch, tmp_path):
    baseline = json.loads(BASELINE.read_text())
    baseline["counts"] = {name: count for name, count in baseline["counts"].items() if name.startswith(CHIPS)}
    (tmp_path / "usb.json").write_text(json.dumps(baseline))
    monkeypatch.setattr(bench_usb, "CHIPS", CHIPS)
    code = main(["bench", "usb", "--baseline", str(tmp_path / "usb.json"), "--json"])
    document = json.loads(capsys.readouterr().out)
    assert code == 0, document["error"]
    result = document["result"]
    assert list(result) == list(CHIPS)
    for one in result.values():
        assert one["boot"]["transfers"] <= 60
        assert one["warm_open"]["transfers"] <= 12
        assert one["launch"]["transfers"] <= 3
        assert one["upload"]["transfers"] <= 70
        assert one["upload"]["share_of_link"] >= 0.9
        assert one["download"]["share_of_link"] >= 0.9
        assert one["mobilenet"]["first_over_bound"] <= 1.25
        assert one["mobilenet"]["next_transfers"] <= 5
        assert one["mobilenet"]["wall_seconds"] <= 15
        assert one["compatible"]["upload"]["transfers"] <= 260
        assert one["mobilenet"]["mismatches"] == one["compatible"]["mobilenet"]["mismatches"] == 0
        assert one["compatible"].keys() == one.keys() - {"compatible"}
