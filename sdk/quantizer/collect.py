"""Histograms of a float model's activations over the calibration samples."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any

from sdk.ort import onnxruntime_errors, session, with_outputs
from sdk.quantizer.calibration import Feeds
from sdk.quantizer.histograms import Counter, Histogram
from sdk.quantizer.layout import Layout
from sdk.quantizer.trial import Progress

THREADS = 2
"""Folds that are counted at once; each holds the activations of one sample."""


def collect(
    prepared: Any,
    layout: Layout,
    samples: Sequence[Feeds],
    folds: Sequence[Sequence[int]],
    progress: Progress,
) -> list[dict[str, Histogram]]:
    """The histogram of each group's values, by fold.

    Args:
        prepared: the float model.
        layout: what of it will be quantised.
        samples: inputs.
        folds: their indices, in parts.
        progress: called with (done, all).
    """
    owners = {name: owner for owner, names in layout.counted.items() for name in names}
    computed = [name for name in owners if name not in samples[0]]
    given = [name for name in owners if name in samples[0]]
    with onnxruntime_errors("run the model", "float model"):
        runner = session(with_outputs(prepared, computed))
    done, lock = 0, Lock()

    def count(fold: Sequence[int]) -> dict[str, Histogram]:
        nonlocal done
        found = {owner: Counter() for owner in layout.groups}
        for index in fold:
            with onnxruntime_errors("run the model", "float model"):
                values = runner.run(computed, samples[index]) if computed else []
            values += [samples[index][name] for name in given]
            for name, value in zip(computed + given, values, strict=True):
                found[owners[name]].add(value)
            with lock:
                done += 1
                progress(done, len(samples))
        return {owner: counter.histogram() for owner, counter in found.items()}

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(count, folds))
