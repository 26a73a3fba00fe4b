"""`towline bench c`: the exported C's time beside onnxruntime's, and the results of every build."""

import json
import shutil

import pytest

from sdk import compiler
from sdk.zoo.benchmark import benchmark
from tests.reference_target import small_network
from towline.cli import main


@pytest.fixture
def quantized(tmp_path):
    return benchmark("mobilenet_v2_0.25_32", tmp_path)


def bench(capsys, *arguments):
    status = main(["bench", "c", *map(str, arguments), "--json"])
    return status, json.loads(capsys.readouterr().out)


@pytest.mark.slow
@pytest.mark.parametrize("as_tow", [False, True])
def test_times_of_builds_and_of_onnxruntime(quantized, tmp_path, capsys, as_tow):
    subject = quantized
    if as_tow:  # its model is found beside it
        subject = tmp_path / "net.tow"
        compiler.compile(quantized, "c", subject)
    compiler_name = "gcc" if shutil.which("gcc") else "cc"
    status, document = bench(capsys, subject, "--cc", compiler_name, "--cflags=-O1", "--cflags=-O2 -g")
    assert status == 0
    result = document["result"]
    assert [build["build"] for build in result["builds"]] == [
        f"{compiler_name} -O1",
        f"{compiler_name} -O2 -g",
    ]
    for build in result["builds"]:
        assert build["different"] == 0
        assert build["milliseconds"] > 0
        assert 1000 < build["text_bytes"] < 100_000
    milliseconds = result["milliseconds"]
    assert milliseconds["litert"] is None
    assert milliseconds["towline"] == min(build["milliseconds"] for build in result["builds"])
    assert result["ratio_to_onnxruntime"] == milliseconds["towline"] / milliseconds["onnxruntime"]
    assert result["text_bytes"] in [build["text_bytes"] for build in result["builds"]]


@pytest.mark.slow
def test_a_network_without_a_model_has_no_ratio(tmp_path, capsys):
    compiler.compile(small_network(), "c", tmp_path / "net.tow")
    status, document = bench(capsys, tmp_path / "net.tow", "--cflags=-O1")
    assert status == 0
    assert document["result"]["ratio_to_onnxruntime"] is None


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["net.tow"],
        ["nothing_1.0_224"],
        ["x.tow", "--model", "missing.onnx"],
        ["x.tow", "--cc", "no-such-compiler"],
        ["x.tow", "--cflags='"],
    ],
)
def test_wrong_arguments(arguments, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, document = bench(capsys, *arguments)
    assert status == 2
    assert document["error"]["message"]


def test_options_of_c_are_for_c_alone(capsys):
    assert main(["bench", "mcs51", "--cc", "gcc"]) == 2
    assert main(["bench", "mcs51", "net.tow"]) == 2
    assert "for c" in capsys.readouterr().err
