"""Layers measured one by one, on a target and with models that can be wrong at will."""

import dataclasses
import json
import re

import numpy as np
import pytest

from sdk import reference
from sdk.compiler import compile
from sdk.debugging import (
    Difference,
    Divergence,
    Layer,
    advice,
    columns,
    debug,
    document,
    float_oracle,
    page,
    quantized_oracle,
    verdict,
)
from sdk.debugging.advice import pattern
from sdk.debugging.html import WIDEST, _shrunk
from sdk.debugging.measure import _divergence, _quantize
from sdk.errors import EnvironmentMissing, InvalidInput, InvalidModel, UsageError
from sdk.graph import Graph, Quantization, Tensor
from sdk.quantizer.metadata import input_digest
from sdk.quantizer.mixed import Gain
from sdk.session import Session
from tests.onnx_models import OnnxBuilder, saved, small_float_model, small_qdq_model
from tests.reference_target import NAME, ReferenceDevice, register, small_network


@pytest.fixture(autouse=True)
def registered(monkeypatch, tmp_path):
    register(monkeypatch, tmp_path / "site")


@pytest.fixture
def picture():
    return np.random.default_rng(3).normal(0, 0.5, (1, 1, 4, 4)).astype(np.float32)


class Model:
    """In place of an oracle: the reference's values, dequantised for a float model, changed at will."""

    where = "model.onnx"

    def __init__(self, graph, *, real=False, change=None, only=None, scaled=1):
        self.scaled = scaled
        self.graph, self.real, self.change = graph, real, change or {}
        self.names = {name: name for name in (only or [t.name for t in graph.activations()])}

    def run(self, feeds):
        body = compile(self.graph, NAME).program.graph
        tensor = body.tensor("picture_q")
        levels = np.rint(feeds["picture"] / np.float32(tensor.scale)) + tensor.zero_point
        values = reference.run(body, {"picture_q": np.clip(levels, 0, 255).astype(np.uint8)}, "f32")
        for name, changed in self.change.items():
            values[name] = changed(values[name])
        if self.real:
            for name, value in values.items():
                tensor = body.tensor(name)
                real = (value.astype(np.float32) - tensor.zero_point) * np.float32(tensor.scale)
                values[name] = real * np.float32(self.scaled)
        found = {name: values[name] for name in self.names if name in values}
        return found, {"probabilities": np.array([[0, 0, 1]], np.float32)}


def test_plain_layers_are_computed_and_those_behind_them_compared(tmp_path):
    builder = small_qdq_model()
    h = builder.node("Sin", [builder.qdq("y", 0.05, np.uint8(128))], "sine")
    h = builder.node("ReduceSum", [h, builder.constant("axes", [1], np.int64)], "total")
    builder.qdq(h, 0.05, np.uint8(100))
    path = saved(builder.model(["total_q_real"]), tmp_path)
    network = compile(path, target="c")
    x = np.random.default_rng(0).normal(0, 1, (1, 3, 8, 8)).astype(np.float32)
    model = quantized_oracle(path, network.program.graph)
    with Session(network) as session:
        report = debug(network, session, [("x", {"x": x})], quantized=model)
    assert report.plain
    assert all(layer.tensor.quantization is not None for layer in report.layers)
    assert report.divergence is None
    last = report.layers[-1].onnxruntime
    assert last is not None
    assert last.max_abs_diff <= 1


def test_a_network_without_quantised_tensors_is_sent_to_run(tmp_path):
    path = saved(small_float_model().model(["y"]), tmp_path)
    network = compile(path, target="c")
    with Session(network) as session, pytest.raises(UsageError):
        debug(network, session, [("x", {"x": np.zeros((1, 3, 8, 8), np.float32)})])


def broken(monkeypatch, changes, *, hidden=()):
    """Make the device compute wrongly: `changes` apply to its layers' results, and pass on to the next."""

    def trace(self, inputs):
        values = dict(inputs)
        for node in self.graph.nodes:
            value = reference.evaluate(self.graph, node, values, "q31").copy()
            if node.name in changes:
                changes[node.name](value)
            values[node.output] = value
        return {n.output: values[n.output] for n in self.graph.nodes if n.output not in hidden}

    monkeypatch.setattr(ReferenceDevice, "trace", trace)


def investigated(picture, **options):
    network = compile(small_network(), NAME)
    with Session(network) as session:
        return debug(network, session, [("a", {"picture": picture})], **options)


def spoil(value):
    value[0, 1, 2, 3] ^= 16


def spoil_flat(value):
    value[0, 2] ^= 1


def test_equal_layers(picture):
    report = investigated(picture)
    assert [layer.node for layer in report.layers] == ["quantize", "conv", "flatten", "gemm"]
    assert report.diverging is None
    assert report.broken == []
    assert report.elements == 32 + 32 + 3
    assert "no mismatch" in verdict(report)
    assert advice(report) == []
    assert report.answers == [
        {"reference": report.answers[0]["target"], "target": report.answers[0]["target"]}
    ]


def test_the_broken_layer_is_named_and_the_others_follow(monkeypatch, picture):
    broken(monkeypatch, {"conv": spoil})
    report = investigated(picture)
    conv = report.diverging
    assert conv is not None
    assert report.misread == []
    assert conv.node == "conv"
    assert (conv.target.mismatches, conv.target.max_abs_diff, conv.own_mismatches) == (1, 16, 1)
    first = conv.target.first
    assert (first.sample, first.index, first.actual) == ("a", (0, 1, 2, 3), first.expected ^ 16)
    flatten = report.layers[2]
    assert (flatten.target.mismatches, flatten.own_mismatches) == (1, 0)
    assert flatten.target.first.index == (0, 16 + 2 * 4 + 3)
    assert report.broken == [conv]
    assert "in conv (Conv), at element [0, 1, 2, 3]" in verdict(report)
    assert report.divergence.channels.tolist() == [0, 1]
    assert report.divergence.peak[2, 3] == report.divergence.peak.sum() == 16


def test_a_second_broken_layer_is_distinguished_from_those_that_follow(monkeypatch, picture):
    broken(monkeypatch, {"conv": spoil, "gemm": spoil_flat})
    report = investigated(picture)
    assert [layer.node for layer in report.broken] == ["conv", "gemm"]
    assert any("also wrong from their own inputs: gemm" in line for line in advice(report))


def test_a_broken_layer_that_the_target_keeps_to_itself(monkeypatch, picture):
    broken(monkeypatch, {"conv": spoil}, hidden={"features"})
    report = investigated(picture)
    assert report.layers[1].target is None
    assert report.layers[1].target_in == "flatten"
    assert report.diverging.node == "flatten"
    assert any("since conv" in line for line in advice(report))


def test_a_result_that_is_only_read_back_wrong(monkeypatch, picture):
    plain = ReferenceDevice.trace

    def trace(self, inputs):
        values = plain(self, inputs)
        values["features"] = values["features"].copy()
        spoil(values["features"])
        return values

    monkeypatch.setattr(ReferenceDevice, "trace", trace)
    report = investigated(picture)
    assert [layer.node for layer in report.layers if layer.differs] == ["conv"]
    assert [layer.node for layer in report.misread] == ["flatten"]
    assert any(line.startswith("flatten: ") and "read something other" in line for line in advice(report))
    assert not any("later layers" in line for line in advice(report))


def test_a_reshape_is_kept_where_its_input_is(monkeypatch, picture):
    broken(monkeypatch, {}, hidden={"flat"})
    report = investigated(picture)
    assert report.layers[2].target_in == "conv"
    assert report.diverging is None


def test_several_samples_add_up_and_the_earliest_layer_wins(monkeypatch, picture):
    network = compile(small_network(), NAME)
    seen = []

    def late_then_early(value):
        seen.append(None)
        if len(seen) == 2:
            spoil(value)

    broken(monkeypatch, {"conv": late_then_early, "gemm": spoil_flat})
    with Session(network) as session:
        report = debug(network, session, [(name, {"picture": picture}) for name in "ab"])
    assert report.samples == ["a", "b"]
    assert report.diverging.node == "conv"
    assert report.divergence.sample == report.diverging.target.first.sample == "b"
    assert report.layers[3].target.first.sample == "a"
    assert report.layers[3].target.elements == 6
    assert len(report.answers) == 2
    with Session(network) as session, pytest.raises(UsageError, match="at least one input"):
        debug(network, session, [])


def test_quantised_inputs_stand_for_floats(picture):
    network = compile(small_network(), NAME)
    with Session(network) as session:
        feeds = session.quantize({"picture": picture})
        report = debug(network, session, [("a", feeds)], real=Model(small_network(), real=True))
    assert report.layers[0].real.sqnr_db == 200


def test_against_float(picture):
    report = investigated(picture, real=Model(small_network(), real=True))
    for layer in report.layers[:3]:
        assert layer.real.clipped == 0
        assert np.array_equal(layer.real.counts, layer.counts)
    assert report.layers[0].real.sqnr_db > 20
    assert report.layers[1].real.own_sqnr_db > 20
    assert report.answers[0]["float"] == 2


def test_a_layer_that_loses_much_alone_is_distinguished_from_those_after_it(picture):
    # The float model's conv is three times what the network's is: the conv is to blame, what follows is not.
    model = Model(small_network(), real=True, only=["picture_q", "features", "flat"])
    plain = model.run

    def run(feeds):
        values, outputs = plain(feeds)
        values["features"] = values["features"] * 3
        values["flat"] = values["features"].reshape(1, 32)
        return values, outputs

    model.run = run
    report = investigated(picture, real=model)
    conv = report.layers[1]
    assert conv.real.sqnr_db == pytest.approx(20 * np.log10(3 / 2), abs=1)
    assert conv.real.own_sqnr_db == pytest.approx(20 * np.log10(3 / 2), abs=1)
    assert report.layers[2].real.own_sqnr_db > conv.real.own_sqnr_db + 5
    assert any("conv" in line and "loses most by itself" in line for line in advice(report))


@pytest.mark.parametrize("per_channel", [True, False])
def test_scales_by_channel_are_advised_only_where_weights_share_one(picture, per_channel):
    graph = small_network()
    if not per_channel:
        for name, scale in (("conv.weight", 0.015), ("conv.bias", 0.015 * 0.0078)):
            shared = Quantization.per_tensor(scale, 0)
            graph.tensors[name] = dataclasses.replace(graph.tensors[name], quantization=shared)
    model = Model(graph, real=True, only=["picture_q", "features"])
    plain = model.run

    def run(feeds):
        values, outputs = plain(feeds)
        return values | {"features": values["features"] * 3}, outputs

    model.run = run
    network = compile(graph, NAME)
    with Session(network) as session:
        report = debug(network, session, [("a", {"picture": picture})], real=model)
    (line,) = [line for line in advice(report) if "loses most by itself" in line]
    assert "conv" in line
    assert ("per channel" in line) is not per_channel


def lossy(picture, scale, made):
    """Advice on an input `scale` times as large as the network expects."""
    model = Model(small_network(), real=True)
    plain = model.run
    model.run = lambda feeds: (plain(feeds)[0] | {"picture_q": feeds["picture"]}, {})
    return "\n".join(advice(investigated(picture * scale, real=model, made=made)))


@pytest.mark.parametrize(
    ("made", "said", "unsaid"),
    [
        ({"method": "auto", "ranges": "minmax"}, "more, and more typical, inputs", "method"),
        ({"method": "auto", "ranges": "percentile 99.98"}, "percentile 99.98", "more typical"),
        (None, "method cuts too much", "more typical"),
    ],
)
def test_advice_on_clipped_values_is_by_how_ranges_were_found(picture, made, said, unsaid):
    text = lossy(picture, 100, made)
    assert said in text
    assert unsaid not in text


@pytest.mark.parametrize(
    ("made", "tried"), [({"method": "auto"}, False), ({"method": "minmax"}, True), (None, True)]
)
def test_methods_are_advised_only_where_they_were_not_tried(picture, made, tried):
    text = lossy(picture, 0.02, made)
    assert "of its levels" in text
    assert ("tries several" in text) is tried


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({"samples": 3}, "calibrated on 3 inputs"),
        ({"samples": 26}, None),
        ({"samples": 26, "held_out_db": 12.0, "calibration_db": 20.0}, "held out"),
        ({"samples": 26, "held_out_db": 19.0, "calibration_db": 20.0}, None),
        ({"samples": 26, "held_out_db": None, "calibration_db": 20.0}, None),
    ],
)
def test_more_inputs_are_advised_only_where_it_is_true(picture, made, said):
    lines = [line for line in lossy(picture, 1, made).splitlines() if "calibrat" in line]
    assert len(lines) == (said is not None)
    assert said is None or said in lines[0]


def test_inputs_of_the_calibration_are_known_again(picture):
    made = {"samples": 26, "inputs": [input_digest({"picture": picture})]}
    model = Model(small_network(), real=True)
    report = investigated(picture, real=model, made=made)
    assert document(report)["seen_in_calibration"] == 1
    assert any("1 of 1 inputs served to calibrate" in line for line in advice(report))
    report = investigated(picture + 1, real=model, made=made)
    assert document(report)["seen_in_calibration"] == 0
    assert not any("served" in line for line in advice(report))


class Scorer:
    """Sensitivities that are known; it counts what was asked for."""

    def __init__(self, gains, error=0.1):
        self.units = {node: (node, "reader") for node in gains}
        self.gains, self.error, self.asked = gains, error, []

    def __call__(self, samples):
        self.samples = samples
        return self

    def gain(self, node):
        self.asked.append(node)
        return Gain(node, self.units[node], 0.01, self.gains[node], 7)


def test_layers_are_tried_in_floats_those_that_lose_most_first(picture):
    scorer = Scorer({"gemm": 0.25, "conv": 4.0, "else": -1.0, "picture": 2.0})
    model = Model(small_network(), real=True)
    plain = model.run

    def run(feeds):
        values, outputs = plain(feeds)
        return values | {"picture_q": feeds["picture"], "features": values["features"] * 3}, outputs

    model.run = run
    report = investigated(picture, real=model, scorer=scorer)
    assert scorer.asked[0] == "conv"
    assert sorted(scorer.asked) == ["conv", "else", "gemm", "picture"]
    assert [np.array_equal(feeds["picture"], picture) for feeds in scorer.samples] == [True]
    assert [layer.gain_db for layer in report.layers] == [2.0, 4.0, None, 0.25]
    found = document(report)["sensitivity"]
    assert [gain["node"] for gain in found["gains"]] == ["conv", "picture", "gemm", "else"]
    assert (found["sqnr_db"], found["tried"], found["units"]) == (pytest.approx(10), 4, 4)
    (line,) = [line for line in advice(report) if "--auto-float" in line]
    assert "from conv in floats" in line
    assert "next picture" in line
    assert "In floats" in page(report, "net")


def test_the_time_for_trying_layers_is_bounded(picture):
    model, scorer = Model(small_network(), real=True), Scorer({"gemm": 1.5, "conv": 4.0})
    report = investigated(picture, real=model, scorer=scorer, seconds=0)
    assert scorer.asked == []
    assert (document(report)["sensitivity"]["tried"], document(report)["sensitivity"]["units"]) == (0, 2)
    assert not any("--auto-float" in line for line in advice(report))


def test_a_model_that_cannot_be_tried_leaves_the_rest_of_the_report(picture):
    def scorer(samples):
        raise InvalidInput("it shares no quantised tensor", where="q.onnx")

    report = investigated(picture, real=Model(small_network(), real=True), scorer=scorer)
    assert report.sensitivity is None
    assert "q.onnx" in report.not_tried
    assert report.layers[0].real is not None


def test_values_beyond_the_range_are_clipped(picture):
    report = investigated(picture * 100, real=Model(small_network(), real=True))
    assert report.layers[0].real is not None
    tensor = report.layers[0].tensor
    model = Model(small_network(), real=True)
    plain = model.run
    model.run = lambda feeds: (plain(feeds)[0] | {"picture_q": feeds["picture"]}, {})
    report = investigated(picture * 100, real=model)
    levels = np.rint(picture * 100 / np.float32(tensor.scale)) + tensor.zero_point
    assert report.layers[0].real.clipped == np.count_nonzero((levels < 0) | (levels > 255)) > 4
    assert any("beyond its range" in line for line in advice(report))


def test_infinity_is_an_input_of_its_own_right_but_for_a_float_model(picture):
    picture[0, 0, 0, 0] = np.inf
    assert investigated(picture).diverging is None
    model = Model(small_network(), real=True)
    plain = model.run
    model.run = lambda feeds: (plain(feeds)[0] | {"picture_q": feeds["picture"]}, {})
    with pytest.raises(InvalidInput, match="infinity") as caught:
        investigated(picture, real=model)
    assert caught.value.where == "input picture"


@pytest.mark.filterwarnings("error")
def test_values_beyond_any_range_are_clipped_without_a_warning():
    tensor = Tensor("t", (2,), "int8", Quantization.per_tensor(1e-30, 3))
    levels, clipped = _quantize(tensor, np.array([3e38, -3e38], np.float32))
    assert (levels.tolist(), clipped) == ([127, -128], 2)


def test_nan_in_the_float_model_is_refused(picture):
    model = Model(small_network(), real=True)
    plain = model.run
    model.run = lambda feeds: (plain(feeds)[0] | {"features": np.full((1, 2, 4, 4), np.nan, np.float32)}, {})
    with pytest.raises(InvalidModel, match="NaN") as caught:
        investigated(picture, real=model)
    assert caught.value.where == "tensor features"


def test_against_onnxruntime(picture):
    def far(value):
        value = value.copy()
        value[0, 0, 0, 0] ^= 32
        return value

    report = investigated(picture, quantized=Model(small_network(), change={"features": far}))
    conv, flatten, gemm = report.layers[1:]
    assert conv.onnxruntime.first.index == (0, 0, 0, 0)
    assert conv.onnxruntime_own == 32
    assert flatten.onnxruntime_own == 32  # this model did not pass the change on
    assert gemm.onnxruntime_own == 0
    assert any(line.startswith("conv (Conv): onnxruntime's result") for line in advice(report))
    assert report.diverging is None


def test_what_the_model_fused_is_shown(picture):
    report = investigated(picture, quantized=Model(small_network(), only=["picture_q", "logits_q"]))
    assert [layer.model_in for layer in report.layers] == ["", "gemm", "gemm", ""]


def test_a_tensor_of_another_shape_is_not_a_counterpart(picture):
    model = Model(small_network(), change={"logits_q": lambda value: value[:, :1]})
    report = investigated(picture, quantized=model)
    assert report.layers[3].onnxruntime is None
    report = investigated(
        picture, quantized=Model(small_network(), only=["picture_q", "logits_q"], change=model.change)
    )
    assert [layer.model_in for layer in report.layers] == [""] * 4


def test_advice_stays_short(picture):
    lines = advice(investigated(picture * 100, real=Model(small_network(), real=True, change={}, scaled=100)))
    assert len(lines) == 2
    assert lines[1].startswith("quantize: ")
    assert "in 3 more layers" in lines[1]
    faint = advice(investigated(picture * 0.01, real=Model(small_network(), real=True)))
    assert sum("of its levels" in line for line in faint) <= 1


def test_a_model_of_another_network_is_refused(picture):
    with pytest.raises(UsageError, match="none of its tensors") as caught:
        investigated(picture, quantized=Model(small_network(), only=["else"]))
    assert caught.value.where == "model.onnx"


# -- figures ----------------------------------------------------------------------------------------------


def test_a_difference_in_numbers():
    expected = np.array([[10, 20], [30, 40]], np.uint8)
    actual = np.array([[10, 23], [30, 36]], np.uint8)
    difference = Difference()
    difference.add("a", actual, expected, 10)
    assert (difference.elements, difference.mismatches, difference.max_abs_diff) == (4, 2, 4)
    assert difference.sqnr_db == pytest.approx(10 * np.log10((100 + 400 + 900) / (9 + 16)))
    assert (difference.first.index, difference.first.actual, difference.first.expected) == ((0, 1), 23, 20)
    difference.add("b", expected, expected, 10)
    assert (difference.elements, difference.mismatches, difference.first.sample) == (8, 2, "a")


def test_signed_values_differ_without_overflow():
    difference = Difference()
    difference.add("a", np.array([-128], np.int8), np.array([127], np.int8), 0)
    assert difference.max_abs_diff == 255


@pytest.mark.parametrize(("dtype", "least"), [("uint8", 0), ("int8", -128)])
def test_saturation_and_range(dtype, least):
    zero = least + 10
    tensor = Tensor("t", (8,), dtype, Quantization.per_tensor(1.0, zero))
    counts = np.zeros(256, np.int64)
    for level, count in ((10, 4), (20, 1), (90, 3)):
        counts[level] = count
    layer = Layer("n", "Conv", tensor, (zero, least + 90), counts)
    assert layer.used == (zero, least + 90)
    assert layer.range_used == pytest.approx(80 / 255)
    assert layer.saturated == pytest.approx(3 / 8)  # the rectifier's zeros are not counted
    assert layer.zeros == pytest.approx(4 / 8)
    layer.clamp = (least, least + 20)
    assert layer.saturated == pytest.approx(1 / 8)


def divergence(cube):
    cube = np.asarray(cube)
    return Divergence(3, "a", np.count_nonzero(cube, axis=(1, 2)), cube.max(axis=0))


def cube(*slices, by=7):
    values = np.zeros((8, 6, 5), np.int32)
    for where in slices:
        values[where] = by
    return values


EVERY = slice(None)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (cube((3, EVERY, EVERY)), ["channel 3 of 8", "weights"]),
        (cube((slice(5, 8), EVERY, EVERY)), ["channels 5 to 7 of 8", "last channels"]),
        (cube((EVERY, 0, EVERY), (EVERY, EVERY, 4)), ["all 8 channels", "padding"]),
        (cube((EVERY, EVERY, slice(3, 5))), ["columns 3 to 4 of 5", "ends of rows"]),
        (cube((EVERY, slice(3, 6), EVERY)), ["rows 3 to 5 of 6", "last rows"]),
        (cube((EVERY, 5, slice(1, 5))), ["row 5 of 6", "last rows"]),
        (cube((EVERY, slice(2, 6), 4)), ["column 4 of 5", "ends of rows"]),
        (cube((EVERY, 0, slice(1, 5))), ["row 0 of 6", "padding"]),
        (cube((EVERY, EVERY, EVERY)), ["all 8 channels, all 6 rows, all 5 columns", "layout"]),
        (cube((EVERY, EVERY, EVERY), by=1), ["never by more than 1", "requantisation"]),
        (np.full((1, 1, 1), 5, np.int32), ["a single element"]),
    ],
)
def test_what_a_pattern_means(values, words):
    text = pattern(divergence(values), {"Conv"})
    assert all(word in text for word in words), text


def test_a_pattern_knows_the_operators():
    values = divergence(cube((3, EVERY, EVERY)))
    assert "weights" in pattern(values, {"Add", "Conv"})
    assert "weights" not in pattern(values, {"Add"})
    assert "table" in pattern(values, {"Lookup"})


@pytest.mark.parametrize(
    ("shape", "wrong", "channels", "peak", "at"),
    [
        ((1, 3, 4, 5), (0, 2, 1, 4), 3, (4, 5), (1, 4)),
        ((2, 3, 4, 5), (1, 2, 1, 4), 3, (8, 5), (5, 4)),
        ((1, 7), (0, 6), 7, (1, 1), (0, 0)),
        ((2, 7), (1, 6), 7, (2, 1), (1, 0)),
        ((1, 6, 4), (0, 5, 3), 1, (6, 4), (5, 3)),
        ((6,), (2,), 1, (1, 6), (0, 2)),
        ((), (), 1, (1, 1), (0, 0)),
        ((1, 2, 3, 4, 5), (0, 1, 2, 3, 4), 1, (24, 5), (23, 4)),
    ],
)
def test_where_tensors_of_any_rank_differ(shape, wrong, channels, peak, at):
    expected = np.zeros(shape, np.uint8)
    actual = expected.copy()
    actual[wrong] = 200
    found = _divergence(0, "a", actual, expected)
    channel = wrong[1] if len(shape) in (2, 4) else 0
    assert np.flatnonzero(found.channels).tolist() == [channel]
    assert len(found.channels) == channels
    assert found.peak.shape == peak
    assert found.peak[at] == found.peak.sum() == 200


# -- models ----------------------------------------------------------------------------------------------


def test_oracles_find_tensors_by_name(tmp_path):
    builder = small_qdq_model()
    builder.qdq("y", 0.1, np.uint8(3))
    path = saved(builder.model(["y_q_real"]), tmp_path, "q.onnx")
    network = compile(path, NAME)
    graph = network.program.graph
    oracle = quantized_oracle(path, graph)
    assert set(oracle.names) == {"x_q", "y_q"}
    x = np.random.default_rng(0).normal(0, 1, (1, 3, 8, 8)).astype(np.float32)
    with Session(network) as session:
        expected = reference.run(graph, session.quantize({"x": x}), "f32")
    values, outputs = oracle.run({"x": x})
    assert list(outputs) == ["y_q_real"]
    for name in ("x_q", "y_q"):
        assert values[name].dtype == np.uint8
        assert np.array_equal(values[name], expected[name])
    with pytest.raises(UsageError, match="its inputs are x"):
        oracle.run({"picture": x})

    plain = saved(small_float_model().model(["y"]), tmp_path, "float.onnx")
    # Names alone do not connect "y_q"; the quantised model shows that it was made from y.
    with pytest.raises(UsageError, match="quantised model"):
        float_oracle(path, graph)
    with pytest.raises(UsageError, match="float model"):
        quantized_oracle(plain, graph)
    assert float_oracle(plain, graph).names == {}
    real = float_oracle(plain, graph, path)
    assert real.names == {"x_q": "x", "y_q": "y"}
    values, _ = real.run({"x": x})
    assert np.array_equal(values["x_q"], x)
    assert values["y_q"].shape == (1, 4, 8, 8)


def test_two_inputs(tmp_path):
    quantized, real = OnnxBuilder(), OnnxBuilder()
    for builder in (quantized, real):
        for name in "ab":
            builder.input(name, [1, 2, 4, 4])
    real.node("Add", ["a", "b"], "y")
    inputs = [quantized.qdq("a", 0.02, np.uint8(120)), quantized.qdq("b", 0.03, np.uint8(130))]
    quantized.node("Add", inputs, "y")
    quantized.qdq("y", 0.05, np.uint8(128))
    paths = saved(quantized.model(["y_q_real"]), tmp_path, "q.onnx"), saved(real.model(["y"]), tmp_path)
    network = compile(paths[0], NAME)
    graph = network.program.graph
    random = np.random.default_rng(0)
    feeds = {name: random.normal(0, 1, (1, 2, 4, 4)).astype(np.float32) for name in "ab"}
    with Session(network) as session:
        report = debug(
            network,
            session,
            [("x", feeds)],
            quantized=quantized_oracle(paths[0], graph),
            real=float_oracle(paths[1], graph, paths[0]),
        )
    assert [layer.op for layer in report.layers] == ["Quantize", "Quantize", "Add"]
    assert report.diverging is None
    assert report.answers == []  # it is not a classifier
    assert all(layer.real.own_sqnr_db > 20 for layer in report.layers)
    assert all(layer.onnxruntime_own <= 1 for layer in report.layers)
    assert report.layers[2].onnxruntime.elements == 32


def test_an_activation_within_a_tensor_is_found_in_the_float_model(tmp_path):
    builder = small_float_model()
    builder.node("Relu", ["y"], "z")
    path = saved(builder.model(["z"]), tmp_path)

    def named(*names):
        quantization = Quantization.per_tensor(0.1, 0)
        tensors = {name: Tensor(name, (1, 4, 8, 8), "uint8", quantization) for name in names}
        return float_oracle(path, Graph("g", (), (), tensors, ())).names

    assert named("y_quantized") == {"y_quantized": "z"}
    assert named("y_quantized", "z_quantized") == {"y_quantized": "y", "z_quantized": "z"}
    assert named("other") == {}


def test_what_a_quantizelinear_reads_is_not_what_follows_it(tmp_path):
    builder = small_float_model()
    builder.node("Relu", ["y"], "z")
    real = saved(builder.model(["z"]), tmp_path)
    builder = small_qdq_model()
    builder.node("Relu", [builder.qdq("y", 0.1, np.uint8(128))], "z")
    path = saved(builder.model(["z"]), tmp_path, "q.onnx")
    tensor = Tensor("y_q", (1, 4, 8, 8), "uint8", Quantization.per_tensor(0.1, 128))
    assert float_oracle(real, Graph("g", (), (), {"y_q": tensor}, ()), path).names == {"y_q": "y"}


def test_without_onnxruntime_oracles_say_what_to_install(tmp_path, monkeypatch):
    path = saved(small_float_model().model(["y"]), tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(EnvironmentMissing, match="onnxruntime"):
        float_oracle(path, small_network())


# -- the page --------------------------------------------------------------------------------------------


def drawn(html):
    return json.loads(re.search(r'id="data">(.*?)</script>', html, re.DOTALL)[1])


def test_the_page_stands_alone_and_names_the_layer(monkeypatch, picture):
    broken(monkeypatch, {"conv": spoil})
    report = investigated(picture, real=Model(small_network(), real=True))
    html = page(report, "small.tow", labels=["a cat", "b", "c"], notes=["not compared: onnxruntime"])
    assert "first differs from its reference in conv" in html
    assert "not compared: onnxruntime" in html
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", html)
    assert "Content-Security-Policy" in html
    data = drawn(html)
    assert data["first_diverging"] == 1
    assert len(data["layers"]) == 4
    assert sum(data["layers"][1]["counts"]) == 32
    assert data["divergence"]["peak"][2][3] == 16
    assert html.count("<tr") == 5


def test_the_table_of_layers(monkeypatch, picture):
    report = investigated(picture)
    assert "own" not in columns(report.layers)
    assert "float dB" not in columns(report.layers)
    broken(monkeypatch, {"conv": spoil})
    network = compile(small_network(), NAME)
    with Session(network) as session:
        levels = session.quantize({"picture": picture})
        report = debug(network, session, [("a", levels)], real=Model(small_network(), real=True))
    table = columns(report.layers)
    assert table["own"][:3] == [None, 1, 0]
    assert table["by"][:3] == [None, 16, 16]
    assert table["first"][1].startswith("[0, 1, 2, 3]: ")
    rows = page(report, "small.tow").split("<tr ")[1:]
    assert '<td class="bad">1</td>' in rows[1]
    assert '<td class="follow">1</td>' in rows[2]
    assert "<td>exact</td>" in rows[0]


def test_names_cannot_break_the_page(monkeypatch, picture):
    broken(monkeypatch, {"conv": spoil})
    report = investigated(picture)
    evil = '</script><img src=x onerror="x">'
    report.layers[1].node = evil
    report.samples[0] = evil
    html = page(report, evil, labels=[evil] * 3)
    assert evil not in html
    assert html.count("</script>") == 2
    assert drawn(html)["layers"][1]["node"] == evil


def test_large_maps_are_shrunk_and_keep_their_peak():
    peak = np.zeros((2 * WIDEST + 1, 10), np.int32)
    peak[-1, 9] = 9
    small = _shrunk(peak)
    assert small.shape == (-(-len(peak) // 3), 10)
    assert small[-1, 9] == small.max() == 9


def test_the_document_is_plain_json(picture):
    report = investigated(picture, real=Model(small_network(), real=True), quantized=Model(small_network()))
    found = json.loads(json.dumps(document(report)))
    assert found["first_diverging"] is None
    assert [layer["op"] for layer in found["layers"]] == ["Quantize", "Conv", "Reshape", "Gemm"]
    assert found["layers"][1]["target"]["mismatches"] == 0
    assert found["layers"][1]["float"]["clipped"] == 0
    assert found["layers"][1]["onnxruntime"]["elements"] == 32
