"""Whether a model file is one that a compiled network was made from, by its inputs and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sdk import dtypes
from sdk.errors import UsageError
from sdk.graph import Graph, Tensor
from sdk.importers.onnx_file import element_name, is_quantized

HINT = "give the models that the network was made from"


def inputs_of(model: Any) -> list[Any]:
    """The inputs that are fed: ValueInfoProtos."""
    constants = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in constants]


def require_same_network(model: Any, where: str, graph: Graph, *, quantized: bool) -> None:
    """Refuse a model that cannot stand beside a compiled network.

    Args:
        model: an onnx.ModelProto.
        where: its file.
        graph: the whole compiled network.
        quantized: whether it is to be the quantised model, or the float one.

    Raises:
        UsageError: it is of the other kind, or has other inputs or outputs, by name, shape or dtype.
    """
    if is_quantized(model) != quantized:
        kind, option = ("quantised", "--model") if is_quantized(model) else ("float", "--float")
        raise UsageError(f"is a {kind} model", where=where, hint=f"pass {kind} models with {option}")
    given = inputs_of(model)
    _require_names(where, "inputs", [value.name for value in given], graph.inputs)
    _require_names(where, "outputs", [value.name for value in model.graph.output], graph.outputs)
    for role, values in (("input", given), ("output", model.graph.output)):
        for value in values:
            _require_alike(where, role, value, graph.tensor(value.name), fed=role == "input")


def _require_names(where: str, role: str, found: Sequence[str], expected: Sequence[str]) -> None:
    if set(found) != set(expected):
        raise UsageError(
            f"its {role} are {', '.join(found)}; the compiled network's are {', '.join(expected)}",
            where=where,
            hint=HINT,
        )


def _require_alike(where: str, role: str, value: Any, tensor: Tensor, *, fed: bool) -> None:
    """A dynamic extent fits any; of what is fed, both must be floats, or of the same dtype."""
    kind = value.type.tensor_type
    if kind.HasField("shape"):
        found = [dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim]
        fits = len(found) == len(tensor.shape) and all(
            extent in (None, expected) for extent, expected in zip(found, tensor.shape, strict=True)
        )
        if not fits:
            shown = ", ".join("?" if extent is None else str(extent) for extent in found)
            raise UsageError(
                f"its {role} {value.name} is [{shown}]; the compiled network's is {list(tensor.shape)}",
                where=where,
                hint=HINT,
            )
    dtype = element_name(kind.elem_type)
    native = all(dtypes.is_float(name) and dtypes.dtype(name).is_native for name in (dtype, tensor.dtype))
    if fed and dtype != tensor.dtype and not native:
        raise UsageError(
            f"its {role} {value.name} is {dtype}; the compiled network's is {tensor.dtype}",
            where=where,
            hint=HINT,
        )
