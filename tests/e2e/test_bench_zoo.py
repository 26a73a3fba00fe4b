"""`towline bench zoo`: every network on every target."""

import json

import pytest

from sdk.errors import EnvironmentMissing
from sdk.target import target_names
from sdk.zoo import NETWORKS
from towline.cli import bench_zoo, main


def call(capsys, *args):
    code = main([*map(str, args), "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """One of the networks; tests/e2e/test_networks.py has all of them on every target."""
    few = {name: NETWORKS[name] for name in ("detector",)}
    monkeypatch.setattr(bench_zoo, "NETWORKS", few)
    return few


@pytest.mark.slow
def test_every_network_on_every_target_is_right(capsys, few):
    code, document = call(capsys, "bench", "zoo_0.25_32")
    assert code == 0
    rows = document["result"]["networks"]
    assert [(row["network"], row["target"]) for row in rows] == [
        (network, target) for network in few for target in target_names()
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
        row = dict.fromkeys(("mismatches", "elements", "count", "bytes", "compile_seconds"), 0)
        return row | {"network": network, "target": target, "counter": "bytes"}

    monkeypatch.setattr(bench_zoo, "_measured", measured)
    monkeypatch.setattr(bench_zoo, "quantized_benchmark", lambda name, directory: tmp_path)
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
