"""One TFLite operator at a time: the imported graph, run by the reference, against plain NHWC numpy.

The oracles work on real values in float64, in TFLite's own order of axes; they share no code with the
importer.
"""

import math

import numpy as np
import pytest

from sdk import reference
from sdk.errors import UsageError
from sdk.graph import Conv, GlobalAveragePool, Lookup, MaxPool, Pad, Reshape, Transpose
from sdk.importers import is_tflite, load_model
from sdk.importers.tflite import import_tflite, pixels
from sdk.importers.tflite.file import parse_tflite
from tests.tflite_writer import Writer

SCALE, ZERO = 0.05, 3
OUT_SCALE, OUT_ZERO = 0.0613, -5
RANGES = {"int8": (-128, 127), "uint8": (0, 255)}


def imported(writer, inputs, outputs, **options):
    return import_tflite(parse_tflite(writer.content(inputs, outputs), "test.tflite"), **options)


class Net:
    """A network around one operator: its 8-bit inputs, and what the reference makes of them."""

    def __init__(self, shape=(1, 6, 7, 4), dtype="int8", seed=0):
        self.random = np.random.default_rng(seed)
        self.dtype = dtype
        self.writer = Writer()
        self.inputs = {}
        self.offset = 128 if dtype == "uint8" else 0
        self.x = self.input("x", shape)

    def input(self, name, shape, scale=SCALE, zero=ZERO):
        self.inputs[name] = self.random.integers(*RANGES[self.dtype], shape, self.dtype, endpoint=True)
        return self.writer.tensor(name, shape, self.dtype, scale=scale, zero_point=zero + self.offset)

    def output(self, shape, scale=OUT_SCALE, zero=OUT_ZERO, name="y"):
        return self.writer.tensor(name, shape, self.dtype, scale=scale, zero_point=zero + self.offset)

    def real(self, name="x", scale=SCALE, zero=ZERO):
        return scale * (self.inputs[name].astype(np.float64) - zero - self.offset)

    def graph(self, output, **options):
        numbers = [i for i, tensor in enumerate(self.writer.tensors) if tensor["name"] in self.inputs]
        return imported(self.writer, numbers, [output], **options)

    def check(self, output, expected, *, scale=OUT_SCALE, zero=OUT_ZERO, low=-math.inf, high=math.inf, off=0):
        """Compare with real values, clipped as a fused activation would; `off` steps are allowed anywhere."""
        graph = self.graph(output)
        (name,) = graph.outputs
        result = reference.run(graph, {k: self.inputs[k] for k in graph.inputs})[name]
        steps = np.clip(expected, low, high) / np.float32(scale)
        wanted = np.clip(np.rint(steps) + zero + self.offset, *RANGES[self.dtype])
        assert result.shape == expected.shape
        assert result.dtype == self.dtype
        assert len(np.unique(result)) > 4 or result.size < 9  # a constant would prove nothing
        difference = np.abs(result.astype(int) - wanted)
        # Ties and float32 may round the other way, once in a while.
        assert difference.max() <= max(off, 1)
        assert off or np.mean(difference > 0) < 0.01
        return graph


def convolved(x, weight, strides, same, dilations=(1, 1), depthwise=False):
    """NHWC convolution by the book; weight [O,kh,kw,I], or [1,kh,kw,C*m] where `depthwise`."""
    kernel = weight.shape[1:3]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    if same:
        counts = [math.ceil(x.shape[1 + i] / strides[i]) for i in (0, 1)]
        totals = [max((counts[i] - 1) * strides[i] + reach[i] - x.shape[1 + i], 0) for i in (0, 1)]
        x = np.pad(x, ((0, 0), *((total // 2, total - total // 2) for total in totals), (0, 0)))
    else:
        counts = [(x.shape[1 + i] - reach[i]) // strides[i] + 1 for i in (0, 1)]
    result = []
    for row in range(counts[0]):
        for column in range(counts[1]):
            top, left = row * strides[0], column * strides[1]
            window = x[:, top : top + reach[0] : dilations[0], left : left + reach[1] : dilations[1]]
            if depthwise:
                many = weight.shape[3] // x.shape[3]
                taps = np.repeat(window, many, axis=3) * weight
                result.append(taps.sum(axis=(1, 2)))
            else:
                result.append(np.einsum("nhwi,ohwi->no", window, weight))
    return np.stack(result, axis=1).reshape(x.shape[0], *counts, -1)


def weights(net, shape, axis, per_channel=True, bias=True):
    """Weight and bias tensors of the file, and their real values."""
    channels = shape[axis]
    data = net.random.integers(-127, 128, shape, "int8")
    scale = net.random.uniform(0.002, 0.006, channels if per_channel else 1).astype(np.float32)
    zero = 0
    if net.dtype == "uint8":
        data, zero = (data.view(np.uint8) ^ 0x80), 131
    along = scale.reshape([-1 if i == axis else 1 for i in range(len(shape))]) if per_channel else scale
    real = along * (data.astype(np.float64) - zero)
    numbers = [net.writer.constant("w", data, scale=scale, zero_point=zero, axis=axis)]
    offset = np.zeros(channels)
    if bias:
        values = net.random.integers(-3000, 3000, channels).astype(np.int32)
        numbers.append(net.writer.constant("b", values, scale=scale * np.float32(SCALE)))
        offset = values * (scale.astype(np.float64) * SCALE)
    return numbers, real, offset


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize(
    ("kernel", "strides", "dilations"),
    [((3, 3), (2, 2), (1, 1)), ((1, 1), (1, 1), (1, 1)), ((2, 5), (1, 3), (1, 1)), ((3, 2), (1, 1), (2, 2))],
)
def test_conv(dtype, same, kernel, strides, dilations):
    net = Net(dtype=dtype)
    numbers, real, offset = weights(net, (6, *kernel, 4), 0, per_channel=dtype == "int8")
    expected = convolved(net.real(), real, strides, same, dilations) + offset
    y = net.output(expected.shape)
    conv_options = options(same, strides, dilations)
    net.writer.operator("CONV_2D", [net.x, *numbers], y, "Conv2DOptions", **conv_options)
    net.check(y, expected)


def options(same, strides, dilations=(1, 1), activation=0):
    return {
        "Padding": 0 if same else 1,
        "StrideH": strides[0],
        "StrideW": strides[1],
        "DilationHFactor": dilations[0],
        "DilationWFactor": dilations[1],
        "FusedActivationFunction": activation,
    }


@pytest.mark.parametrize("multiplier", [1, 2])
@pytest.mark.parametrize("same", [True, False])
def test_depthwise_conv(same, multiplier):
    net = Net()
    numbers, real, offset = weights(net, (1, 3, 3, 4 * multiplier), 3)
    expected = convolved(net.real(), real, (2, 1), same, depthwise=True) + offset
    y = net.output(expected.shape)
    fields = options(same, (2, 1)) | {"DepthMultiplier": multiplier}
    net.writer.operator("DEPTHWISE_CONV_2D", [net.x, *numbers], y, "DepthwiseConv2DOptions", **fields)
    net.check(y, expected)


def test_grouped_conv():
    net = Net()
    numbers, real, offset = weights(net, (6, 3, 3, 2), 0)
    x = net.real()
    halves = [convolved(x[..., 2 * i : 2 * i + 2], real[3 * i : 3 * i + 3], (1, 1), True) for i in (0, 1)]
    expected = np.concatenate(halves, axis=3) + offset
    y = net.output(expected.shape)
    net.writer.operator("CONV_2D", [net.x, *numbers], y, "Conv2DOptions", **options(True, (1, 1)))
    net.check(y, expected)


@pytest.mark.parametrize(
    ("activation", "low", "high"), [(1, 0, math.inf), (2, -1, 1), (3, 0, 6)], ids=["RELU", "N1_TO_1", "RELU6"]
)
def test_fused_activation(activation, low, high):
    net = Net()
    numbers, real, offset = weights(net, (6, 1, 1, 4), 0)
    expected = convolved(net.real(), real, (1, 1), True) + offset
    y = net.output(expected.shape)
    net.writer.operator(
        "CONV_2D", [net.x, *numbers], y, "Conv2DOptions", **options(True, (1, 1), activation=activation)
    )
    assert expected.min() < low
    net.check(y, expected, low=low, high=high)


def test_a_pad_becomes_the_convolutions_own():
    net = Net()
    numbers, real, _ = weights(net, (6, 3, 3, 4), 0, bias=False)
    amounts = np.array([[0, 0], [1, 2], [0, 3], [0, 0]], np.int32)
    padded = net.output((1, 9, 10, 4), SCALE, ZERO, "padded")
    net.writer.operator("PAD", [net.x, net.writer.constant("amounts", amounts)], padded, "PadOptions")
    expected = convolved(np.pad(net.real(), amounts), real, (2, 2), False)
    y = net.output(expected.shape)
    net.writer.operator("CONV_2D", [padded, *numbers, -1], y, "Conv2DOptions", **options(False, (2, 2)))
    graph = net.check(y, expected)
    (conv,) = (node for node in graph.nodes if isinstance(node, Conv))
    assert conv.pads == (1, 0, 2, 3)
    assert not any(isinstance(node, Pad) for node in graph.nodes)


def test_a_pad_of_its_own():
    net = Net()
    amounts = np.array([[0, 0], [1, 2], [0, 3], [0, 0]], np.int32)
    y = net.output((1, 9, 10, 4), SCALE, ZERO)
    net.writer.operator("PAD", [net.x, net.writer.constant("amounts", amounts)], y, "PadOptions")
    net.check(y, np.pad(net.real(), amounts), scale=SCALE, zero=ZERO)


@pytest.mark.parametrize(("shape", "rows"), [((3, 12), 3), ((1, 2, 2, 3), 1), ((2, 6), 1)])
def test_fully_connected(shape, rows):
    net = Net(shape)
    numbers, real, offset = weights(net, (7, 12), 0)
    expected = net.real().reshape(rows, 12) @ real.T + offset
    y = net.output(expected.shape)
    net.writer.operator("FULLY_CONNECTED", [net.x, *numbers], y, "FullyConnectedOptions")
    net.check(y, expected)


def test_fully_connected_keeps_dimensions():
    net = Net((1, 5, 4))
    numbers, real, offset = weights(net, (7, 4), 0)
    expected = net.real() @ real.T + offset
    y = net.output(expected.shape)
    net.writer.operator("FULLY_CONNECTED", [net.x, *numbers], y, "FullyConnectedOptions", KeepNumDims=True)
    net.check(y, expected)


@pytest.mark.parametrize("batch", [1, 2])
def test_flattening_moves_the_weights_instead(batch):
    net = Net((batch, 4, 5, 3))
    numbers, real, offset = weights(net, (6, 1, 1, 3), 0)
    between = net.output((batch, 4, 5, 6), name="between")
    net.writer.operator("CONV_2D", [net.x, *numbers], between, "Conv2DOptions", **options(True, (1, 1)))
    flat = net.output((batch, 120), name="flat")
    shape = net.writer.constant("shape", np.array([-1, 120], np.int32))
    net.writer.operator("RESHAPE", [between, shape], flat)
    data = net.random.integers(-127, 128, (9, 120), "int8")
    y = net.output((batch, 9), 0.5)
    net.writer.operator(
        "FULLY_CONNECTED", [flat, net.writer.constant("dense", data, scale=0.004)], y, "FullyConnectedOptions"
    )
    steps = (convolved(net.real(), real, (1, 1), True) + offset) / OUT_SCALE
    hidden = OUT_SCALE * (np.clip(np.rint(steps) + OUT_ZERO, -128, 127) - OUT_ZERO)
    expected = hidden.reshape(batch, 120) @ (0.004 * data.astype(np.float64)).T
    graph = net.check(y, expected, scale=0.5, off=1)
    assert sum(isinstance(node, Transpose) for node in graph.nodes) == 1  # of the input alone


@pytest.mark.parametrize(("batch", "depth"), [(1, 6), (2, 240)])
def test_rows_that_are_not_one_picture_each(batch, depth):
    net = Net((batch, 4, 5, 3))
    numbers, real, offset = weights(net, (6, 1, 1, 3), 0)
    between = net.output((batch, 4, 5, 6), name="between")
    net.writer.operator("CONV_2D", [net.x, *numbers], between, "Conv2DOptions", **options(True, (1, 1)))
    data = net.random.integers(-127, 128, (9, depth), "int8")
    y = net.output((batch * 120 // depth, 9), 0.1)
    dense = net.writer.constant("dense", data, scale=0.004)
    net.writer.operator("FULLY_CONNECTED", [between, dense], y, "FullyConnectedOptions")
    steps = (convolved(net.real(), real, (1, 1), True) + offset) / OUT_SCALE
    hidden = OUT_SCALE * (np.clip(np.rint(steps) + OUT_ZERO, -128, 127) - OUT_ZERO)
    expected = hidden.reshape(-1, depth) @ (0.004 * data.astype(np.float64)).T
    net.check(y, expected, scale=0.1, off=1)


def test_add():
    net = Net()
    other = net.input("other", (1, 6, 7, 4), 0.03, -9)
    y = net.output((1, 6, 7, 4))
    net.writer.operator("ADD", [net.x, other], y, "AddOptions", FusedActivationFunction=1)
    net.check(y, net.real() + net.real("other", 0.03, -9), low=0)


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("shape", [(1, 6, 7, 4), (1, 1, 1, 4), (1, 4)])
def test_mul_widens_either_input(shape, swapped):
    net = Net()
    other = net.input("other", shape, 0.01, -9)
    y = net.output((1, 6, 7, 4))
    inputs = [other, net.x] if swapped else [net.x, other]
    net.writer.operator("MUL", inputs, y, "MulOptions")
    net.check(y, net.real() * net.real("other", 0.01, -9))


@pytest.mark.parametrize("op", ["ADD", "MUL"])
def test_a_constant_number_makes_a_table(op):
    net = Net()
    y = net.output((1, 6, 7, 4))
    number = net.writer.constant("three", np.array([100], np.int8), scale=0.03)
    net.writer.operator(op, [number, net.x], y, f"{op.capitalize()}Options", FusedActivationFunction=3)
    expected = net.real() + 3 if op == "ADD" else net.real() * 3
    graph = net.check(y, expected, low=0, high=6)
    assert sum(isinstance(node, Lookup) for node in graph.nodes) == 1


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize(
    ("op", "function"),
    [
        ("LOGISTIC", lambda x: 1 / (1 + np.exp(-x))),
        ("TANH", np.tanh),
        ("HARD_SWISH", lambda x: x * np.minimum(np.maximum(x + 3, 0), 6) / 6),
        ("LEAKY_RELU", lambda x: np.where(x > 0, x, x / 4)),
        ("RELU", lambda x: np.maximum(x, 0)),
        ("RELU6", lambda x: np.clip(x, 0, 6)),
        ("RELU_N1_TO_1", lambda x: np.clip(x, -1, 1)),
        ("QUANTIZE", lambda x: x),
    ],
)
def test_functions(op, function, dtype):
    net = Net(dtype=dtype)
    y = net.output((1, 6, 7, 4), 0.0213)
    fields = {"table": "LeakyReluOptions", "Alpha": 0.25} if op == "LEAKY_RELU" else {}
    net.writer.operator(op, [net.x], y, **fields)
    net.check(y, function(net.real()), scale=0.0213)


def test_ties_in_a_table_go_away_from_zero():
    writer = Writer()
    x = writer.tensor("x", (1, 16, 16, 1), scale=1.0)
    half = writer.constant("half", np.array([1], np.int8), scale=0.5)
    y = writer.operator("MUL", [x, half], writer.tensor("y", (1, 16, 16, 1), scale=1.0), "MulOptions")
    given = np.arange(-128, 128, dtype=np.int8).reshape(1, 16, 16, 1)
    result = reference.run(imported(writer, [x], [y]), {"x": given})["y"]
    real = given / 2
    np.testing.assert_array_equal(result, np.sign(real) * np.floor(np.abs(real) + 0.5))


def test_a_tensor_may_have_the_name_of_a_table():
    net = Net()
    y = net.output((1, 6, 7, 4), 0.01, name="TANH_0_table")
    net.writer.operator("TANH", [net.x], y)
    net.check(y, np.tanh(net.real()), scale=0.01)


def test_a_table_of_a_table_is_one():
    net = Net()
    middle = net.output((1, 6, 7, 4), 0.02, 0, "middle")
    net.writer.operator("TANH", [net.x], middle)
    y = net.output((1, 6, 7, 4), 0.01)
    net.writer.operator("LOGISTIC", [middle], y)
    hidden = np.clip(np.rint(np.tanh(net.real()) / 0.02), -128, 127) * 0.02
    graph = net.check(y, 1 / (1 + np.exp(-hidden)), scale=0.01)
    assert [type(node) for node in graph.nodes] == [Lookup]


def pool_options(same, kernel, strides, activation=0):
    fields = options(same, strides, activation=activation) | {
        "FilterHeight": kernel[0],
        "FilterWidth": kernel[1],
    }
    return {key: value for key, value in fields.items() if "Dilation" not in key}


def pooled(x, function, same, kernel, strides, fill):
    """NHWC pooling; padding is `fill`, which the functions ignore."""
    counts = [
        math.ceil(x.shape[1 + i] / strides[i]) if same else (x.shape[1 + i] - kernel[i]) // strides[i] + 1
        for i in (0, 1)
    ]
    totals = [max((counts[i] - 1) * strides[i] + kernel[i] - x.shape[1 + i], 0) * same for i in (0, 1)]
    x = np.pad(x, ((0, 0), *((t // 2, t - t // 2) for t in totals), (0, 0)), constant_values=fill)
    rows = [
        function(
            x[:, r * strides[0] : r * strides[0] + kernel[0], c * strides[1] : c * strides[1] + kernel[1]]
        )
        for r in range(counts[0])
        for c in range(counts[1])
    ]
    return np.stack(rows, axis=1).reshape(x.shape[0], *counts, -1)


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize(
    ("op", "function"),
    [("AVERAGE_POOL_2D", np.nanmean), ("MAX_POOL_2D", np.nanmax)],
)
def test_pools(op, function, same):
    net = Net()
    expected = pooled(net.real(), lambda w: function(w, axis=(1, 2)), same, (3, 2), (2, 3), np.nan)
    y = net.output(expected.shape, SCALE, ZERO)
    fields = pool_options(same, (3, 2), (2, 3), activation=1)
    net.writer.operator(op, [net.x], y, "Pool2DOptions", **fields)
    net.check(y, expected, scale=SCALE, zero=ZERO, low=0, off=int(op.startswith("AVERAGE")))


def test_a_pool_of_everything_is_global():
    net = Net()
    y = net.output((1, 1, 1, 4), SCALE, ZERO)
    net.writer.operator("AVERAGE_POOL_2D", [net.x], y, "Pool2DOptions", **pool_options(False, (6, 7), (1, 1)))
    graph = net.check(y, net.real().mean(axis=(1, 2), keepdims=True), scale=SCALE, zero=ZERO, off=1)
    assert any(isinstance(node, GlobalAveragePool) for node in graph.nodes)


@pytest.mark.parametrize("zero", [-128, -100])
def test_zeros_around_a_max_pool(zero):
    """Behind a RELU they are its own padding; elsewhere they can win."""
    net = Net()
    rectified = net.output((1, 6, 7, 4), SCALE, zero, "rectified")
    net.writer.operator("RELU" if zero == -128 else "QUANTIZE", [net.x], rectified)
    amounts = np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32)
    padded = net.output((1, 8, 9, 4), SCALE, zero, "padded")
    net.writer.operator("PAD", [rectified, net.writer.constant("amounts", amounts)], padded, "PadOptions")
    y = net.output((1, 3, 4, 4), SCALE, zero)
    net.writer.operator("MAX_POOL_2D", [padded], y, "Pool2DOptions", **pool_options(False, (3, 3), (2, 2)))
    hidden = np.maximum(net.real(), SCALE * (-128 - zero))
    hidden = np.pad(np.minimum(hidden, SCALE * (127 - zero)), amounts)
    expected = pooled(hidden, lambda w: w.max(axis=(1, 2)), False, (3, 3), (2, 2), 0)
    graph = net.check(y, expected, scale=SCALE, zero=zero)
    (pool,) = (node for node in graph.nodes if isinstance(node, MaxPool))
    assert pool.pads == ((1, 1, 1, 1) if zero == -128 else (0, 0, 0, 0))


@pytest.mark.parametrize("axes", [[1, 2], [2, 1], [-2, -3]])
@pytest.mark.parametrize("keep", [True, False])
def test_mean(axes, keep):
    net = Net((1, 6, 7, 12))
    expected = net.real().mean(axis=(1, 2), keepdims=keep)
    y = net.output(expected.shape, 0.01)
    axes = net.writer.constant("axes", np.array(axes, np.int32))
    net.writer.operator("MEAN", [net.x, axes], y, "ReducerOptions", KeepDims=keep)
    net.check(y, expected, scale=0.01)


@pytest.mark.parametrize("axis", [0, 1, 3, -1, -2])
def test_concatenation_brings_inputs_to_one_scale(axis):
    net = Net()
    other = net.input("other", (1, 6, 7, 4), 0.03, -9)
    expected = np.concatenate([net.real(), net.real("other", 0.03, -9)], axis=axis)
    y = net.output(expected.shape, SCALE, ZERO)
    net.writer.operator("CONCATENATION", [net.x, other], y, "ConcatenationOptions", Axis=axis)
    net.check(y, expected, scale=SCALE, zero=ZERO)


@pytest.mark.parametrize(
    ("align", "half", "rows"),
    [
        (False, False, [0, 0, 0, 1, 1, 2, 2, 3, 3, 3, 4, 4, 5, 5]),
        (True, False, [0, 0, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 5, 5]),
        (False, True, [0, 0, 1, 1, 1, 2, 2, 3, 3, 4, 4, 4, 5, 5]),
    ],
)
def test_resize_nearest(align, half, rows):
    net = Net()
    expected = net.real()[:, rows]
    y = net.output(expected.shape, SCALE, ZERO)
    size = net.writer.constant("size", np.array([14, 7], np.int32))
    fields = {"AlignCorners": align, "HalfPixelCenters": half}
    table = "ResizeNearestNeighborOptions"
    net.writer.operator("RESIZE_NEAREST_NEIGHBOR", [net.x, size], y, table, **fields)
    net.check(y, expected, scale=SCALE, zero=ZERO)


def test_transposes_there_and_back_make_no_node():
    net = Net((1, 3, 6, 7))  # a model from PyTorch: its input is NCHW
    numbers, real, offset = weights(net, (5, 3, 3, 3), 0)
    x = net.output((1, 6, 7, 3), SCALE, ZERO, "x_nhwc")
    perm = net.writer.constant("there", np.array([0, 2, 3, 1], np.int32))
    net.writer.operator("TRANSPOSE", [net.x, perm], x, "TransposeOptions")
    middle = net.output((1, 6, 7, 5), name="middle")
    net.writer.operator("CONV_2D", [x, *numbers], middle, "Conv2DOptions", **options(True, (1, 1)))
    y = net.output((1, 5, 6, 7))
    perm = net.writer.constant("back", np.array([0, 3, 1, 2], np.int32))
    net.writer.operator("TRANSPOSE", [middle, perm], y, "TransposeOptions")
    expected = convolved(net.real().transpose(0, 2, 3, 1), real, (1, 1), True) + offset
    graph = net.check(y, expected.transpose(0, 3, 1, 2))
    assert [type(node) for node in graph.nodes] == [Conv, Reshape]  # the last gives the output its name


def test_reshape_and_squeeze_keep_tflites_order():
    net = Net((1, 4, 4, 6))
    numbers, real, _ = weights(net, (8, 1, 1, 6), 0, bias=False)
    middle = net.output((1, 4, 4, 8), name="middle")
    net.writer.operator("CONV_2D", [net.x, *numbers], middle, "Conv2DOptions", **options(True, (1, 1)))
    shaped = net.output((1, 32, 1, 4), name="shaped")
    net.writer.operator("RESHAPE", [middle], shaped, "ReshapeOptions", NewShape=[1, -1, 1, 4])
    y = net.output((32, 4))
    net.writer.operator("SQUEEZE", [shaped], y, "SqueezeOptions")
    net.check(y, convolved(net.real(), real, (1, 1), True).reshape(32, 4))


@pytest.mark.parametrize("float_tail", [False, True])
def test_softmax_and_dequantize(float_tail):
    net = Net((1, 10))
    rectified = net.output((1, 10), SCALE, ZERO, "rectified")
    net.writer.operator("RELU", [net.x], rectified)
    y = net.writer.tensor("y", (1, 10), "int8", scale=1 / 256, zero_point=-128)
    net.writer.operator("SOFTMAX", [rectified], y, "SoftmaxOptions", Beta=1.0)
    real = net.writer.tensor("real", (1, 10), "float32")
    net.writer.operator("DEQUANTIZE", [y], real)
    graph = net.graph(real if float_tail else y)
    result = reference.run(graph, {"x": net.inputs["x"]})[graph.outputs[0]]
    exponential = np.exp(np.maximum(net.real(), 0))
    expected = exponential / exponential.sum()
    if float_tail:
        assert result.dtype == np.float32
        np.testing.assert_allclose(result, expected, atol=1 / 256)
    else:
        assert np.abs(result - (np.rint(expected * 256) - 128)).max() <= 1


def test_float_boundary():
    writer = Writer()
    x = writer.tensor("x", (1, 5, 5, 3), "float32")
    q = writer.tensor("q", (1, 5, 5, 3), "int8", scale=SCALE, zero_point=ZERO)
    writer.operator("QUANTIZE", [x], q)
    y = writer.tensor("y", (1, 5, 5, 3), "int8", scale=SCALE, zero_point=ZERO)
    writer.operator("RELU", [q], y)
    graph = imported(writer, [x], [y])
    real = np.random.default_rng(0).normal(size=(1, 5, 5, 3)).astype(np.float32)
    expected = np.maximum(np.rint(real / np.float32(SCALE)) + ZERO, ZERO)
    np.testing.assert_array_equal(reference.run(graph, {"x": real})["y"], expected)
    assert graph.tensor("x").shape == (1, 5, 5, 3)
    assert pixels(graph) is None  # nothing says what the floats mean


def flattened_by_keras():
    """SHAPE, STRIDED_SLICE and PACK, as Flatten comes out with the batch left open."""
    net = Net((1, 4, 4, 3))
    net.writer.tensors[net.x]["signature"] = (-1, 4, 4, 3)
    w = net.writer
    shape = w.tensor("shape", (4,), "int32")
    w.operator("SHAPE", [net.x], shape, "ShapeOptions", OutType=2)
    ends = [w.constant(name, np.array([i], np.int32)) for i, name in enumerate(("zero", "one"))]
    batch = w.tensor("batch", (), "int32")
    inputs = [shape, ends[0], ends[1], ends[1]]
    w.operator("STRIDED_SLICE", inputs, batch, "StridedSliceOptions", ShrinkAxisMask=1)
    packed = w.tensor("packed", (2,), "int32")
    rest = w.constant("rest", np.array(-1, np.int32))
    w.operator("PACK", [batch, rest], packed, "PackOptions", ValuesCount=2)
    y = w.tensor("y", (1, 48), "int8", scale=SCALE, zero_point=ZERO, signature=(-1, 48))
    w.operator("RESHAPE", [net.x, packed], y, "ReshapeOptions")
    return net, y


def test_shapes_that_keras_computes():
    net, y = flattened_by_keras()
    net.check(y, net.real().reshape(1, 48), scale=SCALE, zero=ZERO)


def test_an_open_batch_is_one_unless_it_is_given():
    net, y = flattened_by_keras()
    assert net.graph(y).tensor("y").shape == (1, 48)
    graph = net.graph(y, input_shapes={"x": (3, 4, 4, 3)})
    assert graph.tensor("y").shape == (3, 48)
    for shapes in ({"x": (1, 5, 4, 3)}, {"x": (1, 4, 4)}, {"other": (1, 4, 4, 3)}):
        with pytest.raises(UsageError):
            net.graph(y, input_shapes=shapes)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_pixel_is_the_integer(dtype, channels):
    from PIL import Image

    net = Net((1, 8, 6, channels), dtype=dtype)
    y = net.output((1, 8, 6, channels))
    net.writer.operator("RELU", [net.x], y)
    graph = net.graph(y)
    recipe = pixels(graph)
    assert recipe.shape == graph.tensor("x").shape
    picture = net.random.integers(0, 256, (32, 24, 3)[: 2 + channels // 2], np.uint8)
    image = Image.fromarray(picture).resize((6, 8))
    real = recipe.apply(image)
    quantized = np.rint(real / np.float32(SCALE)) + ZERO + net.offset
    lowest = RANGES[dtype][0]
    assert (quantized == np.rint(quantized)).all()
    assert quantized.min() >= lowest
    assert quantized.max() <= lowest + 255
    if channels == 1:  # no crop: the very pixels
        np.testing.assert_array_equal(quantized[0, :, :, 0], np.asarray(image).astype(int) + lowest)


def test_files_are_recognised_by_content(tmp_path):
    net = Net()
    y = net.output((1, 6, 7, 4))
    net.writer.operator("RELU", [net.x], y)
    path = tmp_path / "misnamed.onnx"
    path.write_bytes(net.writer.content([net.x], [y]))
    assert is_tflite(path)
    assert load_model(path).name == "misnamed"
    assert not is_tflite(tmp_path / "missing.onnx")
    assert is_tflite(tmp_path / "missing.tflite")  # so that the error speaks of TFLite
