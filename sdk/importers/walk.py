"""The walk over an ONNX graph, in its topological order, that yields the integer graph.

`load_model` and `check_float` are one walk over one operator table. For a float model, every operator's
result is quantised in place with a made-up scale: what a quantised model would be refused for later is
then refused now, by the same code.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sdk.errors import InvalidModel, Unsupported, UsageError
from sdk.extras import require
from sdk.graph import Array, Graph, Node, Quantization, Quantize, Reshape, Tensor
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
from sdk.importers.values import (
    Constant,
    GraphBuilder,
    Hosted,
    Quantized,
    QuantizedConstant,
    Real,
    Shape,
    Value,
    bounds_are_exact,
    real_values,
)
from sdk.passes import eliminate_dead, split, verify
from sdk.shapes import output_shape

if TYPE_CHECKING:
    import onnx

MADE_UP = ("uint8", Quantization.per_tensor(1 / 16, 128))
"""Type and quantisation that activations of a float model take while it is checked."""

NEVER_FOLDED = {
    *("Constant", "Identity", "Dropout", "QuantizeLinear", "DequantizeLinear"),  # have handlers of their own
    *("Bernoulli", "Multinomial"),
    *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
}
"""Operators that are no constants even where all their inputs are, or need no evaluation."""


def load_model(
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
        Unsupported: a float model, a dynamic shape, or an operator that Towline does not do, by node name.
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
    graph = eliminate_dead(Walk(model, input_shapes or {}, float_model=False).run())
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
        Unsupported: the model is quantised; a dynamic shape, or an operator that Towline does not do.
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
    Walk(model, input_shapes or {}, float_model=True).run()


class Walk:
    """One pass over a model; the operator table's handlers call its methods."""

    def __init__(
        self, model: onnx.ModelProto, input_shapes: Mapping[str, tuple[int, ...]], *, float_model: bool
    ) -> None:
        self.model = model
        self.float_model = float_model
        self.name = model.graph.name or "model"
        opsets = opset_versions(model)
        self.nodes = [decode_node(node, opsets) for node in model.graph.node]
        self.outputs = [value.name for value in model.graph.output]
        reserved = {name for node in self.nodes for name in node.outputs}
        self.builder = GraphBuilder(reserved.union(self.outputs))
        self.values: dict[str, Value] = {}
        self._check_structure()
        for tensor in model.graph.initializer:
            self.values[tensor.name] = Constant(tensor.name, to_array(tensor, tensor.name))
        self.inputs = self._add_inputs(input_shapes)

    def run(self) -> Graph:
        for node, proto in zip(self.nodes, self.model.graph.node, strict=True):
            if not self._fold(node, proto):
                handler = OPERATORS.get((node.domain, node.op_type)) or refuse(node)
                handler(self, node)
        for name in self.outputs:
            self._finish(name)
        metadata = {"onnx.producer": self.model.producer_name} if self.model.producer_name else {}
        return self.builder.graph(self.name, self.inputs, self.outputs, metadata)

    # --- what handlers read -----------------------------------------------------------------------------

    def value(self, node: OnnxNode, index: int) -> Value:
        value = self.optional(node, index)
        if value is None:
            raise node.invalid(f"{node.op_type} lacks its input {index}")
        return value

    def optional(self, node: OnnxNode, index: int) -> Value | None:
        """Input `index`, or None where it is left out."""
        if index >= len(node.inputs) or not node.inputs[index]:
            return None
        try:
            return self.values[node.inputs[index]]
        except KeyError:
            raise node.invalid(f"nothing before it computes its input {node.inputs[index]!r}") from None

    def constant(self, node: OnnxNode, index: int) -> Array:
        value = self.value(node, index)
        if not isinstance(value, Constant):
            raise node.unsupported(f"its input {node.inputs[index]!r} must be a constant")
        return value.array

    def float_constant(self, node: OnnxNode, index: int) -> Array:
        """The constant at input `index`, float32, dequantised if need be."""
        value = self.value(node, index)
        if isinstance(value, QuantizedConstant):
            shape = [1] * value.array.ndim
            if value.quantization.axis is not None:
                shape[value.quantization.axis] = -1
            centred = value.array.astype(np.int32) - value.quantization.zero_point.reshape(shape)
            return np.asarray(centred.astype(np.float32) * value.quantization.scale.reshape(shape))
        array = self.constant(node, index)
        if array.dtype != np.float32:
            raise node.unsupported(f"its input {node.inputs[index]!r} is {array.dtype}, not float32")
        return array

    def real_values(self, tensor: str) -> Array:
        """What each of the 256 values of an integer tensor means, float32."""
        return real_values(self.builder.tensors[tensor])

    def activation(self, node: OnnxNode, index: int) -> str:
        """The integer tensor that input `index` is, or is a float view of."""
        value = self.value(node, index)
        if isinstance(value, Constant | QuantizedConstant):
            raise node.unsupported(
                f"its input {node.inputs[index]!r} is a constant where an activation belongs",
                "let onnxruntime fold constants (onnxruntime.quantization.shape_inference.quant_pre_process)",
            )
        if isinstance(value, Hosted):
            raise node.unsupported(
                f"{node.op_type} reads {node.inputs[index]!r}, which Softmax left float",
                "cut the model before the float part, or quantise that too",
            )
        return value.tensor if isinstance(value, Quantized) else self.integer_tensor(value, node.where)

    def integer_tensor(self, real: Real, where: str) -> str:
        """The integers behind a float view; moves and exact bounds are carried out on them."""
        source = self.builder.tensors[real.source] if isinstance(real.source, str) else None
        if self.float_model and (source is None or source.quantization is None or self._changed(real)):
            return self._settle(real, *MADE_UP)
        hint = "every operator needs QuantizeLinear and DequantizeLinear around it: quantise the whole model"
        if source is None:
            assert not isinstance(real.source, str)
            message = f"its result reaches {where} as float, without QuantizeLinear"
            raise Unsupported(message, where=f"node {real.source.name}", hint=hint)
        if source.quantization is None:
            raise Unsupported(f"it reads the float graph input {source.name!r}", where=where, hint=hint)
        if not bounds_are_exact(real, source):
            message = f"the result of {real.changed_by} reaches it as float, without QuantizeLinear"
            raise Unsupported(message, where=where, hint=hint)
        if not self._changed(real):
            return source.name
        return self._settle(real, source.dtype, source.quantization)

    def _settle(self, real: Real, dtype: str, quantization: Quantization) -> str:
        """Make a recipe an integer tensor, which all later readers share."""
        tensor = self.builder.quantize(real, dtype, quantization, owner=real.owner)
        if self.values.get(real.name) is real:
            self.values[real.name] = Real(real.name, real.owner, real.shape, tensor, real.shape)
        return tensor

    @staticmethod
    def _changed(real: Real) -> bool:
        return bool(real.moves) or real.changed_by != ""

    def elements(self, node: OnnxNode, index: int) -> Real:
        """Input `index` as a function of an integer tensor's elements, its `values` filled in."""
        value = self.value(node, index)
        if isinstance(value, Quantized):
            raise node.unsupported(
                f"{node.op_type} of integers", "put it between DequantizeLinear and QuantizeLinear"
            )
        known = isinstance(value, Real) and isinstance(value.source, str) and not value.moves
        if not known or self.builder.tensors[value.source].quantization is None:  # type: ignore
            tensor = self.activation(node, index)
            shape = self.builder.tensors[tensor].shape
            value = Real(node.inputs[index], node.name, shape, tensor, shape)
        assert isinstance(value, Real)
        assert isinstance(value.source, str)
        if value.values is not None:
            return value
        values = np.clip(real_values(self.builder.tensors[value.source]), value.low, value.high)
        return dataclasses.replace(value, low=-math.inf, high=math.inf, values=values.astype(np.float32))

    def real(self, node: OnnxNode, index: int) -> Real:
        """Input `index` as a recipe to extend: a float view, or one made over an integer tensor."""
        value = self.value(node, index)
        if isinstance(value, Real):
            return value
        tensor = self.builder.tensors[self.activation(node, index)]
        return Real(tensor.name, node.name, tensor.shape, tensor.name, tensor.shape)

    def hosted(self, node: OnnxNode, index: int) -> str:
        """Input `index` as a float tensor of the tail."""
        value = self.value(node, index)
        if isinstance(value, Hosted):
            return value.tensor
        if not isinstance(value, Real):
            raise node.unsupported(f"its input {node.inputs[index]!r} is not float")
        return self._float_tensor(value, node.where)

    def _float_tensor(self, real: Real, where: str) -> str:
        if real.name not in self.builder.tensors:
            self.builder.dequantize(self.integer_tensor(real, where), real.name, real.owner)
        elif self.builder.tensors[real.name].quantization is None and real.name in self.inputs:
            raise Unsupported("it reads a float graph input; nothing before it is quantised", where=where)
        return real.name

    # --- what handlers write ----------------------------------------------------------------------------

    def define(self, node: OnnxNode, value: Value) -> None:
        if node.output in self.values:
            raise node.invalid(f"its output {node.output!r} is defined twice")
        self.values[node.output] = value

    def alias(self, node: OnnxNode) -> None:
        """Give the first input's value the output's name."""
        value = self.value(node, 0)
        self.define(node, dataclasses.replace(value, name=node.output) if isinstance(value, Real) else value)

    def define_operation(self, node: OnnxNode, template: Node) -> Real:
        """The recipe of an operator on integer activations, its shape derived."""
        shape = output_shape(template, self.builder.tensors)
        assert shape is not None  # only Reshape has none, and that is a move
        return Real(node.output, node.name, shape, template, shape)

    def quantize(self, node: OnnxNode, real: Real, dtype: str, quantization: Quantization) -> None:
        """Define the output as the integers of `real`."""
        output = node.output
        tensor = self.builder.quantize(
            real, dtype, quantization, owner=node.name, output=output, keep=output in self.outputs
        )
        self.define(node, Quantized(tensor))

    def host_quantize(self, node: OnnxNode, x: str, dtype: str, quantization: Quantization) -> None:
        """Define the output as the host's quantisation of a float tensor of the tail."""
        result = Tensor(node.output, self.builder.tensors[x].shape, dtype, quantization)
        self.define(node, Quantized(self.builder.emit(Quantize(node.name, (x,), ""), result)))

    def move(self, node: OnnxNode, index: int, template: Node, shape: Shape | None = None) -> None:
        """Define the output as input `index` moved by `template`, on integers or on a float view."""
        value = self.value(node, index)
        if isinstance(value, Hosted):
            if not isinstance(template, Reshape) or shape is None:
                raise node.unsupported(f"{node.op_type} of float; only the host's Softmax and Reshape are")
            step = dataclasses.replace(template, inputs=(value.tensor,))
            self.define(node, Hosted(self.builder.emit(step, Tensor(node.output, shape, "float32"))))
            return
        real = self.real(node, index)
        if shape is None:
            known = Tensor(node.inputs[index], real.shape, "uint8")
            shape = output_shape(dataclasses.replace(template, inputs=(known.name,)), {known.name: known})
            assert shape is not None
        moved = dataclasses.replace(
            real, name=node.output, owner=node.name, shape=shape, moves=(*real.moves, (template, shape))
        )
        if isinstance(value, Quantized):
            tensor = self.builder.tensors[value.tensor]
            assert tensor.quantization is not None
            self.quantize(node, moved, tensor.dtype, tensor.quantization)
        else:
            self.define(node, moved)

    # --- the walk's own ---------------------------------------------------------------------------------

    def _check_structure(self) -> None:
        """Operators that onnx does not know, by node name; then whatever its own checker finds."""
        onnx = require("onnx")
        for node in self.nodes:
            if (node.domain, node.op_type) not in OPERATORS and not onnx.defs.has(node.op_type, node.domain):
                refuse(node)
        if self.model.graph.sparse_initializer:
            raise Unsupported("sparse initializers are not read", where=self.name)
        checked = onnx.ModelProto()
        checked.CopyFrom(self.model)
        for value in [*checked.graph.input, *checked.graph.output]:
            # The checker wants a shape on each; onnxruntime does not, and a missing one is judged below.
            value.type.tensor_type.shape.SetInParent()
        try:
            onnx.checker.check_model(checked)
        except onnx.checker.ValidationError as problem:
            reason = " ".join(str(problem).split())
            raise InvalidModel(f"onnx's checker refuses it: {reason}", where=self.name) from problem

    def _add_inputs(self, shapes: Mapping[str, tuple[int, ...]]) -> list[str]:
        onnx = require("onnx")
        # Before IR version 4 initializers are listed among the inputs too.
        inputs = [value for value in self.model.graph.input if value.name not in self.values]
        for name in shapes:
            if name not in [value.name for value in inputs]:
                known = ", ".join(value.name for value in inputs)
                raise UsageError(
                    f"a shape was given for {name!r}, but the inputs are: {known}", where=self.name
                )
        types = {onnx.TensorProto.FLOAT: "float32"}
        if not self.float_model:
            types |= {onnx.TensorProto.UINT8: "uint8", onnx.TensorProto.INT8: "int8"}
        for value in inputs:
            where = f"input {value.name}"
            element = value.type.tensor_type.elem_type
            dtype = types.get(element)
            if dtype is None:
                found = onnx.TensorProto.DataType.Name(element).lower()
                expected = " or ".join(types.values())
                raise Unsupported(f"its type is {found}; inputs are {expected}", where=where)
            shape = input_shape(value, shapes.get(value.name))
            quantization = None
            if dtype != "float32":
                for node in self.nodes:  # a reader that is not done at all is the better reason
                    if value.name in node.inputs and (node.domain, node.op_type) not in OPERATORS:
                        refuse(node)
                quantization = input_quantization(self, value.name, dtype, shape)
            self.builder.tensors[value.name] = Tensor(value.name, shape, dtype, quantization)
            self.values[value.name] = (
                Real(value.name, value.name, shape, value.name, shape)
                if quantization is None
                else Quantized(value.name)
            )
        return [value.name for value in inputs]

    def _fold(self, node: OnnxNode, proto: onnx.NodeProto) -> bool:
        """Evaluate a node whose inputs are all known, as onnxruntime does before it quantises."""
        if node.op_type in NEVER_FOLDED:
            return False
        if any(attribute.HasField("g") for attribute in proto.attribute):
            return False  # a Loop of constants need not end
        arrays: dict[str, Array] = {}
        for name in filter(None, node.inputs):
            value = self.values.get(name)
            if isinstance(value, Constant):
                arrays[name] = value.array
            elif isinstance(value, Real) and node.op_type == "Shape":
                arrays[name] = np.zeros(value.shape, np.float32)
            else:
                return False
        if not arrays:
            return False
        for name, array in zip(node.outputs, _evaluate(node, proto, self.model, arrays), strict=False):
            self.values[name] = Constant(name, array)
        return True

    def _finish(self, name: str) -> None:
        """Make the graph output `name` a tensor of that name."""
        where = f"output {name}"
        value = self.values.get(name)
        if value is None:
            raise InvalidModel("no node computes it", where=where)
        if isinstance(value, Constant | QuantizedConstant):
            raise Unsupported("it is a constant", where=where)
        tensor = self._float_tensor(value, where) if isinstance(value, Real) else value.tensor
        if tensor in self.inputs and tensor == name:
            raise Unsupported("it is a graph input", where=where)
        if tensor != name:
            known = self.builder.tensors[tensor]
            self.builder.emit(Reshape(f"{name}_copy", (tensor,), ""), dataclasses.replace(known, name=name))


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
    except Exception as problem:  # whatever numpy or onnx raises on a node that makes no sense
        raise node.unsupported(f"{node.op_type} of constants cannot be folded: {problem}") from problem
