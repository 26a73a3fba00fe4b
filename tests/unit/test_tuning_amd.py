"""Cuts of products of floats on AMD cards: which are measured, which one is taken, and that results stay."""

import numpy as np
import pytest

from sdk.check import check
from sdk.compiler import compile as compiled
from sdk.errors import InvalidInput
from sdk.graph import Conv, MatMul
from sdk.session import Session
from sdk.target import CountsKernels, Options, Tunable
from sdk.targets import get_target
from sdk.tuning import Entry, Tuning
from tests.plain_graphs import PlainBuilder
from tests.shader_gpu import register, target
from usbgpu.amd.facts.chips import CHIPS

CHIP = "gfx1100"
NAME = f"amd-{CHIP}"


def network(seed=0, channels=64, dtype="float16"):
    """A convolution with a Map behind it, a product of matrices twice, one that has a single cut."""
    b = PlainBuilder(seed)
    fields = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": 1, "clamp": None}
    x = b.input((1, 32, 12, 12), dtype)
    y = b.node(Conv, (x, b.constant((64, 32, 3, 3), dtype)), shape=(1, 64, 12, 12), **fields)
    y = b.reshape(b.map(lambda v: v * 0.5, y), (144, 64))
    for extent in (64, channels, 1):
        w = b.constant((y_channels(b, y), extent), dtype)
        y = b.node(MatMul, (y, w), shape=(144, extent), transposed=False)
    return b.graph(y), b.inputs


def y_channels(b, name):
    return b.tensors[name].shape[-1]


def by_signature(candidates):
    found = {}
    for one in candidates:
        found.setdefault(one.signature, []).append(one)
    return found


def forced(kernels, choice=None):
    """A tuning that has another cut than the cost model's for every product, or this one."""
    made = target(CHIP)
    entries = {
        signature: Entry(kernels or group[0].kernels, choice or group[-1].choice, 1, 2)
        for signature, group in by_signature(made.candidates(network()[0])).items()
    }
    return Tuning(NAME, made.cost, entries)


def test_values_are_not_in_a_signature_and_extents_are():
    made = target(CHIP)

    def signatures(graph):
        return [one.signature for one in made.candidates(graph)]

    first = signatures(network()[0])
    assert signatures(network(seed=5)[0]) == first
    assert set(signatures(network(channels=48)[0])) - set(first)
    assert not set(signatures(network(dtype="bfloat16")[0])) & set(first)


def test_candidates_are_distinct_cuts_the_models_own_first():
    for chip in CHIPS:
        made = target(chip)
        assert isinstance(made, Tunable)
        assert isinstance(made, CountsKernels)
        groups = by_signature(made.candidates(network()[0]))
        assert sorted(group[0].uses for group in groups.values())[-1] == 2
        for group in groups.values():
            assert [one.choice for one in group].index("") == 0
            assert 1 < len(group) == len({one.choice for one in group}) <= 8


@pytest.mark.slow
def test_a_candidate_takes_what_its_launch_takes_in_the_network():
    """Alone, with zeros, in other places: the same time."""
    made = target(CHIP)
    graph, _ = network()
    groups = by_signature(made.candidates(graph))
    with made.open(None).load(made.compile(graph, Options())) as session:
        layers = session.profile().layers
    in_network = [layer.counters["virtual_us"] for layer in layers if layer.op.startswith(("Conv", "MatMul"))]
    alone = [made.measure(group[0]) / 1000 for group in groups.values() for _ in range(group[0].uses)]
    assert len(groups) == 3
    np.testing.assert_allclose(sorted(alone), sorted(in_network), atol=0.001)


@pytest.mark.slow
def test_what_was_measured_is_taken_and_results_stay_right(monkeypatch, tmp_path):
    register(monkeypatch, tmp_path / "targets")
    graph, inputs = network()
    plain = compiled(graph, NAME, options=Options())
    tuned = compiled(graph, NAME, options=Options(tuning=forced(None)))
    assert plain.programs[0].plan["tuning"] == {"chosen": [], "heuristic": 4}
    found = tuned.programs[0].plan["tuning"]
    assert [entry["by"] for entry in found["chosen"]] == ["user"] * (4 - found["heuristic"])
    assert len(found["chosen"]) >= 3
    before, after = (network.programs[0].plan["launches"] for network in (plain, tuned))
    assert sum(a != b for a, b in zip(before, after, strict=True)) >= len(found["chosen"])
    with Session(tuned) as session:
        result = check(tuned, session, inputs)
    assert result.float_elements > 1000
    assert result.outside == 0


def test_measurements_of_other_kernels_are_ignored():
    program = target(CHIP).compile(network()[0], Options(tuning=forced("others")))
    assert program.plan["tuning"] == {"chosen": [], "heuristic": 4}


def test_a_cut_that_does_not_exist_is_refused():
    with pytest.raises(InvalidInput) as caught:
        target(CHIP).compile(network()[0], Options(tuning=forced(None, "3x3x3")))
    assert caught.value.where.startswith("node ")


def test_the_registered_targets_can_be_tuned():
    assert all(isinstance(get_target(f"amd-{chip}"), Tunable) for chip in CHIPS)
