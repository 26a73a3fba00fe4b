"""Habits of ONNX files that others made: open shapes, wrong declarations, branches, parts cut off."""

import logging

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser

from sdk import reference
from sdk.errors import InvalidModel, Unsupported, UsageError
from sdk.importers.plain import loops
from tests.onnx_models import imported
from tests.unit.test_importers_plain import agree, expected, normal, one
from towline.cli import main


def parsed(text):
    """A model from ONNX's text form, of the newest opset unless the text has one."""
    return parser.parse_model(
        text if text.startswith("<") else f'<ir_version: 8, opset_import: ["": 18]>{text}'
    )


# --- shapes of inputs -----------------------------------------------------------------------------------


def recurrent(*, state="batch"):
    return parsed(
        f"""g (float[batch, steps, 4] x, float[2, {state}, 4] h, float[?, 3] other) => (float y, float z) {{
            first = Constant<value_ints = [0]> ()
            row = Gather<axis = 0>(h, first)
            column = Transpose<perm = [1, 0, 2]>(row)
            both = Add(x, column)
            y = Relu(both)
            z = Neg(other)
        }}"""
    )


def test_a_shape_that_is_given_settles_the_names_in_others():
    graph = imported(recurrent(), input_shapes={"x": (3, 5, 4)})
    assert [graph.tensor(name).shape for name in graph.inputs] == [(3, 5, 4), (2, 3, 4), (1, 3)]
    graph = imported(recurrent(), input_shapes={"x": (3, 5, 4), "other": (7, 3)})
    assert graph.tensor("other").shape == (7, 3)


def test_all_dynamic_inputs_are_named_at_once_with_the_options_that_settle_them():
    with pytest.raises(Unsupported) as caught:
        imported(recurrent(state="streams"))
    assert caught.value.where == "input x"
    assert caught.value.hint == "pass --input-shape x=1x1x4 --input-shape h=2x1x4"
    with pytest.raises(Unsupported) as caught:
        imported(recurrent())
    assert caught.value.hint == "pass --input-shape x=1x1x4"  # it settles h
    assert "h [2, batch, 4]" in str(caught.value)


def test_shapes_that_contradict_one_another():
    with pytest.raises(UsageError) as caught:
        imported(recurrent(), input_shapes={"x": (3, 5, 4), "h": (2, 1, 4)})
    assert caught.value.where == "input h"
    nameless = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, "?", "?"])
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("Relu", ["x"], ["y"])], "g", [nameless], [onnx.ValueInfoProto(name="y")]
        ),
        ir_version=8,
    )
    assert imported(model, input_shapes={"x": (1, 3, 32, 64)}).tensor("y").shape == (1, 3, 32, 64)


# --- what the file declares -----------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [[3, 2], [2, 3, 1], [4]])
def test_a_wrong_shape_that_is_declared_is_a_warning(shape, caplog):
    model, _ = one("Relu", [normal(2, 3)])
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info("y0", TensorProto.FLOAT, shape))
    with caplog.at_level(logging.WARNING, "towline"):
        assert imported(model).tensor("y0").shape == (2, 3)
    assert "y0" in caplog.text


def test_an_extent_declared_as_minus_one_is_open(caplog):
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [-1, 3])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [-1, 3])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [value], [result])
    with caplog.at_level(logging.WARNING, "towline"):
        assert imported(helper.make_model(graph, ir_version=8)).tensor("y").shape == (1, 3)
    assert "declares" not in caplog.text


# --- a part of a model ----------------------------------------------------------------------------------


DETECTOR = """g (float[1, 6, 4] boxes, float[1, 2, 6] scores) => (int64[n, 3] selected, float[1, 2, 6] sure) {
    half = Constant<value_float = 0.5> ()
    halved = Mul(boxes, half)
    sure = Sigmoid(scores)
    selected = NonMaxSuppression(halved, sure)
}"""


def test_outputs_cut_a_model_where_it_is_refused():
    with pytest.raises(Unsupported) as caught:
        imported(parsed(DETECTOR))
    assert "--outputs halved,sure" in caught.value.hint
    graph = imported(parsed(DETECTOR), outputs=["halved", "sure"])
    assert graph.outputs == ("halved", "sure")
    inputs = {"boxes": normal(1, 6, 4), "scores": normal(1, 2, 6)}
    np.testing.assert_array_equal(reference.run(graph, inputs)["halved"], inputs["boxes"] / 2)
    graph = imported(parsed(DETECTOR), outputs=["sure"])
    assert graph.inputs == ("scores",)


@pytest.mark.parametrize("name", ["halve", "boxes", "half2"])
def test_outputs_that_no_node_computes(name):
    with pytest.raises(UsageError) as caught:
        imported(parsed(DETECTOR), outputs=[name])
    assert caught.value.hint


BRANCHES = """g (float[2, 3] x, int64 rate, float[2, 3] unused) => (float y) {
    known = Constant<value_int = 16000> ()
    fast = Equal(rate, known)
    y = If(fast) <
        then_branch = a () => (float a_y) {
            nested = Constant<value_int = 3> ()
            never = Equal(nested, rate)
            a_y = If(never) <
                then_branch = aa () => (float aa_y) { aa_y = Cos(x) },
                else_branch = ab () => (float ab_y) { ab_h = Sin(x)  ab_y = Neg(ab_h) }
            >
        },
        else_branch = b () => (float b_y) { b_y = NonZero(x) }
    >
}"""


def test_an_input_made_a_constant_chooses_branches():
    graph = imported(parsed(BRANCHES), constants={"rate": 16000})
    assert graph.inputs == ("x",)
    x = normal(2, 3)
    np.testing.assert_allclose(reference.run(graph, {"x": x})["y"], -np.sin(x), rtol=1e-6)
    with pytest.raises(Unsupported) as caught:
        imported(parsed(BRANCHES))
    assert caught.value.where == "node If_y"
    assert "--constant" in caught.value.hint


@pytest.mark.parametrize(
    ("constants", "where"),
    [
        ({"sample_rate": 1}, "tiny"),
        ({"rate": 0.5}, "input rate"),
        ({"rate": "fast"}, "input rate"),
        ({"rate": [1, 2]}, "input rate"),
        ({"x": [[1.0, 2.0]]}, "input x"),
    ],
)
def test_constants_that_do_not_fit_their_input(constants, where):
    with pytest.raises(UsageError) as caught:
        imported(parsed(BRANCHES), constants=constants)
    assert where in caught.value.where


def test_a_number_fills_a_constant_of_any_shape():
    graph = imported(
        parsed("g (float[2, 3] x, float[2, 3] y) => (float z) { z = Add(x, y) }"), constants={"y": 2}
    )
    np.testing.assert_array_equal(
        reference.run(graph, {"x": np.ones((2, 3), np.float32)})["z"], np.full((2, 3), 3)
    )


# --- loops ----------------------------------------------------------------------------------------------


LOOP = """g (float[2, 3] x, int64 steps) => (float[2, 3] last, float[k, 2, 3] all) {
    most = Constant<value_int = 3> ()
    go = Constant<value = bool {1}> ()
    first = Sin(x)
    last, all = Loop(LIMIT, GO, first) <
        body = b (int64 i, bool c, float[2, 3] h) => (bool d, float[2, 3] n, float[2, 3] s) {
        d = CONDITION
        f = CastLike(i, h)
        n = Add(h, f)
        s = Mul(n, x)
    } >
}"""


def looping(*, limit="most", go="go", condition="Identity(c)"):
    text = LOOP.replace("LIMIT", limit).replace("GO", go).replace("CONDITION", condition)
    model = parsed(text)
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    return model


def test_a_loop_of_known_steps_is_unrolled():
    inputs = {"x": normal(2, 3), "steps": np.asarray(2)}
    agree(looping(), inputs)
    agree(looping(limit="", condition="Less(i, most)"), inputs)  # ends by its condition
    agree(looping(condition="Not(c)"), inputs)
    model = looping(limit="steps")
    with pytest.raises(Unsupported) as caught:
        imported(model)
    assert "--constant" in caught.value.hint
    graph = imported(model, constants={"steps": 2})
    found = reference.run(graph, {"x": inputs["x"]})
    for name, wanted in expected(model, inputs).items():
        np.testing.assert_allclose(found[name], wanted, rtol=1e-6)


@pytest.mark.parametrize("options", [{"limit": "", "go": ""}, {"condition": "Less(i, steps)"}])
def test_loops_whose_end_is_unknown(options, monkeypatch):
    monkeypatch.setattr(loops, "MOST_NODES", 100)
    with pytest.raises(Unsupported) as caught:
        imported(looping(**options))
    assert caught.value.where == "node Loop_last"


# --- old opsets -----------------------------------------------------------------------------------------


OLD = """<ir_version: 3, opset_import: ["": OPSET]>
g (float[2, 3, 4] x, float[4] b) => (float[2, 3, 4] y) { y = Add<axis = 2, broadcast = 1>(x, b) }"""


def test_opset_6_is_converted():
    x, b = normal(2, 3, 4), normal(4)
    graph = imported(parsed(OLD.replace("OPSET", "6")))
    np.testing.assert_array_equal(reference.run(graph, {"x": x, "b": b})["y"], x + b)


@pytest.mark.parametrize(
    "text",
    [
        OLD.replace("OPSET", "5"),
        OLD.replace("OPSET", "6").replace("Add<axis = 2, broadcast = 1>", "PRelu"),
        OLD.replace("OPSET", "6").replace("Add<axis = 2, broadcast = 1>", "GlobalLpPool"),
    ],
)
def test_opsets_that_are_not_converted(text):
    with pytest.raises((Unsupported, InvalidModel)):
        imported(parsed(text))


# --- files that contradict themselves -------------------------------------------------------------------


def broken(text, change=None):
    model = parsed(text)
    if change:
        change(model)
    return model


def duplicate_weight(model):
    for value in (1.0, 2.0):
        model.graph.initializer.append(helper.make_tensor("w", TensorProto.FLOAT, [3], [value] * 3))


def weight_of_two(model):
    model.graph.initializer.append(helper.make_tensor("w", TensorProto.FLOAT, [2], [1.0, 2.0]))


def short_weight(model):
    tensor = helper.make_tensor("w", TensorProto.FLOAT, [3], [1.0, 2.0, 3.0])
    tensor.dims[0] = 4
    model.graph.initializer.append(tensor)


def swap_nodes(model):
    first, second = (onnx.NodeProto.FromString(node.SerializeToString()) for node in model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend([second, first])


def without_opset(model):
    del model.opset_import[:]


def of_opset(version):
    def change(model):
        model.opset_import[0].version = version

    return change


WEIGHTED = "g (float[2, 3] x) => (float[2, 3] y) { h = Neg(x) y = Add(h, w) }"

BROKEN = {
    "a cycle": (broken("g (float[2] x) => (float[2] y) { h = Add(x, y) y = Neg(h) }"), InvalidModel),
    "nodes out of order": (
        broken("g (float[2] x) => (float[2] y) { h = Neg(x) y = Neg(h) }", swap_nodes),
        None,
    ),
    "a name defined twice": (
        broken("g (float[2] x) => (float[2] y) { y = Neg(x) y = Abs(x) }"),
        InvalidModel,
    ),
    "a node over an input": (
        broken("g (float[2] x) => (float[2] y) { x = Neg(x) y = Abs(x) }"),
        InvalidModel,
    ),
    "an initializer that is missing": (broken(WEIGHTED), InvalidModel),
    "an initializer twice": (broken(WEIGHTED, duplicate_weight), InvalidModel),
    "an initializer that does not fit": (broken(WEIGHTED, weight_of_two), InvalidModel),
    "an initializer that is short": (broken(WEIGHTED, short_weight), InvalidModel),
    "an output that nothing computes": (
        broken("g (float[2] x) => (float[2] z) { y = Neg(x) }"),
        InvalidModel,
    ),
    "an operator that is unknown": (broken("g (float[2] x) => (float[2] y) { y = Nega(x) }"), Unsupported),
    "a domain that is unknown": (
        broken(
            '<ir_version: 8, opset_import: ["": 18, "my.ops": 1]>'
            "g (float[2] x) => (float[2] y) { y = my.ops.Neg(x) }"
        ),
        Unsupported,
    ),
    "a domain that is not imported": (
        broken("g (float[2] x) => (float[2] y) { y = my.ops.Neg(x) }"),
        InvalidModel,
    ),
    "no opset": (broken("g (float[2] x) => (float[2] y) { y = Neg(x) }", without_opset), InvalidModel),
    "an opset of the future": (
        broken("g (float[2] x) => (float[2] y) { y = Neg(x) }", of_opset(999)),
        Unsupported,
    ),
    "opset 0": (broken("g (float[2] x) => (float[2] y) { y = Neg(x) }", of_opset(0)), InvalidModel),
    "text": (broken("g (string[2] x) => (string[2] y) { y = StringNormalizer(x) }"), Unsupported),
    "trees": (
        broken(
            '<ir_version: 8, opset_import: ["": 18, "ai.onnx.ml": 3]>'
            "g (float[2, 3] x) => (float[2, 3] y) { y = ai.onnx.ml.Scaler<offset = [1.0], scale = [2.0]>(x) }"
        ),
        Unsupported,
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_files_that_contradict_themselves(case):
    model, error = BROKEN[case]
    if error is None:
        imported(model)
        return
    with pytest.raises(error) as caught:
        imported(model)
    assert type(caught.value) is error
    assert caught.value.where


@pytest.mark.slow
def test_the_command_line_cuts_a_model(tmp_path, capsys):
    model = parsed(
        """g (float[1, 3, 8, 8] x, int64 mode) => (int64[3, n] found) {
            four = Constant<value_int = 4> ()
            soft = Equal(mode, four)
            h = Conv<pads = [1, 1, 1, 1]>(x, w)
            y = If(soft) <
                then_branch = a () => (float ay) { ay = Relu(h) },
                else_branch = b () => (float by) { by = Cos(h) }
            >
            found = NonZero(y)
        }"""
    )
    weight = np.asarray(normal(4, 3, 3, 3))
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    path = tmp_path / "net.onnx"
    onnx.save(model, path)
    part = ["--outputs", "y", "--constant", "mode=4"]
    assert main(["compile", str(path), "--target", "c", "-o", str(tmp_path / "all.tow")]) == 1
    assert main(["compile", str(path), "--target", "c", "-o", str(tmp_path / "net.tow"), *part]) == 0
    np.savez(tmp_path / "samples.npz", x=normal(4, 3, 8, 8))
    quantized = str(tmp_path / "q.onnx")
    calibrate = ["--calibrate", str(tmp_path / "samples.npz")]
    assert main(["quantize", str(path), *calibrate, "-o", quantized, *part]) == 0
    assert [value.name for value in onnx.load(quantized).graph.output] == ["y"]
    assert main(["quantize", str(path), *calibrate, "-o", quantized, "--outputs", "z"]) == 2
