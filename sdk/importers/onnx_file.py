"""ONNX files and protobuf messages, read with every check that keeps damage from looking like a model.

The format is onnx.proto of the ONNX repository; operator names and attributes are those of its Operators.md
and of onnxruntime's ContribOperators.md (domain com.microsoft).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sdk.errors import InvalidModel, Unsupported, UsageError
from sdk.extras import require
from sdk.graph import Array

if TYPE_CHECKING:
    import onnx

OLDEST_OPSET = 7
QUANTIZED_PREFIXES = ("QLinear", "QGemm", "QuantizeLinear", "DequantizeLinear", "DynamicQuantize")
INTEGER_OPERATORS = ("ConvInteger", "MatMulInteger")


def read_onnx(path: str | os.PathLike[str]) -> onnx.ModelProto:
    """Read an ONNX file, external data included.

    Raises:
        UsageError: there is no such file, or it is a directory, a pipe or unreadable.
        InvalidModel: it is empty, cut short, not ONNX, or external data is missing or too short.
        EnvironmentMissing: the onnx package is not installed.
    """
    onnx = require("onnx")
    helper = require("onnx.external_data_helper")
    decode_error = require("google.protobuf.message").DecodeError
    where, file = os.fspath(path), Path(path)
    try:
        if not file.exists():
            raise UsageError("no such file", where=where)
        if file.is_dir():
            raise UsageError("is a directory, not an ONNX file", where=where)
        if not file.is_file():  # reading a pipe may never end
            raise UsageError("is not a regular file", where=where)
        content = file.read_bytes()
    except OSError as problem:
        raise UsageError(f"cannot be read: {problem.strerror}", where=where) from problem
    if not content:
        raise InvalidModel("the file is empty", where=where)
    try:
        model = onnx.ModelProto.FromString(content)
    except decode_error as problem:
        hint = "export or download the model again"
        raise InvalidModel("not an ONNX file, or cut short", where=where, hint=hint) from problem
    if model.ir_version < 1 or not model.HasField("graph") or not model.graph.node:
        raise InvalidModel("not an ONNX file: it holds no graph with nodes", where=where)
    folder = file.parent
    for tensor in model.graph.initializer:
        if helper.uses_external_data(tensor):
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
        domain: "" for ONNX's own operators.
        opset: version of the domain in the model.
        inputs: value names; "" for an optional one left out.
        outputs: value names.
    """

    name: str
    op_type: str
    domain: str
    opset: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(repr=False)

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
    return OnnxNode(name, node.op_type, domain, opsets[domain], inputs, outputs, attributes)


def opset_versions(model: onnx.ModelProto) -> dict[str, int]:
    """Version by domain.

    Raises:
        Unsupported: an opset older than this importer knows.
    """
    versions = {("" if o.domain == "ai.onnx" else o.domain): int(o.version) for o in model.opset_import}
    if 0 < versions.get("", 0) < OLDEST_OPSET:
        raise Unsupported(
            f"opset {versions['']} is older than {OLDEST_OPSET}",
            where=model.graph.name or "model",
            hint="convert it with onnx.version_converter.convert_version(model, 13)",
        )
    return versions


def to_array(tensor: onnx.TensorProto, name: str) -> Array:
    """The elements of an initializer or a Constant.

    Raises:
        InvalidModel: its data does not fit its type and shape.
    """
    helper = require("onnx.numpy_helper")
    try:
        array: Array = helper.to_array(tensor)
    except (ValueError, TypeError, KeyError) as problem:
        raise InvalidModel(f"its data cannot be read: {problem}", where=f"initializer {name}") from problem
    return array


def input_shape(value: onnx.ValueInfoProto, override: tuple[int, ...] | None) -> tuple[int, ...]:
    """The static shape of a graph input.

    Raises:
        Unsupported: it is dynamic and `override` does not resolve it.
        UsageError: `override` is not a shape, or contradicts it.
    """
    where = f"input {value.name}"
    if override is not None and (
        not isinstance(override, tuple | list) or not all(isinstance(extent, int) for extent in override)
    ):
        raise UsageError(f"the shape given for it is not a tuple of whole numbers: {override!r}", where=where)
    known = value.type.tensor_type.HasField("shape")
    dims = list(value.type.tensor_type.shape.dim)
    extents = [d.dim_value if d.HasField("dim_value") and d.dim_value > 0 else 0 for d in dims]
    shown = ", ".join(str(d.dim_value or d.dim_param or "?") for d in dims)
    if override is not None:
        clash = known and len(override) != len(extents)
        clash = clash or (known and any(e not in (0, o) for e, o in zip(extents, override, strict=True)))
        if clash or min(override, default=1) < 1:
            text = "x".join(map(str, override))
            raise UsageError(f"shape {text} given for it, but the model says [{shown}]", where=where)
        return tuple(override)
    if known and all(extents):
        return tuple(extents)
    example = [1, 3, 224, 224] if not known or len(extents) == 4 else [1] * len(extents)
    if known:
        example = [e or x for e, x in zip(extents, example, strict=True)]
    raise Unsupported(
        f"its shape is dynamic: [{shown}]" if known else "its shape is not given",
        where=where,
        hint=f"pass --input-shape {value.name}={'x'.join(map(str, example))}",
    )
