"""Values of a plan that came from a file: of the expected type and range, or a TypeError or ValueError.

Code that reads a plan turns those into `InvalidArtifact`.
"""

from __future__ import annotations

from typing import Any

from sdk.graph import Graph


def require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def integer(value: Any) -> int:
    if type(value) is not int:  # a bool does not count
        raise TypeError(f"{value!r} is not an integer")
    return value


def count(value: Any, limit: int = 1 << 63) -> int:
    """A number from 0 up to, not including, `limit`."""
    if not 0 <= integer(value) < limit:
        raise ValueError(f"{value!r} is not a number from 0 to {limit - 1}")
    return int(value)


def activation(graph: Graph, name: str) -> int:
    """Bytes of an activation of the graph."""
    tensor = graph.tensors[name]
    require(tensor.data is None and tensor.dtype in ("uint8", "int8"), f"{name} is not an activation")
    return tensor.nbytes
