"""The reference against onnxruntime, operator by operator, over random shapes and parameters.

Convolutions, matrices, max pools and quantisation agree exactly in `f32`. QLinearAdd and the average pools
order their float operations differently: there at most one unit, on fewer than one element in a thousand.
"""

from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sdk import reference
from sdk.passes import optimize
from sdk.verification import verify
from tests.onnx_models import CONTRIB, RANGES, SAFE_WEIGHTS, OnnxBuilder, imported, integers, oracle

PROPERTY = settings(
    derandomize=True, max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), database=None
)
ACTIVATIONS = st.sampled_from(["uint8", "int8"])
SEEDS = st.integers(0, 2**32 - 1)


def compare(model, inputs, dtype):
    """Reference and oracle on all outputs, after the passes; the differing elements and how far."""
    graph = optimize(imported(model), check=True)
    verify(graph)
    values, expected = reference.run(graph, inputs), oracle(model, inputs, signed=dtype == "int8")
    different, elements, largest = 0, 0, 0
    for name, array in expected.items():
        assert values[name].dtype == array.dtype
        assert values[name].shape == array.shape
        difference = np.abs(values[name].astype(np.float64) - array.astype(np.float64))
        different += int((difference != 0).sum())
        elements += array.size
        largest = max(largest, float(difference.max()))
    return different, elements, largest


def quantization(random, dtype, low=0.005, high=0.05):
    return float(np.float32(random.uniform(low, high))), integers(random, dtype)


def weights(random, activations, shape, *, unsigned):
    """Of any range for uint8 activations; for int8 ones what onnxruntime has exact kernels for."""
    if activations == "int8":
        return random.integers(*SAFE_WEIGHTS, shape, np.int8, endpoint=True)
    return integers(random, "uint8" if unsigned else "int8", shape)


def weight_scales(random, channels, per_channel, dtype):
    """Scale and zero-point; per channel they are symmetric, as onnxruntime requires."""
    scale = random.uniform(0.002, 0.02, channels if per_channel else ()).astype(np.float32)
    zero_point = integers(random, dtype) if dtype == "uint8" else np.int8(0)
    return scale, np.full(scale.shape, zero_point)


def output_scale(random, terms):
    """A scale at which sums of that many products span the range, with some saturation."""
    return float(np.float32(0.02 * 0.01 * np.sqrt(terms) * 75 * 75 / 64 * random.uniform(0.5, 2)))


@st.composite
def convolutions(draw):
    group = draw(st.sampled_from([1, 1, 2, 3]))
    depthwise = draw(st.booleans())
    per_group = 1 if depthwise else draw(st.integers(1, 5))
    outputs = group * draw(st.integers(1, 4))
    kernel = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    dilations = draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
    pads = draw(st.lists(st.integers(0, 2), min_size=4, max_size=4))
    reach = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
    size = [max(draw(st.integers(1, 11)), r - pads[i] - pads[i + 2]) for i, r in enumerate(reach)]
    attributes = {
        "kernel_shape": kernel,
        "dilations": dilations,
        "strides": draw(st.tuples(st.integers(1, 3), st.integers(1, 3))),
        "group": group,
    }
    auto_pad = draw(st.sampled_from(["NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    if auto_pad == "NOTSET":
        attributes["pads"] = pads
    else:
        attributes["auto_pad"] = auto_pad
        attributes["dilations"] = (1, 1)  # onnxruntime takes no others with SAME
        size = [max(s, r) for s, r in zip(size, reach, strict=True)]
    return [draw(st.integers(1, 2)), group * per_group, *size], outputs, attributes


@pytest.mark.slow
@PROPERTY
@given(convolutions(), ACTIVATIONS, st.booleans(), st.booleans(), st.booleans(), st.booleans(), SEEDS)
def test_convolution(shapes, dtype, unsigned, per_channel, biased, qdq, seed):
    shape, outputs, attributes = shapes
    random = np.random.default_rng(seed)
    builder = OnnxBuilder()
    kernel = (outputs, shape[1] // attributes["group"], *attributes["kernel_shape"])
    weight = weights(random, dtype, kernel, unsigned=unsigned)
    ws, wz = weight_scales(random, outputs, per_channel, str(weight.dtype))
    xs, xz = quantization(random, dtype)
    ys, yz = output_scale(random, weight[0].size), integers(random, dtype)
    bias = random.integers(-5000, 5000, outputs, np.int32)
    x = builder.input("x", shape, dtype)
    if qdq:
        real = builder.dequantize(x, xs, xz)
        inputs = [real, builder.weight("w", weight, ws, wz)]
        bs = np.float32(xs) * ws
        inputs += [builder.weight("b", bias, bs, np.zeros(bs.shape, np.int32))] if biased else []
        builder.quantize(builder.node("Conv", inputs, "acc", **attributes), "y", ys, yz)
    else:
        inputs = [x, *builder.scale("x", xs, xz), builder.constant("w", weight), *builder.scale("w", ws, wz)]
        inputs += [*builder.scale("y", ys, yz), *([builder.constant("b", bias)] if biased else [])]
        builder.node("QLinearConv", inputs, "y", **attributes)
    different, _, _ = compare(builder.model({"y": dtype}), {"x": integers(random, dtype, shape)}, dtype)
    assert different == 0


@pytest.mark.slow
@PROPERTY
@given(st.integers(1, 4), st.integers(1, 70), st.integers(1, 20), ACTIVATIONS, st.booleans(), SEEDS)
def test_matrices(rows, depth, columns, dtype, per_channel, seed):
    random = np.random.default_rng(seed)
    transposed, biased = bool(seed & 1), bool(seed & 2)
    weight = weights(random, dtype, (columns, depth), unsigned=bool(seed & 4))
    ws, wz = weight_scales(random, columns, per_channel, str(weight.dtype))
    xs, xz = quantization(random, dtype)
    ys, yz = output_scale(random, depth), integers(random, dtype)
    data = {"x": integers(random, dtype, (rows, depth))}
    bias = random.integers(-5000, 5000, columns, np.int32)

    contrib = OnnxBuilder()
    x = contrib.input("x", [rows, depth], dtype)
    w = contrib.constant("w", weight if transposed else weight.T.copy())
    inputs = [x, *contrib.scale("x", xs, xz), w, *contrib.scale("w", ws, wz)]
    inputs += [contrib.constant("b", bias) if biased else "", *contrib.scale("y", ys, yz)]
    contrib.node("QGemm", inputs, "y", domain=CONTRIB, transB=int(transposed))

    matmul = OnnxBuilder()
    x = matmul.input("x", [rows, depth], dtype)
    inputs = [
        x,
        *matmul.scale("x", xs, xz),
        matmul.constant("w", weight.T.copy()),
        *matmul.scale("w", ws, wz),
    ]
    matmul.node("QLinearMatMul", [*inputs, *matmul.scale("y", ys, yz)], "y")

    qdq = OnnxBuilder()
    real = qdq.dequantize(qdq.input("x", [rows, depth], dtype), xs, xz)
    w = qdq.weight("w", weight if transposed else weight.T.copy(), ws, wz, axis=int(not transposed))
    bs = np.float32(xs) * ws
    b = [qdq.weight("b", bias, bs, np.zeros(bs.shape, np.int32))] if biased else []
    qdq.quantize(qdq.node("Gemm", [real, w, *b], "acc", transB=int(transposed)), "y", ys, yz)

    for builder in (contrib, matmul, qdq):
        different, _, _ = compare(builder.model({"y": dtype}), data, dtype)
        assert different == 0, builder.nodes[-1].op_type


@st.composite
def pools(draw):
    kernel = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    pads = [draw(st.integers(0, kernel[i % 2] - 1)) for i in range(4)]
    size = [max(draw(st.integers(1, 12)), k) for k in kernel]
    strides = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    return [1, draw(st.integers(1, 4)), *size], {"kernel_shape": kernel, "strides": strides, "pads": pads}


@pytest.mark.slow
@PROPERTY
@given(pools(), ACTIVATIONS, st.booleans(), st.booleans(), SEEDS)
def test_max_pool(shapes, dtype, qdq, dilated, seed):
    shape, attributes = shapes
    random = np.random.default_rng(seed)
    if dilated:
        attributes |= {"dilations": (2, 2), "pads": [0] * 4}
        shape = [*shape[:2], *(2 * s for s in shape[2:])]
    builder = OnnxBuilder()
    x = builder.input("x", shape, dtype)
    scale, zero_point = quantization(random, dtype)
    if qdq:
        real = builder.dequantize(x, scale, zero_point)
        builder.quantize(builder.node("MaxPool", [real], "pooled", **attributes), "y", scale, zero_point)
        outputs = {"y": dtype}
    else:
        pooled = builder.node("MaxPool", [x], "pooled", **attributes)
        outputs = {builder.dequantize(pooled, scale, zero_point): "float32", "pooled": dtype}
    different, _, _ = compare(builder.model(outputs), {"x": integers(random, dtype, shape)}, dtype)
    assert different == 0


class Tally(Counter):
    """Differing elements over all examples of one property."""

    def add(self, result):
        different, elements, largest = result
        assert largest <= 1
        self.update(different=different, elements=elements)

    def check(self, limit):
        assert self["elements"] > 1000
        assert self["different"] < limit * self["elements"], dict(self)


@pytest.mark.slow
def test_average_pools():
    tally = Tally()

    @PROPERTY
    @given(pools(), ACTIVATIONS, st.sampled_from(["contrib", "qdq", "global", "global-qdq"]), SEEDS)
    def example(shapes, dtype, kind, seed):
        shape, attributes = shapes
        random = np.random.default_rng(seed)
        shape = [1, 8 * shape[1], *shape[2:]]
        attributes |= {"count_include_pad": seed & 1}
        xs, xz = quantization(random, dtype)
        ys, yz = float(np.float32(xs * random.uniform(0.3, 1.2))), integers(random, dtype)
        builder = OnnxBuilder()
        x = builder.input("x", shape, dtype)
        operator, attributes = ("GlobalAveragePool", {}) if "global" in kind else ("AveragePool", attributes)
        if "qdq" in kind:
            mean = builder.node(operator, [builder.dequantize(x, xs, xz)], "mean", **attributes)
            builder.quantize(mean, "y", ys, yz)
        else:
            inputs = [x, *builder.scale("x", xs, xz), *builder.scale("y", ys, yz)]
            builder.node(f"QLinear{operator}", inputs, "y", domain=CONTRIB, **attributes)
        tally.add(compare(builder.model({"y": dtype}), {"x": integers(random, dtype, shape)}, dtype))

    example()
    tally.check(1e-3)


def test_average_pools_of_equal_scales_differ_on_exact_ties_only():
    random = np.random.default_rng(8)
    builder = OnnxBuilder()
    x = builder.input("x", [1, 8, 40, 40], "uint8")
    inputs = [x, *builder.scale("x", 0.0173, np.uint8(99)), *builder.scale("y", 0.0173, np.uint8(31))]
    builder.node("QLinearAveragePool", inputs, "y", domain=CONTRIB, kernel_shape=[2, 2])
    model = builder.model({"y": "uint8"})
    data = {"x": integers(random, "uint8", (1, 8, 40, 40))}
    difference = reference.run(imported(model), data)["y"].astype(int) - oracle(model, data)["y"]
    windows = np.lib.stride_tricks.sliding_window_view(data["x"].astype(int), (2, 2), (2, 3))
    ties = windows.sum(axis=(4, 5)) % 4 == 2
    assert np.abs(difference).max() <= 1
    assert not difference[~ties].any()


@pytest.mark.slow
def test_add():
    tally = Tally()

    @PROPERTY
    @given(st.integers(1, 4000), ACTIVATIONS, st.booleans(), SEEDS)
    def example(length, dtype, qdq, seed):
        random = np.random.default_rng(seed)
        builder = OnnxBuilder()
        (sa, za), (sb, zb) = quantization(random, dtype), quantization(random, dtype)
        sy, zy = float(np.float32((sa + sb) * random.uniform(0.3, 1))), integers(random, dtype)
        a, b = builder.input("a", [1, length], dtype), builder.input("b", [1, length], dtype)
        if qdq:
            real = [builder.dequantize(a, sa, za), builder.dequantize(b, sb, zb)]
            builder.quantize(builder.node("Add", real, "sum"), "y", sy, zy)
        else:
            inputs = [
                a,
                *builder.scale("a", sa, za),
                b,
                *builder.scale("b", sb, zb),
                *builder.scale("y", sy, zy),
            ]
            builder.node("QLinearAdd", inputs, "y", domain=CONTRIB)
        data = {name: integers(random, dtype, (1, length)) for name in "ab"}
        tally.add(compare(builder.model({"y": dtype}), data, dtype))

    example()
    tally.check(1e-3)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_quantize_dequantize_softmax(dtype):
    random = np.random.default_rng(5)
    builder = OnnxBuilder()
    x = builder.input("x", [64, 100])
    real = builder.qdq(x, 0.031, integers(random, dtype))
    builder.node("Identity", [real], "copy")
    builder.node(
        "MaxPool",
        [builder.node("Unsqueeze", [real, builder.constant("axes", [0, 1])], "four")],
        "five",
        kernel_shape=[1, 1],
    )
    back = builder.node("Squeeze", ["five", "axes"], "six")
    builder.node("Softmax", [back], "y")
    model = builder.model(["copy", "y"])
    data = {"x": random.normal(0, 2, (64, 100)).astype(np.float32)}
    data["x"][0, :4] = [np.inf, -np.inf, 1e30, 0.031 * 2.5]
    values, expected = reference.run(imported(model), data), oracle(model, data, signed=dtype == "int8")
    assert np.array_equal(values["copy"], expected["copy"])
    assert np.allclose(values["y"], expected["y"], rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("clip", [(0.0, None), (0.0, 6.0), (-1.0, 1.0), (0.3, None)])
def test_relu_and_clip_fused_and_on_their_own(dtype, clip):
    """Fused they are exact; between DequantizeLinear and QuantizeLinear within one unit on few elements."""
    random = np.random.default_rng(7)
    low, high = RANGES[dtype]
    builder = OnnxBuilder()
    x = builder.input("x", [1, 8, 16, 16], dtype)
    real = builder.dequantize(x, 0.02, integers(random, dtype))
    weight = weights(random, dtype, (8, 8, 1, 1), unsigned=False)
    w = builder.weight("w", weight, 0.01, np.int8(0))
    bounds = [builder.constant(f"bound{i}", b, np.float32) for i, b in enumerate(clip) if b is not None]
    acc = builder.node("Conv", [real, w], "acc")
    builder.quantize(
        builder.node("Clip", [acc, *bounds], "clipped", name="clip"), "fused", 0.05, dtype_mid(low, high)
    )
    alone = builder.node("Clip", [builder.dequantize("fused", 0.05, dtype_mid(low, high)), *bounds], "again")
    builder.quantize(alone, "y", 0.0431, dtype_mid(low, high, 9))
    model = builder.model({"fused": dtype, "y": dtype})
    inputs = {"x": integers(random, dtype, (1, 8, 16, 16))}
    graph = imported(model)
    assert [node.op for node in graph.nodes] == ["Conv", "Requantize"]
    values, expected = reference.run(graph, inputs), oracle(model, inputs, signed=dtype == "int8")
    assert np.abs(values["fused"].astype(int) - expected["fused"]).max() <= 1
    assert (values["fused"] != expected["fused"]).mean() < 1e-3
    lone = reference.evaluate(graph, graph.nodes[1], {"fused": expected["fused"]}, "f32")
    assert np.abs(lone.astype(int) - expected["y"]).max() <= 1
    assert (lone != expected["y"]).mean() < 1e-3


def dtype_mid(low, high, offset=0):
    return np.asarray((low + high) // 2 + offset, "uint8" if low == 0 else "int8")
