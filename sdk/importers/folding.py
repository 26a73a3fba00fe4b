"""Constant subgraphs, evaluated node by node while a model is walked.

Nothing is rewritten: a node whose inputs are all known becomes its result. Shape and Size of a static tensor
are known whatever computes it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sdk import ort
from sdk.extras import require
from sdk.graph import Array
from sdk.importers.onnx_file import OnnxNode
from sdk.importers.values import Constant, Plain, Quantized, QuantizedConstant, Real, Shape, Value, numpy_name

if TYPE_CHECKING:
    import onnx

    from sdk.importers.walk import Walk

HANDLED = ("Constant", "Identity", "Dropout", "QuantizeLinear", "DequantizeLinear")
"""Operators that are not evaluated even where all their inputs are known: they have handlers of their own."""

NEVER_EVALUATED = {
    *("SplitToSequence", "SequenceConstruct", "SequenceAt", "ConcatFromSequence"),
    *("Bernoulli", "Multinomial"),
    *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
}
"""Operators whose results are no constants, or no tensors."""

LARGEST_GROWTH = 64 << 20
"""Bytes that all folded results may have beyond what they were made from."""

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
    """Count what the results add, and refuse what exceeds LARGEST_GROWTH before it is computed."""
    outputs = inferred(node, arrays)
    if outputs is None or node.op_type in ("Shape", "Size"):
        return
    made = sum(math.prod(shape) * dtype.itemsize for dtype, shape in outputs)
    growth = max(made - sum(array.nbytes for array in arrays.values()), 0)
    if walk.growth + growth > LARGEST_GROWTH:
        raise node.unsupported(
            f"its constant result of {made:,} bytes exceeds the {LARGEST_GROWTH:,} that folding may add",
            "compute it from smaller constants, or give it as an initializer",
        )
    walk.growth += growth


def inferred(node: OnnxNode, arrays: Mapping[str, Array]) -> list[tuple[np.dtype[Any], Shape]] | None:
    """Types and shapes of a node's results on known inputs, where onnx's shape inference finds them."""
    onnx, helper = require("onnx"), require("onnx.helper")
    if not onnx.defs.has(node.op_type, node.opset, node.domain):
        return None
    schema = onnx.defs.get_schema(node.op_type, node.opset, node.domain)
    types, data = {}, {}
    for name, array in arrays.items():
        types[name] = helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        if array.size <= SMALL:
            data[name] = require("onnx.numpy_helper").from_array(np.asarray(array, order="C"), name)
    try:
        found = onnx.shape_inference.infer_node_outputs(
            schema, node.proto, types, data, opset_imports=[helper.make_opsetid(node.domain, node.opset)]
        )
    except Exception:  # onnx raises what it likes; evaluating the node says more
        return None
    result = []
    for name in filter(None, node.outputs):
        kind = found[name].tensor_type if name in found else None
        if kind is None or not kind.HasField("shape"):
            return None
        if not all(dim.HasField("dim_value") for dim in kind.shape.dim):
            return None
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        result.append((dtype, tuple(dim.dim_value for dim in kind.shape.dim)))
    return result


def evaluate(node: OnnxNode, arrays: Mapping[str, Array]) -> list[Array]:
    """Results of a node on known inputs: by onnx's reference, else by onnxruntime.

    Raises:
        Unsupported: both fail.
    """
    helper = require("onnx.helper")
    elements = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in arrays.items()}
    inputs = [helper.make_tensor_value_info(name, elements[name], a.shape) for name, a in arrays.items()]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.outputs if name]
    graph = helper.make_graph([node.proto], "constant", inputs, outputs)
    opset = [helper.make_opsetid(node.domain, node.opset)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    try:
        evaluator = require("onnx.reference").ReferenceEvaluator(model)
        return [np.asarray(result) for result in evaluator.run(None, dict(arrays))]
    except Exception as problem:  # numpy and onnx raise anything on a node that contradicts itself
        results = _by_onnxruntime(model, arrays)
        if results is None:
            message = f"{node.op_type} of constants cannot be folded: {problem}"
            raise node.unsupported(message) from problem
        return results


def _by_onnxruntime(model: onnx.ModelProto, arrays: Mapping[str, Array]) -> list[Array] | None:
    try:
        session = ort.session(model)
        return [np.asarray(result) for result in session.run(None, dict(arrays))]
    except Exception:
        return None
