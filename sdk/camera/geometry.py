"""Matrices from the pixels of a network's picture to those of a frame: centres are at whole numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sdk.camera.nv12 import Nv12

PLANES = 6
"""Of a 4:2:0 picture: luma of even rows and columns, odd rows, odd columns, both odd; U; V."""


def raster(shape: Sequence[int]) -> tuple[int, int]:
    """Rows and columns of the picture in an input of a network: planes of luma have half of them."""
    if shape[1] in (PLANES, 2 * PLANES):
        return 2 * shape[2], 2 * shape[3]
    return (shape[2], shape[3]) if shape[1] in (1, 3) else (shape[1], shape[2])


def covering(form: Nv12, size: tuple[int, int]) -> NDArray[np.float32]:
    """To the largest part of the frame that has the form of `size` (rows, columns), in its middle."""
    scale = min(form.height / size[0], form.width / size[1])
    left, top = (form.width - scale * size[1]) / 2, (form.height - scale * size[0]) / 2
    return to_box((left, top, form.width - left, form.height - top), size)


def to_box(box: tuple[float, float, float, float], size: tuple[int, int]) -> NDArray[np.float32]:
    """To a part of the frame: left, top, right, bottom, in pixels from the corner of the first."""
    left, top, right, bottom = box
    across, down = (right - left) / size[1], (bottom - top) / size[0]
    rows = [[across, 0, left + across / 2 - 0.5], [0, down, top + down / 2 - 0.5], [0, 0, 1]]
    return np.array(rows, np.float32)
