"""q15 on Hexagon: each kernel that requantises sums, compared with the reference; and where it is chosen."""

import dataclasses

import numpy as np
import pytest

from dsp.hexagon.lowering import lower
from dsp.hexagon.packing import Q15_ROOM
from dsp.hexagon.target import HexagonTarget
from sdk import artifact
from sdk.arithmetic import q15, scale_ratio
from sdk.check import check
from sdk.compiler import compile
from sdk.errors import Unsupported, UsageError
from sdk.graph import Conv, Gemm, Graph, Quantization, Tensor
from sdk.session import Session
from sdk.target import Options
from sdk.targets import get_target
from tests.contract.targets import assert_identical, random_input
from tests.graph_builder import GraphBuilder, mobilenet_v2
from towline.cli import main


class Q15(HexagonTarget):
    """The target with q15 as its own arithmetic."""

    arithmetic = "q15"


TARGET = Q15("v65")


def symbols(graph: Graph, arithmetic: str = "q15") -> set[str]:
    layers = lower(graph, arithmetic=arithmetic).layers
    return {call.kernel.symbol for layer in layers for call in layer.calls}


def clamped(graph: Graph, low: int, high: int) -> Graph:
    nodes = [
        dataclasses.replace(node, clamp=(low, high)) if isinstance(node, Conv) else node
        for node in graph.nodes
    ]
    return dataclasses.replace(graph, nodes=tuple(nodes))


# --- the loops written packet by packet -------------------------------------------------------------------


def pointwise(height: int, width: int, channels: int, *, relu: bool, padded: bool, limits=None) -> Graph:
    """A pointwise convolution to seven planes; with `padded` a depthwise one reads it, with its padding."""
    b = GraphBuilder((1, channels, height, width), seed=height)
    y = b.conv("x", 26, relu=relu)
    if padded:
        b.depthwise(y, pads=1)
    graph = b.graph()
    return graph if limits is None else clamped(graph, *limits)


FORMS = {
    "from_zero": {"relu": True, "padded": False},
    "bounded_from_zero": {"relu": True, "padded": True},
    "unclamped": {"relu": False, "padded": False},
    "any": {"relu": False, "padded": False, "limits": (20, 231)},
    "bounded": {"relu": False, "padded": True},
}


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("height", "width", "channels"),
    [(8, 8, 8), (8, 11, 9), (14, 9, 16), (9, 18, 40), (17, 17, 7), (14, 31, 12), (20, 31, 12)],
)
def test_groups_of_two_three_and_four_vectors(form, height, width, channels):
    """By 2, 3, 4 and 10 steps; either context has half of 2 to 20 vectors: groups of every kind and order."""
    graph = pointwise(height, width, channels, **FORMS[form])
    wanted = "conv_" + str(-(-channels // 4))
    found = [name for name in symbols(graph) if name.startswith(wanted) and "pipelined" in name]
    assert [("from_zero" in name, "unclamped" in name, "bounded" in name) for name in found] == [
        ("from_zero" in form, form == "unclamped", "bounded" in form)
    ]
    assert_identical(TARGET, graph)


@pytest.mark.slow
@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("height", "width"), [(8, 9), (12, 8), (15, 15), (30, 21)])
def test_depthwise_loops(height, width, stride, relu):
    """Odd and even numbers of vectors, from two on, over several planes."""
    b = GraphBuilder((1, 11, height * stride, width * stride), seed=width)
    b.depthwise(b.conv("x", 18, relu=True), strides=stride, pads=1, relu=relu)
    assert any("three_by_three_q15" in name for name in symbols(b.graph()))
    assert_identical(TARGET, b.graph())


# --- all others -------------------------------------------------------------------------------------------


def several() -> Graph:
    """Windows through tables, borders that count fewer pixels, whole pictures, an Add in place."""
    b = GraphBuilder((1, 5, 11, 13), seed=5)
    x = b.conv("x", 9, 3, pads=1)
    x = b.add(x, b.conv(x, 9))
    x = b.average_pool(x, 3, strides=2, pads=1)
    x = b.depthwise(b.average_pool(x, 2), 5, pads=2)
    b.gemm(b.reshape(b.global_average_pool(x)), 37)
    return b.graph()


def matrices() -> Graph:
    """One to four vectors of columns; with rows that fill vectors and rows that do not."""
    b = GraphBuilder((7, 24), seed=6)
    ends = [b.gemm("x", columns) for columns in (20, 60, 90, 128, 130)]
    return b.graph(*ends)


def products() -> Graph:
    b = GraphBuilder((1, 6, 9, 7), seed=7)
    x = b.conv_transpose("x", 8, 4, strides=2, pads=1)
    rows = b.reshape(x, (8, 18 * 14))
    b.matmul(rows, rows, transposed=True)
    return b.graph()


def rolled() -> Graph:
    b = GraphBuilder((1, 6, 14, 15), seed=8)
    b.average_pool("x", 9)
    return b.graph()


@pytest.mark.slow
@pytest.mark.parametrize("make", [several, matrices, products, rolled])
def test_compiled_kernels(make):
    assert_identical(TARGET, make())


@pytest.mark.slow
def test_a_mean_beside_a_pool_stays_q31():
    """Both are sums over whole planes by one kernel, but only the pool is requantised in q15."""
    b = GraphBuilder((1, 8, 12, 12), seed=9)
    b.global_average_pool(b.max_pool(b.conv("x", 8), 3))
    assert "global_pool_q15" in symbols(b.graph())
    assert_identical(TARGET, b.graph())


@pytest.mark.slow
def test_mobilenet_v2():
    assert_identical(TARGET, mobilenet_v2(96, 0.35))


# --- numbers ----------------------------------------------------------------------------------------------


def of_accumulators(accumulators: np.ndarray, scales: np.ndarray, gemm: bool, zero_point: int) -> Graph:
    """A product whose accumulators are these: its weights are zeros, its bias is they."""
    channels, sizes = len(accumulators), ((), ()) if gemm else ((8, 8), (1, 1))
    x = Tensor("x", (1, 8, *sizes[0]), "uint8", Quantization.per_tensor(1.0, 0))
    axis, zeros = 0, np.zeros(channels, np.int32)
    weight = np.zeros((channels, 8, *sizes[1]), np.int8)
    w = Tensor("w", weight.shape, "int8", Quantization(scales, zeros, axis), weight)
    b = Tensor("b", (channels,), "int32", Quantization(scales, zeros, axis), accumulators.astype(np.int32))
    y = Tensor("y", (1, channels, *sizes[0]), "uint8", Quantization.per_tensor(1.0, zero_point))
    names = ("x", "w", "b")
    node = (
        Gemm("n", names, "y", (0, 255))
        if gemm
        else Conv("n", names, "y", (1, 1), (0, 0, 0, 0), (1, 1), 1, (0, 255))
    )
    return Graph("one", ("x",), ("y",), {t.name: t for t in (x, w, b, y)}, (node,))


@pytest.mark.slow
@pytest.mark.parametrize("gemm", [True, False])
@pytest.mark.parametrize("largest", [2.0**-30, 3e-6, 0.0007, 0.011, 0.24999, 0.4999, 0.77, 200.0])
def test_all_accumulators_and_scales(largest, gemm):
    """Ties, their neighbours, the ends of int32 and of the output, by scales over three decades."""
    random = np.random.default_rng(int(largest * 1e6))
    channels = 512
    scales = (largest * 10.0 ** random.uniform(-3, 0, channels)).astype(np.float32)
    scales[0] = largest
    constants = q15(scale_ratio(scales, over=1.0))
    room = (Q15_ROOM - 1) >> constants.left
    halves = random.integers(-700, 700, channels) * 2 + 1  # accumulators nearest to a tie
    tie = np.rint(
        np.ldexp(halves, constants.right - 1 - constants.left) / np.maximum(constants.multipliers, 1)
    )
    accumulators = np.clip(tie + random.integers(-1, 2, channels), -room, room).astype(np.int64)
    accumulators[1::8], accumulators[2::8] = room[1::8], -room[2::8]
    accumulators[3::8] = random.integers(-(2**31), 2**31, channels // 8) % (2 * room[3::8]) - room[3::8]
    for zero_point in (0, 114, 255):
        assert_identical(TARGET, of_accumulators(accumulators, scales, gemm, zero_point))


def test_an_accumulator_that_the_narrowing_could_overflow_is_refused():
    scales = np.array([0.3], np.float32)
    lower(of_accumulators(np.array([Q15_ROOM - 1]), scales, True, 0), arithmetic="q15")
    beyond = of_accumulators(np.array([Q15_ROOM]), scales, True, 0)
    with pytest.raises(Unsupported, match="does not fit 32 bits"):
        lower(beyond, arithmetic="q15")
    lower(beyond, arithmetic="q31")


# --- by name ----------------------------------------------------------------------------------------------


def network() -> Graph:
    b = GraphBuilder((1, 4, 6, 6), seed=1)
    b.depthwise(b.conv("x", 8, relu=True), pads=1)
    return b.graph()


def test_it_is_off_by_default():
    graph = several()
    assert not [name for name in symbols(graph, "q31") if "q15" in name]
    assert get_target("hexagon-v65").arithmetic == "q31"
    sums = ("conv", "depthwise", "gemm", "matmul", "global_pool")
    assert all("_q15" in name for name in symbols(graph) if name.startswith(sums))


@pytest.mark.slow
def test_the_default_is_q31_byte_by_byte():
    target = get_target("hexagon-v65")
    default, named, other = (
        target.compile(network(), Options(arithmetic=arithmetic)) for arithmetic in (None, "q31", "q15")
    )
    assert default.code == named.code
    assert default.code != other.code


@pytest.mark.slow
def test_the_artefact_says_it(tmp_path):
    path = tmp_path / "net.tow"
    compile(several(), "hexagon-v65", path, arithmetic="q15")
    loaded = artifact.load(path)
    assert loaded.arithmetic == "q15"
    with Session(loaded) as session:
        found = check(loaded, session, random_input(several()))
    assert found.elements > 0
    assert found.mismatches == 0


@pytest.mark.parametrize("target", ["c", "adreno-a6xx", "amd-gfx1100"])
def test_other_targets_refuse_it(target):
    with pytest.raises(UsageError, match="q15") as refusal:
        compile(network(), target, arithmetic="q15")
    assert "f32" in refusal.value.hint


def test_the_command_line_refuses_it(capsys, tmp_path):
    model = tmp_path / "net.onnx"
    model.write_bytes(b"")
    arguments = ["compile", str(model), "--target", "c", "-o", str(tmp_path / "n.tow"), "--arithmetic", "q15"]
    assert main(arguments) == 2
    assert "does not requantise in q15" in capsys.readouterr().err
