"""Shared settings of the tests."""

import gc
import logging
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from sdk.errors import TowlineError
from tests import amount

# Deterministic, and without a clock: the same examples on every machine, however slow.
settings.register_profile("all", derandomize=True, deadline=None)
settings.register_profile("quick", settings.get_profile("all"), max_examples=15)

# Where bytecode must not lie beside the sources (PYTHONDONTWRITEBYTECODE) it is kept here: otherwise every
# run compiles all tests again, and each of the hundreds of processes that tests start what it imports.
if sys.dont_write_bytecode:
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.pycache_prefix = str(Path(__file__).parents[1] / ".pytest_cache" / "bytecode")
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix

# The tests choose their devices themselves.
os.environ.pop("TOWLINE_DEVICE", None)

# Tests started in the background of a shell ignore Ctrl-C, which some of them send.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--thorough", action="store_true", help="try all places, seeds and chips that the tests know"
    )


def pytest_configure(config: pytest.Config) -> None:
    """A run without the slow tests tries fewer examples as well, where a test names no number of them."""
    amount.thorough = config.option.thorough
    settings.load_profile("quick" if "not slow" in config.option.markexpr else "all")
    if os.environ.get("TOWLINE_COVERAGE"):
        firmware_coverage_begins()


def firmware_coverage_begins() -> None:
    """Every emulated board adds what it executes of `firmware` to that file, whatever runs first."""
    from emulator import image_file
    from emulator.coverage import build_of, environment

    try:
        environment.begin(build_of(image_file.load(image_file.locate("firmware"))), "firmware")
    except TowlineError as problem:
        raise pytest.UsageError(f"TOWLINE_COVERAGE: {problem}; {problem.hint}") from None


def pytest_sessionfinish() -> None:
    """The workers of xdist end without finalizers."""
    if os.environ.get("TOWLINE_COVERAGE"):
        from emulator.coverage import environment

        environment.flush()


def pytest_collection_finish() -> None:
    """Modules and collected tests stay: no later collection of garbage need look at them again.

    Collections come less often, too: most of what tests leave is freed by its count of references.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture
def quiet_card() -> Iterator[None]:
    """What the emulated card says about wrong programs is looked at, where it is wanted, and not logged."""
    logger = logging.getLogger("emulator.amdgpu")
    logger.setLevel(logging.ERROR)
    yield
    logger.setLevel(logging.NOTSET)
