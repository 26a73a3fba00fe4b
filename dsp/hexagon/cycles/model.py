"""The cost of one inference, layer by layer, and an estimate of its time.

The time follows from the cost by four figures, which are assumptions: nothing here was measured on a DSP.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from dsp.hexagon.cycles.accesses import LINE, Memory, traffic
from dsp.hexagon.cycles.cache import through
from dsp.hexagon.cycles.execution import Execution
from dsp.hexagon.cycles.interlocks import Interlocks, Pair
from dsp.hexagon.cycles.prefetch import WAITING, Requests, Step, Timeline, timeline, with_requests
from sdk.estimate import Cache, Estimate, LayerEstimate
from sdk.target import LayerProfile, Profile

EMPTY = Memory()
CLOCK_GHZ = 1.2
ISSUE_CLOCKS = 2
MISS_NS = 150
DDR_GB_PER_S = 10
ONE, TWO = "ms_one_context", "ms_two_contexts"


@dataclass
class LayerCost:
    """What a layer's calls cost.

    Attributes:
        packets: executed in its kernels.
        stalls: how often one of them waits.
        pairs: for which instructions.
        fetched: lines read from memory, that it waits for.
        requests: how many its calls make.
        ahead: lines that come by them, for what follows.
        written_back: lines written to memory.
        asked: where in the weights the requests so far end, in bytes.
        needs: where in the weights those end that it reads.
    """

    packets: int = 0
    stalls: int = 0
    pairs: Counter[Pair] = field(default_factory=Counter)
    fetched: int = 0
    requests: int = 0
    ahead: int = 0
    written_back: int = 0
    asked: int = 0
    needs: int = 0

    @property
    def ddr_bytes(self) -> int:
        return LINE * (self.fetched + self.ahead + self.written_back)


def joined(parts: Iterable[LayerCost]) -> LayerCost:
    """The cost of a layer that is computed in parts."""
    whole = LayerCost()
    for part in parts:
        whole.packets += part.packets
        whole.stalls += part.stalls
        whole.pairs += part.pairs
        whole.fetched += part.fetched
        whole.requests += part.requests
        whole.ahead += part.ahead
        whole.written_back += part.written_back
    return whole


@dataclass(frozen=True)
class Costs:
    """What an inference costs.

    Attributes:
        layers: in order.
        accesses: loads and stores of lines.
        unknown: those of them whose address was not found, and which count nothing.
    """

    layers: Sequence[LayerCost]
    accesses: int
    unknown: int


def costs(
    execution: Execution,
    layers: Sequence[Sequence[int]],
    interlocks: Interlocks,
    cache: Cache,
    memory: Memory = EMPTY,
    requests: Requests | None = None,
) -> Costs:
    """What each layer costs.

    Args:
        execution: of the whole inference.
        layers: addresses of the kernels that each layer calls, in order.
        interlocks: of the version of the DSP.
        cache: what is between it and memory.
        memory: what is constant in it.
        requests: what is fetched ahead, by call; nothing by default.

    Raises:
        DeviceFailed: the execution is of other kernels.
    """
    spans = execution.calls([entry for layer in layers for entry in layer])
    accessed = traffic(execution, spans, execution.code.end, memory)
    requests = requests or Requests(execution.code.end, [(0, 0)] * len(spans))
    touched = with_requests(accessed, spans, requests)
    fetches = through(cache, touched)
    asked = 0
    waiting = _Waiting(execution, interlocks)
    found = []
    remaining = iter(zip(spans, requests.calls, strict=True))
    for layer in layers:
        cost = LayerCost()
        for span, (offset, nbytes) in (next(remaining) for _ in layer):
            waiting.add(cost, span)
            first, last = np.searchsorted(touched.when, [span.start, span.stop])
            read, ahead = fetches.read[first:last], touched.ahead[first:last]
            cost.fetched += int((read & ~ahead).sum())
            cost.ahead += int((read & ahead).sum())
            cost.written_back += int(fetches.written[first:last].sum())
            cost.requests += nbytes > 0
            asked = max(asked, offset + nbytes)
            lines = accessed.lines[slice(*np.searchsorted(accessed.when, [span.start, span.stop]))]
            furthest = int(lines[lines * LINE < requests.end].max(initial=-1)) + 1
            cost.needs = max(cost.needs, furthest * LINE - requests.weights)
        cost.asked = asked
        found.append(cost)
    return Costs(found, len(accessed.lines) + accessed.unknown, accessed.unknown)


class _Waiting:
    """Packets that wait: within each block, and from each block to each that was executed after it."""

    def __init__(self, execution: Execution, interlocks: Interlocks) -> None:
        self._execution = execution
        self._block = functools.cache(execution.block)
        self._interlocks = interlocks
        self._inside: dict[int, Counter[Pair]] = {}
        self._between: dict[tuple[int, int], Pair | None] = {}

    def add(self, cost: LayerCost, span: range) -> None:
        order = self._execution.order[span.start : span.stop]
        blocks, counts = np.unique(order, return_counts=True)
        for block, count in zip(blocks.tolist(), counts.tolist(), strict=True):
            cost.packets += count * len(self._block(block))
            for pair, times in self._within(block).items():
                self._count(cost, pair, count * times)
        steps, counts = np.unique(np.stack([order[:-1], order[1:]]), axis=1, return_counts=True)
        for (before, after), count in zip(steps.T.tolist(), counts.tolist(), strict=True):
            if waits := self._step(before, after):
                self._count(cost, waits, count)

    def _count(self, cost: LayerCost, pair: Pair, count: int) -> None:
        cost.stalls += count
        cost.pairs[pair] += count

    def _within(self, block: int) -> Counter[Pair]:
        if block not in self._inside:
            packets = self._block(block)
            waits = (self._interlocks.waits(*two) for two in pairwise(packets))
            self._inside[block] = Counter(pair for pair in waits if pair)
        return self._inside[block]

    def _step(self, before: int, after: int) -> Pair | None:
        if (before, after) not in self._between:
            last, first = self._block(before)[-1], self._block(after)[0]
            self._between[before, after] = self._interlocks.waits(last, first)
        return self._between[before, after]


def estimate(
    profile: Profile, found: Costs, nodes: Sequence[Sequence[int]], cache: Cache, llvm: str
) -> Estimate:
    """The time of an inference, from the packets that were counted and what they cost.

    Args:
        profile: the device's own counts, by node.
        found: what its layers cost, in the order in which they run.
        nodes: which of these layers each node of the profile has.
        cache: what that was computed with.
        llvm: release of the itineraries.
    """
    costs = [joined(found.layers[number] for number in layers) for layers in nodes]
    lines = {ONE: _times(profile, found.layers, nodes, 1), TWO: _times(profile, found.layers, nodes, 2)}
    times = [
        {way: sum(line.ms[number] for number in layers) for way, line in lines.items()} for layers in nodes
    ]
    stalls = sum(cost.stalls for cost in costs)
    between = int(profile.total["packets"]) - sum(int(layer.counters["packets"]) for layer in profile.layers)
    counts = {
        "cycles": int(profile.total["packets"]) + stalls,
        "stalls": stalls,
        "ddr_bytes": sum(cost.ddr_bytes for cost in costs),
    }
    unknown = found.unknown / max(1, found.accesses)
    state = "after an inference" if cache.warm else "empty at first"
    ahead = LINE * sum(cost.ahead for cost in costs)
    return Estimate(
        [_layer(*one) for one in zip(profile.layers, costs, times, strict=True)],
        counts,
        {way: sum(line.ms) + _ms(between) for way, line in lines.items()},
        (
            "modelled: nothing was measured on a DSP",
            f"stalls by the itineraries of LLVM {llvm}; packets counted by qemu",
            f"{CLOCK_GHZ} GHz; one thread issues a packet every {ISSUE_CLOCKS} clocks",
            f"L2 of {cache.nbytes >> 10:,} KB, {cache.ways} ways, least recently used, {state}",
            f"{unknown:.1%} of the loads and stores were not followed, and count nothing",
            f"{ahead / 1e6:.2f} MB are fetched ahead (l2fetch); a layer waits for what is not there by then",
            f"{lines[TWO].crowded} of these requests may come while {WAITING} wait: a DSP may drop as many",
            f"{MISS_NS} ns for each other line that is read from memory",
            f"{DDR_GB_PER_S} GB/s at most between L2 and memory",
            "two contexts: the longer half's share of the packets, half the misses each",
        ),
    )


def _times(
    profile: Profile, costs: Sequence[LayerCost], nodes: Sequence[Sequence[int]], contexts: int
) -> Timeline:
    """When the layers run by one context, or by two."""
    busy = [0.0] * len(costs)
    for layer, numbers in zip(profile.layers, nodes, strict=True):
        packets = int(layer.counters["packets"])
        share = layer.counters["packets_longer_half"] / packets if packets and contexts > 1 else 1.0
        inside = sum(costs[number].packets for number in numbers)
        for number in numbers:
            # The calls themselves cost packets that no kernel has.
            around = packets / inside if inside else 0.0
            cost = costs[number]
            busy[number] = _ms((cost.packets * around + cost.stalls) * share)
            busy[number] += cost.fetched * MISS_NS / 1e6 / contexts
    steps = [
        Step(
            own,
            LINE * (cost.fetched + cost.written_back),
            LINE * cost.ahead,
            cost.asked,
            cost.needs,
            cost.requests,
        )
        for own, cost in zip(busy, costs, strict=True)
    ]
    return timeline(steps, DDR_GB_PER_S * 1e6)


def _layer(layer: LayerProfile, cost: LayerCost, ms: Mapping[str, float]) -> LayerEstimate:
    cycles = int(layer.counters["packets"]) + cost.stalls
    return LayerEstimate(
        layer.name,
        {"cycles": cycles, "stalls": cost.stalls, "ddr_bytes": cost.ddr_bytes},
        ms,
        next((f"{pair.first} > {pair.second}" for pair, _ in cost.pairs.most_common(1)), ""),
    )


def _ms(cycles: float) -> float:
    return cycles * ISSUE_CLOCKS / CLOCK_GHZ / 1e6
