"""Where a tensor's elements are: a place and a step along each axis.

A Transpose, a Slice and most Reshapes are other views of the same bytes, and so is the operand of a Concat
that is made in its place. What reads a tensor takes it with the steps that it has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sdk import dtypes
from sdk.opencl.calls import At, Pointer, Weights

Steps = tuple[int, ...]
"""Elements from one to the next along each axis."""


@dataclass(frozen=True)
class View:
    """The elements of a tensor, or a part of one.

    Attributes:
        at: of the element whose coordinates are 0.
        shape: extents.
        steps: along each axis, in elements; negative ones are backwards, and 0 is the same element again.
        dtype: a name of `sdk.dtypes`.
    """

    at: At | Weights
    shape: tuple[int, ...]
    steps: Steps
    dtype: str

    @property
    def itemsize(self) -> int:
        return dtypes.dtype(self.dtype).nbytes

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def is_dense(self) -> bool:
        """Whether the elements are in C order, without gaps."""
        return same_steps(self.shape, self.steps, dense_steps(self.shape))

    def moved(self, elements: int, shape: Sequence[int], steps: Sequence[int]) -> View:
        """The view that begins so many elements later."""
        nbytes = elements * self.itemsize
        if isinstance(self.at, At):
            at: At | Weights = replace(self.at, delta=self.at.delta + nbytes)
        else:
            at = Weights(self.at.offset + nbytes)
        return View(at, tuple(shape), tuple(steps), self.dtype)

    def transposed(self, perm: Sequence[int]) -> View:
        return replace(
            self, shape=tuple(self.shape[i] for i in perm), steps=tuple(self.steps[i] for i in perm)
        )

    def sliced(self, starts: Sequence[int], strides: Sequence[int], shape: Sequence[int]) -> View:
        first = sum(start * step for start, step in zip(starts, self.steps, strict=True))
        return self.moved(first, shape, [step * one for step, one in zip(self.steps, strides, strict=True)])

    def broadcast(self, shape: Sequence[int]) -> View:
        """As numpy broadcasts."""
        own = [0 if n == 1 else step for n, step in zip(self.shape, self.steps, strict=True)]
        return replace(self, shape=tuple(shape), steps=(0,) * (len(shape) - len(own)) + tuple(own))

    def reshaped(self, shape: Sequence[int]) -> View | None:
        """The same elements in C order as another shape; None where steps cannot say that."""
        steps = reshaped_steps(self.shape, self.steps, shape)
        return None if steps is None else replace(self, shape=tuple(shape), steps=steps)

    def is_aligned(self, nbytes: int) -> bool:
        """Whether the first element is at a multiple of `nbytes`; buffers and constants are."""
        offset = self.at.delta if isinstance(self.at, At) else self.at.offset
        return offset % nbytes == 0

    @property
    def pointer(self) -> Pointer:
        return self.at


def dense_steps(shape: Sequence[int]) -> Steps:
    """Of a tensor in C order."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def channels_last_steps(shape: Sequence[int], pitch: int) -> Steps:
    """Of [N,C,H,W] with the channels innermost, and so many elements from a pixel to the next."""
    _, _, height, width = shape
    return height * width * pitch, 1, width * pitch, pitch


def same_steps(shape: Sequence[int], a: Sequence[int], b: Sequence[int]) -> bool:
    """Whether both reach the same elements: along an axis of 1 nothing moves."""
    return all(n == 1 or x == y for n, x, y in zip(shape, a, b, strict=True))


def reshaped_steps(shape: Sequence[int], steps: Sequence[int], to: Sequence[int]) -> Steps | None:
    """Steps of the same elements in another shape of as many; None where there are none."""
    old = [(n, step) for n, step in zip(shape, steps, strict=True) if n != 1]
    if math.prod(shape) <= 1:
        return (0,) * len(to)
    found: list[int] = []
    place, left = 0, 0  # of `old`; what is left of the axis that is being divided
    inner = 0
    for n in to:
        if n == 1:
            found.append(0)
            continue
        if left <= 1:
            left, inner = old[place]
            place += 1
        # Neighbours that are one axis in memory are joined until the new axis fits.
        while left % n and place < len(old) and inner == old[place][0] * old[place][1]:
            left, inner = left * old[place][0], old[place][1]
            place += 1
        if left % n:
            return None
        left //= n
        found.append(left * inner)
    return tuple(found)


def walks(shape: Sequence[int], *steps: Sequence[int]) -> list[tuple[int, tuple[int, ...]]]:
    """The fewest loops (extent, steps) that visit the same elements of all, the innermost first.

    The innermost is the one along which the first moves the least.
    """
    axes = [(n, one) for n, *one in zip(shape, *steps, strict=True) if n > 1]
    axes.sort(key=lambda axis: [abs(step) for step in axis[1]])
    found: list[tuple[int, tuple[int, ...]]] = []
    for n, one in axes:
        if found:
            inner, moved = found[-1]
            if all(step == inner * other for step, other in zip(one, moved, strict=True)):
                found[-1] = inner * n, moved
                continue
        found.append((n, tuple(one)))
    return found or [(1, (0,) * len(steps))]
