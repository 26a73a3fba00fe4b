"""Frames from V4L2 cameras, through a substitute of linuxpy, and from raw video files."""

import argparse
import errno
import sys

import numpy as np
import pytest

from sdk import compiler
from sdk.camera.inputs import Camera
from sdk.camera.nv12 import Nv12
from sdk.camera.sources import CameraFrames, frames, raw_frames
from sdk.errors import DeviceMissing, EnvironmentMissing, InvalidInput, Unsupported, UsageError
from tests import fake_v4l2, nv12
from towline.cli.camera_source import add_camera_source, camera_source

FORM = Nv12.parse("nv12:8x4")
PATH = "/dev/video7"


def seen(count, form=FORM):
    return [nv12.frame(form, seed) for seed in range(count)]


# --- V4L2 ---------------------------------------------------------------------------------------------------


def test_frames_of_a_camera(monkeypatch):
    expected = seen(3)
    given = [expected[0].tobytes(), expected[1].tobytes() + b"padding", expected[2].tobytes()]
    camera = fake_v4l2.Camera(("MJPEG", "NV12"), frames=given).installed(monkeypatch)
    stream = frames(PATH, FORM)
    found = [next(stream) for _ in given]
    assert (camera.path, camera.asked) == (PATH, (8, 4, "NV12"))
    assert all(map(np.array_equal, found, expected))
    stream.close()
    assert (camera.opened, camera.streaming) == (0, False)


def test_frames_that_the_driver_marks_as_damaged_are_left_out(monkeypatch):
    first, second = seen(2)
    damaged = first.tobytes()[:10], fake_v4l2.BufferFlag.ERROR
    fake_v4l2.Camera(frames=[damaged, second.tobytes()]).installed(monkeypatch)
    assert np.array_equal(next(frames(PATH, FORM)), second)


@pytest.mark.parametrize("text", ["nv12:8x4", "nv12:8x3:12:5"])
def test_yuyv_becomes_nv12(monkeypatch, text):
    form = Nv12.parse(text)
    packed = np.random.default_rng(0).integers(0, 256, (form.height, form.width, 2), np.uint8)
    fake_v4l2.Camera(("YUYV",), (form.width, form.height), frames=[packed.tobytes()]).installed(monkeypatch)
    found = next(frames(PATH, form))
    assert found.shape == form.shape
    assert np.array_equal(found[: form.height, : form.width], packed[:, :, 0])
    for row in range(form.chroma_height):
        pair = packed[2 * row : 2 * row + 2, :, 1].astype(int)
        assert np.array_equal(
            found[form.rows + row, : form.width], (pair.sum(0) + len(pair) - 1) // len(pair)
        )


@pytest.mark.parametrize(
    ("problem", "error"),
    [
        (FileNotFoundError(errno.ENOENT, "x"), DeviceMissing),
        (PermissionError(errno.EACCES, "x"), DeviceMissing),
        (OSError(errno.EBUSY, "x"), DeviceMissing),
        (OSError(errno.ENODEV, "x"), DeviceMissing),
        (OSError(errno.EIO, "x"), DeviceMissing),
        (OSError(errno.ENOTTY, "x"), Unsupported),
        (fake_v4l2.V4L2Error("x"), Unsupported),
    ],
)
@pytest.mark.parametrize("when", ["opening", "setting"])
def test_a_camera_that_cannot_be_used(monkeypatch, when, problem, error):
    camera = fake_v4l2.Camera(**{when: problem}).installed(monkeypatch)
    with pytest.raises(error) as caught:
        next(frames(PATH, FORM))
    assert caught.value.where == PATH
    assert camera.opened == 0


@pytest.mark.parametrize("how", [{"formats": ("MJPEG",)}, {"size": (16, 4)}, {"stride": 16}])
def test_a_format_that_a_camera_does_not_offer(monkeypatch, how):
    camera = fake_v4l2.Camera(**how).installed(monkeypatch)
    with pytest.raises(Unsupported):
        next(frames(PATH, FORM))
    assert camera.opened == 0


@pytest.mark.parametrize(
    "end", [OSError(errno.ENODEV, "x"), OSError(errno.EIO, "x"), ValueError("x"), None, b"few"]
)
def test_a_camera_that_fails_in_mid_stream(monkeypatch, end):
    expected = seen(2)
    given = [*(one.tobytes() for one in expected), end]
    camera = fake_v4l2.Camera(frames=given).installed(monkeypatch)
    found = []
    with pytest.raises(InvalidInput) as caught:
        found.extend(frames(PATH, FORM))  # keeps what came before the error
    assert caught.value.where.startswith(PATH)
    assert all(map(np.array_equal, found, expected))
    assert len(found) == 2
    assert (camera.opened, camera.streaming) == (0, False)


def test_without_linuxpy(monkeypatch):
    monkeypatch.setitem(sys.modules, "linuxpy.video.device", None)
    with pytest.raises(EnvironmentMissing) as caught:
        next(frames(PATH, FORM))
    assert "camera" in caught.value.hint


def test_the_real_library_has_what_is_used():
    """Names alone: no camera is opened."""
    video = pytest.importorskip("linuxpy.video.device")
    for name in ("formats", "set_format", "get_format", "open", "close"):
        assert callable(getattr(video.VideoCapture, name))
    assert callable(video.FrameReader.read)
    assert {"NV12", "YUYV"} <= {one.name for one in video.PixelFormat}
    assert video.BufferFlag.ERROR
    assert issubclass(video.V4L2Error, Exception)
    with pytest.raises(DeviceMissing):
        next(frames("/dev/video-that-is-not-there", FORM))
    with pytest.raises(Unsupported):
        next(frames("/dev/null", FORM))


# --- files --------------------------------------------------------------------------------------------------


def test_frames_of_a_file(tmp_path, caplog):
    form = Nv12.parse("nv12:7x3:12:5")
    expected = seen(3, form)
    path = tmp_path / "road.nv12"
    path.write_bytes(np.stack(expected).tobytes())
    found = list(frames(str(path), form))
    assert all(map(np.array_equal, found, expected))
    assert len(found) == 3
    assert not caplog.records


def test_a_last_frame_that_is_cut_short(tmp_path, caplog):
    path = tmp_path / "road.nv12"
    path.write_bytes(np.stack(seen(3)).tobytes()[:-1])
    assert len(list(raw_frames(str(path), FORM))) == 2
    assert len(caplog.records) == 1


def test_files_that_hold_no_frame(tmp_path):
    path = tmp_path / "road.nv12"
    path.write_bytes(bytes(FORM.nbytes - 1))
    with pytest.raises(InvalidInput):
        raw_frames(str(path), FORM)
    with pytest.raises(UsageError):
        raw_frames(str(tmp_path / "none.nv12"), FORM)


# --- what a network takes -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two():
    """A network of two pictures, with a camera in front of each; the second has a fixed geometry."""
    graph = nv12.network({"left": (1, 3, 4, 4), "right": (1, 1, 4, 6)})
    cameras = [Camera(FORM, "left", warp=True), Camera(Nv12.parse("nv12:8x4:16"), "right")]
    return compiler.compile(graph, "c", cameras=cameras)


def test_frames_of_two_cameras(two, tmp_path):
    paths = {}
    for name, form, count in (("left", FORM, 3), ("right", Nv12.parse("nv12:8x4:16"), 2)):
        paths[name] = str(tmp_path / name)
        (tmp_path / name).write_bytes(np.stack(seen(count, form)).tobytes())
    matrix = nv12.shifted(1, 2)
    source = CameraFrames(two, paths, {"left": matrix.astype(np.float64)})
    found = list(source)
    assert not source.live
    assert len(found) == 2  # the shorter ends it
    for number, sample in enumerate(found):
        assert set(sample.feeds) == {"left_frame", "left_matrix", "right_frame"}
        assert np.array_equal(sample.feeds["left_frame"], seen(3)[number])
        assert np.array_equal(sample.feeds["left_matrix"], matrix)
    assert all(map(np.array_equal, [one.feeds["left_frame"] for one in source], seen(2)))  # once more


def test_the_middle_is_the_matrix_by_default(two, tmp_path):
    (tmp_path / "f").write_bytes(bytes(1000))
    (sample, *_) = CameraFrames(two, {"left": str(tmp_path / "f"), "right_frame": str(tmp_path / "f")})
    corners = sample.feeds["left_matrix"] @ [[-0.5, 3.5], [-0.5, 3.5], [1, 1]]
    assert np.allclose(corners[:2], [[1.5, 5.5], [-0.5, 3.5]])  # of 8 x 4 pixels: 4 x 4


@pytest.mark.parametrize(
    ("sources", "matrices", "error"),
    [
        ({"left": "f"}, {}, UsageError),
        ({"left": "f", "right": "f", "third": "f"}, {}, UsageError),
        ({"": "f"}, {}, UsageError),
        ({"left": "f", "right": "f"}, {"right": nv12.IDENTITY}, UsageError),
        ({"left": "f", "right": "f"}, {"left": np.eye(2)}, InvalidInput),
        ({"left": "f", "right": "f"}, {"left": np.full((3, 3), np.nan)}, InvalidInput),
        ({"left": "f", "right": "none"}, {}, UsageError),
    ],
)
def test_sources_that_do_not_fit(two, sources, matrices, error, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f").write_bytes(bytes(1000))
    with pytest.raises(error):
        CameraFrames(two, sources, matrices)


def test_a_network_without_a_camera():
    network = compiler.compile(nv12.network({"x": (1, 3, 4, 4)}), "c")
    with pytest.raises(UsageError):
        CameraFrames(network, {"": PATH})


# --- the command line ---------------------------------------------------------------------------------------


def parsed(*texts):
    parser = argparse.ArgumentParser()
    add_camera_source(parser)
    return parser.parse_args(texts)


def test_sources_of_the_command_line(two, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f=g").write_bytes(np.stack(seen(2)).tobytes())
    (tmp_path / "h").write_bytes(bytes(1000))
    np.save("m.npy", nv12.shifted(3, 0))
    options = ("--camera", "left=./f=g", "--camera", "right=h", "--matrix", "left=m.npy")
    (sample, *_) = camera_source(parsed(*options), two)
    assert np.array_equal(sample.feeds["left_frame"], seen(1)[0])
    assert sample.feeds["left_matrix"][0, 2] == 3
    assert camera_source(parsed(), two) is None


def test_live_cameras_are_not_opened_before_they_are_read(two):
    source = camera_source(parsed("--camera", f"left={PATH}", "--camera", "right=/dev/video8"), two)
    assert source.live
    assert PATH in source.name


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--matrix", "m.npy"), UsageError),
        (("--camera", "f", "--camera", "f"), UsageError),
        (("--camera", "left=f", "--camera", "right=f", "--matrix", "left=none.npy"), UsageError),
        (("--camera", "left=f", "--camera", "right=f", "--matrix", "left=f"), InvalidInput),
        (("--camera", "left=f", "--camera", "right=f", "--matrix", "left=m.npz"), InvalidInput),
    ],
)
def test_options_that_do_not_fit(two, options, error, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f").write_bytes(bytes(1000))
    np.savez("m.npz", m=nv12.IDENTITY)
    with pytest.raises(error):
        camera_source(parsed(*options), two)
