"""Operators without a handler, expanded by the function bodies that onnx has of them."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sdk.extras import require
from sdk.importers.onnx_file import OnnxNode, decode_node, element_number, opset_versions, to_array
from sdk.importers.plain.conversion import Conversion
from sdk.importers.values import Constant

if TYPE_CHECKING:
    import onnx


@functools.cache
def _schema(domain: str, op_type: str, opset: int) -> Any:
    defs = require("onnx.defs")
    return defs.get_schema(op_type, opset, domain) if defs.has(op_type, opset, domain) else None


def has_body(node: OnnxNode) -> bool:
    """Whether onnx defines the operator by others."""
    schema = _schema(node.domain, node.op_type, node.opset)
    return schema is not None and bool(schema.has_function or schema.has_context_dependent_function)


def expanded(c: Conversion) -> Iterator[OnnxNode]:
    """The nodes of an operator's function body, in order.

    Raises:
        Unsupported: it has none for this opset and these inputs.
    """
    node = c.node
    body = _body(c) if has_body(node) else None
    if body is None:
        shown = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        raise node.unsupported(
            f"operator {shown} is not supported", "export the model without it, or with another operator"
        )
    names = dict(zip(body.output, node.outputs, strict=False))
    names |= dict(zip(body.input, node.inputs, strict=False))
    names |= dict.fromkeys(body.input[len(node.inputs) :], "")
    opsets = {**c.walk.opsets, **opset_versions(body.opset_import)}
    attributes = {attribute.name: attribute for attribute in node.proto.attribute}
    schema = _schema(node.domain, node.op_type, node.opset)
    for name, attribute in schema.attributes.items():
        if attribute.default_value.name:
            attributes.setdefault(name, attribute.default_value)
    for index, inner in enumerate(body.node):
        proto = _bound(inner, attributes)
        for field in (proto.input, proto.output):
            for i, name in enumerate(field):
                field[i] = names.setdefault(name, f"{c.first}/{name}") if name else ""
        last = index == len(body.node) - 1
        proto.name = node.name if last else f"{node.name}/{index}_{inner.op_type}"
        yield decode_node(proto, opsets)


def branch(c: Conversion) -> None:
    """The branch of an If that a constant condition chooses."""
    node, walk = c.node, c.walk
    graph = node.attributes["then_branch" if bool(c.constant(0).reshape(())) else "else_branch"]
    made = {name for inner in graph.node for name in inner.output} | {t.name for t in graph.initializer}
    names = {name: f"{c.first}/{name}" for name in made if name}
    names |= {
        value.name: given
        for value, given in zip(graph.output, node.outputs, strict=False)
        if value.name in made
    }
    for tensor in graph.initializer:
        array = to_array(tensor, f"{node.where}, initializer {tensor.name}", walk.folder)
        walk.values[names[tensor.name]] = Constant(names[tensor.name], array)
    for index, inner in enumerate(graph.node):
        proto = _bound(inner, {})
        for field in (proto.input, proto.output):
            for i, name in enumerate(field):
                field[i] = names.get(name, name)
        proto.name = f"{node.name}/{inner.name or f'{index}_{inner.op_type}'}"
        walk.convert(decode_node(proto, walk.opsets))
    for value, given in zip(graph.output, node.outputs, strict=False):
        if value.name not in made:  # a value of the graph around it
            walk.values[given] = walk.values[value.name]
            if value.name in walk.plains:
                walk.plains[given] = walk.plains[value.name]


def _body(c: Conversion) -> onnx.FunctionProto | None:
    onnx, node = require("onnx"), c.node
    schema = _schema(node.domain, node.op_type, node.opset)
    if schema.has_function:
        return onnx.FunctionProto.FromString(schema.get_function_with_opset_version(node.opset))
    helper = require("onnx.helper")
    types = []
    for index in range(len(node.inputs)):
        proto = onnx.TypeProto()
        if c.has(index):
            x = c.x(index)
            proto = helper.make_tensor_type_proto(element_number(x.dtype), x.shape)
        types.append(proto.SerializeToString())
    content = schema.get_context_dependent_function_with_opset_version(
        node.opset, node.proto.SerializeToString(), types
    )
    return onnx.FunctionProto.FromString(content) if content else None


def _bound(node: onnx.NodeProto, attributes: dict[str, Any]) -> onnx.NodeProto:
    """A copy whose references to attributes of the function are the values given for them."""
    onnx = require("onnx")
    bound = onnx.NodeProto()
    bound.CopyFrom(node)
    del bound.attribute[:]
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            bound.attribute.append(attribute)
        elif attribute.ref_attr_name in attributes:
            copy = bound.attribute.add()
            copy.CopyFrom(attributes[attribute.ref_attr_name])
            copy.name = attribute.name
    return bound
