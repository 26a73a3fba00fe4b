"""The MobileNetV2 builder against the paper, and the digits model against what it claims."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper, shape_inference

from sdk.errors import OutputFailed, UsageError
from sdk.zoo import digits, mobilenet_v2
from sdk.zoo.benchmark import require_name
from sdk.zoo.mobilenet import architecture, build


def operators(model):
    counts = {}
    for node in model.graph.node:
        counts[node.op_type] = counts.get(node.op_type, 0) + 1
    return counts


def multiply_accumulates(model):
    inferred = shape_inference.infer_shapes(model, strict_mode=True).graph
    shapes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in [*inferred.value_info, *inferred.output]
    }
    weights = {tensor.name: tensor.dims for tensor in model.graph.initializer}
    return sum(
        int(np.prod(shapes[node.output[0]]) * np.prod(weights[node.input[1]][1:]))
        for node in model.graph.node
        if node.op_type in ("Conv", "Gemm")
    )


def run(model, inputs):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"input": inputs})


@pytest.mark.slow
def test_the_paper_s_network():
    model = mobilenet_v2()
    assert operators(model) == {
        "Conv": 52,
        "Clip": 35,
        "Add": 10,
        "GlobalAveragePool": 1,
        "Flatten": 1,
        "Gemm": 1,
    }
    assert round(multiply_accumulates(model) / 1e6, 1) == 300.8  # the paper says 300 M
    parameters = sum(int(np.prod(tensor.dims)) for tensor in model.graph.initializer)
    assert round(parameters / 1e6, 1) == 3.5  # the paper says 3.4 M
    assert [entry.version for entry in model.opset_import] == [13]
    names = [node.name for node in model.graph.node]
    assert len(set(names)) == len(names)
    assert {"stem", "block3/expand", "block3/depthwise/relu6", "block3/add", "classifier"} <= set(names)


@pytest.mark.parametrize(
    ("width", "channels"),
    [
        (0.35, [8, 8, 16, 24, 32, 56, 112]),
        (0.75, [16, 24, 24, 48, 72, 120, 240]),
        (1.4, [24, 32, 48, 88, 136, 224, 448]),
    ],
)
def test_widths_round_as_the_paper_s_authors_do(width, channels):
    network = architecture(width)
    ends = [network.blocks[index].convolutions[-1].outputs for index in (1, 3, 6, 10, 13, 16, 17)]
    assert ends == channels
    assert network.features == (1792 if width == 1.4 else 1280)


def test_seeded_and_reproducible():
    small = {"width": 0.35, "size": 32, "classes": 7, "channels": 1}
    first = mobilenet_v2(**small).SerializeToString()
    assert mobilenet_v2(**small).SerializeToString() == first
    assert mobilenet_v2(**small, seed=1).SerializeToString() != first
    logits = run(mobilenet_v2(**small), np.ones((1, 1, 32, 32), np.float32))[0]
    assert logits.shape == (1, 7)


def test_random_weights_keep_activations_sane():
    model = mobilenet_v2(width=0.5, size=96, classes=10)
    activations = [node.output[0] for node in model.graph.node if node.op_type in ("Clip", "Add")]
    model.graph.output.extend(
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in activations
    )
    inputs = np.random.default_rng(0).standard_normal((1, 3, 96, 96)).astype(np.float32)
    for name, values in zip(["logits", *activations], run(model, inputs), strict=True):
        assert 0.2 < values.std() < 6, name


@pytest.mark.parametrize("bad", [{"width": 0}, {"width": 100}, {"size": 0}, {"classes": -1}, {"channels": 0}])
def test_invalid_networks_are_refused(bad):
    with pytest.raises(UsageError):
        mobilenet_v2(**bad)


def test_invalid_strides_are_refused():
    with pytest.raises(UsageError, match="strides"):
        architecture(strides=(1, 2))
    with pytest.raises(UsageError, match="strides"):
        architecture(stem_stride=3)


@pytest.mark.slow
def test_digits_accuracy_is_the_documented_one():
    model = digits()
    images, labels = model.test()
    session = onnxruntime.InferenceSession(str(model.model), providers=["CPUExecutionProvider"])
    inputs = model.inputs(images)
    answers = [int(session.run(None, {"input": inputs[i : i + 1]})[0].argmax()) for i in range(len(inputs))]
    assert (len(labels), int((np.array(answers) == labels).sum())) == (450, 449)


def test_digits_network_is_a_real_mobilenet_v2():
    path = digits().model
    assert path.stat().st_size <= 2_000_000
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert operators(model) == operators(mobilenet_v2(0.35, 32))
    depthwise = [node for node in model.graph.node if node.name.endswith("/depthwise")]
    strides = {
        tuple(attribute.ints)
        for node in depthwise
        for attribute in node.attribute
        if attribute.name == "strides"
    }
    assert strides == {(1, 1), (2, 2)}
    assert all(np.isfinite(numpy_helper.to_array(tensor)).all() for tensor in model.graph.initializer)


def test_digits_splits_do_not_overlap():
    data = digits().model.parent
    with np.load(data / "digits_calibration.npz") as archive:
        calibration = dict(archive)
    with np.load(data / "digits_test.npz") as archive:
        test = dict(archive)
    assert not set(calibration["indices"]) & set(test["indices"])
    seen = {image.tobytes() for image in calibration["images"]}
    assert not any(image.tobytes() in seen for image in test["images"])
    assert np.bincount(calibration["labels"]).tolist() == [15] * 10
    assert np.bincount(test["labels"]).min() >= 43
    assert calibration["images"].dtype == test["images"].dtype == np.uint8


def test_digits_calibration_and_pictures(tmp_path):
    model = digits()
    calibration = model.calibration()
    assert calibration.shape == (150, 1, 32, 32)
    assert calibration.dtype == np.float32
    assert calibration.min() >= 0
    assert calibration.max() == 1
    paths = model.write_pictures(tmp_path, 5)
    images, labels = model.test()
    assert [path.name for path in paths] == [f"{i:03}_label_{labels[i]}.png" for i in range(5)]
    for path, expected in zip(paths, model.inputs(images[:5]), strict=True):
        np.testing.assert_array_equal(model.preprocessing.apply(path)[0], expected)
    with pytest.raises(OutputFailed):
        model.write_pictures(tmp_path / "missing")


@pytest.mark.slow
def test_digits_split_is_the_training_script_s():
    source = pytest.importorskip("sklearn.datasets").load_digits()
    from sdk.zoo.train_digits import SPLIT_SEED, split

    training, held_out = split(source.target, 0.25, SPLIT_SEED)
    assert sorted([*training, *held_out]) == list(range(1797))
    images, labels = digits().test()
    np.testing.assert_array_equal(labels, source.target[held_out])
    np.testing.assert_array_equal(images, np.rint(source.images[held_out] * (255 / 16)))


@pytest.mark.slow
def test_batch_normalisation_is_folded_exactly():
    torch = pytest.importorskip("torch")
    from sdk.zoo.digits import ARCHITECTURE
    from sdk.zoo.train_digits import Trainer

    trainer = Trainer(epochs=1)
    inputs = torch.from_numpy(digits().calibration()[:64])
    labels = torch.zeros(64, dtype=torch.long)
    trainer.train(inputs, labels, inputs, labels, log=False)
    trainer.units.eval()
    with torch.no_grad():
        expected = trainer.forward(inputs[:1]).numpy()
    model = build(ARCHITECTURE, trainer.folded(), name="digits")
    np.testing.assert_allclose(run(model, inputs[:1].numpy())[0], expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("mobilenet_v9", "mobilenet_v2"),
        ("mobilenet_v9_1.0_224", "mobilenet_v2"),
        ("frobnicate", "efficientnet_lite0"),
        ("mobilenet_v2_1_224", "mobilenet_v2_1.0_224"),
        ("resnet50_half", "resnet50_1.0_224"),
        ("driving_1", "driving_1.75"),
        ("mcs52", "did you mean mcs51?"),
    ],
)
def test_an_unknown_name_gets_the_networks_or_the_pattern_as_a_hint(name, hint):
    with pytest.raises(UsageError) as caught:
        require_name(name, ("mcs51", "usb"))
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "name", ["mobilenet_v2_1.0_224", "mobilenet_v2", "driving_small", "missing.onnx", "some/where", "net.tow"]
)
def test_files_and_networks_are_names(name):
    require_name(name)
