"""A part of an ONNX model: up to named tensors, with some of its inputs made constants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from sdk.errors import UsageError
from sdk.extras import require
from sdk.importers.order import read
from sdk.suggestions import did_you_mean

if TYPE_CHECKING:
    import onnx


def cut(
    model: onnx.ModelProto,
    *,
    outputs: Sequence[str] = (),
    constants: Mapping[str, ArrayLike] | None = None,
    where: str,
) -> None:
    """Change a model in place: other outputs, and inputs of known values. What no output needs goes.

    Args:
        model: the model.
        outputs: names of tensors that nodes compute; none for the model's own outputs.
        constants: values of inputs by name; a number fills an input of any static shape.
        where: the model, for errors.

    Raises:
        UsageError: no node computes an output; no input of that name; a value that does not fit the input.
    """
    if not outputs and not constants:
        return
    for name, value in (constants or {}).items():
        _make_constant(model, name, value, where)
    if outputs:
        _choose_outputs(model, outputs, where)
    _drop_unread(model)


def _make_constant(model: onnx.ModelProto, name: str, value: ArrayLike, where: str) -> None:
    helper = require("onnx.helper")
    filled = {tensor.name for tensor in model.graph.initializer}
    inputs = {given.name: given for given in model.graph.input if given.name not in filled}
    if name not in inputs:
        raise _unknown(f"the model has no input {name!r}", name, inputs, where)
    kind = inputs[name].type.tensor_type
    shape = tuple(dim.dim_value for dim in kind.shape.dim)
    where = f"input {name}"
    try:
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type))
        given = np.asarray(value)
        array = given.astype(dtype)
    except (KeyError, TypeError, ValueError) as problem:
        raise UsageError(
            f"its constant {value!r} is not of the model's type: {problem}", where=where
        ) from None
    if not np.array_equal(array, given, equal_nan=dtype.kind == "f") and dtype.kind in "biu":
        raise UsageError(f"its constant {value!r} is not a {dtype}", where=where)
    fits = len(shape) == array.ndim and all(e in (0, a) for e, a in zip(shape, array.shape, strict=True))
    if not fits:
        if array.size != 1 or min(shape, default=1) < 1:
            raise UsageError(
                f"its constant is {list(array.shape)}, but the model says {list(shape)}", where=where
            )
        array = np.full(shape, array.reshape(()))
    model.graph.input.remove(inputs[name])
    model.graph.initializer.append(require("onnx.numpy_helper").from_array(np.asarray(array), name))


def _choose_outputs(model: onnx.ModelProto, outputs: Sequence[str], where: str) -> None:
    helper, graph = require("onnx.helper"), model.graph
    computed = {name for node in graph.node for name in node.output if name}
    known = {value.name: value for value in (*graph.value_info, *graph.output)}
    chosen = []
    for name in dict.fromkeys(outputs):
        if name not in computed:
            raise _unknown(f"no node computes {name!r}", name, computed, where)
        chosen.append(known.get(name) or helper.make_empty_tensor_value_info(name))
    copies = [type(value).FromString(value.SerializeToString()) for value in chosen]
    del graph.output[:]
    graph.output.extend(copies)


def _unknown(message: str, name: str, known: Iterable[str], where: str) -> UsageError:
    listed = list(known)
    hint = did_you_mean(name, listed) or (f"its names: {', '.join(listed)}" if len(listed) < 20 else "")
    return UsageError(message, where=where, hint=hint or "`towline inspect` lists the nodes")


def _drop_unread(model: onnx.ModelProto) -> None:
    """Remove nodes, inputs and initializers from which no output comes."""
    graph = model.graph
    wanted = {value.name for value in graph.output}
    kept = []
    for node in reversed(graph.node):
        if wanted.intersection(node.output):
            kept.append(node)
            wanted.update(read(node))
    nodes = kept[::-1]
    if len(nodes) != len(graph.node):
        copies = [type(node).FromString(node.SerializeToString()) for node in nodes]
        del graph.node[:]
        graph.node.extend(copies)
    for values in (graph.input, graph.initializer):
        for value in [value for value in values if value.name not in wanted]:
            values.remove(value)
