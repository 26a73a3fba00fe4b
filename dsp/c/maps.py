"""Map: a loop nest of its own for each expression and way of walking; identical ones are written once."""

from __future__ import annotations

from collections.abc import Sequence

from dsp.c.context import Context
from dsp.c.elements import ELEMENTS, INTEGERS
from dsp.c.walks import Loop, broadcast_steps, merged, steps
from sdk.errors import Unsupported
from sdk.expression import Expression, statements
from sdk.expression.printer import TYPES
from sdk.graph import Map, Tensor

HELPERS = "plain/expressions.h"


def map_elements(context: Context, node: Map) -> None:
    inputs, y = context.tensors(node)
    walks = [steps(y.shape), *(broadcast_steps(x.shape, y.shape) for x in inputs)]
    loops = merged(y.shape, *walks)
    # One loop alone has its extent as an argument, so that it serves tensors of any size.
    extents = [str(extent) for extent, _ in loops] if len(loops) > 1 else ["count"]
    loops = loops or [(1, (0,) * len(walks))]
    text = _nest(node.expression, inputs, y, loops, extents)
    context.include(HELPERS)
    places = [context.at(tensor.name) for tensor in (y, *inputs)]
    count = [str(loops[0][0])] if len(loops) == 1 else []
    context.code.calls.append(f"{context.function('map', text)}({', '.join(places + count)});")


def _nest(
    expression: Expression, inputs: Sequence[Tensor], y: Tensor, loops: Sequence[Loop], extents: Sequence[str]
) -> str:
    """The function, with NAME for its name. An operand that stands still in a loop is loaded before it."""
    for tensor in (y, *inputs):
        if tensor.dtype not in ELEMENTS + INTEGERS or tensor.quantization is not None:
            raise Unsupported(f"an expression over {tensor} has no kernel")
    used = _used(expression)
    values = [f"v{i}" for i in range(len(inputs))]
    loads: dict[int, list[str]] = {depth: [] for depth in range(len(loops) + 1)}
    for i, x in enumerate(inputs):
        moving = [depth for depth, (_, step) in enumerate(loops, 1) if step[i + 1]]
        if i in used:
            kind = TYPES["c"][expression.inputs[i]]
            address = _address(f"x{i}", x, loops, i + 1)
            loads[max(moving, default=0)].append(f"const {kind} {values[i]} = load_{x.dtype}({address});")
    lines, result = statements(expression, values)
    lines = [line for number, line in enumerate(lines) if len(inputs) + number in used]
    store = f"store_{y.dtype}({_address('y', y, loops, 0)}, {result});"
    parameters = ["uint8_t *restrict y", *(f"const uint8_t *restrict x{i}" for i in range(len(inputs)))]
    if len(loops) == 1:
        parameters.append("int64_t count")
    body = [f"static void NAME({', '.join(parameters)}) {{"]
    body += [f"  (void)x{i};" for i in range(len(inputs)) if i not in used]
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
