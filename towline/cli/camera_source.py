"""`--camera` of a verb that runs a network: where the frames of its cameras come from."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sdk.array_files import open_arrays
from sdk.errors import InvalidInput, UsageError

if TYPE_CHECKING:
    from sdk.artifact import Artifact
    from sdk.camera.sources import CameraFrames
    from sdk.graph import Array


MOST_NUMBERS = 1000
"""Of a file that is read to the end to see whether it is a matrix."""


def add_camera_source(parser: argparse.ArgumentParser) -> None:
    """Declare --camera and --matrix."""
    parser.add_argument(
        "--camera",
        action="append",
        default=[],
        metavar="[INPUT=]SOURCE",
        help="of a network compiled with --camera: a V4L2 device such as /dev/video0, or a file of raw "
        "frames; may be repeated, with the names of the inputs",
    )
    parser.add_argument(
        "--matrix",
        action="append",
        default=[],
        metavar="[INPUT=]FILE.npy",
        help="with --camera: a 3x3 matrix from the network's pixels to the frame's "
        "(default: the frame's middle)",
    )


def camera_source(args: argparse.Namespace, network: Artifact) -> CameraFrames | None:
    """The frames that --camera names: a source for `Stream.run`, with `name` and `live`. None without it.

    Raises:
        UsageError: an input twice, one that no camera feeds, --matrix without --camera, or no such file.
        InvalidInput: a file that holds no frame, or no matrix.
    """
    if not args.camera:
        if args.matrix:
            raise UsageError("--matrix is for --camera", hint="give --camera /dev/video0 or a file as well")
        return None
    from sdk.camera.sources import CameraFrames

    matrices = {name: _read(path) for name, path in _named(args.matrix, "--matrix").items()}
    return CameraFrames(network, _named(args.camera, "--camera"), matrices)


def _named(texts: Sequence[str], option: str) -> dict[str, str]:
    """`INPUT=PATH` by input; "" of a path alone. A path may hold = behind its first /."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not equals or "/" in name:
            name, path = "", text
        if name in found:
            hint = f"name each input: {option} img=... {option} big_img=..."
            raise UsageError(f"{option} is given twice for one input", hint=hint)
        found[name] = path
    return found


def _read(path: str) -> Array:
    if not Path(path).is_file():
        raise UsageError("no such file", where=path)
    found = open_arrays(path)
    if "" not in found:
        raise InvalidInput(
            "is an .npz file, which holds arrays by name: one .npy array is wanted",
            where=path,
            hint="numpy.save(FILE, matrix) writes one",
        )
    if math.prod(shape := found[""].shape) > MOST_NUMBERS:
        raise InvalidInput(f"holds {list(shape)} numbers: a matrix has 3 x 3", where=path)
    return found[""].whole()
