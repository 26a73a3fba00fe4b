"""Models in: ONNX, quantised or float, and quantised TFLite become the graph."""

from __future__ import annotations

import os
from collections.abc import Mapping

from sdk.graph import Graph
from sdk.importers.onnx import check_float, load_onnx, survey
from sdk.importers.onnx_file import is_quantized, read_onnx
from sdk.importers.tflite import load_tflite
from sdk.importers.tflite_file import is_tflite

__all__ = [
    "check_float",
    "is_quantized",
    "is_tflite",
    "load_model",
    "load_onnx",
    "load_tflite",
    "read_onnx",
    "survey",
]


def load_model(
    path: str | os.PathLike[str], *, input_shapes: Mapping[str, tuple[int, ...]] | None = None
) -> Graph:
    """Read a model into the verified graph: TFLite or ONNX, as its content says.

    Raises:
        TowlineError: as `load_onnx` and `load_tflite`.
    """
    load = load_tflite if is_tflite(path) else load_onnx
    return load(path, input_shapes=input_shapes)
