"""One integer network with every operator on three shapes, for `towline bench kernels`.

Nothing in it reads what something else computes, but for what is fused: each layer has inputs of its own, so
that its kernels and their counts depend on its own shape alone. Counts do not depend on values; weights are
seeded.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sdk import graph as ops
from sdk.graph import Array, Graph, Node, Quantization, Tensor

SHAPES = ((16, 12, 12), (24, 7, 19), (64, 4, 4))
"""(channels, height, width): whole vectors, odd rows that are none, and few pixels of many channels."""
OUTPUTS = 32
"""Channels of what a product of x computes, where they are not those of x."""

FULL = (0, 255)
ACTIVATION = Quantization.per_tensor(0.05, 128)


def network() -> Graph:
    """The network; a layer is named after its operator and its input's shape."""
    builder = _Builder()
    for shape in SHAPES:
        builder.label = "x".join(map(str, shape))
        builder.add_all(shape)
    return builder.graph()


class _Builder:
    def __init__(self) -> None:
        self.label = ""
        self._random = np.random.default_rng(0)
        self._inputs: list[str] = []
        self._nodes: list[Node] = []
        self._tensors: dict[str, Tensor] = {}

    def graph(self) -> Graph:
        read = {name for node in self._nodes for name in node.inputs}
        outputs = tuple(node.output for node in self._nodes if node.output not in read)
        return Graph("kernels", tuple(self._inputs), outputs, self._tensors, tuple(self._nodes))

    def add_all(self, shape: tuple[int, int, int]) -> None:
        """Every operator on an input of this shape."""
        channels, height, width = shape
        self._conv("conv 1x1", shape, OUTPUTS)
        self._conv("conv 3x3", shape, OUTPUTS, 3)
        self._conv("conv 3x3, stride 2", shape, OUTPUTS, 3, stride=2)
        self._conv("conv 3x3, 3 channels, stride 2", (3, height, width), OUTPUTS, 3, stride=2)
        self._conv("conv 3x3, 2 groups", shape, channels, 3, group=2)
        self._conv("conv of a pixel", (channels, 1, 1), OUTPUTS)
        self._conv("depthwise 3x3", shape, channels, 3, group=channels)
        self._conv("depthwise 3x3, stride 2", shape, channels, 3, stride=2, group=channels)
        self._conv("depthwise 5x5", shape, channels, 5, group=channels)
        self._add("conv 1x1 and add", self._conv("conv 1x1, then add", shape, channels), shape)
        self._lookup("conv 1x1 and lookup", self._conv("conv 1x1, then lookup", shape, channels), shape)
        row = (channels * height * width,)
        self._node(ops.Gemm, "gemm", row, (OUTPUTS,), self._weights("gemm", (OUTPUTS, *row)), clamp=FULL)
        self._add("add", self._input("add", shape), shape)
        self._lookup("lookup", self._input("lookup", shape), shape)
        self._mul("mul", shape, shape)
        self._mul("mul by channel", shape, (channels, 1, 1))
        self._node(ops.Requantize, "requantize", shape, shape, clamp=(128, 255))
        window: dict[str, Any] = {"kernel": (3, 3), "strides": (2, 2), "pads": (0, 0, 0, 0)}
        pooled = (channels, (height - 1) // 2, (width - 1) // 2)
        average = window | {"count_include_pad": False, "clamp": FULL}
        self._node(ops.AveragePool, "average pool 3x3", shape, pooled, **average)
        self._node(ops.MaxPool, "max pool 3x3", shape, pooled, **window, dilations=(1, 1))
        self._node(ops.GlobalAveragePool, "global average pool", shape, (channels, 1, 1), clamp=FULL)
        rows, columns = (tuple(i // 2 for i in range(2 * extent)) for extent in (height, width))
        twice = (channels, 2 * height, 2 * width)
        self._node(ops.Resize, "resize", shape, twice, rows=rows, columns=columns)
        self._node(ops.Transpose, "to NHWC", shape, (height, width, channels), perm=(0, 2, 3, 1))
        self._node(ops.Transpose, "transpose", shape, (channels, width, height), perm=(0, 1, 3, 2))
        self._node(ops.Transpose, "mirror", shape, (width, height, channels), perm=(0, 3, 2, 1))
        self._node(ops.Pad, "pad", shape, (channels, height + 2, width + 2), pads=(1, 1, 1, 1))
        for name, first in (("concat", channels), ("concat behind 5 channels", 5)):
            other = (self._input(f"{name}, other", shape),)
            made = (first + channels, height, width)
            self._node(ops.Concat, name, (first, height, width), made, other, axis=1)

    # -- one layer --------------------------------------------------------------------------------------

    def _conv(
        self,
        name: str,
        shape: tuple[int, int, int],
        outputs: int,
        kernel: int = 1,
        *,
        stride: int = 1,
        group: int = 1,
    ) -> str:
        made = (outputs, *((extent - 1) // stride + 1 for extent in shape[1:]))
        return self._node(
            ops.Conv,
            name,
            shape,
            made,
            self._weights(name, (outputs, shape[0] // group, kernel, kernel)),
            strides=(stride, stride),
            pads=(kernel // 2,) * 4,
            dilations=(1, 1),
            group=group,
            clamp=FULL,
        )

    def _add(self, name: str, x: str, shape: tuple[int, ...]) -> None:
        self._node(ops.Add, name, x, shape, (self._input(f"{name}, other", shape),), clamp=FULL)

    def _mul(self, name: str, shape: tuple[int, ...], factor: tuple[int, ...]) -> None:
        self._node(ops.Mul, name, shape, shape, (self._input(f"{name}, factor", factor),), clamp=FULL)

    def _lookup(self, name: str, x: str, shape: tuple[int, ...]) -> None:
        table = np.arange(256, dtype=np.uint8)[::-1].copy()
        self._node(ops.Lookup, name, x, shape, (self._constant(f"{name}, table", table, ACTIVATION),))

    def _node(
        self,
        operator: type[Node],
        name: str,
        x: str | tuple[int, ...],
        made: tuple[int, ...],
        more: tuple[str, ...] = (),
        **attributes: Any,
    ) -> str:
        """Behind the tensor `x`, or an input of that shape."""
        first = x if isinstance(x, str) else self._input(name, x)
        name = f"{name}, {self.label}"
        self._nodes.append(operator(name, (first, *more), name, **attributes))
        return self._tensor(name, made)

    # -- tensors ----------------------------------------------------------------------------------------

    def _input(self, name: str, shape: tuple[int, ...]) -> str:
        name = self._tensor(f"x of {name}, {self.label}", shape)
        self._inputs.append(name)
        return name

    def _tensor(self, name: str, shape: tuple[int, ...]) -> str:
        self._tensors[name] = Tensor(name, (1, *shape), "uint8", ACTIVATION)
        return name

    def _weights(self, name: str, shape: tuple[int, ...]) -> tuple[str, str]:
        """Weights and biases, by channel; sums use about all of a byte."""
        scale = np.full(shape[:1], 0.05 / math.sqrt(math.prod(shape[1:])), np.float32)
        zeros = np.zeros(shape[:1], np.int32)
        data = self._random.integers(-127, 128, shape, np.int8)
        weight = self._constant(f"weights of {name}", data, Quantization(scale, zeros, 0))
        x = np.float32(ACTIVATION.scale)
        return weight, self._constant(f"bias of {name}", zeros, Quantization(scale * x, zeros, 0))

    def _constant(self, name: str, data: Array, quantization: Quantization) -> str:
        name = f"{name}, {self.label}"
        self._tensors[name] = Tensor(name, data.shape, str(data.dtype), quantization, data)
        return name
