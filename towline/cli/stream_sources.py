"""Where the frames of `towline stream` come from: random numbers, arrays, pictures, raw video.

A source is an iterable of `sdk.samples.Sample`s, which have a name for messages. Another one, as of a camera,
is a class with the attributes of `Source`, and a line in `source`.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from sdk import dtypes
from sdk.errors import InvalidInput, UsageError
from sdk.samples import Sample

if TYPE_CHECKING:
    from sdk.graph import Array, Tensor
    from sdk.session import Session

DISTINCT = 16
"""Random frames that differ; they come round again."""
RANDOM_FRAMES = 100
"""How many there are if --frames does not say."""


class Source(Protocol):
    """Frames of a network, without its states.

    Attributes:
        name: for messages.
        live: whether it waits for each frame by itself, as a camera does.
    """

    name: str
    live: bool

    def __iter__(self) -> Iterator[Sample]: ...


def add_source(parser: argparse.ArgumentParser) -> None:
    """Declare --raw, --seed and --frames; NET.tow, FILE ... and --input are those of `towline run`."""
    parser.add_argument(
        "--raw",
        metavar="WxH:FORMAT",
        help=f"the files are raw video: 1928x1208:nv12; formats: {', '.join(_FORMATS)}",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="seed of the random frames, if no file is given, and of --torture",
    )


def source(args: argparse.Namespace, session: Session) -> Source:
    """The frames that the command line names.

    Raises:
        UsageError: no such file, or of no known kind.
        InvalidInput: a file that cannot be read, or does not fit the network.
    """
    from towline.cli.inputs import require_inputs

    paths = [path for given in [*args.files, *args.input] for path in _within(given)]
    if args.raw is not None:
        if not paths:
            raise UsageError("--raw describes files, and none is given", hint="name the file after NET.tow")
        return RawVideo(paths, args.raw, session)
    if not paths:
        return RandomFrames(session, args.seed)
    require_inputs(paths)
    return Files(paths, session)


def taken(found: Source, count: int | None) -> Iterator[Sample]:
    """So many frames of a source, which begins again where it has fewer; all of them for None."""
    if count is None:
        yield from found
        return
    left = count
    while left:
        before = left
        for sample in itertools.islice(found, left):
            left -= 1
            yield sample
        if left == before:
            raise InvalidInput("it gives no frame", where=found.name)


def _within(path: str) -> list[str]:
    """The files of a directory in the order of their names; a file is itself."""
    if not os.path.isdir(path):
        return [path]
    found = sorted(str(one) for one in Path(path).iterdir() if one.is_file() and not one.name.startswith("."))
    if not found:
        raise UsageError("the directory holds no file", where=path)
    return found


def _inputs(session: Session) -> dict[str, Tensor]:
    """The network's inputs without its states."""
    states = {name for _, name in session.artifact.states}
    return {name: tensor for name, tensor in session.inputs.items() if name not in states}


class RandomFrames:
    """Seeded numbers: floats are standard normal, pixels even, other integers 0 or 1."""

    live = False

    def __init__(self, session: Session, seed: int) -> None:
        self.name = f"random frames of seed {seed}"
        random = np.random.default_rng(seed)
        inputs = _inputs(session)
        self._frames = [
            {name: _random(random, tensor) for name, tensor in inputs.items()} for _ in range(DISTINCT)
        ]

    def __iter__(self) -> Iterator[Sample]:
        for number in range(RANDOM_FRAMES):
            yield Sample("", self._frames[number % DISTINCT])


def _random(random: np.random.Generator, tensor: Tensor) -> Array:
    if dtypes.is_float(tensor.dtype):
        return dtypes.encode(random.standard_normal(tensor.shape), tensor.dtype)
    dtype = dtypes.storage(tensor.dtype)
    low, high = (
        (np.iinfo(dtype).min, np.iinfo(dtype).max + 1)
        if dtype.itemsize == 1 and dtype.kind != "b"
        else (0, 2)
    )
    return random.integers(low, high, tensor.shape).astype(dtype)


class Files:
    """Pictures, and files of arrays, which hold a frame for each step along their first axes."""

    live = False

    def __init__(self, paths: Sequence[str], session: Session) -> None:
        self.name = paths[0] if len(paths) == 1 else f"{len(paths)} files"
        self._paths = paths
        self._session = session

    def __iter__(self) -> Iterator[Sample]:
        from sdk.quantizer.calibration import PICTURE_SUFFIXES
        from sdk.samples import arrays

        held = {name for _, name in self._session.artifact.states}
        quantized = {name: each for name, each in self._session.quantized_inputs.items() if name not in held}
        for path in self._paths:
            if Path(path).suffix.lower() in PICTURE_SUFFIXES:
                yield Sample(path, self._session.prepare(path))
            else:
                yield from arrays(path, _inputs(self._session), quantized)


@dataclass(frozen=True)
class _Format:
    """A format of raw frames.

    Attributes:
        halves: half bytes of a pixel.
        channels: of a picture, in which order; 0 for formats in planes.
        even: whether both extents have to be.
    """

    halves: int
    channels: int
    even: bool = False


_FORMATS: Mapping[str, _Format] = {
    "rgb24": _Format(6, 3),
    "bgr24": _Format(6, 3),
    "gray": _Format(2, 1),
    "nv12": _Format(3, 0, even=True),
    "yuv420p": _Format(3, 0, even=True),
}


class RawVideo:
    """Frames one after the other, without headers, as `ffmpeg -f rawvideo` writes them.

    A network that takes bytes of just a frame's size gets them as they are; one that takes pictures gets them
    preprocessed like those.
    """

    live = False

    def __init__(self, paths: Sequence[str], form: str, session: Session) -> None:
        self.name = paths[0] if len(paths) == 1 else f"{len(paths)} files"
        self._paths = paths
        self._width, self._height, self._kind = _parsed(form)
        self._nbytes = self._width * self._height * _FORMATS[self._kind].halves // 2
        self._frames = [_frames(path, self._nbytes, form) for path in paths]
        self._prepared = self._preparation(session, form)

    def __iter__(self) -> Iterator[Sample]:
        for path, count in zip(self._paths, self._frames, strict=True):
            with open(path, "rb") as file:
                for number in range(count):
                    data = file.read(self._nbytes)
                    name = f"{path}[{number}]"
                    if len(data) < self._nbytes:
                        raise InvalidInput("the file has become shorter while it was read", where=name)
                    yield Sample(name, self._prepared(np.frombuffer(data, np.uint8)))

    def _preparation(self, session: Session, form: str) -> Callable[[Array], Mapping[str, Any]]:
        """What makes inputs of a frame's bytes."""
        inputs = _inputs(session)
        fitting = [one for one in inputs.values() if one.dtype == "uint8" and one.nbytes == self._nbytes]
        channels = _FORMATS[self._kind].channels
        if len(inputs) == 1 and len(fitting) == 1:
            (tensor,) = fitting
            planes = tensor.shape[-3:] == (channels, self._height, self._width) and channels > 1
            if not planes:
                return lambda data: {tensor.name: data.reshape(tensor.shape)}
            pixels = (self._height, self._width, channels)
            return lambda data: {tensor.name: data.reshape(pixels).transpose(2, 0, 1).reshape(tensor.shape)}
        if channels and session.artifact.preprocessing is not None and len(inputs) == 1:
            order = "bgr" if self._kind == "bgr24" else "rgb"
            shape = (self._height, self._width, channels) if channels > 1 else (self._height, self._width)
            return lambda data: session.prepare(data.reshape(shape), channels=order)  # type: ignore[arg-type]
        takes = ", ".join(map(str, inputs.values()))
        raise UsageError(
            f"the network takes {takes}, not frames of {self._nbytes:,} bytes",
            where=f"--raw {form}",
            hint="a network for raw frames has one uint8 input of a frame's size (docs/car.md); rgb24, bgr24 "
            "and gray also fit one that was quantised with pictures",
        )


def _parsed(form: str) -> tuple[int, int, str]:
    match = re.fullmatch(r"([1-9][0-9]{0,4})x([1-9][0-9]{0,4}):([a-z0-9]+)", form.lower())
    if match is None or match[3] not in _FORMATS:
        raise UsageError(
            "it is not a size and a format",
            where=f"--raw {form}",
            hint=f"write it like 1928x1208:nv12; formats: {', '.join(_FORMATS)}",
        )
    width, height, kind = int(match[1]), int(match[2]), match[3]
    if _FORMATS[kind].even and (width % 2 or height % 2):
        raise UsageError(f"width and height of {kind} must be even", where=f"--raw {form}")
    return width, height, kind


def _frames(path: str, nbytes: int, form: str) -> int:
    """How many whole frames a file has; it has nothing else."""
    if not os.path.isfile(path):
        raise UsageError("no such file", where=path)
    size = os.path.getsize(path)
    if size == 0 or size % nbytes:
        raise InvalidInput(
            f"it has {size:,} bytes, which is not a whole number of frames of {nbytes:,} bytes",
            where=path,
            hint=f"check the size and format that --raw {form} states",
        )
    return size // nbytes
