"""From the bytes of a camera's frame to what a network takes: cut out or warped, and in planes.

The network computes where in the frame each element of its output comes from, and gathers bytes there: the
frame stays bytes, and only the bytes that are wanted are read. Where a GridSample would want coordinates from
-1 to 1 (whose rounding decides which of two pixels is the nearest, where a place lies between them) and a
picture of floats, this computes places in pixels.

Places: the centre of the pixel in row i and column j is at (x, y) = (j, i), in the frame and in the output,
as it is for OpenCV's warpPerspective with WARP_INVERSE_MAP. The matrix leads from the output to the frame:
[x w, y w, w] = matrix [column, row, 1]. Beyond the frame, its border's pixels go on. A place of no pixel
(a number that is none) is the first row or column's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sdk.camera.geometry import PLANES
from sdk.camera.inputs import SKIP, Sampling, Yuv
from sdk.camera.nv12 import Nv12
from sdk.errors import UsageError
from sdk.preprocess import Preprocessing
from sdk.zoo.builder import Network
from sdk.zoo.scaling import require_width, scaled

FRAME, MATRIX, HISTORY, OUTPUT = "frame", "matrix", "history", "output"
_LUMA_WEIGHTS = {"bt601": (0.299, 0.114), "bt709": (0.2126, 0.0722)}
"""Of red and blue (Rec. ITU-R BT.601-7 and BT.709-6, item 3.2)."""


ROAD = 1928, 1208
"""Width and height of the frames of a camera in cars today."""


def camera(width: float = 1.0, size: int = 128, seed: int = 0) -> Network:
    """A road camera's frame as six planes of [size, 2 * size], by a matrix that is an input.

    Width and height of the frame are multiplied by `width`: 1 has 1928x1208 pixels.

    Raises:
        UsageError: a number out of range.
    """
    require_width(width)
    across, down = (scaled(extent, width, 2) for extent in ROAD)
    return six_planes(Nv12(across, down, across, down), (size, 2 * size))


@dataclass(frozen=True)
class Plane:
    """What one plane of the output samples.

    Attributes:
        part: 0 is luma, 1 U, 2 V.
        row, column: of the output's full raster, where the plane begins.
    """

    part: int
    row: int = 0
    column: int = 0


FIELD = (Plane(0), Plane(0, 1, 0), Plane(0, 0, 1), Plane(0, 1, 1), Plane(1), Plane(2))


def six_planes(
    camera: Nv12,
    size: tuple[int, int] = (128, 256),
    *,
    sampling: Sampling = "nearest",
    matrix: NDArray[np.float32] | None = None,
    frames: int = 1,
    skip: int = SKIP,
    dtype: str = "uint8",
) -> Network:
    """A frame warped to twice the size, as six planes: four of luma, U and V.

    Chroma is taken to lie on the luma pixels of even rows and columns, as the networks that take such planes
    are trained.

    Args:
        camera: the frame's format.
        size: rows and columns of a plane; luma has twice as many.
        sampling: the nearest pixel, or the weighted mean of four.
        matrix: 3x3; by default it is an input.
        frames: 1, or 2: the frame `skip` steps ago comes first, and the frames between are a state.
        skip: of the older frame.
        dtype: of the planes.

    Returns:
        `frame` uint8 of `camera.shape`, `matrix` float32 [3, 3], and with two frames `history` uint8
        [1, 6 * skip, *size] -> `output` [1, 6 * frames, *size], and `next_history`.

    Raises:
        UsageError: a number out of range.
    """
    if frames not in (1, 2) or skip < 1:
        raise UsageError("a network takes one frame or two, and the older is at least one step old")
    b = _begun(camera, matrix)
    planes = _sampled(b, camera, FIELD, size, 2, 0.0, sampling)
    if sampling == "bilinear":
        planes = _cast(b, "bytes", b.add("Round", "rounded", [planes]), "uint8")
    planes = b.reshape("planes", planes, (1, PLANES, *size), PLANES)
    if frames == 2:
        b.input(HISTORY, (1, PLANES * skip, *size), PLANES * skip, "uint8", below=256)
        older = b.slice("older", HISTORY, 0, PLANES, 1, PLANES)
        rest = [HISTORY, planes] if skip > 1 else [planes]
        if skip > 1:
            rest[0] = b.slice("newer", HISTORY, PLANES, PLANES * skip, 1, PLANES * (skip - 1))
        b.add("Concat", f"next_{HISTORY}", rest, PLANES * skip, axis=1)
        planes = b.add("Concat", "frames", [older, planes], 2 * PLANES, axis=1)
    _cast(b, OUTPUT, planes, dtype, "uint8")
    b.returns(OUTPUT, dtype=dtype)
    return b.returns(f"next_{HISTORY}", dtype="uint8") if frames == 2 else b


def pixels(
    camera: Nv12,
    recipe: Preprocessing,
    *,
    sampling: Sampling = "nearest",
    yuv: Yuv = "bt601",
    matrix: NDArray[np.float32] | None = None,
    dtype: str = "float32",
) -> Network:
    """A frame warped to a network's size, in its colours and with the scale, mean and deviation it takes.

    Chroma is taken to lie in the middle of its four luma pixels. Colours are clipped to 0..255 before they
    are scaled; `dtype` uint8 takes them rounded, and unscaled.

    Args:
        camera: the frame's format.
        recipe: size, colours, numbers and layout of the output.
        sampling: the nearest pixel, or the weighted mean of four.
        yuv: how the camera's YUV stands for RGB.
        matrix: 3x3; by default it is an input.
        dtype: of the output.

    Returns:
        `frame` uint8 of `camera.shape`, `matrix` float32 [3, 3] -> `output` of the recipe's shape.
    """
    b = _begun(camera, matrix)
    parts = 1 if recipe.colour == "GRAY" else 3
    planes = tuple(Plane(part) for part in range(parts))
    found = _sampled(b, camera, planes, recipe.size, 1, -0.25, sampling)
    found = b.reshape("yuv", found, (1, parts, *recipe.size), parts)
    if sampling == "nearest":
        found = _cast(b, "yuv/float", found, "float32")
    weights, bias = _colours(recipe, yuv)
    if parts == 1:
        found = b.add("Mul", "luma/scaled", [found, b.constant("luma.scale", weights.reshape(()))])
        found = b.add("Add", "luma", [found, b.constant("luma.bias", bias.reshape(()))])
    else:
        kernel = b.constant("colours.weight", weights.reshape(3, 3, 1, 1))
        found = b.add("Conv", "colours", [found, kernel, b.constant("colours.bias", bias)], 3)
    limits = [b.constant(f"byte.{name}", value) for name, value in (("least", 0), ("most", 255))]
    found = b.add("Clip", "pixels", [found, *limits])
    if recipe.invert:
        found = b.add("Sub", "inverted", [limits[1], found], parts)
    if dtype == "uint8":
        found = b.add("Round", "rounded", [found])
    else:
        numbers = {"scale": (recipe.scale,), "mean": recipe.mean, "std": recipe.std}
        scale, mean, std = (
            b.constant(f"pixel.{name}", np.reshape(value, (-1, 1, 1))) for name, value in numbers.items()
        )
        found = b.add("Mul", "scaled", [found, scale])
        found = b.add("Sub", "centred", [found, mean])
        found = b.add("Div", "normalized", [found, std])
    if recipe.layout == "NHWC":
        found = b.add("Transpose", "channels_last", [found], perm=[0, 2, 3, 1])
    _cast(b, OUTPUT, found, dtype, "float32")
    return b.returns(OUTPUT, dtype=dtype)


def _begun(camera: Nv12, matrix: NDArray[np.float32] | None) -> Network:
    b = Network("nv12", 0, opset=17)
    b.input(FRAME, camera.shape, 1, "uint8", below=256)
    if matrix is None:
        b.input(MATRIX, (3, 3), 3)
    else:
        b.constant(MATRIX, matrix)
        b.channels[MATRIX] = 3
    return b


def _cast(b: Network, name: str, x: str, dtype: str, known: str = "") -> str:
    """A tensor as another dtype than the `known` one, under a name of its own."""
    if dtype == known:
        return b.add("Identity", name, [x])
    return b.add("Cast", name, [x], to=b.element(dtype))


# --- places and bytes ---------------------------------------------------------------------------------------


def _sampled(
    b: Network,
    camera: Nv12,
    planes: Sequence[Plane],
    size: tuple[int, int],
    step: int,
    shift: float,
    sampling: Sampling,
) -> str:
    """The planes, [planes, *size]: bytes of the nearest pixels, or float32 of the weighted means.

    `step` leads on the output's raster from a place of a plane to the next; `shift` is that of chroma's
    pixels against luma's, in pixels of chroma.
    """
    chroma = np.array([plane.part > 0 for plane in planes]).reshape(-1, 1, 1)
    scale, moved = np.where(chroma, 0.5, 1.0), np.where(chroma, shift, 0.0)
    last = {
        "x": np.where(chroma, camera.chroma_width, camera.width) - 1,
        "y": np.where(chroma, camera.chroma_height, camera.height) - 1,
    }
    found = {}
    for axis, place in zip("xy", _places(b, planes, size, step), strict=True):
        place = b.add("Mul", f"{axis}/scaled", [place, b.constant("part.scale", scale)])
        if moved.any():
            place = b.add("Add", f"{axis}/moved", [place, b.constant("part.shift", moved)])
        if sampling == "nearest":
            place = b.add("Round", f"{axis}/nearest", [place])
        found[axis] = _within(b, axis, place, b.constant(f"{axis}.last", last[axis]))
    offsets = [0, camera.rows * camera.stride, camera.rows * camera.stride + 1]
    first = b.constant("part.first", np.reshape([offsets[plane.part] for plane in planes], (-1, 1, 1)))
    pair = b.constant("part.step", np.where(chroma, 2, 1))

    def gathered(x: str, y: str) -> str:
        row = b.add("Mul", "row", [y, b.constant("stride", camera.stride)])
        column = b.add("Mul", "column", [x, pair])
        place = b.add("Add", "place", [b.add("Add", "row/column", [row, column]), first])
        flat = b.reshape("bytes/flat", FRAME, (camera.nbytes,), 1)
        return b.add("Gather", "gathered", [flat, _cast(b, "index", place, "int32")], axis=0)

    if sampling == "nearest":
        return gathered(found["x"], found["y"])
    corners, shares = {}, {}
    for axis, ahead in (("x", [0, 1, 0, 1]), ("y", [0, 0, 1, 1])):
        whole = b.add("Floor", f"{axis}/whole", [found[axis]])
        shares[axis] = b.add("Sub", f"{axis}/share", [found[axis], whole])
        corner = b.constant(f"{axis}.ahead", np.reshape(ahead, (-1, 1, 1, 1)))
        corner = b.add("Add", f"{axis}/ahead", [whole, corner])
        corners[axis] = b.add("Min", f"{axis}/corner", [corner, f"{axis}.last"])
    taken = gathered(corners["x"], corners["y"])
    pixels = []
    for number in range(4):
        part = b.slice(f"corner{number}", taken, number, number + 1, 0)
        part = b.reshape(f"corner{number}/flat", part, (len(planes), *size), len(planes))
        pixels.append(_cast(b, f"corner{number}/float", part, "float32"))
    upper = _between(b, "upper", pixels[0], pixels[1], shares["x"])
    lower = _between(b, "lower", pixels[2], pixels[3], shares["x"])
    return _between(b, "mean", upper, lower, shares["y"])


def _places(b: Network, planes: Sequence[Plane], size: tuple[int, int], step: int) -> list[str]:
    """Columns and rows in the frame's luma, float32 [planes, *size] both: (matrix [j, i, 1]) / w."""
    rows, columns = (step * np.arange(extent) for extent in size)
    across = np.stack([columns + plane.column for plane in planes])[:, None, :]
    down = np.stack([rows + plane.row for plane in planes])[:, :, None]
    terms = []
    for number, name in enumerate(("across", "down", "origin")):
        part = b.slice(f"matrix/{name}", MATRIX, number, number + 1, 1)
        terms.append(b.reshape(f"matrix/{name}/column", part, (3, 1, 1, 1), 1))
    terms[0] = b.add("Mul", "across", [terms[0], b.constant("columns", across)])
    terms[1] = b.add("Mul", "down", [terms[1], b.constant("rows", down)])
    places = b.add("Add", "places", [b.add("Add", "sum", terms[:2]), terms[2]])
    parts = []
    for number, name in enumerate(("x", "y", "w")):
        part = b.slice(f"{name}/part", places, number, number + 1, 0)
        parts.append(b.reshape(name, part, (len(planes), *size), len(planes)))
    return [b.add("Div", f"{axis}/w", [axis, parts[2]]) for axis in parts[:2]]


def _within(b: Network, axis: str, place: str, last: str) -> str:
    """A place within the picture; what is no number becomes 0."""
    zero = b.constant("zero", 0)
    limited = b.add("Min", f"{axis}/limited", [place, last])
    return b.add(
        "Where", f"{axis}/within", [b.add("Greater", f"{axis}/positive", [place, zero]), limited, zero]
    )


def _between(b: Network, name: str, low: str, high: str, share: str) -> str:
    across = b.add("Sub", f"{name}/difference", [high, low])
    return b.add("Add", name, [low, b.add("Mul", f"{name}/part", [across, share])])


# --- colours ------------------------------------------------------------------------------------------------


def _colours(recipe: Preprocessing, yuv: Yuv) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The matrix and the bias from YUV's bytes to the recipe's colours, 0 to 255."""
    standard, _, full = yuv.partition("-")
    luma, black = (1.0, 0.0) if full else (255 / 219, 16.0)
    if recipe.colour == "GRAY":
        return np.array([luma]), np.array([-luma * black])
    red, blue = _LUMA_WEIGHTS[standard]
    green = 1 - red - blue
    to_red, to_blue = (2 * (1 - weight) * (1.0 if full else 255 / 224) for weight in (red, blue))
    rgb = np.array(
        [
            [luma, 0, to_red],
            [luma, -blue / green * to_blue, -red / green * to_red],
            [luma, to_blue, 0],
        ]
    )
    if recipe.colour == "BGR":
        rgb = rgb[::-1]
    return rgb, -rgb @ np.array([black, 128, 128])
