"""Pixels brought to their places within a vector by `vdelta` and `vrdelta`: networks of five stages of pairs.

A stage of distance d gives each place its own pixel, or that of the place whose number differs in bit d
alone, as its control says. `vdelta` begins with the largest distance, `vrdelta` with the smallest.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dsp.hexagon.calls import splat
from dsp.hexagon.layout import PIXEL, VECTOR_PIXELS

Places = NDArray[np.int64]

DISTANCES = (1, 2, 4, 8, 16)
RISING, FALLING = range(1, VECTOR_PIXELS), range(1 - VECTOR_PIXELS, 0)


def spread(output: Places, source: Places) -> Places:
    """Controls [32] of a `vdelta` that takes sources to outputs, neighbours being at most one apart.

    Behind a stage of distance d a pixel is where the upper bits of its output and the lower ones of its
    source say. Two outputs that share those are less than d apart; so are their sources, which are the same.
    """
    controls = np.zeros(VECTOR_PIXELS, np.int64)
    for distance in reversed(DISTANCES):
        place = (output & -distance) | (source & (distance - 1))
        controls[place] |= splat(PIXEL) * ((output ^ source) & distance)
    return controls


def narrowed(output: Places, source: Places) -> Places:
    """Controls [32] of a `vrdelta` that takes sources to outputs, where the sources only rise or only fall.

    Behind a stage of distance d a pixel is where the lower bits of its output and the upper ones of its
    source say. Two sources that share those are less than 2d apart; so are their outputs, which are the same.
    """
    controls = np.zeros(VECTOR_PIXELS, np.int64)
    for distance in DISTANCES:
        place = (source & -2 * distance) | (output & (2 * distance - 1))
        controls[place] |= splat(PIXEL) * ((output ^ source) & distance)
    return controls


def gathered(sources: Sequence[int]) -> tuple[Places, Places]:
    """How vectors of any pixels of a row are put together from pieces.

    Returns:
        (starts [vectors, pieces], [vectors, pieces, 3, 32]): the first pixel of what a piece is taken from;
        the controls of a `vdelta`, of a `vrdelta` behind it, and the mask of the piece.
    """
    vectors = [
        list(_pieces(sources[first : first + VECTOR_PIXELS]))
        for first in range(0, len(sources), VECTOR_PIXELS)
    ]
    count = max(map(len, vectors))
    starts = np.zeros((len(vectors), count), np.int64)
    words = np.zeros((len(vectors), count, 3, VECTOR_PIXELS), np.int64)
    for vector, pieces in enumerate(vectors):
        for piece, (first, end, narrow) in enumerate(pieces):
            own = np.array(sources[vector * VECTOR_PIXELS :][first:end])
            starts[vector, piece] = own.min()
            way, output = narrowed if narrow else spread, np.arange(first, end)
            words[vector, piece, int(narrow)] = way(output, own - own.min())
            words[vector, piece, 2, first:end] = 0xFFFFFFFF
    return starts, words


def _pieces(sources: Sequence[int]) -> list[tuple[int, int, bool]]:
    """(first, end, whether it is narrowed) of the longest pieces of a vector that one network makes."""
    steps = [b - a for a, b in itertools.pairwise(sources)]
    pieces = []
    first = 0
    while first < len(sources):
        ends = {}
        for narrow, allowed in ((False, (-1, 0, 1)), (True, RISING), (True, FALLING)):
            end = first + 1
            while end < len(sources) and steps[end - 1] in allowed:
                if abs(sources[end] - sources[first]) >= VECTOR_PIXELS:
                    break
                end += 1
            ends[end] = narrow
        end = max(ends)
        pieces.append((first, end, ends[end]))
        first = end
    return pieces
