"""The checked-in counts: no layer of a benchmark may get worse unnoticed."""

import json
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from sdk import toolchain
from sdk.errors import EnvironmentMissing
from sdk.target import Arithmetic
from sdk.zoo.benchmark import benchmark
from tests.amount import amount
from tests.contract.targets import SIBLINGS
from tests.opencl_substitute import require_opencl
from towline.cli import bench, main

LEFT_OUT = amount(("kernels.amd-gfx1201", "mobilenet_v2_0.35_96.hexagon-v65"), ())
"""For `--thorough`: a chip whose whole network is counted, and a network that is counted at full size."""
BASELINES = [
    path
    for path in sorted((Path(__file__).parents[2] / "bench").glob("*.*.json"))
    if not path.stem.endswith(SIBLINGS) and path.stem not in LEFT_OUT
]
"""NETWORK.TARGET.json or NETWORK.TARGET.ARITHMETIC.json, but for those of targets that share what is counted.

That of `towline bench usb` is tests/e2e/test_bench_usb.py's.
"""


def version(tool):
    return toolchain.tinymesa()[0] if tool == "tinymesa" else toolchain.version(tool)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Quantising MobileNetV2 takes as long as counting it."""
    folder = tmp_path_factory.mktemp("networks")
    return cache(lambda name: benchmark(name, folder))


@pytest.mark.slow
@pytest.mark.parametrize("path", BASELINES, ids=lambda path: path.stem)
def test_counts_are_no_worse_than_the_baseline(path, capsys, monkeypatch, written):
    monkeypatch.setattr(bench, "benchmark", lambda name, _: written(name))
    network, target = path.stem.rsplit(".", 1)
    named = []
    if target in get_args(Arithmetic):
        named = ["--arithmetic", target]
        network, target = network.rsplit(".", 1)
    if target.startswith("adreno"):
        require_opencl()
        try:
            toolchain.tinymesa()
        except EnvironmentMissing as missing:
            pytest.skip(missing.message)
    made_by = json.loads(path.read_text())["toolchain"] or {}
    here = {tool: version(tool) for tool in made_by}
    if here != made_by:
        pytest.skip(f"the baseline was compiled by {made_by}, this machine has {here}")
    code = main(["bench", network, "--target", target, *named, "--baseline", str(path), "--json"])
    assert code == 0, capsys.readouterr().out


def test_baselines_exist():
    assert BASELINES
