"""The definition of every family on plain tensors: real arithmetic on stored inputs, and its rounding errors.

A result has to lie within the error that a target may make: one that computes in `precision` (of unit
roundoff u), rounding each operation, and stores the result once. For a sum of K products it is

    2 sqrt(K) u sum|x||w|  +  K u / 4 |y|

The first term holds for errors that are independent of each other, with a margin; the second for constant
data, where they add up (measured: random data needs 0.6 of the first, a box filter of 50,176 terms 55 times
the first alone). Everything else follows operation by operation (`sdk.expression.intervals`, or the same by
hand here). Within a region or a recurrence the inputs of a node are uncertain themselves, and their errors
are carried on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from sdk import dtypes, expression
from sdk import graph as ops
from sdk.errors import InternalError, InvalidInput
from sdk.expression import Interval
from sdk.graph import Array, Graph, Node
from sdk.reference import moves
from sdk.reference.spread import Spread
from sdk.reference.windows import padded, taps
from sdk.shapes import window_counts

PRECISION = "float32"
"""What targets compute in, unless they say otherwise."""

HALF_SUMS = "half sums"
"""The precision of a target that adds products in half arithmetic, at most RUN of them, and these sums in
float32, where both operands and the result are float16; it computes anything else in float32."""
RUN = 16


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
                return _product(graph, node, inputs, given)
            case ops.Map():
                return _map(node, inputs, out.shape, precision)
            case ops.Reduce():
                return _reduce(node, x, out.shape, precision)
            case ops.TopK():
                return _top_k(node, x)
            case ops.Scatter() if node.reduction != "none":
                return _combined(node, inputs, precision)
            case ops.Softmax():
                return _softmax(node, x, precision)
            case ops.Normalize():
                return _normalize(node, inputs, precision)
            case ops.AveragePool() | ops.GlobalAveragePool():
                return _average(node, x, precision)
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


# -- sums -------------------------------------------------------------------------------------------------


def _unit(precision: str) -> tuple[float, float]:
    """The unit roundoff, and the smallest normal number: smaller ones may be flushed to zero."""
    precision = PRECISION if precision == HALF_SUMS else precision
    form = dtypes.dtype(precision).format
    if form is None:
        raise InternalError(f"{precision} is not a float type")
    return form.unit, 2.0**form.lowest


def summed(
    value: Array, magnitude: Array, terms: Array | int, precision: str, carried: Array | float
) -> Spread:
    """A sum of `terms` products whose magnitudes sum to `magnitude`, with the error of its inputs."""
    unit, smallest = _unit(precision)
    terms = np.asarray(terms, np.float64)
    lasting = terms * (unit / 4) * np.abs(value)
    reach = 2 * np.sqrt(terms) * unit * magnitude + lasting + np.sqrt(terms) * smallest + carried
    modelled = unit * magnitude + lasting / 2 + smallest + np.asarray(carried) / 4
    return Spread.around(value, reach, np.broadcast_to(modelled, value.shape))


def half_summed(exact: Spread, squares: Array, terms: Array | int) -> Spread:
    """A float32 sum, with the error of adding at most RUN of its products at a time in half arithmetic.

    Sums of different products err independently: what they reach is the root of the sum of its squares, which
    RUN times the products' own squares are never below. As in a sum of RUN products, errors of constant data
    add up.

    Args:
        exact: with the error of float32 sums.
        squares: sum of the products' squares.
        terms: how many products.
    """
    unit, smallest = _unit("float16")
    apart = np.sqrt(RUN * squares)
    lasting = RUN * (unit / 4) * np.abs(exact.value)
    flushed = np.sqrt(np.asarray(terms, np.float64)) * smallest * unit  # half keeps subnormals
    reach = 2 * np.sqrt(RUN) * unit * apart + lasting + flushed + exact.reach
    modelled = unit * apart + lasting / 2 + flushed
    if exact.modelled is not None:
        modelled = modelled + exact.modelled
    return Spread.around(exact.value, reach, np.broadcast_to(modelled, exact.value.shape))


def _product(
    graph: Graph,
    node: ops.Conv | ops.ConvTranspose | ops.MatMul,
    inputs: Sequence[Spread],
    precision: str | None,
) -> Spread:
    x, w = inputs[0], inputs[1]
    bias = inputs[2] if len(inputs) > 2 else None
    value = _bilinear(node, x.value, w.value)
    shape = (-1,) if isinstance(node, ops.MatMul) else (-1, 1, 1)
    if bias is not None:
        value = value + bias.value.reshape(shape)
    if precision is None or value.dtype.kind != "f":
        return Spread(value)
    x_size, w_size = np.abs(x.value), np.abs(w.value)
    magnitude = _bilinear(node, x_size.astype(np.float32), w_size.astype(np.float32)).astype(np.float64)
    carried: Array | float = 0.0
    if not x.is_exact:
        carried = carried + _bilinear(node, np.asarray(x.reach), w_size)
    if not w.is_exact:
        carried = carried + _bilinear(node, x_size + x.reach, np.asarray(w.reach))
    if bias is not None:
        magnitude = magnitude + np.abs(bias.value).reshape(shape)
        if not bias.is_exact:
            carried = carried + np.asarray(bias.reach).reshape(shape)
    weight = w.value.shape
    if isinstance(node, ops.MatMul):
        terms = x.value.shape[-1]
    elif isinstance(node, ops.ConvTranspose):  # at most: the strides leave out some
        terms = weight[0] // node.group * math.prod(weight[2:])
    else:
        terms = math.prod(weight[1:])
    found = summed(value, magnitude, terms + 1, precision, carried)
    stored = {graph.tensor(name).dtype for name in (*node.inputs[:2], node.output)}
    if precision == HALF_SUMS and stored == {"float16"}:
        return half_summed(found, _bilinear(node, x_size**2, w_size**2), terms)
    return found


def _bilinear(node: ops.Conv | ops.ConvTranspose | ops.MatMul, x: Array, w: Array) -> Array:
    match node:
        case ops.MatMul():
            return np.asarray(np.matmul(x, np.swapaxes(w, -1, -2) if node.transposed else w))
        case ops.Conv():
            return convolve(x, w, node)
        case ops.ConvTranspose():
            return spread_out(x, w, node)


def convolve(x: Array, weight: Array, node: ops.Conv) -> Array:
    """[N,C,H,W] by [O,C/group,kh,kw], in the dtype of the arrays."""
    batch, channels = x.shape[:2]
    outputs, per_group, kh, kw = weight.shape
    views = taps(padded(x, node.pads), (kh, kw), node.strides, node.dilations)
    size = views[0].shape[2:]
    if per_group == 1 and node.group == channels:
        repeat = outputs // channels
        total = np.zeros((batch, outputs, *size), x.dtype)
        for view, element in zip(views, weight.reshape(outputs, -1).T, strict=True):
            total += (np.repeat(view, repeat, axis=1) if repeat > 1 else view) * element[:, None, None]
        return total
    matrix = weight.reshape(node.group, outputs // node.group, -1)
    results = []
    for sample in range(batch):  # one at a time: the columns are kh * kw times the input
        columns = np.stack([view[sample] for view in views], axis=1)  # [C, taps, rows, columns]
        columns = columns.reshape(node.group, per_group * kh * kw, -1)
        results.append((matrix @ columns).reshape(outputs, *size))
    return np.stack(results)


def spread_out(x: Array, weight: Array, node: ops.ConvTranspose) -> Array:
    """Every element adds its multiples of the kernel to a larger sum, whose border is cut off."""
    batch, channels, height, width = x.shape
    per_group, kh, kw = weight.shape[1:]
    (sh, sw), (dh, dw) = node.strides, node.dilations
    grouped = x.reshape(batch, node.group, channels // node.group, -1)
    matrix = weight.reshape(node.group, channels // node.group, -1).transpose(0, 2, 1)
    parts = (matrix @ grouped).reshape(batch, node.group, per_group, kh, kw, height, width)
    rows = (height - 1) * sh + dh * (kh - 1) + 1 + node.output_padding[0]
    columns = (width - 1) * sw + dw * (kw - 1) + 1 + node.output_padding[1]
    total = np.zeros((batch, node.group, per_group, rows, columns), x.dtype)
    for i in range(kh):
        for j in range(kw):
            to = np.s_[
                ..., i * dh : i * dh + (height - 1) * sh + 1 : sh, j * dw : j * dw + (width - 1) * sw + 1 : sw
            ]
            total[to] += parts[:, :, :, i, j]
    total = total.reshape(batch, -1, rows, columns)
    top, left, bottom, right = node.pads
    return total[:, :, top : rows - bottom, left : columns - right]


def _average(node: ops.AveragePool | ops.GlobalAveragePool, x: Spread, precision: str | None) -> Spread:
    def total(array: Array) -> Array:
        if isinstance(node, ops.GlobalAveragePool):
            return np.asarray(array.sum(axis=(2, 3), keepdims=True))
        return np.asarray(sum(taps(padded(array, node.pads), node.kernel, node.strides, (1, 1))))

    if isinstance(node, ops.GlobalAveragePool):
        counts: Array = np.asarray(math.prod(x.value.shape[2:]))
    elif node.count_include_pad:
        counts = np.asarray(math.prod(node.kernel))
    else:
        counts = window_counts(x.value.shape[2:], node.kernel, node.strides, node.pads)
    value = total(x.value) / counts
    if precision is None:
        return Spread(value)
    carried = 0.0 if x.is_exact else total(np.asarray(x.reach)) / counts
    return summed(value, total(np.abs(x.value)) / counts, counts + 4, precision, carried)


def _reduce(node: ops.Reduce, x: Spread, shape: tuple[int, ...], precision: str | None) -> Spread:
    axes = node.axes
    if node.kind in ("argmax", "argmin"):
        return _arg(node, x, shape)
    functions: dict[str, Callable[..., Array]] = {
        "sum": np.sum,
        "mean": np.sum,
        "max": np.max,
        "min": np.min,
        "prod": np.prod,
    }
    reduce: Callable[..., Array] = functions[node.kind]

    def reduced(array: Array) -> Array:
        return np.asarray(reduce(array, axis=axes)).reshape(shape)

    value = reduced(x.value)
    count = math.prod(x.value.shape[axis] for axis in axes)
    if node.kind == "mean":
        value = value / count if value.dtype.kind == "f" else value // count
    if precision is None or value.dtype.kind != "f":
        return Spread(value)
    if node.kind in ("max", "min"):
        return (
            Spread.of(Interval(value, reduced(x.low), reduced(x.high), None))
            if not x.is_exact
            else Spread(value)
        )
    unit, smallest = _unit(precision)
    if node.kind == "prod":
        share = np.abs(x.reach / np.where(x.value == 0, 1, x.value))
        relative = np.exp(np.sum(np.log1p(share), axis=axes)).reshape(shape) - 1 + 2 * count * unit
        return Spread.around(value, np.abs(value) * relative + smallest)
    divisor = count if node.kind == "mean" else 1
    magnitude = np.sum(np.abs(x.value), axis=axes).reshape(shape) / divisor
    carried: Array | float = 0.0
    if not x.is_exact:
        carried = np.sum(np.asarray(x.reach), axis=axes).reshape(shape) / divisor
    return summed(value, magnitude, count + 4, precision, carried)


def _arg(node: ops.Reduce, x: Spread, shape: tuple[int, ...]) -> Spread:
    """Of exact inputs exact: the first of equals, a NaN before everything."""
    (axis,) = node.axes
    find = np.argmax if node.kind == "argmax" else np.argmin
    value = find(x.value, axis=axis).astype(np.int64).reshape(shape)
    if x.is_exact:
        return Spread(value)
    sign = 1 if node.kind == "argmax" else -1
    best = np.max(np.minimum(sign * x.low, sign * x.high), axis=axis, keepdims=True)
    rival = np.maximum(sign * x.low, sign * x.high) >= best
    index = np.arange(x.value.shape[axis]).reshape([-1 if i == axis else 1 for i in range(x.value.ndim)])
    low = np.min(np.where(rival, index, x.value.shape[axis]), axis=axis).reshape(shape)
    high = np.max(np.where(rival, index, -1), axis=axis).reshape(shape)
    return Spread(value, value - low, high - value, low != high)


def _top_k(node: ops.TopK, x: Spread) -> Spread:
    """Of exact inputs exact; any index of others."""
    values = np.moveaxis(x.value, node.axis, -1)
    if node.largest:  # the last of the increasing order of the reversed axis is the first of equals
        order = values.shape[-1] - 1 - np.argsort(values[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    else:
        order = np.argsort(values, axis=-1, kind="stable")
        numbers = np.take_along_axis(values, order, -1) == np.take_along_axis(values, order, -1)
        order = np.take_along_axis(order, np.argsort(numbers, axis=-1, kind="stable"), -1)
    value = np.moveaxis(order[..., : node.k], -1, node.axis).astype(np.int64)
    if x.is_exact:
        return Spread(value)
    return Spread(value, value, values.shape[-1] - 1 - value, np.ones(value.shape, bool))


def _combined(node: ops.Scatter, inputs: Sequence[Spread], precision: str | None) -> Spread:
    """A Scatter with a reduction: sums and products of as many terms as indices name an element."""
    data, indices, updates = inputs
    functions = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
    where = _places(node, indices.value, data.value.shape)

    def scattered(into: Array, parts: Array, kind: str = node.reduction) -> Array:
        result = into.copy()
        functions[kind].at(result, where, parts)
        return result

    value = scattered(data.value, updates.value)
    if precision is None or value.dtype.kind != "f":
        return Spread(value)
    if node.reduction in ("max", "min"):
        if data.is_exact and updates.is_exact:
            return Spread(value)
        low, high = scattered(data.low, updates.low), scattered(data.high, updates.high)
        return Spread.of(Interval(value, low, high, None))
    sizes = np.abs(data.value), np.abs(updates.value)
    counts = scattered(np.ones(value.shape), np.ones(updates.value.shape), "add")
    reaches = [np.zeros(spread.value.shape) + spread.reach for spread in (data, updates)]
    if node.reduction == "add":
        return summed(value, scattered(*sizes), counts, precision, scattered(reaches[0], reaches[1]))
    unit, smallest = _unit(precision)
    largest = scattered(sizes[0] + reaches[0], sizes[1] + reaches[1])
    return Spread.around(value, largest - np.abs(value) + 2 * counts * unit * largest + smallest)


def _places(node: ops.Scatter, indices: Array, shape: tuple[int, ...]) -> tuple[Array, ...]:
    try:
        return moves.coordinates(indices, shape)
    except IndexError as problem:
        raise InvalidInput(str(problem), where=f"node {node.name}") from None


# -- normalisations -----------------------------------------------------------------------------------------


def _softmax(node: ops.Softmax, x: Spread, precision: str | None) -> Spread:
    axis = node.axis
    distance = x.value - x.value.max(axis=axis, keepdims=True)
    exponential = np.exp(distance)
    total = exponential.sum(axis=axis, keepdims=True)
    value = exponential / total
    if precision is None:
        return Spread(value)
    unit, smallest = _unit(precision)
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
    unit, smallest = _unit(precision)
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
    unit, _ = _unit(precision)
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
    unit, smallest = _unit(precision)
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
