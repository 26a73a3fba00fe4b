"""Integer graphs with seeded weights, scaled so that every activation uses its range: for contract tests.

The builder evaluates each node with the reference on one random input as it goes, and picks the output's
scale and zero-point from the real values, as a calibration would.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from sdk import reference
from sdk.expression import trace
from sdk.graph import (
    Add,
    AveragePool,
    Concat,
    Conv,
    ConvTranspose,
    Fill,
    Gemm,
    GlobalAveragePool,
    Graph,
    Interpolate,
    Lookup,
    Map,
    MatMul,
    MaxPool,
    Mul,
    Node,
    Pad,
    Quantization,
    Requantize,
    Reshape,
    Resize,
    Slice,
    Take,
    Tensor,
    Transpose,
)
from sdk.shapes import output_shape

RANGES = {"uint8": (0, 255), "int8": (-128, 127)}


class GraphBuilder:
    def __init__(
        self, shape: Sequence[int], *, seed: int = 0, dtype: str = "uint8", zero_point: int | None = None
    ):
        self.random = np.random.default_rng(seed)
        self.dtype = dtype
        self.tensors: dict[str, Tensor] = {}
        self.nodes: list[Node] = []
        self.values: dict[str, np.ndarray] = {}
        low, high = RANGES[dtype]
        zero_point = (low + high) // 2 + 7 if zero_point is None else zero_point
        self.tensors["x"] = Tensor("x", tuple(shape), dtype, Quantization.per_tensor(0.02, zero_point))
        self.values["x"] = self.random.integers(low, high, shape, dtype, endpoint=True)
        self.inputs = ["x"]

    def input(self, name, shape):
        """One more input, of the first one's quantisation."""
        first = self.tensors["x"]
        self.tensors[name] = Tensor(name, tuple(shape), first.dtype, first.quantization)
        self.values[name] = self.random.integers(*RANGES[first.dtype], shape, first.dtype, endpoint=True)
        self.inputs.append(name)
        return name

    def conv(
        self,
        x,
        outputs,
        kernel=1,
        *,
        strides=1,
        pads=0,
        dilations=1,
        group=1,
        relu=False,
        per_channel=True,
        weight_zero_point=None,
    ):
        """With a `weight_zero_point` weights cover their dtype: uint8, or int8 if it is negative."""
        kernel, strides, dilations = _pair(kernel), _pair(strides), _pair(dilations)
        pads = (pads,) * 4 if isinstance(pads, int) else tuple(pads)
        name = f"conv{len(self.nodes)}"
        shape = (outputs, self.tensors[x].shape[1] // group, *kernel)
        names = self._weights(name, x, shape, per_channel, weight_zero_point)
        make = lambda clamp: Conv(name, (x, *names), name, strides, pads, dilations, group, clamp)  # noqa: E731
        return self._requantised(make, relu)

    def depthwise(self, x, kernel=3, **options):
        channels = self.tensors[x].shape[1]
        return self.conv(x, channels, kernel, group=channels, **options)

    def gemm(self, x, outputs, *, relu=False, per_channel=True, weight_zero_point=None):
        name = f"gemm{len(self.nodes)}"
        shape = (outputs, self.tensors[x].shape[1])
        names = self._weights(name, x, shape, per_channel, weight_zero_point)
        return self._requantised(lambda clamp: Gemm(name, (x, *names), name, clamp), relu)

    def matmul(self, *names, transposed=False):
        """Of quantised tensors, as targets of integers have it: its range is all of its dtype."""
        name = f"matmul{len(self.nodes)}"
        return self._requantised(lambda clamp: MatMul(name, names, name, transposed), False)

    def conv_transpose(
        self, x, outputs, kernel, *, strides=1, pads=0, dilations=1, extra=0, group=1, bias=True
    ):
        """On quantised tensors, as targets of integers have it; `extra` is its output_padding."""
        name = f"transposed{len(self.nodes)}"
        shape = (self.tensors[x].shape[1], outputs // group, *_pair(kernel))
        scale = self.random.uniform(0.005, 0.02, shape[1]).astype(np.float32)
        data = self.random.integers(-127, 127, shape, np.int8, endpoint=True)
        quantization = Quantization(scale, np.zeros(shape[1], np.int32), 1)
        self.tensors[f"{name}.w"] = Tensor(f"{name}.w", shape, "int8", quantization, data)
        names = (x, f"{name}.w")
        if bias:
            data = self.random.integers(-9999, 9999, outputs, np.int32)
            quantization = Quantization.per_tensor(1, 0)
            self.tensors[f"{name}.b"] = Tensor(f"{name}.b", (outputs,), "int32", quantization, data)
            names = (*names, f"{name}.b")
        pads = (pads,) * 4 if isinstance(pads, int) else tuple(pads)
        node = ConvTranspose(name, names, name, _pair(strides), pads, _pair(extra), _pair(dilations), group)
        return self._requantised(lambda clamp: node, False)

    def add(self, a, b, *, relu=False):
        name = f"add{len(self.nodes)}"
        return self._requantised(lambda clamp: Add(name, (a, b), name, clamp), relu)

    def mul(self, a, b, *, relu=False):
        name = f"mul{len(self.nodes)}"
        return self._requantised(lambda clamp: Mul(name, (a, b), name, clamp), relu)

    def requantize(self, x, *, relu=False):
        name = f"requantize{len(self.nodes)}"
        return self._requantised(lambda clamp: Requantize(name, (x,), name, clamp), relu)

    def global_average_pool(self, x):
        name = f"gap{len(self.nodes)}"
        return self._requantised(lambda clamp: GlobalAveragePool(name, (x,), name, clamp), False)

    def average_pool(self, x, kernel, *, strides=1, pads=0, count_include_pad=False):
        name = f"avgpool{len(self.nodes)}"
        pads = (pads,) * 4 if isinstance(pads, int) else tuple(pads)
        make = lambda clamp: AveragePool(  # noqa: E731
            name, (x,), name, _pair(kernel), _pair(strides), pads, count_include_pad, clamp
        )
        return self._requantised(make, False)

    def max_pool(self, x, kernel, *, strides=1, pads=0, dilations=1):
        name = f"maxpool{len(self.nodes)}"
        pads = (pads,) * 4 if isinstance(pads, int) else tuple(pads)
        node = MaxPool(name, (x,), name, _pair(kernel), _pair(strides), pads, _pair(dilations))
        source = self.tensors[x]
        shape = output_shape(node, self.tensors)
        return self._append(node, Tensor(name, shape, source.dtype, source.quantization))

    def lookup(self, x, function, *, dtype=None):
        """`function` of real values as a table that uses the whole range of `dtype` (the builder's)."""
        name = f"lookup{len(self.nodes)}"
        source = self.tensors[x]
        dtype = dtype or self.dtype
        low, high = RANGES[dtype]
        first, last = RANGES[source.dtype]
        real = function((np.arange(first, last + 1) - source.zero_point) * source.scale)
        scale = (max(real.max(), 0) - min(real.min(), 0)) / 255
        quantization = Quantization.per_tensor(scale, round(low - min(real.min(), 0) / scale))
        table = np.clip(np.rint(real / scale) + quantization.zero_point, low, high).astype(dtype)
        self.tensors[f"{name}.t"] = Tensor(f"{name}.t", (256,), dtype, quantization, table)
        output = Tensor(name, source.shape, dtype, quantization)
        return self._append(Lookup(name, (x, f"{name}.t"), name), output)

    def map(self, function, *inputs, constants=()):
        """`function` of the real values of activations, then of float32 constants."""
        name = f"map{len(self.nodes)}"
        names = [f"{name}.{i}" for i in range(len(constants))]
        for constant, data in zip(names, constants, strict=True):
            data = np.asarray(data, np.float32)
            self.tensors[constant] = Tensor(constant, data.shape, "float32", None, data)
        expression = trace(function, *["real"] * (len(inputs) + len(constants)))
        return self._requantised(lambda _: Map(name, (*inputs, *names), name, expression), False)

    def concat(self, *parts, axis=1):
        """The parts must share their quantisation; `alike` gives them the same."""
        name = f"concat{len(self.nodes)}"
        return self._moved(Concat(name, parts, name, axis))

    def alike(self, x, other):
        """x in the dtype and quantisation of `other`."""
        name = f"alike{len(self.nodes)}"
        target = self.tensors[other]
        node = Requantize(name, (x,), name, RANGES[target.dtype])
        tensor = Tensor(name, self.tensors[x].shape, target.dtype, target.quantization)
        return self._append(node, tensor)

    def resize(self, x, rows, columns):
        name = f"resize{len(self.nodes)}"
        return self._moved(Resize(name, (x,), name, tuple(rows), tuple(columns)))

    def transpose(self, x, perm):
        name = f"transpose{len(self.nodes)}"
        return self._moved(Transpose(name, (x,), name, tuple(perm)))

    def pad(self, x, pads):
        name = f"pad{len(self.nodes)}"
        return self._moved(Pad(name, (x,), name, tuple(pads)))

    def slice(self, x, starts, counts, steps=None):
        name = f"slice{len(self.nodes)}"
        node = Slice(name, (x,), name, tuple(starts), tuple(steps or (1,) * len(starts)))
        return self._append(node, self._like(x, name, counts))

    def take(self, x, *indices):
        """A list for each axis, empty for all of it."""
        name = f"take{len(self.nodes)}"
        node = Take(name, (x,), name, tuple(map(tuple, indices)))
        counts = [len(own) or n for own, n in zip(indices, self.tensors[x].shape, strict=True)]
        return self._append(node, self._like(x, name, counts))

    def fill(self, x, befores, afters, value, quantization=None):
        """On integers, as targets of integers have it."""
        name = f"fill{len(self.nodes)}"
        node = Fill(name, (x,), name, tuple(befores), tuple(afters), value)
        extents = map(sum, zip(befores, self.tensors[x].shape, afters, strict=True))
        return self._append(node, self._like(x, name, extents, quantization))

    def interpolate(self, x, rows, columns, quantization=None):
        """On integers; `rows` and `columns` are (indices, weights), both [outputs, taps]."""
        name = f"interpolate{len(self.nodes)}"
        names = [f"{name}.{part}" for part in ("rows", "row_weights", "columns", "column_weights")]
        for constant, data in zip(names, (*rows, *columns), strict=True):
            self.tensors[constant] = Tensor(constant, data.shape, str(data.dtype), None, data)
        node = Interpolate(name, (x, *names), name)
        return self._append(node, self._like(x, name, output_shape(node, self.tensors), quantization))

    def _like(self, x, name, shape, quantization=None):
        source = self.tensors[x]
        return Tensor(name, tuple(shape), source.dtype, quantization or source.quantization)

    def reshape(self, x, shape=None):
        name = f"reshape{len(self.nodes)}"
        source = self.tensors[x]
        shape = shape or (1, math.prod(source.shape))
        return self._append(Reshape(name, (x,), name), Tensor(name, shape, source.dtype, source.quantization))

    def graph(self, *outputs: str) -> Graph:
        outputs = outputs or (self.nodes[-1].output,)
        return Graph("test", tuple(self.inputs), outputs, self.tensors, tuple(self.nodes))

    def _moved(self, node):
        source = self.tensors[node.inputs[0]]
        shape = output_shape(node, self.tensors)
        return self._append(node, Tensor(node.output, shape, source.dtype, source.quantization))

    def _weights(self, name, x, shape, per_channel, zero_point=None):
        channels = shape[0]
        dtype, bounds = "int8", (-127, 128)
        if zero_point is not None:
            dtype, bounds = ("uint8", (0, 256)) if zero_point >= 0 else ("int8", (-128, 128))
        weight = self.random.integers(*bounds, shape, dtype)
        scale = self.random.uniform(0.002, 0.01, channels if per_channel else ()).astype(np.float32)
        source_scale = np.float32(self.tensors[x].scale)
        fan_in = math.prod(shape[1:])
        bias = self.random.integers(-100, 101, channels) * int(math.sqrt(fan_in) * 64)
        axis = 0 if per_channel else None
        zeros = np.zeros(scale.shape, np.int32)
        self.tensors[f"{name}.w"] = Tensor(
            f"{name}.w", shape, dtype, Quantization(scale, zeros + np.int32(zero_point or 0), axis), weight
        )
        self.tensors[f"{name}.b"] = Tensor(
            f"{name}.b",
            (channels,),
            "int32",
            Quantization(scale * source_scale, zeros, axis),
            bias.astype(np.int32),
        )
        return f"{name}.w", f"{name}.b"

    def _requantised(self, make, relu):
        """Choose the output's quantisation from a trial in which nothing saturates much."""
        low, high = RANGES[self.dtype]
        node = make((low, high))
        shape = output_shape(node, self.tensors)
        scale = self.tensors[node.inputs[0]].scale / 16
        while True:
            self.tensors[node.output] = Tensor(
                node.output, shape, self.dtype, Quantization.per_tensor(scale, (low + high + 1) // 2)
            )
            value = self._evaluate(node).astype(np.int32)
            if np.mean((value == low) | (value == high)) < 0.05:
                break
            scale *= 1.5
        zero_point = low if relu else int(self.random.integers(low + 90, high - 90))
        quantization = Quantization.per_tensor(scale * (0.5 if relu else 1), zero_point)
        clamp = (zero_point, high - 20) if relu else (low, high)
        return self._append(make(clamp), Tensor(node.output, shape, self.dtype, quantization))

    def _evaluate(self, node):
        graph = Graph("trial", ("x",), (node.output,), self.tensors, (*self.nodes, node))
        return reference.evaluate(graph, node, self.values, "q31")

    def _append(self, node, tensor):
        self.tensors[tensor.name] = tensor
        self.values[tensor.name] = self._evaluate(node)
        self.nodes.append(node)
        return tensor.name


def together(graphs: Mapping[str, Graph]) -> Graph:
    """Networks side by side in one, their names behind the keys."""

    def renamed(key, names):
        return tuple(f"{key} {name}" for name in names)

    tensors, nodes, inputs, outputs = {}, [], (), ()
    for key, graph in graphs.items():
        for tensor in graph.tensors.values():
            tensors[f"{key} {tensor.name}"] = dataclasses.replace(tensor, name=f"{key} {tensor.name}")
        for node in graph.nodes:
            (name, output), given = renamed(key, (node.name, node.output)), renamed(key, node.inputs)
            nodes.append(dataclasses.replace(node, name=name, inputs=given, output=output))
        inputs, outputs = inputs + renamed(key, graph.inputs), outputs + renamed(key, graph.outputs)
    return Graph("together", inputs, outputs, tensors, tuple(nodes))


def mobilenet_v2(size=224, width=1.0, classes=1000, **options) -> Graph:
    """The integer body of a MobileNetV2 with seeded weights."""
    builder = GraphBuilder((1, 3, size, size), **options)

    def round8(channels):
        return max(8, int(channels * width + 4) // 8 * 8)

    x = builder.conv("x", round8(32), 3, strides=2, pads=1, relu=True)
    groups = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )
    for expand, channels, repeat, stride in groups:
        for i in range(repeat):
            block, y = x, x
            if expand > 1:
                y = builder.conv(y, builder.tensors[y].shape[1] * expand, relu=True)
            y = builder.depthwise(y, strides=stride if i == 0 else 1, pads=1, relu=True)
            y = builder.conv(y, round8(channels))
            x = builder.add(y, block) if i else y
    x = builder.conv(x, max(1280, round8(1280)), relu=True)
    x = builder.reshape(builder.global_average_pool(x))
    return builder.graph(builder.gemm(x, classes))


def _pair(value):
    return (value, value) if isinstance(value, int) else tuple(value)
