"""Recurrent: a function with the loop over its steps, and the body's buffers in the node's scratch memory."""

from __future__ import annotations

from collections.abc import Callable

from dsp.c.context import GRANULE, Context, NodeCode
from dsp.c.memory import allot
from sdk.arena import align
from sdk.errors import Unsupported
from sdk.graph import Node, Recurrent


def lower(context: Context, node: Recurrent, lower_node: Callable[[Context, Node], NodeCode]) -> None:
    """The function `recurrentN`, whose text has the calls of the body."""
    body = node.body
    if any(tensor.quantization is not None for tensor in body.tensors.values()):
        raise Unsupported("its body is quantised")
    memory = allot(body, (), GRANULE)
    places = {name: f"in[{index}]" for index, name in enumerate(body.inputs)}
    base = context.scratch_at
    for name, owner in memory.owners.items():
        places.setdefault(
            name, places[owner] if owner in body.inputs else f"arena + {base + memory.places[owner]}"
        )
    inner = Context(body, places, align(base + memory.nbytes, GRANULE), context.common)
    codes = [lower_node(inner, one) for one in body.nodes]
    context.scratch(inner.scratch_at + inner.scratch_bytes - base)
    context.code.declarations += [line for code in codes for line in code.declarations]
    calls = [call for code in codes for call in code.calls]
    name = context.function("recurrent", _text(inner, node, calls))
    given = ", ".join(context.at(name) for name in node.inputs)
    context.code.calls.append(
        f"{name}(arena, weights, {context.at(node.output)}, (const uint8_t *const[]){{{given}}});"
    )


def _text(inner: Context, node: Recurrent, calls: list[str]) -> str:
    """A function of the output and the inputs. The states are read where the step before wrote them."""
    body, states = node.body, len(node.body.outputs)
    state = body.tensor(body.outputs[0]).nbytes
    lines = [
        "static void NAME(uint8_t *arena, const uint8_t *weights, uint8_t *result,",
        "                 const uint8_t *const *given) {",
        f"  const uint8_t *in[{len(node.inputs)}];",
        "  (void)weights;",
        "  memcpy(in, given, sizeof in);",
        f"  for (int64_t k = 0; k < {node.steps}; k++) {{",
        f"    int64_t step = {f'{node.steps - 1} - k' if node.backward else 'k'};",
        f"    uint8_t *out = result + step * {states * state};",
    ]
    for index, name in enumerate(body.inputs[: node.sequences]):
        lines.append(f"    in[{index}] = given[{index}] + step * {body.tensor(name).nbytes};")
    lines += [f"    {call}" for call in calls]
    for index, name in enumerate(body.outputs):
        lines.append(f"    memcpy(out + {index * state}, {inner.at(name)}, {state});")
    for index in range(states):
        lines.append(f"    in[{node.sequences + index}] = out + {index * state};")
    return "\n".join([*lines, "  }", "}"])
