"""Whether what a target stored lies within what its definition allows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sdk import dtypes
from sdk.graph import Array
from sdk.reference.spread import Spread

RMS_LIMIT = 3.0
"""How many times the modelled error the error of a whole tensor may be, as root mean squares."""


@dataclass(frozen=True)
class Comparison:
    """A tensor of a target against its definition.

    Attributes:
        elements: compared.
        outside: elements that no correct target stores; all of them where the tensor's error as a whole is
            larger than rounding explains.
        ties: elements on the other side of a discontinuity than the definition, within reach of rounding.
        worst_share: the largest error, as a share of what is allowed; 0 where everything is exact.
        rms_share: root mean square of the errors, as a share of RMS_LIMIT times the modelled one's.
        worst_diff: the largest distance to the definition.
        first: (index, the target's value, the definition's) of the first element outside.
    """

    elements: int
    outside: int
    ties: int
    worst_share: float
    rms_share: float
    worst_diff: float
    first: tuple[tuple[int, ...], float, float] | None = None


def compare(expected: Spread, actual: Array, dtype: str) -> Comparison:
    """Compare a stored tensor with its definition.

    Args:
        expected: of `sdk.reference.expect`.
        actual: of the same shape, as a tensor of that dtype stores it.
        dtype: the tensor's.
    """
    value = expected.value
    if not dtypes.is_float(dtype):
        return _compare_integers(expected, actual)
    got = dtypes.decode(actual, dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        error = got - value
        same = (got == value) | (np.isnan(got) & np.isnan(value))
        error = np.where(same, 0.0, error)
        allowed = np.where(error < 0, _or_zero(expected.below, value), _or_zero(expected.above, value))
        within = same | (np.abs(error) <= allowed)  # a NaN is not
    jumps = np.zeros(value.shape, bool) if expected.jump is None else expected.jump
    rounding = np.abs(value) * dtypes.unit(dtype) * 4
    ties = within & jumps & ~(np.abs(error) <= rounding)
    measured = ~jumps & np.isfinite(error) & np.isfinite(allowed) & (allowed > 0)
    share = float(np.max(np.abs(error[measured & within]) / allowed[measured & within], initial=0.0))
    rms = 0.0
    if expected.modelled is not None and measured.any():
        modelled = float(np.sqrt(np.mean(expected.modelled[measured] ** 2)))
        rms = float(np.sqrt(np.mean(error[measured] ** 2))) / (RMS_LIMIT * modelled) if modelled else 0.0
    outside = int(np.count_nonzero(~within))
    first = _first(~within, got, value)
    if not outside and rms > 1:
        outside, first = got.size, _first(np.abs(error) == np.abs(error).max(), got, value)
    finite = np.abs(error[np.isfinite(error)])
    return Comparison(got.size, outside, int(ties.sum()), share, rms, float(finite.max(initial=0.0)), first)


def _compare_integers(expected: Spread, actual: Array) -> Comparison:
    value, got = expected.value.astype(np.int64), actual.astype(np.int64)
    error = got - value
    below, above = _or_zero(expected.below, value), _or_zero(expected.above, value)
    within = (error >= -below) & (error <= above)
    ties = int(np.count_nonzero(within & (error != 0)))
    worst = float(np.abs(error).max(initial=0))
    outside = int(np.count_nonzero(~within))
    return Comparison(got.size, outside, ties, 0.0, 0.0, worst, _first(~within, got, value))


def _or_zero(part: Array | None, value: Array) -> Array:
    return np.zeros(value.shape) if part is None else part


def _first(wrong: Array, got: Array, value: Array) -> tuple[tuple[int, ...], float, float] | None:
    if not wrong.any():
        return None
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    return index, float(got[index]), float(value[index])
