"""TFLite files, which are flatbuffers, read with every check that keeps damage from looking like a model.

The format is schema.fbs of TensorFlow (tensorflow/compiler/mlir/lite/schema); the accessors generated from it
are the PyPI package `tflite`. FlatBuffers' Python runtime verifies nothing: offsets may point anywhere, and
tables may share one huge vector. So slices beyond the end are errors here, and all vectors together may only
be so much longer than the file.
"""

from __future__ import annotations

import functools
import math
import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from sdk import files
from sdk.errors import InvalidModel, Unsupported
from sdk.extras import require
from sdk.graph import Array
from sdk.importers.tflite.sparse import Dimension, densified

IDENTIFIER = b"TFL3"
LARGEST_RANK = 8

SHARING = 4
"""How often the vectors of a file may be read on average: tables may share one, but not a million."""

DAMAGE = (struct.error, IndexError, KeyError, ValueError, TypeError, OverflowError, AttributeError)
"""What the generated accessors raise on invalid offsets and types."""

NUMBERS = {
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
}
"""Types of the schema that numpy has too."""

LARGEST_DENSITY = 64
"""How many bytes a sparse constant may stand for, by byte of the file's budget."""

Shape = tuple[int, ...]


def is_tflite(path: str | os.PathLike[str]) -> bool:
    """Whether a file is TFLite by its identifier, or should be by its name."""
    try:
        with open(path, "rb") as file:
            head = file.read(8) if Path(path).is_file() else b""
    except OSError:
        head = b""
    return head[4:8] == IDENTIFIER or Path(path).suffix.lower() == ".tflite"


@dataclass(frozen=True)
class TfliteTensor:
    """A tensor of the file.

    Attributes:
        index: in the file's first subgraph.
        name: unique; made of the index where the file gives none.
        shape: as stored; 1 stands for what `signature` leaves open.
        signature: the shape with -1 for dynamic extents; None where there are none.
        dtype: the schema's TensorType in lower case: int8, float32, ...
        scale: float32 [1] or [channels]; [0] without quantisation.
        zero_point: int64, as many.
        axis: the channel axis of `scale`.
        data: a constant's elements, of `shape`; None for an activation.
        variable: whether it keeps its elements from one inference to the next.
    """

    index: int
    name: str
    shape: Shape
    signature: Shape | None
    dtype: str
    scale: Array = field(repr=False)
    zero_point: Array = field(repr=False)
    axis: int
    data: Array | None = field(repr=False)
    variable: bool = False

    @property
    def where(self) -> str:
        return f"tensor {self.index} ({self.name})"

    @property
    def is_quantized(self) -> bool:
        """Whether it is an 8-bit integer with a scale."""
        return self.dtype in ("int8", "uint8") and bool(self.scale.size)

    @property
    def is_wide(self) -> bool:
        """Whether it is a 16-bit integer with a scale."""
        return self.dtype == "int16" and bool(self.scale.size)


@dataclass(frozen=True)
class TfliteOperator:
    """An operator of the file.

    Attributes:
        index: in the file's first subgraph: its place in the order of execution.
        op: the schema's BuiltinOperator, or a custom operator's own name.
        inputs: tensor indices; -1 for an optional one left out.
        outputs: tensor indices.
        table: the schema's name of its options, "" without any.
        custom: the options of a custom operator, as stored.
    """

    index: int
    op: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    table: str = ""
    options: Any = field(default=None, repr=False)
    custom: bytes = b""

    @property
    def name(self) -> str:
        return f"{self.op}_{self.index}"

    @property
    def where(self) -> str:
        return f"operator {self.index} ({self.op})"

    def unsupported(self, message: str, hint: str | None = None) -> Unsupported:
        return Unsupported(message, where=self.where, hint=hint)

    def invalid(self, message: str, hint: str | None = None) -> InvalidModel:
        return InvalidModel(message, where=self.where, hint=hint)

    def option(self, table: str, name: str, default: Any = None) -> Any:
        """Field `name` of its options.

        Args:
            table: what the options must be: Conv2DOptions, ...
            name: the generated accessor: StrideH, ...
            default: the value where there are no options at all; None if there must be.

        Raises:
            InvalidModel: it has no options, others, or damaged ones.
        """
        if self.table != table:
            if not self.table and default is not None:
                return default
            raise self.invalid(f"its options are {self.table or 'missing'}, not {table}")
        try:
            return getattr(self.options, name)()
        except DAMAGE as problem:
            raise self.invalid(f"{table}.{name} cannot be read: {problem}") from problem


@dataclass(frozen=True)
class TfliteModel:
    """A subgraph of the file: the first, which is what runs.

    Attributes:
        others: the file's other subgraphs, by their number less one.
    """

    name: str
    description: str
    tensors: tuple[TfliteTensor, ...]
    operators: tuple[TfliteOperator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    others: tuple[TfliteModel, ...] = ()

    @property
    def is_quantized(self) -> bool:
        """Whether any activation is an integer with a scale."""
        return any(t.data is None and (t.is_quantized or t.is_wide) for t in self.tensors)

    @property
    def has_dynamic_range(self) -> bool:
        """Whether weights are integers and activations floats: the converter's dynamic-range quantisation."""
        return not self.is_quantized and any(t.data is not None and t.is_quantized for t in self.tensors)


def read_tflite(path: str | os.PathLike[str]) -> TfliteModel:
    """Read a TFLite file.

    Raises:
        UsageError: there is no such file, or it is a directory, a pipe or unreadable.
        InvalidModel: it is empty, cut short, damaged, or not TFLite.
        Unsupported: its constants lie outside the flatbuffer.
        EnvironmentMissing: the tflite package is not installed.
    """
    return parse_tflite(files.read_model(path), os.fspath(path))


def parse_tflite(content: bytes, where: str) -> TfliteModel:
    """As `read_tflite`, from the file's bytes; `where` is named in errors."""
    tflite = require("tflite")
    hint = "convert or download the model again"
    if content[4:8] != IDENTIFIER:
        raise InvalidModel("not a TFLite file: its identifier is missing", where=where, hint=hint)
    try:
        return _Reader(tflite, content).model()
    except DAMAGE as problem:
        raise InvalidModel(
            f"a damaged TFLite file, or cut short: {problem}", where=where, hint=hint
        ) from problem


class _Checked(bytes):
    """Bytes of which no slice is silently shorter than requested."""

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice) and not 0 <= key.start <= key.stop <= len(self):
            raise IndexError(f"bytes {key.start} to {key.stop} of {len(self)}")
        return super().__getitem__(key)


class _Reader:
    """One pass over a file. Everything in `DAMAGE` may come out of its methods."""

    def __init__(self, tflite: Any, content: bytes) -> None:
        self.tflite = tflite
        self.content = _Checked(content)
        self.budget = SHARING * len(content)

    def model(self) -> TfliteModel:
        root = self.tflite.Model.GetRootAsModel(self.content, 0)
        if root.Version() != 3:
            raise ValueError(f"schema version {root.Version()}, not 3")
        count = self.count("subgraph", root.SubgraphsLength(), 4, least=1)
        codes = [self.code(root.OperatorCodes(i)) for i in self.count("code", root.OperatorCodesLength(), 4)]
        buffers = [root.Buffers(i) for i in self.count("buffer", root.BuffersLength(), 4)]
        for buffer in buffers:
            buffer.DataLength()  # of one without a tensor too: a file cut short may lack only that
        first, *others = (self.subgraph(root.Subgraphs(i), codes, buffers) for i in count)
        return replace(first, description=self.text(root.Description()), others=tuple(others))

    def subgraph(self, graph: Any, codes: list[str], buffers: list[Any]) -> TfliteModel:
        names: dict[str, int] = {}
        tensors = [
            self.tensor(i, graph.Tensors(i), buffers, names)
            for i in self.count("tensor", graph.TensorsLength(), 4, least=1)
        ]
        operators = [
            self.operator(i, graph.Operators(i), codes, len(tensors))
            for i in self.count("operator", graph.OperatorsLength(), 4, least=1)
        ]
        inputs, outputs = self.vector(graph, "Inputs"), self.vector(graph, "Outputs")
        for index in (*inputs, *outputs):
            if not 0 <= index < len(tensors):
                raise IndexError(f"tensor {index} of {len(tensors)} as input or output")
        name = self.text(graph.Name()) or "model"
        return TfliteModel(name, "", tuple(tensors), tuple(operators), inputs, outputs)

    def count(self, what: str, length: int, width: int, *, least: int = 0) -> range:
        """Indices of a vector of `length` elements of `width` bytes, taken from the budget."""
        self.budget -= length * width
        if self.budget < 0:
            raise ValueError(f"a {what} vector of {length} elements is longer than the file has room for")
        if length < least:
            raise ValueError(f"it holds no {what}")
        return range(length)

    def vector(self, table: Any, name: str) -> tuple[int, ...]:
        self.count(name, getattr(table, f"{name}Length")(), 4)
        return () if getattr(table, f"{name}IsNone")() else tuple(getattr(table, f"{name}AsNumpy")().tolist())

    def text(self, value: bytes | None) -> str:
        self.count("character", len(value or b""), 1)
        return (value or b"").decode("utf-8", "replace")

    def code(self, code: Any) -> str:
        # Files from before 2020 have the byte alone; later ones have 127 there for what does not fit.
        number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        name: str = _names(self.tflite.BuiltinOperator)[number]
        return (self.text(code.CustomCode()) or name) if name == "CUSTOM" else name

    def operator(self, index: int, operator: Any, codes: list[str], tensors: int) -> TfliteOperator:
        code = operator.OpcodeIndex()
        inputs, outputs = self.vector(operator, "Inputs"), self.vector(operator, "Outputs")
        for tensor in (*inputs, *outputs):
            if not -1 <= tensor < tensors:
                raise IndexError(f"operator {index} with tensor {tensor} of {tensors}")
        table = _names(self.tflite.BuiltinOptions)[operator.BuiltinOptionsType()]
        options, union = None, operator.BuiltinOptions()
        if table == "NONE" or union is None:
            table = ""
        else:
            options = getattr(self.tflite, table)()
            options.Init(union.Bytes, union.Pos)
        self.count("custom option", operator.CustomOptionsLength(), 1)
        custom = b"" if operator.CustomOptionsIsNone() else bytes(operator.CustomOptionsAsNumpy())
        return TfliteOperator(index, codes[code], inputs, outputs, table, options, custom)

    def tensor(self, index: int, tensor: Any, buffers: list[Any], names: dict[str, int]) -> TfliteTensor:
        shape = self.vector(tensor, "Shape")
        signature = self.vector(tensor, "ShapeSignature") if -1 in self.peek_signature(tensor) else None
        if len(shape) > LARGEST_RANK or (shape and min(shape) < 0):
            raise ValueError(f"tensor {index} of shape {list(shape[:LARGEST_RANK])}")
        if signature is not None and len(signature) != len(shape):
            raise ValueError(f"tensor {index} of rank {len(shape)} and signature {list(signature)}")
        base = self.text(tensor.Name()) or f"tensor{index}"
        name = base if names.setdefault(base, index) == index else f"{base}:{index}"
        while names.setdefault(name, index) != index:
            name += "'"
        dtype = _names(self.tflite.TensorType)[tensor.Type()].lower()
        scale, zero_point, axis = self.quantization(tensor.Quantization())
        number, variable = tensor.Buffer(), bool(tensor.IsVariable())
        data = None
        if number != 0 and not variable:
            where = f"tensor {index} ({name})"
            stored = self.stored(buffers[number], where)
            if stored is not None and tensor.Sparsity() is not None:
                data = self.dense(stored, tensor.Sparsity(), shape, dtype)
            elif stored is not None:
                data = elements(stored, shape, dtype, where)
            elif 0 in shape and dtype in NUMBERS:
                data = np.zeros(shape, dtype)
        return TfliteTensor(index, name, shape, signature, dtype, scale, zero_point, axis, data, variable)

    def peek_signature(self, tensor: Any) -> tuple[int, ...]:
        if tensor.ShapeSignatureLength() > LARGEST_RANK or tensor.ShapeSignatureIsNone():
            return ()
        return tuple(tensor.ShapeSignatureAsNumpy().tolist())

    def quantization(self, table: Any) -> tuple[Array, Array, int]:
        none = np.zeros(0, np.float32), np.zeros(0, np.int64), 0
        if table is None or table.ScaleLength() == 0:
            return none
        self.count("scale", table.ScaleLength(), 4)
        self.count("zero point", table.ZeroPointLength(), 8)
        if table.DetailsType() != self.tflite.QuantizationDetails.NONE:
            raise ValueError("a custom quantisation")
        scale = table.ScaleAsNumpy()
        zero_point = (
            np.zeros(len(scale), np.int64) if table.ZeroPointLength() == 0 else table.ZeroPointAsNumpy()
        )
        if len(zero_point) == 1:
            zero_point = np.repeat(zero_point, len(scale))
        if len(scale) != len(zero_point):
            raise ValueError(f"{len(scale)} scales and {len(zero_point)} zero points")
        return scale, zero_point, table.QuantizedDimension()

    def stored(self, buffer: Any, where: str) -> Array | None:
        """The bytes of a buffer; None where it has none."""
        if buffer.Offset() > 1:
            raise Unsupported("its data follows the flatbuffer, as in files over 2 GB", where=where)
        return None if buffer.DataLength() == 0 else np.asarray(buffer.DataAsNumpy())

    def dense(self, stored: Array, sparsity: Any, shape: Shape, dtype: str) -> Array:
        """The elements of a sparse constant, zeros included."""
        dimensions = []
        for i in self.count("dimension", sparsity.DimMetadataLength(), 4, least=1):
            found = sparsity.DimMetadata(i)
            if found.Format() == self.tflite.DimensionType.DENSE:
                dimensions.append(Dimension(found.DenseSize()))
                continue
            segments = self.indices(found.ArraySegments(), found.ArraySegmentsType())
            dimensions.append(
                Dimension(0, segments, self.indices(found.ArrayIndices(), found.ArrayIndicesType()))
            )
        order, blocks = self.vector(sparsity, "TraversalOrder"), self.vector(sparsity, "BlockMap")
        made = math.prod(shape) * np.dtype(dtype).itemsize
        self.count("sparse byte", made // LARGEST_DENSITY, 1)
        values = stored.view(np.dtype(dtype).newbyteorder("<"))
        return densified(values, shape, dimensions, order, blocks)

    def indices(self, union: Any, kind: int) -> Array:
        """A SparseIndexVector."""
        name = _names(self.tflite.SparseIndexVector)[kind]
        table = getattr(self.tflite, name)()
        table.Init(union.Bytes, union.Pos)
        self.count("index", table.ValuesLength(), 1)
        return np.asarray(table.ValuesAsNumpy(), np.int64) if table.ValuesLength() else np.zeros(0, np.int64)


def elements(stored: Array, shape: Shape, dtype: str, where: str) -> Array:
    """Bytes as the elements of a constant."""
    if dtype == "int4" and stored.size == -(-math.prod(shape) // 2):
        halves = np.stack([stored << 4, stored], axis=-1).view(np.int8) >> 4  # the lower half comes first
        return np.asarray(halves.reshape(-1)[: math.prod(shape)].reshape(shape))
    if dtype not in NUMBERS:  # a constant too, of a type that no operator takes
        return stored
    element = np.dtype(dtype)
    if stored.size != math.prod(shape) * element.itemsize:
        raise ValueError(f"{where}: {stored.size} bytes of data for {dtype} {list(shape)}")
    return np.asarray(stored.view(element.newbyteorder("<")).reshape(shape))


@functools.cache
def _names(enumeration: Callable[..., Any]) -> Mapping[int, str]:
    """Names of a generated enumeration, by value."""
    members = vars(enumeration).items()
    return {value: name for name, value in members if isinstance(value, int) and not name.startswith("_")}
