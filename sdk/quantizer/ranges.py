"""Candidates for the ranges of activations, each from the exact histogram of one tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sdk.quantizer.histograms import Histogram

Range = tuple[float, float]
"""Lowest and highest value; 0 lies within, as it must for a zero-point."""

LEVELS = 255
FRACTIONS = np.linspace(0.2, 1.0, 161)
"""Of the extremes, as the search for the least error tries them."""


def minmax(histogram: Histogram) -> Range:
    """All that occurred."""
    return min(histogram.low, 0.0), max(histogram.high, 0.0)


def percentile(histogram: Histogram, percent: float) -> Range:
    """All but the outermost values: `percent` of them lie below the highest, and above the lowest."""
    values, counts = histogram.sorted()
    below = np.cumsum(counts)
    cut = below[-1] * (1 - percent / 100)
    low = values[np.searchsorted(below, cut, side="right")]
    high = values[min(np.searchsorted(below, below[-1] - cut, side="left"), len(values) - 1)]
    return min(float(low), 0.0), max(float(high), 0.0)


def mean_square(histogram: Histogram) -> Range:
    """The least mean square of what is cut off and what rounding adds.

    A value below half a step is lost, one within the range has the mean square step^2 / 12.
    """
    low, high = minmax(histogram)
    values, counts = histogram.sorted()
    if low == high:
        return low, high
    lows = FRACTIONS * low if low < 0 else np.zeros(1)
    highs = FRACTIONS * high if high > 0 else np.zeros(1)
    above = _cut(values, counts, highs)
    below = _cut(-values[::-1], counts[::-1], -lows)
    steps = (highs[None, :] - lows[:, None]) / LEVELS
    magnitudes = np.abs(values)
    order = np.argsort(magnitudes, kind="stable")
    number = np.concatenate([[0], np.cumsum(counts[order])])
    energy = np.concatenate([[0], np.cumsum((counts * values**2)[order])])
    small = np.searchsorted(magnitudes[order], steps / 2)
    rounding = energy[small] + steps**2 / 12 * (number[-1] - number[small])
    error = rounding + above[None, :] + below[:, None]
    i, j = np.unravel_index(int(error.argmin()), error.shape)
    return float(lows[i]), float(highs[j])


def _cut(
    values: NDArray[np.float64], counts: NDArray[np.int64], bounds: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The energy of what lies above each bound; the values ascend."""
    sums = [
        np.append(np.cumsum((counts * values**power)[::-1])[::-1], 0)[
            np.searchsorted(values, bounds, "right")
        ]
        for power in range(3)
    ]
    return np.asarray(np.maximum(sums[2] - 2 * bounds * sums[1] + bounds**2 * sums[0], 0))


PERCENTILES = (99.9, 99.95, 99.98, 99.99, 99.995, 99.999)

CANDIDATES: Mapping[str, Callable[[Histogram], Range]] = {
    "minmax": minmax,
    "mse": mean_square,
    **{f"percentile {percent:g}": partial(percentile, percent=percent) for percent in PERCENTILES},
}
"""By name; `minmax` first, which wins unless another is better."""
