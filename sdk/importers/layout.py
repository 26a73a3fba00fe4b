"""What moves elements and changes none: Reshape and its kin, Transpose, Concat, Resize, Pad.

All but Concat are moves of a recipe (`sdk.importers.values`); a Concat's inputs take its output's scale.
"""

from __future__ import annotations

import dataclasses
import math

from sdk.graph import Pad, Quantization, Reshape, Transpose
from sdk.importers.onnx_file import OnnxNode
from sdk.importers.resize import nearest
from sdk.importers.values import Constant, Parts, Quantized, QuantizedConstant, Real
from sdk.importers.walk import Walk


def shape_of(walk: Walk, node: OnnxNode) -> tuple[int, ...]:
    return walk.real(node, 0).shape


def flatten(walk: Walk, node: OnnxNode) -> None:
    """Reshape."""
    shape = shape_of(walk, node)
    axis = node.integer("axis", 1)
    if not -len(shape) <= axis <= len(shape):
        raise node.invalid(f"axis {axis} is out of range for rank {len(shape)}")
    axis = axis + len(shape) if axis < 0 else axis
    _reshape_to(walk, node, (math.prod(shape[:axis]), math.prod(shape[axis:])))


def reshape(walk: Walk, node: OnnxNode) -> None:
    """Reshape."""
    shape = shape_of(walk, node)
    wanted = walk.constant(node, 1).reshape(-1).tolist()
    if not node.integer("allowzero", 0):
        wanted = [shape[i] if extent == 0 and i < len(shape) else extent for i, extent in enumerate(wanted)]
    if wanted.count(-1) == 1:
        rest = -math.prod(wanted)
        wanted[wanted.index(-1)] = math.prod(shape) // rest if rest > 0 else 0
    _reshape_to(walk, node, tuple(wanted))


def squeeze(walk: Walk, node: OnnxNode) -> None:
    """Reshape."""
    shape = shape_of(walk, node)
    axes = axes_of(walk, node, since=13)
    if axes is None:
        axes = tuple(i for i, extent in enumerate(shape) if extent == 1)
    dropped = in_range(node, axes, len(shape))
    if any(shape[axis] != 1 for axis in dropped):
        raise node.invalid(f"Squeeze of axes {list(axes)} of {list(shape)}: their extents must be 1")
    _reshape_to(walk, node, tuple(extent for i, extent in enumerate(shape) if i not in dropped))


def unsqueeze(walk: Walk, node: OnnxNode) -> None:
    """Reshape."""
    shape = shape_of(walk, node)
    axes = axes_of(walk, node, since=13) or ()
    rank = len(shape) + len(axes)
    added, rest = set(in_range(node, axes, rank)), iter(shape)
    if len(added) != len(axes):
        raise node.invalid(f"Unsqueeze of axes {list(axes)}")
    _reshape_to(walk, node, tuple(1 if i in added else next(rest) for i in range(rank)))


def _reshape_to(walk: Walk, node: OnnxNode, shape: tuple[int, ...]) -> None:
    before = shape_of(walk, node)
    if min(shape, default=1) < 1 or math.prod(shape) != math.prod(before):
        raise node.invalid(f"{node.op_type} of {list(before)} to {list(shape)}")
    walk.move(node, 0, Reshape(node.name, (), ""), shape)


def axes_of(walk: Walk, node: OnnxNode, *, since: int) -> tuple[int, ...] | None:
    """The axes: an attribute before opset `since`, then an input."""
    if node.opset < since:
        return node.integers("axes")
    return None if walk.optional(node, 1) is None else tuple(walk.constant(node, 1).reshape(-1).tolist())


def in_range(node: OnnxNode, axes: tuple[int, ...], rank: int) -> list[int]:
    """The axes of a value of that rank, counted from the front."""
    if not all(-rank <= axis < rank for axis in axes):
        raise node.invalid(f"{node.op_type} of axes {list(axes)} of rank {rank}")
    return [axis % rank for axis in axes]


# --- order ----------------------------------------------------------------------------------------------


def transpose(walk: Walk, node: OnnxNode) -> None:
    """Transpose; of a weight, done when it is read."""
    value = walk.value(node, 0)
    rank = value.array.ndim if isinstance(value, QuantizedConstant | Constant) else len(shape_of(walk, node))
    order = node.integers("perm") or tuple(reversed(range(rank)))
    if sorted(order) != list(range(rank)):
        raise node.invalid(f"perm {list(order)} is not a permutation for rank {rank}")
    if isinstance(value, QuantizedConstant):
        walk.define(node, permuted(value, order))
    else:
        walk.move(node, 0, Transpose(node.name, (), "", order))


def permuted(constant: QuantizedConstant, order: tuple[int, ...]) -> QuantizedConstant:
    """The constant with its axes in another order, its channel axis following."""
    old = constant.quantization
    axis = None if old.axis is None else order.index(old.axis)
    quantization = Quantization(old.scale, old.zero_point, axis)
    return QuantizedConstant(constant.name, constant.array.transpose(order), quantization)


# --- joining --------------------------------------------------------------------------------------------


def concat(walk: Walk, node: OnnxNode) -> None:
    """Concat; inputs of another scale than the result get a Requantize."""
    values = [walk.value(node, index) for index in range(len(node.inputs))]
    if all(isinstance(value, Quantized) for value in values):
        names = [walk.activation(node, index) for index in range(len(values))]
        tensor = walk.builder.tensors[names[0]]
        for name in names[1:]:
            other = walk.builder.tensors[name]
            assert tensor.quantization is not None
            assert other.quantization is not None
            if other.dtype != tensor.dtype or not other.quantization.equals(tensor.quantization):
                raise node.invalid(f"it joins integers of different scales: {names[0]!r} and {name!r}")
        assert tensor.quantization is not None
        real = _joined(walk, node, [walk.real(node, index) for index in range(len(values))])
        walk.quantize(node, real, tensor.dtype, tensor.quantization)
        return
    for index, value in enumerate(values):
        if not isinstance(value, Real) or walk.float_model:
            walk.activation(node, index)
        if isinstance(value, Quantized):
            raise node.invalid(f"it joins float values with the integers {node.inputs[index]!r}")
    walk.define(node, _joined(walk, node, [walk.real(node, index) for index in range(len(values))]))


def _joined(walk: Walk, node: OnnxNode, reals: list[Real]) -> Real:
    first = reals[0].shape
    axis = node.integer("axis", 0)
    if not -len(first) <= axis < len(first):
        raise node.invalid(f"axis {axis} of inputs of rank {len(first)}")
    axis %= len(first)
    if len(reals) == 1:
        return dataclasses.replace(reals[0], name=node.output, owner=node.name)
    for real in reals:
        rest = [extent for i, extent in enumerate(real.shape) if i != axis]
        if len(real.shape) != len(first) or rest != [e for i, e in enumerate(first) if i != axis]:
            raise node.invalid(f"Concat of {list(first)} and {list(real.shape)} along axis {axis}")
    shape = (*first[:axis], sum(real.shape[axis] for real in reals), *first[axis + 1 :])
    return Real(node.output, node.name, shape, Parts(node.name, tuple(reals), axis), shape)


# --- size -----------------------------------------------------------------------------------------------


def resize(walk: Walk, node: OnnxNode) -> None:
    """Resize of H and W by the nearest neighbour, any coordinate and rounding mode but a crop."""
    walk.move(node, 0, nearest(walk, node, shape_of(walk, node)))


def pad(walk: Walk, node: OnnxNode) -> None:
    """Pad of H and W with zeros, folded into the Conv or pool behind it."""
    shape = shape_of(walk, node)
    mode = node.text("mode", "constant")
    if mode != "constant":
        raise node.unsupported(f"Pad with mode {mode!r}", "pad with zeros, mode 'constant'")
    pads = _pads(walk, node, len(shape))
    others = [pads[i] for i in range(2 * len(shape)) if i % len(shape) < 2] if len(shape) == 4 else list(pads)
    if any(others):
        raise node.unsupported(f"Pad by {list(pads)} of {list(shape)}: only H and W of [N,C,H,W] are padded")
    if min(pads) < 0:
        raise node.unsupported(f"negative pads {list(pads)}", "cropping is not supported")
    if not any(pads):
        walk.alias(node)
        return
    value = _pad_value(walk, node)
    if value != 0:
        raise node.unsupported(f"Pad with the value {value:g}", "pad with 0, or in the pool itself")
    walk.move(node, 0, Pad(node.name, (), "", (pads[2], pads[3], pads[6], pads[7])))


def _pads(walk: Walk, node: OnnxNode, rank: int) -> tuple[int, ...]:
    """Pads of all axes, at their beginnings and then at their ends."""
    if node.opset < 11:
        given = node.integers("pads") or ()
    else:
        given = tuple(int(extent) for extent in walk.constant(node, 1).reshape(-1))
    axes = list(range(rank))
    if walk.optional(node, 3) is not None:
        axes = in_range(node, tuple(walk.constant(node, 3).reshape(-1).tolist()), rank)
    if len(given) != 2 * len(axes):
        raise node.invalid(f"pads {list(given)} of {len(axes)} axes")
    pads = [0] * (2 * rank)
    for i, axis in enumerate(axes):
        pads[axis], pads[axis + rank] = given[i], given[i + len(axes)]
    return tuple(pads)


def _pad_value(walk: Walk, node: OnnxNode) -> float:
    """The border's value in real units."""
    if node.opset < 11:
        return node.number("value", 0.0)
    value, x = walk.optional(node, 2), walk.value(node, 0)
    if isinstance(value, Constant | QuantizedConstant) and value.array.size != 1:
        raise node.invalid(f"its value {node.inputs[2]!r} is not a scalar")
    if isinstance(x, Quantized):  # integers are padded with an integer
        quantization = walk.builder.tensors[x.tensor].quantization
        assert quantization is not None
        integer = 0 if value is None else int(walk.constant(node, 2).reshape(()))
        return float((integer - quantization.zero_point) * quantization.scale)
    return 0.0 if value is None else float(walk.float_constant(node, 2).reshape(()))
