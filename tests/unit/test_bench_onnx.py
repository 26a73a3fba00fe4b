"""`towline bench onnx`: batches of networks, and what becomes of their results."""

from __future__ import annotations

import argparse
import dataclasses

import numpy as np
import pytest
from onnx import TensorProto, helper

from sdk.errors import BuildFailed, UsageError
from sdk.graph import Softmax, Tensor
from sdk.importers.onnx import graph_of
from sdk.report import Console
from sdk.target import SUPPORTED, Verdict
from tests.reference_target import NAME, ReferenceTarget, register
from towline.cli import bench, bench_onnx
from towline.cli.benchmarks import batches
from towline.cli.benchmarks.batches import Answer, HeldDevice, Job
from towline.cli.benchmarks.onnx_nodes import NodeTest


@pytest.fixture(autouse=True)
def target(monkeypatch, tmp_path):
    register(monkeypatch, tmp_path)


def network(*operators):
    """A chain of operators without attributes on x, float32 [2, 3]."""
    names = ["x", *(f"t{index}" for index in range(1, len(operators))), "y"]
    nodes = [helper.make_node(op, [a], [b]) for op, a, b in zip(operators, names, names[1:], strict=False)]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "chain", values[:1], values[1:])
    return graph_of(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))


X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


def run(graphs, device=None, **options):
    jobs = {name: Job(graph, {"x": X}) for name, graph in graphs.items()}
    with HeldDevice(NAME, device) as held:
        return dict(batches.run(jobs, held, **options))


GRAPHS = {"neg": network("Neg"), "softmax": network("Softmax"), "both": network("Softmax", "Neg")}


def test_a_batch_answers_each_network():
    answers = run(GRAPHS)
    assert np.array_equal(answers["neg"].outputs["y"], -X)
    assert np.array_equal(answers["both"].outputs["y"], -answers["softmax"].outputs["y"])
    assert [answer.hosted for answer in answers.values()] == [0, 0, 0]


def test_batches_are_limited_by_nodes(monkeypatch):
    sizes = []
    compile = ReferenceTarget.compile
    monkeypatch.setattr(
        ReferenceTarget,
        "compile",
        lambda self, graph, o: sizes.append(len(graph.nodes)) or compile(self, graph, o),
    )
    assert run(GRAPHS, size=2).keys() == GRAPHS.keys()
    assert sizes == [2, 2]


def test_what_the_target_refuses_runs_on_the_host(monkeypatch):
    refused = Verdict(False, "no exponential")
    monkeypatch.setattr(
        ReferenceTarget,
        "supports",
        lambda self, graph, node: refused if isinstance(node, Softmax) else SUPPORTED,
    )
    answers = run(GRAPHS)
    assert (answers["neg"].hosted, answers["both"].hosted) == (0, 1)
    assert answers["softmax"].outputs is None
    assert "no exponential" in str(answers["softmax"].failure)


def test_a_network_that_fails_to_compile_stands_alone(monkeypatch):
    compile = ReferenceTarget.compile

    def fails(self, graph, options):
        if any(isinstance(node, Softmax) for node in graph.nodes):
            raise BuildFailed("register pressure")
        return compile(self, graph, options)

    monkeypatch.setattr(ReferenceTarget, "compile", fails)
    answers = run({str(index): GRAPHS["neg"] for index in range(5)} | GRAPHS)
    assert {name for name, answer in answers.items() if answer.outputs is None} == {"softmax", "both"}
    test = NodeTest("softmax", GRAPHS["softmax"], {"x": X}, {"y": X})
    assert bench_onnx.judged(test, answers["softmax"]).verdict == "wrong"


def test_a_wrong_result_is_noticed():
    test = NodeTest("neg", GRAPHS["neg"], {"x": X}, {"y": -X})
    right, wrong = (run({"neg": GRAPHS["neg"]}, device)["neg"] for device in ("emulated", "wrong"))
    assert (bench_onnx.judged(test, right).verdict, bench_onnx.judged(test, right).place) == (
        "passed",
        "device",
    )
    assert bench_onnx.judged(test, wrong).verdict == "wrong"
    assert bench_onnx.judged(test, Answer({"y": -X[:1]})).verdict == "wrong"


def test_narrow_floats_are_held_to_the_bound():
    graph = network("Neg")
    tensors = {name: Tensor(name, X.shape, "float16") for name in graph.tensors}
    half = dataclasses.replace(graph, tensors=tensors)
    given = X.astype(np.float16)
    test = NodeTest("half", half, {"x": given}, {"y": -given})
    assert test.narrow
    for device, verdict in (("emulated", "passed"), ("wrong", "wrong")):
        with HeldDevice(NAME, device) as held:
            ((_, answer),) = batches.run({"half": Job(half, {"x": given}, checked=True)}, held)
        assert bench_onnx.judged(test, answer).verdict == verdict


def arguments(*words):
    parser = argparse.ArgumentParser()
    bench.configure(parser)
    return parser.parse_args(words)


@pytest.mark.parametrize(
    "words",
    [
        ("onnx", "--device", "emulated"),
        ("onnx", "--target", NAME, "--device", "nowhere"),
        ("onnx", "--input-shape", "1x3"),
        ("mcs51", "--only", "add"),
    ],
)
def test_options_that_do_not_fit(words):
    with pytest.raises(UsageError):
        bench.run(arguments(*words), Console())
