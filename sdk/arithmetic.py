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

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sdk.errors import Unsupported

SCALE_LIMIT = 2.0**9
"""Requantisation scales are below this: no usable network has one as large."""

Q31_LIMIT = 2.0**8
"""Scales of q31 are below this, so that `Q31.shift` is at most 8; the ratios of its Add are at most this."""

ADD_BITS = 22
"""Fraction bits of Add's multipliers while no input scale exceeds the output's: 510 * 2^22 + 2^21 < 2^31."""


def scale_ratio(*factors: ArrayLike, over: ArrayLike) -> NDArray[np.float32]:
    """Product of float32 `factors` divided by `over`, each step in float32: onnxruntime's order.

    Factors and `over` broadcast; the result has the shape of all.
    """
    with np.errstate(all="ignore"):  # an infinity is refused where it is used
        product = np.asarray(factors[0], np.float32)
        for factor in factors[1:]:
            product = product * np.asarray(factor, np.float32)
        return np.asarray(product / np.asarray(over, np.float32))


def require_scales(scales: NDArray[np.float32], limit: float = SCALE_LIMIT) -> NDArray[np.float32]:
    """The scales, if all are below the limit.

    Raises:
        Unsupported: one is not, or is not finite.
    """
    if not (scales < limit).all():
        raise _out_of_range(f"a requantisation scale of {scales.max():g}", limit)
    return scales


@dataclass(frozen=True)
class Q31:
    """``result = (((acc << shift) * multiplier) + 2^30) >> 31``, in unbounded integers.

    `shift` is 0 for every scale below 1; `multiplier` is in [0, 2^31).
    """

    multiplier: int
    shift: int


def q31(scale: float) -> Q31:
    """The q31 constants of a float32 scale.

    Raises:
        Unsupported: the scale is not below `Q31_LIMIT`.
    """
    multiplier, shift = q31_arrays(np.asarray(scale, np.float32))
    return Q31(int(multiplier), int(shift))


def q31_arrays(scales: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The q31 constants of many scales: multipliers and shifts, int64 of the scales' shape.

    Raises:
        Unsupported: as `q31`.
    """
    exact = require_scales(scales, Q31_LIMIT).astype(np.float64)
    shift = np.zeros(exact.shape, np.int64)
    multiplier = np.rint(exact * 2**31)  # exact in double: a float32 has 24 bits
    while (large := multiplier >= 2**31).any():
        shift += large
        multiplier = np.rint(np.ldexp(exact, 31 - shift))
    return multiplier.astype(np.int64), shift


def q31_factors(values: NDArray[np.float64]) -> tuple[NDArray[np.int64], int]:
    """Numbers of either sign as multipliers and the one shift that they share, to be used like `Q31`'s.

    The shift is as small as the largest magnitude allows.
    """
    largest = float(np.abs(values).max(initial=0.0))
    shift = max(0, math.frexp(largest)[1])
    multipliers = np.rint(np.ldexp(values, 31 - shift)).astype(np.int64)
    if np.abs(multipliers).max(initial=0) == 2**31:  # rounded up
        shift, multipliers = shift + 1, np.rint(np.ldexp(values, 30 - shift)).astype(np.int64)
    return multipliers, shift


@dataclass(frozen=True)
class Q31Add:
    """``result = ((a - za) * a_multiplier + (b - zb) * b_multiplier + 2^(shift-1)) >> shift``; fits int32."""

    a_multiplier: int
    b_multiplier: int
    shift: int


def q31_add(a_ratio: float, b_ratio: float) -> Q31Add:
    """The q31 constants of Add, from input scale / output scale of either side.

    Raises:
        Unsupported: a ratio over `Q31_LIMIT`.
    """
    largest = max(float(a_ratio), float(b_ratio))
    if not largest <= Q31_LIMIT:
        raise _out_of_range(f"a scale ratio of {largest:g} in Add", Q31_LIMIT)
    shift = ADD_BITS - (math.ceil(math.log2(largest)) if largest > 1 else 0)
    return Q31Add(round(float(a_ratio) * 2**shift), round(float(b_ratio) * 2**shift), shift)


def _out_of_range(what: str, limit: float) -> Unsupported:
    return Unsupported(
        f"{what} is out of range; the limit is {limit:g}",
        hint="quantise the model again, with representative calibration inputs",
    )
