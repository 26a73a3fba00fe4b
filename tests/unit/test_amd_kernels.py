"""The AMD targets' kernels one by one: rounding, every shape of the matrix kernel, packing, division."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdk import reference
from sdk.arena import Buffer
from sdk.graph import Add, Gemm, Graph, Quantization, Requantize, Tensor
from sdk.opencl.calls import At, divisor
from sdk.target import Options
from tests.amount import amount
from tests.chips import GENERATIONS
from tests.contract.targets import assert_identical
from tests.graph_builder import GraphBuilder
from tests.shader_gpu import target
from usbgpu.amd.facts import chips
from usbgpu.target import products, windows
from usbgpu.target.moves import copy, strides_of
from usbgpu.target.packing import matrix_weights, signed_weights, tile_rows
from usbgpu.target.tiling import Tiling, candidates, matrix_tiling, strip

CHIPS = ("gfx1100", "gfx1201")
MOSTLY = ("gfx1100", pytest.param("gfx1201", marks=pytest.mark.slow))
"""For tests where the chips differ only in what tests/contract/test_target_operators.py tests on both."""
CUTS = [cut for tiles in (1, 2, 4) for cut in candidates(tiles, 9) if cut.tiles == tiles]
QUICK = ((Tiling(1, 2, 4), "gfx1100"), (Tiling(4, 1, 2), "gfx1201"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cut", "chip"),
    [
        pytest.param(cut, chip, marks=() if (cut, chip) in QUICK else pytest.mark.slow)
        for place, cut in enumerate(CUTS)
        for chip in CHIPS
        if (cut, chip) in QUICK or amount(place % 3 == 0 and chip == GENERATIONS[place // 3 % 2], True)
    ],
)
def test_every_cut_of_a_product(cut, chip, monkeypatch):
    monkeypatch.setattr(products, "matrix_tiling", lambda *_: cut)
    b = GraphBuilder((1, 133, 5, 7), seed=4)  # 9 steps of k: an odd share for each split
    x = b.conv("x", 60, 3, pads=1, relu=True)
    x = b.add(b.conv(x, 60), x)
    b.lookup(b.conv(x, 60, weight_zero_point=77), np.tanh)
    assert_identical(target(chip), b.graph())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pixels", "chip"), [pytest.param(2, "gfx1100", marks=pytest.mark.slow), (4, "gfx1201")]
)
def test_strips_that_end_beside_the_row(pixels, chip, monkeypatch):
    monkeypatch.setattr(windows, "strip", lambda *_: pixels)
    b = GraphBuilder((1, 20, 9, 7), seed=5)
    x = b.depthwise("x", pads=1, relu=True)
    x = b.add(b.depthwise(x, pads=2, dilations=2), x)
    x = b.lookup(b.depthwise(x, pads=1, weight_zero_point=200), np.tanh)
    y = b.average_pool(b.depthwise(x, strides=2, pads=(1, 0, 0, 2)), 2, pads=(0, 1, 1, 0))
    assert_identical(target(chip), b.graph(x, y, b.max_pool(x, 3, strides=2)), guard=128)


@pytest.mark.slow
@pytest.mark.parametrize("chip", MOSTLY)
@pytest.mark.parametrize("zero_point", [0, 1, 100, 101, 255])
def test_ties_are_rounded_to_even(chip, zero_point):
    """A scale of exactly a half makes every odd accumulator a tie, whatever the zero-point's parity."""
    half = Quantization.per_tensor(0.5, 120)
    tensors = {
        "x": Tensor("x", (1, 256), "uint8", half),
        "w": Tensor("w", (256, 256), "int8", Quantization.per_tensor(1.0, 0), np.eye(256, dtype=np.int8)),
        "y": Tensor("y", (1, 256), "uint8", Quantization.per_tensor(1.0, zero_point)),
        "z": Tensor("z", (1, 256), "uint8", Quantization.per_tensor(1.0, zero_point)),
    }
    nodes = (Gemm("gemm", ("x", "w"), "y", (0, 255)), Requantize("again", ("x",), "z", (3, 250)))
    graph = Graph("ties", ("x",), ("y", "z"), tensors, nodes)
    amd = target(chip)
    x = np.arange(256, dtype=np.uint8).reshape(1, 256)
    expected = reference.run(graph, {"x": x}, "f32")
    with amd.open(None).load(amd.compile(graph, Options())) as session:
        for name, value in session.run({"x": x}).items():
            np.testing.assert_array_equal(value, expected[name])


@pytest.mark.parametrize("chip", MOSTLY)
def test_each_operation_of_an_add_is_rounded(chip):
    """All pairs of operands, with ratios for which a fused multiply-add, of either product, shows in two."""
    quantizations = {
        "x": Quantization.per_tensor(0.8693662285804749, 128),
        "z": Quantization.per_tensor(0.5760270953178406, 100),
        "y": Quantization.per_tensor(1.0, 120),
    }
    tensors = {name: Tensor(name, (1, 65536), "uint8", q) for name, q in quantizations.items()}
    graph = Graph("pairs", ("x", "z"), ("y",), tensors, (Add("add", ("x", "z"), "y", (0, 255)),))
    values = np.arange(256, dtype=np.uint8)
    inputs = {"x": np.repeat(values, 256)[None], "z": np.tile(values, 256)[None]}
    amd = target(chip)
    with amd.open(None).load(amd.compile(graph, Options())) as session:
        found = session.run(inputs)["y"]
    np.testing.assert_array_equal(found, reference.run(graph, inputs, "f32")["y"])


@pytest.mark.parametrize("chip", MOSTLY)
def test_the_largest_sums_and_scales(chip):
    """Accumulators that a float cannot hold, and products far beyond any byte, saturate."""
    k = 4096
    weights = np.full((20, k), 127, np.int8)
    weights[1::2] = -128
    scales = np.float32(2.0) ** np.arange(-30, 10)[::2]
    tensors = {
        "x": Tensor("x", (1, k), "uint8", Quantization.per_tensor(1.0, 0)),
        "w": Tensor("w", (20, k), "int8", Quantization(scales, np.zeros(20, np.int32), 0), weights),
        "b": Tensor(
            "b", (20,), "int32", Quantization(scales, np.zeros(20, np.int32), 0), np.full(20, 77, np.int32)
        ),
        "y": Tensor("y", (1, 20), "uint8", Quantization.per_tensor(1.0, 128)),
    }
    graph = Graph("large", ("x",), ("y",), tensors, (Gemm("gemm", ("x", "w", "b"), "y", (0, 255)),))
    assert_identical(target(chip), graph)


def product(k, x, weight, bias, output, clamp=(0, 255)):
    """y = weight * sum(x) + bias, as Gemm: `x` and `output` are (scale, zero-point)."""
    channels, scale = 20, np.full(20, x[0], np.float32)
    zeros = np.zeros(channels, np.int32)
    tensors = {
        "x": Tensor("x", (1, k), "uint8", Quantization.per_tensor(*x)),
        "w": Tensor(
            "w", (channels, k), "int8", Quantization(scale, zeros, 0), np.full((channels, k), weight, np.int8)
        ),
        "b": Tensor(
            "b", (channels,), "int32", Quantization(scale, zeros, 0), np.full(channels, bias, np.int32)
        ),
        "y": Tensor("y", (1, channels), "uint8", Quantization.per_tensor(*output)),
    }
    return Graph("product", ("x",), ("y",), tensors, (Gemm("gemm", ("x", "w", "b"), "y", clamp),))


@pytest.mark.slow
@pytest.mark.parametrize("chip", MOSTLY)
def test_sums_and_scales_at_their_ends(chip):
    """Biases at the ends of int32, folded ones beyond; scales of 0 and of nearly 512; clamps of one value."""
    reach = 255 * 127 * 64
    for graph in (
        product(64, (1.0, 255), 127, 2**31 - 1 - reach, (2.0**24, 3)),
        product(64, (1.0, 0), 127, -(2**31) + 1 + reach, (2.0**24, 250)),
        product(60000, (1.0, 128), -128, -(2**31) + 1 + 128 * 128 * 60000, (2.0**24, 128)),
        product(64, (1e-38, 0), 127, 5, (1.0, 128)),
        product(64, (0.1, 3), -5, 5, (1.0, 128), (7, 7)),
        product(16, (0.1, 128), 3, 0, (1.0, 200), (3, 100)),
        product(3, (22.6, 128), 127, 0, (1.0, 0)),
    ):
        assert_identical(target(chip), graph)


@pytest.mark.slow
@given(by=st.integers(1, 1 << 24), value=st.integers(0, (1 << 31) - 1))
def test_division(by, value):
    multiplier, shift = divisor(by)
    assert multiplier < 1 << 32
    for number in (value, value // by * by, max(value // by * by - 1, 0)):
        assert ((number << 1) * multiplier >> 32) >> shift == number // by


@pytest.mark.parametrize("generation", [11, 12])
def test_rows_of_a_tile(generation):
    """A lane's eight registers hold eight consecutive channels, as the kernel assumes."""
    rows = list(tile_rows(generation))
    assert sorted(rows) == list(range(16))
    for upper in (0, 1):
        held = [rows[i + 8 * upper if generation == 12 else 2 * i + upper] for i in range(8)]
        assert held == list(range(8 * upper, 8 * upper + 8))
    weights = np.arange(16 * 20, dtype=np.int16).reshape(16, 20, 1, 1) % 100
    packed = matrix_weights(weights, 32, generation)
    assert packed.shape == (1, 1, 2, 16, 16)
    np.testing.assert_array_equal(packed[0, 0, 0, 1], weights[rows[1], :16, 0, 0])
    assert not packed[0, 0, 1, :, 4:].any()


@given(low=st.integers(-255, 0), data=st.data())
def test_weights_of_nine_bits_are_signed_bytes_and_an_offset(low, data):
    """Of each channel by itself; what fits stays as it is."""
    channel = data.draw(st.lists(st.integers(low, low + 255), min_size=3, max_size=3))
    weights = np.array([channel, [-128, 0, 127]], np.int16).reshape(2, 3, 1, 1)
    signed, offsets = signed_weights(weights)
    np.testing.assert_array_equal(signed + offsets.reshape(2, 1, 1, 1), weights)
    assert signed.min() >= -128
    assert signed.max() <= 127
    assert offsets[1] == 0
    assert (offsets[0] == 0) == (min(channel) >= -128 and max(channel) <= 127)


@pytest.mark.slow
@given(
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=5),
    pad=st.integers(0, 3),
    data=st.data(),
)
def test_a_copy_reaches_every_byte_once(shape, pad, data):
    """What copy.cl does with the words, in Python: all pairs of addresses that the strides say.

    Others only behind the end, and no two work-items write the same byte.
    """
    perm = data.draw(st.permutations(range(len(shape))))
    pitched = [*shape[:-1], shape[-1] + pad]
    source = tuple(strides_of(pitched)[axis] for axis in perm)
    box = [shape[axis] for axis in perm]
    target_ = strides_of(box)
    buffer = Buffer("any", 4096, 0, 0)
    kernel, grid, words = copy((At(buffer), source), (At(buffer), target_), box)
    unit = {"u8": 1, "u32": 4, "u32x4": 16}[kernel.defines[2].removeprefix("UNIT=")]
    axes = [words[1 + 5 * i : 6 + 5 * i] for i in range(len(words) // 5)]
    assert f"AXES={len(axes)}" in kernel.defines
    assert grid[0] * 64 >= words[0] > (grid[0] - 1) * 64
    found = []
    for item in range(words[0]):
        rest, places = item, [0, 0]
        for extent, from_step, to_step, *_ in axes:
            rest, at = divmod(rest, extent)
            places[0] += at * from_step
            places[1] += at * to_step
        assert all(place % unit == 0 for place in places)
        found += [(places[0] + byte, places[1] + byte) for byte in range(unit)]
    expected = {(int(np.dot(index, source)), int(np.dot(index, target_))) for index in np.ndindex(*box)}
    assert len({to for _, to in found}) == len(found)
    size = math.prod(shape)
    assert {pair for pair in found if pair[1] < size} == expected
    assert max(to for _, to in found) < -(-size // unit) * unit


@pytest.mark.parametrize("chip", [chips.CHIPS[name] for name in CHIPS], ids=CHIPS)
def test_cuts_fit_what_they_cut(chip):
    for pixels in (1, 49, 12544):
        for tiles in (1, 3, 6, 80):
            for steps in (1, 2, 9, 60):
                cut = matrix_tiling(chip, pixels, tiles, 1, steps)
                assert tiles % cut.tiles == 0
                assert cut.split <= steps
    assert matrix_tiling(chip, 49, 10, 1, 60).split > 1  # few waves: share the k
    assert matrix_tiling(chip, 112 * 112, 6, 1, 1).split == 1
    assert strip(chip, 112, 112, 24) == 4
    assert strip(chip, 7, 7, 40) == 1


@pytest.mark.parametrize("dtype", ["uint8", pytest.param("int8", marks=pytest.mark.slow)])
def test_matrices_of_several_rows(dtype):
    """What is between matrices lies row by row, with a pitch."""
    b = GraphBuilder((5, 37), dtype=dtype)
    y = b.gemm("x", 37, relu=True)
    z = b.add(b.gemm(y, 37), "x")
    b.mul(z, y)
    b.lookup(z, np.tanh)
    b.requantize(y)
    b.concat(z, z, axis=1)
    b.concat(z, z, axis=0)
    b.gemm(b.transpose(z, (1, 0)), 3)
    b.gemm(b.reshape(b.gemm(z, 4), (2, 10)), 40)
    made = [node.output for node in b.nodes]
    assert_identical(target("gfx1100"), b.graph(*made), guard=128)
