"""The network from an NV12 frame to planes or pixels, run by onnxruntime, against numpy."""

import dataclasses

import numpy as np
import onnxruntime
import pytest

from sdk.camera.nv12 import Nv12
from sdk.errors import UsageError
from sdk.preprocess import default_for
from sdk.zoo import nv12 as network
from sdk.zoo.nv12 import Plane, pixels, six_planes
from tests import nv12

FORMATS = ("nv12:64x48", "nv12:64x48:80", "nv12:61x47", "nv12:61x47:66:50")
MATRICES = {
    "identity": nv12.IDENTITY,
    "shifted": nv12.shifted(6, -4),
    "perspective": nv12.PERSPECTIVE,
    "away": nv12.AWAY,
}
SIZE = (16, 24)


def run(built, feeds):
    session = onnxruntime.InferenceSession(built.model().SerializeToString())
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds), strict=True))


def planes(form, matrix, sampling, data):
    built = six_planes(form, SIZE, sampling=sampling)
    return run(built, {"frame": data, "matrix": matrix})["output"][0]


def agrees(got, expected, sure, within):
    assert sure.mean() > 0.9
    return bool((np.abs(got - expected)[sure] <= within).all())


@pytest.mark.slow
@pytest.mark.parametrize("matrix", MATRICES)
@pytest.mark.parametrize("sampling", ["nearest", "bilinear"])
@pytest.mark.parametrize("text", FORMATS)
def test_six_planes(text, sampling, matrix):
    form = Nv12.parse(text)
    data = nv12.frame(form)
    got = planes(form, MATRICES[matrix], sampling, data)
    assert got.dtype == np.uint8
    expected, sure = nv12.six(data, form, MATRICES[matrix], SIZE, sampling)
    assert agrees(got, expected, sure, 0 if sampling == "nearest" else 0.51)


@pytest.mark.parametrize("sampling", ["nearest", "bilinear"])
def test_without_a_warp_pixels_stay_what_they_are(sampling):
    """The identity cuts out the first rows and columns; four luma planes are the phases of one picture."""
    form = Nv12.parse("nv12:61x47:66:50")
    data = nv12.frame(form)
    got = planes(form, nv12.IDENTITY, sampling, data)
    luma = data[:32, :48]
    expected = [luma[0::2, 0::2], luma[1::2, 0::2], luma[0::2, 1::2], luma[1::2, 1::2]]
    expected += [data[50:66, 0:48:2], data[50:66, 1:48:2]]
    assert np.array_equal(got, np.stack(expected))


def test_half_way_between_two_pixels_the_even_one_is_the_nearest():
    """As numpy and the drivers of cars today round; a coordinate from -1 to 1 would not know any more."""
    form = Nv12.parse("nv12:64x48")
    data = nv12.frame(form)
    got = planes(form, nv12.shifted(0.5, 0), "nearest", data)
    assert np.array_equal(got[0], data[0:32:2, 0:48:2])  # 0.5, 2.5 and so on: down
    assert np.array_equal(got[2], data[0:32:2, 2:50:2])  # 1.5, 3.5: up


def test_a_place_of_no_pixel_is_within_the_frame():
    form = Nv12.parse("nv12:64x48")
    matrix = np.array([[0, 0, 0], [0, 1, 0], [0, 0, 0]], np.float32)  # 0/0 and y/0
    data = nv12.frame(form)
    got = planes(form, matrix, "nearest", data)
    assert got[0, 0, 0] == data[0, 0]
    assert got[1, 0, 0] == data[47, 0]


MUTATIONS = {
    "u and v change places": lambda patch: patch.setattr(
        network, "FIELD", (*network.FIELD[:4], Plane(2), Plane(1))
    ),
    "phases change places": lambda patch: patch.setattr(
        network, "FIELD", tuple(network.FIELD[i] for i in (0, 2, 1, 3, 4, 5))
    ),
    "half a pixel aside": lambda patch: patch.setattr(
        network, "FIELD", tuple(dataclasses.replace(one, column=one.column + 0.5) for one in network.FIELD)
    ),
    "rows for columns": lambda patch: patch.setattr(
        network,
        "FIELD",
        tuple(dataclasses.replace(one, row=one.column, column=one.row) for one in network.FIELD),
    ),
}


@pytest.mark.parametrize("sampling", ["nearest", "bilinear"])
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_mutation_is_seen(mutation, sampling, monkeypatch):
    form = Nv12.parse("nv12:64x48")
    data = nv12.frame(form)
    MUTATIONS[mutation](monkeypatch)
    expected, sure = nv12.six(data, form, nv12.PERSPECTIVE, SIZE, sampling)
    assert not agrees(planes(form, nv12.PERSPECTIVE, sampling, data), expected, sure, 0.51)


def test_a_matrix_whose_rows_change_places_is_seen():
    form = Nv12.parse("nv12:64x48")
    data = nv12.frame(form)
    expected, sure = nv12.six(data, form, nv12.PERSPECTIVE, SIZE, "nearest")
    assert not agrees(planes(form, nv12.PERSPECTIVE[[1, 0, 2]], "nearest", data), expected, sure, 0.51)


def test_of_two_frames_the_older_comes_first():
    """And the newer waits for its turn in the history: `skip` steps later it is the older one."""
    form = Nv12.parse("nv12:64x48")
    built = six_planes(form, SIZE, frames=2, skip=3)
    history = np.zeros((1, 18, *SIZE), np.uint8)
    seen = []
    for number in range(5):
        feeds = {"frame": nv12.frame(form, number), "matrix": nv12.IDENTITY, "history": history}
        found = run(built, feeds)
        history = found["next_history"]
        older, newer = found["output"][0, :6], found["output"][0, 6:]
        assert np.array_equal(older, seen[number - 3] if number >= 3 else np.zeros_like(older))
        seen.append(newer)
    assert not np.array_equal(seen[0], seen[1])


@pytest.mark.parametrize("sampling", ["nearest", "bilinear"])
@pytest.mark.parametrize("text", ["nv12:64x48", "nv12:61x47:66:50"])
def test_colours(text, sampling):
    form = Nv12.parse(text)
    data = nv12.frame(form)
    recipe = default_for((1, 3, *SIZE))
    expected, sure = nv12.rgb(data, form, nv12.PERSPECTIVE, SIZE, sampling)
    got = run(pixels(form, recipe, sampling=sampling), {"frame": data, "matrix": nv12.PERSPECTIVE})["output"]
    mean, std = (np.reshape(numbers, (3, 1, 1)) for numbers in (recipe.mean, recipe.std))
    assert agrees(255 * (got[0] * std + mean), expected, sure, 0.02)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("yuv", "colour", "expected"),
    [
        ("bt601", (81, 90, 240), (255, 0, 0)),  # ITU-R BT.601's red, green and blue in whole numbers
        ("bt601", (145, 54, 34), (0, 255, 0)),
        ("bt601", (41, 240, 110), (0, 0, 255)),
        ("bt709", (63, 102, 240), (255, 0, 0)),
        ("bt601-full", (76, 85, 255), (254, 0, 0)),
        ("bt709-full", (18, 255, 116), (0, 0, 255)),
        ("bt709", (235, 128, 128), (255, 255, 255)),
    ],
)
def test_known_colours(yuv, colour, expected):
    form = Nv12.parse("nv12:8x8")
    data = np.empty(form.shape, np.uint8)
    data[:8], data[8:, 0::2], data[8:, 1::2] = colour
    recipe = default_for((1, 3, 4, 4))
    feeds = {"frame": data, "matrix": nv12.IDENTITY}
    got = run(pixels(form, recipe, yuv=yuv, dtype="uint8"), feeds)["output"][0, :, 0, 0]
    assert np.abs(got.astype(int) - expected).max() <= 2
    turned = dataclasses.replace(recipe, colour="BGR", layout="NHWC")
    again = run(pixels(form, turned, yuv=yuv, dtype="uint8"), feeds)["output"]
    assert again.shape == (1, 4, 4, 3)
    assert np.array_equal(again[0, 0, 0], got[::-1])


def test_grey_and_inverted():
    form = Nv12.parse("nv12:8x8")
    data = np.full(form.shape, 235, np.uint8)
    recipe = dataclasses.replace(default_for((1, 1, 4, 4)), invert=True)
    got = run(pixels(form, recipe), {"frame": data, "matrix": nv12.IDENTITY})["output"]
    assert got.shape == (1, 1, 4, 4)
    assert np.abs(got).max() < 1e-5


@pytest.mark.parametrize(
    "text",
    [
        "nv12:0x4",
        "nv12:64x48:62",
        "nv12:64x48:65",
        "nv12:64x48:64:40",
        "nv12:8000x6000",
        "yuyv:64x48",
        "64x48",
    ],
)
def test_formats_that_are_none(text):
    with pytest.raises(UsageError):
        Nv12.parse(text)


@pytest.mark.parametrize(
    "text", ["nv12:1928x1208", "nv12:1928x1208:2048", "nv12:1928x1208:2048:1216", "nv12:61x47"]
)
def test_a_format_is_written_as_it_is_read(text):
    assert str(Nv12.parse(text)) == text
