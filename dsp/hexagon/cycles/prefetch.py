"""What `l2fetch` changes: lines come before they are used, and a layer waits for those that are late."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dsp.hexagon.cycles.accesses import LINE, Traffic

WAITING = 3
"""Requests of a thread that wait; one more drops the oldest (Hexagon V65 Programmer's Reference Manual)."""


@dataclass(frozen=True)
class Requests:
    """Those of an inference.

    Attributes:
        weights: the address of what they fetch.
        calls: of each call of a kernel, offset and bytes of what is asked for when it begins.
    """

    weights: int
    calls: Sequence[tuple[int, int]]

    @property
    def end(self) -> int:
        """The address behind all that is asked for."""
        return self.weights + max((offset + nbytes for offset, nbytes in self.calls), default=0)


def with_requests(traffic: Traffic, spans: Sequence[range], requests: Requests) -> Traffic:
    """The same with the lines that calls ask for, each of which touches a span of `Traffic.when`.

    They come when the call begins; what it uses itself, when it uses that.
    """
    places, lines, when = [], [], []
    ahead = traffic.ahead.copy()
    for span, (offset, nbytes) in zip(spans, requests.calls, strict=True):
        if not nbytes:
            continue
        first, last = ((requests.weights + end) // LINE for end in (offset, offset + nbytes + LINE - 1))
        begin, end = np.searchsorted(traffic.when, [span.start, span.stop])
        used, at = np.unique(traffic.lines[begin:end], return_index=True)
        own = (used >= first) & (used < last)
        ahead[begin + at[own]] = True
        other = np.setdiff1d(np.arange(first, last), used[own])
        places.append(np.full(len(other), begin))
        lines.append(other)
        when.append(np.full(len(other), span.start))
    if not places:
        return traffic
    before = np.concatenate(places)
    return dataclasses.replace(
        traffic,
        lines=np.insert(traffic.lines, before, np.concatenate(lines)),
        writes=np.insert(traffic.writes, before, False),
        vectors=np.insert(traffic.vectors, before, True),
        when=np.insert(traffic.when, before, np.concatenate(when)),
        ahead=np.insert(ahead, before, True),
    )


@dataclass(frozen=True)
class Step:
    """A layer on its way.

    Attributes:
        busy: milliseconds that it needs with all it reads at hand, or, of what is not, waiting for each line.
        demanded: bytes that it reads and writes back itself.
        fetched: bytes that come ahead, by requests of its calls, taken as made when it begins.
        asked: where in the weights all requests so far end.
        needs: where in the weights its own end.
        requests: how many its calls make.
    """

    busy: float
    demanded: int
    fetched: int
    asked: int
    needs: int
    requests: int = 1


@dataclass(frozen=True)
class Timeline:
    """Milliseconds of each step, and how many requests may come while `WAITING` others wait, at most."""

    ms: Sequence[float]
    crowded: int


def timeline(steps: Sequence[Step], bytes_per_ms: float) -> Timeline:
    """One step after the other; beside them one bus brings what they demand, and then what was asked for.

    A step ends when it has computed, its own bytes have been moved, and its part of the weights is there.
    """
    now = bus = 0.0
    asked = crowded = 0
    pieces: list[tuple[int, int, float, float]] = []  # from byte to byte, and from when to when it comes
    coming: list[tuple[int, float]] = []  # requests, and when the last of them has come
    spent: list[float] = []
    for step in steps:
        begin = now
        bus = max(bus, begin) + step.demanded / bytes_per_ms
        if step.asked > asked:
            waiting = sum(count for count, end in coming if end > begin)
            crowded += min(step.requests, max(0, waiting + step.requests - WAITING))
            pieces.append((asked, step.asked, bus, bus + step.fetched / bytes_per_ms))
            asked, bus = step.asked, pieces[-1][3]
            coming.append((step.requests, bus))
        now = max(begin + step.busy, begin + step.demanded / bytes_per_ms, _arrival(pieces, step.needs))
        spent.append(now - begin)
    if spent:
        spent[-1] += max(0.0, bus - now)  # what is left is moved behind the last
    return Timeline(spent, crowded)


def _arrival(pieces: Sequence[tuple[int, int, float, float]], place: int) -> float:
    """When the bytes before this place are there, of what was asked for."""
    for first, last, begin, end in reversed(pieces):
        if place > first:
            return begin + (end - begin) * (min(place, last) - first) / (last - first)
    return 0.0
