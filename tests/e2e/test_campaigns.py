"""A slice of each campaign of tests/campaigns: no crash, hang, traceback or wrong answer; and their watch."""

import tempfile

import pytest

from sdk.errors import ToolMissing
from tests.campaigns.campaign import BAD, run
from tests.campaigns.ends import ENDS
from tests.campaigns.surfaces import SURFACES

SEED = 1
CASES = 15
"""Of ENDS: as many as it takes for every end."""


@pytest.mark.slow
def test_each_end_of_a_case_is_seen_and_a_campaign_goes_on(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    journal = tmp_path / "journal.jsonl"
    *_, first = run(ENDS, range(CASES // 2), SEED, journal)
    *_, whole = run(ENDS, range(CASES), SEED, journal)
    *_, again = run(ENDS, range(CASES), SEED)
    assert set(whole.counts) == {"taken", "refused", *BAD}
    assert whole.counts.total() == CASES
    assert whole.found[: len(first.found)] == first.found
    assert [(number, verdict) for number, verdict, _ in whole.found] == [found[:2] for found in again.found]
    assert [*tmp_path.iterdir()] == [journal]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, surface in SURFACES.items() if surface.slice])
def test_a_slice_of_the_campaign(name):
    try:
        *_, tally = run(SURFACES[name], range(SURFACES[name].slice), SEED)
    except ToolMissing as problem:
        pytest.skip(str(problem))
    assert tally.found == []
    assert tally.counts.total() == SURFACES[name].slice
