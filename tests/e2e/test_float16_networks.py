"""Float32 networks compiled with --float16 for `c`: answers, every layer, states."""

import numpy as np
import onnx
import pytest

from sdk import artifact, compiler
from sdk.check import check
from sdk.session import Session
from tests.amount import amount
from tests.float16_networks import Oracle
from tests.shared_networks import QUICK, example_inputs, filled
from tests.zoo_networks import Sample

ZOO = (
    *("decoder_0.25_8", "depth_0.25_32", "detector_one_stage_0.25_32", "keyword_spotter_0.25_1000"),
    *("segmentation_0.25_32", "vision_transformer_0.25_32"),
)
LARGE = (
    *("mobilenet-v3-large", "segmentation"),
    *amount((), ("depth", "detector", "resnet18-bn", "swin-micro", "vit-tiny")),
)
"""The exporters' float32 files that are not QUICK."""
QUICK_ZOO = ("keyword_spotter_0.25_1000",)
STEPS = 10


def slow_but(quick, names):
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("float16_networks")


def compiled(path, folder):
    """The network as it is read back from its file."""
    artifact.save(compiler.compile(path, "c", host="none", float16=True), folder / "net.tow")
    return artifact.load(folder / "net.tow")


@pytest.mark.parametrize("name", slow_but(QUICK_ZOO, ZOO))
def test_a_network_of_the_zoo(name, folder):
    one = Sample(name, folder)
    inputs = one.inputs()
    network = compiled(one.path, folder)
    with Session(network) as session:
        Oracle(one.model).assert_close(session.run(inputs), inputs)
        found = check(network, session, inputs)
    assert (found.outside, found.first_overflow) == (0, None)


@pytest.mark.parametrize("name", slow_but((), (*QUICK, *LARGE)))
def test_a_network_as_exported(name, folder):
    path = filled(name, folder)
    inputs = example_inputs(path)
    network = compiled(path, folder)
    products = [node for node in network.graph.nodes if node.op in ("Conv", "MatMul")]
    assert {network.graph.tensor(node.inputs[1]).dtype for node in products} == {"float16"}
    with Session(network) as session:
        Oracle(onnx.load(path)).assert_close(session.run(inputs), inputs)
        if name in QUICK:
            found = check(network, session, inputs)
            assert (found.outside, found.first_overflow) == (0, None)


@pytest.mark.parametrize("name", slow_but(("lstm-stream",), ("lstm-stream", "language-model-step")))
def test_states_are_fed_back_as_float16(name, folder):
    """Each step's answer is onnxruntime's of the states that the session had."""
    path = filled(name, folder)
    oracle = Oracle(onnx.load(path))
    network = compiled(path, folder)
    kept = dict(network.states)
    assert {network.graph.tensor(given).dtype for given in kept.values()} == {"float16"}
    with Session(network) as session:
        for step in range(STEPS):
            states = {given: array.astype(np.float32) for given, array in session.states().items()}
            drawn = example_inputs(path, step)
            inputs = {key: array for key, array in drawn.items() if key not in states}
            found = session.step(inputs)
            oracle.assert_close(found, {**inputs, **states}, least=2e-3)
            after = {output: session.states()[given] for output, given in kept.items()}
            oracle.assert_close(after, {**inputs, **states}, least=2e-3)
