"""States of a float network: which there are, and their values over sequences of inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from sdk.ort import onnxruntime_errors, session
from sdk.quantizer.calibration import Calibration, Feeds, Input, Progress
from sdk.states import PREFIX, Pairs


def state_pairs(model: Any) -> Pairs:
    """The states (output, input) of an onnx.ModelProto: `next_NAME` and `NAME`, of equal type and shape."""
    outputs = {value.name: value for value in model.graph.output}
    pairs = []
    for value in model.graph.input:
        other = outputs.get(PREFIX + value.name)
        if other is not None and _kind(other) == _kind(value):
            pairs.append((other.name, value.name))
    return tuple(pairs)


def _kind(value: Any) -> tuple[int, tuple[int, ...]]:
    kind = value.type.tensor_type
    return kind.elem_type, tuple(dim.dim_value for dim in kind.shape.dim)


def fed_back(
    prepared: Any,
    data: Calibration,
    inputs: Mapping[str, Input],
    pairs: Pairs,
    progress: Progress,
    where: str,
) -> Calibration:
    """The samples with the states that the float model leaves behind; those of a sequence begin at zero."""
    outputs = [output for output, _ in pairs]
    samples: list[Feeds] = list(data.samples)
    with onnxruntime_errors("run the model", where):
        runner = session(prepared)
    done = 0
    for unit in data.units:
        states = {given: np.zeros(*inputs[given]) for _, given in pairs}
        for index in unit:
            progress("run sequences", done, len(samples))
            samples[index] = {**samples[index], **states}
            with onnxruntime_errors("run the model", where):
                values = runner.run(outputs, samples[index])
            states = {given: value for (_, given), value in zip(pairs, values, strict=True)}
            done += 1
    progress("run sequences", done, len(samples))
    return dataclasses.replace(data, samples=samples)
