"""What moves elements and changes none: shapes, parts, borders, gathering, blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from sdk.graph import LARGEST_TENSOR
from sdk.importers.tflite.file import Shape
from sdk.importers.tflite.plain.conversion import Conversion
from sdk.importers.tflite.walk import NCHW

LARGEST_LISTED = 1 << 20
"""Elements of an axis that are listed one by one."""

# --- shapes ---------------------------------------------------------------------------------------------


def reshape(c: Conversion) -> None:
    """Reshape."""
    x = c.x(0)
    shape, out = c.shape(x), c.out.shape
    if c.node.op == "SQUEEZE":
        wanted = _squeezed(c, shape)
    elif c.node.op == "EXPAND_DIMS":
        axis = c.integer(1)
        if not -len(shape) - 1 <= axis <= len(shape):
            raise c.node.invalid(f"axis {axis} of an input of rank {len(shape)}")
        axis %= len(shape) + 1
        wanted = [*shape[:axis], 1, *shape[axis:]]
    elif c.has(1):
        wanted = list(c.integers(1))
    elif c.node.table == "ReshapeOptions":
        length = c.option("ReshapeOptions", "NewShapeLength")
        wanted = [c.node.options.NewShape(i) for i in range(length)] if length <= len(out) else [-1, -1]
    else:
        wanted = list(out)
    if wanted.count(-1) == 1:
        rest = -math.prod(wanted)
        wanted[wanted.index(-1)] = math.prod(shape) // rest if rest > 0 else 0
    c.define(c.reshape(x, wanted))


def _squeezed(c: Conversion, shape: Shape) -> list[int]:
    count = min(c.option("SqueezeOptions", "SqueezeDimsLength", 0), len(shape))
    gone = {c.axis(c.node.options.SqueezeDims(i), len(shape)) for i in range(count)}
    gone = gone or {i for i, extent in enumerate(shape) if extent == 1}
    if any(shape[axis] != 1 for axis in gone):
        raise c.node.invalid(f"SQUEEZE of axes {sorted(gone)} of {list(shape)}")
    return [extent for i, extent in enumerate(shape) if i not in gone]


def transpose(c: Conversion) -> None:
    """Nothing: which axis is which."""
    name, axes = c.native(0)
    perm = [c.axis(axis, len(axes)) for axis in c.integers(1)]
    if sorted(perm) != list(range(len(axes))):
        raise c.node.invalid(f"perm {perm} of {list(c.shape(name))}")
    c.define(name, tuple(axes[axis] for axis in perm))


def shape_of(c: Conversion) -> None:
    """A constant."""
    dtype = "int64" if c.out.dtype == "int64" else "int32"
    c.define(c.constant(c.walk.shape_of(c.node, 0), dtype, "shape"))


def rank_of(c: Conversion) -> None:
    """A constant."""
    c.define(c.constant(len(c.walk.shape_of(c.node, 0)), "int32", "rank"))


def broadcast_args(c: Conversion) -> None:
    """A constant."""
    shapes = [c.integers(0), c.integers(1)]
    try:
        found = np.broadcast_shapes(*shapes)
    except ValueError as problem:
        raise c.node.invalid(f"shapes {list(shapes[0])} and {list(shapes[1])} do not broadcast") from problem
    c.define(c.constant(found, str(c.known(0).dtype), "shape"))


def fill(c: Conversion) -> None:
    """Expand."""
    shape = c.integers(0)
    if min(shape, default=1) < 0:
        raise c.node.invalid(f"a shape {list(shape)}")
    c.define(c.make("Expand", c.x(1), c.constant(shape)))


def zeros_like(c: Conversion) -> None:
    """A constant."""
    shape, dtype = c.walk.shape_of(c.node, 0), "float32" if c.out.scale.size else c.out.dtype
    c.define(c.make("Expand", c.constant(0, dtype), c.constant(shape)))


def range_of(c: Conversion) -> None:
    """A constant."""
    for index in range(3):
        c.known(index)
    c.define(c.make("Range", *(c.reshape(c.x(index), ()) for index in range(3))))


def broadcast_to(c: Conversion) -> None:
    """Expand."""
    _check_size(c, c.integers(1))
    c.define(c.make("Expand", c.x(0), c.constant(c.integers(1))))


def tile(c: Conversion) -> None:
    """Tile."""
    name, counts = c.x(0), c.integers(1)
    _check_size(c, (*c.shape(name), *counts))
    c.define(c.make("Tile", name, c.constant(counts)))


def _check_size(c: Conversion, factors: Sequence[int]) -> None:
    """Refuse a result whose elements, the product of `factors`, nothing could hold."""
    if min(factors, default=1) < 0:
        raise c.node.invalid(f"{c.node.op} by {list(factors)}")
    if math.prod(factors) > LARGEST_TENSOR:
        raise c.node.unsupported(f"its result exceeds {LARGEST_TENSOR:,} elements")


# --- parts ----------------------------------------------------------------------------------------------


def concatenation(c: Conversion) -> None:
    """Concat."""
    table = "ConcatenationOptions"
    names, axes = c.aligned(range(len(c.node.inputs)))
    axis = c.axis(c.option(table, "Axis"), len(axes))
    if any(c.rank(name) != len(axes) for name in names):
        raise c.node.invalid(f"CONCATENATION of {[list(c.shape(name)) for name in names]}")
    names = [name for name in names if 0 not in c.shape(name)] or names[:1]
    result = c.make("Concat", *names, axis=axes[axis]) if len(names) > 1 else names[0]
    c.define(c.activated(result, c.option(table, "FusedActivationFunction")), axes)


def pack(c: Conversion) -> None:
    """Unsqueeze, Concat."""
    names = [c.x(index) for index in range(len(c.node.inputs))]
    if not names or any(c.shape(name) != c.shape(names[0]) for name in names):
        raise c.node.invalid(f"PACK of {[list(c.shape(name)) for name in names]}")
    axis = c.axis(c.option("PackOptions", "Axis", 0), c.rank(names[0]) + 1)
    shape = list(c.shape(names[0]))
    shape.insert(axis, 1)
    c.define(c.make("Concat", *(c.reshape(name, shape) for name in names), axis=axis))


def unpack(c: Conversion) -> None:
    """Slice, Reshape."""
    x = c.x(0)
    shape = c.shape(x)
    axis = c.axis(c.option("UnpackOptions", "Axis", 0), len(shape))
    if len(c.node.outputs) != shape[axis]:
        raise c.node.invalid(f"{len(c.node.outputs)} parts of {list(shape)} along axis {axis}")
    for output in range(shape[axis]):
        spans = [(output, output + 1, 1) if i == axis else (0, n, 1) for i, n in enumerate(shape)]
        c.define(c.reshape(c.slice(x, spans), shape[:axis] + shape[axis + 1 :]), output=output)


def split(c: Conversion) -> None:
    """Slice."""
    count = len(c.node.outputs)
    where, data = (2, 0) if c.node.op == "SPLIT_V" else (0, 1)
    name, axes = c.native(data)
    axis = axes[c.axis(c.integer(where), len(axes))]
    extent = c.shape(name)[axis]
    sizes = list(c.integers(1)) if c.node.op == "SPLIT_V" else [extent // count] * count
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = extent - sum(sizes) - 1
    if len(sizes) != count or sum(sizes) != extent or min(sizes) < 1:
        raise c.node.invalid(f"{extent} elements in {count} parts of {sizes}")
    for output in range(count):
        start = sum(sizes[:output])
        spans = [
            (start, start + sizes[output], 1) if i == axis else (0, n, 1) for i, n in enumerate(c.shape(name))
        ]
        c.define(c.slice(name, spans), axes, output)


def slice_of(c: Conversion) -> None:
    """Slice."""
    name, axes = c.native(0)
    begins, sizes = c.integers(1), c.integers(2)
    shape = c.shape(name)
    if not len(begins) == len(sizes) == len(shape):
        raise c.node.invalid(f"SLICE of {list(shape)} from {list(begins)}, sizes {list(sizes)}")
    spans = [(0, 0, 1)] * len(shape)
    for axis, begin, size in zip(axes, begins, sizes, strict=True):
        end = shape[axis] if size == -1 else begin + size
        if not 0 <= begin <= end <= shape[axis]:
            raise c.node.invalid(f"SLICE of {list(shape)} from {list(begins)}, sizes {list(sizes)}")
        spans[axis] = (begin, end, 1)
    c.define(c.slice(name, spans), axes)


def strided_slice(c: Conversion) -> None:
    """Slice, Reshape."""
    name, axes = c.native(0)
    table = "StridedSliceOptions"
    begins, ends, steps = (c.integers(index) for index in (1, 2, 3))
    if not len(begins) == len(ends) == len(steps) or 0 in steps:
        raise c.node.invalid(f"from {list(begins)} to {list(ends)} in steps of {list(steps)}")
    masks = {
        kind: c.option(table, f"{kind}Mask", 0)
        for kind in ("Begin", "End", "Ellipsis", "NewAxis", "ShrinkAxis")
    }

    def has(kind: str, entry: int) -> bool:
        return bool(masks[kind] >> entry & 1)

    dims = tuple(c.shape(name)[axis] for axis in axes)
    taken = sum(not has("NewAxis", entry) for entry in range(len(begins)))
    taken -= any(has("Ellipsis", entry) for entry in range(len(begins)))
    if taken > len(dims):
        raise c.node.invalid(f"{taken} axes of an input of rank {len(dims)}")
    spans: list[range] = []
    shape: list[int] = []
    open_ = True
    for entry, (begin, end, step) in enumerate(zip(begins, ends, steps, strict=True)):
        if has("Ellipsis", entry) and open_:
            whole = dims[len(spans) : len(spans) + len(dims) - taken]
            spans += [range(n) for n in whole]
            shape += whole
            open_ = False
        elif has("NewAxis", entry):
            shape.append(1)
        else:
            if len(spans) == len(dims):
                raise c.node.invalid(f"{taken} axes and an ellipsis of an input of rank {len(dims)}")
            extent = dims[len(spans)]
            if has("ShrinkAxis", entry):
                if not -extent <= begin < extent:
                    raise c.node.invalid(f"element {begin} of {extent}")
                spans.append(range(begin % extent, begin % extent + 1))
                continue
            first, last = None if has("Begin", entry) else begin, None if has("End", entry) else end
            spans.append(range(extent)[first:last:step])
            shape.append(len(spans[-1]))
    rest = dims[len(spans) :]
    spans, shape = [*spans, *map(range, rest)], [*shape, *rest]
    placed = [(0, 0, 1)] * len(dims)
    for axis, span in zip(axes, spans, strict=True):
        stop = span.stop if span.step > 0 or span.stop >= 0 else -(2**31)  # before the first, not the last
        placed[axis] = (span.start, stop, span.step)
    if len(shape) == len(dims) and all(len(span) == n for span, n in zip(spans, shape, strict=True)):
        c.define(c.slice(name, placed), axes)
        return
    result = c.transpose(c.slice(name, placed), axes)
    c.define(c.reshape(result, shape))


def reverse(c: Conversion) -> None:
    """Slice."""
    name, axes = c.native(0)
    turned = {axes[c.axis(axis, len(axes))] for axis in c.integers(1)}
    spans = [(n - 1, -(2**31), -1) if i in turned else (0, n, 1) for i, n in enumerate(c.shape(name))]
    c.define(c.slice(name, spans), axes)


# --- borders --------------------------------------------------------------------------------------------


def _amounts(c: Conversion, rank: int) -> list[tuple[int, int]]:
    """Elements before and behind each axis."""
    amounts = np.array(c.integers(1), np.int64)
    if amounts.size != 2 * rank or amounts.min(initial=0) < 0:
        raise c.node.invalid(f"paddings {amounts.tolist()} of rank {rank}")
    return [(int(before), int(after)) for before, after in amounts.reshape(rank, 2)]


def pad(c: Conversion) -> None:
    """Pad."""
    name, axes = c.native(0)
    befores, afters = [0] * len(axes), [0] * len(axes)
    for axis, (before, after) in zip(axes, _amounts(c, len(axes)), strict=True):
        befores[axis], afters[axis] = before, after
    pads = c.constant([*befores, *afters], part="pads")
    value = c.known(2) if c.has(2) else np.zeros((), np.float32)
    if value.size != 1:
        raise c.node.invalid(f"a padding value {list(value.shape)}")
    filling = c.constant(value.reshape(()), c.dtype(name), "value")
    c.define(c.make("Pad", name, pads, filling, mode="constant"), axes)


def mirror_pad(c: Conversion) -> None:
    """Pad with the mode reflect; SYMMETRIC is Gather."""
    name, axes = c.native(0)
    symmetric = c.option("MirrorPadOptions", "Mode") == 1
    for axis, (before, after) in zip(axes, _amounts(c, len(axes)), strict=True):
        extent = c.shape(name)[axis]
        if max(before, after) > extent - (not symmetric):
            raise c.node.invalid(f"MIRROR_PAD of {extent} elements by {before} and {after}")
        if before + extent + after > LARGEST_LISTED:
            raise c.node.unsupported(f"MIRROR_PAD to more than {LARGEST_LISTED:,} elements")
        if before or after:
            places = np.pad(np.arange(extent), (before, after), "symmetric" if symmetric else "reflect")
            name = c.make("Gather", name, c.constant(places, part="places"), axis=axis)
    c.define(name, axes)


# --- by index -------------------------------------------------------------------------------------------


def gather(c: Conversion) -> None:
    """Gather."""
    x, indices, table = c.x(0), c.x(1), "GatherOptions"
    if c.option(table, "BatchDims", 0):
        raise c.node.unsupported("batch_dims other than 0")
    axis = c.axis(c.option(table, "Axis", 0), c.rank(x))
    c.define(c.make("Gather", x, _index(c, indices), axis=axis))


def embedding_lookup(c: Conversion) -> None:
    """Gather."""
    c.define(c.make("Gather", c.x(1), _index(c, c.x(0)), axis=0))


def gather_nd(c: Conversion) -> None:
    """GatherND."""
    c.define(c.make("GatherND", c.x(0), c.cast(c.x(1), "int64")))


def _index(c: Conversion, indices: str) -> str:
    return indices if c.dtype(indices) in ("int32", "int64") else c.cast(indices, "int32")


def one_hot(c: Conversion) -> None:
    """OneHot."""
    values = c.make("Concat", *(c.reshape(c.x(index), (1,)) for index in (3, 2)), axis=0)
    depth = c.constant([c.integer(1)], part="depth")
    c.define(c.make("OneHot", c.x(0), depth, values, axis=c.option("OneHotOptions", "Axis", -1)))


def select(c: Conversion) -> None:
    """Where."""
    x = c.walk.shape_of(c.node, 1)
    if len(c.walk.shape_of(c.node, 0)) == 1 and len(x) > 1:  # it chooses whole rows
        condition = c.reshape(c.x(0), (-1 if not x else x[0], *(1,) * (len(x) - 1)))
        c.define(c.make("Where", condition, c.x(1), c.x(2)))
        return
    names, axes = c.aligned(range(3))
    c.define(c.make("Where", *names), axes)


# --- blocks ---------------------------------------------------------------------------------------------


def blocks(op_type: str, table: str) -> Callable[[Conversion], None]:
    def handler(c: Conversion) -> None:
        size = c.option(table, "BlockSize")
        c.define(c.make(op_type, c.picture(0), blocksize=size), NCHW)

    handler.__doc__ = f"{op_type}."
    return handler


def _block_shape(c: Conversion, x: str) -> tuple[list[int], list[tuple[int, int]]]:
    """Extents of a block, and what is added to or cut off each blocked axis."""
    sizes, amounts = list(c.integers(1)), c.integers(2)
    if not 1 <= len(sizes) < c.rank(x) or len(amounts) != 2 * len(sizes):
        raise c.node.invalid(f"blocks {sizes} of {list(c.shape(x))}, paddings {list(amounts)}")
    if min(sizes) < 1 or min(amounts) < 0:
        raise c.node.invalid(f"blocks {sizes}, paddings {list(amounts)}")
    return sizes, list(zip(amounts[::2], amounts[1::2], strict=True))


def space_to_batch(c: Conversion) -> None:
    """Pad, Reshape, Transpose, Reshape."""
    x = c.x(0)
    sizes, pads = _block_shape(c, x)
    count, rank = len(sizes), c.rank(x)
    if any(map(any, pads)):
        rest = [0] * (rank - count - 1)
        befores, afters = ([0, *(pad[side] for pad in pads), *rest] for side in (0, 1))
        zero = c.constant(0, c.dtype(x), "zero")
        x = c.make("Pad", x, c.constant([*befores, *afters], part="pads"), zero)
    n, *extents = c.shape(x)
    inner, rest = extents[:count], extents[count:]
    if any(extent % size for extent, size in zip(inner, sizes, strict=True)):
        raise c.node.invalid(f"{list(c.shape(x))} is not made of blocks {sizes}")
    parted = [part for extent, size in zip(inner, sizes, strict=True) for part in (extent // size, size)]
    x = c.reshape(x, (n, *parted, *rest))
    places = [1 + 2 * i for i in range(count)]
    perm = [*(p + 1 for p in places), 0, *places, *range(1 + 2 * count, c.rank(x))]
    whole = [extent // size for extent, size in zip(inner, sizes, strict=True)]
    c.define(c.reshape(c.transpose(x, perm), (n * math.prod(sizes), *whole, *rest)))


def batch_to_space(c: Conversion) -> None:
    """Reshape, Transpose, Reshape, Slice."""
    x = c.x(0)
    sizes, crops = _block_shape(c, x)
    count, (n, *extents) = len(sizes), c.shape(x)
    if n % math.prod(sizes):
        raise c.node.invalid(f"a batch of {n} is not made of blocks {sizes}")
    batch = n // math.prod(sizes)
    x = c.reshape(x, (*sizes, batch, *extents))
    order = [part for i in range(count) for part in (count + 1 + i, i)]
    x = c.transpose(x, (count, *order, *range(2 * count + 1, c.rank(x))))
    whole = [extent * size for extent, size in zip(extents, sizes, strict=False)]
    x = c.reshape(x, (batch, *whole, *extents[count:]))
    if any(map(any, crops)):
        inner = [(before, extent - after, 1) for extent, (before, after) in zip(whole, crops, strict=True)]
        if any(start >= stop for start, stop, _ in inner):
            raise c.node.invalid(f"crops {crops} of {whole}")
        x = c.slice(x, [(0, batch, 1), *inner, *((0, n, 1) for n in extents[count:])])
    c.define(x)
