"""The walk over a TFLite graph: its values as views of the graph's tensors, and the graph that grows.

TFLite's activations are NHWC, the graph's NCHW. A value is therefore a `View`: a tensor of the graph, and
which of its axes each of TFLite's axes is. Operators ask for the order they work in; a Transpose (or a
Reshape, where nothing moves in memory) is made only where another is there. TRANSPOSE itself makes no node.
Graph inputs and outputs keep the file's names, shapes and dtypes.

A quantised 8-bit value is a view of integers. All others are plain: floats, integers without a scale, and
16-bit integers with one, which are kept as the float32 multiples of that scale that they stand for.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from sdk.errors import InvalidModel, Unsupported, UsageError
from sdk.expression import trace
from sdk.expression.trace import apply, clip
from sdk.graph import (
    Array,
    Dequantize,
    Graph,
    Map,
    Node,
    Quantization,
    Quantize,
    Reshape,
    Tensor,
    Transpose,
)
from sdk.importers.folding import fold
from sdk.importers.onnx_file import OnnxNode
from sdk.importers.plain import convert_plain
from sdk.importers.tflite.file import Shape, TfliteModel, TfliteOperator, TfliteTensor
from sdk.importers.tflite.states import States
from sdk.importers.tflite.values import View, dequantized, plainly
from sdk.importers.values import GraphBuilder
from sdk.importers.walk import Walk as OnnxWalk
from sdk.shapes import output_shape
from sdk.states import PREFIX
from sdk.verification import STORED, check_quantization, require_size

NCHW = (0, 2, 3, 1)
"""The `View.axes` of a picture: where N, H, W and C are in the integer graph's tensor."""

OPSET = 21
"""Of the ONNX operators that plain ones become."""

WIDE_RANGE = (-(2**15), 2**15 - 1)

CONVERT = (
    "convert it with full-integer quantisation: optimizations = [tf.lite.Optimize.DEFAULT], a "
    "representative_dataset, and target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]"
)


class Walk:
    """One pass over a model; the operator tables' handlers call its methods.

    Attributes:
        onnx: the values that ONNX's operators read, by name; it shares this walk's graph.
        resized: whether an input's shape is another than the file's.
        number: of the subgraph that it goes over; 0 is the first.
        numbers: how often a name has been made already, of those that conversions make.
    """

    def __init__(self, model: TfliteModel, input_shapes: Mapping[str, Shape], name: str) -> None:
        self.model = model
        self.others = model.others
        self.name = name
        self.number = 0
        self.builder = GraphBuilder({tensor.name for tensor in model.tensors})
        self.onnx = OnnxWalk(
            [], [], float_model=False, convert=_convert, convert_plain=convert_plain, opsets={"": OPSET}
        )
        self.onnx.builder = self.builder
        self.states = States(self.builder, model)
        self.views: dict[int, View] = {}
        self.constants = {tensor.index: tensor.data for tensor in model.tensors if tensor.data is not None}
        self.unknown: set[int] = set()
        self.resized = False
        self.numbers: dict[str, int] = {}
        self._producers: dict[str, Node] = {}
        self._seen = 0
        self._moved: dict[tuple[str, tuple[int, ...]], str] = {}
        self._dequantized: dict[str, str] = {}
        self._reals: dict[int, Array] = {}
        for index in model.inputs:
            self._add_input(model.tensors[index], input_shapes)
        if unknown := input_shapes.keys() - {model.tensors[index].name for index in model.inputs}:
            known = ", ".join(model.tensors[index].name for index in model.inputs)
            message = f"a shape was given for {min(unknown)!r}, but the inputs are: {known}"
            raise UsageError(message, where=name)

    def inside(self, number: int, given: Sequence[Array | View]) -> Walk:
        """A walk over another subgraph, whose nodes go into the same graph.

        Args:
            number: of the subgraph.
            given: its inputs.
        """
        inner = copy.copy(self)
        inner.number, inner.model = number, self.subgraph(number)
        inner.views, inner.unknown, inner._reals = {}, set(), {}
        inner.constants = {t.index: t.data for t in inner.model.tensors if t.data is not None}
        for index, value in zip(inner.model.inputs, given, strict=True):
            if isinstance(value, View):
                inner.views[index] = value
            else:
                inner.constants[index] = value
        return inner

    def subgraph(self, number: int) -> TfliteModel:
        """One of the file's other subgraphs.

        Raises:
            InvalidModel: there is none of that number.
        """
        if not 1 <= number <= len(self.others):
            raise InvalidModel(f"subgraph {number} of {len(self.others) + 1}")
        return self.others[number - 1]

    def value(self, node: TfliteOperator, index: int) -> Array | View:
        """Input `index` as it is: a constant's elements or a view."""
        tensor = self.operand(node, index)
        return self.constants[tensor.index] if tensor.index in self.constants else self.view(node, index)

    def graph(self) -> Graph:
        """What has grown, once every operator was handled; dead nodes included."""
        inputs = [self.model.tensors[index].name for index in self.model.inputs]
        outputs = [self._finish(self.model.tensors[index]) for index in self.model.outputs]
        given, left = self._states()
        metadata = {"tflite.description": self.model.description} if self.model.description else {}
        return self.builder.graph(self.name, [*inputs, *given], [*outputs, *left], metadata)

    def _states(self) -> tuple[list[str], list[str]]:
        """Names of the graph's inputs and outputs that are states."""
        outputs = []
        for key, state in self.states.known.items():
            current = self.plain(self.dequantized(self.states.left(key)))
            current = self.states.stored(key, current)
            known = dataclasses.replace(self.builder.tensors[current], name=PREFIX + state.name)
            given = self.builder.tensors[state.name]
            if (known.shape, known.dtype) != (given.shape, given.dtype):
                message = f"it is read as {given.dtype} {list(given.shape)}, and left as {known.dtype}"
                raise InvalidModel(f"{message} {list(known.shape)}", where=f"state {state.name}")
            outputs.append(self.named(current, known))
        return [state.name for state in self.states.known.values()], outputs

    # --- what handlers read -----------------------------------------------------------------------------

    def operand(self, node: TfliteOperator, index: int) -> TfliteTensor:
        """Input `index`, which must be there."""
        if index >= len(node.inputs) or node.inputs[index] < 0:
            raise node.invalid(f"it lacks its input {index}")
        return self.model.tensors[node.inputs[index]]

    def optional(self, node: TfliteOperator, index: int) -> TfliteTensor | None:
        left_out = index >= len(node.inputs) or node.inputs[index] < 0
        return None if left_out else self.operand(node, index)

    def constant(self, node: TfliteOperator, index: int) -> Array:
        """The elements of a constant input, as stored or folded."""
        tensor = self.operand(node, index)
        if tensor.index not in self.constants:
            raise node.unsupported(f"its input {tensor.name!r} must be a constant")
        return self.constants[tensor.index]

    def integers(self, node: TfliteOperator, index: int) -> tuple[int, ...]:
        """A constant input of few integers: a shape, axes, paddings."""
        array = self.constant(node, index)
        if array.dtype.kind not in "iu" or array.size > 64:
            raise node.invalid(f"its input {index} is {array.dtype} {list(array.shape)}, not a few integers")
        return tuple(int(value) for value in array.reshape(-1))

    def view(self, node: TfliteOperator, index: int) -> View:
        """Input `index` as an activation, quantised or plain."""
        tensor = self.operand(node, index)
        if tensor.index in self.constants:
            message = f"its input {tensor.name!r} is a constant where an activation belongs"
            raise node.unsupported(message)
        if tensor.variable and tensor.index not in self.views:
            if self.number:
                raise node.unsupported(f"its input {tensor.name!r} is a variable of a subgraph")
            self.views[tensor.index] = self.states.variable(tensor)
        if tensor.index not in self.views:
            raise node.invalid(f"nothing before it computes its input {tensor.name!r}")
        return self.views[tensor.index]

    def activation(self, node: TfliteOperator, index: int) -> View:
        """Input `index` as an 8-bit activation."""
        view = self.view(node, index)
        if self.builder.tensors[view.tensor].quantization is None:
            name = self.operand(node, index).name
            raise node.unsupported(f"it works on float ({name!r})", CONVERT)
        return view

    def real(self, node: TfliteOperator, index: int) -> View:
        """Input `index` as a plain activation: dequantised where it is not."""
        return self.dequantized(self.view(node, index))

    def dequantized(self, view: View) -> View:
        """The view of what integers stand for, made once; a plain one as it is."""
        tensor = self.builder.tensors[view.tensor]
        if tensor.quantization is None:
            return view
        if tensor.name not in self._dequantized:
            template = Dequantize(f"{tensor.name}/dequantize", (tensor.name,), "")
            self._dequantized[tensor.name] = self.emit(template, Tensor("", tensor.shape, "float32"))
        return View(self._dequantized[tensor.name], view.axes)

    def real_constant(self, tensor: TfliteTensor) -> Array:
        """What the elements of a constant stand for: float32 where it is quantised.

        Raises:
            InvalidModel: its scales do not fit it.
        """
        if tensor.index not in self._reals:
            array = self.constants[tensor.index]
            if tensor.scale.size and array.dtype.kind in "iu":
                array = dequantized(tensor, array)
            self._reals[tensor.index] = array
        return self._reals[tensor.index]

    def shape_of(self, node: TfliteOperator, index: int) -> Shape:
        """The shape that TFLite sees of input `index`, a constant or not."""
        tensor = self.operand(node, index)
        if tensor.index in self.constants:
            return self.constants[tensor.index].shape
        return self.dims(self.view(node, index))

    def dims(self, view: View) -> Shape:
        """The shape that TFLite sees."""
        shape = self.builder.tensors[view.tensor].shape
        return tuple(shape[axis] for axis in view.axes)

    def ordered(self, view: View, axes: Sequence[int]) -> str:
        """A graph tensor that holds the value with TFLite's axis i at ``axes[i]``; made if need be."""
        tensor = self.builder.tensors[view.tensor]
        perm = [0] * len(axes)
        for place, axis in zip(axes, view.axes, strict=True):
            perm[place] = axis
        if perm == sorted(perm):
            return view.tensor
        key = (view.tensor, tuple(perm))
        if key not in self._moved:
            shape = tuple(tensor.shape[axis] for axis in perm)
            long = [axis for axis in perm if tensor.shape[axis] > 1]
            name = f"{view.tensor}_{'nchw' if tuple(axes) == NCHW else 'nhwc'}"
            template: Node = Transpose(name, (view.tensor,), "", key[1])
            if long == sorted(long):  # only axes of extent 1 move: the elements keep their order
                template = Reshape(name, (view.tensor,), "")
            self._moved[key] = self.emit(template, dataclasses.replace(tensor, name="", shape=shape))
        return self._moved[key]

    def plain(self, view: View) -> str:
        """A graph tensor with TFLite's own order of axes."""
        return self.ordered(view, range(len(view.axes)))

    def picture(self, node: TfliteOperator, index: int) -> str:
        """Input `index` as an 8-bit NCHW tensor of the graph."""
        view = self.activation(node, index)
        if len(view.axes) != 4:
            raise node.unsupported(
                f"its input has shape {list(self.dims(view))}; only [N,H,W,C] is supported"
            )
        return self.ordered(view, NCHW)

    def quantization(self, tensor: TfliteTensor, where: str) -> Quantization:
        """Scale and zero-point of an 8-bit tensor, per tensor.

        Raises:
            Unsupported: it is float, or of another width.
            InvalidModel: it has no scale, several, or one that is not finite and positive.
        """
        if tensor.dtype not in ("int8", "uint8"):
            hint = CONVERT if "float" in tensor.dtype else "only 8-bit activations are supported"
            raise Unsupported(f"{tensor.name!r} is {tensor.dtype}, not int8 or uint8", where=where, hint=hint)
        if tensor.scale.size != 1:
            raise InvalidModel(f"{tensor.name!r} has {tensor.scale.size} scales, not one", where=where)
        if not -(2**31) <= int(tensor.zero_point[0]) < 2**31:
            raise InvalidModel(f"{tensor.name!r} has zero-point {int(tensor.zero_point[0])}", where=where)
        result = Quantization.per_tensor(float(tensor.scale[0]), int(tensor.zero_point[0]))
        check_quantization(result, tensor.dtype, tensor.shape, tensor.where)
        return result

    def result(self, node: TfliteOperator) -> tuple[TfliteTensor, Quantization]:
        """The operator's output in the file, 8-bit, and its quantisation."""
        tensor = self.model.tensors[node.outputs[0]]
        return tensor, self.quantization(tensor, node.where)

    def producer(self, tensor: str) -> Node | None:
        for node in self.builder.nodes[self._seen :]:
            self._producers[node.output] = node
        self._seen = len(self.builder.nodes)
        return self._producers.get(tensor)

    # --- what handlers write ----------------------------------------------------------------------------

    def emit(self, template: Node, output: Tensor) -> str:
        """Append a node; an output without a name gets a fresh one after the node's."""
        if not output.name:
            output = dataclasses.replace(output, name=self.builder.fresh(template.name))
        return self.builder.emit(template, output)

    def define(
        self,
        node: TfliteOperator,
        template: Node,
        axes: Sequence[int],
        *,
        shape: Shape | None = None,
        quantization: Quantization | None = None,
        dtype: str | None = None,
    ) -> None:
        """Append the node that computes the operator's output.

        Args:
            node: the file's operator.
            template: the graph's, without output.
            axes: of the resulting `View`.
            shape: of the graph's tensor; derived from the template by default.
            quantization: the file's by default; with `dtype` float32, none.
            dtype: the file's by default.
        """
        tensor = self.model.tensors[node.outputs[0]]
        if quantization is None and dtype != "float32":
            quantization = self.quantization(tensor, node.where)
        shape = shape or output_shape(template, self.builder.tensors)
        assert shape is not None  # only Reshape has none, and gets one
        self._require_new(node)
        output = Tensor(self._name(tensor, axes), shape, dtype or tensor.dtype, quantization)
        self.alias(node, View(self.emit(template, output), tuple(axes)))

    def define_plain(self, node: TfliteOperator, view: View, since: int, output: int = 0) -> None:
        """Make a plain value the operator's output, quantised where the file says so.

        Args:
            node: the file's operator.
            view: of a plain tensor.
            since: the number of nodes before the operator's; a tensor of those after takes the file's name.
            output: which of its outputs it is.

        Raises:
            InvalidModel: the file has another type for it.
        """
        tensor = self.model.tensors[node.outputs[output]]
        self._require_new(node, output)
        found = self.builder.tensors[view.tensor]
        name = self._name(tensor, view.axes)
        if tensor.is_quantized and found.dtype == "float32":
            made = Tensor(name, found.shape, tensor.dtype, self.quantization(tensor, node.where))
            view = View(self.emit(Quantize(node.name, (found.name,), ""), made), view.axes)
        elif tensor.is_wide and found.dtype == "float32":
            view = View(self._on_grid(node, tensor, found), view.axes)
        elif tensor.dtype != found.dtype:
            raise node.invalid(f"its result is {found.dtype}, but the file says {tensor.dtype}")
        elif name and name not in self.builder.tensors and self._is_new(found.name, since):
            self.builder.rename(found.name, name, since, node.name)
            self._seen = min(self._seen, since)
            view = View(name, view.axes)
        self.alias(node, view, output)

    def alias(self, node: TfliteOperator, view: View, output: int = 0) -> None:
        """Make `view` the operator's output."""
        tensor = self.model.tensors[node.outputs[output]]
        dims = self.dims(view)
        # For a dynamic extent the file stores a 1, which interpreters ignore.
        if dims != tensor.shape and tensor.signature is None and not self.resized:
            raise node.invalid(f"its output is {list(dims)}, and not {list(tensor.shape)} as the file says")
        self._require_new(node, output)
        self.views[tensor.index] = view

    def fold(self, node: TfliteOperator, array: Array, output: int = 0) -> None:
        """Make a constant the operator's output."""
        self._require_new(node, output)
        self.constants[node.outputs[output]] = array

    # --- the walk's own ---------------------------------------------------------------------------------

    def _name(self, tensor: TfliteTensor, axes: Sequence[int]) -> str:
        """Of the tensor in the graph: the file's, or "" for a graph output that is not yet what it says."""
        as_stored = list(axes) == sorted(axes) and not tensor.is_wide
        if self.number:  # it may be computed again and again
            return ""
        return tensor.name if as_stored or tensor.index not in self.model.outputs else ""

    def _is_new(self, tensor: str, since: int) -> bool:
        return any(node.output == tensor for node in self.builder.nodes[since:])

    def _on_grid(self, node: TfliteOperator, tensor: TfliteTensor, x: Tensor) -> str:
        """Floats rounded to the multiples that 16-bit integers stand for."""
        scale, low, high = self._wide_scale(tensor, node.where), *map(float, WIDE_RANGE)
        expression = trace(lambda s: clip(apply("rint", s / scale), low, high) * scale, "real")
        name = self.builder.fresh(f"{tensor.name}_real")
        return self.emit(
            Map(f"{node.name}/16-bit", (x.name,), "", expression), Tensor(name, x.shape, "float32")
        )

    def _wide_scale(self, tensor: TfliteTensor, where: str) -> float:
        """Of 16-bit integers, whose zero-point is 0."""
        scale = tensor.scale.astype(np.float64)
        if scale.shape != (1,) or not 0 < scale[0] < np.inf:
            raise InvalidModel(
                f"{tensor.name!r} has scale {scale.tolist()}, not one positive number", where=where
            )
        if tensor.zero_point.any():
            raise InvalidModel(
                f"{tensor.name!r} is 16-bit with zero-point {int(tensor.zero_point[0])}", where=where
            )
        return float(scale[0])

    def _require_new(self, node: TfliteOperator, output: int = 0) -> None:
        index = node.outputs[output]
        if index in self.views or index in self.constants:
            raise node.invalid(f"its output {self.model.tensors[index].name!r} is already defined")

    def _add_input(self, tensor: TfliteTensor, shapes: Mapping[str, Shape]) -> None:
        where = f"input {tensor.name}"
        if tensor.index in self.constants or tensor.index in self.views:
            raise InvalidModel("it is a constant, or listed twice", where=where)
        shape = shapes.get(tensor.name, tensor.shape)
        open_ = tensor.signature or tensor.shape
        if len(shape) != len(open_) or any(o not in (-1, s) for s, o in zip(shape, open_, strict=True)):
            raise UsageError(f"its shape is {list(open_)}, not {list(shape)}", where=where)
        self.resized |= shape != tensor.shape
        if 0 in shape:
            raise InvalidModel(f"it is empty: {list(shape)}", where=where)
        require_size(shape, where)
        if tensor.dtype not in STORED:
            raise Unsupported(f"its type is {tensor.dtype}; inputs are {', '.join(STORED)}", where=where)
        quantization = self.quantization(tensor, where) if tensor.is_quantized else None
        self.builder.tensors[tensor.name] = Tensor(tensor.name, shape, tensor.dtype, quantization)
        view = plainly(tensor.name, len(shape))
        if tensor.is_wide:
            scale = self._wide_scale(tensor, where)
            real = Map(
                f"{tensor.name}/real", (tensor.name,), "", trace(lambda s: apply("real", s) * scale, "int")
            )
            view = plainly(self.emit(real, Tensor("", shape, "float32")), len(shape))
        self.views[tensor.index] = view

    def _finish(self, tensor: TfliteTensor) -> str:
        """Make the graph output a tensor of the file's name and shape."""
        where = f"output {tensor.name}"
        if tensor.index in self.constants:
            raise Unsupported("it is a constant", where=where)
        if tensor.index not in self.views:
            raise InvalidModel("no operator computes it", where=where)
        if tensor.index in self.model.inputs:
            raise Unsupported("it is a graph input", where=where)
        current = self.plain(self.views[tensor.index])
        if current == tensor.name:
            return current
        known = dataclasses.replace(self.builder.tensors[current], name=tensor.name)
        self.views[tensor.index] = plainly(tensor.name, len(known.shape))
        if tensor.is_wide:
            scale, low, high = self._wide_scale(tensor, where), *map(float, WIDE_RANGE)
            expression = trace(lambda s: apply("trunc", clip(apply("rint", s / scale), low, high)), "real")
            template = Map(f"{tensor.name}/integers", (current,), "", expression)
            return self.emit(template, dataclasses.replace(known, dtype="int16"))
        return self.named(current, known)

    def named(self, current: str, known: Tensor) -> str:
        """A tensor of the name of `known` with the elements of `current`."""
        made = self.producer(current)
        if made is not None and isinstance(made, Transpose | Reshape):  # the last step alone takes the name
            return self.emit(dataclasses.replace(made, name=f"{known.name}_nhwc"), known)
        return self.emit(Reshape(f"{known.name}_copy", (current,), ""), known)


def _convert(walk: OnnxWalk, node: OnnxNode) -> None:
    """Convert an ONNX node that a TFLite operator became, or a part of one."""
    if not fold(walk, node):
        convert_plain(walk, node)
