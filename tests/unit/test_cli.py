"""The command line without a model: parsing, documents, tables, rankings, exit codes."""

import importlib.util
import json
import re
import subprocess
import sys
import textwrap
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import towline.cli
from sdk.classification import probabilities
from sdk.errors import CheckFailed, InvalidInput, UsageError
from sdk.graph import Dequantize, Graph, Quantization, Quantize, Reshape, Softmax, Tensor
from sdk.report import Console, Result, dumps, seconds, size, success, table
from sdk.target import LayerProfile, Profile
from towline.cli import VERBS, doctor, main
from towline.cli.bench import PEAK, summary
from towline.cli.inputs import read_labels
from towline.cli.options import ONNX, TOW, constants, input_shapes, outputs, require_suffix


def run(capsys, *argv):
    """(exit code, stdout, stderr) of a command line in this process."""
    code = main(list(argv))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


# -- exit codes and documents -----------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
def test_help_has_an_example(capsys, verb):
    code, out, err = run(capsys, verb, "--help")
    assert code == 0
    assert f"\n  towline {verb}" in out[out.index("example:\n") :]
    assert "--json" in out
    assert err == ""


def test_top_help_names_every_verb(capsys):
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert all(f"\n    {verb} " in out for verb in VERBS)


def test_version(capsys):
    code, out, _ = run(capsys, "--version")
    assert code == 0
    assert out.startswith("towline ")


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["frobnicate"],
        ["run"],
        ["run", "net.tow"],
        ["run", "net.tow", "--input", "x.png", "--top", "0"],
        ["compile", "q.onnx", "-o", "net.tow"],
        ["quantize", "a.onnx", "--calibrate", "d", "-o", "q.onnx", "--method", "guess"],
    ],
)
def test_usage_is_exit_2_and_no_traceback(capsys, argv):
    code, out, err = run(capsys, *argv)
    assert code == 2
    assert out == ""
    assert err.startswith("towline: error: ")
    assert "--help" in err
    assert "Traceback" not in err


def test_usage_error_as_json(capsys):
    code, out, err = run(capsys, "run", "--json")
    document = json.loads(out)
    assert code == 2
    assert err == ""
    assert document["schema"] == 1
    assert document["ok"] is False
    assert document["error"].keys() == {"code", "message", "hint"}
    assert document["error"]["code"] == "usage"


@pytest.mark.parametrize(
    ("argv", "suggestion"),
    [
        (["compil"], "compile"),
        (["gpu", "inof"], "info"),
        (["run", "net.tow", "x.png", "--chek"], "--check"),
        (["compile", "q.onnx", "--tagret", "c", "-o", "x.tow"], "--target"),
        (["compile", "q.onnx", "--target=c", "--input-shap=x=1", "-o", "x.tow"], "--input-shape"),
        (["gpu", "info", "--jsn"], "--json"),
        (["quantize", "a.onnx", "--calibrate", "d", "-o", "q.onnx", "--method", "minmx"], "minmax"),
        (["devices", "--target", "hexagon-65"], "hexagon-v65"),
    ],
)
def test_a_misspelt_word_gets_the_right_one_as_a_hint(capsys, argv, suggestion):
    code, _, err = run(capsys, *argv)
    assert code == 2
    assert f"did you mean {suggestion}?" in err


def test_a_word_like_no_other_gets_no_suggestion(capsys):
    assert "did you mean" not in run(capsys, "frobnicate")[2]


def test_help_imports_no_verb_and_nothing_heavy():
    script = """
        import sys
        from towline.cli import VERBS, main

        assert main(["--help"]) == 0
        heavy = {"numpy", "onnx", "onnxruntime", "PIL", "rich", "emulator", "usbgpu", "dsp"}
        verbs = {f"towline.cli.{verb}" for verb in VERBS}
        print(sorted((heavy | verbs) & sys.modules.keys()), file=sys.stderr)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == "[]"


def test_a_verb_imports_no_other_verb():
    script = """
        import sys
        from towline.cli import VERBS, main

        assert main(["run", "--help"]) == 0
        verbs = {f"towline.cli.{verb}" for verb in VERBS}
        print(sorted((verbs | {"numpy"}) & sys.modules.keys()), file=sys.stderr)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == "['towline.cli.run']"


def test_unknown_target_names_the_known_ones(capsys):
    code, _, err = run(capsys, "devices", "--target", "abacus")
    assert code == 2
    assert "abacus" in err
    assert "hexagon-v65" in err


class Verb:
    """A verb that runs `action`."""

    EXAMPLE = "towline do"

    def __init__(self, action):
        self.action = action

    def configure(self, parser):
        pass

    def run(self, args, console):
        return self.action()


def install(monkeypatch, action):
    """Make `towline do` the only verb."""
    monkeypatch.setattr(towline.cli, "VERBS", {"do": "do it"})
    monkeypatch.setitem(sys.modules, "towline.cli.do", Verb(action))


def _raise(problem):
    def action():
        raise problem

    return action


@pytest.mark.parametrize(
    ("action", "code", "error"),
    [
        (lambda: Result({"x": 1}, "x"), 0, None),
        (lambda: Result({"x": 1}, "x", CheckFailed("worse", where="total", hint="look")), 1, "check-failed"),
        (_raise(KeyboardInterrupt()), 130, "interrupted"),
        (_raise(ZeroDivisionError("oops")), 1, "internal"),
    ],
)
def test_outcomes(capsys, monkeypatch, action, code, error):
    install(monkeypatch, action)
    got, out, err = run(capsys, "do", "--json")
    document = json.loads(out)
    assert got == code
    assert err == ""
    assert document["ok"] is (error is None)
    assert document.get("error", {}).get("code") == error
    got, out, err = run(capsys, "do")
    assert got == code
    assert ("towline: error: " in err) is (error is not None)
    assert "Traceback" not in err


def test_a_failed_comparison_keeps_its_result(capsys, monkeypatch):
    failure = CheckFailed("2 differ", where="node a", hint="report it")
    install(monkeypatch, lambda: Result({"x": 1}, "one", failure))
    _, out, _ = run(capsys, "do", "--json")
    assert json.loads(out) == {
        "schema": 1,
        "ok": False,
        "error": {"code": "check-failed", "message": "node a: 2 differ", "hint": "report it"},
        "result": {"x": 1},
    }
    _, out, err = run(capsys, "do")
    assert out == "one\n"
    assert err == "towline: error: node a: 2 differ\n  hint: report it\n"


def test_traceback_only_with_vv(capsys, monkeypatch):
    install(monkeypatch, _raise(ZeroDivisionError("oops")))
    assert "Traceback" not in run(capsys, "do", "-v")[2]
    assert "ZeroDivisionError: oops" in run(capsys, "do", "-vv")[2]


def test_doctor_names_a_missing_tool_and_its_install_command(capsys, monkeypatch):
    monkeypatch.setenv("TOWLINE_QEMU_HEXAGON", "/nowhere/qemu-hexagon")
    code, out, _ = run(capsys, "doctor", "--json")
    document = json.loads(out)
    assert code == 3
    assert "apt-get install qemu-user" in document["error"]["hint"]
    line = next(c for c in document["result"]["checks"] if c["name"] == "qemu-hexagon")
    assert line["required"]
    assert "/nowhere/qemu-hexagon" in line["problem"]


def test_doctor_lists_tools_and_packages(capsys):
    code, out, _ = run(capsys, "doctor", "--json")
    document = json.loads(out)
    names = {check["name"] for check in document["result"]["checks"]}
    assert names >= {"clang", "lld", "qemu-hexagon", "sdcc", "opencl", "numpy", "onnx"}
    missing = [c for c in document["result"]["checks"] if c["required"] and c["problem"]]
    assert code == (3 if missing else 0)


@pytest.mark.parametrize("compiles", [False, True])
def test_doctor_requires_the_extra_only_of_an_install_that_compiles(compiles, capsys, monkeypatch):
    def distribution(name):
        if name in ("numpy", "pyusb"):
            return installed(name)
        raise PackageNotFoundError(name)

    installed = doctor.distribution
    monkeypatch.setattr(doctor, "distribution", distribution)
    # onnx is there, but its files are damaged; or it is not there
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: ModuleSpec(name, None) if compiles else None
    )
    monkeypatch.setenv("TOWLINE_CLANG", "/nowhere/clang")
    code, out, err = run(capsys, "doctor")
    assert code == (3 if compiles else 0)
    assert ("missing: clang, onnx," in err) == compiles
    assert ("this runs a .tow on arrays; to quantise, compile" in out) != compiles
    # each command once; a core that lacks nothing it needs has one for all the rest
    commands = re.findall(r"pip install 'towline\[.*?\]'", out)
    assert len(commands) == len(set(commands))
    assert compiles or commands == ["pip install 'towline[all]'"]


def test_a_closed_stdout_is_not_an_error(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    assert Console().finish(Result({}, "unread")) == 0


def test_with_stderr_closed_stdout_is_still_data(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    console = Console()
    console.warn("unread")
    console.progress("run", 1, 2)
    assert console.fail(UsageError("unread too")) == 2
    assert console.finish(Result({}, "data")) == 0
    assert capsys.readouterr().out == "data\n"


def test_documents_need_no_encoding():
    assert dumps({"label": "\u00fc"}) == '{\n  "label": "\\u00fc"\n}'


def test_targets_and_devices(capsys):
    code, out, _ = run(capsys, "targets", "--json")
    assert code == 0
    targets = json.loads(out)["result"]["targets"]
    arithmetics = {target["name"]: target["arithmetic"] for target in targets}
    assert arithmetics.items() >= {("hexagon-v65", "q31")}
    code, out, _ = run(capsys, "devices")
    assert code == 0


# -- reports ----------------------------------------------------------------------------------------------


def test_table_aligns_numbers_right():
    text = table(("name", "count", "part"), [("a", 1234567, 0.5), ("long name", None, 12.0), ("", 7, None)])
    assert text.splitlines() == [
        "name           count   part",
        "a          1,234,567   0.50",
        "long name             12.00",
        "                   7",
    ]


def test_seconds_adds_up():
    assert seconds({"a": 1.0, "b": 0.25}).splitlines()[-1].split() == ["total", "1.25"]


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 kB"), (3945984, "3.9 MB")]
)
def test_size(count, text):
    assert size(count) == text


def test_documents_are_strict_json(tmp_path):
    values = {
        "a": np.float32(1.5),
        "b": np.arange(2),
        "c": float("nan"),
        "d": (tmp_path, [np.inf]),
        "e": True,
    }
    assert json.loads(dumps(success(values)))["result"] == {
        "a": 1.5,
        "b": [0, 1],
        "c": None,
        "d": [str(tmp_path), [None]],
        "e": True,
    }


def test_progress_is_silent_without_a_terminal(capsys):
    with Console() as console:
        for done in range(3):
            console.progress("work", done, 3)
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


# -- arguments --------------------------------------------------------------------------------------------

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
shapes = st.lists(st.integers(1, 10**6), min_size=1, max_size=5).map(tuple)


@pytest.mark.slow
@given(st.dictionaries(names, shapes, min_size=1, max_size=3))
def test_input_shapes_are_read_back(given_shapes):
    texts = [f"{name}={'x'.join(map(str, shape))}" for name, shape in given_shapes.items()]
    assert input_shapes(texts) == given_shapes


def test_no_input_shape_is_none():
    assert input_shapes([]) is None


@pytest.mark.parametrize("text", ["", "x", "x=", "=1x3", "x=1x0", "x=1x-3", "x=axb", "x=1,3"])
def test_bad_input_shapes(text):
    with pytest.raises(UsageError, match="input-shape"):
        input_shapes([text])


def test_parts_of_a_model():
    assert outputs([]) == []
    assert outputs(["boxes,scores", "classes"]) == ["boxes", "scores", "classes"]
    assert constants(["sr=16000", "a=b=0.5", "train=false"]) == {"sr": 16000, "a=b": 0.5, "train": False}


@pytest.mark.parametrize("text", ["", "boxes,", "a,,b"])
def test_bad_outputs(text):
    with pytest.raises(UsageError, match="outputs"):
        outputs([text])


@pytest.mark.parametrize("texts", [["sr"], ["sr="], ["=1"], ["sr=fast"], ["sr=[1]"], ["sr=1", "sr=2"]])
def test_bad_constants(texts):
    with pytest.raises(UsageError, match="constant"):
        constants(texts)


def test_input_shape_twice():
    with pytest.raises(UsageError, match="twice"):
        input_shapes(["x=1", "x=2"])


def test_require_suffix(tmp_path):
    model = tmp_path / "net.ONNX"
    model.touch()
    assert require_suffix(str(model), ONNX) == model
    with pytest.raises(UsageError, match="not a compiled network") as caught:
        require_suffix(str(model), TOW)
    assert "towline compile" in caught.value.hint
    with pytest.raises(UsageError, match="no such file"):
        require_suffix(str(tmp_path / "other.onnx"), ONNX)
    with pytest.raises(UsageError, match="directory"):
        require_suffix(str(tmp_path), ONNX)
    assert require_suffix("new.tow", TOW, exists=False).name == "new.tow"


# -- rankings ---------------------------------------------------------------------------------------------


def classifier(*, softmax=False, quantized=False):
    quantization = Quantization.per_tensor(0.5, 10)
    tensors = {
        "q": Tensor("q", (1, 4), "uint8", quantization),
        "y": Tensor("y", (1, 4), "float32"),
        "p": Tensor("p", (1, 4), "float32"),
    }
    nodes = (Dequantize("d", ("q",), "y"), Softmax("s", ("y",), "p", axis=1))
    output = "q" if quantized else "p" if softmax else "y"
    return Graph("net", ("q",), (output,), tensors, nodes), output


def test_logits_become_probabilities():
    graph, name = classifier()
    scores = probabilities(graph, {name: np.array([[0, 1, 1, -1000]], np.float32)})
    assert scores.sum() == pytest.approx(1)
    assert scores[1] == scores[2] == pytest.approx(np.e / (1 + 2 * np.e))


def test_softmax_is_found_behind_what_quantises_or_reshapes_it():
    graph, name = classifier(softmax=True)
    quantization = Quantization.per_tensor(1 / 256, 0)
    for name_, shape, dtype in (("q8", (1, 4), "uint8"), ("f", (1, 4), "float32"), ("flat", (4,), "float32")):
        graph.tensors[name_] = Tensor(name_, shape, dtype, quantization if dtype == "uint8" else None)
    graph.nodes += (
        Quantize("q", (name,), "q8"),
        Dequantize("dq", ("q8",), "f"),
        Reshape("r", ("f",), "flat"),
    )
    graph.outputs = ("flat",)
    given = np.array([0.1, 0.2, 0.3, 0.4], np.float32)
    np.testing.assert_allclose(probabilities(graph, {"flat": given}), given)
    graph.outputs = ("q8",)
    np.testing.assert_allclose(
        probabilities(graph, {"q8": np.array([[64, 64, 128, 0]], np.uint8)}), [0.25, 0.25, 0.5, 0]
    )


def test_softmax_is_not_taken_twice():
    graph, name = classifier(softmax=True)
    given_scores = np.array([[0.1, 0.2, 0.3, 0.4]], np.float32)
    np.testing.assert_allclose(probabilities(graph, {name: given_scores}), given_scores[0])


def test_quantised_outputs_are_dequantised_first():
    graph, name = classifier(quantized=True)
    scores = probabilities(graph, {name: np.array([[10, 12, 10, 10]], np.uint8)})
    assert scores[1] / scores[0] == pytest.approx(np.e)


def test_a_map_is_not_a_classification():
    graph, name = classifier()
    graph.tensors[name] = Tensor(name, (2, 2), "float32")
    assert probabilities(graph, {name: np.zeros((2, 2), np.float32)}) is None


def test_labels(tmp_path):
    file = tmp_path / "labels.txt"
    file.write_text("zero\none\n", encoding="utf-8")
    assert read_labels(str(file), 2) == ["zero", "one"]
    with pytest.raises(InvalidInput, match="names 2 classes, the network has 10"):
        read_labels(str(file), 10)
    file.write_bytes("\ufeffein\u2028s\nzwei".encode())
    assert read_labels(str(file), 2) == ["ein\u2028s", "zwei"]
    file.write_bytes(b"zero\r\none\r\n")
    assert read_labels(str(file), 2) == ["zero", "one"]
    file.write_bytes(b"\xff\xfe\xfd")
    with pytest.raises(InvalidInput, match="UTF-8"):
        read_labels(str(file), 2)
    with pytest.raises(UsageError):
        read_labels(str(tmp_path / "nowhere.txt"), 2)


# -- bench ------------------------------------------------------------------------------------------------


def test_summary_computes_totals_and_percentages():
    layers = [
        LayerProfile("a", "Conv", 25600, {"packets": 200, "instructions": 500}, "loads"),
        LayerProfile("b", "Reshape", 0, {"packets": 50, "instructions": 60}),
    ]
    document = summary(Profile(layers, {"packets": 260, "instructions": 600}, {"weights": 5}))
    assert document["total"]["macs"] == 25600
    assert document["total"]["macs_per_packet"] == pytest.approx(25600 / 260)
    assert document["total"]["percent_of_bound"] == pytest.approx(100 * 25600 / 260 / PEAK)
    assert document["layers"][0]["percent_of_peak"] == pytest.approx(50)
    assert document["layers"][0]["limit"] == "loads"
    assert document["memory"] == {"weights": 5}


def test_summary_of_a_target_that_counts_something_else():
    document = summary(Profile([LayerProfile("a", "Conv", 8, {"waves": 3})], {"waves": 3}, {}))
    assert document["total"] == {"waves": 3, "macs": 8}
