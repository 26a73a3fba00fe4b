"""What a TFLite value is in the graph, and what the integers of a constant stand for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sdk.errors import InvalidModel
from sdk.graph import Array
from sdk.importers.tflite.file import TfliteTensor


@dataclass(frozen=True)
class View:
    """A TFLite value: axis i of it is axis ``axes[i]`` of the graph's `tensor`."""

    tensor: str
    axes: tuple[int, ...]


def plainly(tensor: str, rank: int) -> View:
    """A tensor that has TFLite's own order of axes."""
    return View(tensor, tuple(range(rank)))


def dequantizing(tensor: TfliteTensor, array: Array) -> tuple[Array, Array]:
    """Scale and zero-point of a quantised constant, so shaped that they lie along the right axis of it.

    Raises:
        InvalidModel: its scales do not fit it.
    """
    axis = tensor.axis if tensor.scale.size > 1 else None
    if axis is not None and (not 0 <= axis < array.ndim or array.shape[axis] != tensor.scale.size):
        message = f"{tensor.scale.size} scales along axis {axis} of {list(array.shape)}"
        raise InvalidModel(message, where=tensor.where)
    if not (np.isfinite(tensor.scale) & (tensor.scale > 0)).all():
        raise InvalidModel("its scales are not all finite and positive", where=tensor.where)
    along = () if axis is None else tuple(-1 if i == axis else 1 for i in range(array.ndim))
    return tensor.scale.astype(np.float64).reshape(along), tensor.zero_point.reshape(along)


def dequantized(tensor: TfliteTensor, array: Array) -> Array:
    """What the integers of a constant stand for, float32.

    Raises:
        InvalidModel: its scales do not fit it.
    """
    scale, zero = dequantizing(tensor, array)
    with np.errstate(over="ignore"):
        return np.asarray((array.astype(np.float64) - zero) * scale, np.float32)
