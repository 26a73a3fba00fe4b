"""Tuning files, and the tuner over a target whose counts are made up."""

import json
import re

import numpy as np
import pytest

from sdk import tuner, tuning
from sdk.compiler import compile
from sdk.errors import EnvironmentMissing, InvalidInput, UsageError
from sdk.graph import Graph
from sdk.target import SUPPORTED, Candidate
from sdk.tuning import Entry, Tuning
from tests.onnx_models import saved, small_qdq_model
from towline.cli import main

NAME = "test-tunable"
ENTRY_POINTS = f"[towline.targets]\n{NAME} = tests.unit.test_tuning:TunableTarget\n"
COUNTS = {
    "conv 8x8": {"": 90, "tile=4": 70, "tile=8": 70},
    "conv 4x4": {"": 30, "tile=4": 30, "tile=8": 31},
    "gemm": {"": 12, "wide": 11},
}
BODY = Graph("body", (), (), {}, ())
"""The target does not look at the graph that is tuned here."""


class TunableTarget:
    name = NAME
    arithmetic = "q31"
    description = "made-up counts"
    device_kinds = ("emulated",)
    later_parts = ()
    cost = "steps"
    hash = "hash"
    measurements = 0

    def supports(self, graph, node):
        return SUPPORTED

    def candidates(self, graph):
        return [
            Candidate(signature, choice, "hash", 3, json.dumps(COUNTS[signature][choice]))
            for signature in COUNTS
            for choice in COUNTS[signature]
        ]

    def kernels(self, candidate):
        return self.hash

    def measure(self, candidate):
        TunableTarget.measurements += 1
        return json.loads(candidate.work)

    def compile(self, graph, options):
        raise Compiled(options.tuning)


class Compiled(Exception):
    pass


def install(directory):
    info = directory / "towline_test_tunable-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: towline-test-tunable\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)


@pytest.fixture
def target(monkeypatch, tmp_path):
    """The target known here, with an empty cache."""
    install(tmp_path / "site")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setenv("TOWLINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(TunableTarget, "measurements", 0)
    return TunableTarget


def tune(progress=lambda known, total: None):
    with tuner.local(2) as pool:
        return tuner.tune(NAME, BODY, pool, progress)


# -- the tuner ------------------------------------------------------------------------------------------


def test_the_best_is_chosen_and_of_equals_the_first(target):
    steps = []
    outcome = tune(lambda known, total: steps.append((known, total)))
    assert outcome.tuning == Tuning(
        NAME, "steps", {"conv 8x8": Entry("hash", "tile=4", 70, 90), "gemm": Entry("hash", "wide", 11, 12)}
    )
    assert [(layer.signature, layer.choice) for layer in outcome.layers] == [
        ("conv 8x8", "tile=4"),
        ("conv 4x4", ""),  # as good as the target's own: no entry
        ("gemm", "wide"),
    ]
    assert steps == [(known, 8) for known in range(9)]
    assert (outcome.known, outcome.measured) == (0, 8)


def test_a_second_run_measures_nothing_and_finds_the_same(target):
    first = tune()
    second = tune()
    assert (second.known, second.measured, target.measurements) == (8, 0, 8)
    assert second.tuning.to_bytes() == first.tuning.to_bytes()


def test_an_interrupted_run_keeps_what_was_measured(target):
    def interrupt(known, total):
        if known == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(interrupt)
    outcome = tune()
    assert (outcome.known, outcome.measured) == (3, 5)
    assert outcome.tuning.to_bytes() == tune().tuning.to_bytes()


def test_a_damaged_measurement_is_made_again(target, tmp_path):
    tune()
    kept = sorted((tmp_path / "cache" / "measurements").iterdir())
    kept[0].write_bytes(b'{"count": ')
    kept[1].write_text('{"count": true}')
    assert tune().known == 6


def test_measurements_of_other_kernels_do_not_count(target, monkeypatch):
    tune()
    monkeypatch.setattr(TunableTarget, "hash", "other")
    changed = [Candidate("gemm", "", "other", 1, "7")]
    monkeypatch.setattr(TunableTarget, "candidates", lambda self, graph: changed)
    assert tune().layers[0].untuned == 7
    assert tuner._known(NAME, changed[0]) == 7
    assert tuner._known("another target", changed[0]) is None


@pytest.mark.parametrize(
    ("attribute", "value", "message"), [("hash", "else", "other kernels"), ("version", "0.0.9", "not 0.0.9")]
)
def test_a_worker_refuses_what_it_would_measure_differently(target, monkeypatch, attribute, value, message):
    made_by = tuner.version()
    if attribute == "hash":
        monkeypatch.setattr(TunableTarget, "hash", value)
    else:
        made_by = value
    with pytest.raises(EnvironmentMissing, match=message) as refusal:
        tuner.measured(NAME, made_by, TunableTarget().candidates(BODY)[0])
    assert refusal.value.where.startswith("worker on ")
    assert target.measurements == 0


def test_a_failure_ends_the_run_and_no_measurement_starts_after_it(target, monkeypatch):
    def measure(self, candidate):
        TunableTarget.measurements += 1
        raise InvalidInput("no")

    monkeypatch.setattr(TunableTarget, "measure", measure)
    with pytest.raises(InvalidInput):
        tune()
    assert target.measurements < 8


def test_a_target_without_choices_is_refused_by_name(target):
    with pytest.raises(UsageError, match="c has nothing to tune") as refusal:
        tuner.tunable("c")
    assert "hexagon-v65" in refusal.value.hint
    assert NAME in refusal.value.hint


def test_merging_replaces_what_was_measured_and_keeps_the_rest(target):
    stale = Entry("old", "tile=8", 1, 2)
    old = Tuning(NAME, "steps", {"conv 4x4": stale, "gemm": stale, "elsewhere": stale})
    entries = tuner.merged(old, tune()).entries
    assert sorted(entries) == ["conv 8x8", "elsewhere", "gemm"]  # of conv 4x4 the own choice is best now
    assert entries["elsewhere"] == stale
    assert entries["gemm"].choice == "wide"


# -- Dask -----------------------------------------------------------------------------------------------


def test_dask_is_an_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(EnvironmentMissing) as missing, tuner.dask("tcp://127.0.0.1:1"):
        pass
    assert missing.value.hint == "pip install 'towline[tune]'"


# -- files ----------------------------------------------------------------------------------------------

ENTRIES = {"b": Entry("h", "x", 1, 2), "a": Entry("h", "y", 3, 4)}


def test_a_file_is_the_same_bytes_in_any_order_and_comes_back(tmp_path):
    there, back = Tuning("t", "steps", ENTRIES), Tuning("t", "steps", dict(reversed(ENTRIES.items())))
    assert there.to_bytes() == back.to_bytes()
    (tmp_path / "t.json").write_bytes(there.to_bytes())
    assert tuning.read(tmp_path / "t.json", "t") == there


def test_an_entry_is_for_its_kernels_alone():
    known = Tuning("t", "steps", ENTRIES)
    assert (known.choice("a", "h"), known.choice("a", "other"), known.choice("c", "h")) == ("y", None, None)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"schema": 1', '"schema": 2'),
        ('"schema": 1', '"scheme": 1'),
        ('"count": 1', '"count": -1'),
        ('"count": 1', '"count": 1.0'),
        ('"count": 1', '"count": true'),
        ('"count": 1', '"number": 1'),
        ('"choice": "x"', '"choice": ["x"]'),
        ('"counter": "steps"', '"counter": 5'),
        ('"a": {', '"a": 5, "c": {'),
        (' "target"', " target"),
        ('"target": "t"', '"target": "u"'),
    ],
)
def test_what_is_not_a_tuning_file_is_refused_by_name(tmp_path, old, new):
    text = Tuning("t", "steps", ENTRIES).to_bytes().decode()
    assert old in text
    (tmp_path / "t.json").write_text(text.replace(old, new, 1))
    with pytest.raises(InvalidInput, match=r"t\.json"):
        tuning.read(tmp_path / "t.json", "t")


@pytest.mark.parametrize("content", [b"\xff\xfe", b"[]", b"null", b"[" * 100_000])
def test_json_that_is_not_an_object_is_not_a_tuning_file(tmp_path, content):
    (tmp_path / "t.json").write_bytes(content)
    with pytest.raises(InvalidInput, match="is not a tuning file"):
        tuning.read(tmp_path / "t.json", "t")


def test_a_missing_file_is_a_usage_error(tmp_path):
    for path, message in ((tmp_path / "none.json", "no such tuning file"), (tmp_path, "not a regular file")):
        with pytest.raises(UsageError, match=message):
            tuning.read(path, "t")


# -- the command line -----------------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path):
    builder = small_qdq_model()
    return str(saved(builder.model([builder.qdq("y", 0.5, np.uint8(128))]), tmp_path))


def run(capsys, *argv):
    code = main(list(argv))
    out, err = capsys.readouterr()
    return code, out, err


def test_tune_writes_a_file_and_says_what_it_gained(target, model, tmp_path, capsys):
    output = tmp_path / "t.json"
    code, out, err = run(capsys, "tune", model, "--target", NAME, "-o", str(output), "--json", "--jobs", "1")
    result = json.loads(out)["result"]
    assert (code, err) == (0, "")
    assert (result["candidates"], result["known"], result["measured"]) == (8, 0, 8)
    assert (result["untuned"], result["tuned"]) == (3 * (90 + 30 + 12), 3 * (70 + 30 + 11))
    assert sorted(tuning.read(output, NAME).entries) == ["conv 8x8", "gemm"]
    code, out, _ = run(capsys, "tune", model, "--target", NAME, "-o", str(output))
    assert code == 0
    assert "8 known from earlier runs, 0 measured" in out
    assert re.search(r"3 +90 +70 +tile=4 +conv 8x8", out)
    assert "conv 4x4" not in out  # nothing is gained there


def test_by_default_the_file_is_the_users(target, model, capsys):
    assert run(capsys, "tune", model, "--target", NAME)[0] == 0
    found = tuning.read(tuning.user_file(NAME), NAME)
    assert found.entries
    with pytest.raises(Compiled) as compiled:
        compile(model, NAME)
    assert compiled.value.args == (found,)


def test_a_cache_that_cannot_be_written_is_reported(target, model, tmp_path, capsys):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "tuning").touch()
    code, _, err = run(capsys, "tune", model, "--target", NAME)
    assert code == 1
    assert "the cache cannot be written" in err


def test_what_another_run_writes_meanwhile_is_kept(target, model, tmp_path, capsys, monkeypatch):
    output = tmp_path / "t.json"
    other = Tuning(NAME, "steps", {"elsewhere": Entry("h", "x", 1, 2)})

    def measure(self, candidate):
        output.write_bytes(other.to_bytes())
        return json.loads(candidate.work)

    monkeypatch.setattr(TunableTarget, "measure", measure)
    assert run(capsys, "tune", model, "--target", NAME, "-o", str(output))[0] == 0
    assert sorted(tuning.read(output, NAME).entries) == ["conv 8x8", "elsewhere", "gemm"]


def test_ctrl_c_leaves_no_file(target, model, tmp_path, capsys, monkeypatch):
    def measure(self, candidate):
        raise KeyboardInterrupt

    monkeypatch.setattr(TunableTarget, "measure", measure)
    output = tmp_path / "t.json"
    code, _, err = run(capsys, "tune", model, "--target", NAME, "-o", str(output))
    assert code == 130
    assert "nothing half-written is left" in err
    assert not output.exists()


def test_wrong_arguments_show_before_any_work(target, model, tmp_path, capsys):
    damaged = tmp_path / "damaged.json"
    damaged.write_text("{}")
    for argv, code, message in (
        (["tune", model, "--target", "c"], 2, "c has nothing to tune"),
        (["tune", model, "--target", NAME, "-o", str(damaged)], 1, "is not a tuning file"),
        (["tune", model, "--target", NAME, "-o", str(tmp_path / "no" / "t.json")], 1, "directory"),
        (["tune", model, "--target", NAME, "-o", str(tmp_path)], 2, "is not a regular file"),
        (["tune", model, "--target", NAME, "--scheduler", ""], 2, "scheduler's address"),
        (["tune", model, "--target", NAME, "--scheduler", "http://host:1"], 2, "scheduler's address"),
        (["tune", model, "--target", NAME, "--jobs", "0"], 2, "whole number"),
        (["tune", model, "--target", NAME, "--jobs", "2", "--scheduler", "tcp://h:1"], 2, "not allowed with"),
        (["tune", "none.onnx", "--target", NAME], 2, "no such file"),
        (["compile", model, "--target", "c", "--tuning", "x.json", "-o", "n.tow"], 2, "nothing to tune"),
    ):
        found, _, err = run(capsys, *argv)
        assert (found, message in err) == (code, True), (argv, err)
    assert target.measurements == 0
    assert damaged.read_text() == "{}"
