"""ONNX in: quantised models become the integer graph, float models are checked before quantisation."""

from sdk.importers.onnx_file import is_quantized, read_onnx
from sdk.importers.walk import check_float, load_model

__all__ = ["check_float", "is_quantized", "load_model", "read_onnx"]
