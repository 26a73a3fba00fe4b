"""Pools, Interpolate and GridSample."""

from __future__ import annotations

import math
from typing import Any

from dsp.c import quantized
from dsp.c.context import Context
from dsp.c.elements import element
from dsp.c.products import window_fields
from sdk.graph import AveragePool, GridSample, Interpolate, MaxPool


def pool(context: Context, node: MaxPool | AveragePool) -> None:
    (x,), y = context.tensors(node)
    dilations, by_count = (1, 1), False
    if isinstance(node, AveragePool):
        by_count = not node.count_include_pad
    elif x.dtype == "uint8":
        quantized.max_pool(context, node)
        return
    else:
        dilations = node.dilations
    fields = window_fields(node, x, y, node.kernel, dilations)
    fields |= {"planes": x.shape[0] * x.shape[1], "maximum": isinstance(node, MaxPool), "by_count": by_count}
    fields |= {**element("x", x), **element("y", y)}
    scratch = context.floats(4 * (fields["lines"] * fields["line"] + fields["columns"]))
    context.call("plain/pool", fields, context.at(y.name), context.at(x.name), scratch)


def interpolate(context: Context, node: Interpolate) -> None:
    (x, rows, _, columns, _), y = context.tensors(node)
    fields = quantized.geometry(x, y) | {"row_taps": rows.shape[1], "column_taps": columns.shape[1]}
    taps = [context.constant(context.data(node, index)) for index in (1, 2, 3, 4)]
    scratch = context.floats(4 * (2 * x.shape[3] + y.shape[3]))
    places = [context.at(y.name), context.at(x.name), *taps, scratch]
    context.call("plain/interpolate", {**fields, **element("x", x), **element("y", y)}, *places)


def grid_sample(context: Context, node: GridSample) -> None:
    (x, grid), y = context.tensors(node)
    names = ("images", "channels", "height", "width")
    fields: dict[str, Any] = dict(zip(names, x.shape, strict=True))
    fields |= {
        "points": math.prod(grid.shape[1:3]),
        "nearest": node.mode == "nearest",
        "align_corners": node.align_corners,
    }
    fields |= {
        "padding": node.padding_mode.upper(),
        **element("x", x),
        **element("grid", grid),
        **element("y", y),
    }
    context.call("plain/grid_sample", fields, *(context.at(tensor.name) for tensor in (y, x, grid)))
