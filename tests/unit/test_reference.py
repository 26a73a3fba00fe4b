"""The reference by itself: definitions against plain loops, q31 and q15 against exact integers and f32."""

import math
import sys
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdk import reference
from sdk.arithmetic import q15, q31, q31_add, scale_ratio
from sdk.errors import InvalidInput
from sdk.graph import (
    Add,
    AveragePool,
    Conv,
    Dequantize,
    Gemm,
    GlobalAveragePool,
    Graph,
    MaxPool,
    Mul,
    Node,
    Quantization,
    Quantize,
    Requantize,
    Softmax,
    Tensor,
)
from sdk.reference.requantization import requantize
from sdk.shapes import output_shape
from sdk.verification import verify

PROPERTY = settings(derandomize=True, max_examples=60, deadline=None, database=None)
FULL = (0, 255)
ARITHMETICS = ("f32", "q31", "q15")


def graph_of(node: Node, *tensors: Tensor, scale=0.05, zero_point=120, dtype="uint8") -> Graph:
    """A graph of the one node; tensors without data are its inputs."""
    by_name = {tensor.name: tensor for tensor in tensors}
    shape = output_shape(node, by_name)
    by_name["y"] = Tensor("y", shape, dtype, Quantization.per_tensor(scale, zero_point))
    graph = Graph("one", tuple(t.name for t in tensors if t.data is None), ("y",), by_name, (node,))
    verify(graph)
    return graph


def activation(name, shape, scale=0.02, zero_point=131, dtype="uint8"):
    return Tensor(name, tuple(shape), dtype, Quantization.per_tensor(scale, zero_point))


def constant(name, array, scale, zero_point=0):
    scale = np.asarray(scale, np.float32)
    axis = 0 if scale.ndim else None
    quantization = Quantization(scale, np.full(scale.shape, zero_point, np.int32), axis)
    return Tensor(name, array.shape, str(array.dtype), quantization, array)


def exact(acc: int, scale, out, clamp, arithmetic, scales=()):
    """One element, in unbounded integers or single float32 steps; `scales` are all those of its node."""
    if arithmetic == "f32":
        rounded = int(np.rint(np.float32(acc) * np.float32(scale)))
    elif arithmetic == "q15":
        scales = np.array([scale, *scales], np.float32)
        c = q15(scales)
        product = Fraction((acc << int(c.left[0])) * int(c.multipliers[0]), 2**c.right)
        rounded = math.floor(product + Fraction(1, 2))
    else:
        c = q31(float(scale))
        rounded = ((acc << c.shift) * c.multiplier + 2**30) >> 31
    return min(max(rounded + out.zero_point, clamp[0]), clamp[1])


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
@pytest.mark.parametrize(("group", "per_group"), [(1, 3), (2, 2), (4, 1)])
def test_convolution_is_its_loops(arithmetic, group, per_group):
    random = np.random.default_rng(group)
    x = activation("x", (2, group * per_group, 5, 6))
    weight = constant(
        "w",
        random.integers(-128, 128, (group * 2, per_group, 2, 3), np.int8),
        random.uniform(0.005, 0.6, group * 2),  # some requantisation scales are beyond 1
        3,
    )
    bias = constant("b", random.integers(-9000, 9000, group * 2, np.int32), 1.0)
    node = Conv("conv", ("x", "w", "b"), "y", (2, 1), (1, 0, 2, 1), (1, 2), group, (10, 250))
    graph = graph_of(node, x, weight, bias, scale=0.1 if arithmetic == "f32" else 0.01)
    value = random.integers(0, 256, x.shape, np.uint8)
    result = reference.run(graph, {"x": value}, arithmetic)["y"]
    out = graph.tensor("y")
    scales = scale_ratio(x.scale, weight.quantization.scale, over=out.scale)
    for n, o, row, column in np.ndindex(*out.shape):
        acc = int(bias.data[o])
        for c, i, j in product(range(per_group), range(2), range(3)):
            r, k = row * 2 - 1 + i, column + 2 * j
            if 0 <= r < 5 and 0 <= k < 6:
                element = int(value[n, o // 2 * per_group + c, r, k]) - 131
                acc += element * (int(weight.data[o, c, i, j]) - 3)
        assert result[n, o, row, column] == exact(acc, scales[o], out, node.clamp, arithmetic, scales)


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
@pytest.mark.parametrize("include", [False, True])
def test_average_pool_is_its_loops(arithmetic, include):
    random = np.random.default_rng(1)
    x = activation("x", (1, 2, 5, 4))
    node = AveragePool("pool", ("x",), "y", (3, 2), (2, 1), (1, 1, 2, 0), include, FULL)
    graph = graph_of(node, x, scale=0.017)
    value = random.integers(0, 256, x.shape, np.uint8)
    result = reference.run(graph, {"x": value}, arithmetic)["y"]
    out = graph.tensor("y")
    for n, c, row, column in np.ndindex(*out.shape):
        taps = [(row * 2 - 1 + i, column - 1 + j) for i, j in product(range(3), range(2))]
        inside = [(r, k) for r, k in taps if 0 <= r < 5 and 0 <= k < 4]
        acc = sum(int(value[n, c, r, k]) - 131 for r, k in inside)
        count = 6 if include else len(inside)
        scale, largest = (np.float32(x.scale) / (np.float32(out.scale) * np.float32(n)) for n in (count, 2))
        scales = () if include else (largest,)  # a corner has two pixels
        assert result[n, c, row, column] == exact(acc, scale, out, FULL, arithmetic, scales)


def test_max_pool_padding_never_wins():
    for dtype, low in (("uint8", 0), ("int8", -128)):
        x = Tensor("x", (1, 1, 3, 3), dtype, Quantization.per_tensor(0.1, low + 200))
        node = MaxPool("pool", ("x",), "y", (2, 2), (1, 1), (1, 1, 1, 1), (1, 1))
        graph = graph_of(node, x, scale=0.1, zero_point=low + 200, dtype=dtype)
        value = np.full(x.shape, low + 1, dtype)
        assert (reference.run(graph, {"x": value})["y"] == low + 1).all()


@pytest.mark.slow
@PROPERTY
@given(
    st.floats(2.0**-20, 255.0, width=32),
    st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1),
    st.integers(0, 255),
)
def test_requantisation_is_exact_integers(scale, accumulators, zero_point):
    """Over the whole int32 range, which a Gemm's bias reaches without long sums."""
    bias = np.array([max(value, -(2**31) + 1) for value in accumulators], np.int32)
    weight = np.zeros((bias.size, 1), np.int8)
    tensors = activation("x", (1, 1), 1.0), constant("w", weight, scale), constant("b", bias, 1.0)
    graph = graph_of(Gemm("gemm", ("x", "w", "b"), "y", FULL), *tensors, scale=1.0, zero_point=zero_point)
    value = np.full((1, 1), 131, np.uint8)
    for arithmetic in ARITHMETICS:
        result = reference.run(graph, {"x": value}, arithmetic)["y"][0]
        expected = [exact(int(b), np.float32(scale), graph.tensor("y"), FULL, arithmetic) for b in bias]
        assert result.tolist() == expected


@pytest.mark.slow
@PROPERTY
@given(
    st.floats(2.0**-6, 20, width=32),
    st.floats(2.0**-6, 20, width=32),
    st.integers(0, 255),
    st.integers(0, 255),
)
def test_q31_add_is_its_formula(ratio_a, ratio_b, za, zb):
    a, b = np.meshgrid(np.arange(256, dtype=np.uint8), np.arange(256, dtype=np.uint8))
    ta, tb = activation("a", a.shape, ratio_a, za), activation("b", b.shape, ratio_b, zb)
    graph = graph_of(Add("add", ("a", "b"), "y", (3, 251)), ta, tb, scale=1.0, zero_point=77)
    result = reference.run(graph, {"a": a, "b": b}, "q31")["y"]
    c = q31_add(ratio_a, ratio_b)
    total = (a.astype(np.int64) - za) * c.a_multiplier + (b.astype(np.int64) - zb) * c.b_multiplier
    assert np.array_equal(result, np.clip((total + (1 << c.shift >> 1) >> c.shift) + 77, 3, 251))


# --- q31 and q15 against f32: the promise made for targets without vector floats ------------------------


def from_f32(graph, values, arithmetic="q31"):
    first, second = (reference.run(graph, values, name)["y"].astype(int) for name in (arithmetic, "f32"))
    return np.abs(first - second)


def promise(differences, exact_products, equal=0.9998):
    """At most one unit anywhere; equal on 99.98 % of what is not an exact tie."""
    difference, products = np.concatenate(differences), np.concatenate(exact_products)
    ties = products - np.floor(products) == 0.5
    assert difference.max() <= 1
    assert difference.size > 500_000
    assert (difference[~ties] == 0).mean() >= equal
    return int(ties.sum())


@pytest.mark.slow
@pytest.mark.parametrize(("arithmetic", "equal"), [("q31", 0.9998), ("q15", 0.998)])
def test_integers_are_close_to_f32_in_convolutions(arithmetic, equal):
    random = np.random.default_rng(2)
    differences, products = [], []
    for channels in (8, 33, 96):
        x = activation("x", (1, channels, 64, 64), 0.02)
        data = random.integers(-128, 128, (64, channels, 1, 1), np.int8)
        weight = constant("w", data, random.uniform(0.002, 0.02, 64))
        graph = graph_of(Conv("conv", ("x", "w"), "y", (1, 1), (0, 0, 0, 0), (1, 1), 1, FULL), x, weight)
        value = random.integers(0, 256, x.shape, np.uint8)
        acc = np.tensordot(data[:, :, 0, 0].astype(np.float64), value[0].astype(np.float64) - 131, 1)
        scales = [scale_ratio(0.02, s, over=graph.tensor("y").scale) for s in weight.quantization.scale]
        differences.append(from_f32(graph, {"x": value}, arithmetic).ravel())
        products.append((acc * np.array(scales, np.float64)[:, None, None]).ravel())  # exact: 24 + 24 bits
    promise(differences, products, equal)


def test_q31_is_close_to_f32_in_add():
    random = np.random.default_rng(3)
    a, b = np.meshgrid(np.arange(256, dtype=np.uint8), np.arange(256, dtype=np.uint8))
    differences, products = [], []
    for _ in range(30):
        ta, tb = (activation(name, a.shape, random.uniform(0.005, 0.05)) for name in "ab")
        graph = graph_of(Add("add", ("a", "b"), "y", FULL), ta, tb, scale=random.uniform(0.02, 0.08))
        ratio_a, ratio_b = (float(scale_ratio(t.scale, over=graph.tensor("y").scale)) for t in (ta, tb))
        differences.append(from_f32(graph, {"a": a, "b": b}).ravel())
        products.append(((a.astype(float) - 131) * ratio_a + (b.astype(float) - 131) * ratio_b).ravel())
    promise(differences, products)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["global", "window", "requantize"])
def test_q31_is_close_to_f32_in_means_and_requantisation(kind):
    random = np.random.default_rng(4)
    differences, products = [], []
    for _ in range(30):
        x = activation(
            "x", (1, 20000, 3, 7) if kind == "global" else (1, 20, 30, 40), random.uniform(0.01, 0.05)
        )
        node = {
            "global": GlobalAveragePool("pool", ("x",), "y", FULL),
            "window": AveragePool("pool", ("x",), "y", (2, 3), (1, 1), (0, 0, 0, 0), False, FULL),
            "requantize": Requantize("scale", ("x",), "y", FULL),
        }[kind]
        graph = graph_of(node, x, scale=random.uniform(0.008, 0.06))
        value = random.integers(0, 256, x.shape, np.uint8)
        centred = value.astype(np.float64) - 131
        if kind == "global":
            acc, count = centred.sum(axis=(2, 3)), 21
        elif kind == "window":
            acc, count = np.lib.stride_tricks.sliding_window_view(centred, (2, 3), (2, 3)).sum(axis=(4, 5)), 6
        else:
            acc, count = centred, 1
        scale = np.float32(x.scale) / (np.float32(graph.tensor("y").scale) * np.float32(count))
        differences.append(from_f32(graph, {"x": value}).ravel())
        products.append((acc * float(scale)).ravel())
    promise(differences, products)


def test_what_is_no_sum_is_the_same_in_q15_and_q31():
    """At scales of which the arithmetics differ, at or beside a tie, if sums have them."""
    x, other = activation("x", (256, 256), 0.02), activation("b", (256, 256), 0.03)
    each = np.arange(256, dtype=np.uint8)
    values = dict(zip("xb", np.meshgrid(each, each), strict=True))
    a, b = (value.astype(np.int32) - 131 for value in values.values())
    for node, acc, factors, scale in (
        (Mul("mul", ("x", "b"), "y", FULL), a * b, (0.02, 0.03), 0.08),
        (Requantize("scale", ("x",), "y", FULL), a, (0.02,), 0.2),
    ):
        graph = graph_of(node, x, *([other] if "b" in node.inputs else []), scale=scale)
        given = {name: values[name] for name in graph.inputs}
        results = [reference.run(graph, given, arithmetic)["y"] for arithmetic in ("q31", "q15")]
        np.testing.assert_array_equal(*results)
        ratio = scale_ratio(*factors, over=scale)
        sums = [requantize(acc, ratio, graph.tensor("y"), FULL, name) for name in ("q31", "q15")]
        assert (sums[0] != sums[1]).any()


def test_ties_part_the_arithmetics():
    """Half to even against half up: the one difference there is by definition."""
    x = activation("x", (1, 4), 0.5, 100)
    graph = graph_of(Requantize("scale", ("x",), "y", FULL), x, scale=1.0, zero_point=100)
    value = np.array([[101, 103, 99, 97]], np.uint8)  # 0.5, 1.5, -0.5, -1.5
    assert reference.run(graph, {"x": value}, "f32")["y"].tolist() == [[100, 102, 100, 98]]
    assert reference.run(graph, {"x": value}, "q31")["y"].tolist() == [[101, 102, 100, 99]]
    assert Fraction(1, 2) == Fraction(x.scale)


# --- head and tail, inputs ------------------------------------------------------------------------------


def float_graph():
    tensors = [
        Tensor("x", (1, 3), "float32"),
        Tensor("q", (1, 3), "int8", Quantization.per_tensor(0.5, -10)),
        Tensor("d", (1, 3), "float32"),
        Tensor("y", (1, 3), "float32"),
    ]
    nodes = Quantize("a", ("x",), "q"), Dequantize("b", ("q",), "d"), Softmax("c", ("d",), "y", 1)
    return Graph("float", ("x",), ("y",), {t.name: t for t in tensors}, nodes)


def test_quantize_saturates_and_rounds_half_to_even():
    values = reference.run(float_graph(), {"x": np.array([[0.25, 0.75, 1e9]], np.float32)})
    assert values["q"].tolist() == [[-10, -8, 127]]
    assert values["d"].tolist() == [[0, 1, 68.5]]
    assert values["y"].dtype == np.float32
    assert values["y"].sum() == pytest.approx(1)


@pytest.mark.filterwarnings("error")
def test_quantize_saturates_what_its_scale_takes_beyond_float32():
    values = reference.run(float_graph(), {"x": np.array([[3e38, -3e38, np.inf]], np.float32)})
    assert values["q"].tolist() == [[127, -128, 127]]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "no array"),
        ({"x": np.zeros((1, 3), np.float32), "z": 0}, "no input named 'z'"),
        ({"x": np.zeros((3,), np.float32)}, r"shape \[3\], expected \[1, 3\]"),
        ({"x": np.zeros((1, 3), np.int32)}, "dtype int32, expected float32"),
        ({"x": np.full((1, 3), np.nan, np.float32)}, "NaN"),
    ],
)
def test_wrong_inputs_are_refused(inputs, message):
    with pytest.raises(InvalidInput, match=message):
        reference.run(float_graph(), inputs)


def python_calls(outputs, arithmetic):
    """Python functions that a Conv with so many output channels enters."""
    random = np.random.default_rng(outputs)
    weight = random.integers(-127, 128, (outputs, 4, 1, 1), np.int8)
    scales = random.uniform(0.001, 0.002, outputs)
    node = Conv("c", ("x", "w"), "y", (1, 1), (0, 0, 0, 0), (1, 1), group=1, clamp=FULL)
    graph = graph_of(node, activation("x", (1, 4, 3, 3)), constant("w", weight, scales))
    inputs = {"x": random.integers(0, 256, (1, 4, 3, 3), np.uint8)}
    reference.run(graph, inputs, arithmetic)  # what numpy imports at its first use
    count = 0

    def called(frame, event, argument):
        nonlocal count
        count += event == "call"

    sys.setprofile(called)
    try:
        reference.run(graph, inputs, arithmetic)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("arithmetic", ["f32", "q31"])
def test_channels_are_not_gone_through_in_python(arithmetic):
    assert python_calls(256, arithmetic) <= python_calls(8, arithmetic) + 2
