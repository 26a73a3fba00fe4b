"""What `towline push` takes of a phone's DSP: two contexts, the clock rate, its time."""

import argparse
import copy
import dataclasses
import hashlib
import json
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

from dsp.hexagon.plan import HexagonPlan
from sdk import artifact
from tests.unit.test_push import kernel, needs_phone, phone, program
from towline.cli import main
from towline.cli.push import _choice, _summary, configure
from towline.phone import build
from towline.phone.job import ANY, FOR_DSP, Job

__all__ = ["kernel", "phone"]  # fixtures
USUAL_POWER = struct.pack("<B7x2B30x", 7, 1, 4)
"""The request that withdraws a vote, as test_fastrpc_contexts.py has it."""


@pytest.fixture(autouse=True)
def one_input(request):
    if "kernel" in request.fixturenames:
        request.getfixturevalue("kernel")
        np.save("x.npy", np.load("x.npy")[:1])


def push(capsys, *options):
    """(exit code, result or error)."""
    code = main(["push", "net.tow", "x.npy", "--runs", "3", "--json", *options, "--adb"])
    document = json.loads(capsys.readouterr().out)
    return code, document["result" if document["ok"] else "error"]


def saved_for_one():
    """The network, with a plan for one context."""
    graph, made = program("hexagon-v65")
    plan = copy.deepcopy(made.plan)
    for layer in plan["layers"]:
        layer["meetings"] = None
    artifact.save(artifact.Artifact((dataclasses.replace(made, plan=plan),), graph, "q31"), "net.tow")


@needs_phone
@pytest.mark.slow
def test_two_contexts_and_what_they_take_of_the_dsp(kernel, capsys, caplog):
    code, result = push(capsys, "--check", "--times", "times.json")
    assert code == 0
    assert result["check"]["mismatches"] == 0
    assert json.loads(Path("times.json").read_text()) == result["times"]
    assert result["times"]["contexts"] == [2] * 3
    assert result["times"]["device_us"] == [1000] * 3, "of the fake DSP's clock"
    assert kernel.schedule == HexagonPlan.of(program("hexagon-v65")[1]).schedule(2)
    assert {*kernel.schedule} == {0, 1}
    image = kernel.image
    assert (image.begun, image.joined, image.locks, image.most) == (1, 1, 0, 2)
    assert (image.requests, image.request) == (2, USUAL_POWER), "a vote, and its end"
    assert not caplog.records, "no warning"


@needs_phone
@pytest.mark.slow
def test_one_context_because_it_is_asked_for(kernel, capsys):
    code, result = push(capsys, "--contexts", "1")
    assert (code, result["times"]["contexts"]) == (0, [1] * 3)
    assert result["times"]["device_us"] == [1000] * 3
    assert (kernel.schedule, kernel.image.begun, kernel.image.most) == (b"", 0, 1)
    assert kernel.image.requests == 2


@needs_phone
@pytest.mark.slow
def test_a_dsp_that_gives_less(kernel, capsys, caplog):
    """One context is enough, unless two were demanded."""
    kernel.image_lacks = ("qurt_thread_create", "HAP_power_set", "HAP_perf_get_time_us")
    code, result = push(capsys, "--check")
    assert (code, result["times"]["contexts"], result["check"]["mismatches"]) == (0, [1] * 3, 0)
    assert "device_us" not in result["times"]
    assert "one HVX context" in caplog.text
    assert "clock rate (0x80000414)" in caplog.text
    code, error = push(capsys, "--contexts", "2")
    assert (code, error["code"]) == (1, "device-failed")
    assert "one HVX context" in error["message"]
    assert "--contexts 2" in error["hint"]


@needs_phone
@pytest.mark.slow
def test_another_process_has_the_other_context(kernel, capsys, caplog):
    kernel.units = 1
    np.save("x.npy", (np.arange(2 * 819) % 127).astype(np.int8).reshape(2, 3, 13, 21))
    code, result = push(capsys, "--contexts", "2")
    assert (code, result["times"]["contexts"]) == (0, [1] * 6)
    assert caplog.text.count("another process") == 1, "once, not for each input"


@needs_phone
@pytest.mark.slow
def test_a_program_for_one_context(kernel, capsys):
    """Nothing is asked of an older object, which lacks the methods."""
    saved_for_one()
    code, result = push(capsys)
    assert (code, result["times"]["contexts"]) == (0, [1] * 3)
    assert "device_us" not in result["times"]
    assert kernel.image.requests == 0
    code, error = push(capsys, "--contexts", "2")
    assert (code, error["code"]) == (1, "invalid-artifact")
    assert "where two have to meet" in error["message"]


@needs_phone
@pytest.mark.slow
def test_a_schedule_of_another_program_is_refused(kernel, phone, capsys, monkeypatch):
    right = HexagonPlan.schedule
    monkeypatch.setattr(HexagonPlan, "schedule", lambda *given: right(*given) + bytes(1))
    code, error = push(capsys)
    assert (code, error["code"]) == (1, "device-failed")
    assert "the contexts with 0x8000040e" in error["message"]
    assert list(phone.iterdir()) == []


@needs_phone
@pytest.mark.slow
@pytest.mark.parametrize("wrong", [-1, 1, 1 << 40])
def test_a_plan_whose_schedule_has_another_size_is_refused(tmp_path, wrong):
    job = Job(FOR_DSP, 1, 0, 4, 0, b"", memoryview(b""), b"abc", contexts=ANY, schedule=b"\0\1\0")
    whole = bytearray(job.plan()[:-32])
    whole[-11:-3] = (3 + wrong).to_bytes(8, "little")
    (tmp_path / "plan").write_bytes(whole + hashlib.sha256(whole).digest())
    runner = build.built([build.SOURCES / name for name in build.DSP])
    command = ["qemu-aarch64", runner, "plan", "result"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.read() == f"towline-runner error plan: a schedule of {3 + wrong} bytes\n"
    process.communicate()


@pytest.mark.parametrize(
    ("options", "contexts"),
    [
        ([], None),
        (["--contexts", "2"], 2),
        (["--dsp", "fastrpc?contexts=1"], 1),
        (["--dsp", "fastrpc?node=android&contexts=2", "--contexts", "2"], 2),
    ],
)
def test_the_options_of_contexts(options, contexts):
    parser = argparse.ArgumentParser()
    configure(parser)
    assert _choice(parser.parse_args(["net.tow", *options, "--adb"])).contexts == contexts


def test_the_times_as_sentences():
    times = {"runs_us": [3000.0, 2000.0, 1000.0], "device_us": [900, 500, 400], "contexts": [1, 2, 2]}
    assert _summary("a phone", times).splitlines() == [
        "a phone: 3 inferences, 1.000 ms at least, 2.000 ms median, 3.000 ms at most",
        "by the DSP's clock: 0.400 ms at least, 0.500 ms median, 0.900 ms at most",
        "1 by one HVX context, 2 by two HVX contexts",
    ]
    assert len(_summary("a phone", {"runs_us": [1.0]}).splitlines()) == 1
