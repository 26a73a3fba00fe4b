"""Recurrences on the AMD cards: in one launch, in one a stage of a step, and unrolled, each step within its
definition; and mistakes planted in the kernel.
"""

import itertools

import pytest

from sdk.graph import Recurrent
from sdk.opencl.calls import KernelSource
from sdk.reference import compare, evaluate, expect
from sdk.target import Options
from tests.amount import amount
from tests.chips import ANY
from tests.onnx_models import imported
from tests.plain_graphs import PlainBuilder
from tests.shader_gpu import target
from tests.unit.test_c_plain import cell
from tests.unit.test_importers_plain import normal, one
from usbgpu.amd.facts.chips import CHIPS
from usbgpu.target.plain import recurrent
from usbgpu.target.plain.bodies import NotOfChannels, body_of
from usbgpu.target.tiling import Recurrence, RecurrentCut, recurrent_cuts, recurrent_tiling

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
SLOW = pytest.mark.slow


def network(op, *, dtype="float32", steps=4, batch=2, hidden=19, peepholes=False, **attributes):
    """A graph of one recurrent operator with all its outputs, and its inputs."""
    ways = 2 if attributes.get("direction") == "bidirectional" else 1
    rows = GATES[op] * hidden
    given = [normal(steps, batch, 3), normal(ways, rows, 3), 2 * normal(ways, rows, hidden) / hidden**0.5]
    given += [normal(ways, 2 * rows), None]
    given += [normal(ways, batch, hidden)] * (2 if op == "LSTM" else 1)
    given += [normal(ways, 3 * hidden)] * peepholes
    given = [None if array is None else array.astype(dtype) for array in given]
    outputs = 3 if op == "LSTM" else 2
    model, inputs = one(op, given, constants=(1, 2, 3, 7), outputs=outputs, hidden_size=hidden, **attributes)
    for value in model.graph.output:
        value.type.tensor_type.elem_type = {"float32": 1, "float16": 10}[dtype]
    return imported(model), inputs


def run(chip, graph, inputs):
    """Launches of recurrences, and elements of all tensors that are outside of their definition."""
    amd = target(chip)
    program = amd.compile(graph, Options())
    with amd.open(None).load(program) as session:
        known = dict(inputs) | session.trace(inputs)
    outside = 0
    for node in program.graph.nodes:
        if node.output not in known:  # another view of bytes that are there
            known[node.output] = evaluate(program.graph, node, known, "f32")
            continue
        actual = known[node.output]
        expected = expect(program.graph, node, known, actual=actual)
        outside += compare(expected, actual, program.graph.tensor(node.output).dtype).outside
    return sum(launch["op"] == "Recurrent" for launch in program.plan["launches"]), outside


def cut_into(monkeypatch, cut):
    monkeypatch.setattr(recurrent, "recurrent_tiling", lambda *_: (cut, 0.0))


WHOLE = RecurrentCut(32, 4, whole=True, held=True)
STREAMED = RecurrentCut(64, 2, whole=True, held=False)
STEPWISE = RecurrentCut(8, 4, whole=False, held=False)
CUTS = (STREAMED, STEPWISE, RecurrentCut(64, 1, True, True))

CASES = [
    ("GRU", "float32", {"linear_before_reset": 1, "batch": 3, "hidden": 37}),
    ("GRU", "float16", {"direction": "bidirectional"}),
    ("LSTM", "float16", {"direction": "bidirectional", "peepholes": True}),
    ("LSTM", "float32", {"direction": "reverse", "batch": 1, "input_forget": 1}),
    ("RNN", "float16", {"direction": "reverse", "hidden": 5, "activations": ["Relu"]}),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("chip", "op", "dtype", "attributes"),
    [
        pytest.param(chip, *case, marks=() if (chip, case[0]) == ("gfx1201", "RNN") else SLOW)
        for chip, case in amount(
            [*zip(itertools.cycle(("gfx1201", "gfx1100")), reversed(CASES), strict=False)],
            [*itertools.product(("gfx1100", "gfx1201"), CASES)],
        )
    ],
)
def test_one_launch_makes_all_steps(chip, op, dtype, attributes):
    graph, inputs = network(op, dtype=dtype, **attributes)
    ways = 2 if attributes.get("direction") == "bidirectional" else 1
    assert run(chip, graph, inputs) == (ways, 0)


@SLOW
@pytest.mark.parametrize("chip", ANY)
@pytest.mark.parametrize(
    ("cut", "case"),
    amount([*zip(itertools.cycle(CUTS), CASES[:4], strict=False)], [*itertools.product(CUTS, CASES[:4])]),
    ids=str,
)
def test_every_way(chip, cut, case, monkeypatch):
    op, dtype, attributes = case
    cut_into(monkeypatch, cut)
    graph, inputs = network(op, dtype=dtype, **attributes)
    ways = 2 if attributes.get("direction") == "bidirectional" else 1
    stages = 1 if cut.whole else 4 * (2 if op == "GRU" and "linear_before_reset" not in attributes else 1)
    assert run(chip, graph, inputs) == (ways * stages, 0)


@SLOW
def test_a_large_state_has_a_launch_a_step():
    graph, inputs = network("LSTM", hidden=520, batch=1, steps=2)
    assert run("gfx1100", graph, inputs) == (2, 0)


def other_body():
    """A product of the sequence within the body."""
    b = PlainBuilder(3)
    inputs = b.input((3, 1, 3)), b.input((1, 5)), b.input((1, 5)), b.constant((3, 5))
    b.node(Recurrent, inputs, body=cell("float32"), steps=3, sequences=1, backward=False)
    return b.graph(), b.inputs


def test_other_bodies():
    graph, _ = other_body()
    with pytest.raises(NotOfChannels):
        body_of(graph, graph.nodes[0])


@SLOW
def test_other_bodies_are_unrolled():
    graph, inputs = other_body()
    assert run("gfx1100", graph, inputs) == (0, 0)


# -- the cost model -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("chip", CHIPS)
def test_weights_of_small_states_stay_in_registers(chip):
    """Sizes from which it is something else differ by chip; ends do not."""
    found = {
        size: recurrent_tiling(CHIPS[chip], Recurrence(size, 1, 50, ((4, 1),), 2))[0]
        for size in (8, 96, 192, 1024, 3000)
    }
    assert all(found[size].whole and found[size].held for size in (8, 96, 192))
    assert not found[1024].whole
    assert not found[3000].whole


def test_cuts_fit_a_workgroup_and_its_memory():
    for size in (1, 33, 1000, 5000, 100_000):
        work = Recurrence(size, 2, 7, ((2, 1), (1, 1)), 4)
        for cut in recurrent_cuts(CHIPS["gfx1102"], work):
            assert 32 <= cut.channels * cut.split <= 1024
            assert not cut.whole or cut.channels >= size
    assert recurrent_tiling(CHIPS["gfx1102"], Recurrence(100_000, 2, 7, ((2, 1),), 4)) is None


# -- planted mistakes ---------------------------------------------------------------------------------------


def without(number):
    """The kernel without one of its barriers."""

    def mutate(text):
        parts = text.split("sync();")
        return "sync();".join(parts[:number]) + ";" + "sync();".join(parts[number:])

    return mutate


def replaced(old, new):
    def mutate(text):
        assert old in text
        return text.replace(old, new)

    return mutate


WIDE = RecurrentCut(64, 1, whole=True, held=True)
MISTAKES = {
    # Two waves, each of which multiplies what both have loaded.
    "no barrier behind the initial states": (without(1), WIDE),
    "no barrier behind the sums": (without(2), WHOLE),
    "no barrier behind the states": (without(3), WHOLE),
    "gates exchanged": (replaced("read0 = read0_0", "read0 = read0_1"), WHOLE),
    "a step too few": (replaced("i < m.count", "i + 1 < m.count"), WHOLE),
    "steps in the other order": (replaced("m.first + (s32)i * m.onwards", "(s32)(m.count - 1 - i)"), WHOLE),
    "initial state of products ignored": (replaced("? load_float16(v0", "? 0 * load_float16(v0"), WHOLE),
    "initial cell ignored": (replaced("own1 = load_float16", "own1 = 0 * load_float16"), WHOLE),
    "the cell stays": (replaced("own1 = new0_1;", ""), WHOLE),
    "a part of the sums left out": (replaced("s < 3;", "s < 2;"), WHOLE),
    "one row for all": (replaced("(s32)GROUP_Y", "0"), WHOLE),
}
QUICK = ("a step too few",)


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else SLOW) for n in MISTAKES])
def test_a_planted_mistake_shows(name, monkeypatch):
    mutate, cut = MISTAKES[name]
    cut_into(monkeypatch, cut)
    graph, inputs = network("LSTM", dtype="float16", steps=3, hidden=29 if cut is WHOLE else 44)
    if name not in QUICK:
        assert run("gfx1100", graph, inputs) == (1, 0)

    def planted(source, symbol, threads, defines, text):
        return KernelSource(source, symbol, threads, defines, mutate(text))

    monkeypatch.setattr(recurrent, "KernelSource", planted)
    assert run("gfx1100", graph, inputs)[1] > 0


@SLOW
def test_sums_are_rounded_before_what_follows(monkeypatch):
    graph, inputs = network("RNN", dtype="float16", hidden=32, batch=8, activations=["Relu"])

    def planted(source, symbol, threads, defines, text):
        return KernelSource(source, symbol, threads, defines, replaced("= round_float16(", "= (")(text))

    monkeypatch.setattr(recurrent, "KernelSource", planted)
    assert run("gfx1100", graph, inputs)[1] > 0
