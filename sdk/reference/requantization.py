"""From exact accumulators to quantised results: what all definitions on integers share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sdk.arithmetic import q15, q31_arrays
from sdk.graph import Array, Clamp, Tensor
from sdk.target import Arithmetic

Int32 = NDArray[np.int32]
Float32 = NDArray[np.float32]


def dtype_range(dtype: str) -> tuple[int, int]:
    """Smallest and largest value of an integer dtype."""
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def requantize(acc: Int32, scales: Float32, out: Tensor, clamp: Clamp, arithmetic: Arithmetic) -> Array:
    """`acc` to the output's dtype; `scales` broadcast against it."""
    if arithmetic == "f32":
        return saturate(np.rint(acc.astype(np.float32) * scales), out, clamp)
    if arithmetic == "q15":
        constants = q15(scales)
        multiplier, left, right = constants.multipliers, constants.left, constants.right
    else:
        multiplier, left = q31_arrays(scales)
        right = 31
    # A shifted accumulator beyond 2^32 saturates any 8-bit output (its multiplier is at least half of the
    # largest); bounding it there keeps the product within int64 and changes no result.
    shifted = np.clip(acc.astype(np.int64) << left, -(2**32) + 1, 2**32 - 1)
    return saturate((shifted * multiplier + (1 << right >> 1)) >> right, out, clamp)


def saturate(rounded: Array, out: Tensor, clamp: Clamp) -> Array:
    """Rounded values, float32 or integer, plus the output's zero-point, within `clamp`, as its dtype."""
    low, high = clamp[0] - out.zero_point, clamp[1] - out.zero_point
    result: Array = np.clip(rounded, low, high).astype(np.int32) + np.int32(out.zero_point)
    return result.astype(out.dtype)


def centred(tensor: Tensor, value: Array) -> Int32:
    """The elements of a quantised tensor less its zero-point."""
    return value.astype(np.int32) - np.int32(tensor.zero_point)
