"""The tables of an evaluation that text and HTML share: columns by their headings."""

from __future__ import annotations

from collections.abc import Sequence

from sdk.evaluation.compute import FLOAT, TARGET, Record
from sdk.evaluation.figures import Evaluation, sqnr_db
from sdk.report import Cell

Columns = dict[str, list[Cell]]


def summary(found: Evaluation) -> Columns:
    """One row for each figure, one column for each thing that was evaluated; without what is unknown."""
    rows: list[tuple[str, dict[str, str]]] = []
    if (top1 := found.top1) is not None:
        others = {who: share for who, share in top1.items() if who != found.against}
        rows.append((f"class as {found.against}", _percent(others)))
    if (shares := found.top1_labels) is not None:
        rows.append(("class as labelled", _percent(shares)))
    if (noise := found.sqnr_db) is not None:
        rows.append(("SQNR, mean", {who: f"{db['mean']:.1f} dB" for who, db in noise.items()}))
        rows.append(("SQNR, least", {who: f"{db['min']:.1f} dB" for who, db in noise.items()}))
    if (greatest := found.max_abs_diff) is not None:
        rows.append(("largest difference", {who: f"{value:.4g}" for who, value in greatest.items()}))
    result: Columns = {"": [name for name, _ in rows]}
    for who in found.evaluated:
        if any(who in cells for _, cells in rows):
            result[who] = [cells.get(who, "") for _, cells in rows]
    return result


def verdict(found: Evaluation) -> str:
    """Target against reference at the outputs, in a sentence."""
    compared = f"{found.elements:,} elements of the outputs"
    greatest = max((record.max_mismatch for record in found.found), default=0.0)
    if not found.exact:
        return (
            f"{found.target} and its reference, which has float layers, differ by at most {greatest:.3g} in "
            f"{compared}; `towline run --check` holds each layer against its bound"
        )
    if not found.mismatches:
        return f"{found.target} equals its reference in {compared}"
    return (
        f"{found.target} differs from its reference in {found.mismatches:,} of {compared}, for "
        f"{len(found.wrong)} of {len(found.found)} inputs, by up to {greatest:.3g}"
    )


def pictures(found: Evaluation, records: Sequence[Record]) -> Columns:
    """One row for each input: its SQNR, its classes and its label, as far as they are known."""
    result: Columns = {"image": [record.name for record in records]}
    if FLOAT in found.evaluated:
        result["SQNR dB"] = [sqnr_db(record, TARGET) for record in records]
    if found.classifier:
        for who in (found.against, TARGET):
            result[who] = [found.class_name(record.classes[who]) for record in records]
        if found.labels is not None:
            result["label"] = [found.class_name(found.labels[record.name]) for record in records]
    return result


def confusion(found: Evaluation) -> Columns:
    """How often the target gives another class than the float model, by both classes."""
    pairs = found.confusion
    return {
        found.against: [found.class_name(a) for a, _, _ in pairs],
        TARGET: [found.class_name(b) for _, b, _ in pairs],
        "images": [count for _, _, count in pairs],
    }


def _percent(shares: dict[str, float]) -> dict[str, str]:
    return {who: f"{100 * share:.1f} %" for who, share in shares.items()}
