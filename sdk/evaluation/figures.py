"""What an evaluation found: the records of all inputs, summed up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from sdk.evaluation.compute import FLOAT, MODEL, REFERENCE, TARGET, Record
from sdk.quantizer.fidelity import decibels

WORST = 10
"""Inputs that are named for their low SQNR."""


@dataclass(frozen=True)
class Evaluation:
    """A compiled network on a set of inputs.

    Attributes:
        target, device, arithmetic: what was evaluated.
        source: where the inputs came from.
        records: one for each input, in order, those that could not be read included.
        available: inputs there were; more than the records if there was a limit.
        labels: the class that each input should have, by name; None without labels.
        class_names: names of the classes; None if the network has none.
        classifier: whether the network is one.
        exact: whether target and reference must be equal bit for bit.
        sequence: whether the inputs were steps of one sequence.
        warnings: what a reader should know before trusting the figures.
        not_compared: what was not evaluated, and what would be needed for it.
        paths: the files of pictures, by name.
        seconds: wall seconds of the whole.
    """

    target: str
    device: str
    arithmetic: str
    source: str
    records: Sequence[Record]
    available: int
    labels: Mapping[str, int] | None
    class_names: Sequence[str] | None
    classifier: bool
    exact: bool
    sequence: bool
    warnings: Sequence[str]
    not_compared: Sequence[str]
    paths: Mapping[str, str]
    seconds: float

    @cached_property
    def found(self) -> list[Record]:
        """The records of inputs that could be read."""
        return [record for record in self.records if not record.skipped]

    @property
    def skipped(self) -> list[Record]:
        return [record for record in self.records if record.skipped]

    @property
    def evaluated(self) -> list[str]:
        """What was evaluated: float, onnxruntime, reference, target, as far as there was a model."""
        known = self.found[0].seconds if self.found else {}
        return [who for who in (FLOAT, MODEL, REFERENCE, TARGET) if who in known]

    @property
    def against(self) -> str:
        """Whose classes the others are compared with: the float model's, or the reference's without one."""
        return FLOAT if FLOAT in self.evaluated else REFERENCE

    @property
    def top1(self) -> dict[str, float] | None:
        """Share of inputs with the class that `against` gives, by who gives it; None for no classifier."""
        return self._shares(lambda record: record.classes[self.against])

    @property
    def top1_labels(self) -> dict[str, float] | None:
        """Share of inputs with the class of their label; None without labels."""
        labels = self.labels
        return None if labels is None else self._shares(lambda record: labels[record.name])

    def _shares(self, expected: Callable[[Record], int]) -> dict[str, float] | None:
        if not self.classifier:
            return None
        return {
            who: sum(record.classes[who] == expected(record) for record in self.found) / len(self.found)
            for who in self.evaluated
        }

    @property
    def sqnr_db(self) -> dict[str, dict[str, float]] | None:
        """Mean and least of the inputs' SQNR against the float model; None without it."""
        if FLOAT not in self.evaluated:
            return None
        result = {}
        for who in self.evaluated:
            if who != FLOAT:
                each = [sqnr_db(record, who) for record in self.found]
                result[who] = {"mean": float(np.mean(each)), "min": min(each)}
        return result

    @property
    def max_abs_diff(self) -> dict[str, float] | None:
        """The largest difference from the float model; None without it."""
        if FLOAT not in self.evaluated:
            return None
        others = [who for who in self.evaluated if who != FLOAT]
        return {who: max(record.max_abs_diff[who] for record in self.found) for who in others}

    @property
    def elements(self) -> int:
        return sum(record.elements for record in self.found)

    @property
    def mismatches(self) -> int:
        """Elements of the outputs that the target computes otherwise than the reference."""
        return sum(record.mismatches for record in self.found)

    @property
    def wrong(self) -> list[Record]:
        """Inputs with such elements."""
        return [record for record in self.found if record.mismatches]

    @property
    def unlike(self) -> list[Record]:
        """Inputs that are nothing like those of the calibration."""
        return [record for record in self.found if record.unlike]

    @property
    def seen(self) -> int | None:
        """Inputs that the quantised model was calibrated on; None if that is unknown."""
        known = [record.seen for record in self.found if record.seen is not None]
        return sum(known) if known else None

    @property
    def changed(self) -> list[Record]:
        """Inputs to which the target gives another class than `against`."""
        return [
            record
            for record in self.found
            if record.classes and record.classes[TARGET] != record.classes[self.against]
        ]

    @property
    def worst(self) -> list[Record]:
        """Those with the lowest SQNR on the target, lowest first; empty without a float model."""
        if FLOAT not in self.evaluated:
            return []
        return sorted(self.found, key=lambda record: sqnr_db(record, TARGET))[:WORST]

    @property
    def confusion(self) -> list[tuple[int, int, int]]:
        """(class of `against`, class of the target, inputs) where the two differ, the most frequent first."""
        pairs = Counter((record.classes[self.against], record.classes[TARGET]) for record in self.changed)
        return [
            (a, b, count) for (a, b), count in sorted(pairs.items(), key=lambda pair: (-pair[1], pair[0]))
        ]

    def class_name(self, index: int) -> str:
        """A class as text: its name and number, or its number alone."""
        names = self.class_names or ()
        return f"{names[index]} ({index})" if index < len(names) else str(index)

    def to_json(self) -> dict[str, Any]:
        """The figures as plain JSON values."""
        document: dict[str, Any] = {
            "target": self.target,
            "device": self.device,
            "source": self.source,
            "images": len(self.found),
            "available": self.available,
            "skipped": [{"image": record.name, "reason": record.skipped} for record in self.skipped],
            "sequence": self.sequence,
            "top1": self.top1,
            "top1_against": self.against if self.classifier else None,
            "top1_labels": self.top1_labels,
            "sqnr_db": self.sqnr_db,
            "max_abs_diff": self.max_abs_diff,
            "mismatches": {
                "exact": self.exact,
                "elements": self.elements,
                "mismatches": self.mismatches,
                "images": len(self.wrong),
                "max_abs_diff": max((record.max_mismatch for record in self.found), default=0.0),
            },
            "confusion": [{"from": a, "to": b, "images": count} for a, b, count in self.confusion],
            "changed": [self._described(record) for record in self.changed],
            "worst": [self._described(record) for record in self.worst],
            "unlike_calibration": [record.name for record in self.unlike],
            "seen_in_calibration": self.seen,
            "warnings": list(self.warnings),
            "not_compared": list(self.not_compared),
        }
        spent: Counter[str] = Counter()
        for record in self.found:
            spent.update(record.seconds)
        return document | {"seconds": {**spent, "total": self.seconds}}

    def _described(self, record: Record) -> dict[str, Any]:
        return {
            "image": record.name,
            "sqnr_db": sqnr_db(record, TARGET) if record.errors else None,
            "classes": dict(record.classes),
            "label": None if self.labels is None else self.labels[record.name],
        }


def sqnr_db(record: Record, who: str) -> float:
    """Signal to quantisation noise of one input's outputs, in dB; 200 for no difference at all."""
    return decibels(1.0, record.errors[who])
