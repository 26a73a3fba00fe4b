"""`towline bench gemm`: sizes, results, and a baseline; its figures are tests/e2e/test_bench_gemm.py's."""

import json
from dataclasses import replace

import pytest

from towline.cli import main
from towline.cli.benchmarks import gemm
from usbgpu.target.plain import products


def call(capsys, *options):
    code = main(["bench", "gemm", *options, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_a_size_is_measured_and_checked(capsys):
    code, document = call(capsys, "--target", "amd-gfx1100", "--size", "17,40,33")
    assert code == 0
    (found,) = document["result"]["sizes"]
    assert (found["m"], found["n"], found["k"], found["dtype"]) == (17, 40, 33, "float16")
    assert found["outside"] == 0
    assert 0 < found["share_of_peak"] < 1
    assert 0 < found["wmma_share"] < 1
    assert found["wave_instructions"] > found["waves"] > 0
    assert found["virtual_us"] > 1


def test_a_wrong_result_fails(capsys, monkeypatch):
    """A product that leaves out the last of its k."""
    shorter = lambda chip, product: products.launch(chip, replace(product, k=product.k - 1))  # noqa: E731
    monkeypatch.setattr(gemm, "launch", shorter)
    code, document = call(capsys, "--target", "amd-gfx1100", "--size", "17,40,33")
    assert code == 1
    assert document["result"]["sizes"][0]["outside"] > 0


@pytest.mark.slow
def test_a_baseline_of_all_targets_is_compared_by_target(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(gemm, "SIZES", ((16, 16, 16),))
    monkeypatch.setattr(gemm, "of_network", lambda name: [])
    path = tmp_path / "b.json"
    assert call(capsys, "--baseline", str(path), "--update-baseline")[0] == 0
    document = json.loads(path.read_text())
    assert any(name.startswith("amd-gfx1201 ") for name in document["counts"])
    name = next(name for name in document["counts"] if name.startswith("amd-gfx1100 "))
    assert call(capsys, "--target", "amd-gfx1100", "--baseline", str(path))[0] == 0
    document["counts"][name] -= 1
    path.write_text(json.dumps(document))
    code, document = call(capsys, "--target", "amd-gfx1100", "--baseline", str(path))
    assert code == 1
    assert [one["name"] for one in document["result"]["baseline"]["worse"]] == [name]


@pytest.mark.parametrize(
    "more",
    [
        ("--target", "c"),
        ("--size", "16,16"),
        ("--size", "0,16,16"),
        ("--size", "99999,99999,99999"),
        ("--size", "16,16,16", "--baseline", "b.json"),
        ("--target", "amd-gfx1100", "--baseline", "b.json", "--update-baseline"),
        ("--device", "emulated"),
    ],
)
def test_contradicting_options_are_refused(more, capsys):
    assert main(["bench", "gemm", *more, "--json"]) == 2


def test_sizes_are_of_gemm_alone(capsys):
    assert main(["bench", "gpu", "--size", "16,16,16"]) == 2
