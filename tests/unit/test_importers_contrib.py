"""Operators that onnxruntime's optimiser writes, against onnxruntime."""

import numpy as np
import pytest
from onnx import helper

from sdk.errors import Unsupported
from tests.onnx_models import CONTRIB, OnnxBuilder, imported
from tests.unit.test_importers_plain import agree, normal, operators


def contrib(op, inputs, *, constants=(), outputs=1, domain=CONTRIB, dtypes=("float32",), **attributes):
    """A model of one operator, and its inputs; those numbered in `constants` are initializers."""
    builder, names, arrays = OnnxBuilder(18), [], {}
    for index, array in enumerate(inputs):
        if array is None:
            names.append("")
            continue
        names.append(name := f"x{index}")
        if index in constants:
            builder.constant(name, array)
        else:
            arrays[name] = np.asarray(array)
            builder.input(name, arrays[name].shape, arrays[name].dtype)
    made = [f"y{index}" for index in range(outputs)] if isinstance(outputs, int) else list(outputs)
    builder.nodes.append(helper.make_node(op, names, made, name="node", domain=domain, **attributes))
    kinds = dict(zip(filter(None, made), [*dtypes, *["float32"] * len(made)], strict=False))
    return builder.model(kinds), arrays


@pytest.mark.parametrize(
    ("op", "shapes", "attributes"),
    [
        ("Gelu", [(2, 5)], {}),
        ("FastGelu", [(2, 5)], {}),
        ("FastGelu", [(2, 5), (5,)], {}),
        ("BiasGelu", [(2, 5), (5,)], {}),
        ("QuickGelu", [(2, 5)], {}),
        ("QuickGelu", [(2, 5)], {"alpha": 0.7}),
    ],
)
def test_activations_are_one_map(op, shapes, attributes):
    graph = agree(*contrib(op, [normal(*shape) for shape in shapes], **attributes))
    assert operators(graph) == ["Map"]


@pytest.mark.parametrize("outputs", [1, ("y0", "", "", "y3")])
@pytest.mark.parametrize("given", [3, 4, 5])
def test_skip_layer_normalization(given, outputs):
    inputs = [normal(2, 3, 8), normal(2, 3, 8), normal(8), normal(8), normal(8)][:given]
    agree(*contrib("SkipLayerNormalization", inputs, outputs=outputs, constants=(2, 3, 4), epsilon=1e-5))


@pytest.mark.parametrize("given", [3, 4])
def test_skip_simplified_layer_normalization(given):
    inputs = [normal(2, 3, 8), normal(2, 3, 8), normal(8), normal(8)][:given]
    outputs = ("y0", "", "", "y3")
    agree(*contrib("SkipSimplifiedLayerNormalization", inputs, outputs=outputs, epsilon=1e-5))
    agree(*contrib("SimplifiedLayerNormalization", inputs[:1] + inputs[2:3], domain="", axis=-1))


@pytest.mark.parametrize("places", [None, [[3, 1, 0], [2, 2, 5]]])
@pytest.mark.parametrize("segments", [None, [[0, 0, 1], [1, 0, 0]]])
def test_embed_layer_normalization(segments, places):
    ids = np.array([[1, 4, 2], [0, 3, 3]], np.int32)
    mask = np.array([[1, 1, 0], [1, 1, 1]], np.int32)
    tables = [normal(5, 8), normal(6, 8), None if segments is None else normal(2, 8), normal(8), normal(8)]
    given = [ids, None if segments is None else np.array(segments, np.int32), *tables, mask]
    given += [] if places is None else [np.array(places, np.int32)]
    model, inputs = contrib(
        "EmbedLayerNormalization", given, outputs=2, constants=range(2, 7), dtypes=("float32", "int32")
    )
    agree(model, inputs)


@pytest.mark.parametrize("scale", [1.0, 0.3])
@pytest.mark.parametrize(
    ("a", "b", "attributes"),
    [
        ((2, 3, 4), (2, 4, 5), {}),
        ((2, 4, 3), (2, 4, 5), {"transA": 1}),
        ((3, 4), (5, 4), {"transB": 1}),
        ((3, 2, 4), (2, 4, 5), {"transBatchA": 1}),
        ((4, 2, 3), (2, 4, 5), {"transBatchA": 1, "transA": 1}),
    ],
)
def test_fused_matmul(a, b, attributes, scale):
    agree(*contrib("FusedMatMul", [normal(*a), normal(*b)], alpha=scale, **attributes))


@pytest.mark.parametrize(
    ("activation", "parameters"),
    [
        ("Relu", []),
        ("LeakyRelu", [0.2]),
        ("Clip", [-0.5, 0.5]),
        ("HardSigmoid", [0.3, 0.4]),
        ("Tanh", []),
        ("", []),
    ],
)
@pytest.mark.parametrize("residual", [False, True])
def test_fused_conv(activation, parameters, residual):
    inputs = [normal(1, 3, 6, 6), normal(4, 3, 3, 3), normal(4), normal(1, 4, 6, 6)][: 4 if residual else 3]
    more = {"activation": activation} if activation else {}
    if parameters:
        more["activation_params"] = parameters
    agree(*contrib("FusedConv", inputs, constants=(1, 2), pads=[1, 1, 1, 1], kernel_shape=[3, 3], **more))


def test_fused_gemm():
    inputs = [normal(3, 4), normal(5, 4), normal(5)]
    agree(*contrib("FusedGemm", inputs, transB=1, alpha=0.5, activation="Relu"))
    agree(*contrib("FusedGemm", inputs, transB=1, activation="LeakyRelu", activation_alpha=0.3))
    agree(*contrib("FusedGemm", inputs, transB=1, activation="Softplus"))


def test_layer_normalization_in_an_opset_that_lacks_it():
    model, inputs = contrib("LayerNormalization", [normal(2, 3, 8), normal(8), normal(8)], domain="")
    model.opset_import[0].version = 12
    agree(model, inputs)


LENGTHS = np.array([3, 5], np.int32)
RAW = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)


@pytest.mark.slow
@pytest.mark.parametrize("mask", [None, LENGTHS, RAW, RAW[:, None] * np.ones((1, 5, 1), np.int32)])
@pytest.mark.parametrize("attributes", [{}, {"unidirectional": 1}, {"scale": 0.2}])
def test_attention(mask, attributes):
    inputs = [normal(2, 5, 12), normal(12, 48), normal(48), mask]
    agree(*contrib("Attention", inputs, constants=(1, 2), num_heads=4, **attributes))


def test_attention_with_a_past_a_bias_and_other_sizes():
    first = [normal(2, 5, 12), normal(12, 48), normal(48)]
    inputs = [*first, None, normal(2, 2, 4, 3, 4)]
    agree(*contrib("Attention", inputs, constants=(1, 2), outputs=2, num_heads=4, unidirectional=1))
    inputs = [*first, None, None, normal(2, 4, 5, 5)]
    agree(*contrib("Attention", inputs, constants=(1, 2), num_heads=4))
    inputs = [normal(2, 5, 12), normal(12, 40), normal(40)]
    agree(*contrib("Attention", inputs, constants=(1, 2), num_heads=4, qkv_hidden_sizes=[16, 16, 8]))


@pytest.mark.parametrize("bias", [None, normal(40)])
@pytest.mark.parametrize("mask", [None, LENGTHS, RAW])
def test_multi_head_attention(bias, mask):
    inputs = [normal(2, 3, 16), normal(2, 5, 16), normal(2, 5, 8), bias, mask]
    agree(*contrib("MultiHeadAttention", inputs, num_heads=4))


def test_multi_head_attention_with_a_past():
    inputs = [normal(2, 3, 16), normal(2, 3, 16), normal(2, 3, 16), None, None, normal(1, 4, 3, 7)]
    inputs += [normal(2, 4, 4, 4), normal(2, 4, 4, 4)]
    agree(*contrib("MultiHeadAttention", inputs, num_heads=4, outputs=3))
    inputs = [normal(2, 3, 16), normal(2, 4, 6, 4), normal(2, 4, 6, 4)]  # of another sequence, by head
    agree(*contrib("MultiHeadAttention", inputs, num_heads=4))


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("places", [np.array([3], np.int64), np.array([[0, 2, 1], [5, 6, 7]], np.int64)])
@pytest.mark.parametrize(
    ("shape", "attributes"),
    [
        ((2, 3, 32), {}),
        ((2, 4, 3, 8), {}),
        ((2, 4, 3, 12), {"rotary_embedding_dim": 8, "num_heads": 4}),
    ],
)
def test_rotary_embedding(shape, attributes, places, interleaved):
    inputs = [normal(*shape), places, normal(10, 4), normal(11, 4)[:10]]
    agree(*contrib("RotaryEmbedding", inputs, constants=(2, 3), interleaved=interleaved, **attributes))


def test_operators_that_onnx_has_too():
    agree(*contrib("Trilu", [normal(3, 4)], upper=0))
    grid = np.clip(normal(1, 3, 3, 2), -1, 1)
    agree(*contrib("GridSample", [normal(1, 2, 4, 4), grid], constants=(1,), mode="bilinear"))


def test_a_model_saved_for_one_kind_of_processor():
    model, _ = contrib("Conv", [normal(1, 8, 4, 4), normal(8, 8, 1, 1)], domain="com.microsoft.nchwc")
    model.opset_import.append(helper.make_opsetid("com.microsoft.nchwc", 1))
    with pytest.raises(Unsupported) as caught:
        imported(model)
    assert "ORT_ENABLE_EXTENDED" in caught.value.hint


@pytest.mark.parametrize(
    ("op", "inputs", "attributes"),
    [
        ("Attention", [normal(2, 5, 12), normal(12, 36), normal(36)], {"num_heads": 3, "do_rotary": 1}),
        ("MultiHeadAttention", [normal(2, 5, 2, 3, 4)], {"num_heads": 2}),
        ("FusedConv", [normal(1, 3, 6, 6), normal(4, 3, 3, 3)], {"activation": "Sinh"}),
        ("NoSuchOperator", [normal(1, 3)], {}),
    ],
)
def test_what_is_refused(op, inputs, attributes):
    with pytest.raises(Unsupported) as caught:
        imported(contrib(op, inputs, **attributes)[0])
    assert caught.value.where == "node node"
