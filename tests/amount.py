"""How much a test tries: what shows every kind of fault, or with `--thorough` all places, seeds and chips.

@pytest.mark.parametrize("seed", range(amount(2, 12)))
"""

from __future__ import annotations

from typing import TypeVar

import pytest

T = TypeVar("T")

thorough = False
"""Whether pytest runs with `--thorough`: known before tests are collected."""


def amount(usual: T, campaign: T) -> T:
    """One of two numbers or collections: `campaign` with `--thorough`."""
    return campaign if thorough else usual


def thorough_only(instead: str) -> pytest.MarkDecorator:
    """Of a test that runs with `--thorough` alone: `instead` is what shows the same each time."""
    return pytest.mark.skipif(not thorough, reason=f"with --thorough; each time: {instead}")
