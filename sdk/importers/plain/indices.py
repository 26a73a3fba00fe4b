"""Operators by index: Gather and its kin, Scatter, OneHot, GridSample."""

from __future__ import annotations

import numpy as np

from sdk.expression.trace import Symbol, apply, select
from sdk.graph import Array, Concat, Gather, GatherND, GridSample, Scatter, Tensor, TopK
from sdk.importers.plain.conversion import Conversion, to_kind


def gather(c: Conversion) -> None:
    """Take by constant indices (and Reshape), else Gather."""
    x = c.x(0)
    gather_from(c, x, c.axis(c.node.integer("axis", 0), len(x.shape)))


def gather_from(c: Conversion, x: Tensor, axis: int) -> None:
    """The output: slices of `x` along an axis, which the node's input 1 names."""
    known = c.known(1)
    if known is None:
        c.make(Gather, [x, c.x(1)], axis=axis)
        return
    chosen = _counted(c, known, x.shape[axis])
    shape = (*x.shape[:axis], *known.shape, *x.shape[axis + 1 :])
    if not known.size:
        raise c.node.unsupported(f"its result is empty: {list(shape)}")
    flat = (*x.shape[:axis], known.size, *x.shape[axis + 1 :])
    indices = [chosen.reshape(-1).tolist() if i == axis else range(n) for i, n in enumerate(x.shape)]
    taken = c.take(x, indices, "" if flat == shape else "taken")
    if flat != shape:
        c.reshape(taken, shape)


def _counted(c: Conversion, indices: Array, extent: int) -> Array:
    """Constant indices counted from the front."""
    wrong = (indices < -extent) | (indices >= extent)
    if wrong.any():
        raise c.node.invalid(f"index {int(indices[wrong].flat[0])} of an axis of {extent}")
    return np.where(indices < 0, indices + extent, indices).astype(np.int64)


def gather_nd(c: Conversion) -> None:
    """GatherND."""
    c.make(GatherND, [c.x(0), c.x(1)], batch_dims=c.node.integer("batch_dims", 0))


def gather_elements(c: Conversion) -> None:
    """GatherND by coordinates that are made of the indices."""
    x = c.x(0)
    axis = c.axis(c.node.integer("axis", 0), len(x.shape))
    c.make(GatherND, [x, _coordinates(c, x, axis, c.x(1))], batch_dims=0)


def compress(c: Conversion) -> None:
    """Take of what a constant condition chooses."""
    x, condition, axis = c.x(0), c.constant(1).reshape(-1), c.node.attributes.get("axis")
    if axis is None:
        x, axis = c.reshape(x, (x.size,), "flat"), 0
    axis = c.axis(int(axis), len(x.shape))
    chosen = np.flatnonzero(condition)
    if len(condition) > x.shape[axis]:
        raise c.node.invalid(f"a condition of {len(condition)} for an axis of {x.shape[axis]}")
    if not chosen.size:
        raise c.node.unsupported("its result is empty: the condition is false throughout")
    c.take(x, [chosen.tolist() if i == axis else range(n) for i, n in enumerate(x.shape)])


def reverse_sequence(c: Conversion) -> None:
    """GatherND by constant coordinates; the lengths have to be constants."""
    x, node = c.x(0), c.node
    rank, lengths = len(x.shape), c.constant(1).reshape(-1)
    batch, time = (c.axis(node.integer(f"{name}_axis", i), rank) for name, i in (("batch", 1), ("time", 0)))
    if batch == time or lengths.shape != (x.shape[batch],):
        raise node.invalid(f"{len(lengths)} lengths of {list(x.shape)} along the axes {batch} and {time}")
    if lengths.min() < 0 or lengths.max() > x.shape[time]:
        raise node.invalid(f"lengths {lengths.tolist()} of an axis of {x.shape[time]}")
    node.require_room(8 * rank * x.size)
    places = list(np.indices(x.shape, np.int64))
    length = lengths.astype(np.int64)[places[batch]]
    places[time] = np.where(places[time] < length, length - 1 - places[time], places[time])
    c.make(GatherND, [x, c.file(np.stack(places, axis=-1), "coordinates")], batch_dims=0)


def top_k(c: Conversion) -> None:
    """TopK for the indices, GatherND for the values."""
    x, node = c.x(0), c.node
    axis = c.axis(node.integer("axis", -1), len(x.shape))
    k = node.integer("k", 0) if node.opset < 10 else int(c.scalar(1, 0))
    if not 1 <= k <= x.shape[axis]:
        raise node.invalid(f"TopK of {k} along an axis of {x.shape[axis]}")
    wanted = [*map(bool, node.outputs), False][:2]
    part, largest = "" if wanted[1] else "indices", bool(node.integer("largest", 1))
    indices = c.make(TopK, [x], part, dtype="int64", output=1, axis=axis, k=k, largest=largest)
    if wanted[0]:
        c.make(GatherND, [x, _coordinates(c, x, axis, indices)], batch_dims=0)


def _coordinates(c: Conversion, x: Tensor, axis: int, indices: Tensor) -> Tensor:
    """Of elements of x, [*indices.shape, rank]: the indices along the axis, and their own places."""
    known, shape, rank = indices.data, indices.shape, len(x.shape)
    if len(shape) != rank:
        raise c.node.invalid(f"indices {list(shape)} into {list(x.shape)}")
    c.node.require_room(8 * rank * indices.size)
    own = [np.broadcast_to(place, shape) for place in np.indices(shape, np.int64, sparse=True)]
    if known is not None:
        own[axis] = _counted(c, known, x.shape[axis])
        return c.file(np.stack(own, axis=-1), "coordinates")
    column = c.reshape(c.cast(indices, "int64", "int64"), (*shape, 1), "column")
    parts = [column]
    if axis:
        parts.insert(0, c.file(np.stack(own[:axis], axis=-1), "before"))
    if axis + 1 < rank:
        parts.append(c.file(np.stack(own[axis + 1 :], axis=-1), "after"))
    return c.make(Concat, parts, "coordinates", axis=rank) if rank > 1 else column


def scatter_nd(c: Conversion) -> None:
    """Scatter."""
    c.make(Scatter, [c.x(0), c.x(1), c.x(2)], reduction=c.node.text("reduction", "none"))


def scatter_elements(c: Conversion) -> None:
    """Scatter by coordinates that are made of the indices."""
    x = c.x(0)
    axis = c.axis(c.node.integer("axis", 0), len(x.shape))
    where = _coordinates(c, x, axis, c.x(1))
    c.make(Scatter, [x, where, c.x(2)], reduction=c.node.text("reduction", "none"))


def one_hot(c: Conversion) -> None:
    """Map, comparing indices with all that there can be."""
    indices, depth = c.x(0), int(c.constant(1).reshape(-1)[0])
    values = c.x(2)
    if depth < 1 or values.size != 2:
        raise c.node.invalid(f"OneHot of depth {depth} with {values.size} values")
    rank = len(indices.shape) + 1
    axis = c.axis(c.node.integer("axis", -1), rank)
    column = c.reshape(indices, (*indices.shape[:axis], 1, *indices.shape[axis:]), "column")
    along = [depth if i == axis else 1 for i in range(rank)]
    c.node.require_room(8 * depth)
    places = c.file(np.arange(depth).reshape(along), "places")
    off, on = (_element(c, values, index) for index in (0, 1))

    def function(index: Symbol, place: Symbol, zero: Symbol, one: Symbol) -> Symbol:
        whole = to_kind(index, "int")
        from_front = select(whole < 0, whole + depth, whole)
        return select(apply("eq", from_front, place), one, zero)

    c.map(function, [column, places, off, on], dtype=values.dtype)


def _element(c: Conversion, values: Tensor, index: int) -> Tensor:
    """One element of a vector, a scalar."""
    if values.data is not None:
        return c.file(values.data[index], f"value{index}", values.dtype)
    return c.reshape(c.take(values, [[index]], f"value{index}"), (), f"scalar{index}")


def grid_sample(c: Conversion) -> None:
    """GridSample of [N,C,H,W], bilinear or nearest."""
    x, grid = c.x(0), c.x(1)
    mode = {"bilinear": "linear"}.get(found := c.node.text("mode", "linear"), found)
    padding = c.node.text("padding_mode", "zeros")
    if mode not in ("linear", "nearest"):
        raise c.node.unsupported(f"GridSample with mode {mode!r}", "sample bilinearly or the nearest")
    if padding not in ("zeros", "border", "reflection"):
        raise c.node.invalid(f"padding_mode {padding!r}")
    if len(x.shape) != 4:
        raise c.node.unsupported(f"GridSample of {list(x.shape)}: only [N,C,H,W] is supported")
    align = bool(c.node.integer("align_corners", 0))
    c.make(GridSample, [x, grid], mode=mode, padding_mode=padding, align_corners=align)
