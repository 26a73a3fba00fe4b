"""Every network of the zoo: quantised, imported, compared with onnxruntime, compiled to every target.

Small ones with seeded weights; at full size in the slow tests. All layers of the emulated devices must equal
the reference in the target's arithmetic. AMD targets run on the shader executor alone.
"""

import dataclasses
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest

from sdk import reference
from sdk.graph import Add, AveragePool, Conv, Dequantize, Gemm, GlobalAveragePool, Graph
from sdk.importers import load_model
from sdk.passes import optimize
from sdk.quantizer import quantize
from sdk.segments import split
from sdk.target import Options, require_supported
from sdk.targets import get_target, target_names
from sdk.verification import verify
from sdk.zoo import NETWORKS
from tests import shader_gpu
from tests.amount import amount
from tests.contract.targets import COMPILED, SIBLINGS, VARIANTS
from tests.onnx_models import oracle
from usbgpu.amd.facts.chips import CHIPS

REFUSED: dict[tuple[str, str], str] = {}
"""(target, network): why the target does not support it yet."""

QUICK_NETWORKS = ("detector",)
QUICK_TARGETS = ("c",)
FULL_TARGETS = ("c", "hexagon-v65")
FULL = (1.0, 224)
REDUCED = {
    "detector": (1.0, 96),
    "efficientnet_lite0": (1.0, 96),
    "resnet18": (0.5, 96),
    "resnet50": (0.5, 96),
}
"""Width and size of the largest networks, which take minutes at full size: that is for `--thorough`."""
CARDS = {f"amd-{chip}": chip for chip in CHIPS}
NOISY = (Add, AveragePool, GlobalAveragePool)
"""Operators whose float operations onnxruntime orders differently: see `sdk.reference`."""
NOISE = 1e-3


def slow_but(names, quick):
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.fixture(scope="module")
def quantized(tmp_path_factory):
    """The quantised model of a network, and the report."""
    directory = tmp_path_factory.mktemp("networks")

    @cache
    def make(name: str, width: float = 0.25, size: int = 32, weight: str = "int8"):
        path = directory / f"{name}_{width}_{size}_{weight}.onnx"
        onnx.save(NETWORKS[name](width, size, classes=10), directory / "float.onnx")
        return path, quantize(directory / "float.onnx", noise(size, 4), path, weight=weight)

    return make


def noise(size: int, count: int = 1, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 1, (count, 3, size, size)).astype(np.float32)


def against_onnxruntime(path: Path, size: int) -> tuple[Graph, dict[str, tuple[int, int]]]:
    """The optimised graph; and by layer, on the reference's inputs: elements that differ, and all of them.

    Every layer is compared on its own inputs, so that one that differs makes no other differ: onnxruntime
    runs the whole model, and the reference evaluates each layer on what onnxruntime computed before it.
    """
    model = onnx.load(path)
    graph = optimize(load_model(path), check=True)
    verify(graph)
    produced = {name for node in model.graph.node for name in node.output}
    seen = [node.output for node in split(graph).body.nodes if node.output in produced]
    kinds = {"uint8": onnx.TensorProto.UINT8, "int8": onnx.TensorProto.INT8}
    have = {value.name for value in model.graph.output}
    for name in [*seen, *(node.output for node in split(graph).head)]:
        if name not in have:
            kind = kinds[graph.tensor(name).dtype]
            model.graph.output.append(onnx.helper.make_tensor_value_info(name, kind, None))
    data = {"input": noise(size, seed=1)}
    values = oracle(model, data)
    counts = {}
    for node in graph.nodes:
        value = reference.evaluate(graph, node, values | data, "f32")
        expected = values.get(node.output)
        if expected is not None and not isinstance(node, Dequantize):
            difference = np.abs(value.astype(int) - expected.astype(int))
            assert difference.max() <= 1, node.name
            counts[node.output] = int((difference != 0).sum()), value.size
        values.setdefault(node.output, value)
    return graph, counts


@pytest.mark.parametrize("name", slow_but(NETWORKS, QUICK_NETWORKS))
def test_the_reference_is_onnxruntime(quantized, name):
    path, report = quantized(name)
    assert min(output.sqnr_db for output in report.outputs) > 20
    graph, counts = against_onnxruntime(path, 32)
    assert_equal(graph, counts)
    assert len(counts) > 0.6 * len(split(graph).body.nodes)
    assert_lively(graph, 32)


def assert_equal(graph, counts):
    noisy = {node.output for node in graph.nodes if isinstance(node, NOISY)}
    exact = {name: count for name, (count, _) in counts.items() if name not in noisy}
    assert not any(exact.values()), {name: count for name, count in exact.items() if count}
    elements = sum(counts[name][1] for name in noisy & counts.keys())
    assert sum(counts[name][0] for name in noisy & counts.keys()) <= max(1, NOISE * elements)


def assert_lively(graph, size):
    """Activations use their range, and few of them are at its upper end."""
    values = reference.run(graph, {"input": noise(size, seed=1)})
    for node in split(graph).body.nodes:
        value = values[node.output]
        if value.size >= 64:
            top = np.iinfo(value.dtype).max
            assert np.unique(value).size > 8, node.name
            assert (value == top).mean() < 0.3, node.name


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mobilenet_v3_small", "resnet18"])
def test_uint8_weights(quantized, name):
    path, report = quantized(name, weight="uint8")
    assert min(output.sqnr_db for output in report.outputs) > 20
    graph, counts = against_onnxruntime(path, 32)
    weights = {graph.tensor(node.inputs[1]).dtype for node in graph.nodes if isinstance(node, Conv | Gemm)}
    assert weights == {"uint8"}
    assert_equal(graph, counts)


def layers_equal(name: str, network: str, graph: Graph, size: int) -> None:
    """All layers that the target materialises, on its emulated device, against the reference."""
    target = shader_gpu.target(CARDS[name]) if name in CARDS else get_target(name)
    body = split(graph).body
    if (name, network) in REFUSED:
        refusing = [node for node in body.nodes if not target.supports(body, node).supported]
        assert refusing, f"no longer refused: take it out of REFUSED ({REFUSED[name, network]})"
        pytest.skip(REFUSED[name, network])
    require_supported(target, body)
    program = target.compile(body, Options())
    head = reference.run(dataclasses.replace(graph, nodes=split(graph).head), {"input": noise(size, seed=2)})
    inputs = {key: head[key] for key in program.graph.inputs}
    expected = reference.run(program.graph, inputs, target.arithmetic)
    with target.open(None).load(program) as session:
        traced = session.trace(inputs)
        assert set(program.graph.outputs) <= traced.keys()
        for key, value in traced.items():
            np.testing.assert_array_equal(value, expected[key], err_msg=key)


TARGETS = [name for name in target_names() if name not in SIBLINGS]
COMPILED_NETWORKS = amount(("detector", "resnet18"), tuple(NETWORKS))
"""Those that are computed on Adreno and the cards, which take longest: nearly all kinds of layers."""


@pytest.mark.parametrize(
    ("network", "name"),
    [
        pytest.param(
            network,
            name,
            marks=() if network in QUICK_NETWORKS and name in QUICK_TARGETS else pytest.mark.slow,
        )
        for network in NETWORKS
        for name in TARGETS
        if (name not in COMPILED + tuple(CARDS) or network in COMPILED_NETWORKS)
        and (name not in amount(VARIANTS, ()) or network == "mobilenet_v3_small")
    ],
)
def test_every_target_computes_it(quantized, name, network):
    path, _ = quantized(network)
    layers_equal(name, network, optimize(load_model(path)), 32)


@pytest.mark.slow
@pytest.mark.parametrize("name", amount(FULL_TARGETS, TARGETS))
def test_every_target_takes_uint8_weights(quantized, name):
    """The others: tests/contract/test_target_operators.py, weights around any zero-point."""
    path, _ = quantized("mobilenet_v3_small", weight="uint8")
    layers_equal(name, "mobilenet_v3_small", optimize(load_model(path)), 32)


@pytest.mark.slow
@pytest.mark.parametrize("network", amount(("detector",), NETWORKS))
def test_at_full_size(quantized, network):
    width, size = amount(REDUCED.get(network, FULL), FULL)
    path, report = quantized(network, width, size)
    assert min(output.sqnr_db for output in report.outputs) > 15
    graph, counts = against_onnxruntime(path, size)
    assert_equal(graph, counts)
    for name in FULL_TARGETS:
        layers_equal(name, network, graph, size)
