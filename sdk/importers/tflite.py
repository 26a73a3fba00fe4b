"""TFLite in: an 8-bit TFLite model becomes the integer graph."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path

from sdk.errors import Unsupported
from sdk.graph import Graph
from sdk.importers.tflite_file import TfliteModel, read_tflite
from sdk.importers.tflite_operators import handler_of
from sdk.importers.tflite_walk import CONVERT, Walk
from sdk.passes import eliminate_dead
from sdk.preprocess import Preprocessing, default_for
from sdk.segments import split
from sdk.verification import verify


def load_tflite(
    path: str | os.PathLike[str], *, input_shapes: Mapping[str, tuple[int, ...]] | None = None
) -> Graph:
    """Read an 8-bit TFLite model into the verified integer graph.

    Args:
        path: the .tflite file.
        input_shapes: shapes of inputs whose extents are dynamic, by input name; without one, the shape
            that the file stores, which has 1 there.

    Returns:
        The graph, dead nodes removed; float only at its head (Quantize of an input) and tail. Inputs and
        outputs have the file's own names, shapes ([1,H,W,C] for pictures) and dtypes.

    Raises:
        UsageError: no such file, or `input_shapes` contradicts the model.
        InvalidModel: the file is damaged, or the model contradicts itself.
        Unsupported: a float model, or an operator that Towline does not support, by name and index.
        EnvironmentMissing: the tflite package is not installed.
    """
    model = read_tflite(path)
    if not model.is_quantized:
        raise Unsupported("the model is float", where=os.fspath(path), hint=CONVERT)
    return import_tflite(model, input_shapes=input_shapes, name=Path(path).stem)


def import_tflite(
    model: TfliteModel, *, input_shapes: Mapping[str, tuple[int, ...]] | None = None, name: str = "model"
) -> Graph:
    """As `load_tflite`, of a model that was read."""
    walk = Walk(model, input_shapes or {}, name)
    for node in model.operators:
        handler_of(node)(walk, node)
    graph = eliminate_dead(walk.graph())
    verify(graph)
    split(graph)
    return graph


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
