"""Map: a loop nest of its own for each expression and way of walking; identical ones are written once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dsp.c.context import Context
from dsp.c.elements import ELEMENTS, INTEGERS
from dsp.c.walks import Loop, broadcast_steps, merged, steps
from sdk.errors import Unsupported
from sdk.exact_maps import Operand, exact_map
from sdk.expression import Expression, statements
from sdk.expression.printer import TYPES
from sdk.graph import Map, Tensor

HELPERS = "plain/expressions.h"


@dataclass(frozen=True)
class _Operand:
    """What a function reads.

    Attributes:
        tensor: whose shape and dtype its elements have.
        place: where they are.
        table: of what the elements are passed through, its dtype and where it is; None for nothing.
    """

    tensor: Tensor
    place: str
    table: tuple[str, str] | None = None


def map_elements(context: Context, node: Map) -> None:
    inputs, y = context.tensors(node)
    if y.quantization is not None:
        form = exact_map(context.graph, node, "f32")
        _map(context, form.expression, [_exact(context, operand) for operand in form.operands], y)
        return
    for tensor in (y, *inputs):
        if tensor.dtype not in ELEMENTS + INTEGERS or tensor.quantization is not None:
            raise Unsupported(f"an expression over {tensor} has no kernel")
    _map(context, node.expression, [_Operand(x, context.at(x.name)) for x in inputs], y)


def _exact(context: Context, operand: Operand) -> _Operand:
    if operand.tensor is None:
        data = np.asarray(operand.data)
        return _Operand(Tensor("", data.shape, data.dtype.name, None, data), context.constant(data))
    table = None
    if operand.table is not None:
        table = operand.table.dtype.name, context.constant(operand.table)
    return _Operand(context.graph.tensor(operand.tensor), context.at(operand.tensor), table)


def _map(context: Context, expression: Expression, operands: Sequence[_Operand], y: Tensor) -> None:
    walks = [steps(y.shape), *(broadcast_steps(operand.tensor.shape, y.shape) for operand in operands)]
    loops = merged(y.shape, *walks)
    # One loop alone has its extent as an argument, so that it serves tensors of any size.
    extents = [str(extent) for extent, _ in loops] if len(loops) > 1 else ["count"]
    loops = loops or [(1, (0,) * len(walks))]
    text = _nest(expression, operands, y, loops, extents)
    context.include(HELPERS)
    places = [context.at(y.name), *(operand.place for operand in operands)]
    places += [operand.table[1] for operand in operands if operand.table]
    count = [str(loops[0][0])] if len(loops) == 1 else []
    context.code.calls.append(f"{context.function('map', text)}({', '.join(places + count)});")


def _nest(
    expression: Expression,
    operands: Sequence[_Operand],
    y: Tensor,
    loops: Sequence[Loop],
    extents: Sequence[str],
) -> str:
    """The function, with NAME for its name. An operand that stands still in a loop is loaded before it."""
    used = _used(expression)
    values = [f"v{i}" for i in range(len(operands))]
    loads: dict[int, list[str]] = {depth: [] for depth in range(len(loops) + 1)}
    for i, operand in enumerate(operands):
        moving = [depth for depth, (_, step) in enumerate(loops, 1) if step[i + 1]]
        if i in used:
            x, kind = operand.tensor, TYPES["c"][expression.inputs[i]]
            load = f"load_{x.dtype}({_address(f'x{i}', x, loops, i + 1)})"
            if operand.table:
                load = f"load_{operand.table[0]}(table{i} + {load} * 4)"
            loads[max(moving, default=0)].append(f"const {kind} {values[i]} = {load};")
    lines, result = statements(expression, values)
    lines = [line for number, line in enumerate(lines) if len(operands) + number in used]
    store = f"store_{y.dtype}({_address('y', y, loops, 0)}, {result});"
    pointers = ["*restrict y", *(f"*restrict x{i}" for i in range(len(operands)))]
    pointers += [f"*restrict table{i}" for i, operand in enumerate(operands) if operand.table]
    parameters = [f"{'const ' if i else ''}uint8_t {pointer}" for i, pointer in enumerate(pointers)]
    if len(loops) == 1:
        parameters.append("int64_t count")
    body = [f"static void NAME({', '.join(parameters)}) {{"]
    body += [f"  (void)x{i};" for i in range(len(operands)) if i not in used]
    for depth in range(len(loops) + 1):
        body += ["  " * (depth + 1) + line for line in loads[depth]]
        if depth < len(loops):
            index = f"i{depth}"
            body.append(
                "  " * (depth + 1) + f"for (int64_t {index} = 0; {index} < {extents[depth]}; {index}++) {{"
            )
    body += ["  " * (len(loops) + 1) + line for line in (*lines, store)]
    body += ["  " * depth + "}" for depth in range(len(loops), -1, -1)]
    return "\n".join(body)


def _address(base: str, tensor: Tensor, loops: Sequence[Loop], stream: int) -> str:
    nbytes = tensor.nbytes // tensor.size
    terms = [
        f"i{depth} * {step[stream] * nbytes}" if step[stream] * nbytes != 1 else f"i{depth}"
        for depth, (_, step) in enumerate(loops)
        if step[stream]
    ]
    return " + ".join([base, *terms])


def _used(expression: Expression) -> set[int]:
    """The inputs and steps on which the result depends, numbered as in `Step.args`."""
    last = len(expression.inputs) + len(expression.steps) - 1
    used, open_ends = set(), [last]
    while open_ends:
        index = open_ends.pop()
        if index not in used:
            used.add(index)
            step = index - len(expression.inputs)
            if step >= 0:
                open_ends += expression.steps[step].args
    return used
