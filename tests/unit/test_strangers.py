"""The program that takes a folder of ONNX files through the importer, c and onnxruntime."""

import json

import numpy as np
import onnx

from tests import strangers
from tests.unit.test_importers_strangers import DETECTOR, parsed


def test_files_are_accepted_or_refused_with_a_reason(tmp_path):
    accepted = parsed("g (float[n, 3, h, w] x, int64[2] k) => (float y, int64 l) { y = Sin(x) l = Neg(k) }")
    for name, model in {"accepted": accepted, "cut": parsed(DETECTOR), "refused": parsed(DETECTOR)}.items():
        onnx.save(model, tmp_path / f"{name}.onnx")
    known = {
        "accepted.onnx": {"shapes": {"x": [1, 3, 4, 5]}, "ranges": {"k": [7, 8]}},
        "cut.onnx": {"outputs": ["sure"]},
    }
    (tmp_path / "strangers.json").write_text(json.dumps(known))
    found = {
        path.stem: strangers.measure(path, strangers.known_of(tmp_path).get(path.name, {}))
        for path in tmp_path.glob("*.onnx")
    }
    assert {name: one.verdict for name, one in found.items()} == {
        "accepted": "accepted",
        "cut": "accepted",
        "refused": "refused",
    }
    assert found["accepted"].shapes == {"x": [1, 3, 4, 5], "k": [2]}
    assert (found["accepted"].elements, found["accepted"].outside) == (62, 0)
    assert [op for op, _ in found["refused"].refusals] == ["NonMaxSuppression"]
    assert "NonMaxSuppression" in strangers.report(list(found.values()))


def test_results_away_from_onnxruntime_are_noticed():
    exact = np.array([1.0, -2.0, np.nan], np.float32)
    for ours, others, verdict in (
        (exact, [exact], "accepted"),
        (exact + np.float32(1e-3), [exact], "differs"),
        (exact + np.float32(1e-3), [exact + np.float32(1e-3)], "accepted"),  # it differs as much from itself
        (np.nan_to_num(exact), [exact], "differs"),
        (exact[:2], [exact], "wrong"),
    ):
        one = strangers.Stranger("a.onnx", verdict="accepted")
        strangers.compare(one, "y", ours, exact, others)
        assert one.verdict == verdict
