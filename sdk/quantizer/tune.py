"""The stages between a float network and its final ranges: choose, weights, floats, search.

Each is scored on samples that had no part in it. The candidates' ranges take turns over all folds; what is
costlier to learn (weights, the search) is learnt once, without the folds that `held_folds` names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from sdk.errors import UsageError
from sdk.quantizer import mixed, weights
from sdk.quantizer.calibration import Progress
from sdk.quantizer.choose import (
    GAIN,
    Choice,
    Collected,
    Score,
    badness,
    choose,
    evenly,
    held_folds,
    ranges_of,
    scored,
)
from sdk.quantizer.collect import collect
from sdk.quantizer.mixed import Sensitivity
from sdk.quantizer.ranges import CANDIDATES, Range
from sdk.quantizer.report import WeightTrial
from sdk.quantizer.search import Searched, search
from sdk.quantizer.trial import score_all
from sdk.quantizer.work import Work

FEW = 8
"""Samples on which nodes are ranked."""


@dataclass(frozen=True)
class Options:
    """What is tried on the weights."""

    equalize: bool = False
    round: bool = False
    bias: bool = False


@dataclass(frozen=True)
class Tuned:
    """What the stages found.

    Attributes:
        work: the network with the weights and the nodes in floats that were kept.
        ranges: of each group of its layout.
        choice: of the candidate.
        weights: what was tried on them.
        searched: what the search found; None without one.
        held_out: SQNR at the outputs on samples held out; None if none was.
    """

    work: Work
    ranges: dict[str, Range]
    choice: Choice
    weights: tuple[WeightTrial, ...]
    searched: Searched | None
    held_out: Score | None


def tune(
    work: Work,
    names: Sequence[str],
    options: Options,
    searching: bool,
    auto_float: float | None,
    report: Progress,
    lap: Callable[[str], None],
) -> Tuned:
    """Run the stages.

    Args:
        work: the network.
        names: candidates for ranges.
        options: what to try on weights.
        searching: whether to search from the best candidate.
        auto_float: a figure in dB to reach by keeping nodes in floats.
        report: called with (stage, done, all).
        lap: called with a stage's name at its end.

    Raises:
        UsageError: a stage was asked for that needs samples to hold out, and there are too few.
        Unsupported: the figure of `auto_float` needs the whole network in floats.
    """

    def stage(name: str) -> Callable[[int, int], None]:
        return lambda done, steps: report(name, done, steps)

    counts: Collected = collect(work.prepared, work.layout, work.data.samples, work.folds, stage("calibrate"))
    lap("calibrate")
    choice = choose(names, work.trial, work.layout, work.folds, counts, work.pool, stage("try ranges"))
    lap("choose ranges")
    if choice.folds == 0 and (searching or auto_float is not None or any(vars(options).values())):
        raise UsageError(
            "a search, automatic floats and the options for weights are scored on samples held out: "
            "at least two different samples are needed",
            hint="give more calibration samples",
        )
    candidate = CANDIDATES[choice.name]
    held_out = choice.scores.get(choice.name)
    tried: list[WeightTrial] = []
    if choice.folds:
        better = len(names) == len(CANDIDATES) and work.form.per_channel
        work, counts, tried = _weights(work, counts, choice.name, choice.errors, options, better, stage)
        if any(trial.kept for trial in tried):
            learnt = any(trial.kept and trial.name != "scales" for trial in tried)
            parts = held_folds(work.folds) if learnt else range(len(work.folds))
            held_out = Score.of(_errors_held_out(work, counts, choice.name, parts))
        lap("weights")
    if auto_float is not None:
        work, held_out = _floats(work, counts, choice.name, auto_float, stage)
        counts = _restricted(counts, work)
        lap("floats")
    ranges = ranges_of(candidate, work.layout, counts)
    searched = None
    if searching:
        held = held_folds(work.folds)
        start = ranges_of(candidate, work.layout, counts, held)
        widest = ranges_of(CANDIDATES["minmax"], work.layout, counts, held)
        searched = search(
            work.trial, work.layout, start, widest, work.folds, work.pool, stage("search ranges")
        )
        if searched.rounds:
            fixed = work.layout.ends | {
                owner for owner in searched.ranges if searched.ranges[owner] == start[owner]
            }
            ranges = {
                owner: ranges[owner] if owner in fixed else found for owner, found in searched.ranges.items()
            }
        held_out = searched.held_out
        lap("search")
    return Tuned(work, ranges, choice, tuple(tried), searched, held_out)


def _errors_held_out(work: Work, counts: Collected, name: str, parts: Collection[int]) -> list[float]:
    """Relative errors on some folds; each with ranges of the others, or all with those of the rest."""
    tasks = []
    for index in parts:
        left_out = parts if len(parts) < len(work.folds) else [index]
        ranges = ranges_of(CANDIDATES[name], work.layout, counts, left_out)
        tasks.append((ranges, scored(work.folds)[index]))
    results = score_all(work.trial, tasks, work.pool, lambda done, steps: None)
    return [error for part in results for error in part]


def _weights(
    work: Work,
    counts: Collected,
    name: str,
    errors_before: Sequence[float],
    options: Options,
    better_scales: bool,
    stage: Callable[[str], Callable[[int, int], None]],
) -> tuple[Work, Collected, list[WeightTrial]]:
    """Try on the weights what was asked for.

    Scales of weights learn nothing from samples, and are scored on all of them. They are tried
    unasked, and must gain as clearly as another candidate for ranges.
    """
    held = held_folds(work.folds)
    learnt = [index for fold in work.folds[: held.start] for index in fold]
    learnt = evenly(learnt, weights.SAMPLES)
    tried: list[WeightTrial] = []

    everything = range(len(work.folds))

    def attempt(label: str, variant: Work, new: Collected, parts: Collection[int] = held) -> None:
        nonlocal work, counts
        first = parts is everything
        before = errors_before if first else _errors_held_out(work, counts, name, parts)
        errors = _errors_held_out(variant, new, name, parts)
        kept = badness(errors) < badness(before) * (GAIN if first else 1)
        tried.append(WeightTrial(label, kept, Score.of(errors).mean - Score.of(before).mean))
        if kept:
            work, counts = variant, new

    if better_scales:
        attempt("scales", weights.scales(work), counts, everything)
    if options.equalize:
        variant = weights.equalize(work, learnt)
        new = collect(
            variant.prepared, variant.layout, work.data.samples, work.folds, stage("calibrate again")
        )
        attempt("equalize", variant, new)
    if options.round:
        attempt("round", weights.round_weights(work, learnt, stage("round weights")), counts)
    if options.bias:
        ranges = ranges_of(CANDIDATES[name], work.layout, counts, held)
        attempt("bias", weights.correct_biases(work, ranges, learnt, stage("correct biases")), counts)
    return work, counts, tried


def _floats(
    work: Work,
    counts: Collected,
    name: str,
    target_db: float,
    stage: Callable[[str], Callable[[int, int], None]],
) -> tuple[Work, Score]:
    """Keep nodes in floats until the mean SQNR over all folds, each held out, reaches a figure."""
    few = evenly([index for fold in work.folds for index in fold], FEW)
    sensitivity = Sensitivity(
        work.prepared,
        work.layout,
        ranges_of(CANDIDATES[name], work.layout, counts),
        [work.data.samples[index] for index in few],
        [work.expected[index] for index in few],
        work.form.activation,
    )
    scores: dict[frozenset[str], Score] = {}

    def score(nodes: frozenset[str]) -> float:
        variant = work.variant(keep_float=work.keep_float | nodes) if nodes else work
        if not variant.layout.groups:
            scores[nodes] = Score(200.0, 200.0)
        else:
            parts = scored(variant.folds)
            known = _restricted(counts, variant)
            tasks = [
                (ranges_of(CANDIDATES[name], variant.layout, known, [index]), which)
                for index, which in enumerate(parts)
            ]
            results = score_all(variant.trial, tasks, work.pool, lambda done, steps: None)
            scores[nodes] = Score.of([error for part in results for error in part])
        return scores[nodes].mean

    nodes = mixed.until(target_db, sensitivity, score, stage("rank nodes"))
    return work.variant(keep_float=work.keep_float | nodes), scores[nodes]


def _restricted(counts: Collected, work: Work) -> Collected:
    """The histograms of the groups that are left when more nodes are in floats."""
    return [{owner: fold[owner] for owner in work.layout.groups} for fold in counts]
