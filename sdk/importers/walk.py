"""What is known while an ONNX graph is walked: the state that handlers read and write.

`sdk.importers.onnx` is the loop that goes from node to node and calls them. A value has up to two forms. As
`values` has it, it may be a recipe of what nothing has quantised yet; as `plains` has it, it is a tensor that
is not quantised, made when the first operator without a quantised form reads it.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from sdk.errors import InvalidModel, Refusal, Unsupported
from sdk.graph import Array, Node, Quantization, Quantize, Tensor
from sdk.importers.onnx_file import OnnxNode
from sdk.importers.values import (
    Constant,
    GraphBuilder,
    Plain,
    Quantized,
    QuantizedConstant,
    Real,
    Shape,
    Value,
    bounds_are_exact,
    constant_tensor,
    dequantized,
    model_array,
    real_values,
)
from sdk.shapes import output_shape

LOG = logging.getLogger("towline")

MADE_UP = ("uint8", Quantization.per_tensor(1 / 16, 128))
"""Type and quantisation that activations of a float model take while it is checked."""


class Walk:
    """The values of a model's names so far, and the integer graph that grows from them.

    Attributes:
        nodes: all nodes of the model, in its topological order.
        inputs, outputs: names of the graph's; inputs are those that were added so far.
        float_model: whether the model is float, and only checked: activations take made-up scales.
        values: what each ONNX name is.
        plains: names of plain tensors, by ONNX name.
        opsets: versions by domain.
        folder: of the model, where its external data was not read.
        stays_float: nodes of a float model that have no quantised form.
        growth: bytes that folded constants have beyond what they were made from.
        declared: dtypes and shapes that the model states; None for an extent that it leaves open.
        builder: the graph.
    """

    def __init__(
        self,
        nodes: Sequence[OnnxNode],
        outputs: Sequence[str],
        *,
        float_model: bool,
        convert: Callable[[Walk, OnnxNode], None],
        convert_plain: Callable[[Walk, OnnxNode], None],
        opsets: Mapping[str, int] | None = None,
        folder: Path | None = None,
        stays_float: list[Refusal] | None = None,
    ) -> None:
        self.nodes = nodes
        self.outputs = outputs
        self.float_model = float_model
        self.inputs: list[str] = []
        self.values: dict[str, Value] = {}
        self.plains: dict[str, str] = {}
        self.declared: dict[str, tuple[str, tuple[int | None, ...] | None]] = {}
        self.opsets = dict(opsets or {})
        self.folder = folder
        self.growth = 0
        self.stays_float = [] if stays_float is None else stays_float
        self._convert = convert
        self._convert_plain = convert_plain
        self._constants: dict[str, Tensor] = {}
        self._makers: dict[str, OnnxNode] = {}
        reserved = {name for node in nodes for name in node.outputs}
        self.builder = GraphBuilder(reserved.union(outputs))

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
            return dequantized(value)
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
        if isinstance(value, Plain):
            raise node.unsupported(
                f"{node.op_type} reads {node.inputs[index]!r}, which Softmax left float",
                "cut the model before the float part, or quantise that too",
            )
        if not isinstance(value, Real | Quantized):
            raise node.unsupported(f"its input {node.inputs[index]!r} is a sequence of tensors")
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

    def float_tensor(self, real: Real, where: str) -> str:
        """A recipe as a plain tensor, made once for all its readers.

        Integers behind it are dequantised. Where there are none, the node that made it computes in floats.
        """
        if real.name in self.plains:
            return self.plains[real.name]
        if self.float_model or self._has_integers(real):
            if real.name not in self.builder.tensors:
                self.builder.dequantize(self.integer_tensor(real, where), real.name, real.owner)
            elif self.builder.tensors[real.name].quantization is None and real.name in self.inputs:
                raise Unsupported("it reads a float graph input; nothing before it is quantised", where=where)
            self.plains[real.name] = real.name
        elif isinstance(real.source, str) and not self._changed(real):
            self.plains[real.name] = real.source
        else:
            self._convert_plain(self, self._makers[real.name])
        return self.plains[real.name]

    def _has_integers(self, real: Real) -> bool:
        """Whether `integer_tensor` finds some behind it."""
        if not isinstance(real.source, str):
            return False
        source = self.builder.tensors[real.source]
        return source.quantization is not None and bounds_are_exact(real, source)

    def made_up(self, name: str, node: OnnxNode, plain: Plain) -> Real:
        """A plain tensor of a model that is to be quantised, as a view of integers."""
        shape = self.builder.tensors[plain.tensor].shape
        template = Quantize(f"{node.name}_quantize", (plain.tensor,), "")
        tensor = self.builder.emit(template, Tensor(self.builder.fresh(f"{name}_integers"), shape, *MADE_UP))
        return Real(name, node.name, shape, tensor, shape)

    # --- plain tensors ----------------------------------------------------------------------------------

    def plain(self, node: OnnxNode, index: int) -> Tensor:
        """Input `index` as a plain tensor; a constant has data, and is filed when a node reads it.

        Raises:
            Unsupported: it is the integers of a quantised tensor, or a sequence.
        """
        return self.plain_value(self.value(node, index), node)

    def plain_value(self, value: Value, node: OnnxNode) -> Tensor:
        """A value as a plain tensor, as `node` reads it."""
        match value:
            case Plain(tensor):
                return self.builder.tensors[tensor]
            case Constant():
                return self.constant_tensor(value, node.where)
            case QuantizedConstant():
                key = f"{value.name}/real"
                if key not in self._constants:
                    self._constants[key] = constant_tensor(key, dequantized(value), node.where)
                return self._constants[key]
            case Real():
                return self.builder.tensors[self.float_tensor(value, node.where)]
            case Quantized(tensor):
                raise node.unsupported(
                    f"{node.op_type} of the integers of the quantised tensor {tensor!r}",
                    "put it after DequantizeLinear",
                )
        raise node.unsupported(f"{node.op_type} of a sequence")

    def constant_tensor(self, constant: Constant, where: str) -> Tensor:
        """A constant as a tensor, made once; it is filed when a node reads it."""
        if constant.name not in self._constants:
            self._constants[constant.name] = constant_tensor(constant.name, constant.array, where)
        return self._constants[constant.name]

    def define_plain(self, node: OnnxNode, tensor: Tensor, output: int = 0) -> None:
        """Say that output `output` of the node is a plain tensor.

        Raises:
            InvalidModel: the model declares another dtype for it.
        """
        name = node.outputs[output]
        self.check_declared(name, tensor.dtype, tensor.shape, node.where)
        if tensor.data is not None:
            self.values.setdefault(name, Constant(tensor.name, model_array(tensor)))
            self._constants.setdefault(tensor.name, tensor)
            return
        if name in self.plains:
            raise node.invalid(f"its output {name!r} is defined twice")
        self.plains[name] = tensor.name
        self.values.setdefault(name, Plain(tensor.name))  # a recipe may still be quantised by another reader

    def check_declared(self, name: str, dtype: str, shape: Shape, where: str) -> None:
        """Raise InvalidModel where the model declares another dtype for a value, and warn of another shape.

        Exporters leave shapes behind that their own rewriting made wrong; onnxruntime takes such models too.
        """
        if name not in self.declared:
            return
        said, extents = self.declared[name]
        if said != dtype:
            raise InvalidModel(f"its result {name!r} is {dtype}, but the model declares {said}", where=where)
        if extents is None:
            return
        clash = len(extents) != len(shape) or any(
            known not in (None, extent) for known, extent in zip(extents, shape, strict=False)
        )
        if clash:
            shown = ", ".join("?" if extent is None else str(extent) for extent in extents)
            LOG.warning(
                "%s: its result %r is %s, but the model declares [%s]", where, name, list(shape), shown
            )

    def convert(self, node: OnnxNode) -> None:
        """Convert a node: one of the model's, or of a function body.

        Raises:
            TowlineError: as the handlers do.
        """
        self._makers.update(dict.fromkeys(node.outputs, node))
        self._convert(self, node)

    def apart(self) -> Walk:
        """An empty walk, for a graph inside this one."""
        return Walk(
            [], [], float_model=self.float_model, convert=self._convert, convert_plain=self._convert_plain
        )

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

    def quantize_plain(self, node: OnnxNode, x: str, dtype: str, quantization: Quantization) -> None:
        """Define the output as a plain tensor quantised."""
        result = Tensor(node.output, self.builder.tensors[x].shape, dtype, quantization)
        self.define(node, Quantized(self.builder.emit(Quantize(node.name, (x,), ""), result)))

    def move(self, node: OnnxNode, index: int, template: Node, shape: Shape | None = None) -> None:
        """Define the output as input `index` moved by `template`, on integers or on a float view."""
        value = self.value(node, index)
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
