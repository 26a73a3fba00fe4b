"""Plain tensors on the target c: every family against its definition, in many shapes and dtypes."""

import numpy as np
import pytest

from dsp.c.target import CTarget
from sdk import dtypes
from sdk import graph as ops
from sdk.errors import DeviceFailed, InvalidInput, OutputFailed, Unsupported
from sdk.expression.trace import apply, clip, round_to, select, sigmoid, softplus
from sdk.graph import NO_CLAMP
from sdk.target import Options
from tests.plain_graphs import PlainBuilder, assert_defined, assert_within, bits

TARGET = CTarget()
FLOATS = ("float32", "float16")
SLOW = pytest.mark.slow
FLOAT32_BY_DEFAULT = ("float32", pytest.param("float16", marks=SLOW))
FLOAT16_BY_DEFAULT = ("float16", pytest.param("float32", marks=SLOW))
NARROW = ("bfloat16", "float8e4m3fn", "float8e5m2")


def conv(b, x, shape, *, strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1), group=1, bias=None):
    dtype = b.tensors[x].dtype
    inputs = [x, b.constant(shape, dtype)]
    if bias:
        inputs.append(b.constant(shape[:1], bias))
    return b.node(
        ops.Conv, inputs, strides=strides, pads=pads, dilations=dilations, group=group, clamp=NO_CLAMP
    )


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FLOAT16_BY_DEFAULT)
def test_convolutions(dtype):
    b = PlainBuilder(1)
    x = b.input((2, 6, 9, 11), dtype)
    conv(b, x, (5, 6, 3, 3), pads=(1, 1, 1, 1), bias="float32")
    conv(b, x, (4, 3, 3, 2), strides=(2, 3), pads=(0, 2, 1, 0), dilations=(2, 1), group=2, bias=dtype)
    conv(b, x, (7, 6, 1, 1))
    conv(b, x, (7, 6, 1, 1), strides=(2, 2), pads=(1, 0, 0, 1))
    conv(b, x, (6, 1, 5, 3), pads=(2, 1, 2, 1), group=6, bias="float32")
    conv(b, x, (12, 1, 3, 3), strides=(2, 2), pads=(1, 1, 0, 0), dilations=(1, 2), group=6)
    conv(b, x, (1, 6, 9, 11))
    conv(b, x, (3, 6, 2, 2), strides=(9, 12), pads=(12, 3, 12, 3))
    many = b.input((1, 150, 5, 15), dtype)
    conv(b, many, (300, 150, 1, 1), bias=dtype)
    conv(b, many, (3, 150, 3, 3), pads=(1, 1, 1, 1))
    assert_defined(TARGET, b.graph(), b.inputs)


def conv_transpose(
    b, x, shape, *, strides, pads=(0, 0, 0, 0), output_padding=(0, 0), dilations=(1, 1), group=1, bias=None
):
    inputs = [x, b.constant(shape, b.tensors[x].dtype)]
    if bias:
        inputs.append(b.constant((shape[1] * group,), bias))
    fields = {"strides": strides, "pads": pads, "output_padding": output_padding}
    return b.node(ops.ConvTranspose, inputs, dilations=dilations, group=group, **fields)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FLOAT32_BY_DEFAULT)
def test_transposed_convolutions(dtype):
    b = PlainBuilder(2)
    x = b.input((2, 6, 4, 5), dtype)
    conv_transpose(b, x, (6, 3, 4, 4), strides=(2, 2), pads=(1, 1, 1, 1), bias="float32")
    conv_transpose(b, x, (6, 2, 3, 2), strides=(3, 2), output_padding=(1, 1), group=2, bias=dtype)
    conv_transpose(b, x, (6, 2, 2, 3), strides=(1, 3), dilations=(3, 2), pads=(0, 2, 1, 0), group=3)
    conv_transpose(b, x, (6, 5, 1, 1), strides=(3, 4))
    assert_defined(TARGET, b.graph(), b.inputs)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FLOAT16_BY_DEFAULT)
def test_matrices(dtype):
    b = PlainBuilder(3)

    def product(left, right, transposed=False, bias=None, constant=True):
        operands = [b.input(left, dtype), (b.constant if constant else b.input)(right, dtype)]
        if bias:
            columns = right[-2] if transposed else right[-1]
            operands.append(b.constant((columns,), bias))
        b.node(ops.MatMul, operands, transposed=transposed)

    product((5, 7), (7, 9), bias="float32")
    product((1, 300), (70, 300), transposed=True, bias=dtype)
    product((1, 300), (300, 70))
    product((2, 3, 7, 130), (2, 3, 130, 66), constant=False)
    product((2, 3, 4, 5), (5, 6))
    product((4, 5), (2, 3, 5, 6), constant=False)
    product((2, 1, 4, 5), (1, 3, 6, 5), transposed=True, constant=False)
    product((300, 3), (3, 2))
    product((3, 2050), (2050, 2))
    product((3, 2050), (2, 2050), transposed=True)
    assert_defined(TARGET, b.graph(), b.inputs)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", NARROW)
def test_products_of_narrow_floats(dtype):
    b = PlainBuilder(4)
    x = b.input((1, 4, 5, 6), dtype)
    conv(b, x, (4, 4, 3, 3), pads=(1, 1, 1, 1))
    conv(b, x, (4, 1, 3, 3), group=4)
    b.node(ops.MatMul, (x, b.constant((6, 7), dtype)), transposed=False)
    b.node(ops.Softmax, (x,), axis=3)
    b.node(ops.Transpose, (x,), perm=(3, 1, 0, 2))
    b.map(lambda v: v * 3, x)
    assert_defined(TARGET, b.graph(), b.inputs)


def reduce(b, x, kind, axes, *, keep=True, dtype=None):
    shape = b.tensors[x].shape
    if keep:
        out = [1 if axis in axes else extent for axis, extent in enumerate(shape)]
    else:
        out = [extent for axis, extent in enumerate(shape) if axis not in axes]
    b.node(ops.Reduce, (x,), shape=out, dtype=dtype, kind=kind, axes=tuple(axes))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FLOAT32_BY_DEFAULT)
def test_reductions(dtype):
    b = PlainBuilder(5)
    x = b.input((2, 3, 5, 70), dtype)
    for kind, axes in (("sum", (3,)), ("mean", (1,)), ("max", (0, 2)), ("min", (1, 3)), ("prod", (2,))):
        reduce(b, x, kind, axes)
        reduce(b, x, kind, axes, keep=False)
    reduce(b, x, "mean", (0, 1, 2, 3), keep=False)
    reduce(b, x, "sum", (3, 2))
    for axis in (0, 2, 3):
        reduce(b, x, "argmax", (axis,), dtype="int64")
        reduce(b, x, "argmin", (axis,), keep=False, dtype="int64")
    few = b.input((40, 3), dtype, np.round(b.random.standard_normal((40, 3))).astype(dtype))
    few_values = b.inputs[few]
    few_values[7, 1] = few_values[9, 1] = np.nan  # it is both the largest and the smallest
    reduce(b, few, "argmax", (0,), dtype="int64")
    reduce(b, few, "argmin", (1,), dtype="int64")
    for largest in (True, False):
        for axis, k in ((0, 5), (0, 40), (1, 1)):
            b.node(ops.TopK, (few,), dtype="int64", axis=axis, k=k, largest=largest)
        b.node(ops.TopK, (x,), dtype="int64", axis=2, k=3, largest=largest)
    reduce(b, few, "max", (0,))
    reduce(b, few, "min", (1,))
    long = b.input((3, 5000), dtype)
    reduce(b, long, "sum", (1,))
    reduce(b, long, "mean", (0, 1))
    reduce(b, b.input((1, 1, 1), dtype), "max", (1,))
    b.node(ops.GlobalAveragePool, (b.input((2, 3, 9, 10), dtype),), clamp=NO_CLAMP)
    assert_defined(TARGET, b.graph(), b.inputs)


def test_reductions_of_integers():
    b = PlainBuilder(6)
    for dtype in ("int32", "int64", "uint8", "int8"):
        x = b.input((3, 4, 5), dtype)
        for kind, axes in (("sum", (2,)), ("max", (0, 2)), ("min", (1,)), ("prod", (0,))):
            if kind in ("max", "min") or dtype.startswith("int32") or dtype == "int64":
                reduce(b, x, kind, axes)
        reduce(b, x, "argmax", (1,), dtype="int64")
        b.node(ops.TopK, (x,), dtype="int64", axis=1, k=2, largest=dtype == "int32")
    reduce(b, b.input((3, 4), "bool"), "argmax", (1,), dtype="int64")
    assert_defined(TARGET, b.graph(), b.inputs)


@pytest.mark.parametrize("dtype", FLOAT16_BY_DEFAULT)
def test_softmax_and_normalizations(dtype):
    b = PlainBuilder(7)
    x = b.input((2, 6, 5, 33), dtype)
    for axis in range(4):
        b.node(ops.Softmax, (x,), axis=axis)
    b.node(ops.Softmax, (b.input((2, 3000), dtype),), axis=1)

    def normalize(axes, *others, centre=True):
        parts = [b.constant(shape, kind) for shape, kind in others]
        b.node(ops.Normalize, (x, *parts), axes=axes, epsilon=1e-5, centre=centre)

    normalize((3,), ((33,), dtype), ((33,), "float32"))
    normalize((2, 3), ((6, 1, 1), dtype), ((6, 1, 1), dtype))
    normalize((1,), ((1, 6, 1, 1), "float32"))
    normalize((3,), ((33,), dtype), centre=False)
    normalize((1, 3), ((1, 6, 1, 33), "float32"), ((1,), "float32"))
    normalize((0, 1, 2, 3))
    assert_defined(TARGET, b.graph(), b.inputs)


@pytest.mark.parametrize("dtype", FLOAT32_BY_DEFAULT)
def test_windows(dtype):
    b = PlainBuilder(8)
    x = b.input((2, 3, 9, 11), dtype)
    for kernel, strides, pads, dilations in (
        ((2, 2), (2, 2), (0, 0, 0, 0), (1, 1)),
        ((3, 5), (1, 2), (1, 2, 1, 2), (1, 1)),
        ((3, 2), (2, 1), (1, 0, 0, 1), (2, 3)),
        ((2, 2), (3, 4), (1, 1, 1, 1), (1, 1)),
    ):
        window = {"kernel": kernel, "strides": strides, "pads": pads}
        b.node(ops.MaxPool, (x,), dilations=dilations, **window)
        if dilations == (1, 1):
            b.node(ops.AveragePool, (x,), count_include_pad=False, clamp=NO_CLAMP, **window)
            b.node(ops.AveragePool, (x,), count_include_pad=True, clamp=NO_CLAMP, **window)
    b.node(
        ops.Interpolate,
        (
            x,
            b.constant((5, 2), "int32", [[0, 1], [8, 7], [3, 3], [4, 5], [8, 8]]),
            b.constant((5, 2)),
            b.constant((4, 3), "int32", [[0, 1, 2], [10, 9, 8], [3, 3, 3], [4, 5, 6]]),
            b.constant((4, 3)),
        ),
    )
    points = 1.2 * b.random.standard_normal((2, 4, 7, 2))
    grid = b.input((2, 4, 7, 2), dtype, points.astype(dtype))
    for mode in ("linear", "nearest"):
        for padding in ("zeros", "border", "reflection"):
            for align in (True, False):
                b.node(ops.GridSample, (x, grid), mode=mode, padding_mode=padding, align_corners=align)
    integers = b.input((1, 2, 5, 4), "uint8")
    b.node(ops.MaxPool, (integers,), kernel=(2, 2), strides=(1, 2), pads=(0, 1, 1, 0), dilations=(1, 1))
    assert_defined(TARGET, b.graph(), b.inputs)


@pytest.mark.parametrize(
    "dtype", ["float16", *(pytest.param(name, marks=SLOW) for name in ("float32", "int64", "bool"))]
)
def test_moves(dtype):
    b = PlainBuilder(9)
    x = b.input((2, 3, 4, 5), dtype)
    other = b.input((2, 3, 1, 5), dtype)
    b.node(ops.Transpose, (x,), perm=(3, 1, 0, 2))
    b.node(ops.Transpose, (x,), perm=(0, 2, 3, 1))
    b.node(ops.Concat, (x, other, b.constant((2, 3, 2, 5), dtype)), axis=2)
    b.node(ops.Concat, (x, x), axis=0)
    b.node(ops.Concat, (x, x), axis=3)
    b.node(ops.Slice, (x,), shape=(1, 3, 2, 5), starts=(1, 0, 1, 0), steps=(1, 1, 2, 1))
    b.node(ops.Slice, (x,), shape=(2, 2, 4, 3), starts=(1, 2, 3, 4), steps=(-1, -2, -1, -2))
    b.node(ops.Slice, (x,), shape=(1, 1, 1, 1), starts=(1, 2, 3, 4), steps=(1, 1, 1, 1))
    b.node(ops.Take, (x,), indices=((), (2, 0, 2), (), ()))
    b.node(ops.Take, (x,), indices=((0, 0, 1), (), (3,), (4, 3, 2, 1, 0, 1)))
    b.node(ops.Take, (x,), indices=((), (), (), ()))
    value = {"float32": -1.5, "float16": float("-inf")}.get(dtype, 1.0)
    b.node(ops.Fill, (x,), befores=(0, 1, 2, 0), afters=(1, 0, 0, 3), value=value)
    b.node(ops.Fill, (x,), befores=(0, 0, 0, 0), afters=(0, 0, 0, 1), value=0.0)
    b.node(ops.Pad, (x,), pads=(1, 2, 0, 1))
    b.node(ops.Resize, (x,), rows=(0, 0, 3, 2, 1), columns=(4, 4, 0))
    flat = b.reshape(x, (6, 20))
    b.node(ops.Transpose, (flat,), perm=(1, 0))
    b.reshape(b.reshape(other, (30,)), (5, 6))
    assert_defined(TARGET, b.graph(), b.inputs)


@pytest.mark.parametrize("dtype", ["float16", pytest.param("int32", marks=SLOW)])
def test_moves_by_indices(dtype):
    b = PlainBuilder(10)
    x = b.input((3, 4, 5), dtype)
    for kind in ("int32", "int64"):
        b.node(ops.Gather, (x, b.input((2, 2), kind, np.array([[0, -1], [3, -4]], kind))), axis=1)
        b.node(ops.Gather, (x, b.input((), kind, np.array(2, kind))), axis=0)
        b.node(ops.Gather, (x, b.input((3,), kind, np.array([4, 0, -2], kind))), axis=2)
    b.node(ops.GatherND, (x, b.input((2, 2), "int64", np.array([[0, -1], [2, 3]]))), batch_dims=0)
    b.node(
        ops.GatherND,
        (x, b.input((3, 2, 1), "int64", np.array([[[0], [1]], [[3], [-4]], [[2], [2]]]))),
        batch_dims=1,
    )
    b.node(ops.GatherND, (x, b.input((3, 4, 1), "int64", b.random.integers(-5, 5, (3, 4, 1)))), batch_dims=2)
    where = b.input((3, 1), "int64", np.array([[2], [0], [-1]]))
    b.node(ops.Scatter, (x, where, b.input((3, 4, 5), dtype)))
    points = b.input((4, 3), "int64", np.array([[0, 0, 0], [2, 3, 4], [-1, -1, -1], [0, 0, 0]]))
    b.node(ops.Scatter, (x, points, b.input((4,), dtype)))
    assert_defined(TARGET, b.graph(), b.inputs)


@pytest.mark.parametrize("dtype", ["float32", pytest.param("int64", marks=SLOW), "float16"])
def test_scatters_that_combine(dtype):
    b = PlainBuilder(12)
    x = b.input((3, 4, 5), dtype)
    points = b.input((4, 3), "int64", np.array([[0, 0, 0], [2, 3, 4], [-1, -1, -1], [0, 0, 0]]))
    rows = b.input((5, 1), "int64", np.array([[2], [0], [2], [-1], [1]]))
    for reduction in ("add", "mul", "max", "min"):
        b.node(ops.Scatter, (x, points, b.input((4,), dtype)), reduction=reduction)
        b.node(ops.Scatter, (x, rows, b.input((5, 4, 5), dtype)), reduction=reduction)
    if dtype == "float16":  # each update would be rounded
        with pytest.raises(Unsupported):
            TARGET.compile(b.graph(), Options())
        return
    assert_defined(TARGET, b.graph(), b.inputs)


def test_an_index_out_of_range_ends_the_run():
    b = PlainBuilder(11)
    x, indices = b.input((3, 4)), b.input((2,), "int64", np.array([0, 2]))
    first = b.node(ops.Gather, (x, indices), axis=0)
    where = b.input((1, 2), "int64", np.array([[1, -4]]))
    second = b.node(ops.GatherND, (x, where), batch_dims=0)
    b.node(ops.Scatter, (x, where, second))
    with TARGET.open(None).load(TARGET.compile(b.graph(), Options())) as session:
        for name, wrong, node, message in (
            (indices, np.array([0, 3]), first, "3 of an axis of 3"),
            (indices, np.array([-4, 0]), first, "-4 of an axis of 3"),
            (where, np.array([[1, 4]]), second, "4 of an axis of 4"),
            (where, np.array([[7, -9]]), second, "7 of an axis of 3"),
        ):
            for call in (session.run, session.trace):
                with pytest.raises(InvalidInput, match=message) as caught:
                    call({**b.inputs, name: wrong})
                assert caught.value.where == f"node {node}"
                call(b.inputs)


def elementary(b, x):
    """Every operation on reals, x being in their domains."""
    for name in ("sqrt", "exp", "expm1", "log", "log1p", "erf", "tanh", "sinh", "cosh", "sin", "cos", "tan"):
        b.map(lambda v, name=name: apply(name, v), x)
    for name in ("asin", "acos", "atan", "asinh", "atanh", "floor", "ceil", "rint", "sign", "neg", "abs"):
        b.map(lambda v, name=name: apply(name, v), x)
    b.map(lambda v: apply("acosh", v + 1), x)


@pytest.mark.parametrize("dtype", FLOAT16_BY_DEFAULT)
def test_expressions(dtype):
    b = PlainBuilder(12)
    x = b.input((3, 4, 5), dtype)
    y = b.input((4, 1), dtype)
    z = b.constant((), dtype, 0.5)
    unit = b.input((60,), dtype, (0.01 + 0.98 * b.random.random(60)).astype(dtype))
    elementary(b, unit)
    b.map(lambda v: v * sigmoid(v), x)
    b.map(lambda v: v * apply("tanh", softplus(v)), x)
    b.map(lambda v, w: v + w, x, y)
    b.map(lambda v, w: v - w, y, b.input((3, 1, 5), dtype))
    b.map(lambda v, w, u: v * w + u, x, z, y)
    b.map(lambda v, w: apply("pow", v, w), unit, b.input((60,), dtype))
    b.map(lambda v, w: apply("fmod", v, w), x, b.input((3, 4, 5), dtype))
    b.map(lambda v, w: select(v < w, apply("max", v, w), apply("min", v, 0.25)), x, y)
    b.map(lambda v: clip(v, -0.5, 0.5), x)
    b.map(lambda v: round_to(round_to(v, "float8e4m3fn") * 1.7, "bfloat16") + round_to(v, "float8e5m2"), x)
    b.map(lambda v: v, x, dtype="float32")
    b.map(lambda v: v, x, dtype="bfloat16")
    b.map(lambda v: v, x, dtype="float8e4m3fn")
    b.map(lambda v, w: apply("le", v, w), x, y, dtype="bool")
    b.map(lambda v: apply("trunc", v * 10), x, dtype="int32")
    b.map(lambda v: apply("bool", v), x, dtype="bool")
    b.map(lambda v, w: v / w, b.input((2, 1, 3, 1, 2), dtype), b.input((1, 3, 1, 2, 1), dtype))
    assert_defined(TARGET, b.graph(), b.inputs)


SPECIAL = (0.0, -0.0, np.nan, np.inf, -np.inf, 1e-7, -6e-8, 0.5, -0.5, 1.5, 2.5, -2.5, 65504.0, -3e4)


def test_special_values_of_expressions():
    b = PlainBuilder(18)
    x = b.input((len(SPECIAL), 1), "float16", np.array(SPECIAL, np.float16).reshape(-1, 1))
    y = b.input((len(SPECIAL),), "float16", np.array(SPECIAL, np.float16))
    for op in ("max", "min", "add", "mul", "div", "pow", "fmod"):
        b.map(lambda v, w, op=op: apply(op, v, w), x, y, dtype="float32")
    for op in ("eq", "lt", "le"):
        b.map(lambda v, w, op=op: apply(op, v, w), x, y, dtype="bool")
    for op in ("floor", "ceil", "rint", "sign", "abs", "sqrt", "exp", "log", "tanh", "erf"):
        b.map(lambda v, op=op: apply(op, v), x)
    b.map(lambda v: apply("isnan", v), x, dtype="bool")
    b.map(lambda v: apply("trunc", v), x, dtype="int64")
    b.map(lambda v: apply("trunc", v * 1e18), x, dtype="int64")
    b.map(sigmoid, x)
    b.map(softplus, x)
    assert_defined(TARGET, b.graph(), b.inputs)


def around(dtype):
    """float32 values at, beside and halfway between those of a narrow type, and specials."""
    size = dtypes.storage(dtype).itemsize
    patterns = np.arange(256**size, dtype=dtypes.storage(dtype))
    values = dtypes.decode(patterns, dtype)
    finite = np.unique(values[np.isfinite(values)])
    with np.errstate(over="ignore"):
        halves = ((finite[1:] + finite[:-1]) / 2).astype(np.float32)
        beyond = np.float32(
            [finite[-1] * 1.02, finite[-1] * 1.06, finite[-1] * 1.5, 3e38, np.inf, np.nan, 1e-45]
        )
    values = np.concatenate([finite.astype(np.float32), halves, beyond, -beyond])
    with np.errstate(over="ignore"):
        return np.concatenate([values, *(np.nextafter(values, np.float32(end)) for end in (-np.inf, np.inf))])


@pytest.mark.parametrize(
    "dtype", ["float8e4m3fn", *(pytest.param(name, marks=SLOW) for name in ("float16", *NARROW[::2]))]
)
def test_conversions_are_exact(dtype):
    """Of all elements to float32, and of float32 at and around every rounding; in a Map, and in rows."""
    size = dtypes.storage(dtype).itemsize
    patterns = np.arange(256**size, dtype=dtypes.storage(dtype))
    values = around(dtype)
    b = PlainBuilder(19)
    narrow, wide = b.input(patterns.shape, dtype, patterns), b.input(values.shape, "float32", values)
    widened = b.map(lambda v: v, narrow, dtype="float32")
    narrowed = b.map(lambda v: v, wide, dtype=dtype)
    flat = {"kernel": (1, 1), "strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1)}
    pooled = b.node(ops.MaxPool, (b.reshape(narrow, (1, 1, 1, patterns.size)),), **flat)
    with TARGET.open(None).load(TARGET.compile(b.graph(), Options())) as session:
        found = session.run(b.inputs)
    with np.errstate(over="ignore", invalid="ignore"):
        np.testing.assert_array_equal(found[widened].astype(np.float64), dtypes.decode(patterns, dtype))
        expected = dtypes.encode(values.astype(np.float64), dtype)
    for stored, wanted in ((found[narrowed], expected), (found[pooled].ravel(), patterns)):
        number = ~np.isnan(dtypes.decode(wanted, dtype))
        np.testing.assert_array_equal(bits(stored[number]), bits(wanted[number]))
        assert np.isnan(dtypes.decode(stored[~number], dtype)).all()


def test_offsets_beyond_two_gigabytes():
    """The guards make them: memory that nothing touches costs nothing."""
    b = PlainBuilder(22)
    x = b.input((1, 4, 5, 5))
    y = b.map(lambda v: v + 1, conv(b, x, (4, 4, 3, 3), pads=(1, 1, 1, 1)))
    b.node(ops.MatMul, (y, b.node(ops.Softmax, (y,), axis=2)), transposed=True)
    program = TARGET.compile(b.graph(), Options(guard=1 << 30))
    assert program.plan["memory"]["arena"] > 1 << 32
    with TARGET.open(None).load(program) as session:
        values = b.inputs | session.trace(b.inputs)
    for node in program.graph.nodes:
        assert_within(program.graph, node, values)


def test_expressions_of_integers_and_truth_values():
    b = PlainBuilder(13)
    x, y = b.input((3, 4), "int64"), b.input((4,), "int64", np.array([3, -7, 0, -1]))
    for op in ("add", "sub", "mul", "div", "min", "max", "fmod", "mod"):
        b.map(lambda v, w, op=op: apply(op, v, w), x, y)
    for op in ("neg", "abs", "sign"):
        b.map(lambda v, op=op: apply(op, v), x)
    for op in ("eq", "lt", "le"):
        b.map(lambda v, w, op=op: apply(op, v, w), x, y, dtype="bool")
    p, q = b.input((3, 4), "bool"), b.input((3, 1), "bool")
    for op in ("and", "or", "xor", "eq"):
        b.map(lambda v, w, op=op: apply(op, v, w), p, q)
    b.map(lambda v: apply("not", v), p)
    b.map(lambda v: apply("int", v), p, dtype="int32")
    b.map(lambda v: apply("real", v), p, dtype="float16")
    b.map(lambda v: apply("real", v), x, dtype="float32")
    b.map(lambda v: apply("bool", v), x, dtype="bool")
    b.map(lambda c, v, w: select(c, v, w), p, x, y, dtype="int64")
    b.map(lambda v: v, x, dtype="int8")
    b.map(lambda v: v - 3, b.input((2, 3), "uint8"), dtype="int32")
    assert_defined(TARGET, b.graph(), b.inputs)


def cell(dtype, *, states=2, width=5):
    """The body of a recurrence: a gated cell of a slice of a sequence, `states` states, and a matrix."""
    b = PlainBuilder(20)
    x = b.input((1, 3), dtype)
    before = [b.input((1, width), dtype) for _ in range(states)]
    shared = b.input((3, width), dtype)
    product = b.node(ops.MatMul, (x, shared), transposed=False)
    own = b.node(ops.MatMul, (before[0], b.constant((width, width), dtype)), transposed=True)
    gate = b.map(lambda v, w: sigmoid(v + w), product, own)
    after = b.map(lambda v, w: v * apply("tanh", w), gate, before[-1])
    outputs = [after, gate][:states]
    if states > 2:
        outputs.append(before[0])  # passed on
    return b.graph(*outputs)


@pytest.mark.parametrize(
    ("dtype", "backward", "states"),
    [
        ("float32", True, 3),
        *(pytest.param(dtype, *rest, marks=SLOW) for dtype in FLOATS for rest in ((False, 2), (True, 1))),
    ],
)
def test_recurrences(dtype, backward, states):
    b = PlainBuilder(14)
    sequence = b.input((4, 1, 3), dtype)
    initial = [b.input((1, 5), dtype), b.constant((1, 5), dtype), b.input((1, 5), dtype)][:states]
    body = cell(dtype, states=states)
    inputs = (sequence, *initial, b.constant((3, 5), dtype))
    fields = {"body": body, "steps": 4, "sequences": 1, "backward": backward}
    y = b.node(ops.Recurrent, inputs, dtype=dtype, **fields)
    b.node(ops.Recurrent, inputs, dtype=dtype, **fields)
    b.map(lambda v: v * 2, y)
    assert_defined(TARGET, b.graph(), b.inputs)


@pytest.mark.slow
def test_a_recurrence_within_a_recurrence():
    inner = cell("float32", states=1)
    b = PlainBuilder(21)
    x, state, matrix = b.input((4, 1, 3)), b.input((1, 5)), b.input((3, 5))
    all_states = b.node(ops.Recurrent, (x, state, matrix), body=inner, steps=4, sequences=1, backward=False)
    last = b.node(ops.Slice, (all_states,), shape=(1, 1, 1, 5), starts=(3, 0, 0, 0), steps=(1, 1, 1, 1))
    body = b.graph(b.reshape(last, (1, 5)))
    b = PlainBuilder(15)
    inputs = (b.input((3, 4, 1, 3)), b.input((1, 5)), b.constant((3, 5)))
    b.node(ops.Recurrent, inputs, body=body, steps=3, sequences=1, backward=True)
    assert_defined(TARGET, b.graph(), b.inputs)


def region_values():
    """What a target materialises of a network with a region; and the region's nodes."""
    b = PlainBuilder(16)
    x = b.input((1, 4, 5, 5), "float16")
    y = conv(b, x, (4, 4, 3, 3), pads=(1, 1, 1, 1))
    z = b.map(lambda v, w: apply("max", v + w, 0), y, x)
    last = b.map(lambda v: v * 0.5, z)
    inner = tuple(b.nodes)
    weight = inner[0].inputs[1]
    b.nodes = [ops.Region("region", (x, weight), last, inner)]
    b.map(lambda v: -v, last)
    return assert_defined(TARGET, b.graph(last, b.nodes[-1].output), b.inputs), inner


def test_a_region_runs_its_nodes():
    values, inner = region_values()
    assert inner[-1].output in values


def test_the_tensors_of_a_region_are_traced():
    values, inner = region_values()
    assert {node.output for node in inner} < set(values)


def test_quantised_and_plain_in_one_network():
    """Both ways between them, with signed and unsigned elements."""
    b = PlainBuilder(17)
    x = b.input((1, 4, 6, 7))
    for dtype, zero_point in (("uint8", 121), ("int8", -9)):
        scale = ops.Quantization.per_tensor(0.03, zero_point)

        def quantised(node, shape, dtype=dtype, scale=scale):
            b.tensors[node.output] = ops.Tensor(node.output, shape, dtype, scale)
            b.nodes.append(node)
            return node.output

        q = quantised(ops.Quantize(f"quantize {dtype}", (x,), f"q {dtype}"), (1, 4, 6, 7))
        low, high = (0, 255) if dtype == "uint8" else (-128, 127)
        total = quantised(ops.Add(f"add {dtype}", (q, q), f"sum {dtype}", (low, high)), (1, 4, 6, 7))
        turned = quantised(
            ops.Transpose(f"turn {dtype}", (total,), f"turned {dtype}", (0, 2, 3, 1)), (1, 6, 7, 4)
        )
        real = b.node(ops.Dequantize, (turned,), dtype="float32", shape=(1, 6, 7, 4))
        softmax = b.node(ops.Softmax, (real,), axis=3)
        half = b.map(lambda v: v * 3, softmax, dtype="float16")
        quantised(ops.Quantize(f"again {dtype}", (softmax,), f"again {dtype}"), (1, 6, 7, 4))
        b.node(ops.Transpose, (half,), perm=(0, 3, 1, 2))
    assert_defined(TARGET, b.graph(), b.inputs)


def test_more_memory_than_the_machine_has_is_reported():
    b = PlainBuilder(23)
    b.map(lambda v: v + 1, b.input((2, 3)))
    program = TARGET.compile(b.graph(), Options(guard=1 << 46))
    with pytest.raises(DeviceFailed, match="memory"):
        TARGET.open(None).load(program)


def test_weights_that_cannot_be_written_are_reported(monkeypatch, tmp_path):
    b = PlainBuilder(24)
    b.node(ops.MatMul, (b.input((2, 3)), b.constant((3, 4))), transposed=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(OutputFailed) as caught:
        TARGET.open(None).load(TARGET.compile(b.graph(), Options()))
    assert "TMPDIR" in caught.value.hint
