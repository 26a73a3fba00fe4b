"""`towline run --repeat`: the time of an inference, on the wall and on the device, as percentiles."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from towline.cli.options import positive, whole

if TYPE_CHECKING:
    from sdk.graph import Array
    from sdk.session import Session

FIGURES = {"min": 0, "median": 50, "p90": 90, "p99": 99, "max": 100}
"""Percentiles by their keys; between two measurements they are interpolated."""


def add_repeat(parser: argparse.ArgumentParser) -> None:
    """Declare --repeat and --warmup."""
    parser.add_argument(
        "--repeat",
        type=positive,
        default=1,
        metavar="N",
        help="run each input N times, and report the wall time",
    )
    parser.add_argument(
        "--warmup",
        type=whole,
        default=0,
        metavar="N",
        help="inferences before those that are timed (default: 0)",
    )


class Stopwatch:
    """Runs inferences and keeps their wall seconds, those of `Session.run`, and the device's own.

    Args:
        repeat: inferences for each input.
        warmup: inferences on the first input that are not timed.
    """

    def __init__(self, repeat: int, warmup: int) -> None:
        self.seconds: list[float] = []
        self.device: list[float] = []
        self._repeat = repeat
        self._warmup = warmup

    def run(self, session: Session, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs for one input, the same each time."""
        if not self.seconds:
            for _ in range(self._warmup):
                session.run(feeds)
        outputs: dict[str, Array] = {}
        for _ in range(self._repeat):
            started = time.perf_counter()
            outputs = session.run(feeds)
            self.seconds.append(time.perf_counter() - started)
            if (own := session.device_seconds) is not None:
                self.device.append(own)
        return outputs

    def to_json(self, session: Session) -> dict[str, Any]:
        """Seconds: the percentiles of `FIGURES`; `emulated` says that they are the emulator's.

        If the device measures itself, the same of its seconds under `device`, and `each` of them.
        """
        document: dict[str, Any] = {
            "runs": len(self.seconds),
            "warmup": self._warmup,
            **_percentiles(self.seconds),
            "emulated": session.emulated,
        }
        if self.device:
            document["device"] = {**_percentiles(self.device), "each": self.device}
        return document


def _percentiles(seconds: list[float]) -> dict[str, float]:
    import numpy as np

    found = np.percentile(seconds, list(FIGURES.values()))
    return {name: float(value) for name, value in zip(FIGURES, found, strict=True)}


def device_line(document: Mapping[str, Any]) -> str:
    """What the device has measured, as a sentence."""
    own = document["device"]
    if len(own["each"]) == 1:
        return f"time of the inference, by the device's clock: {_duration(own['median'])}"
    found = ", ".join(f"{name} {_duration(own[name])}" for name in FIGURES)
    return f"time of one inference, by the device's clock: {found}"


def line(document: Mapping[str, Any]) -> str:
    """`to_json`'s document as a sentence."""
    found = ", ".join(f"{name} {_duration(document[name])}" for name in FIGURES)
    text = f"time of one inference, of {document['runs']} after {document['warmup']} to warm up: {found}"
    return text + (" (the emulator's wall time, not the device's)" if document["emulated"] else "")


def _duration(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"
