"""A coordinate search over the ranges of activations, scored at the network's outputs.

One group of tensors after the other, from the network's end to its beginning, its range is made smaller or
larger, and what lowers the score stays. That fits the samples it is scored on; so it is scored without the
folds that `choose.held_folds` holds out, and after each round they decide whether the round is kept.

Every step is kept in the cache, under a digest of all that determines it: a search that was interrupted
continues, and one that is repeated ends at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from sdk import cache
from sdk.quantizer.choose import SCORED, Score, badness, evenly, held_folds
from sdk.quantizer.layout import Layout
from sdk.quantizer.ranges import Range
from sdk.quantizer.trial import Trial, score_all

ROUNDS: tuple[tuple[float, ...], ...] = ((0.6, 0.75, 0.87, 1.15, 1.35), (0.82, 0.93, 1.07, 1.2))
"""Factors that are tried in each round. No range grows beyond all values that occurred."""

SCHEMA = "2"
"""Part of the digest; another number where the search itself changes."""


@dataclass(frozen=True)
class Searched:
    """What a search found.

    Attributes:
        ranges: the best.
        rounds: rounds that were kept; 0 if the first ranges were better on the samples held out.
        calibration: SQNR at the outputs on the samples that it was scored on, with `ranges`.
        before, held_out: the same on the samples held out, with the first ranges and with `ranges`.
        tried: ranges that were scored, those of an interrupted run included.
        known: of these, how many an earlier run had scored.
    """

    ranges: dict[str, Range]
    rounds: int
    calibration: Score
    before: Score
    held_out: Score
    tried: int
    known: int


def search(
    trial: Trial,
    layout: Layout,
    start: Mapping[str, Range],
    widest: Mapping[str, Range],
    folds: Sequence[Sequence[int]],
    pool: Executor,
    progress: Callable[[int, int], None],
) -> Searched:
    """Search from `start`; the same result whatever the pool, and however often it was interrupted.

    Args:
        trial: the network.
        layout: what of it is quantised.
        start: a range of each group, found without the folds that are held out.
        widest: what no range exceeds.
        folds: two or more.
        pool: where trials run.
        progress: called with (groups done, all, over all rounds).

    Raises:
        OutputFailed: the cache cannot be written.
    """
    held_out = held_folds(folds)
    scored = evenly([index for fold in folds[: held_out.start] for index in fold], SCORED)
    held = evenly([index for fold in folds[held_out.start :] for index in fold], SCORED)
    owners = [owner for owner in reversed(list(layout.groups)) if owner not in layout.ends]
    facts = (SCHEMA, trial.digest(), repr(sorted(start.items())), repr((scored, held, ROUNDS, owners)))
    path = cache.directory("searches") / f"{cache.digest(facts)}.json"
    kept = cache.load(path)
    state = _State.read(kept) if kept is not None else None
    total = len(owners) * len(ROUNDS)

    def errors(ranges: Mapping[str, Range], which: Sequence[int]) -> list[float]:
        tasks = [(ranges, [index]) for index in which]
        return [error for (error,) in score_all(trial, tasks, pool, lambda done, steps: None)]

    if state is None:
        ranges = dict(start)
        state = _State(0, ranges, badness(errors(ranges, scored)), [[ranges, errors(ranges, held)]], 1)
    known = state.tried
    progress(state.position, total)
    while state.position < total:
        index, at = divmod(state.position, len(owners))
        owner = owners[at]
        tasks = []
        for factor in ROUNDS[index]:
            low, high = state.ranges[owner]
            lowest, highest = widest[owner]
            changed = (max(low * factor, lowest), min(high * factor, highest))
            if changed != state.ranges[owner]:
                tasks.append(({**state.ranges, owner: changed}, scored))
        for (candidate, _), found in zip(
            tasks, score_all(trial, tasks, pool, lambda done, steps: None, state.best), strict=True
        ):
            if len(found) == len(scored) and badness(found) < state.best:
                state.ranges, state.best = dict(candidate), badness(found)
        state.tried += len(tasks)
        state.position += 1
        if at == len(owners) - 1:
            state.kept.append([state.ranges, errors(state.ranges, held)])
        cache.keep(path, state.to_bytes())
        progress(state.position, total)
    # Neither figure may fall: of few samples one of them can gain by chance.
    before = Score.of(state.kept[0][1]).mean
    fair = [number for number, (_, found) in enumerate(state.kept) if Score.of(found).mean >= before]
    best = min(fair, key=lambda number: badness(state.kept[number][1]))
    ranges, after = state.kept[best]
    return Searched(
        ranges,
        best,
        Score.of(errors(ranges, scored)),
        Score.of(state.kept[0][1]),
        Score.of(after),
        state.tried,
        known if known > 1 else 0,
    )


@dataclass
class _State:
    """How far a search is.

    Attributes:
        position: groups done, over all rounds.
        ranges, best: the best yet, and its badness.
        kept: ranges and errors on the samples held out: at first, and behind each round.
        tried: ranges scored.
    """

    position: int
    ranges: dict[str, Range]
    best: float
    kept: list[Any]
    tried: int

    def to_bytes(self) -> bytes:
        return json.dumps(vars(self)).encode()

    @staticmethod
    def read(data: bytes) -> _State | None:
        """None if it is damaged."""
        try:
            state = _State(**json.loads(data))
            state.ranges = _ranges(state.ranges)
            state.kept = [[_ranges(ranges), [float(e) for e in errors]] for ranges, errors in state.kept]
            return state if state.kept and state.position >= 0 else None
        except (ValueError, TypeError, AttributeError, RecursionError):
            return None


def _ranges(document: Mapping[str, Sequence[float]]) -> dict[str, Range]:
    return {name: (float(low), float(high)) for name, (low, high) in document.items()}
