"""Where the boxes of a drawing go: sections of a long network, and layers within one.

A network of hundreds of nodes is cut, in its order of execution, where few tensors cross: in a chain of
blocks where one does. Within a section the layout is the usual layered one (Sugiyama, Tagawa, Toda 1981): a
layer is the longest way from a source, long edges get points in between, neighbours' means order each layer,
and positions follow their neighbours without overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

WHOLE = 48
"""Nodes that are drawn as one section."""
IDEAL = 20
"""Nodes of a section, if the network is cut well there."""
LARGEST = 60
SMALLEST = 5
EVENNESS = 2.0
"""Crossing tensors that a section of twice the ideal size is worth."""
SWEEPS = 8
GAP = 18.0
"""Between neighbours in a layer."""

Edge = tuple[int, int]


def sections(count: int, edges: Iterable[Edge]) -> list[range]:
    """Cut nodes 0 .. count-1, in order of execution, into runs.

    Args:
        count: of nodes.
        edges: (producer, consumer).
    """
    if count <= WHOLE:
        return [range(count)]
    last: dict[int, int] = {}
    for source, target in edges:
        last[source] = max(last.get(source, source), target)
    crossing = [0] * (count + 1)
    for source, target in last.items():
        for place in range(source + 1, target + 1):
            crossing[place] += 1
    best = [0.0] + [float("inf")] * count
    begun = [0] * (count + 1)
    for end in range(1, count + 1):
        for start in range(max(0, end - LARGEST), max(1, end - SMALLEST + 1)):
            cost = best[start] + crossing[end] + EVENNESS * ((end - start - IDEAL) / IDEAL) ** 2
            if cost < best[end]:
                best[end], begun[end] = cost, start
    found = []
    end = count
    while end:
        found.append(range(begun[end], end))
        end = begun[end]
    return found[::-1]


@dataclass(frozen=True)
class Layout:
    """A drawing.

    Attributes:
        places: of each box its centre and its top.
        ways: of each edge the points it leads through: from the source's bottom to the target's top.
        width, height: of the whole.
    """

    places: Sequence[tuple[float, float]]
    ways: Mapping[Edge, Sequence[tuple[float, float]]]
    width: float
    height: float


def layered(sizes: Sequence[tuple[float, float]], edges: Iterable[Edge], pitch: float) -> Layout:
    """Place boxes so that edges lead downwards.

    Args:
        sizes: width and height of each box.
        edges: without cycles; (producer, consumer) of boxes.
        pitch: from the bottom of a layer's highest box to the next layer.
    """
    known = sorted({edge for edge in edges if edge[0] != edge[1]})
    ranks = _ranks(len(sizes), known)
    chains, layers = _with_points(len(sizes), known, ranks)
    before: dict[int, list[int]] = {}
    after: dict[int, list[int]] = {}
    for chain in chains.values():
        for source, target in pairwise(chain):
            after.setdefault(source, []).append(target)
            before.setdefault(target, []).append(source)
    widths = [*(width for width, _ in sizes), *[0.0] * (sum(map(len, layers)) - len(sizes))]
    _order(layers, before, after)
    across = _across(layers, widths, before, after)
    tops, heights, top = [], [], 0.0
    for layer in layers:
        tops.append(top)
        heights.append(max((sizes[one][1] for one in layer if one < len(sizes)), default=0.0))
        top += heights[-1] + pitch
    left = min((across[one] - widths[one] / 2 for one in across), default=0.0)
    right = max((across[one] + widths[one] / 2 for one in across), default=0.0)
    places = [(across[one] - left, tops[ranks[one]]) for one in range(len(sizes))]
    ways = {}
    for (source, target), chain in chains.items():
        points = [(places[source][0], places[source][1] + sizes[source][1])]
        for rank, one in enumerate(chain[1:-1], ranks[source] + 1):  # straight past the boxes of a layer
            at = across[one] - left
            points += [(at, tops[rank]), (at, tops[rank] + heights[rank])]
        ways[source, target] = [*points, places[target]]
    return Layout(places, ways, right - left, max(top - pitch, 0.0))


def _ranks(count: int, edges: Sequence[Edge]) -> list[int]:
    """The longest way from a source; a source is directly above what reads it first."""
    before: dict[int, list[int]] = {}
    after: dict[int, list[int]] = {}
    for source, target in edges:
        before.setdefault(target, []).append(source)
        after.setdefault(source, []).append(target)
    waiting = {one: len(before.get(one, ())) for one in range(count)}
    ready = [one for one, number in waiting.items() if not number]
    ranks = [0] * count
    while ready:
        one = ready.pop()
        for target in after.get(one, ()):
            ranks[target] = max(ranks[target], ranks[one] + 1)
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    for one in range(count):
        if one not in before and one in after:
            ranks[one] = min(ranks[target] for target in after[one]) - 1
    return ranks


def _with_points(
    count: int, edges: Sequence[Edge], ranks: Sequence[int]
) -> tuple[dict[Edge, list[int]], list[list[int]]]:
    """Of each edge the boxes and points along it; and the boxes and points of each layer."""
    layers: list[list[int]] = [[] for _ in range(max(ranks, default=-1) + 1)]
    for one in range(count):
        layers[ranks[one]].append(one)
    chains, fresh = {}, count
    for source, target in edges:
        chain = [source]
        for rank in range(ranks[source] + 1, ranks[target]):
            layers[rank].append(fresh)
            chain.append(fresh)
            fresh += 1
        chains[source, target] = [*chain, target]
    return chains, layers


def _order(
    layers: list[list[int]], before: Mapping[int, Sequence[int]], after: Mapping[int, Sequence[int]]
) -> None:
    """Sort each layer by the means of its neighbours' ranks in theirs, down and up."""
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        near = before if down else after
        for number in range(1, len(layers)) if down else range(len(layers) - 2, -1, -1):
            other = layers[number - 1 if down else number + 1]
            at = {one: place for place, one in enumerate(other)}
            own = {one: place for place, one in enumerate(layers[number])}

            def mean(
                one: int,
                at: Mapping[int, int] = at,
                own: Mapping[int, int] = own,
                near: Mapping[int, Sequence[int]] = near,
            ) -> float:
                places = [at[each] for each in near.get(one, ())]
                return sum(places) / len(places) if places else float(own[one])

            layers[number].sort(key=mean)


def _across(
    layers: Sequence[Sequence[int]],
    widths: Sequence[float],
    before: Mapping[int, Sequence[int]],
    after: Mapping[int, Sequence[int]],
) -> dict[int, float]:
    """Centres: the means of the neighbours', moved apart where boxes would overlap."""
    across: dict[int, float] = {}
    for layer in layers:
        at = 0.0
        for one in layer:
            across[one] = at + widths[one] / 2
            at += widths[one] + GAP
        for one in layer:
            across[one] -= at / 2
    for sweep in range(2 * SWEEPS):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            wanted = []
            for one in layer:
                near = [*before.get(one, ()), *after.get(one, ())]
                wanted.append(sum(across[each] for each in near) / len(near) if near else across[one])
            for one, place in zip(layer, _apart(layer, wanted, widths), strict=True):
                across[one] = place
    return across


def _apart(layer: Sequence[int], wanted: Sequence[float], widths: Sequence[float]) -> list[float]:
    """The mean of the two placements that keep the order: pushed from the left, and from the right."""
    left: list[float] = []
    for number, one in enumerate(layer):
        place = wanted[number]
        if number:
            place = max(place, left[-1] + (widths[layer[number - 1]] + widths[one]) / 2 + GAP)
        left.append(place)
    right = list(wanted)
    for number in range(len(layer) - 2, -1, -1):
        least = (widths[layer[number]] + widths[layer[number + 1]]) / 2 + GAP
        right[number] = min(right[number], right[number + 1] - least)
    return [(a + b) / 2 for a, b in zip(left, right, strict=True)]
