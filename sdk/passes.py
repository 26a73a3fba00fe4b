"""What is done to a graph between importer and target: verification, rewriting, and the split host/target.

Every pass takes a verified graph and returns a new verified one that computes the same bits in both
arithmetics of `sdk.reference`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sdk.errors import InternalError, InvalidModel, Unsupported
from sdk.graph import (
    DTYPES,
    LARGEST_TENSOR,
    Add,
    Array,
    AveragePool,
    Clamp,
    Concat,
    Conv,
    Dequantize,
    Gemm,
    GlobalAveragePool,
    Graph,
    Lookup,
    MaxPool,
    Mul,
    Node,
    Pad,
    Quantization,
    Quantize,
    Requantize,
    Reshape,
    Resize,
    Softmax,
    Tensor,
    Transpose,
)
from sdk.shapes import output_shape, window_counts

Clamped = Conv | Gemm | Add | Mul | Requantize | AveragePool | GlobalAveragePool
Moved = MaxPool | Concat | Resize | Transpose | Pad
"""What gives its output the quantisation of its inputs, as a Reshape of integers does."""

INTEGER_RANGE = {"uint8": (0, 255), "int8": (-128, 127), "int32": (-(2**31), 2**31 - 1)}
OPERANDS: Mapping[type[Node], Container[int]] = {
    Conv: (2, 3),
    Gemm: (2, 3),
    Add: (2,),
    Mul: (2,),
    Lookup: (2,),
    Concat: range(2, 1 << 16),
}
"""How many inputs an operator may have, where that is not one."""


def verify(graph: Graph) -> None:
    """Check every invariant that passes, reference and targets rely on.

    Raises:
        InvalidModel: tensors, shapes, dtypes or attributes contradict each other.
        Unsupported: an accumulator could leave int32.
        InternalError: names defined twice or never, or nodes out of order.
    """
    for name, tensor in graph.tensors.items():
        if tensor.name != name:
            raise InternalError(f"tensor {tensor.name!r} is filed under {name!r}", where=graph.name)
        _verify_tensor(tensor)
    names = [node.name for node in graph.nodes]
    if len(set(names)) != len(names):
        raise InternalError("two nodes share a name", where=graph.name)
    defined = {name for name, tensor in graph.tensors.items() if tensor.data is not None}
    for name in graph.inputs:
        _define(name, graph, defined, "graph input")
    for node in graph.nodes:
        for name in node.inputs:
            if name not in defined:
                raise InternalError(f"{name!r} is read before it is computed", where=f"node {node.name}")
        _define(node.output, graph, defined, f"node {node.name}")
        _verify_node(graph, node)
    for name in graph.outputs:
        if name not in defined:
            raise InternalError(f"nothing computes the graph output {name!r}", where=graph.name)


def _define(name: str, graph: Graph, defined: set[str], where: str) -> None:
    if name in defined:
        raise InternalError(f"{name!r} is defined twice", where=where)
    if name not in graph.tensors:
        raise InternalError(f"{name!r} has no tensor", where=where)
    defined.add(name)


def _verify_tensor(tensor: Tensor) -> None:
    where = f"tensor {tensor.name}"
    if tensor.dtype not in DTYPES:
        raise InvalidModel(f"its dtype is {tensor.dtype}", where=where)
    if any(extent < 1 for extent in tensor.shape):
        raise InvalidModel(f"its shape is {list(tensor.shape)}", where=where)
    if math.prod(tensor.shape) > LARGEST_TENSOR:
        raise Unsupported(f"its shape {list(tensor.shape)} exceeds {LARGEST_TENSOR:,} elements", where=where)
    if tensor.data is not None and (
        tensor.data.dtype != np.dtype(tensor.dtype) or tensor.data.shape != tensor.shape
    ):
        raise InvalidModel(f"{tensor.data.dtype} data of shape {list(tensor.data.shape)}", where=where)
    if tensor.quantization is None:
        if tensor.dtype != "float32":
            raise InvalidModel("an integer tensor without quantisation", where=where)
    elif tensor.dtype == "float32":
        raise InvalidModel("a float tensor with a quantisation", where=where)
    else:
        check_quantization(tensor.quantization, tensor.dtype, tensor.shape, where)


def check_quantization(quantization: Quantization, dtype: str, shape: tuple[int, ...], where: str) -> None:
    """Check that scales are finite and positive, zero-points in range, and both of the right shape.

    Raises:
        InvalidModel: they are not; `where` names the tensor.
    """
    scale, zero_point, axis = quantization.scale, quantization.zero_point, quantization.axis
    if axis is not None and not 0 <= axis < len(shape):
        raise InvalidModel(f"quantisation axis {axis} of a tensor of rank {len(shape)}", where=where)
    expected = () if axis is None else (shape[axis],)
    if scale.shape != expected or zero_point.shape != expected:
        raise InvalidModel(
            f"scale of shape {list(scale.shape)} and zero-point of shape {list(zero_point.shape)}, "
            f"but its {'channels' if expected else 'quantisation per tensor'} need {list(expected)}",
            where=where,
        )
    if not (np.isfinite(scale) & (scale > 0)).all():
        bad = scale[~(np.isfinite(scale) & (scale > 0))].flat[0]
        raise InvalidModel(f"its scale is {bad}; scales are finite and positive", where=where)
    low, high = (0, 0) if dtype == "int32" else INTEGER_RANGE[dtype]
    if not ((zero_point >= low) & (zero_point <= high)).all():
        raise InvalidModel(f"a zero-point of {dtype} outside [{low}, {high}]", where=where)


def _verify_node(graph: Graph, node: Node) -> None:
    def require(condition: bool, message: str) -> None:
        if not condition:
            raise InvalidModel(message, where=f"node {node.name}")

    counts = OPERANDS.get(type(node), (1,))
    require(len(node.inputs) in counts, f"{node.op} with {len(node.inputs)} inputs")
    require(graph.tensor(node.inputs[0]).data is None, "its input is a constant")
    x, out = graph.tensor(node.inputs[0]), graph.tensor(node.output)
    shape = output_shape(node, graph.tensors)
    require(shape in (None, out.shape), f"its output is {list(shape or ())}, not {list(out.shape)}")
    require(x.size == out.size or not isinstance(node, Reshape), "Reshape changes the number of elements")

    takes_float = isinstance(node, Quantize | Softmax) or (isinstance(node, Reshape) and x.dtype == "float32")
    gives_float = isinstance(node, Dequantize | Softmax) or (takes_float and isinstance(node, Reshape))
    for tensor, is_float in ((x, takes_float), (out, gives_float)):
        allowed = ("float32",) if is_float else ("uint8", "int8")
        require(tensor.dtype in allowed, f"{node.op} with {tensor.dtype} at {tensor.name}")
        per_tensor = tensor.quantization is None or tensor.quantization.axis is None
        require(per_tensor, f"the activation {tensor.name} is quantised per channel")

    if isinstance(node, Moved) or (isinstance(node, Reshape) and not takes_float):
        for name in node.inputs:
            require(_same_quantization(graph.tensor(name), out), f"{node.op} changes the quantisation")
    if isinstance(node, Lookup):
        table = graph.tensor(node.inputs[1])
        require(table.data is not None and table.shape == (256,), "its table is not a constant of 256 values")
        require(_same_quantization(table, out), "its table is not of the output's dtype and quantisation")
    if isinstance(node, Softmax):
        require(0 <= node.axis < len(x.shape), f"Softmax over axis {node.axis}")
    if isinstance(node, Clamped):
        low, high = INTEGER_RANGE[out.dtype]
        require(low <= node.clamp[0] <= node.clamp[1] <= high, f"clamp {node.clamp} of {out.dtype}")
    if isinstance(node, Add | Mul | Concat):
        for name in node.inputs[1:]:
            other = graph.tensor(name)
            require(other.dtype in ("uint8", "int8"), f"{node.op} with {other.dtype} at {name}")
            per_tensor = other.quantization is not None and other.quantization.axis is None
            require(per_tensor, f"{node.op} per channel")
            require(other.data is None, f"{node.op} of a constant")
    if isinstance(node, Conv | Gemm):
        weight = graph.tensor(node.inputs[1])
        require(weight.data is not None, "its weight is not a constant")
        require(weight.dtype in ("uint8", "int8"), f"weight of {weight.dtype}")
        require(weight.quantization is not None and weight.quantization.axis in (None, 0), "weight axis")
        for name in node.inputs[2:]:
            bias = graph.tensor(name)
            require(bias.data is not None, "its bias is not a constant")
            require(bias.dtype == "int32", f"bias of {bias.dtype}")
            require(bias.shape == weight.shape[:1], f"bias {list(bias.shape)} of {weight.shape[0]} channels")
    _verify_accumulator(graph, node)


def _verify_accumulator(graph: Graph, node: Node) -> None:
    x = graph.tensor(node.inputs[0])
    bound = 0
    if isinstance(node, Conv | Gemm):
        weight = graph.tensor(node.inputs[1])
        assert weight.data is not None  # verified above
        assert weight.quantization is not None
        flat = weight.data.reshape(weight.shape[0], -1).astype(np.int64)
        sums = np.abs(flat - weight.quantization.zero_point.reshape(-1, 1)).sum(axis=1) * _reach(x)
        for name in node.inputs[2:]:
            sums = sums + np.abs(graph.tensor(name).data.astype(np.int64))  # type: ignore[union-attr]
        bound = int(sums.max())
    elif isinstance(node, AveragePool):
        bound = _reach(x) * node.kernel[0] * node.kernel[1]
    elif isinstance(node, GlobalAveragePool):
        bound = _reach(x) * x.shape[2] * x.shape[3]
    if bound >= 2**31:
        raise Unsupported(
            f"its accumulator could reach {bound}, beyond int32",
            where=f"node {node.name}",
            hint="requantise the model, per channel, with calibration data like its real inputs",
        )


def _reach(x: Tensor) -> int:
    """The largest magnitude of an element less its zero-point."""
    low, high = INTEGER_RANGE[x.dtype]
    return max(high - x.zero_point, x.zero_point - low)


@dataclass(frozen=True)
class Split:
    """A network in three parts: what the host does first, what the target does, what the host does last.

    Attributes:
        head: Quantize nodes on float graph inputs.
        body: the integer part; its inputs and outputs are uint8 or int8, and it holds only what it needs.
        tail: Dequantize, Softmax, float Reshape (and Quantize of a Softmax), in order, after the body.
    """

    head: tuple[Quantize, ...]
    body: Graph
    tail: tuple[Node, ...]


def split(graph: Graph) -> Split:
    """Part a verified network at its first Quantize and last Dequantize.

    Raises:
        Unsupported: an integer operator comes after a float one, or there is none at all.
    """
    head: list[Quantize] = []
    body: list[Node] = []
    tail: list[Node] = []
    hosted: set[str] = set()  # computed by the tail
    for node in graph.nodes:
        after = hosted.intersection(node.inputs)
        if isinstance(node, Quantize) and node.inputs[0] in graph.inputs:
            head.append(node)
        elif isinstance(node, Dequantize | Softmax) or after:
            if not isinstance(node, Dequantize | Softmax | Reshape | Quantize):
                raise Unsupported(
                    f"{node.op} comes after float operators; float is only done at the head and the tail",
                    where=f"node {node.name}",
                    hint="quantise the operators before it too, or cut the model there",
                )
            tail.append(node)
            hosted.add(node.output)
        elif graph.tensor(node.output).dtype == "float32":
            raise Unsupported(f"{node.op} works on float", where=f"node {node.name}")
        else:
            body.append(node)
    if not body:
        raise Unsupported("there is no quantised operator in it", where=graph.name)
    integer = {node.output for node in (*head, *body)}.union(
        name for name in graph.inputs if graph.tensor(name).dtype != "float32"
    )
    produced = {node.output for node in body}
    wanted = [name for node in tail for name in node.inputs] + list(graph.outputs)
    read = [name for node in body for name in node.inputs]
    inputs = [name for name in graph.inputs if name in integer and name in read]
    inputs += [node.output for node in head if node.output in read]
    result = Graph(
        name=graph.name,
        inputs=tuple(inputs),
        outputs=tuple(dict.fromkeys(name for name in wanted if name in produced)),
        tensors=graph.tensors,
        nodes=tuple(body),
        metadata=dict(graph.metadata),
    )
    return Split(tuple(head), eliminate_dead(result), tuple(tail))


def eliminate_dead(graph: Graph) -> Graph:
    """Drop nodes that no output depends on, and tensors that nothing mentions. Graph inputs stay."""
    needed = set(graph.outputs)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if node.output in needed:
            kept.append(node)
            needed.update(node.inputs)
    needed.update(graph.inputs)
    tensors = {name: tensor for name, tensor in graph.tensors.items() if name in needed}
    return dataclasses.replace(graph, tensors=tensors, nodes=tuple(reversed(kept)))


def fuse_requantize(graph: Graph) -> Graph:
    """Make a Requantize that only narrows the range (a Relu or Clip) the clamp of its producer.

    The producer must have no other consumer, and both outputs the same quantisation: then the requantisation
    scale is exactly 1, and clamping twice is clamping once.
    """
    uses = _use_counts(graph)
    nodes: dict[str, Node] = {}  # by output; insertion order is execution order
    for node in graph.nodes:
        producer = nodes.get(node.inputs[0])
        if (
            isinstance(node, Requantize)
            and isinstance(producer, Clamped)
            and uses[producer.output] == 1
            and _same_quantization(graph.tensor(producer.output), graph.tensor(node.output))
        ):
            del nodes[producer.output]
            clamp = _narrow(producer.clamp, node.clamp)
            nodes[node.output] = dataclasses.replace(producer, output=node.output, clamp=clamp)
        else:
            nodes[node.output] = node
    # A fused producer moved down to its Requantize's place, which is still before all its consumers.
    return eliminate_dead(dataclasses.replace(graph, nodes=tuple(nodes.values())))


def compose_lookups(graph: Graph) -> Graph:
    """Make one table of a Lookup and the Lookup, Relu or Clip (with the same quantisation) beside it.

    The first of the two stays where others read it as well.
    """
    tensors = dict(graph.tensors)
    nodes: dict[str, Node] = {}  # by output
    for node in graph.nodes:
        first = nodes.get(node.inputs[0])
        if first is not None and (isinstance(node, Lookup) or isinstance(first, Lookup)):
            inner, outer = _table(first, tensors), _table(node, tensors)
            if inner is not None and outer is not None:
                middle, out = tensors[first.output], tensors[node.output]
                data = outer[inner.astype(np.int32) - INTEGER_RANGE[middle.dtype][0]]
                name = f"{node.output}_table"
                while name in tensors:
                    name += "_"
                tensors[name] = Tensor(name, data.shape, out.dtype, out.quantization, data)
                node = Lookup(node.name, (first.inputs[0], name), node.output)
        nodes[node.output] = node
    return eliminate_dead(dataclasses.replace(graph, tensors=tensors, nodes=tuple(nodes.values())))


def _table(node: Node, tensors: Mapping[str, Tensor]) -> NDArray[Any] | None:
    """The values of a Lookup, or of a Requantize that only clamps; else None."""
    if isinstance(node, Lookup):
        return tensors[node.inputs[1]].data
    out = tensors[node.output]
    if not isinstance(node, Requantize) or not _same_quantization(tensors[node.inputs[0]], out):
        return None
    low, high = INTEGER_RANGE[out.dtype]
    return np.arange(low, high + 1).clip(*node.clamp).astype(out.dtype)


def fold_pads(graph: Graph) -> Graph:
    """Make a Pad the padding of the window behind it, where that has the same meaning.

    A Conv pads with real zeros as Pad does, and so does an AveragePool that counts its padding; a MaxPool
    pads with the same effect where no value is below zero.
    """
    nodes: dict[str, Node] = {}  # by output
    for node in graph.nodes:
        first = nodes.get(node.inputs[0])
        if isinstance(first, Pad):
            node = _padded(node, first, graph.tensor(first.inputs[0])) or node
        nodes[node.output] = node
    return eliminate_dead(dataclasses.replace(graph, nodes=tuple(nodes.values())))


def _padded(node: Node, pad: Pad, x: Tensor) -> Node | None:
    """`node` over `x`, doing `pad` itself; None where it cannot."""
    if not isinstance(node, Conv | AveragePool | MaxPool | Pad):
        return None
    top, left, bottom, right = (a + b for a, b in zip(node.pads, pad.pads, strict=True))
    pads = (top, left, bottom, right)
    inputs = (x.name, *node.inputs[1:])
    if isinstance(node, Conv | Pad):
        return dataclasses.replace(node, inputs=inputs, pads=pads)
    dilations = node.dilations if isinstance(node, MaxPool) else (1, 1)
    if window_counts(x.shape[2:], node.kernel, node.strides, pads, dilations).min() == 0:
        return None
    if isinstance(node, MaxPool):
        lowest = x.zero_point == INTEGER_RANGE[x.dtype][0]
        return dataclasses.replace(node, inputs=inputs, pads=pads) if lowest else None
    if any(node.pads) and not node.count_include_pad:
        return None
    return dataclasses.replace(node, inputs=inputs, pads=pads, count_include_pad=True)


def simplify_transposes(graph: Graph) -> Graph:
    """Compose adjacent Transposes and drop what changes nothing; moving extents of 1 alone is a Reshape."""
    same: dict[str, str] = {}  # what equals an earlier tensor: which
    nodes: dict[str, Node] = {}  # by output
    for node in graph.nodes:
        node = dataclasses.replace(node, inputs=tuple(same.get(name, name) for name in node.inputs))
        if isinstance(node, Transpose):
            first = nodes.get(node.inputs[0])
            if isinstance(first, Transpose):
                perm = tuple(first.perm[axis] for axis in node.perm)
                node = dataclasses.replace(node, inputs=first.inputs, perm=perm)
            shape = graph.tensor(node.inputs[0]).shape
            moved = [axis for axis in node.perm if shape[axis] > 1]
            if node.perm == tuple(range(len(shape))) and node.output not in graph.outputs:
                same[node.output] = node.inputs[0]
                continue
            if moved == sorted(moved):
                node = Reshape(node.name, node.inputs, node.output)
        nodes[node.output] = node
    return eliminate_dead(dataclasses.replace(graph, nodes=tuple(nodes.values())))


def _use_counts(graph: Graph) -> dict[str, int]:
    counts = dict.fromkeys(graph.tensors, 0)
    for name in [*graph.outputs, *(name for node in graph.nodes for name in node.inputs)]:
        counts[name] += 1
    return counts


def _same_quantization(a: Tensor, b: Tensor) -> bool:
    if a.quantization is None or b.quantization is None:
        return False
    return a.dtype == b.dtype and a.quantization.equals(b.quantization)


def _narrow(first: Clamp, second: Clamp) -> Clamp:
    """The one clamp that equals `first`, then `second`."""
    low, high = (min(max(bound, second[0]), second[1]) for bound in first)
    return low, high


PASSES: tuple[Callable[[Graph], Graph], ...] = (
    eliminate_dead,
    fuse_requantize,
    compose_lookups,
    fold_pads,
    simplify_transposes,
)


def optimize(graph: Graph, *, check: bool = False) -> Graph:
    """Run all passes in order; with `check` the verifier after each (its errors are then Towline's)."""
    for transform in PASSES:
        graph = transform(graph)
        if check:
            verify(graph)
    return graph


def unsigned_activations(graph: Graph) -> Graph:
    """Rewrite a graph so that every int8 activation is uint8, its zero-point and clamps raised by 128.

    Each activation then holds exactly the old value plus 128, inputs and outputs included: at the boundary
    the caller flips the top bit (`to_unsigned`, `from_unsigned`). So do the values of tables; their order
    stays what it was. Weights keep their dtype.
    """
    tensors = dict(graph.tensors)
    raised = {tensor.name for tensor in graph.activations() if tensor.dtype == "int8"}
    tables = {node.inputs[1] for node in graph.nodes if isinstance(node, Lookup) and node.output in raised}
    for name in raised | tables:
        tensor = tensors[name]
        quantization, data = tensor.quantization, tensor.data
        assert quantization is not None  # verified
        moved = dataclasses.replace(quantization, zero_point=quantization.zero_point + np.int32(128))
        if data is not None:
            data = flip_sign(data.view(np.uint8), tensor)
        tensors[name] = dataclasses.replace(tensor, dtype="uint8", quantization=moved, data=data)
    nodes = tuple(
        dataclasses.replace(node, clamp=(node.clamp[0] + 128, node.clamp[1] + 128))
        if isinstance(node, Clamped) and node.output in raised
        else node
        for node in graph.nodes
    )
    return dataclasses.replace(graph, tensors=tensors, nodes=nodes)


def flip_sign(data: NDArray[np.uint8], tensor: Tensor) -> NDArray[np.uint8]:
    """The bytes of a tensor as they become, or were before, `unsigned_activations`: its own inverse."""
    return data ^ np.uint8(0x80) if tensor.dtype == "int8" else data


def to_unsigned(array: Array, tensor: Tensor) -> bytes:
    """The elements of `tensor` as they cross to a target that has `unsigned_activations`, in NCHW."""
    return flip_sign(np.ascontiguousarray(array).view(np.uint8), tensor).tobytes()


def from_unsigned(data: bytes, tensor: Tensor) -> Array:
    """The way back: the array of such a target's elements."""
    return flip_sign(np.frombuffer(data, np.uint8), tensor).view(tensor.dtype).reshape(tensor.shape)
