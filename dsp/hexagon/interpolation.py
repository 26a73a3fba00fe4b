"""The linear and cubic Resize: weighted sums of rows and columns, with one rounding."""

from __future__ import annotations

import numpy as np

from dsp.hexagon.calls import range_fields, splat, variant, walk
from dsp.hexagon.context import Context
from dsp.hexagon.layout import PIXEL, VECTOR_PIXELS, Planes, stretches
from dsp.hexagon.moves import pick_pixels
from dsp.hexagon.networks import spread
from sdk.arena import Buffer, align
from sdk.errors import InternalError
from sdk.graph import Array, Interpolate
from sdk.scales import interpolation_taps

WHOLE = (0, 255)


def interpolate(context: Context, node: Interpolate) -> None:
    graph = context.graph
    x, y = context.ends(node)
    rows, columns = (graph.tensor(node.inputs[index]).data for index in (1, 3))
    if rows is None or columns is None:
        raise InternalError("taps that are not constant", where=f"node {node.name}")
    taps = interpolation_taps(graph, node)
    source, target = context.as_planes(x), context.new_planes(y)
    padded = _whole_vectors(columns)
    if (np.abs(np.diff(padded, axis=0)) > 1).any():  # the sources of a vector are further apart
        source, padded = _gathered(context, source, columns)
    controls, starts = _routes(padded)
    weights = _whole_vectors(taps.columns).reshape(-1, VECTOR_PIXELS, columns.shape[1]).swapaxes(1, 2)
    row_taps = np.stack([rows * source.pitch * PIXEL, (taps.rows & 0xFFFF) * 0x10001], axis=-1)
    fields = {
        "y_row": target.pitch * PIXEL,
        "rows": y.shape[2],
        "bytes": y.shape[3] * PIXEL,
        "zero": splat(x.zero_point),
        "row_taps": context.blob.add(row_taps.astype("<u4")),
        "starts": context.blob.add((starts * PIXEL).astype("<u4")),
        "column_taps": context.blob.add(np.stack([controls, weights], axis=2).astype("<u4")),
        "rounding": 1 << taps.shift >> 1,
        "shift": taps.shift,
        **range_fields(y, WHOLE),
    }
    kernel = variant("interpolate", {"ROWS": rows.shape[1], "COLUMNS": columns.shape[1]}, {})
    for given, made in stretches(source, target):
        context.call(kernel, fields | walk(made, x=given), "interpolate")
    context.pad(y, target)
    context.finish_planes(y, target)


def _whole_vectors(values: Array) -> Array:
    """[outputs, taps] for whole vectors of outputs, by repeating the last."""
    outputs = align(len(values), VECTOR_PIXELS)
    return np.pad(values, ((0, outputs - len(values)), (0, 0)), mode="edge")


def _gathered(context: Context, source: Planes, columns: Array) -> tuple[Planes, Array]:
    """The columns of each tap behind each other in rows of their own, and where in them the taps are."""
    outputs, taps = _whole_vectors(columns).shape
    pitch = taps * outputs
    plane = source.height * pitch * PIXEL
    sample = source.planes * plane
    buffer = context.keep(
        Buffer(f"{source.buffer.name} columns", source.samples * sample, context.now, context.now)
    )
    cells = (source.height, pitch, source.channels, source.height, pitch)
    copy = Planes(buffer, 0, plane, plane, *cells, samples=source.samples, sample=sample)
    order = _whole_vectors(columns).T.reshape(-1)
    pick_pixels(context, source, copy, range(source.height), [int(column) for column in order])
    return copy, np.arange(taps * outputs).reshape(taps, outputs).T


def _routes(sources: Array) -> tuple[Array, Array]:
    """Controls [vectors, taps, 32] and starts [vectors, taps] of what lies behind each tap's 32 outputs.

    Args:
        sources: [outputs, taps] of whole vectors; neighbours are at most one apart.
    """
    vectors = sources.reshape(-1, VECTOR_PIXELS, sources.shape[1]).swapaxes(1, 2)
    starts = vectors.min(axis=2)
    controls = np.zeros(vectors.shape, np.int64)
    for index in np.ndindex(*starts.shape):
        controls[index] = spread(np.arange(VECTOR_PIXELS), vectors[index] - starts[index])
    return controls, starts
