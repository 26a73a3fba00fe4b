"""Moves, windows of several samples and interpolation on hexagon-v65: bit for bit, whatever lies around."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsp.hexagon.lowering import lower
from dsp.hexagon.tuning import signature
from sdk.graph import Quantization
from sdk.passes import unsigned_activations
from sdk.targets import get_target
from tests.contract.targets import assert_identical
from tests.graph_builder import GraphBuilder

HEXAGON = get_target("hexagon-v65")
both_dtypes = pytest.mark.parametrize("dtype", ["uint8", pytest.param("int8", marks=pytest.mark.slow)])


def layers(graph):
    return {layer.name: layer for layer in lower(unsigned_activations(graph)).layers}


# -- Slice, Take ------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "samples", [1, pytest.param(2, marks=pytest.mark.slow)], ids=["one sample", "two samples"]
)
def test_channels_of_planes(samples):
    """From the first of a plane on, from another one, in another order; read with their padding."""
    b = GraphBuilder((samples, 3, 7, 37), seed=1)
    x = b.conv("x", 21)
    extent = (samples, 21, 7, 37)
    first = b.slice(x, (0, 4, 0, 0), (samples, 13, *extent[2:]))
    shifted = b.slice(x, (0, 3, 0, 0), (samples, 9, *extent[2:]))
    last = b.slice(x, (0, 18, 0, 0), (samples, 3, *extent[2:]))
    back = b.slice(x, (0, 20, 0, 0), (samples, 7, *extent[2:]), (1, -3, 1, 1))
    mixed = b.take(x, (), (3, 1, 1, 20), (), ())
    reads = [b.conv(part, 3, 3, pads=1) for part in (first, shifted, last)]
    assert_identical(HEXAGON, b.graph(*reads, first, back, mixed), guard=128)
    assert_identical(HEXAGON, b.graph(*reads))


@pytest.mark.slow
def test_rows_and_columns():
    b = GraphBuilder((2, 3, 9, 37), seed=2)
    x = b.conv("x", 9)
    inner = b.slice(x, (0, 4, 2, 5), (2, 5, 5, 30))
    outputs = [
        b.conv(inner, 3, 3, pads=1),
        b.slice(x, (0, 4, 8, 36), (2, 5, 5, 12), (1, 1, -2, -3)),
        b.slice(x, (1, 5, 2, 5), (1, 3, 5, 30)),
        b.slice(x, (0, 5, 2, 5), (2, 3, 1, 1)),
        b.take(x, (), (), (3, 3, 1), (5, 5, 30, 2)),
        b.take(x, (1, 0, 1), (4, 5), (), ()),
        b.take(x, (), (), (1, 0, 1), (*range(37), *range(37))),
    ]
    assert_identical(HEXAGON, b.graph(*outputs), guard=128)


@pytest.mark.slow
@both_dtypes
def test_dense_tensors_of_any_rank(dtype):
    b = GraphBuilder((2, 3, 2, 3, 2, 3, 2, 3, 2, 2), seed=3, dtype=dtype)
    matrix = b.reshape("x", (72, 72))
    outputs = [
        b.transpose("x", (9, 7, 5, 3, 1, 0, 2, 4, 6, 8)),
        b.requantize("x", relu=True),
        b.slice(
            "x",
            (1, 2, 0, 0, 1, 2, 0, 0, 0, 1),
            (2, 2, 2, 3, 2, 3, 2, 2, 2, 1),
            (-1, -2, 1, 1, -1, -1, 1, 2, 1, 1),
        ),
        b.transpose(matrix, (1, 0)),
        b.transpose(b.reshape("x", (16, 9, 36)), (2, 1, 0)),
        b.transpose(b.reshape("x", (3, 4, 3, 2, 8, 9)), (2, 0, 3, 5, 1, 4)),
        b.slice(matrix, (3, 1), (60, 35), (1, 2)),
        b.slice(matrix, (3, 71), (60, 36), (1, -2)),
        b.slice(b.reshape("x", (5184,)), (3,), (5001,)),
        b.slice(matrix, (7, 0), (31, 72)),
        b.take(matrix, (5, 1, 9), (3, 70, 1)),
        b.take(b.reshape("x", (72, 1, 72)), (), (0,) * 5, ()),
        b.concat(matrix, matrix, axis=0),
    ]
    assert_identical(HEXAGON, b.graph(*outputs), guard=128)


@pytest.mark.slow
def test_pixels_to_channels_and_back():
    """DepthToSpace, SpaceToDepth and a shuffle of channels, as importers give them."""
    b = GraphBuilder((1, 8, 6, 37), seed=4)
    x = b.conv("x", 16)
    wide = b.transpose(b.reshape(x, (1, 2, 2, 4, 6, 37)), (0, 3, 4, 1, 5, 2))
    wide = b.reshape(wide, (1, 4, 12, 74))
    deep = b.transpose(b.reshape(wide, (1, 4, 6, 2, 37, 2)), (0, 3, 5, 1, 2, 4))
    deep = b.conv(b.reshape(deep, (1, 16, 6, 37)), 3, 3, pads=1)
    mixed = b.transpose(b.reshape(x, (1, 2, 8, 6, 37)), (0, 2, 1, 3, 4))
    mixed = b.conv(b.reshape(mixed, (1, 16, 6, 37)), 3)
    assert_identical(HEXAGON, b.graph(wide, deep, mixed), guard=128)


@pytest.mark.slow
def test_halves_of_channels_are_joined_without_a_copy():
    """A detector's stage: both halves, and what became of the second, beside each other again."""
    b = GraphBuilder((1, 3, 6, 9), seed=5)
    x = b.conv("x", 16)
    halves = [b.slice(x, (0, start, 0, 0), (1, 8, 6, 9)) for start in (0, 8)]
    more = b.alike(b.conv(halves[1], 8, 3, pads=1), x)
    joined = b.concat(*halves, more)
    graph = b.graph(b.conv(joined, 5, 3, pads=1))
    made = layers(graph)
    assert not {*halves} & made.keys()
    assert {call.kernel.symbol for call in made[joined].calls} == {"fill"}  # of the padding
    assert_identical(HEXAGON, graph, guard=128)


@pytest.mark.slow
@pytest.mark.parametrize("order", ["turned", "in part", "twice"])
def test_halves_of_channels_in_another_order_are_copied(order):
    b = GraphBuilder((1, 3, 6, 9), seed=5)
    x = b.conv("x", 16)
    first, second = (b.slice(x, (0, start, 0, 0), (1, 8, 6, 9)) for start in (0, 8))
    other = b.alike(b.conv("x", 8), x)
    parts = {"turned": (second, first), "in part": (first, other), "twice": (first, second, first)}[order]
    joined = b.concat(*parts)
    assert_identical(HEXAGON, b.graph(b.conv(joined, 5), b.conv(x, 5), b.conv(other, 5)), guard=128)


@pytest.mark.slow
@settings(max_examples=40)
@given(
    data=st.data(), shape=st.tuples(*map(st.integers, (1, 1, 1, 1), (3, 13, 9, 70))), seed=st.integers(0, 99)
)
def test_any_selection(data, shape, seed):
    b = GraphBuilder(
        (shape[0], 2, *shape[2:]), seed=seed, dtype=data.draw(st.sampled_from(["uint8", "int8"]))
    )
    x = b.conv("x", shape[1])
    steps = [data.draw(st.sampled_from([1, 1, 1, -1, 2, 3, -2])) for _ in shape]
    starts = [data.draw(st.integers(0, extent - 1)) for extent in shape]
    rooms = [
        n - start if step > 0 else start + 1 for start, step, n in zip(starts, steps, shape, strict=True)
    ]
    counts = [
        data.draw(st.integers(1, -(-room // abs(step)))) for room, step in zip(rooms, steps, strict=True)
    ]
    part = b.slice(x, starts, counts, steps)
    lists = [
        data.draw(st.one_of(st.just([]), st.lists(st.integers(0, extent - 1), min_size=1, max_size=9)))
        for extent in shape
    ]
    taken = b.take(x, *lists)
    reads = [b.conv(y, 3, 3, pads=1) for y in (part, taken)]
    kept = data.draw(st.lists(st.sampled_from([part, taken, x]), max_size=2, unique=True))
    assert_identical(HEXAGON, b.graph(*reads, *kept), guard=data.draw(st.sampled_from([0, 128])))


# -- borders ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@both_dtypes
def test_borders(dtype):
    """Of the input's scale and of others; along rows and columns, and along any axes."""
    b = GraphBuilder((2, 5, 7, 37), seed=6, dtype=dtype)
    x = b.conv("x", 9)
    scale = b.tensors[x].scale
    low = 0 if dtype == "uint8" else -128
    fine, coarse = Quantization.per_tensor(scale / 1.3, low), Quantization.per_tensor(scale * 3, low + 255)
    framed = b.fill(x, (0, 0, 1, 2), (0, 0, 3, 1), 0.7)
    outputs = [
        b.conv(framed, 3, 3, pads=1),
        b.fill(x, (0, 0, 1, 2), (0, 0, 3, 1), -0.7, fine),
        b.fill(x, (1, 2, 1, 2), (1, 3, 3, 1), -0.7, coarse),
        b.fill(x, (0, 3, 0, 0), (0, 1, 0, 0), 1e9),
        b.fill(b.reshape(x, (18 * 7 * 37,)), (3,), (5,), -1e9, fine),
        b.pad(x, (1, 0, 2, 3)),
    ]
    assert_identical(HEXAGON, b.graph(*outputs), guard=128)


# -- interpolation ----------------------------------------------------------------------------------------


def linear(extent, size, align=False):
    places = np.arange(size) * (extent - 1) / max(size - 1, 1)
    if not align:
        places = (np.arange(size) + 0.5) * extent / size - 0.5
    first = np.floor(places)
    indices = np.clip(np.stack([first, first + 1], axis=1), 0, extent - 1).astype(np.int32)
    return indices, np.stack([1 + first - places, places - first], axis=1).astype(np.float32)


def cubic(extent, size):
    places = (np.arange(size) + 0.5) * extent / size - 0.5
    first, a = np.floor(places), -0.75
    distances = np.abs(places[:, None] - (first[:, None] + np.arange(-1, 3)))
    near = ((a + 2) * distances - (a + 3)) * distances**2 + 1
    far = ((a * distances - 5 * a) * distances + 8 * a) * distances - 4 * a
    indices = np.clip(first[:, None] + np.arange(-1, 3), 0, extent - 1).astype(np.int32)
    return indices, np.where(distances <= 1, near, far).astype(np.float32)


@pytest.mark.slow
@both_dtypes
def test_linear_and_cubic(dtype):
    """Enlarged by whole factors and by others, made smaller, from one pixel; zero-points at both ends."""
    b = GraphBuilder((2, 5, 7, 37), seed=7, dtype=dtype)
    x = b.conv("x", 9)
    scale = b.tensors[x].scale
    low = 0 if dtype == "uint8" else -128
    fine, coarse = Quantization.per_tensor(scale / 1.3, low), Quantization.per_tensor(scale * 2.7, low + 255)
    enlarged = b.interpolate(x, linear(7, 28), linear(37, 148))
    pixel = b.global_average_pool(x)
    outputs = [
        enlarged,
        b.conv(enlarged, 3, 3, pads=1),
        b.interpolate(x, linear(7, 9, align=True), linear(37, 50, align=True), fine),
        b.interpolate(x, linear(7, 3), linear(37, 11), coarse),
        b.interpolate(x, linear(7, 7), linear(37, 25)),
        b.interpolate(x, cubic(7, 9), cubic(37, 41), fine),
        b.interpolate(x, cubic(7, 3), cubic(37, 11)),
        b.interpolate(pixel, linear(1, 4), linear(1, 3), coarse),
    ]
    assert_identical(HEXAGON, b.graph(*outputs), guard=128)


def test_what_is_tuned_does_not_depend_on_where_constants_lie():
    def signatures(*before):
        b = GraphBuilder((1, 4, 7, 37), seed=7)
        for outputs in before:
            b.conv("x", outputs)
        b.interpolate("x", linear(7, 28), linear(37, 148))
        b.take("x", (), (), (3, 1), (0, 9, 4))
        calls = [call for layer in layers(b.graph()).values() for call in layer.calls]
        return {signature(call) for call in calls if "conv" not in call.kernel.symbol}

    assert signatures() == signatures(8, 40)


@pytest.mark.slow
@settings(max_examples=30)
@given(
    extents=st.tuples(*map(st.integers, (1, 1, 1, 1), (2, 9, 9, 70))),
    sizes=st.tuples(st.integers(1, 20), st.integers(1, 150)),
    ways=st.tuples(*[st.sampled_from([linear, cubic])] * 2),
    ratio=st.floats(0.05, 20),
    zero_points=st.tuples(st.integers(0, 255), st.integers(0, 255)),
    seed=st.integers(0, 99),
)
def test_any_interpolation(extents, sizes, ways, ratio, zero_points, seed):
    b = GraphBuilder(extents, seed=seed, zero_point=zero_points[0])
    out = Quantization.per_tensor(b.tensors["x"].scale / ratio, zero_points[1])
    taps = [way(extent, size) for way, extent, size in zip(ways, extents[2:], sizes, strict=True)]
    y = b.interpolate("x", *taps, out)
    last = b.conv(y, 3, 3, pads=1)
    assert_identical(HEXAGON, b.graph(y, last), guard=128)


# -- several samples --------------------------------------------------------------------------------------


def swish(x):
    return x * np.clip(x + 3, 0, 6) / 6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("samples", "channels"),
    [(2, 13), pytest.param(3, 12, marks=pytest.mark.slow), pytest.param(2, 12, marks=pytest.mark.slow)],
)
def test_every_kernel_on_several_samples(samples, channels):
    b = GraphBuilder((samples, 3, 17, 19), seed=8)
    x = b.conv("x", channels, 3, strides=2, pads=1, relu=True)
    y = b.conv(b.depthwise(b.conv(x, 40, relu=True), pads=1, relu=True), channels)
    x = b.add(y, x)
    y = b.lookup(x, swish)
    gate = b.conv(b.conv(b.global_average_pool(y), 6, relu=True), channels)
    y = b.depthwise(b.conv(b.mul(y, gate), 36, relu=True), strides=2, pads=1)
    y = b.requantize(b.conv(b.conv(y, 36, 3, pads=1, group=3), 22, 3, pads=1), relu=True)
    y = b.average_pool(b.max_pool(y, 2), 2, pads=(1, 0, 0, 1))
    y = b.gemm(b.reshape(b.global_average_pool(y), (samples, 22)), 35, weight_zero_point=117)
    joined = b.concat(x, b.alike(b.conv(x, 5), x), x)
    both = b.concat(joined, joined, axis=0)
    moves = [b.concat(x, x, axis=2), b.resize(x, (0, 0, 1), (0, 1, 1, 3)), b.pad(x, (1, 0, 2, 1))]
    turned = [b.transpose(x, (0, 2, 3, 1)), b.transpose(x, (1, 0, 3, 2))]
    single = b.slice(both, (1, 4, 0, 0), (samples, 9, 9, 10))
    weights = np.linspace(0.5, 2, samples * channels).reshape(samples, channels, 1, 1)
    other = b.requantize(x)
    mapped = b.map(lambda p, q, r: p * r + q, x, other, constants=[weights])
    spread = b.map(
        lambda p, q: p * q, x, constants=[np.linspace(0.5, 2, samples * 90).reshape(samples, 1, 9, 10)]
    )
    reads = [b.conv(joined, 7, 3, pads=1), b.conv(single, 3, 3, pads=1)]
    graph = b.graph(b.gemm(y, 10), both, *moves, *turned, *reads, mapped, spread)
    assert_identical(HEXAGON, graph, guard=128)


# -- one dimension ----------------------------------------------------------------------------------------


@pytest.mark.slow
@both_dtypes
def test_one_dimensional_tensors_stay_in_planes(dtype):
    """Convolutions of one row between Reshapes, as importers give them, and what is between them."""
    samples, length = 2, 50
    b = GraphBuilder((samples, 3, length), seed=9, dtype=dtype)

    def conv(x, outputs, **options):
        shape = b.tensors[x].shape
        y = b.conv(b.reshape(x, (*shape[:2], 1, shape[2])), outputs, (1, 3), pads=(0, 1, 0, 1), **options)
        shape = b.tensors[y].shape
        return b.reshape(y, (*shape[:2], shape[3]))

    x = b.lookup(conv("x", 13), swish)
    y = b.add(conv(x, 13, dilations=(1, 1)), x)
    y = b.map(lambda a, c: a * c, y, constants=[np.linspace(0.5, 2, 13).reshape(13, 1)])
    y = conv(b.concat(y, b.alike(x, y)), 9, strides=(1, 2))
    part = b.concat(b.slice(y, (0, 4, 3), (samples, 5, 20)), b.slice(y, (0, 0, 0), (samples, 5, 20)), axis=2)
    last = conv(part, 5)
    turned = b.transpose(conv(part, 4), (0, 2, 1))
    graph = b.graph(last, turned, b.reshape(x, (samples * 13, length)))
    calls = [call for layer in layers(graph).values() for call in layer.calls]
    assert sum(call.kernel.symbol == "pack_input" for call in calls) == samples  # of the input
    assert_identical(HEXAGON, graph, guard=128)
