"""From a network, or the part of one that is for the device, to launches of kernels.

A node becomes a launch, and one that needs none (a Reshape, a Concat whose operands are in their places)
another name for bytes that are there. An Add goes into the Conv or Gemm that feeds it; so does a Lookup.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from sdk import arena
from sdk.arena import Buffer
from sdk.arithmetic import require_scales
from sdk.errors import InternalError, Unsupported
from sdk.graph import (
    Add,
    AveragePool,
    Concat,
    Conv,
    Gemm,
    GlobalAveragePool,
    Graph,
    Lookup,
    MaxPool,
    Mul,
    Node,
    Pad,
    Requantize,
    Reshape,
    Resize,
    Tensor,
    Transpose,
)
from sdk.lowering import joined, require_quantized_samples
from sdk.opencl.calls import At, Call
from sdk.opencl.ends import Ends, new_input, plain_output, with_states
from sdk.opencl.lowering import begin, each
from sdk.opencl.views import View
from sdk.scales import node_scales
from sdk.weights import Weights
from usbgpu.amd.facts.chips import Chip
from usbgpu.target.context import Context, Cut, by_the_model, require_room
from usbgpu.target.elementwise import elementwise
from usbgpu.target.moves import concat, pick, places, transpose
from usbgpu.target.plain import lowering as plain
from usbgpu.target.products import product
from usbgpu.target.windows import average_pool, is_global, max_pool, mean


@dataclasses.dataclass(frozen=True)
class Lowered:
    """All that code generation and the plan need.

    Attributes:
        arena: bytes.
        live_peak: the largest sum of dense tensor bytes alive at one launch.
        tensors: how each activation lies in the arena when it is complete, by name.
        status: where launches write an index out of range; None if none can.
        states: pairs (output, input) that change places from one step to the next.
    """

    calls: list[Call]
    weights: Weights
    arena: int
    live_peak: int
    inputs: list[tuple[Tensor, At]]
    outputs: list[tuple[Tensor, At]]
    buffers: list[Buffer]
    tensors: dict[str, View]
    status: At | None
    states: Sequence[tuple[str, str]]


def lower(
    graph: Graph,
    chip: Chip,
    guard: int = 0,
    states: Sequence[tuple[str, str]] = (),
    cut: Cut = by_the_model,
) -> Lowered:
    """Lower a part of a network, whose quantised activations are all uint8.

    The arena begins with what crosses the link in a step: the inputs, the status, the outputs.

    Args:
        graph: to lower.
        chip: for which.
        guard: as `sdk.arena.plan`.
        states: pairs (output, input) that change places from step to step: each has room of its own for the
            whole of an inference.
        cut: as of `Context`.

    Raises:
        Unsupported: a node that has no kernel, or is beyond a limit.
    """
    graph = dataclasses.replace(graph, nodes=tuple(each(graph.nodes)))
    own = [node for node in graph.nodes if is_integer(graph, node)]
    integers = dataclasses.replace(graph, nodes=tuple(own))
    require_quantized_samples(integers, rows=True)
    for node in own:
        require_room(graph, node)
        require_scales(node_scales(graph, node))
    context = Context(graph, chip, places(graph), cut)
    begin(context)
    inputs = [(graph.tensor(name), _input(context, graph.tensor(name))) for name in graph.inputs]
    producers = {node.name: producer for node, producer in joined(integers)}
    for group in plain.groups(graph):
        node = group[-1]
        if not is_integer(graph, node):
            plain.lower_group(context, group)
        elif node.name in producers:
            producer = producers[node.name]
            if producer is None:
                _node(context, node)
            else:
                product(context, producer, node)
    outputs = [(graph.tensor(name), _output(context, name)) for name in graph.outputs]
    outputs = with_states(context, inputs, outputs, states)
    for _, at in outputs:
        at.buffer.last = len(context.calls)
    status = context.status_at
    if status is not None:
        status.buffer.last = len(context.calls)
    first = _first(inputs, status, outputs, states)
    nbytes = arena.align(arena.plan(context.buffers, guard, first))
    buffers = {tensor.name: at.buffer for tensor, at in (*inputs, *outputs)}
    _require_apart(context, [buffers[name] for pair in states for name in pair])
    return Lowered(
        calls=context.calls,
        weights=context.blob.weights(),
        arena=nbytes,
        live_peak=_live_peak(context),
        inputs=inputs,
        outputs=outputs,
        buffers=context.buffers,
        tensors=context.made,
        status=status,
        states=states,
    )


def is_integer(graph: Graph, node: Node) -> bool:
    """Whether the integer kernels compute it: an operator of theirs, on quantised tensors."""
    if not isinstance(node, _INTEGER):
        return False
    ends = node.inputs[0], node.output
    return all(graph.tensor(name).quantization is not None for name in ends)


_INTEGER = (
    Conv
    | Gemm
    | Add
    | Mul
    | Lookup
    | Requantize
    | AveragePool
    | GlobalAveragePool
    | MaxPool
    | Concat
    | Transpose
    | Resize
    | Pad
    | Reshape
)


def _input(context: Context, tensor: Tensor) -> At:
    """Room for an input of the network: it comes in C order."""
    return new_input(context, tensor) if tensor.quantization is None else context.new_dense(tensor)


def _output(context: Context, name: str) -> At:
    """An output of the network, in C order."""
    plain = context.graph.tensor(name).quantization is None
    return plain_output(context, name) if plain else context.as_dense(name)


def _first(inputs: Ends, status: At | None, outputs: Ends, states: Sequence[tuple[str, str]]) -> list[Buffer]:
    """The buffers at the arena's start, so that one write and one read have all that crosses the link.

    What is a part of another buffer stays there.
    """
    kept = {name for pair in states for name in pair}
    ends = [
        *(at for tensor, at in inputs if tensor.name not in kept),
        *([status] if status is not None else []),
        *(
            at
            for tensor, at in outputs
            if tensor.name not in kept and not at.delta and at.buffer.nbytes == arena.align(tensor.nbytes)
        ),
    ]
    swapped = {id(at.buffer) for tensor, at in (*inputs, *outputs) if tensor.name in kept}
    found = {id(at.buffer): at.buffer for at in ends if id(at.buffer) not in swapped}
    return list(found.values())


def _node(context: Context, node: Node) -> None:
    match node:
        case Conv() | Gemm():
            product(context, node, node)
        case Add() | Mul() | Lookup() | Requantize():
            elementwise(context, node)
        case AveragePool() | GlobalAveragePool() if is_global(context.graph, node):
            mean(context, node)
        case AveragePool():
            average_pool(context, node)
        case MaxPool():
            max_pool(context, node)
        case Concat():
            concat(context, node)
        case Transpose():
            transpose(context, node)
        case Resize() | Pad():
            pick(context, node)
        case Reshape():
            context.dense[node.output] = context.as_dense(node.inputs[0])
        case _:
            raise Unsupported("the operator has no kernel")


def _require_apart(context: Context, states: Sequence[Buffer]) -> None:
    """Addresses in the places of states are those of states: they are exchanged by where they are."""
    for call in context.calls:
        for pointer in call.pointers:
            if isinstance(pointer, At) and any(
                (pointer.buffer is state) != (0 <= pointer.offset - state.offset < state.nbytes)
                for state in states
            ):
                raise InternalError("an address beside its buffer", where=f"node {call.name}")


def _live_peak(context: Context) -> int:
    """The largest sum of the sizes of the graph's tensors that one launch needs or leaves behind.

    What lies within another tensor counts as that.
    """
    graph = context.graph
    spans = []
    tensors = {name: graph.tensor(name) for name in {*context.made, *graph.inputs} - set(context.within)}
    wholes = {outer for outer, _ in context.within.values()} | {one for one, *_ in context.placed.values()}
    tensors |= {name: graph.tensor(name) for name in wholes - set(context.within)}
    for name, tensor in tensors.items():
        places = [context.dense.get(name), context.pictures[name].at if name in context.pictures else None]
        view = context.views.get(name)
        places.append(view.at if view is not None and isinstance(view.at, At) else None)
        buffers = [at.buffer for at in places if at is not None]
        if buffers and name not in context.placed:
            spans.append((min(b.first for b in buffers), max(b.last for b in buffers), tensor.nbytes))
    return arena.live_peak(spans)
