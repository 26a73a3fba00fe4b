"""Elementwise operators: sums and products of two activations, bounds, and functions of one (tables).

What depends on one quantised tensor alone, with scalar constants, is a function of its elements, however many
operators it takes: ``x * clip(x + 3, 0, 6) / 6`` is one table.
"""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np
from numpy.typing import NDArray

from sdk.graph import Add, Gemm, Mul, Reshape
from sdk.importers.functions import ARITHMETIC, FUNCTIONS
from sdk.importers.onnx_file import OnnxNode
from sdk.importers.quantization import activation_bias
from sdk.importers.values import UNSET, Constant, QuantizedConstant, Real
from sdk.importers.walk import Walk

# --- two activations ------------------------------------------------------------------------------------


def add(walk: Walk, node: OnnxNode) -> None:
    """The bias of the MatMul before it, a function of one tensor, or the sum of two of equal shape: Add."""
    for index in (0, 1):
        value, other = walk.value(node, index), walk.value(node, 1 - index)
        if not isinstance(value, Real) or not isinstance(other, Constant | QuantizedConstant):
            continue
        if _takes_bias(value) or other.array.size != 1:
            walk.define(node, _matmul_bias(walk, node, value, 1 - index))
            return
    if not _function(walk, node):
        walk.define(node, _sum(walk, node, walk.activation(node, 0), walk.activation(node, 1)))


def mul(walk: Walk, node: OnnxNode) -> None:
    """A function of one tensor, or the product of two, one of which may have extents of 1: Mul."""
    if not _function(walk, node):
        walk.define(node, _product(walk, node, walk.activation(node, 0), walk.activation(node, 1)))


def arithmetic(walk: Walk, node: OnnxNode) -> None:
    """A function of one tensor, with scalar constants: Lookup, joined with what is beside it."""
    if not _function(walk, node):
        raise node.unsupported(
            f"{node.op_type} of two activations", "only Add and Mul are supported; express it with them"
        )


def _sum(walk: Walk, node: OnnxNode, a: str, b: str) -> Real:
    shapes = [list(walk.builder.tensors[name].shape) for name in (a, b)]
    if shapes[0] != shapes[1]:
        raise node.unsupported(
            f"Add of {shapes[0]} and {shapes[1]}: broadcasting is not supported",
            "give both the same shape; only Mul broadcasts",
        )
    return walk.define_operation(node, Add(node.name, (a, b), "", clamp=UNSET))


def _product(walk: Walk, node: OnnxNode, a: str, b: str) -> Real:
    first, second = (walk.builder.tensors[name].shape for name in (a, b))
    if len(first) == len(second):
        if all(y in (x, 1) for x, y in zip(first, second, strict=True)):
            return walk.define_operation(node, Mul(node.name, (a, b), "", clamp=UNSET))
        if all(x in (y, 1) for x, y in zip(first, second, strict=True)):
            return walk.define_operation(node, Mul(node.name, (b, a), "", clamp=UNSET))
    raise node.unsupported(
        f"Mul of {list(first)} and {list(second)}: one must have the other's extents, or 1",
        "broadcast one side only, and give both the same rank",
    )


def _takes_bias(real: Real) -> bool:
    """Whether it is a product without a bias, of which only the rows were given more axes."""
    source, shape = real.source, real.source_shape
    if not isinstance(source, Gemm) or len(source.inputs) != 2 or real.changed_by:
        return False
    rows = all(isinstance(move, Reshape) and to[-1] == shape[-1] for move, to in real.moves)
    return rows and len(real.moves) <= 1


def _matmul_bias(walk: Walk, node: OnnxNode, real: Real, index: int) -> Real:
    """Add of a constant: the bias of the MatMul before it, or refused."""
    source, constant = real.source, walk.value(node, index)
    assert isinstance(constant, Constant | QuantizedConstant)
    if not isinstance(source, Gemm) or not _takes_bias(real):
        raise node.unsupported(
            f"it adds the constant {node.inputs[index]!r}",
            "only the bias of a Conv, Gemm or MatMul, or a scalar, may be constant",
        )
    _check_rank(walk, node, index, len(real.shape))
    tensor = walk.builder.tensors[source.inputs[1]]
    assert tensor.data is not None
    assert tensor.quantization is not None
    weight = QuantizedConstant(tensor.name, tensor.data, tensor.quantization)
    inputs = (*source.inputs, *activation_bias(walk, node, index, source.inputs[0], weight))
    product = walk.define_operation(node, Gemm(source.name, inputs, "", clamp=UNSET))
    return dataclasses.replace(product, shape=real.shape, moves=real.moves)


# --- functions of one tensor ----------------------------------------------------------------------------


def function(walk: Walk, node: OnnxNode) -> None:
    """A function of one tensor: Lookup, joined with what is beside it."""
    x = walk.elements(node, 0)
    assert x.values is not None
    _define(walk, node, x, FUNCTIONS[node.op_type](node, x.values))


def _function(walk: Walk, node: OnnxNode) -> bool:
    """Define the output as a function of one integer tensor's elements, if it is one.

    Raises:
        Unsupported: a constant that is not a scalar.
    """
    inputs = range(len(node.inputs))
    variable = [i for i in inputs if not isinstance(walk.value(node, i), Constant | QuantizedConstant)]
    if node.op_type in ("Add", "Mul") and len(variable) == 2 and all(_plain(walk, node, i) for i in variable):
        return False  # operators of their own
    scalars = {index: _scalar(walk, node, index) for index in inputs if index not in variable}
    views = {index: walk.elements(node, index) for index in variable}
    if not views or len({view.source for view in views.values()}) > 1:
        return False
    x = views[variable[0]]
    for index in scalars:
        _check_rank(walk, node, index, len(x.shape))
    operands = [scalars[i] if i in scalars else views[i].values for i in inputs]
    with np.errstate(all="ignore"):  # infinities saturate, NaN is refused
        values = functools.reduce(ARITHMETIC[node.op_type], operands)  # type: ignore[arg-type]
    _define(walk, node, x, np.asarray(values, np.float32))
    return True


def _plain(walk: Walk, node: OnnxNode, index: int) -> bool:
    """Whether an input is neither a function of a tensor nor bounded."""
    value = walk.value(node, index)
    return not isinstance(value, Real) or value.changed_by == ""


def _scalar(walk: Walk, node: OnnxNode, index: int) -> NDArray[np.float32]:
    """The constant at input `index`: float32 of shape ()."""
    value = walk.value(node, index)
    assert isinstance(value, Constant | QuantizedConstant)
    if value.array.size != 1:
        raise node.unsupported(
            f"{node.op_type} with the constant {node.inputs[index]!r} of shape {list(value.array.shape)}: "
            "only scalars are supported",
            "fold what is per channel into the Conv before it",
        )
    return walk.float_constant(node, index).reshape(())


def _check_rank(walk: Walk, node: OnnxNode, index: int, rank: int) -> None:
    """Refuse a constant that would widen a result of `rank` by axes of extent 1."""
    value = walk.value(node, index)
    assert isinstance(value, Constant | QuantizedConstant)
    if value.array.ndim > rank:
        raise node.unsupported(
            f"the constant {node.inputs[index]!r} has rank {value.array.ndim}, and so would the result",
            f"give it at most {rank} axes",
        )


def _define(walk: Walk, node: OnnxNode, x: Real, values: NDArray[np.float32]) -> None:
    if walk.float_model:  # the range is made up, and may leave what the function is defined for
        values = np.nan_to_num(values)
    walk.define(
        node, dataclasses.replace(x, name=node.output, owner=node.name, values=values, changed_by=node.name)
    )


# --- bounds ---------------------------------------------------------------------------------------------


def relu(walk: Walk, node: OnnxNode) -> None:
    """The range of the operator before it, or Requantize."""
    _bound(walk, node, 0.0, math.inf)


def clip(walk: Walk, node: OnnxNode) -> None:
    """The range of the operator before it, or Requantize."""
    if node.opset < 11:
        low, high = node.number("min", -math.inf), node.number("max", math.inf)
    else:
        low, high = _limit(walk, node, 1, -math.inf), _limit(walk, node, 2, math.inf)
    if math.isnan(low) or math.isnan(high) or low > high:
        raise node.invalid(f"Clip to [{low}, {high}], which is not a range")
    _bound(walk, node, low, high)


def _limit(walk: Walk, node: OnnxNode, index: int, default: float) -> float:
    if walk.optional(node, index) is None:
        return default
    limit = walk.float_constant(node, index)
    if limit.size != 1:
        raise node.invalid(f"its bound {node.inputs[index]!r} is not a scalar")
    return float(limit.reshape(()))


def _bound(walk: Walk, node: OnnxNode, low: float, high: float) -> None:
    value = walk.value(node, 0)
    if not isinstance(value, Real):
        raise node.unsupported(
            f"{node.op_type} of integers or a constant", "put it between DequantizeLinear and QuantizeLinear"
        )
    bounded = value.bounded(low, high, node.name)
    walk.define(node, dataclasses.replace(bounded, name=node.output, owner=node.name))
