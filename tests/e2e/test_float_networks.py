"""Float networks as exporters wrote them, compiled for `c` without the host: answers, every layer, states.

`python -m tests.e2e.test_float_networks [SEED ...]` checks all of them with each seed and prints a table.
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from sdk import artifact, compiler
from sdk.check import check
from sdk.report import table
from sdk.session import Session
from tests.shared_networks import (
    NAMES,
    PARAMETERS,
    assert_close,
    by_onnxruntime,
    example_inputs,
    filled,
    tolerance,
)

LARGE = ("driving-small", "mobilevit-xxs", "planner-transformer", "resnet18-bn", "super-resolution")
"""Those whose definition takes numpy more than 15 s: by default their answers alone are compared."""
STEPS = 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("networks")


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_network_on_c(name, folder):
    path = filled(name, folder)
    inputs = example_inputs(path)
    artifact.save(compiler.compile(path, "c", host="none"), folder / f"{name}.tow")
    network = artifact.load(folder / f"{name}.tow")
    assert [segment.place for segment in network.segments] == ["device"]
    with Session(network) as session:
        assert_close(name, session.run(inputs), by_onnxruntime(path, inputs))
        if name not in LARGE:
            found = check(network, session, inputs)
            assert (found.outside, found.mismatches) == (0, 0), found.first_mismatch


@pytest.mark.parametrize(
    "name",
    [
        *("lstm-stream", "language-model-step"),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("driving-state-inside", "driving-small")),
    ],
)
def test_states_are_fed_back(name, folder):
    """The steps of a session equal onnxruntime's runs, whose states are passed by hand."""
    path = filled(name, folder)
    network = compiler.compile(path, "c", host="none")
    kept = dict(network.states)
    assert kept
    states = {given: example_inputs(path)[given] for given in kept.values()}
    with Session(network) as session:
        session.reset(states)
        for step in range(STEPS):
            inputs = {key: array for key, array in example_inputs(path, step).items() if key not in states}
            wanted = by_onnxruntime(path, {**inputs, **states})
            found = session.step(inputs)
            assert_close(name, found, {key: array for key, array in wanted.items() if key not in kept})
            states = {given: session.states()[given] for given in states}
            later = {output: states[given] for output, given in kept.items()}
            assert_close(name, later, {output: wanted[output] for output in kept})


def _difference(found, wanted):
    """The largest difference, as a part of the largest magnitude."""
    exact = wanted.astype(np.float64)
    return float(np.abs(found.astype(np.float64) - exact).max() / np.abs(exact).max())


def main(seeds):
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in NAMES:
            for seed in seeds:
                path = filled(name, Path(folder), seed)
                inputs = example_inputs(path, 0)
                network = compiler.compile(path, "c", host="none")
                with Session(network) as session:
                    start = time.perf_counter()
                    found = session.run(inputs)
                    seconds = time.perf_counter() - start
                    result = check(network, session, inputs)
                expected = by_onnxruntime(path, inputs)
                differences = {
                    output: _difference(found[output], wanted) for output, wanted in expected.items()
                }
                share = max(value / tolerance(name, output) for output, value in differences.items())
                counts = (result.float_elements, result.outside, result.mismatches, result.ties)
                ends = f"{max(differences.values()):.1e}", f"{share:.0%}"
                rows.append((name, seed, *counts, *ends, f"{seconds:.2f}"))
                print(*rows[-1], file=sys.stderr, flush=True)
    checked = ("elements", "outside", "mismatches", "ties")
    print(table(("network", "seed", *checked, "to onnxruntime", "of tolerance", "seconds"), rows))


if __name__ == "__main__":
    main([int(seed) for seed in sys.argv[1:]] or [0])
