"""The float networks of the zoo: on c and AMD's chips, against onnxruntime, and alive; at size where slow."""

import itertools

import numpy as np
import onnx
import pytest

from sdk import compiler
from sdk.check import check
from sdk.errors import UsageError
from sdk.importers import load_model
from sdk.session import Session
from sdk.zoo import builder
from sdk.zoo.catalogue import facts, find
from sdk.zoo.inputs import example_inputs
from tests.amount import amount
from tests.chips import ANY, GENERATIONS
from tests.shader_gpu import register
from tests.zoo_networks import Sample, rms, run, session

SMALL = (
    *("decoder_0.25_8", "depth_0.25_32", "detector_one_stage_0.25_32", "keyword_spotter_0.25_1000"),
    *("segmentation_0.25_32", "vision_transformer_0.25_32"),
)
DRIVING = "driving_0.05"
"""Has one size of pictures, and onnxruntime takes seconds for its convolutions in float16."""

FULL = (
    *("decoder", "detector_one_stage", "keyword_spotter"),
    *amount((), ("depth", "driving_small", "segmentation", "vision_transformer")),
)
ON_CARDS = amount(
    tuple(zip(GENERATIONS, ("keyword_spotter_0.25_1000", "vision_transformer_0.25_32"), strict=False)),
    tuple(itertools.product(GENERATIONS, SMALL)),
)
"""With an empty cache it takes minutes to compile the kernels of a network for card and machine."""
STEPS = 4


def slow_but(*quick):
    names = (*SMALL, DRIVING, *FULL)
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    folder = tmp_path_factory.mktemp("zoo")
    made = {}
    return lambda name: made.setdefault(name, Sample(name, folder))


@pytest.mark.parametrize("name", slow_but(*SMALL))
def test_every_layer_on_c_is_within_its_bound_and_the_answers_are_onnxruntime_s(sample, name):
    assert_right(sample(name), "c")


@pytest.mark.slow
@pytest.mark.parametrize(("chip", "name"), [*ON_CARDS, *amount([], [(chip, DRIVING) for chip in ANY])])
def test_every_layer_on_a_card(sample, chip, name, monkeypatch, tmp_path):
    register(monkeypatch, tmp_path / "targets")
    assert_right(sample(name), f"amd-{chip}")


def assert_right(one, target):
    inputs = one.inputs()
    network = compiler.compile(one.path, target, host="none")
    with Session(network) as runner:
        one.assert_close(runner.run(inputs), inputs)
        found = check(network, runner, inputs)
    assert (found.outside, found.mismatches) == (0, 0), found.first_mismatch
    assert found.float_elements > 1000


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "decoder_0.25_8",
        *(pytest.param(name, marks=pytest.mark.slow) for name in (DRIVING, "decoder", "driving_small")),
    ],
)
def test_states_are_fed_back(sample, name):
    one = sample(name)
    network = compiler.compile(one.path, "c", host="none")
    kept = dict(network.states)
    assert kept
    states = {given: np.zeros_like(one.inputs()[given]) for given in kept.values()}
    with Session(network) as runner:
        for step in range(STEPS):
            inputs = {key: array for key, array in one.inputs(step).items() if key not in states}
            if "position" in inputs:
                inputs["position"] = np.array([step])
            found = runner.step(inputs)
            one.assert_close(found, inputs | states)
            later = {given: runner.states()[given] for given in states}
            one.assert_close({output: later[given] for output, given in kept.items()}, inputs | states)
            assert all(np.any(later[given] != states[given]) for given in states)
            states = later


@pytest.mark.parametrize("name", slow_but("decoder_0.25_8", "keyword_spotter_0.25_1000"))
def test_activations_stay_in_range_and_depend_on_every_input(sample, name):
    one = sample(name)
    inputs = one.inputs()
    for tensor, values in one.between(inputs).items():
        if values.dtype.kind == "f":
            assert np.isfinite(values).all(), tensor
            if tensor not in one.inputs() and "next_" not in tensor:
                assert 1e-2 < values.std(dtype=np.float64) < 1e2, tensor
    first = next(iter(run(one.runner, inputs)))
    before = run(one.runner, inputs)[first].astype(np.float64)
    for key, other in one.inputs(1).items():
        after = run(one.runner, inputs | {key: other})[first].astype(np.float64)
        assert rms(after - before) > 0.05 * before.std(), key


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SMALL, DRIVING])
def test_a_plan_knows_what_the_file_holds(sample, name):
    one = sample(name)
    known = facts(find(name))
    graph = load_model(one.path)
    assert known.macs == graph.macs
    assert known.inputs == {key: (graph.tensor(key).dtype, graph.tensor(key).shape) for key in graph.inputs}
    assert known.outputs == {key: (graph.tensor(key).dtype, graph.tensor(key).shape) for key in graph.outputs}
    assert known.nbytes < one.path.stat().st_size < known.nbytes + 400_000
    assert find(name).build().model() == one.model
    assert find(name).build(seed=1).model() != one.model


@pytest.mark.slow
def test_weights_in_a_file_of_their_own_are_the_same(tmp_path, monkeypatch):
    name = find("vision_transformer_0.25_32")
    name.build().save(tmp_path / "whole.onnx")
    monkeypatch.setattr(builder, "EXTERNAL", 1)
    name.build().save(tmp_path / "apart.onnx")
    assert (tmp_path / "apart.onnx").stat().st_size < (tmp_path / "whole.onnx").stat().st_size / 4
    inputs = example_inputs(tmp_path / "whole.onnx")
    whole, apart = (session(tmp_path / f"{one}.onnx").run(None, inputs) for one in ("whole", "apart"))
    np.testing.assert_array_equal(whole[0], apart[0])
    assert load_model(tmp_path / "apart.onnx").macs == load_model(tmp_path / "whole.onnx").macs
    with pytest.raises(UsageError):
        name.build().model()


def test_cameras_share_their_encoder(sample):
    readers = {}
    for node in sample(DRIVING).model.graph.node:
        for weight in node.input[1:]:
            readers.setdefault(weight, set()).add(node.name.partition("/")[0])
    shared = [weight for weight, cameras in readers.items() if cameras == {"img", "big_img"}]
    assert sum(weight.startswith("encoder/") for weight in shared) > 80
    assert not any(weight.startswith("encoder/") for weight in readers.keys() - set(shared))


def test_normalisations_of_a_float16_network_are_in_float32(sample):
    graph = onnx.shape_inference.infer_shapes(sample(DRIVING).model).graph
    kinds = {value.name: value.type.tensor_type.elem_type for value in graph.value_info}
    norms = [node for node in graph.node if node.op_type == "LayerNormalization"]
    assert len(norms) == 9
    assert {kinds[node.input[0]] for node in norms} == {onnx.TensorProto.FLOAT}
    products = [node for node in graph.node if node.op_type in ("Conv", "MatMul", "Gemm")]
    assert {kinds[node.output[0]] for node in products} == {onnx.TensorProto.FLOAT16}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "millions", "macs", "states"),
    [
        ("driving_small", 17.7, 1055, ["features_buffer"]),
        ("driving_50m", 50.3, 2954, ["features_buffer"]),
        ("driving_large", 880, 51670, ["features_buffer"]),
        ("driving", 50.3, 2954, ["features_buffer"]),
        ("vision_transformer", 5.7, 1254, []),  # as its paper's table says: 5 M, 1.3 G
        ("decoder", 4.9, 4.6, ["k", "v"]),
    ],
)
def test_how_large_they_are(name, millions, macs, states):
    known = facts(find(name))
    assert known.parameters / 1e6 == pytest.approx(millions, rel=0.01)
    assert known.macs / 1e6 == pytest.approx(macs, rel=0.01)
    assert [given for _, given in known.states] == states


@pytest.mark.parametrize(
    ("network", "arguments"),
    [
        *(("decoder", {"size": 1}), ("depth", {"size": 40}), ("detector_one_stage", {"size": 48})),
        *(("driving", {"width": 9}), ("driving", {"width": 0}), ("keyword_spotter", {"size": 100})),
        *(("segmentation", {"size": 20}), ("vision_transformer", {"size": 30})),
        *(("vision_transformer", {"classes": 0}), ("segmentation", {"classes": -1})),
    ],
)
def test_numbers_out_of_range(network, arguments):
    with pytest.raises(UsageError):
        find(network).entry.build(**arguments)


def test_a_decoder_sees_what_was_written_and_no_more(sample):
    one = sample("decoder_0.25_8")
    inputs = one.inputs() | {"position": np.array([3])}
    before = run(one.runner, inputs)
    for place, seen in ((2, True), (3, False), (5, False)):
        cache = inputs["v"].copy()
        cache[..., place, :] += 1
        after = run(one.runner, inputs | {"v": cache})
        assert np.array_equal(after["logits"], before["logits"]) != seen, place
    changed = np.argwhere(before["next_k"] != inputs["k"])
    assert set(changed[:, 3]) == {3}
