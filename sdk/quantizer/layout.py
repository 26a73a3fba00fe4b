"""What of a float model is quantised, read from the quantised model that onnxruntime made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sdk.extras import require
from sdk.states import Pairs

RENAMED = "_QuantizeLinear_Input"
"""Behind the name of a graph output, in the quantised model, before it is quantised."""


@dataclass(frozen=True)
class Layout:
    """Quantised tensors of a model.

    Attributes:
        groups: tensors that share a scale, by the one that is named for all; in graph order.
        counted: of each group the tensors whose values determine the range.
        ends: those groups that reach a graph output without being quantised again.
        inputs: those groups that hold an input of the graph.
        constants: quantised weights and other constants, as they are once dequantised; biases are left out.
        scales: scale and zero-point of each group, as the file has them.
    """

    groups: Mapping[str, tuple[str, ...]]
    counted: Mapping[str, tuple[str, ...]]
    ends: frozenset[str]
    inputs: frozenset[str]
    constants: Mapping[str, NDArray[np.float32]]
    scales: Mapping[str, tuple[float, int]]

    @property
    def tensors(self) -> tuple[str, ...]:
        """All quantised activations."""
        return tuple(name for members in self.groups.values() for name in members)


def read(prepared: Any, quantized: Any) -> Layout:
    """The layout of `quantized`, which was made of `prepared` (both onnx.ModelProto)."""
    to_array = require("onnx.numpy_helper").to_array
    values = {tensor.name: tensor for tensor in quantized.graph.initializer}
    originals = {tensor.name for tensor in prepared.graph.initializer}
    inputs = {value.name for value in prepared.graph.input} - originals
    activations = inputs.union(*(node.output for node in prepared.graph.node))
    quantizers = {node.output[0]: node for node in quantized.graph.node if node.op_type == "QuantizeLinear"}
    members: dict[str, list[str]] = {}  # by the name of their scale
    parameters: dict[str, tuple[float, int]] = {}
    constants: dict[str, NDArray[np.float32]] = {}
    for node in quantized.graph.node:
        if node.op_type != "DequantizeLinear":
            continue
        source, scale = node.input[0], node.input[1]
        if source in quantizers:
            name = quantizers[source].input[0]
            name = name if name in activations else name.removesuffix(RENAMED)
            if name in activations and name not in members.setdefault(scale, []):
                members[scale].append(name)
                zero = to_array(values[node.input[2]])
                parameters[scale] = (float(to_array(values[scale])), int(zero))
        elif source in values:
            name = source.removesuffix("_quantized")
            integers = to_array(values[source])
            if name in originals and integers.dtype != np.int32:
                constants[name] = _dequantized(node, integers, values)
    order = {name: index for index, name in enumerate(_in_order(prepared))}
    groups: dict[str, tuple[str, ...]] = {}
    scales: dict[str, tuple[float, int]] = {}
    for scale, names in members.items():
        if not names:
            continue
        names.sort(key=lambda name: order[name])
        owner = scale.removesuffix("_scale")
        owner = owner if owner in names else names[0]
        groups[owner], scales[owner] = tuple(names), parameters[scale]
    groups = dict(sorted(groups.items(), key=lambda entry: order[entry[0]]))
    ends = _ends(prepared, {name: owner for owner, names in groups.items() for name in names})
    given = frozenset(owner for owner, names in groups.items() if inputs.intersection(names))
    counted = {owner: (owner,) for owner in groups}
    return Layout(groups, counted, ends, given, constants, scales)


def _in_order(model: Any) -> list[str]:
    return [value.name for value in model.graph.input] + [
        name for node in model.graph.node for name in node.output
    ]


def _dequantized(node: Any, integers: NDArray[Any], values: Mapping[str, Any]) -> NDArray[np.float32]:
    to_array = require("onnx.numpy_helper").to_array
    scale, zero = (to_array(values[name]).astype(np.float32) for name in node.input[1:3])
    if scale.ndim:
        axis = next((entry.i for entry in node.attribute if entry.name == "axis"), 1)
        shape = [1] * integers.ndim
        shape[axis] = -1
        scale, zero = scale.reshape(shape), zero.reshape(shape)
    return np.asarray((integers.astype(np.float32) - zero) * scale, np.float32)


def _ends(model: Any, owners: Mapping[str, str]) -> frozenset[str]:
    """The groups that are the last before a graph output."""
    producers = {name: node for node in model.graph.node for name in node.output}
    ends: set[str] = set()
    waiting = [value.name for value in model.graph.output]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in owners:
            ends.add(owners[name])
        elif name in producers:
            waiting.extend(producers[name].input)
    return frozenset(ends)


def tied(parts: Layout, pairs: Pairs) -> Layout:
    """The layout with one group for both sides of each state (output, input) that is quantised on both."""
    groups, counted = dict(parts.groups), dict(parts.counted)
    ends, inputs = set(parts.ends), set(parts.inputs)
    for output, given in pairs:
        owners = {name: owner for owner, names in groups.items() for name in names}
        kept, joined = owners.get(output), owners.get(given)
        if kept is None or joined is None or kept == joined:
            continue
        groups[kept] += groups.pop(joined)
        counted[kept] += counted.pop(joined)
        ends.add(kept)
        ends.discard(joined)
        inputs.discard(joined)
    return replace(parts, groups=groups, counted=counted, ends=frozenset(ends), inputs=frozenset(inputs))


def is_signed(quantized: Any) -> bool:
    """Whether activations of a quantised model are int8."""
    onnx = require("onnx")
    values = {tensor.name: tensor for tensor in quantized.graph.initializer}
    return any(
        node.op_type == "QuantizeLinear" and values[node.input[2]].data_type == onnx.TensorProto.INT8
        for node in quantized.graph.node
        if len(node.input) > 2 and node.input[2] in values
    )
