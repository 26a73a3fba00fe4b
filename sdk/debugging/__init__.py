"""Where a compiled network goes wrong: its layers on the target, in the reference and under onnxruntime."""

from sdk.debugging.advice import advice, verdict
from sdk.debugging.document import columns, document
from sdk.debugging.figures import Difference, Divergence, FloatError, Layer, Report
from sdk.debugging.html import page
from sdk.debugging.measure import debug
from sdk.debugging.oracle import Oracle, float_oracle, quantized_oracle

__all__ = [
    "Difference",
    "Divergence",
    "FloatError",
    "Layer",
    "Oracle",
    "Report",
    "advice",
    "columns",
    "debug",
    "document",
    "float_oracle",
    "page",
    "quantized_oracle",
    "verdict",
]
