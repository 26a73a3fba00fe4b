"""The generated tables of docs/operators.md: nothing is left out, and models are counted as they are."""

from sdk.importers.operators import OPERATORS
from sdk.importers.plain.table import HANDLERS
from tests import operator_tables, refused_models
from tests.onnx_models import OnnxBuilder, saved, small_float_model


def test_every_operator_has_one_row():
    rows = operator_tables.side_by_side()
    onnx = [row[0] for row in rows if row[0]]
    assert set(onnx) == {f"{domain}.{name}" if domain else name for domain, name in (*OPERATORS, *HANDLERS)}
    tflite = [name for row in rows for name in row[1].split(", ") if name]
    assert sorted(tflite) == sorted(operator_tables.TFLITE)
    assert len(onnx) == len(set(onnx))


def test_names_stand_beside_their_counterparts():
    rows = {row[0]: row[1].split(", ") for row in operator_tables.side_by_side()}
    assert {"CONV_2D", "DEPTHWISE_CONV_2D"} <= set(rows["Conv"])
    assert rows["Sigmoid"] == ["LOGISTIC"]
    assert rows["Softmax"] == ["SOFTMAX"]


def test_models_are_counted_once_for_each_reason(tmp_path):
    b = OnnxBuilder(17)
    x = b.input("x", [1, 4])
    for number in range(3):
        b.node("NonZero", [x], f"y{number}")
    paths = [
        saved(b.model({f"y{n}": "int64" for n in range(3)}), tmp_path, "a.onnx"),
        saved(b.model({"y0": "int64"}), tmp_path, "b.onnx"),
        saved(small_float_model().model(["y"]), tmp_path, "c.onnx"),
    ]
    (tmp_path / "d.onnx").write_bytes(b"no model")
    found = refused_models.count(("here", path) for path in [*paths, tmp_path / "d.onnx"])
    assert (found["here"].files, found["here"].refused) == (4, 3)
    assert {op: count for (op, _), count in found["here"].why.items() if op} == {"NonZero": 2}
    assert found["here"].why.total() == 3
    assert "| here | 4 | 3 |" in refused_models.section(found)
