"""Products of matrices: of two activations, and of rows by constants.

Both sides are packed at run time, unless the right one is constant: rows in tiles, of which a step's four
elements are broadcast, and columns by 32. They are multiplied as they are stored; what their zero-points add
to an accumulator is a term of its row and a term of its column.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsp.hexagon.calls import At, Fields, range_fields, variant
from dsp.hexagon.context import Context
from dsp.hexagon.layout import PIXEL
from dsp.hexagon.packing import Int, factors, gemm_weights
from dsp.hexagon.walks import interleave
from sdk.arena import ALIGNMENT, align
from sdk.errors import Unsupported
from sdk.graph import Array, Clamp, Conv, Gemm, Graph, MatMul, Tensor
from sdk.lowering import centred_weights
from sdk.scales import node_scales, weight_quantization

COLUMNS = 32
"""Of a vector."""

ACCUMULATORS = 16
"""Vectors of sums that a tile has at most: rows times vectors of columns."""

BYTE = 255

REQUANTIZE, STORE = 2, 12
"""Packets of a vector of sums, and of storing a part of a row."""


@dataclass(frozen=True)
class _Rows:
    """Rows of elements that are summed over, and the bytes from one to the next within a matrix."""

    x: Tensor
    length: int
    pitch: int
    matrices: int = 1

    @staticmethod
    def of(x: Tensor, rows: int) -> _Rows:
        """All of a tensor, as many rows a matrix."""
        length = x.shape[-1]
        return _Rows(x, length, length, x.size // (rows * length))


@dataclass(frozen=True)
class _Side:
    """A packed operand: where its matrices and their terms are, and bytes from one part of them to the next.

    Attributes:
        data, terms: arena, or offsets in the weights.
        step: bytes from a tile of rows, or a vector of columns, to the next.
        matrices: how many follow each other.
    """

    data: At | int
    terms: At | int
    step: int
    matrices: int


def matmul(context: Context, node: MatMul) -> None:
    """A MatMul on quantised tensors; leading axes broadcast."""
    left, right, y = (context.graph.tensor(name) for name in (*node.inputs[:2], node.output))
    bias = context.graph.tensor(node.inputs[2]).data if len(node.inputs) > 2 else None
    leading = [tensor.shape[:-2] for tensor in (left, right)]
    batches: list[tuple[int, int]]
    shape: Sequence[int]
    if len(leading[1]) == leading[1].count(1):  # all rows by one matrix
        shape = (math.prod(left.shape[:-1]), right.shape[-2 if node.transposed else -1])
        batches = [(0, 0)]
    else:
        shape = y.shape[-2:]
        batches = _batches(*leading)
    rows = _Rows.of(left, shape[0])
    at = _product(context, node, rows, right, y, shape, batches, node.transposed, bias, (0, BYTE))
    context.finish_dense(y, at)


def rows(context: Context, node: Gemm) -> None:
    """A Gemm of several rows."""
    x, weight, y = (context.graph.tensor(name) for name in (*node.inputs[:2], node.output))
    bias = context.graph.tensor(node.inputs[2]).data if len(node.inputs) > 2 else None
    rows = _Rows.of(x, y.shape[0])
    at = _product(context, node, rows, weight, y, y.shape, [(0, 0)], True, bias, node.clamp)
    context.finish_dense(y, at)


def is_of_frames(graph: Graph, node: Conv) -> bool:
    """Whether the windows of a convolution are rows of a dense tensor: of one channel and row, unpadded."""
    x, y = (graph.tensor(name).shape for name in (node.inputs[0], node.output))
    line = x[1] == x[2] == y[2] == 1 and not any(node.pads) and node.dilations[1] == 1
    weights = centred_weights(graph.tensor(node.inputs[1]))
    in_bytes = weights.max() - min(int(weights.min()), 0) <= BYTE
    return bool(line and y[1] % PIXEL == 0 and y[3] > 1 and in_bytes)


def frames(context: Context, node: Conv) -> None:
    """Such a convolution: the samples under the window, times the weights."""
    x, y = context.ends(node)
    weight = context.graph.tensor(node.inputs[1])
    bias = context.graph.tensor(node.inputs[2]).data if len(node.inputs) > 2 else None
    assert weight.data is not None  # verified
    (samples, outputs, _, count), taps = y.shape, weight.shape[3]
    matrix = dataclasses.replace(weight, shape=(outputs, taps), data=weight.data.reshape(outputs, taps))
    rows = _Rows(x, taps, node.strides[1], samples)
    batches = [(sample, 0) for sample in range(samples)]
    at = _product(context, node, rows, matrix, y, (count, outputs), batches, True, bias, node.clamp)
    target = context.new_planes(y)
    planes = (target.planes, target.plane)
    outer = [(samples, count * outputs, target.sample)]
    interleave(context, PIXEL, at, At(target.buffer, target.base), (count, outputs), planes, outer)
    context.pad(y, target)
    context.finish_planes(y, target)


def _batches(left: Sequence[int], right: Sequence[int]) -> list[tuple[int, int]]:
    """For each matrix of the result, in order, which ones of the two sides it is the product of."""
    shape = np.broadcast_shapes(tuple(left), tuple(right))
    indices = [
        np.broadcast_to(np.arange(math.prod(axes)).reshape(axes), shape).reshape(-1) for axes in (left, right)
    ]
    return [(int(a), int(b)) for a, b in zip(*indices, strict=True)]


def _product(
    context: Context,
    node: MatMul | Gemm | Conv,
    left: _Rows,
    right: Tensor,
    y: Tensor,
    shape: Sequence[int],
    batches: Sequence[tuple[int, int]],
    transposed: bool,
    bias: Array | None,
    clamp: Clamp,
) -> At:
    """The calls that make y's rows; `shape` is that of each matrix, of operands with these indices."""
    (count, columns), length, zero = shape, left.length, left.x.zero_point
    vectors = _vectors(-(-columns // COLUMNS), -(-length // 4))
    tile = min(ACCUMULATORS // vectors, max(2, 1 << (count - 1).bit_length()))
    tile = 1 << tile.bit_length() - 1
    tiles, blocks, steps = -(-count // tile), -(-columns // (COLUMNS * vectors)), -(-length // 4)
    if right.data is not None:
        b, zero_point = _constant_side(context, right, zero, transposed, bias, blocks * vectors)
    else:
        zero_point = right.zero_point
        b = _columns(context, right, zero, transposed, bias, blocks * vectors)
    terms = _terms(-zero_point, length * zero * zero_point)
    a = _packed_rows(context, left, count, tile, terms, tiles)
    scales = node_scales(context.graph, node)
    reach = BYTE * BYTE * length + (0 if bias is None else int(np.abs(bias.astype(np.int64)).max()))
    by = factors(context, scales, reach)
    multiplier, shift = (_padded(values, blocks * vectors) for values in (by.multipliers, by.shifts))
    at = At(context.buffer(y.name, align(y.nbytes)))
    features = {
        "CONSTANT": right.data is not None,
        "SHIFTED": bool(shift.any()),
        "WHOLE": columns == vectors * COLUMNS and tile * vectors % 4 == 0,
        "Q15": context.q15,
    }
    kernel = variant("matmul", {"ROWS": tile, "VECTORS": vectors}, features)
    fields: dict[str, Any] = {
        "a_tile": a.step,
        "b_vector": b.step,
        "tiles": tiles,
        "blocks": blocks,
        "steps": steps,
        "rows": count,
        "columns": columns,
        "multiplier": context.blob.add(multiplier),
        "shift": context.blob.add(shift) if shift.any() else 0,
        **range_fields(y, clamp),
    }
    a_matrix, b_matrix = tiles * a.step, blocks * vectors * b.step
    for first, number, a_moves, b_moves in _runs(batches):
        i, j = batches[first]
        parts = {
            "a": _moved(a.data, i * a_matrix),
            "a_batch": a_matrix if a_moves else 0,
            "a_terms": _moved(a.terms, i * tiles * tile * 4),
            "b": _moved(b.data, j * b_matrix),
            "b_batch": b_matrix if b_moves else 0,
            "b_terms": _moved(b.terms, j * blocks * vectors * ALIGNMENT),
            "y": At(at.buffer, first * count * columns),
            "batches": number,
        }
        context.call(kernel, {**fields, **parts}, "matmul")
    sums = len(batches) * tiles * tile * blocks * vectors
    context.layer.multiplies(sums * steps, sums)
    return at


def _vectors(needed: int, steps: int) -> int:
    """Of columns in a block: so many that a row of the result takes the fewest packets."""

    def packets(vectors: int) -> float:
        return -(-needed // vectors) * (vectors * (steps / 2 + REQUANTIZE) + STORE)

    return min((4, 3, 2, 1), key=packets)


def _runs(batches: Sequence[tuple[int, int]]) -> list[tuple[int, int, bool, bool]]:
    """Batches that one call does: the first, how many, and whether the left and right matrices move on."""
    runs: list[tuple[int, int, bool, bool]] = []
    first = 0
    while first < len(batches):
        step, end = (0, 0), first + 1
        if end < len(batches):
            step = (batches[end][0] - batches[first][0], batches[end][1] - batches[first][1])
        if set(step) <= {0, 1}:
            while end < len(batches) and batches[end] == (
                batches[end - 1][0] + step[0],
                batches[end - 1][1] + step[1],
            ):
                end += 1
        runs.append((first, end - first, bool(step[0]), bool(step[1])))
        first = end
    return runs


def _moved(place: At | int, by: int) -> At | int:
    return At(place.buffer, place.delta + by) if isinstance(place, At) else place + by


def _padded(values: Int, vectors: int) -> Array:
    return np.pad(values, (0, vectors * COLUMNS - len(values))).astype("<i4")


# -- operands ---------------------------------------------------------------------------------------------


def _packed_rows(context: Context, rows: _Rows, count: int, tile: int, terms: Fields, tiles: int) -> _Side:
    """Rows packed by tiles; `count` of them are a matrix."""
    x, matrices = rows.x, rows.matrices
    step = align(align(rows.length, 4) * tile)
    source = context.as_dense(x)
    data = At(context.buffer(f"{x.name} by rows", matrices * tiles * step))
    words = At(context.buffer(f"{x.name} sums", align(matrices * tiles * tile * 4)))
    fields = {
        "x": source,
        "x_row": rows.pitch,
        "x_matrix": x.size // matrices,
        "batches": matrices,
        "rows": count,
        "bytes": rows.length,
        "y": data,
        "y_tile": step,
        "tiles": tiles,
        "terms": {"y": words, **terms},
    }
    context.call(variant("pack", {"ROWS": tile}, {}), fields, "pack_rows")
    return _Side(data, words, step, matrices)


def _columns(
    context: Context, x: Tensor, zero_point: int, transposed: bool, bias: Array | None, vectors: int
) -> _Side:
    """The columns of an activation packed, with what the left side's zero-point adds, which is given."""
    words = 0 if bias is None else context.blob.add(_padded(bias, vectors))
    terms = _terms(-zero_point, 0, words, biased=bias is not None)
    length, columns = (x.shape[-1], x.shape[-2]) if transposed else x.shape[-2:]
    matrices = x.size // (length * columns)
    if transposed:
        rows = _Rows(x, length, length, matrices)
        return _packed_rows(context, rows, columns, COLUMNS, terms, vectors)
    step = -(-length // 4) * ALIGNMENT
    data = At(context.buffer(f"{x.name} by columns", matrices * vectors * step))
    sums = At(context.buffer(f"{x.name} sums", matrices * vectors * ALIGNMENT))
    fields = {
        "x": context.as_dense(x),
        "batches": matrices,
        "rows": length,
        "columns": columns,
        "y": data,
        "y_vector": step,
        "vectors": vectors,
        "terms": {"y": sums, **terms},
    }
    context.call(variant("pack", {}, {"COLUMNS": True}), fields, "pack_columns")
    return _Side(data, sums, step, matrices)


def _terms(factor: int, offset: int, bias: int = 0, *, biased: bool = False) -> Fields:
    return {
        "factor": (factor & 0xFFFF) * 0x10001,
        "offset": offset,
        "biased": int(biased),
        "bias": bias,
    }


def _constant_side(
    context: Context, weight: Tensor, zero_point: int, transposed: bool, bias: Array | None, vectors: int
) -> tuple[_Side, int]:
    """A constant right side as unsigned bytes around one zero-point, and that; `zero_point` is the left's.

    Raises:
        Unsupported: its values less their zero-points do not fit a byte.
    """
    assert weight.data is not None  # verified
    matrix = weight.data.astype(np.int64)
    points, axis = weight_quantization(weight).zero_point, weight_quantization(weight).axis
    matrix -= (
        points.reshape([-1 if i == axis else 1 for i in range(matrix.ndim)]) if axis is not None else points
    )
    if not transposed:
        matrix = matrix.swapaxes(-1, -2)
    matrix = matrix.reshape(-1, *matrix.shape[-2:])  # [matrices, columns, length]
    centre = -min(int(matrix.min()), 0)
    if matrix.max() + centre > BYTE:
        raise Unsupported(
            "its weights less their zero-points take more than eight bits",
            hint="quantise the weights to int8 with zero-points of 0",
        )
    length = matrix.shape[2]
    words = np.zeros(matrix.shape[:2], np.int64) if bias is None else np.broadcast_to(bias, matrix.shape[:2])
    words = words - zero_point * matrix.sum(axis=2) - length * zero_point * centre
    packed = [gemm_weights(one + centre) for one in matrix]
    short = vectors - len(packed[0])
    blocks = np.stack([np.pad(one, ((0, short), (0, 0), (0, 0), (0, 0))) for one in packed])
    terms = np.stack([_padded(one, vectors) for one in words])
    step = blocks.shape[2] * ALIGNMENT
    return _Side(context.blob.add(blocks), context.blob.add(terms), step, len(matrix)), centre
