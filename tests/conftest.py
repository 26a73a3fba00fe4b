"""Shared settings of the tests."""

import gc
import logging
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

# Deterministic, and without a clock: the same examples on every machine, however slow.
settings.register_profile("all", derandomize=True, deadline=None)
settings.register_profile("quick", settings.get_profile("all"), max_examples=25)

# The tests choose their devices themselves.
os.environ.pop("TOWLINE_DEVICE", None)

# Whoever starts the tests in the background of a shell has them ignore Ctrl-C, which some of them send.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """A run without the slow tests tries fewer examples as well, where a test names no number of them."""
    settings.load_profile("quick" if "not slow" in config.option.markexpr else "all")


def pytest_collection_finish() -> None:
    """Modules and collected tests stay: no later collection of garbage need look at them again."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def quiet_card() -> Iterator[None]:
    """What the emulated card says about wrong programs is looked at, where it is wanted, and not logged."""
    logger = logging.getLogger("emulator.amdgpu")
    logger.setLevel(logging.ERROR)
    yield
    logger.setLevel(logging.NOTSET)
