"""What quantisation changed: the float model against the quantised one, on the calibration inputs.

Both run under onnxruntime on the CPU. Outputs are compared on every sample, with the quantised model as
onnxruntime fuses it; activations on a few samples, as signal to quantisation noise at the point where
each is dequantised, so that errors of earlier layers are included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sdk.errors import InvalidModel
from sdk.extras import require
from sdk.ort import onnxruntime_errors, session, with_outputs
from sdk.quantizer.calibration import Calibration, Feeds, Progress

EXACT_DB = 200.0
"""Stands for no difference at all, which has no finite number of decibels."""


@dataclass(frozen=True)
class TensorError:
    """How well one activation survives: the float model's against the dequantised one.

    Attributes:
        name: the tensor; `node` and `op` say what produces it in the float model ("" for an input).
        sqnr_db: signal to quantisation noise, in dB, errors of earlier layers included; 200 for exact.
        scale, zero_point: the tensor's quantisation.
    """

    name: str
    node: str
    op: str
    sqnr_db: float
    scale: float
    zero_point: int


@dataclass(frozen=True)
class OutputAgreement:
    """Float against quantised on the calibration samples, both under onnxruntime, for one output.

    Attributes:
        top1: share of samples with the same greatest element; None unless the output is [1, classes].
        max_abs_diff, mean_abs_diff: in the output's units.
        sqnr_db: as in TensorError.
    """

    name: str
    top1: float | None
    max_abs_diff: float
    mean_abs_diff: float
    sqnr_db: float


def run_float(prepared: Any, data: Calibration, progress: Progress, where: str) -> list[list[Any]]:
    """The float model's outputs for every sample.

    Raises:
        InvalidModel: NaN or infinity in any tensor; `where` names the first.
    """
    onnx = require("onnx")
    probed = onnx.ModelProto()
    probed.CopyFrom(prepared)
    kinds = {value.name: value.type.tensor_type.elem_type for value in prepared.graph.value_info}
    tensors = [
        name
        for node in prepared.graph.node
        for name in node.output
        if kinds.get(name) == onnx.TensorProto.FLOAT
    ]
    for index, name in enumerate(tensors):
        probed.graph.node.append(
            onnx.helper.make_node("ReduceSum", [name], [f"towline.probe.{index}"], keepdims=0)
        )
    probes = [f"towline.probe.{index}" for index in range(len(tensors))]
    outputs = [value.name for value in prepared.graph.output]
    with onnxruntime_errors("run the model", where):
        runner = session(with_outputs(probed, probes))
    results: list[list[Any]] = []
    for done, feeds in enumerate(data.samples):
        progress("run the float model", done, len(data.samples))
        with onnxruntime_errors("run the model", where):
            values = runner.run(probes + outputs, feeds)
        for name, value in zip(tensors + outputs, values, strict=True):  # the first bad tensor is named
            if not np.isfinite(value).all():
                raise InvalidModel(
                    f"the float model computes NaN or infinity for {data.names[done]}",
                    where=f"tensor {name}",
                    hint="check the model's weights, and that the calibration inputs are preprocessed",
                )
        results.append(values[len(probes) :])
    progress("run the float model", len(data.samples), len(data.samples))
    return results


def agreement(
    quantized: Any, data: Calibration, expected: Sequence[Sequence[Any]], progress: Progress
) -> tuple[tuple[OutputAgreement, ...], list[float]]:
    """Each output of the quantised model against `expected`, the float model's from `run_float`.

    Returns:
        For each output; and the relative error of each sample, as `relative_error` has it.
    """
    names = [value.name for value in quantized.graph.output]
    with onnxruntime_errors("run the quantised model", "quantised model"):
        runner = session(quantized, exact=True)
    results = []
    for done, feeds in enumerate(data.samples):
        progress("run the quantised model", done, len(data.samples))
        with onnxruntime_errors("run the quantised model", "quantised model"):
            results.append(runner.run(names, feeds))
    progress("run the quantised model", len(data.samples), len(data.samples))
    agreements = []
    for index, name in enumerate(names):
        reference = np.stack([values[index] for values in expected]).astype(np.float64)
        result = np.stack([values[index] for values in results]).astype(np.float64)
        difference = np.abs(result - reference)
        classes = reference.ndim == 3 and reference.shape[-1] > 1
        same = result.argmax(axis=-1) == reference.argmax(axis=-1)
        agreements.append(
            OutputAgreement(
                name=name,
                top1=float(same.mean()) if classes else None,
                max_abs_diff=float(difference.max()),
                mean_abs_diff=float(difference.mean()),
                sqnr_db=decibels(float((reference**2).sum()), float((difference**2).sum())),
            )
        )
    errors = [relative_error(*pair) for pair in zip(results, expected, strict=True)]
    return tuple(agreements), errors


def tensor_errors(prepared: Any, quantized: Any, samples: Sequence[Feeds]) -> tuple[TensorError, ...]:
    """SQNR of every activation that the quantised model holds, against the float model's."""
    producers = {name: node for node in prepared.graph.node for name in node.output}
    inputs = set(samples[0])
    constants = {tensor.name: tensor for tensor in quantized.graph.initializer}
    quantizers = {node.output[0]: node for node in quantized.graph.node if node.op_type == "QuantizeLinear"}
    pairs: dict[str, tuple[str, Any]] = {}
    for node in quantized.graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] in quantizers:
            quantizer = quantizers[node.input[0]]
            name = quantizer.input[0].removesuffix("_QuantizeLinear_Input")
            if name in producers or name in inputs:
                pairs.setdefault(name, (node.output[0], quantizer))
    names = list(pairs)
    dequantized = [node for node, _ in pairs.values()]
    computed = [name for name in names if name in producers]
    signal, noise = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
    with onnxruntime_errors("compare activations", "quantised model"):
        reference = session(with_outputs(prepared, computed))
        result = session(with_outputs(quantized, dequantized), optimize=False)
    for feeds in samples:
        with onnxruntime_errors("compare activations", "quantised model"):
            float_values = reference.run(computed, feeds) if computed else []  # [] would mean all outputs
            values = result.run(dequantized, feeds) if dequantized else []
        expected = dict(zip(computed, float_values, strict=True)) | feeds
        for name, value in zip(names, values, strict=True):
            signal[name] += float((expected[name].astype(np.float64) ** 2).sum())
            noise[name] += float(((expected[name].astype(np.float64) - value) ** 2).sum())
    to_array = require("onnx.numpy_helper").to_array
    return tuple(
        TensorError(
            name=name,
            node=producers[name].name if name in producers else "",
            op=producers[name].op_type if name in producers else "",
            sqnr_db=decibels(signal[name], noise[name]),
            scale=float(to_array(constants[pairs[name][1].input[1]])),
            zero_point=int(to_array(constants[pairs[name][1].input[2]])),
        )
        for name in names
    )


def relative_error(outputs: Sequence[Any], expected: Sequence[Any]) -> float:
    """The mean over the float outputs (all, if none is float) of |y - expected|^2 / |expected|^2."""
    floats = [index for index, value in enumerate(expected) if value.dtype.kind == "f"]
    total = 0.0
    chosen = floats or range(len(expected))
    for index in chosen:
        reference = np.asarray(expected[index], np.float64).ravel()
        difference = np.asarray(outputs[index], np.float64).ravel() - reference
        total += float(difference @ difference) / max(float(reference @ reference), 1e-30)
    return total / len(chosen)


def decibels(signal: float, noise: float) -> float:
    """10 log10(signal / noise), within +-EXACT_DB, so that it is always a JSON number."""
    if noise == 0:
        return EXACT_DB
    return float(np.clip(10 * np.log10(max(signal, 1e-300) / noise), -EXACT_DB, EXACT_DB))
