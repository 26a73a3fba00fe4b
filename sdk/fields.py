"""Values of a plan that came from a file: what they ought to be, or a TypeError or ValueError.

Whoever reads a plan makes an `InvalidArtifact` of those.
"""

from __future__ import annotations

from typing import Any

from sdk.graph import Graph


def require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def integer(value: Any) -> int:
    if type(value) is not int:  # a bool is none
        raise TypeError(f"{value!r} is no integer")
    return value


def count(value: Any, limit: int = 1 << 63) -> int:
    """A number from 0 up to, not including, `limit`."""
    if not 0 <= integer(value) < limit:
        raise ValueError(f"{value!r} is no number from 0 to {limit - 1}")
    return int(value)


def activation(graph: Graph, name: str) -> int:
    """Bytes of an activation of the graph."""
    tensor = graph.tensors[name]
    require(tensor.data is None and tensor.dtype in ("uint8", "int8"), f"{name} is no activation")
    return tensor.size
