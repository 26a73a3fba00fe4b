"""What the network's outputs gain when a layer's result stays in floats, one layer after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sdk.graph import Array
from sdk.quantizer.fidelity import decibels
from sdk.quantizer.mixed import Gain, Sensitivity

SAMPLES = 4
"""Inputs that are scored at most: a layer's gain depends little on them, and each is run once per layer."""

SECONDS = 60.0
"""How long it may take by default."""

Feeds = Mapping[str, Array]
Scorer = Callable[[Sequence[Feeds]], Sensitivity]
"""`mixed.of_files` for the two models, given inputs."""


@dataclass(frozen=True)
class Sensitivities:
    """What was found.

    Attributes:
        samples: inputs that were scored.
        sqnr_db: of the outputs with nothing in floats.
        gains: greatest gain first.
        units: how many there are to try; more than `gains` where the time ran out.
    """

    samples: int
    sqnr_db: float
    gains: tuple[Gain, ...]
    units: int


def sensitivities(
    scorer: Scorer,
    samples: Sequence[Feeds],
    order: Sequence[str],
    seconds: float,
    progress: Callable[[str, int, int], None],
) -> Sensitivities:
    """Try the layers one by one, those that lose most by themselves first, until the time is over.

    Args:
        scorer: makes what scores.
        samples: inputs of the network; the first SAMPLES are taken.
        order: names of nodes, the most promising first; others follow.
        seconds: after these no further layer is begun.
        progress: called with (stage, done, all).

    Raises:
        TowlineError: as `mixed.of_files`.
    """
    ends = time.monotonic() + seconds
    sensitivity = scorer(samples[:SAMPLES])
    first = [node for node in dict.fromkeys(order) if node in sensitivity.units]
    names = list(dict.fromkeys([*first, *sensitivity.units]))
    gains: list[Gain] = []
    for node in names:
        progress("sensitivity", len(gains), len(names))
        if time.monotonic() >= ends:
            break
        gains.append(sensitivity.gain(node))
    progress("sensitivity", len(names), len(names))
    gains.sort(key=lambda gain: (-gain.gain_db, gain.node))
    return Sensitivities(
        samples=min(len(samples), SAMPLES),
        sqnr_db=decibels(1.0, sensitivity.error),
        gains=tuple(gains),
        units=len(names),
    )
