"""Cameras by Linux's V4L2, through linuxpy: NV12 as it is, or YUYV made into it.

linuxpy opens the device, sets the format, maps the driver's buffers and waits; what it raises becomes errors
of ours here.
"""

from __future__ import annotations

import errno
import stat
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from sdk.camera.nv12 import Nv12
from sdk.errors import DeviceMissing, InvalidInput, Unsupported
from sdk.extras import require
from sdk.graph import Array

BUFFERS = 4
"""Of the driver: one is filled, one is read, and two wait while the host is late."""
GONE = (errno.ENODEV, errno.ENXIO, errno.EBADF)
"""What the system says of a device that was unplugged."""
SILENCE = 5.0
"""Seconds without a frame after which a camera has failed."""


def is_device(path: str) -> bool:
    """Whether a path is a device's, there or not: what is below /dev, or a character device."""
    if path.startswith("/dev/"):
        return True
    try:
        return stat.S_ISCHR(Path(path).stat().st_mode)
    except OSError:
        return False


def capture(path: str, form: Nv12, silence: float = SILENCE) -> Generator[Array, None, None]:
    """Frames of a camera, without end; those that its driver marks as damaged are left out.

    Args:
        path: of the device.
        form: the format that the network was compiled for.
        silence: seconds without a frame after which the camera has failed.

    Returns:
        uint8 of `form.shape`, a copy of each. To be closed: it holds the device.

    Raises:
        EnvironmentMissing: linuxpy is not installed.
        DeviceMissing: no such device, no permission, or it is in use.
        Unsupported: no camera, or one without this size as NV12 or YUYV, or with another stride.
        InvalidInput: in mid-stream: it disappeared, or gives no frames.
    """
    video = require("linuxpy.video.device", extra="camera")
    with _opened(video, path) as device:
        stream = video.VideoCapture(device, size=BUFFERS)
        with _refused(video, path):
            packed = _negotiated(stream, path, form)
            stream.open()
        try:
            yield from _frames(video, stream, path, form, packed, silence)
        finally:
            with _ignored():
                stream.close()


def _frames(
    video: Any, stream: Any, path: str, form: Nv12, packed: int, silence: float
) -> Generator[Array, None, None]:
    number = 0
    while True:
        try:
            frame = stream.buffer.frame_reader.read(timeout=silence)
        except (OSError, ValueError) as problem:  # ValueError: of a file that was closed below it
            gone = isinstance(problem, ValueError) or problem.errno in GONE
            raise InvalidInput(
                f"the camera {'disappeared' if gone else 'failed'} after {number} frames: {problem}",
                where=path,
                hint="is it still plugged in, and its driver loaded?",
            ) from problem
        if frame is None:
            raise InvalidInput(
                f"the camera gave no frame for {silence:g} s, after {number} frames",
                where=path,
                hint="does another program hold it, or is its sensor asleep?",
            )
        if video.BufferFlag.ERROR in frame.flags:
            continue
        where = f"{path}, frame {number}"
        yield _from_yuyv(frame.data, form, packed, where) if packed else form.frame(frame.data, where)
        number += 1


def _negotiated(stream: Any, path: str, form: Nv12) -> int:
    """Set the format; the stride of YUYV, or 0 where the camera gives NV12."""
    offered = list(dict.fromkeys(one.pixel_format.name for one in stream.formats()))
    if not {"NV12", "YUYV"} & set(offered):
        raise Unsupported(
            f"the camera gives {', '.join(offered) or 'no format'}, and neither NV12 nor YUYV",
            where=path,
            hint="convert its video to raw NV12 frames (ffmpeg), or use another camera",
        )
    name = "NV12" if "NV12" in offered else "YUYV"
    stream.set_format(form.width, form.height, name)
    got = stream.get_format()
    if (got.pixel_format.name, got.width, got.height) != (name, form.width, form.height):
        raise Unsupported(
            f"the camera gives {got.pixel_format.name} of {got.width}x{got.height} where {name} of "
            f"{form.width}x{form.height} was asked for",
            where=path,
            hint=f"compile the network with --camera nv12:{got.width}x{got.height}, or set the camera "
            "(v4l2-ctl --list-formats-ext shows what it offers)",
        )
    if name == "YUYV":
        return int(got.bytes_per_line)
    if got.bytes_per_line != form.stride:
        raise Unsupported(
            f"the camera's rows are {got.bytes_per_line} bytes apart, those of {form} {form.stride}",
            where=path,
            hint=f"compile the network with --camera nv12:{form.width}x{form.height}:{got.bytes_per_line}",
        )
    return 0


def _from_yuyv(data: Array | bytes, form: Nv12, stride: int, where: str) -> Array:
    """4:2:2 as 4:2:0: chroma is the mean of two rows, rounded up."""
    found = np.frombuffer(data, np.uint8)
    if len(found) < stride * form.height:
        raise InvalidInput(f"holds {len(found):,} bytes; YUYV has {stride * form.height:,}", where=where)
    width = 2 * form.chroma_width
    pairs = found[: stride * form.height].reshape(form.height, stride)[:, : 2 * width]
    frame = np.zeros(form.shape, np.uint8)
    frame[: form.height, :width] = pairs[:, 0::2]
    chroma = pairs[:, 1::2]
    upper, lower = chroma[0::2].astype(np.uint16), chroma[1::2]
    upper[: len(lower)] += lower
    upper[: len(lower)] = (upper[: len(lower)] + 1) // 2
    frame[form.rows :, :width] = upper
    return frame


# --- errors -------------------------------------------------------------------------------------------------


@contextmanager
def _opened(video: Any, path: str) -> Iterator[Any]:
    device = video.Device(path)
    with _refused(video, path):
        device.open()
    try:
        yield device
    finally:
        with _ignored():
            device.close()


@contextmanager
def _refused(video: Any, path: str) -> Iterator[None]:
    """What the system says before the first frame, in words."""
    try:
        yield
    except FileNotFoundError:
        raise DeviceMissing("no such device", where=path, hint="`ls /dev/video*` lists cameras") from None
    except PermissionError:
        hint = "add yourself to the group video: sudo usermod -aG video $USER, and log in again"
        raise DeviceMissing("no permission to open it", where=path, hint=hint) from None
    except video.V4L2Error as problem:
        raise Unsupported(f"is not a camera: {problem}", where=path) from problem
    except OSError as problem:
        if problem.errno == errno.EBUSY:
            hint = "close the other program (`fuser` names it)"
            raise DeviceMissing("another program uses it", where=path, hint=hint) from None
        if problem.errno in (errno.ENODEV, errno.ENXIO):
            raise DeviceMissing("the camera is gone", where=path, hint="plug it in again") from None
        if problem.errno in (errno.ENOTTY, errno.EINVAL):
            hint = "`v4l2-ctl --list-devices` names cameras"
            raise Unsupported(f"is not a camera: {problem}", where=path, hint=hint) from problem
        raise DeviceMissing(f"cannot be used: {problem}", where=path) from problem


def _ignored() -> AbstractContextManager[None]:
    """Closing what is gone fails, and there is nothing left to close."""
    return suppress(OSError, ValueError)
