"""Every operator on every target: bit-identity with the reference, and clean borders."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdk.graph import Conv, Graph, Quantization
from sdk.targets import get_target
from tests.amount import amount
from tests.contract.targets import GEOMETRY, LONG, PROCESSES, VARIANTS, assert_identical, fits, quick
from tests.graph_builder import GraphBuilder, mobilenet_v2


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["uint8", pytest.param("int8", marks=pytest.mark.slow)])
def test_every_operator_once(target, dtype):
    every_operator(target, dtype)


@pytest.mark.slow
def test_every_operator_on_the_whole_device(whole):
    every_operator(whole, "uint8")


def every_operator(target, dtype):
    graph = operators(dtype)
    assert_identical(target, graph)
    assert_identical(target, graph, guard=256)


def operators(dtype) -> Graph:
    b = GraphBuilder((1, 3, 17, 19), dtype=dtype, seed=2)
    x = b.conv("x", 12, 3, strides=2, pads=1, relu=True)
    y = b.conv(x, 40, relu=True)
    y = b.depthwise(y, pads=1, relu=True)
    y = b.conv(y, 12)
    x = b.add(y, x)
    y = b.conv(x, 36, relu=True)
    y = b.depthwise(y, strides=2, pads=1)
    y = b.requantize(b.conv(y, 22, 3, pads=1, per_channel=False), relu=True)
    y = b.average_pool(b.max_pool(y, 2), 2, pads=(1, 0, 0, 1))
    y = b.global_average_pool(y)
    y = b.gemm(b.reshape(y), 35, relu=True)
    b.gemm(y, 10, per_channel=False)
    return b.graph()


both_dtypes = pytest.mark.parametrize("dtype", ["uint8", pytest.param("int8", marks=pytest.mark.slow)])


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def hard_swish(x):
    return x * np.clip(x + 3, 0, 6) / 6


@pytest.mark.slow
@both_dtypes
def test_tables_and_products(each, dtype):
    """Of pictures and of single pixels, of one dtype and of two, with a layer that reads the padding."""
    other = {"uint8": "int8", "int8": "uint8"}[dtype]
    b = GraphBuilder((1, 7, 9, 11), dtype=dtype, seed=21)
    x = b.conv("x", 13, 3, pads=1)
    swish = b.lookup(x, hard_swish)
    gate = b.lookup(x, sigmoid, dtype=other)
    product = b.mul(swish, gate, relu=True)
    square = b.mul("x", "x")
    scaled = b.mul(gate, b.conv(b.global_average_pool(swish), 13))
    after = b.conv(b.mul(product, swish), 6, 3, pads=1)
    row = b.reshape(b.global_average_pool(scaled))
    pixels = b.mul(b.lookup(row, np.tanh), row)
    assert_identical(each, b.graph(swish, gate, product, square, scaled, after, pixels), guard=128)


def test_a_product_whose_scale_shifts_first(each):
    """An output scale finer than the product of the inputs' takes q31 beyond one."""
    b = GraphBuilder((1, 5, 4, 6), seed=22)
    y = b.mul("x", "x")
    graph = b.graph()
    out = graph.tensor(y)
    scale = graph.tensor("x").scale ** 2 / 3.3
    graph.tensors[y] = type(out)(y, out.shape, out.dtype, Quantization.per_tensor(scale, 131))
    assert_identical(each, graph)


def test_any_broadcast_of_a_product(each):
    b = GraphBuilder((1, 6, 5, 7), seed=23)
    outputs = []
    for channels, kernel in ((1, (5, 7)), (6, (5, 7)), (1, (1, 1)), (6, (1, 7)), (6, (5, 1))):
        pooled = b.average_pool("x", kernel)
        outputs.append(b.mul("x", b.conv(pooled, 1) if channels == 1 else pooled))
    assert_identical(each, b.graph(*outputs))


@pytest.mark.slow
@both_dtypes
def test_squeeze_and_excite(each, dtype):
    """MobileNetV3's block: hard-swish, squeeze, two convolutions of one pixel, excite, project, add."""
    b = GraphBuilder((1, 10, 9, 7), dtype=dtype, seed=24)
    y = b.lookup(b.conv("x", 22), hard_swish)
    y = b.lookup(b.depthwise(y, 5, pads=2), hard_swish)
    gate = b.conv(b.conv(b.global_average_pool(y), 6, relu=True), 22)
    y = b.mul(y, b.lookup(gate, lambda x: np.clip(x / 6 + 0.5, 0, 1)))
    b.add(b.conv(y, 10), "x")
    assert_identical(each, b.graph())
    assert_identical(each, b.graph(), guard=128)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "channels"),
    [
        ("int8", (5, 2)),
        pytest.param("uint8", (3, 6, 9), marks=pytest.mark.slow),
        *amount([], [pytest.param("uint8", (8, 4, 3), marks=pytest.mark.slow)]),
    ],
)
def test_concatenated_channels(each, dtype, channels):
    """Parts of any number of channels, each also used elsewhere, the whole read with its padding."""
    b = GraphBuilder((1, 4, 6, 37), dtype=dtype, seed=25)
    first = b.conv("x", channels[0], 3, pads=1)
    parts = [first, *(b.alike(b.conv("x", n, relu=True), first) for n in channels[1:])]
    joined = b.concat(*parts)
    again = b.concat(joined, parts[-1], joined)
    wide = b.depthwise(joined, 3, pads=1)
    side = b.conv(parts[-1], 5, 3, pads=1)
    strided = b.conv(again, 7, 3, strides=2, pads=1)
    assert_identical(each, b.graph(joined, again, wide, side, strided))
    assert_identical(each, b.graph(wide, side, strided), guard=128)


@pytest.mark.slow
def test_concatenations_of_concatenations(each):
    """A dense block; and a part that is read, with its padding, before the part in front of it exists."""
    b = GraphBuilder((1, 4, 7, 9), seed=32)
    x = b.conv("x", 8, 3, pads=1, relu=True)
    for _ in range(2):
        x = b.concat(x, b.alike(b.conv(x, 4, 3, pads=1), x))
    early = b.alike(b.conv("x", 6), x)
    used = b.conv(early, 5, 3, pads=(2, 1, 0, 1))
    late = b.alike(b.depthwise(b.conv("x", 12), pads=1), x)
    x = b.concat(late, early, x)
    last = b.conv(x, 3, 3, pads=1)
    assert_identical(each, b.graph(used, last, x))
    assert_identical(each, b.graph(used, last), guard=128)


@pytest.mark.slow
def test_concatenation_along_any_axis(each):
    b = GraphBuilder((1, 5, 6, 7), seed=26)
    x = b.alike(b.conv("x", 5), "x")
    rows = b.concat("x", x, axis=2)
    columns = b.concat(x, "x", x, axis=3)
    pixel = b.global_average_pool(x)
    pixels = b.concat(pixel, pixel, pixel)
    line = b.concat(pixel, pixel, axis=3)
    flat = b.concat(b.reshape("x", (1, 30, 7)), b.reshape(x, (1, 30, 7)), axis=1)
    last = b.concat(b.reshape("x", (1, 30, 7)), b.reshape(x, (1, 30, 7)), axis=2)
    vectors = b.concat(b.reshape(pixels), b.reshape(pixel), axis=1)
    use = b.conv(columns, 3, 3, pads=1)
    assert_identical(each, b.graph(rows, columns, pixels, line, flat, last, vectors, use), guard=128)


@pytest.mark.slow
def test_resized_to_the_nearest(each):
    """Twice the size, as detectors do; uneven factors; down to less; a single pixel up."""
    b = GraphBuilder((1, 6, 5, 20), seed=27)
    x = b.conv("x", 9, relu=True)
    double = b.resize(x, np.arange(10) // 2, np.arange(40) // 2)
    odd = b.resize(x, np.arange(7) * 5 // 7, np.arange(45) * 20 // 45)
    less = b.resize(x, (0, 2, 3), range(1, 20, 3))
    wide = b.resize(b.global_average_pool(x), [0] * 4, [0] * 3)
    double = b.conv(double, 5, 3, pads=1)
    assert_identical(each, b.graph(double, odd, less, wide), guard=128)


@both_dtypes
def test_transposed(each, dtype):
    """NCHW to NHWC of few and of many channels, back, and other orders, of pictures and of rows."""
    b = GraphBuilder((1, 3, 4, 37), dtype=dtype, seed=28)
    few = b.transpose(b.conv("x", 5), (0, 2, 3, 1))
    many = b.transpose(b.conv("x", 70), (0, 2, 3, 1))
    back = b.transpose(few, (0, 3, 1, 2))
    turned = b.transpose("x", (0, 1, 3, 2))
    mirrored = b.transpose("x", (0, 3, 2, 1))
    rows = b.transpose(b.reshape(many, (1, 148, 70)), (0, 2, 1))
    used = b.conv(turned, 4, 3, pads=1)
    again = b.conv(back, 4, 3, pads=1)
    assert_identical(each, b.graph(few, many, back, mirrored, rows, used, again), guard=128)


@pytest.mark.slow
def test_padded(each):
    b = GraphBuilder((1, 6, 5, 33), seed=29, zero_point=77)
    x = b.conv("x", 7, relu=True)
    padded = b.pad(x, (1, 2, 3, 0))
    pooled = b.max_pool(padded, 3, strides=2)
    square = b.conv(b.pad("x", (0, 0, 1, 1)), 5, 3, strides=2)
    one = b.pad(b.global_average_pool(x), (1, 1, 0, 1))
    none = b.pad(x, (0, 0, 0, 0))
    again = b.conv(padded, 4, 3, pads=1)
    beside = b.concat(b.alike(b.conv(pooled, 4), pooled), b.pad(b.max_pool(pooled, (2, 4)), (1, 0, 0, 3)))
    assert_identical(each, b.graph(padded, pooled, square, one, none, again, beside), guard=128)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "strides"), amount([("uint8", 2), ("int8", 1)], [*itertools.product(("uint8", "int8"), (1, 2))])
)
def test_depthwise_five_by_five(each, dtype, strides):
    b = GraphBuilder((1, 4, 11, 14), dtype=dtype, seed=30)
    y = b.depthwise(b.conv("x", 11, relu=True), 5, strides=strides, pads=2, relu=True)
    b.conv(b.depthwise(y, 5, strides=strides, pads=(1, 2, 2, 1)), 6)
    assert_identical(each, b.graph())


@pytest.mark.parametrize(
    "zero_point",
    [117, *(pytest.param(value, marks=pytest.mark.slow) for value in amount((255, -5), (0, 128, 255, -5)))],
)
def test_weights_around_any_zero_point(each, zero_point):
    """Less their zero-points they may need nine bits."""
    options = {"per_channel": False, "weight_zero_point": zero_point}
    b = GraphBuilder((1, 5, 8, 9), seed=31)
    x = b.conv("x", 12, 3, strides=2, pads=1, **options)
    x = b.conv(x, 10, relu=True, **options)
    x = b.depthwise(x, pads=1, **options)
    x = b.conv(x, 8, 3, pads=1, group=2, **options)
    b.gemm(b.reshape(b.conv(b.global_average_pool(x), 7, **options)), 9, **options)
    assert_identical(each, b.graph())


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG)
@settings(max_examples=amount(6, 20))
@given(
    g=GEOMETRY,
    kind=st.sampled_from(["full", "grouped", "depthwise", "pointwise-strided"]),
    relu=st.booleans(),
)
def test_any_convolution(name, g, kind, relu):
    target = quick(name)
    if not fits(g, g["kernel"], g["dilations"]):
        g = g | {"pads": (5, 5, 5, 5)}
    group = {"grouped": 2, "depthwise": g["channels"]}.get(kind, 1)
    channels = g["channels"] * (2 if kind == "grouped" else 1)
    outputs = channels if kind == "depthwise" else g["outputs"] * (2 if kind == "grouped" else 1)
    b = GraphBuilder((1, channels, g["height"], g["width"]), seed=g["seed"])
    x = "x"
    if kind == "pointwise-strided":  # the producer writes the phases that the strided window reads
        x = b.conv(x, channels * 3, relu=True)
        group = outputs = channels * 3
    y = b.conv(
        x,
        outputs,
        g["kernel"],
        strides=g["strides"],
        pads=g["pads"],
        dilations=g["dilations"],
        group=group,
        relu=relu,
    )
    b.conv(y, 5)
    graph = b.graph()
    if all(target.supports(graph, node).supported for node in graph.nodes):
        assert_identical(target, graph)
    else:  # the only refusal in this family: a window that misses a single pixel
        assert b.tensors["x"].shape[2:] == (1, 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG)
@settings(max_examples=amount(5, 15))
@given(g=GEOMETRY, kind=st.sampled_from(["max", "average", "average-padded", "global"]))
def test_any_pool(name, g, kind):
    target = quick(name)
    kernel = g["kernel"]
    pads = tuple(min(pad, kernel[i % 2] - 1) for i, pad in enumerate(g["pads"]))
    if not fits(g | {"pads": pads}, kernel):
        kernel, pads = (1, 1), (0, 0, 0, 0)
    b = GraphBuilder((1, g["channels"], g["height"], g["width"]), seed=g["seed"])
    if kind == "max":
        b.max_pool("x", kernel, strides=g["strides"], pads=pads)
    elif kind == "global":
        b.global_average_pool("x")
    else:
        b.average_pool(
            "x", kernel, strides=g["strides"], pads=pads, count_include_pad=kind == "average-padded"
        )
    assert_identical(target, b.graph())


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG)
@settings(max_examples=amount(6, 20))
@given(
    shape=st.tuples(st.integers(1, 40), st.integers(1, 12), st.integers(1, 70)),
    data=st.data(),
    seed=st.integers(0, 99),
)
def test_any_movement(name, shape, data, seed):
    """Concat, Resize, Transpose and Pad of any extents, after a convolution and before one that pads."""
    b = GraphBuilder((1, 3, *shape[1:]), seed=seed, dtype=data.draw(st.sampled_from(["uint8", "int8"])))
    outputs = []
    x = b.conv("x", shape[0], relu=True)
    height, width = shape[1:]
    kind = data.draw(st.sampled_from(["concat", "resize", "transpose", "pad", "mul"]))
    if kind == "concat":
        others = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))
        parts = [x, *(b.alike(b.conv("x", n), x) for n in others)]
        y = b.concat(*data.draw(st.permutations(parts)))
        outputs = data.draw(st.lists(st.sampled_from(parts), max_size=1))
    elif kind == "resize":
        rows = data.draw(st.lists(st.integers(0, height - 1), min_size=1, max_size=9))
        columns = data.draw(st.lists(st.integers(0, width - 1), min_size=1, max_size=80))
        y = b.resize(x, rows, columns)
    elif kind == "transpose":
        y = b.transpose(x, (0, *data.draw(st.permutations([1, 2, 3]))))
    elif kind == "mul":
        extents = [data.draw(st.sampled_from([1, extent])) for extent in (height, width)]
        kernel = [a // n if n == 1 else 1 for n, a in zip(extents, (height, width), strict=True)]
        y = b.mul(x, b.average_pool(x, tuple(kernel)))
    else:
        y = b.pad(x, data.draw(st.tuples(*[st.integers(0, 5)] * 4)))
    last = b.conv(y, 5, 3, pads=1)
    assert_identical(quick(name), b.graph(y, last, *outputs), guard=data.draw(st.sampled_from([0, 128])))


@pytest.mark.slow
@pytest.mark.parametrize(("channels", "groups"), [(8, 2), (16, 4), (24, 3), (6, 3)])
def test_grouped_convolutions_keep_their_groups_apart(each, channels, groups):
    b = GraphBuilder((1, channels, 6, 7), seed=channels)
    x = b.conv("x", channels, 3, pads=1, group=groups)
    b.conv(x, 2 * channels, group=groups)
    assert_identical(each, b.graph())


@pytest.mark.slow
def test_windows_too_large_to_unroll(each):
    b = GraphBuilder((1, 5, 20, 19), seed=9)
    x = b.depthwise("x", (11, 9), pads=(5, 4, 5, 4), strides=2)
    x = b.average_pool(x, (9, 8))
    assert_identical(each, b.graph())


def test_an_average_pool_whose_output_has_its_input_s_scale(each):
    """What onnxruntime's quantiser writes; border windows of a 3x3 pool still cover four pixels."""
    b = GraphBuilder((1, 6, 8, 9), seed=10)
    y = b.average_pool("x", 3, strides=2, pads=1)
    graph = b.graph()
    x = graph.tensor("x")
    graph.tensors[y] = type(x)(y, graph.tensor(y).shape, x.dtype, x.quantization)
    assert_identical(each, graph)


@pytest.mark.slow
def test_a_residual_network(each):
    """ResNet's shape: strided 3x3 and 1x1 side by side, Add of two convolutions, then Relu."""
    b = GraphBuilder((1, 3, 29, 31), seed=5)
    x = b.conv("x", 16, 7, strides=2, pads=3, relu=True)
    x = b.max_pool(x, 3, strides=2, pads=1)
    y = b.conv(b.conv(x, 16, 3, pads=1, relu=True), 16, 3, pads=1)
    x = b.add(y, x, relu=True)
    y = b.conv(b.conv(x, 24, 3, strides=2, pads=1, relu=True), 24, 3, pads=1)
    x = b.add(y, b.conv(x, 24, strides=2), relu=True)
    b.gemm(b.reshape(b.global_average_pool(x)), 10)
    assert_identical(each, b.graph())
    assert_identical(each, b.graph(), guard=128)


def test_a_stride_that_leaves_pixels_over(each):
    """Pixels after the last window have no place in a phase: the producer keeps plain planes."""
    b = GraphBuilder((1, 4, 9, 9), seed=8)
    x = b.conv("x", 12, relu=True)
    b.conv(x, 6, 2, strides=3, pads=(1, 1, 0, 0))
    assert_identical(each, b.graph())


def test_several_outputs_and_spatial_ones(each):
    b = GraphBuilder((1, 5, 9, 7), seed=6)
    x = b.conv("x", 9, 3, pads=1)
    y = b.add(x, b.conv(x, 9))
    z = b.reshape(y)
    assert_identical(each, b.graph(x, y, z))


def test_scales_of_one_and_more_shift_first(each):
    b = GraphBuilder((1, 5, 6, 6), seed=7)  # two steps of four channels
    x = b.conv("x", 8)
    b.depthwise(x, pads=1)
    b.conv(b.nodes[-1].output, 4, 3)
    graph = b.graph()
    fine = {  # output scales far finer than the accumulators': q31 needs its shift
        node.output: graph.tensor(node.output) for node in graph.nodes
    }
    for name, tensor in fine.items():
        weight = graph.tensor(next(n for n in graph.nodes if n.output == name).inputs[1])
        source = graph.tensor(next(n for n in graph.nodes if n.output == name).inputs[0])
        scale = np.float32(source.scale) * weight.quantization.scale.max() / np.float32(1.7)
        quantization = type(tensor.quantization)(
            np.asarray(scale, np.float32), tensor.quantization.zero_point
        )
        graph.tensors[name] = type(tensor)(name, tensor.shape, tensor.dtype, quantization)
    # Biases keep their integers; their scale follows the changed inputs.
    for node in graph.nodes:
        bias, weight = graph.tensor(node.inputs[2]), graph.tensor(node.inputs[1])
        scale = (weight.quantization.scale * np.float32(graph.tensor(node.inputs[0]).scale)).astype(
            np.float32
        )
        quantization = type(bias.quantization)(scale, bias.quantization.zero_point, bias.quantization.axis)
        graph.tensors[bias.name] = type(bias)(bias.name, bias.shape, bias.dtype, quantization, bias.data)
    assert_identical(each, graph)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PROCESSES if name not in amount(VARIANTS, ())])
def test_mobilenet_v2_whole(name):
    """On the cards: tests/unit/test_amd_target.py; hexagon-v68 has networks in tests/e2e/test_networks.py."""
    graph = mobilenet_v2(amount(96, 224), zero_point=114)
    assert sum(isinstance(node, Conv) for node in graph.nodes) == 52
    assert_identical(get_target(name), graph)
