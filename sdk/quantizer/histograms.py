"""Which values a tensor takes, counted exactly: the same whatever the order of the samples.

A bucket is what float32 values share in their upper 17 bits: sign, exponent and 8 bits of mantissa. So one
pass counts without a range known beforehand, counts of samples add up, and a bucket is at most 1/256 of its
value wide.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SHIFT = 15
BUCKETS = 1 << (32 - SHIFT)
CENTRE = 1 << (SHIFT - 1)


@dataclass(frozen=True)
class Histogram:
    """Values of one tensor.

    Attributes:
        buckets: numbers of the buckets that hold anything, int32, ascending.
        counts: values in each, int64.
        low, high: the least and the greatest value.
    """

    buckets: NDArray[np.int32]
    counts: NDArray[np.int64]
    low: float
    high: float

    @staticmethod
    def of(array: NDArray[np.float32]) -> Histogram:
        """Count an array of any shape; it is finite and not empty."""
        flat = np.ascontiguousarray(array, np.float32).ravel()
        counts = np.bincount(flat.view(np.uint32) >> SHIFT, minlength=BUCKETS)
        buckets = np.flatnonzero(counts)
        return Histogram(buckets.astype(np.int32), counts[buckets], float(flat.min()), float(flat.max()))

    def sorted(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Centres of the buckets, ascending and within [low, high], and their counts; zero is itself."""
        bits = self.buckets.astype(np.uint32) << SHIFT
        values = np.where(bits << 1 == 0, np.float32(0), (bits | CENTRE).view(np.float32)).astype(np.float64)
        order = np.argsort(values, kind="stable")
        return np.clip(values[order], self.low, self.high), self.counts[order]


def merged(histograms: Iterable[Histogram]) -> Histogram:
    """The values of several; at least one."""
    parts = list(histograms)
    if len(parts) == 1:
        return parts[0]
    buckets, where = np.unique(np.concatenate([part.buckets for part in parts]), return_inverse=True)
    counts = np.zeros(len(buckets), np.int64)
    np.add.at(counts, where, np.concatenate([part.counts for part in parts]))
    low, high = min(part.low for part in parts), max(part.high for part in parts)
    return Histogram(buckets, counts, low, high)


class Counter:
    """Counts arrays one by one; small ones are counted together, which is cheaper."""

    ELEMENTS = 1 << 18

    def __init__(self) -> None:
        self._parts: list[Histogram] = []
        self._waiting: list[NDArray[np.float32]] = []

    def add(self, array: NDArray[np.float32]) -> None:
        """Count an array of any shape."""
        self._waiting.append(array.ravel())
        if sum(part.size for part in self._waiting) >= self.ELEMENTS:
            self._flush()

    def histogram(self) -> Histogram:
        """All that was added; something was."""
        self._flush()
        self._parts = [merged(self._parts)]
        return self._parts[0]

    def _flush(self) -> None:
        if self._waiting:
            self._parts.append(Histogram.of(np.concatenate(self._waiting)))
            self._waiting = []
