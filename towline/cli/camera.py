"""`--camera`: a camera in front of a network that is compiled."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import get_args

from sdk.camera.inputs import SKIP, Camera, CameraInput, Sampling, Yuv
from sdk.camera.nv12 import Nv12
from sdk.errors import UsageError
from towline.cli.options import positive

OPTIONS = ("warp", "sampling", "yuv", "frame_skip")


def add_camera(parser: argparse.ArgumentParser) -> None:
    """Declare --camera and what goes with it."""
    parser.add_argument(
        "--camera",
        action="append",
        default=[],
        metavar="[INPUT=]nv12:WIDTHxHEIGHT[:STRIDE[:ROWS]]",
        help="take a camera's frames of this format instead of an input's picture, and convert them on "
        "the device; may be repeated, with the names of the inputs",
    )
    parser.add_argument(
        "--warp",
        action="store_true",
        help="with --camera: a 3x3 matrix from the picture's pixels to the frame's is an input too "
        "(default: the middle of the frame, or all of it, as --preprocess has it)",
    )
    parser.add_argument(
        "--sampling",
        choices=get_args(Sampling),
        help="with --camera: which pixels are taken (default: nearest)",
    )
    parser.add_argument(
        "--yuv", choices=get_args(Yuv), help="with --camera: the camera's colours (default: bt601)"
    )
    parser.add_argument(
        "--frame-skip",
        type=positive,
        metavar="N",
        help="with --camera, for an input of two frames: how many frames ago the older one was "
        f"(default: {SKIP})",
    )


def cameras(args: argparse.Namespace) -> list[Camera]:
    """The cameras of the command line.

    Raises:
        UsageError: a malformed format, an input twice, or an option without --camera.
    """
    if not args.camera:
        if given := next((name for name in OPTIONS if getattr(args, name)), None):
            option = f"--{given.replace('_', '-')}"
            raise UsageError(f"{option} is for --camera", hint="give --camera nv12:WIDTHxHEIGHT as well")
        return []
    found = []
    for text in args.camera:
        name, _, form = text.rpartition("=")
        camera = Camera(
            Nv12.parse(form),
            input=name or None,
            warp=args.warp,
            sampling=args.sampling or "nearest",
            yuv=args.yuv or "bt601",
            skip=args.frame_skip or SKIP,
        )
        found.append(camera)
    names = [camera.input for camera in found]
    if len(names) > 1 and (None in names or len(set(names)) < len(names)):
        raise UsageError(
            "several cameras must name different inputs",
            where="--camera",
            hint="name it before the format: --camera img=nv12:1928x1208 --camera big_img=nv12:1928x1208",
        )
    return found


def camera_lines(made: Sequence[CameraInput]) -> str:
    """Which inputs cameras feed, a line for each; "" for none."""
    return "\n".join(
        f"camera: {one.frame} takes frames of {one.format}, {one.sampling} pixels"
        + (f"; {one.matrix} takes the 3x3 matrix" if one.matrix else "")
        for one in made
    )
