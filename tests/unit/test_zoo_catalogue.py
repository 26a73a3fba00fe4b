"""Names of the zoo, `towline zoo`, and its quantised networks."""

import itertools
import json
from pathlib import Path

import onnx
import pytest

from sdk.errors import UsageError
from sdk.importers import is_quantized
from sdk.zoo.benchmark import write_quantized
from sdk.zoo.catalogue import find, names
from tests.amount import amount
from towline.cli import main, zoo

FEW = ("decoder", "driving_50m", "driving_large", "keyword_spotter", "mobilenet_v2")

QUANTIZED = {
    "depth": "0.5_32",
    "detector_one_stage": "0.5_64",
    "keyword_spotter": "0.25_1000",
    "segmentation": "0.25_64",
    "vision_transformer": "0.25_32",
}


def call(capsys, *args):
    code = main([*map(str, args), "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("mobilenet_v2", ("mobilenet_v2", 1.0, 224, "int8")),
        ("mobilenet_v2_0.35_96", ("mobilenet_v2", 0.35, 96, "int8")),
        ("mobilenet_v2_0.35_96_float", ("mobilenet_v2", 0.35, 96, "float")),
        ("detector_0.5", ("detector", 0.5, 224, "int8")),
        ("detector_one_stage", ("detector_one_stage", 1.0, 320, "float")),
        ("detector_one_stage_0.5_64_int8", ("detector_one_stage", 0.5, 64, "int8")),
        ("driving", ("driving", 1.75, 0, "float")),
        ("driving_small", ("driving", 1.0, 0, "float")),
        ("driving_50m_float", ("driving", 1.75, 0, "float")),
        ("driving_2.5", ("driving", 2.5, 0, "float")),
    ],
)
def test_names(name, parts):
    found = find(name)
    assert (found.network, found.width, found.size, found.precision) == parts


@pytest.mark.parametrize("name", ["mobilenet_v9", "driving_tiny", "detector_one_stage_320", "net.onnx", ""])
def test_what_is_no_name(name):
    assert find(name) is None


@pytest.mark.parametrize("name", ["driving_1.0_224", "driving_int8", "decoder_1.0_8_int8"])
def test_names_of_what_does_not_exist(name):
    with pytest.raises(UsageError):
        find(name)


def documented():
    """The table of the documentation."""
    lines = (Path(__file__).parents[2] / "docs" / "zoo.md").read_text(encoding="utf-8").splitlines()
    first = lines.index("| network | M MACs | M parameters | precision | states |") + 2
    rows = itertools.takewhile(lambda line: line.startswith("|"), lines[first:])
    return [tuple(cell.strip() for cell in row.strip("|").split("|")) for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("few", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_the_list(capsys, monkeypatch, few):
    listed = FEW if few else names()
    monkeypatch.setattr(zoo, "names", lambda: listed)
    code, document = call(capsys, "zoo")
    assert code == 0
    rows = {row["name"]: row for row in document["result"]["networks"]}
    assert tuple(rows) == tuple(listed)
    assert rows["driving_50m"]["precision"] == "float16"
    assert rows["driving_large"]["bytes"] == pytest.approx(1.76e9, rel=0.01)
    assert rows["decoder"]["states"] == [
        {"output": "next_k", "input": "k"},
        {"output": "next_v", "input": "v"},
    ]
    assert rows["mobilenet_v2"]["macs"] / 1e6 == pytest.approx(300.8, rel=0.001)
    assert rows["keyword_spotter"]["quantizable"]
    assert not rows["decoder"]["quantizable"]
    if not few:
        assert documented() == [
            (
                row["name"],
                f"{row['macs'] / 1e6:.1f}",
                f"{row['parameters'] / 1e6:.2f}",
                row["precision"] + ", int8" * row["quantizable"],
                ", ".join(state["input"] for state in row["states"]),
            )
            for row in rows.values()
        ]


def test_one_is_written(capsys, tmp_path):
    output = tmp_path / "net.onnx"
    code, document = call(capsys, "zoo", "keyword_spotter_0.25_1000", "-o", output)
    assert code == 0
    assert document["result"]["sqnr_db"] is None
    model = onnx.load(output)
    assert [value.name for value in model.graph.input] == ["audio"]
    assert not is_quantized(model)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name if name == "depth" else pytest.param(name, marks=pytest.mark.slow) for name in QUANTIZED]
)
def test_one_is_quantised(capsys, tmp_path, name):
    output = tmp_path / "net.onnx"
    code, document = call(capsys, "zoo", f"{name}_{QUANTIZED[name]}", "--quantize", "-o", output)
    assert code == 0
    assert min(document["result"]["sqnr_db"].values()) > 15
    assert is_quantized(onnx.load(output))


@pytest.mark.slow
@pytest.mark.parametrize("name", amount(("depth",), tuple(QUANTIZED)))
def test_quantised_at_size(tmp_path, name):
    found = find("keyword_spotter_1.0_4000" if name == "keyword_spotter" else name)  # 31 of its 125 steps
    report = write_quantized(found, tmp_path / "net.onnx")
    for output in report.outputs:
        print(f"{name} {output.name}: {output.sqnr_db:.1f} dB")
        assert output.sqnr_db > 15


@pytest.mark.parametrize(
    "arguments",
    [
        ("-o", "net.onnx"),
        ("--quantize",),
        ("nothing",),
        ("driving_small", "--quantize", "-o", "net.onnx"),
        ("decoder", "-o", "net.tow"),
        ("decoder", "-o", "missing/net.onnx"),
        ("decoder_9.0_8", "-o", "net.onnx"),
        ("depth_1.0_40",),
    ],
)
def test_wrong_use(capsys, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    code, document = call(capsys, "zoo", *arguments)
    assert code in (1, 2)
    assert document["error"]["code"] in ("usage", "output-failed")
    assert not list(tmp_path.iterdir())
