"""Frames of cameras, live or from raw video files, as inputs of a network with cameras in front."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import numpy as np

from sdk.artifact import Artifact
from sdk.camera import v4l2
from sdk.camera.geometry import covering
from sdk.camera.inputs import CameraInput
from sdk.camera.nv12 import Nv12
from sdk.errors import InvalidInput, UsageError
from sdk.graph import Array
from sdk.samples import Sample

LOG = logging.getLogger("towline")
T = TypeVar("T")


class CameraFrames:
    """What all cameras of a network see, frame by frame: a source for `Stream.run`.

    With several cameras, a frame is the next of each; it ends with the first that ends.

    Args:
        network: compiled with cameras in front.
        sources: by an input that a camera feeds (or, of a network with one camera, ""): a V4L2 device such as
            /dev/video0, or a file of frames one after the other.
        matrices: by the same names: float32 [3, 3] from the network's pixels to the frame's; by default the
            middle of the frame, as large as the network's form allows.

    Attributes:
        name: for messages.
        live: whether it waits for each frame by itself.

    Raises:
        UsageError: no such input, no camera, or no source for one; no such file.
        InvalidInput: a matrix of another shape, or not finite; a file of less than one frame.
    """

    def __init__(
        self, network: Artifact, sources: Mapping[str, str], matrices: Mapping[str, Array] | None = None
    ) -> None:
        if not network.cameras:
            raise UsageError(
                "the network takes no camera's frames",
                where=network.graph.name,
                hint="compile it with --camera nv12:WIDTHxHEIGHT",
            )
        self._cameras = network.cameras
        found = self._by_camera(sources, "source")
        if missing := [camera.input for camera in self._cameras if camera.frame not in found]:
            hint = "name a device or a file for each: --camera INPUT=/dev/video0"
            raise UsageError(f"the camera of {missing[0]} has no source", hint=hint)
        given = self._by_camera(matrices or {}, "matrix")
        self._paths = [found[camera.frame] for camera in self._cameras]
        self._constants = {
            camera.matrix: _matrix(camera, given.get(camera.frame))
            for camera in self._cameras
            if camera.matrix is not None
        }
        for camera in self._cameras:
            if camera.matrix is None and camera.frame in given:
                raise UsageError(
                    "the network takes no matrix: its geometry is fixed",
                    where=f"matrix of {camera.input}",
                    hint="compile it with --warp",
                )
        self.name = ", ".join(self._paths)
        self.live = any(map(v4l2.is_device, self._paths))
        for path, camera in zip(self._paths, self._cameras, strict=True):
            if not v4l2.is_device(path):
                raw_frames(path, Nv12.parse(camera.format))  # mistakes in these come before the work

    def __iter__(self) -> Iterator[Sample]:
        with contextlib.ExitStack() as stack:
            streams = [
                stack.enter_context(contextlib.closing(frames(path, Nv12.parse(camera.format))))
                for path, camera in zip(self._paths, self._cameras, strict=True)
            ]
            for number in itertools.count():
                feeds = dict(self._constants)
                for camera, stream in zip(self._cameras, streams, strict=True):
                    frame = next(stream, None)
                    if frame is None:
                        return
                    feeds[camera.frame] = frame
                yield Sample(f"{self.name}[{number}]", feeds)

    def _by_camera(self, given: Mapping[str, T], what: str) -> dict[str, T]:
        """What is given, by the input for the frame."""
        known = {name: camera.frame for camera in self._cameras for name in (camera.input, camera.frame)}
        if len(self._cameras) == 1:
            known[""] = self._cameras[0].frame
        for name in given:
            if name not in known:
                inputs = ", ".join(camera.input for camera in self._cameras)
                raise UsageError(
                    f"a {what} names no input" if not name else f"no camera feeds an input named {name!r}",
                    hint=f"name one before it, as in INPUT=...; inputs that cameras feed: {inputs}",
                )
        return {known[name]: value for name, value in given.items()}


def _matrix(camera: CameraInput, given: Array | None) -> Array:
    if given is None:
        return covering(Nv12.parse(camera.format), camera.size)
    where = f"matrix of {camera.input}"
    if given.shape != (3, 3) or given.dtype.kind not in "fiu":
        raise InvalidInput(f"is {given.dtype} {list(given.shape)}: it must be 3x3 numbers", where=where)
    found = given.astype(np.float32)
    if not np.isfinite(found).all():
        raise InvalidInput("holds a number that is not finite", where=where)
    return found


def frames(source: str, form: Nv12) -> Generator[Array, None, None]:
    """The frames of a V4L2 device, without end, or of a file.

    Args:
        source: the path of a character device, or of a file of frames one after the other.
        form: of the frames.

    Returns:
        uint8 of `form.shape`, of each frame. To be closed: it holds the device.

    Raises:
        UsageError, InvalidInput, EnvironmentMissing: as `raw_frames` and `v4l2.capture`.
    """
    return v4l2.capture(source, form) if v4l2.is_device(source) else raw_frames(source, form)


def raw_frames(path: str, form: Nv12) -> Generator[Array, None, None]:
    """The frames of a file without headers, as `ffmpeg -pix_fmt nv12 -f rawvideo` writes it.

    The end of a last frame that is cut short is left out, with a warning in the log.

    Raises:
        UsageError: no such file.
        InvalidInput: it has less than one frame.
    """
    if not Path(path).is_file():
        hint = "name a camera's device, such as /dev/video0, or a file of raw frames"
        raise UsageError("no such file", where=path, hint=hint)
    count, rest = divmod(os.path.getsize(path), form.nbytes)
    if not count:
        raise InvalidInput(
            f"holds {rest:,} bytes; a frame of {form} has {form.nbytes:,}",
            where=path,
            hint="are size, stride and rows those of the file?",
        )
    return _read(path, form, count, rest)


def _read(path: str, form: Nv12, count: int, rest: int) -> Generator[Array, None, None]:
    with open(path, "rb") as file:
        for number in range(count):
            yield form.frame(file.read(form.nbytes), f"{path}, frame {number}")
    if rest:
        short = f"{rest:,} of {form.nbytes:,} bytes"
        LOG.warning("%s: its last frame is cut short (%s) and is left out", path, short)
