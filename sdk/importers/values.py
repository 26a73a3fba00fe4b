"""What an ONNX value is while a model is walked, and the graph that grows from it.

The walk is lazy about float: between DequantizeLinear and QuantizeLinear a value is a `Real`, a recipe that
no tensor holds. When QuantizeLinear says how the result is quantised, the recipe becomes integer nodes. A
Relu or Clip on the way only narrows the recipe's bounds, and what moves elements (MaxPool, Reshape,
Transpose, Resize, Pad) is appended to its moves; both commute with quantisation, which is monotonic and
elementwise, so nothing is lost. A function of an integer tensor's elements is known by its 256 values.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sdk import dtypes
from sdk.errors import InvalidModel, Unsupported
from sdk.extras import require
from sdk.graph import (
    Array,
    Clamp,
    Concat,
    Dequantize,
    Graph,
    Lookup,
    Node,
    Pad,
    Quantization,
    Quantize,
    Requantize,
    Reshape,
    Tensor,
)
from sdk.importers.onnx_file import element_number
from sdk.verification import INTEGER_RANGE, Clamped, require_size

Shape = tuple[int, ...]
NUMPY_NAMES = {"float8_e4m3fn": "float8e4m3fn", "float8_e5m2": "float8e5m2"}
"""Names of types where numpy's extension has another than ONNX."""
UNSET: Clamp = (0, 0)
"""The clamp of an operator whose output's quantisation is not known yet."""


@dataclass(frozen=True)
class Constant:
    """A constant as stored: an initializer, a Constant node, or what was folded from them."""

    name: str
    array: Array


@dataclass(frozen=True)
class QuantizedConstant:
    """DequantizeLinear of a constant: integers with their meaning."""

    name: str
    array: Array
    quantization: Quantization


def dequantized(constant: QuantizedConstant) -> NDArray[np.float32]:
    """What the integers of a constant mean."""
    shape = [1] * constant.array.ndim
    if constant.quantization.axis is not None:
        shape[constant.quantization.axis] = -1
    centred = constant.array.astype(np.int32) - constant.quantization.zero_point.reshape(shape)
    return np.asarray(centred.astype(np.float32) * constant.quantization.scale.reshape(shape))


@dataclass(frozen=True)
class Quantized:
    """An integer activation: a tensor of the graph."""

    tensor: str


@dataclass(frozen=True)
class Parts:
    """Float values to be set one behind the other along `axis`, by the Concat `name`."""

    name: str
    reals: tuple[Real, ...]
    axis: int


@dataclass(frozen=True)
class Real:
    """A float value that no tensor holds: ``moves(clip(function(source), low, high))``.

    Attributes:
        name: its ONNX value name.
        owner: the ONNX node that made it.
        shape: after the moves.
        source: a tensor (a float graph input, or an integer one seen through DequantizeLinear), or an
            operator that lacks only its output and clamp, or what a Concat joins.
        source_shape: before the moves.
        moves: templates of what moves elements, with the shape after each.
        low, high: bounds in real units.
        values: float32 [256], the function of an integer tensor's elements: at the smallest of its dtype,
            the next, and so on; None for the identity. The bounds are then infinite.
        changed_by: the Relu, Clip or function that set bounds or values.
    """

    name: str
    owner: str
    shape: Shape
    source: str | Node | Parts
    source_shape: Shape
    moves: tuple[tuple[Node, Shape], ...] = ()
    low: float = -math.inf
    high: float = math.inf
    values: NDArray[np.float32] | None = dataclasses.field(default=None, compare=False)
    changed_by: str = ""

    def reshaped(self, by: str, shape: Shape) -> Real:
        """The value in another shape, by a Reshape of that name."""
        return dataclasses.replace(self, shape=shape, moves=(*self.moves, (Reshape(by, (), ""), shape)))

    def bounded(self, low: float, high: float, by: str) -> Real:
        """The value clipped.

        Raises:
            Unsupported: a Pad before has given it zeros that would be clipped too.
        """
        if not low <= 0 <= high and any(isinstance(move, Pad) for move, _ in self.moves):
            raise Unsupported(
                f"it clips padding to [{low:g}, {high:g}]",
                where=f"node {by}",
                hint="clip before the padding",
            )
        if self.values is not None:
            values = np.clip(self.values, np.float32(low), np.float32(high))
            return dataclasses.replace(self, values=values, changed_by=by)
        low, high = (min(max(bound, low), high) for bound in (self.low, self.high))
        return dataclasses.replace(self, low=low, high=high, changed_by=by)


@dataclass(frozen=True)
class Plain:
    """A tensor of the graph that is not quantised."""

    tensor: str


@dataclass(frozen=True)
class Tensors:
    """Values under one name, as SplitToSequence makes them."""

    values: tuple[Value, ...]


@dataclass(frozen=True)
class Unknown:
    """The result of a node that was refused."""


Value = Constant | QuantizedConstant | Quantized | Real | Plain | Tensors | Unknown


class GraphBuilder:
    """The integer graph while it grows; `reserved` names are only given to the values they belong to."""

    def __init__(self, reserved: set[str]) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.nodes: list[Node] = []
        self._reserved = reserved
        self._node_names: set[str] = set()
        self._numbers: dict[str, int] = {}
        self._node_numbers: dict[str, int] = {}
        self._views: dict[tuple[str, Shape], Tensor] = {}

    def emit(self, template: Node, output: Tensor) -> str:
        """Append the operator with this output; its name is made unique. Returns the output's name.

        Raises:
            Unsupported: the output is too large.
        """
        name = self._unique(template.name)
        require_size(output.shape, f"node {name}")
        self.tensors[output.name] = output
        self.nodes.append(dataclasses.replace(template, name=name, output=output.name))
        return output.name

    def rename(self, old: str, new: str, since: int, owner: str) -> None:
        """Give a tensor another name.

        Args:
            old: what it is called.
            new: a name that no tensor has yet.
            since: the number of the first node that mentions it.
            owner: the name that the node that makes it gets, made unique.
        """
        self.tensors[new] = dataclasses.replace(self.tensors.pop(old), name=new)
        for index, node in enumerate(self.nodes[since:], since):
            inputs = tuple(new if name == old else name for name in node.inputs)
            if node.output == old:
                node = dataclasses.replace(node, name=self._unique(owner), output=new)
            self.nodes[index] = dataclasses.replace(node, inputs=inputs)

    def fresh(self, base: str) -> str:
        """A tensor name that nothing else has."""
        number = self._numbers.get(base, 0)
        while (name := numbered(base, number)) in self._reserved or name in self.tensors:
            number += 1
        self._numbers[base] = number  # what an unrolled loop makes a thousand times is found at once
        return name

    def _unique(self, base: str) -> str:
        """A node name that nothing else has, taken."""
        number = self._node_numbers.get(base, 0)
        while (name := numbered(base, number)) in self._node_names:
            number += 1
        self._node_numbers[base] = number
        self._node_names.add(name)
        return name

    def constant(self, name: str, array: Array, quantization: Quantization) -> str:
        """File a constant; one of the same name and content is shared, another content gets a new name."""
        array = np.ascontiguousarray(array)
        known = self.tensors.get(name)
        if known is not None:
            shared = known.data is not None and known.quantization is not None
            shared = shared and known.dtype == str(array.dtype) and np.array_equal(known.data, array)  # type: ignore[arg-type]
            if shared and known.quantization.equals(quantization):  # type: ignore[union-attr]
                return name
            name = self.fresh(name)
        self.tensors[name] = Tensor(name, array.shape, str(array.dtype), quantization, array)
        return name

    def file(self, tensor: Tensor) -> str:
        """The name of a plain tensor, which is filed first if it is a constant that is not yet."""
        if tensor.data is None:
            return tensor.name
        known = self.tensors.get(tensor.name)
        if known is not None and known.data is tensor.data:
            return tensor.name
        name = tensor.name if known is None else self.fresh(tensor.name)
        self.tensors[name] = dataclasses.replace(tensor, name=name)
        return name

    def view(self, constant: Tensor, shape: Shape) -> Tensor:
        """A constant in another shape, made once for all its readers; its elements are not copied."""
        key = (constant.name, shape)
        if key not in self._views:
            assert constant.data is not None
            name = self.fresh(f"{constant.name}/{'x'.join(map(str, shape))}")
            self._views[key] = Tensor(name, shape, constant.dtype, None, constant.data.reshape(shape))
        return self._views[key]

    def quantize(
        self,
        real: Real,
        dtype: str,
        quantization: Quantization,
        *,
        owner: str,
        output: str | None = None,
        keep: bool = False,
    ) -> str:
        """Turn a recipe into integer nodes.

        Args:
            real: the recipe.
            dtype: uint8 or int8.
            quantization: of the result.
            owner: the ONNX node that quantises; names a Requantize that stands for no Relu or Clip.
            output: name of the resulting tensor; None where any will do.
            keep: whether `output` must exist (a graph output) even where nothing has to be done.

        Returns:
            The tensor that holds the result: the source itself where nothing had to be done.
        """
        clamp = quantized_clamp(real, dtype, quantization)
        steps: list[tuple[Node, Shape]] = []
        if isinstance(real.source, Parts):
            joined = tuple(self._part(part, real, dtype, quantization) for part in real.source.reals)
            steps.append((Concat(real.source.name, joined, "", real.source.axis), real.source_shape))
            current = joined[0]
        elif isinstance(real.source, Node):
            assert isinstance(real.source, Clamped)
            steps.append((dataclasses.replace(real.source, clamp=clamp), real.source_shape))
            current = real.source.inputs[0]
        else:
            current = real.source
            source = self.tensors[current]
            same = True
            if source.quantization is None:
                steps.append((Quantize(owner, (), ""), source.shape))
            else:
                same = source.dtype == dtype and source.quantization.equals(quantization)
            if real.values is not None:
                table = quantized_table(real.values, dtype, quantization, f"node {real.changed_by}")
                name = self.fresh(f"{output or real.name}_table")
                inputs = (current, self.constant(name, table, quantization))
                steps.append((Lookup(real.changed_by, inputs, ""), source.shape))
            elif not same or clamp != INTEGER_RANGE[dtype]:
                steps.append((Requantize(real.changed_by or owner, (), "", clamp), source.shape))
        steps.extend(real.moves)
        if not steps and keep:
            steps.append((Reshape(owner, (), ""), real.shape))
        for index, (template, shape) in enumerate(steps):
            last = index == len(steps) - 1
            name = output if last and output is not None else self.fresh(f"{real.name}_quantized")
            node = dataclasses.replace(template, inputs=(current, *template.inputs[1:]))
            current = self.emit(node, Tensor(name, shape, dtype, quantization))
        return current

    def _part(self, part: Real, whole: Real, dtype: str, quantization: Quantization) -> str:
        """One input of a Concat, quantised and clipped as the whole is."""
        assert isinstance(whole.source, Parts)
        if not math.isinf(whole.low) or not math.isinf(whole.high):
            part = part.bounded(whole.low, whole.high, whole.changed_by)
        return self.quantize(part, dtype, quantization, owner=f"{whole.source.name}/requantize")

    def dequantize(self, tensor: str, output: str, owner: str) -> str:
        node = Dequantize(owner, (tensor,), "")
        return self.emit(node, Tensor(output, self.tensors[tensor].shape, "float32"))

    def reshaped(self, tensor: str, shape: Shape, name: str) -> str:
        """A tensor in another shape, by a Reshape of that name."""
        known = self.tensors[tensor]
        view = self.fresh(f"{tensor}/{'x'.join(map(str, shape))}")
        return self.emit(Reshape(name, (tensor,), ""), dataclasses.replace(known, name=view, shape=shape))

    def graph(
        self, name: str, inputs: Iterable[str], outputs: Iterable[str], metadata: dict[str, str]
    ) -> Graph:
        return Graph(name, tuple(inputs), tuple(outputs), self.tensors, tuple(self.nodes), metadata)


def quantized_clamp(real: Real, dtype: str, quantization: Quantization) -> Clamp:
    """The recipe's bounds in quantised units: what QuantizeLinear makes of them."""
    low, high = INTEGER_RANGE[dtype]
    zero_point = int(quantization.zero_point)
    with np.errstate(over="ignore"):  # to infinity, which saturates
        scaled = np.rint(np.array([real.low, real.high], np.float32) / quantization.scale)
    bounds = np.clip(scaled, low - zero_point, high - zero_point).astype(np.int32) + zero_point
    return int(bounds[0]), int(bounds[1])


def real_values(tensor: Tensor) -> NDArray[np.float32]:
    """What each value of an integer tensor means, the smallest of its dtype first: float32 [256]."""
    low, high = INTEGER_RANGE[tensor.dtype]
    steps = np.arange(low, high + 1, dtype=np.int32) - np.int32(tensor.zero_point)
    with np.errstate(over="ignore"):  # to infinity, as in onnxruntime
        return steps.astype(np.float32) * np.float32(tensor.scale)


def quantized_table(values: NDArray[np.float32], dtype: str, quantization: Quantization, where: str) -> Array:
    """A function's values as QuantizeLinear makes them integers: divided, rounded half to even, saturated.

    Raises:
        InvalidModel: the function has no value for some element.
    """
    if np.isnan(values).any():
        index = int(np.flatnonzero(np.isnan(values))[0])
        raise InvalidModel(
            f"its result is NaN for value {index} of the 256 that its input can have",
            where=where,
            hint="clip its input to where it is defined",
        )
    low, high = INTEGER_RANGE[dtype]
    zero_point = int(quantization.zero_point)
    with np.errstate(over="ignore"):  # to infinity, which saturates
        steps = np.rint(values / quantization.scale)
    bounded = np.clip(steps, low - zero_point, high - zero_point).astype(np.int32) + zero_point
    return np.asarray(bounded, dtype)


def bounds_are_exact(real: Real, tensor: Tensor) -> bool:
    """Whether clipping the integers of `tensor` equals clipping its real values: no bound between steps."""
    if real.values is not None:
        return False
    if tensor.quantization is None:
        return math.isinf(real.low) and math.isinf(real.high)
    clamp = quantized_clamp(real, tensor.dtype, tensor.quantization)
    steps = np.array(clamp, np.int32) - tensor.quantization.zero_point
    low, high = (steps.astype(np.float32) * tensor.quantization.scale).tolist()
    first, last = INTEGER_RANGE[tensor.dtype]
    low_is_exact = low == real.low or (clamp[0] == first and real.low < low)
    return low_is_exact and (high == real.high or (clamp[1] == last and real.high > high))


def numbered(base: str, number: int) -> str:
    """A name, and the names made of it."""
    return f"{base}_{number}" if number else base


def numpy_name(name: str) -> str:
    """ONNX's name of a numpy dtype."""
    return NUMPY_NAMES.get(name, name)


def constant_tensor(name: str, array: Array, where: str) -> Tensor:
    """A constant of the model as a tensor; its elements are not copied.

    Raises:
        Unsupported: the graph has no such elements.
    """
    dtype = numpy_name(array.dtype.name)
    if dtype not in dtypes.DTYPES:
        raise Unsupported(f"the constant {name!r} is of {dtype}", where=where)
    data = np.asarray(array, order="C")
    if data.dtype != dtypes.storage(dtype):
        data = data.view(dtypes.storage(dtype))
    return Tensor(name, data.shape, dtype, None, data)


def model_array(tensor: Tensor) -> Array:
    """The elements of a constant tensor in the numpy dtype that onnx has for them."""
    assert tensor.data is not None
    if dtypes.dtype(tensor.dtype).is_native:
        return tensor.data
    helper = require("onnx.helper")
    return tensor.data.view(helper.tensor_dtype_to_np_dtype(element_number(tensor.dtype)))
