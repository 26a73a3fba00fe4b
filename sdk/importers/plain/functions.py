"""Operators without a handler, expanded by the function bodies that onnx has of them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from sdk.extras import require
from sdk.importers.onnx_file import OnnxNode, decode_node, element_number, opset_versions
from sdk.importers.plain.conversion import Conversion
from sdk.importers.refusals import unknown_operator

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
        raise unknown_operator(node)
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
        for name in inner.output:
            names.setdefault(name, f"{c.first}/{name}" if name else "")
        proto = renamed(inner, names, attributes)
        last = index == len(body.node) - 1
        proto.name = node.name if last else f"{node.name}/{index}_{inner.op_type}"
        yield decode_node(proto, opsets)


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


def renamed(node: onnx.NodeProto, names: Mapping[str, str], attributes: Mapping[str, Any]) -> onnx.NodeProto:
    """A copy with other value names, in its graphs too, and attributes in place of references to them."""
    copy = require("onnx").NodeProto()
    copy.CopyFrom(node)
    for field in (copy.input, copy.output):
        for i, name in enumerate(field):
            field[i] = names.get(name, name)
    del copy.attribute[:]
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            copy.attribute.append(attribute)
        elif attribute.ref_attr_name in attributes:
            bound = copy.attribute.add()
            bound.CopyFrom(attributes[attribute.ref_attr_name])
            bound.name = attribute.name
    for attribute in copy.attribute:
        if attribute.HasField("g"):
            graph = attribute.g
            own = {tensor.name for tensor in graph.initializer}.union(*(n.output for n in graph.node))
            own |= {value.name for value in graph.input}
            outer = {name: given for name, given in names.items() if name not in own}
            inside = [renamed(inner, outer, attributes) for inner in graph.node]
            del graph.node[:]
            graph.node.extend(inside)
            for value in graph.output:
                value.name = outer.get(value.name, value.name)
    return copy
