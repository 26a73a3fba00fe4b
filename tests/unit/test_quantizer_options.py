"""Options of the quantiser: weights, nodes in floats, states, inputs of other types."""

import json
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, numpy_helper

from sdk.errors import InvalidInput, UsageError
from sdk.importers import load_model
from sdk.quantizer import mixed, quantize, weights
from sdk.quantizer.products import constants, replaced
from tests.quantizer_models import node, rare_outliers, recurrent, samples, save
from tests.quantizer_models import weights as random
from tests.unit.test_quantizer_choice import scales
from towline.cli import main


@pytest.fixture
def network(tmp_path, monkeypatch):
    monkeypatch.setenv("TOWLINE_CACHE", str(tmp_path / "cache"))
    return rare_outliers(tmp_path / "float.onnx")


def run(path, **feeds):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        path if isinstance(path, bytes) else str(path), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, feeds)


# --- weights ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group", "inputs", "outputs", "kernel", "stride", "dilation"),
    [(1, 6, 8, 3, 1, 1), (6, 6, 6, 3, 2, 1), (2, 6, 4, 1, 1, 1), (1, 6, 4, 3, 1, 2)],
)
def test_rounding_serves_the_output_of_the_layer(tmp_path, group, inputs, outputs, kernel, stride, dilation):
    weight = random(outputs, inputs // group, kernel, kernel)
    pads = [dilation * (kernel // 2)] * 4
    conv = node(
        "Conv", ["x", "w"], "y", group=group, pads=pads, strides=[stride] * 2, dilations=[dilation] * 2
    )
    path = save(tmp_path / "m.onnx", [conv], {"w": weight}, {"x": (1, inputs, 10, 10)}, ["y"])
    model = onnx.load(path)
    data = [{"x": np.abs(x[None]) + 0.3} for x in samples(6, (inputs, 10, 10))]  # positive: correlated
    work = SimpleNamespace(
        prepared=model,
        where="model",
        peaks={},
        keep_float=frozenset(),
        data=SimpleNamespace(samples=data),
        layout=SimpleNamespace(constants={"w": weight}),
    )
    work.variant = lambda **changes: SimpleNamespace(**{**vars(work), **changes})
    rounded = weights.round_weights(work, range(3), lambda *_: None)
    step = np.abs(weight).reshape(outputs, -1).max(axis=1).reshape(-1, 1, 1, 1) / 127
    nearest = (np.rint(weight / step) * step).astype(np.float32)

    def error(changed):
        return sum(
            np.square(run(changed.SerializeToString(), **x)[0] - run(path, **x)[0]).sum() for x in data[3:]
        )

    found = constants(rounded.prepared)["w"]
    np.testing.assert_allclose(found / step, np.rint(found / step), atol=1e-3)
    assert np.abs(found - weight).max() <= 1.01 * step.max()
    gain = error(rounded.prepared) / error(replaced(model, {"w": nearest}))
    assert gain < (0.9 if kernel > 1 else 1.01)


@pytest.mark.parametrize("relu", [True, False])
def test_equalisation_changes_nothing_in_floats(tmp_path, relu):
    nodes = [
        node("Conv", ["x", "w1", "b1"], "a"),
        *([node("Relu", ["a"], "r")] if relu else []),
        node("Conv", ["r" if relu else "a", "w2", "b2"], "d", group=6, pads=[1, 1, 1, 1]),
        node("Conv", ["d", "w3"], "y"),
    ]
    first = random(6, 3, 1, 1) * np.float32([10, 1, 0.1, 3, 1, 0.5]).reshape(-1, 1, 1, 1)
    arrays = {
        "w1": first,
        "b1": random(6, seed=1),
        "w2": random(6, 1, 3, 3, seed=2),
        "b2": random(6, seed=3),
        "w3": random(4, 6, 1, 1, seed=4),
    }
    path = save(tmp_path / "m.onnx", nodes, arrays, {"x": (1, 3, 6, 6)}, ["y"])
    data = [{"x": x[None]} for x in samples(3, (3, 6, 6))]
    work = SimpleNamespace(prepared=onnx.load(path), where="m", data=SimpleNamespace(samples=data))
    work.variant = lambda **changes: SimpleNamespace(**{**vars(work), **changes})
    result = weights.equalize(work, range(3)).prepared
    assert np.abs(constants(result)["w1"] - first).max() > 0.1
    for feeds in data:
        expected = run(path, **feeds)[0]
        np.testing.assert_allclose(
            run(result.SerializeToString(), **feeds)[0], expected, rtol=1e-3, atol=1e-4
        )


@pytest.mark.slow
def test_options_for_weights_are_kept_only_where_they_pay(network, tmp_path):
    options = {"equalize": True, "round_weights": True, "bias_correction": True}
    report = quantize(network, samples(10), tmp_path / "q.onnx", **options)
    assert [trial.name for trial in report.weights] == ["scales", "equalize", "round", "bias"]
    kept = [trial for trial in report.weights if trial.kept]
    assert any(trial.name == "bias" for trial in kept)
    assert all(trial.gain_db > -1 for trial in kept)  # amplitudes are compared, not decibels
    with pytest.raises(UsageError):
        quantize(network, samples(10), tmp_path / "q.onnx", per_channel=False, round_weights=True)
    with pytest.raises(UsageError, match="held out"):
        quantize(network, samples(1), tmp_path / "q.onnx", equalize=True)


def test_a_dead_first_channel_with_live_others(tmp_path):
    weight = random(4, 3, 3, 3)
    weight[0] = 0
    conv = node("Conv", ["x", "w", "b"], "y", pads=[1, 1, 1, 1])
    arrays = {"w": weight, "b": random(4, seed=1)}
    path = save(tmp_path / "m.onnx", [conv], arrays, {"x": (1, 3, 8, 8)}, ["y"])
    assert quantize(path, samples(8), tmp_path / "q.onnx").outputs[0].sqnr_db > 30


# --- nodes in floats ----------------------------------------------------------------------------------


def integers(path):
    """Names of initialisers that are stored as integers."""
    return {
        tensor.name.removesuffix("_quantized")
        for tensor in onnx.load(path).graph.initializer
        if tensor.data_type == TensorProto.INT8
    }


@pytest.mark.slow
def test_named_nodes_stay_float(network, tmp_path):
    plain = quantize(network, samples(8), tmp_path / "q.onnx")
    assert {"w1", "w2", "w3"} <= integers(tmp_path / "q.onnx")
    report = quantize(network, samples(8), tmp_path / "f.onnx", keep_float=["/a", "/[sc]", "/g"])
    assert not {"w1", "w3"} & integers(tmp_path / "f.onnx")
    assert "w2" in integers(tmp_path / "f.onnx")
    assert set(report.float_nodes) == {"/a", "/s", "/c", "/g"}
    assert report.float_macs == 64 * (6 * 27 + 12 * 6)
    assert report.macs == 64 * (2 * 6 * 27 + 12 * 6) + 60
    assert not {"s", "c"} & {tensor.name for tensor in report.tensors}
    assert report.held_out.mean > plain.held_out.mean
    load_model(tmp_path / "f.onnx")


def test_an_unknown_node_is_refused_with_the_nearest(network, tmp_path):
    nodes = [node("Conv", ["x", "weight"], "stem")]
    model = save(tmp_path / "m.onnx", nodes, {"weight": random(4, 3, 1, 1)}, {"x": (1, 3, 4, 4)}, ["stem"])
    with pytest.raises(UsageError) as caught:
        quantize(model, samples(4, (3, 4, 4)), tmp_path / "q.onnx", keep_float=["/stemm"])
    assert "/stem" in caught.value.hint
    assert not (tmp_path / "q.onnx").exists()


@pytest.mark.slow
def test_as_few_nodes_as_a_figure_needs(network, tmp_path, capsys):
    np.save(tmp_path / "in.npy", samples(10))
    command = ["quantize", str(network), "--calibrate", str(tmp_path / "in.npy"), "--json"]

    def results(figure):
        code = main([*command, "-o", str(tmp_path / "q.onnx"), "--auto-float", str(figure)])
        document = json.loads(capsys.readouterr().out)
        return code, document.get("result"), document.get("error")

    counts = []
    for figure in (20, 36.7, 45):
        code, result, _ = results(figure)
        assert code == 0
        assert result["held_out"]["mean"] >= figure
        counts.append(len(result["float_nodes"]))
    assert counts[0] == 0 < counts[1] <= counts[2]
    (tmp_path / "q.onnx").unlink()
    code, result, error = results(150)
    assert (code, result) == (1, None)
    assert "whole network" in error["message"]
    assert not (tmp_path / "q.onnx").exists()
    assert results(-3)[0] == 2


@pytest.mark.slow
def test_the_sensitivity_of_written_files_names_the_culprit(network, tmp_path):
    quantize(network, samples(8), tmp_path / "q.onnx", method="minmax")
    feeds = [{"x": x[None]} for x in samples(4, seed=9)]
    scorer = mixed.of_files(network, tmp_path / "q.onnx", feeds)
    gains = {name: scorer.gain(name).gain_db for name in scorer.units}
    assert max(gains, key=gains.__getitem__) in ("/s", "/c")  # where the outliers are
    everything = {name for unit in scorer.units.values() for name in unit}
    assert scorer.mean_error(everything) < 1e-9 < scorer.error
    with pytest.raises(InvalidInput):
        mixed.of_files(network, network, feeds)


# --- states -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_both_sides_of_a_state_have_one_scale_found_over_sequences(tmp_path):
    path = recurrent(tmp_path / "m.onnx")
    inputs = samples(5, (12, 1, 4))
    report = quantize(path, {"x": inputs}, tmp_path / "q.onnx")
    assert [(state.output, state.input, state.tied) for state in report.states] == [("next_h", "h", True)]
    found = scales(tmp_path / "q.onnx")
    assert found["h"] == found["next_h"]
    states = []
    for sequence in inputs:
        h = np.zeros((1, 6), np.float32)
        for x in sequence:
            h = run(path, x=x, h=h)[1]
            states.append(h)
    scale, zero = found["h"]
    assert (255 - zero) * scale == pytest.approx(np.max(states), rel=0.02)
    assert np.max(states) > 2 * np.max(states[0])  # the first steps alone would not do
    assert report.samples == 60
    quantize(path, {"x": inputs[::-1]}, tmp_path / "again.onnx")
    assert (tmp_path / "q.onnx").read_bytes() == (tmp_path / "again.onnx").read_bytes()
    quantize(path, inputs.reshape(60, 4), tmp_path / "long.onnx")  # one sequence of 60 steps
    assert scales(tmp_path / "long.onnx")["h"] == scales(tmp_path / "long.onnx")["next_h"]
    graph = load_model(tmp_path / "q.onnx")
    assert set(graph.inputs) == {"x", "h"}


@pytest.mark.slow
def test_states_may_be_given_and_then_are_not_fed_back(tmp_path):
    path = recurrent(tmp_path / "m.onnx")
    given = {"x": samples(9, (4,)), "h": samples(9, (6,), seed=4)}
    quantize(path, given, tmp_path / "q.onnx")
    found = scales(tmp_path / "q.onnx")
    assert found["h"] == found["next_h"]
    for arrays in (
        {"x": samples(3, (5, 1, 4)), "h": samples(3, (6,))},
        {"h": samples(9, (6,))},
        {"x": samples(3, (5, 2, 4))},
    ):
        with pytest.raises(InvalidInput):
            quantize(path, arrays, tmp_path / "bad.onnx")


# --- inputs of other types ----------------------------------------------------------------------------


def test_integer_inputs_are_taken_as_they_are(tmp_path):
    nodes = [
        node("Cast", ["picture"], "x", to=TensorProto.FLOAT),
        node("Conv", ["x", "w"], "c"),
        node("Relu", ["c"], "y"),
    ]
    path = save(
        tmp_path / "m.onnx",
        nodes,
        {"w": random(4, 3, 3, 3)},
        {"picture": ((1, 3, 8, 8), TensorProto.UINT8)},
        ["y"],
    )
    pictures = np.random.default_rng(0).integers(0, 256, (8, 3, 8, 8)).astype(np.uint8)
    report = quantize(path, pictures, tmp_path / "q.onnx")
    assert report.outputs[0].sqnr_db > 30
    load_model(tmp_path / "q.onnx")
    for wrong in (pictures.astype(np.float32), pictures.astype(np.int64)):
        with pytest.raises(InvalidInput, match="uint8"):
            quantize(path, wrong, tmp_path / "q.onnx")


@pytest.mark.slow
def test_a_float16_network_becomes_float32_first(tmp_path):
    nodes = [
        node("Constant", [], "two", value=numpy_helper.from_array(np.float16([2.0]))),
        node("Mul", ["x", "two"], "m"),
        node("Conv", ["m", "w"], "c"),
        node("Cast", ["c"], "y", to=TensorProto.FLOAT16),
    ]
    weight = random(4, 3, 3, 3).astype(np.float16)
    half = TensorProto.FLOAT16
    path = save(tmp_path / "m.onnx", nodes, {"w": weight}, {"x": (1, 3, 8, 8)}, ["y"], half)
    data = samples(8)
    report = quantize(path, data, tmp_path / "q.onnx")
    assert report.outputs[0].sqnr_db > 30
    expected = run(path, x=data[:1].astype(np.float16))[0].astype(np.float32)
    result = run(tmp_path / "q.onnx", x=data[:1])[0]
    assert np.abs(result - expected).max() < 0.03 * np.abs(expected).max()


def test_what_has_no_quantised_form_stays_float(tmp_path):
    nodes = [
        node("Conv", ["x", "w"], "c"),
        node("CumSum", ["c", "axis"], "s"),
        node("GlobalAveragePool", ["s"], "y"),
    ]
    arrays = {"w": random(4, 3, 3, 3), "axis": np.int64(2)}
    path = save(tmp_path / "m.onnx", nodes, arrays, {"x": (1, 3, 8, 8)}, ["y"])
    quantize(path, samples(8), tmp_path / "q.onnx")
    graph = load_model(tmp_path / "q.onnx")
    assert any(one.op not in ("Quantize", "Dequantize", "Conv") for one in graph.nodes)
