"""`towline bench gemm`: the figures that are claimed, against the checked-in counts."""

import json
from pathlib import Path

import pytest

from tests.amount import amount
from towline.cli import main

BASELINE = Path(__file__).parents[2] / "bench" / "gemm.json"
pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("target", "microseconds", "share"),
    amount([("amd-gfx1100", 25, 0.7)], [("amd-gfx1100", 25, 0.7), ("amd-gfx1201", 19, 0.4)]),
)
def test_products_are_right_and_as_fast_as_claimed(capsys, target, microseconds, share):
    code = main(["bench", "gemm", "--target", target, "--baseline", str(BASELINE), "--json"])
    document = json.loads(capsys.readouterr().out)
    assert code == 0, document["error"]
    found = {one["name"]: one for one in document["result"]["sizes"]}
    assert all(one["outside"] == 0 for one in found.values())
    assert found["1024x1024x1024"]["virtual_us"] < microseconds
    assert found["1024x1024x1024"]["share_of_peak"] > share
