"""The requantisation arithmetics as constants: what a real-valued scale becomes on integer hardware.

`f32` multiplies the int32 accumulator by a float32 scale and rounds half to even: onnxruntime's own.
`q31` is for silicon without vector floats: a 31-bit multiplier and one rounding, half up. `q15` is q31 but
for the sums of products and of windows, whose multipliers have 16 bits. All start from the same float32
scale, so that they differ by at most one unit, and only where the product lies within the multiplier's
rounding of a half.

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


SOFTMAX_BITS = 22
"""Fraction bits of Softmax's exponentials: three bytes hold them. A result is then within half a unit of the
real one and, at a scale of 1/256, 2^-9 of a unit and 2^-15 more for each element."""

SOFTMAX_ELEMENTS = 2**16 - 1
"""The most of one Softmax: their sum, shifted, keeps 15 bits at least."""


NORMALIZE_BITS = 22
"""Fraction bits of normalised values."""

SPREAD_BITS = 14
"""Fraction bits of what is under a normalisation's root: an epsilon may be smaller than any distance."""

NORMALIZE_ELEMENTS = 2**16
"""The most of one normalisation: the largest normalised value is their root, 2^8."""


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


@dataclass(frozen=True)
class Q15:
    """``result = (((acc << left) * multiplier) + 2^(right-1)) >> right``, in unbounded integers.

    The channels of a node share `right`: hardware may then drop the product's lowest 16 bits, which the one
    rounding cannot see, and shift two channels at once. Beside q31's constants that costs a scale far below
    the node's largest some of its 16 bits, but no sum more than ``abs(acc) * 2^-(right + 1)`` of a unit.

    Attributes:
        multipliers: int64 of the scales' shape, in [0, 2^16).
        left: int64 of the same shape; all 0 if every scale is below a half.
        right: from 17 to 31; as large as the largest scale allows.
    """

    multipliers: NDArray[np.int64]
    left: NDArray[np.int64]
    right: int


Q15_RIGHT = range(17, 32)
"""`Q15.right`: 16 bits that a multiplication drops, and from 1 to 15 that a narrowing shift takes."""


def q15(scales: NDArray[np.float32]) -> Q15:
    """The q15 constants of a node's scales, of any shape.

    Raises:
        Unsupported: a scale is not below `Q31_LIMIT`.
    """
    exact = require_scales(scales, Q31_LIMIT).astype(np.float64)

    def multipliers(right: int, left: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.rint(np.ldexp(exact, right - left)).astype(np.int64)

    left = np.zeros(exact.shape, np.int64)
    fits = (right for right in reversed(Q15_RIGHT) if (multipliers(right, left) < 2**16).all())
    right = next(fits, Q15_RIGHT[0])
    while (large := multipliers(right, left) >= 2**16).any():
        left += large
    return Q15(multipliers(right, left), left, right)


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


@dataclass(frozen=True)
class IntegerTaps:
    """The weights of an Interpolate, with the ratio of the scales in those of the rows.

    ``result = (sum of (x - zx) * rows[i, k] * columns[j, l] + 2^(shift-1)) >> shift``, the sum over k and l;
    everything fits int32, rows and columns int16.
    """

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    shift: int


COLUMN_BITS, ROW_BITS = 11, 14
"""The most fraction bits of an Interpolate's weights."""


def integer_taps(
    rows: NDArray[np.float32], columns: NDArray[np.float32], ratio: NDArray[np.float32]
) -> IntegerTaps:
    """The integer weights of an Interpolate.

    The columns take as few bits as hold them exactly, or all; the rows as many as int32 leaves them. What is
    rounded off is given to the largest weight, so that a constant picture stays constant.

    Args:
        rows: [outputs, taps].
        columns: the same.
        ratio: input scale / output scale.

    Raises:
        Unsupported: the ratio is out of range.
    """
    wide = columns.astype(np.float64)
    bits = next((n for n in range(COLUMN_BITS) if not np.mod(np.ldexp(wide, n), 1).any()), COLUMN_BITS)
    whole = _weights(np.ldexp(wide, bits))
    scaled = rows.astype(np.float64) * np.float64(ratio)
    for row_bits in range(ROW_BITS, -1, -1):
        parts = _weights(np.ldexp(scaled, row_bits))
        shift = row_bits + bits
        reach = 255 * int(np.abs(parts).sum(axis=1).max()) * int(np.abs(whole).sum(axis=1).max())
        if np.abs(parts).max() < 2**15 and reach + (1 << shift >> 1) < 2**31:
            return IntegerTaps(parts, whole, shift)
    raise _out_of_range(f"a scale ratio of {float(ratio):g} in Interpolate", Q31_LIMIT)


def _weights(exact: NDArray[np.float64]) -> NDArray[np.int64]:
    """Rounded weights [outputs, taps] whose sums are the rounded sums."""
    weights = np.rint(exact).astype(np.int64)
    rest = np.rint(exact.sum(axis=1)).astype(np.int64) - weights.sum(axis=1)
    weights[np.arange(len(weights)), np.abs(exact).argmax(axis=1)] += rest
    return weights


@dataclass(frozen=True)
class Q31Softmax:
    """``(exponentials[max - q] * multiplier + 2^30) >> 31``, the multiplier ``dividend // (sum >> shift)``.

    Attributes:
        exponentials: int64 [256], ``exp(-distance * scale)`` by distance from the maximum.
        shift: of the sum of all elements' exponentials, so that it fits 31 bits.
    """

    exponentials: NDArray[np.int64]
    shift: int
    dividend: int


def q31_softmax(scale: float, output_scale: float, elements: int) -> Q31Softmax:
    """The q31 constants of Softmax over this many elements, from the scales of its input and output.

    Raises:
        Unsupported: the output's scale is so fine that a multiplier has not 31 bits; or too many elements.
    """
    if elements > SOFTMAX_ELEMENTS:
        raise _out_of_range(f"Softmax over {elements} elements", SOFTMAX_ELEMENTS)
    exponentials = np.rint(np.ldexp(np.exp(-np.arange(256) * float(scale)), SOFTMAX_BITS)).astype(np.int64)
    shift = max(0, (elements << SOFTMAX_BITS).bit_length() - 31)
    dividend = round(2.0 ** (31 - shift) / float(output_scale))
    if dividend.bit_length() > SOFTMAX_BITS - shift + 31:
        raise _out_of_range("the inverse of Softmax's output scale", 2.0**SOFTMAX_BITS)
    return Q31Softmax(exponentials, shift, dividend)


@dataclass(frozen=True)
class Q31Normalize:
    """What normalises n integers q in q31, with a unit of 2^-22: see `sdk.reference.integer_islands`.

    Attributes:
        epsilon: added to n sum(distance^2), with SPREAD_BITS bits behind the point.
        factors, offsets: int64, of elements or broadcast; `offsets` in units of the result with `bits` bits
            behind the point.
        shift: before the multiplication by a factor.
    """

    epsilon: int
    factors: NDArray[np.int64]
    shift: int
    offsets: NDArray[np.int64]
    bits: int


def q31_normalize(
    scale: float,
    output_scale: float,
    count: int,
    epsilon: float,
    factors: NDArray[np.float64],
    offsets: NDArray[np.float64],
) -> Q31Normalize:
    """The q31 constants of a normalisation over `count` elements by real factors and offsets.

    Raises:
        Unsupported: too many elements, an epsilon beyond all variances, or results far beyond the output's.
    """
    if count > NORMALIZE_ELEMENTS:
        raise _out_of_range(f"a normalisation over {count} elements", NORMALIZE_ELEMENTS)
    small = epsilon * (count / float(scale)) ** 2
    if not small < 2**45:
        raise _out_of_range(f"an epsilon of {epsilon:g} at an input scale of {scale:g}", 2.0**45)
    reach = math.sqrt(count) * np.abs(factors).max(initial=0.0) + np.abs(offsets).max(initial=0.0)
    bits = min(ADD_BITS, 29 - math.frexp(reach / float(output_scale))[1]) if math.isfinite(reach) else 0
    if bits < 8:
        raise _out_of_range(f"a normalisation that reaches {reach / float(output_scale):g} units", 2.0**21)
    unit = 2.0**bits / float(output_scale)
    multipliers, shift = q31_factors(factors * unit / 2**NORMALIZE_BITS)
    return Q31Normalize(
        round(small * 2**SPREAD_BITS), multipliers, shift, np.rint(offsets * unit).astype(np.int64), bits
    )


def _out_of_range(what: str, limit: float) -> Unsupported:
    return Unsupported(
        f"{what} is out of range; the limit is {limit:g}",
        hint="quantise the model again, with representative calibration inputs",
    )
