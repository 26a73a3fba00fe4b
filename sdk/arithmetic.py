"""The two requantisation arithmetics as constants: what a real-valued scale becomes on integer hardware.

`f32` multiplies the int32 accumulator by a float32 scale and rounds half to even: onnxruntime's own.
`q31` is for silicon without vector floats: a 31-bit multiplier and one rounding, half up. Both start
from the same float32 scale, so that they differ by at most one unit, and only where the product lies
within the multiplier's rounding of a half.

The reference (`sdk.reference`) defines what is computed with these constants; targets take the constants
from here and are held against it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sdk.errors import Unsupported

ADD_BITS = 22
"""Fraction bits of Add's multipliers while no input scale exceeds the output's: 510 * 2^22 + 2^21 < 2^31."""


def scale_ratio(*factors: float, over: float) -> np.float32:
    """Product of float32 `factors` divided by `over`, each step in float32: onnxruntime's order."""
    with np.errstate(all="ignore"):  # an infinity is refused where it is used
        product = np.float32(factors[0])
        for factor in factors[1:]:
            product = np.float32(product * np.float32(factor))
        return np.float32(product / np.float32(over))


def channel_ratios(scale: float, channels: NDArray[np.float32], *, over: float) -> NDArray[np.float32]:
    """`scale_ratio` of a scale and each channel's, over one: float32 of the channels' shape."""
    with np.errstate(all="ignore"):
        ratios: NDArray[np.float32] = np.float32(scale) * channels / np.float32(over)
        return ratios


@dataclass(frozen=True)
class Q31:
    """``result = (((acc << shift) * multiplier) + 2^30) >> 31``, in unbounded integers.

    `shift` is 0 for every scale below 1; `multiplier` is in [0, 2^31).
    """

    multiplier: int
    shift: int


def q31(scale: float) -> Q31:
    """The q31 constants of a scale.

    Raises:
        Unsupported: a scale of 2^8 or more, which no sensible network has.
    """
    multiplier, shift = q31_arrays(np.asarray(scale))
    return Q31(int(multiplier), int(shift))


def q31_arrays(scales: NDArray[np.floating[Any]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The q31 constants of many scales: multipliers and shifts, int64 of the scales' shape.

    Raises:
        Unsupported: as `q31`.
    """
    exact = scales.astype(np.float64)
    if not (exact < 2**9).all():  # an infinity has no integers
        raise _out_of_range(f"a requantisation scale of {exact.max():g}")
    shift = np.zeros(exact.shape, np.int64)
    multiplier = np.rint(exact * 2**31)  # exact in double: a float32 has 24 bits
    while (large := multiplier >= 2**31).any():
        shift += large
        multiplier = np.rint(np.ldexp(exact, 31 - shift))
    if (shift > 8).any():
        raise _out_of_range(f"a requantisation scale of {exact.max():g}")
    return multiplier.astype(np.int64), shift


@dataclass(frozen=True)
class Q31Add:
    """``result = ((a - za) * a_multiplier + (b - zb) * b_multiplier + 2^(shift-1)) >> shift``; fits int32."""

    a_multiplier: int
    b_multiplier: int
    shift: int


def q31_add(a_ratio: float, b_ratio: float) -> Q31Add:
    """The q31 constants of Add, from input scale / output scale of either side.

    Raises:
        Unsupported: a ratio over 2^8.
    """
    largest = max(float(a_ratio), float(b_ratio))
    if not largest <= 2**8:
        raise _out_of_range(f"a scale ratio of {largest:g} in Add")
    shift = ADD_BITS - (math.ceil(math.log2(largest)) if largest > 1 else 0)
    return Q31Add(round(float(a_ratio) * 2**shift), round(float(b_ratio) * 2**shift), shift)


def _out_of_range(what: str) -> Unsupported:
    return Unsupported(
        f"{what} is out of range", hint="quantise the model again, on inputs like those it will see"
    )
