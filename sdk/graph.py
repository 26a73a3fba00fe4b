"""The graph: what importers produce, passes rewrite, the reference defines and targets compile.

A tensor is quantised or a plain number. A quantised activation is uint8 or int8 with one scale and
zero-point; weights are int8 or uint8, per tensor or per output channel; accumulators and biases are int32.
The real value of an element is ``scale * (q - zero_point)``. Plain tensors are floats, integers and truth
values, and keep the dtype that the model has. Layout at this level is ONNX's: NCHW activations, OIHW
convolution weights, and [out, in] matrices of Gemm.

Nodes come in few families, so that a target implements families:

============ ===============================================================================================
product      Conv, ConvTranspose, MatMul, Gemm (quantised)
map          Map: one expression over broadcast tensors. Quantised: Add, Mul, Requantize, Lookup too
reduction    Reduce, TopK, Softmax, Normalize
window       MaxPool, AveragePool, GlobalAveragePool, Resize, Interpolate
move         Reshape, Transpose, Concat, Slice, Take, Pad, Fill; by computed coordinates Gather, GatherND,
             Scatter, GridSample
recurrence   Recurrent
============ ===============================================================================================

Operators that are ONNX's keep its names and attribute names, with two additions: every requantising operator
carries a `clamp` (a fused Relu or Clip, in quantised units of its output), and `Requantize` stands for a
Relu, Clip or change of scale that could not be fused. Quantize and Dequantize lead from one kind to the
other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sdk import dtypes
from sdk.codec import NonFinite
from sdk.errors import InvalidModel
from sdk.expression import Expression

Array = NDArray[Any]

LARGEST_TENSOR = 2**28
"""Elements of one tensor. No embedded network has one of 256 MiB; a damaged file easily has."""


@dataclass(frozen=True, repr=False)
class Quantization:
    """Scale and zero-point of a tensor.

    Attributes:
        scale: float32, shape () per tensor or (channels,) per channel; finite and positive.
        zero_point: int32, same shape, within the range of the tensor's dtype (0 for int32).
        axis: the channel axis of a per-channel tensor, else None.
    """

    scale: NDArray[np.float32]
    zero_point: NDArray[np.int32]
    axis: int | None = None

    @staticmethod
    def per_tensor(scale: float, zero_point: int) -> Quantization:
        return Quantization(np.asarray(scale, np.float32), np.asarray(zero_point, np.int32))

    def __repr__(self) -> str:
        if self.axis is None:
            return f"<scale {float(self.scale):.6g}, zero-point {int(self.zero_point)}>"
        return f"<scales of {self.scale.size} channels on axis {self.axis}>"

    def equals(self, other: Quantization) -> bool:
        return (
            self.axis == other.axis
            and np.array_equal(self.scale, other.scale)
            and np.array_equal(self.zero_point, other.zero_point)
        )


@dataclass(frozen=True, repr=False)
class Tensor:
    """A value of the graph: an input, an activation, or (with `data`) a constant.

    Attributes:
        name: unique in the graph; the ONNX value name where there is one.
        shape: fully static.
        dtype: a name of `sdk.dtypes.DTYPES`.
        quantization: of quantised tensors, which are uint8, int8 or int32; None for plain numbers.
        data: the constant's elements, C-contiguous, of `shape` and of the numpy dtype that stores `dtype`;
            None for activations.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    quantization: Quantization | None = None
    data: Array | None = None

    def __repr__(self) -> str:
        parts = [str(self), *([repr(self.quantization)[1:-1]] if self.quantization else [])]
        return f"<Tensor {', '.join(parts)}{', constant' if self.data is not None else ''}>"

    def __str__(self) -> str:
        """Name, dtype and shape: "input float32 1x3x224x224"."""
        return f"{self.name} {self.dtype} {'x'.join(map(str, self.shape)) or 'scalar'}"

    @property
    def size(self) -> int:
        """Elements, as in numpy."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Of all elements."""
        return self.size * dtypes.dtype(self.dtype).nbytes

    @property
    def scale(self) -> float:
        """The per-tensor scale; TypeError on a float or per-channel tensor (a bug, not a user's error)."""
        if self.quantization is None or self.quantization.axis is not None:
            raise TypeError(f"tensor {self.name} has no per-tensor scale")
        return float(self.quantization.scale)

    @property
    def zero_point(self) -> int:
        if self.quantization is None or self.quantization.axis is not None:
            raise TypeError(f"tensor {self.name} has no per-tensor zero-point")
        return int(self.quantization.zero_point)


Clamp = tuple[int, int]
"""Inclusive bounds in quantised units of the output; the dtype's whole range when nothing is fused."""

NO_CLAMP: Clamp = (0, 0)
"""Of an operator whose output is not quantised."""


@dataclass(frozen=True)
class Node:
    """One operator. Subclasses add attributes; tensors are referred to by name.

    Attributes:
        name: the ONNX node's name (made unique), which errors and tables show.
        inputs: activations first, then constants, in ONNX order.
        output: every operator of the set has exactly one.
    """

    name: str
    inputs: tuple[str, ...]
    output: str

    op: ClassVar[str] = "Node"

    def __init_subclass__(cls) -> None:
        cls.op = cls.__name__


@dataclass(frozen=True)
class Quantize(Node):
    """ONNX QuantizeLinear of float32: ``saturate(rint(x / scale) + zero_point)``, half to even."""


@dataclass(frozen=True)
class Dequantize(Node):
    """Quantised -> float32 (ONNX DequantizeLinear)."""


@dataclass(frozen=True)
class Conv(Node):
    """Inputs x [N,C,H,W], weight [O,C/group,kh,kw], optional int32 bias [O] (scale = x * weight scale).

    `pads` is ONNX's (top, left, bottom, right); padding has the value of x's zero-point.
    """

    strides: tuple[int, int]
    pads: tuple[int, int, int, int]
    dilations: tuple[int, int]
    group: int
    clamp: Clamp


@dataclass(frozen=True)
class ConvTranspose(Node):
    """Inputs x [N,C,H,W], weight [C,O/group,kh,kw], optional bias [O]; output [N,O,H',W'].

    H' = (H - 1) * stride + dilation * (kh - 1) + 1 + output_padding - top - bottom. Each element of x adds
    its multiples of the kernel; `pads` (top, left, bottom, right) cut the border of the sum off.
    """

    strides: tuple[int, int]
    pads: tuple[int, int, int, int]
    output_padding: tuple[int, int]
    dilations: tuple[int, int]
    group: int


@dataclass(frozen=True)
class MatMul(Node):
    """Inputs a [...,M,K], b [...,K,N], optional bias [N]; leading axes broadcast; either may be constant.

    With `transposed`, b is [...,N,K].
    """

    transposed: bool


@dataclass(frozen=True)
class Gemm(Node):
    """Inputs x [M,K], weight [N,K] (already transposed), optional int32 bias [N]; output [M,N]."""

    clamp: Clamp


@dataclass(frozen=True)
class Add(Node):
    """Elementwise sum of two quantised tensors of equal shape."""

    clamp: Clamp


@dataclass(frozen=True)
class Mul(Node):
    """Elementwise product; every extent of the second tensor is the first's, or 1 (squeeze-and-excite)."""

    clamp: Clamp


@dataclass(frozen=True)
class Requantize(Node):
    """A change of scale, zero-point or range alone: Relu, Clip, or QuantizeLinear of a quantised value."""

    clamp: Clamp


@dataclass(frozen=True)
class Lookup(Node):
    """An elementwise function as a table: Sigmoid, HardSwish and their like.

    Inputs x and a constant of shape [256], with the output's dtype and quantisation: the values for the
    smallest x of its dtype, the next, and so on.
    """


@dataclass(frozen=True)
class AveragePool(Node):
    """Mean over windows; without `count_include_pad` border windows divide by the elements they cover."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]
    count_include_pad: bool
    clamp: Clamp


@dataclass(frozen=True)
class GlobalAveragePool(Node):
    """[N,C,H,W] -> [N,C,1,1]."""

    clamp: Clamp


@dataclass(frozen=True)
class MaxPool(Node):
    """Maximum over windows; padding never wins. Input and output share their quantisation."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]
    dilations: tuple[int, int]


@dataclass(frozen=True)
class Concat(Node):
    """Two tensors or more, one behind the other along `axis`; all share their quantisation."""

    axis: int


@dataclass(frozen=True)
class Resize(Node):
    """[N,C,H,W] by the nearest neighbour: where each output row and column comes from.

    Input and output share their quantisation, as with Transpose and Pad.
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]


@dataclass(frozen=True)
class Transpose(Node):
    """Axis i of the output is axis `perm[i]` of the input."""

    perm: tuple[int, ...]


@dataclass(frozen=True)
class Pad(Node):
    """[N,C,H,W] with a border of (top, left, bottom, right) elements of real value 0, its zero-point."""

    pads: tuple[int, int, int, int]


@dataclass(frozen=True)
class Reshape(Node):
    """Flatten, Reshape, Squeeze: the output tensor has the shape; elements keep their order."""


@dataclass(frozen=True)
class Slice(Node):
    """Of each axis i the elements starts[i], starts[i] + steps[i], ...; the output tensor says how many."""

    starts: tuple[int, ...]
    steps: tuple[int, ...]


@dataclass(frozen=True)
class Take(Node):
    """Of each axis the elements that its list names, in that order; an empty list stands for all of them."""

    indices: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Fill(Node):
    """x inside a border of `value`: befores[i] elements before axis i and afters[i] behind it."""

    befores: tuple[int, ...]
    afters: tuple[int, ...]
    value: float | NonFinite


@dataclass(frozen=True)
class Gather(Node):
    """Inputs data and indices (integers, -n counts from the end): along `axis`, the slices they name.

    Output data.shape[:axis] + indices.shape + data.shape[axis+1:]. An index out of range ends the run.
    """

    axis: int


@dataclass(frozen=True)
class GatherND(Node):
    """ONNX GatherND: the last axis of the indices has coordinates into data, behind `batch_dims` axes."""

    batch_dims: int


@dataclass(frozen=True)
class Scatter(Node):
    """ONNX ScatterND: data, with the slices that indices name replaced by updates, in the order of those.

    With a `reduction` ("add", "mul", "max", "min") they are combined with them.
    """

    reduction: str = "none"


@dataclass(frozen=True)
class GridSample(Node):
    """Inputs x [N,C,H,W], grid [N,H',W',2] of (x, y) in [-1,1]; ONNX's modes "linear" and "nearest"."""

    mode: str
    padding_mode: str
    align_corners: bool


@dataclass(frozen=True)
class Interpolate(Node):
    """[N,C,H,W] resized by weighted sums: inputs x, then for rows and for columns indices and weights.

    Indices int32 [H',k] and weights float32 [H',k], then [W',l] of both: element (i, j) is the sum over k and
    l of ``x[row_indices[i,k], column_indices[j,l]] * row_weights[i,k] * column_weights[j,l]``.
    """


@dataclass(frozen=True)
class Map(Node):
    """One expression over the elements of the inputs, which broadcast as numpy's do.

    Plain tensors alone; or activations and a result that are quantised, which stand for their real values,
    and plain constants (`sdk.exact_maps` defines that).
    """

    expression: Expression


@dataclass(frozen=True)
class Reduce(Node):
    """Over `axes`: "sum", "mean", "max", "min", "prod"; "argmax", "argmin" (one axis, the first of equals).

    The output has extents of 1 there, or, as its tensor says, lacks those axes.
    """

    kind: str
    axes: tuple[int, ...]


@dataclass(frozen=True)
class TopK(Node):
    """Along `axis`, where the `k` largest elements are, or the smallest: int64, best first.

    Of equals the first comes first. A NaN is larger and smaller than any number.
    """

    axis: int
    k: int
    largest: bool


@dataclass(frozen=True)
class Normalize(Node):
    """``(x - mean) / sqrt(variance + epsilon) * scale + bias`` over `axes`: layer, instance, group.

    Inputs x, then scale and bias, which broadcast to x; either may be missing at the end. Without `centre` it
    is ``x / sqrt(mean of squares + epsilon) * scale + bias``, the RMS normalisation.
    """

    axes: tuple[int, ...]
    epsilon: float
    centre: bool


@dataclass(frozen=True)
class Softmax(Node):
    """Over `axis`, of floats: ``exp(x - max) / sum``."""

    axis: int


@dataclass(frozen=True)
class Recurrent(Node):
    """`steps` evaluations of `body`, which turns states and a slice of each sequence into the next states.

    Inputs: `sequences` tensors whose first axis has `steps` elements, then the initial states, then what
    every step reads. The body's inputs are the same, the sequences without their first axis, and its outputs
    the next states, all of one shape and dtype. The output is [steps, states, *shape]: the states behind each
    step, in the order of the sequences' elements. With `backward` the last element comes first.
    """

    body: Graph
    steps: int
    sequences: int
    backward: bool


@dataclass(frozen=True)
class Region(Node):
    """Nodes that a target runs as one. Their tensors are the graph's, and the last has the output.

    What is defined of it is what is defined of its nodes, roundings included.
    """

    nodes: tuple[Node, ...]


OPERATORS: Mapping[str, type[Node]] = {cls.op: cls for cls in Node.__subclasses__()}


@dataclass(repr=False)
class Graph:
    """A network: tensors by name and nodes in topological order.

    A graph is treated as immutable once verified: passes return a new one.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    tensors: dict[str, Tensor]
    nodes: tuple[Node, ...]
    metadata: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Graph {self}>"

    def __str__(self) -> str:
        """Name, inputs, outputs and size in a line."""
        given, made = (
            ", ".join(str(self.tensors.get(name, name)) for name in names)
            for names in (self.inputs, self.outputs)
        )
        try:
            work = f"{self.macs:,} MACs"
        except InvalidModel:  # a tensor is missing; one that was never verified is shown too
            work = "MACs unknown"
        return f"{self.name}: {given} -> {made}; {len(self.nodes)} operators, {work}"

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the whole network, as `macs` counts them."""
        return sum(macs(self, node) for node in self.nodes)

    def tensor(self, name: str) -> Tensor:
        try:
            return self.tensors[name]
        except KeyError:
            raise InvalidModel(f"no tensor named {name!r}", where=self.name) from None

    def producer(self, tensor: str) -> Node | None:
        return next((node for node in self.nodes if node.output == tensor), None)

    def consumers(self, tensor: str) -> list[Node]:
        return [node for node in self.nodes if tensor in node.inputs]

    def activations(self) -> Iterator[Tensor]:
        return (tensor for tensor in self.tensors.values() if tensor.data is None)


def macs(graph: Graph, node: Node) -> int:
    """Multiply-accumulates of one node as the paper count goes: products only, padding included."""
    output = graph.tensor(node.output)
    match node:
        case Conv() | Gemm():
            return output.size * math.prod(graph.tensor(node.inputs[1]).shape[1:])
        case ConvTranspose():
            return graph.tensor(node.inputs[0]).size * math.prod(graph.tensor(node.inputs[1]).shape[1:])
        case MatMul():
            return output.size * graph.tensor(node.inputs[0]).shape[-1]
        case Recurrent():
            return node.steps * node.body.macs
        case Region():
            return sum(macs(graph, inner) for inner in node.nodes)
        case _:
            return 0
