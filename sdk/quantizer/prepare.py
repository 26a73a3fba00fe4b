"""A float model made ready for the quantiser: read, checked, normalisation and constants folded.

What comes out has one node per computation that is quantised: batch normalisation is in its convolution, a
bias in its product, and the functions of one tensor (`sdk.quantizer.islands`) are known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sdk.errors import Refusal, Unsupported, UsageError
from sdk.extras import require
from sdk.importers import check_float, is_quantized, read_onnx, survey
from sdk.importers.cutting import cut
from sdk.ort import first_line, quantising
from sdk.quantizer import islands
from sdk.quantizer.calibration import Input, Shape
from sdk.quantizer.islands import Islands

OPSET = 13
IR_VERSION = 8


def read_float(
    where: str,
    input_shapes: Mapping[str, Shape] | None = None,
    outputs: Sequence[str] = (),
    constants: Mapping[str, ArrayLike] | None = None,
) -> Any:
    """The float model, cut and checked.

    The model gets static shapes, no constants among its inputs (which IR versions before 4 demand and the
    tools refuse), and an opset that has per-channel quantisation.
    """
    onnx = require("onnx")
    model = read_onnx(where)
    cut(model, outputs=outputs, constants=constants, where=where)
    filled = {tensor.name for tensor in model.graph.initializer}
    for value in [value for value in model.graph.input if value.name in filled]:
        model.graph.input.remove(value)
    model.ir_version = max(model.ir_version, IR_VERSION)
    check(model, input_shapes)
    _widen(model.graph)
    _set_shapes(model, input_shapes or {})
    opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), OPSET)
    if opset < OPSET:
        try:
            require("onnx.version_converter")
            model = onnx.version_converter.convert_version(model, OPSET)
        except Exception as problem:  # its C++ raises anything
            raise Unsupported(
                f"opset {opset} cannot be converted to {OPSET}: {first_line(problem)}",
                where=where,
                hint=f"export the model again with opset {OPSET} or newer",
            ) from problem
    return model


def check(
    model: Any, input_shapes: Mapping[str, Shape] | None = None, folder: Path | None = None
) -> tuple[Refusal, ...]:
    """Refuse what could not be compiled: an operator needs a quantised form, or one on floats.

    Args:
        model: onnx.ModelProto, float.
        input_shapes: static shapes of dynamic inputs, by input name.
        folder: of the model, where its external data was not read.

    Returns:
        The nodes that have only one on floats, and why.

    Raises:
        UsageError, InvalidModel, Unsupported: as `sdk.importers.check_float`.
    """
    try:
        return check_float(model, input_shapes=input_shapes, folder=folder)
    except Unsupported as problem:
        if is_quantized(model) or survey(model, input_shapes=input_shapes, folder=folder):
            raise
        return problem.refusals


def _widen(graph: Any) -> None:
    """Make every float16 tensor float32, inputs and outputs of the network included."""
    onnx = require("onnx")
    half, single = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT

    def widen(tensor: Any) -> None:
        if tensor.data_type == half:
            array = onnx.numpy_helper.to_array(tensor).astype(np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))

    for tensor in graph.initializer:
        widen(tensor)
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type == half:
            value.type.tensor_type.elem_type = single
    for node in graph.node:
        for entry in node.attribute:
            if entry.type == onnx.AttributeProto.TENSOR:
                widen(entry.t)
            elif entry.type == onnx.AttributeProto.GRAPH:
                _widen(entry.g)
            elif entry.name in ("to", "dtype") and entry.i == half:
                entry.i = single


def _set_shapes(model: Any, shapes: Mapping[str, Shape]) -> None:
    """Write the static input shapes into the model, and let inference find the rest again."""
    given = {value.name: value for value in model.graph.input}
    for name, shape in shapes.items():
        if name not in given:
            raise UsageError(f"the model has no input {name!r}", hint=f"its inputs: {', '.join(given)}")
        dims = given[name].type.tensor_type.shape
        dims.ClearField("dim")
        for size in shape:
            dims.dim.add().dim_value = size
    if shapes:
        del model.graph.value_info[:]
        for value in model.graph.output:
            value.type.tensor_type.ClearField("shape")


def inputs_of(model: Any, where: str) -> dict[str, Input]:
    """The inputs of a model with static shapes.

    Raises:
        Unsupported: a scalar, or something that numpy has no dtype for.
    """
    onnx = require("onnx")
    inputs: dict[str, Input] = {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
        if dtype.kind not in "fiub" or dtype == np.float64:
            raise Unsupported(
                f"the network's input is {dtype}",
                where=f"{where}: input {value.name}",
                hint="inputs are float32, float16, integers or bool",
            )
        if not kind.shape.dim:
            raise Unsupported("the network's input is a scalar", where=f"{where}: input {value.name}")
        inputs[value.name] = Input(tuple(dim.dim_value for dim in kind.shape.dim), dtype.name)
    return inputs


def prepare(model: Any, directory: Path, where: str) -> tuple[Any, Islands, tuple[Refusal, ...]]:
    """Batch normalisation folded, constants folded, shapes inferred, biases joined to what they belong to:
    the float model to quantise; the functions in it that are to be kept whole; and its nodes that stay float.
    """
    onnx = require("onnx")
    preprocess = require("onnxruntime.quantization.shape_inference").quant_pre_process
    raw, prepared = directory / "float.onnx", directory / "prepared.onnx"
    with quantising("prepare the model", where, directory):
        onnx.save(model, raw)
        preprocess(str(raw), str(prepared), skip_symbolic_shape=True)
        result = onnx.load(prepared)
        _join_biases(result.graph)
        _separate_constants(result.graph)
        _name_nodes(result.graph)
        stays_float = check(result)
        functions = islands.find(result)
        onnx.save(result, prepared)
        return result, functions, stays_float


def _join_biases(graph: Any) -> None:
    """Make one Gemm of a MatMul and the constant added to it, which onnxruntime does for a bias [N] only."""
    constants = {tensor.name for tensor in graph.initializer}
    matrices = {
        node.output[0]: node
        for node in graph.node
        if node.op_type == "MatMul" or (node.op_type == "Gemm" and not any(node.input[2:]))
    }
    for node in graph.node:
        if node.op_type != "Add":
            continue
        for product, bias in (tuple(node.input), tuple(reversed(node.input))):
            if product in matrices and bias in constants:
                node.op_type = "Gemm"
                node.input[:] = [*matrices[product].input[:2], bias]
                node.attribute.extend(matrices[product].attribute)
    needed = {value.name for value in graph.output}.union(*(node.input for node in graph.node))
    for product, node in matrices.items():
        if product not in needed:
            graph.node.remove(node)


def _separate_constants(graph: Any) -> None:
    """Give every weight and bias a single reader, and every Gemm's bias the shape [N].

    onnxruntime's quantiser takes no other shape, and its exact kernels replace weights in place, which fails
    at the second reader.
    """
    helper = require("onnx.numpy_helper")
    arrays = {tensor.name: helper.to_array(tensor) for tensor in graph.initializer}
    readers = Counter(name for node in graph.node for name in node.input)
    for node in graph.node:
        if node.op_type not in ("Conv", "Gemm", "MatMul"):
            continue
        for index, name in list(enumerate(node.input))[1:]:
            if name not in arrays:
                continue
            array = arrays[name]
            if node.op_type == "Gemm" and index == 2:
                transposed = any(entry.name == "transB" and entry.i for entry in node.attribute)
                columns = arrays[node.input[1]].shape[0 if transposed else 1]
                array = np.broadcast_to(array.reshape(-1), (columns,))
            if readers[name] > 1 or array.shape != arrays[name].shape:
                readers[name] -= 1
                node.input[index] = own = f"{name}.{node.output[0]}.{index}"
                arrays[own] = array
                graph.initializer.append(helper.from_array(array, own))
    for tensor in [tensor for tensor in graph.initializer if readers.get(tensor.name) == 0]:
        graph.initializer.remove(tensor)


def _name_nodes(graph: Any) -> None:
    """Give every node a name of its own, by which it can be kept in floats."""
    taken: set[str] = set()
    for node in graph.node:
        if not node.name or node.name in taken:
            names = chain([node.output[0]], (f"{node.output[0]}.{number}" for number in count()))
            node.name = next(name for name in names if name not in taken)
        taken.add(node.name)
