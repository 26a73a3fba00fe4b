"""What only moves elements: Concat, Transpose, Reshape, Resize and Pad.

Where the layout has them in place already, nothing moves: a Reshape of a pixel to a row is another name.
Resize and Pad are kernels/moves.cl. The rest are kernels written here: an output's place becomes, by
constants, its coordinates, those of the input, and a place there; whole texels where all four channels come
from one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from dsp.adreno.context import (
    Context,
    Fields,
    Operand,
    Value,
    items,
    layout,
    literal,
    picture,
    picture_fields,
)
from dsp.adreno.plan import TEXEL, Layout
from sdk.errors import Unsupported
from sdk.graph import Concat, Mul, Node, Pad, Reshape, Resize, Tensor, Transpose

SOURCES = 64
"""The most operands of a Concat. A kernel can read 128 images on Adreno (published) and by OpenCL 1.2."""

Coordinates = list[str]
"""C, one for each axis of a tensor."""


def reshape(context: Context, node: Reshape) -> None:
    x, y = (context.graph.tensor(name) for name in (node.inputs[0], node.output))
    if picture(x) == picture(y):
        context.same(y.name, x.name)
        return
    _gather(context, node, y, lambda at: _element(x, context, "x0", _unravel(_ravel(at, y.shape), x.shape)))


def transpose(context: Context, node: Transpose) -> None:
    x, y = (context.graph.tensor(name) for name in (node.inputs[0], node.output))
    moved = [axis for axis in node.perm if x.shape[axis] > 1]
    if moved == sorted(moved) and picture(x) == picture(y):
        context.same(y.name, x.name)
        return

    def value(at: Coordinates) -> str:
        source = [""] * len(at)
        for axis, coordinate in zip(node.perm, at, strict=True):
            source[axis] = coordinate
        return _element(x, context, "x0", source)

    _gather(context, node, y, value)


def concat(context: Context, node: Concat) -> None:
    graph = context.graph
    y = graph.tensor(node.output)
    if len(node.inputs) > SOURCES:
        raise Unsupported(f"it has {len(node.inputs)} operands; the limit is {SOURCES}")
    sources = [graph.tensor(name) for name in node.inputs]
    sizes = [tensor.shape[node.axis] for tensor in sources]
    ends = np.cumsum(sizes).tolist()
    pictures = len(y.shape) == 4 and y.shape[0] == 1
    whole = pictures and (node.axis > 1 or not any(size % TEXEL for size in sizes[:-1]))
    unit = TEXEL if whole and node.axis == 1 else 1
    read = _texel if whole else _element

    def value(at: Coordinates) -> str:
        text = ""
        for number, (tensor, size, end) in enumerate(zip(sources, sizes, ends, strict=True)):
            start = (end - size) // unit
            moved = [f"{c} - {start}" if i == node.axis and start else c for i, c in enumerate(at)]
            part = read(tensor, context, f"x{number}", moved)
            last = number == len(sources) - 1
            text += part if last else f"{at[node.axis]} < {end // unit} ? {part} : "
        return text

    _gather(context, node, y, value, whole=whole)


def spread(context: Context, node: Mul) -> Value:
    """The second operand of a Mul, repeated along its axes of extent 1."""
    x, factor = (context.graph.tensor(name) for name in node.inputs)
    y = Value(
        f"{factor.name} for {node.name}", layout(x, context.limit), len(context.steps), len(context.steps) + 1
    )

    def value(at: Coordinates) -> str:
        source = ["0" if size == 1 else c for c, size in zip(at, factor.shape, strict=True)]
        return _element(factor, context, "x0", source)

    operands = [Operand("x0", "source", context.read(factor.name)), Operand("y", "target", y)]
    body = _body(y.layout, x.shape, value)
    context.launch([], "gather", body, operands, items(y.layout), name=node.name, op="Layout")
    return y


def pick(context: Context, node: Resize | Pad) -> None:
    x, out = (context.graph.tensor(name) for name in (node.inputs[0], node.output))
    source = context.read(x.name)
    y = context.make(out.name)
    operands = [Operand("x", "source", source), Operand("y", "target", y)]
    fields: Fields = {"channels": y.layout.channels, "from": source.layout, "to": y.layout}
    if isinstance(node, Resize):
        operands[1:1] = [Operand("tables", "tables")]
        sources = np.array([*node.rows, *node.columns], "<i4")
        operands.append(Operand("sources", "int", context.table(sources)))
    else:
        values = {"zero_point": x.zero_point, "top": node.pads[0], "left": node.pads[1]}
        operands += [Operand(name, "int", number) for name, number in values.items()]
    context.step([node], node.op.lower(), operands, [("move", fields)], items(y.layout))


# -- generated kernels ------------------------------------------------------------------------------------


def _gather(
    context: Context,
    node: Node,
    out: Tensor,
    value: Callable[[Coordinates], str],
    *,
    whole: bool = False,
) -> None:
    operands = [Operand(f"x{i}", "source", context.read(name)) for i, name in enumerate(node.inputs)]
    y = context.make(out.name)
    operands.append(Operand("y", "target", y))
    context.launch(
        [node], "gather", _body(y.layout, out.shape, value, whole=whole), operands, items(y.layout)
    )


def _body(
    to: Layout, shape: Sequence[int], value: Callable[[Coordinates], str], *, whole: bool = False
) -> str:
    """A kernel that makes a texel: from `value` of its coordinates, or of those of each of its elements.

    The padding of the last texel repeats the last channel: every access stays within its tensor.
    """
    at = ["0", "block" if whole else "c", "h", "w"]
    if len(shape) != 4 or shape[0] != 1:
        at = _unravel("c", shape)
    made = [f"  const int4 q = {value(at)};"]
    if not whole:
        made = [
            "  int e[4];",
            "#pragma unroll",
            "  for (int j = 0; j < 4; j++) {",
            f"    const int c = min(4 * block + j, {to.channels - 1});",
            f"    e[j] = {value(at)};",
            "  }",
            "  const int4 q = (int4)(e[0], e[1], e[2], e[3]);",
        ]
    lines = [
        f"  const struct picture to = {literal(picture_fields(to))};",
        "  const int w = get_global_id(0), h = get_global_id(1), block = get_global_id(2);",
        "  if (w >= to.width || h >= to.height || block >= to.blocks) return;",
        *made,
        "  store(y, column(to, block, w), row(to, block, h), to.pitch, q);",
    ]
    return "\n".join(lines)


def _texel(tensor: Tensor, context: Context, name: str, at: Coordinates) -> str:
    return f"texel({name}, {_picture(tensor, context)}, {', '.join(at[1:])})"


def _element(tensor: Tensor, context: Context, name: str, at: Coordinates) -> str:
    if len(tensor.shape) != 4 or tensor.shape[0] != 1:
        at = ["", _ravel(at, tensor.shape), "0", "0"]
    return f"element({name}, {_picture(tensor, context)}, {', '.join(at[1:])})"


def _picture(tensor: Tensor, context: Context) -> str:
    return f"(struct picture){literal(picture_fields(context.values[tensor.name].layout))}"


def _ravel(at: Coordinates, shape: Sequence[int]) -> str:
    """The index of an element in C order."""
    terms = [
        f"({coordinate}) * {math.prod(shape[axis + 1 :])}"
        for axis, coordinate in enumerate(at)
        if shape[axis] > 1
    ]
    return " + ".join(terms) or "0"


def _unravel(index: str, shape: Sequence[int]) -> Coordinates:
    """The coordinates of an element in C order; divisors are constants, and dividends are not negative."""
    at = []
    for axis, extent in enumerate(shape):
        step = math.prod(shape[axis + 1 :])
        at.append("0" if extent == 1 else f"(int)((uint)({index}) / {step}u % {extent}u)")
    return at
