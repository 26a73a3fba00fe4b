"""Reduce, Softmax, Normalize of quantised tensors: near real arithmetic, and on hexagon-v65 bit for bit."""

import dataclasses
import math

import numpy as np
import pytest

from sdk import reference
from sdk.graph import Graph, Normalize, Quantization, Reduce, Reshape, Softmax, Tensor
from sdk.integer_islands import integer_islands
from sdk.reference import dtype_range
from sdk.target import Options
from sdk.targets import get_target
from sdk.verification import verify
from tests.contract.targets import assert_identical, random_input
from tests.graph_builder import together
from tests.unit.test_integer_islands import Island, nearness

HEXAGON = get_target("hexagon-v65")


def graph_of(make, shape, output, dtype="uint8", zero_points=(140, 9), scales=(0.03, 0.05)):
    """A graph of one node between quantised tensors; zero-points are those of uint8."""
    low = dtype_range(dtype)[0]
    tensors = {
        name: Tensor(name, extents, dtype, Quantization.per_tensor(scale, zero_point + low))
        for name, extents, scale, zero_point in zip("xy", (shape, output), scales, zero_points, strict=True)
    }
    graph = Graph("test", ("x",), ("y",), tensors, (make("node", ("x",), "y"),))
    verify(graph)
    return graph


def real(graph, name, values):
    tensor = graph.tensor(name)
    return (values.astype(np.float64) - tensor.zero_point) * tensor.scale


def steps_from_real(graph, wanted):
    """How far the definition is from real arithmetic, in steps of the output beyond its own rounding."""
    values = random_input(graph)
    found = reference.run(graph, values, "q31")["y"]
    out = graph.tensor("y")
    exact = np.clip(wanted(values["x"]) / out.scale + out.zero_point, *dtype_range(out.dtype))
    return float(np.abs(found - exact).max()) - 0.5


# -- Reduce -----------------------------------------------------------------------------------------------

FUNCTIONS = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min}

SHAPES = {
    "channels": ((1, 7, 5, 9), (1,)),
    "channels of a whole plane": ((1, 8, 6, 33), (1,)),
    "rows": ((1, 5, 6, 7), (2,)),
    "columns": ((1, 5, 6, 39), (3,)),
    "picture": ((1, 13, 6, 11), (2, 3)),
    "all": ((1, 3, 5, 7), (1, 2, 3)),
    "axes apart": ((1, 6, 5, 9), (1, 3)),
    "last of three": ((1, 37, 150), (2,)),
    "nearly a vector": ((1, 3, 127), (2,)),
    "middle of three": ((1, 37, 150), (1,)),
    "last of a matrix": ((1, 300), (1,)),
    "first of five": ((1, 3, 4, 5, 6), (1, 2)),
    "samples": ((3, 6, 5, 9), (1,)),
    "pictures": ((3, 6, 5, 9), (2, 3)),
    "over samples": ((3, 6, 5, 9), (0, 2)),
    "axes of one element": ((1, 20, 1, 1), (2, 3)),
}


def reduction(name, kind, keep=True, **options):
    shape, axes = SHAPES[name]
    kept = tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
    output = kept if keep else tuple(extent for axis, extent in enumerate(shape) if axis not in axes)
    count = math.prod(shape[axis] for axis in axes) if kind == "sum" else 1
    options = {"scales": (0.03, 0.03 * math.sqrt(count) * 1.3), "zero_points": (140, 128)} | options
    return graph_of(lambda *node: Reduce(*node, kind, axes), shape, output, **options)


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_a_reduction_is_near_the_real_one(kind):
    for name in SHAPES:
        for zero_point in (0, 255):
            graph = reduction(name, kind, zero_points=(zero_point, 255 - zero_point))
            axes = graph.nodes[0].axes

            def wanted(x, graph=graph, axes=axes):
                return FUNCTIONS[kind](real(graph, "x", x), axis=axes, keepdims=True)

            assert steps_from_real(graph, wanted) < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("keep", [True, False])
def test_reductions_on_the_device(keep):
    graphs = {
        f"{kind} {name}": reduction(name, kind, keep) for name in SHAPES for kind in ("sum", "max", "min")
    }
    assert_identical(HEXAGON, together(graphs), guard=128)


@pytest.mark.slow
def test_means_with_zero_points_at_the_ends():
    graphs = {
        f"{name} {low}": reduction(name, "mean", dtype=dtype, zero_points=(low, 255 - low))
        for dtype, name in (("uint8", "channels"), ("int8", "last of three"), ("int8", "samples"))
        for low in (0, 255)
    }
    assert_identical(HEXAGON, together(graphs))


def test_islands_of_reductions():
    island = Island(1)
    x = island.add(Reduce("mean", (island.input(1, 5, 7, 9),), "m", "mean", (1, 3)), (1, 1, 7, 1))
    found, worst = nearness(island, island.add(Reshape("flat", (x,), "f"), (1, 7)))
    assert [node.op for node in found.nodes] == ["Reduce", "Reshape"]
    assert worst <= 1
    island = Island(2)
    graph = island.graph(island.add(Reduce("prod", (island.input(1, 5),), "p", "prod", (1,)), (1, 1)))
    assert integer_islands(graph).nodes == graph.nodes


# -- Softmax ----------------------------------------------------------------------------------------------

SOFTMAXES = {
    "classes": ((1, 1000), 1),
    "attention": ((1, 3, 19, 197), 3),
    "words": ((1, 2, 3001), 2),
    "few": ((1, 40, 7), 2),
    "whole vectors": ((1, 3, 256), 2),
    "one": ((1, 9, 1), 2),
    "channels of a picture": ((1, 21, 5, 9), 1),
    "rows of a picture": ((1, 3, 5, 9), 2),
    "middle": ((1, 6, 50), 1),
    "channels of a pixel": ((1, 33, 1, 1), 1),
}


def softmax(name, **options):
    shape, axis = SOFTMAXES[name]
    options = {"scales": (0.11, 1 / 256), "zero_points": (100, 0)} | options
    return graph_of(lambda *node: Softmax(*node, axis), shape, shape, **options)


@pytest.mark.parametrize("scale", [1e-4, 0.02, 0.11, 3.0])
def test_softmax_is_near_the_real_one(scale):
    for name in SOFTMAXES:
        for output_scale, zero_point in ((1 / 256, 0), (0.0007, 30), (0.02, 255)):
            graph = softmax(name, scales=(scale, output_scale), zero_points=(3, zero_point))
            axis = graph.nodes[0].axis

            def wanted(x, graph=graph, axis=axis):
                exponential = np.exp(real(graph, "x", x) - real(graph, "x", x).max(axis, keepdims=True))
                return exponential / exponential.sum(axis, keepdims=True)

            assert steps_from_real(graph, wanted) < 2.0**-9


@pytest.mark.slow
def test_softmaxes_on_the_device():
    graphs = {name: softmax(name) for name in SOFTMAXES}
    graphs["sums of 32 bits"] = softmax("classes", scales=(1e-4, 1 / 20000))
    for number, options in enumerate(
        (
            {"scales": (1e-4, 1 / 2000), "zero_points": (255, 40)},
            {"scales": (2.0, 1 / 256), "zero_points": (0, 255)},
            {"scales": (0.05, 1 / 128), "dtype": "int8"},
            {"scales": (0.05, 300.0)},
        )
    ):
        graphs |= {f"{name} {number}": softmax(name, **options) for name in ("few", "rows of a picture")}
    assert_identical(HEXAGON, together(graphs), guard=128)


def test_islands_of_softmax():
    island = Island(3)
    graph = island.graph(island.add(Softmax("softmax", (island.input(1, 4, 90),), "s", 2), (1, 4, 90)))
    found, worst = nearness(island, "s", graph)
    assert [node.op for node in found.nodes] == ["Softmax"]
    assert worst <= 1
    fine = dataclasses.replace(graph.tensor("y"), quantization=Quantization.per_tensor(1e-7, 0))
    graph = dataclasses.replace(graph, tensors=graph.tensors | {"y": fine})
    assert integer_islands(graph).nodes == graph.nodes


# -- Normalize --------------------------------------------------------------------------------------------

NORMALIZATIONS = {
    "layer": ((1, 37, 192), (2,), (192,)),
    "odd layer": ((2, 3, 77), (2,), (77,)),
    "short": ((1, 70, 5), (2,), (5,)),
    "of two axes": ((1, 4, 6, 33), (2, 3), (6, 33)),
    "instance": ((2, 5, 9, 13), (2, 3), (5, 1, 1)),
    "group": ((1, 3, 4, 50), (2, 3), (3, 1, 1)),
    "channels": ((1, 24, 5, 7), (1,), (24, 1, 1)),
    "plain": ((1, 7, 64), (2,), None),
    "pairs": ((1, 700, 2), (2,), (2,)),
    "many": ((1, 2, 65536), (2,), (2, 1)),
    "a vector": ((1, 300), (1,), (300,)),
}


def normalization(name, centre=True, epsilon=1e-5, **options):
    shape, axes, of_factors = NORMALIZATIONS[name]
    options = {"scales": (0.03, 0.04), "zero_points": (140, 120)} | options
    random = np.random.default_rng(len(name))
    names = () if of_factors is None else ("x", "factors", "offsets")
    graph = graph_of(lambda n, x, y: Normalize(n, x, y, axes, epsilon, centre), shape, shape, **options)
    for constant, middle in zip(names[1:], (1.0, 0.0), strict=False):
        data = random.normal(middle, 0.4, of_factors).astype(np.float32)
        graph.tensors[constant] = Tensor(constant, data.shape, "float32", None, data)
    (node,) = graph.nodes
    graph = dataclasses.replace(graph, nodes=(dataclasses.replace(node, inputs=names or ("x",)),))
    verify(graph)
    return graph


@pytest.mark.parametrize("centre", [True, False])
def test_a_normalization_is_near_the_real_one(centre):
    for name in NORMALIZATIONS:
        for zero_point, scale, epsilon in ((0, 0.03, 1e-5), (255, 0.5, 1e-6), (128, 0.001, 1e-3)):
            graph = normalization(name, centre, epsilon, zero_points=(zero_point, 120), scales=(scale, 0.04))
            (node,) = graph.nodes
            constants = [graph.tensor(constant).data.astype(np.float64) for constant in node.inputs[1:]]

            def wanted(x, graph=graph, node=node, constants=constants):
                value = real(graph, "x", x)
                value = value - value.mean(node.axes, keepdims=True) * node.centre
                value = value / np.sqrt((value**2).mean(node.axes, keepdims=True) + node.epsilon)
                return value * constants[0] + constants[1] if constants else value

            assert steps_from_real(graph, wanted) < 2.0**-7


@pytest.mark.slow
def test_normalizations_on_the_device():
    graphs = {
        f"{name} {centre}": normalization(name, centre)
        for name in NORMALIZATIONS
        for centre in (0, 1)
        if name != "many"
    }
    for number, options in enumerate(
        (
            {"zero_points": (0, 255), "scales": (0.5, 0.3), "epsilon": 0.0},
            {"zero_points": (255, 0), "scales": (0.0005, 0.02), "epsilon": 1e-3},
            {"dtype": "int8", "scales": (0.03, 0.0004)},
        )
    ):
        for centre in (True, False):
            graphs |= {
                f"{name} {number} {centre}": normalization(name, centre, **options)
                for name in ("odd layer", "instance", "a vector", "pairs")
            }
    assert_identical(HEXAGON, together(graphs), guard=128)


@pytest.mark.slow
def test_the_most_elements_of_a_normalization_on_the_device():
    graphs = {name: normalization("many", name == "mean") for name in ("mean", "squares")}
    graphs["largest squares"] = normalization("many", False, zero_points=(255, 120))
    assert_identical(HEXAGON, together(graphs), guard=128)


def test_rows_of_equal_elements_on_the_device():
    """Nothing to normalise, and nothing added to it."""
    graph = normalization("layer", epsilon=0.0)
    with HEXAGON.open(None).load(HEXAGON.compile(graph, Options())) as session:
        for value in (0, 140, 255):
            values = {"x": np.full(graph.tensor("x").shape, value, np.uint8)}
            np.testing.assert_array_equal(session.run(values)["y"], reference.run(graph, values, "q31")["y"])


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(1, 13, 6, 11), (3, 13, 6, 11)])
def test_means_of_pictures_without_their_axes(shape):
    """The result of one sample may lack the axis of samples too."""
    axes = (0, 2, 3) if shape[0] == 1 else (2, 3)
    output = tuple(extent for axis, extent in enumerate(shape) if axis not in axes)
    graph = graph_of(lambda *names: Reduce(*names, "mean", axes), shape, output)
    assert_identical(HEXAGON, graph, guard=128)
