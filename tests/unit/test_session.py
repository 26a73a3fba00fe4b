import dataclasses

import numpy as np
import pytest

from sdk import artifact, reference
from sdk.check import check, combine
from sdk.compiler import compile
from sdk.dtypes import storage
from sdk.errors import DeviceFailed, InvalidArtifact, InvalidInput, Unsupported, UsageError
from sdk.graph import Graph, Reshape, Tensor
from sdk.preprocess import InputStatistics, Preprocessing, from_pixels
from sdk.session import Session
from sdk.target import OpenOptions
from sdk.targets import get_target, is_emulated, open_device
from tests.reference_target import NAME, ReferenceTarget, register, small_network


@pytest.fixture(autouse=True)
def registered(monkeypatch, tmp_path):
    register(monkeypatch, tmp_path / "site")
    monkeypatch.delenv("TOWLINE_DEVICE", raising=False)


@pytest.fixture
def compiled():
    return compile(small_network(), NAME)


@pytest.fixture
def picture():
    return np.random.default_rng(3).normal(0, 0.5, (1, 1, 4, 4)).astype(np.float32)


def test_head_and_tail_are_the_references(compiled, picture):
    expected = reference.run(small_network(), {"picture": picture}, "q31")
    with Session(compiled) as session:
        result = session.run({"picture": picture})
        assert list(result) == ["probabilities"]
        assert np.array_equal(result["probabilities"], expected["probabilities"])
        assert result["probabilities"].min() > 0
        assert session.device == "emulated"
        assert session.inputs["picture"].dtype == "float32"
        assert session.outputs["probabilities"].shape == (1, 3)


def test_quantised_input_in_place_of_the_float_one(compiled, picture):
    with Session(compiled) as session:
        quantized = session.quantize({"picture": picture})
        assert quantized["picture_q"].dtype == np.uint8
        assert list(session.quantized_inputs) == ["picture_q"]
        by_either = [session.run(inputs)["probabilities"] for inputs in (quantized, {"picture": picture})]
        assert np.array_equal(*by_either)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8e5m2"])
def test_outputs_that_numpy_has_no_dtype_for(dtype):
    tensors = {name: Tensor(name, (2, 3), dtype) for name in ("x", "y")}
    graph = Graph("copy", ("x",), ("y",), tensors, (Reshape("copy", ("x",), "y"),))
    given = np.arange(6, dtype=storage(dtype)).reshape(2, 3)
    with Session(compile(graph, NAME)) as session:
        assert np.array_equal(session.run({"x": given})["y"], given)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "no array"),
        ({"image": np.zeros((1, 1, 4, 4), np.float32)}, "no input named 'image'"),
        ({"picture": np.zeros((1, 4, 4), np.float32)}, r"shape \[1, 4, 4\]"),
        ({"picture": np.zeros((2, 1, 4, 4), np.float32)}, "shape"),
        ({"picture": np.full((1, 1, 4, 4), 1e39, np.float64)}, "range of float32"),
        ({"picture": [[1.0], [1.0, 2.0]]}, "not an array"),
        ({"picture": np.zeros((1, 1, 4, 4), np.complex64)}, "complex64"),
        ({"picture": np.zeros((1, 1, 4, 4), np.uint8)}, "uint8"),
        ({"picture_q": np.zeros((1, 1, 4, 4), np.int8)}, "int8"),
        ({"picture": np.full((1, 1, 4, 4), np.nan, np.float32)}, "NaN"),
        (
            {"picture": np.zeros((1, 1, 4, 4), np.float32), "picture_q": np.zeros((1, 1, 4, 4), np.uint8)},
            "no input named 'picture'",
        ),
    ],
)
def test_wrong_inputs_are_refused(compiled, inputs, message):
    with Session(compiled) as session:
        for call in (session.run, session.trace, session.quantize):
            with pytest.raises(InvalidInput, match=message):
                call(inputs)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.longdouble])
def test_other_floats_are_rounded_to_float32(compiled, picture, dtype):
    given = picture.astype(dtype)
    with Session(compiled) as session:
        result = session.run({"picture": given})["probabilities"]
        assert np.array_equal(result, session.run({"picture": given.astype(np.float32)})["probabilities"])
        assert np.array_equal(result, session.run({"picture": given.tolist()})["probabilities"])


@pytest.mark.parametrize(
    ("shape", "hint"),
    [
        ((8, 1, 4, 4), "one after the other"),
        ((1, 4, 4), "newaxis"),
        ((1, 4, 4, 1), "transpose"),
        ((2, 2), None),
    ],
)
def test_the_usual_wrong_shapes_come_with_their_remedy(compiled, shape, hint):
    with Session(compiled) as session, pytest.raises(InvalidInput) as caught:
        session.run({"picture": np.zeros(shape, np.float32)})
    assert caught.value.where == "input picture"
    assert caught.value.hint is None if hint is None else hint in caught.value.hint


def test_a_session_and_an_artefact_are_shown_in_one_line(compiled):
    with Session(compiled) as session:
        for text in (repr(session), repr(compiled), repr(compiled.graph)):
            assert "picture float32 1x1x4x4 -> probabilities float32 1x3" in text
            assert f"{compiled.graph.macs:,} MACs" in text
        assert "emulated, open" in repr(session)
        values = [session, compiled, compiled.program, compiled.graph, session.profile()]
        values += [
            *compiled.graph.tensors.values(),
            *(t.quantization for t in compiled.graph.tensors.values()),
        ]
        for value in values:
            assert len(repr(value)) < 300
            assert "\n" not in repr(value)
            assert "array(" not in repr(value)
            assert "b'" not in repr(value)
    assert "emulated, closed" in repr(session)


def test_a_graph_that_lacks_a_tensor_is_shown_too():
    graph = small_network()
    broken = dataclasses.replace(graph, tensors={})
    assert graph.name in repr(broken)


# -- devices of other targets -----------------------------------------------------------------------------


def test_a_device_of_another_target_is_recognised():
    with pytest.raises(UsageError) as caught:
        open_device("hexagon-v65", "usb:1234")
    assert "amd-gfx1100" in str(caught.value)
    assert "fastrpc" in caught.value.hint
    with pytest.raises(UsageError) as caught:
        open_device("c", "toaster")
    assert "host" in caught.value.hint


@pytest.mark.parametrize("part", ["hexagon-v69", "hexagon-v73", "hexagon-v75"])
def test_a_later_part_is_answered_with_the_target_whose_code_it_runs(part):
    with pytest.raises(UsageError) as caught:
        get_target(part)
    assert "hexagon-v68" in caught.value.hint


def test_a_misspelt_target_is_answered_with_the_nearest():
    with pytest.raises(UsageError, match="no target") as caught:
        get_target("hexagonv65")
    assert caught.value.hint.startswith("did you mean hexagon-v65?")


def test_only_the_time_of_an_emulator_is_emulated():
    assert is_emulated("hexagon-v65", None)
    assert is_emulated("amd-gfx1100", "emulated?gpu=gfx1100")
    assert not is_emulated("amd-gfx1100", "usb")
    assert not is_emulated("c", "emulated")


# -- arrays of pixels -------------------------------------------------------------------------------------


def coloured(shape):
    """What turns pixels into an input of `shape`, all channels different."""
    return Preprocessing(shape, None, "RGB", 1 / 255, (0.1, 0.2, 0.3), (0.5, 0.6, 0.7))


def test_pixels_are_what_the_picture_of_them_is():
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, (6, 5, 3), np.uint8)
    recipe = coloured((3, 4))
    expected = recipe.apply(image.fromarray(pixels))
    assert np.array_equal(recipe.apply(from_pixels(pixels, "rgb")), expected)
    assert np.array_equal(recipe.apply(from_pixels(pixels[:, :, ::-1], "bgr")), expected)
    grey = recipe.apply(from_pixels(pixels[:, :, 0], "rgb"))
    assert np.array_equal(grey, recipe.apply(from_pixels(pixels[:, :, :1], "bgr")))
    assert np.array_equal(grey, recipe.apply(from_pixels(np.stack([pixels[:, :, 0]] * 3, 2), "rgb")))


def test_a_frame_is_prepared_and_classified(compiled):
    image = pytest.importorskip("PIL.Image")
    compiled.preprocessing = Preprocessing((4, 4), None, "GRAY", 1 / 255, (0.5,), (0.5,)).to_json()
    frame = np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8)
    with Session(compiled) as session:
        expected = session.prepare(image.fromarray(frame))["picture"]
        assert np.array_equal(session.prepare(frame[:, :, ::-1], channels="bgr")["picture"], expected)
        assert not np.array_equal(session.prepare(frame[:, :, ::-1])["picture"], expected)
        assert session.classify(frame[:, :, ::-1], channels="bgr") == session.classify(image.fromarray(frame))


@pytest.mark.parametrize(
    ("picture", "channels", "error"),
    [
        (np.zeros((4, 4, 3), np.float32), "rgb", InvalidInput),
        (np.zeros((1, 4, 4, 3), np.uint8), "rgb", InvalidInput),
        (np.zeros((4, 4, 4), np.uint8), "rgb", InvalidInput),
        (np.zeros((4, 0, 3), np.uint8), "rgb", InvalidInput),
        (np.zeros((4, 4, 3), np.uint8), "hsv", UsageError),
        ("cat.png", "bgr", UsageError),
        (7, "rgb", InvalidInput),
    ],
)
def test_what_is_not_a_frame_is_refused(compiled, picture, channels, error):
    compiled.preprocessing = Preprocessing((4, 4), None, "GRAY", 1 / 255, (0.5,), (0.5,)).to_json()
    with Session(compiled) as session, pytest.raises(error) as caught:
        session.prepare(picture, channels=channels)
    assert caught.value.hint


def test_path_and_artefact_and_graph_give_the_same(compiled, picture, tmp_path):
    path = tmp_path / "net.tow"
    again = compile(small_network(), NAME, path, labels=["a", "b", "c"])
    assert {"import", "optimise", "code", "write"} <= again.seconds.keys()
    with Session(path) as from_path, Session(compiled) as from_memory:
        results = [session.run({"picture": picture})["probabilities"] for session in (from_path, from_memory)]
    assert np.array_equal(*results)


def test_trace_has_every_layer_of_the_body(compiled, picture):
    with Session(compiled) as session:
        assert set(session.trace({"picture": picture})) == {"features", "flat", "logits_q"}
        assert len(session.profile().layers) == 3


def test_close_is_idempotent_and_final(compiled, picture):
    before = ReferenceTarget.opened
    with Session(compiled) as session:
        assert ReferenceTarget.opened == before + 1
    session.close()
    assert ReferenceTarget.opened == before
    with pytest.raises(UsageError, match="closed"):
        session.run({"picture": picture})


def test_device_comes_from_the_argument_or_the_environment(compiled, monkeypatch):
    monkeypatch.setenv("TOWLINE_DEVICE", "abacus")
    with pytest.raises(UsageError, match="abacus"):
        Session(compiled)
    with Session(compiled, "emulated") as session:
        assert session.device == "emulated"


def test_options_reach_the_target(compiled, monkeypatch, tmp_path):
    seen = []
    real = ReferenceTarget.open

    def opened(self, device, options):
        seen.append(options)
        return real(self, device)

    monkeypatch.setattr(ReferenceTarget, "open", opened)
    options = OpenOptions(firmware=tmp_path)
    Session(compiled, options=options).close()
    Session(compiled).close()
    assert seen == [options, OpenOptions()]


def test_unknown_target_is_refused(compiled):
    compiled.program.target = "abacus"
    with pytest.raises(UsageError, match="abacus"):
        Session(compiled)


def test_program_of_another_network_is_refused(compiled):
    compiled.program.graph = dataclasses.replace(compiled.program.graph, outputs=("flat",))
    with pytest.raises(InvalidArtifact):
        Session(compiled)


def test_silent_device_is_an_error(compiled, picture):
    with Session(compiled, "silent") as session:
        for call in (session.run, session.trace):
            with pytest.raises(DeviceFailed, match="did not answer"):
                call({"picture": picture})


def test_check_counts_every_element(compiled, picture):
    with Session(compiled) as session:
        result = check(compiled, session, {"picture": picture})
    assert [layer.node for layer in result.layers] == ["conv", "flatten", "gemm"]
    assert result.to_json() == {"elements": 32 + 32 + 3, "mismatches": 0, "max_abs_diff": 0}
    assert result.first_mismatch is None


def test_check_finds_one_wrong_bit(compiled, picture):
    with Session(compiled, "wrong") as session:
        result = check(compiled, session, {"picture": picture})
    assert (result.mismatches, result.max_abs_diff) == (1, 2)
    found = result.first_mismatch
    assert found is not None
    assert (found.node, found.op, found.tensor) == ("conv", "Conv", "features")
    assert found.first is not None
    index, actual, expected = found.first
    assert index == (0, 0, 0, 1)
    assert actual == expected ^ 2
    assert combine([result, result]).mismatches == 2


def test_classify_ranks_labels_and_warns(picture, tmp_path, caplog):
    image = pytest.importorskip("PIL.Image")
    recipe = Preprocessing((4, 4), None, "GRAY", 1 / 255, (0.5,), (0.5,))
    statistics = InputStatistics.of([picture, -picture], "NCHW")
    compiled = compile(small_network(), NAME, labels=["cat", "dog", "tench"])
    compiled.preprocessing, compiled.input_statistics = recipe.to_json(), statistics.to_json()
    artifact.save(compiled, tmp_path / "net.tow")
    path = tmp_path / "picture.png"
    image.fromarray(np.arange(0, 256, 16, dtype=np.uint8).reshape(4, 4)).save(path)
    with Session(tmp_path / "net.tow") as session:
        best = session.classify(path, top=2)
        scores = session.run(session.prepare(path))["probabilities"][0]
        assert [p.index for p in best] == list(np.argsort(-scores)[:2])
        assert best[0].label == ["cat", "dog", "tench"][best[0].index]
        assert best[0].score == scores.max()
        assert not caplog.records
        image.new("L", (4, 4), 128).save(path)
        session.classify(path)
        assert "constant" in caplog.text
        with pytest.raises(UsageError, match="top must"):
            session.classify(path, top=0)
        with pytest.raises(InvalidInput, match="no such picture"):
            session.classify(tmp_path / "none.png")


def test_pictures_need_a_recipe(compiled):
    with Session(compiled) as session, pytest.raises(InvalidInput, match="how a picture"):
        session.classify("picture.png")


def test_quantised_outputs_are_ranked_as_probabilities():
    whole = small_network()
    graph = dataclasses.replace(whole, outputs=("logits_q",), nodes=whole.nodes[:4])
    with Session(compile(graph, NAME)) as session:
        ranked = session.rank({"logits_q": np.array([[130, 255, 255]], np.uint8)})
    assert [(p.index, p.label) for p in ranked] == [(1, None), (2, None), (0, None)]
    assert ranked[2].score == pytest.approx(np.exp(-25) / (2 + np.exp(-25)))


@pytest.mark.parametrize(
    "outputs",
    [
        None,
        [1, 2],
        {},
        {"probabilities": None},
        {"probabilities": "abc"},
        {"probabilities": np.zeros(3, np.float32)},
        {"probabilities": np.zeros((1, 3), np.uint8)},
    ],
)
def test_only_what_run_returned_is_ranked(compiled, outputs):
    with Session(compiled) as session, pytest.raises(InvalidInput, match="probabilities") as caught:
        session.rank(outputs)
    assert caught.value.hint == "give what run returned"


@pytest.mark.parametrize("top", [0, "3", 2.5, None])
def test_the_number_of_classes_is_a_whole_one(compiled, picture, top):
    with Session(compiled) as session, pytest.raises(UsageError, match="top must"):
        session.rank(session.run({"picture": picture}), top)


def test_arrays_are_not_pictures(compiled, picture):
    compiled.preprocessing = Preprocessing((4, 4), None, "GRAY", 1 / 255, (0.5,), (0.5,)).to_json()
    with Session(compiled) as session:
        for wrong in (picture, None, 5):
            with pytest.raises(InvalidInput, match="not a picture"):
                session.classify(wrong)


@pytest.mark.parametrize("labels", [[1, 2, 3], ["a", "b", None], ["a", "b", "\udcff"]])
def test_labels_are_text(labels):
    with pytest.raises(InvalidInput, match="not text"):
        compile(small_network(), NAME, labels=labels)


def test_statistics_take_what_is_like_an_array(compiled, picture):
    compiled.input_statistics = InputStatistics.of([picture, -picture], "NCHW").to_json()
    with Session(compiled) as session:
        assert session.unlike_calibration({"picture": picture.tolist()}) is None
        assert session.unlike_calibration({"picture": picture}) is None


def test_what_is_not_a_classifier_is_not_ranked():
    graph = dataclasses.replace(small_network(), outputs=("features",), nodes=small_network().nodes[:2])
    with Session(compile(graph, NAME)) as session, pytest.raises(InvalidInput, match="not a classifier"):
        session.rank({"features": np.zeros((1, 2, 4, 4), np.uint8)})


def test_compile_refuses_unknown_target_and_missing_model(tmp_path):
    with pytest.raises(UsageError, match="abacus"):
        compile(small_network(), "abacus")
    with pytest.raises(UsageError, match="no such file"):
        compile(tmp_path / "none.onnx", NAME)


def test_compile_refuses_what_the_target_refuses(monkeypatch):
    from sdk.target import Verdict

    def supports(self, graph: Graph, node):
        return Verdict(node.op != "Gemm", "too wide", "make it narrower")

    monkeypatch.setattr(ReferenceTarget, "supports", supports)
    with pytest.raises(Unsupported, match=r"node gemm: .*too wide") as caught:
        compile(small_network(), NAME)
    assert caught.value.hint.startswith("make it narrower")
