"""The walk over a TFLite graph: its values as views of the integer graph's tensors, and the graph that grows.

TFLite's activations are NHWC, the integer graph's NCHW. A value is therefore a `View`: a tensor of the graph,
and which of its axes each of TFLite's axes is. Operators ask for the order they work in; a Transpose (or a
Reshape, where nothing moves in memory) is made only where another is there. TRANSPOSE itself makes no node.
Graph inputs and outputs keep the file's names, shapes and dtypes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sdk.errors import InvalidModel, Unsupported, UsageError
from sdk.graph import Array, Graph, Node, Quantization, Reshape, Tensor, Transpose
from sdk.importers.tflite_file import Shape, TfliteModel, TfliteOperator, TfliteTensor
from sdk.importers.values import GraphBuilder
from sdk.shapes import output_shape
from sdk.verification import check_quantization

NCHW = (0, 2, 3, 1)
"""The `View.axes` of a picture: where N, H, W and C are in the integer graph's tensor."""

CONVERT = (
    "convert it with full-integer quantisation: optimizations = [tf.lite.Optimize.DEFAULT], a "
    "representative_dataset, and target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]"
)


@dataclass(frozen=True)
class View:
    """A TFLite value: axis i of it is axis ``axes[i]`` of the graph's `tensor`."""

    tensor: str
    axes: tuple[int, ...]


class Walk:
    """One pass over a model; the operator table's handlers call its methods."""

    def __init__(self, model: TfliteModel, input_shapes: Mapping[str, Shape], name: str) -> None:
        self.model = model
        self.name = name
        self.builder = GraphBuilder({tensor.name for tensor in model.tensors})
        self.views: dict[int, View] = {}
        self.constants = {tensor.index: tensor.data for tensor in model.tensors if tensor.data is not None}
        self.resized = False
        self._producers: dict[str, Node] = {}
        self._moved: dict[tuple[str, tuple[int, ...]], str] = {}
        for index in model.inputs:
            self._add_input(model.tensors[index], input_shapes)
        if unknown := input_shapes.keys() - {model.tensors[index].name for index in model.inputs}:
            known = ", ".join(model.tensors[index].name for index in model.inputs)
            message = f"a shape was given for {min(unknown)!r}, but the inputs are: {known}"
            raise UsageError(message, where=name)

    def graph(self) -> Graph:
        """What has grown, once every operator was handled; dead nodes included."""
        inputs = [self.model.tensors[index].name for index in self.model.inputs]
        outputs = [self._finish(self.model.tensors[index]) for index in self.model.outputs]
        metadata = {"tflite.description": self.model.description} if self.model.description else {}
        return self.builder.graph(self.name, inputs, outputs, metadata)

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
        """Input `index` as an activation, integer or float."""
        tensor = self.operand(node, index)
        if tensor.index in self.constants:
            message = f"its input {tensor.name!r} is a constant where an activation belongs"
            raise node.unsupported(message, CONVERT if tensor.dtype.startswith("float") else None)
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
            elif tensor.quantization is None:
                raise Unsupported("float values would have to be transposed", where=name, hint=CONVERT)
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
        return self._producers.get(tensor)

    # --- what handlers write ----------------------------------------------------------------------------

    def emit(self, template: Node, output: Tensor) -> str:
        """Append a node; an output without a name gets a fresh one after the node's."""
        if not output.name:
            output = dataclasses.replace(output, name=self.builder.fresh(template.name))
        name = self.builder.emit(template, output)
        self._producers[name] = self.builder.nodes[-1]
        return name

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
        # The name is the graph's only where the tensor is what the file says.
        name = tensor.name if list(axes) == sorted(axes) or tensor.index not in self.model.outputs else ""
        output = Tensor(name, shape, dtype or tensor.dtype, quantization)
        self.alias(node, View(self.emit(template, output), tuple(axes)))

    def alias(self, node: TfliteOperator, view: View) -> None:
        """Make `view` the operator's output."""
        tensor = self.model.tensors[node.outputs[0]]
        dims = self.dims(view)
        # For a dynamic extent the file stores a 1, which interpreters ignore.
        if dims != tensor.shape and tensor.signature is None and not self.resized:
            raise node.invalid(f"its output is {list(dims)}, and not {list(tensor.shape)} as the file says")
        self._require_new(node)
        self.views[tensor.index] = view

    def fold(self, node: TfliteOperator, array: Array) -> None:
        """Make a constant the operator's output."""
        self._require_new(node)
        self.constants[node.outputs[0]] = array

    # --- the walk's own ---------------------------------------------------------------------------------

    def _require_new(self, node: TfliteOperator) -> None:
        output = node.outputs[0]
        if output in self.views or output in self.constants:
            raise node.invalid(f"its output {self.model.tensors[output].name!r} is already defined")

    def _add_input(self, tensor: TfliteTensor, shapes: Mapping[str, Shape]) -> None:
        where = f"input {tensor.name}"
        if tensor.index in self.constants or tensor.index in self.views:
            raise InvalidModel("it is a constant, or listed twice", where=where)
        shape = shapes.get(tensor.name, tensor.shape)
        open_ = tensor.signature or tensor.shape
        if len(shape) != len(open_) or any(o not in (-1, s) for s, o in zip(shape, open_, strict=True)):
            raise UsageError(f"its shape is {list(open_)}, not {list(shape)}", where=where)
        self.resized |= shape != tensor.shape
        quantization = None if tensor.dtype == "float32" else self.quantization(tensor, where)
        self.builder.tensors[tensor.name] = Tensor(tensor.name, shape, tensor.dtype, quantization)
        self.views[tensor.index] = View(tensor.name, tuple(range(len(shape))))

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
        self.views[tensor.index] = View(tensor.name, tuple(range(len(tensor.shape))))
        known = dataclasses.replace(self.builder.tensors[current], name=tensor.name)
        made = self._producers.get(current)
        if made is not None and isinstance(made, Transpose | Reshape):  # the last step alone takes the name
            return self.emit(dataclasses.replace(made, name=f"{tensor.name}_nhwc"), known)
        return self.emit(Reshape(f"{tensor.name}_copy", (current,), ""), known)
