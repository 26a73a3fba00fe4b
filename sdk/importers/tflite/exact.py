"""TFLite's operators on 8-bit tensors, exactly: one handler each, by the schema's BuiltinOperator name.

What a handler refuses is computed between Dequantize and Quantize (`sdk.importers.tflite.plain`).

Rules are those of TFLite's kernels (tensorflow/lite/kernels, read 2024): SAME padding, the range of a fused
activation, where a nearest neighbour lies, how a table is rounded.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from sdk.graph import (
    Add,
    AveragePool,
    Clamp,
    Concat,
    Dequantize,
    GlobalAveragePool,
    Lookup,
    MaxPool,
    Mul,
    Node,
    Pad,
    Quantization,
    Quantize,
    Requantize,
    Reshape,
    Resize,
    Softmax,
    Tensor,
)
from sdk.importers.tflite.file import Shape, TfliteOperator
from sdk.importers.tflite.values import View
from sdk.importers.tflite.walk import NCHW, Walk
from sdk.importers.tflite.weights import conv_2d, depthwise_conv_2d, fully_connected
from sdk.importers.tflite.windows import clamp, nearest, windows
from sdk.shapes import output_shape
from sdk.verification import INTEGER_RANGE

Handler = Callable[[Walk, TfliteOperator], None]
Real = NDArray[np.float64]


def meaning(handler: Handler) -> str:
    """What a handler makes; for the documentation."""
    return (handler.__doc__ or "").splitlines()[0].rstrip(".")


# --- elementwise --------------------------------------------------------------------------------------------


def _binary(kind: type[Add] | type[Mul], table: str) -> Handler:
    def handler(walk: Walk, node: TfliteOperator) -> None:
        scalars = [i for i in (0, 1) if walk.operand(node, i).index in walk.constants]
        if scalars:
            _with_scalar(kind, table, walk, node, scalars[-1])
            return
        out, quantization = walk.result(node)
        views = [_of_rank(walk, walk.activation(node, i), len(out.shape), node) for i in (0, 1)]
        views.sort(key=lambda view: -math.prod(walk.dims(view)))  # Mul widens its second input alone
        shapes = [walk.dims(view) for view in views]
        if shapes[0] != shapes[1]:
            fits = all(b in (a, 1) for a, b in zip(*shapes, strict=True))
            if kind is Add or not fits:
                raise node.unsupported(f"{node.op} of {list(shapes[0])} and {list(shapes[1])}")
        # Between two orders of axes, prefer the picture's: its neighbours work in it.
        axes = next((view.axes for view in views if view.axes == NCHW), views[0].axes)
        inputs = tuple(walk.ordered(view, axes) for view in views)
        bounds = clamp(node, node.option(table, "FusedActivationFunction", 0), out, quantization)
        walk.define(node, kind(node.name, inputs, "", bounds), axes)

    handler.__doc__ = f"{kind.op}; with a constant number Lookup."
    return handler


def _of_rank(walk: Walk, view: View, rank: int, node: TfliteOperator) -> View:
    """The view with axes of extent 1 in front, as broadcasting has it."""
    dims = walk.dims(view)
    if len(dims) == rank:
        return view
    if len(dims) > rank:
        raise node.invalid(f"an input {list(dims)} of rank above {rank}")
    return _reshaped(walk, view, (1,) * (rank - len(dims)) + dims)


def _reshaped(walk: Walk, view: View, dims: Shape) -> View:
    source = walk.builder.tensors[walk.plain(view)]
    if math.prod(dims) != source.size:
        raise ValueError(dims)
    result = dataclasses.replace(source, name="", shape=dims)
    return View(
        walk.emit(Reshape(f"{view.tensor}_reshaped", (source.name,), ""), result), tuple(range(len(dims)))
    )


def _with_scalar(
    kind: type[Add] | type[Mul], table: str, walk: Walk, node: TfliteOperator, which: int
) -> None:
    """ADD or MUL of one constant number is a table."""
    constant = walk.operand(node, which)
    known = walk.quantization(constant, node.where)
    if walk.constants[constant.index].size != 1:
        shape = list(walk.constants[constant.index].shape)
        raise node.unsupported(
            f"its input {constant.name!r} is a constant {shape}; only single numbers are supported"
        )
    number = float(known.scale) * (int(walk.constants[constant.index].reshape(())) - int(known.zero_point))
    out, quantization = walk.result(node)
    bounds = clamp(node, node.option(table, "FusedActivationFunction", 0), out, quantization)
    function = (lambda x: x + number) if kind is Add else (lambda x: x * number)
    _lookup(walk, node, walk.activation(node, 1 - which), function, bounds)


def _lookup(
    walk: Walk, node: TfliteOperator, view: View, function: Callable[[Real], Real], bounds: Clamp
) -> None:
    """The output as a table of `function`, rounded half away from zero, as TFLite's own tables are."""
    x = walk.builder.tensors[view.tensor]
    out, quantization = walk.result(node)
    low, high = INTEGER_RANGE[x.dtype]
    real = x.scale * (np.arange(low, high + 1, dtype=np.float64) - x.zero_point)
    with np.errstate(over="ignore"):
        scaled = function(real) / float(quantization.scale)
    rounded = np.clip(np.sign(scaled) * np.floor(np.abs(scaled) + 0.5), -512, 512)
    values = np.clip(rounded + int(quantization.zero_point), *bounds).astype(out.dtype)
    start, before = view.tensor, walk.producer(view.tensor)
    if isinstance(before, Lookup):  # a table of a table is one: ADD, RELU6 and MUL of a hard sigmoid
        start, first = before.inputs[0], walk.builder.tensors[before.inputs[1]].data
        assert first is not None  # every table is a constant
        values = values[first.astype(np.int32) - low]
    name = walk.builder.constant(walk.builder.fresh(f"{node.name}_table"), values, quantization)
    walk.define(node, Lookup(node.name, (start, name), ""), view.axes)


def _table(function: Callable[[Real], Real]) -> Handler:
    def handler(walk: Walk, node: TfliteOperator) -> None:
        out, _ = walk.result(node)
        _lookup(walk, node, walk.activation(node, 0), function, INTEGER_RANGE[out.dtype])

    handler.__doc__ = "Lookup."
    return handler


def _leaky_relu(walk: Walk, node: TfliteOperator) -> None:
    """Lookup."""
    alpha = float(node.option("LeakyReluOptions", "Alpha"))
    if not math.isfinite(alpha):
        raise node.invalid(f"its alpha is {alpha}")
    _table(lambda x: np.where(x < 0, alpha * x, x))(walk, node)


def _clipped(activation: int) -> Handler:
    def handler(walk: Walk, node: TfliteOperator) -> None:
        view = walk.activation(node, 0)
        out, quantization = walk.result(node)
        bounds = clamp(node, activation, out, quantization)
        walk.define(node, Requantize(node.name, (view.tensor,), "", bounds), view.axes)

    handler.__doc__ = "Requantize."
    return handler


def _quantize(walk: Walk, node: TfliteOperator) -> None:
    """Requantize; Quantize of floats."""
    view = walk.view(node, 0)
    if walk.builder.tensors[view.tensor].quantization is None:
        walk.result(node)
        walk.define(node, Quantize(node.name, (view.tensor,), ""), view.axes)
    else:
        _clipped(0)(walk, node)


def _dequantize(walk: Walk, node: TfliteOperator) -> None:
    """Dequantize."""
    out = walk.model.tensors[node.outputs[0]]
    view = walk.activation(node, 0)
    if out.dtype != "float32":
        raise node.unsupported(f"its result is {out.dtype}, not float32")
    template = Dequantize(node.name, (walk.plain(view),), "")
    walk.define(node, template, range(len(view.axes)), dtype="float32")


def _softmax(walk: Walk, node: TfliteOperator) -> None:
    """Softmax over the last axis, between Dequantize and Quantize."""
    view = walk.view(node, 0)
    if (beta := node.option("SoftmaxOptions", "Beta")) != 1:
        raise node.unsupported(f"SOFTMAX with beta {beta}; only 1 is supported")
    if not view.axes:
        raise node.invalid("SOFTMAX of a scalar")
    out = walk.model.tensors[node.outputs[0]]
    axes = range(len(view.axes))
    x = walk.builder.tensors[walk.plain(view)]
    real = Tensor("", x.shape, "float32")
    if x.quantization is not None:
        x = walk.builder.tensors[walk.emit(Dequantize(f"{node.name}_input", (x.name,), ""), real)]
    template: Node = Softmax(node.name, (x.name,), "", len(axes) - 1)
    if out.dtype == "float32":
        walk.define(node, template, axes, dtype="float32")
        return
    walk.result(node)
    walk.define(node, Quantize(f"{node.name}_output", (walk.emit(template, real),), ""), axes)


# --- pictures -----------------------------------------------------------------------------------------------


def _near(walk: Walk, node: TfliteOperator, tensor: str) -> Quantization:
    """The quantisation of `tensor`, which the output must share, as TFLite's kernel requires."""
    out, quantization = walk.result(node)
    x = walk.builder.tensors[tensor]
    assert x.quantization is not None  # an activation
    same = x.dtype == out.dtype and x.zero_point == int(quantization.zero_point)
    if not same or abs(x.scale - float(quantization.scale)) > 1e-5 * x.scale:
        raise node.invalid(f"{node.op} must keep scale and zero-point; its output {out.name!r} has others")
    return x.quantization


def _average_pool(walk: Walk, node: TfliteOperator) -> None:
    """AveragePool, GlobalAveragePool."""
    x = walk.picture(node, 0)
    out, _ = walk.result(node)
    quantization = _near(walk, node, x)
    shape = walk.builder.tensors[x].shape
    found = windows(node, "Pool2DOptions", shape)
    bounds = clamp(node, node.option("Pool2DOptions", "FusedActivationFunction"), out, quantization)
    if found.kernel == shape[2:] and not any(found.pads):
        template: Node = GlobalAveragePool(node.name, (x,), "", bounds)
    else:
        template = AveragePool(node.name, (x,), "", found.kernel, found.strides, found.pads, False, bounds)
    walk.define(node, template, NCHW, quantization=quantization)


def _max_pool(walk: Walk, node: TfliteOperator) -> None:
    """MaxPool."""
    x = walk.picture(node, 0)
    out, _ = walk.result(node)
    quantization = _near(walk, node, x)
    found = windows(node, "Pool2DOptions", walk.builder.tensors[x].shape)
    bounds = clamp(node, node.option("Pool2DOptions", "FusedActivationFunction"), out, quantization)
    pads, padding = found.pads, walk.producer(x)
    if isinstance(padding, Pad) and int(quantization.zero_point) == INTEGER_RANGE[out.dtype][0]:
        # Zeros that are the least value of the type never win: they equal a MaxPool's own padding.
        folded = tuple(map(sum, zip(pads, padding.pads, strict=True)))
        if all(pad < size for pad, size in zip(folded, found.kernel * 2, strict=True)):
            x, pads = padding.inputs[0], (folded[0], folded[1], folded[2], folded[3])
    template = MaxPool(node.name, (x,), "", found.kernel, found.strides, pads, (1, 1))
    if bounds != INTEGER_RANGE[out.dtype]:
        shape = output_shape(template, walk.builder.tensors)
        assert shape is not None
        made = walk.emit(template, Tensor("", shape, out.dtype, quantization))
        walk.define(node, Requantize(node.name, (made,), "", bounds), NCHW, quantization=quantization)
        return
    walk.define(node, template, NCHW, quantization=quantization)


def _mean(walk: Walk, node: TfliteOperator) -> None:
    """GlobalAveragePool over height and width."""
    view = walk.activation(node, 0)
    dims = walk.dims(view)
    axes = sorted(axis % len(dims) for axis in walk.integers(node, 1)) if dims else []
    if len(dims) != 4 or axes != [1, 2]:
        raise node.unsupported(f"MEAN of {list(dims)} over axes {axes}; only height and width are supported")
    out, quantization = walk.result(node)
    template = GlobalAveragePool(node.name, (walk.picture(node, 0),), "", INTEGER_RANGE[out.dtype])
    if node.option("ReducerOptions", "KeepDims", False):
        walk.define(node, template, NCHW)
        return
    pooled = Tensor("", (dims[0], dims[3], 1, 1), out.dtype, quantization)
    flat = Reshape(f"{node.name}_flat", (walk.emit(template, pooled),), "")
    walk.define(node, flat, (0, 1), shape=(dims[0], dims[3]))


def _pad(walk: Walk, node: TfliteOperator) -> None:
    """Pad of height and width by 0; a convolution behind it takes the border as its own padding."""
    x = walk.picture(node, 0)
    quantization = _near(walk, node, x)
    amounts = np.array(walk.integers(node, 1)).reshape(-1)
    if amounts.size != 8 or amounts.min() < 0:
        raise node.invalid(f"paddings {amounts.tolist()} of [N,H,W,C]")
    if amounts[[0, 1, 6, 7]].any():
        raise node.unsupported("PAD of the batch or the channels")
    if len(node.inputs) > 2:  # PADV2
        value = int(walk.constant(node, 2).reshape(-1)[0]) if walk.constant(node, 2).size == 1 else None
        if value != int(quantization.zero_point):
            raise node.unsupported("PADV2 with another value than 0")
    pads = (int(amounts[2]), int(amounts[4]), int(amounts[3]), int(amounts[5]))
    walk.define(node, Pad(node.name, (x,), "", pads), NCHW, quantization=quantization)


def _resize_nearest(walk: Walk, node: TfliteOperator) -> None:
    """Resize."""
    x = walk.picture(node, 0)
    size = walk.integers(node, 1)
    if len(size) != 2:
        raise node.invalid(f"a size of {list(size)}")
    table = "ResizeNearestNeighborOptions"
    align, half = (bool(node.option(table, name, False)) for name in ("AlignCorners", "HalfPixelCenters"))
    rows, columns = (
        nearest(node, extent, to, align, half)
        for extent, to in zip(walk.builder.tensors[x].shape[2:], size, strict=True)
    )
    walk.define(node, Resize(node.name, (x,), "", rows, columns), NCHW, quantization=_near(walk, node, x))


def _concatenation(walk: Walk, node: TfliteOperator) -> None:
    """Concat; inputs of another scale than the output's are brought to it."""
    out, quantization = walk.result(node)
    views = [walk.activation(node, i) for i in range(len(node.inputs))]
    axes = next((view.axes for view in views if view.axes == NCHW), views[0].axes if views else ())
    axis = node.option("ConcatenationOptions", "Axis")
    if any(len(view.axes) != len(axes) for view in views) or not -len(axes) <= axis < len(axes):
        raise node.invalid(f"CONCATENATION of {[list(walk.dims(v)) for v in views]} along axis {axis}")
    names = []
    for i, view in enumerate(views):
        name = walk.ordered(view, axes)
        known = walk.builder.tensors[name]
        if known.dtype != out.dtype or not quantization.equals(known.quantization or quantization):
            template = Requantize(f"{node.name}_input{i}", (name,), "", INTEGER_RANGE[out.dtype])
            name = walk.emit(template, Tensor("", known.shape, out.dtype, quantization))
        names.append(name)
    bounds = clamp(node, node.option("ConcatenationOptions", "FusedActivationFunction"), out, quantization)
    if len(names) == 1:
        walk.define(node, Requantize(node.name, (names[0],), "", bounds), axes)
        return
    template_ = Concat(node.name, tuple(names), "", axes[axis])
    if bounds == INTEGER_RANGE[out.dtype]:
        walk.define(node, template_, axes)
        return
    shape = output_shape(template_, walk.builder.tensors)
    assert shape is not None
    made = walk.emit(template_, Tensor("", shape, out.dtype, quantization))
    walk.define(node, Requantize(node.name, (made,), "", bounds), axes)


# --- shapes -------------------------------------------------------------------------------------------------


def _reshape(walk: Walk, node: TfliteOperator) -> None:
    """Reshape: the elements keep TFLite's order."""
    view = walk.view(node, 0)
    dims = _new_shape(walk, node, view)
    source = walk.builder.tensors[walk.plain(view)]
    if math.prod(dims) != source.size or (dims and min(dims) < 1):
        raise node.invalid(f"it makes {list(dims)} of {list(walk.dims(view))}")
    before = walk.producer(source.name)
    start = before.inputs[0] if isinstance(before, Reshape) else source.name  # one Reshape does for two
    template = Reshape(node.name, (start,), "")
    if source.quantization is None:
        walk.define(node, template, range(len(dims)), shape=dims, dtype="float32")
    else:
        quantization = _near(walk, node, source.name)
        walk.define(node, template, range(len(dims)), shape=dims, quantization=quantization)


def _new_shape(walk: Walk, node: TfliteOperator, view: View) -> Shape:
    dims = walk.dims(view)
    out = walk.model.tensors[node.outputs[0]]
    if node.op == "RESHAPE" and walk.optional(node, 1) is not None:
        wanted = list(walk.integers(node, 1))
    elif node.op == "RESHAPE" and node.table == "ReshapeOptions":
        length = node.option("ReshapeOptions", "NewShapeLength")
        wanted = [node.options.NewShape(i) for i in range(length)] if length <= len(out.shape) else [-1, -1]
    elif node.op == "SQUEEZE" and walk.resized:
        chosen = node.option("SqueezeOptions", "SqueezeDimsLength", 0)
        gone = (
            {node.options.SqueezeDims(i) % len(dims) for i in range(min(chosen, len(dims)))}
            if dims
            else set()
        )
        gone = gone or {i for i, extent in enumerate(dims) if extent == 1}
        wanted = [extent for i, extent in enumerate(dims) if i not in gone]
    else:
        wanted = list(out.shape)
    if wanted.count(-1) == 1:
        rest = math.prod(extent for extent in wanted if extent != -1)
        wanted[wanted.index(-1)] = math.prod(dims) // rest if rest else 0
    return tuple(wanted)


def _transpose(walk: Walk, node: TfliteOperator) -> None:
    """Nothing: which axis is which."""
    view = walk.view(node, 0)
    perm = [axis % len(view.axes) for axis in walk.integers(node, 1)] if view.axes else []
    if sorted(perm) != list(range(len(view.axes))):
        raise node.invalid(f"perm {perm} of {list(walk.dims(view))}")
    if walk.builder.tensors[view.tensor].quantization is not None:
        _near(walk, node, view.tensor)
    walk.alias(node, View(view.tensor, tuple(view.axes[axis] for axis in perm)))


OPERATORS: Mapping[str, Handler] = {
    "ADD": _binary(Add, "AddOptions"),
    "AVERAGE_POOL_2D": _average_pool,
    "CONCATENATION": _concatenation,
    "CONV_2D": conv_2d,
    "DEPTHWISE_CONV_2D": depthwise_conv_2d,
    "DEQUANTIZE": _dequantize,
    "EXPAND_DIMS": _reshape,
    "FULLY_CONNECTED": fully_connected,
    "HARD_SWISH": _table(lambda x: x * np.clip(x + 3, 0, 6) / 6),
    "LEAKY_RELU": _leaky_relu,
    "LOGISTIC": _table(lambda x: 1 / (1 + np.exp(-x))),
    "MAX_POOL_2D": _max_pool,
    "MEAN": _mean,
    "MUL": _binary(Mul, "MulOptions"),
    "PAD": _pad,
    "PADV2": _pad,
    "QUANTIZE": _quantize,
    "RELU": _clipped(1),
    "RELU6": _clipped(3),
    "RELU_N1_TO_1": _clipped(2),
    "RESHAPE": _reshape,
    "RESIZE_NEAREST_NEIGHBOR": _resize_nearest,
    "SOFTMAX": _softmax,
    "SQUEEZE": _reshape,
    "TANH": _table(np.tanh),
    "TRANSPOSE": _transpose,
}
