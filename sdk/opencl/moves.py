"""What moves elements: other views of the same bytes where steps can say it, and copies where not."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sdk import dtypes
from sdk.expression import Expression
from sdk.graph import Concat, Fill, Graph, Node, Pad, Reshape, Resize, Slice, Take, Tensor, Transpose
from sdk.opencl import text
from sdk.opencl.calls import Words, divisor
from sdk.opencl.context import PlainContext
from sdk.opencl.maps import Operand, launch
from sdk.opencl.views import View, dense_steps, walks

SAME = Expression(("int",), ())
"""Of bits that are moved."""
BITS = {1: "uint8", 2: "uint16", 4: "int32", 8: "int64"}
"""Integer types of as many bytes: a move keeps the bits of a NaN."""
THREADS = 64
SMALL = 1 << 16
"""Elements of a copy that takes no longer than its launch."""
TOGETHER = 8
"""Copies in one launch."""


def copy(context: PlainContext, node: Node, source: View, target: View, complete: bool = True) -> None:
    """A launch that copies one view to another of the same shape."""
    bits = BITS[source.itemsize]
    launch(
        context,
        node,
        node.op,
        SAME,
        [Operand(replace(source, dtype=bits))],
        replace(target, dtype=bits),
        complete,
    )


def dense(context: PlainContext, node: Node, view: View) -> View:
    """The elements in C order, copied where they are not."""
    if view.is_dense:
        return view
    at = context.buffer(f"{node.inputs[0]} in C order", view.size * view.itemsize)
    made = View(at, view.shape, dense_steps(view.shape), view.dtype)
    copy(context, node, view, made, complete=False)
    return made


def move(context: PlainContext, node: Node) -> None:
    """Reshape, Transpose, Slice, Take, Resize: a view, or else a copy."""
    x, out = context.view(node.inputs[0]), context.graph.tensor(node.output)
    view = moved(node, x, out)
    if view is not None and out.quantization is None:
        context.alias(node.output, view)
        return
    if view is not None:
        copy(context, node, view, context.new_view(out))
    elif isinstance(node, Reshape):
        made = dense(context, node, x)
        if out.quantization is None:
            context.alias(node.output, replace(made, shape=out.shape, steps=dense_steps(out.shape)))
        else:
            view = replace(made, shape=out.shape, steps=dense_steps(out.shape))
            copy(context, node, view, context.new_view(out))
    else:
        _take(context, node, x, context.new_view(out), lists(node, x.shape))


def moved(node: Node, x: View, out: Tensor) -> View | None:
    """The result as a view of the input; None where steps cannot say it."""
    match node:
        case Reshape():
            return x.reshaped(out.shape)
        case Transpose():
            return x.transposed(node.perm)
        case Slice():
            return x.sliced(node.starts, node.steps, out.shape)
        case Take() | Resize():
            progressions = [
                _progression(chosen, extent)
                for chosen, extent in zip(lists(node, x.shape), x.shape, strict=True)
            ]
            if any(found is None for found in progressions):
                return None
            known = [found for found in progressions if found is not None]
            return x.sliced([first for first, _ in known], [step for _, step in known], out.shape)
    return None


def lists(node: Node, shape: Sequence[int]) -> list[tuple[int, ...]]:
    """Of a Take or Resize: the elements along each axis; empty for all of them."""
    if isinstance(node, Take):
        return [tuple(chosen) for chosen in node.indices]
    assert isinstance(node, Resize)
    return [(), (), tuple(node.rows), tuple(node.columns)]


def _progression(chosen: Sequence[int], extent: int) -> tuple[int, int] | None:
    """First element and step of a list that has equal steps."""
    if not chosen:
        return 0, 1
    steps = {after - before for before, after in itertools.pairwise(chosen)}
    if len(steps) > 1:
        return None
    return chosen[0], steps.pop() if steps else 0


def _take(context: PlainContext, node: Node, x: View, y: View, chosen: Sequence[Sequence[int]]) -> None:
    """A copy by tables: of each listed axis, where its elements are in x."""
    source, target = replace(x, dtype=BITS[x.itemsize]), replace(y, dtype=BITS[x.itemsize])
    axes = [
        (n, to, own, list(table) and [index * own for index in table])
        for n, to, own, table in zip(y.shape, target.steps, source.steps, chosen, strict=True)
        if n > 1 or table
    ]
    axes.sort(key=lambda axis: abs(axis[1]))
    tables = [context.constant(np.array(table, "<i4")) for *_, table in axes if table]
    names = iter(range(len(tables)))
    parameters = ["global u8 *y", "global const u8 *x"]
    parameters += [f"global const s32 *table{i}" for i in range(len(tables))]
    head = [text.struct(2), f"struct take {{ u32 items; struct axis axes[{len(axes)}]; }};"]
    lines = [
        f"  u32 rest = GROUP * {THREADS} + LANE, outer;",
        "  if (rest >= m.items) return;",
        "  s32 to = 0, from = 0, here;",
    ]
    words: Words = [math.prod(n for n, *_ in axes)]
    for i, (n, step, own, table) in enumerate(axes):
        last = i + 1 == len(axes)
        words += [n, *divisor(n), step, own]
        lines += [
            f"  outer = {'0' if last else f'divide(rest, m.axes[{i}].by)'};",
            f"  here = (s32)(rest - outer * m.axes[{i}].extent); rest = outer;",
            f"  to += here * m.axes[{i}].steps[0];",
            f"  from += {f'table{next(names)}[here]' if table else f'here * m.axes[{i}].steps[1]'};",
        ]
    size = x.itemsize
    lines += [f"  store_{target.dtype}(y + to * {size}, load_{source.dtype}(x + from * {size}));"]
    kernel = text.kernel("take", THREADS, parameters, head, lines)
    items = words[0]
    assert isinstance(items, int)
    context.emit(
        node, node.op, kernel, (-(-items // THREADS), 1), [target.pointer, source.pointer, *tables], words
    )


# -- Concat -----------------------------------------------------------------------------------------------


def concat_places(graph: Graph, made: set[str]) -> dict[str, tuple[str, int, int]]:
    """Plain operands of Concats that can be made where they belong: the whole's name, the axis, the start.

    Args:
        graph: that is lowered.
        made: tensors that a launch stores, whatever the steps.
    """
    within: dict[str, tuple[str, int, int]] = {}
    for node in graph.nodes:
        if not isinstance(node, Concat) or graph.tensor(node.output).quantization is not None:
            continue
        start = 0
        for name in node.inputs:
            if name in made and name not in within and node.inputs.count(name) == 1:
                within[name] = node.output, node.axis, start
            start += graph.tensor(name).shape[node.axis]
    return within


def concat(context: PlainContext, node: Concat) -> None:
    """Copies of the operands that are not in their places already."""
    graph = context.graph
    out = graph.tensor(node.output)
    y = context.view(out.name) if out.name in context.views else context.new_view(out)
    moves = []
    start = 0
    for name in node.inputs:
        shape = graph.tensor(name).shape
        if context.placed.get(name, ("",))[0] != out.name:
            starts = [start if axis == node.axis else 0 for axis in range(len(shape))]
            moves.append((name, y.sliced(starts, (1,) * len(shape), shape)))
        start += shape[node.axis]
    copies(context, node, [(context.view(name), part) for name, part in moves])


def copies(context: PlainContext, node: Node, pairs: Sequence[tuple[View, View]]) -> None:
    """Copy views to others of the same shapes, the small ones in one launch; the node is complete then.

    Args:
        context: of the lowering.
        node: what is lowered.
        pairs: sources and targets, of elements of the same size.
    """
    small = [pair for pair in pairs if pair[1].size <= SMALL]
    if len(small) < 2:
        small = []
    large = [pair for pair in pairs if not any(pair is one for one in small)]
    batches = [small[first : first + TOGETHER] for first in range(0, len(small), TOGETHER)]
    for number, (source, target) in enumerate(large, 1):
        copy(context, node, source, target, complete=number == len(large) and not small)
    for batch in batches:
        _together(context, node, batch, complete=batch is batches[-1])


def _together(context: PlainContext, node: Node, pairs: Sequence[tuple[View, View]], complete: bool) -> None:
    """A launch in which each row of workgroups copies one view."""
    dtype, size = BITS[pairs[0][0].itemsize], pairs[0][0].itemsize
    axes = [walks(target.shape, target.steps, source.steps) for source, target in pairs]
    parameters = [one for i in range(len(pairs)) for one in (f"global u8 *y{i}", f"global const u8 *x{i}")]
    fields = [f"struct axis axes{i}[{len(one)}];" for i, one in enumerate(axes)]
    head = [text.struct(2), f"struct copies {{ u32 items[{len(pairs)}]; {' '.join(fields)} }};"]
    lines = [
        f"  u32 rest = GROUP * {THREADS} + LANE;",
        "  s32 at[2] = {0};",
    ]
    for i, one in enumerate(axes):
        lines += [
            f"  if (GROUP_Y == {i}) {{",
            f"    if (rest >= m.items[{i}]) return;",
            *(f"  {line}" for line in text.decode(f"m.axes{i}", len(one), 2, "rest", "at")),
            f"    store_{dtype}(y{i} + at[0] * {size}, load_{dtype}(x{i} + at[1] * {size}));",
            "  }",
        ]
    words: Words = [target.size for _, target in pairs]
    for one in axes:
        words += text.words(one)
    pointers = [view.pointer for source, target in pairs for view in (target, source)]
    kernel = text.kernel("copies", THREADS, parameters, head, lines)
    groups = -(-max(target.size for _, target in pairs) // THREADS), len(pairs)
    context.emit(node, node.op, kernel, groups, pointers, words, complete=complete)


# -- Fill and Pad -----------------------------------------------------------------------------------------


def fill(context: PlainContext, node: Fill | Pad) -> None:
    """A border of one value around the input."""
    x, out = context.view(node.inputs[0]), context.graph.tensor(node.output)
    y = context.new_view(out)
    befores = node.befores if isinstance(node, Fill) else (0, 0, *node.pads[:2])
    value = float(node.value) if isinstance(node, Fill) else 0.0
    kind = dtypes.dtype(out.dtype).kind
    exact = np.float64(value) if kind == "float" else np.int64(value)
    bits = int.from_bytes(dtypes.encode(np.asarray(exact), out.dtype).tobytes(), "little")
    axes = [
        (n, to, own, before, inside)
        for n, to, own, before, inside in zip(y.shape, y.steps, x.steps, befores, x.shape, strict=True)
        if n > 1
    ] or [(1, 0, 0, 0, 1)]
    axes.sort(key=lambda axis: abs(axis[1]))
    dtype = BITS[y.itemsize]
    head = [
        "struct axis { u32 extent; struct divisor by; s32 to, own, before; u32 inside; };",
        f"struct fill {{ u32 items, low, high; struct axis axes[{len(axes)}]; }};",
    ]
    lines = [
        f"  u32 rest = GROUP * {THREADS} + LANE;",
        "  if (rest >= m.items) return;",
        "  s32 to = 0, from = 0; bool inside = true;",
        f"  UNROLL for (u32 i = 0; i < {len(axes)}; i++) {{",
        f"    u32 outer = i + 1 < {len(axes)} ? divide(rest, m.axes[i].by) : 0;",
        "    s32 here = (s32)(rest - outer * m.axes[i].extent), at = here - m.axes[i].before;",
        "    to += here * m.axes[i].to; from += at * m.axes[i].own;",
        "    inside = inside && (u32)at < m.axes[i].inside;",
        "    rest = outer;",
        "  }",
        "  long value = (long)((ulong)m.high << 32 | m.low);",
        f"  if (inside) value = load_{dtype}(x + from * {x.itemsize});",
        f"  store_{dtype}(y + to * {y.itemsize}, value);",
    ]
    items = math.prod(n for n, *_ in axes)
    words: Words = [items, bits & 0xFFFFFFFF, bits >> 32]
    for n, to, own, before, within in axes:
        words += [n, *divisor(n), to, own, before, within]
    kernel = text.kernel("fill", THREADS, ["global u8 *y", "global const u8 *x"], head, lines)
    context.emit(node, node.op, kernel, (-(-items // THREADS), 1), [y.pointer, x.pointer], words)
