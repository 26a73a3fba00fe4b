"""Map of quantised tensors: a kernel generated for each expression and way of reading its operands.

Words of 32 bits, four vectors for one of bytes, run through the expression in its q31 form
(`sdk.exact_maps`) over the vectors of planes or of dense bytes. An operand is a tensor that lies in step with
the result, one byte for each channel of planes or for all; tables and constants are words. Of dense tensors,
constants over the last axes alone repeat: what they cover is treated like a plane.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsp.hexagon.calls import At, KernelSource
from dsp.hexagon.context import Context
from dsp.hexagon.elementwise import VLUT_ORDER, in_step
from dsp.hexagon.expressions import Printed, Range, print_expression
from dsp.hexagon.layout import PIXEL, VECTOR_PIXELS, Planes, element_index, is_planar
from sdk.arena import ALIGNMENT, align
from sdk.errors import Unsupported
from sdk.exact_maps import Operand, exact_map
from sdk.graph import Array, Map, Tensor

MAP_OPERANDS = 16
"""Tensors, tables and constants of one expression that a descriptor has room for."""

Words = NDArray[np.int32]


@dataclass(frozen=True)
class _Reading:
    """How a kernel reads an operand.

    Attributes:
        at: its first byte, or where its words are in the weights; the number that it is everywhere.
        plane: bytes from what one plane reads to the next.
        sample: the same of the samples of planes.
        declare: C before the loop over a plane's vectors.
        load: C within it.
        value: the C expression of a vector of words.
        table: where its table is in the weights.
    """

    at: At | int
    plane: int
    declare: str
    load: str
    value: str | int
    table: int = 0
    sample: int = 0

    def place(self, sample: int) -> At | int:
        """Its first byte for a sample of the result."""
        if isinstance(self.at, At):
            return At(self.at.buffer, self.at.delta + sample * self.sample)
        return self.at + sample * self.sample


@dataclass(frozen=True)
class _Extent:
    """What a kernel walks: `planes` of `vectors`; the result's planes, None where it is dense."""

    planes: int
    vectors: int
    target: Planes | None


def map_elements(context: Context, node: Map) -> None:
    y = context.graph.tensor(node.output)
    form = exact_map(context.graph, node, "q31")
    if len(form.operands) > MAP_OPERANDS:
        raise Unsupported(
            f"its expression reads {len(form.operands)} tables, tensors and constants; "
            f"the limit is {MAP_OPERANDS}",
            hint="write it as two operators with a quantised tensor between them",
        )
    # The operands first: their conversions are calls of this layer that come before the kernel's.
    places = [_place(context, operand, y) for operand in form.operands]
    extent, fields = _result(context, form.operands, y)
    readings = [
        _reading(context, i, operand, place, y, extent)
        for i, (operand, place) in enumerate(zip(form.operands, places, strict=True))
    ]
    ranges = [_range(operand) for operand in form.operands]
    printed = print_expression(form.expression, form.rounded, [r.value for r in readings], ranges)
    used = sorted(printed.used)
    text = _kernel(printed, [readings[i] for i in used], used)
    symbol = "map_" + hashlib.sha256(text.encode()).hexdigest()[:16]
    fields |= {
        "planes": extent.planes,
        "vectors": extent.vectors,
        "zero_point": y.zero_point * 0x10001,
        "numbers": context.blob.add(np.array(printed.numbers or (0,), "<i4")),
        "x_plane": [reading.plane for reading in readings],
        "table": [reading.table for reading in readings],
    }
    kernel, target = KernelSource("map.c", symbol, (f"NAME={symbol}",), text=text), extent.target
    for sample in range(1 if target is None else target.samples):
        fields["x"] = [reading.place(sample) for reading in readings]
        if target is not None:
            fields["y"] = At(target.buffer, target.base + sample * target.sample)
        context.call(kernel, dict(fields), "map")
    if target is not None:
        context.pad(y, target)


def _result(context: Context, operands: Sequence[Operand], y: Tensor) -> tuple[_Extent, dict[str, Any]]:
    """What is walked, and the descriptor's fields of the result."""
    if is_planar(y):
        target = context.new_planes(y)
        context.finish_planes(y, target)
        return _Extent(target.planes, target.vectors, target), {"y_plane": target.plane}
    vectors = align(y.nbytes) // ALIGNMENT
    period = min(_period(operands, y), vectors)
    planes = -(-vectors // period)
    reach = planes * period * ALIGNMENT
    context.furthest = max(context.furthest, reach - vectors * ALIGNMENT)
    at = At(context.buffer(y.name, reach))
    context.finish_dense(y, at)
    return _Extent(planes, period, None), {"y": at, "y_plane": period * ALIGNMENT}


def _period(operands: Sequence[Operand], y: Tensor) -> int:
    """Vectors after which the constants that cover the last axes of a dense tensor begin again."""
    covered = 0
    for operand in operands:
        if operand.data is not None and operand.data.size > 1:
            covered = max(covered, math.prod(y.shape[_first_axis(operand.data.shape, y.shape) :]))
    return math.lcm(covered, ALIGNMENT) // ALIGNMENT if covered else align(y.nbytes) // ALIGNMENT


def _first_axis(shape: Sequence[int], whole: Sequence[int]) -> int:
    """The first axis of `whole` along which an operand of this shape differs."""
    moving = [axis for axis, extent in enumerate(reversed(shape)) if extent > 1]
    return len(whole) - 1 - max(moving)


# -- operands -------------------------------------------------------------------------------------------


def _place(context: Context, operand: Operand, y: Tensor) -> Planes | tuple[At, int] | None:
    """Where the bytes of an activation are: in step with the result, or one for each channel or for all.

    With the start of dense ones comes what a sample takes of those for each channel.
    """
    if operand.tensor is None:
        return None
    x = context.graph.tensor(operand.tensor)
    if x.shape == (*y.shape[:2], 1, 1) and is_planar(y):
        return context.as_rows(x, PIXEL)
    if x.size == 1 or _by_channel(x.shape, y):
        return context.as_dense(x), 0
    x = in_step(context, x, y)
    return context.as_planes(x) if is_planar(y) else (context.as_dense(x), 0)


def _by_channel(shape: Sequence[int], y: Tensor) -> bool:
    """Whether an operand of this shape has one value for each channel of planes."""
    if not is_planar(y):
        return False
    return tuple(shape)[-3:] == (y.shape[1], 1, 1) and math.prod(shape) == y.shape[1]


def _reading(
    context: Context,
    i: int,
    operand: Operand,
    place: Planes | tuple[At, int] | None,
    y: Tensor,
    extent: _Extent,
) -> _Reading:
    if place is None:
        return _constant(context, i, np.asarray(operand.data, np.int32), y, extent)
    size = context.graph.tensor(str(operand.tensor)).size
    if not isinstance(place, Planes) and (size == 1 or extent.target is not None):
        start, sample = place
        element = f"x{i}[k]" if size > 1 else f"x{i}[0]"
        declare, load = f"const u8 *x{i} = c->arena + op->x[{i}] + plane * op->x_plane[{i}];", ""
        table = 0
        if operand.table is not None:
            table = context.blob.add(operand.table.astype("<i4"))
            declare += f"\n    const s32 *table{i} = (const s32 *)(c->weights + op->table[{i}]);"
            element = f"table{i}[{element}]"
        value = f"Q6_V_vsplat_R({element})"
        return _Reading(start, PIXEL if size > 1 else 0, declare, load, value, table, sample)
    if isinstance(place, Planes):
        at, plane, sample = At(place.buffer, place.base), place.plane, place.sample
    else:
        at, plane, sample = place[0], extent.vectors * ALIGNMENT, 0
    declare = f"const Vector *x{i} = (const Vector *)(c->arena + op->x[{i}] + plane * op->x_plane[{i}]);"
    if operand.table is None:
        load = f"Vector w{i}[4];\n      words_of_bytes(w{i}, x{i}[v]);"
        return _Reading(at, plane, declare, load, f"w{i}[k]", sample=sample)
    nbytes = _signed_bytes(_range(operand))
    declare += f"\n    const Vector *table{i} = (const Vector *)(c->weights + op->table[{i}]);"
    load = f"Vector w{i}[4];\n      look_up_words(w{i}, x{i}[v], table{i}, {nbytes});"
    table = context.blob.add(_byte_tables(operand.table, nbytes))
    return _Reading(at, plane, declare, load, f"w{i}[k]", table, sample)


def _constant(context: Context, i: int, data: Words, y: Tensor, extent: _Extent) -> _Reading:
    if data.size == 1:
        return _Reading(0, 0, "", "", int(data.reshape(-1)[0]))
    if _by_channel(data.shape, y):
        words = np.pad(data.reshape(-1), (0, align(data.size, 4) - data.size))
        declare = f"const s32 *x{i} = (const s32 *)(c->weights + op->x[{i}] + plane * op->x_plane[{i}]);"
        return _Reading(context.blob.add(words.astype("<i4")), 16, declare, "", f"Q6_V_vsplat_R(x{i}[k])")
    words, plane, sample = _spread(data, y, extent)
    declare = f"const Vector *x{i} = (const Vector *)(c->weights + op->x[{i}] + plane * op->x_plane[{i}]);"
    at = context.blob.add(words.astype("<i4"))
    return _Reading(at, plane, declare, "", f"x{i}[4 * v + k]", sample=sample)


def _spread(data: Words, y: Tensor, extent: _Extent) -> tuple[Words, int, int]:
    """(a word for each byte of the result's vectors, bytes from a plane's words to the next, a sample's)."""
    target = extent.target
    if target is None:
        covered = np.broadcast_to(data, y.shape).reshape(-1)
        covered = covered[: math.prod(y.shape[_first_axis(data.shape, y.shape) :])]
        line = np.resize(covered, (1, 1, extent.vectors * ALIGNMENT))
    else:
        shape = (1,) * (4 - data.ndim) + data.shape
        channels = y.shape[1] if shape[1] > 1 else 4  # the same in all channels: one plane is enough
        values = np.broadcast_to(data, (shape[0], channels, *y.shape[2:]))
        index = element_index((1, *values.shape[1:]), target.geometry)[0]
        line = np.zeros((shape[0], -(-channels // 4), target.vectors * ALIGNMENT), np.int32)
        line[:, index // target.plane, index % target.plane] = values
    words = line.reshape(*line.shape[:2], -1, VECTOR_PIXELS, PIXEL).swapaxes(3, 4)
    samples, planes, nbytes = *line.shape[:2], 4 * line.shape[2]
    return words, nbytes if planes > 1 else 0, planes * nbytes if samples > 1 else 0


def _range(operand: Operand) -> Range:
    values = operand.table if operand.data is None else operand.data
    return (0, 255) if values is None else (int(values.min()), int(values.max()))


def _signed_bytes(bounds: Range) -> int:
    """Bytes that hold all of these numbers."""
    return next(n for n in (1, 2, 3, 4) if -(1 << 8 * n - 1) <= bounds[0] and bounds[1] < 1 << 8 * n - 1)


def _byte_tables(table: Array, nbytes: int) -> NDArray[np.uint8]:
    """[byte][256], each table in the order in which vlut32 reads it."""
    words = table.astype("<i4")[VLUT_ORDER]
    return words.view(np.uint8).reshape(256, 4)[:, :nbytes].T


# -- text -----------------------------------------------------------------------------------------------


def _kernel(printed: Printed, readings: Sequence[_Reading], used: Sequence[int]) -> str:
    numbers = [f"  const s32 number{i} = number[{i}];" for i in range(len(printed.numbers))]
    declares = [f"    {reading.declare}" for reading in readings]
    loads = [f"      {reading.load}" for reading in readings if reading.load]
    lines = [f"        {line}" for line in printed.lines]
    return "\n".join(
        [
            '#include "map.h"',
            "",
            "void NAME(const void *descriptor, const struct context *c) {",
            "  const struct map *op = descriptor;",
            "  const s32 *number = (const s32 *)(c->weights + op->numbers);",
            *numbers,
            "  (void)number;",
            "  Vector zero_point = Q6_V_vsplat_R(op->zero_point);",
            "  struct range vectors = share(op->vectors, c);",
            "  for (u32 plane = 0; plane < op->planes; plane++) {",
            *declares,
            "    Vector *y = (Vector *)(c->arena + op->y + plane * op->y_plane);",
            "    for (u32 v = vectors.begin; v < vectors.end; v++) {",
            *loads,
            "      Vector words[4];",
            "      UNROLL for (int k = 0; k < 4; k++) {",
            *lines,
            f"        words[k] = {printed.result};",
            "      }",
            "      y[v] = bytes_of_words(words, zero_point);",
            "    }",
            "  }",
            "}",
            "",
        ]
    )
