"""Normalize of quantised tensors (layer, instance, group, RMS): `sdk.reference.integer_islands` defines it.

Dense rows of bytes, whose elements are what one mean is of; the axes are moved together if need be. Factors
and offsets belong to the elements of a row, the same for all rows, or to the rows.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dsp.hexagon.calls import At, KernelSource
from dsp.hexagon.context import Context
from dsp.hexagon.layout import PIXEL, VECTOR_PIXELS
from dsp.hexagon.moves import moved
from dsp.hexagon.reductions import transposed
from sdk.arena import ALIGNMENT, align
from sdk.arithmetic import SPREAD_BITS
from sdk.errors import Unsupported
from sdk.graph import Normalize
from sdk.scales import normalization

Words = NDArray[np.int64]


def normalize(context: Context, node: Normalize) -> None:
    x, y = context.ends(node)
    constants = normalization(context.graph, node)
    kept = [axis for axis in range(len(x.shape)) if axis not in node.axes]
    perm = [*kept, *sorted(node.axes)]
    count = math.prod(x.shape[axis] for axis in node.axes)
    in_place = [axis for axis in perm if x.shape[axis] > 1]
    given, made = x, y
    if in_place != sorted(in_place):
        given = transposed(context, x, perm)
        made = context.named(dataclasses.replace(y, name=f"{y.name} rows", shape=given.shape))
    by_row, words = _spread([constants.factors, constants.offsets], x.shape, perm, count)
    factors, offsets = words
    start = context.as_dense(given)
    at = At(context.buffer(made.name, align(y.nbytes)))
    constant = constants.epsilon
    if not node.centre:
        constant += (count * x.zero_point) ** 2 << SPREAD_BITS
    fields = {
        "x": start,
        "y": at,
        "rows": x.size // count,
        "elements": count,
        "centred": int(node.centre),
        "base": count * x.zero_point,
        "slope": 2 * count * x.zero_point,
        "spread_low": constant & 0xFFFFFFFF,
        "spread_high": constant >> 32,
        "factors": context.blob.add(factors.astype("<i4")),
        "offsets": context.blob.add((offsets + (1 << constants.bits >> 1)).astype("<i4")),
        "shift": constants.shift,
        "bits": constants.bits,
        "zero_point": y.zero_point * 0x10001,
    }
    symbol = "normalize_by_row" if by_row else "normalize_by_element"
    context.call(KernelSource("normalize.c", symbol), fields, "normalize")
    context.finish_dense(made, at)
    if made is not y:
        context.finish_dense(y, moved(context, made, y, np.argsort(perm).tolist()))


def _spread(
    constants: Sequence[Words], shape: Sequence[int], perm: Sequence[int], count: int
) -> tuple[bool, list[Words]]:
    """(whether they belong to rows, each as words by row, or in the order of a row's vectors)."""
    tables = [np.broadcast_to(words, shape).transpose(perm).reshape(-1, count) for words in constants]
    if all((table == table[:, :1]).all() for table in tables):
        return True, [table[:, 0] for table in tables]
    if all((table == table[:1]).all() for table in tables):
        lines = [np.pad(table[0], (0, align(count, ALIGNMENT) - count)) for table in tables]
        return False, [line.reshape(-1, VECTOR_PIXELS, PIXEL).swapaxes(1, 2) for line in lines]
    raise Unsupported(
        "its factors or offsets differ along the axes that it normalises and along others",
        hint="multiply and add by separate operators after the normalisation",
    )
