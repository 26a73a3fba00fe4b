"""What a report says, in words: what is wrong, where, and what to look at next."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sized
from typing import Any

import numpy as np

from sdk.debugging.figures import Divergence, Report

FEW = 6
"""Channels, rows or columns that a sentence names one by one."""

LOSSY_DB = 10.0
"""Below this a layer loses more than networks tolerate: the noise is a third of the signal's amplitude."""

WEIGHTED = {"Conv", "Gemm"}

CLIPPED = 0.01
"""Share of elements beyond the quantised range from which it is reported."""

NARROW = 0.25
"""Share of the range below which levels are wasted."""

FEW_SAMPLES = 8
"""Calibration inputs below which ranges depend on which they are."""

OVERFIT_DB = 3.0
"""By this a score on the calibration's own inputs may exceed that on others."""

WORTHWHILE_DB = 1.0
"""What the outputs must gain for a layer in floats to be advised."""


def verdict(report: Report) -> str:
    """The outcome of target against reference, in a sentence."""
    layer = report.diverging
    compared = f"{report.elements:,} elements"
    if layer is None or layer.target is None or layer.target.first is None:
        return f"{report.target} equals its reference in every layer: {compared} compared, no mismatch"
    first = layer.target.first
    return (
        f"{report.target} first differs from its reference in {layer.node} ({layer.op}), at element "
        f"{list(first.index)}: {first.actual} instead of {first.expected}; "
        f"{layer.target.mismatches:,} of the layer's {layer.target.elements:,} elements differ, by up to "
        f"{layer.target.max_abs_diff}"
    )


def advice(report: Report) -> list[str]:
    """What to look at next, the most urgent first; empty if nothing stands out."""
    return [*_target(report), *_onnxruntime(report), *_float(report)]


def pattern(divergence: Divergence, operators: Collection[str]) -> str:
    """Where in its tensor a layer differs, and what that usually means.

    Args:
        divergence: where.
        operators: what the target computed since the last result that it kept.
    """
    peak = divergence.peak
    channels, (height, width) = len(divergence.channels), peak.shape
    hit, rows, columns = (
        np.flatnonzero(wrong).tolist() for wrong in (divergence.channels, peak.any(axis=1), peak.any(axis=0))
    )
    where = [_some("channel", hit, channels)] if channels > 1 else []
    where += [_some("row", rows, height)] if height > 1 else []
    where += [_some("column", columns, width)] if width > 1 else []
    text = "it differs in " + ", ".join(where) if where else "it differs"
    if divergence.channels.sum() == 1:
        return f"{text}: a single element"
    if peak.max() == 1:
        return f"{text}, never by more than 1: look at rounding and the requantisation's constants"
    if "Lookup" in operators:
        return f"{text}: look at its table"
    if len(hit) < channels and (2 * len(hit) < channels or (len(rows), len(columns)) == (height, width)):
        if len(hit) > 1 and hit == list(range(hit[0], channels)):
            return (
                f"{text}: look at how the last channels, those that do not fill a whole vector, are computed"
            )
        if WEIGHTED.intersection(operators):
            return f"{text}: look at the weights, biases and scales of these channels"
        return f"{text}: look at what these channels are read from"
    few_rows = len(rows) * width <= len(columns) * height
    if few_rows and len(rows) < height and rows[-1] - rows[0] < len(rows) and rows[-1] == height - 1:
        return f"{text}: the last rows, so look at where the work ends, and at the padding"
    if not few_rows and columns[-1] - columns[0] < len(columns) and columns[-1] == width - 1:
        return f"{text}: the ends of rows, so look at what remains after whole vectors, and at the padding"
    if height > 2 and width > 2 and not peak[1:-1, 1:-1].any():
        return f"{text}: only the border, so look at the padding"
    return f"{text}: look at the layout of its input and at its constants"


def _target(report: Report) -> list[str]:
    layer, divergence = report.diverging, report.divergence
    if layer is None or divergence is None:
        return []
    inside = [other for other in report.layers if other.target is None and other.target_in == layer.node]
    found = pattern(divergence, {layer.op, *(other.op for other in inside)})
    result = [f"{layer.node}: {found}"]
    if inside:
        names = _list([other.node for other in inside])
        result.append(f"{layer.node} is the first result that the target keeps since {names}")
    others = [other.node for other in report.broken if other is not layer]
    follow = sum(other.differs for other in report.layers) - len(report.broken)
    if report.misread:
        result.append(
            f"{_list([other.node for other in report.misread])}: correct, so it read something other than "
            "the target shows: look at how results are read back, and at buffers written to too early"
        )
    if others:
        result.append(f"also wrong from their own inputs: {_list(others)}")
    if follow:
        result.append(f"{follow} later layers differ only because of their inputs: look at them last")
    return result


def _onnxruntime(report: Report) -> list[str]:
    pairs = [(layer, found) for layer in report.layers if (found := layer.onnxruntime) and found.mismatches]
    if not pairs:
        return []
    (first, found), (worst, most) = pairs[0], max(pairs, key=lambda pair: pair[1].max_abs_diff)
    wrong = [layer for layer in report.layers if layer.onnxruntime_own > 1]
    if wrong:
        return [
            f"{layer.node} ({layer.op}): onnxruntime's result for the same inputs differs by up to "
            f"{layer.onnxruntime_own}, more than rounding explains: look at how it was imported"
            for layer in wrong[:FEW]
        ]
    why = (
        "rounding of ties"
        if report.arithmetic == "f32"
        else f"{report.arithmetic} rounds differently from onnxruntime's floats"
    )
    return [
        f"the reference first differs from onnxruntime in {first.node} ({first.op}), in {found.mismatches:,} "
        f"of {found.elements:,} elements, and most in {worst.node}, by up to {most.max_abs_diff}: {why}, "
        "never by more than 1 in a layer; it adds up with depth"
    ]


def _float(report: Report) -> list[str]:
    result = []
    layers = [(layer, layer.real) for layer in report.layers if layer.real is not None]
    owned = [(db, layer, error) for layer, error in layers if (db := error.own_sqnr_db) is not None]
    if owned:
        db, worst, error = min(owned, key=lambda found: found[0])
        lossy = error.sqnr_db < LOSSY_DB
        result.append(
            f"quantisation: {worst.node} ({worst.op}) loses most by itself, {db:.1f} dB"
            + (f"; {error.sqnr_db:.1f} dB including the layers before it" if error.sqnr_db < db else "")
            + (": quantise its weights per channel" if lossy and worst.one_scale else "")
        )
    made = report.made or {}
    if report.seen:
        result.append(
            f"{report.seen} of {len(report.samples)} inputs served to calibrate: "
            "their figures say less of others"
        )
    result += _calibration(made)
    result += _gains(report)
    plain = made.get("ranges") == "minmax"
    clipped = [
        (layer, error)
        for layer, error in layers
        if error.clipped > CLIPPED * layer.elements and (plain or not made or error.sqnr_db < LOSSY_DB)
    ]
    if clipped:
        layer, error = clipped[0]
        result.append(
            f"{layer.node}: {error.clipped / layer.elements:.1%} of the float values lie beyond its range"
            f"{_others(clipped)}: {_why_clipped(made)}"
        )
    narrow = [
        (layer, error)
        for layer, error in layers
        if layer.range_used < NARROW and error.sqnr_db < 2 * LOSSY_DB and not error.clipped
    ]
    if narrow:
        layer, _ = min(narrow, key=lambda found: found[0].range_used)
        result.append(
            f"{layer.node}: uses {layer.range_used:.0%} of its levels{_others(narrow)}: this input is weaker "
            f"than the calibration's{_why_narrow(made)}"
        )
    return result


def _why_clipped(made: Mapping[str, Any]) -> str:
    """What to do about values beyond a range: it depends on how the range was found."""
    ranges = made.get("ranges")
    if ranges == "minmax":  # all that the calibration's inputs reach
        return "no input of the calibration reached them, so calibrate with more, and more typical, inputs"
    if ranges:
        return (
            f"its range leaves out outliers ({ranges}), and this input has more of them than the "
            "calibration's: calibrate with inputs like this one"
        )
    return "this input is unlike the calibration's, or the calibration's method cuts too much"


def _why_narrow(made: Mapping[str, Any]) -> str:
    """Whether another method may help: where several were tried, the best of them is in use."""
    if made.get("method") == "minmax":
        return ", or outliers set the range: quantise without --method, which tries several"
    return (
        "" if made else ", or outliers set the range: quantise with `towline quantize`, which tries several"
    )


def _calibration(made: Mapping[str, Any]) -> list[str]:
    """What the model's own record says against its calibration."""
    samples, held_out, own = (made.get(key) for key in ("samples", "held_out_db", "calibration_db"))
    result = []
    if isinstance(samples, int) and samples < FEW_SAMPLES:
        result.append(
            f"the model was calibrated on {samples} {'input' if samples == 1 else 'inputs'}: use at least "
            f"{FEW_SAMPLES}, as different as those of its use"
        )
    if isinstance(held_out, int | float) and isinstance(own, int | float) and own - held_out > OVERFIT_DB:
        result.append(
            f"the model scored {own:.1f} dB on the calibration's inputs, and {held_out:.1f} dB on inputs "
            "that were held out: calibrate with more, and more typical, inputs"
        )
    return result


def _gains(report: Report) -> list[str]:
    """Which layers to keep in floats, if that is worth it."""
    found = report.sensitivity
    if found is None or not found.gains or found.sqnr_db >= 2 * LOSSY_DB:
        return []
    first = found.gains[0]
    if first.gain_db < WORTHWHILE_DB:
        return []
    others = [gain.node for gain in found.gains[1:3] if gain.gain_db >= WORTHWHILE_DB]
    tried = (
        "" if len(found.gains) == found.units else f" (of {len(found.gains)} of {found.units} layers tried)"
    )
    return [
        f"the outputs, at {found.sqnr_db:.1f} dB, gain most from {first.node} in floats{tried}: "
        f"{first.gain_db:.1f} dB"
        + (f"; next {_list(others)}" if others else "")
        + "; `towline quantize --auto-float DB` keeps such layers in floats"
    ]


def _others(found: Sized) -> str:
    return f", and so in {len(found) - 1} more layers" if len(found) > 1 else ""


def _some(what: str, hit: list[int], count: int) -> str:
    if len(hit) == count:
        return f"all {count} {what}s"
    if len(hit) == 1:
        return f"{what} {hit[0]} of {count}"
    if hit == list(range(hit[0], hit[-1] + 1)):
        return f"{what}s {hit[0]} to {hit[-1]} of {count}"
    if len(hit) <= FEW:
        return f"{what}s {', '.join(map(str, hit))} of {count}"
    return f"{len(hit)} of {count} {what}s"


def _list(names: list[str]) -> str:
    return ", ".join(names[:FEW]) + (f" and {len(names) - FEW} more" if len(names) > FEW else "")
