"""Recurrences as the launches of all their steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sdk.graph import Recurrent
from sdk.opencl.context import PlainContext
from sdk.opencl.moves import copy

C = TypeVar("C", bound=PlainContext)


def unrolled(context: C, node: Recurrent, lower_body: Callable[[C], None]) -> None:
    """The body's launches for each step, which reads the states where the one before stored them."""
    body = node.body
    y = context.new_view(context.graph.tensor(node.output))
    given = [context.view(name) for name in node.inputs]
    states = given[node.sequences : node.sequences + len(body.outputs)]
    shape = y.shape[2:]
    order = range(node.steps)
    for step in reversed(order) if node.backward else order:
        inner = context.inner(body)
        for name, view in zip(body.inputs, given, strict=True):
            inner.views[name] = view
        for name, sequence in zip(body.inputs, given[: node.sequences], strict=False):
            starts = (step, *(0 for _ in sequence.shape[1:]))
            inner.views[name] = sequence.moved(
                starts[0] * sequence.steps[0], sequence.shape[1:], sequence.steps[1:]
            )
        for name, state in zip(body.inputs[node.sequences :], states, strict=False):
            inner.views[name] = state
        made = [
            y.moved(step * y.steps[0] + index * y.steps[1], shape, y.steps[2:])
            for index in range(len(states))
        ]
        targets = dict(zip(body.outputs, made, strict=True))
        inner.stored.update({name: view for name, view in targets.items() if body.outputs.count(name) == 1})
        lower_body(inner)
        last = step == (0 if node.backward else node.steps - 1)
        for name, view in zip(body.outputs, made, strict=True):
            if inner.view(name) != view:
                copy(context, node, inner.view(name), view, complete=False)
        states = made
        if last:
            context.complete(node)
