"""Operators by index: Gather and its kin, Scatter, OneHot, GridSample."""

from __future__ import annotations

import numpy as np

from sdk.expression.trace import Symbol, apply, select
from sdk.graph import Array, Concat, Gather, GatherND, GridSample, Scatter, Tensor
from sdk.importers.plain.conversion import Conversion, to_kind


def gather(c: Conversion) -> None:
    """Take by constant indices (and Reshape), else Gather."""
    x, known = c.x(0), c.known(1)
    axis = c.axis(c.node.integer("axis", 0), len(x.shape))
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
    c.make(GatherND, [x, _coordinates(c, x)], batch_dims=0)


def _coordinates(c: Conversion, x: Tensor) -> Tensor:
    """Of GatherElements and ScatterElements: [*indices.shape, rank], the indices along the node's axis."""
    axis, known = c.axis(c.node.integer("axis", 0), len(x.shape)), c.known(1)
    shape, rank = c.x(1).shape, len(x.shape)
    if len(shape) != rank:
        raise c.node.invalid(f"indices {list(shape)} into {list(x.shape)}")
    own = [np.broadcast_to(place, shape) for place in np.indices(shape, np.int64, sparse=True)]
    if known is not None:
        own[axis] = _counted(c, known, x.shape[axis])
        return c.file(np.stack(own, axis=-1), "coordinates")
    column = c.reshape(c.cast(c.x(1), "int64", "int64"), (*shape, 1), "column")
    parts = [column]
    if axis:
        parts.insert(0, c.file(np.stack(own[:axis], axis=-1), "before"))
    if axis + 1 < rank:
        parts.append(c.file(np.stack(own[axis + 1 :], axis=-1), "after"))
    return c.make(Concat, parts, "coordinates", axis=rank) if rank > 1 else column


def scatter_nd(c: Conversion) -> None:
    """Scatter; without a reduction."""
    _no_reduction(c)
    c.make(Scatter, [c.x(0), c.x(1), c.x(2)])


def scatter_elements(c: Conversion) -> None:
    """Scatter by coordinates that are made of the indices; without a reduction."""
    _no_reduction(c)
    x = c.x(0)
    c.make(Scatter, [x, _coordinates(c, x), c.x(2)])


def _no_reduction(c: Conversion) -> None:
    reduction = c.node.text("reduction", "none")
    if reduction != "none":
        raise c.node.unsupported(
            f"{c.node.op_type} with the reduction {reduction!r}", "scatter without a reduction"
        )


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
