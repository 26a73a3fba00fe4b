"""Sparse constants of TFLite, as its schema describes them (SparsityParameters, after TACO's formats)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from sdk.graph import Array

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Dimension:
    """One level of the nest in which the stored elements are listed.

    Attributes:
        size: of a dense level; 0 where it is compressed.
        segments: where the entries of each parent begin, and the last end.
        indices: of a compressed level: the coordinate of each entry.
    """

    size: int
    segments: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    indices: Array = field(default_factory=lambda: np.zeros(0, np.int64))


def densified(
    values: Array, shape: Shape, dimensions: Sequence[Dimension], order: Sequence[int], blocks: Sequence[int]
) -> Array:
    """All elements of a sparse constant.

    Args:
        values: the stored elements, in the order in which the levels list them.
        shape: of the result.
        dimensions: the levels, the outermost first: one for each axis, then one for each blocked axis.
        order: which axis (or, from the rank on, which block) each level stands for.
        blocks: the axis that each block divides.

    Raises:
        ValueError: these contradict each other.
    """
    rank = len(shape)
    if sorted(order) != list(range(rank + len(blocks))) or len(order) != len(dimensions):
        raise ValueError(
            f"a sparse constant with levels {list(order)} for {rank} axes and {len(blocks)} blocks"
        )
    if any(not 0 <= axis < rank for axis in blocks) or len(set(blocks)) != len(blocks):
        raise ValueError(f"a sparse constant with blocks of the axes {list(blocks)}")
    inner = [1] * rank  # elements of a block, by axis
    for level, number in zip(dimensions, order, strict=True):
        if number >= rank:
            if level.size < 1:
                raise ValueError("a sparse constant whose blocks are sparse")
            inner[blocks[number - rank]] = level.size
    places: list[Array] = []  # the coordinate of each entry so far, by level
    count = 1
    for level, number in zip(dimensions, order, strict=True):
        if level.size * count > values.size:
            raise ValueError(f"a sparse constant of {values.size} elements with {level.size * count} places")
        if level.size:
            limit, parents = level.size, np.repeat(np.arange(count), level.size)
            own = np.tile(np.arange(level.size), count)
        else:
            limit = shape[number] // inner[number]
            parents, own = _entries(level, count)
        if own.size > values.size or (own.size and not 0 <= own.min() <= own.max() < limit):
            raise ValueError(f"a sparse constant with {own.size} entries of {values.size} elements")
        places = [place[parents] for place in places] + [own]
        count = own.size
    if count != values.size:
        raise ValueError(f"a sparse constant of {values.size} elements with {count} places")
    coordinates = [np.zeros(count, np.int64) for _ in shape]
    for place, number in zip(places, order, strict=True):
        if number < rank:
            coordinates[number] += place * inner[number]
        else:
            coordinates[blocks[number - rank]] += place
    if any(c.size and c.max() >= n for c, n in zip(coordinates, shape, strict=True)):
        raise ValueError(f"a sparse constant with elements outside {list(shape)}")
    result = np.zeros(math.prod(shape), values.dtype)
    result[np.ravel_multi_index(tuple(coordinates), shape) if count else []] = values
    return result.reshape(shape)


def _entries(level: Dimension, count: int) -> tuple[Array, Array]:
    """Of a compressed level: each entry's parent, and its coordinate."""
    segments = level.segments
    lengths = np.diff(segments)
    fits = segments.size == count + 1 and segments[0] == 0 and (lengths >= 0).all()
    if not fits or segments[-1] != level.indices.size:
        raise ValueError("a sparse constant whose segments do not fit its indices")
    return np.repeat(np.arange(count), lengths), level.indices
