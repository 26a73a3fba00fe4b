"""Operators that hold graphs: a branch that a constant chooses, and a loop of a known number of steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from sdk.importers.onnx_file import decode_node, to_array
from sdk.importers.plain.contrib import Steps
from sdk.importers.plain.conversion import Conversion
from sdk.importers.plain.functions import renamed
from sdk.importers.refusals import before
from sdk.importers.values import Constant

if TYPE_CHECKING:
    import onnx

MOST_NODES = 20_000
"""That a loop, or a Scan, may be unrolled to."""


def branch(c: Conversion) -> None:
    """The branch that a constant condition chooses."""
    node = c.node
    if c.known(0) is None:
        raise node.unsupported(
            f"its condition {node.inputs[0]!r} is computed at run time",
            f"where an input decides it, make that a constant: --constant NAME=NUMBER; or {before(node)}",
        )
    graph = node.attributes["then_branch" if bool(c.constant(0).reshape(())) else "else_branch"]
    results = [value.name for value in graph.output]
    made = _made(graph)
    ends = {name: given for name, given in zip(results, node.outputs, strict=False) if name in made}
    found = inlined(c, graph, ends, c.first, node.name)
    for given, name in zip(node.outputs, found, strict=False):
        if given != name:  # a value of the graph around it
            _alias(c, given, name)


def loop(c: Conversion) -> None:
    """Its body, once for each step."""
    node, body = c.node, c.node.attributes["body"]
    if len(body.input) != len(node.inputs) or len(body.output) < len(node.inputs) - 1:
        raise node.invalid(f"{len(node.inputs)} inputs, but its body has {len(body.input)}")
    limit, going, carried = _limit(c), _is_true(c, 1), list(node.inputs[2:])
    parts: list[list[str]] = [[] for _ in body.output[1 + len(carried) :]]
    step = 0
    while going and step < limit:
        if step * max(len(body.node), 1) > MOST_NODES:
            raise node.unsupported(f"it unrolls to more than {MOST_NODES:,} nodes", before(node))
        where = f"{c.first}/{step}"
        for name, value in ((f"{where}/number", np.int64(step)), (f"{where}/condition", np.bool_(True))):
            c.walk.values[name] = Constant(name, np.asarray(value))
        given = [f"{where}/number", f"{where}/condition", *carried]
        names = dict(zip([value.name for value in body.input], given, strict=True))
        condition, *results = inlined(c, body, names, where, f"{node.name}/{step}")
        known = c.walk.values.get(condition)
        if not isinstance(known, Constant):
            raise node.unsupported("whether it goes on is computed at run time", before(node))
        going, step = bool(known.array.reshape(())), step + 1
        carried, more = results[: len(carried)], results[len(carried) :]
        for part, name in zip(parts, more, strict=True):
            part.append(name)
    for output, name in zip(node.outputs, carried, strict=False):
        if output:
            _alias(c, output, name)
    s = Steps(c)
    for index, names_of_one in enumerate(parts, len(carried)):
        if not s.wanted(index):
            continue
        if not names_of_one:
            raise node.unsupported("it has no steps, and an output that stacks what they give")
        stacked = [s("Unsqueeze", name, np.array([0])) for name in names_of_one]
        s("Concat", *stacked, output=index, axis=0)


def _limit(c: Conversion) -> float:
    """The most steps."""
    if not c.has(0):
        return float("inf")
    if c.known(0) is None:
        hint = f"where an input gives it, make that a constant: --constant NAME=NUMBER; or {before(c.node)}"
        raise c.node.unsupported("its number of steps is computed at run time", hint)
    return c.scalar(0, 0)


def _is_true(c: Conversion, index: int) -> bool:
    """Whether the condition before the first step holds."""
    return not c.has(index) or bool(c.scalar(index, 1))


def _made(graph: onnx.GraphProto) -> set[str]:
    """Names that a graph defines."""
    return {name for node in graph.node for name in node.output if name} | {
        tensor.name for tensor in graph.initializer
    }


def inlined(
    c: Conversion, graph: onnx.GraphProto, names: Mapping[str, str], prefix: str, nodes: str
) -> list[str]:
    """Convert a graph's nodes, and give the names of its outputs.

    Args:
        c: the node that holds it.
        graph: the graph.
        names: that values of it have outside.
        prefix: of the names of its other values.
        nodes: of the names of its nodes.
    """
    walk = c.walk
    inside = {name: f"{prefix}/{name}" for name in _made(graph)} | dict(names)
    for tensor in graph.initializer:
        array = to_array(tensor, f"{c.node.where}, initializer {tensor.name}", walk.folder)
        walk.values[inside[tensor.name]] = Constant(inside[tensor.name], array)
    for index, inner in enumerate(graph.node):
        proto = renamed(inner, inside, {})
        proto.name = f"{nodes}/{inner.name or f'{index}_{inner.op_type}'}"
        walk.convert(decode_node(proto, walk.opsets))
    return [inside.get(value.name, value.name) for value in graph.output]


def _alias(c: Conversion, given: str, name: str) -> None:
    """Give a value another name."""
    walk = c.walk
    if name not in walk.values:
        raise c.node.invalid(f"nothing before it computes {name!r}")
    walk.values[given] = walk.values[name]
    if name in walk.plains:
        walk.plains[given] = walk.plains[name]
