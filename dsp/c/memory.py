"""Which buffers of the arena a graph needs, from when to when they live, and which tensors they hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sdk.arena import Buffer, align, live_peak, plan
from sdk.graph import Graph, Reshape


@dataclass
class Memory:
    """The buffers of a graph, placed.

    Attributes:
        buffers: in the order of execution.
        owners: of every activation: the tensor whose memory holds it, itself or what it is a Reshape of.
        places: offsets of the owners that have a buffer.
        nbytes: of all.
        live_peak: the largest sum of bytes of buffers alive at once.
    """

    buffers: list[Buffer]
    owners: dict[str, str]
    places: dict[str, int]
    nbytes: int
    live_peak: int


def allot(graph: Graph, inputs: Sequence[str], granule: int, guard: int = 0) -> Memory:
    """Plan the memory of a graph.

    Inputs live from moment 0, the output of node i from i + 1, and outputs to the end.

    Args:
        graph: whose activations need memory.
        inputs: those of the graph's inputs that lie in the arena.
        granule: bytes of which buffers are multiples.
        guard: as `sdk.arena.plan`.
    """
    owners = {name: name for name in graph.inputs}
    buffers = {name: _buffer(graph, name, 0, granule) for name in inputs}
    for moment, node in enumerate(graph.nodes, 1):
        source = node.inputs[0]
        owners[node.output] = owners.get(source, node.output) if isinstance(node, Reshape) else node.output
        if owners[node.output] == node.output:
            buffers[node.output] = _buffer(graph, node.output, moment, granule)
        for name in (*node.inputs, node.output):
            if (owner := owners.get(name)) in buffers:
                buffers[owner].last = moment
    for name in graph.outputs:
        if (owner := owners.get(name)) in buffers:
            buffers[owner].last = len(graph.nodes)
    ordered = list(buffers.values())
    nbytes = plan(ordered, guard)
    peak = live_peak((buffer.first, buffer.last, buffer.nbytes) for buffer in ordered)
    return Memory(ordered, owners, {b.name: b.offset for b in ordered}, nbytes, peak)


def _buffer(graph: Graph, name: str, moment: int, granule: int) -> Buffer:
    return Buffer(name, align(graph.tensor(name).nbytes, granule), moment, moment)
