"""From a network, or the part of one that is for the device, to launches of kernels.

A node becomes a launch, or another name for existing texels. An Add joins the Conv or Gemm that feeds
it; so does a Lookup.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from dsp.adreno import plain, source
from dsp.adreno.context import Context, KernelText, Operand, Step, Value
from dsp.adreno.elementwise import elementwise, pool
from dsp.adreno.moves import concat, pick, reshape, transpose
from dsp.adreno.plan import (
    LIMIT,
    TEXEL,
    AdrenoPlan,
    Argument,
    KernelPlan,
    MemoryPlan,
    PlacePlan,
    RowsPlan,
    StepPlan,
    StoragePlan,
    TensorPlan,
    WeightsPlan,
)
from dsp.adreno.products import product
from dsp.adreno.workgroups import choose
from sdk import graph as ops
from sdk.arena import Buffer, live_peak
from sdk.errors import Unsupported
from sdk.graph import Array, Graph, Node, Tensor
from sdk.lowering import joined, require_quantized_samples
from sdk.opencl.calls import At
from sdk.opencl.ends import Ends, new_input, plain_output, with_states
from sdk.opencl.lowering import begin, each
from sdk.opencl.views import dense_steps
from sdk.target import Sums
from sdk.weights import Weights

WINDOW_LIMIT = 1 << 15
"""Padding, strides and dilations are below this: coordinates are multiplied in 24 bits."""

MOST = 2**31
"""The bytes of activations, and of weights, are below this."""


@dataclass
class Lowered:
    """A whole network."""

    plan: AdrenoPlan
    weights: Weights
    source: bytes


def lower(
    graph: Graph,
    guard: int = 0,
    limit: int = LIMIT,
    states: Sequence[tuple[str, str]] = (),
    sums: Sums = "half",
) -> Lowered:
    """Lower a graph whose quantised activations are unsigned.

    Args:
        graph: verified; every node is one that the target supports.
        guard: bytes kept free around every tensor; tensors then share no storage.
        limit: of an image's width and height.
        states: pairs (output, input) that change places from step to step.
        sums: how products of float16 are added.

    Raises:
        Unsupported: a node that has no kernel, or is beyond a limit.
    """
    graph = dataclasses.replace(graph, nodes=tuple(each(graph.nodes)))
    own = [node for node in graph.nodes if is_integer(graph, node)]
    integers = dataclasses.replace(graph, nodes=tuple(own))
    require_quantized_samples(integers)
    context = Context(graph, limit, sums)
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
    return _planned(context, guard, inputs, outputs, states)


def is_integer(graph: Graph, node: Node) -> bool:
    """Whether the integer kernels compute it: an operator of theirs, on quantised tensors."""
    ends = (*node.inputs[:1], node.output)
    return isinstance(node, _INTEGER) and all(graph.tensor(name).quantization is not None for name in ends)


_INTEGER = (
    ops.Conv
    | ops.Gemm
    | ops.Add
    | ops.Mul
    | ops.Lookup
    | ops.Requantize
    | ops.AveragePool
    | ops.GlobalAveragePool
    | ops.MaxPool
    | ops.Concat
    | ops.Transpose
    | ops.Resize
    | ops.Pad
    | ops.Reshape
)


def _input(context: Context, tensor: Tensor) -> At:
    return new_input(context, tensor) if tensor.quantization is None else context.new_dense(tensor)


def _output(context: Context, name: str) -> At:
    is_plain = context.graph.tensor(name).quantization is None
    return plain_output(context, name) if is_plain else context.as_dense(name)


def _node(context: Context, node: Node) -> None:
    most = max(max(getattr(node, name, (0,))) for name in ("pads", "strides", "dilations"))
    if most >= WINDOW_LIMIT:
        raise Unsupported(
            f"its window has a pad, stride or dilation of {most}; it must be below {WINDOW_LIMIT}"
        )
    match node:
        case ops.Conv() | ops.Gemm():
            product(context, node, node)
        case ops.Add() | ops.Mul() | ops.Lookup() | ops.Requantize():
            elementwise(context, node)
        case ops.AveragePool() | ops.GlobalAveragePool() | ops.MaxPool():
            pool(context, node)
        case ops.Concat():
            concat(context, node)
        case ops.Transpose():
            transpose(context, node)
        case ops.Resize() | ops.Pad():
            pick(context, node)
        case ops.Reshape():
            reshape(context, node)
        case _:
            raise Unsupported("the operator has no kernel")


# -- the plan ---------------------------------------------------------------------------------------------


def _planned(
    context: Context, guard: int, inputs: Ends, outputs: Ends, states: Sequence[tuple[str, str]]
) -> Lowered:
    graph = context.graph
    values = _values(context.steps)
    storages = _storages(values, guard, context.limit)
    names = source.kernel_names(list(dict.fromkeys(step.kernel for step in context.steps)))
    tables = context.blob.nbytes
    weights = [_weights(context, texels) for texels in context.weights]
    texels = sum(storage.nbytes for storage in storages)
    pinned = [at.buffer for _, at in (*inputs, *outputs)]
    status = context.status_at
    if status is not None:
        pinned.append(status.buffer)
    memories, numbers = _memories(context.buffers, pinned, texels, guard)
    arena = texels + sum(memory.nbytes for memory in memories)
    for what, nbytes in (("activations", arena), ("weights", context.blob.nbytes)):
        if nbytes >= MOST:
            raise Unsupported(f"its {what} take {nbytes:,} bytes; the limit is 2 GiB", where=graph.name)
    spans = [(value.first, value.last, value.layout.nbytes) for value in values]
    spans += [(buffer.first, buffer.last, buffer.nbytes) for buffer in context.buffers]

    def place(at: At, steps: Sequence[int]) -> PlacePlan:
        return PlacePlan(numbers[id(at.buffer)], at.delta, tuple(steps))

    def ends(of: Ends) -> dict[str, PlacePlan]:
        return {tensor.name: place(at, dense_steps(tensor.shape)) for tensor, at in of}

    plan = AdrenoPlan(
        memory={"weights": context.blob.nbytes, "arena": arena, "live_peak": live_peak(spans)},
        tables=tables,
        storages=storages,
        weights=weights,
        tensors={name: TensorPlan(v.storage, v.layout) for name, v in context.values.items()},
        memories=memories,
        places={
            name: place(view.at, view.steps)
            for name, view in context.made.items()
            if isinstance(view.at, At) and name not in context.values
        },
        inputs=ends(inputs),
        outputs=ends(outputs),
        states=states,
        precision="half sums" if context.sums == "half" else "float32",
        status=None if status is None else numbers[id(status.buffer)],
        buffers=[
            *(_rows(value, storages) for value in values),
            *(_bytes(buffer, memories[numbers[id(buffer)]]) for buffer in context.buffers),
        ],
        kernels=[KernelPlan(name, one.function, dict(one.constants)) for one, name in names.items()],
        steps=[_step(step, list(names), numbers) for step in context.steps],
    )
    return Lowered(plan, context.blob.weights(), source.write(names).encode("ascii"))


def _weights(context: Context, texels: Array) -> WeightsPlan:
    height, width = texels.shape[:2]
    offset = context.blob.add(texels)
    return WeightsPlan(offset, width, height, "int8" if texels.dtype == np.int8 else "int16")


def _memories(
    buffers: Sequence[Buffer], pinned: Sequence[Buffer], offset: int, guard: int
) -> tuple[list[MemoryPlan], dict[int, int]]:
    """Give every buffer its memory, the largest first: one that is free, or a new one.

    Returns:
        The memories, from `offset` of the dump on; and their numbers, by the buffers' ids.
    """
    tenants: list[list[Buffer]] = []
    alone = {id(buffer) for buffer in pinned}
    numbers: dict[int, int] = {}
    for buffer in sorted(buffers, key=lambda one: (-one.nbytes, one.first, one.name)):
        for number in reversed(range(len(tenants))):  # the smallest first
            others = tenants[number]
            if guard or id(buffer) in alone or id(others[0]) in alone:
                continue
            if all(one.last < buffer.first or buffer.last < one.first for one in others):
                break
        else:
            number = len(tenants)
            tenants.append([])
        tenants[number].append(buffer)
        numbers[id(buffer)] = number
    memories = []
    for others in tenants:
        memories.append(MemoryPlan(offset, others[0].nbytes + guard))
        offset += memories[-1].nbytes
    return memories, numbers


def _bytes(buffer: Buffer, memory: MemoryPlan) -> RowsPlan:
    return RowsPlan(buffer.name, memory.offset, buffer.nbytes, 1, buffer.nbytes, buffer.first, buffer.last)


def _values(steps: Sequence[Step]) -> list[Value]:
    """All tensors in texels, in the order in which they are made."""
    operands = (operand.value for step in steps for operand in step.operands if operand.kind == "target")
    return [value for value in operands if isinstance(value, Value)]


def _storages(values: Sequence[Value], guard: int, limit: int) -> list[StoragePlan]:
    """Give every tensor its storage, the largest first: the one that must grow least, or a new one."""
    sizes: list[list[int]] = []
    tenants: list[list[Value]] = []
    for value in sorted(values, key=lambda v: (-v.layout.nbytes, v.first, v.name)):
        columns, rows = value.layout.columns, value.layout.rows
        best, growth = -1, columns * rows
        for number, (width, height) in enumerate(sizes):
            grown = max(width, columns) * max(height, rows) - width * height
            alone = all(v.last < value.first or value.last < v.first for v in tenants[number])
            if grown < growth and alone and not guard:
                best, growth = number, grown
        if best < 0:
            best = len(sizes)
            sizes.append([0, 0])
            tenants.append([])
        sizes[best] = [max(sizes[best][0], columns), max(sizes[best][1], rows)]
        tenants[best].append(value)
        value.storage = best
    storages = []
    offset = 0
    for width, height in sizes:
        if guard:
            width = min(width + -(-guard // TEXEL), limit)
            height = min(height + -(-guard // (TEXEL * width)), limit)
        storages.append(StoragePlan(offset, width, height))
        offset += TEXEL * width * height
    return storages


def _rows(value: Value, storages: Sequence[StoragePlan]) -> RowsPlan:
    storage, made = storages[value.storage], value.layout
    nbytes, pitch = TEXEL * made.columns, TEXEL * storage.width
    return RowsPlan(value.name, storage.offset, nbytes, made.rows, pitch, value.first, value.last)


def _step(step: Step, kernels: list[KernelText], memories: Mapping[int, int]) -> StepPlan:
    local, reason = choose(step.items)
    threads = step.kernel.threads
    if threads:
        local, reason = (threads, 1, 1), "the kernel is written for it"
    return StepPlan(
        name=step.name,
        op=step.op,
        nodes=step.nodes,
        macs=step.macs,
        kernel=kernels.index(step.kernel),
        items=step.items,
        local=local,
        reason=reason,
        fixed=threads > 0,
        trips=step.trips,
        arguments=[_argument(operand, memories) for operand in step.operands],
        tensors=step.tensors,
    )


def _argument(operand: Operand, memories: Mapping[int, int]) -> Argument:
    if isinstance(operand.value, Value):
        return "storage", operand.value.storage
    if isinstance(operand.value, At):
        return cast(Argument, (operand.kind, memories[id(operand.value.buffer)]))
    return cast(Argument, (operand.kind, operand.value))
