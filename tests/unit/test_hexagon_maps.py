"""Generated kernels of Maps on hexagon-v65: every layer is the reference, whatever lies around it."""

import numpy as np
import pytest

from sdk.expression.trace import apply, clip, select, sigmoid
from sdk.targets import get_target
from tests.contract.targets import assert_identical
from tests.graph_builder import GraphBuilder, together
from tests.unit import test_exact_maps
from tests.unit.test_exact_maps import CHANNEL, FUNCTIONS, NUMBERS, PICTURE, ROW

HEXAGON = get_target("hexagon-v65")


def graph_of(*args, **options):
    return test_exact_maps.graph_of(*args, **options)[0]


@pytest.mark.slow
def test_maps_of_planes():
    assert_identical(
        HEXAGON, together({name: graph_of(*FUNCTIONS[name], seed=len(name)) for name in FUNCTIONS})
    )


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_map_of_planes(name, dtype):
    graph = graph_of(*FUNCTIONS[name], dtype=dtype, seed=len(name) + 2)
    assert_identical(HEXAGON, graph)


ROWS, LAST = (1, 5, 77), np.linspace(-2, 1, 77)
WIDE, WIDE_LAST = (1, 11, 192), np.linspace(-1, 2, 192)

DENSE = {
    "of equal shapes": (lambda x, y: sigmoid(x) - y, [ROWS, ROWS], []),
    "by constants of the last axis": (lambda x, c, d: x * c + d, [ROWS], [LAST, LAST[::-1]]),
    "by constants that repeat every three vectors": (
        lambda x, y, c, d: (x - y) * c + d,
        [WIDE, WIDE],
        [WIDE_LAST, WIDE_LAST[::-1].reshape(1, 192)],
    ),
    "by constants of a middle axis": (lambda x, c: x * c, [ROWS], [np.linspace(-1, 1, 5).reshape(5, 1)]),
    "by a row, a column and one element": (
        lambda x, y, z, c: apply("max", x, y) * c - apply("tanh", z),
        [(1, 5, 1), (1, 1, 77), (1, 1, 1)],
        [0.7],
    ),
    "of one pixel": (
        lambda x, y, c: x * y + c,
        [(1, 13, 1, 1)] * 2,
        [np.linspace(0, 1, 13).reshape(13, 1, 1)],
    ),
    "of a vector": (lambda x, y: x * 0.3 + y * y, [(1, 300), (1, 300)], []),
    "of more axes than planes have": (lambda x, y: x + sigmoid(y), [(1, 2, 3, 4, 5), (1, 2, 1, 1, 5)], []),
}


@pytest.mark.slow
def test_maps_of_dense_tensors():
    graph = together({name: graph_of(*DENSE[name], seed=len(name)) for name in DENSE})
    assert_identical(HEXAGON, graph, guard=128)


@pytest.mark.slow
def test_constants_of_pixels_and_of_all_elements():
    pixels = np.linspace(-2, 2, 42).reshape(6, 7)
    every = np.linspace(-1, 1, 210).reshape(1, 5, 6, 7)

    def function(x, y, c, d):
        return select(x < c, y * d, clip(x, c, 5.0)) + apply("tanh", y)

    graph = graph_of(function, [PICTURE, CHANNEL], [pixels, every], seed=3)
    assert_identical(HEXAGON, graph, guard=128)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_all_operations_at_once(seed):
    """Comparisons of all kinds, logic, and values that a select takes from all of them."""

    def function(x, y, z, c):
        both = apply("and", x <= y, apply("not", z < c))
        either = apply("or", apply("eq", x, z), apply("xor", both, y < 0.2))
        chosen = select(either, -x, apply("abs", y - z * c))
        return apply("min", chosen, select(both, x * y, z / 3.0)) - apply("max", x, c) * 0.5

    graph = graph_of(function, [PICTURE, CHANNEL, ROW], [NUMBERS], seed=seed)
    assert_identical(HEXAGON, graph)


@pytest.mark.slow
def test_comparisons_of_equals():
    """With one scale, some of so many elements are equal."""
    wide = (1, 5, 30, 33)
    functions = {
        "<=": lambda x, y: select(x <= y, y, 1.0),
        "<": lambda x, y: select(x < y, y, 1.0),
        "=": lambda x, y: select(apply("eq", x, y), 2.0, y),
    }
    graphs = {name: graph_of(made, [wide, wide], scales=(0.02, 0.02)) for name, made in functions.items()}
    assert_identical(HEXAGON, together(graphs))


def test_what_q31_does_not_define_is_refused_with_its_reason():
    graph = graph_of(lambda x, y: x * sigmoid(y), [PICTURE, PICTURE])
    verdict = HEXAGON.supports(graph, graph.nodes[0])
    assert not verdict.supported
    assert verdict.hint
    many = [CHANNEL] * 17
    graph = graph_of(lambda *x: sum(x[1:], x[0]), many, scales=[0.01] * 17)
    assert not HEXAGON.supports(graph, graph.nodes[0]).supported


@pytest.mark.slow
def test_maps_between_layers_that_read_their_padding():
    """A BatchNormalization of its own, a PRelu, a gate; their results padded, concatenated and read again."""
    b = GraphBuilder((1, 6, 9, 13), seed=5)
    factors = np.linspace(-1.5, 2.5, 10).reshape(10, 1, 1)
    x = b.conv("x", 10, 3, pads=1)
    x = b.map(lambda x, m, a: x * m + a, x, constants=(factors, factors[::-1]))
    y = b.depthwise(x, pads=1)
    y = b.map(lambda x, c: select(x < 0, x * c, x), y, constants=(factors / 4,))
    y = b.map(lambda x, y, z: x * z - y, x, y, b.global_average_pool(y))
    z = b.conv(b.concat(b.alike(b.conv(x, 4), y), y), 5, 3, strides=2, pads=1)
    assert_identical(HEXAGON, b.graph(y, z), guard=128)


@pytest.mark.slow
def test_maps_of_several_samples():
    """Operands for each sample and for all: by channel, by pixel, and whole."""
    batch, gates = (3, 5, 4, 7), (3, 5, 1, 1)
    every = np.linspace(-1, 1, 3 * 140).reshape(batch)

    def function(x, y, z, c, d, e):
        return select(x < c, y * 0.7, x) + z * d - e

    graph = graph_of(function, [batch, gates, CHANNEL], [NUMBERS, every[:1], every], seed=7)
    assert_identical(HEXAGON, graph, guard=128)
    rows = np.linspace(-1, 1, 12).reshape(3, 1, 4)
    graph = graph_of(lambda x, y, c: x * c - y, [(3, 50, 4), (50, 1)], [rows], seed=8)
    assert_identical(HEXAGON, graph)
