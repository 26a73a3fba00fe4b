"""`towline gpu` and `towline bench gpu` on the command line."""

import json
import re

import pytest

from emulator.amdgpu import capture
from emulator.amdgpu.kernels import build
from tests.chips import GENERATIONS
from towline.cli import bench_gpu, main
from usbgpu.amd.facts.chips import CHIPS


def call(capsys, *argv):
    """(exit code, JSON document, stderr) of a command line in this process."""
    code = main([*map(str, argv), "--json"])
    captured = capsys.readouterr()
    return code, json.loads(captured.out), captured.err


@pytest.fixture(params=GENERATIONS)
def chip(request):
    return request.param


def test_disasm_lists_every_instruction_with_its_class(chip, capsys, tmp_path):
    path = tmp_path / "kernels.co"
    path.write_bytes(build.code_object("layers", chip))
    code, document, _ = call(capsys, "gpu", "disasm", path, "--kernel", "depthwise")
    assert code == 0
    result = document["result"]
    assert result["chip"] == chip
    [kernel] = result["kernels"]
    assert kernel["not_implemented"] == []
    lines = [line for block in kernel["blocks"] for line in block["instructions"]]
    assert sum(kernel["classes"].values()) == len(lines)
    assert lines[-1]["text"] == "s_endpgm"
    assert [one["name"] for one in kernel["arguments"]][:2] == ["input", "weights"]
    labels = {block["label"] for block in kernel["blocks"]}
    branches = [line["text"].split()[1] for line in lines if line["text"].startswith("s_cbranch")]
    assert branches
    assert labels >= {*branches, *(label for block in kernel["blocks"] for label in block["successors"])}


def test_disasm_as_text(capsys, tmp_path):
    path = tmp_path / "kernels.co"
    path.write_bytes(build.code_object("gemm", "gfx1100"))
    assert main(["gpu", "disasm", str(path)]) == 0
    out = capsys.readouterr().out
    assert "kernel gemm_dot4, entry" in out
    assert "kernel gemm_wmma, entry" in out
    assert "v_dot4_i32_iu8" in out
    assert "entry:  ; to " in out
    assert re.search(r"^[ |/]*[/\\\\+]-*-> L\d+:", out, re.M), "a jump has an arrow"


def test_disasm_names_what_is_not_implemented(capsys, tmp_path):
    source = tmp_path / "k.cl"
    load = "image_load v0, v1, s[0:7] dmask:0x1 dim:SQ_RSRC_IMG_1D"
    source.write_text(f'kernel void k(global uint *p) {{ __asm volatile("{load}"); p[0] = 1; }}')
    path = tmp_path / "k.co"
    path.write_bytes(build.compile_file(source, "gfx1100"))
    code, document, _ = call(capsys, "gpu", "disasm", path)
    assert code == 0
    assert document["result"]["kernels"][0]["not_implemented"] == ["image_load"]


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"\x7fELF\x02\x01\x01" + bytes(200), b"hello " * 50])
def test_disasm_refuses_files_that_are_not_code_objects(content, capsys, tmp_path):
    path = tmp_path / "x.co"
    path.write_bytes(content)
    code, document, _ = call(capsys, "gpu", "disasm", path)
    assert code == 1
    assert document["error"]["code"] == "invalid-input"
    assert str(path) in document["error"]["message"]


def test_disasm_refuses_missing_files_and_kernels(capsys, tmp_path):
    code, document, _ = call(capsys, "gpu", "disasm", tmp_path / "none.co")
    assert (code, document["error"]["code"]) == (2, "usage")
    path = tmp_path / "gemm.co"
    path.write_bytes(build.code_object("gemm", "gfx1100"))
    code, document, _ = call(capsys, "gpu", "disasm", path, "--kernel", "nothing")
    assert code == 1
    assert "gemm_dot4" in document["error"]["hint"]


def test_a_capture_replays_alone_and_a_changed_one_does_not(chip, capsys, tmp_path):
    path = tmp_path / "add.capture"
    code, document, _ = call(capsys, "gpu", "capture", "add", "--chip", chip, "-o", path)
    assert (code, document["result"]["mismatches"]) == (0, 0)
    code, document, _ = call(capsys, "gpu", "replay", path)
    assert (code, document["result"]["differences"]) == (0, 0)
    assert document["result"]["instructions"]["valu"] > 0

    recorded = capture.load(path)
    low, high = recorded.dispatch.user_data[:2]
    place_of_zero = (high << 32 | low) + 44
    memory = []
    for start, data in recorded.memory:  # another zero point of the output: its last argument
        if start <= place_of_zero < start + len(data):
            place = place_of_zero - start
            data = data[:place] + b"\x01" + data[place + 1 :]
        memory.append((start, data))
    changed = capture.Capture(recorded.chip, "add", recorded.dispatch, memory, recorded.outcome)
    path.write_bytes(capture.pack(changed))
    code, document, _ = call(capsys, "gpu", "replay", path)
    assert code == 1
    assert document["result"]["differences"] > 0
    assert "bytes differ" in document["error"]["message"]


def test_capture_refuses_unknown_kernels_and_chips(capsys, tmp_path):
    code, document, _ = call(capsys, "gpu", "capture", "nothing", "-o", tmp_path / "x")
    assert (code, document["error"]["code"]) == (2, "usage")
    assert "gemm_dot4" in document["error"]["hint"]
    code, document, _ = call(capsys, "gpu", "capture", "add", "--chip", "gfx900", "-o", tmp_path / "x")
    assert (code, document["error"]["code"]) == (2, "usage")
    code, document, _ = call(capsys, "gpu", "capture", "add", "-o", tmp_path / "none" / "x")
    assert code != 0


def test_replay_refuses_files_that_are_not_captures(capsys, tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"no capture")
    code, document, _ = call(capsys, "gpu", "replay", path)
    assert (code, document["error"]["code"]) == (1, "invalid-input")


@pytest.mark.slow
def test_the_benchmark(capsys):
    code, document, _ = call(capsys, "bench", "gpu")
    assert code == 0
    result = document["result"]
    assert result["wave_instructions_per_second"].keys() == {"dot4_gemm", "alu"}
    assert 0 < result["first_use_seconds"] < 60
    assert {(one["chip"], one["mismatches"]) for one in result["kernels"]} == {(chip, 0) for chip in CHIPS}
    assert result["cost"]["gfx1100"][0].keys() == {"name", "value", "unit", "what", "grade"}


def test_the_benchmark_takes_no_options_of_networks(capsys):
    code, document, _ = call(capsys, "bench", "gpu", "--target", "c")
    assert (code, document["error"]["code"]) == (2, "usage")


FOUND = {
    "chip": "gfx1100",
    "wave_instructions_per_second": {"dot4_gemm": 187_400_000, "alu": 4_781_300_000},
    "vector_share": {"dot4_gemm": 0.59, "alu": 0.53},
    "first_use_seconds": 0.15,
    "kernels": [{"name": "gemm_dot4", "chip": chip, "mismatches": 0} for chip in CHIPS],
    "scoreboard": {
        chip: {
            "kernels": [
                {
                    "name": "gemm_dot4", "waves": 16, "wave_instructions": 14_304, "read": 25_088,
                    "written": 32_768, "virtual_us": 5.014,
                }
            ]
        }
        for chip in CHIPS
    },
    "instructions": {
        chip: [
            {"encoding": "VOP1", "exist": 1083, "implemented": 81, "emitted": 53,
             "emitted_but_missing": ["v_x"]}
        ]
        for chip in CHIPS
    },
    "cost": {
        chip: [{"name": "launch", "value": 1.5e-6, "unit": "s", "what": "to begin", "grade": "guess"}]
        for chip in CHIPS
    },
}  # fmt: skip


def test_the_benchmarks_text_is_short_and_complete_with_verbose():
    short, long = (bench_gpu.text(FOUND, everything=everything) for everything in (False, True))
    assert "gemm_dot4" in short
    assert "gfx1201: 81 of 1,083 instructions are implemented, clang emits 53, of which 1 are not" in short
    assert "VOP1" not in short
    assert "VOP1" in long
    assert "guess" in long
    assert all(len(line) <= 100 for line in short.split("\n"))
