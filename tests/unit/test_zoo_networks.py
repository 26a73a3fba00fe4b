"""The builders of the zoo against the papers' tables: multiply-accumulates, parameters, operators, shapes."""

import numpy as np
import onnx
import onnxruntime
import pytest

from sdk.errors import UsageError
from sdk.zoo import NETWORKS, detector, mobilenet_v3_small, resnet18
from sdk.zoo.catalogue import PATTERN
from tests.unit.test_zoo import multiply_accumulates, operators

SMALL = {"width": 0.25, "size": 32, "classes": 7, "channels": 1}


def run(model, size, channels=1):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    data = np.random.default_rng(3).normal(0, 1, (1, channels, size, size)).astype(np.float32)
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, {"input": data}), strict=True))


@pytest.mark.parametrize(
    ("name", "millions", "parameters"),
    [
        pytest.param("mobilenet_v1", 569, 4.2, marks=pytest.mark.slow),  # the paper's 569 and 4.2
        ("mobilenet_v3_small", 56, 2.5),  # the paper's 56 and 2.5
        # its authors' 407 M count more than multiply-accumulates
        pytest.param("efficientnet_lite0", 385, 4.7, marks=pytest.mark.slow),
        pytest.param("resnet18", 1814, 11.7, marks=pytest.mark.slow),  # the paper's 1.8 G
        # 3.8 G with the stride in the 1x1, 4.1 G in the 3x3
        pytest.param("resnet50", 4089, 25.5, marks=pytest.mark.slow),
    ],
)
def test_the_papers_figures(name, millions, parameters):
    model = NETWORKS[name]()
    assert multiply_accumulates(model) / 1e6 == pytest.approx(millions, rel=0.01)
    count = sum(int(np.prod(tensor.dims)) for tensor in model.graph.initializer)
    assert count / 1e6 == pytest.approx(parameters, rel=0.03)
    names = [node.name for node in model.graph.node]
    assert len(set(names)) == len(names)
    assert [entry.version for entry in model.opset_import] == [14]


def test_what_a_mobilenet_v3_is_made_of():
    model = mobilenet_v3_small(size=32)
    counts = operators(model)
    assert (counts["HardSwish"], counts["HardSigmoid"], counts["Mul"], counts["Add"]) == (19, 9, 9, 6)
    kernels = {
        tuple(tensor.dims[1:])
        for tensor in model.graph.initializer
        if tensor.name.endswith("depthwise.weight")
    }
    assert kernels == {(1, 3, 3), (1, 5, 5)}


def test_what_a_detector_gives():
    model = detector(0.25, 64, 5)
    assert {"Concat", "Resize", "Transpose", "Reshape", "Sigmoid"} <= operators(model).keys()
    outputs = run(model, 64, 3)
    anchors = 3 * (8 * 8 + 4 * 4)
    assert {name: array.shape for name, array in outputs.items()} == {
        "boxes": (1, anchors, 4),
        "scores": (1, anchors, 5),
    }
    assert 0 < outputs["scores"].min() < 0.2 < 0.8 < outputs["scores"].max() < 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "resnet50")) for name in NETWORKS]
)
def test_seeded_and_alive(name):
    build = NETWORKS[name]
    first = build(**SMALL).SerializeToString()
    assert build(**SMALL).SerializeToString() == first
    assert build(**SMALL, seed=1).SerializeToString() != first
    for output, array in run(onnx.ModelProto.FromString(first), 32).items():
        assert array.std() > 0.05, output
        assert np.abs(array).max() < 100, output


@pytest.mark.parametrize(
    "arguments", [{"width": 0}, {"width": 9}, {"size": 0}, {"channels": 0}, {"classes": 0}], ids=str
)
def test_numbers_out_of_range(arguments):
    with pytest.raises(UsageError):
        resnet18(**{"width": 0.25, **arguments})
    with pytest.raises(UsageError):
        detector(**{"size": 32, "width": 0.25, **arguments})


def test_a_detector_of_an_odd_size():
    with pytest.raises(UsageError, match="multiple of 16"):
        detector(0.25, 40)


def test_benchmarks_know_every_network():
    match = PATTERN.fullmatch("mobilenet_v3_small_0.25_32")
    assert match is not None
    assert match.groupdict() == {
        "network": "mobilenet_v3_small",
        "width": "0.25",
        "size": "32",
        "precision": None,
    }
    assert PATTERN.fullmatch("mobilenet_v9_0.25_32") is None
