"""What only moves elements: Concat, Transpose, Resize and Pad.

Where the layout allows it nothing moves at all: the operands of a Concat are made in their places of it
(`places`), and a Transpose that leaves the bytes where they are is another name for them. The rest are
launches of kernels/copy.cl and kernels/pick.cl.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sdk.graph import Concat, Graph, Mul, Pad, Reshape, Resize, Tensor, Transpose
from sdk.opencl.calls import At, Call, KernelSource, Words, divisor
from usbgpu.target.calls import Picture
from usbgpu.target.context import Context, Places, extent, variant
from usbgpu.target.packing import TILE, round_up

Strides = tuple[int, ...]
"""Bytes from one element to the next along each axis of a tensor."""
UNITS = {16: "u32x4", 4: "u32", 1: "u8"}


# -- before lowering --------------------------------------------------------------------------------------


def places(graph: Graph) -> Places:
    """Operands of Concats along the channels, by name, that can be made where they belong.

    They begin with a tile of channels and are whole tiles, for kernels write no less; the last one may end
    within the pitch.
    """
    within: Places = {}
    for node in graph.nodes:
        if not isinstance(node, Concat) or node.axis != 1:
            continue
        for number, (name, first) in enumerate(_parts(graph, node)):
            last = number == len(node.inputs) - 1
            whole = first % TILE == 0 and (last or extent(graph.tensor(name))[2] % TILE == 0)
            made = graph.producer(name)
            if whole and name not in within and made is not None and not isinstance(made, Reshape):
                within[name] = node.output, first
    return within


def _parts(graph: Graph, node: Concat) -> list[tuple[str, int]]:
    """The operands of a Concat along the channels, each with its first channel."""
    sizes = [extent(graph.tensor(name))[2] for name in node.inputs]
    return [(name, sum(sizes[:number])) for number, name in enumerate(node.inputs)]


# -- operators --------------------------------------------------------------------------------------------


def concat(context: Context, node: Concat) -> None:
    """Copies of the operands that are not in their places already."""
    graph = context.graph
    out = graph.tensor(node.output)
    y = context.pictures.get(out.name) or context.new_picture(out)
    strides = picture_strides(y, out)
    sizes = [graph.tensor(name).shape[node.axis] for name in node.inputs]
    starts = [sum(sizes[:number]) * strides[node.axis] for number in range(len(sizes))]
    operands = zip(node.inputs, starts, strict=True)
    moves = [(name, start) for name, start in operands if context.within.get(name) != (out.name, start)]
    for number, (name, start) in enumerate(moves):
        to = At(y.at.buffer, y.at.delta + start)
        source, steps = form(context, name)
        kernel, groups, words = copy((source, steps), (to, strides), graph.tensor(name).shape)
        complete = number == len(moves) - 1
        context.emit(node, node.op, kernel, groups, [source, to], words, complete=complete)


def transpose(context: Context, node: Transpose) -> None:
    out = context.graph.tensor(node.output)
    if out.name not in context.within and _rename(context, node, out):
        return
    source, steps = form(context, node.inputs[0])
    steps = tuple(steps[axis] for axis in node.perm)
    flat = all(isinstance(consumer, Reshape) for consumer in context.graph.consumers(out.name))
    if flat and len(out.shape) == 4:
        to, strides = context.new_dense(out), strides_of(out.shape)
    else:
        y = context.new_picture(out)
        to, strides = y.at, picture_strides(y, out)
    kernel, groups, words = copy((source, steps), (to, strides), out.shape)
    context.emit(node, node.op, kernel, groups, [source, to], words)


def _rename(context: Context, node: Transpose, out: Tensor) -> bool:
    """Whether a form of the input is one of the output as well: NHWC is a transposed NCHW."""
    name = node.inputs[0]
    x = context.graph.tensor(name)
    height, width, channels = extent(out)
    forms: list[tuple[At, Strides]] = []
    if name in context.pictures:
        forms.append((context.pictures[name].at, picture_strides(context.pictures[name], x)))
    if name in context.dense:
        forms.append((context.dense[name], strides_of(x.shape)))
    for at, steps in forms:
        steps = tuple(steps[axis] for axis in node.perm)
        if _same(steps, strides_of(out.shape), out.shape):
            context.dense[out.name] = at
            return True
        if len(out.shape) == 4:
            picture = Picture(at, height, width, channels, steps[3])
            tiled = picture.pitch % TILE == 0 and at.delta % TILE == 0
            if tiled and _same(steps, picture_strides(picture, out), out.shape):
                context.pictures[out.name] = picture
                return True
    return False


def pick(context: Context, node: Resize | Pad) -> None:
    """Where each row and column of the output comes from is a table; -1 is a border of zero-points."""
    x = context.picture(node.inputs[0])
    y = context.new_picture(context.graph.tensor(node.output))
    if isinstance(node, Resize):
        rows, columns = node.rows, node.columns
    else:
        top, left, bottom, right = node.pads
        rows = (*[-1] * top, *range(x.height), *[-1] * bottom)
        columns = (*[-1] * left, *range(x.width), *[-1] * right)
    tables = [context.constant(np.array(sources, "<i4")) for sources in (rows, columns)]
    quads = -(-y.channels // 4)
    items = y.pixels * quads
    words: Words = [items, quads, y.width, x.width, x.pitch, y.pitch, context.splat(node.inputs[0])]
    words += [*divisor(quads), *divisor(y.width)]
    context.emit(node, node.op, variant("pick", 64, []), (-(-items // 64), 1), [x.at, *tables, y.at], words)


def spread(context: Context, node: Mul, like: Picture) -> Picture:
    """The second operand of a Mul, repeated along the axes that it has 1 of."""
    x, factor = (context.graph.tensor(name) for name in node.inputs)
    at = context.buffer(f"{factor.name} for {node.name}", like.pixels * round_up(like.channels))
    picture = Picture(at, like.height, like.width, like.channels, round_up(like.channels))
    source, steps = form(context, factor.name)
    steps = tuple(0 if size == 1 else step for size, step in zip(factor.shape, steps, strict=True))
    kernel, groups, words = copy((source, steps), (at, picture_strides(picture, x)), x.shape)
    context.append(Call(f"{factor.name} (for {node.name})", "Layout", kernel, groups, [source, at], words))
    return picture


# -- copies -----------------------------------------------------------------------------------------------


def strides_of(shape: Sequence[int]) -> Strides:
    """Of a tensor in C order."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def picture_strides(picture: Picture, tensor: Tensor) -> Strides:
    if len(tensor.shape) == 2:
        return picture.pitch, 1
    if len(tensor.shape) != 4:
        return strides_of(tensor.shape)
    return picture.pixels * picture.pitch, 1, picture.width * picture.pitch, picture.pitch


def form(context: Context, name: str) -> tuple[At, Strides]:
    """A form of a tensor that is there already."""
    tensor = context.graph.tensor(name)
    if name in context.pictures:
        picture = context.pictures[name]
        return picture.at, picture_strides(picture, tensor)
    return context.dense[name], strides_of(tensor.shape)


def copy(
    source: tuple[At, Strides], target: tuple[At, Strides], shape: Sequence[int]
) -> tuple[KernelSource, tuple[int, int], Words]:
    """Kernel, grid and words of a launch of kernels/copy.cl.

    A last incomplete unit is written whole. What it writes too much ends with that unit, before anything that
    starts with one: it is unused, or the next operand's of a Concat, whose copy comes later.

    Args:
        source: the first byte, and the strides along the axes of `shape`.
        target: the same of where it goes.
        shape: of the box, in elements.
    """
    axes = _merged(shape, source[1], target[1])
    (size, *steps), outer = axes[0], axes[1:]
    unit = 1
    if steps == [1, 1]:
        places = source[0].delta, target[0].delta, *(step for axis in outer for step in axis[1:])
        unit = next(unit for unit in UNITS if not any(place % unit for place in places))
    axes[0] = -(-size // unit), steps[0] * unit, steps[1] * unit
    items = math.prod(axis[0] for axis in axes)
    words: Words = [items]
    for extent_, from_step, to_step in axes:
        words += [extent_, from_step, to_step, *divisor(extent_)]
    kernel = variant("copy", 64, [f"AXES={len(axes)}", f"UNIT={UNITS[unit]}"])
    return kernel, (-(-items // 64), 1), words


def _merged(shape: Sequence[int], source: Strides, target: Strides) -> list[tuple[int, int, int]]:
    """(extent, source stride, target stride) of the axes, innermost first, as few as possible."""
    axes: list[tuple[int, int, int]] = []
    there = [axis for axis in zip(shape, source, target, strict=True) if axis[0] > 1]
    for size, from_step, to_step in sorted(there, key=lambda axis: (axis[2], axis[1])):
        if axes:
            inner, inner_from, inner_to = axes[-1]
            if (from_step, to_step) == (inner * inner_from, inner * inner_to):
                axes[-1] = inner * size, inner_from, inner_to
                continue
        axes.append((size, from_step, to_step))
    return axes or [(1, 1, 1)]


def _same(a: Strides, b: Strides, shape: Sequence[int]) -> bool:
    """Whether both reach the same bytes: along an axis of 1 nothing moves."""
    return all(size == 1 or x == y for size, x, y in zip(shape, a, b, strict=True))
