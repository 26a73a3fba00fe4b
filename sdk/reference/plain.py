"""The definition of every family on plain tensors: real arithmetic on stored inputs, and its rounding errors.

A result has to lie within the error that a target may make: one that computes in `precision`, rounding each
operation, and stores the result once. That of a sum is in `sums`; everything else follows operation by
operation (`sdk.expression.intervals`, or the same by hand here). Within a region or a recurrence the inputs
of a node are uncertain themselves, and their errors are carried on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from sdk import dtypes, expression
from sdk import graph as ops
from sdk.errors import InternalError, InvalidInput
from sdk.expression import Interval
from sdk.graph import Array, Graph, Node
from sdk.reference import moves
from sdk.reference.reductions import combined, reduce, top_k
from sdk.reference.spread import Spread
from sdk.reference.sums import HALF_SUMS, PRECISION, average, product, summed, unit_of
from sdk.reference.windows import padded, taps


def is_plain(graph: Graph, node: Node) -> bool:
    """Whether none of the activations of a node is quantised, or something is defined of plain ones alone."""
    if isinstance(node, ops.Recurrent | ops.Region):
        return True
    if isinstance(node, ops.Quantize | ops.Dequantize):
        return False
    return graph.tensor(node.output).quantization is None


def evaluate(graph: Graph, node: Node, values: Mapping[str, Array]) -> Array:
    """The output of a node, rounded to its tensor's dtype.

    Raises:
        InvalidInput: an index out of range.
    """
    return stored(
        define(graph, node, _read(graph, node, values), None).value, graph.tensor(node.output).dtype
    )


def expect(
    graph: Graph,
    node: Node,
    values: Mapping[str, Array | Spread],
    precision: str = PRECISION,
    actual: Array | None = None,
) -> Spread:
    """What a correct target may store for a node, given the inputs that it had.

    Args:
        graph: holds the node's tensors.
        node: whose output is plain.
        values: the node's input activations, as they are stored; or what they may be, of those that the
            target did not store.
        precision: the float type that the target computes in.
        actual: what the target stored; a recurrence is compared step by step, each from the states that the
            target had.

    Raises:
        InvalidInput: an index out of range.
    """
    inputs = _read(graph, node, values)
    out = graph.tensor(node.output)
    if isinstance(node, ops.Recurrent):
        states = None if actual is None else Spread(_decoded(actual, out.dtype))
        return _recurrent(node, inputs, precision, states)
    result = define(graph, node, inputs, precision)
    return result.stored(out.dtype)


def unrounded(graph: Graph, node: Node, values: Mapping[str, Array | Spread]) -> Array:
    """The result of a node in real arithmetic, before it is rounded to its tensor's dtype."""
    return define(graph, node, _read(graph, node, values), None).value


def stored(value: Array, dtype: str) -> Array:
    """A value as a tensor of that dtype keeps it."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(dtypes.encode(value, dtype), order="C")  # a scalar keeps its rank


def _read(
    graph: Graph, node: Node, values: Mapping[str, Array] | Mapping[str, Array | Spread]
) -> list[Spread]:
    inputs = []
    for name in node.inputs:
        tensor = graph.tensor(name)
        given = values[name] if tensor.data is None else tensor.data
        inputs.append(given if isinstance(given, Spread) else Spread(_decoded(given, tensor.dtype)))
    return inputs


def _decoded(array: Array, dtype: str) -> Array:
    kind = dtypes.dtype(dtype).kind
    if kind == "float":
        return dtypes.decode(array, dtype)
    return array if kind == "bool" else array.astype(np.int64)


def define(graph: Graph, node: Node, inputs: Sequence[Spread], precision: str | None) -> Spread:
    """The result of a node before it is stored.

    Args:
        graph: holds the node's tensors.
        node: any family but Recurrent where there are bounds.
        inputs: float64, int64 or bool, one for each of the node's inputs.
        precision: what targets compute in; None for the value alone.
    """
    x, out = inputs[0], graph.tensor(node.output)
    given, precision = precision, PRECISION if precision == HALF_SUMS else precision
    with np.errstate(all="ignore"):
        match node:
            case ops.Conv() | ops.ConvTranspose() | ops.MatMul():
                return product(graph, node, inputs, given)
            case ops.Map():
                return _map(node, inputs, out.shape, precision)
            case ops.Reduce():
                return reduce(node, x, out.shape, precision)
            case ops.TopK():
                return top_k(node, x)
            case ops.Scatter() if node.reduction != "none":
                return combined(node, inputs, precision)
            case ops.Softmax():
                return _softmax(node, x, precision)
            case ops.Normalize():
                return _normalize(node, inputs, precision)
            case ops.AveragePool() | ops.GlobalAveragePool():
                return average(node, x, precision)
            case ops.MaxPool():
                return _max_pool(node, x)
            case ops.Interpolate():
                return _interpolate(inputs, precision)
            case ops.GridSample():
                return _grid_sample(node, inputs, precision)
            case ops.Recurrent():
                return _recurrent(node, inputs, given, None)
            case ops.Region():
                return _region(graph, node, inputs, given)
            case _:
                return _move(node, inputs, out.shape, graph)


# -- moves: nothing is computed ------------------------------------------------------------------------------


def _move(node: Node, inputs: Sequence[Spread], shape: tuple[int, ...], graph: Graph) -> Spread:
    """Values and their errors move alike; indices are exact."""

    def moved(part: str) -> Array | None:
        arrays = [getattr(spread, part) for spread in inputs]
        if part != "value" and all(array is None for array in arrays):
            return None
        filled = []
        for index, (array, spread) in enumerate(zip(arrays, inputs, strict=True)):
            if part != "value" and not moves.carries(node, index):
                array = spread.value  # an index, whatever is moved
            filled.append(np.zeros(spread.value.shape) if array is None else array)
        return moves.move(node, filled, shape, 0.0 if part != "value" else None)

    try:
        value = moved("value")
    except IndexError as problem:
        raise InvalidInput(str(problem), where=f"node {node.name}") from None
    if value is None:
        raise InternalError(f"{node.op} has no definition", where=f"node {node.name}")
    jump = moved("jump")
    return Spread(
        value, moved("below"), moved("above"), None if jump is None else jump.astype(bool), moved("modelled")
    )


# -- normalisations -----------------------------------------------------------------------------------------


def _softmax(node: ops.Softmax, x: Spread, precision: str | None) -> Spread:
    axis = node.axis
    distance = x.value - x.value.max(axis=axis, keepdims=True)
    exponential = np.exp(distance)
    total = exponential.sum(axis=axis, keepdims=True)
    value = exponential / total
    if precision is None:
        return Spread(value)
    unit, smallest = unit_of(precision)
    reach = np.asarray(x.reach)
    # Of exp: the rounded difference, the inputs' errors and the function's own.
    share = np.expm1(unit * np.abs(distance) + reach + reach.max(initial=0.0)) + 6 * unit
    share = np.where(exponential > 0, share, 0.0)
    terms = x.value.shape[axis]
    of_total = (exponential * share).sum(axis=axis, keepdims=True) / total
    of_total = of_total + 2 * math.sqrt(terms) * unit + terms * unit / 4
    return Spread.around(value, value * (share + of_total + 5 * unit) + 2 * smallest)


def _normalize(node: ops.Normalize, inputs: Sequence[Spread], precision: str | None) -> Spread:
    x, axes = inputs[0], node.axes
    count = math.prod(x.value.shape[axis] for axis in axes)

    def mean(array: Array) -> Array:
        return np.asarray(array.mean(axis=axes, keepdims=True))

    middle = mean(x.value) if node.centre else np.zeros(1)
    distance = x.value - middle
    variance = mean(distance**2)
    root = np.sqrt(variance + node.epsilon)
    value = distance / root
    if precision is None:
        for index, combine in ((1, np.multiply), (2, np.add)):
            value = combine(value, inputs[index].value) if len(inputs) > index else value
        return Spread(value)
    unit, smallest = unit_of(precision)
    sums = 2 * math.sqrt(count) * unit + count * unit / 4
    reach = np.asarray(x.reach)
    of_middle = (sums + 3 * unit) * mean(np.abs(x.value)) + mean(np.broadcast_to(reach, x.value.shape))
    of_distance = reach + (of_middle + unit * np.abs(distance) if node.centre else 0.0)
    of_distance = np.broadcast_to(of_distance, x.value.shape)
    of_variance = mean(2 * np.abs(distance) * of_distance + of_distance**2) + (sums + 5 * unit) * variance
    least = np.sqrt(np.maximum(variance + node.epsilon - of_variance, np.finfo(np.float64).tiny))
    most = np.sqrt(variance + node.epsilon + of_variance)
    share = np.maximum(root / least - 1, 1 - root / most) + 8 * unit
    result = Spread.around(value, of_distance / least + np.abs(value) * (share + 5 * unit) + smallest)
    names = ("mul", "add")
    for op, operand in zip(names, inputs[1:], strict=False):
        step = expression.Expression(("real", "real"), (expression.Step(op, (0, 1)),))
        result = _mapped(step, [result, operand], precision)
    return result


# -- maps -------------------------------------------------------------------------------------------------


def _map(node: ops.Map, inputs: Sequence[Spread], shape: tuple[int, ...], precision: str | None) -> Spread:
    if precision is None:
        value = expression.evaluate(node.expression, [spread.value for spread in inputs])
        return Spread(np.broadcast_to(value, shape))
    result = _mapped(node.expression, inputs, precision)
    if result.value.shape == shape:
        return result
    parts = (result.below, result.above, result.jump, result.modelled)
    wide = (None if part is None else np.broadcast_to(part, shape) for part in parts)
    return Spread(np.broadcast_to(result.value, shape), *wide)


def _mapped(function: expression.Expression, inputs: Sequence[Spread], precision: str) -> Spread:
    if all(spread.is_exact for spread in inputs) and not function.steps:
        return inputs[-1]
    return Spread.of(expression.intervals(function, [spread.interval for spread in inputs], precision))


# -- windows ------------------------------------------------------------------------------------------------


def _max_pool(node: ops.MaxPool, x: Spread) -> Spread:
    def pooled(array: Array) -> Array:
        lowest = -np.inf if array.dtype.kind == "f" else np.iinfo(np.int64).min
        around = padded(array, node.pads, lowest)
        return np.asarray(np.maximum.reduce(taps(around, node.kernel, node.strides, node.dilations)))

    value = pooled(x.value)
    if x.is_exact:
        return Spread(value)
    return Spread.of(Interval(value, pooled(x.low), pooled(x.high), None))


def _interpolate(inputs: Sequence[Spread], precision: str | None) -> Spread:
    x = inputs[0]
    rows, row_weights, columns, column_weights = (spread.value for spread in inputs[1:])

    def resized(array: Array, by_row: Array, by_column: Array) -> Array:
        tall = np.einsum("nchkw,hk->nchw", _picked(array, rows, 2), by_row)
        return np.asarray(np.einsum("nchwl,wl->nchw", _picked(tall, columns, 3), by_column))

    value = resized(x.value, row_weights, column_weights)
    if precision is None:
        return Spread(value)
    unit, _ = unit_of(precision)
    sizes = np.abs(row_weights), np.abs(column_weights)
    magnitude = resized(np.abs(x.value), *sizes)
    carried = 4 * unit * magnitude  # the product of two weights, and each sum alone, is rounded
    if not x.is_exact:
        carried = carried + resized(np.asarray(x.reach), *sizes)
    return summed(value, magnitude, rows.shape[1] * columns.shape[1], precision, carried)


def _picked(array: Array, indices: Array, axis: int) -> Array:
    """The elements of each list of indices along an axis: a new axis behind it has the list."""
    taken = np.take(array, indices.reshape(-1), axis=axis)
    return taken.reshape(*array.shape[:axis], *indices.shape, *array.shape[axis + 1 :])


def _grid_sample(node: ops.GridSample, inputs: Sequence[Spread], precision: str | None) -> Spread:
    x, grid = inputs
    value = moves.grid_sample(node, x.value, grid.value)
    if precision is None:
        return Spread(value)
    unit, smallest = unit_of(precision)
    size = np.array([x.value.shape[3], x.value.shape[2]])
    # (g + 1) * size / 2 in float: four roundings of numbers below it; half a pixel more for the shift.
    off = 8 * unit * ((np.abs(grid.value) + 1) * size / 2 + 1) + np.asarray(grid.reach) * size / 2
    results = [
        moves.grid_sample(node, x.value, grid.value + off * np.array(by) * (2 / size)) for by in _CORNERS
    ]
    low, high = np.minimum.reduce([value, *results]), np.maximum.reduce([value, *results])
    largest = np.abs(x.value).max(axis=(2, 3), keepdims=True)
    rounding = 16 * unit * largest + smallest + (0.0 if x.is_exact else np.asarray(x.reach).max())
    jump = low != high if node.mode == "nearest" or node.padding_mode == "zeros" else None
    return Spread.of(Interval(value, low - rounding, high + rounding, jump))


_CORNERS = ((-1, -1), (-1, 1), (1, -1), (1, 1), (0, -1), (0, 1), (-1, 0), (1, 0))


# -- several nodes ------------------------------------------------------------------------------------------


def _region(graph: Graph, node: ops.Region, inputs: Sequence[Spread], precision: str | None) -> Spread:
    known = dict(zip(node.inputs, inputs, strict=True))
    for inner in node.nodes:
        result = define(graph, inner, _given(graph, inner, known), precision)
        known[inner.output] = _kept(result, graph.tensor(inner.output).dtype, precision)
    return result


def _given(graph: Graph, node: Node, known: Mapping[str, Spread]) -> list[Spread]:
    """The inputs of a node within a region or a body: what is known, or a constant."""
    given = []
    for name in node.inputs:
        tensor = graph.tensor(name)
        if name in known or tensor.data is None:
            given.append(known[name])
        else:
            given.append(Spread(_decoded(tensor.data, tensor.dtype)))
    return given


def _kept(result: Spread, dtype: str, precision: str | None) -> Spread:
    """An inner tensor, rounded to its dtype: its value alone, or with the error of that."""
    if precision is None:
        return Spread(_decoded(stored(result.value, dtype), dtype))
    return result.stored(dtype)


def _recurrent(
    node: ops.Recurrent, inputs: Sequence[Spread], precision: str | None, actual: Spread | None
) -> Spread:
    """The states behind every step; with `actual`, each step from what the target had before it."""
    body, count = node.body, len(node.body.outputs)
    states = list(inputs[node.sequences : node.sequences + count])
    results: list[list[Spread]] = [[]] * node.steps
    order = reversed(range(node.steps)) if node.backward else range(node.steps)
    for step in order:
        slices = [Spread(spread.value[step]) for spread in inputs[: node.sequences]]
        known = dict(zip(body.inputs, [*slices, *states, *inputs[node.sequences + count :]], strict=True))
        for inner in body.nodes:
            result = define(body, inner, _given(body, inner, known), precision)
            known[inner.output] = _kept(result, body.tensor(inner.output).dtype, precision)
        results[step] = [known[name] for name in body.outputs]
        states = results[step]
        if actual is not None:
            states = [Spread(actual.value[step, index]) for index in range(count)]

    def stacked(part: str) -> Array | None:
        rows = [[getattr(spread, part) for spread in row] for row in results]
        if all(array is None for row in rows for array in row):
            return None
        value = results[0][0].value
        filled = [[np.zeros(value.shape) if array is None else array for array in row] for row in rows]
        return np.stack([np.stack(row) for row in filled])

    value = stacked("value")
    if value is None:
        raise InternalError("a recurrence without states", where=f"node {node.name}")
    jump = stacked("jump")
    return Spread(
        value,
        stacked("below"),
        stacked("above"),
        None if jump is None else jump.astype(bool),
        stacked("modelled"),
    )
