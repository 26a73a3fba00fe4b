"""From the integer body of a network to launches of kernels.

A node becomes a launch, or another name for existing texels. An Add joins the Conv or Gemm that feeds
it; so does a Lookup.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from dsp.adreno import source
from dsp.adreno.context import Context, KernelText, Operand, Step, Value
from dsp.adreno.elementwise import elementwise, pool
from dsp.adreno.moves import concat, from_input, pick, reshape, to_output, transpose
from dsp.adreno.plan import (
    LIMIT,
    TEXEL,
    AdrenoPlan,
    Argument,
    KernelPlan,
    RowsPlan,
    StepPlan,
    StoragePlan,
    TensorPlan,
    WeightsPlan,
)
from dsp.adreno.products import product
from dsp.adreno.workgroups import choose
from sdk import graph as ops
from sdk.arena import live_peak
from sdk.errors import Unsupported
from sdk.graph import Graph, Node
from sdk.lowering import joined

WINDOW_LIMIT = 1 << 15
"""Padding, strides and dilations are below this: coordinates are multiplied in 24 bits."""

WEIGHTS_ALIGNMENT = 64
"""Alignment of each layer's weights, in bytes."""

MOST = 2**31
"""The bytes of activations, and of weights, are below this."""


@dataclass
class Lowered:
    """A whole network."""

    plan: AdrenoPlan
    weights: bytes
    source: bytes


def lower(graph: Graph, guard: int = 0, limit: int = LIMIT) -> Lowered:
    """Lower a graph of unsigned activations.

    Args:
        graph: verified; every node is one that the target supports.
        guard: bytes kept free around every tensor; tensors then share no storage.
        limit: of an image's width and height.

    Raises:
        Unsupported: a node that has no kernel, or is beyond a limit.
    """
    context = Context(graph, limit)
    for name in graph.inputs:
        from_input(context, name)
    for node, producer in joined(graph):
        if producer is None:
            _node(context, node)
        else:
            product(context, producer, node)
    for name in graph.outputs:
        to_output(context, name)
    return _planned(context, guard)


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


def _planned(context: Context, guard: int) -> Lowered:
    values = _values(context.steps)
    storages = _storages(values, guard, context.limit)
    names = source.kernel_names(list(dict.fromkeys(step.kernel for step in context.steps)))
    blob = bytearray(context.tables.weights().buffer())
    tables = len(blob)
    weights = []
    for texels in context.weights:
        blob += bytes(-len(blob) % WEIGHTS_ALIGNMENT)
        height, width = texels.shape[:2]
        weights.append(WeightsPlan(len(blob), width, height, "int8" if texels.dtype == np.int8 else "int16"))
        blob += texels.astype(texels.dtype.newbyteorder("<")).tobytes()
    arena = sum(TEXEL * storage.width * storage.height for storage in storages)
    for what, nbytes in (("activations", arena), ("weights", len(blob))):
        if nbytes >= MOST:
            raise Unsupported(
                f"its {what} take {nbytes:,} bytes; the limit is 2 GiB", where=context.graph.name
            )
    peak = live_peak((value.first, value.last, value.layout.nbytes) for value in values)
    plan = AdrenoPlan(
        memory={"weights": len(blob), "arena": arena, "live_peak": peak},
        tables=tables,
        storages=storages,
        weights=weights,
        tensors={name: TensorPlan(v.storage, v.layout) for name, v in context.values.items()},
        buffers=[_rows(value, storages) for value in values],
        kernels=[KernelPlan(name, one.function, dict(one.constants)) for one, name in names.items()],
        steps=[_step(step, list(names)) for step in context.steps],
    )
    return Lowered(plan, bytes(blob), source.write(names).encode("ascii"))


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


def _step(step: Step, kernels: list[KernelText]) -> StepPlan:
    local, reason = choose(step.items)
    return StepPlan(
        name=step.name,
        op=step.op,
        nodes=step.nodes,
        macs=step.macs,
        kernel=kernels.index(step.kernel),
        items=step.items,
        local=local,
        reason=reason,
        trips=step.trips,
        arguments=[_argument(operand) for operand in step.operands],
        tensors=step.tensors,
    )


def _argument(operand: Operand) -> Argument:
    if isinstance(operand.value, Value):
        return "storage", operand.value.storage
    return cast(Argument, (operand.kind, operand.value))
