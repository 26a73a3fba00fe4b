"""The quantised graph: what importers produce, passes rewrite, the reference defines and targets compile.

Activations are uint8 or int8 with one scale and zero-point per tensor; weights are int8 or uint8, per
tensor or per output channel; accumulators and biases are int32. Between `Quantize` and `Dequantize` no
tensor is float. Layout at this level is ONNX's: NCHW activations, OIHW convolution weights, and
[out, in] matrices. Operators keep their ONNX names and attribute names, with two additions: every
requantising operator carries a `clamp` (a fused Relu or Clip, in quantised units of its output), and
`Requantize` stands for a Relu, Clip or change of scale that could not be fused.

Real value of an element: ``scale * (q - zero_point)``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sdk.errors import InvalidModel

Array = NDArray[Any]

DTYPES: Mapping[str, np.dtype[Any]] = {name: np.dtype(name) for name in ("uint8", "int8", "int32", "float32")}

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
        dtype: one of DTYPES.
        quantization: None for float32 tensors.
        data: the constant's elements, C-contiguous, of `dtype` and `shape`; None for activations.
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
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        return self.size * DTYPES[self.dtype].itemsize

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
class Softmax(Node):
    """float32 -> float32 over `axis`; only at the tail, where the host runs it."""

    axis: int


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
    """Multiply-accumulates of one node as the paper count goes: Conv and Gemm only, padding included."""
    if not isinstance(node, Conv | Gemm):
        return 0
    weight = graph.tensor(node.inputs[1])
    per_output = int(np.prod(weight.shape[1:], dtype=np.int64))
    return graph.tensor(node.output).size * per_output


def node_to_json(node: Node) -> dict[str, Any]:
    """The node as plain JSON values, `op` included; `node_from_json` is its inverse."""
    return {"op": node.op, **dataclasses.asdict(node)}


def node_from_json(document: Mapping[str, Any]) -> Node:
    """Rebuild a node.

    Raises:
        InvalidModel: an unknown operator, or a missing, surplus or ill-typed field.
    """
    fields = {key: _tuples(value) for key, value in document.items()}
    cls = OPERATORS.get(str(fields.pop("op", None)))
    if cls is None:
        raise InvalidModel(f"unknown operator {document.get('op')!r}")
    expected = {f.name for f in dataclasses.fields(cls)}
    if expected != fields.keys():
        raise InvalidModel(f"{cls.op}: fields {sorted(expected ^ fields.keys())} missing or surplus")
    return cls(**fields)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
