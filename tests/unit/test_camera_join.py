"""A camera in front of a network: the joined graph on targets, in the artefact, and on the command line."""

import dataclasses
import json

import numpy as np
import pytest

from sdk import artifact, compiler
from sdk.camera.inputs import Camera
from sdk.camera.join import join
from sdk.camera.nv12 import Nv12
from sdk.check import check
from sdk.errors import InvalidArtifact, InvalidInput, Unsupported, UsageError
from sdk.graph import Quantization, Quantize
from sdk.importers.onnx import graph_of
from sdk.preprocess import default_for
from sdk.session import Session
from sdk.zoo.driving import driving
from sdk.zoo.mobilenet import mobilenet_v2
from tests import nv12
from tests.contract.targets import quick
from tests.plain_graphs import assert_defined
from towline.cli import main

FORM = Nv12.parse("nv12:61x47:66:50")
SIZE = (16, 24)
PLANES = nv12.network({"img": (1, 6, *SIZE)}, "uint8")
TARGETS = ["c", "amd-gfx1100", pytest.param("adreno-a6xx", marks=pytest.mark.slow)]


def feeds(name="img", seed=0):
    return {f"{name}_frame": nv12.frame(FORM, seed), f"{name}_matrix": nv12.PERSPECTIVE}


@pytest.mark.slow
@pytest.mark.parametrize("sampling", ["nearest", "bilinear"])
@pytest.mark.parametrize("target", TARGETS)
def test_six_planes_on_a_target(target, sampling):
    joined = join(PLANES, [Camera(FORM, warp=True, sampling=sampling)], None)
    assert joined.graph.inputs == ("img_frame", "img_matrix")
    assert_defined(quick(target), joined.graph, feeds())


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_pixels_on_a_target(target):
    graph = nv12.network({"x": (1, 3, *SIZE)})
    joined = join(graph, [Camera(FORM, warp=True, sampling="bilinear")], None)
    assert_defined(quick(target), joined.graph, feeds("x"))


def test_what_a_session_gives():
    with Session(compiler.compile(PLANES, "c", cameras=[Camera(FORM, warp=True)], host="none")) as session:
        got = session.run(feeds())["img_out"][0]
    expected, sure = nv12.six(feeds()["img_frame"], FORM, nv12.PERSPECTIVE, SIZE, "nearest")
    assert np.array_equal(got[sure], expected[sure])


@pytest.mark.slow
@pytest.mark.parametrize("target", ["c", "amd-gfx1100"])
def test_in_front_of_a_quantised_network_all_runs_on_the_device(target):
    """The Quantize that is the host's at a network's head is the device's behind a camera."""
    quantization = Quantization.per_tensor(0.02, 110)
    graph = nv12.network({"x": (1, 3, *SIZE)}, "uint8", quantization)
    network = compiler.compile(graph, target, cameras=[Camera(FORM, warp=True)], host="none")
    assert [segment.place for segment in network.segments] == ["device"]
    assert any(isinstance(node, Quantize) for node in network.graph.nodes)
    with Session(network, opened=quick(target).open(None)) as session:
        found = check(network, session, feeds("x"))
    assert found.mismatches == 0
    assert found.layers[-1].tensor == "x_out"


def test_earlier_frames_are_a_state():
    graph = nv12.network({"img": (1, 12, *SIZE)}, "uint8")
    network = compiler.compile(graph, "c", cameras=[Camera(FORM, warp=True, skip=2)])
    assert network.states == (("next_img_history", "img_history"),)
    seen = []
    with Session(network) as session:
        for number in range(4):
            found = session.step(feeds(seed=number))["img_out"][0]
            assert np.array_equal(found[:6], seen[number - 2] if number >= 2 else np.zeros_like(found[:6]))
            seen.append(found[6:])
    assert not np.array_equal(seen[0], seen[1])


@pytest.mark.slow
def test_without_a_warp_the_middle_is_cut_out():
    """As a picture's is by the same recipe; an eighth of a frame that changes slowly."""
    rows, columns = np.mgrid[0:96, 0:128]
    form = Nv12.parse("nv12:128x96")
    data = np.full(form.shape, 128, np.uint8)
    data[:96] = 16 + rows + columns // 2
    recipe = default_for((1, 1, 8, 8))
    stretched = compiler.compile(
        nv12.network({"x": (1, 1, 8, 8)}), "c", cameras=[Camera(form)], preprocessing=recipe
    )
    assert stretched.graph.inputs == ("x_frame",)
    with Session(stretched) as session:
        got = session.run({"x_frame": data})["x_out"][0, 0]
    y, x = (np.arange(8) + 0.5) * 12 - 0.5, (np.arange(8) + 0.5) * 16 - 0.5
    expected = (y[:, None] + np.floor(np.rint(x) / 2)) / 219
    assert np.abs(got - expected).max() < 1.1 / 219


def test_float16_networks_keep_places_in_float32():
    """Half precision knows 1928 columns to a pixel or two."""
    form = Nv12.parse("nv12:1928x16")
    graph = nv12.network({"x": (1, 1, 4, 6)})
    network = compiler.compile(graph, "c", cameras=[Camera(form, warp=True)], float16=True)
    data = np.full(form.shape, 16, np.uint8)
    data[:16, 1901::2] = 235
    with Session(network) as session:
        got = session.run({"x_frame": data, "x_matrix": nv12.shifted(1900, 0)})["x_out"]
    assert np.allclose(got, [[[[0, 1, 0, 1, 0, 1]] * 4]], atol=1e-3)


@pytest.mark.slow
def test_two_cameras_of_the_driving_network():
    """In the small: its inputs, uint8 [1, 12, 128, 256] both, its own state and two histories."""
    cameras = [Camera(Nv12.parse("nv12:1928x1208"), name, warp=True) for name in ("img", "big_img")]
    graph = graph_of(driving(0.25).model())
    joined = join(graph, cameras, None, (("next_features_buffer", "features_buffer"),))
    assert joined.states == (("next_img_history", "img_history"), ("next_big_img_history", "big_img_history"))
    assert joined.graph.tensor("img_frame").shape == (1812, 1928)
    assert [(one.input, one.size) for one in joined.cameras] == [("img", (256, 512)), ("big_img", (256, 512))]


@pytest.mark.parametrize(
    ("inputs", "camera", "error"),
    [
        ({"x": (1, 5, 8, 8)}, Camera(FORM), UsageError),  # no picture
        ({"x": (1, 5, 8, 8)}, Camera(FORM, "x"), Unsupported),
        ({"x": (1, 3, 8, 8), "y": (1, 3, 8, 8)}, Camera(FORM), UsageError),  # which?
        ({"x": (1, 3, 8, 8)}, Camera(FORM, "z"), UsageError),
    ],
)
def test_cameras_that_do_not_fit(inputs, camera, error):
    with pytest.raises(error):
        join(nv12.network(inputs), [camera], None)


def test_two_cameras_for_one_input():
    with pytest.raises(UsageError):
        join(PLANES, [Camera(FORM, "img"), Camera(FORM, "img")], None)


def test_a_recipe_of_another_size():
    with pytest.raises(InvalidInput):
        join(nv12.network({"x": (1, 3, 8, 8)}), [Camera(FORM)], default_for((1, 3, 9, 9)))


# --- the artefact -------------------------------------------------------------------------------------------


def test_the_artefact_says_what_its_cameras_are(tmp_path):
    network = compiler.compile(PLANES, "c", tmp_path / "net.tow", cameras=[Camera(FORM, warp=True)])
    loaded = artifact.load(tmp_path / "net.tow")
    assert loaded.cameras == network.cameras
    (camera,) = loaded.cameras
    assert (camera.input, camera.frame, camera.matrix) == ("img", "img_frame", "img_matrix")
    assert (camera.format, camera.size) == (str(FORM), (32, 48))
    with Session(loaded) as session:
        found = check(network, session, feeds())
        assert found.mismatches == 0
        with pytest.raises(InvalidInput):
            session.prepare(np.zeros((8, 8, 3), np.uint8))


@pytest.mark.parametrize(
    "change", [{"frame": "none"}, {"matrix": "img_frame"}, {"format": "nv12:8x8"}, {"format": "?"}]
)
def test_an_artefact_whose_cameras_do_not_fit(change, tmp_path):
    network = compiler.compile(PLANES, "c", cameras=[Camera(FORM, warp=True)])
    network.cameras = (dataclasses.replace(network.cameras[0], **change),)
    artifact.save(network, tmp_path / "net.tow")
    with pytest.raises(InvalidArtifact):
        artifact.load(tmp_path / "net.tow")


# --- the command line ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "net.onnx"
    path.write_bytes(mobilenet_v2(width=0.1, size=32).SerializeToString())
    return path


def call(capsys, *args):
    code = main([*map(str, args), "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_compile(model, tmp_path, capsys):
    out = tmp_path / "net.tow"
    options = ("--camera", FORM, "--warp", "--sampling", "bilinear", "--yuv", "bt709", "--no-host")
    code, document = call(capsys, "compile", model, "--target", "c", "-o", out, *options)
    assert code == 0
    (camera,) = document["result"]["cameras"]
    assert camera["format"] == str(FORM)
    assert [one["place"] for one in document["result"]["segments"]] == ["device"]
    code, document = call(capsys, "inspect", out)
    assert (code, document["result"]["cameras"]) == (0, [camera])


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ("--warp",),
        ("--sampling", "bilinear"),
        ("--frame-skip", "2"),
        ("--camera", "1928x1208"),
        ("--camera", "other=nv12:64x48"),
        ("--camera", "nv12:64x48", "--camera", "nv12:64x48"),
        ("--camera", "input=nv12:64x48", "--camera", "input=nv12:64x48"),
    ],
)
def test_compile_with_options_that_do_not_fit(options, model, tmp_path, capsys):
    code, document = call(capsys, "compile", model, "--target", "c", "-o", tmp_path / "net.tow", *options)
    assert (code, document["error"]["code"]) == (2, "usage")
