"""ONNX in: a model, quantised or float or both, becomes the graph.

One loop over the nodes. Where a node reads views of quantised tensors, the handlers of
`sdk.importers.operators` make it an integer operator; where they cannot, and wherever it reads plain tensors,
those of `sdk.importers.plain` convert it. What is refused is refused all at once. `check_float` is the same
loop over a float model that is to be quantised: every operator's result is quantised in place with a made-up
scale, and what has no quantised form stays plain, if it has a plain one.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from sdk.errors import InvalidModel, Refusal, Unsupported
from sdk.extras import require
from sdk.graph import Graph, Reshape, Tensor
from sdk.importers.cutting import cut
from sdk.importers.folding import Kind, fold, inferred, kind_of
from sdk.importers.input_shapes import static_shapes
from sdk.importers.joining import join
from sdk.importers.onnx_file import (
    OnnxNode,
    decode_node,
    element_name,
    is_quantized,
    opset_versions,
    read_onnx,
    skeleton,
    to_array,
    upgraded,
)
from sdk.importers.operators import OPERATORS, Handler, refuse
from sdk.importers.order import sort_nodes
from sdk.importers.plain import convert_plain, is_known
from sdk.importers.qlinear import INDICES, KEEP_SCALE, QLINEAR, of_integers
from sdk.importers.quantization import input_quantization
from sdk.importers.values import (
    Constant,
    Plain,
    Quantized,
    QuantizedConstant,
    Real,
    Tensors,
    Unknown,
    constant_tensor,
    dequantized,
)
from sdk.importers.walk import Walk
from sdk.passes import eliminate_dead
from sdk.verification import STORED, require_size, verify

if TYPE_CHECKING:
    import onnx


def load_onnx(
    path: str | os.PathLike[str],
    *,
    input_shapes: Mapping[str, tuple[int, ...]] | None = None,
    outputs: Sequence[str] = (),
    constants: Mapping[str, ArrayLike] | None = None,
) -> Graph:
    """Read an ONNX model, quantised (QDQ or QOperator) or float, into the verified graph.

    Args:
        path: the .onnx file. Its external data is mapped, not read.
        input_shapes: static shapes of dynamic inputs, by input name.
        outputs: tensors that become the outputs instead of the model's own; what is behind them is left out.
        constants: values of inputs that become constants, by input name.

    Returns:
        The graph, dead nodes removed.

    Raises:
        UsageError: no such file, or `input_shapes`, `outputs` or `constants` contradict the model.
        InvalidModel: the file is damaged, or the model contradicts itself.
        Unsupported: a dynamic shape, or operators that Towline does not support, by node name.
        EnvironmentMissing: the onnx package is not installed.
    """
    model = read_onnx(path, external=False)
    cut(model, outputs=outputs, constants=constants, where=os.fspath(path))
    return graph_of(model, input_shapes=input_shapes, folder=Path(path).parent)


def graph_of(
    model: onnx.ModelProto,
    *,
    input_shapes: Mapping[str, tuple[int, ...]] | None = None,
    folder: Path | None = None,
) -> Graph:
    """As `load_onnx`, of a model in memory.

    Args:
        model: as `read_onnx` gives it.
        input_shapes: static shapes of dynamic inputs, by input name.
        folder: of the model, where its external data was not read.
    """
    graph = import_onnx(model, input_shapes=input_shapes, float_model=False, folder=folder)
    graph = join(eliminate_dead(graph))
    verify(graph)
    return graph


def survey(
    model: onnx.ModelProto,
    *,
    input_shapes: Mapping[str, tuple[int, ...]] | None = None,
    folder: Path | None = None,
) -> list[Refusal]:
    """Every node of a model that the importer refuses, in the model's order.

    Args:
        model: as `read_onnx` gives it.
        input_shapes: static shapes of dynamic inputs, by input name.
        folder: of the model, where its external data was not read.

    Raises:
        UsageError, InvalidModel, Unsupported: as `load_onnx`, of what is wrong with the model as a whole.
    """
    try:
        import_onnx(model, input_shapes=input_shapes, float_model=False, folder=folder)
    except Unsupported as problem:
        if not problem.refusals:  # it is not about nodes
            raise
        return list(problem.refusals)
    return []


def check_float(
    model: onnx.ModelProto,
    *,
    input_shapes: Mapping[str, tuple[int, ...]] | None = None,
    folder: Path | None = None,
) -> tuple[Refusal, ...]:
    """Refuse a float model that would be refused once quantised, naming the first node concerned.

    Args:
        model: as `read_onnx` gives it.
        input_shapes: static shapes of dynamic inputs, by input name.
        folder: of the model, where its external data was not read.

    Returns:
        The nodes that stay float, each with why it has no quantised form.

    Raises:
        UsageError: `input_shapes` contradicts the model.
        InvalidModel: NaN or infinite weights, or a model that contradicts itself.
        Unsupported: the model is quantised; a dynamic shape, or an operator that Towline does not support.
    """
    if is_quantized(model):
        raise Unsupported(
            "the model is already quantised",
            where=model.graph.name or "model",
            hint="compile it as it is, or give the float model",
        )
    for tensor in model.graph.initializer:
        array = to_array(tensor, f"initializer {tensor.name}", folder)
        # Bounds of a Clip are scalars and may be infinite.
        if array.ndim and np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
            raise InvalidModel("it holds NaN or infinity", where=f"initializer {tensor.name}")
    stays_float: list[Refusal] = []
    import_onnx(model, input_shapes=input_shapes, float_model=True, folder=folder, stays_float=stays_float)
    return tuple(stays_float)


def import_onnx(
    model: onnx.ModelProto,
    *,
    input_shapes: Mapping[str, tuple[int, ...]] | None = None,
    float_model: bool,
    folder: Path | None = None,
    stays_float: list[Refusal] | None = None,
) -> Graph:
    """As `load_onnx` and `check_float`, of a model that was read; dead nodes included, not verified.

    Args:
        model: as `read_onnx` gives it.
        input_shapes: static shapes of dynamic inputs, by input name.
        float_model: whether results that are not quantised take a made-up scale.
        folder: of the model, where its external data was not read.
        stays_float: takes the nodes of a float model that have no quantised form.
    """
    name = model.graph.name or "model"
    model = upgraded(model, name)
    sort_nodes(model.graph)
    opsets = opset_versions(model.opset_import)
    if model.functions:
        try:
            model = require("onnx.inliner").inline_local_functions(model)
        except require("onnx").checker.ValidationError as problem:
            reason = " ".join(str(problem).split())
            raise InvalidModel(f"its functions cannot be inlined: {reason}", where=name) from problem
    nodes = [decode_node(node, opsets) for node in model.graph.node]
    _check_structure(model, nodes, name)
    walk = Walk(
        nodes,
        [value.name for value in model.graph.output],
        float_model=float_model,
        convert=_convert,
        convert_plain=convert_plain,
        opsets=opsets,
        folder=folder,
        stays_float=stays_float,
    )
    for tensor in model.graph.initializer:
        walk.values[tensor.name] = Constant(
            tensor.name, to_array(tensor, f"initializer {tensor.name}", folder)
        )
    _add_inputs(walk, model, input_shapes or {}, name)
    for value in [*model.graph.value_info, *model.graph.output]:
        _declare(walk, value)
    refused = _Refused(walk)
    for node in nodes:
        if refused.reads(node):
            continue
        try:
            walk.convert(node)
        except Unsupported as problem:
            refused.add(problem, node)
    for output in walk.outputs:
        try:
            _finish(walk, output)
        except Unsupported as problem:
            refused.add(problem, None, output)
    refused.check()
    metadata = {"onnx.producer": model.producer_name} if model.producer_name else {}
    return walk.builder.graph(name, walk.inputs, walk.outputs, metadata)


def _convert(walk: Walk, node: OnnxNode) -> None:
    """Convert one node: folded, as an operator on quantised views, or on plain tensors."""
    if fold(walk, node):
        return
    handler = OPERATORS.get((node.domain, node.op_type))
    values = [walk.optional(node, index) for index in range(len(node.inputs))]
    if walk.float_model:
        if node.op_type in ("If", "Loop", "Scan"):
            convert_plain(walk, node)
        else:
            _convert_float(walk, node, handler)
        return
    if handler is not None and (node.domain, node.op_type) in QLINEAR:
        handler(walk, node)
        return
    first: Unsupported | None = None
    if handler is not None and (node.op_type in OWN or any(isinstance(value, VIEWS) for value in values)):
        try:
            if not any(isinstance(value, Plain) for value in values) or node.op_type in OWN:
                handler(walk, node)
                return
        except Unsupported as problem:
            first = problem
    if node.op_type in OWN and fold(walk, node, whatever=True):
        return
    if node.op_type in KEEP_SCALE + INDICES and any(isinstance(value, Quantized) for value in values):
        of_integers(walk, node)
        return
    if not is_known(node):
        raise first or refuse(node)
    try:
        convert_plain(walk, node)
    except Unsupported as problem:
        raise first or problem from None


def _convert_float(walk: Walk, node: OnnxNode, handler: Handler | None) -> None:
    """Convert a node of a model that is to be quantised: as an operator on quantised views if there is one,
    else on plain tensors, whose results are quantised again. A product by weights is quantised or refused.
    """
    first = Unsupported(f"{node.op_type} has no quantised form")
    if handler is not None:
        try:
            handler(walk, node)
            return
        except Unsupported as problem:
            if node.op_type in QUANTIZED_OR_REFUSED:
                raise
            first = problem
    elif not is_known(node):
        refuse(node)
    try:
        convert_plain(walk, node)
    except Unsupported as problem:
        raise (first if handler else problem) from None
    walk.stays_float.append(Refusal(node.name, node.op_type, first.message, first.hint))
    for name in filter(None, node.outputs):
        value = walk.values[name]
        if isinstance(value, Plain) and walk.builder.tensors[value.tensor].dtype == "float32":
            walk.values[name] = walk.made_up(name, node, value)


QUANTIZED_OR_REFUSED = ("BatchNormalization", "Conv", "ConvTranspose", "Gemm")
"""Products by weights, and what is folded into them: a model whose products stay float is not quantised."""

VIEWS = (Real, Quantized, QuantizedConstant)
"""What the handlers of quantised operators read."""

OWN = ("Constant", "QuantizeLinear", "DequantizeLinear")
"""Operators that they convert whatever they read, if they can."""


class _Refused:
    """The nodes that were refused, and what becomes of those that read their results."""

    def __init__(self, walk: Walk) -> None:
        self.walk = walk
        self.refusals: list[Refusal] = []
        self.first: Unsupported | None = None

    def add(self, problem: Unsupported, node: OnnxNode | None, output: str = "") -> None:
        """File a refusal; a node's results are taken to be what is declared or inferred."""
        if self.walk.float_model:
            raise problem
        self.first = self.first or problem
        name, op = (node.name, node.op_type) if node else (output, "")
        self.refusals.append(Refusal(name, op, problem.message, problem.hint))
        if node is not None:
            self._leave(node)

    def reads(self, node: OnnxNode) -> bool:
        """Whether a node reads something of which nothing is known; then so are its results."""
        values = [self.walk.values.get(name) for name in node.inputs]
        if not any(isinstance(value, Unknown) for value in values):
            return False
        self._leave(node)
        return True

    def _leave(self, node: OnnxNode) -> None:
        walk, names = self.walk, [name for name in node.outputs if name]
        values = {name: walk.values.get(name) for name in node.inputs if name}
        kinds = {name: kind_of(walk, value) for name, value in values.items()}
        known = {name: value.array for name, value in values.items() if isinstance(value, Constant)}
        complete = {name: kind for name, kind in kinds.items() if kind is not None}
        found = inferred(node, complete, known) if len(complete) == len(kinds) else None
        stated = dict(zip(names, found or (), strict=False)) | self._declared(names)
        for name in names:
            kind = stated.get(name)
            if kind is not None and kind[0] in STORED and 0 not in kind[1]:
                walk.builder.tensors.setdefault(name, Tensor(name, kind[1], kind[0]))
                walk.plains.setdefault(name, name)
                walk.values.setdefault(name, Plain(name))
            else:
                walk.values.setdefault(name, Unknown())

    def _declared(self, names: Sequence[str]) -> dict[str, Kind]:
        """Dtypes and shapes that the model states in full."""
        stated = {}
        for name in names:
            dtype, extents = self.walk.declared.get(name, ("", None))
            if extents is not None and None not in extents:
                stated[name] = (dtype, tuple(extent or 0 for extent in extents))
        return stated

    def check(self) -> None:
        """Raise what was refused, if anything was: the first refusal's message, then the others."""
        if self.first is None:
            return
        others = "; ".join(f"{r.name} ({r.op or 'output'}): {r.reason}" for r in self.refusals[1:])
        first = self.first
        message = f"{first.message}. Refused too: {others}" if others else first.message
        raise Unsupported(
            message, where=first.where, hint=first.hint, refusals=tuple(self.refusals)
        ) from first


def _copy_constant(walk: Walk, name: str, value: Constant | QuantizedConstant) -> None:
    """Make the output a copy of what is known before the network runs."""
    array = dequantized(value) if isinstance(value, QuantizedConstant) else value.array
    builder, where = walk.builder, f"output {name}"
    if not array.size:
        raise Unsupported(f"it has no elements: {list(array.shape)}", where=where)
    known = constant_tensor(builder.fresh(f"{name}/constant"), array, where)
    if known.dtype not in STORED:
        raise Unsupported(f"it is {known.dtype}; tensors are {', '.join(STORED)}", where=where)
    if name in builder.tensors:  # an initializer of that name, which other nodes read
        raise Unsupported("it is a constant that nodes read", where=where, hint="leave out the output")
    builder.file(known)
    copy = Tensor(name, known.shape, known.dtype)
    builder.emit(Reshape(f"{name}_copy", (known.name,), ""), copy)


def _declare(walk: Walk, value: onnx.ValueInfoProto) -> None:
    """Note what the model states of a value."""
    if value.type.WhichOneof("value") == "tensor_type" and value.type.tensor_type.elem_type:
        walk.declared[value.name] = _declared(value)


def _declared(value: onnx.ValueInfoProto) -> tuple[str, tuple[int | None, ...] | None]:
    """Dtype and shape; None for an extent that is open, which some exporters write as -1."""
    kind = value.type.tensor_type
    shape = None
    if kind.HasField("shape"):
        shape = tuple(dim.dim_value if dim.dim_value > 0 else None for dim in kind.shape.dim)
    return element_name(kind.elem_type), shape


def _check_structure(model: onnx.ModelProto, nodes: Sequence[OnnxNode], name: str) -> None:
    """What onnx's own checker finds; operators that it does not know, or no longer, are left out."""
    onnx = require("onnx")
    if model.graph.sparse_initializer:
        raise Unsupported("sparse initializers are not read", where=name)
    checked = skeleton(model)
    del checked.graph.node[:]
    for node in nodes:
        if node.proto.domain not in ("", "ai.onnx") or _is_current(node):
            checked.graph.node.append(node.proto)
            continue
        for output in filter(None, node.outputs):
            value = onnx.helper.make_tensor_value_info(output, onnx.TensorProto.FLOAT, None)
            checked.graph.input.append(value)
    for value in [*checked.graph.input, *checked.graph.output]:
        # The checker requires a type and a shape on each; onnxruntime does not, and what is missing of an
        # input is reported below.
        if value.type.WhichOneof("value") in (None, "tensor_type"):
            value.type.tensor_type.shape.SetInParent()
            value.type.tensor_type.elem_type = value.type.tensor_type.elem_type or onnx.TensorProto.FLOAT
    try:
        onnx.checker.check_model(checked)
    except UnicodeDecodeError as problem:
        raise InvalidModel(f"a text in it is not UTF-8: {problem.object!r}", where=name) from problem
    except onnx.checker.ValidationError as problem:
        reason = " ".join(str(problem).split())
        raise InvalidModel(f"onnx's checker refuses it: {reason}", where=name) from problem


def _is_current(node: OnnxNode) -> bool:
    """Whether onnx knows the operator, and has not deprecated it: its checker refuses those too."""
    defs = require("onnx.defs")
    if node.op_type in OF_ANY_OPSET:
        return False
    if not defs.has(node.op_type, node.opset, node.domain):
        return bool(defs.has(node.op_type, node.domain))
    return not defs.get_schema(node.op_type, node.opset, node.domain).deprecated


OF_ANY_OPSET = ("LayerNormalization",)
"""Operators that onnxruntime's optimiser writes in older opsets than have them."""


def _add_inputs(
    walk: Walk, model: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]], where: str
) -> None:
    """Make the graph's inputs values.

    In a quantised model a float32 input is a recipe, which a QuantizeLinear may turn into integers, and an
    8-bit one takes its scale from its readers.
    """
    # Before IR version 4 initializers are listed among the inputs too.
    inputs = [value for value in model.graph.input if value.name not in walk.values]
    for value in inputs:
        if value.type.WhichOneof("value") not in (None, "tensor_type"):
            raise Unsupported("it is not a tensor", where=f"input {value.name}")
    settled = static_shapes(inputs, shapes, where=where, batch_of_one=not walk.float_model)
    quantized = is_quantized(model)
    for value in inputs:
        walk.inputs.append(value.name)
        dtype = element_name(value.type.tensor_type.elem_type)
        allowed = ("float32",) if walk.float_model else STORED
        if dtype not in allowed:
            message = f"its type is {dtype}; inputs are {', '.join(allowed)}"
            raise Unsupported(message, where=f"input {value.name}")
        shape = settled[value.name]
        require_size(shape, f"input {value.name}")
        quantization = None
        if quantized and dtype in ("uint8", "int8"):
            quantization = input_quantization(walk, value.name, dtype, shape)
        walk.builder.tensors[value.name] = Tensor(value.name, shape, dtype, quantization)
        if quantization is not None:
            walk.values[value.name] = Quantized(value.name)
        elif dtype == "float32" and (quantized or walk.float_model):
            walk.values[value.name] = Real(value.name, value.name, shape, value.name, shape)
        else:
            walk.values[value.name] = Plain(value.name)
            walk.plains[value.name] = value.name


def _finish(walk: Walk, name: str) -> None:
    """Make the graph output `name` a tensor of that name."""
    where = f"output {name}"
    value = walk.values.get(name)
    if value is None:
        raise InvalidModel("no node computes it", where=where)
    match value:
        case Unknown():
            return  # refused already
        case Plain() | Quantized():
            tensor = value.tensor
        case Real():
            tensor = walk.float_tensor(value, where)
        case Tensors():
            raise Unsupported("it is a sequence of tensors", where=where)
        case _:
            _copy_constant(walk, name, value)
            return
    if tensor in walk.inputs and tensor == name:
        raise Unsupported("it is a graph input", where=where)
    if tensor != name:
        known = dataclasses.replace(walk.builder.tensors[tensor], name=name)
        walk.builder.emit(Reshape(f"{name}_copy", (tensor,), ""), known)
