"""The AMD targets on the shader executor alone: bit-identity, what becomes a launch, refusals."""

import contextlib
import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdk.errors import Unsupported
from sdk.graph import Conv, Graph, Quantization, Tensor
from sdk.target import Options
from tests.amount import amount
from tests.contract.targets import GEOMETRY, assert_identical, fits
from tests.graph_builder import GraphBuilder, mobilenet_v2
from tests.shader_gpu import target
from usbgpu.target import products
from usbgpu.target.moves import places

CHIPS = ("gfx1100", "gfx1201")
CHIP = st.sampled_from(CHIPS)


@pytest.fixture(params=["gfx1100", pytest.param("gfx1201", marks=pytest.mark.slow)])
def amd(request):
    """tests/contract/test_target_operators.py has both chips by default."""
    return target(request.param)


def small():
    b = GraphBuilder((1, 3, 9, 9), seed=3)
    x = b.conv("x", 20, 3, pads=1, relu=True)
    b.gemm(b.reshape(b.global_average_pool(b.add(b.conv(x, 20), x))), 10)
    return b.graph()


# -- the same bits as the reference -------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=5)
@given(
    chip=CHIP,
    g=GEOMETRY,
    kind=st.sampled_from(["full", "grouped", "depthwise", "multiplied"]),
    relu=st.booleans(),
    wide=st.booleans(),
)
def test_any_convolution(chip, g, kind, relu, wide):
    if not fits(g, g["kernel"], g["dilations"]):
        g = g | {"pads": (5, 5, 5, 5)}
    channels = g["channels"] * (8 if wide else 1) * (2 if kind == "grouped" else 1)
    group = {"grouped": 2, "depthwise": channels, "multiplied": channels}.get(kind, 1)
    outputs = {"depthwise": channels, "multiplied": channels * 2, "grouped": g["outputs"] * 2}.get(
        kind, g["outputs"]
    )
    b = GraphBuilder((1, channels, g["height"], g["width"]), seed=g["seed"])
    names = ("strides", "pads", "dilations")
    y = b.conv("x", outputs, g["kernel"], group=group, relu=relu, **{name: g[name] for name in names})
    b.conv(y, 5)
    assert_identical(target(chip), b.graph())


def odd_shapes():
    """Networks at the edges: nothing to launch, one pixel, narrow pitches, windows in the padding."""
    b = GraphBuilder((1, 3, 4, 5))
    b.reshape("x")
    yield "nothing to launch", b.graph()
    b = GraphBuilder((2, 3, 4, 5))
    b.conv(b.reshape("x", (1, 24, 1, 5)), 7)
    yield "a first dimension that is not a batch", b.graph()
    b = GraphBuilder((1, 7, 5))
    b.add(b.requantize("x"), "x")
    yield "no picture", b.graph()
    b = GraphBuilder((1, 1))
    b.gemm("x", 1)
    yield "one number", b.graph()
    b = GraphBuilder((1, 1, 1, 1), dtype="int8")
    y = b.depthwise(b.conv("x", 1, 3, pads=1), 3, pads=(1, 2, 1, 0))
    b.max_pool(y, 2, pads=(1, 1, 0, 0))
    yield "one pixel", b.graph()
    b = GraphBuilder((1, 2, 8, 8))
    b.add(b.conv(b.conv("x", 40), 2), "x")
    yield "a residual of four bytes a pixel", b.graph()
    b = GraphBuilder((1, 4, 8, 4))
    b.add(b.conv("x", 4, 3, pads=1), "x")
    yield "a residual of four bytes a pixel, dot4", b.graph()
    b = GraphBuilder((1, 20, 3, 3))
    far = {"strides": 5, "pads": 7, "dilations": 4}
    b.depthwise(b.conv(b.conv("x", 40, 3, **far), 24), 3, **far)
    yield "windows in the padding", b.graph()
    b = GraphBuilder((1, 20, 1, 1))
    x = b.conv("x", 40)
    flat = b.reshape(x, (1, 40))
    yield "one memory, several names", b.graph(b.add(b.gemm(flat, 40), flat), x)
    b = GraphBuilder((1, 20, 5, 4))
    b.conv(b.conv("x", 24, pads=1), 20, pads=(0, 0, 1, 0), strides=2)
    yield "one tap in the padding", b.graph()
    b = GraphBuilder((1, 6, 5, 4), zero_point=133)
    b.average_pool(b.average_pool("x", 3, pads=1), (5, 4), pads=1)
    yield "averages of odd sums and of padding", b.graph()
    b = GraphBuilder((1, 20, 4, 4))
    x = b.requantize("x")
    y = b.conv(x, 20)
    yield "a product that an Add and others read", b.graph(b.max_pool(y, 2), b.add(y, x))
    b = GraphBuilder((1, 5, 6, 7))
    tensor = b.tensors["x"]
    b.tensors["other"] = dataclasses.replace(
        tensor, name="other", quantization=Quantization.per_tensor(0.03, 5)
    )
    b.values["other"] = b.values["x"][..., ::-1]
    y = b.add("x", "other")
    yield "two inputs", dataclasses.replace(b.graph(), inputs=("x", "other"))


ODD_SHAPES = dict(odd_shapes())


@pytest.mark.slow
@pytest.mark.parametrize("what", ODD_SHAPES)
def test_odd_shapes(what):
    graph = ODD_SHAPES[what]
    assert_identical(target(CHIPS[len(graph.nodes) % 2]), graph)


@pytest.mark.slow
def test_groups_apart_and_together(amd):
    """Groups of whole tiles get a launch each, others are one product with zeros."""
    for channels, groups in ((64, 2), (24, 3)):
        b = GraphBuilder((1, channels, 6, 7), seed=channels)
        x = b.conv("x", channels, 3, pads=1, group=groups)
        b.add(b.conv(x, channels, group=groups), x)
        assert_identical(amd, b.graph())
        launches = amd.compile(b.graph(), Options()).plan["launches"]
        names = [launch["name"] for launch in launches if launch["op"] != "Layout"]
        complete = [launch["tensor"] for launch in launches if launch["tensor"]]
        assert complete == ["conv0", "add2"]
        assert names == (["conv0"] * 2 + ["add2"] * 2 if groups == 2 else ["conv0", "add2"])


@pytest.mark.slow
def test_adds_go_into_what_feeds_them(amd):
    b = GraphBuilder((1, 3, 6, 5), seed=6)
    x = b.conv("x", 18, 3, pads=1)  # a dot4 kernel
    x = b.add(x, b.depthwise(x, pads=1))
    x = b.add(b.depthwise(x, 5, pads=2), x, relu=True)
    x = b.add(b.conv(x, 18, 3, pads=1), x)
    flat = b.reshape(b.global_average_pool(x))
    flat = b.add(b.gemm(flat, 18), flat)
    graph = b.graph(x, flat)
    assert_identical(amd, graph)
    ops = [launch["op"] for launch in amd.compile(graph, Options()).plan["launches"]]
    assert [op for op in ops if op != "Layout"] == [
        *("Conv", "Conv+Add", "Conv+Add", "Conv+Add", "GlobalAveragePool", "Gemm+Add"),
    ]


def launched(amd, graph):
    """What is launched for the network, apart from its boundary, once it is known to be right."""
    assert_identical(amd, graph, guard=128)
    ops = [launch["op"] for launch in amd.compile(graph, Options()).plan["launches"]]
    return [op for op in ops if op != "Layout"]


@pytest.mark.slow
def test_lookups_go_into_what_feeds_them(amd):
    """In every kernel of products, a launch for each group too; not where others read the product."""
    b = GraphBuilder((1, 3, 6, 5), seed=11)
    x = b.lookup(b.conv("x", 32, 3, pads=1), np.tanh)  # a dot4 kernel
    x = b.lookup(b.depthwise(x, 5, pads=2), np.tanh)
    x = b.lookup(b.conv(x, 32, group=2, relu=True), np.tanh)
    y = b.conv(x, 18)
    z = b.add(b.lookup(y, np.tanh), y)
    flat = b.lookup(b.gemm(b.reshape(b.global_average_pool(z)), 18), np.tanh)
    assert launched(amd, b.graph(b.lookup(z, np.tanh), flat)) == [
        *("Conv+Lookup", "Conv+Lookup", "Conv+Lookup", "Conv+Lookup", "Conv", "Lookup", "Add"),
        *("GlobalAveragePool", "Gemm+Lookup", "Lookup"),
    ]


@pytest.mark.slow
def test_operands_of_a_concat_are_made_in_their_places(amd):
    """Whole tiles, the last one less, Concats of Concats; each in one place, its pitch that of the whole."""
    b = GraphBuilder((1, 5, 6, 7), seed=12)
    x = b.conv("x", 16, 3, pads=1, relu=True)
    inner = b.concat(x, b.alike(b.max_pool(b.conv("x", 32), 3, pads=1), x))
    middle, end = b.alike(b.depthwise(x, pads=1), x), b.alike(b.conv(x, 7), x)
    whole = b.concat(inner, middle, end)
    y = b.conv(whole, 9, 3, pads=1)
    pooled = b.global_average_pool(b.add(whole, whole))
    graph = b.graph(y, b.gemm(b.reshape(pooled), 10), inner)
    assert "Concat" not in launched(amd, graph)
    assert places(graph)[middle] == (whole, 48)
    program = amd.compile(graph, Options())
    assert {program.plan["tensors"][name]["steps"][-1] for name in (x, middle, end)} == {80}
    # Parts are no memory of their own: at the mean there are the whole, the sum, its mean and an output.
    expected = 2 * graph.tensor(whole).size + graph.tensor(pooled).size + graph.tensor(y).size
    assert program.plan["memory"]["live_peak"] == expected


@pytest.mark.slow
def test_operands_of_a_concat_that_are_copied(amd):
    """An input, a Reshape, what lies elsewhere or is not a whole tile; one is in place by its second use."""
    b = GraphBuilder((1, 16, 3, 4), seed=13)
    x = b.alike(b.conv("x", 16), "x")
    odd = b.alike(b.conv("x", 8), "x")
    shaped = b.reshape(b.reshape(x), (1, 16, 3, 4))
    y = b.concat("x", odd, x, odd, x, shaped)
    z = b.concat(x, x)
    flat = b.concat(b.reshape(y), b.reshape(odd), axis=1)
    graph = b.graph(b.conv(y, 5), z, flat)
    assert launched(amd, graph).count("Concat") == 5 + 2 + 2
    assert places(graph) == {x: (y, 48)}


def test_a_transpose_is_made_in_its_place_of_a_concat(amd):
    """Though it might be another name for what it transposes."""
    b = GraphBuilder((1, 6, 5, 16), seed=18)
    turned = b.transpose("x", (0, 3, 1, 2))
    whole = b.concat(b.alike(b.conv(turned, 16), turned), turned)
    graph = b.graph(b.conv(whole, 5, 3, pads=1))
    assert launched(amd, graph) == ["Transpose", "Conv", "Requantize", "Conv"]
    assert places(graph)[turned] == (whole, 16)


@pytest.mark.slow
def test_transposes_that_move_nothing(amd):
    """To and from NHWC whose pixels have no gaps; with gaps, and in other orders, they are copies."""
    for channels, launches in ((32, []), (20, ["Transpose", "Transpose"])):
        b = GraphBuilder((1, channels, 5, 7), seed=14)
        x = b.conv("x", channels)
        rows = b.reshape(b.transpose(x, (0, 2, 3, 1)), (1, 35, channels))
        back = b.transpose(b.reshape(rows, (1, 5, 7, channels)), (0, 3, 1, 2))
        b.conv(back, 4, 3, pads=1)
        assert launched(amd, b.graph()) == ["Conv", *launches, "Conv"]
    b = GraphBuilder((1, 32, 5, 7), seed=15)
    shuffled = b.transpose(b.reshape(b.conv("x", 32), (1, 2, 16, 5, 7)), (0, 2, 1, 3, 4))
    b.conv(b.reshape(shuffled, (1, 32, 5, 7)), 4)
    assert launched(amd, b.graph()) == ["Conv", "Transpose", "Conv"]


@pytest.mark.slow
@pytest.mark.parametrize("channels", [3, 20, 32])
def test_weights_with_offsets_of_their_own(amd, channels):
    """By channel, some leaving the weights as they are; groups apart, groups together, and dot4."""
    b = GraphBuilder((1, channels, 6, 5), seed=17)
    group = {3: 3, 20: 2, 32: 2}[channels]
    x = b.conv("x", channels * 2, 3, pads=(1, 0, 2, 1), group=group, weight_zero_point=0)
    b.depthwise(x, 5, pads=2, weight_zero_point=0)
    graph = b.graph()
    for name in ("conv0.w", "conv1.w"):
        weight = graph.tensor(name)
        zero_points = np.resize(np.array([0, 128, 255, 90], np.int32), len(weight.data))
        quantization = dataclasses.replace(weight.quantization, zero_point=zero_points)
        graph.tensors[name] = dataclasses.replace(weight, quantization=quantization)
    assert_identical(amd, graph)


def test_adds_that_stand_alone(amd):
    """Of a tensor with itself and with what others read too, and where a narrow pitch meets a wide one."""
    b = GraphBuilder((1, 3, 6, 5), seed=7)
    y, twice = b.conv("x", 3), b.conv("x", 3)
    z = b.add(y, "x")
    sums = b.add("x", "x"), b.add(twice, twice)
    graph = b.graph(y, z, *sums, b.requantize("x"), b.max_pool("x", 2))
    assert_identical(amd, graph)


def test_pictures_are_reshaped_in_c_order(amd):
    b = GraphBuilder((1, 5, 4, 7), seed=8)
    x = b.conv("x", 9, 3, pads=1)
    flat = b.gemm(b.reshape(x), 12)
    again = b.conv(b.reshape(x, (1, 6, 6, 7)), 8)
    assert_identical(amd, b.graph(flat, again, x))


def any_node(b, random, known, options):
    """A node of a random kind on tensors of a network; its output."""
    x = str(random.choice(known))
    size = b.tensors[x].shape
    near = [name for name in known if 1 / 8 < b.tensors[name].scale / b.tensors[x].scale < 8]
    same = [name for name in near if b.tensors[name].shape == size]
    relu = bool(random.integers(2))
    match int(random.integers(16)):
        case 0:
            return b.conv(x, int(random.integers(1, 70)), relu=relu, **options)
        case 1:
            strides = int(random.integers(1, 3))
            return b.conv(x, int(random.integers(1, 33)), 3, pads=1, strides=strides, **options)
        case 2:
            return b.depthwise(x, pads=1, relu=relu, **options)
        case 3:
            return b.add(x, str(random.choice(same)), relu=relu)
        case 4:
            return b.requantize(x, relu=relu)
        case 5:
            return b.max_pool(x, 2, pads=(1, 1, 0, 0))
        case 6:
            return b.average_pool(x, 3, pads=1, strides=int(random.integers(1, 3)))
        case 7:
            return b.mul(x, str(random.choice(same)), relu=relu)
        case 8:
            return b.mul(x, b.global_average_pool(x), relu=relu)
        case 9:
            return b.lookup(x, np.tanh)
        case 10:
            axis = int(random.integers(1, 4))
            return b.concat(x, *(b.alike(str(random.choice(same)), x) for _ in range(2)), axis=axis)
        case 11:
            return b.resize(x, random.integers(size[2], size=5), random.integers(size[3], size=11))
        case 12:
            return b.transpose(x, (0, *map(int, 1 + random.permutation(3))))
        case 13:
            return b.reshape(x, (1, *map(int, random.permutation(size[1:]))))
        case 14:
            return b.conv(x, 16 * int(random.integers(1, 4)), relu=relu, **options)
        case 15:
            return b.pad(x, tuple(map(int, random.integers(3, size=4))))


@pytest.mark.slow
@settings(max_examples=amount(30, 75))
@given(chip=CHIP, seed=st.integers(0, 10_000))
def test_any_network(chip, seed):
    """Random graphs of everything, several outputs, tensors that live long."""
    random = np.random.default_rng(seed)
    shape = (1, int(random.integers(1, 40)), int(random.integers(1, 14)), int(random.integers(1, 14)))
    b = GraphBuilder(shape, seed=seed, dtype=str(random.choice(["uint8", "int8"])))
    options = {"weight_zero_point": int(random.integers(256)), "per_channel": False} if seed % 3 == 0 else {}
    known = ["x"]
    for _ in range(int(random.integers(2, 9))):
        with contextlib.suppress(Unsupported):  # a scale that the builder finds out of range
            known.append(any_node(b, random, known, options))
    outputs = list(dict.fromkeys([known[-1], str(random.choice(known[1:]))]))
    used = {name for node in b.nodes for name in node.inputs} | set(outputs)
    assert_identical(target(chip), b.graph(*outputs, *(name for name in known[1:] if name not in used)))


@pytest.mark.slow
def test_mobilenet_v2_whole(amd):
    graph = mobilenet_v2(amount(96, 224), zero_point=114)
    assert sum(isinstance(node, Conv) for node in graph.nodes) == 52
    assert_identical(amd, graph)


# -- refusals -----------------------------------------------------------------------------------------------


def test_refused_nodes_say_why(amd):
    b = GraphBuilder((2, 4, 5, 5))
    b.conv("x", 4)
    assert "batch" in amd.supports(b.graph(), b.nodes[0]).reason
    b = GraphBuilder((1, 4, 5, 5))
    y = b.mul("x", "x")
    graph = b.graph()
    for scale, supported in ((0.02**2 / 511, True), (0.02**2 / 513, False)):
        quantization = Quantization.per_tensor(scale, 3)
        graph.tensors[y] = dataclasses.replace(graph.tensor(y), quantization=quantization)
        assert amd.supports(graph, graph.nodes[0]).supported == supported
    graph = small()
    weight = graph.tensor("conv0.w")
    scales = weight.quantization.scale.copy()
    scales[7] = 1e6  # one channel of many
    graph.tensors["conv0.w"] = dataclasses.replace(
        weight, quantization=dataclasses.replace(weight.quantization, scale=scales)
    )
    assert "out of range" in amd.supports(graph, graph.nodes[0]).reason
    b = GraphBuilder((1, 4, 5, 5))
    y = b.average_pool("x", 3, pads=2)  # a corner has one element
    graph = b.graph()
    for scale, supported in ((0.02 / 511, True), (0.02 / 513, False)):
        quantization = Quantization.per_tensor(scale, 3)
        graph.tensors[y] = dataclasses.replace(graph.tensor(y), quantization=quantization)
        assert amd.supports(graph, graph.nodes[0]).supported == supported
    graph = small()
    out = graph.tensor("conv0")
    for scale in (1e-8, 1e-38):
        graph.tensors["conv0"] = dataclasses.replace(out, quantization=Quantization.per_tensor(scale, 3))
        assert "out of range" in amd.supports(graph, graph.nodes[0]).reason
    huge = dataclasses.replace(out, shape=(1, 20, 1 << 14, 1 << 14))
    graph.tensors["conv0"] = huge
    assert "too large" in amd.supports(graph, graph.nodes[0]).reason
    for name in ("pads", "strides", "dilations"):
        graph = small()
        conv = graph.nodes[0]
        conv = dataclasses.replace(conv, **{name: (1 << 15,) * len(getattr(conv, name))})
        assert f"{name} [32768" in amd.supports(graph, conv).reason


@pytest.mark.slow
def test_weights_of_many_groups_are_counted_as_they_will_lie_in_memory(amd):
    """By group where each is computed by itself: single channels and whole tiles."""
    for channels, group, supported in ((8192, 8192, True), (8192, 512, True), (8192, 1024, False)):
        shape = (channels, channels // group, 5, 5)
        quantization = Quantization.per_tensor(0.1, 0)
        tensors = {
            "x": Tensor("x", (1, channels, 5, 5), "uint8", quantization),
            "w": Tensor("w", shape, "int8", quantization, np.broadcast_to(np.int8(1), shape)),
            "y": Tensor("y", (1, channels, 1, 1), "uint8", Quantization.per_tensor(1.0, 0)),
        }
        conv = Conv("conv", ("x", "w"), "y", (1, 1), (0, 0, 0, 0), (1, 1), group, (0, 255))
        graph = Graph("groups", ("x",), ("y",), tensors, (conv,))
        assert amd.supports(graph, conv).supported == supported


def test_weights_are_counted_as_they_will_lie_in_memory(amd, monkeypatch):
    """Sixteen channels for one."""
    monkeypatch.setattr(products, "TENSOR_LIMIT", 1 << 12)
    for inputs, outputs, supported in ((128, 1, True), (256, 1, False), (64, 64, False)):
        b = GraphBuilder((1, inputs, 1, 1))
        b.conv("x", outputs)
        verdict = amd.supports(b.graph(), b.nodes[0])
        assert verdict.supported == supported
        assert supported or f"weights of [{outputs}, {inputs}, 1, 1] are too large" in verdict.reason


def test_a_grid_that_the_card_cannot_count_is_refused(amd):
    b = GraphBuilder((1, 1, 1 << 16, 1))
    b.max_pool("x", (2, 1))
    assert amd.compile(b.graph(), Options())
    b.max_pool("x", (1, 1))
    with pytest.raises(Unsupported, match="65536 rows"):
        amd.compile(b.graph(), Options())
