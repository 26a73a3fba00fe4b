"""An L2: set-associative, the line used longest ago replaced, stores written back when they are replaced."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsp.hexagon.cycles.accesses import LINE, Flags, Traffic
from dsp.hexagon.cycles.execution import Indices
from sdk.errors import UsageError
from sdk.estimate import Cache


@dataclass(frozen=True)
class Fetches:
    """What each access of a `Traffic` costs.

    Attributes:
        read: its line comes from memory.
        written: another line goes to memory for it.
    """

    read: Flags
    written: Flags


def through(cache: Cache, traffic: Traffic) -> Fetches:
    """The accesses of an inference through an L2. A store of a vector reads nothing.

    Raises:
        UsageError: its lines do not make a power of two of sets.
    """
    count = len(traffic.lines)
    read, written = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    sets, rest = divmod(cache.nbytes, LINE * cache.ways)
    if rest or sets < 1 or sets & (sets - 1):
        raise UsageError(
            f"{cache.nbytes:,} bytes of L2 are not 2^n sets of {cache.ways} lines of {LINE} bytes",
            hint="as 512K, 1M or 2M",
        )
    places = _first_of_runs(traffic.lines, traffic.writes, sets)
    accesses = list(
        zip(
            places.tolist(),
            traffic.lines[places].tolist(),
            traffic.writes[places].tolist(),
            traffic.vectors[places].tolist(),
            strict=True,
        )
    )
    held: list[dict[int, bool]] = [{} for _ in range(sets)]  # line -> whether it was stored to, oldest first
    for measured in [False, True] if cache.warm else [True]:
        for place, line, writes, vector in accesses:
            lines = held[line % sets]
            stored = lines.pop(line, None)
            if stored is None:
                read[place] = measured and not (writes and vector)
                if len(lines) == cache.ways:
                    written[place] = lines.pop(next(iter(lines))) and measured
            lines[line] = writes or bool(stored)
    return Fetches(read, written)


def _first_of_runs(lines: Indices, writes: Flags, sets: int) -> Indices:
    """Without those that change nothing, as their set's last access was to the same line."""
    order = np.argsort(lines % sets, kind="stable")
    line, store = lines[order], writes[order]
    again = np.zeros(len(lines), np.bool_)
    again[1:] = (line[1:] == line[:-1]) & (store[:-1] | ~store[1:])
    return np.sort(order[~again])
