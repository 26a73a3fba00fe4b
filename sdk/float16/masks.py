"""Masks: constants such as -1e9 that stand for "nothing here", beyond what a float16 holds.

A mask is negative, or SENTINEL or more, and known by its use: as the branch of a select; as a constant of
zeros and one other value that is added; or as a factor of SENTINEL or more. Attention adds it to scores, and
a Softmax makes zeros of it, whatever its size. So it becomes the largest float16: finite, which a row that is
masked everywhere needs. Sums with it saturate too. Infinities stay infinities.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sdk import dtypes
from sdk.expression import Expression, Step, clip, kinds, replay, trace
from sdk.graph import (
    Array,
    Concat,
    Fill,
    Gather,
    GatherND,
    Graph,
    Map,
    Node,
    Reshape,
    Scatter,
    Slice,
    Take,
    Tensor,
    Transpose,
)

LARGEST = 65504.0
"""The largest finite float16."""
SENTINEL = 1e8
"""No number by its size: even a thousandth of it exceeds a float16."""

Move = Concat | Fill | Gather | GatherND | Reshape | Scatter | Slice | Take | Transpose
"""What may hold masks and passes them on."""
_PASSING = ("add", "sub", "neg", "abs", "min", "max", "mul", "round")


@dataclass(frozen=True)
class Masks:
    """Where the masks of a graph are.

    Attributes:
        constants: names of constants that are masks wherever they are read.
        steps: by the name of a Map, the steps of its expression that are masks.
        saturating: names of nodes whose result may hold masks: they saturate.
    """

    constants: frozenset[str]
    steps: dict[str, frozenset[int]]
    saturating: frozenset[str]


def find(graph: Graph) -> Masks:
    """The masks of a graph of plain tensors."""
    constants = {name for name, tensor in graph.tensors.items() if _is_candidate(tensor)}
    for node in graph.nodes:
        for index, name in enumerate(node.inputs):
            if name in constants and not _reads_mask(graph, node, index):
                constants.remove(name)
    held, saturating = set(constants), set()
    steps: dict[str, frozenset[int]] = {}
    for node in graph.nodes:
        if not dtypes.is_float(graph.tensor(node.output).dtype):
            continue
        if isinstance(node, Map):
            passes, found = _through(node.expression, [name in held for name in node.inputs])
            if found:
                steps[node.name] = found
        else:
            passes = isinstance(node, Move) and not held.isdisjoint(node.inputs)
            passes = passes or (isinstance(node, Fill) and may_mask(float(node.value)))
        if passes:
            held.add(node.output)
            saturating.add(node.name)
    return Masks(frozenset(constants), steps, frozenset(saturating))


def may_mask(value: float) -> bool:
    """Whether a number may be a mask: it is finite, beyond a float16, and negative or very large."""
    return bool(np.isfinite(value)) and (value < -LARGEST or value >= SENTINEL)


def _is_candidate(tensor: Tensor) -> bool:
    """Whether a constant has zeros and one other value, which may be a mask; or the latter alone."""
    if tensor.data is None or tensor.dtype != "float32":
        return False
    values = tensor.data[np.isfinite(tensor.data)]
    others = values[values != 0]
    return bool(others.size) and may_mask(float(others[0])) and bool((others == others[0]).all())


def _reads_mask(graph: Graph, node: Node, index: int) -> bool:
    """Whether a candidate that a node reads is a mask to it."""
    if isinstance(node, Move):
        return True
    if not isinstance(node, Map):
        return False
    data = graph.tensor(node.inputs[index]).data
    assert data is not None  # a candidate
    others = (data == 0).any()
    at = {index}
    for position, step in enumerate(node.expression.steps):
        reading = [place for place, arg in enumerate(step.args) if arg in at]
        if not reading:
            continue
        if step.op in ("neg", "round"):
            at.add(len(node.expression.inputs) + position)
        elif step.op == "select":
            if 0 in reading:
                return False
        elif step.op in ("add", "sub"):
            if not others:
                return False
        elif step.op != "mul" or np.abs(data[np.isfinite(data)]).max() < SENTINEL:
            return False
    return True


def _through(expression: Expression, given: Sequence[bool]) -> tuple[bool, frozenset[int]]:
    """Whether the result may hold masks, and the constants of the expression that are masks."""
    held = list(given)
    count = len(given)
    found: set[int] = set()
    all_kinds = kinds(expression)
    for position, step in enumerate(expression.steps):
        branches = step.args[1:] if step.op == "select" else step.args
        for arg in branches:
            value = _constant(expression, arg - count)
            factor = step.op == "mul" and value is not None and abs(value) >= SENTINEL
            if value is not None and (step.op == "select" or factor):
                found.add(arg - count)
                held[arg] = True
        if step.op == "div":
            branches = step.args[:1]
        passes = step.op in (*_PASSING, "select", "div") and any(held[arg] for arg in branches)
        held.append(passes and all_kinds[count + position] == "real")
    return held[-1], frozenset(found)


def _constant(expression: Expression, index: int) -> float | None:
    """The value of a step that is a constant and may be a mask; else None."""
    if index < 0:
        return None
    step = expression.steps[index]
    if step.op != "constant" or not isinstance(step.value, float) or not may_mask(step.value):
        return None
    return step.value


def saturated(data: Array, limit: float = LARGEST) -> Array:
    """Finite elements beyond a float16 become `limit` with their sign; infinities stay."""
    large = np.isfinite(data) & (np.abs(data) > LARGEST)
    return np.where(large, np.copysign(np.float32(limit), data), data).astype(data.dtype)


def clipped(node: Map) -> Map:
    """A Map whose result saturates at the largest float16."""
    expression = node.expression
    return dataclasses.replace(
        node,
        expression=trace(lambda *x: clip(replay(expression, *x), -LARGEST, LARGEST), *expression.inputs),
    )


def shrunk(graph: Graph, masks: Masks, limit: float) -> Graph:
    """The graph with its masks replaced by `limit`, with their sign: for a look at all other values."""
    tensors = dict(graph.tensors)
    for name in masks.constants:
        data = tensors[name].data
        assert data is not None
        tensors[name] = dataclasses.replace(tensors[name], data=saturated(data, limit))
    nodes = []
    for node in graph.nodes:
        if isinstance(node, Fill) and may_mask(float(node.value)):
            node = dataclasses.replace(node, value=float(np.copysign(limit, float(node.value))))
        if isinstance(node, Map) and node.name in masks.steps:
            steps = list(node.expression.steps)
            for index in masks.steps[node.name]:
                value = np.copysign(limit, float(steps[index].value or 0))
                steps[index] = Step("constant", value=float(value))
            node = dataclasses.replace(node, expression=Expression(node.expression.inputs, tuple(steps)))
        nodes.append(node)
    return dataclasses.replace(graph, tensors=tensors, nodes=tuple(nodes))
