"""What a model's file holds before it is imported, so that a model that is refused can be shown as well."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sdk.importers.onnx_file import element_name, is_quantized, opset_versions, read_onnx
from sdk.importers.tflite.file import TfliteModel, TfliteTensor, is_tflite, read_tflite

if TYPE_CHECKING:
    import onnx

Extent = int | str
"""Of an axis; the name of an extent that is open, "?" where it has none."""

BITS = {"float64": 64, "double": 64, "complex64": 64, "int64": 64, "uint64": 64} | {
    **dict.fromkeys(("float32", "int32", "uint32"), 32),
    **dict.fromkeys(("float16", "bfloat16", "int16", "uint16"), 16),
    **dict.fromkeys(("int4", "uint4", "float4e2m1"), 4),
}
"""Of element types; 8 of the others."""


@dataclass(frozen=True)
class Value:
    """A tensor as the file declares it; the shape is None where it is not declared."""

    name: str
    dtype: str
    shape: Sequence[Extent] | None


@dataclass(frozen=True)
class Operator:
    """An operator of the file; "" stands for an input or output left out."""

    name: str
    op: str
    inputs: Sequence[str]
    outputs: Sequence[str]


@dataclass(frozen=True)
class ModelFile:
    """A model as its file has it.

    Attributes:
        format: "onnx" or "tflite".
        nbytes: of the file, with its external data.
        opsets: version by domain; empty for TFLite.
        producer: what wrote it, "" if that is unknown.
        quantized: whether any activation is.
        precision: in words.
        inputs, outputs: as declared.
        operators: in order of execution, of the main graph.
        inner: operators in the branches and bodies of those, by their number.
        values: what is known of activations, by name.
        parameters: elements of constants that are not int32, int64 or bool.
        constant_bytes: of all constants.
    """

    format: str
    nbytes: int
    opsets: Mapping[str, int]
    producer: str
    quantized: bool
    precision: str
    inputs: Sequence[Value]
    outputs: Sequence[Value]
    operators: Sequence[Operator]
    inner: int
    values: Mapping[str, Value]
    parameters: int
    constant_bytes: int

    @property
    def counts(self) -> dict[str, int]:
        """Operators by name, in the alphabet's order."""
        return dict(sorted(Counter(one.op for one in self.operators).items()))

    @property
    def open_inputs(self) -> list[Value]:
        """Inputs whose shape is not static beyond the first extent, which is set to 1."""
        return [
            one for one in self.inputs if one.shape is None or any(isinstance(e, str) for e in one.shape[1:])
        ]


def read_model_file(path: str | os.PathLike[str]) -> ModelFile:
    """Read a model's file, ONNX or TFLite as its content says. External data is not touched.

    Raises:
        UsageError, InvalidModel, Unsupported, EnvironmentMissing: as `read_onnx` and `read_tflite`.
    """
    if is_tflite(path):
        return of_tflite(read_tflite(path), Path(path).stat().st_size)
    return of_onnx(read_onnx(path, external=False), Path(path).stat().st_size)


# -- ONNX -----------------------------------------------------------------------------------------------


def of_onnx(model: onnx.ModelProto, nbytes: int) -> ModelFile:
    """What an ONNX model that was read holds; `nbytes` are its file's."""
    graph = model.graph
    constants = list(_constants(graph))
    sizes: Counter[str] = Counter()
    parameters = 0
    external: Counter[str] = Counter()
    for tensor in constants:
        dtype, count = element_name(tensor.data_type), math.prod(tensor.dims)
        sizes[dtype] += _nbytes(dtype, count)
        parameters += 0 if dtype in ("int32", "int64", "bool", "string") else count
        if tensor.data_location == tensor.EXTERNAL:
            external[tensor.name] = _nbytes(dtype, count)
    known = {tensor.name for tensor in graph.initializer}
    values = [_onnx_value(one) for one in (*graph.input, *graph.value_info, *graph.output)]
    return ModelFile(
        format="onnx",
        nbytes=nbytes + external.total(),
        opsets={domain or "ai.onnx": number for domain, number in opset_versions(model.opset_import).items()},
        producer=" ".join(filter(None, (model.producer_name, model.producer_version))),
        quantized=is_quantized(model),
        precision=_onnx_precision(model, sizes),
        inputs=[_onnx_value(one) for one in graph.input if one.name not in known],
        outputs=[_onnx_value(one) for one in graph.output],
        operators=[
            Operator(
                node.name or f"{node.op_type}_{next(iter(node.output), '')}",
                f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type,
                tuple(name if name not in known else "" for name in node.input),
                tuple(node.output),
            )
            for node in graph.node
        ],
        inner=sum(map(_inner, graph.node)),
        values={one.name: one for one in values if one.name not in known},
        parameters=parameters,
        constant_bytes=sizes.total(),
    )


def _constants(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Initializers and values of Constant nodes, those of inner graphs included."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
        for inner in _bodies(node):
            yield from _constants(inner)


def _bodies(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """The branches of an If, the body of a Loop or Scan."""
    return [one for a in node.attribute for one in (*a.graphs, *([a.g] if a.HasField("g") else []))]


def _onnx_value(value: onnx.ValueInfoProto) -> Value:
    if value.type.WhichOneof("value") != "tensor_type":
        return Value(value.name, str(value.type.WhichOneof("value") or "unknown"), None)
    kind = value.type.tensor_type
    shape: list[Extent] | None = None
    if kind.HasField("shape"):
        shape = [
            dim.dim_value if dim.HasField("dim_value") and dim.dim_value > 0 else _open(dim.dim_param)
            for dim in kind.shape.dim
        ]
    return Value(value.name, element_name(kind.elem_type), shape)


def _open(name: str) -> str:
    """The name of an open extent; exporters write whole formulas there, which say no more than "?"."""
    return name if name.isidentifier() else "?"


def _inner(node: onnx.NodeProto) -> int:
    return sum(1 + _inner(inner) for graph in _bodies(node) for inner in graph.node)


def _onnx_precision(model: onnx.ModelProto, sizes: Mapping[str, int]) -> str:
    operators = {node.op_type for node in model.graph.node}
    floats = [name for name in sizes if "float" in name]
    usual = max(floats, key=lambda name: sizes[name], default="")
    if not usual:
        usual = next((one.dtype for one in map(_onnx_value, model.graph.input) if "float" in one.dtype), "")
    if operators & {"DynamicQuantizeLinear", "MatMulInteger", "ConvInteger"}:
        return f"{usual or 'float32'}, quantised while it runs (dynamic quantisation)"
    if is_quantized(model):
        return "quantised"
    return usual or "integers"


# -- TFLite ---------------------------------------------------------------------------------------------


def of_tflite(model: TfliteModel, nbytes: int) -> ModelFile:
    """What a TFLite model that was read holds; `nbytes` are its file's."""
    constants = [tensor for tensor in model.tensors if tensor.data is not None]
    activations = {tensor.index: tensor for tensor in model.tensors if tensor.data is None}

    def names(indices: Sequence[int]) -> tuple[str, ...]:
        return tuple(activations[index].name if index in activations else "" for index in indices)

    return ModelFile(
        format="tflite",
        nbytes=nbytes,
        opsets={},
        producer=model.description,
        quantized=model.is_quantized,
        precision=_tflite_precision(activations.values(), constants),
        inputs=[_tflite_value(model.tensors[index]) for index in model.inputs],
        outputs=[_tflite_value(model.tensors[index]) for index in model.outputs],
        operators=[
            Operator(one.name, one.op, names(one.inputs), names(one.outputs)) for one in model.operators
        ],
        inner=0,
        values={tensor.name: _tflite_value(tensor) for tensor in activations.values()},
        parameters=sum(
            _size(one) for one in constants if one.dtype not in ("int32", "int64", "bool", "string")
        ),
        constant_bytes=sum(int(one.data.nbytes) for one in constants if one.data is not None),
    )


def _size(tensor: TfliteTensor) -> int:
    return math.prod(tensor.shape)


def _tflite_value(tensor: TfliteTensor) -> Value:
    stated = tensor.signature or tensor.shape
    return Value(tensor.name, tensor.dtype, ["?" if extent < 0 else extent for extent in stated])


def _tflite_precision(activations: Any, constants: Sequence[TfliteTensor]) -> str:
    """TFLite's own words for a file: full-integer, int16x8, dynamic range, float16 weights, float32."""
    quantized = Counter(one.dtype for one in activations if one.scale.size)
    plain = Counter(one.dtype for one in activations if not one.scale.size and one.dtype.startswith("float"))
    weights: Counter[str] = Counter()
    for one in constants:
        width = "per channel" if one.scale.size > 1 else "per tensor"
        weights[f"{one.dtype} {width}" if one.scale.size else one.dtype] += _size(one)
    stored = [name for name in weights if name.startswith(("int8", "uint8", "int4"))]
    if quantized["int16"] > quantized.total() / 2 and stored:
        text = f"int16x8: quantised int16 activations, weights {stored[0]}"
    elif quantized:
        text = f"quantised {quantized.most_common(1)[0][0]}" + (f", weights {stored[0]}" if stored else "")
    elif stored and weights[stored[0]] > weights.total() / 2:
        return f"float32 activations, weights {stored[0]} (dynamic-range quantisation)"
    elif weights["float16"] > weights["float32"]:
        return "float32 activations, weights stored as float16"
    else:
        return "float32"
    return text + (f", {plain.total()} float tensors" if plain else "")


def _nbytes(dtype: str, count: int) -> int:
    return -(-count * BITS.get(dtype, 8) // 8)
