"""Float networks as exporters wrote them, compiled without the host: answers, every layer, states.

AMD's targets run on the shader executor, without a card around it.

`python -m tests.e2e.test_float_networks [--target NAME] [--network NAME ...] [SEED ...]` checks them with
each seed and prints a table.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from sdk import artifact, compiler
from sdk.check import Check, check
from sdk.report import table
from sdk.session import Session
from tests.amount import amount
from tests.chips import GENERATIONS, OTHERS
from tests.opencl_substitute import require_opencl
from tests.shader_gpu import register
from tests.shared_networks import (
    NAMES,
    QUICK,
    assert_close,
    by_onnxruntime,
    example_inputs,
    filled,
    tolerance,
)

LARGE = (
    *("driving-small", "mobilevit-xxs", "planner-transformer", "resnet18-bn", "super-resolution"),
    *amount(("depth", "driving-state-inside", "efficientnet-b0"), ()),
)
"""Those whose definition takes numpy longest: their answers alone are compared."""
LONG = (
    *(
        "convnext-atto",
        "depth",
        "detector",
        "driving-small",
        "efficientnet-b0",
        "resnet18-bn",
        "mobilevit-xxs",
        "planner-transformer",
        "segmentation",
        "super-resolution",
        "swin-micro",
        "vit-tiny",
    ),
)
"""Those that take longest on a card, and hold what others here or the zoo's networks hold too."""
STEPS = amount(6, 20)
STEPS_ON_A_CARD = amount(2, 4)
CARDS = tuple(f"amd-{chip}" for chip in GENERATIONS)


def checked(target, name):
    """Whether every layer is checked there: of the quick ones on all, of the others on one target."""
    if name in QUICK or name in LARGE:
        return name in QUICK
    places = ("c", *CARDS)
    return amount(target == places[NAMES.index(name) % len(places)], target != CARDS[1])


def cards(name):
    """Those that a network is compiled for: one of both generations in turn, some none."""
    if name in amount((*LONG, "mobilenet-v3-large", "language-model-step"), ()):
        return []
    every = (*CARDS, *(f"amd-{chip}" for chip in OTHERS)) if name in QUICK else CARDS
    return amount([CARDS[NAMES.index(name) % 2]], every)


ON_CARDS = [pytest.param(target, name, marks=pytest.mark.slow) for name in NAMES for target in cards(name)]
ON_A_CARD_ALONE, ON_C_ALONE = amount(("driving-state-inside", "driving-small"), ("", ""))
"""Stateful ones that differ little: each is fed back in one place."""
STATEFUL = ("lstm-stream", "language-model-step", "driving-state-inside", "driving-small")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("networks")


@pytest.fixture
def shaders(monkeypatch, tmp_path):
    register(monkeypatch, tmp_path / "targets")


def compiled(path, target, folder):
    """The network as it is read back from its file: all of it on the device."""
    file = folder / f"{path.stem}.{target}.tow"
    artifact.save(compiler.compile(path, target, host="none"), file)
    network = artifact.load(file)
    assert [segment.place for segment in network.segments] == ["device"]
    return network


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_network_on_c(name, folder):
    path = filled(name, folder)
    inputs = example_inputs(path)
    network = compiled(path, "c", folder)
    with Session(network) as session:
        assert_close(name, session.run(inputs), by_onnxruntime(path, inputs))
        if checked("c", name):
            assert_right(network, session, inputs)


@pytest.mark.parametrize(("target", "name"), ON_CARDS)
@pytest.mark.usefixtures("shaders")
def test_a_network_on_a_card(target, name, folder):
    path = filled(name, folder)
    inputs = example_inputs(path)
    network = compiled(path, target, folder)
    with Session(network) as session:
        assert_close(name, session.run(inputs), by_onnxruntime(path, inputs))
        if checked(target, name):
            assert_right(network, session, inputs)


@pytest.mark.slow
@pytest.mark.parametrize("name", amount(QUICK[:1], (*QUICK, "resnet18-bn")))
def test_a_network_on_opencl(name, folder):
    """A few of them: PoCL compiles each kernel."""
    require_opencl()
    path = filled(name, folder)
    inputs = example_inputs(path)
    network = compiled(path, "adreno-a6xx", folder)
    with Session(network) as session:
        assert_close(name, session.run(inputs), by_onnxruntime(path, inputs))
        assert_right(network, session, inputs)


def assert_right(network, session, inputs):
    found = check(network, session, inputs)
    assert found.elements + found.float_elements > 1000
    assert (found.outside, found.mismatches) == (0, 0), found.first_mismatch


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("c", STATEFUL[0]),
        *(
            pytest.param("c", name, marks=pytest.mark.slow)
            for name in STATEFUL[1:]
            if name != ON_A_CARD_ALONE
        ),
        *(
            pytest.param(target, name, marks=pytest.mark.slow)
            for name in amount((STATEFUL[1], ON_A_CARD_ALONE), STATEFUL)
            for target in cards(name)
            if target in CARDS and name != ON_C_ALONE
        ),
    ],
)
@pytest.mark.usefixtures("shaders")
def test_states_are_fed_back(target, name, folder):
    """The steps of a session equal onnxruntime's runs, whose states are passed by hand."""
    path = filled(name, folder)
    network = compiler.compile(path, target, host="none")
    kept = dict(network.states)
    assert kept
    states = {given: example_inputs(path)[given] for given in kept.values()}
    with Session(network) as session:
        session.reset(states)
        for step in range(STEPS if target == "c" else STEPS_ON_A_CARD):
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


HEADERS = (
    *("network", "seed", "nodes", "on the device", "elements", "outside", "mismatches", "ties"),
    *("of the bound", "to onnxruntime", "of tolerance", "seconds", "launches", "virtual us"),
)


def row(name, seed, target, folder, answers):
    """What a network shows on a target; with `answers` without its definition."""
    path = filled(name, folder, seed)
    inputs = example_inputs(path, 0)
    network = compiler.compile(path, target, host="any")
    with Session(network) as session:
        start = time.perf_counter()
        found = session.run(inputs)
        seconds = time.perf_counter() - start
        result = Check(()) if answers else check(network, session, inputs)
        total = session.profile().total if len(network.programs) == 1 else {}
    expected = by_onnxruntime(path, inputs)
    differences = {output: _difference(found[output], wanted) for output, wanted in expected.items()}
    nodes = [node.name for node in network.graph.nodes]
    device = sum(name not in network.hosted for name in nodes) / len(nodes)
    share = max(value / tolerance(name, output) for output, value in differences.items())
    return (
        *(name, seed, len(nodes), f"{device:.1%}", result.float_elements + result.elements, result.outside),
        *(result.mismatches, result.ties, f"{result.worst_share:.0%}", f"{max(differences.values()):.1e}"),
        *(f"{share:.0%}", f"{seconds:.2f}", total.get("launches", "")),
        f"{total['virtual_us']:.0f}" if "virtual_us" in total else "",
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", nargs="*", type=int, default=[0], metavar="SEED")
    parser.add_argument("--target", default="c")
    parser.add_argument("--network", nargs="+", choices=NAMES, default=NAMES, metavar="NAME")
    parser.add_argument("--answers", action="store_true", help="without the definition, which takes longest")
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        register(patch, Path(folder) / "targets")
        for name in args.network:
            for seed in args.seeds:
                rows.append(row(name, seed, args.target, Path(folder), args.answers))
                print(*rows[-1], file=sys.stderr, flush=True)
    print(table(HEADERS, rows))


if __name__ == "__main__":
    main()
