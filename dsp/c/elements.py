"""The types of tensors' elements, as fields of kernels' structures."""

from __future__ import annotations

from typing import Any

import numpy as np

from sdk import dtypes
from sdk.errors import Unsupported
from sdk.graph import Tensor

ELEMENTS = ("float32", "float16", "bfloat16", "float8e4m3fn", "float8e5m2")
"""Of kernels/plain/rows.h: converted to float and back."""
INTEGERS = ("bool", "int8", "uint8", "int16", "uint16", "int32", "int64")
"""Of kernels/plain/integers.h: converted to int64_t and back."""


def element(prefix: str, tensor: Tensor | None) -> dict[str, Any]:
    """The fields PREFIX_type and PREFIX_size of a float tensor; size 0 of one that is missing."""
    if tensor is None:
        return {f"{prefix}_type": ELEMENTS[0].upper(), f"{prefix}_size": 0}
    return _fields(prefix, tensor, ELEMENTS)


def integer(prefix: str, tensor: Tensor) -> dict[str, Any]:
    """The same of integers and truth values."""
    return _fields(prefix, tensor, INTEGERS)


def _fields(prefix: str, tensor: Tensor, known: tuple[str, ...]) -> dict[str, Any]:
    if tensor.dtype not in known or (tensor.quantization is not None and known is ELEMENTS):
        raise Unsupported(f"it has no kernel for {tensor.dtype}")
    return {f"{prefix}_type": tensor.dtype.upper(), f"{prefix}_size": dtypes.dtype(tensor.dtype).nbytes}


def float_literal(value: float) -> str:
    """A float32 as a C constant: the shortest that is exact."""
    return f"{np.format_float_scientific(np.float32(value), trim='0')}f"
