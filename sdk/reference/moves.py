"""What moves elements and computes none, in numpy: of values, and of their errors alike."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sdk import graph as ops
from sdk.graph import Array, Node


def carries(node: Node, index: int) -> bool:
    """Whether input `index` is moved; else it says where to."""
    match node:
        case ops.Gather() | ops.GatherND():
            return index == 0
        case ops.Scatter():
            return index != 1
        case _:
            return True


def move(node: Node, arrays: Sequence[Array], shape: tuple[int, ...], border: float | None) -> Array | None:
    """The output; None of a node that is no move.

    Args:
        node: of a verified graph.
        arrays: its inputs.
        shape: of the output.
        border: what stands in place of a Fill's own value.

    Raises:
        IndexError: an index out of range, in words.
    """
    x = arrays[0]
    match node:
        case ops.Reshape():
            return x.reshape(shape)
        case ops.Transpose():
            return x.transpose(node.perm)
        case ops.Concat():
            return np.concatenate(arrays, axis=node.axis)
        case ops.Slice():
            spans = zip(node.starts, node.steps, shape, strict=True)
            return x[np.ix_(*(start + step * np.arange(count) for start, step, count in spans))]
        case ops.Take():
            lists = (
                list(chosen) or range(extent) for chosen, extent in zip(node.indices, x.shape, strict=True)
            )
            return x[np.ix_(*lists)]
        case ops.Fill():
            value = node.value if border is None else border
            return np.pad(
                x, tuple(zip(node.befores, node.afters, strict=True)), constant_values=_as(value, x)
            )
        case ops.Pad():
            top, left, bottom, right = node.pads
            return np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
        case ops.Resize():
            return x[:, :, node.rows][:, :, :, node.columns]
        case ops.Gather():
            return np.take(x, _within(arrays[1], x.shape[node.axis]), axis=node.axis)
        case ops.GatherND():
            return _gather_nd(x, arrays[1], node.batch_dims).reshape(shape)
        case ops.Scatter():
            result = x.copy()
            where = coordinates(arrays[1], x.shape)
            for at, update in zip(
                np.ndindex(arrays[1].shape[:-1]), _each(arrays[2], arrays[1].ndim - 1), strict=True
            ):
                result[tuple(axis[at] for axis in where)] = update
            return result
        case _:
            return None


def _as(value: float, x: Array) -> float | int | bool:
    return value if x.dtype.kind == "f" else bool(value) if x.dtype.kind == "b" else int(value)


def _within(indices: Array, extent: int) -> Array:
    """Indices counted from the front."""
    wrong = (indices < -extent) | (indices >= extent)
    if wrong.any():
        found = int(indices[wrong].flat[0])
        raise IndexError(f"index {found} of an axis of {extent}: it must be from {-extent} to {extent - 1}")
    return np.where(indices < 0, indices + extent, indices)


def coordinates(indices: Array, shape: Sequence[int]) -> tuple[Array, ...]:
    """The last axis of the indices as one array for each axis of `shape` that it names."""
    return tuple(_within(indices[..., axis], shape[axis]) for axis in range(indices.shape[-1]))


def _gather_nd(x: Array, indices: Array, batch: int) -> Array:
    where = coordinates(indices, x.shape[batch:])
    own = [
        np.arange(extent).reshape([-1 if axis == i else 1 for i in range(indices.ndim - 1)])
        for axis, extent in enumerate(indices.shape[:batch])
    ]
    return np.asarray(x[(*own, *where)])


def _each(array: Array, axes: int) -> list[Array]:
    """The parts of an array behind its first axes, in order."""
    return list(array.reshape(-1, *array.shape[axes:]))


def grid_sample(node: ops.GridSample, x: Array, grid: Array) -> Array:
    """ONNX GridSample of [N,C,H,W]."""
    height, width = x.shape[2:]
    columns, rows = (_pixel(grid[..., i], extent, node) for i, extent in ((0, width), (1, height)))
    if node.mode == "nearest":
        return _at(x, np.rint(rows), np.rint(columns), node)
    top, left = np.floor(rows), np.floor(columns)
    down, right = (rows - top)[:, None], (columns - left)[:, None]
    upper = _at(x, top, left, node) * (1 - right) + _at(x, top, left + 1, node) * right
    lower = _at(x, top + 1, left, node) * (1 - right) + _at(x, top + 1, left + 1, node) * right
    return np.asarray(upper * (1 - down) + lower * down)


def _pixel(coordinate: Array, extent: int, node: ops.GridSample) -> Array:
    """From [-1, 1] to pixels, folded into the picture as the padding mode says."""
    if node.align_corners:
        position, low, high = (coordinate + 1) / 2 * (extent - 1), 0.0, extent - 1.0
    else:
        position, low, high = ((coordinate + 1) * extent - 1) / 2, -0.5, extent - 0.5
    if node.padding_mode == "border":
        return np.clip(position, 0, extent - 1)
    if node.padding_mode == "reflection":
        span = high - low
        if span == 0:
            return np.zeros_like(position)
        turned = np.mod(position - low, 2 * span)
        return np.clip(low + np.minimum(turned, 2 * span - turned), 0, extent - 1)
    return position


def _at(x: Array, rows: Array, columns: Array, node: ops.GridSample) -> Array:
    """[N,C,H',W'] of whole positions; outside is 0, or the nearest element."""
    height, width = x.shape[2:]
    inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    i = np.clip(np.nan_to_num(rows), 0, height - 1).astype(np.int64)
    j = np.clip(np.nan_to_num(columns), 0, width - 1).astype(np.int64)
    sample = np.arange(len(x))[:, None, None]
    values = x[sample, :, i, j].transpose(0, 3, 1, 2)
    if node.padding_mode == "zeros":
        return np.where(inside[:, None], values, 0.0)
    return np.asarray(values)
