"""The AMD kernels' elementary functions: within the ulps that sdk.expression declares, over all floats.

Once with the executor's results of exp2, log2, 1/x and the square root, which are correctly rounded, and
once with each of them one unit to one side or the other, as the hardware's may be.
"""

import itertools

import numpy as np
import pytest

from sdk import dtypes
from sdk.expression.expression import widened
from sdk.expression.operations import OPERATIONS
from tests.unit.amd_bench import Bench

CHIPS = ("gfx1100", "gfx1201")


def operations(kind, arity):
    """Those that take so many operands of a kind, and give one of that kind."""
    return [
        name
        for name, one in OPERATIONS.items()
        if kind in (one.takes or ()) and one.result is None and one.arity == arity
    ]


UNARY, BINARY = operations("real", 1), operations("real", 2)
ROUNDED = ("float16", "bfloat16", "float8e4m3fn", "float8e5m2", "float32")

INACCURATE = """
// A normal number moved by a unit in the last place, the way that its bits and those of the argument say.
static inline float moved(float result, float x) {
    uint bits = __builtin_bit_cast(uint, result), hash = (bits ^ __builtin_bit_cast(uint, x)) * 0x9e3779b1u;
    uint exponent = bits >> 23 & 255, by = MOVED == 2 ? (hash >> 31 ? 1u : ~0u) : (uint)MOVED;
    return exponent > 0 && exponent < 254 ? __builtin_bit_cast(float, bits + by) : result;
}
#define __builtin_amdgcn_exp2f(x) moved(__builtin_amdgcn_exp2f(x), x)
#define __builtin_amdgcn_logf(x) moved(__builtin_amdgcn_logf(x), x)
#define __builtin_amdgcn_rcpf(x) moved(__builtin_amdgcn_rcpf(x), x)
#define __builtin_amdgcn_sqrtf(x) moved(__builtin_amdgcn_sqrtf(x), x)
"""
MOVED = (pytest.param(-1, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.slow), 2)
INEXACT = (
    "exp", "expm1", "log", "log1p", "erf", "tanh", "sinh", "cosh", "tan", "asin", "acos", "atan", "asinh",
    "acosh", "atanh", "pow", "fmod",
)  # fmt: skip
"""Functions that use the instructions."""


def kernels(names, kind="float"):
    """A kernel for each operation, written as the printer writes it, and the types of its inputs."""
    texts, inputs = {}, {}
    for name in names:
        operation = OPERATIONS[name]
        form = operation.opencl or operation.c
        form = operation.c_int if kind == "long" and operation.c_int else form
        texts[f"{kind}_{name}"] = f"((global {kind} *)y)[i] = {form.format('a[i]', 'b[i]')};"
        inputs[f"{kind}_{name}"] = (kind,) * operation.arity
    return texts, inputs


OTHERS = {
    **{f"round_to_{name}": (f"((global float *)y)[i] = round_{name}(a[i]);", ("float",)) for name in ROUNDED},
    "to_whole": ("((global long *)y)[i] = whole(a[i]);", ("float",)),
    "to_real": ("((global float *)y)[i] = ((float)a[i]);", ("long",)),
    "real_literals": ("((global float *)y)[i] = i == 0 ? NAN : i == 1 ? INFINITY : 1.5f;", ("float",)),
    "whole_literals": ("((global long *)y)[i] = i ? INT64_C(5000000000) : (-INT64_C(1) - 1);", ("long",)),
}


@pytest.fixture(scope="module", params=CHIPS)
def bench(request):
    texts, inputs = kernels(UNARY + BINARY)
    whole = kernels(operations("int", 1) + operations("int", 2), "long")
    texts |= whole[0] | {name: text for name, (text, _) in OTHERS.items()}
    inputs |= whole[1] | {name: kinds for name, (_, kinds) in OTHERS.items()}
    return Bench(request.param, "plain/maths.h", texts, inputs)


@pytest.fixture(scope="module", params=MOVED)
def inaccurate(request):
    return Bench(
        "gfx1100", "plain/maths.h", *kernels(INEXACT), f"#define MOVED {request.param}\n{INACCURATE}"
    )


SPECIAL = np.array(
    [
        0.0,
        1e-45,
        1.1754942e-38,
        1.1754944e-38,
        1e-30,
        1e-10,
        0.5,
        1,
        2,
        3,
        1e10,
        3.4028235e38,
        np.inf,
        np.nan,
    ],
    np.float32,
)
BREAKS = {
    "exp": (88.722839, 87.33655, 103.97), "expm1": (20, 88.722839, 0.34657, 1.03972),
    "log": (1.1754944e-38, 1), "log1p": (1, 0.29289, 0.41421), "tanh": (0.625, 9.01), "erf": (1, 4, 3.92),
    "sinh": (1.5, 2.0794415, 89.415985), "cosh": (88.72, 89.415985), "asin": (0.5, 1), "acos": (0.5, 1),
    "atan": (1,), "asinh": (4096, 0.41, 2**63), "acosh": (1, 4096, 1.08), "atanh": (0.17, 0.4142, 1),
    "sin": (65536, 0.785398), "cos": (65536, 0.785398), "tan": (65536, 0.785398),
}  # fmt: skip
"""Where the way of computing changes, beside powers of two."""


def neighbours(values, count=40):
    """Floats next to values, on both sides."""
    bits = np.abs(np.float32(values)).reshape(-1, 1).view(np.int32) + np.arange(-count, count)
    return np.clip(bits, 0, 0x7F800000).astype(np.int32).view(np.float32).reshape(-1)


def nearly_quarters():
    """Floats next to multiples of pi / 2: q 2^e for the continued fraction p / q of 2^e / (pi / 2)."""
    one = 1 << 400

    def arc_cotangent(n):
        return sum((-1) ** k * (one // n ** (2 * k + 1)) // (2 * k + 1) for k in range(100))

    half_pi = 8 * arc_cotangent(5) - 2 * arc_cotangent(239)  # Machin's formula
    found = []
    for exponent in range(-10, 105):
        a, b = one << (exponent + 10), half_pi << 10
        before, last = 1, 0
        while last < 1 << 24:
            found.append(last * 2.0**exponent)
            digit, rest = divmod(a, b)
            a, b, before, last = b, rest, last, digit * last + before
    return np.array(found, np.float32)


def arguments(name, count):
    """Of both signs: of all exponents and of the usual range, special ones, those next to breakpoints."""
    random = np.random.default_rng(sum(map(ord, name)))
    chosen = [
        SPECIAL,
        random.integers(0, 1 << 31, count, dtype=np.uint32).view(np.float32),
        random.uniform(0, 1, count).astype(np.float32),
        random.uniform(0, 10, count).astype(np.float32),
        random.uniform(0, 105, count).astype(np.float32),
        np.float32(1) + random.normal(0, 0.01, count // 4).astype(np.float32),
        neighbours(BREAKS.get(name, ())),
        neighbours(np.float32(2.0) ** np.arange(-126, 128), 3),
    ]
    if name in ("sin", "cos", "tan"):
        chosen.append(neighbours(np.arange(1, 400) * (np.pi / 2), 3))
        chosen.append(neighbours(random.integers(1, 1 << 24, 500) * (np.pi / 2), 3))
        chosen.append(nearly_quarters())
    x = np.concatenate(chosen)
    return np.concatenate([x, -x])


def pairs(name, count):
    random = np.random.default_rng(sum(map(ord, name)))
    special = np.concatenate([SPECIAL, -SPECIAL, np.float32([0.5, -0.5, 2.5, -3, 16777217, 1.5, -7])])
    a, b = (np.array(column, np.float32) for column in zip(*itertools.product(special, special), strict=True))
    bits = random.integers(0, 1 << 32, (2, count), dtype=np.uint32).view(np.float32)
    usual = random.uniform(-20, 20, (2, count)).astype(np.float32)
    near = np.stack([random.normal(1, 0.01, count), random.uniform(-9000, 9000, count)]).astype(np.float32)
    whole = np.stack([random.integers(-9, 10, count), random.integers(-9, 10, count)]).astype(np.float32)
    magnitude = random.uniform(2.0**-126, 100, count).astype(np.float32)
    with np.errstate(all="ignore"):  # powers near both ends of the range
        ends = (
            random.uniform(86, 90, count)
            * random.choice([-1, 1], count)
            / np.log(magnitude.astype(np.float64))
        )
    sweep = np.stack([magnitude, ends.astype(np.float32)])
    halves = np.stack([magnitude, random.choice(np.float32([0.5, 2, 3, -1, -0.5, 1 / 3]), count)])
    both = np.concatenate([np.stack([a, b]), bits, usual, near, whole, sweep, halves], 1)
    return both[0], both[1]


def reference(name, *inputs):
    with np.errstate(all="ignore"):
        return np.asarray(OPERATIONS[name].value(*(x.astype(np.float64) for x in inputs)))


def errors(found, exact):
    """In units in the last place of the exact result; 0 of those beyond the range of floats."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(np.float32)
        unit = np.spacing(np.abs(rounded)).astype(np.float64)
        off = np.abs(found.astype(np.float64) - exact)
        small = off <= 2.0**-126  # it may be flushed
        return np.where(small | ~np.isfinite(rounded) | ~np.isfinite(found), 0, off / unit)


def check(name, found, *inputs):
    """Within the declared bound of the reference, in true units in the last place, and of the right sign."""
    exact, ulps = reference(name, *inputs), OPERATIONS[name].ulps
    low, high = widened(exact, exact, exact, ulps, "float32")
    with np.errstate(all="ignore"):
        inside = (found >= low) & (found <= high) | np.isnan(found) & np.isnan(exact)
        zero = (exact == 0) & (name not in ("sign", "min", "max"))
        inside &= ~zero | (np.signbit(found) == np.signbit(exact)) | (found != 0)
    wrong = np.flatnonzero(~inside)[:5]
    shown = [([x[i] for x in inputs], found[i], exact[i]) for i in wrong]
    assert not wrong.size, f"{np.count_nonzero(~inside)} outside, such as {shown}"
    worst = errors(found, exact)
    most = int(worst.argmax())
    assert worst[most] <= ulps, f"{worst[most]} ulps at {[x[most] for x in inputs]}"
    return worst[most]


@pytest.mark.slow
@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_number(bench, name):
    x = arguments(name, 2000)
    check(name, bench(f"float_{name}", "f4", x), x)


@pytest.mark.slow
@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_numbers(bench, name):
    x, y = pairs(name, 2000)
    check(name, bench(f"float_{name}", "f4", x, y), x, y)


@pytest.mark.slow
@pytest.mark.parametrize("name", INEXACT)
def test_instructions_may_be_off_by_a_unit(inaccurate, name):
    inputs = pairs(name, 2000) if name in BINARY else (arguments(name, 2000),)
    check(name, inaccurate(f"float_{name}", "f4", *inputs), *inputs)


@pytest.mark.slow
@pytest.mark.parametrize("name", operations("int", 1) + operations("int", 2))
def test_functions_of_integers(bench, name):
    random = np.random.default_rng(5)
    ends = np.array([0, 1, -1, 2, -2, 7, -7, 1 << 31, -1 << 31, (1 << 63) - 1, -1 << 63])
    x, y = (np.array(column) for column in zip(*itertools.product(ends, ends), strict=True))
    x = np.concatenate([x, random.integers(-1 << 63, (1 << 63) - 1, 1000)])
    y = np.concatenate([y, random.integers(-1 << 63, (1 << 63) - 1, 1000) >> random.integers(0, 63, 1000)])
    if name.startswith("shift"):
        y = y & 63
    if name in (
        "div",
        "fmod",
    ):  # the least integer has no magnitude: the reference does not define them of it
        x, y = (np.where(array == -1 << 63, 5, array) for array in (x, y))
    inputs = (x, y)[: OPERATIONS[name].arity]
    with np.errstate(all="ignore"):
        wanted = OPERATIONS[name].value(*inputs)
    np.testing.assert_array_equal(bench(f"long_{name}", "i8", *inputs), wanted)


@pytest.mark.parametrize("name", ROUNDED)
def test_rounding(bench, name):
    x = arguments("round", 4000)
    with np.errstate(invalid="ignore", over="ignore"):  # signalling NaNs
        wanted = dtypes.round_to(x.astype(np.float64), name)
    found = bench(f"round_to_{name}", "f4", x)
    np.testing.assert_array_equal(found, wanted.astype(np.float32))
    finite = ~np.isnan(x)
    np.testing.assert_array_equal(np.signbit(found[finite]), np.signbit(x[finite]))


def test_from_kind_to_kind(bench):
    x = np.concatenate(
        [arguments("whole", 2000), np.float32([2.0**63, -(2.0**63), 9.2e18, -9.2e18, 2.9, -2.9])]
    )
    np.testing.assert_array_equal(bench("to_whole", "i8", x), reference("trunc", x))
    whole = np.random.default_rng(6).integers(-1 << 63, (1 << 63) - 1, 2000) >> np.arange(2000) % 63
    np.testing.assert_array_equal(bench("to_real", "f4", whole), whole.astype(np.float32))


def test_literals(bench):
    found = bench("real_literals", "f4", np.zeros(3, np.float32))
    np.testing.assert_array_equal(found, np.float32([np.nan, np.inf, 1.5]))
    np.testing.assert_array_equal(bench("whole_literals", "i8", np.zeros(2, np.int64)), [-2, 5_000_000_000])
