"""Which way of finding ranges suits a network: scored at its outputs, on inputs that the ranges do not know.

The samples are dealt into folds. Each fold is scored with ranges found from the samples of the others, so
that a candidate that merely fits its own samples gains nothing. The folds depend on the samples' values and
not on their order, and so does everything behind them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np

from sdk.quantizer.calibration import Feeds, digest
from sdk.quantizer.fidelity import decibels
from sdk.quantizer.histograms import Histogram, merged
from sdk.quantizer.layout import Layout
from sdk.quantizer.ranges import CANDIDATES, Range, minmax
from sdk.quantizer.trial import Progress, Trial, score_all

FOLDS = 5
SCORED = 32
"""Samples that are scored at most, evenly from the folds; ranges are found from all samples."""

HELD = 5
"""Samples that are held out together, at least, where there are so many."""

Collected = Sequence[Mapping[str, Histogram]]
"""By fold: the histogram of each group's values."""


@dataclass(frozen=True)
class Score:
    """SQNR at the network's outputs over several samples, in dB.

    Attributes:
        mean, min: of the samples' own SQNR.
    """

    mean: float
    min: float

    @staticmethod
    def of(errors: Sequence[float]) -> Score:
        """From the relative errors of samples."""
        each = [decibels(1.0, error) for error in errors]
        return Score(float(np.mean(each)), min(each))


GAIN = 10 ** (-1.0 / 20)
"""What another candidate than the first must leave of its badness: 1 dB less. Between few samples, smaller
differences are chance."""


def badness(errors: Sequence[float]) -> float:
    """What is minimised: the mean of the samples' relative amplitudes of error.

    Their squares would leave the choice to the one or two worst samples, and a search would fit those.
    """
    return sum(math.sqrt(error) for error in errors) / len(errors)


@dataclass(frozen=True)
class Choice:
    """The candidate that won.

    Attributes:
        name: of ranges.CANDIDATES.
        ranges: of each group, from all samples.
        scores: of every candidate, held out; empty if nothing could be held out.
        errors: the relative error of each sample that was scored, with the winner; fold by fold.
        folds: how many there were; 0 if nothing could be held out.
    """

    name: str
    ranges: dict[str, Range]
    scores: Mapping[str, Score]
    errors: Sequence[float]
    folds: int


def deal(samples: Sequence[Feeds], units: Sequence[Sequence[int]]) -> list[list[int]]:
    """Folds of sample indices, by the digests of the units; equal units come into one fold.

    Args:
        samples: all of them.
        units: indices of samples that belong together, as the steps of a sequence do.
    """
    digests: dict[str, list[int]] = {}
    for unit in units:
        digests.setdefault(digest(samples, unit), []).extend(unit)
    if len(units) == 1:  # the steps of one sequence: parts that follow each other
        steps = list(units[0])
        count = min(FOLDS, len(steps))
        return [part.tolist() for part in np.array_split(np.array(steps), count)]
    count = min(FOLDS, len(digests))
    folds: list[list[int]] = [[] for _ in range(count)]
    for rank, name in enumerate(sorted(digests)):
        folds[rank % count].extend(digests[name])
    return folds


def scored(folds: Sequence[Sequence[int]]) -> list[list[int]]:
    """Of each fold the samples that are scored: SCORED in all, the first ones."""
    share = max(SCORED // len(folds), 1)
    return [list(fold[:share]) for fold in folds]


def evenly(indices: Sequence[int], limit: int) -> list[int]:
    """At most `limit` of them, evenly spaced."""
    if len(indices) <= limit:
        return list(indices)
    return [indices[int(at)] for at in np.linspace(0, len(indices) - 1, limit).round()]


def held_folds(folds: Sequence[Sequence[int]]) -> range:
    """The folds that are held out together from what is learnt only once: a fifth, or more where that is few.

    With HELD samples or more in them, but never more than half of the folds.
    """
    first = len(folds) - 1
    while first > (len(folds) + 1) // 2 and sum(map(len, folds[first:])) < HELD:
        first -= 1
    return range(first, len(folds))


def ranges_of(
    candidate: Callable[[Histogram], Range],
    layout: Layout,
    collected: Collected,
    left_out: Collection[int] = (),
) -> dict[str, Range]:
    """A candidate's range of each group, from all folds but some.

    Inputs and outputs of the network keep all that occurred: cutting values that separate classes costs
    more than any step saves, and pixels fit 8 bits as they are.
    """
    kept = layout.ends | layout.inputs
    histograms = without(collected, left_out)
    return {owner: (minmax if owner in kept else candidate)(histograms[owner]) for owner in layout.groups}


def without(collected: Collected, left_out: Collection[int]) -> dict[str, Histogram]:
    """The histograms of all folds but some, together."""
    parts = [fold for index, fold in enumerate(collected) if index not in left_out]
    return {owner: merged([part[owner] for part in parts]) for owner in parts[0]}


def choose(
    names: Sequence[str],
    trial: Trial,
    layout: Layout,
    folds: Sequence[Sequence[int]],
    collected: Collected,
    pool: Executor,
    progress: Progress,
) -> Choice:
    """Score candidates and take the best; the first of equals.

    Args:
        names: of ranges.CANDIDATES, the one that wins unless another is better first.
        trial: the network.
        layout: what of it is quantised.
        folds: of `deal`; with fewer than two nothing can be held out, and the first name wins.
        collected: the histograms of each fold.
        pool: where trials run.
        progress: called with (done, all).
    """
    if len(folds) < 2:
        return Choice(names[0], ranges_of(CANDIDATES[names[0]], layout, collected), {}, (), 0)
    chosen = scored(folds)
    others = [without(collected, [index]) for index in range(len(folds))]
    tasks = [
        (ranges_of(CANDIDATES[name], layout, [others[index]]), which)
        for name in names
        for index, which in enumerate(chosen)
    ]
    results = score_all(trial, tasks, pool, progress)
    errors = {
        name: [error for part in results[index * len(folds) : (index + 1) * len(folds)] for error in part]
        for index, name in enumerate(names)
    }
    best = min(names, key=lambda name: badness(errors[name]) * (GAIN if name == "minmax" else 1))
    return Choice(
        best,
        ranges_of(CANDIDATES[best], layout, collected),
        {name: Score.of(errors[name]) for name in names},
        errors[best],
        len(folds),
    )
