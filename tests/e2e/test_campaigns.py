"""A slice of each campaign of tests/campaigns: no crash, hang, traceback or wrong answer; and their watch."""

import os
import time
from contextlib import contextmanager

import pytest

from sdk.errors import InvalidInput, ToolMissing
from tests.campaigns.campaign import BAD, Surface, run
from tests.campaigns.surfaces import SURFACES

SEED = 1


@contextmanager
def every_end(scratch):
    """A surface whose cases end in each way."""

    def case(rng):
        match rng.randrange(6):
            case 0:
                raise InvalidInput("refused")
            case 1:
                os.abort()
            case 2:
                time.sleep(60)
            case 3:
                raise KeyError("traceback")
            case 4:
                return "a wrong answer"
        return None

    yield case


@pytest.mark.slow
def test_each_end_of_a_case_is_seen_and_a_campaign_goes_on(tmp_path):
    surface, journal = Surface("ends", "", every_end, seconds=0.5), tmp_path / "journal.jsonl"
    *_, first = run(surface, range(12), SEED, journal)
    *_, whole = run(surface, range(25), SEED, journal)
    *_, again = run(surface, range(25), SEED)
    assert set(whole.counts) == {"taken", "refused", *BAD}
    assert whole.counts.total() == 25
    assert whole.found[: len(first.found)] == first.found
    assert [(number, verdict) for number, verdict, _ in whole.found] == [found[:2] for found in again.found]


@pytest.mark.slow
@pytest.mark.parametrize("name", SURFACES)
def test_a_slice_of_the_campaign(name):
    try:
        *_, tally = run(SURFACES[name], range(SURFACES[name].slice), SEED)
    except ToolMissing as problem:
        pytest.skip(str(problem))
    assert tally.found == []
    assert tally.counts.total() == SURFACES[name].slice
