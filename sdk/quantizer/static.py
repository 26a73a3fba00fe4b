"""onnxruntime's static quantisation, with ranges that were found here.

onnxruntime decides which tensors are quantised and which share a scale, and writes the QDQ model; every
range of an activation is passed to it, so that its own calibration (which it needs) sees one sample only.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sdk.extras import require
from sdk.importers.functions import ARITHMETIC, FUNCTIONS
from sdk.ort import onnxruntime_errors, quantising
from sdk.quantizer import islands
from sdk.quantizer.calibration import Feeds
from sdk.quantizer.islands import Islands

Activation = Literal["uint8", "int8"]
Weight = Literal["int8", "uint8"]
Ranges = Mapping[str, tuple[float, float]]
"""Lowest and highest value by tensor."""

OPERATORS = (
    *(
        "Add",
        "AveragePool",
        "Clip",
        "Concat",
        "Conv",
        "ConvTranspose",
        "Flatten",
        "Gemm",
        "GlobalAveragePool",
        "MatMul",
    ),
    *(
        "MaxPool",
        "Pad",
        "ReduceMean",
        "Relu",
        "Reshape",
        "Resize",
        "Slice",
        "Squeeze",
        "Transpose",
        "Unsqueeze",
    ),
    *sorted({*FUNCTIONS, *ARITHMETIC} - {"Add"}),
)

SMALLEST_CHANNEL = 1e-3
"""A channel's weights get a range of at least this part of the tensor's. Without it, the next-to-nothing
weights that folded batch normalisation leaves in dead channels would get a scale so small (or, all zero,
so large) that the channel's bias no longer fits int32 (or loses its digits). What such weights lose is far
below one step of the output, whose scale all channels share."""


@dataclass(frozen=True)
class Form:
    """What the quantised model is made of.

    Attributes:
        per_channel: weights have a scale per output channel, rather than one per tensor.
        activation, weight: the types.
    """

    per_channel: bool = True
    activation: Activation = "uint8"
    weight: Weight = "int8"


class _OneSample:
    """onnxruntime's CalibrationDataReader."""

    def __init__(self, sample: Feeds) -> None:
        self._left = [sample]

    def get_next(self) -> Feeds | None:
        return self._left.pop() if self._left else None


def write(
    prepared: Any,
    functions: Islands,
    sample: Feeds,
    form: Form,
    directory: Path,
    where: str,
    *,
    ranges: Ranges | None = None,
    peaks: Mapping[str, NDArray[np.float32]] | None = None,
    keep_float: Collection[str] = (),
) -> Any:
    """The quantised model (onnx.ModelProto, QDQ).

    Args:
        prepared: what `prepare.prepare` gave.
        functions: its functions that stay whole.
        sample: one input, for onnxruntime's own calibration.
        form: types and granularity.
        directory: for intermediate files.
        where: names the model in errors.
        ranges: of activations; the sample's own where there is none.
        peaks: of weights, by name: the largest magnitude that is represented, per channel.
        keep_float: names of nodes that are not quantised.

    Raises:
        InvalidModel: onnxruntime refuses the model.
    """
    onnx, tool = require("onnx"), require("onnxruntime.quantization")
    source, result = directory / "to-quantize.onnx", directory / "quantized.onnx"
    overrides: dict[str, list[dict[str, Any]]] = {
        name: [{"rmin": np.float32(low), "rmax": np.float32(high)}]
        for name, (low, high) in (ranges or {}).items()
    }
    if form.per_channel:
        overrides |= _channels(prepared, peaks or {})
    options: dict[str, Any] = {"TensorQuantOverrides": overrides}
    if form.weight == "uint8":  # one zero-point, 128, for all channels, which onnxruntime's kernels require
        options["WeightSymmetric"] = True
    with quantising("quantise the model", where, directory):
        onnx.save(prepared, source)
        tool.quantize_static(
            str(source),
            str(result),
            _OneSample(sample),
            quant_format=tool.QuantFormat.QDQ,
            op_types_to_quantize=list(OPERATORS),
            nodes_to_exclude=sorted(keep_float),
            per_channel=form.per_channel,
            activation_type=tool.QuantType.QUInt8 if form.activation == "uint8" else tool.QuantType.QInt8,
            weight_type=tool.QuantType.QInt8 if form.weight == "int8" else tool.QuantType.QUInt8,
            extra_options=options,
        )
        quantized = onnx.load(result)
    islands.keep_float(quantized, functions)
    return quantized


def _channels(model: Any, peaks: Mapping[str, NDArray[np.float32]]) -> dict[str, list[dict[str, Any]]]:
    """Overrides of weights' channels: given peaks, and wider ones for next to no weights."""
    to_array = require("onnx.numpy_helper").to_array
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    overrides: dict[str, list[dict[str, Any]]] = {}
    for node in model.graph.node:
        if node.op_type != "Conv" or node.input[1] not in constants:
            continue
        weight = to_array(constants[node.input[1]])
        peak = np.abs(weight.reshape(len(weight), -1)).max(axis=1)
        floor = np.float32(peak.max() * SMALLEST_CHANNEL)
        chosen = np.maximum(peaks.get(node.input[1], peak), floor)
        if (chosen != peak).any():
            channels: list[dict[str, Any]] = [{"rmin": -high, "rmax": high} for high in chosen]
            channels[0]["axis"] = 0  # onnxruntime would take the overrides as per tensor without it
            overrides[node.input[1]] = channels
    return overrides


def finish(model: Any, entries: Mapping[str, str]) -> bytes:
    """Strip what the tools leave behind, write metadata, check and serialise: the same model, the same bytes.

    Raises:
        InvalidModel: onnx's checker refuses the model.
    """
    onnx = require("onnx")
    used = {"ai.onnx" if node.domain == "" else node.domain for node in model.graph.node}
    for entry in [entry for entry in model.opset_import if (entry.domain or "ai.onnx") not in used]:
        model.opset_import.remove(entry)
    kept = {
        entry.key: entry.value
        for entry in model.metadata_props
        if not entry.key.startswith(("onnx.infer", "onnx.quant"))
    }
    onnx.helper.set_model_props(model, {**kept, **entries})
    with onnxruntime_errors("check the quantised model", "quantised model"):
        onnx.checker.check_model(model, full_check=True)
        payload: bytes = model.SerializeToString(deterministic=True)
        return payload
