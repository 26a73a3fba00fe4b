"""How the Adreno target lowers networks: which launches, of which kernels, with which constants."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

from dsp.adreno import packing, workgroups
from dsp.adreno.lowering import lower
from dsp.adreno.plan import LIMIT, AdrenoPlan
from dsp.adreno.products import WAVE
from dsp.adreno.target import adreno_a6xx
from sdk import reference
from sdk.errors import EnvironmentMissing, Unsupported
from sdk.graph import Graph, Quantization, Softmax
from sdk.passes import unsigned_activations
from sdk.target import Options, Program
from sdk.verification import verify
from tests.graph_builder import RANGES, GraphBuilder, mobilenet_v2

TARGET = adreno_a6xx()


def functions(plan):
    return [plan.kernels[step.kernel].function for step in plan.steps if step.op != "Layout"]


# -- launches ---------------------------------------------------------------------------------------------


def test_a_residual_add_and_a_table_are_launched_with_their_product():
    b = GraphBuilder((1, 8, 5, 6))
    x = b.conv("x", 8)
    y = b.lookup(b.depthwise(x, pads=1), np.tanh)
    b.add(b.conv(y, 8), x)
    graph = b.graph()
    plan = lower(graph).plan
    assert [step.op for step in plan.steps if step.nodes] == ["Conv", "Conv+Lookup", "Conv+Add"]
    assert [step.nodes for step in plan.steps][-2] == [graph.nodes[-2].name, graph.nodes[-1].name]
    assert graph.nodes[-2].output not in plan.tensors  # it has no place, so it cannot be traced


@pytest.mark.parametrize("shown", [False, True])
def test_a_sum_that_is_used_twice_is_not_fused_with_an_add(shown):
    b = GraphBuilder((1, 4, 5, 6))
    x = b.conv("x", 4)
    y = b.add(x, "x")
    plan = lower(b.graph(y, x) if shown else b.graph(y)).plan
    assert functions(plan) == (["pointwise", "add"] if shown else ["pointwise"])


def test_layers_of_one_shape_share_a_kernel():
    b = GraphBuilder((1, 8, 6, 6))
    x = b.conv(b.conv("x", 8), 8, relu=True)
    b.depthwise(b.depthwise(x, pads=1, relu=True), pads=1)
    lowered = lower(b.graph())
    plan = lowered.plan
    assert [plan.kernels[step.kernel].name for step in plan.steps] == [
        "from_input_0",
        "pointwise_1",
        "pointwise_1",
        "depthwise_2",
        "depthwise_2",
        "to_output_3",
    ]
    assert lowered.source.count(b"__kernel") == 4


def test_a_reshape_of_a_pixel_is_another_name():
    b = GraphBuilder((1, 8, 3, 3))
    y = b.reshape(b.global_average_pool("x"))
    b.gemm(y, 3)
    plan = lower(b.graph()).plan
    assert functions(plan) == ["average_pool", "pointwise"]
    assert y in next(step for step in plan.steps if step.op == "GlobalAveragePool").tensors


def test_whole_blocks_are_concatenated_as_texels():
    b = GraphBuilder((1, 4, 3, 3))
    x = b.alike(b.conv("x", 8), "x")
    b.concat(x, "x")
    texels = lower(b.graph()).source
    b.concat("x", b.alike(b.conv("x", 3), "x"), x)
    elements = lower(b.graph()).source
    assert b"element(x" not in texels.partition(b"__kernel")[2]
    assert b"element(x" in elements.partition(b"__kernel")[2]


@pytest.mark.slow
def test_mobilenet_is_as_many_launches_as_layers():
    graph = mobilenet_v2(32, 0.25, 10)
    plan = lower(graph).plan
    assert {step.op for step in plan.steps} == {"Conv", "Conv+Add", "Gemm", "GlobalAveragePool", "Layout"}
    assert sum(step.op == "Layout" for step in plan.steps) == 2
    nodes = [name for step in plan.steps for name in step.nodes]
    assert set(nodes) == {node.name for node in graph.nodes if node.op != "Reshape"}
    assert len(nodes) == len(set(nodes))


def test_names_of_the_network_are_not_in_the_code():
    b = GraphBuilder((1, 4, 5, 5))
    b.conv("x", 4)
    graph = b.graph()
    renamed = dataclasses.replace(graph, nodes=(dataclasses.replace(graph.nodes[0], name="*/ \n#error"),))
    assert lower(renamed).source == lower(graph).source


@pytest.mark.parametrize("width", [1, 2, 7, 13, 28])
@pytest.mark.parametrize("outputs", [4, 400])
def test_strips_leave_a_wave_where_they_can(width, outputs):
    b = GraphBuilder((1, 4, 7, width))
    b.conv("x", outputs)
    plan = lower(b.graph()).plan
    (step,) = (step for step in plan.steps if step.op == "Conv")
    pixels = plan.kernels[step.kernel].constants["pixels"]
    assert pixels <= width
    assert step.items[0] == -(-width // pixels)
    assert math.prod(step.items) >= min(WAVE, width * 7 * outputs // 4)


# -- weights ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "fold"), [((6, 10), 1), ((20, 5), 4), ((5, 6, 3, 2), 1), ((30, 3, 1, 3), 2)]
)
def test_weights_of_products_are_where_the_kernels_read_them(shape, fold):
    weights = np.random.default_rng(0).integers(-128, 128, shape).astype(np.int16)
    texels = packing.product_weights(weights, fold)
    inputs = -(-shape[1] // 4)
    columns = math.prod(shape[2:]) * inputs
    assert texels.shape == (4 * -(-shape[0] // (4 * fold)), fold * columns, 4)
    for (o, c, tap), value in np.ndenumerate(weights.reshape(*shape[:2], -1)):
        below, side = divmod(o // 4, fold)
        assert texels[4 * below + o % 4, side * columns + tap * inputs + c // 4, c % 4] == value
    assert np.abs(texels.astype(int)).sum() == np.abs(weights.astype(int)).sum()  # the rest is zeros


def test_depthwise_weights_are_where_the_kernel_reads_them():
    weights = np.random.default_rng(0).integers(-128, 128, (5, 1, 3, 2)).astype(np.int16)
    texels = packing.depthwise_weights(weights)
    assert texels.shape == (2, 6, 4)
    for (o, _, ky, kx), value in np.ndenumerate(weights):
        assert texels[o // 4, ky * 2 + kx, o % 4] == value


@pytest.mark.parametrize(
    ("bias", "within"), [(2**31 - 256, True), (2**31 - 255, False), (-(2**31) + 510, True), (-(2**31), False)]
)
def test_sums_that_leave_int32_are_known(bias, within):
    """Of weights 1 and -2: from 510 below the bias to 255 above it."""
    weights, zeros = np.array([[0, 0], [1, -2]], np.int16), np.zeros(1, np.int32)
    assert packing.stays_within_int32(weights, np.append(zeros, np.int32(bias))) == within


@pytest.mark.parametrize(("zero_point", "dots"), [(None, 1), (117, 0)])
def test_weights_of_nine_bits_use_no_dot_products(zero_point, dots):
    b = GraphBuilder((1, 8, 3, 3))
    b.conv("x", 8, per_channel=False, weight_zero_point=zero_point)
    plan = lower(b.graph()).plan
    assert [kernel.constants["dots"] for kernel in plan.kernels if kernel.function == "pointwise"] == [dots]


def test_sums_that_may_leave_int32_use_no_dot_products():
    b = GraphBuilder((1, 8, 3, 3))
    b.conv("x", 8)
    graph = b.graph()
    bias = graph.tensors["conv0.b"]
    graph.tensors["conv0.b"] = dataclasses.replace(bias, data=np.full(8, 2**31 - 1, np.int32))
    assert lower(graph).plan.kernels[1].constants["dots"] == 0


@pytest.mark.parametrize(
    ("pads", "rows", "both"), [(0, 0, 0), ((1, 0, 0, 0), 1, 1), ((0, 0, 1, 0), 1, 1), ((0, 1, 0, 0), 0, 1)]
)
def test_windows_that_reach_beyond_the_border_are_known(pads, rows, both):
    b = GraphBuilder((1, 4, 6, 6))
    plan = lower(b.graph(b.depthwise("x", pads=pads), b.conv("x", 4, 3, pads=pads))).plan
    assert [plan.kernels[1].constants["outside"], plan.kernels[2].constants["padded"]] == [rows, both]


@pytest.mark.parametrize(("zero_point", "dtype"), [(None, "int8"), (117, "int16")])
def test_weights_of_nine_bits_are_kept_in_sixteen(zero_point, dtype):
    b = GraphBuilder((1, 8, 3, 3))
    b.conv("x", 8, per_channel=False, weight_zero_point=zero_point)
    (weights,) = lower(b.graph()).plan.weights
    assert weights.dtype == dtype
    assert weights.nbytes == 8 * 8 * np.dtype(dtype).itemsize


def test_equal_constants_are_kept_once():
    b = GraphBuilder((1, 8, 3, 3))
    b.add(b.lookup("x", np.tanh), b.lookup("x", np.tanh))
    assert lower(b.graph()).plan.tables == 256


# -- work-groups ------------------------------------------------------------------------------------------


ITEMS = [(1, 1, 1), (1, 1, 3), (7, 7, 240), (28, 112, 8), (1, 7, 40), (1, 1, 250), (97, 1, 1)]


@pytest.mark.parametrize("items", ITEMS)
def test_no_work_group_of_whole_waves_leaves_fewer_idle(items):
    size, reason = workgroups.choose(items)
    powers = [1 << n for n in range(8)]
    limits = [2 * n for n in items]

    def padded(shape):
        return math.prod(-(-n // local) * local for n, local in zip(items, shape, strict=True))

    shapes = [
        shape
        for shape in itertools.product(powers, repeat=3)
        if math.prod(shape) in workgroups.WAVES and all(a < b for a, b in zip(shape, limits, strict=True))
    ]
    if shapes:
        assert math.prod(size) in workgroups.WAVES
        assert padded(size) == min(map(padded, shapes))
    else:
        assert math.prod(size) < 64
    assert f"{padded(size) - math.prod(items)} of {padded(size)} idle" in reason


# -- refusals ---------------------------------------------------------------------------------------------


def refusal(graph: Graph, index: int = -1) -> str:
    verdict = TARGET.supports(graph, graph.nodes[index])
    assert not verdict.supported
    return verdict.reason


def test_what_does_not_fit_an_image_is_refused_by_name():
    b = GraphBuilder((1, 1, 1, 16385))
    b.max_pool("x", (1, 2))
    reason = refusal(b.graph())
    assert "x of [1, 1, 1, 16385]" in reason
    assert "16384 x 16384" in reason
    b = GraphBuilder((1, 4, 1, 1))
    b.conv("x", 16 * 64 * 4 + 1)
    with pytest.raises(Unsupported, match="its weights of 128 x 36 texels"):
        lower(b.graph(), limit=64)


def test_scales_windows_and_batches_are_refused():
    b = GraphBuilder((1, 4, 6, 6))
    y = b.conv("x", 4)
    graph = b.graph()
    out = graph.tensor(y)
    graph.tensors[y] = dataclasses.replace(out, quantization=Quantization.per_tensor(1e-9, 3))
    assert "out of range" in refusal(graph)
    wide = dataclasses.replace(graph, nodes=(dataclasses.replace(graph.nodes[0], strides=(1 << 15, 1)),))
    assert "window" in refusal(wide)
    assert "32768" in refusal(wide)
    b = GraphBuilder((3, 4))
    b.gemm("x", 4)
    assert "batch of 3" in refusal(b.graph())


def test_too_many_operands_are_refused():
    b = GraphBuilder((1, 1, 1, 1))
    b.concat(*["x"] * 65)
    assert "65 operands" in refusal(b.graph())


# -- on a device ------------------------------------------------------------------------------------------


DOT_PRODUCTS = {
    "": "",
    "cl_khr_integer_dot_product": """
int dot_acc_sat_4x8packed_su_int(uint a, uint b, int sum) {
  const short4 p = convert_short4(as_char4(a)) * convert_short4(as_uchar4(b));
  return add_sat((int)p.x + p.y + p.z + p.w, sum);
}
""",
    "cl_qcom_dot_product8": """
int qcom_dot8_acc(uint p0, uint p1, int acc) {
  long dot = acc;
  for (int i = 0; i < 32; i += 8) dot += (char)(p0 >> i & 255) * (int)(p1 >> i & 255);
  return clamp(dot, (long)INT_MIN, (long)INT_MAX);
}
""",
}
"""By extension, OpenCL C in place of a device's built-in function: PoCL has neither."""


def assert_identical(graph: Graph, limit: int = LIMIT, dot_products: str = "") -> None:
    """Every layer equals the reference, in images and in buffers, with images of at most `limit` texels."""
    from dsp.adreno.session import OpenClSession

    verify(graph)
    lowered = lower(unsigned_activations(graph), limit=limit)
    source = DOT_PRODUCTS[dot_products].encode() + lowered.source
    program = Program(TARGET.name, graph, lowered.plan.to_json(), lowered.weights, {"network.cl": source})
    assert max(AdrenoPlan.of(program).largest_image) <= limit
    x = graph.tensor("x")
    inputs = {"x": np.random.default_rng(1).integers(*RANGES[x.dtype], x.shape, x.dtype, endpoint=True)}
    expected = reference.run(graph, inputs, "f32")
    try:
        device = TARGET.open(None)
    except EnvironmentMissing as missing:
        pytest.skip(missing.message)
    found = dataclasses.replace(device.found, extensions=frozenset({dot_products}))
    for images in (True, False):
        with OpenClSession(program, found, images=images) as session:
            for poison in (0x00, 0xA5):
                session.poison(poison)
                for name, value in session.trace(inputs).items():
                    where = f"{name}, images: {images}, poison {poison:#x}"
                    np.testing.assert_array_equal(value, expected[name], err_msg=where)


@pytest.mark.slow
def test_folded_products_in_images_and_buffers():
    """Blocks of activations and of weights that lie side by side, too; and strips that overlap."""
    b = GraphBuilder((1, 40, 5, 6), dtype="int8")
    b.conv("x", 52)
    assert_identical(b.graph(), limit=48)


@pytest.mark.slow
@pytest.mark.parametrize("dot_products", [*filter(None, DOT_PRODUCTS)])
def test_dot_products_in_images_and_buffers(dot_products, caplog):
    """Of 1 x 1, of windows and groups; weights of nine bits in between do not use them."""
    b = GraphBuilder((1, 24, 6, 7), seed=3)
    x = b.conv("x", 16, 3, pads=1, strides=2)
    y = b.conv(x, 16, per_channel=False, weight_zero_point=117)
    z = b.conv(b.add(b.conv(x, 16), y), 32, (1, 3), pads=(0, 1, 0, 1), group=2)
    b.gemm(b.reshape(b.depthwise(z)), 10)
    assert_identical(b.graph(), dot_products=dot_products)
    assert not caplog.records  # it builds with them


@pytest.mark.slow
def test_everything_folded_in_images_and_buffers():
    b = GraphBuilder((1, 20, 7, 11), seed=4)
    x = b.conv("x", 36, 3, pads=1, relu=True)
    y = b.depthwise(x, pads=1)
    y = b.add(b.conv(y, 36), x)
    grouped = b.conv(y, 24, 3, pads=(0, 1, 2, 0), group=3, dilations=(1, 2))
    dilated = b.depthwise(y, 3, dilations=2, pads=2, strides=(2, 1))
    gate = b.lookup(b.conv(b.global_average_pool(y), 36), np.tanh)
    z = b.mul(y, gate)
    joined = b.concat(z, b.alike(grouped_like := b.conv(y, 7), z), z)
    turned = b.transpose(grouped_like, (0, 2, 3, 1))
    pooled = b.average_pool(b.max_pool(y, 3, strides=2, pads=1), 2, pads=1)
    padded = b.pad(b.resize(pooled, [2, 0], [1, 0]), (1, 0, 0, 1))
    last = b.gemm(b.reshape(b.requantize(padded)), 9)
    assert_identical(b.graph(grouped, dilated, joined, turned, last), limit=128)


@pytest.mark.slow
def test_every_length_of_a_strip():
    for width in (3, 7, 11):
        b = GraphBuilder((1, 4, 90, width), seed=width)
        b.conv("x", 48)
        assert_identical(b.graph())


@pytest.mark.slow
def test_every_window_of_strips_that_reach_beyond_the_border():
    for width in (2, 9):
        b = GraphBuilder((1, 4, 90, width), seed=width)
        wide = b.depthwise("x", (3, 5), pads=(2, 3, 1, 4), strides=(1, 2))
        tall = b.depthwise("x", (5, 3), pads=2, strides=(2, 1), dilations=(2, 1))
        other = b.conv("x", 5, 3, pads=(2, 3, 1, 2), strides=(1, 2))
        assert_identical(b.graph(wide, tall, other))


def test_the_program_is_the_same_twice():
    b = GraphBuilder((1, 4, 6, 6))
    b.concat(b.alike(b.depthwise(b.conv("x", 8), pads=1), "x"), "x", b.alike(b.conv("x", 6), "x"))
    program, again = (TARGET.compile(b.graph(), Options()) for _ in range(2))
    assert (program.plan, bytes(program.weights), program.code) == (
        again.plan,
        bytes(again.weights),
        again.code,
    )


def test_an_operator_without_a_kernel_is_refused():
    b = GraphBuilder((1, 4, 3, 3))
    b.conv("x", 4)
    graph = b.graph()
    softmax = Softmax("softmax", ("x",), graph.outputs[0], axis=1)
    assert "no integer kernel" in refusal(dataclasses.replace(graph, nodes=(softmax,)))
