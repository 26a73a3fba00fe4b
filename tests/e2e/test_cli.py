"""The first journey on the command line, with the digits model on the emulated DSP; and what can go wrong."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import towline
from sdk import artifact
from sdk.errors import InvalidInput
from sdk.weights import Weights
from sdk.zoo import digits
from tests.amount import amount
from tests.unit.test_imports import ROOT, run_with_numpy_alone
from towline.cli import main

TARGET = "hexagon-v65"


@dataclass(frozen=True)
class Journey:
    """Files of one walk through the journey; tests only read them."""

    directory: Path
    float_model: Path
    quantized: Path
    network: Path
    pictures: list[Path]


@pytest.fixture(scope="module")
def journey(tmp_path_factory):
    directory = tmp_path_factory.mktemp("journey")
    pictures = directory / "pictures"
    pictures.mkdir()
    made = digits().write_pictures(pictures, 12)
    (pictures / "notes.txt").write_text("not a picture")
    (pictures / "broken.png").write_bytes(made[0].read_bytes()[:40])
    float_model, quantized, network = digits().model, directory / "q.onnx", directory / "net.tow"
    quantize = ["quantize", str(float_model), "--calibrate", str(pictures), "-o", str(quantized)]
    assert main(quantize) == 0
    assert main(["compile", str(quantized), "--target", TARGET, "-o", str(network)]) == 0
    return Journey(directory, float_model, quantized, network, made)


def call(capsys, *argv):
    """(exit code, JSON document, stderr) of a command line in this process."""
    code = main([*map(str, argv), "--json"])
    captured = capsys.readouterr()
    return code, json.loads(captured.out), captured.err


def start(*argv, **options):
    """A command line in its own process, its output piped."""
    return subprocess.Popen(
        [sys.executable, "-m", "towline", *map(str, argv)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


# -- the journey ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_quantize_reports(journey, capsys, tmp_path):
    code, document, err = call(
        capsys,
        "quantize",
        journey.float_model,
        "--calibrate",
        journey.directory / "pictures",
        "-o",
        tmp_path / "q.onnx",
        "--preprocess",
        "unit",
    )
    result = document["result"]
    assert code == 0
    assert (result["samples"], result["available"], len(result["skipped"])) == (12, 13, 1)
    assert result["other_files"] == 1
    assert "broken.png" in err
    assert result["outputs"][0]["top1"] == 1.0
    assert all(tensor["sqnr_db"] > 0 for tensor in result["tensors"])
    assert (tmp_path / "q.onnx").stat().st_size == result["quantized_bytes"]


@pytest.mark.slow
def test_run_and_check(journey, capsys):
    code, document, err = call(capsys, "run", journey.network, "--input", *journey.pictures[:4], "--check")
    result = document["result"]
    assert code == 0
    assert "trust" in err
    assert [output["input"] for output in result["outputs"]] == [str(p) for p in journey.pictures[:4]]
    for output, picture in zip(result["outputs"], journey.pictures, strict=False):
        best = output["top"][0]
        assert best.keys() == {"index", "label", "score"}
        assert best["label"] is None
        assert str(best["index"]) == picture.stem[-1]
        scores = [entry["score"] for entry in output["top"]]
        assert scores == sorted(scores, reverse=True)
        assert 0.5 < scores[0] <= 1
        assert sum(scores) <= 1.000001
    assert result["check"].keys() == {"elements", "mismatches", "max_abs_diff"}
    assert result["check"]["mismatches"] == result["check"]["max_abs_diff"] == 0
    assert result["check"]["elements"] > 10_000


@pytest.mark.slow
def test_labels_top_and_output(journey, capsys, tmp_path):
    names = tmp_path / "names.txt"
    names.write_text("".join(f"digit {n}\n" for n in range(10)))
    raw = tmp_path / "raw.npz"
    arguments = ("--labels", names, "--top", "2", "--output", raw)
    code, document, _ = call(capsys, "run", journey.network, "--input", *journey.pictures[:3], *arguments)
    assert code == 0
    for output in document["result"]["outputs"]:
        assert len(output["top"]) == 2
        assert output["top"][0]["label"] == f"digit {output['top'][0]['index']}"
    with np.load(raw) as arrays:
        logits = arrays["logits"]
    assert logits.shape == (3, 10)
    assert list(logits.argmax(axis=1)) == [o["top"][0]["index"] for o in document["result"]["outputs"]]


@pytest.mark.slow
def test_arrays_give_what_pictures_give(journey, capsys, tmp_path):
    images, _ = digits().test()
    stacked, named = tmp_path / "three.npy", tmp_path / "one.npz"
    inputs = digits().inputs(images[:3])
    np.save(stacked, inputs)
    np.savez(named, input=inputs[:1])
    _, pictures, _ = call(capsys, "run", journey.network, "--input", *journey.pictures[:3])
    code, arrays, _ = call(capsys, "run", journey.network, "--input", stacked, named)
    assert code == 0
    tops = [output["top"] for output in pictures["result"]["outputs"]]
    assert [output["top"] for output in arrays["result"]["outputs"]] == [*tops, tops[0]]
    assert arrays["result"]["outputs"][1]["input"] == f"{stacked}[1]"


@pytest.mark.slow
def test_labels_travel_with_the_network(journey, capsys, tmp_path):
    names, network = tmp_path / "names.txt", tmp_path / "net.tow"
    names.write_text("".join(f"digit {n}\n" for n in range(10)))
    compiled = call(
        capsys, "compile", journey.quantized, "--target", TARGET, "-o", network, "--labels", names,
        "--preprocess", "symmetric",
    )  # fmt: skip
    assert compiled[0] == 0
    assert compiled[1]["result"]["preprocessing"]["mean"] == [0.5]
    assert compiled[1]["result"]["bytes"]["file"] == network.stat().st_size
    _, document, err = call(capsys, "run", network, "--input", journey.pictures[0])
    assert document["result"]["outputs"][0]["top"][0]["label"].startswith("digit ")
    # the pictures now become inputs of another range than the calibration's
    assert "warning" in err


@pytest.mark.slow
def test_compile_twice_gives_identical_bytes(journey, tmp_path, capsys):
    again = tmp_path / "again.tow"
    assert call(capsys, "compile", journey.quantized, "--target", TARGET, "-o", again)[0] == 0
    assert again.read_bytes() == journey.network.read_bytes()


@pytest.mark.slow
def test_a_mismatch_exits_1_and_still_reports_the_result(journey, capsys, tmp_path):
    network = artifact.load(journey.network)
    weights = bytearray(bytes(network.program.weights))
    weights[len(weights) // 2] ^= 0x40
    network.program.weights = Weights.of(bytes(weights))
    damaged = tmp_path / "damaged.tow"
    artifact.save(network, damaged)
    code, document, _ = call(capsys, "run", damaged, "--input", journey.pictures[0], "--check")
    assert code == 1
    assert document["ok"] is False
    assert document["error"]["code"] == "check-failed"
    assert document["error"]["message"].startswith("node ")
    assert document["result"]["check"]["mismatches"] > 0
    assert document["result"]["check"]["max_abs_diff"] > 0


@pytest.mark.slow
def test_running_arrays_needs_numpy_alone(journey, tmp_path):
    images, labels = digits().test()
    inputs = tmp_path / "one.npy"
    np.save(inputs, digits().inputs(images[:1]))
    script = f"""
        from towline.cli import main
        raise SystemExit(main(["run", {str(journey.network)!r}, "--input", {str(inputs)!r}, "--json"]))
    """
    done = run_with_numpy_alone(script)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["result"]["outputs"][0]["top"][0]["index"] == labels[0]


# -- inspect ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_inspect_float_and_quantised(journey, capsys):
    code, document, _ = call(capsys, "inspect", journey.float_model)
    assert code == 0
    assert document["result"]["quantized"] is False
    assert document["result"]["unquantizable"] == []
    assert "c" not in {one["by"] for one in document["result"]["refused"]}
    code, document, _ = call(capsys, "inspect", journey.quantized)
    result = document["result"]
    assert code == 0
    assert result["quantized"] is True
    assert result["refused"] == []
    assert result["macs"] > 1_000_000
    first = next(node for node in result["nodes"] if node["op"] == "Conv")
    assert first["output_tensor"]["scale"] > 0
    assert first["output_tensor"]["dtype"] == "uint8"


def test_inspect_compiled(journey, capsys):
    code, document, _ = call(capsys, "inspect", journey.network)
    result = document["result"]
    assert code == 0
    assert result["target"] == TARGET
    assert result["memory"]["arena"] >= result["memory"]["live_peak"] > 0
    assert result["bytes"]["file"] == journey.network.stat().st_size
    assert result["preprocessing"]["colour"] == "GRAY"
    assert result["source"]["name"] == "q.onnx"
    assert main(["inspect", str(journey.network)]) == 0
    assert "colour GRAY" in capsys.readouterr().out


def one_operator(path, operator):
    import onnx
    from onnx import TensorProto, helper

    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    node = helper.make_node(operator, ["x"], ["y"], name="wave")
    onnx.save(helper.make_model(helper.make_graph([node], "one", [value], [result])), path)
    return path


def test_inspect_shows_what_is_refused(capsys, tmp_path):
    model = one_operator(tmp_path / "sin.onnx", "Sin")
    code, document, _ = call(capsys, "inspect", model)
    assert code == 0
    assert document["result"]["onnx_operators"] == {"Sin": 1}
    refused = document["result"]["refused"]
    assert TARGET in {one["by"] for one in refused}
    assert "c" not in {one["by"] for one in refused}
    assert {one["node"] for one in refused} == {"wave"}
    code, document, _ = call(capsys, "inspect", model, "--target", TARGET)
    assert code == 0
    (node,) = document["result"]["nodes"]
    assert (node["name"], node["op"], node["place"]) == ("wave", "Map", "host")
    assert node["reason"]
    assert document["result"]["counts"] == {"device": 0, "host": 1, "refused": 0}


def test_inspect_names_what_the_quantizer_refuses(capsys, tmp_path):
    code, document, _ = call(capsys, "inspect", one_operator(tmp_path / "pool.onnx", "GlobalLpPool"))
    assert code == 0
    (refusal,) = document["result"]["unquantizable"]
    assert "wave" in refusal["node"]
    assert refusal["reason"]


# -- bench ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def baseline(journey, tmp_path_factory):
    path = tmp_path_factory.mktemp("baseline") / "digits.json"
    assert main(["bench", str(journey.network), "--baseline", str(path), "--update-baseline"]) == 0
    return path


@pytest.mark.slow
def test_bench_keys(journey, baseline, capsys):
    code, document, _ = call(capsys, "bench", journey.network, "--baseline", baseline)
    result = document["result"]
    assert code == 0
    assert result["baseline"] == {"file": str(baseline), "worse": [], "better": []}
    assert result["total"].keys() == {
        "packets", "instructions", "hvx_instructions", "macs", "macs_per_packet", "packets_longer_half",
        "percent_of_bound", "cycles", "stalls", "ddr_bytes",
    }  # fmt: skip
    assert result["total"]["cycles"] == result["total"]["packets"] + result["total"]["stalls"]
    assert 0 < result["estimate"]["ms_two_contexts"] < result["estimate"]["ms_one_context"]
    assert result["estimate"]["assumptions"]
    assert result["memory"].keys() >= {"weights", "arena", "live_peak"}
    assert result["compile_seconds"] is None, "it is compiled already"
    total = result["total"]
    assert total["macs"] == sum(layer["macs"] for layer in result["layers"])
    # layers are counted one by one, with a few packets' overhead each
    assert total["packets"] == pytest.approx(sum(layer["packets"] for layer in result["layers"]), rel=0.01)
    assert total["packets"] / 2 <= total["packets_longer_half"] <= total["packets"]


@pytest.mark.slow
def test_bench_worse_than_baseline(journey, baseline, capsys, tmp_path):
    document = json.loads(baseline.read_text())
    better, worse = "memory.arena", "total.packets"
    document["counts"][worse] -= 1
    document["counts"][better] += 1
    other = tmp_path / "other.json"
    other.write_text(json.dumps(document))
    code, document, _ = call(capsys, "bench", journey.network, "--baseline", other)
    assert code == 1
    assert worse in document["error"]["message"]
    assert better not in document["error"]["message"]
    assert [change["name"] for change in document["result"]["baseline"]["worse"]] == [worse]
    assert [change["name"] for change in document["result"]["baseline"]["better"]] == [better]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (None, 2),
        ("{", 1),
        ("[]", 1),
        ('{"schema": 9, "target": "x", "counts": {}}', 1),
        pytest.param(
            '{"schema": 1, "target": "hexagon-v65", "counts": {"total.packets": 1}}',
            1,
            marks=pytest.mark.slow,
        ),
    ],
)
def test_bench_refuses_an_invalid_baseline(journey, capsys, tmp_path, text, code):
    path = tmp_path / "baseline.json"
    if text is not None:
        path.write_text(text)
    got, document, _ = call(capsys, "bench", journey.network, "--baseline", path)
    assert got == code
    assert "baseline" in document["error"]["message"]
    hint = document["error"]["hint"]
    assert text in ("{",) or "--update-baseline" in hint


# -- bad input --------------------------------------------------------------------------------------------


def cases(journey, directory):
    """Name -> (arguments, exit code, text in the message)."""

    def file(name, content):
        path = directory / name
        path.write_bytes(content)
        return path

    whole = journey.network.read_bytes()
    picture = journey.pictures[0]
    wrong = directory / "wrong.npy"
    np.save(wrong, np.zeros((1, 1, 8, 8), np.float32))
    empty = directory / "empty"
    empty.mkdir()
    compile_to = ("--target", TARGET, "-o", directory / "out.tow")
    quantize_to = ("-o", directory / "out.onnx")
    return {
        "an onnx is not run": (("run", journey.quantized, "--input", picture), 2, "not a compiled"),
        "a tow is not compiled": (("compile", journey.network, *compile_to), 2, "not an ONNX"),
        "no such network": (("run", "nowhere.tow", "--input", picture), 2, "no such file"),
        "cut tow": (("run", file("cut.tow", whole[:-100]), "--input", picture), 1, "zip"),
        "empty onnx": (("compile", file("empty.onnx", b""), *compile_to), 1, "empty"),
        "random onnx": (("compile", file("noise.onnx", b"\xff" * 99), *compile_to), 1, "not an ONNX"),
        "float onnx": (("compile", journey.float_model, *compile_to), 1, "float"),
        "quantised twice": (
            ("quantize", journey.quantized, "--calibrate", picture, *quantize_to), 1, "already quantised"
        ),
        "no pictures": (
            ("quantize", journey.float_model, "--calibrate", empty, *quantize_to), 1, "no usable"
        ),
        "no directory": (
            ("compile", journey.quantized, "--target", TARGET, "-o", directory / "no/where.tow"), 1, "written"
        ),
        "no such picture": (("run", journey.network, "--input", "nowhere.png"), 2, "no such file"),
        "corrupt picture": (("run", journey.network, "--input", file("x.png", b"\x89PNG")), 1, "picture"),
        "unknown kind": (("run", journey.network, "--input", file("x.mp3", b"")), 2, "neither"),
        "wrong shape": (("run", journey.network, "--input", wrong), 1, "1, 1, 32, 32"),
        "not an npy": (("run", journey.network, "--input", file("x.npy", b"hello")), 1, "arrays"),
        "no such device": (
            ("run", journey.network, "--input", picture, "--device", "toaster"), 2, "toaster"
        ),
        "few labels": (
            ("run", journey.network, "--input", picture, "--labels", file("l.txt", b"a\n")), 1, "10"
        ),
        "no such preprocessing": (
            ("compile", journey.quantized, *compile_to, "--preprocess", "magic"), 2, "magic"
        ),
        "bench without target": (("bench", journey.quantized), 2, "target"),
    }  # fmt: skip


@pytest.mark.slow
def test_bad_input_is_explained(journey, capsys, tmp_path):
    for name, (argv, code, text) in cases(journey, tmp_path).items():
        got, document, err = call(capsys, *argv)
        assert (got, document["ok"]) == (code, False), name
        assert text in document["error"]["message"], (name, document)
        assert "Traceback" not in err, name
    assert not list(tmp_path.glob("out.*"))
    assert not list(tmp_path.glob(".*"))


@pytest.mark.slow
def test_missing_tool_is_exit_3(journey, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("TOWLINE_QEMU_HEXAGON", str(tmp_path / "none"))
    code, document, _ = call(capsys, "run", journey.network, "--input", journey.pictures[0])
    assert code == 3
    assert document["error"]["code"] == "tool-missing"
    assert "apt-get install" in document["error"]["hint"]
    monkeypatch.setenv("TOWLINE_CLANG", str(tmp_path / "none"))
    out = tmp_path / "x.tow"
    assert call(capsys, "compile", journey.quantized, "--target", TARGET, "-o", out)[0] == 3
    assert not out.exists()


# -- processes --------------------------------------------------------------------------------------------


def descendants(pid):
    """Pids of a process's children, and of theirs."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found += [int(entry.parent.name), *descendants(int(entry.parent.name))]
    return found


def wait_until(condition, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.02)


def running(pid):
    return Path(f"/proc/{pid}").exists() and ") Z " not in Path(f"/proc/{pid}/stat").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_run_interrupted_leaves_no_child(journey, sent, tmp_path):
    inputs = tmp_path / "many.npy"
    np.save(inputs, np.zeros((100_000, 1, 32, 32), np.float32))
    output = tmp_path / "out.npz"
    process = start("run", journey.network, "--input", inputs, "--output", output)
    wait_until(lambda: descendants(process.pid))
    children = descendants(process.pid)
    process.send_signal(sent)
    _, err = process.communicate(timeout=20)
    wait_until(lambda: not any(map(running, children)), 5)
    assert process.returncode == (130 if sent == signal.SIGINT else -sent)
    assert "Traceback" not in err
    assert [path.name for path in tmp_path.iterdir()] == ["many.npy"]


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_compile_interrupted_leaves_nothing(journey, sent, tmp_path):
    cache, work = tmp_path / "cache", tmp_path / "work"
    work.mkdir()
    process = start(
        "compile", journey.quantized, "--target", TARGET, "-o", work / "net.tow",
        env={**os.environ, "TOWLINE_CACHE": str(cache), "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    wait_until(lambda: cache.exists() and descendants(process.pid))
    children = descendants(process.pid)
    process.send_signal(sent)
    _, err = process.communicate(timeout=20)
    wait_until(lambda: not any(map(running, children)), 5)
    assert process.returncode == (130 if sent == signal.SIGINT else -sent)
    assert "Traceback" not in err
    assert list(work.iterdir()) == []
    if sent == signal.SIGINT:
        assert {path.name for path in tmp_path.iterdir()} == {"cache", "work"}


@pytest.mark.slow
def test_a_reader_that_leaves_is_not_an_error(journey):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "towline", "inspect", journey.network],
        stdout=write, stderr=subprocess.PIPE, check=False,
    )  # fmt: skip
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("words", [["targets"], ["targets", "--json"], ["inspect", "missing.tow", "--json"]])
def test_stdout_on_a_full_disk(words):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "towline", *words], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 1
    assert done.stderr.startswith(b"towline: error: standard output: cannot be written: No space left")


@pytest.mark.slow
def test_a_full_disk_leaves_nothing(journey, tmp_path):
    def little_room():
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))

    limit = 200_000
    assert journey.network.stat().st_size > limit
    work = tmp_path / "work"
    work.mkdir()
    process = start(
        "compile", journey.quantized, "--target", TARGET, "-o", work / "net.tow", "--json",
        preexec_fn=little_room,
    )  # fmt: skip
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    assert json.loads(out)["error"]["code"] == "output-failed"
    assert list(work.iterdir()) == []


# -- demo -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_demo(capsys, tmp_path, monkeypatch):
    images, labels = digits().test()
    some = slice(None, None, amount(150, 5))
    monkeypatch.setattr(type(digits()), "test", lambda model: (images[some], labels[some]))
    code, document, _ = call(capsys, "demo", "--keep", tmp_path)
    result = document["result"]
    assert code == 0
    assert result["pictures"] == len(images[some])
    assert result["outputs"] == {"elements": 10 * len(images[some]), "mismatches": 0}
    assert result["check"]["mismatches"] == 0
    assert result["accuracy"]["device"] == result["accuracy"]["reference"]
    assert result["accuracy"]["float"] >= 0.985
    assert result["accuracy"]["device"] >= result["accuracy"]["float"] - 0.01
    assert result["total"]["packets"] > 0
    assert {"digits.onnx", "digits.tow"} < {path.name for path in tmp_path.iterdir()}


@pytest.mark.slow
def test_the_script_is_installed():
    script = shutil.which("towline", path=str(Path(sys.executable).parent))
    assert script is not None
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("towline ")


# -- regressions ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_cheap_mistakes_show_before_the_work(journey, tmp_path, capsys, monkeypatch):
    def work(*_, **__):
        raise AssertionError("the work has begun")

    for place in (
        "towline.cli.compile.compile",
        "sdk.cache.empty",
        "sdk.zoo.benchmark.quantize",
    ):
        monkeypatch.setattr(place, work)
    compile = ("compile", journey.quantized, "--target", TARGET)
    out = ("-o", tmp_path / "n.tow")
    for argv in (
        (*compile, "-o", tmp_path / "no" / "n.tow"),
        (*compile, *out, "--labels", tmp_path / "nowhere.txt"),
        (*compile, *out, "--preprocess", "magic"),
        ("compile", journey.quantized, "--target", "nope", *out),
        ("bench", "mobilenet_v2_0.35_96"),
        ("bench", "mobilenet_v2_0.35_96", "--target", "nope"),
        ("bench", "mobilenet_v2_0.35_96", "--target", TARGET, "--device", "nope"),
        ("bench", journey.network, "--device", "nope"),
        ("bench", tmp_path / "nowhere.tflite", "--target", TARGET),
        ("bench", journey.network, "--baseline", tmp_path / "no" / "b.json", "--update-baseline"),
        ("run", journey.network, "--input", journey.pictures[0], "--output", tmp_path / "no" / "o.npz"),
    ):
        code, document, _ = call(capsys, *argv)
        assert code in (1, 2), argv
        assert document["error"]["code"] in ("usage", "invalid-input", "output-failed"), argv


def test_a_weight_type_that_the_activations_do_not_support(journey, tmp_path, capsys):
    argv = ("quantize", journey.float_model, "--calibrate", journey.pictures[0], "-o", tmp_path / "q.onnx")
    code, document, _ = call(capsys, *argv, "--weight", "uint8", "--activation", "int8")
    assert code == 2
    assert "uint8 weights" in document["error"]["message"]


def test_a_missing_last_input_is_found_before_the_first_runs(journey, tmp_path, capsys):
    last = tmp_path / "nope.png"
    code, document, err = call(capsys, "run", journey.network, "--input", journey.pictures[0], last)
    assert (code, document["error"]["code"]) == (2, "usage")
    assert "running the code" not in err


@pytest.mark.slow
@pytest.mark.parametrize(
    "verb",
    [
        ("inspect", "f.onnx"),
        ("inspect", "f.tow"),
        ("run", "f.tow", "--input", "x.npy"),
    ],
)
def test_pipes_are_refused_rather_than_waited_for(verb, tmp_path):
    os.mkfifo(tmp_path / verb[1])
    process = start(*verb, cwd=tmp_path)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "regular file" in err


@pytest.mark.slow
def test_names_that_no_encoding_holds(tmp_path):
    odd = os.fsencode(tmp_path) + b"/no\xff.onnx"
    command = [sys.executable.encode(), b"-m", b"towline", b"inspect", odd, b"--json"]
    environment = os.environ | {"PYTHONIOENCODING": "utf-8:strict"}
    done = subprocess.run(command, capture_output=True, env=environment, timeout=60)
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["code"] == "usage"
    assert b"Traceback" not in done.stderr


@pytest.mark.slow
def test_a_model_whose_name_is_not_text_compiles(journey, tmp_path):
    model = tmp_path / os.fsdecode(b"no\xff.onnx")
    shutil.copy(journey.quantized, model)
    network = tmp_path / "net.tow"
    assert main(["compile", str(model), "--target", TARGET, "-o", str(network)]) == 0
    assert artifact.load(network).source.name == "no?.onnx"


@pytest.mark.slow
def test_labels_in_a_locale_without_their_letters(journey, tmp_path):
    labels = tmp_path / "labels.txt"
    labels.write_text("\n".join(f"\u00fc{i}" for i in range(10)), encoding="utf-8")
    argv = [
        sys.executable,
        "-m",
        "towline",
        "run",
        journey.network,
        "--input",
        journey.pictures[0],
        "--labels",
        labels,
    ]
    done = subprocess.run(
        argv, capture_output=True, env=os.environ | {"PYTHONIOENCODING": "ascii"}, timeout=60, text=True
    )
    assert done.returncode == 0
    assert "\\xfc" in done.stdout


@pytest.mark.slow
def test_a_closed_stdout_is_not_reported_as_a_bug():
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m towline targets >&-"], capture_output=True, timeout=60, text=True
    )
    assert done.returncode == 0
    assert done.stderr == ""


def test_ctrl_c_while_starting():
    script = """
        import os, pkgutil, signal, sys

        class CtrlC:
            def find_spec(self, name, path=None, target=None):
                if name == "towline.cli":
                    os.kill(os.getpid(), signal.SIGINT)

        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.meta_path.insert(0, CtrlC())
        raise SystemExit(pkgutil.resolve_name(sys.argv[1])())
    """
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    command = [sys.executable, "-c", textwrap.dedent(script), scripts["towline"]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=60, text=True)
    assert done.returncode == 130
    assert done.stderr == "towline: error: interrupted; nothing half-written is left\n"


def test_options_are_not_abbreviated(capsys):
    assert main(["targets", "--js"]) == 2
    assert "--js" in capsys.readouterr().err


def test_labels_that_do_not_fit_are_refused_before_compiling(journey):
    with pytest.raises(InvalidInput, match="3 labels"):
        towline.compile(journey.quantized, labels=["a", "b", "c"])


def test_ranking_needs_the_output(journey):
    with towline.Session(journey.network) as session, pytest.raises(InvalidInput, match="no output named"):
        session.rank({})
