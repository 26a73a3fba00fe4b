"""Products of floats with random data, laid out with any strides, and their definition in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sdk import dtypes
from sdk.graph import Array
from sdk.opencl.product import Constant, Matrix, Operand, Product
from sdk.reference.comparison import compare
from sdk.reference.spread import Spread
from sdk.reference.sums import half_summed, summed


def strides_of(shape: Sequence[int], order: Sequence[int], gaps: Sequence[int]) -> tuple[int, ...]:
    """Strides of axes that lie in this order, the last one innermost, `gaps` elements behind each."""
    strides, step = [0] * len(shape), 1
    for axis, gap in zip(reversed(order), gaps, strict=True):
        strides[axis] = step
        step = step * int(shape[axis]) + int(gap)
    return tuple(strides)


def laid_out(values: Array, strides: Sequence[int], filling: Array) -> Array:
    """One-dimensional memory that holds `values` so, and `filling` elsewhere."""
    size = 1 + sum((extent - 1) * stride for extent, stride in zip(values.shape, strides, strict=True))
    memory = np.full(size, filling, values.dtype)
    view(memory, values.shape, strides)[...] = values
    return memory


def view(memory: Array, shape: Sequence[int], strides: Sequence[int]) -> Array:
    """The elements of a tensor in memory."""
    nbytes = [stride * memory.itemsize for stride in strides]
    return np.lib.stride_tricks.as_strided(memory, shape, nbytes)


def nan(dtype: str) -> Array:
    return dtypes.encode(np.array(np.nan), dtype)


@dataclass
class Trial:
    """A product with its data.

    Attributes:
        x: [batches.., pictures, rows, columns, k] as stored.
        w: [sets, channels, taps, k] as stored, or of an activation [batches.., channels, k].
        bias: [sets, channels] or None.
        others: [batches.., pictures, rows, columns, channels] of the epilogue's operands, as stored.
    """

    product: Product
    x: Array
    w: Array
    bias: Array | None
    others: Sequence[Array] = ()

    def sets(self) -> Array:
        """Which set of a constant w each batch has: [batches..]."""
        steps = self.product.w.batches or (0,) * len(self.product.batches)
        grid = np.indices(self.product.batches).reshape(len(steps), *self.product.batches)
        return np.tensordot(np.asarray(steps, int), grid, 1).astype(int)

    def expected(self, halves: bool = False) -> Spread:
        """The definition: [batches.., pictures, rows, columns, channels], not yet rounded to y's dtype.

        Args:
            halves: whether products are added in half arithmetic.
        """
        p = self.product
        x, w = dtypes.decode(self.x, p.x.dtype), dtypes.decode(self.w, p.w.dtype)
        w = w[..., :, None, :] if isinstance(p.w, Matrix) else w[self.sets()]
        lead, shape = len(p.batches), (*p.batches, *p.pixels, p.channels)
        value, magnitude, squares = (np.zeros(shape) for _ in range(3))
        for tap, columns in enumerate(self._columns(x, lead)):
            factor = w[..., tap, :].reshape(*p.batches, 1, 1, p.channels, p.k).swapaxes(-1, -2)
            value += columns @ factor
            magnitude += np.abs(columns) @ np.abs(factor)
            squares += columns**2 @ factor**2
        if self.bias is not None:
            bias = self.bias.astype(np.float64)[self.sets()]
            value += bias.reshape(*p.batches, 1, 1, 1, -1)
            magnitude += np.abs(bias).reshape(*p.batches, 1, 1, 1, -1)
        found = summed(value, magnitude, p.taps * p.k + 1, "float32", 0.0)
        return half_summed(found, squares, p.taps * p.k) if halves else found

    def _columns(self, x: Array, lead: int) -> Any:
        window = self.product.window
        if window is None:
            yield x
            return
        _, rows, columns = self.product.pixels
        for down in range(window.size[0]):
            for right in range(window.size[1]):
                at_y = np.arange(rows) * window.strides[0] - window.pads[0] + down * window.dilations[0]
                at_x = np.arange(columns) * window.strides[1] - window.pads[1] + right * window.dilations[1]
                inside = ((at_y >= 0) & (at_y < window.x[0]))[:, None] & ((at_x >= 0) & (at_x < window.x[1]))
                taken = np.take(x, at_y.clip(0, window.x[0] - 1), axis=lead + 1)
                taken = np.take(taken, at_x.clip(0, window.x[1] - 1), axis=lead + 2)
                yield taken * inside[..., None]


def operand_strides(operand: Operand) -> tuple[int, ...]:
    return (*operand.batches, *operand.pixel, operand.inner)


def trial(product: Product, seed: int = 0) -> Trial:
    """With random data."""
    random = np.random.default_rng(seed)
    sets = 1
    if isinstance(product.w, Constant):
        steps = product.w.batches or (0,) * len(product.batches)
        sets += sum((extent - 1) * step for extent, step in zip(product.batches, steps, strict=True))
        w_shape: tuple[int, ...] = (sets, product.channels, product.taps, product.k)
    else:
        w_shape = (*product.batches, product.channels, product.k)
    rows = product.window.x if product.window else product.pixels[1:]
    shape = (*product.batches, product.pixels[0], *rows, product.k)

    def random_values(shape: Sequence[int], dtype: str) -> Array:
        return dtypes.encode(random.normal(size=shape), dtype)

    operands = product.epilogue.operands if product.epilogue else ()
    y_shape = (*product.batches, *product.pixels, product.channels)
    return Trial(
        product,
        _repeated(random_values(shape, product.x.dtype), operand_strides(product.x)),
        _shared(random_values(w_shape, product.w.dtype), product.w),
        random.normal(size=(sets, product.channels)).astype(np.float32) if product.bias else None,
        [_repeated(random_values(y_shape, one.dtype), operand_strides(one)) for one in operands],
    )


def _shared(w: Array, how: Constant | Matrix) -> Array:
    return w if isinstance(how, Constant) else _repeated(w, (*how.batches, how.channel, how.k))


def _repeated(values: Array, strides: Sequence[int]) -> Array:
    """The same values along axes that have no stride."""
    for axis, stride in enumerate(strides):
        if stride == 0:
            values = np.repeat(np.take(values, [0], axis), values.shape[axis], axis)
    return values


def dense(shape: Sequence[int], dtype: str, gaps: Sequence[int] = (), lead: int = 0) -> Operand:
    """An operand of [batches.., picture, row, column, channel], in that order, with gaps behind axes."""
    filled = (*gaps, *(0,) * len(shape))[: len(shape)]
    strides = strides_of(shape, range(len(shape)), filled)
    return Operand(dtype, strides[lead : lead + 3], strides[-1], strides[:lead])


def assert_clamped_sum(made: Trial, epilogue: Any, total: Spread, result: Array, rounded: bool) -> None:
    """A result is the product's `total` and a residual, by a factor, from 0 to a limit.

    Args:
        made: with the three operands of the epilogue.
        epilogue: what they are.
        total: the product by itself.
        result: as stored.
        rounded: product and sum were rounded to float16, each.
    """
    added, factor, limit = (
        dtypes.decode(values, one.dtype) for values, one in zip(made.others, epilogue.operands, strict=True)
    )
    total = total.stored("float16") if rounded else total
    both = Spread.around(total.value + added, total.reach, total.modelled)
    both = both.stored("float16") if rounded else both
    low, high = (np.clip(edge * factor, 0, limit) for edge in (both.low, both.high))
    value = np.clip(both.value * factor, 0, limit)
    low, high = np.minimum(low, high), np.maximum(low, high)
    bound = Spread(value, value - low + 1e-6, high - value + 1e-6).stored("float16")
    found = compare(bound, result, "float16")
    assert found.outside == 0, found
    decoded = dtypes.decode(result, "float16")
    assert (decoded == 0).any()
    assert (decoded == 1.5).any()
