"""ONNX in: a quantised model becomes the integer graph, a float one is checked beforehand.

`load_onnx` and `check_float` are one loop over one operator table. For a float model, every operator's
result is quantised in place with a made-up scale: what a quantised model would be refused for later is
then refused now, by the same code.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sdk.errors import InvalidModel, Unsupported, UsageError
from sdk.extras import require
from sdk.graph import Array, Graph, Reshape, Tensor
from sdk.importers.onnx_file import (
    OnnxNode,
    decode_node,
    input_shape,
    is_quantized,
    opset_versions,
    read_onnx,
    to_array,
)
from sdk.importers.operators import OPERATORS, refuse
from sdk.importers.quantization import input_quantization
from sdk.importers.values import Constant, Quantized, QuantizedConstant, Real
from sdk.importers.walk import Walk
from sdk.passes import eliminate_dead
from sdk.segments import split
from sdk.verification import verify

if TYPE_CHECKING:
    import onnx

NEVER_FOLDED = {
    *("Constant", "Identity", "Dropout", "QuantizeLinear", "DequantizeLinear"),  # have handlers of their own
    *("Bernoulli", "Multinomial"),
    *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
}
"""Operators that are not constants even where all their inputs are, or need no evaluation."""


def load_onnx(
    path: str | os.PathLike[str], *, input_shapes: Mapping[str, tuple[int, ...]] | None = None
) -> Graph:
    """Read a quantised ONNX model, QDQ or QOperator, into the verified integer graph.

    Args:
        path: the .onnx file.
        input_shapes: static shapes of dynamic inputs, by input name.

    Returns:
        The graph, dead nodes removed; float only at its head (Quantize of an input) and tail.

    Raises:
        UsageError: no such file, or `input_shapes` contradicts the model.
        InvalidModel: the file is damaged, or the model contradicts itself.
        Unsupported: a float model, a dynamic shape, or an operator that Towline does not support, by node
            name.
        EnvironmentMissing: the onnx package is not installed.
    """
    model = read_onnx(path)
    where = os.fspath(path)
    if not is_quantized(model):
        raise Unsupported(
            "the model is float; quantise it first",
            where=where,
            hint=f"towline quantize {where} --calibrate DIR -o {Path(path).stem}-int8.onnx",
        )
    graph = eliminate_dead(import_onnx(model, input_shapes=input_shapes, float_model=False))
    verify(graph)
    split(graph)
    return graph


def check_float(model: onnx.ModelProto, *, input_shapes: Mapping[str, tuple[int, ...]] | None = None) -> None:
    """Refuse a float model that would be refused once quantised, naming the first node concerned.

    Args:
        model: as `read_onnx` gives it.
        input_shapes: static shapes of dynamic inputs, by input name.

    Raises:
        UsageError: `input_shapes` contradicts the model.
        InvalidModel: NaN or infinite weights, or a model that contradicts itself.
        Unsupported: the model is quantised; a dynamic shape, or an operator that Towline does not support.
    """
    if is_quantized(model):
        raise Unsupported(
            "the model is already quantised",
            where=model.graph.name or "model",
            hint="compile it as it is, or give the float model",
        )
    for tensor in model.graph.initializer:
        array = to_array(tensor, tensor.name)
        # Bounds of a Clip are scalars and may be infinite.
        if array.ndim and np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
            raise InvalidModel("it holds NaN or infinity", where=f"initializer {tensor.name}")
    import_onnx(model, input_shapes=input_shapes, float_model=True)


def import_onnx(
    model: onnx.ModelProto, *, input_shapes: Mapping[str, tuple[int, ...]] | None = None, float_model: bool
) -> Graph:
    """As `load_onnx` and `check_float`, of a model that was read; dead nodes included, not verified.

    Args:
        model: as `read_onnx` gives it.
        input_shapes: static shapes of dynamic inputs, by input name.
        float_model: whether results that are not quantised take a made-up scale.
    """
    name = model.graph.name or "model"
    opsets = opset_versions(model)
    nodes = [decode_node(node, opsets) for node in model.graph.node]
    _check_structure(model, nodes, name)
    walk = Walk(nodes, [value.name for value in model.graph.output], float_model=float_model)
    for tensor in model.graph.initializer:
        walk.values[tensor.name] = Constant(tensor.name, to_array(tensor, tensor.name))
    _add_inputs(walk, model, input_shapes or {}, name)
    for node, proto in zip(nodes, model.graph.node, strict=True):
        if not _fold(walk, node, proto, model):
            handler = OPERATORS.get((node.domain, node.op_type)) or refuse(node)
            handler(walk, node)
    for output in walk.outputs:
        _finish(walk, output)
    metadata = {"onnx.producer": model.producer_name} if model.producer_name else {}
    return walk.builder.graph(name, walk.inputs, walk.outputs, metadata)


def _check_structure(model: onnx.ModelProto, nodes: Sequence[OnnxNode], name: str) -> None:
    """Operators that onnx does not know, by node name; then what its own checker finds."""
    onnx = require("onnx")
    for node in nodes:
        if (node.domain, node.op_type) not in OPERATORS and not onnx.defs.has(node.op_type, node.domain):
            refuse(node)
    if model.graph.sparse_initializer:
        raise Unsupported("sparse initializers are not read", where=name)
    checked = onnx.ModelProto()
    checked.CopyFrom(model)
    for value in [*checked.graph.input, *checked.graph.output]:
        # The checker requires a shape on each; onnxruntime does not, and a missing one is reported below.
        value.type.tensor_type.shape.SetInParent()
    try:
        onnx.checker.check_model(checked)
    except onnx.checker.ValidationError as problem:
        reason = " ".join(str(problem).split())
        raise InvalidModel(f"onnx's checker refuses it: {reason}", where=name) from problem


def _add_inputs(
    walk: Walk, model: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]], where: str
) -> None:
    """Make the graph's inputs values; an integer one takes its scale from its readers."""
    onnx = require("onnx")
    # Before IR version 4 initializers are listed among the inputs too.
    inputs = [value for value in model.graph.input if value.name not in walk.values]
    for name in shapes:
        if name not in [value.name for value in inputs]:
            known = ", ".join(value.name for value in inputs)
            raise UsageError(f"a shape was given for {name!r}, but the inputs are: {known}", where=where)
    types = {onnx.TensorProto.FLOAT: "float32"}
    if not walk.float_model:
        types |= {onnx.TensorProto.UINT8: "uint8", onnx.TensorProto.INT8: "int8"}
    for value in inputs:
        element = value.type.tensor_type.elem_type
        dtype = types.get(element)
        if dtype is None:
            found = onnx.TensorProto.DataType.Name(element).lower()
            expected = " or ".join(types.values())
            raise Unsupported(f"its type is {found}; inputs are {expected}", where=f"input {value.name}")
        shape = input_shape(value, shapes.get(value.name))
        quantization = None
        if dtype != "float32":
            for node in walk.nodes:  # an unsupported reader is the better reason
                if value.name in node.inputs and (node.domain, node.op_type) not in OPERATORS:
                    refuse(node)
            quantization = input_quantization(walk, value.name, dtype, shape)
        walk.builder.tensors[value.name] = Tensor(value.name, shape, dtype, quantization)
        walk.values[value.name] = (
            Real(value.name, value.name, shape, value.name, shape)
            if quantization is None
            else Quantized(value.name)
        )
        walk.inputs.append(value.name)


def _fold(walk: Walk, node: OnnxNode, proto: onnx.NodeProto, model: onnx.ModelProto) -> bool:
    """Evaluate a node whose inputs are all known, as onnxruntime does before it quantises."""
    if node.op_type in NEVER_FOLDED:
        return False
    if any(attribute.HasField("g") for attribute in proto.attribute):
        return False  # a Loop of constants may never end
    arrays: dict[str, Array] = {}
    for name in filter(None, node.inputs):
        value = walk.values.get(name)
        if isinstance(value, Constant):
            arrays[name] = value.array
        elif isinstance(value, Real) and node.op_type == "Shape":
            arrays[name] = np.zeros(value.shape, np.float32)
        else:
            return False
    if not arrays:
        return False
    for name, array in zip(node.outputs, _evaluate(node, proto, model, arrays), strict=False):
        walk.values[name] = Constant(name, array)
    return True


def _finish(walk: Walk, name: str) -> None:
    """Make the graph output `name` a tensor of that name."""
    where = f"output {name}"
    value = walk.values.get(name)
    if value is None:
        raise InvalidModel("no node computes it", where=where)
    if isinstance(value, Constant | QuantizedConstant):
        raise Unsupported("it is a constant", where=where)
    tensor = walk.float_tensor(value, where) if isinstance(value, Real) else value.tensor
    if tensor in walk.inputs and tensor == name:
        raise Unsupported("it is a graph input", where=where)
    if tensor != name:
        known = walk.builder.tensors[tensor]
        walk.builder.emit(Reshape(f"{name}_copy", (tensor,), ""), dataclasses.replace(known, name=name))


def _evaluate(
    node: OnnxNode, proto: onnx.NodeProto, model: onnx.ModelProto, arrays: Mapping[str, Array]
) -> list[Array]:
    """Outputs of a node on known inputs, by onnx's own reference implementation."""
    helper = require("onnx.helper")
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for name, a in arrays.items()
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.outputs if name]
    graph = helper.make_graph([proto], "constant", inputs, outputs)
    single = helper.make_model(graph, opset_imports=model.opset_import)
    try:
        evaluator = require("onnx.reference").ReferenceEvaluator(single)
        return [np.asarray(result) for result in evaluator.run(None, dict(arrays))]
    except Exception as problem:  # numpy and onnx raise anything on a node that contradicts itself
        raise node.unsupported(f"{node.op_type} of constants cannot be folded: {problem}") from problem
