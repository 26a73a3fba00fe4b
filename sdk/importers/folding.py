"""Constant subgraphs, evaluated node by node while a model is walked.

Nothing is rewritten: a node whose inputs are all known becomes its result. Shape and Size of a static tensor
are known whatever computes it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from sdk import dtypes
from sdk.extras import require
from sdk.graph import Array
from sdk.importers.onnx_file import LARGEST_MADE, OnnxNode, element_name, element_number
from sdk.importers.plain.types import dtype_of
from sdk.importers.values import Constant, Plain, Quantized, QuantizedConstant, Real, Shape, Value, numpy_name

if TYPE_CHECKING:
    from sdk.importers.walk import Walk

HANDLED = ("Constant", "Identity", "Dropout", "QuantizeLinear", "DequantizeLinear")
"""Operators that are not evaluated even where all their inputs are known: they have handlers of their own."""

NEVER_EVALUATED = {
    *("SplitToSequence", "SequenceConstruct", "SequenceAt", "ConcatFromSequence"),
    *("Bernoulli", "Multinomial"),
    *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
}
"""Operators whose results are no constants, or no tensors."""

OF_ANY_SIZE = (
    *(
        "BlackmanWindow",
        "CenterCropPad",
        "ConstantOfShape",
        "EyeLike",
        "Expand",
        "HammingWindow",
        "HannWindow",
    ),
    *("MelWeightMatrix", "OneHot", "Pad", "Range", "Resize", "Tile", "Upsample"),
)
"""Operators whose results may have any size, whatever that of their inputs."""

SMALL = 1 << 16
"""Elements of a constant whose values shape inference is given."""


def fold(walk: Walk, node: OnnxNode, *, whatever: bool = False) -> bool:
    """Make constants of a node's results if all its inputs are known; whether it did.

    Args:
        walk: what is known.
        node: the node.
        whatever: whether to evaluate operators too that have handlers of their own.

    Raises:
        Unsupported: its results are too large, or nothing can evaluate it.
    """
    if node.op_type in NEVER_EVALUATED or node.domain or (node.op_type in HANDLED and not whatever):
        return False
    if any(attribute.HasField("g") for attribute in node.proto.attribute):
        return False  # a Loop of constants may never end
    values = {name: walk.values.get(name) for name in node.inputs if name}
    if node.op_type in ("Shape", "Size", "EyeLike") and len(values) == 1:
        arrays = _of_shape(walk, node, next(iter(values.values())))
    else:
        arrays = {name: value.array for name, value in values.items() if isinstance(value, Constant)}
        if len(arrays) != len(values) or not arrays:
            return False
    if arrays is None:
        return False
    _check_growth(walk, node, arrays)
    for name, array in zip(filter(None, node.outputs), evaluate(node, arrays), strict=False):
        if not walk.float_model:
            walk.check_declared(name, numpy_name(array.dtype.name), array.shape, node.where)
        walk.values[name] = Constant(name, array)
    return True


def _of_shape(walk: Walk, node: OnnxNode, value: Value | None) -> dict[str, Array] | None:
    """An array of the shape of a value, for operators that read no element of it."""
    shape = shape_of(walk, value)
    if shape is None:
        return None
    dtype = np.dtype(np.float32)
    if isinstance(value, Constant):
        dtype = value.array.dtype
    elif isinstance(value, Plain) and node.op_type == "EyeLike" and not node.integer("dtype", 0):
        dtype = np.dtype(walk.builder.tensors[value.tensor].dtype)
    return {node.inputs[0]: np.broadcast_to(np.zeros((), dtype), shape)}


def shape_of(walk: Walk, value: Value | None) -> Shape | None:
    """The shape of what a name is, if it is a tensor."""
    match value:
        case Constant() | QuantizedConstant():
            return value.array.shape
        case Plain(tensor) | Quantized(tensor):
            return walk.builder.tensors[tensor].shape
        case Real():
            return value.shape
    return None


def _check_growth(walk: Walk, node: OnnxNode, arrays: Mapping[str, Array]) -> None:
    """Count what the results add, and refuse what exceeds LARGEST_MADE before it is computed."""
    if node.op_type in ("Shape", "Size"):
        return
    kinds = {name: (numpy_name(array.dtype.name), array.shape) for name, array in arrays.items()}
    outputs = inferred(node, kinds, arrays)
    scalars = all(array.size == 1 for array in arrays.values())
    if outputs is None and node.op_type == "Range" and scalars:  # of a type that onnx does not infer
        outputs = [_range_kind(node, arrays)]
    if outputs is None:
        if node.op_type in OF_ANY_SIZE:
            raise node.unsupported("the size of its constant result is not known before it is computed")
        return
    made = sum(
        math.prod(shape) * dtypes.dtype(dtype).nbytes for dtype, shape in outputs if dtype in dtypes.DTYPES
    )
    growth = max(made - sum(array.nbytes for array in arrays.values()), 0)
    if walk.growth + growth > LARGEST_MADE:
        raise node.unsupported(
            f"its constant result of {made:,} bytes exceeds the {LARGEST_MADE:,} that folding may add",
            "compute it from smaller constants, or give it as an initializer",
        )
    walk.growth += growth


def _range_kind(node: OnnxNode, arrays: Mapping[str, Array]) -> Kind:
    start, limit, step = (float(arrays[name].reshape(-1)[0]) for name in node.inputs)
    count = max(math.ceil((limit - start) / step), 0) if step else 0
    return numpy_name(arrays[node.inputs[0]].dtype.name), (count,)


Kind = tuple[str, Shape]
"""A dtype of the graph, and a shape."""


def kind_of(walk: Walk, value: Value | None) -> Kind | None:
    """Dtype and shape of what a name is, if it is a tensor of numbers."""
    shape = shape_of(walk, value)
    if value is None or shape is None or isinstance(value, Quantized):
        return None
    dtype = dtype_of(walk, value)
    return None if dtype is None else (dtype, shape)


def inferred(node: OnnxNode, kinds: Mapping[str, Kind], known: Mapping[str, Array]) -> list[Kind] | None:
    """Types and shapes of a node's results, where onnx's shape inference finds all of them.

    Args:
        node: the node.
        kinds: of its inputs.
        known: the values of those that are constants.
    """
    onnx, helper = require("onnx"), require("onnx.helper")
    if not onnx.defs.has(node.op_type, node.opset, node.domain):
        return None
    schema = onnx.defs.get_schema(node.op_type, node.opset, node.domain)
    from_array = require("onnx.numpy_helper").from_array
    types = {
        name: helper.make_tensor_type_proto(element_number(dtype), shape)
        for name, (dtype, shape) in kinds.items()
    }
    data = {
        name: from_array(np.asarray(array, order="C"), name)
        for name, array in known.items()
        if array.size <= SMALL
    }
    try:
        found = onnx.shape_inference.infer_node_outputs(
            schema, node.proto, types, data, opset_imports=[helper.make_opsetid(node.domain, node.opset)]
        )
    except Exception:  # onnx raises what it likes; converting or evaluating the node says more
        return None
    result = []
    for name in filter(None, node.outputs):
        kind = found[name].tensor_type if name in found else None
        if kind is None or not kind.HasField("shape"):
            return None
        if not all(dim.HasField("dim_value") for dim in kind.shape.dim):
            return None
        result.append((element_name(kind.elem_type), tuple(dim.dim_value for dim in kind.shape.dim)))
    return result


def evaluate(node: OnnxNode, arrays: Mapping[str, Array]) -> list[Array]:
    """Results of a node on known inputs, by onnx's own reference implementation.

    onnxruntime would know no more, and ends the process on some damaged nodes (a GRU of wrong shapes).

    Raises:
        Unsupported: it fails.
    """
    helper = require("onnx.helper")
    elements = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in arrays.items()}
    inputs = [helper.make_tensor_value_info(name, elements[name], a.shape) for name, a in arrays.items()]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.outputs if name]
    proto = type(node.proto)()
    proto.CopyFrom(node.proto)
    proto.domain = node.domain
    graph = helper.make_graph([proto], "constant", inputs, outputs)
    opset = [helper.make_opsetid(node.domain, node.opset)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    try:
        evaluator = require("onnx.reference").ReferenceEvaluator(model)
        return [np.asarray(result) for result in evaluator.run(None, dict(arrays))]
    except Exception as problem:  # numpy and onnx raise anything on a node that contradicts itself
        raise node.unsupported(f"{node.op_type} of constants cannot be folded: {problem}") from problem
