"""`towline run` on a target of the tests: inputs, times, and the layers that cost most."""

import json

import numpy as np
import pytest

from sdk import artifact
from sdk.compiler import compile
from sdk.session import Session
from sdk.target import LayerProfile, Profile
from tests.reference_target import NAME, ReferenceDevice, register, small_network
from towline.cli import main

SHAPE = (1, 1, 4, 4)


@pytest.fixture(autouse=True)
def network(monkeypatch, tmp_path):
    """net.tow in the working directory, with x.npy to run it on."""
    register(monkeypatch, tmp_path / "site")
    monkeypatch.delenv("TOWLINE_DEVICE", raising=False)
    monkeypatch.chdir(tmp_path)
    artifact.save(compile(small_network(), NAME), "net.tow")
    np.save("x.npy", np.zeros(SHAPE, np.float32))


def call(capsys, *argv):
    """(exit code, the JSON document, stderr)."""
    code = main(["run", *argv, "--json"])
    captured = capsys.readouterr()
    return code, json.loads(captured.out), captured.err


def inputs(document):
    return [output["input"] for output in document["result"]["outputs"]]


# -- which inputs -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["net.tow", "x.npy"], ["x.npy"]),
        (["net.tow", "x.npy", "--top", "1", "y.npy"], ["x.npy", "y.npy"]),
        (["--top", "1", "net.tow", "--check", "x.npy", "y.npy"], ["x.npy", "y.npy"]),
        (["net.tow", "--input", "x.npy", "y.npy"], ["x.npy", "y.npy"]),
        (["net.tow", "y.npy", "--input", "x.npy"], ["y.npy", "x.npy"]),
    ],
)
def test_inputs_stand_behind_the_network_or_an_option(capsys, argv, expected):
    np.save("y.npy", np.ones(SHAPE, np.float32))
    code, document, _ = call(capsys, *argv)
    assert code == 0
    assert inputs(document) == expected


def test_no_input_is_a_usage_error_that_shows_the_command(capsys):
    code, document, _ = call(capsys, "net.tow")
    assert code == 2
    assert "towline run net.tow cat.jpg" in document["error"]["hint"]


def test_an_unknown_option_is_no_input(capsys):
    assert call(capsys, "net.tow", "x.npy", "--frobnicate", "x.npy")[0] == 2


@pytest.mark.parametrize("name", ["picture", "arr_0", "picture_q"])
def test_arrays_are_known_by_name_or_alone(capsys, name):
    dtype = np.uint8 if name == "picture_q" else np.float32
    np.savez("x.npz", **{name: np.zeros((2, *SHAPE[1:]), dtype)})
    code, document, _ = call(capsys, "net.tow", "x.npz")
    assert code == 0
    assert inputs(document) == ["x.npz[0]", "x.npz[1]"]


@pytest.mark.parametrize("names", [["image"], ["picture", "mask"], []])
def test_arrays_with_other_names_are_refused_with_the_right_ones(capsys, names):
    np.savez("x.npz", **{name: np.zeros(SHAPE, np.float32) for name in names})
    code, document, _ = call(capsys, "net.tow", "x.npz")
    assert code == 1
    assert document["error"]["code"] == "invalid-input"
    assert "'picture'" in document["error"]["message"]
    assert "'picture_q'" in document["error"]["message"]


def test_float64_is_taken_as_python_makes_it(capsys):
    np.save("x.npy", np.zeros(SHAPE))
    assert call(capsys, "net.tow", "x.npy")[0] == 0


# -- how long ---------------------------------------------------------------------------------------------


def test_times_are_of_every_inference_but_those_to_warm_up(capsys, monkeypatch):
    ran = []
    monkeypatch.setattr(
        Session, "run", lambda self, feeds, run=Session.run: ran.append(1) or run(self, feeds)
    )
    np.save("two.npy", np.zeros((2, *SHAPE[1:]), np.float32))
    code, document, _ = call(capsys, "net.tow", "two.npy", "--repeat", "5", "--warmup", "3")
    time = document["result"]["time"]
    assert code == 0
    assert len(ran) == 2 * 5 + 3
    assert time.keys() == {"runs", "warmup", "min", "median", "p90", "p99", "max", "emulated"}
    assert (time["runs"], time["warmup"], time["emulated"]) == (10, 3, True)
    assert 0 < time["min"] <= time["median"] <= time["p90"] <= time["p99"] <= time["max"] < 60
    assert len(document["result"]["outputs"]) == 2


def test_percentiles_are_those_of_the_clock(capsys, monkeypatch):
    clock = iter(range(1000))
    durations = iter([5, 1, 4, 2, 3])

    def perf_counter():
        now = next(clock)
        return 10 * now if now % 2 == 0 else 10 * (now - 1) + next(durations)

    monkeypatch.setattr("towline.cli.run_time.time.perf_counter", perf_counter)
    _, document, _ = call(capsys, "net.tow", "x.npy", "--repeat", "5")
    time = document["result"]["time"]
    assert (time["min"], time["median"], time["max"]) == (1, 3, 5)
    assert time["p90"] == pytest.approx(4.6)


def test_the_text_has_a_time_where_it_is_asked_for(capsys):
    assert main(["run", "net.tow", "x.npy"]) == 0
    assert "median" not in capsys.readouterr().out
    assert main(["run", "net.tow", "x.npy", "--repeat", "2"]) == 0
    out = capsys.readouterr().out
    assert "median" in out
    assert "emulator" in out


def test_a_device_that_measures_itself(capsys, monkeypatch):
    seconds = iter([0.001, 0.003, 0.002])
    monkeypatch.setattr(Session, "device_seconds", property(lambda session: next(seconds)))
    time = call(capsys, "net.tow", "x.npy", "--repeat", "3")[1]["result"]["time"]
    assert time["device"].pop("each") == [0.001, 0.003, 0.002]
    assert time["device"] == pytest.approx(
        {"min": 0.001, "median": 0.002, "p90": 0.0028, "p99": 0.00298, "max": 0.003}
    )


@pytest.mark.parametrize("argv", [["--repeat", "0"], ["--repeat", "x"], ["--warmup", "-1"]])
def test_numbers_of_inferences_are_checked(capsys, argv):
    assert call(capsys, "net.tow", "x.npy", *argv)[0] == 2


# -- which layers -----------------------------------------------------------------------------------------


def test_the_most_expensive_layers_are_shown_with_v(capsys, monkeypatch):
    packets = [*range(1, 13), 22]
    layers = [LayerProfile(f"layer{n}", "Conv", 0, {"packets": n, "waves": 1}) for n in packets]
    monkeypatch.setattr(ReferenceDevice, "profile", lambda self: Profile(layers, {"packets": 99}, {}))
    code, _, err = call(capsys, "net.tow", "x.npy", "-v")
    assert code == 0
    lines = [line.split() for line in err.splitlines() if line.startswith("layer")]
    assert lines[0] == ["layer", "operator", "packets", "share", "%"]
    assert [line[0] for line in lines[1:]] == ["layer22", *(f"layer{n}" for n in range(12, 3, -1))]
    assert lines[1] == ["layer22", "Conv", "22", "22.00"]
    assert "layer22" not in call(capsys, "net.tow", "x.npy")[2]


def test_a_target_that_counts_no_cost_shows_no_layers(capsys):
    code, _, err = call(capsys, "net.tow", "x.npy", "-v")
    assert code == 0
    assert "share" not in err
