"""What targets would do with a network, and why: refusals with the same reason are joined."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from sdk.errors import Refusal, Unsupported
from sdk.graph import Graph, Node, macs
from sdk.inspection.figures import kind
from sdk.integer_islands import for_arithmetic
from sdk.segments import Placement, RoundTrips, check_host, cut, place, round_trips
from sdk.target import Target

_NUMBERS = re.compile(r"\[[^\[\]]*\d[^\[\]]*\]|\b\d+(?:x\d+)+\b|\b\d{1,3}(?:,\d{3})+\b")
"""A shape, a list of extents or axes, a large number."""


@dataclass
class Reason:
    """Why nodes are refused.

    Attributes:
        text: the reason; where those of several nodes differ in names and extents, "..." stands for these.
        hint: what to do.
        ops: nodes by operator.
        nodes: their names, in order.
    """

    text: str
    hint: str | None
    ops: Counter[str] = field(default_factory=Counter)
    nodes: list[str] = field(default_factory=list)


def reasons(refusals: Iterable[tuple[Refusal, Sequence[str]]]) -> list[Reason]:
    """Refusals by their reason, the most frequent first.

    Args:
        refusals: each with names and descriptions of tensors that its reason may mention.
    """
    found: dict[tuple[str, str | None], Reason] = {}
    for refusal, mentioned in refusals:
        joined = general(refusal.reason, mentioned)
        key = joined, refusal.hint and general(refusal.hint, mentioned)
        one = found.setdefault(key, Reason("", None))
        if not one.nodes:
            one.text, one.hint = refusal.reason, refusal.hint
        elif one.text != refusal.reason:
            one.text = joined
        one.ops[refusal.op or "output"] += 1
        one.nodes.append(refusal.name)
    return sorted(found.values(), key=lambda one: -len(one.nodes))


def general(text: str, mentioned: Sequence[str]) -> str:
    """A reason without names of tensors, shapes, axes and large numbers."""
    for name in sorted(mentioned, key=len, reverse=True):
        if name not in text or name.isalpha():  # a word may be the sentence's own
            continue
        if " " in name:  # a description
            text = text.replace(name, "a tensor")
        else:
            text = re.sub(rf"(?<![\w./-]){re.escape(name)}(?![\w./-])", "...", text)
    text = re.sub(r"'[^']*'", "'...'", text)
    return _NUMBERS.sub(lambda found: "[...]" if found[0].startswith("[") else "...", text)


Compiles = Literal["yes", "with --host", "no"]


@dataclass(frozen=True)
class Outlook:
    """What a target would do with a network.

    Attributes:
        name: the target's.
        placements: of every node of the network as such targets take it, in order.
        macs_device: multiply-accumulates of what runs on the device.
        round_trips: what the host's parts in mid-graph cost.
        compiles: whether `towline compile` takes it as it is, with --host, or not at all.
        reasons: why nodes are the host's.
    """

    name: str
    placements: Sequence[Placement]
    macs_device: int
    round_trips: RoundTrips
    compiles: Compiles
    reasons: Sequence[Reason]

    @property
    def on_device(self) -> int:
        """Nodes."""
        return sum(one.place == "device" for one in self.placements)


def outlook(graph: Graph, target: Target) -> Outlook:
    """Ask a target about every node of a verified network."""
    graph = for_arithmetic(graph, target.arithmetic)
    placements = place(graph, target)
    device = [one.node for one in placements if one.place == "device"]
    refused = [one for one in placements if not one.verdict.supported]
    return Outlook(
        target.name,
        placements,
        sum(macs(graph, node) for node in device),
        _round_trips(graph, placements),
        _compiles(graph, placements, target.name) if device else "no",
        reasons(
            (
                Refusal(one.node.name, kind(graph, one.node), one.verdict.reason, one.verdict.hint),
                _mentioned(graph, one.node),
            )
            for one in refused
        ),
    )


def _round_trips(graph: Graph, placements: Sequence[Placement]) -> RoundTrips:
    hosted = {one.node.name for one in placements if one.place == "host"}
    if len(hosted) == len(placements):
        return RoundTrips(0, 0)
    return round_trips(cut(graph, hosted))


def _compiles(graph: Graph, placements: Sequence[Placement], target: str) -> Compiles:
    try:
        check_host(graph, placements, target, "default")
    except Unsupported:
        return "with --host"
    return "yes"


def _mentioned(graph: Graph, node: Node) -> list[str]:
    tensors = [graph.tensor(name) for name in (*node.inputs, node.output)]
    return [str(tensor) for tensor in tensors] + [tensor.name for tensor in tensors]
