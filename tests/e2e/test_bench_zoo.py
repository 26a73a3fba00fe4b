"""`towline bench zoo`: every network on every target."""

import json

import pytest

from sdk.errors import EnvironmentMissing
from sdk.targets import target_names
from sdk.zoo.catalogue import find
from tests.amount import amount
from tests.contract.targets import COMPILED, SIBLINGS
from tests.shader_gpu import register
from towline.cli import bench_zoo, main


def call(capsys, *args):
    code = main([*map(str, args), "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """One of the networks; tests/e2e/test_networks.py has all of them on every target."""
    few = ("detector",)
    monkeypatch.setattr(bench_zoo, "names", lambda: few)
    return few


@pytest.mark.slow
def test_every_network_on_every_target_is_right(capsys, few, monkeypatch):
    targets = [name for name in target_names() if name not in SIBLINGS + amount(COMPILED, ())]
    monkeypatch.setattr(bench_zoo, "target_names", lambda: targets)
    code, document = call(capsys, "bench", "zoo_0.25_32")
    assert code == 0
    rows = document["result"]["networks"]
    assert [(row["network"], row["target"]) for row in rows] == [
        (network, target) for network in few for target in targets
    ]
    for row in rows:
        assert row["mismatches"] == 0
        assert row["elements"] > 1000
        assert row["count"] > 0
        assert row["bytes"] > 10_000


@pytest.mark.slow
def test_a_wrong_layer_is_a_failure(capsys, monkeypatch):
    from sdk import reference

    evaluate = reference.evaluate

    def off_by_one(graph, node, values, arithmetic):
        value = evaluate(graph, node, values, arithmetic)
        return value ^ 1 if node.op == "Conv" and value.dtype.kind in "iu" else value

    monkeypatch.setattr(reference, "evaluate", off_by_one)
    code, document = call(capsys, "bench", "zoo_0.25_32", "--target", "c")
    assert code == 1
    assert "detector on c" in document["error"]["message"]
    assert "towline debug" in document["error"]["hint"]
    assert all(row["mismatches"] for row in document["result"]["networks"])


def test_a_target_without_its_tools_is_skipped_unless_it_is_the_only_one(capsys, monkeypatch, tmp_path):
    def measured(network, model, target, *_):
        if target == "adreno-a6xx":
            raise EnvironmentMissing("there is no OpenCL platform", hint="install one")
        figures = ("mismatches", "elements", "outside", "float_elements", "count", "bytes", "compile_seconds")
        names = {"network": network.network, "precision": "int8", "target": target, "refused": None}
        return dict.fromkeys(figures, 0) | names | {"counter": "bytes"}

    monkeypatch.setattr(bench_zoo, "_measured", measured)
    monkeypatch.setattr(bench_zoo, "_written", lambda name, path: None)
    assert main(["bench", "zoo", "--json"]) == 0
    said = capsys.readouterr()
    rows = json.loads(said.out)["result"]["networks"]
    assert {row["target"] for row in rows} == {*target_names()} - {"adreno-a6xx"}
    assert said.err.count("adreno-a6xx is skipped: there is no OpenCL platform; install one") == 1
    code, document = call(capsys, "bench", "zoo", "--target", "adreno-a6xx")
    assert (code, document["error"]["hint"]) == (3, "install one")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("zoo", "--baseline", "b.json"), "--baseline"),
        (("zoo", "--target", "vax"), "vax"),
        pytest.param(("zoo_1.0_7", "--target", "c"), "7", marks=pytest.mark.slow),
        (("zoo_1", "--target", "c"), "zoo_1"),
    ],
)
def test_wrong_use(capsys, options, complaint):
    code, document = call(capsys, "bench", *options)
    assert code == 2
    assert complaint in document["error"]["message"] + str(document["error"])


@pytest.mark.slow
def test_float_networks_are_checked_or_refused(capsys, monkeypatch):
    chosen = [find("decoder_0.25_8"), find("depth_0.5_32"), find("depth_0.5_32_int8")]
    monkeypatch.setattr(bench_zoo, "_names", lambda shape: chosen)
    code, document = call(capsys, "bench", "zoo", "--target", "c")
    assert code == 0
    decoder, depth, quantized = document["result"]["networks"]
    for row in (decoder, depth, quantized):
        assert (row["mismatches"], row["outside"], row["refused"]) == (0, 0, None)
    assert (decoder["elements"], decoder["sqnr_db"]) == (0, None)
    assert decoder["float_elements"] > 1000
    assert quantized["elements"] > quantized["float_elements"] > 0
    assert quantized["sqnr_db"] > 15
    code, document = call(capsys, "bench", "zoo", "--target", "hexagon-v65")
    assert code == 0
    assert all(row["refused"] for row in document["result"]["networks"][:2])


@pytest.mark.slow
def test_float_and_mixed_networks_on_a_card(capsys, monkeypatch, tmp_path):
    register(monkeypatch, tmp_path / "targets")
    chosen = [find("keyword_spotter_0.25_1000"), find("depth_0.5_32_int8")]
    monkeypatch.setattr(bench_zoo, "_names", lambda shape: chosen)
    code, document = call(capsys, "bench", "zoo", "--target", "amd-gfx1201")
    assert code == 0
    spotter, depth = document["result"]["networks"]
    for row in (spotter, depth):
        assert (row["mismatches"], row["outside"], row["refused"]) == (0, 0, None)
        assert row["counter"] == "wave_instructions"
        assert row["count"] > 1000
    assert (spotter["elements"], spotter["sqnr_db"]) == (0, None)
    assert depth["elements"] > depth["float_elements"] > 0
    assert depth["sqnr_db"] > 15
