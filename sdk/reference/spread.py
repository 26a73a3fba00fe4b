"""A real array together with what correct implementations may have in its place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sdk import dtypes
from sdk.expression import Interval
from sdk.graph import Array


@dataclass(frozen=True)
class Spread:
    """A value and how far from it implementations may be.

    Attributes:
        value: in real arithmetic: float64; integers and truth values exactly, in their own dtype.
        below, above: how far results may lie under and over it, 0 or more; None for not at all.
        jump: where a discontinuity is within reach: bool of the same shape; None for nowhere.
        modelled: a root mean square of the error that rounding is expected to cause, element by element; None
            where only storing the result rounds.
    """

    value: Array
    below: Array | None = None
    above: Array | None = None
    jump: Array | None = None
    modelled: Array | None = None

    @property
    def is_exact(self) -> bool:
        return self.below is None

    @property
    def reach(self) -> Array | float:
        """The larger of `below` and `above`."""
        if self.below is None or self.above is None:
            return 0.0
        return np.maximum(self.below, self.above)

    @property
    def low(self) -> Array:
        return self.value if self.below is None else _moved(self.value, -self.below)

    @property
    def high(self) -> Array:
        return self.value if self.above is None else _moved(self.value, self.above)

    @property
    def interval(self) -> Interval:
        return Interval(self.value, self.low, self.high, self.jump)

    @staticmethod
    def of(interval: Interval) -> Spread:
        """An interval of reals, or of anything that has none."""
        value, low, high, jump = interval
        if value.dtype.kind != "f":
            low, high, plain = low.astype(np.int64), high.astype(np.int64), value.astype(np.int64)
            if (low == plain).all() and (high == plain).all():
                return Spread(value)
            return Spread(value, plain - low, high - plain, jump)
        with np.errstate(invalid="ignore"):
            below, above = _distance(value, low), _distance(high, value)
        return Spread(value, below, above, jump, np.maximum(below, above) / 4)

    @staticmethod
    def around(
        value: Array, reach: Array, modelled: Array | None = None, jump: Array | None = None
    ) -> Spread:
        """As far below as above. Infinite and undefined results leave no choice."""
        with np.errstate(invalid="ignore"):
            reach = np.where(np.isfinite(value), np.nan_to_num(reach, nan=np.inf, posinf=np.inf), 0.0)
        if modelled is None:
            modelled = reach / 4
        return Spread(value, reach, reach, jump, np.where(np.isfinite(modelled), modelled, 0.0))

    def stored(self, dtype: str) -> Spread:
        """With one more rounding: to what a tensor of that dtype can hold.

        A float is rounded to nearest; `unit` of its magnitude is as much as half a unit in its last place. An
        exact value has one that is nearest.
        """
        form = dtypes.dtype(dtype).format
        if form is None:
            return self
        if self.is_exact:
            rounded = dtypes.round_to(self.value, dtype)
            return Spread(
                self.value, _distance(self.value, rounded), _distance(rounded, self.value), self.jump
            )
        value = self.value
        with np.errstate(invalid="ignore", over="ignore"):
            rounding = np.where(
                np.isfinite(self.value), form.unit * np.abs(self.value) + form.smallest / 2, 0.0
            )
            low, high = self.low, self.high
            below = rounding + (self.below if self.below is not None else 0.0)
            above = rounding + (self.above if self.above is not None else 0.0)
            if form.has_infinity:  # what rounds to beyond the largest number is an infinity
                edge = form.largest * (1 + form.unit / 2)
                below = np.where((low - rounding < -edge) & np.isfinite(self.value), np.inf, below)
                above = np.where((high + rounding > edge) & np.isfinite(self.value), np.inf, above)
                certain = np.minimum(np.abs(low), np.abs(high)) > form.largest * (1 + form.unit)
                certain &= np.sign(low) == np.sign(high)
                value = np.where(certain, np.copysign(np.inf, self.value), value)
                below, above = (np.where(certain, 0.0, each) for each in (below, above))
            modelled = np.abs(self.value) * (form.unit / np.sqrt(3)) + form.smallest / 4
            modelled = np.where(np.isfinite(modelled), modelled, 0.0)
        if self.modelled is not None:
            modelled = np.hypot(modelled, self.modelled)
        return Spread(value, below, above, self.jump, modelled)


def _distance(high: Array, low: Array) -> Array:
    """``high - low`` where that is defined; equal infinities and NaN are 0 apart."""
    with np.errstate(invalid="ignore"):
        distance = high - low
    return np.where(np.isnan(distance), 0.0, np.maximum(distance, 0.0))


def _moved(value: Array, by: Array) -> Array:
    with np.errstate(invalid="ignore"):
        moved = value + by
    return np.where(np.isnan(moved), value, moved) if moved.dtype.kind == "f" else moved
