"""Attention in one launch on the AMD targets: what is one, the bound, and planted mistakes."""

import numpy as np
import pytest

from sdk.expression import apply
from sdk.expression.trace import select
from sdk.graph import MatMul, Softmax, Transpose
from sdk.reference import compare, expect
from sdk.target import Options
from tests.amount import amount
from tests.plain_graphs import PlainBuilder
from tests.shader_gpu import target
from usbgpu.target.build import KERNELS
from usbgpu.target.plain import attention

CHIPS = ("gfx1100", "gfx1201")


@pytest.fixture(params=CHIPS)
def both(request):
    return request.param


class Heads:
    """q, k and v as slices of a projection lie: [rows, heads, size], read as [heads, rows, size]."""

    def __init__(self, heads=2, queries=5, keys=37, depth=24, channels=20, dtype="float16", seed=0):
        self.b = b = PlainBuilder(seed)
        self.shape = heads, queries, keys
        sizes = ((queries, depth), (keys, depth), (keys, channels))
        q, k, v = (b.input((rows, heads, size), dtype) for rows, size in sizes)
        self.q, self.v = (b.node(Transpose, (x,), perm=(1, 0, 2)) for x in (q, v))
        self.k = b.node(Transpose, (k,), perm=(1, 2, 0))

    def graph(self, scores=None, weights=None, sides=None):
        """softmax(q k^T) v with Maps of the scores, of the weights, and of q and k."""
        b = self.b
        q, k = (sides(x) if sides else x for x in (self.q, self.k))
        s = b.node(MatMul, (q, k), transposed=False)
        p = b.node(Softmax, (scores(s) if scores else s,), axis=2)
        return b.graph(b.node(MatMul, (weights(p) if weights else p, self.v), transposed=False))

    def masked(self, shape, scale=0.25):
        """Scores with a scale and the constant mask of a shape."""
        return lambda s: self.b.map(
            lambda x, y: x * scale + y, s, self.b.constant(shape, self.b.tensors[s].dtype)
        )


def compared(graph, inputs, chip, ops=("Attention",)):
    """The result's comparison with its definition, and whether the launches are these."""
    amd = target(chip)
    program = amd.compile(graph, Options(guard=64))
    assert [launch["op"] for launch in program.plan["launches"]] == list(ops)
    with amd.open(None).load(program) as session:
        session.poison(0xFF)  # NaN
        values = dict(inputs) | session.trace(inputs)
    for node in program.graph.nodes:
        actual = values.get(node.output)
        spread = expect(program.graph, node, values, actual=actual)
        if actual is None:
            values[node.output] = spread
    return compare(spread, actual, program.graph.tensor(node.output).dtype)


def assert_within(graph, inputs, chip, **options):
    found = compared(graph, inputs, chip, **options)
    assert found.outside == 0, found
    return found


@pytest.mark.slow
def test_odd_lengths_and_a_mask_of_all_heads(both):
    heads = Heads()
    assert_within(heads.graph(heads.masked((5, 37))), heads.b.inputs, both)


@pytest.mark.slow
def test_bfloat16_with_a_mask_of_one_query(both):
    heads = Heads(dtype="bfloat16", queries=19, keys=16, depth=16, channels=16)
    assert_within(heads.graph(heads.masked((2, 1, 16))), heads.b.inputs, both)


@pytest.mark.slow
def test_maps_of_all_kinds(both):
    """As exporters write it: half of the scale on q, half on k, and rows without a number become 0."""
    heads = Heads(queries=17)
    b = heads.b
    kept = b.input((1, 17, 37), "bool", np.arange(17).reshape(1, 17, 1) > np.zeros((1, 17, 37)))

    def scores(s):
        return b.map(lambda x, keep: select(keep, x, float("-inf")), s, kept)

    def weights(p):
        nan = b.map(lambda x: apply("isnan", x), p, dtype="bool")
        return b.map(lambda bad, x: select(bad, 0.0, x), nan, p, dtype="float16")

    graph = heads.graph(scores, weights, sides=lambda x: b.map(lambda e: e * 0.353515625, x))
    found = assert_within(graph, b.inputs, both)
    assert found.elements == 2 * 17 * 20


@pytest.mark.slow
def test_softmax_in_float32_between_casts(both):
    heads = Heads()
    b = heads.b
    graph = heads.graph(
        lambda s: b.map(lambda x: x * 0.125, s, dtype="float32"),
        lambda p: b.map(lambda x: x, p, dtype="float16"),
    )
    assert_within(graph, b.inputs, both)


@pytest.mark.slow
def test_large_scores(both):
    """exp of them without the maximum is infinite."""
    heads = Heads()
    heads.b.inputs["input0"] *= np.float16(40)
    assert_within(heads.graph(), heads.b.inputs, both)


@pytest.mark.slow
def test_scores_that_others_read_are_stored(both):
    heads = Heads()
    graph = heads.graph()
    scores = next(node.output for node in graph.nodes if isinstance(node, MatMul))
    graph = heads.b.graph(scores, *graph.outputs)
    assert_within(graph, heads.b.inputs, both, ops=("MatMul", "Softmax", "MatMul"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes", [{"keys": attention.KEYS + 1, "queries": 1, "heads": 1}, {"dtype": "float32"}], ids=str
)
def test_what_the_kernel_does_not_take(changes):
    heads = Heads(**changes)
    assert_within(heads.graph(), heads.b.inputs, "gfx1100", ops=("MatMul", "Softmax", "MatMul"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "chip"),
    [
        pytest.param(seed, CHIPS[seed % 2], marks=() if seed < 2 else pytest.mark.slow)
        for seed in range(amount(10, 40))
    ],
)
def test_random_shapes(seed, chip):
    random = np.random.default_rng(seed)
    sizes = {"heads": int(random.integers(1, 4)), "queries": int(random.integers(1, 40))}
    sizes |= {"keys": int(random.choice([1, 8, 30, 64, 130, 300])), "depth": int(random.integers(1, 70))}
    dtype = str(random.choice(["float16", "bfloat16"]))
    heads = Heads(**sizes, channels=int(random.integers(1, 100)), dtype=dtype, seed=seed)
    shape = tuple(n if random.random() < 0.6 else 1 for n in heads.shape)
    graph = heads.graph(
        heads.masked(shape) if random.random() < 0.7 else None,
        sides=(lambda x: heads.b.map(lambda e: e * 0.5 + 0.25, x)) if random.random() < 0.5 else None,
    )
    assert_within(graph, heads.b.inputs, chip)


# -- planted mistakes ---------------------------------------------------------------------------------------

MISTAKES = {
    "the mask of another query": ("row * m.operand_row[i]", "0 * m.operand_row[i]"),
    "no maximum": ("(score[t][i] - top) * LOG2_E", "score[t][i] * LOG2_E"),
    "a maximum of one half of a wave": ("top = __builtin_fmaxf(top, swapped_float(top));", ""),
    "a sum of one wave": ("sum = 0;\n    for (u32 wave = 0;", "sum = 0;\n    for (u32 wave = 1;"),
    "a tile of keys dropped": ("if (key >= m.keys)", "if (key + 16 >= m.keys)"),
    "keys that do not exist": ("? eight[i] : -INFINITY", "? eight[i] : 0"),
    "k beyond the last": ("#ifdef TAIL", "#ifdef NOTHING"),
}


def plant(monkeypatch, before, after):
    plain = attention.source

    def source(*args):
        file = (KERNELS / "plain/attention.cl").read_text()
        text = plain(*args).replace('#include "plain/attention.cl"', file)
        assert before in text
        return text.replace(before, after)

    monkeypatch.setattr(attention, "source", source)


@pytest.mark.parametrize("rounded", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_scores_are_rounded_as_the_graph_stores_them(rounded, monkeypatch):
    """The bound has room for either side of a rounding; sums of whole numbers are exact."""
    if not rounded:
        plant(monkeypatch, "round_float16(", "(")
    heads = Heads()
    q, k, v = heads.b.inputs.values()
    random = np.random.default_rng(1)
    for x, first in ((q, 2048), (k, 1)):
        x[:] = random.integers(-1, 2, x.shape)
        x[..., 0] = first  # scores are beside 2048, from which on every second whole number is a float16
    graph = heads.graph()
    amd = target("gfx1100")
    with amd.open(None).load(amd.compile(graph, Options())) as session:
        made = session.run(heads.b.inputs)[graph.outputs[0]]
    scores = np.einsum("qhd,khd->hqk", q.astype(float), k.astype(float)).astype(np.float16).astype(float)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights = (weights / weights.sum(-1, keepdims=True)).astype(np.float16)
    expected = np.einsum("hqk,khc->hqc", weights.astype(float), v.astype(float))
    difference = np.abs(made.astype(float) - expected).max()
    assert (difference < 4e-3) == rounded, difference


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=() if n < 3 else pytest.mark.slow) for n, one in enumerate(MISTAKES)]
)
def test_a_planted_mistake_is_found(name, monkeypatch):
    plant(monkeypatch, *MISTAKES[name])
    heads = Heads(queries=3)
    for given in ("input0", "input1"):
        heads.b.inputs[given] *= np.float16(8 if name == "no maximum" else 1)
    graph = heads.graph(heads.masked((3, 37)))
    found = compared(graph, heads.b.inputs, "gfx1100")
    assert found.outside, found
