"""Every invariant that passes, reference and targets rely on."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence

import numpy as np

from sdk import dtypes
from sdk.arithmetic import q31_softmax
from sdk.errors import InternalError, InvalidModel, Unsupported
from sdk.exact_maps import exact_map
from sdk.expression import Kind, kinds
from sdk.graph import (
    LARGEST_TENSOR,
    Add,
    AveragePool,
    Concat,
    Conv,
    ConvTranspose,
    Dequantize,
    Fill,
    Gather,
    GatherND,
    Gemm,
    GlobalAveragePool,
    Graph,
    GridSample,
    Interpolate,
    Lookup,
    Map,
    MatMul,
    MaxPool,
    Mul,
    Node,
    Normalize,
    Pad,
    Quantization,
    Quantize,
    Recurrent,
    Reduce,
    Region,
    Requantize,
    Reshape,
    Resize,
    Scatter,
    Slice,
    Softmax,
    Take,
    Tensor,
    TopK,
    Transpose,
)
from sdk.scales import interpolation_taps, normalization
from sdk.shapes import broadcast, output_shape

Clamped = Conv | Gemm | Add | Mul | Requantize | AveragePool | GlobalAveragePool
Moved = MaxPool | Concat | Resize | Transpose | Pad | Slice | Take
"""What gives its output the quantisation of its inputs, as a Reshape of integers does."""

INTEGER_RANGE = {"uint8": (0, 255), "int8": (-128, 127), "int32": (-(2**31), 2**31 - 1)}
STORED = (
    *("bool", "uint8", "int8", "uint16", "int16", "int32", "int64"),
    *("float16", "bfloat16", "float32", "float8e4m3fn", "float8e5m2"),
)
"""Dtypes that tensors have. Others are constants of a model that nothing on a device needs."""
REDUCTIONS = ("sum", "mean", "max", "min", "prod", "argmax", "argmin")
SCATTERED = ("none", "add", "mul", "max", "min")
PLAIN = (
    ConvTranspose,
    MatMul,
    Map,
    Reduce,
    TopK,
    Normalize,
    Softmax,
    Interpolate,
    Fill,
    Gather,
    GatherND,
    Scatter,
    GridSample,
    Recurrent,
)
"""Families of plain tensors, but for `ISLANDS`."""
ISLANDS = (ConvTranspose, Fill, Interpolate, MatMul, Normalize, Reduce, Softmax)
"""Families of `PLAIN` that `sdk.integer_islands` puts on quantised tensors."""
_MANY = 1 << 16
OPERANDS: Mapping[type[Node], Container[int]] = {
    Conv: (2, 3),
    ConvTranspose: (2, 3),
    MatMul: (2, 3),
    Gemm: (2, 3),
    Add: (2,),
    Mul: (2,),
    Lookup: (2,),
    Concat: range(2, _MANY),
    Map: range(1, _MANY),
    Normalize: (1, 2, 3),
    Gather: (2,),
    GatherND: (2,),
    Scatter: (3,),
    GridSample: (2,),
    Interpolate: (5,),
    Recurrent: range(1, _MANY),
    Region: range(1, _MANY),
}
"""How many inputs an operator may have, where that is not one."""


def verify(graph: Graph) -> None:
    """Check every invariant that passes, reference and targets rely on.

    Raises:
        InvalidModel: tensors, shapes, dtypes or attributes contradict each other.
        Unsupported: an accumulator could leave int32.
        InternalError: names defined twice or never, or nodes out of order.
    """
    for name, tensor in graph.tensors.items():
        if tensor.name != name:
            raise InternalError(f"tensor {tensor.name!r} is filed under {name!r}", where=graph.name)
        _verify_tensor(tensor)
    names = [node.name for node in graph.nodes]
    if len(set(names)) != len(names):
        raise InternalError("two nodes share a name", where=graph.name)
    defined = {name for name, tensor in graph.tensors.items() if tensor.data is not None}
    for name in graph.inputs:
        _define(name, graph, defined, "graph input")
    for node in graph.nodes:
        for name in node.inputs:
            if name not in defined:
                raise InternalError(f"{name!r} is read before it is computed", where=f"node {node.name}")
        _define(node.output, graph, defined, f"node {node.name}")
        _verify_node(graph, node)
    for name in graph.outputs:
        if name not in defined:
            raise InternalError(f"nothing computes the graph output {name!r}", where=graph.name)


def _define(name: str, graph: Graph, defined: set[str], where: str) -> None:
    if name in defined:
        raise InternalError(f"{name!r} is defined twice", where=where)
    if name not in graph.tensors:
        raise InternalError(f"{name!r} has no tensor", where=where)
    defined.add(name)


def require_size(shape: Sequence[int], where: str) -> None:
    """Refuse a tensor that is too large, before anything is made for it.

    Raises:
        Unsupported: it has more than LARGEST_TENSOR elements.
    """
    if math.prod(shape) > LARGEST_TENSOR:
        raise Unsupported(f"its shape {list(shape)} exceeds {LARGEST_TENSOR:,} elements", where=where)


def _verify_tensor(tensor: Tensor) -> None:
    where = f"tensor {tensor.name}"
    if tensor.dtype not in STORED:
        raise Unsupported(f"its dtype is {tensor.dtype}; tensors are {', '.join(STORED)}", where=where)
    if any(extent < 1 for extent in tensor.shape):
        raise InvalidModel(f"its shape is {list(tensor.shape)}", where=where)
    require_size(tensor.shape, where)
    if tensor.data is not None and (
        tensor.data.dtype != dtypes.storage(tensor.dtype) or tensor.data.shape != tensor.shape
    ):
        raise InvalidModel(f"{tensor.data.dtype} data of shape {list(tensor.data.shape)}", where=where)
    if tensor.quantization is not None:
        if tensor.dtype not in INTEGER_RANGE:
            raise InvalidModel(f"a {tensor.dtype} tensor with a quantisation", where=where)
        check_quantization(tensor.quantization, tensor.dtype, tensor.shape, where)


def check_quantization(quantization: Quantization, dtype: str, shape: tuple[int, ...], where: str) -> None:
    """Check that scales are finite and positive, zero-points in range, and both of the right shape.

    Raises:
        InvalidModel: they are not; `where` names the tensor.
    """
    scale, zero_point, axis = quantization.scale, quantization.zero_point, quantization.axis
    if axis is not None and not 0 <= axis < len(shape):
        raise InvalidModel(f"quantisation axis {axis} of a tensor of rank {len(shape)}", where=where)
    expected = () if axis is None else (shape[axis],)
    if scale.shape != expected or zero_point.shape != expected:
        raise InvalidModel(
            f"scale of shape {list(scale.shape)} and zero-point of shape {list(zero_point.shape)}, "
            f"but its {'channels' if expected else 'quantisation per tensor'} need {list(expected)}",
            where=where,
        )
    if not (np.isfinite(scale) & (scale > 0)).all():
        bad = scale[~(np.isfinite(scale) & (scale > 0))].flat[0]
        raise InvalidModel(f"its scale is {bad}; scales are finite and positive", where=where)
    low, high = (0, 0) if dtype == "int32" else INTEGER_RANGE[dtype]
    if not ((zero_point >= low) & (zero_point <= high)).all():
        raise InvalidModel(f"a zero-point of {dtype} outside [{low}, {high}]", where=where)


def _verify_node(graph: Graph, node: Node) -> None:
    def require(condition: bool, message: str) -> None:
        if not condition:
            raise InvalidModel(message, where=f"node {node.name}")

    counts = OPERANDS.get(type(node), (1,))
    require(len(node.inputs) in counts, f"{node.op} with {len(node.inputs)} inputs")
    given = [graph.tensor(name) for name in node.inputs]
    copies = isinstance(node, Reshape)  # an output that is known before the network runs
    require(copies or any(tensor.data is None for tensor in given), "its inputs are constants")
    x, out = given[0], graph.tensor(node.output)
    shape = output_shape(node, graph.tensors)
    require(shape in (None, out.shape), f"its output is {list(shape or ())}, not {list(out.shape)}")
    require(x.size == out.size or not isinstance(node, Reshape), "Reshape changes the number of elements")
    if isinstance(node, Recurrent):
        verify(node.body)
    if isinstance(node, Region):
        _verify_region(graph, node)
    elif isinstance(node, Map) and out.quantization is not None:
        _verify_quantized_map(graph, node)
    elif isinstance(node, ISLANDS) and out.quantization is not None:
        _verify_island(graph, node)
    elif isinstance(node, PLAIN) or (out.quantization is None and not isinstance(node, Dequantize)):
        _verify_plain(node, given, out)
    else:
        _verify_quantized(graph, node)


def _verify_quantized(graph: Graph, node: Node) -> None:
    def require(condition: bool, message: str) -> None:
        if not condition:
            raise InvalidModel(message, where=f"node {node.name}")

    x, out = graph.tensor(node.inputs[0]), graph.tensor(node.output)
    require(x.data is None, "its input is a constant")
    for tensor, is_float in ((x, isinstance(node, Quantize)), (out, isinstance(node, Dequantize))):
        allowed = ("float32",) if is_float else ("uint8", "int8")
        require(tensor.dtype in allowed, f"{node.op} with {tensor.dtype} at {tensor.name}")
        require((tensor.quantization is None) == is_float, f"{node.op} of {tensor.name}, which is plain")
        per_tensor = tensor.quantization is None or tensor.quantization.axis is None
        require(per_tensor, f"the activation {tensor.name} is quantised per channel")

    if isinstance(node, Moved | Reshape):
        for name in node.inputs:
            require(same_quantization(graph.tensor(name), out), f"{node.op} changes the quantisation")
    if isinstance(node, Lookup):
        table = graph.tensor(node.inputs[1])
        require(table.data is not None and table.shape == (256,), "its table is not a constant of 256 values")
        require(same_quantization(table, out), "its table is not of the output's dtype and quantisation")
    if isinstance(node, Clamped):
        low, high = INTEGER_RANGE[out.dtype]
        require(low <= node.clamp[0] <= node.clamp[1] <= high, f"clamp {node.clamp} of {out.dtype}")
    if isinstance(node, Add | Mul | Concat):
        for name in node.inputs[1:]:
            other = graph.tensor(name)
            require(other.dtype in ("uint8", "int8"), f"{node.op} with {other.dtype} at {name}")
            per_tensor = other.quantization is not None and other.quantization.axis is None
            require(per_tensor, f"{node.op} per channel")
            require(other.data is None, f"{node.op} of a constant")
    if isinstance(node, Conv | Gemm):
        weight = graph.tensor(node.inputs[1])
        require(weight.data is not None, "its weight is not a constant")
        require(weight.dtype in ("uint8", "int8"), f"weight of {weight.dtype}")
        require(weight.quantization is not None and weight.quantization.axis in (None, 0), "weight axis")
        for name in node.inputs[2:]:
            bias = graph.tensor(name)
            require(bias.data is not None, "its bias is not a constant")
            require(bias.dtype == "int32", f"bias of {bias.dtype}")
            require(bias.shape == weight.shape[:1], f"bias {list(bias.shape)} of {weight.shape[0]} channels")
    _verify_accumulator(graph, node)


def _verify_island(graph: Graph, node: Node) -> None:
    """What `sdk.integer_islands` made: quantised per tensor, but for weights, which may be per channel."""

    def require(condition: bool, message: str) -> None:
        if not condition:
            raise InvalidModel(message, where=f"node {node.name}")

    given, out = [graph.tensor(name) for name in node.inputs], graph.tensor(node.output)
    for tensor in (*given[: 2 if isinstance(node, ConvTranspose | MatMul) else 1], out):
        require(tensor.dtype in ("uint8", "int8"), f"{node.op} with {tensor.dtype} at {tensor.name}")
        require(tensor.quantization is not None, f"{node.op} of {tensor.name}, which is plain")
    for tensor in (tensor for tensor in (*given, out) if tensor.data is None):
        per_tensor = tensor.quantization is not None and tensor.quantization.axis is None
        require(per_tensor, f"the activation {tensor.name} is quantised per channel")
    require(given[0].data is None, "its input is a constant")
    match node:
        case MatMul():
            _verify_matmul(node, given, out)
        case ConvTranspose():
            _verify_conv_transpose(node, given, out)
        case Interpolate():
            _verify_taps(node, given)
            interpolation_taps(graph, node)
        case Fill():
            require(math.isfinite(node.value), f"a border of {node.value}")
        case Reduce():
            require(node.kind in ("sum", "mean", "max", "min"), f"the {node.kind} of quantised tensors")
            if node.kind in ("sum", "mean"):
                count = math.prod(given[0].shape[axis] for axis in node.axes)
                _require_int32(node, _reach(given[0]) * count)
        case Softmax():
            require(0 <= node.axis < len(out.shape), f"Softmax over axis {node.axis}")
            q31_softmax(given[0].scale, out.scale, out.shape[node.axis])  # refuses what it does not define
        case Normalize():
            _verify_normalize(node, given)
            for tensor in given[1:]:
                plain = tensor.dtype == "float32" and tensor.quantization is None
                require(plain and tensor.data is not None, f"{tensor.name} is not a float32 constant")
            normalization(graph, node)


def _verify_normalize(node: Normalize, given: Sequence[Tensor]) -> None:
    """Its axes, its epsilon, and that its factors and offsets broadcast to its input."""

    def fail(message: str) -> InvalidModel:
        return InvalidModel(message, where=f"node {node.name}")

    (x, *others), axes = given, node.axes
    inside = all(0 <= axis < len(x.shape) for axis in axes)
    if not axes or not inside or len(set(axes)) < len(axes):
        raise fail(f"Normalize over axes {list(axes)}")
    if not node.epsilon >= 0:
        raise fail(f"an epsilon of {node.epsilon}")
    for tensor in others:
        if broadcast((x.shape, tensor.shape), fail) != x.shape:
            raise fail(f"{tensor} widens its input")


def _verify_taps(node: Interpolate, given: Sequence[Tensor]) -> None:
    """Its indices and weights are constants of one shape, and lie within the picture."""
    x = given[0]
    for index in (1, 3):
        indices, weights, extent = given[index], given[index + 1], x.shape[2 + index // 2]
        known = indices.data is not None and weights.data is not None
        typed = (indices.dtype, weights.dtype) == ("int32", "float32")
        if not known or not typed:
            raise InvalidModel("its taps are not constants of int32 and float32", where=f"node {node.name}")
        fits = indices.shape == weights.shape and len(indices.shape) == 2
        if not fits or not 0 <= indices.data.min() <= indices.data.max() < extent:  # type: ignore[union-attr]
            raise InvalidModel(f"its taps do not fit {list(x.shape)}", where=f"node {node.name}")


def _verify_matmul(node: MatMul, given: Sequence[Tensor], out: Tensor) -> None:
    a, b, *biases = given
    columns = len(b.shape) - (2 if node.transposed else 1)
    if b.quantization is not None and b.quantization.axis not in (None, columns):
        raise InvalidModel(
            f"its weight has scales along axis {b.quantization.axis}", where=f"node {node.name}"
        )
    reach = _reach(a) * _weight_reach(b) * a.shape[-1]
    _verify_island_bias(node, biases, out.shape[-1], reach)


def _verify_conv_transpose(node: ConvTranspose, given: Sequence[Tensor], out: Tensor) -> None:
    x, weight, *biases = given
    quantization = weight.quantization
    if weight.data is None or (quantization is not None and quantization.axis not in (None, 1)):
        raise InvalidModel("its weight is not a constant with scales along axis 1", where=f"node {node.name}")
    terms = weight.shape[0] // node.group * math.prod(weight.shape[2:])
    _verify_island_bias(node, biases, out.shape[1], _reach(x) * _weight_reach(weight) * terms)


def _verify_island_bias(node: Node, biases: Sequence[Tensor], channels: int, reach: int) -> None:
    """The bias of a product, an int32 constant, and that sums which reach so far fit int32 with it."""
    for bias in biases:
        if bias.data is None or bias.dtype != "int32" or bias.shape != (channels,):
            raise InvalidModel(f"bias {bias}, not int32 [{channels}]", where=f"node {node.name}")
        reach += int(np.abs(bias.data.astype(np.int64)).max())
    _require_int32(node, reach)


def _verify_quantized_map(graph: Graph, node: Map) -> None:
    """Activations and result are quantised per tensor, constants plain; its expression is one of reals."""

    def require(condition: bool, message: str) -> None:
        if not condition:
            raise InvalidModel(message, where=f"node {node.name}")

    given, out = [graph.tensor(name) for name in node.inputs], graph.tensor(node.output)
    operands = len(node.expression.inputs)
    require(len(given) == operands, f"its expression takes {operands} inputs, not {len(given)}")
    for tensor, kind in zip((*given, out), (*node.expression.inputs, node.expression.kind), strict=True):
        if tensor.data is not None:
            require(tensor.quantization is None, f"its constant {tensor.name} is quantised")
            require(kind_of(tensor.dtype) == kind, f"its expression takes {kind}, not {tensor}")
            continue
        require(tensor.dtype in ("uint8", "int8"), f"{node.op} with {tensor.dtype} at {tensor.name}")
        per_tensor = tensor.quantization is not None and tensor.quantization.axis is None
        require(per_tensor, f"{node.op} of {tensor.name}, which is not quantised per tensor")
        require(kind == "real", f"its expression has {kind} at {tensor.name}, which stands for a real")
    exact_map(graph, node, "f32")


def _verify_accumulator(graph: Graph, node: Node) -> None:
    x = graph.tensor(node.inputs[0])
    bound = 0
    if isinstance(node, Conv | Gemm):
        weight = graph.tensor(node.inputs[1])
        assert weight.data is not None  # verified above
        assert weight.quantization is not None
        flat = weight.data.reshape(weight.shape[0], -1).astype(np.int64)
        sums = np.abs(flat - weight.quantization.zero_point.reshape(-1, 1)).sum(axis=1) * _reach(x)
        for name in node.inputs[2:]:
            sums = sums + np.abs(graph.tensor(name).data.astype(np.int64))  # type: ignore[union-attr]
        bound = int(sums.max())
    elif isinstance(node, AveragePool):
        bound = _reach(x) * node.kernel[0] * node.kernel[1]
    elif isinstance(node, GlobalAveragePool):
        bound = _reach(x) * x.shape[2] * x.shape[3]
    _require_int32(node, bound)


def _require_int32(node: Node, bound: int) -> None:
    if bound >= 2**31:
        raise Unsupported(
            f"its accumulator could reach {bound}, beyond int32",
            where=f"node {node.name}",
            hint="requantise the model, per channel, with calibration data like its real inputs",
        )


def _verify_plain(node: Node, given: Sequence[Tensor], out: Tensor) -> None:
    """Dtypes and attributes of the families on plain tensors; shapes were checked."""

    def require(condition: bool, message: str) -> None:
        if not condition:
            raise InvalidModel(message, where=f"node {node.name}")

    for tensor in (*given, out):
        require(tensor.quantization is None, f"{node.op} of {tensor.name}, which is quantised")
    x, known = given[0], {tensor.dtype for tensor in given}
    rank = len(x.shape)
    match node:
        case Map():
            operands = len(node.expression.inputs)
            require(len(given) == operands, f"its expression takes {operands} inputs, not {len(given)}")
            for tensor, kind in zip(given, node.expression.inputs, strict=True):
                require(kind_of(tensor.dtype) == kind, f"its expression takes {kind}, not {tensor}")
            result = kinds(node.expression)[-1]
            require(kind_of(out.dtype) == result, f"its expression gives {result}, not {out.dtype}")
            return
        case Gather() | GatherND() | Scatter():
            require(given[1].dtype in ("int32", "int64"), f"indices of {given[1].dtype}")
            known = {tensor.dtype for tensor in given if tensor is not given[1]}
            if isinstance(node, Scatter):
                require(node.reduction in SCATTERED, f"an unknown reduction {node.reduction!r}")
                require(node.reduction == "none" or x.dtype != "bool", f"the {node.reduction} of {x.dtype}")
        case Interpolate():
            _verify_taps(node, given)
            known = {x.dtype}
        case Reduce():
            require(node.kind in REDUCTIONS, f"an unknown reduction {node.kind!r}")
            if node.kind in ("argmax", "argmin"):
                require(out.dtype == "int64", f"{node.kind} gives int64, not {out.dtype}")
                return
            require(node.kind != "mean" or dtypes.is_float(x.dtype), f"the mean of {x.dtype}")
            require(x.dtype != "bool", f"the {node.kind} of {x.dtype}")
        case TopK():
            require(out.dtype == "int64", f"TopK gives int64, not {out.dtype}")
            return
        case Softmax():
            require(0 <= node.axis < rank, f"Softmax over axis {node.axis}")
        case Normalize():
            _verify_normalize(node, given)
            known = {"float32"} if all(map(dtypes.is_float, known)) else known
            require(dtypes.is_float(x.dtype) and out.dtype == x.dtype, f"{x.dtype} becomes {out.dtype}")
            return
        case GridSample():
            require(node.mode in ("linear", "nearest"), f"an unknown mode {node.mode!r}")
            padding = ("zeros", "border", "reflection")
            require(node.padding_mode in padding, f"an unknown padding_mode {node.padding_mode!r}")
            require(all(map(dtypes.is_float, known)), f"{node.op} of {', '.join(sorted(known))}")
            known = {x.dtype}
        case Conv() | ConvTranspose() | MatMul():
            bias = given[2:]
            channels = out.shape[-1 if isinstance(node, MatMul) else 1]
            require(all(b.shape == (channels,) for b in bias), f"bias {[list(b.shape) for b in bias]}")
            require(all(map(dtypes.is_float, known)), f"{node.op} of {', '.join(sorted(known))}")
            require(given[1].dtype == x.dtype, f"{node.op} of {x.dtype} by {given[1].dtype}")
            known = {x.dtype}
        case Concat() | MaxPool() | Reshape() | Transpose() | Slice() | Take() | Fill() | Pad() | Resize():
            pass
        case Recurrent():
            known = {given[node.sequences].dtype}
        case AveragePool() | GlobalAveragePool():
            require(dtypes.is_float(x.dtype), f"{node.op} of {x.dtype}")
        case _:
            raise InvalidModel(f"{node.op} of plain tensors", where=f"node {node.name}")
    if isinstance(node, Softmax | AveragePool | GlobalAveragePool | Conv | ConvTranspose | MatMul):
        require(dtypes.is_float(x.dtype), f"{node.op} of {x.dtype}")
    require(known == {out.dtype}, f"{', '.join(sorted(known))} becomes {out.dtype}")


def kind_of(dtype: str) -> Kind:
    """What elements of a dtype are in an expression."""
    kind = dtypes.dtype(dtype).kind
    return "real" if kind == "float" else "bool" if kind == "bool" else "int"


def _verify_region(graph: Graph, node: Region) -> None:
    """Its nodes in order, each reading what the region reads, what comes before it, or a constant."""
    known = set(node.inputs)
    for inner in node.nodes:
        for name in inner.inputs:
            if name not in known and graph.tensor(name).data is None:
                message = f"{inner.name} reads {name}, which is not known in it"
                raise InvalidModel(message, where=f"node {node.name}")
        _verify_node(graph, inner)
        known.add(inner.output)
    if not node.nodes or node.nodes[-1].output != node.output:
        raise InvalidModel("its last node does not give its output", where=f"node {node.name}")


def _reach(x: Tensor) -> int:
    """The largest magnitude of an element less its zero-point."""
    low, high = INTEGER_RANGE[x.dtype]
    return max(high - x.zero_point, x.zero_point - low)


def _weight_reach(weight: Tensor) -> int:
    """The same of a tensor with one zero-point for each channel."""
    assert weight.quantization is not None  # verified
    low, high = INTEGER_RANGE[weight.dtype]
    zero_point = weight.quantization.zero_point
    return int(max(high - zero_point.min(), zero_point.max() - low))


def same_quantization(a: Tensor, b: Tensor) -> bool:
    """Whether the elements of two tensors mean the same, as integers of one dtype."""
    if a.quantization is None or b.quantization is None:
        return False
    return a.dtype == b.dtype and a.quantization.equals(b.quantization)
