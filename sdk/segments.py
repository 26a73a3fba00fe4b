"""Where each part of a network runs: on the device, or on the host where a target refuses a node.

A network is cut into segments in order of execution, each of one place. The host's part is computed by the
reference. A quantised network begins and ends there in any case: quantising a float input, and dequantising
(and Softmax) at the end, so that integers of a quarter of the size cross the link.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from sdk.errors import Unsupported
from sdk.graph import (
    Conv,
    ConvTranspose,
    Dequantize,
    Gemm,
    Graph,
    MatMul,
    Node,
    Quantize,
    Region,
    Reshape,
    Softmax,
    macs,
)
from sdk.target import SUPPORTED, Target, Verdict

Place = Literal["device", "host"]
HostPolicy = Literal["default", "any", "none"]
"""What may run on the host: what `check_host` allows by default, anything, or nothing."""

MACS_SHARE = 0.01
"""Of a network's multiply-accumulates, the most that run on the host unless the user allows more."""
PRODUCTS = Conv | ConvTranspose | MatMul | Gemm
_TAIL = Dequantize | Softmax | Reshape | Quantize


@dataclass(frozen=True)
class Segment:
    """A part of a network.

    Attributes:
        graph: its nodes; the inputs are what it reads of the network's inputs and of other segments, the
            outputs what others, or the user, read of it.
    """

    place: Place
    graph: Graph


@dataclass(frozen=True)
class Split:
    """A network of one part for the device.

    Attributes:
        head: nodes of the host that come before the device's.
        body: the device's part; it holds only what it needs.
        tail: nodes of the host, in order, after the body.
    """

    head: tuple[Node, ...]
    body: Graph
    tail: tuple[Node, ...]


@dataclass(frozen=True)
class Placement:
    """Where a node runs, and why.

    Attributes:
        verdict: the target's; of a node that is the host's by choice, "supported".
    """

    node: Node
    place: Place
    verdict: Verdict


@dataclass(frozen=True)
class RoundTrips:
    """What the host's parts between parts for the device cost a run.

    Attributes:
        count: how often the device waits for the host; frames do not overlap then.
        nbytes: what crosses the link for it, both ways.
    """

    count: int
    nbytes: int


def round_trips(segments: Sequence[Segment]) -> RoundTrips:
    """Of a network's segments in order of execution."""
    device = [index for index, segment in enumerate(segments) if segment.place == "device"]
    count = nbytes = 0
    for index, segment in enumerate(segments):
        if segment.place == "device" or not device or not device[0] < index < device[-1]:
            continue
        before = {name for at in device if at < index for name in segments[at].graph.outputs}
        behind = {name for at in device if at > index for name in segments[at].graph.inputs}
        crossing = [*before.intersection(segment.graph.inputs), *behind.intersection(segment.graph.outputs)]
        count += 1
        nbytes += sum(segment.graph.tensor(name).nbytes for name in crossing)
    return RoundTrips(count, nbytes)


def states_within(
    segments: Sequence[Segment], states: Sequence[tuple[str, str]]
) -> tuple[tuple[str, str], ...]:
    """The states, pairs (output, input), if a device can keep them: it has one part, which alone has them.

    Returns:
        All of them or none.
    """
    parts = [segment.graph for segment in segments if segment.place == "device"]
    elsewhere = {
        name
        for segment in segments
        if segment.place == "host"
        for name in (*segment.graph.inputs, *segment.graph.outputs)
    }
    for output, given in states:
        alone = len(parts) == 1 and output in parts[0].outputs and given in parts[0].inputs
        if not alone or elsewhere & {output, given}:
            return ()
    return tuple(states)


def place(graph: Graph, target: Target, policy: HostPolicy = "default") -> tuple[Placement, ...]:
    """Decide for every node of a verified network; nothing is refused here."""
    ends = set() if policy == "none" else boundary(graph)
    placements = []
    for node in graph.nodes:
        verdict = SUPPORTED if node.name in ends else target.supports(graph, node)
        on_host = node.name in ends or not verdict.supported
        placements.append(Placement(node, "host" if on_host else "device", verdict))
    return tuple(placements)


def boundary(graph: Graph) -> set[str]:
    """Names of the nodes at a quantised network's ends that are the host's by choice.

    They are the Quantize nodes of float inputs, and at the end every Dequantize with the Softmax, Reshape and
    Quantize behind it, where nothing else follows; and copies of constants, which are outputs.
    """
    last: set[str] = set()  # nodes behind which only such nodes follow
    readers: dict[str, list[Node]] = {}
    for node in graph.nodes:
        for name in node.inputs:
            readers.setdefault(name, []).append(node)
    for node in reversed(graph.nodes):
        if isinstance(node, _TAIL) and all(reader.name in last for reader in readers.get(node.output, ())):
            last.add(node.name)
    ends: set[str] = set()
    made: set[str] = set()
    for node in graph.nodes:
        starts = isinstance(node, Dequantize) or bool(made.intersection(node.inputs))
        if node.name in last and starts:
            ends.add(node.name)
            made.add(node.output)
        elif (isinstance(node, Quantize) and node.inputs[0] in graph.inputs) or all(
            graph.tensor(name).data is not None for name in node.inputs
        ):
            ends.add(node.name)
    return ends


def check_host(graph: Graph, placements: Sequence[Placement], target: str, policy: HostPolicy) -> None:
    """Refuse a network of which more would run on the host than the policy allows.

    Raises:
        Unsupported: naming every refused node, its reason, and what to do.
    """
    refused = [placement for placement in placements if not placement.verdict.supported]
    if not refused or policy == "any":
        return
    total = graph.macs
    hosted = sum(macs(graph, placement.node) for placement in refused)
    products = [placement for placement in refused if _is_product(placement.node)]
    if policy == "default" and not products and hosted <= MACS_SHARE * total:
        return
    first = products[0] if products else refused[0]
    others = len(refused) - 1
    message = f"{first.node.op} is not supported by {target}: {first.verdict.reason}"
    if others:
        message += f"; and {others} more {'nodes' if others > 1 else 'node'} (towline inspect lists them)"
    allow = ""  # no target computes on the host alone
    if any(placement.place == "device" for placement in placements):
        allow = (
            "run it on the host with --host" if policy == "default" else "allow the host, without --no-host"
        )
    hint = "; or ".join(filter(None, (first.verdict.hint, allow)))
    raise Unsupported(message, where=f"node {first.node.name}", hint=hint)


def _is_product(node: Node) -> bool:
    if isinstance(node, Region):
        return any(map(_is_product, node.nodes))
    return isinstance(node, PRODUCTS)


def cut(graph: Graph, hosted: Collection[str]) -> tuple[Segment, ...]:
    """The segments of a network, in order of execution: as few as the places allow.

    Args:
        graph: verified.
        hosted: names of the nodes that run on the host.

    Raises:
        Unsupported: nothing is left for the device.
    """
    if all(node.name in hosted for node in graph.nodes):
        raise Unsupported(
            "nothing of it runs on the device",
            where=graph.name,
            hint="towline inspect --target T says why; quantise it, or choose a target that takes floats",
        )
    waiting = list(graph.nodes)
    known = set(graph.inputs)
    known.update(name for name, tensor in graph.tensors.items() if tensor.data is not None)
    parts: list[tuple[Place, list[Node]]] = []
    place: Place = "host" if waiting[0].name in hosted else "device"
    while waiting:
        ready: list[Node] = []
        later: list[Node] = []
        for node in waiting:
            here = (node.name in hosted) == (place == "host")
            if here and all(name in known for name in node.inputs):
                ready.append(node)
                known.add(node.output)
            else:
                later.append(node)
        if ready:
            parts.append((place, ready))
        place = "device" if place == "host" else "host"
        waiting = later
    return tuple(Segment(place, part) for place, part in _parts(graph, parts))


def split(graph: Graph, hosted: Collection[str] | None = None) -> Split:
    """A network whose nodes for the device are all in one segment, as those of quantised networks are.

    Args:
        graph: verified.
        hosted: names of the nodes that run on the host; by default those of `boundary`.

    Raises:
        Unsupported: nothing is left for the device, or the host computes something in mid-graph.
    """
    segments = cut(graph, boundary(graph) if hosted is None else hosted)
    (first, *others) = [index for index, segment in enumerate(segments) if segment.place == "device"]
    if others:
        between = segments[first + 1].graph.nodes[0]
        raise Unsupported("the host computes it in mid-graph", where=f"node {between.name}")
    head = tuple(node for segment in segments[:first] for node in segment.graph.nodes)
    tail = tuple(node for segment in segments[first + 1 :] for node in segment.graph.nodes)
    return Split(head, segments[first].graph, tail)


def _parts(graph: Graph, parts: Sequence[tuple[Place, list[Node]]]) -> Iterable[tuple[Place, Graph]]:
    order = {node.output: index for index, node in enumerate(graph.nodes)}
    for place, nodes in parts:
        made = {node.output for node in nodes}
        read = {name for node in nodes for name in node.inputs}
        given = [name for name in graph.inputs if name in read]
        given += sorted((name for name in read - made if name in order), key=order.__getitem__)
        others = [name for _, rest in parts if rest is not nodes for node in rest for name in node.inputs]
        yield (
            place,
            dataclasses.replace(
                graph,
                inputs=tuple(given),
                outputs=tuple(dict.fromkeys(name for name in (*others, *graph.outputs) if name in made)),
                tensors={name: tensor for name, tensor in graph.tensors.items() if name in made | read},
                nodes=tuple(nodes),
                metadata=dict(graph.metadata),
            ),
        )
