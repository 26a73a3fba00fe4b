"""Gather, GatherND and Scatter: what moves by indices that are known when it runs.

An index out of range is clamped, and the launch writes the number of its node and the index to the status,
where the host finds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sdk import dtypes
from sdk.graph import Gather, GatherND, Node, Scatter
from sdk.opencl import text
from sdk.opencl.context import PlainContext
from sdk.opencl.moves import BITS
from sdk.opencl.views import View
from sdk.opencl.windows import each_element

COMBINED = {
    "add": "value + update",
    "mul": "value * update",
    "max": "most(value, update)",
    "min": "least(value, update)",
}
INTEGERS = {"max": "value > update ? value : update", "min": "value < update ? value : update"}


def gather(context: PlainContext, node: Gather | GatherND) -> None:
    x, indices = (context.view(name) for name in node.inputs)
    y = context.new_view(context.graph.tensor(node.output))
    names = [f"a{axis}" for axis in range(len(y.shape))]
    if isinstance(node, Gather):
        inner = node.axis + len(indices.shape)
        at = [*names[: node.axis], "k", *names[inner:]]
        found = [("k", _read(indices, names[node.axis : inner]), x.shape[node.axis])]
    else:
        batch, depth = node.batch_dims, indices.shape[-1]
        rank = len(indices.shape) - 1
        own = names[:rank]
        at = [*names[:batch], *(f"k{i}" for i in range(depth)), *names[rank:]]
        found = [(f"k{i}", _read(indices, [*own, str(i)]), x.shape[batch + i]) for i in range(depth)]
    body = [line for one in found for line in _index(context, node, *one)]
    source, target = replace(x, dtype=BITS[x.itemsize]), replace(y, dtype=BITS[y.itemsize])
    load = f"load_{source.dtype}(x + {text.place(at, x.steps)} * {x.itemsize})"
    body.append(f"  store_{target.dtype}(y + to * {y.itemsize}, {load});")
    each_element(context, node, target, body, [source, indices, context.status()], names)


def scatter(context: PlainContext, node: Scatter) -> None:
    """Each element of the result looks for the updates that are its own, in their order."""
    x, indices, updates = (context.view(name) for name in node.inputs)
    y = context.new_view(context.graph.tensor(node.output))
    names = [f"a{axis}" for axis in range(len(y.shape))]
    depth, rank = indices.shape[-1], len(indices.shape) - 1
    if node.reduction == "none":
        x, y, updates = (replace(view, dtype=BITS[view.itemsize]) for view in (x, y, updates))
    integral = dtypes.dtype(y.dtype).kind != "float"
    kind = "long" if integral else "float"
    loops = [f"j{i}" for i in range(rank)]
    body = [f"  {kind} value = load_{x.dtype}(x + {text.place(names, x.steps)} * {x.itemsize});"]
    body += [
        f"  for (s32 {name} = 0; {name} < {n}; {name}++)"
        for name, n in zip(loops, indices.shape, strict=False)
    ]
    body.append("  {")
    for i in range(depth):
        body += _index(context, node, f"k{i}", _read(indices, [*loops, str(i)]), y.shape[i])
    match = " && ".join(f"k{i} == (s32){names[i]}" for i in range(depth)) or "true"
    update = text.load(updates, "w1", text.place([*loops, *names[depth:]], updates.steps))
    combined = {**COMBINED, **(INTEGERS if integral else {})}.get(node.reduction, "update")
    body += [f"    if ({match}) {{ {kind} update = {update}; value = {combined}; }}", "  }"]
    body.append(f"  store_{y.dtype}(y + to * {y.itemsize}, value);")
    each_element(context, node, y, body, [x, indices, updates, context.status()], names)


def _index(context: PlainContext, node: Node, name: str, load: str, extent: int) -> list[str]:
    """Read an index into `name`, counted from the front."""
    last = "w2" if isinstance(node, Scatter) else "w1"
    number = context.now + 1
    status = f"((global s32 *){last})"
    report = f"{status}[0] = {number}; {status}[1] = (s32)read_{name}; read_{name} = 0;"
    return [
        f"  long read_{name} = {load};",
        f"  if (read_{name} < -{extent} || read_{name} >= {extent}) {{ {report} }}",
        f"  s32 {name} = (s32)(read_{name} < 0 ? read_{name} + {extent} : read_{name});",
    ]


def _read(indices: View, coordinates: Sequence[str]) -> str:
    return text.load(indices, "w0", text.place(coordinates, indices.steps))
