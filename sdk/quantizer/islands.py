"""Functions of one tensor kept whole while a float model is quantised.

``x * clip(x + 3, 0, 6) / 6`` takes four operators, and onnxruntime would quantise what is between them. It is
one table of 256 entries in the end (`sdk.importers.elementwise`), so nothing is gained by that and precision
is lost: what is between stays float.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

from sdk.extras import require
from sdk.importers.functions import ARITHMETIC, FUNCTIONS

BOUNDS = ("Relu", "Clip")


@dataclass(frozen=True)
class Islands:
    """What stays float.

    Attributes:
        tensors: of the model, those between the operators of a function, and its scalar constants.
        scalars: initializers (onnx.TensorProto) among them, by name.
        inputs: of each operator of such a function, by the name of its output.
    """

    tensors: frozenset[str]
    scalars: dict[str, Any]
    inputs: dict[str, tuple[str, ...]]


def find(model: Any) -> Islands:
    """The functions of several operators in a float model, whose Relu and Clip become Max and Min.

    onnxruntime would make a Relu or Clip the range of the tensor before it. It must not where that stays
    float, is an output too, or cannot have such a range.

    Args:
        model: onnx.ModelProto, its constants initializers; changed in place.
    """
    graph = model.graph
    scalars = {tensor.name: tensor for tensor in graph.initializer if _is_scalar(tensor)}
    constants = {tensor.name for tensor in graph.initializer}
    readers = Counter(name for node in graph.node for name in node.input)
    outputs = {value.name for value in graph.output}
    readers.update(outputs)
    quantized: set[str] = set()  # results of functions that are read elsewhere too
    while True:
        members = _members(graph, readers, scalars, constants, quantized)
        within = Counter(name for node in members for name in node.input)
        results = {node.output[0] for node in members if within[node.output[0]]} - quantized
        between = {name for name in results if readers[name] == within[name]}
        if between == results:
            break
        quantized |= results - between
    chained = [
        node
        for node in members
        if node.output[0] in between
        or between.intersection(node.input)
        or (node.op_type in BOUNDS and (node.input[0] in outputs or _lacks_zero(node, scalars)))
    ]
    for node in chained:
        if node.op_type in BOUNDS:
            between.update(_unbound(graph, node, scalars))
    members = [
        node for node in graph.node if node.output[0] in {node.output[0] for node in chained} | between
    ]
    used = {name: scalars[name] for node in members for name in node.input if name in scalars}
    inputs = {node.output[0]: tuple(node.input) for node in members}
    return Islands(frozenset(between.union(used)), used, inputs)


def _members(
    graph: Any, readers: Counter[str], scalars: Mapping[str, Any], constants: Set[str], quantized: Set[str]
) -> list[Any]:
    """Operators that compute a function of one tensor, which is no function itself or is `quantized`."""
    roots: dict[str, str] = {}  # of each result of a function: of which tensor
    members = []
    for node in graph.node:
        variable = [name for name in node.input if name and name not in constants]
        arguments = [name for name in node.input if name in constants]
        known = node.op_type in FUNCTIONS or node.op_type in ARITHMETIC or node.op_type in BOUNDS
        if not known or not variable or any(name not in scalars for name in arguments):
            continue
        sources = {name if name in quantized else roots.get(name, name) for name in variable}
        if len(sources) > 1:
            continue
        (source,) = sources
        if (
            node.op_type in BOUNDS
            and variable == [source]
            and readers[source] == 1
            and not _lacks_zero(node, scalars)
        ):
            continue  # the range of the operator before it
        if variable == [source, source]:
            continue  # x + x, x * x: operators of their own
        roots[node.output[0]] = source
        members.append(node)
    return members


def keep_float(model: Any, islands: Islands) -> None:
    """Take quantisation out of what is between the operators of a function.

    Args:
        model: onnx.ModelProto in QDQ form, made of the one that `find` saw; changed in place.
        islands: what `find` gave.
    """
    graph = model.graph
    for node in graph.node:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            continue
        # The quantiser renames what a graph output is made of.
        result = node.output[0]
        original = islands.inputs.get(
            result, islands.inputs.get(result.removesuffix("_QuantizeLinear_Input"))
        )
        if original is not None:
            for index, name in enumerate(original):
                if name in islands.tensors:
                    node.input[index] = name
    needed = {value.name for value in graph.output}
    kept = []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            needed.update(node.input)
            kept.append(node)
    del graph.node[:]
    graph.node.extend(reversed(kept))
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for tensor in constants.values():
        if tensor.name not in needed:
            graph.initializer.remove(tensor)
    missing = islands.scalars.keys() & needed - constants.keys()
    graph.initializer.extend(islands.scalars[name] for name in sorted(missing))


def _lacks_zero(node: Any, scalars: Mapping[str, Any]) -> bool:
    """Whether a Clip's range lacks 0. No quantised range does, so that none can stand for such a Clip."""
    to_array = require("onnx.numpy_helper").to_array
    low, high = (
        [float(to_array(scalars[name]).item()) if name else 0.0 for name in node.input[1:]] + [0.0, 0.0]
    )[:2]
    return low > 0 or high < 0


def _is_scalar(tensor: Any) -> bool:
    return tensor.data_type == require("onnx").TensorProto.FLOAT and all(
        extent == 1 for extent in tensor.dims
    )


def _unbound(graph: Any, node: Any, scalars: dict[str, Any]) -> list[str]:
    """Make a Relu or Clip a Max, a Min, or one behind the other; the tensor between them, if any."""
    onnx = require("onnx")
    output = node.output[0]
    if node.op_type == "Relu":
        zero = onnx.TensorProto(name=f"{output}.zero", data_type=onnx.TensorProto.FLOAT, float_data=[0.0])
        graph.initializer.append(zero)
        scalars[zero.name] = zero
        bounds = [("Max", zero.name)]
    else:
        bounds = [(op, name) for op, name in zip(("Max", "Min"), node.input[1:], strict=False) if name]
    if not bounds:
        node.op_type, node.input[:] = "Max", node.input[:1]
        return []
    x, between = node.input[0], []
    for op, name in bounds[:-1]:
        index = next(i for i, other in enumerate(graph.node) if other.output[0] == output)
        between.append(f"{output}.bounded")
        first = onnx.helper.make_node(op, [x, name], between, name=f"{node.name}.{op}")
        for value in [value for value in graph.value_info if value.name in (x, output)][:1]:
            info = graph.value_info.add()
            info.CopyFrom(value)
            info.name = between[0]
        graph.node.insert(index, first)
        x = between[0]
    node = next(other for other in graph.node if other.output[0] == output)
    node.op_type, node.input[:] = bounds[-1][0], [x, bounds[-1][1]]
    del node.attribute[:]
    return between
