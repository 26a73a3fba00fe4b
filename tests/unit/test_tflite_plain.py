"""Plain TFLite operators: one at a time, the reference against numpy and against TFLite's own interpreter.

A case is a network of one operator: its inputs and constants, its options, and what numpy makes of it. The
interpreter (ai-edge-litert, a development package) runs the same file where it is installed.
"""

import math
import re
import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from sdk import reference
from sdk.importers.tflite import import_tflite, tflite_table
from sdk.importers.tflite.file import parse_tflite
from tests.tflite_writer import Writer
from tests.unit.test_tflite import convolved, options, pool_options, pooled

RANDOM = np.random.default_rng(0)


def reals(*shape):
    return RANDOM.uniform(-2, 2, shape).astype(np.float32)


def ints(*values):
    return np.array(values, np.int32)


@dataclass
class Case:
    """One operator. Of `operands`, arrays of `given` are inputs; the others are constants."""

    op: str
    operands: list
    expected: object
    table: str = ""
    given: int = 1
    fields: dict = field(default_factory=dict)
    first: int = 0
    custom: bytes | None = None
    interpreted: bool = True

    def write(self):
        """The file, its inputs by name, and the expected outputs."""
        writer, inputs, numbers = Writer(), {}, []
        for i, operand in enumerate(self.operands):
            if operand is None:
                numbers.append(-1)
            elif self.first <= i < self.first + self.given:
                inputs[f"x{i}"] = operand
                numbers.append(writer.tensor(f"x{i}", operand.shape, operand.dtype))
            else:
                numbers.append(writer.constant(f"c{i}", operand))
        expected = self.expected if isinstance(self.expected, list) else [self.expected]
        results = [writer.tensor(f"y{i}", y.shape, y.dtype) for i, y in enumerate(expected)]
        writer.operator(self.op, numbers, results, self.table, custom=self.custom, **self.fields)
        ends = [number for number in numbers if number >= 0 and writer.tensors[number]["data"] is None]
        return writer.content(ends, results), inputs, expected


def case(op, operands, expected, table="", given=1, *, first=0, custom=None, interpreted=True, **fields):
    return Case(op, operands, expected, table, given, fields, first, custom, interpreted)


def single(op, function, x=None, table="", **fields):
    """An operator of one number."""
    x = reals(2, 5) if x is None else x
    with np.errstate(all="ignore"):
        return case(op, [x], np.asarray(function(x.astype(np.float64)), x.dtype), table, **fields)


def pair(op, function, a=None, b=None, table="", dtype=None, **fields):
    """An operator of two tensors, that broadcast."""
    a, b = reals(2, 3, 4) if a is None else a, reals(3, 1) if b is None else b
    result = np.asarray(function(a, b))
    return case(op, [a, b], result.astype(dtype or a.dtype), table, 2, **fields)


X = reals(1, 6, 7, 4)
POSITIVE = np.abs(reals(2, 5)) + np.float32(0.1)
INTEGERS = RANDOM.integers(-9, 9, (3, 4)).astype(np.int32)
DIVISORS = np.array([[3], [-2], [5]], np.int32)
TRUTH = RANDOM.integers(0, 2, (3, 4)).astype(bool)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def erf(x):
    return np.vectorize(math.erf)(x)


def normalised(x, radius, bias, alpha, beta):
    """LOCAL_RESPONSE_NORMALIZATION, channel by channel."""
    sums = [
        (x[..., max(c - radius, 0) : c + radius + 1].astype(float) ** 2).sum(-1) for c in range(x.shape[-1])
    ]
    return (x / (bias + alpha * np.stack(sums, -1)) ** beta).astype(np.float32)


def transposed(x, weight, strides, wanted, before):
    """A transposed convolution as a sum of kernels; weight [O,kh,kw,I]."""
    n, rows, columns, _ = x.shape
    outputs, kh, kw, _ = weight.shape
    whole = np.zeros((n, rows * strides[0] + kh + 9, columns * strides[1] + kw + 9, outputs))
    for r in range(rows):
        for c in range(columns):
            part = np.einsum("ni,ohwi->nhwo", x[:, r, c].astype(float), weight)
            whole[:, r * strides[0] : r * strides[0] + kh, c * strides[1] : c * strides[1] + kw] += part
    top, left = before
    return whole[:, top : top + wanted[0], left : left + wanted[1]].astype(np.float32)


def interpolated(x, size, place):
    """Bilinear, each axis by itself; `place` gives the coordinate of an element."""
    for axis, to in zip((1, 2), size, strict=True):
        extent = x.shape[axis]
        at = np.clip([place(i, extent, to) for i in range(to)], 0, extent - 1)
        low = np.floor(at).astype(int)
        high, part = (
            np.minimum(low + 1, extent - 1),
            (at - low).reshape([-1 if a == axis else 1 for a in range(4)]),
        )
        x = np.take(x, low, axis) * (1 - part) + np.take(x, high, axis) * part
    return x.astype(np.float32)


WEIGHT, DEPTHWISE, BIAS = reals(5, 3, 2, 4), reals(1, 3, 3, 8), reals(5)
CONV = convolved(X.astype(float), WEIGHT, (2, 1), True)
KERNEL = reals(3, 3, 2, 4)
SAME_CT = {"Padding": 0, "StrideH": 2, "StrideW": 3}
BLOCKS = X[:, :6, :6]


def crossed(x, block):
    n, h, w, c = x.shape
    split = x.reshape(n, h // block, block, w // block, block, c)
    return split.transpose(0, 1, 3, 2, 4, 5).reshape(n, h // block, w // block, block * block * c)


CASES = {
    # elementwise
    "abs": single("ABS", np.abs),
    "ceil": single("CEIL", np.ceil),
    "cos": single("COS", np.cos),
    "elu": single("ELU", lambda x: np.where(x < 0, np.expm1(x), x)),
    "exp": single("EXP", np.exp),
    "floor": single("FLOOR", np.floor),
    "gelu": single("GELU", lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2))), table="GeluOptions"),
    "gelu tanh": single(
        "GELU",
        lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
        table="GeluOptions",
        Approximate=True,
    ),
    "hard swish": single("HARD_SWISH", lambda x: x * np.clip(x + 3, 0, 6) / 6, reals(2, 9) * 2),
    "leaky": single("LEAKY_RELU", lambda x: np.where(x < 0, 0.3 * x, x), table="LeakyReluOptions", Alpha=0.3),
    "log": single("LOG", np.log, POSITIVE),
    "logistic": single("LOGISTIC", lambda x: 1 / (1 + np.exp(-x))),
    "neg": single("NEG", np.negative),
    "relu": single("RELU", lambda x: np.maximum(x, 0)),
    "relu6": single("RELU6", lambda x: np.clip(x, 0, 6), reals(2, 9) * 5),
    "relu 0 to 1": single("RELU_0_TO_1", lambda x: np.clip(x, 0, 1)),
    "relu -1 to 1": single("RELU_N1_TO_1", lambda x: np.clip(x, -1, 1)),
    "round": single("ROUND", np.rint, np.array([[0.5, 1.5, -0.5, -1.5, 2.3]], np.float32)),
    "rsqrt": single("RSQRT", lambda x: 1 / np.sqrt(x), POSITIVE),
    "sign": single("SIGN", np.sign),
    "sin": single("SIN", np.sin),
    "sqrt": single("SQRT", np.sqrt, POSITIVE),
    "square": single("SQUARE", np.square),
    "tanh": single("TANH", np.tanh),
    "not": case("LOGICAL_NOT", [TRUTH], ~TRUTH),
    "cast to int": case("CAST", [reals(3, 4) * 5], np.zeros((3, 4), np.int32), "CastOptions"),
    "cast to float": case("CAST", [INTEGERS], INTEGERS.astype(np.float32), "CastOptions"),
    "cast of a picture": case("CAST", [TRUTH.astype(np.uint8) * 255], TRUTH * np.float32(255)),
    "add": pair("ADD", np.add, table="AddOptions"),
    "add relu6": pair(
        "ADD", lambda a, b: np.clip(a + b, 0, 6), table="AddOptions", FusedActivationFunction=3
    ),
    "add tanh": pair(
        "ADD", lambda a, b: np.tanh(a + b), table="AddOptions", FusedActivationFunction=4, interpreted=False
    ),
    "div": pair("DIV", np.divide, table="DivOptions"),
    "equal": pair("EQUAL", np.equal, INTEGERS, DIVISORS, dtype=bool),
    "floor div": pair("FLOOR_DIV", np.floor_divide),
    "floor div of integers": pair("FLOOR_DIV", np.floor_divide, INTEGERS, DIVISORS),
    "floor mod": pair("FLOOR_MOD", np.mod),
    "floor mod of integers": pair("FLOOR_MOD", np.mod, INTEGERS, DIVISORS),
    "greater": pair("GREATER", np.greater, dtype=bool),
    "greater or equal": pair("GREATER_EQUAL", np.greater_equal, INTEGERS, DIVISORS, dtype=bool),
    "less": pair("LESS", np.less, dtype=bool),
    "less or equal": pair("LESS_EQUAL", np.less_equal, INTEGERS, DIVISORS, dtype=bool),
    "and": pair("LOGICAL_AND", np.logical_and, TRUTH, TRUTH[:1], dtype=bool),
    "or": pair("LOGICAL_OR", np.logical_or, TRUTH, TRUTH[:1], dtype=bool),
    "maximum": pair("MAXIMUM", np.maximum),
    "minimum": pair("MINIMUM", np.minimum),
    "mul": pair("MUL", np.multiply, table="MulOptions"),
    "not equal": pair("NOT_EQUAL", np.not_equal, INTEGERS, DIVISORS, dtype=bool),
    "pow": case("POW", [POSITIVE, reals(2, 1)], None, given=2),
    "squared difference": pair("SQUARED_DIFFERENCE", lambda a, b: (a - b) ** 2),
    "sub": pair("SUB", np.subtract, table="SubOptions"),
    "add n": case("ADD_N", [X, X + 1, X * 2], X * 4 + 1, given=3),
    "prelu": case("PRELU", [X, np.abs(BIAS[:4])], np.where(X < 0, X * np.abs(BIAS[:4]), X)),
    "select": case("SELECT", [TRUTH, reals(3, 4), reals(3, 4)], None, given=3),
    "select rows": case("SELECT", [TRUTH[0, :3], reals(3, 4), reals(3, 4)], None, given=3),
    "select v2": case("SELECT_V2", [TRUTH[:, :1], reals(3, 4), reals(1, 4)], None, given=3),
    "fake quant": case(
        "FAKE_QUANT", [X], None, "FakeQuantOptions", Min=-1.0, Max=1.5, NumBits=8, NarrowRange=False
    ),
    # products and windows
    "conv": case("CONV_2D", [X, WEIGHT, BIAS], (CONV + BIAS).astype(np.float32), "Conv2DOptions",
                 **options(True, (2, 1))),
    "conv tanh": case("CONV_2D", [X, WEIGHT, None], np.tanh(CONV).astype(np.float32), "Conv2DOptions",
                      interpreted=False, **options(True, (2, 1), activation=4)),
    "dilated conv": case(
        "CONV_2D", [X, WEIGHT, BIAS],
        np.maximum(convolved(X.astype(float), WEIGHT, (1, 1), False, (2, 3)) + BIAS, 0).astype(np.float32),
        "Conv2DOptions", **options(False, (1, 1), (2, 3), activation=1)),
    "depthwise conv": case(
        "DEPTHWISE_CONV_2D", [X, DEPTHWISE, reals(8) * 0],
        convolved(X.astype(float), DEPTHWISE, (1, 2), True, depthwise=True).astype(np.float32),
        "DepthwiseConv2DOptions", DepthMultiplier=2, **options(True, (1, 2))),
    "transpose conv": case("TRANSPOSE_CONV", [ints(1, 12, 21, 3), KERNEL, X],
                           transposed(X, KERNEL, (2, 3), (12, 21), (0, 0)), "TransposeConvOptions",
                           first=2, **SAME_CT),
    "transpose conv to an odd size": case("TRANSPOSE_CONV", [ints(1, 11, 20, 3), KERNEL, X],
                           transposed(X, KERNEL, (2, 3), (11, 20), (1, 0)), "TransposeConvOptions",
                           first=2, **SAME_CT),
    "valid transpose conv": case("TRANSPOSE_CONV", [ints(1, 13, 20, 3), KERNEL, X],
                           transposed(X, KERNEL, (2, 3), (13, 20), (0, 0)), "TransposeConvOptions",
                           first=2, **SAME_CT | {"Padding": 1}),
    "custom transpose conv": case("Convolution2DTransposeBias", [X, KERNEL, BIAS[:3]],
                           transposed(X, KERNEL, (2, 3), (12, 21), (0, 0)) + BIAS[:3],
                           custom=struct.pack("<iii", 1, 3, 2), interpreted=False),
    "fully connected": case("FULLY_CONNECTED", [reals(2, 3, 4), reals(5, 12), BIAS], None,
                            "FullyConnectedOptions", FusedActivationFunction=1),
    "batch matmul": case("BATCH_MATMUL", [reals(2, 3, 4), reals(2, 5, 4)], None, "BatchMatMulOptions", 2,
                         AdjY=True),
    "average pool": case("AVERAGE_POOL_2D", [X], None, "Pool2DOptions", **pool_options(True, (3, 2), (2, 1))),
    "max pool": case("MAX_POOL_2D", [X], None, "Pool2DOptions", **pool_options(False, (3, 2), (2, 1))),
    "L2 pool": case("L2_POOL_2D", [X], None, "Pool2DOptions", **pool_options(False, (3, 2), (2, 1))),
    "bilinear": case("RESIZE_BILINEAR", [X, ints(9, 5)],
                     interpolated(X, (9, 5), lambda i, n, m: i * n / m), "ResizeBilinearOptions"),
    "bilinear half pixels": case("RESIZE_BILINEAR", [X, ints(9, 5)],
                     interpolated(X, (9, 5), lambda i, n, m: (i + 0.5) * n / m - 0.5),
                     "ResizeBilinearOptions", HalfPixelCenters=True),
    "bilinear aligned": case("RESIZE_BILINEAR", [X, ints(9, 5)],
                     interpolated(X, (9, 5), lambda i, n, m: i * (n - 1) / (m - 1)),
                     "ResizeBilinearOptions", AlignCorners=True),
    "nearest": case("RESIZE_NEAREST_NEIGHBOR", [X, ints(12, 7)], np.repeat(X, 2, 1),
                    "ResizeNearestNeighborOptions"),
    # reductions and normalisations
    "mean": case("MEAN", [X, ints(1, 2)], X.mean((1, 2)), "ReducerOptions"),
    "mean of channels": case("MEAN", [X, ints(-1)], X.mean(-1, keepdims=True), "ReducerOptions",
                             KeepDims=True),
    "sum": case("SUM", [X, ints(0, 3)], X.sum((0, 3)), "ReducerOptions"),
    "max": case("REDUCE_MAX", [X, ints(2)], X.max(2), "ReducerOptions"),
    "min": case("REDUCE_MIN", [X, ints(1, 3)], X.min((1, 3)), "ReducerOptions"),
    "prod": case("REDUCE_PROD", [X, ints(3)], X.prod(3), "ReducerOptions"),
    "any": case("REDUCE_ANY", [TRUTH, ints(1)], TRUTH.any(1), "ReducerOptions"),
    "all": case("REDUCE_ALL", [TRUTH, ints(0)], TRUTH.all(0), "ReducerOptions"),
    "arg max": case("ARG_MAX", [X, ints(3)], X.argmax(3).astype(np.int64), "ArgMaxOptions", OutputType=4),
    "arg min": case("ARG_MIN", [X, ints(1)], X.argmin(1).astype(np.int32), "ArgMinOptions", OutputType=2),
    "softmax": case("SOFTMAX", [X], softmax(X * 2), "SoftmaxOptions", Beta=2.0),
    "log softmax": case("LOG_SOFTMAX", [X], np.log(softmax(X)), "LogSoftmaxOptions"),
    "L2 normalisation": case("L2_NORMALIZATION", [X], X / np.sqrt((X**2).sum(-1, keepdims=True)),
                             "L2NormOptions"),
    "L2 normalisation of zeros": case("L2_NORMALIZATION", [X * 0], X * 0, "L2NormOptions", interpreted=False),
    "local response": case("LOCAL_RESPONSE_NORMALIZATION", [X], normalised(X, 1, 1.5, 0.3, 0.7),
                           "LocalResponseNormalizationOptions", Radius=1, Bias=1.5, Alpha=0.3, Beta=0.7),
    "cumulated": case("CUMSUM", [X, ints(1)], np.cumsum(X, 1), "CumsumOptions"),
    "cumulated before": case("CUMSUM", [X, ints(2)],
                             np.flip(np.cumsum(np.flip(X, 2), 2), 2) - X, "CumsumOptions",
                             Exclusive=True, Reverse=True),
    # moves
    "reshape": case("RESHAPE", [X, ints(6, -1)], X.reshape(6, -1), "ReshapeOptions"),
    "squeeze": case("SQUEEZE", [X], X[0], "SqueezeOptions", SqueezeDims=[0]),
    "expand": case("EXPAND_DIMS", [X, ints(-1)], X[..., None], "ExpandDimsOptions"),
    "transpose": case("TRANSPOSE", [X, ints(0, 3, 1, 2)], X.transpose(0, 3, 1, 2), "TransposeOptions"),
    "concatenation": case("CONCATENATION", [X, X + 1], np.concatenate([X, X + 1], 2),
                          "ConcatenationOptions", 2, Axis=-2),
    "pack": case("PACK", [X, X + 1], np.stack([X, X + 1], 3), "PackOptions", 2, Axis=3, ValuesCount=2),
    "unpack": case("UNPACK", [X], [X[:, :, :, i] for i in range(4)], "UnpackOptions", Axis=3, Num=4),
    "split": case("SPLIT", [ints(3), X], list(np.split(X, 2, 3)), "SplitOptions", first=1, NumSplits=2),
    "split v": case("SPLIT_V", [X, ints(2, -1, 1), ints(1)], list(np.split(X, [2, 5], 1)), "SplitVOptions",
                    NumSplits=3),
    "slice": case("SLICE", [X, ints(0, 1, 2, 0), ints(1, 4, -1, 3)], X[:, 1:5, 2:, :3], "SliceOptions"),
    "strided slice": case("STRIDED_SLICE", [X, ints(0, 5, 1, 0), ints(1, 0, -1, 9), ints(1, -2, 3, 1)],
                          X[:, 5:0:-2, 1:-1:3], "StridedSliceOptions"),
    "strided slice by masks": case(
        "STRIDED_SLICE", [X, ints(0, 9, 0, -2), ints(1, 9, 0, 0), ints(1, 1, 1, 1)], X[0][..., None, -2],
        "StridedSliceOptions", ShrinkAxisMask=9, EllipsisMask=2, NewAxisMask=4),
    "strided slice from the end": case(
        "STRIDED_SLICE", [X, ints(0, 0), ints(0, 0), ints(1, -1)], X[:, ::-1], "StridedSliceOptions",
        BeginMask=3, EndMask=3),
    "reverse": case("REVERSE_V2", [X, ints(1, 2)], X[:, ::-1, ::-1], "ReverseV2Options"),
    "pad": case("PAD", [X, ints(0, 0, 1, 2, 0, 1, 2, 0).reshape(4, 2)],
                np.pad(X, [(0, 0), (1, 2), (0, 1), (2, 0)]), "PadOptions"),
    "pad by a number": case("PADV2", [X, ints(0, 0, 1, 2, 0, 1, 0, 0).reshape(4, 2), np.float32([7])],
                np.pad(X, [(0, 0), (1, 2), (0, 1), (0, 0)], constant_values=7), "PadV2Options"),
    "reflected": case("MIRROR_PAD", [X, ints(0, 0, 1, 2, 0, 3, 0, 0).reshape(4, 2)],
                np.pad(X, [(0, 0), (1, 2), (0, 3), (0, 0)], "reflect"), "MirrorPadOptions", Mode=0),
    "symmetric": case("MIRROR_PAD", [X, ints(0, 0, 1, 2, 0, 3, 0, 0).reshape(4, 2)],
                np.pad(X, [(0, 0), (1, 2), (0, 3), (0, 0)], "symmetric"), "MirrorPadOptions", Mode=1),
    "tile": case("TILE", [reals(2, 3), ints(2, 3)], None, "TileOptions"),
    "broadcast": case("BROADCAST_TO", [reals(2, 1), ints(3, 2, 4)], None, "BroadcastToOptions"),
    "gather": case("GATHER", [X, ints(3, 0, 0)], X[..., [3, 0, 0]], "GatherOptions", Axis=3),
    "gather at run time": case("GATHER", [X, ints(5, 2)], X[:, [5, 2]], "GatherOptions", 2, Axis=1),
    "gather nd": case("GATHER_ND", [X, ints(0, 5, 0, 1).reshape(2, 2)], X[[0, 0], [5, 1]], "GatherNdOptions"),
    "embedding": case("EMBEDDING_LOOKUP", [ints(2, 0, 2), reals(3, 4)], None),
    "one hot": case("ONE_HOT", [ints(2, 0, 1), ints(4).reshape(()), np.float32(3), np.float32(-1)],
                    np.where(np.eye(4)[[2, 0, 1]] > 0, 3, -1).astype(np.float32), "OneHotOptions", Axis=-1),
    "depth to space": case("DEPTH_TO_SPACE", [X],
                    X.reshape(1, 6, 7, 2, 2, 1).transpose(0, 1, 3, 2, 4, 5).reshape(1, 12, 14, 1),
                    "DepthToSpaceOptions", BlockSize=2),
    "space to depth": case("SPACE_TO_DEPTH", [BLOCKS], crossed(BLOCKS, 2), "SpaceToDepthOptions",
                           BlockSize=2),
    "space to batch": case("SPACE_TO_BATCH_ND", [X, ints(2, 3), ints(0, 2, 1, 1).reshape(2, 2)], None,
                           "SpaceToBatchNDOptions"),
    "batch to space": case("BATCH_TO_SPACE_ND",
                           [reals(6, 2, 3, 4), ints(2, 3), ints(0, 1, 2, 0).reshape(2, 2)],
                           None, "BatchToSpaceNDOptions"),
}  # fmt: skip


def fill_in():
    """Cases whose result is made of their own operands."""

    def expect(name, value):
        CASES[name].expected = np.asarray(value, np.float32)

    a = {name: found.operands for name, found in CASES.items() if found.expected is None}
    expect("pow", np.power(*a["pow"]))
    expect("select", np.where(*a["select"]))
    expect("select rows", np.where(a["select rows"][0][:, None], *a["select rows"][1:]))
    expect("select v2", np.where(*a["select v2"]))
    step = 2.5 / 255
    clipped = np.clip(X, (0 - 102) * step, (255 - 102) * step) + 102 * step
    expect("fake quant", np.floor(clipped / step + 0.5) * step - 102 * step)
    x, w, b = a["fully connected"]
    expect("fully connected", np.maximum(x.reshape(2, 12) @ w.T + b, 0))
    expect("batch matmul", a["batch matmul"][0] @ a["batch matmul"][1].transpose(0, 2, 1))
    for name, same, function in (
        ("average pool", True, lambda w: np.nanmean(w, axis=(1, 2))),
        ("max pool", False, lambda w: w.max(axis=(1, 2))),
        ("L2 pool", False, lambda w: np.sqrt((w**2).mean(axis=(1, 2)))),
    ):
        expect(name, pooled(X, function, same, (3, 2), (2, 1), np.nan))
    expect("tile", np.tile(a["tile"][0], (2, 3)))
    expect("broadcast", np.broadcast_to(a["broadcast"][0], (3, 2, 4)))
    expect("embedding", a["embedding"][1][[2, 0, 2]])
    padded = np.pad(X, [(0, 0), (0, 2), (1, 1), (0, 0)])
    expect("space to batch", np.concatenate([padded[:, i::2, j::3] for i in (0, 1) for j in range(3)]))
    whole = np.zeros((1, 4, 9, 4))
    for number, part in enumerate(a["batch to space"][0]):
        whole[0, number // 3 :: 2, number % 3 :: 3] = part
    expect("batch to space", whole[:, :3, 2:])
    CASES["cast to int"].expected = CASES["cast to int"].operands[0].astype(np.int32)


fill_in()


def load(content):
    return import_tflite(parse_tflite(content, "test.tflite"))


def assert_close(result, expected):
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_operator(name):
    content, inputs, expected = CASES[name].write()
    results = reference.run(load(content), inputs)
    for i, y in enumerate(expected):
        assert_close(results[f"y{i}"], y)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, found in CASES.items() if found.interpreted])
def test_operator_against_the_interpreter(name):
    found = pytest.importorskip("ai_edge_litert.interpreter")
    content, inputs, _ = CASES[name].write()
    kind = found.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = found.Interpreter(model_content=content, experimental_op_resolver_type=kind)
    interpreter.allocate_tensors()
    for detail in interpreter.get_input_details():
        interpreter.set_tensor(detail["index"], inputs[detail["name"]])
    interpreter.invoke()
    results = reference.run(load(content), inputs)
    for detail in interpreter.get_output_details():
        assert_close(results[detail["name"]], interpreter.get_tensor(detail["index"]))


PAGE = Path(__file__).parents[2] / "docs" / "tflite.md"


def filled(page):
    """The page with its table of operators written again."""
    rows = [f"| {names} | {meaning} |" for names, meaning in tflite_table()]
    table = "\n".join(["| TFLite operator | what it becomes |", "|---|---|", *rows])
    page, count = re.subn(
        r"(<!-- operators -->\n).*?(<!-- /operators -->)",
        lambda m: f"{m[1]}\n{table}\n\n{m[2]}",
        page,
        flags=re.DOTALL,
    )
    assert count == 1
    return page


def test_the_page_is_what_the_table_says():
    """`python -m tests.unit.test_tflite_plain` writes it again."""
    assert PAGE.read_text() == filled(PAGE.read_text())


def test_the_table_names_each_operator_once():
    names = [name for names, meaning in tflite_table() for name in names.split(", ")]
    assert len(names) == len(set(names))
    assert {found.op for found in CASES.values()} <= set(names)
    assert all(meaning for _, meaning in tflite_table())


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
