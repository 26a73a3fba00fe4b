"""ONNX files and protobuf messages, read with every check that keeps damage from looking like a model.

The format is onnx.proto of the ONNX repository; operator names and attributes are those of its Operators.md
and of onnxruntime's ContribOperators.md (domain com.microsoft).
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sdk import files
from sdk.errors import InvalidModel, Unsupported
from sdk.extras import require
from sdk.graph import Array

if TYPE_CHECKING:
    import onnx

LOG = logging.getLogger("towline")
OLDEST_OPSET = 7
OLDEST_CONVERTED = 6
LARGEST_MADE = 768 << 20
"""Bytes of what a node's shapes or constants have the importer make: some files make weights so."""
NEWEST_OPSET = (1 << 31) - 1
"""The largest number that onnx's C++ takes for one."""
QUANTIZED_PREFIXES = ("QLinear", "QGemm", "QuantizeLinear", "DequantizeLinear", "DynamicQuantize")
INTEGER_OPERATORS = ("ConvInteger", "MatMulInteger")


def read_onnx(path: str | os.PathLike[str], *, external: bool = True) -> onnx.ModelProto:
    """Read an ONNX file.

    Args:
        path: of the file.
        external: whether to read external data too; else `to_array` maps it.

    Raises:
        UsageError: there is no such file, or it is a directory, a pipe or unreadable.
        InvalidModel: it is empty, cut short, not ONNX, or external data is missing or too short.
        EnvironmentMissing: the onnx package is not installed.
    """
    onnx = require("onnx")
    helper = require("onnx.external_data_helper")
    decode_error = require("google.protobuf.message").DecodeError
    where, file, content = os.fspath(path), Path(path), files.read_model(path)
    try:
        model = onnx.ModelProto.FromString(content)
    except decode_error as problem:
        hint = "export or download the model again"
        raise InvalidModel("not an ONNX file, or cut short", where=where, hint=hint) from problem
    if model.ir_version < 1 or not model.HasField("graph") or not model.graph.node:
        raise InvalidModel("not an ONNX file: it holds no graph with nodes", where=where)
    for entry in model.opset_import:
        if not 0 <= entry.version <= NEWEST_OPSET:
            raise InvalidModel(f"its opset of {entry.domain!r} is {entry.version}", where=where)
    _check_names(model, where)
    folder = file.parent
    for tensor in model.graph.initializer:
        if external and helper.uses_external_data(tensor):
            try:
                helper.load_external_data_for_tensor(tensor, str(folder))
            except (OSError, ValueError, onnx.checker.ValidationError) as problem:
                location = {entry.key: entry.value for entry in tensor.external_data}.get("location", "?")
                raise InvalidModel(
                    f"the external data of {tensor.name} in {location!r} cannot be read: {problem}",
                    where=where,
                    hint=f"keep {location!r} beside the .onnx file",
                ) from problem
            tensor.data_location = onnx.TensorProto.DEFAULT
            del tensor.external_data[:]
    return model


def _check_names(model: onnx.ModelProto, where: str) -> None:
    """Raise InvalidModel where a text is none: protobuf gives bytes then, and onnx's C++ fails on it."""
    waiting: list[Any] = [model]
    while waiting:
        message = waiting.pop()
        if message.DESCRIPTOR.name == "TensorProto":  # its data are not to be copied
            texts = [message.name, message.doc_string]
            waiting += message.external_data
        else:
            texts = []
            for kind, value in message.ListFields():
                if kind.type == kind.TYPE_MESSAGE:
                    waiting += [value] if hasattr(value, "ListFields") else value
                elif kind.type == kind.TYPE_STRING:
                    texts += [value] if isinstance(value, str | bytes) else value
        for text in texts:
            if not isinstance(text, str):
                raise InvalidModel(f"a text in it is not UTF-8: {text!r}", where=where)


def is_quantized(model: onnx.ModelProto) -> bool:
    """Whether any node quantises, dequantises or works on quantised values."""
    return any(
        node.op_type.startswith(QUANTIZED_PREFIXES) or node.op_type in INTEGER_OPERATORS
        for node in model.graph.node
    )


@dataclass(frozen=True)
class OnnxNode:
    """A NodeProto, its attributes decoded.

    Attributes:
        name: the node's own name, or one made of its operator and output where it has none.
        domain: "" for ONNX's own operators, and for those that onnxruntime has besides them.
        opset: version of the domain in the model.
        inputs: value names; "" for an optional one left out.
        outputs: value names.
        proto: the message itself.
    """

    name: str
    op_type: str
    domain: str
    opset: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(repr=False)
    proto: onnx.NodeProto = field(repr=False)

    @property
    def where(self) -> str:
        return f"node {self.name}"

    @property
    def output(self) -> str:
        if not self.outputs or not self.outputs[0]:
            raise self.invalid(f"{self.op_type} has no output")
        return self.outputs[0]

    def unsupported(self, message: str, hint: str | None = None) -> Unsupported:
        return Unsupported(message, where=self.where, hint=hint)

    def invalid(self, message: str, hint: str | None = None) -> InvalidModel:
        return InvalidModel(message, where=self.where, hint=hint)

    def require_room(self, nbytes: int) -> None:
        """Refuse what takes more than LARGEST_MADE bytes to import, before it is made."""
        if nbytes > LARGEST_MADE:
            raise self.unsupported(
                f"importing it takes {nbytes:,} bytes, more than {LARGEST_MADE:,}", "use smaller tensors"
            )

    def integer(self, name: str, default: int) -> int:
        value = self.attributes.get(name, default)
        if not isinstance(value, int):
            raise self.invalid(f"attribute {name} is not an integer")
        return value

    def number(self, name: str, default: float) -> float:
        value = self.attributes.get(name, default)
        if not isinstance(value, int | float):
            raise self.invalid(f"attribute {name} is not a number")
        return float(value)

    def text(self, name: str, default: str) -> str:
        value = self.attributes.get(name, default)
        return value.decode(errors="replace") if isinstance(value, bytes) else str(value)

    def integers(self, name: str) -> tuple[int, ...] | None:
        """The list attribute `name`, or None where it is not given."""
        value = self.attributes.get(name)
        if value is None:
            return None
        if not isinstance(value, Sequence) or not all(isinstance(item, int) for item in value):
            raise self.invalid(f"attribute {name} is not a list of integers")
        return tuple(value)


def decode_node(node: onnx.NodeProto, opsets: Mapping[str, int]) -> OnnxNode:
    """Decode a node.

    Raises:
        InvalidModel: an attribute has no value, or the node's domain is not imported by the model.
    """
    helper = require("onnx.helper")
    domain = "" if node.domain == "ai.onnx" else node.domain
    name = node.name or f"{node.op_type}_{next(iter(node.output), '')}"
    where = f"node {name}"
    if domain not in opsets:
        raise InvalidModel(f"the model imports no opset of {domain or 'ai.onnx'!r}", where=where)
    try:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    except ValueError as problem:
        raise InvalidModel(f"an attribute cannot be read: {problem}", where=where) from problem
    inputs, outputs = tuple(node.input), tuple(node.output)
    opset = opsets[domain]
    if domain == "com.microsoft" and node.op_type in CONTRIB_TWINS:
        domain, opset = "", CONTRIB_TWINS[node.op_type]
    return OnnxNode(name, node.op_type, domain, opset, inputs, outputs, attributes, node)


CONTRIB_TWINS = {"QuantizeLinear": 21, "DequantizeLinear": 21}
"""Operators that onnxruntime has in its own domain too, with the types of this opset of ONNX's."""


def opset_versions(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    """Version by domain."""
    return {("" if entry.domain == "ai.onnx" else entry.domain): int(entry.version) for entry in imports}


def upgraded(model: onnx.ModelProto, where: str) -> onnx.ModelProto:
    """The model in an opset that this importer knows: one of OLDEST_CONVERTED is converted by onnx.

    Raises:
        Unsupported: it is older, onnx cannot convert it, or the installed onnx does not know its opset.
    """
    version = opset_versions(model.opset_import).get("", 0)
    newest = require("onnx.defs").onnx_opset_version()
    if version > newest:
        message = f"opset {version} is newer than {newest}, the last that the installed onnx package knows"
        raise Unsupported(
            message, where=where, hint="upgrade the onnx package, or export with an older opset"
        )
    if not 0 < version < OLDEST_OPSET:
        return model
    hint = "export the model again with a newer opset"
    if version < OLDEST_CONVERTED:
        raise Unsupported(f"opset {version} is older than {OLDEST_CONVERTED}", where=where, hint=hint)
    shared = {tensor.name for tensor in model.graph.initializer if math.prod(tensor.dims) == 1}
    for value in model.graph.input:
        kind = value.type.tensor_type
        if kind.HasField("shape") and [dim.dim_value for dim in kind.shape.dim] in ([], [1]):
            shared.add(value.name)
    for node in model.graph.node:  # slopes lay along axis 1, which onnx's converter leaves as it is
        if node.op_type == "PRelu" and not shared.issuperset(node.input[1:]):
            name = node.name or next(iter(node.output), "")
            raise Unsupported(
                f"PRelu of opset {version} with a slope a channel", where=f"node {name}", hint=hint
            )
    converter = require("onnx.version_converter")
    try:
        converted: onnx.ModelProto = converter.convert_version(model, OLDEST_OPSET)
    except Exception as problem:  # its C++ raises anything
        reason = " ".join(str(problem).split())
        raise Unsupported(
            f"opset {version} is older than {OLDEST_OPSET}, and onnx cannot convert the model: {reason}",
            where=where,
            hint=hint,
        ) from problem
    LOG.info("%s: converted from opset %d to %d", where, version, OLDEST_OPSET)
    return converted


def element_name(element: int) -> str:
    """The name of a TensorProto.DataType: that of `sdk.dtypes` for all types that the graph has."""
    onnx = require("onnx")
    names = {onnx.TensorProto.FLOAT: "float32", onnx.TensorProto.DOUBLE: "float64"}
    try:
        return names.get(element) or str(onnx.TensorProto.DataType.Name(element).lower())
    except ValueError:
        return f"number {element}"


def element_number(name: str) -> int:
    """The TensorProto.DataType of a type of `sdk.dtypes`."""
    onnx = require("onnx")
    ours = {"float32": "FLOAT", "float64": "DOUBLE"}
    return int(onnx.TensorProto.DataType.Value(ours.get(name, name.upper())))


def to_array(tensor: onnx.TensorProto, where: str, folder: Path | None = None) -> Array:
    """The elements of an initializer or a Constant; those of external data are mapped.

    Args:
        tensor: the message.
        where: whose it is, for errors.
        folder: of the model, where its external data was not read.

    Raises:
        InvalidModel: its data does not fit its type and shape, is missing, or lies outside the folder.
    """
    helper = require("onnx.numpy_helper")
    if folder is not None and tensor.data_location == tensor.EXTERNAL:
        return _mapped(tensor, where, folder)
    try:
        array: Array = helper.to_array(tensor)
    except (ValueError, TypeError, KeyError, AttributeError) as problem:
        raise InvalidModel(f"its data cannot be read: {problem}", where=where) from problem
    return array


def _mapped(tensor: onnx.TensorProto, where: str, folder: Path) -> Array:
    """A view of the file that holds a tensor's elements."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    hint = f"keep {location!r} beside the .onnx file, unaltered"
    try:
        path = (folder / location).resolve()
        if not location or not path.is_relative_to(folder.resolve()):
            message = f"its external data {location!r} lies outside the model's directory"
            raise InvalidModel(message, where=where)
        dtype = np.dtype(require("onnx.helper").tensor_dtype_to_np_dtype(tensor.data_type))
        offset = int(entries.get("offset", 0))
        shape = tuple(tensor.dims)
        nbytes = math.prod(shape) * dtype.itemsize
        length = int(entries.get("length", nbytes))
        size = path.stat().st_size
    except OSError as problem:
        message = f"its external data {location!r} cannot be read: {problem.strerror}"
        raise InvalidModel(message, where=where, hint=hint) from problem
    except (ValueError, KeyError, RuntimeError) as problem:  # pathlib: a NUL, links in a circle
        raise InvalidModel(f"its external data is not described: {problem}", where=where) from problem
    if element_name(tensor.data_type) in HALF_BYTES:
        raise Unsupported(f"external data of {element_name(tensor.data_type)}", where=where)
    if offset < 0 or length != nbytes or offset + nbytes > size:
        message = f"its {nbytes:,} bytes at {offset:,} do not fit {location!r}, which has {size:,}"
        raise InvalidModel(message, where=where, hint=hint)
    if not nbytes:
        return np.zeros(shape, dtype)
    stored: Array = np.memmap(path, np.uint8, "r", offset, nbytes).view(np.ndarray)
    elements: Array = stored.view(dtype)
    return elements.reshape(shape)


HALF_BYTES = ("uint4", "int4", "float4e2m1", "uint2", "int2")
"""Types of which several elements share a byte."""


def skeleton(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy without the data of larger initializers: they are inputs of it."""
    onnx = require("onnx")
    copy = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    graph = copy.graph
    graph.name = model.graph.name
    for part in ("node", "input", "output", "value_info"):
        getattr(graph, part).extend(getattr(model.graph, part))
    known = {value.name for value in graph.input}
    for tensor in model.graph.initializer:
        if tensor.data_location != tensor.EXTERNAL and tensor.ByteSize() <= KEPT_IN_SKELETON:
            graph.initializer.append(tensor)
        elif tensor.name not in known:
            value = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            graph.input.append(value)
            known.add(tensor.name)
    return copy


KEPT_IN_SKELETON = 1024
"""Bytes of an initializer that shape inference may want to read."""
