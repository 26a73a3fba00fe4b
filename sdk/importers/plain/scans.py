"""Scan: its body once for every element of the sequences, whose number is static."""

from __future__ import annotations

from sdk.graph import Concat, Tensor
from sdk.importers.plain.conversion import Conversion
from sdk.importers.plain.loops import MOST_NODES, inlined
from sdk.importers.values import Constant, Plain


def scan(c: Conversion) -> None:
    """The nodes of its body, once for every step."""
    node, walk = c.node, c.walk
    if node.opset < 9:
        raise node.unsupported("Scan of opset 8", "convert the model to opset 9 or later")
    body, sequences = node.attributes["body"], node.integer("num_scan_inputs", 0)
    states, results = len(node.inputs) - sequences, len(node.outputs) - (len(node.inputs) - sequences)
    if sequences < 1 or states < 0 or len(body.input) != len(node.inputs) or results < 0:
        raise node.invalid(f"Scan of {len(node.inputs)} inputs over {sequences} sequences")
    given = [c.x(states + index) for index in range(sequences)]
    ranks = [len(x.shape) for x in given]
    along = _of_each(c, "scan_input_axes", sequences)
    axes = [c.axis(axis, rank) for axis, rank in zip(along, ranks, strict=True)]
    (steps, *others) = {x.shape[axis] for x, axis in zip(given, axes, strict=True)}
    if others:
        raise node.invalid(f"its sequences have {sorted([steps, *others])} elements")
    if steps * len(body.node) > MOST_NODES:
        raise node.unsupported(f"{steps} steps of {len(body.node)} nodes exceed {MOST_NODES:,}")
    backward = _of_each(c, "scan_input_directions", sequences)
    current = list(node.inputs[:states])
    made: list[list[str]] = []
    for step in range(steps):
        elements = []
        for index, (x, axis) in enumerate(zip(given, axes, strict=True)):
            place = steps - 1 - step if backward[index] else step
            elements.append(_element(c, x, axis, place, f"{step}/{index}"))
        inside = dict(zip((value.name for value in body.input), [*current, *elements], strict=True))
        after = inlined(c, body, inside, f"{c.first}/{step}", f"{node.name}/{step}")
        current = after[:states]
        made.append(after[states:])
    for index, name in enumerate(current):
        if node.outputs[index]:
            c.define(walk.plain_value(walk.values[name], node), index)
    out_axes = _of_each(c, "scan_output_axes", results)
    reverse = _of_each(c, "scan_output_directions", results)
    for index in range(results):
        if not node.outputs[states + index]:
            continue
        names = [one[index] for one in (reversed(made) if reverse[index] else made)]
        tensors = [walk.plain_value(walk.values[name], node) for name in names]
        axis = c.axis(out_axes[index], len(tensors[0].shape) + 1)
        shape = (*tensors[0].shape[:axis], 1, *tensors[0].shape[axis:])
        if steps == 1:
            c.reshape(tensors[0], shape, output=states + index)
            continue
        rows = [c.reshape(x, shape, f"row{index}/{step}") for step, x in enumerate(tensors)]
        c.make(Concat, rows, axis=axis, output=states + index)


def _of_each(c: Conversion, name: str, count: int) -> tuple[int, ...]:
    values = c.node.integers(name)
    if values is not None and len(values) != count:
        raise c.node.invalid(f"{name} {list(values)} for {count} of them")
    return (0,) * count if values is None else values


def _element(c: Conversion, x: Tensor, axis: int, place: int, part: str) -> str:
    """The name of an element of a sequence, which the body reads."""
    chosen = [[place] if i == axis else range(extent) for i, extent in enumerate(x.shape)]
    taken = c.take(x, chosen, f"{part}/taken")
    element = c.reshape(taken, [n for i, n in enumerate(x.shape) if i != axis], f"{part}/element")
    name = c.walk.builder.fresh(f"{c.first}/{part}")
    constant = element.data is not None
    c.walk.values[name] = Constant(element.name, element.data) if constant else Plain(element.name)  # type: ignore[arg-type]
    if not constant:
        c.walk.plains[name] = element.name
    return name
