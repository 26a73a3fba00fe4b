"""What crosses the link: inputs and outputs in C order, and states, which change places from step to step."""

from __future__ import annotations

from collections.abc import Sequence

from sdk.graph import Reshape, Tensor
from sdk.opencl.calls import At
from sdk.opencl.context import PlainContext
from sdk.opencl.moves import copy
from sdk.opencl.views import View, dense_steps

Ends = list[tuple[Tensor, At]]
"""Inputs or outputs, and where they are."""


def new_input(context: PlainContext, tensor: Tensor) -> At:
    """Room for a plain input of the network."""
    at = context.buffer(tensor.name, max(tensor.nbytes, 1))
    context.alias(tensor.name, View(at, tensor.shape, dense_steps(tensor.shape), tensor.dtype))
    return at


def plain_output(context: PlainContext, name: str) -> At:
    """A plain output of the network."""
    view = context.view(name)
    if view.is_dense and isinstance(view.at, At):
        return view.at
    return copied(context, name, "for the host")


def copied(context: PlainContext, name: str, what: str) -> At:
    """A tensor in C order in a buffer of its own."""
    tensor, view = context.graph.tensor(name), context.view(name)
    at = context.buffer(f"{name} {what}", max(tensor.nbytes, 1))
    made = View(at, tensor.shape, dense_steps(tensor.shape), tensor.dtype)
    copy(context, Reshape(f"{name} ({what})", (name,), name), view, made, complete=False)
    return at


def with_states(
    context: PlainContext, inputs: Ends, outputs: Ends, states: Sequence[tuple[str, str]]
) -> Ends:
    """The outputs, where each next state has a buffer of its own: it changes places with its input's."""
    places = {tensor.name: at for tensor, at in (*inputs, *outputs)}
    used = {id(at.buffer) for _, at in inputs}
    for output, given in states:
        at, now = places[output], places[given].buffer
        if at.delta or at.buffer.nbytes != now.nbytes or id(at.buffer) in used:
            places[output] = at = copied(context, output, "as the next state")
        used.add(id(at.buffer))
    for buffer in (places[name].buffer for pair in states for name in pair):
        buffer.first, buffer.last = 0, context.now
    return [(tensor, places[tensor.name]) for tensor, _ in outputs]
