"""A report as plain values: the JSON document, and the table of layers that text and HTML share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sdk.debugging.advice import advice, verdict
from sdk.debugging.figures import Difference, Layer, Report
from sdk.debugging.sensitivity import Sensitivities
from sdk.report import Cell


def document(report: Report) -> dict[str, Any]:
    """The figures; `first_diverging` is an index into `layers`, null for none."""
    diverging = report.diverging
    return {
        "target": report.target,
        "device": report.device,
        "arithmetic": report.arithmetic,
        "inputs": report.samples,
        "answers": report.answers,
        "verdict": verdict(report),
        "advice": advice(report),
        "elements": report.elements,
        "mismatches": report.mismatches,
        "plain_layers": report.plain,
        "first_diverging": None if report.divergence is None else report.divergence.layer,
        "first_diverging_layer": None if diverging is None else diverging.node,
        "broken_layers": [layer.node for layer in report.broken],
        "sensitivity": None if report.sensitivity is None else _sensitivity(report.sensitivity),
        "quantization": None
        if report.made is None
        else {key: value for key, value in report.made.items() if key != "inputs"},
        "seen_in_calibration": report.seen if report.made and "inputs" in report.made else None,
        "layers": [_layer(layer) for layer in report.layers],
    }


def _layer(layer: Layer) -> dict[str, Any]:
    tensor = layer.tensor
    target, model, error = layer.target, layer.onnxruntime, layer.real
    first = None if target is None else target.first
    return {
        "node": layer.node,
        "op": layer.op,
        "tensor": tensor.name,
        "shape": list(tensor.shape),
        "dtype": tensor.dtype,
        "scale": tensor.scale,
        "zero_point": tensor.zero_point,
        "clamp": list(layer.clamp),
        "used": list(layer.used),
        "range_used": layer.range_used,
        "saturated": layer.saturated,
        "zeros": layer.zeros,
        "target": None
        if target is None
        else {
            "elements": target.elements,
            "mismatches": target.mismatches,
            "own_mismatches": layer.own_mismatches,
            "max_abs_diff": target.max_abs_diff,
            "sqnr_db": target.sqnr_db,
            "first": None
            if first is None
            else {
                "input": first.sample,
                "index": list(first.index),
                "target": first.actual,
                "reference": first.expected,
            },
        },
        "gain_db": layer.gain_db,
        "target_in": layer.target_in or None,
        "onnxruntime": None
        if model is None
        else {
            "elements": model.elements,
            "mismatches": model.mismatches,
            "max_abs_diff": model.max_abs_diff,
            "own_max_abs_diff": layer.onnxruntime_own,
            "sqnr_db": model.sqnr_db,
        },
        "onnxruntime_in": layer.model_in or None,
        "float": None
        if error is None
        else {
            "sqnr_db": error.sqnr_db,
            "own_sqnr_db": error.own_sqnr_db,
            "clipped": error.clipped / layer.elements,
        },
    }


def _sensitivity(found: Sensitivities) -> dict[str, Any]:
    return {
        "samples": found.samples,
        "sqnr_db": found.sqnr_db,
        "tried": len(found.gains),
        "units": found.units,
        "gains": [
            {"node": gain.node, "nodes": list(gain.unit), "gain_db": gain.gain_db, "macs": gain.macs}
            for gain in found.gains
        ],
    }


def columns(layers: Sequence[Layer]) -> dict[str, list[Cell]]:
    """The table of layers by its headings; without those that would be empty."""
    result: dict[str, list[Cell]] = {
        "#": list(range(len(layers))),
        "layer": [layer.node for layer in layers],
        "operator": [layer.op for layer in layers],
        "output": ["x".join(map(str, layer.tensor.shape)) for layer in layers],
    }
    if any(layer.real for layer in layers):
        errors = [layer.real for layer in layers]
        result["float dB"] = [error.sqnr_db if error else None for error in errors]
        result["alone"] = [error.own_sqnr_db if error else None for error in errors]
        result["clipped %"] = [
            100 * layer.real.clipped / layer.elements if layer.real else None for layer in layers
        ]
    if any(layer.gain_db is not None for layer in layers):
        result["gain dB"] = [layer.gain_db for layer in layers]
    if any(layer.onnxruntime for layer in layers):
        result["onnxruntime differs"] = [_differs(layer.onnxruntime, layer.model_in) for layer in layers]
    result["target differs"] = [_differs(layer.target, layer.target_in) for layer in layers]
    if any(layer.differs for layer in layers):
        wrong = [layer.target if layer.differs else None for layer in layers]
        result["own"] = [layer.own_mismatches if layer.differs else None for layer in layers]
        result["by"] = [target.max_abs_diff if target else None for target in wrong]
        result["dB"] = [target.sqnr_db if target else None for target in wrong]
        result["first"] = [_first(target) for target in wrong]
    result["saturated %"] = [100 * layer.saturated for layer in layers]
    result["range %"] = [100 * layer.range_used for layer in layers]
    return result


def _differs(difference: Difference | None, held_in: str) -> str:
    if difference is None:
        return f"in {held_in}" if held_in else ""
    return f"{difference.mismatches:,}" if difference.mismatches else "equal"


def _first(difference: Difference | None) -> str:
    if difference is None or (first := difference.first) is None:
        return ""
    return f"{list(first.index)}: {first.actual} not {first.expected}"
