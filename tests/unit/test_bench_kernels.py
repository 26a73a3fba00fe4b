"""`towline bench kernels`; the counts themselves are tests/e2e/test_baselines.py's."""

import json

import pytest

from sdk.graph import OPERATORS, Dequantize, Quantize, Region, Reshape, Slice, Take
from sdk.target import CountsKernels, KernelCount
from sdk.verification import PLAIN, verify
from towline.cli import bench, main
from towline.cli.benchmarks import kernels


def test_the_network_has_every_operator_that_has_kernels():
    graph = kernels.network()
    verify(graph)
    found = {type(node) for node in graph.nodes}
    of_some_targets = {Slice, Take, Region}
    assert found == set(OPERATORS.values()) - {Quantize, Dequantize, Reshape, *of_some_targets, *PLAIN}


class Counting:
    name = "counting"
    counter = "packets"

    def __init__(self, count):
        self.count = count

    def count_kernels(self, body):
        return {"clang": "19"}, [
            KernelCount("gemm", "a", 10),
            KernelCount("gemm UNROLLED=2", "b", self.count),
        ]


@pytest.fixture
def counts(monkeypatch, tmp_path, capsys):
    """Runs the command with a target whose second kernel counts that; (exit code, document)."""
    assert isinstance(Counting(0), CountsKernels)

    def run(count, *more):
        monkeypatch.setattr(bench, "get_target", lambda name: Counting(count))
        options = ("--target", "counting", "--baseline", str(tmp_path / "b.json"), "--json", *more)
        code = main(["bench", "kernels", *options])
        return code, json.loads(capsys.readouterr().out)

    return run


def test_a_count_that_gets_worse_names_kernel_and_shape(counts):
    assert counts(20, "--update-baseline")[0] == 0
    assert counts(20)[0] == 0
    code, document = counts(19)
    assert code == 0
    assert [one["now"] for one in document["result"]["baseline"]["better"]] == [19]
    code, document = counts(21)
    assert code == 1
    name = "gemm UNROLLED=2 (b).packets"
    assert document["result"]["baseline"]["worse"] == [{"name": name, "baseline": 20, "now": 21}]
    assert name in document["error"]["message"]


@pytest.mark.parametrize("more", [(), ("--target", "c"), ("--target", "hexagon-v65", "--device", "emulated")])
def test_kernels_are_those_of_a_target_that_counts(more, capsys):
    assert main(["bench", "kernels", *more, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "usage"
