"""Pad and Fill: elements around a tensor's own."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dsp.hexagon.calls import At, KernelSource, splat
from dsp.hexagon.context import Context
from dsp.hexagon.elementwise import requantized
from dsp.hexagon.layout import is_planar, stretches
from dsp.hexagon.moves import copy_pixels
from sdk.arena import ALIGNMENT, align
from sdk.graph import Fill, Pad, Tensor
from sdk.scales import border
from sdk.verification import same_quantization


def pad(context: Context, node: Pad) -> None:
    """A border of the zero-point."""
    x, y = context.ends(node)
    _framed(context, x, y, node.pads[:2], y.zero_point)


def fill(context: Context, node: Fill) -> None:
    """A border of any value along any axes; where the scale changes, x is requantised before."""
    x, y = context.ends(node)
    value = border(node, y)
    if not same_quantization(x, y):
        x = requantized(context, node, x, y)
    if is_planar(y) and not any((*node.befores[:2], *node.afters[:2])):
        _framed(context, x, y, node.befores[2:], value)
        return
    at, shape = context.as_dense(x), list(x.shape)
    for axis, (before, after) in enumerate(zip(node.befores, node.afters, strict=True)):
        if before or after:
            inner, rows = math.prod(shape[axis + 1 :]), math.prod(shape[:axis])
            nbytes = shape[axis] * inner
            shape[axis] += before + after
            made = At(context.buffer(y.name, align(math.prod(shape))))
            flood = {"y": made, "vectors": made.buffer.nbytes // ALIGNMENT, "value": splat(value)}
            context.call(KernelSource("moving.c", "flood"), flood)
            fields = {
                "x": at,
                "x_row": nbytes,
                "y": At(made.buffer, before * inner),
                "y_row": shape[axis] * inner,
                "blocks": 1,
                "rows": rows,
                "bytes": nbytes,
            }
            context.call(KernelSource("moving.c", "copy"), fields)
            at = made
    context.finish_dense(y, at)


def _framed(context: Context, x: Tensor, y: Tensor, start: Sequence[int], value: int) -> None:
    """Planes full of one value, and in them, from this row and column on, the picture."""
    source, target = context.as_planes(x), context.new_planes(y)
    for (part,) in stretches(target):
        fields = {
            "y": At(part.buffer, part.base),  # before it there may be other parts of a Concat
            "vectors": part.planes * part.plane // ALIGNMENT,
            "value": splat(value),
        }
        context.call(KernelSource("moving.c", "flood"), fields)
    copy_pixels(context, source, target, start[0] * target.pitch + start[1])
    context.pad(y, target)
    context.finish_planes(y, target)
