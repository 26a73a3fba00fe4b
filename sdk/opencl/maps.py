"""Map: one kernel for each expression and way of walking, written for it.

A chain of Maps, each the only reader of the one before, is one expression; what a tensor between them would
have rounded is rounded there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sdk import dtypes
from sdk.errors import Unsupported
from sdk.exact_maps import exact_map
from sdk.expression import Expression, Symbol, kinds, replay, statements, trace
from sdk.expression.printer import TYPES
from sdk.expression.trace import round_to
from sdk.graph import Graph, Map, Node
from sdk.opencl import text as text_of
from sdk.opencl.calls import KernelSource, Pointer
from sdk.opencl.context import PlainContext
from sdk.opencl.views import View, walks

ELEMENTS = ("float32", "float16", "bfloat16", "float8e4m3fn", "float8e5m2")
INTEGERS = ("bool", "int8", "uint8", "int16", "uint16", "int32", "int64")
"""What kernels/plain/elements.h loads and stores."""

THREADS = 64
OPERANDS = 12
"""Of one kernel, at the most."""
VECTOR_BYTES = 16
ENOUGH = 1 << 13
"""Work-items that a launch has before one of them makes several elements."""


@dataclass(frozen=True)
class Operand:
    """What an expression reads.

    Attributes:
        view: whose elements they are.
        table: 256 entries that an element is replaced by: where they are, and their dtype.
    """

    view: View
    table: View | None = None


def composed(graph: Graph, nodes: Sequence[Node], given: str | None = None) -> tuple[Expression, list[str]]:
    """A chain of Maps as one expression, and the tensors that it reads.

    Args:
        graph: that holds the tensors.
        nodes: Maps, each of which reads the one before.
        given: a tensor that comes first among the operands: what a product makes.
    """
    made = {node.output for node in nodes}
    read = dict.fromkeys([given] if given is not None else [])
    read.update(dict.fromkeys(name for node in nodes for name in node.inputs if name not in made))
    names = [name for name in read if name is not None]
    found: dict[str, str] = {}
    for node in nodes:
        assert isinstance(node, Map)
        found.update(zip(node.inputs, node.expression.inputs, strict=True))

    def build(*symbols: Symbol) -> Symbol:
        values = dict(zip(names, symbols, strict=True))
        for node in nodes:
            assert isinstance(node, Map)
            value = replay(node.expression, *(values[name] for name in node.inputs))
            dtype = graph.tensor(node.output).dtype
            if node is not nodes[-1] and dtypes.is_float(dtype) and dtype != "float32":
                value = round_to(value, dtype)
            values[node.output] = value
        return values[nodes[-1].output]

    return trace(build, *(found[name] for name in names)), names  # type: ignore[arg-type]


def maps(context: PlainContext, nodes: Sequence[Map]) -> None:
    """A chain of Maps."""
    last = nodes[-1]
    out = context.graph.tensor(last.output)
    if out.quantization is not None:
        form = exact_map(context.graph, last, "f32")
        operands = []
        for one in form.operands:
            if one.tensor is None:
                operands.append(Operand(context.constant_view(np.asarray(one.data))))
            else:
                table = None if one.table is None else context.constant_view(one.table)
                operands.append(Operand(context.view(one.tensor), table))
        expression = form.expression
    else:
        expression, names = composed(context.graph, nodes)
        operands = [Operand(context.view(name)) for name in names]
    y = context.new_view(out)
    op = "+".join(node.op for node in nodes)
    launch(context, last, op, expression, operands, y)


def launch(
    context: PlainContext,
    node: Node,
    op: str,
    expression: Expression,
    operands: Sequence[Operand],
    y: View,
    complete: bool = True,
) -> None:
    """A launch that stores an expression of the operands' elements."""
    for view in (y, *(operand.view for operand in operands)):
        if view.dtype not in ELEMENTS + INTEGERS:
            raise Unsupported(f"an expression over {view.dtype} has no kernel")
    if len(operands) > OPERANDS:
        raise Unsupported(f"an expression over {len(operands)} tensors; the limit is {OPERANDS}")
    reads = [operand.view.broadcast(y.shape) for operand in operands]
    axes = walks(y.shape, y.steps, *(view.steps for view in reads))
    vector = _vector(axes, [y, *reads])
    inner, moved = axes[0]
    axes[0] = inner // vector, tuple(step * vector for step in moved)
    items = math.prod(extent for extent, _ in axes)
    kernel = source(expression, operands, y, len(axes), vector, moved)
    pointers: list[Pointer] = [y.pointer, *(operand.view.pointer for operand in operands)]
    pointers += [operand.table.pointer for operand in operands if operand.table is not None]
    fields = [items, *text_of.words(axes)]
    context.emit(node, op, kernel, (-(-items // THREADS), 1), pointers, fields, complete=complete)


def _vector(axes: Sequence[tuple[int, tuple[int, ...]]], views: Sequence[View]) -> int:
    """How many elements, side by side, a work-item makes."""
    inner, steps = axes[0]
    total = math.prod(extent for extent, _ in axes)
    if steps[0] != 1 or any(step not in (0, 1) for step in steps):
        return 1
    for vector in (8, 4, 2):
        if inner % vector or total // vector < ENOUGH:
            continue
        if all(_fits(view, vector, [one[index] for _, one in axes]) for index, view in enumerate(views)):
            return vector
    return 1


def _fits(view: View, vector: int, steps: Sequence[int]) -> bool:
    nbytes = vector * view.itemsize
    if steps[0] == 0:
        return True
    aligned = view.is_aligned(nbytes) and all(step * view.itemsize % nbytes == 0 for step in steps[1:])
    return nbytes <= VECTOR_BYTES and aligned


def source(
    expression: Expression, operands: Sequence[Operand], y: View, axes: int, vector: int, inner: Sequence[int]
) -> KernelSource:
    """The kernel.

    Args:
        expression: of the operands.
        operands: what it reads.
        y: what it writes.
        axes: loops, the innermost first.
        vector: elements that a work-item makes.
        inner: steps along the innermost loop, of y and of each operand.
    """
    count = len(operands) + 1
    tables = [i for i, operand in enumerate(operands) if operand.table is not None]
    parameters = ["global u8 *restrict y"]
    parameters += [f"global const u8 *x{i}" for i in range(len(operands))]
    parameters += [f"global const u8 *table{i}" for i in tables]
    head = [text_of.struct(count), f"struct map {{ u32 items; struct axis axes[{axes}]; }};"]
    lines = [
        f"  u32 rest = GROUP * {THREADS} + LANE;",
        "  if (rest >= m.items) return;",
        f"  s32 at[{count}] = {{0}};",
        *text_of.decode("m.axes", axes, count, "rest", "at"),
    ]
    types = TYPES["opencl"]
    known = kinds(expression)
    loads: list[str] = []
    for i, operand in enumerate(operands):
        view, step = operand.view, inner[i + 1]
        one = f"load_{view.dtype}(x{i} + (at[{i + 1}] + e * {step}) * {view.itemsize})"
        if operand.table is not None:
            first = -128 if view.dtype == "int8" else 0
            index = f"(u32)({one} - {first})" if first else f"(u32){one}"
            one = f"load_{operand.table.dtype}(table{i} + {index} * {operand.table.itemsize})"
        loads.append(f"    v{i}[e] = {one};")
        lines.append(f"  {types[known[i]]} v{i}[{vector}];")
    body, result = statements(expression, [f"v{i}[e]" for i in range(len(operands))], "opencl")
    each = f"  UNROLL for (s32 e = 0; e < {vector}; e++) {{"
    lines += [each, *loads, "  }"] if loads else []
    kind = types[known[-1]]
    lines += [
        f"  {kind} r[{vector}];",
        each,
        *(f"    {line}" for line in body),
        f"    r[e] = {result};",
        "  }",
    ]
    store = f"store_{y.dtype}(y + (at[0] + e * {inner[0]}) * {y.itemsize}, r[e]);"
    lines += [each, f"    {store}", "  }"]
    return text_of.kernel("map", THREADS, parameters, head, lines)
