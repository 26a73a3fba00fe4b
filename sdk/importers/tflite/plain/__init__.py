"""TFLite operators on plain tensors: each becomes ONNX's operators, whose meaning stands in one place.

`HANDLERS` is the table; an elementwise operator is a line of `sdk.importers.tflite.plain.elementwise`.
"""

from sdk.importers.tflite.plain.table import HANDLERS

__all__ = ["HANDLERS"]
