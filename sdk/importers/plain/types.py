"""Types of a node's inputs against what ONNX's schema of its operator says."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from sdk.extras import require
from sdk.importers.plain.conversion import Conversion
from sdk.importers.values import Constant, Plain, QuantizedConstant, Real, Value, numpy_name

if TYPE_CHECKING:
    from sdk.importers.walk import Walk

TYPE_NAMES = {"float": "float32", "double": "float64"}


@cache
def _parameters(domain: str, op_type: str, opset: int) -> tuple[tuple[str, frozenset[str], bool], ...]:
    """Of each formal input: its type variable, its types, and whether it stands for all that follow."""
    defs = require("onnx.defs")
    if not defs.has(op_type, opset, domain):
        return ()
    schema = defs.get_schema(op_type, opset, domain)
    formal = []
    for parameter in schema.inputs:
        variadic = parameter.option == defs.OpSchema.FormalParameterOption.Variadic
        variable = parameter.type_str if parameter.is_homogeneous else ""
        allowed = {text.removeprefix("tensor(").removesuffix(")") for text in parameter.types}
        formal.append((variable, frozenset(TYPE_NAMES.get(name, name) for name in allowed), variadic))
    return tuple(formal)


def check_types(c: Conversion) -> None:
    """Raise InvalidModel where two inputs that must be of one type are not, or one is of a wrong type."""
    node, formal = c.node, _parameters(c.node.domain, c.node.op_type, c.node.opset)
    found: dict[str, tuple[str, str]] = {}
    for index, name in enumerate(node.inputs):
        if not name or not formal:
            continue
        variable, allowed, variadic = formal[min(index, len(formal) - 1)]
        if index >= len(formal) and not variadic:
            raise node.invalid(f"{node.op_type} with {len(node.inputs)} inputs")
        dtype = dtype_of(c.walk, c.walk.value(node, index))
        if dtype is None:
            continue
        if dtype not in allowed:
            raise node.invalid(f"its input {name!r} is {dtype}, which {node.op_type} does not take")
        other, known = found.setdefault(variable, (name, dtype)) if variable else (name, dtype)
        if known != dtype:
            raise node.invalid(
                f"its inputs {other!r} and {name!r} are {known} and {dtype}; {node.op_type} takes one type",
                "a Cast is missing, or one is left over",
            )


def dtype_of(walk: Walk, value: Value) -> str | None:
    """The type of a value's elements; None of integers of a quantised tensor, and of sequences."""
    match value:
        case Constant():
            return numpy_name(value.array.dtype.name)
        case Plain(tensor):
            return walk.builder.tensors[tensor].dtype
        case Real() | QuantizedConstant():
            return "float32"
    return None
