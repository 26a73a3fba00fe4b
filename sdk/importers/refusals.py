"""Operators that cannot become part of a static graph: the reason by kind, and what a user does about it."""

from __future__ import annotations

from sdk.errors import Unsupported
from sdk.importers.onnx_file import OnnxNode

DATA_DEPENDENT = ("Compress", "NonMaxSuppression", "NonZero", "Unique")
"""Operators whose results have shapes that depend on values."""

TEXT = (
    "LabelEncoder",
    "RegexFullMatch",
    "StringConcat",
    "StringNormalizer",
    "StringSplit",
    "TfIdfVectorizer",
)
"""Operators on strings."""

TREES = "ai.onnx.ml"
"""The domain of what is not a network: trees, scalers, encoders of categories."""

LAYOUTS = ("com.microsoft.nchwc", "com.ms.internal.nhwc")
"""Domains of operators in the memory layout of one kind of processor."""


def unknown_operator(node: OnnxNode, hint: str | None = None) -> Unsupported:
    """The refusal of an operator that nothing converts.

    Args:
        node: the node.
        hint: what to do, where the caller knows better.
    """
    shown = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    message = f"operator {shown} is not supported"
    if not node.domain and node.op_type in DATA_DEPENDENT:
        message += ": the shape of its result depends on values"
    elif node.op_type in TEXT:
        message += ": it works on text"
    elif node.domain in LAYOUTS:
        return node.unsupported(
            f"{message}: onnxruntime saved the model for one kind of processor",
            "give the model from before, or save it with graph_optimization_level ORT_ENABLE_EXTENDED",
        )
    elif node.domain == TREES:
        message += ": it is not an operator of networks"
    else:
        return node.unsupported(
            message,
            hint or "write it with operators that are (docs/operators.md lists them), or " + before(node),
        )
    return node.unsupported(message, f"{hint or 'compute it on the host'}; {before(node)}")


def before(node: OnnxNode) -> str:
    """How to end the network before a node."""
    return f"end the network before it: --outputs {','.join(dict.fromkeys(filter(None, node.inputs)))}"
