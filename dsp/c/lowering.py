"""From an integer body to C: each node becomes calls of kernels, its tensors offsets into one arena.

All activations are unsigned here (`sdk.passes.unsigned_activations`) and laid out as in ONNX; a Reshape is
the same bytes under another name. Constants go into one blob, from which kernels read bytes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sdk import graph as ops
from sdk.arena import Blob, Buffer, live_peak, plan
from sdk.arithmetic import require_scales
from sdk.errors import InternalError, Unsupported
from sdk.graph import Array, Clamp, Graph, Node, Tensor
from sdk.scales import counts_differ, node_scales, scale_table, weight_quantization

KERNELS = Path(__file__).parent / "kernels"
MAX_AXES = 8
"""Axes that kernels/walk.h steps along."""

ALIGNMENT = 4
"""Alignment of constants. Kernels read them byte by byte; it serves machines whose memcpy prefers words."""

WINDOW_LIMIT = 1 << 15
"""Padding, strides and dilations are below this: positions in kernels have 32 bits."""

Axis = tuple[int, int, int]
"""Extent, and the steps in elements in the output and in the input."""


@dataclass
class NodeCode:
    """The code of a node.

    Attributes:
        declarations, calls: C, in file scope and in order of execution.
    """

    node: Node
    declarations: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)


@dataclass
class Lowered:
    """A whole network.

    Attributes:
        buffers: of the arena, by the names of their tensors.
        places: offset of every activation in the arena.
        live_peak: the largest sum of tensor bytes alive at once.
    """

    nodes: list[NodeCode]
    buffers: list[Buffer]
    places: dict[str, int]
    arena: int
    live_peak: int
    weights: bytes
    source: str


def lower(graph: Graph, guard: int) -> Lowered:
    """Lower a graph of unsigned activations.

    Raises:
        Unsupported: a node that has no kernel, or is beyond a limit; or more memory than 32 bits address.
    """
    owners = {name: name for name in graph.inputs}
    for node in graph.nodes:
        owners[node.output] = owners[node.inputs[0]] if isinstance(node, ops.Reshape) else node.output
    buffers = _buffers(graph, owners)
    arena = plan(list(buffers.values()), guard)
    places = {name: buffers[owner].offset for name, owner in owners.items()}
    writer = _Writer(graph, places)
    nodes = [writer.code(node) for node in graph.nodes]
    for what, nbytes in (("activations", arena), ("constants", writer.blob.nbytes)):
        if nbytes >= 2**31:
            raise Unsupported(f"its {what} take {nbytes:,} bytes; the limit is 2 GiB", where=graph.name)
    peak = live_peak((buffer.first, buffer.last, buffer.nbytes) for buffer in buffers.values())
    source = amalgamate(["base.h", *sorted(writer.kernels)]) + _network(nodes)
    return Lowered(nodes, list(buffers.values()), places, arena, peak, bytes(writer.blob), source)


def traffic(graph: Graph, node: Node) -> int:
    """Bytes that a node reads and writes: activations and constants. A Reshape moves none."""
    names = {*node.inputs, node.output}
    tensors = (graph.tensor(name) for name in names if not isinstance(node, ops.Reshape))
    return sum(tensor.nbytes for tensor in tensors)


def _buffers(graph: Graph, owners: Mapping[str, str]) -> dict[str, Buffer]:
    """Inputs live from moment 0, the output of node i from i + 1, and outputs to the end."""
    buffers = {name: Buffer(name, graph.tensor(name).nbytes, 0, 0) for name in graph.inputs}
    for moment, node in enumerate(graph.nodes, 1):
        if owners[node.output] == node.output:
            buffers[node.output] = Buffer(node.output, graph.tensor(node.output).nbytes, moment, moment)
        for name in (*node.inputs, node.output):
            if name in owners:
                buffers[owners[name]].last = moment
    for name in graph.outputs:
        buffers[owners[name]].last = len(graph.nodes)
    return buffers


class _Writer:
    """Writes the calls of one network."""

    def __init__(self, graph: Graph, places: Mapping[str, int]) -> None:
        self.kernels: set[str] = set()
        self.blob = Blob(ALIGNMENT)
        self._graph = graph
        self._places = places
        self._declared = 0
        self._code: NodeCode

    def code(self, node: Node) -> NodeCode:
        self._code = NodeCode(node)
        most = max(max(getattr(node, name, (0,))) for name in ("pads", "strides", "dilations"))
        if most >= WINDOW_LIMIT:
            raise Unsupported(
                f"its window has a pad, stride or dilation of {most}; it must be below {WINDOW_LIMIT}"
            )
        self._lower(node)
        return self._code

    def _lower(self, node: Node) -> None:
        x, y = self._graph.tensor(node.inputs[0]), self._graph.tensor(node.output)
        at, out = self._at(x.name), self._at(y.name)
        match node:
            case ops.Reshape():
                pass
            case ops.Conv():
                self._conv(node, x, y)
            case ops.Gemm():
                fields = {"rows": x.shape[0], "inputs": x.shape[1], "outputs": y.shape[1]}
                self._call("gemm", fields | _numbers(x, y, node.clamp), out, at, *self._weighted(node))
            case ops.Add() | ops.Mul():
                self._binary(node, x, y)
            case ops.Requantize():  # a mean of one element each
                self._mean(node, {"planes": 1, "height": 1, "width": x.size, "rows": 1, "columns": x.size})
            case ops.GlobalAveragePool():
                self._mean(node, _geometry(x, y), x.shape[2:])
            case ops.AveragePool():
                self._mean(node, _geometry(x, y), node.kernel, node.strides, node.pads)
            case ops.MaxPool():
                window = {name: list(getattr(node, name)) for name in ("kernel", "strides", "dilations")}
                self._call("max_pool", _geometry(x, y) | window | {"pads": list(node.pads[:2])}, out, at)
            case ops.Lookup():
                self._direct("lookup", str(x.size), out, at, self._constant(_data(self._graph, node, 1)))
            case ops.Resize():
                sources = self._constant(np.array([*node.rows, *node.columns], "<i4"))
                self._call("resize", _geometry(x, y), out, at, sources)
            case ops.Transpose() | ops.Concat() | ops.Pad():
                self._move(node, y)
            case _:
                raise Unsupported("the operator has no kernel")

    def _conv(self, node: ops.Conv, x: Tensor, y: Tensor) -> None:
        weight = self._graph.tensor(node.inputs[1])
        extents = (*x.shape[2:], *y.shape[2:])
        if weight.shape[2:] == (1, 1) and node.strides == (1, 1) and not any(node.pads):
            pixels = math.prod(x.shape[2:])  # all rows as one
            extents = (1, pixels, 1, pixels)
        fields: dict[str, Any] = {
            "images": x.shape[0],
            "groups": node.group,
            "channels": weight.shape[1],
            "outputs": weight.shape[0] // node.group,
            "kernel": list(weight.shape[2:]),
            "strides": list(node.strides),
            "pads": list(node.pads[:2]),
            "dilations": list(node.dilations),
        }
        fields |= dict(zip(("height", "width", "rows", "columns"), extents, strict=True))
        fields |= _numbers(x, y, node.clamp)
        self._call("conv", fields, self._at(y.name), self._at(x.name), *self._weighted(node))

    def _weighted(self, node: ops.Conv | ops.Gemm) -> tuple[str, str]:
        """Weights as int8, and for each channel bias, zero-point and scale."""
        weight = self._graph.tensor(node.inputs[1])
        data = _data(self._graph, node, 1).view(np.uint8)
        shift = 0 if weight.dtype == "int8" else 128
        channels = np.zeros(len(data), [("bias", "<i4"), ("zero_point", "<i4"), ("scale", "<f4")])
        channels["zero_point"] = weight_quantization(weight).zero_point - shift
        channels["scale"] = require_scales(node_scales(self._graph, node))
        if len(node.inputs) > 2:
            channels["bias"] = _data(self._graph, node, 2)
        return self._constant(data ^ np.uint8(shift)), self._constant(channels)

    def _binary(self, node: ops.Add | ops.Mul, x: Tensor, y: Tensor) -> None:
        other = self._graph.tensor(node.inputs[1])
        fields: dict[str, Any] = {"a_zero_point": x.zero_point, "b_zero_point": other.zero_point}
        fields["out"] = _bounds(y, node.clamp)
        if isinstance(node, ops.Add):
            fields["size"] = y.size
        else:
            fields["rank"], fields["axes"] = self._axes(_walks(self._graph, node)[0])
        places = [self._at(name) for name in (y.name, x.name, other.name)]
        constant = self._constant(require_scales(node_scales(self._graph, node)))
        self._call(node.op.lower(), fields, *places, constant)

    def _mean(
        self,
        node: ops.Requantize | ops.GlobalAveragePool | ops.AveragePool,
        fields: dict[str, Any],
        kernel: Sequence[int] = (1, 1),
        strides: Sequence[int] = (1, 1),
        pads: Sequence[int] = (0, 0),
    ) -> None:
        x, y = self._graph.tensor(node.inputs[0]), self._graph.tensor(node.output)
        fields |= {"kernel": list(kernel), "strides": list(strides), "pads": list(pads[:2])}
        fields |= {"by_count": int(counts_differ(node))} | _numbers(x, y, node.clamp)
        constant = self._constant(require_scales(scale_table(self._graph, node)))
        self._call("average_pool", fields, self._at(y.name), self._at(x.name), constant)

    def _move(self, node: ops.Transpose | ops.Concat | ops.Pad, y: Tensor) -> None:
        start = self._places[y.name]
        if isinstance(node, ops.Pad):
            self._code.calls.append(f"memset(arena + {start}, {y.zero_point}, {y.nbytes});")
            start += node.pads[0] * y.shape[3] + node.pads[1]
        for name, axes in zip(node.inputs, _walks(self._graph, node), strict=True):
            self._direct("copy", *map(str, self._axes(axes)), f"arena + {start}", self._at(name))
            if isinstance(node, ops.Concat):
                start += math.prod(self._graph.tensor(name).shape[node.axis :])

    # -- C ----------------------------------------------------------------------------------------------

    def _at(self, tensor: str) -> str:
        return f"arena + {self._places[tensor]}"

    def _constant(self, array: Array) -> str:
        return f"weights + {self.blob.add(array)}"

    def _axes(self, axes: Sequence[Axis]) -> tuple[int, str]:
        if len(axes) > MAX_AXES:
            raise Unsupported(f"it moves along {len(axes)} axes; the limit is {MAX_AXES}")
        return len(axes), self._declare("axis", "[]", [list(axis) for axis in axes])

    def _declare(self, struct: str, suffix: str, value: Any) -> str:
        name = f"{struct}{self._declared}"
        self._declared += 1
        self._code.declarations.append(
            f"static const struct {struct} {name}{suffix} = {_initialiser(value)};"
        )
        return name

    def _call(self, kernel: str, fields: Mapping[str, Any], *places: str) -> None:
        """A call whose parameters are in a structure of the kernel's name."""
        self._direct(kernel, f"&{self._declare(kernel, '', fields)}", *places)

    def _direct(self, kernel: str, *arguments: str) -> None:
        self.kernels.add(f"{kernel}.c")
        self._code.calls.append(f"{kernel}({', '.join(arguments)});")


def _walks(graph: Graph, node: ops.Mul | ops.Transpose | ops.Concat | ops.Pad) -> list[list[Axis]]:
    """The axes along which each input of a Transpose, Concat or Pad, or the second of a Mul, is walked."""
    x, y = graph.tensor(node.inputs[0]).shape, graph.tensor(node.output).shape
    match node:
        case ops.Mul():
            other = graph.tensor(node.inputs[1]).shape
            steps = [0 if extent == 1 else step for extent, step in zip(other, _steps(other), strict=True)]
            return [_merged(y, _steps(y), steps)]
        case ops.Transpose():
            steps = _steps(x)
            return [_merged(y, _steps(y), [steps[axis] for axis in node.perm])]
        case _:
            shapes = [graph.tensor(name).shape for name in node.inputs]
            return [_merged(shape, _steps(y), _steps(shape)) for shape in shapes]


def _steps(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def _merged(extents: Sequence[int], to: Sequence[int], source: Sequence[int]) -> list[Axis]:
    """The fewest axes that visit the same elements in the same order."""
    merged: list[Axis] = []
    for extent, a, b in zip(extents, to, source, strict=True):
        if extent == 1:
            continue
        if merged and merged[-1][1:] == (a * extent, b * extent):
            extent *= merged.pop()[0]
        merged.append((extent, a, b))
    return merged or [(1, 1, 1)]


def _geometry(x: Tensor, y: Tensor) -> dict[str, Any]:
    names = ("planes", "height", "width", "rows", "columns")
    return dict(zip(names, (x.shape[0] * x.shape[1], *x.shape[2:], *y.shape[2:]), strict=True))


def _numbers(x: Tensor, y: Tensor, clamp: Clamp) -> dict[str, Any]:
    return {"zero_point": x.zero_point, "out": _bounds(y, clamp)}


def _bounds(y: Tensor, clamp: Clamp) -> list[int]:
    return [y.zero_point, clamp[0] - y.zero_point, clamp[1] - y.zero_point]


def _data(graph: Graph, node: Node, index: int) -> Array:
    data = graph.tensor(node.inputs[index]).data
    if data is None:
        raise InternalError(f"{node.inputs[index]} is not a constant", where=f"node {node.name}")
    return data


def _initialiser(value: Any) -> str:
    match value:
        case dict():
            return "{" + ", ".join(f".{name} = {_initialiser(item)}" for name, item in value.items()) + "}"
        case list():
            return "{" + ", ".join(map(_initialiser, value)) + "}"
    return str(value)


def _network(nodes: Sequence[NodeCode]) -> str:
    """The function `step`. No text of the model goes into it: a node's name could be anything, even C."""
    lines = ["", "/* -- the network ---------- */", ""]
    lines += [line for code in nodes for line in code.declarations]
    lines += [
        "",
        "static void step(int32_t index, uint8_t *arena, const uint8_t *weights) {",
        "  (void)weights;",
        "  switch (index) {",
    ]
    for index, one in enumerate(nodes):
        lines += [f"    case {index}: /* {one.node.op} */", *(f"      {call}" for call in one.calls)]
        lines.append("      break;")
    return "\n".join([*lines, "    default:", "      break;", "  }", "}", ""])


def amalgamate(names: Sequence[str], folder: Path = KERNELS) -> str:
    """Files of a folder as one text; what they include comes before them, each file once."""
    texts: dict[str, str] = {}

    def add(name: str) -> None:
        if name not in texts:
            text = (folder / name).read_text(encoding="ascii")
            for included in re.findall(r'^#include "(.+)"\n', text, re.MULTILINE):
                add(included)
            texts[name] = re.sub(r'^#include ".+"\n+', "", text, flags=re.MULTILINE)

    for name in names:
        add(name)
    return "\n".join(texts.values())
