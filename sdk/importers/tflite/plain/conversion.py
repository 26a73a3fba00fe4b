"""One TFLite operator while it is converted into ONNX's: its inputs, options, and what it becomes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from sdk.extras import require
from sdk.graph import Array
from sdk.importers.folding import shape_of
from sdk.importers.onnx_file import decode_node
from sdk.importers.plain.types import dtype_of
from sdk.importers.tflite.file import Shape, TfliteOperator
from sdk.importers.tflite.values import View, dequantizing
from sdk.importers.tflite.walk import NCHW, OPSET, Walk
from sdk.importers.values import Constant, Plain, numbered

Axes = tuple[int, ...]


class Conversion:
    """An operator and what its handler reads and writes. Values are named, as ONNX's are.

    Results are defined only when the handler has returned: `finish` gives them the file's names.
    """

    def __init__(self, walk: Walk, node: TfliteOperator) -> None:
        self.walk = walk
        self.node = node
        self.first = next((walk.model.tensors[i].name for i in node.outputs if i >= 0), node.name)
        self.since = len(walk.builder.nodes)
        self.results: list[tuple[str, Axes | None, int]] = []

    # --- inputs -----------------------------------------------------------------------------------------

    def has(self, index: int) -> bool:
        """Whether input `index` is given."""
        return index < len(self.node.inputs) and self.node.inputs[index] >= 0

    def is_constant(self, index: int) -> bool:
        return self.walk.operand(self.node, index).index in self.walk.constants

    def native(self, index: int) -> tuple[str, Axes]:
        """Input `index` in the order of axes that it has, and where each of TFLite's axes is."""
        if self.is_constant(index):
            name = self.x(index)
            return name, tuple(range(self.rank(name)))
        view = self.walk.real(self.node, index)
        return self.lifted(view.tensor), view.axes

    def x(self, index: int, axes: Sequence[int] | None = None) -> str:
        """Input `index` with TFLite's axis i at ``axes[i]``; by default in TFLite's own order.

        Raises:
            InvalidModel: it is not of as many axes, or empty.
        """
        tensor = self.walk.operand(self.node, index)
        if tensor.index not in self.walk.constants:
            view = self.walk.real(self.node, index)
            self._check_rank(index, len(view.axes), axes)
            return self.lifted(self.walk.ordered(view, range(len(view.axes)) if axes is None else axes))
        array = self.walk.real_constant(tensor)
        self._check_rank(index, array.ndim, axes)
        if array.dtype == np.float64 or array.dtype.kind not in "fiub":
            raise self.node.unsupported(f"its input {tensor.name!r} is {tensor.dtype}")
        # What was folded may be another constant the next time that a subgraph runs.
        prefix = f"subgraph{self.walk.number}/" if self.walk.number else ""
        name = f"{prefix}{tensor.name}" if tensor.data is not None else self._fresh(f"{tensor.name}/value")
        if axes is None or list(axes) == sorted(axes):
            return self._constant(name, array)
        perm = [int(place) for place in np.argsort(axes)]
        return self._constant(f"{name}/{''.join(map(str, perm))}", array.transpose(perm))

    def picture(self, index: int) -> str:
        """Input `index`, [N,H,W,C], as [N,C,H,W]."""
        return self.x(index, NCHW)

    def aligned(self, indices: Sequence[int]) -> tuple[list[str], Axes]:
        """Inputs brought to one rank and one order of axes, as broadcasting has it."""
        found = [(i, None if self.is_constant(i) else self.walk.real(self.node, i)) for i in indices]
        ranks = [
            len(v.axes) if v else self.walk.real_constant(self.walk.operand(self.node, i)).ndim
            for i, v in found
        ]
        rank = max(ranks, default=0)
        orders = [view.axes for _, view in found if view is not None and len(view.axes) == rank]
        axes = next((order for order in orders if order == NCHW), orders[0] if orders else tuple(range(rank)))
        names = []
        for index, own in zip(indices, ranks, strict=True):
            if own == rank:
                names.append(self.x(index, axes))
                continue
            name = self.x(index)
            shape = (1,) * (rank - own) + self.shape(name)
            if math.prod(shape) == 1 and self.is_constant(index):
                names.append(name)
                continue
            name = self.reshape(name, shape)
            perm = [int(i) for i in np.argsort(axes)]
            names.append(name if perm == sorted(perm) else self.make("Transpose", name, perm=perm))
        return names, axes

    def integers(self, index: int) -> tuple[int, ...]:
        """A constant input of few integers."""
        return self.walk.integers(self.node, index)

    def integer(self, index: int) -> int:
        """A constant input of one integer."""
        values = self.integers(index)
        if len(values) != 1:
            raise self.node.invalid(f"its input {index} has {len(values)} elements, not one")
        return values[0]

    def known(self, index: int) -> Array:
        """A constant input: what it stands for."""
        self.walk.constant(self.node, index)
        return self.walk.real_constant(self.walk.operand(self.node, index))

    def option(self, table: str, name: str, default: Any = None) -> Any:
        return self.node.option(table, name, default)

    def axis(self, value: int, rank: int) -> int:
        """An axis counted from the front."""
        if not -rank <= value < rank:
            raise self.node.invalid(f"axis {value} of an input of rank {rank}")
        return value % rank

    @property
    def out(self) -> Any:
        """Its first output in the file."""
        return self.walk.model.tensors[self.node.outputs[0]]

    # --- values -----------------------------------------------------------------------------------------

    def shape(self, name: str) -> Shape:
        found = shape_of(self.walk.onnx, self.walk.onnx.values[name])
        assert found is not None  # constants and tensors are all there is
        return found

    def array(self, name: str) -> Array:
        """The elements of a constant."""
        value = self.walk.onnx.values[name]
        assert isinstance(value, Constant)  # the caller made it
        return value.array

    def rank(self, name: str) -> int:
        return len(self.shape(name))

    def dtype(self, name: str) -> str:
        found = dtype_of(self.walk.onnx, self.walk.onnx.values[name])
        assert found is not None
        return found

    def constant(self, values: Any, dtype: str = "int64", part: str = "constant") -> str:
        """A constant of this operator."""
        return self._constant(self._fresh(part), np.asarray(values, dtype))

    def make(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """The result of an ONNX operator; one of constants is a constant."""
        return self.make_all(op_type, inputs, 1, **attributes)[0]

    def make_all(self, op_type: str, inputs: Sequence[str], count: int, **attributes: Any) -> list[str]:
        """All results of an ONNX operator."""
        part = op_type.lower()
        outputs = [self._fresh(f"{part}/{i}" if i else part) for i in range(count)]
        make = require("onnx.helper").make_node
        proto = make(op_type, list(inputs), outputs, f"{self.node.name}/{part}", **attributes)
        self.walk.onnx.convert(decode_node(proto, {"": OPSET}))
        return outputs

    def reshape(self, name: str, shape: Sequence[int]) -> str:
        if math.prod(shape) != math.prod(self.shape(name)) or min(shape, default=1) < 0:
            raise self.node.invalid(f"it makes {list(shape)} of {list(self.shape(name))}")
        return name if tuple(shape) == self.shape(name) else self.make("Reshape", name, self.constant(shape))

    def transpose(self, name: str, perm: Sequence[int]) -> str:
        return name if list(perm) == sorted(perm) else self.make("Transpose", name, perm=list(perm))

    def cast(self, name: str, dtype: str) -> str:
        if self.dtype(name) == dtype:
            return name
        kind = require("onnx.helper").np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self.make("Cast", name, to=kind)

    def clip(self, name: str, low: float | None, high: float | None) -> str:
        dtype = self.dtype(name)
        bounds = ["" if bound is None else self.constant(bound, dtype, "bound") for bound in (low, high)]
        return self.make("Clip", name, *bounds)

    def slice(self, name: str, spans: Sequence[tuple[int, int, int]]) -> str:
        """Of each axis the elements from a first, up to a last, in steps."""
        starts, ends, steps = zip(*spans, strict=True)
        axes = self.constant(range(len(spans)), part="axes")
        return self.make("Slice", name, *map(self.constant, (starts, ends)), axes, self.constant(steps))

    def activated(self, name: str, activation: int) -> str:
        """A value after the schema's ActivationFunctionType."""
        if activation not in ACTIVATIONS:
            known = ", ".join(ACTIVATION_NAMES[number] for number in ACTIVATIONS)
            raise self.node.unsupported(f"its fused activation {activation}; {known} are supported")
        if activation == RELU:
            return self.make("Relu", name)
        if activation == TANH:
            return self.make("Tanh", name)
        bounds = {2: (-1.0, 1.0), 3: (0.0, 6.0)}.get(activation)
        return self.clip(name, *bounds) if bounds else name

    # --- results ----------------------------------------------------------------------------------------

    def define(self, name: str, axes: Axes | None = None, output: int = 0) -> None:
        """Say that output `output` is a value; by default one in TFLite's own order of axes."""
        self.results.append((name, axes, output))

    def finish(self) -> None:
        """Make the results values of the walk."""
        renamed: dict[str, str] = {}
        for name, axes, output in self.results:
            number = self.node.outputs[output]
            if number < 0:
                continue
            match self.walk.onnx.values[name]:
                case Constant(array=array):
                    order = range(array.ndim) if axes is None else axes
                    self.walk.fold(self.node, self._as_stored(array.transpose(order), number), output)
                case Plain(tensor):
                    tensor = renamed.get(tensor, tensor)
                    order = range(self.rank(name)) if axes is None else axes
                    self.walk.define_plain(self.node, View(tensor, tuple(order)), self.since, output)
                    renamed[tensor] = self._found(number, tensor)

    def _found(self, number: int, tensor: str) -> str:
        """What a tensor is called now."""
        return tensor if tensor in self.walk.builder.tensors else self.walk.views[number].tensor

    def _as_stored(self, array: Array, number: int) -> Array:
        """A constant result as the file stores such a tensor: its integers, where it is quantised."""
        tensor = self.walk.model.tensors[number]
        if array.dtype.kind != "f" or not (tensor.is_quantized or tensor.is_wide):
            return array
        scale, zero = dequantizing(tensor, array)
        limits = np.iinfo(tensor.dtype)
        rounded = np.clip(np.rint(array / scale) + zero, limits.min, limits.max)
        return np.asarray(rounded, tensor.dtype)

    # --- its own ----------------------------------------------------------------------------------------

    def _check_rank(self, index: int, rank: int, axes: Sequence[int] | None) -> None:
        if axes is not None and len(axes) != rank:
            name = self.walk.operand(self.node, index).name
            raise self.node.unsupported(f"its input {name!r} is of rank {rank}; {len(axes)} is supported")

    def _fresh(self, part: str) -> str:
        base = f"{self.first}/{part}"
        number = self.walk.numbers.get(base, 0)
        while (name := self.walk.builder.fresh(numbered(base, number))) in self.walk.onnx.values:
            number += 1
        self.walk.numbers[base] = number
        return name

    def lifted(self, tensor: str) -> str:
        """A plain tensor of the graph as a value."""
        self.walk.onnx.values.setdefault(tensor, Plain(tensor))
        self.walk.onnx.plains.setdefault(tensor, tensor)
        return tensor

    def _constant(self, name: str, array: Array) -> str:
        self.walk.onnx.values.setdefault(name, Constant(name, np.asarray(array, order="C")))
        return name


NONE, RELU, TANH = 0, 1, 4
ACTIVATION_NAMES = {0: "NONE", RELU: "RELU", 2: "RELU_N1_TO_1", 3: "RELU6", TANH: "TANH"}
ACTIVATIONS = tuple(ACTIVATION_NAMES)
