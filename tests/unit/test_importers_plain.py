"""Operators on plain tensors: imported, run by the reference, and compared with onnxruntime."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidGraph, NotImplemented

from sdk import dtypes, reference
from sdk.errors import InvalidModel, Unsupported
from tests.onnx_models import OnnxBuilder, imported

RANDOM = np.random.default_rng(0)


def normal(*shape):
    return np.random.default_rng(shape).normal(0, 1, shape).astype(np.float32)


def expected(model, inputs):
    """Outputs by name: onnxruntime's, or where it has no kernel those of onnx's reference."""
    names = [value.name for value in model.graph.output]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        results = session.run(names, inputs)
    except (NotImplemented, InvalidGraph, Fail):
        results = ReferenceEvaluator(model).run(names, inputs)
    return dict(zip(names, results, strict=True))


def agree(model, inputs, **tolerance):
    """The graph, whose outputs are onnxruntime's: floats closely, the others exactly."""
    graph = imported(model)
    values = reference.run(graph, inputs)
    for name, wanted in expected(model, inputs).items():
        found, tensor = values[name], graph.tensor(name)
        assert (found.shape, tensor.shape) == (wanted.shape, wanted.shape), name
        if dtypes.is_float(tensor.dtype):
            assert found.dtype == wanted.dtype
            tolerance = {"rtol": 1e-5, "atol": 1e-5} | tolerance
            np.testing.assert_allclose(found, wanted, **tolerance, err_msg=name)
        else:
            assert np.array_equal(found, wanted), name
    return graph


def one(op, inputs, *, constants=(), opset=20, outputs=1, **attributes):
    """A model of one operator and its inputs, of which those numbered in `constants` are initializers."""
    builder = OnnxBuilder(opset)
    names, arrays = [], {}
    for index, array in enumerate(inputs):
        if array is None:
            names.append("")
            continue
        array = np.asarray(array)
        name = f"x{index}"
        names.append(name)
        if index in constants:
            builder.constant(name, array)
        else:
            arrays[name] = array
            builder.input(name, array.shape, array.dtype)
    results = [f"y{index}" for index in range(outputs)]
    builder.nodes.append(helper.make_node(op, names, results, name="node", **attributes))
    model = builder.model([])
    inferred = onnx.shape_inference.infer_shapes(model)
    kinds = {value.name: value for value in inferred.graph.value_info}
    floats = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results}
    model.graph.output.extend((floats | kinds)[name] for name in results)
    return model, arrays


def operators(graph):
    return [node.op for node in graph.nodes]


# --- elementwise ----------------------------------------------------------------------------------------

UNARY = {
    **{name: {} for name in ("Abs", "Atan", "Asinh", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor", "Mish")},
    **{name: {} for name in ("Neg", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Sinh", "Tan")},
    **{name: {} for name in ("Softplus", "Softsign", "Tanh", "HardSwish", "IsNaN", "IsInf", "Identity")},
    "Celu": {"alpha": 0.7},
    "Elu": {"alpha": 0.3},
    "HardSigmoid": {"alpha": 0.3, "beta": 0.4},
    "LeakyRelu": {"alpha": 0.2},
    "Selu": {},
    "Shrink": {"lambd": 0.3, "bias": 0.1},
    "ThresholdedRelu": {"alpha": 0.6},
    "Gelu": {"approximate": "tanh"},
    "Swish": {"alpha": 0.8},
}


@pytest.mark.slow
@pytest.mark.parametrize("op", UNARY)
def test_functions_of_one_tensor_are_one_map(op):
    model, inputs = one(op, [normal(2, 3, 5)], opset=24 if op == "Swish" else 20, **UNARY[op])
    graph = agree(model, inputs, rtol=1e-4)
    assert operators(graph) == (["Map"] if op != "Identity" else ["Reshape"])
    assert graph.nodes[-1].name in ("node", "y0_copy")


@pytest.mark.parametrize(
    ("op", "low", "high"),
    [
        ("Acos", -1, 1),
        ("Asin", -1, 1),
        ("Atanh", -0.9, 0.9),
        ("Acosh", 1, 9),
        ("Log", 0.1, 9),
        ("Sqrt", 0, 9),
    ],
)
def test_functions_within_their_domain(op, low, high):
    agree(*one(op, [RANDOM.uniform(low, high, (4, 7)).astype(np.float32)]))


def test_values_that_are_no_numbers_are_carried():
    x = np.array([np.nan, np.inf, -np.inf, 0, -0.0, 1e38], np.float32)
    for op in ("IsNaN", "IsInf", "Relu", "Abs", "Exp", "Sqrt", "Neg"):
        agree(*one(op, [x]))
    agree(*one("IsInf", [x], detect_negative=0))
    weights = np.array([np.nan, 1, np.inf, 2, 3, 4], np.float32)
    agree(*one("Mul", [x, weights], constants=[1]))


@pytest.mark.slow
@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Max", "Min", "PRelu", "Mean", "Sum"])
@pytest.mark.parametrize("shape", [(2, 3, 5), (3, 1), (5,), (), (1, 1, 1)])
def test_two_tensors_broadcast(op, shape):
    a, b = normal(2, 3, 5), np.asarray(np.abs(normal(*shape)) + 0.5, np.float32)
    agree(*one(op, [a, b]))
    graph = agree(*one(op, [a, b], constants=[1]))
    assert operators(graph) == ["Map"]
    scalar = b.size == 1 and b.ndim <= 3
    assert len(graph.nodes[0].inputs) == (1 if scalar else 2)
    if op not in ("PRelu",):
        agree(*one(op, [b, a], constants=[0]))


def test_comparisons_and_logic():
    a, b = RANDOM.integers(0, 3, (2, 3, 4)), RANDOM.integers(0, 3, (3, 1))
    for op in ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"):
        agree(*one(op, [a, b]))
        agree(*one(op, [a.astype(np.float32), b.astype(np.float32)]))
    for op in ("And", "Or", "Xor"):
        agree(*one(op, [a > 1, b > 1]))
    agree(*one("Not", [a > 1]))
    agree(*one("Where", [a > 1, normal(2, 3, 4), np.float32(-np.inf)], constants=[2]))


def test_integers():
    a, b = RANDOM.integers(-90, 90, (3, 4)), RANDOM.integers(1, 9, (3, 4))
    for dtype in (np.int32, np.int64):
        for op in ("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min"):
            agree(*one(op, [a.astype(dtype), b.astype(dtype)]))
        agree(*one("Pow", [a.astype(dtype), (b % 4).astype(dtype)]))
    agree(*one("Mod", [a, -b]))
    agree(*one("Mod", [a, b], fmod=1))
    agree(*one("Mod", [normal(3, 4), np.abs(normal(3, 4)) + 1], fmod=1))
    for exponent in (0.5, 1, 2, 3, 4, 2.5):
        agree(*one("Pow", [np.abs(normal(3, 4)), np.float32(exponent)], constants=[1]))
    agree(*one("Clip", [a, np.int64(-9), np.int64(40)], constants=[1, 2]))
    agree(*one("Clip", [normal(3, 4), None, np.float32(0.5)], constants=[2]))
    agree(*one("Clip", [normal(3, 4), np.float32(-0.5), np.float32(0.5)]))


@pytest.mark.parametrize("to", ["float32", "float16", "int32", "int64", "uint8", "bool"])
def test_casts(to):
    element = helper.np_dtype_to_tensor_dtype(np.dtype(to))
    for x in (np.abs(normal(3, 4)) * 9, RANDOM.integers(0, 99, (3, 4)), normal(3, 4) > 0):
        graph = agree(*one("Cast", [x], to=element))
        assert operators(graph) == (["Reshape"] if str(x.dtype) == to else ["Map"])
    agree(*one("CastLike", [normal(3, 4), np.zeros(1, to)], constants=[1]))
    agree(*one("Cast", [np.array([1.5, -2.7, 0.0, 300.2], np.float32)], to=TensorProto.INT32))


def test_half_precision_is_rounded_where_it_is_stored():
    a, b = normal(4, 5).astype(np.float16), normal(4, 5).astype(np.float16)
    model, inputs = one("Mul", [a, b])
    values = reference.run(imported(model), inputs)
    assert np.array_equal(values["y0"], a * b)


# --- products -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"pads": [1, 0, 2, 1], "strides": [2, 1]},
        {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
        {"auto_pad": "SAME_LOWER"},
        {"dilations": [2, 1], "group": 2},
    ],
)
@pytest.mark.parametrize("known", [True, False])
def test_convolutions(attributes, known):
    group = attributes.get("group", 1)
    inputs = [normal(2, 4, 7, 6), normal(6, 4 // group, 3, 2), normal(6)]
    graph = agree(*one("Conv", inputs, constants=[1, 2] if known else [], **attributes))
    assert operators(graph) == (["Conv"] if known else ["Conv", "Reshape", "Map"]) or not known


def test_convolutions_in_one_dimension():
    model, inputs = one("Conv", [normal(2, 4, 9), normal(6, 4, 3), normal(6)], constants=[1, 2], pads=[1, 2])
    graph = agree(model, inputs)
    assert [node.name for node in graph.nodes] == ["node/x", "node/rows", "node"]
    agree(*one("ConvTranspose", [normal(2, 4, 9), normal(4, 3, 3)], constants=[1], strides=[2]))
    agree(*one("MaxPool", [normal(2, 4, 9)], kernel_shape=[3], strides=[2], pads=[1, 0]))
    agree(*one("AveragePool", [normal(2, 4, 9)], kernel_shape=[3], strides=[2], pads=[1, 1]))
    model, _ = one("Conv", [normal(1, 2, 4, 4, 4, 4), normal(3, 2, 1, 1, 1, 1)], constants=[1])
    with pytest.raises(Unsupported, match=r"node node.*4 dimensions"):
        imported(model)


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"strides": [2, 3], "pads": [1, 0, 0, 1], "output_padding": [1, 1]},
        {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
        {"strides": [2, 2], "auto_pad": "SAME_LOWER"},
        {"strides": [2, 2], "output_shape": [9, 10]},
        {"group": 2, "dilations": [2, 1]},
    ],
)
def test_transposed_convolutions(attributes):
    group = attributes.get("group", 1)
    inputs = [normal(1, 4, 5, 5), normal(4, 6 // group, 3, 2), normal(6)]
    agree(*one("ConvTranspose", inputs, constants=[1, 2], **attributes))
    agree(*one("ConvTranspose", inputs, **attributes))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3, 4), (4, 5)),
        ((2, 3, 4), (4, 5)),
        ((2, 1, 3, 4), (6, 4, 5)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((4,), (4,)),
    ],
)
def test_matrices(a, b):
    agree(*one("MatMul", [normal(*a), normal(*b)]))
    agree(*one("MatMul", [normal(*a), normal(*b)], constants=[1]))
    agree(*one("MatMul", [normal(*a), normal(*b)], constants=[0]))


@pytest.mark.slow
@pytest.mark.parametrize("bias", [None, (5,), (1, 5), (3, 1), (3, 5), (), (1,)])
@pytest.mark.parametrize("factors", [{}, {"alpha": 0.5, "beta": 2.0}])
@pytest.mark.parametrize("turned", [{}, {"transA": 1, "transB": 1}])
def test_gemm(bias, factors, turned):
    a, b = normal(3, 4), normal(4, 5)
    if turned:
        a, b = np.ascontiguousarray(a.T), np.ascontiguousarray(b.T)
    inputs = [a, b] if bias is None else [a, b, np.asarray(normal(*bias), np.float32)]
    graph = agree(*one("Gemm", inputs, constants=[1, 2], **turned, **factors))
    plain = not factors and bias in (None, (5,), (1, 5))
    assert operators(graph)[-1] == ("MatMul" if plain else "Map")
    agree(*one("Gemm", inputs, **turned, **factors))


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(3, 4), (4, 5)]),
        ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
        ("bij,bjk", [(2, 3, 4), (2, 4, 5)]),
        ("...ij,jk->...ik", [(2, 6, 3, 4), (4, 5)]),
        ("ij,kj->ki", [(3, 4), (5, 4)]),
        ("i,j->ij", [(3,), (4,)]),
        ("ij,ij->", [(3, 4), (3, 4)]),
        ("ijk,k->ji", [(2, 3, 4), (4,)]),
        ("ijk->ki", [(2, 3, 4)]),
        ("ij->ji", [(2, 3)]),
    ],
)
def test_einsum(equation, shapes):
    agree(*one("Einsum", [normal(*shape) for shape in shapes], equation=equation))


def test_einsums_that_are_refused():
    for equation, shapes, error in [
        ("ii->i", [(3, 3)], Unsupported),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)], Unsupported),
        ("ij,jk->iz", [(2, 3), (3, 4)], InvalidModel),
        ("ij,jk->ik", [(2, 3), (4, 5)], InvalidModel),
    ]:
        with pytest.raises(error, match="node node"):
            imported(one("Einsum", [normal(*shape) for shape in shapes], equation=equation)[0])


# --- reductions and normalisations ----------------------------------------------------------------------

REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")


@pytest.mark.slow
@pytest.mark.parametrize("kind", REDUCTIONS)
@pytest.mark.parametrize("opset", [11, 20])
def test_reductions(kind, opset):
    x = np.abs(normal(2, 3, 4, 5))
    for axes in ([1], [-1, 1], [0, 1, 2, 3], None):
        for keep in (0, 1):
            if opset == 11:
                options = {} if axes is None else {"axes": axes}
                agree(*one(f"Reduce{kind}", [x], opset=11, keepdims=keep, **options))
            else:
                given = [x] if axes is None else [x, np.array(axes)]
                agree(*one(f"Reduce{kind}", given, constants=[1], keepdims=keep))
    agree(*one(f"Reduce{kind}", [x, np.array([], np.int64)], constants=[1], noop_with_empty_axes=0))


def test_reductions_of_large_halves_do_not_overflow_inside():
    x = np.full((1, 8), 300, np.float16)
    graph = agree(*one("ReduceL2", [x, np.array([1])], constants=[1]), rtol=1e-3)
    assert [graph.tensor(node.output).dtype for node in graph.nodes] == ["float32", "float32", "float16"]


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_places_of_extremes(op):
    x = RANDOM.integers(0, 4, (3, 4, 5)).astype(np.float32)
    for options in ({}, {"axis": -1, "keepdims": 0}, {"axis": 1, "select_last_index": 1}):
        agree(*one(op, [x], **options))


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("opset", [11, 20])
def test_softmax_and_its_kin(op, opset):
    for axis in (0, 1, -1):
        agree(*one(op, [normal(2, 3, 4)], opset=opset, axis=axis))
    agree(*one(op, [normal(2, 3, 4)], opset=opset))


def test_normalisations():
    x, scale, bias = normal(2, 6, 4, 5), normal(6), normal(6)
    for known in ([1, 2], []):
        agree(*one("InstanceNormalization", [x, scale, bias], constants=known), atol=1e-4)
        agree(*one("LayerNormalization", [x, normal(5), bias[:5]], constants=known), atol=1e-4)
        layer = [x, normal(6, 4, 5), normal(6, 4, 5)]
        agree(*one("LayerNormalization", layer, constants=known, axis=1, outputs=3), atol=1e-4)
        agree(*one("LayerNormalization", layer[:2], constants=known, axis=-3), atol=1e-4)
        groups = [x, scale[:3], bias[:3]]
        agree(*one("GroupNormalization", groups, constants=known, num_groups=3, opset=18), atol=1e-4)
        agree(
            *one("GroupNormalization", [x, scale, bias], constants=known, num_groups=3, opset=21), atol=1e-4
        )
        agree(*one("RMSNormalization", [x, normal(5)], constants=known, opset=23), atol=1e-4)
        batch = [x, scale, bias, normal(6), np.abs(normal(6)) + 0.1]
        graph = agree(*one("BatchNormalization", batch, constants=[*known, 3, 4] if known else []), atol=1e-4)
        assert operators(graph)[-1] == "Map"
    agree(*one("LpNormalization", [x], axis=1, p=1))
    agree(*one("LpNormalization", [x], axis=2))
    agree(*one("MeanVarianceNormalization", [x]), atol=1e-4)
    agree(*one("LRN", [x], size=3, alpha=0.1, beta=0.5, bias=2.0))
    agree(*one("LRN", [x], size=5))


# --- windows --------------------------------------------------------------------------------------------

POOLS = [
    {"kernel_shape": [3, 2]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
    {"kernel_shape": [2, 2], "strides": [3, 3], "ceil_mode": 1},
    {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1},
    {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER", "strides": [2, 2]},
    {"kernel_shape": [2, 2], "dilations": [2, 2]},
    {"kernel_shape": [2, 2], "dilations": [2, 2], "pads": [1, 1, 1, 1]},
]


@pytest.mark.parametrize("attributes", POOLS)
def test_pools(attributes):
    x = normal(2, 3, 8, 7)
    agree(*one("MaxPool", [x], **attributes))
    agree(*one("AveragePool", [x], opset=19, **attributes))
    agree(*one("AveragePool", [x], opset=19, count_include_pad=1, **attributes))
    if "ceil_mode" not in attributes:
        agree(*one("LpPool", [x], **attributes))


def test_global_pools():
    for op in ("GlobalAveragePool", "GlobalMaxPool"):
        agree(*one(op, [normal(2, 3, 4, 5)]))
        agree(*one(op, [normal(2, 3, 4)]))


COORDINATES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("coordinates", COORDINATES)
def test_resizes(mode, coordinates):
    x = normal(1, 2, 6, 5)
    options = {"mode": mode, "coordinate_transformation_mode": coordinates}
    for sizes in ([1, 2, 12, 10], [1, 2, 3, 8], [1, 2, 1, 5]):
        graph = agree(*one("Resize", [x, None, None, np.array(sizes)], constants=[3], **options), atol=1e-4)
        assert operators(graph) == ["Take" if mode == "nearest" else "Interpolate"]
    scales = np.array([1, 1, 2, 0.6], np.float32)
    agree(*one("Resize", [x, None, scales], constants=[2], **options), atol=1e-4)
    if mode == "cubic":
        agree(
            *one(
                "Resize", [x, None, scales], constants=[2], exclude_outside=1, cubic_coeff_a=-0.5, **options
            ),
            atol=1e-4,
        )


def test_resizes_of_other_ranks_and_axes():
    agree(*one("Resize", [normal(2, 3, 5), None, None, np.array([2, 3, 9])], constants=[3], mode="linear"))
    agree(*one("Resize", [normal(4, 5), None, None, np.array([8, 9])], constants=[3], mode="linear"))
    agree(*one("Resize", [normal(2, 3, 4, 5), None, None, np.array([3, 3, 8, 5])], constants=[3]))
    options = {"axes": [2, 3], "keep_aspect_ratio_policy": "not_larger"}
    agree(*one("Resize", [normal(1, 2, 4, 6), None, None, np.array([9, 9])], constants=[3], **options))
    agree(*one("Upsample", [normal(1, 2, 3, 4), np.array([1, 1, 2, 3], np.float32)], constants=[1], opset=9))


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("region", [[0, 0, 0.2, 0.3, 1, 1, 0.9, 0.8], [0, 0, -0.4, 0.5, 1, 1, 0.7, 1.5]])
def test_resizes_of_crops(mode, region):
    options = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 3.0}
    given = [normal(1, 2, 5, 6), np.array(region, np.float32), None, np.array([1, 2, 4, 7])]
    model, inputs = one("Resize", given, constants=[1, 3], mode=mode, **options)
    found = reference.run(imported(model), inputs)["y0"]  # onnxruntime crops cubic otherwise
    (wanted,) = ReferenceEvaluator(model).run(None, inputs)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_resizes_with_antialias(mode):
    for sizes in ([1, 2, 3, 4], [1, 2, 8, 5], [1, 2, 20, 30]):
        given = [normal(1, 2, 9, 13), None, None, np.array(sizes)]
        agree(*one("Resize", given, constants=[3], mode=mode, antialias=1, exclude_outside=1), atol=1e-4)


@pytest.mark.parametrize(
    ("options", "fragment"),
    [
        ({"coordinate_transformation_mode": "somewhere", "mode": "linear"}, "somewhere"),
        ({"mode": "linear", "axes": [0, 1]}, "last two axes"),
    ],
)
def test_resizes_that_are_refused(options, fragment):
    sizes = np.array([3, 4] if "axes" in options else [1, 2, 8, 8])
    model, _ = one("Resize", [normal(1, 2, 4, 4), None, None, sizes], constants=[3], **options)
    with pytest.raises(Unsupported, match=f"node node.*{fragment}"):
        imported(model)
    ambiguous = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    scales = np.array([1, 1, 0.6, 0.6], np.float32)
    with pytest.raises(Unsupported, match=r"node node.*align_corners"):
        imported(one("Resize", [normal(1, 1, 2, 4), None, scales], constants=[2], **ambiguous)[0])


# --- three dimensions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"strides": [2, 1, 2], "pads": [1, 0, 2, 0, 1, 1]},
        {"dilations": [2, 1, 2], "group": 2},
        {"auto_pad": "SAME_UPPER", "strides": [2, 2, 1]},
    ],
)
def test_convolutions_in_three_dimensions(options):
    weight = normal(6, 4 // options.get("group", 1), 3, 2, 3)
    agree(*one("Conv", [normal(2, 4, 7, 6, 9), weight, normal(6)], constants=[1, 2], **options))
    agree(*one("Conv", [normal(2, 4, 7, 6, 9), weight, normal(6)], **options))


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize(
    "options",
    [
        {"kernel_shape": [3, 2, 2]},
        {"kernel_shape": [2, 3, 3], "strides": [2, 2, 1], "pads": [1, 0, 1, 0, 1, 1]},
        {"kernel_shape": [2, 2, 3], "strides": [2, 3, 2], "ceil_mode": 1},
    ],
)
def test_pools_in_three_dimensions(op, options):
    agree(*one(op, [normal(2, 3, 5, 7, 6)], **options))
    if op == "AveragePool":
        agree(*one(op, [normal(2, 3, 5, 7, 6)], count_include_pad=1, **options))


def test_windows_in_four_dimensions_are_refused():
    with pytest.raises(Unsupported, match=r"node node.*4 dimensions"):
        imported(one("MaxPool", [normal(1, 1, 3, 3, 3, 3)], kernel_shape=[2, 2, 2, 2])[0])


# --- transforms -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "length", "axis", "options"),
    [
        ((2, 9, 1), None, 1, {}),
        ((2, 9, 2), 12, -2, {"inverse": 1}),
        ((3, 8, 4, 1), 6, 1, {"onesided": 1}),
        ((3, 4, 8, 2), 5, 2, {}),
    ],
)
def test_fourier_transforms(shape, length, axis, options):
    given = [normal(*shape), None if length is None else np.array(length), np.array(axis)]
    agree(*one("DFT", given, constants=[1, 2], **options))


def test_an_inverse_transform_to_real_numbers():
    model, inputs = one("DFT", [normal(2, 6, 2), None, np.array(1)], constants=[2], inverse=1, onesided=1)
    whole = inputs["x0"][..., 0] + 1j * inputs["x0"][..., 1]
    wanted = np.fft.irfft(whole, axis=1)[..., np.newaxis]
    np.testing.assert_allclose(reference.run(imported(model), inputs)["y0"], wanted, atol=1e-5)


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("window", [np.hanning(16).astype(np.float32), None])
def test_short_time_transforms(onesided, window):
    given = [normal(2, 70, 1), np.array(5), window, np.array(16)]
    agree(*one("STFT", given, constants=[1, 2, 3], onesided=onesided), atol=1e-4)


# --- bits -----------------------------------------------------------------------------------------------


SIGNED_SHIFTS = 28
"""The opset since which BitShift takes signed integers."""


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64"])
def test_bits(dtype):
    bounds = np.iinfo(dtype)
    a, b = np.random.default_rng(1).integers(bounds.min, bounds.max, (2, 50), dtype, endpoint=True)
    for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
        agree(*one(op, [a, b]))
    agree(*one("BitwiseNot", [a]))
    for direction in ("LEFT", "RIGHT"):
        by = np.arange(50).astype(dtype) - (0 if bounds.min == 0 else 3)
        wanted = expected_shift(a, by, direction)
        model, inputs = one("BitShift", [a, by], opset=SIGNED_SHIFTS, direction=direction)
        assert np.array_equal(reference.run(imported(model), inputs)["y0"], wanted)


def expected_shift(a, by, direction):
    """In Python's integers, of any size."""
    bits, low = 8 * a.itemsize, int(np.iinfo(a.dtype).min)
    results = []
    for value, count in zip(a.tolist(), by.tolist(), strict=True):
        inside = 0 <= count < bits
        if direction == "RIGHT":
            results.append(value >> (count if inside else bits))
        else:
            results.append(((value << count if inside else 0) - low) % (1 << bits) + low)
    return np.array(results, a.dtype)
