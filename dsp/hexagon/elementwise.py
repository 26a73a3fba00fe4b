"""Operators that treat all elements alike: Add, Mul, and those that are a table of 256 values.

They run on whole vectors of either form, planes or dense bytes, including the undefined bytes between pixels;
where a layer reads the padding it is restored afterwards.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from dsp.hexagon.calls import At, Call, Fields, KernelSource, Layer, range_fields, splat, variant
from dsp.hexagon.layout import is_planar
from dsp.hexagon.moves import Moves
from sdk.arena import ALIGNMENT, align
from sdk.arithmetic import q31, q31_add, scale_ratio
from sdk.errors import InternalError
from sdk.graph import Add, Array, Lookup, Mul, Requantize, Tensor


class Elementwise(Moves):
    """The lowering of these operators."""

    def _operands(self, layer: Layer, y: Tensor, **operands: Tensor) -> dict[str, Any]:
        """Descriptor fields of a node's operands, by the names given, and of its output."""
        fields: dict[str, Any] = {}
        planar = is_planar(y)
        for name, x in operands.items():
            if planar:
                planes = self._planes(layer, x)
                fields[name], fields[f"{name}_plane"] = At(planes.buffer, planes.base), planes.plane
            else:
                fields[name], fields[f"{name}_plane"] = self._dense(layer, x), 0
        if planar:
            target = self._new_planes(y)
            self._finish_planes(layer, y, target)
            out = {"y": At(target.buffer, target.base), "y_plane": target.plane}
            return fields | out | {"vectors": target.vectors, "planes": target.planes}
        at = At(self._buffer(y.name, align(y.size)))
        self._finish_dense(layer, y, at)
        return fields | {"y": at, "y_plane": 0, "vectors": align(y.size) // ALIGNMENT, "planes": 1}

    def _call(self, layer: Layer, kernel: KernelSource, struct: str, y: Tensor, fields: Fields) -> None:
        layer.calls.append(Call(kernel, struct, fields))
        if layer.planes is not None:
            self._pad(layer, y, layer.planes)

    def _add(self, layer: Layer, node: Add, y: Tensor) -> None:
        a, b = (self.graph.tensor(name) for name in node.inputs)
        fields = self._operands(layer, y, a=a, b=b) | {"addition": self._addition(node, a.name, b.name)}
        self._call(layer, KernelSource("elementwise.c", "elementwise_add"), "elementwise_add", y, fields)

    def _addition(self, add: Add, a_name: str, b_name: str) -> Fields:
        a, b, y = (self.graph.tensor(name) for name in (a_name, b_name, add.output))
        k = q31_add(float(scale_ratio(a.scale, over=y.scale)), float(scale_ratio(b.scale, over=y.scale)))
        offset = (1 << (k.shift - 1)) - a.zero_point * k.a_multiplier - b.zero_point * k.b_multiplier
        a_low, b_low = (((multiplier + 128) & 255) - 128 for multiplier in (k.a_multiplier, k.b_multiplier))
        return {
            "a_high": ((k.a_multiplier - a_low) >> 8) * 0x10001,
            "b_high": ((k.b_multiplier - b_low) >> 8) * 0x10001,
            "low_bytes": (a_low & 255) | (b_low & 255) << 8,
            "offset": offset,
            "shift": k.shift,
            **range_fields(y, add.clamp),
        }

    def _mul(self, layer: Layer, node: Mul, y: Tensor) -> None:
        """By a tensor of equal shape, or by one byte per channel of planes; other operands are made equal."""
        a, b = (self.graph.tensor(name) for name in node.inputs)
        per_channel = is_planar(y) and b.shape == (*y.shape[:2], 1, 1)
        if per_channel:
            fields = self._operands(layer, y, a=a) | {"b": self._dense(layer, b), "b_plane": 4}
        else:
            fields = self._operands(layer, y, a=a, b=self._broadcast(layer, b, y))
        constants = q31(float(scale_ratio(a.scale, b.scale, over=y.scale)))
        fields |= {
            "a_zero": splat(a.zero_point),
            "b_zero": splat(b.zero_point),
            "multiplier": constants.multiplier,
            "shift": constants.shift,
            **range_fields(y, node.clamp),
        }
        kernel = variant("mul", {}, {"PER_CHANNEL": per_channel, "SHIFTED": constants.shift > 0})
        self._call(layer, kernel, "mul", y, fields)

    def _broadcast(self, layer: Layer, x: Tensor, y: Tensor) -> Tensor:
        """x, or a copy of it with the shape of y, which lies in step with y."""
        if x.shape == y.shape:
            return x
        strides = [int(np.prod(x.shape[axis + 1 :])) for axis in range(len(x.shape))]
        steps = [0 if extent == 1 else step for extent, step in zip(x.shape, strides, strict=True)]
        name = f"{x.name} for {y.name}"
        while name in self.graph.tensors:
            name += "'"
        wide = dataclasses.replace(x, name=name, shape=y.shape)
        self.dense_form[wide.name] = self._permuted(layer, wide, self._dense(layer, x), y.shape, steps)
        self.pitches.follow(wide.name, y.name)
        return wide

    def _requantize(self, layer: Layer, node: Requantize, y: Tensor) -> None:
        x = self.graph.tensor(node.inputs[0])
        constants = q31(float(scale_ratio(x.scale, over=y.scale)))
        acc = (np.arange(256) - x.zero_point) << constants.shift
        values = ((acc * constants.multiplier + (1 << 30)) >> 31) + y.zero_point
        self._table(layer, x, y, np.clip(values, *node.clamp).astype(np.uint8))

    def _lookup(self, layer: Layer, node: Lookup, y: Tensor) -> None:
        table = self.graph.tensor(node.inputs[1]).data
        if table is None:
            raise InternalError("a table that is not constant", where=f"node {node.name}")
        self._table(layer, self.graph.tensor(node.inputs[0]), y, table)

    def _table(self, layer: Layer, x: Tensor, y: Tensor, table: Array) -> None:
        """A table of 256 bytes; x is uint8."""
        fields = self._operands(layer, y, x=x) | {"table": self.blob.add(table)}
        self._call(layer, KernelSource("elementwise.c", "lookup"), "lookup", y, fields)
