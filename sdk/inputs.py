"""What a network is given: arrays, checked to be what it takes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sdk import dtypes
from sdk.errors import InvalidInput
from sdk.graph import Array, Graph, Quantize, Tensor


def check_inputs(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The inputs by name, in the graph's order, checked to be what the graph takes.

    Args:
        graph: whose inputs they are.
        inputs: arrays, or what numpy makes arrays of, of the inputs' shapes. A float32 input takes any
            floating-point dtype whose values float32 has room for; an integer input its own dtype alone.

    Returns:
        Arrays of exactly the inputs' shapes and dtypes.

    Raises:
        InvalidInput: a wrong name, shape or dtype, a value out of range, or a NaN that is to be quantised.
    """
    for name in inputs:
        if name not in graph.inputs:
            hint = f"the inputs are: {', '.join(graph.inputs)}"
            raise InvalidInput(f"the network has no input named {name!r}", where=graph.name, hint=hint)
    quantized = {node.inputs[0] for node in graph.nodes if isinstance(node, Quantize)}
    arrays = {}
    for name in graph.inputs:
        where, tensor = f"input {name}", graph.tensor(name)
        if name not in inputs:
            raise InvalidInput("no array was given for it", where=where)
        try:
            array = np.asarray(inputs[name])
        except ValueError as problem:  # rows of different lengths
            raise InvalidInput(f"is not an array: {problem}", where=where) from problem
        if array.shape != tensor.shape:
            raise InvalidInput(
                f"shape {list(array.shape)}, expected {list(tensor.shape)}",
                where=where,
                hint=_shape_hint(array.shape, tensor),
            )
        array = _cast(array, tensor, where)
        if name in quantized and np.isnan(array).any():
            raise InvalidInput("it holds NaN, which has no quantised value", where=where)
        arrays[name] = array
    return arrays


def _shape_hint(shape: tuple[int, ...], tensor: Tensor) -> str | None:
    """What to do about the usual wrong shapes: several samples, one without a batch axis, NHWC for NCHW."""
    name, expected = tensor.name, tensor.shape
    if shape[1:] == expected[1:] and expected[:1] == (1,):
        return (
            f"{shape[0]} samples: run them one after the other, run({{{name!r}: array[i : i + 1]}}); or "
            f"quantise and compile with --input-shape {name}={'x'.join(map(str, shape))} for the target c"
        )
    if (1, *shape) == expected:
        return "the batch axis is missing: array[numpy.newaxis]"
    if len(shape) == len(expected) == 4 and tuple(shape[axis] for axis in (0, 3, 1, 2)) == expected:
        return "the channels come second: array.transpose(0, 3, 1, 2)"
    return None


def _cast(array: Array, tensor: Tensor, where: str) -> Array:
    """The array in the tensor's dtype: floats are rounded, integers must be of it already."""
    dtype = dtypes.storage(tensor.dtype)
    if array.dtype == dtype:
        return array
    if dtype.kind == array.dtype.kind == "f":
        with np.errstate(over="ignore"):
            result = array.astype(dtype)
        if (np.isinf(result) & ~np.isinf(array)).any():
            raise InvalidInput(f"holds values beyond the range of {dtype}", where=where)
        return result
    hint = None
    if dtype.kind == "f" and array.dtype.kind in "iu":
        hint = (
            "real values are expected, which whole numbers seldom are: for pixels use Session.prepare, "
            "else array.astype('float32')"
        )
    raise InvalidInput(f"dtype {array.dtype}, expected {tensor.dtype}", where=where, hint=hint)


def zero_point_inputs(graph: Graph) -> dict[str, Array]:
    """Inputs of a program, all of whose elements are their tensors' zero-points, or zeros."""
    found = {}
    for tensor in (graph.tensor(name) for name in graph.inputs):
        value = 0 if tensor.quantization is None else tensor.zero_point
        found[tensor.name] = np.full(tensor.shape, value, dtypes.storage(tensor.dtype))
    return found
