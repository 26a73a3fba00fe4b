"""What goes over some axes of a tensor: Reduce, TopK, Softmax and Normalize.

A row is what is reduced to one number. As many work-items share it as its length is worth; each sums in
float32 what it reads, and they add their sums in LDS, in the same order always.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sdk import dtypes
from sdk.errors import Unsupported
from sdk.graph import GlobalAveragePool, Node, Normalize, Reduce, Softmax, TopK
from sdk.opencl import text
from sdk.opencl.calls import Pointer, Words
from sdk.opencl.context import PlainContext
from sdk.opencl.maps import ELEMENTS, INTEGERS
from sdk.opencl.views import View, walks

SHORT, LONG = 32, 2048
"""Elements of a row from which a wave, and from which eight, share it."""
ROWS = 64
"""Work-items of a workgroup where each has a row of its own."""

COMBINE = {
    "sum": ("0", "a + b"),
    "mean": ("0", "a + b"),
    "prod": ("1", "a * b"),
    "max": ("LOWEST", "most(a, b)"),
    "min": ("HIGHEST", "least(a, b)"),
}
LONG_COMBINE = {"max": "a > b ? a : b", "min": "a < b ? a : b"}


def reduce(context: PlainContext, node: Reduce | GlobalAveragePool) -> None:
    x, out = context.view(node.inputs[0]), context.graph.tensor(node.output)
    axes = node.axes if isinstance(node, Reduce) else (2, 3)
    kind = node.kind if isinstance(node, Reduce) else "mean"
    y = context.new_view(out)
    kept = _kept(y, x.shape, axes)
    integral = _integral(x)
    value, at = "long" if integral else "float", text.load(x, "x", "place[0]")
    if kind in ("argmax", "argmin"):
        body = _arg(kind, value, at)
        store = f"store_{y.dtype}(y + base[1] * {y.itemsize}, index)"
    else:
        start, combine = COMBINE[kind]
        if integral:
            combine = LONG_COMBINE.get(kind, combine)
            start = {"LOWEST": "(long)(1UL << 63)", "HIGHEST": "(long)(~0UL >> 1)"}.get(start, start)
        else:
            start = {"LOWEST": "-INFINITY", "HIGHEST": "INFINITY"}.get(start, start)
        each = f"{{ {value} a = sum, b = {at}; sum = {combine}; }}"
        body = [f"  {value} sum = {start};", *_over(each), *_combined("sum", value, combine)]
        if kind == "mean":
            count = math.prod(x.shape[axis] for axis in axes)
            body.append(f"  sum = floor_divide(sum, {count});" if integral else f"  sum = sum / {count}.0f;")
        store = f"store_{y.dtype}(y + base[1] * {y.itemsize}, sum)"
    body.append(f"  if (lane == 0) {store};")
    _rows(
        context,
        node,
        axes,
        x,
        [kept],
        body,
        [y.pointer, x.pointer],
        ["global u8 *y", "global const u8 *x"],
        counted=kind if kind in COMBINE else "",
    )


def softmax(context: PlainContext, node: Softmax) -> None:
    x, out = context.view(node.inputs[0]), context.graph.tensor(node.output)
    y = context.new_view(out)
    at = text.load(x, "x", "place[0]")
    body = [
        "  float top = -INFINITY, sum = 0;",
        *_over(f"top = most(top, {at});"),
        *_combined("top", "float", "most(a, b)"),
        *_over(f"sum += exp({at} - top);"),
        *_combined("sum", "float", "a + b"),
        "  float factor = 1.0f / sum;",
        *_over(f"store_{y.dtype}(y + place[1] * {y.itemsize}, exp({at} - top) * factor);"),
    ]
    _rows(
        context,
        node,
        (node.axis,),
        x,
        [y],
        body,
        [y.pointer, x.pointer],
        ["global u8 *y", "global const u8 *x"],
        counted="softmax",
    )


def normalize(context: PlainContext, node: Normalize) -> None:
    x, out = context.view(node.inputs[0]), context.graph.tensor(node.output)
    y = context.new_view(out)
    count = math.prod(x.shape[axis] for axis in node.axes)
    at = text.load(x, "x", "place[0]")
    views, pointers = [y], [y.pointer, x.pointer]
    parameters = ["global u8 *y", "global const u8 *x"]
    result = f"({at} - mean) * factor"
    for number, (name, sign) in enumerate(zip(node.inputs[1:], "*+", strict=False)):
        view = context.view(name).broadcast(x.shape)
        views.append(view)
        pointers.append(view.pointer)
        parameters.append(f"global const u8 *w{number}")
        result = f"({result}) {sign} {text.load(view, f'w{number}', f'place[{number + 2}]')}"
    body = ["  float mean = 0, sum = 0;"]
    if node.centre:
        body += [
            *_over(f"sum += {at};"),
            *_combined("sum", "float", "a + b"),
            f"  mean = sum / {count}.0f; sum = 0;",
        ]
    body += [
        *_over(f"{{ float d = {at} - mean; sum = FMA(d, d, sum); }}"),
        *_combined("sum", "float", "a + b"),
        f"  float factor = 1.0f / sqrt(sum / {count}.0f + m.epsilon);",
        *_over(f"store_{y.dtype}(y + place[1] * {y.itemsize}, {result});"),
    ]
    _rows(context, node, node.axes, x, views, body, pointers, parameters, node.epsilon)


def top_k(context: PlainContext, node: TopK) -> None:
    """Each element's rank is how many are better; those with a rank below k are stored there."""
    x, out = context.view(node.inputs[0]), context.graph.tensor(node.output)
    y = context.new_view(out)
    value = "long" if _integral(x) else "float"
    step = x.steps[node.axis]
    first = f"load_{x.dtype}(x + (base[0] + (s32)k * {step}) * {x.itemsize})"
    other = f"load_{x.dtype}(x + (base[0] + (s32)j * {step}) * {x.itemsize})"
    relation = ">" if node.largest else "<"
    body = [
        "  for (u32 k = lane; k < m.count; k += WIDTH) {",
        f"    {value} own = {first};",
        "    u32 rank = 0;",
        "    for (u32 j = 0; j < m.count; j++) {",
        f"      {value} rival = {other};",
        f"      bool better = rival {relation} own || (rival != rival && own == own);",
        "      bool equal = rival == own || (rival != rival && own != own);",
        "      rank += better || (equal && j < k);",
        "    }",
        f"    s32 to = base[1] + (s32)rank * {y.steps[node.axis]};",
        f"    if (rank < {node.k}) store_{y.dtype}(y + to * {y.itemsize}, (long)k);",
        "  }",
    ]
    kept = View(y.at, tuple(1 if i == node.axis else n for i, n in enumerate(y.shape)), y.steps, y.dtype)
    kept = _kept(kept, x.shape, (node.axis,))
    _rows(
        context,
        node,
        (node.axis,),
        x,
        [kept],
        body,
        [y.pointer, x.pointer],
        ["global u8 *y", "global const u8 *x"],
    )


# -- rows -------------------------------------------------------------------------------------------------


def _rows(
    context: PlainContext,
    node: Node,
    axes: Sequence[int],
    x: View,
    others: Sequence[View],
    body: Sequence[str],
    pointers: Sequence[Pointer],
    parameters: Sequence[str],
    epsilon: float | None = None,
    counted: str = "",
) -> None:
    """A launch over the rows of x.

    Args:
        context: of the lowering.
        node: what is lowered.
        axes: of x that a row goes along.
        x: stream 0; its shape is that of all.
        others: the streams behind it.
        body: the kernel's, with `base` of the row's streams, `lane` of WIDTH.
        pointers: of the kernel.
        parameters: their declarations.
        epsilon: a number for the kernel.
        counted: what static counts call it, if they know it: float16 and float32 are counted.
    """
    for view in (x, *others):
        if view.dtype not in ELEMENTS + INTEGERS:
            raise Unsupported(f"{node.op} of {view.dtype} has no kernel")
    views = [x, *others]
    outer = [axis for axis in range(len(x.shape)) if axis not in axes]
    rows = walks([x.shape[i] for i in outer], *([view.steps[i] for i in outer] for view in views))
    inner = walks([x.shape[i] for i in axes], *([view.steps[i] for i in axes] for view in views))
    count = math.prod(n for n, _ in inner)
    total = math.prod(n for n, _ in rows)
    width = 1 if count <= SHORT else 32 if count <= LONG or total > 512 else 256
    threads = ROWS if width == 1 else width
    streams = len(views)
    fields = "u32 rows, count; float epsilon;" if epsilon is not None else "u32 rows, count;"
    head = [
        f"#define WIDTH {width}",
        text.struct(streams),
        f"struct reduce {{ {fields} struct axis outer[{len(rows)}]; struct axis inner[{len(inner)}]; }};",
    ]
    lines = [
        *(
            ["  u32 row = GROUP * 64 + LANE, lane = 0;"]
            if width == 1
            else ["  u32 row = GROUP, lane = LANE;"]
        ),
        "  if (row >= m.rows) return;",
        *(
            ["  local long shared_words[2 * WIDTH]; local u8 *shared = (local u8 *)shared_words;"]
            if width > 1
            else []
        ),
        f"  s32 base[{streams}] = {{0}};",
        *text.decode("m.outer", len(rows), streams, "row", "base"),
        *(line.replace("@PLACE", _place(len(inner), streams)) for line in body),
    ]
    words: Words = [total, count, *([float(epsilon)] if epsilon is not None else [])]
    words += [*text.words(rows), *text.words(inner)]
    groups = -(-total // ROWS) if width == 1 else total
    numbers: dict[str, int] = {}
    if counted and all(view.dtype in text.COUNTED for view in views):
        numbers = {counted: 1, "width": width, "outer": len(rows), "inner": len(inner)}
        numbers |= {f"{name}_bits": 8 * view.itemsize for name, view in zip("xy", views, strict=True)}
    kernel = text.kernel("reduce", threads, parameters, head, lines, numbers)
    context.emit(node, node.op, kernel, (groups, 1), pointers, words)


def _over(each: str) -> list[str]:
    """A statement for every element of the row: `place` has its streams."""
    return ["  for (u32 k = lane; k < m.count; k += WIDTH) {", "@PLACE", f"    {each}", "  }"]


def _place(axes: int, streams: int) -> str:
    lines = [f"    s32 place[{streams}];", f"    for (u32 j = 0; j < {streams}; j++) place[j] = base[j];"]
    if axes == 1:
        lines.append(f"    for (u32 j = 0; j < {streams}; j++) place[j] += (s32)k * m.inner[0].steps[j];")
    else:
        lines += ["    u32 rest = k;", *text.decode("m.inner", axes, streams, "rest", "place")]
    return "\n".join(lines)


def _combined(name: str, kind: str, combine: str) -> list[str]:
    """Make the work-items' values of a row one, which all of them have."""
    parts = f"parts_{name}"
    return [
        "#if WIDTH > 1",
        f"  {{ local {kind} *{parts} = (local {kind} *)shared;",
        f"  sync(); {parts}[lane] = {name}; sync();",
        "  for (u32 near = WIDTH / 2; near; near /= 2) {",
        f"    if (lane < near) {{ {kind} a = {parts}[lane], b = {parts}[lane + near];",
        f"      {parts}[lane] = {combine}; }}",
        "    sync();",
        "  }",
        f"  {name} = {parts}[0]; }}",
        "#endif",
    ]


def _arg(kind: str, value: str, at: str) -> list[str]:
    """The first of the best: a NaN is better than any number."""
    relation = ">" if kind == "argmax" else "<"
    better = f"(b {relation} a || (b != b && a == a))"
    equal = "(a == b || (a != a && b != b))"
    return [
        f"  {value} best = 0; long index = -1;",
        *_over(f"{{ {value} a = best, b = {at}; if (index < 0 || {better}) best = b, index = k; }}"),
        "#if WIDTH > 1",
        f"  {{ local {value} *bests = (local {value} *)shared;",
        "  local long *indices = (local long *)(shared + 8 * WIDTH);",
        "  sync(); bests[lane] = best; indices[lane] = index; sync();",
        "  for (u32 near = WIDTH / 2; near; near /= 2) {",
        f"    if (lane < near) {{ {value} a = bests[lane], b = bests[lane + near];",
        "      long i = indices[lane], j = indices[lane + near];",
        f"      if (j >= 0 && (i < 0 || {better} || ({equal} && j < i)))",
        "        bests[lane] = b, indices[lane] = j; }",
        "    sync();",
        "  }",
        "  index = indices[0]; }",
        "#endif",
    ]


def _kept(y: View, shape: Sequence[int], axes: Sequence[int]) -> View:
    """The result with the shape of the input, standing still along what is reduced."""
    steps: list[int] = []
    own = list(y.steps)
    squeezed = len(own) != len(shape)
    for axis in range(len(shape)):
        if axis in axes:
            steps.append(0)
            if not squeezed:
                own.pop(0)
        else:
            steps.append(own.pop(0))
    return View(y.at, tuple(shape), tuple(steps), y.dtype)


def _integral(view: View) -> bool:
    return dtypes.dtype(view.dtype).kind != "float"
