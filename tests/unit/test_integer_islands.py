"""Islands of one operator on integers: near what floats give, and what stays as it is."""

import dataclasses
import math

import numpy as np
import pytest

from sdk import reference
from sdk.arithmetic import COLUMN_BITS, integer_taps
from sdk.graph import (
    Concat,
    ConvTranspose,
    Dequantize,
    Fill,
    Graph,
    Interpolate,
    MatMul,
    Node,
    Quantization,
    Quantize,
    Reshape,
    Tensor,
    Transpose,
)
from sdk.integer_islands import for_arithmetic, integer_islands, quantized_again
from sdk.shapes import output_shape
from sdk.targets import get_target
from sdk.verification import verify

LIMITS = {"uint8": (0, 255), "int8": (-128, 127)}


class Island:
    """Operators on plain tensors between Dequantizes of random inputs and a Quantize that fits the result."""

    def __init__(self, seed=0, dtype="uint8"):
        self.random = np.random.default_rng(seed)
        self.dtype = dtype
        self.tensors, self.values, self.nodes, self.inputs = {}, {}, [], []

    def input(self, *shape, zero_point=None):
        name, (low, high) = f"x{len(self.inputs)}", LIMITS[self.dtype]
        point = int(self.random.integers(low, high, endpoint=True)) if zero_point is None else zero_point
        self.tensors[name] = Tensor(name, shape, self.dtype, Quantization.per_tensor(0.02, point))
        self.values[name] = self.random.integers(low, high, shape, self.dtype, endpoint=True)
        self.inputs.append(name)
        return self.add(Dequantize(f"dequantize_{name}", (name,), f"{name}_real"), shape)

    def constant(self, name, data):
        self.tensors[name] = Tensor(name, data.shape, str(data.dtype), None, data)
        return name

    def add(self, node: Node, shape):
        self.tensors[node.output] = Tensor(node.output, tuple(shape), "float32")
        self.nodes.append(node)
        graph = Graph("island", tuple(self.inputs), (node.output,), self.tensors, (node,))
        self.values[node.output] = reference.evaluate(graph, node, self.values, "f32")
        return node.output

    def graph(self, x):
        """The whole, its last tensor quantised to `y`."""
        real, (low, high) = self.values[x], LIMITS[self.dtype]
        least, most = min(real.min(), 0), max(real.max(), 0)
        scale = float(np.float32((most - least) / 255 or 1))
        out = Quantization.per_tensor(scale, int(np.clip(round(low - least / scale), low, high)))
        self.tensors["y"] = Tensor("y", real.shape, self.dtype, out)
        self.nodes.append(Quantize("quantize", (x,), "y"))
        graph = Graph("island", tuple(self.inputs), ("y",), dict(self.tensors), tuple(self.nodes))
        verify(graph)
        return graph


def nearness(island, x, graph=None):
    """The network on integers, and the greatest difference of its result from the float one's."""
    graph = graph or island.graph(x)
    found = integer_islands(graph)
    verify(found)
    given = {name: island.values[name] for name in graph.inputs}
    exact = reference.run(found, given, "q31")["y"].astype(int)
    return found, int(np.abs(exact - reference.run(graph, given)["y"]).max())


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize(
    ("a", "b", "transposed"),
    [((3, 5), (5, 7), False), ((2, 3, 9, 33), (2, 3, 17, 33), True), ((4, 1, 6), (1, 6, 2), False)],
)
def test_a_product_of_two_activations(a, b, transposed, dtype):
    island = Island(sum(b), dtype)
    names = island.input(*a), island.input(*b)
    shape = (*np.broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-2] if transposed else b[-1])
    found, worst = nearness(island, island.add(MatMul("product", names, "p", transposed), shape))
    assert [(node.name, node.op, node.inputs) for node in found.nodes] == [
        ("product", "MatMul", ("x0", "x1"))
    ]
    assert worst <= 1


def weights(random, shape, axis, dtype="int8"):
    """Float constants as DequantizeLinear makes them."""
    low, high = (-127, 127) if dtype == "int8" else (0, 255)
    scales = random.uniform(0.001, 0.1, [shape[axis] if i == axis else 1 for i in range(len(shape))])
    zero = np.float32(0 if dtype == "int8" else 200)
    return (random.integers(low, high, shape, endpoint=True).astype(np.float32) - zero) * scales.astype(
        np.float32
    )


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_a_product_with_batches_of_constants(dtype):
    island = Island(7)
    x = island.input(2, 3, 8)
    w = island.constant("w", weights(island.random, (2, 8, 5), 2, dtype))
    bias = island.constant("bias", island.random.normal(size=5).astype(np.float32))
    found, worst = nearness(island, island.add(MatMul("product", (x, w, bias), "p", False), (2, 3, 5)))
    (node,) = found.nodes
    weight, bias = (found.tensor(name) for name in node.inputs[1:])
    assert weight.dtype == dtype
    assert weight.quantization.axis == 2
    assert bias.dtype == "int32"
    assert worst <= 1
    centred = weight.data.astype(np.int32) - weight.quantization.zero_point
    again = centred.astype(np.float32) * weight.quantization.scale
    assert np.array_equal(again, island.tensors["w"].data)


@pytest.mark.parametrize("group", [1, 2])
def test_a_transposed_convolution(group):
    island = Island(9 + group)
    x = island.input(1, 4, 5, 6)
    w = island.constant("w", weights(island.random, (4, 3, 3, 2), 1))
    bias = island.constant("bias", island.random.normal(size=3 * group).astype(np.float32))
    node = ConvTranspose("up", (x, w, bias), "u", (2, 2), (1, 0, 0, 1), (1, 0), (1, 1), group)
    found, worst = nearness(island, island.add(node, output_shape(node, island.tensors)))
    assert [(node.name, node.op) for node in found.nodes] == [("up", "ConvTranspose")]
    assert worst <= 1


def test_moves_behind_the_operator_follow_on_integers():
    island = Island(2)
    names = island.input(4, 6, zero_point=0), island.input(6, 3, zero_point=255)
    x = island.add(MatMul("product", names, "p", False), (4, 3))
    x = island.add(Transpose("turn", (x,), "t", (1, 0)), (3, 4))
    x = island.add(Reshape("flat", (x,), "f"), (12,))
    found, worst = nearness(island, x)
    assert [node.op for node in found.nodes] == ["MatMul", "Transpose", "Reshape"]
    assert all(tensor.dtype == "uint8" for tensor in found.tensors.values())
    assert worst <= 1


def test_what_stays_in_floats():
    """A result that is read as floats too, an operand that is not quantised, weights of full precision."""
    island = Island(3)
    names = island.input(4, 6), island.input(6, 3)
    graph = island.graph(island.add(MatMul("product", names, "p", False), (4, 3)))
    read_twice = dataclasses.replace(graph, outputs=("y", "p"))
    assert integer_islands(read_twice).nodes == graph.nodes
    squared = Island(4)
    x = squared.input(4, 4)
    x = squared.add(MatMul("square", (x, x), "s", False), (4, 4))
    assert (
        len(integer_islands(squared.graph(squared.add(MatMul("p", (x, x), "p", False), (4, 4)))).nodes) == 4
    )
    real = Island(5)
    w = real.constant("w", real.random.normal(size=(6, 3)).astype(np.float32))
    graph = real.graph(real.add(MatMul("product", (real.input(4, 6), w), "p", False), (4, 3)))
    assert integer_islands(graph).nodes == graph.nodes


def test_an_accumulator_beyond_int32_stays_in_floats():
    island = Island(6)
    names = island.input(1, 1 << 16, zero_point=0), island.input(1 << 16, 1, zero_point=255)
    graph = island.graph(island.add(MatMul("product", names, "p", False), (1, 1)))
    assert integer_islands(graph).nodes == graph.nodes


def test_only_targets_of_integers_see_them():
    island = Island(8)
    names = island.input(4, 6), island.input(6, 3)
    graph = island.graph(island.add(MatMul("product", names, "p", False), (4, 3)))
    assert for_arithmetic(graph, get_target("c").arithmetic) is graph
    assert len(for_arithmetic(graph, get_target("hexagon-v65").arithmetic).nodes) == 1


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_quantised_constants_are_found_again(axis, dtype):
    values = weights(np.random.default_rng(axis), (3, 4, 5), axis, dtype)
    integers, quantization = quantized_again(values, axis)
    shape = [-1 if i == axis else 1 for i in range(3)]
    zero_point, scale = quantization.zero_point.reshape(shape), quantization.scale.reshape(shape)
    assert np.array_equal((integers.astype(np.int32) - zero_point).astype(np.float32) * scale, values)
    values[1, 2, 3] = np.nextafter(values[1, 2, 3], np.float32(9))
    assert quantized_again(values, axis) is None


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_resized_by_weighted_sums(dtype):
    """Weights that few bits hold, and others; the range of the result is another."""
    for seed, sizes in enumerate([(10, 28), (7, 9), (3, 5)]):
        island = Island(seed, dtype)
        taps = [_linear(extent, size) for extent, size in zip((5, 7), sizes, strict=True)]
        names = [
            island.constant(f"c{i}", data) for i, data in enumerate(data for pair in taps for data in pair)
        ]
        x = island.input(2, 3, 5, 7)
        found, worst = nearness(island, island.add(Interpolate("up", (x, *names), "u"), (2, 3, *sizes)))
        assert [node.op for node in found.nodes] == ["Interpolate"]
        assert worst <= 1


def _linear(extent, size):
    places = np.clip((np.arange(size) + 0.5) * extent / size - 0.5, 0, extent - 1)
    first = np.minimum(np.floor(places), max(extent - 2, 0))
    weights = np.stack([1 + first - places, places - first], axis=1).astype(np.float32)
    return np.clip(np.stack([first, first + 1], axis=1), 0, extent - 1).astype(np.int32), weights


@pytest.mark.parametrize("ratio", [0.3, 1.0, 7.0])
def test_a_constant_picture_stays_constant(ratio):
    rows, columns = (_linear(extent, size)[1] for extent, size in ((5, 7), (7, 33)))
    taps = integer_taps(rows, columns, np.float32(ratio))
    assert len(set(taps.rows.sum(axis=1))) == 1
    assert (taps.columns.sum(axis=1) == 1 << COLUMN_BITS).all()


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_a_border_of_any_value(dtype):
    island = Island(9, dtype)
    x = island.add(Fill("border", (island.input(2, 3, 4),), "b", (0, 1, 2), (1, 0, 3), -1.7), (3, 4, 9))
    found, worst = nearness(island, x)
    assert [node.op for node in found.nodes] == ["Fill"]
    assert worst <= 1
    infinite = Island(10, dtype)
    x = infinite.add(Fill("border", (infinite.input(3),), "b", (1,), (0,), 0.0), (4,))
    graph = infinite.graph(x)
    nodes = tuple(
        dataclasses.replace(node, value=math.inf) if isinstance(node, Fill) else node for node in graph.nodes
    )
    graph = dataclasses.replace(graph, nodes=nodes)
    assert integer_islands(graph).nodes == nodes


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_concatenation_with_constants(axis):
    """Those of a class token, before and behind the one activation."""
    island = Island(axis)
    x, shape = island.input(2, 3, 5), [2, 3, 5]
    shape[axis] = 2
    first, last = (
        island.constant(name, island.random.normal(size=shape).astype(np.float32)) for name in "ab"
    )
    shape[axis] = 4 + (2, 3, 5)[axis]
    found, worst = nearness(island, island.add(Concat("join", (first, x, last), "j", axis), shape))
    assert [(node.name, node.op) for node in found.nodes] == [("join", "Fill"), ("join_constants", "Map")]
    assert worst <= 1


def test_a_concatenation_of_other_things_stays_in_floats():
    island = Island(5)
    x, y = island.input(2, 3), island.input(2, 4)
    joined = island.add(
        Concat("join", (x, y, island.constant("c", np.ones((2, 1), np.float32))), "j", 1), (2, 8)
    )
    graph = island.graph(island.add(Reshape("flat", (joined,), "f"), (16,)))
    assert integer_islands(graph).nodes == graph.nodes
