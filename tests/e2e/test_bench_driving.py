"""`towline bench driving`: a narrow driving network on an emulated card, and what the command refuses."""

import json

import pytest

from sdk import artifact, compiler
from sdk.errors import CheckFailed
from sdk.session import Session
from sdk.target import OpenOptions
from sdk.zoo.benchmark import write
from sdk.zoo.catalogue import find
from tests.amount import thorough_only
from towline.cli import bench_driving, main
from towline.cli.benchmarks import driving

WIDTH = "driving_0.1"
TARGET = "amd-gfx1100"


@pytest.fixture(scope="module")
def narrow(tmp_path_factory):
    """The model, and the network for one chip."""
    model = tmp_path_factory.mktemp("driving") / "driving.onnx"
    write(find(WIDTH), model)
    return model, compiler.compile(model, TARGET, host="none")


def measured(narrow, steps=3, checked=False):
    model, network = narrow
    device = f"emulated?gpu=gfx1100&vram={driving.memory(network)}"
    return driving.measure(network, model, device, OpenOptions(), steps, checked, lambda *_: None)


@pytest.mark.slow
def test_a_narrow_network_on_the_emulated_card(narrow):
    _, network = narrow
    found = measured(narrow, checked=True)
    assert found["outside"] == found["mismatches"] == 0
    step = found["step"]
    assert step["transfers"] <= 6
    inputs = sum(
        network.graph.tensor(name).nbytes for name in network.graph.inputs if name != "features_buffer"
    )
    outputs = network.graph.tensor("outputs").nbytes
    # Neither state crosses the link, of 24 KiB each; command lists and padding do.
    assert inputs <= step["bytes_in"] <= inputs + 20_000
    assert outputs <= step["bytes_out"] <= outputs + 2_000
    assert 0 < step["virtual_ms_median"] <= step["virtual_ms_worst"] < 10
    assert found["load"]["virtual_s"] > step["virtual_ms_worst"] / 1e3
    # Steps in flight overlap, but for compute, of which a step's launches are most.
    assert 1.1 < found["pipelined"]["frames_per_virtual_s"] * step["virtual_ms_median"] / 1e3 < 2
    assert 0 < found["wmma_share"] < 1


@pytest.mark.slow
@thorough_only("tests/e2e/test_bench_usb.py measures twice, too")
def test_the_figures_are_the_same_again(narrow):
    found, again = measured(narrow), measured(narrow)
    exact = ("weights_bytes", "load", "step", "pipelined", "wmma_share", "wave_instructions", "launches")
    assert {name: again[name] for name in exact} == {name: found[name] for name in exact}
    assert again["outside"] is None


@pytest.mark.slow
def test_a_step_that_is_not_an_inference_on_its_states_is_found(narrow, monkeypatch):
    states = Session.states
    monkeypatch.setattr(
        Session, "states", lambda self: {name: array + 1 for name, array in states(self).items()}
    )
    with pytest.raises(CheckFailed):
        measured(narrow, steps=1)


DOCUMENT = {
    "target": TARGET, "size": "50m", "compile_seconds": 20.0, "compile_warm_seconds": 2.5,
    "weights_bytes": 10**8,
    "load": {"virtual_s": 0.15, "share_of_link": 0.95},
    "step": {
        "virtual_ms_median": 4.5, "virtual_ms_worst": 4.75, "transfers": 4, "bytes_in": 800_000,
        "bytes_out": 13_336,
    },
    "pipelined": {"frames_per_virtual_s": 222.0}, "outside": 0, "mismatches": 0, "worst_share": 0.5,
    "wmma_share": 0.02, "wave_instructions": 10**7, "launches": 200,
}  # fmt: skip


@pytest.fixture
def stubbed(monkeypatch, tmp_path):
    """The command without a compiler and a card: `measure` gives what the test wants."""
    found = json.loads(json.dumps(DOCUMENT))
    network = artifact.Artifact((), None, "f32")
    seconds = {name: found.pop(name) for name in ("compile_seconds", "compile_warm_seconds")}
    monkeypatch.setattr(driving, "compiled", lambda size, target, directory: (None, network, seconds))
    monkeypatch.setattr(driving, "memory", lambda network: "256M")
    monkeypatch.setattr(driving, "measure", lambda *_: found)
    monkeypatch.delenv("TOWLINE_DEVICE", raising=False)
    monkeypatch.chdir(tmp_path)
    return found


def call(capsys, *argv):
    code = main(["bench", "driving", *argv, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_a_baseline_holds_the_exact_counts(stubbed, capsys):
    baseline = ("--target", TARGET, "--baseline", "driving.json")
    assert call(capsys, *baseline, "--update-baseline")[0] == 0
    code, document = call(capsys, *baseline)
    assert code == 0
    assert {name: document["result"][name] for name in DOCUMENT} == DOCUMENT
    stubbed["step"] = stubbed["step"] | {"transfers": 5}
    code, document = call(capsys, *baseline)
    assert code == 1
    assert "step.transfers" in document["error"]["message"]


def test_an_element_outside_its_bound_fails(stubbed, capsys):
    stubbed["outside"] = 1
    code, document = call(capsys, "--target", TARGET)
    assert code == 1
    assert document["result"]["outside"] == 1


@pytest.mark.parametrize(
    "argv",
    [
        ["--target", TARGET, "--size", "huge"],
        ["--target", TARGET, "--size", "small", "--size", "50m"],
        ["--target", TARGET, "--steps", "0"],
        ["--target", TARGET, "--input-shape", "img=1x2x3x4"],
        ["--target", "amd-gfx1", "--no-check"],
        ["--target", "c", "--no-check"],
        ["--target", "c", "--size", "small"],
    ],
)
def test_wrong_options_are_usage_errors(argv, capsys):
    assert call(capsys, *argv)[0] == 2


def test_the_text_has_the_goals_of_the_network_that_has_some():
    assert "<= 6" in bench_driving.text(DOCUMENT)
    assert "<= 6" not in bench_driving.text({**DOCUMENT, "size": "small"})
