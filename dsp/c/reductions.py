"""Reduce, Softmax, Normalize and GlobalAveragePool."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dsp.c.context import Context
from dsp.c.elements import ELEMENTS, INTEGERS, element, float_literal, integer
from dsp.c.products import declare_loops
from dsp.c.walks import broadcast_steps, merged, steps
from sdk import dtypes
from sdk.graph import GlobalAveragePool, Normalize, Reduce, Softmax, Tensor, TopK


def reduce(context: Context, node: Reduce) -> None:
    (x,), y = context.tensors(node)
    if dtypes.is_float(x.dtype) and node.kind.startswith("arg"):
        axis = node.axes[0]
        fields = {"largest": node.kind == "argmax", **_parts(x, axis), **element("x", x), **integer("y", y)}
        context.call("plain/arg", fields, context.at(y.name), context.at(x.name))
    elif dtypes.is_float(x.dtype):
        _reduce(context, node.kind, x, y, node.axes)
    else:
        kept, reduced = _walks(x, y, node.axes)
        kind = node.kind.upper() if node.kind.startswith("arg") else f"INTEGER_{node.kind.upper()}"
        fields = {"kind": kind, **_loops(context, kept, reduced)}
        types = {name: value for name, value in (integer("x", x) | integer("y", y)).items() if "type" in name}
        context.call("plain/reduce_integers", fields | types, context.at(y.name), context.at(x.name))


def top_k(context: Context, node: TopK) -> None:
    (x,), y = context.tensors(node)
    real = dtypes.is_float(x.dtype)
    fields: dict[str, object] = {"largest": node.largest, "real": real, "k": node.k, **_parts(x, node.axis)}
    found = element("x", x) if real else integer("x", x)
    fields |= {"x_element": found["x_type"] if real else ELEMENTS[0].upper()}
    fields |= {"x_integer": INTEGERS[0].upper() if real else found["x_type"], "x_size": found["x_size"]}
    context.call("plain/top_k", fields, context.at(y.name), context.at(x.name))


def global_average_pool(context: Context, node: GlobalAveragePool) -> None:
    (x,), y = context.tensors(node)
    _reduce(context, "mean", x, y, (2, 3))


def _reduce(context: Context, kind: str, x: Tensor, y: Tensor, axes: Sequence[int]) -> None:
    kept, reduced = _walks(x, y, axes)
    size = x.nbytes // x.size
    row = 1
    keeps_row = bool(kept) and kept[-1][1][1] == size
    if keeps_row:
        row = kept.pop()[0]
    elif reduced and reduced[-1][1][1] == size:
        row = reduced.pop()[0]
    fields = {"kind": kind.upper(), "keeps_row": keeps_row, **_loops(context, kept, reduced), "row": row}
    fields |= {"count": math.prod(x.shape[axis] for axis in axes), **element("x", x), **element("y", y)}
    context.call("plain/reduce", fields, context.at(y.name), context.at(x.name))


_Loops = list[tuple[int, tuple[int, ...]]]


def _walks(x: Tensor, y: Tensor, axes: Sequence[int]) -> tuple[_Loops, _Loops]:
    """Loops over what is kept, of y and x, and over what is reduced, of x; steps in bytes."""
    nbytes = [tensor.nbytes // tensor.size for tensor in (y, x)]
    kept = [axis for axis in range(len(x.shape)) if axis not in axes]
    own = [step * nbytes[1] for step in steps(x.shape)]
    extents = [x.shape[axis] for axis in kept]
    to = [step * nbytes[0] for step in steps(extents)]
    walk = merged(extents, to, [own[axis] for axis in kept])
    inner = sorted(axes)
    return walk, merged([x.shape[axis] for axis in inner], [0] * len(inner), [own[axis] for axis in inner])


def _loops(context: Context, kept: _Loops, reduced: _Loops) -> dict[str, object]:
    return {
        "kept_loops": len(kept),
        "reduced_loops": len(reduced),
        "kept": declare_loops(context, kept),
        "reduced": declare_loops(context, reduced),
    }


def _parts(x: Tensor, axis: int) -> dict[str, int]:
    return {
        "outer": math.prod(x.shape[:axis]),
        "size": x.shape[axis],
        "inner": math.prod(x.shape[axis + 1 :]),
    }


def softmax(context: Context, node: Softmax) -> None:
    (x,), y = context.tensors(node)
    fields = {**_parts(x, node.axis), **element("x", x), **element("y", y)}
    scratch = context.floats(4 * x.shape[node.axis])
    context.call("plain/softmax", fields, context.at(y.name), context.at(x.name), scratch)


def normalize(context: Context, node: Normalize) -> None:
    (x, *others), y = context.tensors(node)
    scale, bias = [*others, None, None][:2]
    walks = [
        broadcast_steps(tensor.shape, x.shape) if tensor is not None else [0] * len(x.shape)
        for tensor in (x, scale, bias)
    ]
    kept = [axis for axis in range(len(x.shape)) if axis not in node.axes]
    groups, rows = (
        merged([x.shape[axis] for axis in axes], *([walk[axis] for axis in axes] for walk in walks))
        for axes in (kept, sorted(node.axes))
    )
    row, step = rows.pop() if rows else (1, (0, 0, 0))
    count = math.prod(x.shape[axis] for axis in node.axes)
    fields = {"epsilon": float_literal(node.epsilon), "centre": node.centre, "row": row, "count": count}
    fields |= {"group_loops": len(groups), "row_loops": len(rows), "step": list(step)}
    fields |= {"groups": declare_loops(context, groups), "rows": declare_loops(context, rows)}
    for name, tensor in (("x", x), ("scale", scale), ("bias", bias), ("y", y)):
        fields |= element(name, tensor)
    places = [context.at(tensor.name) if tensor is not None else "NULL" for tensor in (y, x, scale, bias)]
    context.call("plain/normalize", fields, *places, context.floats(4 * count))
