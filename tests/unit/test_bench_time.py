"""`towline bench`: an estimate of time, beside a phone's measured times."""

import argparse
import json
from types import SimpleNamespace

import pytest

from sdk.errors import InvalidInput, UsageError
from sdk.estimate import Cache, Estimate, LayerEstimate
from towline.cli import bench_time, main
from towline.cli.bench import configure
from towline.phone.job import network_digest

NETWORK = SimpleNamespace(program=SimpleNamespace(code={"network.so": b"code"}, weights=[b"weights"]))
CAUSE = "v = valign(v,v,#) > v.w += vrmpy(v.ub,r.b)"
ESTIMATE = Estimate(
    [
        LayerEstimate(
            "stem",
            {"cycles": 900, "stalls": 100, "ddr_bytes": 256},
            {"ms_one_context": 1.5, "ms_two_contexts": 0.8},
            CAUSE,
        ),
        LayerEstimate(
            "pool",
            {"cycles": 50, "stalls": 0, "ddr_bytes": 0},
            {"ms_one_context": 0.5, "ms_two_contexts": 0.2},
        ),
    ],
    {"cycles": 950, "stalls": 100, "ddr_bytes": 256},
    {"ms_one_context": 2.0, "ms_two_contexts": 1.0},
    ["modelled"],
)


def times(tmp_path, **changes):
    document = {
        "schema": 1,
        "device": "phone",
        "target": "hexagon-v65",
        "network": network_digest(NETWORK.program),
        "runs_us": [5000, 3000, 4000],
        "layers": [{"name": "stem", "us": 2500.0}],
    }
    path = tmp_path / "times.json"
    path.write_text(json.dumps(document | changes))
    return str(path)


def options(*words):
    parser = argparse.ArgumentParser()
    configure(parser)
    return parser.parse_args(["net.tow", *words])


def bench():
    document = {"total": {"packets": 850}, "layers": [{"name": "stem"}, {"name": "pool"}]}
    bench_time.add(document, ESTIMATE)
    return document


def test_an_estimate_joins_the_document_and_its_counts_are_whole():
    document = bench()
    assert document["total"] == {"packets": 850, "cycles": 950, "stalls": 100, "ddr_bytes": 256}
    assert document["estimate"] == {
        "ms_one_context": 2.0,
        "ms_two_contexts": 1.0,
        "assumptions": ["modelled"],
    }
    assert document["layers"][0]["stalls_mostly"] == CAUSE


def test_measured_stands_beside_modelled(tmp_path):
    document = bench()
    bench_time.beside(document, ESTIMATE, bench_time.read_times(times(tmp_path), NETWORK))
    assert document["measured"] == {"device": "phone", "contexts": 1, "ms": 4.0}
    assert [layer.get("measured_ms") for layer in document["layers"]] == [2.5, None]
    shown = bench_time.text(document, ESTIMATE)
    assert "4.00 ms on phone" in shown
    assert "2.00" in shown.splitlines()[-3]  # twice the estimate


def test_what_two_contexts_measured_stands_beside_their_estimate(tmp_path):
    document = bench()
    changes = {"contexts": [2, 1, 2], "device_us": [1500, 900, 500]}
    found = bench_time.read_times(times(tmp_path, **changes), NETWORK)
    bench_time.beside(document, ESTIMATE, found)
    assert document["measured"] == {"device": "phone", "contexts": 2, "ms": 4.5, "device_ms": 1.0}
    rows = bench_time.text(document, ESTIMATE).splitlines()
    assert "ms, 2 contexts" in rows[0]
    stem, total = (next(row.split() for row in rows if row.startswith(name)) for name in ("stem", "total"))
    assert stem[-2:] == ["0.80", "2.50"]
    assert total[-2:] == ["1.00", "1.00"]
    assert rows[-3] == "measured: 4.50 ms on phone, 1.00 ms by the DSP's clock, 1.00 of two contexts'"


def test_times_without_layers_are_of_whole_inferences(tmp_path):
    document = bench()
    bench_time.beside(document, ESTIMATE, bench_time.read_times(times(tmp_path, layers=[]), NETWORK))
    assert document["measured"]["ms"] == 4.0


@pytest.mark.parametrize(
    "changes",
    [
        {"schema": 2}, {"runs_us": []}, {"runs_us": ["1"]}, {"runs_us": [-1]}, {"runs_us": [float("nan")]},
        {"runs_us": [True]}, {"layers": {}}, {"layers": [{"name": "stem"}]}, {"layers": [[]]},
        {"contexts": [2]}, {"contexts": [2, 2, 3]}, {"contexts": [2, 2, True]}, {"contexts": 2},
        {"device_us": [1.0]}, {"device_us": [1, 2, None]},
        {"runs_us": [10**400]}, {"runs_us": [1e308]}, {"layers": [{"name": "stem", "us": 10**400}]},
    ],
)  # fmt: skip
def test_damaged_times_are_refused(tmp_path, changes):
    with pytest.raises(InvalidInput):
        bench_time.read_times(times(tmp_path, **changes), NETWORK)


def test_what_is_no_json_is_refused(tmp_path):
    path = tmp_path / "times.json"
    path.write_text("{")
    with pytest.raises(InvalidInput):
        bench_time.read_times(str(path), NETWORK)
    with pytest.raises(UsageError):
        bench_time.read_times(str(tmp_path / "none.json"), NETWORK)


def test_times_of_another_network_are_refused(tmp_path):
    with pytest.raises(UsageError):
        bench_time.read_times(times(tmp_path, network="00"), NETWORK)


@pytest.mark.parametrize(
    ("words", "nbytes"), [([], 1 << 20), (["--l2", "512K"], 1 << 19), (["--l2", "2m"], 2 << 20)]
)
def test_the_l2_of_the_options(words, nbytes):
    assert bench_time.cache(options(*words)) == Cache(nbytes)
    assert bench_time.cache(options(*words, "--warm")).warm


@pytest.mark.parametrize("size", ["", "1", "x", "-1M", "1G", "1.5M"])
def test_an_l2_that_is_no_size_is_refused(size):
    with pytest.raises(UsageError):
        bench_time.cache(options(f"--l2={size}"))


def test_options_of_an_estimate_without_one_are_refused():
    bench_time.refuse(options())
    for words in (["--warm"], ["--l2", "1M"], ["--from", "times.json"]):
        with pytest.raises(UsageError):
            bench_time.refuse(options(*words))
        bench_time.refuse(options(*words), counted=True)
    with pytest.raises(UsageError):
        bench_time.refuse(options("--warm", "--baseline", "b.json"), counted=True)


@pytest.mark.parametrize("subject", ["c", "mcs51", "zoo", "zoo_0.35_96"])
def test_what_is_no_network_on_a_dsp_is_not_estimated(subject):
    assert main(["bench", subject, "--l2", "512K"]) == 2
