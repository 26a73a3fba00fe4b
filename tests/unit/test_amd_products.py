"""Products of floats on the AMD targets' kernels: layouts, cuts, the bound, and planted mistakes."""

import math
from dataclasses import replace

import numpy as np
import pytest

from sdk import dtypes
from sdk.errors import Unsupported
from sdk.opencl.product import Constant, Epilogue, Matrix, Operand, Product, Window
from sdk.reference.comparison import compare
from sdk.reference.sums import summed
from tests.amd_products import MEMORY, Trial, trial
from tests.amount import amount
from tests.float_products import assert_clamped_sum, dense, strides_of
from towline.cli.benchmarks.shaders import Shaders
from usbgpu.amd.facts.chips import CHIPS
from usbgpu.target.packing import tile_rows
from usbgpu.target.plain.packing import product_weights
from usbgpu.target.plain.products import launch
from usbgpu.target.tiling import Tiling, Work, product_cuts, product_tiling

NAMES = ("gfx1100", "gfx1201")


@pytest.fixture(scope="module")
def shaders():
    return {chip: Shaders(chip, MEMORY) for chip in NAMES}


@pytest.fixture(params=NAMES)
def both(request, shaders):
    return shaders[request.param]


@pytest.fixture(params=["gfx1100", pytest.param("gfx1201", marks=pytest.mark.slow)])
def chip(request, shaders):
    """For what the generations differ in no more than in what runs on both."""
    return shaders[request.param]


def convolution(dtype="float16", **changes):
    """3 x 3 with a stride, k and channels that fill no tile, in tensors with gaps."""
    return replace(
        Product(
            pixels=(2, 4, 6),
            channels=24,
            k=19,
            x=dense((2, 7, 11, 19), dtype, (3, 0, 5)),
            w=Constant(dtype),
            y=dense((2, 4, 6, 24), dtype, (5, 1, 2)),
            window=Window((3, 3), (7, 11), strides=(2, 2), pads=(1, 1)),
            bias=True,
        ),
        **changes,
    )


def matrices(m, n, k, dtype="float16", out="float32", batches=()):
    """[batches.., m, k] by [batches.., k, n], dense, as ONNX has them."""
    lead = len(batches)
    w = strides_of((*batches, k, n), range(lead + 2), (0,) * (lead + 2))
    return Product(
        pixels=(1, 1, m),
        channels=n,
        k=k,
        x=dense((*batches, 1, 1, m, k), dtype, lead=lead),
        w=Matrix(dtype, w[-1], w[-2], w[:lead]),
        y=dense((*batches, 1, 1, m, n), out, lead=lead),
        batches=batches,
    )


def assert_within(product, shaders, cut=None, seed=0):
    found = trial(product, seed).check(shaders, cut)
    assert found.outside == 0, found
    return found


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", pytest.param("bfloat16", marks=pytest.mark.slow)])
def test_a_convolution_in_tensors_with_gaps(dtype, both):
    found = assert_within(convolution(dtype), both)
    assert found.worst_share > 0.3  # the bound is no wider than rounding needs


@pytest.mark.slow
def test_a_matrix_product_of_activations_in_batches(both):
    assert_within(matrices(19, 21, 25, batches=(2, 3)), both, Tiling(2, 2, 1))


@pytest.mark.slow
def test_what_wmma_does_not_take(chip):
    assert_within(convolution("float32"), chip)
    mixed = replace(matrices(9, 21, 25, batches=(2,)), w=Matrix("float32", 1, 21, (25 * 21,)))
    assert_within(mixed, chip)


CUTS = [
    Tiling(tiles, pixels, split)
    for tiles in (1, 2, 4)
    for pixels in (1, 2, 4)
    for split in (1, 2, 4, 8)
    if (split - 1) * tiles * pixels <= 64
]


@pytest.mark.slow
@pytest.mark.parametrize("cut", amount(CUTS[::5], CUTS), ids=str)
@pytest.mark.parametrize("windowed", [True, False])
def test_every_cut(cut, windowed, chip):
    product = convolution(
        channels=72, y=dense((2, 4, 6, 72), "float16", (8,)), k=40, x=dense((2, 7, 11, 40), "float16")
    )
    assert_within(product if windowed else matrices(70, 75, 150), chip, cut)


def random_product(random):
    """Any extents, orders of axes, gaps, types, batches, windows."""
    dtype = str(random.choice(["float16", "bfloat16", "float32"], p=[0.5, 0.3, 0.2]))
    batches = tuple(int(n) for n in random.integers(1, 4, random.integers(0, 4)))
    k, channels = (int(n) for n in random.integers(1, 70, 2))
    windowed = random.random() < 0.5
    pixels = tuple(int(n) for n in random.integers(1, 9, 3))
    window, rows = None, pixels[1:]
    if windowed:
        size, strides, dilations = (tuple(int(n) for n in random.integers(1, 4, 2)) for _ in range(3))
        pads = tuple(int(random.integers(0, n)) for n in size)
        rows = tuple(
            max(1, (pixels[i + 1] - 1) * strides[i] + (size[i] - 1) * dilations[i] + 1 - 2 * pads[i])
            for i in (0, 1)
        )
        window = Window(size, rows, strides, pads, dilations)

    def operand(shape, dtype, *, shared=False):
        order = random.permutation(len(shape)) if random.random() < 0.5 else np.arange(len(shape))
        strides = list(strides_of(shape, order, random.integers(0, 3, len(shape))))
        lead = len(batches)
        if shared and lead and random.random() < 0.3:
            strides[int(random.integers(lead))] = 0
        return tuple(strides), dtype

    lead = len(batches)
    strides, _ = operand((*batches, pixels[0], *rows, k), dtype, shared=True)
    x = Operand(dtype, strides[lead : lead + 3], strides[-1], strides[:lead])
    if windowed or random.random() < 0.5:
        sets = tuple(int(n) for n in random.integers(0, 2, lead))
        w = Constant(dtype, sets)
    else:
        strides, _ = operand((*batches, channels, k), dtype, shared=True)
        w = Matrix(dtype, strides[-2], strides[-1], strides[:lead])
    out = str(random.choice([dtype, "float32"]))
    strides, _ = operand((*batches, *pixels, channels), out)
    y = Operand(out, strides[lead : lead + 3], strides[-1], strides[:lead])
    bias = bool(random.random() < 0.5) and isinstance(w, Constant)
    return Product(pixels, channels, k, x, w, y, batches, window, bias)


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [pytest.param(n, marks=() if n < 1 else pytest.mark.slow) for n in range(amount(6, 16))]
)
def test_random_products(seed, chip):
    random = np.random.default_rng(seed)
    product = random_product(random)
    cut = None
    if random.random() < 0.5:
        sizes = [int(n) for n in random.choice([1, 2, 4], 2)]
        cut = Tiling(*sizes, int(random.choice([1, 2])))
    assert_within(product, chip, cut, seed)


@pytest.mark.slow
def test_x_may_lie_across(chip):
    """Pixels in a row: a transposed matrix, and a picture with its channels outermost."""
    product = matrices(37, 20, 33)
    assert_within(replace(product, x=Operand("float16", (0, 0, 1), 40)), chip, Tiling(1, 4, 1))
    picture = convolution(x=Operand("float16", (19 * 80, 11, 1), 80))
    assert_within(picture, chip, Tiling(2, 1, 2))


@pytest.mark.slow
def test_groups_are_batches(chip):
    """Three groups of 12 channels in tensors of 36."""
    y = strides_of((3, 1, 5, 6, 12), (1, 2, 3, 0, 4), (0,) * 5)
    product = convolution(
        pixels=(1, 5, 6), channels=12, k=12, batches=(3,), w=Constant("float16", (1,)),
        x=Operand("float16", y[1:4], 1, y[:1]), y=Operand("float16", y[1:4], 1, y[:1]),
        window=Window((3, 3), (5, 6), pads=(1, 1)),
    )  # fmt: skip
    assert_within(product, chip)


# -- what is stored ------------------------------------------------------------------------------------------

SIX = """
static inline float clamped_sum(float sum, const float *operand) {
    float rounded = (float)(half)sum;
    float added = (float)(half)(rounded + operand[0]);
    return __builtin_fminf(__builtin_fmaxf(added * operand[1], 0.0f), operand[2]);
}
"""


@pytest.mark.slow
@pytest.mark.parametrize("channels", [24, pytest.param(21, marks=pytest.mark.slow)])
def test_an_epilogue_with_operands_of_three_shapes(channels, chip):
    """A residual with strides of its own, a factor per channel, and a limit for all."""
    shape = (2, 4, 6, channels)
    residual = dense(shape, "float16", (7, 1))
    epilogue = Epilogue(
        SIX,
        "clamped_sum",
        (residual, Operand("float32", (0, 0, 0), 1), Operand("float16", (0, 0, 0), 0)),
    )
    made = trial(convolution(channels=channels, y=dense(shape, "float16", (5,)), epilogue=epilogue))
    made.others[2][...] = 1.5
    result, _ = made.run(chip)
    assert_clamped_sum(made, epilogue, made.expected(), result, rounded=True)


@pytest.mark.slow
def test_infinities_and_nan_stay_with_their_pixels_and_channels(chip):
    made = trial(convolution(window=None, pixels=(1, 1, 40), x=dense((1, 1, 40, 19), "float16"),
                             y=dense((1, 1, 40, 24), "float16")))  # fmt: skip
    made.x[0, 0, 3, 5], made.x[0, 0, 9, 18] = np.nan, np.inf
    made.x[0, 0, 11] = 60000
    made.w[0, 7, 0] = 60000
    made.w[0, 8, 0] = 2.0**-24
    result, _ = made.run(chip)
    found = dtypes.decode(result, "float16")[0, 0]
    assert np.isnan(found[3]).all()
    assert not np.isnan(np.delete(found, [3, 9], axis=0)).any()
    assert found[11, 7] == np.inf
    assert compare(made.expected().stored("float16"), result, "float16").outside == 0


@pytest.mark.slow
def test_a_result_is_rounded_once_to_nearest_even(chip):
    """Sums of two terms whose float32 is exact: half of the last place, and just beside it."""
    for dtype, digits in (("float16", 11), ("bfloat16", 8)):
        product = Product(
            (1, 1, 64), 8, 2, dense((1, 1, 64, 2), dtype), Constant(dtype), dense((1, 1, 64, 8), dtype)
        )
        made = trial(product)
        whole = 2.0**digits + 2 * np.arange(64)
        made.x[0, 0, :, 0] = dtypes.encode(whole, dtype)
        made.x[0, 0, :, 1] = dtypes.encode(np.ones(64), dtype)
        factors = np.array([0, 0.5, 1, 1.5, -1, -0.5, 2, 3])
        made.w[0, :, 0, 0] = dtypes.encode(np.ones(8), dtype)
        made.w[0, :, 0, 1] = dtypes.encode(factors, dtype)
        result, _ = made.run(chip)
        expected = dtypes.encode(whole[:, None] + factors, dtype)
        np.testing.assert_array_equal(result[0, 0], expected)


# -- depthwise ----------------------------------------------------------------------------------------------


SLIDES = [((3, 3), 1, 1, 24), ((5, 2), 2, 1, 21), ((3, 3), 2, 2, 8)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "size", "stride", "dilation", "channels"),
    [
        pytest.param(dtype, *slide, marks=() if slide == SLIDES[number] else pytest.mark.slow)
        for number, dtype in enumerate(("float16", "bfloat16", "float32"))
        for slide in SLIDES
    ],
)
def test_depthwise(dtype, size, stride, dilation, channels, chip):
    extents, pads = (9, 14), (1, 2)
    rows, columns = ((extents[i] + 2 * pads[i] - (size[i] - 1) * dilation - 1) // stride + 1 for i in (0, 1))
    x, y = dense((2, *extents, channels), dtype, (3,)), dense((2, rows, columns, channels), dtype, (1, 2))
    window = Window(size, extents, (stride, stride), pads, (dilation, dilation))
    product = Product((2, rows, columns), channels, 1, x, Constant(dtype), y, window=window, bias=True)
    made = trial(replace(product, k=channels))
    made = Trial(product, made.x, trial(product).w, made.bias)
    result = made.run_depthwise(chip)
    value, magnitude = np.zeros(result.shape), np.abs(np.zeros(result.shape) + made.bias[0])
    value += made.bias[0]
    decoded, weights = dtypes.decode(made.x, dtype), dtypes.decode(made.w, dtype)[0, :, :, 0]
    for tap, part in enumerate(made._columns(decoded, 0)):
        value += part * weights[:, tap]
        magnitude += np.abs(part * weights[:, tap])
    expected = summed(value, magnitude, math.prod(size) + 1, "float32", 0.0).stored(dtype)
    assert compare(expected, result, dtype).outside == 0


# -- planted mistakes ---------------------------------------------------------------------------------------


def replaced(old, new):
    def mutate(text):
        assert old in text
        return text.replace(old, new)

    return mutate


PRODUCT = "sum[t][p] = WMMA(a[t], b[p], sum[t][p]);"
HALVES = "__builtin_convertvector(__builtin_convertvector({}, half8), f32x8)"
MISTAKES = {
    "nothing": replaced(PRODUCT, PRODUCT),
    "dropped tap": replaced(PRODUCT, f"if (next / m.steps != 4) {PRODUCT}"),
    "taps of another share": replaced(
        "u32 down = divide(tap, m.by_columns), right = tap - down * m.columns;",
        "u32 down = 0, right = 0; tap = 0;",
    ),
    "transposed taps": replaced(
        "tap_of(taps[p], down, right, &m)", "tap_of(taps[p], right, down, &m)"
    ),
    "wrong pad": replaced("* m->stride_y - m->top", "* m->stride_y - m->top + 1"),
    "half accumulation": replaced(
        PRODUCT, f"sum[t][p] = {HALVES.format('WMMA(a[t], b[p], sum[t][p])')};"
    ),
    "a share in half": replaced(
        "sums[share - 1][(t * PIXELS + p) * 2][lane] = sum[t][p].lo;",
        f"sum[t][p] = {HALVES.format('sum[t][p]')};"
        "sums[share - 1][(t * PIXELS + p) * 2][lane] = sum[t][p].lo;",
    ),
    "truncation": replaced(
        "PASTE(store8_, Y)(t->y, element, value);",
        "for (u32 i = 0; i < 8; i++)"
        " value[i] = __builtin_bit_cast(float, __builtin_bit_cast(u32, value[i]) & 0xffffe000);"
        " PASTE(store8_, Y)(t->y, element, value);",
    ),
    "what lies behind k": replaced("b[p] &= kept;", "b[p] &= kept | 0xffffffff;"),
    "no bias": replaced("sum[i] + t->bias[channel + i]", "sum[i]"),
}  # fmt: skip
FEW = ("nothing", "dropped tap", "truncation")


@pytest.mark.slow
@pytest.mark.parametrize(
    "mistake", [pytest.param(one, marks=() if one in FEW else pytest.mark.slow) for one in MISTAKES]
)
def test_a_mistake_in_the_kernel_is_outside(mistake, shaders):
    extents = (6, 9)
    product = Product(
        (1, *extents), 24, 125, dense((1, *extents, 125), "float16", (3,)), Constant("float16"),
        dense((1, *extents, 24), "float16"), window=Window((3, 3), extents, pads=(1, 1)), bias=True,
    )  # fmt: skip
    found = trial(product).check(shaders["gfx1100"], Tiling(2, 2, 2), MISTAKES[mistake])
    assert (found.outside > 0) == (mistake != "nothing"), found


# -- packing, cuts, limits ----------------------------------------------------------------------------------


@pytest.mark.parametrize("generation", [11, 12])
def test_packed_weights(generation):
    weights = np.arange(2 * 20 * 3 * 18, dtype=np.uint16).reshape(2, 20, 3, 18) + 1
    packed = product_weights(weights, "float16", generation)
    assert packed.shape == (2, 2, 3, 2, 16, 16)
    for row, channel in enumerate(tile_rows(generation)):
        np.testing.assert_array_equal(packed[1, 0, 2, 1, row, :2], weights[1, channel, 2, 16:])
        assert not packed[1, 0, 2, 1, row, 2:].any()
    assert not packed[:, 1, :, :, [row for row in range(16) if tile_rows(generation)[row] >= 4]].any()


@pytest.mark.parametrize("chip", [CHIPS[name] for name in NAMES], ids=NAMES)
def test_cuts_of_products(chip):
    loads = {count: 2 * count for count in (1, 2, 4)}
    large = Work(1024, 64, 64, 1, 1, (loads, loads), 2, matrix=True)
    cut = product_tiling(chip, large)
    assert cut.tiles * cut.pixels >= 8  # operands are read again and again
    few = product_tiling(chip, replace(large, pixels=1, tiles=4))
    assert few.pixels == 1
    assert few.split > 1  # few waves share the k
    for tiles, pixels, steps in ((1, 1, 1), (3, 49, 2), (40, 5000, 300)):
        for cut in product_cuts(replace(large, tiles=tiles, pixels=pixels, steps=steps)):
            assert cut.split <= steps
            assert cut.tiles < 2 * tiles


def test_what_reaches_too_far_is_refused():
    product = matrices(1 << 16, 1 << 4, 1 << 15)
    with pytest.raises(Unsupported):
        launch(CHIPS["gfx1100"], product)
