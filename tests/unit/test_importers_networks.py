"""Networks as exporters wrote them: imported, run by the reference, and compared with onnxruntime."""

import time

import pytest

from sdk import reference
from sdk.importers import load_onnx
from tests.shared_networks import (
    NAMES,
    QUICK,
    assert_close,
    by_onnxruntime,
    example_inputs,
    facts,
    filled,
)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("networks")


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_a_network_is_onnxruntimes(name, folder):
    path = filled(name, folder)
    inputs = example_inputs(path)
    values = reference.run(load_onnx(path), inputs)
    assert_close(name, values, by_onnxruntime(path, inputs))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_multiply_accumulates_of_a_network(name, folder):
    graph = load_onnx(filled(name, folder))
    assert graph.macs == pytest.approx(facts()[f"{name}.onnx"]["macs"], rel=0.01)


@pytest.mark.parametrize("name", [pytest.param("driving-small", marks=pytest.mark.slow), "swin-micro"])
def test_hundreds_of_constants_are_folded_quickly(name, folder):
    path = filled(name, folder)
    start = time.process_time()
    graph = load_onnx(path)
    assert time.process_time() - start < 2
    assert len(graph.nodes) < 600
