"""Models in: ONNX and TFLite, quantised or float, become the graph."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from numpy.typing import ArrayLike

from sdk.errors import Unsupported
from sdk.graph import Graph
from sdk.importers.onnx import check_float, load_onnx, survey
from sdk.importers.onnx_file import is_quantized, read_onnx
from sdk.importers.tflite import load_tflite
from sdk.importers.tflite.file import is_tflite

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
    path: str | os.PathLike[str],
    *,
    input_shapes: Mapping[str, tuple[int, ...]] | None = None,
    outputs: Sequence[str] = (),
    constants: Mapping[str, ArrayLike] | None = None,
) -> Graph:
    """Read a model into the verified graph: TFLite or ONNX, as its content says.

    Args:
        path: of the file.
        input_shapes: static shapes of dynamic inputs, by input name.
        outputs: of ONNX: tensors that become the outputs instead of the model's own.
        constants: of ONNX: values of inputs that become constants, by input name.

    Raises:
        TowlineError: as `load_onnx` and `load_tflite`.
    """
    if not is_tflite(path):
        return load_onnx(path, input_shapes=input_shapes, outputs=outputs, constants=constants)
    if outputs or constants:
        raise Unsupported("other outputs and constant inputs are for ONNX alone", where=os.fspath(path))
    return load_tflite(path, input_shapes=input_shapes)
