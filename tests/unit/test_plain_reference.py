"""The bounds of plain families: float32 arithmetic lies within them, and what is wrong does not.

The table of mutations: each family is computed as a target would, and with an error that a target may have.
"""

import dataclasses

import numpy as np
import pytest

from sdk import dtypes, reference
from sdk import graph as ops
from sdk.expression import trace
from sdk.expression.trace import apply
from sdk.graph import NO_CLAMP, Graph, Tensor
from sdk.reference.windows import padded, taps
from sdk.verification import verify

RANDOM = np.random.default_rng(5)


@pytest.fixture(autouse=True)
def _same_numbers():
    """A test's numbers do not depend on those that ran before it."""
    global RANDOM
    RANDOM = np.random.default_rng(5)


def compared(node, inputs, actual, dtype=None):
    """A node's result against its definition."""
    dtype = dtype or str(actual.dtype)
    tensors = {name: Tensor(name, array.shape, str(array.dtype)) for name, array in inputs.items()}
    tensors[node.output] = Tensor(node.output, actual.shape, dtype)
    graph = Graph("g", tuple(inputs), (node.output,), tensors, (node,))
    verify(graph)
    return reference.compare(reference.expect(graph, node, inputs, actual=actual), actual, dtype)


def normal(*shape, dtype="float32", scale=1.0):
    return (RANDOM.normal(size=shape) * scale).astype(dtype)


def dot(pairs, accumulator=np.float32, block=None):
    """A sum of products, term by term."""
    total = part = None
    for count, (a, b) in enumerate(pairs):
        term = (a.astype(np.float32) * b.astype(np.float32)).astype(accumulator)
        part = term if part is None else (part + term).astype(accumulator)
        if block is not None and (count + 1) % block == 0:
            total = part.astype(np.float32) if total is None else total + part.astype(np.float32)
            part = None
    if total is None:
        return part
    return total if part is None else total + part.astype(np.float32)


def truncated(values):
    """float32 to float16 towards zero."""
    near = values.astype(np.float16)
    beyond = np.abs(near.astype(np.float32)) > np.abs(values)
    return np.where(beyond, np.nextafter(near, np.float16(0)), near)


CONV = ops.Conv("c", ("x", "w"), "y", (1, 1), (1, 1, 1, 1), (1, 1), 1, NO_CLAMP)


def conv_terms(x, w, pads=(1, 1, 1, 1)):
    views = taps(padded(x, pads), (3, 3), (1, 1), (1, 1))
    for tap, view in enumerate(views):
        for channel in range(w.shape[1]):
            yield view[:, channel : channel + 1], w[:, channel, tap // 3, tap % 3].reshape(1, -1, 1, 1)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_conv(dtype):
    x, w = normal(1, 16, 9, 10, dtype=dtype), normal(8, 16, 3, 3, dtype=dtype, scale=0.1)
    given = {"x": x, "w": w}
    right = dot(conv_terms(x, w))
    assert compared(CONV, given, right.astype(dtype)).outside == 0
    assert compared(CONV, given, dot(list(conv_terms(x, w))[::-1]).astype(dtype)).outside == 0
    terms = list(conv_terms(x, w))
    swapped = list(terms)
    swapped[1], swapped[17] = (terms[1][0], terms[17][1]), (terms[17][0], terms[1][1])
    wrong = {
        "a dropped tap": dot([*terms[:70], *terms[71:]]),
        "two taps swapped": dot(swapped),
        "a wrong pad": np.roll(right, 1, axis=3),
        "half accumulation": dot(terms, np.float16).astype(np.float32),
        "one partial sum in half": dot(terms[:72]) + dot(terms[72:]).astype(np.float16).astype(np.float32),
    }
    for what, result in wrong.items():
        assert compared(CONV, given, result.astype(dtype)).outside > 0, what
    if dtype == "float16":
        assert compared(CONV, given, truncated(right)).outside > 0


def test_sums_of_sixteen_in_half_are_seen_and_a_dropped_tap_beside_them_too():
    """With half sums a target says so: its precision is float16, over 16 products."""
    x, w = normal(1, 16, 9, 10, dtype="float16"), normal(8, 16, 3, 3, dtype="float16", scale=0.1)
    result = dot(conv_terms(x, w), np.float16, block=16).astype(np.float16)
    assert compared(CONV, {"x": x, "w": w}, result).outside > 0


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("rows", [1, 7])
def test_matmul(dtype, rows):
    a, b = normal(rows, 300, dtype=dtype), normal(5, 300, dtype=dtype)
    node = ops.MatMul("m", ("a", "b"), "y", transposed=True)
    terms = [(a[:, k, None], b[None, :, k]) for k in range(300)]
    given = {"a": a, "b": b}
    assert compared(node, given, dot(terms).astype(dtype)).outside == 0
    assert compared(node, given, dot(terms[:-1]).astype(dtype)).outside > 0
    assert compared(node, given, dot(terms, np.float16).astype(dtype)).outside > 0


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_conv_transpose(dtype):
    x, w = normal(1, 3, 4, 5, dtype=dtype), normal(3, 2, 3, 3, dtype=dtype)
    node = ops.ConvTranspose("t", ("x", "w"), "y", (2, 2), (1, 1, 1, 1), (1, 1), (1, 1), 1)
    total = np.zeros((1, 2, 10, 12), np.float32)
    for i in range(3):
        for j in range(3):
            for channel in range(3):
                weight = w[channel, :, i, j].reshape(1, 2, 1, 1).astype(np.float32)
                part = x[:, channel, None].astype(np.float32) * weight
                total[:, :, i : i + 7 : 2, j : j + 9 : 2] += part
    right = total[:, :, 1:-1, 1:-1]
    assert compared(node, {"x": x, "w": w}, right.astype(dtype)).outside == 0
    assert compared(node, {"x": x, "w": w}, total[:, :, :-2, 1:-1].astype(dtype)).outside > 0


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_reductions(dtype):
    x = normal(4, 200, dtype=dtype)
    wide = x.astype(np.float32)
    cases = {
        "sum": (dot([(x[:, [k]], np.ones((1, 1))) for k in range(200)]), wide[:, :-1].sum(1, keepdims=True)),
        "mean": (wide.mean(1, keepdims=True), wide.sum(1, keepdims=True) / 199),
        "max": (wide.max(1, keepdims=True), np.nextafter(wide.max(1, keepdims=True), np.float32(0)) * 0.99),
        "prod": (wide[:, :9].prod(1, keepdims=True), wide[:, 1:9].prod(1, keepdims=True)),
    }
    for kind, (right, wrong) in cases.items():
        node = ops.Reduce("r", ("x",), "y", kind, (1,))
        given = {"x": x[:, :9] if kind == "prod" else x}
        assert compared(node, given, right.astype(dtype)).outside == 0, kind
        assert compared(node, given, wrong.astype(dtype)).outside > 0, kind


def test_argmax_is_the_first_of_equals():
    x = np.array([[1, 3, 3, 2]], np.float32)
    node = ops.Reduce("r", ("x",), "y", "argmax", (1,))
    assert compared(node, {"x": x}, np.array([[1]])).outside == 0
    assert compared(node, {"x": x}, np.array([[2]])).outside == 1


def test_top_k_is_the_first_of_equals():
    x = np.array([[1, 3, np.nan, 3, 2, -np.inf]], np.float32)
    for largest, right in ((True, [2, 1, 3, 4]), (False, [2, 5, 0, 4])):
        node = ops.TopK("t", ("x",), "y", 1, 4, largest)
        assert compared(node, {"x": x}, np.array([right])).outside == 0
        assert compared(node, {"x": x}, np.array([[right[0], right[2], right[1], right[3]]])).outside == 2


@pytest.mark.parametrize("reduction", ["add", "mul", "max", "min"])
def test_scatters_that_combine(reduction):
    random = np.random.default_rng(3)
    x, updates = (random.normal(size=shape).astype(np.float32) for shape in ((4, 6), (9, 6)))
    indices = np.array([0, 3, 3, 1, 3, 0, 3, 3, 0]).reshape(-1, 1)
    node = ops.Scatter("s", ("x", "i", "u"), "y", reduction)
    combine = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[reduction]

    def scattered(count):
        result = x.copy()
        for (row,), update in zip(indices[:count], updates, strict=False):
            result[row] = combine(result[row], update)
        return result

    inputs = {"x": x, "i": indices, "u": updates}
    assert compared(node, inputs, scattered(9)).outside == 0
    assert compared(node, inputs, scattered(4)).outside > 0


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_softmax(dtype):
    x = normal(3, 50, dtype=dtype, scale=4)
    node = ops.Softmax("s", ("x",), "y", 1)
    wide = x.astype(np.float32)
    power = np.exp(wide - wide.max(1, keepdims=True))
    right = power / power.sum(1, keepdims=True)
    assert compared(node, {"x": x}, right.astype(dtype)).outside == 0
    wrong = power / power[:, 1:].sum(1, keepdims=True)
    assert compared(node, {"x": x}, wrong.astype(dtype)).outside > 0
    if dtype == "float32":  # a result in float16 is as coarse as such a sum
        halved = power / power.sum(1, keepdims=True).astype(np.float16)
        assert compared(node, {"x": x}, halved).outside > 0


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("centre", [True, False])
def test_normalize(dtype, centre):
    x, scale = normal(6, 64, dtype=dtype) + np.asarray(0.5, dtype), normal(64, dtype=dtype)
    node = ops.Normalize("n", ("x", "g"), "y", (1,), 1e-5, centre)
    wide = x.astype(np.float32)
    distance = wide - wide.mean(1, keepdims=True) if centre else wide
    variance = (distance**2).mean(1, keepdims=True)
    right = distance / np.sqrt(variance + np.float32(1e-5)) * scale.astype(np.float32)
    assert compared(node, {"x": x, "g": scale}, right.astype(dtype)).outside == 0
    unbiased = distance / np.sqrt(variance * 64 / 63 + np.float32(1e-5)) * scale.astype(np.float32)
    half = (
        distance
        / np.sqrt(variance.astype(np.float16).astype(np.float32) + np.float32(1e-5))
        * scale.astype(np.float32)
    )
    assert compared(node, {"x": x, "g": scale}, unbiased.astype(dtype)).outside > 0
    assert compared(node, {"x": x, "g": scale}, half.astype(dtype)).outside > 0


def test_map_of_halves_truncated_or_computed_in_half():
    x, y = normal(4000, dtype="float16"), normal(4000, dtype="float16")
    node = ops.Map("m", ("x", "y"), "z", trace(lambda x, y: apply("exp", x) * y + 0.25, "real", "real"))
    wide = np.exp(x.astype(np.float32)) * y.astype(np.float32) + np.float32(0.25)
    assert compared(node, {"x": x, "y": y}, wide.astype(np.float16)).outside == 0
    assert compared(node, {"x": x, "y": y}, truncated(wide)).outside > 0
    assert compared(node, {"x": x, "y": y}, np.exp(x) * y + np.float16(0.25)).outside > 0


def test_a_bias_too_small_for_one_element_is_seen_in_the_whole_tensor():
    """Every element is off by half of what it may be: rounding has no such mean."""
    x, w = normal(40, 64), normal(30, 64)
    node = ops.MatMul("m", ("x", "w"), "y", transposed=True)
    right = x.astype(np.float64) @ w.T.astype(np.float64)
    allowed = 2 * np.sqrt(65) * 2.0**-24 * (np.abs(x) @ np.abs(w).T)
    found = compared(node, {"x": x, "w": w}, (right + allowed * 0.6).astype(np.float32))
    assert found.worst_share < 1
    assert found.outside == right.size


# -- ties, infinities, nothing at all -----------------------------------------------------------------------


def test_ties_are_counted_and_nothing_beyond_them_is_taken():
    x = np.array([2.5, 3.5, 1.2], np.float32) / np.float32(3)
    node = ops.Map("m", ("x",), "y", trace(lambda x: apply("trunc", apply("rint", x * 3.0)), "real"))
    right = np.array([2, 4, 1], np.int64)
    shares = []
    for change, outside in ((0, 0), (1, 0), (2, 1)):
        found = compared(node, {"x": x}, right + np.array([change, 0, 0]))
        assert found.outside == outside
        shares.append(found.ties)
    assert max(shares) >= 1
    assert compared(node, {"x": x}, right + np.array([0, 0, 1])).outside == 1


def test_nan_and_infinity_are_carried():
    x = np.array([[np.nan, 1], [np.inf, 1], [-np.inf, np.inf], [1, 2]], np.float32)
    w = np.ones((1, 2), np.float32)
    node = ops.MatMul("m", ("x", "w"), "y", transposed=True)
    right = np.array([[np.nan], [np.inf], [np.nan], [3]], np.float32)
    assert compared(node, {"x": x, "w": w}, right).outside == 0
    for row, value in ((0, 1), (1, np.nan), (1, -np.inf), (2, np.inf), (3, np.nan)):
        wrong = right.copy()
        wrong[row] = value
        assert compared(node, {"x": x, "w": w}, wrong).outside == 1


def test_half_overflow_is_an_infinity():
    x = np.array([300, 255, 100], np.float16)
    node = ops.Map("m", ("x",), "y", trace(lambda x: x * x, "real"))
    right = np.array([np.inf, 65024, 10000], np.float16)
    assert dtypes.encode(x.astype(np.float64) ** 2, "float16").tolist()[0] == np.inf
    assert compared(node, {"x": x}, right).outside == 0
    assert compared(node, {"x": x}, np.where(np.isinf(right), np.float16(65504), right)).outside == 1


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16", "float8e4m3fn"])
def test_moves_are_exact(dtype):
    stored = RANDOM.integers(0, 100, (3, 4)).astype(dtypes.storage(dtype))
    tensors = {"x": Tensor("x", (3, 4), dtype), "y": Tensor("y", (4, 3), dtype)}
    node = ops.Transpose("t", ("x",), "y", (1, 0))
    graph = Graph("g", ("x",), ("y",), tensors, (node,))
    expected = reference.expect(graph, node, {"x": stored})
    assert reference.compare(expected, stored.T, dtype).worst_diff == 0
    wrong = stored.T.copy()
    bits = wrong.view(f"uint{8 * wrong.itemsize}")
    bits[0, 0] ^= 1
    assert reference.compare(expected, wrong, dtype).outside == 1


# -- recurrences and regions --------------------------------------------------------------------------------


def leaky(steps):
    """h = tanh(0.9 h + x), over a sequence."""
    function = trace(lambda x, h: apply("tanh", h * 0.9 + x), "real", "real")
    inner = {name: Tensor(name, (1, 5), "float32") for name in ("xt", "h", "next")}
    body = Graph("body", ("xt", "h"), ("next",), inner, (ops.Map("cell", ("xt", "h"), "next", function),))
    return ops.Recurrent("r", ("x", "h0"), "y", body, steps, 1, backward=False)


def test_a_recurrence_is_compared_step_by_step_from_what_the_target_had():
    x, h = normal(40, 1, 5), np.zeros((1, 5), np.float32)
    node, given = leaky(40), {}
    given = {"x": x, "h0": h}
    states = []
    for step in range(40):
        h = np.tanh(h * np.float32(0.9) + x[step])
        states.append(h)
    actual = np.stack(states)[:, None]
    assert compared(node, given, actual).outside == 0
    off = actual.copy()
    off[17] = np.tanh(actual[16] * np.float32(0.91) + x[17])
    assert 0 < compared(node, given, off).outside <= 15  # what follows from it is wrong there alone
    backward = dataclasses.replace(node, backward=True)
    assert compared(backward, given, actual).outside > 100


def test_a_region_is_its_nodes_roundings_included():
    x = normal(1000, dtype="float16")
    tensors = {name: Tensor(name, (1000,), "float16") for name in ("x", "a", "y")}
    nodes = (
        ops.Map("first", ("x",), "a", trace(lambda x: x * 3.3, "real")),
        ops.Map("second", ("a",), "y", trace(lambda a: a - 1.7, "real")),
    )
    region = ops.Region("r", ("x",), "y", nodes)
    graph = Graph("g", ("x",), ("y",), tensors, (region,))
    verify(graph)
    inner = (x.astype(np.float32) * np.float32(3.3)).astype(np.float16)
    right = (inner.astype(np.float32) - np.float32(1.7)).astype(np.float16)
    found = reference.compare(reference.expect(graph, region, {"x": x}), right, "float16")
    assert found.outside == 0
    assert np.array_equal(reference.run(graph, {"x": x})["y"], right)
    wrong = (x.astype(np.float32) * np.float32(3.31) - np.float32(1.7)).astype(np.float16)
    assert reference.compare(reference.expect(graph, region, {"x": x}), wrong, "float16").outside > 0
