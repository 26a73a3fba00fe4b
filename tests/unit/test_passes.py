import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdk import reference
from sdk.errors import InternalError, InvalidModel, TowlineError, Unsupported
from sdk.graph import Dequantize, Graph, MaxPool, Quantization, Quantize, Requantize, Softmax, Tensor
from sdk.passes import PASSES, eliminate_dead, fuse_requantize, optimize, unsigned_activations
from sdk.segments import split
from sdk.verification import verify
from tests.graph_builder import RANGES, GraphBuilder
from tests.plain_graphs import PlainBuilder

PROPERTY = settings(derandomize=True, max_examples=25, deadline=None, database=None)


def clip(builder: GraphBuilder, x: str, clamp: tuple[int, int]) -> str:
    """A Requantize that keeps the quantisation: a Relu or Clip on its own."""
    source = builder.tensors[x]
    name = f"clip{len(builder.nodes)}"
    return builder._append(Requantize(name, (x,), name, clamp), dataclasses.replace(source, name=name))


KINDS = ["conv", "add", "clip", "clip", "clip", "scale", "max", "mean", "table", "table", "pad", "transpose"]


def window(builder: GraphBuilder, x: str, kind: int) -> str:
    """What reads a padded tensor, and keeps the size of 6."""
    if kind == 0:
        return builder.conv(x, 4, 3)
    if kind == 1:
        return builder.max_pool(x, 2)
    return builder.average_pool(x, 2, pads=(0, 1, 0, 0), count_include_pad=kind == 3)


@st.composite
def networks(draw) -> Graph:
    """Random graphs with branches, clips of every producer, dead nodes and several outputs."""
    dtype = draw(st.sampled_from(["uint8", "int8"]))
    low, high = RANGES[dtype]
    builder = GraphBuilder((1, 4, 6, 6), seed=draw(st.integers(0, 999)), dtype=dtype)
    names = ["x"]
    for _ in range(draw(st.integers(1, 7))):
        x = draw(st.sampled_from(names))
        shape = builder.tensors[x].shape
        match draw(st.sampled_from(KINDS)):
            case "conv":
                names.append(builder.conv(x, 4, 3, pads=1, relu=draw(st.booleans())))
            case "add":
                other = draw(st.sampled_from([n for n in names if builder.tensors[n].shape == shape]))
                names.append(builder.add(x, other))
            case "scale":
                names.append(builder.requantize(x))
            case "max":
                names.append(builder.max_pool(x, 2, pads=(1, 1, 0, 0)))
            case "mean":
                names.append(builder.average_pool(x, 3, pads=1))
            case "table":
                names.append(builder.lookup(x, draw(st.sampled_from([np.abs, np.tanh, np.negative]))))
            case "pad":
                pads = draw(st.tuples(*[st.integers(1, 2)] * 4))
                names.append(window(builder, builder.pad(x, pads), draw(st.integers(0, 3))))
            case "transpose":
                for _ in range(draw(st.integers(1, 3))):
                    x = builder.transpose(x, draw(st.permutations(range(4))))
                names.append(x)
            case _:
                bounds = sorted(draw(st.tuples(st.integers(low, high), st.integers(low, high))))
                names.append(clip(builder, x, (bounds[0], bounds[1])))
    outputs = draw(st.lists(st.sampled_from(names[1:]), min_size=1, max_size=2, unique=True))
    return builder.graph(*outputs)


def results(graph, value, arithmetic):
    values = reference.run(graph, {"x": value}, arithmetic)
    return {name: values[name] for name in graph.outputs}


def picture(graph, seed=0):
    tensor = graph.tensor("x")
    low, high = RANGES[tensor.dtype]
    return np.random.default_rng(seed).integers(low, high, tensor.shape, tensor.dtype, endpoint=True)


@pytest.mark.slow
@PROPERTY
@given(networks())
def test_every_pass_keeps_every_bit(graph):
    verify(graph)
    value = picture(graph)
    for transform in (*PASSES, optimize):
        after = transform(graph)
        verify(after)
        assert (after.inputs, after.outputs) == (graph.inputs, graph.outputs)
        for arithmetic in ("f32", "q31"):
            before = results(graph, value, arithmetic)
            for name, array in results(after, value, arithmetic).items():
                assert np.array_equal(array, before[name])


@pytest.mark.slow
@PROPERTY
@given(networks())
def test_unsigned_activations_add_128(graph):
    after = unsigned_activations(graph)
    verify(after)
    value = picture(graph)
    signed = graph.tensor("x").dtype == "int8"
    assert {t.dtype for t in after.activations()} == {"uint8"}
    for arithmetic in ("f32", "q31"):
        moved = reference.run(after, {"x": value.view(np.uint8) ^ 0x80 if signed else value}, arithmetic)
        for name, array in reference.run(graph, {"x": value}, arithmetic).items():
            assert np.array_equal(moved[name], array.view(np.uint8) ^ 0x80 if signed else array)


def test_a_clip_becomes_its_producers_clamp():
    builder = GraphBuilder((1, 4, 6, 6))
    x = builder.conv("x", 4, 3, pads=1)
    first = clip(builder, x, (50, 255))
    second = clip(builder, first, (0, 200))
    graph = optimize(builder.graph(second), check=True)
    assert [(node.op, node.name, node.output, node.clamp) for node in graph.nodes] == [
        ("Conv", "conv0", second, (50, 200))
    ]
    assert x not in graph.tensors


def test_a_producer_read_twice_keeps_its_range():
    builder = GraphBuilder((1, 4, 6, 6))
    x = builder.conv("x", 4)
    graph = builder.graph(builder.add(clip(builder, x, (50, 255)), x))
    assert [node.op for node in fuse_requantize(graph).nodes] == ["Conv", "Requantize", "Add"]
    graph = dataclasses.replace(graph, outputs=("clip1", x))
    assert [node.op for node in optimize(graph).nodes] == ["Conv", "Requantize"]


# --- tables, padding, transposes ------------------------------------------------------------------------


def test_tables_in_a_row_are_one():
    builder = GraphBuilder((1, 4, 6, 6), dtype="int8")
    x = clip(builder, builder.conv("x", 4), (-100, 90))
    first = builder.lookup(builder.max_pool(x, 2), np.tanh)
    second = builder.lookup(clip(builder, first, (-20, 100)), np.negative, dtype="uint8")
    graph = optimize(builder.graph(second), check=True)
    assert [node.op for node in graph.nodes] == ["Conv", "MaxPool", "Lookup"]
    assert set(graph.tensors) == {"x", "conv0.w", "conv0.b", "clip1", "maxpool2", second, f"{second}_table"}
    assert graph.tensor(f"{second}_table").dtype == "uint8"


def test_a_table_that_is_read_twice_stays():
    builder = GraphBuilder((1, 4, 6, 6))
    first = builder.lookup("x", np.tanh)
    second = builder.lookup(first, np.negative)
    graph = optimize(builder.graph(first, second), check=True)
    assert [(node.op, node.inputs[0]) for node in graph.nodes] == [("Lookup", "x"), ("Lookup", "x")]


def test_a_change_of_scale_is_not_part_of_a_table():
    """Its rounding is the arithmetic's."""
    builder = GraphBuilder((1, 4, 6, 6))
    graph = builder.graph(builder.lookup(builder.requantize(builder.lookup("x", np.tanh)), np.negative))
    assert [node.op for node in optimize(graph).nodes] == ["Lookup", "Requantize", "Lookup"]


def padded(kind, *, zero_point=None, **options):
    builder = GraphBuilder((1, 4, 6, 6), seed=3)
    if zero_point is not None:
        old = builder.tensors["x"]
        builder.tensors["x"] = dataclasses.replace(old, quantization=quantization(old.scale, zero_point))
    getattr(builder, kind)(builder.pad("x", (1, 0, 2, 1)), **options)
    graph = optimize(builder.graph(), check=True)
    value = picture(graph)
    assert np.array_equal(
        reference.run(graph, {"x": value})[graph.outputs[0]],
        reference.run(builder.graph(), {"x": value})[graph.outputs[0]],
    )
    return graph.nodes


@pytest.mark.parametrize(
    ("kind", "options", "pads"),
    [
        ("conv", {"outputs": 4, "kernel": 3}, (1, 0, 2, 1)),
        ("conv", {"outputs": 4, "kernel": 3, "pads": 1}, (2, 1, 3, 2)),
        ("average_pool", {"kernel": 3}, (1, 0, 2, 1)),
        ("average_pool", {"kernel": 3, "pads": (0, 1, 0, 1), "count_include_pad": True}, (1, 1, 2, 2)),
        ("max_pool", {"kernel": 3, "zero_point": 0}, (1, 0, 2, 1)),
        ("pad", {"pads": (1, 0, 2, 1)}, (2, 0, 4, 2)),
    ],
)
def test_padding_is_folded(kind, options, pads):
    if kind == "pad":
        builder = GraphBuilder((1, 4, 6, 6))
        builder.pad(builder.pad("x", (1, 0, 2, 1)), (1, 0, 2, 1))
        nodes = optimize(builder.graph(), check=True).nodes
    else:
        nodes = padded(kind, **options)
    assert [(node.op.lower(), node.pads) for node in nodes] == [(kind.replace("_", ""), pads)]


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("average_pool", {"kernel": 3, "strides": 3, "pads": (0, 1, 0, 1)}),  # divides by what is not padding
        ("average_pool", {"kernel": 1, "count_include_pad": True}),  # windows wholly in the padding
        ("max_pool", {"kernel": 3, "zero_point": 9}),  # its padding never wins, zero may
        ("max_pool", {"kernel": 1, "zero_point": 0}),
    ],
)
def test_padding_that_stays(kind, options):
    assert padded(kind, **options)[0].op == "Pad"


def test_a_pad_read_twice_is_folded_where_it_can_be():
    builder = GraphBuilder((1, 4, 6, 6))
    pad = builder.pad("x", (1, 1, 1, 1))
    graph = optimize(builder.graph(builder.conv(pad, 4, 3), builder.transpose(pad, (0, 2, 3, 1))), check=True)
    assert [(node.op, node.inputs[0]) for node in graph.nodes] == [
        ("Pad", "x"),
        ("Conv", "x"),
        ("Transpose", pad),
    ]


def test_transposes():
    builder = GraphBuilder((1, 4, 6, 5))
    there = builder.transpose("x", (0, 2, 3, 1))
    odd = builder.transpose(there, (0, 2, 1, 3))
    back = builder.transpose(odd, (0, 3, 2, 1))  # the identity: all of them vanish
    flat = builder.transpose(builder.global_average_pool(builder.conv(back, 4)), (0, 2, 3, 1))
    graph = optimize(builder.graph(odd, flat), check=True)
    assert [(node.op, node.inputs[0]) for node in graph.nodes] == [
        ("Transpose", "x"),
        ("Conv", "x"),
        ("GlobalAveragePool", "conv3"),
        ("Reshape", graph.nodes[2].output),
    ]
    assert graph.nodes[0].perm == (0, 3, 2, 1)


def test_maps_are_computed_before_reshapes():
    """Of two reshaped tensors and a single element; and not of what others read, or of another shape."""
    b = PlainBuilder(2)
    x, y, one = b.input((1, 4, 1, 6)), b.input((1, 4, 1, 6)), b.constant((1,))
    first = b.map(lambda v, w, k: v * w + k, b.reshape(x, (4, 6)), b.reshape(y, (4, 6)), one)
    second = b.map(lambda v: v + v, first)
    other = b.reshape(y, (24,))
    graph = b.graph(second, b.map(lambda v: -v, other), other, b.map(lambda v: v * 2, b.reshape(x, (6, 4))))
    made = optimize(graph, check=True)
    assert [node.op for node in made.nodes] == ["Map", "Map", "Reshape", "Reshape", "Map", "Map", "Reshape"]
    before, after = reference.run(graph, b.inputs), reference.run(made, b.inputs)
    for name in graph.outputs:
        np.testing.assert_array_equal(before[name], after[name])


def test_an_output_that_is_transposed_to_itself_stays():
    builder = GraphBuilder((1, 4, 6, 5))
    back = builder.transpose(builder.transpose("x", (0, 2, 3, 1)), (0, 3, 1, 2))
    graph = optimize(builder.graph(back), check=True)
    assert [(node.op, node.inputs[0], node.output) for node in graph.nodes] == [("Reshape", "x", back)]


def test_dead_nodes_go_and_inputs_stay():
    builder = GraphBuilder((1, 4, 6, 6))
    kept = builder.conv("x", 4)
    builder.conv(kept, 8, 3)
    graph = eliminate_dead(builder.graph(kept))
    assert [node.output for node in graph.nodes] == [kept]
    assert set(graph.tensors) == {"x", kept, f"{kept}.w", f"{kept}.b"}


# --- split ----------------------------------------------------------------------------------------------


def whole() -> Graph:
    """float picture -> Quantize -> Conv -> Dequantize -> Softmax."""
    builder = GraphBuilder((1, 4, 6, 6))
    y = builder.conv("x", 4, 3)
    graph = builder.graph(y)
    shape = graph.tensor(y).shape
    for name, size in (("picture", (1, 4, 6, 6)), ("real", shape), ("probability", shape)):
        graph.tensors[name] = Tensor(name, size, "float32")
    nodes = (
        Quantize("q", ("picture",), "x"),
        *graph.nodes,
        Dequantize("d", (y,), "real"),
        Softmax("s", ("real",), "probability", 1),
    )
    return dataclasses.replace(graph, inputs=("picture",), outputs=("probability",), nodes=nodes)


def test_split_gives_the_integer_body():
    graph = whole()
    verify(graph)
    parts = split(graph)
    verify(parts.body)
    assert [node.name for node in parts.head] == ["q"]
    assert [node.op for node in parts.tail] == ["Dequantize", "Softmax"]
    assert (parts.body.inputs, parts.body.outputs) == (("x",), ("conv0",))
    assert set(parts.body.tensors) == {"x", "conv0", "conv0.w", "conv0.b"}
    value = np.random.default_rng(1).normal(0, 1, (1, 4, 6, 6)).astype(np.float32)
    values = reference.run(graph, {"picture": value})
    assert np.array_equal(reference.run(parts.body, {"x": values["x"]})["conv0"], values["conv0"])


def test_split_of_a_body_is_itself():
    graph = GraphBuilder((1, 4, 6, 6))
    graph.add(graph.conv("x", 4), graph.conv("x", 4))
    parts = split(graph.graph())
    assert (parts.head, parts.tail, parts.body) == ((), (), graph.graph())


def test_float_in_the_middle_is_refused_by_name():
    graph = whole()
    again = Tensor("again", graph.tensor("probability").shape, "uint8", Quantization.per_tensor(0.01, 0))
    pooled = dataclasses.replace(again, name="pooled")
    graph.tensors.update(again=again, pooled=pooled)
    more = (
        Quantize("q2", ("probability",), "again"),
        MaxPool("middle", ("again",), "pooled", (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    )
    graph = dataclasses.replace(graph, nodes=(*graph.nodes, *more), outputs=("pooled",))
    verify(graph)
    with pytest.raises(Unsupported, match="node d"):
        split(graph, {"q", "d", "s", "q2"})


def test_a_network_without_integers_is_refused():
    graph = whole()
    nodes = (graph.nodes[0], Dequantize("d", ("x",), "real2"))
    graph.tensors["real2"] = Tensor("real2", (1, 4, 6, 6), "float32")
    with pytest.raises(Unsupported, match="nothing of it runs on the device"):
        split(dataclasses.replace(graph, nodes=nodes, outputs=("real2",)))


# --- the verifier ---------------------------------------------------------------------------------------


def conv_graph() -> Graph:
    builder = GraphBuilder((1, 4, 6, 6))
    builder.conv("x", 8, 3)
    return builder.graph()


def change_tensor(name, **changes):
    def mutate(graph):
        tensors = graph.tensors | {name: dataclasses.replace(graph.tensors[name], **changes)}
        return dataclasses.replace(graph, tensors=tensors)

    return mutate


def change_node(**changes):
    return lambda graph: dataclasses.replace(graph, nodes=(dataclasses.replace(graph.nodes[0], **changes),))


def quantization(scale, zero_point, axis=None):
    return Quantization(np.asarray(scale, np.float32), np.asarray(zero_point, np.int32), axis)


WRONG = {
    "shape": (change_tensor("conv0", shape=(1, 8, 6, 6)), InvalidModel, "node conv0"),
    "empty": (change_tensor("x", shape=(0, 4, 6, 6)), InvalidModel, "tensor x"),
    "dtype": (change_tensor("x", dtype="int16"), InvalidModel, "tensor x"),
    "int32 activation": (
        change_tensor("x", dtype="int32", quantization=quantization(1, 0)),
        InvalidModel,
        "conv0",
    ),
    "no quantisation": (change_tensor("x", quantization=None), InvalidModel, "node conv0"),
    "zero scale": (
        change_tensor("x", quantization=quantization(0, 0)),
        InvalidModel,
        "tensor x: its scale is 0",
    ),
    "nan scale": (change_tensor("x", quantization=quantization(np.nan, 0)), InvalidModel, "tensor x"),
    "negative scale": (change_tensor("x", quantization=quantization(-1, 0)), InvalidModel, "tensor x"),
    "zero-point": (change_tensor("x", quantization=quantization(1, 256)), InvalidModel, "tensor x"),
    "channels": (
        change_tensor("conv0.w", quantization=quantization([1] * 7, [0] * 7, 0)),
        InvalidModel,
        "conv0.w",
    ),
    "axis": (change_tensor("conv0.w", quantization=quantization([1] * 4, [0] * 4, 1)), InvalidModel, "conv0"),
    "per channel": (
        change_tensor("x", quantization=quantization([1] * 4, [0] * 4, 1)),
        InvalidModel,
        "conv0",
    ),
    "data": (change_tensor("conv0.b", data=np.zeros(8, np.int64)), InvalidModel, "tensor conv0.b"),
    "bias length": (
        change_tensor("conv0.b", data=np.zeros(4, np.int32), shape=(4,), quantization=quantization(1, 0)),
        InvalidModel,
        "node conv0: bias",
    ),
    "bias dtype": (
        change_tensor("conv0.b", data=np.zeros(8, np.int8), dtype="int8"),
        InvalidModel,
        "node conv0: bias of int8",
    ),
    "accumulator": (
        change_tensor("conv0.b", data=np.full(8, 2**31 - 100, np.int32)),
        Unsupported,
        "node conv0: its accumulator could reach",
    ),
    "clamp": (change_node(clamp=(0, 256)), InvalidModel, "node conv0: clamp"),
    "clamp order": (change_node(clamp=(9, 8)), InvalidModel, "node conv0: clamp"),
    "group": (change_node(group=2), InvalidModel, "node conv0"),
    "stride": (change_node(strides=(0, 1)), InvalidModel, "node conv0"),
    "kernel": (change_node(dilations=(4, 4)), InvalidModel, "node conv0"),
    "operands": (change_node(inputs=("x",)), InvalidModel, "node conv0"),
    "huge": (change_tensor("x", shape=(1, 4, 2**20, 2**40)), Unsupported, "tensor x: .* exceeds"),
    "undefined": (change_node(inputs=("nothing", "conv0.w")), InternalError, "'nothing'"),
    "unnamed": (change_node(output="nothing"), InternalError, "'nothing'"),
    "twice": (change_node(output="x"), InternalError, "'x' is defined twice"),
    "not computed": (
        lambda graph: dataclasses.replace(graph, nodes=()),
        InternalError,
        "graph output 'conv0'",
    ),
    "same name": (
        lambda graph: dataclasses.replace(graph, nodes=graph.nodes * 2),
        InternalError,
        "share a name",
    ),
    "misfiled": (
        lambda graph: dataclasses.replace(graph, tensors={"y": graph.tensor("x")}),
        InternalError,
        "'y'",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", WRONG)
def test_the_verifier_refuses(case):
    mutate, error, message = WRONG[case]
    graph = conv_graph()
    verify(graph)
    with pytest.raises(TowlineError, match=message) as caught:
        verify(mutate(graph))
    assert type(caught.value) is error


def test_order_pools_and_float_are_verified():
    builder = GraphBuilder((1, 4, 6, 6))
    builder.max_pool(builder.conv("x", 4), 2)
    graph = builder.graph()
    with pytest.raises(InternalError, match="node maxpool1: 'conv0' is read before"):
        verify(dataclasses.replace(graph, nodes=graph.nodes[::-1]))
    moved = dataclasses.replace(graph.tensor("maxpool1"), quantization=quantization(9, 9))
    with pytest.raises(InvalidModel, match="node maxpool1: MaxPool changes the quantisation"):
        verify(dataclasses.replace(graph, tensors=graph.tensors | {"maxpool1": moved}))
    pool = dataclasses.replace(graph.nodes[1], pads=(2, 2, 2, 2))
    with pytest.raises(InvalidModel, match="node maxpool1: a pooling window lies wholly in the padding"):
        verify(dataclasses.replace(graph, nodes=(graph.nodes[0], pool)))
    real = Tensor("x", (1, 4, 6, 6), "float32")
    with pytest.raises(InvalidModel, match="node conv0: Conv with float32 at x"):
        verify(dataclasses.replace(graph, tensors=graph.tensors | {"x": real}))
