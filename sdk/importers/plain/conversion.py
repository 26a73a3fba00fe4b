"""One ONNX node on plain tensors while it is converted: its inputs, attributes, and what it becomes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from operator import eq
from typing import TYPE_CHECKING, Any

import numpy as np

from sdk import dtypes
from sdk.errors import InvalidModel
from sdk.expression import Expression, evaluate, trace
from sdk.expression.operations import STORAGE, Kind
from sdk.expression.trace import Symbol, apply, constant
from sdk.graph import Array, Map, Node, Reduce, Reshape, Slice, Take, Tensor, Transpose
from sdk.importers.onnx_file import OnnxNode, element_name
from sdk.importers.values import Constant, Shape
from sdk.shapes import broadcast, output_shape
from sdk.verification import STORED

if TYPE_CHECKING:
    from sdk.importers.walk import Walk

Expr = Callable[..., Symbol]
KINDS: dict[str, Kind] = {"float": "real", "int": "int", "uint": "int", "bool": "bool"}

SHAPED_BY_OUTPUT = (Slice, Reduce)
"""Families whose output's shape is an attribute of theirs, which is checked."""


def kind_of(tensor: Tensor) -> Kind:
    """Of its elements in an expression."""
    return KINDS[dtypes.dtype(tensor.dtype).kind]


def wide(dtype: str) -> str:
    """What results inside one ONNX operator are kept in: floats of fewer bits in float32."""
    return "float32" if dtypes.is_float(dtype) and dtype != "float64" else dtype


class Conversion:
    """A node and what its handler reads and writes.

    An ONNX node that becomes several has names NAME/part for all but the last, which makes the output. A
    method that makes a node takes `part`; without one the result is the node's output and is defined.
    """

    def __init__(self, walk: Walk, node: OnnxNode) -> None:
        self.walk = walk
        self.node = node
        self.first = next((name for name in node.outputs if name), node.name)
        """The first output that is read."""

    # --- inputs -----------------------------------------------------------------------------------------

    def has(self, index: int) -> bool:
        """Whether input `index` is given."""
        return index < len(self.node.inputs) and bool(self.node.inputs[index])

    def x(self, index: int) -> Tensor:
        """Input `index` as a plain tensor; constants have data.

        Raises:
            Unsupported: it is empty, or the integers of a quantised tensor.
        """
        tensor = self.walk.plain(self.node, index)
        if 0 in tensor.shape:
            raise self.node.unsupported(f"its input {tensor.name!r} is empty: {list(tensor.shape)}")
        return tensor

    def optional(self, index: int) -> Tensor | None:
        return self.x(index) if self.has(index) else None

    def all(self) -> list[Tensor]:
        """Every input."""
        return [self.x(index) for index in range(len(self.node.inputs))]

    def known(self, index: int) -> Array | None:
        """Input `index` where it is a constant, else None; None too where it is left out."""
        value = self.walk.optional(self.node, index)
        return value.array if isinstance(value, Constant) else None

    def constant(self, index: int) -> Array:
        """Input `index`, which must be a constant.

        Raises:
            Unsupported: it is computed at run time.
        """
        if not self.has(index):
            raise self.node.invalid(f"{self.node.op_type} lacks its input {index}")
        array = self.known(index)
        if array is None:
            name = self.node.inputs[index]
            raise self.node.unsupported(
                f"its input {name!r} is computed at run time; it has to be a constant",
                "export the model with static shapes",
            )
        return array

    def integers(self, index: int) -> list[int] | None:
        """The constant at input `index` as whole numbers; None where it is left out."""
        if not self.has(index):
            return None
        return [int(value) for value in self.constant(index).reshape(-1)]

    def scalar(self, index: int, default: float) -> float:
        """The constant at input `index`, which must have one element."""
        if not self.has(index):
            return default
        array = self.constant(index)
        if array.size != 1:
            raise self.node.invalid(f"its input {self.node.inputs[index]!r} is not a scalar")
        return float(array.reshape(()))

    def axis(self, value: int, rank: int, *, end: bool = False) -> int:
        """An axis counted from the front; with `end`, `rank` itself is allowed."""
        if not -rank <= value < rank + end:
            raise self.node.invalid(f"axis {value} is out of range for rank {rank}")
        return value + rank if value < 0 else value

    def axes(self, values: Iterable[int], rank: int) -> tuple[int, ...]:
        """Axes counted from the front, in increasing order."""
        found = sorted(self.axis(value, rank) for value in values)
        if len(set(found)) != len(found):
            raise self.node.invalid(f"axes {found}: one is named twice")
        return tuple(found)

    def dtype_of(self, element: int) -> str:
        """The name of one of ONNX's element types.

        Raises:
            Unsupported: there is none such in the graph.
        """
        name = element_name(element)
        if name not in dtypes.DTYPES:
            raise self.node.unsupported(f"elements of type {name}")
        return name

    # --- results ----------------------------------------------------------------------------------------

    def define(self, tensor: Tensor, output: int = 0) -> None:
        """Say that output `output` is this tensor."""
        self.walk.define_plain(self.node, tensor, output)

    def make(
        self,
        cls: type[Node],
        inputs: Sequence[Tensor],
        part: str = "",
        *,
        shape: Shape | None = None,
        dtype: str | None = None,
        output: int = 0,
        **attributes: Any,
    ) -> Tensor:
        """Append a node.

        Args:
            cls: the operator.
            inputs: its inputs; constants are filed.
            part: of the names, where the node is not the last of the ONNX node.
            shape: of its output; None where `output_shape` derives it.
            dtype: of its output; None for the first input's.
            output: which of the ONNX node's outputs it is, without `part`.
            attributes: of the operator.
        """
        builder = self.walk.builder
        names = tuple(builder.file(tensor) for tensor in inputs)
        name = f"{self.node.name}/{part}" if part else self.node.name
        if output and not part:
            name = f"{self.node.name}/{output}"
        result = builder.fresh(f"{self.first}/{part}") if part else self.node.outputs[output]
        template = cls(name, names, result, **attributes)
        read = {name: builder.tensors[name] for name in names}
        tensor = Tensor(result, shape or (), dtype or inputs[0].dtype)
        if shape is None or cls in SHAPED_BY_OUTPUT:
            derived = output_shape(template, {**read, result: tensor})
            assert derived is not None  # a Reshape's shape is given
            if shape is not None and derived != shape:
                raise self.node.invalid(f"its result is {list(derived)}, not {list(shape)}")
            tensor = dataclasses.replace(tensor, shape=derived)
        if tensor.dtype not in STORED:
            raise self.node.unsupported(
                f"its result {result!r} is {tensor.dtype}; tensors are {', '.join(STORED)}",
                "export the model in float32",
            )
        if 0 in tensor.shape:
            raise self.node.unsupported(f"its result {result!r} is empty: {list(tensor.shape)}")
        builder.emit(template, tensor)
        if not part:
            self.define(tensor, output)
        return tensor

    def map(
        self, function: Expr, inputs: Sequence[Tensor], part: str = "", *, dtype: str | None = None
    ) -> Tensor:
        """A Map: `function` of symbols, one for each input. Scalar constants become steps of it."""
        shape = broadcast([tensor.shape for tensor in inputs], self.node.invalid)
        rank = max((len(tensor.shape) for tensor in inputs if tensor.data is None), default=-1)
        variable: dict[str, Tensor] = {}
        for tensor in inputs:
            if tensor.data is None or tensor.size != 1 or len(tensor.shape) > rank:
                variable.setdefault(tensor.name, tensor)
        names = list(variable)

        def whole(*symbols: Symbol) -> Symbol:
            building = symbols[0].trace
            operands = []
            for tensor in inputs:
                if tensor.name in variable:
                    operands.append(symbols[names.index(tensor.name)])
                else:
                    assert tensor.data is not None
                    value = dtypes.decode(tensor.data, tensor.dtype).reshape(()).item()
                    operands.append(constant(building, value, kind_of(tensor)))
            return function(*operands)

        try:
            expression = trace(whole, *(kind_of(tensor) for tensor in variable.values()))
        except InvalidModel as problem:
            raise self.node.invalid(problem.message) from problem
        dtype = dtype or inputs[0].dtype
        if all(tensor.data is not None for tensor in inputs):
            return self.same(self._evaluated(expression, list(variable.values()), dtype, part), part)
        return self.make(Map, list(variable.values()), part, shape=shape, dtype=dtype, expression=expression)

    def _evaluated(self, expression: Expression, inputs: Sequence[Tensor], dtype: str, part: str) -> Tensor:
        """A Map of constants: a constant itself."""
        arrays = [dtypes.decode(tensor.data, tensor.dtype) for tensor in inputs if tensor.data is not None]
        kinds = [STORAGE[kind_of(tensor)] for tensor in inputs]
        values = evaluate(expression, [a.astype(kind) for a, kind in zip(arrays, kinds, strict=True)])
        return self.file(dtypes.encode(values, dtype), part or "constant", dtype)

    def cast(self, x: Tensor, dtype: str, part: str = "") -> Tensor:
        """X as another dtype, as ONNX's Cast has it."""
        if x.dtype == dtype:
            return self.same(x, part)
        return self.map(lambda s: to_kind(s, KINDS[dtypes.dtype(dtype).kind]), [x], part, dtype=dtype)

    def same(self, x: Tensor, part: str = "", *, output: int = 0) -> Tensor:
        """X itself, defined as the output where there is no `part`."""
        if not part:
            self.define(x, output)
        return x

    def reshape(self, x: Tensor, shape: Sequence[int], part: str = "", *, output: int = 0) -> Tensor:
        """X in another shape; of a constant it is a view."""
        shape = tuple(shape)
        if math.prod(shape) != x.size or min(shape, default=1) < 1:
            raise self.node.invalid(f"{self.node.op_type} of {list(x.shape)} to {list(shape)}")
        if shape == x.shape:
            return self.same(x, part, output=output)
        if x.data is not None:
            return self.same(self.walk.builder.view(x, shape), part, output=output)
        return self.make(Reshape, [x], part, shape=shape, output=output)

    def transpose(self, x: Tensor, perm: Sequence[int], part: str = "", *, output: int = 0) -> Tensor:
        """X with its axes in another order."""
        if list(perm) == list(range(len(perm))):
            return self.same(x, part, output=output)
        return self.make(Transpose, [x], part, output=output, perm=tuple(perm))

    def inside(self, name: str) -> Conversion:
        """The same node inside a graph of its own, where each node that is made needs a `part`."""
        return Conversion(self.walk.apart(), dataclasses.replace(self.node, name=name, outputs=("",)))

    def take(self, x: Tensor, indices: Sequence[Sequence[int]], part: str = "") -> Tensor:
        """Of each axis these elements; an axis of which all are taken in order may be written as ()."""
        self.node.require_room(32 * sum(map(len, indices)))  # as tuples of numbers
        short = tuple(
            () if len(chosen) == extent and all(map(eq, chosen, range(extent))) else tuple(chosen)
            for chosen, extent in zip(indices, x.shape, strict=True)
        )
        if not any(short):
            return self.same(x, part)
        if x.data is not None:
            each = [list(chosen) or range(n) for chosen, n in zip(indices, x.shape, strict=True)]
            return self.same(self.file(x.data[np.ix_(*each)], part or "taken", x.dtype), part)
        return self.make(Take, [x], part, indices=short)

    def file(self, array: Array, part: str, dtype: str | None = None) -> Tensor:
        """A constant of this node: OUTPUT/part."""
        array = np.asarray(array, order="C")
        name = self.walk.builder.fresh(f"{self.first}/{part}")
        tensor = Tensor(name, array.shape, dtype or str(array.dtype), None, array)
        self.walk.builder.file(tensor)
        return tensor


def to_kind(x: Symbol, kind: Kind) -> Symbol:
    """X converted: reals to integers towards zero, truth values to 0 and 1."""
    if x.kind == kind:
        return x
    if kind == "int" and x.kind == "real":
        return apply("trunc", x)
    return apply(kind, x)
