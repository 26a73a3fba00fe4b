"""How ranges are chosen: exact counts, any order, held out by folds; and a search that continues."""

import json
import re
from concurrent.futures import Executor

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from sdk import tuner
from sdk.errors import UsageError
from sdk.quantizer import quantize, read_quantization
from sdk.quantizer.choose import Score, choose, deal
from sdk.quantizer.histograms import Histogram, merged
from sdk.quantizer.layout import Layout
from sdk.quantizer.ranges import mean_square, minmax, percentile
from tests.quantizer_models import rare_outliers, samples
from towline.cli import main


@pytest.fixture
def network(tmp_path, monkeypatch):
    monkeypatch.setenv("TOWLINE_CACHE", str(tmp_path / "cache"))
    return rare_outliers(tmp_path / "float.onnx")


def scales(path):
    """Scale and zero-point of each quantised activation."""
    model = onnx.load(path)
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    return {
        node.input[0].removesuffix("_QuantizeLinear_Input"): tuple(
            values[name].item() for name in node.input[1:]
        )
        for node in model.graph.node
        if node.op_type == "QuantizeLinear"
    }


def sqnr(network, path, inputs):
    """Of each sample, in dB."""
    results = []
    for file in (network, path):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        results.append([session.run(None, {"x": x[None]})[0].astype(float) for x in inputs])
    return [10 * np.log10((a**2).sum() / ((a - b) ** 2).sum()) for a, b in zip(*results, strict=True)]


# --- histograms and candidates ------------------------------------------------------------------------


def test_counts_add_up_in_any_order():
    arrays = [samples(3, (50,), seed=seed) * 10**seed for seed in range(4)]
    whole = Histogram.of(np.concatenate([a.ravel() for a in arrays]))
    for order in (arrays, arrays[::-1]):
        parts = merged([Histogram.of(array) for array in order])
        assert parts.buckets.tolist() == whole.buckets.tolist()
        assert parts.counts.tolist() == whole.counts.tolist()
        assert (parts.low, parts.high) == (whole.low, whole.high)


def test_values_of_a_histogram_are_those_of_the_array():
    array = np.concatenate([samples(1, (4000,))[0], np.zeros(7, np.float32), [-0.0, 1e-40]]).astype(
        np.float32
    )
    values, counts = Histogram.of(array).sorted()
    again = np.repeat(values, counts)
    np.testing.assert_allclose(again, np.sort(array), rtol=1 / 256, atol=1e-38)


@pytest.mark.parametrize("percent", [99, 99.9, 99.99])
def test_percentiles_are_exact_to_a_bucket(percent):
    array = samples(1, (100_000,))[0]
    low, high = percentile(Histogram.of(array), percent)
    np.testing.assert_allclose([low, high], np.percentile(array, [100 - percent, percent]), rtol=0.02)


def test_the_least_error_is_not_at_the_extremes_nor_far_from_the_best():
    array = np.concatenate([samples(1, (50_000,))[0], [40, -25]]).astype(np.float32)

    def error(low, high):
        step = (high - low) / 255
        return float(((np.clip(np.rint(array / step) * step, low, high) - array) ** 2).mean())

    histogram = Histogram.of(array)
    found = error(*mean_square(histogram))
    assert found < 0.9 * error(*minmax(histogram))
    assert found < 1.05 * min(error(-25 * a, 40 * a) for a in np.linspace(0.2, 1, 81))


def test_what_is_constant_has_a_range_that_holds_zero():
    for value in (0.0, 3.0, -2.0):
        histogram = Histogram.of(np.full(10, value, np.float32))
        for find in (minmax, mean_square, lambda h: percentile(h, 99.9)):
            low, high = find(histogram)
            assert low <= 0 <= high
            assert low <= value <= high


# --- the choice ---------------------------------------------------------------------------------------


class AtOnce(Executor):
    """Runs at once."""

    def submit(self, function, *arguments):
        from concurrent.futures import Future

        future = Future()
        future.set_result(function(*arguments))
        return future


class FakeTrial:
    """A trial that reports the ranges it was given, with an error of its own making."""

    made_by = tuner.version()

    def __init__(self, error):
        self.seen, self.error = [], error

    def shared(self, pool):
        return self

    def errors(self, ranges, which, limit=np.inf):
        self.seen.append((dict(ranges), list(which)))
        return [self.error(ranges, index) for index in which]


def layout(groups, ends=(), inputs=()):
    members = {name: (name,) for name in groups}
    return Layout(members, members, frozenset(ends), frozenset(inputs), {}, {})


def chosen(trial, folds, highs, names=("minmax",), groups=("t",), **places):
    collected = [{name: Histogram.of(np.array([0, high], np.float32)) for name in groups} for high in highs]
    return choose(names, trial, layout(groups, **places), folds, collected, AtOnce(), lambda *_: None)


def test_a_fold_is_scored_with_ranges_of_the_others():
    trial = FakeTrial(lambda ranges, index: 0.01)
    choice = chosen(trial, [[0, 3], [1], [2]], [10, 30, 20])
    assert [(ranges["t"][1], which) for ranges, which in trial.seen] == [(30, [0, 3]), (20, [1]), (30, [2])]
    assert choice.ranges == {"t": (0, 30)}
    assert (choice.folds, len(choice.errors)) == (3, 4)


def test_minmax_wins_unless_another_is_clearly_better():
    def trial(gain):
        return FakeTrial(lambda ranges, index: 0.01 if ranges["t"][1] == 30 else 0.01 * gain)

    folds, highs = [[0], [1], [2]], [30, 30, 30]
    for gain, name in ((0.9, "minmax"), (0.5, "other")):
        from sdk.quantizer import choose as module

        candidates = {"minmax": minmax, "other": lambda histogram: (0.0, 7.0)}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "CANDIDATES", candidates)
            assert chosen(trial(gain), folds, highs, tuple(candidates)).name == name


def test_ends_and_inputs_keep_all_that_occurred():
    trial = FakeTrial(lambda ranges, index: 0.01)
    collected = [1000 * [0.0] + [float(high)] for high in (50, 60)]
    collected = [{name: Histogram.of(np.array(values, np.float32)) for name in "abc"} for values in collected]
    choice = choose(
        ("percentile 99.9",), trial, layout("abc", ends="c", inputs="a"), [[0], [1]], collected,
        AtOnce(), lambda *_: None,
    )  # fmt: skip
    assert choice.ranges["a"] == choice.ranges["c"] == (0, 60)
    assert choice.ranges["b"][1] < 60


def test_equal_samples_come_into_one_fold():
    feeds = [{"x": np.float32([value])} for value in (1, 2, 1, 3, 1, 2)]
    folds = deal(feeds, [(index,) for index in range(6)])
    assert sorted(map(sorted, folds)) == [[0, 2, 4], [1, 5], [3]]


@pytest.mark.slow
def test_any_order_of_samples_gives_the_same_file(network, tmp_path):
    data = samples(9)
    for name, order in (("a", data), ("b", data[::-1]), ("c", data[[4, 0, 8, 2, 6, 1, 5, 7, 3]])):
        quantize(network, order, tmp_path / name)
    assert len({(tmp_path / name).read_bytes() for name in "abc"}) == 1


@pytest.mark.slow
def test_the_default_is_better_on_other_inputs_and_says_how_much(network, tmp_path):
    others = samples(20, seed=7)
    plain = quantize(network, samples(12), tmp_path / "minmax.onnx", method="minmax")
    report = quantize(network, samples(12), tmp_path / "auto.onnx")
    assert plain.ranges == "minmax" != report.ranges
    before, after = (np.mean(sqnr(network, tmp_path / f"{name}.onnx", others)) for name in ("minmax", "auto"))
    assert after > before + 3
    assert abs(report.held_out.mean - after) < 2  # an honest estimate
    assert report.folds == 5
    assert report.scored == 12
    how = read_quantization(tmp_path / "auto.onnx")
    assert how["ranges"] == report.ranges
    assert how["samples"] == 12
    assert read_quantization(network) is None


@pytest.mark.slow
def test_logits_are_not_cut(network, tmp_path):
    data = samples(12)
    quantize(network, data, tmp_path / "q.onnx")
    scale, zero = scales(tmp_path / "q.onnx")["logits"]
    session = onnxruntime.InferenceSession(str(network), providers=["CPUExecutionProvider"])
    logits = np.concatenate([session.run(None, {"x": x[None]})[0] for x in data])
    assert (0 - zero) * scale <= logits.min() + scale
    assert (255 - zero) * scale >= logits.max() - scale


@pytest.mark.slow
def test_scores_of_trials_are_those_of_the_written_file(network, tmp_path):
    data = samples(12)
    report = quantize(network, data, tmp_path / "q.onnx")
    each = sqnr(network, tmp_path / "q.onnx", data)
    assert report.calibration.mean == pytest.approx(np.mean(each), abs=0.3)
    assert report.candidates[report.ranges].mean == pytest.approx(np.mean(each), abs=3)


@pytest.mark.slow
def test_few_samples_are_warned_about_and_one_keeps_minmax(network, tmp_path, capsys):
    for count, folds in ((1, 0), (3, 3), (8, 5)):
        np.save(tmp_path / "in.npy", samples(count))
        command = ["quantize", str(network), "--calibrate", str(tmp_path / "in.npy")]
        assert main([*command, "-o", str(tmp_path / "q.onnx"), "--json"]) == 0
        out, err = capsys.readouterr()
        result = json.loads(out)["result"]
        assert result["folds"] == folds
        assert bool(result["warnings"]) == (count < 8)
        assert err.count("warning") == len(result["warnings"])
        if count == 1:
            assert result["ranges"] == "minmax"
            assert result["held_out"] is None


def test_entropy_is_refused_with_a_word(network, tmp_path, capsys):
    with pytest.raises(UsageError, match="order"):
        quantize(network, samples(4), tmp_path / "q.onnx", method="entropy")
    assert main(["quantize", str(network), "--calibrate", "x", "-o", "q.onnx", "--method", "entropy"]) == 2
    assert "order" in capsys.readouterr().err


# --- the search ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_search_gains_on_inputs_that_it_has_not_seen(network, tmp_path):
    others = samples(20, seed=7)
    report = quantize(network, samples(24), tmp_path / "q.onnx")
    plain = np.mean(sqnr(network, tmp_path / "q.onnx", others))
    searched = quantize(network, samples(24), tmp_path / "q.onnx", search=True)
    assert searched.search.rounds >= 1
    assert searched.search.held_out.mean > searched.search.before.mean
    assert searched.held_out == searched.search.held_out != report.held_out
    assert np.mean(sqnr(network, tmp_path / "q.onnx", others)) > plain + 0.5


@pytest.mark.slow
def test_a_search_continues_and_ends_the_same_whatever_the_pool(network, tmp_path, monkeypatch):
    data = samples(8)

    def interrupt(stage, done, steps):
        if stage == "search ranges" and done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quantize(network, data, tmp_path / "a.onnx", search=True, progress=interrupt)
    assert not (tmp_path / "a.onnx").exists()
    continued = quantize(network, data, tmp_path / "a.onnx", search=True)
    repeated = quantize(network, data[::-1], tmp_path / "b.onnx", search=True)
    assert 0 < continued.search.known < continued.search.tried
    assert repeated.search.known == repeated.search.tried == continued.search.tried
    monkeypatch.setenv("TOWLINE_CACHE", str(tmp_path / "other"))
    with tuner.local(1) as pool:
        fresh = quantize(network, data, tmp_path / "c.onnx", search=True, pool=pool)
    assert fresh.search.known == 0
    assert len({(tmp_path / f"{name}.onnx").read_bytes() for name in "abc"}) == 1


@pytest.mark.slow
def test_a_damaged_state_of_a_search_is_begun_again(network, tmp_path):
    quantize(network, samples(6), tmp_path / "a.onnx", search=True)
    (state,) = (tmp_path / "cache" / "searches").iterdir()
    for content in (b"", b'{"position": 3}'):
        state.write_bytes(content)
        assert quantize(network, samples(6), tmp_path / "b.onnx", search=True).search.known == 0
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


def test_a_search_needs_something_to_hold_out(network, tmp_path):
    with pytest.raises(UsageError, match="held out"):
        quantize(network, np.repeat(samples(1), 4, axis=0), tmp_path / "q.onnx", search=True)


@pytest.mark.slow
def test_a_search_on_a_scheduler_finds_the_same(network, tmp_path, capsys, monkeypatch):
    distributed = pytest.importorskip("distributed")
    np.save(tmp_path / "in.npy", samples(8))
    command = ["quantize", str(network), "--calibrate", str(tmp_path / "in.npy"), "--search"]
    assert main([*command, "-o", str(tmp_path / "a.onnx")]) == 0
    monkeypatch.setenv("TOWLINE_CACHE", str(tmp_path / "other"))
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        address = cluster.scheduler_address
        assert main([*command, "-o", str(tmp_path / "b.onnx"), "--scheduler", address]) == 0
        monkeypatch.setattr(tuner, "version", lambda: "9.9.9")
        assert main([*command, "-o", str(tmp_path / "c.onnx"), "--scheduler", address]) == 3
    assert re.search("not 9.9.9", capsys.readouterr().err)
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    assert not (tmp_path / "c.onnx").exists()


def test_a_score_is_of_each_sample_by_itself():
    assert Score.of([0.01, 0.1]) == Score(15.0, 10.0)
