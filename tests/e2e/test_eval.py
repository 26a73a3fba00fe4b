"""`towline eval`: its figures against onnxruntime and the reference, the same from any process."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from PIL import Image

from sdk import artifact, reference
from sdk.compiler import compile
from sdk.errors import DeviceFailed
from sdk.evaluation import evaluate, spread
from sdk.preprocess import Preprocessing
from sdk.quantizer import quantize
from sdk.session import Session
from tests.onnx_models import OnnxBuilder, saved
from tests.reference_target import NAME, register, small_network
from towline.cli import main

PREPROCESSING = Preprocessing((8, 8), None, "RGB", 1 / 255, (0.5,) * 3, (0.25,) * 3)
CLASSES = 5


@dataclass(frozen=True)
class Network:
    tow: Path
    quantized: Path
    real: Path
    pictures: Path


def classifier(seed=0):
    """x [1,3,8,8] -> Conv -> Relu -> mean -> Gemm -> scores [1,5]."""
    builder, random = OnnxBuilder(), np.random.default_rng(seed)
    builder.input("x", [1, 3, 8, 8])
    builder.constant("w", random.normal(0, 1, (6, 3, 3, 3)), np.float32)
    common, own = random.normal(0, 1, (6, 1)), random.normal(0, 1, (6, CLASSES))
    builder.constant("v", common + 0.005 * own, np.float32)  # so alike that quantising changes some classes
    builder.constant("b", np.zeros(CLASSES), np.float32)
    builder.node("Conv", ["x", "w"], "c", name="conv")
    builder.node("Relu", ["c"], "r")
    builder.node("GlobalAveragePool", ["r"], "p")
    builder.node("Flatten", ["p"], "f")
    builder.node("Gemm", ["f", "v", "b"], "scores", name="gemm")
    return builder.model(["scores"])


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """Of the target `test-reference`, whose device `wrong` has one bit flipped."""
    folder = tmp_path_factory.mktemp("eval")
    random = np.random.default_rng(1)
    pictures = folder / "pictures"
    for index in range(12):
        file = pictures / f"{'even' if index % 2 == 0 else 'odd'}/{index:02}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        colours = random.integers(0, 256, (2, 2, 3), np.uint8)  # flat quarters: the classes differ
        Image.fromarray(colours).resize((16, 16), Image.Resampling.NEAREST).save(file)
    found = Network(folder / "net.tow", folder / "q.onnx", saved(classifier(), folder, "f.onnx"), pictures)
    quantize(found.real, pictures, found.quantized, preprocessing=PREPROCESSING, method="minmax")
    with pytest.MonkeyPatch.context() as patch:
        register(patch, folder / "site")
        compile(found.quantized, NAME, found.tow, labels=["a", "b", "c", "d", "e"])
        yield found


@pytest.fixture
def inline(monkeypatch):
    """In this process: what processes of their own give is compared in a test of its own."""
    monkeypatch.setattr(spread, "local", lambda job, items, jobs, done: spread.here(job, items, done))


def call(capsys, *argv, code=0):
    """(result or error, stderr) of `towline eval --json`."""
    capsys.readouterr()
    assert main(["eval", *map(str, argv), "--json"]) == code
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    return document.get("result", document.get("error")), captured.err


def everything(network):
    return [network.tow, "--model", network.quantized, "--float", network.real, "--images", network.pictures]


def by_hand(network):
    """Name -> (scores of the float model, scores of the reference)."""
    session = onnxruntime.InferenceSession(network.real.read_bytes(), providers=["CPUExecutionProvider"])
    loaded, result = artifact.load(network.tow), {}
    for file in sorted(network.pictures.rglob("*.png")):
        feeds = {"x": PREPROCESSING.apply(file)}
        scores = reference.run(loaded.graph, feeds, loaded.arithmetic)["scores"]
        result[file.relative_to(network.pictures).as_posix()] = session.run(None, feeds)[0][0], scores[0]
    return result


@pytest.mark.slow
def test_the_figures_are_those_of_each_model_by_itself(network, capsys, inline):
    expected = by_hand(network)
    result, err = call(capsys, *everything(network))
    assert result["seen_in_calibration"] == 12
    assert "12 of 12 inputs served to calibrate" in err
    assert (result["images"], result["available"], result["skipped"]) == (12, 12, [])
    same = np.mean([np.argmax(a) == np.argmax(b) for a, b in expected.values()])
    assert result["top1_against"] == "float"
    assert 0 < same < 1
    assert (result["top1"]["float"], result["top1"]["reference"], result["top1"]["target"]) == (1, same, same)
    noise = {
        name: 10 * np.log10(np.sum(a.astype(float) ** 2) / np.sum((a.astype(float) - b) ** 2))
        for name, (a, b) in expected.items()
    }
    for who in ("reference", "target"):
        assert result["sqnr_db"][who]["mean"] == pytest.approx(np.mean(list(noise.values())))
        assert result["sqnr_db"][who]["min"] == pytest.approx(min(noise.values()))
    assert result["sqnr_db"]["onnxruntime"]["mean"] == pytest.approx(
        result["sqnr_db"]["target"]["mean"], abs=6
    )
    assert result["max_abs_diff"]["target"] == pytest.approx(
        max(np.abs(a - b).max() for a, b in expected.values())
    )
    assert result["mismatches"]["mismatches"] == 0
    assert [one["image"] for one in result["worst"]] == sorted(noise, key=noise.get)[:10]
    assert (
        sum(pair["images"] for pair in result["confusion"])
        == len(result["changed"])
        == round(12 * (1 - same))
    )


def test_labels_as_a_file_or_as_folders(network, capsys, inline, tmp_path):
    expected = by_hand(network)
    labels = tmp_path / "labels.csv"
    with labels.open("w", newline="") as file:
        for index, (name, (scores, _)) in enumerate(expected.items()):
            right = np.argmax(scores)
            csv.writer(file).writerow([name, right if index else (right + 1) % CLASSES])
    result, _ = call(capsys, *everything(network), "--labels", labels)
    assert result["top1_labels"]["float"] == pytest.approx(11 / 12)
    target = np.mean([np.argmax(b) == np.argmax(a) and i > 0 for i, (a, b) in enumerate(expected.values())])
    assert result["top1_labels"]["target"] == pytest.approx(target, abs=1 / 12)
    for old, new in (("even", "a"), ("odd", "4")):
        (tmp_path / "pictures").mkdir(exist_ok=True)
        (tmp_path / "pictures" / new).symlink_to(network.pictures / old)
    result, _ = call(capsys, network.tow, "--images", tmp_path / "pictures", "--labels", "folders")
    share = np.mean([np.argmax(b) == (0 if "even" in name else 4) for name, (_, b) in expected.items()])
    assert result["top1_labels"] == {"reference": share, "target": share}
    assert (result["top1_against"], result["sqnr_db"]) == ("reference", None)
    assert len(result["not_compared"]) == 2


def test_unreadable_pictures_are_skipped_and_named(network, capsys, inline, tmp_path):
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    whole = (network.pictures / "odd/01.png").read_bytes()
    (pictures / "good.png").write_bytes(whole)
    (pictures / "cut.png").write_bytes(whole[:60])
    result, err = call(capsys, network.tow, "--images", pictures)
    assert (result["images"], [skipped["image"] for skipped in result["skipped"]]) == (1, ["cut.png"])
    assert "cut.png" in err
    (pictures / "good.png").unlink()
    error, _ = call(capsys, network.tow, "--images", pictures, code=1)
    assert error["code"] == "invalid-input"


def test_a_network_that_classifies_nothing_and_a_device_that_is_wrong(network, capsys, inline, tmp_path):
    builder = OnnxBuilder()
    builder.input("x", [1, 3, 8, 8])
    builder.constant("w", np.random.default_rng(0).normal(size=(2, 3, 3, 3)), np.float32)
    builder.node("Conv", ["x", "w"], "map", name="conv")
    real, arrays = saved(builder.model(["map"]), tmp_path), tmp_path / "x.npz"
    samples = np.random.default_rng(0).normal(size=(4, 3, 8, 8)).astype(np.float32)
    np.savez(arrays, x=samples)
    quantize(real, samples, tmp_path / "q.onnx", method="minmax")
    compile(tmp_path / "q.onnx", NAME, tmp_path / "net.tow")
    result, _ = call(capsys, tmp_path / "net.tow", "--float", real, "--images", arrays)
    assert (result["top1"], result["changed"], result["confusion"]) == (None, [], [])
    assert result["sqnr_db"]["target"]["min"] > 20
    models = ["--float", real, "--images", arrays]
    wrong, _ = call(capsys, tmp_path / "net.tow", *models, "--device", "wrong", "--limit", "2", code=1)
    assert (wrong["images"], wrong["available"], wrong["seen_in_calibration"]) == (2, 4, None)
    others = tmp_path / "others.npy"
    np.save(others, np.concatenate([samples[:1], samples[1:] + 1]))
    models = ["--model", tmp_path / "q.onnx", "--images", others]
    assert call(capsys, tmp_path / "net.tow", *models)[0]["seen_in_calibration"] == 1
    assert (wrong["mismatches"]["mismatches"], wrong["mismatches"]["images"]) == (2, 2)
    assert wrong["sqnr_db"]["target"] != wrong["sqnr_db"]["reference"]
    assert [one["image"] for one in sorted(result["worst"], key=lambda one: one["image"])] == list("0123")
    error, _ = call(capsys, tmp_path / "net.tow", "--images", arrays, "--labels", network.real, code=2)
    assert "classifier" in error["message"]
    error, _ = call(capsys, tmp_path / "net.tow", "--images", network.pictures, code=1)
    assert "picture" in error["message"]


def test_a_sequence_feeds_its_states_back(capsys, inline, tmp_path, monkeypatch):
    given, run = [], Session.run
    monkeypatch.setattr(Session, "run", lambda self, feeds: (given.append(feeds["h"]), run(self, feeds))[1])
    builder = OnnxBuilder()
    builder.input("x", [1, 4])
    builder.input("h", [1, 4])
    builder.node("Add", ["x", "h"], "next_h")
    builder.node("Tanh", ["next_h"], "y")
    real = saved(builder.model(["y", "next_h"]), tmp_path)
    compile(real, "c", tmp_path / "net.tow")
    steps = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=steps)
    result, _ = call(capsys, tmp_path / "net.tow", "--float", real, "--images", tmp_path / "x.npz")
    assert (result["sequence"], result["images"]) == (True, 5)
    assert result["sqnr_db"]["target"]["min"] > 100  # the float model had the same states
    expected = np.cumsum(np.vstack([np.zeros(4), steps[:-1]]), axis=0)
    assert np.allclose(np.concatenate(given), expected, atol=1e-6)
    np.savez(tmp_path / "x.npz", x=steps, h=steps)
    result, _ = call(capsys, tmp_path / "net.tow", "--float", real, "--images", tmp_path / "x.npz")
    assert result["sequence"] is False
    np.savez(tmp_path / "x.npz", x=steps)
    error, _ = call(capsys, tmp_path / "net.tow", "--images", tmp_path / "x.npz", "--jobs", "2", code=2)
    assert "sequence" in error["message"]


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (["--float", "{quantized}"], 2, "is a quantised model"),
        (["--model", "{real}"], 2, "is a float model"),
        (["--float", "{other}"], 2, "its inputs are picture; the compiled network's are x"),
        (["--float", "{larger}"], 2, "[1, 3, 9, 9]; the compiled network's is [1, 3, 8, 8]"),
        (["--images", "{empty}"], 1, "no picture"),
        (["--images", "{missing}"], 2, "no such file"),
        (["--labels", "{missing}"], 2, "cannot be read"),
        (["--html", "{missing}/r.html"], 1, "directory does not exist"),
        (["--html", "{empty}"], 1, "not a regular file"),
        (["--html", "report.txt"], 2, "must end in .html"),
        (["--html", "{page}"], 1, "not a regular file"),
        (["--device", "usb"], 2, "'usb' is not a device of"),
        (["--device", "wrong", "--jobs", "2"], 2, "one process owns"),
        (["--limit", "0"], 2, "--limit"),
    ],
)
def test_wrong_arguments_are_refused(network, capsys, inline, tmp_path, arguments, code, part):
    for name, given, shape in (("other", "picture", 8), ("larger", "x", 9)):
        builder = OnnxBuilder()
        builder.input(given, [1, 3, shape, shape])
        builder.node("GlobalAveragePool", [given], "scores")
        saved(builder.model(["scores"]), tmp_path, f"{name}.onnx")
    for name in ("empty", "page.html"):
        (tmp_path / name).mkdir()
    words = {
        "quantized": network.quantized,
        "real": network.real,
        "other": tmp_path / "other.onnx",
        "larger": tmp_path / "larger.onnx",
        "empty": tmp_path / "empty",
        "page": tmp_path / "page.html",
        "missing": tmp_path / "missing",
    }
    images = [] if "--images" in arguments else ["--images", network.pictures]
    given = [argument.format(**words) for argument in arguments]
    error, _ = call(capsys, network.tow, *images, *given, code=code)
    assert part in error["message"]


def test_the_page_is_whole_and_has_small_pictures(network, capsys, inline, tmp_path):
    page = tmp_path / "report.html"
    result, _ = call(capsys, *everything(network), "--html", page)
    text = page.read_text()
    assert result["html"] == str(page)
    assert text.count('<img src="data:image/jpeg;base64,') == len(result["worst"]) + len(result["changed"])
    assert "http" not in text.replace("http-equiv", "")
    assert all(one["image"] in text for one in result["worst"])


def figures(found):
    document = found.to_json()
    del document["seconds"], document["source"]
    return document


@pytest.mark.slow
def test_processes_and_dask_workers_give_the_figures_of_one_process(network, monkeypatch):
    distributed = pytest.importorskip("distributed")
    models = {"real": network.real, "model": network.quantized}
    one = figures(evaluate(network.tow, network.pictures, jobs=1, **models))
    assert figures(evaluate(network.tow, network.pictures, jobs=3, **models)) == one
    with monkeypatch.context() as patch:
        patch.setattr(spread, "local", lambda job, items, jobs, done: spread.here(job, items, done))
        assert figures(evaluate(network.tow, network.pictures, **models)) == one
    monkeypatch.setattr(spread, "PART", 2)
    monkeypatch.setattr(spread, "WAITING", 3)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        address = cluster.scheduler_address
        done = []
        shared = evaluate(
            network.tow,
            network.pictures,
            scheduler=address,
            progress=lambda *at: done.append(at[1]),
            **models,
        )
        assert figures(shared) == one
        assert done == [*range(0, 13, 2)]


@pytest.mark.slow
def test_a_process_that_dies_is_an_error(network, monkeypatch):
    whole = spread.toolchain.launch

    def launch(argv, **streams):
        process = whole(argv, **streams)
        process.kill()
        return process

    monkeypatch.setattr(spread.toolchain, "launch", launch)
    with pytest.raises(DeviceFailed):
        evaluate(network.tow, network.pictures, jobs=2)


@pytest.mark.slow
def test_ctrl_c_leaves_no_process(network, tmp_path):
    """A device that takes its time: the emulated DSP would, here it is many pictures."""
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    data = (network.pictures / "odd/01.png").read_bytes()
    for index in range(3000):
        (pictures / f"{index}.png").write_bytes(data)
    page = tmp_path / "r.html"
    command = ["eval", network.tow, "--images", pictures, "--jobs", "2", "--html", page]
    process = subprocess.Popen(
        [sys.executable, "-m", "towline", *map(str, command)],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    workers = []
    while len(workers) < 2:
        assert process.poll() is None
        time.sleep(0.1)
        workers = [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and _parent(pid) == process.pid]
    time.sleep(1)
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert not page.exists()
    assert "Traceback" not in err
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]


def _parent(pid):
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def test_a_network_that_takes_no_pictures(capsys, inline, monkeypatch, tmp_path):
    register(monkeypatch, tmp_path / "site")
    compile(small_network(), NAME, tmp_path / "net.tow")
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(0, 0.5, (3, 1, 4, 4)).astype(np.float32))
    result, _ = call(capsys, tmp_path / "net.tow", "--images", tmp_path / "x.npy")
    assert (result["images"], result["top1"]) == (3, {"reference": 1.0, "target": 1.0})
