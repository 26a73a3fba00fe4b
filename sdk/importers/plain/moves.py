"""What moves elements and changes none: Reshape and its kin, Slice, Split, Concat, Pad, Expand, Tile."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from sdk import dtypes
from sdk.expression.trace import select
from sdk.graph import Concat, Fill, MatMul, Slice, Tensor
from sdk.importers.plain.conversion import Conversion
from sdk.importers.values import Constant, Plain, Tensors, Value


def identity(c: Conversion) -> None:
    """Nothing."""
    c.same(c.x(0))


def dropout(c: Conversion) -> None:
    """Nothing; not in training mode."""
    if c.has(2) and bool(c.constant(2).any()):
        raise c.node.unsupported("Dropout in training mode", "export the model for inference")
    x = c.x(0)
    c.same(x)
    if len(c.node.outputs) > 1 and c.node.outputs[1]:
        c.define(c.file(np.ones(x.shape, np.bool_), "mask"), 1)


# --- shapes ---------------------------------------------------------------------------------------------


def reshape(c: Conversion) -> None:
    """Reshape."""
    x, wanted = c.x(0), c.integers(1) or []
    if not c.node.integer("allowzero", 0):
        wanted = [
            x.shape[i] if extent == 0 and i < len(x.shape) else extent for i, extent in enumerate(wanted)
        ]
    if wanted.count(-1) == 1:
        rest = -math.prod(wanted)
        wanted[wanted.index(-1)] = x.size // rest if rest > 0 else 0
    c.reshape(x, wanted)


def flatten(c: Conversion) -> None:
    """Reshape."""
    x = c.x(0)
    axis = c.axis(c.node.integer("axis", 1), len(x.shape), end=True)
    c.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


def squeeze(c: Conversion) -> None:
    """Reshape."""
    x = c.x(0)
    given = _axes(c)
    axes = [i for i, extent in enumerate(x.shape) if extent == 1] if given is None else given
    dropped = c.axes(axes, len(x.shape))
    if any(x.shape[axis] != 1 for axis in dropped):
        raise c.node.invalid(f"Squeeze of axes {list(axes)} of {list(x.shape)}: their extents must be 1")
    c.reshape(x, [extent for i, extent in enumerate(x.shape) if i not in dropped])


def unsqueeze(c: Conversion) -> None:
    """Reshape."""
    x, axes = c.x(0), _axes(c) or ()
    rank = len(x.shape) + len(axes)
    added, rest = c.axes(axes, rank), iter(x.shape)
    c.reshape(x, [1 if i in added else next(rest) for i in range(rank)])


def _axes(c: Conversion) -> Sequence[int] | None:
    """The axes: an attribute before opset 13, then an input."""
    return c.node.integers("axes") if c.node.opset < 13 else c.integers(1)


def transpose(c: Conversion) -> None:
    """Transpose."""
    x = c.x(0)
    perm = c.node.integers("perm") or tuple(reversed(range(len(x.shape))))
    if sorted(perm) != list(range(len(x.shape))):
        raise c.node.invalid(f"perm {list(perm)} is not a permutation for rank {len(x.shape)}")
    c.transpose(x, perm)


def depth_to_space(c: Conversion) -> None:
    """Reshape, Transpose, Reshape."""
    x, block = c.x(0), c.node.integer("blocksize", 0)
    _check_blocks(c, x, block, len(x.shape) == 4 and block > 0 and x.shape[1] % (block * block) == 0)
    n, channels, rows, columns = x.shape
    depth = channels // (block * block)
    if c.node.text("mode", "DCR") == "CRD":
        split, perm = (n, depth, block, block, rows, columns), (0, 1, 4, 2, 5, 3)
    else:
        split, perm = (n, block, block, depth, rows, columns), (0, 3, 4, 1, 5, 2)
    turned = c.transpose(c.reshape(x, split, "blocks"), perm, "turned")
    c.reshape(turned, (n, depth, rows * block, columns * block))


def space_to_depth(c: Conversion) -> None:
    """Reshape, Transpose, Reshape."""
    x, block = c.x(0), c.node.integer("blocksize", 0)
    fits = len(x.shape) == 4 and block > 0 and x.shape[2] % block == x.shape[3] % block == 0
    _check_blocks(c, x, block, fits)
    n, channels, rows, columns = x.shape
    split = (n, channels, rows // block, block, columns // block, block)
    perm = (0, 1, 3, 5, 2, 4) if c.node.text("mode", "DCR") == "CRD" else (0, 3, 5, 1, 2, 4)
    turned = c.transpose(c.reshape(x, split, "blocks"), perm, "turned")
    c.reshape(turned, (n, channels * block * block, rows // block, columns // block))


def _check_blocks(c: Conversion, x: Tensor, block: int, fits: bool) -> None:
    if not fits:
        raise c.node.invalid(f"{c.node.op_type} of {list(x.shape)} in blocks of {block}")


# --- parts ----------------------------------------------------------------------------------------------


def slices(c: Conversion) -> None:
    """Slice."""
    x, given = c.x(0), c.node.integers if c.node.opset < 10 else None
    rank = len(x.shape)
    names = ("starts", "ends", "axes", "steps")  # attributes once, then inputs
    said = [given(name) if given else c.integers(index) for index, name in enumerate(names, 1)]
    begins, ends = said[0] or (), said[1] or ()
    axes: Sequence[int] = range(len(begins)) if said[2] is None else said[2]
    steps = said[3] or (1,) * len(begins)
    if not len(begins) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise c.node.invalid(f"Slice from {list(begins)} to {list(ends)} in steps of {list(steps)}")
    starts, strides, shape = [0] * rank, [1] * rank, list(x.shape)
    for begin, end, axis, step in zip(begins, ends, axes, steps, strict=True):
        axis = c.axis(axis, rank)
        taken = range(x.shape[axis])[begin:end:step]
        starts[axis], shape[axis] = taken.start, len(taken)
        strides[axis] = step if len(taken) > 1 else 1
    cut(c, x, starts, shape, steps=strides)


def cut(
    c: Conversion,
    x: Tensor,
    starts: Sequence[int],
    shape: Sequence[int],
    part: str = "",
    *,
    output: int = 0,
    steps: Sequence[int] | None = None,
) -> Tensor:
    """A Slice of x; x itself where that is all of it, and a constant where it is empty."""
    if 0 in shape:
        return c.same(
            c.file(np.zeros(shape, dtypes.storage(x.dtype)), part or "empty", x.dtype), part, output=output
        )
    steps = tuple(steps or (1,) * len(shape))
    if tuple(shape) == x.shape and all(step == 1 for step in steps):
        return c.same(x, part, output=output)
    return c.make(Slice, [x], part, shape=tuple(shape), output=output, starts=tuple(starts), steps=steps)


def split(c: Conversion) -> None:
    """Slice."""
    x = c.x(0)
    axis = c.axis(c.node.integer("axis", 0), len(x.shape))
    sizes = _split_sizes(c, x.shape[axis], len(c.node.outputs))
    for index, (start, size) in enumerate(_spans(sizes)):
        if c.node.outputs[index]:
            _part(c, x, axis, start, size, "", index)


def _split_sizes(c: Conversion, extent: int, count: int) -> Sequence[int]:
    given = c.node.integers("split") if c.node.opset < 13 else c.integers(1)
    if given is None:
        if c.node.integer("num_outputs", count) != count:
            raise c.node.invalid(f"num_outputs {c.node.integer('num_outputs', 0)} of {count} outputs")
        each = -(-extent // count)
        given = [min(each, extent - each * i) for i in range(count)]
    if sum(given) != extent or min(given) < 0 or len(given) != len(c.node.outputs):
        raise c.node.invalid(f"Split of {extent} elements into {list(given)}")
    return given


def _spans(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Start and size of each part."""
    return [(sum(sizes[:i]), size) for i, size in enumerate(sizes)]


def _part(c: Conversion, x: Tensor, axis: int, start: int, size: int, part: str, output: int = 0) -> Tensor:
    starts = [start if i == axis else 0 for i in range(len(x.shape))]
    shape = [size if i == axis else extent for i, extent in enumerate(x.shape)]
    return cut(c, x, starts, shape, part, output=output)


def concat(c: Conversion) -> None:
    """Concat; what is empty is left out."""
    values = [c.known(index) for index in range(len(c.node.inputs))]
    inputs = [c.x(i) for i, value in enumerate(values) if value is None or value.size]
    if not inputs:
        raise c.node.unsupported("its result is empty")
    _joined(c, inputs, c.node.integer("axis", 0))


def _joined(c: Conversion, inputs: Sequence[Tensor], axis: int) -> None:
    if len(inputs) == 1:
        c.same(inputs[0])
    else:
        c.make(Concat, inputs, axis=c.axis(axis, len(inputs[0].shape)))


# --- sequences ------------------------------------------------------------------------------------------


def split_to_sequence(c: Conversion) -> None:
    """Slice."""
    x, given = c.x(0), c.known(1)
    axis = c.axis(c.node.integer("axis", 0), len(x.shape))
    extent = x.shape[axis]
    if c.has(1):
        c.constant(1)
    each = 1 if given is None else int(given.reshape(-1)[0])
    if given is not None and given.ndim:
        sizes = [int(size) for size in given]
    elif each > 0:
        sizes = [min(each, extent - start) for start in range(0, extent, each)]
    else:
        sizes = []
    if sum(sizes) != extent or min(sizes, default=0) < 1:
        raise c.node.invalid(f"SplitToSequence of {extent} elements into {sizes}")
    keep = given is not None or bool(c.node.integer("keepdims", 1))
    parts: list[Value] = []
    for index, (start, size) in enumerate(_spans(sizes)):
        part = _part(c, x, axis, start, size, f"part{index}")
        if not keep:
            part = c.reshape(part, [n for i, n in enumerate(part.shape) if i != axis], f"element{index}")
        parts.append(_value(part))
    c.walk.define(c.node, Tensors(tuple(parts)))


def _value(tensor: Tensor) -> Value:
    return Plain(tensor.name) if tensor.data is None else Constant(tensor.name, tensor.data)


def sequence_construct(c: Conversion) -> None:
    """Nothing: its tensors."""
    c.walk.define(c.node, Tensors(tuple(c.walk.value(c.node, i) for i in range(len(c.node.inputs)))))


def _sequence(c: Conversion) -> tuple[Value, ...]:
    value = c.walk.value(c.node, 0)
    if not isinstance(value, Tensors):
        raise c.node.unsupported(f"its input {c.node.inputs[0]!r} is not a sequence that is known")
    return value.values


def sequence_at(c: Conversion) -> None:
    """Nothing: one of its tensors, by a constant index."""
    values, index = _sequence(c), int(c.constant(1).reshape(()))
    if not -len(values) <= index < len(values):
        raise c.node.invalid(f"element {index} of a sequence of {len(values)}")
    c.walk.define(c.node, values[index])
    if isinstance(values[index], Plain):
        c.walk.plains[c.node.output] = values[index].tensor  # type: ignore[union-attr]


def concat_from_sequence(c: Conversion) -> None:
    """Concat."""
    inputs = [c.walk.plain_value(value, c.node) for value in _sequence(c)]
    axis = c.node.integer("axis", 0)
    if c.node.integer("new_axis", 0):
        axis = c.axis(axis, len(inputs[0].shape) + 1)
        inputs = [
            c.reshape(x, (*x.shape[:axis], 1, *x.shape[axis:]), f"element{i}") for i, x in enumerate(inputs)
        ]
    _joined(c, inputs, axis)


# --- borders and repetitions ----------------------------------------------------------------------------


def pad(c: Conversion) -> None:
    """Fill; Take with the modes edge, reflect and wrap; Slice of negative pads."""
    x, rank, node = c.x(0), len(c.x(0).shape), c.node
    given = node.integers("pads") or () if node.opset < 11 else c.integers(1) or ()
    axes = [c.axis(axis, rank) for axis in c.integers(3) or []] if c.has(3) else list(range(rank))
    if len(given) != 2 * len(axes):
        raise node.invalid(f"pads {list(given)} of {len(axes)} axes")
    befores, afters = [0] * rank, [0] * rank
    for i, axis in enumerate(axes):
        befores[axis], afters[axis] = given[i], given[i + len(axes)]
    mode = node.text("mode", "constant")
    if mode in PAD_MODES:
        _pad_by_index(c, x, mode, befores, afters)
        return
    if mode != "constant":
        raise node.invalid(f"mode {mode!r}")
    value = node.number("value", 0.0) if node.opset < 11 else _pad_value(c)
    starts = [max(-before, 0) for before in befores]
    shape = [n + min(a, 0) + min(b, 0) for n, a, b in zip(x.shape, befores, afters, strict=True)]
    befores, afters = [max(n, 0) for n in befores], [max(n, 0) for n in afters]
    grows = any(befores) or any(afters)
    x = cut(c, x, starts, shape, "cropped" if grows else "")
    if grows:
        c.make(Fill, [x], befores=tuple(befores), afters=tuple(afters), value=value)


def _pad_value(c: Conversion) -> float:
    if not c.has(2):
        return 0.0
    array = c.constant(2)
    if array.size != 1:
        raise c.node.invalid(f"its value {c.node.inputs[2]!r} is not a scalar")
    return float(array.reshape(()))


PAD_MODES: dict[str, Callable[[int, int], int]] = {
    "edge": lambda i, n: min(max(i, 0), n - 1),
    "reflect": lambda i, n: (n - 1) - abs((n - 1) - i % (2 * n - 2)) if n > 1 else 0,
    "wrap": lambda i, n: i % n,
}
"""Which of n elements stands at the place i, before or behind them."""


def _pad_by_index(c: Conversion, x: Tensor, mode: str, befores: Sequence[int], afters: Sequence[int]) -> None:
    indices = [
        [PAD_MODES[mode](i, n) for i in range(-before, n + after)]
        for n, before, after in zip(x.shape, befores, afters, strict=True)
    ]
    if not all(indices):
        raise c.node.unsupported("its result is empty")
    c.take(x, indices)


def expand(c: Conversion) -> None:
    """Take of the first element again and again, behind a Reshape where the rank grows."""
    x, wanted = c.x(0), c.integers(1) or []
    rank = max(len(x.shape), len(wanted))
    shape = (1,) * (rank - len(x.shape)) + x.shape
    target = [1] * (rank - len(wanted)) + wanted
    if any(a != b and 1 not in (a, b) for a, b in zip(shape, target, strict=True)) or min(target) < 1:
        raise c.node.invalid(f"Expand of {list(x.shape)} to {wanted}")
    result = [max(a, b) for a, b in zip(shape, target, strict=True)]
    _repeated(
        c, x, shape, [[0] * b if a == 1 else list(range(a)) for a, b in zip(shape, result, strict=True)]
    )


def tile(c: Conversion) -> None:
    """Take."""
    x, counts = c.x(0), c.integers(1) or []
    if len(counts) != len(x.shape) or min(counts, default=1) < 1:
        raise c.node.invalid(f"Tile of {list(x.shape)} by {counts}")
    _repeated(c, x, x.shape, [list(range(n)) * count for n, count in zip(x.shape, counts, strict=True)])


def _repeated(c: Conversion, x: Tensor, shape: Sequence[int], indices: Sequence[Sequence[int]]) -> None:
    grows = any(list(chosen) != list(range(n)) for chosen, n in zip(indices, shape, strict=True))
    x = c.reshape(x, shape, "axes" if grows else "")
    if grows:
        c.take(x, indices)


# --- by constant masks ----------------------------------------------------------------------------------


def trilu(c: Conversion) -> None:
    """Map with a constant mask."""
    x, offset = c.x(0), int(c.scalar(1, 0))
    if len(x.shape) < 2:
        raise c.node.invalid(f"Trilu of {list(x.shape)}")
    ones = np.ones(x.shape[-2:], np.bool_)
    mask = np.triu(ones, offset) if c.node.integer("upper", 1) else np.tril(ones, offset)
    c.map(lambda s, keep: select(keep, s, 0), [x, c.file(mask, "mask")])


def cumsum(c: Conversion) -> None:
    """MatMul by a constant triangle of ones; of integers sums with what is 1, 2, 4, ... elements before."""
    x = c.x(0)
    axis = c.axis(int(c.constant(1).reshape(())), len(x.shape))
    if not dtypes.is_float(x.dtype):
        _sum_of_integers(c, x, axis)
        return
    n = x.shape[axis]
    c.node.require_room(8 * n * n)
    ones = np.triu(np.ones((n, n)), 1 if c.node.integer("exclusive", 0) else 0)
    if c.node.integer("reverse", 0):
        ones = ones[::-1, ::-1]
    array = dtypes.encode(np.ascontiguousarray(ones), x.dtype)
    triangle = c.file(array, "triangle", x.dtype)
    rank = len(x.shape)
    perm = [i for i in range(rank) if i != axis] + [axis]
    turned = c.transpose(x, perm, "turned")
    if len(turned.shape) == 1:
        turned = c.reshape(turned, (1, n), "row")
    last = turned is x
    result = c.make(MatMul, [turned, triangle], "" if last else "sums", transposed=False)
    if rank == 1:
        c.reshape(result, x.shape)
    elif not last:
        c.transpose(result, [perm.index(i) for i in range(rank)])


def _sum_of_integers(c: Conversion, x: Tensor, axis: int) -> None:
    extent, reverse = x.shape[axis], bool(c.node.integer("reverse", 0))

    def moved(x: Tensor, by: int) -> Tensor:
        """The elements `by` further along the axis, behind zeros; the other way with `reverse`."""
        rank = range(len(x.shape))
        starts = tuple(by if reverse and i == axis else 0 for i in rank)
        shape = tuple(count - by if i == axis else count for i, count in enumerate(x.shape))
        border = tuple(by if i == axis else 0 for i in rank)
        none = (0,) * len(x.shape)
        befores, afters = (none, border) if reverse else (border, none)
        kept = c.make(Slice, [x], f"kept{by}", shape=shape, starts=starts, steps=(1,) * len(x.shape))
        return c.make(Fill, [kept], f"moved{by}", befores=befores, afters=afters, value=0.0)

    if c.node.integer("exclusive", 0):
        x = moved(x, 1) if extent > 1 else c.map(lambda a: a * 0, [x], "nothing")
    by = 1
    while by < extent:
        x = c.map(lambda a, b: a + b, [x, moved(x, by)], f"sums{by}")
        by *= 2
    c.same(x)
