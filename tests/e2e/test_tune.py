"""`towline tune` on the emulated DSP: the same file from any machine, the counts that a network then has."""

import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from dsp.hexagon import tuning as variants
from dsp.hexagon.build import kernel_hash
from dsp.hexagon.lowering import lower
from sdk import cache, reference, toolchain, tuner, tuning
from sdk.errors import DeviceFailed, EnvironmentMissing, ToolMissing
from sdk.importers import load_model
from sdk.passes import optimize
from sdk.quantizer import quantize
from sdk.segments import split
from sdk.target import Options
from sdk.targets import get_target
from sdk.tuning import Entry, Tuning
from sdk.zoo.benchmark import benchmark
from tests.amount import thorough_only
from tests.graph_builder import GraphBuilder
from tests.onnx_models import saved, small_float_model
from towline.cli import main

NAME = "hexagon-v65"
TUNED = (
    *("mobilenet_v1", "mobilenet_v2", "mobilenet_v3_small"),
    *("efficientnet_lite0", "resnet18", "detector"),
)
"""Networks of the zoo, at 1.0_224, whose layers the shipped file is of."""
MEASURED_WITH = "19.1.7"
"""The clang of the shipped file."""

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def tools(monkeypatch, tmp_path):
    for tool in ("clang", "lld", "qemu-hexagon"):
        try:
            toolchain.find(tool)
        except ToolMissing:
            pytest.skip(f"{tool} is not installed")
    monkeypatch.setenv("TOWLINE_CACHE", str(with_kernels(tmp_path / "cache", cache.directory("hexagon"))))


def with_kernels(folder, kernels):
    """A cache without measurements, whose compiled kernels are those of all tests."""
    kernels.mkdir(parents=True, exist_ok=True)
    folder.mkdir()
    (folder / kernels.name).symlink_to(kernels, target_is_directory=True)
    return folder


def body():
    """Every kernel with variants: packing, phases, a table, a strided window, sums, the mean, a matrix."""
    b = GraphBuilder((1, 3, 18, 18), seed=5)
    x = b.conv("x", 16, 3, strides=2, pads=1, relu=True)
    x = b.add(b.conv(x, 16, 3, pads=1), x)
    x = b.depthwise(x, 3, strides=2, pads=1)
    x = b.lookup(x, np.tanh)
    return b.graph(b.gemm(b.reshape(b.global_average_pool(x)), 40))


@pytest.fixture
def model(tmp_path):
    path = saved(small_float_model().model(["y"]), tmp_path, "float.onnx")
    samples = np.random.default_rng(0).normal(size=(2, 3, 8, 8)).astype(np.float32)
    quantize(path, samples, tmp_path / "q.onnx")
    return str(tmp_path / "q.onnx")


def document(capsys, *argv, code=0):
    assert main([*argv, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def all_as(number):
    """A tuning that takes the choice of this number, or the last, for every call of the body."""
    groups = {}
    for candidate in variants.candidates(lower(body()), "v65"):
        groups.setdefault(candidate.signature, []).append(candidate)
    entries = {
        name: Entry(group[0].kernels, group[min(number, len(group) - 1)].choice, 1, 2)
        for name, group in groups.items()
    }
    return max(map(len, groups.values())), Tuning(NAME, "packets", entries)


def test_every_variant_gives_the_references_bits():
    graph, target = body(), get_target(NAME)
    inputs = {"x": np.random.default_rng(1).integers(0, 255, (1, 3, 18, 18), np.uint8, endpoint=True)}
    expected = reference.run(graph, inputs, "q31")
    most, _ = all_as(0)
    assert most >= 6
    for number in range(most):
        program = target.compile(graph, Options(tuning=all_as(number)[1]))
        with target.open(None).load(program) as session:
            for trace in (session.trace(inputs), session.trace_halves(inputs)):
                for name, value in trace.items():
                    assert np.array_equal(value, expected[name]), (number, name)


def test_the_network_saves_as_many_packets_as_the_tuner_reports(monkeypatch):
    monkeypatch.setattr(variants, "shipped", lambda target: Tuning(target, "packets"))
    graph, target = body(), get_target(NAME)
    with tuner.local() as pool:
        outcome = tuner.tune(NAME, graph, pool, lambda known, total: None)

    def profile(found):
        with target.open(None).load(target.compile(graph, Options(tuning=found))) as session:
            return session.profile()

    before, after = profile(None), profile(outcome.tuning)
    saved_packets = sum(layer.uses * (layer.untuned - layer.count) for layer in outcome.layers)
    assert before.total["packets"] - after.total["packets"] == saved_packets > 0
    # A layer of one call has the count that its candidate had alone, on weights of zeros.
    gemm = next(layer for layer in outcome.layers if layer.signature.startswith("gemm"))
    assert before.layers[-1].counters["packets"] == gemm.untuned
    assert after.layers[-1].counters["packets"] == gemm.count


def test_a_candidate_counts_what_its_call_takes_in_the_network(monkeypatch):
    """On other weights, at other addresses, with other tables: nothing of them is in a signature."""
    monkeypatch.setattr(variants, "shipped", lambda target: Tuning(target, "packets"))
    b = GraphBuilder((1, 3, 18, 22), seed=5)
    x = b.conv(b.conv("x", 10, 3, strides=2, pads=1, relu=True), 7)
    resized = b.resize(x, [i // 2 for i in range(18)], [i * 5 // 11 for i in range(22)])
    padded = b.pad(b.concat(resized, b.alike(b.conv(resized, 5), resized)), (1, 2, 3, 0))
    dense = b.reshape(b.transpose(x, (0, 2, 3, 1)), (1, 7 * 99))
    pooled = b.global_average_pool(b.depthwise(b.max_pool(b.mul(x, x), 3, pads=1), 5, pads=2))
    graph = b.graph(
        padded, b.concat(dense, dense), b.transpose(x, (0, 3, 1, 2)), b.gemm(b.reshape(pooled), 40)
    )
    target = get_target(NAME)
    lowered = lower(graph)
    alone = {c.signature: target.measure(c) for c in variants.candidates(lowered, "v65") if not c.choice}
    with target.open(None).load(target.compile(graph, Options())) as session:
        counted = [layer.counters["packets"] for layer in session.profile().layers]
    of_a_call = set()  # packets between two calls of a layer
    for layer, count in zip(lowered.layers, counted, strict=True):
        calls = [alone[variants.signature(c)] for c in layer.calls if len(variants.choices(c.kernel)) > 1]
        if len(calls) == len(layer.calls) > 1:
            of_a_call.add((sum(calls) - count) / (len(calls) - 1))
        elif len(calls) == len(layer.calls):
            assert calls[0] == count, layer.name
    assert len(of_a_call) == 1


def test_two_dask_workers_give_the_file_of_one_process(model, tmp_path, capsys, monkeypatch):
    distributed = pytest.importorskip("distributed")
    alone, shared = tmp_path / "alone.json", tmp_path / "shared.json"
    first = document(capsys, "tune", model, "--target", NAME, "-o", str(alone), "--jobs", "1")["result"]
    assert first["measured"] == first["candidates"] > 4
    workers = with_kernels(tmp_path / "workers", cache.directory("hexagon").resolve())
    monkeypatch.setenv("TOWLINE_CACHE", str(workers))
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        monkeypatch.setenv("TOWLINE_CACHE", str(tmp_path / "client"))
        address = cluster.scheduler_address
        second = document(capsys, "tune", model, "--target", NAME, "-o", str(shared), "--scheduler", address)[
            "result"
        ]
        assert second["measured"] == first["measured"]
        assert shared.read_bytes() == alone.read_bytes()
        assert tuning.read(alone, NAME).entries
        assert not (tmp_path / "client" / "hexagon").exists()  # only the workers compiled
        # A worker's refusal arrives here unchanged.
        monkeypatch.setenv("TOWLINE_CACHE", str(tmp_path / "third"))
        monkeypatch.setattr(tuner, "version", lambda: "9.9.9")
        refused = document(
            capsys, "tune", model, "--target", NAME, "-o", str(shared), "--scheduler", address, code=3
        )
        assert "worker on" in refused["error"]["message"]
        assert "not 9.9.9" in refused["error"]["message"]
        assert refused["error"]["hint"] == "install the same Towline on every worker"


def test_no_scheduler_and_no_worker_are_refused(monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(tuner, "CONNECT_SECONDS", 1)
    for address in ("tcp://127.0.0.1:1", "nonsense"):
        refused = pytest.raises(EnvironmentMissing, match="no Dask scheduler answers")
        with refused as missing, tuner.dask(address):
            pass
        assert missing.value.where == address
    monkeypatch.setattr(tuner, "CONNECT_SECONDS", 5)
    refused = pytest.raises(EnvironmentMissing, match="has no worker")
    with distributed.LocalCluster(n_workers=0, dashboard_address=None, processes=False) as cluster:
        address = cluster.scheduler_address
        with refused, tuner.dask(address):
            pass


def test_a_lost_scheduler_is_one_error_without_tracebacks():
    pytest.importorskip("distributed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    address = f"tcp://127.0.0.1:{port}"
    dask = [sys.executable, "-m", "dask"]
    with contextlib.ExitStack() as ends:
        commands = (["scheduler", "--port", port], ["worker", address, "--no-nanny"])
        scheduler, _ = (
            ends.enter_context(_process([*dask, *command, "--host", "127.0.0.1", "--no-dashboard"]))
            for command in commands
        )
        time.sleep(2)
        with pytest.raises(DeviceFailed, match="were lost"):
            _lose(scheduler, address)
    # Its client would print tracebacks of its attempts to connect again.
    assert not logging.getLogger("distributed.client").isEnabledFor(logging.ERROR)


def _lose(scheduler, address):
    with tuner.dask(address) as pool:
        future = pool.submit(time.sleep, 60)
        scheduler.kill()
        future.result(timeout=60)


@contextlib.contextmanager
def _process(command):
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_ctrl_c_keeps_what_was_measured(model, tmp_path, capsys):
    output, kept = tmp_path / "t.json", tmp_path / "cache" / "measurements"
    command = [
        sys.executable,
        "-m",
        "towline",
        "tune",
        model,
        "--target",
        NAME,
        "-o",
        str(output),
        "--jobs",
        "1",
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
    deadline = time.monotonic() + 300
    while not (kept.exists() and any(kept.glob("*.json"))):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130, err
    assert "nothing half-written is left" in err
    assert not output.exists()
    assert not [name for name in os.listdir(kept) if not name.endswith(".json")]
    known = len(os.listdir(kept))
    result = document(capsys, "tune", model, "--target", NAME, "-o", str(output))["result"]
    assert result["known"] == known
    assert result["measured"] == result["candidates"] - known > 0


def test_compile_and_inspect_say_what_was_chosen(model, tmp_path, capsys):
    output, net = str(tmp_path / "t.json"), str(tmp_path / "net.tow")
    tuned = document(capsys, "tune", model, "--target", NAME, "-o", output)["result"]
    gains = sum(layer["uses"] for layer in tuned["layers"] if layer["choice"])
    argv = ["compile", model, "--target", NAME, "-o", net, "--tuning", output]
    compiled = document(capsys, *argv)["result"]["tuning"]
    assert len(compiled["chosen"]) == gains > 0
    assert {entry["by"] for entry in compiled["chosen"]} == {"user"}
    assert document(capsys, "inspect", net)["result"]["tuning"] == compiled
    assert main(["inspect", net]) == 0
    assert f"kernels: {compiled['heuristic']} by the heuristic, " in capsys.readouterr().out


def test_the_shipped_file_is_of_the_current_kernels():
    """Otherwise it is without effect: tune `TUNED` at 1.0_224 again into dsp/hexagon/tuning.json."""
    if toolchain.version("clang") != MEASURED_WITH:
        pytest.skip(f"the shipped file was measured with clang {MEASURED_WITH}")
    entries = variants.shipped(NAME).entries
    hashes = {kernel_hash(path.name, "v65") for path in variants.KERNELS.glob("*.c")}
    assert entries
    assert [name for name, entry in entries.items() if entry.kernels not in hashes] == []


@thorough_only("tests/e2e/test_baselines.py: an entry of MobileNetV2 without effect costs packets")
def test_the_shipped_file_is_of_the_current_calls(tmp_path):
    """An entry whose signature no lowering gives any more is without effect too."""
    signatures = set()
    for network in TUNED:
        body = split(optimize(load_model(benchmark(f"{network}_1.0_224", tmp_path)))).body
        signatures.update(candidate.signature for candidate in get_target(NAME).candidates(body))
    assert variants.shipped(NAME).entries.keys() - signatures == set()
