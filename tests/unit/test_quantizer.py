"""Quantisation of real (small) models, and every way calibration data and models can be wrong."""

import json
import os
import tempfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from sdk import files, reference
from sdk.errors import InvalidInput, InvalidModel, OutputFailed, Unsupported, UsageError
from sdk.importers import load_model
from sdk.ort import quantized_session
from sdk.preprocess import default_for
from sdk.quantizer import quantize, read_metadata
from sdk.quantizer.calibration import PICTURE_SUFFIXES
from sdk.quantizer.fidelity import decibels
from sdk.quantizer.metadata import PREPROCESSING_KEY, QUANTIZATION_KEY, STATISTICS_KEY
from sdk.segments import split
from sdk.zoo import digits, mobilenet_v2
from tests.onnx_models import oracle


@pytest.fixture(scope="module")
def model():
    return digits()


@pytest.fixture(scope="module")
def data(model):
    return model.calibration()[:40]


@pytest.fixture(scope="module")
def quantized(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("quantized") / "digits.onnx"
    report = quantize(model.model, model.calibration(), path, preprocessing=model.preprocessing)
    return path, report


def save(tmp_path, nodes, constants, *, inputs=None, outputs=(), opset=13):
    """A float model of these nodes; the last one's output is the graph's, beside `outputs`."""
    inputs = inputs or {"x": (1, 3, 8, 8)}
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
            for name in [nodes[-1].output[0], *outputs]
        ],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    path = tmp_path / "small.onnx"
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", opset)])
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return path


def weights(*shape, seed=0, scale=0.3):
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def one_conv(tmp_path, weight=None, bias=None, **options):
    (name,) = options.get("inputs", ("x",))
    node = helper.make_node("Conv", [name, "w", "b"], ["y"], name="conv", pads=[1, 1, 1, 1])
    weight = weights(4, 3, 3, 3) if weight is None else weight
    bias = np.zeros(len(weight), np.float32) if bias is None else bias
    return save(tmp_path, [node], {"w": weight, "b": bias}, **options)


@pytest.fixture
def small(tmp_path):
    """A float model of one convolution, which takes the digits' pictures: for what no network changes."""
    return one_conv(tmp_path, weights(4, 1, 3, 3), inputs={"input": (1, 1, 32, 32)})


def samples(count=6, shape=(3, 8, 8), seed=1):
    return weights(count, *shape, seed=seed, scale=1)


def constants_of(model):
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def run(path, name, array):
    session = quantized_session(onnx.load(path))  # whose sums saturate on no processor
    return session.run(None, {name: array})


@pytest.mark.slow
def test_digits_keep_their_accuracy(model, quantized):
    path, report = quantized
    images, labels = model.test()
    inputs = model.inputs(images)
    session = quantized_session(onnx.load(path))  # whose sums saturate on no processor
    answers = [int(session.run(None, {"input": inputs[i : i + 1]})[0].argmax()) for i in range(len(inputs))]
    assert np.mean(np.array(answers) == labels) >= 0.99
    (logits,) = report.outputs
    assert logits.name == "logits"
    assert logits.top1 >= 0.99
    assert logits.sqnr_db > 30
    assert 0 < logits.mean_abs_diff < logits.max_abs_diff < 0.5


@pytest.mark.slow
def test_the_report_covers_every_activation(quantized):
    path, report = quantized
    names = {tensor.name for tensor in report.tensors}
    assert {"input", "stem/relu6", "block3/add", "pool", "logits"} <= names
    assert len(report.tensors) == 35 + 17 + 10 + 4  # ReLU6, projections, additions; those at the ends
    assert min(tensor.sqnr_db for tensor in report.tensors) == report.worst.sqnr_db > 15
    by_name = {tensor.name: tensor for tensor in report.tensors}
    assert by_name["input"].sqnr_db == 200  # 8-bit pixels survive exactly
    assert by_name["logits"].node == "classifier"
    assert by_name["stem/relu6"].zero_point == 0
    assert (report.samples, report.available, report.skipped, report.other_files) == (150, 150, (), 0)
    assert report.quantized_bytes == path.stat().st_size < report.float_bytes / 2
    assert json.loads(json.dumps(report.to_json(), allow_nan=False))["outputs"][0]["top1"] >= 0.99


@pytest.mark.slow
def test_the_file_is_clean_and_carries_its_metadata(model, quantized):
    path, _ = quantized
    loaded = onnx.load(path)
    onnx.checker.check_model(loaded, full_check=True)
    assert [(entry.domain, entry.version) for entry in loaded.opset_import] == [("", 13)]
    assert {entry.key for entry in loaded.metadata_props} == {
        PREPROCESSING_KEY,
        QUANTIZATION_KEY,
        STATISTICS_KEY,
    }
    preprocessing, statistics = read_metadata(path)
    assert preprocessing == model.preprocessing
    assert statistics.count == 150
    images, _ = model.test()
    assert all(statistics.unlike_calibration(array[None]) is None for array in model.inputs(images))
    assert statistics.unlike_calibration(1 - model.inputs(images[:1])) is not None  # ink on paper
    assert read_metadata(onnx.load(model.model)) == (None, None)


@pytest.mark.slow
def test_types_of_the_quantised_model(quantized):
    loaded = onnx.load(quantized[0])
    constants = constants_of(loaded)
    assert "Clip" not in {node.op_type for node in loaded.graph.node}
    for node in loaded.graph.node:
        if node.op_type == "QuantizeLinear":
            assert constants[node.input[2]].dtype == np.uint8
            assert 0 < constants[node.input[1]] < np.inf
        elif node.op_type == "DequantizeLinear" and node.input[0] in constants:
            weight = constants[node.input[0]]
            assert weight.dtype == (np.int32 if weight.ndim == 1 else np.int8)
            assert constants[node.input[1]].shape == (weight.shape[0],)
            assert not constants[node.input[2]].any()


@pytest.mark.slow
def test_importable(quantized):
    graph = load_model(quantized[0])
    assert sum(node.op == "Conv" for node in graph.nodes) == 52


@pytest.mark.parametrize(
    "options",
    [{"method": "mse"}, {"method": "percentile"}, {"activation": "int8"}, {"per_channel": False}],
    ids=str,
)
@pytest.mark.slow
def test_options(model, data, tmp_path, options):
    report = quantize(model.model, data, tmp_path / "q.onnx", **options)
    assert report.outputs[0].top1 >= 0.95
    loaded = onnx.load(tmp_path / "q.onnx")
    constants = constants_of(loaded)
    (scale,) = [
        constants[node.input[1]] for node in loaded.graph.node if node.output[0].startswith("stem.weight_D")
    ]
    assert scale.ndim == int(options.get("per_channel", True))
    zero_points = {
        constants[n.input[2]].dtype.name for n in loaded.graph.node if n.op_type == "QuantizeLinear"
    }
    assert zero_points == {options.get("activation", "uint8")}


@pytest.mark.slow
def test_nothing_on_our_streams_no_files_left_and_the_same_bytes_twice(
    model, data, tmp_path, capfd, monkeypatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    stages, made, mkdtemp = [], [], tempfile.mkdtemp
    monkeypatch.setattr(tempfile, "mkdtemp", lambda *args: made.append(mkdtemp(*args)) or made[-1])
    for name in ("first", "second"):
        quantize(
            model.model,
            data[:10],
            tmp_path / name,
            method="percentile",
            progress=lambda stage, done, steps: (stages.append((stage, done, steps)), print(end="+")),
        )
    out, err = capfd.readouterr()
    assert set(out) == {"+"}  # the caller may print, onnxruntime may not
    assert err == ""
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "second", "temporary"]
    assert list((tmp_path / "temporary").iterdir()) == []
    # What SIGKILL would leave has a name by which a later run removes it, onnxruntime's directories too.
    assert any("quant." in Path(path).name for path in made)
    outermost = [Path(path).relative_to(tmp_path / "temporary").parts[0] for path in made]
    assert all(name.startswith(files.PREFIX) for name in outermost)
    assert {stage for stage, _, _ in stages} == {
        "try ranges",
        "run the float model",
        "calibrate",
        "run the quantised model",
    }
    assert all(0 <= done <= steps for _, done, steps in stages)


@pytest.mark.slow
def test_interrupted(small, data, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    (tmp_path / "q.onnx").write_text("the old one")

    def interrupt(stage, done, steps):
        if stage == "run the quantised model":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quantize(small, data, tmp_path / "q.onnx", progress=interrupt)
    assert (tmp_path / "q.onnx").read_text() == "the old one"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["q.onnx", "small.onnx", "temporary"]
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.parametrize("path", [3, None, b"q.onnx", "q\0.onnx"])
def test_paths_that_are_not_paths(model, data, tmp_path, path):
    with pytest.raises(UsageError, match="the model is not a path"):
        quantize(path, data, tmp_path / "q.onnx")
    with pytest.raises(UsageError, match="the output is not a path"):
        quantize(model.model, data, path)


def test_the_float_model_is_never_replaced(tmp_path):
    path = one_conv(tmp_path)
    (tmp_path / "link.onnx").symlink_to(path)
    content = path.read_bytes()
    for output in (path, tmp_path / ".." / tmp_path.name / path.name, tmp_path / "link.onnx"):
        with pytest.raises(UsageError, match="replace the float model"):
            quantize(path, samples(), output)
    assert path.read_bytes() == content


@pytest.mark.slow
def test_output_that_cannot_be_written(small, data, tmp_path):
    with pytest.raises(OutputFailed, match="directory"):
        quantize(small, data, tmp_path / "missing" / "q.onnx")
    with pytest.raises(OutputFailed):
        quantize(small, data[:1], tmp_path)


# --- calibration data ---------------------------------------------------------------------------------


@pytest.fixture
def pictures(model, tmp_path):
    folder = tmp_path / "pictures"
    (folder / "more").mkdir(parents=True)
    model.write_pictures(folder, 6)
    model.write_pictures(folder / "more", 2)
    (folder / "labels.txt").write_text("0 1 2")
    (folder / "broken.png").write_bytes((folder / "more").glob("*.png").__next__().read_bytes()[:60])
    (folder / "empty.JPG").write_bytes(b"")
    return folder


@pytest.mark.slow
def test_a_directory_of_pictures(small, pictures, tmp_path):
    report = quantize(small, pictures, tmp_path / "q.onnx", method="minmax")
    assert (report.samples, report.available, report.other_files) == (8, 10, 1)
    assert [entry.path.rsplit("/")[-1] for entry in report.skipped] == ["broken.png", "empty.JPG"]
    assert report.preprocessing == default_for((1, 1, 32, 32))
    assert read_metadata(tmp_path / "q.onnx")[1].count == 8
    limited = quantize(small, pictures, tmp_path / "q.onnx", limit=3, method="minmax")
    assert limited.samples + len(limited.skipped) == 3
    single = next(pictures.glob("0*.png"))
    assert quantize(small, single, tmp_path / "q.onnx", method="minmax").samples == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "no files"),
        ({"a.txt": b"x", "b.csv": b""}, "other files: 2"),
        ({"a.png": b"x", "b": b""}, "unreadable pictures: 1, other files: 1"),
    ],
)
def test_no_usable_picture(model, tmp_path, content, message):
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, value in content.items():
        (folder / name).write_bytes(value)
    with pytest.raises(InvalidInput, match=message):
        quantize(model.model, folder, tmp_path / "q.onnx")
    assert not (tmp_path / "q.onnx").exists()


def test_missing_calibration_and_invalid_options(model, data, tmp_path):
    with pytest.raises(UsageError, match="no such file") as caught:
        quantize(model.model, tmp_path / "nowhere", tmp_path / "q.onnx")
    assert caught.value.exit_code == 2
    for options in (
        {"limit": 0},
        {"limit": "3"},
        {"method": "best"},
        {"activation": "int16"},
        {"preprocessing": "imagenet"},
        {"input_shapes": {"input": 3}},
    ):
        with pytest.raises(UsageError):
            quantize(model.model, data, tmp_path / "q.onnx", **options)
    colour = default_for((1, 3, 32, 32))
    with pytest.raises(InvalidInput, match="the network takes"):
        quantize(model.model, data, tmp_path / "q.onnx", preprocessing=colour)


@pytest.mark.slow
def test_array_files(small, data, tmp_path):
    np.save(tmp_path / "one.npy", data)
    np.savez(tmp_path / "any.npz", anything=data)
    np.savez(tmp_path / "named.npz", labels=np.zeros(3), input=data.astype(np.float64))
    sizes = [
        quantize(small, tmp_path / name, tmp_path / name.replace(".", "_"), limit=2).samples
        for name in ("one.npy", "any.npz", "named.npz")
    ]
    assert sizes == [2, 2, 2]
    results = {(tmp_path / name).read_bytes() for name in ("one_npy", "any_npz", "named_npz")}
    assert len(results) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((4, 1, 32, 32), np.uint8), "uint8, not float"),
        (np.zeros((4, 1, 28, 28), np.float32), r"shape \[4, 1, 28, 28\]"),
        (np.zeros((1, 32, 32), np.float32), "shape"),
        (np.zeros((0, 1, 32, 32), np.float32), "no sample"),
        (np.full((1, 1, 32, 32), np.nan, np.float32), "NaN"),
        ({"a": np.zeros(1), "b": np.zeros(1)}, "no array for the input 'input'"),
        ({}, "no array"),
        ([[0.5], [0.5, 0.5]], "not an array"),
        (None, "object, not float"),
    ],
)
def test_bad_arrays(model, tmp_path, array, message):
    with pytest.raises(InvalidInput, match=message):
        quantize(model.model, array, tmp_path / "q.onnx")


@pytest.mark.slow
@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut short", b"\x93NUMPY\x01\x00", b"hello"])
def test_damaged_array_files(model, tmp_path, content):
    for name in ("bad.npz", "bad.npy"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InvalidInput) as caught:
            quantize(model.model, tmp_path / name, tmp_path / "q.onnx")
        assert caught.value.where == str(tmp_path / name)


def test_arrays_that_are_not_whole_batches(tmp_path):
    path = one_conv(tmp_path, inputs={"x": (2, 3, 8, 8)})
    assert quantize(path, samples(4), tmp_path / "q.onnx").samples == 2
    with pytest.raises(InvalidInput, match=r"holds 5 .* batch of 2"):
        quantize(path, samples(5), tmp_path / "q.onnx")


@pytest.mark.slow
def test_pipes_are_not_waited_for(small, pictures, tmp_path):
    os.mkfifo(pictures / "pipe.png")
    report = quantize(small, pictures, tmp_path / "q.onnx")
    assert (report.samples, report.available) == (8, 11)
    assert ("pipe.png", "is not a regular file") in [
        (Path(entry.path).name, entry.reason) for entry in report.skipped
    ]
    os.mkfifo(tmp_path / "pipe.npy")
    with pytest.raises(UsageError, match="regular file"):
        quantize(small, tmp_path / "pipe.npy", tmp_path / "q.onnx")


@pytest.mark.slow
def test_linked_directories_are_searched_once(small, pictures, tmp_path):
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "pictures").symlink_to(pictures)
    (linked / "again").symlink_to(pictures / "more")
    (linked / "twice").symlink_to(pictures)
    (pictures / "circle").symlink_to(linked)
    report = quantize(small, linked, tmp_path / "q.onnx")
    assert (report.samples, report.available) == (8, 10)


def test_pickles_are_not_loaded(model, tmp_path):
    np.save(tmp_path / "bad.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(InvalidInput, match="not one of numbers"):
        quantize(model.model, tmp_path / "bad.npy", tmp_path / "q.onnx")


def test_picture_suffixes_are_lower_case():
    assert all(suffix == suffix.lower() and suffix.startswith(".") for suffix in PICTURE_SUFFIXES)


# --- models -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_already_quantised(quantized, data, tmp_path):
    with pytest.raises(Unsupported, match="already quantised"):
        quantize(quantized[0], data, tmp_path / "q.onnx")


def test_files_that_are_not_models(data, tmp_path):
    (tmp_path / "text.onnx").write_text("hello")
    (tmp_path / "cut.onnx").write_bytes(digits().model.read_bytes()[:5000])
    for name in ("text.onnx", "cut.onnx"):
        with pytest.raises(InvalidModel):
            quantize(tmp_path / name, data, tmp_path / "q.onnx")
    with pytest.raises(UsageError):
        quantize(tmp_path / "missing.onnx", data, tmp_path / "q.onnx")


def test_nan_weights_are_named(tmp_path):
    bad = weights(4, 3, 3, 3)
    bad[1, 1, 1, 1] = np.nan
    with pytest.raises(InvalidModel, match="w: "):
        quantize(one_conv(tmp_path, bad), samples(), tmp_path / "q.onnx")


def test_infinite_activations_are_named(tmp_path):
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["large"], name="first"),
        helper.make_node("Conv", ["large", "w"], ["infinite"], name="second"),
        helper.make_node("Relu", ["infinite"], ["hidden"], name="relu"),
        helper.make_node("GlobalAveragePool", ["hidden"], ["y"], name="pool"),
    ]
    path = save(tmp_path, nodes, {"w": np.full((3, 3, 1, 1), 1e25, np.float32)})
    with pytest.raises(InvalidModel, match=r"tensor infinite: .* sample \d"):
        quantize(path, np.abs(samples()), tmp_path / "q.onnx")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["minmax", "auto", "mse", "percentile"])
def test_constant_activations_get_a_usable_scale(tmp_path, method):
    nodes = [
        helper.make_node("Conv", ["x", "zero"], ["dead"], name="dead"),
        helper.make_node("Conv", ["dead", "w", "b"], ["y"], name="live"),
    ]
    constants = {
        "zero": np.zeros((3, 3, 1, 1), np.float32),
        "w": weights(4, 3, 1, 1),
        "b": weights(4, seed=3),
    }
    path = save(tmp_path, nodes, constants)
    report = quantize(path, np.zeros((3, 3, 8, 8), np.float32), tmp_path / "q.onnx", method=method)
    for name, values in constants_of(onnx.load(tmp_path / "q.onnx")).items():
        if name.endswith("_scale"):
            assert np.isfinite(values).all(), name
            assert (values > 0).all(), name
    assert report.outputs[0].max_abs_diff < 0.05


def test_dead_channels_keep_their_bias(tmp_path):
    weight = weights(5, 3, 3, 3)
    weight[1] = 0
    weight[2] *= np.float32(1e-20)
    bias = np.array([0.1, 1.37, -1.21, 0.5, -0.5], np.float32)
    report = quantize(one_conv(tmp_path, weight, bias), samples(), tmp_path / "q.onnx")
    loaded = onnx.load(tmp_path / "q.onnx")
    constants = constants_of(loaded)
    (node,) = [n for n in loaded.graph.node if n.output[0] == "b"]
    scale, quantized_bias = constants[node.input[1]], constants[node.input[0]]
    assert scale.shape == (5,)
    np.testing.assert_allclose(scale * quantized_bias, bias, atol=1e-4)
    assert np.abs(quantized_bias.astype(np.int64)).max() < 2**30
    assert report.outputs[0].sqnr_db > 30


def test_batch_normalisation_is_folded(tmp_path):
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "var"], ["n"], name="norm"),
        helper.make_node("Relu", ["n"], ["y"], name="relu"),
    ]
    constants = {
        "w": weights(4, 3, 3, 3),
        "scale": np.abs(weights(4, seed=1)) + 1,
        "shift": weights(4, seed=2),
        "mean": weights(4, seed=3),
        "var": np.abs(weights(4, seed=4)) + 1,
    }
    report = quantize(save(tmp_path, nodes, constants), samples(), tmp_path / "q.onnx")
    operators = {node.op_type for node in onnx.load(tmp_path / "q.onnx").graph.node}
    assert operators == {"Conv", "QuantizeLinear", "DequantizeLinear"}
    assert report.outputs[0].sqnr_db > 30


@pytest.mark.slow
@pytest.mark.parametrize(("low", "high"), [(0.5, 0.7), (0.5, None), (-6, -0.5), (None, -0.5)])
def test_a_clip_away_from_zero_keeps_its_bounds(tmp_path, low, high):
    names = [name if limit is not None else "" for name, limit in (("low", low), ("high", high))]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Clip", ["c", *names], ["y"], name="clip"),
    ]
    limits = {"low": low, "high": high}
    constants = {name: np.float32(limits[name]) for name in names if name}
    constants |= {"w": weights(4, 3, 3, 3), "b": np.zeros(4, np.float32)}
    report = quantize(save(tmp_path, nodes, constants), samples(), tmp_path / "q.onnx")
    inputs = samples(1)
    (result,) = run(tmp_path / "q.onnx", "x", inputs)
    (step,) = [tensor.scale for tensor in report.tensors if tensor.name == "y"]
    assert low is None or result.min() >= low - step
    assert high is None or result.max() <= high + step
    ours = reference.run(load_model(tmp_path / "q.onnx"), {"x": inputs})
    np.testing.assert_allclose(ours["y"], result, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("op", ["Relu", "Clip"])
def test_an_output_is_not_cut_to_the_range_of_what_reads_it(tmp_path, op):
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node(op, ["c"] if op == "Relu" else ["c", "low", "high"], ["y"], name="bound"),
    ]
    constants = {"w": weights(4, 3, 3, 3), "b": np.zeros(4, np.float32)}
    if op == "Clip":
        constants |= {"low": np.float32(-0.5), "high": np.float32(0.5)}
    report = quantize(save(tmp_path, nodes, constants, outputs=["c"]), samples(), tmp_path / "q.onnx")
    assert min(output.sqnr_db for output in report.outputs) > 30
    assert set(load_model(tmp_path / "q.onnx").outputs) == {"y", "c"}


@pytest.mark.slow
def test_a_square_is_a_product_and_not_part_of_a_function(tmp_path):
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Mul", ["c", "c"], ["m"], name="square"),
        helper.make_node("Sigmoid", ["m"], ["z"], name="gate"),
    ]
    constants = {"w": weights(4, 3, 3, 3), "b": np.zeros(4, np.float32)}
    quantize(save(tmp_path, nodes, constants), samples(), tmp_path / "q.onnx")
    operators = [node.op for node in load_model(tmp_path / "q.onnx").nodes]
    assert operators == ["Quantize", "Conv", "Mul", "Lookup", "Dequantize"]


@pytest.mark.slow
def test_a_tensor_may_have_the_name_that_the_quantiser_gives(tmp_path):
    y = "y_QuantizeLinear_Input"
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Sigmoid", ["c"], ["s"], name="sigmoid"),
        helper.make_node("Mul", ["c", "s"], [y], name="mul"),
        helper.make_node("GlobalAveragePool", [y], ["z"], name="pool"),
    ]
    constants = {"w": weights(4, 3, 3, 3), "b": np.zeros(4, np.float32)}
    quantize(save(tmp_path, nodes, constants), samples(), tmp_path / "q.onnx")
    operators = [node.op for node in load_model(tmp_path / "q.onnx").nodes]
    assert operators == ["Quantize", "Conv", "Lookup", "GlobalAveragePool", "Dequantize"]


@pytest.mark.slow
@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("opset", [9, 13])
def test_initializers_among_the_inputs(tmp_path, version, opset):
    path = one_conv(tmp_path, opset=opset)
    model = onnx.load(path)
    model.ir_version = version
    model.graph.input.extend(
        helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        for tensor in model.graph.initializer
    )
    onnx.save(model, path)
    quantize(path, samples(), tmp_path / "q.onnx")
    assert load_model(tmp_path / "q.onnx").inputs == ("x",)


def agrees(path, inputs):
    """Whether the quantised model, as we import it, is onnxruntime's."""
    ((name, expected),) = oracle(onnx.load(path), inputs).items()
    return np.array_equal(reference.run(load_model(path), inputs)[name], expected)


@pytest.mark.slow
@pytest.mark.parametrize("shared", [("w", "w", "b0", "b1"), ("w0", "w1", "b", "b"), ("w", "w", "b", "b")])
def test_weights_and_biases_with_two_readers(tmp_path, shared):
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="relu"),
        helper.make_node("Conv", ["x", shared[0], shared[2]], ["c0"], name="conv0"),
        helper.make_node("Conv", ["r", shared[1], shared[3]], ["c1"], name="conv1"),
        helper.make_node("Add", ["c0", "c1"], ["y"], name="add"),
    ]
    constants = {
        name: weights(*((4, 3, 3, 3) if name[0] == "w" else (4,)), seed=index)
        for index, name in enumerate(shared)
    }
    quantize(save(tmp_path, nodes, constants), samples(), tmp_path / "q.onnx")
    assert agrees(tmp_path / "q.onnx", {"x": samples(1)})


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape",
    [(), (5,), *(pytest.param(shape, marks=pytest.mark.slow) for shape in ((1,), (1, 1), (1, 5)))],
    ids=str,
)
@pytest.mark.parametrize("form", ["gemm", "transposed", "matmul", "added to gemm"])
def test_biases_of_every_shape(tmp_path, form, shape):
    if form in ("gemm", "transposed"):
        nodes = [
            helper.make_node("Gemm", ["x", "w", "b"], ["y"], name="fc", transB=int(form == "transposed"))
        ]
    else:
        matrix = "MatMul" if form == "matmul" else "Gemm"
        nodes = [
            helper.make_node(matrix, ["x", "w"], ["product"], name="fc"),
            helper.make_node("Add", ["b", "product"], ["y"], name="bias"),
        ]
    constants = {"w": weights(5, 16) if form == "transposed" else weights(16, 5), "b": weights(*shape)}
    path = save(tmp_path, nodes, constants, inputs={"x": (1, 16)})
    report = quantize(path, samples(6, (16,)), tmp_path / "q.onnx")
    assert report.outputs[0].sqnr_db > 30
    assert agrees(tmp_path / "q.onnx", {"x": samples(1, (16,))})


@pytest.mark.slow
def test_a_product_with_two_biases(tmp_path):
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"], name="fc"),
        helper.make_node("Add", ["product", "b"], ["z"], name="bias"),
        helper.make_node("Add", ["product", "c"], ["u"], name="other"),
        helper.make_node("Add", ["z", "u"], ["y"], name="sum"),
    ]
    constants = {"w": weights(16, 5), "b": weights(5), "c": weights(1)}
    path = save(tmp_path, nodes, constants, inputs={"x": (1, 16)})
    quantize(path, samples(6, (16,)), tmp_path / "q.onnx")
    assert agrees(tmp_path / "q.onnx", {"x": samples(1, (16,))})


@pytest.mark.slow
@pytest.mark.parametrize("same", [True, False])
def test_equal_convolutions_with_different_normalisations(tmp_path, same):
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c0"], name="conv0"),
        helper.make_node("Conv", ["x", "w"], ["c1"], name="conv1"),
        helper.make_node("BatchNormalization", ["c0", "s", "b", "b", "s"], ["n0"], name="norm0"),
        helper.make_node("BatchNormalization", ["c1", "s", "d", "d", "s"], ["n1"], name="norm1"),
        helper.make_node("Add", ["n0", "n1"], ["y"], name="add"),
    ]
    constants = {
        "w": weights(4, 3, 3, 3),
        "s": np.ones(4, np.float32),
        "b": weights(4),
        "d": weights(4, seed=3),
    }
    if same:
        constants["d"] = constants["b"]
    quantize(save(tmp_path, nodes, constants), samples(), tmp_path / "q.onnx")
    assert agrees(tmp_path / "q.onnx", {"x": samples(1)})


def test_nothing_to_quantise(tmp_path):
    path = save(tmp_path, [helper.make_node("Flatten", ["x"], ["y"], name="flatten")], {})
    with pytest.raises(Unsupported, match="nothing in the model") as caught:
        quantize(path, samples(), tmp_path / "q.onnx")
    assert caught.value.where == str(path)


def test_what_the_quantiser_raises_names_the_model(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise ValueError("no")

    monkeypatch.setattr("onnxruntime.quantization.quantize_static", fail)
    path = one_conv(tmp_path)
    with pytest.raises(InvalidModel, match="cannot quantise") as caught:
        quantize(path, samples(), tmp_path / "q.onnx")
    assert caught.value.where == str(path)


def test_a_scalar_input(tmp_path):
    path = save(tmp_path, [helper.make_node("Relu", ["x"], ["y"], name="relu")], {}, inputs={"x": ()})
    with pytest.raises(Unsupported, match="scalar"):
        quantize(path, np.float32(1), tmp_path / "q.onnx")


def test_errors_of_the_callers_progress_are_the_callers(tmp_path):
    def progress(stage, done, steps):
        if stage == "run the quantised model":
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        quantize(one_conv(tmp_path), samples(), tmp_path / "q.onnx", progress=progress)


def test_an_older_opset_is_raised(tmp_path):
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
        helper.make_node("Clip", ["c"], ["y"], name="relu6", min=0.0, max=6.0),
    ]
    path = save(tmp_path, nodes, {"w": weights(4, 3, 3, 3)}, opset=9)
    report = quantize(path, samples(), tmp_path / "q.onnx")
    assert [entry.version for entry in onnx.load(tmp_path / "q.onnx").opset_import] == [13]
    assert report.outputs[0].sqnr_db > 30


def test_dynamic_shapes(tmp_path):
    path = one_conv(tmp_path, inputs={"x": ("N", 3, "H", "W")})
    with pytest.raises(Unsupported, match="dynamic") as caught:
        quantize(path, samples(), tmp_path / "q.onnx")
    assert "--input-shape x=" in caught.value.hint
    report = quantize(path, samples(), tmp_path / "q.onnx", input_shapes={"x": (1, 3, 8, 8)})
    assert report.samples == 6
    (given,) = onnx.load(tmp_path / "q.onnx").graph.input
    assert [dim.dim_value for dim in given.type.tensor_type.shape.dim] == [1, 3, 8, 8]
    with pytest.raises(UsageError, match="'z'"):
        quantize(path, samples(), tmp_path / "q.onnx", input_shapes={"x": (1, 3, 8, 8), "z": (1,)})


@pytest.mark.slow
def test_softmax_stays_float_and_two_outputs_are_compared(tmp_path):
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
        helper.make_node("GlobalAveragePool", ["c"], ["g"], name="pool"),
        helper.make_node("Flatten", ["g"], ["f"], name="flatten"),
        helper.make_node("Softmax", ["f"], ["p"], name="softmax"),
    ]
    path = save(tmp_path, nodes, {"w": weights(4, 3, 3, 3, scale=3)}, outputs=["g"])
    report = quantize(path, samples(), tmp_path / "q.onnx")
    assert [(output.name, output.top1 is None) for output in report.outputs] == [("p", False), ("g", True)]
    probabilities, _ = run(tmp_path / "q.onnx", "x", samples(1))
    np.testing.assert_allclose(probabilities.sum(), 1, rtol=1e-6)  # which 8-bit probabilities would miss


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["uint8", "int8"])
def test_a_residual_network_stays_integer_from_end_to_end(tmp_path, activation):
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w", "b"], ["c1"], name="conv1", pads=[1] * 4),
        node("Relu", ["c1"], ["r1"], name="relu1"),
        node("MaxPool", ["r1"], ["m"], name="maximum", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
        node("Conv", ["m", "w2"], ["c2"], name="conv2", pads=[1] * 4),
        node("BatchNormalization", ["c2", "scale", "b", "b", "scale"], ["n2"], name="norm"),
        node("Add", ["n2", "m"], ["a"], name="add"),
        node("Relu", ["a"], ["r2"], name="relu2"),
        node("Identity", ["r2"], ["i"], name="identity"),
        node("AveragePool", ["i"], ["ap"], name="average", kernel_shape=[2, 2], strides=[2, 2]),
        node("ReduceMean", ["ap"], ["g"], name="mean", axes=[2, 3], keepdims=1),
        node("Reshape", ["g", "shape"], ["f"], name="reshape"),
        node("MatMul", ["f", "w3"], ["mm"], name="matmul"),
        node("Add", ["mm", "b3"], ["l"], name="bias"),
        node("Softmax", ["l"], ["p"], name="softmax"),
    ]
    constants = {
        "w": weights(8, 3, 3, 3),
        "b": weights(8),
        "w2": weights(8, 8, 3, 3),
        "scale": np.abs(weights(8)) + 1,
        "shape": np.array([1, -1]),
        "w3": weights(8, 5),
        "b3": weights(5),
    }
    path = tmp_path / "q.onnx"
    report = quantize(save(tmp_path, nodes, constants), samples(), path, activation=activation)
    assert report.outputs[0].max_abs_diff < 0.05
    graph = load_model(path)
    operators = [node.op for node in graph.nodes]
    assert operators[0] == "Quantize"
    assert operators[-2:] == ["Dequantize", "Softmax"]
    assert operators.count("Quantize") == operators.count("Dequantize") == 1
    inputs = samples(1)
    np.testing.assert_allclose(reference.run(graph, {"x": inputs})["p"], run(path, "x", inputs)[0], atol=0.02)


def test_two_inputs(tmp_path):
    node = helper.make_node("Add", ["a", "b"], ["y"], name="add")
    path = save(tmp_path, [node], {}, inputs={"a": (1, 4), "b": (1, 4)})
    arrays = {"a": weights(5, 4), "b": weights(5, 4, seed=2)}
    report = quantize(path, arrays, tmp_path / "q.onnx")
    assert report.outputs[0].top1 is not None
    assert read_metadata(tmp_path / "q.onnx") == (None, None)
    with pytest.raises(InvalidInput, match="different numbers"):
        quantize(path, arrays | {"b": weights(4, 4)}, tmp_path / "q.onnx")
    with pytest.raises(InvalidInput, match="no array for the input 'b'"):
        quantize(path, {"a": weights(5, 4)}, tmp_path / "q.onnx")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InvalidInput, match="2 inputs"):
        quantize(path, tmp_path / "folder", tmp_path / "q.onnx")


def test_sqnr_is_what_it_says(tmp_path):
    """The input's SQNR, recomputed here from its scale and zero-point."""
    inputs = samples(3)
    report = quantize(one_conv(tmp_path), inputs, tmp_path / "q.onnx")
    (tensor,) = [tensor for tensor in report.tensors if tensor.name == "x"]
    steps = np.clip(np.rint(inputs / np.float32(tensor.scale)) + tensor.zero_point, 0, 255)
    noise = inputs - tensor.scale * (steps - tensor.zero_point)
    expected = 10 * np.log10((inputs.astype(np.float64) ** 2).sum() / (noise.astype(np.float64) ** 2).sum())
    assert tensor.sqnr_db == pytest.approx(expected, abs=0.01)
    assert decibels(1, 0) == 200
    assert decibels(0, 1) == -200
    assert decibels(100, 1) == pytest.approx(20)


@pytest.mark.slow
def test_damaged_metadata(quantized):
    loaded = onnx.load(quantized[0])
    for value in ("{", "[]", '{"size": [1, 1]}', "[" * 100_000):
        for key in (PREPROCESSING_KEY, STATISTICS_KEY):
            helper.set_model_props(loaded, {key: value})
            with pytest.raises(InvalidModel, match=key):
                read_metadata(loaded)


@pytest.mark.slow
def test_a_larger_network_from_the_zoo(tmp_path):
    onnx.save(mobilenet_v2(0.35, 64, 10), tmp_path / "net.onnx")
    folder = tmp_path / "pictures"
    folder.mkdir()
    for index in range(4):
        pixels = np.random.default_rng(index).integers(0, 256, (50, 70, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{index}.jpg")
    report = quantize(tmp_path / "net.onnx", folder, tmp_path / "q.onnx")
    assert report.preprocessing == default_for((1, 3, 64, 64))
    assert report.outputs[0].sqnr_db > 10


# --- functions of one tensor, weights of uint8 ----------------------------------------------------------


def node(op, inputs, output, **attributes):
    return helper.make_node(op, inputs, [output], name=output, **attributes)


HARD_SWISH = [
    node("Add", ["c", "three"], "shifted"),
    node("Clip", ["shifted", "zero", "six"], "clipped"),
    node("Mul", ["c", "clipped"], "product"),
    node("Div", ["product", "six"], "y"),
]
RELU6_SWISH = [
    node("Add", ["c", "three"], "shifted"),
    node("Relu", ["shifted"], "relu"),
    node("Min", ["relu", "six"], "clipped"),
    node("Mul", ["clipped", "sixth"], "gate"),
    node("Mul", ["gate", "c"], "y"),
]
SCALARS = {"three": np.float32(3), "zero": np.float32(0), "six": np.float32([6]), "sixth": np.float32(1 / 6)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "nodes", [HARD_SWISH, RELU6_SWISH, [node("Sigmoid", ["c"], "gate"), node("Mul", ["gate", "c"], "y")]]
)
@pytest.mark.parametrize("ends", ["output", "conv"])
def test_a_function_stays_whole(tmp_path, nodes, ends):
    """What is between its operators is not quantised: one table, with the loss of one rounding."""
    convolution = node("Conv", ["x", "w"], "c", pads=[1, 1, 1, 1])
    constants = {"w": weights(4, 3, 3, 3)} | {
        name: value for name, value in SCALARS.items() if any(name in n.input for n in nodes)
    }
    nodes = [convolution, *nodes]
    if ends == "conv":
        nodes.append(node("Conv", ["y", "w2"], "z", pads=[1, 1, 1, 1]))
        constants["w2"] = weights(4, 4, 3, 3)
    report = quantize(save(tmp_path, nodes, constants), samples(), tmp_path / "q.onnx")
    graph = load_model(tmp_path / "q.onnx")
    expected = ["Quantize", "Conv", "Lookup", *(["Conv"] if ends == "conv" else []), "Dequantize"]
    assert [n.op for n in graph.nodes] == expected
    sqnr = {tensor.name: tensor.sqnr_db for tensor in report.tensors}
    assert sqnr.keys() == {"x", "c", "y", *(["z"] if ends == "conv" else [])}
    assert sqnr["y"] > 30
    data = {"x": samples(1)}
    values = reference.run(graph, data)
    for name, array in oracle(onnx.load(tmp_path / "q.onnx"), data).items():
        assert np.array_equal(values[name], array)


@pytest.mark.slow
def test_what_others_read_is_quantised(tmp_path):
    """The gate of a function is also the network's output, and also read by a convolution."""
    nodes = [
        node("Conv", ["x", "w"], "c", pads=[1, 1, 1, 1]),
        node("HardSigmoid", ["c"], "gate"),
        node("Mul", ["c", "gate"], "product"),
        node("Conv", ["gate", "w2"], "side"),
        node("Neg", ["product"], "y"),
    ]
    constants = {"w": weights(4, 3, 3, 3), "w2": weights(2, 4, 1, 1)}
    path = save(tmp_path, nodes, constants, outputs=["gate", "side"])
    report = quantize(path, samples(), tmp_path / "q.onnx")
    assert {tensor.name for tensor in report.tensors} == {"x", "c", "gate", "product", "side", "y"}
    body = split(load_model(tmp_path / "q.onnx")).body
    assert [n.op for n in body.nodes] == ["Conv", "Lookup", "Mul", "Conv", "Lookup"]
    assert report.worst.sqnr_db > 20


def test_a_relu_before_a_function_stays_the_range_of_its_convolution(tmp_path):
    nodes = [
        node("Conv", ["x", "w"], "c", pads=[1, 1, 1, 1]),
        node("Relu", ["c"], "r"),
        node("Sigmoid", ["r"], "s"),
        node("Neg", ["s"], "y"),
    ]
    quantize(save(tmp_path, nodes, {"w": weights(4, 3, 3, 3)}), samples(), tmp_path / "q.onnx")
    graph = load_model(tmp_path / "q.onnx")
    assert [n.op for n in graph.nodes] == ["Quantize", "Conv", "Lookup", "Dequantize"]
    assert graph.nodes[1].output.startswith("r")


@pytest.mark.slow
def test_squeeze_and_excitation_concat_resize_pad_transpose(tmp_path):
    nodes = [
        node("Conv", ["x", "w"], "c", pads=[1, 1, 1, 1]),
        node("GlobalAveragePool", ["c"], "mean"),
        node("Conv", ["mean", "w2"], "squeezed"),
        node("HardSigmoid", ["squeezed"], "gate"),
        node("Mul", ["c", "gate"], "excited"),
        node("Pad", ["excited", "pads"], "padded"),
        node("Resize", ["padded", "", "scales"], "up", mode="nearest"),
        node("MaxPool", ["up"], "pooled", kernel_shape=[2, 2], strides=[2, 2]),
        node("Concat", ["pooled", "pooled"], "joined", axis=1),
        node("Transpose", ["joined"], "y", perm=[0, 2, 3, 1]),
    ]
    constants = {
        "w": weights(4, 3, 3, 3),
        "w2": weights(4, 4, 1, 1),
        "scales": np.float32([1, 1, 2, 2]),
        "pads": np.int64([0, 0, 1, 1, 0, 0, 1, 1]),
    }
    report = quantize(save(tmp_path, nodes, constants), samples(), tmp_path / "q.onnx")
    assert report.worst.sqnr_db > 25
    graph = load_model(tmp_path / "q.onnx")
    assert {"Mul", "Lookup", "Resize", "Pad", "Concat", "Transpose"} <= {n.op for n in graph.nodes}
    data = {"x": samples(1)}
    expected = oracle(onnx.load(tmp_path / "q.onnx"), data)
    assert np.array_equal(reference.run(graph, data)["y"], expected["y"])


@pytest.mark.slow
@pytest.mark.parametrize("per_channel", [True, False])
def test_uint8_weights(tmp_path, per_channel):
    report = quantize(
        one_conv(tmp_path), samples(), tmp_path / "q.onnx", weight="uint8", per_channel=per_channel
    )
    assert report.weight == "uint8"
    weight = load_model(tmp_path / "q.onnx").tensor("w_quantized")
    assert (weight.dtype, set(np.atleast_1d(weight.quantization.zero_point))) == ("uint8", {128})
    assert report.worst.sqnr_db > 30


def test_invalid_weight_types(tmp_path):
    path = one_conv(tmp_path)
    with pytest.raises(UsageError, match="weight type 'int4'"):
        quantize(path, samples(), tmp_path / "q.onnx", weight="int4")
    with pytest.raises(UsageError, match="int8 activations with uint8 weights"):
        quantize(path, samples(), tmp_path / "q.onnx", weight="uint8", activation="int8")
