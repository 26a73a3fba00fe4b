"""Products of floats on the Adreno target's kernels: forms, tiles, the bound, and planted mistakes."""

import functools
import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from dsp.adreno.plain_products import depthwise, launch, takes_depthwise
from sdk import dtypes
from sdk.opencl.product import Constant, Epilogue, Matrix, Operand, Product, Window
from sdk.reference.comparison import compare
from sdk.reference.sums import half_summed, summed
from tests.adreno_products import trial
from tests.amount import amount
from tests.float_products import assert_clamped_sum, dense, strides_of

pytest.importorskip("pyopencl")

SUMS = ("half", "float32")


def convolution(dtype="float16", k=20, gaps=(), **changes):
    """3 x 3 with a stride, borders, and channels that fill no block."""
    return replace(
        Product(
            pixels=(2, 4, 6),
            channels=22,
            k=k,
            x=dense((2, 7, 11, k), dtype, (-k % 4, *gaps)),
            w=Constant(dtype),
            y=dense((2, 4, 6, 22), dtype, (5, 1, 2)),
            window=Window((3, 3), (7, 11), strides=(2, 2), pads=(1, 1)),
            bias=True,
        ),
        **changes,
    )


def matrices(m, n, k, dtype="float16", out="float16", batches=(), columns=False, gaps=(0, 0)):
    """[batches.., m, k] by [batches.., k, n], or by [batches.., n, k]; gaps behind k and n."""
    lead = len(batches)
    rows = (n, k) if columns else (k, n)
    w = strides_of((*batches, *rows), range(lead + 2), (gaps[not columns], *(0,) * (lead + 1)))
    channel, inner = (w[-2], w[-1]) if columns else (w[-1], w[-2])
    return Product(
        pixels=(1, 1, m),
        channels=n,
        k=k,
        x=dense((*batches, 1, 1, m, k), dtype, (gaps[0],), lead=lead),
        w=Matrix(dtype, channel, inner, w[:lead]),
        y=dense((*batches, 1, 1, m, n), out, lead=lead),
        batches=batches,
    )


def assert_within(product, sums="half", seed=0, **choices):
    found = trial(product, seed).check(sums, **choices)
    assert found.outside == 0, found
    return found


def images(made):
    return tuple(memory.kind == "image" for memory in made.memories[:2])


TILES = ((1, 1), (8, 1), (7, 3), (5, 2), (2, 3), (3, 1))


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


# -- forms --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "k", "sums", "tile"),
    [
        slow("float16", 39, "half", (3, 2)),
        slow("float16", 20, "float32", (4, 3)),
        slow("float32", 19, "half", (6, 2)),
        slow("float16", 3, "half", (5, 1)),
    ],
)
def test_a_convolution_of_texels(dtype, k, sums, tile):
    product = convolution(dtype, k)
    made = launch(product, sums, tile=tile)
    assert images(made) == (True, True)
    assert made.sums == ("half" if dtype == "float16" and sums == "half" else "float32")
    found = assert_within(product, sums, tile=tile)
    if dtype == "float16" and sums == "float32":
        assert found.worst_share > 0.3  # the bound is no wider than rounding needs


@pytest.mark.slow
@pytest.mark.parametrize("sums", SUMS)
def test_a_convolution_of_elements(sums):
    """A picture with its channels outermost, as a network's input has it."""
    product = convolution(k=6, x=Operand("float16", (6 * 77, 11, 1), 77))
    assert images(launch(product, sums)) == (False, True)
    assert_within(product, sums)


@pytest.mark.parametrize(
    ("product", "form"),
    [
        slow(matrices(9, 14, 22, batches=(2, 3), gaps=(2, 2)), (True, True)),
        (matrices(9, 14, 22, batches=(2,), gaps=(2, 0), columns=True), (True, True)),
        slow(matrices(9, 14, 21, batches=(2,)), (False, False)),
        slow(matrices(5, 1, 64, columns=True), (True, True)),
        slow(matrices(1, 40, 32, "float32", "float32"), (True, True)),
        slow(replace(matrices(9, 20, 24), w=Matrix("float32", 1, 20)), (True, True)),
        slow(replace(matrices(9, 20, 24), x=Operand("float16", (0, 0, 1), 9)), (False, True)),
    ],
)
@pytest.mark.parametrize("sums", ["half", slow("float32")])
def test_matrices(product, form, sums):
    assert images(launch(product, sums)) == form
    assert_within(product, sums)


@pytest.mark.slow
@pytest.mark.parametrize("each", [4, 3])
def test_groups_are_batches(each):
    """Three groups, which are texels if they have whole ones."""
    steps = strides_of((3, 1, 5, 6, each), (1, 2, 3, 0, 4), (0, -3 * each % 4, 0, 0, 0))
    picture = Operand("float16", steps[1:4], 1, steps[:1])
    product = convolution(
        pixels=(1, 5, 6), channels=each, k=each, batches=(3,), w=Constant("float16", (1,)), x=picture,
        y=picture, window=Window((3, 3), (5, 6), pads=(1, 1)),
    )  # fmt: skip
    assert images(launch(product))[0] == (each == 4)
    assert_within(product)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tile", "sums"),
    amount([*zip(TILES, itertools.cycle(SUMS), strict=False)], [*itertools.product(TILES, SUMS)]),
)
def test_every_tile(tile, sums):
    product = convolution(
        pixels=(1, 3, 9),
        x=dense((1, 3, 9, 20), "float16"),
        y=dense((1, 3, 9, 22), "float16", (2,)),
        window=Window((2, 3), (3, 9), pads=(1, 1)),
    )
    assert_within(product, sums, tile=tile)


def random_product(random):
    """Any extents, orders of axes, gaps, types, batches, windows."""
    dtype = str(random.choice(["float16", "float32"], p=[0.7, 0.3]))
    batches = tuple(int(n) for n in random.integers(1, 4, random.integers(0, 4)))
    k, channels = (int(n) for n in random.integers(1, 40, 2))
    pixels = tuple(int(n) for n in random.integers(1, 9, 3))
    window, rows = None, pixels[1:]
    if random.random() < 0.5:
        size, strides, dilations = (tuple(int(n) for n in random.integers(1, 4, 2)) for _ in range(3))
        pads = tuple(int(random.integers(0, n)) for n in size)
        rows = tuple(
            max(1, (pixels[i + 1] - 1) * strides[i] + (size[i] - 1) * dilations[i] + 1 - 2 * pads[i])
            for i in (0, 1)
        )
        window = Window(size, rows, strides, pads, dilations)

    def operand(shape, dtype, *, texels=False):
        order = random.permutation(len(shape)) if random.random() < 0.3 else np.arange(len(shape))
        gaps = random.integers(0, 3, len(shape))
        if texels:
            order, gaps = np.arange(len(shape)), np.zeros(len(shape), int)
            gaps[0] = -shape[-1] % 4
        return tuple(strides_of(shape, order, gaps)), dtype

    lead = len(batches)
    strides, _ = operand((*batches, pixels[0], *rows, k), dtype, texels=random.random() < 0.6)
    x = Operand(dtype, strides[lead : lead + 3], strides[-1], strides[:lead])
    if window is not None or random.random() < 0.5:
        w = Constant(dtype, tuple(int(n) for n in random.integers(0, 2, lead)))
    else:
        strides, _ = operand((*batches, channels, k), dtype, texels=random.random() < 0.5)
        w = Matrix(dtype, strides[-2], strides[-1], strides[:lead])
    out = str(random.choice([dtype, "float32"]))
    strides, _ = operand((*batches, *pixels, channels), out)
    y = Operand(out, strides[lead : lead + 3], strides[-1], strides[:lead])
    bias = bool(random.random() < 0.5) and isinstance(w, Constant)
    return Product(pixels, channels, k, x, w, y, batches, window, bias)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(amount(12, 24)))
def test_random_products(seed):
    random = np.random.default_rng(seed)
    product = random_product(random)
    assert_within(product, str(random.choice(SUMS)), seed)


# -- what is stored -----------------------------------------------------------------------------------------

SIX = """
static inline float clamped_sum(float sum, const float *operand) {
  float added = sum + operand[0];
  return fmin(fmax(added * operand[1], 0.0f), operand[2]);
}
"""


@pytest.mark.slow
def test_an_epilogue_with_operands_of_three_shapes():
    """A residual with strides of its own, a factor per channel, and a limit for all."""
    shape = (2, 4, 6, 21)
    residual = dense(shape, "float16", (7, 1))
    epilogue = Epilogue(
        SIX,
        "clamped_sum",
        (residual, Operand("float32", (0, 0, 0), 1), Operand("float16", (0, 0, 0), 0)),
    )
    made = trial(convolution(channels=21, y=dense(shape, "float16", (5,)), epilogue=epilogue))
    made.others[2][...] = 1.5
    result = made.run("float32", tile=(4, 1))
    assert_clamped_sum(made, epilogue, made.expected(), result, rounded=False)


@pytest.mark.slow
def test_infinities_and_nan_stay_with_their_pixels_and_channels():
    x, y = dense((1, 1, 40, 19), "float16", (1,)), dense((1, 1, 40, 24), "float16")
    made = trial(convolution(window=None, pixels=(1, 1, 40), k=19, x=x, y=y, channels=24))
    made.x[0, 0, 3, 5], made.x[0, 0, 9, 18] = np.nan, np.inf
    made.x[0, 0, 11] = 60000
    made.w[0, 7, 0, 0] = 60000
    result = made.run()
    found = dtypes.decode(result, "float16")[0, 0]
    assert np.isnan(found[3]).all()
    assert not np.isnan(np.delete(found, [3, 9, 11], axis=0)).any()
    assert not np.isfinite(found[11, 7])


@pytest.mark.slow
def test_a_result_is_rounded_once_to_nearest_even():
    """Sums of two terms whose float32 is exact: half of the last place, and just beside it."""
    product = Product(
        (1, 1, 64), 8, 2, dense((1, 1, 64, 2), "float16", (2,)), Constant("float16"),
        dense((1, 1, 64, 8), "float16"),
    )  # fmt: skip
    made = trial(product)
    whole = 2.0**11 + 2 * np.arange(64)
    factors = np.array([0, 0.5, 1, 1.5, -1, -0.5, 2, 3])
    made.x[0, 0, :, 0], made.x[0, 0, :, 1] = whole, 1
    made.w[0, :, 0, 0], made.w[0, :, 0, 1] = 1, factors
    expected = dtypes.encode(whole[:, None] + factors, "float16")
    for sums in SUMS:
        np.testing.assert_array_equal(made.run(sums)[0, 0], expected)


# -- depthwise ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "size", "stride", "dilation", "channels", "sums", "pixels"),
    [
        ("float16", (3, 3), 1, 1, 21, "half", 4),
        slow("float16", (5, 5), 2, 1, 24, "half", 3),
        slow("float16", (3, 3), 2, 1, 24, "float32", 8),
        slow("float32", (5, 2), 1, 1, 6, "half", 5),
        slow("float16", (3, 3), 1, 2, 8, "half", None),
        slow("float16", (4, 9), 3, 1, 8, "half", None),
    ],
)
def test_depthwise(dtype, size, stride, dilation, channels, sums, pixels):
    made = depthwise_trial(dtype, size, stride, dilation, channels)
    result = made.run_depthwise(sums, pixels=pixels)
    halves = depthwise(made.product, sums).sums == "half"
    found = compare(depthwise_expected(made, halves).stored(dtype), result, dtype)
    assert found.outside == 0, found


def depthwise_trial(dtype, size, stride, dilation, channels, extents=(9, 14), pads=(1, 2)):
    rows, columns = ((extents[i] + 2 * pads[i] - (size[i] - 1) * dilation - 1) // stride + 1 for i in (0, 1))
    x, y = dense((2, *extents, channels), dtype, (-channels % 4,)), dense((2, rows, columns, channels), dtype)
    window = Window(size, extents, (stride, stride), pads, (dilation, dilation))
    product = Product((2, rows, columns), channels, 1, x, Constant(dtype), y, window=window, bias=True)
    assert takes_depthwise(product)
    made = trial(replace(product, k=channels))
    return replace(made, product=product, w=trial(product).w)


def depthwise_expected(made, halves):
    product = made.product
    value = np.zeros((*product.pixels, product.channels)) + made.bias[0]
    magnitude, squares = np.abs(value), np.zeros(value.shape)
    decoded, weights = (dtypes.decode(one, product.x.dtype) for one in (made.x, made.w[0, :, :, 0]))
    for tap, part in enumerate(made._columns(decoded, 0)):
        value = value + part * weights[:, tap]
        magnitude = magnitude + np.abs(part * weights[:, tap])
        squares = squares + (part * weights[:, tap]) ** 2
    taps = math.prod(product.window.size)
    found = summed(value, magnitude, taps + 1, "float32", 0.0)
    return half_summed(found, squares, taps) if halves else found


# -- planted mistakes ---------------------------------------------------------------------------------------


def replaced(old, new):
    def mutate(text):
        assert old in text
        return text.replace(old, new)

    return mutate


def all_of(*mutations):
    return lambda text: functools.reduce(lambda made, mutate: mutate(made), mutations, text)


EMULATED = "if (k % RUN == RUN - 1 || k + 1 == all) ADD_TO(sum, part)"
MISTAKES = {
    "nothing": replaced(EMULATED, EMULATED),
    "dropped tap": replaced("for (int kx = 0; kx < m.window.columns; kx++) {",
                            "for (int kx = 0; kx < m.window.columns; kx++) { if (ky == 1 && kx == 1) {"
                            " w_tap += (m.full + (m.tail > 0)) * (4 * BLOCKS); continue; }"),
    "swapped taps": replaced("ky * m.window.step_y - m.window.top", "kx * m.window.step_y - m.window.top"),
    "wrong pad": replaced("- m.window.left", "- m.window.left + 1"),
    "half accumulation": all_of(
        replaced("SUMS part[PIXELS][BLOCKS];\n      const int all", "const int all"),
        replaced("  CLEAR(sum)\n", "  CLEAR(sum)\n  SUMS part[PIXELS][BLOCKS]; CLEAR(part)\n"),
        replaced("if (k % RUN == 0) CLEAR(part)", ""),
        replaced("if (k % RUN == RUN - 1 || k + 1 == all)", "if (k + 1 == all && kx + ky == 4)"),
    ),
    "a partial sum in half": replaced("total[p][c] += convert_float4(part[p][c])",
                                      "total[p][c] = rounded_to_half(total[p][c] + part[p][c])"),
    "truncation": replaced("found = select(found, (uint4)(0x7f800000u)",
                           "found = size & 0xffffe000u; found = select(found, (uint4)(0x7f800000u)"),
    "truncated results": replaced("vstore_half4_rte", "vstore_half4_rtz"),
    "what lies behind k": replaced("if ((COUNT) < 4) q.w = 0;", ""),
    "no bias": replaced("FINISHED(sum[p][c] + own)", "FINISHED(sum[p][c])"),
}  # fmt: skip
FEW = ("half accumulation",)


def sums_of_ones(made):
    """Data that half arithmetic is bad at: positive, so that sums grow."""
    return replace(made, x=np.abs(made.x), w=np.abs(made.w))


@pytest.mark.parametrize("mistake", [one if one in FEW else slow(one) for one in MISTAKES])
def test_a_mistake_in_the_kernel_is_outside(mistake):
    extents = (6, 9)
    product = Product(
        (1, *extents), 24, 127, dense((1, *extents, 127), "float16", (1,)), Constant("float16"),
        dense((1, *extents, 24), "float16"), window=Window((3, 3), extents, pads=(1, 1)), bias=True,
    )  # fmt: skip
    made = sums_of_ones(trial(product))
    sums = "float32" if mistake == "truncated results" else "half"
    found = made.check(sums, MISTAKES[mistake], tile=(3, 2))
    assert (found.outside > 0) == (mistake != "nothing"), found
