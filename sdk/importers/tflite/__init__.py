"""TFLite in: a model, quantised or float or both, becomes the graph.

One loop over the operators. Where one reads or makes quantised 8-bit tensors, the handlers of
`sdk.importers.tflite.exact` make it an integer operator; where they cannot, and for all that is plain, those
of `sdk.importers.tflite.plain` make it ONNX's operators, between Dequantize and Quantize where need be. What
is refused is refused all at once.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from sdk.errors import Refusal, Unsupported
from sdk.graph import Graph
from sdk.importers.joining import join
from sdk.importers.tflite.file import TfliteModel, TfliteOperator, read_tflite
from sdk.importers.tflite.table import convert, tflite_table
from sdk.importers.tflite.walk import Walk
from sdk.passes import eliminate_dead
from sdk.preprocess import Preprocessing, default_for
from sdk.verification import verify

__all__ = ["import_tflite", "load_tflite", "pixels", "tflite_table"]

LOG = logging.getLogger("towline")


def load_tflite(
    path: str | os.PathLike[str], *, input_shapes: Mapping[str, tuple[int, ...]] | None = None
) -> Graph:
    """Read a TFLite model, quantised or float, into the verified graph.

    Args:
        path: the .tflite file.
        input_shapes: shapes of inputs whose extents are dynamic, by input name; without one, the shape
            that the file stores, which has 1 there.

    Returns:
        The graph, dead nodes removed. Inputs and outputs have the file's own names, shapes ([1,H,W,C] for
        pictures) and dtypes; behind them come the states, as NAME and next_NAME.

    Raises:
        UsageError: no such file, or `input_shapes` contradicts the model.
        InvalidModel: the file is damaged, or the model contradicts itself.
        Unsupported: operators that Towline does not support, by name and index.
        EnvironmentMissing: the tflite package is not installed.
    """
    model = read_tflite(path)
    if model.has_dynamic_range:
        LOG.warning(
            "%s: its weights are 8-bit and its activations float: it is computed in float, with the weights "
            "dequantised",
            path,
        )
    return import_tflite(model, input_shapes=input_shapes, name=Path(path).stem)


def import_tflite(
    model: TfliteModel, *, input_shapes: Mapping[str, tuple[int, ...]] | None = None, name: str = "model"
) -> Graph:
    """As `load_tflite`, of a model that was read."""
    walk = Walk(model, input_shapes or {}, name)
    refused: list[tuple[TfliteOperator, Unsupported]] = []
    for node in model.operators:
        if walk.unknown.intersection(node.inputs):
            walk.unknown.update(i for i in node.outputs if i >= 0)
            continue
        try:
            convert(walk, node)
        except Unsupported as problem:
            refused.append((node, problem))
            walk.unknown.update(i for i in node.outputs if i >= 0)
    if refused:
        _refuse(refused)
    graph = join(eliminate_dead(walk.graph()))
    verify(graph)
    return graph


def _refuse(refused: list[tuple[TfliteOperator, Unsupported]]) -> None:
    """Raise what was refused: the first refusal's message, then the others."""
    refusals = tuple(Refusal(node.name, node.op, problem.message, problem.hint) for node, problem in refused)
    first = refused[0][1]
    others = "; ".join(
        f"operator {node.index} ({node.op}): {problem.message}" for node, problem in refused[1:]
    )
    message = f"{first.message}. Refused too: {others}" if others else first.message
    raise Unsupported(message, where=first.where, hint=first.hint, refusals=refusals) from first


def pixels(graph: Graph) -> Preprocessing | None:
    """How pictures become the input of an 8-bit graph by TFLite's convention: the pixel is the integer.

    Returns:
        Pixels 0..255 as uint8, or less 128 as int8, cropped as `sdk.preprocess.default_for` does; None where
        there is not one input, or it is float (the file does not say how) or no picture.
    """
    if len(graph.inputs) != 1:
        return None
    tensor = graph.tensor(graph.inputs[0])
    picture = len(tensor.shape) == 4 and tensor.shape[0] == 1 and tensor.shape[3] in (1, 3)
    if tensor.quantization is None or not picture:
        return None
    recipe = default_for(tensor.shape)
    darkest = -128 if tensor.dtype == "int8" else 0
    mean = tensor.scale * (tensor.zero_point - darkest)
    size, channels = (tensor.shape[1], tensor.shape[2]), tensor.shape[3]
    return dataclasses.replace(
        recipe,
        size=size,
        scale=tensor.scale,
        mean=(mean,) * channels,
        std=(1.0,) * channels,
        colour="GRAY" if channels == 1 else "RGB",
        layout="NHWC",
    )
