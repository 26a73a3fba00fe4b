"""Pools, Interpolate and GridSample of plain tensors: a work-item makes one element."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from sdk import dtypes
from sdk.errors import Unsupported
from sdk.graph import AveragePool, GridSample, Interpolate, MaxPool, Node
from sdk.opencl import text
from sdk.opencl.calls import Pointer, Words, divisor
from sdk.opencl.context import PlainContext
from sdk.opencl.maps import ELEMENTS, INTEGERS
from sdk.opencl.views import View

THREADS = 64
NAMES = ("n", "c", "row", "column")


def pool(context: PlainContext, node: AveragePool | MaxPool) -> None:
    x, y = context.view(node.inputs[0]), context.new_view(context.graph.tensor(node.output))
    integral = dtypes.dtype(x.dtype).kind != "float"
    kind = "long" if integral else "float"
    load = text.load(x, "x", text.place(("n", "c", "i", "j"), x.steps))
    dilations = node.dilations if isinstance(node, MaxPool) else (1, 1)
    if isinstance(node, MaxPool):
        start = "(long)(1UL << 63)" if integral else "-INFINITY"
        each = f"{{ {kind} b = {load}; sum = {'b > sum ? b : sum' if integral else 'most(sum, b)'}; }}"
        end = ""
    else:
        if integral:
            raise Unsupported(f"a mean of {x.dtype} has no kernel")
        start, each = "0", f"sum += {load}; count++;"
        whole = math.prod(node.kernel)
        end = f"sum = sum / {f'{whole}.0f' if node.count_include_pad else '(float)count'};"
    body = [
        f"  {kind} sum = {start}; u32 count = 0;",
        f"  for (s32 dy = 0; dy < {node.kernel[0]}; dy++) {{",
        f"    s32 i = (s32)row * {node.strides[0]} - {node.pads[0]} + dy * {dilations[0]};",
        f"    if ((u32)i >= {x.shape[2]}u) continue;",
        f"    for (s32 dx = 0; dx < {node.kernel[1]}; dx++) {{",
        f"      s32 j = (s32)column * {node.strides[1]} - {node.pads[1]} + dx * {dilations[1]};",
        f"      if ((u32)j >= {x.shape[3]}u) continue;",
        f"      {each}",
        "    }",
        "  }",
        f"  {end}",
        f"  store_{y.dtype}(y + to * {y.itemsize}, sum);",
    ]
    numbers: dict[str, int] = {}
    if all(view.dtype in text.COUNTED for view in (x, y)):
        numbers = {"x_bits": 8 * x.itemsize, "y_bits": 8 * y.itemsize}
        numbers["largest"] = int(isinstance(node, MaxPool))
        numbers["whole"] = int(isinstance(node, AveragePool) and node.count_include_pad)
        numbers |= {f"x.{name}": step for name, step in zip(NAMES, x.steps, strict=True)}
        for i, axis in enumerate(("row", "column")):
            fields = (node.strides[i], node.pads[i], dilations[i], x.shape[2 + i])
            numbers[f"window.{axis}s"] = node.kernel[i]
            names = ("stride", "pad", "step", "extent")
            numbers |= {f"{axis}.{name}": field for name, field in zip(names, fields, strict=True)}
    each_element(context, node, y, body, [x], NAMES, numbers=numbers)


def interpolate(context: PlainContext, node: Interpolate) -> None:
    x, y = context.view(node.inputs[0]), context.new_view(context.graph.tensor(node.output))
    taps = [context.view(name) for name in node.inputs[1:]]
    (_, high), (_, wide) = taps[0].shape, taps[2].shape
    load = text.load(x, "x", text.place(("n", "c", "i", "j"), x.steps))
    body = [
        "  float total = 0;",
        f"  for (u32 k = 0; k < {high}; k++) {{",
        f"    s32 i = ((global const s32 *)w0)[row * {high} + k];",
        "    float sum = 0;",
        f"    for (u32 l = 0; l < {wide}; l++) {{",
        f"      s32 j = ((global const s32 *)w2)[column * {wide} + l];",
        f"      sum = FMA({load}, ((global const float *)w3)[column * {wide} + l], sum);",
        "    }",
        f"    total = FMA(sum, ((global const float *)w1)[row * {high} + k], total);",
        "  }",
        f"  store_{y.dtype}(y + to * {y.itemsize}, total);",
    ]
    each_element(context, node, y, body, [x, *taps], NAMES)


def grid_sample(context: PlainContext, node: GridSample) -> None:
    x, grid = (context.view(name) for name in node.inputs)
    y = context.new_view(context.graph.tensor(node.output))
    height, width = x.shape[2:]

    def coordinate(part: int) -> str:
        steps = grid.steps
        return text.load(
            grid,
            "w0",
            f"((s32)n * {steps[0]} + (s32)row * {steps[1]} + (s32)column * {steps[2]} + {part * steps[3]})",
        )

    def pixels(extent: int, at: str) -> str:
        if node.align_corners:
            return f"({at} + 1.0f) / 2.0f * {extent - 1}.0f"
        return f"(({at} + 1.0f) * {extent}.0f - 1.0f) / 2.0f"

    nearest = node.mode == "nearest"
    whole = "rint" if nearest else "floor"
    value = "pixel(top, left)"
    if not nearest:
        value = (
            "pixel(top, left) * (1 - down) * (1 - right) + pixel(top, left + 1) * (1 - down) * right"
            " + pixel(top + 1, left) * down * (1 - right) + pixel(top + 1, left + 1) * down * right"
        )
    load = text.load(x, "x", text.place(("n", "c", "(s32)(i)", "(s32)(j)"), x.steps))
    body = [
        f"  float h = {pixels(width, coordinate(0))}, v = {pixels(height, coordinate(1))};",
        *(_bounded(node, name, extent) for name, extent in (("h", width), ("v", height))),
        f"  float top = {whole}(v), left = {whole}(h), down = v - top, right = h - left;",
        f"#define inside(i, j) ((i) >= 0 && (i) < {height}.0f && (j) >= 0 && (j) < {width}.0f)",
        f"#define pixel(i, j) (inside(i, j) ? {load} : 0.0f)",
        f"  store_{y.dtype}(y + to * {y.itemsize}, {value});",
    ]
    each_element(context, node, y, body, [x, grid], NAMES)


def _bounded(node: GridSample, name: str, extent: int) -> str:
    """A coordinate within the picture, unless zeros are around it."""
    if node.padding_mode == "zeros":
        return ""
    last = extent - 1
    turn = ""
    if node.padding_mode == "reflection":
        low, span = ("0.0f", f"{last}.0f") if node.align_corners else ("-0.5f", f"{extent}.0f")
        turn = (
            f"float turned_{name} = {span} > 0 ? fmod(fabs({name} - {low}), 2 * {span}) : 0; "
            f"{name} = {low} + (turned_{name} < {span} ? turned_{name} : 2 * {span} - turned_{name}); "
        )
    return f"  {turn}{name} = {name} > 0 ? ({name} < {last}.0f ? {name} : {last}.0f) : 0;"


def each_element(
    context: PlainContext,
    node: Node,
    y: View,
    body: Sequence[str],
    reads: Sequence[View],
    names: Sequence[str],
    work: int = 0,
    numbers: Mapping[str, int] = MappingProxyType({}),
) -> None:
    """A launch whose work-items make one element of y each.

    Args:
        context: of the lowering.
        node: what is lowered.
        y: what is written.
        body: of the kernel: `to` is the element's place in y, in elements, and its coordinates have `names`.
        reads: pointers `x`, `w0`, `w1`, ...
        names: of y's coordinates.
        work: multiply-accumulates.
        numbers: for static counts.
    """
    for view in (y, *reads):
        if view.dtype not in ELEMENTS + INTEGERS:
            raise Unsupported(f"{node.op} of {view.dtype} has no kernel")
    parameters = [
        "global u8 *y",
        *(f"global u8 *{'x' if i == 0 else f'w{i - 1}'}" for i in range(len(reads))),
    ]
    order = sorted(range(len(y.shape)), key=lambda axis: (abs(y.steps[axis]), -axis))
    head = [
        "struct extent { u32 extent; struct divisor by; s32 step; };",
        f"struct each {{ u32 items; struct extent axes[{max(len(order), 1)}]; }};",
    ]
    lines = [
        f"  u32 rest = GROUP * {THREADS} + LANE, outer;",
        "  if (rest >= m.items) return;",
        "  s32 to = 0;",
    ]
    words: Words = [y.size]
    for i, axis in enumerate(order):
        words += [y.shape[axis], *divisor(y.shape[axis]), y.steps[axis]]
        lines += [
            f"  outer = {'0' if i + 1 == len(order) else f'divide(rest, m.axes[{i}].by)'};",
            f"  u32 {names[axis]} = rest - outer * m.axes[{i}].extent; rest = outer;",
            f"  to += (s32){names[axis]} * m.axes[{i}].step;",
        ]
    if not order:
        words += [1, *divisor(1), 0]
    if numbers:
        numbers = {**numbers, **{f"order.{axis}": place for place, axis in enumerate(order)}}
    kernel = text.kernel("each", THREADS, parameters, head, [*lines, *body], numbers)
    pointers: list[Pointer] = [y.pointer, *(view.pointer for view in reads)]
    context.emit(node, node.op, kernel, (-(-y.size // THREADS), 1), pointers, words, work)
