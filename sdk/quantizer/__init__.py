"""The quantiser: a float ONNX model to a quantised (QDQ) one.

`pipeline` is the sequence of its stages, `choose` the choice of ranges, `trial` what scores them.
"""

from sdk.quantizer.metadata import read_metadata, read_quantization
from sdk.quantizer.pipeline import quantize
from sdk.quantizer.report import Method, QuantizationReport
from sdk.quantizer.static import Activation, Weight

__all__ = [
    "Activation",
    "Method",
    "QuantizationReport",
    "Weight",
    "quantize",
    "read_metadata",
    "read_quantization",
]
