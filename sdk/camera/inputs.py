"""Which input of a network a camera feeds, as the user asks for it and as an artefact records it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from sdk.camera.nv12 import Nv12
from sdk.codec import within
from sdk.errors import InvalidInput
from sdk.graph import Graph

Sampling = Literal["nearest", "bilinear"]
"""The nearest pixel, or the weighted mean of the four around a place."""
Yuv = Literal["bt601", "bt601-full", "bt709", "bt709-full"]
"""How YUV stands for RGB: ITU-R BT.601 or BT.709; luma from 16 to 235, or ("full") from 0 to 255."""
SKIP = 4
"""Frames from the older of two to the newer, in the driving networks of cars today."""


@dataclass(frozen=True)
class Camera:
    """A camera to put in front of a network.

    Attributes:
        format: of its frames.
        input: the network's input that it feeds; by default the only one that can be a picture.
        warp: whether a 3x3 matrix is an input too; else the picture's middle is cut out and resized.
        sampling, yuv: how places and colours are computed.
        skip: of an input of two frames, how many frames ago the older one was.
    """

    format: Nv12
    input: str | None = None
    warp: bool = False
    sampling: Sampling = "nearest"
    yuv: Yuv = "bt601"
    skip: int = SKIP


@dataclass(frozen=True)
class CameraInput:
    """A camera in front of a compiled network.

    Attributes:
        input: the tensor that the network itself takes, by its name in the model.
        size: rows and columns of the picture in it, whose pixels the matrix leads from.
        frame: the input that takes the bytes of a frame.
        matrix: the input that takes the homography, float32 [3, 3]; None where the geometry is fixed.
        format: of a frame, as `Nv12.parse` reads it.
        sampling: how places are computed.
    """

    input: str
    size: tuple[Annotated[int, within(1, 1 << 16)], Annotated[int, within(1, 1 << 16)]]
    frame: str
    matrix: str | None
    format: str
    sampling: Sampling


def check_cameras(graph: Graph, cameras: Sequence[CameraInput]) -> None:
    """Refuse cameras that do not fit a network's inputs.

    Raises:
        InvalidInput, UsageError: with what does not fit.
    """
    for camera in cameras:
        expected = {camera.frame: ("uint8", Nv12.parse(camera.format).shape)}
        if camera.matrix is not None:
            expected[camera.matrix] = "float32", (3, 3)
        for name, (dtype, shape) in expected.items():
            if name not in graph.inputs:
                raise InvalidInput(f"the network has no input named {name!r}, which a camera feeds")
            tensor = graph.tensor(name)
            if (tensor.dtype, tensor.shape) != (dtype, shape):
                raise InvalidInput(f"a camera of {camera.format} does not feed {tensor}")
