"""Moves, operators by index and recurrences on plain tensors, compared with onnxruntime."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from sdk import reference
from sdk.errors import InvalidModel, Unsupported
from tests.onnx_models import OnnxBuilder, imported
from tests.unit.test_importers_plain import agree, normal, one, operators

RANDOM = np.random.default_rng(1)


def ints(*values):
    return np.array(values, np.int64)


# --- moves ----------------------------------------------------------------------------------------------


def test_reshapes():
    x = normal(2, 3, 4)
    for shape in (ints(6, 4), ints(0, -1), ints(-1), ints(1, 2, 12)):
        agree(*one("Reshape", [x, shape], constants=[1]))
    for axis in (0, 1, 2, 3, -1):
        agree(*one("Flatten", [x], axis=axis))
    y = normal(1, 3, 1, 4)
    agree(*one("Squeeze", [y]))
    agree(*one("Squeeze", [y, ints(0, -2)], constants=[1]))
    agree(*one("Squeeze", [y], axes=[2], opset=11))
    agree(*one("Unsqueeze", [x, ints(0, -1)], constants=[1]))
    agree(*one("Unsqueeze", [x], axes=[1, 3], opset=11))
    agree(*one("Transpose", [x]))
    agree(*one("Transpose", [x], perm=[1, 0, 2]))
    for mode in ("DCR", "CRD"):
        agree(*one("DepthToSpace", [normal(1, 12, 2, 3)], blocksize=2, mode=mode))
    agree(*one("SpaceToDepth", [normal(1, 3, 4, 6)], blocksize=2))


@pytest.mark.parametrize(
    ("starts", "ends", "axes", "steps"),
    [
        ([1], [3], None, None),
        ([0, -3], [2**62, -1], [0, 2], [1, 1]),
        ([-1], [-(2**62)], [1], [-1]),
        ([5, 3], [0, -9], [2, 1], [-2, -1]),
        ([1, 0], [4, 9], [-1, 0], [2, 1]),
    ],
)
def test_slices(starts, ends, axes, steps):
    given = [normal(4, 5, 6), *(None if v is None else ints(*v) for v in (starts, ends, axes, steps))]
    while given[-1] is None:
        given.pop()
    graph = agree(*one("Slice", given, constants=range(1, 5)))
    assert operators(graph) == ["Slice"]
    if steps is None:
        agree(*one("Slice", [normal(4, 5, 6)], starts=starts, ends=ends, opset=9))


def test_splits():
    x = normal(2, 7, 3)
    agree(*one("Split", [x, ints(2, 4, 1)], constants=[1], outputs=3, axis=1))
    agree(*one("Split", [x], outputs=3, axis=1, num_outputs=3))
    agree(*one("Split", [x], outputs=2, axis=1, split=[3, 4], opset=11))
    agree(*one("Split", [normal(6)], outputs=2, opset=13))
    model, _ = one("Split", [x, ints(2, 4)], constants=[1], outputs=2, axis=1)
    with pytest.raises(InvalidModel, match="node node"):
        imported(model)


def test_an_empty_part_that_is_joined_again_is_left_out():
    builder = OnnxBuilder(18)
    x = builder.input("x", [2, 4])
    builder.constant("sizes", ints(4, 0))
    builder.nodes.append(helper.make_node("Split", [x, "sizes"], ["a", "b"], axis=1))
    builder.node("Concat", ["b", "a", x], "y", axis=1)
    graph = agree(builder.model(["y"]), {"x": normal(2, 4)})
    assert operators(graph) == ["Concat"]
    builder.node("Mul", ["b", builder.input("one", [2, 1])], "z", name="empty")
    with pytest.raises(Unsupported, match=r"node empty.*is empty"):
        imported(builder.model(["y", "z"]))


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_pads(mode):
    x = normal(2, 3, 5, 6)
    for pads in ([0, 0, 1, 2, 0, 0, 3, 1], [1, 0, 0, 2, 0, 1, 4, 0], [0] * 8):
        agree(*one("Pad", [x, ints(*pads)], constants=[1], mode=mode))
    agree(*one("Pad", [x, ints(1, 2), None, ints(-1)], constants=[1, 3], mode=mode))


def test_pads_with_a_value_and_crops():
    x = normal(2, 3, 5)
    pads = ints(0, -1, 2, 1, 0, -2)
    graph = agree(*one("Pad", [x, pads, np.float32(-3)], constants=[1, 2]))
    assert operators(graph) == ["Slice", "Fill"]
    whole = RANDOM.integers(0, 9, (2, 3))
    agree(*one("Pad", [whole, ints(1, 0, 0, 2), np.int64(7)], constants=[1, 2]))
    agree(*one("Pad", [x], pads=[0, 0, 1, 0, 0, 1], value=2.0, opset=10))


def test_repetitions():
    agree(*one("Expand", [normal(3, 1), ints(2, 3, 4)], constants=[1]))
    agree(*one("Expand", [normal(2, 3), ints(1, 1)], constants=[1]))
    agree(*one("Expand", [np.float32(3), ints(2, 2)], constants=[1]))
    agree(*one("Tile", [normal(2, 3), ints(2, 3)], constants=[1]))
    agree(*one("Concat", [normal(2, 3), normal(2, 1), normal(2, 2)], axis=-1))
    agree(*one("Concat", [normal(2, 3), normal(2, 1)], constants=[1], axis=1))


def test_masks_and_sums_along_an_axis():
    for upper in (0, 1):
        agree(*one("Trilu", [normal(2, 4, 5)], upper=upper))
        agree(*one("Trilu", [normal(4, 5), np.int64(-1)], constants=[1], upper=upper))
    for options in ({}, {"exclusive": 1}, {"reverse": 1}, {"reverse": 1, "exclusive": 1}):
        for axis in (0, 1, -1):
            agree(*one("CumSum", [normal(3, 4, 5), np.int32(axis)], constants=[1], **options))
    agree(*one("CumSum", [normal(5), np.int32(0)], constants=[1]))
    counts = np.arange(3 * 7 * 5).reshape(3, 7, 5) ** 2
    for dtype in (np.int32, np.int64):
        for options in ({}, {"exclusive": 1}, {"reverse": 1}, {"exclusive": 1, "reverse": 1}):
            agree(*one("CumSum", [counts.astype(dtype), np.int32(1)], constants=[1], **options))


def test_sequences_of_tensors():
    def model(sizes, index, **attributes):
        builder = OnnxBuilder(18)
        x = builder.input("x", [5, 4])
        given = [x] if sizes is None else [x, builder.constant("sizes", sizes)]
        builder.node("SplitToSequence", given, "parts", **attributes)
        builder.node("SequenceAt", ["parts", builder.constant("index", index, np.int64)], "y")
        builder.node("ConcatFromSequence", ["parts"], "z", axis=0, name="joined")
        return builder.model(["y", "z"])

    for sizes, index in ((ints(2, 3), 1), (np.int64(2), -1)):
        agree(model(sizes, index), {"x": normal(5, 4)})
    agree(model(None, 3), {"x": normal(5, 4)})
    with pytest.raises(InvalidModel, match="element 7 of a sequence"):
        imported(model(ints(2, 3), 7))


# --- by index -------------------------------------------------------------------------------------------


def test_gathers():
    x = normal(4, 5, 6)
    for axis in (0, 1, -1):
        for indices in (ints(2), np.int64(1), RANDOM.integers(-4, 4, (2, 3))):
            known = agree(*one("Gather", [x, indices], constants=[1], axis=axis))
            assert operators(known)[0] == "Take"
            agree(*one("Gather", [x, indices], axis=axis))
        where = RANDOM.integers(-4, 4, (4, 5, 6))
        agree(*one("GatherElements", [x, where], constants=[1], axis=axis))
        agree(*one("GatherElements", [x, where], axis=axis))
    agree(*one("GatherND", [x, RANDOM.integers(-4, 4, (2, 3, 2))]))
    agree(*one("GatherND", [x, RANDOM.integers(0, 4, (4, 2, 1))], batch_dims=1))
    with pytest.raises(InvalidModel, match="index 9 of an axis of 4"):
        imported(one("Gather", [x, ints(9)], constants=[1])[0])


def test_scatters():
    x = normal(4, 5, 6)
    where = np.array([[0, 1], [3, 4]])
    agree(*one("ScatterND", [x, where, normal(2, 6)]))
    agree(*one("ScatterND", [x, where, normal(2, 6)], constants=[1, 2]))
    rows = np.stack([RANDOM.permutation(4)[:2] for _ in range(30)], axis=1).reshape(2, 5, 6)
    for constants in ([], [1]):
        agree(*one("ScatterElements", [x, rows, normal(2, 5, 6)], constants=constants, axis=0))


def test_one_hot_and_grids():
    indices = RANDOM.integers(-5, 5, (2, 3))
    for axis in (-1, 0, 1):
        agree(*one("OneHot", [indices, ints(5), np.array([0.5, 2], np.float32)], constants=[1, 2], axis=axis))
    grid = RANDOM.uniform(-1.3, 1.3, (2, 4, 5, 2)).astype(np.float32)
    for padding in ("zeros", "border", "reflection"):
        for align in (0, 1):
            options = {"padding_mode": padding, "align_corners": align}
            agree(*one("GridSample", [normal(2, 3, 6, 7), grid], mode="linear", **options), atol=1e-4)
    agree(*one("GridSample", [normal(2, 3, 6, 7), grid], mode="bilinear", opset=16), atol=1e-4)
    with pytest.raises(Unsupported, match=r"node node.*'cubic'"):
        imported(one("GridSample", [normal(2, 3, 6, 7), grid], mode="cubic")[0])


# --- recurrences ----------------------------------------------------------------------------------------

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def recurrent(op, *, steps=4, batch=2, inputs=3, hidden=5, bias=True, states=True, **attributes):
    """A model of one recurrent operator with all its outputs."""
    ways = 2 if attributes.get("direction") == "bidirectional" else 1
    rows = GATES[op] * hidden
    given = [normal(steps, batch, inputs), normal(ways, rows, inputs), normal(ways, rows, hidden) / 2]
    given += [normal(ways, 2 * rows) if bias else None, None]
    if states:
        given += [normal(ways, batch, hidden)] * (2 if op == "LSTM" else 1)
    peepholes = attributes.pop("peepholes", False)
    if peepholes:
        given.append(normal(ways, 3 * hidden))
    if attributes.get("layout"):
        given[0] = given[0].transpose(1, 0, 2)
        given[5:7] = [state.transpose(1, 0, 2) for state in given[5:7]]
    while given[-1] is None:
        given.pop()
    outputs = 3 if op == "LSTM" else 2
    return one(op, given, constants=(1, 2, 3, 4, 7), outputs=outputs, hidden_size=hidden, **attributes)


@pytest.mark.slow
@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("whole", [True, False])
def test_recurrences(op, direction, whole):
    graph = agree(*recurrent(op, direction=direction, bias=whole, states=whole))
    assert operators(graph).count("Recurrent") == (2 if direction == "bidirectional" else 1)


def test_variants_of_recurrences():
    agree(*recurrent("GRU", linear_before_reset=1))
    agree(*recurrent("GRU", linear_before_reset=1, bias=False, direction="bidirectional"))
    agree(*recurrent("LSTM", peepholes=True, direction="bidirectional"))
    agree(*recurrent("LSTM", input_forget=1))
    with pytest.raises(Unsupported, match=r"node node.*clip"):
        imported(recurrent("LSTM", clip=0.5)[0])
    activations = ["HardSigmoid", "Softsign", "Affine"]
    scales = {"activation_alpha": [0.3, 0.7], "activation_beta": [0.4, 0.1]}
    agree(*recurrent("LSTM", activations=activations, **scales))
    agree(*recurrent("RNN", activations=["Relu"]))
    agree(*recurrent("GRU", activations=["Sigmoid", "LeakyRelu"], activation_alpha=[0.3]))


def test_a_recurrence_whose_batch_comes_first():
    from onnx.reference import ReferenceEvaluator

    for op in ("LSTM", "GRU", "RNN"):
        model, inputs = recurrent(op, layout=1)
        values = reference.run(imported(model), inputs)
        _, expected, *_ = ReferenceEvaluator(model).run(None, inputs)
        assert values["y0"].shape == (2, 4, 1, 5)
        np.testing.assert_allclose(values["y1"], expected, atol=1e-5)
        np.testing.assert_array_equal(values["y0"][:, -1], values["y1"])


def test_recurrences_of_computed_weights():
    model, inputs = recurrent("GRU", direction="bidirectional")
    names = {"x1", "x2", "x3"}
    for tensor in [t for t in model.graph.initializer if t.name in names]:
        inputs[tensor.name] = onnx.numpy_helper.to_array(tensor)
        model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
        model.graph.initializer.remove(tensor)
    agree(model, inputs)


def test_lengths_of_sequences():
    model, inputs = recurrent("LSTM")
    for lengths in ([4, 4], [4, 3]):
        model.graph.node[0].input[4] = "lengths"
        model.graph.initializer.append(helper.make_tensor("lengths", TensorProto.INT32, [2], lengths))
        if lengths == [4, 4]:
            agree(model, inputs)
            model.graph.initializer.pop()
    with pytest.raises(Unsupported, match=r"node node.*lengths"):
        imported(model)


def test_ten_thousand_steps_are_one_recurrence():
    model, _ = recurrent("RNN", steps=10_000)
    (node,) = [node for node in imported(model).nodes if node.op == "Recurrent"]
    assert node.steps == 10_000
    assert len(node.body.nodes) == 2


def test_choices_by_constants():
    condition = np.array([True, False, True])
    for axis in (0, 1, -1):
        agree(*one("Compress", [normal(4, 3, 5), condition], constants=[1], axis=axis))
    agree(*one("Compress", [normal(4, 3), condition], constants=[1]))
    with pytest.raises(Unsupported, match="node node"):
        imported(one("Compress", [normal(4, 3), condition & False], constants=[1], axis=0)[0])
    lengths = ints(1, 4, 2)
    agree(*one("ReverseSequence", [normal(4, 3, 2), lengths], constants=[1]))
    agree(*one("ReverseSequence", [normal(3, 4, 2), lengths], constants=[1], batch_axis=0, time_axis=1))
    with pytest.raises(InvalidModel, match="node node"):
        imported(one("ReverseSequence", [normal(4, 3), lengths + 1], constants=[1])[0])


@pytest.mark.parametrize("op", ["NonZero", "Unique", "RandomUniformLike", "Bernoulli"])
def test_what_no_target_can_know_has_a_remedy(op):
    with pytest.raises(Unsupported) as caught:
        imported(one(op, [normal(3, 4)])[0])
    assert caught.value.where == "node node"
    assert caught.value.hint


# --- TopK, and Scatter that combines --------------------------------------------------------------------


@pytest.mark.parametrize(("axis", "largest"), [(0, 1), (-1, 1), (1, 0)])
def test_top_k(axis, largest):
    x = np.round(normal(4, 5, 6), 1)  # some are equal
    graph = agree(*one("TopK", [x, ints(3)], constants=[1], outputs=2, axis=axis, largest=largest))
    assert operators(graph)[0] == "TopK"
    agree(*one("TopK", [x.astype(np.int64), ints(4)], constants=[1], outputs=2, axis=axis, largest=largest))


def test_top_k_of_more_than_there_are():
    with pytest.raises(InvalidModel, match="node node"):
        imported(one("TopK", [normal(3, 4), ints(5)], constants=[1], outputs=2)[0])


@pytest.mark.parametrize("reduction", ["add", "mul", "max", "min"])
def test_scatters_with_a_reduction(reduction):
    x, where = normal(4, 3), ints([0], [2], [0], [-1])
    agree(*one("ScatterND", [x, where, normal(4, 3) + 1], opset=18, reduction=reduction))
    rows = ints([1, 0, -1], [1, 3, 1])
    given = [x, rows, normal(2, 3)]
    agree(*one("ScatterElements", given, constants=[1], opset=18, axis=0, reduction=reduction))
    agree(*one("ScatterElements", given, opset=18, axis=0, reduction=reduction))


# --- Scan -----------------------------------------------------------------------------------------------


def scan_model(**attributes):
    """A running sum of rows of x [4, 3], and the sums doubled, row for row."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["state", "row"], ["sum"]),
            helper.make_node("Mul", ["sum", "two"], ["doubled"]),
            helper.make_node("Identity", ["sum"], ["next"]),
        ],
        "body",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("state", "row")],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("next", "doubled")],
        [helper.make_tensor("two", TensorProto.FLOAT, [], [2.0])],
    )
    return one("Scan", [normal(3), normal(4, 3)], outputs=2, num_scan_inputs=1, body=body, **attributes)


@pytest.mark.parametrize(
    "attributes",
    [{}, {"scan_input_directions": [1]}, {"scan_output_directions": [1], "scan_output_axes": [1]}],
)
def test_scans(attributes):
    agree(*scan_model(**attributes))


def test_scans_along_another_axis():
    model, inputs = scan_model(scan_input_axes=[1])
    model.graph.input[1].CopyFrom(helper.make_tensor_value_info("x1", TensorProto.FLOAT, [3, 4]))
    agree(model, {**inputs, "x1": normal(3, 4)})


def test_a_scan_that_contradicts_itself():
    with pytest.raises(InvalidModel, match="node node"):
        imported(scan_model(scan_input_directions=[0, 0])[0])
