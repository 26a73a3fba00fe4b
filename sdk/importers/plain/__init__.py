"""ONNX operators on plain tensors: floats, integers and truth values that nothing quantises.

`convert_plain` converts a node by the table `HANDLERS`; an elementwise operator is a line of
`sdk.importers.plain.elementwise`. What the table lacks is expanded by onnx's own function bodies.
"""

from sdk.importers.plain.table import HANDLERS, convert_plain, is_known

__all__ = ["HANDLERS", "convert_plain", "is_known"]
