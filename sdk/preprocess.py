"""How a picture becomes a network's input, given once and carried from calibration to the artefact.

The geometry is that of the ImageNet evaluations (torchvision's Resize and CenterCrop): the short side is
resized with Pillow's antialiased bilinear filter, and the centre is cropped; without `short_side` the
whole picture is stretched to the size. Pixels are 8-bit; then, in float32 and per channel,
``(pixel * scale - mean) / std``.

Pictures come in many forms. EXIF orientation is applied; palettes, CMYK and 1-bit pictures are
converted; 16-bit greyscale is reduced to 8 bits; transparent parts become white, as viewers and
browsers show them; of an animation the first frame is used.

Only `Preprocessing.apply` and `from_pixels` need Pillow; the rest is numpy, because sessions without it check
arrays too.
"""

from __future__ import annotations

import dataclasses
import json
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from sdk.errors import InvalidInput, UsageError
from sdk.extras import require

if TYPE_CHECKING:
    from PIL import Image

Colour = Literal["RGB", "BGR", "GRAY"]
Layout = Literal["NCHW", "NHWC"]
Channels = Literal["rgb", "bgr"]
"""The order of channels in an array of pixels: OpenCV's is bgr."""

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
IMAGENET_MARGIN = 256 / 224
LARGEST_SIDE = 16384
FORMATS = ("PNG", "JPEG", "BMP", "DIB", "GIF", "PPM", "TIFF", "WEBP")
"""Of picture files, as Pillow names them. It knows more, and runs Ghostscript for one of those."""
MOST_PIXELS = 64 << 20
"""Of a picture's file: more than cameras have, and up to 1.3 GB while a transparent one is decoded."""
LARGEST_NUMBER = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Preprocessing:
    """The recipe from a picture to a float32 input.

    Attributes:
        size: height and width of the input, in pixels.
        short_side: the picture is resized to this short side and the centre of `size` cropped; None
            stretches the picture to `size`.
        colour: channel order, or GRAY for one channel (ITU-R 601 luma).
        scale: factor on the 8-bit pixel values.
        mean: subtracted after scaling, one per channel.
        std: divided by last, one per channel.
        layout: NCHW gives [1, C, H, W], NHWC [1, H, W, C].
        invert: pixels become 255 - pixel first (ink on paper for a network trained on light on black).
    """

    size: tuple[int, int]
    short_side: int | None
    colour: Colour
    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]
    layout: Layout = "NCHW"
    invert: bool = False

    def __post_init__(self) -> None:
        _check(self)

    @property
    def channels(self) -> int:
        return 1 if self.colour == "GRAY" else 3

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The input's shape, with a batch of one."""
        height, width = self.size
        nchw = self.layout == "NCHW"
        return (1, self.channels, height, width) if nchw else (1, height, width, self.channels)

    def apply(self, picture: Image.Image | str | os.PathLike[str]) -> NDArray[np.float32]:
        """Turn a picture, or the file it is in, into an input.

        Returns:
            float32 of `shape`.

        Raises:
            InvalidInput: no such file, not a picture, damaged, or far too large; `where` is the path.
            EnvironmentMissing: Pillow is not installed.
        """
        image_module = require("PIL.Image")
        if isinstance(picture, image_module.Image):
            pixels = self._pixels(cast("Image.Image", picture), "picture")
        else:
            path = os.fspath(cast("str | os.PathLike[str]", picture))
            if os.path.exists(path) and not os.path.isfile(path):  # reading a pipe may never end
                raise InvalidInput("is not a regular file", where=path)
            try:
                with warnings.catch_warnings():
                    # Pillow warns at 89 million pixels; from MOST_PIXELS on they are refused.
                    warnings.simplefilter("ignore")
                    with image_module.open(path, formats=FORMATS) as opened:
                        if opened.width * opened.height > MOST_PIXELS:
                            raise _too_large(opened.size, path)
                        opened.load()
                        pixels = self._pixels(opened, path)
            except InvalidInput:
                raise
            except FileNotFoundError:
                raise InvalidInput("no such picture", where=path) from None
            except image_module.DecompressionBombError as problem:
                raise _too_large(None, path) from problem
            except Exception as problem:  # a damaged file can raise nearly anything out of Pillow
                raise InvalidInput(
                    f"cannot be read as a picture: {_reason(problem, path)}",
                    where=path,
                    hint="the file may be cut short, damaged, or not a picture",
                ) from problem
        if self.invert:
            pixels = 255 - pixels
        if self.colour == "BGR":
            pixels = pixels[:, :, ::-1]
        mean, std = np.array(self.mean, np.float32), np.array(self.std, np.float32)
        values = (pixels.astype(np.float32) * np.float32(self.scale) - mean) / std
        if self.layout == "NCHW":
            values = values.transpose(2, 0, 1)
        return np.ascontiguousarray(values[np.newaxis], np.float32)

    def _pixels(self, picture: Image.Image, where: str) -> NDArray[np.uint8]:
        """The picture upright, without alpha, resized and cropped: uint8 [H, W, channels]."""
        picture = require("PIL.ImageOps").exif_transpose(picture)
        picture = _eight_bits(picture, where).convert("L" if self.colour == "GRAY" else "RGB")
        height, width = self.size
        box = None if self.short_side is None else crop_box(picture.size, self.short_side, self.size)
        # Resizing only the crop's box gives the same pixels, and bounds the work for a 1 x 10000 picture.
        picture = picture.resize((width, height), require("PIL.Image").Resampling.BILINEAR, box=box)
        return np.asarray(picture, np.uint8).reshape(height, width, self.channels)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` is the inverse."""
        return {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in dataclasses.asdict(self).items()
        }

    @staticmethod
    def from_json(document: Any) -> Preprocessing:
        """Rebuild a recipe from `to_json`'s values.

        Raises:
            InvalidInput: a field is missing, unknown, of the wrong type, or out of range.
        """
        if not isinstance(document, Mapping):
            raise _invalid("must be a JSON object")
        names = {item.name for item in dataclasses.fields(Preprocessing)}
        if unknown := sorted(document.keys() - names, key=str):
            raise _invalid(f"unknown field {unknown[0]!r}", hint=f"fields: {', '.join(sorted(names))}")
        if missing := sorted(names - document.keys()):
            raise _invalid(f"field {missing[0]!r} is missing")
        fields: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in document.items()
        }
        return Preprocessing(**fields)


def from_pixels(array: NDArray[Any], channels: Channels) -> Image.Image:
    """An array of pixels as a picture.

    Args:
        array: uint8 [H, W, 3], or [H, W] and [H, W, 1] for grey.
        channels: the order of three channels.

    Raises:
        InvalidInput: another dtype or shape.
        EnvironmentMissing: Pillow is not installed.
    """
    if array.dtype != np.uint8:
        raise InvalidInput(
            f"an array of {array.dtype} is not a picture: pixels are uint8, 0 to 255",
            where="picture",
            hint="pixels of 0 to 1: (255 * array).round().astype('uint8'); preprocessed inputs go to run",
        )
    pixels = array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array
    if pixels.ndim not in (2, 3) or pixels.shape[2:] not in ((), (3,)) or 0 in pixels.shape:
        raise InvalidInput(
            f"an array of shape {list(array.shape)} is not a picture: expected [H, W, 3] or [H, W]",
            where="picture",
            hint="one picture at a time, channels last, without alpha",
        )
    if pixels.ndim == 3 and channels == "bgr":
        pixels = pixels[:, :, ::-1]
    return cast("Image.Image", require("PIL.Image").fromarray(np.ascontiguousarray(pixels)))


def default_for(shape: Sequence[int]) -> Preprocessing:
    """What a network with such an input most likely expects.

    Three channels: ImageNet's, short side size * 256 / 224, centre crop. One channel: the picture
    stretched to the size, pixels / 255.

    Args:
        shape: the input's, [1, C, H, W] or [1, H, W, C].

    Raises:
        InvalidInput: not the shape of a picture.
    """
    size, channels, layout = _picture_shape(shape)
    if channels == 1:
        return Preprocessing(size, None, "GRAY", 1 / 255, (0.0,), (1.0,), layout)
    short_side = round(max(size) * IMAGENET_MARGIN)
    return Preprocessing(size, short_side, "RGB", 1 / 255, IMAGENET_MEAN, IMAGENET_STD, layout)


def parse(text: str, shape: Sequence[int]) -> Preprocessing:
    """Read the command line's `--preprocess`.

    Args:
        text: `imagenet`; `unit` (pixels / 255); `symmetric` (to -1..1); or a JSON file with any fields of
            `Preprocessing`, the others being the default's for `shape`.
        shape: the network's input.

    Raises:
        UsageError: neither a known name nor a file.
        InvalidInput: the file is not such JSON, or does not give an input of `shape`.
    """
    default = default_for(shape)
    zeros, ones = (0.0,) * default.channels, (1.0,) * default.channels
    halves = (0.5,) * default.channels
    if text == "unit":
        return dataclasses.replace(default, mean=zeros, std=ones)
    if text == "symmetric":
        return dataclasses.replace(default, mean=halves, std=halves)
    if text == "imagenet":
        if default.channels != 3:
            raise InvalidInput(
                "ImageNet's preprocessing is for three channels, the network takes one",
                where="preprocessing",
                hint="choose unit or symmetric",
            )
        return default
    path = Path(text)
    if not path.is_file():
        raise UsageError(
            f"no preprocessing named {text!r}, and no such file",
            hint="choose imagenet, unit, symmetric, or a JSON file",
        )
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(document, dict):
            raise _invalid("must be a JSON object")
        result = Preprocessing.from_json(default.to_json() | document)
        require_shape(result, shape)
    except (OSError, ValueError, RecursionError) as problem:
        raise InvalidInput(f"cannot be read as JSON: {problem}", where=text) from problem
    except InvalidInput as problem:
        raise InvalidInput(f"preprocessing: {problem.message}", where=text, hint=problem.hint) from problem
    return result


def require_shape(preprocessing: Preprocessing, shape: Sequence[int]) -> None:
    """Refuse a recipe that does not give the network's input.

    Raises:
        InvalidInput: the shapes differ.
    """
    if preprocessing.shape != tuple(shape):
        raise _invalid(
            f"gives an input of shape {list(preprocessing.shape)}, the network takes {list(shape)}",
            hint="set size (height, width), colour and layout to the network's",
        )


@dataclass(frozen=True)
class InputStatistics:
    """What the calibration inputs looked like: enough to notice an input that is nothing like them.

    Attributes:
        count: calibration inputs seen.
        channel_axis: the channels' axis in the input, None if all elements count as one channel.
        mean, std, minimum, maximum: over all inputs, one per channel.
        mean_low, mean_high: the least and greatest mean of a single input, one per channel.
        contrast_low, contrast_high: the least and greatest standard deviation of a single input,
            averaged over its channels.
    """

    count: int
    channel_axis: int | None
    mean: tuple[float, ...]
    std: tuple[float, ...]
    minimum: tuple[float, ...]
    maximum: tuple[float, ...]
    mean_low: tuple[float, ...]
    mean_high: tuple[float, ...]
    contrast_low: float
    contrast_high: float

    @staticmethod
    def of(inputs: Sequence[NDArray[np.float32]], layout: Layout | None) -> InputStatistics:
        """Statistics of `inputs`, each with its batch axis first; `layout` is None for non-pictures."""
        axis = None if layout is None else layout.index("C")
        rows = np.concatenate([_summary(array, axis) for array in inputs])
        mean, square, low, high, std = (rows[:, index] for index in range(5))
        total_std = np.sqrt(np.maximum(square.mean(axis=0) - mean.mean(axis=0) ** 2, 0))
        contrast = std.mean(axis=1)
        return InputStatistics(
            count=len(rows),
            channel_axis=axis,
            mean=_floats(mean.mean(axis=0)),
            std=_floats(total_std),
            minimum=_floats(low.min(axis=0)),
            maximum=_floats(high.max(axis=0)),
            mean_low=_floats(mean.min(axis=0)),
            mean_high=_floats(mean.max(axis=0)),
            contrast_low=float(contrast.min()),
            contrast_high=float(contrast.max()),
        )

    def unlike_calibration(self, array: NDArray[np.float32]) -> str | None:
        """A warning if an input is nothing like the calibration's, else None.

        The rule: a value outside the calibrated range by more than half that range; or a channel's mean
        outside the means of single calibration inputs by more than 0.5 + 4 / count standard deviations
        of the most varied channel (few inputs say little about how much pictures differ); or a contrast
        below a quarter of the least, or above four times the greatest. Calibration inputs never warn.

        Args:
            array: float32, the input's shape; each of a batch is checked.

        Raises:
            InvalidInput: not numbers, empty, or fewer axes than the input has.
        """
        try:
            values = np.asarray(array, np.float64)
        except (TypeError, ValueError) as problem:
            raise InvalidInput(f"is not an array of numbers: {problem}", where="input") from problem
        if values.size == 0 or values.ndim <= (self.channel_axis or 0):
            raise InvalidInput(f"an array of shape {list(values.shape)} is not an input", where="input")
        for row in _summary(values, self.channel_axis):
            if (found := self._unlike(row)) is not None:
                return found
        return None

    def _unlike(self, row: NDArray[np.float64]) -> str | None:
        mean, _, low, high, std = row
        hint = "is the preprocessing the calibration's?"
        if not np.isfinite(row).all():
            return "the input contains NaN or infinite values"
        if mean.shape != (len(self.mean),):
            return None  # another number of channels: the session refuses that by shape
        minimum, maximum = np.array(self.minimum), np.array(self.maximum)
        slack = 0.5 * (maximum - minimum)
        if (low < minimum - slack).any() or (high > maximum + slack).any():
            return (
                f"the input's values span {low.min():.3g} to {high.max():.3g}, the calibration's "
                f"{minimum.min():.3g} to {maximum.max():.3g}; {hint}"
            )
        contrast = float(std.mean())
        if contrast < 0.25 * self.contrast_low:
            return (
                f"the input is nearly constant (standard deviation {contrast:.3g}; the calibration's "
                f"inputs have at least {self.contrast_low:.3g})"
            )
        if contrast > 4 * self.contrast_high:
            return (
                f"the input's standard deviation is {contrast:.3g}, the calibration's inputs have at "
                f"most {self.contrast_high:.3g}; {hint}"
            )
        margin = (0.5 + 4 / self.count) * max(self.std)
        for channel in range(len(mean)):
            least, greatest = self.mean_low[channel], self.mean_high[channel]
            if not least - margin <= mean[channel] <= greatest + margin:
                return (
                    f"the mean of channel {channel} is {mean[channel]:.3g}, the calibration's inputs "
                    f"have {least:.3g} to {greatest:.3g}; {hint}"
                )
        return None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` is the inverse."""
        return {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in dataclasses.asdict(self).items()
        }

    @staticmethod
    def from_json(document: Any) -> InputStatistics:
        """Rebuild statistics from `to_json`'s values.

        Raises:
            InvalidInput: a field is missing, unknown, or of the wrong type.
        """
        names = {item.name for item in dataclasses.fields(InputStatistics)}
        if not isinstance(document, Mapping) or document.keys() != names:
            raise InvalidInput(f"must have the fields {', '.join(sorted(names))}", where="input statistics")
        count, axis = document["count"], document["channel_axis"]
        vectors = [document[key] for key in sorted(names - _SCALARS)]
        sound = (
            _whole(count, 1, 2**62)
            and (axis is None or axis in (1, 3))
            and all(isinstance(vector, list) and all(map(_number, vector)) for vector in vectors)
            and len({len(vector) for vector in vectors}) == 1
            and (len(vectors[0]) == 1 or (axis is not None and len(vectors[0]) > 1))
            and all(_number(document[key]) for key in ("contrast_low", "contrast_high"))
        )
        if not sound:
            raise InvalidInput("a field is not of its type", where="input statistics")
        fields: dict[str, Any] = {
            key: value if key in _SCALARS else _floats(value) for key, value in document.items()
        }
        return InputStatistics(**fields)


_SCALARS = {"count", "channel_axis", "contrast_low", "contrast_high"}


def _summary(array: NDArray[Any], axis: int | None) -> NDArray[np.float64]:
    """[N, 5, channels]: mean, mean square, least, greatest and standard deviation of each input."""
    moved = array.reshape(len(array), 1, -1) if axis is None else np.moveaxis(array, axis, 1)
    flat = moved.reshape(len(array), moved.shape[1], -1).astype(np.float64)
    mean, square = flat.mean(axis=2), (flat * flat).mean(axis=2)
    return np.stack([mean, square, flat.min(axis=2), flat.max(axis=2), flat.std(axis=2)], axis=1)


def _floats(values: Sequence[float] | NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def _picture_shape(shape: Sequence[int]) -> tuple[tuple[int, int], int, Layout]:
    if len(shape) == 4 and shape[0] == 1:
        if shape[1] in (1, 3):
            return (shape[2], shape[3]), shape[1], "NCHW"
        if shape[3] in (1, 3):
            return (shape[1], shape[2]), shape[3], "NHWC"
    raise InvalidInput(
        f"an input of shape {list(shape)} is not one picture of one or three channels",
        where="preprocessing",
        hint="give arrays (.npy, .npz) instead of pictures",
    )


def _too_large(size: tuple[int, int] | None, path: str) -> InvalidInput:
    what = f"{size[0]} x {size[1]}" if size else "far more"
    return InvalidInput(
        f"has {what} pixels; at most {MOST_PIXELS >> 20} Mi are read",
        where=path,
        hint="scale the picture down",
    )


def _eight_bits(picture: Image.Image, where: str) -> Image.Image:
    """The picture with 8-bit channels and no transparency."""
    image_module = require("PIL.Image")
    if picture.mode.startswith("I"):
        wide = np.clip(np.asarray(picture).astype(np.int32, copy=False), 0, 65535)
        return cast("Image.Image", image_module.fromarray(((wide + 128) // 257).astype(np.uint8)))
    if picture.mode == "F":
        raise InvalidInput(
            "has floating-point pixels, whose range is unknown", where=where, hint="save it with 8 bits"
        )
    if picture.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in picture.info:
        above = picture.convert("RGBA")
        white = image_module.new("RGBA", above.size, "white")
        return cast("Image.Image", image_module.alpha_composite(white, above))
    return picture


def crop_box(
    size: tuple[int, int], short_side: int, crop: tuple[int, int]
) -> tuple[float, float, float, float]:
    """Where the centre crop lies in the picture before resizing: left, top, right, bottom."""
    width, height = size
    short = min(width, height)
    resized_width, resized_height = (int(short_side * side / short) for side in (width, height))
    left, top = round((resized_width - crop[1]) / 2), round((resized_height - crop[0]) / 2)
    across, down = width / resized_width, height / resized_height
    return (
        left * across,
        top * down,
        min(float(width), (left + crop[1]) * across),  # a rounding error must not go beyond
        min(float(height), (top + crop[0]) * down),
    )


def _check(recipe: Preprocessing) -> None:
    """Refuse values of the wrong type or out of range, from any source (a file, a manifest, a caller)."""
    size, channels = recipe.size, 1 if recipe.colour == "GRAY" else 3
    if not (isinstance(size, tuple) and len(size) == 2 and all(_whole(s, 1, LARGEST_SIDE) for s in size)):
        raise _invalid(f"size must be height and width, from 1 to {LARGEST_SIDE}: {size!r}")
    if recipe.short_side is not None and not _whole(recipe.short_side, max(size), LARGEST_SIDE):
        raise _invalid(
            f"short_side must be null or a whole number of at least {max(size)}: {recipe.short_side!r}"
        )
    if recipe.colour not in get_args(Colour):
        raise _invalid(f"colour must be one of {', '.join(get_args(Colour))}: {recipe.colour!r}")
    if recipe.layout not in get_args(Layout):
        raise _invalid(f"layout must be one of {', '.join(get_args(Layout))}: {recipe.layout!r}")
    if not _number(recipe.scale) or np.float32(recipe.scale) == 0:
        raise _invalid(f"scale must be a number other than 0: {recipe.scale!r}")
    for name, values in (("mean", recipe.mean), ("std", recipe.std)):
        if not (isinstance(values, tuple) and len(values) == channels and all(map(_number, values))):
            raise _invalid(f"{name} must be a list of {channels} numbers for {recipe.colour}: {values!r}")
    if np.float32(min(recipe.std)) <= 0:
        raise _invalid(f"std must be positive: {recipe.std!r}")
    if not isinstance(recipe.invert, bool):
        raise _invalid(f"invert must be true or false: {recipe.invert!r}")


def _whole(value: Any, least: int, greatest: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= greatest


def _number(value: Any) -> bool:
    """Whether it is a finite number in float32; whole numbers from JSON may be of any size."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST_NUMBER


def _invalid(message: str, hint: str | None = None) -> InvalidInput:
    return InvalidInput(message, where="preprocessing", hint=hint)


def _reason(problem: Exception, path: str) -> str:
    text = str(problem).replace(repr(path), "it").strip() or type(problem).__name__
    return text.splitlines()[0]
