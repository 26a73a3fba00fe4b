"""What moves elements of plain tensors, whatever their dtype."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dsp.c.context import Context
from dsp.c.elements import INTEGERS, integer
from dsp.c.walks import limited, merged, steps
from sdk import dtypes
from sdk.errors import Unsupported
from sdk.graph import (
    Concat,
    Fill,
    Gather,
    GatherND,
    Pad,
    Reshape,
    Resize,
    Scatter,
    Slice,
    Take,
    Tensor,
    Transpose,
)

DIMENSIONS = 8
"""Of kernels/plain/coordinates.h."""


def reshape(context: Context, node: Reshape) -> None:
    """Nothing, unless it gives a constant another shape."""
    (x,), y = context.tensors(node)
    if x.data is not None:
        _copy(context, x, y)


def transpose(context: Context, node: Transpose) -> None:
    (x,), y = context.tensors(node)
    own = steps(x.shape)
    _move(context, x, y, y.shape, steps(y.shape), [own[axis] for axis in node.perm])


def concat(context: Context, node: Concat) -> None:
    inputs, y = context.tensors(node)
    start = 0
    for x in inputs:
        _move(context, x, y, x.shape, steps(y.shape), steps(x.shape), start)
        start += math.prod(x.shape[node.axis :])


def take_slice(context: Context, node: Slice) -> None:
    (x,), y = context.tensors(node)
    own = steps(x.shape)
    first = sum(start * step for start, step in zip(node.starts, own, strict=True))
    walk = [step * one for step, one in zip(node.steps, own, strict=True)]
    _move(context, x, y, y.shape, steps(y.shape), walk, 0, first)


def take(context: Context, node: Take) -> None:
    (x,), y = context.tensors(node)
    _take(context, x, y, node.indices)


def resize(context: Context, node: Resize) -> None:
    (x,), y = context.tensors(node)
    _take(context, x, y, ((), (), node.rows, node.columns))


def fill(context: Context, node: Fill) -> None:
    (x,), y = context.tensors(node)
    _fill(context, x, y, node.befores, node.value)


def pad(context: Context, node: Pad) -> None:
    (x,), y = context.tensors(node)
    _fill(context, x, y, (0, 0, *node.pads[:2]), 0.0)


def _fill(context: Context, x: Tensor, y: Tensor, befores: Sequence[int], value: float) -> None:
    kind = dtypes.dtype(y.dtype).kind
    exact = np.float64(value) if kind == "float" else np.int64(value)
    one = dtypes.encode(np.asarray(exact), y.dtype).reshape(1)
    place = context.at(y.name)
    if len(set(one.tobytes())) == 1:
        context.code.calls.append(f"memset({place}, {one.tobytes()[0]}, {y.nbytes});")
    else:
        size = y.nbytes // y.size
        context.direct("plain/fill", str(y.size), str(size), place, context.constant(one))
    to = steps(y.shape)
    start = sum(before * step for before, step in zip(befores, to, strict=True))
    _move(context, x, y, x.shape, to, steps(x.shape), start)


def _copy(context: Context, x: Tensor, y: Tensor) -> None:
    context.code.calls.append(f"memcpy({context.at(y.name)}, {context.at(x.name)}, {y.nbytes});")


def _take(context: Context, x: Tensor, y: Tensor, indices: Sequence[Sequence[int]]) -> None:
    """Axes whose elements are listed have a table of them; those between are walked as few."""
    size = y.nbytes // y.size
    to, own = steps(y.shape), steps(x.shape)
    ways: list[list[int]] = []
    axis = 0
    while axis < len(indices):
        if indices[axis]:
            table = context.table(np.array(indices[axis], "<i4"))
            ways.append([len(indices[axis]), to[axis] * size, own[axis] * size, table])
            axis += 1
            continue
        end = axis
        while end < len(indices) and not indices[end]:
            end += 1
        loops = merged(y.shape[axis:end], to[axis:end], own[axis:end])
        ways += [[extent, step * size, source * size, -1] for extent, (step, source) in loops]
        axis = end
    _call(context, ways, size, context.at(y.name), context.at(x.name))


def _move(
    context: Context,
    x: Tensor,
    y: Tensor,
    extents: Sequence[int],
    to: Sequence[int],
    source: Sequence[int],
    start: int = 0,
    first: int = 0,
) -> None:
    """Elements from `first` of x on to `start` of y on, in these steps."""
    size = y.nbytes // y.size
    loops = merged(extents, to, source)
    ways = [[extent, step * size, other * size, -1] for extent, (step, other) in loops]
    _call(context, ways, size, context.at(y.name, start * size), context.at(x.name, first * size))


def _call(context: Context, ways: list[list[int]], size: int, to: str, source: str) -> None:
    ways = list(limited(ways)) or [[1, size, size, -1]]  # type: ignore[arg-type]
    if ways == [[ways[0][0], size, size, -1]]:
        context.code.calls.append(f"memcpy({to}, {source}, {ways[0][0] * size});")
        return
    name = context.declare("way", "[]", ways)
    context.direct("plain/move", name, str(len(ways)), str(size), to, source, "weights")


# -- by indices that are known when it runs ------------------------------------------------------------------


def gather(context: Context, node: Gather) -> None:
    (x, indices), y = context.tensors(node)
    inner = math.prod(x.shape[node.axis + 1 :]) * (y.nbytes // y.size)
    fields = {
        "where": _coordinates(indices, [x.shape[node.axis]], [inner]),
        "outer": math.prod(x.shape[: node.axis]),
        "part": x.shape[node.axis] * inner,
        "count": indices.size,
        "slice": inner,
        "shared": 1,
    }
    context.call("plain/gather", fields, *(context.at(tensor.name) for tensor in (y, x, indices)))


def gather_nd(context: Context, node: GatherND) -> None:
    (x, indices), y = context.tensors(node)
    size = y.nbytes // y.size
    batch, depth = node.batch_dims, indices.shape[-1]
    outer = math.prod(x.shape[:batch])
    own = [step * size for step in steps(x.shape)]
    fields = {
        "where": _coordinates(indices, x.shape[batch : batch + depth], own[batch : batch + depth]),
        "outer": outer,
        "part": math.prod(x.shape[batch:]) * size,
        "count": math.prod(indices.shape[batch:-1]),
        "slice": math.prod(x.shape[batch + depth :]) * size,
        "shared": 0,
    }
    context.call("plain/gather", fields, *(context.at(tensor.name) for tensor in (y, x, indices)))


def scatter(context: Context, node: Scatter) -> None:
    (x, indices, updates), y = context.tensors(node)
    size = y.nbytes // y.size
    depth = indices.shape[-1]
    own = [step * size for step in steps(x.shape)]
    places = [context.at(tensor.name) for tensor in (y, indices, updates)]
    fields: dict[str, object] = {
        "where": _coordinates(indices, x.shape[:depth], own[:depth]),
        "count": math.prod(indices.shape[:-1]),
        "slice": math.prod(x.shape[depth:]) * (size if node.reduction == "none" else 1),
    }
    if node.reduction == "none":
        _copy(context, x, y)
        context.call("plain/scatter", fields, *places)
        return
    real = dtypes.is_float(y.dtype)
    if real and y.dtype != "float32":
        raise Unsupported(
            f"the {node.reduction} of {y.dtype} would be rounded at each update", hint="scatter in float32"
        )
    fields |= {"kind": f"SCATTER_{node.reduction.upper()}", "real": real, "y_size": size}
    fields["y_integer"] = INTEGERS[0].upper() if real else integer("y", y)["y_type"]
    _copy(context, x, y)
    context.call("plain/scatter_reduce", fields, *places)


def _coordinates(indices: Tensor, extents: Sequence[int], own: Sequence[int]) -> dict[str, object]:
    if len(extents) > DIMENSIONS:
        raise Unsupported(f"its indices name {len(extents)} axes; the limit is {DIMENSIONS}")
    fields = integer("x", indices)
    return {
        "type": fields["x_type"],
        "size": fields["x_size"],
        "depth": len(extents),
        "extent": list(extents),
        "step": list(own),
    }
