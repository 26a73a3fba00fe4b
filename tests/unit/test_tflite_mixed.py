"""TFLite files neither float nor 8-bit throughout: weights of fewer bits, 16-bit activations, islands.

Expected values are numpy's, on what the stored integers stand for.
"""

import logging

import numpy as np
import pytest

from sdk import reference
from sdk.compiler import compile
from sdk.errors import InvalidModel, TowlineError
from sdk.graph import Dequantize, Lookup, Map, Quantize, Softmax, Take
from sdk.importers import load_model
from sdk.importers.tflite.file import parse_tflite
from sdk.importers.tflite.sparse import Dimension, densified
from sdk.inspection.model_file import of_tflite
from sdk.session import Session
from tests.amount import amount
from tests.tflite_writer import Writer
from tests.unit.test_tflite import convolved, options
from tests.unit.test_tflite_plain import ints, load
from tests.unit.test_tflite_refusals import flips, survive
from tests.unit.test_tflite_states import Lstm, loop, svdf, variable

RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(-2, 2, (1, 6, 7, 4)).astype(np.float32)
WEIGHT = RANDOM.uniform(-1, 1, (5, 3, 3, 4)).astype(np.float32)


def conv(writer, x, weight, shape, dtype="float32", bias=-1, **quantization):
    y = writer.tensor("y", shape, dtype, **quantization)
    return writer.operator("CONV_2D", [x, weight, bias], y, "Conv2DOptions", **options(True, (1, 1)))


def float_conv(make):
    """A convolution of floats whose weight `make` writes; what the reference makes of it."""
    writer = Writer()
    x = writer.tensor("x", X.shape, "float32")
    weight = make(writer)
    y = conv(writer, x, weight, (1, 6, 7, 5))
    content = writer.content([x], [y])
    return content, reference.run(load(content), {"x": X})["y"]


def expected(weight):
    return convolved(X.astype(float), weight, (1, 1), True)


# --- weights --------------------------------------------------------------------------------------------


def halves(writer, **sparse):
    data = WEIGHT.astype(np.float16)
    half = writer.constant("half", data, **sparse)
    return writer.operator("DEQUANTIZE", [half], writer.tensor("w", data.shape, "float32"))


def test_float16_weights_behind_dequantize():
    content, result = float_conv(halves)
    np.testing.assert_allclose(result, expected(WEIGHT.astype(np.float16).astype(float)), atol=1e-5)
    assert (
        of_tflite(parse_tflite(content, "x"), 0).precision == "float32 activations, weights stored as float16"
    )


@pytest.mark.parametrize("per_channel", [True, False])
def test_8_bit_weights_of_float_activations(per_channel, tmp_path, caplog):
    scale = np.linspace(0.004, 0.009, 5) if per_channel else np.float32(0.006)
    along = np.asarray(scale, np.float32).reshape(-1, 1, 1, 1)
    data = np.clip(np.rint(WEIGHT / along), -127, 127).astype(np.int8)
    content, result = float_conv(lambda w: w.constant("w", data, scale=scale, axis=0))
    np.testing.assert_allclose(result, expected(data * along.astype(float)), atol=1e-5)
    path = tmp_path / "net.tflite"
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING, "towline"):
        load_model(path)
    assert "dequantised" in caplog.text


def sparse_weight():
    """[4,6], one block of two columns in three stored: (order, blocks, levels), elements, and all of them."""
    data = np.zeros((4, 6), np.float32)
    segments, columns, stored = [0], [], []
    for row in range(4):
        for column in range(row % 3, 3, 2):
            data[row, 2 * column : 2 * column + 2] = RANDOM.uniform(1, 2, 2)
            columns.append(column)
            stored.append(data[row, 2 * column : 2 * column + 2])
        segments.append(len(columns))
    return ([0, 1, 2], [1], [4, (segments, columns), 2]), np.concatenate(stored), data


def sparse_network():
    sparsity, stored, data = sparse_weight()
    writer = Writer()
    x = writer.tensor("x", (3, 6), "float32")
    sparse = writer.tensor("sparse", data.shape, "float32", data=stored, sparsity=sparsity)
    dense = writer.operator("DENSIFY", [sparse], writer.tensor("dense", data.shape, "float32"))
    y = writer.tensor("y", (3, 4), "float32")
    writer.operator("FULLY_CONNECTED", [x, dense, -1], y, "FullyConnectedOptions")
    return writer.content([x], [y]), data


def test_sparse_weights():
    content, data = sparse_network()
    x = RANDOM.uniform(-1, 1, (3, 6)).astype(np.float32)
    np.testing.assert_allclose(reference.run(load(content), {"x": x})["y"], x @ data.T, atol=1e-5)


@pytest.mark.parametrize(
    ("order", "blocks", "dimensions"),
    [
        ((0, 1, 1), (1,), (Dimension(4), Dimension(3), Dimension(2))),
        ((0, 1), (), (Dimension(4), Dimension(0, np.array([0, 1, 2]), np.array([0, 1])))),
        ((0, 1), (), (Dimension(4), Dimension(0, np.array([0, 1, 2, 3, 4]), np.array([0, 1, 2, 9])))),
        ((0, 1), (), (Dimension(4), Dimension(0, np.array([0, 2, 1, 3, 4]), np.array([0, 1, 2, 3])))),
        ((0, 1), (2,), (Dimension(4), Dimension(6), Dimension(2))),
        ((1, 0), (), (Dimension(6), Dimension(1 << 40))),
        ((0, 1), (), (Dimension(4), Dimension(5))),
    ],
)
def test_sparse_weights_that_contradict_themselves(order, blocks, dimensions):
    with pytest.raises(ValueError, match="sparse constant"):
        densified(np.ones(4, np.float32), (4, 6), dimensions, order, blocks)


# --- 16-bit activations -----------------------------------------------------------------------------------


def sixteen_bits():
    """int16 -> CONV_2D of int8 weights and an int64 bias -> TRANSPOSE -> int16."""
    writer = Writer()
    x = writer.tensor("x", X.shape, "int16", scale=1e-4)
    weight = writer.constant("w", np.rint(WEIGHT * 127).astype(np.int8), scale=1 / 127)
    bias = writer.constant("b", np.arange(5, dtype=np.int64) * 1000, scale=1e-4 / 127)
    y = conv(writer, x, weight, (1, 6, 7, 5), "int16", bias, scale=3e-4)
    turned = writer.tensor("turned", (1, 5, 6, 7), "int16", scale=3e-4)
    perm = writer.constant("perm", ints(0, 3, 1, 2))
    writer.operator("TRANSPOSE", [y, perm], turned, "TransposeOptions")
    return writer.content([x], [turned])


def test_16_bit_activations():
    content = sixteen_bits()
    given = np.rint(X * 1e4).astype(np.int16)
    graph = load(content)
    assert (graph.tensor("x").dtype, graph.tensor("turned").dtype) == ("int16", "int16")
    result = reference.run(graph, {"x": given})["turned"]
    weight, bias = np.rint(WEIGHT * 127) / 127, np.arange(5) * 1000 * 1e-4 / 127
    real = convolved(given * np.float64(1e-4), weight, (1, 1), True) + bias
    wanted = np.clip(np.rint(real / 3e-4), -(2**15), 2**15 - 1).transpose(0, 3, 1, 2)
    assert result.dtype == np.int16
    assert np.abs(result - wanted).max() <= 1
    assert (result == wanted).mean() > 0.99
    precision = of_tflite(parse_tflite(content, "x"), 0).precision
    assert "int16x8" in precision
    assert "float" not in precision


def test_16_bit_activations_saturate():
    writer = Writer()
    x = writer.tensor("x", (1, 4), "int16", scale=0.5)
    y = writer.tensor("y", (1, 4), "int16", scale=0.001)
    writer.operator("QUANTIZE", [x], y)
    result = reference.run(load(writer.content([x], [y])), {"x": np.int16([[-9999, -3, 3, 9999]])})["y"]
    np.testing.assert_array_equal(result, [[-(2**15), -1500, 1500, 2**15 - 1]])


@pytest.mark.parametrize("fields", [{"scale": 0.1, "zero_point": 3}, {"scale": [0.1, 0.2]}, {"scale": -1.0}])
def test_16_bit_scales_that_are_invalid(fields):
    writer = Writer()
    x, y = writer.tensor("x", (1, 4), "int16", **fields), writer.tensor("y", (1, 4), "int16", scale=0.1)
    writer.operator("RELU", [x], y)
    with pytest.raises(InvalidModel):
        load(writer.content([x], [y]))


# --- islands ----------------------------------------------------------------------------------------------

SCALED = {"scale": 0.02, "zero_point": -3}
INTEGERS = RANDOM.integers(-128, 128, X.shape).astype(np.int8)
REAL = 0.02 * (INTEGERS.astype(float) + 3)


def island(op, operands, shape, table="", *, quantization=None, **fields):
    """RELU6, then one operator of int8 between others: what it gives, in real values."""
    writer = Writer()
    x = writer.tensor("x", X.shape, "int8", **SCALED)
    first = writer.operator("TANH", [x], writer.tensor("first", X.shape, "int8", scale=1 / 128, zero_point=0))
    numbers = [first if operand is None else writer.constant(f"c{i}", operand, **q)
               for i, (operand, q) in enumerate(operands)]  # fmt: skip
    made = writer.tensor("y", shape, "int8", **(quantization or {"scale": 1 / 128, "zero_point": 0}))
    writer.operator(op, numbers, made, table, **fields)
    graph = load(writer.content([x], [made]))
    real = np.clip(np.rint(np.tanh(REAL) * 128), -128, 127) / 128
    return graph, reference.run(graph, {"x": INTEGERS})["y"], real


def test_a_difference_of_8_bit_tensors_is_one_exact_map():
    other = RANDOM.integers(-128, 128, (4,)).astype(np.int8)
    scaled = {"scale": 0.01, "zero_point": 5}
    graph, result, real = island(
        "SUB", [(None, {}), (other, scaled)], X.shape, "SubOptions", quantization={"scale": 0.015}
    )
    wanted = np.clip(np.rint((real - 0.01 * (other.astype(float) - 5)) / np.float32(0.015)), -128, 127)
    assert np.abs(result - wanted).max() <= 1
    assert (result == wanted).mean() > 0.99
    assert not any(isinstance(node, Dequantize | Quantize) for node in graph.nodes)


def test_parts_of_8_bit_tensors_stay_integers():
    graph, result, real = island(
        "GATHER", [(None, {}), (ints(3, 3, 0), {})], (1, 6, 7, 3), "GatherOptions", Axis=3
    )
    np.testing.assert_array_equal(result, real[..., [3, 3, 0]] * 128)
    assert any(isinstance(node, Take) for node in graph.nodes)
    assert not any(isinstance(node, Dequantize) for node in graph.nodes)


def test_a_function_without_a_handler_of_its_own_is_a_table():
    graph, result, real = island("ELU", [(None, {})], X.shape)
    np.testing.assert_array_equal(result, np.rint(np.where(real < 0, np.expm1(real), real) * 128))
    assert any(isinstance(node, Lookup) for node in graph.nodes)
    assert not any(isinstance(node, Map) for node in graph.nodes)


def test_a_resize_between_dequantize_and_quantize():
    graph, result, real = island(
        "RESIZE_BILINEAR", [(None, {}), (ints(6, 14), {})], (1, 6, 14, 4), "ResizeBilinearOptions"
    )
    right = np.concatenate([real[:, :, 1:], real[:, :, -1:]], 2)
    wanted = np.stack([real, (real + right) / 2], 3).reshape(1, 6, 14, 4)
    assert np.abs(result - wanted * 128).max() <= 0.5
    assert {type(node) for node in graph.nodes} >= {Dequantize, Quantize}


def test_a_uint8_output_behind_softmax(tmp_path):
    writer = Writer()
    x = writer.tensor("x", (1, 9), "int8", **SCALED)
    first = writer.operator("RELU", [x], writer.tensor("first", (1, 9), "int8", **SCALED))
    shares = writer.tensor("shares", (1, 9), "int8", scale=1 / 256, zero_point=-128)
    writer.operator("SOFTMAX", [first], shares, "SoftmaxOptions", Beta=1.0)
    y = writer.tensor("y", (1, 9), "uint8", scale=1 / 256, zero_point=0)
    writer.operator("QUANTIZE", [shares], y)
    path = tmp_path / "net.tflite"
    path.write_bytes(writer.content([x], [y]))
    artifact = compile(path, "c")
    given = RANDOM.integers(-128, 128, (1, 9)).astype(np.int8)
    e = np.exp(np.maximum(0.02 * (given + 3.0), 0))
    with Session(artifact) as session:
        result = session.run({"x": given})["y"]
    np.testing.assert_array_equal(result, np.clip(np.rint(e / e.sum() * 256), 0, 255))
    assert any(isinstance(node, Softmax) for node in artifact.graph.nodes)


def test_plain_integers_in_and_out():
    """A camera's bytes without a scale, which CAST makes floats."""
    writer = Writer()
    x = writer.tensor("x", (1, 3), "uint8")
    real = writer.operator("CAST", [x], writer.tensor("real", (1, 3), "float32"), "CastOptions")
    half = writer.constant("half", np.float32(0.5))
    y = writer.operator("MUL", [real, half], writer.tensor("y", (1, 3), "float32"), "MulOptions")
    result = reference.run(load(writer.content([x], [y])), {"x": np.uint8([[0, 7, 255]])})["y"]
    np.testing.assert_array_equal(result, [[0, 3.5, 127.5]])


def test_pictures_stay_in_the_order_of_a_convolution():
    """Between two convolutions nothing is transposed: not by ADD, PRELU, CONCATENATION, PAD or MEAN."""
    writer = Writer()
    x = writer.tensor("x", X.shape, "float32")
    weight = writer.constant("w", WEIGHT[:4, :1, :1])
    shape = X.shape

    def tensor(name, shape=shape):
        return writer.tensor(name, shape, "float32")

    same = options(True, (1, 1))
    a = writer.operator("CONV_2D", [x, weight, -1], tensor("a"), "Conv2DOptions", **same)
    b = writer.operator(
        "PRELU", [a, writer.constant("slope", np.float32([[[0.1, 0.2, 0.3, 0.4]]]))], tensor("b")
    )
    c = writer.operator("ADD", [a, b], tensor("c"), "AddOptions")
    d = writer.operator("CONCATENATION", [b, c], tensor("d", (1, 6, 7, 8)), "ConcatenationOptions", Axis=3)
    pads = writer.constant("pads", ints(0, 0, 1, 1, 1, 1, 0, 0).reshape(4, 2))
    e = writer.operator("PAD", [d, pads], tensor("e", (1, 8, 9, 8)), "PadOptions")
    second = writer.constant("w2", RANDOM.uniform(-1, 1, (2, 3, 3, 8)).astype(np.float32))
    f = writer.operator(
        "CONV_2D", [e, second, -1], tensor("f", (1, 6, 7, 2)), "Conv2DOptions", **options(False, (1, 1))
    )
    y = writer.operator(
        "MEAN", [f, writer.constant("axes", ints(1, 2))], tensor("y", (1, 2)), "ReducerOptions"
    )
    graph = load(writer.content([x], [y]))
    assert [node.op for node in graph.nodes] == [
        "Transpose",
        "Conv",
        "Map",
        "Map",
        "Concat",
        "Conv",
        "Reduce",
    ]
    result = reference.run(graph, {"x": X})["y"]
    first = convolved(X.astype(float), WEIGHT[:4, :1, :1], (1, 1), True)
    rectified = np.where(first < 0, first * [0.1, 0.2, 0.3, 0.4], first)
    joined = np.concatenate([rectified, first + rectified], 3)
    wanted = convolved(
        np.pad(joined, [(0, 0), (1, 1), (1, 1), (0, 0)]), writer.tensors[second]["data"], (1, 1), False
    )
    np.testing.assert_allclose(result, wanted.mean((1, 2)), atol=1e-5)


# --- damage -----------------------------------------------------------------------------------------------

FILES = {
    "float16 weights": lambda: float_conv(halves)[0],
    "sparse": lambda: sparse_network()[0],
    "16 bits": sixteen_bits,
    "lstm": lambda: Lstm(peepholes=True).content(),
    "svdf": lambda: svdf()[0],
    "variables": variable,
    "loop": loop,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_random_damage(name):
    content = FILES[name]()
    assert survive(content)
    for damaged in flips(content, 40, seed=1):
        survive(damaged)


@pytest.mark.parametrize("name", FILES)
def test_truncation(name):
    content = FILES[name]()
    for length in range(8, len(content), 97):
        with pytest.raises(InvalidModel):
            load(content[:length])


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_much_random_damage(name):
    content = FILES[name]()
    outcomes = [survive(damaged) for damaged in flips(content, amount(800, 2_500), seed=2)]
    assert {True, False} == set(outcomes)


@pytest.mark.slow
def test_every_operator_damaged():
    from tests.unit.test_tflite_plain import CASES

    for number, case in enumerate(CASES.values()):
        content, _, _ = case.write()
        for damaged in flips(content, 60, seed=number):
            try:
                load(damaged)
            except TowlineError:
                continue
